//! Placement: does it matter where the layer with state stands?
//!
//! The same layers in another order. The prediction: a layer with state earns one hop if it stands before the first full layer or
//! between the first and the second, and none anywhere else.

use super::table::{Cell, LEARNED, Spread, cells, contradictions, show};
use super::{Chapter, Experiment, Page, Reading};
use crate::artefact::figure_files;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::{Figure, Prose};
use rung_train::run::Record;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "placement",
    title: "Placement: where the extra hop comes from",
    chapter: Chapter::Measured,
    sweeps: [
        include_str!("placement-smoke.toml"),
        include_str!("placement-quick.toml"),
        include_str!("placement-full.toml"),
    ],
    show: placement,
};

fn placement(records: &[Record], page: &mut Page<'_>) -> Reading {
    let cells = cells(records);
    let chart = chart(&cells);
    page.artefacts.extend(figure_files("placement", &chart));
    let caption = "The same layers in different orders. Across: hops asked for. A layout with two rungs should reach both hops, one with \
                   one rung only the first. Bars go from the worst seed to the best.";
    page.chapter.figure(Figure::new(&chart, caption, page.command.clone(), "placement.csv"));
    page.chapter.table(show("Placement: every order of layers", &cells));
    reading(&cells)
}

fn chart(cells: &[Cell<'_>]) -> LineChart {
    let most = cells.iter().map(Cell::hops).max().unwrap_or(1);
    let mut chart = LineChart::new(
        "Accuracy by hops, for the same layers in different orders",
        AxisSpec::new("hops", Scale::Whole).from_to(0.7, most as f64 + 0.3),
        AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
    );
    for (index, cell) in cells.iter().enumerate() {
        let shift = 0.03 * (index as f64 - (cells.len() as f64 - 1.0) / 2.0);
        let point = |hops: usize| {
            let Spread { mean, low, high, .. } = cell.accuracy(hops);
            Point::new(hops as f64 + shift, mean).between(low, high)
        };
        let points = cell.any().accuracy.keys().map(|hops| point(usize::from(*hops))).collect();
        let plural = if cell.rungs() == 1 { "rung" } else { "rungs" };
        let name = format!("{}: {} {plural} predicted", cell.outline(), cell.rungs());
        chart = chart.series(Series::line_and_points(name, points));
    }
    chart
}

fn reading(cells: &[Cell<'_>]) -> Reading {
    let Some(most) = cells.iter().map(Cell::hops).max() else { return Reading::default() };
    let (mut paragraph, mut agree, mut judged) = (Prose::new().text("The same layers, in another order. "), 0, 0);
    for cell in cells {
        let spread = cell.accuracy(most);
        let predicted = most <= cell.rungs();
        let learned = spread.mean >= LEARNED;
        judged += 1;
        agree += usize::from(predicted == learned);
        paragraph = paragraph
            .code(cell.outline())
            .text(if predicted { " should reach " } else { " should not reach " })
            .text(format!("{most} hops, and has "))
            .number(spread.percent(), Evidence::Measured)
            .text(if predicted == learned { "; " } else { ", against the prediction; " });
    }
    let line = format!("{agree} of {judged} orders of the same layers end as predicted at {most} hops");
    let paragraph = paragraph.text(format!("in all, {line}."));
    Reading { paragraph, line, contradictions: contradictions(cells), ..Reading::default() }
}
