//! The general delta rule: token by token as in its definition, and in chunks.
//!
//! Write `b_i` for the log-decay from the start of a chunk up to and including token `i`. With the state `S` at the start of the
//! chunk and `w_i = s_i' S_(i-1)` the value that token `i` recalls to erase it, the state after token `i` is
//!
//! `S_i = e^{b_i} S + sum_{j <= i} e^{b_i - b_j} (k_j v_j' - r_j w_j')`,
//!
//! so that, with `<x_i, y_j> = sum_d x_id y_jd e^{b_id - b_jd}` and `<x_i, y_j]` the same with `b_(i-1)` in place of `b_i`,
//!
//! - `w_i = (s_i e^{b_(i-1)})' S + sum_{j < i} <s_i, k_j] v_j - <s_i, r_j] w_j`: a unit lower triangular system;
//! - `o_i = (q_i e^{b_i})' S + sum_{j <= i} <q_i, k_j> v_j - <q_i, r_j> w_j`.
//!
//! No exponent is positive.

use super::{MASKED, extents_of_four_axes, heads_first, matrix_from, unit_lower_inverse};
use crate::ops::{GeneralDelta, Ops};

/// Composed function of [`Ops::general_delta`].
pub fn general_delta<O: Ops + ?Sized>(ops: &O, inputs: &GeneralDelta<'_, O::Tensor>) -> (O::Tensor, O::Tensor) {
    let [batch, time, heads, value_width] = extents_of_four_axes(ops, inputs.value);
    let key_width = ops.shape(inputs.key)[3];
    let by_head = |x: &O::Tensor| heads_first(ops, x, heads);
    let (query, key, value) = (by_head(inputs.query), by_head(inputs.key), by_head(inputs.value));
    let (recall_key, erase_key) = (by_head(inputs.recall_key), by_head(inputs.erase_key));
    let decay_factors = ops.permute(&ops.exp(&by_head(inputs.decay)), &[0, 1, 3, 2]);
    let mut state = inputs.state.cloned().unwrap_or_else(|| ops.zeros(&[batch, heads, key_width, value_width]));
    let mut outputs = Vec::with_capacity(time);
    for token in 0..time {
        let row = |x: &O::Tensor| ops.slice(x, 2, token..token + 1);
        let outer_product = |x: &O::Tensor, y: &O::Tensor| ops.product(x, true, y, false);
        let recalled = ops.matmul(&row(&recall_key), &state);
        let decayed = ops.mul(&state, &ops.slice(&decay_factors, 3, token..token + 1));
        let erased = ops.sub(&decayed, &outer_product(&row(&erase_key), &recalled));
        state = ops.add(&erased, &outer_product(&row(&key), &row(&value)));
        if let Some(rounding) = inputs.rounding {
            state = rounding.apply(ops, &state);
        }
        outputs.push(ops.matmul(&row(&query), &state));
    }
    (ops.permute(&ops.concat(&outputs, 2), &[0, 2, 1, 3]), state)
}

/// The most tokens per chunk of [`chunked_general_delta`], whose largest tensors have a key row for every pair of tokens of a chunk.
const MAX_CHUNK: usize = 16;

/// [`general_delta`] in chunks. Rounding to few bits depends on every state, so with it there are no chunks.
pub fn chunked_general_delta<O: Ops + ?Sized>(ops: &O, inputs: &GeneralDelta<'_, O::Tensor>) -> (O::Tensor, O::Tensor) {
    if inputs.rounding.is_some() {
        return general_delta(ops, inputs);
    }
    let [batch, time, heads, value_width] = extents_of_four_axes(ops, inputs.value);
    let key_width = ops.shape(inputs.key)[3];
    let all = [inputs.query, inputs.key, inputs.value, inputs.decay, inputs.recall_key, inputs.erase_key];
    let all = all.map(|x| heads_first(ops, x, heads));
    let mut state = inputs.state.cloned().unwrap_or_else(|| ops.zeros(&[batch, heads, key_width, value_width]));
    let mut outputs = Vec::new();
    let chunk_len = inputs.chunk.clamp(1, MAX_CHUNK);
    for start in (0..time).step_by(chunk_len) {
        let range = start..(start + chunk_len).min(time);
        let [query, key, value, decay, recall_key, erase_key] = all.each_ref().map(|x| ops.slice(x, 2, range.clone()));
        let decay = ops.cumulative_sum(&decay, 2);
        let last = ops.slice(&decay, 2, range.len() - 1..range.len());
        let first = ops.zeros(&[batch, heads, 1, key_width]);
        let decay_before = ops.concat(&[first, ops.slice(&decay, 2, 0..range.len() - 1)], 2);

        let factors = DecayFactors::new(ops, &decay_before, &decay, true);
        let from_state = ops.matmul(&ops.mul(&recall_key, &ops.exp(&decay_before)), &state);
        let from_values = ops.matmul(&factors.scores(ops, &recall_key, &key), &value);
        let inverse = unit_lower_inverse(ops, &factors.scores(ops, &recall_key, &erase_key));
        let recalled = ops.matmul(&inverse, &ops.add(&from_state, &from_values));

        let factors = DecayFactors::new(ops, &decay, &decay, false);
        let from_state = ops.matmul(&ops.mul(&query, &ops.exp(&decay)), &state);
        let written = ops.matmul(&factors.scores(ops, &query, &key), &value);
        let erased = ops.matmul(&factors.scores(ops, &query, &erase_key), &recalled);
        outputs.push(ops.sub(&ops.add(&from_state, &written), &erased));

        let until_last = ops.exp(&ops.sub(&last, &decay));
        let decayed = ops.mul(&state, &ops.exp(&ops.permute(&last, &[0, 1, 3, 2])));
        let written = ops.product(&ops.mul(&key, &until_last), true, &value, false);
        let erased = ops.product(&ops.mul(&erase_key, &until_last), true, &recalled, false);
        state = ops.sub(&ops.add(&decayed, &written), &erased);
    }
    (ops.permute(&ops.concat(&outputs, 2), &[0, 2, 1, 3]), state)
}

/// `e^{b_id - b_jd}` for every row `i`, column `j` before it (or at it) and key channel `d`, `[batch, heads, rows, columns, channels]`.
struct DecayFactors<T>(T);

impl<T> DecayFactors<T> {
    fn new<O: Ops<Tensor = T> + ?Sized>(ops: &O, rows: &T, columns: &T, strict: bool) -> Self {
        let [batch, heads, length, channels] = extents_of_four_axes(ops, rows);
        let is_visible = |row: usize, column: usize| column < row + usize::from(!strict);
        let mask = matrix_from(ops, length, length, |row, column| if is_visible(row, column) { 0.0 } else { MASKED });
        let rows = ops.reshape(rows, &[batch, heads, length, 1, channels]);
        let columns = ops.reshape(columns, &[batch, heads, 1, length, channels]);
        let mask = ops.reshape(&mask, &[length, length, 1]);
        Self(ops.exp(&ops.add(&ops.sub(&rows, &columns), &mask)))
    }

    /// `sum_d x_id y_jd e^{b_id - b_jd}`, `[batch, heads, rows, columns]`.
    fn scores<O: Ops<Tensor = T> + ?Sized>(&self, ops: &O, x: &T, y: &T) -> T {
        let [batch, heads, length, width] = extents_of_four_axes(ops, x);
        let rows = ops.reshape(x, &[batch, heads, length, 1, width]);
        let columns = ops.reshape(y, &[batch, heads, 1, length, width]);
        let terms = ops.mul(&ops.mul(&rows, &self.0), &columns);
        ops.reshape(&ops.sum(&terms, 4), &[batch, heads, length, length])
    }
}
