//! DeltaNet: linear attention that corrects what it stored instead of adding to it.
//!
//! Definition, state and sources: `rung explain deltanet`.
//!
//! # Computed as
//! `tril(Q K') (I + stril(Diag(beta) K K'))^-1 Diag(beta) V`, in chunks.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::delta_rule::{DeltaRuleProjections, DeltaRuleSizes};
use super::head_output::{HeadOutput, OutputGate, OutputNorm, RecurrentHeads};
use super::{MixerConfig, State, flag, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::ParamBuilder;
use crate::submodules::{LinearRecurrence, NormGain};

/// Sizes of DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltanetConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Kernel size of the short convolutions; 0 for none.
    pub kernel_size: usize,
    /// Whether beta ranges from 0 to 2, which allows negative eigenvalues, instead of from 0 to 1.
    pub negative_eigenvalues: bool,
}

/// DeltaNet's mixer.
pub struct Deltanet {
    projections: DeltaRuleProjections,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

impl MixerConfig for DeltanetConfig {
    type Mixer = Deltanet;
    const NAME: &'static str = "deltanet";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::deltanet);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key_dim, value_dim, kernel_size] =
            ["heads", "key", "value", "conv"].map(|option| number(mixer, option));
        Ok(Self { heads, key_dim, value_dim, kernel_size, negative_eigenvalues: flag(mixer, "negative") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Deltanet, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, key_dim, value_dim, kernel_size, negative_eigenvalues } = *self;
        let width = params.settings.width;
        let sizes = DeltaRuleSizes {
            heads,
            value_heads: heads,
            key_dim,
            value_dim,
            kernel_size,
            steps: 1,
            negative_eigenvalues,
        };
        Ok(Deltanet {
            projections: DeltaRuleProjections::init(params, sizes),
            recurrence: params.recurrence(),
            output: HeadOutput {
                norm: Some(OutputNorm::per_head(params.gain("o_norm", value_dim), NormGain::EPSILON)),
                gate: OutputGate::None,
                projection: params.role(Role::Output).linear("o_proj", heads * value_dim, width),
            },
        })
    }
}

impl RecurrentHeads for Deltanet {
    /// The output of every head before the norm, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.projections.run(ops, x, state, |inputs| {
            let qkv = [&inputs.query, &inputs.key, &inputs.value];
            self.recurrence.run(ops, qkv, Decay::None, Some(&inputs.beta), state)
        })
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
