//! What is kept of a finished run.
//!
//! A record is one line of JSON: the config with every default, what the theory says about its stack and task, every evaluation, and
//! the last evaluation. There is no clock in it, so that a run repeated, interrupted and resumed, or made on another day gives the
//! same bytes. Reports are made from records and nothing else.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;

use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::stack::{Convention, Plan};
use rung_theory::task::funccomp::FuncComp;
use rung_theory::task::{AnyTask, splitmix64};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::accuracy::{Accuracy, rounded};
use super::config::{Run, RunConfig};
use super::error::RunError;
use super::evaluate::EvaluationResult;
use super::trainer::{Evaluation, Progress, StopReason};

/// The edition of the numerics: raised whenever a run of the same config gives other numbers. It is part of a run's id, so runs of
/// before keep their directories and are made again in others. A stored run makes sure that it is not forgotten.
pub const EDITION: u32 = 1;

/// The form of a record: raised when readers of before would misread it. New fields with a default do not change it.
pub const SCHEMA: u32 = 1;

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its name: outline, seed, and a hash of the config.
    pub id: String,
    /// The form of this record; 0 for those from before forms were counted.
    #[serde(default)]
    pub schema: u32,
    /// The edition of the numerics.
    pub edition: u32,
    /// What computed it.
    #[serde(default)]
    pub program: ProgramInfo,
    /// What was run, every default spelled out.
    pub config: RunConfig,
    /// What the theory says about it.
    pub facts: RunFacts,
    /// Why it was over.
    #[serde(rename = "over")]
    pub stop_reason: StopReason,
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
    /// Every evaluation on the way.
    #[serde(rename = "looks")]
    pub evaluations: Vec<Evaluation>,
}

/// What computed a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// The version of rung; empty for records from before it was kept.
    pub version: String,
    /// The vector instructions that kernels used: `avx512`, `avx2` or `none`. Sums are rounded otherwise with others.
    pub instructions: String,
}

impl ProgramInfo {
    /// This program on this machine.
    pub fn current() -> Self {
        let instructions = rung_engine::vector_instructions().to_owned();
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), instructions }
    }
}

/// Numbers of a run that follow from its config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
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

impl RunFacts {
    /// Works them out.
    pub fn of(run: &Run) -> Self {
        let (capacity, task) = (run.plan.capacity_with(Convention::Paper), run.task.task());
        let narrow = |bits: u128| u64::try_from(bits).unwrap_or(u64::MAX);
        let sizes = table_sizes(task);
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
    let tables = TableSizes::new(sizes.len(), sizes[0].into(), branches).ok()?;
    let verdict = StackBounds::new(plan, Convention::Paper).decide(&tables);
    Some([verdict.word().to_owned(), verdict.reason()])
}

/// `N_0 .. N_(L-1)`, if the task is function composition.
pub fn table_sizes(task: &dyn AnyTask) -> Option<Vec<u32>> {
    (task as &dyn Any).downcast_ref::<FuncComp>().map(|task| task.sizes().to_vec())
}

impl RunRecord {
    /// The record of a run that is over.
    pub fn new(run: &Run, progress: &Progress, found: EvaluationResult, also: BTreeMap<String, Accuracy>) -> Self {
        Self {
            id: id(run),
            schema: SCHEMA,
            edition: EDITION,
            program: ProgramInfo::current(),
            config: run.config.clone(),
            facts: RunFacts::of(run),
            stop_reason: progress.stop_reason.unwrap_or(StopReason::Finished),
            steps: progress.step,
            loss: found.loss,
            losses: found.losses,
            accuracy: found.accuracy,
            also,
            evaluations: progress.evaluations.clone(),
        }
    }

    /// The share of right answers to questions of this group; not a number if there were none.
    pub fn mean(&self, group: u16) -> f64 {
        self.accuracy.get(&group).map_or(f64::NAN, super::accuracy::AnswerCount::mean)
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
        let record: Self =
            serde_json::from_str(&text).map_err(|error| RunError::file(path, format!("no record: {error}")))?;
        if record.schema > SCHEMA {
            let Self { schema, program: ProgramInfo { version, .. }, .. } = record;
            let reason = format!("recorded by version {version} in form {schema}, expected at most form {SCHEMA}");
            return Err(RunError::file(path, reason));
        }
        Ok(record)
    }
}

/// A run's name: what its layers are, its seed, and 48 bits of a hash of its config and the edition of the numerics.
///
/// The hash is over the keys of `FIRST_KEYS`, default or not, and over other keys where they are not at their default. So a key that
/// is added with a default does not change the names of runs that do not use it.
pub fn id(run: &Run) -> String {
    let defaults = RunConfig::new(run.config.stack.clone(), run.config.task.clone());
    let [mut config, defaults] =
        [&run.config, &defaults].map(|config| serde_json::to_value(config).unwrap_or_default());
    drop_defaults(&mut config, &defaults, "");
    let text = config.to_string();
    let hash = text.bytes().fold(splitmix64(u64::from(EDITION)), |hash, byte| splitmix64(hash ^ u64::from(byte)));
    let outline = run.plan.outline();
    let mut slug: String = outline.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    format!("{}-s{}-{:012x}", slug.trim_matches('-'), run.config.seed, hash & 0xFFFF_FFFF_FFFF)
}

/// Keys that were there when names of runs were fixed; they are part of a name even at their default.
const FIRST_KEYS: [&str; 38] = [
    "stack",
    "task",
    "seed",
    "model",
    "model.heads",
    "model.head",
    "model.channel",
    "model.norm",
    "model.placement",
    "model.positions",
    "model.initial",
    "model.shared_tables",
    "model.tied_query_key",
    "model.tied_value_output",
    "model.query_key_scale",
    "model.scale",
    "model.embedding_scale",
    "model.chunk",
    "model.range",
    "train",
    "train.steps",
    "train.batch",
    "train.rate",
    "train.warmup",
    "train.course",
    "train.floor",
    "train.cooldown",
    "train.auxiliary",
    "train.decay",
    "train.betas",
    "train.clip",
    "train.threads",
    "evaluate",
    "evaluate.every",
    "evaluate.prompts",
    "evaluate.last",
    "evaluate.stop_at",
    "evaluate.patience",
];

/// Takes out what is at its default and was not there from the first.
fn drop_defaults(config: &mut Value, defaults: &Value, path: &str) {
    let Some(fields) = config.as_object_mut() else { return };
    fields.retain(|key, value| {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let default = defaults.get(key);
        if default == Some(value) && !FIRST_KEYS.contains(&path.as_str()) {
            return false;
        }
        drop_defaults(value, default.unwrap_or(&Value::Null), &path);
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::task;
    use serde_json::json;

    #[test]
    fn a_new_key_at_its_default_does_not_change_names() {
        let config = RunConfig::new("gdn full", "funccomp{hops=1,m=4}");
        let before = serde_json::to_value(&config).unwrap();
        let (mut with_new, mut used) = (before.clone(), before.clone());
        with_new["train"]["momentum"] = json!(0.9);
        used["train"]["momentum"] = json!(0.5);
        let hashed = |value: &Value, defaults: &Value| {
            let mut value = value.clone();
            drop_defaults(&mut value, defaults, "");
            value.to_string()
        };
        assert_eq!(hashed(&with_new, &with_new), hashed(&before, &before));
        assert_eq!(hashed(&before, &before), before.to_string(), "every key of today is one of the first");
        assert_ne!(hashed(&used, &with_new), hashed(&before, &before));
    }

    #[test]
    fn names_are_those_of_before() {
        let mut config = RunConfig::new("gdn full", "funccomp{hops=1,m=4,queries=4}");
        (config.model.heads, config.model.head) = (1, 8);
        (config.train.steps, config.train.batch, config.train.threads) = (2, 2, 2);
        (config.evaluate.prompts, config.evaluate.last) = (4, 8);
        assert_eq!(id(&config.resolve().unwrap()), "gdn-full-s0-58831a213a8b");
    }

    #[test]
    fn records_of_before_are_read_and_of_later_forms_refused() {
        let run = RunConfig::new("full", "parity").resolve().unwrap();
        let record = RunRecord {
            id: id(&run),
            schema: SCHEMA,
            edition: EDITION,
            program: ProgramInfo::current(),
            config: run.config.clone(),
            facts: RunFacts::of(&run),
            stop_reason: StopReason::Finished,
            steps: 1,
            loss: 0.5,
            losses: BTreeMap::new(),
            accuracy: Accuracy::new(),
            also: BTreeMap::new(),
            evaluations: Vec::new(),
        };
        let path = std::env::temp_dir().join(format!("rung-record-{}.json", std::process::id()));
        let read = |value: &Value| {
            std::fs::write(&path, value.to_string()).unwrap();
            RunRecord::read(&path)
        };
        let mut value: Value = serde_json::from_str(&record.line()).unwrap();
        assert_eq!(read(&value).unwrap(), record);
        value["schema"] = json!(SCHEMA + 1);
        value["program"]["version"] = json!("9.9.9");
        let message = read(&value).unwrap_err().to_string();
        assert!(message.contains("recorded by version 9.9.9"), "{message}");
        let fields = value.as_object_mut().unwrap();
        fields.remove("schema");
        fields.remove("program");
        let old = read(&value).unwrap();
        assert_eq!((old.schema, old.program, old.id), (0, ProgramInfo::default(), record.id));
        std::fs::remove_file(path).unwrap();
    }

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
