//! The pages of `rung explain`.
//!
//! A task, mixer, bound or construction is one file, and the module doc of that file is its page in `rung explain`. A registry
//! embeds the source of each file, and the page is extracted from the leading `//!` lines, so there is no second copy of the text.

/// The kind of a page, which is also the heading that it is listed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A task that a stack is trained on.
    Task,
    /// A token mixer.
    Mixer,
    /// A theorem with its constants.
    Bound,
    /// Explicit weights that solve a task.
    Construction,
    /// An analysis of a network's internals.
    Analysis,
    /// A method of an experiment.
    Method,
}

impl Subject {
    /// The name of one page's kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Mixer => "mixer",
            Self::Bound => "bound",
            Self::Construction => "construction",
            Self::Analysis => "analysis",
            Self::Method => "method",
        }
    }

    /// The heading of a list of such pages.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Task => "tasks",
            Self::Mixer => "mixers",
            Self::Bound => "bounds",
            Self::Construction => "constructions",
            Self::Analysis => "analyses",
            Self::Method => "methods",
        }
    }
}

/// One page: a name and the source file whose module doc is the text.
#[derive(Clone, Copy, Debug)]
pub struct ExplainPage {
    /// The argument of `rung explain`.
    pub name: &'static str,
    /// The kind of the page.
    pub subject: Subject,
    /// The source file.
    pub source: &'static str,
}

impl ExplainPage {
    /// The text: the leading `//!` lines, without the marker.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in self.source.lines() {
            let Some(rest) = line.strip_prefix("//!") else { break };
            text.push_str(rest.strip_prefix(' ').unwrap_or(rest));
            text.push('\n');
        }
        text
    }

    /// The first line of the text, for lists.
    pub fn summary(&self) -> String {
        self.text().lines().next().unwrap_or_default().trim_end_matches('.').to_owned()
    }
}
