//! Matrix products over strided views.
//!
//! A [`Matrix`] is a slice with extents and strides; attention and the recurrences use the strides to read one head out of
//! `[batch, time, head, width]` without copying.
//!
//! The algorithm is the usual blocked GEMM, in safe Rust. The right operand is packed, a block at a time, into panels two
//! vectors wide, or one where that has space for all columns. A tile of six rows by one panel keeps its sums in registers while it runs down the block. The left operand is
//! read in place, since each of its numbers is broadcast to a vector anyway, unless its columns are contiguous and the result
//! is wide: then it is packed too. On the machines measured, large products reach more than 90% of the peak of fused
//! multiply-adds, and the small products of attention heads are faster than with the `gemm` crate. We do not use that crate
//! because it allocates in every call, and a training step must not: operands are packed into buffers that each thread keeps.
//!
//! Large products in single precision run on AMX where the processor has it (`product/amx.rs`).
//!
//! A few rows times a matrix, as in decoding, are computed without packing it, which would cost more than the product: as dot products
//! where the matrix is transposed, else as weighted sums of its rows.

#[cfg(target_arch = "x86_64")]
mod amx;

use crate::kernels::transpose::transpose;
use crate::kernels::vectorised::instruction_set;
use crate::scalar::Scalar;
use std::cell::RefCell;
use std::ops::Range;

/// An operand of a product.
#[derive(Clone, Copy)]
pub enum Operand {
    /// The left factor.
    Left,
    /// The right factor.
    Right,
}

/// Buffers that each thread keeps for packed operands.
pub trait Workspace: Sized {
    /// Calls `run` with this thread's buffer for one operand.
    fn with_buffer<R>(operand: Operand, run: impl FnOnce(&mut Vec<Self>) -> R) -> R;
}

macro_rules! workspace {
    ($($scalar:ty),*) => {$(
        impl Workspace for $scalar {
            fn with_buffer<R>(operand: Operand, run: impl FnOnce(&mut Vec<Self>) -> R) -> R {
                thread_local! {
                    static LEFT: RefCell<Vec<$scalar>> = const { RefCell::new(Vec::new()) };
                    static RIGHT: RefCell<Vec<$scalar>> = const { RefCell::new(Vec::new()) };
                }
                match operand {
                    Operand::Left => LEFT.with_borrow_mut(run),
                    Operand::Right => RIGHT.with_borrow_mut(run),
                }
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
        let ([rows, columns], [row_stride, column_stride]) = (self.extents, self.strides);
        Self { data: self.data, extents: [columns, rows], strides: [column_stride, row_stride] }
    }

    /// Rows and columns.
    pub(crate) fn extents(&self) -> [usize; 2] {
        self.extents
    }

    /// A view of a range of rows.
    pub(crate) fn rows(self, rows: Range<usize>) -> Self {
        let data = &self.data[(rows.start * self.strides[0]).min(self.data.len())..];
        Self { data, extents: [rows.len(), self.extents[1]], strides: self.strides }
    }

    /// A view of a range of columns.
    pub(crate) fn columns(self, columns: Range<usize>) -> Self {
        self.t().rows(columns).t()
    }

    /// The transposed view if `transpose`, otherwise the view itself.
    pub(crate) fn transposed_if(self, transpose: bool) -> Self {
        if transpose { self.t() } else { self }
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

impl<'a, S: Scalar> Matrix<'a, S> {
    /// The same view if its numbers are `f32`.
    #[cfg(target_arch = "x86_64")]
    fn as_f32(self) -> Option<Matrix<'a, f32>> {
        Some(Matrix { data: S::as_f32(self.data)?, extents: self.extents, strides: self.strides })
    }
}

impl<S: Scalar> MatrixMut<'_, S> {
    /// The same view if its numbers are `f32`.
    #[cfg(target_arch = "x86_64")]
    fn as_f32(&mut self) -> Option<MatrixMut<'_, f32>> {
        Some(MatrixMut { data: S::as_f32_mut(self.data)?, extents: self.extents, stride: self.stride })
    }

    /// The result of a product whose inner dimension is 0: zeros, or no change if it is added.
    fn write_empty_product(&mut self, mode: WriteMode) {
        if mode == WriteMode::Overwrite {
            let [rows, columns] = self.extents;
            self.data.chunks_mut(self.stride.max(1)).take(rows).for_each(|row| row[..columns].fill(S::ZERO));
        }
    }
}

/// What a product does with its destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// Overwrites it.
    Overwrite,
    /// Adds to it.
    Add,
}

/// Rows of a tile of the result. Two vectors wide, a tile has twelve vectors of sums, which fit sixteen registers with operands.
pub(crate) const TILE_ROWS: usize = 6;
/// Inner dimension of a block: a panel of the right operand this deep stays in the L1 cache.
pub(crate) const BLOCK_DEPTH: usize = 256;
/// Rows of a block of the left operand, which stays in the L2 cache while it is multiplied by one panel after another.
const BLOCK_ROWS: usize = 16 * TILE_ROWS;
/// Rows (or columns, if those are contiguous) that are packed at a time: few enough that source and destination stay in the
/// L1 cache, and enough that neither is accessed by strides alone.
const PACK_STRIP: usize = 8;
/// Up to this many rows, the right operand of a product is not packed.
pub(crate) const MAX_UNPACKED_ROWS: usize = 4;
/// Up to this many panels, a left operand whose columns are contiguous is read in place: packing it would take longer.
const MAX_UNPACKED_PANELS: usize = 4;

/// Rows that a product on AMX computes at once.
pub(crate) const AMX_PANEL: usize = 32;

/// Every width of a panel divides this.
pub(crate) const PANEL_ALIGNMENT: usize = 32;

/// A right operand packed into panels: blocks of `BLOCK_DEPTH` rows, in each the panels one after another. Several products may
/// use it, or a range of its rows, or its columns without the first or last panels.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, S> {
    data: &'a [S],
    extents: [usize; 2],
    /// How many columns at the left are not used; a multiple of the panel width.
    skipped_columns: usize,
}

impl<'a, S: Scalar> Panels<'a, S> {
    /// Columns of a panel of a wide matrix.
    pub(crate) fn max_width() -> usize {
        Self::width(usize::MAX)
    }

    /// How many numbers the panels of a matrix take.
    pub(crate) fn size(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(Self::width(columns))
    }

    /// Columns of a panel of a matrix with this many columns: two vectors, or one where that has space for all.
    pub(crate) fn width(columns: usize) -> usize {
        let vector = if instruction_set().is_avx512() { 64 } else { 32 } / size_of::<S>();
        if columns <= vector { vector } else { 2 * vector }
    }

    /// Columns with the zeros that fill up the last panel, without those that are skipped.
    pub(crate) fn packed_columns(&self) -> usize {
        self.extents[1].next_multiple_of(Self::width(self.extents[1])) - self.skipped_columns
    }

    /// Panels of a matrix of at most [`BLOCK_DEPTH`] rows that were already packed, a group of panels at a time.
    pub(crate) fn from_packed(extents: [usize; 2], buffer: &'a [S]) -> Self {
        Self { data: &buffer[..Self::size(extents[0], extents[1])], extents, skipped_columns: 0 }
    }

    /// Packs a matrix into a buffer of at least [`Panels::size`].
    pub(crate) fn pack(matrix: Matrix<'_, S>, buffer: &'a mut [S]) -> Self {
        let [rows, columns] = matrix.extents;
        let buffer = &mut buffer[..Self::size(rows, columns)];
        Self::pack_columns(matrix, 0..columns, buffer);
        Self { data: buffer, extents: matrix.extents, skipped_columns: 0 }
    }

    /// Packs a range of a matrix's columns, which starts with a panel.
    pub(crate) fn pack_columns(matrix: Matrix<'_, S>, columns: Range<usize>, buffer: &mut [S]) {
        let range = matrix.columns(columns);
        match Self::width(matrix.extents[1]) {
            32 => range.pack::<32>(buffer),
            16 => range.pack::<16>(buffer),
            8 => range.pack::<8>(buffer),
            _ => range.pack::<4>(buffer),
        }
    }

    /// The panels without their first columns, whose count is a multiple of [`PANEL_ALIGNMENT`].
    pub(crate) fn skip_columns(self, count: usize) -> Self {
        assert!(
            count.is_multiple_of(Self::width(self.extents[1])) && count <= self.extents[1],
            "panels from column {count}"
        );
        Self { skipped_columns: count, ..self }
    }
}

/// Whether a product of these sizes is computed on AMX, in panels of [`AMX_PANEL`] rows.
#[cfg(target_arch = "x86_64")]
pub(crate) fn uses_amx<S: Scalar>(rows: usize, columns: usize, inner: usize) -> bool {
    S::as_f32(&[]).is_some() && amx::is_suitable(rows, columns, inner)
}

/// Other processors have no AMX.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn uses_amx<S: Scalar>(_rows: usize, _columns: usize, _inner: usize) -> bool {
    false
}

/// `out = factor * left right`, or that added to `out`.
pub(crate) fn product<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    mode: WriteMode,
    factor: f64,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let ([rows, columns], [left_rows, inner], [right_rows, right_columns]) = (out.extents, left.extents, right.extents);
    assert!(
        rows == left_rows && columns == right_columns && inner == right_rows,
        "a {left_rows} x {inner} times a {right_rows} x {right_columns} matrix into {rows} x {columns}"
    );
    let few_rows = rows <= MAX_UNPACKED_ROWS && left.strides[1] == 1;
    if few_rows && right.strides[0] == 1 {
        return multiply_few_rows(out, mode, S::from_f64(factor), left, right.t());
    }
    if few_rows && right.strides[1] == 1 && inner > 0 {
        return sum_rows(out, mode, S::from_f64(factor), left, right);
    }
    if inner == 0 {
        return out.write_empty_product(mode);
    }
    #[cfg(target_arch = "x86_64")]
    if uses_amx::<S>(rows, columns, inner)
        && let (Some(mut out), Some(left), Some(right)) = (out.as_f32(), left.as_f32(), right.as_f32())
    {
        return amx::product(&mut out, mode, factor as f32, left, right);
    }
    S::with_buffer(Operand::Right, |buffer| {
        let buffer = grow_to(buffer, Panels::<S>::size(BLOCK_DEPTH.min(inner), columns), S::ZERO);
        for start in (0..inner).step_by(BLOCK_DEPTH) {
            let inner_range = start..inner.min(start + BLOCK_DEPTH);
            let panels = Panels::pack(right.rows(inner_range.clone()), buffer);
            let mode = if start > 0 { WriteMode::Add } else { mode };
            product_with_panels(out, mode, factor, left.columns(inner_range.clone()), panels, 0..inner_range.len());
        }
    });
}

/// `out = factor * left right`, or that added to `out`, where `right` is the rows `inner_range` of the packed matrix, and as many
/// of its columns as `out` has. The zeros that fill up the last panel count as columns.
pub(crate) fn product_with_panels<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    mode: WriteMode,
    factor: f64,
    left: Matrix<'_, S>,
    panels: Panels<'_, S>,
    inner_range: Range<usize>,
) {
    let [rows, columns] = out.extents;
    assert!(
        left.extents == [rows, inner_range.len()]
            && inner_range.end <= panels.extents[0]
            && columns <= panels.packed_columns(),
        "a {} x {} matrix times rows {inner_range:?} of {} x {} panels into {rows} x {columns}",
        left.extents[0],
        left.extents[1],
        panels.extents[0],
        panels.extents[1]
    );
    if inner_range.is_empty() {
        return out.write_empty_product(mode);
    }
    let mut start = inner_range.start;
    while start < inner_range.end {
        let first = start / BLOCK_DEPTH * BLOCK_DEPTH;
        let end = inner_range.end.min(first + BLOCK_DEPTH);
        let depth = BLOCK_DEPTH.min(panels.extents[0] - first);
        let block = BlockProduct {
            left: left.columns(start - inner_range.start..end - inner_range.start),
            depth,
            panels: &panels.data[Panels::<S>::size(first, panels.extents[1]) + panels.skipped_columns * depth..],
            inner_range: start - first..end - first,
            factor: S::from_f64(factor),
            add: mode == WriteMode::Add || start > inner_range.start,
        };
        match Panels::<S>::width(panels.extents[1]) {
            32 => block.compute::<32>(out),
            16 => block.compute::<16>(out),
            8 => block.compute::<8>(out),
            _ => block.compute::<4>(out),
        }
        start = end;
    }
}

/// A product whose inner dimension is at most `BLOCK_DEPTH`.
struct BlockProduct<'a, S> {
    left: Matrix<'a, S>,
    panels: &'a [S],
    /// Rows of each panel.
    depth: usize,
    /// The rows of the panels that are multiplied.
    inner_range: Range<usize>,
    factor: S,
    add: bool,
}

impl<S: Scalar> BlockProduct<'_, S> {
    /// Writes the product to `out`, or adds it.
    fn compute<const WIDTH: usize>(&self, out: &mut MatrixMut<'_, S>) {
        let ([rows, columns], strides) = (out.extents, self.left.strides);
        for first_row in (0..rows).step_by(BLOCK_ROWS) {
            let height = BLOCK_ROWS.min(rows - first_row);
            let target = TileTarget {
                panels: self.panels,
                depth: self.depth,
                inner_range: self.inner_range.clone(),
                extents: [height, columns],
                stride: out.stride,
                factor: self.factor,
                add: self.add,
            };
            let out = &mut out.data[first_row * out.stride..];
            if strides[1] != 1 && height >= TILE_ROWS && columns <= MAX_UNPACKED_PANELS * WIDTH {
                column_tiles::<S, WIDTH>(&self.left.data[first_row..], strides[1], &target, out);
                continue;
            }
            if strides[1] == 1 {
                row_tiles::<S, WIDTH>(&self.left.data[first_row * strides[0]..], strides[0], &target, out);
                continue;
            }
            S::with_buffer(Operand::Left, |buffer| {
                let buffer = grow_to(buffer, BLOCK_ROWS * BLOCK_DEPTH, S::ZERO);
                pack_columns(&self.left.data[first_row..], strides[1], height, self.inner_range.len(), buffer);
                packed_tiles::<S, WIDTH>(buffer, &target, out);
            });
        }
    }
}

/// The right operand of a block of rows, and how its tiles are stored.
struct TileTarget<'a, S> {
    panels: &'a [S],
    /// Rows of each panel.
    depth: usize,
    /// The rows of the panels that are multiplied.
    inner_range: Range<usize>,
    /// Rows and columns of the result.
    extents: [usize; 2],
    /// Numbers from one row of the result to the next.
    stride: usize,
    factor: S,
    add: bool,
}

impl<S: Scalar> TileTarget<'_, S> {
    /// The rows `inner_range` of every panel, with the column of the result at which the panel starts.
    #[inline(always)]
    fn panels<const WIDTH: usize>(&self) -> impl Iterator<Item = (&[S], usize)> {
        let panels = self
            .panels
            .chunks_exact(WIDTH * self.depth)
            .map(|panel| &panel[WIDTH * self.inner_range.start..WIDTH * self.inner_range.end]);
        panels.zip((0..self.extents[1]).step_by(WIDTH))
    }

    /// Stores a range of rows of a tile at `[first_row, first_column]`. A complete tile is stored from registers, where its sums
    /// stay as long as their address is not taken; an incomplete one at an edge is stored from a copy.
    #[inline(always)]
    fn store<const WIDTH: usize>(
        &self,
        sums: [[S; WIDTH]; TILE_ROWS],
        rows: Range<usize>,
        [first_row, first_column]: [usize; 2],
        out: &mut [S],
    ) {
        if rows.len() < TILE_ROWS || first_column + WIDTH > self.extents[1] {
            let mut copy = [[S::ZERO; WIDTH]; TILE_ROWS];
            for row in 0..TILE_ROWS {
                for column in 0..WIDTH {
                    copy[row][column] = sums[row][column];
                }
            }
            return store_edge_tile(&copy, rows, [first_row, first_column], self, out);
        }
        for row in 0..TILE_ROWS {
            let out =
                out[(first_row + row) * self.stride + first_column..].first_chunk_mut::<WIDTH>().expect("a whole tile");
            for column in 0..WIDTH {
                out[column] = self.scale_or_add(sums[row][column], out[column]);
            }
        }
    }

    /// The new value of an element of the result, from its sum and its old value.
    #[inline(always)]
    fn scale_or_add(&self, sum: S, old: S) -> S {
        if self.add { sum.mul_add(self.factor, old) } else { sum * self.factor }
    }
}

/// The first `length` numbers of a buffer, which is enlarged if it is shorter.
fn grow_to<T: Copy>(buffer: &mut Vec<T>, length: usize, zero: T) -> &mut [T] {
    if buffer.len() < length {
        buffer.resize(length, zero);
    }
    &mut buffer[..length]
}

impl<S: Scalar> Matrix<'_, S> {
    /// Copies to panels: blocks of `BLOCK_DEPTH` rows, in each the panels one after another, the last filled up with zeros.
    fn pack<const WIDTH: usize>(&self, buffer: &mut [S]) {
        let [rows, columns] = self.extents;
        let blocks = buffer.chunks_mut(BLOCK_DEPTH * columns.next_multiple_of(WIDTH));
        for (block, first_row) in blocks.zip((0..rows).step_by(BLOCK_DEPTH)) {
            let height = BLOCK_DEPTH.min(rows - first_row);
            let strip = if self.strides[1] == 1 { PACK_STRIP } else { height };
            for first in (0..height).step_by(strip) {
                let rows = first..height.min(first + strip);
                for (panel, first_column) in block.chunks_exact_mut(WIDTH * height).zip((0..columns).step_by(WIDTH)) {
                    let panel = &mut panel[rows.start * WIDTH..rows.end * WIDTH];
                    let columns = first_column..columns.min(first_column + WIDTH);
                    self.pack_panel::<WIDTH>(first_row + rows.start..first_row + rows.end, columns, panel);
                }
            }
        }
    }

    /// Copies a range of rows and columns into rows of `WIDTH`, padded with zeros.
    fn pack_panel<const WIDTH: usize>(&self, rows: Range<usize>, columns: Range<usize>, panel: &mut [S]) {
        if columns.len() < WIDTH {
            panel.fill(S::ZERO);
        }
        let [row_stride, column_stride] = self.strides;
        if column_stride != 1 {
            let part = &self.data[columns.start * column_stride + rows.start..];
            return transpose(part, columns.len(), rows.len(), column_stride, panel, WIDTH);
        }
        for (row, copy) in rows.zip(panel.as_chunks_mut::<WIDTH>().0) {
            let part = &self.data[row * row_stride + columns.start..row * row_stride + columns.end];
            match part.first_chunk::<WIDTH>() {
                Some(part) => *copy = *part,
                None => copy[..part.len()].copy_from_slice(part),
            }
        }
    }
}

/// `out = factor * left right'` for few rows of `left`, or that added to `out`: every element is a dot product of two rows.
fn multiply_few_rows<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    mode: WriteMode,
    factor: S,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let [count, inner] = right.extents;
    for row in 0..left.extents[0] {
        let left = &left.data[row * left.strides[0]..row * left.strides[0] + inner];
        let out = &mut out.data[row * out.stride..row * out.stride + count];
        dot_rows(left, right.data, right.strides[0], factor, mode == WriteMode::Add, out);
    }
}

/// `out = factor * left right` for few rows of `left`, or that added to `out`: every row is a weighted sum of the rows of `right`. Terms
/// are added in the order of the packed product, so the bits are the same.
fn sum_rows<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    mode: WriteMode,
    factor: S,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let [inner, columns] = right.extents;
    for row in 0..left.extents[0] {
        let weights = &left.data[row * left.strides[0]..row * left.strides[0] + inner];
        let out = &mut out.data[row * out.stride..row * out.stride + columns];
        for (index, weights) in weights.chunks(BLOCK_DEPTH).enumerate() {
            let add = mode == WriteMode::Add || index > 0;
            let rows = &right.data[index * BLOCK_DEPTH * right.strides[0]..];
            weighted_row_sum(weights, rows, right.strides[0], factor, add, out);
        }
    }
}

/// Columns of a weighted sum of rows that are summed in registers.
const STRIP: usize = 64;

/// `WIDTH` columns of a weighted sum of rows that start `stride` apart.
#[inline(always)]
fn strip_sum<S: Scalar, const WIDTH: usize>(weights: &[S], rows: &[S], stride: usize) -> [S; WIDTH] {
    let mut sums = [S::ZERO; WIDTH];
    for (&weight, row) in weights.iter().zip(rows.chunks(stride)) {
        let row: &[S; WIDTH] = row.first_chunk().expect("a strip of every row");
        for column in 0..WIDTH {
            sums[column] = weight.mul_add(row[column], sums[column]);
        }
    }
    sums
}

/// How many partial sums a dot product has.
const LANES: usize = 16;

/// Dot product of two rows of the same length.
#[inline(always)]
fn dot_row<S: Scalar>(left: &[S], right: &[S]) -> S {
    let mut lanes = [S::ZERO; LANES];
    let ((left_chunks, left_remainder), (right_chunks, right_remainder)) =
        (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..LANES {
            lanes[lane] = left[lane].mul_add(right[lane], lanes[lane]);
        }
    }
    add_lanes_and_remainder(lanes, left_remainder, right_remainder)
}

/// The dot product of the remainders of two rows, shorter than `LANES`, plus the partial sums in order.
#[inline(always)]
fn add_lanes_and_remainder<S: Scalar>(lanes: [S; LANES], left: &[S], right: &[S]) -> S {
    let remainder = left.iter().zip(right).fold(S::ZERO, |sum, (&left, &right)| left.mul_add(right, sum));
    lanes.into_iter().fold(remainder, |sum, lane| sum + lane)
}

vectorised! {
    /// Dot product of two rows of the same length.
    pub(crate) fn dot<S>(left: &[S], right: &[S]) -> S {
        dot_row(left, right)
    }

    /// Dot products of `left` with rows of `right` that start `stride` apart, one for each element of `out`. Four sums run at once, so
    /// that none waits for its own last term. Their rows lie a quarter of the matrix apart: each of the four streams reads memory in
    /// order, which the processor's prefetchers follow. Each is summed in the same order as by [`dot`].
    fn dot_rows<S>(left: &[S], right: &[S], stride: usize, factor: S, add: bool, out: &mut [S]) {
        let store = |out: &mut S, sum: S| *out = if add { *out + sum * factor } else { sum * factor };
        let row = |column: usize| &right[column * stride..column * stride + left.len()];
        let quarter = out.len() / 4;
        for first in 0..quarter {
            let columns: [usize; 4] = std::array::from_fn(|index| index * quarter + first);
            let [a, b, c, d] = columns.map(|column| row(column).as_chunks::<LANES>().0);
            let (left_chunks, left_remainder) = left.as_chunks::<LANES>();
            let mut lanes = [[S::ZERO; LANES]; 4];
            for ((((left, a), b), c), d) in left_chunks.iter().zip(a).zip(b).zip(c).zip(d) {
                for lane in 0..LANES {
                    lanes[0][lane] = left[lane].mul_add(a[lane], lanes[0][lane]);
                    lanes[1][lane] = left[lane].mul_add(b[lane], lanes[1][lane]);
                    lanes[2][lane] = left[lane].mul_add(c[lane], lanes[2][lane]);
                    lanes[3][lane] = left[lane].mul_add(d[lane], lanes[3][lane]);
                }
            }
            for (column, lanes) in columns.into_iter().zip(lanes) {
                let remainder = &row(column)[left_chunks.len() * LANES..];
                store(&mut out[column], add_lanes_and_remainder(lanes, left_remainder, remainder));
            }
        }
        for (column, out) in out.iter_mut().enumerate().skip(4 * quarter) {
            store(out, dot_row(left, row(column)));
        }
    }
}

vectorised! {
    /// The sum of rows that start `stride` apart, by weights.
    fn weighted_row_sum<S>(weights: &[S], rows: &[S], stride: usize, factor: S, add: bool, out: &mut [S]) {
        let store = |out: &mut [S], sums: &[S]| {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = if add { sum.mul_add(factor, *out) } else { sum * factor };
            }
        };
        let mut column = 0;
        while column < out.len() {
            let (rows, out) = (&rows[column..], &mut out[column..]);
            column += if out.len() >= STRIP {
                store(out, &strip_sum::<S, STRIP>(weights, rows, stride));
                STRIP
            } else if out.len() >= LANES {
                store(out, &strip_sum::<S, LANES>(weights, rows, stride));
                LANES
            } else {
                store(out, &strip_sum::<S, 1>(weights, rows, stride));
                1
            };
        }
    }
}

/// `sums += left right'`.
#[inline(always)]
fn add_outer<S: Scalar, const WIDTH: usize>(
    sums: &mut [[S; WIDTH]; TILE_ROWS],
    left: &[S; TILE_ROWS],
    right: &[S; WIDTH],
) {
    for row in 0..TILE_ROWS {
        for column in 0..WIDTH {
            sums[row][column] = left[row].mul_add(right[column], sums[row][column]);
        }
    }
}

vectorised! {
    /// Stores a range of rows of a tile that is cut off by an edge of the result.
    fn store_edge_tile<S, const WIDTH: usize>(
        sums: &[[S; WIDTH]; TILE_ROWS],
        rows: Range<usize>,
        corner: [usize; 2],
        target: &TileTarget<'_, S>,
        out: &mut [S],
    ) {
        let [first_row, first_column] = corner;
        let width = WIDTH.min(target.extents[1] - first_column);
        for row in rows {
            let start = (first_row + row) * target.stride + first_column;
            for (out, &sum) in out[start..start + width].iter_mut().zip(&sums[row]) {
                *out = target.scale_or_add(sum, *out);
            }
        }
    }

    /// All tiles of a left operand whose rows are contiguous, `stride` apart.
    fn row_tiles<S, const WIDTH: usize>(left: &[S], stride: usize, target: &TileTarget<'_, S>, out: &mut [S]) {
        let [rows, _] = target.extents;
        for (panel, first_column) in target.panels::<WIDTH>() {
            for first in (0..rows).step_by(TILE_ROWS) {
                // A last tile of fewer rows starts earlier, and the rows that it shares with the tile before are not stored again.
                let first_row = first.min(rows.saturating_sub(TILE_ROWS));
                let row = |index: usize| &left[(first_row + index).min(rows - 1) * stride..][..target.inner_range.len()];
                let mut sums = [[S::ZERO; WIDTH]; TILE_ROWS];
                // Zipped slices are iterated without bounds checks; indexing six of them would be six checks for each column.
                let left = row(0).iter().zip(row(1)).zip(row(2)).zip(row(3)).zip(row(4)).zip(row(5));
                for (right, (((((&a, &b), &c), &d), &e), &f)) in panel.as_chunks::<WIDTH>().0.iter().zip(left) {
                    add_outer(&mut sums, &[a, b, c, d, e, f], right);
                }
                target.store(sums, first - first_row..TILE_ROWS.min(rows - first_row), [first_row, first_column], out);
            }
        }
    }

    /// All tiles of a left operand whose columns are contiguous, `stride` apart.
    fn column_tiles<S, const WIDTH: usize>(left: &[S], stride: usize, target: &TileTarget<'_, S>, out: &mut [S]) {
        let [rows, _] = target.extents;
        for (panel, first_column) in target.panels::<WIDTH>() {
            for first in (0..rows).step_by(TILE_ROWS) {
                let first_row = first.min(rows - TILE_ROWS);
                let mut sums = [[S::ZERO; WIDTH]; TILE_ROWS];
                for (right, left) in panel.as_chunks::<WIDTH>().0.iter().zip(left[first_row..].chunks(stride)) {
                    add_outer(&mut sums, left.first_chunk().expect("a whole tile"), right);
                }
                target.store(sums, first - first_row..TILE_ROWS.min(rows - first_row), [first_row, first_column], out);
            }
        }
    }

    /// All tiles of a left operand that was packed by [`pack_columns`].
    fn packed_tiles<S, const WIDTH: usize>(left: &[S], target: &TileTarget<'_, S>, out: &mut [S]) {
        let [rows, _] = target.extents;
        for (panel, first_column) in target.panels::<WIDTH>() {
            let tiles = left.chunks_exact(TILE_ROWS * target.inner_range.len());
            for (left, first) in tiles.zip((0..rows).step_by(TILE_ROWS)) {
                let mut sums = [[S::ZERO; WIDTH]; TILE_ROWS];
                for (right, left) in panel.as_chunks::<WIDTH>().0.iter().zip(left.as_chunks().0) {
                    add_outer(&mut sums, left, right);
                }
                target.store(sums, 0..TILE_ROWS.min(rows - first), [first, first_column], out);
            }
        }
    }

    /// Packs a matrix whose columns are contiguous, `stride` apart: tile by tile, in each the columns one after another, the
    /// last tile padded with zeros. Read in place, columns a power of two apart would evict each other from the cache.
    fn pack_columns<S>(x: &[S], stride: usize, rows: usize, columns: usize, out: &mut [S]) {
        for first in (0..columns).step_by(PACK_STRIP) {
            let strip = first..columns.min(first + PACK_STRIP);
            for (tile, first_row) in out.chunks_exact_mut(TILE_ROWS * columns).zip((0..rows).step_by(TILE_ROWS)) {
                let tile = tile[strip.start * TILE_ROWS..strip.end * TILE_ROWS].as_chunks_mut::<TILE_ROWS>().0;
                for (column, copy) in strip.clone().zip(tile) {
                    let part = &x[column * stride + first_row..column * stride + rows.min(first_row + TILE_ROWS)];
                    if let Some(part) = part.first_chunk() {
                        *copy = *part;
                    } else {
                        copy.fill(S::ZERO);
                        copy[..part.len()].copy_from_slice(part);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of small integers, whose products are exact, in a slice with gaps between rows.
    fn matrix(rows: usize, columns: usize, stride: usize) -> Vec<f32> {
        (0..rows * stride).map(|index| ((index * 7 + rows + columns) % 9) as f32 - 4.0).collect()
    }

    #[test]
    fn product_agrees_with_its_definition_for_every_transposition_and_edge() {
        for [rows, columns, inner] in [[1, 1, 1], [4, 9, 33], [5, 16, 300], [6, 17, 8], [13, 40, 257], [64, 64, 16]] {
            for (transpose_left, transpose_right) in [(false, false), (false, true), (true, false), (true, true)] {
                let stored_shape = |transpose: bool, [rows, columns]: [usize; 2]| {
                    if transpose { [columns, rows] } else { [rows, columns] }
                };
                let [left_rows, left_columns] = stored_shape(transpose_left, [rows, inner]);
                let [right_rows, right_columns] = stored_shape(transpose_right, [inner, columns]);
                let left = matrix(left_rows, left_columns, left_columns + 3);
                let right = matrix(right_rows, right_columns, right_columns + 1);
                let left = Matrix::new(&left, left_rows, left_columns, left_columns + 3).transposed_if(transpose_left);
                let right =
                    Matrix::new(&right, right_rows, right_columns, right_columns + 1).transposed_if(transpose_right);
                let mut out = vec![1.0; rows * (columns + 2)];
                for mode in [WriteMode::Overwrite, WriteMode::Add] {
                    product(&mut MatrixMut::new(&mut out, rows, columns, columns + 2), mode, 2.0, left, right);
                }
                let at =
                    |x: &Matrix<'_, f32>, row: usize, column: usize| x.data[row * x.strides[0] + column * x.strides[1]];
                for (row, out) in out.chunks_exact(columns + 2).enumerate() {
                    for (column, &out) in out[..columns].iter().enumerate() {
                        let sum: f32 = (0..inner).map(|term| at(&left, row, term) * at(&right, term, column)).sum();
                        assert!((out - 4.0 * sum).abs() < 1e-3, "{rows} x {columns} x {inner} at {row}, {column}");
                    }
                    assert_eq!(out[columns..], [1.0, 1.0], "gaps between rows are not written");
                }
            }
        }
    }

    #[test]
    fn few_rows_have_the_same_bits_without_packing() {
        for [rows, columns, inner] in [[1, 64, 512], [1, 200, 300], [3, 97, 257], [4, 16, 1]] {
            let values = |count: usize| -> Vec<f32> { (0..count).map(|index| (index as f32 * 0.37).sin()).collect() };
            let (left, right) = (values(rows * inner), values(inner * (columns + 5)));
            let (left, right) =
                (Matrix::new(&left, rows, inner, inner), Matrix::new(&right, inner, columns, columns + 5));
            let (mut unpacked, mut packed) = (vec![0.5; rows * columns], vec![0.5; rows * columns]);
            for mode in [WriteMode::Overwrite, WriteMode::Add] {
                product(&mut MatrixMut::new(&mut unpacked, rows, columns, columns), mode, 0.3, left, right);
                let mut space = vec![0.0; Panels::<f32>::size(inner, columns)];
                let panels = Panels::pack(right, &mut space);
                let mut out = MatrixMut::new(&mut packed, rows, columns, columns);
                product_with_panels(&mut out, mode, 0.3, left, panels, 0..inner);
            }
            assert_eq!(unpacked, packed, "{rows} x {columns} x {inner}");
        }
    }

    #[test]
    fn product_with_an_inner_dimension_of_zero_is_zero() {
        let mut out = [5.0_f32; 12];
        let (left, right) = (Matrix::new(&[], 6, 0, 0), Matrix::new(&[], 0, 2, 2));
        product(&mut MatrixMut::new(&mut out, 6, 2, 2), WriteMode::Overwrite, 1.0, left, right);
        assert!(out.iter().all(|x| x.to_bits() == 0));
    }
}
