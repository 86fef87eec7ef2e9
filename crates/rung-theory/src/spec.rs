//! The syntax that stacks and tasks share: `name{key=value,key=value}`.
//!
//! A value is a whole number, a word, or a list of numbers:
//!
//! ```text
//! mamba2{heads=8,head=64,state=128}
//! funccomp{hops=3,m=8,n=[4,4],order=hard}
//! ```
//!
//! [`Scanner`] reads the text once, from left to right, and every error has the column, what was found there and
//! what was expected. Time and memory are linear in the input.

use std::fmt;

/// More options than this are an error; each name is compared with all earlier ones.
const MAX_OPTIONS: usize = 64;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecValue {
    /// A whole number.
    Number(u64),
    /// A word: letters, digits, `-` and `_`, not starting with a digit.
    Word(String),
    /// A list of whole numbers in brackets.
    List(Vec<u64>),
}

impl fmt::Display for SpecValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Word(word) => out.write_str(word),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(u64::to_string).collect();
                write!(out, "[{}]", items.join(","))
            }
        }
    }
}

/// A name with its options, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The name before the brace.
    pub name: String,
    /// The options, in the order typed.
    pub options: Vec<(String, SpecValue)>,
    /// The byte offset of the name; [`column`](fn@column) converts it to a column for errors.
    pub offset: usize,
}

impl fmt::Display for Spec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)?;
        if self.options.is_empty() {
            return Ok(());
        }
        let options: Vec<String> = self.options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        write!(out, "{{{}}}", options.join(","))
    }
}

/// A text that does not follow the syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: found {found}, expected {expected}")]
pub struct SyntaxError {
    /// The column, in characters from 1.
    pub column: usize,
    /// The text at that column.
    pub found: String,
    /// What the syntax allows there.
    pub expected: String,
}

/// The column, in characters from 1, of a byte offset.
pub fn column(text: &str, offset: usize) -> usize {
    text[..offset].chars().count() + 1
}

/// Reads a text once, from left to right.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    /// Byte offset of the next character.
    offset: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, offset: 0 }
    }

    /// The next character, without consuming it.
    pub fn peek(&self) -> Option<char> {
        self.text[self.offset..].chars().next()
    }

    /// The byte offset of the next character.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Skips white space; returns whether there was any.
    pub fn skip_space(&mut self) -> bool {
        let rest = &self.text[self.offset..];
        let skipped = rest.len() - rest.trim_start().len();
        self.offset += skipped;
        skipped > 0
    }

    /// Consumes `expected` if it is the next character; returns whether it was.
    pub fn take(&mut self, expected: char) -> bool {
        let matches = self.peek() == Some(expected);
        if matches {
            self.offset += expected.len_utf8();
        }
        matches
    }

    /// Consumes `expected`.
    ///
    /// # Errors
    /// The next character is another one.
    pub fn require(&mut self, expected: char) -> Result<(), SyntaxError> {
        if self.take(expected) { Ok(()) } else { Err(self.error(&format!("`{expected}`"))) }
    }

    /// An error at the next character.
    pub fn error(&self, expected: &str) -> SyntaxError {
        let word: String = self.text[self.offset..].chars().take_while(|c| !c.is_whitespace()).take(24).collect();
        let found = if self.peek().is_none() { "the end".to_owned() } else { format!("`{}`", word.escape_debug()) };
        SyntaxError { column: column(self.text, self.offset), found, expected: expected.to_owned() }
    }

    /// Consumes the longest run of characters for which `allowed` holds (possibly empty).
    fn take_while(&mut self, allowed: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.offset..];
        let end = rest.find(|c| !allowed(c)).unwrap_or(rest.len());
        self.offset += end;
        &rest[..end]
    }

    /// Consumes a word such as `mamba2` or `query-first`.
    ///
    /// # Errors
    /// The next character is not a letter.
    pub fn parse_word(&mut self, expected: &str) -> Result<String, SyntaxError> {
        if !self.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
            return Err(self.error(expected));
        }
        Ok(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-').to_owned())
    }

    /// Consumes a whole number that fits 64 bits, without leading zeros.
    ///
    /// # Errors
    /// There is no number, or it does not fit.
    pub fn parse_number(&mut self) -> Result<u64, SyntaxError> {
        let mut lookahead = Self { text: self.text, offset: self.offset };
        let digits = lookahead.take_while(|c| c.is_ascii_digit());
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        match digits.parse() {
            Ok(number) if !leading_zero => {
                self.offset = lookahead.offset;
                Ok(number)
            }
            _ if digits.is_empty() => Err(self.error("a whole number")),
            _ if leading_zero => Err(self.error("a whole number without leading zeros")),
            _ => Err(self.error("a whole number below 2^64")),
        }
    }

    fn parse_value(&mut self) -> Result<SpecValue, SyntaxError> {
        match self.peek() {
            Some('[') => self.parse_list().map(SpecValue::List),
            Some(c) if c.is_ascii_digit() => self.parse_number().map(SpecValue::Number),
            Some(c) if c.is_ascii_alphabetic() => self.parse_word("a word").map(SpecValue::Word),
            _ => Err(self.error("a whole number, a word or a list such as [4,4]")),
        }
    }

    fn parse_list(&mut self) -> Result<Vec<u64>, SyntaxError> {
        self.require('[')?;
        let mut items = Vec::new();
        self.skip_space();
        while !self.take(']') {
            if !items.is_empty() {
                self.require(',')?;
                self.skip_space();
            }
            items.push(self.parse_number()?);
            self.skip_space();
        }
        Ok(items)
    }

    /// Consumes `name` or `name{key=value,..}`. A duplicate key is an error.
    ///
    /// # Errors
    /// The text does not follow the syntax.
    pub fn parse_spec(&mut self, expected: &str) -> Result<Spec, SyntaxError> {
        let offset = self.offset;
        let name = self.parse_word(expected)?;
        let mut options: Vec<(String, SpecValue)> = Vec::new();
        if self.take('{') {
            self.skip_space();
            while !self.take('}') {
                if !options.is_empty() {
                    self.require(',')?;
                    self.skip_space();
                }
                let start = self.offset;
                let key = self.parse_word("an option such as `heads=8`, or `}`")?;
                if options.len() == MAX_OPTIONS {
                    let (column, found) = (column(self.text, start), "one option more".to_owned());
                    return Err(SyntaxError { column, found, expected: format!("at most {MAX_OPTIONS} options") });
                }
                if options.iter().any(|(earlier_key, _)| *earlier_key == key) {
                    let found = format!("`{key}` a second time");
                    let column = column(self.text, start);
                    return Err(SyntaxError { column, found, expected: "each option once".to_owned() });
                }
                self.skip_space();
                self.require('=')?;
                self.skip_space();
                options.push((key, self.parse_value()?));
                self.skip_space();
            }
        }
        Ok(Spec { name, options, offset })
    }
}

/// Parses a text that consists of one spec.
///
/// # Errors
/// The text does not follow the syntax, or continues after the spec.
pub fn parse_spec(text: &str) -> Result<Spec, SyntaxError> {
    let mut scanner = Scanner::new(text);
    scanner.skip_space();
    let spec = scanner.parse_spec("a name")?;
    scanner.skip_space();
    if scanner.peek().is_some() {
        return Err(scanner.error("the end"));
    }
    Ok(spec)
}

/// The known name most similar to a mistyped one, if any is similar enough to suggest.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance takes quadratic time, and a word longer than every name is not similar to any.
    let typed: Vec<char> = typed.to_lowercase().chars().take(40).collect();
    let best = known.into_iter().map(|name| (edit_distance(&typed, name), name)).min()?;
    (best.0 <= (typed.len().max(3)) / 2).then_some(best.1)
}

/// The Levenshtein distance.
fn edit_distance(typed: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, a) in typed.iter().enumerate() {
        let mut diagonal_cost = row[0];
        row[0] = i + 1;
        for (j, b) in name.iter().enumerate() {
            let replacement_cost = diagonal_cost + usize::from(a != b);
            diagonal_cost = row[j + 1];
            row[j + 1] = replacement_cost.min(row[j] + 1).min(diagonal_cost + 1);
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_prints_the_parsed_spec() {
        for text in ["full", "mamba2{heads=8,head=64}", "funccomp{hops=3,n=[4,4],order=query-first}", "x{n=[]}"] {
            assert_eq!(parse_spec(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_spec(" a{ b = 1 , c = [ 1 , 2 ] } ").unwrap().to_string(), "a{b=1,c=[1,2]}");
    }

    #[test]
    fn errors_have_the_column_and_the_expectation() {
        for (text, column, expected) in [
            ("", 1, "a name"),
            ("a{b=}", 5, "a whole number, a word or a list such as [4,4]"),
            ("a{b=1", 6, "`,`"),
            ("a{b=1,b=2}", 7, "each option once"),
            ("a{b=01}", 5, "a whole number without leading zeros"),
            ("a{b=99999999999999999999}", 5, "a whole number below 2^64"),
            ("a b", 3, "the end"),
            ("é{", 1, "a name"),
        ] {
            let error = parse_spec(text).unwrap_err();
            assert_eq!((error.column, error.expected.as_str()), (column, expected), "{text}");
        }
    }

    #[test]
    fn options_beyond_the_limit_are_errors() {
        // Comparing each of a million names with all others would take minutes.
        let options: Vec<String> = (0..1_000_000).map(|number| format!("k{number}=1")).collect();
        let error = parse_spec(&format!("a{{{}}}", options.join(","))).unwrap_err();
        assert_eq!(error.expected, "at most 64 options");
    }

    #[test]
    fn nearest_suggests_only_similar_names() {
        let names = ["full", "linear", "mamba2", "gdn"];
        assert_eq!(nearest("lineer", names), Some("linear"));
        assert_eq!(nearest("manba2", names), Some("mamba2"));
        assert_eq!(nearest("zzzzzzzz", names), None);
    }
}
