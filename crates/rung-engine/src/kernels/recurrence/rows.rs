//! The loops inside a chunk of a recurrence: factors from log-decays, rows times factors, and the delta rule's triangular system.
//!
//! A row of factors has one number for all channels or one per channel.

use crate::scalar::Scalar;

/// The lowest log-decay that a channel may reach inside a chunk: with `e^60`, values up to a thousand do not overflow in single
/// precision.
pub(super) const MIN_LOG_DECAY: f64 = -60.0;

vectorised! {
    /// Computes the factors `e^b` and `e^-b` of as many of `count` tokens as may be in one chunk; returns how many.
    /// `decay` holds the rows of log-decays, `stride` apart.
    pub(super) fn compute_decay_factors<S>(
        decay: &[S],
        stride: usize,
        columns: usize,
        count: usize,
        decay_factors: &mut [S],
        inverse_decay_factors: &mut [S],
    ) -> usize {
        decay_factors[..columns].fill(S::ZERO);
        for token in 1..count {
            let (previous, current) = decay_factors[(token - 1) * columns..(token + 1) * columns].split_at_mut(columns);
            let decay = &decay[token * stride..token * stride + columns];
            let mut minimum = S::ZERO;
            for ((current, &previous), &decay) in current.iter_mut().zip(&*previous).zip(decay) {
                *current = previous + decay;
                minimum = if *current < minimum { *current } else { minimum };
            }
            if minimum < S::from_f64(MIN_LOG_DECAY) {
                return exponentiate(decay_factors, inverse_decay_factors, token, columns);
            }
        }
        exponentiate(decay_factors, inverse_decay_factors, count, columns)
    }

    /// `out = x * factors`; the factors may be a single number.
    pub(super) fn scale_row<S>(x: &[S], factors: &[S], out: &mut [S]) {
        match *factors {
            [factor] => for (out, &x) in out.iter_mut().zip(x) { *out = x * factor },
            _ => for ((out, &x), &factor) in out.iter_mut().zip(x).zip(factors) { *out = x * factor },
        }
    }

    /// `out += x * factors`; the factors may be a single number.
    pub(super) fn add_scaled_row<S>(x: &[S], factors: &[S], out: &mut [S]) {
        match *factors {
            [factor] => for (out, &x) in out.iter_mut().zip(x) { *out = x.mul_add(factor, *out) },
            _ => for ((out, &x), &factor) in out.iter_mut().zip(x).zip(factors) { *out = x.mul_add(factor, *out) },
        }
    }

    /// Zeroes a square matrix above its diagonal, and on it if `strict`.
    pub(super) fn zero_upper_triangle<S>(count: usize, strict: bool, x: &mut [S]) {
        for (row, x) in x.chunks_exact_mut(count).take(count).enumerate() {
            x[row + usize::from(!strict)..].fill(S::ZERO);
        }
    }

    /// Forward substitution for the delta rule: `errors` holds the right-hand sides and receives the errors; `writes` receives
    /// `beta * error`. `stride` is the distance between the betas of two tokens.
    pub(super) fn solve_delta<S>(
        count: usize,
        width: usize,
        overlaps: &[S],
        beta: &[S],
        stride: usize,
        errors: &mut [S],
        writes: &mut [S],
    ) {
        for row in 0..count {
            let error = &mut errors[row * width..(row + 1) * width];
            for (earlier, &overlap) in overlaps[row * count..row * count + row].iter().enumerate() {
                let writes = &writes[earlier * width..(earlier + 1) * width];
                for (error, &writes) in error.iter_mut().zip(writes) {
                    *error = writes.mul_add(-overlap, *error);
                }
            }
            let beta = beta[row * stride];
            for (writes, &error) in writes[row * width..(row + 1) * width].iter_mut().zip(&*error) {
                *writes = error * beta;
            }
        }
    }

    /// Gradient of [`solve_delta`]: computes `grad_errors` from `grad_writes`, and adds to `grad_beta`.
    pub(super) fn solve_delta_backward<S>(
        count: usize,
        width: usize,
        overlaps: &[S],
        beta: &[S],
        stride: usize,
        errors: &[S],
        grad_writes: &mut [S],
        grad_errors: &mut [S],
        grad_beta: &mut [S],
    ) {
        for row in (0..count).rev() {
            let grad_write = &mut grad_writes[row * width..(row + 1) * width];
            for later in row + 1..count {
                let overlap = overlaps[later * count + row];
                let grad_error = &grad_errors[later * width..(later + 1) * width];
                for (grad_write, &grad_error) in grad_write.iter_mut().zip(grad_error) {
                    *grad_write = grad_error.mul_add(-overlap, *grad_write);
                }
            }
            let mut beta_sum = S::ZERO;
            let beta = beta[row * stride];
            let rows = grad_errors[row * width..(row + 1) * width].iter_mut().zip(&errors[row * width..]);
            for ((grad_error, &error), &grad_write) in rows.zip(&*grad_write) {
                *grad_error = grad_write * beta;
                beta_sum += grad_write * error;
            }
            grad_beta[row * stride] += beta_sum;
        }
    }

    /// `out[d] += sign * sum_v left[d, v] right[d, v]`, summed over `d` as well if `out` has one element.
    pub(super) fn row_dots<S>(width: usize, left: &[S], right: &[S], sign: S, out: &mut [S]) {
        let to_one_number = out.len() == 1;
        for (row, (left, right)) in left.chunks_exact(width).zip(right.chunks_exact(width)).enumerate() {
            let mut sum = S::ZERO;
            for (&left, &right) in left.iter().zip(right) {
                sum += left * right;
            }
            out[if to_one_number { 0 } else { row }] += sum * sign;
        }
    }

    /// `out += sign * left * right` by element, summed if `out` has one element.
    pub(super) fn add_products<S>(left: &[S], right: &[S], sign: S, out: &mut [S]) {
        if let [out] = out {
            let mut sum = S::ZERO;
            for (&left, &right) in left.iter().zip(right) {
                sum += left * right;
            }
            *out += sum * sign;
            return;
        }
        for ((out, &left), &right) in out.iter_mut().zip(left).zip(right) {
            *out += left * right * sign;
        }
    }

    /// Multiplies the rows of a state by the exponentials of log-decays, one per row or one for all.
    pub(super) fn decay_rows<S>(width: usize, decay: &[S], state: &mut [S]) {
        for (row, state) in state.chunks_exact_mut(width).enumerate() {
            let factor = decay[if decay.len() == 1 { 0 } else { row }].exp();
            for x in state {
                *x *= factor;
            }
        }
    }

    /// Multiplies the rows of a state by factors, one per row or one for all; no factors leave it unchanged.
    pub(super) fn scale_rows<S>(width: usize, factors: &[S], state: &mut [S]) {
        if factors.is_empty() {
            return;
        }
        for (row, state) in state.chunks_exact_mut(width).enumerate() {
            let factor = factors[if factors.len() == 1 { 0 } else { row }];
            for x in state {
                *x *= factor;
            }
        }
    }
}

/// Replaces cumulative log-decays by `e^b` and writes `e^-b`, for `count` tokens; returns `count`.
#[inline(always)]
fn exponentiate<S: Scalar>(
    decay_factors: &mut [S],
    inverse_decay_factors: &mut [S],
    count: usize,
    columns: usize,
) -> usize {
    for (factor, inverse_factor) in decay_factors[..count * columns].iter_mut().zip(inverse_decay_factors) {
        *inverse_factor = (-*factor).exp();
        *factor = (*factor).exp();
    }
    count
}
