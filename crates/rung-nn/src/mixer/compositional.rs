//! Compositional attention: searches (query-key heads) and retrievals (value heads) are paired by a second softmax.
//!
//! Definition, state and sources: `rung explain compositional`.
//!
//! # Computed as
//! Attention whose values are all retrievals concatenated, then for each search a softmax over retrievals.

use rung_engine::{AttentionInputs, AttentionMask, Ops, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, append_to_state_tensor, number, require_causal};
use crate::error::ModelError;
use crate::param_builder::ParamBuilder;
use crate::position::{Positions, Rotation, alibi_bias, apply_rope};
use crate::precision::apply_rounding;
use crate::submodules::{Linear, merge_heads};

/// Sizes of compositional attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompositionalConfig {
    /// Number of searches: query-key heads.
    pub searches: usize,
    /// Number of retrievals: value heads.
    pub retrievals: usize,
    /// Width of a search's queries and keys.
    pub head_dim: usize,
    /// Width of a retrieval's values.
    pub value_dim: usize,
}

/// Compositional attention.
pub struct Compositional {
    config: CompositionalConfig,
    query: Linear,
    key: Linear,
    value: Linear,
    /// Queries over retrievals.
    retrieval_query: Linear,
    /// Keys of the retrieved vectors.
    retrieval_key: Linear,
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
        let [head_dim, value_dim] = ["head", "value"].map(|option| number(mixer, option));
        Ok(Self { searches, retrievals, head_dim, value_dim })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Compositional, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { searches, retrievals, head_dim, value_dim } = *self;
        let (width, positions) = (params.settings.width, params.settings.positions);
        let rotation = Rotation::for_keys(Self::NAME, "width of a search", head_dim, positions)?;
        let [query, key, retrieval_query] = [("q_proj", Role::Query), ("k_proj", Role::Key), ("sq_proj", Role::Query)]
            .map(|(name, role)| params.role(role).linear(name, width, searches * head_dim));
        params.copy_query_to_key(&query, &key, searches, searches);
        params.negate_key(&key);
        let value = params.role(Role::Value).linear("v_proj", width, retrievals * value_dim);
        let retrieval_key = params.role(Role::Key).linear("sk_proj", value_dim, head_dim);
        let output = params.role(Role::Output).linear("o_proj", searches * value_dim, width);
        let (alibi, rounding) = (positions == Positions::Alibi, params.settings.precision.message);
        Ok(Compositional {
            config: *self,
            query,
            key,
            value,
            retrieval_query,
            retrieval_key,
            output,
            rotation,
            alibi,
            rounding,
        })
    }
}

impl Compositional {
    /// Keys `[batch, tokens, searches, head]` and values `[batch, tokens, retrievals * value]` of all tokens, the new ones included.
    fn append_to_cache<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> [O::Tensor; 2] {
        let key =
            self.apply_rope(ops, &self.key.apply_and_split_heads(ops, x, self.config.searches), State::past_len(state));
        let new_entries = [(0, key), (1, self.value.apply(ops, x))];
        new_entries
            .map(|(index, new)| append_to_state_tensor(ops, state, index, &apply_rounding(ops, &new, self.rounding)))
    }

    fn apply_rope<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> O::Tensor {
        apply_rope(ops, self.rotation.as_ref(), x, past_len)
    }

    /// The output of every search on every retrieval's values, `[batch, query_len, searches, retrievals, value]`.
    fn search_all_retrievals<O: Ops>(&self, ops: &O, x: &O::Tensor, [key, value]: &[O::Tensor; 2]) -> O::Tensor {
        let CompositionalConfig { searches, retrievals, head_dim, value_dim } = self.config;
        let [batch, kv_len, channels] = ops.shape(value)[..] else { unreachable!("values have three axes") };
        let query_len = ops.shape(x)[1];
        let query = self.apply_rope(ops, &self.query.apply_and_split_heads(ops, x, searches), kv_len - query_len);
        let value =
            ops.broadcast(&ops.reshape(value, &[batch, kv_len, 1, channels]), &[batch, kv_len, searches, channels]);
        let alibi = self.alibi.then(|| alibi_bias(ops, searches, kv_len - query_len..kv_len, 0..kv_len, false));
        let (bias, mask, scale) = (alibi.as_ref(), AttentionMask::Causal, (head_dim as f64).powf(-0.5));
        let retrieved = ops.attention(&AttentionInputs { query: &query, key, value: &value, bias, mask, scale });
        ops.reshape(&retrieved, &[batch, query_len, searches, retrievals, value_dim])
    }
}

impl TokenMixer for Compositional {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let CompositionalConfig { searches, retrievals, head_dim, value_dim } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let cache = self.append_to_cache(ops, x, state);
        let candidates = self.search_all_retrievals(ops, x, &cache);
        let retrieval_query = ops.scale(&self.retrieval_query.apply(ops, x), (head_dim as f64).powf(-0.5));
        let retrieval_query = ops.reshape(&retrieval_query, &[batch, time, searches, 1, head_dim]);
        let scores = ops.sum(&ops.mul(&self.retrieval_key.apply(ops, &candidates), &retrieval_query), 4);
        let weights = ops.softmax(&ops.reshape(&scores, &[batch, time, searches, retrievals]));
        let weights = ops.reshape(&weights, &[batch, time, searches, retrievals, 1]);
        let out = ops.reshape(&ops.sum(&ops.mul(&candidates, &weights), 3), &[batch, time, searches, value_dim]);
        let next_state = State::new(State::past_len(state) + time, cache.map(Some));
        (self.output.apply(ops, &merge_heads(ops, &out)), next_state)
    }

    /// Appends to the KV cache without computing attention.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        State::new(State::past_len(state) + ops.shape(x)[1], self.append_to_cache(ops, x, state).map(Some))
    }
}
