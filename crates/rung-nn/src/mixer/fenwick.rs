//! A state for every power-of-two span of the past: the memory of the log-linear mixers.
//!
//! Token s belongs to *level* `bits(t xor s)` of a later token t, the number of binary digits of the difference: level 0 is the
//! token itself, and level l >= 1 the first half of the block of `2^l` tokens around t, if t is in the second. So t sees itself and
//! one span for every set bit of its position, the coarser the farther, and weighs each level on its own.
//!
//! Seen from one level alone this is an ordinary recurrence. The state starts empty at every block of `2^l` tokens, the first
//! half of the block writes, the second half reads; decay and erasure act throughout. One such recurrence for each level that a
//! text has reached, `log2(n) + 1` of them, is the parallel form, and each goes in chunks.
//!
//! What is handed on are the spans that the last token sees. Where it is still in the first half of a block, the level's
//! recurrence goes on from what the finer levels hold together, which is the merge of a Fenwick tree.

use rung_engine::{Decay, Ops, Parameter, Recurrence, Scalar};

use super::State;
use crate::param_builder::{Init, ParamBuilder};
use crate::parts::{Linear, LinearRecurrence};
use crate::precision::rounded;

/// What a recurrence with one decay per head runs on; see [`Recurrence`].
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
    /// Outputs and the state after the last token, with a single state.
    pub(super) fn run<O: Ops<Tensor = T>>(
        &self,
        ops: &O,
        recurrence: LinearRecurrence,
        state: Option<&State<T>>,
    ) -> (T, T) {
        recurrence.run(ops, [self.query, self.key, self.value], Decay::Scalar(self.decay), self.beta, state)
    }
}

/// The memory, and what makes the weights of its levels.
pub(super) struct FenwickMemory {
    heads: usize,
    levels: usize,
    weigh: Linear,
    table: Parameter,
    recurrence: LinearRecurrence,
}

/// Binary digits of a number.
fn digits(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()) as usize
}

/// Whether a token reads a level.
fn reads(position: usize, level: usize) -> bool {
    level == 0 || position >> (level - 1) & 1 == 1
}

impl FenwickMemory {
    /// The log-decay in front of a block: nothing is left of what was before it, in either precision.
    const FORGET: f64 = -64.0;

    pub(super) fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, heads: usize, levels: usize) -> Self {
        Self {
            heads,
            levels,
            weigh: params.linear("l_proj", params.settings.width, heads * levels),
            table: params.weight_without_decay("L", &[heads, levels], Init::Constant(1.0)),
            recurrence: params.recurrence(),
        }
    }

    /// Weights of all levels, `[batch, time, heads, levels]`.
    fn weights<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        ops.softplus(&ops.mul(&self.weigh.heads(ops, x, self.heads), &ops.parameter(self.table)))
    }

    /// Outputs, and the states of the levels that the text has reached, `[batch, levels, heads, key, value]`; before the first
    /// token it is `state`'s first tensor. `x` is what the weights are made of.
    pub(super) fn run<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        writes: &RecurrenceInputs<'_, O::Tensor>,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        let (seen, time) = (State::seen(state), ops.shape(x)[1]);
        let weights = self.weights(ops, x);
        // States in few bits are merged and rounded at every token.
        let stride = if self.recurrence.rounding.is_some() { 1 } else { time };
        let mut spans = State::part(state, 0).map(|stacked| unstack(ops, stacked)).unwrap_or_default();
        let mut outputs = Vec::new();
        for start in (0..time).step_by(stride) {
            let part = |x: &O::Tensor| ops.slice(x, 1, start..start + stride);
            let [query, key, value, decay] = [writes.query, writes.key, writes.value, writes.decay].map(part);
            let beta = writes.beta.map(part);
            let writes =
                RecurrenceInputs { query: &query, key: &key, value: &value, decay: &decay, beta: beta.as_ref() };
            let (out, next) = self.forward_span(ops, seen + start, &part(&weights), &writes, &spans);
            outputs.push(out);
            spans = next;
        }
        (ops.concat(&outputs, 1), stack(ops, &spans))
    }

    /// One span of tokens from position `start` on.
    fn forward_span<O: Ops>(
        &self,
        ops: &O,
        start: usize,
        weights: &O::Tensor,
        writes: &RecurrenceInputs<'_, O::Tensor>,
        spans: &[O::Tensor],
    ) -> (O::Tensor, Vec<O::Tensor>) {
        let [batch, time, heads, width] = ops.shape(writes.value)[..] else { panic!("{}", ops.shape(writes.value)) };
        let last = start + time - 1;
        let mut sum: Option<O::Tensor> = None;
        let mut next = Vec::new();
        for level in 0..=digits(last) {
            if !(start..=last).any(|position| reads(position, level)) {
                next.push(ops.zeros(&[batch, heads, ops.shape(writes.key)[3], width]));
                continue;
            }
            let column = |number: &dyn Fn(usize) -> bool| {
                let numbers: Vec<_> =
                    (start..=last).map(|at| O::Scalar::from_f64(f64::from(u8::from(number(at))))).collect();
                ops.constant(&[time, 1], &numbers)
            };
            // A block of the level, and whether a token writes in it.
            let (block, wrote) = (1 << level, |position: usize| level == 0 || !reads(position, level));
            let fresh = column(&|position| position.is_multiple_of(block));
            let kept = ops.mul(writes.decay, &ops.affine(&fresh, -1.0, 1.0));
            let value = ops.mul(writes.value, &ops.reshape(&column(&wrote), &[time, 1, 1]));
            let asked = ops.reshape(&column(&|position| reads(position, level)), &[time, 1, 1]);
            let (out, matrix) = ops.recurrence(&Recurrence {
                query: &ops.mul(writes.query, &asked),
                key: writes.key,
                value: &value,
                decay: Decay::Scalar(&ops.add(&kept, &ops.scale(&fresh, Self::FORGET))),
                beta: writes.beta,
                state: self.before(ops, start, level, spans).as_ref(),
                // Sums of log-decays stay small where they pass a block's start at most twice.
                chunk: self.recurrence.chunk.min(block),
                rounding: self.recurrence.rounding,
            });
            let place = level.min(self.levels - 1);
            let weight = ops.slice(weights, 3, place..place + 1);
            let term = ops.mul(&out, &weight);
            sum = Some(sum.map_or(term.clone(), |sum| ops.add(&sum, &term)));
            next.push(if reads(last, level) { matrix } else { ops.zeros(&ops.shape(&matrix)) });
        }
        (sum.expect("a token reads itself"), next)
    }

    /// What a level's recurrence goes on from at position `start`: nothing at the start of a block, its span in the second
    /// half, and in the first all finer spans together.
    fn before<O: Ops>(&self, ops: &O, start: usize, level: usize, spans: &[O::Tensor]) -> Option<O::Tensor> {
        if start.is_multiple_of(1 << level) {
            return None;
        }
        if reads(start - 1, level) {
            return Some(spans[level].clone());
        }
        let finer = spans[..level.min(spans.len())].iter().cloned();
        finer.reduce(|sum, span| ops.add(&sum, &span)).map(|sum| rounded(ops, &sum, self.recurrence.rounding))
    }
}

/// `[batch, levels, ..]` as one tensor for each level.
fn unstack<O: Ops>(ops: &O, stacked: &O::Tensor) -> Vec<O::Tensor> {
    let shape = ops.shape(stacked);
    let [batch, levels, heads, key, value] = shape[..] else { panic!("levels of states, not {shape}") };
    let level = |level: usize| ops.reshape(&ops.slice(stacked, 1, level..level + 1), &[batch, heads, key, value]);
    (0..levels).map(level).collect()
}

fn stack<O: Ops>(ops: &O, spans: &[O::Tensor]) -> O::Tensor {
    let level = |span: &O::Tensor| {
        let shape = ops.shape(span);
        ops.reshape(span, &[&shape[..1], &[1], &shape[1..]].concat())
    };
    ops.concat(&spans.iter().map(level).collect::<Vec<_>>(), 1)
}
