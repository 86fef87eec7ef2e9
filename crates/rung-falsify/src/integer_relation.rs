//! Integer relations: two multisets of tokens with the same state of a linear attention layer.
//!
//! The state of linear attention is a sum of writes, one for each token. In p bits it is rounded to a grid after every token; since the
//! state is on the grid already, rounding the sum of state and write is adding the rounded write. So as long as no element leaves its range,
//! the state is exactly a sum of integer vectors `c(token)` in units of the grid, in any order, and `c(token)` is the state after that
//! single token. Where a task allows repeated tokens (2-Sum), a relation `sum_t x_t c(t) = 0` with `sum_t x_t = 0` is a collision: the
//! tokens with positive x in one prompt, those with negative x in the other.
//!
//! A birthday search needs 2^(b/2) tries for b bits. A lattice of M tokens needs M above the number D of state elements, whatever their bits,
//! and time that grows with about the fourth power of M: a second for a hundred rows, 15 seconds for five hundred. It fails for one of
//! three reasons, which the note of a report gives: the relation is longer than the prompt; its tokens have no order in which every element
//! of the state stays in its range; or the lattice is too large for the time or for double precision. All three are more likely if single
//! writes are large compared with a step of the grid.

use rung_theory::stack::Mixer;
use rung_theory::task::{AnyTask, seeded};

use super::alphabet::sample_prompt;
use super::check::build_witness;
use super::lattice::{self, Relations};
use super::state_collision;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{FalsifyError, Method, MethodReport, SearchBudget, StopCondition};

/// The largest number of rows of a lattice.
const MAX_ROWS: usize = 1024;
/// The largest number of relations of one lattice that are tried, the shortest first.
const MAX_RELATIONS: usize = 16;

/// Whether the method applies: one layer of linear attention in few bits, and a task whose tokens may repeat.
pub fn applies(target: &TargetModel) -> bool {
    let mixers = || target.network.plan.layers.iter().flat_map(|layer| layer.mixers.iter().map(Mixer::facts));
    let one_linear_layer = mixers().filter(|facts| facts.additive_state).count() == 1
        && mixers().all(|facts| facts.additive_state || facts.flops.per_token == 0);
    one_linear_layer && target.has_only_bounded_state() && target.is_rounded() && target.task().name() == "twosum"
}

/// Searches for a relation by lattice reduction.
///
/// # Errors
/// The model cannot run on its task.
pub fn search_relation(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let mut report = MethodReport::new(Method::IntegerRelation, "lattices");
    let (vocabulary, state_size) =
        (target.task().fields()[0].vocabulary as usize, state_collision::state_size(target) as usize);
    let writes = compute_writes(target)?;
    let is_written = writes.iter().fold(vec![false; state_size], |nonzero, write| {
        nonzero.iter().zip(write).map(|(nonzero, number)| *nonzero || *number != 0).collect()
    });
    let written_elements = is_written.iter().filter(|nonzero| **nonzero).count();
    // With twice as many tokens as state elements relations are short. The number of tokens must agree too.
    let mut row_count = (2 * written_elements + 8).min(vocabulary).min(MAX_ROWS);
    report.note = format!("{written_elements} elements of the state are written, by {vocabulary} tokens");
    while row_count > written_elements + 1 {
        let tokens = tokens_with_smallest_writes(&writes, row_count, budget.seed);
        let vectors: Vec<Vec<i64>> =
            tokens.iter().map(|token| writes[*token].iter().copied().chain([1]).collect()).collect();
        report.candidates += 1;
        let Relations { relations, complete } = lattice::relations(&vectors, || {
            stop.report_progress(report.candidates);
            !stop.is_reached()
        });
        let Some(shortest) = relations.first() else {
            let reason = match (complete, stop.is_reached()) {
                (true, _) => "gave no relation",
                (false, true) => "was not reduced in time",
                (false, false) => "is beyond double precision",
            };
            report.note = format!("{}; a lattice of {row_count} rows {reason}", report.note);
            break;
        };
        let length = positive_count(shortest);
        report.note =
            format!("{}; a lattice of {row_count} rows gave a relation of {length} tokens on each side", report.note);
        let mut first_rejection = String::new();
        for relation in relations.iter().take(MAX_RELATIONS) {
            let reason = match colliding_prompts(target, &writes, &tokens, relation) {
                Err(reason) => reason,
                Ok(pair) => match build_witness(target, &pair, target.question())? {
                    Ok(witness) if witness.state.is_some() => return Ok((Some(witness), report)),
                    Ok(_) => "the states differ once rounded".to_owned(),
                    Err(rejection) => rejection.to_string(),
                },
            };
            report.unconfirmed += 1;
            if first_rejection.is_empty() {
                first_rejection = format!(" ({reason})");
            }
        }
        report.note.push_str(&first_rejection);
        if stop.is_reached() || row_count == vocabulary.min(MAX_ROWS) {
            break;
        }
        row_count = (row_count + row_count / 2).min(vocabulary).min(MAX_ROWS);
    }
    Ok((None, report))
}

/// The sum of the positive coefficients of a relation, which is the number of its tokens in each prompt.
fn positive_count(relation: &[i64]) -> usize {
    relation.iter().filter(|times| **times > 0).sum::<i64>() as usize
}

/// The write of each token, in steps of the grid.
fn compute_writes(target: &TargetModel) -> Result<Vec<Vec<i64>>, FalsifyError> {
    let vocabulary = target.task().fields()[0].vocabulary;
    let Some(rounding) = target.network.config.precision.state else { unreachable!("called for rounded states only") };
    let step = rounding.range / f64::from(1_u32 << (rounding.bits - 1));
    let runner = Runner::new(target);
    let mut writes = Vec::with_capacity(vocabulary as usize);
    for token in 0..vocabulary {
        let state = runner.state_values(&runner.state(&[token], 1, None)?);
        writes.push(state.iter().map(|number| (f64::from(*number) / step).round() as i64).collect());
    }
    Ok(writes)
}

/// The tokens with the smallest writes, since these have the shortest relations.
fn tokens_with_smallest_writes(writes: &[Vec<i64>], count: usize, seed: u64) -> Vec<usize> {
    let squared_norm = |token: usize| writes[token].iter().map(|number| number * number).sum::<i64>();
    let mut tokens: Vec<usize> = (0..writes.len()).collect();
    // Tokens of the same norm are ordered by the seed.
    rung_theory::task::shuffle(&mut seeded(seed), &mut tokens);
    tokens.sort_by_key(|token| squared_norm(*token));
    tokens.truncate(count);
    tokens
}

/// Two prompts of 2-Sum with the same state by the relation, and a query whose partner is only in the first; or why there are none.
fn colliding_prompts(
    target: &TargetModel,
    writes: &[Vec<i64>],
    tokens: &[usize],
    relation: &[i64],
) -> Result<[Vec<u32>; 2], String> {
    let (task, question): (&dyn AnyTask, usize) = (target.task(), target.question());
    let Some(rounding) = target.network.config.precision.state else { unreachable!("called for rounded states only") };
    let limit = 1_i64 << (rounding.bits - 1);
    let tokens_with_sign = |sign: i64| {
        let times = tokens.iter().zip(relation).map(|(token, times)| (*token, (times * sign).max(0)));
        times.filter(|(_, times)| *times > 0).collect::<Vec<_>>()
    };
    let (positive, negative, count) = (tokens_with_sign(1), tokens_with_sign(-1), positive_count(relation));
    let Some((partner, _)) = positive.first().copied() else { unreachable!("a relation has positive coefficients") };
    let filler_count = question
        .checked_sub(count)
        .ok_or_else(|| format!("a prompt has only {question} tokens before its question"))?;
    // Both prompts begin with the same filler tokens, chosen so that the state stays small.
    let mut sum = vec![0; writes[0].len()];
    let fillers: Vec<(usize, i64)> =
        (0..writes.len()).filter(|token| *token != partner).map(|token| (token, i64::MAX)).collect();
    let out_of_range = |placed| format!("a number leaves its range after {placed} tokens");
    let filler = order_within_range(writes, fillers, filler_count, &mut sum, limit).map_err(out_of_range)?;
    let out_of_range = |placed| out_of_range(filler_count + placed);
    let first = order_within_range(writes, positive, count, &mut sum.clone(), limit).map_err(out_of_range)?;
    let second = order_within_range(writes, negative, count, &mut sum, limit).map_err(out_of_range)?;
    let modulus = task.fields()[0].vocabulary;
    let query = (modulus - partner as u32) % modulus;
    let mut ending = sample_prompt(task, 0, 0)[question..].to_vec();
    ending[0] = query;
    Ok([first, second].map(|tokens| [&filler[..], &tokens[..], &ending[..]].concat()))
}

/// Orders `count` of the tokens, each with its multiplicity, so that the sum stays in its range: the next is always the one that keeps the
/// sum smallest. The error is the number of tokens before the sum leaves its range.
fn order_within_range(
    writes: &[Vec<i64>],
    mut tokens: Vec<(usize, i64)>,
    count: usize,
    sum: &mut [i64],
    limit: i64,
) -> Result<Vec<u32>, usize> {
    let mut order = Vec::with_capacity(count);
    for placed in 0..count {
        let sum_size_with =
            |token: usize| sum.iter().zip(&writes[token]).map(|(sum, write)| (sum + write).pow(4)).sum::<i64>();
        let available = (0..tokens.len()).filter(|index| tokens[*index].1 > 0);
        let index = available.min_by_key(|index| sum_size_with(tokens[*index].0)).ok_or(placed)?;
        tokens[index].1 -= 1;
        let token = tokens[index].0;
        sum.iter_mut().zip(&writes[token]).for_each(|(sum, write)| *sum += write);
        if sum.iter().any(|number| *number < -limit || *number >= limit) {
            return Err(placed);
        }
        order.push(token as u32);
    }
    Ok(order)
}
