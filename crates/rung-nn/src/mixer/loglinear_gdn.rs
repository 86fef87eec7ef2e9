//! Log-linear Gated DeltaNet: a gated delta state for every power-of-two span of the past.
//!
//! Definition, state and sources: `rung explain loglinear-gdn`.
//!
//! # Computed as
//! `([tril(Q K') (I + stril(Diag(beta) K K'))^-1] . L . Lambda) Diag(beta) V`: inside a chunk one
//! masked product, beyond it a state for each level; see the module `fenwick`.

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use super::fenwick::{FenwickMemory, RecurrenceInputs};
use super::gdn::{GatedDeltanet, GatedDeltanetConfig};
use super::{MixerConfig, State, TokenMixer, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::ParamBuilder;

/// Sizes of log-linear Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLinearDeltanetConfig {
    /// Sizes of the underlying Gated DeltaNet.
    pub base: GatedDeltanetConfig,
    /// Number of levels with their own weight; coarser levels use the last.
    pub levels: usize,
}

/// Log-linear Gated DeltaNet's mixer.
pub struct LogLinearDeltanet {
    base: GatedDeltanet,
    memory: FenwickMemory,
}

impl MixerConfig for LogLinearDeltanetConfig {
    type Mixer = LogLinearDeltanet;
    const NAME: &'static str = "loglinear-gdn";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::gdn);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { base: GatedDeltanetConfig::resolve(mixer)?, levels: number(mixer, "levels") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<LogLinearDeltanet, ModelError> {
        require_causal(Self::NAME, params)?;
        let base = self.base.init(params)?;
        Ok(LogLinearDeltanet { base, memory: FenwickMemory::init(params, self.base.value_heads, self.levels) })
    }
}

impl LogLinearDeltanet {
    /// The output of every head before norm and gate, and the state.
    pub(super) fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.base.head_outputs_with(ops, x, state, |inputs| {
            // Undoes the scale of Gated DeltaNet's queries, which the authors' log-linear version does not have.
            let query = ops.scale(inputs.query, (ops.shape(inputs.query).width() as f64).sqrt());
            self.memory.run(ops, x, &RecurrenceInputs { query: &query, ..*inputs }, state)
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
        let (out, state) = self.head_outputs(ops, x, state);
        (self.base.project_output(ops, x, &out), state)
    }
}
