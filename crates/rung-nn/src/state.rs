//! What a mixer passes from one span of tokens to the next: states and KV caches.

use std::ops::Range;

use rung_engine::Ops;

/// The largest number of tensors in a state.
pub const MAX_STATE_TENSORS: usize = 6;

/// What a mixer passes from one span of tokens to the next: its KV cache, recurrent state, or last inputs of a convolution.
#[derive(Clone, Debug)]
pub struct State<T> {
    /// Number of tokens processed so far, which is the position of the next token.
    pub past_len: usize,
    /// The mixer's tensors, each with the batch as first axis. The order is up to the mixer.
    pub tensors: [Option<T>; MAX_STATE_TENSORS],
    /// What later layers may use at the same tokens. It is dropped at the end of the span.
    pub shared: Option<SharedTensor<T>>,
}

/// A tensor that a mixer shares with mixers of later layers.
#[derive(Clone, Debug)]
pub enum SharedTensor<T> {
    /// The KV cache that attention has just used, for layers without a cache of their own.
    Cache(KvCache<T>),
    /// Values, `[batch, time, heads, width]`, for layers that interpolate between them and their own (RWKV-7).
    Values(T),
    /// Hidden states, `[batch, time, width]`, that a later mixer takes in addition to its input (Zamba 2).
    Hidden(T),
}

impl<T> State<T> {
    /// The state after `past_len` tokens, with these as its first tensors.
    ///
    /// # Panics
    /// If there are more than [`MAX_STATE_TENSORS`].
    pub fn new<const COUNT: usize>(past_len: usize, tensors: [Option<T>; COUNT]) -> Self {
        assert!(COUNT <= MAX_STATE_TENSORS, "a state has at most {MAX_STATE_TENSORS} tensors, not {COUNT}");
        let mut tensors = tensors.into_iter();
        Self { past_len, tensors: std::array::from_fn(|_| tensors.next().flatten()), shared: None }
    }

    /// Number of tokens before a span that starts from `state`; 0 without a state.
    pub fn past_len(state: Option<&Self>) -> usize {
        state.map_or(0, |state| state.past_len)
    }

    /// The tensor with this index in the state that a span starts from, if there is one.
    pub fn tensor(state: Option<&Self>, index: usize) -> Option<&T> {
        state.and_then(|state| state.tensors[index].as_ref())
    }

    /// Number of elements of all tensors, for one row of the batch.
    pub fn element_count<O: Ops<Tensor = T>>(&self, ops: &O) -> usize {
        let shapes = self.tensors.iter().flatten().map(|tensor| ops.shape(tensor));
        shapes.map(|shape| shape[1..].iter().product::<usize>()).sum()
    }
}

/// The positions of cached tokens: the first `sinks` of the sequence, then a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePositions {
    /// Number of cached tokens from the start of the sequence.
    pub sinks: usize,
    /// Positions of the other cached tokens.
    pub recent: Range<usize>,
}

impl CachePositions {
    /// The cached positions after `past_len` tokens, with at most `sinks` first and `recent` last tokens.
    pub fn new(past_len: usize, sinks: usize, recent: usize) -> Self {
        let sinks = sinks.min(past_len);
        Self { sinks, recent: past_len.saturating_sub(recent).max(sinks)..past_len }
    }

    /// All cached positions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.sinks).chain(self.recent.clone())
    }

    /// Number of cached positions.
    pub(crate) fn len(&self) -> usize {
        self.sinks + self.recent.len()
    }
}

/// The keys and values that queries attend to: `[batch, tokens, kv heads, width]`.
#[derive(Clone, Debug)]
pub struct KvCache<T> {
    /// Keys, rotated if the model has rotary positions.
    pub key: T,
    /// Values.
    pub value: T,
    /// Positions of the cached tokens.
    pub positions: CachePositions,
}
