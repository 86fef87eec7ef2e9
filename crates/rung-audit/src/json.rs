//! A bounded JSON reader for files that strangers send.
//!
//! Written by hand because a config needs four things that the usual readers do not give together: a key that occurs
//! twice is an error (the usual readers keep the last and hide the contradiction), every error names the field it
//! happened in, nesting and size are bounded, and the `NaN` and `Infinity` that Python writes into configs
//! (`"time_step_limit": [0.0, Infinity]`) are read instead of refused.
//!
//! Numbers keep their text until a field asks for one, so nothing is rounded on the way.

use crate::AuditError;

/// The most bytes that are read: a thousand times the longest real config.
pub const MAX_BYTES: u64 = 16 << 20;
/// The most values in one text, so that memory stays within a hundred megabytes.
const MAX_VALUES: usize = 1 << 20;
/// Objects and lists may nest this deep.
const MAX_DEPTH: usize = 64;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// As written.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<JsonValue>),
    /// In the order written, without repeated keys.
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

    /// What it is, for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Number(text) => shorten(text),
            Self::Text(text) => format!("the text \"{}\"", shorten(&text.escape_debug().to_string())),
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

/// Reads a text that may start with a byte-order mark.
///
/// # Errors
/// It is not JSON, nests too deep, holds too many values, or repeats a key.
pub fn parse(text: &str) -> Result<JsonValue, AuditError> {
    if text.len() as u64 > MAX_BYTES {
        return Err(AuditError::TooLong { limit: MAX_BYTES });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { bytes: text.as_bytes(), text, at: 0, values: 0, path: Vec::new() };
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.at < reader.bytes.len() {
        return Err(reader.error("something follows the end of the object"));
    }
    Ok(value)
}

/// One step of the path to the value being read.
enum Step {
    Key(String),
    Index(usize),
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    values: usize,
    path: Vec<Step>,
}

impl Reader<'_> {
    fn error(&self, what: impl Into<String>) -> AuditError {
        let before = &self.bytes[..self.at.min(self.bytes.len())];
        let line = before.split(|&byte| byte == b'\n').count();
        let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(&shorten(key)),
                Step::Key(key) => path.extend([".", &shorten(key)]),
                Step::Index(index) => path.extend(["[", &index.to_string(), "]"]),
            }
        }
        AuditError::Json { what: what.into(), line, column, path }
    }

    fn skip_space(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.bytes.get(self.at).copied()
    }

    fn require(&mut self, wanted: u8) -> Result<(), AuditError> {
        match self.peek() {
            Some(byte) if byte == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.error(format!("expected `{}`", wanted as char))),
            None => Err(self.error(format!("the text ends where `{}` was expected", wanted as char))),
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<JsonValue, AuditError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error(format!("more than {MAX_VALUES} values")));
        }
        match self.peek() {
            None => Err(self.error("the text ends where a value was expected")),
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(self.error(format!("nested more than {MAX_DEPTH} deep"))),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(JsonValue::Text),
            Some(byte) if byte == b'-' || byte.is_ascii_alphanumeric() => self.bare(),
            Some(_) => Err(self.error("expected a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<JsonValue, AuditError> {
        self.at += 1;
        let mut fields: Vec<(String, JsonValue)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while !self.take(b'}') {
            if !fields.is_empty() {
                self.require(b',')?;
            }
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a key in quotes, or `}`"));
            }
            let key = self.string()?;
            if !seen.insert(key.clone()) {
                return Err(self.error(format!("the key \"{}\" occurs twice", shorten(&key))));
            }
            self.require(b':')?;
            self.path.push(Step::Key(key.clone()));
            let value = self.value(depth + 1)?;
            self.path.pop();
            fields.push((key, value));
        }
        Ok(JsonValue::Object(fields))
    }

    fn list(&mut self, depth: usize) -> Result<JsonValue, AuditError> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.take(b']') {
            if !items.is_empty() {
                self.require(b',')?;
            }
            self.path.push(Step::Index(items.len()));
            let item = self.value(depth + 1)?;
            self.path.pop();
            items.push(item);
        }
        Ok(JsonValue::List(items))
    }

    fn string(&mut self) -> Result<String, AuditError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self.bytes.get(self.at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= b' ') {
                self.at += 1;
            }
            // Quotes, backslashes and control characters are single bytes, so both ends stand between characters.
            out.push_str(&self.text[start..self.at]);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.error("a control character inside a text")),
                None => return Err(self.error("the text ends inside quotes")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, AuditError> {
        let Some(&byte) = self.bytes.get(self.at) else { return Err(self.error("the text ends inside quotes")) };
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.code_point()?,
            _ => return Err(self.error("an unknown escape after `\\`")),
        })
    }

    /// A code point after `\u`: four digits, or two halves of a surrogate pair in two escapes.
    fn code_point(&mut self) -> Result<char, AuditError> {
        let start = self.at - 2;
        let first = self.hex()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex()?;
            let paired = (0xdc00..0xe000).contains(&second);
            paired.then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        } else {
            Some(first)
        };
        code.and_then(char::from_u32).ok_or_else(|| {
            self.at = start;
            self.error(format!("`\\u{first:04x}` is half of a surrogate pair and the other half is missing"))
        })
    }

    fn hex(&mut self) -> Result<u32, AuditError> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("expected four hexadecimal digits after `\\u`"))?;
        self.at += 4;
        Ok(code)
    }

    /// A number, `true`, `false`, `null`, or the words that Python writes for numbers that are none.
    fn bare(&mut self) -> Result<JsonValue, AuditError> {
        let start = self.at;
        let belongs = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        while self.bytes.get(self.at).is_some_and(belongs) {
            self.at += 1;
        }
        let word = &self.text[start..self.at];
        match word {
            "null" => Ok(JsonValue::Null),
            "true" => Ok(JsonValue::Bool(true)),
            "false" => Ok(JsonValue::Bool(false)),
            "NaN" | "Infinity" | "-Infinity" => Ok(JsonValue::Number(word.to_owned())),
            _ if is_number(word) => Ok(JsonValue::Number(word.to_owned())),
            _ => {
                let what = format!("`{}` is no value", shorten(word));
                self.at = start;
                Err(self.error(what))
            }
        }
    }
}

/// Whether a word follows the grammar of JSON numbers.
fn is_number(word: &str) -> bool {
    let rest = word.strip_prefix('-').unwrap_or(word);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let no_leading_zero = whole == "0" || !whole.starts_with('0');
    let signed = |text: &str| digits(text.strip_prefix(['+', '-']).unwrap_or(text));
    digits(whole) && no_leading_zero && fraction.is_none_or(digits) && exponent.is_none_or(signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn reads_what_python_writes() {
        let value =
            parse("\u{feff} {\"a\": [1, -2.5e3, Infinity, NaN], \"b\\u00e9\\ud83d\\ude00\": null, \"c\": true}\n")
                .unwrap();
        assert_eq!(value.get("a").unwrap().describe(), "a list of 4");
        assert_eq!(value.get("bé😀"), Some(&JsonValue::Null));
    }

    #[test]
    fn refuses_with_the_place() {
        assert!(what("{\"a\": {\"b\": [1, x]}}").contains("`x` is no value, at line 1, column 17, in `a.b[1]`"));
        assert!(what("{\"a\": 1, \"a\": 2}").contains("the key \"a\" occurs twice"));
        assert!(what(&"[".repeat(100_000)).contains("nested more than 64 deep"));
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
    fn surrogates_come_in_pairs_or_are_refused_where_they_stand() {
        for (text, column, found) in [
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
            let message = what(text);
            let expected = format!("`{found}` is half of a surrogate pair");
            assert!(message.contains(&expected) && message.contains(&format!("line 1, column {column}")), "{message}");
        }
        assert!(what(r#"{"a": ["\ud800\u0041"]}"#).contains("column 9, in `a[0]`"));
        for text in [r#""\ud800\u00""#, r#""\ud800\u"#, r#""\ud800\"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        for (text, expected) in [
            (r#""\ud800\udc00""#, "\u{10000}"),
            (r#""\uDBFF\uDFFF""#, "\u{10ffff}"),
            (r#""\ud83d\ude00\ud83d\ude01""#, "😀😁"),
            (r#""\ud7ff\ue000""#, "\u{d7ff}\u{e000}"),
        ] {
            assert_eq!(parse(text).unwrap(), JsonValue::Text(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_long_object_is_read_in_linear_time() {
        let many: Vec<String> = (0..200_000).map(|index| format!("\"k{index}\":0")).collect();
        assert!(parse(&format!("{{{}}}", many.join(","))).is_ok());
    }
}
