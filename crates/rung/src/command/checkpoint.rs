//! What commands that run a checkpoint of another program share.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rung_audit::{AuditOptions, FP32, audit_path};
use rung_nn::families::{self, Checkpoint, converted};
use rung_tokenizer::Tokenizer;

use crate::output::spinner;

/// Where a sequence comes from.
#[derive(Debug, clap::Args)]
pub struct Sequence {
    /// Hugging Face directory (config.json and safetensors files) or GGUF file.
    pub model: PathBuf,
    /// Token ids, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub tokens: Vec<u32>,
    /// Number of threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl Sequence {
    /// Reads the checkpoint.
    pub fn open(&self) -> anyhow::Result<Checkpoint<f32>> {
        let bar = spinner(format!("opening {}", self.model.display()));
        let opened = open(&self.model);
        bar.finish_and_clear();
        opened
    }

    /// Threads to run on.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into)).max(1)
    }
}

/// Reads a checkpoint of another program.
pub fn open(path: &Path) -> anyhow::Result<Checkpoint<f32>> {
    if !families::recognise(path) {
        bail!(
            "{}: found neither config.json nor a GGUF file, expected a checkpoint of another program",
            path.display()
        );
    }
    Ok(families::open(path)?)
}

/// The tokenizer beside, or in, a checkpoint; nothing if it has none.
pub fn tokenizer(path: &Path) -> anyhow::Result<Option<Tokenizer>> {
    Ok(Tokenizer::open(&converted::base(path)?)?)
}

/// What the planner says that keys, values and states take after so many tokens, in the precision that runs here.
pub fn planned_bytes(path: &Path, tokens: usize) -> anyhow::Result<Option<u64>> {
    if converted::recognise(path) {
        // The config is that of the checkpoint before layers were replaced.
        return Ok(None);
    }
    let config = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let options = AuditOptions {
        context: tokens.max(1) as u64,
        kv_dtype: FP32,
        state_dtype: Some(FP32),
        ..AuditOptions::default()
    };
    let audit = audit_path(&config, &options).with_context(|| format!("auditing {}", config.display()))?;
    Ok(audit.cache.map(|cache| cache.total))
}
