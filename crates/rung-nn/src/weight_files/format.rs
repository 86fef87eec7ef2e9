//! Number formats of stored tensors, and how each becomes single precision.
//!
//! The `Q` formats of GGUF store blocks of 32 numbers (the `K` ones of 256) as small integers with one or two factors in half
//! precision: `x = d q`, or `x = d q + m`; the `K` ones have a 6-bit factor for every 16 or 32 numbers besides. The layouts are
//! those of `ggml-quants.c` in llama.cpp.

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorFormat {
    /// Double precision.
    F64,
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// 8 bits, a factor for 32.
    Q8_0,
    /// 4 bits, a factor for 32.
    Q4_0,
    /// 4 bits, a factor and an offset for 32.
    Q4_1,
    /// 5 bits, a factor for 32.
    Q5_0,
    /// 5 bits, a factor and an offset for 32.
    Q5_1,
    /// 4 bits, a factor and an offset for 32, themselves in 6 bits.
    Q4K,
    /// 5 bits, a factor and an offset for 32, themselves in 6 bits.
    Q5K,
    /// 6 bits, a factor for 16, itself in 8 bits.
    Q6K,
}

impl TensorFormat {
    /// The format of a number in a GGUF header.
    pub fn of_gguf(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            28 => Self::F64,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Numbers in a block, and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F64 => (1, 8),
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// Bytes of so many numbers, if they are whole blocks.
    pub fn bytes(self, numbers: usize) -> Option<usize> {
        let (block, bytes) = self.block();
        if numbers.is_multiple_of(block) { (numbers / block).checked_mul(bytes) } else { None }
    }

    /// The numbers in some bytes, one after another. What is left after the last whole block is ignored.
    pub fn decode(self, bytes: &[u8], mut each: impl FnMut(f32)) {
        match self {
            Self::F64 => bytes.as_chunks().0.iter().for_each(|x| each(f64::from_le_bytes(*x) as f32)),
            Self::F32 => bytes.as_chunks().0.iter().for_each(|x| each(f32::from_le_bytes(*x))),
            Self::F16 => bytes.as_chunks().0.iter().for_each(|x| each(half(*x))),
            Self::BF16 => bytes.as_chunks().0.iter().for_each(|x| each(bfloat16(*x))),
            Self::Q8_0 => bytes.as_chunks::<34>().0.iter().for_each(|block| {
                let factor = half([block[0], block[1]]);
                block[2..].iter().for_each(|&q| each(factor * f32::from(q.cast_signed())));
            }),
            Self::Q4_0 => bytes.as_chunks::<18>().0.iter().for_each(|block| {
                let factor = half([block[0], block[1]]);
                four_bit_numbers(&block[2..], |_, q| each(factor * (f32::from(q) - 8.0)));
            }),
            Self::Q4_1 => bytes.as_chunks::<20>().0.iter().for_each(|block| {
                let (factor, offset) = (half([block[0], block[1]]), half([block[2], block[3]]));
                four_bit_numbers(&block[4..], |_, q| each(factor * f32::from(q) + offset));
            }),
            Self::Q5_0 => bytes.as_chunks::<22>().0.iter().for_each(|block| {
                let factor = half([block[0], block[1]]);
                let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
                four_bit_numbers(&block[6..], |at, q| each(factor * (f32::from(q | bit(fifth, at)) - 16.0)));
            }),
            Self::Q5_1 => bytes.as_chunks::<24>().0.iter().for_each(|block| {
                let (factor, offset) = (half([block[0], block[1]]), half([block[2], block[3]]));
                let fifth = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
                four_bit_numbers(&block[8..], |at, q| each(factor * f32::from(q | bit(fifth, at)) + offset));
            }),
            Self::Q4K => bytes.as_chunks::<144>().0.iter().for_each(|block| {
                let (head, quants) = block.split_at(16);
                by_six_bit_scales(head, quants, &[], &mut each);
            }),
            Self::Q5K => bytes.as_chunks::<176>().0.iter().for_each(|block| {
                let (head, rest) = block.split_at(16);
                let (fifth, quants) = rest.split_at(32);
                by_six_bit_scales(head, quants, fifth, &mut each);
            }),
            Self::Q6K => bytes.as_chunks::<210>().0.iter().for_each(|block| six_bits(block, &mut each)),
        }
    }
}

/// A number in half precision.
fn half(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, exponent, fraction) = ((bits & 0x8000) << 16, (bits >> 10) & 31, bits & 0x3ff);
    match exponent {
        // A fraction without its leading one, in units of 2^-24: exact in single precision.
        0 => f32::from_bits(sign | (fraction as f32 * (1.0 / 16_777_216.0)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

/// A number whose lower half was cut off.
fn bfloat16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// The lower four bits of all bytes, then the upper ones, each with its place.
fn four_bit_numbers(bytes: &[u8], mut each: impl FnMut(usize, u8)) {
    bytes.iter().enumerate().for_each(|(at, &byte)| each(at, byte & 15));
    bytes.iter().enumerate().for_each(|(at, &byte)| each(bytes.len() + at, byte >> 4));
}

/// The fifth bit of the number at a place.
fn bit(bits: u32, at: usize) -> u8 {
    ((bits >> at & 1) << 4) as u8
}

/// `Q4_K` and `Q5_K`: a factor, an offset, eight pairs of 6-bit scales in 12 bytes, then the quants in runs of 32 bytes whose lower
/// and upper halves are a scale's 32 numbers each; the fifth bits lie across, one bit of each byte for each scale.
fn by_six_bit_scales(head: &[u8], quants: &[u8], fifth: &[u8], each: &mut impl FnMut(f32)) {
    let (factor, offset) = (half([head[0], head[1]]), half([head[2], head[3]]));
    let packed = &head[4..16];
    for scale in 0..8 {
        let (high, low) = if scale < 4 {
            (packed[scale] & 63, packed[scale + 4] & 63)
        } else {
            let shared = packed[scale + 4];
            (shared & 15 | packed[scale - 4] >> 6 << 4, shared >> 4 | packed[scale] >> 6 << 4)
        };
        let (factor, offset) = (factor * f32::from(high), offset * f32::from(low));
        for (at, byte) in quants[scale / 2 * 32..][..32].iter().enumerate() {
            let nibble = if scale % 2 == 0 { byte & 15 } else { byte >> 4 };
            let top = fifth.get(at).map_or(0, |bits| (bits >> scale & 1) << 4);
            each(factor * f32::from(nibble | top) - offset);
        }
    }
}

/// `Q6_K`: lower four bits of 256 numbers, upper two, sixteen 8-bit scales, a factor.
fn six_bits(block: &[u8; 210], each: &mut impl FnMut(f32)) {
    let (lower, rest) = block.split_at(128);
    let (upper, rest) = rest.split_at(64);
    let (scales, factor) = rest.split_at(16);
    let factor = half([factor[0], factor[1]]);
    for run in 0..8 {
        // Two halves of 128 numbers; in each, four runs of 32 share the upper bytes.
        let (part, turn) = (run / 4, run % 4);
        for at in 0..32 {
            let byte = lower[part * 64 + turn % 2 * 32 + at];
            let nibble = if turn < 2 { byte & 15 } else { byte >> 4 };
            let top = (upper[part * 32 + at] >> (2 * turn) & 3) << 4;
            let scale = f32::from(scales[part * 8 + turn * 2 + at / 16].cast_signed());
            each(factor * scale * (f32::from(nibble | top) - 32.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read_exactly() {
        let read = |bits: u16| half(bits.to_le_bytes());
        let same = |bits: u16, expected: f32| assert_eq!(read(bits).to_bits(), expected.to_bits(), "{bits:#06x}");
        same(0x3c00, 1.0);
        same(0xc000, -2.0);
        same(0x7bff, 65504.0);
        same(0x0001, 2.0_f32.powi(-24));
        same(0x83ff, -1023.0 * 2.0_f32.powi(-24));
        same(0x8000, -0.0);
        same(0xfc00, f32::NEG_INFINITY);
        assert!(read(0x7e00).is_nan());
    }
}
