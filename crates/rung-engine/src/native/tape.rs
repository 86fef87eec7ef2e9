//! The tape: records of the forward pass, and the gradients of the backward pass.
//!
//! Every operation that a gradient must pass through leaves a [`Record`] on the tape: where the gradients of its inputs go, where
//! that of its output comes from, and the buffers that its backward pass reads. The backward pass takes records off the end; each
//! takes the gradient of its output and adds to the gradients of its inputs. Records own their buffers, so buffers that no record
//! needs return to the pool during the forward pass, and the others during the backward pass.
//!
//! Records are an enum, and lists of numbers are in two growing arrays of the tape rather than in boxes, because a step must not
//! allocate: after the first step every array has its size.
//!
//! Gradients of weights are added to one flat array, which sums them over the micro-batches of a batch.

use super::finite_check::FiniteCheck;
use super::pool::{Buffer, Pool};
use super::profile::{BACKWARD, FORWARD, Profile};
use super::record::Record;
use crate::kernels::pointwise::accumulate;
use crate::scalar::Scalar;
use crate::shape::Shape;
use std::ops::Range;
use std::sync::Arc;

/// Where a gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradientTarget {
    /// Nowhere: the tensor is a constant.
    None,
    /// To this range of the flat gradient of all weights.
    Weight { start: usize, length: usize },
    /// To the operation that computed the tensor, through this slot of the tape.
    Node(u32),
}

impl GradientTarget {
    pub(crate) fn is_some(self) -> bool {
        self != Self::None
    }
}

/// A handle to a tensor of the native executor.
#[derive(Clone)]
pub struct Tensor<S: Scalar> {
    pub(crate) data: Buffer<S>,
    pub(crate) shape: Shape,
    pub(crate) grad_target: GradientTarget,
}

impl<S: Scalar> Tensor<S> {
    /// The tensor without its numbers, for a record that needs only its shape and gradient target.
    pub(super) fn without_data(&self) -> Self {
        Self { data: Buffer::Pooled { block: None, length: 0 }, shape: self.shape, grad_target: self.grad_target }
    }

    /// The numbers of each optional tensor, empty where it is absent.
    pub(super) fn data_of<const COUNT: usize>(tensors: &[Option<Self>; COUNT]) -> [&[S]; COUNT] {
        tensors.each_ref().map(|x| Self::data_or_empty(x.as_ref()))
    }

    /// The numbers of an optional tensor, empty if absent.
    pub(super) fn data_or_empty(x: Option<&Self>) -> &[S] {
        x.map_or(&[], |x| &x.data)
    }

    /// The gradient target of an optional tensor.
    pub(super) fn grad_target_or_none(x: Option<&Self>) -> GradientTarget {
        x.map_or(GradientTarget::None, |x| x.grad_target)
    }
}

/// A record with the name of its operation, and of its scope while results are checked.
struct TapeEntry<S: Scalar> {
    record: Record<S>,
    operation: &'static str,
    scope: Option<String>,
}

/// The records of a forward pass, the weights it reads, and the gradients of a backward pass.
pub(crate) struct Tape<S: Scalar> {
    entries: Vec<TapeEntry<S>>,
    /// The gradient of each node so far.
    slots: Vec<Option<Buffer<S>>>,
    /// Row indices and classes that records refer to.
    pub(crate) indices: Vec<u32>,
    /// Inputs of concatenations that records refer to, with their extents along the axis.
    pub(crate) concat_inputs: Vec<(GradientTarget, usize)>,
    /// Values of the weights in this step.
    pub(crate) weights: Option<Arc<Vec<S>>>,
    /// Shape of each weight, and where it starts in the flat array.
    pub(crate) layout: Vec<(Shape, usize)>,
    /// Whether weights take gradients.
    pub(crate) training: bool,
    pub(crate) gradient: Vec<S>,
    pub(crate) finite_check: Option<FiniteCheck>,
    pub(crate) profile: Option<Profile>,
}

impl<S: Scalar> Tape<S> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            slots: Vec::new(),
            indices: Vec::new(),
            concat_inputs: Vec::new(),
            weights: None,
            layout: Vec::new(),
            training: false,
            gradient: Vec::new(),
            finite_check: None,
            profile: None,
        }
    }

    /// Removes all records and gradients of nodes; arrays keep their capacity.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.slots.clear();
        self.indices.clear();
        self.concat_inputs.clear();
    }

    /// A new node, for the output of an operation.
    pub(crate) fn new_node(&mut self) -> GradientTarget {
        self.slots.push(None);
        GradientTarget::Node(self.slots.len() as u32 - 1)
    }

    pub(crate) fn push(&mut self, operation: &'static str, record: Record<S>) {
        if let Some(profile) = &mut self.profile {
            profile.add_cost(operation, FORWARD, record.cost());
        }
        let scope = self.finite_check.as_ref().map(FiniteCheck::scope_name);
        self.entries.push(TapeEntry { record, operation, scope });
    }

    /// Stores row indices until the backward pass.
    pub(crate) fn store_rows(&mut self, rows: &[usize]) -> Range<usize> {
        let start = self.indices.len();
        self.indices.extend(rows.iter().map(|&row| row as u32));
        start..self.indices.len()
    }

    /// Ends an operation: adds its time to the profile and checks its result, if these are on.
    pub(crate) fn end_operation(&mut self, operation: &'static str, values: &[S]) {
        if let Some(profile) = &mut self.profile {
            profile.end_operation(operation, FORWARD);
        }
        if let Some(check) = &mut self.finite_check {
            check.inspect(values, operation, None, FORWARD);
        }
    }

    /// The backward pass, from a loss whose gradient is 1.
    pub(crate) fn backward(&mut self, pool: &Arc<Pool<S>>, loss: &Tensor<S>) {
        let mut pass = BackwardPass {
            pool,
            slots: &mut self.slots,
            gradient: &mut self.gradient,
            indices: &self.indices,
            concat_inputs: &self.concat_inputs,
            finite_check: self.finite_check.as_mut(),
            operation: "loss",
            scope: None,
        };
        pass.add_gradient(loss.grad_target, pool.take_filled(loss.shape.size(), S::ONE));
        while let Some(entry) = self.entries.pop() {
            (pass.operation, pass.scope) = (entry.operation, entry.scope);
            if let Some(profile) = &mut self.profile {
                profile.add_cost(entry.operation, BACKWARD, entry.record.cost());
            }
            entry.record.backward(&mut pass);
            if let Some(profile) = &mut self.profile {
                profile.end_operation(entry.operation, BACKWARD);
            }
        }
    }
}

/// The state of a backward pass: the gradients so far, and what records refer to.
pub(crate) struct BackwardPass<'a, S: Scalar> {
    pub(crate) pool: &'a Arc<Pool<S>>,
    slots: &'a mut Vec<Option<Buffer<S>>>,
    gradient: &'a mut [S],
    pub(crate) indices: &'a [u32],
    pub(crate) concat_inputs: &'a [(GradientTarget, usize)],
    finite_check: Option<&'a mut FiniteCheck>,
    operation: &'static str,
    scope: Option<String>,
}

impl<S: Scalar> BackwardPass<'_, S> {
    /// Takes the gradient of an output out of its slot; `None` if nothing used the output.
    pub(crate) fn take_gradient(&mut self, output: GradientTarget) -> Option<Buffer<S>> {
        let GradientTarget::Node(node) = output else { return None };
        self.slots[node as usize].take()
    }

    /// The backward pass of an operation that returns outputs, shaped like its third input, and a last state.
    ///
    /// Calls `backward` with the gradients of the outputs and of the last state (empty if nothing used it), and with zeros to which
    /// it adds the gradients of the inputs. Does nothing if nothing used the results.
    pub(super) fn backward_with_state<const COUNT: usize>(
        &mut self,
        inputs: &[Option<Tensor<S>>; COUNT],
        [out, last_state]: [GradientTarget; 2],
        backward: impl FnOnce((&[S], &[S]), [&mut [S]; COUNT]),
    ) {
        let (grad_out, grad_last_state) = (self.take_gradient(out), self.take_gradient(last_state));
        if grad_out.is_none() && grad_last_state.is_none() {
            return;
        }
        let size = |x: &Option<Tensor<S>>| x.as_ref().map_or(0, |x| x.shape.size());
        let grad_out = grad_out.unwrap_or_else(|| self.pool.take_filled(size(&inputs[2]), S::ZERO));
        let mut gradients = inputs.each_ref().map(|x| self.pool.take_filled(size(x), S::ZERO));
        let grad_results = (&*grad_out, grad_last_state.as_deref().unwrap_or(&[]));
        backward(grad_results, gradients.each_mut().map(Buffer::write));
        for (x, gradient) in inputs.iter().zip(gradients) {
            self.add_gradient(Tensor::grad_target_or_none(x.as_ref()), gradient);
        }
    }

    /// Adds to the gradient of a tensor.
    pub(crate) fn add_gradient(&mut self, target: GradientTarget, gradient: Buffer<S>) {
        self.inspect(&gradient);
        match target {
            GradientTarget::None => {}
            GradientTarget::Weight { start, length } => {
                accumulate(&gradient, &mut self.gradient[start..start + length]);
            }
            GradientTarget::Node(node) => {
                let sum = match self.slots[node as usize].take() {
                    None => gradient,
                    Some(old) if old.has_one_owner() => sum_in_place(old, &gradient),
                    Some(old) if gradient.has_one_owner() => sum_in_place(gradient, &old),
                    Some(old) => sum_in_place(self.pool.take_copy(&old), &gradient),
                };
                self.slots[node as usize] = Some(sum);
            }
        }
    }

    /// Calls `update` with the gradient of a tensor, which it must add to, and `false`. If there is no gradient yet, calls it with
    /// arbitrary numbers, which it must overwrite, and `true`.
    pub(crate) fn update_gradient(
        &mut self,
        target: GradientTarget,
        length: usize,
        update: impl FnOnce(&mut [S], bool),
    ) {
        match target {
            GradientTarget::None => {}
            GradientTarget::Weight { start, length } => update(&mut self.gradient[start..start + length], false),
            GradientTarget::Node(node) => {
                let (mut buffer, is_new) = match self.slots[node as usize].take() {
                    None => (self.pool.take(length), true),
                    Some(old) if old.has_one_owner() => (old, false),
                    Some(old) => (self.pool.take_copy(&old), false),
                };
                update(buffer.write(), is_new);
                self.inspect(&buffer);
                self.slots[node as usize] = Some(buffer);
            }
        }
    }

    fn inspect(&mut self, gradient: &[S]) {
        if let Some(check) = &mut self.finite_check {
            check.inspect(gradient, self.operation, self.scope.as_deref(), BACKWARD);
        }
    }
}

fn sum_in_place<S: Scalar>(mut sum: Buffer<S>, term: &[S]) -> Buffer<S> {
    accumulate(term, sum.write());
    sum
}
