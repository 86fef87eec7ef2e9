//! Numbers as bits on a wire.
//!
//! A number crosses in p bits: all of its own (32 or 64), the first p of single precision, rounded to the nearest (16 bits are
//! what is called bfloat16), or the number of one of 2^p levels, for models that keep their numbers on such. The bits are really
//! packed, so that the length of a message is a count and not a formula.

use rung_engine::{Rounding, Scalar};

use crate::model::ModelConfig;

/// Bits that a number crosses in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberEncoding {
    /// So many of single precision, or 64 of double; see [`NumberEncoding::new`].
    Float(u32),
    /// One of evenly spaced levels; see [`rung_engine::Ops::round_to_bits`].
    Levels(Rounding),
}

/// Bits of the numbers of states, and of what is said in full layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolEncodings {
    /// Of states.
    pub state: NumberEncoding,
    /// In full layers.
    pub message: NumberEncoding,
}

impl ProtocolEncodings {
    /// As a model keeps its numbers: in the few bits that it simulates, or in all that the number type has.
    pub fn of<S: Scalar>(config: &ModelConfig) -> Self {
        let width =
            |rounding: Option<Rounding>| rounding.map_or_else(NumberEncoding::whole::<S>, NumberEncoding::Levels);
        Self { state: width(config.precision.state), message: width(config.precision.message) }
    }
}

impl From<NumberEncoding> for ProtocolEncodings {
    fn from(width: NumberEncoding) -> Self {
        Self { state: width, message: width }
    }
}

impl NumberEncoding {
    /// Fewest bits: a sign and the exponent of single precision.
    pub const FEWEST: u32 = 9;

    /// As many as the number type has.
    pub fn whole<S: Scalar>() -> Self {
        Self::Float(8 * size_of::<S>() as u32)
    }

    /// The first `bits` of single precision, or all of single or double.
    pub fn new(bits: u32) -> Option<Self> {
        ((Self::FEWEST..=32).contains(&bits) || bits == 64).then_some(Self::Float(bits))
    }

    /// How many.
    pub fn bits(self) -> u32 {
        match self {
            Self::Float(bits) | Self::Levels(Rounding { bits, .. }) => bits,
        }
    }

    /// A number as it arrives on the other side.
    pub fn rounded<S: Scalar>(self, number: S) -> S {
        self.decode(self.encode(number))
    }

    fn encode<S: Scalar>(self, number: S) -> u64 {
        let bits = match self {
            Self::Float(64) => return number.to_f64().to_bits(),
            Self::Float(bits) => bits,
            Self::Levels(Rounding { bits, range }) => {
                let half = f64::from(1_u32 << (bits - 1));
                let level = (number * S::from_f64(half / range)).round().to_f64();
                return (level.clamp(-half, half - 1.0) + half) as u64;
            }
        };
        let number = number.to_f64();
        let whole = u64::from((number as f32).to_bits());
        let dropped = 32 - bits;
        if dropped == 0 || !number.is_finite() {
            return whole >> dropped;
        }
        // To the nearest, ties to even; an overflow of the fraction raises the exponent, as it should.
        let half = (1_u64 << (dropped - 1)) - 1 + (whole >> dropped & 1);
        (whole + half) >> dropped
    }

    fn decode<S: Scalar>(self, code: u64) -> S {
        match self {
            Self::Float(64) => S::from_f64(f64::from_bits(code)),
            Self::Float(bits) => S::from_f64(f64::from(f32::from_bits((code << (32 - bits)) as u32))),
            Self::Levels(Rounding { bits, range }) => {
                let half = f64::from(1_u32 << (bits - 1));
                S::from_f64(code as f64 - half) * S::from_f64(range / half)
            }
        }
    }
}

/// Bits in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitString {
    bytes: Vec<u8>,
    bits: u64,
}

impl BitString {
    /// Numbers, packed.
    pub fn of<S: Scalar>(numbers: &[S], width: NumberEncoding) -> Self {
        let mut wire = Self::default();
        for number in numbers {
            let code = width.encode(*number);
            for bit in 0..width.bits() {
                wire.push(code >> bit & 1 == 1);
            }
        }
        wire
    }

    /// The numbers on it.
    pub fn numbers<S: Scalar>(&self, width: NumberEncoding) -> Vec<S> {
        let bit = |at: u64| u64::from(self.bytes[(at / 8) as usize] >> (at % 8) & 1);
        let code = |first: u64| (0..width.bits()).fold(0, |code, place| code | bit(first + u64::from(place)) << place);
        let size = u64::from(width.bits());
        (0..self.bits / size).map(|index| width.decode(code(index * size))).collect()
    }

    /// Bits on it.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Turns one bit over.
    pub fn flip(&mut self, at: u64) {
        self.bytes[(at / 8) as usize] ^= 1 << (at % 8);
    }

    fn push(&mut self, bit: bool) {
        if self.bits.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit {
            self.flip(self.bits);
        }
        self.bits += 1;
    }
}

#[cfg(test)]
mod tests {
    use rung_engine::Ops as _;

    use super::*;

    #[test]
    fn whole_numbers_cross_as_they_are() {
        let numbers = [0.0_f32, -0.0, 1.5, -3.25e-20, f32::MAX, f32::MIN_POSITIVE];
        let wire = BitString::of(&numbers, NumberEncoding::whole::<f32>());
        assert_eq!(wire.bits(), 32 * 6);
        let arrived: Vec<f32> = wire.numbers(NumberEncoding::whole::<f32>());
        assert!(numbers.iter().zip(&arrived).all(|(sent, got)| sent.to_bits() == got.to_bits()));
        let wire = BitString::of(&[0.1_f64], NumberEncoding::whole::<f64>());
        assert_eq!((wire.bits(), wire.numbers::<f64>(NumberEncoding::whole::<f64>())), (64, vec![0.1]));
    }

    #[test]
    fn levels_are_those_that_a_model_rounds_to() {
        let (native, numbers) = (rung_engine::Native::<f32>::new(), [-9.0, -2.9, -0.3, 0.1, 0.62, 1.49, 9.0]);
        for (bits, range) in [(1, 1.0), (3, 1.0), (5, 3.0), (24, 0.7)] {
            let x = native.constant(&[numbers.len()], &numbers);
            let rounded = native.values(&native.round_to_bits(&x, bits, range));
            let width = NumberEncoding::Levels(Rounding { bits, range });
            let wire = BitString::of(&numbers, width);
            assert_eq!(wire.bits(), 7 * u64::from(bits));
            assert_eq!(wire.numbers::<f32>(width), rounded, "{bits} bits over {range}");
        }
    }

    #[test]
    fn few_bits_round_to_the_nearest() {
        let brain = NumberEncoding::new(16).unwrap();
        // In steps of 1/256, half a step of what 16 bits hold next to 1.
        let rounded = |step: i16| brain.rounded(1.0 + f32::from(step) / 256.0).to_bits();
        let whole = |step: i16| (1.0 + f32::from(step) / 256.0).to_bits();
        assert_eq!([0, 2, 4, -128].map(rounded), [0, 2, 4, -128].map(whole));
        assert_eq!([1, 3, 5].map(rounded), [0, 4, 4].map(whole), "ties go to even");
        let near = |number: f32| brain.rounded(number).to_bits();
        assert_eq!([1.003, 1.005].map(near), [0, 2].map(whole));
        assert_eq!(BitString::of(&[1.0_f32; 3], NumberEncoding::new(9).unwrap()).bits(), 27);
        assert!([0, 8, 33, 63].into_iter().all(|bits| NumberEncoding::new(bits).is_none()));
    }
}
