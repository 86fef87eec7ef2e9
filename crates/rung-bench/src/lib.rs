//! How fast the engine is: kernels, training steps, and how cost grows with the length of a sequence.
//!
//! Four sections, which `rung bench --only` picks; the first three run if none is picked:
//!
//! - [`kernels`]: the operations that models spend their time in, forward, and forward with backward;
//! - [`train`]: whole training steps at three shapes;
//! - [`exponents`]: the exponent of cost in the length of the sequence, and the cost of one more token at two positions;
//! - [`checkpoint`]: a checkpoint of another program, beside transformers and llama.cpp.
//!
//! [`profile`] says where the time of a training step goes.
//!
//! Every row of the first three has the median time of some repetitions after two that are not counted, tokens per second, the fraction of
//! peak FLOP/s, and the peak memory of the process while it was measured. What is counted as arithmetic are products alone,
//! a backward pass as two forward ones. The limit is the speed of a large product on all threads. Machines drift, so it is
//! measured at the start and again after every row that is compared with it, and the fastest so far counts.
//!
//! # Against PyTorch
//! With a peer, each row is measured interleaved with PyTorch: a few repetitions here, a few there, in one run. The ratio is their median over
//! ours; the ratio of the fastest is shown too, as other work on the machine disturbs it least. A row that the
//! peer does not implement has no ratio.
//!
//! A training step is measured twice, because the loss asks about the last token of each row alone. `train` is the step as our
//! models take it: other tokens are not taken through the last layer's MLP, since no loss or gradient depends on it. PyTorch
//! does what its model says, for all tokens. `train whole` does that here too: the same arithmetic on both sides, so its ratio
//! is that of the engines alone.
//!
//! The gated delta rule has two peers, because PyTorch has two ways to solve the triangular system of each chunk. `gdn` goes
//! through it row by row, by forward substitution, as the definition of the chunked form says and as public PyTorch
//! implementations do. `gdn_solver` calls the library's triangular solver, which is faster and which those implementations do
//! not use. Our side is the same for both. The chunks of either side are as long as is best for it: 32 tokens here, 64 there.
//!
//! ```
//! use rung_bench::{CaseFilter, Section, cases};
//!
//! let choice = CaseFilter { only: Some(Section::Train), shape: Some("S".to_owned()), ..CaseFilter::default() };
//! assert!(cases(&choice)?.iter().any(|case| case.mixer == "gdn"));
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
use measure::{Peak, Times};
use peer::Peer;
use rung_theory::stack::mixer::{self, Benchmark};
use train::Training;

/// Vocabulary of the random tokens.
const VOCABULARY: usize = 64;
/// Tokens per chunk of a recurrence.
const CHUNK: usize = 32;
/// Repetitions of one side before the other is measured.
const INTERLEAVE: usize = 3;
/// Repetitions that are not counted.
const WARM_UP: usize = 2;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No Python with PyTorch.
    #[error(
        "no Python that can import torch was found ({tried}); name one with --against PATH or in RUNG_PYTHON, or leave --against out"
    )]
    NoPython {
        /// What was tried, and why it was none.
        tried: String,
    },
    /// No Python with software for checkpoints.
    #[error(
        "no Python that can run {software} on this checkpoint was found ({tried}); name one in RUNG_PYTHON, or leave it out of --against"
    )]
    NoSoftware {
        /// The software.
        software: String,
        /// What was tried, and why it was none.
        tried: String,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] Box<rung_nn::families::FamilyError>),
    /// The peer failed.
    #[error("the peer failed at `{work}`: {reason}")]
    Peer {
        /// What it was asked.
        work: String,
        /// What happened.
        reason: String,
    },
    /// No case has this name.
    #[error("{option}: found `{found}`, expected one of {known}")]
    Unknown {
        /// The option.
        option: &'static str,
        /// What was given.
        found: String,
        /// What there is.
        known: String,
    },
    /// A choice that leaves nothing.
    #[error("there is nothing to measure: {0}")]
    Nothing(String),
    /// A stack could not be read.
    #[error(transparent)]
    Stack(#[from] rung_theory::stack::StackError),
    /// A model could not be built.
    #[error(transparent)]
    Model(#[from] rung_nn::ModelError),
    /// A step met a number that is not finite.
    #[error(transparent)]
    Step(#[from] rung_engine::StepError),
}

/// Sizes of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name on the command line.
    pub name: &'static str,
    /// Rows.
    pub batch: usize,
    /// Tokens in a row.
    pub length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Heads.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
}

/// The three shapes.
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
    /// Kernels.
    Kernels,
    /// Training steps.
    Train,
    /// Exponents and steps.
    Exponents,
}

/// Which cases to measure.
#[derive(Clone, Debug, Default)]
pub struct CaseFilter {
    /// One section.
    pub only: Option<Section>,
    /// One shape.
    pub shape: Option<String>,
    /// One mixer or kernel.
    pub mixer: Option<String>,
}

/// What a case does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseKind {
    Kernel { kernel: Kernel, size: Size, backward: bool },
    Train { size: Size, all_positions: bool },
    Exponent,
    Step { position: usize },
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchCase {
    /// The mixer, or the kernel.
    pub mixer: &'static str,
    work: CaseKind,
}

impl BenchCase {
    /// What is done.
    pub fn what(&self) -> &'static str {
        match self.work {
            CaseKind::Kernel { backward: false, .. } => "forward",
            CaseKind::Kernel { backward: true, .. } => "forward+backward",
            CaseKind::Train { all_positions: false, .. } => "train",
            CaseKind::Train { all_positions: true, .. } => "train whole",
            CaseKind::Exponent => "exponent",
            CaseKind::Step { .. } => "step",
        }
    }

    /// At which shape: one of the three, the lengths of a fit, or the position of a step.
    pub fn shape(&self) -> String {
        match self.work {
            CaseKind::Kernel { size, .. } | CaseKind::Train { size, .. } => size.name.to_owned(),
            CaseKind::Exponent => format!("n={}..{}", exponents::LENGTHS[0], exponents::LENGTHS[4]),
            CaseKind::Step { position } => format!("n={position}"),
        }
    }

    /// The request for a peer.
    fn request(&self) -> Option<String> {
        let numbers = |Size { batch, length, width, heads, layers, .. }: Size| {
            format!("{batch} {length} {width} {heads} {layers}")
        };
        match self.work {
            CaseKind::Kernel { size, .. } => Some(format!("{} {} {}", self.what(), self.mixer, numbers(size))),
            CaseKind::Train { size, .. } => Some(format!("train {} {}", self.mixer, numbers(size))),
            CaseKind::Exponent | CaseKind::Step { .. } => None,
        }
    }
}

/// A case and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The case.
    pub case: BenchCase,
    /// Our times.
    pub times: Times,
    /// Tokens that one repetition works on.
    pub tokens: f64,
    /// Peak memory of the process; none where it cannot be measured for this row alone.
    pub peak_bytes: Option<u64>,
    /// FLOP/s over the peak of this machine; none for a case that is not bound by arithmetic.
    pub fraction_of_peak: Option<f64>,
    /// The peer's times and peak memory.
    pub torch: Option<(Times, Option<u64>)>,
    /// The exponent, for a case that fits one.
    pub exponent: Option<f64>,
}

impl Measurement {
    /// Tokens per second at the median.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens / (self.times.median() * 1e-3)
    }

    /// Their median time over ours.
    pub fn ratio(&self) -> Option<f64> {
        self.torch.as_ref().map(|(theirs, _)| theirs.median() / self.times.median())
    }

    /// Their fastest time over ours.
    pub fn ratio_of_fastest(&self) -> Option<f64> {
        self.torch.as_ref().map(|(theirs, _)| theirs.fastest() / self.times.fastest())
    }
}

/// A benchmark under way.
pub struct Bench {
    /// Threads on either side.
    pub threads: usize,
    /// Repetitions that are counted.
    pub repetitions: usize,
    /// Floating-point operations per second of a large product: the most so far.
    pub limit: f64,
    /// The other side.
    pub peer: Option<Peer>,
}

impl Bench {
    /// Measures the arithmetic limit and starts the peer, if one is asked for.
    ///
    /// # Errors
    /// There is no Python with PyTorch.
    pub fn new(threads: usize, repetitions: usize, against: Option<&str>) -> Result<Self, BenchError> {
        let peer = against.map(|against| Peer::find(against, threads)).transpose()?;
        Ok(Self { threads, repetitions, limit: measure::limit(threads), peer })
    }

    /// Measures one case.
    ///
    /// # Errors
    /// The peer fails, or a step meets a number that is not finite.
    pub fn measure(&mut self, case: &BenchCase) -> Result<Measurement, BenchError> {
        let (peak, threads) = (Peak::start(), self.threads);
        let (mut torch, mut exponent, mut operations) = (None, None, None);
        let (times, tokens);
        match case.work {
            CaseKind::Kernel { kernel, size, backward } => {
                let measured = kernels::with_worker_pool((kernel, size, backward), threads, |run| {
                    self.measure_interleaved(case, run)
                });
                (times, torch) = measured?;
                tokens = size.tokens();
                operations = kernel.operations(size).map(|forward| forward * if backward { 3.0 } else { 1.0 });
            }
            CaseKind::Train { size, all_positions } => {
                let mut training = Training::new(case.mixer, size, all_positions, threads)?;
                (times, torch) = self.measure_interleaved(case, &mut || training.step())?;
                (tokens, operations) = (size.tokens(), Some(training.operations()));
            }
            CaseKind::Exponent => {
                let mut all = exponents::forward_times(case.mixer, &exponents::LENGTHS, self.repetitions)?;
                exponent = Some(exponents::exponent(&all));
                let (length, longest) = all.pop().unwrap_or_default();
                (times, tokens) = (longest, length as f64);
            }
            CaseKind::Step { position } => {
                times = exponents::step_times(case.mixer, position, self.repetitions)?;
                tokens = 1.0;
            }
        }
        let peak_bytes = peak.and_then(|peak| peak.bytes());
        let fraction_of_peak = operations.map(|operations| {
            self.limit = self.limit.max(measure::limit(threads));
            operations / (times.median() * 1e-3) / self.limit
        });
        Ok(Measurement { case: *case, times, tokens, peak_bytes, fraction_of_peak, torch, exponent })
    }

    /// Runs our side interleaved with the peer.
    #[expect(clippy::type_complexity, reason = "our times, and theirs with their memory")]
    fn measure_interleaved(
        &mut self,
        case: &BenchCase,
        run: &mut dyn FnMut() -> Result<f64, BenchError>,
    ) -> Result<(Times, Option<(Times, Option<u64>)>), BenchError> {
        let request = case.request().unwrap_or_default();
        for _ in 0..WARM_UP {
            run()?;
        }
        // A peer that does not implement the case says so here.
        let mut peer = self.peer.as_mut();
        if let Some(torch) = &mut peer
            && torch.ask(&request, WARM_UP)?.is_none()
        {
            peer = None;
        }
        let (mut ours, mut theirs, mut their_peak) = (Times::default(), Times::default(), None);
        while ours.count() < self.repetitions {
            let count = INTERLEAVE.min(self.repetitions - ours.count());
            for _ in 0..count {
                ours.extend([run()?]);
            }
            if let Some(peer) = &mut peer
                && let Some((times, peak)) = peer.ask(&request, count)?
            {
                theirs.extend(times);
                their_peak = peak;
            }
        }
        Ok((ours, (theirs.count() > 0).then_some((theirs, their_peak))))
    }
}

/// The cases that a choice leaves, in the order in which they are measured.
///
/// # Errors
/// A name is unknown, or nothing is left.
pub fn cases(choice: &CaseFilter) -> Result<Vec<BenchCase>, BenchError> {
    let mixer = choice.mixer.as_deref().map(canonical);
    let shape = choice.shape.as_deref();
    if let Some(found) = shape.filter(|shape| SIZES.iter().all(|size| size.name != *shape)) {
        let known = SIZES.map(|size| size.name).join(", ");
        return Err(BenchError::Unknown { option: "--shape", found: found.to_owned(), known });
    }
    if choice.only == Some(Section::Exponents) && shape.is_some() {
        return Err(BenchError::Nothing("--only exponents has lengths of its own, leave --shape out".to_owned()));
    }
    let all = all_cases();
    if let Some(found) = mixer.filter(|mixer| all.iter().all(|case| case.mixer != *mixer)) {
        let mut known: Vec<&str> = all.iter().map(|case| case.mixer).collect();
        known.sort_unstable();
        known.dedup();
        return Err(BenchError::Unknown { option: "--mixer", found: found.to_owned(), known: known.join(", ") });
    }
    let wanted = |case: &BenchCase| {
        let section = match case.work {
            CaseKind::Kernel { .. } => Section::Kernels,
            CaseKind::Train { .. } => Section::Train,
            CaseKind::Exponent | CaseKind::Step { .. } => Section::Exponents,
        };
        choice.only.is_none_or(|only| only == section)
            && mixer.is_none_or(|mixer| mixer == case.mixer)
            && shape.is_none_or(|shape| shape == case.shape())
    };
    let left: Vec<BenchCase> = all.into_iter().filter(wanted).collect();
    if left.is_empty() {
        let mixer = mixer.unwrap_or_default();
        return Err(BenchError::Nothing(format!("`{mixer}` is not among what --only picks")));
    }
    Ok(left)
}

fn all_cases() -> Vec<BenchCase> {
    let kernels = SIZES.iter().flat_map(|&size| {
        let both = move |&(mixer, kernel): &'static (&'static str, Kernel)| {
            [false, true].map(|backward| BenchCase { mixer, work: CaseKind::Kernel { kernel, size, backward } })
        };
        KERNELS.iter().flat_map(both)
    });
    let train = SIZES.iter().flat_map(|&size| {
        let named =
            |all_positions: bool| move |mixer| BenchCase { mixer, work: CaseKind::Train { size, all_positions } };
        train::names().map(named(false)).chain(train::names_with_peer().map(named(true)))
    });
    let growth = network_names().flat_map(|mixer| {
        let steps = exponents::POSITIONS.map(|position| BenchCase { mixer, work: CaseKind::Step { position } });
        std::iter::once(BenchCase { mixer, work: CaseKind::Exponent }).chain(steps)
    });
    kernels.chain(train).chain(growth).collect()
}

/// The mixers that have a network.
fn network_names() -> impl Iterator<Item = &'static str> {
    // A layer without options does nothing, and is not timed.
    let works = |name: &&str| mixer::find(name).is_some_and(|kind| !kind.options.is_empty());
    rung_nn::mixer::NAMES.iter().copied().filter(works)
}

/// The name of a mixer here: `softmax` is another name of `full`.
fn canonical(name: &str) -> &str {
    if name == "softmax" { "full" } else { name }
}

/// A mixer for a plan of sequences of some length, at the sizes that it has in benchmarks.
fn stack_text(mixer: &str, benchmark: Benchmark) -> String {
    mixer::find(mixer).map_or_else(|| mixer.to_owned(), |kind| kind.benchmark_text(benchmark))
}

/// The window size for sequences of some length.
fn window(length: usize) -> usize {
    (length / 4).max(2)
}

/// Pseudo-random numbers from a seed.
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
        let choice = CaseFilter { only: Some(only), shape: shape.map(str::to_owned), mixer: mixer.map(str::to_owned) };
        let name = |case: &BenchCase| format!("{} {} {}", case.what(), case.mixer, case.shape());
        Ok(cases(&choice)?.iter().map(name).collect())
    }

    #[test]
    fn choices_pick_cases() {
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
