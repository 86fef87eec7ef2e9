//! Axes: scales, ticks and their labels.
//!
//! An [`Axis`] maps values to pixels and chooses its ticks. Ticks are round numbers of the scale: 1, 2 or 5 times a power of ten on a linear
//! one, whole powers on a logarithmic one. If a logarithmic range contains fewer than two whole powers, finer round numbers are used, so
//! that every axis has at least two labels.
//!
//! [`Scale::LinearThenLog`] is linear up to a knee and logarithmic beyond, and the linear part gets at least a fixed share of the length. A hop map
//! needs it: context lengths of today are below 2²⁴ tokens, bounds may begin at 2⁶⁰⁰.
//!
//! Any input gives a valid axis: no values, one value, or values that are not finite.
//!
//! ```
//! use rung_figure::figure::axis::{Axis, Scale};
//!
//! let axis = Axis::new(Scale::Linear, 0.0, 9.3).with_pixels(100.0, 500.0);
//! let labels: Vec<String> = axis.ticks(6).into_iter().map(|tick| tick.label).collect();
//! assert_eq!(labels, ["0", "2", "4", "6", "8"]);
//! assert_eq!(axis.position(0.0), Some(100.0));
//! ```

use super::palette::{GRID, MUTED, TEXT_COLOUR};
use super::svg::{Anchor, Area, Stroke, Svg, TextStyle};
use super::text;

/// Font size of tick labels.
pub const TICK_FONT_SIZE: f64 = 11.5;
/// Font size of axis titles.
pub const TITLE_FONT_SIZE: f64 = 12.5;
/// The smallest gap between two labels, in pixels.
const LABEL_GAP: f64 = 9.0;
/// The smallest share of the length of the axis for the part below the knee.
const MIN_LINEAR_FRACTION: f64 = 0.45;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Linear, for counts: only whole numbers are ticks.
    Integer,
    /// Logarithmic, with powers of two as ticks.
    Log2,
    /// Logarithmic, with powers of ten as ticks.
    Log10,
    /// Linear up to the knee, then logarithmic.
    LinearThenLog {
        /// The value at which the scale changes.
        knee: f64,
    },
}

impl Scale {
    /// Whether the scale can show the value.
    pub fn admits(self, value: f64) -> bool {
        value.is_finite() && (value > 0.0 || !matches!(self, Self::Log2 | Self::Log10))
    }
}

/// A labelled value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The value.
    pub value: f64,
    /// Its text.
    pub label: String,
}

/// A scale with its range of values and its range of pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    /// An axis from `low` to `high`. Ends that the scale cannot show, or that are equal, are moved.
    pub fn new(scale: Scale, low: f64, high: f64) -> Self {
        let (low, high) = valid_range(scale, low, high);
        Self { scale, low, high, start: 0.0, end: 1.0 }
    }

    /// An axis that contains all `values` that the scale can show, with some padding at the ends.
    pub fn covering(scale: Scale, values: impl IntoIterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|&value| scale.admits(value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        let (low, high) = valid_range(scale, low, high);
        let (low, high) = if matches!(scale, Scale::Log2 | Scale::Log10) {
            let padding = (high / low).powf(0.04);
            (low / padding, high * padding)
        } else {
            let padding = (high - low) * 0.05;
            // No padding below zero for values that cannot be negative, such as counts and shares.
            let floor = if low >= 0.0 && low < 0.35 * high { 0.0 } else { low - padding };
            (floor, high + padding)
        };
        Self::new(scale, low, high)
    }

    /// The same axis over the pixels from `start` to `end`. `end` may be smaller, as for a vertical axis.
    pub fn with_pixels(self, start: f64, end: f64) -> Self {
        Self { start, end, ..self }
    }

    /// The smallest value on the axis.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// The largest value on the axis.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// The pixel of a value, also beyond the ends; `None` if the scale cannot show it.
    pub fn position(&self, value: f64) -> Option<f64> {
        self.scale.admits(value).then(|| self.start + self.fraction(value) * (self.end - self.start))
    }

    /// The position of a value as a fraction of the length: 0 at the low end, 1 at the high end.
    fn fraction(&self, value: f64) -> f64 {
        let linear = |low: f64, value: f64, high: f64| (value - low) / (high - low);
        match self.scale {
            Scale::Linear | Scale::Integer => linear(self.low, value, self.high),
            Scale::Log2 | Scale::Log10 => linear(self.low.ln(), value.ln(), self.high.ln()),
            Scale::LinearThenLog { knee } if !self.knee_is_inside(knee) => linear(self.low, value, self.high),
            Scale::LinearThenLog { knee } => {
                let linear_fraction = MIN_LINEAR_FRACTION.max(linear(self.low, knee, self.high));
                if value <= knee {
                    linear_fraction * linear(self.low, value, knee)
                } else {
                    linear_fraction + (1.0 - linear_fraction) * linear(knee.ln(), value.ln(), self.high.ln())
                }
            }
        }
    }

    /// Whether the knee is inside the range; otherwise the whole scale is linear.
    fn knee_is_inside(&self, knee: f64) -> bool {
        knee > 0.0 && self.low < knee && knee < self.high
    }

    /// Round values along the axis, approximately at most `max`, in increasing order.
    pub fn ticks(&self, max: usize) -> Vec<Tick> {
        let max = max.max(2);
        match self.scale {
            Scale::Linear => linear_ticks(self.low, self.high, max),
            Scale::Integer => integer_ticks(self.low, self.high, max),
            Scale::Log2 => power_ticks(2, self.low, self.high, max),
            Scale::Log10 => power_ticks(10, self.low, self.high, max),
            Scale::LinearThenLog { knee } if !self.knee_is_inside(knee) => linear_ticks(self.low, self.high, max),
            Scale::LinearThenLog { knee } => linear_then_log_ticks(self.low, knee, self.high, max),
        }
    }

    /// As many ticks as fit side by side without overlap, labelled by `write`.
    pub fn ticks_that_fit(&self, max: usize, write: impl Fn(&Tick) -> String) -> Vec<Tick> {
        let labelled_ticks = |count| -> Vec<Tick> {
            self.ticks(count).into_iter().map(|tick| Tick { label: write(&tick), value: tick.value }).collect()
        };
        let fits = |ticks: &Vec<Tick>| ticks.windows(2).all(|pair| self.fit_together(&pair[0], &pair[1]));
        (3..=max.max(3))
            .rev()
            .map(labelled_ticks)
            .find(fits)
            .unwrap_or_else(|| self.without_overlaps(labelled_ticks(3)))
    }

    /// Whether the labels of two ticks do not overlap.
    fn fit_together(&self, first: &Tick, second: &Tick) -> bool {
        let half_width = |tick: &Tick| text::width(&tick.label, TICK_FONT_SIZE, false) / 2.0;
        let positions = self.position(first.value).zip(self.position(second.value));
        positions.is_some_and(|(a, b)| (b - a).abs() >= half_width(first) + half_width(second) + LABEL_GAP)
    }

    /// The ticks without those that would overlap the previous one.
    fn without_overlaps(&self, ticks: Vec<Tick>) -> Vec<Tick> {
        let mut kept_ticks: Vec<Tick> = Vec::with_capacity(ticks.len());
        for tick in ticks {
            if kept_ticks.last().is_none_or(|last| self.fit_together(last, &tick)) {
                kept_ticks.push(tick);
            }
        }
        kept_ticks
    }
}

/// A range that the scale can show, whose ends are different.
fn valid_range(scale: Scale, low: f64, high: f64) -> (f64, f64) {
    /// The difference of larger numbers may overflow.
    const LARGEST: f64 = 1e300;
    /// Smaller numbers lose digits.
    const SMALLEST: f64 = 1e-290;
    let logarithmic = matches!(scale, Scale::Log2 | Scale::Log10);
    let (low, high) = if low > high { (high, low) } else { (low, high) };
    let default = if logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
    let floor = if logarithmic { SMALLEST } else { -LARGEST };
    let low = if scale.admits(low) { low.clamp(floor, LARGEST) } else { f64::NAN };
    let high = if scale.admits(high) { high.clamp(floor, LARGEST) } else { f64::NAN };
    let (low, high) = match (low.is_nan(), high.is_nan()) {
        (true, true) => default,
        (true, false) => (if logarithmic { high / 10.0 } else { high - high.abs().max(1.0) }, high),
        (false, true) => (low, if logarithmic { low * 10.0 } else { low + low.abs().max(1.0) }),
        (false, false) => (low, high),
    };
    // Ends that are so close that labels would need more digits than a float has are moved apart.
    if high - low > 1e-9 * low.abs().max(high.abs()).max(SMALLEST) {
        (low, high)
    } else if logarithmic {
        (low / 2.0, high * 2.0)
    } else {
        let padding = (low.abs() * 0.1).max(0.5);
        (low - padding, high + padding)
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `min_step`.
fn round_step(min_step: f64) -> f64 {
    let decade = 10f64.powf(min_step.log10().floor());
    // The small excess keeps a minimum step that is itself round from being rounded up.
    [1.0, 2.0, 5.0]
        .iter()
        .map(|times| times * decade)
        .find(|step| *step >= min_step * (1.0 - 1e-9))
        .unwrap_or(10.0 * decade)
}

fn linear_ticks(low: f64, high: f64, max: usize) -> Vec<Tick> {
    // If rounding the step up leaves a single tick in the range, a finer step is used.
    let mut min_step = (high - low) / (max - 1) as f64;
    loop {
        let step = round_step(min_step);
        let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        if last > first {
            let value = |index: usize| ((first + index as f64) * step).clamp(low, high);
            let count = (last - first) as usize + 1;
            return (0..count)
                .map(|index| Tick { value: value(index), label: label(value(index), step, low, high) })
                .collect();
        }
        min_step = step / 2.5;
    }
}

/// Whole numbers only; all ticks where the range has fewer than two.
fn integer_ticks(low: f64, high: f64, max: usize) -> Vec<Tick> {
    let ticks = linear_ticks(low, high, max);
    let whole = ticks.iter().filter(|tick| tick.value.fract() == 0.0);
    let whole: Vec<Tick> =
        whole.map(|tick| Tick { value: tick.value, label: label(tick.value, 1.0, low, high) }).collect();
    if whole.len() < 2 { ticks } else { whole }
}

/// A value with as many decimals as its step needs, and with a power of ten taken out when it is very large or very
/// small.
fn label(value: f64, step: f64, low: f64, high: f64) -> String {
    let largest = low.abs().max(high.abs());
    let exponent = if (1e-4..1e6).contains(&largest) { 0 } else { largest.log10().floor() as i32 };
    let scaled = value / 10f64.powi(exponent);
    let decimals = (-(step.log10() + 1e-9).floor() + f64::from(exponent)).clamp(0.0, 17.0) as usize;
    let digits = format!("{scaled:.decimals$}");
    let digits =
        if digits.bytes().all(|byte| b"-0.".contains(&byte)) { "0".to_owned() } else { digits.replace('-', "−") };
    if exponent == 0 || digits == "0" { digits } else { format!("{digits}×{}", text::power(10, f64::from(exponent))) }
}

fn power_ticks(base: u32, low: f64, high: f64, max: usize) -> Vec<Tick> {
    let exponent = |value: f64| if base == 2 { value.log2() } else { value.log10() };
    let (first, last) = ((exponent(low) - 1e-9).ceil() as i32, (exponent(high) + 1e-9).floor() as i32);
    if last <= first {
        return short_power_ticks(base, low, high, max);
    }
    let stride = round_stride((last - first + 1) as usize, max);
    let aligned: Vec<i32> = (first..=last).filter(|power| power.rem_euclid(stride) == 0).collect();
    let powers = if aligned.len() >= 2 { aligned } else { vec![first, last] };
    let decimal_range = if base == 2 { 0..=10 } else { -3..=4 };
    let all_decimal = decimal_range.contains(&powers[0]) && decimal_range.contains(&powers[powers.len() - 1]);
    powers
        .into_iter()
        .map(|power| {
            let value = f64::from(base).powi(power).clamp(low, high);
            let label =
                if all_decimal { f64::from(base).powi(power).to_string() } else { text::power(base, f64::from(power)) };
            Tick { value, label }
        })
        .collect()
}

/// The step between exponents: 1, 2, 5, 10 and so on.
fn round_stride(count: usize, max: usize) -> i32 {
    round_step(count as f64 / max as f64).max(1.0) as i32
}

/// Ticks for a logarithmic range without two whole powers: 1, 2 and 5 times powers of ten, or else evenly spaced numbers.
fn short_power_ticks(base: u32, low: f64, high: f64, max: usize) -> Vec<Tick> {
    let decade = 10f64.powf(low.log10().floor());
    let round: Vec<f64> = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
        .iter()
        .map(|times| times * decade)
        .filter(|v| (low..=high).contains(v))
        .collect();
    if base == 10 && (3..=max).contains(&round.len()) {
        return round.into_iter().map(|value| Tick { value, label: label(value, decade, low, high) }).collect();
    }
    linear_ticks(low, high, max)
}

fn linear_then_log_ticks(low: f64, knee: f64, high: f64, max: usize) -> Vec<Tick> {
    let linear_count = (max / 2).max(2);
    let min_step = (knee - low) / linear_count as f64;
    // Values on this scale are usually exponents, so steps are powers of two.
    let step = [1.0, 2.0, 4.0, 8.0].into_iter().find(|step| *step >= min_step).unwrap_or_else(|| round_step(min_step));
    let first = (low / step).ceil() * step;
    let linear = (0..=max).map(|index| first + index as f64 * step).take_while(|&value| value <= knee);
    let linear = linear.map(|value| Tick { value, label: label(value, step, low, knee) });
    let doublings: Vec<i32> =
        (0..1000).filter(|&power| 2f64.powi(power) > knee * 1.2 && 2f64.powi(power) <= high).collect();
    let stride = doublings.len().div_ceil((max - max / 2).max(1)).max(1);
    let powers_of_two = doublings.into_iter().step_by(stride).map(|power| Tick {
        value: 2f64.powi(power),
        label: if power < 20 { 2f64.powi(power).to_string() } else { text::power(2, f64::from(power)) },
    });
    let ticks: Vec<Tick> = linear.chain(powers_of_two).collect();
    if ticks.len() < 2 { linear_ticks(low, high, max) } else { ticks }
}

/// Draws a horizontal axis along the lower edge of `plot`, with grid lines through it and the title below.
pub fn draw_bottom(svg: &mut Svg, plot: Area, axis: &Axis, ticks: &[Tick], title: &str, grid: bool) {
    let style = TextStyle::new(TICK_FONT_SIZE).coloured(MUTED).anchored(Anchor::Middle);
    let bottom = plot.bottom();
    for tick in ticks {
        let Some(x) = axis.position(tick.value) else { continue };
        if grid {
            svg.line((x, plot.y), (x, bottom), &Stroke::new(GRID, 1.0));
        }
        svg.line((x, bottom), (x, bottom + 4.0), &Stroke::new(MUTED, 1.0));
        svg.text((x, bottom + 17.0), &tick.label, &style);
    }
    svg.line((plot.x, bottom), (plot.right(), bottom), &Stroke::new(TEXT_COLOUR, 1.0));
    let middle = f64::midpoint(plot.x, plot.right());
    svg.text((middle, bottom + 39.0), title, &TextStyle::new(TITLE_FONT_SIZE).anchored(Anchor::Middle));
}

/// Draws a vertical axis along the left edge of `plot`, with grid lines through it and the title reading upwards.
pub fn draw_left(svg: &mut Svg, plot: Area, axis: &Axis, ticks: &[Tick], title: &str, grid: bool) {
    let style = TextStyle::new(TICK_FONT_SIZE).coloured(MUTED).anchored(Anchor::End);
    for tick in ticks {
        let Some(y) = axis.position(tick.value) else { continue };
        if grid {
            svg.line((plot.x, y), (plot.right(), y), &Stroke::new(GRID, 1.0));
            svg.line((plot.x - 4.0, y), (plot.x, y), &Stroke::new(MUTED, 1.0));
        }
        svg.text((plot.x - 8.0, y + TICK_FONT_SIZE * 0.36), &tick.label, &style);
    }
    svg.line((plot.x, plot.y), (plot.x, plot.bottom()), &Stroke::new(TEXT_COLOUR, 1.0));
    let middle = f64::midpoint(plot.y, plot.bottom());
    let style = TextStyle::new(TITLE_FONT_SIZE).anchored(Anchor::Middle).upwards();
    svg.text((plot.x - label_width(ticks) - 8.0, middle), title, &style);
}

/// The width of the labels of a vertical axis, with their distance from the axis.
pub fn label_width(ticks: &[Tick]) -> f64 {
    ticks.iter().map(|tick| text::width(&tick.label, TICK_FONT_SIZE, false)).fold(0.0, f64::max) + 12.0
}

/// The width of a vertical axis with labels and title.
pub fn left_width(ticks: &[Tick]) -> f64 {
    label_width(ticks) + 8.0 + TITLE_FONT_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scales() -> impl Strategy<Value = Scale> {
        prop_oneof![
            Just(Scale::Linear),
            Just(Scale::Integer),
            Just(Scale::Log2),
            Just(Scale::Log10),
            (1.0..100.0f64).prop_map(|knee| Scale::LinearThenLog { knee }),
        ]
    }

    fn check_ticks(axis: &Axis, max: usize) -> Result<(), TestCaseError> {
        let ticks = axis.ticks(max);
        prop_assert!(ticks.len() >= 2, "{axis:?} has {ticks:?}");
        prop_assert!(ticks.len() <= 2 * max + 1, "{axis:?} has {} ticks, {max} wanted", ticks.len());
        prop_assert!(
            ticks.iter().all(|tick| axis.low() <= tick.value && tick.value <= axis.high()),
            "{axis:?}: {ticks:?}"
        );
        prop_assert!(ticks.windows(2).all(|pair| pair[0].value < pair[1].value), "{axis:?}: {ticks:?}");
        prop_assert!(ticks.windows(2).all(|pair| pair[0].label != pair[1].label), "{axis:?}: {ticks:?}");
        Ok(())
    }

    proptest! {
        #[test]
        fn ticks_are_inside_the_range_increasing_and_differently_labelled(
            scale in scales(), low in -1e6..1e6f64, width in 1e-3..1e6f64, max in 2usize..15,
        ) {
            check_ticks(&Axis::new(scale, low, low + width), max)?;
        }

        #[test]
        fn ticks_of_positive_ranges_of_any_size_are_valid(scale in scales(), low in -200.0..200.0f64, decades in 0.001..90.0f64, max in 2usize..15) {
            let low = 10f64.powf(low);
            check_ticks(&Axis::new(scale, low, low * 10f64.powf(decades)), max)?;
        }

        #[test]
        fn any_two_numbers_give_an_axis_with_ticks_on_it(scale in scales(), low: f64, high: f64) {
            let axis = Axis::new(scale, low, high).with_pixels(0.0, 100.0);
            prop_assert!(axis.low() < axis.high());
            for tick in axis.ticks(8) {
                let pixel = axis.position(tick.value);
                prop_assert!(pixel.is_some_and(|pixel| (-0.01..=100.01).contains(&pixel)), "{axis:?}: {tick:?} at {pixel:?}");
            }
        }

        #[test]
        fn positions_increase_with_values(scale in scales(), high in 2.0..1e4f64, a in 0.001..0.9f64, step in 1e-6..0.1f64) {
            let axis = Axis::new(scale, 0.001, high).with_pixels(0.0, 1000.0);
            prop_assert!(axis.position(a * high) < axis.position((a + step) * high));
        }

        #[test]
        fn ticks_that_fit_have_labels_that_do_not_overlap(scale in scales(), low in 0.1..10.0f64, width in 1.0..1e5f64) {
            let axis = Axis::new(scale, low, low + width).with_pixels(0.0, 640.0);
            let ticks = axis.ticks_that_fit(10, |tick| tick.label.clone());
            for pair in ticks.windows(2) {
                let half = |tick: &Tick| text::width(&tick.label, TICK_FONT_SIZE, false) / 2.0;
                let gap = axis.position(pair[1].value).unwrap() - axis.position(pair[0].value).unwrap();
                prop_assert!(gap > half(&pair[0]) + half(&pair[1]), "{axis:?}: {pair:?}");
            }
        }

        #[test]
        fn a_covering_axis_contains_all_values(scale in scales(), values in prop::collection::vec(0.01..1e6f64, 0..20)) {
            let axis = Axis::covering(scale, values.iter().copied().chain([f64::NAN, f64::INFINITY]));
            prop_assert!(values.iter().all(|value| axis.low() <= *value && *value <= axis.high()));
        }
    }

    fn labels(axis: Axis, max: usize) -> Vec<String> {
        axis.ticks(max).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn labels_are_round_and_short() {
        assert_eq!(
            labels(Axis::new(Scale::Linear, 0.0, 1.0), 6),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"].map(|l| if l == "0.0" { "0" } else { l })
        );
        assert_eq!(labels(Axis::new(Scale::Integer, -0.25, 4.25), 10), ["0", "1", "2", "3", "4"]);
        assert_eq!(labels(Axis::new(Scale::Linear, -10.0, 10.0), 5), ["−10", "−5", "0", "5", "10"]);
        assert_eq!(labels(Axis::new(Scale::Log10, 0.1, 1000.0), 8), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(labels(Axis::new(Scale::Log2, 1.0, 1024.0), 6), ["1", "4", "16", "64", "256", "1024"]);
        assert_eq!(labels(Axis::new(Scale::Log10, 1.0, 1e12), 7), ["10⁰", "10²", "10⁴", "10⁶", "10⁸", "10¹⁰", "10¹²"]);
        assert_eq!(labels(Axis::new(Scale::Linear, 0.0, 3e9), 4), ["0", "1×10⁹", "2×10⁹", "3×10⁹"]);
        assert_eq!(
            labels(Axis::new(Scale::LinearThenLog { knee: 24.0 }, 0.0, 600.0), 12),
            ["0", "4", "8", "12", "16", "20", "24", "32", "64", "128", "256", "512"]
        );
    }

    #[test]
    fn a_linear_then_log_axis_gives_its_linear_part_a_minimum_share() {
        let axis = Axis::new(Scale::LinearThenLog { knee: 24.0 }, 0.0, 5000.0).with_pixels(0.0, 100.0);
        assert!(axis.position(24.0).unwrap() >= 44.9);
        let short = Axis::new(Scale::LinearThenLog { knee: 24.0 }, 0.0, 26.0).with_pixels(0.0, 100.0);
        assert!(short.position(24.0).unwrap() > 90.0);
    }
}
