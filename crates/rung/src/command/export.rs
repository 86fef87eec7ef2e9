//! `rung export DIR --to hf|gguf --out DIR`: a construction or a trained run as a checkpoint that other programs run.
//!
//! ```text
//! rung construct U1 --hops 2 --m 4 --n 2 --out u1
//! rung export u1 --to hf --out u1-hf                  transformers: LlamaForCausalLM
//! rung export u1 --to gguf --out u1-gguf              llama.cpp: u1-gguf/model.gguf
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use rung_nn::export::{ExportFormat, ExportOptions, NumberFormat, PrecisionCheck, export};
use rung_nn::{Network, memory};
use rung_theory::task::{Prompt, TokenNames, seeded};
use serde_json::json;

use super::memory::MemoryOption;
use crate::output::{print, print_json, with_commas};

/// Instances of a construction that are run in each precision.
const CHECKED_INSTANCES: usize = 64;

/// Write a construction or a trained run for transformers or llama.cpp.
///
/// Tokens become one vocabulary of named tokens, so that a prompt is a line of text and the answer is the next token. A part of the
/// network that has no counterpart in the target is named and nothing is written. The written files of a construction are run again on
/// sampled instances, with weights and cache in each precision.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung export u1 --to hf --out u1-hf
  rung export u1 --to gguf --dtype bf16 --out u1-gguf

Families: llama (full), mamba2 (mamba2 without feed-forward networks), granitemoehybrid (mamba2 and full), olmo_hybrid (gdn and full, hf only), qwen35 (gdn and full, gguf only), rwkv7 (rwkv7 without feed-forward networks).")]
pub struct Export {
    /// A folder written by `rung construct --out`, or the directory of a finished run.
    model: PathBuf,
    /// Hugging Face directory (config.json, model.safetensors, tokenizer.json) or GGUF file (model.gguf).
    #[arg(long, value_enum)]
    to: FormatName,
    /// Directory to write to; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Architecture to write [default: the first that fits the layers]
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Number format of the weights.
    #[arg(long, value_enum, default_value_t = NumberName::F32)]
    dtype: NumberName,
    /// Also name the entries of this many further tables, so that questions of more hops can be put (constructions for funccomp).
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=8))]
    beyond: u64,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Names of checkpoint formats on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FormatName {
    Hf,
    Gguf,
}

/// Names of number formats on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NumberName {
    F32,
    Bf16,
    F16,
}

impl Export {
    /// Runs the command.
    ///
    /// # Errors
    /// The network cannot be read, has no counterpart, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        let network = Network::<f32>::open(&self.model)?;
        // The weights under their new names, and the bytes of the file.
        let bytes = 2 * size_of_val(network.weights.flat()) as u128;
        memory::check(format!("the export of `{}`", network.name), bytes, None)?;
        let options = ExportOptions {
            format: match self.to {
                FormatName::Hf => ExportFormat::HuggingFace,
                FormatName::Gguf => ExportFormat::Gguf,
            },
            family: self.family.clone(),
            numbers: match self.dtype {
                NumberName::F32 => NumberFormat::F32,
                NumberName::Bf16 => NumberFormat::Bf16,
                NumberName::F16 => NumberFormat::F16,
            },
            extra_tables: self.beyond as usize,
        };
        let checkpoint =
            export(&network, &options).with_context(|| format!("{} cannot be exported", self.model.display()))?;
        let files = checkpoint.write(&self.out)?;
        let precisions = checkpoint
            .check_precisions(&network, &self.out, CHECKED_INSTANCES)
            .with_context(|| format!("running {}", self.out.display()))?;
        let (family, tokens) = (checkpoint.family, checkpoint.vocabulary.tokens.len());
        let name = match options.format {
            ExportFormat::HuggingFace => family.class,
            ExportFormat::Gguf => family.architecture,
        };
        let task = network.task()?;
        let (mut prompt, token_names) = (Prompt::new(), TokenNames::new(task));
        task.sample_prompt(&mut seeded(0), &mut prompt);
        if self.json {
            print_json(&json!({
                "family": family.name,
                "architecture": name,
                "tokens": tokens,
                "width": checkpoint.width,
                "task": task.spec(),
                "out": self.out,
                "files": files,
                "precisions": precisions,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        writeln!(text, "{} as {} ({})", network.name, name.unwrap_or(family.name), files.join(", "))?;
        writeln!(text, "  tokens   {}, a residual stream of {} columns", with_commas(tokens), checkpoint.width)?;
        if let (0, Some((position, target, _))) = (self.beyond, prompt.questions().next()) {
            let token_texts = prompt
                .tokens()
                .chunks_exact(token_names.ids_per_token())
                .take(position + 1)
                .map(|token| token_names.name(token));
            writeln!(text, "  prompt   {}", abbreviate(&token_texts.collect::<Vec<_>>()))?;
            writeln!(text, "  answer   {target}")?;
        }
        writeln!(text, "  written to {}", self.out.display())?;
        if let Some(precisions) = &precisions {
            write_precisions(&mut text, precisions)?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The precisions in which every sampled instance is right, and those in which one is wrong.
fn write_precisions(text: &mut String, precisions: &[PrecisionCheck]) -> std::fmt::Result {
    writeln!(
        text,
        "\n  run again from the files by Rung (measured): weights and cache rounded, arithmetic in single precision"
    )?;
    writeln!(text, "  weights  cache  right      smallest and largest margin of the answer's logit")?;
    for check in precisions {
        let PrecisionCheck { weights, cache, right, instances, smallest_margin, largest_margin } = check;
        let score = format!("{right} of {instances}");
        writeln!(text, "  {weights:7}  {cache:5}  {score:9}  {smallest_margin:.3} {largest_margin:.3}")?;
    }
    Ok(())
}

/// The first two and last two tokens of a long prompt.
fn abbreviate(tokens: &[String]) -> String {
    match tokens {
        [first, second, .., last_but_one, last] if tokens.len() > 8 => {
            format!("{first} {second} .. {last_but_one} {last}")
        }
        _ => tokens.join(" "),
    }
}
