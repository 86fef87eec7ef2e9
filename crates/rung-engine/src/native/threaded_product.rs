//! One large product on several threads.
//!
//! With few rows, as in decoding, each thread computes a range of columns. On AMX, each computes a range of rows. Otherwise all threads pack a block of the right operand,
//! each some of its panels, and then multiply it, each with some rows of the left operand. Every element is computed as on one
//! thread, so the bits are the same.

use std::sync::{Mutex, PoisonError};

use super::worker_pool::WorkerPool;
use crate::kernels::product::{
    AMX_PANEL, BLOCK_DEPTH, MAX_UNPACKED_ROWS, Matrix, MatrixMut, Panels, TILE_ROWS, WriteMode, product,
    product_with_panels, uses_amx,
};
use crate::scalar::Scalar;

/// Products of fewer multiplications than this run on one thread: waking another would take longer.
const MIN_MULTIPLICATIONS: usize = 1 << 16;

/// Whether a product is large enough for several threads.
pub(super) fn is_divisible(rows: usize, columns: usize, inner: usize) -> bool {
    rows.saturating_mul(columns).saturating_mul(inner) >= MIN_MULTIPLICATIONS
}

/// Takes the next task from a queue that all threads share.
pub(super) fn next_task<T>(tasks: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// `out = left right`, whose rows are `columns` long. The buffer, of [`packed_len`] numbers, holds the panels of a block.
pub(super) fn multiply_with<S: Scalar>(
    workers: &mut WorkerPool,
    out: &mut [S],
    columns: usize,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
    buffer: &mut [S],
) {
    let [rows, inner] = left.extents();
    if rows <= MAX_UNPACKED_ROWS {
        return multiply_few_rows(workers, out, columns, left, right);
    }
    if uses_amx::<S>(rows, columns, inner) {
        return multiply_rows(workers, out, columns, left, right);
    }
    for start in (0..inner).step_by(BLOCK_DEPTH) {
        let inner_range = start..inner.min(start + BLOCK_DEPTH);
        let block = right.rows(inner_range.clone());
        pack_with(workers, block, buffer);
        let panels = Panels::from_packed(block.extents(), buffer);
        let mode = if start > 0 { WriteMode::Add } else { WriteMode::Overwrite };
        let tasks = Mutex::new(row_tasks(out, columns, workers.threads(), TILE_ROWS).into_iter());
        workers.run(&|_| {
            while let Some((first, out)) = next_task(&tasks) {
                let rows = out.len() / columns;
                let left = left.rows(first..first + rows).columns(inner_range.clone());
                product_with_panels(
                    &mut MatrixMut::new(out, rows, columns, columns),
                    mode,
                    1.0,
                    left,
                    panels,
                    0..inner_range.len(),
                );
            }
        });
    }
}

/// Length of the panels of a block; 0 for few rows, which need no packing, and on AMX, where each thread packs its own.
pub(super) fn packed_len<S: Scalar>(rows: usize, columns: usize, inner: usize) -> usize {
    if rows <= MAX_UNPACKED_ROWS || uses_amx::<S>(rows, columns, inner) {
        0
    } else {
        Panels::<S>::size(BLOCK_DEPTH.min(inner), columns)
    }
}

fn multiply_rows<S: Scalar>(
    workers: &mut WorkerPool,
    out: &mut [S],
    columns: usize,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    let tasks = Mutex::new(row_tasks(out, columns, workers.threads(), AMX_PANEL).into_iter());
    workers.run(&|_| {
        while let Some((first, out)) = next_task(&tasks) {
            let rows = out.len() / columns;
            let out = &mut MatrixMut::new(out, rows, columns, columns);
            product(out, WriteMode::Overwrite, 1.0, left.rows(first..first + rows), right);
        }
    });
}

fn multiply_few_rows<S: Scalar>(
    workers: &mut WorkerPool,
    out: &mut [S],
    columns: usize,
    left: Matrix<'_, S>,
    right: Matrix<'_, S>,
) {
    for (row, out) in out.chunks_exact_mut(columns).enumerate() {
        let task_size = columns.div_ceil(workers.threads()).next_multiple_of(16);
        let tasks = Mutex::new(out.chunks_mut(task_size).enumerate());
        workers.run(&|_| {
            while let Some((index, out)) = next_task(&tasks) {
                let (first, length) = (index * task_size, out.len());
                let right = right.columns(first..first + length);
                product(
                    &mut MatrixMut::new(out, 1, length, length),
                    WriteMode::Overwrite,
                    1.0,
                    left.rows(row..row + 1),
                    right,
                );
            }
        });
    }
}

/// Packs a block of at most `BLOCK_DEPTH` rows. Panels lie one after another in the buffer, so each thread packs its own.
fn pack_with<S: Scalar>(workers: &mut WorkerPool, block: Matrix<'_, S>, buffer: &mut [S]) {
    let [height, columns] = block.extents();
    let width = Panels::<S>::width(columns);
    let task_size = columns.div_ceil(workers.threads()).next_multiple_of(width);
    let size = Panels::<S>::size(height, columns);
    let tasks = Mutex::new(buffer[..size].chunks_mut(task_size * height).enumerate());
    workers.run(&|_| {
        while let Some((index, buffer)) = next_task(&tasks) {
            let columns = index * task_size..columns.min((index + 1) * task_size);
            Panels::pack_columns(block, columns, buffer);
        }
    });
}

/// Splits the rows of a result into a task for each thread, with the index of its first row, in multiples of `min_rows`. The last task
/// also takes a remainder: a task of fewer rows would be computed by another path, with other rounding.
fn row_tasks<S>(out: &mut [S], columns: usize, threads: usize, min_rows: usize) -> Vec<(usize, &mut [S])> {
    let rows = out.len() / columns;
    let task_size = rows.div_ceil(threads).next_multiple_of(min_rows);
    let (mut tasks, mut remaining, mut first) = (Vec::with_capacity(threads), out, 0);
    while rows - first >= task_size + min_rows {
        let (task, after) = remaining.split_at_mut(task_size * columns);
        tasks.push((first, task));
        (remaining, first) = (after, first + task_size);
    }
    tasks.push((first, remaining));
    tasks
}
