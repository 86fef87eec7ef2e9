//! A JSON parser with limits, for untrusted files.
//!
//! Written by hand because a config needs four things that the usual parsers do not offer together: a key that occurs
//! twice is an error (the usual parsers keep the last and hide the contradiction), every error names the field in which it
//! occurred, nesting and size are bounded, and the `NaN` and `Infinity` that Python writes into configs
//! (`"time_step_limit": [0.0, Infinity]`) are accepted.
//!
//! Numbers are stored as text and converted when a field is read, so that large integers are not rounded.

use std::collections::HashSet;
use std::hash::BuildHasher as _;

use crate::AuditError;

/// The most bytes that are parsed: a thousand times the longest real config.
pub const MAX_BYTES: u64 = 16 << 20;
/// The most values in one text, so that memory stays within a hundred megabytes. The longest index of a checkpoint has a third of it.
const MAX_VALUES: usize = 1 << 19;
/// Objects and lists may nest this deep.
const MAX_DEPTH: usize = 64;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A string.
    String(String),
    /// An array.
    List(Vec<JsonValue>),
    /// An object: keys in the order written, without repeated keys.
    Object(Vec<(String, JsonValue)>),
}

impl JsonValue {
    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// A short description for messages, such as `a list of 3`.
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Number(text) => shorten(text),
            Self::String(text) => format!("the string \"{}\"", shorten(&text.escape_debug().to_string())),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Object(_) => "an object".to_owned(),
        }
    }
}

fn shorten(text: &str) -> String {
    const MAX: usize = 40;
    if text.chars().count() <= MAX {
        return text.to_owned();
    }
    text.chars().take(MAX).chain("..".chars()).collect()
}

/// Parses a text, which may start with a byte-order mark.
///
/// # Errors
/// It is not JSON, nests too deep, holds too many values, or repeats a key.
pub fn parse(text: &str) -> Result<JsonValue, AuditError> {
    if text.len() as u64 > MAX_BYTES {
        return Err(AuditError::TooLong { limit: MAX_BYTES });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser { bytes: text.as_bytes(), text, position: 0, value_count: 0, path: Vec::new() };
    let value = parser.parse_value(0)?;
    parser.skip_space();
    if parser.position < parser.bytes.len() {
        return Err(parser.error("something follows the end of the object"));
    }
    Ok(value)
}

/// One segment of the path to the value being parsed.
enum PathSegment {
    Key(String),
    Index(usize),
}

/// Parses one text.
struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    position: usize,
    /// Values parsed so far.
    value_count: usize,
    path: Vec<PathSegment>,
}

impl Parser<'_> {
    fn error(&self, problem: impl Into<String>) -> AuditError {
        let before = &self.bytes[..self.position.min(self.bytes.len())];
        let line = before.split(|&byte| byte == b'\n').count();
        let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
        let mut path = String::new();
        for segment in &self.path {
            match segment {
                PathSegment::Key(key) if path.is_empty() => path.push_str(&shorten(key)),
                PathSegment::Key(key) => path.extend([".", &shorten(key)]),
                PathSegment::Index(index) => path.extend(["[", &index.to_string(), "]"]),
            }
        }
        AuditError::Json { problem: problem.into(), line, column, path }
    }

    fn skip_space(&mut self) {
        while self.bytes.get(self.position).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.bytes.get(self.position).copied()
    }

    fn expect_byte(&mut self, expected: u8) -> Result<(), AuditError> {
        match self.peek() {
            Some(byte) if byte == expected => {
                self.position += 1;
                Ok(())
            }
            Some(_) => Err(self.error(format!("expected `{}`", expected as char))),
            None => Err(self.error(format!("the text ends where `{}` was expected", expected as char))),
        }
    }

    /// Skips the next byte if it is `expected`, and says whether it was.
    fn skip_if_next(&mut self, expected: u8) -> bool {
        let is_next = self.peek() == Some(expected);
        self.position += usize::from(is_next);
        is_next
    }

    fn parse_value(&mut self, depth: usize) -> Result<JsonValue, AuditError> {
        self.value_count += 1;
        if self.value_count > MAX_VALUES {
            return Err(self.error(format!("more than {MAX_VALUES} values")));
        }
        match self.peek() {
            None => Err(self.error("the text ends where a value was expected")),
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(self.error(format!("nested more than {MAX_DEPTH} deep"))),
            Some(b'{') => self.parse_object(depth),
            Some(b'[') => self.parse_list(depth),
            Some(b'"') => self.parse_string().map(JsonValue::String),
            Some(byte) if byte == b'-' || byte.is_ascii_alphanumeric() => self.parse_unquoted_value(),
            Some(_) => Err(self.error("expected a value")),
        }
    }

    fn parse_object(&mut self, depth: usize) -> Result<JsonValue, AuditError> {
        self.position += 1;
        let mut fields: Vec<(String, JsonValue)> = Vec::new();
        // Hashes take less memory than copies of the keys. Only if two are equal, which in practice means a repeated key, keys are compared.
        let mut hashes = HashSet::new();
        while !self.skip_if_next(b'}') {
            if !fields.is_empty() {
                self.expect_byte(b',')?;
            }
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a key in quotes, or `}`"));
            }
            let key = self.parse_string()?;
            let hash = hashes.hasher().hash_one(&key);
            if !hashes.insert(hash) && fields.iter().any(|(earlier_key, _)| *earlier_key == key) {
                return Err(self.error(format!("the key \"{}\" occurs twice", shorten(&key))));
            }
            self.expect_byte(b':')?;
            self.path.push(PathSegment::Key(key.clone()));
            let value = self.parse_value(depth + 1)?;
            self.path.pop();
            fields.push((key, value));
        }
        Ok(JsonValue::Object(fields))
    }

    fn parse_list(&mut self, depth: usize) -> Result<JsonValue, AuditError> {
        self.position += 1;
        let mut items = Vec::new();
        while !self.skip_if_next(b']') {
            if !items.is_empty() {
                self.expect_byte(b',')?;
            }
            self.path.push(PathSegment::Index(items.len()));
            let item = self.parse_value(depth + 1)?;
            self.path.pop();
            items.push(item);
        }
        Ok(JsonValue::List(items))
    }

    fn parse_string(&mut self) -> Result<String, AuditError> {
        self.position += 1;
        let mut out = String::new();
        loop {
            let start = self.position;
            while self.bytes.get(self.position).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= b' ') {
                self.position += 1;
            }
            // Quotes, backslashes and control characters are single bytes, so both ends are character boundaries.
            out.push_str(&self.text[start..self.position]);
            match self.bytes.get(self.position) {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(crate::without_control(out));
                }
                Some(b'\\') => {
                    self.position += 1;
                    out.push(self.parse_escape()?);
                }
                Some(_) => return Err(self.error("a control character inside a string")),
                None => return Err(self.error("the text ends inside quotes")),
            }
        }
    }

    fn parse_escape(&mut self) -> Result<char, AuditError> {
        let Some(&byte) = self.bytes.get(self.position) else { return Err(self.error("the text ends inside quotes")) };
        self.position += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.parse_code_point()?,
            _ => return Err(self.error("an unknown escape after `\\`")),
        })
    }

    /// A code point after `\u`: four digits, or two halves of a surrogate pair in two escapes.
    fn parse_code_point(&mut self) -> Result<char, AuditError> {
        let start = self.position - 2;
        let first = self.parse_hex_code()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.bytes[self.position..].starts_with(b"\\u") {
            self.position += 2;
            let second = self.parse_hex_code()?;
            let is_low_surrogate = (0xdc00..0xe000).contains(&second);
            is_low_surrogate.then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        } else {
            Some(first)
        };
        code.and_then(char::from_u32).ok_or_else(|| {
            self.position = start;
            self.error(format!("`\\u{first:04x}` is half of a surrogate pair and the other half is missing"))
        })
    }

    /// The code of four hexadecimal digits.
    fn parse_hex_code(&mut self) -> Result<u32, AuditError> {
        let digits =
            self.bytes.get(self.position..self.position + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("expected four hexadecimal digits after `\\u`"))?;
        self.position += 4;
        Ok(code)
    }

    /// A number, `true`, `false`, `null`, or Python's `NaN` and `Infinity`.
    fn parse_unquoted_value(&mut self) -> Result<JsonValue, AuditError> {
        let start = self.position;
        let is_word_byte = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        while self.bytes.get(self.position).is_some_and(is_word_byte) {
            self.position += 1;
        }
        let word = &self.text[start..self.position];
        match word {
            "null" => Ok(JsonValue::Null),
            "true" => Ok(JsonValue::Bool(true)),
            "false" => Ok(JsonValue::Bool(false)),
            "NaN" | "Infinity" | "-Infinity" => Ok(JsonValue::Number(word.to_owned())),
            _ if is_number(word) => Ok(JsonValue::Number(word.to_owned())),
            _ => {
                let problem = format!("`{}` is not a value", shorten(word));
                self.position = start;
                Err(self.error(problem))
            }
        }
    }
}

/// Whether a word follows the grammar of JSON numbers.
fn is_number(word: &str) -> bool {
    let unsigned = word.strip_prefix('-').unwrap_or(word);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(index) => (&unsigned[..index], Some(&unsigned[index + 1..])),
        None => (unsigned, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let no_leading_zero = integer == "0" || !integer.starts_with('0');
    let is_signed_digits = |text: &str| is_digits(text.strip_prefix(['+', '-']).unwrap_or(text));
    is_digits(integer) && no_leading_zero && fraction.is_none_or(is_digits) && exponent.is_none_or(is_signed_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn parse_accepts_nan_and_infinity_of_python() {
        let value =
            parse("\u{feff} {\"a\": [1, -2.5e3, Infinity, NaN], \"b\\u00e9\\ud83d\\ude00\": null, \"c\": true}\n")
                .unwrap();
        assert_eq!(value.get("a").unwrap().describe(), "a list of 4");
        assert_eq!(value.get("bé😀"), Some(&JsonValue::Null));
    }

    #[test]
    fn errors_name_line_column_and_field() {
        assert!(
            error_text("{\"a\": {\"b\": [1, x]}}").contains("`x` is not a value, at line 1, column 17, in `a.b[1]`")
        );
        assert!(error_text("{\"a\": 1, \"a\": 2}").contains("the key \"a\" occurs twice"));
        assert!(error_text(&"[".repeat(100_000)).contains("nested more than 64 deep"));
        for text in [
            "",
            "{",
            "{\"a\"",
            "[1,]",
            "{,}",
            "[01]",
            "[1.]",
            "[-]",
            "[1e]",
            "\"\\x\"",
            "\"a\nb\"",
            "1 2",
            "[.5]",
            "\"\\ud8\"",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lone_surrogates_are_errors_at_their_column() {
        for (text, column, escape) in [
            (r#""\ud800\u0041""#, 2, "\\ud800"),
            (r#""\ud800\ue000""#, 2, "\\ud800"),
            (r#""\ud800\ud800""#, 2, "\\ud800"),
            (r#""\udbff\udbff\udfff""#, 2, "\\udbff"),
            (r#""\ud800""#, 2, "\\ud800"),
            (r#""ab\ud83dx""#, 4, "\\ud83d"),
            (r#""\ud800\n""#, 2, "\\ud800"),
            (r#""\udc00""#, 2, "\\udc00"),
            (r#""\ud83d\ude00\uDFFF""#, 14, "\\udfff"),
        ] {
            let message = error_text(text);
            let expected = format!("`{escape}` is half of a surrogate pair");
            assert!(message.contains(&expected) && message.contains(&format!("line 1, column {column}")), "{message}");
        }
        assert!(error_text(r#"{"a": ["\ud800\u0041"]}"#).contains("column 9, in `a[0]`"));
        for text in [r#""\ud800\u00""#, r#""\ud800\u"#, r#""\ud800\"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        for (text, expected) in [
            (r#""\ud800\udc00""#, "\u{10000}"),
            (r#""\uDBFF\uDFFF""#, "\u{10ffff}"),
            (r#""\ud83d\ude00\ud83d\ude01""#, "😀😁"),
            (r#""\ud7ff\ue000""#, "\u{d7ff}\u{e000}"),
        ] {
            assert_eq!(parse(text).unwrap(), JsonValue::String(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn long_object_is_parsed_in_linear_time() {
        let fields: Vec<String> = (0..200_000).map(|index| format!("\"k{index}\":0")).collect();
        assert!(parse(&format!("{{{}}}", fields.join(","))).is_ok());
    }
}
