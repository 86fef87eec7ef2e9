//! `rung protocol DIR`: a forward pass as the communication protocol of the bounds, with the bits that its players send.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_engine::Scalar;
use rung_inspect::protocol::ProtocolReport;
use rung_nn::Network;
use rung_nn::protocol::NumberEncoding;
use serde_json::json;

use super::construct::FloatFormat;
use super::memory::MemoryOption;
use super::trace::InstanceOptions;
use crate::output::{print, print_json, with_spinner};

/// Run a network as the communication protocol of the bounds.
///
/// Counts the bits that cross each border between players, and replays every player from its messages alone.
///
/// Exit codes: 0 all players compute the same bits, 1 one does not, 2 bad input.
#[derive(Debug, clap::Args)]
pub struct Protocol {
    /// A folder written by `rung construct --out`, or the directory of a finished run.
    folder: PathBuf,
    #[command(flatten)]
    prompt: InstanceOptions,
    /// Bits of a number that crosses a border: 9 to 32 (the leading bits of single precision), or 64 [default: those that the model
    /// simulates (`model.bits` of a run), or all bits of its numbers]
    #[arg(long, value_name = "P")]
    bits: Option<u32>,
    /// Floating-point format to run in.
    #[arg(long, value_enum, default_value_t = FloatFormat::F32)]
    precision: FloatFormat,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Protocol {
    /// Runs the command.
    ///
    /// # Errors
    /// The folder cannot be read, or its network does not fit the protocol.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        match self.precision {
            FloatFormat::F32 => self.execute::<f32>(),
            FloatFormat::F64 => self.execute::<f64>(),
        }
    }

    fn execute<S: Scalar>(&self) -> anyhow::Result<ExitCode> {
        let encoding = self.bits.and_then(NumberEncoding::new);
        if let (Some(bits), None) = (self.bits, encoding) {
            bail!("--bits: found {bits}, expected {} to 32, or 64", NumberEncoding::MIN_BITS);
        }
        let network = Network::<S>::open(&self.folder)?;
        let tokens = self.prompt.tokens(network.task()?)?;
        network.task()?.oracle(&tokens)?;
        let report = with_spinner("running the protocol", || {
            ProtocolReport::measure(&network.name, &network, &tokens, encoding)
        })?;
        if self.json {
            let mut value = serde_json::to_value(&report)?;
            value["exact"] = json!(report.is_exact());
            print_json(&value)?;
        } else {
            print(&report.text())?;
        }
        Ok(ExitCode::from(u8::from(!report.is_exact())))
    }
}
