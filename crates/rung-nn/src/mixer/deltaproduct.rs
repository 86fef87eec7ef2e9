//! DeltaProduct: several delta steps per token, with or without a decay.
//!
//! Definition, state and sources: `rung explain deltaproduct`.
//!
//! # Computed as
//! The gated delta rule on a sequence `steps` times as long, in chunks: the first step of a token has its decay, the last its
//! query, and only the outputs of last steps are used.

use rung_engine::{Decay, Ops, Recurrence, Scalar};
use rung_theory::stack::Mixer;

use super::delta_rule::{DeltaRuleInputs, DeltaRuleProjections, DeltaRuleSizes};
use super::gdn::DecayProjection;
use super::head_output::{HeadOutput, RecurrentHeads};
use super::{MixerConfig, State, flag, number, require_causal, require_divisor};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::ParamBuilder;
use crate::submodules::LinearRecurrence;

/// Sizes of DeltaProduct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaProductConfig {
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
    /// Delta-rule steps per token.
    pub steps: usize,
    /// Whether the state decays.
    pub decays: bool,
    /// Whether beta ranges from 0 to 2, which allows negative eigenvalues, instead of from 0 to 1.
    pub negative_eigenvalues: bool,
}

/// DeltaProduct's mixer.
pub struct DeltaProduct {
    config: DeltaProductConfig,
    projections: DeltaRuleProjections,
    decay: Option<DecayProjection>,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

impl MixerConfig for DeltaProductConfig {
    type Mixer = DeltaProduct;
    const NAME: &'static str = "deltaproduct";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::deltaproduct);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, value_heads] = ["heads", "value-heads"].map(|option| number(mixer, option));
        require_divisor(Self::NAME, "query and key heads", value_heads, heads)?;
        let [key_dim, value_dim, kernel_size, steps] =
            ["key", "value", "conv", "steps"].map(|option| number(mixer, option));
        let [decays, negative_eigenvalues] = ["gate", "negative"].map(|option| flag(mixer, option));
        Ok(Self { heads, value_heads, key_dim, value_dim, kernel_size, steps, decays, negative_eigenvalues })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<DeltaProduct, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, value_heads, key_dim, value_dim, kernel_size, steps, decays, negative_eigenvalues } = *self;
        let sizes = DeltaRuleSizes { heads, value_heads, key_dim, value_dim, kernel_size, steps, negative_eigenvalues };
        Ok(DeltaProduct {
            config: *self,
            projections: DeltaRuleProjections::init(params, sizes),
            decay: decays.then(|| DecayProjection::init(params, value_heads)),
            recurrence: params.recurrence(),
            output: HeadOutput::init_with_silu_gate(params, "o_norm", value_heads, value_dim),
        })
    }
}

impl DeltaProduct {
    /// Runs the delta rule on the sequence of steps: the outputs of every token's last step, and the matrix state.
    fn run_steps<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        inputs: &DeltaRuleInputs<O::Tensor>,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        let DeltaProductConfig { heads, value_heads, key_dim, value_dim, steps, .. } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        // The steps of a token are adjacent in memory, so a reshape makes them consecutive positions of a longer sequence.
        let unfold_steps = |x: &O::Tensor, shape: &[usize]| ops.reshape(x, &[&[batch, time * steps], shape].concat());
        // Places one tensor per token at one of its steps, with zeros at the others.
        let place_at_step = |x: &O::Tensor, step: usize, shape: &[usize]| {
            let step_shape = |count: usize| [&[batch, time, count], shape].concat();
            let zeros = |count: usize| (count > 0).then(|| ops.zeros(&step_shape(count)));
            let step_rows = [zeros(step), Some(ops.reshape(x, &step_shape(1))), zeros(steps - 1 - step)];
            unfold_steps(&ops.concat(&step_rows.into_iter().flatten().collect::<Vec<_>>(), 2), shape)
        };
        let decay = self.decay.as_ref().map(|decay| place_at_step(&decay.apply(ops, x), 0, &[value_heads]));
        let (out, matrix) = ops.recurrence(&Recurrence {
            query: &place_at_step(&inputs.query, steps - 1, &[heads, key_dim]),
            key: &unfold_steps(&inputs.key, &[heads, key_dim]),
            value: &unfold_steps(&inputs.value, &[value_heads, value_dim]),
            decay: decay.as_ref().map_or(Decay::None, Decay::Scalar),
            beta: Some(&unfold_steps(&inputs.beta, &[value_heads])),
            state: State::tensor(state, 0),
            chunk: self.recurrence.chunk,
            rounding: self.recurrence.rounding,
        });
        let out = ops.reshape(&out, &[batch, time, steps, value_heads * value_dim]);
        (ops.reshape(&ops.slice(&out, 2, steps - 1..steps), &[batch, time, value_heads, value_dim]), matrix)
    }
}

impl RecurrentHeads for DeltaProduct {
    /// The output of every head before norm and gate, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.projections.run(ops, x, state, |inputs| self.run_steps(ops, x, inputs, state))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
