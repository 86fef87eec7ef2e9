//! Kimi Delta Attention: Gated DeltaNet with a decay per key channel.
//!
//! Definition, state and sources: `rung explain kda`.
//!
//! # Computed as
//! Gated DeltaNet's triangular solve with the decays of the channels inside of the products, in chunks.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::delta_rule::{DeltaRuleProjections, DeltaRuleSizes};
use super::head_output::{HeadOutput, OutputGate, OutputNorm, RecurrentHeads};
use super::mamba2::initial_dt_bias;
use super::{MixerConfig, State, number, require_causal, require_divisor};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Convolution, Linear, LinearRecurrence, NormGain, split_heads};

/// Sizes of Kimi Delta Attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KimiDeltaConfig {
    /// Query and key heads.
    pub heads: usize,
    /// Value heads, each with its own state.
    pub value_heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head, and the rank of the decay and of the output gate.
    pub value_dim: usize,
    /// Kernel size of the short convolutions; 0 for none.
    pub kernel_size: usize,
}

/// Kimi Delta Attention's mixer.
pub struct KimiDelta {
    value_heads: usize,
    projections: DeltaRuleProjections,
    /// Down to the rank, then up to the key channels of every value head.
    dt_proj: [Linear; 2],
    dt_bias: Parameter,
    a_log: Parameter,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

/// The weights of Kimi Delta Attention, as read from a checkpoint.
pub(crate) struct KimiDeltaWeights {
    /// Projections to queries, keys and values.
    pub(crate) projections: [Linear; 3],
    /// Short convolutions over the projected queries, keys and values.
    pub(crate) convolutions: [Convolution; 3],
    /// Projection to beta, before its sigmoid.
    pub(crate) beta: Linear,
    /// Projection to dt, before its softplus: down to the rank, then up to the key channels.
    pub(crate) dt_proj: [Linear; 2],
    /// Added to the projected dt, `[value heads * key]`.
    pub(crate) dt_bias: Parameter,
    /// Logarithms of the decay rates, `[value heads]`.
    pub(crate) a_log: Parameter,
    /// Projection to the output gate: down to the rank, then up to the value channels.
    pub(crate) gate: [Linear; 2],
    /// Gain of the norm of head outputs, `[value]`.
    pub(crate) norm: Parameter,
    /// Epsilon of that norm.
    pub(crate) epsilon: f64,
    /// Projection back to the residual stream.
    pub(crate) output: Linear,
}

impl KimiDeltaConfig {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: &KimiDeltaWeights) -> KimiDelta {
        let KimiDeltaWeights { projections, convolutions, beta, dt_proj, dt_bias, a_log, .. } = *weights;
        let heads = [self.heads, self.value_heads];
        KimiDelta {
            value_heads: self.value_heads,
            projections: DeltaRuleProjections::assemble(projections, convolutions, beta, heads, false),
            dt_proj,
            dt_bias,
            a_log,
            recurrence: LinearRecurrence::FULL_PRECISION,
            output: HeadOutput {
                norm: Some(OutputNorm::per_head(NormGain { weight: weights.norm }, weights.epsilon)),
                gate: OutputGate::LowRankSigmoid(weights.gate),
                projection: weights.output,
            },
        }
    }
}

impl MixerConfig for KimiDeltaConfig {
    type Mixer = KimiDelta;
    const NAME: &'static str = "kda";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::kda);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, value_heads] = ["heads", "value-heads"].map(|option| number(mixer, option));
        require_divisor(Self::NAME, "query and key heads", value_heads, heads)?;
        let [key_dim, value_dim, kernel_size] = ["key", "value", "conv"].map(|option| number(mixer, option));
        Ok(Self { heads, value_heads, key_dim, value_dim, kernel_size })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<KimiDelta, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, value_heads, key_dim, value_dim, kernel_size } = *self;
        let (width, rank) = (params.settings.width, value_dim);
        let negative_eigenvalues = false;
        let sizes =
            DeltaRuleSizes { heads, value_heads, key_dim, value_dim, kernel_size, steps: 1, negative_eigenvalues };
        let initial_a_log = |uniform: f64| (1.0 + 15.0 * uniform).ln();
        Ok(KimiDelta {
            value_heads,
            projections: DeltaRuleProjections::init(params, sizes),
            dt_proj: [params.linear("f_proj.0", width, rank), params.linear("f_proj.1", rank, value_heads * key_dim)],
            dt_bias: params.parameter_without_weight_decay(
                "dt_bias",
                &[value_heads * key_dim],
                Init::FromUniform(&initial_dt_bias),
            ),
            a_log: params.parameter_without_weight_decay("A_log", &[value_heads], Init::FromUniform(&initial_a_log)),
            recurrence: params.recurrence(),
            output: HeadOutput {
                gate: OutputGate::LowRankSigmoid([
                    params.linear("g_proj.0", width, rank),
                    params.linear_with_bias("g_proj.1", rank, value_heads * value_dim),
                ]),
                norm: Some(OutputNorm::per_head(params.gain("o_norm", value_dim), NormGain::EPSILON)),
                projection: params.role(Role::Output).linear("o_proj", value_heads * value_dim, width),
            },
        })
    }
}

impl KimiDelta {
    /// Log-decays of the key channels, `[batch, time, value heads, key]`.
    fn decay<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let heads = self.value_heads;
        let dt = self.dt_proj[1].apply(ops, &self.dt_proj[0].apply(ops, x));
        let dt = split_heads(ops, &ops.softplus(&ops.add(&dt, &ops.parameter(self.dt_bias))), heads);
        let rate = ops.reshape(&ops.exp(&ops.parameter(self.a_log)), &[heads, 1]);
        ops.neg(&ops.mul(&dt, &rate))
    }
}

impl RecurrentHeads for KimiDelta {
    /// The output of every head before norm and gate, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.projections.run(ops, x, state, |inputs| {
            let qkv = [&inputs.query, &inputs.key, &inputs.value];
            self.recurrence.run(ops, qkv, Decay::Vector(&self.decay(ops, x)), Some(&inputs.beta), state)
        })
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
