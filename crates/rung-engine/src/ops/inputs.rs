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
    /// Nearest whole number; its gradient is zero.
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

/// Which keys a query may read. Queries are the last positions of the keys: with as many queries as keys, query t sits at
/// key t; a single query sits at the last key, as in decoding from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// Every key, before and after.
    None,
    /// Keys up to the query's own.
    Causal,
    /// The query's own key and those just before it, this many in all.
    Window(usize),
}

impl AttentionMask {
    /// The keys that a query at this position sees, out of `keys`.
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
/// Heads of keys and values may be fewer than heads of queries: consecutive query heads share one.
pub struct AttentionInputs<'a, T> {
    /// `[batch, queries, heads, width]`.
    pub query: &'a T,
    /// `[batch, keys, key heads, width]`.
    pub key: &'a T,
    /// `[batch, keys, key heads, value width]`.
    pub value: &'a T,
    /// Added to the scaled scores: `[batch or 1, heads or 1, queries, keys]`.
    pub bias: Option<&'a T>,
    /// Which keys are visible.
    pub mask: AttentionMask,
    /// Factor on the scores; the usual one is `width^-1/2`.
    pub scale: f64,
}

/// The inputs of softmax attention to chosen blocks of keys. Queries are the last positions of the keys, and see nothing after
/// themselves. The choice is given, and takes no gradient.
pub struct BlockAttention<'a, T> {
    /// `[batch, queries, heads, width]`.
    pub query: &'a T,
    /// `[batch, keys, key heads, width]`.
    pub key: &'a T,
    /// `[batch, keys, key heads, value width]`.
    pub value: &'a T,
    /// The blocks that each query reads. Every query has at least one.
    pub choice: &'a BlockChoice,
    /// Factor on the scores.
    pub scale: f64,
}

/// How a recurrent state fades from one token to the next: log-decays, never positive.
pub enum Decay<'a, T> {
    /// It does not.
    None,
    /// One log-decay per head, `[batch, time, heads]`.
    Scalar(&'a T),
    /// One log-decay per key channel, `[batch, time, heads, key width]`.
    Vector(&'a T),
}

/// Few bits for a number: one of `2^bits` evenly spaced values from `-range` up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// Bits, from 1 to [`Rounding::MOST_BITS`].
    pub bits: u32,
    /// The largest size a number can have.
    pub range: f64,
}

impl Rounding {
    /// As many as single precision holds exactly.
    pub const MOST_BITS: u32 = 24;

    /// The nearest of the `2^bits` levels.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of vectorised loops")]
    pub(crate) fn nearest<S: Scalar>(self, x: S) -> S {
        let half = f64::from(1_u32 << (self.bits - 1));
        let level = (x * S::from_f64(half / self.range)).round().larger(S::from_f64(-half));
        let level = if level > S::from_f64(half - 1.0) { S::from_f64(half - 1.0) } else { level };
        // Adding zero leaves no negative one, which would be a level more.
        (level + S::ZERO) * S::from_f64(self.range / half)
    }

    /// The nearest values, with the gradient of `x`; see [`Ops::round_to_bits`].
    pub fn apply<O: Ops + ?Sized>(self, ops: &O, x: &O::Tensor) -> O::Tensor {
        ops.round_to_bits(x, self.bits, self.range)
    }
}

/// Bits of the accumulators that [`Ops::left_to_right_attention`] sums in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccumulatorRounding {
    /// Of each channel of the running mean of values.
    pub mean: Rounding,
    /// Of the running log of the sum of weights.
    pub log_sum: Rounding,
}

/// The inputs of a linear recurrence over a matrix state.
///
/// With decay `a = exp(g)` and without `beta`, the state is `S <- a S + k v'` and the output `o = S' q`. With `beta` the write
/// is a delta step: `S <- a S`, then `S <- S + beta k (v - S' k)'`. This covers linear attention and `DeltaNet` (no decay),
/// `RetNet`, Mamba-2 and Gated `DeltaNet` (scalar decay), and GLA (vector decay). Queries are used as given; scale them first.
///
/// Heads of queries and keys may be fewer than heads of values: consecutive value heads share one.
pub struct Recurrence<'a, T> {
    /// `[batch, time, key heads, key width]`.
    pub query: &'a T,
    /// `[batch, time, key heads, key width]`.
    pub key: &'a T,
    /// `[batch, time, heads, value width]`.
    pub value: &'a T,
    /// How the state fades.
    pub decay: Decay<'a, T>,
    /// Strength of the delta step, `[batch, time, heads]`; without it the write is a plain sum.
    pub beta: Option<&'a T>,
    /// The state before the first token, `[batch, heads, key width, value width]`; zero if absent.
    pub state: Option<&'a T>,
    /// Tokens per chunk. It changes the cost and the rounding, never the meaning.
    pub chunk: usize,
    /// Keeps the state in few bits: it is rounded after every token, and what is read is the rounded state. Then the chunk
    /// does not matter, and tokens go one by one.
    pub rounding: Option<Rounding>,
}

/// The inputs of the general delta rule, whose erasure has a direction and a strength of its own.
///
/// The state is `S <- Diag(exp(g)) S - r (s' S) + k v'`, all with the state before the token on the right, and the output
/// `o = S' q` from the state after it. With `s` a unit key and `r = a s` this is RWKV-7's; with `g = 0`, `s` a key,
/// `r = beta s` and `k = beta s` it is the delta rule of [`Recurrence`]. Unlike there, what is erased is looked up before
/// anything fades.
pub struct GeneralDelta<'a, T> {
    /// `[batch, time, heads, key width]`.
    pub query: &'a T,
    /// `[batch, time, heads, key width]`.
    pub key: &'a T,
    /// `[batch, time, heads, value width]`.
    pub value: &'a T,
    /// Log-decays of the key channels, `[batch, time, heads, key width]`, never positive.
    pub decay: &'a T,
    /// `s`: the key under which something is looked up to be erased, `[batch, time, heads, key width]`.
    pub recall_key: &'a T,
    /// `r`: along what, and how much of it, it is erased, `[batch, time, heads, key width]`.
    pub erase_key: &'a T,
    /// The state before the first token, `[batch, heads, key width, value width]`; zero if absent.
    pub state: Option<&'a T>,
    /// Tokens between the states that are kept for the gradient. It changes the cost, never the result.
    pub chunk: usize,
    /// Keeps the state in few bits, as in [`Recurrence`].
    pub rounding: Option<Rounding>,
}

/// The inputs of a gated recurrence over channels, `h <- h + g (v - h)`: each token replaces a share of the state.
pub struct GatedScan<'a, T> {
    /// What is written, `[batch, time, channels]`.
    pub value: &'a T,
    /// The share that is replaced, `[batch, time, 1]`.
    pub gate: &'a T,
    /// The state before the first token, `[batch, 1, channels]`.
    pub state: &'a T,
    /// Keeps the state in few bits: it is rounded after every token.
    pub rounding: Option<Rounding>,
}
