//! The "indistinguishable decomposition" of the lower bound's proof, built explicitly where it is small enough.
//!
//! The proof for two hops and one full layer has lists Z_0 of starts and Z_1 of first tables, and a set R of second tables, such that for
//! all choices from the lists and all queries the tokens after the second table have the same residual streams for every member of R. If
//! two members differ at an argument that some choice leads to, the right answers differ and the model's do not. The proof shows by
//! counting that such sets exist; here all second tables are run with all starts, queries and first tables, and grouped by the residual
//! streams of the later tokens.
//!
//! ```text
//! z_2 (all N^N with N rows)  |  z_1 in Z_1, z_0 in Z_0, w: their residual streams are the same for every z_2 in R
//! ```

use std::collections::HashMap;

use rung_theory::task::funccomp::{FuncComp, FuncCompInstance, Order, Query};
use rung_theory::task::{Prompt, Task as _, TaskBase as _};

use super::check::{WitnessRejection, build_witness, reject};
use super::target::{Runner, TargetModel};
use super::witness::{Decomposition, Witness};
use super::{FalsifyError, Method, MethodReport, StopCondition};
use rung_train::parallel;

/// The largest number of second tables for which the sets are built.
const MAX_SECOND_TABLES: u128 = 1 << 14;
/// The largest number of first tables for which the sets are built.
const MAX_FIRST_TABLES: u128 = 32;

impl Decomposition {
    /// Delta of the proof: log2 of the number of all second tables over the number of those in R.
    pub fn delta(&self) -> f64 {
        (self.second_table_count as f64 / self.indistinguishable.len() as f64).log2()
    }

    /// Recomputes the sets from the first tables and the first member of R: every second table is run with every choice from the lists until
    /// a residual stream of a later token differs. Rejected unless `inputs` are the first two prompts from the sets whose answers differ.
    ///
    /// # Errors
    /// The model cannot run on the tokens.
    pub fn recompute(
        &self,
        target: &TargetModel,
        inputs: &[Vec<u32>],
    ) -> Result<Result<Self, WitnessRejection>, FalsifyError> {
        let Some(task) = two_hop_task(target).filter(|_| is_small_enough(target)) else {
            return Ok(reject("decomposition", "the sets are only built for small tasks of two hops"));
        };
        if let Err(rejection) = self.check_tables(task) {
            return Ok(Err(rejection));
        }
        let mut sets = Self::empty(task);
        sets.first_tables.clone_from(&self.first_tables);
        sets.indistinguishable = sets.indistinguishable_from(target, task, &self.indistinguishable[0])?;
        let pair = pair_with_different_answers(task, &sets).map(|(pair, _)| pair);
        if pair.as_ref().map(|pair| &pair[..]) != Some(inputs) {
            return Ok(reject(
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
            queries: (0..task.row_groups_per_table()[0]).collect(),
            first_tables: Vec::new(),
            indistinguishable: Vec::new(),
            second_table_count: table_count(task.sizes()[1]).unwrap_or(0) as u64,
        }
    }

    /// Rejects first tables, and a first member of R, that are not tables of the task.
    fn check_tables(&self, task: &FuncComp) -> Result<(), WitnessRejection> {
        let fits = |table: &[u32], size: u32| table.len() == size as usize && table.iter().all(|value| *value < size);
        let [first_size, second_size] = [task.sizes()[0], task.sizes()[1]];
        if self.first_tables.is_empty() || !self.first_tables.iter().all(|table| fits(table, first_size)) {
            return reject(
                "decomposition.first",
                format!("expected at least one table, each of {first_size} values below {first_size}"),
            );
        }
        if !self.first_tables.is_sorted_by(|table, next| table < next) {
            return reject("decomposition.first", "expected different tables in increasing order");
        }
        if !self.indistinguishable.first().is_some_and(|table| fits(table, second_size)) {
            return reject(
                "decomposition.alike",
                format!("expected tables of {second_size} values below {second_size}"),
            );
        }
        Ok(())
    }

    /// Every second table with the same residual streams of later tokens as `member`, for all choices from the lists.
    fn indistinguishable_from(
        &self,
        target: &TargetModel,
        task: &FuncComp,
        member: &[u32],
    ) -> Result<Vec<Vec<u32>>, FalsifyError> {
        let later_residuals = |runner: &Runner<'_>, first: &[u32], second: &[u32], (start, query): (u32, u32)| {
            let outputs = runner.outputs(&prompt(task, first, second, start, query), 1, None)?;
            let first_later = second.len() * outputs.width;
            Ok::<_, FalsifyError>(
                outputs.residuals.iter().flat_map(|layer| layer[first_later..].to_vec()).collect::<Vec<f32>>(),
            )
        };
        let choices =
            || self.first_tables.iter().flat_map(|first| self.starts_and_queries().map(move |choice| (first, choice)));
        let runner = Runner::new(target);
        let expected: Vec<Vec<f32>> = choices()
            .map(|(first, choice)| later_residuals(&runner, first, member, choice))
            .collect::<Result<_, _>>()?;
        let is_indistinguishable = |runner: &Runner<'_>, second: &[u32]| -> Result<bool, FalsifyError> {
            for ((first, choice), expected) in choices().zip(&expected) {
                if later_residuals(runner, first, second, choice)? != *expected {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let all_tables: Vec<Vec<u32>> =
            (0..self.second_table_count).map(|number| nth_table(number.into(), task.sizes()[1])).collect();
        let batches = parallel::map(&all_tables.chunks(64).collect::<Vec<_>>(), |batch| {
            let runner = Runner::new(target);
            let matching =
                batch.iter().map(|second| Ok(is_indistinguishable(&runner, second)?.then(|| second.clone())));
            matching.filter_map(Result::transpose).collect::<Result<Vec<_>, FalsifyError>>()
        });
        Ok(batches.into_iter().collect::<Result<Vec<_>, FalsifyError>>()?.concat())
    }

    /// All pairs of a start and a query.
    fn starts_and_queries(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.starts.iter().flat_map(|start| self.queries.iter().map(move |query| (*start, *query)))
    }
}

/// The task, if it is function composition of two hops in the hard order with one question.
fn two_hop_task(target: &TargetModel) -> Option<&FuncComp> {
    let task: &dyn std::any::Any = target.task();
    task.downcast_ref::<FuncComp>().filter(|task| {
        task.hops() == 2 && task.order() == Order::LastTableFirst && task.query_count() == 1 && !task.mixed_hops()
    })
}

/// The number of tables of `size` entries with values below `size`.
fn table_count(size: u32) -> Option<u128> {
    u128::from(size).checked_pow(size)
}

/// Table `number` of `size` entries: the digits of the number in base `size`.
fn nth_table(mut number: u128, size: u32) -> Vec<u32> {
    let mut digit = || {
        let digit = number % u128::from(size);
        number /= u128::from(size);
        digit as u32
    };
    (0..size).map(|_| digit()).collect()
}

/// The prompt with these tables, start and query.
fn prompt(task: &FuncComp, first: &[u32], second: &[u32], start: u32, query: u32) -> Vec<u32> {
    let tables = vec![first.to_vec(), second.to_vec()];
    let instance = FuncCompInstance { tables, queries: vec![Query { start, row_groups: vec![query], hops: 2 }] };
    let mut prompt = Prompt::new();
    task.encode(&instance, &mut prompt);
    prompt.tokens().to_vec()
}

/// Whether the sets can be built for this target.
pub fn is_small_enough(target: &TargetModel) -> bool {
    two_hop_task(target).is_some_and(|task| {
        let sizes = task.sizes();
        table_count(sizes[1]).is_some_and(|count| count <= MAX_SECOND_TABLES)
            && table_count(sizes[0]).is_some_and(|count| count <= MAX_FIRST_TABLES)
    })
}

/// Builds the sets greedily, and a witness from two members of R.
///
/// # Errors
/// The model cannot run on its task.
pub fn decompose(
    target: &TargetModel,
    stop: &StopCondition<'_>,
) -> Result<(Option<Witness>, MethodReport), FalsifyError> {
    let Some(task) = two_hop_task(target) else { unreachable!("called for small tasks of two hops only") };
    let [first_size, second_size] = task.sizes() else { unreachable!("two hops have two tables") };
    let (first_size, second_size) = (*first_size, *second_size);
    let mut report = MethodReport::new(Method::BorderSearch, "pairs of tables");
    let (first_count, second_count) = (table_count(first_size).unwrap_or(0), table_count(second_size).unwrap_or(0));
    let mut sets = Decomposition::empty(task);
    // For every first table, a hash of the later tokens' residual streams with each second table.
    let mut candidates: Vec<(Vec<u32>, Vec<u64>)> = Vec::new();
    for number in 0..first_count {
        let first = nth_table(number, first_size);
        let numbers = (0..second_count).collect::<Vec<u128>>();
        let signatures =
            parallel::map(&numbers.chunks(64).collect::<Vec<_>>(), |batch| signatures(target, &sets, &first, batch));
        let signatures: Result<Vec<Vec<u64>>, FalsifyError> = signatures.into_iter().collect();
        candidates.push((first, signatures?.concat()));
        report.candidates += second_count as u64;
        stop.report_progress(report.candidates);
        if stop.is_reached() {
            break;
        }
    }
    // Each time add the first table that leaves the largest R.
    let mut joint_signatures = vec![0_u64; second_count as usize];
    while let Some((index, group)) = candidates
        .iter()
        .enumerate()
        .filter_map(|(index, (first, signatures))| {
            let first_tables: Vec<&Vec<u32>> = sets.first_tables.iter().chain([first]).collect();
            Some((index, largest_group(&sets, &first_tables, &joint_signatures, signatures, second_size)?))
        })
        .max_by_key(|(index, group)| (group.len(), usize::MAX - index))
    {
        let (first, signatures) = candidates.swap_remove(index);
        for (joint, signature) in joint_signatures.iter_mut().zip(signatures) {
            *joint = joint.rotate_left(17) ^ signature;
        }
        sets.first_tables.push(first);
        sets.indistinguishable = group.into_iter().map(|number| nth_table(number as u128, second_size)).collect();
    }
    report.complete = candidates.len() + sets.first_tables.len() == first_count as usize;
    let Some(member) = sets.indistinguishable.first().cloned() else { return Ok((None, report)) };
    // Compute R again as the checker does: each prompt alone, compared to the bit.
    sets.first_tables.sort();
    sets.indistinguishable = sets.indistinguishable_from(target, task, &member)?;
    let Some((pair, question)) = pair_with_different_answers(task, &sets) else { return Ok((None, report)) };
    let Ok(mut witness) = build_witness(target, &pair, question)? else { return Ok((None, report)) };
    witness.decomposition = Some(sets);
    Ok((Some(witness.with_digest()), report))
}

/// A hash of the later tokens' residual streams, over all starts and queries, for some second tables.
fn signatures(
    target: &TargetModel,
    sets: &Decomposition,
    first: &[u32],
    batch: &[u128],
) -> Result<Vec<u64>, FalsifyError> {
    let (Some(task), runner) = (two_hop_task(target), Runner::new(target)) else { return Ok(Vec::new()) };
    let second_size = task.sizes()[1];
    let mut signatures = vec![0_u64; batch.len()];
    for (start, query) in sets.starts_and_queries() {
        let prompts: Vec<u32> = batch
            .iter()
            .flat_map(|number| prompt(task, first, &nth_table(*number, second_size), start, query))
            .collect();
        let outputs = runner.outputs(&prompts, batch.len(), None)?;
        for (row, signature) in signatures.iter_mut().enumerate() {
            *signature =
                signature.rotate_left(17) ^ outputs.signature(row, &(second_size as usize..outputs.sequence_length));
        }
    }
    Ok(signatures)
}

/// The largest group of second tables with equal signatures in which two differ at a reachable argument. `joint` has the signatures with the
/// earlier first tables, `added` those with the last one.
fn largest_group(
    sets: &Decomposition,
    first_tables: &[&Vec<u32>],
    joint: &[u64],
    added: &[u64],
    second_size: u32,
) -> Option<Vec<usize>> {
    let mut groups: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for (number, (joint, added)) in joint.iter().zip(added).enumerate() {
        groups.entry((*joint, *added)).or_default().push(number);
    }
    let arguments = reachable_arguments(sets, first_tables);
    let has_different_answers = |group: &Vec<usize>| {
        let tables: Vec<Vec<u32>> = group.iter().map(|number| nth_table(*number as u128, second_size)).collect();
        arguments.iter().any(|argument| tables.iter().any(|table| table[*argument] != tables[0][*argument]))
    };
    groups.into_values().filter(has_different_answers).max_by_key(|group| (group.len(), usize::MAX - group[0]))
}

/// Arguments of the second table that some choice from the lists leads to.
fn reachable_arguments(sets: &Decomposition, first_tables: &[&Vec<u32>]) -> Vec<usize> {
    let mut arguments: Vec<usize> = first_tables
        .iter()
        .flat_map(|first| {
            sets.starts_and_queries()
                .map(move |(start, query)| query as usize * first.len() + first[start as usize] as usize)
        })
        .collect();
    arguments.sort_unstable();
    arguments.dedup();
    arguments
}

/// Two prompts with different answers, from two members of R and one choice from the lists, and the position of their question.
fn pair_with_different_answers(task: &FuncComp, sets: &Decomposition) -> Option<([Vec<u32>; 2], usize)> {
    let member = sets.indistinguishable.first()?;
    for first in &sets.first_tables {
        for (start, query) in sets.starts_and_queries() {
            let argument = query as usize * first.len() + first[start as usize] as usize;
            if let Some(other) = sets.indistinguishable.iter().find(|table| table[argument] != member[argument]) {
                let pair = [member, other].map(|second| prompt(task, first, second, start, query));
                return Some((pair, task.length() - 1));
            }
        }
    }
    None
}
