//! The folder of a construction: its weights, their description, and the sizes of the network.
//!
//! | file | holds |
//! |---|---|
//! | `model.safetensors` | every weight under its name, as checkpoints have them |
//! | `construction.json` | name, task, stack, sizes of the model, registers, and a description of each layer |
//! | `stack.txt` | the stack alone, with every number |
//! | `README.md` | the registers and layers, for people |
//!
//! Opening a folder checks the sizes against each other and against the weights; the error names the first field that is wrong.

use std::fmt::Write as _;
use std::path::Path;

use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Field, seeded};
use serde::{Deserialize, Serialize};

use super::{Network, NetworkError, Provenance, files};
use crate::checkpoint;
use crate::model::{FeedForwardConfig, InputConfig, ModelConfig, NormConfig};
use crate::position::Positions;
use crate::register::{RegisterKind, Registers};

/// The tokens that the model emits after the prompt and reads again: thoughts, then one token with the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainOfThought {
    /// Number of emitted tokens: the thoughts, and the answer after them.
    #[serde(rename = "count")]
    pub emitted_tokens: usize,
    /// For each field of a token, the index of the model's first class for it. The classes of a field end where those of the next begin;
    /// the one with the highest logit is the id that is emitted.
    #[serde(rename = "fields")]
    pub field_starts: Vec<usize>,
    /// Index of the field that has the answer in the last emitted token.
    #[serde(rename = "answer")]
    pub answer_field: usize,
}

/// The description that is stored with a construction's weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstructionInfo {
    /// The construction's name.
    pub name: String,
    /// The task it solves, with every option.
    pub task: String,
    /// The registers of its residual stream.
    pub registers: Registers,
    /// What each layer does; empty for layers that do nothing.
    pub layers: Vec<String>,
    /// The tokens that it emits, the answer included; `None` if it answers at the last token of the prompt.
    #[serde(rename = "thoughts")]
    pub chain_of_thought: Option<ChainOfThought>,
}

/// The longest chain of thought that is accepted.
const MAX_CHAIN_TOKENS: usize = 1 << 12;

/// The content of `construction.json`.
#[derive(Serialize, Deserialize)]
struct Description {
    format: u32,
    #[serde(flatten)]
    info: ConstructionInfo,
    stack: String,
    model: ModelOptions,
}

/// The options of the model that are not in the stack.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelOptions {
    width: u64,
    /// Name and vocabulary size of each field of a token.
    fields: Vec<(String, u32)>,
    classes: usize,
    norm: String,
    /// Neurons of each MLP.
    hidden: usize,
    causal: bool,
    /// Length of the table of learned positions, if there is one.
    positions: Option<usize>,
    /// Tokens per chunk of recurrences.
    chunk: usize,
}

const NORM_NAMES: [(&str, NormConfig); 3] =
    [("none", NormConfig::None), ("rms", NormConfig::Rms), ("layer", NormConfig::Layer)];

/// Name and content of the text files of a construction's folder.
pub(super) fn text_files<S: Scalar>(network: &Network<S>, info: &ConstructionInfo) -> [(&'static str, String); 3] {
    let json = serde_json::to_string_pretty(&describe(network, info)).unwrap_or_else(|error| unreachable!("{error}"));
    let stack = format!("{}\n", network.plan.to_stack());
    [
        (files::CONSTRUCTION, json + "\n"),
        (files::CONSTRUCTION_STACK, stack),
        (files::CONSTRUCTION_README, readme(network, info)),
    ]
}

fn describe<S: Scalar>(network: &Network<S>, info: &ConstructionInfo) -> Description {
    let config = &network.config;
    let fields = match &config.input {
        InputConfig::Vocabulary(size) => vec![("token".to_owned(), *size as u32)],
        InputConfig::Fields(fields) => fields.iter().map(|field| (field.name.clone(), field.vocabulary)).collect(),
    };
    let hidden = if let FeedForwardConfig::Relu { hidden: Some(hidden) } = config.feed_forward { hidden } else { 0 };
    let norm = NORM_NAMES.iter().find(|(_, norm)| *norm == config.norm).map_or("none", |(name, _)| name);
    Description {
        format: 1,
        info: info.clone(),
        stack: network.plan.to_stack().to_string(),
        model: ModelOptions {
            width: network.plan.width,
            fields,
            classes: config.classes,
            norm: norm.to_owned(),
            hidden,
            causal: config.causal,
            positions: if let Positions::Learned { length } = config.positions { Some(length) } else { None },
            chunk: config.chunk,
        },
    }
}

/// The README, which describes the registers and layers.
fn readme<S: Scalar>(network: &Network<S>, info: &ConstructionInfo) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "# {}: explicit weights for `{}`\n", info.name, info.task);
    let _ = writeln!(text, "Made by {}: `rung construct {}`.\n", checkpoint::MADE_BY.1, info.name);
    let _ = writeln!(
        text,
        "Constructed, not trained. {} weights; a residual stream of {} columns; ",
        network.weights.size(),
        network.plan.width
    );
    let _ = writeln!(text, "`{}`.\n", network.plan.mixer_names());
    let _ = writeln!(text, "`rung verify` runs it against the oracle of its task.\n\n## Layers\n");
    for (index, about) in info.layers.iter().enumerate() {
        let about = if about.is_empty() { "does nothing" } else { about };
        let _ = writeln!(text, "- layer {index}: {about}");
    }
    if let Some(chain_of_thought) = &info.chain_of_thought {
        let _ = writeln!(
            text,
            "\nAfter the prompt it emits {} tokens and reads them again; the last holds the answer.",
            chain_of_thought.emitted_tokens
        );
    }
    let _ = writeln!(text, "\n## Registers\n\n| columns | name | holds | |\n|---|---|---|---|");
    for register in info.registers.iter() {
        let content = match register.kind {
            RegisterKind::Constant => "a constant",
            RegisterKind::Flag => "+1 yes, -1 no",
            RegisterKind::Number => "bits, lowest first: +1, -1; 0 for nothing",
            RegisterKind::OneHot => "one 1 among zeros",
            RegisterKind::Unrounded => "the output of a mixer, before rounding",
        };
        let last = register.start + register.size - 1;
        let _ = writeln!(text, "| {}..{last} | `{}` | {content} | {} |", register.start, register.name, register.about);
    }
    text
}

/// Opens the folder of a construction.
pub(super) fn open<S: Scalar>(folder: &Path) -> Result<Network<S>, NetworkError> {
    let path = folder.join(files::CONSTRUCTION);
    let text = super::read_text(&path)?;
    let malformed = |reason: String| NetworkError::Malformed { path: path.clone(), reason };
    let description: Description = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let Description { format, info, stack, model: options } = description;
    let field_error = |field: &str, found: String, expected: String| {
        Err(NetworkError::Field { path: path.clone(), field: field.to_owned(), found, expected })
    };
    if format != 1 {
        return field_error("format", format.to_string(), "1".to_owned());
    }
    let task = task::parse(&info.task).map_err(|source| NetworkError::Task { path: path.clone(), source })?;
    let width = options.width;
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width), bits: 32 };
    let plan = Plan::parse(&stack, &defaults).map_err(|source| NetworkError::Stack { path: path.clone(), source })?;
    let Some((_, norm)) = NORM_NAMES.iter().find(|(name, _)| *name == options.norm) else {
        return field_error("model.norm", options.norm, "none, rms or layer".to_owned());
    };
    let expected = task.fields();
    let is_large_enough = |((_, size), task_field): (&(String, u32), &Field)| *size >= task_field.vocabulary;
    if options.fields.len() != expected.len() || !options.fields.iter().zip(&expected).all(is_large_enough) {
        let expected =
            expected.iter().map(|field| format!("{} of {}", field.name, field.vocabulary)).collect::<Vec<_>>();
        return field_error(
            "model.fields",
            format!("{:?}", options.fields),
            format!("at least {}", expected.join(", ")),
        );
    }
    if !info.registers.are_contiguous_within(width as usize) {
        return field_error(
            "registers",
            format!("{} columns with gaps or more", info.registers.width()),
            format!("one after another in {width} columns"),
        );
    }
    if info.layers.len() != plan.layers.len() {
        return field_error(
            "layers",
            info.layers.len().to_string(),
            format!("{}, as the stack has", plan.layers.len()),
        );
    }
    let has_valid_classes = match &info.chain_of_thought {
        None => options.classes >= task.classes() as usize,
        Some(ChainOfThought { emitted_tokens, field_starts, answer_field }) => {
            let is_increasing = field_starts.windows(2).all(|pair| pair[0] < pair[1]);
            let is_in_range = field_starts.last().is_some_and(|last| *last < options.classes) && field_starts[0] == 0;
            let has_task_fields = field_starts.len() == expected.len() && *answer_field < expected.len();
            has_task_fields && is_increasing && is_in_range && (1..=MAX_CHAIN_TOKENS).contains(emitted_tokens)
        }
    };
    if !has_valid_classes {
        return field_error(
            "model.classes",
            options.classes.to_string(),
            "as many as the task or the emitted tokens need".to_owned(),
        );
    }
    let has_single_field = options.fields.len() == 1;
    let fields = options.fields.iter().map(|(name, size)| Field::new(name.clone(), *size)).collect();
    let config = ModelConfig {
        input: if has_single_field {
            InputConfig::Vocabulary(options.fields[0].1 as usize)
        } else {
            InputConfig::Fields(fields)
        },
        classes: options.classes,
        norm: *norm,
        feed_forward: FeedForwardConfig::Relu { hidden: Some(options.hidden) },
        positions: options.positions.map_or(Positions::None, |length| Positions::Learned { length }),
        causal: options.causal,
        chunk: options.chunk,
        ..ModelConfig::default()
    };
    let model_error = |source| NetworkError::Model { path: path.clone(), source };
    let weights_path = folder.join(files::CONSTRUCTION_WEIGHTS);
    checkpoint::check_file_size(&weights_path, config.weight_count(&plan).map_err(model_error)?)?;
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(0)).map_err(model_error)?;
    checkpoint::load(&weights_path, &mut weights)?;
    let (name, provenance) = (info.name.clone(), Provenance::Construction(Box::new(info)));
    Ok(Network { name, task: Some(task), plan, config, model, weights, provenance })
}
