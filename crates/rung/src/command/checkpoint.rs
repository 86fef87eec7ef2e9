//! Options and functions for commands that run an external checkpoint.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rung_audit::{AuditOptions, audit_path};
use rung_nn::Network;
use rung_nn::families::decode::predicted_cache_bytes;
use rung_nn::families::{self, replaced_mixers};
use rung_tokenizer::Tokenizer;

use crate::output::with_spinner;

/// A checkpoint, and the tokens to run it on.
#[derive(Debug, clap::Args)]
pub struct CheckpointInput {
    /// Hugging Face directory (config.json and safetensors files) or GGUF file.
    pub model: PathBuf,
    /// Token ids, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub tokens: Vec<u32>,
    /// Number of threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl CheckpointInput {
    /// Reads the checkpoint.
    pub fn open(&self) -> anyhow::Result<Network<f32>> {
        with_spinner(format!("opening {}", self.model.display()), || open(&self.model))
    }

    /// Number of threads; all cores by default.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into)).max(1)
    }
}

/// Reads an external checkpoint.
pub fn open(path: &Path) -> anyhow::Result<Network<f32>> {
    if !families::is_checkpoint(path) {
        bail!("{}: found neither config.json nor a GGUF file, expected an external checkpoint", path.display());
    }
    Ok(Network::open(path)?)
}

/// The tokenizer of a checkpoint's directory or GGUF file; none if it has none.
pub fn tokenizer(path: &Path) -> anyhow::Result<Option<Tokenizer>> {
    Ok(Tokenizer::open(&replaced_mixers::base_path(path)?)?)
}

/// Size in bytes, as `rung plan` computes it, of the KV cache and recurrent states after a number of tokens, in fp32; none where it is
/// unknown and for checkpoints whose layers were replaced by `rung convert`.
pub fn predict_cache_bytes(path: &Path, tokens: usize) -> anyhow::Result<Option<u64>> {
    if replaced_mixers::is_converted(path) {
        // The config describes the checkpoint before its layers were replaced.
        return Ok(None);
    }
    let config = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let audit =
        audit_path(&config, &AuditOptions::default()).with_context(|| format!("auditing {}", config.display()))?;
    Ok(predicted_cache_bytes(&audit, tokens))
}
