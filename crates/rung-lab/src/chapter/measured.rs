//! The chapters "Measured" and "Open questions": results of training, experiment by experiment, from the records of the runs alone.

use std::collections::BTreeMap;

use super::ChapterOutput;
use crate::artefact::{Artefact, Preset};
use crate::experiment::{Conclusion, Experiment, ExperimentOutput, ReportChapter, verdicts};
use crate::store::RecordStore;
use rung_figure::report::{Chapter, Prose};
use rung_train::run::RunRecord;
use rung_train::run::record::SCHEMA;

/// An experiment with the records of its runs.
pub struct ExperimentRecords {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Records of its runs, in the order of its sweep.
    pub records: Vec<RunRecord>,
    /// A sentence for each run without a record, with the reason: interrupted or failed.
    pub missing: Vec<String>,
    /// What else the reader has to know about the records: which other versions wrote them, and which could not be read.
    pub notes: Vec<String>,
}

/// A sentence for each other version of the program, or schema, that wrote some of the records.
fn version_notes(records: &[RunRecord]) -> Vec<String> {
    let current = (env!("CARGO_PKG_VERSION"), SCHEMA);
    let mut run_counts: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    for record in records {
        *run_counts.entry((record.program.version.as_str(), record.schema)).or_default() += 1;
    }
    run_counts.remove(&current);
    let sentence = |((version, schema), run_count): ((&str, u32), usize)| {
        let version = if version.is_empty() { "unknown" } else { version };
        format!(
            "{run_count} of {} runs: recorded by version {version} with schema {schema}; this is version {} with schema {SCHEMA}.",
            records.len(),
            current.0
        )
    };
    run_counts.into_iter().map(sentence).collect()
}

/// Writes a chapter from the records of its experiments, and returns the conclusion of each.
pub fn render(
    report_chapter: ReportChapter,
    store: &RecordStore,
    experiments: &[&ExperimentRecords],
) -> (ChapterOutput, Vec<Conclusion>) {
    let preset = store.preset();
    let mut chapter = match report_chapter {
        ReportChapter::Measured => Chapter::new("measured", "Measured"),
        ReportChapter::OpenQuestions => Chapter::new("open", "Open questions"),
    };
    let mut artefacts = Vec::new();
    render_introduction(report_chapter, &mut chapter, preset);
    let mut conclusions = Vec::new();
    for ExperimentRecords { experiment, records, missing, notes } in experiments {
        chapter.heading(experiment.title);
        let command = format!("rung reproduce --preset {} --only {}", preset.name(), experiment.name);
        let first_block = chapter.blocks.len();
        let conclusion = if records.is_empty() {
            Conclusion::default()
        } else {
            let verdicts = verdicts::read(store, experiment, &mut chapter);
            let mut page = ExperimentOutput { chapter: &mut chapter, artefacts: &mut artefacts, command, verdicts };
            (experiment.render)(records, &mut page)
        };
        let conclusion = if preset == Preset::Smoke { without_comparison(conclusion) } else { conclusion };
        // The conclusion comes before its figures.
        let mut figures = chapter.blocks.split_off(first_block);
        chapter.paragraph(conclusion.paragraph.clone());
        chapter.blocks.append(&mut figures);
        for note in conclusion.contradictions.iter().chain(missing).chain(notes).chain(&version_notes(records)) {
            chapter.note(Prose::from(note.as_str()));
        }
        let path = format!("sweeps/{}-{}.toml", experiment.name, preset.name());
        let sweep_text = experiment.sweep_text(preset);
        chapter.paragraph(Prose::new().text("The runs, as ").code(format!("rung sweep {path}")).text(" takes them:"));
        chapter.command(sweep_text.trim_end());
        artefacts.push(Artefact { path, bytes: sweep_text.as_bytes().to_vec() });
        let lines: String = records.iter().map(RunRecord::to_json_line).collect();
        artefacts.push(Artefact { path: format!("records/{}.jsonl", experiment.name), bytes: lines.into_bytes() });
        conclusions.push(conclusion);
    }
    let runs: usize = experiments.iter().map(|experiment| experiment.records.len()).sum();
    let contradictions: usize = conclusions.iter().map(|conclusion| conclusion.contradictions.len()).sum();
    let missing: usize = experiments.iter().map(|experiment| experiment.missing.len()).sum();
    let mut summary = format!("{runs} training runs; {contradictions} results against the prediction");
    if missing > 0 {
        summary = format!("{summary}; {missing} runs missing");
    }
    let output = ChapterOutput { chapter, summary: format!("{summary}."), artefacts };
    (output, conclusions)
}

/// Removes the comparison with predictions from a conclusion: a few training steps neither confirm nor refute anything.
fn without_comparison(conclusion: Conclusion) -> Conclusion {
    let paragraph = Prose::from(
        "Runs of a few steps are not compared with predictions. The figures only show that the pipeline works.",
    );
    Conclusion {
        paragraph,
        summary_line: "not compared: only a few steps".to_owned(),
        contradictions: Vec::new(),
        ..conclusion
    }
}

fn render_introduction(report_chapter: ReportChapter, chapter: &mut Chapter, preset: Preset) {
    match report_chapter {
        ReportChapter::Measured => explain_recipe(chapter),
        ReportChapter::OpenQuestions => {
            chapter.paragraph(
                "Questions that the literature about the hierarchy raises and does not answer, measured on small models with the same recipe. \
                 Where the theory makes a prediction, it is given before the result, and deviations are listed. Where it makes none, only \
                 the numbers are given. Learned means at least 99% right, on average over seeds.",
            );
        }
    }
    if preset == Preset::Smoke {
        chapter.note(
            "This is the smoke preset: runs of a few steps that show that everything works. Nothing below is evidence; the quick \
             preset has those.",
        );
    }
}

fn explain_recipe(chapter: &mut Chapter) {
    chapter.paragraph(
        "Whether weights exist is one question; whether training finds them is another. Here small models are trained on function composition \
         from random weights, several seeds each, and tested on questions of every number of hops. A proof is about all weights, so no run \
         can contradict it; a construction shows that weights exist, which training may not find, and the text says where it does not.",
    );
    chapter.paragraph(
        "The recipe matters. Many queries are about the same tables; the number of hops is drawn for each query and encoded in it; \
         arguments and values share one embedding table, arguments with the opposite sign of values, and the answer is read out by \
         the embeddings of values. Each full layer starts as a noisy look-up: keys are the negatives of queries and outputs the \
         transposes of values, so that a token attends to the entry whose argument it holds and holds its value afterwards. An auxiliary \
         loss after each layer has the intermediate answer that the stack can compute by then as its target. There are no positions, and no curriculum.",
    );
}
