//! Function composition under other conditions: skewed tables, fresh names, thoughts written out.
//!
//! `funccomp` is what the theory speaks about: uniform tables, numbers that name themselves, one answer. Here the same walk is asked
//! for under conditions that training may care about. Are tables learned that are not uniform? Does what was learned on small
//! tables hold on large ones? What do steps help that the model writes down?
//!
//! # Definition
//!
//! Sizes, tables, start, query and walk are those of `funccomp` in its `hard` order, with three settings more.
//!
//! - `tables` says how the values of a table of N entries are drawn: `uniform`; `zipf`, value v with a chance in proportion to
//!   1/(v+1); `clustered`, where four arguments in a row have values among four in a row (modulo N), at a uniform place;
//!   `permutation`, uniform among tables that repeat no value.
//! - `names`, if not 0: the numbers of each level are renamed, in every prompt anew, by a uniform injection into 0 .. `names`-1.
//!   Then tables of every size use all names, and what was learned on small ones can be asked of large ones.
//! - `thoughts`, below `hops`: each query is followed by so many tokens that say how far the walk has come. The answer at w and at
//!   each thought is the next stop; the stops are spread evenly, the last being `i_L`. A thought after h hops holds `i_h` as its
//!   value and repeats w. Whoever answers every stop right writes exactly these tokens by himself.
//!
//! With `mixed=yes` each query draws its number of hops, as in `funccomp`, and there are no thoughts.
//!
//! Fields and kinds are those of `funccomp`; after the kinds of w there is one for each thought. The target class is the name of the
//! value; the group of a question is the number of hops to its answer.
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
//! A guess that does not read the table is right once in N; with `zipf` it says 0 and is right as often as 0 comes; with `names` it
//! does not even know which are in use. The mean over the questions is taken.
//!
//! # Source
//!
//! The walk: Chen, Peng and Wu (arXiv 2412.02975), as in `funccomp`. The settings are ours.

use std::collections::HashMap;
use std::fmt;

use super::funccomp::{FuncComp, Query};
use super::options::{Options, yes_no};
use super::{
    Distinct, Field, MAX_CELLS, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, Task, TaskError, below, draw, fill,
    listed_numbers, shuffle,
};

/// How the values of a table are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDistribution {
    /// Independent and uniform.
    Uniform,
    /// Small values more often.
    Zipf,
    /// Neighbours have neighbours as values.
    Clustered,
    /// No value twice.
    Permutation,
}

const TABLES: [(&str, ValueDistribution); 4] = [
    ("uniform", ValueDistribution::Uniform),
    ("zipf", ValueDistribution::Zipf),
    ("clustered", ValueDistribution::Clustered),
    ("permutation", ValueDistribution::Permutation),
];

/// Arguments that have neighbours as values.
const CLUSTER: usize = 4;

/// The first fields of a token, as `funccomp` has them. The parts of w follow.
const KIND: usize = 0;
const OUTER: usize = 1;
const INNER: usize = 2;
const VALUE: usize = 3;
const PARTS: usize = 4;

/// The task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    walk: FuncComp,
    tables: ValueDistribution,
    names: u32,
    thoughts: usize,
    /// For `zipf`: the weights of values up to each, of the largest table; those of smaller tables are the first of them.
    weights: Vec<u32>,
}

/// The walk and what numbers are called.
#[derive(Clone, Debug, Default)]
pub struct ChainInstance {
    walk: super::funccomp::FuncCompInstance,
    /// For each level, the name of every number.
    names: Vec<Vec<u32>>,
    distinct: Distinct,
}

impl Chain {
    pub(super) fn read(options: &mut Options) -> Result<Self, TaskError> {
        let walk = FuncComp::read_walk(options)?;
        let tables = options.word("tables", &TABLES)?;
        let names = options.small("names", 0, 0..=MAX_TOKENS as u32)?;
        let hops = walk.hops();
        let thoughts = options.number("thoughts", 0, 0..=MAX_TOKENS)? as usize;
        let largest = walk.sizes()[hops - 1];
        if names != 0 && names < largest {
            return Err(
                options.sizes_error(format!("{names} names for {largest} values"), "as many names as values, or 0")
            );
        }
        if thoughts >= hops {
            return Err(options.sizes_error(format!("{thoughts} thoughts for {hops} hops"), "fewer thoughts than hops"));
        }
        if thoughts > 0 && walk.mixed() {
            return Err(options.sizes_error("thoughts with mixed=yes", "mixed=no"));
        }
        let tokens = (Task::length(&walk) as u64).saturating_add((thoughts * walk.queries()) as u64);
        if tokens > MAX_TOKENS || tokens * (PARTS + hops - 1) as u64 > MAX_CELLS {
            return Err(
                options.sizes_error(format!("a prompt of {tokens} tokens"), format!("at most {MAX_TOKENS} tokens"))
            );
        }
        let weight = |total: &mut u32, value: u32| {
            *total += ((1 << 24) / (value + 1)).max(1);
            Some(*total)
        };
        let skewed = if tables == ValueDistribution::Zipf { largest } else { 0 };
        let weights = (0..skewed).scan(0, weight).collect();
        Ok(Self { walk, tables, names, thoughts, weights })
    }

    /// The walk without its settings.
    pub fn walk(&self) -> &FuncComp {
        &self.walk
    }

    /// Thoughts per query.
    pub fn thoughts(&self) -> usize {
        self.thoughts
    }

    /// How values are drawn.
    pub fn tables(&self) -> ValueDistribution {
        self.tables
    }

    fn width(&self) -> usize {
        PARTS + self.walk.branches().len()
    }

    /// Hops to the stops of a query that asks for `hops` of them.
    fn stops(&self, hops: usize) -> impl Iterator<Item = usize> + '_ {
        let stops = self.thoughts + 1;
        (1..=stops).map(move |stop| (stop * hops).div_ceil(stops))
    }

    fn query_kind(&self, hops: usize) -> u32 {
        (self.walk.hops() + if self.walk.mixed() { hops } else { 1 }) as u32
    }

    /// Kinds below this are those of `funccomp`.
    fn first_thought(&self) -> u32 {
        self.query_kind(self.walk.hops()) + 1
    }

    fn blanks(&self) -> Vec<u32> {
        Task::fields(self).iter().map(|field| field.vocabulary - 1).collect()
    }

    fn draw_table(&self, rng: &mut Rng, table: &mut [u32]) {
        let size = table.len() as u32;
        match self.tables {
            ValueDistribution::Uniform => fill(rng, size, table),
            ValueDistribution::Zipf => {
                let weights = &self.weights[..table.len()];
                let total = weights[table.len() - 1];
                for value in table {
                    let drawn = below(rng, total);
                    *value = weights.partition_point(|until| *until <= drawn) as u32;
                }
            }
            ValueDistribution::Clustered => {
                for cluster in table.chunks_mut(CLUSTER) {
                    let place = below(rng, size);
                    for value in cluster {
                        *value = (place + below(rng, CLUSTER as u32)) % size;
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
        let walk = &self.walk;
        let tables = TABLES.iter().find(|(_, tables)| *tables == self.tables).map_or("", |(word, _)| word);
        let (hops, m, branches) = (walk.hops(), walk.sizes()[0], listed_numbers(walk.branches()));
        write!(out, "{}{{hops={hops},m={m},n=[{branches}],queries={},", Self::NAME, walk.queries())?;
        let (mixed, names, thoughts) = (yes_no(walk.mixed()), self.names, self.thoughts);
        write!(out, "mixed={mixed},tables={tables},names={names},thoughts={thoughts}}}")
    }
}

impl Task for Chain {
    const NAME: &'static str = "chain";
    type Instance = ChainInstance;

    fn fields(&self) -> Vec<Field> {
        let mut fields = Task::fields(&self.walk);
        fields[KIND].vocabulary = self.first_thought() + self.thoughts as u32;
        for field in [INNER, VALUE] {
            if self.names > 0 {
                fields[field].vocabulary = self.names + 1;
            }
        }
        fields
    }

    fn classes(&self) -> u32 {
        if self.names == 0 { Task::classes(&self.walk) } else { self.names }
    }

    fn length(&self) -> usize {
        Task::length(&self.walk) + self.thoughts * self.walk.queries()
    }

    fn baseline(&self) -> f64 {
        let sizes = self.walk.sizes();
        let guess = |hops: usize| match self.tables {
            _ if self.names > 0 => 1.0 / f64::from(self.names),
            ValueDistribution::Zipf => {
                f64::from(self.weights[0]) / f64::from(self.weights[sizes[hops - 1] as usize - 1])
            }
            _ => 1.0 / f64::from(sizes[hops - 1]),
        };
        let mean = |hops: &mut dyn Iterator<Item = usize>| {
            let (sum, count) = hops.fold((0.0, 0.0), |(sum, count), hops| (sum + guess(hops), count + 1.0));
            sum / count
        };
        if self.walk.mixed() { mean(&mut (1..=sizes.len())) } else { mean(&mut self.stops(sizes.len())) }
    }

    fn sample(&self, rng: &mut Rng, instance: &mut ChainInstance) {
        Task::sample(&self.walk, rng, &mut instance.walk);
        if self.tables != ValueDistribution::Uniform {
            for table in &mut instance.walk.tables {
                self.draw_table(rng, table);
            }
        }
        instance.names.resize_with(self.walk.hops(), Vec::new);
        for (names, size) in instance.names.iter_mut().zip(self.walk.sizes()) {
            names.clear();
            if self.names == 0 {
                names.extend(0..*size);
            } else {
                instance.distinct.draw(rng, self.names, *size as usize, names);
            }
        }
    }

    fn encode(&self, instance: &ChainInstance, prompt: &mut Prompt) {
        let (walk, names) = (&instance.walk, &instance.names);
        let (blanks, sizes) = (self.blanks(), self.walk.sizes());
        prompt.start(self.width());
        let mut token = blanks.clone();
        for level in (0..self.walk.hops()).rev() {
            // Arguments of the first table and its values are numbers of the same level.
            let below = level.saturating_sub(1);
            for (argument, value) in (0..sizes[level]).zip(&walk.tables[level]) {
                token[KIND] = level as u32;
                token[OUTER] = if level == 0 { blanks[OUTER] } else { argument / sizes[below] };
                token[INNER] = names[below][(argument % sizes[below]) as usize];
                token[VALUE] = names[level][*value as usize];
                prompt.push(&token);
            }
        }
        for query in &walk.queries {
            token.copy_from_slice(&blanks);
            token[KIND] = self.walk.hops() as u32;
            token[VALUE] = names[0][query.start as usize];
            prompt.push(&token);
            token[VALUE] = blanks[VALUE];
            token[KIND] = self.query_kind(query.hops);
            token[PARTS..].copy_from_slice(&query.parts);
            for (thought, hops) in self.stops(query.hops).enumerate() {
                let reached = self.walk.follow(walk, &Query { hops, ..query.clone() });
                let name = names[hops - 1][reached as usize];
                prompt.push_question(&token, name, hops as u16);
                token[KIND] = self.first_thought() + thought as u32;
                token[VALUE] = name;
            }
        }
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        OracleError::check(self, tokens)?;
        let (levels, no_outer) = (self.walk.hops(), self.blanks()[OUTER]);
        let mut entries = HashMap::new();
        let mut targets = Vec::new();
        // Where the walk is, by the tokens so far: the name it has reached, and the hops to it.
        let (mut reached, mut hops) = (None, 0);
        for (position, row) in tokens.chunks_exact(self.width()).enumerate() {
            let wrong = |found: &str, expected: &str| OracleError::new::<Self>(position, found, expected);
            let kind = row[KIND] as usize;
            if kind < levels {
                if entries.insert((kind, row[OUTER], row[INNER]), row[VALUE]).is_some() {
                    return Err(wrong("the same entry again", "each entry once"));
                }
                targets.push(NO_TARGET);
                continue;
            }
            if kind == levels {
                (reached, hops) = (Some(row[VALUE]), 0);
                targets.push(NO_TARGET);
                continue;
            }
            let asked = match kind.checked_sub(self.first_thought() as usize) {
                Some(thought) => {
                    // What a thought says counts, whatever was right.
                    reached = Some(row[VALUE]);
                    hops = self.stops(levels).nth(thought).unwrap_or(levels);
                    self.stops(levels).nth(thought + 1).unwrap_or(levels)
                }
                None if self.walk.mixed() => kind - levels,
                None => self.stops(levels).next().unwrap_or(levels),
            };
            let mut at = reached.ok_or_else(|| wrong("a query without its start", "one"))?;
            for level in hops..asked {
                let outer = if level == 0 { no_outer } else { row[PARTS + level - 1] };
                let entry = entries.get(&(level, outer, at));
                at = *entry.ok_or_else(|| wrong("a query without the entry it needs", "one"))?;
            }
            targets.push(if at == self.blanks()[VALUE] { NO_TARGET } else { at });
        }
        Ok(targets)
    }

    fn draw(&self, prompt: &Prompt) -> String {
        let width = prompt.fields().max(1);
        let rows: Vec<&[u32]> = prompt.tokens().chunks_exact(width).collect();
        let (mut text, mut first, levels) = (String::new(), 0, self.walk.hops());
        for run in rows.chunk_by(|a, b| a[KIND] == b[KIND]) {
            let (kind, asked) = (run[0][KIND] as usize, prompt.targets()[first]);
            let answer = if asked == NO_TARGET { String::new() } else { format!(" -> {asked}") };
            first += run.len();
            if kind < levels {
                let entry = |at: usize| match kind {
                    0 => format!("({})={}", run[at][INNER], run[at][VALUE]),
                    _ => format!("({},{})={}", run[at][OUTER], run[at][INNER], run[at][VALUE]),
                };
                draw::list(&mut text, &format!("z{}", kind + 1), run.len(), entry);
            } else if kind == levels {
                draw::list(&mut text, "z0", run.len(), |at| run[at][VALUE].to_string());
            } else if kind < self.first_thought() as usize {
                let parts = listed_numbers(&run[0][PARTS..]);
                draw::list(&mut text, "w", 1, |_| format!("({parts}){answer}"));
            } else {
                draw::list(&mut text, "at", 1, |_| format!("{}{answer}", run[0][VALUE]));
            }
        }
        text
    }
}
