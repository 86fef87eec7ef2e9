//! Linear recurrences over a matrix state, with or without decay, with or without the delta rule: one kernel.
//!
//! Inside a chunk let `b_i` be the log-decay summed over the tokens *after* the chunk's first, up to and including `i`; the first
//! token's own decay is applied to the state that enters. Put the decay into the operands:
//! `Q = q e^b`, `K = k e^b` and `W = k e^-b`. Then everything is a matrix product:
//!
//! - state that enters `S0 = e^{g_first} S`;
//! - scores `P = tril(Q W')`, and for the delta rule `N = stril(K W')`;
//! - written `u = v`, or for the delta rule `u_i = beta_i e_i` with `e_i = v_i - K_i S0 - sum_{j < i} N_ij u_j`;
//! - output `Q S0 + P u`, next state `e^{b_last} (S0 + W' u)`.
//!
//! The factor `e^-b` would overflow if a chunk decayed by much. So a chunk ends early when any channel has faded by
//! [`FADE`](rows::FADE) since its first token. However strong the decay is, a chunk of one token has `b = 0`; exponents are bounded, no
//! special case is needed, and gates at their extremes stay finite. Scalar and vector decays differ only in how many columns `b`
//! has. Without decay Q, K and W are the inputs themselves: products read them where they lie, and write gradients where they
//! belong.
//!
//! The forward pass keeps the state at every `chunk` tokens (the grid) and, for the delta rule, the errors `e`. The backward
//! pass walks the grid from the end, makes the operands of each chunk again, and runs the same products transposed. Where values
//! are single numbers the forward pass goes by tokens ([`scan`]) and keeps the same grid.

mod rows;

use crate::kernels::product::{Accumulate, Matrix, MatrixMut, product};
use crate::kernels::scan;
use crate::scalar::Scalar;
use rows::{
    add_scaled_row, exponents, fade_rows, lower, multiply_into, row_dots, scale_row, scale_rows, solve, solve_back,
};
use std::ops::Range;

/// Extents and options of a call.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) key_width: usize,
    pub(crate) value_width: usize,
    /// Tokens per grid cell.
    pub(crate) chunk: usize,
    /// Columns of the log-decay: none, one, or one per key channel.
    pub(crate) fading: usize,
    /// Whether the write is a delta step.
    pub(crate) delta: bool,
}

/// Inputs of both passes; an absent one is empty.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a, S> {
    pub(crate) query: &'a [S],
    pub(crate) key: &'a [S],
    pub(crate) value: &'a [S],
    pub(crate) decay: &'a [S],
    pub(crate) beta: &'a [S],
    pub(crate) state: &'a [S],
}

/// What the backward pass writes, all added to; an absent one is empty.
pub(crate) struct Gradients<'a, S> {
    pub(crate) query: &'a mut [S],
    pub(crate) key: &'a mut [S],
    pub(crate) value: &'a mut [S],
    pub(crate) decay: &'a mut [S],
    pub(crate) beta: &'a mut [S],
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

    /// Whether every state is a vector with decays of its own: chunks then bring nothing.
    fn is_scan(&self) -> bool {
        self.value_width == 1
            && !self.delta
            && self.fading == self.key_width
            && self.heads.is_multiple_of(self.key_heads)
    }

    /// Scratch space of a pass.
    pub(crate) fn scratch(&self) -> usize {
        let rows = self.chunk.min(self.time);
        rows * (8 * self.key_width + 4 * self.value_width + 4 * rows) + (rows + 1) * self.state()
    }

    fn heads_of_all(self) -> impl Iterator<Item = Head> {
        let pairs = (0..self.batch).flat_map(move |sequence| (0..self.heads).map(move |number| (sequence, number)));
        pairs.map(move |(sequence, number)| Head { extents: self, sequence, number })
    }
}

/// One head of one sequence: where its rows are.
#[derive(Clone, Copy)]
struct Head {
    extents: Extents,
    sequence: usize,
    number: usize,
}

impl Head {
    /// Index of the head among all sequences' heads.
    fn index(&self) -> usize {
        self.sequence * self.extents.heads + self.number
    }

    /// Index of a token's row among `[batch, time, heads]`.
    fn row(&self, time: usize) -> usize {
        (self.sequence * self.extents.time + time) * self.extents.heads + self.number
    }

    /// A token's row in `[batch, time, key heads, key width]`.
    fn key_row(&self, time: usize) -> Range<usize> {
        let extents = &self.extents;
        let head = self.number * extents.key_heads / extents.heads;
        let start = ((self.sequence * extents.time + time) * extents.key_heads + head) * extents.key_width;
        start..start + extents.key_width
    }

    /// A token's row in `[batch, time, heads, width]`.
    fn wide_row(&self, time: usize, width: usize) -> Range<usize> {
        self.row(time) * width..(self.row(time) + 1) * width
    }

    /// The rows of a range of tokens in `[batch, time, heads, value width]`.
    fn values<'a, S>(&self, x: &'a [S], times: &Range<usize>) -> Matrix<'a, S> {
        let width = self.extents.value_width;
        Matrix::new(&x[self.row(times.start) * width..], times.len(), width, self.extents.heads * width)
    }

    fn values_mut<'a, S>(&self, x: &'a mut [S], times: &Range<usize>) -> MatrixMut<'a, S> {
        let width = self.extents.value_width;
        MatrixMut::new(&mut x[self.row(times.start) * width..], times.len(), width, self.extents.heads * width)
    }

    /// The rows of a range of tokens in `[batch, time, key heads, key width]`.
    fn keys<'a, S>(&self, x: &'a [S], times: &Range<usize>) -> Matrix<'a, S> {
        let Extents { key_heads, key_width, .. } = self.extents;
        Matrix::new(&x[self.key_row(times.start).start..], times.len(), key_width, key_heads * key_width)
    }

    fn keys_mut<'a, S>(&self, x: &'a mut [S], times: &Range<usize>) -> MatrixMut<'a, S> {
        let Extents { key_heads, key_width, .. } = self.extents;
        MatrixMut::new(&mut x[self.key_row(times.start).start..], times.len(), key_width, key_heads * key_width)
    }

    /// The tokens of a grid cell.
    fn cell(&self, cell: usize) -> Range<usize> {
        cell * self.extents.chunk..((cell + 1) * self.extents.chunk).min(self.extents.time)
    }

    /// The place of a kept state in `[batch, heads, cells, state]`.
    fn kept(&self, cell: usize) -> Range<usize> {
        let place = self.index() * self.extents.cells() + cell;
        place * self.extents.state()..(place + 1) * self.extents.state()
    }

    /// The place of the head's state in `[batch, heads, state]`.
    fn whole(&self) -> Range<usize> {
        self.index() * self.extents.state()..(self.index() + 1) * self.extents.state()
    }
}

/// Queries and keys with the decay put in, and the factors that did it.
struct DecayedOperands<'a, S> {
    rise: &'a mut [S],
    fall: &'a mut [S],
    query: &'a mut [S],
    key: &'a mut [S],
    weak: &'a mut [S],
}

/// Scratch space, cut into what a chunk needs.
struct ChunkScratch<'a, S> {
    faded: DecayedOperands<'a, S>,
    to_query: &'a mut [S],
    to_key: &'a mut [S],
    to_weak: &'a mut [S],
    written: &'a mut [S],
    to_written: &'a mut [S],
    errors: &'a mut [S],
    to_errors: &'a mut [S],
    scores: &'a mut [S],
    overlaps: &'a mut [S],
    to_scores: &'a mut [S],
    to_overlaps: &'a mut [S],
    to_state: &'a mut [S],
}

impl<'a, S> ChunkScratch<'a, S> {
    /// The space, and room for the states that enter the chunks of a cell.
    fn new(extents: &Extents, scratch: &'a mut [S]) -> (Self, &'a mut [S]) {
        let rows = extents.chunk.min(extents.time);
        let (keys, values) = (rows * extents.key_width, rows * extents.value_width);
        let mut rest = scratch;
        let mut cut = |length: usize| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(length);
            rest = tail;
            part
        };
        let work = Self {
            faded: DecayedOperands {
                rise: cut(keys),
                fall: cut(keys),
                query: cut(keys),
                key: cut(keys),
                weak: cut(keys),
            },
            to_query: cut(keys),
            to_key: cut(keys),
            to_weak: cut(keys),
            written: cut(values),
            to_written: cut(values),
            errors: cut(values),
            to_errors: cut(values),
            scores: cut(rows * rows),
            overlaps: cut(rows * rows),
            to_scores: cut(rows * rows),
            to_overlaps: cut(rows * rows),
            to_state: cut(extents.state()),
        };
        (work, cut(rows * extents.state()))
    }
}

/// Decayed queries `Q`, and keys `K` and `W`, of the tokens of a chunk.
struct Operands<'a, S> {
    query: Matrix<'a, S>,
    key: Matrix<'a, S>,
    weak: Matrix<'a, S>,
}

/// A chunk of tokens of one head, with views of its operands.
struct Chunk {
    head: Head,
    times: Range<usize>,
}

impl Chunk {
    fn len(&self) -> usize {
        self.times.len()
    }

    /// The chunk that starts at a token, at the longest up to `end`, with its decayed operands in `faded` if they decay.
    fn prepare<S: Scalar>(
        head: Head,
        start: usize,
        end: usize,
        inputs: &Inputs<'_, S>,
        faded: &mut DecayedOperands<'_, S>,
    ) -> Self {
        let extents = head.extents;
        let (columns, width) = (extents.fading, extents.key_width);
        if columns == 0 {
            return Self { head, times: start..end };
        }
        let decay = &inputs.decay[head.row(start) * columns..];
        let count = exponents(decay, extents.heads * columns, columns, end - start, faded.rise, faded.fall);
        for token in 0..count {
            let from = head.key_row(start + token);
            let into = token * width..(token + 1) * width;
            let factors = token * columns..(token + 1) * columns;
            scale_row(&inputs.query[from.clone()], &faded.rise[factors.clone()], &mut faded.query[into.clone()]);
            scale_row(&inputs.key[from.clone()], &faded.fall[factors.clone()], &mut faded.weak[into.clone()]);
            if extents.delta {
                scale_row(&inputs.key[from], &faded.rise[factors], &mut faded.key[into]);
            }
        }
        Self { head, times: start..start + count }
    }

    /// What [`prepare`](Self::prepare) left, or the inputs themselves if nothing decays.
    fn operands<'a, S: Scalar>(&self, inputs: &Inputs<'a, S>, faded: &'a DecayedOperands<'_, S>) -> Operands<'a, S> {
        if self.head.extents.fading == 0 {
            let key = self.head.keys(inputs.key, &self.times);
            return Operands { query: self.head.keys(inputs.query, &self.times), key, weak: key };
        }
        Operands { query: self.keys(faded.query), key: self.keys(faded.key), weak: self.keys(faded.weak) }
    }

    /// What the chunk writes: its values, or what the delta rule has left in `solved`.
    fn written<'a, S>(&self, inputs: &Inputs<'a, S>, solved: &'a [S]) -> Matrix<'a, S> {
        if self.head.extents.delta { self.rows(solved) } else { self.head.values(inputs.value, &self.times) }
    }

    /// Where the gradient of an operand goes: without decay it is the input's, and is added; otherwise it is scratch.
    fn slopes<'a, S>(&self, gradient: &'a mut [S], scratch: &'a mut [S]) -> (MatrixMut<'a, S>, Accumulate) {
        if self.head.extents.fading == 0 {
            return (self.head.keys_mut(gradient, &self.times), Accumulate::Sum);
        }
        (self.keys_mut(scratch), Accumulate::Fresh)
    }

    /// The decays of the chunk's first token.
    fn first_decay<'a, S>(&self, decay: &'a [S]) -> &'a [S] {
        &decay[self.head.wide_row(self.times.start, self.head.extents.fading)]
    }

    /// A view of operand rows over key channels.
    fn keys<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.len(), self.head.extents.key_width, self.head.extents.key_width)
    }

    fn keys_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.len(), self.head.extents.key_width, self.head.extents.key_width)
    }

    /// A view of contiguous rows over value channels.
    fn rows<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.len(), self.head.extents.value_width, self.head.extents.value_width)
    }

    fn rows_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.len(), self.head.extents.value_width, self.head.extents.value_width)
    }

    fn square<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.len(), self.len(), self.len())
    }

    fn square_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.len(), self.len(), self.len())
    }

    fn state<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        let extents = &self.head.extents;
        Matrix::new(x, extents.key_width, extents.value_width, extents.value_width)
    }

    fn state_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        let extents = &self.head.extents;
        MatrixMut::new(x, extents.key_width, extents.value_width, extents.value_width)
    }

    /// Factors `e^b` of the last token.
    fn last<'a, S>(&self, rise: &'a [S]) -> &'a [S] {
        let columns = self.head.extents.fading;
        &rise[(self.len() - 1) * columns..self.len() * columns]
    }

    /// `P` and, for the delta rule, `N`.
    fn pairs<S: Scalar>(&self, inputs: &Inputs<'_, S>, work: &mut ChunkScratch<'_, S>) {
        let Operands { query, key, weak } = self.operands(inputs, &work.faded);
        product(&mut self.square_mut(work.scores), Accumulate::Fresh, 1.0, query, weak.t());
        lower(self.len(), false, work.scores);
        if self.head.extents.delta {
            product(&mut self.square_mut(work.overlaps), Accumulate::Fresh, 1.0, key, weak.t());
            lower(self.len(), true, work.overlaps);
        }
    }

    /// Solves the delta rule, if it is the chunk's, for what is written; its errors go to `errors`.
    fn solve<S: Scalar>(&self, inputs: &Inputs<'_, S>, state: &[S], errors: &mut [S], work: &mut ChunkScratch<'_, S>) {
        let Extents { value_width: width, heads, delta, .. } = self.head.extents;
        if !delta {
            return;
        }
        for (time, error) in self.times.clone().zip(work.errors.chunks_exact_mut(width)) {
            error.copy_from_slice(&inputs.value[self.head.wide_row(time, width)]);
        }
        let Operands { key, .. } = self.operands(inputs, &work.faded);
        product(&mut self.rows_mut(work.errors), Accumulate::Sum, -1.0, key, self.state(state));
        let beta = &inputs.beta[self.head.row(self.times.start)..];
        solve(self.len(), width, work.overlaps, beta, heads, work.errors, work.written);
        for (time, error) in self.times.clone().zip(work.errors.chunks_exact(width)) {
            errors[self.head.wide_row(time, width)].copy_from_slice(error);
        }
    }

    /// What the delta rule wrote, if it is the chunk's, from the kept errors.
    fn recompute_writes<S: Scalar>(&self, inputs: &Inputs<'_, S>, errors: &[S], work: &mut ChunkScratch<'_, S>) {
        let Extents { value_width: width, delta, .. } = self.head.extents;
        if !delta {
            return;
        }
        for (token, time) in self.times.clone().enumerate() {
            let (from, into) = (self.head.wide_row(time, width), token * width..(token + 1) * width);
            work.errors[into.clone()].copy_from_slice(&errors[from.clone()]);
            scale_row(&errors[from], &[inputs.beta[self.head.row(time)]], &mut work.written[into]);
        }
    }

    /// From the state that enters to the state that leaves.
    fn advance<S: Scalar>(&self, inputs: &Inputs<'_, S>, work: &ChunkScratch<'_, S>, state: &mut [S]) {
        let Operands { weak, .. } = self.operands(inputs, &work.faded);
        let written = self.written(inputs, work.written);
        product(&mut self.state_mut(state), Accumulate::Sum, 1.0, weak.t(), written);
        scale_rows(self.head.extents.value_width, self.last(work.faded.rise), state);
    }

    /// Gradients of the chunk. `work.to_state` is the gradient of the state that leaves, and becomes that of the state before.
    fn back<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        slope: &[S],
        entering: &[S],
        work: &mut ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let Extents { value_width: width, delta, .. } = self.head.extents;
        let slope = self.head.values(slope, &self.times);
        scale_rows(width, self.last(work.faded.rise), work.to_state);
        let Operands { query, weak, .. } = self.operands(inputs, &work.faded);
        let (written, leaving) = (self.written(inputs, work.written), self.state(work.to_state));

        let mut to_written =
            if delta { self.rows_mut(work.to_written) } else { self.head.values_mut(gradients.value, &self.times) };
        product(&mut to_written, Accumulate::Fresh, 1.0, self.square(work.scores).t(), slope);
        product(&mut to_written, Accumulate::Sum, 1.0, weak, leaving);
        product(&mut self.square_mut(work.to_scores), Accumulate::Fresh, 1.0, slope, written.t());
        lower(self.len(), false, work.to_scores);
        let to_scores = self.square(work.to_scores);
        let (mut to_query, into) = self.slopes(gradients.query, work.to_query);
        product(&mut to_query, into, 1.0, slope, self.state(entering).t());
        product(&mut to_query, Accumulate::Sum, 1.0, to_scores, weak);
        let (mut to_weak, into) = self.slopes(gradients.key, work.to_weak);
        product(&mut to_weak, into, 1.0, written, leaving.t());
        self.last_decay_back(entering, work, gradients);
        let (mut to_weak, _) = self.slopes(gradients.key, work.to_weak);
        product(&mut to_weak, Accumulate::Sum, 1.0, self.square(work.to_scores).t(), query);
        product(&mut self.state_mut(work.to_state), Accumulate::Sum, 1.0, query.t(), slope);
        if delta {
            self.delta_back(inputs, entering, work, gradients);
        }
        if self.head.extents.fading > 0 {
            self.operands_back(work, gradients);
            self.first_decay_back(inputs, entering, work, gradients);
        }
    }

    /// The delta rule's part: gradients of errors, values, beta, `K` and `N`.
    fn delta_back<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        entering: &[S],
        work: &mut ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let Extents { value_width: width, heads, .. } = self.head.extents;
        let place = self.head.row(self.times.start);
        let (beta, to_beta) = (&inputs.beta[place..], &mut gradients.beta[place..]);
        let (overlaps, errors) = (&*work.overlaps, &*work.errors);
        solve_back(self.len(), width, overlaps, beta, heads, errors, work.to_written, work.to_errors, to_beta);
        for (time, row) in self.times.clone().zip(work.to_errors.chunks_exact(width)) {
            gradients.value[self.head.wide_row(time, width)].copy_from_slice(row);
        }
        let Operands { key, weak, .. } = self.operands(inputs, &work.faded);
        let to_errors = self.rows(work.to_errors);
        product(
            &mut self.square_mut(work.to_overlaps),
            Accumulate::Fresh,
            -1.0,
            to_errors,
            self.rows(work.written).t(),
        );
        lower(self.len(), true, work.to_overlaps);
        let to_overlaps = self.square(work.to_overlaps);
        let (mut to_key, into) = self.slopes(gradients.key, work.to_key);
        product(&mut to_key, into, -1.0, to_errors, self.state(entering).t());
        product(&mut to_key, Accumulate::Sum, 1.0, to_overlaps, weak);
        let (mut to_weak, _) = self.slopes(gradients.key, work.to_weak);
        product(&mut to_weak, Accumulate::Sum, 1.0, to_overlaps.t(), key);
        product(&mut self.state_mut(work.to_state), Accumulate::Sum, -1.0, key.t(), to_errors);
    }

    /// The part of the last token's `b` that scales the leaving state: `sum_v dZ Z`, with `Z = S0 + W' u`.
    fn last_decay_back<S: Scalar>(&self, entering: &[S], work: &ChunkScratch<'_, S>, gradients: &mut Gradients<'_, S>) {
        let Extents { key_width, value_width, fading, .. } = self.head.extents;
        if fading == 0 {
            return;
        }
        let out = &mut gradients.decay[self.head.wide_row(self.times.end - 1, fading)];
        row_dots(value_width, work.to_state, entering, S::ONE, out);
        let keys = work.to_weak.chunks_exact(key_width).zip(work.faded.weak.chunks_exact(key_width));
        for (slope, weak) in keys.take(self.len()) {
            multiply_into(slope, weak, S::ONE, out);
        }
    }

    /// From the gradients of `Q`, `K` and `W` to those of queries, keys and `b`.
    fn operands_back<S: Scalar>(&self, work: &ChunkScratch<'_, S>, gradients: &mut Gradients<'_, S>) {
        let Extents { key_width: width, fading, delta, .. } = self.head.extents;
        let faded = &work.faded;
        for (token, time) in self.times.clone().enumerate() {
            let (from, into) = (token * width..(token + 1) * width, self.head.key_row(time));
            let factors = token * fading..(token + 1) * fading;
            let (rise, fall) = (&faded.rise[factors.clone()], &faded.fall[factors]);
            add_scaled_row(&work.to_query[from.clone()], rise, &mut gradients.query[into.clone()]);
            add_scaled_row(&work.to_weak[from.clone()], fall, &mut gradients.key[into.clone()]);
            let out = &mut gradients.decay[self.head.wide_row(time, fading)];
            multiply_into(&work.to_query[from.clone()], &faded.query[from.clone()], S::ONE, out);
            multiply_into(&work.to_weak[from.clone()], &faded.weak[from.clone()], -S::ONE, out);
            if delta {
                add_scaled_row(&work.to_key[from.clone()], rise, &mut gradients.key[into]);
                multiply_into(&work.to_key[from.clone()], &faded.key[from], S::ONE, out);
            }
        }
    }

    /// Sums the gradients of `b` into those of the decays, and takes the state back through the first token's decay.
    fn first_decay_back<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        entering: &[S],
        work: &mut ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let Extents { value_width, fading, .. } = self.head.extents;
        for time in (self.times.start + 1..self.times.end - 1).rev() {
            let (now, next) = (self.head.wide_row(time, fading), self.head.wide_row(time + 1, fading));
            let (head, tail) = gradients.decay.split_at_mut(next.start);
            add_scaled_row(&tail[..fading], &[S::ONE], &mut head[now]);
        }
        let first = &mut gradients.decay[self.head.wide_row(self.times.start, fading)];
        first.fill(S::ZERO);
        row_dots(value_width, work.to_state, entering, S::ONE, first);
        fade_rows(value_width, self.first_decay(inputs.decay), work.to_state);
    }
}

/// Outputs of all tokens, the last states, the states at the start of each grid cell, and the delta rule's errors.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scratch: &mut [S],
    (out, last, kept, errors): (&mut [S], &mut [S], &mut [S], &mut [S]),
) {
    if inputs.state.is_empty() {
        last.fill(S::ZERO);
    } else {
        last.copy_from_slice(inputs.state);
    }
    if extents.is_scan() {
        return scan::forward(extents, inputs, (out, last, kept));
    }
    let (mut work, _) = ChunkScratch::new(&extents, scratch);
    for head in extents.heads_of_all() {
        let state = &mut last[head.whole()];
        for cell in 0..extents.cells() {
            kept[head.kept(cell)].copy_from_slice(state);
            let Range { mut start, end } = head.cell(cell);
            while start < end {
                let chunk = Chunk::prepare(head, start, end, inputs, &mut work.faded);
                start = chunk.times.end;
                if extents.fading > 0 {
                    fade_rows(extents.value_width, chunk.first_decay(inputs.decay), state);
                }
                chunk.pairs(inputs, &mut work);
                chunk.solve(inputs, state, errors, &mut work);
                let mut rows = head.values_mut(out, &chunk.times);
                let Operands { query, .. } = chunk.operands(inputs, &work.faded);
                product(&mut rows, Accumulate::Fresh, 1.0, query, chunk.state(state));
                let written = chunk.written(inputs, work.written);
                product(&mut rows, Accumulate::Sum, 1.0, chunk.square(work.scores), written);
                chunk.advance(inputs, &work, state);
            }
        }
    }
}

/// Gradients of everything, from the gradient of the outputs and (unless empty) of the last states.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    (kept, errors): (&[S], &[S]),
    (slope, last_slope): (&[S], &[S]),
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let (mut work, states) = ChunkScratch::new(&extents, scratch);
    for head in extents.heads_of_all() {
        if last_slope.is_empty() {
            work.to_state.fill(S::ZERO);
        } else {
            work.to_state.copy_from_slice(&last_slope[head.whole()]);
        }
        for cell in (0..extents.cells()).rev() {
            backward_cell(head, cell, inputs, (kept, errors, slope), states, &mut work, gradients);
        }
        if !gradients.state.is_empty() {
            gradients.state[head.whole()].copy_from_slice(work.to_state);
        }
    }
}

/// The chunks of one grid cell, backward. The states that enter them are made again from the cell's first.
fn backward_cell<S: Scalar>(
    head: Head,
    cell: usize,
    inputs: &Inputs<'_, S>,
    (kept, errors, slope): (&[S], &[S], &[S]),
    states: &mut [S],
    work: &mut ChunkScratch<'_, S>,
    gradients: &mut Gradients<'_, S>,
) {
    let (size, width) = (head.extents.state(), head.extents.value_width);
    let Range { mut start, end } = head.cell(cell);
    states[..size].copy_from_slice(&kept[head.kept(cell)]);
    let (first, mut last) = (start, 0);
    let mut chunk;
    loop {
        chunk = Chunk::prepare(head, start, end, inputs, &mut work.faded);
        chunk.recompute_writes(inputs, errors, work);
        let (entering, leaving) = states[last * size..].split_at_mut(size);
        if head.extents.fading > 0 {
            fade_rows(width, chunk.first_decay(inputs.decay), entering);
        }
        start = chunk.times.end;
        if start == end {
            break;
        }
        leaving[..size].copy_from_slice(entering);
        chunk.advance(inputs, work, &mut leaving[..size]);
        last += 1;
    }
    loop {
        chunk.pairs(inputs, work);
        chunk.back(inputs, slope, &states[last * size..(last + 1) * size], work, gradients);
        if last == 0 {
            return;
        }
        last -= 1;
        chunk = chunk_before(head, first, chunk.times.start, end, inputs, &mut work.faded);
        chunk.recompute_writes(inputs, errors, work);
    }
}

/// The chunk of a cell that ends where another starts. Chunks are found from the cell's start, as in the forward pass.
fn chunk_before<S: Scalar>(
    head: Head,
    mut start: usize,
    stop: usize,
    end: usize,
    inputs: &Inputs<'_, S>,
    faded: &mut DecayedOperands<'_, S>,
) -> Chunk {
    loop {
        let chunk = Chunk::prepare(head, start, end, inputs, faded);
        if chunk.times.end == stop {
            return chunk;
        }
        start = chunk.times.end;
    }
}
