//! The chapter "Refuted": explicit failures of concrete models, and how close they come to the proved bounds.
//!
//! A witness is a counterexample: a pair of prompts with different answers that a model cannot tell apart. The chapter has a checked
//! witness for each kind of layer; the smallest table for which a birthday search found two tables with the same state, beside the size
//! from which on the pigeonhole principle guarantees two; and constructions that are right on every instance. Search budgets are numbers of
//! candidates, not seconds, so the chapter does not depend on the speed of the machine.

use std::time::Duration;

use rung_nn::construct::{self, ConstructionRequest};

use super::ChapterOutput;
use crate::artefact::{Artefact, Preset, add_figure};
use crate::store::RecordStore;
use rung_falsify::page::WitnessPage;
use rung_falsify::{
    FalsifyError, Method, Origin, RequestedPrecision, SearchBudget, TargetModel, Witness, check, falsify,
};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::{Chapter, Column, Prose, Table, TableCell};
use rung_nn::file::WriteError;
use rung_train::run::RunConfig;
use serde::{Deserialize, Serialize};

/// Models to refute: name, stack, task, and bits to which numbers are rounded.
const MODELS: [(&str, &str, &str, Option<u32>); 9] = [
    ("linear", "linear{heads=1,key=3,value=3,normaliser=no}", "funccomp{hops=1,m=8}", Some(4)),
    ("gated", "hgrn2{expand=1}", "funccomp{hops=1,m=8}", Some(4)),
    ("mamba2", "mamba2{heads=1,head=4,state=2,conv=2}", "funccomp{hops=1,m=8}", Some(3)),
    ("deltanet", "deltanet{heads=1,key=3,value=3}", "funccomp{hops=1,m=8}", Some(4)),
    ("drowned", "gdn{heads=1,key=4,value=4}", "twosum{length=80,modulus=16}", Some(6)),
    ("moba", "moba{heads=1,kv=1,head=4,block=4,top=2}", "twosum{length=33,modulus=16}", None),
    ("minmax", "moba{heads=1,kv=1,head=4,block=4,top=2,summary=minmax}", "twosum{length=33,modulus=16}", None),
    (
        "nsa",
        "nsa{heads=1,kv=1,head=2,block=4,top=3,length=4,stride=4,window=4}",
        "twosum{length=33,modulus=16}",
        Some(4),
    ),
    ("hybrid", "linear{heads=1,key=2,value=2} full{heads=1,head=4}", "funccomp{hops=2,m=2,n=[2]}", Some(3)),
];

/// Bits per number of the models in the figure.
const FIGURE_BITS: u32 = 4;

/// Mixers of the figure: name, and stack in which `WIDTH` stands for the width of a value.
const FIGURE_MIXERS: [(&str, &str); 3] = [
    ("linear attention", "linear{heads=1,key=2,value=WIDTH,normaliser=no}"),
    ("Mamba-2", "mamba2{heads=1,head=WIDTH,state=2,conv=1}"),
    ("DeltaNet", "deltanet{heads=1,key=2,value=WIDTH,conv=0}"),
];

/// An untrained model with large initial weights, so that its numbers do not all round to zero.
fn untrained_config(stack: &str, task: &str) -> RunConfig {
    let mut config = RunConfig::new(stack, task);
    let model = &mut config.model;
    (model.heads, model.head, model.embedding_scale, model.scale) = (1, 8, 1.0, 2.0);
    model.feed_forward = rung_train::run::config::FeedForwardName::None;
    config
}

/// A search budget of `max_candidates` candidates.
fn candidate_budget(max_candidates: u64) -> SearchBudget {
    SearchBudget { time: Duration::from_mins(30), max_candidates, ..SearchBudget::default() }
}

/// Value widths of the models in the figure.
fn widths(preset: Preset) -> std::ops::RangeInclusive<u64> {
    match preset {
        Preset::Smoke => 1..=2,
        Preset::Quick => 1..=6,
        Preset::Full => 1..=10,
    }
}

/// Result of the search for a witness of one model.
#[derive(Serialize, Deserialize)]
struct Refutation {
    /// The method that found the witness, or the last that was tried.
    method: String,
    /// Number of candidates that it tried.
    candidates: u64,
    /// The witness, if one was found.
    witness: Option<RecordedWitness>,
}

/// A witness with the result of its check.
#[derive(Serialize, Deserialize)]
struct RecordedWitness {
    /// Contents of the file for `rung witness check`.
    json: String,
    /// The right answers of the two prompts.
    answers: Vec<u32>,
    /// The model's answers.
    outputs: Vec<u32>,
    /// Whether the checker accepts it.
    holds: bool,
    /// Where the prompts differ, and from which layer on the model's activations are equal.
    text: String,
    /// The same as a page.
    html: String,
}

/// The smallest table for which two contents with the same state were found.
#[derive(Serialize, Deserialize)]
struct SmallestCollision {
    state_bits: f64,
    /// Number of entries.
    #[serde(rename = "table")]
    table_entries: u32,
}

/// Result of running a construction on every instance.
#[derive(Serialize, Deserialize)]
struct ExhaustiveSearch {
    checked: u64,
    total: u64,
    /// Whether a witness was found.
    #[serde(rename = "found")]
    witness_found: bool,
}

/// Constructions that are searched: name, hops, m, n.
const CONSTRUCTIONS: [(&str, usize, u32, &[u32]); 2] = [("U1", 2, 2, &[2]), ("U2", 1, 4, &[])];

/// Number of records of the chapter, for a progress bar.
pub fn record_count(preset: Preset) -> u64 {
    MODELS.len() as u64 + FIGURE_MIXERS.len() as u64 * widths(preset).count() as u64 + 2
}

/// Computes the chapter's records. `on_record` is called after each record. Each search uses all cores.
///
/// # Errors
/// A record cannot be written.
pub fn compute(store: &RecordStore, on_record: &(dyn Fn() + Sync)) -> Result<(), WriteError> {
    for (name, stack, task, bits) in MODELS {
        store.write(&model_key(name), &refute(name, stack, task, bits).map_err(|error| error.to_string()))?;
        on_record();
    }
    let max_candidates = if store.preset() == Preset::Full { 1 << 22 } else { 1 << 18 };
    for (index, (_, stack)) in FIGURE_MIXERS.iter().enumerate() {
        for width in widths(store.preset()) {
            let stack = stack.replace("WIDTH", &width.to_string());
            store.write(
                &width_key(index, width),
                &smallest_collision(&stack, max_candidates).map_err(|error| error.to_string()),
            )?;
            on_record();
        }
    }
    for (name, hops, m, n) in CONSTRUCTIONS {
        let request = ConstructionRequest {
            hops,
            first_table_entries: m,
            growth_factors: n.to_vec(),
            ..ConstructionRequest::default()
        };
        store.write(&construction_key(name), &search_construction(name, &request))?;
        on_record();
    }
    Ok(())
}

fn model_key(name: &str) -> String {
    format!("refuted/{name}")
}

fn width_key(series: usize, width: u64) -> String {
    format!("refuted/smallest-{}-width{width}", series + 1)
}

fn construction_key(name: &str) -> String {
    format!("refuted/construction-{}", name.to_lowercase())
}

/// Writes the chapter from its records.
pub fn render(store: &RecordStore) -> ChapterOutput {
    let mut chapter = Chapter::new("refuted", "Refuted");
    chapter.paragraph(
        "A bound shows that a failure exists. This chapter has explicit failures: concrete models, untrained unless said otherwise, with two \
         prompts each that have different answers and that the model cannot tell apart, to the bit. Each was found by running many prompts \
         side by side and confirmed by a checker that runs each prompt from its start. A witness is about its model only.",
    );
    let mut artefacts = Vec::new();
    let accepted = render_witnesses(&mut chapter, &mut artefacts, store);
    render_collision_figure(&mut chapter, &mut artefacts, store);
    render_exhaustive_searches(&mut chapter, store);
    let summary = format!("{accepted} of {} models have a witness that the checker accepts", MODELS.len());
    ChapterOutput { chapter, summary, artefacts }
}

/// Searches for a witness of a model, and checks it.
fn refute(name: &str, stack: &str, task: &str, bits: Option<u32>) -> Result<Refutation, FalsifyError> {
    let precision = bits.map_or(RequestedPrecision::AsTrained, |bits| RequestedPrecision::Bits(bits, None));
    let target = TargetModel::open(Origin::Untrained(Box::new(untrained_config(stack, task))), None, precision)?;
    let search = falsify(&target, &candidate_budget(1 << 18), &|_, _| true)?;
    let (method, candidates) =
        search.reports.last().map_or(("", 0), |report| (report.method.name(), report.candidates));
    let record = |witness: Witness| {
        let page = WitnessPage::new(&witness, &target).ok();
        let command = format!("rung witness check witnesses/{name}.json");
        RecordedWitness {
            json: format!("{}\n", witness.to_json()),
            holds: check::check(&witness, &target).is_ok_and(|verdict| verdict.is_ok()),
            text: page.as_ref().map_or_else(String::new, WitnessPage::text),
            html: page.and_then(|page| page.html(&command).ok()).unwrap_or_default(),
            answers: witness.answers.clone(),
            outputs: witness.outputs.clone(),
        }
    };
    Ok(Refutation { method: method.to_owned(), candidates, witness: search.witness.map(record) })
}

/// Adds the table of witnesses. Returns how many the checker accepts.
fn render_witnesses(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &RecordStore) -> usize {
    let mut accepted = 0;
    let mut table = Table::new(
        "A witness for each kind of layer",
        [
            Column::text("stack"),
            Column::text("task"),
            Column::number("bits"),
            Column::text("found by"),
            Column::number("candidates tried"),
            Column::text("answers"),
            Column::text("the model's"),
            Column::text("checked"),
        ],
    );
    let mut example = None;
    for (name, stack, task, bits) in MODELS {
        let Some(refutation) = store.read_outcome::<Refutation>(&model_key(name), chapter) else { continue };
        let bits = bits.map_or_else(|| "32".to_owned(), |bits| bits.to_string());
        let Refutation { method, candidates, witness: Some(witness) } = refutation else {
            let no_witness = ["none found", "", "", "", ""].map(TableCell::from);
            table.row(
                [TableCell::code(stack), TableCell::code(task), TableCell::from(bits)].into_iter().chain(no_witness),
            );
            continue;
        };
        accepted += usize::from(witness.holds);
        let join_numbers = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        table.row([
            TableCell::code(stack),
            TableCell::code(task),
            TableCell::from(bits),
            TableCell::from(method),
            TableCell::from(candidates.to_string()).with_evidence(Evidence::Measured),
            TableCell::from(join_numbers(&witness.answers)),
            TableCell::from(join_numbers(&witness.outputs)),
            TableCell::from(if witness.holds { "holds" } else { "refused" }),
        ]);
        if name == "deltanet" {
            example = Some(witness.text);
        }
        if !witness.html.is_empty() {
            let path = format!("witnesses/{name}.html");
            artefacts.push(Artefact { path, bytes: witness.html.into_bytes() });
        }
        artefacts.push(Artefact { path: format!("witnesses/{name}.json"), bytes: witness.json.into_bytes() });
    }
    chapter.table(table);
    if let Some(example) = example {
        chapter.paragraph(
            "One of them in full: where the prompts differ, and from which layer on the model's activations are equal.",
        );
        chapter.command(example);
    }
    accepted
}

/// Adds the figure of the smallest table for which a birthday search finds a collision, beside the pigeonhole bound.
fn render_collision_figure(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, store: &RecordStore) {
    let (mut chart, mut max_state_bits) = (
        LineChart::new(
            "Smallest collisions found, and the proved bound",
            AxisSpec::new("bits of state", Scale::Linear),
            AxisSpec::new("smallest table with two contents and one state", Scale::Linear),
        ),
        1.0_f64,
    );
    for (index, (name, _)) in FIGURE_MIXERS.iter().enumerate() {
        let mut points = Vec::new();
        for width in widths(store.preset()) {
            let collision = store.read_outcome::<Option<SmallestCollision>>(&width_key(index, width), chapter);
            if let Some(Some(SmallestCollision { state_bits, table_entries })) = collision {
                max_state_bits = max_state_bits.max(state_bits);
                points.push(Point::new(state_bits, f64::from(table_entries)));
            }
        }
        chart = chart.series(Series::line_and_points(*name, points));
    }
    let pigeonhole_line =
        (1..=max_state_bits as u32).map(|bits| Point::new(f64::from(bits), f64::from(pigeonhole_table(bits))));
    chart = chart
        .series(Series::line("pigeonhole: m log m > bits", pigeonhole_line.collect()).with_evidence(Evidence::Proved));
    let caption = "The line is proved: at that size of table some two tables share a state, whatever the weights. The markers are measured: the \
                   smallest table of an untrained model for which a birthday search over tables found two. Markers below the line are failures \
                   that counting bits does not guarantee; none can be above it if the search is exhaustive.";
    add_figure(chapter, artefacts, "refuted", &chart, caption, "rung reproduce --only refuted");
    chapter.note(
        "Limits of the search. A birthday search over b bits that are really used takes about 2^(b/2) states: forty such bits take less \
         than a minute on two cores. Where tokens may repeat, drowning always succeeds and does not depend on the bits. Sums of writes of linear \
         attention fall to lattice reduction where the lattice can be reduced: collisions were found for some models with 2048 bits of state and not for others; \
         docs/commands/inspect.md has a table of the sizes that were reached and of those that were not. A search \
         that finds nothing shows nothing, unless every instance was run.",
    );
}

/// The smallest table for which a collision is found within the budget.
fn smallest_collision(stack: &str, max_candidates: u64) -> Result<Option<SmallestCollision>, FalsifyError> {
    for m in 2..=24 {
        let task = format!("funccomp{{hops=1,m={m}}}");
        let precision = RequestedPrecision::Bits(FIGURE_BITS, None);
        let target = TargetModel::open(Origin::Untrained(Box::new(untrained_config(stack, &task))), None, precision)?;
        let budget = SearchBudget { only_method: Some(Method::StateCollision), ..candidate_budget(max_candidates) };
        let search = falsify(&target, &budget, &|_, _| true)?;
        if search.witness.is_some() {
            let plan_bits: u128 = target.network.plan.layers.iter().map(rung_theory::stack::Layer::state_bits).sum();
            let bits_per_number = target.network.plan.layers[0].mixers[0].bits();
            let state_bits = plan_bits as f64 / bits_per_number as f64 * f64::from(FIGURE_BITS);
            return Ok(Some(SmallestCollision { state_bits, table_entries: m }));
        }
    }
    Ok(None)
}

/// The smallest number of entries m of a table that has more contents than the state has values: m log m > bits.
fn pigeonhole_table(bits: u32) -> u32 {
    (1..=bits + 2).find(|m| f64::from(*m) * f64::from(*m).log2() > f64::from(bits)).unwrap_or(u32::MAX)
}

/// Runs a construction on every instance.
fn search_construction(name: &str, request: &ConstructionRequest) -> Result<ExhaustiveSearch, String> {
    let network = construct::build::<f32>(name, request).map_err(|error| error.to_string())?;
    let target = TargetModel::from_network(network, Origin::Folder(name.into()), None, RequestedPrecision::AsTrained);
    let search = target.and_then(|target| falsify(&target, &candidate_budget(u64::MAX), &|_, _| true));
    let search = search.map_err(|error| error.to_string())?;
    let (checked, total) =
        search.reports.last().map_or((0, 0), |report| (report.candidates, report.total.unwrap_or(0)));
    Ok(ExhaustiveSearch { checked, total, witness_found: search.witness.is_some() })
}

/// Adds the results for constructions, which have no witness.
fn render_exhaustive_searches(chapter: &mut Chapter, store: &RecordStore) {
    chapter.heading("Not refuted");
    for (name, ..) in CONSTRUCTIONS {
        let key = construction_key(name);
        let Some(ExhaustiveSearch { checked, total, witness_found }) = store.read_outcome(&key, chapter) else {
            continue;
        };
        let sentence = if witness_found {
            format!("Construction {name} has a witness, which its verification should have found.")
        } else {
            format!("Construction {name}: none found, {checked} of {total} instances checked.")
        };
        chapter.paragraph(Prose::new().text(sentence));
    }
}
