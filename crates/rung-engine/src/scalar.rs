//! The two element types (dtypes) the engine computes with.
//!
//! `f32` is for training; `f64` is for checking gradients, where finite differences need more digits than `f32` has. Kernels are
//! generic over [`Scalar`].
//!
//! The `f32` exponential is our own: the C library's is a call per element, which would prevent vector code. Ours is a dozen
//! multiply-adds without a branch, so a loop over it becomes vector code; its error is below 2 ulp. The `f64` exponential is the
//! library's, since `f64` is not used where speed matters.

#![expect(
    clippy::inline_always,
    reason = "only code that is inlined into a kernel is compiled for its instruction set"
)]
#![expect(clippy::return_self_not_must_use, reason = "functions of arithmetic, like those of the standard library")]

use crate::kernels::product::Workspace;
use crate::kernels::transpose;
use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// A floating-point number: `f32` or `f64`.
pub trait Scalar:
    Copy
    + Debug
    + Display
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Sum
    + Workspace
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Minus infinity, the start of a running maximum.
    const LOWEST: Self;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;
    /// The same number as `f64`.
    fn to_f64(self) -> f64;
    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// e to the power of `self`.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// Nearest integer, halves to even.
    fn round(self) -> Self;
    /// `self` with the sign of `other`.
    fn copysign(self, other: Self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// The same numbers if this type is `f32`.
    fn as_f32(_numbers: &[Self]) -> Option<&[f32]> {
        None
    }
    /// The same numbers, to write, if this type is `f32`.
    fn as_f32_mut(_numbers: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
    /// Transposes a block of eight by eight.
    #[inline(always)]
    fn transpose_block(block: &[[Self; 8]; 8]) -> [[Self; 8]; 8] {
        transpose::transpose_scalar(block)
    }

    /// The larger of two numbers; `other` if either is NaN, as the vector instruction does.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// `1 / (1 + exp(-self))`.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }

    /// Hyperbolic tangent, from `exp(-2 |self|)`, which cannot overflow.
    #[inline(always)]
    fn tanh(self) -> Self {
        let exponential = (self.abs() * Self::from_f64(-2.0)).exp();
        ((Self::ONE - exponential) / (Self::ONE + exponential)).copysign(self)
    }

    /// `ln(1 + exp(self))` without overflow.
    #[inline(always)]
    fn softplus(self) -> Self {
        self.larger(Self::ZERO) + (Self::ONE + (-self.abs()).exp()).ln()
    }
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f64::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        f64::mul_add(self, factor, term)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        f64::ln(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f64::abs(self)
    }
    #[inline(always)]
    fn round(self) -> Self {
        f64::round_ties_even(self)
    }
    #[inline(always)]
    fn copysign(self, other: Self) -> Self {
        f64::copysign(self, other)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

/// Below this argument the exponential is zero.
const EXP_LOWEST: f32 = -87.3;
/// Above this argument the exponential is infinite.
const EXP_HIGHEST: f32 = 88.3;
/// The leading digits of ln 2, few enough that small multiples are exact.
const LN2_HIGH: f32 = 0.693_359_4;
/// The remaining digits of ln 2.
const LN2_LOW: f32 = -2.121_944_4e-4;
/// 1.5 * 2^23. Adding it rounds a small number to an integer, which is then in the low bits.
const ROUNDER: f32 = 12_582_912.0;

impl Scalar for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f32::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn as_f32(numbers: &[Self]) -> Option<&[f32]> {
        Some(numbers)
    }
    fn as_f32_mut(numbers: &mut [Self]) -> Option<&mut [f32]> {
        Some(numbers)
    }
    #[inline(always)]
    fn transpose_block(block: &[[Self; 8]; 8]) -> [[Self; 8]; 8] {
        transpose::transpose_f32(block)
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        f32::mul_add(self, factor, term)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        let shifted = f32::mul_add(self, std::f32::consts::LOG2_E, ROUNDER);
        let power = shifted - ROUNDER;
        let remainder = f32::mul_add(power, -LN2_HIGH, self);
        let remainder = f32::mul_add(power, -LN2_LOW, remainder);
        let mut series = 1.0 / 5040.0;
        for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            series = f32::mul_add(series, remainder, coefficient);
        }
        let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
        let value = series * scale;
        let value = if self < EXP_LOWEST { 0.0 } else { value };
        if self > EXP_HIGHEST { f32::INFINITY } else { value }
    }
    #[inline(always)]
    fn ln(self) -> Self {
        f32::ln(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f32::abs(self)
    }
    #[inline(always)]
    fn round(self) -> Self {
        f32::round_ties_even(self)
    }
    #[inline(always)]
    fn copysign(self, other: Self) -> Self {
        f32::copysign(self, other)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

#[cfg(test)]
mod tests {
    use super::Scalar;

    #[test]
    fn exp_of_f32_agrees_with_the_library() {
        for step in -8700..8800 {
            let x = step as f32 / 100.0;
            let (ours, library) = (Scalar::exp(x), f64::from(x).exp());
            assert!((f64::from(ours) / library - 1.0).abs() < 3e-7, "exp({x}) = {ours}, not {library}");
        }
        assert_eq!(Scalar::exp(-1e30_f32).to_bits(), 0);
        assert!(Scalar::exp(f32::NEG_INFINITY) == 0.0 && Scalar::exp(100.0_f32).is_infinite());
        assert!(Scalar::exp(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoid_and_tanh_are_finite_for_large_arguments() {
        for x in [-1e30_f32, -90.0, 0.0, 90.0, 1e30] {
            assert!(x.sigmoid().is_finite() && Scalar::tanh(x).is_finite());
            assert!((0.0..=1.0).contains(&x.sigmoid()) && Scalar::tanh(x).abs() <= 1.0);
        }
        assert!((0.3_f32.softplus() - 0.854_355_2).abs() < 1e-6);
    }
}
