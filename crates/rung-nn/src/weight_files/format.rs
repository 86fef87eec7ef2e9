//! Number formats of stored tensors, and their conversion to single precision.
//!
//! The `Q` formats of GGUF store blocks of 32 elements (the `K` formats of 256) as small integers q with a factor d and perhaps an offset m
//! in half precision: `x = d q`, or `x = d q + m`; the `K` formats also have a 6-bit or 8-bit scale for every 16 or 32 elements. `MXFP4`
//! stores 4-bit floats with a power of two as the factor of 32 elements. The layouts are those of `ggml-quants.c` in llama.cpp.

/// An element type (dtype).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorFormat {
    /// Double precision.
    F64,
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16: the upper 16 bits of single precision.
    BF16,
    /// 8 bits, with a factor for 32 elements.
    Q8_0,
    /// 4 bits, with a factor for 32 elements.
    Q4_0,
    /// 4 bits, with a factor and an offset for 32 elements.
    Q4_1,
    /// 5 bits, with a factor for 32 elements.
    Q5_0,
    /// 5 bits, with a factor and an offset for 32 elements.
    Q5_1,
    /// 4 bits, with a factor and an offset of 6 bits each for 32 elements.
    Q4K,
    /// 5 bits, with a factor and an offset of 6 bits each for 32 elements.
    Q5K,
    /// 6 bits, with a factor of 8 bits for 16 elements.
    Q6K,
    /// 4-bit floats, with a power of two as factor for 32 elements.
    MxFp4,
}

/// The value of each 4-bit float of `MXFP4`: one bit of sign, two of exponent and one of fraction.
const FP4: [f64; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

impl TensorFormat {
    /// The format that a GGUF header denotes by this type id.
    pub fn from_gguf_type(type_id: u32) -> Option<Self> {
        Some(match type_id {
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
            39 => Self::MxFp4,
            _ => return None,
        })
    }

    /// Its name in llama.cpp and safetensors.
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
            Self::MxFp4 => "MXFP4",
        }
    }

    /// The number of elements and of bytes of a block.
    pub fn block_sizes(self) -> (usize, usize) {
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
            Self::MxFp4 => (32, 17),
        }
    }

    /// Bytes of this many elements; `None` if it is no multiple of the block size.
    pub fn bytes(self, elements: usize) -> Option<usize> {
        let (block, bytes) = self.block_sizes();
        if elements.is_multiple_of(block) { (elements / block).checked_mul(bytes) } else { None }
    }

    /// Calls `visit` with every number in some bytes. Bytes after the last whole block are ignored.
    pub fn decode(self, bytes: &[u8], mut visit: impl FnMut(f32)) {
        match self {
            Self::F64 => bytes.as_chunks().0.iter().for_each(|x| visit(f64::from_le_bytes(*x) as f32)),
            Self::F32 => bytes.as_chunks().0.iter().for_each(|x| visit(f32::from_le_bytes(*x))),
            Self::F16 => bytes.as_chunks().0.iter().for_each(|x| visit(decode_f16(*x))),
            Self::BF16 => bytes.as_chunks().0.iter().for_each(|x| visit(decode_bf16(*x))),
            Self::Q8_0 => bytes.as_chunks::<34>().0.iter().for_each(|block| {
                let factor = decode_f16([block[0], block[1]]);
                block[2..].iter().for_each(|&q| visit(factor * f32::from(q.cast_signed())));
            }),
            Self::Q4_0 => bytes.as_chunks::<18>().0.iter().for_each(|block| {
                let factor = decode_f16([block[0], block[1]]);
                visit_nibbles(&block[2..], |_, q| visit(factor * (f32::from(q) - 8.0)));
            }),
            Self::Q4_1 => bytes.as_chunks::<20>().0.iter().for_each(|block| {
                let (factor, offset) = (decode_f16([block[0], block[1]]), decode_f16([block[2], block[3]]));
                visit_nibbles(&block[4..], |_, q| visit(factor * f32::from(q) + offset));
            }),
            Self::Q5_0 => bytes.as_chunks::<22>().0.iter().for_each(|block| {
                let factor = decode_f16([block[0], block[1]]);
                let fifth_bits = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
                visit_nibbles(&block[6..], |index, q| {
                    visit(factor * (f32::from(q | fifth_bit(fifth_bits, index)) - 16.0));
                });
            }),
            Self::Q5_1 => bytes.as_chunks::<24>().0.iter().for_each(|block| {
                let (factor, offset) = (decode_f16([block[0], block[1]]), decode_f16([block[2], block[3]]));
                let fifth_bits = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
                visit_nibbles(&block[8..], |index, q| {
                    visit(factor * f32::from(q | fifth_bit(fifth_bits, index)) + offset);
                });
            }),
            Self::Q4K => bytes.as_chunks::<144>().0.iter().for_each(|block| {
                let (scales, quants) = block.split_at(16);
                decode_q4_k_or_q5_k(scales, quants, &[], &mut visit);
            }),
            Self::Q5K => bytes.as_chunks::<176>().0.iter().for_each(|block| {
                let (scales, quants) = block.split_at(16);
                let (fifth_bits, quants) = quants.split_at(32);
                decode_q4_k_or_q5_k(scales, quants, fifth_bits, &mut visit);
            }),
            Self::Q6K => bytes.as_chunks::<210>().0.iter().for_each(|block| decode_q6_k(block, &mut visit)),
            Self::MxFp4 => bytes.as_chunks::<17>().0.iter().for_each(|block| {
                let factor = 2.0_f64.powi(i32::from(block[0]) - 127);
                visit_nibbles(&block[1..], |_, q| visit((factor * FP4[usize::from(q)]) as f32));
            }),
        }
    }
}

/// A number in half precision.
fn decode_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, exponent, fraction) = ((bits & 0x8000) << 16, (bits >> 10) & 31, bits & 0x3ff);
    match exponent {
        // A subnormal: the fraction in units of 2^-24, which is exact in single precision.
        0 => f32::from_bits(sign | (fraction as f32 * (1.0 / 16_777_216.0)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

/// A number in bfloat16.
fn decode_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// Calls `visit` with the lower four bits of all bytes, then with the upper four bits, each with its index.
fn visit_nibbles(bytes: &[u8], mut visit: impl FnMut(usize, u8)) {
    bytes.iter().enumerate().for_each(|(index, &byte)| visit(index, byte & 15));
    bytes.iter().enumerate().for_each(|(index, &byte)| visit(bytes.len() + index, byte >> 4));
}

/// The fifth bit of the number at an index, shifted to its value of 16.
fn fifth_bit(bits: u32, index: usize) -> u8 {
    ((bits >> index & 1) << 4) as u8
}

/// `Q4_K` and `Q5_K`. `scales` has a factor, an offset, and eight pairs of 6-bit scales in 12 bytes. `quants` are groups of 32 bytes, whose
/// lower and upper four bits are the 32 elements of one scale each. Bit s of the bytes of `fifth_bits` belongs to scale s.
fn decode_q4_k_or_q5_k(scales: &[u8], quants: &[u8], fifth_bits: &[u8], visit: &mut impl FnMut(f32)) {
    let (factor, offset) = (decode_f16([scales[0], scales[1]]), decode_f16([scales[2], scales[3]]));
    let packed = &scales[4..16];
    for scale in 0..8 {
        let (factor_scale, offset_scale) = if scale < 4 {
            (packed[scale] & 63, packed[scale + 4] & 63)
        } else {
            let shared = packed[scale + 4];
            (shared & 15 | packed[scale - 4] >> 6 << 4, shared >> 4 | packed[scale] >> 6 << 4)
        };
        let (factor, offset) = (factor * f32::from(factor_scale), offset * f32::from(offset_scale));
        for (index, byte) in quants[scale / 2 * 32..][..32].iter().enumerate() {
            let nibble = if scale % 2 == 0 { byte & 15 } else { byte >> 4 };
            let fifth_bit = fifth_bits.get(index).map_or(0, |bits| (bits >> scale & 1) << 4);
            visit(factor * f32::from(nibble | fifth_bit) - offset);
        }
    }
}

/// `Q6_K`: the lower four bits of 256 elements, their upper two bits, sixteen 8-bit scales, and a factor.
fn decode_q6_k(block: &[u8; 210], visit: &mut impl FnMut(f32)) {
    let (lower, upper, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let factor = decode_f16([block[208], block[209]]);
    for group in 0..8 {
        // Two halves of 128 elements; in each, four groups of 32 elements share 32 bytes of upper bits.
        let (half, quarter) = (group / 4, group % 4);
        for index in 0..32 {
            let byte = lower[half * 64 + quarter % 2 * 32 + index];
            let nibble = if quarter < 2 { byte & 15 } else { byte >> 4 };
            let upper_bits = (upper[half * 32 + index] >> (2 * quarter) & 3) << 4;
            let scale = f32::from(scales[half * 8 + quarter * 2 + index / 16].cast_signed());
            visit(factor * scale * (f32::from(nibble | upper_bits) - 32.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_decoded_exactly() {
        let decode = |bits: u16| decode_f16(bits.to_le_bytes());
        let check = |bits: u16, expected: f32| assert_eq!(decode(bits).to_bits(), expected.to_bits(), "{bits:#06x}");
        check(0x3c00, 1.0);
        check(0xc000, -2.0);
        check(0x7bff, 65504.0);
        check(0x0001, 2.0_f32.powi(-24));
        check(0x83ff, -1023.0 * 2.0_f32.powi(-24));
        check(0x8000, -0.0);
        check(0xfc00, f32::NEG_INFINITY);
        assert!(decode(0x7e00).is_nan());
    }
}
