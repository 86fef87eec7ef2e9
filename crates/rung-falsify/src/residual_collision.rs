//! Residual-stream collision: two contents of a span of tokens for which later tokens have the same residual streams.
//!
//! Attention caches every token, so there is no bounded state that could collide. Instead the residual streams of later tokens are
//! compared: if two prompts differ in one span, and the question (or every later token) has the same residual stream after every layer, to
//! the bit, the model cannot distinguish them. The search is used for two kinds of stacks.
//!
//! - **Block-sparse layers.** The span is a block that the question may not select. A block whose mean key gets a low score is not
//!   selected, whatever it contains. For 2-Sum this is the counter-example of the block-sparse bound: some contents of the block have the
//!   query's partner, others do not.
//! - **Hybrids in few bits.** The span is the last table of function composition, which comes first in the prompt. All later tokens must
//!   have the same residual streams: the border search of the lower bound, at small size.

use std::collections::HashMap;
use std::ops::Range;

use rung_nn::ModelError;
use rung_theory::task::funccomp::FuncComp;

use super::alphabet::{Alphabet, sample_prompt};
use super::check::build_witness;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{FalsifyError, Method, MethodReport, SearchBudget, StopCondition};
use rung_theory::task::splitmix64;
use rung_train::parallel;

/// The largest number of prompts that one thread runs at a time.
const MAX_BATCH_SIZE: u64 = 64;
/// Batches that run between two progress reports.
const BATCHES_PER_ROUND: u64 = 8;
/// The largest number of contents that are tried in one prompt.
const MAX_CONTENTS: u64 = 1 << 13;

/// The positions whose content is varied, and those whose residual streams must stay the same.
#[derive(Clone, Debug)]
struct VariedPositions {
    varied: Range<usize>,
    compared: Range<usize>,
}

/// Tokens per block of the first block-sparse layer.
fn block_size(target: &TargetModel) -> Option<usize> {
    let mixers = target.network.plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    mixers.into_iter().find_map(|mixer| mixer.facts().block_selection()).map(|selection| selection.block as usize)
}

/// Searches for two contents of a block that do not change the question's residual streams.
///
/// # Errors
/// The model cannot run on its task.
pub fn search_summary_collision(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let question = target.question();
    let Some(block) = block_size(target) else { unreachable!("called for block-sparse stacks only") };
    let positions = |sample: u64| {
        let blocks = (question / block).max(1) as u64;
        // Blocks in the middle first, since a query's own block and the one before it are often always selected.
        let start = ((sample + blocks / 2) % blocks) as usize * block;
        VariedPositions { varied: start..(start + block).min(question), compared: question..question + 1 }
    };
    search(target, budget, stop, Method::SummaryCollision, positions)
}

/// Searches for two last tables that do not change the residual streams of all later tokens.
///
/// # Errors
/// The model cannot run on its task.
pub fn search_border(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let question = target.question();
    let task: &dyn std::any::Any = target.task();
    let last_table_size = task.downcast_ref::<FuncComp>().and_then(|task| task.sizes().last().copied());
    let border = last_table_size.map_or(question, |size| (size as usize).min(question));
    search(target, budget, stop, Method::BorderSearch, |_| VariedPositions {
        varied: 0..border,
        compared: border..question + 1,
    })
}

fn search(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
    method: Method,
    positions: impl Fn(u64) -> VariedPositions,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let alphabet = Alphabet::sample(target.task(), budget.seed);
    let question = target.question();
    let mut report = MethodReport::new(method, "contents");
    let batch_size = target.batch_size(budget.memory_bytes, MAX_BATCH_SIZE);
    for sample in 0.. {
        let (prompt, positions) = (sample_prompt(target.task(), budget.seed, sample), positions(sample));
        if positions.varied.is_empty() {
            "no token comes before the question".clone_into(&mut report.note);
            break;
        }
        let filling_count = alphabet.filling_count(positions.varied.clone(), MAX_CONTENTS);
        let prompt_with = |number: u64| {
            let mut tokens = prompt.clone();
            match filling_count {
                Some(_) => alphabet.write_filling(number, positions.varied.clone(), &mut tokens),
                None => alphabet.write_random_filling(
                    splitmix64(budget.seed ^ sample) ^ number,
                    positions.varied.clone(),
                    &mut tokens,
                ),
            }
            tokens
        };
        // From the hash of the residual streams to the first content that gives them and its answer.
        let mut first_by_residuals: HashMap<u64, (u64, u32)> = HashMap::new();
        let total = filling_count.unwrap_or(MAX_CONTENTS);
        for round in 0..total.div_ceil(batch_size * BATCHES_PER_ROUND) {
            let start = round * batch_size * BATCHES_PER_ROUND;
            let batches: Vec<Range<u64>> = (0..BATCHES_PER_ROUND)
                .map(|batch| (start + batch * batch_size).min(total)..(start + (batch + 1) * batch_size).min(total))
                .filter(|batch| !batch.is_empty())
                .collect();
            let results = parallel::map(&batches, |batch| {
                signatures_and_answers(target, batch.clone().map(&prompt_with), &positions.compared, question)
            });
            for (batch, result) in batches.iter().zip(results) {
                for (number, outcome) in batch.clone().zip(result?) {
                    report.candidates += 1;
                    let Some((signature, answer)) = outcome else { continue };
                    let (earlier, earlier_answer) = *first_by_residuals.entry(signature).or_insert((number, answer));
                    if earlier_answer == answer {
                        continue;
                    }
                    let pair = [prompt_with(earlier), prompt_with(number)];
                    if let Ok(witness) = build_witness(target, &pair, question)? {
                        let residuals = if first_by_residuals.len() == 1 {
                            "residual stream"
                        } else {
                            "different residual streams"
                        };
                        report.note = format!("{} {residuals} in this prompt", first_by_residuals.len());
                        return Ok((Some(witness), report));
                    }
                    report.unconfirmed += 1;
                }
            }
            stop.report_progress(report.candidates);
            if stop.is_reached() {
                return Ok((None, report));
            }
            // If every content has the same answer, for example because the partner is elsewhere, try another prompt.
            let mut answers = first_by_residuals.values().map(|(_, answer)| *answer);
            let first = answers.next();
            if answers.all(|answer| Some(answer) == first) {
                break;
            }
        }
    }
    Ok((None, report))
}

/// For every candidate prompt, the hash of the residual streams at `compared` and the right answer; `None` if it is not a prompt of the task.
#[allow(clippy::type_complexity)]
fn signatures_and_answers(
    target: &TargetModel,
    prompts: impl Iterator<Item = Vec<u32>>,
    compared: &Range<usize>,
    question: usize,
) -> Result<Vec<Option<(u64, u32)>>, ModelError> {
    let prompts: Vec<Vec<u32>> = prompts.collect();
    let outputs = Runner::new(target).outputs(&prompts.concat(), prompts.len(), None)?;
    let results = prompts.iter().enumerate().map(|(row, prompt)| {
        let answer = target.answer(prompt, question)?;
        Some((outputs.signature(row, compared), answer))
    });
    Ok(results.collect())
}
