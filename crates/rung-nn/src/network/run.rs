//! The network of a run, from the run's config.
//!
//! `run.toml` describes how a network is built and how it is trained. This module reads the first: the stack, the `[model]` table, and the
//! tasks, which determine the vocabulary and the longest sequence.

use std::path::Path;

use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Field, TaskError, seeded};
use serde::{Deserialize, Serialize};

use super::{Network, NetworkError, Provenance, files};
use crate::checkpoint::{check_file_size, load_with_metadata};
use crate::model::{FeedForwardConfig, InputConfig, ModelConfig, NormConfig, NormPlacement};
use crate::position::Positions;
use crate::precision::SimulatedPrecision;

/// The `[model]` table of a run's config: the options of the model that are not in the stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSection {
    /// Default number of heads of a mixer.
    pub heads: u64,
    /// Default width of a head.
    pub head: u64,
    /// Width of the residual stream; `heads * head` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u64>,
    /// The task whose vocabulary the model gets, if that is larger than the trained task's; the trained task by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
    /// The feed-forward network.
    #[serde(rename = "channel")]
    pub feed_forward: FeedForwardName,
    /// Hidden width of the feed-forward network; by default four times the width (`glu`: eight thirds).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
    /// The norm of the residual stream.
    pub norm: NormName,
    /// Where norms are applied.
    pub placement: PlacementName,
    /// Position encoding of attention.
    pub positions: PositionName,
    /// The field whose embeddings are also the unembedding, such as `value` of function composition; by default the unembedding is
    /// a separate matrix.
    #[serde(rename = "read_out", skip_serializing_if = "Option::is_none")]
    pub unembedding_field: Option<String>,
    /// Initialization of full-attention layers.
    pub initial: InitializationName,
    /// Whether fields with the same meaning share an embedding table.
    pub shared_tables: bool,
    /// Whether key projections are initialized equal to query projections; to their negatives in full-attention layers if fields share
    /// tables.
    pub tied_query_key: bool,
    /// Whether output projections are initialized as transposes of value projections.
    pub tied_value_output: bool,
    /// Initial standard deviation of query and key projections of full-attention layers, times the square root of the width.
    pub query_key_scale: f64,
    /// Initial standard deviation of other projections, times the square root of the width.
    pub scale: f64,
    /// Initial standard deviation of embeddings.
    pub embedding_scale: f64,
    /// Tokens per chunk of recurrences.
    pub chunk: usize,
    /// Simulated bits of every element that is passed from token to token or from layer to layer; by default numbers are `f32` and not rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// With `bits`: numbers are clipped to plus or minus this.
    pub range: f64,
}

impl Default for ModelSection {
    fn default() -> Self {
        Self {
            heads: 2,
            head: 32,
            width: None,
            largest: None,
            feed_forward: FeedForwardName::Mlp,
            hidden: None,
            norm: NormName::Rms,
            placement: PlacementName::Pre,
            positions: PositionName::None,
            unembedding_field: None,
            initial: InitializationName::Random,
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

/// An enum whose variants are written in lower case in configs.
macro_rules! named_options {
    ($(#[$about:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$doc])* $variant,)* }
    };
}

named_options! {
    /// Feed-forward networks.
    FeedForwardName:
    /// Two projections with GELU between them.
    Mlp,
    /// A gated linear unit.
    Glu,
    /// No feed-forward network.
    None,
}

named_options! {
    /// Norms of the residual stream.
    NormName:
    /// RMS norm.
    Rms,
    /// Layer norm.
    Layer,
}

named_options! {
    /// Where norms are applied.
    PlacementName:
    /// Before each mixer and MLP.
    Pre,
    /// After each residual sum.
    Post,
}

named_options! {
    /// Position encodings of attention.
    PositionName:
    /// None (NoPE): order is known by the causal mask and by recurrences only.
    None,
    /// Rotary, of base 10000.
    Rotary,
    /// ALiBi: a penalty on distance.
    Alibi,
    /// A learned bias on the scores of the token itself and of the two before it, in full attention.
    Relative,
    /// A learned embedding for each position, up to the longest task.
    Learned,
}

named_options! {
    /// Initializations of full-attention layers.
    InitializationName:
    /// Normally distributed, with the ties that `tied_query_key` and `tied_value_output` set.
    Random,
    /// A noisy lookup: queries are twice a random rotation, keys their negatives, values a rotation and outputs its transpose, so that a
    /// token reads the entry whose argument it holds and replaces that argument by the entry's value. Feed-forward networks start at zero,
    /// and the last norm at `2 / sqrt(width)`, so that logits are of moderate size.
    Lookup,
}

impl ModelSection {
    /// The default sizes of mixers.
    pub fn defaults(&self) -> Defaults {
        Defaults {
            heads: self.heads,
            head_dim: self.head,
            kv_heads: None,
            model_width: self.width,
            bits: self.bits.unwrap_or(32).into(),
        }
    }

    /// The first key with an invalid number, with its value and the valid values.
    pub fn find_invalid_number(&self) -> Option<(&'static str, String, String)> {
        if let Some(bits) = self.bits.filter(|bits| !(1..=24).contains(bits)) {
            let expected = "1 to 24; if left out, numbers are not rounded".to_owned();
            return Some(("bits", bits.to_string(), expected));
        }
        let scales = [
            ("query_key_scale", self.query_key_scale),
            ("range", self.range),
            ("scale", self.scale),
            ("embedding_scale", self.embedding_scale),
        ];
        let (field, found) = scales.into_iter().find(|(_, found)| !(1e-6..=1e6).contains(found))?;
        Some((field, found.to_string(), "a number from 0.000001 to 1000000".to_owned()))
    }

    /// The config of a model with these input fields and classes, for sequences of at most `max_length` tokens.
    pub fn model_config(&self, fields: &[Field], classes: u32, max_length: usize, width: f64) -> ModelConfig {
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
            feed_forward: match self.feed_forward {
                FeedForwardName::Mlp => FeedForwardConfig::Mlp { hidden: self.hidden },
                FeedForwardName::Glu => FeedForwardConfig::Glu { hidden: self.hidden },
                FeedForwardName::None => FeedForwardConfig::None,
            },
            positions: match self.positions {
                PositionName::None => Positions::None,
                PositionName::Rotary => Positions::Rotary { base: 10_000.0 },
                PositionName::Alibi => Positions::Alibi,
                PositionName::Relative => Positions::Relative,
                PositionName::Learned => Positions::Learned { length: max_length },
            },
            init_key_from_query: self.tied_query_key,
            unembedding_field: self.unembedding_field.clone(),
            init_std: self.scale / width.sqrt(),
            chunk: self.chunk,
            precision: self
                .bits
                .map_or_else(SimulatedPrecision::default, |bits| SimulatedPrecision::bits(bits, self.range)),
            ..ModelConfig::default()
        }
    }
}

/// The keys of a run's config that are about the network; the others are about training.
#[derive(Deserialize)]
struct NetworkConfig {
    stack: String,
    task: String,
    #[serde(default)]
    model: ModelSection,
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

/// Opens the folder of a finished run. The network's task is `model.largest` if that is set, because it has that task's vocabulary.
pub(super) fn open<S: Scalar>(folder: &Path) -> Result<Network<S>, NetworkError> {
    let path = folder.join(files::RUN_CONFIG);
    let text = super::read_text(&path)?;
    let malformed = |reason: String| NetworkError::Malformed { path: path.clone(), reason };
    let config: NetworkConfig =
        toml::from_str(&text).map_err(|error| malformed(error.to_string().trim_end().to_owned()))?;
    if let Some((field, found, expected)) = config.model.find_invalid_number() {
        let field = format!("model.{field}");
        return Err(NetworkError::Field { path, field, found, expected });
    }
    let task_error = |source: TaskError| NetworkError::Task { path: path.clone(), source };
    let plan = Plan::parse(&config.stack, &config.model.defaults())
        .map_err(|source| NetworkError::Stack { path: path.clone(), source })?;
    let task = task::parse(config.model.largest.as_ref().unwrap_or(&config.task)).map_err(task_error)?;
    let mut max_length = task.length();
    let other_tasks = config.curriculum.iter().map(|stage| &stage.task).chain(&config.evaluate.also);
    for other_task in other_tasks.chain([&config.task]) {
        max_length = max_length.max(task::parse(other_task).map_err(task_error)?.length());
    }
    let model_config = config.model.model_config(&task.fields(), task.classes(), max_length, plan.width as f64);
    let weights_path = folder.join(files::RUN_WEIGHTS);
    if !weights_path.exists() {
        return Err(NetworkError::Unfinished(folder.to_owned()));
    }
    let model_error = |source| NetworkError::Model { path: path.clone(), source };
    check_file_size(&weights_path, model_config.weight_count(&plan).map_err(model_error)?)?;
    let mut weights = Parameters::new();
    let model = model_config.init(&plan, &mut weights, &mut seeded(0)).map_err(model_error)?;
    let metadata = load_with_metadata(&weights_path, &mut weights)?;
    // Files without a config (from PyTorch, or from earlier versions) are accepted.
    if let Some(stored_config) = metadata.get(files::RUN_KEY)
        && let Some(difference) = describe_difference(stored_config, &text)
    {
        return Err(NetworkError::OtherRun { path: weights_path, difference });
    }
    let name = plan.mixer_names();
    let provenance = Provenance::Run(text);
    Ok(Network { name, task: Some(task), plan, config: model_config, model, weights, provenance })
}

/// The config of a run with its stack replaced.
pub(super) fn with_stack(config: &str, stack: &str) -> Option<String> {
    let mut table: toml::Table = toml::from_str(config).ok()?;
    table.insert("stack".to_owned(), toml::Value::String(stack.to_owned()));
    toml::to_string(&table).ok()
}

/// The first key that both configs have and whose values differ. A key that only one has is ignored.
fn describe_difference(stored_config: &str, current_config: &str) -> Option<String> {
    let [stored_config, current_config] =
        [stored_config, current_config].map(|text| toml::from_str::<toml::Table>(text).ok());
    first_difference("", &stored_config?, &current_config?)
}

fn first_difference(prefix: &str, stored_table: &toml::Table, current_table: &toml::Table) -> Option<String> {
    stored_table.iter().find_map(|(key, old)| match (old, current_table.get(key)?) {
        (toml::Value::Table(old), toml::Value::Table(new)) => first_difference(&format!("{prefix}{key}."), old, new),
        (old, new) if is_same_value(prefix, key, old, new) => None,
        (old, new) => Some(format!("`{prefix}{key}` was {old} and is {new} in {}", files::RUN_CONFIG)),
    })
}

/// Whether two values of a key mean the same: tasks may be spelled in more than one way, and an integer may be written as a float.
fn is_same_value(prefix: &str, key: &str, old: &toml::Value, new: &toml::Value) -> bool {
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|integer| integer as f64));
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
