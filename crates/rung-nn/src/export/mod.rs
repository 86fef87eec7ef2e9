//! Writes constructions and trained runs as checkpoints of transformers and llama.cpp.
//!
//! ```text
//! Network --ExportNetwork--> norms, gated MLPs, one vocabulary --family--> config, tensors --hugging_face or gguf--> files
//! ```
//!
//! A family is an architecture of transformers and llama.cpp. If its layers have a component that the network does not have, such as a norm,
//! the export gives it weights with which it does nothing; if that is impossible, the export fails with an error that names the component.
//! Tokens that are tuples of fields become one vocabulary of named tokens, so that a prompt is a line of text; see [`vocabulary`].
//!
//! ```
//! use rung_nn::construct::{self, ConstructionRequest};
//! use rung_nn::export::{ExportOptions, export};
//! use rung_nn::families;
//!
//! let network = construct::build::<f32>("U1", &ConstructionRequest::default())?;
//! let folder = std::env::temp_dir().join(format!("rung-doc-export-{}", std::process::id()));
//! let exported = export(&network, &ExportOptions::default())?;
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
mod network;
mod numbers;
mod olmo_hybrid;
mod precision;
mod qwen35;
mod rwkv7;
pub mod vocabulary;

pub use numbers::NumberFormat;
pub use precision::PrecisionCheck;
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
use network::ExportNetwork;

/// Why a network cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A component of the network, or an option, is not supported by the target format.
    #[error("{component}: found {found}, expected {expected}")]
    Unsupported {
        /// The component or option.
        component: String,
        /// What the network has.
        found: String,
        /// What the target supports.
        expected: String,
    },
    /// The network has no task, or rejects its tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl ExportError {
    fn unsupported(component: impl Display, found: impl Display, expected: impl Display) -> Self {
        Self::Unsupported { component: component.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// The format of an exported checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// A Hugging Face directory: `config.json`, `model.safetensors`, `tokenizer.json`.
    #[default]
    HuggingFace,
    /// One GGUF file, `model.gguf`.
    Gguf,
}

/// Options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The format of the files.
    pub format: ExportFormat,
    /// The name of the family; by default the first that supports the layers.
    pub family: Option<String>,
    /// Number format of matrices.
    pub numbers: NumberFormat,
    /// How many further tables of function composition the vocabulary has tokens for.
    pub extra_tables: usize,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { format: ExportFormat::HuggingFace, family: None, numbers: NumberFormat::F32, extra_tables: 0 }
    }
}

/// A tensor of the exported checkpoint.
struct ExportTensor {
    name: String,
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl ExportTensor {
    fn matrix(name: impl Into<String>, matrix: Matrix) -> Self {
        Self { name: name.into(), shape: vec![matrix.rows, matrix.columns], values: matrix.values }
    }

    fn vector(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), shape: vec![values.len()], values }
    }
}

/// A network converted to a family.
struct FamilyCheckpoint {
    /// `config.json`, without the fields that all families share; empty for GGUF.
    config: Map<String, Value>,
    /// Keys of a GGUF header after the architecture's name; empty for Hugging Face.
    keys: Vec<(String, gguf::HeaderValue)>,
    tensors: Vec<ExportTensor>,
    /// Width of the residual stream.
    width: usize,
}

/// An architecture of transformers or llama.cpp.
pub struct Family {
    /// The name: that of transformers' `model_type`, or of GGUF's architecture where there is no such class.
    pub name: &'static str,
    /// The class in transformers, if there is one.
    pub class: Option<&'static str>,
    /// The architecture in GGUF files, if llama.cpp has one.
    pub architecture: Option<&'static str>,
    /// The mixers that its layers may have.
    pub mixers: &'static [&'static str],
    /// Whether its layers have feed-forward networks.
    pub feed_forward: bool,
    /// For a smallest width, the width of an [`ExportNetwork`] that this family can store. (`rwkv7` stores the residual stream twice, so
    /// its files have twice that width.)
    width: fn(&Plan, usize) -> usize,
    write: fn(&ExportNetwork, ExportFormat) -> Result<FamilyCheckpoint, ExportError>,
}

/// Every family, in the order of preference.
pub static FAMILIES: &[Family] =
    &[llama::FAMILY, mamba2::FAMILY, granite_hybrid::FAMILY, olmo_hybrid::FAMILY, qwen35::FAMILY, rwkv7::FAMILY];

impl Family {
    fn supports(&self, plan: &Plan, feed_forward: bool, format: ExportFormat) -> bool {
        let has_format = match format {
            ExportFormat::HuggingFace => self.class.is_some(),
            ExportFormat::Gguf => self.architecture.is_some(),
        };
        let mut mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
        has_format && (self.feed_forward || !feed_forward) && mixers.all(|mixer| self.mixers.contains(&mixer.name()))
    }
}

/// A network converted to an external checkpoint, in memory.
pub struct ExportedCheckpoint {
    /// The architecture.
    pub family: &'static Family,
    /// The format of the files.
    pub format: ExportFormat,
    /// The tokens with their names.
    pub vocabulary: Vocabulary,
    /// Number format of matrices.
    pub numbers: NumberFormat,
    /// Width of its residual stream.
    pub width: usize,
    /// The longest sequence.
    max_length: usize,
    name: String,
    target: FamilyCheckpoint,
}

/// Converts a network to a family's checkpoint.
///
/// # Errors
/// No family supports the layers, or a component of the network is not supported by the family.
pub fn export<S: Scalar>(network: &Network<S>, options: &ExportOptions) -> Result<ExportedCheckpoint, ExportError> {
    let feed_forward = network.config.feed_forward != FeedForwardConfig::None;
    let family = select_family(&network.plan, feed_forward, options)?;
    let vocabulary = Vocabulary::new(network.task()?, options.extra_tables)?;
    let export_network = ExportNetwork::from_network(network, &vocabulary, family.width)?;
    let target = (family.write)(&export_network, options.format)?;
    let (name, max_length) = (network.name.clone(), export_network.max_length);
    let (format, numbers, width) = (options.format, options.numbers, target.width);
    Ok(ExportedCheckpoint { family, format, vocabulary, numbers, width, max_length, name, target })
}

fn select_family(plan: &Plan, feed_forward: bool, options: &ExportOptions) -> Result<&'static Family, ExportError> {
    let is_supported = |family: &&Family| family.supports(plan, feed_forward, options.format);
    let family_names = || FAMILIES.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
    if let Some(name) = &options.family {
        let family = FAMILIES
            .iter()
            .find(|family| family.name == name || family.architecture == Some(name))
            .ok_or_else(|| {
                ExportError::unsupported(
                    "family",
                    format!("`{}`", name.escape_debug()),
                    format!("one of {}", family_names()),
                )
            })?;
        if is_supported(&family) {
            return Ok(family);
        }
        let without_mlp = if family.feed_forward { "" } else { " without feed-forward networks" };
        let expected = format!(
            "layers of {}{without_mlp}, in a format that exists for `{}`",
            family.mixers.join(", "),
            family.name
        );
        return Err(ExportError::unsupported("stack", plan.mixer_names(), expected));
    }
    FAMILIES.iter().find(is_supported).ok_or_else(|| {
        if let Some(family) = FAMILIES.iter().find(|family| family.supports(plan, false, options.format)) {
            let expected = format!("none: that of `{}` has no counterpart", family.name);
            return ExportError::unsupported("feed-forward network", "one in every layer", expected);
        }
        let describe = |family: &Family| format!("{} ({})", family.name, family.mixers.join(", "));
        let all = FAMILIES.iter().map(describe).collect::<Vec<_>>().join("; ");
        ExportError::unsupported("stack", plan.mixer_names(), format!("layers of one family: {all}"))
    })
}

impl ExportedCheckpoint {
    /// Writes the files into a directory, creating it if it does not exist. Returns their names.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<&'static str>, ExportError> {
        let files = match self.format {
            ExportFormat::HuggingFace => hugging_face::files(self)?,
            ExportFormat::Gguf => vec![("model.gguf", gguf::encode_file(self)?)],
        };
        fs::create_dir_all(folder).map_err(|source| ExportError::System { path: folder.to_owned(), source })?;
        for (name, bytes) in &files {
            write_atomically(&folder.join(name), bytes)
                .map_err(|error| ExportError::System { path: error.path, source: error.source })?;
        }
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }
}
