//! Norms over rows: RMS, layer and L2, as one kernel.
//!
//! All three are `y = (x - m) r w + b` with `r = 1 / sqrt(f sum (x - m)^2 + epsilon)`: the RMS norm has `m = 0` and
//! `f = 1 / width`, the layer norm has the mean for `m`, the L2 norm has `f = 1`. The forward pass stores `m` and `r` of each
//! row, its statistics. With `z = (x - m) r` and `g = grad_out w`, the gradient is `r (g - mean(g) - f z sum(g z))`, where
//! `mean(g)` occurs in the layer norm only.

use crate::scalar::Scalar;

/// Which of the three norms, and its epsilon.
#[derive(Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) subtracts_mean: bool,
    pub(crate) divides_by_width: bool,
    pub(crate) epsilon: f64,
}

impl Norm {
    #[inline(always)]
    fn factor<S: Scalar>(self, width: usize) -> S {
        if self.divides_by_width { S::from_f64(1.0 / width as f64) } else { S::ONE }
    }
}

const LANES: usize = 16;

/// Sum of `term(index)` over a row, with `LANES` partial sums so that the loop becomes vector code.
#[inline(always)]
fn row_sum<S: Scalar>(width: usize, term: impl Fn(usize) -> S) -> S {
    let mut lanes = [S::ZERO; LANES];
    let vectorised_width = width / LANES * LANES;
    for start in (0..vectorised_width).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(start + lane);
        }
    }
    let mut sum = S::ZERO;
    for index in vectorised_width..width {
        sum += term(index);
    }
    lanes.into_iter().fold(sum, |sum, lane| sum + lane)
}

vectorised! {
    /// Normalises rows of `width`, and stores `m` and `r` of each row in `statistics`.
    pub(crate) fn forward<S>(norm: Norm, width: usize, x: &[S], weight: &[S], bias: &[S], statistics: &mut [S], out: &mut [S]) {
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width)).zip(statistics.chunks_exact_mut(2));
        for ((x, out), statistics) in rows {
            let mean = if norm.subtracts_mean { row_sum(width, |i| x[i]) / S::from_f64(width as f64) } else { S::ZERO };
            let squares = row_sum(width, |i| (x[i] - mean) * (x[i] - mean));
            let inverse_root = S::ONE / (squares * norm.factor(width) + S::from_f64(norm.epsilon)).sqrt();
            statistics.copy_from_slice(&[mean, inverse_root]);
            for (out, &x) in out.iter_mut().zip(x) {
                *out = (x - mean) * inverse_root;
            }
            if !weight.is_empty() {
                for (out, &weight) in out.iter_mut().zip(weight) {
                    *out *= weight;
                }
            }
            if !bias.is_empty() {
                for (out, &bias) in out.iter_mut().zip(bias) {
                    *out += bias;
                }
            }
        }
    }

    /// Computes the gradient of the input; with a weight, also adds to the gradients of the weight and the bias.
    pub(crate) fn backward<S>(
        norm: Norm,
        width: usize,
        x: &[S],
        weight: &[S],
        statistics: &[S],
        grad_out: &[S],
        grad_x: &mut [S],
        grad_weight: &mut [S],
        grad_bias: &mut [S],
    ) {
        let factor: S = norm.factor(width);
        let rows = x.chunks_exact(width).zip(grad_out.chunks_exact(width)).zip(statistics.chunks_exact(2));
        for (((x, grad_out), statistics), out) in rows.zip(grad_x.chunks_exact_mut(width)) {
            let (mean, inverse_root) = (statistics[0], statistics[1]);
            if weight.is_empty() {
                out.copy_from_slice(grad_out);
            } else {
                for ((out, &grad_out), &weight) in out.iter_mut().zip(grad_out).zip(weight) {
                    *out = grad_out * weight;
                }
                for ((grad_weight, &grad_out), &x) in grad_weight.iter_mut().zip(grad_out).zip(x) {
                    *grad_weight += grad_out * (x - mean) * inverse_root;
                }
                for (grad_bias, &grad_out) in grad_bias.iter_mut().zip(grad_out) {
                    *grad_bias += grad_out;
                }
            }
            let mean_gradient = if norm.subtracts_mean { row_sum(width, |i| out[i]) / S::from_f64(width as f64) } else { S::ZERO };
            let projection = row_sum(width, |i| out[i] * (x[i] - mean)) * inverse_root * factor;
            for (out, &x) in out.iter_mut().zip(x) {
                *out = inverse_root * (*out - mean_gradient - (x - mean) * inverse_root * projection);
            }
        }
    }
}
