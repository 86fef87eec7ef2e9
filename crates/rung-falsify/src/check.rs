//! The checker: recomputes a witness (a counterexample), independently of the search that found it.
//!
//! Searches run thousands of prompts in batches, token by token, from shared states. The checker runs each prompt alone, in the parallel
//! form of every layer, asks the oracle for the answers, and computes the complete witness again; a file that differs from it anywhere is
//! rejected. Users see the computed witness, never the file. Checker and searches share only the model. Searches build their witnesses
//! here too ([`build_witness`]), so a candidate that collides only in the rounding of the batched computation is dropped.
//!
//! The rounding of floating-point sums depends on the processor's instructions, so a witness of one machine may be rejected on another. The
//! same search on that machine finds a witness that holds there.

use std::path::PathBuf;

use serde::Serialize;

use super::FalsifyError;
use super::target::{BatchOutputs, Origin, RequestedPrecision, Runner, StatePrecision, TargetModel, argmax};
use super::witness::{FORMAT, ModelDescription, Witness};
use rung_train::difference::first_difference;

/// Why a witness is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct WitnessRejection {
    /// The field of the file, such as `model.name` or `scores[1][3]`.
    pub field: String,
    /// What was found and what was expected.
    pub reason: String,
}

pub(super) fn reject<T>(field: impl Into<String>, reason: impl Into<String>) -> Result<T, WitnessRejection> {
    Err(WitnessRejection { field: field.into(), reason: reason.into() })
}

/// The model's outputs on one prompt.
struct PromptOutputs {
    /// The right answer.
    answer: u32,
    /// The model's answer.
    output: u32,
    logits: Vec<f32>,
    batch: BatchOutputs,
}

/// Runs one prompt.
fn run_prompt(
    target: &TargetModel,
    input: &[u32],
    question: usize,
) -> Result<Result<PromptOutputs, WitnessRejection>, FalsifyError> {
    let targets = match target.task().oracle(input) {
        Ok(targets) => targets,
        Err(error) => return Ok(reject("inputs", error.to_string())),
    };
    let Some(answer) = targets.get(question).copied().filter(|label| *label != rung_theory::task::NO_TARGET) else {
        return Ok(reject("question", format!("token {question} has no question")));
    };
    let runner = Runner::new(target);
    let batch = runner.outputs(input, 1, None)?;
    let logits = batch.logits(0, question).to_vec();
    if logits.iter().any(|logit| !logit.is_finite()) {
        return Ok(reject("scores", "the model's logits are not finite"));
    }
    Ok(Ok(PromptOutputs { answer, output: argmax(&logits), logits, batch }))
}

/// The positions from `border` on whose residual streams are equal after every layer.
fn positions_with_equal_residuals(first: &BatchOutputs, second: &BatchOutputs, border: usize) -> Vec<usize> {
    let is_equal = |position: &usize| {
        (0..first.residuals.len())
            .all(|layer| first.residual(layer, 0, *position) == second.residual(layer, 0, *position))
    };
    (border..first.sequence_length).filter(is_equal).collect()
}

/// The first position at or after `border` before which two prompts have the same state, and that state; `None` if they have different
/// states before the question.
fn shared_state(
    target: &TargetModel,
    inputs: [&[u32]; 2],
    border: usize,
    question: usize,
) -> Result<Option<(usize, Vec<f32>)>, FalsifyError> {
    if !target.has_only_bounded_state() || question == 0 || border > question {
        return Ok(None);
    }
    let (runner, ids_per_token) = (Runner::new(target), target.ids_per_token());
    let state = |input: &[u32], border: usize| -> Result<Vec<f32>, FalsifyError> {
        Ok(runner.state_values(&runner.state(&input[..border * ids_per_token], 1, None)?))
    };
    let shared_state_at = |border: usize| -> Result<Option<Vec<f32>>, FalsifyError> {
        let first = state(inputs[0], border)?;
        Ok((first == state(inputs[1], border)?).then_some(first))
    };
    let (mut low, mut high) = (border.max(1), question);
    let Some(mut shared_state) = shared_state_at(high)? else { return Ok(None) };
    // Binary search: after the border the tokens are the same, so equal states stay equal.
    while low < high {
        let midpoint = usize::midpoint(low, high);
        match shared_state_at(midpoint)? {
            Some(state) => (high, shared_state) = (midpoint, state),
            None => low = midpoint + 1,
        }
    }
    Ok(Some((high, shared_state)))
}

/// The first position from which two prompts are the same.
pub(super) fn border_of(first: &[u32], second: &[u32], ids_per_token: usize) -> usize {
    let equal_ids = first.iter().rev().zip(second.iter().rev()).take_while(|(a, b)| a == b).count();
    (first.len().max(second.len()) - equal_ids).div_ceil(ids_per_token)
}

/// Runs one or two prompts and builds the witness, if they show a failure.
///
/// # Errors
/// The model cannot run on the tokens.
pub fn build_witness(
    target: &TargetModel,
    inputs: &[Vec<u32>],
    question: usize,
) -> Result<Result<Witness, WitnessRejection>, FalsifyError> {
    if !(1..=2).contains(&inputs.len()) {
        return Ok(reject("inputs", format!("found {} prompts, expected one or two", inputs.len())));
    }
    let mut outputs = Vec::new();
    for input in inputs {
        match run_prompt(target, input, question)? {
            Ok(prompt_outputs) => outputs.push(prompt_outputs),
            Err(rejection) => return Ok(Err(rejection)),
        }
    }
    let (mut border, mut state) = (None, None);
    if let [first, second] = inputs {
        let equal_from = border_of(first, second, target.ids_per_token());
        let shared = shared_state(target, [first, second], equal_from, question)?;
        border = Some(shared.as_ref().map_or(equal_from, |(border, _)| *border));
        state = shared.map(|(_, state)| state);
    }
    let equal_positions = match (&outputs[..], border) {
        ([first, second], Some(border)) => positions_with_equal_residuals(&first.batch, &second.batch, border),
        _ => Vec::new(),
    };
    let witness = Witness {
        format: FORMAT,
        model: describe_model(target),
        task: target.task().spec(),
        inputs: inputs.to_vec(),
        question,
        answers: outputs.iter().map(|prompt| prompt.answer).collect(),
        outputs: outputs.iter().map(|prompt| prompt.output).collect(),
        logits: outputs.iter().map(|prompt| prompt.logits.clone()).collect(),
        border,
        state,
        equal_positions,
        decomposition: None,
        digest: String::new(),
    };
    Ok(check_failure(&witness).map(|()| witness.with_digest()))
}

fn describe_model(target: &TargetModel) -> ModelDescription {
    ModelDescription {
        name: target.network.name.clone(),
        origin: target.origin.clone(),
        precision: target.precision,
        fingerprint: target.fingerprint.clone(),
    }
}

/// Rejects outputs that are not a failure.
fn check_failure(witness: &Witness) -> Result<(), WitnessRejection> {
    let Witness { inputs, answers, outputs, question, equal_positions, .. } = witness;
    match (&inputs[..], &answers[..], &outputs[..]) {
        ([_], [answer], [output]) if answer == output => {
            reject("outputs", format!("the model's answer {output} is right"))
        }
        ([_], [_], [_]) => Ok(()),
        ([first, second], [first_answer, second_answer], [first_output, second_output]) => {
            if first.len() != second.len() || first == second {
                return reject("inputs", "two different prompts of one length are expected");
            }
            if first_answer == second_answer {
                return reject("answers", format!("both are {first_answer}, where they should differ"));
            }
            if first_output != second_output || witness.logits.first() != witness.logits.get(1) {
                return reject("scores", "the model's logits on the two prompts differ");
            }
            if !equal_positions.contains(question) {
                return reject("blind", "the residual streams at the question differ");
            }
            Ok(())
        }
        _ => reject("inputs", "one or two prompts are expected, each with an answer and an output"),
    }
}

/// Opens the model of a witness, from `folder` if given, otherwise from the witness's origin.
///
/// # Errors
/// The model cannot be opened.
pub fn open(witness: &Witness, folder: Option<PathBuf>) -> Result<TargetModel, FalsifyError> {
    let origin = folder.map_or_else(|| witness.model.origin.clone(), Origin::Folder);
    TargetModel::open(
        origin,
        Some(&witness.task),
        witness.model.precision.map_or(RequestedPrecision::AsTrained, RequestedPrecision::Exactly),
    )
}

/// Runs the model again on the witness's prompts and returns the computed witness, if it is equal to the given one.
///
/// # Errors
/// The model cannot run on the tokens.
pub fn check(witness: &Witness, target: &TargetModel) -> Result<Result<Witness, WitnessRejection>, FalsifyError> {
    if let Err(rejection) = check_model(witness, target) {
        return Ok(Err(rejection));
    }
    let mut computed = match build_witness(target, &witness.inputs, witness.question)? {
        Ok(computed) => computed,
        Err(rejection) => return Ok(Err(rejection)),
    };
    if let Some(sets) = &witness.decomposition {
        match sets.recompute(target, &witness.inputs)? {
            Ok(sets) => computed.decomposition = Some(sets),
            Err(rejection) => return Ok(Err(rejection)),
        }
    }
    // A folder may have moved, so the origin is not compared. The fingerprint identifies the model.
    computed.model.origin = witness.model.origin.clone();
    let computed = computed.with_digest();
    // The digest is compared last, since any other difference changes it too.
    let fields_agree = compare("", &Witness { digest: computed.digest.clone(), ..witness.clone() }, &computed);
    Ok(fields_agree.and_then(|()| compare("digest", &witness.digest, &computed.digest)).map(|()| computed))
}

/// Rejects a witness of another format, model, precision or task, without running the model.
fn check_model(witness: &Witness, target: &TargetModel) -> Result<(), WitnessRejection> {
    compare("format", &witness.format, &FORMAT)?;
    let mut expected = describe_model(target);
    expected.origin = witness.model.origin.clone();
    let has_wrong_message_range =
        |precision: &StatePrecision| precision.message_range.is_some() == target.has_only_bounded_state();
    if let Some(precision) = witness.model.precision.filter(has_wrong_message_range) {
        let found = precision.message_range.map_or_else(|| "null".to_owned(), |range| range.to_string());
        let expected =
            if target.has_only_bounded_state() { "null: only states are rounded" } else { "the range of messages" };
        return reject("model.kept.message", format!("found {found}, expected {expected} in this stack"));
    }
    compare("model", &witness.model, &expected)?;
    compare("task", &witness.task, &target.task().spec())
}

/// Rejects a field that differs from the computed one.
fn compare<T: Serialize>(field: &str, found: &T, computed: &T) -> Result<(), WitnessRejection> {
    let [found, computed] = [found, computed].map(|value| {
        serde_json::to_value(value).unwrap_or_else(|error| unreachable!("a witness is plain data: {error}"))
    });
    let Some(difference) = first_difference(&found, &computed) else { return Ok(()) };
    let path = [field, &difference.path].into_iter().filter(|key| !key.is_empty()).collect::<Vec<_>>().join(".");
    reject(path, format!("found {}, computed {}", difference.found, difference.expected))
}
