//! The bounds of one stack: the entry point for `rung bound`, `decide`, `check`, `map`, the audit and the report.
//!
//! All of them respect one limit here: the size of a log-linear state (a mixer such as `loglinear-gdn`) is counted for prompts of at most 2^k
//! tokens, so no claim is made about longer prompts.
//!
//! ```
//! use rung_theory::bound::stack_bounds::StackBounds;
//! use rung_theory::stack::{MessageSizeConvention, Defaults, Plan};
//!
//! let plan = Plan::parse("linear full", &Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() })?;
//! let bounds = StackBounds::new(&plan, MessageSizeConvention::Paper);
//! assert!(bounds.lower_bound(1).certificate().is_none());
//! assert!(bounds.lower_bound(2).certificate().is_some());
//! # Ok::<(), rung_theory::stack::StackError>(())
//! ```

use num_bigint::BigUint;

use super::checker::{AcceptedClaim, Certificate, TokenCounts};
use super::input::BoundInput;
use super::search::{self, CheckedCertificate};
use super::tables::TableSizes;
use crate::stack::{Capacity, MessageSizeConvention, Plan};

/// A stack with its bits counted under a convention.
#[derive(Clone, Debug)]
pub struct StackBounds<'a> {
    plan: &'a Plan,
    capacity: Capacity,
    token_counts: TokenCounts,
    w_major: bool,
}

/// The result of a search for a lower bound on a stack.
#[derive(Clone, Debug)]
pub enum LowerBound {
    /// The hops are within the stack's rungs: no lower bound applies.
    WithinRungs,
    /// The hops are impossible, by this certificate, which the checker accepted.
    Certified(Box<CheckedCertificate>),
    /// A certificate exists only for longer prompts than those for which the mixers' states were counted.
    BeyondCountedContext {
        /// The states were counted for prompts of at most 2^this tokens.
        log2_context: u64,
    },
    /// No certificate was found.
    NotFound,
}

impl LowerBound {
    /// The smallest impossible instance; `log2_context` is the longest context for which the stack's bits are valid, if limited.
    pub fn smallest(input: Option<&BoundInput>, log2_context: Option<u64>) -> Self {
        let Some(input) = input else { return Self::WithinRungs };
        Self::from_search(search::smallest_certificate(input), log2_context)
    }

    fn from_search(result: Option<CheckedCertificate>, log2_context: Option<u64>) -> Self {
        match (result, log2_context) {
            (None, _) => Self::NotFound,
            (Some(checked), Some(log2_context)) if !fits_context(&checked.accepted.tokens, log2_context) => {
                Self::BeyondCountedContext { log2_context }
            }
            (Some(checked), _) => Self::Certified(Box::new(checked)),
        }
    }

    /// The certificate, if there is one.
    pub fn certificate(&self) -> Option<&CheckedCertificate> {
        match self {
            Self::Certified(checked) => Some(checked),
            _ => None,
        }
    }

    /// The certificate, by value, if there is one.
    pub fn into_certificate(self) -> Option<CheckedCertificate> {
        match self {
            Self::Certified(checked) => Some(*checked),
            _ => None,
        }
    }

    /// `solved`, `impossible` or `unknown`.
    pub fn verdict(&self) -> &'static str {
        match self {
            Self::WithinRungs => "solved",
            Self::Certified(_) => "impossible",
            Self::BeyondCountedContext { .. } | Self::NotFound => "unknown",
        }
    }

    /// The reason for the answer, as a clause for reports.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::WithinRungs => {
                "the hops are within the stack's rungs: a construction solves every size that fits its heads"
            }
            Self::Certified(_) => "whatever the weights, they fail on some tables of this size",
            Self::BeyondCountedContext { .. } => {
                "the mixers' states are counted for shorter prompts than a certificate needs"
            }
            Self::NotFound => "no certificate was found",
        }
    }
}

/// Whether a prompt of this many tokens is within a context of 2^`log2_context`; one of exactly that length counts as too long.
fn fits_context(tokens: &BigUint, log2_context: u64) -> bool {
    tokens.bits() <= log2_context
}

impl<'a> StackBounds<'a> {
    /// Counts a stack's layers, blocks and bits.
    pub fn new(plan: &'a Plan, convention: MessageSizeConvention) -> Self {
        Self { plan, capacity: plan.capacity_with(convention), token_counts: TokenCounts::default(), w_major: false }
    }

    /// The same stack for prompts with several tokens per entry, start value or query.
    #[must_use]
    pub fn with_token_counts(self, token_counts: TokenCounts) -> Self {
        Self { token_counts, ..self }
    }

    /// The same stack for tables that list w as the major index.
    #[must_use]
    pub fn with_w_major_tables(self) -> Self {
        Self { w_major: true, ..self }
    }

    /// The resolved stack.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// The stack's full layers, blocks and bits.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The search input for this number of hops; none if they are within the stack's rungs.
    pub fn input(&self, hops: usize) -> Option<BoundInput> {
        let input = BoundInput::for_stack(&self.capacity, hops, &self.token_counts)?;
        Some(if self.w_major { input.with_w_major_tables() } else { input })
    }

    /// The smallest impossible tables for this number of hops.
    pub fn lower_bound(&self, hops: usize) -> LowerBound {
        LowerBound::smallest(self.input(hops).as_ref(), self.plan.log2_context())
    }

    /// Whether tables of these sizes are impossible.
    pub fn lower_bound_for(&self, tables: &TableSizes) -> LowerBound {
        let Some(input) = self.input(tables.hops()) else { return LowerBound::WithinRungs };
        match self.plan.log2_context() {
            Some(log2_context) if !fits_context(&tables.tokens(), log2_context) => {
                LowerBound::BeyondCountedContext { log2_context }
            }
            limit => LowerBound::from_search(search::certificate_for_tables(&input, &tables.m, &tables.n), limit),
        }
    }

    /// Whether an accepted certificate covers this stack: the stack's bits must not exceed the certificate's.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn confirm(&self, certificate: &Certificate, accepted: &AcceptedClaim) -> Result<(), String> {
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
            Some(log2_context) if !fits_context(&accepted.tokens, log2_context) => {
                let reason = "its states are counted for prompts of fewer tokens than the certificate speaks of";
                Err(format!("field `stack`: {reason}"))
            }
            _ => Ok(()),
        }
    }
}
