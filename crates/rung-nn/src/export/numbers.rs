//! Number formats of exported weights.

/// An element type (dtype).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// Single precision.
    F32,
    /// bfloat16: the upper 16 bits of single precision.
    Bf16,
    /// Half precision.
    F16,
}

impl NumberFormat {
    /// Every format with the name that users type.
    pub const ALL: [(&'static str, Self); 3] = [("f32", Self::F32), ("bf16", Self::Bf16), ("f16", Self::F16)];

    /// The bytes of numbers, rounded to nearest, ties to even.
    pub fn encode(self, values: &[f64]) -> Vec<u8> {
        let values = values.iter().map(|value| *value as f32);
        match self {
            Self::F32 => values.flat_map(f32::to_le_bytes).collect(),
            Self::Bf16 => values.flat_map(|value| encode_bf16(value).to_le_bytes()).collect(),
            Self::F16 => values.flat_map(|value| encode_f16(value).to_le_bytes()).collect(),
        }
    }
}

/// The bits of a finite number in bfloat16.
fn encode_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// The bits of a finite number in half precision; numbers beyond the range become infinite.
fn encode_f16(value: f32) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = f64::from(value.abs());
    // The exponent of the power of two at or below the number; subnormal numbers have that of the smallest normal number.
    let exponent = if magnitude < 2_f64.powi(-14) { -14 } else { magnitude.log2().floor() as i32 };
    let ulps = (magnitude / 2_f64.powi(exponent - 10)).round_ties_even();
    // Rounding up to the next power of two increments the exponent.
    let number = f64::from(exponent + 14) * 1024.0 + ulps;
    sign | if number >= f64::from(0x7C00) { 0x7C00 } else { number as u16 }
}

#[cfg(test)]
mod tests {
    use crate::weight_files::TensorFormat;

    use super::*;

    #[test]
    fn encoded_numbers_are_within_half_an_ulp() {
        for (format, decoder, fraction_bits) in
            [(NumberFormat::F16, TensorFormat::F16, 11), (NumberFormat::Bf16, TensorFormat::BF16, 8)]
        {
            let mut values = vec![0.0, -0.0, 1.0, -1.5, 0.1, 65504.0, 6e-8, 1e-5, -4096.5, 2.345_678_912];
            values.extend((0..2000).map(|index| (f64::from(index) * 0.37).exp2().fract() * f64::from(index - 1000)));
            let mut decoded = Vec::new();
            decoder.decode(&format.encode(&values), |value| decoded.push(f64::from(value)));
            for (value, decoded) in values.iter().zip(decoded) {
                let unit = value.abs().max(2_f64.powi(-14)) * 2_f64.powi(-fraction_bits);
                assert!((value - decoded).abs() <= unit, "{format:?} {value} {decoded}");
            }
        }
        assert_eq!(NumberFormat::F16.encode(&[1.0, -2.0]), [0x00, 0x3C, 0x00, 0xC0]);
        assert_eq!(NumberFormat::F16.encode(&[1e6]), [0x00, 0x7C]);
    }
}
