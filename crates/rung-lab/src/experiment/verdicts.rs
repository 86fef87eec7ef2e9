//! What the theory says about the stacks of an experiment, at the sizes of their runs.
//!
//! The search for a certificate takes longer than drawing, so it is not part of a report: [`compute`] runs it after training, and the
//! result is the record `measured/EXPERIMENT-verdicts`. Reports read that record.

use rung_figure::report::Chapter;
use rung_nn::file::WriteError;
use rung_train::run::RunRecord;
use serde::{Deserialize, Serialize};

use super::seed_runs::SeedRuns;
use super::{Experiment, ReportChapter};
use crate::store::RecordStore;

/// A verdict about the stack of some runs on questions of so many hops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackVerdict {
    /// Ids of the runs of this stack and task.
    pub runs: Vec<String>,
    /// Hops of the questions; 0 if the task is not function composition.
    pub hops: usize,
    /// `solved`, `impossible` or `unknown`.
    pub name: String,
    /// The reason in words.
    pub reason: String,
    /// If no weights answer every prompt: the command that checks the proof.
    pub check: Option<String>,
    /// The certificate, if the proof is a file.
    pub certificate: Option<CertificateFile>,
}

/// A certificate that is written beside the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFile {
    /// Path below the output directory.
    pub path: String,
    /// The contents.
    pub text: String,
}

impl StackVerdict {
    /// A verdict without a proof to check.
    pub fn new(runs: &SeedRuns<'_>, hops: usize, name: impl Into<String>, reason: impl Into<String>) -> Self {
        let runs = runs.records.iter().map(|record| record.id.clone()).collect();
        Self { runs, hops, name: name.into(), reason: reason.into(), check: None, certificate: None }
    }

    /// The verdict about the stack of these runs.
    pub fn find<'a>(verdicts: &'a [Self], runs: &SeedRuns<'_>, hops: usize) -> Option<&'a Self> {
        verdicts.iter().find(|verdict| verdict.hops == hops && verdict.runs.contains(&runs.first().id))
    }
}

fn key(experiment: &Experiment) -> String {
    let chapter = match experiment.chapter {
        ReportChapter::Measured => "measured",
        ReportChapter::OpenQuestions => "open",
    };
    format!("{chapter}/{}-verdicts", experiment.name)
}

/// Computes and records the verdicts that the report of an experiment needs, if it needs any.
///
/// # Errors
/// The record cannot be written.
pub fn compute(store: &RecordStore, experiment: &Experiment, records: &[RunRecord]) -> Result<(), WriteError> {
    let Some(stack_verdicts) = experiment.stack_verdicts else { return Ok(()) };
    store.write(&key(experiment), &stack_verdicts(records))
}

/// Reads the verdicts of an experiment; a note in the chapter says so if they were not computed.
pub(crate) fn read(store: &RecordStore, experiment: &Experiment, chapter: &mut Chapter) -> Vec<StackVerdict> {
    if experiment.stack_verdicts.is_none() {
        return Vec::new();
    }
    store.read_or_note(&key(experiment), chapter).unwrap_or_default()
}
