//! The arguments of operations that take more than tensors.

use std::ops::Range;

use super::Ops;
use crate::choice::BlockChoice;
use crate::scalar::Scalar;

/// A function of one number, applied to every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// e to the power of x.
    Exp,
    /// Natural logarithm.
    Log,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `max(x, 0)`.
    Relu,
    /// Square root.
    Sqrt,
    /// Nearest integer; its gradient is zero.
    Round,
}

/// A function of two numbers, applied to every pair of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
}

/// Which keys a query may read. Queries are at the last positions of the keys: with as many queries as keys, query t is at key t;
/// a single query is at the last key, as in decoding from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// Every key, before and after.
    None,
    /// Keys up to the query's own position.
    Causal,
    /// The last keys up to the query's own position, this many with its own.
    Window(usize),
}

impl AttentionMask {
    /// The visible keys of a query at this position, out of `keys`.
    pub fn range(self, position: usize, keys: usize) -> Range<usize> {
        match self {
            Self::None => 0..keys,
            Self::Causal => 0..position + 1,
            Self::Window(size) => (position + 1).saturating_sub(size)..position + 1,
        }
    }
}

/// The inputs of softmax attention.
///
/// There may be fewer KV heads than query heads: consecutive query heads then share one.
pub struct AttentionInputs<'a, T> {
    /// `[batch, queries, heads, head_dim]`.
    pub query: &'a T,
    /// `[batch, keys, KV heads, head_dim]`.
    pub key: &'a T,
    /// `[batch, keys, KV heads, value_dim]`.
    pub value: &'a T,
    /// Added to the scaled scores: `[batch or 1, heads or 1, queries, keys]`.
    pub bias: Option<&'a T>,
    /// Which keys are visible.
    pub mask: AttentionMask,
    /// Factor on the scores; the usual one is `width^-1/2`.
    pub scale: f64,
}

/// The inputs of softmax attention to chosen blocks of keys. Queries are at the last positions of the keys and see no later key.
/// The choice takes no gradient.
pub struct BlockAttention<'a, T> {
    /// `[batch, queries, heads, head_dim]`.
    pub query: &'a T,
    /// `[batch, keys, KV heads, head_dim]`.
    pub key: &'a T,
    /// `[batch, keys, KV heads, value_dim]`.
    pub value: &'a T,
    /// The blocks that each query reads. Every query has at least one.
    pub choice: &'a BlockChoice,
    /// Factor on the scores.
    pub scale: f64,
}

/// The inputs of an indexer, which scores every token up to the query's own: the score of key `k` is `sum_h w_h max(q_h . k, 0)` over
/// the index heads `h`. Queries are at the last positions of the keys.
pub struct Indexer<'a, T> {
    /// `[batch, queries, heads, head_dim]`.
    pub query: &'a T,
    /// Weight of each head in a query's scores, `[batch, queries, heads]`.
    pub head_weights: &'a T,
    /// One key per token for all heads, `[batch, keys, width]`.
    pub key: &'a T,
    /// How many tokens a query reads, or all if fewer are visible; at least 1.
    pub top: usize,
}

/// How a recurrent state decays from one token to the next. Log-decays are never positive.
pub enum Decay<'a, T> {
    /// No decay.
    None,
    /// One log-decay per head, `[batch, time, heads]`.
    Scalar(&'a T),
    /// One log-decay per key channel, `[batch, time, heads, key_dim]`.
    Vector(&'a T),
}

/// Rounding to few bits: to one of `2^bits` evenly spaced values from `-range` up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// Bits per element, from 1 to [`Rounding::MAX_BITS`].
    pub bits: u32,
    /// The largest magnitude that a number can have.
    pub range: f64,
}

impl Rounding {
    /// Upper limit of `bits`: single precision has no more.
    pub const MAX_BITS: u32 = 24;

    /// The nearest of the `2^bits` levels.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of vectorised loops")]
    pub(crate) fn nearest<S: Scalar>(self, x: S) -> S {
        let half = f64::from(1_u32 << (self.bits - 1));
        let level = (x * S::from_f64(half / self.range)).round().larger(S::from_f64(-half));
        let level = if level > S::from_f64(half - 1.0) { S::from_f64(half - 1.0) } else { level };
        // Adding zero turns a negative zero into zero, so that it does not count as another level.
        (level + S::ZERO) * S::from_f64(self.range / half)
    }

    /// Rounds a tensor, with the gradient of `x`; see [`Ops::round_to_bits`].
    pub fn apply<O: Ops + ?Sized>(self, ops: &O, x: &O::Tensor) -> O::Tensor {
        ops.round_to_bits(x, self.bits, self.range)
    }
}

/// The rounding of the accumulators of [`Ops::left_to_right_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccumulatorRounding {
    /// Rounding of each channel of the running mean of values.
    pub mean: Rounding,
    /// Rounding of the log of the running sum of weights.
    pub log_sum: Rounding,
}

/// The inputs of a linear recurrence over a matrix state.
///
/// With queries `q`, keys `k`, values `v`, decay `a = exp(g)` (`'` is the transpose) and without `beta`, the state is
/// `S <- a S + k v'` and the output `o = S' q`. With `beta` the write
/// is that of the delta rule: `S <- a S`, then `S <- S + beta k (v - S' k)'`. This covers linear attention and `DeltaNet` (no decay),
/// `RetNet`, Mamba-2 and Gated `DeltaNet` (scalar decay), and GLA (vector decay). Queries are used as given; scale them first.
///
/// There may be fewer query and key heads than value heads: consecutive value heads then share one.
pub struct Recurrence<'a, T> {
    /// `[batch, time, key heads, key_dim]`.
    pub query: &'a T,
    /// `[batch, time, key heads, key_dim]`.
    pub key: &'a T,
    /// `[batch, time, heads, value_dim]`.
    pub value: &'a T,
    /// How the state decays.
    pub decay: Decay<'a, T>,
    /// Write strength of the delta rule, `[batch, time, heads]`; without it `k v'` is added to the state.
    pub beta: Option<&'a T>,
    /// The state before the first token, `[batch, heads, key_dim, value_dim]`; zero if absent.
    pub state: Option<&'a T>,
    /// Tokens per chunk. It changes the cost and the rounding errors, not the definition.
    pub chunk: usize,
    /// Rounds the state to few bits after every token; outputs are read from the rounded state. The recurrence then runs token by
    /// token, and `chunk` has no effect.
    pub rounding: Option<Rounding>,
}

/// The inputs of the general delta rule, which has separate keys for recalling and erasing.
///
/// The state is `S <- Diag(exp(g)) S - r (s' S) + k v'`, all with the state before the token on the right, and the output
/// `o = S' q` from the state after it. With `s` a unit key and `r = a s` this is RWKV-7's; with `g = 0`, `s` a key,
/// `r = beta s` and `k = beta s` it is the delta rule of [`Recurrence`]. Unlike there, the value to erase is recalled from
/// the state before the decay.
pub struct GeneralDelta<'a, T> {
    /// `[batch, time, heads, key_dim]`.
    pub query: &'a T,
    /// `[batch, time, heads, key_dim]`.
    pub key: &'a T,
    /// `[batch, time, heads, value_dim]`.
    pub value: &'a T,
    /// Log-decays of the key channels, `[batch, time, heads, key_dim]`, never positive.
    pub decay: &'a T,
    /// `s`: the key with which the value to erase is recalled, `[batch, time, heads, key_dim]`.
    pub recall_key: &'a T,
    /// `r`: the key along which the recalled value is erased; its length is the strength, `[batch, time, heads, key_dim]`.
    pub erase_key: &'a T,
    /// The state before the first token, `[batch, heads, key_dim, value_dim]`; zero if absent.
    pub state: Option<&'a T>,
    /// Tokens between the states that are stored for the backward pass. It changes the cost, not the result.
    pub chunk: usize,
    /// Rounds the state to few bits, as in [`Recurrence`].
    pub rounding: Option<Rounding>,
}

/// The inputs of a gated recurrence over channels, `h <- h + g (v - h)`.
pub struct GatedScan<'a, T> {
    /// `v`, `[batch, time, channels]`.
    pub value: &'a T,
    /// `g`: the fraction of the state that is replaced, `[batch, time, 1]`.
    pub gate: &'a T,
    /// The state before the first token, `[batch, 1, channels]`.
    pub state: &'a T,
    /// Rounds the state to few bits after every token.
    pub rounding: Option<Rounding>,
}
