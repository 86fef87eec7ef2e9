//! A construction as a folder: weights, what they mean, and how to build the network around them.
//!
//! | file | holds |
//! |---|---|
//! | `model.safetensors` | every weight under its name, as checkpoints have them |
//! | `construction.json` | name, task, stack, sizes of the model, registers, what each layer does |
//! | `stack.txt` | the stack alone, with every number |
//! | `README.md` | the registers and layers, for people |
//!
//! Reading takes nothing on trust: sizes are checked against each other and against the weights, and the first thing that is
//! wrong is named.

use std::fmt::Write as _;
use std::path::Path;

use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Field, seeded};
use serde::{Deserialize, Serialize};

use super::{Network, NetworkError, Provenance, files};
use crate::checkpoint;
use crate::construct::{ConstructionInfo, RegisterKind};
use crate::model::{FeedForwardConfig, InputConfig, ModelConfig, NormConfig};
use crate::position::Positions;

/// More thoughts than any walk needs.
const MOST_THOUGHTS: usize = 1 << 12;

/// `construction.json`.
#[derive(Serialize, Deserialize)]
struct Description {
    format: u32,
    #[serde(flatten)]
    info: ConstructionInfo,
    stack: String,
    model: Shape,
}

/// What the stack does not say about the model.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    width: u64,
    fields: Vec<(String, u32)>,
    classes: usize,
    norm: String,
    hidden: usize,
    causal: bool,
    positions: Option<usize>,
    chunk: usize,
}

const NORMS: [(&str, NormConfig); 3] =
    [("none", NormConfig::None), ("rms", NormConfig::Rms), ("layer", NormConfig::Layer)];

/// The files of a construction's folder but its weights.
pub(super) fn texts<S: Scalar>(network: &Network<S>, info: &ConstructionInfo) -> [(&'static str, String); 3] {
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
    let norm = NORMS.iter().find(|(_, norm)| *norm == config.norm).map_or("none", |(word, _)| word);
    Description {
        format: 1,
        info: info.clone(),
        stack: network.plan.to_stack().to_string(),
        model: Shape {
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

/// The registers and layers, for people.
fn readme<S: Scalar>(network: &Network<S>, info: &ConstructionInfo) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "# {}: explicit weights for `{}`\n", info.name, info.task);
    let _ = writeln!(text, "Made by {}: `rung construct {}`.\n", checkpoint::MADE_BY.1, info.name);
    let _ = writeln!(
        text,
        "Constructed, not trained. {} weights; a stream of {} columns; ",
        network.weights.size(),
        network.plan.width
    );
    let _ = writeln!(text, "`{}`.\n", network.plan.outline());
    let _ = writeln!(text, "`rung verify` runs it against the oracle of its task.\n\n## Layers\n");
    for (index, about) in info.layers.iter().enumerate() {
        let about = if about.is_empty() { "does nothing" } else { about };
        let _ = writeln!(text, "- layer {index}: {about}");
    }
    if let Some(thoughts) = &info.thoughts {
        let _ = writeln!(
            text,
            "\nAfter the prompt it emits {} tokens and reads them again; the last holds the answer.",
            thoughts.count
        );
    }
    let _ = writeln!(text, "\n## Registers\n\n| columns | name | holds | |\n|---|---|---|---|");
    for register in info.registers.iter() {
        let holds = match register.holds {
            RegisterKind::Constant => "1",
            RegisterKind::Flag => "+1 yes, -1 no",
            RegisterKind::Number => "bits, lowest first: +1, -1; 0 for nothing",
            RegisterKind::OneHot => "one 1 among zeros",
            RegisterKind::Raw => "what was read",
        };
        let last = register.start + register.size - 1;
        let _ = writeln!(text, "| {}..{last} | `{}` | {holds} | {} |", register.start, register.name, register.about);
    }
    text
}

/// Opens the folder of a construction.
pub(super) fn open<S: Scalar>(folder: &Path) -> Result<Network<S>, NetworkError> {
    let path = folder.join(files::CONSTRUCTION);
    let text = super::read_text(&path)?;
    let malformed = |reason: String| NetworkError::Malformed { path: path.clone(), reason };
    let description: Description = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let Description { format, info, stack, model: shape } = description;
    let wrong = |field: &str, found: String, expected: String| {
        Err(NetworkError::Field { path: path.clone(), field: field.to_owned(), found, expected })
    };
    if format != 1 {
        return wrong("format", format.to_string(), "1".to_owned());
    }
    let task = task::parse(&info.task).map_err(|source| NetworkError::Task { path: path.clone(), source })?;
    let width = shape.width;
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width), bits: 32 };
    let plan = Plan::parse(&stack, &defaults).map_err(|source| NetworkError::Stack { path: path.clone(), source })?;
    let Some((_, norm)) = NORMS.iter().find(|(word, _)| *word == shape.norm) else {
        return wrong("model.norm", shape.norm, "none, rms or layer".to_owned());
    };
    let expected = task.fields();
    let large_enough = |(given, own): (&(String, u32), &Field)| given.1 >= own.vocabulary;
    if shape.fields.len() != expected.len() || !shape.fields.iter().zip(&expected).all(large_enough) {
        let expected =
            expected.iter().map(|field| format!("{} of {}", field.name, field.vocabulary)).collect::<Vec<_>>();
        return wrong("model.fields", format!("{:?}", shape.fields), format!("at least {}", expected.join(", ")));
    }
    if !info.registers.fit(width as usize) {
        return wrong(
            "registers",
            format!("{} columns with gaps or more", info.registers.width()),
            format!("one after another in {width} columns"),
        );
    }
    if info.layers.len() != plan.layers.len() {
        return wrong("layers", info.layers.len().to_string(), format!("{}, as the stack has", plan.layers.len()));
    }
    let answers = match &info.thoughts {
        None => shape.classes >= task.classes() as usize,
        Some(thoughts) => {
            let rising = thoughts.fields.windows(2).all(|pair| pair[0] < pair[1]);
            let inside = thoughts.fields.last().is_some_and(|last| *last < shape.classes) && thoughts.fields[0] == 0;
            let fit = thoughts.fields.len() == expected.len() && thoughts.answer < expected.len();
            fit && rising && inside && (1..=MOST_THOUGHTS).contains(&thoughts.count)
        }
    };
    if !answers {
        return wrong(
            "model.classes",
            shape.classes.to_string(),
            "as many as the task or the thoughts need".to_owned(),
        );
    }
    let single = shape.fields.len() == 1;
    let fields = shape.fields.iter().map(|(name, size)| Field::new(name.clone(), *size)).collect();
    let config = ModelConfig {
        input: if single { InputConfig::Vocabulary(shape.fields[0].1 as usize) } else { InputConfig::Fields(fields) },
        classes: shape.classes,
        norm: *norm,
        feed_forward: FeedForwardConfig::Relu { hidden: Some(shape.hidden) },
        positions: shape.positions.map_or(Positions::None, |length| Positions::Learned { length }),
        causal: shape.causal,
        chunk: shape.chunk,
        ..ModelConfig::default()
    };
    let bad_model = |source| NetworkError::Model { path: path.clone(), source };
    let weights_path = folder.join(files::CONSTRUCTION_WEIGHTS);
    checkpoint::check_room(&weights_path, config.count(&plan).map_err(bad_model)?)?;
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(0)).map_err(bad_model)?;
    checkpoint::load(&weights_path, &mut weights)?;
    let (name, provenance) = (info.name.clone(), Provenance::Construction(Box::new(info)));
    Ok(Network { name, task: Some(task), plan, config, model, weights, provenance })
}
