//! Log-linear Gated DeltaNet: a gated delta state for every power-of-two span of the past.
//!
//! Definition, state and sources: `rung explain loglinear-gdn`.
//!
//! # Computed as
//! `([tril(Q K') (I + stril(Diag(beta) K K'))^-1] . L . Lambda) Diag(beta) V`: for each level a recurrence of Gated
//! DeltaNet, in chunks.

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use super::fenwick::{FenwickMemory, RecurrenceInputs};
use super::gdn::{GatedDeltanet, GatedDeltanetConfig};
use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::param_builder::ParamBuilder;

/// Sizes of log-linear Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLinearDeltanetConfig {
    /// Gated DeltaNet's.
    pub base: GatedDeltanetConfig,
    /// Levels that have a weight of their own.
    pub levels: usize,
}

/// Log-linear Gated DeltaNet's mixer.
pub struct LogLinearDeltanet {
    base: GatedDeltanet,
    hierarchy: FenwickMemory,
}

impl MixerConfig for LogLinearDeltanetConfig {
    type Mixer = LogLinearDeltanet;
    const NAME: &'static str = "loglinear-gdn";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { base: GatedDeltanetConfig::resolve(mixer)?, levels: number(mixer, "levels") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<LogLinearDeltanet, ModelError> {
        causal_only(Self::NAME, params)?;
        let base = self.base.init(params)?;
        Ok(LogLinearDeltanet { base, hierarchy: FenwickMemory::init(params, self.base.value_heads, self.levels) })
    }
}

impl LogLinearDeltanet {
    /// The read of every head before norm and gate, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.base.read_with(ops, x, state, |writes| {
            // Gated DeltaNet's queries come scaled; the authors' weights of the levels take the scale off again.
            let query = ops.scale(writes.query, (ops.shape(writes.query).width() as f64).sqrt());
            self.hierarchy.run(ops, x, &RecurrenceInputs { query: &query, ..*writes }, state)
        })
    }
}

impl TokenMixer for LogLinearDeltanet {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        (self.base.after(ops, x, &out), state)
    }
}
