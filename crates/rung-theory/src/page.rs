//! Doc pages that the program can print.
//!
//! A task, mixer, bound or construction is one file, and the essay on top of that file *is* its page in
//! `rung explain`. So a registry embeds each file's own source, and a page is read off the leading `//!` lines:
//! there is no second copy of the text that could fall behind.

/// What a page is about: decides the heading it is listed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A problem that a stack is asked to solve.
    Task,
    /// A token mixer.
    Mixer,
    /// A theorem with its constants.
    Bound,
    /// Explicit weights.
    Construction,
    /// A way to look inside of a network.
    Instrument,
    /// A way to find something out.
    Method,
}

impl Subject {
    /// The word users see.
    pub fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Mixer => "mixer",
            Self::Bound => "bound",
            Self::Construction => "construction",
            Self::Instrument => "instrument",
            Self::Method => "method",
        }
    }
}

/// One page: a name and the source file whose top comment explains it.
#[derive(Clone, Copy, Debug)]
pub struct ExplainPage {
    /// What users type after `rung explain`.
    pub name: &'static str,
    /// What it is about.
    pub subject: Subject,
    /// The whole source file (or, for constructions that have no file yet, only its essay).
    pub source: &'static str,
}

impl ExplainPage {
    /// The essay: the leading `//!` lines, without the marker.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in self.source.lines() {
            let Some(rest) = line.strip_prefix("//!") else { break };
            text.push_str(rest.strip_prefix(' ').unwrap_or(rest));
            text.push('\n');
        }
        text
    }

    /// The first line of the essay, for lists.
    pub fn summary(&self) -> String {
        self.text().lines().next().unwrap_or_default().trim_end_matches('.').to_owned()
    }
}

/// Every page of this crate.
pub fn pages() -> Vec<ExplainPage> {
    [crate::task::pages(), crate::stack::pages(), crate::bound::pages()].concat()
}
