//! Linear recurrences over a matrix state, with or without decay, with or without the delta rule, as one kernel.
//!
//! Inside a chunk let `b_i` be the log-decay summed over the tokens *after* the chunk's first, up to and including `i`; the first
//! token's own decay is applied to the state before the chunk. With the decay in the operands, `Q = q e^b`, `K = k e^b` and
//! `W = k e^-b` (the inverse keys), everything is a matrix product:
//!
//! - state at the chunk's start `S0 = e^{g_first} S`;
//! - scores `P = tril(Q W')`, and for the delta rule overlaps `N = stril(K W')`, strictly lower triangular;
//! - writes `u = v`, or for the delta rule `u_i = beta_i e_i` with errors `e_i = v_i - K_i S0 - sum_{j < i} N_ij u_j`;
//! - output `Q S0 + P u`, next state `e^{b_last} (S0 + W' u)`.
//!
//! The factor `e^-b` would overflow if a chunk decayed by much. So a chunk ends early when the log-decay of any channel falls below
//! [`MIN_LOG_DECAY`](rows::MIN_LOG_DECAY). However strong the decay is, a chunk of one token has `b = 0`; exponents are bounded, no
//! special case is needed, and results are finite for extreme decays. Scalar and vector decays differ only in how many columns `b` has. Without
//! decay Q, K and W are the inputs themselves: products read them in place, and write to the gradients of the inputs.
//!
//! The forward pass stores the state at every `chunk` tokens, the start of a *cell*, and for the delta rule the errors `e`. The
//! backward pass runs from the last cell to the first, computes the operands of each chunk again, and runs the same products
//! transposed. Where values have one channel, the forward pass runs token by token ([`scan`]) and stores the same states.

mod chunk;
mod head;
mod rows;

use crate::kernels::product::{WriteMode, product};
use crate::kernels::scan;
use crate::scalar::Scalar;
use chunk::{Chunk, ChunkScratch, DecayedOperands, Operands};
use head::Head;
use rows::decay_rows;
use std::ops::Range;

/// The sizes of the inputs and the variant of the recurrence.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) key_width: usize,
    pub(crate) value_width: usize,
    /// Tokens per cell; the state before each cell is stored.
    pub(crate) chunk: usize,
    /// Columns of the log-decay: 0 for no decay, 1 for a scalar decay, or one per key channel.
    pub(crate) decay_columns: usize,
    /// Whether the recurrence is a delta rule.
    pub(crate) delta: bool,
}

/// One `T` for each input of a recurrence.
#[derive(Clone, Copy)]
pub(crate) struct PerInput<T> {
    pub(crate) query: T,
    pub(crate) key: T,
    pub(crate) value: T,
    pub(crate) decay: T,
    pub(crate) beta: T,
    pub(crate) state: T,
}

impl<T> From<[T; 6]> for PerInput<T> {
    fn from([query, key, value, decay, beta, state]: [T; 6]) -> Self {
        Self { query, key, value, decay, beta, state }
    }
}

/// The tensors that both passes read; an absent one is empty.
pub(crate) type Inputs<'a, S> = PerInput<&'a [S]>;

/// The gradients that the backward pass adds to; an absent one is empty.
pub(crate) type Gradients<'a, S> = PerInput<&'a mut [S]>;

impl Extents {
    /// Cells of a sequence.
    pub(crate) fn cell_count(&self) -> usize {
        self.time.div_ceil(self.chunk)
    }

    /// Numbers in a state.
    pub(crate) fn state_len(&self) -> usize {
        self.key_width * self.value_width
    }

    /// Whether every state is a vector with one decay per channel: then chunks save nothing.
    fn is_scan(&self) -> bool {
        self.value_width == 1
            && !self.delta
            && self.decay_columns == self.key_width
            && self.heads.is_multiple_of(self.key_heads)
    }

    /// Length of the scratch buffer of either pass.
    pub(crate) fn scratch_len(&self) -> usize {
        let rows = self.chunk.min(self.time);
        rows * (8 * self.key_width + 4 * self.value_width + 4 * rows) + (rows + 1) * self.state_len()
    }

    /// Every head of every sequence.
    fn all_heads(self) -> impl Iterator<Item = Head> {
        let pairs = (0..self.batch).flat_map(move |sequence| (0..self.heads).map(move |index| (sequence, index)));
        pairs.map(move |(sequence, index)| Head { extents: self, sequence, index })
    }
}

/// Computes the outputs of all tokens, the states after the last token, the states before each cell, and the delta rule's errors.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scratch: &mut [S],
    (out, last_states, cell_states, errors): (&mut [S], &mut [S], &mut [S], &mut [S]),
) {
    if inputs.state.is_empty() {
        last_states.fill(S::ZERO);
    } else {
        last_states.copy_from_slice(inputs.state);
    }
    if extents.is_scan() {
        return scan::forward(extents, inputs, (out, last_states, cell_states));
    }
    let (mut work, _) = ChunkScratch::new(&extents, scratch);
    for head in extents.all_heads() {
        let state = &mut last_states[head.state_range()];
        for cell in 0..extents.cell_count() {
            cell_states[head.cell_state_range(cell)].copy_from_slice(state);
            let Range { mut start, end } = head.cell_tokens(cell);
            while start < end {
                let chunk = Chunk::prepare(head, start, end, inputs, &mut work.decayed);
                start = chunk.tokens.end;
                if extents.decay_columns > 0 {
                    decay_rows(extents.value_width, chunk.first_decay(inputs.decay), state);
                }
                chunk.compute_scores(inputs, &mut work);
                chunk.compute_errors(inputs, state, errors, &mut work);
                let mut rows = head.value_matrix_mut(out, &chunk.tokens);
                let Operands { query, .. } = chunk.operands(inputs, &work.decayed);
                product(&mut rows, WriteMode::Overwrite, 1.0, query, chunk.state_matrix(state));
                let writes = chunk.writes(inputs, work.writes);
                product(&mut rows, WriteMode::Add, 1.0, chunk.score_matrix(work.scores), writes);
                chunk.advance(inputs, &work, state);
            }
        }
    }
}

/// Computes the gradients of all inputs, from the gradients of the outputs and (unless empty) of the states after the last token.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    (cell_states, errors): (&[S], &[S]),
    (grad_out, grad_last_states): (&[S], &[S]),
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let (mut work, states) = ChunkScratch::new(&extents, scratch);
    for head in extents.all_heads() {
        if grad_last_states.is_empty() {
            work.grad_state.fill(S::ZERO);
        } else {
            work.grad_state.copy_from_slice(&grad_last_states[head.state_range()]);
        }
        for cell in (0..extents.cell_count()).rev() {
            backward_cell(head, cell, inputs, (cell_states, errors, grad_out), states, &mut work, gradients);
        }
        if !gradients.state.is_empty() {
            gradients.state[head.state_range()].copy_from_slice(work.grad_state);
        }
    }
}

/// Gradients of one cell, from its last chunk to its first. First computes the state at the start of each chunk again.
fn backward_cell<S: Scalar>(
    head: Head,
    cell: usize,
    inputs: &Inputs<'_, S>,
    (cell_states, errors, grad_out): (&[S], &[S], &[S]),
    states: &mut [S],
    work: &mut ChunkScratch<'_, S>,
    gradients: &mut Gradients<'_, S>,
) {
    let (size, width) = (head.extents.state_len(), head.extents.value_width);
    let Range { mut start, end } = head.cell_tokens(cell);
    states[..size].copy_from_slice(&cell_states[head.cell_state_range(cell)]);
    let (cell_start, mut index) = (start, 0);
    let mut chunk;
    loop {
        chunk = Chunk::prepare(head, start, end, inputs, &mut work.decayed);
        chunk.recompute_writes(inputs, errors, work);
        let (start_state, end_state) = states[index * size..].split_at_mut(size);
        if head.extents.decay_columns > 0 {
            decay_rows(width, chunk.first_decay(inputs.decay), start_state);
        }
        start = chunk.tokens.end;
        if start == end {
            break;
        }
        end_state[..size].copy_from_slice(start_state);
        chunk.advance(inputs, work, &mut end_state[..size]);
        index += 1;
    }
    loop {
        chunk.compute_scores(inputs, work);
        chunk.backward(inputs, grad_out, &states[index * size..(index + 1) * size], work, gradients);
        if index == 0 {
            return;
        }
        index -= 1;
        chunk = chunk_ending_at(head, cell_start, chunk.tokens.start, end, inputs, &mut work.decayed);
        chunk.recompute_writes(inputs, errors, work);
    }
}

/// The chunk of a cell that ends at token `stop`. Chunks are prepared from the cell's start, as in the forward pass.
fn chunk_ending_at<S: Scalar>(
    head: Head,
    mut start: usize,
    stop: usize,
    end: usize,
    inputs: &Inputs<'_, S>,
    decayed: &mut DecayedOperands<'_, S>,
) -> Chunk {
    loop {
        let chunk = Chunk::prepare(head, start, end, inputs, decayed);
        if chunk.tokens.end == stop {
            return chunk;
        }
        start = chunk.tokens.end;
    }
}
