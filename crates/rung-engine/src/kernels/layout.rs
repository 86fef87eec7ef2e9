//! Operations on axes: permute, copy a range of an axis, gather rows, sum, maximum and cumulative sum along an axis.
//!
//! Operations along an axis see a tensor as `[outer, extent, inner]`, where `extent` is the size of the axis. It may be 0: then
//! nothing is copied, and the sum over the axis is 0.

use crate::kernels::pointwise::{accumulate, sum_row};
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};

/// Copies `x` with its axes in another order: axis `i` of `out` is axis `order[i]` of `x`.
pub(crate) fn permute<S: Scalar>(shape: &Shape, order: &[usize], x: &[S], out: &mut [S]) {
    let rank = shape.len();
    let mut strides = [1; MAX_RANK];
    for axis in (0..rank.saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1];
    }
    let row_len = shape[order[rank - 1]];
    let row_stride = strides[order[rank - 1]];
    for (row, out) in out.chunks_exact_mut(row_len.max(1)).enumerate() {
        let (mut outer_index, mut start) = (row, 0);
        for axis in (0..rank - 1).rev() {
            start += outer_index % shape[order[axis]] * strides[order[axis]];
            outer_index /= shape[order[axis]];
        }
        if row_stride == 1 {
            out.copy_from_slice(&x[start..start + row_len]);
        } else {
            for (index, out) in out.iter_mut().enumerate() {
                *out = x[start + index * row_stride];
            }
        }
    }
}

/// Copies a range of `count` indices of an axis from `x` to `out`, which differ in the extent of that axis only. Each is given with
/// its extent of the axis and the index at which its range starts.
pub(crate) fn copy_axis_range<S: Scalar>(
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

/// Sum along the axis of `[outer, extent, inner]`.
pub(crate) fn sum<S: Scalar>((_, extent, inner): (usize, usize, usize), x: &[S], out: &mut [S]) {
    if x.is_empty() {
        return out.fill(S::ZERO);
    }
    if inner == 1 {
        for (out, row) in out.iter_mut().zip(x.chunks_exact(extent)) {
            *out = sum_row(row);
        }
        return;
    }
    for (out, block) in out.chunks_exact_mut(inner).zip(x.chunks_exact(extent * inner)) {
        out.fill(S::ZERO);
        block.chunks_exact(inner).for_each(|row| accumulate(row, out));
    }
}

/// Maximum along the axis of `[outer, extent, inner]`; NaN if any element is NaN.
pub(crate) fn max<S: Scalar>((_, extent, inner): (usize, usize, usize), x: &[S], out: &mut [S]) {
    for (out, block) in out.chunks_exact_mut(inner).zip(x.chunks_exact(extent * inner)) {
        out.copy_from_slice(&block[..inner]);
        for row in block.chunks_exact(inner) {
            for (out, &x) in out.iter_mut().zip(row) {
                // The negated comparison keeps a NaN on either side.
                #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN counts as the maximum")]
                if !(x <= *out) {
                    *out = x;
                }
            }
        }
    }
}

/// Cumulative sum along the axis of `[outer, extent, inner]`, from the end if `backwards`.
pub(crate) fn cumulative_sum<S: Scalar>(
    (_, extent, inner): (usize, usize, usize),
    backwards: bool,
    x: &[S],
    out: &mut [S],
) {
    let size = (extent * inner).max(1);
    for (out, x) in out.chunks_exact_mut(size).zip(x.chunks_exact(size)) {
        for column in 0..inner {
            let mut sum = S::ZERO;
            for index in 0..extent {
                let row = if backwards { extent - 1 - index } else { index };
                sum += x[row * inner + column];
                out[row * inner + column] = sum;
            }
        }
    }
}

/// Copies rows by their indices.
pub(crate) fn gather_rows<S: Scalar>(width: usize, rows: &[u32], x: &[S], out: &mut [S]) {
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&x[row as usize * width..(row as usize + 1) * width]);
    }
}

/// Adds each row of `x` to the row of `out` with the given index: the gradient of [`gather_rows`].
pub(crate) fn scatter_add_rows<S: Scalar>(width: usize, rows: &[u32], x: &[S], out: &mut [S]) {
    for (&row, x) in rows.iter().zip(x.chunks_exact(width)) {
        accumulate(x, &mut out[row as usize * width..(row as usize + 1) * width]);
    }
}
