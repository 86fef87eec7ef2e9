//! Full softmax attention, with any number of key/value heads.
//!
//! Definition, state and sources: `rung explain full`.
//!
//! # Computed as
//! `softmax(mask(Q K' / sqrt(d))) V`. Without the mask in a bidirectional model.
//!
//! With `accumulator = p` sums are taken from left to right in accumulators of p bits, in training too, where gradients are those of
//! exact sums. Means lie between -8 and 8, logs of sums of weights between -128 and 128.

use rung_engine::{Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::attention::{MultiHeadAttention, HeadsConfig, Visibility, QueryHeads};
use super::{MixerConfig, State, TokenMixer, number};
use crate::error::ModelError;
use crate::parts::Convolution;
use crate::param_builder::ParamBuilder;

/// Sizes of full attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxConfig {
    /// The heads.
    pub heads: HeadsConfig,
    /// Taps of a convolution before the projections; 0 for none.
    pub taps: usize,
}

/// Full attention.
pub struct Softmax {
    front: Option<Convolution>,
    heads: MultiHeadAttention,
}

impl MixerConfig for SoftmaxConfig {
    type Mixer = Softmax;
    const NAME: &'static str = "full";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, taps: number(mixer, "conv") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Softmax, ModelError> {
        if self.taps > 0 {
            super::causal_only("full{conv}", params)?;
        }
        let width = params.settings.width;
        let front = params.role(Role::InputConvolution).convolution("conv1d", width, self.taps);
        let message = params.settings.precision.message;
        Ok(Softmax { front, heads: self.heads.init(Self::NAME, params, reach(params), message)? })
    }
}

impl SoftmaxConfig {
    /// A layer that reads the keys and values of another.
    pub(super) fn init_reader<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<QueryHeads, ModelError> {
        self.heads.init_reader(Self::NAME, params, reach(params))
    }
}

impl Softmax {
    /// Full attention of heads that have their weights.
    pub(crate) fn of_heads(heads: MultiHeadAttention) -> Self {
        Self { front: None, heads }
    }
}

fn reach<S: Scalar>(params: &ParamBuilder<'_, S>) -> Visibility {
    if params.settings.causal { Visibility::Past } else { Visibility::All }
}

impl TokenMixer for Softmax {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Some(front) = &self.front else { return self.heads.forward(ops, x, state) };
        let (x, tail) = front.apply(ops, x, State::part(state, 2));
        let (out, mut next) = self.heads.forward(ops, &x, state);
        next.tensors[2] = tail;
        (out, next)
    }

    /// Keys and values only: no scores.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        let Some(front) = &self.front else { return self.heads.append_to_cache(ops, x, state).1 };
        let (x, tail) = front.apply(ops, x, State::part(state, 2));
        let mut next = self.heads.append_to_cache(ops, &x, state).1;
        next.tensors[2] = tail;
        next
    }
}
