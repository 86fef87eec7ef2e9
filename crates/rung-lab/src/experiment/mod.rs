//! Experiments: named sweeps that ship with the program, and how their records become a report.
//!
//! Each experiment is one Rust file and up to three sweeps beside it, `NAME-smoke.toml`, `NAME-quick.toml` and `NAME-full.toml`. It has a
//! question, runs that could answer it either way, and a function that turns records into figures and one paragraph. The paragraph is
//! computed from the data and lists every result that contradicts a prediction.
//!
//! A rung is a hop that a stack's layout allows in one forward pass over large tables; a stack of F full layers has F rungs if a recurrent
//! layer precedes the second one. A stack has one rung fewer than hops if the task needs one hop more.
//!
//! | experiment | question |
//! |---|---|
//! | [`staircase`] | does a stack compute as many hops as it has full layers, and no more? |
//! | [`controls`] | is a stack that fails at the last hop well trained, and does anything but a full layer help? |
//! | [`certified`] | does training fail where a proof says so, at the same size? |
//! | [`recipe`] | which ingredients of the recipe does training need? |
//! | [`capacity`] | how much of a table can a bounded state hold, against what its bits allow? |
//! | [`placement`] | does the position of the bounded-state layer matter? |
//! | [`sparse`] | how long must the summaries of block-sparse attention be? |
//! | [`layers`] | do more sparse layers make up for short block summaries? |
//! | [`ablation`] | does the structure of a state matter, or only its bits? |
//! | [`gap`] | can many linear layers replace a full one? |
//! | [`shift`] | does a model trained on one distribution of tables work on others? |
//! | [`variants`] | does any layer pattern compute more hops than it has rungs? |
//! | [`thoughts`] | how many chain-of-thought tokens before its answer does a stack need? |
//! | [`tracking`] | which tasks need recurrences or hybrids? |
//! | [`zoo`] | does every bounded-state mixer reach the rungs of its layout? |
//! | [`length`] | do hops generalize to tables larger than in training? |
//!
//! The first six are the chapter "Measured"; the others are the chapter "Open questions" and run in the full preset, or when they are
//! selected on the command line.
//!
//! # Which learning rate
//!
//! Where a sweep has a grid of rates, each stack and task is reported at one of them: the rate with the best mean accuracy over seeds at
//! the largest number of hops; among equals the lower mean loss, then the smaller rate. The rule is the same for every stack,
//! also those that are predicted to fail.

pub mod ablation;
pub mod capacity;
pub mod certified;
pub mod compare;
pub mod controls;
pub mod gap;
pub mod layers;
pub mod length;
pub mod placement;
pub mod recipe;
pub mod seed_runs;
pub mod shift;
pub mod sparse;
pub mod staircase;
pub mod thoughts;
pub mod tracking;
pub mod variants;
pub mod verdicts;
pub mod zoo;

use self::verdicts::StackVerdict;
use crate::artefact::{Artefact, Preset, add_figure, figure_with_files};
use rung_figure::figure::Chart;
use rung_figure::report::{Chapter, Figure, Prose};
use rung_train::run::{RunError, RunRecord};
use rung_train::sweep::{Sweep, SweepConfig};

/// The chapter of the report that an experiment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportChapter {
    /// Experiments about the hierarchy of hops, which run in every preset.
    Measured,
    /// Experiments about open questions of the literature.
    OpenQuestions,
}

/// Computes what the theory says about the stacks of an experiment's runs.
pub type StackVerdictsFn = fn(&[RunRecord]) -> Vec<StackVerdict>;

/// A question, the runs that answer it, and the function that reports them.
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// Heading in the report.
    pub title: &'static str,
    /// Chapter of the report.
    pub chapter: ReportChapter,
    /// Texts of the sweep files: smoke, quick, full.
    pub sweeps: [&'static str; 3],
    /// Computes what the theory says about the stacks of the runs, if the report shows it: once, after training.
    pub stack_verdicts: Option<StackVerdictsFn>,
    /// Turns records into figures, tables and a conclusion.
    pub render: fn(&[RunRecord], &mut ExperimentOutput<'_>) -> Conclusion,
}

/// The part of the report to which an experiment adds its figures, tables and files.
pub struct ExperimentOutput<'a> {
    /// The chapter.
    pub chapter: &'a mut Chapter,
    /// The files of the report.
    pub artefacts: &'a mut Vec<Artefact>,
    /// The command that reproduces the experiment.
    pub command: String,
    /// What the theory says about the stacks, as it was recorded.
    pub verdicts: Vec<StackVerdict>,
}

impl ExperimentOutput<'_> {
    /// Adds a figure to the chapter, and its files, `NAME.svg` and so on, to those of the report.
    fn add_figure(&mut self, name: &str, chart: &dyn Chart, caption: impl Into<Prose>) {
        add_figure(self.chapter, self.artefacts, name, chart, caption, self.command.clone());
    }

    /// A figure whose files are added to those of the report, and which is not yet in the chapter.
    fn figure_with_files(&mut self, name: &str, chart: &dyn Chart, caption: impl Into<Prose>) -> Figure {
        figure_with_files(self.artefacts, name, chart, caption, self.command.clone())
    }
}

/// The conclusion of an experiment from its records.
#[derive(Clone, Debug, Default)]
pub struct Conclusion {
    /// One paragraph, in which every number is marked with its kind of evidence.
    pub paragraph: Prose,
    /// One line for terminals and for the summary.
    pub summary_line: String,
    /// One sentence for each result that contradicts its prediction.
    pub contradictions: Vec<String>,
    /// Figures for the first page of the report.
    pub headline_figures: Vec<Figure>,
}

/// All experiments.
pub const ALL: [&Experiment; 16] = [
    &staircase::EXPERIMENT,
    &certified::EXPERIMENT,
    &controls::EXPERIMENT,
    &recipe::EXPERIMENT,
    &capacity::EXPERIMENT,
    &placement::EXPERIMENT,
    &sparse::EXPERIMENT,
    &layers::EXPERIMENT,
    &ablation::EXPERIMENT,
    &gap::EXPERIMENT,
    &shift::EXPERIMENT,
    &variants::EXPERIMENT,
    &thoughts::EXPERIMENT,
    &tracking::EXPERIMENT,
    &zoo::EXPERIMENT,
    &length::EXPERIMENT,
];

impl Experiment {
    /// The runs of the experiment.
    ///
    /// # Errors
    /// The sweep file is malformed; a test checks that none is.
    pub fn sweep(&self, preset: Preset) -> Result<Sweep, RunError> {
        SweepConfig::read(self.sweep_text(preset))?.resolve()
    }

    /// The text of the sweep file.
    pub fn sweep_text(&self, preset: Preset) -> &'static str {
        match preset {
            Preset::Smoke => self.sweeps[0],
            Preset::Quick => self.sweeps[1],
            Preset::Full => self.sweeps[2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sweep_resolves_with_at_least_three_seeds_and_one_thread() {
        for experiment in ALL {
            for preset in [Preset::Smoke, Preset::Quick, Preset::Full] {
                let sweep =
                    experiment.sweep(preset).unwrap_or_else(|error| panic!("{} {preset:?}: {error}", experiment.name));
                let seeds: std::collections::BTreeSet<u64> = sweep.runs.iter().map(|run| run.config.seed).collect();
                assert!(preset == Preset::Smoke || seeds.len() >= 3, "{} {preset:?}", experiment.name);
                assert!(sweep.runs.iter().all(|run| run.config.train.threads == 1), "one run, one thread");
            }
        }
    }
}
