//! A chart of accuracy by number of hops, with one line per model, table size and prompt variant.

use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};

use crate::summary::CellAccuracy;

/// Horizontal offset between lines in pixels, so that their confidence intervals do not overlap.
const LINE_OFFSET: f64 = 6.0;

/// One model's accuracies by number of hops.
pub struct ModelAccuracies<'a> {
    /// The model's name in the legend.
    pub name: String,
    /// One accuracy for each variant, table size and number of hops.
    pub accuracies: &'a [CellAccuracy],
}

/// Draws the accuracies of one or several models, with horizontal guides at chance and at the threshold.
pub fn draw_chart(models: &[ModelAccuracies<'_>], threshold: f64) -> LineChart {
    let mut lines: Vec<(String, Vec<&CellAccuracy>)> = Vec::new();
    for model in models {
        for accuracy in model.accuracies {
            let mut name = format!("{} rows, {}", accuracy.entries_per_table, accuracy.variant);
            if models.len() > 1 {
                name = format!("{}: {name}", model.name);
            }
            match lines.iter_mut().find(|(line_name, _)| *line_name == name) {
                Some((_, accuracies)) => accuracies.push(accuracy),
                None => lines.push((name, vec![accuracy])),
            }
        }
    }
    let title = match models {
        [model] => format!("Hops in one forward pass: {}", model.name),
        _ => "Hops in one forward pass".to_owned(),
    };
    let max_hops =
        lines.iter().flat_map(|(_, accuracies)| accuracies).map(|accuracy| accuracy.hops).max().unwrap_or(1) as f64;
    let mut chart = LineChart::new(
        title,
        AxisSpec::new("hops asked for", Scale::Integer).with_range(-0.2, max_hops.max(1.0) + 0.2),
        AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.0),
    )
    .guide(threshold, "threshold");
    let mut distinct_entries: Vec<usize> =
        lines.iter().flat_map(|(_, accuracies)| accuracies).map(|accuracy| accuracy.entries_per_table).collect();
    distinct_entries.sort_unstable();
    distinct_entries.dedup();
    for entries in distinct_entries {
        chart = chart.guide(1.0 / entries as f64, format!("chance, {entries} rows"));
    }
    let line_count = lines.len() as f64;
    for (index, (name, accuracies)) in lines.into_iter().enumerate() {
        let point = |accuracy: &&CellAccuracy| {
            Point::new(accuracy.hops as f64, accuracy.accuracy).with_spread(accuracy.interval.0, accuracy.interval.1)
        };
        let series = Series::line_and_points(name, accuracies.iter().map(point).collect());
        let offset = LINE_OFFSET * (index as f64 - (line_count - 1.0) / 2.0);
        chart = chart.series(series.with_evidence(Evidence::Measured).shifted(offset));
    }
    chart
}
