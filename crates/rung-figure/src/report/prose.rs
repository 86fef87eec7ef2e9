//! Running text in which numbers say how they are known.
//!
//! ```
//! use rung_figure::Evidence;
//! use rung_figure::report::Prose;
//!
//! let prose = Prose::new().text("Two full layers climb ").number("3", Evidence::Constructed).text(" hops; see ").code("rung map").text(".");
//! assert_eq!(prose.plain(), "Two full layers climb 3 hops; see rung map.");
//! ```

use crate::Evidence;

/// One piece of running text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Words.
    Text(String),
    /// Words that matter most.
    Strong(String),
    /// A number (or a short statement) and how it is known.
    Known(String, Evidence),
    /// A name to type: a command, an option, a stack.
    Code(String),
    /// Words that lead to an address.
    Link {
        /// The words.
        text: String,
        /// The address: `https:`, `http:` or a place in this report (`#chapter`). Any other is not made a link.
        address: String,
    },
}

/// Running text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Prose {
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
}

impl Prose {
    /// No text yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with words added.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with(Piece::Text(text.into()))
    }

    /// The same with emphasised words added.
    pub fn strong(self, text: impl Into<String>) -> Self {
        self.with(Piece::Strong(text.into()))
    }

    /// The same with a number added, and how it is known.
    pub fn number(self, number: impl Into<String>, evidence: Evidence) -> Self {
        self.with(Piece::Known(number.into(), evidence))
    }

    /// The same with code added.
    pub fn code(self, code: impl Into<String>) -> Self {
        self.with(Piece::Code(code.into()))
    }

    /// The same with a link added.
    pub fn link(self, text: impl Into<String>, address: impl Into<String>) -> Self {
        self.with(Piece::Link { text: text.into(), address: address.into() })
    }

    /// The words alone.
    pub fn plain(&self) -> String {
        let words = |piece: &Piece| match piece {
            Piece::Text(text)
            | Piece::Strong(text)
            | Piece::Known(text, _)
            | Piece::Code(text)
            | Piece::Link { text, .. } => text.clone(),
        };
        self.pieces.iter().map(words).collect()
    }

    fn with(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
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
