//! Norms over rows: RMS, layer and L2, as one kernel.
//!
//! All three are `y = (x - m) r w + b` with `r = 1 / sqrt(f sum (x - m)^2 + epsilon)`: the RMS norm has `m = 0` and
//! `f = 1 / width`, the layer norm has the mean for `m`, the L2 norm has `f = 1`. The forward pass keeps `m` and `r` of each
//! row. With `z = (x - m) r` and `g = slope w`, the gradient is `r (g - mean(g) - f z sum(g z))`, where `mean(g)` is there
//! for the layer norm only.

use crate::scalar::Scalar;

/// Which of the three norms, and its epsilon.
#[derive(Clone, Copy)]
pub(crate) struct Norm {
    pub(crate) centred: bool,
    pub(crate) averaged: bool,
    pub(crate) epsilon: f64,
}

impl Norm {
    #[inline(always)]
    fn factor<S: Scalar>(self, width: usize) -> S {
        if self.averaged { S::from_f64(1.0 / width as f64) } else { S::ONE }
    }
}

const LANES: usize = 16;

/// Sum over a row of a function of its index, in lanes so that it becomes vector code.
#[inline(always)]
fn row_sum<S: Scalar>(width: usize, term: impl Fn(usize) -> S) -> S {
    let mut lanes = [S::ZERO; LANES];
    let whole = width / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(start + lane);
        }
    }
    let mut sum = S::ZERO;
    for index in whole..width {
        sum += term(index);
    }
    lanes.into_iter().fold(sum, |sum, lane| sum + lane)
}

vectorised! {
    /// Normalises rows of `width`; `kept` receives mean and reciprocal root of each row.
    pub(crate) fn forward<S>(norm: Norm, width: usize, x: &[S], weight: &[S], bias: &[S], kept: &mut [S], out: &mut [S]) {
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width)).zip(kept.chunks_exact_mut(2));
        for ((x, out), kept) in rows {
            let mean = if norm.centred { row_sum(width, |i| x[i]) / S::from_f64(width as f64) } else { S::ZERO };
            let squares = row_sum(width, |i| (x[i] - mean) * (x[i] - mean));
            let root = S::ONE / (squares * norm.factor(width) + S::from_f64(norm.epsilon)).sqrt();
            kept.copy_from_slice(&[mean, root]);
            for (out, &x) in out.iter_mut().zip(x) {
                *out = (x - mean) * root;
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

    /// Gradient to the input; with a weight, its gradient and that of the bias are added up.
    pub(crate) fn backward<S>(
        norm: Norm,
        width: usize,
        x: &[S],
        weight: &[S],
        kept: &[S],
        slope: &[S],
        to_x: &mut [S],
        to_weight: &mut [S],
        to_bias: &mut [S],
    ) {
        let factor: S = norm.factor(width);
        let rows = x.chunks_exact(width).zip(slope.chunks_exact(width)).zip(kept.chunks_exact(2));
        for (((x, slope), kept), out) in rows.zip(to_x.chunks_exact_mut(width)) {
            let (mean, root) = (kept[0], kept[1]);
            if weight.is_empty() {
                out.copy_from_slice(slope);
            } else {
                for ((out, &slope), &weight) in out.iter_mut().zip(slope).zip(weight) {
                    *out = slope * weight;
                }
                for ((to_weight, &slope), &x) in to_weight.iter_mut().zip(slope).zip(x) {
                    *to_weight += slope * (x - mean) * root;
                }
                for (to_bias, &slope) in to_bias.iter_mut().zip(slope) {
                    *to_bias += slope;
                }
            }
            let shared = if norm.centred { row_sum(width, |i| out[i]) / S::from_f64(width as f64) } else { S::ZERO };
            let along = row_sum(width, |i| out[i] * (x[i] - mean)) * root * factor;
            for (out, &x) in out.iter_mut().zip(x) {
                *out = root * (*out - shared - (x - mean) * root * along);
            }
        }
    }
}
