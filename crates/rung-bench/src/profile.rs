//! Where the time of a training step goes: a table of operations that adds up to the step.
//!
//! The step is `train whole` of the benchmark. The time of an operation is the mean over threads; what the threads spend outside of
//! operations (zeroing and adding up gradients, waiting for each other) and the optimizer have rows of their own.

use std::path::Path;

use rung_engine::OperationProfile;
use rung_nn::families::{self, decode::CheckpointDecoder};

use super::checkpoint::Workload;
use super::measure::{Times, bandwidth, limit};
use super::train::{PROFILED, Training};
use super::{BenchError, CaseFilter, SIZES, Size, canonical};

/// One row: an operation in one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// The operation.
    pub operation: &'static str,
    /// `forward`, `backward`, or nothing for what is done once a step.
    pub pass: &'static str,
    /// Calls in a step, on all threads together.
    pub calls: f64,
    /// Milliseconds of a step.
    pub milliseconds: f64,
    /// Floating-point operations in a step.
    pub flops: f64,
    /// Bytes in a step.
    pub bytes: f64,
}

/// The profile of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProfile {
    /// The mixer.
    pub mixer: &'static str,
    /// The shape.
    pub shape: &'static str,
    /// Milliseconds of a step, the mean of those profiled.
    pub milliseconds: f64,
    /// The rows, which add up to it, the longest first.
    pub rows: Vec<ProfileRow>,
    /// FLOP/s of a large matrix product on all threads.
    pub peak: f64,
    /// Bytes per second of large copies on all threads.
    pub bandwidth: f64,
}

impl StepProfile {
    /// Milliseconds that the machine needs for the step at least: all products at its peak, and then the optimizer at its memory
    /// bandwidth, which cannot start before the last gradient.
    pub fn bound(&self) -> f64 {
        let flops: f64 = self.rows.iter().map(|row| row.flops).sum();
        let once: f64 = self.rows.iter().filter(|row| row.pass.is_empty()).map(|row| row.bytes).sum();
        1e3 * (flops / self.peak + once / self.bandwidth)
    }
}

/// The steps that a choice leaves.
///
/// # Errors
/// A name is unknown.
pub fn steps(choice: &CaseFilter) -> Result<Vec<(&'static str, Size)>, BenchError> {
    let (mixer, shape) = (choice.mixer.as_deref().map(canonical), choice.shape.as_deref());
    let unknown = |option, found: &str, known: Vec<&str>| BenchError::Unknown {
        option,
        found: found.to_owned(),
        known: known.join(", "),
    };
    let all: Vec<_> = PROFILED.iter().flat_map(|&mixer| SIZES.map(|size| (mixer, size))).collect();
    if let Some(found) = mixer.filter(|mixer| !PROFILED.contains(mixer)) {
        return Err(unknown("--mixer", found, PROFILED.to_vec()));
    }
    if let Some(found) = shape.filter(|shape| SIZES.iter().all(|size| size.name != *shape)) {
        return Err(unknown("--shape", found, SIZES.map(|size| size.name).to_vec()));
    }
    let wanted = |(name, size): &(&str, Size)| {
        mixer.is_none_or(|mixer| mixer == *name) && shape.is_none_or(|shape| shape == size.name)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// Profiles some steps.
///
/// # Errors
/// A step meets a number that is not finite.
pub fn profile(mixer: &'static str, size: Size, threads: usize, repetitions: usize) -> Result<StepProfile, BenchError> {
    let mut training = Training::new(mixer, size, true, threads)?;
    for _ in 0..super::WARM_UP {
        training.step()?;
    }
    training.start_profile();
    let (mut steps, mut updates) = (Times::default(), Times::default());
    for _ in 0..repetitions {
        let (passes, update) = training.timed_step()?;
        steps.extend([passes + update]);
        updates.extend([update]);
    }
    let repeated = repetitions as f64;
    let mut rows = Vec::new();
    for row in training.take_profile().into_iter().flatten() {
        add(&mut rows, &row, threads as f64, repeated);
    }
    let (milliseconds, update) = (steps.mean(), updates.mean());
    let inside: f64 = rows.iter().map(|row: &ProfileRow| row.milliseconds).sum();
    let weights = (training.weight_count() * size_of::<f32>()) as f64;
    let once = |operation, milliseconds, bytes| ProfileRow {
        operation,
        pass: "",
        calls: 1.0,
        milliseconds,
        flops: 0.0,
        bytes,
    };
    // The update reads weights, gradients and two moments, and writes all but the gradients; the gradients of each thread are read
    // and their sum is written.
    rows.push(once("optimizer", update, 7.0 * weights));
    rows.push(once("gradients and waiting", milliseconds - inside - update, (threads as f64 + 1.0) * weights));
    rows.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    Ok(StepProfile { mixer, shape: size.name, milliseconds, rows, peak: limit(threads), bandwidth: bandwidth(threads) })
}

/// Profiles prefill and decoding of a checkpoint. Operations that no gradient passes through are not counted, so the rows have times
/// alone.
///
/// # Errors
/// The checkpoint cannot be read, or has fewer than a thousand tokens.
pub fn checkpoint(path: &Path, threads: usize, repetitions: usize) -> Result<Vec<StepProfile>, BenchError> {
    let checkpoint = families::open(path).map_err(Box::new)?;
    let (peak, bandwidth) = (limit(threads), bandwidth(threads));
    let one = |work: Workload| {
        let mut decoder = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, threads);
        for _ in 0..super::WARM_UP {
            work.run(&mut decoder)?;
        }
        let (mut times, mut rows) = (Times::default(), Vec::new());
        for _ in 0..repetitions {
            decoder.executor().start_profile();
            times.extend([work.run(&mut decoder)?]);
            for row in decoder.executor().take_profile() {
                add(&mut rows, &row, 1.0, (repetitions * work.passes()) as f64);
            }
        }
        let milliseconds = times.mean();
        rows.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        Ok(StepProfile { mixer: "checkpoint", shape: work.name(), milliseconds, rows, peak, bandwidth })
    };
    Workload::ALL.into_iter().map(one).collect()
}

/// Adds one thread's row of all repetitions to the rows of a step.
fn add(rows: &mut Vec<ProfileRow>, more: &OperationProfile, threads: f64, repeated: f64) {
    let OperationProfile { operation, pass, calls, seconds, flops, bytes } = *more;
    let index = rows.iter().position(|row| row.operation == operation && row.pass == pass).unwrap_or_else(|| {
        rows.push(ProfileRow { operation, pass, calls: 0.0, milliseconds: 0.0, flops: 0.0, bytes: 0.0 });
        rows.len() - 1
    });
    let row = &mut rows[index];
    row.calls += calls as f64 / repeated;
    row.milliseconds += 1e3 * seconds / threads / repeated;
    row.flops += flops / repeated;
    row.bytes += bytes / repeated;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_add_up_to_the_step_and_count_the_arithmetic_of_the_model() {
        let size = Size { name: "tiny", batch: 4, length: 64, width: 32, heads: 2, layers: 2 };
        for mixer in PROFILED {
            let profile = profile(mixer, size, 2, 2).unwrap();
            let sum: f64 = profile.rows.iter().map(|row| row.milliseconds).sum();
            assert!((sum - profile.milliseconds).abs() < 1e-6 * sum, "{mixer}: {sum} of {}", profile.milliseconds);
            assert!(profile.bound() > 0.0 && profile.rows.iter().any(|row| row.operation == "optimizer"), "{mixer}");
            let flops: f64 = profile.rows.iter().map(|row| row.flops).sum();
            // The benchmark's own count leaves out the output head, and counts the chunked form of a recurrence.
            let counted = Training::new(mixer, size, true, 2).unwrap().operations();
            assert!((0.7..1.4).contains(&(flops / counted)), "{mixer}: {flops} beside {counted}");
        }
    }

    #[test]
    fn a_profile_has_only_mixers_and_shapes_that_exist() {
        let filter = |mixer: &str, shape: &str| CaseFilter {
            only: None,
            mixer: Some(mixer.to_owned()),
            shape: Some(shape.to_owned()),
        };
        assert_eq!(steps(&filter("softmax", "M")).unwrap().len(), 1);
        assert!(steps(&filter("gdm", "M")).is_err() && steps(&filter("full", "XL")).is_err());
        assert_eq!(steps(&CaseFilter::default()).unwrap().len(), 9);
    }
}
