//! Multi-head latent attention: keys and values of all heads are up-projections of one small latent vector per token.
//!
//! Definition, state and sources: `rung explain mla`.
//!
//! # Computed as
//! Keys and values are expanded from the latents for ordinary attention. For a few queries it is cheaper to absorb `W_k` and
//! `W_v`: the query becomes `[W_k' q; q_r]`, attention runs over the latents themselves, and `W_v` is applied to its output.

use rung_engine::{
    AttentionInputs, AttentionMask, BlockAttention, BlockChoice, Ops, Parameter, Role, Rounding, Scalar,
};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, append_to_state_tensor, number, require_causal};
use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::position::{Positions, Rotation, alibi_bias, alibi_slope, apply_rope};
use crate::precision::apply_rounding;
use crate::submodules::{Linear, NormGain, merge_heads, per_head_matmul, split_heads};

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of the part of a key that is expanded from the latent, without position (NoPE).
    pub nope_dim: usize,
    /// Width of the latent vector cached per token.
    pub latent_dim: usize,
    /// Width of the rotary key that all heads share; 0 for none.
    pub rope_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Rank of the query projection; 0 for full rank.
    pub query_rank: usize,
}

/// Latent attention.
pub struct Latent {
    config: LatentConfig,
    /// Down-projection of the query and its norm, if the query has a rank.
    query_down: Option<(Linear, NormGain)>,
    query: Linear,
    /// Down-projection to the latent and the shared rotary key.
    kv_down: Linear,
    norm: NormGain,
    /// Up-projection, `[heads * (nope_dim + value_dim), latent_dim]`: for every head the rows of its key, then of its value.
    kv_up: Parameter,
    output: Linear,
    rotation: Option<Rotation>,
    /// Scale of the attention scores.
    scale: f64,
    alibi: bool,
    rounding: Option<Rounding>,
}

/// The weights of latent attention, as read from a checkpoint.
pub(crate) struct LatentWeights {
    /// Down-projection of the query and its norm, if the query has a rank.
    pub(crate) query_down: Option<(Linear, NormGain)>,
    /// Projection to the queries of all heads.
    pub(crate) query: Linear,
    /// Down-projection to the latent and the shared rotary key.
    pub(crate) kv_down: Linear,
    /// Norm of the latent.
    pub(crate) norm: NormGain,
    /// Up-projection, `[heads * (nope_dim + value_dim), latent_dim]`: for every head the rows of its key, then of its value.
    pub(crate) kv_up: Parameter,
    /// Projection back to the residual stream.
    pub(crate) output: Linear,
    /// Rotation of the shared keys and their queries.
    pub(crate) rotation: Option<Rotation>,
    /// Factor on the usual scale of the attention scores.
    pub(crate) factor: f64,
}

/// Epsilon of the norms of latents and of down-projected queries.
const EPSILON: f64 = 1e-6;

/// The cache: latents `[batch, tokens, latent_dim]`, and rotary keys `[batch, tokens, rope_dim]` if there are any.
pub(super) struct LatentCache<T> {
    latent: T,
    rope_key: Option<T>,
}

/// Queries with the keys and values they attend to: expanded for each head, or the latents themselves if `absorbed`.
pub(super) struct AttentionOperands<T> {
    pub(super) query: T,
    pub(super) key: T,
    pub(super) value: T,
    pub(super) absorbed: bool,
}

impl LatentConfig {
    pub(super) fn from_options(mixer: &Mixer) -> Self {
        let [heads, nope_dim, latent_dim] = ["heads", "head", "latent"].map(|option| number(mixer, option));
        let [rope_dim, value_dim, query_rank] = ["rope", "value", "query-rank"].map(|option| number(mixer, option));
        Self { heads, nope_dim, latent_dim, rope_dim, value_dim, query_rank }
    }

    /// Attention whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: LatentWeights) -> Latent {
        let LatentWeights { query_down, query, kv_down, norm, kv_up, output, rotation, factor } = weights;
        let scale = factor * self.scale();
        let (config, alibi, rounding) = (self, false, None);
        Latent { config, query_down, query, kv_down, norm, kv_up, output, rotation, scale, alibi, rounding }
    }

    /// One over the root of the key width.
    fn scale(self) -> f64 {
        ((self.nope_dim + self.rope_dim) as f64).powf(-0.5)
    }

    /// Adds the weights; `name` is the mixer's name in errors.
    pub(super) fn init_as<S: Scalar>(
        self,
        name: &'static str,
        params: &mut ParamBuilder<'_, S>,
    ) -> Result<Latent, ModelError> {
        require_causal(name, params)?;
        let Self { heads, nope_dim, latent_dim, rope_dim, value_dim, query_rank } = self;
        let width = params.settings.width;
        let rotation = Rotation::for_keys(name, "width of the rotary key", rope_dim, params.settings.positions)?;
        let (query_down, query) = if query_rank == 0 {
            (None, params.role(Role::Query).linear("q_proj", width, heads * (nope_dim + rope_dim)))
        } else {
            let down = (params.linear("q_a_proj", width, query_rank), params.gain("q_a_layernorm", query_rank));
            (Some(down), params.linear("q_b_proj", query_rank, heads * (nope_dim + rope_dim)))
        };
        let kv_down = params.linear("kv_a_proj_with_mqa", width, latent_dim + rope_dim);
        let norm = params.gain("kv_a_layernorm", latent_dim);
        let init = Init::Normal(params.settings.init_std);
        let kv_up = params.weight("kv_b_proj.weight", &[heads * (nope_dim + value_dim), latent_dim], init);
        let output = params.role(Role::Output).linear("o_proj", heads * value_dim, width);
        let alibi = params.settings.positions == Positions::Alibi;
        let rounding = params.settings.precision.message;
        let scale = self.scale();
        Ok(Latent { config: self, query_down, query, kv_down, norm, kv_up, output, rotation, scale, alibi, rounding })
    }
}

impl MixerConfig for LatentConfig {
    type Mixer = Latent;
    const NAME: &'static str = "mla";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self::from_options(mixer))
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Latent, ModelError> {
        self.init_as(Self::NAME, params)
    }
}

impl Latent {
    /// Appends the latents and rotary keys of a span to the cache, which is in the first two tensors of the state.
    pub(super) fn append_to_cache<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (LatentCache<O::Tensor>, State<O::Tensor>) {
        let LatentConfig { latent_dim, rope_dim, .. } = self.config;
        let (past_len, time) = (State::past_len(state), ops.shape(x)[1]);
        let projected = self.kv_down.apply(ops, x);
        let append = |index: usize, new: &O::Tensor| {
            append_to_state_tensor(ops, state, index, &apply_rounding(ops, new, self.rounding))
        };
        let rope_key = (rope_dim > 0).then(|| {
            let key = ops.slice(&projected, 2, latent_dim..latent_dim + rope_dim);
            append(1, &merge_heads(ops, &self.apply_rope(ops, &split_heads(ops, &key, 1), past_len)))
        });
        let latent = append(0, &self.norm.norm_with_epsilon(ops, &ops.slice(&projected, 2, 0..latent_dim), EPSILON));
        let next_state = State::new(past_len + time, [Some(latent.clone()), rope_key.clone()]);
        (LatentCache { latent, rope_key }, next_state)
    }

    /// The input of the query projection: the token, or its normed down-projection.
    pub(super) fn query_input<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let Some((down, norm)) = &self.query_down else { return x.clone() };
        norm.norm_with_epsilon(ops, &down.apply(ops, x), EPSILON)
    }

    /// Queries of a span whose first token is at position `past_len`: the NoPE part for expanded keys, and the rotated part for shared keys.
    pub(super) fn project_query<O: Ops>(&self, ops: &O, query_input: &O::Tensor, past_len: usize) -> [O::Tensor; 2] {
        let LatentConfig { heads, nope_dim, rope_dim, .. } = self.config;
        let query = self.query.apply_and_split_heads(ops, query_input, heads);
        let nope_query = ops.slice(&query, 3, 0..nope_dim);
        [nope_query, self.apply_rope(ops, &ops.slice(&query, 3, nope_dim..nope_dim + rope_dim), past_len)]
    }

    /// Keys `[batch, tokens, heads, nope_dim + rope_dim]` and values `[batch, tokens, heads, value_dim]`.
    fn expand_cache<O: Ops>(&self, ops: &O, cache: &LatentCache<O::Tensor>) -> [O::Tensor; 2] {
        let LatentConfig { heads, nope_dim, value_dim, .. } = self.config;
        let key_value = split_heads(ops, &ops.linear(&cache.latent, &ops.parameter(self.kv_up), None), heads);
        let key = ops.slice(&key_value, 3, 0..nope_dim);
        let key = match &cache.rope_key {
            None => key,
            Some(rope_key) => {
                let [batch, tokens, rope_dim] = ops.shape(rope_key)[..] else { unreachable!("cached with three axes") };
                let rope_key = ops.reshape(rope_key, &[batch, tokens, 1, rope_dim]);
                ops.concat(&[key, ops.broadcast(&rope_key, &[batch, tokens, heads, rope_dim])], 3)
            }
        };
        [key, ops.slice(&key_value, 3, nope_dim..nope_dim + value_dim)]
    }

    /// Attention weights `[batch, heads, time, time]` of a complete sequence, under a mask that also hides later tokens.
    pub(super) fn attention_weights<O: Ops>(&self, ops: &O, x: &O::Tensor, mask: &O::Tensor) -> O::Tensor {
        let cache = self.append_to_cache(ops, x, None).0;
        let query = ops.concat(&self.project_query(ops, &self.query_input(ops, x), 0), 3);
        let [query, key] = [&query, &self.expand_cache(ops, &cache)[0]].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let scores = ops.scale(&ops.product(&query, false, &key, true), self.scale);
        let bias = self.bias(ops, [ops.shape(x)[1]; 2], Some(mask));
        ops.softmax(&bias.map_or_else(|| scores.clone(), |bias| ops.add(&scores, &bias)))
    }

    /// The bias on the scores of the last `time` of `tokens` tokens: ALiBi and the mask, where there are any.
    fn bias<O: Ops>(&self, ops: &O, [time, tokens]: [usize; 2], mask: Option<&O::Tensor>) -> Option<O::Tensor> {
        let alibi = self.alibi.then(|| alibi_bias(ops, self.config.heads, tokens - time..tokens, 0..tokens, false));
        match (alibi, mask) {
            (Some(alibi), Some(mask)) => Some(ops.add(&alibi, mask)),
            (alibi, mask) => alibi.or(mask.cloned()),
        }
    }

    /// Queries with the keys and values that they attend to, in the cheaper of the two forms.
    pub(super) fn attention_operands<O: Ops>(
        &self,
        ops: &O,
        [nope_query, rope_query]: [O::Tensor; 2],
        cache: &LatentCache<O::Tensor>,
    ) -> AttentionOperands<O::Tensor> {
        let LatentConfig { heads, nope_dim, latent_dim, value_dim, .. } = self.config;
        let time = ops.shape(&nope_query)[1];
        // Attention over latents costs each query about `2 * latent_dim` per token and head; expanding them costs
        // `latent_dim * (nope_dim + value_dim)` once.
        if 2 * time >= nope_dim + value_dim {
            let [key, value] = self.expand_cache(ops, cache);
            return AttentionOperands { query: ops.concat(&[nope_query, rope_query], 3), key, value, absorbed: false };
        }
        let weight = ops.reshape(&ops.parameter(self.kv_up), &[heads, nope_dim + value_dim, latent_dim]);
        let query = per_head_matmul(ops, &nope_query, &ops.slice(&weight, 1, 0..nope_dim), false);
        let key_tensors = [Some(&cache.latent), cache.rope_key.as_ref()].into_iter().flatten().cloned();
        let key = ops.concat(&key_tensors.collect::<Vec<O::Tensor>>(), 2);
        let [key, value] = [&key, &cache.latent].map(|x| split_heads(ops, x, 1));
        AttentionOperands { query: ops.concat(&[query, rope_query], 3), key, value, absorbed: true }
    }

    /// Causal attention of queries at the last positions of the keys, under a mask if there is one.
    pub(super) fn attend<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        mask: Option<&O::Tensor>,
    ) -> O::Tensor {
        let bias = self.bias(ops, [ops.shape(query)[1], ops.shape(key)[1]], mask);
        let (bias, mask, scale) = (bias.as_ref(), AttentionMask::Causal, self.scale);
        ops.attention(&AttentionInputs { query, key, value, bias, mask, scale })
    }

    /// Attention of queries at the last positions of the keys to the chosen tokens.
    pub(super) fn attend_to_tokens<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        choice: &BlockChoice,
    ) -> O::Tensor {
        let (query, key) = if self.alibi { self.append_alibi(ops, query, key) } else { (query.clone(), key.clone()) };
        ops.block_attention(&BlockAttention { query: &query, key: &key, value, choice, scale: self.scale })
    }

    /// ALiBi as one more channel: a key's is its position, a query's the slope of its head. So scores rise with the key's position. By how
    /// much they fall with the query's is the same for all keys, and the softmax does not depend on it.
    fn append_alibi<O: Ops>(&self, ops: &O, query: &O::Tensor, key: &O::Tensor) -> (O::Tensor, O::Tensor) {
        let append = |x: &O::Tensor, shape: [usize; 4], channel: &mut dyn Iterator<Item = f64>| {
            let channel: Vec<O::Scalar> = channel.map(O::Scalar::from_f64).collect();
            let [batch, tokens, heads, _] = ops.shape(x)[..] else { unreachable!("heads have four axes") };
            let channel = ops.broadcast(&ops.constant(&shape, &channel), &[batch, tokens, heads, 1]);
            ops.concat(&[x.clone(), channel], 3)
        };
        let (heads, keys) = (self.config.heads, ops.shape(key)[1]);
        let mut slopes = (0..heads).map(|head| alibi_slope(head, heads) / self.scale);
        let mut positions = (0..keys).map(|position| position as f64 + 1.0 - keys as f64);
        (append(query, [1, 1, heads, 1], &mut slopes), append(key, [1, keys, 1, 1], &mut positions))
    }

    /// Applies the output projection to the attention output of every head, after `W_v` where it was absorbed.
    pub(super) fn project_output<O: Ops>(&self, ops: &O, head_outputs: &O::Tensor, absorbed: bool) -> O::Tensor {
        let LatentConfig { heads, nope_dim, latent_dim, value_dim, .. } = self.config;
        if !absorbed {
            return self.output.apply(ops, &merge_heads(ops, head_outputs));
        }
        let weight = ops.reshape(&ops.parameter(self.kv_up), &[heads, nope_dim + value_dim, latent_dim]);
        let values = per_head_matmul(ops, head_outputs, &ops.slice(&weight, 1, nope_dim..nope_dim + value_dim), true);
        self.output.apply(ops, &merge_heads(ops, &values))
    }

    fn apply_rope<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> O::Tensor {
        apply_rope(ops, self.rotation.as_ref(), x, past_len)
    }
}

impl TokenMixer for Latent {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (cache, next_state) = self.append_to_cache(ops, x, state);
        let query = self.project_query(ops, &self.query_input(ops, x), State::past_len(state));
        let operands = self.attention_operands(ops, query, &cache);
        let head_outputs = self.attend(ops, [&operands.query, &operands.key, &operands.value], None);
        (self.project_output(ops, &head_outputs, operands.absorbed), next_state)
    }

    /// Appends to the cache without computing attention.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        self.append_to_cache(ops, x, state).1
    }
}
