//! Linear recurrences and the general delta rule on the native executor: the forward pass, its record, and the backward pass.

use super::pool::Buffer;
use super::profile::Cost;
use super::record::Record;
use super::tape::{BackwardPass, GradientTarget, Tensor};
use super::{Native, extents_of};
use crate::kernels::delta::DeltaKernel;
use crate::kernels::heads::{BackwardInputs, Extents, Results, StateKernel};
use crate::kernels::recurrence::RecurrenceKernel;
use crate::ops::{Decay, GeneralDelta, Recurrence};
use crate::scalar::Scalar;
use crate::shape::Shape;

/// The record of a kernel with a state.
pub(crate) struct StateRecord<S: Scalar, K, const COUNT: usize> {
    kernel: K,
    /// The kernel's inputs, in its order.
    inputs: [Option<Tensor<S>>; COUNT],
    cell_states: Buffer<S>,
    saved_rows: Buffer<S>,
    pub(super) out: GradientTarget,
    last_state: GradientTarget,
}

impl<S: Scalar> Native<S> {
    /// Outputs and last state of a linear recurrence, by its kernel.
    pub(super) fn run_recurrence(&self, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let Recurrence { query, key, value, ref decay, beta, state, chunk, .. } = *inputs;
        let [batch, time, heads, value_width] = extents_of("recurrence", value);
        let [_, _, key_heads, key_width] = extents_of("recurrence", key);
        assert_eq!(query.shape, key.shape, "queries and keys of a recurrence");
        assert!(heads.is_multiple_of(key_heads), "{heads} heads on {key_heads}");
        let (decay, decay_columns) = match *decay {
            Decay::None => (None, 0),
            Decay::Scalar(decay) => (Some(decay), 1),
            Decay::Vector(decay) => (Some(decay), key_width),
        };
        if let Some(decay) = decay {
            assert_eq!(decay.shape.size(), batch * time * heads * decay_columns, "decays of shape {}", decay.shape);
        }
        let chunk = chunk.clamp(1, time.max(1));
        let extents = Extents { batch, time, heads, key_heads, key_width, value_width, chunk };
        let kernel = RecurrenceKernel { extents, decay_columns, delta: beta.is_some() };
        let inputs = [Some(query), Some(key), Some(value), decay, beta, state];
        self.run_state_kernel("recurrence", kernel, inputs, Record::Recurrence)
    }

    /// Outputs and last state of a general delta rule, by its kernel.
    pub(super) fn run_general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let GeneralDelta { query, key, value, decay, recall_key, erase_key, state, chunk, .. } = *inputs;
        let [batch, time, heads, value_width] = extents_of("general_delta", value);
        let key_width = key.shape.width();
        for x in [query, key, decay, recall_key, erase_key] {
            assert_eq!(x.shape, value.shape.with(3, key_width), "rows of a general delta rule on {}", value.shape);
        }
        let chunk = chunk.clamp(1, time.max(1));
        let extents = Extents { batch, time, heads, key_heads: heads, key_width, value_width, chunk };
        let inputs = [Some(query), Some(key), Some(value), Some(decay), Some(recall_key), Some(erase_key), state];
        self.run_state_kernel("general_delta", DeltaKernel { extents }, inputs, Record::Delta)
    }

    /// Outputs, shaped like the kernel's third input, and the last state.
    fn run_state_kernel<K: StateKernel<COUNT>, const COUNT: usize>(
        &self,
        operation: &'static str,
        kernel: K,
        inputs: [Option<&Tensor<S>>; COUNT],
        record: impl FnOnce(StateRecord<S, K, COUNT>) -> Record<S>,
    ) -> (Tensor<S>, Tensor<S>) {
        let (extents, inputs) = (kernel.extents(), inputs.map(Option::<&_>::cloned));
        let Extents { batch, heads, key_width, value_width, .. } = extents;
        let shape = Shape::new(&[batch, extents.time, heads, value_width]);
        let last_shape = Shape::new(&[batch, heads, key_width, value_width]);
        let mut cell_states = self.pool.take(batch * heads * extents.cell_count() * extents.state_len());
        let mut saved_rows = self.pool.take(if kernel.saves_rows() { shape.size() } else { 0 });
        let mut last_state = self.pool.take(last_shape.size());
        let mut scratch = self.pool.take(kernel.scratch_lens()[0]);
        let mut data = self.pool.take(shape.size());
        let results = Results {
            out: data.write(),
            last_states: last_state.write(),
            cell_states: cell_states.write(),
            saved_rows: saved_rows.write(),
        };
        kernel.forward(Tensor::data_of(&inputs), scratch.write(), results);
        let takes_gradient = inputs.iter().flatten().any(|x| x.grad_target.is_some());
        self.emit_with_state(operation, (data, shape), (last_state, last_shape), takes_gradient, |out, last_state| {
            record(StateRecord { kernel, inputs, cell_states, saved_rows, out, last_state })
        })
    }
}

impl<S: Scalar, K: StateKernel<COUNT>, const COUNT: usize> StateRecord<S, K, COUNT> {
    pub(super) fn backward(self, pass: &mut BackwardPass<'_, S>) {
        let mut scratch = pass.pool.take(self.kernel.scratch_lens()[1]);
        pass.backward_with_state(&self.inputs, [self.out, self.last_state], |grad_results, gradients| {
            let (grad_out, grad_last_states) = grad_results;
            let (cell_states, saved_rows) = (&*self.cell_states, &*self.saved_rows);
            let backward_inputs = BackwardInputs { cell_states, saved_rows, grad_out, grad_last_states };
            self.kernel.backward(Tensor::data_of(&self.inputs), backward_inputs, scratch.write(), gradients);
        });
    }

    /// The cost of the forward pass, as the step form would compute it.
    pub(super) fn cost(&self) -> Cost {
        let extents = self.kernel.extents();
        let tokens = extents.batch * extents.time * extents.heads;
        let input_size: usize = self.inputs[..COUNT - 1].iter().flatten().map(|x| x.shape.size()).sum();
        let flops = tokens * extents.state_len() * self.kernel.step_flops();
        Cost::new::<S>(flops, input_size + tokens * extents.value_width)
    }
}
