//! HGRN2: the forget gate f also gives the key, `1 - f`, and has a lower bound that rises with depth.
//!
//! Definition, state and sources: `rung explain hgrn2`.
//!
//! # Computed as
//! As GLA, with keys `1 - f`.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::head_output::{HeadOutput, OutputGate, OutputNorm, RecurrentHeads};
use super::{MixerConfig, State, number, require_causal, require_divisor};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, LayerDepth, ParamBuilder};
use crate::submodules::{Linear, LinearRecurrence, NormGain, scale_query, split_heads};

/// Sizes of HGRN2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hgrn2Config {
    /// Width of a head's key, and of its value.
    pub expand: usize,
}

/// HGRN2's mixer.
pub struct Hgrn2 {
    heads: usize,
    query: Linear,
    forget_gate: Linear,
    value: Linear,
    /// None in the first layer, whose gate has no lower bound.
    lower_bound: Option<ForgetGateBound>,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

impl MixerConfig for Hgrn2Config {
    type Mixer = Hgrn2;
    const NAME: &'static str = "hgrn2";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::hgrn2);

    fn width_divisor(mixer: &Mixer) -> u64 {
        mixer.number("expand").unwrap_or(1)
    }

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { expand: number(mixer, "expand") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Hgrn2, ModelError> {
        require_causal(Self::NAME, params)?;
        let width = params.settings.width;
        require_divisor(Self::NAME, "expand", width, self.expand)?;
        let depth = params.depth;
        Ok(Hgrn2 {
            heads: width / self.expand,
            query: params.role(Role::Query).linear("q_proj", width, width),
            forget_gate: params.linear("f_proj", width, width),
            value: params.linear("i_proj", width, width),
            lower_bound: (depth.layer > 0).then(|| ForgetGateBound::init(params)),
            recurrence: params.recurrence(),
            output: HeadOutput {
                norm: Some(OutputNorm {
                    gain: Some(params.gain("g_norm", width)),
                    epsilon: NormGain::EPSILON,
                    over_all_heads: true,
                }),
                gate: OutputGate::None,
                projection: params.role(Role::Output).linear("o_proj", width, width),
            },
        })
    }
}

/// The lower bound of a layer's forget gate.
struct ForgetGateBound {
    /// Logits of the bounds, `[layers, width]`, shared by all layers.
    table: Parameter,
    depth: LayerDepth,
}

impl ForgetGateBound {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>) -> Self {
        let shape = [params.depth.layers, params.settings.width];
        Self { table: params.shared_weight("lower_bounds", &shape, Init::Constant(0.0)), depth: params.depth }
    }

    /// `log b` and `log (1 - b)` of the bound b per channel. Neither is the logarithm of a difference, so both are finite.
    fn log_bound<O: Ops>(&self, ops: &O) -> [O::Tensor; 2] {
        let LayerDepth { layer, layers } = self.depth;
        let table = ops.parameter(self.table);
        // The logarithm of the sum of exponentials over rows.
        let log_sum_exp = |x: &O::Tensor| {
            let largest = ops.max(x, 0);
            ops.add(&largest, &ops.log(&ops.sum(&ops.exp(&ops.sub(x, &largest)), 0)))
        };
        // The bound is the sum of the softmax weights of rows 1 to `layer`.
        let (bound_rows, other_rows): (Vec<usize>, Vec<usize>) = (0..layers).partition(|row| (1..=layer).contains(row));
        [bound_rows, other_rows].map(|rows| {
            let log_weight = ops.sub(&log_sum_exp(&ops.gather_rows(&table, &rows)), &log_sum_exp(&table));
            ops.reshape(&log_weight, &[ops.shape(&table)[1]])
        })
    }
}

impl Hgrn2 {
    /// `log f` and `1 - f` of the forget gate f, `[batch, time, width]` each.
    fn gate<O: Ops>(&self, ops: &O, x: &O::Tensor) -> (O::Tensor, O::Tensor) {
        let negative_logits = ops.neg(&self.forget_gate.apply(ops, x));
        // The logarithm of a sigmoid, without overflow.
        let log_sigmoid = ops.neg(&ops.softplus(&negative_logits));
        let Some(bound) = &self.lower_bound else { return (log_sigmoid, ops.sigmoid(&negative_logits)) };
        let [log_bound, log_rest] = bound.log_bound(ops);
        // f is the bound b plus (1 - b) times the sigmoid; this is the logarithm of that sum, from the logarithms of its terms.
        let log_term = ops.add(&log_sigmoid, &log_rest);
        let log_gate = ops.add(&log_term, &ops.softplus(&ops.sub(&log_bound, &log_term)));
        (log_gate, ops.mul(&ops.sigmoid(&negative_logits), &ops.exp(&log_rest)))
    }
}

impl RecurrentHeads for Hgrn2 {
    /// The output of every head before the norm, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (decay, key) = self.gate(ops, x);
        let [decay, key] = [decay, key].map(|x| split_heads(ops, &x, self.heads));
        let query = scale_query(ops, &ops.silu(&self.query.apply_and_split_heads(ops, x, self.heads)));
        let value = self.value.apply_and_split_heads(ops, x, self.heads);
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::Vector(&decay), None, state);
        (out, State::new(State::past_len(state) + ops.shape(x)[1], [Some(matrix)]))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
