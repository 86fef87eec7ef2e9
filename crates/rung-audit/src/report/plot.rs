//! The plot: cache bytes against rungs, one labelled point per model.
//!
//! Bytes are on a logarithmic axis; rungs on one that is logarithmic in 1 + rungs, because half of all models stand
//! between 0 and 12. Models whose sizes or rungs are unknown are left out.

use rung_figure::figure::Chart;
use rung_figure::figure::csv::Csv;
use rung_figure::figure::label::{self, Label, PlacedLabel};
use rung_figure::figure::palette::{Colour, GRID, MUTED};
use rung_figure::figure::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};

use serde::{Deserialize, Serialize};

use super::bytes;
use crate::{AttentionScope, Audit};

const WIDTH: f64 = 1500.0;
const HEIGHT: f64 = 1050.0;
/// Where points are drawn.
const FRAME: Area = Area { x: 80.0, y: 96.0, width: WIDTH - 120.0, height: HEIGHT - 166.0 };
const FONT: f64 = 13.0;
const RADIUS: f64 = 5.0;

/// Kinds of stack, with their colours.
const FAMILIES: [(&str, Colour); 5] = [
    ("full in every layer", Colour(0x24_56_a6)),
    ("full and recurrent", Colour(0x0b_7a_75)),
    ("full and window", Colour(0xc7_7d_00)),
    ("sparse", Colour(0x7b_3f_a0)),
    ("nothing full", Colour(0xc6_28_28)),
];

/// The index in [`FAMILIES`] of a model's stack.
fn family(audit: &Audit) -> usize {
    let any = |test: &dyn Fn(&crate::AuditLayer) -> bool| audit.layers.iter().any(test);
    let full = any(&|layer| layer.is_full());
    let recurrent = any(&|layer| layer.recurrent.is_some());
    let window = any(&|layer| layer.attention == Some(AttentionScope::Window));
    let sparse = any(&|layer| layer.attention == Some(AttentionScope::Sparse));
    match (full, recurrent, window) {
        _ if sparse => 3,
        (false, _, _) => 4,
        (true, true, _) => 1,
        (true, false, true) => 2,
        (true, false, false) => 0,
    }
}

/// A model on the plot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlottedModel {
    /// What it is called.
    pub name: String,
    /// Its layers.
    pub layers: usize,
    /// Layers of full attention.
    pub full_layers: usize,
    /// Hops that its layout allows.
    pub rungs: usize,
    /// KV cache that grows.
    pub bytes_per_token: u64,
    /// Recurrent state.
    pub state_bytes: u64,
    /// KV cache of windows.
    pub window_bytes: u64,
    /// All of it at the context of the plot.
    pub cache_bytes: u64,
    /// Kind of stack, an index into the legend.
    family: usize,
}

/// Cache bytes against rungs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlot {
    title: String,
    /// The models, in the order in which they were given.
    pub models: Vec<PlottedModel>,
}

/// Ends of both axes: log10 of bytes, and log2 of 1 + rungs.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn at(&self, log10_bytes: f64, log2_rungs: f64) -> (f64, f64) {
        let along = |value: f64, (least, most): (f64, f64)| (value - least) / (most - least);
        (FRAME.x + along(log10_bytes, self.x) * FRAME.width, FRAME.bottom() - along(log2_rungs, self.y) * FRAME.height)
    }
}

/// Models that fall on one point, with their names.
struct PlotPoint {
    label: Label,
    colour: Colour,
}

impl CachePlot {
    /// A plot of those audits whose cache and rungs are known.
    pub fn new(audits: &[Audit]) -> Self {
        let model = |audit: &Audit| {
            let (cache, capacity) = (audit.cache?, audit.capacity.as_ref()?);
            Some(PlottedModel {
                name: audit.model.clone(),
                layers: audit.layers.len(),
                full_layers: capacity.full,
                rungs: capacity.rungs,
                bytes_per_token: cache.per_token,
                state_bytes: cache.state,
                window_bytes: cache.window,
                cache_bytes: cache.total,
                family: family(audit),
            })
        };
        let context = audits.first().map_or(0, |audit| audit.context);
        let title = format!("What a rung costs: cache at {} tokens against rungs", super::commas(context));
        Self { title, models: audits.iter().filter_map(model).collect() }
    }

    /// Pairs of labels that overlap; for tests.
    pub fn overlaps(&self) -> usize {
        label::overlaps(&place(&self.spots(&self.axes())))
    }

    fn axes(&self) -> Axes {
        let points = || self.models.iter().map(PlottedModel::point);
        let least = points().map(|(x, _)| x).fold(6.0, f64::min) - 0.15;
        let most = points().map(|(x, _)| x).fold(9.0, f64::max) + 0.1;
        let top = points().map(|(_, y)| y).fold(1.0, f64::max) + 0.45;
        Axes { x: (least, most), y: (-0.7, top) }
    }

    fn spots(&self, axes: &Axes) -> Vec<PlotPoint> {
        let mut spots: Vec<PlotPoint> = Vec::new();
        for model in &self.models {
            let (x, y) = model.point();
            let (at, colour) = (axes.at(x, y), model.colour());
            // Models that fall on one point share it, and its label.
            let same = |spot: &&mut PlotPoint| {
                let (x, y) = spot.label.at;
                (x - at.0).abs() < 2.0 && (y - at.1).abs() < 1.0 && spot.colour == colour
            };
            match spots.iter_mut().find(same) {
                Some(spot) => spot.label.text.extend([", ", &model.name]),
                None => spots.push(PlotPoint { label: Label { at, text: model.name.clone() }, colour }),
            }
        }
        spots
    }
}

impl PlottedModel {
    fn colour(&self) -> Colour {
        // Records come from files: an index beyond the legend is the last kind.
        FAMILIES[self.family.min(FAMILIES.len() - 1)].1
    }

    /// log10 of its cache in bytes, and log2 of 1 + its rungs.
    fn point(&self) -> (f64, f64) {
        ((self.cache_bytes.max(1) as f64).log10(), (1.0 + self.rungs as f64).log2())
    }
}

fn place(spots: &[PlotPoint]) -> Vec<PlacedLabel> {
    let labels: Vec<Label> = spots.iter().map(|spot| spot.label.clone()).collect();
    label::place(&labels, FONT, RADIUS, FRAME)
}

impl Chart for CachePlot {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        let axes = self.axes();
        let mut svg = Svg::new(WIDTH, HEIGHT);
        svg.text((FRAME.x, 34.0), &self.title, &TextStyle::new(22.0).bold());
        draw_axes(&mut svg, &axes);
        draw_legend(&mut svg);
        let spots = self.spots(&axes);
        let placed = place(&spots);
        for (spot, label) in spots.iter().zip(&placed) {
            if let Some((from, to)) = label.leader {
                svg.line(from, to, &Stroke::new(spot.colour, 0.6));
            }
        }
        for (spot, PlacedLabel { area, .. }) in spots.iter().zip(&placed) {
            svg.circle(spot.label.at, RADIUS, &Paint::fill(spot.colour));
            let at = (area.x + area.width / 2.0, area.bottom() - 4.5);
            svg.text(at, &spot.label.text, &TextStyle::new(FONT).anchored(Anchor::Middle));
        }
        svg.finish(&self.title)
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new([
            "model",
            "layers",
            "full_layers",
            "rungs",
            "bytes_per_token",
            "state_bytes",
            "window_bytes",
            "cache_bytes",
        ]);
        for model in &self.models {
            csv.row([
                model.name.clone(),
                model.layers.to_string(),
                model.full_layers.to_string(),
                model.rungs.to_string(),
                model.bytes_per_token.to_string(),
                model.state_bytes.to_string(),
                model.window_bytes.to_string(),
                model.cache_bytes.to_string(),
            ]);
        }
        csv.finish()
    }
}

fn draw_axes(svg: &mut Svg, axes: &Axes) {
    let grid = Stroke::new(GRID, 1.0);
    let tick = TextStyle::new(FONT).coloured(MUTED);
    // A tick at every fourfold, named in binary units.
    for power in (10..60).step_by(2) {
        let log10 = f64::from(power) * 2.0_f64.log10();
        if log10 >= axes.x.0 && log10 <= axes.x.1 {
            let (x, _) = axes.at(log10, 0.0);
            svg.line((x, FRAME.y), (x, FRAME.bottom()), &grid);
            let name = bytes(1_u64 << power).replace(".00", "").replace(".0 ", " ");
            svg.text((x, FRAME.bottom() + 20.0), &name, &tick.anchored(Anchor::Middle));
        }
    }
    for rungs in [0_u32, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256] {
        let log2 = f64::from(1 + rungs).log2();
        if log2 <= axes.y.1 {
            let (_, y) = axes.at(0.0, log2);
            svg.line((FRAME.x, y), (FRAME.right(), y), &grid);
            svg.text((FRAME.x - 10.0, y + 4.5), &rungs.to_string(), &tick.anchored(Anchor::End));
        }
    }
    svg.rect(FRAME, &Paint::stroke(Stroke::new(MUTED, 1.0)));
    let name = TextStyle::new(15.0).anchored(Anchor::Middle);
    svg.text((f64::midpoint(FRAME.x, FRAME.right()), FRAME.bottom() + 48.0), "cache, batch of one", &name);
    svg.text((24.0, f64::midpoint(FRAME.y, FRAME.bottom())), "rungs", &name.upwards());
}

fn draw_legend(svg: &mut Svg) {
    let lettering = TextStyle::new(FONT);
    let mut x = FRAME.x;
    for (name, colour) in FAMILIES {
        svg.circle((x + 6.0, 64.0), RADIUS, &Paint::fill(colour));
        svg.text((x + 18.0, 69.0), name, &lettering);
        x += 44.0 + lettering.width(name);
    }
}
