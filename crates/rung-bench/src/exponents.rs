//! How cost grows with the sequence length.
//!
//! The *exponent* of a mixer is the slope of log time against log length for the forward pass of one layer: about 1 for
//! recurrences and windows, and towards 2 for full attention, whose projections still dominate at short lengths. The *step* is
//! the time of one more token from the state after many tokens: the same at every position for a mixer with bounded state. Layers
//! are narrow, so that the cost in the length dominates, and run on one thread.

use rung_engine::{Native, Ops as _, Parameters};
use rung_nn::{BuildSettings, Builtin, ParamBuilder, State, TokenMixer as _};
use rung_theory::stack::mixer::Benchmark;
use rung_theory::stack::{Defaults, Mixer, Plan};
use rung_theory::task::seeded;

use super::measure::{Times, time};
use super::{BenchError, pseudo_random, stack_text};

/// Lengths over which the exponent is fitted.
pub const LENGTHS: [usize; 5] = [512, 1024, 2048, 4096, 8192];
/// Positions at which a step is timed.
pub const POSITIONS: [usize; 2] = [256, 8192];
/// Steps per measurement: a single one is too short for the clock.
const STEPS: usize = 64;

/// Heads of the layer.
pub const HEADS: usize = 2;
/// Width of a head.
pub const HEAD_DIM: usize = 16;
const WIDTH: usize = HEADS * HEAD_DIM;

/// One narrow layer with a mixer.
pub struct BenchLayer {
    mixer: Mixer,
    implementation: Builtin,
    weights: Parameters<f32>,
}

/// The mixer of a [`BenchLayer`], also where it is not implemented: by its name, with short blocks and windows, or as a layer with options,
/// such as `nsa{heads=8,kv=1}`.
///
/// # Errors
/// No mixer has that name, or there is more than one.
pub fn benchmark_mixer(layer: &str) -> Result<Mixer, BenchError> {
    let defaults = Defaults { heads: HEADS as u64, head_dim: HEAD_DIM as u64, ..Defaults::default() };
    let text = stack_text(layer, Benchmark::Growth(POSITIONS[0] as u64));
    let plan = Plan::parse(&text, &defaults)?;
    match &plan.layers[..] {
        [layer] if layer.mixers.len() == 1 => Ok(layer.mixers[0].clone()),
        _ => Err(BenchError::NotOneMixer(layer.to_owned())),
    }
}

impl BenchLayer {
    /// A layer with random weights.
    ///
    /// # Errors
    /// The mixer is not implemented.
    pub fn new(name: &str) -> Result<Self, BenchError> {
        let mixer = benchmark_mixer(name)?;
        let mut weights = Parameters::new();
        let settings = BuildSettings { width: WIDTH, ..BuildSettings::default() };
        let implementation = Builtin::init(&mixer, &mut ParamBuilder::new(settings, &mut weights, &mut seeded(0)))?;
        Ok(Self { mixer, implementation, weights })
    }

    /// The mixer with its options and facts.
    pub fn mixer(&self) -> &Mixer {
        &self.mixer
    }

    /// An executor with the layer's weights.
    pub fn executor(&self) -> Native<f32> {
        let ops = Native::new();
        ops.bind_frozen(&self.weights);
        ops
    }

    /// The state after `length` tokens.
    pub fn state_after(&self, ops: &Native<f32>, length: usize) -> State<rung_engine::Tensor<f32>> {
        let x = ops.constant(&[1, length, WIDTH], &pseudo_random(1, length * WIDTH, -1.0..1.0));
        self.implementation.forward(ops, &x, None).1
    }

    /// Runs one more token after a state.
    pub fn step(&self, ops: &Native<f32>, state: &State<rung_engine::Tensor<f32>>) {
        let x = ops.constant(&[1, 1, WIDTH], &[0.5; WIDTH]);
        drop(self.implementation.forward(ops, &x, Some(state)));
    }
}

/// Times of a forward pass at every length, interleaved, so that other load on the machine affects all lengths alike.
///
/// # Errors
/// The mixer is not implemented.
pub fn forward_times(name: &str, lengths: &[usize], repetitions: usize) -> Result<Vec<(usize, Times)>, BenchError> {
    let layer = BenchLayer::new(name)?;
    let ops = layer.executor();
    let mut times_by_length: Vec<(usize, Times)> = lengths.iter().map(|&length| (length, Times::default())).collect();
    for repetition in 0..=repetitions {
        for (length, times) in &mut times_by_length {
            let x = ops.constant(&[1, *length, WIDTH], &pseudo_random(1, *length * WIDTH, -1.0..1.0));
            let elapsed = time(|| drop(layer.implementation.forward(&ops, &x, None)));
            // The first repetition fills the pool of buffers.
            times.extend((repetition > 0).then_some(elapsed));
        }
    }
    Ok(times_by_length)
}

/// Times of one step after `position` tokens.
///
/// # Errors
/// The mixer is not implemented.
pub fn step_times(name: &str, position: usize, repetitions: usize) -> Result<Times, BenchError> {
    let layer = BenchLayer::new(name)?;
    let ops = layer.executor();
    let state = layer.state_after(&ops, position);
    let mut times = Times::default();
    for repetition in 0..=repetitions {
        let elapsed = time(|| (0..STEPS).for_each(|_| layer.step(&ops, &state)));
        times.extend((repetition > 0).then_some(elapsed / STEPS as f64));
    }
    Ok(times)
}

/// The exponent of the median times in the length.
pub fn exponent(times: &[(usize, Times)]) -> f64 {
    slope(times.iter().map(|(length, times)| (*length as f64, times.median())))
}

/// The slope of log y against log x, by least squares.
pub fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let logs = points.map(|(x, y)| (x.ln(), y.ln()));
    let count = logs.clone().count() as f64;
    let (x_sum, y_sum) = logs.clone().fold((0.0, 0.0), |(x_sum, y_sum), (x, y)| (x_sum + x, y_sum + y));
    let (x_mean, y_mean) = (x_sum / count, y_sum / count);
    let (covariance, variance) = logs.fold((0.0, 0.0), |(covariance, variance), (x, y)| {
        (covariance + (x - x_mean) * (y - y_mean), variance + (x - x_mean) * (x - x_mean))
    });
    covariance / variance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_of_a_power_is_its_exponent() {
        for exponent in [0.0, 1.0, 1.5, 2.0] {
            let points = LENGTHS.iter().map(|&n| (n as f64, 3e-4 * (n as f64).powf(exponent)));
            assert!((slope(points) - exponent).abs() < 1e-12);
        }
        // One outlier changes the slope only a little.
        let points = LENGTHS.iter().map(|&n| (n as f64, n as f64 * if n == 2048 { 1.5 } else { 1.0 }));
        assert!((slope(points) - 1.0).abs() < 0.1);
    }
}
