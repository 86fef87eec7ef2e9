//! The chapter "Inspected": interpretability analyses of a construction, whose mechanism is known, and of a trained network, whose
//! mechanism is not.

use std::path::{Path, PathBuf};

use rung_nn::construct::{self, ConstructionRequest};
use rung_theory::task;

use super::ChapterOutput;
use crate::artefact::{Artefact, Drawing, Preset, add_figure};
use crate::store::RecordStore;
use rung_figure::Evidence;
use rung_figure::figure::Chart;
use rung_figure::report::{Chapter, Prose};
use rung_inspect::analysis::convert::{ConvertOptions, convert};
use rung_inspect::analysis::{
    AnalysisError, AnalysisOptions, ablate, collapse, diversity, injective, lens, precision, probe, state,
};
use rung_nn::Network;
use rung_nn::file::WriteError;
use rung_train::run::initial::initialize;
use rung_train::run::{RunConfig, RunError, RunRecord, Trainer};
use serde::{Deserialize, Serialize};

/// Number of hops of the inspected construction.
const HOPS: usize = 3;

/// The run to inspect. Runs are ranked by the largest number of hops that they learned, then hybrids before stacks of one kind of layer,
/// then by accuracy at that number of hops.
pub fn best_run(runs: &[(PathBuf, RunRecord)]) -> Option<&(PathBuf, RunRecord)> {
    let rank = |record: &RunRecord| {
        let learned = record.accuracy.iter().filter(|(_, answers)| answers.accuracy() >= probe::DECODABLE_ACCURACY);
        let max_hops = learned.map(|(hops, _)| *hops).max().unwrap_or(0);
        let accuracy = record.accuracy.get(&max_hops).map_or(0.0, rung_train::run::AnswerCount::accuracy);
        let is_hybrid = record.facts.full_layers > 0 && record.facts.state_bits.iter().any(|bits| *bits > 0);
        (max_hops, is_hybrid, accuracy)
    };
    let compare = |a: &&(PathBuf, RunRecord), b: &&(PathBuf, RunRecord)| {
        let (left, right) = (rank(&a.1), rank(&b.1));
        (left.0, left.1).cmp(&(right.0, right.1)).then(left.2.total_cmp(&right.2)).then(b.0.cmp(&a.0))
    };
    runs.iter().max_by(compare)
}

/// Result of the probes on one network.
#[derive(Serialize, Deserialize)]
struct ProbeResult {
    /// Names of intermediate results, each with the level of the residual stream from which on a probe can read it: 0 is the embedding.
    #[serde(rename = "registers")]
    intermediate_answers: Vec<(String, Option<usize>)>,
    /// Bits of recurrent state up to the level of the first intermediate answer, if no full layer precedes it.
    state_bits_before: Option<u64>,
    chart: Drawing,
}

/// The trained network that is inspected.
#[derive(Serialize, Deserialize)]
struct InspectedNetwork {
    name: String,
    task: String,
    /// Its directory, relative to the report.
    directory: String,
}

/// Result of replacing full-attention layers by distilled recurrent layers.
#[derive(Serialize, Deserialize)]
struct ConversionResult {
    /// Minimum accuracy after a replacement.
    threshold: f64,
    /// Number of layers that were replaced.
    #[serde(rename = "replaced")]
    replaced_layers: usize,
    full_layers: usize,
    /// Distillation steps per layer.
    steps: usize,
    chart: Drawing,
}

/// The name of an analysis, and name and caption of each of its figures.
type AnalysisFigures = (&'static str, &'static [(&'static str, &'static str)]);

/// Analyses of the construction.
const CONSTRUCTION_FIGURES: [AnalysisFigures; 1] =
    [("ablate", &[("ablate-u1", "U1 without one layer at a time: it needs all of them.")])];

/// Analyses of the trained network.
const TRAINED_FIGURES: [AnalysisFigures; 7] = [
    ("ablate", &[("ablate-trained", "Accuracy without some of its mixers: mixers that each number of hops needs.")]),
    (
        "lens",
        &[
            (
                "lens-trained",
                "Contributions to the logit of one answer, level by level, with frozen gates; with the constants they sum up to the logit.",
            ),
            (
                "lens-map-trained",
                "The same for all tokens: how much of each token's last residual stream comes from the embedding of every token.",
            ),
        ],
    ),
    ("precision", &[("precision-trained", "Accuracy with the recurrent state rounded to few bits after every token.")]),
    ("state", &[("state-trained", "Effective rank of the recurrent state while a prompt is read.")]),
    (
        "collapse",
        &[
            (
                "collapse-trained",
                "What is left of differences between tokens, layer by layer, with and without skips and feed-forward networks.",
            ),
            (
                "paths-trained",
                "Paths through the stack by the number of mixers they go through: how many there are, and the size of their sum.",
            ),
        ],
    ),
    (
        "injective",
        &[(
            "injective-trained",
            "The share of a query's dimensions that its attention weights depend on, head by head.",
        )],
    ),
    ("diversity", &[("diversity-trained", "Distances between the attention of the heads of each layer.")]),
];

/// Computes the chapter's records, from a construction and from one of the trained runs. If these cannot be read, the chapter says why.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &RecordStore, runs: Result<Vec<(PathBuf, RunRecord)>, RunError>) -> Result<(), WriteError> {
    compute_constructed(store)?;
    let runs = match runs {
        Ok(runs) => runs,
        Err(error) => return store.write("inspected/trained", &Err::<InspectedNetwork, String>(error.to_string())),
    };
    let Some((path, _)) = best_run(&runs) else { return Ok(()) };
    match (Network::<f32>::open(path), Network::<f64>::open(path)) {
        (Ok(network_f32), Ok(network_f64)) => compute_trained(store, path, (&network_f32, &network_f64)),
        (Err(error), _) | (_, Err(error)) => {
            store.write("inspected/trained", &Err::<InspectedNetwork, String>(error.to_string()))
        }
    }
}

fn compute_constructed(store: &RecordStore) -> Result<(), WriteError> {
    let request = ConstructionRequest {
        hops: HOPS,
        first_table_entries: 4,
        growth_factors: vec![2; HOPS - 1],
        ..ConstructionRequest::default()
    };
    let build = || -> Result<(Network<f32>, Network<f64>), String> {
        let network_f32 = construct::build::<f32>("U1", &request).map_err(|error| error.to_string())?;
        let network_f64 = construct::build::<f64>("U1", &request).map_err(|error| error.to_string())?;
        Ok((network_f32, network_f64))
    };
    let networks = build();
    let probe_result =
        networks.as_ref().map_err(Clone::clone).and_then(|(network, _)| probe_intermediate_answers(network));
    store.write("inspected/u1-probe", &probe_result)?;
    for (analysis, _) in CONSTRUCTION_FIGURES {
        let networks = networks.as_ref().map_err(Clone::clone);
        let charts = networks.and_then(|(network_f32, network_f64)| inspect(analysis, network_f32, network_f64));
        store.write(&format!("inspected/u1-{analysis}"), &charts)?;
    }
    Ok(())
}

fn compute_trained(
    store: &RecordStore,
    path: &Path,
    (network_f32, network_f64): (&Network<f32>, &Network<f64>),
) -> Result<(), WriteError> {
    let directory = path.file_name().map_or_else(String::new, |name| format!("runs/{}", name.to_string_lossy()));
    let network = InspectedNetwork {
        name: network_f32.name.clone(),
        task: network_f32.task.as_ref().map_or_else(String::new, |task| task.spec()),
        directory,
    };
    store.write("inspected/trained", &Ok::<_, String>(network))?;
    store.write("inspected/trained-probe", &probe_intermediate_answers(network_f32))?;
    for (analysis, _) in TRAINED_FIGURES {
        store.write(&format!("inspected/trained-{analysis}"), &inspect(analysis, network_f32, network_f64))?;
    }
    store.write("inspected/trained-convert", &convert_layers(store.preset(), network_f32))?;
    store.write("inspected/repulsion", &compare_repulsion(store.preset()))
}

/// The charts of one analysis.
fn inspect(analysis: &str, network_f32: &Network<f32>, network_f64: &Network<f64>) -> Result<Vec<Drawing>, String> {
    let options = AnalysisOptions::default();
    let single_chart = |chart: &dyn Chart| vec![Drawing::new(chart)];
    let charts = match analysis {
        "ablate" => ablate::ablate(network_f32, &options).map(|result| single_chart(&result.chart())),
        "precision" => precision::sweep_precision(network_f32, &options).map(|result| single_chart(&result.chart())),
        "state" => state::measure_states(network_f32, &options).map(|result| single_chart(&result.chart())),
        "injective" => injective::injectivity(network_f64, &options).map(|result| single_chart(&result.rank_chart())),
        "diversity" => diversity::diversity(network_f32, &options).map(|result| {
            single_chart(
                &diversity::Diversity::empty_chart(&result.name).series(result.series("mean over pairs of heads")),
            )
        }),
        "lens" => lens::lens(network_f64, &options).map(|result| {
            let map = result.map_chart().map(|chart| Drawing::new(&chart));
            [Drawing::new(&result.chart())].into_iter().chain(map).collect()
        }),
        _ => collapse::collapse(network_f64, &options).map(|result| {
            let paths = result.path_chart().map(|chart| Drawing::new(&chart));
            [Drawing::new(&result.chart())].into_iter().chain(paths).collect()
        }),
    };
    charts.map_err(|error| error.to_string())
}

/// Trains probes on a network and reports where each intermediate answer can be decoded.
fn probe_intermediate_answers(network: &Network<f32>) -> Result<ProbeResult, String> {
    let probes = probe::probe(network, &AnalysisOptions::default()).map_err(|error| error.to_string())?;
    Ok(ProbeResult {
        intermediate_answers: probes
            .intermediate_answers
            .iter()
            .map(|answer| (answer.name.clone(), answer.first_decodable_level))
            .collect(),
        state_bits_before: state_bits_before(&probes, network),
        chart: Drawing::new(&probes.chart()),
    })
}

/// Bits of recurrent state up to the level at which the first intermediate answer can be decoded, if that is before any full layer.
fn state_bits_before(probes: &probe::Probes, network: &Network<f32>) -> Option<u64> {
    let level = probes.intermediate_answers.first().filter(|answer| answer.name == "i_1")?.first_decodable_level?;
    let layers = &network.plan.layers[..level];
    let bits: u128 = layers.iter().map(rung_theory::stack::Layer::state_bits).sum();
    (level > 0 && layers.iter().all(|layer| !layer.is_full())).then_some(bits as u64)
}

/// Writes the chapter from its records.
pub fn render(store: &RecordStore) -> ChapterOutput {
    let mut page = Page { chapter: Chapter::new("inspected", "Inspected"), artefacts: Vec::new() };
    page.chapter.paragraph(
        "Analyses measure what happens inside a forward pass. Each was first applied to a construction, whose mechanism is known \
         because its weights are hand-built, and then to a trained network. The results are measured: a network may do more than a \
         probe can read.",
    );
    let mut conclusions = Vec::new();
    render_constructed(&mut page, &mut conclusions, store);
    render_trained(&mut page, &mut conclusions, store);
    let Page { chapter, artefacts } = page;
    let summary = if conclusions.is_empty() {
        "nothing was inspected.".to_owned()
    } else {
        format!("{}.", conclusions.join("; "))
    };
    ChapterOutput { chapter, summary, artefacts }
}

/// A chapter being written, with its files.
struct Page {
    chapter: Chapter,
    artefacts: Vec<Artefact>,
}

impl Page {
    fn add_figure(&mut self, name: &str, chart: &dyn Chart, caption: &str, command: &str) {
        add_figure(&mut self.chapter, &mut self.artefacts, name, chart, caption, command);
    }

    /// Adds the figures of one analysis. A record may have fewer charts than `figures`, because the last ones do not apply to every network.
    fn add_analysis(&mut self, store: &RecordStore, key: &str, figures: &[(&str, &str)], command: &str) {
        let Some(charts) = store.read_outcome::<Vec<Drawing>>(key, &mut self.chapter) else { return };
        for (chart, (name, caption)) in charts.iter().zip(figures) {
            self.add_figure(name, chart, caption, command);
        }
    }
}

/// "i_1 after layer 1, i_2 after layer 2".
fn describe_decodable_levels(result: &ProbeResult) -> String {
    let answer_text = |(name, level): &(String, Option<usize>)| match level {
        Some(0) => format!("{name} in the embedding"),
        Some(level) => format!("{name} after layer {}", level - 1),
        None => format!("{name} nowhere"),
    };
    result.intermediate_answers.iter().map(answer_text).collect::<Vec<_>>().join(", ")
}

fn render_constructed(page: &mut Page, conclusions: &mut Vec<String>, store: &RecordStore) {
    let build = "rung construct U1 --hops 3 --m 4 --n 2,2 --out u1";
    page.chapter.heading("A construction, whose mechanism is known");
    if let Some(result) = store.read_outcome::<ProbeResult>("inspected/u1-probe", &mut page.chapter) {
        let as_constructed =
            result.intermediate_answers.iter().enumerate().all(|(index, (_, level))| *level == Some(index + 2));
        let verdict = if as_constructed { "as it was constructed" } else { "which is not how it was constructed" };
        let levels = describe_decodable_levels(&result);
        page.chapter.paragraph(
            Prose::new()
                .text("Construction U1 reads the start in its first layer and looks up one table in each further one. Probes find ")
                .number(levels.clone(), Evidence::Measured)
                .text(format!(", {verdict}.")),
        );
        conclusions.push(format!("in U1, {levels}, {verdict}"));
        let caption = "Layer that computes each hop, in a construction: one more intermediate answer per full layer.";
        page.add_figure("probe-u1", &result.chart, caption, &format!("{build}; rung analyze probe u1 --svg probe.svg"));
    }
    for (analysis, figures) in CONSTRUCTION_FIGURES {
        let command = format!("{build}; rung analyze {analysis} u1 --svg {analysis}.svg");
        page.add_analysis(store, &format!("inspected/u1-{analysis}"), figures, &command);
    }
}

fn render_trained(page: &mut Page, conclusions: &mut Vec<String>, store: &RecordStore) {
    page.chapter.heading("A trained network, whose mechanism is not known");
    let Some(network) = store.read_outcome::<InspectedNetwork>("inspected/trained", &mut page.chapter) else {
        page.chapter.note("A trained run is needed; `rung reproduce` with the chapter \"Measured\" makes some.");
        return;
    };
    let InspectedNetwork { name, task, directory } = network;
    let command = |analysis: &str| format!("rung analyze {analysis} {directory} --svg {analysis}.svg");
    let description =
        Prose::new().text("The network is ").code(name.clone()).text(", trained on ").code(task).text(".");
    page.chapter.paragraph(description);
    if let Some(result) = store.read_outcome::<ProbeResult>("inspected/trained-probe", &mut page.chapter) {
        let levels = describe_decodable_levels(&result);
        page.chapter.paragraph(
            Prose::new()
                .text("Probes find ")
                .number(levels.clone(), Evidence::Measured)
                .text(" at the token that answers."),
        );
        if let Some(bits) = result.state_bits_before {
            page.chapter.paragraph(format!(
                "The first intermediate answer can be read before any full layer: the recurrent state stores the first table and looks \
                 the value up. It has {bits} bits up to there, which is enough. The bounds are about tables larger than the state, \
                 for which this is impossible."
            ));
        }
        conclusions.push(format!("in a trained {name}, {levels}"));
        page.add_figure(
            "probe-trained",
            &result.chart,
            "Layer that computes each hop, after training.",
            &command("probe"),
        );
    }
    for (analysis, figures) in TRAINED_FIGURES {
        page.add_analysis(store, &format!("inspected/trained-{analysis}"), figures, &command(analysis));
    }
    render_converted(page, conclusions, store, &directory);
    if let Some(chart) = store.read_outcome::<Drawing>("inspected/repulsion", &mut page.chapter) {
        page.chapter.heading("Heads that repel each other");
        let caption = "Distances between the attention of four heads of each layer: at initialization, and after training with and without repulsion between them, \
                       from the same weights on the same prompts. One seed: an illustration, not evidence.";
        page.add_figure(
            "repulsion",
            &chart,
            caption,
            &format!("rung train {REPULSION_ARGUMENTS}; rung analyze diversity DIR"),
        );
    }
}

/// Arguments of `rung train` for the run with repulsion of [`compare_repulsion`].
const REPULSION_ARGUMENTS: &str = "--stack \"gdn full\" --task 'funccomp{hops=1,m=8,queries=16}' --set model.heads=4 --set model.head=8 \
                        --set train.repulsion.strength=1";

/// How different the attention heads of a small network are at initialization, and after training without and with repulsion.
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
    let mut diversities = Vec::new();
    for (name, setting, is_trained) in [
        ("at initialization", "train.steps=1", false),
        ("trained", &*format!("train.steps={steps}"), true),
        ("trained with repulsion", "train.repulsion.strength=1", true),
    ] {
        let run = base.with(setting)?.resolve()?;
        let mut trainer = Trainer::new(&run)?;
        while is_trained && trainer.progress().stop_reason.is_none() {
            trainer.step()?;
        }
        let (model, _) = initialize(&run)?;
        let task = task::parse(&run.config.task).map_err(|error| RunError::invalid_task("task", error))?;
        let (plan, config) = ((*run.plan).clone(), run.model.clone());
        let network = Network::new(plan.mixer_names(), task, plan, config, model, trainer.weights().clone());
        diversities.push((name, diversity::diversity(&network, &AnalysisOptions::default())?));
    }
    Ok(diversities)
}

fn compare_repulsion(preset: Preset) -> Result<Drawing, String> {
    let diversities = train_with_repulsion(preset).map_err(|error| error.to_string())?;
    let mut chart = diversity::Diversity::empty_chart("training with and without repulsion");
    for (name, diversity) in &diversities {
        chart = chart.series(diversity.series(name));
    }
    Ok(Drawing::new(&chart))
}

fn convert_layers(preset: Preset, network: &Network<f32>) -> Result<ConversionResult, String> {
    let steps = match preset {
        Preset::Smoke => 5,
        Preset::Quick => 150,
        Preset::Full => 1000,
    };
    let options = ConvertOptions { steps, ..ConvertOptions::default() };
    let (conversion, _) = convert(network, &options, &|| {}).map_err(|error| error.to_string())?;
    Ok(ConversionResult {
        threshold: conversion.threshold,
        replaced_layers: conversion.most_linear.len(),
        full_layers: conversion.layers.len(),
        steps,
        chart: Drawing::new(&conversion.chart()),
    })
}

fn render_converted(page: &mut Page, conclusions: &mut Vec<String>, store: &RecordStore, directory: &str) {
    let Some(conversion) = store.read_outcome::<ConversionResult>("inspected/trained-convert", &mut page.chapter)
    else {
        return;
    };
    page.chapter.heading("Full layers replaced by recurrent layers");
    let count = format!("{} of {}", conversion.replaced_layers, conversion.full_layers);
    page.chapter.paragraph(
        Prose::new()
            .text("Each full layer was distilled into a gated delta rule on its own inputs and outputs, and then replaced. Above ")
            .number(format!("{:.0}%", 100.0 * conversion.threshold), Evidence::Measured)
            .text(" accuracy, greedy replacement reaches ")
            .number(count.clone(), Evidence::Measured)
            .text(" layers. Nothing was trained after a replacement."),
    );
    conclusions.push(format!("{count} of its full layers can be replaced by distilled recurrent layers"));
    let caption =
        "Accuracy as more full layers are replaced, in five orders. The order by rungs depends only on the layout.";
    let command = format!("rung convert {directory} --to gdn --steps {} --svg convert.svg", conversion.steps);
    page.add_figure("convert", &conversion.chart, caption, &command);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_u1_decode_each_answer_after_its_layer() {
        let directory = std::env::temp_dir().join(format!("rung-inspected-{}", std::process::id()));
        let store = RecordStore::new(&directory, Preset::Smoke);
        compute(&store, Ok(Vec::new())).unwrap();
        let output = render(&store);
        std::fs::remove_dir_all(&directory).unwrap();
        let summary = &output.summary;
        assert!(
            summary.contains("i_1 after layer 1, i_2 after layer 2, i_3 after layer 3, as it was constructed"),
            "{summary}"
        );
        for name in ["probe-u1", "ablate-u1"] {
            assert!(output.artefacts.iter().any(|file| file.path == format!("figures/{name}.svg")), "{name}");
        }
        let blocks = format!("{:?}", output.chapter.blocks);
        assert!(blocks.contains("inspected/trained: not run"), "{blocks}");
    }
}
