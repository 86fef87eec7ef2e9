//! The indistinguishable decomposition of the lower bound, built explicitly where it is small enough.
//!
//! The proof for two hops and one full layer keeps lists Z_0 of starts and Z_1 of first tables, and a set R of second tables, such that
//! for all choices from the lists and all queries nobody after the second table can tell members of R apart. If two members differ
//! at an argument that some choice reaches, the answers differ and the model's do not. The proof shows that such sets exist by counting;
//! here, all second tables are run with all starts, queries and first tables, and sorted by what the later tokens come to hold.
//!
//! ```text
//! z_2 (all N^N of them)  |  z_1 in Z_1, z_0 in Z_0, w: what they see is the same for every z_2 in R
//! ```

use std::collections::HashMap;

use rung_theory::task::funccomp::{FuncComp, Instance, Order, Query};
use rung_theory::task::{Prompt, Task as _};
use serde::{Deserialize, Serialize};

use super::check::{Refusal, refuse, write_down};
use super::suspect::{Runner, Suspect};
use super::witness::Witness;
use super::{Clock, FalsifyError, Method, Tried};
use crate::parallel;

/// The most second tables that are gone through.
const MOST_TABLES: u128 = 1 << 14;
/// The most first tables.
const MOST_FIRST: u128 = 32;

/// The sets of the proof.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decomposition {
    /// Z_0.
    pub starts: Vec<u32>,
    /// Every w.
    pub queries: Vec<u32>,
    /// Z_1: first tables.
    pub first: Vec<Vec<u32>>,
    /// R: second tables that look alike.
    pub alike: Vec<Vec<u32>>,
    /// All second tables there are.
    pub of: u64,
}

impl Decomposition {
    /// log2 of the share that R is of all second tables, without its sign.
    pub fn delta(&self) -> f64 {
        (self.of as f64 / self.alike.len() as f64).log2()
    }

    /// Runs every choice from the lists with every member, and compares what later tokens hold.
    ///
    /// # Errors
    /// The model refuses the tokens.
    pub fn check(&self, suspect: &Suspect) -> Result<Result<(), Refusal>, FalsifyError> {
        let Some(task) = two_hops(suspect) else {
            return Ok(refuse("decomposition", "found for a task that has none"));
        };
        let sizes = task.sizes();
        let fits =
            |table: &Vec<u32>, size: u32| table.len() == size as usize && table.iter().all(|value| *value < size);
        let sound = self.first.iter().all(|table| fits(table, sizes[0]))
            && self.alike.iter().all(|table| fits(table, sizes[1]))
            && self.starts.iter().all(|start| *start < sizes[0])
            && self.queries.iter().all(|query| *query < task.branches()[0])
            && u128::from(self.of) == tables(sizes[1]).unwrap_or(0);
        if !sound || self.alike.len() < 2 {
            return Ok(refuse("decomposition", "found sets that are not of this task"));
        }
        let runner = Runner::new(suspect);
        for first in &self.first {
            for (start, query) in self.choices() {
                let mut seen = None;
                for second in &self.alike {
                    let prompt = prompt(task, first, second, start, query);
                    let views = runner.views(&prompt, 1, None)?;
                    let signature = views.signature(0, &(sizes[1] as usize..views.time));
                    if *seen.get_or_insert(signature) != signature {
                        return Ok(refuse("decomposition", "later tokens tell two members apart"));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn choices(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.starts.iter().flat_map(|start| self.queries.iter().map(move |query| (*start, *query)))
    }
}

/// The task, if it is one of two hops in the hard order with one question.
fn two_hops(suspect: &Suspect) -> Option<&FuncComp> {
    let task: &dyn std::any::Any = suspect.task();
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
    let instance = Instance { tables, queries: vec![Query { start, parts: vec![query], hops: 2 }] };
    let mut prompt = Prompt::new();
    task.encode(&instance, &mut prompt);
    prompt.tokens().to_vec()
}

/// Whether the sets can be built for this suspect.
pub fn small_enough(suspect: &Suspect) -> bool {
    two_hops(suspect).is_some_and(|task| {
        let sizes = task.sizes();
        tables(sizes[1]).is_some_and(|count| count <= MOST_TABLES)
            && tables(sizes[0]).is_some_and(|count| count <= MOST_FIRST)
    })
}

/// Builds the sets, as large as greed makes them, and a witness from two members.
///
/// # Errors
/// The model refuses its own task.
pub fn decompose(suspect: &Suspect, clock: &Clock<'_>) -> Result<(Option<Witness>, Tried), FalsifyError> {
    let Some(task) = two_hops(suspect) else { unreachable!("asked for small tasks of two hops only") };
    let [small, large] = task.sizes() else { unreachable!("two hops have two tables") };
    let (small, large) = (*small, *large);
    let mut tried = Tried::new(Method::BorderSearch, "pairs of tables");
    let (firsts, seconds) = (tables(small).unwrap_or(0), tables(large).unwrap_or(0));
    let mut sets = Decomposition {
        starts: (0..small).collect(),
        queries: (0..task.branches()[0]).collect(),
        first: Vec::new(),
        alike: Vec::new(),
        of: seconds as u64,
    };
    // For every first table, what the later tokens hold with each second table.
    let mut seen: Vec<(Vec<u32>, Vec<u64>)> = Vec::new();
    for number in 0..firsts {
        let first = table(number, small);
        let each = (0..seconds).collect::<Vec<u128>>();
        let signatures =
            parallel::map(&each.chunks(64).collect::<Vec<_>>(), |chunk| signatures(suspect, &sets, &first, chunk));
        let signatures: Result<Vec<Vec<u64>>, FalsifyError> = signatures.into_iter().collect();
        seen.push((first, signatures?.concat()));
        tried.candidates += seconds as u64;
        clock.tell(tried.candidates);
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
    let Some((pair, question)) = differing(task, &sets) else { return Ok((None, tried)) };
    let Ok(mut witness) = write_down(suspect, Method::BorderSearch, &pair, question)? else { return Ok((None, tried)) };
    witness.decomposition = Some(sets);
    let witness = witness.sealed();
    // The checker has the last word on the sets, too.
    Ok((super::check::check(&witness, suspect)?.is_ok().then_some(witness), tried))
}

/// What the later tokens hold, over all starts and queries, for some second tables.
fn signatures(
    suspect: &Suspect,
    sets: &Decomposition,
    first: &[u32],
    chunk: &[u128],
) -> Result<Vec<u64>, FalsifyError> {
    let (Some(task), runner) = (two_hops(suspect), Runner::new(suspect)) else { return Ok(Vec::new()) };
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
