//! State collision: two prefixes that leave the same state behind.
//!
//! Where nothing but a bounded state passes from token to token, two prefixes of a prompt with the same state are the same to the model
//! for ever after. Of b bits that are really used, about 2^(b/2) prefixes are enough for two to meet (a birthday), far fewer than
//! the pigeonhole asks for. To have a million states for little more than a million steps, prefixes grow as trees: a trunk is run
//! once, and its last few tokens go through all their values from the trunk's state.
//!
//! Each round runs a fixed set of trunks on all cores and enters the states in order, so the seed alone decides which two meet first.
//! The table of states keeps within the memory given; when it is full, new states are still compared with those in it.
//!
//! [`drown`] needs no luck: where a task lets a token stand again and again, it is repeated until two prefixes have led to the same
//! state, because the state has forgotten them (a decay, rounded) or has reached the end of its range.

use std::collections::HashMap;
use std::ops::Range;

use rung_nn::ModelError;
use rung_theory::task::funccomp::{FuncComp, Order};

use super::alphabet::{Alphabet, sample_prompt};
use super::check::write_down;
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{Clock, FalsifyError, Method, MethodReport, SearchBudget};
use rung_train::parallel;

/// States that one thread makes at a time, if the memory allows.
const ROWS: u64 = 1024;
/// Chunks of a round.
const CHUNKS: u64 = 8;
/// Prefixes that are gone through one by one, if there are no more.
const FEW: u64 = 1 << 22;
/// Bytes of an entry of the table with its share of empty places, while the table grows and both the old and the new one are there.
const ENTRY: u64 = 60;
/// Endings that are tried for two prefixes with one state.
const ENDINGS: u64 = 512;
/// Meetings that the checker may turn down before the search gives up: more would only be more of the same.
const TURNED_DOWN: u64 = 512;

/// Where prefixes end: after the tables of a composition, else just before the last question.
pub(super) fn border(target: &TargetModel) -> usize {
    let task: &dyn std::any::Any = target.task();
    match task.downcast_ref::<FuncComp>() {
        Some(task) if task.order() == Order::Hard => task.sizes().iter().map(|size| *size as usize).sum(),
        _ => target.question(),
    }
}

/// Prefixes by number.
struct Prefixes<'a> {
    target: &'a TargetModel,
    alphabet: &'a Alphabet,
    seed: u64,
    /// Trunk tokens.
    trunk: usize,
    border: usize,
    /// Ways to fill the tokens after the trunk.
    fan: u64,
    /// Ways to fill the trunk, if few.
    trunks: Option<u64>,
    /// States that one thread makes at a time.
    rows: u64,
}

impl<'a> Prefixes<'a> {
    fn new(target: &'a TargetModel, alphabet: &'a Alphabet, budget: &SearchBudget, border: usize) -> Self {
        let (seed, rows) = (budget.seed, target.rows(budget.memory, ROWS));
        let fan = |trunk: usize| alphabet.ways(trunk..border, rows / 4);
        let trunk = (0..border).find(|trunk| fan(*trunk).is_some()).unwrap_or(border);
        let trunks = alphabet.ways(0..border, FEW).and_then(|_| alphabet.ways(0..trunk, FEW));
        Self { target, alphabet, seed, trunk, border, fan: fan(trunk).unwrap_or(1), trunks, rows }
    }

    fn trunks_of_chunk(&self) -> u64 {
        (self.rows / self.fan).max(1)
    }

    /// The trunks of a chunk; none when all are done.
    fn chunk(&self, chunk: u64) -> Range<u64> {
        let (each, end) = (self.trunks_of_chunk(), self.trunks.unwrap_or(u64::MAX));
        (chunk * each).min(end)..((chunk + 1) * each).min(end)
    }

    fn trunk(&self, number: u64) -> Vec<u32> {
        let mut tokens = sample_prompt(self.target.task(), self.seed, if self.trunks.is_some() { 0 } else { number });
        if self.trunks.is_some() {
            self.alphabet.write(number, 0..self.trunk, &mut tokens);
        }
        tokens.truncate(self.trunk * self.alphabet.fields);
        tokens
    }

    /// A prompt whose prefix has this number.
    fn prompt(&self, number: u64) -> Vec<u32> {
        let mut tokens = sample_prompt(self.target.task(), self.seed, number / self.fan);
        let trunk = self.trunk(number / self.fan);
        tokens[..trunk.len()].copy_from_slice(&trunk);
        self.alphabet.write(number % self.fan, self.trunk..self.border, &mut tokens);
        tokens
    }

    /// The signatures of all states of a chunk, in the order of their numbers.
    fn states(&self, chunk: Range<u64>) -> Result<Vec<u64>, ModelError> {
        let runner = Runner::new(self.target);
        let mut rows = (chunk.end - chunk.start) as usize;
        let mut state = if self.trunk == 0 {
            None
        } else {
            let tokens: Vec<u32> = chunk.flat_map(|number| self.trunk(number)).collect();
            Some(runner.state(&tokens, rows, None)?)
        };
        for position in self.trunk..self.border {
            let tokens = self.alphabet.at(position);
            let parents: Vec<usize> = (0..rows).flat_map(|row| std::iter::repeat_n(row, tokens.len())).collect();
            let next: Vec<u32> =
                tokens.iter().flatten().copied().cycle().take(parents.len() * self.alphabet.fields).collect();
            let from = state.as_ref().map(|state| runner.fork(state, &parents));
            rows = parents.len();
            state = Some(runner.state(&next, rows, from.as_ref())?);
        }
        Ok(state.map(|state| runner.signatures(&state)).unwrap_or_default())
    }

    /// An ending after which the answers of two prompts differ.
    fn distinguished(&self, first: &[u32], second: &[u32], question: usize) -> Option<[Vec<u32>; 2]> {
        let at = self.border * self.alphabet.fields;
        let own = [first[at..].to_vec(), second[at..].to_vec()].into_iter();
        let drawn = (0..ENDINGS).map(|number| sample_prompt(self.target.task(), !self.seed, number)[at..].to_vec());
        own.chain(drawn).find_map(|ending| {
            let pair = [first, second].map(|prompt| [&prompt[..at], &ending[..]].concat());
            let [a, b] = [0, 1].map(|index| self.target.answer(&pair[index], question));
            (a.is_some() && b.is_some() && a != b).then_some(pair)
        })
    }
}

/// Searches for two prefixes with one state.
///
/// # Errors
/// The model refuses its own task.
pub fn birthday(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let (border, question) = (border(target), target.question());
    let alphabet = Alphabet::of(target.task(), budget.seed);
    let mut tried = MethodReport::new(Method::StateCollision, "prefixes");
    if border == 0 {
        "the first token already asks".clone_into(&mut tried.note);
        return Ok((None, tried));
    }
    let prefixes = Prefixes::new(target, &alphabet, budget, border);
    let most = (budget.memory / ENTRY).max(1) as usize;
    let mut table: HashMap<u64, u64> = HashMap::new();
    let mut distinct = 0_u64;
    for round in 0.. {
        let chunks: Vec<Range<u64>> = (0..CHUNKS).map(|chunk| prefixes.chunk(round * CHUNKS + chunk)).collect();
        let chunks: Vec<Range<u64>> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        if chunks.is_empty() {
            tried.complete = true;
            break;
        }
        let found = parallel::map(&chunks, |chunk| prefixes.states(chunk.clone()));
        for (chunk, states) in chunks.iter().zip(found) {
            for (row, signature) in states?.into_iter().enumerate() {
                let number = chunk.start * prefixes.fan + row as u64;
                tried.candidates += 1;
                let Some(earlier) = table.get(&signature).copied() else {
                    distinct += 1;
                    if table.len() < most {
                        table.insert(signature, number);
                    }
                    continue;
                };
                let [first, second] = [earlier, number].map(|number| prefixes.prompt(number));
                let Some(pair) = prefixes.distinguished(&first, &second, question) else { continue };
                if let Ok(witness) = write_down(target, &pair, question)?
                    && witness.state.is_some()
                {
                    tried.note = reach(target, border, distinct);
                    return Ok((Some(witness), tried));
                }
                tried.misled += 1;
            }
        }
        clock.report_progress(tried.candidates);
        if clock.over() || tried.misled > TURNED_DOWN {
            break;
        }
    }
    tried.note = reach(target, border, distinct);
    Ok((None, tried))
}

/// What the search came to, in words.
fn reach(target: &TargetModel, border: usize, distinct: u64) -> String {
    let bits = state_numbers(target) * u128::from(target.state_bits());
    format!("{distinct} different states after {border} tokens, of {bits} bits each")
}

/// Numbers of the state that passes from token to token.
pub(super) fn state_numbers(target: &TargetModel) -> u128 {
    let mixers = target.network.plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    mixers.map(|mixer| mixer.facts().crossing() + mixer.facts().input_conv_state).sum()
}

/// Repeats a token until two first tokens are forgotten.
///
/// # Errors
/// The model refuses its own task.
pub fn drown(
    target: &TargetModel,
    budget: &SearchBudget,
    clock: &Clock<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let (border, question) = (border(target), target.question());
    let alphabet = Alphabet::of(target.task(), budget.seed);
    let mut tried = MethodReport::new(Method::Drowning, "repeated tokens");
    if border < 2 || alphabet.at(0) != alphabet.at(border - 1) {
        "no token of this task can be repeated".clone_into(&mut tried.note);
        return Ok((None, tried));
    }
    let tokens = alphabet.at(0);
    let prefixes = Prefixes::new(target, &alphabet, budget, border);
    let repeat = |first: &[u32], again: &[u32]| {
        let mut prompt = sample_prompt(target.task(), budget.seed, 0);
        for (position, token) in prompt.chunks_exact_mut(alphabet.fields).take(border).enumerate() {
            token.copy_from_slice(if position == 0 { first } else { again });
        }
        prompt
    };
    let drowned = |again: &Vec<u32>| -> Result<Vec<u64>, ModelError> {
        let runner = Runner::new(target);
        let length = border * alphabet.fields;
        let mut signatures = Vec::with_capacity(tokens.len());
        for some in tokens.chunks(prefixes.rows as usize) {
            let prompts: Vec<u32> = some.iter().flat_map(|first| repeat(first, again)[..length].to_vec()).collect();
            signatures.extend(runner.signatures(&runner.state(&prompts, some.len(), None)?));
        }
        Ok(signatures)
    };
    for some in tokens.chunks(4) {
        for (again, states) in some.iter().zip(parallel::map(some, drowned)) {
            tried.candidates += 1;
            let mut first_with = HashMap::new();
            for (first, signature) in tokens.iter().zip(states?) {
                let earlier: &Vec<u32> = first_with.entry(signature).or_insert(first);
                if earlier == first {
                    continue;
                }
                let [one, other] = [earlier, first].map(|first| repeat(first, again));
                let Some(pair) = prefixes.distinguished(&one, &other, question) else { continue };
                if let Ok(witness) = write_down(target, &pair, question)? {
                    return Ok((Some(witness), tried));
                }
                tried.misled += 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, RequestedPrecision};
    use rung_train::run::RunConfig;

    /// States from trees are those of the same tokens read whole.
    #[test]
    fn trees_grow_the_states_of_whole_beginnings() {
        for (stack, m) in [
            ("linear{heads=1,key=2,value=3}", 5),
            ("mamba2{heads=1,head=4,state=2,conv=2}", 3),
            ("gdn{heads=1,key=2,value=2}", 4),
        ] {
            let mut config = RunConfig::new(stack, format!("funccomp{{hops=1,m={m}}}"));
            (config.model.heads, config.model.head, config.model.embedding_scale) = (1, 8, 1.0);
            let target =
                TargetModel::open(Origin::Fresh(Box::new(config)), None, RequestedPrecision::Bits(8, None)).unwrap();
            let alphabet = Alphabet::of(target.task(), 0);
            let prefixes = Prefixes::new(&target, &alphabet, &SearchBudget::default(), border(&target));
            let (chunk, runner) = (prefixes.chunk(0), Runner::new(&target));
            let grown = prefixes.states(chunk.clone()).unwrap();
            assert_eq!(grown.len() as u64, (chunk.end - chunk.start) * prefixes.fan);
            for number in [0, 1, 7, grown.len() - 1] {
                let prompt = prefixes.prompt(chunk.start * prefixes.fan + number as u64);
                let whole = runner.state(&prompt[..prefixes.border * alphabet.fields], 1, None).unwrap();
                assert_eq!(grown[number], runner.signatures(&whole)[0], "{stack}: {number}");
            }
        }
    }
}
