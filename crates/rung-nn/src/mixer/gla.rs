//! Gated linear attention: a forget gate per key channel, computed from the token.
//!
//! Definition, state and sources: `rung explain gla`.
//!
//! # Computed as
//! `P_ts = sum_c q_tc k_sc exp(G_tc - G_sc)` with G the running sum of log gates, in chunks.

use rung_engine::{Decay, Ops, Scalar};
use rung_theory::stack::Mixer;

use super::head_output::{HeadOutput, RecurrentHeads};
use super::{MixerConfig, State, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Linear, LinearRecurrence, QkvProjection, scale_query};

/// Sizes of gated linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlaConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Rank of the gate's projection.
    pub rank: usize,
}

/// Gated linear attention.
pub struct Gla {
    heads: usize,
    projections: QkvProjection,
    /// Down to the rank, then up to the key channels with a bias.
    forget_gate: [Linear; 2],
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

impl MixerConfig for GlaConfig {
    type Mixer = Gla;
    const NAME: &'static str = "gla";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::gla);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key_dim, value_dim, rank] = ["heads", "key", "value", "rank"].map(|option| number(mixer, option));
        Ok(Self { heads, key_dim, value_dim, rank })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Gla, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, key_dim, value_dim, rank } = *self;
        let width = params.settings.width;
        let init = Init::Normal(params.settings.init_std);
        Ok(Gla {
            heads,
            projections: QkvProjection::init(params, [heads, key_dim, value_dim], |_| init),
            forget_gate: [
                params.linear("gk_proj.0", width, rank),
                params.linear_with_bias("gk_proj.1", rank, heads * key_dim),
            ],
            recurrence: params.recurrence(),
            output: HeadOutput::init_with_silu_gate(params, "g_norm", heads, value_dim),
        })
    }
}

impl Gla {
    /// The forget gate is the sixteenth root of a sigmoid, so that the state decays slowly at initialisation.
    const GATE_ROOT: f64 = 16.0;
}

impl RecurrentHeads for Gla {
    /// The output of every head before norm and gate, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [query, key, value] = self.projections.apply(ops, x);
        let gate_logits =
            self.forget_gate[1].apply_and_split_heads(ops, &self.forget_gate[0].apply(ops, x), self.heads);
        // The logarithm of a sigmoid, without overflow.
        let decay = ops.scale(&ops.softplus(&ops.neg(&gate_logits)), -1.0 / Self::GATE_ROOT);
        let inputs = [&scale_query(ops, &query), &key, &value];
        let (out, matrix) = self.recurrence.run(ops, inputs, Decay::Vector(&decay), None, state);
        (out, State::new(State::past_len(state) + ops.shape(x)[1], [Some(matrix)]))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
