//! The table of mixers as a figure, with speeds as a plot.
//!
//! Every mixer has a line. Tokens per second are on one logarithmic axis, with a mark per length that is larger for longer
//! sequences: where the marks coincide, cost is linear. A mixer that is not implemented has no marks.

use super::tracking::TrackingClaim;
use super::{MixerRow, Timing};
use rung_figure::Evidence;
use rung_figure::figure::axis::{self, Axis};
use rung_figure::figure::csv::{Csv, field};
use rung_figure::figure::palette::{self, Colour, GRID, MUTED, TEXT_COLOUR};
use rung_figure::figure::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};
use rung_figure::figure::{Chart, Scale};

/// The table of all mixers.
#[derive(Clone, Debug, PartialEq)]
pub struct MixerTable {
    /// The rows, in the order in which they are shown.
    pub rows: Vec<MixerRow>,
    /// The lengths and repetitions of the measurements.
    pub timing: Timing,
}

/// Width of the figure in pixels.
const WIDTH: f64 = 1130.0;
/// Height of a row.
const ROW_HEIGHT: f64 = 20.0;
/// Vertical position of the first row.
const TOP: f64 = 76.0;
/// Size of the text.
const FONT_SIZE: f64 = 11.0;
// Horizontal positions of columns in pixels: where text starts, or where numbers end.
const NAME: f64 = 16.0;
const STATE_SIZE: f64 = 205.0;
const GROWTH: f64 = 220.0;
const COST: f64 = 325.0;
const PLOT: (f64, f64) = (435.0, 690.0);
const EXPONENT: f64 = 735.0;
const HOP_CONTRIBUTION: f64 = 760.0;
const PARITY: f64 = 870.0;
const PERMUTATIONS: f64 = 1000.0;

impl MixerTable {
    fn speeds(&self) -> impl Iterator<Item = f64> {
        self.rows.iter().filter_map(|row| row.speed.as_ref()).flat_map(|speed| speed.tokens_per_second.iter().copied())
    }

    fn draw_header(&self, svg: &mut Svg) {
        svg.text((NAME, 26.0), self.title(), &TextStyle::new(15.0).bold());
        let lengths: Vec<String> = self.timing.lengths.iter().map(ToString::to_string).collect();
        let speed = format!("tokens/s at {} tokens", lengths.join(", "));
        let bold = TextStyle::new(FONT_SIZE).bold();
        let columns = [
            (NAME, "mixer", None, Anchor::Start),
            (STATE_SIZE, "state", Some(Evidence::Proved), Anchor::End),
            (GROWTH, "growth", Some(Evidence::Proved), Anchor::Start),
            (COST, "cost", Some(Evidence::Proved), Anchor::Start),
            (PLOT.0, &speed, Some(Evidence::Measured), Anchor::Start),
            (EXPONENT, "n^", Some(Evidence::Measured), Anchor::End),
            (HOP_CONTRIBUTION, "hop contribution", Some(Evidence::Proved), Anchor::Start),
            (PARITY, "parity", None, Anchor::Start),
            (PERMUTATIONS, "S3", None, Anchor::Start),
        ];
        for (x, name, evidence, anchor) in columns {
            svg.text((x, TOP - 24.0), name, &bold.anchored(anchor));
            let Some(evidence) = evidence else { continue };
            let evidence_style = TextStyle::new(9.5).coloured(palette::evidence_colour(evidence)).anchored(anchor);
            svg.text((x, TOP - 11.0), evidence.label(), &evidence_style);
        }
    }

    fn draw_row(&self, svg: &mut Svg, row: &MixerRow, y: f64, speed_axis: &Axis) {
        let baseline = y + ROW_HEIGHT / 2.0 + FONT_SIZE * 0.36;
        let style = TextStyle::new(FONT_SIZE);
        let mut write = |x: f64, text: &str, style: &TextStyle| svg.text((x, baseline), text, style);
        write(NAME, row.mixer.name(), &style.bold());
        write(STATE_SIZE, &row.state_size().to_string(), &style.anchored(Anchor::End));
        write(GROWTH, row.growth().as_deref().unwrap_or("-"), &style);
        write(COST, &row.cost(), &style);
        write(HOP_CONTRIBUTION, row.hop_contribution().label(), &style);
        let exponent = row.speed.as_ref().map_or("-".to_owned(), |speed| format!("{:.2}", speed.exponent));
        write(EXPONENT, &exponent, &style.anchored(Anchor::End));
        for (x, claim) in [(PARITY, row.parity()), (PERMUTATIONS, row.permutations())] {
            write(x, &claim.to_string(), &style.coloured(claim_colour(claim)));
        }
        match &row.speed {
            Some(speed) => self.draw_speed(svg, &speed.tokens_per_second, y + ROW_HEIGHT / 2.0, speed_axis),
            None => {
                write(
                    f64::midpoint(PLOT.0, PLOT.1),
                    "not implemented",
                    &style.coloured(MUTED).anchored(Anchor::Middle),
                );
            }
        }
    }

    fn draw_speed(&self, svg: &mut Svg, speeds: &[f64], y: f64, speed_axis: &Axis) {
        let colour = palette::evidence_colour(Evidence::Measured);
        let marks: Vec<(f64, f64)> =
            speeds.iter().filter_map(|speed| speed_axis.position(*speed)).map(|x| (x, y)).collect();
        svg.polyline(&marks, &Stroke::new(colour, 1.0));
        for (index, (mark, speed)) in marks.iter().zip(speeds).enumerate() {
            let hint = format!("{speed:.0} tokens/s at {} tokens", self.timing.lengths[index]);
            svg.group(&hint, |svg| {
                let paint = Paint { fill: Some(colour), stroke: Some(Stroke::new(TEXT_COLOUR, 0.5)) };
                svg.circle(*mark, 2.0 + index as f64, &paint);
            });
        }
    }
}

fn claim_colour(claim: TrackingClaim) -> Colour {
    claim.evidence().map_or(MUTED, palette::evidence_colour)
}

impl Chart for MixerTable {
    fn title(&self) -> &'static str {
        "All mixers: what they keep, cost and track"
    }

    fn svg(&self) -> String {
        let bottom = TOP + ROW_HEIGHT * self.rows.len() as f64;
        let mut svg = Svg::new(WIDTH, bottom + 52.0);
        self.draw_header(&mut svg);
        let speed_axis = Axis::covering(Scale::Log10, self.speeds()).with_pixels(PLOT.0, PLOT.1);
        let plot = Area::new(PLOT.0, TOP, PLOT.1 - PLOT.0, bottom - TOP);
        axis::draw_bottom(&mut svg, plot, &speed_axis, &speed_axis.ticks(5), "tokens/s, one layer on one thread", true);
        for (index, row) in self.rows.iter().enumerate() {
            let y = TOP + ROW_HEIGHT * index as f64;
            svg.line((NAME, y), (WIDTH - NAME, y), &Stroke::new(GRID, 0.8));
            self.draw_row(&mut svg, row, y, &speed_axis);
        }
        svg.finish(self.title())
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new([
            "mixer",
            "crosses",
            "grows",
            "cost",
            "tokens",
            "tokens_per_s",
            "exponent",
            "credit",
            "parity",
            "s3",
        ]);
        for row in &self.rows {
            let mut line = |tokens: String, speed: f64, exponent: f64| {
                csv.row([
                    row.mixer.name().to_owned(),
                    row.state_size().to_string(),
                    row.growth().unwrap_or_default(),
                    row.cost(),
                    tokens,
                    field(speed),
                    field(exponent),
                    row.hop_contribution().label().to_owned(),
                    row.parity().to_string(),
                    row.permutations().to_string(),
                ]);
            };
            let Some(speed) = &row.speed else {
                line(String::new(), f64::NAN, f64::NAN);
                continue;
            };
            for (tokens, per_second) in self.timing.lengths.iter().zip(&speed.tokens_per_second) {
                line(tokens.to_string(), *per_second, speed.exponent);
            }
        }
        csv.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exponents::benchmark_mixer;
    use crate::zoo::{Speed, names};

    #[test]
    fn figure_and_csv_have_every_mixer() {
        let speed = |name: &str| {
            let timed = rung_nn::mixer::NAMES.contains(&name);
            timed.then(|| Speed { tokens_per_second: vec![1e6, 5e5], exponent: 1.5 })
        };
        let rows: Vec<MixerRow> =
            names().map(|name| MixerRow { mixer: benchmark_mixer(name).unwrap(), speed: speed(name) }).collect();
        let marks = rows.iter().filter(|row| row.speed.is_some()).count() * 2;
        let lines = rows.iter().map(|row| if row.speed.is_some() { 2 } else { 1 }).sum::<usize>();
        let zoo = MixerTable { rows, timing: Timing { lengths: vec![64, 128], repetitions: 1 } };
        let (svg, csv) = (zoo.svg(), zoo.csv());
        assert_eq!((svg.matches("<circle").count(), csv.lines().count()), (marks, lines + 1));
        assert!(names().all(|name| svg.contains(&format!(">{name}</text>"))));
        assert!(!svg.contains("NaN") && !csv.contains("NaN"));
    }
}
