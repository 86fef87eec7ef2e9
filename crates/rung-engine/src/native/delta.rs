//! The general delta rule on the native executor: kernel, record and reverse.

use crate::kernels::delta::{self, Extents, Gradients, Inputs};
use crate::native::profile::{Cost, general_delta_cost};
use crate::native::tape::{Flow, GradientTarget, Record, Tensor};
use crate::native::{Native, extents_of};
use crate::ops::GeneralDelta;
use crate::scalar::Scalar;
use crate::shape::Shape;

use super::pool::Buffer;

/// The record of a general delta rule.
pub(crate) struct DeltaRecord<S: Scalar> {
    extents: Extents,
    /// Query, key, value, decay, recall_key, removed.
    inputs: [Tensor<S>; 6],
    state: Option<Tensor<S>>,
    kept: Buffer<S>,
    pub(crate) out: GradientTarget,
    last: GradientTarget,
}

impl<S: Scalar> DeltaRecord<S> {
    pub(super) fn cost(&self) -> Cost {
        let Extents { batch, time, heads, .. } = self.extents;
        general_delta_cost(batch * time * heads, self.extents.state(), &self.inputs)
    }
}

impl<S: Scalar> Native<S> {
    /// Outputs and last state, by the kernel.
    pub(super) fn replace(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let GeneralDelta { query, key, value, decay, recall_key, erase_key, state, chunk, .. } = *inputs;
        let [batch, time, heads, value_width] = extents_of("general_delta", value);
        let key_width = key.shape.width();
        for x in [query, key, decay, recall_key, erase_key] {
            assert_eq!(x.shape, value.shape.with(3, key_width), "rows of a general delta rule on {}", value.shape);
        }
        let last_shape = Shape::new(&[batch, heads, key_width, value_width]);
        let extents = Extents { batch, time, heads, key_width, value_width, chunk: chunk.clamp(1, time.max(1)) };
        let mut kept = self.pool.take(batch * heads * extents.cells() * extents.state());
        let mut last = self.pool.take(last_shape.size());
        let mut scratch = self.pool.take(extents.scratch());
        let mut data = self.pool.take(value.data.len());
        let mut record = DeltaRecord {
            extents,
            inputs: [query, key, value, decay, recall_key, erase_key].map(Clone::clone),
            state: state.cloned(),
            kept: self.pool.take(0),
            out: GradientTarget::None,
            last: GradientTarget::None,
        };
        let results = (data.write(), last.write(), kept.write());
        delta::forward(extents, &record.view(), scratch.write(), results);
        record.kept = kept;
        let mut tape = self.lock();
        tape.end("general_delta", &data);
        if record.inputs.iter().chain(&record.state).any(|x| x.var.wanted()) {
            (record.out, record.last) = (tape.node(), tape.node());
        }
        let (out_var, last_var) = (record.out, record.last);
        if out_var.wanted() {
            tape.push("general_delta", Record::Delta(record));
        }
        (Tensor { data, shape: value.shape, var: out_var }, Tensor { data: last, shape: last_shape, var: last_var })
    }
}

impl<S: Scalar> DeltaRecord<S> {
    pub(super) fn backward(self, flow: &mut Flow<'_, S>) {
        let (slope, last) = match (flow.take(self.out), flow.take(self.last)) {
            (None, None) => return,
            (Some(slope), last) => (slope, last),
            (None, last) => (flow.pool.filled(self.inputs[2].shape.size(), S::ZERO), last),
        };
        let mut to = self.inputs.each_ref().map(|x| flow.pool.take(x.shape.size()));
        let mut to_state = flow.pool.take(self.state.as_ref().map_or(0, |state| state.shape.size()));
        let mut scratch = flow.pool.take(self.extents.scratch_back());
        let [query, key, value, decay, recall_key, erase_key] = to.each_mut().map(Buffer::write);
        let mut gradients = Gradients { query, key, value, decay, recall_key, erase_key, state: to_state.write() };
        let slopes = (&*slope, last.as_deref().unwrap_or(&[]));
        delta::backward(self.extents, &self.view(), &self.kept, slopes, scratch.write(), &mut gradients);
        for (x, gradient) in self.inputs.iter().zip(to) {
            flow.give(x.var, gradient);
        }
        if let Some(state) = &self.state {
            flow.give(state.var, to_state);
        }
    }

    /// The kernel's view of the inputs.
    fn view(&self) -> Inputs<'_, S> {
        let [query, key, value, decay, recall_key, erase_key] = self.inputs.each_ref().map(|x| &x.data[..]);
        let state = self.state.as_ref().map_or(&[][..], |state| &state.data);
        Inputs { query, key, value, decay, recall_key, erase_key, state }
    }
}
