//! State capacity: how much of a table can a bounded state hold, against what its bits allow?
//!
//! Stacks without any full layer, on one look-up in a table of m entries. All that such a stack knows of the table when the
//! question comes is its state of S bits. Shannon's converse for a uniform source bounds its accuracy: with error rate e,
//! S >= m (log m - h(e) - e log(m - 1)), where h is the binary entropy. That curve is proved; the accuracy of trained states below it is
//! measured.

use super::seed_runs::{SeedRuns, SeedSpread, group_by_setting, results_table, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::Prose;
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "capacity",
    title: "State capacity: measured accuracy and the proved limit",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("capacity-smoke.toml"),
        include_str!("capacity-quick.toml"),
        include_str!("capacity-full.toml"),
    ],
    stack_verdicts: None,
    render: render_capacity,
};

/// The largest accuracy that `bits_per_entry` bits allow, for entries with `value_count` possible values.
pub fn max_accuracy(bits_per_entry: f64, value_count: f64) -> f64 {
    let needed_bits = |error: f64| {
        let entropy = |p: f64| if p <= 0.0 || p >= 1.0 { 0.0 } else { -p * p.log2() };
        value_count.log2() - entropy(error) - entropy(1.0 - error) - error * (value_count - 1.0).log2()
    };
    // The bits needed decrease with the error rate, down to zero at the error rate of chance.
    let (mut low, mut high) = (0.0, 1.0 - 1.0 / value_count);
    if bits_per_entry >= value_count.log2() {
        return 1.0;
    }
    for _ in 0..60 {
        let midpoint = f64::midpoint(low, high);
        if needed_bits(midpoint) > bits_per_entry { low = midpoint } else { high = midpoint }
    }
    1.0 - high
}

/// A state comes near its capacity if it reaches this fraction of the accuracy above chance that its bits allow.
const NEAR_CAPACITY: f64 = 0.7;

fn render_capacity(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let chart = chart(&settings);
    let caption = "One look-up by stacks without full attention. Across: bits of the state over bits of the table, m log m. No weights can \
                   be above the proved line. Bars go from the worst seed to the best.";
    output.add_figure("capacity", &chart, caption);
    output.chapter.table(results_table("State capacity: every state", &settings));
    conclude(&settings)
}

/// State bits over table bits.
fn state_to_table_ratio(runs: &SeedRuns<'_>) -> f64 {
    runs.state_bits() / runs.first().facts.table_bits.unwrap_or(f64::NAN)
}

/// The number of entries m of the task's table.
fn table_entries(runs: &SeedRuns<'_>) -> f64 {
    1.0 / super::seed_runs::chance_accuracy(runs, 1)
}

fn chart(settings: &[SeedRuns<'_>]) -> LineChart {
    let mut chart = LineChart::new(
        "One look-up without full attention: accuracy against state",
        AxisSpec::new("state bits / (m log m)", Scale::Log2),
        AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.02),
    );
    let m = settings.iter().map(table_entries).fold(f64::NAN, f64::max);
    let ratios = settings.iter().map(state_to_table_ratio);
    let (low, high) = ratios.fold((1.0_f64, 1.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    let intervals = 60;
    let proved_line = (0..=intervals).map(|index| {
        let ratio = low / 1.2 * ((1.44 * high / low).log2() * f64::from(index) / f64::from(intervals)).exp2();
        Point::new(ratio, max_accuracy(ratio * m.log2(), m))
    });
    chart = chart.series(
        Series::line(format!("proved limit for all weights, m = {m}"), proved_line.collect())
            .with_evidence(Evidence::Proved),
    );
    let family_of = |runs: &SeedRuns<'_>| {
        let config = &runs.first().config;
        format!("{}, numbers of {} bits", strip_mixer_options(&config.stack), config.model.bits.unwrap_or(32))
    };
    let mut families: Vec<String> = Vec::new();
    for runs in settings {
        let family = family_of(runs);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in families {
        let family_settings = settings.iter().filter(|runs| family_of(runs) == family);
        let mut points: Vec<Point> = family_settings
            .map(|runs| {
                let SeedSpread { mean, low, high, .. } = runs.accuracy(1);
                Point::new(state_to_table_ratio(runs), mean).with_spread(low, high)
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        chart = chart.series(Series::line_and_points(family, points).with_evidence(Evidence::Measured));
    }
    chart
}

fn conclude(settings: &[SeedRuns<'_>]) -> Conclusion {
    let mut conclusion = Conclusion::default();
    let above_line: Vec<&SeedRuns<'_>> = settings
        .iter()
        .filter(|runs| {
            let limit = max_accuracy(state_to_table_ratio(runs) * table_entries(runs).log2(), table_entries(runs));
            // A measured accuracy may lie above the line by chance; its confidence interval may not.
            runs.records.iter().any(|record| record.accuracy.values().any(|answers| answers.interval().0 > limit))
        })
        .collect();
    // The best setting with a state smaller than the table, or with a larger one.
    let best_setting = |smaller: bool| {
        let candidates = settings.iter().filter(|runs| (state_to_table_ratio(runs) < 1.0) == smaller);
        candidates.map(|runs| (runs, runs.accuracy(1))).max_by(|a, b| a.1.mean.total_cmp(&b.1.mean))
    };
    let mut paragraph = Prose::new();
    let mut lines = Vec::new();
    for (smaller, description) in [(true, "fewer bits than the table"), (false, "more bits than the table")] {
        let Some((runs, spread)) = best_setting(smaller) else { continue };
        paragraph = paragraph
            .text(format!("Of the states with {description}, the best is "))
            .code(runs.first().config.stack.clone())
            .text(format!(" at a ratio of {:.2}: ", state_to_table_ratio(runs)))
            .number(spread.percent(), Evidence::Measured)
            .text(format!(
                " right, where its bits allow {:.1}%. ",
                100.0 * max_accuracy(state_to_table_ratio(runs) * table_entries(runs).log2(), table_entries(runs))
            ));
        lines.push(format!("at ratio {:.2} {:.1}%", state_to_table_ratio(runs), 100.0 * spread.mean));
    }
    conclusion.contradictions = above_line
        .iter()
        .map(|runs| {
            format!(
                "{} lies above the proved line at ratio {:.2}: its state is counted too small.",
                runs.first().config.stack,
                state_to_table_ratio(runs)
            )
        })
        .collect();
    // If no point comes near the line, the experiment does not test it.
    let is_near_capacity = |runs: &&SeedRuns<'_>| {
        let limit = max_accuracy(state_to_table_ratio(runs) * table_entries(runs).log2(), table_entries(runs));
        let chance = 1.0 / table_entries(runs);
        limit < 0.99 && (runs.accuracy(1).high - chance) >= NEAR_CAPACITY * (limit - chance)
    };
    let near_count = settings.iter().filter(is_near_capacity).count();
    paragraph = paragraph.text(match near_count {
        0 => "No recipe was found in which a state smaller than the table comes near its capacity, so the line is not contradicted but not \
              tested. "
            .to_owned(),
        count => format!("{count} of the states reach {:.0}% of the accuracy that their bits allow. ", 100.0 * NEAR_CAPACITY),
    });
    conclusion.paragraph = match conclusion.contradictions.len() {
        0 => paragraph.text("No measured point lies above the proved line."),
        count => paragraph.text(format!("{count} points lie above the proved line, which must not happen.")),
    };
    conclusion.summary_line = format!("best one-hop accuracy without full attention: {}", lines.join(", "));
    conclusion
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_accuracy_rises_from_guessing_to_certainty() {
        assert!((max_accuracy(0.0, 32.0) - 1.0 / 32.0).abs() < 1e-6);
        assert!((max_accuracy(5.0, 32.0) - 1.0).abs() < 1e-12);
        let accuracies: Vec<f64> = (0..=10).map(|tenth| max_accuracy(0.5 * f64::from(tenth), 32.0)).collect();
        assert!(accuracies.windows(2).all(|pair| pair[0] < pair[1]));
        // A state can store half of the table and guess the other half, so the bound must lie above that accuracy.
        assert!(accuracies[5] > 0.5 + 0.5 / 32.0);
    }
}
