//! Forward passes that somebody looks into, or changes, while they run.
//!
//! An analysis asks what a stack does without some mixers, without skips, or with another stream put in its place. [`Hooks`]
//! stands beside the ordinary forward pass ([`Model::forward_with_hooks`](super::Model::forward_with_hooks)) and may look at, or replace, what passes:
//!
//! ```text
//! embed -> stream(0) -> [ mixers -> mixed(layer, mixer) -> sum -> skip? -> between(layer) -> channel? ] -> stream(1) -> ..
//! ```
//!
//! By default it does nothing, and the pass is the ordinary one, bit for bit.

use rung_engine::Ops;

/// A mixer's place in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MixerIndex {
    /// The layer, from 0.
    pub layer: usize,
    /// Which of the mixers side by side, from 0.
    pub mixer: usize,
}

/// Who stands beside a forward pass.
pub trait Hooks<O: Ops> {
    /// The stream as embedded (level 0) and after every layer (from 1): what it returns goes on.
    fn stream(&mut self, ops: &O, level: usize, x: O::Tensor) -> O::Tensor {
        let _ = (ops, level);
        x
    }

    /// What a mixer made of its input: what it returns is added to the stream.
    fn mixed(&mut self, ops: &O, place: MixerIndex, input: &O::Tensor, output: O::Tensor) -> O::Tensor {
        let _ = (ops, place, input);
        output
    }

    /// The stream between a layer's mixers and its channel mixer. In the last layer it may come back as fewer rows, since
    /// nothing after it looks at other tokens.
    fn between(&mut self, ops: &O, layer: usize, x: O::Tensor) -> O::Tensor {
        let _ = (ops, layer);
        x
    }

    /// Whether the stream goes past the mixers as well as through them.
    fn skips(&self) -> bool {
        true
    }

    /// Whether there are channel mixers, with the skips around them.
    fn channels(&self) -> bool {
        true
    }
}

/// Changes nothing.
pub struct NoHooks;

impl<O: Ops> Hooks<O> for NoHooks {}

/// Sees every stream and changes nothing.
pub(super) struct StreamHook<F>(pub F);

impl<O: Ops, F: FnMut(&O::Tensor)> Hooks<O> for StreamHook<F> {
    fn stream(&mut self, _: &O, _: usize, x: O::Tensor) -> O::Tensor {
        (self.0)(&x);
        x
    }
}

/// As [`StreamHook`], and lets only the tokens that are asked about pass beyond the last layer's mixers.
pub(super) struct TargetStreamHook<'a, F> {
    /// Sees every stream.
    pub each: StreamHook<F>,
    /// The last layer.
    pub last: usize,
    /// Which tokens, counted through all rows of the batch.
    pub positions: &'a [usize],
}

impl<O: Ops, F: FnMut(&O::Tensor)> Hooks<O> for TargetStreamHook<'_, F> {
    fn stream(&mut self, ops: &O, level: usize, x: O::Tensor) -> O::Tensor {
        self.each.stream(ops, level, x)
    }

    fn between(&mut self, ops: &O, layer: usize, x: O::Tensor) -> O::Tensor {
        if layer == self.last { rows_of(ops, &x, self.positions) } else { x }
    }
}

/// Rows of a stream, `[positions, width]`.
pub(super) fn rows_of<O: Ops>(ops: &O, x: &O::Tensor, positions: &[usize]) -> O::Tensor {
    let shape = ops.shape(x);
    ops.gather_rows(&ops.reshape(x, &[shape.rows(), shape.width()]), positions)
}
