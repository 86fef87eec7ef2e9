//! The general delta rule on the native executor: the forward pass, its record, and the backward pass.

use super::pool::Buffer;
use super::profile::Cost;
use super::record::Record;
use super::tape::{BackwardPass, GradientTarget, Tensor};
use super::{Native, extents_of};
use crate::kernels::delta::{self, Extents, Gradients, Inputs};
use crate::ops::GeneralDelta;
use crate::scalar::Scalar;
use crate::shape::Shape;

/// The record of a general delta rule.
pub(crate) struct DeltaRecord<S: Scalar> {
    extents: Extents,
    /// The tensors of [`Inputs`], in its order.
    inputs: [Option<Tensor<S>>; 7],
    cell_states: Buffer<S>,
    pub(super) out: GradientTarget,
    last_state: GradientTarget,
}

impl<S: Scalar> Native<S> {
    /// Outputs and last state, by the kernel.
    pub(super) fn run_general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let GeneralDelta { query, key, value, decay, recall_key, erase_key, state, chunk, .. } = *inputs;
        let [batch, time, heads, value_width] = extents_of("general_delta", value);
        let key_width = key.shape.width();
        for x in [query, key, decay, recall_key, erase_key] {
            assert_eq!(x.shape, value.shape.with(3, key_width), "rows of a general delta rule on {}", value.shape);
        }
        let extents = Extents { batch, time, heads, key_width, value_width, chunk: chunk.clamp(1, time.max(1)) };
        let inputs = [Some(query), Some(key), Some(value), Some(decay), Some(recall_key), Some(erase_key), state]
            .map(Option::<&_>::cloned);
        let last_shape = Shape::new(&[batch, heads, key_width, value_width]);
        let mut cell_states = self.pool.take(batch * heads * extents.cell_count() * extents.state_len());
        let mut last_state = self.pool.take(last_shape.size());
        let mut scratch = self.pool.take(extents.forward_scratch_len());
        let mut data = self.pool.take(value.data.len());
        let results = (data.write(), last_state.write(), cell_states.write());
        delta::forward(extents, &Inputs::from(Tensor::data_of(&inputs)), scratch.write(), results);
        let takes_gradient = inputs.iter().flatten().any(|x| x.grad_target.is_some());
        self.emit_with_state(
            "general_delta",
            (data, value.shape),
            (last_state, last_shape),
            takes_gradient,
            |out, last_state| Record::Delta(DeltaRecord { extents, inputs, cell_states, out, last_state }),
        )
    }
}

impl<S: Scalar> DeltaRecord<S> {
    pub(super) fn backward(self, pass: &mut BackwardPass<'_, S>) {
        let inputs = Inputs::from(Tensor::data_of(&self.inputs));
        let mut scratch = pass.pool.take(self.extents.backward_scratch_len());
        pass.backward_with_state(&self.inputs, [self.out, self.last_state], |grad_results, gradients| {
            let gradients = &mut Gradients::from(gradients);
            delta::backward(self.extents, &inputs, &self.cell_states, grad_results, scratch.write(), gradients);
        });
    }

    /// The cost of the forward pass: each token decays, recalls from, writes to and reads from its state.
    pub(super) fn cost(&self) -> Cost {
        let Extents { batch, time, heads, .. } = self.extents;
        let input_size: usize = self.inputs[..6].iter().flatten().map(|x| x.shape.size()).sum();
        Cost::new::<S>(8 * batch * time * heads * self.extents.state_len(), input_size)
    }
}
