//! Experiments: named sweeps that ship with the program, and how their records are read.
//!
//! Each experiment is one file here and three sweeps beside it, `NAME-smoke.toml`, `NAME-quick.toml` and `NAME-full.toml`. It has a
//! question, runs that could answer it either way, and a reader that turns records into figures and one paragraph. The paragraph is
//! written from the data: what agrees with the prediction is said to agree, what does not is listed.
//!
//! | experiment | question |
//! |---|---|
//! | [`staircase`] | does a stack make as many hops as it has full layers, and not one more? |
//! | [`controls`] | is a stack that fails one hop well trained, and would anything but a full layer help? |
//! | [`certified`] | does training fail where a proof says so, at the very same size? |
//! | [`recipe`] | which ingredients of the recipe does training need? |
//! | [`capacity`] | how much of a table can a bounded state hold, against what its bits allow? |
//! | [`placement`] | does it matter where the layer with state stands? |
//! | [`sparse`] | how long must the summaries of block-sparse attention be? |
//! | [`layers`] | do more sparse layers make up for short summaries? |
//! | [`ablation`] | is it the structure of a state that counts, or its bits? |
//! | [`gap`] | do many linear layers stand in for a full one? |
//! | [`shift`] | is it the walk that was learned, or the tables? |
//! | [`variants`] | does any pattern beat its rungs? |
//! | [`thoughts`] | how many steps must be written down? |
//! | [`tracking`] | where do recurrences and hybrids win? |
//! | [`zoo`] | does every bounded-state mixer have the rungs that its layout has? |
//! | [`length`] | do hops hold on tables larger than in training? |
//!
//! The first six are the chapter "Measured" and part of the main job; the others are the chapter "Open questions" and run in the full
//! preset, or when they are asked for.
//!
//! # Which learning rate
//!
//! Where a sweep has a grid of rates, each stack and task is shown at one of them: the rate with the best mean accuracy over seeds at
//! the largest number of hops; among equals the lower mean loss, then the smaller rate. The rule favours every stack equally,
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
pub mod shift;
pub mod sparse;
pub mod staircase;
pub mod table;
pub mod thoughts;
pub mod tracking;
pub mod variants;
pub mod zoo;

use crate::artefact::{Artefact, Preset};
use rung_figure::report::{Chapter, Figure, Prose};
use rung_train::run::{RunError, RunRecord};
use rung_train::sweep::{Sweep, SweepConfig};

/// Where an experiment stands in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportChapter {
    /// The hierarchy itself: part of the main job.
    Measured,
    /// What the literature left open.
    Open,
}

/// An experiment.
pub struct Experiment {
    /// What users type.
    pub name: &'static str,
    /// Its heading in the report.
    pub title: &'static str,
    /// Its chapter.
    pub chapter: ReportChapter,
    /// The sweeps, smallest first: smoke, quick, full.
    pub sweeps: [&'static str; 3],
    /// Turns records into figures, tables and a conclusion.
    pub render: fn(&[RunRecord], &mut ExperimentOutput<'_>) -> Conclusion,
}

/// Where an experiment adds its figures, tables and files.
pub struct ExperimentOutput<'a> {
    /// The chapter.
    pub chapter: &'a mut Chapter,
    /// The files behind it.
    pub artefacts: &'a mut Vec<Artefact>,
    /// The command that makes it again.
    pub command: String,
}

/// What an experiment concludes from its records.
#[derive(Clone, Debug, Default)]
pub struct Conclusion {
    /// One paragraph, with its numbers tagged.
    pub paragraph: Prose,
    /// One line for terminals and for the summary.
    pub line: String,
    /// What contradicts the prediction, a sentence each.
    pub contradictions: Vec<String>,
    /// Figures that stand on the first page of the report.
    pub headline: Vec<Figure>,
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
    /// Its runs.
    ///
    /// # Errors
    /// The text that ships with the program is wrong; a test makes sure that it is not.
    pub fn sweep(&self, preset: Preset) -> Result<Sweep, RunError> {
        SweepConfig::read(self.text(preset))?.resolve()
    }

    /// Its runs as text.
    pub fn text(&self, preset: Preset) -> &'static str {
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
    fn every_sweep_resolves_and_has_seeds() {
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
