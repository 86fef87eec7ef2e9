//! Accuracy and loss of a model on newly drawn prompts.

use std::collections::BTreeMap;

use rung_engine::{Native, Ops, Parameters};
use rung_nn::{Model, ModelError};
use rung_theory::task::NO_TARGET;

use super::accuracy::{AccuracyByGroup, round_to_6_decimals};
use super::source::{Batch, PromptPurpose, PromptSource};

/// The result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluationResult {
    /// Correct answers in each metric group.
    pub accuracy: AccuracyByGroup,
    /// Mean cross-entropy of all questions, in nats.
    pub loss: f64,
    /// Mean cross-entropy of each metric group, in nats.
    pub losses: BTreeMap<u16, f64>,
}

/// Prompts per batch. Fixed, because matrix products of other shapes may round differently.
pub const BATCH_SIZE: usize = 8;

/// Evaluates a model on all questions of `prompt_count` prompts, which are drawn by `(seed, purpose)`.
///
/// # Errors
/// The prompts do not fit the model, for example because they are longer than its learned positions.
pub fn evaluate(
    model: &Model,
    weights: &Parameters<f32>,
    source: &mut PromptSource,
    (seed, purpose): (u64, PromptPurpose),
    prompt_count: usize,
) -> Result<EvaluationResult, ModelError> {
    let ops = Native::new();
    let prepare_ops = || {
        ops.bind_frozen(weights);
        &ops
    };
    evaluate_on(prepare_ops, model, source, (seed, purpose), prompt_count)
}

/// [`evaluate`] on any executor that has the model's weights. `prepare_ops` is called before every batch and may free the tensors of
/// the previous batch.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_on<'a, O: Ops<Scalar = f32> + 'a>(
    prepare_ops: impl Fn() -> &'a O,
    model: &Model,
    source: &mut PromptSource,
    (seed, purpose): (u64, PromptPurpose),
    prompt_count: usize,
) -> Result<EvaluationResult, ModelError> {
    let (mut batch, mut result, mut loss_sum) = (Batch::default(), EvaluationResult::default(), 0.0);
    let mut question_count = 0;
    for (batch_index, start) in (0..prompt_count).step_by(BATCH_SIZE).enumerate() {
        let rows = BATCH_SIZE.min(prompt_count - start);
        source.fill(seed, purpose, batch_index as u64, rows, &mut batch);
        let ops = prepare_ops();
        let positions: Vec<usize> =
            (0..batch.targets.len()).filter(|position| batch.targets[*position] != NO_TARGET).collect();
        if positions.is_empty() {
            continue;
        }
        let logits = ops.values(&model.logits_at(ops, &batch.tokens, rows, &positions)?);
        for (logits, position) in logits.chunks_exact(model.classes()).zip(&positions) {
            let (target, group) = (batch.targets[*position] as usize, batch.groups[*position]);
            result.accuracy.entry(group).or_default().add(argmax(logits) == target);
            let loss = cross_entropy(logits, target);
            loss_sum += loss;
            *result.losses.entry(group).or_default() += loss;
        }
        question_count += positions.len();
    }
    for (group, loss) in &mut result.losses {
        *loss = round_to_6_decimals(*loss / result.accuracy[group].count as f64);
    }
    result.loss = round_to_6_decimals(loss_sum / question_count.max(1) as f64);
    Ok(result)
}

/// The class of the largest logit; the first of equal ones.
fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = class;
        }
    }
    best
}

fn cross_entropy(logits: &[f32], target: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - max).exp()).sum();
    sum.ln() - f64::from(logits[target] - max)
}
