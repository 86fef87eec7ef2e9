//! The verdict on a stack and an instance: solved, impossible, or unknown, each with its evidence.
//!
//! There is no fourth answer. *Solved* names a construction that fits. *Impossible* carries a certificate that the checker
//! accepted. *Unknown* says whether this method could ever exclude it: if a shortcut works in the abstract model it could
//! not, and otherwise the question is open on both sides.

use super::construction::{self, Construction};
use super::question::Question;
use super::search::{self, Certified, MAX_SEARCH_HOPS};
use super::shortcut::{self, Step};
use super::tables::Tables;
use crate::stack::{Convention, Plan};

/// The answer.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// These weights do it.
    Solved(&'static Construction),
    /// No weights do it.
    Impossible(Box<Certified>),
    /// Neither is known.
    Unknown(Unknown),
}

/// Why it is unknown.
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
    pub fn word(&self) -> &'static str {
        match self {
            Self::Solved(_) => "solved",
            Self::Impossible(_) => "impossible",
            Self::Unknown(_) => "unknown",
        }
    }

    /// One sentence for people.
    pub fn reason(&self) -> String {
        match self {
            Self::Solved(construction) => {
                format!("construction {} fits this stack and these tables", construction.name)
            }
            Self::Impossible(_) => "a certificate for exactly these tables was found and checked".to_owned(),
            Self::Unknown(Unknown::NotExcludable(steps)) => {
                let names: Vec<&str> = steps.iter().filter_map(|step| step.shortcut).collect();
                let used: Vec<&str> = steps.iter().filter(|s| s.shortcut.is_some()).map(|s| s.text.as_str()).collect();
                if names.is_empty() {
                    return "not excludable by this method: the hops are within the stack's rungs, but no known weights \
                            fit its sizes"
                        .to_owned();
                }
                format!("not excludable by this method: {} ({})", names.join(" and "), used.join("; "))
            }
            Self::Unknown(Unknown::Open { solved_side, impossible_side }) => {
                format!("open on both sides; {solved_side}; {impossible_side}")
            }
        }
    }
}

/// Decides whether a stack can compose tables of these sizes.
pub fn decide(plan: &Plan, convention: Convention, tables: &Tables) -> Verdict {
    let capacity = plan.capacity_with(convention);
    let lacks = match construction::find(plan, &capacity, tables) {
        Ok(construction) => return Verdict::Solved(construction),
        Err(lacks) => lacks,
    };
    if let Some(steps) = shortcut::way(&capacity, tables) {
        return Verdict::Unknown(Unknown::NotExcludable(steps));
    }
    let question = Question::of(&capacity, tables.hops(), [1; 3]);
    let within = plan.covers_tokens(&tables.tokens());
    let certified = question.as_ref().filter(|_| within).and_then(|q| search::for_tables(q, &tables.m, &tables.n));
    if let Some(certified) = certified {
        return Verdict::Impossible(Box::new(certified));
    }
    let solved_side = format!("{}; {}", lacks.join("; "), shortcut::nearest(&capacity, tables));
    let impossible_side = match question {
        None => "no lower bound applies within the stack's rungs".to_owned(),
        Some(_) if !within => "the mixers' states are counted for shorter texts only".to_owned(),
        Some(_) if tables.hops() > MAX_SEARCH_HOPS => format!("certificates are sought up to {MAX_SEARCH_HOPS} hops"),
        Some(_) => "no certificate was found for these tables; `rung bound` finds the smallest ones".to_owned(),
    };
    Verdict::Unknown(Unknown::Open { solved_side, impossible_side })
}
