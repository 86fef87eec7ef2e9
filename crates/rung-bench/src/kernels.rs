//! Single kernels: linear layers of typical shapes, attention, window, each kind of recurrence, convolution, norms.
//!
//! A kernel runs on one thread, as in a training step. To use all threads the batch is divided as in data-parallel training: every
//! thread has its own executor and its own sequences, and a measurement begins and ends with a barrier.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use rung_engine::{
    AttentionInputs, AttentionMask, Decay, GeneralDelta, Native, Ops as _, Parameter, Parameters, Recurrence, Tensor,
};
use rung_nn::mixer::{
    MixerConfig as _, conv::ShortConvolutionConfig, deltanet::DeltanetConfig, gdn::GatedDeltanetConfig, gla::GlaConfig,
    linear::LinearAttentionConfig, mamba1::Mamba1Config, retnet::RetnetConfig, rwkv7::Rwkv7Config,
    softmax::SoftmaxConfig, window::WindowConfig,
};

use super::measure::time;
use super::{BenchError, CHUNK, Size, pseudo_random, window_size};

/// A kernel that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A linear layer of all tokens.
    Linear {
        /// Output channels, in multiples of the width.
        outputs: usize,
        /// Input channels, in multiples of the width.
        inputs: usize,
    },
    /// Causal softmax attention.
    Attention {
        /// Whether it is limited to a window of the last tokens.
        windowed: bool,
    },
    /// A linear recurrence.
    Recurrence {
        /// How the state decays.
        decay: DecayKind,
        /// Whether it is a delta rule.
        delta: bool,
    },
    /// Mamba's selective scan: one state per channel, with keys and queries that all channels share.
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
    /// No decay.
    None,
    /// One number per head.
    Scalar,
    /// One number per key channel.
    Vector,
}

/// All kernels by name: that of the mixer that uses the kernel, where there is one.
pub const KERNELS: &[(&str, Kernel)] = &[
    ("product_out", Kernel::Linear { outputs: 1, inputs: 1 }),
    ("product_up", Kernel::Linear { outputs: 4, inputs: 1 }),
    ("product_down", Kernel::Linear { outputs: 1, inputs: 4 }),
    (SoftmaxConfig::NAME, Kernel::Attention { windowed: false }),
    (WindowConfig::NAME, Kernel::Attention { windowed: true }),
    (LinearAttentionConfig::NAME, Kernel::Recurrence { decay: DecayKind::None, delta: false }),
    (RetnetConfig::NAME, Kernel::Recurrence { decay: DecayKind::Scalar, delta: false }),
    (GlaConfig::NAME, Kernel::Recurrence { decay: DecayKind::Vector, delta: false }),
    (DeltanetConfig::NAME, Kernel::Recurrence { decay: DecayKind::None, delta: true }),
    (GatedDeltanetConfig::NAME, Kernel::Recurrence { decay: DecayKind::Scalar, delta: true }),
    ("gdn_solver", Kernel::Recurrence { decay: DecayKind::Scalar, delta: true }),
    (Mamba1Config::NAME, Kernel::Scan),
    (Rwkv7Config::NAME, Kernel::GeneralDelta),
    (ShortConvolutionConfig::NAME, Kernel::Convolution),
    ("layer_norm", Kernel::LayerNorm),
    ("rms_norm", Kernel::RmsNorm),
];

/// Kernel size of the convolution.
const KERNEL_SIZE: usize = 4;

/// State size per channel of the selective scan, and its tokens per chunk, as in its mixer.
const SCAN_STATE: usize = 16;

/// Range of activations.
const ACTIVATION_RANGE: Range<f32> = -1.0..1.0;
/// Range of log-decays.
const LOG_DECAY_RANGE: Range<f32> = -0.1..0.0;
/// Range of write strengths.
const BETA_RANGE: Range<f32> = 0.0..1.0;

impl Kernel {
    /// Shape and range of every input for this many sequences.
    fn inputs(self, size: Size, sequences: usize) -> Vec<(Vec<usize>, Range<f32>)> {
        let Size { length, width, heads, .. } = size;
        let head_dim = width / heads;
        let tokens = |width: usize| (vec![sequences, length, width], ACTIVATION_RANGE);
        // Keys have a norm below 1, as the delta rule needs.
        let bound = (head_dim as f32).powf(-0.5);
        let head_input = || (vec![sequences, length, heads, head_dim], -bound..bound);
        let per_head = |range| (vec![sequences, length, heads], range);
        match self {
            Self::Linear { outputs, inputs } => vec![
                tokens(inputs * width),
                (vec![outputs * width, inputs * width], -bound..bound),
                (vec![outputs * width], ACTIVATION_RANGE),
            ],
            Self::Attention { .. } => vec![head_input(), head_input(), head_input()],
            Self::Recurrence { decay, delta } => {
                let mut inputs = vec![head_input(), head_input(), head_input()];
                match decay {
                    DecayKind::None => {}
                    DecayKind::Scalar => inputs.push(per_head(LOG_DECAY_RANGE)),
                    DecayKind::Vector => inputs.push((head_input().0, LOG_DECAY_RANGE)),
                }
                inputs.extend(delta.then(|| per_head(BETA_RANGE)));
                inputs
            }
            Self::Scan => {
                let shared = || (vec![sequences, length, 1, SCAN_STATE], ACTIVATION_RANGE);
                vec![
                    shared(),
                    shared(),
                    (vec![sequences, length, width, 1], ACTIVATION_RANGE),
                    (vec![sequences, length, width, SCAN_STATE], LOG_DECAY_RANGE),
                ]
            }
            Self::GeneralDelta => {
                vec![
                    head_input(),
                    head_input(),
                    head_input(),
                    (head_input().0, LOG_DECAY_RANGE),
                    head_input(),
                    head_input(),
                ]
            }
            Self::Convolution => vec![tokens(width), (vec![width, KERNEL_SIZE], ACTIVATION_RANGE)],
            Self::LayerNorm => vec![tokens(width), (vec![width], ACTIVATION_RANGE), (vec![width], ACTIVATION_RANGE)],
            Self::RmsNorm => vec![tokens(width), (vec![width], ACTIVATION_RANGE)],
        }
    }

    fn apply(self, ops: &Native<f32>, inputs: &[Tensor<f32>], size: Size) -> Tensor<f32> {
        match self {
            Self::Linear { .. } => ops.linear(&inputs[0], &inputs[1], Some(&inputs[2])),
            Self::Attention { windowed } => ops.attention(&AttentionInputs {
                query: &inputs[0],
                key: &inputs[1],
                value: &inputs[2],
                bias: None,
                mask: if windowed { AttentionMask::Window(window_size(size.length)) } else { AttentionMask::Causal },
                scale: ((size.width / size.heads) as f64).powf(-0.5),
            }),
            Self::Recurrence { decay, delta } => {
                let recurrence = Recurrence {
                    query: &inputs[0],
                    key: &inputs[1],
                    value: &inputs[2],
                    decay: match decay {
                        DecayKind::None => Decay::None,
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
                    chunk: SCAN_STATE,
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

    /// Floating-point operations of products in a forward pass; `None` for kernels that are limited by memory.
    pub fn forward_flops(self, size: Size) -> Option<f64> {
        let (width, head_dim, chunk) = (size.width as f64, (size.width / size.heads) as f64, CHUNK as f64);
        let per_token = match self {
            Self::Linear { outputs, inputs } => 2.0 * (outputs * inputs) as f64 * width * width,
            Self::Attention { windowed: false } => 2.0 * size.length as f64 * width,
            Self::Attention { windowed: true } => 4.0 * window_size(size.length) as f64 * width,
            Self::Recurrence { delta: false, .. } => 4.0 * width * (head_dim + chunk / 2.0),
            Self::Recurrence { delta: true, .. } => width * (6.0 * head_dim + 4.0 * chunk),
            Self::Scan => 4.0 * width * SCAN_STATE as f64,
            Self::GeneralDelta => 8.0 * width * head_dim,
            Self::Convolution | Self::LayerNorm | Self::RmsNorm => return None,
        };
        Some(per_token * size.tokens())
    }
}

/// A kernel with one thread's share of the batch.
struct ThreadWork {
    kernel: Kernel,
    size: Size,
    backward: bool,
    ops: Native<f32>,
    inputs: Vec<Parameter>,
}

impl ThreadWork {
    fn new(kernel: Kernel, size: Size, backward: bool, sequences: usize) -> Self {
        let mut weights = Parameters::new();
        let mut add = |(index, (shape, range)): (usize, (Vec<usize>, Range<f32>))| {
            let values = pseudo_random(index as u64, shape.iter().product(), range);
            weights.add(format!("input {index}"), &shape, values).id()
        };
        let inputs = kernel.inputs(size, sequences).into_iter().enumerate().map(&mut add).collect();
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

/// Calls `measure` with a function that runs the kernel on all threads once and returns its milliseconds.
///
/// # Errors
/// The error of `measure`.
///
/// # Panics
/// If a kernel panics.
pub fn measure_on_threads<R>(
    (kernel, size, backward): (Kernel, Size, bool),
    threads: usize,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<f64, BenchError>) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    let threads = threads.clamp(1, size.batch);
    let sequences = |thread: usize| size.batch * (thread + 1) / threads - size.batch * thread / threads;
    let (barrier, stop) = (Barrier::new(threads), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let (barrier, stop) = (&barrier, &stop);
            scope.spawn(move || {
                let work = ThreadWork::new(kernel, size, backward, sequences(thread));
                loop {
                    barrier.wait();
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    work.run();
                    barrier.wait();
                }
            });
        }
        let work = ThreadWork::new(kernel, size, backward, sequences(0));
        let result = measure(&mut || {
            barrier.wait();
            let elapsed = time(|| {
                work.run();
                barrier.wait();
            });
            Ok(elapsed)
        });
        stop.store(true, Ordering::Relaxed);
        barrier.wait();
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_runs_forward_and_backward_with_a_nonzero_gradient() {
        let size = Size { name: "tiny", batch: 3, length: 64, width: 16, heads: 2, layers: 1 };
        for &(name, kernel) in KERNELS {
            let work = ThreadWork::new(kernel, size, true, 1);
            work.run();
            assert!(work.ops.gradient().iter().any(|value| *value != 0.0), "{name}");
            for (backward, threads) in [(false, 2), (true, 8)] {
                let elapsed = measure_on_threads((kernel, size, backward), threads, |run| run().and_then(|_| run()));
                assert!(elapsed.unwrap() > 0.0, "{name}");
            }
        }
    }
}
