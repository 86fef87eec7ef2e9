//! Numbers in few bits, because the theory speaks of bits.
//!
//! Every bound of the theory counts bits: so many numbers of state, so many of message, p bits each. A [`Precision`] makes a model
//! keep to that p. It rounds
//!
//! - what a mixer hands from one token to the next: the matrix of a recurrence after every token, the sums of a normaliser, the
//!   inputs that a short convolution keeps, the keys and values of a window;
//! - what goes from layer to layer, which is the residual stream after the embedding and after every layer, and the keys and
//!   values that full attention keeps for every token.
//!
//! Work inside of a token stays in the machine's own precision, as the theory allows. Gradients pass straight through, so that such
//! a model can be trained. Recurrences then go token by token: this is an instrument, and slow.

use rung_engine::{Ops, Rounding};

use crate::error::ModelError;

/// Bits that numbers are kept in; by default the machine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Precision {
    /// Of what crosses from token to token in a mixer of bounded state.
    pub state: Option<Rounding>,
    /// Of what crosses from layer to layer, and of what full attention keeps.
    pub message: Option<Rounding>,
}

impl Precision {
    /// The same bits over the same range for states and messages: the theory's p.
    pub fn bits(bits: u32, range: f64) -> Self {
        let rounding = Some(Rounding { bits, range });
        Self { state: rounding, message: rounding }
    }

    /// Refuses bits and ranges that cannot be.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        for rounding in [self.state, self.message].into_iter().flatten() {
            let Rounding { bits, range } = rounding;
            if !(1..=Rounding::MOST_BITS).contains(&bits) {
                let expected = format!("1 to {}", Rounding::MOST_BITS);
                return Err(ModelError::Shape {
                    place: "model",
                    what: "bits per number",
                    found: bits.into(),
                    expected,
                });
            }
            if !(range.is_finite() && range > 0.0) {
                let found = range.to_string();
                return Err(ModelError::Number {
                    what: "range of rounding",
                    found,
                    expected: "a positive, finite number",
                });
            }
        }
        Ok(())
    }
}

/// `x` in as few bits as asked, or as it is.
pub fn rounded<O: Ops>(ops: &O, x: &O::Tensor, rounding: Option<Rounding>) -> O::Tensor {
    rounding.map_or_else(|| x.clone(), |rounding| rounding.apply(ops, x))
}
