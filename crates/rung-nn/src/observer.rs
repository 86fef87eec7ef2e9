//! An executor with a listener.
//!
//! [`ObservedOps`] runs every operation on [`Native`], kernels included, and lets an [`OpObserver`] stand beside the operations that
//! move things between tokens: attention, recurrences and convolutions, and beside choices by softmax. A listener may only write down what passes
//! ([`trace`](crate::trace)), or do the work itself in another way ([`protocol`](crate::protocol)).

use rung_engine::{
    AttentionInputs, BlockAttention, GeneralDelta, Native, Ops, Recurrence, Scalar, Tensor, delegate_ops,
};

/// Who listens. Each method does the work, by default as [`Native`] does.
pub trait OpObserver<S: Scalar> {
    /// A named part of the model begins.
    fn enter(&self, name: &str) {
        let _ = name;
    }

    /// See [`Ops::attention`].
    fn attention(&self, ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        ops.attention(inputs)
    }

    /// See [`Ops::block_attention`].
    fn block_attention(&self, ops: &Native<S>, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        ops.block_attention(inputs)
    }

    /// See [`Ops::recurrence`].
    fn recurrence(&self, ops: &Native<S>, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        ops.recurrence(inputs)
    }

    /// See [`Ops::general_delta`].
    fn general_delta(&self, ops: &Native<S>, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        ops.general_delta(inputs)
    }

    /// See [`Ops::softmax`]: of what is chosen among, where that is not the keys of [`attention`](Self::attention).
    fn softmax(&self, ops: &Native<S>, x: &Tensor<S>) -> Tensor<S> {
        ops.softmax(x)
    }

    /// See [`Ops::short_convolution`].
    fn short_convolution(&self, ops: &Native<S>, inputs: &ConvolutionInputs<'_, S>) -> (Tensor<S>, Tensor<S>) {
        ops.short_convolution(inputs.x, inputs.filters, inputs.bias, inputs.state)
    }
}

/// The inputs of [`Ops::short_convolution`].
pub struct ConvolutionInputs<'a, S: Scalar> {
    /// `[batch, time, channels]`.
    pub x: &'a Tensor<S>,
    /// `[channels, taps]`.
    pub filters: &'a Tensor<S>,
    /// `[channels]`.
    pub bias: Option<&'a Tensor<S>>,
    /// The inputs before the first.
    pub state: Option<&'a Tensor<S>>,
}

/// An executor and its listener.
pub struct ObservedOps<'a, S: Scalar> {
    /// What runs.
    pub native: Native<S>,
    /// Who listens.
    pub watch: &'a dyn OpObserver<S>,
}

impl<S: Scalar> Ops for ObservedOps<'_, S> {
    type Scalar = S;
    type Tensor = Tensor<S>;
    delegate_ops!(native => primitives);
    delegate_ops!(native => linear, rms_norm, layer_norm, l2_norm, silu, gelu, gelu_exact, elu_plus_one, silu_gate);
    delegate_ops!(native => left_to_right_attention, gated_scan, rotary, cross_entropy, round_to_bits);

    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        self.watch.enter(name);
        self.native.scope(name, body)
    }
    fn softmax(&self, x: &Tensor<S>) -> Tensor<S> {
        self.watch.softmax(&self.native, x)
    }
    fn attention(&self, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        self.watch.attention(&self.native, inputs)
    }
    fn block_attention(&self, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        self.watch.block_attention(&self.native, inputs)
    }
    fn recurrence(&self, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        self.watch.recurrence(&self.native, inputs)
    }
    fn general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        self.watch.general_delta(&self.native, inputs)
    }
    fn short_convolution(
        &self,
        x: &Tensor<S>,
        filters: &Tensor<S>,
        bias: Option<&Tensor<S>>,
        state: Option<&Tensor<S>>,
    ) -> (Tensor<S>, Tensor<S>) {
        self.watch.short_convolution(&self.native, &ConvolutionInputs { x, filters, bias, state })
    }
}
