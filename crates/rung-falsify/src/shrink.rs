//! Making a witness plain: the same failure with as little in it as possible.
//!
//! In the manner of property testing: each token that is the same in all inputs is replaced by the first of its alphabet, each difference
//! between two inputs is taken back, and what still is a witness stays. Prompts of a task are all equally long, so a smaller
//! prompt is one of a smaller task: for compositions, one question about smaller tables, where the model can be asked about those.

use rung_theory::task::AnyTask;
use rung_theory::task::funccomp::{FuncComp, Order};

use super::alphabet::Alphabet;
use super::check::write_down;
use super::target::TargetModel;
use super::witness::Witness;
use super::{Clock, FalsifyError, SearchBudget};

/// Tries of one shrinking.
const TRIES: usize = 2000;

/// The simplest_witness witness that single changes lead to.
///
/// # Errors
/// The model refuses its own task.
pub fn shrink(
    target: &TargetModel,
    witness: Witness,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<Witness, FalsifyError> {
    let alphabet = Alphabet::of(target.task(), budget.seed);
    let (mut best, mut tries, fields) = (witness, 0, alphabet.fields);
    let length = target.task().length();
    loop {
        let before = best.inputs.clone();
        for position in 0..length {
            for inputs in simpler(&alphabet, &best.inputs, position * fields..(position + 1) * fields, position) {
                tries += 1;
                if tries > TRIES || clock.over() {
                    return Ok(best);
                }
                // What is left must be of the same kind: a collision of states stays one.
                if let Ok(found) = write_down(target, &inputs, best.question)?
                    && found.state.is_some() == best.state.is_some()
                    && found.blind.len() >= best.blind.len()
                {
                    best = found;
                    break;
                }
            }
        }
        if best.inputs == before {
            return Ok(best);
        }
    }
}

/// Inputs that are plainer at one position, the simplest_witness first.
fn simpler(
    alphabet: &Alphabet,
    inputs: &[Vec<u32>],
    at: std::ops::Range<usize>,
    position: usize,
) -> Vec<Vec<Vec<u32>>> {
    let written = |tokens: &[&[u32]]| -> Vec<Vec<u32>> {
        let mut next = inputs.to_vec();
        for (input, token) in next.iter_mut().zip(tokens) {
            input[at.clone()].copy_from_slice(token);
        }
        next
    };
    let now: Vec<&[u32]> = inputs.iter().map(|input| &input[at.clone()]).collect();
    if now.windows(2).any(|pair| pair[0] != pair[1]) {
        return now.iter().map(|token| written(&vec![*token; inputs.len()])).collect();
    }
    let below = alphabet.at(position).iter().take_while(|token| token[..] < *now[0]).take(3);
    below.map(|token| written(&vec![&token[..]; inputs.len()])).collect()
}

/// The task with one question about smaller tables, the smallest first.
pub fn smaller_tasks(task: &dyn AnyTask) -> Vec<String> {
    let task: &dyn std::any::Any = task;
    let Some(task) = task.downcast_ref::<FuncComp>().filter(|task| task.order() == Order::Hard) else {
        return Vec::new();
    };
    let m = task.sizes()[0];
    let smaller = (1..=m)
        .filter_map(|m| FuncComp::new(m, task.branches(), Order::Hard, 1, task.mixed()).ok())
        .map(|smaller| smaller.with_listing(task.listing()));
    smaller.map(|small| small.to_string()).filter(|spec| *spec != task.to_string()).collect()
}
