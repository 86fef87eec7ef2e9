//! `rung zoo`: all mixers compared.
//!
//! ```text
//! rung zoo
//! rung zoo --quick --out zoo.svg
//! rung zoo 'full{heads=8,kv=1}' 'nsa{heads=8,kv=1}' --lengths 2048,8192
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_bench::exponents::{HEAD_DIM, HEADS};
use rung_bench::zoo::tracking::TrackingClaim;
use rung_bench::zoo::{LENGTHS, MixerRow, MixerTable, Timing, names};
use rung_figure::Evidence;
use serde_json::{Value, json};

use crate::output::{check_destination, print, print_json, progress_bar, write_chart};

/// Compare all mixers: state, cost, speed, hops.
#[derive(Debug, clap::Args)]
pub struct ZooCommand {
    /// Layers to compare instead of all mixers, such as `moba` or 'nsa{heads=8,kv=1}'.
    #[arg(value_name = "LAYER")]
    layers: Vec<String>,
    /// Sequence lengths to time, in increasing order.
    #[arg(long, value_delimiter = ',', default_values_t = LENGTHS, value_name = "N,N,..")]
    lengths: Vec<usize>,
    /// Timed repetitions; their median is reported.
    #[arg(long, default_value_t = 3, value_name = "N")]
    steps: usize,
    /// Finish in seconds: shorter sequences, one repetition.
    #[arg(long, conflicts_with_all = ["lengths", "steps"])]
    quick: bool,
    /// Write the chart to this file, ending in .svg, .png or .csv.
    #[arg(long, visible_alias = "svg", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Sequence lengths of `--quick`.
const QUICK_LENGTHS: [usize; 3] = [128, 256, 512];
const MAX_TOKENS: usize = 1 << 16;
const MAX_STEPS: usize = 1000;

impl ZooCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// A layer is unknown, lengths do not increase, or the chart cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let timing = self.timing()?;
        if let Some(path) = &self.out {
            check_destination("--out", path, &["svg", "png", "csv"])?;
        }
        let layers: Vec<&str> = match &self.layers[..] {
            [] => names().collect(),
            layers => layers.iter().map(String::as_str).collect(),
        };
        let bar = progress_bar(layers.len() as u64);
        let mut rows = Vec::new();
        for layer in layers {
            bar.set_message(layer.to_owned());
            rows.push(MixerRow::measure(layer, &timing)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let zoo = MixerTable { rows, timing };
        if let Some(path) = &self.out {
            write_chart(path, &zoo)?;
        }
        if self.json {
            print_json(&to_json(&zoo))?;
        } else {
            print(&to_text(&zoo, &self.layers)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn timing(&self) -> anyhow::Result<Timing> {
        if self.quick {
            return Ok(Timing { lengths: QUICK_LENGTHS.to_vec(), repetitions: 1 });
        }
        let lengths = self.lengths.clone();
        let is_increasing = lengths.windows(2).all(|pair| pair[0] < pair[1]) && lengths.len() > 1;
        if !is_increasing || lengths.iter().any(|length| !(1..=MAX_TOKENS).contains(length)) {
            bail!("--lengths: found {lengths:?}, expected two or more in increasing order, from 1 to {MAX_TOKENS}");
        }
        if !(1..=MAX_STEPS).contains(&self.steps) {
            bail!("--steps: found {}, expected 1 to {MAX_STEPS}", self.steps);
        }
        Ok(Timing { lengths, repetitions: self.steps })
    }
}

fn to_text(zoo: &MixerTable, layers: &[String]) -> Result<String, std::fmt::Error> {
    let mut text = format!("{:<16} {:>7}  {:<16} {:<15}", "mixer", "state", "growth", "cost");
    for length in &zoo.timing.lengths {
        write!(text, " {length:>7}")?;
    }
    writeln!(text, "  {:>5}  {:<16} {:<17} S3", "n^", "hop contribution", "parity")?;
    for row in &zoo.rows {
        let growth = row.growth().unwrap_or_else(|| "-".to_owned());
        write!(text, "{:<16} {:>7}  {growth:<16} {:<15}", row.mixer.name(), row.state_size(), row.cost())?;
        for index in 0..zoo.timing.lengths.len() {
            let speed =
                row.speed.as_ref().map_or_else(|| "-".to_owned(), |speed| three_digits(speed.tokens_per_second[index]));
            write!(text, " {speed:>7}")?;
        }
        let exponent = row.speed.as_ref().map_or_else(|| "-".to_owned(), |speed| format!("{:.2}", speed.exponent));
        let [parity, permutations] = [row.parity(), row.permutations()].map(|claim| claim.to_string());
        writeln!(text, "  {exponent:>5}  {:<16} {parity:<17} {permutations}", row.hop_contribution().label())?;
    }
    writeln!(
        text,
        "\nstate, growth (elements, per token or per doubling of the length), cost, hop contribution: proved, by definition, of a layer with {HEADS} heads of {HEAD_DIM}{}\n\
         tokens/s at each sequence length, exponent of cost in n: measured, forward on one thread, median of {}\n\
         parity, S3 (whether one layer tracks them over sequences of any length): evidence below",
        if layers.is_empty() { "" } else { " where its options are not given" },
        zoo.timing.repetitions
    )?;
    for row in &zoo.rows {
        for (task, claim) in [("parity", row.parity()), ("S3", row.permutations())] {
            if let (TrackingClaim::Yes(evidence, by), name) = (claim, row.mixer.name()) {
                writeln!(text, "  {name}, {task}: {evidence}, {by}")?;
            }
        }
    }
    Ok(text)
}

/// A number with three digits: 1.25M, 98.4k.
fn three_digits(number: f64) -> String {
    let (scaled, unit) = match number {
        _ if number >= 1e6 => (number / 1e6, "M"),
        _ if number >= 1e3 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let decimals = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.decimals$}{unit}")
}

fn to_json(zoo: &MixerTable) -> Value {
    let claim = |claim: TrackingClaim| {
        json!({
            "tracks": claim.label(),
            "evidence": claim.evidence().map(Evidence::label),
            "shown_by": claim.justification(),
        })
    };
    let row = |row: &MixerRow| {
        let speed = row.speed.as_ref();
        json!({
            "mixer": row.mixer.name(),
            "layer": row.mixer.to_string(),
            "counted": {
                "crosses": rung_theory::report::integer(row.state_size()),
                "grows": row.growth(),
                "cost": row.cost(),
                "credit": row.hop_contribution().label(),
                "evidence": Evidence::Proved.label(),
            },
            "timed": speed.map(|speed| json!({
                "tokens_per_s": speed.tokens_per_second,
                "exponent": speed.exponent,
                "evidence": Evidence::Measured.label(),
            })),
            "parity": claim(row.parity()),
            "s3": claim(row.permutations()),
        })
    };
    json!({
        "lengths": zoo.timing.lengths,
        "steps": zoo.timing.repetitions,
        "mixers": zoo.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
