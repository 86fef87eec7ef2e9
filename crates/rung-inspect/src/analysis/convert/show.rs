//! A conversion as text and as a chart.

use std::fmt::Write as _;

use super::Conversion;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_train::run::config::strip_mixer_options;

impl Conversion {
    /// The conversion for a terminal.
    pub fn text(&self) -> String {
        let Self { name, task, to, teacher_score, threshold, .. } = self;
        let mut text = format!("{name} on {task}: full layers to {to} (measured)\n\n");
        text += "  layer   squared error of its student, before and after distillation\n";
        for distilled in &self.layers {
            let _ = writeln!(
                text,
                "  {:>5}   {:.3} -> {:.3}",
                distilled.layer, distilled.initial_error, distilled.final_error
            );
        }
        let _ = writeln!(
            text,
            "\n  teacher {:.1}% right; replaced while at least {:.1}%:",
            100.0 * teacher_score,
            100.0 * threshold
        );
        for step in &self.path {
            let _ = writeln!(text, "    layer {}: {:.1}%", step.layer, 100.0 * step.score);
        }
        let layer_list = |layers: &[usize]| match layers {
            [] => "none".to_owned(),
            layers => layers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(
            text,
            "  best: layers {}; most linear: layers {}\n",
            layer_list(&self.best),
            layer_list(&self.most_linear)
        );
        text += "  orders, on test prompts, after 0, 1, .. replacements\n";
        for order in &self.orders {
            let scores =
                order.scores.iter().map(|score| format!("{:.1}%", 100.0 * score)).collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "    {:12} {:14} {scores}", order.name, layer_list(&order.layers));
        }
        text
    }

    /// The accuracy of every order of replacement, by the number of replaced layers.
    pub fn chart(&self) -> LineChart {
        // Without the mixer's sizes, which would make the title longer than the figure is wide.
        let to = strip_mixer_options(&self.to);
        let mut chart = LineChart::new(
            format!("Accuracy as full layers are replaced by {to}: {}", self.name),
            AxisSpec::new("layers replaced", Scale::Integer),
            AxisSpec::new("accuracy, each number of hops equally", Scale::Linear).with_range(0.0, 1.02),
        );
        for order in &self.orders {
            let point = |(replaced, score): (usize, &f64)| Point::new(replaced as f64, *score);
            let points = order.scores.iter().enumerate().map(point).collect();
            chart = chart.series(Series::line_and_points(format!("{} ({})", order.name, Evidence::Measured), points));
        }
        chart.guide(self.threshold.clamp(-1.0, 2.0), "threshold")
    }
}
