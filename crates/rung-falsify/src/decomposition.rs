//! The indistinguishable decomposition of the lower bound, built explicitly where it is small enough.
//!
//! The proof for two hops and one full layer keeps lists Z_0 of starts and Z_1 of first tables, and a set R of second tables, such that
//! for all choices from the lists and all queries no token after the second table can tell members of R apart. If two members differ
//! at an argument that some choice reaches, the answers differ and the model's do not. The proof shows that such sets exist by counting;
//! here, all second tables are run with all starts, queries and first tables, and sorted by what the later tokens come to hold.
//!
//! ```text
//! z_2 (all N^N of them)  |  z_1 in Z_1, z_0 in Z_0, w: what they see is the same for every z_2 in R
//! ```

use std::collections::HashMap;

use rung_theory::task::funccomp::{FuncComp, FuncCompInstance, Order, Query};
use rung_theory::task::{Prompt, Task as _};
use serde::{Deserialize, Serialize};

use super::check::{WitnessRefusal, refuse, write_down};
use super::target::{Runner, TargetModel};
use super::witness::Witness;
use super::{Clock, FalsifyError, Method, MethodReport};
use rung_train::parallel;

/// The most second tables that are gone through.
const MOST_TABLES: u128 = 1 << 14;
/// The most first tables.
const MOST_FIRST: u128 = 32;

/// The sets of the proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decomposition {
    /// Z_0: all starts.
    pub starts: Vec<u32>,
    /// Every w.
    pub queries: Vec<u32>,
    /// Z_1: first tables, in increasing order.
    pub first: Vec<Vec<u32>>,
    /// R: all second tables that look alike, in the order of their numbers.
    pub alike: Vec<Vec<u32>>,
    /// All second tables there are.
    pub of: u64,
}

impl Decomposition {
    /// log2 of the share that R is of all second tables, without its sign.
    pub fn delta(&self) -> f64 {
        (self.of as f64 / self.alike.len() as f64).log2()
    }

    /// The sets that belong to these first tables, to the first of these second tables and to these prompts: R is found anew among
    /// all second tables, each of which is run with every choice from the lists until a later token tells it from the first one.
    ///
    /// # Errors
    /// The model refuses the tokens.
    pub fn compute_again(
        &self,
        target: &TargetModel,
        inputs: &[Vec<u32>],
    ) -> Result<Result<Self, WitnessRefusal>, FalsifyError> {
        let Some(task) = two_hops(target).filter(|_| small_enough(target)) else {
            return Ok(refuse("decomposition", "found for a task whose sets are not built"));
        };
        if let Err(refusal) = self.check_tables(task) {
            return Ok(Err(refusal));
        }
        let mut sets = Self::empty(task);
        sets.first.clone_from(&self.first);
        sets.alike = sets.tables_like(target, task, &self.alike[0])?;
        let pair = differing(task, &sets).map(|(pair, _)| pair);
        if pair.as_ref().map(|pair| &pair[..]) != Some(inputs) {
            return Ok(refuse(
                "decomposition",
                "the prompts are not the first two from these sets whose answers differ",
            ));
        }
        Ok(Ok(sets))
    }

    /// All starts and queries, and no tables yet.
    fn empty(task: &FuncComp) -> Self {
        Self {
            starts: (0..task.sizes()[0]).collect(),
            queries: (0..task.branches()[0]).collect(),
            first: Vec::new(),
            alike: Vec::new(),
            of: tables(task.sizes()[1]).unwrap_or(0) as u64,
        }
    }

    /// Refuses first tables, and a first member of R, that are not of the task.
    fn check_tables(&self, task: &FuncComp) -> Result<(), WitnessRefusal> {
        let fits = |table: &[u32], size: u32| table.len() == size as usize && table.iter().all(|value| *value < size);
        let [small, large] = [task.sizes()[0], task.sizes()[1]];
        if self.first.is_empty() || !self.first.iter().all(|table| fits(table, small)) {
            return refuse(
                "decomposition.first",
                format!("expected at least one table, each of {small} values below it"),
            );
        }
        if !self.first.is_sorted_by(|one, next| one < next) {
            return refuse("decomposition.first", "expected different tables in increasing order");
        }
        if !self.alike.first().is_some_and(|table| fits(table, large)) {
            return refuse("decomposition.alike", format!("expected tables of {large} values below it"));
        }
        Ok(())
    }

    /// Every second table that later tokens cannot tell from this one, with any choice from the lists.
    fn tables_like(
        &self,
        target: &TargetModel,
        task: &FuncComp,
        member: &[u32],
    ) -> Result<Vec<Vec<u32>>, FalsifyError> {
        let later = |runner: &Runner<'_>, first: &[u32], second: &[u32], (start, query): (u32, u32)| {
            let views = runner.views(&prompt(task, first, second, start, query), 1, None)?;
            let from = second.len() * views.width;
            Ok::<_, FalsifyError>(views.layers.iter().flat_map(|layer| layer[from..].to_vec()).collect::<Vec<f32>>())
        };
        let choices = || self.first.iter().flat_map(|first| self.choices().map(move |choice| (first, choice)));
        let runner = Runner::new(target);
        let expected: Vec<Vec<f32>> =
            choices().map(|(first, choice)| later(&runner, first, member, choice)).collect::<Result<_, _>>()?;
        let is_like = |runner: &Runner<'_>, second: &[u32]| -> Result<bool, FalsifyError> {
            for ((first, choice), expected) in choices().zip(&expected) {
                if later(runner, first, second, choice)? != *expected {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let all: Vec<Vec<u32>> = (0..self.of).map(|number| table(number.into(), task.sizes()[1])).collect();
        let like = parallel::map(&all.chunks(64).collect::<Vec<_>>(), |chunk| {
            let runner = Runner::new(target);
            let chosen = chunk.iter().map(|second| Ok(is_like(&runner, second)?.then(|| second.clone())));
            chosen.filter_map(Result::transpose).collect::<Result<Vec<_>, FalsifyError>>()
        });
        Ok(like.into_iter().collect::<Result<Vec<_>, FalsifyError>>()?.concat())
    }

    fn choices(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.starts.iter().flat_map(|start| self.queries.iter().map(move |query| (*start, *query)))
    }
}

/// The task, if it is one of two hops in the hard order with one question.
fn two_hops(target: &TargetModel) -> Option<&FuncComp> {
    let task: &dyn std::any::Any = target.task();
    task.downcast_ref::<FuncComp>()
        .filter(|task| task.hops() == 2 && task.order() == Order::Hard && task.queries() == 1 && !task.mixed())
}

/// How many functions there are from `size` things to themselves.
fn tables(size: u32) -> Option<u128> {
    u128::from(size).checked_pow(size)
}

fn table(mut number: u128, size: u32) -> Vec<u32> {
    let mut digit = || {
        let digit = number % u128::from(size);
        number /= u128::from(size);
        digit as u32
    };
    (0..size).map(|_| digit()).collect()
}

fn prompt(task: &FuncComp, first: &[u32], second: &[u32], start: u32, query: u32) -> Vec<u32> {
    let tables = vec![first.to_vec(), second.to_vec()];
    let instance = FuncCompInstance { tables, queries: vec![Query { start, parts: vec![query], hops: 2 }] };
    let mut prompt = Prompt::new();
    task.encode(&instance, &mut prompt);
    prompt.tokens().to_vec()
}

/// Whether the sets can be built for this target.
pub fn small_enough(target: &TargetModel) -> bool {
    two_hops(target).is_some_and(|task| {
        let sizes = task.sizes();
        tables(sizes[1]).is_some_and(|count| count <= MOST_TABLES)
            && tables(sizes[0]).is_some_and(|count| count <= MOST_FIRST)
    })
}

/// Builds the sets, as large as greed makes them, and a witness from two members.
///
/// # Errors
/// The model refuses its own task.
pub fn decompose(target: &TargetModel, clock: &Clock<'_>) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let Some(task) = two_hops(target) else { unreachable!("asked for small tasks of two hops only") };
    let [small, large] = task.sizes() else { unreachable!("two hops have two tables") };
    let (small, large) = (*small, *large);
    let mut tried = MethodReport::new(Method::BorderSearch, "pairs of tables");
    let (firsts, seconds) = (tables(small).unwrap_or(0), tables(large).unwrap_or(0));
    let mut sets = Decomposition::empty(task);
    // For every first table, what the later tokens hold with each second table.
    let mut seen: Vec<(Vec<u32>, Vec<u64>)> = Vec::new();
    for number in 0..firsts {
        let first = table(number, small);
        let each = (0..seconds).collect::<Vec<u128>>();
        let signatures =
            parallel::map(&each.chunks(64).collect::<Vec<_>>(), |chunk| signatures(target, &sets, &first, chunk));
        let signatures: Result<Vec<Vec<u64>>, FalsifyError> = signatures.into_iter().collect();
        seen.push((first, signatures?.concat()));
        tried.candidates += seconds as u64;
        clock.report_progress(tried.candidates);
        if clock.over() {
            break;
        }
    }
    let mut joint = vec![0_u64; seconds as usize];
    while let Some((at, group)) = seen
        .iter()
        .enumerate()
        .filter_map(|(at, (first, signatures))| {
            let with: Vec<&Vec<u32>> = sets.first.iter().chain([first]).collect();
            Some((at, largest(&sets, &with, &joint, signatures, large)?))
        })
        .max_by_key(|(at, group)| (group.len(), usize::MAX - at))
    {
        let (first, signatures) = seen.swap_remove(at);
        for (joint, signature) in joint.iter_mut().zip(signatures) {
            *joint = joint.rotate_left(17) ^ signature;
        }
        sets.first.push(first);
        sets.alike = group.into_iter().map(|number| table(number as u128, large)).collect();
    }
    tried.complete = seen.len() + sets.first.len() == firsts as usize;
    let Some(member) = sets.alike.first().cloned() else { return Ok((None, tried)) };
    // The checker has the last word on the sets: whole prompts, alone, to the bit.
    sets.first.sort();
    sets.alike = sets.tables_like(target, task, &member)?;
    let Some((pair, question)) = differing(task, &sets) else { return Ok((None, tried)) };
    let Ok(mut witness) = write_down(target, &pair, question)? else { return Ok((None, tried)) };
    witness.decomposition = Some(sets);
    Ok((Some(witness.with_digest()), tried))
}

/// What the later tokens hold, over all starts and queries, for some second tables.
fn signatures(
    target: &TargetModel,
    sets: &Decomposition,
    first: &[u32],
    chunk: &[u128],
) -> Result<Vec<u64>, FalsifyError> {
    let (Some(task), runner) = (two_hops(target), Runner::new(target)) else { return Ok(Vec::new()) };
    let large = task.sizes()[1];
    let mut all = vec![0_u64; chunk.len()];
    for (start, query) in sets.choices() {
        let prompts: Vec<u32> =
            chunk.iter().flat_map(|number| prompt(task, first, &table(*number, large), start, query)).collect();
        let views = runner.views(&prompts, chunk.len(), None)?;
        for (row, joint) in all.iter_mut().enumerate() {
            *joint = joint.rotate_left(17) ^ views.signature(row, &(large as usize..views.time));
        }
    }
    Ok(all)
}

/// The largest set of second tables that look alike with all these first tables, and of which two differ where it matters.
fn largest(sets: &Decomposition, firsts: &[&Vec<u32>], joint: &[u64], own: &[u64], large: u32) -> Option<Vec<usize>> {
    let mut groups: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for (number, (joint, own)) in joint.iter().zip(own).enumerate() {
        groups.entry((*joint, *own)).or_default().push(number);
    }
    let reached = reachable(sets, firsts);
    let matters = |group: &Vec<usize>| {
        let tables: Vec<Vec<u32>> = group.iter().map(|number| table(*number as u128, large)).collect();
        reached.iter().any(|argument| tables.iter().any(|table| table[*argument] != tables[0][*argument]))
    };
    groups.into_values().filter(matters).max_by_key(|group| (group.len(), usize::MAX - group[0]))
}

/// Arguments of the second table that some choice from the lists leads to.
fn reachable(sets: &Decomposition, firsts: &[&Vec<u32>]) -> Vec<usize> {
    let mut reached: Vec<usize> = firsts
        .iter()
        .flat_map(|first| {
            sets.choices().map(move |(start, query)| query as usize * first.len() + first[start as usize] as usize)
        })
        .collect();
    reached.sort_unstable();
    reached.dedup();
    reached
}

/// Two members of R and a choice from the lists after which their answers differ.
fn differing(task: &FuncComp, sets: &Decomposition) -> Option<([Vec<u32>; 2], usize)> {
    let one = sets.alike.first()?;
    for first in &sets.first {
        for (start, query) in sets.choices() {
            let argument = query as usize * first.len() + first[start as usize] as usize;
            if let Some(other) = sets.alike.iter().find(|table| table[argument] != one[argument]) {
                let pair = [one, other].map(|second| prompt(task, first, second, start, query));
                return Some((pair, rung_theory::task::Task::length(task) - 1));
            }
        }
    }
    None
}
