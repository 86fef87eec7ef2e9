//! A conversion for people.

use std::fmt::Write as _;

use super::Conversion;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_train::run::config::outline;

impl Conversion {
    /// For a terminal.
    pub fn text(&self) -> String {
        let Self { name, task, to, teacher, threshold, .. } = self;
        let mut text = format!("{name} on {task}: full layers to {to} (measured)\n\n");
        text += "  layer   squared error of its counterpart, before and after distillation\n";
        for one in &self.layers {
            let _ = writeln!(text, "  {:>5}   {:.3} -> {:.3}", one.layer, one.before, one.after);
        }
        let _ = writeln!(
            text,
            "\n  teacher {:.1}% right; replaced while at least {:.1}%:",
            100.0 * teacher,
            100.0 * threshold
        );
        for step in &self.path {
            let _ = writeln!(text, "    layer {}: {:.1}%", step.layer, 100.0 * step.score);
        }
        let listed = |layers: &[usize]| match layers {
            [] => "none".to_owned(),
            layers => layers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(
            text,
            "  best: layers {}; most linear: layers {}\n",
            listed(&self.best),
            listed(&self.most_linear)
        );
        text += "  orders, on test prompts, after 0, 1, .. replacements\n";
        for order in &self.orders {
            let scores =
                order.scores.iter().map(|score| format!("{:.1}%", 100.0 * score)).collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "    {:12} {:14} {scores}", order.name, listed(&order.layers));
        }
        text
    }

    /// Orders against each other.
    pub fn chart(&self) -> LineChart {
        // The bare name: with all its sizes it would be longer than the figure is wide.
        let to = outline(&self.to);
        let mut chart = LineChart::new(
            format!("Right answers as full layers become {to}: {}", self.name),
            AxisSpec::new("layers replaced", Scale::Whole),
            AxisSpec::new("right answers, each number of hops equally", Scale::Linear).from_to(0.0, 1.02),
        );
        for order in &self.orders {
            let points = order.scores.iter().enumerate().map(|(at, score)| Point::new(at as f64, *score)).collect();
            chart = chart.series(Series::line_and_points(format!("{} ({})", order.name, Evidence::Measured), points));
        }
        chart.guide(self.threshold.clamp(-1.0, 2.0), "threshold")
    }
}
