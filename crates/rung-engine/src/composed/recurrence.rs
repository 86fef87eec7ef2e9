//! The chunk form of every linear recurrence, as one function.
//!
//! Write `b_i` for the log-decay from the start of a chunk up to and including token `i`, and `<x_i, y_j>` for
//! `sum_d x_id y_jd exp(b_id - b_jd)`, taken for `j <= i` only, where the exponent is never positive. With the state `S` at the
//! start of the chunk and `u_i` the write of token `i`,
//!
//! - output `o_i = (q_i e^{b_i}) S + sum_{j <= i} <q_i, k_j> u_j`;
//! - next state `S e^{b_last} + sum_i (k_i e^{b_last - b_i})' u_i`;
//! - `u = v` without the delta rule. With it, `u_i = beta_i (v_i - (k_i e^{b_i}) S - sum_{j < i} <k_i, k_j> u_j)`, a
//!   unit lower triangular system.
//!
//! The system's matrix is `I + A` with `A` strictly lower; its inverse takes a few matrix products, which are primitives.
//!
//! If the state is rounded to few bits, a chunk is a single token, the state is rounded after each, and the output is read from
//! the rounded state, `o = q S`.

use super::{MASKED, extents_of_four_axes, heads_first, matrix_from, unit_lower_inverse};
use crate::ops::{Decay, Ops, Recurrence};

/// Composed function of [`Ops::recurrence`].
pub fn recurrence<O: Ops + ?Sized>(ops: &O, inputs: &Recurrence<'_, O::Tensor>) -> (O::Tensor, O::Tensor) {
    let [batch, time, heads, value_width] = extents_of_four_axes(ops, inputs.value);
    let key_width = ops.shape(inputs.key)[3];
    let column = |x: &O::Tensor| ops.reshape(&ops.permute(x, &[0, 2, 1]), &[batch, heads, time, 1]);
    let query = heads_first(ops, inputs.query, heads);
    let key = heads_first(ops, inputs.key, heads);
    let value = heads_first(ops, inputs.value, heads);
    let beta = inputs.beta.map(column);
    let decay = match inputs.decay {
        Decay::None => None,
        Decay::Scalar(decay) => Some(column(decay)),
        Decay::Vector(decay) => Some(heads_first(ops, decay, heads)),
    };
    let mut state = inputs.state.cloned().unwrap_or_else(|| ops.zeros(&[batch, heads, key_width, value_width]));
    let mut outputs = Vec::new();
    let chunk_len = if inputs.rounding.is_some() { 1 } else { inputs.chunk.max(1) };
    for start in (0..time).step_by(chunk_len) {
        let range = start..(start + chunk_len).min(time);
        let tokens = |x: &O::Tensor| ops.slice(x, 2, range.clone());
        let chunk = Chunk {
            query: tokens(&query),
            key: tokens(&key),
            value: tokens(&value),
            decay: decay.as_ref().map(|decay| ops.cumulative_sum(&tokens(decay), 2)),
            beta: beta.as_ref().map(tokens),
        };
        let writes = chunk.writes(ops, &state);
        if let Some(rounding) = inputs.rounding {
            state = rounding.apply(ops, &chunk.next_state(ops, &state, &writes));
            outputs.push(ops.matmul(&chunk.query, &state));
        } else {
            outputs.push(chunk.outputs(ops, &state, &writes));
            state = chunk.next_state(ops, &state, &writes);
        }
    }
    (ops.permute(&ops.concat(&outputs, 2), &[0, 2, 1, 3]), state)
}

/// The tokens of one chunk, `[batch, heads, time, ..]`; `decay` is the cumulative log-decay from the chunk's start.
struct Chunk<T> {
    query: T,
    key: T,
    value: T,
    decay: Option<T>,
    beta: Option<T>,
}

impl<T: Clone> Chunk<T> {
    /// Outputs of the chunk.
    fn outputs<O: Ops<Tensor = T> + ?Sized>(&self, ops: &O, state: &T, writes: &T) -> T {
        let from_state = ops.matmul(&self.decayed(ops, &self.query), state);
        ops.add(&from_state, &ops.matmul(&self.scores(ops, &self.query, false), writes))
    }

    /// The state after the chunk.
    fn next_state<O: Ops<Tensor = T> + ?Sized>(&self, ops: &O, state: &T, writes: &T) -> T {
        let Some(decay) = &self.decay else {
            return ops.add(state, &ops.product(&self.key, true, writes, false));
        };
        let length = ops.shape(decay)[2];
        let last = ops.slice(decay, 2, length - 1..length);
        let key = ops.mul(&self.key, &ops.exp(&ops.sub(&last, decay)));
        let decayed_state = ops.mul(state, &ops.exp(&ops.permute(&last, &[0, 1, 3, 2])));
        ops.add(&decayed_state, &ops.product(&key, true, writes, false))
    }

    /// The writes `u`, which each token adds to the state along its key.
    fn writes<O: Ops<Tensor = T> + ?Sized>(&self, ops: &O, state: &T) -> T {
        let Some(beta) = &self.beta else { return self.value.clone() };
        let recalled = ops.matmul(&self.decayed(ops, &self.key), state);
        let right_side = ops.mul(&ops.sub(&self.value, &recalled), beta);
        let lower = ops.mul(&self.scores(ops, &self.key, true), beta);
        ops.matmul(&unit_lower_inverse(ops, &lower), &right_side)
    }

    /// `x_i e^{b_i}`.
    fn decayed<O: Ops<Tensor = T> + ?Sized>(&self, ops: &O, x: &T) -> T {
        self.decay.as_ref().map_or(x.clone(), |decay| ops.mul(x, &ops.exp(decay)))
    }

    /// `<x_i, k_j>` for `j <= i` (or `j < i`), zero elsewhere.
    fn scores<O: Ops<Tensor = T> + ?Sized>(&self, ops: &O, x: &T, strict: bool) -> T {
        let [batch, heads, length, width] = extents_of_four_axes(ops, x);
        let is_visible = |row: usize, column: usize| column < row + usize::from(!strict);
        let Some(decay) = &self.decay else {
            let mask = matrix_from(ops, length, length, |row, column| f64::from(u8::from(is_visible(row, column))));
            return ops.mul(&ops.product(x, false, &self.key, true), &mask);
        };
        let mask = matrix_from(ops, length, length, |row, column| if is_visible(row, column) { 0.0 } else { MASKED });
        let channels = ops.shape(decay)[3];
        let row_decay = ops.reshape(decay, &[batch, heads, length, 1, channels]);
        let column_decay = ops.reshape(decay, &[batch, heads, 1, length, channels]);
        let mask = ops.reshape(&mask, &[length, length, 1]);
        let factors = ops.exp(&ops.add(&ops.sub(&row_decay, &column_decay), &mask));
        if channels == 1 && width != 1 {
            let factors = ops.reshape(&factors, &[batch, heads, length, length]);
            return ops.mul(&ops.product(x, false, &self.key, true), &factors);
        }
        let rows = ops.reshape(x, &[batch, heads, length, 1, width]);
        let columns = ops.reshape(&self.key, &[batch, heads, 1, length, width]);
        let terms = ops.mul(&ops.mul(&rows, &columns), &factors);
        ops.reshape(&ops.sum(&terms, 4), &[batch, heads, length, length])
    }
}
