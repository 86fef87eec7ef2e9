//! What a run is: TOML as typed, then everything resolved.
//!
//! ```toml
//! stack = "gdn full"
//! task = "funccomp{hops=1,m=32,queries=16}"
//! seed = 0
//!
//! [model]                  # what the stack does not say
//! heads = 2
//! head = 32
//!
//! [train]
//! steps = 3000
//! rate = 2e-3
//!
//! [evaluate]
//! every = 200              # steps between evaluations
//! stop_at = 0.995          # stop when every number of hops is this good
//!
//! [[curriculum]]           # before the task itself: smaller tables, each until it is known or its steps are over
//! task = "funccomp{hops=1,m=8,queries=16}"
//! until = 0.9
//! steps = 800
//! ```
//!
//! Every key but `stack` and `task` has a default. [`RunConfig::resolve`] checks all of it before anything is allocated.

use std::sync::Arc;

use rung_engine::{AdamWConfig, DecayCourse, Schedule};
use rung_nn::ModelConfig;
use rung_nn::memory::{self, Footprint};
pub use rung_nn::network::{ChannelName, InitialName, ModelPart, NormName, PlacementName, PositionName};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, AnyTask, Field};
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::evaluate::ROWS;
use super::record::table_sizes;
use super::repel::RepulsionConfig;
use super::source::{FittedTask, PromptSource};
use crate::strict;

/// A run as typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The stack, such as `gdn full`.
    pub stack: String,
    /// The task, such as `funccomp{hops=1,m=32,queries=16}`.
    pub task: String,
    /// Fixes the first weights and every prompt.
    #[serde(default)]
    pub seed: u64,
    /// What the stack does not say about the model.
    #[serde(default, deserialize_with = "strict::object")]
    pub model: ModelPart,
    /// How it is trained.
    #[serde(default, deserialize_with = "strict::object")]
    pub train: TrainConfig,
    /// When and how it is evaluated.
    #[serde(default, deserialize_with = "strict::object")]
    pub evaluate: EvaluateConfig,
    /// Easier tasks that come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curriculum: Vec<StageConfig>,
}

/// Training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Steps, those of the curriculum included.
    pub steps: usize,
    /// Prompts per step.
    pub batch: usize,
    /// Peak learning rate.
    pub rate: f64,
    /// Steps of warm-up.
    pub warmup: usize,
    /// What the rate does afterwards.
    pub course: CourseName,
    /// Share of the peak that is left at the end.
    pub floor: f64,
    /// Share of all steps over which the rate falls at the end, where the course is `stable`.
    pub cooldown: f64,
    /// Weight of the auxiliary loss: the cross-entropy of what each layer but the last should have found by then, summed over those
    /// layers. After a layer by which the stack has l rungs, that is `i_min(l, h)` of a question of h hops. Zero for none.
    pub auxiliary: f64,
    /// Weight decay.
    pub decay: f64,
    /// Memory of the gradient's mean and squares.
    pub betas: [f64; 2],
    /// Largest norm of a gradient.
    pub clip: f64,
    /// Threads of one run. Another number gives another rounding, so it is part of what a run is.
    pub threads: usize,
    /// Heads that repel each other, if they do.
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
            course: CourseName::Cosine,
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

/// Evaluation of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// Steps between evaluations. A checkpoint is written at each.
    pub every: usize,
    /// Prompts per evaluation.
    pub prompts: usize,
    /// Prompts of the last evaluation, fresh ones.
    pub last: usize,
    /// Stop as soon as an evaluation finds every group of questions this good; above 1 for never.
    pub stop_at: f64,
    /// Stop after this many evaluations without a better loss; 0 for never.
    pub patience: usize,
    /// Other tasks that are asked at the end, as the last evaluation asks the task itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self { every: 200, prompts: 32, last: 128, stop_at: 0.998, patience: 0, also: Vec::new() }
    }
}

/// An easier task that comes first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// The task.
    pub task: String,
    /// It is over when an evaluation finds every group of questions this good.
    #[serde(default = "usual_until")]
    pub until: f64,
    /// Or after this many steps.
    pub steps: usize,
}

fn usual_until() -> f64 {
    0.9
}

/// Courses of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CourseName {
    /// Half a cosine.
    Cosine,
    /// A straight line.
    Linear,
    /// Its peak, then a straight line over the last steps.
    Stable,
    /// Its peak.
    Constant,
}

/// A run with everything worked out.
pub struct Run {
    /// As typed, with tasks spelled out.
    pub config: RunConfig,
    /// The task itself.
    pub task: FittedTask,
    /// The easier tasks that come first.
    pub stages: Vec<FittedTask>,
    /// The other tasks that are asked at the end.
    pub also: Vec<FittedTask>,
    /// The stack.
    pub plan: Plan,
    /// The network around it.
    pub model: ModelConfig,
    /// The model's fields.
    pub fields: Vec<Field>,
    /// The model's classes.
    pub classes: u32,
    /// The longest prompt of the largest task.
    pub longest: usize,
    /// Weights.
    pub weights: u128,
}

impl RunConfig {
    /// Reads a config.
    ///
    /// # Errors
    /// The text is no TOML or has keys that a config does not have.
    pub fn read(text: &str) -> Result<Self, RunError> {
        toml::from_str(text).map_err(|error| RunError::Text {
            place: "config".to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    /// A config with only the two keys that have no default.
    pub fn new(stack: impl Into<String>, task: impl Into<String>) -> Self {
        Self {
            stack: stack.into(),
            task: task.into(),
            seed: 0,
            model: ModelPart::default(),
            train: TrainConfig::default(),
            evaluate: EvaluateConfig::default(),
            curriculum: Vec::new(),
        }
    }

    /// The same config with one key set, written `train.rate=1e-3` as on a command line. A value that is no TOML is a string.
    ///
    /// # Errors
    /// There is no such key, or it cannot have this value.
    pub fn with(&self, setting: &str) -> Result<Self, RunError> {
        let place = || format!("setting `{setting}`");
        let text = |reason: String| RunError::Text { place: place(), reason };
        let (key, value) = setting.split_once('=').ok_or_else(|| text("expected key=value".to_owned()))?;
        let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| toml::Value::String(value.to_owned()));
        let mut table = toml::Table::try_from(self).map_err(|error| text(error.to_string()))?;
        set(&mut table, key.trim(), value).map_err(text)?;
        table.try_into().map_err(|error: toml::de::Error| text(error.to_string().trim_end().to_owned()))
    }

    /// The config as TOML, every default spelled out.
    pub fn text(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| unreachable!("a config is plain data: {error}"))
    }

    /// The stack with every number of it.
    ///
    /// # Errors
    /// The stack makes no sense.
    pub fn plan(&self) -> Result<Plan, RunError> {
        Ok(Plan::parse(&self.stack, &self.defaults())?)
    }

    /// Sizes of mixers that do not say otherwise.
    pub fn defaults(&self) -> Defaults {
        self.model.defaults()
    }

    /// Checks everything and works out the rest. Allocates nothing of the run's size.
    ///
    /// # Errors
    /// What is wrong, with the key, what was found and what was expected.
    pub fn resolve(&self) -> Result<Run, RunError> {
        self.check_numbers()?;
        let (part, plan) = (&self.model, self.plan()?);
        if let Some(part) = &self.train.repulsion {
            part.check(&plan)?;
        }
        let read = |field: &str, text: &str| task::parse(text).map_err(|error| RunError::task(field, error));
        let mut config = self.clone();
        let task: Arc<dyn AnyTask> = read("task", &self.task)?.into();
        config.task = task.spec();
        let largest = match &self.model.largest {
            Some(text) => read("model.largest", text)?.into(),
            None => Arc::clone(&task),
        };
        config.model.largest = self.model.largest.as_ref().map(|_| largest.spec());
        let (fields, classes) = (largest.fields(), largest.classes());
        let mut longest = task.length().max(largest.length());
        self.check_auxiliary("task", &*task)?;
        let task = FittedTask::new("task", task, &fields, classes)?;
        let (mut stages, mut also) = (Vec::new(), Vec::new());
        for (index, stage) in config.curriculum.iter_mut().enumerate() {
            let field = format!("curriculum[{index}].task");
            let task = read(&field, &stage.task)?;
            self.check_auxiliary(&field, &*task)?;
            stage.task = task.spec();
            longest = longest.max(task.length());
            stages.push(FittedTask::new(&field, task, &fields, classes)?);
        }
        for (index, other) in config.evaluate.also.iter_mut().enumerate() {
            let field = format!("evaluate.also[{index}]");
            let task = read(&field, other)?;
            *other = task.spec();
            longest = longest.max(task.length());
            also.push(FittedTask::new(&field, task, &fields, classes)?);
        }
        let model = part.network(&fields, classes, longest, plan.width as f64);
        let weights = model.count(&plan)?;
        Ok(Run { config, task, stages, also, plan, model, fields, classes, longest, weights })
    }

    /// Refuses an auxiliary loss on a task whose answers have no parts.
    fn check_auxiliary(&self, field: &str, task: &dyn AnyTask) -> Result<(), RunError> {
        if self.train.auxiliary <= 0.0 || table_sizes(task).is_some() {
            return Ok(());
        }
        Err(RunError::value(field, task.name(), "funccomp, whose answers have parts, or train.auxiliary = 0"))
    }

    fn check_numbers(&self) -> Result<(), RunError> {
        if let Some((field, found, expected)) = self.model.unfit() {
            return Err(RunError::value(&format!("model.{field}"), found, expected));
        }
        let counts = [
            ("train.steps", self.train.steps, 1, 100_000_000),
            ("train.batch", self.train.batch, 1, 1 << 20),
            ("train.threads", self.train.threads, 1, 1024),
            ("evaluate.every", self.evaluate.every, 1, 100_000_000),
            ("evaluate.prompts", self.evaluate.prompts, 1, 1 << 24),
            ("evaluate.last", self.evaluate.last, 1, 1 << 24),
        ];
        for (field, found, least, most) in counts {
            if !(least..=most).contains(&found) {
                return Err(RunError::value(field, found, format!("a whole number from {least} to {most}")));
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
        let numbers = numbers.map(|(field, found, least, most)| (field.to_owned(), found, least, most));
        for (field, found, least, most) in numbers.into_iter().chain(stages) {
            // Written so that a number that is none is refused too.
            if !(found >= least && found <= most) {
                return Err(RunError::value(&field, found, format!("a number from {least} to {most}")));
            }
        }
        Ok(())
    }
}

/// A stack without the options of its mixers.
pub fn outline(stack: &str) -> String {
    let mut depth = 0_usize;
    let kept = stack.chars().filter(|character| {
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
    kept.collect()
}

/// Sets a dotted key of nested tables, making those that are missing.
pub(crate) fn set(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), String> {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    let inner = table.entry(first).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let inner = inner.as_table_mut().ok_or_else(|| format!("`{first}` is not a table"))?;
    set(inner, rest, value)
}

impl Run {
    /// A source of the prompts of a task of this run; `stage` is one of the curriculum, or the task itself if there is none of
    /// that number.
    pub fn source(&self, stage: usize) -> PromptSource {
        self.stages.get(stage).unwrap_or(&self.task).source()
    }

    /// The schedule of the learning rate.
    pub fn schedule(&self) -> Schedule {
        let train = &self.config.train;
        let course = match train.course {
            CourseName::Cosine => DecayCourse::Cosine { floor: train.floor },
            CourseName::Linear => DecayCourse::Linear { floor: train.floor },
            CourseName::Stable => DecayCourse::Stable { floor: train.floor, cooldown: train.cooldown },
            CourseName::Constant => DecayCourse::Constant,
        };
        Schedule { warmup: train.warmup, steps: train.steps, course }
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

    /// Prompts per piece of a step: few enough that activations stay in cache.
    pub fn piece(&self) -> usize {
        rung_engine::DataParallel::<f32>::micro_batch_for(self.longest, self.plan.width as usize)
    }

    /// Memory it will take, estimated generously: weights with gradients and moments on every thread, a piece's activations and
    /// states, an evaluation, the ids of a batch.
    pub fn bytes(&self) -> u128 {
        let (train, evaluate) = (&self.config.train, &self.config.evaluate);
        let (threads, footprint) = (train.threads as u128, Footprint::new(&self.plan, &self.model));
        let pieces = footprint.training_bytes(self.longest).saturating_mul(self.piece().min(train.batch) as u128);
        let evaluation = footprint.running_bytes(self.longest).saturating_mul(ROWS.min(evaluate.prompts) as u128);
        let weights = self.weights.saturating_mul(4 + threads).saturating_mul(4);
        let rows = train.batch.max(ROWS) as u128;
        let ids = rows.saturating_mul(self.longest as u128).saturating_mul(4 * (self.fields.len() as u128 + 2));
        pieces.saturating_mul(threads).saturating_add(evaluation).saturating_add(weights).saturating_add(ids)
    }

    /// Refuses a run that does not fit the memory.
    ///
    /// # Errors
    /// It does not.
    pub fn check_memory(&self) -> Result<(), RunError> {
        let what = format!("the run of `{}` on `{}`", self.plan.outline(), self.config.task);
        Ok(memory::check(what, self.bytes(), None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "stack = 'gdn full'\ntask = 'funccomp{hops=2,m=8,n=[3],queries=4,mixed=yes}'\n";

    #[test]
    fn a_config_reads_back_as_itself() {
        let mut config = RunConfig::read(TEXT).unwrap();
        config.curriculum.push(StageConfig {
            task: "funccomp{hops=2,m=4,n=[2],queries=4,mixed=yes}".into(),
            until: 0.9,
            steps: 9,
        });
        let run = config.resolve().unwrap();
        assert_eq!(RunConfig::read(&run.config.text()).unwrap(), run.config);
        assert_eq!(run.config.resolve().unwrap().config, run.config);
    }

    #[test]
    fn bad_configs_are_named() {
        let fails = |more: &str, expected: &str| {
            let config = RunConfig::read(&format!("{TEXT}{more}")).and_then(|config| config.resolve());
            let message = config.err().unwrap_or_else(|| panic!("{more} was taken")).to_string();
            assert!(message.contains(expected), "{more}: {message}");
        };
        fails("sede = 3", "unknown field `sede`");
        fails("[train]\nstep = 3", "unknown field `step`");
        fails("[train]\nsteps = -3", "steps");
        fails("[train]\nsteps = 0", "train.steps: found 0, expected a whole number from 1");
        fails("[train]\nrate = nan", "train.rate: found NaN");
        fails("[train]\nthreads = 0", "train.threads: found 0");
        fails("[train]\ncooldown = 1.5", "train.cooldown: found 1.5");
        fails("[model]\nread_out = 'values'", "symbols of the read-out field is 0; expected at least 24 classes");
        fails("[model]\ninitial = 'lookups'", "unknown variant `lookups`");
        fails("[model]\nhead = 0", "head-dim: found 0");
        fails("[model]\nhead = 100000\nheads=100", "weights");
        fails("[model]\nlargest = 'parity'", "does not fit the model");
        fails("[model]\nlargest = 'funccomp{hops=2,m=4,n=[3],mixed=yes}'", "in field `inner`, expected at most 5");
        fails("[model]\npositions = 'sine'", "unknown variant `sine`");
        fails("[[curriculum]]\ntask='parity'\nsteps=3", "curriculum[0].task: `parity");
        fails("[evaluate]\nalso=['parity']", "evaluate.also[0]: `parity");
        fails("[[curriculum]]\ntask='parrity'\nsteps=3", "curriculum[0].task: there is no task `parrity`");
        let fails = |stack: &str, task: &str, expected: &str| {
            let message = RunConfig::new(stack, task).resolve().err().expect("refused").to_string();
            assert!(message.contains(expected), "{message}");
        };
        let parity = RunConfig {
            train: TrainConfig { auxiliary: 0.5, ..TrainConfig::default() },
            ..RunConfig::new("full", "parity")
        };
        let message = parity.resolve().err().expect("refused").to_string();
        assert!(message.contains("task: found parity, expected funccomp"), "{message}");
        fails("gdm full", "parity", "did you mean `gdn`");
        fails("compressed", "parity", "there is no network for mixer `compressed`");
        fails("full", "funccomp{m=0}", "task `funccomp`");
        fails("full", "funccomp{hops=3,m=4,n=[2,16777216]}", "at most");
        fails("full*1000000", "parity", "weights");
    }

    #[test]
    fn runs_that_no_machine_holds_are_refused_before_they_start() {
        let long = "[train]\nbatch = 1000000\n[model]\nlargest='funccomp{hops=2,m=100,n=[1000],queries=4,mixed=yes}'";
        let long = RunConfig::read(&format!("{TEXT}{long}")).unwrap();
        // A hundred and fifty million products of keys for every number of a value.
        let wide = RunConfig { stack: "fastmax{key=17000}".to_owned(), ..RunConfig::read(TEXT).unwrap() };
        for config in [long, wide] {
            let run = config.resolve().unwrap();
            let error = crate::run::Trainer::new(&run).err().expect("refused").to_string();
            assert!(error.contains("the run of `") && error.contains("MiB, expected at most"), "{error}");
        }
    }

    #[test]
    fn outlines_leave_numbers_out() {
        assert_eq!(outline("gdn{heads=1,key=4} full*2 mamba2{state=8}"), "gdn full*2 mamba2");
    }
}
