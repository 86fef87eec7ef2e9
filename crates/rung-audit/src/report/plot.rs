//! The plot: cache bytes against rungs, one labelled point per model.
//!
//! Bytes are on a logarithmic axis; rungs on one that is logarithmic in 1 + rungs, because half of all models have
//! 0 to 12. Models whose sizes or rungs are unknown are left out.

use rung_figure::figure::Chart;
use rung_figure::figure::csv::Csv;
use rung_figure::figure::label::{self, Label, PlacedLabel};
use rung_figure::figure::palette::{Colour, GRID, MUTED};
use rung_figure::figure::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};

use serde::{Deserialize, Serialize};

use super::format_bytes;
use crate::{AttentionScope, Audit};

const WIDTH: f64 = 1500.0;
const HEIGHT: f64 = 1050.0;
/// Where points are drawn.
const FRAME: Area = Area { x: 80.0, y: 96.0, width: WIDTH - 120.0, height: HEIGHT - 166.0 };
const FONT: f64 = 13.0;
const RADIUS: f64 = 5.0;

/// Families of models by their kinds of layers, with their colours.
const FAMILIES: [(&str, Colour); 5] = [
    ("full in every layer", Colour(0x24_56_a6)),
    ("full and recurrent", Colour(0x0b_7a_75)),
    ("full and window", Colour(0xc7_7d_00)),
    ("sparse", Colour(0x7b_3f_a0)),
    ("nothing full", Colour(0xc6_28_28)),
];

/// The index of a model's family in [`FAMILIES`].
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
    /// The model's name.
    pub name: String,
    /// Number of layers.
    pub layers: usize,
    /// Number of full-attention layers.
    pub full_layers: usize,
    /// Hops that its layers can compose.
    pub rungs: usize,
    /// Bytes of KV cache that each token adds.
    pub bytes_per_token: u64,
    /// Bytes of recurrent state.
    pub state_bytes: u64,
    /// Bytes of KV cache of window layers.
    pub window_bytes: u64,
    /// Bytes of all caches at the context of the plot.
    pub cache_bytes: u64,
    /// Index of the model's family in the legend.
    family: usize,
}

/// A scatter plot of cache bytes against rungs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlot {
    title: String,
    /// The models, in the order in which they were given.
    pub models: Vec<PlottedModel>,
}

/// Ranges of both axes: log10 of bytes, and log2 of 1 + rungs.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    /// The position on the page of a point.
    fn position(&self, log10_bytes: f64, log2_rungs: f64) -> (f64, f64) {
        let fraction = |value: f64, (min, max): (f64, f64)| (value - min) / (max - min);
        (
            FRAME.x + fraction(log10_bytes, self.x) * FRAME.width,
            FRAME.bottom() - fraction(log2_rungs, self.y) * FRAME.height,
        )
    }
}

/// A point with the names of all models that fall on it.
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
                full_layers: capacity.full_layers,
                rungs: capacity.rungs,
                bytes_per_token: cache.per_token,
                state_bytes: cache.state,
                window_bytes: cache.window,
                cache_bytes: cache.total,
                family: family(audit),
            })
        };
        let context = audits.first().map_or(0, |audit| audit.context);
        let title = format!("What a rung costs: cache at {} tokens against rungs", super::with_commas(context));
        Self { title, models: audits.iter().filter_map(model).collect() }
    }

    /// Pairs of labels that overlap; for tests.
    pub fn overlap_count(&self) -> usize {
        label::overlap_count(&place_labels(&self.plot_points(&self.axes())))
    }

    fn axes(&self) -> Axes {
        let positions = || self.models.iter().map(PlottedModel::coordinates);
        let min_x = positions().map(|(x, _)| x).fold(6.0, f64::min) - 0.15;
        let max_x = positions().map(|(x, _)| x).fold(9.0, f64::max) + 0.1;
        let max_y = positions().map(|(_, y)| y).fold(1.0, f64::max) + 0.45;
        Axes { x: (min_x, max_x), y: (-0.7, max_y) }
    }

    fn plot_points(&self, axes: &Axes) -> Vec<PlotPoint> {
        let mut points: Vec<PlotPoint> = Vec::new();
        for model in &self.models {
            let (x, y) = model.coordinates();
            let (position, colour) = (axes.position(x, y), model.colour());
            // Models that fall on one point share it, and its label.
            let is_same = |point: &&mut PlotPoint| {
                let (x, y) = point.label.point;
                (x - position.0).abs() < 2.0 && (y - position.1).abs() < 1.0 && point.colour == colour
            };
            match points.iter_mut().find(is_same) {
                Some(point) => point.label.text.extend([", ", &model.name]),
                None => points.push(PlotPoint { label: Label { point: position, text: model.name.clone() }, colour }),
            }
        }
        points
    }
}

impl PlottedModel {
    fn colour(&self) -> Colour {
        // The index may come from a file: beyond the legend, the last family is used.
        FAMILIES[self.family.min(FAMILIES.len() - 1)].1
    }

    /// log10 of its cache in bytes, and log2 of 1 + its rungs.
    fn coordinates(&self) -> (f64, f64) {
        ((self.cache_bytes.max(1) as f64).log10(), (1.0 + self.rungs as f64).log2())
    }
}

fn place_labels(points: &[PlotPoint]) -> Vec<PlacedLabel> {
    let labels: Vec<Label> = points.iter().map(|point| point.label.clone()).collect();
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
        let points = self.plot_points(&axes);
        let labels = place_labels(&points);
        for (point, label) in points.iter().zip(&labels) {
            if let Some((from, to)) = label.leader {
                svg.line(from, to, &Stroke::new(point.colour, 0.6));
            }
        }
        for (point, PlacedLabel { area, .. }) in points.iter().zip(&labels) {
            svg.circle(point.label.point, RADIUS, &Paint::fill(point.colour));
            let at = (area.x + area.width / 2.0, area.bottom() - 4.5);
            svg.text(at, &point.label.text, &TextStyle::new(FONT).anchored(Anchor::Middle));
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
    // A tick at every power of 4, labelled in binary units.
    for power in (10..60).step_by(2) {
        let log10 = f64::from(power) * 2.0_f64.log10();
        if log10 >= axes.x.0 && log10 <= axes.x.1 {
            let (x, _) = axes.position(log10, 0.0);
            svg.line((x, FRAME.y), (x, FRAME.bottom()), &grid);
            let name = format_bytes(1_u64 << power).replace(".00", "").replace(".0 ", " ");
            svg.text((x, FRAME.bottom() + 20.0), &name, &tick.anchored(Anchor::Middle));
        }
    }
    for rungs in [0_u32, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256] {
        let log2 = f64::from(1 + rungs).log2();
        if log2 <= axes.y.1 {
            let (_, y) = axes.position(0.0, log2);
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
    let style = TextStyle::new(FONT);
    let mut x = FRAME.x;
    for (name, colour) in FAMILIES {
        svg.circle((x + 6.0, 64.0), RADIUS, &Paint::fill(colour));
        svg.text((x + 18.0, 69.0), name, &style);
        x += 44.0 + style.width(name);
    }
}
