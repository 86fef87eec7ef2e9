//! `rung verify DIR`: runs a construction against the oracle of its task.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use rung_engine::Scalar;
use rung_nn::Network;
use rung_nn::SimulatedPrecision;
use rung_nn::construct::{self, InstanceSet, MAX_BITS, MAX_EXHAUSTIVE, Verification};
use serde_json::json;

use super::construct::FloatFormat;
use super::memory::MemoryOption;
use crate::output::{print, print_json, progress_bar, with_commas};

/// Run a construction against the oracle of its task.
///
/// Exit codes: 0 every answer is right, 1 one is wrong, 2 bad input.
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// A folder written by `rung construct --out`.
    folder: PathBuf,
    /// Check every instance. (Done automatically when there are no more instances than --samples.)
    #[arg(long, conflicts_with = "samples")]
    exhaustive: bool,
    /// Number of samples [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Seed of the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Floating-point format to run in.
    #[arg(long, value_enum, default_value_t = FloatFormat::F32)]
    precision: FloatFormat,
    /// Round states and messages to this many bits.
    #[arg(long, value_name = "P", conflicts_with = "find_bits", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_BITS)))]
    bits: Option<u32>,
    /// Find the fewest bits of states and messages with which every answer is right.
    #[arg(long)]
    find_bits: bool,
    /// Number of threads [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Option<u64>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Default number of samples.
const DEFAULT_SAMPLES: u64 = 10_000;

impl Verify {
    /// Runs the command.
    ///
    /// # Errors
    /// The folder cannot be read, or there are too many instances to go through.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        match self.precision {
            FloatFormat::F32 => self.verify::<f32>(),
            FloatFormat::F64 => self.verify::<f64>(),
        }
    }

    fn verify<S: Scalar>(&self) -> anyhow::Result<ExitCode> {
        let mut network = Network::<S>::open(&self.folder)?;
        let count = self.samples.unwrap_or(DEFAULT_SAMPLES);
        let task = network.task()?.spec();
        let instance_count = network.task()?.instance_count();
        let has_few_instances =
            self.samples.is_none() && instance_count.is_some_and(|count| count <= u128::from(DEFAULT_SAMPLES));
        let instances = if self.exhaustive || has_few_instances {
            InstanceSet::All
        } else {
            InstanceSet::Samples { count, seed: self.seed }
        };
        let total = if instances == InstanceSet::All {
            instance_count.filter(|count| *count <= MAX_EXHAUSTIVE).unwrap_or(0) as u64
        } else {
            count
        };
        let threads = self
            .threads
            .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |count| count as usize);
        let started = Instant::now();
        let range = if self.bits.is_some() || self.find_bits { Some(network.number_range()?) } else { None };
        let mut bits = self.bits;
        if let (Some(bits), Some(range)) = (bits, range) {
            network.set_precision(SimulatedPrecision::bits(bits, range))?;
        }
        let bar = progress_bar(if self.find_bits { total.saturating_mul(u64::from(MAX_BITS)) } else { total });
        let verification = match range.filter(|_| self.find_bits) {
            None => construct::verify(&network, instances, threads, &|checked_instances| bar.inc(checked_instances))?,
            Some(range) => {
                let Some((fewest, verification)) =
                    network
                        .find_fewest_bits(instances, range, threads, &|checked_instances| bar.inc(checked_instances))?
                else {
                    anyhow::bail!("--find-bits: not every answer is right even with {MAX_BITS} bits");
                };
                bits = Some(fewest);
                verification
            }
        };
        bar.finish_and_clear();
        let seconds = started.elapsed().as_secs_f64();
        let all_right = verification.correct == verification.instances;
        if self.json {
            print_json(&json!({
                "name": network.name,
                "task": task,
                "instances": verification.instances,
                "correct": verification.correct,
                "exhaustive": verification.exhaustive,
                "layers": verification.layers,
                "tokens": verification.tokens,
                "bits": bits,
                "range": range,
                "wrong": verification.wrong,
                "seconds": seconds,
            }))?;
        } else {
            let mut text = self.text(&network.name, &task, &verification, seconds)?;
            if let (Some(bits), Some(range)) = (bits, range) {
                let label = if self.find_bits { "fewest bits (measured)" } else { "bits" };
                writeln!(text, "  {label}: {bits}, evenly spaced from -{range} to {range}, for states and messages")?;
            }
            print(&text)?;
        }
        Ok(ExitCode::from(u8::from(!all_right)))
    }

    fn text(&self, name: &str, task: &str, verification: &Verification, seconds: f64) -> anyhow::Result<String> {
        let mut text = String::new();
        let coverage =
            if verification.exhaustive { "all instances".to_owned() } else { format!("samples, seed {}", self.seed) };
        writeln!(text, "{name} for {task} (constructed)")?;
        let (correct, instances) = (with_commas(verification.correct), with_commas(verification.instances));
        writeln!(text, "  {correct} of {instances} right ({coverage})")?;
        let layers = if verification.layers == 1 { "layer" } else { "layers" };
        writeln!(
            text,
            "  {} {layers}, {} tokens, {seconds:.1} s",
            verification.layers,
            with_commas(verification.tokens)
        )?;
        if let Some(wrong) = &verification.wrong {
            writeln!(
                text,
                "  example of a wrong answer: at token {} it says {}, the oracle says {}",
                wrong.position, wrong.found, wrong.expected
            )?;
        }
        Ok(text)
    }
}
