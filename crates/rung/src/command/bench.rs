//! `rung bench`: how fast kernels and training steps are, here and in PyTorch.
//!
//! ```text
//! rung bench --only train --shape M --mixer full --against torch
//! rung bench --only exponents --json
//! rung bench --profile --shape M --mixer full
//! rung bench --only checkpoint --model SmolLM2-135M-Instruct.Q4_1.gguf --against transformers,llama.cpp
//! ```
//!
//! Rows are printed as soon as they are measured.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use rung_bench::checkpoint::{CheckpointBench, Software, SoftwareTimes, Workload};
use rung_bench::profile::{self, StepProfile};
use rung_bench::{Bench, CaseFilter, Measurement, PeerMeasurement, Section, cases};
use serde_json::{Value, json};

use crate::output::{print, print_json, progress_bar, with_spinner};

/// Measure kernels and training steps, also against PyTorch.
///
/// Also measures how cost grows with the sequence length.
#[derive(Debug, clap::Args)]
pub struct BenchCommand {
    /// Measure one part only.
    #[arg(long, value_enum)]
    only: Option<SectionName>,
    /// Measure one shape only: S, M or L.
    #[arg(long)]
    shape: Option<String>,
    /// Measure one mixer or kernel only, such as `full` or `rms_norm`.
    #[arg(long, value_name = "NAME")]
    mixer: Option<String>,
    /// Timed repetitions; their median is reported.
    #[arg(long, default_value_t = 15, value_name = "N")]
    steps: usize,
    /// Threads of each program [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Interleave with other software, a comma between names: `torch` (eager and compiled), `jax`. A Python that has it is
    /// looked for ($RUNG_PYTHON, python3, python); a path names one with PyTorch. With --only checkpoint: `transformers`,
    /// `llama.cpp` (F32, and the file as it is).
    #[arg(long, value_name = "LIST")]
    against: Option<String>,
    /// Hugging Face directory or GGUF file, for --only checkpoint or --profile.
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Show where the time of a training step goes, operation by operation; with --model, that of prefill and decoding.
    #[arg(long, conflicts_with_all = ["only", "against"])]
    profile: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SectionName {
    /// Training steps.
    Train,
    /// Matrix products, attention, recurrences, convolution, norms.
    Kernels,
    /// How cost grows with the sequence length.
    Exponents,
    /// A checkpoint: prefill and decoding.
    Checkpoint,
}

/// Maximum of `--steps`; a larger number is a typing error.
const MAX_STEPS: usize = 100_000;
/// Maximum of `--threads`; a larger number is a typing error.
const MAX_THREADS: usize = 1024;

impl BenchCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// There is nothing to measure, or nothing to measure against.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        for (option, value, max) in [("--steps", self.steps, MAX_STEPS), ("--threads", threads, MAX_THREADS)] {
            if !(1..=max).contains(&value) {
                bail!("{option}: found {value}, expected 1 to {max}");
            }
        }
        if self.profile {
            return self.run_profile(threads);
        }
        let only = match (self.only, &self.model) {
            (Some(SectionName::Checkpoint), Some(model)) => return self.run_checkpoint(model, threads),
            (Some(SectionName::Checkpoint), None) => {
                bail!("--only checkpoint: found no --model, expected a checkpoint")
            }
            (_, Some(_)) => bail!("--model: expected --only checkpoint with it"),
            (None, None) => None,
            (Some(SectionName::Train), None) => Some(Section::Train),
            (Some(SectionName::Kernels), None) => Some(Section::Kernels),
            (Some(SectionName::Exponents), None) => Some(Section::Exponents),
        };
        let cases = cases(&CaseFilter { only, shape: self.shape.clone(), mixer: self.mixer.clone() })?;
        let bench = with_spinner("measuring peak FLOP/s", || Bench::new(threads, self.steps, self.against.as_deref()));
        let mut bench = bench?;
        if !self.json {
            print(&table_header(&bench))?;
        }
        let bar = progress_bar(cases.len() as u64);
        let mut rows = Vec::new();
        for case in &cases {
            bar.set_message(format!("{} {} {}", case.work_name(), case.mixer, case.shape()));
            let row = bench.measure(case)?;
            if self.json {
                rows.push(row_json(&row));
            } else {
                let text = row_text(&row)?;
                bar.suspend(|| print(&text))?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        if self.json {
            print_json(&Value::Array(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_profile(&self, threads: usize) -> anyhow::Result<ExitCode> {
        let mut rows = Vec::new();
        let mut print_profile = |step: &StepProfile| -> anyhow::Result<()> {
            if self.json {
                rows.push(profile_json(step));
                return Ok(());
            }
            print(&profile_table(step, threads)?)
        };
        if let Some(model) = &self.model {
            let steps = with_spinner("profiling prefill and decoding", || {
                profile::profile_checkpoint(model, threads, self.steps)
            });
            steps?.iter().try_for_each(&mut print_profile)?;
        } else {
            let filter = CaseFilter { only: None, shape: self.shape.clone(), mixer: self.mixer.clone() };
            for (mixer, size) in profile::select_steps(&filter)? {
                let step = with_spinner(format!("profiling {mixer} {}", size.name), || {
                    profile::profile(mixer, size, threads, self.steps)
                });
                print_profile(&step?)?;
            }
        }
        if self.json {
            print_json(&Value::Array(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_checkpoint(&self, model: &Path, threads: usize) -> anyhow::Result<ExitCode> {
        let against = self.against.as_deref().map(Software::parse_list).transpose()?.unwrap_or_default();
        let bench = with_spinner("opening the checkpoint in every program", || {
            CheckpointBench::new(model, threads, self.steps, &against)
        });
        let mut bench = bench?;
        if !self.json {
            let (name, steps) = (model.display(), self.steps);
            print(&format!(
                "{name} on {threads} threads; medians of {steps} repetitions, interleaved (measured)\n\
                 ratio: their time over ours; fastest: the same of the fastest repetitions\n\
                 work         tokens  software                                                ms    tokens/s   ratio  fastest\n",
            ))?;
        }
        let mut rows = Vec::new();
        for work in Workload::ALL {
            let measurements = with_spinner(work.name().to_owned(), || bench.measure(work));
            for software in measurements? {
                if self.json {
                    rows.push(json!({
                        "work": work.name(), "tokens": work.tokens(), "software": software.name_and_version, "ms": software.times.median(),
                        "fastest_ms": software.times.fastest(), "ratio": software.ratio, "ratio_of_fastest": software.ratio_of_fastest,
                    }));
                } else {
                    print(&checkpoint_row(work, &software))?;
                }
            }
        }
        if self.json {
            print_json(&Value::Array(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A table of a step's operations, slowest first, with fractions of peak FLOP/s and of memory bandwidth.
fn profile_table(step: &StepProfile, threads: usize) -> Result<String, std::fmt::Error> {
    let (peak, bandwidth) = (step.peak_flops / 1e9, step.bandwidth / 1e9);
    let mut text = format!(
        "{} {} on {threads} threads: {:.2} ms (mean, profiled); peak {peak:.0} GFLOP/s, memory {bandwidth:.0} GB/s (measured)\n\
         operation                pass         calls         ms   of step     GFLOP   of peak        MB  of memory\n",
        step.mixer, step.shape, step.milliseconds,
    );
    let percent = |fraction: f64| if fraction > 0.0 { format!("{:.0}%", 100.0 * fraction) } else { "-".to_owned() };
    for row in &step.rows {
        let seconds = row.milliseconds * 1e-3;
        writeln!(
            text,
            "{:23}  {:8}  {:>8.0}  {:>9.3}  {:>8}  {:>8.2}  {:>8}  {:>8.1}  {:>9}",
            row.operation,
            row.pass,
            row.calls,
            row.milliseconds,
            percent(row.milliseconds / step.milliseconds),
            row.flops / 1e9,
            percent(row.flops / seconds / step.peak_flops),
            row.bytes / 1e6,
            percent(row.bytes / seconds / step.bandwidth),
        )?;
    }
    let bound = step.lower_bound_ms();
    if bound <= 0.0 {
        return Ok(text + "\n");
    }
    writeln!(
        text,
        "bound {bound:.2} ms: products at peak, then the update at memory bandwidth; the step takes {:.2} times that\n",
        step.milliseconds / bound
    )?;
    Ok(text)
}

fn profile_json(step: &StepProfile) -> Value {
    let rows: Vec<Value> = step
        .rows
        .iter()
        .map(|row| {
            json!({
                "operation": row.operation, "pass": row.pass, "calls": row.calls, "ms": row.milliseconds,
                "flops": row.flops, "bytes": row.bytes,
            })
        })
        .collect();
    json!({
        "mixer": step.mixer, "shape": step.shape, "ms": step.milliseconds, "bound_ms": step.lower_bound_ms(),
        "peak_flops_per_s": step.peak_flops, "bytes_per_s": step.bandwidth, "rows": rows,
    })
}

fn checkpoint_row(work: Workload, software: &SoftwareTimes) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let milliseconds = software.times.median();
    format!(
        "{:12} {:>6}  {:48} {milliseconds:>9.2}  {:>10.1}  {:>6}  {:>7}\n",
        work.name(),
        work.tokens(),
        software.name_and_version,
        work.tokens() as f64 / (milliseconds * 1e-3),
        ratio(software.ratio),
        ratio(software.ratio_of_fastest),
    )
}

fn table_header(bench: &Bench) -> String {
    let names: Vec<&str> = bench.peers.iter().map(|peer| peer.name_and_version.as_str()).collect();
    let peers = if names.is_empty() { String::new() } else { format!(", interleaved with {}", names.join(", ")) };
    let peak_gflops = bench.peak_flops / 1e9;
    format!(
        "peak {peak_gflops:.0} GFLOP/s on {} threads at the start, a large matrix product; medians of {} repetitions{peers} (measured)\n{}",
        bench.threads,
        bench.repetitions,
        "what              mixer         shape              ms    tokens/s   of peak  peak MB   peer ms   peer MB  ratio  \
         fastest  peers, ms\n"
    )
}

fn row_text(row: &Measurement) -> Result<String, std::fmt::Error> {
    let case = &row.case;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let megabytes = |bytes: Option<u64>| or_dash(bytes.map(|bytes| format!("{:.0}", bytes as f64 / 1e6)));
    let mut text = format!(
        "{:16}  {:12}  {:11} {:>10.4}  {:>10.0}  {:>8}  {:>7}",
        case.work_name(),
        case.mixer,
        case.shape(),
        row.times.median(),
        row.tokens_per_second(),
        or_dash(row.fraction_of_peak.map(|fraction| format!("{:.0}%", 100.0 * fraction))),
        megabytes(row.peak_bytes),
    );
    if let (Some(peer), Some(ratio), Some(fastest)) = (row.fastest_peer(), row.ratio(), row.ratio_of_fastest()) {
        let name = |software: &str| software.split(' ').next().unwrap_or_default().to_owned();
        let median = |peer: &PeerMeasurement| format!("{} {:.3}", name(&peer.software), peer.times.median());
        let medians: Vec<String> = row.peers.iter().map(median).collect();
        let (milliseconds, peak) = (peer.times.median(), megabytes(peer.peak_bytes));
        write!(text, "  {milliseconds:>8.3}  {peak:>8}  {ratio:>5.2}  {fastest:>7.2}  {}", medians.join(", "))?;
    }
    if let Some(exponent) = row.exponent {
        write!(text, "  cost grows as n^{exponent:.2}")?;
    }
    text.push('\n');
    Ok(text)
}

fn row_json(row: &Measurement) -> Value {
    let peer_json = |peer: &PeerMeasurement| json!({ "software": peer.software, "ms": peer.times.median(), "fastest_ms": peer.times.fastest(), "peak_bytes": peer.peak_bytes });
    let peers: Vec<Value> = row.peers.iter().map(peer_json).collect();
    let mut fields = json!({
        "what": row.case.work_name(),
        "mixer": row.case.mixer,
        "shape": row.case.shape(),
        "ms": row.times.median(),
        "tokens_per_s": row.tokens_per_second(),
        "peak_bytes": row.peak_bytes,
        "share_of_limit": row.fraction_of_peak,
        "peers": peers,
        "ratio": row.ratio(),
    });
    if let Some(exponent) = row.exponent {
        fields["exponent"] = json!(exponent);
    }
    fields
}
