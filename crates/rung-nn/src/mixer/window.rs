//! Sliding-window attention: softmax over the last few tokens, and the first few if asked.
//!
//! Definition, state and sources: `rung explain window`.
//!
//! # Computed as
//! Banded softmax; with sinks, softmax under a mask.

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use super::attention::{MultiHeadAttention, HeadsConfig, Visibility, QueryHeads};
use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::param_builder::ParamBuilder;

/// Sizes of windowed attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// The heads.
    pub heads: HeadsConfig,
    /// Tokens in the window, the current one included.
    pub size: usize,
    /// First tokens that are always seen.
    pub sinks: usize,
}

/// Windowed attention.
pub struct Window {
    heads: MultiHeadAttention,
}

impl WindowConfig {
    fn reach(&self) -> Visibility {
        Visibility::Window { size: self.size, sinks: self.sinks }
    }

    /// A layer that reads the keys and values of another.
    pub(super) fn init_reader<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<QueryHeads, ModelError> {
        causal_only(Self::NAME, params)?;
        self.heads.init_reader(Self::NAME, params, self.reach())
    }
}

impl Window {
    /// Windowed attention of heads that have their weights.
    pub(crate) fn of_heads(heads: MultiHeadAttention) -> Self {
        Self { heads }
    }
}

impl MixerConfig for WindowConfig {
    type Mixer = Window;
    const NAME: &'static str = "window";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [size, sinks] = ["size", "sinks"].map(|option| number(mixer, option));
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, size, sinks })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Window, ModelError> {
        causal_only(Self::NAME, params)?;
        let state = params.settings.precision.state;
        Ok(Window { heads: self.heads.init(Self::NAME, params, self.reach(), state)? })
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
