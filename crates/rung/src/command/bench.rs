//! `rung bench`: how fast kernels and training steps are, here and in PyTorch.
//!
//! ```text
//! rung bench --only train --shape M --mixer full --against torch
//! rung bench --only exponents --json
//! rung bench --profile --shape M --mixer full
//! rung bench --only checkpoint --model SmolLM2-135M-Instruct.Q4_1.gguf --against transformers,llama.cpp
//! ```
//!
//! Rows are printed as they are measured. All figures are measured, on the machine it runs on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use rung_bench::checkpoint::{CheckpointBench, Software, SoftwareTimes, Workload};
use rung_bench::profile::{self, StepProfile};
use rung_bench::{Bench, CaseFilter, Measurement, Section, cases};
use serde_json::{Value, json};

use crate::output::{print, print_json, spinner, steps};

/// Measure kernels and training steps, also against PyTorch.
///
/// Also measures how cost grows with the sequence length.
#[derive(Debug, clap::Args)]
pub struct BenchCommand {
    /// Measure one part only.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Measure one shape only: S, M or L.
    #[arg(long)]
    shape: Option<String>,
    /// Measure one mixer or kernel only, such as `full` or `rms_norm`.
    #[arg(long, value_name = "NAME")]
    mixer: Option<String>,
    /// Timed repetitions; figures are their median.
    #[arg(long, default_value_t = 15, value_name = "N")]
    steps: usize,
    /// Threads on either side [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Interleave with PyTorch: `torch` finds a Python that has it ($RUNG_PYTHON, python3, python), a path names one. With
    /// --only checkpoint: `transformers`, `llama.cpp` (F32, and the file as it is), or both with a comma between.
    #[arg(long, value_name = "torch|PYTHON|LIST")]
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
enum Part {
    /// Training steps.
    Train,
    /// Matrix products, attention, recurrences, convolution, norms.
    Kernels,
    /// How cost grows with the sequence length.
    Exponents,
    /// A checkpoint: prefill and decoding.
    Checkpoint,
}

/// More repetitions or threads than this are a typing error.
const MAX_STEPS: usize = 100_000;
const MAX_THREADS: usize = 1024;

impl BenchCommand {
    /// Runs it.
    ///
    /// # Errors
    /// There is nothing to measure, or no PyTorch to measure against.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        for (option, found, max) in [("--steps", self.steps, MAX_STEPS), ("--threads", threads, MAX_THREADS)] {
            if !(1..=max).contains(&found) {
                bail!("{option}: found {found}, expected 1 to {max}");
            }
        }
        if self.profile {
            return self.run_profile(threads);
        }
        let only = match (self.only, &self.model) {
            (Some(Part::Checkpoint), Some(model)) => return self.run_checkpoint(model, threads),
            (Some(Part::Checkpoint), None) => bail!("--only checkpoint: found no --model, expected a checkpoint"),
            (_, Some(_)) => bail!("--model: expected --only checkpoint beside it"),
            (None, None) => None,
            (Some(Part::Train), None) => Some(Section::Train),
            (Some(Part::Kernels), None) => Some(Section::Kernels),
            (Some(Part::Exponents), None) => Some(Section::Exponents),
        };
        let cases = cases(&CaseFilter { only, shape: self.shape.clone(), mixer: self.mixer.clone() })?;
        let wait = spinner("measuring peak FLOP/s".to_owned());
        let bench = Bench::new(threads, self.steps, self.against.as_deref());
        wait.finish_and_clear();
        let mut bench = bench?;
        if !self.json {
            print(&head(&bench))?;
        }
        let bar = steps(cases.len() as u64);
        let mut rows = Vec::new();
        for case in &cases {
            bar.set_message(format!("{} {} {}", case.what(), case.mixer, case.shape()));
            let row = bench.measure(case)?;
            if self.json {
                rows.push(fields(&row));
            } else {
                let text = line(&row)?;
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
}

impl BenchCommand {
    fn run_profile(&self, threads: usize) -> anyhow::Result<ExitCode> {
        let mut rows = Vec::new();
        let mut show = |step: &StepProfile| -> anyhow::Result<()> {
            if self.json {
                rows.push(profile_fields(step));
                return Ok(());
            }
            print(&profile_table(step, threads)?)
        };
        if let Some(model) = &self.model {
            let wait = spinner("profiling prefill and decoding".to_owned());
            let steps = profile::checkpoint(model, threads, self.steps);
            wait.finish_and_clear();
            steps?.iter().try_for_each(&mut show)?;
        } else {
            let filter = CaseFilter { only: None, shape: self.shape.clone(), mixer: self.mixer.clone() };
            for (mixer, size) in profile::steps(&filter)? {
                let wait = spinner(format!("profiling {mixer} {}", size.name));
                let step = profile::profile(mixer, size, threads, self.steps);
                wait.finish_and_clear();
                show(&step?)?;
            }
        }
        if self.json {
            print_json(&Value::Array(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_checkpoint(&self, model: &Path, threads: usize) -> anyhow::Result<ExitCode> {
        let against = self.against.as_deref().map(Software::parse_list).transpose()?.unwrap_or_default();
        let wait = spinner("opening the checkpoint on every side".to_owned());
        let bench = CheckpointBench::new(model, threads, self.steps, &against);
        wait.finish_and_clear();
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
            let wait = spinner(work.name().to_owned());
            let sides = bench.measure(work);
            wait.finish_and_clear();
            for side in sides? {
                if self.json {
                    rows.push(json!({
                        "work": work.name(), "tokens": work.tokens(), "software": side.about, "ms": side.times.median(),
                        "fastest_ms": side.times.fastest(), "ratio": side.ratio, "ratio_of_fastest": side.ratio_of_fastest,
                    }));
                } else {
                    print(&checkpoint_line(work, &side))?;
                }
            }
        }
        if self.json {
            print_json(&Value::Array(rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A step's operations, the longest first, with fractions of peak FLOP/s and of memory bandwidth.
fn profile_table(step: &StepProfile, threads: usize) -> Result<String, std::fmt::Error> {
    let (peak, bandwidth) = (step.peak / 1e9, step.bandwidth / 1e9);
    let mut text = format!(
        "{} {} on {threads} threads: {:.2} ms (mean, profiled); peak {peak:.0} GFLOP/s, memory {bandwidth:.0} GB/s (measured)\n\
         operation                pass         calls         ms   of step     GFLOP   of peak        MB  of memory\n",
        step.mixer, step.shape, step.milliseconds,
    );
    let percent = |part: f64| if part > 0.0 { format!("{:.0}%", 100.0 * part) } else { "-".to_owned() };
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
            percent(row.flops / seconds / step.peak),
            row.bytes / 1e6,
            percent(row.bytes / seconds / step.bandwidth),
        )?;
    }
    let bound = step.bound();
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

fn profile_fields(step: &StepProfile) -> Value {
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
        "mixer": step.mixer, "shape": step.shape, "ms": step.milliseconds, "bound_ms": step.bound(),
        "peak_flops_per_s": step.peak, "bytes_per_s": step.bandwidth, "rows": rows,
    })
}

fn checkpoint_line(work: Workload, side: &SoftwareTimes) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let milliseconds = side.times.median();
    format!(
        "{:12} {:>6}  {:48} {milliseconds:>9.2}  {:>10.1}  {:>6}  {:>7}\n",
        work.name(),
        work.tokens(),
        side.about,
        work.tokens() as f64 / (milliseconds * 1e-3),
        ratio(side.ratio),
        ratio(side.ratio_of_fastest),
    )
}

fn head(bench: &Bench) -> String {
    let peer = bench.peer.as_ref().map_or_else(String::new, |peer| format!(", interleaved with {}", peer.about));
    let limit = bench.limit / 1e9;
    format!(
        "peak {limit:.0} GFLOP/s on {} threads at the start, a large matrix product; medians of {} repetitions{peer} (measured)\n{}",
        bench.threads,
        bench.repetitions,
        "what              mixer         shape              ms    tokens/s   of peak  peak MB  torch ms  torch MB  ratio  \
         fastest\n"
    )
}

fn line(row: &Measurement) -> Result<String, std::fmt::Error> {
    let case = &row.case;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let megabytes = |bytes: Option<u64>| or_dash(bytes.map(|bytes| format!("{:.0}", bytes as f64 / 1e6)));
    let mut text = format!(
        "{:16}  {:12}  {:11} {:>10.4}  {:>10.0}  {:>8}  {:>7}",
        case.what(),
        case.mixer,
        case.shape(),
        row.times.median(),
        row.tokens_per_second(),
        or_dash(row.fraction_of_peak.map(|fraction| format!("{:.0}%", 100.0 * fraction))),
        megabytes(row.peak_bytes),
    );
    if let (Some((theirs, peak)), Some(ratio), Some(fastest)) = (&row.torch, row.ratio(), row.ratio_of_fastest()) {
        write!(text, "  {:>8.3}  {:>8}  {ratio:>5.2}  {fastest:>7.2}", theirs.median(), megabytes(*peak))?;
    }
    if let Some(exponent) = row.exponent {
        write!(text, "  cost grows as n^{exponent:.2}")?;
    }
    text.push('\n');
    Ok(text)
}

fn fields(row: &Measurement) -> Value {
    let mut fields = json!({
        "what": row.case.what(),
        "mixer": row.case.mixer,
        "shape": row.case.shape(),
        "ms": row.times.median(),
        "tokens_per_s": row.tokens_per_second(),
        "peak_bytes": row.peak_bytes,
        "share_of_limit": row.fraction_of_peak,
        "torch_ms": row.torch.as_ref().map(|(theirs, _)| theirs.median()),
        "ratio": row.ratio(),
    });
    if let Some(exponent) = row.exponent {
        fields["exponent"] = json!(exponent);
    }
    fields
}
