//! `rung plan`: the memory that an inference engine allocates for a model, and how many tokens and requests fit.

use std::process::ExitCode;

use rung_audit::engine::{CacheFormat, Engine, EngineSettings, device, engine, plan};
use rung_audit::report::plan as report;
use rung_audit::{
    Audit, AuditError, AuditOptions, Dtype, WeightSize, find_weights, parse_bytes, parse_tokens, what_if,
};

use super::audit::report_malformed;
use crate::output::{audit_named, print};

/// Exit code: some number is unknown.
const UNKNOWN: u8 = 3;

/// Plan the memory an inference engine allocates for a model
///
/// Page and block sizes, bytes at a context length, and what fits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung plan qwen3.6-35b-a3b --engine vllm --context 256k --on h100
  rung plan qwen3.6-27b --engine llama.cpp --context 128k --requests 4 --kv-dtype q8_0
  rung plan granite-4.0-h-tiny --engine sglang --memory 24GiB --weights 14GB --context 32k
  rung plan gemma-3-27b --engine transformers --context 8k --json

Sizes: k, M, G are powers of 1024 (128k tokens are 131072); MB is 1000^2 bytes, MiB 1024^2.
All bytes are those of one device. docs/engines has a page on each engine's rules.

Exit codes: 0 planned, 2 the input is malformed, 3 something is unknown (the answer says what).")]
pub struct PlanCommand {
    /// config.json, directory with one, GGUF file, `-` for standard input, or preset
    model: String,
    /// Engine: vllm, sglang, llama.cpp, transformers or tensorrt-llm
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    engine: &'static Engine,
    /// Devices that share each layer (tensor parallelism) [default: those of --on, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    tp: Option<u64>,
    /// Number format of keys and values: bf16, fp16, fp32, fp8, nvfp4, q8_0, .. [default: the engine's]
    #[arg(long, value_name = "D")]
    kv_dtype: Option<CacheFormat>,
    /// Number format of recurrent state [default: the engine's for this model]
    #[arg(long, value_name = "D")]
    state_dtype: Option<Dtype>,
    /// Memory of one device with a unit: 24GiB, 80GB (KB = 1000; KiB and K = 1024)
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// GPUs by name, such as h100 or h100x2
    #[arg(long, value_name = "GPU", conflicts_with = "memory", value_parser = device::parse_devices)]
    // Memory of one device in bytes, and the number of devices.
    on: Option<(u64, u64)>,
    /// Context length in tokens, such as 32k, as the engine's own flag means it [default: the config's maximum]
    #[arg(long, value_name = "N", value_parser = parse_tokens, allow_hyphen_values = true)]
    context: Option<u64>,
    /// Concurrent requests
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    requests: u64,
    /// Size of the weights: bytes, bits per weight (4.5bpw), a safetensors index, or a safetensors or GGUF file
    #[arg(long, value_name = "W", allow_hyphen_values = true)]
    weights: Option<WeightSize>,
    /// Tokens drafted by speculative decoding
    #[arg(long, value_name = "D", default_value = "0", value_parser = clap::value_parser!(u64).range(0..=1024))]
    speculative: u64,
    /// Plan by the rules of an older release
    #[arg(long, value_name = "V")]
    engine_version: Option<String>,
    /// Engine option, such as mamba_cache_mode=none; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    set: Vec<(String, String)>,
    /// Change layers first: 7=full, every=4, ratio=5:1
    #[arg(long, value_name = "EDIT")]
    what_if: Option<String>,
    /// Plan the layers that the engine's rules cover and leave out the others
    #[arg(long)]
    partial: bool,
    /// Write JSON instead of text; plan.schema.json describes it
    #[arg(long)]
    json: bool,
}

fn parse_memory(text: &str) -> Result<u64, AuditError> {
    let bytes = parse_bytes(text)?;
    if bytes == 0 {
        return Err(AuditError::InvalidArgument {
            text: text.to_owned(),
            why: "expected more than 0 bytes".to_owned(),
        });
    }
    Ok(bytes)
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl PlanCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Standard output cannot be written. Malformed input is reported with an exit code and is not an error here.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let plan = match self.audit().and_then(|audit| plan(&audit, self.engine, &self.settings(&audit)?)) {
            Ok(plan) => plan,
            Err(error) => return Ok(report_malformed(&self.model, &error)),
        };
        if self.json {
            print(&format!("{:#}\n", report::json(&plan)))?;
        } else {
            print(&report::text(&plan))?;
        }
        Ok(if plan.unknown_reasons.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNKNOWN) })
    }

    fn audit(&self) -> Result<Audit, AuditError> {
        let options = AuditOptions::default();
        let audit = audit_named(&self.model, &options)?;
        match &self.what_if {
            Some(edit) => what_if::apply(&audit, edit, &options),
            None => Ok(audit),
        }
    }

    fn settings(&self, audit: &Audit) -> Result<EngineSettings, AuditError> {
        let weights = self.weights.clone().or_else(|| find_weights(&self.model));
        Ok(EngineSettings {
            tp: self.tp.or(self.on.map(|(_, count)| count)).unwrap_or(1),
            kv_format: self.kv_dtype,
            state_dtype: self.state_dtype,
            memory: self.memory.or(self.on.map(|(bytes, _)| bytes)),
            weights: weights.map(|weights| weights.resolve(audit)).transpose()?,
            context: self.context,
            requests: self.requests,
            speculative: self.speculative,
            version: self.engine_version.clone(),
            skip_unsupported_layers: self.partial,
            options: self.set.clone(),
        })
    }
}
