//! A state for every power-of-two span of the past: the memory of the log-linear mixers.
//!
//! Token s belongs to *level* `bits(t xor s)` of a later token t, the number of binary digits of the difference: level 0 is the
//! token itself, and level l >= 1 the first half of the block of `2^l` tokens around t, if t is in the second half. So t attends to
//! itself and to one span for every set bit of its position, and each level has its own weight. Spans are longer the farther back.
//!
//! Each level is an ordinary recurrence: its state is empty at the start of every block of `2^l` tokens, the first half of the block
//! writes to it, the second half reads from it, and decay and erasure act on both. A sequence of n tokens has `log2(n) + 1` levels. A
//! short span runs them one after another, each in chunks; a long one is divided into segments that run all levels at once
//! ([`segment`]).
//!
//! The state after a token has the spans that the token attends to. Where it is in the first half of a level's block, that level's
//! recurrence continues from the sum of the finer levels' states, which is the merge of a Fenwick tree.

mod segment;

use rung_engine::{Decay, Ops, Parameter, Recurrence, Scalar};

use super::State;
use crate::param_builder::{Init, ParamBuilder};
use crate::precision::apply_rounding;
use crate::submodules::{Linear, LinearRecurrence};

/// The inputs of a recurrence with one decay per head; see [`Recurrence`].
#[derive(Clone, Copy)]
pub(super) struct RecurrenceInputs<'a, T> {
    pub(super) query: &'a T,
    pub(super) key: &'a T,
    pub(super) value: &'a T,
    /// Log-decays, one per head.
    pub(super) decay: &'a T,
    pub(super) beta: Option<&'a T>,
}

impl<T: Clone> RecurrenceInputs<'_, T> {
    /// Runs an ordinary recurrence with a single state: its outputs, and the state after the last token.
    pub(super) fn run<O: Ops<Tensor = T>>(
        &self,
        ops: &O,
        recurrence: LinearRecurrence,
        state: Option<&State<T>>,
    ) -> (T, T) {
        recurrence.run(ops, [self.query, self.key, self.value], Decay::Scalar(self.decay), self.beta, state)
    }
}

/// The memory of a log-linear mixer, with the weights of its levels.
pub(super) struct FenwickMemory {
    heads: usize,
    levels: usize,
    /// From the token to a factor per head and level.
    level_projection: Linear,
    /// A learned factor per head and level.
    level_scale: Parameter,
    recurrence: LinearRecurrence,
}

/// Number of binary digits.
fn bit_length(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()) as usize
}

/// Whether the token at a position reads from a level.
fn reads_level(position: usize, level: usize) -> bool {
    level == 0 || position >> (level - 1) & 1 == 1
}

impl FenwickMemory {
    /// The log-decay at the start of a block: it erases the state, in single and double precision.
    const ERASE: f64 = -64.0;

    pub(super) fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, heads: usize, levels: usize) -> Self {
        Self {
            heads,
            levels,
            level_projection: params.linear("l_proj", params.settings.width, heads * levels),
            level_scale: params.parameter_without_weight_decay("L", &[heads, levels], Init::Constant(1.0)),
            recurrence: params.recurrence(),
        }
    }

    /// Weights of all levels, `[batch, time, heads, levels]`.
    fn level_weights<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        ops.softplus(
            &ops.mul(
                &self.level_projection.apply_and_split_heads(ops, x, self.heads),
                &ops.parameter(self.level_scale),
            ),
        )
    }

    /// Outputs, and the states of all levels, `[batch, levels, heads, key, value]`, which are tensor 0 of the mixer's state. `x` is the
    /// mixer's input, from which the level weights are computed.
    pub(super) fn run<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        inputs: &RecurrenceInputs<'_, O::Tensor>,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        let (past_len, time) = (State::past_len(state), ops.shape(x)[1]);
        let weights = self.level_weights(ops, x);
        let mut level_states = State::tensor(state, 0).map(|stacked| unstack(ops, stacked)).unwrap_or_default();
        let mut outputs = Vec::new();
        let mut start = 0;
        while start < time {
            let (length, is_segment) = self.next_span(past_len + start, time - start);
            let span = |x: &O::Tensor| ops.slice(x, 1, start..start + length);
            let [query, key, value, decay] = [inputs.query, inputs.key, inputs.value, inputs.decay].map(span);
            let beta = inputs.beta.map(span);
            let inputs =
                RecurrenceInputs { query: &query, key: &key, value: &value, decay: &decay, beta: beta.as_ref() };
            let forward = if is_segment { Self::forward_segment } else { Self::forward_span };
            let (out, next) = forward(self, ops, past_len + start, &span(&weights), &inputs, &level_states);
            outputs.push(out);
            level_states = next;
            start += length;
        }
        (ops.concat(&outputs, 1), stack(ops, &level_states))
    }

    /// Runs one span of tokens that starts at position `start`, from the states of all levels before it.
    fn forward_span<O: Ops>(
        &self,
        ops: &O,
        start: usize,
        weights: &O::Tensor,
        inputs: &RecurrenceInputs<'_, O::Tensor>,
        level_states: &[O::Tensor],
    ) -> (O::Tensor, Vec<O::Tensor>) {
        let [batch, time, heads, width] = ops.shape(inputs.value)[..] else { panic!("{}", ops.shape(inputs.value)) };
        let last = start + time - 1;
        let mut sum: Option<O::Tensor> = None;
        let mut next = Vec::new();
        for level in 0..=bit_length(last) {
            if !(start..=last).any(|position| reads_level(position, level)) {
                next.push(ops.zeros(&[batch, heads, ops.shape(inputs.key)[3], width]));
                continue;
            }
            let indicator = |condition: &dyn Fn(usize) -> bool| {
                let values: Vec<_> = (start..=last)
                    .map(|position| O::Scalar::from_f64(f64::from(u8::from(condition(position)))))
                    .collect();
                ops.constant(&[time, 1], &values)
            };
            let block = 1 << level;
            let writes_level = |position: usize| level == 0 || !reads_level(position, level);
            let block_start = indicator(&|position| position.is_multiple_of(block));
            let decay_within_block = ops.mul(inputs.decay, &ops.affine(&block_start, -1.0, 1.0));
            let value = ops.mul(inputs.value, &ops.reshape(&indicator(&writes_level), &[time, 1, 1]));
            let reads = ops.reshape(&indicator(&|position| reads_level(position, level)), &[time, 1, 1]);
            let (out, matrix) = ops.recurrence(&Recurrence {
                query: &ops.mul(inputs.query, &reads),
                key: inputs.key,
                value: &value,
                decay: Decay::Scalar(&ops.add(&decay_within_block, &ops.scale(&block_start, Self::ERASE))),
                beta: inputs.beta,
                state: self.initial_state(ops, start, level, level_states).as_ref(),
                // Sums of log-decays stay small if a chunk has at most two block starts.
                chunk: self.recurrence.chunk.min(block),
                rounding: self.recurrence.rounding,
            });
            let weight_index = level.min(self.levels - 1);
            let weight = ops.slice(weights, 3, weight_index..weight_index + 1);
            let term = ops.mul(&out, &weight);
            sum = Some(sum.map_or(term.clone(), |sum| ops.add(&sum, &term)));
            next.push(if reads_level(last, level) { matrix } else { ops.zeros(&ops.shape(&matrix)) });
        }
        (sum.expect("a token reads itself"), next)
    }

    /// The state of a level's recurrence before position `start`: none at the start of a block, the sum of all finer levels in its
    /// first half, the level's own in its second half.
    fn initial_state<O: Ops>(
        &self,
        ops: &O,
        start: usize,
        level: usize,
        level_states: &[O::Tensor],
    ) -> Option<O::Tensor> {
        if start.is_multiple_of(1 << level) {
            return None;
        }
        if reads_level(start - 1, level) {
            return Some(level_states[level].clone());
        }
        let finer = level_states[..level.min(level_states.len())].iter().cloned();
        finer.reduce(|sum, state| ops.add(&sum, &state)).map(|sum| apply_rounding(ops, &sum, self.recurrence.rounding))
    }
}

/// `[batch, levels, ..]` as one tensor for each level.
fn unstack<O: Ops>(ops: &O, stacked: &O::Tensor) -> Vec<O::Tensor> {
    let shape = ops.shape(stacked);
    let [batch, levels, heads, key, value] = shape[..] else { panic!("levels of states, not {shape}") };
    let level = |level: usize| ops.reshape(&ops.slice(stacked, 1, level..level + 1), &[batch, heads, key, value]);
    (0..levels).map(level).collect()
}

/// The states of all levels as `[batch, levels, ..]`.
fn stack<O: Ops>(ops: &O, level_states: &[O::Tensor]) -> O::Tensor {
    let level = |state: &O::Tensor| {
        let shape = ops.shape(state);
        ops.reshape(state, &[&shape[..1], &[1], &shape[1..]].concat())
    };
    ops.concat(&level_states.iter().map(level).collect::<Vec<_>>(), 1)
}
