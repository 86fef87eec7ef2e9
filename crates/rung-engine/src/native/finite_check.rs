//! Finding the first operation whose result is not finite.

use crate::kernels::update::all_finite;
use crate::scalar::Scalar;

/// The first operation that gave a number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} in {scope} gave a number that is not finite, in the {pass} pass")]
pub struct NonFinite {
    /// The names given to [`scope`](crate::Ops::scope), outermost first.
    pub scope: String,
    /// The operation whose result is not finite.
    pub operation: &'static str,
    /// `forward` or `backward`.
    pub pass: &'static str,
}

/// Checks every result while it is on. It is usually off: a step that ends in a number that is not finite is run again with the
/// check on, to find the operation.
#[derive(Default)]
pub(crate) struct FiniteCheck {
    pub(crate) scopes: Vec<String>,
    pub(crate) first_non_finite: Option<NonFinite>,
}

impl FiniteCheck {
    pub(super) fn inspect<S: Scalar>(
        &mut self,
        values: &[S],
        operation: &'static str,
        scope: Option<&str>,
        pass: &'static str,
    ) {
        if self.first_non_finite.is_none() && !all_finite(values) {
            let scope = scope.map_or_else(|| self.scope_name(), str::to_owned);
            self.first_non_finite = Some(NonFinite { scope, operation, pass });
        }
    }

    /// The names of the current scopes, joined.
    pub(super) fn scope_name(&self) -> String {
        if self.scopes.is_empty() { "the model".to_owned() } else { self.scopes.join(", ") }
    }
}
