//! The loops inside a chunk of a recurrence: decays into factors, factors onto rows, and the delta rule's triangular system.
//!
//! A row of factors has one number for all channels or one for each.

use crate::scalar::Scalar;

/// How far a channel may fade inside a chunk, as a log: `e^60` leaves room for values of a thousand in single precision.
pub(super) const FADE: f64 = -60.0;

vectorised! {
    /// Exponents of a chunk: `rise` receives `e^b`, `fall` receives `e^-b`, for as many tokens as may share a chunk.
    /// `decay` holds the rows of the tokens, `stride` apart. Returns the number of tokens.
    pub(super) fn exponents<S>(
        decay: &[S],
        stride: usize,
        columns: usize,
        count: usize,
        rise: &mut [S],
        fall: &mut [S],
    ) -> usize {
        rise[..columns].fill(S::ZERO);
        for token in 1..count {
            let (before, now) = rise[(token - 1) * columns..(token + 1) * columns].split_at_mut(columns);
            let decay = &decay[token * stride..token * stride + columns];
            let mut lowest = S::ZERO;
            for ((now, &before), &decay) in now.iter_mut().zip(&*before).zip(decay) {
                *now = before + decay;
                lowest = if *now < lowest { *now } else { lowest };
            }
            if lowest < S::from_f64(FADE) {
                return raise(rise, fall, token, columns);
            }
        }
        raise(rise, fall, count, columns)
    }

    /// `out = x * factors`; the factors may be a single number.
    pub(super) fn scale_row<S>(x: &[S], factors: &[S], out: &mut [S]) {
        match *factors {
            [factor] => for (out, &x) in out.iter_mut().zip(x) { *out = x * factor },
            _ => for ((out, &x), &factor) in out.iter_mut().zip(x).zip(factors) { *out = x * factor },
        }
    }

    /// `out += x * factors`, likewise.
    pub(super) fn add_scaled_row<S>(x: &[S], factors: &[S], out: &mut [S]) {
        match *factors {
            [factor] => for (out, &x) in out.iter_mut().zip(x) { *out = x.mul_add(factor, *out) },
            _ => for ((out, &x), &factor) in out.iter_mut().zip(x).zip(factors) { *out = x.mul_add(factor, *out) },
        }
    }

    /// Zeroes a square matrix above its diagonal, and on it if `strict`.
    pub(super) fn lower<S>(count: usize, strict: bool, x: &mut [S]) {
        for (row, x) in x.chunks_exact_mut(count).take(count).enumerate() {
            x[row + usize::from(!strict)..].fill(S::ZERO);
        }
    }

    /// The delta rule's errors, one token after another, in place of their right sides; and what is written.
    pub(super) fn solve<S>(
        count: usize,
        width: usize,
        overlaps: &[S],
        beta: &[S],
        stride: usize,
        errors: &mut [S],
        written: &mut [S],
    ) {
        for row in 0..count {
            let error = &mut errors[row * width..(row + 1) * width];
            for (earlier, &overlap) in overlaps[row * count..row * count + row].iter().enumerate() {
                let written = &written[earlier * width..(earlier + 1) * width];
                for (error, &written) in error.iter_mut().zip(written) {
                    *error = written.mul_add(-overlap, *error);
                }
            }
            let beta = beta[row * stride];
            for (written, &error) in written[row * width..(row + 1) * width].iter_mut().zip(&*error) {
                *written = error * beta;
            }
        }
    }

    /// The reverse of [`solve`]: the gradient of what was written becomes the gradient of the errors; beta's is added.
    pub(super) fn solve_back<S>(
        count: usize,
        width: usize,
        overlaps: &[S],
        beta: &[S],
        stride: usize,
        errors: &[S],
        to_written: &mut [S],
        to_errors: &mut [S],
        to_beta: &mut [S],
    ) {
        for row in (0..count).rev() {
            let slope = &mut to_written[row * width..(row + 1) * width];
            for later in row + 1..count {
                let overlap = overlaps[later * count + row];
                let to_error = &to_errors[later * width..(later + 1) * width];
                for (slope, &to_error) in slope.iter_mut().zip(to_error) {
                    *slope = to_error.mul_add(-overlap, *slope);
                }
            }
            let mut strength = S::ZERO;
            let beta = beta[row * stride];
            let rows = to_errors[row * width..(row + 1) * width].iter_mut().zip(&errors[row * width..]);
            for ((to_error, &error), &slope) in rows.zip(&*slope) {
                *to_error = slope * beta;
                strength += slope * error;
            }
            to_beta[row * stride] += strength;
        }
    }

    /// `out[d] += sum_v left[d, v] right[d, v]`, into one number if `out` is one.
    pub(super) fn row_dots<S>(width: usize, left: &[S], right: &[S], sign: S, out: &mut [S]) {
        let single = out.len() == 1;
        for (row, (left, right)) in left.chunks_exact(width).zip(right.chunks_exact(width)).enumerate() {
            let mut sum = S::ZERO;
            for (&left, &right) in left.iter().zip(right) {
                sum += left * right;
            }
            out[if single { 0 } else { row }] += sum * sign;
        }
    }

    /// `out += sign * left * right` by element, summed into one number if `out` is one.
    pub(super) fn multiply_into<S>(left: &[S], right: &[S], sign: S, out: &mut [S]) {
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

    /// Exponentials of decays, one per row (or one for all), on the rows of a state.
    pub(super) fn fade_rows<S>(width: usize, decay: &[S], state: &mut [S]) {
        for (row, state) in state.chunks_exact_mut(width).enumerate() {
            let factor = decay[if decay.len() == 1 { 0 } else { row }].exp();
            for x in state {
                *x *= factor;
            }
        }
    }

    /// Factors, one per row (or one for all, or none), on the rows of a state.
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

/// Turns summed log-decays into both exponentials; returns `count`.
#[inline(always)]
fn raise<S: Scalar>(rise: &mut [S], fall: &mut [S], count: usize, columns: usize) -> usize {
    for (rise, fall) in rise[..count * columns].iter_mut().zip(fall) {
        *fall = (-*rise).exp();
        *rise = (*rise).exp();
    }
    count
}
