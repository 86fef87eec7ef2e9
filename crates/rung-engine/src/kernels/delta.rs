//! The general delta rule, one token after another.
//!
//! With the state `S` before a token, `u = S' s` is the value that it recalls for the recall key `s`. The state after the token is
//! `Diag(e^g) S - r u' + k v'`, and the output is `S' q` of that.
//!
//! **Forward.** Value channels do not depend on each other, so a block of them goes through a cell at a time: see [`block`]. One pass
//! over the rows of the block does a token: it updates the block, reads the output and recalls for the next token. The recalled values
//! are saved.
//!
//! **Backward.** The gradient `D` of the state after token `t` has the same form backward in time, and so the same pass:
//!
//! `D_t = Diag(e^{g_(t+1)}) D_(t+1) + q_t dy_t' + s_(t+1) du_(t+1)'`, with `dv_t = D_t' k_t` and `du_t = -D_t' r_t`.
//!
//! Once `u` and `du` are known, key channels do not depend on each other either. With blocks of key channels, a pass backward in time
//! sums `dk_t = D_t v_t` and `dr_t = -D_t u_t`, and one forward in time, from the state before the cell, `dq_t = S_t dy_t` and
//! `ds_(t+1) = S_t du_(t+1)`. No sum runs across the lanes of a vector, and no states inside a cell are stored.
//!
//! The gradient of a log-decay is `dg_t = e^{g_t} sum_v (D_t . S_(t-1))`. That is computed for a cell's first token. Then, since the sum
//! over values `sum_v (D_t . S_t)` is both `dg_t + k_t . dk_t + r_t . dr_t` and `dg_(t+1) + q_t . dq_t + s_(t+1) . ds_(t+1)`, each
//! token's gives the next one's.
//!
//! **Why no chunks.** In chunks of `C` tokens that are matrix products, as in [`recurrence`](super::recurrence), a token takes
//! `8 K V + (8 K + 7 V) C` FLOPs in the forward pass. Here it takes `9 K V`, at the speed of matrix products.

mod block;

use super::heads::{BackwardInputs, Extents, Head, Results, StateKernel, per_input};
use super::product::Panels;
use crate::scalar::Scalar;
use block::{
    StepRows, dot_columns, load_blocks, load_lanes, load_transposed_blocks, step_with_lane_decay, step_with_row_decay,
    store_blocks, store_lanes, sum_rows,
};
use std::ops::Range;

/// A general delta rule of some sizes.
#[derive(Clone, Copy)]
pub(crate) struct DeltaKernel {
    pub(crate) extents: Extents,
}

per_input!(query, key, value, decay, recall_key, erase_key, state);

/// Calls a function of the constant `LANES`, which is the width of a panel of matrix products: two vectors, or one where that has
/// space for all channels.
macro_rules! with_lanes {
    ($channels:expr, $function:ident::<$scalar:ident>($($argument:expr),*)) => {
        match Panels::<$scalar>::width($channels) {
            32 => $function::<$scalar, 32>($($argument),*),
            16 => $function::<$scalar, 16>($($argument),*),
            8 => $function::<$scalar, 8>($($argument),*),
            _ => $function::<$scalar, 4>($($argument),*),
        }
    };
}

/// The largest number of lanes.
const MAX_LANES: usize = 32;

impl StateKernel<7> for DeltaKernel {
    fn extents(&self) -> Extents {
        self.extents
    }

    /// The recalled values.
    fn saves_rows(&self) -> bool {
        true
    }

    fn scratch_lens(&self) -> [usize; 2] {
        let Extents { key_width, value_width, chunk, .. } = self.extents;
        let by_value = key_width * value_width.next_multiple_of(MAX_LANES);
        let by_key = value_width * key_width.next_multiple_of(MAX_LANES);
        [chunk * key_width + by_value, (chunk + 1) * (key_width + value_width) + by_value + 2 * by_key]
    }

    /// A token recalls, erases, writes and reads.
    fn step_flops(&self) -> usize {
        8
    }

    fn forward<S: Scalar>(self, inputs: [&[S]; 7], scratch: &mut [S], results: Results<'_, S>) {
        let inputs = Inputs::from(inputs);
        with_lanes!(self.extents.value_width, forward::<S>(self.extents, &inputs, scratch, results));
    }

    fn backward<S: Scalar>(
        self,
        inputs: [&[S]; 7],
        backward_inputs: BackwardInputs<'_, S>,
        scratch: &mut [S],
        gradients: [&mut [S]; 7],
    ) {
        let (inputs, mut gradients) = (Inputs::from(inputs), Gradients::from(gradients));
        let channels = self.extents.value_width.max(self.extents.key_width);
        with_lanes!(channels, backward::<S>(self.extents, &inputs, backward_inputs, scratch, &mut gradients));
    }
}

vectorised! {
    /// `out = e^x`.
    fn exponentiate<S>(x: &[S], out: &mut [S]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x.exp();
        }
    }

    /// The gradients of a token's log-decays from those of the token before: `out = previous + sum of added products - sum of subtracted
    /// products`, by element, and exactly zero where the token's decay factor is.
    fn next_decay_gradient<S>(
        previous: &[S],
        added: [[&[S]; 2]; 2],
        subtracted: [[&[S]; 2]; 2],
        decay_factors: &[S],
        out: &mut [S],
    ) {
        let product = |[left, right]: [&[S]; 2], channel: usize| left[channel] * right[channel];
        for (channel, (out, (&previous, &factor))) in out.iter_mut().zip(previous.iter().zip(decay_factors)).enumerate() {
            let sum = previous + product(added[0], channel) + product(added[1], channel);
            let sum = sum - product(subtracted[0], channel) - product(subtracted[1], channel);
            *out = if factor == S::ZERO { S::ZERO } else { sum };
        }
    }
}

/// Where row `index` lies among rows of `width` numbers.
fn row_range(index: usize, width: usize) -> Range<usize> {
    index * width..(index + 1) * width
}

/// Computes the decay factors of a cell's tokens.
fn compute_decay_factors<S: Scalar>(head: Head, tokens: Range<usize>, decay: &[S], decay_factors: &mut [S]) {
    for (time, factors) in tokens.zip(decay_factors.chunks_exact_mut(head.extents.key_width)) {
        exponentiate(&decay[head.key_range(time)], factors);
    }
}

fn forward<S: Scalar, const LANES: usize>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scratch: &mut [S],
    results: Results<'_, S>,
) {
    let Results { out, last_states, cell_states, saved_rows: recalled } = results;
    let Extents { key_width, value_width, chunk, .. } = extents;
    let (decay_factors, remaining) = scratch.split_at_mut(chunk * key_width);
    let blocks = &mut remaining[..key_width * value_width.next_multiple_of(LANES)];
    for head in extents.all_heads() {
        if inputs.state.is_empty() {
            blocks.fill(S::ZERO);
        } else {
            load_blocks::<S, LANES>(&inputs.state[head.state_range()], value_width, blocks);
        }
        for cell in 0..extents.cell_count() {
            store_blocks::<S, LANES>(blocks, value_width, &mut cell_states[head.cell_state_range(cell)]);
            let tokens = head.cell_tokens(cell);
            compute_decay_factors(head, tokens.clone(), inputs.decay, decay_factors);
            for (index, block) in blocks.chunks_exact_mut(key_width * LANES).enumerate() {
                let first = index * LANES;
                let recalled_first = &mut recalled[head.value_range(tokens.start)];
                if tokens.start == 0 {
                    let sums = sum_rows::<S, LANES>(block, &inputs.recall_key[head.key_range(0)]);
                    store_lanes(&sums, recalled_first, first);
                }
                let mut erased = load_lanes(recalled_first, first);
                for (time, decay_factors) in tokens.clone().zip(decay_factors.chunks_exact(key_width)) {
                    let keys = head.key_range(time);
                    let rows = StepRows {
                        write: &inputs.key[keys.clone()],
                        erase: &inputs.erase_key[keys.clone()],
                        read: &inputs.query[keys],
                        recall: &inputs.recall_key[head.key_range(head.next_token(time))],
                    };
                    let written = load_lanes(&inputs.value[head.value_range(time)], first);
                    let [read, next_erased] =
                        step_with_row_decay::<S, LANES>(block, decay_factors, rows, [written, erased]);
                    // The next token's recalled values wait until its rows were read. Stored here they slow long sequences down by up to
                    // half, probably because large tensors start at the same offset in a page and their rows have equal low address bits.
                    store_lanes(&read, &mut out[head.value_range(time)], first);
                    store_lanes(&erased, &mut recalled[head.value_range(time)], first);
                    erased = next_erased;
                }
                if tokens.end < extents.time {
                    store_lanes(&erased, &mut recalled[head.value_range(tokens.end)], first);
                }
            }
        }
        store_blocks::<S, LANES>(blocks, value_width, &mut last_states[head.state_range()]);
    }
}

/// The scratch buffer of the backward pass, split into its arrays.
struct BackwardScratch<'a, S> {
    /// Decay factors of a cell's tokens and of the token after it.
    decay_factors: &'a mut [S],
    /// `-du` of the same tokens.
    grad_erased: &'a mut [S],
    /// `D` in blocks of value channels.
    grad_by_value: &'a mut [S],
    /// `D` in blocks of key channels.
    grad_by_key: &'a mut [S],
    /// The state in blocks of key channels.
    state_by_key: &'a mut [S],
}

impl<'a, S: Scalar> BackwardScratch<'a, S> {
    fn new<const LANES: usize>(extents: &Extents, scratch: &'a mut [S]) -> Self {
        let Extents { key_width, value_width, chunk, .. } = *extents;
        let by_key = key_width.next_multiple_of(LANES) * value_width;
        let (decay_factors, remaining) = scratch.split_at_mut((chunk + 1) * key_width);
        let (grad_erased, remaining) = remaining.split_at_mut((chunk + 1) * value_width);
        let (grad_by_value, remaining) = remaining.split_at_mut(key_width * value_width.next_multiple_of(LANES));
        let (grad_by_key, remaining) = remaining.split_at_mut(by_key);
        Self { decay_factors, grad_erased, grad_by_value, grad_by_key, state_by_key: &mut remaining[..by_key] }
    }

    /// Starts a head with the gradient of its last state, which nothing decays or erases from any more.
    fn start_head<const LANES: usize>(&mut self, head: Head, grad_last_states: &[S]) {
        let Extents { key_width, value_width, .. } = head.extents;
        if grad_last_states.is_empty() {
            self.grad_by_value.fill(S::ZERO);
            self.grad_by_key.fill(S::ZERO);
        } else {
            let grad_state = &grad_last_states[head.state_range()];
            load_blocks::<S, LANES>(grad_state, value_width, self.grad_by_value);
            load_transposed_blocks::<S, LANES>(grad_state, value_width, self.grad_by_key);
        }
        self.decay_factors[..key_width].fill(S::ONE);
        self.grad_erased[..value_width].fill(S::ZERO);
    }

    /// Starts a cell of some tokens: the first token of the cell that was before becomes the token after this one.
    fn start_cell(&mut self, head: Head, tokens: &Range<usize>, decay: &[S]) {
        let Extents { key_width, value_width, .. } = head.extents;
        self.decay_factors.copy_within(..key_width, tokens.len() * key_width);
        self.grad_erased.copy_within(..value_width, tokens.len() * value_width);
        compute_decay_factors(head, tokens.clone(), decay, &mut self.decay_factors[..tokens.len() * key_width]);
    }
}

fn backward<S: Scalar, const LANES: usize>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    backward_inputs: BackwardInputs<'_, S>,
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let mut work = BackwardScratch::new::<LANES>(&extents, scratch);
    for head in extents.all_heads() {
        work.start_head::<LANES>(head, backward_inputs.grad_last_states);
        for cell in (0..extents.cell_count()).rev() {
            let tokens = head.cell_tokens(cell);
            let cell_state = &backward_inputs.cell_states[head.cell_state_range(cell)];
            work.start_cell(head, &tokens, inputs.decay);
            load_transposed_blocks::<S, LANES>(cell_state, extents.value_width, work.state_by_key);
            let cell = BackwardCell { head, tokens, inputs, backward_inputs };
            cell.backward_values::<LANES>(&mut work, gradients.value);
            cell.backward_keys::<LANES>(&mut work, gradients);
            cell.backward_decay(work.decay_factors, gradients);
        }
        if !gradients.state.is_empty() {
            apply_first_token::<S, LANES>(head, inputs.recall_key, &mut work);
            store_blocks::<S, LANES>(work.grad_by_value, extents.value_width, &mut gradients.state[head.state_range()]);
        }
    }
}

/// Turns the gradient of the state after a head's first token into that of the state before it.
fn apply_first_token<S: Scalar, const LANES: usize>(head: Head, recall_keys: &[S], work: &mut BackwardScratch<'_, S>) {
    let Extents { time, key_width, value_width, .. } = head.extents;
    if time == 0 {
        return;
    }
    let recall_key = &recall_keys[head.key_range(0)];
    let rows = StepRows { write: recall_key, erase: recall_key, read: recall_key, recall: recall_key };
    for (index, block) in work.grad_by_value.chunks_exact_mut(key_width * LANES).enumerate() {
        let erased = load_lanes(&work.grad_erased[..value_width], index * LANES);
        step_with_row_decay(block, &work.decay_factors[..key_width], rows, [[S::ZERO; LANES], erased]);
    }
}

/// A cell of one head in the backward pass.
struct BackwardCell<'a, S> {
    head: Head,
    tokens: Range<usize>,
    inputs: &'a Inputs<'a, S>,
    backward_inputs: BackwardInputs<'a, S>,
}

impl<S: Scalar> BackwardCell<'_, S> {
    /// The gradients of values and of recalled values.
    fn backward_values<const LANES: usize>(&self, work: &mut BackwardScratch<'_, S>, grad_value: &mut [S]) {
        let (Self { head, inputs, .. }, Extents { key_width, value_width, .. }) = (self, self.head.extents);
        for (index, block) in work.grad_by_value.chunks_exact_mut(key_width * LANES).enumerate() {
            let first = index * LANES;
            let mut erased = load_lanes(&work.grad_erased[row_range(self.tokens.len(), value_width)], first);
            for (token, time) in self.tokens.clone().enumerate().rev() {
                let (keys, next_keys) = (head.key_range(time), head.key_range(head.next_token(time)));
                let rows = StepRows {
                    write: &inputs.query[keys.clone()],
                    erase: &inputs.recall_key[next_keys],
                    read: &inputs.key[keys.clone()],
                    recall: &inputs.erase_key[keys],
                };
                let written = load_lanes(&self.backward_inputs.grad_out[head.value_range(time)], first);
                let next_decay = &work.decay_factors[row_range(token + 1, key_width)];
                let read;
                [read, erased] = step_with_row_decay::<S, LANES>(block, next_decay, rows, [written, erased]);
                store_lanes(&read, &mut grad_value[head.value_range(time)], first);
                store_lanes(&erased, &mut work.grad_erased[row_range(token, value_width)], first);
            }
        }
    }

    /// The gradients of queries and all keys, and of the first token's log-decays.
    fn backward_keys<const LANES: usize>(&self, work: &mut BackwardScratch<'_, S>, gradients: &mut Gradients<'_, S>) {
        let (head, Extents { key_width, value_width, .. }) = (self.head, self.head.extents);
        let BackwardInputs { saved_rows: recalled, grad_out, .. } = self.backward_inputs;
        let Inputs { query, key, value, recall_key, erase_key, .. } = *self.inputs;
        let lanes = |x: &[S], time: usize, first: usize| load_lanes::<S, LANES>(&x[head.key_range(time)], first);
        let blocks = work.grad_by_key.chunks_exact_mut(value_width * LANES);
        let blocks = blocks.zip(work.state_by_key.chunks_exact_mut(value_width * LANES));
        for (index, (grad_block, block)) in blocks.enumerate() {
            let first = index * LANES;
            let decay = |token: usize| load_lanes(&work.decay_factors[row_range(token, key_width)], first);
            for (token, time) in self.tokens.clone().enumerate().rev() {
                let values = head.value_range(time);
                let rows = StepRows {
                    write: &grad_out[values.clone()],
                    erase: &work.grad_erased[row_range(token + 1, value_width)],
                    read: &value[values.clone()],
                    recall: &recalled[values],
                };
                let written = [lanes(query, time, first), lanes(recall_key, head.next_token(time), first)];
                let [grad_key, grad_erase] = step_with_lane_decay(grad_block, decay(token + 1), rows, written);
                store_lanes(&grad_key, &mut gradients.key[head.key_range(time)], first);
                store_lanes(&grad_erase.map(|x| -x), &mut gradients.erase_key[head.key_range(time)], first);
            }
            let (dots, factors) = (dot_columns::<S, LANES>(grad_block, block), decay(0));
            let grad_decay: [S; LANES] = std::array::from_fn(|lane| dots[lane] * factors[lane]);
            store_lanes(&grad_decay, &mut gradients.decay[head.key_range(self.tokens.start)], first);
            let mut grad_recall = sum_rows::<S, LANES>(block, &work.grad_erased[..value_width]);
            for (token, time) in self.tokens.clone().enumerate() {
                let values = head.value_range(time);
                let rows = StepRows {
                    write: &value[values.clone()],
                    erase: &recalled[values.clone()],
                    read: &grad_out[values],
                    recall: &work.grad_erased[row_range(token + 1, value_width)],
                };
                let written = [lanes(key, time, first), lanes(erase_key, time, first)];
                store_lanes(&grad_recall.map(|x| -x), &mut gradients.recall_key[head.key_range(time)], first);
                let grad_query;
                [grad_query, grad_recall] = step_with_lane_decay(block, decay(token), rows, written);
                store_lanes(&grad_query, &mut gradients.query[head.key_range(time)], first);
            }
        }
    }

    /// The gradients of the log-decays of all tokens but the first.
    fn backward_decay(&self, decay_factors: &[S], gradients: &mut Gradients<'_, S>) {
        let inputs = self.inputs;
        for (token, time) in self.tokens.clone().enumerate().skip(1) {
            let (previous, row) = (self.head.key_range(time - 1), self.head.key_range(time));
            let (before, from_row) = gradients.decay.split_at_mut(row.start);
            next_decay_gradient(
                &before[previous.clone()],
                [
                    [&inputs.key[previous.clone()], &gradients.key[previous.clone()]],
                    [&inputs.erase_key[previous.clone()], &gradients.erase_key[previous.clone()]],
                ],
                [
                    [&inputs.query[previous.clone()], &gradients.query[previous]],
                    [&inputs.recall_key[row.clone()], &gradients.recall_key[row.clone()]],
                ],
                &decay_factors[row_range(token, row.len())],
                &mut from_row[..row.len()],
            );
        }
    }
}
