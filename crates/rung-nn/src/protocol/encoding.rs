//! The encoding of numbers in messages.
//!
//! A number is sent in p bits: all bits of its type (32 or 64); the first p bits of single precision, rounded to nearest (p = 16 is
//! bfloat16); or the index of one of 2^p levels, for models that round their numbers to such levels. The bits are actually packed, so
//! that the length of a message is counted and not computed by a formula.

use rung_engine::{Rounding, Scalar};

use crate::model::ModelConfig;

/// How a number is encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberEncoding {
    /// This many leading bits of single precision, or the 64 of double; see [`NumberEncoding::new`].
    Float(u32),
    /// The index of one of evenly spaced levels; see [`rung_engine::Ops::round_to_bits`].
    Levels(Rounding),
}

/// The encodings of a protocol's messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolEncodings {
    /// The encoding of states.
    pub state: NumberEncoding,
    /// The encoding of softmax accumulators, in full-attention layers.
    pub accumulator: NumberEncoding,
}

impl ProtocolEncodings {
    /// The encodings that lose nothing: in the few bits that the model simulates, or in all bits of the number type.
    pub fn for_config<S: Scalar>(config: &ModelConfig) -> Self {
        let encoding = |rounding: Option<Rounding>| {
            rounding.map_or_else(NumberEncoding::full_precision::<S>, NumberEncoding::Levels)
        };
        Self { state: encoding(config.precision.state), accumulator: encoding(config.precision.message) }
    }
}

impl From<NumberEncoding> for ProtocolEncodings {
    fn from(encoding: NumberEncoding) -> Self {
        Self { state: encoding, accumulator: encoding }
    }
}

impl NumberEncoding {
    /// The fewest bits of a float: the sign and the exponent of single precision.
    pub const MIN_BITS: u32 = 9;

    /// All bits of the number type.
    pub fn full_precision<S: Scalar>() -> Self {
        Self::Float(8 * size_of::<S>() as u32)
    }

    /// The first `bits` bits of single precision (9 to 32), or the 64 of double; `None` for another number.
    pub fn new(bits: u32) -> Option<Self> {
        ((Self::MIN_BITS..=32).contains(&bits) || bits == 64).then_some(Self::Float(bits))
    }

    /// Bits per element.
    pub fn bits(self) -> u32 {
        match self {
            Self::Float(bits) | Self::Levels(Rounding { bits, .. }) => bits,
        }
    }

    /// A number after encoding and decoding.
    pub fn round<S: Scalar>(self, number: S) -> S {
        self.decode(self.encode(number))
    }

    fn encode<S: Scalar>(self, number: S) -> u64 {
        let bits = match self {
            Self::Float(64) => return number.to_f64().to_bits(),
            Self::Float(bits) => bits,
            Self::Levels(Rounding { bits, range }) => {
                let half_levels = f64::from(1_u32 << (bits - 1));
                let level = (number * S::from_f64(half_levels / range)).round().to_f64();
                return (level.clamp(-half_levels, half_levels - 1.0) + half_levels) as u64;
            }
        };
        let number = number.to_f64();
        let single = u64::from((number as f32).to_bits());
        let dropped_bits = 32 - bits;
        if dropped_bits == 0 || !number.is_finite() {
            return single >> dropped_bits;
        }
        // Round to nearest, ties to even; an overflow of the fraction raises the exponent, as it should.
        let half_step = (1_u64 << (dropped_bits - 1)) - 1 + (single >> dropped_bits & 1);
        (single + half_step) >> dropped_bits
    }

    fn decode<S: Scalar>(self, code: u64) -> S {
        match self {
            Self::Float(64) => S::from_f64(f64::from_bits(code)),
            Self::Float(bits) => S::from_f64(f64::from(f32::from_bits((code << (32 - bits)) as u32))),
            Self::Levels(Rounding { bits, range }) => {
                let half_levels = f64::from(1_u32 << (bits - 1));
                S::from_f64(code as f64 - half_levels) * S::from_f64(range / half_levels)
            }
        }
    }
}

/// A sequence of bits, packed into bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitString {
    bytes: Vec<u8>,
    len: u64,
}

impl BitString {
    /// Encodes numbers one after another.
    pub fn pack<S: Scalar>(numbers: &[S], encoding: NumberEncoding) -> Self {
        let mut bits = Self::default();
        for number in numbers {
            let code = encoding.encode(*number);
            for bit in 0..encoding.bits() {
                bits.push(code >> bit & 1 == 1);
            }
        }
        bits
    }

    /// Decodes the numbers that were packed in this encoding.
    pub fn unpack<S: Scalar>(&self, encoding: NumberEncoding) -> Vec<S> {
        let bit = |index: u64| u64::from(self.bytes[(index / 8) as usize] >> (index % 8) & 1);
        let code =
            |first: u64| (0..encoding.bits()).fold(0, |code, shift| code | bit(first + u64::from(shift)) << shift);
        let bits_per_number = u64::from(encoding.bits());
        (0..self.len / bits_per_number).map(|index| encoding.decode(code(index * bits_per_number))).collect()
    }

    /// The number of bits.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inverts one bit.
    pub fn flip(&mut self, index: u64) {
        self.bytes[(index / 8) as usize] ^= 1 << (index % 8);
    }

    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit {
            self.flip(self.len);
        }
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use rung_engine::Ops as _;

    use super::*;

    #[test]
    fn full_precision_loses_nothing() {
        let numbers = [0.0_f32, -0.0, 1.5, -3.25e-20, f32::MAX, f32::MIN_POSITIVE];
        let packed = BitString::pack(&numbers, NumberEncoding::full_precision::<f32>());
        assert_eq!(packed.len(), 32 * 6);
        let unpacked: Vec<f32> = packed.unpack(NumberEncoding::full_precision::<f32>());
        assert!(numbers.iter().zip(&unpacked).all(|(before, after)| before.to_bits() == after.to_bits()));
        let packed = BitString::pack(&[0.1_f64], NumberEncoding::full_precision::<f64>());
        assert_eq!((packed.len(), packed.unpack::<f64>(NumberEncoding::full_precision::<f64>())), (64, vec![0.1]));
    }

    #[test]
    fn level_encoding_rounds_like_the_executor() {
        let (native, numbers) = (rung_engine::Native::<f32>::new(), [-9.0, -2.9, -0.3, 0.1, 0.62, 1.49, 9.0]);
        for (bits, range) in [(1, 1.0), (3, 1.0), (5, 3.0), (24, 0.7)] {
            let x = native.constant(&[numbers.len()], &numbers);
            let rounded = native.values(&native.round_to_bits(&x, bits, range));
            let encoding = NumberEncoding::Levels(Rounding { bits, range });
            let packed = BitString::pack(&numbers, encoding);
            assert_eq!(packed.len(), 7 * u64::from(bits));
            assert_eq!(packed.unpack::<f32>(encoding), rounded, "{bits} bits over {range}");
        }
    }

    #[test]
    fn few_bits_round_to_nearest_even() {
        let bfloat16 = NumberEncoding::new(16).unwrap();
        // Steps of 1/256 above 1: half the distance between neighbouring bfloat16 numbers there.
        let rounded = |step: i16| bfloat16.round(1.0 + f32::from(step) / 256.0).to_bits();
        let exact = |step: i16| (1.0 + f32::from(step) / 256.0).to_bits();
        assert_eq!([0, 2, 4, -128].map(rounded), [0, 2, 4, -128].map(exact));
        assert_eq!([1, 3, 5].map(rounded), [0, 4, 4].map(exact), "ties go to even");
        let round_bits = |number: f32| bfloat16.round(number).to_bits();
        assert_eq!([1.003, 1.005].map(round_bits), [0, 2].map(exact));
        assert_eq!(BitString::pack(&[1.0_f32; 3], NumberEncoding::new(9).unwrap()).len(), 27);
        assert!([0, 8, 33, 63].into_iter().all(|bits| NumberEncoding::new(bits).is_none()));
    }
}
