//! Logits at chosen tokens, and the losses of training.

use rung_engine::Ops;
use rung_theory::task::NO_TARGET;

use super::Model;
use super::hooks::{ResidualHook, SelectPositionsHook, select_rows};
use crate::error::ModelError;
use crate::mixer::TokenMixer;

/// The terms of the training loss.
#[derive(Clone, Debug)]
pub struct TrainingLoss<T> {
    /// The sum of cross-entropies at all tokens that have a target.
    pub sum: T,
    /// Number of tokens that have a target.
    pub count: usize,
    /// The sum of the mixers' auxiliary losses, each a mean over all tokens, if any mixer has one.
    pub auxiliary: Option<T>,
    /// The sum of cross-entropies of intermediate targets, if there are any.
    pub intermediate: Option<T>,
}

/// Target classes of the logits of the residual stream after a layer before the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntermediateTargets {
    /// The layer, from 0.
    pub layer: usize,
    /// One class for each token that has a target, in order.
    pub classes: Vec<usize>,
}

impl<M: TokenMixer> Model<M> {
    /// Logits at some tokens, `[positions, classes]`; positions are indices over all rows of the batch. They equal those of
    /// [`forward`](Self::forward) and [`logits`](Self::logits), with less work: after the last layer's mixers tokens are independent, unless
    /// the feed-forward network has a token shift, so only these tokens go through the last feed-forward network.
    ///
    /// # Errors
    /// As [`Model::forward`], or a position is out of range, or there are no positions.
    #[inline(never)]
    pub fn logits_at<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        positions: &[usize],
    ) -> Result<O::Tensor, ModelError> {
        self.logits_at_with_residuals(ops, tokens, batch, positions, |_| {})
    }

    /// As [`logits_at`](Self::logits_at); `on_residual` is called with the residual stream after the embedding and after every layer.
    fn logits_at_with_residuals<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        positions: &[usize],
        on_residual: impl FnMut(&O::Tensor),
    ) -> Result<O::Tensor, ModelError> {
        let count = tokens.len() / self.embedding.field_count();
        if let Some(position) = positions.iter().find(|position| **position >= count) {
            let expected = format!("less than {count}, the number of tokens");
            return Err(ModelError::InvalidSize {
                component: "logits",
                what: "position",
                found: *position as u64,
                expected,
            });
        }
        if positions.is_empty() {
            let expected = "at least 1".to_owned();
            return Err(ModelError::InvalidSize { component: "logits", what: "positions", found: 0, expected });
        }
        let last_layer = self.depth().checked_sub(1).filter(|last| !self.layers[*last].has_token_shift());
        let Some(last_layer) = last_layer else {
            let (residual, _) = self.run_layers(ops, tokens, batch, None, &mut ResidualHook(on_residual))?;
            return Ok(self.logits_from_residual(ops, &select_rows(ops, &residual, positions)));
        };
        let mut hook = SelectPositionsHook { residual_hook: ResidualHook(on_residual), last_layer, positions };
        let (residual, _) = self.run_layers(ops, tokens, batch, None, &mut hook)?;
        Ok(self.logits_from_residual(ops, &residual))
    }

    /// As [`loss`](Self::loss), with the mixers' auxiliary losses (see [`TokenMixer::auxiliary_loss`]), and with the cross-entropy of
    /// intermediate targets, whose logits are those of the residual stream after their layers.
    ///
    /// # Errors
    /// As [`Model::loss`].
    ///
    /// # Panics
    /// The number of intermediate targets is not that of targets, or one is out of range.
    #[inline(never)]
    pub fn training_loss<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
        intermediate: &[IntermediateTargets],
    ) -> Result<TrainingLoss<O::Tensor>, ModelError> {
        let target_positions: Vec<usize> =
            (0..).zip(targets).filter(|(_, target)| **target != NO_TARGET).map(|(position, _)| position).collect();
        let (mut level, mut auxiliary, mut intermediate_sum) = (0, None, None);
        let add = |sum: &mut Option<O::Tensor>, term: Option<O::Tensor>| {
            *sum = sum.take().into_iter().chain(term).reduce(|sum, term| ops.add(&sum, &term));
        };
        let (sum, count) = self.loss_with_residuals(ops, tokens, batch, targets, |x| {
            add(&mut auxiliary, self.layers.get(level).and_then(|layer| layer.auxiliary_loss(ops, x, self.placement)));
            for targets in intermediate.iter().filter(|targets| targets.layer + 1 == level) {
                let logits = self.logits_from_residual(ops, &select_rows(ops, x, &target_positions));
                add(&mut intermediate_sum, Some(ops.sum_all(&ops.cross_entropy(&logits, &targets.classes))));
            }
            level += 1;
        })?;
        Ok(TrainingLoss { sum, count, auxiliary, intermediate: intermediate_sum })
    }

    /// The sum of cross-entropies at all tokens that have a target ([`NO_TARGET`] marks those without), and their number.
    ///
    /// # Errors
    /// As [`Model::forward`], or a target is not a class.
    #[inline(never)]
    pub fn loss<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
    ) -> Result<(O::Tensor, usize), ModelError> {
        self.loss_with_residuals(ops, tokens, batch, targets, |_| {})
    }

    /// As [`loss`](Self::loss); `on_residual` is called with the residual stream after the embedding and after every layer.
    fn loss_with_residuals<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
        on_residual: impl FnMut(&O::Tensor),
    ) -> Result<(O::Tensor, usize), ModelError> {
        let rows = tokens.len() / self.embedding.field_count();
        if targets.len() != rows {
            let expected = format!("{rows}, one for each token");
            return Err(ModelError::InvalidSize {
                component: "loss",
                what: "targets",
                found: targets.len() as u64,
                expected,
            });
        }
        let indexed_targets = || targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET);
        if let Some((position, &found)) = indexed_targets().find(|(_, target)| **target as usize >= self.classes) {
            return Err(ModelError::TargetOutOfRange { position, found, classes: self.classes });
        }
        let (positions, classes): (Vec<usize>, Vec<usize>) =
            indexed_targets().map(|(position, &target)| (position, target as usize)).unzip();
        if positions.is_empty() {
            self.run_layers(ops, tokens, batch, None, &mut ResidualHook(on_residual))?;
            return Ok((ops.zeros(&[1]), 0));
        }
        let logits = self.logits_at_with_residuals(ops, tokens, batch, &positions, on_residual)?;
        Ok((ops.sum_all(&ops.cross_entropy(&logits, &classes)), positions.len()))
    }
}
