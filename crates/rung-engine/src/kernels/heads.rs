//! What the kernels with a matrix state per head have in common: their sizes, where the rows of a head lie in the tensors, and how
//! they are called.
//!
//! The forward pass stores the state at every `chunk` tokens, the start of a *cell*. The backward pass runs from the last cell to
//! the first and computes the states of a cell again.

use crate::kernels::product::{Matrix, MatrixMut};
use crate::scalar::Scalar;
use std::ops::Range;

/// The sizes of the inputs.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) key_width: usize,
    pub(crate) value_width: usize,
    /// Tokens per cell; the state before each cell is stored.
    pub(crate) chunk: usize,
}

impl Extents {
    /// Cells of a sequence.
    pub(crate) fn cell_count(&self) -> usize {
        self.time.div_ceil(self.chunk)
    }

    /// Numbers in a state.
    pub(crate) fn state_len(&self) -> usize {
        self.key_width * self.value_width
    }

    /// Every head of every sequence.
    pub(crate) fn all_heads(self) -> impl Iterator<Item = Head> {
        let pairs = (0..self.batch).flat_map(move |sequence| (0..self.heads).map(move |index| (sequence, index)));
        pairs.map(move |(sequence, index)| Head { extents: self, sequence, index })
    }
}

/// What a forward pass computes, each overwritten.
pub(crate) struct Results<'a, S> {
    pub(crate) out: &'a mut [S],
    /// The states after the last token.
    pub(crate) last_states: &'a mut [S],
    /// The states before each cell.
    pub(crate) cell_states: &'a mut [S],
    /// What else the backward pass reads of every token, in rows of value channels: see [`StateKernel::saves_rows`].
    pub(crate) saved_rows: &'a mut [S],
}

/// What a backward pass reads besides the inputs.
#[derive(Clone, Copy)]
pub(crate) struct BackwardInputs<'a, S> {
    pub(crate) cell_states: &'a [S],
    pub(crate) saved_rows: &'a [S],
    pub(crate) grad_out: &'a [S],
    /// Empty if nothing used the last states.
    pub(crate) grad_last_states: &'a [S],
}

/// A kernel of `COUNT` inputs, the last of which is the initial state. Absent inputs and their gradients are empty.
pub(crate) trait StateKernel<const COUNT: usize>: Copy {
    fn extents(&self) -> Extents;

    /// Whether the forward pass saves a row of value channels for every token.
    fn saves_rows(&self) -> bool;

    /// Lengths of the scratch buffers of the forward and of the backward pass.
    fn scratch_lens(&self) -> [usize; 2];

    /// FLOPs that a token takes for each number of the state in the step form, without the decay.
    fn step_flops(&self) -> usize;

    /// The forward pass.
    fn forward<S: Scalar>(self, inputs: [&[S]; COUNT], scratch: &mut [S], results: Results<'_, S>);

    /// Computes the gradients of all inputs. They are zeros at the start.
    fn backward<S: Scalar>(
        self,
        inputs: [&[S]; COUNT],
        backward_inputs: BackwardInputs<'_, S>,
        scratch: &mut [S],
        gradients: [&mut [S]; COUNT],
    );
}

/// Declares `PerInput<T>`, one `T` for each input of a kernel, with the types of its inputs and gradients.
macro_rules! per_input {
    ($($name:ident),* $(,)?) => {
        /// One `T` for each input of the kernel.
        #[derive(Clone, Copy)]
        pub(crate) struct PerInput<T> {
            $(pub(crate) $name: T,)*
        }

        impl<T> From<[T; [$(stringify!($name)),*].len()]> for PerInput<T> {
            fn from([$($name),*]: [T; [$(stringify!($name)),*].len()]) -> Self {
                Self { $($name),* }
            }
        }

        /// The tensors that both passes read; an absent one is empty.
        pub(crate) type Inputs<'a, S> = PerInput<&'a [S]>;

        /// The gradients that the backward pass computes; an absent one is empty.
        pub(crate) type Gradients<'a, S> = PerInput<&'a mut [S]>;
    };
}
pub(crate) use per_input;

/// One head of one sequence, which finds its rows in the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) extents: Extents,
    pub(crate) sequence: usize,
    pub(crate) index: usize,
}

impl Head {
    /// Index of the head in `[batch, heads]`.
    pub(crate) fn state_index(&self) -> usize {
        self.sequence * self.extents.heads + self.index
    }

    /// Index of a token's row in `[batch, time, heads]`.
    pub(crate) fn token_row(&self, time: usize) -> usize {
        (self.sequence * self.extents.time + time) * self.extents.heads + self.index
    }

    /// A token's row in `[batch, time, key heads, key width]`.
    pub(crate) fn key_range(&self, time: usize) -> Range<usize> {
        let extents = &self.extents;
        let head = self.index * extents.key_heads / extents.heads;
        let start = ((self.sequence * extents.time + time) * extents.key_heads + head) * extents.key_width;
        start..start + extents.key_width
    }

    /// A token's row in `[batch, time, heads, width]`.
    pub(crate) fn row_range(&self, time: usize, width: usize) -> Range<usize> {
        self.token_row(time) * width..(self.token_row(time) + 1) * width
    }

    /// A token's row in `[batch, time, heads, value width]`.
    pub(crate) fn value_range(&self, time: usize) -> Range<usize> {
        self.row_range(time, self.extents.value_width)
    }

    /// The token after this one; the last token if this is it.
    pub(crate) fn next_token(&self, time: usize) -> usize {
        (time + 1).min(self.extents.time - 1)
    }

    /// The rows of a range of tokens in `[batch, time, heads, value width]`.
    pub(crate) fn value_matrix<'a, S>(&self, x: &'a [S], tokens: &Range<usize>) -> Matrix<'a, S> {
        let width = self.extents.value_width;
        Matrix::new(&x[self.token_row(tokens.start) * width..], tokens.len(), width, self.extents.heads * width)
    }

    pub(crate) fn value_matrix_mut<'a, S>(&self, x: &'a mut [S], tokens: &Range<usize>) -> MatrixMut<'a, S> {
        let width = self.extents.value_width;
        MatrixMut::new(&mut x[self.token_row(tokens.start) * width..], tokens.len(), width, self.extents.heads * width)
    }

    /// The rows of a range of tokens in `[batch, time, key heads, key width]`.
    pub(crate) fn key_matrix<'a, S>(&self, x: &'a [S], tokens: &Range<usize>) -> Matrix<'a, S> {
        let Extents { key_heads, key_width, .. } = self.extents;
        Matrix::new(&x[self.key_range(tokens.start).start..], tokens.len(), key_width, key_heads * key_width)
    }

    pub(crate) fn key_matrix_mut<'a, S>(&self, x: &'a mut [S], tokens: &Range<usize>) -> MatrixMut<'a, S> {
        let Extents { key_heads, key_width, .. } = self.extents;
        MatrixMut::new(&mut x[self.key_range(tokens.start).start..], tokens.len(), key_width, key_heads * key_width)
    }

    /// The tokens of a cell.
    pub(crate) fn cell_tokens(&self, cell: usize) -> Range<usize> {
        cell * self.extents.chunk..((cell + 1) * self.extents.chunk).min(self.extents.time)
    }

    /// Where the state before a cell lies in `[batch, heads, cells, state]`.
    pub(crate) fn cell_state_range(&self, cell: usize) -> Range<usize> {
        let index = self.state_index() * self.extents.cell_count() + cell;
        index * self.extents.state_len()..(index + 1) * self.extents.state_len()
    }

    /// Where the head's state lies in `[batch, heads, state]`.
    pub(crate) fn state_range(&self) -> Range<usize> {
        self.state_index() * self.extents.state_len()..(self.state_index() + 1) * self.extents.state_len()
    }
}
