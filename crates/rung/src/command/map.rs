//! `rung map STACK --hops L --out FILE`: draws the prompt lengths that are solved, unknown and impossible.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_lab::hop_map::{self, HopMapRow, SolvedLength};
use rung_theory::bound::search::MAX_SEARCH_HOPS;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::report;
use serde_json::Value;

use super::stack::SizeOptions;
use crate::output::{check_destination, hops_text, print, print_json, progress_bar, write_chart};

/// Map hops against tokens: solved, unknown or impossible.
#[derive(Debug, clap::Args)]
pub struct Map {
    /// A stack such as `linear*3 full linear*3`, or a model: preset, config.json, directory or GGUF file.
    stack: String,
    /// Largest number of hops to show.
    #[arg(long, default_value_t = 4, value_name = "L")]
    hops: usize,
    #[command(flatten)]
    sizes: SizeOptions,
    /// Write the chart to this file, ending in .svg, .png or .csv.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Map {
    /// Runs the command.
    ///
    /// # Errors
    /// The stack cannot be read, or the picture cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if !(1..=MAX_SEARCH_HOPS).contains(&self.hops) {
            bail!(
                "--hops: found {}, expected 1 to {MAX_SEARCH_HOPS}: certificates are searched up to there",
                self.hops
            );
        }
        if let Some(path) = &self.out {
            check_destination("--out", path, &["svg", "png", "csv"])?;
        }
        let stack = self.sizes.resolve(&self.stack)?;
        let plan = &stack.plan;
        let bounds = StackBounds::new(plan, stack.convention);
        let bar = progress_bar(self.hops as u64);
        let rows: Vec<HopMapRow> = (1..=self.hops)
            .map(|hops| {
                let row = hop_map::hop_map_row(&bounds, hops);
                bar.inc(1);
                row
            })
            .collect();
        bar.finish_and_clear();
        if let Some(path) = &self.out {
            let title = format!("{}: what one forward pass can do", plan.mixer_names());
            let drawn_rows: Vec<hop_map::RecordedMapRow> = rows.iter().map(Into::into).collect();
            let chart = hop_map::draw_hop_map(&title, plan, stack.convention, &drawn_rows);
            write_chart(path, &chart)?;
        }
        if self.json {
            print_json(&Value::Array(rows.iter().map(report::hop_map_row).collect()))?;
        } else {
            print(&self.text(&rows)?)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, rows: &[HopMapRow]) -> anyhow::Result<String> {
        let mut text = format!("{}\n", self.stack);
        for row in rows.iter().rev() {
            let solved = row.longest_with_all_tables_solved.map_or_else(
                || "not solved for all tables".to_owned(),
                |SolvedLength { log2_tokens, construction }| {
                    format!("solved for all tables up to 2^{log2_tokens:.0} tokens ({construction}, constructed)")
                },
            );
            let impossible = row.impossibility_certificate.as_ref().map_or_else(
                || "no certificate".to_owned(),
                |bound| {
                    let trivial = if bound.accepted.trivial { ", trivial" } else { "" };
                    format!("impossible for some from 2^{:.2} tokens (proved{trivial})", bound.log2_tokens())
                },
            );
            writeln!(text, "  {:>7}  {solved:<60} {impossible}", hops_text(row.hops))?;
            if let Some(SolvedLength { log2_tokens, construction }) = row.longest_with_some_tables_solved {
                let tables = "tables with one row group at every hop but the last";
                writeln!(
                    text,
                    "           {tables}: solved up to 2^{log2_tokens:.1} tokens ({construction}, constructed)"
                )?;
            }
        }
        if let Some(path) = &self.out {
            writeln!(text, "  drawn in {}", path.display())?;
        }
        Ok(text)
    }
}
