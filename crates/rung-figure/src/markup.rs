//! Escaping, for SVG and HTML alike.
//!
//! One function escapes both element text and quoted attributes. SVG and HTML are written as well-formed XML, so characters that XML does
//! not allow (most control characters) become U+FFFD, the replacement character.

/// `text` made safe inside an element or inside a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other if is_allowed_in_xml(other) => out.push(other),
            _ => out.push('\u{fffd}'),
        }
    }
    out
}

/// Whether XML 1.0 allows the character in a document.
fn is_allowed_in_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | '\u{20}'..='\u{7e}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// `text` as the body of a `data:` address: everything but letters, digits and `-._~` becomes `%XX`.
pub(crate) fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_characters_are_escaped() {
        assert_eq!(escape("<b a='1' c=\"2\">&</b>"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;&lt;/b&gt;");
    }

    #[test]
    fn characters_that_xml_forbids_are_replaced() {
        assert_eq!(escape("a\0b\u{1b}c\u{ffff}d\te"), "a\u{fffd}b\u{fffd}c\u{fffd}d\te");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        assert_eq!(escape("2⁹⁸ tokens, é, 漢, 🪜"), "2⁹⁸ tokens, é, 漢, 🪜");
    }

    #[test]
    fn percent_encoding_keeps_only_unreserved_characters() {
        assert_eq!(percent_encode("a,b\n\"é\"#%"), "a%2Cb%0A%22%C3%A9%22%23%25");
    }
}
