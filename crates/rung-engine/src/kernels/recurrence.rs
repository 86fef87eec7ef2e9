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
mod rows;

use crate::kernels::heads::{BackwardInputs, Extents, Head, Results, StateKernel, per_input};
use crate::kernels::product::{WriteMode, product};
use crate::kernels::scan;
use crate::scalar::Scalar;
use chunk::{Chunk, ChunkScratch, DecayedOperands, Operands};
use rows::decay_rows;
use std::ops::Range;

/// A linear recurrence of some sizes and variant.
#[derive(Clone, Copy)]
pub(crate) struct RecurrenceKernel {
    pub(crate) extents: Extents,
    /// Columns of the log-decay: 0 for no decay, 1 for a scalar decay, or one per key channel.
    pub(crate) decay_columns: usize,
    /// Whether the recurrence is a delta rule.
    pub(crate) delta: bool,
}

per_input!(query, key, value, decay, beta, state);

impl RecurrenceKernel {
    /// Whether every state is a vector with one decay per channel: then chunks save nothing.
    fn is_scan(&self) -> bool {
        self.extents.value_width == 1
            && !self.delta
            && self.decay_columns == self.extents.key_width
            && self.extents.heads.is_multiple_of(self.extents.key_heads)
    }

    /// Most tokens of a chunk.
    fn max_rows(&self) -> usize {
        self.extents.chunk.min(self.extents.time)
    }
}

impl StateKernel<6> for RecurrenceKernel {
    fn extents(&self) -> Extents {
        self.extents
    }

    /// The delta rule saves its errors.
    fn saves_rows(&self) -> bool {
        self.delta
    }

    fn scratch_lens(&self) -> [usize; 2] {
        let (Extents { key_width, value_width, .. }, rows) = (self.extents, self.max_rows());
        let length = rows * (8 * key_width + 4 * value_width + 4 * rows) + (rows + 1) * self.extents.state_len();
        [length; 2]
    }

    fn step_flops(&self) -> usize {
        if self.delta { 6 } else { 4 }
    }

    fn forward<S: Scalar>(self, inputs: [&[S]; 6], scratch: &mut [S], results: Results<'_, S>) {
        let Results { out, last_states, cell_states, saved_rows: errors } = results;
        let (inputs, extents) = (&Inputs::from(inputs), self.extents);
        if inputs.state.is_empty() {
            last_states.fill(S::ZERO);
        } else {
            last_states.copy_from_slice(inputs.state);
        }
        if self.is_scan() {
            return scan::forward(extents, inputs, (out, last_states, cell_states));
        }
        let (mut work, _) = ChunkScratch::new(&self, scratch);
        for head in extents.all_heads() {
            let state = &mut last_states[head.state_range()];
            for cell in 0..extents.cell_count() {
                cell_states[head.cell_state_range(cell)].copy_from_slice(state);
                let Range { mut start, end } = head.cell_tokens(cell);
                while start < end {
                    let chunk = Chunk::prepare((self, head), start, end, inputs, &mut work.decayed);
                    start = chunk.tokens.end;
                    if self.decay_columns > 0 {
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

    fn backward<S: Scalar>(
        self,
        inputs: [&[S]; 6],
        backward_inputs: BackwardInputs<'_, S>,
        scratch: &mut [S],
        gradients: [&mut [S]; 6],
    ) {
        let (inputs, gradients) = (&Inputs::from(inputs), &mut Gradients::from(gradients));
        let (extents, grad_last_states) = (self.extents, backward_inputs.grad_last_states);
        let (mut work, states) = ChunkScratch::new(&self, scratch);
        for head in extents.all_heads() {
            if grad_last_states.is_empty() {
                work.grad_state.fill(S::ZERO);
            } else {
                work.grad_state.copy_from_slice(&grad_last_states[head.state_range()]);
            }
            for cell in (0..extents.cell_count()).rev() {
                backward_cell((self, head), cell, inputs, backward_inputs, states, &mut work, gradients);
            }
            if !gradients.state.is_empty() {
                gradients.state[head.state_range()].copy_from_slice(work.grad_state);
            }
        }
    }
}

/// Gradients of one cell, from its last chunk to its first. First computes the state at the start of each chunk again.
fn backward_cell<S: Scalar>(
    (kernel, head): (RecurrenceKernel, Head),
    cell: usize,
    inputs: &Inputs<'_, S>,
    backward_inputs: BackwardInputs<'_, S>,
    states: &mut [S],
    work: &mut ChunkScratch<'_, S>,
    gradients: &mut Gradients<'_, S>,
) {
    let BackwardInputs { cell_states, saved_rows: errors, grad_out, .. } = backward_inputs;
    let (size, width) = (head.extents.state_len(), head.extents.value_width);
    let Range { mut start, end } = head.cell_tokens(cell);
    states[..size].copy_from_slice(&cell_states[head.cell_state_range(cell)]);
    let (cell_start, mut index) = (start, 0);
    let mut chunk;
    loop {
        chunk = Chunk::prepare((kernel, head), start, end, inputs, &mut work.decayed);
        chunk.recompute_writes(inputs, errors, work);
        let (start_state, end_state) = states[index * size..].split_at_mut(size);
        if kernel.decay_columns > 0 {
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
        chunk = chunk_ending_at((kernel, head), cell_start, chunk.tokens.start, end, inputs, &mut work.decayed);
        chunk.recompute_writes(inputs, errors, work);
    }
}

/// The chunk of a cell that ends at token `stop`. Chunks are prepared from the cell's start, as in the forward pass.
fn chunk_ending_at<S: Scalar>(
    (kernel, head): (RecurrenceKernel, Head),
    mut start: usize,
    stop: usize,
    end: usize,
    inputs: &Inputs<'_, S>,
    decayed: &mut DecayedOperands<'_, S>,
) -> Chunk {
    loop {
        let chunk = Chunk::prepare((kernel, head), start, end, inputs, decayed);
        if chunk.tokens.end == stop {
            return chunk;
        }
        start = chunk.tokens.end;
    }
}
