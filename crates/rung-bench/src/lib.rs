//! Benchmarks of the engine: kernels, training steps, and the growth of cost with the sequence length.
//!
//! Four sections, which `rung bench --only` selects; without it the first three run:
//!
//! - [`kernels`]: the operations that models spend their time in, forward, and forward with backward;
//! - [`train`]: training steps at three shapes;
//! - [`exponents`]: the exponent of cost in the length of the sequence, and the cost of one more token at two positions;
//! - [`checkpoint`]: an external checkpoint, compared with transformers and llama.cpp.
//!
//! [`profile`] divides the time of a training step among its operations.
//!
//! Every row of the first three has the median time of the repetitions after two warm-ups, tokens per second, the fraction of peak
//! FLOP/s, and the peak memory of the process during the measurement. FLOPs are those of products only, with a backward pass counted
//! as two forward passes. Peak FLOP/s is the speed of a large product on all threads. The speed of a machine drifts, so the peak is
//! measured at the start and again after every row that is compared with it, and the fastest measurement is used.
//!
//! # Against PyTorch and JAX
//! With peers, each row is measured interleaved with them: a few repetitions of each in turn. PyTorch is two peers, eager and
//! compiled. The ratio is the median time of the fastest peer over ours; the ratio of the fastest repetitions is shown too, since
//! other work on the machine affects it least. A row that no peer implements has no ratio.
//!
//! A training step is measured twice, because only the last token of each sequence has a loss. `train` is the step as our models
//! compute it: other tokens skip the last layer's MLP, since no loss or gradient depends on it. The peers compute it for all tokens.
//! `train whole` does that here too: the same arithmetic on both sides, so its ratio compares the engines alone.
//!
//! The gated delta rule is compared twice, because PyTorch has two ways to solve the triangular system of each chunk. `gdn` solves
//! it row by row, by forward substitution, as in the definition of the chunked form and in public PyTorch implementations.
//! `gdn_solver` calls the library's triangular solver, which is faster and which those implementations do not use. Our code is the
//! same for both. Each side has the chunk length that is best for it: 32 tokens here, 64 in the peers.
//!
//! ```
//! use rung_bench::{CaseFilter, Section, cases};
//!
//! let filter = CaseFilter { only: Some(Section::Train), shape: Some("S".to_owned()), ..CaseFilter::default() };
//! assert!(cases(&filter)?.iter().any(|case| case.mixer == "gdn"));
//! # Ok::<(), rung_bench::BenchError>(())
//! ```

pub mod checkpoint;
mod decoder;
pub mod exponents;
pub mod kernels;
pub mod measure;
pub mod peer;
pub mod profile;
pub mod train;
pub mod zoo;

use std::ops::Range;

use kernels::{KERNELS, Kernel};
use measure::{PeakMemory, Times};
use peer::Peer;
use rung_theory::stack::mixer::{self, Benchmark};
use train::Training;

/// Vocabulary size of the random tokens.
const VOCABULARY: usize = 64;
/// Tokens per chunk of a recurrence.
const CHUNK: usize = 32;
/// Repetitions of one software before the next is measured.
const INTERLEAVE: usize = 3;
/// Repetitions before the measurement, which are not counted.
const WARM_UP: usize = 2;

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No Python with PyTorch or JAX.
    #[error(
        "no Python that can import {module} was found ({tried}); name one in RUNG_PYTHON (for torch also as --against PATH), or leave {module} out of --against"
    )]
    NoPython {
        /// The Python module.
        module: &'static str,
        /// Each Python that was tried, and why it failed.
        tried: String,
    },
    /// No Python has the software for a checkpoint.
    #[error(
        "no Python that can run {software} on this checkpoint was found ({tried}); name one in RUNG_PYTHON, or leave it out of --against"
    )]
    NoSoftware {
        /// Name of the software.
        software: String,
        /// Each Python that was tried, and why it failed.
        tried: String,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] Box<rung_nn::NetworkError>),
    /// The peer failed.
    #[error("the peer failed at `{work}`: {reason}")]
    Peer {
        /// The request.
        work: String,
        /// The error.
        reason: String,
    },
    /// No case has this name.
    #[error("{option}: found `{found}`, expected one of {known}")]
    Unknown {
        /// The option on the command line.
        option: &'static str,
        /// The unknown name.
        found: String,
        /// The names that exist.
        known: String,
    },
    /// The filter selects no case.
    #[error("there is nothing to measure: {0}")]
    NothingSelected(String),
    /// A layer has more than one mixer, or there is more than one layer.
    #[error("`{0}`: expected one layer with one mixer, such as `full` or `nsa{{heads=8,kv=1}}`")]
    NotOneMixer(String),
    /// A stack could not be parsed.
    #[error(transparent)]
    Stack(#[from] rung_theory::stack::StackError),
    /// A model could not be built.
    #[error(transparent)]
    Model(#[from] rung_nn::ModelError),
    /// A step had a number that is not finite.
    #[error(transparent)]
    Step(#[from] rung_engine::StepError),
}

/// The sizes of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name on the command line.
    pub name: &'static str,
    /// Sequences per batch.
    pub batch: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Heads per layer.
    pub heads: usize,
    /// Number of layers.
    pub layers: usize,
}

/// The three sizes, selected with `--shape`.
pub const SIZES: [Size; 3] = [
    Size { name: "S", batch: 64, length: 64, width: 64, heads: 4, layers: 2 },
    Size { name: "M", batch: 32, length: 256, width: 128, heads: 4, layers: 4 },
    Size { name: "L", batch: 4, length: 1024, width: 256, heads: 8, layers: 4 },
];

impl Size {
    /// Tokens in a batch.
    pub fn tokens(self) -> f64 {
        (self.batch * self.length) as f64
    }
}

/// A section of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Single kernels.
    Kernels,
    /// Training steps.
    Train,
    /// Exponents of cost, and the cost of one more token.
    Exponents,
}

/// Which cases to measure.
#[derive(Clone, Debug, Default)]
pub struct CaseFilter {
    /// Only this section.
    pub only: Option<Section>,
    /// Only this shape.
    pub shape: Option<String>,
    /// Only this mixer or kernel.
    pub mixer: Option<String>,
}

/// The work of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseWork {
    Kernel { kernel: Kernel, size: Size, backward: bool },
    Train { size: Size, all_positions: bool },
    Exponent,
    Step { position: usize },
}

/// One row of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchCase {
    /// The mixer, or the kernel.
    pub mixer: &'static str,
    work: CaseWork,
}

impl BenchCase {
    /// The name of the work in reports and requests.
    pub fn work_name(&self) -> &'static str {
        match self.work {
            CaseWork::Kernel { backward: false, .. } => "forward",
            CaseWork::Kernel { backward: true, .. } => "forward+backward",
            CaseWork::Train { all_positions: false, .. } => "train",
            CaseWork::Train { all_positions: true, .. } => "train whole",
            CaseWork::Exponent => "exponent",
            CaseWork::Step { .. } => "step",
        }
    }

    /// The shape: `S`, `M` or `L`, the lengths of a fit, or the position of a step.
    pub fn shape(&self) -> String {
        match self.work {
            CaseWork::Kernel { size, .. } | CaseWork::Train { size, .. } => size.name.to_owned(),
            CaseWork::Exponent => format!("n={}..{}", exponents::LENGTHS[0], exponents::LENGTHS[4]),
            CaseWork::Step { position } => format!("n={position}"),
        }
    }

    /// The request for PyTorch, if it implements such work.
    fn request(&self) -> Option<String> {
        let numbers = |Size { batch, length, width, heads, layers, .. }: Size| {
            format!("{batch} {length} {width} {heads} {layers}")
        };
        match self.work {
            CaseWork::Kernel { size, .. } => Some(format!("{} {} {}", self.work_name(), self.mixer, numbers(size))),
            CaseWork::Train { size, .. } => Some(format!("train {} {}", self.mixer, numbers(size))),
            CaseWork::Exponent | CaseWork::Step { .. } => None,
        }
    }
}

/// The measurement of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The measured case.
    pub case: BenchCase,
    /// Our times.
    pub times: Times,
    /// Tokens per repetition.
    pub tokens: f64,
    /// Peak memory of the process; `None` where it cannot be measured for this case alone.
    pub peak_bytes: Option<u64>,
    /// FLOP/s over the peak of this machine; `None` for a case without products.
    pub fraction_of_peak: Option<f64>,
    /// The times of the peers that implement the case.
    pub peers: Vec<PeerMeasurement>,
    /// The exponent of cost in the length, for a case that fits one.
    pub exponent: Option<f64>,
}

/// The measurement of a peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMeasurement {
    /// Name and version of the software.
    pub software: String,
    /// The times of its repetitions.
    pub times: Times,
    /// The peak memory of its process, where the system reports it.
    pub peak_bytes: Option<u64>,
}

impl Measurement {
    /// The peer with the smallest median.
    pub fn fastest_peer(&self) -> Option<&PeerMeasurement> {
        self.peers.iter().min_by(|a, b| a.times.median().total_cmp(&b.times.median()))
    }

    /// Tokens per second at the median.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens / (self.times.median() * 1e-3)
    }

    /// The median time of the fastest peer over ours.
    pub fn ratio(&self) -> Option<f64> {
        self.fastest_peer().map(|peer| peer.times.median() / self.times.median())
    }

    /// The fastest repetition of the fastest peer over ours.
    pub fn ratio_of_fastest(&self) -> Option<f64> {
        self.fastest_peer().map(|peer| peer.times.fastest() / self.times.fastest())
    }
}

/// A running benchmark.
pub struct Bench {
    /// Threads, the same here and in the peers.
    pub threads: usize,
    /// Repetitions that are counted.
    pub repetitions: usize,
    /// FLOP/s of a large product: the most so far.
    pub peak_flops: f64,
    /// The software that cases are compared with.
    pub peers: Vec<Peer>,
}

impl Bench {
    /// Measures the peak FLOP/s and starts the peers of a list such as `torch,jax`.
    ///
    /// # Errors
    /// No Python has PyTorch or JAX.
    pub fn new(threads: usize, repetitions: usize, against: Option<&str>) -> Result<Self, BenchError> {
        let peers = against.map(|list| Peer::start_trainers(list, threads)).transpose()?.unwrap_or_default();
        Ok(Self { threads, repetitions, peak_flops: measure::peak_flops(threads), peers })
    }

    /// Measures one case.
    ///
    /// # Errors
    /// The peer fails, or a step has a number that is not finite.
    pub fn measure(&mut self, case: &BenchCase) -> Result<Measurement, BenchError> {
        let (peak_memory, threads) = (PeakMemory::start(), self.threads);
        let (mut peers, mut exponent, mut flops) = (Vec::new(), None, None);
        let (times, tokens);
        match case.work {
            CaseWork::Kernel { kernel, size, backward } => {
                let measured = kernels::measure_on_threads((kernel, size, backward), threads, |run| {
                    self.measure_interleaved(case, run)
                });
                (times, peers) = measured?;
                tokens = size.tokens();
                flops = kernel.forward_flops(size).map(|forward| forward * if backward { 3.0 } else { 1.0 });
            }
            CaseWork::Train { size, all_positions } => {
                let mut training = Training::new(case.mixer, size, all_positions, threads)?;
                (times, peers) = self.measure_interleaved(case, &mut || training.step())?;
                (tokens, flops) = (size.tokens(), Some(training.flops_per_step()));
            }
            CaseWork::Exponent => {
                let mut all = exponents::forward_times(case.mixer, &exponents::LENGTHS, self.repetitions)?;
                exponent = Some(exponents::exponent(&all));
                let (length, longest) = all.pop().unwrap_or_default();
                (times, tokens) = (longest, length as f64);
            }
            CaseWork::Step { position } => {
                times = exponents::step_times(case.mixer, position, self.repetitions)?;
                tokens = 1.0;
            }
        }
        let peak_bytes = peak_memory.and_then(|peak| peak.bytes());
        let fraction_of_peak = flops.map(|flops| {
            self.peak_flops = self.peak_flops.max(measure::peak_flops(threads));
            flops / (times.median() * 1e-3) / self.peak_flops
        });
        Ok(Measurement { case: *case, times, tokens, peak_bytes, fraction_of_peak, peers, exponent })
    }

    /// Runs our side interleaved with the peers that implement the case.
    fn measure_interleaved(
        &mut self,
        case: &BenchCase,
        run: &mut dyn FnMut() -> Result<f64, BenchError>,
    ) -> Result<(Times, Vec<PeerMeasurement>), BenchError> {
        let request = case.request().unwrap_or_default();
        for _ in 0..WARM_UP {
            run()?;
        }
        let mut peers = Vec::new();
        for peer in &mut self.peers {
            // A peer that does not implement the case returns no times.
            if peer.measure(&request, WARM_UP)?.is_some() {
                let software = peer.name_and_version.clone();
                peers.push((peer, PeerMeasurement { software, times: Times::default(), peak_bytes: None }));
            }
        }
        let mut ours = Times::default();
        while ours.count() < self.repetitions {
            let count = INTERLEAVE.min(self.repetitions - ours.count());
            for _ in 0..count {
                ours.extend([run()?]);
            }
            for (peer, measurement) in &mut peers {
                if let Some((times, peak)) = peer.measure(&request, count)? {
                    measurement.times.extend(times);
                    measurement.peak_bytes = peak;
                }
            }
        }
        Ok((ours, peers.into_iter().map(|(_, measurement)| measurement).collect()))
    }
}

/// The cases that a filter selects, in the order in which they are measured.
///
/// # Errors
/// A name is unknown, or no case is selected.
pub fn cases(filter: &CaseFilter) -> Result<Vec<BenchCase>, BenchError> {
    let mixer = filter.mixer.as_deref().map(canonical);
    let shape = filter.shape.as_deref();
    if let Some(found) = shape.filter(|shape| SIZES.iter().all(|size| size.name != *shape)) {
        let known = SIZES.map(|size| size.name).join(", ");
        return Err(BenchError::Unknown { option: "--shape", found: found.to_owned(), known });
    }
    if filter.only == Some(Section::Exponents) && shape.is_some() {
        return Err(BenchError::NothingSelected(
            "--only exponents has lengths of its own, leave --shape out".to_owned(),
        ));
    }
    let all = all_cases();
    if let Some(found) = mixer.filter(|mixer| all.iter().all(|case| case.mixer != *mixer)) {
        let mut known: Vec<&str> = all.iter().map(|case| case.mixer).collect();
        known.sort_unstable();
        known.dedup();
        return Err(BenchError::Unknown { option: "--mixer", found: found.to_owned(), known: known.join(", ") });
    }
    let is_selected = |case: &BenchCase| {
        let section = match case.work {
            CaseWork::Kernel { .. } => Section::Kernels,
            CaseWork::Train { .. } => Section::Train,
            CaseWork::Exponent | CaseWork::Step { .. } => Section::Exponents,
        };
        filter.only.is_none_or(|only| only == section)
            && mixer.is_none_or(|mixer| mixer == case.mixer)
            && shape.is_none_or(|shape| shape == case.shape())
    };
    let selected: Vec<BenchCase> = all.into_iter().filter(is_selected).collect();
    if selected.is_empty() {
        let mixer = mixer.unwrap_or_default();
        return Err(BenchError::NothingSelected(format!("`{mixer}` is not in the section that --only selects")));
    }
    Ok(selected)
}

fn all_cases() -> Vec<BenchCase> {
    let kernels = SIZES.iter().flat_map(|&size| {
        let forward_and_backward = move |&(mixer, kernel): &'static (&'static str, Kernel)| {
            [false, true].map(|backward| BenchCase { mixer, work: CaseWork::Kernel { kernel, size, backward } })
        };
        KERNELS.iter().flat_map(forward_and_backward)
    });
    let train = SIZES.iter().flat_map(|&size| {
        let case =
            |all_positions: bool| move |mixer| BenchCase { mixer, work: CaseWork::Train { size, all_positions } };
        train::mixer_names().map(case(false)).chain(train::compared_mixer_names().map(case(true)))
    });
    let growth = implemented_mixers().flat_map(|mixer| {
        let steps = exponents::POSITIONS.map(|position| BenchCase { mixer, work: CaseWork::Step { position } });
        std::iter::once(BenchCase { mixer, work: CaseWork::Exponent }).chain(steps)
    });
    kernels.chain(train).chain(growth).collect()
}

/// Names of the mixers that `rung-nn` implements and that compute something.
fn implemented_mixers() -> impl Iterator<Item = &'static str> {
    // The mixer without options, `none`, does nothing and is not timed.
    let has_options = |name: &&str| mixer::find(name).is_some_and(|kind| !kind.options.is_empty());
    rung_nn::mixer::NAMES.iter().copied().filter(has_options)
}

/// The name of a mixer in benchmarks: `softmax` is another name of `full`.
fn canonical(name: &str) -> &str {
    if name == "softmax" { "full" } else { name }
}

/// The text of a stack of one mixer with its benchmark options.
fn stack_text(mixer: &str, benchmark: Benchmark) -> String {
    mixer::find(mixer).map_or_else(|| mixer.to_owned(), |kind| kind.benchmark_text(benchmark))
}

/// The window size for sequences of this length.
fn window_size(length: usize) -> usize {
    (length / 4).max(2)
}

/// Pseudo-random numbers in a range.
fn pseudo_random(seed: u64, count: usize, range: Range<f32>) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range.start + (range.end - range.start) * (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: Section, shape: Option<&str>, mixer: Option<&str>) -> Result<Vec<String>, BenchError> {
        let filter = CaseFilter { only: Some(only), shape: shape.map(str::to_owned), mixer: mixer.map(str::to_owned) };
        let name = |case: &BenchCase| format!("{} {} {}", case.work_name(), case.mixer, case.shape());
        Ok(cases(&filter)?.iter().map(name).collect())
    }

    #[test]
    fn filters_select_cases() {
        assert_eq!(names(Section::Train, Some("M"), Some("full")).unwrap(), ["train full M", "train whole full M"]);
        assert_eq!(
            names(Section::Kernels, Some("S"), Some("gla")).unwrap(),
            ["forward gla S", "forward+backward gla S"]
        );
        assert_eq!(
            names(Section::Exponents, None, Some("gdn")).unwrap(),
            ["exponent gdn n=512..8192", "step gdn n=256", "step gdn n=8192"]
        );
        let error = |only, shape, mixer| names(only, shape, mixer).unwrap_err().to_string();
        assert!(error(Section::Train, Some("XL"), None).contains("--shape: found `XL`, expected one of S, M, L"));
        assert!(error(Section::Train, None, Some("gdm")).contains("--mixer: found `gdm`, expected one of"));
        assert!(error(Section::Train, None, Some("rms_norm")).contains("nothing to measure"));
        assert!(error(Section::Exponents, Some("S"), None).contains("lengths of its own"));
    }
}
