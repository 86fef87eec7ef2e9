//! The three kinds of evidence for a number.
//!
//! The labels have the same meaning everywhere: on a badge beside a number, in a legend, in a CSV column. They are ordered by strength. A
//! proof holds for all weights, a construction for one set of weights, a measurement for the runs that it was made in.

use std::fmt;

/// The kind of evidence for a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Evidence {
    /// Follows from a theorem or a checked certificate, for every choice of weights.
    Proved,
    /// Weights were constructed and run, so at least one choice of weights does it.
    Constructed,
    /// Measured in training or timing runs, with their spread.
    Measured,
}

impl Evidence {
    /// All three, the strongest first.
    pub const ALL: [Self; 3] = [Self::Proved, Self::Constructed, Self::Measured];

    /// The label on the badge.
    pub fn label(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Constructed => "constructed",
            Self::Measured => "measured",
        }
    }

    /// The meaning of the label, for the reader of a report.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Proved => "follows from a theorem or a checked certificate, whatever the weights are",
            Self::Constructed => "weights that do it were constructed and run",
            Self::Measured => "measured in runs, with their spread",
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
