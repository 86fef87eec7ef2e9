//! What the tape stores of each operation.

use super::pool::Buffer;
use super::recurrence::StateRecord;
use super::tape::{GradientTarget, Tensor};
use crate::choice::{BlockChoice, BlockReaders};
use crate::kernels::delta::DeltaKernel;
use crate::kernels::pointwise::ElementMap;
use crate::kernels::recurrence::RecurrenceKernel;
use crate::kernels::{attention, blocks, convolution, gated, norm};
use crate::ops::Binary;
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};
use std::ops::Range;

/// One operation, with what its backward pass reads.
pub(crate) enum Record<S: Scalar> {
    Map {
        kind: ElementMap,
        x: GradientTarget,
        /// The result or the argument: see [`ElementMap::derivative_uses_result`].
        saved: Buffer<S>,
        out: GradientTarget,
    },
    Affine {
        x: GradientTarget,
        factor: S,
        out: GradientTarget,
    },
    Binary {
        kind: Binary,
        left: Tensor<S>,
        right: Tensor<S>,
        shape: Shape,
        out: GradientTarget,
    },
    Sum {
        x: GradientTarget,
        from: Shape,
        to: Shape,
        out: GradientTarget,
    },
    Product {
        left: Tensor<S>,
        transpose_left: bool,
        right: Tensor<S>,
        transpose_right: bool,
        out: GradientTarget,
    },
    Bias {
        bias: GradientTarget,
        width: usize,
        out: GradientTarget,
    },
    Permute {
        x: GradientTarget,
        shape: Shape,
        order: [usize; MAX_RANK],
        out: GradientTarget,
    },
    Slice {
        x: GradientTarget,
        shape: Shape,
        axis: usize,
        range: Range<usize>,
        out: GradientTarget,
    },
    Concat {
        /// Range of the tape's `concat_inputs`.
        inputs: Range<usize>,
        shape: Shape,
        axis: usize,
        out: GradientTarget,
    },
    Broadcast {
        x: GradientTarget,
        from: Shape,
        to: Shape,
        out: GradientTarget,
    },
    Gather {
        x: GradientTarget,
        shape: Shape,
        /// Range of the tape's `indices`.
        rows: Range<usize>,
        out: GradientTarget,
    },
    CumulativeSum {
        x: GradientTarget,
        /// Elements before, along and after the axis.
        extents: (usize, usize, usize),
        out: GradientTarget,
    },
    Softmax {
        x: GradientTarget,
        shape: Shape,
        result: Buffer<S>,
        out: GradientTarget,
    },
    Attention {
        extents: attention::Extents,
        /// Query, key, value.
        inputs: [Tensor<S>; 3],
        bias: Option<Tensor<S>>,
        result: Buffer<S>,
        log_sums: Buffer<S>,
        out: GradientTarget,
    },
    BlockAttention {
        extents: blocks::Extents,
        readers: BlockReaders,
        /// Query, key, value.
        inputs: [Tensor<S>; 3],
        result: Buffer<S>,
        log_sums: Buffer<S>,
        out: GradientTarget,
    },
    /// Block attention with blocks of one token.
    TokenAttention {
        extents: blocks::Extents,
        choice: BlockChoice,
        /// Query, key, value.
        inputs: [Tensor<S>; 3],
        result: Buffer<S>,
        log_sums: Buffer<S>,
        out: GradientTarget,
    },
    Norm {
        norm: norm::Norm,
        x: Tensor<S>,
        weight: Option<Tensor<S>>,
        bias: GradientTarget,
        /// Mean and inverse root of each row.
        statistics: Buffer<S>,
        out: GradientTarget,
    },
    SiluGate {
        gate: Tensor<S>,
        x: Tensor<S>,
        out: GradientTarget,
    },
    Convolution {
        extents: convolution::Extents,
        padded: Tensor<S>,
        filters: Tensor<S>,
        bias: GradientTarget,
        out: GradientTarget,
    },
    GatedScan {
        extents: gated::Extents,
        /// Value, gate, state.
        inputs: [Tensor<S>; 3],
        states: Buffer<S>,
        out: GradientTarget,
    },
    Rotary {
        x: GradientTarget,
        shape: Shape,
        /// Cosines and sines.
        angles: [Buffer<S>; 2],
        out: GradientTarget,
    },
    CrossEntropy {
        logits: Tensor<S>,
        /// Range of the tape's `indices`.
        targets: Range<usize>,
        log_sums: Buffer<S>,
        out: GradientTarget,
    },
    Recurrence(StateRecord<S, RecurrenceKernel, 6>),
    Delta(StateRecord<S, DeltaKernel, 7>),
}
