//! Which symbols stand for answers.
//!
//! An answer is read from one token, so every answer symbol must be one token for the model asked. Which texts are, only its
//! tokenizer knows: candidates are put to it, with the white space that stands before the answer. A server that has no tokenizer
//! to ask gets capital letters, and the record says that this was not checked.

use crate::{AnsweringModel, AskError};

/// Candidates beyond capital letters: short common words that most vocabularies hold as one token.
const WORDS: &[&str] = &[
    "red", "blue", "green", "dog", "cat", "sun", "moon", "tree", "book", "fish", "bird", "gold", "iron", "rain",
    "snow", "wind", "fire", "water", "stone", "sand", "salt", "milk", "bread", "apple", "horse", "house", "door",
    "table", "chair", "lamp", "clock", "ship", "train", "road", "hill", "river", "lake", "king", "queen", "star",
    "leaf", "rose", "wolf", "bear", "lion", "coat", "shoe", "hand", "foot", "head", "heart", "paper", "glass", "wood",
    "silver", "north", "south", "east", "west", "black", "white", "brown", "orange", "purple",
];

/// Answer symbols, and whether a tokenizer confirmed that each is one token.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Symbols {
    /// The symbols, all different.
    pub symbols: Vec<String>,
    /// Whether the model's tokenizer was asked.
    pub checked: bool,
}

/// All candidates, in the order they are tried.
fn candidates() -> impl Iterator<Item = String> {
    ('A'..='Z').map(String::from).chain(WORDS.iter().map(|word| (*word).to_owned()))
}

/// The first `count` candidates, unchecked: capital letters, then words.
pub fn letters(count: usize) -> Vec<String> {
    candidates().take(count).collect()
}

/// The first `count` candidates that are one token after `lead` for this model.
///
/// # Errors
/// The model cannot be reached, or has fewer such tokens.
pub fn choose(model: &dyn AnsweringModel, lead: &str, count: usize) -> Result<Symbols, AskError> {
    let mut symbols = Vec::new();
    for candidate in candidates() {
        if symbols.len() == count {
            break;
        }
        match is_one_token(model, lead, &candidate)? {
            None => return unchecked(count),
            Some(true) => symbols.push(candidate),
            Some(false) => (),
        }
    }
    if symbols.len() < count {
        return Err(AskError::TooFewSymbols { found: symbols.len(), expected: count });
    }
    Ok(Symbols { symbols, checked: true })
}

/// Checks symbols that a task prescribes (digits, `yes` and `no`).
///
/// # Errors
/// The model cannot be reached, or one of them is not one token.
pub fn check(model: &dyn AnsweringModel, lead: &str, symbols: &[String]) -> Result<Symbols, AskError> {
    let mut fitting = 0;
    for symbol in symbols {
        match is_one_token(model, lead, symbol)? {
            None => return Ok(Symbols { symbols: symbols.to_vec(), checked: false }),
            Some(fits) => fitting += usize::from(fits),
        }
    }
    if fitting < symbols.len() {
        return Err(AskError::TooFewSymbols { found: fitting, expected: symbols.len() });
    }
    Ok(Symbols { symbols: symbols.to_vec(), checked: true })
}

fn unchecked(count: usize) -> Result<Symbols, AskError> {
    let symbols = letters(count);
    if symbols.len() < count {
        return Err(AskError::TooFewSymbols { found: symbols.len(), expected: count });
    }
    Ok(Symbols { symbols, checked: false })
}

/// Whether a symbol adds exactly one token to what stands before it; none if the model does not tokenize.
fn is_one_token(model: &dyn AnsweringModel, lead: &str, symbol: &str) -> Result<Option<bool>, AskError> {
    let context = "Answer:";
    let (Some(before), Some(after)) = (model.tokenize(context)?, model.tokenize(&format!("{context}{lead}{symbol}"))?)
    else {
        return Ok(None);
    };
    Ok(Some(after.len() == before.len() + 1 && after.starts_with(&before)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, ServerDescription};

    /// A model whose tokens are characters, so that only single letters fit without a lead.
    struct Characters;

    impl AnsweringModel for Characters {
        fn describe(&self) -> ServerDescription {
            ServerDescription::default()
        }
        fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
            Ok(Some(text.chars().map(u32::from).collect()))
        }
        fn next_token(&self, _: &str) -> Result<Reply, AskError> {
            Ok(Reply::default())
        }
        fn write(&self, _: &str, _: usize) -> Result<Reply, AskError> {
            Ok(Reply::default())
        }
    }

    #[test]
    fn only_single_tokens_are_chosen() {
        assert_eq!(choose(&Characters, "", 3).unwrap().symbols, ["A", "B", "C"]);
        assert!(matches!(choose(&Characters, "", 40), Err(AskError::TooFewSymbols { found: 26, expected: 40 })));
        assert!(matches!(choose(&Characters, " ", 1), Err(AskError::TooFewSymbols { found: 0, expected: 1 })));
        assert!(check(&Characters, "", &["yes".to_owned()]).is_err());
    }

    #[test]
    fn candidates_are_different() {
        let mut all: Vec<String> = candidates().collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
