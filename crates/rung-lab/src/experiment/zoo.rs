//! Zoo depth: the rungs of every mixer, at one size.
//!
//! Every mixer that has a network stands before one full layer and is asked questions of one and of two hops. The rungs are read
//! off the layout: a mixer with a state earns the extra hop, one that reads all tokens is a full layer itself.

use super::compare::{Entry, View, read, show};
use super::table::cells;
use super::variants::of_hops;
use super::{Chapter, Experiment, Page, Reading};
use crate::figure::Scale;
use crate::run::Record;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "zoo",
    title: "Zoo depth: every mixer before one full layer",
    chapter: Chapter::Open,
    sweeps: [include_str!("zoo-smoke.toml"), include_str!("zoo-quick.toml"), include_str!("zoo-full.toml")],
    show: zoo,
};

fn zoo(records: &[Record], page: &mut Page<'_>) -> Reading {
    let cells = cells(records);
    let mut entries = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        for entry in of_hops(cell) {
            // One place along the axis for each mixer; one line for each number of hops.
            let hops = entry.at;
            let (stack, place) = (entry.series.clone(), entry.place.clone());
            let series = format!("questions of {hops} hop{}", if hops > 1.0 { "s" } else { "" });
            entries.push(Entry { series, at: index as f64 + 1.0, place: format!("by {stack}, {place}"), ..entry });
        }
    }
    entries.sort_by(|a, b| a.series.cmp(&b.series).then(a.at.total_cmp(&b.at)));
    let names: Vec<String> =
        cells.iter().enumerate().map(|(index, cell)| format!("{} {}", index + 1, cell.outline())).collect();
    let view = View {
        file: "zoo-depth",
        title: "Every mixer before one full layer",
        axis: ("stack, by its number in the list below", Scale::Whole),
        proved: None,
        caption: "Right answers to questions of one and two hops. Bars go from the worst seed to the best.",
    };
    show(&entries, &view, page);
    page.chapter.paragraph(format!("The stacks by number: {}.", names.join(", ")));
    read(&entries, "Does every mixer earn the rungs that its layout has?")
}
