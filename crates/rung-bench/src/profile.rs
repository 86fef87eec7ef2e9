//! The time of a training step by operation: a table whose rows add up to the step.
//!
//! The step is the benchmark's `train whole`, which puts all positions through the last MLP. The time of an operation is the mean over threads. The optimizer has a row of its
//! own, and so has the time outside of operations: zeroing and adding up gradients, and waiting for other threads.

use std::path::Path;

use rung_engine::OperationProfile;
use rung_nn::Network;
use rung_nn::families::decode::CheckpointDecoder;

use super::checkpoint::Workload;
use super::measure::{Times, bandwidth, peak_flops};
use super::train::{PROFILED_MIXERS, Training};
use super::{BenchError, CaseFilter, SIZES, Size, canonical};

/// One row of a profile: an operation in one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Name of the operation.
    pub operation: &'static str,
    /// `forward`, `backward`, or empty for work outside of both passes.
    pub pass: &'static str,
    /// Calls per step, on all threads together.
    pub calls: f64,
    /// Milliseconds per step.
    pub milliseconds: f64,
    /// Floating-point operations per step.
    pub flops: f64,
    /// Bytes read and written per step.
    pub bytes: f64,
}

/// The profile of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProfile {
    /// Name of the mixer.
    pub mixer: &'static str,
    /// Name of the shape.
    pub shape: &'static str,
    /// Mean milliseconds of a step.
    pub milliseconds: f64,
    /// The rows, the longest first; their times add up to that of the step.
    pub rows: Vec<ProfileRow>,
    /// FLOP/s of a large matrix product on all threads.
    pub peak_flops: f64,
    /// Bytes per second of large copies on all threads.
    pub bandwidth: f64,
}

impl StepProfile {
    /// A lower bound on the milliseconds of a step: all products at peak FLOP/s, then the optimizer at full memory bandwidth.
    pub fn lower_bound_ms(&self) -> f64 {
        let flops: f64 = self.rows.iter().map(|row| row.flops).sum();
        let bytes_after_passes: f64 = self.rows.iter().filter(|row| row.pass.is_empty()).map(|row| row.bytes).sum();
        1e3 * (flops / self.peak_flops + bytes_after_passes / self.bandwidth)
    }
}

/// The mixers and shapes that a filter selects.
///
/// # Errors
/// A name is unknown.
pub fn select_steps(filter: &CaseFilter) -> Result<Vec<(&'static str, Size)>, BenchError> {
    let (mixer, shape) = (filter.mixer.as_deref().map(canonical), filter.shape.as_deref());
    let unknown = |option, found: &str, known: Vec<&str>| BenchError::Unknown {
        option,
        found: found.to_owned(),
        known: known.join(", "),
    };
    let all: Vec<_> = PROFILED_MIXERS.iter().flat_map(|&mixer| SIZES.map(|size| (mixer, size))).collect();
    if let Some(found) = mixer.filter(|mixer| !PROFILED_MIXERS.contains(mixer)) {
        return Err(unknown("--mixer", found, PROFILED_MIXERS.to_vec()));
    }
    if let Some(found) = shape.filter(|shape| SIZES.iter().all(|size| size.name != *shape)) {
        return Err(unknown("--shape", found, SIZES.map(|size| size.name).to_vec()));
    }
    let is_selected = |(name, size): &(&str, Size)| {
        mixer.is_none_or(|mixer| mixer == *name) && shape.is_none_or(|shape| shape == size.name)
    };
    Ok(all.into_iter().filter(is_selected).collect())
}

/// Profiles training steps.
///
/// # Errors
/// A step has a number that is not finite.
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
    let repetition_count = repetitions as f64;
    let mut rows = Vec::new();
    for thread_row in training.take_profile().into_iter().flatten() {
        add_row(&mut rows, &thread_row, threads as f64, repetition_count);
    }
    let (milliseconds, update) = (steps.mean(), updates.mean());
    let operation_time: f64 = rows.iter().map(|row: &ProfileRow| row.milliseconds).sum();
    let weight_bytes = (training.weight_count() * size_of::<f32>()) as f64;
    let row_outside_passes = |operation, milliseconds, bytes| ProfileRow {
        operation,
        pass: "",
        calls: 1.0,
        milliseconds,
        flops: 0.0,
        bytes,
    };
    // The update reads weights, gradients and two moments, and writes all but the gradients; the gradients of each thread are read
    // and their sum is written.
    rows.push(row_outside_passes("optimizer", update, 7.0 * weight_bytes));
    let remaining_time = milliseconds - operation_time - update;
    rows.push(row_outside_passes("gradients and waiting", remaining_time, (threads as f64 + 1.0) * weight_bytes));
    rows.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    Ok(StepProfile {
        mixer,
        shape: size.name,
        milliseconds,
        rows,
        peak_flops: peak_flops(threads),
        bandwidth: bandwidth(threads),
    })
}

/// Profiles prefill and decoding of a checkpoint. FLOPs and bytes are counted only where gradients are recorded, so the rows have only
/// times.
///
/// # Errors
/// The checkpoint cannot be read, or has fewer than a thousand tokens.
pub fn profile_checkpoint(path: &Path, threads: usize, repetitions: usize) -> Result<Vec<StepProfile>, BenchError> {
    let checkpoint = Network::open(path).map_err(Box::new)?;
    let (peak_flops, bandwidth) = (peak_flops(threads), bandwidth(threads));
    let profile_workload = |workload: Workload| {
        let mut decoder = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, threads);
        for _ in 0..super::WARM_UP {
            workload.run(&mut decoder)?;
        }
        let (mut times, mut rows) = (Times::default(), Vec::new());
        for _ in 0..repetitions {
            decoder.executor().start_profile();
            times.extend([workload.run(&mut decoder)?]);
            for row in decoder.executor().take_profile() {
                add_row(&mut rows, &row, 1.0, (repetitions * workload.passes()) as f64);
            }
        }
        let milliseconds = times.mean();
        rows.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        Ok(StepProfile { mixer: "checkpoint", shape: workload.name(), milliseconds, rows, peak_flops, bandwidth })
    };
    Workload::ALL.into_iter().map(profile_workload).collect()
}

/// Adds one thread's row, summed over all repetitions, to the rows of a step.
fn add_row(rows: &mut Vec<ProfileRow>, thread_row: &OperationProfile, threads: f64, repetitions: f64) {
    let OperationProfile { operation, pass, calls, seconds, flops, bytes } = *thread_row;
    let index = rows.iter().position(|row| row.operation == operation && row.pass == pass).unwrap_or_else(|| {
        rows.push(ProfileRow { operation, pass, calls: 0.0, milliseconds: 0.0, flops: 0.0, bytes: 0.0 });
        rows.len() - 1
    });
    let row = &mut rows[index];
    row.calls += calls as f64 / repetitions;
    row.milliseconds += 1e3 * seconds / threads / repetitions;
    row.flops += flops / repetitions;
    row.bytes += bytes / repetitions;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_rows_add_up_to_the_time_and_flops_of_the_step() {
        let size = Size { name: "tiny", batch: 4, length: 64, width: 32, heads: 2, layers: 2 };
        for mixer in PROFILED_MIXERS {
            let profile = profile(mixer, size, 2, 2).unwrap();
            let sum: f64 = profile.rows.iter().map(|row| row.milliseconds).sum();
            assert!((sum - profile.milliseconds).abs() < 1e-6 * sum, "{mixer}: {sum} of {}", profile.milliseconds);
            assert!(
                profile.lower_bound_ms() > 0.0 && profile.rows.iter().any(|row| row.operation == "optimizer"),
                "{mixer}"
            );
            let flops: f64 = profile.rows.iter().map(|row| row.flops).sum();
            // `flops_per_step` leaves out the output head, and counts the chunked form of a recurrence.
            let expected = Training::new(mixer, size, true, 2).unwrap().flops_per_step();
            assert!((0.7..1.4).contains(&(flops / expected)), "{mixer}: {flops} and {expected}");
        }
    }

    #[test]
    fn select_steps_rejects_unknown_mixers_and_shapes() {
        let filter = |mixer: &str, shape: &str| CaseFilter {
            only: None,
            mixer: Some(mixer.to_owned()),
            shape: Some(shape.to_owned()),
        };
        assert_eq!(select_steps(&filter("softmax", "M")).unwrap().len(), 1);
        assert!(select_steps(&filter("gdm", "M")).is_err() && select_steps(&filter("full", "XL")).is_err());
        assert_eq!(select_steps(&CaseFilter::default()).unwrap().len(), 9);
    }
}
