//! Lightning attention: linear attention with a fixed decay per head and layer.
//!
//! Definition, state and sources: `rung explain lightning`.
//!
//! # Computed as
//! `(Q K' . D) V` with `D_ts = exp(-s_h (t-s))`, in chunks.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::head_output::{HeadOutput, OutputGate, OutputNorm, RecurrentHeads};
use super::{MixerConfig, State, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{LayerDepth, ParamBuilder};
use crate::submodules::{Linear, LinearRecurrence, NormGain};

/// Sizes of lightning attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LightningConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of a head's queries, keys and values.
    pub head_dim: usize,
}

/// Lightning attention.
pub struct Lightning {
    config: LightningConfig,
    /// For every head the rows of its query, then of its key, then of its value.
    input: Linear,
    depth: LayerDepth,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

/// Epsilon of the norm of head outputs.
const EPSILON: f64 = 1e-6;
/// Keeps the decay rate of the last layer above zero, and the quotient finite in a model of one layer.
const MIN_RATE: f64 = 1e-5;

/// The logarithm of the factor by which a head's state decays at each token.
fn log_decay(head: usize, heads: usize, depth: LayerDepth) -> f64 {
    let slope = 2_f64.powf(-8.0 * (head + 1) as f64 / heads as f64);
    let (layer, layers) = (depth.layer as f64, depth.layers as f64);
    -slope * (1.0 - layer / (layers - 1.0 + MIN_RATE) + MIN_RATE)
}

impl MixerConfig for LightningConfig {
    type Mixer = Lightning;
    const NAME: &'static str = "lightning";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::lightning);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { heads: number(mixer, "heads"), head_dim: number(mixer, "head") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Lightning, ModelError> {
        require_causal(Self::NAME, params)?;
        let (width, inner) = (params.settings.width, self.heads * self.head_dim);
        Ok(Lightning {
            config: *self,
            input: params.linear("qkv_proj", width, 3 * inner),
            depth: params.depth,
            recurrence: params.recurrence(),
            output: HeadOutput {
                gate: OutputGate::Sigmoid(params.linear("output_gate", width, inner)),
                norm: Some(norm(params.gain("norm", inner))),
                projection: params.role(Role::Output).linear("out_proj", inner, width),
            },
        })
    }
}

/// The norm of head outputs, over all heads together.
fn norm(gain: NormGain) -> OutputNorm {
    OutputNorm { gain: Some(gain), epsilon: EPSILON, over_all_heads: true }
}

impl LightningConfig {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(
        self,
        [input, gate, projection]: [Linear; 3],
        gain: Parameter,
        depth: LayerDepth,
    ) -> Lightning {
        let (norm, gate) = (Some(norm(NormGain { weight: gain })), OutputGate::Sigmoid(gate));
        let output = HeadOutput { norm, gate, projection };
        Lightning { config: self, input, depth, recurrence: LinearRecurrence::FULL_PRECISION, output }
    }
}

impl RecurrentHeads for Lightning {
    /// The output of every head before norm and gate, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let LightningConfig { heads, head_dim } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let qkv = ops.silu(&self.input.apply_and_split_heads(ops, x, heads));
        let [query, key, value] = [0, 1, 2].map(|index| ops.slice(&qkv, 3, index * head_dim..(index + 1) * head_dim));
        let decays: Vec<_> = (0..heads).map(|head| O::Scalar::from_f64(log_decay(head, heads, self.depth))).collect();
        let decay = ops.broadcast(&ops.constant(&[heads], &decays), &[batch, time, heads]);
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::Scalar(&decay), None, state);
        (out, State::new(State::past_len(state) + time, [Some(matrix)]))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
