//! Plain errors: a prompt that is answered wrongly.
//!
//! If a task has few instances, all are asked, and then "none found" means that there is none. Otherwise prompts are drawn, and those
//! whose right answer leads by the least are changed a token at a time, as long as the lead shrinks.

use rung_nn::ModelError;
use rung_theory::task::{NO_TARGET, Prompt};

use super::alphabet::{Alphabet, sample_prompt};
use super::check::write_down;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{Clock, FalsifyError, Method, MethodReport, SearchBudget};
use rung_theory::task::splitmix64;
use rung_train::parallel;

/// All instances are asked if there are no more than this.
pub const FEW: u128 = 1 << 20;
/// Prompts that one thread reads at a time.
const ROWS: u64 = 32;
/// Chunks of a round.
const CHUNKS: u64 = 8;
/// Prompts whose neighbours are tried.
const KEPT: usize = 32;

/// A prompt, and by how much its right answer leads at the question where it leads least.
#[derive(Clone)]
struct AnswerMargin {
    prompt: Vec<u32>,
    question: usize,
    by: f32,
}

/// Searches for a wrong answer.
///
/// # Errors
/// The model refuses its own task.
pub fn errors(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    match target.task().instances().filter(|count| *count <= FEW) {
        Some(count) => all(target, count as u64, budget, clock),
        None => guided(target, budget, clock),
    }
}

/// Asks every instance.
fn all(
    target: &TargetModel,
    count: u64,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let rows = target.rows(budget.memory, ROWS);
    let mut tried = MethodReport::new(Method::EveryInstance, "instances");
    tried.total = Some(count);
    let numbered = |number: u64| {
        let mut prompt = Prompt::new();
        target.task().nth_prompt(u128::from(number), &mut prompt);
        prompt.tokens().to_vec()
    };
    for start in (0..count).step_by((rows * CHUNKS) as usize) {
        let chunks: Vec<Vec<Vec<u32>>> = (0..CHUNKS)
            .map(|chunk| (start + chunk * rows).min(count)..(start + (chunk + 1) * rows).min(count))
            .filter(|chunk| !chunk.is_empty())
            .map(|chunk| chunk.map(numbered).collect())
            .collect();
        for found in parallel::map(&chunks, |prompts| leads(target, prompts)) {
            for lead in found? {
                tried.candidates += 1;
                if let Some(witness) = wrong(target, &lead)? {
                    return Ok((Some(witness), tried));
                }
            }
        }
        clock.report_progress(tried.candidates);
        if clock.over() {
            return Ok((None, tried));
        }
    }
    tried.complete = true;
    Ok((None, tried))
}

/// Draws prompts and changes those that are nearly wrong.
fn guided(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let mut tried = MethodReport::new(Method::GuidedErrors, "prompts");
    let alphabet = Alphabet::of(target.task(), budget.seed);
    let mut kept: Vec<AnswerMargin> = Vec::new();
    let rows = target.rows(budget.memory, ROWS);
    for round in 0_u64.. {
        let candidate = |number: u64| {
            let fresh = sample_prompt(target.task(), budget.seed, number);
            // Every fourth round looks elsewhere, so that a bad prefix is no end.
            if round.is_multiple_of(4) || kept.is_empty() {
                return fresh;
            }
            let pick = splitmix64(number) as usize;
            changed(&alphabet, &kept[pick % kept.len()].prompt, splitmix64(pick as u64))
        };
        let start = round * rows * CHUNKS;
        let chunks: Vec<Vec<Vec<u32>>> = (0..CHUNKS)
            .map(|chunk| (0..rows).map(|row| candidate(start + chunk * rows + row)).collect::<Vec<_>>())
            .map(|prompts| prompts.into_iter().filter(|prompt| target.task().oracle(prompt).is_ok()).collect())
            .collect();
        for found in parallel::map(&chunks, |prompts: &Vec<Vec<u32>>| leads(target, prompts)) {
            for lead in found? {
                tried.candidates += 1;
                if let Some(witness) = wrong(target, &lead)? {
                    return Ok((Some(witness), tried));
                }
                kept.push(lead);
            }
        }
        kept.sort_by(|a, b| a.by.total_cmp(&b.by));
        kept.dedup_by(|a, b| a.prompt == b.prompt);
        kept.truncate(KEPT);
        clock.report_progress(tried.candidates);
        if clock.over() {
            break;
        }
    }
    tried.note =
        kept.first().map_or_else(String::new, |lead| format!("the right answer led by {:.3} at least", lead.by));
    Ok((None, tried))
}

/// One or two tokens replaced.
fn changed(alphabet: &Alphabet, prompt: &[u32], number: u64) -> Vec<u32> {
    let (mut prompt, length) = (prompt.to_vec(), prompt.len() / alphabet.fields);
    for change in 0..=number % 2 {
        let drawn = splitmix64(number ^ splitmix64(change));
        let position = (drawn % length as u64) as usize;
        alphabet.scatter(splitmix64(drawn), position..position + 1, &mut prompt);
    }
    prompt
}

/// By how much the right answer leads in each prompt, at the question where it leads least.
fn leads(target: &TargetModel, prompts: &[Vec<u32>]) -> Result<Vec<AnswerMargin>, ModelError> {
    if prompts.is_empty() {
        return Ok(Vec::new());
    }
    let views = Runner::new(target).views(&prompts.concat(), prompts.len(), None)?;
    let lead = |row: usize, question: usize, label: u32| {
        let scores = views.scores(row, question);
        let others = scores.iter().enumerate().filter(|(class, _)| *class != label as usize);
        let strongest = others.map(|(_, score)| *score).fold(f32::NEG_INFINITY, f32::max);
        scores[label as usize] - strongest
    };
    let weakest = |(row, prompt): (usize, &Vec<u32>)| {
        let targets = target.task().oracle(prompt).ok()?;
        let asked = targets.iter().enumerate().filter(|(_, label)| **label != NO_TARGET);
        let each = asked.map(|(question, label)| (question, lead(row, question, *label)));
        let (question, by) = each.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(AnswerMargin { prompt: prompt.clone(), question, by })
    };
    Ok(prompts.iter().enumerate().filter_map(weakest).collect())
}

/// The witness, if the checker sees a wrong answer too.
fn wrong(target: &TargetModel, lead: &AnswerMargin) -> Result<Option<Witness>, FalsifyError> {
    if lead.by > 0.0 {
        return Ok(None);
    }
    Ok(write_down(target, std::slice::from_ref(&lead.prompt), lead.question)?.ok())
}
