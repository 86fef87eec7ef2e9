//! What was done, so that it can be undone.
//!
//! Every operation that a gradient must pass through leaves a [`Record`] on the tape: which variables went in, which came out,
//! and the buffers its backward pass will read. The reverse pass takes records off the end; each takes the gradient of its
//! outputs and gives gradients to its inputs. Records own their buffers, so what no record needs goes back to the pool while the
//! forward pass is still running, and the rest as the reverse pass goes.
//!
//! Records are an enum and lists of numbers live in two growing arrays of the tape, rather than in boxes, because a step must
//! not ask the system for memory: after the first step every array has its size.
//!
//! Gradients of weights go straight into one flat array, where the pieces of a batch add up.

use crate::choice::BlockReaders;
use crate::kernels::pointwise::{ElementMap, accumulate};
use crate::kernels::update::all_finite;
use crate::kernels::{attention, blocks, convolution, gated, norm, recurrence};
use crate::native::delta::DeltaRecord;
use crate::native::pool::{Buffer, Pool};
use crate::native::profile::{BACKWARD, FORWARD, Profile};
use crate::ops::Binary;
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};
use std::ops::Range;
use std::sync::Arc;

/// Where a gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradientTarget {
    /// Nowhere: a constant.
    None,
    /// Into this part of the flat gradient.
    Weight { start: usize, length: usize },
    /// To whoever made this.
    Node(u32),
}

impl GradientTarget {
    pub(crate) fn wanted(self) -> bool {
        self != Self::None
    }
}

/// A handle to a tensor of the native executor.
#[derive(Clone)]
pub struct Tensor<S: Scalar> {
    pub(crate) data: Buffer<S>,
    pub(crate) shape: Shape,
    pub(crate) var: GradientTarget,
}

/// One operation, as its backward pass needs it.
pub(crate) enum Record<S: Scalar> {
    Map {
        kind: ElementMap,
        x: GradientTarget,
        kept: Buffer<S>,
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
        flip_left: bool,
        right: Tensor<S>,
        flip_right: bool,
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
        parts: Range<usize>,
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
        rows: Range<usize>,
        out: GradientTarget,
    },
    RunningSum {
        x: GradientTarget,
        around: (usize, usize, usize),
        out: GradientTarget,
    },
    Attention {
        extents: attention::Extents,
        inputs: [Tensor<S>; 3],
        bias: Option<Tensor<S>>,
        result: Buffer<S>,
        kept: Buffer<S>,
        out: GradientTarget,
    },
    Blocks {
        extents: blocks::Extents,
        readers: BlockReaders,
        inputs: [Tensor<S>; 3],
        result: Buffer<S>,
        kept: Buffer<S>,
        out: GradientTarget,
    },
    Norm {
        norm: norm::Norm,
        x: Tensor<S>,
        weight: Option<Tensor<S>>,
        bias: GradientTarget,
        kept: Buffer<S>,
        out: GradientTarget,
    },
    Gate {
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
        angles: [Buffer<S>; 2],
        out: GradientTarget,
    },
    Loss {
        logits: Tensor<S>,
        targets: Range<usize>,
        kept: Buffer<S>,
        out: GradientTarget,
    },
    Recurrence(Recurrent<S>),
    Delta(DeltaRecord<S>),
}

/// The record of a recurrence, which has the most to keep.
pub(crate) struct Recurrent<S: Scalar> {
    pub(crate) extents: recurrence::Extents,
    pub(crate) inputs: [Tensor<S>; 3],
    pub(crate) decay: Option<Tensor<S>>,
    pub(crate) beta: Option<Tensor<S>>,
    pub(crate) state: Option<Tensor<S>>,
    pub(crate) kept: Buffer<S>,
    pub(crate) errors: Buffer<S>,
    pub(crate) out: GradientTarget,
    pub(crate) last: GradientTarget,
}

/// Where a number stopped being finite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} in {scope} gave a number that is not finite, in the {pass} pass")]
pub struct NonFinite {
    /// The names given to [`scope`](crate::Ops::scope), outermost first.
    pub scope: String,
    /// The operation.
    pub operation: &'static str,
    /// `forward` or `backward`.
    pub pass: &'static str,
}

/// Looks at every result while it is on. It is off in the ordinary course: a step that ends in a number that is not finite is run
/// again with it on, to find where that began.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) scopes: Vec<String>,
    pub(crate) fault: Option<NonFinite>,
}

impl Watch {
    fn inspect<S: Scalar>(&mut self, values: &[S], operation: &'static str, scope: Option<&str>, pass: &'static str) {
        if self.fault.is_none() && !all_finite(values) {
            let scope = scope.map_or_else(|| self.place(), str::to_owned);
            self.fault = Some(NonFinite { scope, operation, pass });
        }
    }

    /// The current scope, as one text.
    fn place(&self) -> String {
        if self.scopes.is_empty() { "the model".to_owned() } else { self.scopes.join(", ") }
    }
}

/// A record with the name of its operation, and of its scope if someone is watching.
struct TapeEntry<S: Scalar> {
    record: Record<S>,
    operation: &'static str,
    scope: Option<String>,
}

/// The records of a forward pass, and the gradients of a reverse pass.
pub(crate) struct Tape<S: Scalar> {
    entries: Vec<TapeEntry<S>>,
    slots: Vec<Option<Buffer<S>>>,
    pub(crate) indices: Vec<u32>,
    pub(crate) parts: Vec<(GradientTarget, usize)>,
    /// Values of the weights in this step.
    pub(crate) weights: Option<Arc<Vec<S>>>,
    /// Shape and place of each weight.
    pub(crate) layout: Vec<(Shape, usize)>,
    /// Whether weights take gradients.
    pub(crate) training: bool,
    pub(crate) gradient: Vec<S>,
    pub(crate) watch: Option<Watch>,
    pub(crate) profile: Option<Profile>,
}

impl<S: Scalar> Tape<S> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            slots: Vec::new(),
            indices: Vec::new(),
            parts: Vec::new(),
            weights: None,
            layout: Vec::new(),
            training: false,
            gradient: Vec::new(),
            watch: None,
            profile: None,
        }
    }

    /// Forgets all records and variables; arrays keep their size.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.slots.clear();
        self.indices.clear();
        self.parts.clear();
    }

    /// A new variable.
    pub(crate) fn node(&mut self) -> GradientTarget {
        self.slots.push(None);
        GradientTarget::Node(self.slots.len() as u32 - 1)
    }

    pub(crate) fn push(&mut self, operation: &'static str, record: Record<S>) {
        if let Some(profile) = &mut self.profile {
            profile.count(operation, FORWARD, record.cost());
        }
        let scope = self.watch.as_ref().map(Watch::place);
        self.entries.push(TapeEntry { record, operation, scope });
    }

    /// Remembers row numbers until the reverse pass.
    pub(crate) fn store_rows(&mut self, rows: &[usize]) -> Range<usize> {
        let start = self.indices.len();
        self.indices.extend(rows.iter().map(|&row| row as u32));
        start..self.indices.len()
    }

    /// Ends an operation: its time goes to the profile, and its result is checked, if either is on.
    pub(crate) fn end(&mut self, operation: &'static str, values: &[S]) {
        if let Some(profile) = &mut self.profile {
            profile.lap(operation, FORWARD);
        }
        if let Some(watch) = &mut self.watch {
            watch.inspect(values, operation, None, FORWARD);
        }
    }

    /// The reverse pass, from a loss whose gradient is one.
    pub(crate) fn backward(&mut self, pool: &Arc<Pool<S>>, loss: &Tensor<S>) {
        let mut flow = Flow {
            pool,
            slots: &mut self.slots,
            gradient: &mut self.gradient,
            indices: &self.indices,
            parts: &self.parts,
            watch: self.watch.as_mut(),
            operation: "loss",
            scope: None,
        };
        flow.give(loss.var, pool.filled(loss.shape.size(), S::ONE));
        while let Some(entry) = self.entries.pop() {
            (flow.operation, flow.scope) = (entry.operation, entry.scope);
            if let Some(profile) = &mut self.profile {
                profile.count(entry.operation, BACKWARD, entry.record.cost());
            }
            entry.record.backward(&mut flow);
            if let Some(profile) = &mut self.profile {
                profile.lap(entry.operation, BACKWARD);
            }
        }
    }
}

/// Gradients on their way back.
pub(crate) struct Flow<'a, S: Scalar> {
    pub(crate) pool: &'a Arc<Pool<S>>,
    slots: &'a mut Vec<Option<Buffer<S>>>,
    gradient: &'a mut [S],
    pub(crate) indices: &'a [u32],
    pub(crate) parts: &'a [(GradientTarget, usize)],
    watch: Option<&'a mut Watch>,
    operation: &'static str,
    scope: Option<String>,
}

impl<S: Scalar> Flow<'_, S> {
    /// The gradient of an output, which is then gone; nothing if the output is unused.
    pub(crate) fn take(&mut self, var: GradientTarget) -> Option<Buffer<S>> {
        let GradientTarget::Node(node) = var else { return None };
        self.slots[node as usize].take()
    }

    /// Adds a gradient to a variable's.
    pub(crate) fn give(&mut self, var: GradientTarget, gradient: Buffer<S>) {
        self.inspect(&gradient);
        match var {
            GradientTarget::None => {}
            GradientTarget::Weight { start, length } => {
                accumulate(&gradient, &mut self.gradient[start..start + length]);
            }
            GradientTarget::Node(node) => {
                let sum = match self.slots[node as usize].take() {
                    None => gradient,
                    Some(held) if held.is_sole() => added(held, &gradient),
                    Some(held) if gradient.is_sole() => added(gradient, &held),
                    Some(held) => added(self.pool.copied(&held), &gradient),
                };
                self.slots[node as usize] = Some(sum);
            }
        }
    }

    /// Runs `add` on a variable's gradient, which it must add to. `fresh` says whether the gradient is new, and then holds no
    /// particular numbers: `add` must replace them.
    pub(crate) fn add_to(&mut self, var: GradientTarget, length: usize, add: impl FnOnce(&mut [S], bool)) {
        match var {
            GradientTarget::None => {}
            GradientTarget::Weight { start, length } => add(&mut self.gradient[start..start + length], false),
            GradientTarget::Node(node) => {
                let (mut buffer, fresh) = match self.slots[node as usize].take() {
                    None => (self.pool.take(length), true),
                    Some(held) if held.is_sole() => (held, false),
                    Some(held) => (self.pool.copied(&held), false),
                };
                add(buffer.write(), fresh);
                self.inspect(&buffer);
                self.slots[node as usize] = Some(buffer);
            }
        }
    }

    fn inspect(&mut self, gradient: &[S]) {
        if let Some(watch) = &mut self.watch {
            watch.inspect(gradient, self.operation, self.scope.as_deref(), BACKWARD);
        }
    }
}

fn added<S: Scalar>(mut held: Buffer<S>, more: &[S]) -> Buffer<S> {
    accumulate(more, held.write());
    held
}
