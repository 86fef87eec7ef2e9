//! Moving elements: permutation, parts of an axis, rows by number, sums and maxima along an axis.
//!
//! An axis may have no extent: what is then moved is nothing, and the sum over it zero.

use crate::kernels::pointwise::{accumulate, total};
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};

/// `out[i0, i1, ..] = x` with axis `order[a]` of `x` running over `i_a`.
pub(crate) fn permute<S: Scalar>(shape: &Shape, order: &[usize], x: &[S], out: &mut [S]) {
    let rank = shape.len();
    let mut own = [1; MAX_RANK];
    for axis in (0..rank.saturating_sub(1)).rev() {
        own[axis] = own[axis + 1] * shape[axis + 1];
    }
    let inner = shape[order[rank - 1]];
    let step = own[order[rank - 1]];
    for (row, out) in out.chunks_exact_mut(inner.max(1)).enumerate() {
        let (mut rest, mut start) = (row, 0);
        for axis in (0..rank - 1).rev() {
            start += rest % shape[order[axis]] * own[order[axis]];
            rest /= shape[order[axis]];
        }
        if step == 1 {
            out.copy_from_slice(&x[start..start + inner]);
        } else {
            for (index, out) in out.iter_mut().enumerate() {
                *out = x[start + index * step];
            }
        }
    }
}

/// Copies `count` rows of an axis between two tensors that differ only in that axis.
///
/// Tensors are seen as `[outer, axis, inner]`; `from` and `to` give each one's extent of the axis and where to start in it.
pub(crate) fn move_rows<S: Scalar>(
    (outer, inner): (usize, usize),
    count: usize,
    (x, x_extent, x_start): (&[S], usize, usize),
    (out, out_extent, out_start): (&mut [S], usize, usize),
) {
    for index in 0..outer {
        let source = (index * x_extent + x_start) * inner;
        let target = (index * out_extent + out_start) * inner;
        out[target..target + count * inner].copy_from_slice(&x[source..source + count * inner]);
    }
}

/// Sum over the middle of `[outer, extent, inner]`.
pub(crate) fn sum<S: Scalar>((_, extent, inner): (usize, usize, usize), x: &[S], out: &mut [S]) {
    if x.is_empty() {
        return out.fill(S::ZERO);
    }
    if inner == 1 {
        for (out, row) in out.iter_mut().zip(x.chunks_exact(extent)) {
            *out = total(row);
        }
        return;
    }
    for (out, block) in out.chunks_exact_mut(inner).zip(x.chunks_exact(extent * inner)) {
        out.fill(S::ZERO);
        block.chunks_exact(inner).for_each(|row| accumulate(row, out));
    }
}

/// Maximum over the middle of `[outer, extent, inner]`; a NaN anywhere gives NaN.
pub(crate) fn max<S: Scalar>((_, extent, inner): (usize, usize, usize), x: &[S], out: &mut [S]) {
    for (out, block) in out.chunks_exact_mut(inner).zip(x.chunks_exact(extent * inner)) {
        out.copy_from_slice(&block[..inner]);
        for row in block.chunks_exact(inner) {
            for (out, &x) in out.iter_mut().zip(row) {
                // The negated comparison keeps a NaN on either side.
                #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN must win")]
                if !(x <= *out) {
                    *out = x;
                }
            }
        }
    }
}

/// Running sum along the middle of `[outer, extent, inner]`, from the end if `backwards`.
pub(crate) fn running_sum<S: Scalar>(
    (_, extent, inner): (usize, usize, usize),
    backwards: bool,
    x: &[S],
    out: &mut [S],
) {
    let size = (extent * inner).max(1);
    for (out, x) in out.chunks_exact_mut(size).zip(x.chunks_exact(size)) {
        for column in 0..inner {
            let mut sum = S::ZERO;
            for step in 0..extent {
                let row = if backwards { extent - 1 - step } else { step };
                sum += x[row * inner + column];
                out[row * inner + column] = sum;
            }
        }
    }
}

/// Copies the rows of these numbers.
pub(crate) fn gather<S: Scalar>(width: usize, rows: &[u32], x: &[S], out: &mut [S]) {
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&x[row as usize * width..(row as usize + 1) * width]);
    }
}

/// Adds rows back to where they were gathered from.
pub(crate) fn scatter<S: Scalar>(width: usize, rows: &[u32], x: &[S], out: &mut [S]) {
    for (&row, x) in rows.iter().zip(x.chunks_exact(width)) {
        accumulate(x, &mut out[row as usize * width..(row as usize + 1) * width]);
    }
}
