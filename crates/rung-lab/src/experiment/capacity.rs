//! State capacity: how much of a table can a bounded state hold, against what its bits allow?
//!
//! Stacks without any full layer, on one look-up in a table of m entries. All that such a stack knows of the table when the
//! question comes is its state of S bits. Shannon's converse for a uniform source says how often it can answer right at most: with
//! error rate e, S >= m (log m - h(e) - e log(m - 1)), h being the entropy of a coin. That curve is proved; where trained states lie
//! below it is measured.

use super::table::{ResultCell, SeedSpread, cells, outline, results_table};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use crate::artefact::figure_files;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::{Figure, Prose};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "capacity",
    title: "State capacity: the pigeonhole line, measured",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("capacity-smoke.toml"),
        include_str!("capacity-quick.toml"),
        include_str!("capacity-full.toml"),
    ],
    render: capacity,
};

/// The largest share of right answers that so many bits per entry allow, for values among `m`.
pub fn max_accuracy(bits_per_entry: f64, m: f64) -> f64 {
    let needed = |error: f64| {
        let entropy = |p: f64| if p <= 0.0 || p >= 1.0 { 0.0 } else { -p * p.log2() };
        m.log2() - entropy(error) - entropy(1.0 - error) - error * (m - 1.0).log2()
    };
    // Bits needed fall as the error grows, down to zero at a guess.
    let (mut low, mut high) = (0.0, 1.0 - 1.0 / m);
    if bits_per_entry >= m.log2() {
        return 1.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if needed(middle) > bits_per_entry { low = middle } else { high = middle }
    }
    1.0 - high
}

/// A state is used well if it answers this share of what its bits allow beyond a guess.
const NEAR: f64 = 0.7;

fn capacity(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let chart = chart(&cells);
    page.artefacts.extend(figure_files("capacity", &chart));
    let caption = "One look-up by stacks without full attention. Across: bits of the state over bits of the table, m log m. No weights can \
                   be above the proved line. Bars go from the worst seed to the best.";
    page.chapter.figure(Figure::new(&chart, caption, page.command.clone(), "capacity.csv"));
    page.chapter.table(results_table("State capacity: every state", &cells));
    conclude(&cells)
}

fn ratio(cell: &ResultCell<'_>) -> f64 {
    cell.state_bits() / cell.first().facts.table_bits.unwrap_or(f64::NAN)
}

/// m of the task.
fn points(cell: &ResultCell<'_>) -> f64 {
    1.0 / super::table::guess(cell, 1)
}

fn chart(cells: &[ResultCell<'_>]) -> LineChart {
    let mut chart = LineChart::new(
        "One look-up without full attention: accuracy against state",
        AxisSpec::new("state bits / (m log m)", Scale::Log2),
        AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
    );
    let m = cells.iter().map(points).fold(f64::NAN, f64::max);
    let ratios = cells.iter().map(ratio);
    let (low, high) = ratios.fold((1.0_f64, 1.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    let steps = 60;
    let line = (0..=steps).map(|step| {
        let x = low / 1.2 * ((1.44 * high / low).log2() * f64::from(step) / f64::from(steps)).exp2();
        Point::new(x, max_accuracy(x * m.log2(), m))
    });
    chart =
        chart.series(Series::line(format!("no weights do better, m = {m}"), line.collect()).known(Evidence::Proved));
    let family_of = |cell: &ResultCell<'_>| {
        let config = &cell.first().config;
        format!("{}, numbers of {} bits", outline(&config.stack), config.model.bits.unwrap_or(32))
    };
    let mut families: Vec<String> = Vec::new();
    for cell in cells {
        let family = family_of(cell);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in families {
        let own = cells.iter().filter(|cell| family_of(cell) == family);
        let mut points: Vec<Point> = own
            .map(|cell| {
                let SeedSpread { mean, low, high, .. } = cell.accuracy(1);
                Point::new(ratio(cell), mean).between(low, high)
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        chart = chart.series(Series::line_and_points(family, points).known(Evidence::Measured));
    }
    chart
}

fn conclude(cells: &[ResultCell<'_>]) -> Conclusion {
    let mut conclusion = Conclusion::default();
    let above: Vec<&ResultCell<'_>> = cells
        .iter()
        .filter(|cell| {
            let most = max_accuracy(ratio(cell) * points(cell).log2(), points(cell));
            // A sample may lie above the line by chance; its interval may not.
            cell.records.iter().any(|record| record.accuracy.values().any(|tally| tally.interval().0 > most))
        })
        .collect();
    let best_of = |small: bool| {
        let fitting = cells.iter().filter(|cell| (ratio(cell) < 1.0) == small);
        fitting.map(|cell| (cell, cell.accuracy(1))).max_by(|a, b| a.1.mean.total_cmp(&b.1.mean))
    };
    let mut paragraph = Prose::new();
    let mut lines = Vec::new();
    for (small, words) in [(true, "fewer bits than the table"), (false, "more bits than the table")] {
        let Some((cell, spread)) = best_of(small) else { continue };
        paragraph = paragraph
            .text(format!("Of the states with {words}, the best is "))
            .code(cell.first().config.stack.clone())
            .text(format!(" at a ratio of {:.2}: ", ratio(cell)))
            .number(spread.percent(), Evidence::Measured)
            .text(format!(
                " right, where its bits allow {:.1}%. ",
                100.0 * max_accuracy(ratio(cell) * points(cell).log2(), points(cell))
            ));
        lines.push(format!("at ratio {:.2} {:.1}%", ratio(cell), 100.0 * spread.mean));
    }
    conclusion.contradictions = above
        .iter()
        .map(|cell| {
            format!(
                "{} lies above the proved line at ratio {:.2}: its state is counted too small.",
                cell.first().config.stack,
                ratio(cell)
            )
        })
        .collect();
    // A line that no point comes near is not tested by being respected.
    let used = |cell: &&ResultCell<'_>| {
        let most = max_accuracy(ratio(cell) * points(cell).log2(), points(cell));
        let guess = 1.0 / points(cell);
        most < 0.99 && (cell.accuracy(1).high - guess) >= NEAR * (most - guess)
    };
    let near = cells.iter().filter(used).count();
    paragraph = paragraph.text(match near {
        0 => "No recipe was found in which a state smaller than the table is used to near its capacity, so the line is respected but not \
              tested. "
            .to_owned(),
        count => format!("{count} of the states reach {:.0}% of what their bits allow. ", 100.0 * NEAR),
    });
    conclusion.paragraph = match conclusion.contradictions.len() {
        0 => paragraph.text("No measured point lies above the proved line."),
        count => paragraph.text(format!("{count} points lie above the proved line, which must not be.")),
    };
    conclusion.line = format!("best one-hop accuracy without full attention: {}", lines.join(", "));
    conclusion
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_from_a_guess_to_certainty() {
        assert!((max_accuracy(0.0, 32.0) - 1.0 / 32.0).abs() < 1e-6);
        assert!((max_accuracy(5.0, 32.0) - 1.0).abs() < 1e-12);
        let middle: Vec<f64> = (0..=10).map(|tenth| max_accuracy(0.5 * f64::from(tenth), 32.0)).collect();
        assert!(middle.windows(2).all(|pair| pair[0] < pair[1]));
        // Storing half the table whole, and guessing the rest, is possible, so the line must be above that.
        assert!(middle[5] > 0.5 + 0.5 / 32.0);
    }
}
