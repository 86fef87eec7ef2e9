//! The network of a run, from the run's config.
//!
//! `run.toml` says how a network is built and how it is trained. Here the first half is read: the stack, the `[model]` table, and
//! the tasks that decide which tokens and how many of them it must be able to read.

use std::path::Path;

use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Field, TaskError, seeded};
use serde::{Deserialize, Serialize};

use super::{Network, NetworkError, Provenance, files};
use crate::checkpoint::{check_room, load_with};
use crate::model::{FeedForwardConfig, InputConfig, ModelConfig, NormConfig, NormPlacement};
use crate::position::Positions;
use crate::precision::Precision;

/// The `[model]` table of a run's config: what the stack does not say about the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelPart {
    /// Heads of mixers that do not say otherwise.
    pub heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Width of the residual stream; heads times head if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u64>,
    /// The task with the largest tables that the model must be able to read; the task itself if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
    /// The channel mixer.
    pub channel: ChannelName,
    /// Its hidden width; four times the width (`glu`: eight thirds) if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
    /// Kind of norm.
    pub norm: NormName,
    /// Place of norms.
    pub placement: PlacementName,
    /// How attention knows where tokens stand.
    pub positions: PositionName,
    /// The field whose vectors score the classes, such as `value` of function composition; a matrix of its own if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_out: Option<String>,
    /// How full layers start.
    pub initial: InitialName,
    /// Whether fields that mean the same share their vectors.
    pub shared_tables: bool,
    /// Whether key projections start equal to query projections; as their negatives in full layers, where fields share tables.
    pub tied_query_key: bool,
    /// Whether output projections start as transposes of value projections.
    pub tied_value_output: bool,
    /// Deviation of fresh query and key projections of full layers, times the root of the width.
    pub query_key_scale: f64,
    /// Deviation of other fresh projections, times the root of the width.
    pub scale: f64,
    /// Deviation of fresh embeddings.
    pub embedding_scale: f64,
    /// Tokens per chunk of recurrences.
    pub chunk: usize,
    /// Bits of every number that crosses from token to token or from layer to layer, simulated; the machine's 32 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// Such numbers lie between minus this and this.
    pub range: f64,
}

impl Default for ModelPart {
    fn default() -> Self {
        Self {
            heads: 2,
            head: 32,
            width: None,
            largest: None,
            channel: ChannelName::Mlp,
            hidden: None,
            norm: NormName::Rms,
            placement: PlacementName::Pre,
            positions: PositionName::None,
            read_out: None,
            initial: InitialName::Random,
            shared_tables: true,
            tied_query_key: true,
            tied_value_output: true,
            query_key_scale: 0.6,
            scale: 0.6,
            embedding_scale: 0.1,
            chunk: 64,
            bits: None,
            range: 4.0,
        }
    }
}

/// A choice between names, as configs spell them.
macro_rules! names {
    ($(#[$about:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$doc])* $variant,)* }
    };
}

names! {
    /// Channel mixers.
    ChannelName:
    /// Two projections with GELU between them.
    Mlp,
    /// A gated one.
    Glu,
    /// None.
    None,
}

names! {
    /// Norms.
    NormName:
    /// Root mean square.
    Rms,
    /// Mean and deviation.
    Layer,
}

names! {
    /// Places of norms.
    PlacementName:
    /// Before what they feed.
    Pre,
    /// After the sum.
    Post,
}

names! {
    /// Positions.
    PositionName:
    /// None but the causal mask and recurrences.
    None,
    /// Rotary, of base 10000.
    Rotary,
    /// A penalty on distance.
    Alibi,
    /// A learned number on the scores of a token itself and of the two before it, in full attention.
    Relative,
    /// A learned table, as long as the largest task.
    Learned,
}

names! {
    /// First weights of full layers.
    InitialName:
    /// Normal numbers, with the ties that the other keys ask for.
    Random,
    /// A noisy look-up: queries are twice a random rotation, keys their negatives, values a rotation and outputs its transpose, so that
    /// a token reads the entry whose argument it holds, and what it held is replaced by the entry's value. Channel mixers start at
    /// zero, and the last norm at `2 / sqrt(width)`, for a read-out of moderate scores.
    Lookup,
}

impl ModelPart {
    /// Sizes of mixers that do not say otherwise.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            heads: self.heads,
            head_dim: self.head,
            kv_heads: None,
            model_width: self.width,
            bits: self.bits.unwrap_or(32).into(),
        }
    }

    /// The first key whose number cannot be, what was found, and what was expected.
    pub fn unfit(&self) -> Option<(&'static str, String, String)> {
        if let Some(bits) = self.bits.filter(|bits| !(1..=24).contains(bits)) {
            let expected = "1 to 24; left out, numbers have the machine's 32 bits".to_owned();
            return Some(("bits", bits.to_string(), expected));
        }
        let numbers = [
            ("query_key_scale", self.query_key_scale),
            ("range", self.range),
            ("scale", self.scale),
            ("embedding_scale", self.embedding_scale),
        ];
        let (field, found) = numbers.into_iter().find(|(_, found)| !(1e-6..=1e6).contains(found))?;
        Some((field, found.to_string(), "a number from 0.000001 to 1000000".to_owned()))
    }

    /// The config of the model that reads these fields and predicts these classes, in sequences of at most `longest` tokens.
    pub fn network(&self, fields: &[Field], classes: u32, longest: usize, width: f64) -> ModelConfig {
        let mut fields = fields.to_vec();
        if !self.shared_tables {
            for field in &mut fields {
                field.alphabet.clone_from(&field.name);
            }
        }
        let input = match &fields[..] {
            [field] => InputConfig::Vocabulary(field.vocabulary as usize),
            _ => InputConfig::Fields(fields),
        };
        ModelConfig {
            input,
            classes: classes as usize,
            norm: match self.norm {
                NormName::Rms => NormConfig::Rms,
                NormName::Layer => NormConfig::Layer,
            },
            placement: match self.placement {
                PlacementName::Pre => NormPlacement::Pre,
                PlacementName::Post => NormPlacement::Post,
            },
            feed_forward: match self.channel {
                ChannelName::Mlp => FeedForwardConfig::Mlp { hidden: self.hidden },
                ChannelName::Glu => FeedForwardConfig::Glu { hidden: self.hidden },
                ChannelName::None => FeedForwardConfig::None,
            },
            positions: match self.positions {
                PositionName::None => Positions::None,
                PositionName::Rotary => Positions::Rotary { base: 10_000.0 },
                PositionName::Alibi => Positions::Alibi,
                PositionName::Relative => Positions::Relative,
                PositionName::Learned => Positions::Learned { length: longest },
            },
            tied_query_key: self.tied_query_key,
            read_out: self.read_out.clone(),
            deviation: self.scale / width.sqrt(),
            chunk: self.chunk,
            precision: self.bits.map_or_else(Precision::default, |bits| Precision::bits(bits, self.range)),
            ..ModelConfig::default()
        }
    }
}

/// What a run's config says about its network; the other keys are about training.
#[derive(Deserialize)]
struct NetworkConfig {
    stack: String,
    task: String,
    #[serde(default)]
    model: ModelPart,
    #[serde(default)]
    curriculum: Vec<Stage>,
    #[serde(default)]
    evaluate: Evaluation,
}

#[derive(Deserialize)]
struct Stage {
    task: String,
}

#[derive(Default, Deserialize)]
struct Evaluation {
    #[serde(default)]
    also: Vec<String>,
}

/// Opens the folder of a finished run. A network made for larger tables than it was trained on (`model.largest`) has that task,
/// whose tokens are its own.
pub(super) fn open<S: Scalar>(folder: &Path) -> Result<Network<S>, NetworkError> {
    let path = folder.join(files::RUN_CONFIG);
    let text = super::read_text(&path)?;
    let malformed = |reason: String| NetworkError::Malformed { path: path.clone(), reason };
    let config: NetworkConfig =
        toml::from_str(&text).map_err(|error| malformed(error.to_string().trim_end().to_owned()))?;
    if let Some((field, found, expected)) = config.model.unfit() {
        let field = format!("model.{field}");
        return Err(NetworkError::Field { path, field, found, expected });
    }
    let bad_task = |source: TaskError| NetworkError::Task { path: path.clone(), source };
    let plan = Plan::parse(&config.stack, &config.model.defaults())
        .map_err(|source| NetworkError::Stack { path: path.clone(), source })?;
    let task = task::parse(config.model.largest.as_ref().unwrap_or(&config.task)).map_err(bad_task)?;
    let mut longest = task.length();
    let others = config.curriculum.iter().map(|stage| &stage.task).chain(&config.evaluate.also);
    for other in others.chain([&config.task]) {
        longest = longest.max(task::parse(other).map_err(bad_task)?.length());
    }
    let model_config = config.model.network(&task.fields(), task.classes(), longest, plan.width as f64);
    let weights_path = folder.join(files::RUN_WEIGHTS);
    if !weights_path.exists() {
        return Err(NetworkError::Unfinished(folder.to_owned()));
    }
    let bad_model = |source| NetworkError::Model { path: path.clone(), source };
    check_room(&weights_path, model_config.count(&plan).map_err(bad_model)?)?;
    let mut weights = Parameters::new();
    let model = model_config.init(&plan, &mut weights, &mut seeded(0)).map_err(bad_model)?;
    let notes = load_with(&weights_path, &mut weights)?;
    // Files without a config (from PyTorch, or from earlier versions) are taken as they are.
    if let Some(trained_with) = notes.get(files::RUN_KEY)
        && let Some(difference) = difference(trained_with, &text)
    {
        return Err(NetworkError::OtherRun { path: weights_path, difference });
    }
    let name = plan.outline();
    let provenance = Provenance::Run(text);
    Ok(Network { name, task: Some(task), plan, config: model_config, model, weights, provenance })
}

/// The config of a run with another stack.
pub(super) fn with_stack(config: &str, stack: &str) -> Option<String> {
    let mut table: toml::Table = toml::from_str(config).ok()?;
    table.insert("stack".to_owned(), toml::Value::String(stack.to_owned()));
    toml::to_string(&table).ok()
}

/// The first key that two configs both have and that differs between them. A key that only one has is left at its default by the
/// other.
fn difference(trained_with: &str, present: &str) -> Option<String> {
    let [trained_with, present] = [trained_with, present].map(|text| toml::from_str::<toml::Table>(text).ok());
    first_difference("", &trained_with?, &present?)
}

fn first_difference(prefix: &str, trained_with: &toml::Table, present: &toml::Table) -> Option<String> {
    trained_with.iter().find_map(|(key, old)| match (old, present.get(key)?) {
        (toml::Value::Table(old), toml::Value::Table(new)) => first_difference(&format!("{prefix}{key}."), old, new),
        (old, new) if same(prefix, key, old, new) => None,
        (old, new) => Some(format!("`{prefix}{key}` was {old} and is {new} in {}", files::RUN_CONFIG)),
    })
}

/// Whether two values of a key mean the same: tasks may be spelled in more than one way, and so may whole numbers.
fn same(prefix: &str, key: &str, old: &toml::Value, new: &toml::Value) -> bool {
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    if let (Some(old), Some(new)) = (number(old), number(new)) {
        return old.to_bits() == new.to_bits();
    }
    if matches!((prefix, key), ("", "task") | ("model.", "largest"))
        && let (Some(old), Some(new)) = (old.as_str(), new.as_str())
        && let (Ok(old), Ok(new)) = (task::parse(old), task::parse(new))
    {
        return old.spec() == new.spec();
    }
    old == new
}
