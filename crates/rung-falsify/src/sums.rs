//! Integer relations: two multisets of tokens that a layer of linear attention adds up to the same state.
//!
//! Linear attention's state is a sum of writes, one for each token. StatePrecision in p bits it is rounded after every token; but it lies on the grid
//! already, and rounding a grid point plus a write is the grid point plus the rounded write. So as long as no number leaves its range,
//! the state is exactly a sum of whole vectors `c(token)`, in any order, and the vectors are read off the states after single
//! tokens. Where a task lets tokens repeat (2-Sum), a relation `sum_t x_t c(t) = 0` with `sum_t x_t = 0` is a collision: the tokens
//! with positive x on one side, those with negative x on the other.
//!
//! A birthday needs 2^(b/2) tries for b bits. A lattice of M tokens needs M above the number D of state numbers, whatever their
//! bits, and time that grows with about the fourth power of M: a second for a hundred rows, a quarter of a minute for five hundred. Three
//! things end its reach, and the note of a search says which: the relation is longer than the prompt; its tokens have no order in which
//! every number of the state stays in its range; or the lattice is too large for the time or for double precision. All three come
//! sooner when single writes are large beside a step of the grid.

use rung_theory::stack::Mixer;
use rung_theory::task::{AnyTask, seeded};

use super::alphabet::sample_prompt;
use super::check::write_down;
use super::collide::state_numbers;
use super::lattice::{self, Relations};
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{Clock, FalsifyError, Method, MethodReport, SearchBudget};

/// The most rows of a lattice.
const MOST_ROWS: usize = 1024;
/// Relations of one lattice that are tried, the shortest first.
const RELATIONS: usize = 16;

/// Whether the method applies: one layer of linear attention in few bits, and a task whose tokens may repeat.
pub fn applies(target: &TargetModel) -> bool {
    let mixers = || target.network.plan.layers.iter().flat_map(|layer| layer.mixers.iter().map(Mixer::facts));
    let one_sum = mixers().filter(|facts| facts.additive_state).count() == 1
        && mixers().all(|facts| facts.additive_state || facts.flops.per_token == 0);
    one_sum && target.bounded() && target.few_bits() && target.task().name() == "twosum"
}

/// Searches for a relation.
///
/// # Errors
/// The model refuses its own task.
pub fn relations(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let mut tried = MethodReport::new(Method::IntegerRelation, "lattices");
    let (values, numbers) = (target.task().fields()[0].vocabulary as usize, state_numbers(target) as usize);
    let writes = writes(target)?;
    let used = writes.iter().fold(vec![false; numbers], |used, write| {
        used.iter().zip(write).map(|(used, number)| *used || *number != 0).collect()
    });
    let dimensions = used.iter().filter(|used| **used).count();
    // Twice as many tokens as numbers make relations short, half as many again make them last; the counts are one number more.
    let mut rows = (2 * dimensions + 8).min(values).min(MOST_ROWS);
    tried.note = format!("{dimensions} numbers are ever written, and {values} tokens write them");
    while rows > dimensions + 1 {
        let chosen = chosen(&writes, rows, budget.seed);
        let vectors: Vec<Vec<i64>> =
            chosen.iter().map(|value| writes[*value].iter().copied().chain([1]).collect()).collect();
        tried.candidates += 1;
        let Relations { found, whole } = lattice::relations(&vectors, || {
            clock.report_progress(tried.candidates);
            !clock.over()
        });
        let Some(shortest) = found.first() else {
            let reason = match (whole, clock.over()) {
                (true, _) => "gave no relation",
                (false, true) => "was not reduced in time",
                (false, false) => "is beyond double precision",
            };
            tried.note = format!("{}; a lattice of {rows} rows {reason}", tried.note);
            break;
        };
        let length = tokens(shortest);
        tried.note =
            format!("{}; a lattice of {rows} rows gave a relation of {length} tokens on each side", tried.note);
        let mut refused = String::new();
        for relation in found.iter().take(RELATIONS) {
            let reason = match prompts(target, &writes, &chosen, relation) {
                Err(reason) => reason,
                Ok(pair) => match write_down(target, &pair, target.question())? {
                    Ok(witness) if witness.state.is_some() => return Ok((Some(witness), tried)),
                    Ok(_) => "the states differ once rounded".to_owned(),
                    Err(refusal) => refusal.to_string(),
                },
            };
            tried.misled += 1;
            if refused.is_empty() {
                refused = format!(" ({reason})");
            }
        }
        tried.note.push_str(&refused);
        if clock.over() || rows == values.min(MOST_ROWS) {
            break;
        }
        rows = (rows + rows / 2).min(values).min(MOST_ROWS);
    }
    Ok((None, tried))
}

/// Tokens on each side of a relation.
fn tokens(relation: &[i64]) -> usize {
    relation.iter().filter(|times| **times > 0).sum::<i64>() as usize
}

/// What each token writes, in steps of the grid.
fn writes(target: &TargetModel) -> Result<Vec<Vec<i64>>, FalsifyError> {
    let values = target.task().fields()[0].vocabulary;
    let Some(rounding) = target.network.config.precision.state else { unreachable!("asked for few bits only") };
    let step = rounding.range / f64::from(1_u32 << (rounding.bits - 1));
    let runner = Runner::new(target);
    let mut writes = Vec::with_capacity(values as usize);
    for value in 0..values {
        let state = runner.numbers(&runner.state(&[value], 1, None)?);
        writes.push(state.iter().map(|number| (f64::from(*number) / step).round() as i64).collect());
    }
    Ok(writes)
}

/// The tokens whose writes are smallest: their relations are shortest.
fn chosen(writes: &[Vec<i64>], rows: usize, seed: u64) -> Vec<usize> {
    let size = |value: usize| writes[value].iter().map(|number| number * number).sum::<i64>();
    let mut order: Vec<usize> = (0..writes.len()).collect();
    // The seed decides among equals.
    rung_theory::task::shuffle(&mut seeded(seed), &mut order);
    order.sort_by_key(|value| size(*value));
    order.truncate(rows);
    order
}

/// Two prompts of 2-Sum whose states are equal by the relation, with a query that only the first has a partner for; or why there are
/// none.
fn prompts(
    target: &TargetModel,
    writes: &[Vec<i64>],
    chosen: &[usize],
    relation: &[i64],
) -> Result<[Vec<u32>; 2], String> {
    let (task, question): (&dyn AnyTask, usize) = (target.task(), target.question());
    let Some(rounding) = target.network.config.precision.state else { unreachable!("asked for few bits only") };
    let half = 1_i64 << (rounding.bits - 1);
    let side = |sign: i64| {
        let times = chosen.iter().zip(relation).map(|(value, times)| (*value, (times * sign).max(0)));
        times.filter(|(_, times)| *times > 0).collect::<Vec<_>>()
    };
    let (plus, minus, count) = (side(1), side(-1), tokens(relation));
    let Some((partner, _)) = plus.first().copied() else { unreachable!("as many tokens on each side, and not none") };
    let filler = question.checked_sub(count).ok_or_else(|| format!("a prompt has room for {question}"))?;
    // The same tokens in front of both, which come back to nothing: pairs would need opposites, so the least harmful is taken.
    let mut sum = vec![0; writes[0].len()];
    let others: Vec<(usize, i64)> =
        (0..writes.len()).filter(|value| *value != partner).map(|value| (value, i64::MAX)).collect();
    let beyond = |placed| format!("a number leaves its range after {placed} tokens");
    let front = ordered(writes, others, filler, &mut sum, half).map_err(beyond)?;
    let beyond = |placed| beyond(filler + placed);
    let first = ordered(writes, plus, count, &mut sum.clone(), half).map_err(beyond)?;
    let second = ordered(writes, minus, count, &mut sum, half).map_err(beyond)?;
    let values = task.fields()[0].vocabulary;
    let query = (values - partner as u32) % values;
    let mut end = sample_prompt(task, 0, 0)[question..].to_vec();
    end[0] = query;
    Ok([first, second].map(|tokens| [&front[..], &tokens[..], &end[..]].concat()))
}

/// So many of the tokens, in an order in which the sum never leaves its range: the next is always the one that keeps it smallest. If
/// there is no such order, how far this one came.
fn ordered(
    writes: &[Vec<i64>],
    mut tokens: Vec<(usize, i64)>,
    count: usize,
    sum: &mut [i64],
    half: i64,
) -> Result<Vec<u32>, usize> {
    let mut order = Vec::with_capacity(count);
    for placed in 0..count {
        let size = |value: usize| sum.iter().zip(&writes[value]).map(|(sum, write)| (sum + write).pow(4)).sum::<i64>();
        let at = (0..tokens.len()).filter(|at| tokens[*at].1 > 0).min_by_key(|at| size(tokens[*at].0)).ok_or(placed)?;
        tokens[at].1 -= 1;
        let value = tokens[at].0;
        sum.iter_mut().zip(&writes[value]).for_each(|(sum, write)| *sum += write);
        if sum.iter().any(|number| *number < -half || *number >= half) {
            return Err(placed);
        }
        order.push(value as u32);
    }
    Ok(order)
}
