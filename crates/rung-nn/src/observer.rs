//! An executor that calls an interceptor at the operations that move information between tokens.
//!
//! [`ObservedOps`] runs every operation on [`Native`], fused kernels included, and passes attention, recurrences, convolutions and softmax
//! to an [`OpInterceptor`]. An interceptor may only record inputs and outputs, and is then called an observer ([`trace`](crate::trace)), or
//! compute the operation in another way ([`protocol`](crate::protocol)).

use rung_engine::{
    AttentionInputs, BlockAttention, GatedScan, GeneralDelta, Native, Ops, Recurrence, Scalar, Tensor, delegate_ops,
};

/// Is called in place of operations. Each method computes its operation, by default with [`Native`].
pub trait OpInterceptor<S: Scalar> {
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

    /// See [`Ops::gated_scan`].
    fn gated_scan(&self, ops: &Native<S>, inputs: &GatedScan<'_, Tensor<S>>) -> Tensor<S> {
        ops.gated_scan(inputs)
    }

    /// See [`Ops::softmax`]. It is not called for the softmax inside of [`attention`](Self::attention).
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
    /// `[channels, kernel_size]`.
    pub filters: &'a Tensor<S>,
    /// `[channels]`.
    pub bias: Option<&'a Tensor<S>>,
    /// The last inputs of the span before.
    pub state: Option<&'a Tensor<S>>,
}

/// An executor with an interceptor.
pub struct ObservedOps<'a, S: Scalar> {
    /// Runs the operations.
    pub native: Native<S>,
    /// Is called at the operations that move information between tokens.
    pub interceptor: &'a dyn OpInterceptor<S>,
}

impl<S: Scalar> Ops for ObservedOps<'_, S> {
    type Scalar = S;
    type Tensor = Tensor<S>;
    delegate_ops!(native => primitives);
    delegate_ops!(native => linear, rms_norm, layer_norm, l2_norm, silu, gelu, gelu_exact, elu_plus_one, silu_gate);
    delegate_ops!(native => left_to_right_attention, choose_tokens, rotary, cross_entropy, round_to_bits);

    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        self.interceptor.enter(name);
        self.native.scope(name, body)
    }
    fn softmax(&self, x: &Tensor<S>) -> Tensor<S> {
        self.interceptor.softmax(&self.native, x)
    }
    fn attention(&self, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        self.interceptor.attention(&self.native, inputs)
    }
    fn block_attention(&self, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        self.interceptor.block_attention(&self.native, inputs)
    }
    fn recurrence(&self, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        self.interceptor.recurrence(&self.native, inputs)
    }
    fn general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        self.interceptor.general_delta(&self.native, inputs)
    }
    fn gated_scan(&self, inputs: &GatedScan<'_, Tensor<S>>) -> Tensor<S> {
        self.interceptor.gated_scan(&self.native, inputs)
    }
    fn short_convolution(
        &self,
        x: &Tensor<S>,
        filters: &Tensor<S>,
        bias: Option<&Tensor<S>>,
        state: Option<&Tensor<S>>,
    ) -> (Tensor<S>, Tensor<S>) {
        self.interceptor.short_convolution(&self.native, &ConvolutionInputs { x, filters, bias, state })
    }
}
