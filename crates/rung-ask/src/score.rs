//! Turns a model's reply into an answer.
//!
//! With log-probabilities the answer is the symbol with the largest probability among all symbols, and the probability mass on all symbols is
//! reported: a model with little mass on symbols was not answering the question. Without log-probabilities the answer is the generated
//! text, which must equal a symbol after surrounding white space is removed, and the record says so. The answer of a written chain of
//! thought is the first word after its last `Answer:`.

use crate::Reply;
use crate::prompt::Question;

/// What the answer symbol was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerSource {
    /// The largest probability among answer symbols.
    Probabilities,
    /// The generated text.
    Text,
    /// The first word after the last `Answer:` of a written chain of thought.
    ChainOfThought,
}

/// An answer to one question. Holds no time and no address, so that records of equal runs are equal.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Id of the question.
    pub id: String,
    /// Number of hops that the question asks for.
    pub hops: usize,
    /// Number of entries (rows) of each table.
    #[serde(rename = "entries")]
    pub entries_per_table: usize,
    /// [`Variant::label`](crate::prompt::Variant::label) of its prompt.
    pub variant: String,
    /// The right symbol.
    pub expected: String,
    /// The symbol in the reply; none if the reply contains no symbol.
    #[serde(rename = "found")]
    pub reply_symbol: Option<String>,
    /// What `reply_symbol` was read from.
    #[serde(rename = "read_by")]
    pub source: AnswerSource,
    /// Probability on all answer symbols together, where probabilities are known.
    #[serde(rename = "mass")]
    pub symbol_mass: Option<f64>,
    /// Whether the model reasoned although it was asked not to; such answers are counted separately.
    #[serde(default, rename = "reasoned")]
    pub has_reasoning: bool,
}

impl Answer {
    /// Whether the answer is right.
    pub fn is_right(&self) -> bool {
        self.reply_symbol.as_ref() == Some(&self.expected)
    }
}

/// The symbol of a one-token reply, what it was read from, and the probability mass on all symbols.
pub fn symbol_from_token(question: &Question, reply: &Reply) -> (Option<String>, AnswerSource, Option<f64>) {
    if reply.first_token_candidates.is_empty() {
        let text = reply.text.trim();
        return (question.symbols.iter().find(|symbol| *symbol == text).cloned(), AnswerSource::Text, None);
    }
    let mut best: Option<(&String, f64)> = None;
    let mut symbol_mass = 0.0;
    for symbol in &question.symbols {
        // A symbol may be a token with and without leading space.
        let tokens = reply.first_token_candidates.iter().filter(|token| token.text.trim() == symbol);
        let probability: f64 = tokens.map(|token| token.probability).sum();
        symbol_mass += probability;
        if probability > best.map_or(0.0, |(_, largest)| largest) {
            best = Some((symbol, probability));
        }
    }
    (best.map(|(symbol, _)| symbol.clone()), AnswerSource::Probabilities, Some(symbol_mass))
}

/// The first word after the last `Answer:` of a chain of thought, if it is a symbol.
pub fn symbol_from_chain_of_thought(question: &Question, reply: &Reply) -> Option<String> {
    let (_, conclusion) = reply.text.rsplit_once("Answer:")?;
    let word = conclusion
        .split(|character: char| character.is_whitespace() || ".,\"'*".contains(character))
        .find(|word| !word.is_empty())?;
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
    fn the_most_likely_symbol_is_the_answer_even_if_another_token_is_more_likely() {
        let first_token_candidates = vec![token(" the", 0.6), token(" A", 0.15), token("B", 0.1), token(" B", 0.1)];
        let reply = Reply { text: " the".to_owned(), first_token_candidates, has_reasoning: false };
        let (reply_symbol, source, symbol_mass) = symbol_from_token(&question(), &reply);
        assert_eq!((reply_symbol.as_deref(), source), (Some("B"), AnswerSource::Probabilities));
        assert!((symbol_mass.unwrap() - 0.35).abs() < 1e-12);
    }

    #[test]
    fn without_probabilities_only_the_exact_symbol_counts() {
        let reply = |text: &str| Reply { text: text.to_owned(), ..Reply::default() };
        assert_eq!(symbol_from_token(&question(), &reply(" B")).0.as_deref(), Some("B"));
        assert_eq!(symbol_from_token(&question(), &reply("Both")).0, None);
        assert_eq!(symbol_from_token(&question(), &reply(" B")).2, None);
    }

    #[test]
    fn the_last_answer_of_a_chain_of_thought_counts() {
        let reply = |text: &str| Reply { text: text.to_owned(), ..Reply::default() };
        assert_eq!(
            symbol_from_chain_of_thought(&question(), &reply("A to B\nAnswer: A\nAnswer: B.")).as_deref(),
            Some("B")
        );
        assert_eq!(symbol_from_chain_of_thought(&question(), &reply("Answer: **A**")).as_deref(), Some("A"));
        assert_eq!(symbol_from_chain_of_thought(&question(), &reply("B")), None);
    }
}
