//! Where the time of a step goes, operation by operation.
//!
//! While a profile is on, the executor reads the clock at the end of each operation, and the time since the reading before belongs to
//! that operation. So the rows add up to the time of the passes.
//!
//! Arithmetic counts products alone (a multiply-add is two), and a backward pass as two forward ones; a recurrence counts what its
//! step form does. Memory traffic counts every input and output once: what a kernel reads again from a cache is not in it.

use std::time::Instant;

use super::tape::{Record, Recurrent, Tensor};
use crate::scalar::Scalar;

/// Time, arithmetic and memory traffic of one operation in one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationProfile {
    /// The operation.
    pub operation: &'static str,
    /// `forward` or `backward`.
    pub pass: &'static str,
    /// How often it ran.
    pub calls: u64,
    /// Seconds in all.
    pub seconds: f64,
    /// Floating-point operations in all.
    pub flops: f64,
    /// Bytes read and written in all.
    pub bytes: f64,
}

/// The rows of a profile so far.
pub(crate) struct Profile {
    rows: Vec<OperationProfile>,
    last: Instant,
}

impl Profile {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), last: Instant::now() }
    }

    /// What happened since the last reading belongs to no operation.
    pub(crate) fn skip(&mut self) {
        self.last = Instant::now();
    }

    /// An operation ends here.
    pub(crate) fn lap(&mut self, operation: &'static str, pass: &'static str) {
        let now = Instant::now();
        let seconds = now.duration_since(self.last).as_secs_f64();
        self.last = now;
        let row = self.row(operation, pass);
        row.calls += 1;
        row.seconds += seconds;
    }

    /// Adds what an operation costs, once for a forward and twice for a backward pass.
    pub(crate) fn count(&mut self, operation: &'static str, pass: &'static str, cost: Cost) {
        let times = if pass == BACKWARD { 2.0 } else { 1.0 };
        let row = self.row(operation, pass);
        row.flops += times * cost.flops;
        row.bytes += times * cost.bytes;
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

/// What the forward pass of an operation costs.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    flops: f64,
    bytes: f64,
}

impl Cost {
    fn new<S>(flops: usize, numbers: usize) -> Self {
        Self { flops: flops as f64, bytes: (numbers * size_of::<S>()) as f64 }
    }
}

/// Numbers of some tensors.
fn numbers<'a, S: Scalar>(tensors: impl IntoIterator<Item = &'a Tensor<S>>) -> usize {
    tensors.into_iter().map(|x| x.shape.size()).sum()
}

impl<S: Scalar> Record<S> {
    /// What the forward pass costs.
    pub(crate) fn cost(&self) -> Cost {
        match self {
            Self::Map { kept, .. } => Cost::new::<S>(0, 2 * kept.len()),
            Self::Binary { left, right, shape, .. } => Cost::new::<S>(0, numbers([left, right]) + shape.size()),
            Self::Sum { from, to, .. } | Self::Broadcast { from, to, .. } => Cost::new::<S>(0, from.size() + to.size()),
            Self::Product { left, right, flip_right, .. } => {
                let rank = right.shape.len();
                let columns = right.shape[if *flip_right { rank - 2 } else { rank - 1 }];
                let inner = right.shape[if *flip_right { rank - 1 } else { rank - 2 }];
                let rows = left.shape.size() / inner.max(1);
                Cost::new::<S>(2 * rows * inner * columns, numbers([left, right]) + rows * columns)
            }
            Self::Permute { shape, .. } | Self::Concat { shape, .. } | Self::Rotary { shape, .. } => {
                Cost::new::<S>(0, 2 * shape.size())
            }
            Self::Slice { shape, axis, range, .. } => {
                Cost::new::<S>(0, 2 * shape.size() / shape[*axis].max(1) * range.len())
            }
            Self::Gather { shape, rows, .. } => Cost::new::<S>(0, 2 * rows.len() * shape.width()),
            Self::RunningSum { around: (outer, extent, inner), .. } => Cost::new::<S>(0, 2 * outer * extent * inner),
            Self::Attention { extents, inputs, result, .. } => {
                let seen: usize = (0..extents.queries).map(|query| extents.seen(query).len()).sum();
                let flops = 2 * extents.batch * extents.heads * seen * (extents.width + extents.value_width);
                Cost::new::<S>(flops, numbers(inputs) + result.len())
            }
            Self::Blocks { inputs, result, .. } => Cost::new::<S>(0, numbers(inputs) + result.len()),
            Self::Norm { x, .. } => Cost::new::<S>(0, 2 * x.shape.size()),
            Self::Gate { x, .. } => Cost::new::<S>(0, 3 * x.shape.size()),
            Self::Convolution { padded, filters, extents, .. } => {
                Cost::new::<S>(2 * extents.taps * padded.shape.size(), 2 * padded.shape.size() + filters.shape.size())
            }
            Self::GatedScan { inputs, states, .. } => Cost::new::<S>(0, numbers(inputs) + states.len()),
            Self::Loss { logits, .. } => Cost::new::<S>(0, logits.shape.size()),
            Self::Recurrence(record) => record.cost(),
            Self::Delta(record) => record.cost(),
            // In place, or of one number.
            Self::Affine { .. } | Self::Bias { .. } => Cost::new::<S>(0, 0),
        }
    }
}

impl<S: Scalar> Recurrent<S> {
    fn cost(&self) -> Cost {
        let extents = self.extents;
        let per_token = (if extents.delta { 6 } else { 4 }) * extents.state();
        let tokens = extents.batch * extents.time * extents.heads;
        let inputs = self.inputs.iter().chain(&self.decay).chain(&self.beta);
        Cost::new::<S>(tokens * per_token, numbers(inputs) + tokens * extents.value_width)
    }
}

/// What the forward pass of the general delta rule costs: decay, look-up, write and read of a state.
pub(super) fn general_delta_cost<S: Scalar>(tokens: usize, state: usize, inputs: &[Tensor<S>]) -> Cost {
    Cost::new::<S>(8 * tokens * state, numbers(inputs))
}
