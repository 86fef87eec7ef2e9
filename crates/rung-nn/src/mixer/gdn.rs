//! Gated DeltaNet: the delta rule on a state that also decays.
//!
//! Definition, state and sources: `rung explain gdn`.
//!
//! # Computed as
//! DeltaNet's triangular solve with a decay mask, in chunks.

use rung_engine::{Ops, Parameter, Scalar};
use rung_theory::stack::Mixer;

use super::delta_rule::{DeltaRuleProjections, DeltaRuleSizes};
use super::fenwick::RecurrenceInputs;
use super::head_output::{HeadOutput, OutputGate, OutputNorm};
use super::mamba2::initial_dt_bias;
use super::{MixerConfig, State, TokenMixer, flag, number, require_causal, require_divisor};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Convolution, Linear, LinearRecurrence, NormGain};

/// Sizes of Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedDeltanetConfig {
    /// Query and key heads.
    pub heads: usize,
    /// Value heads, each with its own state.
    pub value_heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Kernel size of the short convolutions; 0 for none.
    pub kernel_size: usize,
    /// Whether beta ranges from 0 to 2, which allows negative eigenvalues, instead of from 0 to 1.
    pub negative_eigenvalues: bool,
}

/// Gated DeltaNet's mixer.
pub struct GatedDeltanet {
    projections: DeltaRuleProjections,
    decay: DecayProjection,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

/// The weights of Gated DeltaNet, as read from a checkpoint.
pub(crate) struct GatedDeltanetWeights {
    /// Projections to queries, keys and values.
    pub(crate) projections: [Linear; 3],
    /// Short convolutions over the projected queries, keys and values.
    pub(crate) convolutions: [Convolution; 3],
    /// Projection to beta, before its sigmoid.
    pub(crate) beta: Linear,
    /// Projection to dt, before its softplus.
    pub(crate) dt_proj: Linear,
    /// Added to the projected dt, `[value heads]`.
    pub(crate) dt_bias: Parameter,
    /// Logarithms of the decay rates, `[value heads]`.
    pub(crate) a_log: Parameter,
    /// Projection to the output gate.
    pub(crate) gate: Linear,
    /// Gain of the norm of head outputs, `[value]`.
    pub(crate) norm: Parameter,
    /// Epsilon of that norm.
    pub(crate) epsilon: f64,
    /// Projection back to the residual stream.
    pub(crate) output: Linear,
}

impl GatedDeltanetConfig {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: &GatedDeltanetWeights) -> GatedDeltanet {
        let GatedDeltanetWeights { projections, convolutions, beta, dt_proj, dt_bias, a_log, .. } = *weights;
        let heads = [self.heads, self.value_heads];
        GatedDeltanet {
            projections: DeltaRuleProjections::assemble(
                projections,
                convolutions,
                beta,
                heads,
                self.negative_eigenvalues,
            ),
            decay: DecayProjection { dt_proj, dt_bias, a_log },
            recurrence: LinearRecurrence::FULL_PRECISION,
            output: HeadOutput {
                norm: Some(OutputNorm::per_head(NormGain { weight: weights.norm }, weights.epsilon)),
                gate: OutputGate::Silu(weights.gate),
                projection: weights.output,
            },
        }
    }
}

/// The decay of a token's state: dt, computed from the token, times a learned rate per head.
pub(super) struct DecayProjection {
    dt_proj: Linear,
    dt_bias: Parameter,
    a_log: Parameter,
}

impl DecayProjection {
    pub(super) fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, value_heads: usize) -> Self {
        // The rate is at least 1e-4, so that its logarithm is finite.
        let initial_a_log = |uniform: f64| (16.0 * uniform).max(1e-4).ln();
        Self {
            dt_proj: params.linear("a_proj", params.settings.width, value_heads),
            dt_bias: params.parameter_without_weight_decay(
                "dt_bias",
                &[value_heads],
                Init::FromUniform(&initial_dt_bias),
            ),
            a_log: params.parameter_without_weight_decay("A_log", &[value_heads], Init::FromUniform(&initial_a_log)),
        }
    }

    /// Log-decays, `[batch, time, value heads]`.
    pub(super) fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let dt = ops.softplus(&ops.add(&self.dt_proj.apply(ops, x), &ops.parameter(self.dt_bias)));
        ops.neg(&ops.mul(&dt, &ops.exp(&ops.parameter(self.a_log))))
    }
}

impl MixerConfig for GatedDeltanetConfig {
    type Mixer = GatedDeltanet;
    const NAME: &'static str = "gdn";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::gdn);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, value_heads] = ["heads", "value-heads"].map(|option| number(mixer, option));
        require_divisor(Self::NAME, "query and key heads", value_heads, heads)?;
        let [key_dim, value_dim, kernel_size] = ["key", "value", "conv"].map(|option| number(mixer, option));
        Ok(Self { heads, value_heads, key_dim, value_dim, kernel_size, negative_eigenvalues: flag(mixer, "negative") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<GatedDeltanet, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, value_heads, key_dim, value_dim, kernel_size, negative_eigenvalues } = *self;
        let sizes =
            DeltaRuleSizes { heads, value_heads, key_dim, value_dim, kernel_size, steps: 1, negative_eigenvalues };
        Ok(GatedDeltanet {
            projections: DeltaRuleProjections::init(params, sizes),
            decay: DecayProjection::init(params, value_heads),
            recurrence: params.recurrence(),
            output: HeadOutput::init_with_silu_gate(params, "o_norm", value_heads, value_dim),
        })
    }
}

impl GatedDeltanet {
    /// The output of every head before norm and gate, and the state. `recurrence` runs on the inputs it is given and returns its
    /// output and its state.
    pub(super) fn head_outputs_with<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
        recurrence: impl FnOnce(&RecurrenceInputs<'_, O::Tensor>) -> (O::Tensor, O::Tensor),
    ) -> (O::Tensor, State<O::Tensor>) {
        self.projections.run(ops, x, state, |inputs| {
            recurrence(&RecurrenceInputs {
                query: &inputs.query,
                key: &inputs.key,
                value: &inputs.value,
                decay: &self.decay.apply(ops, x),
                beta: Some(&inputs.beta),
            })
        })
    }

    /// The output of every head before norm and gate, and the state.
    pub(super) fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.head_outputs_with(ops, x, state, |inputs| inputs.run(ops, self.recurrence, state))
    }

    /// Norm, gate and output projection of head outputs; `x` is the mixer's input.
    pub(super) fn project_output<O: Ops>(&self, ops: &O, x: &O::Tensor, head_outputs: &O::Tensor) -> O::Tensor {
        self.output.apply(ops, x, head_outputs)
    }
}

impl TokenMixer for GatedDeltanet {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.head_outputs(ops, x, state);
        (self.project_output(ops, x, &out), state)
    }
}
