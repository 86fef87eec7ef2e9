//! The choice of tokens by an indexer: scores of all earlier tokens, and the highest of them for every query.
//!
//! A tile of queries is multiplied by the packed keys, for all index heads at once; the heads' similarities are added up to one row of
//! scores per query; and [`top_k`] chooses from the row. Only a tile's scores exist at a time.

use super::product::{Matrix, MatrixMut, PANEL_ALIGNMENT, Panels, WriteMode, product_with_panels};
use crate::choice::BlockChoice;
use crate::kernels::top_k::top_k;
use crate::scalar::Scalar;

/// The sizes of the inputs, and the number of tokens to choose.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) query_len: usize,
    pub(crate) key_len: usize,
    pub(crate) heads: usize,
    pub(crate) width: usize,
    pub(crate) top: usize,
}

/// Queries of a tile.
const TILE_QUERIES: usize = 12;
/// Keys that a tile is multiplied by at a time.
const TILE_KEYS: usize = 16 * PANEL_ALIGNMENT;

impl Extents {
    /// Length of the scratch buffer: packed keys, the similarities of a tile, and its scores.
    pub(crate) fn scratch_len<S: Scalar>(&self) -> usize {
        Panels::<S>::size(self.width, self.key_len) + TILE_QUERIES * (self.heads * TILE_KEYS + self.key_len)
    }
}

vectorised! {
    /// `scores += weight * max(similarities, 0)`.
    fn add_weighted_relu<S>(weight: S, similarities: &[S], scores: &mut [S]) {
        for (score, &similarity) in scores.iter_mut().zip(similarities) {
            *score = similarity.larger(S::ZERO).mul_add(weight, *score);
        }
    }
}

/// The tokens that each query reads, from queries `[batch, queries, heads, width]`, head weights `[batch, queries, heads]` and keys
/// `[batch, keys, width]`.
pub(crate) fn choose<S: Scalar>(
    extents: Extents,
    [query, head_weights, key]: [&[S]; 3],
    scratch: &mut [S],
) -> BlockChoice {
    let Extents { batch, query_len, key_len, heads, width, top } = extents;
    let (panel_buffer, remaining) = scratch.split_at_mut(Panels::<S>::size(width, key_len));
    let (similarities, scores) = remaining.split_at_mut(TILE_QUERIES * heads * TILE_KEYS);
    let mut choice = BlockChoice::new(1, 1);
    for sequence in 0..batch {
        let keys = Matrix::new(&key[sequence * key_len * width..], key_len, width, width);
        let panels = Panels::pack(keys.t(), panel_buffer);
        for first in (0..query_len).step_by(TILE_QUERIES) {
            let queries = TILE_QUERIES.min(query_len - first);
            let visible = first + queries + key_len - query_len;
            if visible <= top {
                // Every query reads all tokens before it, whatever their scores.
                (visible + 1 - queries..=visible).for_each(|count| choice.push(0..count));
                continue;
            }
            let (row, rows) = ((sequence * query_len + first) * heads, queries * heads);
            let tile = Matrix::new(&query[row * width..], rows, width, width);
            for scores in scores.chunks_exact_mut(key_len).take(queries) {
                scores[..visible].fill(S::ZERO);
            }
            for start in (0..visible).step_by(TILE_KEYS) {
                let columns = TILE_KEYS.min(visible - start);
                let mut out = MatrixMut::new(similarities, rows, columns, columns);
                let panels = panels.skip_columns(start);
                product_with_panels(&mut out, WriteMode::Overwrite, 1.0, tile, panels, 0..width);
                for (index, similarities) in similarities.chunks_exact(columns).take(rows).enumerate() {
                    let scores = &mut scores[index / heads * key_len + start..][..columns];
                    add_weighted_relu(head_weights[row + index], similarities, scores);
                }
            }
            for (index, scores) in scores.chunks_exact(key_len).take(queries).enumerate() {
                choice.push(top_k(&scores[..visible + 1 + index - queries], top));
            }
        }
    }
    choice
}
