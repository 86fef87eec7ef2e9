//! `rung reproduce`: rebuilds certificates, constructions, training runs and audits into one report.
//!
//! Training runs and all other evidence are recorded below the output directory, and the report is written from these records alone;
//! `--render-only` writes it again without computing anything. Finished training runs are skipped, so an
//! interrupted command can be resumed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use rung_figure::FileProvenance;
use rung_figure::report::Report;
use rung_lab::chapter::measured::ExperimentRecords;
use rung_lab::chapter::{
    Artefact, ChapterOutput, Preset, audited, constructed, inspected, measured, proved, refuted, summary, unknown,
};
use rung_lab::experiment::{self, Conclusion, Experiment, ReportChapter, verdicts};
use rung_lab::store::{RecordError, RecordStore};
use rung_nn::file::write_atomically;
use rung_train::run::{ComputeDevice, Run, RunError, directory, record};
use rung_train::sweep::{self, Shard, Sweep};
use serde_json::json;

use super::sweep::pace_text;
use crate::output::{print, print_json, print_note, progress_bar, spinner};
use crate::watch::{Interrupt, SweepWatcher, duration_text};

/// Rebuild certificates, runs and audits into one HTML report.
///
/// An interrupted command can be resumed; finished runs are skipped. Exit codes: 0 complete, 1 some runs failed, 130 interrupted.
#[derive(Debug, clap::Args)]
pub struct Reproduce {
    /// Size of the experiments.
    #[arg(long, value_enum, default_value_t = PresetName::Quick)]
    preset: PresetName,
    /// Only these chapters or experiments; if not given, every chapter, but `open` in the full preset alone.
    #[arg(long, value_parser = part_names(), value_delimiter = ',', value_name = "PART,..")]
    only: Vec<String>,
    /// Output directory; created if it does not exist.
    #[arg(long, default_value = "out", value_name = "DIR")]
    out: PathBuf,
    /// Runs in parallel, one thread each [default: all cores]. Does not change results.
    #[arg(long)]
    threads: Option<usize>,
    /// Render the report from the records in the output directory without computing anything.
    #[arg(long)]
    render_only: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PresetName {
    /// Seconds: a smoke test.
    Smoke,
    /// Minutes on two cores; an estimate is printed first.
    Quick,
    /// An hour or two on two cores, open questions included.
    Full,
}

/// Values of `--only`: chapters and experiments.
fn part_names() -> clap::builder::PossibleValuesParser {
    use clap::builder::PossibleValue;
    let chapters = [
        ("proved", "Certificates, maps, the sparse bound"),
        ("constructed", "Explicit weights, run against the oracle"),
        ("refuted", "Failures that were found, and checked"),
        ("measured", "The training experiments, without those on open questions"),
        ("open", "The experiments on open questions, about an hour"),
        ("inspected", "What the analyses measure, in a construction and in a trained network"),
        ("audited", "Public models"),
    ];
    let alias = |name: &str| if name == "inspected" { "looked" } else { "" };
    let chapters = chapters.map(|(name, help)| match alias(name) {
        "" => PossibleValue::new(name).help(help),
        alias => PossibleValue::new(name).alias(alias).help(help),
    });
    let experiments =
        experiment::ALL.iter().map(|experiment| PossibleValue::new(experiment.name).help(experiment.title));
    clap::builder::PossibleValuesParser::new(chapters.into_iter().chain(experiments))
}

/// Result of all training runs.
#[derive(Default)]
struct TrainingOutcome {
    interrupted: bool,
    /// Whether a run failed.
    failed: bool,
}

impl Reproduce {
    /// Runs the command.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let started = Instant::now();
        let preset = match self.preset {
            PresetName::Smoke => Preset::Smoke,
            PresetName::Quick => Preset::Quick,
            PresetName::Full => Preset::Full,
        };
        if self.threads == Some(0) {
            anyhow::bail!("--threads: found 0, expected at least 1");
        }
        fs::create_dir_all(&self.out).with_context(|| format!("creating the directory {}", self.out.display()))?;
        let sweeps = self.sweeps(preset)?;
        let store = RecordStore::new(&self.out, preset);
        let training = if self.render_only { TrainingOutcome::default() } else { self.compute(&store, &sweeps)? };
        let (chapters, conclusions) = self.render(&store, &sweeps);
        let path = self.write(preset, &chapters, &conclusions)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut lines: Vec<String> =
            chapters.iter().map(|output| format!("{}: {}", output.chapter.title, output.summary)).collect();
        for (name, conclusion) in &conclusions {
            lines.push(format!("  {name}: {}", conclusion.summary_line));
            lines.extend(
                conclusion
                    .contradictions
                    .iter()
                    .map(|contradiction| format!("    against the prediction: {contradiction}")),
            );
        }
        if training.interrupted {
            lines.push("interrupted: the same command resumes".to_owned());
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

    /// Whether a chapter or experiment is selected.
    fn is_selected(&self, part: &str) -> bool {
        if self.only.is_empty() {
            return part != "open" || self.preset == PresetName::Full;
        }
        self.only.iter().any(|only| only == part || (part == "inspected" && only == "looked"))
    }

    /// Computes the records of the selected chapters.
    fn compute(&self, store: &RecordStore, sweeps: &[(&'static Experiment, Sweep)]) -> anyhow::Result<TrainingOutcome> {
        self.print_estimate(store.preset(), sweeps)?;
        if self.is_selected("proved") {
            let bar = progress_bar(proved::record_count(store.preset())).with_message("proved");
            proved::compute(store, &|| bar.inc(1))?;
            bar.finish_and_clear();
        }
        if self.is_selected("constructed") {
            let bar = progress_bar(constructed::record_count()).with_message("constructed");
            constructed::compute(store, &|| bar.inc(1))?;
            bar.finish_and_clear();
        }
        if self.is_selected("refuted") {
            let bar = progress_bar(refuted::record_count(store.preset())).with_message("refuted");
            refuted::compute(store, &|| bar.inc(1))?;
            bar.finish_and_clear();
        }
        if self.is_selected("audited") {
            audited::compute(store)?;
        }
        let training = self.train(store, sweeps)?;
        if self.is_selected("inspected") && !training.interrupted {
            let bar = spinner("inspecting".to_owned());
            let runs = self.runs_directory();
            inspected::compute(store, if runs.is_dir() { sweep::read_records(&runs) } else { Ok(Vec::new()) })?;
            bar.finish_and_clear();
        }
        Ok(training)
    }

    /// Writes the selected chapters from records.
    fn render(
        &self,
        store: &RecordStore,
        sweeps: &[(&'static Experiment, Sweep)],
    ) -> (Vec<ChapterOutput>, Vec<(&'static str, Conclusion)>) {
        let mut chapters = Vec::new();
        if self.is_selected("proved") {
            chapters.push(proved::render(store));
        }
        if self.is_selected("constructed") {
            chapters.push(constructed::render(store));
        }
        if self.is_selected("refuted") {
            chapters.push(refuted::render(store));
        }
        let records: Vec<ExperimentRecords> =
            sweeps.iter().map(|(experiment, sweep)| self.read_records(store, experiment, sweep)).collect();
        let mut conclusions = Vec::new();
        for chapter in [ReportChapter::Measured, ReportChapter::OpenQuestions] {
            let experiments: Vec<&ExperimentRecords> =
                records.iter().filter(|records| records.experiment.chapter == chapter).collect();
            if !experiments.is_empty() {
                let (output, chapter_conclusions) = measured::render(chapter, store, &experiments);
                chapters.push(output);
                conclusions.extend(experiments.iter().map(|records| records.experiment.name).zip(chapter_conclusions));
            }
        }
        if self.is_selected("inspected") {
            chapters.push(inspected::render(store));
        }
        if self.is_selected("audited") {
            chapters.push(audited::render(store));
        }
        (chapters, conclusions)
    }

    /// The records of an experiment's runs, and a sentence for each run without a record.
    fn read_records(&self, store: &RecordStore, experiment: &'static Experiment, sweep: &Sweep) -> ExperimentRecords {
        let mut notes = Vec::new();
        let failures = match store.read::<Failures>(&failures_key(experiment)) {
            Ok(record) => record.data,
            // Without it no run failed, or none was started; each run without a record says so.
            Err(RecordError::NotRun) => Failures::new(),
            Err(reason) => {
                notes.push(format!("{}: {reason}.", failures_key(experiment)));
                Failures::new()
            }
        };
        let (mut records, mut missing) = (Vec::new(), Vec::new());
        for run in &sweep.runs {
            let (id, config) = (record::id(run), &run.config);
            let name = format!("{} on {}, seed {}", config.stack, config.task, config.seed);
            match (directory::find_record(run, &self.run_directory(run)), failures.get(&id)) {
                (Ok(Some(record)), _) => records.push(record),
                (Err(error), _) => missing.push(format!("{name}: {error}")),
                (Ok(None), Some(reason)) => missing.push(format!("{name} failed: {reason}")),
                (Ok(None), None) => missing.push(format!("{name}: not run, or not finished.")),
            }
        }
        ExperimentRecords { experiment, records, missing, notes }
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn runs_directory(&self) -> PathBuf {
        self.out.join("runs")
    }

    fn run_directory(&self, run: &Run) -> PathBuf {
        self.runs_directory().join(record::id(run))
    }

    fn sweeps(&self, preset: Preset) -> anyhow::Result<Vec<(&'static Experiment, Sweep)>> {
        let is_selected = |experiment: &&&'static Experiment| {
            let chapter = match experiment.chapter {
                ReportChapter::Measured => "measured",
                ReportChapter::OpenQuestions => "open",
            };
            self.is_selected(chapter) || self.only.iter().any(|only| only == experiment.name)
        };
        let experiments = experiment::ALL.iter().filter(is_selected);
        experiments.map(|experiment| Ok((*experiment, experiment.sweep(preset)?))).collect()
    }

    /// Prints an estimate of the total time.
    fn print_estimate(&self, preset: Preset, sweeps: &[(&Experiment, Sweep)]) -> anyhow::Result<()> {
        let mut seconds = if preset == Preset::Full { 60.0 } else { 5.0 };
        let bar = spinner("estimating".to_owned());
        for (_, sweep) in sweeps {
            sweep::check_memory(sweep, &self.runs_directory(), Shard::ALL, self.threads())?;
            seconds +=
                sweep::estimate(sweep, &self.runs_directory(), Shard::ALL, self.threads(), &ComputeDevice::Native)?;
        }
        bar.finish_and_clear();
        if self.json {
            return Ok(());
        }
        let (threads, out) = (self.threads(), self.out.display());
        print(&format!("rung reproduce: at most about {} on {threads} threads, into {out}\n", duration_text(seconds)))
    }

    /// Trains the runs that have no record yet, and records which of them failed.
    fn train(&self, store: &RecordStore, sweeps: &[(&'static Experiment, Sweep)]) -> anyhow::Result<TrainingOutcome> {
        let mut training = TrainingOutcome::default();
        if sweeps.is_empty() {
            return Ok(training);
        }
        let interrupt = Interrupt::install();
        for (experiment, sweep) in sweeps {
            if !self.json {
                eprintln!("{}: {} runs", experiment.name, sweep.runs.len());
            }
            let watcher = SweepWatcher::new(sweep, Shard::ALL, !self.json);
            let summary = sweep::execute(sweep, &self.runs_directory(), Shard::ALL, self.threads(), &|event| {
                watcher.show(&event);
                !interrupt.requested()
            });
            watcher.finish();
            if !self.json {
                print_note(pace_text(&summary).trim_end());
            }
            training.interrupted |= interrupt.requested();
            training.failed |= !summary.failed.is_empty();
            let failure = |(number, error): &(usize, RunError)| (record::id(&sweep.runs[*number]), error.to_string());
            let failures: Failures = summary.failed.iter().map(failure).collect();
            store.write(&failures_key(experiment), &failures)?;
            verdicts::compute(store, experiment, &self.read_records(store, experiment, sweep).records)?;
        }
        Ok(training)
    }

    /// The command that writes the same report.
    fn command(&self, preset: Preset) -> String {
        let only = if self.only.is_empty() { String::new() } else { format!(" --only {}", self.only.join(",")) };
        format!("rung reproduce --preset {}{only}", preset.name())
    }

    /// Writes the files first and the report last, so that all files of an existing report exist.
    fn write(
        &self,
        preset: Preset,
        chapters: &[ChapterOutput],
        conclusions: &[(&str, Conclusion)],
    ) -> anyhow::Result<PathBuf> {
        for ChapterOutput { chapter, artefacts, .. } in chapters {
            // The command names only this chapter, so that its files do not depend on the other chapters.
            let command = format!("rung reproduce --preset {} --only {}", preset.name(), chapter.id);
            let provenance = FileProvenance::new(command, None);
            artefacts.iter().try_for_each(|artefact| write_artefact(&self.out, artefact, &provenance))?;
        }
        let conclusions: Vec<(&str, &Conclusion)> =
            conclusions.iter().map(|(name, conclusion)| (*name, conclusion)).collect();
        let mut report = Report::new("Rung: what one forward pass can compose")
            .summary("How many dependent look-ups can an attention stack do in one forward pass, and how do we know?")
            .fact("made by", format!("rung {}", env!("CARGO_PKG_VERSION")))
            .fact("command", self.command(preset))
            .chapter(summary::render(chapters, &conclusions));
        for output in chapters {
            report = report.chapter(output.chapter.clone());
        }
        if self.only.is_empty() {
            report = report.chapter(unknown::render(&conclusions));
        }
        let path = self.out.join("report.html");
        let page = FileProvenance::new(self.command(preset), None).mark("report.html", report.html()?.into_bytes());
        write_atomically(&path, &page).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// Error messages of failed runs by run id.
type Failures = BTreeMap<String, String>;

fn failures_key(experiment: &Experiment) -> String {
    format!("measured/{}-failures", experiment.name)
}

/// Writes a file below a directory, marked with the command that made it.
fn write_artefact(directory: &Path, artefact: &Artefact, provenance: &FileProvenance) -> anyhow::Result<()> {
    let path = directory.join(&artefact.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("creating the directory {}", parent.display()))?;
    }
    // A witness has a digest of its contents, which already include the command's seed, so it is not changed.
    let bytes = artefact.bytes.clone();
    let is_witness = artefact.path.starts_with("witnesses/") && path.extension().is_some_and(|end| end == "json");
    let bytes = if is_witness { bytes } else { provenance.mark(&artefact.path, bytes) };
    write_atomically(&path, &bytes).with_context(|| format!("writing {}", path.display()))
}
