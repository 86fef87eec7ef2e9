//! Shrinks a witness (a counterexample): a simpler one with the same failure.
//!
//! As in property testing, each token that is the same in all inputs is replaced by an earlier one of its alphabet, and each difference
//! between two inputs is removed; a change stays if the result is still a witness. All prompts of a task have the same length, so a
//! shorter prompt needs a smaller task: for function composition, one question about smaller tables, if the model fits them.

use rung_theory::task::AnyTask;
use rung_theory::task::funccomp::{FuncComp, Order};

use super::alphabet::Alphabet;
use super::check::build_witness;
use super::target::TargetModel;
use super::witness::Witness;
use super::{FalsifyError, SearchBudget, StopCondition};

/// The largest number of changes that are tried.
const MAX_TRIES: usize = 2000;

/// Applies single changes until none gives a simpler witness.
///
/// # Errors
/// The model cannot run on its task.
pub fn shrink(
    target: &TargetModel,
    witness: Witness,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<Witness, FalsifyError> {
    let alphabet = Alphabet::sample(target.task(), budget.seed);
    let (mut best, mut tries, ids_per_token) = (witness, 0, alphabet.ids_per_token);
    let length = target.task().length();
    loop {
        let previous_inputs = best.inputs.clone();
        for position in 0..length {
            let ids = position * ids_per_token..(position + 1) * ids_per_token;
            for inputs in simpler_inputs(&alphabet, &best.inputs, ids, position) {
                tries += 1;
                if tries > MAX_TRIES || stop.is_reached() {
                    return Ok(best);
                }
                // A collision of states must stay one, and residual streams that were equal must stay equal.
                if let Ok(simpler) = build_witness(target, &inputs, best.question)?
                    && simpler.state.is_some() == best.state.is_some()
                    && simpler.equal_positions.len() >= best.equal_positions.len()
                {
                    best = simpler;
                    break;
                }
            }
        }
        if best.inputs == previous_inputs {
            return Ok(best);
        }
    }
}

/// Inputs that are simpler at one position, whose ids are `ids`; the simplest first.
fn simpler_inputs(
    alphabet: &Alphabet,
    inputs: &[Vec<u32>],
    ids: std::ops::Range<usize>,
    position: usize,
) -> Vec<Vec<Vec<u32>>> {
    let with_token = |token: &[u32]| -> Vec<Vec<u32>> {
        let mut changed = inputs.to_vec();
        for input in &mut changed {
            input[ids.clone()].copy_from_slice(token);
        }
        changed
    };
    let tokens: Vec<&[u32]> = inputs.iter().map(|input| &input[ids.clone()]).collect();
    if tokens.windows(2).any(|pair| pair[0] != pair[1]) {
        return tokens.iter().map(|token| with_token(token)).collect();
    }
    let smaller_tokens = alphabet.tokens_at(position).iter().take_while(|token| token[..] < *tokens[0]).take(3);
    smaller_tokens.map(|token| with_token(token)).collect()
}

/// The task with one question about smaller tables, the smallest first.
pub fn smaller_tasks(task: &dyn AnyTask) -> Vec<String> {
    let task: &dyn std::any::Any = task;
    let Some(task) = task.downcast_ref::<FuncComp>().filter(|task| task.order() == Order::LastTableFirst) else {
        return Vec::new();
    };
    let m = task.sizes()[0];
    let smaller = (1..=m)
        .filter_map(|m| FuncComp::new(m, task.row_groups_per_table(), Order::LastTableFirst, 1, task.mixed_hops()).ok())
        .map(|smaller| smaller.with_entry_order(task.entry_order()));
    smaller.map(|small| small.to_string()).filter(|spec| *spec != task.to_string()).collect()
}
