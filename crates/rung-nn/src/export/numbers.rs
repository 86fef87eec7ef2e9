//! Number formats of exported weights.

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberFormat {
    /// Single precision.
    F32,
    /// The upper half of single precision.
    Bf16,
    /// Half precision.
    F16,
}

impl NumberFormat {
    /// Every format with the name that users type.
    pub const ALL: [(&'static str, Self); 3] = [("f32", Self::F32), ("bf16", Self::Bf16), ("f16", Self::F16)];

    /// The bytes of numbers, rounded to the nearest and to even where two are as near.
    pub fn encode(self, values: &[f64]) -> Vec<u8> {
        let values = values.iter().map(|value| *value as f32);
        match self {
            Self::F32 => values.flat_map(f32::to_le_bytes).collect(),
            Self::Bf16 => values.flat_map(|value| brain(value).to_le_bytes()).collect(),
            Self::F16 => values.flat_map(|value| half(value).to_le_bytes()).collect(),
        }
    }
}

/// Finite numbers only.
fn brain(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Finite numbers only; those beyond the range become infinite.
fn half(value: f32) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = f64::from(value.abs());
    // A unit in the last place: that of subnormal numbers, or 2^-10 of the power of two below.
    let exponent = if size < 2_f64.powi(-14) { -14 } else { size.log2().floor() as i32 };
    let steps = (size / 2_f64.powi(exponent - 10)).round_ties_even();
    // Rounding up to the next power of two carries into the exponent by itself.
    let number = f64::from(exponent + 14) * 1024.0 + steps;
    sign | if number >= f64::from(0x7C00) { 0x7C00 } else { number as u16 }
}

#[cfg(test)]
mod tests {
    use crate::weight_files::TensorFormat;

    use super::*;

    #[test]
    fn rounding_finds_the_nearest_number_of_the_format() {
        for (format, read, step) in
            [(NumberFormat::F16, TensorFormat::F16, 11), (NumberFormat::Bf16, TensorFormat::BF16, 8)]
        {
            let mut values = vec![0.0, -0.0, 1.0, -1.5, 0.1, 65504.0, 6e-8, 1e-5, -4096.5, 2.345_678_912];
            values.extend((0..2000).map(|at| (f64::from(at) * 0.37).exp2().fract() * f64::from(at - 1000)));
            let mut back = Vec::new();
            read.decode(&format.encode(&values), |value| back.push(f64::from(value)));
            for (value, back) in values.iter().zip(back) {
                let unit = value.abs().max(2_f64.powi(-14)) * 2_f64.powi(-step);
                assert!((value - back).abs() <= unit, "{format:?} {value} {back}");
            }
        }
        assert_eq!(NumberFormat::F16.encode(&[1.0, -2.0]), [0x00, 0x3C, 0x00, 0xC0]);
        assert_eq!(NumberFormat::F16.encode(&[1e6]), [0x00, 0x7C]);
    }
}
