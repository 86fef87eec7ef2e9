//! Attention to chosen blocks of keys, at the cost of those alone.
//!
//! A block at a time: the queries that chose it are copied together, and from there it is a small dense attention, made of matrix
//! products. Each block gives its readers an average of its values and the log of its sum of weights, and two such pairs merge
//! into the pair of both blocks together; a query's pairs are merged as its blocks go by. The backward pass goes by blocks as
//! well: the log of the whole sum gives each weight back without looking at other blocks.

use super::attention::{score_slopes, weights_again, weights_of_row};
use super::pointwise::accumulate;
use super::product::{Accumulate, Matrix, MatrixMut, TILE, dot, product};
use crate::choice::BlockReaders;
use crate::scalar::Scalar;
use std::ops::Range;

/// Extents and options of a call.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) groups: usize,
    pub(crate) width: usize,
    pub(crate) value_width: usize,
    pub(crate) block: usize,
    pub(crate) scale: f64,
}

/// The most queries that are copied together.
const MOST_READERS: usize = 16 * TILE;

/// One head of one sequence.
#[derive(Clone, Copy)]
struct Head {
    sequence: usize,
    number: usize,
    extents: Extents,
}

/// Some readers of a block.
struct Tile<'a> {
    readers: &'a [u32],
    keys: Range<usize>,
}

impl Extents {
    /// Numbers of scratch space for the forward pass: queries, scores and results of a tile.
    pub(crate) fn scratch(&self) -> usize {
        MOST_READERS * (self.width + self.block + self.value_width)
    }

    /// Numbers of scratch space for the backward pass: queries and their slopes, weights and theirs, slopes of the results, and
    /// a number for each query.
    pub(crate) fn scratch_back(&self) -> usize {
        MOST_READERS * (2 * self.width + 2 * self.block + self.value_width) + self.queries
    }

    fn heads(self) -> impl Iterator<Item = Head> {
        (0..self.batch)
            .flat_map(move |sequence| (0..self.heads).map(move |number| Head { sequence, number, extents: self }))
    }
}

impl Head {
    /// Tiles of readers, block by block.
    fn tiles(self, readers: &BlockReaders) -> impl Iterator<Item = Tile<'_>> {
        let Extents { groups, heads, keys, block, .. } = self.extents;
        let table = self.sequence * groups + self.number * groups / heads;
        (0..keys.div_ceil(block)).flat_map(move |number| {
            let keys = number * block..keys.min((number + 1) * block);
            readers.of(table, number).chunks(MOST_READERS).map(move |readers| Tile { readers, keys: keys.clone() })
        })
    }

    /// Where a query lies in `[batch, queries, heads, width]`.
    fn query(&self, query: u32, width: usize) -> Range<usize> {
        let start =
            ((self.sequence * self.extents.queries + query as usize) * self.extents.heads + self.number) * width;
        start..start + width
    }

    /// Where a query's log-sum lies in `[batch, heads, queries]`.
    fn kept_at(&self, query: u32) -> usize {
        (self.sequence * self.extents.heads + self.number) * self.extents.queries + query as usize
    }

    /// Keys of the tile that a reader sees: all, unless it stands among them.
    fn seen(&self, tile: &Tile<'_>, query: u32) -> usize {
        let position = query as usize + self.extents.keys - self.extents.queries;
        tile.keys.len().min(position + 1 - tile.keys.start)
    }

    /// Where a tile's keys start in `[batch, keys, key heads, width]`, and the step from one to the next.
    fn key_place(&self, tile: &Tile<'_>, width: usize) -> (usize, usize) {
        let Extents { keys, key_heads, heads, .. } = self.extents;
        let row = self.sequence * keys + tile.keys.start;
        ((row * key_heads + self.number * key_heads / heads) * width, key_heads * width)
    }

    fn keys<'a, S>(&self, tile: &Tile<'_>, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (place, stride) = self.key_place(tile, width);
        Matrix::new(&x[place..], tile.keys.len(), width, stride)
    }

    fn keys_mut<'a, S>(&self, tile: &Tile<'_>, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (place, stride) = self.key_place(tile, width);
        MatrixMut::new(&mut x[place..], tile.keys.len(), width, stride)
    }

    /// Copies the readers' rows together.
    fn gather<S: Scalar>(&self, tile: &Tile<'_>, x: &[S], width: usize, out: &mut [S]) {
        for (&query, out) in tile.readers.iter().zip(out.chunks_exact_mut(width)) {
            out.copy_from_slice(&x[self.query(query, width)]);
        }
    }
}

/// Rows one after another in a slice.
fn rows<S>(x: &[S], rows: usize, width: usize) -> Matrix<'_, S> {
    Matrix::new(x, rows, width, width)
}

fn rows_mut<S>(x: &mut [S], rows: usize, width: usize) -> MatrixMut<'_, S> {
    MatrixMut::new(x, rows, width, width)
}

vectorised! {
    /// Merges an average and the log of its sum into the pair so far, and returns the log of both sums.
    fn merge<S>(so_far: S, x: &mut [S], sum: S, y: &[S]) -> S {
        let (top, gap) = (so_far.larger(sum), (so_far - sum).abs());
        let both = top + (S::ONE + (-gap).exp()).ln();
        let (left, right) = ((so_far - both).exp(), (sum - both).exp());
        for (x, &y) in x.iter_mut().zip(y) {
            *x = *x * left + y * right;
        }
        both
    }
}

/// Queries, keys and values.
pub(crate) type Inputs<'a, S> = [&'a [S]; 3];

/// Outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    readers: &BlockReaders,
    [query, key, value]: Inputs<'_, S>,
    scratch: &mut [S],
    (kept, out): (&mut [S], &mut [S]),
) {
    let Extents { width, value_width, block, scale, .. } = extents;
    let (queries, space) = scratch.split_at_mut(MOST_READERS * width);
    let (scores, results) = space.split_at_mut(MOST_READERS * block);
    kept.fill(S::LOWEST);
    for head in extents.heads() {
        for tile in head.tiles(readers) {
            let (count, length) = (tile.readers.len(), tile.keys.len());
            head.gather(&tile, query, width, queries);
            let keys = head.keys(&tile, key, width);
            product(
                &mut rows_mut(scores, count, length),
                Accumulate::Fresh,
                scale,
                rows(queries, count, width),
                keys.t(),
            );
            let sums: &mut [S] = &mut queries[..count];
            for ((&query, scores), sum) in tile.readers.iter().zip(scores.chunks_exact_mut(length)).zip(&mut *sums) {
                *sum = weights_of_row(scores, 0, head.seen(&tile, query));
            }
            let values = head.keys(&tile, value, value_width);
            let mut averages = rows_mut(results, count, value_width);
            product(&mut averages, Accumulate::Fresh, 1.0, rows(scores, count, length), values);
            for ((&query, average), &sum) in tile.readers.iter().zip(results.chunks_exact(value_width)).zip(&*sums) {
                let (so_far, out) = (&mut kept[head.kept_at(query)], &mut out[head.query(query, value_width)]);
                if *so_far == S::LOWEST {
                    out.copy_from_slice(average);
                    *so_far = sum;
                } else {
                    *so_far = merge(*so_far, out, sum, average);
                }
            }
        }
    }
}

/// Gradients of queries, keys and values, which are added to, from the output, the log-sums and the gradient of the output.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    readers: &BlockReaders,
    [query, key, value]: Inputs<'_, S>,
    (out, kept, slope): (&[S], &[S], &[S]),
    scratch: &mut [S],
    [to_query, to_key, to_value]: [&mut [S]; 3],
) {
    let Extents { width, value_width, block, scale, .. } = extents;
    let (queries, space) = scratch.split_at_mut(MOST_READERS * width);
    let (moves, space) = space.split_at_mut(MOST_READERS * width);
    let (weights, space) = space.split_at_mut(MOST_READERS * block);
    let (slopes, space) = space.split_at_mut(MOST_READERS * block);
    let (results, shared) = space.split_at_mut(MOST_READERS * value_width);
    for head in extents.heads() {
        for (query, shared) in (0_u32..).zip(&mut shared[..extents.queries]) {
            let place = head.query(query, value_width);
            *shared = dot(&out[place.clone()], &slope[place]);
        }
        for tile in head.tiles(readers) {
            let (count, length) = (tile.readers.len(), tile.keys.len());
            head.gather(&tile, query, width, queries);
            head.gather(&tile, slope, value_width, results);
            let (asked, result) = (rows(queries, count, width), rows(results, count, value_width));
            let (keys, values) = (head.keys(&tile, key, width), head.keys(&tile, value, value_width));
            product(&mut rows_mut(weights, count, length), Accumulate::Fresh, scale, asked, keys.t());
            product(&mut rows_mut(slopes, count, length), Accumulate::Fresh, 1.0, result, values.t());
            let pairs = weights.chunks_exact_mut(length).zip(slopes.chunks_exact_mut(length));
            for (&query, (weights, slopes)) in tile.readers.iter().zip(pairs) {
                weights_again(weights, 0, head.seen(&tile, query), kept[head.kept_at(query)]);
                score_slopes(weights, slopes, shared[query as usize]);
            }
            let (weights, slopes) = (rows(weights, count, length), rows(slopes, count, length));
            product(&mut rows_mut(moves, count, width), Accumulate::Fresh, scale, slopes, keys);
            for (&query, moved) in tile.readers.iter().zip(moves.chunks_exact(width)) {
                accumulate(moved, &mut to_query[head.query(query, width)]);
            }
            product(&mut head.keys_mut(&tile, to_key, width), Accumulate::Sum, scale, slopes.t(), asked);
            product(&mut head.keys_mut(&tile, to_value, value_width), Accumulate::Sum, 1.0, weights.t(), result);
        }
    }
}
