//! `rung reproduce`: the main job. Rebuilds everything there is to show into one report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use rung_lab::chapter::{Artefact, Made, Preset, audited, constructed, proved};
use rung_lab::report::{Report, write_atomically};
use serde_json::json;

use crate::output::{print, print_json, steps};

/// Rebuild the whole hierarchy into one self-contained HTML report.
#[derive(Debug, clap::Args)]
pub struct Reproduce {
    /// How much to do.
    #[arg(long, value_enum, default_value_t = Amount::Quick)]
    preset: Amount,
    /// Only these chapters.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<ChapterName>,
    /// Where to write; made if it does not exist.
    #[arg(long, default_value = "out", value_name = "DIR")]
    out: PathBuf,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Amount {
    /// Seconds on two cores.
    Quick,
    /// Up to eight hops: under a minute.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ChapterName {
    Proved,
    Constructed,
    Audited,
}

impl Reproduce {
    /// Runs it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let started = Instant::now();
        let preset = match self.preset {
            Amount::Quick => Preset::Quick,
            Amount::Full => Preset::Full,
        };
        fs::create_dir_all(&self.out).with_context(|| format!("making the directory {}", self.out.display()))?;
        let expected = if preset == Preset::Quick { "a few seconds" } else { "under a minute" };
        if !self.json {
            print(&format!("rung reproduce: {expected} on two cores, into {}\n", self.out.display()))?;
        }
        let wanted = |chapter| self.only.is_empty() || self.only.contains(&chapter);
        let mut made: Vec<Made> = Vec::new();
        if wanted(ChapterName::Proved) {
            let bar = steps(proved::units(preset)).with_message("proved");
            made.push(proved::make(preset, &|| bar.inc(1)));
            bar.finish_and_clear();
        }
        if wanted(ChapterName::Constructed) {
            let bar = steps(constructed::units()).with_message("constructed");
            made.push(constructed::make(preset, &|| bar.inc(1)));
            bar.finish_and_clear();
        }
        if wanted(ChapterName::Audited) {
            made.push(audited::make());
        }
        let path = self.write(made.as_slice())?;
        let seconds = started.elapsed().as_secs_f64();
        let lines: Vec<String> = made.iter().map(|made| format!("{}: {}", made.chapter.title, made.summary)).collect();
        if self.json {
            print_json(&json!({"report": path, "chapters": lines, "seconds": seconds}))?;
        } else {
            print(&format!("{}\n{} (in {seconds:.1} s)\n", lines.join("\n"), path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Files first, the report last: whoever finds a report finds everything it speaks of.
    fn write(&self, made: &[Made]) -> anyhow::Result<PathBuf> {
        for artefact in made.iter().flat_map(|made| &made.artefacts) {
            write_below(&self.out, artefact)?;
        }
        let mut report = Report::new("Rung: what one forward pass can climb")
            .summary(
                "How many steps of reasoning an attention stack can climb in one forward pass, and how we know. A figure tagged \
                 proved holds for all weights and was checked with exact integers; constructed means explicit weights are \
                 named; measured means somebody ran it.",
            )
            .fact("made by", format!("rung {}", env!("CARGO_PKG_VERSION")))
            .fact("command", format!("rung reproduce --preset {}", if self.preset == Amount::Quick { "quick" } else { "full" }));
        for made in made {
            report = report.summary(format!("{}: {}", made.chapter.title, made.summary)).chapter(made.chapter.clone());
        }
        let path = self.out.join("report.html");
        report.write(&path).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

fn write_below(directory: &Path, artefact: &Artefact) -> anyhow::Result<()> {
    let path = directory.join(&artefact.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("making the directory {}", parent.display()))?;
    }
    write_atomically(&path, &artefact.bytes).with_context(|| format!("writing {}", path.display()))
}
