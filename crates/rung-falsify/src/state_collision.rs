//! State collision: two prefixes with the same state.
//!
//! Where nothing but a bounded state passes from token to token, the model cannot distinguish two prefixes with the same state, whatever
//! tokens follow. If a state uses b bits, about 2^(b/2) prefixes are enough for a collision (birthday paradox), far fewer than the
//! pigeonhole principle needs. To get a million states for little more than a million steps, prefixes form trees: a trunk is run once, and
//! from its state all fillings of the last few positions before the border are run.
//!
//! Each round runs a fixed set of trunks on all cores and inserts the states in order, so the result depends only on the seed. The table of
//! states stays within the memory budget; when it is full, new states are still compared with those in it.
//!
//! [`search_repetitions`] is deterministic: if a task allows a token to be repeated, it is repeated until two prefixes have the same state, because the
//! rounded state has decayed or because it is saturated.

use std::collections::HashMap;
use std::ops::Range;

use rung_nn::ModelError;
use rung_theory::task::funccomp::{FuncComp, Order};

use super::alphabet::{Alphabet, sample_prompt};
use super::check::build_witness;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{FalsifyError, Method, MethodReport, SearchBudget, StopCondition};
use rung_train::parallel;

/// The largest number of prefixes that one thread runs at a time.
const MAX_BATCH_SIZE: u64 = 1024;
/// Batches that run between two progress reports.
const BATCHES_PER_ROUND: u64 = 8;
/// If there are at most this many prefixes, all are enumerated; otherwise trunks are sampled.
const MAX_ENUMERATED: u64 = 1 << 22;
/// Bytes per entry of the table, with unused capacity, and while it grows and the old and the new table exist.
const ENTRY_BYTES: u64 = 60;
/// The largest number of endings that are tried for two prefixes with the same state.
const MAX_ENDINGS: u64 = 512;
/// The search ends after this many collisions that the checker did not confirm.
const MAX_UNCONFIRMED: u64 = 512;

/// The position at which prefixes end: after the tables of function composition, otherwise at the last question.
pub(super) fn border(target: &TargetModel) -> usize {
    let task: &dyn std::any::Any = target.task();
    match task.downcast_ref::<FuncComp>() {
        Some(task) if task.order() == Order::LastTableFirst => task.sizes().iter().map(|size| *size as usize).sum(),
        _ => target.question(),
    }
}

/// Numbered prefixes: prefix n is trunk n / `fillings_per_trunk`, then filling n % `fillings_per_trunk`.
struct Prefixes<'a> {
    target: &'a TargetModel,
    alphabet: &'a Alphabet,
    seed: u64,
    /// Number of tokens of a trunk.
    trunk_length: usize,
    border: usize,
    /// Number of fillings of the positions between trunk and border.
    fillings_per_trunk: u64,
    /// Number of trunks, if they are enumerated; `None` if they are sampled.
    trunk_count: Option<u64>,
    /// Number of prefixes that one thread runs at a time.
    batch_size: u64,
}

impl<'a> Prefixes<'a> {
    fn new(target: &'a TargetModel, alphabet: &'a Alphabet, budget: &SearchBudget, border: usize) -> Self {
        let (seed, batch_size) = (budget.seed, target.batch_size(budget.memory_bytes, MAX_BATCH_SIZE));
        let filling_count = |trunk: usize| alphabet.filling_count(trunk..border, batch_size / 4);
        let trunk_length = (0..border).find(|trunk| filling_count(*trunk).is_some()).unwrap_or(border);
        let trunk_count = alphabet
            .filling_count(0..border, MAX_ENUMERATED)
            .and_then(|_| alphabet.filling_count(0..trunk_length, MAX_ENUMERATED));
        let fillings_per_trunk = filling_count(trunk_length).unwrap_or(1);
        Self { target, alphabet, seed, trunk_length, border, fillings_per_trunk, trunk_count, batch_size }
    }

    fn trunks_per_batch(&self) -> u64 {
        (self.batch_size / self.fillings_per_trunk).max(1)
    }

    /// The trunks of a batch; empty after the last trunk.
    fn batch(&self, batch: u64) -> Range<u64> {
        let (size, end) = (self.trunks_per_batch(), self.trunk_count.unwrap_or(u64::MAX));
        (batch * size).min(end)..((batch + 1) * size).min(end)
    }

    fn trunk(&self, number: u64) -> Vec<u32> {
        let sample = if self.trunk_count.is_some() { 0 } else { number };
        let mut tokens = sample_prompt(self.target.task(), self.seed, sample);
        if self.trunk_count.is_some() {
            self.alphabet.write_filling(number, 0..self.trunk_length, &mut tokens);
        }
        tokens.truncate(self.trunk_length * self.alphabet.ids_per_token);
        tokens
    }

    /// A prompt with prefix `number`.
    fn prompt(&self, number: u64) -> Vec<u32> {
        let mut tokens = sample_prompt(self.target.task(), self.seed, number / self.fillings_per_trunk);
        let trunk = self.trunk(number / self.fillings_per_trunk);
        tokens[..trunk.len()].copy_from_slice(&trunk);
        self.alphabet.write_filling(number % self.fillings_per_trunk, self.trunk_length..self.border, &mut tokens);
        tokens
    }

    /// The hashes of the states of all prefixes of a batch, in the order of their numbers.
    fn states(&self, batch: Range<u64>) -> Result<Vec<u64>, ModelError> {
        let runner = Runner::new(self.target);
        let mut rows = (batch.end - batch.start) as usize;
        let mut state = if self.trunk_length == 0 {
            None
        } else {
            let tokens: Vec<u32> = batch.flat_map(|number| self.trunk(number)).collect();
            Some(runner.state(&tokens, rows, None)?)
        };
        for position in self.trunk_length..self.border {
            let tokens = self.alphabet.tokens_at(position);
            let parents: Vec<usize> = (0..rows).flat_map(|row| std::iter::repeat_n(row, tokens.len())).collect();
            let next_tokens: Vec<u32> =
                tokens.iter().flatten().copied().cycle().take(parents.len() * self.alphabet.ids_per_token).collect();
            let start_states = state.as_ref().map(|state| runner.select_rows(state, &parents));
            rows = parents.len();
            state = Some(runner.state(&next_tokens, rows, start_states.as_ref())?);
        }
        Ok(state.map(|state| runner.signatures(&state)).unwrap_or_default())
    }

    /// The prefixes of two prompts with a common ending after which the right answers differ.
    fn pair_with_different_answers(&self, first: &[u32], second: &[u32], question: usize) -> Option<[Vec<u32>; 2]> {
        let end = self.border * self.alphabet.ids_per_token;
        let own_endings = [first[end..].to_vec(), second[end..].to_vec()].into_iter();
        let sampled_endings =
            (0..MAX_ENDINGS).map(|number| sample_prompt(self.target.task(), !self.seed, number)[end..].to_vec());
        own_endings.chain(sampled_endings).find_map(|ending| {
            let pair = [first, second].map(|prompt| [&prompt[..end], &ending[..]].concat());
            let [first_answer, second_answer] = [0, 1].map(|index| self.target.answer(&pair[index], question));
            (first_answer.is_some() && second_answer.is_some() && first_answer != second_answer).then_some(pair)
        })
    }
}

/// Searches for two prefixes with the same state.
///
/// # Errors
/// The model cannot run on its task.
pub fn search_state_collision(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let (border, question) = (border(target), target.question());
    let alphabet = Alphabet::sample(target.task(), budget.seed);
    let mut report = MethodReport::new(Method::StateCollision, "prefixes");
    if border == 0 {
        "the first token is the question".clone_into(&mut report.note);
        return Ok((None, report));
    }
    let prefixes = Prefixes::new(target, &alphabet, budget, border);
    let max_entries = (budget.memory_bytes / ENTRY_BYTES).max(1) as usize;
    // From the hash of a state to the first prefix that has it.
    let mut prefix_by_state: HashMap<u64, u64> = HashMap::new();
    let mut distinct_states = 0_u64;
    for round in 0.. {
        let batches: Vec<Range<u64>> =
            (0..BATCHES_PER_ROUND).map(|batch| prefixes.batch(round * BATCHES_PER_ROUND + batch)).collect();
        let batches: Vec<Range<u64>> = batches.into_iter().filter(|batch| !batch.is_empty()).collect();
        if batches.is_empty() {
            report.complete = true;
            break;
        }
        let states = parallel::map(&batches, |batch| prefixes.states(batch.clone()));
        for (batch, states) in batches.iter().zip(states) {
            for (row, signature) in states?.into_iter().enumerate() {
                let number = batch.start * prefixes.fillings_per_trunk + row as u64;
                report.candidates += 1;
                let Some(earlier_number) = prefix_by_state.get(&signature).copied() else {
                    distinct_states += 1;
                    if prefix_by_state.len() < max_entries {
                        prefix_by_state.insert(signature, number);
                    }
                    continue;
                };
                let [first, second] = [earlier_number, number].map(|number| prefixes.prompt(number));
                let Some(pair) = prefixes.pair_with_different_answers(&first, &second, question) else { continue };
                if let Ok(witness) = build_witness(target, &pair, question)?
                    && witness.state.is_some()
                {
                    report.note = states_note(target, border, distinct_states);
                    return Ok((Some(witness), report));
                }
                report.unconfirmed += 1;
            }
        }
        stop.report_progress(report.candidates);
        if stop.is_reached() || report.unconfirmed > MAX_UNCONFIRMED {
            break;
        }
    }
    report.note = states_note(target, border, distinct_states);
    Ok((None, report))
}

/// The number and size of the states that were compared, in words.
fn states_note(target: &TargetModel, border: usize, distinct_states: u64) -> String {
    let bits = state_size(target) * u128::from(target.state_bits());
    format!("{distinct_states} different states after {border} tokens, of {bits} bits each")
}

/// Size of the state that passes from token to token.
pub(super) fn state_size(target: &TargetModel) -> u128 {
    let mixers = target.network.plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    mixers.map(|mixer| mixer.facts().state_size() + mixer.facts().input_conv_state).sum()
}

/// Repeats a token until two different first tokens give the same state.
///
/// # Errors
/// The model cannot run on its task.
pub fn search_repetitions(
    target: &TargetModel,
    budget: &SearchBudget,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let (border, question) = (border(target), target.question());
    let alphabet = Alphabet::sample(target.task(), budget.seed);
    let mut report = MethodReport::new(Method::Drowning, "repeated tokens");
    if border < 2 || alphabet.tokens_at(0) != alphabet.tokens_at(border - 1) {
        "no token of this task can be repeated".clone_into(&mut report.note);
        return Ok((None, report));
    }
    let tokens = alphabet.tokens_at(0);
    let prefixes = Prefixes::new(target, &alphabet, budget, border);
    let repeated_prompt = |first: &[u32], repeated: &[u32]| {
        let mut prompt = sample_prompt(target.task(), budget.seed, 0);
        for (position, token) in prompt.chunks_exact_mut(alphabet.ids_per_token).take(border).enumerate() {
            token.copy_from_slice(if position == 0 { first } else { repeated });
        }
        prompt
    };
    let states_after = |repeated: &Vec<u32>| -> Result<Vec<u64>, ModelError> {
        let runner = Runner::new(target);
        let length = border * alphabet.ids_per_token;
        let mut signatures = Vec::with_capacity(tokens.len());
        for batch in tokens.chunks(prefixes.batch_size as usize) {
            let prompts: Vec<u32> =
                batch.iter().flat_map(|first| repeated_prompt(first, repeated)[..length].to_vec()).collect();
            signatures.extend(runner.signatures(&runner.state(&prompts, batch.len(), None)?));
        }
        Ok(signatures)
    };
    for batch in tokens.chunks(4) {
        for (repeated, states) in batch.iter().zip(parallel::map(batch, states_after)) {
            report.candidates += 1;
            let mut token_by_state = HashMap::new();
            for (token, signature) in tokens.iter().zip(states?) {
                let earlier_token: &Vec<u32> = token_by_state.entry(signature).or_insert(token);
                if earlier_token == token {
                    continue;
                }
                let [first, second] = [earlier_token, token].map(|first| repeated_prompt(first, repeated));
                let Some(pair) = prefixes.pair_with_different_answers(&first, &second, question) else { continue };
                if let Ok(witness) = build_witness(target, &pair, question)? {
                    return Ok((Some(witness), report));
                }
                report.unconfirmed += 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, RequestedPrecision};
    use rung_train::run::RunConfig;

    #[test]
    fn states_from_trees_are_those_of_complete_prefixes() {
        for (stack, m) in [
            ("linear{heads=1,key=2,value=3}", 5),
            ("mamba2{heads=1,head=4,state=2,conv=2}", 3),
            ("gdn{heads=1,key=2,value=2}", 4),
        ] {
            let mut config = RunConfig::new(stack, format!("funccomp{{hops=1,m={m}}}"));
            (config.model.heads, config.model.head, config.model.embedding_scale) = (1, 8, 1.0);
            let target =
                TargetModel::open(Origin::Untrained(Box::new(config)), None, RequestedPrecision::Bits(8, None))
                    .unwrap();
            let alphabet = Alphabet::sample(target.task(), 0);
            let prefixes = Prefixes::new(&target, &alphabet, &SearchBudget::default(), border(&target));
            let (batch, runner) = (prefixes.batch(0), Runner::new(&target));
            let from_tree = prefixes.states(batch.clone()).unwrap();
            assert_eq!(from_tree.len() as u64, (batch.end - batch.start) * prefixes.fillings_per_trunk);
            for number in [0, 1, 7, from_tree.len() - 1] {
                let prompt = prefixes.prompt(batch.start * prefixes.fillings_per_trunk + number as u64);
                let state = runner.state(&prompt[..prefixes.border * alphabet.ids_per_token], 1, None).unwrap();
                assert_eq!(from_tree[number], runner.signatures(&state)[0], "{stack}: {number}");
            }
        }
    }
}
