//! How attention knows where tokens stand.
//!
//! Rotary positions turn queries and keys, so that their product depends on the distance. ALiBi subtracts from each score a
//! multiple of the distance. Relative positions add a learned number to the scores of the nearest tokens. Learned positions are a table
//! added to the embeddings. Recurrences know the order anyway and use
//! none of them, except RetNet, which brings its own rotation.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use rung_engine::{Ops, Scalar, rotary_angles, rotary_frequencies};

use crate::error::ModelError;

/// Positions of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Positions {
    /// None: order is seen only through the causal mask and through recurrences.
    #[default]
    None,
    /// Rotary, with this base; 10000 is usual.
    Rotary {
        /// The slowest frequency is about one over this.
        base: f64,
    },
    /// Linear penalties on distance, of slope `2^(-8 (h + 1) / heads)`.
    Alibi,
    /// A learned number added to the scores of a token itself and of the two before it; of full attention alone.
    Relative,
    /// A table of this many positions, added to the embeddings.
    Learned {
        /// The longest text.
        length: usize,
    },
}

/// How the frequencies of a rotation are spaced.
#[derive(Clone, Debug, PartialEq)]
pub enum Spacing {
    /// `base^(-2 i / width)`: the usual one.
    Usual {
        /// The base.
        base: f64,
    },
    /// `10000^(-u)` with u from 0 to 1, both included: RetNet's.
    Inclusive,
    /// These, one for each pair of channels.
    Given(Arc<[f64]>),
}

/// A rotation of heads by position, with its cosines and sines kept from call to call.
#[derive(Clone)]
pub struct Rotation {
    /// Channels that are turned: the first of each head.
    width: usize,
    spacing: Spacing,
    /// Makes what is turned longer or shorter.
    factor: f64,
    tables: Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>,
}

struct Tables<S> {
    cosine: Vec<S>,
    sine: Vec<S>,
}

impl Rotation {
    /// A rotation of heads of an even width. Nothing is computed yet.
    pub fn new(width: usize, spacing: Spacing) -> Self {
        Self { width, spacing, factor: 1.0, tables: Arc::default() }
    }

    /// A rotation of the first channels of each head by given frequencies, two channels each, times a factor.
    pub fn given(frequencies: Vec<f64>, factor: f64) -> Self {
        let width = 2 * frequencies.len();
        Self { width, spacing: Spacing::Given(frequencies.into()), factor, tables: Arc::default() }
    }

    /// Pairs of channels that turn.
    pub fn pairs(&self) -> usize {
        self.width / 2
    }

    /// The same with every frequency divided.
    #[must_use]
    pub fn divided_by(&self, divisors: impl Iterator<Item = f64>) -> Self {
        let frequencies = self.frequencies().into_iter().zip(divisors).map(|(frequency, divisor)| frequency / divisor);
        Self::given(frequencies.collect(), self.factor)
    }

    /// That of keys of a mixer, if the model's positions turn them.
    ///
    /// # Errors
    /// Their width is odd.
    pub fn of_keys(
        mixer: &'static str,
        what: &'static str,
        width: usize,
        positions: Positions,
    ) -> Result<Option<Self>, ModelError> {
        let Positions::Rotary { base } = positions else { return Ok(None) };
        if !width.is_multiple_of(2) {
            let expected = "an even number, for rotary positions".to_owned();
            return Err(ModelError::Shape { place: mixer, what, found: width as u64, expected });
        }
        Ok((width > 0).then(|| Self::new(width, Spacing::Usual { base })))
    }

    /// Turns `[batch, time, heads, width]`, whose first token is the one after `seen` others.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> O::Tensor {
        let (half, time) = (self.width / 2, ops.shape(x)[1]);
        let tables = self.tables::<O::Scalar>(seen + time);
        let range = seen * half..(seen + time) * half;
        let table = |values: &[O::Scalar]| ops.constant(&[time, half], &values[range.clone()]);
        let (cosine, sine) = (table(&tables.cosine), table(&tables.sine));
        let whole = ops.shape(x)[3];
        if self.width == whole {
            return ops.rotary(x, &cosine, &sine);
        }
        let turned = ops.rotary(&ops.slice(x, 3, 0..self.width), &cosine, &sine);
        ops.concat(&[turned, ops.slice(x, 3, self.width..whole)], 3)
    }

    fn tables<S: Scalar>(&self, positions: usize) -> Arc<Tables<S>> {
        let mut kept = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.clone().and_then(|tables| tables.downcast::<Tables<S>>().ok());
        if let Some(tables) = known.filter(|tables| tables.cosine.len() >= positions * (self.width / 2)) {
            return tables;
        }
        // A power of two, so that step-by-step decoding fills the table rarely.
        let (mut cosine, mut sine) = rotary_angles::<S>(0..positions.next_power_of_two(), &self.frequencies());
        if self.factor.to_bits() != 1.0_f64.to_bits() {
            cosine.iter_mut().chain(&mut sine).for_each(|x| *x *= S::from_f64(self.factor));
        }
        let tables = Arc::new(Tables { cosine, sine });
        *kept = Some(tables.clone());
        tables
    }

    fn frequencies(&self) -> Vec<f64> {
        let count = self.width / 2;
        match &self.spacing {
            Spacing::Given(frequencies) => frequencies.to_vec(),
            Spacing::Usual { base } => rotary_frequencies(self.width, *base),
            Spacing::Inclusive => {
                let last = count.saturating_sub(1).max(1) as f64;
                (0..count).map(|index| 10_000_f64.powf(-(index as f64) / last)).collect()
            }
        }
    }
}

/// ALiBi's bias `[1, heads, readers, places]` of tokens at `readers` on tokens at `places`. Where the future is masked its sign
/// there does not matter; otherwise `bidirectional` takes the distance without its sign.
pub fn alibi<O: Ops>(
    ops: &O,
    heads: usize,
    readers: Range<usize>,
    places: impl Iterator<Item = usize> + Clone,
    bidirectional: bool,
) -> O::Tensor {
    let line = |shape: &[usize], numbers: &mut dyn Iterator<Item = f64>| {
        let values: Vec<O::Scalar> = numbers.map(O::Scalar::from_f64).collect();
        ops.constant(shape, &values)
    };
    let places = line(&[1, 1, 1, places.clone().count()], &mut places.map(|place| place as f64));
    let readers = line(&[1, 1, readers.len(), 1], &mut readers.map(|reader| reader as f64));
    let ahead = ops.sub(&places, &readers);
    let distance =
        if bidirectional { ops.neg(&ops.add(&ops.relu(&ahead), &ops.relu(&ops.neg(&ahead)))) } else { ahead };
    let slope = |head: usize| 2_f64.powf(-8.0 * (head as f64 + 1.0) / heads as f64);
    ops.mul(&line(&[1, heads, 1, 1], &mut (0..heads).map(slope)), &distance)
}

#[cfg(test)]
mod tests {
    use rung_engine::Native;

    use super::*;

    #[test]
    fn alibi_falls_with_distance() {
        let ops = Native::<f64>::new();
        // Two queries, the last two of three keys; slopes 1/16 and 1/256.
        let causal = ops.values(&alibi(&ops, 2, 1..3, 0..3, false));
        assert_eq!(causal[..2], [-1.0 / 16.0, 0.0]);
        assert_eq!(causal[3..6], [-2.0 / 16.0, -1.0 / 16.0, 0.0]);
        assert_eq!(causal[9..], [-2.0 / 256.0, -1.0 / 256.0, 0.0]);
        assert_eq!(ops.values(&alibi(&ops, 2, 1..3, 0..3, true))[..3], [-1.0 / 16.0, 0.0, -1.0 / 16.0]);
    }

    #[test]
    fn a_rotation_that_goes_on_is_one_rotation() {
        for spacing in [Spacing::Usual { base: 100.0 }, Spacing::Inclusive] {
            let (ops, turn) = (Native::<f64>::new(), Rotation::new(6, spacing));
            let values: Vec<f64> = (0..5 * 6).map(f64::from).collect();
            let x = ops.constant(&[1, 5, 1, 6], &values);
            let late = turn.apply(&ops, &ops.slice(&x, 1, 3..5), 3);
            let whole = ops.values(&turn.apply(&ops, &x, 0));
            assert_eq!(ops.values(&late), whole[3 * 6..]);
            assert_eq!(whole[..6], values[..6], "the first token is not turned");
        }
    }
}
