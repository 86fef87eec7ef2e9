//! Compositional attention: what to search for and what to retrieve, chosen apart.
//!
//! Definition, state and sources: `rung explain compositional`.
//!
//! # Computed as
//! Attention whose values are all retrievals side by side, then a softmax within each token.

use rung_engine::{AttentionInputs, Ops, Role, Rounding, Scalar, AttentionMask};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, grown, number};
use crate::error::ModelError;
use crate::parts::{Linear, join};
use crate::position::{Positions, Rotation, alibi};
use crate::precision::rounded;
use crate::param_builder::ParamBuilder;

/// Sizes of compositional attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompositionalConfig {
    /// Searches.
    pub searches: usize,
    /// Retrievals.
    pub retrievals: usize,
    /// Width of a search.
    pub head: usize,
    /// Width of a retrieval.
    pub value: usize,
}

/// Compositional attention.
pub struct Compositional {
    config: CompositionalConfig,
    query: Linear,
    key: Linear,
    value: Linear,
    demand: Linear,
    offer: Linear,
    output: Linear,
    rotation: Option<Rotation>,
    alibi: bool,
    rounding: Option<Rounding>,
}

impl MixerConfig for CompositionalConfig {
    type Mixer = Compositional;
    const NAME: &'static str = "compositional";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [searches, retrievals] = ["searches", "retrievals"].map(|option| number(mixer, option));
        let [head, value] = ["head", "value"].map(|option| number(mixer, option));
        Ok(Self { searches, retrievals, head, value })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Compositional, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { searches, retrievals, head, value: wide } = *self;
        let (width, positions) = (params.settings.width, params.settings.positions);
        let rotation = Rotation::of_keys(Self::NAME, "width of a search", head, positions)?;
        let [query, key, demand] = [("q_proj", Role::Query), ("k_proj", Role::Key), ("sq_proj", Role::Query)]
            .map(|(name, role)| params.role(role).linear(name, width, searches * head));
        params.tie(&query, &key, searches, searches);
        params.oppose(&key);
        let value = params.role(Role::Value).linear("v_proj", width, retrievals * wide);
        let offer = params.role(Role::Key).linear("sk_proj", wide, head);
        let output = params.role(Role::Output).linear("o_proj", searches * wide, width);
        let (alibi, rounding) = (positions == Positions::Alibi, params.settings.precision.message);
        Ok(Compositional { config: *self, query, key, value, demand, offer, output, rotation, alibi, rounding })
    }
}

impl Compositional {
    /// Keys `[batch, tokens, searches, head]` and values `[batch, tokens, retrievals * value]` after new tokens.
    fn append_to_cache<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> [O::Tensor; 2] {
        let key = self.turned(ops, &self.key.heads(ops, x, self.config.searches), State::seen(state));
        let both = [(0, key), (1, self.value.apply(ops, x))];
        both.map(|(slot, new)| grown(ops, state, slot, &rounded(ops, &new, self.rounding)))
    }

    fn turned<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> O::Tensor {
        self.rotation.as_ref().map_or_else(|| x.clone(), |turn| turn.apply(ops, x, seen))
    }

    /// Every search with every retrieval, `[batch, time, searches, retrievals, value]`.
    fn pairs<O: Ops>(&self, ops: &O, x: &O::Tensor, [key, value]: &[O::Tensor; 2]) -> O::Tensor {
        let CompositionalConfig { searches, retrievals, head, value: width } = self.config;
        let [batch, tokens, all] = ops.shape(value)[..] else { unreachable!("values have three axes") };
        let time = ops.shape(x)[1];
        let query = self.turned(ops, &self.query.heads(ops, x, searches), tokens - time);
        let value = ops.broadcast(&ops.reshape(value, &[batch, tokens, 1, all]), &[batch, tokens, searches, all]);
        let far = self.alibi.then(|| alibi(ops, searches, tokens - time..tokens, 0..tokens, false));
        let (bias, mask, scale) = (far.as_ref(), AttentionMask::Causal, (head as f64).powf(-0.5));
        let read = ops.attention(&AttentionInputs { query: &query, key, value: &value, bias, mask, scale });
        ops.reshape(&read, &[batch, time, searches, retrievals, width])
    }
}

impl TokenMixer for Compositional {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let CompositionalConfig { searches, retrievals, head, value } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let kept = self.append_to_cache(ops, x, state);
        let pairs = self.pairs(ops, x, &kept);
        let demand = ops.scale(&self.demand.apply(ops, x), (head as f64).powf(-0.5));
        let demand = ops.reshape(&demand, &[batch, time, searches, 1, head]);
        let fit = ops.sum(&ops.mul(&self.offer.apply(ops, &pairs), &demand), 4);
        let shares = ops.softmax(&ops.reshape(&fit, &[batch, time, searches, retrievals]));
        let shares = ops.reshape(&shares, &[batch, time, searches, retrievals, 1]);
        let picked = ops.reshape(&ops.sum(&ops.mul(&pairs, &shares), 3), &[batch, time, searches, value]);
        let next = State::new(State::seen(state) + time, kept.map(Some));
        (self.output.apply(ops, &join(ops, &picked)), next)
    }

    /// Keys and values only: no scores.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        State::new(State::seen(state) + ops.shape(x)[1], self.append_to_cache(ops, x, state).map(Some))
    }
}
