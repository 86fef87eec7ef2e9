//! The ladder as a chart: accuracy by hops, one line per model, table size and variant.

use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};

use crate::summary::AccuracyRow;

/// One model's ladder.
pub struct ModelLadder<'a> {
    /// What it is called in the legend.
    pub name: String,
    /// Its rates.
    pub rates: &'a [AccuracyRow],
}

/// A chart of one or several ladders, with chance and the threshold drawn in.
pub fn chart(ladders: &[ModelLadder<'_>], threshold: f64) -> LineChart {
    let mut lines: Vec<(String, Vec<&AccuracyRow>)> = Vec::new();
    for ladder in ladders {
        for rate in ladder.rates {
            let mut name = format!("{} rows, {}", rate.entries, rate.variant);
            if ladders.len() > 1 {
                name = format!("{}: {name}", ladder.name);
            }
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rates)) => rates.push(rate),
                None => lines.push((name, vec![rate])),
            }
        }
    }
    let title = match ladders {
        [only] => format!("Hops in one forward pass: {}", only.name),
        _ => "Hops in one forward pass".to_owned(),
    };
    let most = lines.iter().flat_map(|(_, rates)| rates).map(|rate| rate.hops).max().unwrap_or(1) as f64;
    let mut chart = LineChart::new(
        title,
        AxisSpec::new("hops asked for", Scale::Whole).from_to(-0.2, most.max(1.0) + 0.2),
        AxisSpec::new("accuracy", Scale::Linear).from_to(0.0, 1.0),
    )
    .guide(threshold, "threshold");
    let mut chances: Vec<usize> = lines.iter().flat_map(|(_, rates)| rates).map(|rate| rate.entries).collect();
    chances.sort_unstable();
    chances.dedup();
    for entries in chances {
        chart = chart.guide(1.0 / entries as f64, format!("chance, {entries} rows"));
    }
    let count = lines.len() as f64;
    for (index, (name, rates)) in lines.into_iter().enumerate() {
        let point =
            |rate: &&AccuracyRow| Point::new(rate.hops as f64, rate.accuracy).between(rate.interval.0, rate.interval.1);
        let series = Series::line_and_points(name, rates.iter().map(point).collect());
        // Intervals of several lines stand side by side.
        let aside = 0.05 * (index as f64 - (count - 1.0) / 2.0);
        chart = chart.series(series.known(Evidence::Measured).aside(aside));
    }
    chart
}
