//! Scores at chosen tokens, and the losses of training.

use rung_engine::Ops;
use rung_theory::task::NO_TARGET;

use super::Model;
use super::hooks::{StreamHook, TargetStreamHook, rows_of};
use crate::error::ModelError;
use crate::mixer::TokenMixer;

/// What training makes small.
#[derive(Clone, Debug)]
pub struct TrainingLoss<T> {
    /// The sum of cross-entropies at all tokens that have a target.
    pub sum: T,
    /// How many there are.
    pub count: usize,
    /// The mean over all tokens of what mixers ask for, if any does.
    pub own: Option<T>,
    /// The sum of cross-entropies of intermediate answers, if any were given.
    pub intermediate: Option<T>,
}

/// Classes that the read-out should find in the stream after a layer, before the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntermediateTargets {
    /// The layer, from 0.
    pub layer: usize,
    /// One for each token that has a target, in order.
    pub classes: Vec<usize>,
}

impl<M: TokenMixer> Model<M> {
    /// Scores of all classes at some tokens, counted through all rows of the batch: `[positions, classes]`. It is what
    /// [`forward`](Self::forward) and [`logits`](Self::logits) give there, with less work: beyond the last layer's mixers no
    /// token looks at another, unless the channel mixer has a shift, so only these are taken through its channel mixer.
    ///
    /// # Errors
    /// As [`Model::forward`], or there is no such token, or none is named.
    #[inline(never)]
    pub fn scores_at<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        positions: &[usize],
    ) -> Result<O::Tensor, ModelError> {
        self.scores_beside(ops, tokens, batch, positions, |_| {})
    }

    /// The scores; `each` sees the stream as embedded and after every layer.
    fn scores_beside<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        positions: &[usize],
        each: impl FnMut(&O::Tensor),
    ) -> Result<O::Tensor, ModelError> {
        let count = tokens.len() / self.embedding.fields();
        if let Some(position) = positions.iter().find(|position| **position >= count) {
            let expected = format!("less than {count}, the number of tokens");
            return Err(ModelError::Shape { place: "scores", what: "position", found: *position as u64, expected });
        }
        if positions.is_empty() {
            let expected = "at least 1".to_owned();
            return Err(ModelError::Shape { place: "scores", what: "positions", found: 0, expected });
        }
        let last = self.depth().checked_sub(1).filter(|last| !self.layers[*last].is_channel_shifted());
        let Some(last) = last else {
            let (stream, _) = self.run_layers(ops, tokens, batch, None, &mut StreamHook(each))?;
            return Ok(self.read_out(ops, &rows_of(ops, &stream, positions)));
        };
        let mut asked = TargetStreamHook { each: StreamHook(each), last, positions };
        let (stream, _) = self.run_layers(ops, tokens, batch, None, &mut asked)?;
        Ok(self.read_out(ops, &stream))
    }

    /// As [`loss`](Self::loss), with what mixers ask for beside it (see [`TokenMixer::own_loss`]), and with the cross-entropy of
    /// intermediate answers, read out of the stream after the layers that are named.
    ///
    /// # Errors
    /// As [`Model::loss`].
    ///
    /// # Panics
    /// Intermediate answers are not as many as targets, or no classes.
    #[inline(never)]
    pub fn training_loss<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
        intermediate: &[IntermediateTargets],
    ) -> Result<TrainingLoss<O::Tensor>, ModelError> {
        let asked: Vec<usize> =
            (0..).zip(targets).filter(|(_, target)| **target != NO_TARGET).map(|(at, _)| at).collect();
        let (mut depth, mut own, mut partial) = (0, None, None);
        let more = |sum: &mut Option<O::Tensor>, term: Option<O::Tensor>| {
            *sum = sum.take().into_iter().chain(term).reduce(|sum, more| ops.add(&sum, &more));
        };
        let (sum, count) = self.loss_beside(ops, tokens, batch, targets, |x| {
            more(&mut own, self.layers.get(depth).and_then(|layer| layer.own_loss(ops, x, self.placement)));
            for part in intermediate.iter().filter(|part| part.layer + 1 == depth) {
                let scores = self.read_out(ops, &rows_of(ops, x, &asked));
                more(&mut partial, Some(ops.sum_all(&ops.cross_entropy(&scores, &part.classes))));
            }
            depth += 1;
        })?;
        Ok(TrainingLoss { sum, count, own, intermediate: partial })
    }

    /// The sum of cross-entropies at all tokens that have a target ([`NO_TARGET`] marks those that have none), and how many
    /// there are.
    ///
    /// # Errors
    /// As [`Model::forward`], or a target is no class.
    #[inline(never)]
    pub fn loss<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
    ) -> Result<(O::Tensor, usize), ModelError> {
        self.loss_beside(ops, tokens, batch, targets, |_| {})
    }

    /// The loss; `each` sees the stream as embedded and after every layer.
    fn loss_beside<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
        each: impl FnMut(&O::Tensor),
    ) -> Result<(O::Tensor, usize), ModelError> {
        let rows = tokens.len() / self.embedding.fields();
        if targets.len() != rows {
            let expected = format!("{rows}, one for each token");
            return Err(ModelError::Shape { place: "loss", what: "targets", found: targets.len() as u64, expected });
        }
        let asked = || targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET);
        if let Some((position, &found)) = asked().find(|(_, target)| **target as usize >= self.classes) {
            return Err(ModelError::Target { position, found, classes: self.classes });
        }
        let (positions, classes): (Vec<usize>, Vec<usize>) =
            asked().map(|(position, &target)| (position, target as usize)).unzip();
        if positions.is_empty() {
            self.run_layers(ops, tokens, batch, None, &mut StreamHook(each))?;
            return Ok((ops.zeros(&[1]), 0));
        }
        let scores = self.scores_beside(ops, tokens, batch, &positions, each)?;
        Ok((ops.sum_all(&ops.cross_entropy(&scores, &classes)), positions.len()))
    }
}
