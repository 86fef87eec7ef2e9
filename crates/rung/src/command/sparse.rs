//! `rung sparse`: the block-sparse bound for 2-Sum, and its curve.

use std::fmt::Write as _;
use std::process::ExitCode;

use rung_theory::bound::sparse::BlockSparseInstance;
use serde_json::json;

use crate::output::{print, print_json, with_commas};

/// Decide whether block summaries are too short for 2-Sum.
#[derive(Debug, clap::Args)]
pub struct SparseCommand {
    /// Tokens in a block.
    #[arg(long)]
    block: u64,
    /// Blocks that a query selects, all heads together, besides its own.
    #[arg(long)]
    select: u64,
    /// Bits of a block's summary, all heads together (H*d*p for one key per head).
    #[arg(long)]
    bits: u64,
    /// Modulus of the 2-Sum task.
    #[arg(long)]
    values: u64,
    /// Number of other blocks in the sequence.
    #[arg(long)]
    blocks: u64,
    /// Assume that blocks are summarised alike, whatever their position.
    #[arg(long)]
    same_map: bool,
    /// Assume that summaries reach into a neighbouring block: only every second block is used.
    #[arg(long)]
    overlap: bool,
    /// List the bits needed for block sizes 1, 2, 4, .. up to --block.
    #[arg(long)]
    curve: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl SparseCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// A size is out of range.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let sparse = BlockSparseInstance {
            block_tokens: self.block,
            selected_blocks: self.select,
            summary_bits: self.bits,
            modulus: self.values,
            other_blocks: if self.overlap { self.blocks / 2 } else { self.blocks },
            shared_summary_map: self.same_map,
        };
        let verdict = sparse.verdict()?;
        let ratio = verdict.needed_bits.map(|needed| self.bits as f64 / needed as f64);
        let mut curve = Vec::new();
        if self.curve {
            let sizes =
                std::iter::successors(Some(1_u64), |size| size.checked_mul(2)).take_while(|&size| size <= self.block);
            for block in sizes {
                curve.push((block, BlockSparseInstance { block_tokens: block, ..sparse }.verdict()?.needed_bits));
            }
        }
        let verdict_word = if verdict.impossible { "impossible" } else { "unknown" };
        if self.json {
            let points: Vec<_> =
                curve.iter().map(|(block, needed)| json!({"block": block, "bits_needed": needed})).collect();
            print_json(&json!({
                "verdict": verdict_word,
                "bits": self.bits,
                "bits_needed": verdict.needed_bits,
                "had_over_needed": ratio,
                "universe": verdict.universe,
                "curve": if self.curve { json!(points) } else { json!(null) },
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        let evidence = if verdict.impossible { " (proved)" } else { ": the bound says nothing at this size" };
        writeln!(
            text,
            "2-Sum modulo {} with blocks of {}: {verdict_word}{evidence}",
            with_commas(self.values),
            with_commas(self.block)
        )?;
        match (verdict.needed_bits, ratio) {
            (Some(needed), Some(ratio)) => {
                writeln!(text, "  bits had     {}", with_commas(self.bits))?;
                writeln!(text, "  bits needed  {} (impossible below)", with_commas(needed))?;
                writeln!(text, "  had/needed   {ratio:.3}")?;
            }
            _ => writeln!(
                text,
                "  no summary is short enough: {} of {} blocks can be selected",
                self.select, sparse.other_blocks
            )?,
        }
        for (block, needed) in curve {
            let needed = needed.map_or_else(|| "-".to_owned(), with_commas);
            writeln!(text, "  block {block:>6}  {needed:>12} bits needed")?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
