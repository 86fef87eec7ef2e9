//! "Looked inside": the instruments on a construction, where the answer is known, and on a trained hybrid, where it is not.

use std::path::{Path, PathBuf};

use rung_nn::construct::{self, Request};
use rung_theory::task;

use super::Made;
use crate::artefact::{Artefact, Preset, figure_files};
use rung_figure::Evidence;
use rung_figure::figure::Chart;
use rung_figure::report::{Chapter, Figure, Prose};
use rung_inspect::analysis::convert::{Wish, convert};
use rung_inspect::analysis::{
    AnalysisError, Ask, ablate, collapse, diversity, injective, lens, precision, probe, state,
};
use rung_train::network::Network;
use rung_train::run::initial::fresh;
use rung_train::run::{Record, RunConfig, Trainer};

/// Hops of the construction.
const HOPS: usize = 3;

/// The run to look into: of those that know most hops, the one with the best answers at the largest number of them. A hybrid goes
/// before a stack of one kind.
pub fn choose(runs: &[(PathBuf, Record)]) -> Option<&(PathBuf, Record)> {
    let rank = |record: &Record| {
        let known = record.accuracy.iter().filter(|(_, tally)| tally.mean() >= probe::RESOLVED);
        let last = known.map(|(hops, _)| *hops).max().unwrap_or(0);
        let share = record.accuracy.get(&last).map_or(0.0, rung_train::run::Tally::mean);
        let hybrid = record.facts.full_layers > 0 && record.facts.state_bits.iter().any(|bits| *bits > 0);
        (last, hybrid, share)
    };
    let better = |a: &&(PathBuf, Record), b: &&(PathBuf, Record)| {
        let (left, right) = (rank(&a.1), rank(&b.1));
        (left.0, left.1).cmp(&(right.0, right.1)).then(left.2.total_cmp(&right.2)).then(b.0.cmp(&a.0))
    };
    runs.iter().max_by(better)
}

/// A page that is being written.
struct Page {
    chapter: Chapter,
    artefacts: Vec<Artefact>,
}

impl Page {
    fn figure(&mut self, name: &str, chart: &dyn Chart, caption: &str, command: &str) {
        self.artefacts.extend(figure_files(name, chart));
        self.chapter.figure(Figure::new(chart, caption, command, format!("{name}.csv")));
    }

    /// A result, or a note of why there is none.
    fn result<T>(&mut self, found: Result<T, AnalysisError>) -> Option<T> {
        found.map_err(|error| self.chapter.note(Prose::from(error.to_string()))).ok()
    }
}

/// Makes the chapter from a trained run, if there is one.
pub fn make(preset: Preset, run: Option<&Path>) -> Made {
    let mut page = Page { chapter: Chapter::new("looked-inside", "Looked inside"), artefacts: Vec::new() };
    page.chapter.paragraph(
        "Instruments look into a forward pass and say what happens there. Each was first pointed at a construction, where what happens \
         is known because somebody wrote the weights, and then at a network that was trained. What they find is measured: a network may \
         do more than a probe can read.",
    );
    let mut told = Vec::new();
    constructed(&mut page, &mut told);
    match run.map(|path| (path, Network::<f32>::open(path), Network::<f64>::open(path))) {
        Some((path, Ok(single), Ok(double))) => trained(&mut page, &mut told, preset, path, (&single, &double)),
        Some((_, Err(error), _) | (_, _, Err(error))) => {
            page.chapter.note(Prose::from(error.to_string()));
        }
        None => {
            page.chapter.note("No trained run was at hand; `rung reproduce` with the chapter \"Measured\" makes some.");
        }
    }
    let Page { chapter, artefacts } = page;
    Made { chapter, summary: format!("{}.", told.join("; ")), artefacts }
}

/// "i_1 after layer 2, i_2 after layer 3".
fn climbed(found: &probe::Probes) -> String {
    let one = |register: &probe::Probed| match register.resolved {
        Some(0) => format!("{} as embedded", register.name),
        Some(level) => format!("{} after layer {level}", register.name),
        None => format!("{} nowhere", register.name),
    };
    found.registers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Says so if the first number is there before any full layer: then a state has looked it up.
fn in_state(found: &probe::Probes, network: &Network<f32>) -> Option<Prose> {
    let level = found.registers.first().filter(|register| register.name == "i_1")?.resolved?;
    let before = network.plan.layers[..level].iter().all(|layer| !layer.is_full());
    let bits: u128 = network.plan.layers[..level].iter().map(rung_theory::stack::Layer::state_bits).sum();
    (before && level > 0).then(|| {
        Prose::new()
            .text("The first number is there before any full layer has been passed: the state holds the first table and looks it up \
                   itself. It has room for that, with ")
            .text(format!("{bits} bits up to there. The bounds speak of tables larger than the state, where this way is closed."))
    })
}

fn constructed(page: &mut Page, told: &mut Vec<String>) {
    let request = Request { hops: HOPS, m: 4, n: vec![2; HOPS - 1], ..Request::default() };
    let (Ok(single), Ok(double)) = (construct::build::<f32>("U1", &request), construct::build::<f64>("U1", &request))
    else {
        return;
    };
    let (single, double, ask) = (Network::from(single), Network::from(double), Ask::default());
    let made = "rung construct U1 --hops 3 --m 4 --n 2,2 --out u1";
    page.chapter.heading("A construction, where the answer is known");
    if let Some(found) = page.result(probe::probe(&single, &ask)) {
        let right = found.registers.iter().enumerate().all(|(at, register)| register.resolved == Some(at + 2));
        let verdict = if right { "as its weights say" } else { "which is not what its weights say" };
        page.chapter.paragraph(
            Prose::new()
                .text("Construction U1 reads the start in its first layer and looks up one table in each further one. Probes find ")
                .number(climbed(&found), Evidence::Measured)
                .text(format!(", {verdict}.")),
        );
        told.push(format!("in U1, {}, {verdict}", climbed(&found)));
        let caption = "Which layer climbs which rung, in a construction: a staircase, one number per full layer.";
        page.figure("probe-u1", &found.chart(), caption, &format!("{made}; rung analyze probe u1 --svg probe.svg"));
    }
    if let Some(found) = page.result(lens::lens(&double, &ask)) {
        let caption = "The score of U1's answer in parts, gates held still. U1 snaps what it reads to bits, and a step has no slope: all \
                       of the score is at the token that answers. Trained networks do not snap.";
        page.figure("lens-u1", &found.chart(), caption, &format!("{made}; rung analyze lens u1 --svg lens.svg"));
    }
    if let Some(found) = page.result(ablate::ablate(&single, &ask)) {
        let caption = "U1 without one layer at a time: it needs all of them.";
        page.figure("ablate-u1", &found.chart(), caption, &format!("{made}; rung analyze ablate u1 --svg ablate.svg"));
    }
}

fn trained(
    page: &mut Page,
    told: &mut Vec<String>,
    preset: Preset,
    path: &Path,
    (single, double): (&Network<f32>, &Network<f64>),
) {
    let ask = Ask::default();
    let place = path.file_name().map_or_else(String::new, |name| format!("runs/{}", name.to_string_lossy()));
    let command = |name: &str| format!("rung analyze {name} {place} --svg {name}.svg");
    page.chapter.heading("A trained network, where it is not");
    let about = Prose::new().text("The network is ").code(single.name.clone()).text(", trained on ");
    page.chapter.paragraph(about.code(single.task.spec()).text("."));
    if let Some(found) = page.result(probe::probe(single, &ask)) {
        page.chapter.paragraph(
            Prose::new()
                .text("Probes find ")
                .number(climbed(&found), Evidence::Measured)
                .text(" at the token that answers."),
        );
        if let Some(early) = in_state(&found, single) {
            page.chapter.paragraph(early);
        }
        told.push(format!("in a trained {}, {}", single.name, climbed(&found)));
        page.figure(
            "probe-trained",
            &found.chart(),
            "Which layer climbs which rung, after training.",
            &command("probe"),
        );
    }
    if let Some(found) = page.result(ablate::ablate(single, &ask)) {
        let caption = "Right answers without some of its mixers: what each number of hops needs.";
        page.figure("ablate-trained", &found.chart(), caption, &command("ablate"));
    }
    if let Some(found) = page.result(lens::lens(double, &ask)) {
        let caption = "The score of one answer in parts, level by level, gates held still; parts and constants sum up to the score.";
        page.figure("lens-trained", &found.chart(), caption, &command("lens"));
        if let Some(map) = found.map_chart() {
            let caption =
                "The same for all tokens: how much of each token's last stream comes from every token as embedded.";
            page.figure("lens-map-trained", &map, caption, &command("lens"));
        }
    }
    if let Some(found) = page.result(precision::sweep(single, &ask)) {
        let caption = "Right answers with the recurrent state rounded to few bits after every token.";
        page.figure("precision-trained", &found.chart(), caption, &command("precision"));
    }
    if let Some(found) = page.result(state::states(single, &ask)) {
        let caption = "How many directions the recurrent state uses while a prompt is read.";
        page.figure("state-trained", &found.chart(), caption, &command("state"));
    }
    if let Some(found) = page.result(collapse::collapse(double, &ask)) {
        let caption =
            "What is left of differences between tokens, layer by layer, with and without skips and channel mixers.";
        page.figure("collapse-trained", &found.chart(), caption, &command("collapse"));
        if let Some(chart) = found.path_chart() {
            let caption = "Paths through the stack by the number of mixers they pass: how many there are, and how much they carry.";
            page.figure("paths-trained", &chart, caption, &command("collapse"));
        }
    }
    if let Some(found) = page.result(injective::injectivity(double, &ask)) {
        let caption = "How much of a query survives in the row of weights it gives, head by head.";
        page.figure("injective-trained", &found.rank_chart(), caption, &command("injective"));
    }
    if let Some(found) = page.result(diversity::diversity(single, &ask)) {
        let chart = diversity::Diversity::sheet(&found.name).series(found.series("mean over pairs of heads"));
        page.figure("diversity-trained", &chart, "How far apart the heads of each layer read.", &command("diversity"));
    }
    converted(page, told, preset, single, &place);
    if let Some(found) = page.result(repelled(preset)) {
        page.chapter.heading("Heads that repel each other");
        let mut chart = diversity::Diversity::sheet("training with and without repulsion");
        for (name, one) in &found {
            chart = chart.series(one.series(name));
        }
        let caption = "How far apart four heads of each layer read: as drawn, and after training with and without repulsion between them, \
                       from the same weights on the same prompts. One seed: an illustration, not a finding.";
        page.figure("repulsion", &chart, caption, &format!("rung train {REPELLED}; rung analyze diversity DIR"));
    }
}

/// What the two trainings of [`repelled`] have in common.
const REPELLED: &str = "--stack \"gdn full\" --task 'funccomp{hops=1,m=8,queries=16}' --set model.heads=4 --set model.head=8 \
                        --set train.repulsion.strength=1";

/// Heads of a small network as drawn, and after training without and with repulsion.
fn repelled(preset: Preset) -> Result<Vec<(&'static str, diversity::Diversity)>, AnalysisError> {
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
        while trains && trainer.progress().over.is_none() {
            trainer.step()?;
        }
        let (model, _) = fresh(&run)?;
        let task = task::parse(&run.config.task).unwrap_or_else(|error| unreachable!("resolved before: {error}"));
        let (plan, config) = (run.plan.clone(), run.model.clone());
        let network = Network::new(plan.outline(), task, plan, config, model, trainer.weights().clone());
        found.push((name, diversity::diversity(&network, &Ask::default())?));
    }
    Ok(found)
}

fn converted(page: &mut Page, told: &mut Vec<String>, preset: Preset, network: &Network<f32>, place: &str) {
    let steps = match preset {
        Preset::Smoke => 5,
        Preset::Quick => 150,
        Preset::Full => 1000,
    };
    let wish = Wish { to: "gdn".to_owned(), steps, ..Wish::default() };
    let Some((found, _)) = page.result(convert(network, &wish, &|| {})) else { return };
    page.chapter.heading("Full layers made linear");
    let count = |layers: &[usize]| format!("{} of {}", layers.len(), found.layers.len());
    page.chapter.paragraph(
        Prose::new()
            .text("Each full layer was imitated by a gated delta rule trained on what that layer is fed, and then replaced. Above ")
            .number(format!("{:.0}%", 100.0 * found.threshold), Evidence::Measured)
            .text(" right answers, greedy replacement reaches ")
            .number(count(&found.most_linear), Evidence::Measured)
            .text(" layers. Nothing was trained after a replacement."),
    );
    told.push(format!("{} of its full layers can be replaced by imitations", count(&found.most_linear)));
    let caption =
        "Right answers as more full layers are replaced, in five orders. The order by rungs looks at the layout alone.";
    let command = format!("rung convert {place} --to gdn --steps {steps} --svg convert.svg");
    page.figure("convert", &found.chart(), caption, &command);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_u1_the_chapter_tells_the_known_answer() {
        let made = make(Preset::Smoke, None);
        assert!(
            made.summary.contains("i_1 after layer 2, i_2 after layer 3, i_3 after layer 4, as its weights say"),
            "{}",
            made.summary
        );
        for name in ["probe-u1", "lens-u1", "ablate-u1"] {
            assert!(made.artefacts.iter().any(|file| file.path == format!("figures/{name}.svg")), "{name}");
        }
    }
}
