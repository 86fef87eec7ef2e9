//! A chunk of tokens of one head, computed with matrix products, forward and backward.

use super::rows::{
    add_products, add_scaled_row, compute_decay_factors, decay_rows, row_dots, scale_row, scale_rows, solve_delta,
    solve_delta_backward, zero_upper_triangle,
};
use super::{Gradients, Inputs, RecurrenceKernel};
use crate::kernels::heads::{Extents, Head};
use crate::kernels::product::{Matrix, MatrixMut, WriteMode, product};
use crate::scalar::Scalar;
use std::ops::Range;

/// Buffers for queries and keys with the decay applied, and the factors of the decay.
pub(super) struct DecayedOperands<'a, S> {
    /// `e^b`.
    pub(super) decay_factors: &'a mut [S],
    /// `e^-b`.
    pub(super) inverse_decay_factors: &'a mut [S],
    /// `Q`.
    pub(super) query: &'a mut [S],
    /// `K`.
    pub(super) key: &'a mut [S],
    /// `W`.
    pub(super) inverse_key: &'a mut [S],
}

/// The scratch buffer, split into the arrays of a chunk.
pub(super) struct ChunkScratch<'a, S> {
    pub(super) decayed: DecayedOperands<'a, S>,
    pub(super) grad_query: &'a mut [S],
    pub(super) grad_key: &'a mut [S],
    pub(super) grad_inverse_key: &'a mut [S],
    pub(super) writes: &'a mut [S],
    pub(super) grad_writes: &'a mut [S],
    pub(super) errors: &'a mut [S],
    pub(super) grad_errors: &'a mut [S],
    pub(super) scores: &'a mut [S],
    pub(super) overlaps: &'a mut [S],
    pub(super) grad_scores: &'a mut [S],
    pub(super) grad_overlaps: &'a mut [S],
    pub(super) grad_state: &'a mut [S],
}

impl<'a, S> ChunkScratch<'a, S> {
    /// Splits the scratch buffer; the second part holds the states at the start of each chunk of a cell.
    pub(super) fn new(kernel: &RecurrenceKernel, scratch: &'a mut [S]) -> (Self, &'a mut [S]) {
        let (extents, rows) = (kernel.extents, kernel.max_rows());
        let (keys, values) = (rows * extents.key_width, rows * extents.value_width);
        let mut remaining = scratch;
        let mut take = |length: usize| {
            let (taken, after) = std::mem::take(&mut remaining).split_at_mut(length);
            remaining = after;
            taken
        };
        let work = Self {
            decayed: DecayedOperands {
                decay_factors: take(keys),
                inverse_decay_factors: take(keys),
                query: take(keys),
                key: take(keys),
                inverse_key: take(keys),
            },
            grad_query: take(keys),
            grad_key: take(keys),
            grad_inverse_key: take(keys),
            writes: take(values),
            grad_writes: take(values),
            errors: take(values),
            grad_errors: take(values),
            scores: take(rows * rows),
            overlaps: take(rows * rows),
            grad_scores: take(rows * rows),
            grad_overlaps: take(rows * rows),
            grad_state: take(extents.state_len()),
        };
        (work, take(rows * extents.state_len()))
    }
}

/// The operands `Q`, `K` and `W` of a chunk.
pub(super) struct Operands<'a, S> {
    pub(super) query: Matrix<'a, S>,
    pub(super) key: Matrix<'a, S>,
    pub(super) inverse_key: Matrix<'a, S>,
}

/// A range of tokens of one head that is computed with matrix products.
pub(super) struct Chunk {
    kernel: RecurrenceKernel,
    head: Head,
    pub(super) tokens: Range<usize>,
}

impl Chunk {
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The longest chunk from `start` that ends at `end` or before. Its operands are written to `decayed` if there is a decay.
    pub(super) fn prepare<S: Scalar>(
        (kernel, head): (RecurrenceKernel, Head),
        start: usize,
        end: usize,
        inputs: &Inputs<'_, S>,
        decayed: &mut DecayedOperands<'_, S>,
    ) -> Self {
        let (columns, Extents { heads, key_width: width, .. }) = (kernel.decay_columns, head.extents);
        if columns == 0 {
            return Self { kernel, head, tokens: start..end };
        }
        let decay = &inputs.decay[head.token_row(start) * columns..];
        let count = compute_decay_factors(
            decay,
            heads * columns,
            columns,
            end - start,
            decayed.decay_factors,
            decayed.inverse_decay_factors,
        );
        for token in 0..count {
            let source = head.key_range(start + token);
            let target = token * width..(token + 1) * width;
            let factors = token * columns..(token + 1) * columns;
            scale_row(
                &inputs.query[source.clone()],
                &decayed.decay_factors[factors.clone()],
                &mut decayed.query[target.clone()],
            );
            scale_row(
                &inputs.key[source.clone()],
                &decayed.inverse_decay_factors[factors.clone()],
                &mut decayed.inverse_key[target.clone()],
            );
            if kernel.delta {
                scale_row(&inputs.key[source], &decayed.decay_factors[factors], &mut decayed.key[target]);
            }
        }
        Self { kernel, head, tokens: start..start + count }
    }

    /// The operands that [`prepare`](Self::prepare) computed, or the inputs themselves if there is no decay.
    pub(super) fn operands<'a, S: Scalar>(
        &self,
        inputs: &Inputs<'a, S>,
        decayed: &'a DecayedOperands<'_, S>,
    ) -> Operands<'a, S> {
        if self.kernel.decay_columns == 0 {
            let key = self.head.key_matrix(inputs.key, &self.tokens);
            return Operands { query: self.head.key_matrix(inputs.query, &self.tokens), key, inverse_key: key };
        }
        Operands {
            query: self.key_matrix(decayed.query),
            key: self.key_matrix(decayed.key),
            inverse_key: self.key_matrix(decayed.inverse_key),
        }
    }

    /// The writes `u`: the values, or for the delta rule `delta_writes`.
    pub(super) fn writes<'a, S>(&self, inputs: &Inputs<'a, S>, delta_writes: &'a [S]) -> Matrix<'a, S> {
        if self.kernel.delta {
            self.contiguous_values(delta_writes)
        } else {
            self.head.value_matrix(inputs.value, &self.tokens)
        }
    }

    /// Where the gradient of an operand is written: without decay it is added to the gradient of the input, otherwise it
    /// overwrites the scratch buffer.
    pub(super) fn grad_destination<'a, S>(
        &self,
        gradient: &'a mut [S],
        scratch: &'a mut [S],
    ) -> (MatrixMut<'a, S>, WriteMode) {
        if self.kernel.decay_columns == 0 {
            return (self.head.key_matrix_mut(gradient, &self.tokens), WriteMode::Add);
        }
        (self.key_matrix_mut(scratch), WriteMode::Overwrite)
    }

    /// The log-decays of the chunk's first token.
    pub(super) fn first_decay<'a, S>(&self, decay: &'a [S]) -> &'a [S] {
        &decay[self.head.row_range(self.tokens.start, self.kernel.decay_columns)]
    }

    /// A matrix of one contiguous row of key channels per token.
    pub(super) fn key_matrix<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.len(), self.head.extents.key_width, self.head.extents.key_width)
    }

    pub(super) fn key_matrix_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.len(), self.head.extents.key_width, self.head.extents.key_width)
    }

    /// A matrix of one contiguous row of value channels per token.
    pub(super) fn contiguous_values<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.len(), self.head.extents.value_width, self.head.extents.value_width)
    }

    pub(super) fn contiguous_values_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.len(), self.head.extents.value_width, self.head.extents.value_width)
    }

    pub(super) fn score_matrix<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.len(), self.len(), self.len())
    }

    pub(super) fn score_matrix_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.len(), self.len(), self.len())
    }

    pub(super) fn state_matrix<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        let extents = &self.head.extents;
        Matrix::new(x, extents.key_width, extents.value_width, extents.value_width)
    }

    pub(super) fn state_matrix_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        let extents = &self.head.extents;
        MatrixMut::new(x, extents.key_width, extents.value_width, extents.value_width)
    }

    /// Factors `e^b` of the last token.
    pub(super) fn last_decay_factors<'a, S>(&self, decay_factors: &'a [S]) -> &'a [S] {
        let columns = self.kernel.decay_columns;
        &decay_factors[(self.len() - 1) * columns..self.len() * columns]
    }

    /// Computes the scores `P` and, for the delta rule, the overlaps `N`.
    pub(super) fn compute_scores<S: Scalar>(&self, inputs: &Inputs<'_, S>, work: &mut ChunkScratch<'_, S>) {
        let Operands { query, key, inverse_key } = self.operands(inputs, &work.decayed);
        product(&mut self.score_matrix_mut(work.scores), WriteMode::Overwrite, 1.0, query, inverse_key.t());
        zero_upper_triangle(self.len(), false, work.scores);
        if self.kernel.delta {
            product(&mut self.score_matrix_mut(work.overlaps), WriteMode::Overwrite, 1.0, key, inverse_key.t());
            zero_upper_triangle(self.len(), true, work.overlaps);
        }
    }

    /// For the delta rule, solves for the errors and writes of the chunk; the errors are also stored in `errors`.
    pub(super) fn compute_errors<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        state: &[S],
        errors: &mut [S],
        work: &mut ChunkScratch<'_, S>,
    ) {
        let Extents { value_width: width, heads, .. } = self.head.extents;
        if !self.kernel.delta {
            return;
        }
        for (time, error) in self.tokens.clone().zip(work.errors.chunks_exact_mut(width)) {
            error.copy_from_slice(&inputs.value[self.head.row_range(time, width)]);
        }
        let Operands { key, .. } = self.operands(inputs, &work.decayed);
        product(&mut self.contiguous_values_mut(work.errors), WriteMode::Add, -1.0, key, self.state_matrix(state));
        let beta = &inputs.beta[self.head.token_row(self.tokens.start)..];
        solve_delta(self.len(), width, work.overlaps, beta, heads, work.errors, work.writes);
        for (time, error) in self.tokens.clone().zip(work.errors.chunks_exact(width)) {
            errors[self.head.row_range(time, width)].copy_from_slice(error);
        }
    }

    /// For the delta rule, computes the writes again from the stored errors.
    pub(super) fn recompute_writes<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        errors: &[S],
        work: &mut ChunkScratch<'_, S>,
    ) {
        let width = self.head.extents.value_width;
        if !self.kernel.delta {
            return;
        }
        for (token, time) in self.tokens.clone().enumerate() {
            let (source, target) = (self.head.row_range(time, width), token * width..(token + 1) * width);
            work.errors[target.clone()].copy_from_slice(&errors[source.clone()]);
            scale_row(&errors[source], &[inputs.beta[self.head.token_row(time)]], &mut work.writes[target]);
        }
    }

    /// Turns the state at the chunk's start into the state at its end.
    pub(super) fn advance<S: Scalar>(&self, inputs: &Inputs<'_, S>, work: &ChunkScratch<'_, S>, state: &mut [S]) {
        let Operands { inverse_key, .. } = self.operands(inputs, &work.decayed);
        let writes = self.writes(inputs, work.writes);
        product(&mut self.state_matrix_mut(state), WriteMode::Add, 1.0, inverse_key.t(), writes);
        scale_rows(self.head.extents.value_width, self.last_decay_factors(work.decayed.decay_factors), state);
    }

    /// Gradients of the chunk. `work.grad_state` is the gradient of the state at the chunk's end, and becomes that of the state
    /// before the chunk.
    pub(super) fn backward<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        grad_out: &[S],
        start_state: &[S],
        work: &mut ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let (width, delta) = (self.head.extents.value_width, self.kernel.delta);
        let grad_out = self.head.value_matrix(grad_out, &self.tokens);
        scale_rows(width, self.last_decay_factors(work.decayed.decay_factors), work.grad_state);
        let Operands { query, inverse_key, .. } = self.operands(inputs, &work.decayed);
        let (writes, grad_end_state) = (self.writes(inputs, work.writes), self.state_matrix(work.grad_state));

        let mut grad_writes = if delta {
            self.contiguous_values_mut(work.grad_writes)
        } else {
            self.head.value_matrix_mut(gradients.value, &self.tokens)
        };
        product(&mut grad_writes, WriteMode::Overwrite, 1.0, self.score_matrix(work.scores).t(), grad_out);
        product(&mut grad_writes, WriteMode::Add, 1.0, inverse_key, grad_end_state);
        product(&mut self.score_matrix_mut(work.grad_scores), WriteMode::Overwrite, 1.0, grad_out, writes.t());
        zero_upper_triangle(self.len(), false, work.grad_scores);
        let grad_scores = self.score_matrix(work.grad_scores);
        let (mut grad_query, mode) = self.grad_destination(gradients.query, work.grad_query);
        product(&mut grad_query, mode, 1.0, grad_out, self.state_matrix(start_state).t());
        product(&mut grad_query, WriteMode::Add, 1.0, grad_scores, inverse_key);
        let (mut grad_inverse_key, mode) = self.grad_destination(gradients.key, work.grad_inverse_key);
        product(&mut grad_inverse_key, mode, 1.0, writes, grad_end_state.t());
        self.backward_last_decay(start_state, work, gradients);
        let (mut grad_inverse_key, _) = self.grad_destination(gradients.key, work.grad_inverse_key);
        product(&mut grad_inverse_key, WriteMode::Add, 1.0, self.score_matrix(work.grad_scores).t(), query);
        product(&mut self.state_matrix_mut(work.grad_state), WriteMode::Add, 1.0, query.t(), grad_out);
        if delta {
            self.backward_delta(inputs, start_state, work, gradients);
        }
        if self.kernel.decay_columns > 0 {
            self.backward_operands(work, gradients);
            self.backward_first_decay(inputs, start_state, work, gradients);
        }
    }

    /// Gradients of the delta rule: errors, values, beta, `K` and `N`.
    pub(super) fn backward_delta<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        start_state: &[S],
        work: &mut ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let Extents { value_width: width, heads, .. } = self.head.extents;
        let index = self.head.token_row(self.tokens.start);
        let (beta, grad_beta) = (&inputs.beta[index..], &mut gradients.beta[index..]);
        let (overlaps, errors) = (&*work.overlaps, &*work.errors);
        solve_delta_backward(
            self.len(),
            width,
            overlaps,
            beta,
            heads,
            errors,
            work.grad_writes,
            work.grad_errors,
            grad_beta,
        );
        for (time, row) in self.tokens.clone().zip(work.grad_errors.chunks_exact(width)) {
            gradients.value[self.head.row_range(time, width)].copy_from_slice(row);
        }
        let Operands { key, inverse_key, .. } = self.operands(inputs, &work.decayed);
        let grad_errors = self.contiguous_values(work.grad_errors);
        product(
            &mut self.score_matrix_mut(work.grad_overlaps),
            WriteMode::Overwrite,
            -1.0,
            grad_errors,
            self.contiguous_values(work.writes).t(),
        );
        zero_upper_triangle(self.len(), true, work.grad_overlaps);
        let grad_overlaps = self.score_matrix(work.grad_overlaps);
        let (mut grad_key, mode) = self.grad_destination(gradients.key, work.grad_key);
        product(&mut grad_key, mode, -1.0, grad_errors, self.state_matrix(start_state).t());
        product(&mut grad_key, WriteMode::Add, 1.0, grad_overlaps, inverse_key);
        let (mut grad_inverse_key, _) = self.grad_destination(gradients.key, work.grad_inverse_key);
        product(&mut grad_inverse_key, WriteMode::Add, 1.0, grad_overlaps.t(), key);
        product(&mut self.state_matrix_mut(work.grad_state), WriteMode::Add, -1.0, key.t(), grad_errors);
    }

    /// Gradient of the last token's `b` as the factor of the state at the end: `sum_v dZ Z`, with `Z = S0 + W' u`.
    pub(super) fn backward_last_decay<S: Scalar>(
        &self,
        start_state: &[S],
        work: &ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let Extents { key_width, value_width, .. } = self.head.extents;
        let decay_columns = self.kernel.decay_columns;
        if decay_columns == 0 {
            return;
        }
        let out = &mut gradients.decay[self.head.row_range(self.tokens.end - 1, decay_columns)];
        row_dots(value_width, work.grad_state, start_state, S::ONE, out);
        let keys = work.grad_inverse_key.chunks_exact(key_width).zip(work.decayed.inverse_key.chunks_exact(key_width));
        for (grad_out, inverse_key) in keys.take(self.len()) {
            add_products(grad_out, inverse_key, S::ONE, out);
        }
    }

    /// Turns the gradients of `Q`, `K` and `W` into those of queries, keys and `b`.
    pub(super) fn backward_operands<S: Scalar>(&self, work: &ChunkScratch<'_, S>, gradients: &mut Gradients<'_, S>) {
        let (width, RecurrenceKernel { decay_columns, delta, .. }) = (self.head.extents.key_width, self.kernel);
        let decayed = &work.decayed;
        for (token, time) in self.tokens.clone().enumerate() {
            let (source, target) = (token * width..(token + 1) * width, self.head.key_range(time));
            let factors = token * decay_columns..(token + 1) * decay_columns;
            let (decay_factors, inverse_decay_factors) =
                (&decayed.decay_factors[factors.clone()], &decayed.inverse_decay_factors[factors]);
            add_scaled_row(&work.grad_query[source.clone()], decay_factors, &mut gradients.query[target.clone()]);
            add_scaled_row(
                &work.grad_inverse_key[source.clone()],
                inverse_decay_factors,
                &mut gradients.key[target.clone()],
            );
            let out = &mut gradients.decay[self.head.row_range(time, decay_columns)];
            add_products(&work.grad_query[source.clone()], &decayed.query[source.clone()], S::ONE, out);
            add_products(&work.grad_inverse_key[source.clone()], &decayed.inverse_key[source.clone()], -S::ONE, out);
            if delta {
                add_scaled_row(&work.grad_key[source.clone()], decay_factors, &mut gradients.key[target]);
                add_products(&work.grad_key[source.clone()], &decayed.key[source], S::ONE, out);
            }
        }
    }

    /// Sums the gradients of `b` into those of the log-decays, and applies the first token's decay to the gradient of the state.
    pub(super) fn backward_first_decay<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        start_state: &[S],
        work: &mut ChunkScratch<'_, S>,
        gradients: &mut Gradients<'_, S>,
    ) {
        let (value_width, decay_columns) = (self.head.extents.value_width, self.kernel.decay_columns);
        for time in (self.tokens.start + 1..self.tokens.end - 1).rev() {
            let (row, next) = (self.head.row_range(time, decay_columns), self.head.row_range(time + 1, decay_columns));
            let (before_next, from_next) = gradients.decay.split_at_mut(next.start);
            add_scaled_row(&from_next[..decay_columns], &[S::ONE], &mut before_next[row]);
        }
        let first = &mut gradients.decay[self.head.row_range(self.tokens.start, decay_columns)];
        first.fill(S::ZERO);
        row_dots(value_width, work.grad_state, start_state, S::ONE, first);
        decay_rows(value_width, self.first_decay(inputs.decay), work.grad_state);
    }
}
