//! Log-linear Mamba-2: a state for every power-of-two span of the past.
//!
//! Definition, state and sources: `rung explain loglinear-mamba2`.
//!
//! # Computed as
//! `(C B' . L . Lambda)(dt . X)` with `Lambda_ts = lambda_t^(bits(t xor s))`: inside a chunk one masked
//! product, beyond it a state for each level; see the module `fenwick`.

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use super::fenwick::FenwickMemory;
use super::mamba2::{Mamba2, Mamba2Config};
use super::{MixerConfig, State, TokenMixer, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::ParamBuilder;

/// Sizes of log-linear Mamba-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLinearMamba2Config {
    /// Sizes of the underlying Mamba-2.
    pub base: Mamba2Config,
    /// Number of levels with their own weight; coarser levels use the last.
    pub levels: usize,
}

/// Log-linear Mamba-2's mixer.
pub struct LogLinearMamba2 {
    base: Mamba2,
    memory: FenwickMemory,
}

impl MixerConfig for LogLinearMamba2Config {
    type Mixer = LogLinearMamba2;
    const NAME: &'static str = "loglinear-mamba2";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::mamba2);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { base: Mamba2Config::resolve(mixer)?, levels: number(mixer, "levels") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<LogLinearMamba2, ModelError> {
        require_causal(Self::NAME, params)?;
        let base = self.base.init(params)?;
        Ok(LogLinearMamba2 { base, memory: FenwickMemory::init(params, self.base.heads, self.levels) })
    }
}

impl TokenMixer for LogLinearMamba2 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.base.project_and_gate(ops, x, |projected| {
            self.base.head_outputs_with(ops, projected, state, |inputs| self.memory.run(ops, x, inputs, state))
        })
    }
}
