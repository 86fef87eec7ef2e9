//! Clocks, memory, and the arithmetic limit that speeds are set against.

use std::fs;
use std::time::Instant;

use rung_engine::{Native, Ops as _, Parameters};

/// Times of the same work done several times, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    /// Adds more.
    pub fn extend(&mut self, times: impl IntoIterator<Item = f64>) {
        self.0.extend(times);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The middle one, which a few disturbed ones do not move. Not a number if there is none.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The mean. Not a number if there is none.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The shortest, which other work on the machine disturbs least.
    pub fn fastest(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Milliseconds of some work.
pub fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

/// The peak of this process's memory from here on.
///
/// The system keeps one peak per process. Where it lets that be set back (Linux, when `/proc` is writable), the peak is of what
/// ran since, together with what the process held already: rows measured later can carry a little of earlier ones that the
/// allocator has kept. Where it does not, there is no figure, rather than one that belongs to another row.
pub struct Peak(());

impl Peak {
    /// Starts anew.
    pub fn start() -> Option<Self> {
        // "5" sets the peak back to what is held now.
        fs::write("/proc/self/clear_refs", "5").ok().map(|()| Self(()))
    }

    /// Bytes at the peak so far.
    pub fn bytes(&self) -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    }
}

/// The arithmetic limit: floating-point operations per second of a large product on all threads, each with its own. The best
/// of eight, and of the slowest thread.
///
/// # Panics
/// If a thread does.
pub fn limit(threads: usize) -> f64 {
    let small = speed(threads, SMALL);
    // A build without optimisation would take seconds for the large one, and has no limit to speak of.
    if operations(LARGE) / (small / threads as f64) < 0.25 { speed(threads, LARGE) } else { small }
}

/// Rows and columns of the products.
const SMALL: usize = 256;
const LARGE: usize = 1024;

fn operations(side: usize) -> f64 {
    2.0 * (side as f64).powi(3)
}

fn speed(threads: usize, side: usize) -> f64 {
    let mut weights = Parameters::<f32>::new();
    let matrix = weights.add("matrix", &[side, side], vec![0.5; side * side]).id();
    let run = || {
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.parameter(matrix);
        (0..8).map(|_| time(|| drop(ops.matmul(&x, &x)))).fold(f64::INFINITY, f64::min)
    };
    let slowest = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        runs.into_iter().map(|run| run.join().expect("a product")).fold(0.0, f64::max)
    });
    threads as f64 * operations(side) / (slowest * 1e-3)
}

/// Memory bandwidth: bytes per second, read and written, of large copies on all threads, each with its own. The best of four, and of
/// the slowest thread.
///
/// # Panics
/// If a thread does.
pub fn bandwidth(threads: usize) -> f64 {
    // Larger than the caches of the machines that we know.
    const NUMBERS: usize = 1 << 24;
    let run = || {
        let (from, mut to) = (vec![1.0_f32; NUMBERS], vec![0.0_f32; NUMBERS]);
        let copy = |_| time(|| std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from)));
        (0..4).map(copy).fold(f64::INFINITY, f64::min)
    };
    let slowest = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        runs.into_iter().map(|run| run.join().expect("a copy")).fold(0.0, f64::max)
    });
    (threads * 2 * NUMBERS * size_of::<f32>()) as f64 / (slowest * 1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_fastest() {
        let mut times = Times::default();
        assert!(times.median().is_nan());
        times.extend([5.0, 1.0, 90.0]);
        assert_eq!((times.median(), times.fastest(), times.count()), (5.0, 1.0, 3));
    }

    #[test]
    fn a_peak_remembers_what_was_held() {
        const HELD: usize = 64 << 20;
        let Some(peak) = Peak::start() else { return };
        let held = vec![1_u8; HELD];
        assert!(peak.bytes().unwrap() >= HELD as u64);
        // The block is large enough to go back to the system at once.
        drop(std::hint::black_box(held));
        assert!(peak.bytes().unwrap() >= HELD as u64);
    }
}
