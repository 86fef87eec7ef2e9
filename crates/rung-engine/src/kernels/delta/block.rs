//! Blocks of a state: all rows, and as many columns as fit two vectors (one, where
//! that has space for all), its *lanes*.
//!
//! Where the columns of a state do not depend on each other, a block goes through all tokens of a cell before the next block does, and
//! stays in the L1 cache. Lanes beyond the last column are zeros.

use crate::kernels::transpose::transpose;
use crate::scalar::Scalar;

/// The lanes of a row from `first` on, zeros beyond its end.
#[inline(always)]
pub(super) fn load_lanes<S: Scalar, const LANES: usize>(row: &[S], first: usize) -> [S; LANES] {
    let row = &row[first..];
    if let Some(lanes) = row.first_chunk() {
        return *lanes;
    }
    let mut lanes = [S::ZERO; LANES];
    lanes[..row.len()].copy_from_slice(row);
    lanes
}

/// Stores lanes to a row from `first` on, without those beyond its end.
#[inline(always)]
pub(super) fn store_lanes<S: Scalar, const LANES: usize>(lanes: &[S; LANES], row: &mut [S], first: usize) {
    let row = &mut row[first..];
    match row.first_chunk_mut() {
        Some(row) => *row = *lanes,
        None => row.copy_from_slice(&lanes[..row.len()]),
    }
}

/// Divides the columns of a state, rows of `width` numbers, into blocks.
pub(super) fn load_blocks<S: Scalar, const LANES: usize>(state: &[S], width: usize, blocks: &mut [S]) {
    for (index, block) in blocks.chunks_exact_mut(state.len() / width * LANES).enumerate() {
        for (row, lanes) in state.chunks_exact(width).zip(block.as_chunks_mut::<LANES>().0) {
            *lanes = load_lanes(row, index * LANES);
        }
    }
}

/// Joins blocks of columns to a state, rows of `width` numbers.
pub(super) fn store_blocks<S: Scalar, const LANES: usize>(blocks: &[S], width: usize, state: &mut [S]) {
    for (index, block) in blocks.chunks_exact(state.len() / width * LANES).enumerate() {
        for (row, lanes) in state.chunks_exact_mut(width).zip(block.as_chunks::<LANES>().0) {
            store_lanes(lanes, row, index * LANES);
        }
    }
}

/// Divides the rows of a state, each of `width` numbers, into blocks of which they are the lanes.
pub(super) fn load_transposed_blocks<S: Scalar, const LANES: usize>(state: &[S], width: usize, blocks: &mut [S]) {
    blocks.fill(S::ZERO);
    for (states, block) in state.chunks(LANES * width).zip(blocks.chunks_exact_mut(width * LANES)) {
        transpose(states, states.len() / width, width, width, block, LANES);
    }
}

/// What a step takes of every row of a block.
#[derive(Clone, Copy)]
pub(super) struct StepRows<'a, S> {
    pub(super) write: &'a [S],
    pub(super) erase: &'a [S],
    pub(super) read: &'a [S],
    pub(super) recall: &'a [S],
}

/// Turns a block `X` into `decay X + write written' - erase erased'`; returns `X' read` and `X' recall` of that. One pass over the
/// rows does it all: what is added and what is summed stays in registers.
#[inline(always)]
fn step<S: Scalar, const LANES: usize>(
    block: &mut [S],
    decay_factors: impl Iterator<Item = [S; LANES]>,
    rows: StepRows<'_, S>,
    [written, erased]: [[S; LANES]; 2],
) -> [[S; LANES]; 2] {
    let (mut out, mut recalled) = ([S::ZERO; LANES], [S::ZERO; LANES]);
    let numbers = rows.write.iter().zip(rows.erase).zip(rows.read.iter().zip(rows.recall));
    let lanes = block.as_chunks_mut::<LANES>().0.iter_mut().zip(decay_factors);
    for ((lanes, factors), ((&write, &erase), (&read, &recall))) in lanes.zip(numbers) {
        for lane in 0..LANES {
            let x = erased[lane].mul_add(-erase, written[lane].mul_add(write, lanes[lane] * factors[lane]));
            lanes[lane] = x;
            out[lane] = x.mul_add(read, out[lane]);
            recalled[lane] = x.mul_add(recall, recalled[lane]);
        }
    }
    [out, recalled]
}

vectorised! {
    /// [`step`] with a decay factor for each row.
    pub(super) fn step_with_row_decay<S, const LANES: usize>(
        block: &mut [S],
        decay_factors: &[S],
        rows: StepRows<'_, S>,
        lanes: [[S; LANES]; 2],
    ) -> [[S; LANES]; 2] {
        step(block, decay_factors.iter().map(|&factor| [factor; LANES]), rows, lanes)
    }

    /// [`step`] with a decay factor for each lane.
    pub(super) fn step_with_lane_decay<S, const LANES: usize>(
        block: &mut [S],
        decay_factors: [S; LANES],
        rows: StepRows<'_, S>,
        lanes: [[S; LANES]; 2],
    ) -> [[S; LANES]; 2] {
        step(block, std::iter::repeat(decay_factors), rows, lanes)
    }

    /// `X' numbers`.
    pub(super) fn sum_rows<S, const LANES: usize>(block: &[S], numbers: &[S]) -> [S; LANES] {
        let mut sums = [S::ZERO; LANES];
        for (row, &number) in block.as_chunks::<LANES>().0.iter().zip(numbers) {
            for lane in 0..LANES {
                sums[lane] = row[lane].mul_add(number, sums[lane]);
            }
        }
        sums
    }

    /// The dot product of every column of a block with that of another.
    pub(super) fn dot_columns<S, const LANES: usize>(left: &[S], right: &[S]) -> [S; LANES] {
        let mut sums = [S::ZERO; LANES];
        for (left, right) in left.as_chunks::<LANES>().0.iter().zip(right.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                sums[lane] = left[lane].mul_add(right[lane], sums[lane]);
            }
        }
        sums
    }
}
