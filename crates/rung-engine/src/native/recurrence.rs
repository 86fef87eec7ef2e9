//! Linear recurrences on the native executor: the forward pass, its record, and the backward pass.

use super::pool::Buffer;
use super::profile::Cost;
use super::record::Record;
use super::tape::{BackwardPass, GradientTarget, Tensor};
use super::{Native, extents_of};
use crate::kernels::recurrence::{self, Extents, Gradients, Inputs};
use crate::ops::{Decay, Recurrence};
use crate::scalar::Scalar;
use crate::shape::Shape;

/// The record of a recurrence.
pub(crate) struct RecurrenceRecord<S: Scalar> {
    extents: Extents,
    /// The tensors of [`Inputs`], in its order.
    inputs: [Option<Tensor<S>>; 6],
    cell_states: Buffer<S>,
    errors: Buffer<S>,
    pub(super) out: GradientTarget,
    last_state: GradientTarget,
}

impl<S: Scalar> Native<S> {
    /// Outputs and last state, by the kernel.
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
        let (chunk, delta) = (chunk.clamp(1, time.max(1)), beta.is_some());
        let extents = Extents { batch, time, heads, key_heads, key_width, value_width, chunk, decay_columns, delta };
        let inputs = [Some(query), Some(key), Some(value), decay, beta, state].map(Option::<&_>::cloned);
        let mut cell_states = self.pool.take(batch * heads * extents.cell_count() * extents.state_len());
        let mut errors = self.pool.take(if delta { value.data.len() } else { 0 });
        let mut last_state = self.pool.take(batch * heads * extents.state_len());
        let mut scratch = self.pool.take(extents.scratch_len());
        let mut data = self.pool.take(value.data.len());
        let results = (data.write(), last_state.write(), cell_states.write(), errors.write());
        recurrence::forward(extents, &Inputs::from(Tensor::data_of(&inputs)), scratch.write(), results);
        let last_shape = Shape::new(&[batch, heads, key_width, value_width]);
        let takes_gradient = inputs.iter().flatten().any(|x| x.grad_target.is_some());
        self.emit_with_state(
            "recurrence",
            (data, value.shape),
            (last_state, last_shape),
            takes_gradient,
            |out, last_state| {
                Record::Recurrence(RecurrenceRecord { extents, inputs, cell_states, errors, out, last_state })
            },
        )
    }
}

impl<S: Scalar> RecurrenceRecord<S> {
    pub(super) fn backward(self, pass: &mut BackwardPass<'_, S>) {
        let inputs = Inputs::from(Tensor::data_of(&self.inputs));
        let mut scratch = pass.pool.take(self.extents.scratch_len());
        pass.backward_with_state(&self.inputs, [self.out, self.last_state], |grad_results, gradients| {
            let saved = (&*self.cell_states, &*self.errors);
            let gradients = &mut Gradients::from(gradients);
            recurrence::backward(self.extents, &inputs, saved, grad_results, scratch.write(), gradients);
        });
    }

    /// The cost of the forward pass, as the step form would compute it.
    pub(super) fn cost(&self) -> Cost {
        let extents = self.extents;
        let per_token = (if extents.delta { 6 } else { 4 }) * extents.state_len();
        let tokens = extents.batch * extents.time * extents.heads;
        let input_size: usize = self.inputs[..5].iter().flatten().map(|x| x.shape.size()).sum();
        Cost::new::<S>(tokens * per_token, input_size + tokens * extents.value_width)
    }
}
