//! Matrix products over strided views.
//!
//! A [`Matrix`] is a slice with extents and strides; attention and the recurrences use the strides to read one head out of
//! `[batch, time, head, width]` without copying.
//!
//! The product itself is the usual one of fast libraries, in safe Rust. The right operand is copied, a block at a time, into
//! panels of two vectors' width; a tile of six rows by one panel keeps its sums in registers while it runs down the block;
//! the left operand is read where it lies, in either orientation, since each of its numbers is spread over a vector anyway. On
//! the machines at hand this is within a tenth of the `gemm` crate on large products and ahead of it on the small ones that
//! attention heads make. We do not use that crate because it allocates in every call, and a training step must not: the panels
//! here live in space that each thread keeps.
//!
//! A few rows against a transposed matrix, as in decoding, are dot products: packing the matrix would cost more than the
//! product.

use crate::kernels::vectorised::level;
use crate::scalar::Scalar;
use std::cell::RefCell;
use std::ops::Range;

/// Space that a thread keeps for rearranged operands, left and right.
pub trait Workspace: Sized {
    /// Runs with the thread's space.
    fn with_space<R>(run: impl FnOnce(&mut [Vec<Self>; 2]) -> R) -> R;
}

macro_rules! workspace {
    ($($scalar:ty),*) => {$(
        impl Workspace for $scalar {
            fn with_space<R>(run: impl FnOnce(&mut [Vec<Self>; 2]) -> R) -> R {
                thread_local! {
                    static SPACE: RefCell<[Vec<$scalar>; 2]> = const { RefCell::new([const { Vec::new() }; 2]) };
                }
                SPACE.with_borrow_mut(run)
            }
        }
    )*};
}
workspace!(f32, f64);

/// A read-only matrix inside a slice.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, S> {
    data: &'a [S],
    extents: [usize; 2],
    strides: [usize; 2],
}

/// A matrix inside a slice, to write.
pub(crate) struct MatrixMut<'a, S> {
    data: &'a mut [S],
    extents: [usize; 2],
    stride: usize,
}

/// Whether every element of a view lies inside a slice of this length.
fn fits(length: usize, extents: [usize; 2], strides: [usize; 2]) -> bool {
    extents.contains(&0) || (extents[0] - 1) * strides[0] + (extents[1] - 1) * strides[1] < length
}

impl<'a, S> Matrix<'a, S> {
    /// Rows of `columns` elements, each `stride` after the one before.
    pub(crate) fn new(data: &'a [S], rows: usize, columns: usize, stride: usize) -> Self {
        let (extents, strides) = ([rows, columns], [stride, 1]);
        assert!(fits(data.len(), extents, strides), "a {rows} x {columns} view of {} elements", data.len());
        Self { data, extents, strides }
    }

    /// The view with rows and columns exchanged.
    pub(crate) fn t(self) -> Self {
        let ([rows, columns], [down, along]) = (self.extents, self.strides);
        Self { data: self.data, extents: [columns, rows], strides: [along, down] }
    }

    /// The view, transposed if asked.
    pub(crate) fn flipped(self, flip: bool) -> Self {
        if flip { self.t() } else { self }
    }
}

impl<'a, S> MatrixMut<'a, S> {
    /// Rows of `columns` elements, each `stride` after the one before.
    pub(crate) fn new(data: &'a mut [S], rows: usize, columns: usize, stride: usize) -> Self {
        let extents = [rows, columns];
        assert!(fits(data.len(), extents, [stride, 1]), "a {rows} x {columns} view of {} elements", data.len());
        assert!(stride >= columns || rows <= 1, "rows of a matrix that is written do not overlap");
        Self { data, extents, stride }
    }
}

/// What a product does with its destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// Replaces it.
    Fresh,
    /// Is added to it.
    Sum,
}

/// Rows of a tile of the result: with two vectors across, twelve sums, which is what sixteen registers hold beside operands.
const TILE: usize = 6;
/// Depth of a block: its panel of the right operand stays in the first-level cache.
const DEPTH: usize = 256;
/// Up to this many rows, a product with a transposed matrix is done as dot products.
const FEW_ROWS: usize = 4;
/// Side of the blocks in which a matrix is turned.
const BLOCK: usize = 8;

/// `out = factor * left right`, or that added to `out`.
pub(crate) fn product<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    into: Into,
    factor: f64,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let ([rows, columns], [left_rows, inner], [right_rows, right_columns]) = (out.extents, left.extents, right.extents);
    assert!(
        rows == left_rows && columns == right_columns && inner == right_rows,
        "a {left_rows} x {inner} times a {right_rows} x {right_columns} matrix into {rows} x {columns}"
    );
    if rows == 0 || columns == 0 {
        return;
    }
    let factor = S::of(factor);
    if rows <= FEW_ROWS && left.strides[1] == 1 && right.strides[0] == 1 {
        return dots(out, into, factor, left, right.t());
    }
    match (size_of::<S>(), level().is_widest()) {
        (4, true) => blocks::<S, 32>(out, into, factor, left, right),
        (4, false) | (8, true) => blocks::<S, 16>(out, into, factor, left, right),
        _ => blocks::<S, 8>(out, into, factor, left, right),
    }
}

/// The product, `DEPTH` terms of every sum at a time, with panels of `WIDTH` columns.
fn blocks<S: Scalar, const WIDTH: usize>(
    out: &mut MatrixMut<'_, S>,
    into: Into,
    factor: S,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let ([rows, columns], inner) = (out.extents, left.extents[1]);
    if inner == 0 && into == Into::Fresh {
        out.data.chunks_mut(out.stride).take(rows).for_each(|row| row[..columns].fill(S::ZERO));
    }
    S::with_space(|[left_space, panels]| {
        let left = if rows < TILE { left.in_rows(left_space) } else { left };
        for start in (0..inner).step_by(DEPTH) {
            let depth = DEPTH.min(inner - start);
            let panels = at_least(panels, columns.div_ceil(WIDTH) * WIDTH * depth);
            for (panel, first) in panels.chunks_exact_mut(WIDTH * depth).zip((0..columns).step_by(WIDTH)) {
                right.pack::<WIDTH>(start..start + depth, first..columns.min(first + WIDTH), panel);
            }
            let add = into == Into::Sum || start > 0;
            let part = &left.data[start * left.strides[1]..];
            tiles::<S, WIDTH>([rows, columns, depth], part, left.strides, panels, factor, add, out.data, out.stride);
        }
    });
}

/// The first `length` numbers of a space that grows when needed.
fn at_least<S: Scalar>(space: &mut Vec<S>, length: usize) -> &mut [S] {
    if space.len() < length {
        space.resize(length, S::ZERO);
    }
    &mut space[..length]
}

impl<'a, S: Scalar> Matrix<'a, S> {
    /// The matrix with each row in one piece: itself, or turned into `space`.
    fn in_rows(self, space: &'a mut Vec<S>) -> Self {
        let [rows, columns] = self.extents;
        if self.strides[1] == 1 {
            return self;
        }
        let space = at_least(space, rows * columns);
        turn(self.data, columns, rows, self.strides[1], space, columns);
        Matrix::new(space, rows, columns, columns)
    }

    /// Copies a part to rows of `WIDTH`, with zeros after its columns.
    fn pack<const WIDTH: usize>(&self, rows: Range<usize>, columns: Range<usize>, panel: &mut [S]) {
        if columns.len() < WIDTH {
            panel.fill(S::ZERO);
        }
        let [down, along] = self.strides;
        if along != 1 {
            let part = &self.data[columns.start * along + rows.start..];
            return turn(part, columns.len(), rows.len(), along, panel, WIDTH);
        }
        for (row, copy) in rows.zip(panel.as_chunks_mut::<WIDTH>().0) {
            let part = &self.data[row * down + columns.start..row * down + columns.end];
            match part.first_chunk::<WIDTH>() {
                Some(part) => *copy = *part,
                None => copy[..part.len()].copy_from_slice(part),
            }
        }
    }
}

/// Products of few rows with the rows of another matrix.
fn dots<S: Scalar>(out: &mut MatrixMut<'_, S>, into: Into, factor: S, left: Matrix<'_, S>, right: Matrix<'_, S>) {
    let [count, inner] = right.extents;
    for row in 0..left.extents[0] {
        let left = &left.data[row * left.strides[0]..row * left.strides[0] + inner];
        for column in 0..count {
            let right = &right.data[column * right.strides[0]..column * right.strides[0] + inner];
            let out = &mut out.data[row * out.stride + column];
            let sum = dot(left, right) * factor;
            *out = if into == Into::Sum { *out + sum } else { sum };
        }
    }
}

vectorised! {
    /// `out[j, i] = x[i, j]` for a matrix of `rows` by `columns` whose rows are `stride` apart.
    fn turn<S>(x: &[S], rows: usize, columns: usize, stride: usize, out: &mut [S], out_stride: usize) {
        let mut block = [[S::ZERO; BLOCK]; BLOCK];
        for top in (0..rows).step_by(BLOCK) {
            let height = BLOCK.min(rows - top);
            for side in (0..columns).step_by(BLOCK) {
                let width = BLOCK.min(columns - side);
                if height == BLOCK && width == BLOCK {
                    for (row, block) in block.iter_mut().enumerate() {
                        let start = (top + row) * stride + side;
                        block.copy_from_slice(&x[start..start + BLOCK]);
                    }
                    for column in 0..BLOCK {
                        let start = (side + column) * out_stride + top;
                        let out = &mut out[start..start + BLOCK];
                        for (out, block) in out.iter_mut().zip(&block) {
                            *out = block[column];
                        }
                    }
                    continue;
                }
                for row in 0..height {
                    for column in 0..width {
                        out[(side + column) * out_stride + top + row] = x[(top + row) * stride + side + column];
                    }
                }
            }
        }
    }

    /// Dot product of two rows.
    pub(crate) fn dot<S>(left: &[S], right: &[S]) -> S {
        let mut lanes = [S::ZERO; 16];
        let mut sum = S::ZERO;
        let (mut lefts, mut rights) = (left.chunks_exact(16), right.chunks_exact(16));
        for (left, right) in lefts.by_ref().zip(rights.by_ref()) {
            for ((lane, &left), &right) in lanes.iter_mut().zip(left).zip(right) {
                *lane = left.mul_add(right, *lane);
            }
        }
        for (&left, &right) in lefts.remainder().iter().zip(rights.remainder()) {
            sum = left.mul_add(right, sum);
        }
        lanes.into_iter().fold(sum, |sum, lane| sum + lane)
    }
}

/// Sums of a tile whose left rows lie in one piece each.
#[inline(always)]
fn tile<S: Scalar, const WIDTH: usize>(left: [&[S]; TILE], panel: &[S]) -> [[S; WIDTH]; TILE] {
    let mut sums = [[S::ZERO; WIDTH]; TILE];
    // Zipped slices are walked without a check at each step; indexing six of them would be six checks.
    let [a, b, c, d, e, f] = left;
    let left = a.iter().zip(b).zip(c).zip(d).zip(e).zip(f);
    for (right, (((((&a, &b), &c), &d), &e), &f)) in panel.as_chunks::<WIDTH>().0.iter().zip(left) {
        add_outer(&mut sums, &[a, b, c, d, e, f], right);
    }
    sums
}

/// `sums += left right'`.
#[inline(always)]
fn add_outer<S: Scalar, const WIDTH: usize>(sums: &mut [[S; WIDTH]; TILE], left: &[S; TILE], right: &[S; WIDTH]) {
    for row in 0..TILE {
        for column in 0..WIDTH {
            sums[row][column] = left[row].mul_add(right[column], sums[row][column]);
        }
    }
}

/// Sums of a tile whose left columns lie in one piece each, `stride` apart.
#[inline(always)]
fn tile_across<S: Scalar, const WIDTH: usize>(left: &[S], stride: usize, panel: &[S]) -> [[S; WIDTH]; TILE] {
    let mut sums = [[S::ZERO; WIDTH]; TILE];
    for (right, left) in panel.as_chunks::<WIDTH>().0.iter().zip(left.chunks(stride)) {
        let left = left.first_chunk().expect("a whole tile");
        add_outer(&mut sums, left, right);
    }
    sums
}

/// Stores a row of a tile. Inlined twice: for a row of known width, and for what is left over.
#[inline(always)]
fn store<S: Scalar>(sums: &[S], factor: S, add: bool, out: &mut [S]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = if add { sum.mul_add(factor, *out) } else { sum * factor };
    }
}

vectorised! {
    /// All tiles of a block: `out = factor * left panels`, or that added.
    fn tiles<S, const WIDTH: usize>(
        extents: [usize; 3],
        left: &[S],
        strides: [usize; 2],
        panels: &[S],
        factor: S,
        add: bool,
        out: &mut [S],
        stride: usize,
    ) {
        let [rows, columns, depth] = extents;
        for first in (0..rows).step_by(TILE) {
            let height = TILE.min(rows - first);
            // A last tile of fewer rows starts earlier, and its first rows are not stored again.
            let top = first.min(rows.saturating_sub(TILE));
            for (panel, side) in panels.chunks_exact(WIDTH * depth).zip((0..columns).step_by(WIDTH)) {
                let sums = if strides[1] == 1 {
                    let row = |index: usize| &left[(top + index).min(rows - 1) * strides[0]..][..depth];
                    tile::<S, WIDTH>([row(0), row(1), row(2), row(3), row(4), row(5)], panel)
                } else {
                    tile_across::<S, WIDTH>(&left[top..], strides[1], panel)
                };
                let width = WIDTH.min(columns - side);
                for index in 0..height {
                    let start = (first + index) * stride + side;
                    let (out, sums) = (&mut out[start..start + width], &sums[first - top + index]);
                    if let Some(out) = out.first_chunk_mut::<WIDTH>() {
                        store(sums, factor, add, out);
                    } else {
                        store(&sums[..width], factor, add, out);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of small whole numbers, whose products are exact, in a slice with room between rows.
    fn matrix(rows: usize, columns: usize, stride: usize) -> Vec<f32> {
        (0..rows * stride).map(|index| ((index * 7 + rows + columns) % 9) as f32 - 4.0).collect()
    }

    #[test]
    fn every_orientation_and_edge_agrees_with_the_definition() {
        for [rows, columns, inner] in [[1, 1, 1], [4, 9, 33], [5, 16, 300], [6, 17, 8], [13, 40, 257], [64, 64, 16]] {
            for (flip_left, flip_right) in [(false, false), (false, true), (true, false), (true, true)] {
                let shape =
                    |flip: bool, [rows, columns]: [usize; 2]| if flip { [columns, rows] } else { [rows, columns] };
                let ([l_rows, l_columns], [r_rows, r_columns]) =
                    (shape(flip_left, [rows, inner]), shape(flip_right, [inner, columns]));
                let (left, right) =
                    (matrix(l_rows, l_columns, l_columns + 3), matrix(r_rows, r_columns, r_columns + 1));
                let left = Matrix::new(&left, l_rows, l_columns, l_columns + 3).flipped(flip_left);
                let right = Matrix::new(&right, r_rows, r_columns, r_columns + 1).flipped(flip_right);
                let mut out = vec![1.0; rows * (columns + 2)];
                for into in [Into::Fresh, Into::Sum] {
                    product(&mut MatrixMut::new(&mut out, rows, columns, columns + 2), into, 2.0, left, right);
                }
                let at =
                    |x: &Matrix<'_, f32>, row: usize, column: usize| x.data[row * x.strides[0] + column * x.strides[1]];
                for (row, out) in out.chunks_exact(columns + 2).enumerate() {
                    for (column, &out) in out[..columns].iter().enumerate() {
                        let sum: f32 = (0..inner).map(|term| at(&left, row, term) * at(&right, term, column)).sum();
                        assert!((out - 4.0 * sum).abs() < 1e-3, "{rows} x {columns} x {inner} at {row}, {column}");
                    }
                    assert_eq!(out[columns..], [1.0, 1.0], "what lies between rows is not touched");
                }
            }
        }
    }

    #[test]
    fn a_sum_of_no_terms_is_zero() {
        let mut out = [5.0_f32; 12];
        let nothing = Matrix::new(&[], 6, 0, 0);
        product(&mut MatrixMut::new(&mut out, 6, 2, 2), Into::Fresh, 1.0, nothing, Matrix::new(&[], 0, 2, 2));
        assert!(out.iter().all(|x| x.to_bits() == 0));
    }
}
