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
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Defaults, Plan, StackError};
use rung_theory::task::{self, Field, TaskError, seeded};
use serde::{Deserialize, Serialize};

use super::{Construction, Holds, Sheet};
use crate::checkpoint::{self, CheckpointError};
use crate::error::ModelError;
use crate::model::{ChannelConfig, Input, ModelConfig, NormConfig};
use crate::position::Positions;

/// The file of weights.
pub const WEIGHTS: &str = "model.safetensors";
/// The file of everything else.
pub const SHEET: &str = "construction.json";
const STACK: &str = "stack.txt";
const README: &str = "README.md";

/// More bytes than a description has.
const MOST_BYTES: u64 = 1 << 24;
/// More thoughts than any walk needs.
const MOST_THOUGHTS: usize = 1 << 12;

/// Why a folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The description is no JSON of this kind.
    #[error("{}: {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the reader met.
        reason: String,
    },
    /// A field that does not fit the others.
    #[error("{}: `{field}` is {found}; expected {expected}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it could say.
        expected: String,
    },
    /// Its task cannot be read.
    #[error("{}: {source}", .path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TaskError,
    },
    /// Its stack cannot be read.
    #[error("{}: {source}", .path.display())]
    Stack {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StackError,
    },
    /// Its network cannot be built.
    #[error("{}: {source}", .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ModelError,
    },
    /// Its weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] CheckpointError),
}

/// `construction.json`.
#[derive(Serialize, Deserialize)]
struct Description {
    format: u32,
    #[serde(flatten)]
    sheet: Sheet,
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

impl<S: Scalar> Construction<S> {
    /// Writes the folder, making it if it does not exist.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), FolderError> {
        let system = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError::System { path, source }
        };
        fs::create_dir_all(folder).map_err(system(folder))?;
        checkpoint::save(&folder.join(WEIGHTS), &self.weights)?;
        let json = serde_json::to_string_pretty(&self.describe()).unwrap_or_else(|error| unreachable!("{error}"));
        let stack = format!("{}\n", self.plan.to_stack());
        for (name, text) in [(SHEET, json + "\n"), (STACK, stack), (README, self.readme())] {
            let (path, beside) = (folder.join(name), folder.join(format!(".{name}.part")));
            fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path)).map_err(system(&path))?;
        }
        Ok(())
    }

    fn describe(&self) -> Description {
        let config = &self.config;
        let fields = match &config.input {
            Input::Vocabulary(size) => vec![("token".to_owned(), *size as u32)],
            Input::Fields(fields) => fields.iter().map(|field| (field.name.clone(), field.vocabulary)).collect(),
        };
        let hidden = if let ChannelConfig::Relu { hidden: Some(hidden) } = config.channel { hidden } else { 0 };
        let norm = NORMS.iter().find(|(_, norm)| *norm == config.norm).map_or("none", |(word, _)| word);
        Description {
            format: 1,
            sheet: self.sheet.clone(),
            stack: self.plan.to_stack().to_string(),
            model: Shape {
                width: self.plan.width,
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
    pub fn readme(&self) -> String {
        let sheet = &self.sheet;
        let mut text = String::new();
        let _ = writeln!(text, "# {}: explicit weights for `{}`\n", sheet.name, sheet.task);
        let _ = writeln!(
            text,
            "Constructed, not trained. {} weights; a stream of {} columns; ",
            self.weights.size(),
            self.plan.width
        );
        let _ = writeln!(text, "`{}`.\n", self.plan.outline());
        let _ = writeln!(text, "`rung verify` runs it against the oracle of its task.\n\n## Layers\n");
        for (index, about) in sheet.layers.iter().enumerate() {
            let about = if about.is_empty() { "does nothing" } else { about };
            let _ = writeln!(text, "{}. {about}", index + 1);
        }
        if let Some(thoughts) = &sheet.thoughts {
            let _ = writeln!(
                text,
                "\nAfter the prompt it emits {} tokens and reads them again; the last holds the answer.",
                thoughts.count
            );
        }
        let _ = writeln!(text, "\n## Registers\n\n| columns | name | holds | |\n|---|---|---|---|");
        for register in sheet.registers.iter() {
            let holds = match register.holds {
                Holds::Constant => "1",
                Holds::Flag => "+1 yes, -1 no",
                Holds::Number => "bits, lowest first: +1, -1; 0 for nothing",
                Holds::OneHot => "one 1 among zeros",
                Holds::Raw => "what was read",
            };
            let last = register.start + register.size - 1;
            let _ =
                writeln!(text, "| {}..{last} | `{}` | {holds} | {} |", register.start, register.name, register.about);
        }
        text
    }
}

/// Reads a folder that [`Construction::save`] wrote.
///
/// # Errors
/// A file cannot be read, or something in it does not fit.
pub fn load<S: Scalar>(folder: &Path) -> Result<Construction<S>, FolderError> {
    let path = folder.join(SHEET);
    let text = read(&path).map_err(|source| FolderError::System { path: path.clone(), source })?;
    let malformed = |reason: String| FolderError::Malformed { path: path.clone(), reason };
    let description: Description = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let Description { format, sheet, stack, model: shape } = description;
    let wrong =
        |field, found: String, expected: String| Err(FolderError::Field { path: path.clone(), field, found, expected });
    if format != 1 {
        return wrong("format", format.to_string(), "1".to_owned());
    }
    let task = task::parse(&sheet.task).map_err(|source| FolderError::Task { path: path.clone(), source })?;
    let width = shape.width;
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width), bits: 32 };
    let plan = Plan::parse(&stack, &defaults).map_err(|source| FolderError::Stack { path: path.clone(), source })?;
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
    if !sheet.registers.fit(width as usize) {
        return wrong(
            "registers",
            format!("{} columns with gaps or more", sheet.registers.width()),
            format!("one after another in {width} columns"),
        );
    }
    if sheet.layers.len() != plan.layers.len() {
        return wrong("layers", sheet.layers.len().to_string(), format!("{}, as the stack has", plan.layers.len()));
    }
    let answers = match &sheet.thoughts {
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
        input: if single { Input::Vocabulary(shape.fields[0].1 as usize) } else { Input::Fields(fields) },
        classes: shape.classes,
        norm: *norm,
        channel: ChannelConfig::Relu { hidden: Some(shape.hidden) },
        positions: shape.positions.map_or(Positions::None, |length| Positions::Learned { length }),
        causal: shape.causal,
        chunk: shape.chunk,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::new();
    let model = config
        .init(&plan, &mut weights, &mut seeded(0))
        .map_err(|source| FolderError::Model { path: path.clone(), source })?;
    checkpoint::load(&folder.join(WEIGHTS), &mut weights)?;
    Ok(Construction { sheet, task, plan, config, model, weights })
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
