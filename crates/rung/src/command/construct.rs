//! `rung construct NAME --hops L --m M --n N1,N2,.. --out DIR`: explicit weights, as an ordinary network.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_nn::Network;
use rung_nn::NormConfig;
use rung_nn::construct::{self, ConstructionRequest, KINDS};
use serde_json::json;

use super::memory::MemoryOption;
use super::stack::SizeOptions;
use crate::output::{print, print_json, spinner, with_commas};

/// Write hand-built weights that solve a task.
///
/// The folder has a safetensors file and a page about the registers, the named slices of the residual stream.
#[derive(Debug, clap::Args)]
pub struct Construct {
    /// U1, U2, U2', U3, U4, U4-causal, U5, U5-all, U6, S2..S5, parity, parity-retrieval; `list` lists them.
    name: String,
    /// Hops of function composition.
    #[arg(long, value_name = "L")]
    hops: Option<usize>,
    /// Entries of the first table.
    #[arg(long, value_name = "M", default_value_t = 4)]
    m: u32,
    /// Growth of each further table: n_1,..,n_{L-1}; 2 each if not given.
    #[arg(long, value_delimiter = ',', value_name = "N1,N2,..")]
    n: Vec<u32>,
    /// Recurrent mixer of the forwarding layer in U2, U2', U6 and S2, such as `gdn` or `linear{map=relu}`.
    #[arg(long)]
    mixer: Option<String>,
    /// Sequence length of 2-Sum, or number of bits of parity.
    #[arg(long, default_value_t = 16)]
    length: usize,
    /// Modulus of 2-Sum, or number of values of a retrieval.
    #[arg(long, default_value_t = 64)]
    modulus: u32,
    /// Number of entries of a retrieval.
    #[arg(long, default_value_t = 8)]
    entries: u32,
    /// Hop whose entries prefetch the next entry, in S3.
    #[arg(long)]
    at: Option<usize>,
    /// Candidates in S5: a power of two.
    #[arg(long, default_value_t = 2)]
    candidates: u32,
    /// Build into the layers of this stack instead of the smallest one that suffices.
    #[arg(long)]
    stack: Option<String>,
    #[command(flatten)]
    sizes: SizeOptions,
    /// Normalisation layers of the model.
    #[arg(long, value_enum, default_value_t = Norms::None)]
    norm: Norms,
    /// Floating-point format of the weights.
    #[arg(long, value_enum, default_value_t = FloatFormat::F32)]
    precision: FloatFormat,
    /// Output directory; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// The norms of a constructed model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Norms {
    /// None.
    None,
    /// RMS norms.
    Rms,
    /// Layer norms.
    Layer,
}

/// The floating-point format of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FloatFormat {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Construct {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no construction for the request, or the folder cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if self.name == "list" {
            return self.list();
        }
        match self.precision {
            FloatFormat::F32 => self.build::<f32>(),
            FloatFormat::F64 => self.build::<f64>(),
        }
    }

    fn list(&self) -> anyhow::Result<ExitCode> {
        if self.json {
            let entry = |kind: &construct::ConstructionKind| json!({"name": kind.name, "about": kind.about, "has_forwarding": kind.has_forwarding});
            print_json(&json!(KINDS.iter().map(entry).collect::<Vec<_>>()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let lines: Vec<String> = KINDS.iter().map(|kind| format!("{:17} {}\n", kind.name, kind.about)).collect();
        print(&lines.concat())?;
        Ok(ExitCode::SUCCESS)
    }

    fn request(&self) -> anyhow::Result<ConstructionRequest> {
        let hops = self.hops.unwrap_or(if self.n.is_empty() { 2 } else { self.n.len() + 1 });
        if !(1..=rung_theory::task::funccomp::MAX_HOPS).contains(&hops) {
            bail!("--hops: found {hops}, expected 1 to {}", rung_theory::task::funccomp::MAX_HOPS);
        }
        let n = if self.n.is_empty() { vec![2; hops - 1] } else { self.n.clone() };
        if n.len() + 1 != hops {
            bail!("--n has {} entries, expected {} (one less than the hops)", n.len(), hops - 1);
        }
        let (m, mixer) = (self.m, self.mixer.clone());
        Ok(ConstructionRequest {
            hops,
            first_table_entries: m,
            growth_factors: n,
            mixer,
            length: self.length,
            // One option for both: no construction has both sizes.
            modulus: self.modulus,
            value_count: self.modulus,
            entries: self.entries,
            prefetch_hop: self.at,
            candidates: self.candidates,
            norm: match self.norm {
                Norms::None => NormConfig::None,
                Norms::Rms => NormConfig::Rms,
                Norms::Layer => NormConfig::Layer,
            },
        })
    }

    fn build<S: rung_engine::Scalar>(&self) -> anyhow::Result<ExitCode> {
        let kind = construct::find(&self.name)?;
        if self.mixer.is_some() && !kind.has_forwarding {
            bail!("--mixer: {} has no forwarding layer", kind.name);
        }
        let request = self.request()?;
        let bar = spinner("building".to_owned());
        let network: Network<S> = match &self.stack {
            Some(stack) => construct::build_on(kind.name, &request, &self.sizes.resolve(stack)?.plan)?,
            None => construct::build(kind.name, &request)?,
        };
        if let Some(out) = &self.out {
            network.save(out).with_context(|| format!("--out {}", out.display()))?;
        }
        bar.finish_and_clear();
        self.report(&network)
    }

    fn report<S: rung_engine::Scalar>(&self, network: &Network<S>) -> anyhow::Result<ExitCode> {
        let tokens = network.task()?.length();
        let description = network.construction().context("a construction says what it does")?;
        let stack = network.plan.to_stack().to_string();
        let emitted_tokens = description.chain_of_thought.as_ref().map(|chain| chain.emitted_tokens);
        if self.json {
            print_json(&json!({
                "name": description.name,
                "task": description.task,
                "stack": stack,
                "layers": description.layers,
                "width": network.plan.width,
                "weights": network.weights.size(),
                "tokens": tokens,
                "thoughts": emitted_tokens,
                "registers": description.registers,
                "out": self.out,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        writeln!(text, "{} for {} (constructed)", description.name, description.task)?;
        writeln!(text, "  stack    {stack}")?;
        writeln!(text, "  width    {}, {} weights", network.plan.width, with_commas(network.weights.size()))?;
        writeln!(text, "  tokens   {}", with_commas(tokens))?;
        for (index, about) in description.layers.iter().enumerate().filter(|(_, about)| !about.is_empty()) {
            writeln!(text, "  layer {index:2} {about}")?;
        }
        if let Some(count) = emitted_tokens {
            writeln!(text, "  emits    {count} tokens, the answer included")?;
        }
        match &self.out {
            Some(out) => writeln!(text, "  written to {0}; `rung verify {0}` runs it", out.display())?,
            None => writeln!(text, "  not written; --out DIR writes it")?,
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
