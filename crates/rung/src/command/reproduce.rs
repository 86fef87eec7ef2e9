//! `rung reproduce`: the main job. Rebuilds everything there is to show into one report.
//!
//! Training runs are kept below the output directory, each with its record, so the command can be stopped and given again: what is
//! recorded is not run twice, and the report is made from records alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use rung_figure::report::Report;
use rung_lab::chapter::measured::Done;
use rung_lab::chapter::{Artefact, Made, Preset, audited, constructed, looked, measured, proved, refuted, summary};
use rung_lab::experiment::{self, Chapter as Place, Experiment, Reading};
use rung_nn::file::write_atomically;
use rung_train::sweep::{self, Shard, Sweep};
use serde_json::json;

use super::sweep::pace;
use crate::output::{print, print_json, spinner, steps};
use crate::watch::{Interrupt, SweepWatcher, duration};

/// Rebuild the whole hierarchy into one self-contained HTML report.
///
/// It can be stopped and started again; training goes on where it was. Exit codes: 0 all is there, 1 some runs failed, 130 interrupted.
#[derive(Debug, clap::Args)]
pub struct Reproduce {
    /// How much to do.
    #[arg(long, value_enum, default_value_t = Amount::Quick)]
    preset: Amount,
    /// Only these chapters or experiments; if not given, every chapter, but `open` in the full preset alone.
    #[arg(long, value_parser = parts(), value_delimiter = ',', value_name = "PART,..")]
    only: Vec<String>,
    /// Where to write; made if it does not exist.
    #[arg(long, default_value = "out", value_name = "DIR")]
    out: PathBuf,
    /// Training runs at the same time; all cores if not given. It changes the time and nothing else.
    #[arg(long)]
    threads: Option<usize>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Amount {
    /// Seconds: whether everything works.
    Smoke,
    /// Minutes on two cores; the estimate comes first.
    Quick,
    /// An hour or two on two cores, open questions included.
    Full,
}

/// What `--only` takes: chapters and experiments.
fn parts() -> clap::builder::PossibleValuesParser {
    use clap::builder::PossibleValue;
    let chapters = [
        ("proved", "Certificates, maps, the sparse bound"),
        ("constructed", "Explicit weights, run against the oracle"),
        ("refuted", "Failures that were found, and checked"),
        ("measured", "The experiments of the main job"),
        ("open", "The experiments on open questions, about an hour"),
        ("looked", "What the instruments see, in a construction and in a trained network"),
        ("audited", "Public models"),
    ];
    let chapters = chapters.map(|(name, help)| PossibleValue::new(name).help(help));
    let experiments =
        experiment::ALL.iter().map(|experiment| PossibleValue::new(experiment.name).help(experiment.title));
    clap::builder::PossibleValuesParser::new(chapters.into_iter().chain(experiments))
}

/// What the training part came to.
#[derive(Default)]
struct Training {
    done: Vec<Done>,
    interrupted: bool,
    failed: bool,
}

impl Reproduce {
    /// Runs it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let started = Instant::now();
        let preset = match self.preset {
            Amount::Smoke => Preset::Smoke,
            Amount::Quick => Preset::Quick,
            Amount::Full => Preset::Full,
        };
        if self.threads == Some(0) {
            anyhow::bail!("--threads: found 0, expected at least 1");
        }
        fs::create_dir_all(&self.out).with_context(|| format!("making the directory {}", self.out.display()))?;
        let sweeps = self.sweeps(preset)?;
        self.announce(preset, &sweeps)?;
        let mut made: Vec<Made> = Vec::new();
        if self.wants("proved") {
            let bar = steps(proved::units(preset)).with_message("proved");
            made.push(proved::make(preset, &|| bar.inc(1)));
            bar.finish_and_clear();
        }
        if self.wants("constructed") {
            let bar = steps(constructed::units()).with_message("constructed");
            made.push(constructed::make(preset, &|| bar.inc(1)));
            bar.finish_and_clear();
        }
        if self.wants("refuted") {
            let bar = steps(refuted::units(preset)).with_message("refuted");
            made.push(refuted::make(preset, &|| bar.inc(1)));
            bar.finish_and_clear();
        }
        let training = self.train(sweeps);
        let mut readings: Vec<(&str, Reading)> = Vec::new();
        for place in [Place::Measured, Place::Open] {
            let own: Vec<&Done> = training.done.iter().filter(|done| done.experiment.chapter == place).collect();
            if !own.is_empty() {
                let (chapter, found) = measured::make(place, preset, &own);
                made.push(chapter);
                readings.extend(own.iter().map(|done| done.experiment.name).zip(found));
            }
        }
        if self.wants("looked") && !training.interrupted {
            let bar = spinner("looked inside".to_owned());
            made.push(self.look(preset));
            bar.finish_and_clear();
        }
        if self.wants("audited") {
            made.push(audited::make());
        }
        let path = self.write(preset, &made, &readings)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut lines: Vec<String> =
            made.iter().map(|made| format!("{}: {}", made.chapter.title, made.summary)).collect();
        for (name, reading) in &readings {
            lines.push(format!("  {name}: {}", reading.line));
            lines.extend(
                reading.contradictions.iter().map(|sentence| format!("    against the prediction: {sentence}")),
            );
        }
        if training.interrupted {
            lines.push("interrupted: the same command goes on where this one stopped".to_owned());
        }
        if self.json {
            print_json(
                &json!({"report": path, "chapters": lines, "interrupted": training.interrupted, "seconds": seconds}),
            )?;
        } else {
            print(&format!("{}\n{} (in {seconds:.1} s)\n", lines.join("\n"), path.display()))?;
        }
        Ok(match (training.failed, training.interrupted) {
            (true, _) => ExitCode::from(1),
            (false, true) => ExitCode::from(130),
            (false, false) => ExitCode::SUCCESS,
        })
    }

    fn wants(&self, part: &str) -> bool {
        if self.only.is_empty() {
            return part != "open" || self.preset == Amount::Full;
        }
        self.only.iter().any(|only| only == part)
    }

    /// Looks into a construction, and into one of the runs that are there.
    fn look(&self, preset: Preset) -> Made {
        let runs = sweep::records(&self.runs()).unwrap_or_default();
        looked::make(preset, looked::choose(&runs).map(|(path, _)| path.as_path()))
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn runs(&self) -> PathBuf {
        self.out.join("runs")
    }

    fn sweeps(&self, preset: Preset) -> anyhow::Result<Vec<(&'static Experiment, Sweep)>> {
        let wanted = |experiment: &&&'static Experiment| {
            let chapter = match experiment.chapter {
                Place::Measured => "measured",
                Place::Open => "open",
            };
            self.wants(chapter) || self.only.iter().any(|only| only == experiment.name)
        };
        let asked = experiment::ALL.iter().filter(wanted);
        asked.map(|experiment| Ok((*experiment, experiment.sweep(preset)?))).collect()
    }

    /// Says how long it may take, before anything is begun.
    fn announce(&self, preset: Preset, sweeps: &[(&Experiment, Sweep)]) -> anyhow::Result<()> {
        let mut seconds = if preset == Preset::Full { 60.0 } else { 5.0 };
        let bar = spinner("estimating".to_owned());
        for (_, sweep) in sweeps {
            seconds += sweep::estimate(sweep, &self.runs(), Shard::WHOLE, self.threads())?;
        }
        bar.finish_and_clear();
        if self.json {
            return Ok(());
        }
        let (threads, out) = (self.threads(), self.out.display());
        print(&format!("rung reproduce: at most about {} on {threads} threads, into {out}\n", duration(seconds)))
    }

    fn train(&self, sweeps: Vec<(&'static Experiment, Sweep)>) -> Training {
        let mut training = Training::default();
        if sweeps.is_empty() {
            return training;
        }
        let interrupt = Interrupt::install();
        for (experiment, sweep) in sweeps {
            if !self.json {
                eprintln!("{}: {} runs", experiment.name, sweep.runs.len());
            }
            let watcher = SweepWatcher::new(&sweep, Shard::WHOLE, !self.json);
            let tally = sweep::carry_out(&sweep, &self.runs(), Shard::WHOLE, self.threads(), &|event| {
                watcher.show(&event);
                !interrupt.seen()
            });
            watcher.finish();
            if !self.json {
                eprint!("{}", pace(&tally));
            }
            training.interrupted |= interrupt.seen();
            training.failed |= !tally.failed.is_empty();
            let name = |number: usize| {
                let config = &sweep.runs[number].config;
                format!("{} on {}, seed {}", config.stack, config.task, config.seed)
            };
            let mut missing: Vec<String> =
                tally.failed.iter().map(|(number, error)| format!("{} failed: {error}", name(*number))).collect();
            let stopped = (0..sweep.runs.len()).filter(|number| {
                tally.records[*number].is_none() && !tally.failed.iter().any(|(failed, _)| failed == number)
            });
            missing.extend(stopped.map(|number| format!("{} was not finished.", name(number))));
            training.done.push(Done { experiment, records: tally.records.into_iter().flatten().collect(), missing });
        }
        training
    }

    /// The command that makes the same report.
    fn as_typed(&self, preset: Preset) -> String {
        let only = if self.only.is_empty() { String::new() } else { format!(" --only {}", self.only.join(",")) };
        format!("rung reproduce --preset {}{only}", preset.name())
    }

    /// Files first, the report last: whoever finds a report finds everything it speaks of.
    fn write(&self, preset: Preset, made: &[Made], readings: &[(&str, Reading)]) -> anyhow::Result<PathBuf> {
        for artefact in made.iter().flat_map(|made| &made.artefacts) {
            write_below(&self.out, artefact)?;
        }
        let told: Vec<(&str, &Reading)> = readings.iter().map(|(name, reading)| (*name, reading)).collect();
        let mut report = Report::new("Rung: what one forward pass can climb")
            .summary(
                "How many steps of reasoning an attention stack can climb in one forward pass, and how we know. A figure tagged \
                 proved holds for all weights and was checked with exact integers; constructed means explicit weights are \
                 named; measured means somebody ran it.",
            )
            .fact("made by", format!("rung {}", env!("CARGO_PKG_VERSION")))
            .fact("command", self.as_typed(preset))
            .chapter(summary::make(made, &told));
        for made in made {
            report = report.chapter(made.chapter.clone());
        }
        let path = self.out.join("report.html");
        write_atomically(&path, report.html()?.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
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
