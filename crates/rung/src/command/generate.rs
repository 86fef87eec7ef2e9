//! `rung generate`: text, or tokens, from a checkpoint of another program.
//!
//! ```text
//! rung generate SmolLM2-135M-Instruct.Q4_1.gguf --prompt "The capital of France is" --count 20
//! rung generate FOLDER --tokens 1,5,7 --count 20 --temperature 0.8 --seed 3 --json
//! ```
//!
//! Beside the text it says how many bytes the cache really takes, and what the planner says that it takes.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use rung_nn::families::decode::{CheckpointDecoder, sample};
use rung_nn::memory::{self, Footprint};
use rung_theory::task::seeded;
use rung_tokenizer::Tokenizer;
use serde_json::json;

use super::checkpoint::{Sequence, planned_bytes, tokenizer};
use super::memory::MemoryOption;
use crate::output::{commas, print, print_json};

/// Generate tokens or text from a checkpoint.
#[derive(Debug, clap::Args)]
pub struct Generate {
    #[command(flatten)]
    sequence: Sequence,
    /// Text to continue, instead of token ids.
    #[arg(long, value_name = "TEXT", conflicts_with = "tokens")]
    prompt: Option<String>,
    /// Number of tokens to add; fewer if the model ends its text.
    #[arg(long, default_value_t = 32, value_name = "N")]
    count: usize,
    /// Sampling temperature; 0 takes the likeliest token.
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
    /// Runs it.
    ///
    /// # Errors
    /// The checkpoint or its tokenizer cannot be read, or a token is beyond its vocabulary.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            bail!("--temperature: found {}, expected a number from 0", self.temperature);
        }
        let words = tokenizer(&self.sequence.model)?;
        let prompt = self.encode(words.as_ref())?;
        let checkpoint = self.sequence.open()?;
        let total = prompt.len().saturating_add(self.count);
        let cache = planned_bytes(&self.sequence.model, total)?.unwrap_or(0);
        let pass = Footprint::new(&checkpoint.plan, &checkpoint.config).running_bytes(prompt.len());
        memory::check(format!("a cache of {total} tokens"), pass.saturating_add(cache.into()), None)?;
        let mut decoder = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, self.sequence.threads());
        let (mut rng, mut tokens) = (seeded(self.seed), Vec::new());
        let live = !self.json && std::io::stdout().is_terminal();
        let (mut said, mut input) = (String::new(), prompt.clone());
        let start = Instant::now();
        while tokens.len() < self.count {
            let next = sample(&decoder.next_logits(&input)?, self.temperature, &mut rng);
            if words.as_ref().is_some_and(|words| words.ends_text(next)) {
                break;
            }
            tokens.push(next);
            input = vec![next];
            if live {
                let text = shown(words.as_ref(), &tokens)?;
                // A character may take several tokens: what is not whole yet is not shown yet.
                if let Some(more) = text.strip_prefix(&said).filter(|more| !more.ends_with('\u{fffd}')) {
                    print(more)?;
                    said = text;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let text = words.as_ref().map(|words| words.decode(&tokens)).transpose()?;
        let (real, planned) = (decoder.cache_bytes(), planned_bytes(&self.sequence.model, decoder.seen())?);
        if self.json {
            print_json(&json!({
                "tokens": tokens,
                "text": text,
                "prompt_tokens": prompt,
                "cache": { "tokens": decoder.seen(), "bytes": real, "planned_bytes": planned },
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        if live {
            print("\n")?;
        } else {
            print(&format!("{}\n", shown(words.as_ref(), &tokens)?))?;
        }
        let planned = planned.map_or("unknown".to_owned(), commas);
        eprintln!(
            "{} tokens in {seconds:.1} s; cache of {} tokens: {} bytes, planned {planned}",
            tokens.len(),
            decoder.seen(),
            commas(real),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn encode(&self, words: Option<&Tokenizer>) -> anyhow::Result<Vec<u32>> {
        let tokens = match (&self.prompt, words) {
            (Some(prompt), Some(words)) => words.encode(prompt)?,
            (Some(_), None) => {
                bail!("{}: found no tokenizer, expected one for --prompt", self.sequence.model.display())
            }
            (None, _) => self.sequence.tokens.clone(),
        };
        if tokens.is_empty() {
            bail!("found no tokens, expected --tokens IDS or --prompt TEXT");
        }
        Ok(tokens)
    }
}

/// Tokens as text, or as ids if there is no tokenizer.
fn shown(words: Option<&Tokenizer>, tokens: &[u32]) -> anyhow::Result<String> {
    match words {
        Some(words) => Ok(words.decode(tokens)?),
        None => Ok(tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
    }
}
