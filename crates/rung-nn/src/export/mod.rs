//! Constructions and trained runs as checkpoints that other programs run.
//!
//! ```text
//! Network --plain--> norms, gated networks, one vocabulary --family--> config, tensors --hugging_face or gguf--> files
//! ```
//!
//! A family is an architecture that transformers and llama.cpp know. Where its layers have a part that ours lack, the export finds weights
//! that make the part do nothing; where there are none, it refuses and names the part. Tokens that are tuples of fields become one
//! vocabulary of named tokens, so that a prompt is a line of text; see [`vocabulary`].
//!
//! ```
//! use rung_nn::construct::{self, ConstructionRequest};
//! use rung_nn::export::{ExportOptions, export};
//! use rung_nn::families;
//!
//! let built = construct::build::<f32>("U1", &ConstructionRequest::default())?;
//! let folder = std::env::temp_dir().join(format!("rung-doc-export-{}", std::process::id()));
//! let exported = export(&built, &ExportOptions::default())?;
//! exported.write(&folder)?;
//! assert_eq!(families::open::<f32>(&folder)?.family, "llama");
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a family: write its file, and add a line to the registry below.

mod gguf;
mod granite_hybrid;
mod hugging_face;
mod llama;
mod mamba2;
mod matrix;
mod numbers;
mod olmo_hybrid;
mod plain;
mod qwen35;
mod rwkv7;
pub mod vocabulary;

pub use numbers::NumberFormat;
pub use vocabulary::Vocabulary;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use rung_engine::Scalar;
use rung_theory::stack::Plan;
use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::file::write_atomically;
use crate::model::FeedForwardConfig;
use crate::network::Network;
use matrix::Matrix;
use plain::ExportNetwork;

/// Why a network cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A part of the network, or an option, has no counterpart in the target.
    #[error("{part}: found {found}, expected {expected}")]
    Unfit {
        /// The part.
        part: String,
        /// What it is.
        found: String,
        /// What it would have to be.
        expected: String,
    },
    /// The network has no task, or refuses its tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ExportError {
    fn unfit(part: impl Display, found: impl Display, expected: impl Display) -> Self {
        Self::Unfit { part: part.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// Which files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// A Hugging Face directory: `config.json`, `model.safetensors`, `tokenizer.json`.
    #[default]
    HuggingFace,
    /// One GGUF file, `model.gguf`.
    Gguf,
}

/// How a network is exported.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Which files.
    pub format: ExportFormat,
    /// The family, by name; the first that fits the layers if not given.
    pub family: Option<String>,
    /// Number format of matrices.
    pub numbers: NumberFormat,
    /// Further tables of function composition that the vocabulary has entries of.
    pub beyond: usize,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { format: ExportFormat::HuggingFace, family: None, numbers: NumberFormat::F32, beyond: 0 }
    }
}

/// A tensor of the target.
struct TargetTensor {
    name: String,
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl TargetTensor {
    fn matrix(name: impl Into<String>, matrix: Matrix) -> Self {
        Self { name: name.into(), shape: vec![matrix.rows, matrix.columns], values: matrix.values }
    }

    fn vector(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), shape: vec![values.len()], values }
    }
}

/// What a family makes of a network.
struct Target {
    /// `config.json`, without what all families share; empty for GGUF.
    config: Map<String, Value>,
    /// Keys of a GGUF header after the architecture's name; empty for Hugging Face.
    keys: Vec<(String, gguf::Value)>,
    tensors: Vec<TargetTensor>,
    /// Width of the stream.
    width: usize,
}

/// An architecture of other programs.
pub struct Family {
    /// The name: that of transformers' `model_type`, or of GGUF's architecture where there is no such class.
    pub name: &'static str,
    /// The class in transformers, if there is one.
    pub class: Option<&'static str>,
    /// The architecture in GGUF files, if llama.cpp has one.
    pub architecture: Option<&'static str>,
    /// Which mixers its layers may have.
    pub mixers: &'static [&'static str],
    /// Whether its layers have a feed-forward network.
    pub feed_forward: bool,
    /// The width that the stream gets, which is at least the given one.
    width: fn(&Plan, usize) -> usize,
    write: fn(&ExportNetwork, ExportFormat) -> Result<Target, ExportError>,
}

/// Every family, those that are preferred first.
pub static FAMILIES: &[Family] =
    &[llama::FAMILY, mamba2::FAMILY, granite_hybrid::FAMILY, olmo_hybrid::FAMILY, qwen35::FAMILY, rwkv7::FAMILY];

impl Family {
    fn fits(&self, plan: &Plan, feed_forward: bool, format: ExportFormat) -> bool {
        let has_format = match format {
            ExportFormat::HuggingFace => self.class.is_some(),
            ExportFormat::Gguf => self.architecture.is_some(),
        };
        let mut mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
        has_format && (self.feed_forward || !feed_forward) && mixers.all(|mixer| self.mixers.contains(&mixer.name()))
    }
}

/// A network as another program's checkpoint.
pub struct ExportedCheckpoint {
    /// The family.
    pub family: &'static Family,
    /// Which files it will be.
    pub format: ExportFormat,
    /// Its tokens.
    pub vocabulary: Vocabulary,
    /// Number format of matrices.
    pub numbers: NumberFormat,
    /// Width of its stream.
    pub width: usize,
    length: usize,
    name: String,
    target: Target,
}

/// Writes a network as a family's checkpoint, in memory.
///
/// # Errors
/// No family fits, or a part of the network has no counterpart there.
pub fn export<S: Scalar>(network: &Network<S>, options: &ExportOptions) -> Result<ExportedCheckpoint, ExportError> {
    let feed_forward = network.config.feed_forward != FeedForwardConfig::None;
    let family = choose(&network.plan, feed_forward, options)?;
    let vocabulary = Vocabulary::new(network.task()?, options.beyond)?;
    let plain = ExportNetwork::read(network, &vocabulary, family.width)?;
    let target = (family.write)(&plain, options.format)?;
    let (name, length) = (network.name.clone(), plain.length);
    let (format, numbers, width) = (options.format, options.numbers, target.width);
    Ok(ExportedCheckpoint { family, format, vocabulary, numbers, width, length, name, target })
}

fn choose(plan: &Plan, feed_forward: bool, options: &ExportOptions) -> Result<&'static Family, ExportError> {
    let fits = |family: &&Family| family.fits(plan, feed_forward, options.format);
    let known = || FAMILIES.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
    if let Some(name) = &options.family {
        let family =
            FAMILIES.iter().find(|family| family.name == name || family.architecture == Some(name)).ok_or_else(
                || ExportError::unfit("family", format!("`{}`", name.escape_debug()), format!("one of {}", known())),
            )?;
        if fits(&family) {
            return Ok(family);
        }
        let network = if family.feed_forward { "" } else { " without feed-forward networks" };
        let expected =
            format!("layers of {}{network}, in a format that there is of `{}`", family.mixers.join(", "), family.name);
        return Err(ExportError::unfit("stack", plan.outline(), expected));
    }
    FAMILIES.iter().find(fits).ok_or_else(|| {
        if let Some(family) = FAMILIES.iter().find(|family| family.fits(plan, false, options.format)) {
            let expected = format!("none: that of `{}` has no counterpart", family.name);
            return ExportError::unfit("feed-forward network", "one in every layer", expected);
        }
        let family = |family: &Family| format!("{} ({})", family.name, family.mixers.join(", "));
        let all = FAMILIES.iter().map(family).collect::<Vec<_>>().join("; ");
        ExportError::unfit("stack", plan.outline(), format!("layers of one family: {all}"))
    })
}

impl ExportedCheckpoint {
    /// Writes the files into a directory, making it if it does not exist. Returns their names.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<&'static str>, ExportError> {
        let files = match self.format {
            ExportFormat::HuggingFace => hugging_face::files(self)?,
            ExportFormat::Gguf => vec![("model.gguf", gguf::file(self)?)],
        };
        fs::create_dir_all(folder).map_err(|source| ExportError::System { path: folder.to_owned(), source })?;
        for (name, bytes) in &files {
            write_atomically(&folder.join(name), bytes)
                .map_err(|error| ExportError::System { path: error.path, source: error.source })?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }
}
