//! Numbers as bits on a wire.
//!
//! A number crosses in p bits: all of its own (32 or 64), or the first p of single precision, rounded to the nearest. 16 bits are
//! what is called bfloat16. The bits are really packed, so that the length of a message is a count and not a formula.

use rung_engine::Scalar;

/// Bits that a number crosses in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width(u32);

impl Width {
    /// Fewest bits: a sign and the exponent of single precision.
    pub const FEWEST: u32 = 9;

    /// As many as the number type has.
    pub fn whole<S: Scalar>() -> Self {
        Self(8 * size_of::<S>() as u32)
    }

    /// The first `bits` of single precision, or all of single or double.
    pub fn new(bits: u32) -> Option<Self> {
        ((Self::FEWEST..=32).contains(&bits) || bits == 64).then_some(Self(bits))
    }

    /// How many.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// A number as it arrives on the other side.
    pub fn rounded<S: Scalar>(self, number: S) -> S {
        S::of(self.decode(self.encode(number.wide())))
    }

    fn encode(self, number: f64) -> u64 {
        if self.0 == 64 {
            return number.to_bits();
        }
        let whole = u64::from((number as f32).to_bits());
        let dropped = 32 - self.0;
        if dropped == 0 || !number.is_finite() {
            return whole >> dropped;
        }
        // To the nearest, ties to even; an overflow of the fraction raises the exponent, as it should.
        let half = (1_u64 << (dropped - 1)) - 1 + (whole >> dropped & 1);
        (whole + half) >> dropped
    }

    fn decode(self, code: u64) -> f64 {
        if self.0 == 64 { f64::from_bits(code) } else { f64::from(f32::from_bits((code << (32 - self.0)) as u32)) }
    }
}

/// Bits in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    bytes: Vec<u8>,
    bits: u64,
}

impl Wire {
    /// Numbers, packed.
    pub fn of<S: Scalar>(numbers: &[S], width: Width) -> Self {
        let mut wire = Self::default();
        for number in numbers {
            let code = width.encode(number.wide());
            for bit in 0..width.0 {
                wire.push(code >> bit & 1 == 1);
            }
        }
        wire
    }

    /// The numbers on it.
    pub fn numbers<S: Scalar>(&self, width: Width) -> Vec<S> {
        let bit = |at: u64| u64::from(self.bytes[(at / 8) as usize] >> (at % 8) & 1);
        let code = |first: u64| (0..width.0).fold(0, |code, place| code | bit(first + u64::from(place)) << place);
        let count = self.bits / u64::from(width.0);
        (0..count).map(|index| S::of(width.decode(code(index * u64::from(width.0))))).collect()
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
    use super::*;

    #[test]
    fn whole_numbers_cross_as_they_are() {
        let numbers = [0.0_f32, -0.0, 1.5, -3.25e-20, f32::MAX, f32::MIN_POSITIVE];
        let wire = Wire::of(&numbers, Width::whole::<f32>());
        assert_eq!(wire.bits(), 32 * 6);
        let arrived: Vec<f32> = wire.numbers(Width::whole::<f32>());
        assert!(numbers.iter().zip(&arrived).all(|(sent, got)| sent.to_bits() == got.to_bits()));
        let wire = Wire::of(&[0.1_f64], Width::whole::<f64>());
        assert_eq!((wire.bits(), wire.numbers::<f64>(Width::whole::<f64>())), (64, vec![0.1]));
    }

    #[test]
    fn few_bits_round_to_the_nearest() {
        let brain = Width::new(16).unwrap();
        // In steps of 1/256, half a step of what 16 bits hold next to 1.
        let rounded = |step: i16| brain.rounded(1.0 + f32::from(step) / 256.0).to_bits();
        let whole = |step: i16| (1.0 + f32::from(step) / 256.0).to_bits();
        assert_eq!([0, 2, 4, -128].map(rounded), [0, 2, 4, -128].map(whole));
        assert_eq!([1, 3, 5].map(rounded), [0, 4, 4].map(whole), "ties go to even");
        let near = |number: f32| brain.rounded(number).to_bits();
        assert_eq!([1.003, 1.005].map(near), [0, 2].map(whole));
        assert_eq!(Wire::of(&[1.0_f32; 3], Width::new(9).unwrap()).bits(), 27);
        assert!([0, 8, 33, 63].into_iter().all(|bits| Width::new(bits).is_none()));
    }
}
