//! The record of a finished run.
//!
//! A record is one line of JSON: the config with every default, what the theory says about its stack and task, every evaluation
//! during training, and the final test. It contains no times, so that a run gives the same bytes when it is repeated or resumed.
//! Reports are made from records and nothing else.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;

use rung_nn::file::read_text;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::stack::{MessageSizeConvention, Plan};
use rung_theory::task::funccomp::FuncComp;
use rung_theory::task::{AnyTask, splitmix64};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::accuracy::{AccuracyByGroup, round_to_6_decimals};
use super::config::{Run, RunConfig};
use super::device::{ComputeDevice, NATIVE};
use super::error::RunError;
use super::evaluate::EvaluationResult;
use super::trainer::{Evaluation, Progress, StopReason};

/// The version of the numerics, raised whenever the same config gives different results. It is part of a run's id, so runs of earlier
/// versions keep their directories; under `runs/ID` they are repeated in new ones, and with an explicit `--out` that holds one it is an
/// error. The test `golden` fails if it was not raised.
pub const NUMERICS_VERSION: u32 = 3;

/// The version of the record's JSON, raised when earlier readers would misread it. A new field with a default does not change it.
pub const SCHEMA: u32 = 1;

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run's id: names of the stack's mixers, seed, and a hash of the config; see [`id`].
    pub id: String,
    /// [`SCHEMA`] of the program that wrote it; 0 for records from before there was a number.
    #[serde(default)]
    pub schema: u32,
    /// [`NUMERICS_VERSION`] of the program that wrote it.
    #[serde(rename = "edition")]
    pub numerics_version: u32,
    /// The program that wrote it.
    #[serde(default)]
    pub program: ProgramInfo,
    /// The device of the last steps and of the final test. Records of the native engine leave it out.
    #[serde(default = "native_device", skip_serializing_if = "is_native_device")]
    pub device: String,
    /// Steps on each device other than the native engine, which took all others. A run may be resumed on another device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_steps: BTreeMap<String, usize>,
    /// The config with every default.
    pub config: RunConfig,
    /// Sizes of the model and the task, and what the theory says about them.
    pub facts: RunFacts,
    /// Why the run ended.
    #[serde(rename = "over")]
    pub stop_reason: StopReason,
    /// Training steps.
    pub steps: usize,
    /// Mean cross-entropy of the final test, in nats.
    pub loss: f64,
    /// Mean cross-entropy of the final test for each metric group, in nats.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<u16, f64>,
    /// Correct answers of the final test, for each metric group.
    pub accuracy: AccuracyByGroup,
    /// Correct answers of the final test on the tasks of `evaluate.also`, by task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(rename = "also")]
    pub other_accuracy: BTreeMap<String, AccuracyByGroup>,
    /// Every evaluation during training.
    #[serde(rename = "looks")]
    pub evaluations: Vec<Evaluation>,
}

fn native_device() -> String {
    NATIVE.to_owned()
}

fn is_native_device(name: &str) -> bool {
    name == NATIVE
}

/// The program that wrote a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// The version of rung; empty for records from before it was stored.
    pub version: String,
    /// The vector instructions of the kernels: `amx`, `avx512`, `avx2` or `none`. They change the order of sums and so the rounding.
    pub instructions: String,
}

impl ProgramInfo {
    /// This program on this machine.
    pub fn current() -> Self {
        let instructions = rung_engine::vector_instructions().to_owned();
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), instructions }
    }
}

/// Sizes and theoretical predictions that follow from a run's config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Number of weights.
    pub weights: u64,
    /// Number of layers with full attention.
    pub full_layers: usize,
    /// Whether a bounded-state layer allows one hop more than the full layers.
    pub extra_hop: bool,
    /// Hops that the stack can compute for large tables.
    pub rungs: usize,
    /// Bits of the state of each block of bounded-state layers, at 32 bits per element or the precision that the model simulates.
    pub state_bits: Vec<u64>,
    /// The most bits that a token can learn from a prefix through one full layer.
    pub message_bits: u64,
    /// Tokens per prompt.
    pub tokens: usize,
    /// Accuracy of the best constant guess.
    pub baseline: f64,
    /// Hops of the task, if it is function composition.
    pub hops: Option<usize>,
    /// m log2 m: bits of the first table of m entries, if the task is function composition.
    pub table_bits: Option<f64>,
    /// Whether this stack can answer all hops on tables of these sizes: `solved`, `impossible` or `unknown`, and the reason.
    pub verdict: Option<[String; 2]>,
}

impl RunFacts {
    /// Computes the facts of a run.
    pub fn of(run: &Run) -> Self {
        let (capacity, task) = (run.plan.capacity_with(MessageSizeConvention::Paper), run.task.task());
        let saturate = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let sizes = table_sizes(task);
        let first_size = sizes.as_ref().map(|sizes| f64::from(sizes[0]));
        Self {
            weights: saturate(run.weight_count),
            full_layers: capacity.full_layers,
            extra_hop: capacity.extra_hop,
            rungs: capacity.rungs,
            state_bits: capacity.state_bits().into_iter().map(saturate).collect(),
            message_bits: saturate(capacity.message_bits),
            tokens: task.length(),
            baseline: round_to_6_decimals(task.baseline()),
            verdict: sizes.as_ref().and_then(|sizes| verdict(&run.plan, sizes)),
            hops: sizes.map(|sizes| sizes.len()),
            table_bits: first_size.map(|m| round_to_6_decimals(m * m.log2())),
        }
    }
}

/// What the theory decides about this stack on tables of these sizes: the verdict and its reason.
fn verdict(plan: &Plan, sizes: &[u32]) -> Option<[String; 2]> {
    let branches = sizes.windows(2).map(|pair| (pair[1] / pair[0]).into()).collect();
    let tables = TableSizes::new(sizes.len(), sizes[0].into(), branches).ok()?;
    let verdict = StackBounds::new(plan, MessageSizeConvention::Paper).decide(&tables);
    Some([verdict.name().to_owned(), verdict.reason()])
}

/// The number of entries of each table, the paper's `N_0 .. N_(L-1)`, if the task is function composition.
pub fn table_sizes(task: &dyn AnyTask) -> Option<Vec<u32>> {
    (task as &dyn Any).downcast_ref::<FuncComp>().map(|task| task.sizes().to_vec())
}

/// A longer record is an error; one evaluation takes a few hundred bytes.
const MAX_BYTES: u64 = 256 << 20;

impl RunRecord {
    /// The record of a run that was finished on `device`. `test` is the final test, `other_accuracy` that of the tasks of `evaluate.also`.
    pub fn new(
        run: &Run,
        progress: &Progress,
        device: &ComputeDevice,
        test: EvaluationResult,
        other_accuracy: BTreeMap<String, AccuracyByGroup>,
    ) -> Self {
        Self {
            id: id(run),
            schema: SCHEMA,
            numerics_version: NUMERICS_VERSION,
            program: ProgramInfo::current(),
            device: device.name().to_owned(),
            device_steps: progress.device_steps.clone(),
            config: run.config.clone(),
            facts: RunFacts::of(run),
            stop_reason: progress.stop_reason.unwrap_or(StopReason::Finished),
            steps: progress.step,
            loss: test.loss,
            losses: test.losses,
            accuracy: test.accuracy,
            other_accuracy,
            evaluations: progress.evaluations.clone(),
        }
    }

    /// The accuracy on questions of this metric group; NaN if there were none.
    pub fn group_accuracy(&self, group: u16) -> f64 {
        self.accuracy.get(&group).map_or(f64::NAN, super::accuracy::AnswerCount::accuracy)
    }

    /// The record as one line of JSON.
    pub fn to_json_line(&self) -> String {
        let text = serde_json::to_string(self);
        text.unwrap_or_else(|error| unreachable!("a record is plain data: {error}")) + "\n"
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The file cannot be read or is not a record.
    pub fn read(path: &Path) -> Result<Self, RunError> {
        let text = read_text(path, MAX_BYTES).map_err(|error| RunError::file(path, error))?;
        let record: Self =
            serde_json::from_str(&text).map_err(|error| RunError::file(path, format!("not a record: {error}")))?;
        if record.schema > SCHEMA {
            let Self { schema, program: ProgramInfo { version, .. }, .. } = record;
            let reason =
                format!("recorded by version {version} with schema {schema}, expected at most schema {SCHEMA}");
            return Err(RunError::file(path, reason));
        }
        Ok(record)
    }
}

/// A run's id: names of its stack's mixers, seed, and 48 bits of a hash of its config and the version of the numerics.
///
/// The hash is over the keys of `ALWAYS_HASHED_KEYS`, and over other keys only if they are not at their default. So a key that is
/// added with a default does not change the ids of runs that do not use it.
pub fn id(run: &Run) -> String {
    let defaults = RunConfig::new(run.config.stack.clone(), run.config.task.clone());
    let [mut config, defaults] =
        [&run.config, &defaults].map(|config| serde_json::to_value(config).unwrap_or_default());
    drop_defaults(&mut config, &defaults, "");
    let text = config.to_string();
    let hash =
        text.bytes().fold(splitmix64(u64::from(NUMERICS_VERSION)), |hash, byte| splitmix64(hash ^ u64::from(byte)));
    let mixer_names = run.plan.mixer_names();
    let mut slug: String =
        mixer_names.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    format!("{}-s{}-{:012x}", slug.trim_matches('-'), run.config.seed, hash & 0xFFFF_FFFF_FFFF)
}

/// The keys of the first version of the config. They are part of the hash even at their default.
const ALWAYS_HASHED_KEYS: [&str; 38] = [
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

/// Removes the keys that are at their default, except those of [`ALWAYS_HASHED_KEYS`].
fn drop_defaults(config: &mut Value, defaults: &Value, path: &str) {
    let Some(fields) = config.as_object_mut() else { return };
    fields.retain(|key, value| {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let default = defaults.get(key);
        if default == Some(value) && !ALWAYS_HASHED_KEYS.contains(&path.as_str()) {
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
    fn a_new_key_changes_the_hashed_text_only_if_not_at_its_default() {
        let config = RunConfig::new("gdn full", "funccomp{hops=1,m=4}");
        let current = serde_json::to_value(&config).unwrap();
        let (mut key_at_default, mut key_changed) = (current.clone(), current.clone());
        key_at_default["train"]["momentum"] = json!(0.9);
        key_changed["train"]["momentum"] = json!(0.5);
        let hashed_text = |value: &Value, defaults: &Value| {
            let mut value = value.clone();
            drop_defaults(&mut value, defaults, "");
            value.to_string()
        };
        assert_eq!(hashed_text(&key_at_default, &key_at_default), hashed_text(&current, &current));
        assert_eq!(hashed_text(&current, &current), current.to_string(), "every current key is in ALWAYS_HASHED_KEYS");
        assert_ne!(hashed_text(&key_changed, &key_at_default), hashed_text(&current, &current));
    }

    #[test]
    fn the_id_of_a_config_changes_only_with_the_numerics_version() {
        let mut config = RunConfig::new("gdn full", "funccomp{hops=1,m=4,queries=4}");
        (config.model.heads, config.model.head) = (1, 8);
        (config.train.steps, config.train.batch, config.train.threads) = (2, 2, 2);
        (config.evaluate.validation_prompts, config.evaluate.test_prompts) = (4, 8);
        assert_eq!(id(&config.resolve().unwrap()), "gdn-full-s0-7d6b16ea1b78");
    }

    #[test]
    fn records_of_earlier_schemas_are_read_and_of_later_ones_rejected() {
        let run = RunConfig::new("full", "parity").resolve().unwrap();
        let record = RunRecord {
            id: id(&run),
            schema: SCHEMA,
            numerics_version: NUMERICS_VERSION,
            program: ProgramInfo::current(),
            device: native_device(),
            device_steps: BTreeMap::new(),
            config: run.config.clone(),
            facts: RunFacts::of(&run),
            stop_reason: StopReason::Finished,
            steps: 1,
            loss: 0.5,
            losses: BTreeMap::new(),
            accuracy: AccuracyByGroup::new(),
            other_accuracy: BTreeMap::new(),
            evaluations: Vec::new(),
        };
        let path = std::env::temp_dir().join(format!("rung-record-{}.json", std::process::id()));
        let read = |value: &Value| {
            std::fs::write(&path, value.to_string()).unwrap();
            RunRecord::read(&path)
        };
        let mut value: Value = serde_json::from_str(&record.to_json_line()).unwrap();
        assert_eq!(read(&value).unwrap(), record);
        value["schema"] = json!(SCHEMA + 1);
        value["program"]["version"] = json!("9.9.9");
        let message = read(&value).unwrap_err().to_string();
        assert!(message.contains("recorded by version 9.9.9"), "{message}");
        let fields = value.as_object_mut().unwrap();
        fields.remove("schema");
        fields.remove("program");
        let earlier = read(&value).unwrap();
        assert_eq!((earlier.schema, earlier.program, earlier.id), (0, ProgramInfo::default(), record.id));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn table_sizes_are_those_of_the_task() {
        let sizes = |text: &str| table_sizes(&*task::parse(text).unwrap());
        assert_eq!(sizes("funccomp{hops=3,m=5,n=[2,3]}"), Some(vec![5, 10, 30]));
        assert_eq!(sizes("funccomp{hops=1,m=7}"), Some(vec![7]));
        assert_eq!(sizes("parity"), None);
    }

    #[test]
    fn runs_with_another_seed_or_option_have_another_id() {
        let run_id = |stack: &str, seed| {
            let mut config = RunConfig::new(stack, "funccomp{hops=1,m=4}");
            config.seed = seed;
            id(&config.resolve().unwrap())
        };
        assert_eq!(run_id("gdn full", 1), run_id("gdn full", 1));
        assert_ne!(run_id("gdn full", 1), run_id("gdn full", 2));
        assert_ne!(run_id("gdn full", 1), run_id("gdn{conv=2} full", 1));
        assert!(run_id("gdn*3 full", 1).starts_with("gdn-3-full-s1-"));
    }
}
