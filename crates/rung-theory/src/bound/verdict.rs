//! The verdict on a stack and an instance: solved, impossible, or unknown, each with its evidence.
//!
//! *Solved* names a construction that fits. *Impossible* has a certificate that the checker accepted. *Unknown* says whether
//! this kind of proof could ever exclude the instance: it cannot if a shortcut works in the abstract model; otherwise the
//! question is open on both sides.

use super::construction::{self, Construction};
use super::search::{CheckedCertificate, MAX_SEARCH_HOPS};
use super::shortcut::{self, Step};
use super::stack_bounds::{LowerBound, StackBounds};
use super::tables::TableSizes;

/// Whether a stack can solve an instance.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// This construction has weights that solve it.
    Solved(&'static Construction),
    /// No weights solve it, by this certificate.
    Impossible(Box<CheckedCertificate>),
    /// Neither is known.
    Unknown(Unknown),
}

/// Why a verdict is unknown.
#[derive(Clone, Debug)]
pub enum Unknown {
    /// A shortcut works in the abstract model, so no certificate of this kind exists.
    NotExcludable(Vec<Step>),
    /// Open on both sides, with the nearest condition on each.
    Open {
        /// What a construction would need.
        solved_side: String,
        /// What a certificate would need.
        impossible_side: String,
    },
}

impl Verdict {
    /// `solved`, `impossible` or `unknown`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Solved(_) => "solved",
            Self::Impossible(_) => "impossible",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The reason in one sentence.
    pub fn reason(&self) -> String {
        match self {
            Self::Solved(construction) => {
                format!("construction {} fits this stack and these tables", construction.name)
            }
            Self::Impossible(_) => "a certificate for exactly these tables was found and checked".to_owned(),
            Self::Unknown(Unknown::NotExcludable(steps)) => {
                let names: Vec<&str> = steps.iter().filter_map(|step| step.shortcut).collect();
                let texts: Vec<&str> =
                    steps.iter().filter(|step| step.shortcut.is_some()).map(|step| step.text.as_str()).collect();
                if names.is_empty() {
                    return "not excludable by this kind of proof: the hops are within the stack's rungs, but no known weights \
                            fit its sizes"
                        .to_owned();
                }
                format!("not excludable by this kind of proof: shortcut {} ({})", names.join(" and "), texts.join("; "))
            }
            Self::Unknown(Unknown::Open { solved_side, impossible_side }) => {
                format!("open on both sides; {solved_side}; {impossible_side}")
            }
        }
    }
}

impl StackBounds<'_> {
    /// Decides whether the stack can compose tables of these sizes.
    pub fn decide(&self, tables: &TableSizes) -> Verdict {
        let capacity = self.capacity();
        let missing = match construction::find(self.plan(), capacity, tables) {
            Ok(construction) => return Verdict::Solved(construction),
            Err(missing) => missing,
        };
        if let Some(steps) = shortcut::find_steps(capacity, tables) {
            return Verdict::Unknown(Unknown::NotExcludable(steps));
        }
        let impossible_side = match self.lower_bound_for(tables) {
            LowerBound::Certified(certified) => return Verdict::Impossible(certified),
            LowerBound::WithinRungs => "no lower bound applies within the stack's rungs".to_owned(),
            LowerBound::BeyondCountedContext { .. } => {
                "the mixers' states are counted for shorter prompts only".to_owned()
            }
            LowerBound::NotFound if tables.hops() > MAX_SEARCH_HOPS => {
                format!("certificates are sought up to {MAX_SEARCH_HOPS} hops")
            }
            LowerBound::NotFound => {
                "no certificate was found for these tables; `rung bound` finds the smallest ones".to_owned()
            }
        };
        let solved_side = format!("{}; {}", missing.join("; "), shortcut::missing_sizes(capacity, tables));
        Verdict::Unknown(Unknown::Open { solved_side, impossible_side })
    }
}
