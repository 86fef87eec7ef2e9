//! What a checkpoint of another program carries from token to token, kept in few bits.
//!
//! Its layers are built by its family, not from a config of ours, so rounding cannot be built into them. Instead prompts are read token by token, and
//! keys, values and states are rounded after every token, evenly, each tensor over a range that holds the largest number that was seen in it on the way.

use std::collections::BTreeMap;

use rung_engine::{Native, Ops, Rounding, Scalar, Tensor};
use rung_nn::precision::rounded;
use rung_nn::{ModelError, ModelState, Network};
use rung_train::parallel;

use super::questions::{QuestionBatch, Questions, Score, merge_scores};

/// For every mixer and slot, the largest number that its state held.
pub type Ranges = Vec<Vec<f64>>;

/// Right answers and losses with states in so many bits, and the largest numbers of the states; with the machine's own if no ranges are given.
///
/// # Errors
/// The model cannot read the prompts.
pub fn measure<S: Scalar>(
    network: &Network<S>,
    questions: &Questions,
    rounding: Option<(u32, &Ranges)>,
) -> Result<(BTreeMap<u16, Score>, Ranges), ModelError> {
    let read = parallel::map(&questions.batches, |asked| read_stepwise(network, questions, asked, rounding));
    let (mut scores, mut ranges) = (BTreeMap::new(), Ranges::new());
    for one in read {
        let (more, held) = one?;
        merge_scores(&mut scores, &more);
        widen(&mut ranges, &held);
    }
    Ok((scores, ranges))
}

fn widen(ranges: &mut Ranges, held: &Ranges) {
    ranges.resize_with(ranges.len().max(held.len()), Vec::new);
    for (all, more) in ranges.iter_mut().zip(held) {
        all.resize(all.len().max(more.len()), 0.0);
        all.iter_mut().zip(more).for_each(|(most, one)| *most = most.max(*one));
    }
}

fn read_stepwise<S: Scalar>(
    network: &Network<S>,
    questions: &Questions,
    asked: &QuestionBatch,
    rounding: Option<(u32, &Ranges)>,
) -> Result<(BTreeMap<u16, Score>, Ranges), ModelError> {
    let (ops, model) = (network.executor(), &network.model);
    let (length, rows) = (asked.batch.length, asked.rows());
    let (mut state, mut ranges, mut columns) = (None, Ranges::new(), Vec::with_capacity(length));
    for time in 0..length {
        let tokens: Vec<u32> = (0..rows).map(|row| asked.batch.tokens[row * length + time]).collect();
        let before: Option<&ModelState<Tensor<S>>> = state.as_ref();
        let (hidden, mut next) = model.forward(&ops, &tokens, rows, before)?;
        columns.push(hidden);
        if rounding.is_none() && (time + 1 == length || time % 8 == 7) {
            widen(&mut ranges, &largest(&ops, &next));
        }
        if let Some((bits, ranges)) = rounding {
            round(&ops, &mut next, bits, ranges);
        }
        state = Some(next);
    }
    let positions = asked.positions();
    if positions.is_empty() {
        return Ok((BTreeMap::new(), ranges));
    }
    let hidden = ops.concat(&columns, 1);
    let flat = ops.gather_rows(&ops.reshape(&hidden, &[rows * length, model.width()]), &positions);
    let scores = questions.score_with(model.classes(), &ops, asked, &flat, |some| model.logits(&ops, some));
    Ok((scores, ranges))
}

fn largest<S: Scalar>(ops: &Native<S>, state: &ModelState<Tensor<S>>) -> Ranges {
    let most = |tensor: &Option<Tensor<S>>| {
        let values = tensor.as_ref().map_or_else(Vec::new, |tensor| ops.values(tensor));
        values.iter().map(|value| value.to_f64().abs()).fold(0.0, f64::max)
    };
    state.states.iter().map(|state| state.tensors.iter().map(most).collect()).collect()
}

fn round<S: Scalar>(ops: &Native<S>, state: &mut ModelState<Tensor<S>>, bits: u32, ranges: &Ranges) {
    for (state, ranges) in state.states.iter_mut().zip(ranges) {
        for (slot, range) in state.tensors.iter_mut().zip(ranges) {
            if let Some(tensor) = slot.as_ref().filter(|_| *range > 0.0) {
                *slot = Some(rounded(ops, tensor, Some(Rounding { bits, range: *range })));
            }
        }
    }
}
