//! Low-precision states and messages, because the theory's bounds count bits.
//!
//! A bound of the theory counts the numbers of a state or message, at p bits each. A [`SimulatedPrecision`] makes a model keep
//! to that p. It rounds
//!
//! - states, which a mixer passes from one token to the next: the matrix of a recurrence after every token, the sums of a normaliser, the
//!   last inputs of a short convolution, the KV cache of windowed attention;
//! - messages, which pass from layer to layer: the residual stream after the embedding and after every layer, and the keys and
//!   values that full attention caches for every token.
//!
//! Computation within a token stays in floating point, as the theory allows. The rounding has the gradient of the identity, so that
//! such a model can be trained. Recurrences then run token by token, which is slow.

use rung_engine::{Ops, Rounding};

use crate::error::ModelError;

/// Rounding of states and messages; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimulatedPrecision {
    /// Rounding of what a mixer of bounded state passes from token to token.
    pub state: Option<Rounding>,
    /// Rounding of what passes from layer to layer, and of full attention's KV cache.
    pub message: Option<Rounding>,
}

impl SimulatedPrecision {
    /// The same bits over the same range for states and messages: the theory's p.
    pub fn bits(bits: u32, range: f64) -> Self {
        let rounding = Some(Rounding { bits, range });
        Self { state: rounding, message: rounding }
    }

    /// Rejects bit counts and ranges outside of what [`Rounding`] supports.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        for rounding in [self.state, self.message].into_iter().flatten() {
            let Rounding { bits, range } = rounding;
            if !(1..=Rounding::MAX_BITS).contains(&bits) {
                let expected = format!("1 to {}", Rounding::MAX_BITS);
                return Err(ModelError::InvalidSize {
                    component: "model",
                    what: "bits per number",
                    found: bits.into(),
                    expected,
                });
            }
            if !(range.is_finite() && range > 0.0) {
                let found = range.to_string();
                return Err(ModelError::InvalidNumber {
                    what: "range of rounding",
                    found,
                    expected: "a positive, finite number",
                });
            }
        }
        Ok(())
    }
}

/// Rounds `x`, or returns it unchanged where `rounding` is `None`.
pub fn apply_rounding<O: Ops>(ops: &O, x: &O::Tensor, rounding: Option<Rounding>) -> O::Tensor {
    rounding.map_or_else(|| x.clone(), |rounding| rounding.apply(ops, x))
}
