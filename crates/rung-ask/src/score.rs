//! From a reply to an answer.
//!
//! With log-probabilities the answer is the symbol with the largest probability among all symbols, and the mass on symbols is
//! reported: a model that puts little mass there was not answering the question. Without them it is what was generated, compared to
//! the letter, and the record says so.

use crate::Reply;
use crate::prompt::Question;

/// How an answer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadBy {
    /// The largest probability among answer symbols.
    Probabilities,
    /// The generated token.
    Text,
    /// The last line `Answer: X` of a written chain of thought.
    ChainOfThought,
}

/// An answer to one question. Holds no time and no address, so that records of equal runs are equal.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Which question.
    pub id: String,
    /// Hops it asks for.
    pub hops: usize,
    /// Rows of a table.
    pub entries: usize,
    /// [`Variant::label`](crate::prompt::Variant::label) of its prompt.
    pub variant: String,
    /// The right symbol.
    pub expected: String,
    /// The symbol that was chosen; none if the reply names no symbol.
    pub found: Option<String>,
    /// How it was read.
    pub read_by: ReadBy,
    /// Probability on all answer symbols together, where probabilities are known.
    pub mass: Option<f64>,
    /// The model reasoned although it was asked not to: counted apart.
    #[serde(default)]
    pub reasoned: bool,
}

impl Answer {
    /// Whether it is right.
    pub fn is_right(&self) -> bool {
        self.found.as_ref() == Some(&self.expected)
    }
}

/// Which symbol a one-token reply names, how it was read, and the mass on symbols.
pub fn read_token(question: &Question, reply: &Reply) -> (Option<String>, ReadBy, Option<f64>) {
    if reply.first_token.is_empty() {
        let text = reply.text.trim();
        return (question.symbols.iter().find(|symbol| *symbol == text).cloned(), ReadBy::Text, None);
    }
    let mut best: Option<(&String, f64)> = None;
    let mut mass = 0.0;
    for symbol in &question.symbols {
        // A symbol may be a token with and without leading space.
        let tokens = reply.first_token.iter().filter(|token| token.text.trim() == symbol);
        let probability: f64 = tokens.map(|token| token.probability).sum();
        mass += probability;
        if probability > best.map_or(0.0, |(_, most)| most) {
            best = Some((symbol, probability));
        }
    }
    (best.map(|(symbol, _)| symbol.clone()), ReadBy::Probabilities, Some(mass))
}

/// The symbol after the last `Answer:` of a written reply.
pub fn read_chain_of_thought(question: &Question, reply: &Reply) -> Option<String> {
    let (_, rest) = reply.text.rsplit_once("Answer:")?;
    let word =
        rest.split(|letter: char| letter.is_whitespace() || ".,\"'*".contains(letter)).find(|word| !word.is_empty())?;
    question.symbols.iter().find(|symbol| *symbol == word).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenProbability;

    fn question() -> Question {
        let symbols = vec!["A".to_owned(), "B".to_owned()];
        Question { id: String::new(), text: String::new(), symbols, answer: "B".to_owned(), hops: 1 }
    }

    fn token(text: &str, probability: f64) -> TokenProbability {
        TokenProbability { text: text.to_owned(), probability }
    }

    #[test]
    fn the_largest_symbol_wins_whatever_else_is_likely() {
        let first_token = vec![token(" the", 0.6), token(" A", 0.15), token("B", 0.1), token(" B", 0.1)];
        let reply = Reply { text: " the".to_owned(), first_token, reasoned: false };
        let (found, by, mass) = read_token(&question(), &reply);
        assert_eq!((found.as_deref(), by), (Some("B"), ReadBy::Probabilities));
        assert!((mass.unwrap() - 0.35).abs() < 1e-12);
    }

    #[test]
    fn without_probabilities_only_the_exact_symbol_counts() {
        let reply = |text: &str| Reply { text: text.to_owned(), ..Reply::default() };
        assert_eq!(read_token(&question(), &reply(" B")).0.as_deref(), Some("B"));
        assert_eq!(read_token(&question(), &reply("Both")).0, None);
        assert_eq!(read_token(&question(), &reply(" B")).2, None);
    }

    #[test]
    fn the_last_answer_of_a_chain_of_thought_counts() {
        let reply = |text: &str| Reply { text: text.to_owned(), ..Reply::default() };
        assert_eq!(read_chain_of_thought(&question(), &reply("A to B\nAnswer: A\nAnswer: B.")).as_deref(), Some("B"));
        assert_eq!(read_chain_of_thought(&question(), &reply("Answer: **A**")).as_deref(), Some("A"));
        assert_eq!(read_chain_of_thought(&question(), &reply("B")), None);
    }
}
