//! Evicting attention: softmax attention over a KV cache of fixed size.
//!
//! Definition, state and sources: `rung explain evicting`.
//!
//! # Computed as
//! Span by span: the eviction policy runs first, on token positions or on scores, and yields a mask; then masked
//! softmax.

use rung_engine::{AttentionInputs, AttentionMask, Ops, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::attention::{HeadsConfig, MASKED, MultiHeadAttention, Visibility};
use super::policy::{CachePolicy, PositionPolicy};
use super::{
    AttentionCalls, MixerConfig, State, TokenMixer, append_to_state_tensor, number, reject_alibi, require_causal,
};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::ParamBuilder;
use crate::precision::apply_rounding;

/// Sizes of evicting attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictingAttentionConfig {
    /// Sizes of the heads.
    pub heads: HeadsConfig,
    /// Tokens in the cache.
    pub size: usize,
    /// Which tokens are evicted.
    pub policy: CachePolicy,
}

/// Evicting attention.
pub struct EvictingAttention {
    config: EvictingAttentionConfig,
    heads: MultiHeadAttention,
    chunk: usize,
    rounding: Option<Rounding>,
}

impl MixerConfig for EvictingAttentionConfig {
    type Mixer = EvictingAttention;
    const NAME: &'static str = "evicting";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::window);
    const ATTENTION: AttentionCalls = AttentionCalls::Evicting;

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let size = number(mixer, "size");
        Ok(Self {
            heads: HeadsConfig::resolve(mixer)?,
            size,
            policy: CachePolicy::new(mixer.options().choice("policy"), size),
        })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<EvictingAttention, ModelError> {
        require_causal(Self::NAME, params)?;
        reject_alibi(Self::NAME, params)?;
        let (chunk, rounding) = (params.settings.chunk, params.settings.precision.state);
        let heads = self.heads.init(Self::NAME, params, Visibility::Past, rounding)?;
        Ok(EvictingAttention { config: *self, heads, chunk, rounding })
    }
}

/// The cache contents while a span of new tokens enters it: one row if they are the same for all sequences, else one per sequence.
struct EvictionPlan<S> {
    /// Zero where a new token attends to a cached or new one, [`MASKED`] elsewhere: `[rows, time, cached + time]`.
    mask: Vec<S>,
    /// The tokens in the cache at the end, slot by slot: `[rows, slots]`, as indices into the cached and then the new tokens.
    slots: Vec<usize>,
}

impl<S: Scalar> EvictionPlan<S> {
    /// Adds a row. `insert` puts each new token into the slots, unless the policy drops it.
    fn add_row(&mut self, cached: usize, time: usize, mut insert: impl FnMut(usize, &mut Vec<usize>)) {
        let mut slots: Vec<usize> = (0..cached).collect();
        for token in 0..time {
            insert(token, &mut slots);
            let start = self.mask.len();
            self.mask.resize(start + cached + time, S::from_f64(MASKED));
            for index in &slots {
                self.mask[start + index] = S::ZERO;
            }
        }
        self.slots.extend(slots);
    }
}

/// Puts a token into an occupied slot, or into the next free one.
fn put_token(slots: &mut Vec<usize>, slot: usize, token: usize) {
    if slot == slots.len() {
        slots.push(token);
    } else {
        slots[slot] = token;
    }
}

impl EvictingAttention {
    /// The eviction plan of a policy that uses positions only.
    fn plan_by_position<S: Scalar>(&self, policy: PositionPolicy, past_len: usize, time: usize) -> EvictionPlan<S> {
        let (size, cached) = (self.config.size, past_len.min(self.config.size));
        let mut plan = EvictionPlan { mask: Vec::new(), slots: Vec::new() };
        plan.add_row(cached, time, |token, slots| {
            if let Some(slot) = policy.slot(past_len + token, size) {
                put_token(slots, slot, cached + token);
            }
        });
        plan
    }

    /// The eviction plan of the heavy-hitter policy. `scores` are `[batch, heads, time, cached + time]`; `attention_sums`, `[batch, cached]`, is
    /// the attention that each cached token received so far.
    fn plan_heavy_hitters<S: Scalar>(
        &self,
        [batch, cached, time]: [usize; 3],
        scores: &[S],
        attention_sums: &[S],
    ) -> EvictionPlan<S> {
        let (size, heads, total) = (self.config.size, self.config.heads.heads, cached + time);
        let mut plan = EvictionPlan { mask: Vec::new(), slots: Vec::new() };
        for row in 0..batch {
            let mut received_attention: Vec<f64> =
                attention_sums[row * cached..][..cached].iter().map(|x| x.to_f64()).collect();
            received_attention.resize(total, 0.0);
            plan.add_row(cached, time, |token, slots| {
                let least_attended = (0..slots.len())
                    .min_by(|a, b| received_attention[slots[*a]].total_cmp(&received_attention[slots[*b]]));
                let slot = if slots.len() < size { slots.len() } else { least_attended.unwrap_or(0) };
                put_token(slots, slot, cached + token);
                for head in 0..heads {
                    let scores = &scores[((row * heads + head) * time + token) * total..][..total];
                    let max = slots.iter().map(|index| scores[*index].to_f64()).fold(f64::NEG_INFINITY, f64::max);
                    let exp = |index: usize| (scores[index].to_f64() - max).exp();
                    let sum: f64 = slots.iter().map(|index| exp(*index)).sum();
                    for index in slots.iter() {
                        received_attention[*index] += exp(*index) / sum;
                    }
                }
            });
        }
        plan
    }

    /// Attention under the heavy-hitter policy: the output of every head, the eviction plan, and the attention that each token received,
    /// `[batch, cached + time]`.
    fn attend_heavy_hitters<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        [key, value]: &[O::Tensor; 2],
        attention_sums: Option<&O::Tensor>,
    ) -> (O::Tensor, EvictionPlan<O::Scalar>, O::Tensor) {
        let HeadsConfig { heads, kv_heads, key_dim, value_dim, .. } = self.config.heads;
        let (batch, time, total) = (ops.shape(query)[0], ops.shape(query)[1], ops.shape(key)[1]);
        let group_size = heads / kv_heads;
        let query = ops.reshape(&ops.permute(query, &[0, 2, 1, 3]), &[batch, kv_heads, group_size * time, key_dim]);
        let [key, value] = [key, value].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let scores = ops.scale(&ops.product(&query, false, &key, true), self.config.heads.scale());
        let past_sums = attention_sums.map_or_else(Vec::new, |sums| ops.values(sums));
        let plan = self.plan_heavy_hitters([batch, total - time, time], &ops.values(&scores), &past_sums);
        let mask = ops.constant(&[batch, 1, time, total], &plan.mask);
        let scores = ops.add(&ops.reshape(&scores, &[batch, heads, time, total]), &mask);
        let weights = ops.softmax(&scores);
        let grouped = ops.reshape(&weights, &[batch, kv_heads, group_size * time, total]);
        let head_outputs = ops.reshape(&ops.matmul(&grouped, &value), &[batch, heads, time, value_dim]);
        let received = ops.reshape(&ops.sum(&ops.reshape(&weights, &[batch, heads * time, total]), 1), &[batch, total]);
        let zeros = ops.zeros(&[batch, time]);
        let past_sums =
            attention_sums.map_or_else(|| zeros.clone(), |sums| ops.concat(&[sums.clone(), zeros.clone()], 1));
        (ops.permute(&head_outputs, &[0, 2, 1, 3]), plan, ops.add(&past_sums, &received))
    }

    /// Tokens that are processed at once. The mask is quadratic in them, so a long sequence is processed in spans; and where attention sums
    /// are rounded, it is processed token by token.
    fn span_length(&self) -> usize {
        let token_by_token = self.config.policy == CachePolicy::HeavyHitters && self.rounding.is_some();
        if token_by_token { 1 } else { self.chunk.max(self.config.size) }
    }

    /// Runs [`forward`](TokenMixer::forward) on one span after another.
    fn forward_in_spans<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (mut outs, mut last) = (Vec::new(), state.cloned());
        let time = ops.shape(x)[1];
        for start in (0..time).step_by(self.span_length()) {
            let span = ops.slice(x, 1, start..time.min(start + self.span_length()));
            let (out, next_state) = self.forward(ops, &span, last.as_ref());
            outs.push(out);
            last = Some(next_state);
        }
        (ops.concat(&outs, 1), last.expect("at least one token"))
    }
}

impl TokenMixer for EvictingAttention {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (batch, time, past_len) = (ops.shape(x)[0], ops.shape(x)[1], State::past_len(state));
        if time > self.span_length() {
            return self.forward_in_spans(ops, x, state);
        }
        let query_heads = self.heads.query_heads();
        let query = query_heads.project_query(ops, x, past_len);
        let (key, value) = self.heads.project_kv(ops, x, past_len);
        let value = value.expect("keys and values are not tied");
        let key_value = [(0, key), (1, value)].map(|(index, new)| append_to_state_tensor(ops, state, index, &new));
        let total = ops.shape(&key_value[0])[1];
        let (head_outputs, plan, attention_sums) = match self.config.policy {
            CachePolicy::HeavyHitters => {
                let (head_outputs, plan, sums) =
                    self.attend_heavy_hitters(ops, &query, &key_value, State::tensor(state, 2));
                (head_outputs, plan, Some(apply_rounding(ops, &sums, self.rounding)))
            }
            CachePolicy::ByPosition(policy) => {
                let plan = self.plan_by_position(policy, past_len, time);
                let mask = ops.constant(&[1, 1, time, total], &plan.mask);
                let (bias, mask, scale) = (Some(&mask), AttentionMask::Causal, self.config.heads.scale());
                let [key, value] = &key_value;
                (ops.attention(&AttentionInputs { query: &query, key, value, bias, mask, scale }), plan, None)
            }
        };
        let cached = (past_len + time).min(self.config.size);
        let rows: Vec<usize> =
            (0..batch * cached).map(|index| index / cached * total + plan.slots[index % plan.slots.len()]).collect();
        let evict = |x: &O::Tensor| {
            let mut shape = ops.shape(x).to_vec();
            let flat = ops.reshape(x, &[batch * total, shape[2..].iter().product()]);
            shape[1] = cached;
            ops.reshape(&ops.gather_rows(&flat, &rows), &shape)
        };
        let [key, value] = &key_value;
        let next_state =
            State::new(past_len + time, [Some(evict(key)), Some(evict(value)), attention_sums.as_ref().map(evict)]);
        (query_heads.project_output(ops, x, &head_outputs), next_state)
    }
}
