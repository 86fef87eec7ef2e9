//! Everything that is proved of one stack, in one place.
//!
//! `rung bound`, `decide`, `check`, `map`, the audit and the report all ask here, so that a limit holds for all of them: a
//! log-linear state is counted for prompts of at most 2^k tokens, and no claim about longer prompts is made from it.
//!
//! ```
//! use rung_theory::bound::stack_bounds::StackBounds;
//! use rung_theory::stack::{Convention, Defaults, Plan};
//!
//! let plan = Plan::parse("linear full", &Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() })?;
//! let bounds = StackBounds::new(&plan, Convention::Paper);
//! assert!(bounds.lower_bound(1).certificate().is_none());
//! assert!(bounds.lower_bound(2).certificate().is_some());
//! # Ok::<(), rung_theory::stack::StackError>(())
//! ```

use num_bigint::BigUint;

use super::checker::{AcceptedPoint, Certificate, TokensPer};
use super::input::BoundInput;
use super::search::{self, CheckedCertificate};
use super::tables::TableSizes;
use crate::stack::{Capacity, Convention, Plan};

/// A stack with its bits counted under a convention.
#[derive(Clone, Debug)]
pub struct StackBounds<'a> {
    plan: &'a Plan,
    capacity: Capacity,
    tokens_per: TokensPer,
    w_major: bool,
}

/// What is known of hops that may be out of a stack's reach.
#[derive(Clone, Debug)]
pub enum LowerBound {
    /// The hops are within the stack's rungs: no lower bound applies.
    WithinRungs,
    /// They are out of reach, by this certificate, which the checker accepted.
    Certified(Box<CheckedCertificate>),
    /// A certificate would speak of longer prompts than those for which the mixers' states were counted.
    CountedForShorter {
        /// They were counted for prompts of at most 2^this tokens.
        log2_context: u64,
    },
    /// No certificate was found.
    NotFound,
}

impl LowerBound {
    /// The smallest instance that is out of reach; `log2_context` is the limit of the stack's counts, if they have one.
    pub fn smallest(input: Option<&BoundInput>, log2_context: Option<u64>) -> Self {
        let Some(input) = input else { return Self::WithinRungs };
        Self::within(search::smallest(input), log2_context)
    }

    fn within(found: Option<CheckedCertificate>, log2_context: Option<u64>) -> Self {
        match (found, log2_context) {
            (None, _) => Self::NotFound,
            (Some(found), Some(log2_context)) if !fits(&found.accepted.tokens, log2_context) => {
                Self::CountedForShorter { log2_context }
            }
            (Some(found), _) => Self::Certified(Box::new(found)),
        }
    }

    /// The certificate, if there is one.
    pub fn certificate(&self) -> Option<&CheckedCertificate> {
        match self {
            Self::Certified(found) => Some(found),
            _ => None,
        }
    }

    /// The certificate by value.
    pub fn into_certificate(self) -> Option<CheckedCertificate> {
        match self {
            Self::Certified(found) => Some(*found),
            _ => None,
        }
    }

    /// `solved`, `impossible` or `unknown`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::WithinRungs => "solved",
            Self::Certified(_) => "impossible",
            Self::CountedForShorter { .. } | Self::NotFound => "unknown",
        }
    }

    /// Why, in a sentence.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::WithinRungs => {
                "the hops are within the stack's rungs: a construction solves every size that fits its heads"
            }
            Self::Certified(_) => "whatever the weights, they fail on some tables of this size",
            Self::CountedForShorter { .. } => {
                "the mixers' states are counted for shorter prompts than a certificate needs"
            }
            Self::NotFound => "no certificate was found",
        }
    }
}

/// Whether a prompt of so many tokens has at most 2^log2_context of them, as bit lengths compare.
fn fits(tokens: &BigUint, log2_context: u64) -> bool {
    tokens.bits() <= log2_context
}

impl<'a> StackBounds<'a> {
    /// Counts a stack's layers, blocks and bits.
    pub fn new(plan: &'a Plan, convention: Convention) -> Self {
        Self { plan, capacity: plan.capacity_with(convention), tokens_per: TokensPer::default(), w_major: false }
    }

    /// The same for prompts with several tokens per entry, start value or query.
    #[must_use]
    pub fn with_tokens_per(self, tokens_per: TokensPer) -> Self {
        Self { tokens_per, ..self }
    }

    /// The same for tables that list w as the major index.
    #[must_use]
    pub fn with_w_major_tables(self) -> Self {
        Self { w_major: true, ..self }
    }

    /// The stack.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Its layers, blocks and bits.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The input of the search for so many hops; none if they are within the stack's rungs.
    pub fn input(&self, hops: usize) -> Option<BoundInput> {
        let input = BoundInput::for_stack(&self.capacity, hops, &self.tokens_per)?;
        Some(if self.w_major { input.with_w_major_tables() } else { input })
    }

    /// The smallest tables of so many hops that are out of reach.
    pub fn lower_bound(&self, hops: usize) -> LowerBound {
        LowerBound::smallest(self.input(hops).as_ref(), self.plan.log2_context())
    }

    /// Whether tables of these sizes are out of reach.
    pub fn lower_bound_for(&self, tables: &TableSizes) -> LowerBound {
        let Some(input) = self.input(tables.hops()) else { return LowerBound::WithinRungs };
        match self.plan.log2_context() {
            Some(log2_context) if !fits(&tables.tokens(), log2_context) => {
                LowerBound::CountedForShorter { log2_context }
            }
            limit => LowerBound::within(search::for_tables(&input, &tables.m, &tables.n), limit),
        }
    }

    /// Whether an accepted certificate speaks of this stack: bits counted anew must not exceed the certificate's.
    ///
    /// # Errors
    /// In words, why not.
    pub fn confirm(&self, certificate: &Certificate, accepted: &AcceptedPoint) -> Result<(), String> {
        let hops = certificate.hops;
        let Some(input) = self.input(hops) else {
            return Err(format!(
                "field `stack`: it has {} rungs, so {hops} hops are within its reach",
                self.capacity.rungs
            ));
        };
        if !input.is_covered_by(certificate) {
            return Err("the stack has wider messages or states than the certificate counts".to_owned());
        }
        match self.plan.log2_context() {
            Some(log2_context) if !fits(&accepted.tokens, log2_context) => {
                let reason = "its states are counted for prompts of fewer tokens than the certificate speaks of";
                Err(format!("field `stack`: {reason}"))
            }
            _ => Ok(()),
        }
    }
}
