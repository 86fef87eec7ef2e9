//! Evicting attention: softmax over what a cache of fixed size kept.
//!
//! Definition, state and sources: `rung explain evicting`.
//!
//! # Computed as
//! Span by span, the policy runs ahead, over numbers of tokens or over scores, and leaves a mask; then masked
//! softmax.

use rung_engine::{AttentionInputs, Ops, Rounding, Scalar, AttentionMask};
use rung_theory::stack::Mixer;

use super::attention::{MultiHeadAttention, HeadsConfig, MASKED, Visibility};
use super::policy::{CachePolicy, PositionPolicy};
use super::{MixerConfig, State, TokenMixer, causal_only, grown, number, without_alibi};
use crate::error::ModelError;
use crate::precision::rounded;
use crate::param_builder::ParamBuilder;

/// Sizes of evicting attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictingAttentionConfig {
    /// The heads.
    pub heads: HeadsConfig,
    /// Tokens kept.
    pub size: usize,
    /// Which.
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

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let size = number(mixer, "size");
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, size, policy: CachePolicy::new(mixer.options().choice("policy"), size) })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<EvictingAttention, ModelError> {
        causal_only(Self::NAME, params)?;
        without_alibi(Self::NAME, params)?;
        let (chunk, rounding) = (params.settings.chunk, params.settings.precision.state);
        let heads = self.heads.init(Self::NAME, params, Visibility::Past, rounding)?;
        Ok(EvictingAttention { config: *self, heads, chunk, rounding })
    }
}

/// What became of new tokens that follow a cache: one row if all sequences go alike, else one for each.
struct EvictionPlan<S> {
    /// Zero where a new token reads a cached or new one, very low elsewhere: `[rows, time, held + time]`.
    mask: Vec<S>,
    /// The tokens in the cache at the end, slot by slot: `[rows, slots]`, counted from the first that was cached.
    slots: Vec<usize>,
}

impl<S: Scalar> EvictionPlan<S> {
    /// Adds a row. `enter` puts each new token into the slots, if it is kept.
    fn run(&mut self, held: usize, time: usize, mut enter: impl FnMut(usize, &mut Vec<usize>)) {
        let mut slots: Vec<usize> = (0..held).collect();
        for token in 0..time {
            enter(token, &mut slots);
            let start = self.mask.len();
            self.mask.resize(start + held + time, S::from_f64(MASKED));
            for place in &slots {
                self.mask[start + place] = S::ZERO;
            }
        }
        self.slots.extend(slots);
    }
}

/// Puts a token into a slot: one that is taken, or the next.
fn put(slots: &mut Vec<usize>, slot: usize, token: usize) {
    if slot == slots.len() {
        slots.push(token);
    } else {
        slots[slot] = token;
    }
}

impl EvictingAttention {
    /// The course of tokens whose numbers decide.
    fn by_position<S: Scalar>(&self, policy: PositionPolicy, seen: usize, time: usize) -> EvictionPlan<S> {
        let (size, held) = (self.config.size, seen.min(self.config.size));
        let mut course = EvictionPlan { mask: Vec::new(), slots: Vec::new() };
        course.run(held, time, |token, slots| {
            if let Some(slot) = policy.slot(seen + token, size) {
                put(slots, slot, held + token);
            }
        });
        course
    }

    /// The course of tokens whose scores `[batch, heads, time, held + time]` decide, after those that are held were read as much as
    /// `mass`, `[batch, held]`, says.
    fn heavy<S: Scalar>(&self, [batch, held, time]: [usize; 3], scores: &[S], mass: &[S]) -> EvictionPlan<S> {
        let (size, heads, all) = (self.config.size, self.config.heads.heads, held + time);
        let mut course = EvictionPlan { mask: Vec::new(), slots: Vec::new() };
        for row in 0..batch {
            let mut read: Vec<f64> = mass[row * held..][..held].iter().map(|x| x.to_f64()).collect();
            read.resize(all, 0.0);
            course.run(held, time, |token, slots| {
                let lightest = (0..slots.len()).min_by(|a, b| read[slots[*a]].total_cmp(&read[slots[*b]]));
                let slot = if slots.len() < size { slots.len() } else { lightest.unwrap_or(0) };
                put(slots, slot, held + token);
                for head in 0..heads {
                    let scores = &scores[((row * heads + head) * time + token) * all..][..all];
                    let top = slots.iter().map(|place| scores[*place].to_f64()).fold(f64::NEG_INFINITY, f64::max);
                    let raised = |place: usize| (scores[place].to_f64() - top).exp();
                    let sum: f64 = slots.iter().map(|place| raised(*place)).sum();
                    for place in slots.iter() {
                        read[*place] += raised(*place) / sum;
                    }
                }
            });
        }
        course
    }

    /// What the heads read under the heavy-hitter policy, the course, and how much each token was read, `[batch, held + time]`.
    fn weigh<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        [key, value]: &[O::Tensor; 2],
        mass: Option<&O::Tensor>,
    ) -> (O::Tensor, EvictionPlan<O::Scalar>, O::Tensor) {
        let HeadsConfig { heads, kv_heads, key: width, value: value_width, .. } = self.config.heads;
        let (batch, time, all) = (ops.shape(query)[0], ops.shape(query)[1], ops.shape(key)[1]);
        let shared = heads / kv_heads;
        let query = ops.reshape(&ops.permute(query, &[0, 2, 1, 3]), &[batch, kv_heads, shared * time, width]);
        let [key, value] = [key, value].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let scores = ops.scale(&ops.product(&query, false, &key, true), self.config.heads.scale());
        let before = mass.map_or_else(Vec::new, |mass| ops.values(mass));
        let course = self.heavy([batch, all - time, time], &ops.values(&scores), &before);
        let hidden = ops.constant(&[batch, 1, time, all], &course.mask);
        let scores = ops.add(&ops.reshape(&scores, &[batch, heads, time, all]), &hidden);
        let weights = ops.softmax(&scores);
        let grouped = ops.reshape(&weights, &[batch, kv_heads, shared * time, all]);
        let read = ops.reshape(&ops.matmul(&grouped, &value), &[batch, heads, time, value_width]);
        let got = ops.reshape(&ops.sum(&ops.reshape(&weights, &[batch, heads * time, all]), 1), &[batch, all]);
        let fresh = ops.zeros(&[batch, time]);
        let before = mass.map_or_else(|| fresh.clone(), |mass| ops.concat(&[mass.clone(), fresh.clone()], 1));
        (ops.permute(&read, &[0, 2, 1, 3]), course, ops.add(&before, &got))
    }

    /// Tokens that are worked on at once. A mask has a cell for each pair of them, so that a long sequence is processed in spans; and where
    /// sums are kept in few bits, they are rounded after each token.
    fn span_length(&self) -> usize {
        let one_by_one = self.config.policy == CachePolicy::HeavyHitters && self.rounding.is_some();
        if one_by_one { 1 } else { self.chunk.max(self.config.size) }
    }

    /// One span after another.
    fn forward_in_spans<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (mut outs, mut last) = (Vec::new(), state.cloned());
        let time = ops.shape(x)[1];
        for start in (0..time).step_by(self.span_length()) {
            let part = ops.slice(x, 1, start..time.min(start + self.span_length()));
            let (out, next) = self.forward(ops, &part, last.as_ref());
            outs.push(out);
            last = Some(next);
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
        let (batch, time, seen) = (ops.shape(x)[0], ops.shape(x)[1], State::seen(state));
        if time > self.span_length() {
            return self.forward_in_spans(ops, x, state);
        }
        let reader = self.heads.reader();
        let query = reader.project_query(ops, x, seen);
        let (key, value) = self.heads.made(ops, x, seen);
        let value = value.expect("keys are not values here");
        let both = [(0, key), (1, value)].map(|(slot, new)| grown(ops, state, slot, &new));
        let all = ops.shape(&both[0])[1];
        let (read, course, mass) = match self.config.policy {
            CachePolicy::HeavyHitters => {
                let (read, course, mass) = self.weigh(ops, &query, &both, State::part(state, 2));
                (read, course, Some(rounded(ops, &mass, self.rounding)))
            }
            CachePolicy::ByPosition(policy) => {
                let course = self.by_position(policy, seen, time);
                let mask = ops.constant(&[1, 1, time, all], &course.mask);
                let (bias, mask, scale) = (Some(&mask), AttentionMask::Causal, self.config.heads.scale());
                let [key, value] = &both;
                (ops.attention(&AttentionInputs { query: &query, key, value, bias, mask, scale }), course, None)
            }
        };
        let held = (seen + time).min(self.config.size);
        let rows: Vec<usize> =
            (0..batch * held).map(|cell| cell / held * all + course.slots[cell % course.slots.len()]).collect();
        let kept = |x: &O::Tensor| {
            let mut shape = ops.shape(x).to_vec();
            let flat = ops.reshape(x, &[batch * all, shape[2..].iter().product()]);
            shape[1] = held;
            ops.reshape(&ops.gather_rows(&flat, &rows), &shape)
        };
        let next = State::new(seen + time, [Some(kept(&both[0])), Some(kept(&both[1])), mass.as_ref().map(kept)]);
        (reader.project_output(ops, x, &read), next)
    }
}
