//! Operations on one row at a time: activations, norms, the loss, rounding.

use crate::ops::{Ops, Rounding, Unary};
use crate::scalar::Scalar;

/// Composed function of [`Ops::softmax`].
pub fn softmax<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> O::Tensor {
    let axis = ops.shape(x).len() - 1;
    let exponentials = ops.exp(&ops.sub(x, &ops.max(x, axis)));
    ops.div(&exponentials, &ops.sum(&exponentials, axis))
}

/// Composed function of [`Ops::linear`].
pub fn linear<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, weight: &O::Tensor, bias: Option<&O::Tensor>) -> O::Tensor {
    let y = ops.product(x, false, weight, true);
    bias.map_or(y.clone(), |bias| ops.add(&y, bias))
}

/// Composed function of [`Ops::silu`].
pub fn silu<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> O::Tensor {
    ops.mul(x, &ops.sigmoid(x))
}

/// Composed function of [`Ops::elu_plus_one`].
pub fn elu_plus_one<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> O::Tensor {
    let negative_part = ops.neg(&ops.relu(&ops.neg(x)));
    ops.add(&ops.relu(x), &ops.exp(&negative_part))
}

/// Composed function of [`Ops::silu_gate`].
pub fn silu_gate<O: Ops + ?Sized>(ops: &O, gate: &O::Tensor, x: &O::Tensor) -> O::Tensor {
    ops.mul(&silu(ops, gate), x)
}

/// Composed function of [`Ops::gelu`].
pub fn gelu<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> O::Tensor {
    let cube = ops.mul(&ops.mul(x, x), x);
    let inner = ops.scale(&ops.add(x, &ops.scale(&cube, 0.044_715)), (2.0 / std::f64::consts::PI).sqrt());
    ops.mul(&ops.scale(x, 0.5), &ops.affine(&ops.tanh(&inner), 1.0, 1.0))
}

/// Coefficients, lowest power first, of `erfc(z) exp(z^2) / t` with `t = 1 / (1 + z / 2)` as a polynomial in `8 t / 3 - 5 / 3`: a
/// Chebyshev fit for z from 0 to 6. The error of `erfc` computed with it is below 2e-14 for every z.
const ERFC_COEFFICIENTS: [f64; 17] = [
    6.056_598_670_867_85e-1,
    3.121_042_135_297_20e-1,
    8.378_961_740_932_97e-2,
    2.515_716_705_721_61e-3,
    -4.181_821_073_760_25e-3,
    -1.554_901_539_478_91e-4,
    3.070_289_827_904_35e-4,
    -2.335_155_737_272_53e-5,
    -2.230_975_289_008_74e-5,
    6.556_174_000_321_11e-6,
    6.088_788_953_524_10e-7,
    -8.251_016_981_791_33e-7,
    1.745_616_123_225_27e-7,
    4.272_987_633_418_21e-8,
    -3.263_318_157_337_55e-8,
    2.072_639_123_958_42e-9,
    2.141_494_969_355_34e-9,
];

/// Composed function of [`Ops::gelu_exact`]: `x / 2 + |x| (1/2 - erfc(|x| / sqrt 2) / 2)`.
///
/// The error function is not a primitive. The polynomial is computed without gradient; the derivative, a Gaussian, is added as the
/// factor of a difference whose value is zero.
pub fn gelu_exact<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> O::Tensor {
    let magnitude = ops.add(&ops.relu(x), &ops.relu(&ops.neg(x)));
    let constant = ops.detach(&magnitude);
    let scaled = ops.scale(&constant, std::f64::consts::FRAC_1_SQRT_2);
    let gaussian = ops.exp(&ops.neg(&ops.mul(&scaled, &scaled)));
    let t = ops.div(&ops.full(&[1], 1.0), &ops.affine(&scaled, 0.5, 1.0));
    let variable = ops.affine(&t, 8.0 / 3.0, -5.0 / 3.0);
    let [lower @ .., highest] = &ERFC_COEFFICIENTS;
    let highest = ops.full(&ops.shape(x), *highest);
    let polynomial =
        lower.iter().rev().fold(highest, |sum, &coefficient| ops.affine(&ops.mul(&sum, &variable), 1.0, coefficient));
    let half_erfc = ops.scale(&ops.mul(&ops.mul(&polynomial, &t), &gaussian), 0.5);
    let factor = ops.affine(&half_erfc, -1.0, 0.5);
    let derivative = ops.scale(&ops.mul(&constant, &gaussian), (std::f64::consts::TAU).powf(-0.5));
    let zero = ops.sub(&magnitude, &constant);
    let even_part = ops.add(&ops.mul(&magnitude, &factor), &ops.mul(&zero, &derivative));
    ops.add(&ops.scale(x, 0.5), &even_part)
}

/// `x / sqrt(factor * sum(x^2) + epsilon)` over the last axis.
fn divide_by_root<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, factor: f64, epsilon: f64) -> O::Tensor {
    let squares = ops.sum(&ops.mul(x, x), ops.shape(x).len() - 1);
    ops.div(x, &ops.sqrt(&ops.affine(&squares, factor, epsilon)))
}

/// Composed function of [`Ops::l2_norm`].
pub fn l2_norm<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, epsilon: f64) -> O::Tensor {
    divide_by_root(ops, x, 1.0, epsilon)
}

/// Composed function of [`Ops::rms_norm`].
pub fn rms_norm<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, weight: Option<&O::Tensor>, epsilon: f64) -> O::Tensor {
    let y = divide_by_root(ops, x, 1.0 / ops.shape(x).width() as f64, epsilon);
    weight.map_or(y.clone(), |weight| ops.mul(&y, weight))
}

/// Composed function of [`Ops::layer_norm`].
pub fn layer_norm<O: Ops + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    weight: Option<&O::Tensor>,
    bias: Option<&O::Tensor>,
    epsilon: f64,
) -> O::Tensor {
    let centred = ops.sub(x, &ops.mean(x, ops.shape(x).len() - 1));
    let y = rms_norm(ops, &centred, weight, epsilon);
    bias.map_or(y.clone(), |bias| ops.add(&y, bias))
}

/// Composed function of [`Ops::cross_entropy`].
pub fn cross_entropy<O: Ops + ?Sized>(ops: &O, logits: &O::Tensor, targets: &[usize]) -> O::Tensor {
    let [rows, classes] = ops.shape(logits)[..] else { panic!("logits of shape {}", ops.shape(logits)) };
    assert_eq!(rows, targets.len(), "one target per row of logits");
    let mut one_hot = vec![O::Scalar::ZERO; rows * classes];
    for (row, &target) in targets.iter().enumerate() {
        assert!(target < classes, "target {target} of row {row} among {classes} classes");
        one_hot[row * classes + target] = O::Scalar::ONE;
    }
    let shifted = ops.sub(logits, &ops.max(logits, 1));
    let log_sum = ops.log(&ops.sum(&ops.exp(&shifted), 1));
    let target_logit = ops.sum(&ops.mul(&shifted, &ops.constant(&[rows, classes], &one_hot)), 1);
    ops.reshape(&ops.sub(&log_sum, &target_logit), &[rows])
}

/// Composed function of [`Ops::round_to_bits`].
pub fn round_to_bits<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, bits: u32, range: f64) -> O::Tensor {
    assert!((1..=Rounding::MAX_BITS).contains(&bits) && range > 0.0, "{bits} bits over a range of {range}");
    let half = f64::from(1_u32 << (bits - 1));
    // Clamp to -half..half - 1 with two ReLUs, since there is no primitive that clamps.
    let level = ops.unary(Unary::Round, &ops.scale(&ops.detach(x), half / range));
    let level = ops.affine(&ops.relu(&ops.affine(&level, 1.0, half)), 1.0, -half);
    let level = ops.affine(&ops.relu(&ops.affine(&level, -1.0, half - 1.0)), -1.0, half - 1.0);
    let rounded = ops.scale(&level, range / half);
    // The difference is exactly zero but has the gradient of `x`.
    ops.add(&rounded, &ops.sub(x, &ops.detach(x)))
}
