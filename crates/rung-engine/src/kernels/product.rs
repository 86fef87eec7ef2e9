//! Matrix products over strided views.
//!
//! A [`Matrix`] is a slice with extents and strides; attention and the recurrences use the strides to read one head out of
//! `[batch, time, head, width]` without copying.
//!
//! The product itself is the usual one of fast libraries, in safe Rust. The right operand is copied, a block at a time, into
//! panels of two vectors' width; a tile of six rows by one panel keeps its sums in registers while it runs down the block;
//! the left operand is read where it lies, since each of its numbers is spread over a vector anyway, unless its columns lie in
//! one piece and the result is wide: then it is copied too. On the machines measured this is within a tenth of what fused
//! multiply-adds can do without any memory, on large products, and ahead of the `gemm` crate on the small ones that attention
//! heads make. We do not use that crate because it allocates in every call, and a training step must not: what is copied here
//! goes into space that each thread keeps.
//!
//! A few rows against a transposed matrix, as in decoding, are dot products: packing the matrix would cost more than the
//! product.

use crate::kernels::transpose::transpose;
use crate::kernels::vectorised::level;
use crate::scalar::Scalar;
use std::cell::RefCell;
use std::ops::Range;

/// An operand of a product.
#[derive(Clone, Copy)]
pub enum Operand {
    /// The first.
    Left,
    /// The second.
    Right,
}

/// Space that a thread keeps for rearranged operands.
pub trait Workspace: Sized {
    /// Runs with the thread's space for one operand.
    fn with_space<R>(side: Operand, run: impl FnOnce(&mut Vec<Self>) -> R) -> R;
}

macro_rules! workspace {
    ($($scalar:ty),*) => {$(
        impl Workspace for $scalar {
            fn with_space<R>(side: Operand, run: impl FnOnce(&mut Vec<Self>) -> R) -> R {
                thread_local! {
                    static LEFT: RefCell<Vec<$scalar>> = const { RefCell::new(Vec::new()) };
                    static RIGHT: RefCell<Vec<$scalar>> = const { RefCell::new(Vec::new()) };
                }
                match side {
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
        let ([rows, columns], [down, along]) = (self.extents, self.strides);
        Self { data: self.data, extents: [columns, rows], strides: [along, down] }
    }

    /// Rows and columns.
    pub(crate) fn extents(&self) -> [usize; 2] {
        self.extents
    }

    /// Some of the rows.
    pub(crate) fn rows(self, rows: Range<usize>) -> Self {
        let data = &self.data[(rows.start * self.strides[0]).min(self.data.len())..];
        Self { data, extents: [rows.len(), self.extents[1]], strides: self.strides }
    }

    /// Some of the columns.
    pub(crate) fn columns(self, columns: Range<usize>) -> Self {
        self.t().rows(columns).t()
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

impl<S: Scalar> MatrixMut<'_, S> {
    /// What a sum of no terms leaves.
    fn keep_or_clear(&mut self, into: Accumulate) {
        if into == Accumulate::Fresh {
            let [rows, columns] = self.extents;
            self.data.chunks_mut(self.stride.max(1)).take(rows).for_each(|row| row[..columns].fill(S::ZERO));
        }
    }
}

/// What a product does with its destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accumulate {
    /// Replaces it.
    Fresh,
    /// Is added to it.
    Sum,
}

/// Rows of a tile of the result: with two vectors across, twelve sums, which is what sixteen registers hold beside operands.
pub(crate) const TILE: usize = 6;
/// Depth of a block: its panel of the right operand stays in the first-level cache.
pub(crate) const DEPTH: usize = 256;
/// Rows of a block of the left operand, which stays in the second-level cache while the panels go by.
const HEIGHT: usize = 16 * TILE;
/// Rows (or columns, if those lie in one piece) that are packed at a time: few enough that both sides of the copy stay in the
/// first-level cache, and enough that neither is walked in strides alone.
const STRIP: usize = 8;
/// Up to this many rows, a product with a transposed matrix is done as dot products.
pub(crate) const FEW_ROWS: usize = 4;
/// Up to this many panels, a left operand whose columns lie in one piece is read in place: packing it would not pay.
const FEW_PANELS: usize = 4;

/// Every width of a panel divides this.
pub(crate) const PANEL_STEP: usize = 32;

/// Columns of a panel: two vectors.
fn panel_width<S>() -> usize {
    if level().is_widest() { 128 / size_of::<S>() } else { 64 / size_of::<S>() }
}

/// A right operand that was rearranged into panels: blocks of `DEPTH` rows, in each the panels one after another. Several
/// products may use it, or the first columns of it, or a range of its rows.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, S> {
    data: &'a [S],
    extents: [usize; 2],
    /// Columns at the left that are not used, in whole panels.
    skipped: usize,
}

impl<'a, S: Scalar> Panels<'a, S> {
    /// How many numbers the panels of a matrix take.
    pub(crate) fn size(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(panel_width::<S>())
    }

    /// Columns of a panel.
    pub(crate) fn width() -> usize {
        panel_width::<S>()
    }

    /// Panels of a matrix of at most [`DEPTH`] rows that were packed part by part, each part whole panels.
    pub(crate) fn of_packed(extents: [usize; 2], space: &'a [S]) -> Self {
        Self { data: &space[..Self::size(extents[0], extents[1])], extents, skipped: 0 }
    }

    /// Rearranges a matrix into a space of at least [`Panels::size`].
    pub(crate) fn pack(matrix: Matrix<'_, S>, space: &'a mut [S]) -> Self {
        let [rows, columns] = matrix.extents;
        let space = &mut space[..Self::size(rows, columns)];
        match panel_width::<S>() {
            32 => matrix.pack::<32>(space),
            16 => matrix.pack::<16>(space),
            _ => matrix.pack::<8>(space),
        }
        Self { data: space, extents: matrix.extents, skipped: 0 }
    }

    /// The panels from a column on, which is a multiple of [`PANEL_STEP`].
    pub(crate) fn starting_at(self, column: usize) -> Self {
        assert!(column.is_multiple_of(panel_width::<S>()) && column <= self.extents[1], "panels from column {column}");
        Self { skipped: column, ..self }
    }
}

/// `out = factor * left right`, or that added to `out`.
pub(crate) fn product<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    into: Accumulate,
    factor: f64,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let ([rows, columns], [left_rows, inner], [right_rows, right_columns]) = (out.extents, left.extents, right.extents);
    assert!(
        rows == left_rows && columns == right_columns && inner == right_rows,
        "a {left_rows} x {inner} times a {right_rows} x {right_columns} matrix into {rows} x {columns}"
    );
    if rows <= FEW_ROWS && left.strides[1] == 1 && right.strides[0] == 1 {
        return dots(out, into, S::from_f64(factor), left, right.t());
    }
    if inner == 0 {
        return out.keep_or_clear(into);
    }
    S::with_space(Operand::Right, |space| {
        let space = at_least(space, Panels::<S>::size(DEPTH.min(inner), columns));
        for start in (0..inner).step_by(DEPTH) {
            let terms = start..inner.min(start + DEPTH);
            let panels = Panels::pack(right.rows(terms.clone()), space);
            let into = if start > 0 { Accumulate::Sum } else { into };
            product_with(out, into, factor, left.columns(terms.clone()), panels, 0..terms.len());
        }
    });
}

/// `out = factor * left right`, or that added to `out`, where `right` is a range of the rows of some panels, and as many of
/// their columns as `out` has.
pub(crate) fn product_with<S: Scalar>(
    out: &mut MatrixMut<'_, S>,
    into: Accumulate,
    factor: f64,
    left: Matrix<'_, S>,
    panels: Panels<'_, S>,
    terms: Range<usize>,
) {
    let [rows, columns] = out.extents;
    assert!(
        left.extents == [rows, terms.len()]
            && terms.end <= panels.extents[0]
            && columns <= panels.extents[1] - panels.skipped,
        "a {} x {} matrix times rows {terms:?} of {} x {} panels into {rows} x {columns}",
        left.extents[0],
        left.extents[1],
        panels.extents[0],
        panels.extents[1]
    );
    if terms.is_empty() {
        return out.keep_or_clear(into);
    }
    let mut start = terms.start;
    while start < terms.end {
        let first = start / DEPTH * DEPTH;
        let end = terms.end.min(first + DEPTH);
        let depth = DEPTH.min(panels.extents[0] - first);
        let block = Block {
            left: left.columns(start - terms.start..end - terms.start),
            depth,
            panels: &panels.data[Panels::<S>::size(first, panels.extents[1]) + panels.skipped * depth..],
            terms: start - first..end - first,
            factor: S::from_f64(factor),
            add: into == Accumulate::Sum || start > terms.start,
        };
        match panel_width::<S>() {
            32 => block.run::<32>(out),
            16 => block.run::<16>(out),
            _ => block.run::<8>(out),
        }
        start = end;
    }
}

/// At most `DEPTH` terms of every sum.
struct Block<'a, S> {
    left: Matrix<'a, S>,
    panels: &'a [S],
    /// Rows of each panel, and those among them to use.
    depth: usize,
    terms: Range<usize>,
    factor: S,
    add: bool,
}

impl<S: Scalar> Block<'_, S> {
    fn run<const WIDTH: usize>(&self, out: &mut MatrixMut<'_, S>) {
        let ([rows, columns], strides) = (out.extents, self.left.strides);
        for top in (0..rows).step_by(HEIGHT) {
            let height = HEIGHT.min(rows - top);
            let place = TileTarget {
                panels: self.panels,
                depth: self.depth,
                terms: self.terms.clone(),
                extents: [height, columns],
                stride: out.stride,
                factor: self.factor,
                add: self.add,
            };
            let out = &mut out.data[top * out.stride..];
            if strides[1] != 1 && height >= TILE && columns <= FEW_PANELS * WIDTH {
                column_tiles::<S, WIDTH>(&self.left.data[top..], strides[1], &place, out);
                continue;
            }
            if strides[1] == 1 {
                row_tiles::<S, WIDTH>(&self.left.data[top * strides[0]..], strides[0], &place, out);
                continue;
            }
            S::with_space(Operand::Left, |space| {
                let space = at_least(space, HEIGHT * DEPTH);
                pack_columns(&self.left.data[top..], strides[1], height, self.terms.len(), space);
                packed_tiles::<S, WIDTH>(space, &place, out);
            });
        }
    }
}

/// What the tiles of a block of rows are made with and where they go.
struct TileTarget<'a, S> {
    panels: &'a [S],
    /// Rows of each panel, and those among them to use.
    depth: usize,
    terms: Range<usize>,
    /// Rows and columns of the result, and the distance of its rows.
    extents: [usize; 2],
    stride: usize,
    factor: S,
    add: bool,
}

impl<S: Scalar> TileTarget<'_, S> {
    /// The used part of every panel, with its first column.
    #[inline(always)]
    fn panels<const WIDTH: usize>(&self) -> impl Iterator<Item = (&[S], usize)> {
        let panels = self
            .panels
            .chunks_exact(WIDTH * self.depth)
            .map(|panel| &panel[WIDTH * self.terms.start..WIDTH * self.terms.end]);
        panels.zip((0..self.extents[1]).step_by(WIDTH))
    }

    /// Stores some rows of a tile whose first row and column are `top` and `side`. A whole tile is stored from registers, where
    /// its sums stay as long as their address is not taken: at an edge a copy is stored.
    #[inline(always)]
    fn store<const WIDTH: usize>(
        &self,
        sums: [[S; WIDTH]; TILE],
        rows: Range<usize>,
        [top, side]: [usize; 2],
        out: &mut [S],
    ) {
        if rows.len() < TILE || side + WIDTH > self.extents[1] {
            return store_part(sums, rows, [top, side], self, out);
        }
        for row in 0..TILE {
            let out = out[(top + row) * self.stride + side..].first_chunk_mut::<WIDTH>().expect("a whole tile");
            for column in 0..WIDTH {
                out[column] = self.stored(sums[row][column], out[column]);
            }
        }
    }

    /// What a sum leaves where `before` was.
    #[inline(always)]
    fn stored(&self, sum: S, before: S) -> S {
        if self.add { sum.mul_add(self.factor, before) } else { sum * self.factor }
    }
}

/// The first `length` numbers of a space that grows when needed.
fn at_least<S: Scalar>(space: &mut Vec<S>, length: usize) -> &mut [S] {
    if space.len() < length {
        space.resize(length, S::ZERO);
    }
    &mut space[..length]
}

impl<S: Scalar> Matrix<'_, S> {
    /// Copies to panels: blocks of `DEPTH` rows, in each the panels one after another, the last filled up with zeros.
    fn pack<const WIDTH: usize>(&self, space: &mut [S]) {
        let [rows, columns] = self.extents;
        let blocks = space.chunks_mut(DEPTH * columns.next_multiple_of(WIDTH));
        for (block, top) in blocks.zip((0..rows).step_by(DEPTH)) {
            let height = DEPTH.min(rows - top);
            let strip = if self.strides[1] == 1 { STRIP } else { height };
            for first in (0..height).step_by(strip) {
                let rows = first..height.min(first + strip);
                for (panel, side) in block.chunks_exact_mut(WIDTH * height).zip((0..columns).step_by(WIDTH)) {
                    let panel = &mut panel[rows.start * WIDTH..rows.end * WIDTH];
                    let columns = side..columns.min(side + WIDTH);
                    self.pack_panel::<WIDTH>(top + rows.start..top + rows.end, columns, panel);
                }
            }
        }
    }

    /// Copies a part to rows of `WIDTH`, with zeros after its columns.
    fn pack_panel<const WIDTH: usize>(&self, rows: Range<usize>, columns: Range<usize>, panel: &mut [S]) {
        if columns.len() < WIDTH {
            panel.fill(S::ZERO);
        }
        let [down, along] = self.strides;
        if along != 1 {
            let part = &self.data[columns.start * along + rows.start..];
            return transpose(part, columns.len(), rows.len(), along, panel, WIDTH);
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
fn dots<S: Scalar>(out: &mut MatrixMut<'_, S>, into: Accumulate, factor: S, left: Matrix<'_, S>, right: Matrix<'_, S>) {
    let [count, inner] = right.extents;
    for row in 0..left.extents[0] {
        let left = &left.data[row * left.strides[0]..row * left.strides[0] + inner];
        let out = &mut out.data[row * out.stride..row * out.stride + count];
        dot_rows(left, right.data, right.strides[0], factor, into == Accumulate::Sum, out);
    }
}

/// Numbers of a vector of partial sums of a dot product.
const LANES: usize = 16;

/// The lanes of a dot product of two rows of the same length, and the products of what is left over.
#[inline(always)]
fn dot_lanes<S: Scalar>(left: &[S], right: &[S]) -> S {
    let mut lanes = [S::ZERO; LANES];
    let ((lefts, left_rest), (rights, right_rest)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    for (left, right) in lefts.iter().zip(rights) {
        for lane in 0..LANES {
            lanes[lane] = left[lane].mul_add(right[lane], lanes[lane]);
        }
    }
    sum_lanes(lanes, left_rest, right_rest)
}

/// The products of what is left over, and then the lanes in their order.
#[inline(always)]
fn sum_lanes<S: Scalar>(lanes: [S; LANES], left: &[S], right: &[S]) -> S {
    let rest = left.iter().zip(right).fold(S::ZERO, |sum, (&left, &right)| left.mul_add(right, sum));
    lanes.into_iter().fold(rest, |sum, lane| sum + lane)
}

vectorised! {
    /// Dot product of two rows.
    pub(crate) fn dot<S>(left: &[S], right: &[S]) -> S {
        dot_lanes(left, right)
    }

    /// Dot products of a row with rows that begin `stride` apart, as many as there are results. Four at a time, so that the sums of
    /// one do not wait for each other; each is taken as by [`dot`].
    fn dot_rows<S>(left: &[S], right: &[S], stride: usize, factor: S, add: bool, out: &mut [S]) {
        let store = |out: &mut S, sum: S| *out = if add { *out + sum * factor } else { sum * factor };
        let row = |column: usize| &right[column * stride..column * stride + left.len()];
        let whole = out.len() / 4 * 4;
        let (fours, rest) = out.split_at_mut(whole);
        for (group, out) in fours.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let rows: [&[S]; 4] = std::array::from_fn(|index| row(4 * group + index));
            let [a, b, c, d] = rows.map(|row| row.as_chunks::<LANES>().0);
            let (lefts, left_rest) = left.as_chunks::<LANES>();
            let mut lanes = [[S::ZERO; LANES]; 4];
            for ((((left, a), b), c), d) in lefts.iter().zip(a).zip(b).zip(c).zip(d) {
                for lane in 0..LANES {
                    lanes[0][lane] = left[lane].mul_add(a[lane], lanes[0][lane]);
                    lanes[1][lane] = left[lane].mul_add(b[lane], lanes[1][lane]);
                    lanes[2][lane] = left[lane].mul_add(c[lane], lanes[2][lane]);
                    lanes[3][lane] = left[lane].mul_add(d[lane], lanes[3][lane]);
                }
            }
            for index in 0..4 {
                let rest = &rows[index][lefts.len() * LANES..];
                store(&mut out[index], sum_lanes(lanes[index], left_rest, rest));
            }
        }
        for (index, out) in rest.iter_mut().enumerate() {
            store(out, dot_lanes(left, row(whole + index)));
        }
    }
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

vectorised! {
    /// Stores some rows of a tile at an edge of the result.
    fn store_part<S, const WIDTH: usize>(
        sums: [[S; WIDTH]; TILE],
        rows: Range<usize>,
        corner: [usize; 2],
        place: &TileTarget<'_, S>,
        out: &mut [S],
    ) {
        let [top, side] = corner;
        let width = WIDTH.min(place.extents[1] - side);
        for row in rows {
            let start = (top + row) * place.stride + side;
            for (out, &sum) in out[start..start + width].iter_mut().zip(&sums[row]) {
                *out = place.stored(sum, *out);
            }
        }
    }

    /// Tiles of some rows of the left operand that lie in one piece each, `stride` apart.
    fn row_tiles<S, const WIDTH: usize>(left: &[S], stride: usize, place: &TileTarget<'_, S>, out: &mut [S]) {
        let [rows, _] = place.extents;
        for (panel, side) in place.panels::<WIDTH>() {
            for first in (0..rows).step_by(TILE) {
                // A last tile of fewer rows starts earlier, and its first rows are not stored again.
                let top = first.min(rows.saturating_sub(TILE));
                let row = |index: usize| &left[(top + index).min(rows - 1) * stride..][..place.terms.len()];
                let mut sums = [[S::ZERO; WIDTH]; TILE];
                // Zipped slices are walked without a check at each step; indexing six of them would be six checks.
                let left = row(0).iter().zip(row(1)).zip(row(2)).zip(row(3)).zip(row(4)).zip(row(5));
                for (right, (((((&a, &b), &c), &d), &e), &f)) in panel.as_chunks::<WIDTH>().0.iter().zip(left) {
                    add_outer(&mut sums, &[a, b, c, d, e, f], right);
                }
                place.store(sums, first - top..TILE.min(rows - top), [top, side], out);
            }
        }
    }

    /// Tiles of some rows of the left operand, whose columns lie in one piece each, `stride` apart.
    fn column_tiles<S, const WIDTH: usize>(left: &[S], stride: usize, place: &TileTarget<'_, S>, out: &mut [S]) {
        let [rows, _] = place.extents;
        for (panel, side) in place.panels::<WIDTH>() {
            for first in (0..rows).step_by(TILE) {
                let top = first.min(rows - TILE);
                let mut sums = [[S::ZERO; WIDTH]; TILE];
                for (right, left) in panel.as_chunks::<WIDTH>().0.iter().zip(left[top..].chunks(stride)) {
                    add_outer(&mut sums, left.first_chunk().expect("a whole tile"), right);
                }
                place.store(sums, first - top..TILE.min(rows - top), [top, side], out);
            }
        }
    }

    /// Tiles of a left operand that was packed by [`pack_columns`].
    fn packed_tiles<S, const WIDTH: usize>(left: &[S], place: &TileTarget<'_, S>, out: &mut [S]) {
        let [rows, _] = place.extents;
        for (panel, side) in place.panels::<WIDTH>() {
            let tiles = left.chunks_exact(TILE * place.terms.len());
            for (left, first) in tiles.zip((0..rows).step_by(TILE)) {
                let mut sums = [[S::ZERO; WIDTH]; TILE];
                for (right, left) in panel.as_chunks::<WIDTH>().0.iter().zip(left.as_chunks().0) {
                    add_outer(&mut sums, left, right);
                }
                place.store(sums, 0..TILE.min(rows - first), [first, side], out);
            }
        }
    }

    /// Packs a matrix whose columns lie in one piece each, `stride` apart: tile by tile, in each the columns one after
    /// another, the last tile filled up with zeros. Read in place, columns a power of two apart would fall on the same lines
    /// of the cache.
    fn pack_columns<S>(x: &[S], stride: usize, rows: usize, columns: usize, out: &mut [S]) {
        for first in (0..columns).step_by(STRIP) {
            let strip = first..columns.min(first + STRIP);
            for (tile, top) in out.chunks_exact_mut(TILE * columns).zip((0..rows).step_by(TILE)) {
                let tile = tile[strip.start * TILE..strip.end * TILE].as_chunks_mut::<TILE>().0;
                for (column, copy) in strip.clone().zip(tile) {
                    let part = &x[column * stride + top..column * stride + rows.min(top + TILE)];
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
                for into in [Accumulate::Fresh, Accumulate::Sum] {
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
        product(&mut MatrixMut::new(&mut out, 6, 2, 2), Accumulate::Fresh, 1.0, nothing, Matrix::new(&[], 0, 2, 2));
        assert!(out.iter().all(|x| x.to_bits() == 0));
    }
}
