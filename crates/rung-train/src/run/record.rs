//! What is kept of a finished run.
//!
//! A record is one line of JSON: the config with every default, what the theory says about its stack and task, every look, and
//! the last evaluation. There is no clock in it, so that a run repeated, interrupted and resumed, or made on another day gives the
//! same bytes. Reports are made from records and nothing else.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;

use rung_theory::bound::tables::Tables;
use rung_theory::bound::verdict::decide;
use rung_theory::stack::{Convention, Plan};
use rung_theory::task::AnyTask;
use rung_theory::task::funccomp::FuncComp;
use serde::{Deserialize, Serialize};

use super::config::{Run, RunConfig};
use super::error::RunError;
use super::evaluate::Found;
use super::source::stirred;
use super::tally::{Accuracy, rounded};
use super::trainer::{Look, Over, Progress};

/// Raised whenever a run of the same config gives other numbers: records of before are then made again.
pub const EDITION: u32 = 1;

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name: outline, seed, and a hash of the config.
    pub id: String,
    /// The edition of the trainer.
    pub edition: u32,
    /// What was run, every default spelled out.
    pub config: RunConfig,
    /// What the theory says about it.
    pub facts: Facts,
    /// Why it was over.
    pub over: Over,
    /// Steps taken.
    pub steps: usize,
    /// Mean cross-entropy at the end, in nats, on fresh prompts.
    pub loss: f64,
    /// The same for each group of questions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<u16, f64>,
    /// Right answers at the end, for each group of questions, on fresh prompts.
    pub accuracy: Accuracy,
    /// The same for the other tasks that were asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also: BTreeMap<String, Accuracy>,
    /// Every look on the way.
    pub looks: Vec<Look>,
}

/// Numbers of a run that follow from its config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Weights.
    pub weights: u64,
    /// Full layers.
    pub full_layers: usize,
    /// Whether a bounded-state layer earns the extra hop.
    pub extra_hop: bool,
    /// Hops that the layout allows for large tables.
    pub rungs: usize,
    /// Bits of each block's state, at 32 bits per number or as many as the model simulates.
    pub state_bits: Vec<u64>,
    /// Bits of the widest message.
    pub message_bits: u64,
    /// Tokens of a prompt.
    pub tokens: usize,
    /// What the best guess scores.
    pub baseline: f64,
    /// Hops of the task, if it is function composition.
    pub hops: Option<usize>,
    /// m log m: bits of the first table, if it is function composition.
    pub table_bits: Option<f64>,
    /// What is known about all hops of exactly these tables: `solved`, `impossible` or `unknown`, and why.
    pub verdict: Option<[String; 2]>,
}

impl Facts {
    /// Works them out.
    pub fn of(run: &Run) -> Self {
        let (capacity, task) = (run.plan.capacity_with(Convention::Paper), run.task());
        let narrow = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
        let sizes = table_sizes(&*task);
        let first = sizes.as_ref().map(|sizes| f64::from(sizes[0]));
        Self {
            weights: narrow(run.weights),
            full_layers: capacity.full,
            extra_hop: capacity.extra_hop,
            rungs: capacity.rungs,
            state_bits: capacity.state_bits().into_iter().map(narrow).collect(),
            message_bits: narrow(capacity.message_bits),
            tokens: task.length(),
            baseline: rounded(task.baseline()),
            verdict: sizes.as_ref().and_then(|sizes| verdict(&run.plan, sizes)),
            hops: sizes.map(|sizes| sizes.len()),
            table_bits: first.map(|m| rounded(m * m.log2())),
        }
    }
}

/// What the theory decides about tables of these sizes.
fn verdict(plan: &Plan, sizes: &[u32]) -> Option<[String; 2]> {
    let branches = sizes.windows(2).map(|pair| (pair[1] / pair[0]).into()).collect();
    let tables = Tables::new(sizes.len(), sizes[0].into(), branches).ok()?;
    let verdict = decide(plan, Convention::Paper, &tables);
    Some([verdict.word().to_owned(), verdict.reason()])
}

/// `N_0 .. N_(L-1)`, if the task is function composition.
pub fn table_sizes(task: &dyn AnyTask) -> Option<Vec<u32>> {
    (task as &dyn Any).downcast_ref::<FuncComp>().map(|task| task.sizes().to_vec())
}

impl Record {
    /// The record of a run that is over.
    pub fn new(run: &Run, progress: &Progress, found: Found, also: BTreeMap<String, Accuracy>) -> Self {
        Self {
            id: id(run),
            edition: EDITION,
            config: run.config.clone(),
            facts: Facts::of(run),
            over: progress.over.unwrap_or(Over::Finished),
            steps: progress.step,
            loss: found.loss,
            losses: found.losses,
            accuracy: found.accuracy,
            also,
            looks: progress.looks.clone(),
        }
    }

    /// The share of right answers to questions of this group; not a number if there were none.
    pub fn mean(&self, group: u16) -> f64 {
        self.accuracy.get(&group).map_or(f64::NAN, super::tally::Tally::mean)
    }

    /// The record as one line.
    pub fn line(&self) -> String {
        let text = serde_json::to_string(self);
        text.unwrap_or_else(|error| unreachable!("a record is plain data: {error}")) + "\n"
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The file cannot be read or is no record.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        let text = std::fs::read_to_string(path).map_err(|error| RunError::file(path, error))?;
        serde_json::from_str(&text).map_err(|error| RunError::file(path, format!("no record: {error}")))
    }
}

/// A run's name: what its layers are, its seed, and 48 bits of a hash of its whole config and the trainer's edition.
pub fn id(run: &Run) -> String {
    let text = serde_json::to_string(&run.config).unwrap_or_default();
    let hash = text.bytes().fold(stirred(u64::from(EDITION)), |hash, byte| stirred(hash ^ u64::from(byte)));
    let outline = run.plan.outline();
    let mut slug: String = outline.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    format!("{}-s{}-{:012x}", slug.trim_matches('-'), run.config.seed, hash & 0xFFFF_FFFF_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::task;

    #[test]
    fn table_sizes_are_read_off_the_task() {
        let sizes = |text: &str| table_sizes(&*task::parse(text).unwrap());
        assert_eq!(sizes("funccomp{hops=3,m=5,n=[2,3]}"), Some(vec![5, 10, 30]));
        assert_eq!(sizes("funccomp{hops=1,m=7}"), Some(vec![7]));
        assert_eq!(sizes("parity"), None);
    }

    #[test]
    fn names_tell_runs_apart() {
        let name = |stack: &str, seed| {
            let mut config = RunConfig::new(stack, "funccomp{hops=1,m=4}");
            config.seed = seed;
            id(&config.resolve().unwrap())
        };
        assert_eq!(name("gdn full", 1), name("gdn full", 1));
        assert_ne!(name("gdn full", 1), name("gdn full", 2));
        assert_ne!(name("gdn full", 1), name("gdn{conv=2} full", 1));
        assert!(name("gdn*3 full", 1).starts_with("gdn-3-full-s1-"));
    }
}
