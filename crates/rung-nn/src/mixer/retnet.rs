//! RetNet: linear attention with a fixed decay per head.
//!
//! Definition, state and sources: `rung explain retnet`.
//!
//! # Computed as
//! `(Q K' . D) V` with `D_ts = gamma^(t-s)`, in chunks.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::head_output::{HeadOutput, OutputGate, OutputNorm, RecurrentHeads};
use super::{MixerConfig, State, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::position::{Frequencies, Rotation, apply_rope};
use crate::submodules::{LinearRecurrence, QkvProjection, scale_query};

/// Sizes of RetNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetnetConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

/// RetNet's mixer.
pub struct Retnet {
    heads: usize,
    projections: QkvProjection,
    pub(super) rotation: Option<Rotation>,
    /// Whether the state decays; tests turn it off.
    pub(super) decays: bool,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

/// Epsilon of the norm per head.
const EPSILON: f64 = 1e-6;

impl MixerConfig for RetnetConfig {
    type Mixer = Retnet;
    const NAME: &'static str = "retnet";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::retnet);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let key_dim = number(mixer, "key");
        if !key_dim.is_multiple_of(2) {
            let expected = "an even number, since keys are rotated".to_owned();
            return Err(ModelError::InvalidSize {
                component: Self::NAME,
                what: "key width",
                found: key_dim as u64,
                expected,
            });
        }
        Ok(Self { heads: number(mixer, "heads"), key_dim, value_dim: number(mixer, "value") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Retnet, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, key_dim, value_dim } = *self;
        let width = params.settings.width;
        // Xavier initialisation, with a gain of 2^-2.5 for input projections and 2^-1 for the output projection.
        let xavier = |fan_sum: usize, gain: f64| {
            let bound = gain * (6.0 / fan_sum as f64).sqrt();
            Init::Uniform(-bound, bound)
        };
        let input_init = |outputs: usize| xavier(width + outputs, 2_f64.powf(-2.5));
        let inner = heads * value_dim;
        Ok(Retnet {
            heads,
            projections: QkvProjection::init(params, [heads, key_dim, value_dim], input_init),
            rotation: Some(Rotation::new(key_dim, Frequencies::Inclusive)),
            decays: true,
            recurrence: params.recurrence(),
            output: HeadOutput {
                norm: Some(OutputNorm { gain: None, epsilon: EPSILON, over_all_heads: false }),
                gate: OutputGate::Silu(params.role(Role::Gate).linear_with_init(
                    "g_proj",
                    width,
                    inner,
                    input_init(inner),
                )),
                projection: params.role(Role::Output).linear_with_init(
                    "o_proj",
                    inner,
                    width,
                    xavier(inner + width, 0.5),
                ),
            },
        })
    }
}

impl RecurrentHeads for Retnet {
    /// The output of every head before norm and gate, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let heads = self.heads;
        let (batch, time, past_len) = (ops.shape(x)[0], ops.shape(x)[1], State::past_len(state));
        let rotate = |x: &O::Tensor| apply_rope(ops, self.rotation.as_ref(), x, past_len);
        let [query, key, value] = self.projections.apply(ops, x);
        let (query, key) = (rotate(&scale_query(ops, &query)), rotate(&key));
        let log_decay = |head: usize| (-(2_f64.powf(-5.0 - head as f64))).ln_1p();
        let log_decays: Vec<O::Scalar> = (0..heads).map(|head| O::Scalar::from_f64(log_decay(head))).collect();
        let decay = ops.broadcast(&ops.constant(&[heads], &log_decays), &[batch, time, heads]);
        let decay = if self.decays { Decay::Scalar(&decay) } else { Decay::None };
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], decay, None, state);
        (out, State::new(past_len + time, [Some(matrix)]))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
