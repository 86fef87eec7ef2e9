//! Softmax attention without the matrix of weights.
//!
//! One head at a time, a tile of queries at a time: a product gives the tile's scores against the keys it can see, a pass turns
//! them into weights, a product with the values gives the outputs. Only the log of each row's sum is kept. The backward pass
//! makes the same scores again, from them the same weights, and then needs four more products. Keys that no query of the tile
//! sees are never touched, so causal attention costs half of full attention, and a window costs its size.
//!
//! Tiles are so small that their scores stay in the second-level cache; the backward pass, which needs no whole rows, also goes
//! by parts of the keys. Keys and values of a head are packed for the products once, unless there are only a few queries, as
//! in decoding. Queries are read in place, by stride.

use crate::kernels::pointwise::accumulate;
use crate::kernels::product::{Accumulate, Matrix, MatrixMut, PANEL_STEP, Panels, TILE, dot, product, product_with};
use crate::ops::AttentionMask;
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
    pub(crate) width: usize,
    pub(crate) value_width: usize,
    pub(crate) mask: AttentionMask,
    pub(crate) scale: f64,
}

/// An additive bias and how to find the matrix of a sequence and head in it.
pub(crate) struct Bias<'a, S> {
    pub(crate) values: &'a [S],
    pub(crate) per_sequence: bool,
    pub(crate) per_head: bool,
}

/// The most scores of a tile in the forward pass, which needs whole rows: 128 KB of single precision.
const TILE_SCORES: usize = 1 << 15;
/// The most queries of a tile.
const MOST_QUERIES: usize = 10 * TILE;
/// The most keys of a tile in the backward pass, which needs no whole rows.
const MOST_KEYS: usize = 8 * PANEL_STEP;
/// From this many queries on, keys and values are packed once for all tiles.
pub(crate) const MANY_QUERIES: usize = 4 * TILE;

impl Extents {
    /// Queries per tile, about equally many in each: whole tiles of products.
    fn tile(&self, most: usize) -> usize {
        let tiles = self.queries.div_ceil(most.clamp(TILE, MOST_QUERIES)).max(1);
        self.queries.div_ceil(tiles).next_multiple_of(TILE)
    }

    /// Queries per tile in the forward pass.
    fn forward_tile(&self) -> usize {
        self.tile(TILE_SCORES / self.keys.max(1) / TILE * TILE)
    }

    /// Numbers of scratch space for the forward pass: a tile's scores, and the panels of keys and values.
    pub(crate) fn scratch<S: Scalar>(&self) -> usize {
        self.forward_tile() * self.keys
            + Panels::<S>::size(self.width, self.keys)
            + Panels::<S>::size(self.keys, self.value_width)
    }

    /// Numbers of scratch space for the backward pass: a tile's weights and their slopes, a number for each of its queries,
    /// and panels of the keys, either way round, and of the values.
    pub(crate) fn scratch_back<S: Scalar>(&self) -> usize {
        let tile = self.tile(MOST_QUERIES);
        tile * (2 * MOST_KEYS + 1)
            + Panels::<S>::size(self.width, self.keys)
            + Panels::<S>::size(self.keys, self.width)
            + Panels::<S>::size(self.value_width, self.keys)
    }

    /// Keys that a query sees.
    pub(crate) fn seen(&self, query: usize) -> Range<usize> {
        self.mask.range(query + self.keys - self.queries, self.keys)
    }

    /// Offset of a matrix of `[.., queries, keys]` biases.
    pub(super) fn bias_at<S>(&self, bias: &Bias<'_, S>, sequence: usize, head: usize) -> usize {
        let heads = if bias.per_head { self.heads } else { 1 };
        let sequence = if bias.per_sequence { sequence } else { 0 };
        (sequence * heads + if bias.per_head { head } else { 0 }) * self.queries * self.keys
    }

    /// The keys of a sequence and key head in `[batch, keys, key heads, width]`, or its values.
    fn whole<'a, S>(&self, x: &'a [S], (sequence, key_head): (usize, usize), width: usize) -> Matrix<'a, S> {
        let place = (sequence * self.keys * self.key_heads + key_head) * width;
        Matrix::new(&x[place.min(x.len())..], self.keys, width, self.key_heads * width)
    }

    /// Every sequence and key head.
    fn key_heads(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.batch).flat_map(move |sequence| (0..self.key_heads).map(move |head| (sequence, head)))
    }

    /// Tiles of the heads that read a key head, each with the keys it sees.
    fn tiles(self, (sequence, key_head): (usize, usize), tile: usize) -> impl Iterator<Item = Tile> {
        let heads = (0..self.heads).filter(move |head| head * self.key_heads / self.heads == key_head);
        heads.flat_map(move |head| {
            (0..self.queries).step_by(tile).map(move |first| {
                let rows = tile.min(self.queries - first);
                let start = self.seen(first).start / PANEL_STEP * PANEL_STEP;
                let keys = start..self.seen(first + rows - 1).end;
                Tile { sequence, head, first, rows, keys, extents: self }
            })
        })
    }
}

/// Some queries of one head, and the keys they see.
struct Tile {
    sequence: usize,
    head: usize,
    first: usize,
    rows: usize,
    keys: Range<usize>,
    extents: Extents,
}

impl Tile {
    fn key_head(&self) -> usize {
        self.head * self.extents.key_heads / self.extents.heads
    }

    /// Where the tile's queries start in `[batch, queries, heads, width]`, and the step from one to the next.
    fn query_place(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.queries + self.first;
        ((row * self.extents.heads + self.head) * width, self.extents.heads * width)
    }

    /// The same for the keys in `[batch, keys, key heads, width]`.
    fn key_place(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.keys + self.keys.start;
        ((row * self.extents.key_heads + self.key_head()) * width, self.extents.key_heads * width)
    }

    fn queries<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (place, stride) = self.query_place(width);
        Matrix::new(&x[place..], self.rows, width, stride)
    }

    fn queries_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (place, stride) = self.query_place(width);
        MatrixMut::new(&mut x[place..], self.rows, width, stride)
    }

    fn keys<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (place, stride) = self.key_place(width);
        Matrix::new(&x[place..], self.keys.len(), width, stride)
    }

    fn keys_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (place, stride) = self.key_place(width);
        MatrixMut::new(&mut x[place..], self.keys.len(), width, stride)
    }

    fn scores<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.rows, self.keys.len(), self.keys.len())
    }

    fn scores_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.rows, self.keys.len(), self.keys.len())
    }

    /// The same queries with a part of the keys at a time.
    fn by_keys(&self) -> impl Iterator<Item = Self> {
        self.keys.clone().step_by(MOST_KEYS).map(|start| {
            let keys = start..self.keys.end.min(start + MOST_KEYS);
            Self { keys, ..*self }
        })
    }

    /// Keys of the tile that a row sees, counted from the tile's first key.
    fn seen(&self, row: usize) -> Range<usize> {
        let seen = self.extents.seen(self.first + row);
        let within = |key: usize| key.clamp(self.keys.start, self.keys.end) - self.keys.start;
        within(seen.start)..within(seen.end)
    }

    /// Where a row's kept number is in `[batch, heads, queries]`.
    fn kept_at(&self, row: usize) -> usize {
        (self.sequence * self.extents.heads + self.head) * self.extents.queries + self.first + row
    }

    /// The row's biases in `[.., queries, keys]`, as a range.
    fn bias_range<S>(&self, bias: &Bias<'_, S>, row: usize) -> Range<usize> {
        let start = self.extents.bias_at(bias, self.sequence, self.head)
            + (self.first + row) * self.extents.keys
            + self.keys.start;
        start..start + self.keys.len()
    }

    /// Products of the tile's queries, or of something of their shape, with its keys or values.
    fn against<S: Scalar>(&self, factor: f64, queries: Matrix<'_, S>, keys: &Keys<'_, S>, scores: &mut [S]) {
        let mut out = self.scores_mut(scores);
        match keys {
            Keys::Packed(panels) => {
                let panels = panels.starting_at(self.keys.start);
                product_with(&mut out, Accumulate::Fresh, factor, queries, panels, 0..queries.extents()[1]);
            }
            Keys::Plain(x, width) => product(&mut out, Accumulate::Fresh, factor, queries, self.keys(x, *width).t()),
        }
    }

    /// Sum of the tile's keys or values by weights.
    fn combine<S: Scalar>(
        &self,
        into: Accumulate,
        factor: f64,
        weights: &[S],
        keys: &Keys<'_, S>,
        out: &mut MatrixMut<'_, S>,
    ) {
        let weights = self.scores(weights);
        match keys {
            Keys::Packed(panels) => product_with(out, into, factor, weights, *panels, self.keys.clone()),
            Keys::Plain(x, width) => product(out, into, factor, weights, self.keys(x, *width)),
        }
    }

    /// Scaled and biased scores of the tile.
    fn score<S: Scalar>(&self, query: &[S], keys: &Keys<'_, S>, bias: Option<&Bias<'_, S>>, scores: &mut [S]) {
        self.against(self.extents.scale, self.queries(query, self.extents.width), keys, scores);
        let Some(bias) = bias else { return };
        for (row, scores) in scores.chunks_exact_mut(self.keys.len()).take(self.rows).enumerate() {
            accumulate(&bias.values[self.bias_range(bias, row)], scores);
        }
    }
}

/// The keys or values of a head: packed, where many queries will use them, or as they are with the width of a head.
enum Keys<'a, S> {
    Packed(Panels<'a, S>),
    Plain(&'a [S], usize),
}

vectorised! {
    /// Turns the visible part of a row of scores into weights that sum to one; returns the log of the sum.
    pub(crate) fn weights_of_row<S>(row: &mut [S], from: usize, to: usize) -> S {
        row[..from].fill(S::ZERO);
        row[to..].fill(S::ZERO);
        let row = &mut row[from..to];
        let mut tops = [S::LOWEST; 16];
        let mut blocks = row.chunks_exact(16);
        for block in blocks.by_ref() {
            for (top, &x) in tops.iter_mut().zip(block) {
                *top = x.larger(*top);
            }
        }
        let highest = tops.iter().chain(blocks.remainder()).fold(S::LOWEST, |top, &x| x.larger(top));
        let mut lanes = [S::ZERO; 16];
        let mut blocks = row.chunks_exact_mut(16);
        for block in blocks.by_ref() {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *x = (*x - highest).exp();
                *lane += *x;
            }
        }
        let mut sum = S::ZERO;
        for x in blocks.into_remainder() {
            *x = (*x - highest).exp();
            sum += *x;
        }
        let sum = lanes.into_iter().fold(sum, |sum, lane| sum + lane);
        let share = S::ONE / sum;
        for x in row {
            *x *= share;
        }
        highest + sum.ln()
    }

    /// Turns a row of scores into the weights they had, given the log of their sum.
    pub(crate) fn weights_again<S>(row: &mut [S], from: usize, to: usize, kept: S) {
        row[..from].fill(S::ZERO);
        row[to..].fill(S::ZERO);
        for x in &mut row[from..to] {
            *x = (*x - kept).exp();
        }
    }

    /// Gradient of a row's scores, in place of the gradient of its weights.
    pub(crate) fn score_slopes<S>(weights: &[S], slopes: &mut [S], shared: S) {
        for (slope, &weight) in slopes.iter_mut().zip(weights) {
            *slope = weight * (*slope - shared);
        }
    }
}

/// Inputs of both passes.
pub(crate) struct Inputs<'a, S> {
    pub(crate) query: &'a [S],
    pub(crate) key: &'a [S],
    pub(crate) value: &'a [S],
    pub(crate) bias: Option<Bias<'a, S>>,
}

/// Outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scratch: &mut [S],
    kept: &mut [S],
    out: &mut [S],
) {
    let Extents { width, value_width, .. } = extents;
    let (scores, space) = scratch.split_at_mut(extents.forward_tile() * extents.keys);
    let (key_space, value_space) = space.split_at_mut(Panels::<S>::size(width, extents.keys));
    for head in extents.key_heads() {
        let (keys, values) = if extents.queries < MANY_QUERIES {
            (Keys::Plain(inputs.key, width), Keys::Plain(inputs.value, value_width))
        } else {
            let keys = Panels::pack(extents.whole(inputs.key, head, width).t(), key_space);
            (
                Keys::Packed(keys),
                Keys::Packed(Panels::pack(extents.whole(inputs.value, head, value_width), value_space)),
            )
        };
        for tile in extents.tiles(head, extents.forward_tile()) {
            tile.score(inputs.query, &keys, inputs.bias.as_ref(), scores);
            for (row, scores) in scores.chunks_exact_mut(tile.keys.len()).take(tile.rows).enumerate() {
                let seen = tile.seen(row);
                kept[tile.kept_at(row)] = weights_of_row(scores, seen.start, seen.end);
            }
            tile.combine(Accumulate::Fresh, 1.0, scores, &values, &mut tile.queries_mut(out, value_width));
        }
    }
}

/// What the backward pass writes. Gradients of keys, values and bias are added to; that of the queries is replaced.
pub(crate) struct Gradients<'a, S> {
    pub(crate) query: &'a mut [S],
    pub(crate) key: &'a mut [S],
    pub(crate) value: &'a mut [S],
    pub(crate) bias: Option<&'a mut [S]>,
}

/// Gradients of attention, from its output, the log-sums and the gradient of its output.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    (out, kept, slope): (&[S], &[S], &[S]),
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let Extents { width, value_width, .. } = extents;
    let rows = extents.tile(MOST_QUERIES);
    let (weights, space) = scratch.split_at_mut(rows * MOST_KEYS);
    let (slopes, space) = space.split_at_mut(rows * MOST_KEYS);
    let (shared, space) = space.split_at_mut(rows);
    let (across, space) = space.split_at_mut(Panels::<S>::size(width, extents.keys));
    let (down, value_space) = space.split_at_mut(Panels::<S>::size(extents.keys, width));
    for head in extents.key_heads() {
        let key = extents.whole(inputs.key, head, width);
        let keys_across = Keys::Packed(Panels::pack(key.t(), across));
        let keys_down = Keys::Packed(Panels::pack(key, down));
        let values = Keys::Packed(Panels::pack(extents.whole(inputs.value, head, value_width).t(), value_space));
        for whole in extents.tiles(head, rows) {
            let (query, out_slope) = (whole.queries(inputs.query, width), whole.queries(slope, value_width));
            let (place, stride) = whole.query_place(value_width);
            for (row, shared) in shared.iter_mut().enumerate().take(whole.rows) {
                let at = place + row * stride..place + row * stride + value_width;
                *shared = dot(&out[at.clone()], &slope[at]);
            }
            for tile in whole.by_keys() {
                tile.score(inputs.query, &keys_across, inputs.bias.as_ref(), weights);
                tile.against(1.0, out_slope, &values, slopes);
                let pairs = weights.chunks_exact_mut(tile.keys.len()).zip(slopes.chunks_exact_mut(tile.keys.len()));
                for (row, (weights, slopes)) in pairs.take(tile.rows).enumerate() {
                    let seen = tile.seen(row);
                    weights_again(weights, seen.start, seen.end, kept[tile.kept_at(row)]);
                    score_slopes(weights, slopes, shared[row]);
                    if let (Some(bias), Some(to_bias)) = (&inputs.bias, &mut gradients.bias) {
                        accumulate(slopes, &mut to_bias[tile.bias_range(bias, row)]);
                    }
                }
                let into = if tile.keys.start == whole.keys.start { Accumulate::Fresh } else { Accumulate::Sum };
                let to_query = &mut tile.queries_mut(gradients.query, width);
                tile.combine(into, extents.scale, slopes, &keys_down, to_query);
                let (weights, slopes) = (tile.scores(weights).t(), tile.scores(slopes).t());
                product(&mut tile.keys_mut(gradients.value, value_width), Accumulate::Sum, 1.0, weights, out_slope);
                product(&mut tile.keys_mut(gradients.key, width), Accumulate::Sum, extents.scale, slopes, query);
            }
        }
    }
}
