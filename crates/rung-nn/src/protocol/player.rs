//! The attention of one player, which knows its own tokens and the messages it received.
//!
//! A player runs the ordinary model on its tokens, with two differences. Softmax is computed online, from left to right, in an
//! accumulator (the largest score so far, the sum of weights, the weighted sum of values), as in the theory. And the tokens before the
//! player's first one are known only through messages: accumulators for every query of a full-attention layer, states for the others.
//!
//! Numbers that are rounded to evenly spaced levels have a range, and scores may lie far outside it. Then the message is another
//! function that the theory allows: the log-odds of the earlier tokens against the player's own, and the mean of the earlier values.
//! Log-odds beyond the range mean a weight of nearly 0 or 1, so that clipping them changes little.

use std::cell::{Cell, RefCell};

use rung_engine::{AttentionInputs, Native, Ops, Scalar, Tensor};
use rung_theory::stack::Plan;

use super::encoding::{BitString, NumberEncoding};
use crate::model::names;
use crate::observer::OpInterceptor;

/// Where the accumulators over earlier tokens come from, in full-attention layers.
pub(super) enum AccumulatorSource {
    /// Computed from the cached keys and values of all earlier tokens, and recorded as messages.
    Cache,
    /// Read from messages, in the order of attention calls. Nothing of the earlier tokens is cached.
    Messages(Vec<BitString>),
}

/// An interceptor that computes full attention by online softmax, and records or reads the accumulators that cross between players.
pub(super) struct PlayerAttention {
    /// For every layer, whether each of its attention calls is full attention (and not a window).
    is_full: Vec<Vec<bool>>,
    /// Tokens before the player's first.
    earlier_tokens: Cell<usize>,
    source: RefCell<AccumulatorSource>,
    /// Messages that the player received, with layer and attention call.
    messages: RefCell<Vec<(usize, usize, BitString)>>,
    encoding: NumberEncoding,
    current_layer: Cell<usize>,
    /// Index of the next attention call of the layer.
    next_call: Cell<usize>,
}

impl PlayerAttention {
    pub(super) fn new(plan: &Plan, encoding: NumberEncoding) -> Self {
        let full_calls = |layer: &rung_theory::stack::Layer| {
            let attention = layer.mixers.iter().filter(|mixer| ["full", "window"].contains(&mixer.name()));
            attention.map(|mixer| mixer.name() == "full").collect()
        };
        Self {
            is_full: plan.layers.iter().map(full_calls).collect(),
            earlier_tokens: Cell::new(0),
            source: RefCell::new(AccumulatorSource::Cache),
            messages: RefCell::default(),
            encoding,
            current_layer: Cell::new(0),
            next_call: Cell::new(0),
        }
    }

    /// Starts the next player; `earlier_tokens` is the number of tokens before its first one.
    pub(super) fn start_player(&self, earlier_tokens: usize, source: AccumulatorSource) {
        self.earlier_tokens.set(earlier_tokens);
        *self.source.borrow_mut() = source;
    }

    /// Takes the messages that the player received, each with layer and attention call.
    pub(super) fn take_messages(&self) -> Vec<(usize, usize, BitString)> {
        self.messages.take()
    }

    /// The numbers of the next message about earlier tokens, after encoding and decoding; `None` if there are no earlier tokens.
    /// `compute` gives the numbers if the earlier tokens are cached.
    fn receive<S: Scalar>(&self, compute: impl FnOnce() -> Vec<S>) -> Option<Vec<S>> {
        if self.earlier_tokens.get() == 0 {
            return None;
        }
        let bits = match &mut *self.source.borrow_mut() {
            AccumulatorSource::Messages(messages) if !messages.is_empty() => messages.remove(0),
            AccumulatorSource::Messages(_) => return None,
            AccumulatorSource::Cache => BitString::pack(&compute(), self.encoding),
        };
        let numbers = bits.unpack(self.encoding);
        self.messages.borrow_mut().push((self.current_layer.get(), self.next_call.get(), bits));
        Some(numbers)
    }

    /// Attention that continues the accumulators of earlier tokens.
    fn attend_from_accumulators<S: Scalar>(&self, tensors: &AttentionTensors<S>) -> Vec<S> {
        let earlier_count = tensors.key_count - tensors.query_count;
        let received_elements = self.receive(|| {
            tensors.map_heads(|query, head| {
                let mut accumulator = tensors.accumulate(tensors.empty_accumulator(), query, head, 0..earlier_count);
                round_accumulator(&mut accumulator, self.encoding);
                accumulator
            })
        });
        tensors.map_heads(|query, head| {
            let size = tensors.value_width + 2;
            let initial =
                received_elements.as_ref().map(|numbers| tensors.head_slice(numbers, query, head, size).to_vec());
            let initial = initial.unwrap_or_else(|| tensors.empty_accumulator());
            let accumulator = tensors.accumulate(initial, query, head, earlier_count..=earlier_count + query);
            accumulator[2..].iter().map(|value| *value / accumulator[1]).collect()
        })
    }

    /// Attention over the player's own tokens, averaged with the mean value of earlier tokens according to their log-odds.
    fn attend_with_log_odds<S: Scalar>(&self, tensors: &AttentionTensors<S>) -> Vec<S> {
        let earlier_count = tensors.key_count - tensors.query_count;
        let accumulate_own = |query, head| {
            tensors.accumulate(tensors.empty_accumulator(), query, head, earlier_count..=earlier_count + query)
        };
        let received_elements = self.receive(|| {
            tensors.map_heads(|query, head| {
                let earlier = tensors.accumulate(tensors.empty_accumulator(), query, head, 0..earlier_count);
                let own = accumulate_own(query, head);
                let log_odds = earlier[0] - own[0] + earlier[1].ln() - own[1].ln();
                std::iter::once(log_odds).chain(earlier[2..].iter().map(|value| *value / earlier[1])).collect()
            })
        });
        tensors.map_heads(|query, head| {
            let own = accumulate_own(query, head);
            let own_means = own[2..].iter().map(|value| *value / own[1]);
            let Some(received_elements) = &received_elements else { return own_means.collect() };
            let [log_odds, earlier_means @ ..] =
                tensors.head_slice(received_elements, query, head, tensors.value_width + 1)
            else {
                unreachable!("the log-odds come before the means")
            };
            let earlier_weight = log_odds.sigmoid();
            own_means.zip(earlier_means).map(|(own, earlier)| own + earlier_weight * (*earlier - own)).collect()
        })
    }
}

impl<S: Scalar> OpInterceptor<S> for PlayerAttention {
    fn enter(&self, name: &str) {
        self.current_layer.set(names::layer_index(name).unwrap_or(usize::MAX));
        self.next_call.set(0);
    }

    fn attention(&self, ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        let (layer, call) = (self.current_layer.get(), self.next_call.get());
        self.next_call.set(call + 1);
        if !self.is_full.get(layer).and_then(|calls| calls.get(call)).copied().unwrap_or(false) {
            return ops.attention(inputs);
        }
        let tensors = AttentionTensors::new(ops, inputs);
        let output = match self.encoding {
            NumberEncoding::Float(_) => self.attend_from_accumulators(&tensors),
            NumberEncoding::Levels(_) => self.attend_with_log_odds(&tensors),
        };
        ops.constant(&[1, tensors.query_count, tensors.heads, tensors.value_width], &output)
    }
}

/// Rounds an accumulator to what a message holds. The largest score is rounded first, and the sums are rescaled to the rounded score.
fn round_accumulator<S: Scalar>(accumulator: &mut [S], encoding: NumberEncoding) {
    let largest = encoding.round(accumulator[0]);
    let scale = (accumulator[0] - largest).exp();
    accumulator[0] = largest;
    for number in &mut accumulator[1..] {
        *number = encoding.round(*number * scale);
    }
}

/// The inputs of one attention call, copied out of the executor.
struct AttentionTensors<S> {
    query: Vec<S>,
    key: Vec<S>,
    value: Vec<S>,
    /// Bias on the attention scores, with its number of heads and of keys.
    bias: Option<(Vec<S>, usize, usize)>,
    scale: S,
    query_count: usize,
    key_count: usize,
    heads: usize,
    kv_heads: usize,
    key_width: usize,
    value_width: usize,
}

impl<S: Scalar> AttentionTensors<S> {
    fn new(ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Self {
        let (query, key, value) = (ops.shape(inputs.query), ops.shape(inputs.key), ops.shape(inputs.value));
        let bias = inputs.bias.map(|bias| (ops.values(bias), ops.shape(bias)[1], ops.shape(bias)[3]));
        Self {
            query: ops.values(inputs.query),
            key: ops.values(inputs.key),
            value: ops.values(inputs.value),
            bias,
            scale: S::from_f64(inputs.scale),
            query_count: query[1],
            key_count: key[1],
            heads: query[2],
            kv_heads: key[2],
            key_width: key[3],
            value_width: value[3],
        }
    }

    /// The accumulator before the first key: largest score, sum of weights, weighted sum of values.
    fn empty_accumulator(&self) -> Vec<S> {
        let mut accumulator = vec![S::ZERO; self.value_width + 2];
        accumulator[0] = S::LOWEST;
        accumulator
    }

    /// The results of a function for every query and head, one after another.
    fn map_heads(&self, compute: impl Fn(usize, usize) -> Vec<S>) -> Vec<S> {
        (0..self.query_count)
            .flat_map(|query| (0..self.heads).map(move |head| (query, head)))
            .flat_map(|(query, head)| compute(query, head))
            .collect()
    }

    /// The accumulator of a query and head after further keys.
    fn accumulate(
        &self,
        mut accumulator: Vec<S>,
        query: usize,
        head: usize,
        keys: impl Iterator<Item = usize>,
    ) -> Vec<S> {
        keys.for_each(|key| self.add_key(&mut accumulator, query, head, key));
        accumulator
    }

    /// The numbers of one query and head, out of `size` for each.
    fn head_slice<'a>(&self, numbers: &'a [S], query: usize, head: usize, size: usize) -> &'a [S] {
        let first = (query * self.heads + head) * size;
        &numbers[first..first + size]
    }

    /// Adds one key to the accumulator of a query and head.
    fn add_key(&self, accumulator: &mut [S], query: usize, head: usize, key: usize) {
        let kv_head = head * self.kv_heads / self.heads;
        let first = (query * self.heads + head) * self.key_width;
        let query_channels = &self.query[first..first + self.key_width];
        let first = (key * self.kv_heads + kv_head) * self.key_width;
        let mut score = S::ZERO;
        for (query, key) in query_channels.iter().zip(&self.key[first..first + self.key_width]) {
            score = query.mul_add(*key, score);
        }
        score *= self.scale;
        if let Some((bias, heads, keys)) = &self.bias {
            // The bias may cover more keys than there are: the last ones apply.
            let (head, key) = (if *heads == 1 { 0 } else { head }, key + keys - self.key_count);
            score += bias[(head * self.query_count + query) * keys + key];
        }
        let largest = accumulator[0].larger(score);
        let rescale = if accumulator[0] == S::LOWEST { S::ZERO } else { (accumulator[0] - largest).exp() };
        let weight = (score - largest).exp();
        accumulator[0] = largest;
        accumulator[1] = accumulator[1].mul_add(rescale, weight);
        let first = (key * self.kv_heads + kv_head) * self.value_width;
        for (sum, value) in accumulator[2..].iter_mut().zip(&self.value[first..]) {
            *sum = sum.mul_add(rescale, weight * *value);
        }
    }
}
