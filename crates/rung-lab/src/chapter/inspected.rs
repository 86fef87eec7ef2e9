//! "Inspected": the instruments on a construction, where the answer is known, and on a trained hybrid, where it is not.

use std::path::{Path, PathBuf};

use rung_nn::construct::{self, ConstructionRequest};
use rung_theory::task;

use super::ChapterOutput;
use crate::artefact::{Artefact, Drawing, Preset, figure_files};
use crate::store::EvidenceStore;
use rung_figure::Evidence;
use rung_figure::figure::Chart;
use rung_figure::report::{Chapter, Figure, Prose};
use rung_inspect::analysis::convert::{ConvertOptions, convert};
use rung_inspect::analysis::{
    AnalysisError, InstrumentOptions, ablate, collapse, diversity, injective, lens, precision, probe, state,
};
use rung_nn::Network;
use rung_nn::file::WriteError;
use rung_train::run::initial::initialize;
use rung_train::run::{RunConfig, RunError, RunRecord, Trainer};
use serde::{Deserialize, Serialize};

/// Hops of the construction.
const HOPS: usize = 3;

/// The run to look into: of those that know most hops, the one with the best answers at the largest number of them. A hybrid goes
/// before a stack of one kind.
pub fn choose(runs: &[(PathBuf, RunRecord)]) -> Option<&(PathBuf, RunRecord)> {
    let rank = |record: &RunRecord| {
        let known = record.accuracy.iter().filter(|(_, tally)| tally.mean() >= probe::RESOLVED);
        let last = known.map(|(hops, _)| *hops).max().unwrap_or(0);
        let share = record.accuracy.get(&last).map_or(0.0, rung_train::run::AnswerCount::mean);
        let hybrid = record.facts.full_layers > 0 && record.facts.state_bits.iter().any(|bits| *bits > 0);
        (last, hybrid, share)
    };
    let better = |a: &&(PathBuf, RunRecord), b: &&(PathBuf, RunRecord)| {
        let (left, right) = (rank(&a.1), rank(&b.1));
        (left.0, left.1).cmp(&(right.0, right.1)).then(left.2.total_cmp(&right.2)).then(b.0.cmp(&a.0))
    };
    runs.iter().max_by(better)
}

/// What probes read.
#[derive(Serialize, Deserialize)]
struct ProbeReading {
    /// Registers, each with the level after which it can be read: 0 for as embedded.
    registers: Vec<(String, Option<usize>)>,
    /// Bits of state up to the level of the first register, if no full layer stands before it.
    state_bits_before: Option<u64>,
    chart: Drawing,
}

/// The network that was inspected.
#[derive(Serialize, Deserialize)]
struct InspectedNetwork {
    name: String,
    task: String,
    /// Its directory below that of the report.
    directory: String,
}

/// Full layers that were replaced by recurrent ones.
#[derive(Serialize, Deserialize)]
struct ConvertedLayers {
    threshold: f64,
    replaced: usize,
    full_layers: usize,
    steps: usize,
    chart: Drawing,
}

/// An instrument, with the figures that it gives: name and caption.
type InstrumentFigures = (&'static str, &'static [(&'static str, &'static str)]);

const CONSTRUCTED: [InstrumentFigures; 1] =
    [("ablate", &[("ablate-u1", "U1 without one layer at a time: it needs all of them.")])];

const TRAINED: [InstrumentFigures; 7] = [
    ("ablate", &[("ablate-trained", "Right answers without some of its mixers: what each number of hops needs.")]),
    (
        "lens",
        &[
            (
                "lens-trained",
                "The score of one answer in parts, level by level, gates held still; parts and constants sum up to the score.",
            ),
            (
                "lens-map-trained",
                "The same for all tokens: how much of each token's last stream comes from every token as embedded.",
            ),
        ],
    ),
    (
        "precision",
        &[("precision-trained", "Right answers with the recurrent state rounded to few bits after every token.")],
    ),
    ("state", &[("state-trained", "How many directions the recurrent state uses while a prompt is read.")]),
    (
        "collapse",
        &[
            (
                "collapse-trained",
                "What is left of differences between tokens, layer by layer, with and without skips and channel mixers.",
            ),
            (
                "paths-trained",
                "Paths through the stack by the number of mixers they pass: how many there are, and how much they carry.",
            ),
        ],
    ),
    (
        "injective",
        &[("injective-trained", "How much of a query survives in the row of weights it gives, head by head.")],
    ),
    ("diversity", &[("diversity-trained", "How far apart the heads of each layer read.")]),
];

/// Computes the chapter's evidence, from a construction and from one of the trained runs.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &EvidenceStore, runs: &[(PathBuf, RunRecord)]) -> Result<(), WriteError> {
    compute_constructed(store)?;
    let Some((path, _)) = choose(runs) else { return Ok(()) };
    match (Network::<f32>::open(path), Network::<f64>::open(path)) {
        (Ok(single), Ok(double)) => compute_trained(store, path, (&single, &double)),
        (Err(error), _) | (_, Err(error)) => {
            store.write("inspected/trained", &Err::<InspectedNetwork, String>(error.to_string()))
        }
    }
}

fn compute_constructed(store: &EvidenceStore) -> Result<(), WriteError> {
    let request = ConstructionRequest { hops: HOPS, m: 4, n: vec![2; HOPS - 1], ..ConstructionRequest::default() };
    let build = || -> Result<(Network<f32>, Network<f64>), String> {
        let single = construct::build::<f32>("U1", &request).map_err(|error| error.to_string())?;
        let double = construct::build::<f64>("U1", &request).map_err(|error| error.to_string())?;
        Ok((single, double))
    };
    let (probed, networks) = match build() {
        Ok((single, double)) => (read_probe(&single), Ok((single, double))),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    store.write("inspected/u1-probe", &probed)?;
    for (instrument, _) in CONSTRUCTED {
        let read = networks.as_ref().map_err(Clone::clone);
        let read = read.and_then(|(single, double)| inspect(instrument, single, double));
        store.write(&format!("inspected/u1-{instrument}"), &read)?;
    }
    Ok(())
}

fn compute_trained(
    store: &EvidenceStore,
    path: &Path,
    (single, double): (&Network<f32>, &Network<f64>),
) -> Result<(), WriteError> {
    let directory = path.file_name().map_or_else(String::new, |name| format!("runs/{}", name.to_string_lossy()));
    let network = InspectedNetwork {
        name: single.name.clone(),
        task: single.task.as_ref().map_or_else(String::new, |task| task.spec()),
        directory,
    };
    store.write("inspected/trained", &Ok::<_, String>(network))?;
    store.write("inspected/trained-probe", &read_probe(single))?;
    for (instrument, _) in TRAINED {
        store.write(&format!("inspected/trained-{instrument}"), &inspect(instrument, single, double))?;
    }
    store.write("inspected/trained-convert", &convert_layers(store.preset(), single))?;
    store.write("inspected/repulsion", &compare_repulsion(store.preset()))
}

/// The charts of one instrument.
fn inspect(instrument: &str, single: &Network<f32>, double: &Network<f64>) -> Result<Vec<Drawing>, String> {
    let options = InstrumentOptions::default();
    let one = |chart: &dyn Chart| vec![Drawing::of(chart)];
    let charts = match instrument {
        "ablate" => ablate::ablate(single, &options).map(|found| one(&found.chart())),
        "precision" => precision::sweep(single, &options).map(|found| one(&found.chart())),
        "state" => state::states(single, &options).map(|found| one(&found.chart())),
        "injective" => injective::injectivity(double, &options).map(|found| one(&found.rank_chart())),
        "diversity" => diversity::diversity(single, &options).map(|found| {
            one(&diversity::Diversity::sheet(&found.name).series(found.series("mean over pairs of heads")))
        }),
        "lens" => lens::lens(double, &options).map(|found| {
            let map = found.map_chart().map(|chart| Drawing::of(&chart));
            [Drawing::of(&found.chart())].into_iter().chain(map).collect()
        }),
        _ => collapse::collapse(double, &options).map(|found| {
            let paths = found.path_chart().map(|chart| Drawing::of(&chart));
            [Drawing::of(&found.chart())].into_iter().chain(paths).collect()
        }),
    };
    charts.map_err(|error| error.to_string())
}

fn read_probe(network: &Network<f32>) -> Result<ProbeReading, String> {
    let found = probe::probe(network, &InstrumentOptions::default()).map_err(|error| error.to_string())?;
    Ok(ProbeReading {
        registers: found.registers.iter().map(|register| (register.name.clone(), register.resolved)).collect(),
        state_bits_before: state_bits_before(&found, network),
        chart: Drawing::of(&found.chart()),
    })
}

/// Bits of state up to the level at which the first number is known, if that is before any full layer.
fn state_bits_before(found: &probe::Probes, network: &Network<f32>) -> Option<u64> {
    let level = found.registers.first().filter(|register| register.name == "i_1")?.resolved?;
    let layers = &network.plan.layers[..level];
    let bits: u128 = layers.iter().map(rung_theory::stack::Layer::state_bits).sum();
    (level > 0 && layers.iter().all(|layer| !layer.is_full())).then_some(bits as u64)
}

/// Draws the chapter from its records.
pub fn render(store: &EvidenceStore) -> ChapterOutput {
    let mut page = Page { chapter: Chapter::new("inspected", "Inspected"), artefacts: Vec::new() };
    page.chapter.paragraph(
        "Instruments look into a forward pass and say what happens there. Each was first pointed at a construction, where what happens \
         is known because somebody wrote the weights, and then at a network that was trained. What they find is measured: a network may \
         do more than a probe can read.",
    );
    let mut findings = Vec::new();
    render_constructed(&mut page, &mut findings, store);
    render_trained(&mut page, &mut findings, store);
    let Page { chapter, artefacts } = page;
    let summary =
        if findings.is_empty() { "nothing was inspected.".to_owned() } else { format!("{}.", findings.join("; ")) };
    ChapterOutput { chapter, summary, artefacts }
}

/// A chapter that is being written, with its files.
struct Page {
    chapter: Chapter,
    artefacts: Vec<Artefact>,
}

impl Page {
    fn figure(&mut self, name: &str, chart: &dyn Chart, caption: &str, command: &str) {
        self.artefacts.extend(figure_files(name, chart));
        self.chapter.figure(Figure::new(chart, caption, command, format!("{name}.csv")));
    }

    /// The figures of one instrument; those that a network has no use for are missing at the end of the list.
    fn instrument(&mut self, store: &EvidenceStore, key: &str, figures: &[(&str, &str)], command: &str) {
        let Some(charts) = store.read_outcome::<Vec<Drawing>>(key, &mut self.chapter) else { return };
        for (chart, (name, caption)) in charts.iter().zip(figures) {
            self.figure(name, chart, caption, command);
        }
    }
}

/// "i_1 after layer 1, i_2 after layer 2".
fn list_registers(found: &ProbeReading) -> String {
    let one = |(name, resolved): &(String, Option<usize>)| match resolved {
        Some(0) => format!("{name} as embedded"),
        Some(level) => format!("{name} after layer {}", level - 1),
        None => format!("{name} nowhere"),
    };
    found.registers.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn render_constructed(page: &mut Page, findings: &mut Vec<String>, store: &EvidenceStore) {
    let build = "rung construct U1 --hops 3 --m 4 --n 2,2 --out u1";
    page.chapter.heading("A construction, where the answer is known");
    if let Some(found) = store.read_outcome::<ProbeReading>("inspected/u1-probe", &mut page.chapter) {
        let right = found.registers.iter().enumerate().all(|(at, (_, resolved))| *resolved == Some(at + 2));
        let verdict = if right { "as its weights say" } else { "which is not what its weights say" };
        let registers = list_registers(&found);
        page.chapter.paragraph(
            Prose::new()
                .text("Construction U1 reads the start in its first layer and looks up one table in each further one. Probes find ")
                .number(registers.clone(), Evidence::Measured)
                .text(format!(", {verdict}.")),
        );
        findings.push(format!("in U1, {registers}, {verdict}"));
        let caption = "Which layer climbs which rung, in a construction: a staircase, one number per full layer.";
        page.figure("probe-u1", &found.chart, caption, &format!("{build}; rung analyze probe u1 --svg probe.svg"));
    }
    for (instrument, figures) in CONSTRUCTED {
        let command = format!("{build}; rung analyze {instrument} u1 --svg {instrument}.svg");
        page.instrument(store, &format!("inspected/u1-{instrument}"), figures, &command);
    }
}

fn render_trained(page: &mut Page, findings: &mut Vec<String>, store: &EvidenceStore) {
    page.chapter.heading("A trained network, where it is not");
    let Some(network) = store.read_outcome::<InspectedNetwork>("inspected/trained", &mut page.chapter) else {
        page.chapter.note("A trained run is needed; `rung reproduce` with the chapter \"Measured\" makes some.");
        return;
    };
    let InspectedNetwork { name, task, directory } = network;
    let command = |instrument: &str| format!("rung analyze {instrument} {directory} --svg {instrument}.svg");
    let about = Prose::new().text("The network is ").code(name.clone()).text(", trained on ").code(task).text(".");
    page.chapter.paragraph(about);
    if let Some(found) = store.read_outcome::<ProbeReading>("inspected/trained-probe", &mut page.chapter) {
        let registers = list_registers(&found);
        page.chapter.paragraph(
            Prose::new()
                .text("Probes find ")
                .number(registers.clone(), Evidence::Measured)
                .text(" at the token that answers."),
        );
        if let Some(bits) = found.state_bits_before {
            page.chapter.paragraph(format!(
                "The first number is there before any full layer has been passed: the state holds the first table and looks it up \
                 itself. It has room for that, with {bits} bits up to there. The bounds speak of tables larger than the state, where \
                 this way is closed."
            ));
        }
        findings.push(format!("in a trained {name}, {registers}"));
        page.figure("probe-trained", &found.chart, "Which layer climbs which rung, after training.", &command("probe"));
    }
    for (instrument, figures) in TRAINED {
        page.instrument(store, &format!("inspected/trained-{instrument}"), figures, &command(instrument));
    }
    render_converted(page, findings, store, &directory);
    if let Some(chart) = store.read_outcome::<Drawing>("inspected/repulsion", &mut page.chapter) {
        page.chapter.heading("Heads that repel each other");
        let caption = "How far apart four heads of each layer read: as drawn, and after training with and without repulsion between them, \
                       from the same weights on the same prompts. One seed: an illustration, not a finding.";
        page.figure("repulsion", &chart, caption, &format!("rung train {REPELLED}; rung analyze diversity DIR"));
    }
}

/// What the two trainings of [`compare_repulsion`] have in common.
const REPELLED: &str = "--stack \"gdn full\" --task 'funccomp{hops=1,m=8,queries=16}' --set model.heads=4 --set model.head=8 \
                        --set train.repulsion.strength=1";

/// Heads of a small network as drawn, and after training without and with repulsion.
fn train_with_repulsion(preset: Preset) -> Result<Vec<(&'static str, diversity::Diversity)>, AnalysisError> {
    let steps = match preset {
        Preset::Smoke => 3,
        Preset::Quick => 300,
        Preset::Full => 3000,
    };
    let base = RunConfig::new("gdn full", "funccomp{hops=1,m=8,queries=16}")
        .with("model.heads=4")?
        .with("model.head=8")?
        .with("evaluate.stop_at=2")?
        .with(&format!("train.steps={steps}"))?;
    let mut found = Vec::new();
    for (name, setting, trains) in [
        ("as drawn", "train.steps=1", false),
        ("trained", &*format!("train.steps={steps}"), true),
        ("trained with repulsion", "train.repulsion.strength=1", true),
    ] {
        let run = base.with(setting)?.resolve()?;
        let mut trainer = Trainer::new(&run)?;
        while trains && trainer.progress().stop_reason.is_none() {
            trainer.step()?;
        }
        let (model, _) = initialize(&run)?;
        let task = task::parse(&run.config.task).map_err(|error| RunError::task("task", error))?;
        let (plan, config) = (run.plan.clone(), run.model.clone());
        let network = Network::new(plan.outline(), task, plan, config, model, trainer.weights().clone());
        found.push((name, diversity::diversity(&network, &InstrumentOptions::default())?));
    }
    Ok(found)
}

fn compare_repulsion(preset: Preset) -> Result<Drawing, String> {
    let found = train_with_repulsion(preset).map_err(|error| error.to_string())?;
    let mut chart = diversity::Diversity::sheet("training with and without repulsion");
    for (name, one) in &found {
        chart = chart.series(one.series(name));
    }
    Ok(Drawing::of(&chart))
}

fn convert_layers(preset: Preset, network: &Network<f32>) -> Result<ConvertedLayers, String> {
    let steps = match preset {
        Preset::Smoke => 5,
        Preset::Quick => 150,
        Preset::Full => 1000,
    };
    let options = ConvertOptions { steps, ..ConvertOptions::default() };
    let (found, _) = convert(network, &options, &|| {}).map_err(|error| error.to_string())?;
    Ok(ConvertedLayers {
        threshold: found.threshold,
        replaced: found.most_linear.len(),
        full_layers: found.layers.len(),
        steps,
        chart: Drawing::of(&found.chart()),
    })
}

fn render_converted(page: &mut Page, findings: &mut Vec<String>, store: &EvidenceStore, directory: &str) {
    let Some(found) = store.read_outcome::<ConvertedLayers>("inspected/trained-convert", &mut page.chapter) else {
        return;
    };
    page.chapter.heading("Full layers made linear");
    let count = format!("{} of {}", found.replaced, found.full_layers);
    page.chapter.paragraph(
        Prose::new()
            .text("Each full layer was distilled into a gated delta rule on its own inputs and outputs, and then replaced. Above ")
            .number(format!("{:.0}%", 100.0 * found.threshold), Evidence::Measured)
            .text(" right answers, greedy replacement reaches ")
            .number(count.clone(), Evidence::Measured)
            .text(" layers. Nothing was trained after a replacement."),
    );
    findings.push(format!("{count} of its full layers can be replaced by imitations"));
    let caption =
        "Right answers as more full layers are replaced, in five orders. The order by rungs looks at the layout alone.";
    let command = format!("rung convert {directory} --to gdn --steps {} --svg convert.svg", found.steps);
    page.figure("convert", &found.chart, caption, &command);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_u1_the_chapter_gives_the_known_answer() {
        let out = std::env::temp_dir().join(format!("rung-inspected-{}", std::process::id()));
        let store = EvidenceStore::new(&out, Preset::Smoke);
        compute(&store, &[]).unwrap();
        let output = render(&store);
        std::fs::remove_dir_all(&out).unwrap();
        let summary = &output.summary;
        assert!(
            summary.contains("i_1 after layer 1, i_2 after layer 2, i_3 after layer 3, as its weights say"),
            "{summary}"
        );
        for name in ["probe-u1", "ablate-u1"] {
            assert!(output.artefacts.iter().any(|file| file.path == format!("figures/{name}.svg")), "{name}");
        }
        let blocks = format!("{:?}", output.chapter.blocks);
        assert!(blocks.contains("inspected/trained: not run"), "{blocks}");
    }
}
