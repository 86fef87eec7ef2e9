//! Where the rows of one head lie in the tensors of a recurrence.

use super::Extents;
use crate::kernels::product::{Matrix, MatrixMut};
use std::ops::Range;

/// One head of one sequence, which finds its rows in the tensors.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) extents: Extents,
    pub(super) sequence: usize,
    pub(super) index: usize,
}

impl Head {
    /// Index of the head in `[batch, heads]`.
    pub(super) fn state_index(&self) -> usize {
        self.sequence * self.extents.heads + self.index
    }

    /// Index of a token's row in `[batch, time, heads]`.
    pub(super) fn token_row(&self, time: usize) -> usize {
        (self.sequence * self.extents.time + time) * self.extents.heads + self.index
    }

    /// A token's row in `[batch, time, key heads, key width]`.
    pub(super) fn key_range(&self, time: usize) -> Range<usize> {
        let extents = &self.extents;
        let head = self.index * extents.key_heads / extents.heads;
        let start = ((self.sequence * extents.time + time) * extents.key_heads + head) * extents.key_width;
        start..start + extents.key_width
    }

    /// A token's row in `[batch, time, heads, width]`.
    pub(super) fn row_range(&self, time: usize, width: usize) -> Range<usize> {
        self.token_row(time) * width..(self.token_row(time) + 1) * width
    }

    /// The rows of a range of tokens in `[batch, time, heads, value width]`.
    pub(super) fn value_matrix<'a, S>(&self, x: &'a [S], tokens: &Range<usize>) -> Matrix<'a, S> {
        let width = self.extents.value_width;
        Matrix::new(&x[self.token_row(tokens.start) * width..], tokens.len(), width, self.extents.heads * width)
    }

    pub(super) fn value_matrix_mut<'a, S>(&self, x: &'a mut [S], tokens: &Range<usize>) -> MatrixMut<'a, S> {
        let width = self.extents.value_width;
        MatrixMut::new(&mut x[self.token_row(tokens.start) * width..], tokens.len(), width, self.extents.heads * width)
    }

    /// The rows of a range of tokens in `[batch, time, key heads, key width]`.
    pub(super) fn key_matrix<'a, S>(&self, x: &'a [S], tokens: &Range<usize>) -> Matrix<'a, S> {
        let Extents { key_heads, key_width, .. } = self.extents;
        Matrix::new(&x[self.key_range(tokens.start).start..], tokens.len(), key_width, key_heads * key_width)
    }

    pub(super) fn key_matrix_mut<'a, S>(&self, x: &'a mut [S], tokens: &Range<usize>) -> MatrixMut<'a, S> {
        let Extents { key_heads, key_width, .. } = self.extents;
        MatrixMut::new(&mut x[self.key_range(tokens.start).start..], tokens.len(), key_width, key_heads * key_width)
    }

    /// The tokens of a cell.
    pub(super) fn cell_tokens(&self, cell: usize) -> Range<usize> {
        cell * self.extents.chunk..((cell + 1) * self.extents.chunk).min(self.extents.time)
    }

    /// Where the state before a cell lies in `[batch, heads, cells, state]`.
    pub(super) fn cell_state_range(&self, cell: usize) -> Range<usize> {
        let index = self.state_index() * self.extents.cell_count() + cell;
        index * self.extents.state_len()..(index + 1) * self.extents.state_len()
    }

    /// Where the head's state lies in `[batch, heads, state]`.
    pub(super) fn state_range(&self) -> Range<usize> {
        self.state_index() * self.extents.state_len()..(self.state_index() + 1) * self.extents.state_len()
    }
}
