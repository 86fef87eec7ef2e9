//! View collision: two contents of a span of tokens that later tokens see alike.
//!
//! Where every token is kept there is no state to meet in. What counts is what the later tokens come to hold: two prompts that differ in
//! one span, and after which the question (or every later token) has the same stream after every layer, to the bit, are the same to
//! the model. This one search serves two kinds of layers.
//!
//! - **Block-sparse layers.** The span is a block that the question might not open. A mean key that is equal, or just as
//!   unattractive, leaves it closed, whatever is in it. For 2-Sum this is the counter-example of the block-sparse bound: fill the block
//!   with contents that have and have not the partner.
//! - **Hybrids in few bits.** The span is the last table of a composition, which stands first. All later tokens are to see
//!   the same: the border search of the lower bound at toy size.

use std::collections::HashMap;
use std::ops::Range;

use rung_nn::ModelError;
use rung_theory::task::funccomp::FuncComp;

use super::alphabet::{Alphabet, sample_prompt};
use super::check::write_down;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{Clock, FalsifyError, Method, MethodReport, SearchBudget};
use rung_theory::task::splitmix64;
use rung_train::parallel;

/// Prompts that one thread reads at a time.
const ROWS: u64 = 64;
/// Chunks of a round.
const CHUNKS: u64 = 8;
/// Contents tried in one prompt before another is taken.
const CONTENTS: u64 = 1 << 13;

/// A span, and the tokens that must not notice.
#[derive(Clone, Debug)]
struct FreeSpan {
    free: Range<usize>,
    blind: Range<usize>,
}

/// The block-sparse layer of a stack: tokens of a block.
fn block(target: &TargetModel) -> Option<usize> {
    let mixers = target.network.plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    mixers.into_iter().find_map(|mixer| mixer.facts().block_selection()).map(|selection| selection.block as usize)
}

/// Looks for two contents of a block that the question takes for the same.
///
/// # Errors
/// The model refuses its own task.
pub fn summaries(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let question = target.question();
    let Some(block) = block(target) else { unreachable!("asked for block-sparse stacks only") };
    let span = |base: u64| {
        let blocks = (question / block).max(1) as u64;
        // Blocks in the middle first: a query's own block and its neighbour are often read anyway.
        let place = ((base + blocks / 2) % blocks) as usize * block;
        FreeSpan { free: place..(place + block).min(question), blind: question..question + 1 }
    };
    search(target, budget, clock, Method::SummaryCollision, span)
}

/// Looks for two last tables that all later tokens take for the same; or, with `question_only`, the last one.
///
/// # Errors
/// The model refuses its own task.
pub fn border(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
    question_only: bool,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let question = target.question();
    let task: &dyn std::any::Any = target.task();
    let last = task.downcast_ref::<FuncComp>().and_then(|task| task.sizes().last().copied());
    let border = last.map_or(question, |size| (size as usize).min(question));
    let blind = if question_only { question..question + 1 } else { border..question + 1 };
    search(target, budget, clock, Method::BorderSearch, |_| FreeSpan { free: 0..border, blind: blind.clone() })
}

fn search(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
    method: Method,
    span: impl Fn(u64) -> FreeSpan,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let alphabet = Alphabet::of(target.task(), budget.seed);
    let question = target.question();
    let mut tried = MethodReport::new(method, "contents");
    let rows = target.rows(budget.memory, ROWS);
    for base in 0.. {
        let (prompt, span) = (sample_prompt(target.task(), budget.seed, base), span(base));
        if span.free.is_empty() {
            "nothing stands before the question".clone_into(&mut tried.note);
            break;
        }
        let ways = alphabet.ways(span.free.clone(), CONTENTS);
        let content = |number: u64| {
            let mut tokens = prompt.clone();
            match ways {
                Some(_) => alphabet.write(number, span.free.clone(), &mut tokens),
                None => alphabet.scatter(splitmix64(budget.seed ^ base) ^ number, span.free.clone(), &mut tokens),
            }
            tokens
        };
        let mut first_with: HashMap<u64, (u64, u32)> = HashMap::new();
        let total = ways.unwrap_or(CONTENTS);
        for round in 0..total.div_ceil(rows * CHUNKS) {
            let start = round * rows * CHUNKS;
            let chunks: Vec<Range<u64>> = (0..CHUNKS)
                .map(|chunk| (start + chunk * rows).min(total)..(start + (chunk + 1) * rows).min(total))
                .filter(|chunk| !chunk.is_empty())
                .collect();
            let seen = parallel::map(&chunks, |chunk| look(target, chunk.clone().map(&content), &span.blind, question));
            for (chunk, seen) in chunks.iter().zip(seen) {
                for (number, found) in chunk.clone().zip(seen?) {
                    tried.candidates += 1;
                    let Some((signature, answer)) = found else { continue };
                    let (earlier, before) = *first_with.entry(signature).or_insert((number, answer));
                    if before == answer {
                        continue;
                    }
                    let pair = [content(earlier), content(number)];
                    if let Ok(witness) = write_down(target, &pair, question)? {
                        let views = if first_with.len() == 1 { "view" } else { "different views" };
                        tried.note = format!("{} {views} in this prompt", first_with.len());
                        return Ok((Some(witness), tried));
                    }
                    tried.misled += 1;
                }
            }
            clock.report_progress(tried.candidates);
            if clock.over() {
                return Ok((None, tried));
            }
            // Where every content has one answer (the partner stands elsewhere, say) another prompt is worth more.
            let mut answers = first_with.values().map(|(_, answer)| *answer);
            let first = answers.next();
            if answers.all(|answer| Some(answer) == first) {
                break;
            }
        }
    }
    Ok((None, tried))
}

/// Signature and answer of every prompt that is one.
#[allow(clippy::type_complexity)]
fn look(
    target: &TargetModel,
    prompts: impl Iterator<Item = Vec<u32>>,
    blind: &Range<usize>,
    question: usize,
) -> Result<Vec<Option<(u64, u32)>>, ModelError> {
    let prompts: Vec<Vec<u32>> = prompts.collect();
    let views = Runner::new(target).views(&prompts.concat(), prompts.len(), None)?;
    let seen = prompts.iter().enumerate().map(|(row, prompt)| {
        let answer = target.answer(prompt, question)?;
        Some((views.signature(row, blind), answer))
    });
    Ok(seen.collect())
}
