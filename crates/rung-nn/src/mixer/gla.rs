//! Gated linear attention: a forget gate per key channel, computed from the token.
//!
//! # Recurrence
//! `S_t = Diag(alpha_t) S_{t-1} + k_t v_t'`, `o_t = S_t' q_t / sqrt(key)`, `alpha = sigmoid(W_2 W_1 x + b)^(1/16)`; then a norm per
//! head, times SiLU of a gate.
//!
//! # Parallel form
//! `P_ts = sum_c q_tc k_sc exp(G_tc - G_sc)` with G the running sum of log gates, in chunks.
//!
//! # State
//! `heads * key * value` numbers.
//!
//! # Reduces to
//! Linear attention without normaliser when the gates are open.
//!
//! # Source
//! Yang et al. 2023 (2312.06635).

use rung_engine::{Decay, Ops, Recurrence, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::{Gain, Linear, join, split};
use crate::site::Site;

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
    query: Linear,
    key: Linear,
    value: Linear,
    /// Down to the rank, then up to the key channels with a bias.
    forget: [Linear; 2],
    gate: Linear,
    norm: Gain,
    output: Linear,
    chunk: usize,
}

impl MixerConfig for GlaConfig {
    type Mixer = Gla;
    const NAME: &'static str = "gla";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key, value, rank] = ["heads", "key", "value", "rank"].map(|option| number(mixer, option));
        Ok(Self { heads, key, value, rank })
    }

    fn init<S: Scalar>(&self, site: &mut Site<'_, S>) -> Result<Gla, ModelError> {
        causal_only(Self::NAME, site)?;
        let Self { heads, key, value, rank } = *self;
        let width = site.settings.width;
        let query = site.linear("q_proj", width, heads * key);
        let keys = site.linear("k_proj", width, heads * key);
        site.tie(&query, &keys, heads, heads);
        Ok(Gla {
            config: *self,
            query,
            key: keys,
            value: site.linear("v_proj", width, heads * value),
            forget: [
                site.linear("gk_proj.0", width, rank),
                site.linear_with_bias("gk_proj.1", rank, heads * key),
            ],
            gate: site.linear("g_proj", width, heads * value),
            norm: site.gain("g_norm", value),
            output: site.linear("o_proj", heads * value, width),
            chunk: site.settings.chunk,
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
        let GlaConfig { heads, key: width, .. } = self.config;
        let raw = self.forget[1].heads(ops, &self.forget[0].apply(ops, x), heads);
        // The logarithm of a sigmoid, without overflow.
        let decay = ops.scale(&ops.softplus(&ops.neg(&raw)), -1.0 / Self::ROOT);
        let (out, matrix) = ops.recurrence(&Recurrence {
            query: &ops.scale(&self.query.heads(ops, x, heads), (width as f64).powf(-0.5)),
            key: &self.key.heads(ops, x, heads),
            value: &self.value.heads(ops, x, heads),
            decay: Decay::Vector(&decay),
            beta: None,
            state: State::part(state, 0),
            chunk: self.chunk,
        });
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
        let gate = split(ops, &self.gate.apply(ops, x), self.config.heads);
        (self.output.apply(ops, &join(ops, &ops.silu_gate(&gate, &out))), state)
    }
}
