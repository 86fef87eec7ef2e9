//! Function composition with variations for training: skewed tables, random renaming, chain of thought.
//!
//! `funccomp` is the task of the theory: uniform tables, values as ids, one answer. This task varies it to ask: are tables learned
//! that are not uniform? Does a model that was trained on small tables generalise to large ones? How much does chain of thought
//! help?
//!
//! # Definition
//!
//! Sizes, tables, start, query and look-ups are those of `funccomp` in its `hard` order, with three settings more.
//!
//! - `tables` says how the values of a table of N entries are drawn: `uniform`; `zipf`, value v with a chance in proportion to
//!   1/(v+1); `clustered`, where four arguments in a row have values among four in a row (modulo N), at a uniform offset;
//!   `permutation`, uniform among tables that repeat no value.
//! - `names`, if not 0: in every prompt the numbers of each level are renamed by a random injection into 0 .. `names`-1.
//!   Then tables of every size use the same names, so a model trained on small tables can be tested on large ones.
//! - `thoughts`, below `hops`: the number of chain-of-thought tokens after each query, without the answer. The answers at w and at the
//!   thoughts are intermediate values, evenly spread over the hops; the last is `i_L`. A thought after h hops has `i_h` as
//!   its value and repeats w. A model that gives all of these answers generates exactly these tokens.
//!
//! With `mixed=yes` each query has a random number of hops, as in `funccomp`, and there are no thoughts.
//!
//! Fields and kinds are those of `funccomp`; after the kinds of w there is one for each thought. The target class is the name of the
//! value; the metric group of a question is the number of hops to its answer.
//!
//! # One sample
//!
//! `chain{hops=2,m=3,n=[2],queries=2,mixed=no,tables=permutation,names=0,thoughts=1}`, seed 0:
//!
//! ```text
//! z2     (0,0)=1 (0,1)=0 (0,2)=4 (1,0)=3 (1,1)=2 (1,2)=5
//! z1     (0)=0 (1)=1 (2)=2
//! z0     2
//! w      (1) -> 2
//! at     2 -> 5
//! z0     1
//! w      (0) -> 1
//! at     1 -> 0
//! ```
//!
//! # Baseline
//!
//! A guess that does not read the table is right once in N; with `zipf` it guesses 0 and is right as often as 0
//! occurs; with `names` it is right once in `names`. The baseline is the mean over the questions.
//!
//! # Source
//!
//! Function composition: Chen, Peng and Wu (arXiv 2412.02975), as in `funccomp`. The settings are ours.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use super::funccomp::{FuncComp, Query};
use super::options::{Options, word_of, yes_no};
use super::{
    DistinctSampler, Field, MAX_IDS, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, Task, TaskBase, TaskError,
    fill_random, join_numbers, random_below, render, shuffle,
};

/// How the values of a table are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDistribution {
    /// Independent and uniform.
    Uniform,
    /// Value v with a probability proportional to 1/(v+1).
    Zipf,
    /// Four arguments in a row have values among four in a row.
    Clustered,
    /// A uniform permutation: no value occurs twice.
    Permutation,
}

const VALUE_DISTRIBUTIONS: [(&str, ValueDistribution); 4] = [
    ("uniform", ValueDistribution::Uniform),
    ("zipf", ValueDistribution::Zipf),
    ("clustered", ValueDistribution::Clustered),
    ("permutation", ValueDistribution::Permutation),
];

/// Arguments in a cluster, and values that a cluster draws from.
const CLUSTER_SIZE: usize = 4;

/// The first fields of a token, as in `funccomp`. `w_1` .. `w_(L-1)` follow.
const KIND: usize = 0;
const OUTER: usize = 1;
const INNER: usize = 2;
const VALUE: usize = 3;
/// The first of the selected row groups.
const FIRST_ROW_GROUP: usize = 4;

/// The task `chain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    composition: FuncComp,
    value_distribution: ValueDistribution,
    /// Number of names that values are renamed to; 0 for no renaming.
    name_count: u32,
    /// Chain-of-thought tokens per query.
    thought_count: usize,
    zipf_weights: ZipfWeights,
}

/// Cumulative weights of the values of the largest table, for `zipf`; smaller tables use a prefix. They take up to 64 megabytes, so they
/// are computed when the first prompt is drawn.
#[derive(Clone, Debug, Default)]
struct ZipfWeights(OnceLock<Vec<u32>>);

/// The weights follow from the sizes, so they do not distinguish tasks.
impl PartialEq for ZipfWeights {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ZipfWeights {}

impl ZipfWeights {
    /// The weight of value 0. That of value v is this divided by v + 1, rounded down, and at least 1.
    const FIRST_WEIGHT: u32 = 1 << 24;

    fn cumulative(&self, largest: u32) -> &[u32] {
        let weight = |total: &mut u32, value: u32| {
            *total += (Self::FIRST_WEIGHT / (value + 1)).max(1);
            Some(*total)
        };
        self.0.get_or_init(|| (0..largest).scan(0, weight).collect())
    }

    /// The sum of the weights of the values below `size`, without the table: few values have different weights.
    fn total(size: u32) -> u64 {
        let (mut total, mut rank) = (0, 1);
        while rank <= size {
            let weight = (Self::FIRST_WEIGHT / rank).max(1);
            let last_rank = if rank >= Self::FIRST_WEIGHT { size } else { (Self::FIRST_WEIGHT / weight).min(size) };
            total += u64::from(weight) * u64::from(last_rank - rank + 1);
            rank = last_rank + 1;
        }
        total
    }
}

/// Tables, queries and the names of values.
#[derive(Clone, Debug, Default)]
pub struct ChainInstance {
    composition: super::funccomp::FuncCompInstance,
    /// For each level, the name of every value.
    names: Vec<Vec<u32>>,
    sampler: DistinctSampler,
}

impl Chain {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let composition = FuncComp::parse_hard_order(options)?;
        let value_distribution = options.word("tables", &VALUE_DISTRIBUTIONS)?;
        let name_count = options.number_u32("names", 0, 0..=MAX_TOKENS as u32)?;
        let hops = composition.hops();
        let thought_count = options.number("thoughts", 0, 0..=MAX_TOKENS)? as usize;
        let largest = composition.sizes()[hops - 1];
        if name_count != 0 && name_count < largest {
            return Err(options
                .sizes_error(format!("{name_count} names for {largest} values"), "as many names as values, or 0"));
        }
        if thought_count >= hops {
            return Err(
                options.sizes_error(format!("{thought_count} thoughts for {hops} hops"), "fewer thoughts than hops")
            );
        }
        if thought_count > 0 && composition.mixed_hops() {
            return Err(options.sizes_error("thoughts with mixed=yes", "mixed=no"));
        }
        let tokens = (composition.length() as u64).saturating_add((thought_count * composition.query_count()) as u64);
        if tokens > MAX_TOKENS || tokens * (FIRST_ROW_GROUP + hops - 1) as u64 > MAX_IDS {
            return Err(
                options.sizes_error(format!("a prompt of {tokens} tokens"), format!("at most {MAX_TOKENS} tokens"))
            );
        }
        let zipf_weights = ZipfWeights::default();
        Ok(Self { composition, value_distribution, name_count, thought_count, zipf_weights })
    }

    /// The same task without renaming, skew and chain of thought.
    pub fn composition(&self) -> &FuncComp {
        &self.composition
    }

    /// Chain-of-thought tokens per query.
    pub fn thoughts(&self) -> usize {
        self.thought_count
    }

    /// The distribution of table values.
    pub fn value_distribution(&self) -> ValueDistribution {
        self.value_distribution
    }

    fn ids_per_token(&self) -> usize {
        FIRST_ROW_GROUP + self.composition.row_groups_per_table().len()
    }

    /// The number of hops to each answer about a query with this many hops: at w, then at each thought.
    fn hops_to_answers(&self, hops: usize) -> impl Iterator<Item = usize> + '_ {
        let answers = self.thought_count + 1;
        (1..=answers).map(move |answer| (answer * hops).div_ceil(answers))
    }

    /// The kind of a w token with this number of hops.
    fn query_kind(&self, hops: usize) -> u32 {
        (self.composition.hops() + if self.composition.mixed_hops() { hops } else { 1 }) as u32
    }

    /// The kind of the first thought; kinds below are those of `funccomp`.
    fn first_thought_kind(&self) -> u32 {
        self.query_kind(self.composition.hops()) + 1
    }

    /// The blank id of each field.
    fn blanks(&self) -> Vec<u32> {
        self.fields().iter().map(|field| field.vocabulary - 1).collect()
    }

    fn sample_table(&self, rng: &mut Rng, table: &mut [u32]) {
        let size = table.len() as u32;
        match self.value_distribution {
            ValueDistribution::Uniform => fill_random(rng, size, table),
            ValueDistribution::Zipf => {
                let largest = self.composition.sizes()[self.composition.hops() - 1];
                let weights = &self.zipf_weights.cumulative(largest)[..table.len()];
                let total = weights[table.len() - 1];
                for value in table {
                    let threshold = random_below(rng, total);
                    *value = weights.partition_point(|weight| *weight <= threshold) as u32;
                }
            }
            ValueDistribution::Clustered => {
                for cluster in table.chunks_mut(CLUSTER_SIZE) {
                    let offset = random_below(rng, size);
                    for value in cluster {
                        *value = (offset + random_below(rng, CLUSTER_SIZE as u32)) % size;
                    }
                }
            }
            ValueDistribution::Permutation => {
                (0..size).zip(&mut *table).for_each(|(number, value)| *value = number);
                shuffle(rng, table);
            }
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let composition = &self.composition;
        let tables = word_of(&VALUE_DISTRIBUTIONS, self.value_distribution);
        let (hops, m, row_groups_per_table) =
            (composition.hops(), composition.sizes()[0], join_numbers(composition.row_groups_per_table()));
        write!(
            out,
            "{}{{hops={hops},m={m},n=[{row_groups_per_table}],queries={},",
            Self::NAME,
            composition.query_count()
        )?;
        let (mixed, names, thoughts) = (yes_no(composition.mixed_hops()), self.name_count, self.thought_count);
        write!(out, "mixed={mixed},tables={tables},names={names},thoughts={thoughts}}}")
    }
}

impl TaskBase for Chain {
    fn groups_by_hops(&self) -> bool {
        true
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = self.composition.fields();
        fields[KIND].vocabulary = self.first_thought_kind() + self.thought_count as u32;
        for field in [INNER, VALUE] {
            if self.name_count > 0 {
                fields[field].vocabulary = self.name_count + 1;
            }
        }
        fields
    }

    fn classes(&self) -> u32 {
        if self.name_count == 0 { self.composition.classes() } else { self.name_count }
    }

    fn length(&self) -> usize {
        self.composition.length() + self.thought_count * self.composition.query_count()
    }

    fn baseline(&self) -> f64 {
        let sizes = self.composition.sizes();
        let chance_accuracy = |hops: usize| match self.value_distribution {
            _ if self.name_count > 0 => 1.0 / f64::from(self.name_count),
            ValueDistribution::Zipf => {
                f64::from(ZipfWeights::FIRST_WEIGHT) / ZipfWeights::total(sizes[hops - 1]) as f64
            }
            _ => 1.0 / f64::from(sizes[hops - 1]),
        };
        let mean = |hops: &mut dyn Iterator<Item = usize>| {
            let (sum, count) = hops.fold((0.0, 0.0), |(sum, count), hops| (sum + chance_accuracy(hops), count + 1.0));
            sum / count
        };
        if self.composition.mixed_hops() {
            mean(&mut (1..=sizes.len()))
        } else {
            mean(&mut self.hops_to_answers(sizes.len()))
        }
    }

    fn render(&self, prompt: &Prompt) -> String {
        let ids_per_token = prompt.ids_per_token().max(1);
        let rows: Vec<&[u32]> = prompt.tokens().chunks_exact(ids_per_token).collect();
        let (mut text, mut first_position, levels) = (String::new(), 0, self.composition.hops());
        for tokens in rows.chunk_by(|a, b| a[KIND] == b[KIND]) {
            let (kind, target) = (tokens[0][KIND] as usize, prompt.targets()[first_position]);
            let answer = if target == NO_TARGET { String::new() } else { format!(" -> {target}") };
            first_position += tokens.len();
            if kind < levels {
                let entry = |index: usize| match kind {
                    0 => format!("({})={}", tokens[index][INNER], tokens[index][VALUE]),
                    _ => format!("({},{})={}", tokens[index][OUTER], tokens[index][INNER], tokens[index][VALUE]),
                };
                render::list(&mut text, &format!("z{}", kind + 1), tokens.len(), entry);
            } else if kind == levels {
                render::list(&mut text, "z0", tokens.len(), |index| tokens[index][VALUE].to_string());
            } else if kind < self.first_thought_kind() as usize {
                let row_groups = join_numbers(&tokens[0][FIRST_ROW_GROUP..]);
                render::list(&mut text, "w", 1, |_| format!("({row_groups}){answer}"));
            } else {
                render::list(&mut text, "at", 1, |_| format!("{}{answer}", tokens[0][VALUE]));
            }
        }
        text
    }
}

impl Task for Chain {
    const NAME: &'static str = "chain";
    type Instance = ChainInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut ChainInstance) {
        self.composition.sample(rng, &mut instance.composition);
        if self.value_distribution != ValueDistribution::Uniform {
            for table in &mut instance.composition.tables {
                self.sample_table(rng, table);
            }
        }
        instance.names.resize_with(self.composition.hops(), Vec::new);
        for (names, size) in instance.names.iter_mut().zip(self.composition.sizes()) {
            names.clear();
            if self.name_count == 0 {
                names.extend(0..*size);
            } else {
                instance.sampler.sample(rng, self.name_count, *size as usize, names);
            }
        }
    }

    fn encode(&self, instance: &ChainInstance, prompt: &mut Prompt) {
        let (composition, names) = (&instance.composition, &instance.names);
        let (blanks, sizes) = (self.blanks(), self.composition.sizes());
        prompt.start(self.ids_per_token());
        let mut token = blanks.clone();
        for level in (0..self.composition.hops()).rev() {
            // The arguments and the values of the first table belong to the same level.
            let argument_level = level.saturating_sub(1);
            for (argument, value) in (0..sizes[level]).zip(&composition.tables[level]) {
                token[KIND] = level as u32;
                token[OUTER] = if level == 0 { blanks[OUTER] } else { argument / sizes[argument_level] };
                token[INNER] = names[argument_level][(argument % sizes[argument_level]) as usize];
                token[VALUE] = names[level][*value as usize];
                prompt.push(&token);
            }
        }
        for query in &composition.queries {
            token.copy_from_slice(&blanks);
            token[KIND] = self.composition.hops() as u32;
            token[VALUE] = names[0][query.start as usize];
            prompt.push(&token);
            token[VALUE] = blanks[VALUE];
            token[KIND] = self.query_kind(query.hops);
            token[FIRST_ROW_GROUP..].copy_from_slice(&query.row_groups);
            for (thought, hops) in self.hops_to_answers(query.hops).enumerate() {
                let value = self.composition.follow(composition, &Query { hops, ..query.clone() });
                let name = names[hops - 1][value as usize];
                prompt.push_question(&token, name, hops as u16);
                token[KIND] = self.first_thought_kind() + thought as u32;
                token[VALUE] = name;
            }
        }
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let (levels, outer_blank) = (self.composition.hops(), self.blanks()[OUTER]);
        let mut entries = HashMap::new();
        let mut targets = Vec::new();
        // The last value of the current query's look-ups in the tokens so far, and the number of hops to it.
        let (mut known_value, mut known_hops) = (None, 0);
        for (position, row) in tokens.chunks_exact(self.ids_per_token()).enumerate() {
            let error = |found: &str, expected: &str| OracleError::new::<Self>(position, found, expected);
            let kind = row[KIND] as usize;
            if kind < levels {
                if entries.insert((kind, row[OUTER], row[INNER]), row[VALUE]).is_some() {
                    return Err(error("the same entry again", "each entry once"));
                }
                targets.push(NO_TARGET);
                continue;
            }
            if kind == levels {
                (known_value, known_hops) = (Some(row[VALUE]), 0);
                targets.push(NO_TARGET);
                continue;
            }
            let query_hops = match kind.checked_sub(self.first_thought_kind() as usize) {
                Some(thought) => {
                    // Later look-ups continue from the thought's value, even if it is wrong.
                    known_value = Some(row[VALUE]);
                    known_hops = self.hops_to_answers(levels).nth(thought).unwrap_or(levels);
                    self.hops_to_answers(levels).nth(thought + 1).unwrap_or(levels)
                }
                None if self.composition.mixed_hops() => kind - levels,
                None => self.hops_to_answers(levels).next().unwrap_or(levels),
            };
            let mut value = known_value.ok_or_else(|| error("a query without its start", "one"))?;
            for level in known_hops..query_hops {
                let outer = if level == 0 { outer_blank } else { row[FIRST_ROW_GROUP + level - 1] };
                let entry = entries.get(&(level, outer, value));
                value = *entry.ok_or_else(|| error("a query without the entry it needs", "one"))?;
            }
            targets.push(if value == self.blanks()[VALUE] { NO_TARGET } else { value });
        }
        Ok(targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_zipf_weights_equals_that_of_the_table() {
        let weights = ZipfWeights::default();
        let table = weights.cumulative(100_000);
        for size in [1, 2, 3, 1000, 4095, 4096, 4097, 100_000] {
            assert_eq!(ZipfWeights::total(size), u64::from(table[size as usize - 1]), "{size}");
        }
    }

    #[test]
    fn a_task_has_no_weights_before_the_first_prompt() {
        let task = crate::task::parse("chain{hops=1,m=16000000,tables=zipf}").unwrap();
        assert!(task.baseline() > 0.0);
        let chain = (&*task as &dyn std::any::Any).downcast_ref::<Chain>().unwrap();
        assert!(chain.zipf_weights.0.get().is_none());
    }
}
