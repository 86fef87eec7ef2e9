//! Position encodings of attention.
//!
//! Rotary positions (RoPE) rotate queries and keys, so that their product depends on the distance. ALiBi subtracts a multiple of the
//! distance from each attention score. Relative positions add a learned bias to the scores of the nearest tokens. Learned positions are a table
//! added to the embeddings. Recurrences know the order of tokens anyway and use none of them, except RetNet, which has its own rotation.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rung_engine::{Ops, Scalar, rotary_angles, rotary_frequencies};

use crate::error::ModelError;

/// The position encoding of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Positions {
    /// No encoding: order is visible only through the causal mask and through recurrences.
    #[default]
    None,
    /// Rotary, with this base; 10000 is usual.
    Rotary {
        /// The lowest frequency is about one over this.
        base: f64,
    },
    /// ALiBi: head h adds `-2^(-8 (h + 1) / heads)` times the distance to its scores.
    Alibi,
    /// A learned bias on the scores of a token itself and of the two before it, in full attention only.
    Relative,
    /// A table of this many positions, added to the embeddings.
    Learned {
        /// The longest sequence, in tokens.
        length: usize,
    },
}

/// The frequencies of a rotation.
#[derive(Clone, Debug, PartialEq)]
pub enum Frequencies {
    /// `base^(-2 i / width)`, as in most models.
    Geometric {
        /// Usually 10000.
        base: f64,
    },
    /// `10000^(-u)` with u from 0 to 1, both included: RetNet's.
    Inclusive,
    /// Explicit frequencies, one for each pair of channels.
    Explicit(Arc<[f64]>),
}

/// A rotary position encoding, with its cosines and sines cached from call to call.
#[derive(Clone)]
pub struct Rotation {
    /// Number of rotated channels, which are the first of each head.
    rotary_dim: usize,
    frequencies: Frequencies,
    /// Scale of the rotated channels, 1 in most models.
    scale: f64,
    tables: Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>,
}

struct AngleTables<S> {
    cosine: Vec<S>,
    sine: Vec<S>,
}

impl Rotation {
    /// A rotation of heads of an even width. Cosines and sines are computed at the first call of [`apply`](Self::apply).
    pub fn new(rotary_dim: usize, frequencies: Frequencies) -> Self {
        Self { rotary_dim, frequencies, scale: 1.0, tables: Arc::default() }
    }

    /// A rotation of the first channels of each head by these frequencies, two channels each, and scales them.
    pub fn from_frequencies(frequencies: Vec<f64>, scale: f64) -> Self {
        let rotary_dim = 2 * frequencies.len();
        Self { rotary_dim, frequencies: Frequencies::Explicit(frequencies.into()), scale, tables: Arc::default() }
    }

    /// Number of rotated pairs of channels.
    pub fn pair_count(&self) -> usize {
        self.rotary_dim / 2
    }

    /// The rotation with each frequency divided by its divisor.
    #[must_use]
    pub fn with_divided_frequencies(&self, divisors: impl Iterator<Item = f64>) -> Self {
        let frequencies =
            self.frequency_values().into_iter().zip(divisors).map(|(frequency, divisor)| frequency / divisor);
        Self::from_frequencies(frequencies.collect(), self.scale)
    }

    /// The rotation of a mixer's keys if the model has rotary positions. `what` names the key width in the error.
    ///
    /// # Errors
    /// Their width is odd.
    pub fn for_keys(
        mixer: &'static str,
        what: &'static str,
        width: usize,
        positions: Positions,
    ) -> Result<Option<Self>, ModelError> {
        let Positions::Rotary { base } = positions else { return Ok(None) };
        if !width.is_multiple_of(2) {
            let expected = "an even number, for rotary positions".to_owned();
            return Err(ModelError::InvalidSize { component: mixer, what, found: width as u64, expected });
        }
        Ok((width > 0).then(|| Self::new(width, Frequencies::Geometric { base })))
    }

    /// Rotates `[batch, time, heads, width]`, whose first token is at position `past_len`.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> O::Tensor {
        let (half, time) = (self.rotary_dim / 2, ops.shape(x)[1]);
        let tables = self.tables::<O::Scalar>(past_len + time);
        let range = past_len * half..(past_len + time) * half;
        let table = |values: &[O::Scalar]| ops.constant(&[time, half], &values[range.clone()]);
        let (cosine, sine) = (table(&tables.cosine), table(&tables.sine));
        let head_dim = ops.shape(x)[3];
        if self.rotary_dim == head_dim {
            return ops.rotary(x, &cosine, &sine);
        }
        let rotated = ops.rotary(&ops.slice(x, 3, 0..self.rotary_dim), &cosine, &sine);
        ops.concat(&[rotated, ops.slice(x, 3, self.rotary_dim..head_dim)], 3)
    }

    fn tables<S: Scalar>(&self, positions: usize) -> Arc<AngleTables<S>> {
        let mut cache = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = cache.clone().and_then(|tables| tables.downcast::<AngleTables<S>>().ok());
        if let Some(tables) = cached.filter(|tables| tables.cosine.len() >= positions * (self.rotary_dim / 2)) {
            return tables;
        }
        // A power of two, so that step-by-step decoding fills the table rarely.
        let (mut cosine, mut sine) = rotary_angles::<S>(0..positions.next_power_of_two(), &self.frequency_values());
        if self.scale.to_bits() != 1.0_f64.to_bits() {
            cosine.iter_mut().chain(&mut sine).for_each(|x| *x *= S::from_f64(self.scale));
        }
        let tables = Arc::new(AngleTables { cosine, sine });
        *cache = Some(tables.clone());
        tables
    }

    fn frequency_values(&self) -> Vec<f64> {
        let count = self.rotary_dim / 2;
        match &self.frequencies {
            Frequencies::Explicit(frequencies) => frequencies.to_vec(),
            Frequencies::Geometric { base } => rotary_frequencies(self.rotary_dim, *base),
            Frequencies::Inclusive => {
                let last = count.saturating_sub(1).max(1) as f64;
                (0..count).map(|index| 10_000_f64.powf(-(index as f64) / last)).collect()
            }
        }
    }
}

/// Rotates queries or keys `[batch, time, heads, width]`, whose first token is at position `past_len`, where there is a rotation.
pub fn apply_rope<O: Ops>(ops: &O, rotation: Option<&Rotation>, x: &O::Tensor, past_len: usize) -> O::Tensor {
    rotation.map_or_else(|| x.clone(), |rotation| rotation.apply(ops, x, past_len))
}

/// How much ALiBi lowers the score of a key for every token between it and the query.
pub(crate) fn alibi_slope(head: usize, heads: usize) -> f64 {
    2_f64.powf(-8.0 * (head as f64 + 1.0) / heads as f64)
}

/// ALiBi's bias `[1, heads, queries, keys]` on the scores of queries at `query_positions` and keys at `key_positions`. A causal model
/// masks later keys, whose bias is then irrelevant; with `bidirectional` they are penalised as earlier ones are.
pub fn alibi_bias<O: Ops>(
    ops: &O,
    heads: usize,
    query_positions: Range<usize>,
    key_positions: impl Iterator<Item = usize> + Clone,
    bidirectional: bool,
) -> O::Tensor {
    let constant = |shape: &[usize], numbers: &mut dyn Iterator<Item = f64>| {
        let values: Vec<O::Scalar> = numbers.map(O::Scalar::from_f64).collect();
        ops.constant(shape, &values)
    };
    let key_positions =
        constant(&[1, 1, 1, key_positions.clone().count()], &mut key_positions.map(|position| position as f64));
    let query_positions =
        constant(&[1, 1, query_positions.len(), 1], &mut query_positions.map(|position| position as f64));
    let offset = ops.sub(&key_positions, &query_positions);
    let negative_distance =
        if bidirectional { ops.neg(&ops.add(&ops.relu(&offset), &ops.relu(&ops.neg(&offset)))) } else { offset };
    let mut slopes = (0..heads).map(|head| alibi_slope(head, heads));
    ops.mul(&constant(&[1, heads, 1, 1], &mut slopes), &negative_distance)
}

#[cfg(test)]
mod tests {
    use rung_engine::Native;

    use super::*;

    #[test]
    fn alibi_bias_falls_linearly_with_distance() {
        let ops = Native::<f64>::new();
        // Two queries, the last two of three keys; slopes 1/16 and 1/256.
        let causal = ops.values(&alibi_bias(&ops, 2, 1..3, 0..3, false));
        assert_eq!(causal[..2], [-1.0 / 16.0, 0.0]);
        assert_eq!(causal[3..6], [-2.0 / 16.0, -1.0 / 16.0, 0.0]);
        assert_eq!(causal[9..], [-2.0 / 256.0, -1.0 / 256.0, 0.0]);
        assert_eq!(ops.values(&alibi_bias(&ops, 2, 1..3, 0..3, true))[..3], [-1.0 / 16.0, 0.0, -1.0 / 16.0]);
    }

    #[test]
    fn rotation_of_later_tokens_equals_their_rotation_in_the_full_sequence() {
        for frequencies in [Frequencies::Geometric { base: 100.0 }, Frequencies::Inclusive] {
            let (ops, rotation) = (Native::<f64>::new(), Rotation::new(6, frequencies));
            let values: Vec<f64> = (0..5 * 6).map(f64::from).collect();
            let x = ops.constant(&[1, 5, 1, 6], &values);
            let later_tokens = rotation.apply(&ops, &ops.slice(&x, 1, 3..5), 3);
            let full = ops.values(&rotation.apply(&ops, &x, 0));
            assert_eq!(ops.values(&later_tokens), full[3 * 6..]);
            assert_eq!(full[..6], values[..6], "position 0 is not rotated");
        }
    }
}
