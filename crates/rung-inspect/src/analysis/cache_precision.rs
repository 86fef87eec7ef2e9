//! Evaluates an external checkpoint with its KV cache and recurrent states rounded to few bits.
//!
//! The layers of such a checkpoint are built by its family and have no option for rounding. So prompts are read token by token, and after
//! every token keys, values and states are rounded to evenly spaced numbers. The range of each tensor is the largest absolute value that an
//! unrounded pass had in it.

use std::collections::BTreeMap;

use rung_engine::{Native, Ops, Rounding, Scalar, Tensor};
use rung_nn::precision::apply_rounding;
use rung_nn::{ModelError, ModelState, Network};

use super::questions::{GroupScore, QuestionBatch, Questions, merge_scores};

/// For every mixer and every tensor of its state, the largest absolute value.
pub type Ranges = Vec<Vec<f64>>;

/// Correct answers and losses with states rounded to some bits over given ranges. Without `rounding` states are not rounded, and their ranges
/// are returned.
///
/// # Errors
/// The prompts do not fit the model.
pub fn measure<S: Scalar>(
    network: &Network<S>,
    questions: &Questions,
    rounding: Option<(u32, &Ranges)>,
) -> Result<(BTreeMap<u16, GroupScore>, Ranges), ModelError> {
    let results = questions.map_batches(|batch| measure_batch(network, questions, batch, rounding));
    let (mut scores, mut ranges) = (BTreeMap::new(), Ranges::new());
    for result in results {
        let (batch_scores, batch_ranges) = result?;
        merge_scores(&mut scores, &batch_scores);
        widen_ranges(&mut ranges, &batch_ranges);
    }
    Ok((scores, ranges))
}

/// Raises every range to the one of `other` where that is larger.
fn widen_ranges(ranges: &mut Ranges, other: &Ranges) {
    ranges.resize_with(ranges.len().max(other.len()), Vec::new);
    for (ranges, other) in ranges.iter_mut().zip(other) {
        ranges.resize(ranges.len().max(other.len()), 0.0);
        ranges.iter_mut().zip(other).for_each(|(range, other)| *range = range.max(*other));
    }
}

/// Reads the prompts of a batch token by token.
fn measure_batch<S: Scalar>(
    network: &Network<S>,
    questions: &Questions,
    question_batch: &QuestionBatch,
    rounding: Option<(u32, &Ranges)>,
) -> Result<(BTreeMap<u16, GroupScore>, Ranges), ModelError> {
    let (ops, model) = (network.executor(), &network.model);
    let (length, rows) = (question_batch.batch.tokens_per_row, question_batch.rows());
    let (mut state, mut ranges, mut columns) = (None, Ranges::new(), Vec::with_capacity(length));
    for position in 0..length {
        let tokens: Vec<u32> = (0..rows).map(|row| question_batch.batch.tokens[row * length + position]).collect();
        let past: Option<&ModelState<Tensor<S>>> = state.as_ref();
        let (hidden, mut next) = model.forward(&ops, &tokens, rows, past)?;
        columns.push(hidden);
        if rounding.is_none() && (position + 1 == length || position % 8 == 7) {
            widen_ranges(&mut ranges, &ranges_of(&ops, &next));
        }
        if let Some((bits, ranges)) = rounding {
            round_state(&ops, &mut next, bits, ranges);
        }
        state = Some(next);
    }
    let positions = question_batch.positions();
    if positions.is_empty() {
        return Ok((BTreeMap::new(), ranges));
    }
    let hidden = ops.concat(&columns, 1);
    let flat = ops.gather_rows(&ops.reshape(&hidden, &[rows * length, model.width()]), &positions);
    let scores = questions.score_with(model.classes(), &ops, question_batch, &flat, |rows| model.logits(&ops, rows));
    Ok((scores, ranges))
}

/// The largest absolute value of every tensor of a state.
fn ranges_of<S: Scalar>(ops: &Native<S>, state: &ModelState<Tensor<S>>) -> Ranges {
    let range = |tensor: &Option<Tensor<S>>| {
        let values = tensor.as_ref().map_or_else(Vec::new, |tensor| ops.values(tensor));
        values.iter().map(|value| value.to_f64().abs()).fold(0.0, f64::max)
    };
    state.states.iter().map(|state| state.tensors.iter().map(range).collect()).collect()
}

fn round_state<S: Scalar>(ops: &Native<S>, state: &mut ModelState<Tensor<S>>, bits: u32, ranges: &Ranges) {
    for (state, ranges) in state.states.iter_mut().zip(ranges) {
        for (tensor, range) in state.tensors.iter_mut().zip(ranges) {
            if let Some(unrounded) = tensor.as_ref().filter(|_| *range > 0.0) {
                *tensor = Some(apply_rounding(ops, unrounded, Some(Rounding { bits, range: *range })));
            }
        }
    }
}
