//! Gated linear attention: a forget gate per key channel, computed from the token.
//!
//! Definition, state and sources: `rung explain gla`.
//!
//! # Computed as
//! `P_ts = sum_c q_tc k_sc exp(G_tc - G_sc)` with G the running sum of log gates, in chunks.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::{NormGain, Linear, LinearRecurrence, Projections, join, scaled};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of gated linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlaConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
    /// Rank of the gate's projection.
    pub rank: usize,
}

/// Gated linear attention.
pub struct Gla {
    config: GlaConfig,
    projections: Projections,
    /// Down to the rank, then up to the key channels with a bias.
    forget: [Linear; 2],
    gate: Linear,
    norm: NormGain,
    output: Linear,
    recurrence: LinearRecurrence,
}

impl MixerConfig for GlaConfig {
    type Mixer = Gla;
    const NAME: &'static str = "gla";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key, value, rank] = ["heads", "key", "value", "rank"].map(|option| number(mixer, option));
        Ok(Self { heads, key, value, rank })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Gla, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, key, value, rank } = *self;
        let width = params.settings.width;
        let init = Init::Normal(params.settings.deviation);
        Ok(Gla {
            config: *self,
            projections: Projections::init(params, [heads, key, value], |_| init),
            forget: [params.linear("gk_proj.0", width, rank), params.linear_with_bias("gk_proj.1", rank, heads * key)],
            gate: params.role(Role::Gate).linear("g_proj", width, heads * value),
            norm: params.gain("g_norm", value),
            output: params.role(Role::Output).linear("o_proj", heads * value, width),
            recurrence: params.recurrence(),
        })
    }
}

impl Gla {
    /// The gate is the sixteenth root of a sigmoid, so that a fresh state lasts.
    const ROOT: f64 = 16.0;

    /// The read of every head before norm and gate, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [query, key, value] = self.projections.apply(ops, x);
        let raw = self.forget[1].heads(ops, &self.forget[0].apply(ops, x), self.config.heads);
        // The logarithm of a sigmoid, without overflow.
        let decay = ops.scale(&ops.softplus(&ops.neg(&raw)), -1.0 / Self::ROOT);
        let inputs = [&scaled(ops, &query), &key, &value];
        let (out, matrix) = self.recurrence.run(ops, inputs, Decay::Vector(&decay), None, state);
        (out, State::new(State::seen(state) + ops.shape(x)[1], [Some(matrix)]))
    }
}

impl TokenMixer for Gla {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        let out = self.norm.norm(ops, &out);
        let gate = self.gate.heads(ops, x, self.config.heads);
        (self.output.apply(ops, &join(ops, &ops.silu_gate(&gate, &out))), state)
    }
}
