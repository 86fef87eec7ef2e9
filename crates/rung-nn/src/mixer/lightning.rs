//! Lightning attention: linear attention that forgets at a fixed rate per head and layer.
//!
//! Definition, state and sources: `rung explain lightning`.
//!
//! # Computed as
//! `(Q K' . D) V` with `D_ts = exp(-s_h (t-s))`, in chunks.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::{NormGain, Linear, LinearRecurrence, join};
use crate::param_builder::{LayerDepth, ParamBuilder};

/// Sizes of lightning attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LightningConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a head's queries, keys and values.
    pub head: usize,
}

/// Lightning attention.
pub struct Lightning {
    config: LightningConfig,
    /// Of every head first its query, then its key, then its value.
    input: Linear,
    gate: Linear,
    norm: NormGain,
    output: Linear,
    depth: LayerDepth,
    recurrence: LinearRecurrence,
}

/// Epsilon of the norm.
const EPSILON: f64 = 1e-6;
/// Keeps the rate of the last layer above zero, and the quotient finite in a model of one layer.
const SMALLEST: f64 = 1e-5;

/// The logarithm of what a head of so many keeps of its state at each token.
fn log_decay(head: usize, heads: usize, depth: LayerDepth) -> f64 {
    let slope = 2_f64.powf(-8.0 * (head + 1) as f64 / heads as f64);
    let (layer, layers) = (depth.layer as f64, depth.layers as f64);
    -slope * (1.0 - layer / (layers - 1.0 + SMALLEST) + SMALLEST)
}

impl MixerConfig for LightningConfig {
    type Mixer = Lightning;
    const NAME: &'static str = "lightning";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { heads: number(mixer, "heads"), head: number(mixer, "head") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Lightning, ModelError> {
        causal_only(Self::NAME, params)?;
        let (width, inner) = (params.settings.width, self.heads * self.head);
        Ok(Lightning {
            config: *self,
            input: params.linear("qkv_proj", width, 3 * inner),
            gate: params.linear("output_gate", width, inner),
            norm: params.gain("norm", inner),
            output: params.role(Role::Output).linear("out_proj", inner, width),
            depth: params.depth,
            recurrence: params.recurrence(),
        })
    }
}

impl LightningConfig {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, [input, gate, output]: [Linear; 3], norm: Parameter, depth: LayerDepth) -> Lightning {
        let norm = NormGain { weight: norm };
        Lightning { config: self, input, gate, norm, output, depth, recurrence: LinearRecurrence::PLAIN }
    }
}

impl Lightning {
    /// The read of every head before norm and gate, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let LightningConfig { heads, head } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let all = ops.silu(&self.input.heads(ops, x, heads));
        let [query, key, value] = [0, 1, 2].map(|part| ops.slice(&all, 3, part * head..(part + 1) * head));
        let decays: Vec<_> = (0..heads).map(|head| O::Scalar::from_f64(log_decay(head, heads, self.depth))).collect();
        let decay = ops.broadcast(&ops.constant(&[heads], &decays), &[batch, time, heads]);
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::Scalar(&decay), None, state);
        (out, State::new(State::seen(state) + time, [Some(matrix)]))
    }
}

impl TokenMixer for Lightning {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        let out = self.norm.norm_with(ops, &join(ops, &out), EPSILON);
        let gate = ops.sigmoid(&self.gate.apply(ops, x));
        (self.output.apply(ops, &ops.mul(&gate, &out)), state)
    }
}
