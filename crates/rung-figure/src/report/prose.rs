//! Running text in which numbers have a badge with their evidence.
//!
//! ```
//! use rung_figure::Evidence;
//! use rung_figure::report::Prose;
//!
//! let prose = Prose::new().text("Two full layers compute ").number("3", Evidence::Constructed).text(" hops; see ").code("rung map").text(".");
//! assert_eq!(prose.plain_text(), "Two full layers compute 3 hops; see rung map.");
//! ```

use crate::Evidence;

/// An inline element of running text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inline {
    /// Plain text.
    Text(String),
    /// Emphasised text.
    Strong(String),
    /// A number or a short statement with its evidence.
    WithEvidence(String, Evidence),
    /// Code: a command, an option, a stack.
    Code(String),
    /// A link.
    Link {
        /// The text.
        text: String,
        /// The address: `https:`, `http:` or a heading of this report (`#chapter`). Others are shown as plain text.
        address: String,
    },
}

/// Running text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Prose {
    /// The elements, in order.
    pub inlines: Vec<Inline>,
}

impl Prose {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with plain text added.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with(Inline::Text(text.into()))
    }

    /// The same with emphasised text added.
    pub fn strong(self, text: impl Into<String>) -> Self {
        self.with(Inline::Strong(text.into()))
    }

    /// The same with a number and its evidence added.
    pub fn number(self, number: impl Into<String>, evidence: Evidence) -> Self {
        self.with(Inline::WithEvidence(number.into(), evidence))
    }

    /// The same with code added.
    pub fn code(self, code: impl Into<String>) -> Self {
        self.with(Inline::Code(code.into()))
    }

    /// The same with a link added.
    pub fn link(self, text: impl Into<String>, address: impl Into<String>) -> Self {
        self.with(Inline::Link { text: text.into(), address: address.into() })
    }

    /// The text without markup and evidence.
    pub fn plain_text(&self) -> String {
        let text = |inline: &Inline| match inline {
            Inline::Text(text)
            | Inline::Strong(text)
            | Inline::WithEvidence(text, _)
            | Inline::Code(text)
            | Inline::Link { text, .. } => text.clone(),
        };
        self.inlines.iter().map(text).collect()
    }

    fn with(mut self, inline: Inline) -> Self {
        self.inlines.push(inline);
        self
    }
}

impl From<&str> for Prose {
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

impl From<String> for Prose {
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}
