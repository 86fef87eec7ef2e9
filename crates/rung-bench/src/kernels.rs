//! Kernels alone: products of typical shapes, attention, window, each kind of recurrence, convolution, norms.
//!
//! A kernel runs on one thread, as a training step runs it. To use all of them the batch is divided as a team divides it: every
//! thread has its own executor and its own rows, and a measurement begins and ends when all have met.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use rung_engine::{
    AttentionInputs, AttentionMask, Decay, GeneralDelta, Native, Ops as _, Parameter, Parameters, Recurrence, Tensor,
};

use super::measure::time;
use super::{BenchError, CHUNK, Size, pseudo_random, window};

/// Something to run on the activations of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Every token through a matrix of so many widths by so many.
    Product {
        /// Widths that come out.
        outputs: usize,
        /// Widths that go in.
        inputs: usize,
    },
    /// Causal softmax attention, over all tokens or the last few.
    Attention {
        /// The last few.
        windowed: bool,
    },
    /// A linear recurrence.
    Recurrence {
        /// How the state fades.
        fade: DecayKind,
        /// Whether writes are delta steps.
        delta: bool,
    },
    /// The selective scan: a state of its own for every channel, written and read by what all channels share.
    Scan,
    /// The general delta rule.
    GeneralDelta,
    /// A depthwise convolution over four tokens.
    Convolution,
    /// Layer norm with weight and bias.
    LayerNorm,
    /// RMS norm with weight.
    RmsNorm,
}

/// Kinds of decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayKind {
    /// None.
    Never,
    /// One number per head.
    Scalar,
    /// One number per key channel.
    Vector,
}

/// All of them, by the name of the mixer that uses it where it is one mixer's.
pub const KERNELS: &[(&str, Kernel)] = &[
    ("product_out", Kernel::Product { outputs: 1, inputs: 1 }),
    ("product_up", Kernel::Product { outputs: 4, inputs: 1 }),
    ("product_down", Kernel::Product { outputs: 1, inputs: 4 }),
    ("full", Kernel::Attention { windowed: false }),
    ("window", Kernel::Attention { windowed: true }),
    ("linear", Kernel::Recurrence { fade: DecayKind::Never, delta: false }),
    ("retnet", Kernel::Recurrence { fade: DecayKind::Scalar, delta: false }),
    ("gla", Kernel::Recurrence { fade: DecayKind::Vector, delta: false }),
    ("deltanet", Kernel::Recurrence { fade: DecayKind::Never, delta: true }),
    ("gdn", Kernel::Recurrence { fade: DecayKind::Scalar, delta: true }),
    ("gdn_solver", Kernel::Recurrence { fade: DecayKind::Scalar, delta: true }),
    ("mamba1", Kernel::Scan),
    ("rwkv7", Kernel::GeneralDelta),
    ("conv", Kernel::Convolution),
    ("layer_norm", Kernel::LayerNorm),
    ("rms_norm", Kernel::RmsNorm),
];

/// Taps of the convolution.
const TAPS: usize = 4;

/// Numbers that a channel of the scan keeps, and tokens per chunk, as its mixer has them.
const SCANNED: usize = 16;

const PLAIN: Range<f32> = -1.0..1.0;
/// Log-decays: a little below zero.
const DECAY: Range<f32> = -0.1..0.0;
const GATE: Range<f32> = 0.0..1.0;

impl Kernel {
    /// Shape and range of every input for so many rows of the batch.
    fn inputs(self, size: Size, rows: usize) -> Vec<(Vec<usize>, Range<f32>)> {
        let Size { length, width, heads, .. } = size;
        let head = width / heads;
        let tokens = |width: usize| (vec![rows, length, width], PLAIN);
        // Keys are shorter than one, as the delta rule needs them.
        let reach = (head as f32).powf(-0.5);
        let split = || (vec![rows, length, heads, head], -reach..reach);
        let per_head = |range| (vec![rows, length, heads], range);
        match self {
            Self::Product { outputs, inputs } => vec![
                tokens(inputs * width),
                (vec![outputs * width, inputs * width], -reach..reach),
                (vec![outputs * width], PLAIN),
            ],
            Self::Attention { .. } => vec![split(), split(), split()],
            Self::Recurrence { fade, delta } => {
                let mut inputs = vec![split(), split(), split()];
                match fade {
                    DecayKind::Never => {}
                    DecayKind::Scalar => inputs.push(per_head(DECAY)),
                    DecayKind::Vector => inputs.push((split().0, DECAY)),
                }
                inputs.extend(delta.then(|| per_head(GATE)));
                inputs
            }
            Self::Scan => {
                let shared = || (vec![rows, length, 1, SCANNED], PLAIN);
                vec![
                    shared(),
                    shared(),
                    (vec![rows, length, width, 1], PLAIN),
                    (vec![rows, length, width, SCANNED], DECAY),
                ]
            }
            Self::GeneralDelta => vec![split(), split(), split(), (split().0, DECAY), split(), split()],
            Self::Convolution => vec![tokens(width), (vec![width, TAPS], PLAIN)],
            Self::LayerNorm => vec![tokens(width), (vec![width], PLAIN), (vec![width], PLAIN)],
            Self::RmsNorm => vec![tokens(width), (vec![width], PLAIN)],
        }
    }

    fn apply(self, ops: &Native<f32>, inputs: &[Tensor<f32>], size: Size) -> Tensor<f32> {
        match self {
            Self::Product { .. } => ops.linear(&inputs[0], &inputs[1], Some(&inputs[2])),
            Self::Attention { windowed } => ops.attention(&AttentionInputs {
                query: &inputs[0],
                key: &inputs[1],
                value: &inputs[2],
                bias: None,
                mask: if windowed { AttentionMask::Window(window(size.length)) } else { AttentionMask::Causal },
                scale: ((size.width / size.heads) as f64).powf(-0.5),
            }),
            Self::Recurrence { fade, delta } => {
                let recurrence = Recurrence {
                    query: &inputs[0],
                    key: &inputs[1],
                    value: &inputs[2],
                    decay: match fade {
                        DecayKind::Never => Decay::None,
                        DecayKind::Scalar => Decay::Scalar(&inputs[3]),
                        DecayKind::Vector => Decay::Vector(&inputs[3]),
                    },
                    beta: delta.then(|| &inputs[inputs.len() - 1]),
                    state: None,
                    chunk: CHUNK,
                    rounding: None,
                };
                ops.recurrence(&recurrence).0
            }
            Self::Scan => {
                let scan = Recurrence {
                    query: &inputs[0],
                    key: &inputs[1],
                    value: &inputs[2],
                    decay: Decay::Vector(&inputs[3]),
                    beta: None,
                    state: None,
                    chunk: SCANNED,
                    rounding: None,
                };
                ops.recurrence(&scan).0
            }
            Self::GeneralDelta => {
                let delta = GeneralDelta {
                    query: &inputs[0],
                    key: &inputs[1],
                    value: &inputs[2],
                    decay: &inputs[3],
                    recall_key: &inputs[4],
                    erase_key: &inputs[5],
                    state: None,
                    chunk: CHUNK,
                    rounding: None,
                };
                ops.general_delta(&delta).0
            }
            Self::Convolution => ops.short_convolution(&inputs[0], &inputs[1], None, None).0,
            Self::LayerNorm => ops.layer_norm(&inputs[0], Some(&inputs[1]), Some(&inputs[2]), 1e-5),
            Self::RmsNorm => ops.rms_norm(&inputs[0], Some(&inputs[1]), 1e-6),
        }
    }

    /// Floating-point operations of products in a forward pass; none where the time goes into moving numbers.
    pub fn operations(self, size: Size) -> Option<f64> {
        let (width, head, chunk) = (size.width as f64, (size.width / size.heads) as f64, CHUNK as f64);
        let per_token = match self {
            Self::Product { outputs, inputs } => 2.0 * (outputs * inputs) as f64 * width * width,
            Self::Attention { windowed: false } => 2.0 * size.length as f64 * width,
            Self::Attention { windowed: true } => 4.0 * window(size.length) as f64 * width,
            Self::Recurrence { delta: false, .. } => 4.0 * width * (head + chunk / 2.0),
            Self::Recurrence { delta: true, .. } => width * (6.0 * head + 4.0 * chunk),
            Self::Scan => 4.0 * width * SCANNED as f64,
            Self::GeneralDelta => 8.0 * width * head,
            Self::Convolution | Self::LayerNorm | Self::RmsNorm => return None,
        };
        Some(per_token * size.tokens())
    }
}

/// One thread's share of a kernel's work.
struct ThreadWork {
    kernel: Kernel,
    size: Size,
    backward: bool,
    ops: Native<f32>,
    inputs: Vec<Parameter>,
}

impl ThreadWork {
    fn new(kernel: Kernel, size: Size, backward: bool, rows: usize) -> Self {
        let mut weights = Parameters::new();
        let mut add = |(index, (shape, range)): (usize, (Vec<usize>, Range<f32>))| {
            let values = pseudo_random(index as u64, shape.iter().product(), range);
            weights.add(format!("input {index}"), &shape, values).id()
        };
        let inputs = kernel.inputs(size, rows).into_iter().enumerate().map(&mut add).collect();
        let ops = Native::new();
        if backward {
            ops.bind(&weights);
        } else {
            ops.bind_frozen(&weights);
        }
        Self { kernel, size, backward, ops, inputs }
    }

    fn run(&self) {
        let inputs: Vec<_> = self.inputs.iter().map(|&id| self.ops.parameter(id)).collect();
        let out = self.kernel.apply(&self.ops, &inputs, self.size);
        if self.backward {
            self.ops.backward(&self.ops.sum_all(&out));
        }
    }
}

/// Hands `measure` a function that runs the kernel on all threads once and returns its milliseconds.
///
/// # Errors
/// What `measure` returns.
///
/// # Panics
/// If a kernel does.
pub fn with_worker_pool<R>(
    (kernel, size, backward): (Kernel, Size, bool),
    threads: usize,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<f64, BenchError>) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    let crew = threads.clamp(1, size.batch);
    let rows = |member: usize| size.batch * (member + 1) / crew - size.batch * member / crew;
    let (meeting, over) = (Barrier::new(crew), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for member in 1..crew {
            let (meeting, over) = (&meeting, &over);
            scope.spawn(move || {
                let share = ThreadWork::new(kernel, size, backward, rows(member));
                loop {
                    meeting.wait();
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    share.run();
                    meeting.wait();
                }
            });
        }
        let share = ThreadWork::new(kernel, size, backward, rows(0));
        let result = measure(&mut || {
            meeting.wait();
            let taken = time(|| {
                share.run();
                meeting.wait();
            });
            Ok(taken)
        });
        over.store(true, Ordering::Relaxed);
        meeting.wait();
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs_both_ways_and_its_gradient_is_not_zero() {
        let size = Size { name: "tiny", batch: 3, length: 64, width: 16, heads: 2, layers: 1 };
        for &(name, kernel) in KERNELS {
            let share = ThreadWork::new(kernel, size, true, 1);
            share.run();
            assert!(share.ops.gradient().iter().any(|value| *value != 0.0), "{name}");
            for (backward, threads) in [(false, 2), (true, 8)] {
                let taken = with_worker_pool((kernel, size, backward), threads, |run| run().and_then(|_| run()));
                assert!(taken.unwrap() > 0.0, "{name}");
            }
        }
    }
}
