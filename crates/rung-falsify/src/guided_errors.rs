//! Wrong answers: searches for a prompt that the model answers wrongly.
//!
//! If a task has few instances, all are checked, and then "none found" is a proof. Otherwise prompts are sampled, and those with the
//! smallest margin of the right answer are changed a token or two at a time, to make the margin smaller.

use rung_nn::ModelError;
use rung_theory::task::{NO_TARGET, Prompt};

use super::alphabet::{Alphabet, sample_prompt};
use super::check::build_witness;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{FalsifyError, Method, MethodReport, SearchBudget, StopCondition};
use rung_theory::task::splitmix64;
use rung_train::parallel;

/// If a task has at most this many instances, all are checked.
pub const MAX_ENUMERATED: u128 = 1 << 20;
/// The largest number of prompts that one thread runs at a time.
const MAX_BATCH_SIZE: u64 = 32;
/// Batches that run between two progress reports.
const BATCHES_PER_ROUND: u64 = 8;
/// Number of prompts with the smallest margins that are changed further.
const POOL_SIZE: usize = 32;

/// A prompt, its question with the smallest margin, and that margin: the logit of the right answer minus the largest other logit.
#[derive(Clone)]
struct AnswerMargin {
    prompt: Vec<u32>,
    question: usize,
    margin: f32,
}

/// Searches for a wrong answer.
///
/// # Errors
/// The model cannot run on its task.
pub fn search_wrong_answers(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    match target.task().instance_count().filter(|count| *count <= MAX_ENUMERATED) {
        Some(count) => check_every_instance(target, count as u64, budget, stop),
        None => search_small_margins(target, budget, stop),
    }
}

/// Checks every instance of the task.
fn check_every_instance(
    target: &TargetModel,
    count: u64,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let batch_size = target.batch_size(budget.memory_bytes, MAX_BATCH_SIZE);
    let mut report = MethodReport::new(Method::EveryInstance, "instances");
    report.total = Some(count);
    let nth_prompt = |number: u64| {
        let mut prompt = Prompt::new();
        target.task().nth_prompt(u128::from(number), &mut prompt);
        prompt.tokens().to_vec()
    };
    for start in (0..count).step_by((batch_size * BATCHES_PER_ROUND) as usize) {
        let batches: Vec<Vec<Vec<u32>>> = (0..BATCHES_PER_ROUND)
            .map(|batch| (start + batch * batch_size).min(count)..(start + (batch + 1) * batch_size).min(count))
            .filter(|batch| !batch.is_empty())
            .map(|batch| batch.map(nth_prompt).collect())
            .collect();
        for margins in parallel::map(&batches, |prompts| compute_margins(target, prompts)) {
            for margin in margins? {
                report.candidates += 1;
                if let Some(witness) = confirm(target, &margin)? {
                    return Ok((Some(witness), report));
                }
            }
        }
        stop.report_progress(report.candidates);
        if stop.is_reached() {
            return Ok((None, report));
        }
    }
    report.complete = true;
    Ok((None, report))
}

/// Samples prompts and changes those with the smallest margins.
fn search_small_margins(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let mut report = MethodReport::new(Method::GuidedErrors, "prompts");
    let alphabet = Alphabet::sample(target.task(), budget.seed);
    let mut pool: Vec<AnswerMargin> = Vec::new();
    let batch_size = target.batch_size(budget.memory_bytes, MAX_BATCH_SIZE);
    for round in 0_u64.. {
        let candidate = |number: u64| {
            // Every fourth round samples new prompts, so that the search does not stay at a local minimum.
            if round.is_multiple_of(4) || pool.is_empty() {
                return sample_prompt(target.task(), budget.seed, number);
            }
            let random = splitmix64(number) as usize;
            change_tokens(&alphabet, &pool[random % pool.len()].prompt, splitmix64(random as u64))
        };
        let start = round * batch_size * BATCHES_PER_ROUND;
        let batches: Vec<Vec<Vec<u32>>> = (0..BATCHES_PER_ROUND)
            .map(|batch| (0..batch_size).map(|row| candidate(start + batch * batch_size + row)).collect::<Vec<_>>())
            .map(|prompts| prompts.into_iter().filter(|prompt| target.task().oracle(prompt).is_ok()).collect())
            .collect();
        for margins in parallel::map(&batches, |prompts: &Vec<Vec<u32>>| compute_margins(target, prompts)) {
            for margin in margins? {
                report.candidates += 1;
                if let Some(witness) = confirm(target, &margin)? {
                    return Ok((Some(witness), report));
                }
                pool.push(margin);
            }
        }
        pool.sort_by(|a, b| a.margin.total_cmp(&b.margin));
        pool.dedup_by(|a, b| a.prompt == b.prompt);
        pool.truncate(POOL_SIZE);
        stop.report_progress(report.candidates);
        if stop.is_reached() {
            break;
        }
    }
    report.note = pool.first().map_or_else(String::new, |smallest| {
        format!("the smallest margin of a right answer is {:.3}", smallest.margin)
    });
    Ok((None, report))
}

/// The prompt with one or two random tokens replaced.
fn change_tokens(alphabet: &Alphabet, prompt: &[u32], seed: u64) -> Vec<u32> {
    let (mut prompt, length) = (prompt.to_vec(), prompt.len() / alphabet.ids_per_token);
    for change in 0..=seed % 2 {
        let random = splitmix64(seed ^ splitmix64(change));
        let position = (random % length as u64) as usize;
        alphabet.write_random_filling(splitmix64(random), position..position + 1, &mut prompt);
    }
    prompt
}

/// The smallest margin of each prompt.
fn compute_margins(target: &TargetModel, prompts: &[Vec<u32>]) -> Result<Vec<AnswerMargin>, ModelError> {
    if prompts.is_empty() {
        return Ok(Vec::new());
    }
    let outputs = Runner::new(target).outputs(&prompts.concat(), prompts.len(), None)?;
    let margin = |row: usize, question: usize, label: u32| {
        let logits = outputs.logits(row, question);
        let others = logits.iter().enumerate().filter(|(class, _)| *class != label as usize);
        let largest_other = others.map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max);
        logits[label as usize] - largest_other
    };
    let smallest_margin = |(row, prompt): (usize, &Vec<u32>)| {
        let targets = target.task().oracle(prompt).ok()?;
        let questions = targets.iter().enumerate().filter(|(_, label)| **label != NO_TARGET);
        let margins = questions.map(|(question, label)| (question, margin(row, question, *label)));
        let (question, margin) = margins.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(AnswerMargin { prompt: prompt.clone(), question, margin })
    };
    Ok(prompts.iter().enumerate().filter_map(smallest_margin).collect())
}

/// The witness of a negative margin, if the checker confirms the wrong answer.
fn confirm(target: &TargetModel, candidate: &AnswerMargin) -> Result<Option<Witness>, FalsifyError> {
    if candidate.margin > 0.0 {
        return Ok(None);
    }
    Ok(build_witness(target, std::slice::from_ref(&candidate.prompt), candidate.question)?.ok())
}
