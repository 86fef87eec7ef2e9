//! "Refuted": failures of concrete models that can be held in the hand, and how close they come to what is proved.
//!
//! Four things: a witness for each kind of layer, checked; the smallest table at which a birthday found two tables with one state,
//! beside the size at which the pigeonhole says that there must be two; constructions, of which every instance was asked and none was
//! wrong; and how far each attack reached. All searches count candidates, not seconds, so the chapter is the same on every machine of
//! one kind.

use std::time::Duration;

use rung_nn::construct::{self, Request};

use super::Made;
use crate::artefact::{Artefact, Preset, figure_files};
use rung_falsify::page::Page;
use rung_falsify::{Asked, Effort, Found, Method, Origin, Suspect, check, falsify};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::{Cell, Chapter, Column, Figure, Prose, Table};
use rung_train::run::RunConfig;

/// A model to be refuted: what it is called, stack, task, bits.
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

/// Bits of a number in the figure.
const BITS: u32 = 4;

/// Mixers of the figure, with the state numbers of their sizes: name, stack with a place for the value's width, key's width.
const RISING: [(&str, &str); 3] = [
    ("linear attention", "linear{heads=1,key=2,value=WIDTH,normaliser=no}"),
    ("Mamba-2", "mamba2{heads=1,head=WIDTH,state=2,conv=1}"),
    ("DeltaNet", "deltanet{heads=1,key=2,value=WIDTH,conv=0}"),
];

/// An untrained model that writes with vigour, so that few bits are not simply zero.
fn config(stack: &str, task: &str) -> RunConfig {
    let mut config = RunConfig::new(stack, task);
    let model = &mut config.model;
    (model.heads, model.head, model.embedding_scale, model.scale) = (1, 8, 1.0, 2.0);
    model.channel = rung_train::run::config::ChannelName::None;
    config
}

fn effort(most: u64) -> Effort {
    Effort { budget: Duration::from_mins(30), most, ..Effort::default() }
}

/// The widths of the figure.
fn widths(preset: Preset) -> std::ops::RangeInclusive<u64> {
    match preset {
        Preset::Smoke => 1..=2,
        Preset::Quick => 1..=6,
        Preset::Full => 1..=10,
    }
}

/// How many units of work the chapter has, for a progress bar.
pub fn units(preset: Preset) -> u64 {
    MODELS.len() as u64 + RISING.len() as u64 * widths(preset).count() as u64 + 2
}

/// The chapter. `step` is called once for every unit of work.
pub fn make(preset: Preset, step: &(dyn Fn() + Sync)) -> Made {
    let mut chapter = Chapter::new("refuted", "Refuted");
    chapter.paragraph(
        "A bound says that a failure exists. Here are failures that do: concrete models, untrained unless said otherwise, with two \
         prompts each that have different answers and that the model cannot tell apart, to the bit. Each was found by running many prompts \
         side by side and confirmed by a checker that reads each prompt whole. A witness speaks for its model alone.",
    );
    let mut artefacts = Vec::new();
    let held = witnesses(&mut chapter, &mut artefacts, step);
    rising(preset, &mut chapter, &mut artefacts, step);
    upheld(&mut chapter, step);
    let summary = format!("{held} of {} models have a witness that the checker accepts", MODELS.len());
    Made { chapter, summary, artefacts }
}

/// A model and what the search came to.
fn refute(stack: &str, task: &str, bits: Option<u32>, most: u64) -> Option<(Suspect, Found)> {
    let asked = bits.map_or(Asked::Own, |bits| Asked::Bits(bits, None));
    let suspect = Suspect::open(Origin::Fresh(Box::new(config(stack, task))), None, asked).ok()?;
    let found = falsify(&suspect, &effort(most), &|_, _| true).ok()?;
    Some((suspect, found))
}

fn witnesses(chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, step: &(dyn Fn() + Sync)) -> usize {
    let mut held = 0;
    let mut table = Table::new(
        "A witness for each kind of layer",
        [
            Column::text("stack"),
            Column::text("task"),
            Column::number("bits"),
            Column::text("found by"),
            Column::number("tried"),
            Column::text("answers"),
            Column::text("the model's"),
            Column::text("checked"),
        ],
    );
    let mut example = None;
    for (name, stack, task, bits) in MODELS {
        let found = refute(stack, task, bits, 1 << 18);
        step();
        let bits = bits.map_or_else(|| "32".to_owned(), |bits| bits.to_string());
        let Some((suspect, Found { witness: Some(witness), tried, .. })) = found else {
            let none = ["none found", "", "", "", ""].map(Cell::from);
            table.row([Cell::code(stack), Cell::code(task), Cell::from(bits)].into_iter().chain(none));
            continue;
        };
        let holds = check::check(&witness, &suspect).is_ok_and(|verdict| verdict.is_ok());
        held += usize::from(holds);
        let listed = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let (method, tries) = tried.last().map_or(("", 0), |tried| (tried.method.name(), tried.candidates));
        table.row([
            Cell::code(stack),
            Cell::code(task),
            Cell::from(bits),
            Cell::from(method),
            Cell::from(tries.to_string()).known(Evidence::Measured),
            Cell::from(listed(&witness.answers)),
            Cell::from(listed(&witness.outputs)),
            Cell::from(if holds { "holds" } else { "refused" }),
        ]);
        if let Ok(page) = Page::new(&witness, &suspect) {
            if name == "deltanet" {
                example = Some(page.text());
            }
            if let Ok(html) = page.html(&format!("rung witness check witnesses/{name}.json")) {
                artefacts.push(Artefact { path: format!("witnesses/{name}.html"), bytes: html.into_bytes() });
            }
        }
        artefacts.push(Artefact {
            path: format!("witnesses/{name}.json"),
            bytes: format!("{}\n", witness.text()).into_bytes(),
        });
    }
    chapter.table(table);
    if let Some(example) = example {
        chapter.paragraph("One of them in full: where the prompts differ, and where the model stops seeing it.");
        chapter.command(example);
    }
    held
}

/// The smallest table at which a birthday finds a collision, against the pigeonhole.
fn rising(preset: Preset, chapter: &mut Chapter, artefacts: &mut Vec<Artefact>, step: &(dyn Fn() + Sync)) {
    let most = if preset == Preset::Full { 1 << 22 } else { 1 << 18 };
    let (mut chart, mut largest) = (
        LineChart::new(
            "How close attacks come to the proof",
            AxisSpec::new("bits of state", Scale::Linear),
            AxisSpec::new("smallest table with two contents and one state", Scale::Linear),
        ),
        1.0_f64,
    );
    for (name, stack) in RISING {
        let mut points = Vec::new();
        for width in widths(preset) {
            let stack = stack.replace("WIDTH", &width.to_string());
            if let Some((bits, table)) = smallest(&stack, most) {
                largest = largest.max(bits);
                points.push(Point::new(bits, f64::from(table)));
            }
            step();
        }
        chart = chart.series(Series::line_and_points(name, points));
    }
    let line = (1..=largest as u32).map(|bits| Point::new(f64::from(bits), f64::from(pigeonhole(bits))));
    chart = chart.series(Series::line("pigeonhole: m log m > bits", line.collect()).known(Evidence::Proved));
    artefacts.extend(figure_files("refuted", &chart));
    let caption = "The line is proved: at that size of table some two tables share a state, whatever the weights. The marks are measured: the \
                   smallest table of an untrained model for which a birthday over tables found two. Marks below the line are failures \
                   that the count of bits alone does not promise; none can lie above it once the search is exhaustive.";
    chapter.figure(Figure::new(&chart, caption, "rung reproduce --only refuted", "refuted.csv"));
    chapter.note(
        "Reach. A birthday over b bits that are really used takes about 2^(b/2) states: forty such bits are within a minute on two \
         cores. Where tokens may repeat, drowning needs no luck at all and does not depend on the bits. Sums of writes of linear \
         attention fall to lattice reduction as far as the lattice can be reduced: 2048 bits of state have fallen and others of that size have not; \
         the guide, under Witnesses, has a table of the sizes that were reached and of those that were not. A search \
         that found nothing says nothing, unless every instance was asked.",
    );
}

/// State bits, and the smallest table with a collision.
fn smallest(stack: &str, most: u64) -> Option<(f64, u32)> {
    for m in 2..=24 {
        let task = format!("funccomp{{hops=1,m={m}}}");
        let asked = Asked::Bits(BITS, None);
        let suspect = Suspect::open(Origin::Fresh(Box::new(config(stack, &task))), None, asked).ok()?;
        let effort = Effort { only: Some(Method::StateCollision), ..effort(most) };
        let found = falsify(&suspect, &effort, &|_, _| true).ok()?;
        if found.witness.is_some() {
            let numbers: u128 = suspect.network.plan.layers.iter().map(rung_theory::stack::Layer::state_bits).sum();
            let own = suspect.network.plan.layers[0].mixers[0].bits();
            return Some((numbers as f64 / own as f64 * f64::from(BITS), m));
        }
    }
    None
}

/// The first table whose contents are more than the states: m log m above the bits.
fn pigeonhole(bits: u32) -> u32 {
    (1..=bits + 2).find(|m| f64::from(*m) * f64::from(*m).log2() > f64::from(bits)).unwrap_or(u32::MAX)
}

/// Constructions of which every instance was asked.
fn upheld(chapter: &mut Chapter, step: &(dyn Fn() + Sync)) {
    chapter.heading("Not refuted");
    for (name, hops, m, n) in [("U1", 2, 2, vec![2]), ("U2", 1, 4, vec![])] {
        let request = Request { hops, m, n, ..Request::default() };
        let sentence = match construct::build::<f32>(name, &request) {
            Err(error) => format!("{name}: {error}"),
            Ok(built) => {
                let suspect = Suspect::of(built.into(), Origin::Folder(name.into()), None, Asked::Own);
                match suspect.and_then(|suspect| falsify(&suspect, &effort(u64::MAX), &|_, _| true)) {
                    Err(error) => format!("{name}: {error}"),
                    Ok(found) => told(name, &found),
                }
            }
        };
        chapter.paragraph(Prose::new().text(sentence));
        step();
    }
}

fn told(name: &str, found: &Found) -> String {
    let last = found.tried.last();
    let (checked, total) = last.map_or((0, 0), |tried| (tried.candidates, tried.total.unwrap_or(0)));
    match &found.witness {
        Some(_) => format!("Construction {name} has a witness, which its verification should have met."),
        None => format!("Construction {name}: none found, {checked} of {total} instances checked."),
    }
}
