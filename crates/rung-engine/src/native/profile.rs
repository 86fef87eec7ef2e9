//! The time of a step, operation by operation.
//!
//! While a profile is on, the executor reads the clock at the end of each operation. The time since the previous reading belongs to
//! that operation, so the rows add up to the time of the passes.
//!
//! FLOPs are those of products only (a multiply-add is two), with a backward pass counted as two forward passes and a recurrence
//! counted in its step form. Memory traffic counts every input and output once: repeated reads from a cache are not counted.

use std::time::Instant;

use super::record::Record;
use super::tape::Tensor;
use crate::scalar::Scalar;

/// Time, arithmetic and memory traffic of one operation in one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationProfile {
    /// Name of the operation.
    pub operation: &'static str,
    /// `forward` or `backward`.
    pub pass: &'static str,
    /// How often the operation ran.
    pub calls: u64,
    /// Total seconds of all calls.
    pub seconds: f64,
    /// Total floating-point operations of all calls.
    pub flops: f64,
    /// Total bytes read and written by all calls.
    pub bytes: f64,
}

/// The rows of a profile so far.
pub(crate) struct Profile {
    rows: Vec<OperationProfile>,
    /// When the clock was last read.
    last: Instant,
}

impl Profile {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), last: Instant::now() }
    }

    /// Reads the clock without adding the time to an operation.
    pub(crate) fn skip(&mut self) {
        self.last = Instant::now();
    }

    /// Adds the time since the last reading of the clock to an operation.
    pub(crate) fn end_operation(&mut self, operation: &'static str, pass: &'static str) {
        let now = Instant::now();
        let seconds = now.duration_since(self.last).as_secs_f64();
        self.last = now;
        let row = self.row(operation, pass);
        row.calls += 1;
        row.seconds += seconds;
    }

    /// Adds the cost of an operation, once for a forward and twice for a backward pass.
    pub(crate) fn add_cost(&mut self, operation: &'static str, pass: &'static str, cost: Cost) {
        let factor = if pass == BACKWARD { 2.0 } else { 1.0 };
        let row = self.row(operation, pass);
        row.flops += factor * cost.flops;
        row.bytes += factor * cost.bytes;
    }

    /// The rows, in the order in which operations first ran.
    pub(crate) fn into_rows(self) -> Vec<OperationProfile> {
        self.rows
    }

    fn row(&mut self, operation: &'static str, pass: &'static str) -> &mut OperationProfile {
        let index = self.rows.iter().position(|row| row.operation == operation && row.pass == pass);
        let index = index.unwrap_or_else(|| {
            self.rows.push(OperationProfile { operation, pass, calls: 0, seconds: 0.0, flops: 0.0, bytes: 0.0 });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }
}

/// Names of the two passes.
pub(crate) const FORWARD: &str = "forward";
pub(crate) const BACKWARD: &str = "backward";

/// The cost of an operation's forward pass.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    flops: f64,
    bytes: f64,
}

impl Cost {
    /// Floating-point operations, and numbers read and written.
    pub(super) fn new<S>(flops: usize, numbers: usize) -> Self {
        Self { flops: flops as f64, bytes: (numbers * size_of::<S>()) as f64 }
    }
}

/// Total size of some tensors.
fn total_size<'a, S: Scalar>(tensors: impl IntoIterator<Item = &'a Tensor<S>>) -> usize {
    tensors.into_iter().map(|x| x.shape.size()).sum()
}

impl<S: Scalar> Record<S> {
    /// The cost of the forward pass.
    pub(crate) fn cost(&self) -> Cost {
        match self {
            Self::Map { saved, .. } => Cost::new::<S>(0, 2 * saved.len()),
            Self::Binary { left, right, shape, .. } => Cost::new::<S>(0, total_size([left, right]) + shape.size()),
            Self::Sum { from, to, .. } | Self::Broadcast { from, to, .. } => Cost::new::<S>(0, from.size() + to.size()),
            Self::Product { left, right, transpose_right, .. } => {
                let rank = right.shape.len();
                let columns = right.shape[if *transpose_right { rank - 2 } else { rank - 1 }];
                let inner = right.shape[if *transpose_right { rank - 1 } else { rank - 2 }];
                let rows = left.shape.size() / inner.max(1);
                Cost::new::<S>(2 * rows * inner * columns, total_size([left, right]) + rows * columns)
            }
            Self::Permute { shape, .. }
            | Self::Concat { shape, .. }
            | Self::Softmax { shape, .. }
            | Self::Rotary { shape, .. } => Cost::new::<S>(0, 2 * shape.size()),
            Self::Slice { shape, axis, range, .. } => {
                Cost::new::<S>(0, 2 * shape.size() / shape[*axis].max(1) * range.len())
            }
            Self::Gather { shape, rows, .. } => Cost::new::<S>(0, 2 * rows.len() * shape.width()),
            Self::CumulativeSum { extents: (outer, extent, inner), .. } => {
                Cost::new::<S>(0, 2 * outer * extent * inner)
            }
            Self::Attention { extents, inputs, result, .. } => {
                let visible: usize = (0..extents.query_len).map(|query| extents.visible_keys(query).len()).sum();
                let flops = 2 * extents.batch * extents.heads * visible * (extents.width + extents.value_width);
                Cost::new::<S>(flops, total_size(inputs) + result.len())
            }
            Self::BlockAttention { inputs, result, .. } | Self::TokenAttention { inputs, result, .. } => {
                Cost::new::<S>(0, total_size(inputs) + result.len())
            }
            Self::Norm { x, .. } => Cost::new::<S>(0, 2 * x.shape.size()),
            Self::SiluGate { x, .. } => Cost::new::<S>(0, 3 * x.shape.size()),
            Self::Convolution { padded, filters, extents, .. } => {
                Cost::new::<S>(2 * extents.taps * padded.shape.size(), 2 * padded.shape.size() + filters.shape.size())
            }
            Self::GatedScan { inputs, states, .. } => Cost::new::<S>(0, total_size(inputs) + states.len()),
            Self::CrossEntropy { logits, .. } => Cost::new::<S>(0, logits.shape.size()),
            Self::Recurrence(record) => record.cost(),
            Self::Delta(record) => record.cost(),
            // Not counted: a bias is added in place, and most affine functions are of one number.
            Self::Affine { .. } | Self::Bias { .. } => Cost::new::<S>(0, 0),
        }
    }
}
