//! One large product on several threads.
//!
//! With few rows, as in decoding, columns are shared out. Otherwise a block of the right operand is packed by all threads, each some of
//! its panels, and then multiplied by all threads, each with some rows of the left. Every element is computed as on one thread, so the
//! bits are the same.

use std::sync::{Mutex, PoisonError};

use super::worker_pool::WorkerPool;
use crate::kernels::product::{Accumulate, DEPTH, FEW_ROWS, Matrix, MatrixMut, Panels, TILE, product, product_with};
use crate::scalar::Scalar;

/// Products of fewer terms than this are not worth waking a thread for.
const FEW_TERMS: usize = 1 << 16;
/// Whether a product is worth sharing out.
pub(super) fn is_divisible(rows: usize, columns: usize, inner: usize) -> bool {
    rows.saturating_mul(columns).saturating_mul(inner) >= FEW_TERMS
}

/// The next part of some work.
pub(super) fn next_of<T>(parts: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    parts.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// `out = left right`, whose rows are `columns` long. The space holds the panels of a block: see [`packed_size`].
pub(super) fn product_on<S: Scalar>(
    workers: &mut WorkerPool,
    out: &mut [S],
    columns: usize,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
    space: &mut [S],
) {
    let [rows, inner] = left.extents();
    if rows <= FEW_ROWS {
        return few_rows(workers, out, columns, left, right);
    }
    for start in (0..inner).step_by(DEPTH) {
        let terms = start..inner.min(start + DEPTH);
        let block = right.rows(terms.clone());
        pack_on(workers, block, space);
        let panels = Panels::of_packed(block.extents(), space);
        let into = if start > 0 { Accumulate::Sum } else { Accumulate::Fresh };
        let parts = Mutex::new(row_parts(out, rows, columns, workers.threads()).into_iter());
        workers.run(&|_| {
            while let Some((first, out)) = next_of(&parts) {
                let rows = out.len() / columns;
                let left = left.rows(first..first + rows).columns(terms.clone());
                product_with(&mut MatrixMut::new(out, rows, columns, columns), into, 1.0, left, panels, 0..terms.len());
            }
        });
    }
}

/// Numbers that the panels of a block take; none for few rows, which are not packed.
pub(super) fn packed_size<S: Scalar>(rows: usize, columns: usize, inner: usize) -> usize {
    if rows <= FEW_ROWS { 0 } else { Panels::<S>::size(DEPTH.min(inner), columns) }
}

fn few_rows<S: Scalar>(
    workers: &mut WorkerPool,
    out: &mut [S],
    columns: usize,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    for (row, out) in out.chunks_exact_mut(columns).enumerate() {
        let share = columns.div_ceil(workers.threads()).next_multiple_of(16);
        let parts = Mutex::new(out.chunks_mut(share).enumerate());
        workers.run(&|_| {
            while let Some((index, out)) = next_of(&parts) {
                let (first, length) = (index * share, out.len());
                let right = right.columns(first..first + length);
                product(
                    &mut MatrixMut::new(out, 1, length, length),
                    Accumulate::Fresh,
                    1.0,
                    left.rows(row..row + 1),
                    right,
                );
            }
        });
    }
}

/// Packs a block of at most `DEPTH` rows: panels lie one after another, so each part of the space is packed by itself.
fn pack_on<S: Scalar>(workers: &mut WorkerPool, block: Matrix<'_, S>, space: &mut [S]) {
    let [height, columns] = block.extents();
    let width = Panels::<S>::width();
    let share = columns.div_ceil(workers.threads()).next_multiple_of(width);
    let size = Panels::<S>::size(height, columns);
    let parts = Mutex::new(space[..size].chunks_mut(share * height).enumerate());
    workers.run(&|_| {
        while let Some((index, space)) = next_of(&parts) {
            let columns = index * share..columns.min((index + 1) * share);
            Panels::pack(block.columns(columns), space);
        }
    });
}

/// Rows of a result in parts of whole tiles; what is left over goes to the last, so that none has so few rows that it is computed
/// otherwise.
fn row_parts<S>(out: &mut [S], rows: usize, columns: usize, threads: usize) -> Vec<(usize, &mut [S])> {
    let share = (rows / threads / TILE * TILE).max(TILE);
    let (mut parts, mut rest, mut first) = (Vec::with_capacity(rows / share + 1), out, 0);
    while rows - first >= 2 * share {
        let (part, after) = rest.split_at_mut(share * columns);
        parts.push((first, part));
        (rest, first) = (after, first + share);
    }
    parts.push((first, rest));
    parts
}
