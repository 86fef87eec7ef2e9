//! `rung capacity STACK`: full layers, blocks, the extra hop, rungs.

use std::fmt::Write as _;
use std::process::ExitCode;

use rung_audit::report::text::rungs_terms;
use rung_theory::report;

use super::stack::SizeOptions;
use crate::output::{print, print_json, with_commas};

/// Count the hops a stack can compose in one forward pass.
///
/// One for each full layer, less one that must first find the start value, unless a recurrent or window layer passes that value on.
#[derive(Debug, clap::Args)]
pub struct CapacityCommand {
    /// A stack such as `(gdn*3 full)*12`, or a model: preset, config.json, directory or GGUF file.
    stack: String,
    #[command(flatten)]
    sizes: SizeOptions,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Maximum number of blocks in the text output; JSON has all of them.
const MAX_SHOWN_BLOCKS: usize = 16;

impl CapacityCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The stack cannot be read.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let stack = self.sizes.resolve(&self.stack)?;
        let (plan, convention) = (&stack.plan, stack.convention);
        let capacity = plan.capacity_with(convention);
        if self.json {
            print_json(&report::capacity(&stack.text, plan, &stack.defaults, convention))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        writeln!(text, "{}", plan.mixer_names())?;
        let is_exact = capacity.constructed_hops == capacity.rungs;
        let evidence = if is_exact { "proved both ways" } else { "at most: proved; at least: constructed" };
        writeln!(text, "  rungs      {} in one forward pass, for large tables ({evidence})", capacity.claim())?;
        writeln!(text, "             {}", rungs_terms(&capacity))?;
        writeln!(text, "  why        {}", capacity.reason())?;
        let formula = plan.message_formula(convention);
        writeln!(text, "  message    {} bits ({formula}, widest layer)", with_commas(capacity.message_bits))?;
        for (index, block) in capacity.blocks.iter().enumerate().take(MAX_SHOWN_BLOCKS) {
            let layers = match (block.layers.first(), block.layers.last()) {
                (Some(first), Some(last)) if first == last => format!("layer {first}"),
                (Some(first), Some(last)) => format!("layers {first}-{last}"),
                _ => "empty".to_owned(),
            };
            writeln!(text, "  block {index:<4} {layers:<14} {:>20} state bits", with_commas(block.state_bits))?;
        }
        if capacity.blocks.len() > MAX_SHOWN_BLOCKS {
            writeln!(text, "  .. and {} more blocks (--json has them all)", capacity.blocks.len() - MAX_SHOWN_BLOCKS)?;
        }
        if capacity.parallel_bits.iter().any(|&bits| bits > 0) {
            let max_bits = capacity.parallel_bits.iter().max().copied().unwrap_or_default();
            writeln!(
                text,
                "  parallel   up to {} state bits in parallel with attention: never an extra hop",
                with_commas(max_bits)
            )?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
