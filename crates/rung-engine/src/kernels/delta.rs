//! The general delta rule, one token after another.
//!
//! With the state `S` before a token, `u = S' s` is the value that it recalls for the recall key `s`. The state after the token is
//! `Diag(e^g) S - r u' + k v'`, and the output is `S' q` of that. A token passes over the rows of the state once for `u` and once
//! for the update, in vectors over value channels; a state of 64 by 64 numbers stays in the L1 cache.
//!
//! The forward pass stores the state at every `chunk` tokens, the start of a *cell*. The backward pass runs from the last cell to
//! the first, computes the states of a cell again, and takes the gradient `D` of the state back through each token:
//!
//! - `D += q dy'`, `dq = S_after dy`;
//! - `dk = D v`, `dv = D' k`, `dr = -D u`, `du = -D' r`, `dg = e^g (D . S)` summed over a row;
//! - `ds = S du`, `D <- Diag(e^g) D + s du'`.

use super::heads::{BackwardInputs, Extents, Head, Results, StateKernel, per_input};
use crate::scalar::Scalar;
use std::ops::Range;

/// A general delta rule of some sizes.
#[derive(Clone, Copy)]
pub(crate) struct DeltaKernel {
    pub(crate) extents: Extents,
}

per_input!(query, key, value, decay, recall_key, erase_key, state);

impl StateKernel<7> for DeltaKernel {
    fn extents(&self) -> Extents {
        self.extents
    }

    fn saves_rows(&self) -> bool {
        false
    }

    /// Forward: decay factors and the recalled value. Backward: for every token of a cell its state, decay factors and recalled value;
    /// then the current state, its gradient, and that of the recalled value.
    fn scratch_lens(&self) -> [usize; 2] {
        let Extents { key_width, value_width, chunk, .. } = self.extents;
        let (row_len, state_len) = (key_width + value_width, self.extents.state_len());
        [row_len, chunk * (state_len + row_len) + 2 * state_len + value_width]
    }

    /// A token recalls, erases, writes and reads.
    fn step_flops(&self) -> usize {
        8
    }

    fn forward<S: Scalar>(self, inputs: [&[S]; 7], scratch: &mut [S], results: Results<'_, S>) {
        forward(self.extents, &Inputs::from(inputs), scratch, results);
    }

    fn backward<S: Scalar>(
        self,
        inputs: [&[S]; 7],
        backward_inputs: BackwardInputs<'_, S>,
        scratch: &mut [S],
        gradients: [&mut [S]; 7],
    ) {
        backward(self.extents, &Inputs::from(inputs), backward_inputs, scratch, &mut Gradients::from(gradients));
    }
}

/// Where row `index` lies among rows of `width` numbers.
fn row_range(index: usize, width: usize) -> Range<usize> {
    index * width..(index + 1) * width
}

/// The rows of one token and head, with `decay_factors` for `e^g`.
#[derive(Clone, Copy)]
struct Token<'a, S> {
    query: &'a [S],
    key: &'a [S],
    value: &'a [S],
    decay_factors: &'a [S],
    recall_key: &'a [S],
    erase_key: &'a [S],
}

impl<'a, S: Scalar> Token<'a, S> {
    fn new(extents: &Extents, inputs: &Inputs<'a, S>, row: usize, decay_factors: &'a [S]) -> Self {
        let key_range = row_range(row, extents.key_width);
        Self {
            query: &inputs.query[key_range.clone()],
            key: &inputs.key[key_range.clone()],
            value: &inputs.value[row_range(row, extents.value_width)],
            decay_factors,
            recall_key: &inputs.recall_key[key_range.clone()],
            erase_key: &inputs.erase_key[key_range],
        }
    }
}

const LANES: usize = 16;

/// Dot product with `LANES` partial sums, which are then added in halves: both loops become vector code.
#[inline(always)]
pub(super) fn dot_in_lanes<S: Scalar>(left: &[S], right: &[S]) -> S {
    let ((left, left_remainder), (right, right_remainder)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    let mut lanes = [S::ZERO; LANES];
    for (left, right) in left.iter().zip(right) {
        for (lane, (&left, &right)) in lanes.iter_mut().zip(left.iter().zip(right)) {
            *lane = left.mul_add(right, *lane);
        }
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    left_remainder.iter().zip(right_remainder).fold(lanes[0], |sum, (&left, &right)| left.mul_add(right, sum))
}

vectorised! {
    /// `out = e^x`.
    fn exponentiate<S>(x: &[S], out: &mut [S]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x.exp();
        }
    }

    /// `out = state' recall_key`.
    fn recall<S>(state: &[S], recall_key: &[S], out: &mut [S]) {
        out.fill(S::ZERO);
        for (row, &recall_key) in state.chunks_exact(out.len()).zip(recall_key) {
            for (out, &x) in out.iter_mut().zip(row) {
                *out = x.mul_add(recall_key, *out);
            }
        }
    }

    /// Turns the state before a token into the state after it.
    fn advance<S>(token: Token<'_, S>, recalled: &[S], state: &mut [S]) {
        let width = recalled.len();
        for (index, row) in state.chunks_exact_mut(width).enumerate() {
            let (decay_factor, key, erase_key) = (token.decay_factors[index], token.key[index], token.erase_key[index]);
            for ((x, &recalled), &value) in row.iter_mut().zip(recalled).zip(token.value) {
                *x = recalled.mul_add(-erase_key, value.mul_add(key, *x * decay_factor));
            }
        }
    }

    /// `out = state vector`.
    fn multiply_rows<S>(state: &[S], vector: &[S], out: &mut [S]) {
        for (out, row) in out.iter_mut().zip(state.chunks_exact(vector.len())) {
            *out = dot_in_lanes(row, vector);
        }
    }

    /// First half of a token's backward pass: adds the gradient of the output to that of the state, and computes all gradients
    /// but `ds`.
    fn backward_read_and_write<S>(
        token: Token<'_, S>,
        previous_state: &[S],
        recalled: &[S],
        grad_out: &[S],
        grad_state: &mut [S],
        grad_key_rows: [&mut [S]; 3],
        grad_value: &mut [S],
        grad_recalled: &mut [S],
    ) {
        let width = grad_out.len();
        let [grad_key, grad_erase_key, grad_decay] = grad_key_rows;
        grad_value.fill(S::ZERO);
        grad_recalled.fill(S::ZERO);
        for (index, (row, previous_state)) in grad_state.chunks_exact_mut(width).zip(previous_state.chunks_exact(width)).enumerate() {
            let (query, key, erase_key) = (token.query[index], token.key[index], token.erase_key[index]);
            let sums = grad_value.iter_mut().zip(&mut *grad_recalled);
            for ((x, &grad_out), (grad_value, grad_recalled)) in row.iter_mut().zip(grad_out).zip(sums) {
                *x = grad_out.mul_add(query, *x);
                *grad_value = x.mul_add(key, *grad_value);
                *grad_recalled = x.mul_add(-erase_key, *grad_recalled);
            }
            grad_key[index] = dot_in_lanes(row, token.value);
            grad_erase_key[index] = -dot_in_lanes(row, recalled);
            grad_decay[index] = dot_in_lanes(row, previous_state) * token.decay_factors[index];
        }
    }

    /// Second half: the gradient of the state before the token.
    fn backward_state<S>(token: Token<'_, S>, grad_recalled: &[S], grad_state: &mut [S]) {
        for (index, row) in grad_state.chunks_exact_mut(grad_recalled.len()).enumerate() {
            let (decay_factor, recall_key) = (token.decay_factors[index], token.recall_key[index]);
            for (x, &grad_recalled) in row.iter_mut().zip(grad_recalled) {
                *x = grad_recalled.mul_add(recall_key, *x * decay_factor);
            }
        }
    }
}

fn forward<S: Scalar>(extents: Extents, inputs: &Inputs<'_, S>, scratch: &mut [S], results: Results<'_, S>) {
    let Results { out, last_states, cell_states, .. } = results;
    let Extents { key_width, value_width, .. } = extents;
    let (decay_factors, remaining) = scratch.split_at_mut(key_width);
    let recalled = &mut remaining[..value_width];
    for head in extents.all_heads() {
        let state = &mut last_states[head.state_range()];
        if inputs.state.is_empty() {
            state.fill(S::ZERO);
        } else {
            state.copy_from_slice(&inputs.state[head.state_range()]);
        }
        for cell in 0..extents.cell_count() {
            cell_states[head.cell_state_range(cell)].copy_from_slice(state);
            for time in head.cell_tokens(cell) {
                let row = head.token_row(time);
                exponentiate(&inputs.decay[row_range(row, key_width)], decay_factors);
                let token = Token::new(&extents, inputs, row, decay_factors);
                recall(state, token.recall_key, recalled);
                advance(token, recalled, state);
                recall(state, token.query, &mut out[row_range(row, value_width)]);
            }
        }
    }
}

/// The scratch buffer of the backward pass, split into its arrays.
struct BackwardScratch<'a, S> {
    /// The states before each token of a cell.
    states: &'a mut [S],
    decay_factors: &'a mut [S],
    recalled: &'a mut [S],
    current_state: &'a mut [S],
    grad_state: &'a mut [S],
    grad_recalled: &'a mut [S],
}

impl<'a, S> BackwardScratch<'a, S> {
    fn new(extents: &Extents, scratch: &'a mut [S]) -> Self {
        let (states, remaining) = scratch.split_at_mut(extents.chunk * extents.state_len());
        let (decay_factors, remaining) = remaining.split_at_mut(extents.chunk * extents.key_width);
        let (recalled, remaining) = remaining.split_at_mut(extents.chunk * extents.value_width);
        let (current_state, remaining) = remaining.split_at_mut(extents.state_len());
        let (grad_state, remaining) = remaining.split_at_mut(extents.state_len());
        Self {
            states,
            decay_factors,
            recalled,
            current_state,
            grad_state,
            grad_recalled: &mut remaining[..extents.value_width],
        }
    }
}

fn backward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    BackwardInputs { cell_states, grad_out, grad_last_states, .. }: BackwardInputs<'_, S>,
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let mut work = BackwardScratch::new(&extents, scratch);
    for head in extents.all_heads() {
        if grad_last_states.is_empty() {
            work.grad_state.fill(S::ZERO);
        } else {
            work.grad_state.copy_from_slice(&grad_last_states[head.state_range()]);
        }
        for cell in (0..extents.cell_count()).rev() {
            work.current_state.copy_from_slice(&cell_states[head.cell_state_range(cell)]);
            recompute_cell(&extents, inputs, (head, cell), grad_out, &mut work, gradients.query);
            backward_cell(&extents, inputs, (head, cell), grad_out, &mut work, gradients);
        }
        if !gradients.state.is_empty() {
            gradients.state[head.state_range()].copy_from_slice(work.grad_state);
        }
    }
}

/// Computes the states of a cell's tokens again, and from them the gradients of the queries.
fn recompute_cell<S: Scalar>(
    extents: &Extents,
    inputs: &Inputs<'_, S>,
    (head, cell): (Head, usize),
    grad_out: &[S],
    work: &mut BackwardScratch<'_, S>,
    grad_query: &mut [S],
) {
    let (key_width, value_width, state_len) = (extents.key_width, extents.value_width, extents.state_len());
    for (index, time) in head.cell_tokens(cell).enumerate() {
        let row = head.token_row(time);
        let decay_factors = &mut work.decay_factors[row_range(index, key_width)];
        let recalled = &mut work.recalled[row_range(index, value_width)];
        exponentiate(&inputs.decay[row_range(row, key_width)], decay_factors);
        let token = Token::new(extents, inputs, row, decay_factors);
        work.states[row_range(index, state_len)].copy_from_slice(work.current_state);
        recall(work.current_state, token.recall_key, recalled);
        advance(token, recalled, work.current_state);
        let grad_out = &grad_out[row_range(row, value_width)];
        multiply_rows(work.current_state, grad_out, &mut grad_query[row_range(row, key_width)]);
    }
}

/// Gradients of a cell, from its last token to its first. `work.grad_state` is the gradient of the state after the cell, and
/// becomes that of the state before it.
fn backward_cell<S: Scalar>(
    extents: &Extents,
    inputs: &Inputs<'_, S>,
    (head, cell): (Head, usize),
    grad_out: &[S],
    work: &mut BackwardScratch<'_, S>,
    gradients: &mut Gradients<'_, S>,
) {
    let (key_width, value_width, state_len) = (extents.key_width, extents.value_width, extents.state_len());
    for (index, time) in head.cell_tokens(cell).enumerate().rev() {
        let row = head.token_row(time);
        let token = Token::new(extents, inputs, row, &work.decay_factors[row_range(index, key_width)]);
        let previous_state = &work.states[row_range(index, state_len)];
        let recalled = &work.recalled[row_range(index, value_width)];
        let grad_key_rows = [&mut *gradients.key, &mut *gradients.erase_key, &mut *gradients.decay];
        let grad_key_rows = grad_key_rows.map(|gradient| &mut gradient[row_range(row, key_width)]);
        let grad_value = &mut gradients.value[row_range(row, value_width)];
        let grad_out = &grad_out[row_range(row, value_width)];
        backward_read_and_write(
            token,
            previous_state,
            recalled,
            grad_out,
            work.grad_state,
            grad_key_rows,
            grad_value,
            work.grad_recalled,
        );
        multiply_rows(previous_state, work.grad_recalled, &mut gradients.recall_key[row_range(row, key_width)]);
        backward_state(token, work.grad_recalled, work.grad_state);
    }
}
