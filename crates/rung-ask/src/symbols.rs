//! Chooses the answer symbols.
//!
//! An answer is read from one token, so every answer symbol must be one token of the model. Candidates are
//! checked with the model's tokenizer, including the white space before the answer. For a server without a tokenizer endpoint capital
//! letters are used, and the record says that this was not checked.

use crate::{AnsweringModel, AskError};

/// Candidates beyond capital letters: short common words that most vocabularies have as one token.
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
    /// Whether the model's tokenizer confirmed that each symbol is one token.
    pub checked: bool,
}

/// All candidates, in the order they are tried.
fn candidates() -> impl Iterator<Item = String> {
    ('A'..='Z').map(String::from).chain(WORDS.iter().map(|word| (*word).to_owned()))
}

/// The first `count` candidates, without a check: capital letters, then words.
pub fn default_symbols(count: usize) -> Vec<String> {
    candidates().take(count).collect()
}

/// The first `count` candidates that are one token of this model together with the `separator` before them, such as a space.
///
/// # Errors
/// The model cannot be reached, or has fewer such tokens.
pub fn choose(model: &dyn AnsweringModel, separator: &str, count: usize) -> Result<Symbols, AskError> {
    let mut symbols = Vec::new();
    for candidate in candidates() {
        if symbols.len() == count {
            break;
        }
        match is_one_token(model, separator, &candidate)? {
            None => return unchecked_symbols(count),
            Some(true) => symbols.push(candidate),
            Some(false) => (),
        }
    }
    if symbols.len() < count {
        return Err(AskError::TooFewSymbols { found: symbols.len(), expected: count });
    }
    Ok(Symbols { symbols, checked: true })
}

/// Checks that symbols prescribed by a task (digits, `yes` and `no`) are single tokens together with the `separator` before them.
///
/// # Errors
/// The model cannot be reached, or a symbol is not one token.
pub fn check(model: &dyn AnsweringModel, separator: &str, symbols: &[String]) -> Result<Symbols, AskError> {
    let mut single_token_count = 0;
    for symbol in symbols {
        match is_one_token(model, separator, symbol)? {
            None => return Ok(Symbols { symbols: symbols.to_vec(), checked: false }),
            Some(is_single) => single_token_count += usize::from(is_single),
        }
    }
    if single_token_count < symbols.len() {
        return Err(AskError::TooFewSymbols { found: single_token_count, expected: symbols.len() });
    }
    Ok(Symbols { symbols: symbols.to_vec(), checked: true })
}

fn unchecked_symbols(count: usize) -> Result<Symbols, AskError> {
    let symbols = default_symbols(count);
    if symbols.len() < count {
        return Err(AskError::TooFewSymbols { found: symbols.len(), expected: count });
    }
    Ok(Symbols { symbols, checked: false })
}

/// Whether `separator` and `symbol` together add exactly one token to `Answer:`; `None` if the model has no tokenizer.
fn is_one_token(model: &dyn AnsweringModel, separator: &str, symbol: &str) -> Result<Option<bool>, AskError> {
    let context = "Answer:";
    let (Some(before), Some(after)) =
        (model.tokenize(context)?, model.tokenize(&format!("{context}{separator}{symbol}"))?)
    else {
        return Ok(None);
    };
    Ok(Some(after.len() == before.len() + 1 && after.starts_with(&before)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelDescription, Reply};

    /// A model whose tokens are characters: only single letters without a separator are one token.
    struct CharacterTokenizer;

    impl AnsweringModel for CharacterTokenizer {
        fn describe(&self) -> ModelDescription {
            ModelDescription::default()
        }
        fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
            Ok(Some(text.chars().map(u32::from).collect()))
        }
        fn next_token(&self, _: &str) -> Result<Reply, AskError> {
            Ok(Reply::default())
        }
        fn generate(&self, _: &str, _: usize) -> Result<Reply, AskError> {
            Ok(Reply::default())
        }
    }

    #[test]
    fn only_single_tokens_are_accepted() {
        assert_eq!(choose(&CharacterTokenizer, "", 3).unwrap().symbols, ["A", "B", "C"]);
        assert!(matches!(
            choose(&CharacterTokenizer, "", 40),
            Err(AskError::TooFewSymbols { found: 26, expected: 40 })
        ));
        assert!(matches!(choose(&CharacterTokenizer, " ", 1), Err(AskError::TooFewSymbols { found: 0, expected: 1 })));
        assert!(check(&CharacterTokenizer, "", &["yes".to_owned()]).is_err());
    }

    #[test]
    fn candidates_are_distinct() {
        let mut symbols: Vec<String> = candidates().collect();
        let count = symbols.len();
        symbols.sort();
        symbols.dedup();
        assert_eq!(symbols.len(), count);
    }
}
