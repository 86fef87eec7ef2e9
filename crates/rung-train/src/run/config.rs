//! The config of a run: TOML as the user writes it ([`RunConfig`]), then checked and resolved ([`Run`]).
//!
//! ```toml
//! stack = "gdn full"
//! task = "funccomp{hops=1,m=32,queries=16}"
//! seed = 0
//!
//! [model]                  # sizes and options that the stack does not give
//! heads = 2
//! head = 32
//!
//! [train]
//! steps = 3000
//! rate = 2e-3
//!
//! [evaluate]
//! every = 200              # steps between evaluations
//! stop_at = 0.995          # stop when the accuracy is at least this for every number of hops
//!
//! [[curriculum]]           # smaller tasks first, each until its accuracy is `until` or its steps are done
//! task = "funccomp{hops=1,m=8,queries=16}"
//! until = 0.9
//! steps = 800
//! ```
//!
//! Every key but `stack` and `task` has a default. [`RunConfig::resolve`] checks all of it before anything is allocated.

use std::sync::Arc;

use rung_engine::{AdamWConfig, LearningRateDecay, Schedule};
use rung_nn::ModelConfig;
use rung_nn::memory;
pub use rung_nn::network::{FeedForwardName, InitializationName, ModelSection, NormName, PlacementName, PositionName};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, AnyTask, Field};
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::evaluate::BATCH_SIZE;
use super::record::table_sizes;
use super::repel::RepulsionConfig;
use super::source::{PromptSource, TaskForModel};
use crate::strict;

/// More segments of a dotted key are an error; the tables of a config nest three deep.
const MAX_KEY_SEGMENTS: usize = 8;
/// More stages of a curriculum, or tasks of the final test, are an error.
const MAX_TASKS: usize = 64;

/// The config of a run as the user writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The stack, such as `gdn full`.
    pub stack: String,
    /// The task, such as `funccomp{hops=1,m=32,queries=16}`.
    pub task: String,
    /// Seed of the initial weights and of every prompt.
    #[serde(default)]
    pub seed: u64,
    /// Sizes and options of the model that the stack does not give.
    #[serde(default, deserialize_with = "strict::object")]
    pub model: ModelSection,
    /// Optimiser, schedule and batch size.
    #[serde(default, deserialize_with = "strict::object")]
    pub train: TrainConfig,
    /// Evaluations and early stopping.
    #[serde(default, deserialize_with = "strict::object")]
    pub evaluate: EvaluateConfig,
    /// Easier tasks that are trained first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curriculum: Vec<StageConfig>,
}

/// The table `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Training steps, including those of the curriculum.
    pub steps: usize,
    /// Prompts per step.
    pub batch: usize,
    /// Peak learning rate.
    pub rate: f64,
    /// Steps of linear warm-up.
    pub warmup: usize,
    /// Shape of the learning-rate decay after the warm-up.
    #[serde(rename = "course")]
    pub schedule: ScheduleName,
    /// Final learning rate as a share of the peak.
    pub floor: f64,
    /// Share of all steps over which the rate decays at the end, if the schedule is `stable`.
    pub cooldown: f64,
    /// Weight of the auxiliary loss: the cross-entropy of intermediate answers after the layers that [`auxiliary`](super::auxiliary)
    /// selects, summed over them. 0 for none.
    pub auxiliary: f64,
    /// Weight decay.
    pub decay: f64,
    /// Adam's decay rates of the mean and the mean square of the gradient.
    pub betas: [f64; 2],
    /// Gradients of a larger norm are scaled down to it.
    pub clip: f64,
    /// Threads of one run. Another number changes the rounding of sums, so it is part of the config.
    pub threads: usize,
    /// Repulsion between attention heads; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repulsion: Option<RepulsionConfig>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 3000,
            batch: 32,
            rate: 4e-3,
            warmup: 50,
            schedule: ScheduleName::Cosine,
            floor: 0.1,
            cooldown: 0.3,
            auxiliary: 0.0,
            decay: 0.01,
            betas: [0.9, 0.99],
            clip: 1.0,
            threads: 1,
            repulsion: None,
        }
    }
}

/// The table `[evaluate]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// Steps between evaluations. A checkpoint is written at each.
    pub every: usize,
    /// Prompts per evaluation during training.
    #[serde(rename = "prompts")]
    pub validation_prompts: usize,
    /// Prompts of the final test, which are not used for any decision.
    #[serde(rename = "last")]
    pub test_prompts: usize,
    /// Stop at the first evaluation whose accuracy is at least this in every metric group; above 1 for never.
    pub stop_at: f64,
    /// Stop after this many evaluations without a lower loss; 0 for never.
    pub patience: usize,
    /// Other tasks for the final test.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "also")]
    pub other_tasks: Vec<String>,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self {
            every: 200,
            validation_prompts: 32,
            test_prompts: 128,
            stop_at: 0.998,
            patience: 0,
            other_tasks: Vec::new(),
        }
    }
}

/// A stage of the curriculum: an easier task that is trained before the run's task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// The task.
    pub task: String,
    /// The stage ends when the accuracy of an evaluation is at least this in every metric group.
    #[serde(default = "default_until")]
    pub until: f64,
    /// The stage ends after this many steps at the latest.
    pub steps: usize,
}

fn default_until() -> f64 {
    0.9
}

/// Shapes of the learning-rate decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleName {
    /// Half a cosine from the peak to the floor.
    Cosine,
    /// A straight line from the peak to the floor.
    Linear,
    /// Constant, then a straight line to the floor over the last steps.
    Stable,
    /// No decay.
    Constant,
}

/// A checked config with the tasks, plan and sizes derived from it.
pub struct Run {
    /// The config, with every option of its tasks written out.
    pub config: RunConfig,
    /// The task that is trained last and tested.
    pub task: TaskForModel,
    /// The tasks of the curriculum.
    pub stages: Vec<TaskForModel>,
    /// The other tasks of the final test.
    pub other_tasks: Vec<TaskForModel>,
    /// The layers of the stack, which the runs of a sweep share: a million of them take 24 megabytes.
    pub plan: Arc<Plan>,
    /// Embeddings, norms and the other parts of the model around the layers.
    pub model: ModelConfig,
    /// The model's input fields.
    pub fields: Vec<Field>,
    /// Number of output classes.
    pub classes: u32,
    /// Tokens of the longest prompt of any task.
    pub max_tokens: usize,
    /// Number of weights.
    pub weight_count: u128,
}

/// The plan of a stack with the default sizes of its mixers.
pub(crate) struct SharedPlan {
    stack: String,
    defaults: Defaults,
    plan: Arc<Plan>,
}

impl RunConfig {
    /// Parses the TOML of a config.
    ///
    /// # Errors
    /// The text is not TOML or has keys that a config does not have.
    pub fn read(text: &str) -> Result<Self, RunError> {
        toml::from_str(text).map_err(|error| RunError::InvalidToml {
            origin: "config".to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    /// A config with only the two keys that have no default.
    pub fn new(stack: impl Into<String>, task: impl Into<String>) -> Self {
        Self {
            stack: stack.into(),
            task: task.into(),
            seed: 0,
            model: ModelSection::default(),
            train: TrainConfig::default(),
            evaluate: EvaluateConfig::default(),
            curriculum: Vec::new(),
        }
    }

    /// The same config with one key set, written `train.rate=1e-3` as on a command line. A value that is not TOML is a string.
    ///
    /// # Errors
    /// There is no such key, or it cannot have this value.
    pub fn with(&self, setting: &str) -> Result<Self, RunError> {
        let invalid = |reason: String| RunError::InvalidToml { origin: format!("setting `{setting}`"), reason };
        let (key, value) = setting.split_once('=').ok_or_else(|| invalid("expected key=value".to_owned()))?;
        let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| toml::Value::String(value.to_owned()));
        let mut table = toml::Table::try_from(self).map_err(|error| invalid(error.to_string()))?;
        set_dotted_key(&mut table, key.trim(), value).map_err(invalid)?;
        table.try_into().map_err(|error: toml::de::Error| invalid(error.to_string().trim_end().to_owned()))
    }

    /// The config as TOML, with every default.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| unreachable!("a config is plain data: {error}"))
    }

    /// The parsed stack, with the default sizes of this config.
    ///
    /// # Errors
    /// The stack cannot be parsed.
    pub fn plan(&self) -> Result<Plan, RunError> {
        Ok(Plan::parse(&self.stack, &self.defaults())?)
    }

    /// Sizes of mixers for which the stack gives none.
    pub fn defaults(&self) -> Defaults {
        self.model.defaults()
    }

    /// Checks the config and derives tasks, plan and sizes from it. Does not allocate weights or prompts.
    ///
    /// # Errors
    /// A value is invalid; the error gives its key, the value and the expected values.
    pub fn resolve(&self) -> Result<Run, RunError> {
        self.resolve_sharing(&mut None)
    }

    /// As [`resolve`](Self::resolve), with the plan of the run that was resolved last if it has the same stack and sizes.
    pub(crate) fn resolve_sharing(&self, last: &mut Option<SharedPlan>) -> Result<Run, RunError> {
        self.check_number_ranges()?;
        let plan = match last {
            Some(shared) if shared.stack == self.stack && shared.defaults == self.defaults() => {
                Arc::clone(&shared.plan)
            }
            _ => {
                let plan = Arc::new(self.plan()?);
                let (stack, defaults) = (self.stack.clone(), self.defaults());
                *last = Some(SharedPlan { stack, defaults, plan: Arc::clone(&plan) });
                plan
            }
        };
        if let Some(repulsion) = &self.train.repulsion {
            repulsion.check(&plan)?;
        }
        let parse = |field: &str, text: &str| task::parse(text).map_err(|error| RunError::invalid_task(field, error));
        let mut config = self.clone();
        let task: Arc<dyn AnyTask> = parse("task", &self.task)?.into();
        config.task = task.spec();
        let largest = match &self.model.largest {
            Some(text) => parse("model.largest", text)?.into(),
            None => Arc::clone(&task),
        };
        config.model.largest = self.model.largest.as_ref().map(|_| largest.spec());
        let (fields, classes) = (largest.fields(), largest.classes());
        let mut max_tokens = task.length().max(largest.length());
        self.check_auxiliary("task", &*task)?;
        let task = TaskForModel::new("task", task, &fields, classes)?;
        let (mut stages, mut other_tasks) = (Vec::new(), Vec::new());
        for (index, stage) in config.curriculum.iter_mut().enumerate() {
            let field = format!("curriculum[{index}].task");
            let task = parse(&field, &stage.task)?;
            self.check_auxiliary(&field, &*task)?;
            stage.task = task.spec();
            max_tokens = max_tokens.max(task.length());
            stages.push(TaskForModel::new(&field, task, &fields, classes)?);
        }
        for (index, spec) in config.evaluate.other_tasks.iter_mut().enumerate() {
            let field = format!("evaluate.also[{index}]");
            let task = parse(&field, spec)?;
            *spec = task.spec();
            max_tokens = max_tokens.max(task.length());
            other_tasks.push(TaskForModel::new(&field, task, &fields, classes)?);
        }
        let model = self.model.model_config(&fields, classes, max_tokens, plan.width as f64);
        let weight_count = model.weight_count(&plan)?;
        Ok(Run { config, task, stages, other_tasks, plan, model, fields, classes, max_tokens, weight_count })
    }

    /// Rejects an auxiliary loss on a task without intermediate answers.
    fn check_auxiliary(&self, field: &str, task: &dyn AnyTask) -> Result<(), RunError> {
        if self.train.auxiliary <= 0.0 || table_sizes(task).is_some() {
            return Ok(());
        }
        Err(RunError::invalid_value(
            field,
            task.name(),
            "funccomp, which has intermediate answers, or train.auxiliary = 0",
        ))
    }

    fn check_number_ranges(&self) -> Result<(), RunError> {
        for (field, found) in
            [("curriculum", self.curriculum.len()), ("evaluate.also", self.evaluate.other_tasks.len())]
        {
            if found > MAX_TASKS {
                return Err(RunError::invalid_value(field, format!("{found} tasks"), format!("at most {MAX_TASKS}")));
            }
        }
        if let Some((field, found, expected)) = self.model.find_invalid_number() {
            return Err(RunError::invalid_value(&format!("model.{field}"), found, expected));
        }
        let counts = [
            ("train.steps", self.train.steps, 1, 100_000_000),
            ("train.batch", self.train.batch, 1, 1 << 20),
            ("train.threads", self.train.threads, 1, 1024),
            ("evaluate.every", self.evaluate.every, 1, 100_000_000),
            ("evaluate.prompts", self.evaluate.validation_prompts, 1, 1 << 24),
            ("evaluate.last", self.evaluate.test_prompts, 1, 1 << 24),
        ];
        for (field, found, min, max) in counts {
            if !(min..=max).contains(&found) {
                return Err(RunError::invalid_value(field, found, format!("a whole number from {min} to {max}")));
            }
        }
        let train = &self.train;
        let numbers = [
            ("train.rate", train.rate, 1e-12, 100.0),
            ("train.floor", train.floor, 0.0, 1.0),
            ("train.cooldown", train.cooldown, 0.0, 1.0),
            ("train.auxiliary", train.auxiliary, 0.0, 1e6),
            ("train.decay", train.decay, 0.0, 100.0),
            ("train.betas[0]", train.betas[0], 0.0, 0.999_999),
            ("train.betas[1]", train.betas[1], 0.0, 0.999_999),
            ("train.clip", train.clip, 1e-12, f64::INFINITY),
            ("evaluate.stop_at", self.evaluate.stop_at, 0.0, 2.0),
        ];
        let stages = self.curriculum.iter().enumerate();
        let stages = stages.map(|(index, stage)| (format!("curriculum[{index}].until"), stage.until, 0.0, 2.0));
        let numbers = numbers.map(|(field, found, min, max)| (field.to_owned(), found, min, max));
        for (field, found, min, max) in numbers.into_iter().chain(stages) {
            // Not `found < min || found > max`, which would accept NaN.
            if !(found >= min && found <= max) {
                return Err(RunError::invalid_value(&field, found, format!("a number from {min} to {max}")));
            }
        }
        Ok(())
    }
}

/// A stack without the options of its mixers: `gdn{heads=1} full` becomes `gdn full`.
pub fn strip_mixer_options(stack: &str) -> String {
    let mut depth = 0_usize;
    let outside_braces = stack.chars().filter(|character| {
        match character {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                return false;
            }
            _ => {}
        }
        depth == 0
    });
    outside_braces.collect()
}

/// Sets a dotted key such as `train.rate`, inserting the tables that are missing.
pub(crate) fn set_dotted_key(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), String> {
    let segments = key.split('.').count();
    if segments > MAX_KEY_SEGMENTS {
        return Err(format!("found a key of {segments} segments, expected at most {MAX_KEY_SEGMENTS}"));
    }
    let Some((first, inner_key)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    let inner = table.entry(first).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let inner = inner.as_table_mut().ok_or_else(|| format!("`{first}` is not a table"))?;
    set_dotted_key(inner, inner_key, value)
}

impl Run {
    /// Draws the prompts of a stage of the curriculum, or of the run's task if `stage` is beyond the curriculum.
    pub fn source(&self, stage: usize) -> PromptSource {
        self.stages.get(stage).unwrap_or(&self.task).source()
    }

    /// The schedule of the learning rate.
    pub fn schedule(&self) -> Schedule {
        let train = &self.config.train;
        let decay = match train.schedule {
            ScheduleName::Cosine => LearningRateDecay::Cosine { floor: train.floor },
            ScheduleName::Linear => LearningRateDecay::Linear { floor: train.floor },
            ScheduleName::Stable => LearningRateDecay::Stable { floor: train.floor, cooldown: train.cooldown },
            ScheduleName::Constant => LearningRateDecay::Constant,
        };
        Schedule { warmup: train.warmup, steps: train.steps, decay }
    }

    /// The optimiser.
    pub fn optimizer(&self) -> AdamWConfig {
        let train = &self.config.train;
        AdamWConfig {
            rate: train.rate,
            betas: train.betas,
            decay: train.decay,
            clip: train.clip,
            ..AdamWConfig::default()
        }
    }

    /// Prompts per micro-batch of a training step: few enough that activations stay in the cache.
    pub fn micro_batch(&self) -> usize {
        rung_engine::DataParallel::<f32>::micro_batch_for(self.max_tokens, self.plan.width as usize)
    }

    /// An upper estimate of the memory that training takes: weights, gradients and moments, activations and states of a micro-batch on
    /// every thread, an evaluation, and the ids of a batch.
    pub fn memory_bytes(&self) -> u128 {
        let (train, evaluate) = (&self.config.train, &self.config.evaluate);
        let (threads, footprint) = (train.threads as u128, self.model.memory_estimate(&self.plan));
        let activations =
            footprint.training_bytes(self.max_tokens).saturating_mul(self.micro_batch().min(train.batch) as u128);
        let evaluation = footprint
            .inference_bytes(self.max_tokens)
            .saturating_mul(BATCH_SIZE.min(evaluate.validation_prompts) as u128);
        let weights = self.weight_count.saturating_mul(4 + threads).saturating_mul(4);
        let rows = train.batch.max(BATCH_SIZE) as u128;
        let ids = rows.saturating_mul(self.max_tokens as u128).saturating_mul(4 * (self.fields.len() as u128 + 2));
        activations.saturating_mul(threads).saturating_add(evaluation).saturating_add(weights).saturating_add(ids)
    }

    /// Rejects a run that does not fit the memory.
    ///
    /// # Errors
    /// The estimate is more than the available memory.
    pub fn check_memory(&self) -> Result<(), RunError> {
        let description = format!("the run of `{}` on `{}`", self.plan.mixer_names(), self.config.task);
        Ok(memory::check(description, self.memory_bytes(), None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "stack = 'gdn full'\ntask = 'funccomp{hops=2,m=8,n=[3],queries=4,mixed=yes}'\n";

    #[test]
    fn long_keys_and_long_lists_of_tasks_are_errors() {
        let config = RunConfig::new("full", "parity");
        let message = config.with(&format!("{}x=1", "a.".repeat(200_000))).unwrap_err().to_string();
        assert!(message.contains("200001 segments, expected at most 8"), "{}", &message[message.len() - 200..]);
        let mut config = RunConfig::new("full", "parity");
        config.evaluate.other_tasks = vec!["chain{hops=1,m=16000000,tables=zipf}".to_owned(); 1000];
        let message = config.resolve().err().unwrap().to_string();
        assert!(message.contains("evaluate.also") && message.contains("at most 64"), "{message}");
    }

    #[test]
    fn a_config_is_unchanged_by_writing_reading_and_resolving() {
        let mut config = RunConfig::read(TEXT).unwrap();
        config.curriculum.push(StageConfig {
            task: "funccomp{hops=2,m=4,n=[2],queries=4,mixed=yes}".into(),
            until: 0.9,
            steps: 9,
        });
        let run = config.resolve().unwrap();
        assert_eq!(RunConfig::read(&run.config.to_toml()).unwrap(), run.config);
        assert_eq!(run.config.resolve().unwrap().config, run.config);
    }

    #[test]
    fn invalid_configs_are_rejected_with_the_key_and_the_reason() {
        let assert_rejected = |lines: &str, expected: &str| {
            let config = RunConfig::read(&format!("{TEXT}{lines}")).and_then(|config| config.resolve());
            let message = config.err().unwrap_or_else(|| panic!("{lines} was accepted")).to_string();
            assert!(message.contains(expected), "{lines}: {message}");
        };
        assert_rejected("sede = 3", "unknown field `sede`");
        assert_rejected("[train]\nstep = 3", "unknown field `step`");
        assert_rejected("[train]\nsteps = -3", "steps");
        assert_rejected("[train]\nsteps = 0", "train.steps: found 0, expected a whole number from 1");
        assert_rejected("[train]\nrate = nan", "train.rate: found NaN");
        assert_rejected("[train]\nthreads = 0", "train.threads: found 0");
        assert_rejected("[train]\ncooldown = 1.5", "train.cooldown: found 1.5");
        assert_rejected(
            "[model]\nread_out = 'values'",
            "symbols of the unembedding field is 0; expected at least 24 classes",
        );
        assert_rejected("[model]\ninitial = 'lookups'", "unknown variant `lookups`");
        assert_rejected("[model]\nhead = 0", "head-dim: found 0");
        assert_rejected("[model]\nhead = 100000\nheads=100", "weights");
        assert_rejected("[model]\nlargest = 'parity'", "does not fit the model");
        assert_rejected(
            "[model]\nlargest = 'funccomp{hops=2,m=4,n=[3],mixed=yes}'",
            "in field `inner`, expected at most 5",
        );
        assert_rejected("[model]\npositions = 'sine'", "unknown variant `sine`");
        assert_rejected("[[curriculum]]\ntask='parity'\nsteps=3", "curriculum[0].task: `parity");
        assert_rejected("[evaluate]\nalso=['parity']", "evaluate.also[0]: `parity");
        assert_rejected("[[curriculum]]\ntask='parrity'\nsteps=3", "curriculum[0].task: there is no task `parrity`");
        let assert_rejected = |stack: &str, task: &str, expected: &str| {
            let message = RunConfig::new(stack, task).resolve().err().expect("an error").to_string();
            assert!(message.contains(expected), "{message}");
        };
        let parity = RunConfig {
            train: TrainConfig { auxiliary: 0.5, ..TrainConfig::default() },
            ..RunConfig::new("full", "parity")
        };
        let message = parity.resolve().err().expect("an error").to_string();
        assert!(message.contains("task: found parity, expected funccomp"), "{message}");
        assert_rejected("gdm full", "parity", "did you mean `gdn`");
        assert_rejected("compressed", "parity", "mixer `compressed` is not implemented");
        assert_rejected("full", "funccomp{m=0}", "task `funccomp`");
        assert_rejected("full", "funccomp{hops=3,m=4,n=[2,16777216]}", "at most");
        assert_rejected("full*1000000", "parity", "weights");
    }

    #[test]
    fn runs_that_need_too_much_memory_are_rejected_before_they_start() {
        let long = "[train]\nbatch = 1000000\n[model]\nlargest='funccomp{hops=2,m=100,n=[1000],queries=4,mixed=yes}'";
        let long = RunConfig::read(&format!("{TEXT}{long}")).unwrap();
        // The state of fastmax has a number for every pair of key dimensions: 150 million for each value dimension.
        let wide = RunConfig { stack: "fastmax{key=17000}".to_owned(), ..RunConfig::read(TEXT).unwrap() };
        for config in [long, wide] {
            let run = config.resolve().unwrap();
            let error = crate::run::Trainer::new(&run).err().expect("an error").to_string();
            assert!(error.contains("the run of `") && error.contains("MiB, expected at most"), "{error}");
        }
    }

    #[test]
    fn strip_mixer_options_keeps_names_and_repetitions() {
        assert_eq!(strip_mixer_options("gdn{heads=1,key=4} full*2 mamba2{state=8}"), "gdn full*2 mamba2");
    }
}
