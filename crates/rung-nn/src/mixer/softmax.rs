//! Full softmax attention, with any number of key/value heads.
//!
//! Definition, state and sources: `rung explain full`.
//!
//! # Computed as
//! `softmax(mask(Q K' / sqrt(d))) V`. Without the mask in a bidirectional model.
//!
//! With `accumulator = p` sums are taken from left to right in accumulators of p bits, in training too, where gradients are those of
//! exact sums. Means are clamped to between -8 and 8, logarithms of sums of weights to between -128 and 128.

use rung_engine::{Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::attention::{HeadsConfig, MultiHeadAttention, QueryHeads, Visibility};
use super::{AttentionCalls, MixerConfig, State, TokenMixer, number};
use crate::error::ModelError;
use crate::param_builder::ParamBuilder;
use crate::submodules::Convolution;

/// Sizes of full attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxConfig {
    /// Sizes of the heads.
    pub heads: HeadsConfig,
    /// Taps of a convolution before the projections; 0 for none.
    pub kernel_size: usize,
}

/// Full attention.
pub struct Softmax {
    input_convolution: Option<Convolution>,
    heads: MultiHeadAttention,
}

impl MixerConfig for SoftmaxConfig {
    type Mixer = Softmax;
    const NAME: &'static str = "full";
    const ATTENTION: AttentionCalls = AttentionCalls::All;

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, kernel_size: number(mixer, "conv") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Softmax, ModelError> {
        if self.kernel_size > 0 {
            super::require_causal("full{conv}", params)?;
        }
        let width = params.settings.width;
        let input_convolution = params.role(Role::InputConvolution).convolution("conv1d", width, self.kernel_size);
        let rounding = params.settings.precision.message;
        Ok(Softmax { input_convolution, heads: self.heads.init(Self::NAME, params, visibility(params), rounding)? })
    }
}

impl SoftmaxConfig {
    /// A layer that attends to the KV cache of another.
    pub(super) fn init_with_shared_cache<S: Scalar>(
        &self,
        params: &mut ParamBuilder<'_, S>,
    ) -> Result<QueryHeads, ModelError> {
        self.heads.init_with_shared_cache(Self::NAME, params, visibility(params))
    }
}

impl Softmax {
    /// Full attention of heads whose weights exist.
    pub(crate) fn from_heads(heads: MultiHeadAttention) -> Self {
        Self { input_convolution: None, heads }
    }
}

fn visibility<S: Scalar>(params: &ParamBuilder<'_, S>) -> Visibility {
    if params.settings.causal { Visibility::Past } else { Visibility::All }
}

impl TokenMixer for Softmax {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Some(convolution) = &self.input_convolution else { return self.heads.forward(ops, x, state) };
        let (x, conv_state) = convolution.apply(ops, x, State::tensor(state, 2));
        let (out, mut next_state) = self.heads.forward(ops, &x, state);
        next_state.tensors[2] = conv_state;
        (out, next_state)
    }

    /// Appends to the KV cache without computing attention.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        let Some(convolution) = &self.input_convolution else { return self.heads.append_to_cache(ops, x, state).1 };
        let (x, conv_state) = convolution.apply(ops, x, State::tensor(state, 2));
        let mut next_state = self.heads.append_to_cache(ops, &x, state).1;
        next_state.tensors[2] = conv_state;
        next_state
    }
}
