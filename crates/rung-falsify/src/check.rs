//! The checker: whether a witness holds, found out by another way than it was.
//!
//! Searches run thousands of prompts side by side, token by token, from common states. The checker reads each prompt whole, alone, in the
//! parallel form of every layer, asks the oracle for the answers, and computes the whole witness anew; a file that differs from it
//! anywhere is refused. What is shown to a user is the witness that was computed, never the file. The checker shares with
//! the searches nothing but the model. A witness is also written down here first ([`write_down`]), so that what is recorded is what
//! the checker sees, and a search that was misled by rounding never gets that far.
//!
//! Sums of floating-point numbers depend on the processor's instructions; a witness for one machine may be refused on another. Then
//! the same search there finds its own.

use std::path::PathBuf;

use serde::Serialize;

use super::FalsifyError;
use super::target::{Origin, RequestedPrecision, Runner, SpanOutputs, TargetModel, best};
use super::witness::{FORMAT, ModelDescription, Witness};
use rung_train::difference::first_difference;

/// Why a witness does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct WitnessRefusal {
    /// The field of the file, such as `model.name` or `scores[1][3]`.
    pub field: String,
    /// What was found and what was expected.
    pub reason: String,
}

pub(super) fn refuse<T>(field: impl Into<String>, reason: impl Into<String>) -> Result<T, WitnessRefusal> {
    Err(WitnessRefusal { field: field.into(), reason: reason.into() })
}

/// What the checker sees of one prompt.
struct PromptOutputs {
    answer: u32,
    output: u32,
    scores: Vec<f32>,
    views: SpanOutputs,
}

fn look(
    target: &TargetModel,
    input: &[u32],
    question: usize,
) -> Result<Result<PromptOutputs, WitnessRefusal>, FalsifyError> {
    let targets = match target.task().oracle(input) {
        Ok(targets) => targets,
        Err(error) => return Ok(refuse("inputs", error.to_string())),
    };
    let Some(answer) = targets.get(question).copied().filter(|label| *label != rung_theory::task::NO_TARGET) else {
        return Ok(refuse("question", format!("nothing is asked at token {question}")));
    };
    let runner = Runner::new(target);
    let views = runner.views(input, 1, None)?;
    let scores = views.scores(0, question).to_vec();
    if scores.iter().any(|score| !score.is_finite()) {
        return Ok(refuse("scores", "the model's are not finite"));
    }
    Ok(Ok(PromptOutputs { answer, output: best(&scores), scores, views }))
}

/// The positions from `border` on whose streams are equal after every layer.
fn alike(first: &SpanOutputs, second: &SpanOutputs, border: usize) -> Vec<usize> {
    let same = |position: &usize| {
        (0..first.layers.len()).all(|layer| first.stream(layer, 0, *position) == second.stream(layer, 0, *position))
    };
    (border..first.time).filter(same).collect()
}

/// The state that two prompts share, and the first border at which they do: at or after `border`, before the question.
fn shared_state(
    target: &TargetModel,
    inputs: [&[u32]; 2],
    border: usize,
    question: usize,
) -> Result<Option<(usize, Vec<f32>)>, FalsifyError> {
    if !target.bounded() || question == 0 || border > question {
        return Ok(None);
    }
    let (runner, fields) = (Runner::new(target), target.fields());
    let state = |input: &[u32], border: usize| -> Result<Vec<f32>, FalsifyError> {
        Ok(runner.numbers(&runner.state(&input[..border * fields], 1, None)?))
    };
    let shared = |border: usize| -> Result<Option<Vec<f32>>, FalsifyError> {
        let first = state(inputs[0], border)?;
        Ok((first == state(inputs[1], border)?).then_some(first))
    };
    let (mut low, mut high) = (border.max(1), question);
    let Some(mut found) = shared(high)? else { return Ok(None) };
    // Once the same, always the same, since the tokens are.
    while low < high {
        let middle = usize::midpoint(low, high);
        match shared(middle)? {
            Some(state) => (high, found) = (middle, state),
            None => low = middle + 1,
        }
    }
    Ok(Some((high, found)))
}

/// The first position from which two prompts are the same.
pub(super) fn border_of(first: &[u32], second: &[u32], fields: usize) -> usize {
    let same = first.iter().rev().zip(second.iter().rev()).take_while(|(a, b)| a == b).count();
    (first.len().max(second.len()) - same).div_ceil(fields)
}

/// Writes down what the checker sees of one or two prompts, if that is a failure.
///
/// # Errors
/// The model refuses the tokens.
pub fn write_down(
    target: &TargetModel,
    inputs: &[Vec<u32>],
    question: usize,
) -> Result<Result<Witness, WitnessRefusal>, FalsifyError> {
    if !(1..=2).contains(&inputs.len()) {
        return Ok(refuse("inputs", format!("found {} prompts, expected one or two", inputs.len())));
    }
    let mut seen = Vec::new();
    for input in inputs {
        match look(target, input, question)? {
            Ok(found) => seen.push(found),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    let (mut border, mut state) = (None, None);
    if let [first, second] = inputs {
        let same = border_of(first, second, target.fields());
        let shared = shared_state(target, [first, second], same, question)?;
        border = Some(shared.as_ref().map_or(same, |(border, _)| *border));
        state = shared.map(|(_, state)| state);
    }
    let blind = match (&seen[..], border) {
        ([first, second], Some(border)) => alike(&first.views, &second.views, border),
        _ => Vec::new(),
    };
    let witness = Witness {
        format: FORMAT,
        model: describe_model(target),
        task: target.task().spec(),
        inputs: inputs.to_vec(),
        question,
        answers: seen.iter().map(|seen| seen.answer).collect(),
        outputs: seen.iter().map(|seen| seen.output).collect(),
        scores: seen.iter().map(|seen| seen.scores.clone()).collect(),
        border,
        state,
        blind,
        decomposition: None,
        digest: String::new(),
    };
    Ok(claim(&witness).map(|()| witness.with_digest()))
}

fn describe_model(target: &TargetModel) -> ModelDescription {
    ModelDescription {
        name: target.network.name.clone(),
        origin: target.origin.clone(),
        kept: target.kept,
        fingerprint: target.fingerprint.clone(),
    }
}

/// Whether what the checker saw is a failure.
fn claim(witness: &Witness) -> Result<(), WitnessRefusal> {
    let Witness { inputs, answers, outputs, question, blind, .. } = witness;
    match (&inputs[..], &answers[..], &outputs[..]) {
        ([_], [answer], [output]) if answer == output => {
            refuse("outputs", format!("the model's answer {output} is right"))
        }
        ([_], [_], [_]) => Ok(()),
        ([first, second], [a, b], [c, d]) => {
            if first.len() != second.len() || first == second {
                return refuse("inputs", "two different prompts of one length are expected");
            }
            if a == b {
                return refuse("answers", format!("both are {a}, where they should differ"));
            }
            if c != d || witness.scores.first() != witness.scores.get(1) {
                return refuse("scores", "the model tells the prompts apart");
            }
            if !blind.contains(question) {
                return refuse("blind", "the question's own streams differ");
            }
            Ok(())
        }
        _ => refuse("inputs", "one or two prompts are expected, each with an answer and an output"),
    }
}

/// Opens the model of a witness, from `folder` instead of where it was, if given.
///
/// # Errors
/// There is no such model.
pub fn open(witness: &Witness, folder: Option<PathBuf>) -> Result<TargetModel, FalsifyError> {
    let origin = folder.map_or_else(|| witness.model.origin.clone(), Origin::Folder);
    TargetModel::open(
        origin,
        Some(&witness.task),
        witness.model.kept.map_or(RequestedPrecision::Own, RequestedPrecision::Exactly),
    )
}

/// Runs the model again and computes the witness that belongs to the prompts; that one, if the file is no different.
///
/// # Errors
/// The model refuses the tokens.
pub fn check(witness: &Witness, target: &TargetModel) -> Result<Result<Witness, WitnessRefusal>, FalsifyError> {
    if let Err(refusal) = check_model(witness, target) {
        return Ok(Err(refusal));
    }
    let mut computed = match write_down(target, &witness.inputs, witness.question)? {
        Ok(computed) => computed,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if let Some(sets) = &witness.decomposition {
        match sets.compute_again(target, &witness.inputs)? {
            Ok(sets) => computed.decomposition = Some(sets),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    // A folder may have moved: the origin says where to look for the model, and the fingerprint whether it is the one.
    computed.model.origin = witness.model.origin.clone();
    let computed = computed.with_digest();
    // The digest last: whatever differs changes it as well.
    let same = compare("", &Witness { digest: computed.digest.clone(), ..witness.clone() }, &computed);
    Ok(same.and_then(|()| compare("digest", &witness.digest, &computed.digest)).map(|()| computed))
}

/// What can be refused without running anything: another format, model, precision or task.
fn check_model(witness: &Witness, target: &TargetModel) -> Result<(), WitnessRefusal> {
    compare("format", &witness.format, &FORMAT)?;
    let mut expected = describe_model(target);
    expected.origin = witness.model.origin.clone();
    if let Some(kept) = witness.model.kept.filter(|kept| kept.message.is_some() == target.bounded()) {
        let found = kept.message.map_or_else(|| "null".to_owned(), |range| range.to_string());
        let expected = if target.bounded() { "null: only states are rounded" } else { "the range of messages" };
        return refuse("model.kept.message", format!("found {found}, expected {expected} in this stack"));
    }
    compare("model", &witness.model, &expected)?;
    compare("task", &witness.task, &target.task().spec())
}

/// Refuses a part of a file that is not what was computed.
fn compare<T: Serialize>(field: &str, found: &T, computed: &T) -> Result<(), WitnessRefusal> {
    let [found, computed] = [found, computed].map(|value| {
        serde_json::to_value(value).unwrap_or_else(|error| unreachable!("a witness is plain data: {error}"))
    });
    let Some(difference) = first_difference(&found, &computed) else { return Ok(()) };
    let path = [field, &difference.path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
    refuse(path, format!("found {}, computed {}", difference.found, difference.expected))
}
