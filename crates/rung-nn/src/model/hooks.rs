//! Hooks that observe or change a forward pass.
//!
//! An analysis runs a stack without some mixers, without residual connections, or with a replaced residual stream. The methods of
//! [`Hooks`] are called in a forward pass ([`Model::forward_with_hooks`](super::Model::forward_with_hooks)) and may replace tensors:
//!
//! ```text
//! embed -> residual(0) -> [ mixers -> mixer_output(layer, mixer) -> sum (+ x if adds_residual) -> after_mixers(layer)
//!                         -> feed-forward network if runs_feed_forward ] -> residual(1) -> ..
//! ```
//!
//! By default they change nothing, and the result is that of the ordinary pass, bit for bit.

use rung_engine::Ops;

/// The index of a mixer in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MixerIndex {
    /// The layer, from 0.
    pub layer: usize,
    /// The mixer's index in its layer, from 0.
    pub mixer: usize,
}

/// Callbacks of a forward pass.
pub trait Hooks<O: Ops> {
    /// Takes the residual stream after the embedding (level 0) and after every layer (from 1), and returns its replacement.
    fn residual(&mut self, ops: &O, level: usize, x: O::Tensor) -> O::Tensor {
        let _ = (ops, level);
        x
    }

    /// Takes the input and output of a mixer, and returns the replacement of the output.
    fn mixer_output(&mut self, ops: &O, index: MixerIndex, input: &O::Tensor, output: O::Tensor) -> O::Tensor {
        let _ = (ops, index, input);
        output
    }

    /// Takes the residual stream between a layer's mixers and its feed-forward network, and returns its replacement. In the last layer the
    /// replacement may have fewer rows, because no later operation mixes tokens.
    fn after_mixers(&mut self, ops: &O, layer: usize, x: O::Tensor) -> O::Tensor {
        let _ = (ops, layer);
        x
    }

    /// Whether the outputs of mixers are added to the residual stream; otherwise they replace it.
    fn adds_residual(&self) -> bool {
        true
    }

    /// Whether feed-forward networks run.
    fn runs_feed_forward(&self) -> bool {
        true
    }
}

/// Hooks that change nothing.
pub struct NoHooks;

impl<O: Ops> Hooks<O> for NoHooks {}

/// Calls a function with the residual stream after the embedding and after every layer, and changes nothing.
pub(super) struct ResidualHook<F>(pub F);

impl<O: Ops, F: FnMut(&O::Tensor)> Hooks<O> for ResidualHook<F> {
    fn residual(&mut self, _: &O, _: usize, x: O::Tensor) -> O::Tensor {
        (self.0)(&x);
        x
    }
}

/// As [`ResidualHook`], and drops all tokens but `positions` after the last layer's mixers.
pub(super) struct SelectPositionsHook<'a, F> {
    /// Called with every residual stream.
    pub residual_hook: ResidualHook<F>,
    /// Index of the last layer.
    pub last_layer: usize,
    /// Indices of the remaining tokens, over all rows of the batch.
    pub positions: &'a [usize],
}

impl<O: Ops, F: FnMut(&O::Tensor)> Hooks<O> for SelectPositionsHook<'_, F> {
    fn residual(&mut self, ops: &O, level: usize, x: O::Tensor) -> O::Tensor {
        self.residual_hook.residual(ops, level, x)
    }

    fn after_mixers(&mut self, ops: &O, layer: usize, x: O::Tensor) -> O::Tensor {
        if layer == self.last_layer { select_rows(ops, &x, self.positions) } else { x }
    }
}

/// The rows of a residual stream at these positions, `[positions, width]`.
pub(super) fn select_rows<O: Ops>(ops: &O, x: &O::Tensor, positions: &[usize]) -> O::Tensor {
    let shape = ops.shape(x);
    ops.gather_rows(&ops.reshape(x, &[shape.rows(), shape.width()]), positions)
}
