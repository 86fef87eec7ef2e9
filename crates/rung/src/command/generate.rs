//! `rung generate`: text, or tokens, from an external checkpoint.
//!
//! ```text
//! rung generate SmolLM2-135M-Instruct.Q4_1.gguf --prompt "The capital of France is" --count 20
//! rung generate FOLDER --tokens 1,5,7 --count 20 --temperature 0.8 --seed 3 --json
//! ```
//!
//! It also prints the number of bytes of the cache, measured, and as `rung plan` computes it.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use rung_nn::families::decode::{CheckpointDecoder, sample};
use rung_nn::memory;
use rung_theory::task::seeded;
use rung_tokenizer::Tokenizer;
use serde_json::json;

use super::checkpoint::{CheckpointInput, predict_cache_bytes, tokenizer};
use super::memory::MemoryOption;
use crate::output::{print, print_json, with_commas};

/// Generate tokens or text from a checkpoint.
#[derive(Debug, clap::Args)]
pub struct Generate {
    #[command(flatten)]
    input: CheckpointInput,
    /// Text to continue, instead of token ids.
    #[arg(long, value_name = "TEXT", conflicts_with = "tokens")]
    prompt: Option<String>,
    /// Maximum number of new tokens; generation stops at the end-of-sequence token.
    #[arg(long, default_value_t = 32, value_name = "N")]
    count: usize,
    /// Sampling temperature; 0 is greedy decoding.
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    temperature: f64,
    /// Seed of the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Generate {
    /// Runs the command.
    ///
    /// # Errors
    /// The checkpoint or its tokenizer cannot be read, or a token is beyond its vocabulary.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            bail!("--temperature: found {}, expected a number from 0", self.temperature);
        }
        let tokenizer = tokenizer(&self.input.model)?;
        let prompt = self.encode(tokenizer.as_ref())?;
        let checkpoint = self.input.open()?;
        let total = prompt.len().saturating_add(self.count);
        let predicted_bytes = predict_cache_bytes(&self.input.model, total)?.unwrap_or(0);
        let prefill_bytes = checkpoint.config.memory_estimate(&checkpoint.plan).inference_bytes(prompt.len());
        memory::check(
            format!("a cache of {total} tokens"),
            prefill_bytes.saturating_add(predicted_bytes.into()),
            None,
        )?;
        let mut decoder = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, self.input.threads());
        let (mut rng, mut tokens) = (seeded(self.seed), Vec::new());
        let streams_text = !self.json && std::io::stdout().is_terminal();
        let (mut printed, mut step_tokens) = (String::new(), prompt.clone());
        let start = Instant::now();
        while tokens.len() < self.count {
            let next = sample(&decoder.next_logits(&step_tokens)?, self.temperature, &mut rng);
            if tokenizer.as_ref().is_some_and(|tokenizer| tokenizer.is_eos(next)) {
                break;
            }
            tokens.push(next);
            step_tokens = vec![next];
            if streams_text {
                let text = tokens_text(tokenizer.as_ref(), &tokens)?;
                // A character may take several tokens; an incomplete one is not printed yet.
                if let Some(added) = text.strip_prefix(&printed).filter(|added| !added.ends_with('\u{fffd}')) {
                    print(added)?;
                    printed = text;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let text = tokenizer.as_ref().map(|tokenizer| tokenizer.decode(&tokens)).transpose()?;
        let (cache_bytes, predicted_bytes) =
            (decoder.cache_bytes(), predict_cache_bytes(&self.input.model, decoder.token_count())?);
        if self.json {
            print_json(&json!({
                "tokens": tokens,
                "text": text,
                "prompt_tokens": prompt,
                "cache": { "tokens": decoder.token_count(), "bytes": cache_bytes, "planned_bytes": predicted_bytes },
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        if streams_text {
            print("\n")?;
        } else {
            print(&format!("{}\n", tokens_text(tokenizer.as_ref(), &tokens)?))?;
        }
        let predicted_text = predicted_bytes.map_or("unknown".to_owned(), with_commas);
        eprintln!(
            "{} tokens in {seconds:.1} s; cache of {} tokens: {} bytes, planned {predicted_text}",
            tokens.len(),
            decoder.token_count(),
            with_commas(cache_bytes),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn encode(&self, tokenizer: Option<&Tokenizer>) -> anyhow::Result<Vec<u32>> {
        let tokens = match (&self.prompt, tokenizer) {
            (Some(prompt), Some(tokenizer)) => tokenizer.encode(prompt)?,
            (Some(_), None) => {
                bail!("{}: found no tokenizer, expected one for --prompt", self.input.model.display())
            }
            (None, _) => self.input.tokens.clone(),
        };
        if tokens.is_empty() {
            bail!("found no tokens, expected --tokens IDS or --prompt TEXT");
        }
        Ok(tokens)
    }
}

/// Tokens as text, or as ids if there is no tokenizer.
fn tokens_text(tokenizer: Option<&Tokenizer>, tokens: &[u32]) -> anyhow::Result<String> {
    match tokenizer {
        Some(tokenizer) => Ok(tokenizer.decode(tokens)?),
        None => Ok(tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
    }
}
