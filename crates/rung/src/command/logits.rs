//! `rung logits`: the logits of an external checkpoint at every position.
//!
//! ```text
//! rung logits SmolLM2-135M --tokens 1,5,7 --json             {"logits": [[..], [..], [..]]}, one row for each position
//! rung logits model.gguf --tokens 1,5,7 --stepwise --json    the same, token by token from the cache
//! ```

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use rung_nn::Network;
use rung_nn::families::decode::{CheckpointDecoder, log_softmax};
use rung_nn::memory::{self, TooLarge};
use serde_json::json;

use super::checkpoint::CheckpointInput;
use super::memory::MemoryOption;
use crate::output::{print, print_json};

/// Number of most likely tokens in the text output for each position.
const TOP_TOKENS: usize = 5;
/// Bytes of a logit as a JSON value and as digits.
const JSON_LOGIT_BYTES: u128 = 64;

/// Compute a checkpoint's logits at every position.
#[derive(Debug, clap::Args)]
pub struct Logits {
    #[command(flatten)]
    input: CheckpointInput,
    /// Run token by token from the cache instead of all at once.
    #[arg(long)]
    stepwise: bool,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Logits {
    /// Runs the command.
    ///
    /// # Errors
    /// The checkpoint cannot be read, or a token is beyond its vocabulary.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        let tokens = &self.input.tokens;
        if tokens.is_empty() {
            bail!("--tokens: found none, expected at least one id");
        }
        let checkpoint = self.input.open()?;
        self.check_memory(&checkpoint)?;
        let mut decoder = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, self.input.threads());
        let mut logits = Vec::new();
        for chunk in tokens.chunks(if self.stepwise { 1 } else { tokens.len() }) {
            logits.extend(decoder.logits(chunk)?);
        }
        let rows: Vec<&[f32]> = logits.chunks(checkpoint.model.classes()).collect();
        if self.json {
            print_json(&json!({ "logits": rows }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        for (token, row) in tokens.iter().zip(rows) {
            let log_probabilities = log_softmax(row);
            let mut ranking: Vec<usize> = (0..row.len()).collect();
            ranking.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            let top_tokens = ranking
                .iter()
                .take(TOP_TOKENS)
                .map(|id| format!("{id} ({:.1}%)", 100.0 * log_probabilities[*id].exp()));
            writeln!(text, "after {token}: {}", top_tokens.collect::<Vec<_>>().join(", "))?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Rejects more logits than fit in memory: one for every token and class.
    fn check_memory(&self, checkpoint: &Network<f32>) -> Result<(), TooLarge> {
        let (tokens, classes) = (self.input.tokens.len(), checkpoint.model.classes());
        let pass = checkpoint.config.memory_estimate(&checkpoint.plan).inference_bytes(tokens);
        let logits = tokens as u128 * classes as u128;
        let json = if self.json { logits.saturating_mul(JSON_LOGIT_BYTES) } else { 0 };
        memory::check(format!("logits of {tokens} tokens and {classes} classes"), pass.saturating_add(json), None)
    }
}
