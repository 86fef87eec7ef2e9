//! Zoo depth: the rungs of every mixer, at one size.
//!
//! Every mixer that has a network stands before one full layer and is asked questions of one and of two hops. The rungs are read
//! off the layout: a mixer with a state earns the extra hop, one that reads all tokens is a full layer itself.

use super::compare::{Along, Entry, View, read, show};
use super::table::cells;
use super::variants::of_hops;
use super::{Chapter, Experiment, Page, Reading};
use rung_train::run::Record;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "zoo",
    title: "Zoo depth: every mixer before one full layer",
    chapter: Chapter::Open,
    sweeps: [include_str!("zoo-smoke.toml"), include_str!("zoo-quick.toml"), include_str!("zoo-full.toml")],
    show: zoo,
};

fn zoo(records: &[Record], page: &mut Page<'_>) -> Reading {
    let entries: Vec<Entry> = cells(records).iter().flat_map(of_hops).collect();
    let view = View {
        file: "zoo-depth",
        title: "Every mixer before one full layer",
        along: Along::Names,
        proved: None,
        caption: "Right answers to questions of one and two hops, for every stack and the rungs it has. Bars go from the worst seed to the \
                  best.",
    };
    show(&entries, &view, page);
    read(&entries, "Does every mixer earn the rungs that its layout has?")
}
