//! Times, peak memory, and the peak FLOP/s and memory bandwidth of this machine.

use std::fs;
use std::time::Instant;

use rung_engine::{Native, Ops as _, Parameters};

/// Times of repetitions of the same work, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    /// Adds times.
    pub fn extend(&mut self, times: impl IntoIterator<Item = f64>) {
        self.0.extend(times);
    }

    /// Number of repetitions.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The median, which a few outliers do not change; NaN without times.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The mean; NaN without times.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The shortest time, which other work on the machine affects least.
    pub fn fastest(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Runs `work`; returns its milliseconds.
pub fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

/// Peak memory of this process since [`start`](PeakMemory::start).
///
/// The system has one peak per process. Where it can be reset (Linux, when `/proc` is writable), the peak is that of the work since
/// then, including memory that the process already had: a measurement can include some memory of an earlier one that the allocator
/// has not returned. Where it cannot be reset, [`start`](PeakMemory::start) returns `None`.
pub struct PeakMemory(());

impl PeakMemory {
    /// Resets the peak; `None` where the system cannot.
    pub fn start() -> Option<Self> {
        // "5" resets the peak to the current memory.
        fs::write("/proc/self/clear_refs", "5").ok().map(|()| Self(()))
    }

    /// The peak since the start, in bytes.
    pub fn bytes(&self) -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    }
}

/// Peak FLOP/s of this machine: the speed of a large matrix product on all threads, each with its own. The best of eight
/// repetitions, on the slowest thread.
///
/// # Panics
/// If a thread panics.
pub fn peak_flops(threads: usize) -> f64 {
    let small_product_flops = product_flops(threads, SMALL_SIDE);
    // A build without optimisation would take seconds for the large product, and its peak does not matter.
    if flops_of_product(LARGE_SIDE) / (small_product_flops / threads as f64) < 0.25 {
        product_flops(threads, LARGE_SIDE)
    } else {
        small_product_flops
    }
}

/// Rows and columns of the small product.
const SMALL_SIDE: usize = 256;
/// Rows and columns of the large product.
const LARGE_SIDE: usize = 1024;

fn flops_of_product(side: usize) -> f64 {
    2.0 * (side as f64).powi(3)
}

/// FLOP/s of products of square matrices on all threads.
fn product_flops(threads: usize, side: usize) -> f64 {
    let mut weights = Parameters::<f32>::new();
    let matrix = weights.add("matrix", &[side, side], vec![0.5; side * side]).id();
    let time_thread = || {
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.parameter(matrix);
        (0..8).map(|_| time(|| drop(ops.matmul(&x, &x)))).fold(f64::INFINITY, f64::min)
    };
    let slowest = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(time_thread)).collect();
        runs.into_iter().map(|run| run.join().expect("a product")).fold(0.0, f64::max)
    });
    threads as f64 * flops_of_product(side) / (slowest * 1e-3)
}

/// Memory bandwidth: bytes read and written per second by large copies on all threads, each with its own. The best of four
/// repetitions, on the slowest thread.
///
/// # Panics
/// If a thread panics.
pub fn bandwidth(threads: usize) -> f64 {
    // Larger than the caches of current machines.
    const NUMBERS: usize = 1 << 24;
    let time_thread = || {
        let (source, mut target) = (vec![1.0_f32; NUMBERS], vec![0.0_f32; NUMBERS]);
        let copy = |_| time(|| std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source)));
        (0..4).map(copy).fold(f64::INFINITY, f64::min)
    };
    let slowest = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(time_thread)).collect();
        runs.into_iter().map(|run| run.join().expect("a copy")).fold(0.0, f64::max)
    });
    (threads * 2 * NUMBERS * size_of::<f32>()) as f64 / (slowest * 1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_fastest_of_times() {
        let mut times = Times::default();
        assert!(times.median().is_nan());
        times.extend([5.0, 1.0, 90.0]);
        assert_eq!((times.median(), times.fastest(), times.count()), (5.0, 1.0, 3));
    }

    #[test]
    fn peak_memory_includes_freed_memory() {
        const SIZE: usize = 64 << 20;
        let Some(peak) = PeakMemory::start() else { return };
        let block = vec![1_u8; SIZE];
        assert!(peak.bytes().unwrap() >= SIZE as u64);
        // The block is so large that the allocator returns it to the system at once.
        drop(std::hint::black_box(block));
        assert!(peak.bytes().unwrap() >= SIZE as u64);
    }
}
