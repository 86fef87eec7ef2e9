//! `rung place`: where full layers give the most rungs, within a cache budget or under an engine.

use std::path::PathBuf;
use std::process::ExitCode;

use rung_audit::engine::{Engine, EngineSettings, device, engine};
use rung_audit::layer_ratio::{RatioPlan, plan_ratios};
use rung_audit::report::{json, layer_ratio, text};
use rung_audit::{Audit, AuditError, AuditOptions, WeightSize, find_weights, parse_bytes, placement};
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};

use super::audit::{CacheOptions, is_output_coloured, report_malformed};
use crate::output::{audit_named, check_destination, print, print_coloured, write_chart};

/// GPUs whose memory is drawn as horizontal lines.
const GPUS: [&str; 4] = ["rtx4090", "l40s", "h100", "h200"];
const GIB: f64 = 1_073_741_824.0;

/// Find where to place full layers within a cache budget
///
/// Lists the placements with the most rungs within --budget, or compares ratios of layers under --engine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rung place qwen3.5-9b --budget 4GiB
  rung place llama-3.1-8b --budget 500MB --context 32k
  rung place qwen3.6-27b --engine vllm --memory 80GiB --weights 54GB --context 128k
  rung place qwen3.5-9b --engine llama.cpp --plot memory.svg")]
pub struct Place {
    /// config.json, directory with one, GGUF file, `-` for standard input, or preset
    model: String,
    /// Cache budget with a unit: 512M, 500MB, 4GiB (KB = 1000; KiB and K = 1024)
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, required_unless_present = "engine", conflicts_with = "engine")]
    budget: Option<u64>,
    /// Compare ratios of layers under this engine: vllm, sglang, llama.cpp, transformers, tensorrt-llm
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    engine: Option<&'static Engine>,
    /// Memory of one device, such as 24GiB
    #[arg(long, value_name = "BYTES", requires = "engine", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// GPUs by name, such as h100 or h100x2
    #[arg(long, value_name = "GPU", requires = "engine", conflicts_with = "memory", value_parser = device::parse_devices)]
    // Memory of one device in bytes, and the number of devices.
    on: Option<(u64, u64)>,
    /// Size of the weights: bytes, bits per weight (4.5bpw), or a file
    #[arg(long, value_name = "W", requires = "engine")]
    weights: Option<WeightSize>,
    /// Concurrent requests
    #[arg(long, value_name = "N", requires = "engine", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    requests: u64,
    /// Also draw context against memory for each ratio, with GPU sizes as lines, as SVG, PNG or CSV
    #[arg(long, value_name = "FILE", requires = "engine")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheOptions,
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Place {
    /// Runs the command.
    ///
    /// # Errors
    /// A file or standard output cannot be written. Malformed input is reported with an exit code and is not an error here.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.plot {
            check_destination("--plot", path, &["svg", "png", "csv"])?;
        }
        let options = self.cache.options();
        let audit = match audit_named(&self.model, &options) {
            Ok(audit) => audit,
            Err(error) => return Ok(report_malformed(&self.model, &error)),
        };
        if !audit.unknown_reasons.is_empty() {
            let report = if self.json {
                format!("{:#}\n", json::audit(&audit))
            } else {
                text::audit(&audit, is_output_coloured())
            };
            print(&report)?;
            return Ok(ExitCode::from(3));
        }
        match (self.engine, self.budget) {
            (Some(engine), _) => self.compare(&audit, engine, &options),
            (None, budget) => self.place(&audit, budget.unwrap_or_default(), &options),
        }
    }

    fn place(&self, audit: &Audit, budget: u64, options: &AuditOptions) -> anyhow::Result<ExitCode> {
        match placement::find_best_placements(audit, budget, options) {
            Ok(report) if self.json => print(&format!("{:#}\n", json::placements(&report)))?,
            Ok(report) => print_coloured(&text::placements(&report, is_output_coloured()))?,
            Err(error) => return Ok(report_malformed(&self.model, &error)),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn settings(&self, audit: &Audit, context: u64) -> Result<EngineSettings, AuditError> {
        let weights = self.weights.clone().or_else(|| find_weights(&self.model));
        Ok(EngineSettings {
            tp: self.on.map_or(1, |(_, count)| count),
            kv_format: Some(self.cache.kv_dtype.name.parse()?),
            state_dtype: self.cache.state_dtype,
            memory: self.memory.or(self.on.map(|(bytes, _)| bytes)),
            weights: weights.map(|weights| weights.resolve(audit)).transpose()?,
            context: Some(context),
            requests: self.requests,
            ..EngineSettings::default()
        })
    }

    fn compare(&self, audit: &Audit, engine: &'static Engine, options: &AuditOptions) -> anyhow::Result<ExitCode> {
        let plans_at = |context: u64| plan_ratios(audit, engine, &self.settings(audit, context)?, options);
        let plans = match plans_at(self.cache.context) {
            Ok(plans) => plans,
            Err(error) => return Ok(report_malformed(&self.model, &error)),
        };
        if let Some(path) = &self.plot {
            // From 1k tokens to the given context, in exponents of two.
            let contexts = (10..=40)
                .map(|exponent| 1_u64 << exponent)
                .take_while(|&context| context <= self.cache.context.max(4096));
            let plans_by_context: Result<Vec<(u64, Vec<RatioPlan>)>, AuditError> =
                contexts.map(|context| Ok((context, plans_at(context)?))).collect();
            match plans_by_context {
                Ok(plans_by_context) => write_chart(path, &chart(audit, &plans_by_context))?,
                Err(error) => return Ok(report_malformed(&self.model, &error)),
            }
        }
        print(&if self.json { format!("{:#}\n", layer_ratio::json(&plans)) } else { layer_ratio::text(&plans) })?;
        let unknown = plans.iter().any(|ratio| !ratio.plan.unknown_reasons.is_empty());
        Ok(if unknown { ExitCode::from(3) } else { ExitCode::SUCCESS })
    }
}

/// A chart of the memory of one device against the context length, with one line for each ratio of layers. Weights are included if their size
/// is known.
fn chart(audit: &Audit, plans_by_context: &[(u64, Vec<RatioPlan>)]) -> LineChart {
    let mut chart = LineChart::new(
        format!("{}: memory against context", audit.model),
        AxisSpec::new("context, tokens", Scale::Log10),
        AxisSpec::new("GiB on one device", Scale::Log10),
    );
    let ratio_count = plans_by_context.first().map_or(0, |(_, plans)| plans.len());
    for index in 0..ratio_count {
        let point = |(context, plans): &(u64, Vec<RatioPlan>)| {
            let plan = &plans.get(index)?.plan;
            let bytes = plan.cache_bytes?.saturating_add(plan.weight_bytes.unwrap_or(0));
            Some(Point::new(*context as f64, bytes as f64 / GIB))
        };
        let ratio_name = plans_by_context.first().map_or_else(String::new, |(_, plans)| plans[index].name.clone());
        chart = chart.series(Series::line(ratio_name, plans_by_context.iter().filter_map(point).collect()));
    }
    for gpu in GPUS {
        if let Ok((bytes, _)) = device::parse_devices(gpu) {
            chart = chart.guide(bytes as f64 / GIB, gpu);
        }
    }
    chart
}
