//! RetNet: linear attention that forgets at a fixed rate per head.
//!
//! Definition, state and sources: `rung explain retnet`.
//!
//! # Computed as
//! `(Q K' . D) V` with `D_ts = gamma^(t-s)`, in chunks.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::{Linear, LinearRecurrence, Projections, join, scaled};
use crate::position::{Rotation, Spacing};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of RetNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetnetConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
}

/// RetNet's mixer.
pub struct Retnet {
    config: RetnetConfig,
    projections: Projections,
    gate: Linear,
    output: Linear,
    pub(super) rotation: Option<Rotation>,
    pub(super) decays: bool,
    recurrence: LinearRecurrence,
}

/// Epsilon of the norm per head.
const EPSILON: f64 = 1e-6;

impl MixerConfig for RetnetConfig {
    type Mixer = Retnet;
    const NAME: &'static str = "retnet";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let key = number(mixer, "key");
        if !key.is_multiple_of(2) {
            let expected = "an even number, since keys are turned".to_owned();
            return Err(ModelError::Shape { place: Self::NAME, what: "key width", found: key as u64, expected });
        }
        Ok(Self { heads: number(mixer, "heads"), key, value: number(mixer, "value") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Retnet, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, key, value } = *self;
        let width = params.settings.width;
        // Xavier's range, times 2^-2.5 for what goes in and 2^-1 for what goes out.
        let xavier = |sum: usize, gain: f64| {
            let reach = gain * (6.0 / sum as f64).sqrt();
            Init::Uniform(-reach, reach)
        };
        let into = |outputs: usize| xavier(width + outputs, 2_f64.powf(-2.5));
        let inner = heads * value;
        Ok(Retnet {
            config: *self,
            projections: Projections::init(params, [heads, key, value], into),
            gate: params.role(Role::Gate).linear_from("g_proj", width, inner, into(inner)),
            output: params.role(Role::Output).linear_from("o_proj", inner, width, xavier(inner + width, 0.5)),
            rotation: Some(Rotation::new(key, Spacing::Inclusive)),
            decays: true,
            recurrence: params.recurrence(),
        })
    }
}

impl Retnet {
    /// The read of every head before norm and gate, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let heads = self.config.heads;
        let (batch, time, seen) = (ops.shape(x)[0], ops.shape(x)[1], State::seen(state));
        let turned = |x: O::Tensor| self.rotation.as_ref().map_or(x.clone(), |turn| turn.apply(ops, &x, seen));
        let [query, key, value] = self.projections.apply(ops, x);
        let (query, key) = (turned(scaled(ops, &query)), turned(key));
        let rate = |head: usize| (-(2_f64.powf(-5.0 - head as f64))).ln_1p();
        let rates: Vec<O::Scalar> = (0..heads).map(|head| O::Scalar::from_f64(rate(head))).collect();
        let decay = ops.broadcast(&ops.constant(&[heads], &rates), &[batch, time, heads]);
        let decay = if self.decays { Decay::Scalar(&decay) } else { Decay::None };
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], decay, None, state);
        (out, State::new(seen + time, [Some(matrix)]))
    }
}

impl TokenMixer for Retnet {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        let out = ops.rms_norm(&out, None, EPSILON);
        let gate = self.gate.heads(ops, x, self.config.heads);
        (self.output.apply(ops, &join(ops, &ops.silu_gate(&gate, &out))), state)
    }
}
