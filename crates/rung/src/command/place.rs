//! `rung place`: where full layers earn the most rungs within a cache budget.

use std::process::ExitCode;

use rung_audit::report::{json, text};
use rung_audit::{Dtype, Options, audit_named, parse_bytes, place};

use super::audit::{colour, refuse};
use crate::output::print;

/// Finds the placements of full layers that give the most rungs within a cache budget
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung place qwen3.5-9b --budget 4GiB
  rung place llama-3.1-8b --budget 500MB --context 32768")]
pub struct Place {
    /// A config.json, a directory that holds one, a GGUF file, `-` for standard input, or a preset's name
    model: String,
    /// Bytes the cache may take, such as 4GiB or 500MB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    budget: u64,
    /// Tokens in the cache
    #[arg(long, value_name = "N", default_value_t = rung_audit::DEFAULT_CONTEXT)]
    context: u64,
    /// How keys and values are stored: bf16, fp16, fp32, fp8, int8, int4
    #[arg(long, value_name = "D", default_value = "bf16")]
    kv_dtype: Dtype,
    /// How recurrent state is stored [default: as the config says, else fp32]
    #[arg(long, value_name = "D")]
    state_dtype: Option<Dtype>,
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Place {
    /// Runs the command.
    ///
    /// # Errors
    /// Standard output cannot be written. Malformed input is printed and answered with its own exit code.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let options =
            Options { context: self.context, kv_dtype: self.kv_dtype, state_dtype: self.state_dtype, certify: None };
        let audit = match audit_named(&self.model, &options) {
            Ok(audit) => audit,
            Err(error) => return Ok(refuse(&self.model, &error)),
        };
        if !audit.unknown.is_empty() {
            print(&text::audit(&audit, colour()))?;
            return Ok(ExitCode::from(3));
        }
        match place::place(&audit, self.budget, &options) {
            Ok(advice) if self.json => print(&format!("{:#}\n", json::advice(&advice)))?,
            Ok(advice) => print(&text::advice(&advice, colour()))?,
            Err(error) => return Ok(refuse(&self.model, &error)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
