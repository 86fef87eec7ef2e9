//! Sliding-window attention: softmax over the last few tokens, and optionally the first few (attention sinks).
//!
//! Definition, state and sources: `rung explain window`.
//!
//! # Computed as
//! Banded softmax; with sinks, softmax under a mask.

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use super::attention::{HeadsConfig, MultiHeadAttention, QueryHeads, Visibility};
use super::{AttentionCalls, MixerConfig, State, TokenMixer, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::ParamBuilder;

/// Sizes of windowed attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Sizes of the heads.
    pub heads: HeadsConfig,
    /// Tokens in the window, including the current one.
    pub size: usize,
    /// Attention sinks: the first tokens, which are always visible.
    pub sinks: usize,
}

/// Windowed attention.
pub struct Window {
    heads: MultiHeadAttention,
}

impl WindowConfig {
    fn visibility(&self) -> Visibility {
        Visibility::Window { size: self.size, sinks: self.sinks }
    }

    /// A layer that attends to the KV cache of another.
    pub(super) fn init_with_shared_cache<S: Scalar>(
        &self,
        params: &mut ParamBuilder<'_, S>,
    ) -> Result<QueryHeads, ModelError> {
        require_causal(Self::NAME, params)?;
        self.heads.init_with_shared_cache(Self::NAME, params, self.visibility())
    }
}

impl Window {
    /// Windowed attention of heads whose weights exist.
    pub(crate) fn from_heads(heads: MultiHeadAttention) -> Self {
        Self { heads }
    }
}

impl MixerConfig for WindowConfig {
    type Mixer = Window;
    const NAME: &'static str = "window";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::window);
    const ATTENTION: AttentionCalls = AttentionCalls::Window;

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [size, sinks] = ["size", "sinks"].map(|option| number(mixer, option));
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, size, sinks })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Window, ModelError> {
        require_causal(Self::NAME, params)?;
        let rounding = params.settings.precision.state;
        Ok(Window { heads: self.heads.init(Self::NAME, params, self.visibility(), rounding)? })
    }
}

impl TokenMixer for Window {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.heads.forward(ops, x, state)
    }
}
