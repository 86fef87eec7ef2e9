//! Asking a model questions and counting right answers.

use std::collections::BTreeMap;

use rung_engine::{Native, Ops, Parameters};
use rung_nn::{Model, ModelError};
use rung_theory::task::NO_TARGET;

use super::accuracy::{Accuracy, rounded};
use super::source::{Batch, PromptPurpose, PromptSource};

/// What an evaluation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluationResult {
    /// Right answers in each group.
    pub accuracy: Accuracy,
    /// Mean cross-entropy of all questions, in nats.
    pub loss: f64,
    /// The same for each group.
    pub losses: BTreeMap<u16, f64>,
}

/// Prompts that are read at once. Fixed, because products of other shapes may round differently.
pub const ROWS: usize = 8;

/// Asks a model all questions of `prompts` prompts. The same numbers give the same prompts, however they are divided.
///
/// # Errors
/// The prompts do not fit the model: longer than its learned positions, say.
pub fn evaluate(
    model: &Model,
    weights: &Parameters<f32>,
    source: &mut PromptSource,
    numbers: (u64, PromptPurpose),
    prompts: usize,
) -> Result<EvaluationResult, ModelError> {
    let ops = Native::new();
    let ready = || {
        ops.bind_frozen(weights);
        &ops
    };
    evaluate_on(ready, model, source, numbers, prompts)
}

/// [`evaluate`] on any executor that has the model's weights. It is asked for before every few prompts, and may forget then
/// what it made for those before.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_on<'a, O: Ops<Scalar = f32> + 'a>(
    ready: impl Fn() -> &'a O,
    model: &Model,
    source: &mut PromptSource,
    (seed, purpose): (u64, PromptPurpose),
    prompts: usize,
) -> Result<EvaluationResult, ModelError> {
    let (mut batch, mut found, mut losses) = (Batch::default(), EvaluationResult::default(), 0.0);
    let mut questions = 0;
    for (number, start) in (0..prompts).step_by(ROWS).enumerate() {
        let rows = ROWS.min(prompts - start);
        source.fill(seed, purpose, number as u64, rows, &mut batch);
        let ops = ready();
        let asked: Vec<usize> = (0..batch.targets.len()).filter(|at| batch.targets[*at] != NO_TARGET).collect();
        if asked.is_empty() {
            continue;
        }
        let logits = ops.values(&model.scores_at(ops, &batch.tokens, rows, &asked)?);
        for (scores, at) in logits.chunks_exact(model.classes()).zip(&asked) {
            let target = batch.targets[*at] as usize;
            found.accuracy.entry(batch.groups[*at]).or_default().add(best(scores) == target);
            let loss = cross_entropy(scores, target);
            losses += loss;
            *found.losses.entry(batch.groups[*at]).or_default() += loss;
        }
        questions += asked.len();
    }
    for (group, loss) in &mut found.losses {
        *loss = rounded(*loss / found.accuracy[group].count as f64);
    }
    found.loss = rounded(losses / questions.max(1) as f64);
    Ok(found)
}

/// The first of the largest scores.
fn best(scores: &[f32]) -> usize {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
    }
    best
}

fn cross_entropy(scores: &[f32], target: usize) -> f64 {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from(score - most).exp()).sum();
    sum.ln() - f64::from(scores[target] - most)
}
