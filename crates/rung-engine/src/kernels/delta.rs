//! The general delta rule, one token after another.
//!
//! With the state `S` before a token, `u = S' s` is what it holds under the recall key s. The token makes it
//! `Diag(e^g) S - r u' + k v'` and reads `S' q` from that. Rows of the state are walked once for `u` and once for the rest, in
//! vectors over value channels; a state of 64 by 64 numbers stays in the nearest cache.
//!
//! The forward pass keeps the state at every `chunk` tokens (the grid). The backward pass walks the grid from the end, makes
//! the states of a cell again from its first, and takes the gradient `D` of the state back through each token:
//!
//! - `D += q dy'`, `dq = S_after dy`;
//! - `dk = D v`, `dv = D' k`, `dr = -D u`, `du = -D' r`, `dg = e^g (D . S)` summed over a row;
//! - `ds = S du`, `D <- Diag(e^g) D + s du'`.

use crate::scalar::Scalar;
use std::ops::Range;

/// Extents of a call.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) heads: usize,
    pub(crate) key_width: usize,
    pub(crate) value_width: usize,
    /// Tokens per grid cell.
    pub(crate) chunk: usize,
}

/// One array for each tensor of a call; an absent state is empty.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a, S> {
    pub(crate) query: &'a [S],
    pub(crate) key: &'a [S],
    pub(crate) value: &'a [S],
    pub(crate) decay: &'a [S],
    pub(crate) recall_key: &'a [S],
    pub(crate) erase_key: &'a [S],
    pub(crate) state: &'a [S],
}

/// What the backward pass writes; an absent state is empty.
pub(crate) struct Gradients<'a, S> {
    pub(crate) query: &'a mut [S],
    pub(crate) key: &'a mut [S],
    pub(crate) value: &'a mut [S],
    pub(crate) decay: &'a mut [S],
    pub(crate) recall_key: &'a mut [S],
    pub(crate) erase_key: &'a mut [S],
    pub(crate) state: &'a mut [S],
}

impl Extents {
    /// Grid cells of a sequence.
    pub(crate) fn cells(&self) -> usize {
        self.time.div_ceil(self.chunk)
    }

    /// Numbers of a state.
    pub(crate) fn state(&self) -> usize {
        self.key_width * self.value_width
    }

    /// Scratch space of the forward pass: factors and what is recalled.
    pub(crate) fn scratch(&self) -> usize {
        self.key_width + self.value_width
    }

    /// Scratch space of the backward pass: for every token of a cell its state, factors and what is recalled; then the state
    /// after the last, its gradient, and that of what is recalled.
    pub(crate) fn scratch_back(&self) -> usize {
        self.chunk * (self.state() + self.scratch()) + 2 * self.state() + self.value_width
    }

    fn cell(&self, cell: usize) -> Range<usize> {
        cell * self.chunk..((cell + 1) * self.chunk).min(self.time)
    }

    /// Where a token's head has its row among `[batch, time, heads]`.
    fn row(&self, head: usize, time: usize) -> usize {
        let (sequence, head) = (head / self.heads, head % self.heads);
        (sequence * self.time + time) * self.heads + head
    }
}

/// Part number `index` of equal parts.
fn part(index: usize, size: usize) -> Range<usize> {
    index * size..(index + 1) * size
}

/// The rows of one token and head, with `fade` for `e^g`.
#[derive(Clone, Copy)]
struct Token<'a, S> {
    query: &'a [S],
    key: &'a [S],
    value: &'a [S],
    fade: &'a [S],
    recall_key: &'a [S],
    erase_key: &'a [S],
}

impl<'a, S: Scalar> Token<'a, S> {
    fn new(extents: &Extents, inputs: &Inputs<'a, S>, row: usize, fade: &'a [S]) -> Self {
        let keys = part(row, extents.key_width);
        Self {
            query: &inputs.query[keys.clone()],
            key: &inputs.key[keys.clone()],
            value: &inputs.value[part(row, extents.value_width)],
            fade,
            recall_key: &inputs.recall_key[keys.clone()],
            erase_key: &inputs.erase_key[keys],
        }
    }
}

const LANES: usize = 16;

/// Products summed in lanes, which are then folded in halves, so that all of it becomes vector code.
#[inline(always)]
fn dot<S: Scalar>(left: &[S], right: &[S]) -> S {
    let ((left, left_rest), (right, right_rest)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
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
    left_rest.iter().zip(right_rest).fold(lanes[0], |sum, (&left, &right)| left.mul_add(right, sum))
}

vectorised! {
    /// `out = e^x`.
    fn raise<S>(x: &[S], out: &mut [S]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x.exp();
        }
    }

    /// What a state holds under a key.
    fn recall<S>(state: &[S], recall_key: &[S], out: &mut [S]) {
        out.fill(S::ZERO);
        for (row, &recall_key) in state.chunks_exact(out.len()).zip(recall_key) {
            for (out, &x) in out.iter_mut().zip(row) {
                *out = x.mul_add(recall_key, *out);
            }
        }
    }

    /// From the state before a token to the state after it.
    fn advance<S>(token: Token<'_, S>, recalled: &[S], state: &mut [S]) {
        let width = recalled.len();
        for (index, row) in state.chunks_exact_mut(width).enumerate() {
            let (fade, key, erase_key) = (token.fade[index], token.key[index], token.erase_key[index]);
            for ((x, &recalled), &value) in row.iter_mut().zip(recalled).zip(token.value) {
                *x = recalled.mul_add(-erase_key, value.mul_add(key, *x * fade));
            }
        }
    }

    /// For each row of a state, its product with a vector.
    fn row_dots<S>(state: &[S], vector: &[S], out: &mut [S]) {
        for (out, row) in out.iter_mut().zip(state.chunks_exact(vector.len())) {
            *out = dot(row, vector);
        }
    }

    /// The first half of a token's reverse: its slope joins the gradient of the state, from which all but `ds` follows.
    fn rows_back<S>(
        token: Token<'_, S>,
        before: &[S],
        recalled: &[S],
        slope: &[S],
        to_state: &mut [S],
        to_keys: [&mut [S]; 3],
        to_value: &mut [S],
        to_recalled: &mut [S],
    ) {
        let width = slope.len();
        let [to_key, to_removed, to_decay] = to_keys;
        to_value.fill(S::ZERO);
        to_recalled.fill(S::ZERO);
        for (index, (row, before)) in to_state.chunks_exact_mut(width).zip(before.chunks_exact(width)).enumerate() {
            let (query, key, erase_key) = (token.query[index], token.key[index], token.erase_key[index]);
            let sums = to_value.iter_mut().zip(&mut *to_recalled);
            for ((x, &slope), (to_value, to_recalled)) in row.iter_mut().zip(slope).zip(sums) {
                *x = slope.mul_add(query, *x);
                *to_value = x.mul_add(key, *to_value);
                *to_recalled = x.mul_add(-erase_key, *to_recalled);
            }
            to_key[index] = dot(row, token.value);
            to_removed[index] = -dot(row, recalled);
            to_decay[index] = dot(row, before) * token.fade[index];
        }
    }

    /// The second half: the gradient of the state before.
    fn state_back<S>(token: Token<'_, S>, to_recalled: &[S], to_state: &mut [S]) {
        for (index, row) in to_state.chunks_exact_mut(to_recalled.len()).enumerate() {
            let (fade, recall_key) = (token.fade[index], token.recall_key[index]);
            for (x, &to_recalled) in row.iter_mut().zip(to_recalled) {
                *x = to_recalled.mul_add(recall_key, *x * fade);
            }
        }
    }
}

/// Outputs of all tokens, the last states, and the states at the start of each grid cell.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scratch: &mut [S],
    (out, last, kept): (&mut [S], &mut [S], &mut [S]),
) {
    let (keys, values, size) = (extents.key_width, extents.value_width, extents.state());
    let (fade, rest) = scratch.split_at_mut(keys);
    let recalled = &mut rest[..values];
    for head in 0..extents.batch * extents.heads {
        let state = &mut last[part(head, size)];
        if inputs.state.is_empty() {
            state.fill(S::ZERO);
        } else {
            state.copy_from_slice(&inputs.state[part(head, size)]);
        }
        for cell in 0..extents.cells() {
            kept[part(head * extents.cells() + cell, size)].copy_from_slice(state);
            for time in extents.cell(cell) {
                let row = extents.row(head, time);
                raise(&inputs.decay[part(row, keys)], fade);
                let token = Token::new(&extents, inputs, row, fade);
                recall(state, token.recall_key, recalled);
                advance(token, recalled, state);
                recall(state, token.query, &mut out[part(row, values)]);
            }
        }
    }
}

/// Scratch space of the backward pass.
struct BackwardScratch<'a, S> {
    states: &'a mut [S],
    fades: &'a mut [S],
    recalled: &'a mut [S],
    after: &'a mut [S],
    to_state: &'a mut [S],
    to_recalled: &'a mut [S],
}

impl<'a, S> BackwardScratch<'a, S> {
    fn new(extents: &Extents, scratch: &'a mut [S]) -> Self {
        let (states, rest) = scratch.split_at_mut(extents.chunk * extents.state());
        let (fades, rest) = rest.split_at_mut(extents.chunk * extents.key_width);
        let (recalled, rest) = rest.split_at_mut(extents.chunk * extents.value_width);
        let (after, rest) = rest.split_at_mut(extents.state());
        let (to_state, rest) = rest.split_at_mut(extents.state());
        Self { states, fades, recalled, after, to_state, to_recalled: &mut rest[..extents.value_width] }
    }
}

/// Gradients of everything, from the gradient of the outputs and (unless empty) of the last states.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    kept: &[S],
    (slope, last_slope): (&[S], &[S]),
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let size = extents.state();
    let mut work = BackwardScratch::new(&extents, scratch);
    for head in 0..extents.batch * extents.heads {
        if last_slope.is_empty() {
            work.to_state.fill(S::ZERO);
        } else {
            work.to_state.copy_from_slice(&last_slope[part(head, size)]);
        }
        for cell in (0..extents.cells()).rev() {
            work.after.copy_from_slice(&kept[part(head * extents.cells() + cell, size)]);
            recompute_cell(&extents, inputs, (head, cell), slope, &mut work, gradients.query);
            backward_cell(&extents, inputs, (head, cell), slope, &mut work, gradients);
        }
        if !gradients.state.is_empty() {
            gradients.state[part(head, size)].copy_from_slice(work.to_state);
        }
    }
}

/// The states of a cell's tokens, made again; each gives its query's gradient as it passes.
fn recompute_cell<S: Scalar>(
    extents: &Extents,
    inputs: &Inputs<'_, S>,
    (head, cell): (usize, usize),
    slope: &[S],
    work: &mut BackwardScratch<'_, S>,
    to_query: &mut [S],
) {
    let (keys, values, size) = (extents.key_width, extents.value_width, extents.state());
    for (place, time) in extents.cell(cell).enumerate() {
        let row = extents.row(head, time);
        let (fade, recalled) = (&mut work.fades[part(place, keys)], &mut work.recalled[part(place, values)]);
        raise(&inputs.decay[part(row, keys)], fade);
        let token = Token::new(extents, inputs, row, fade);
        work.states[part(place, size)].copy_from_slice(work.after);
        recall(work.after, token.recall_key, recalled);
        advance(token, recalled, work.after);
        row_dots(work.after, &slope[part(row, values)], &mut to_query[part(row, keys)]);
    }
}

/// The tokens of a cell, backward. `work.to_state` is the gradient of the state that leaves, and becomes that of the first.
fn backward_cell<S: Scalar>(
    extents: &Extents,
    inputs: &Inputs<'_, S>,
    (head, cell): (usize, usize),
    slope: &[S],
    work: &mut BackwardScratch<'_, S>,
    gradients: &mut Gradients<'_, S>,
) {
    let (keys, values, size) = (extents.key_width, extents.value_width, extents.state());
    for (place, time) in extents.cell(cell).enumerate().rev() {
        let row = extents.row(head, time);
        let token = Token::new(extents, inputs, row, &work.fades[part(place, keys)]);
        let before = &work.states[part(place, size)];
        let recalled = &work.recalled[part(place, values)];
        let to_keys = [&mut *gradients.key, &mut *gradients.erase_key, &mut *gradients.decay];
        let to_keys = to_keys.map(|gradient| &mut gradient[part(row, keys)]);
        let to_value = &mut gradients.value[part(row, values)];
        let slope = &slope[part(row, values)];
        rows_back(token, before, recalled, slope, work.to_state, to_keys, to_value, work.to_recalled);
        row_dots(before, work.to_recalled, &mut gradients.recall_key[part(row, keys)]);
        state_back(token, work.to_recalled, work.to_state);
    }
}
