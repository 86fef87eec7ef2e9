//! An executor with a listener.
//!
//! [`Watched`] runs every operation on [`Native`], kernels included, and lets a [`Watch`] stand beside the operations that
//! move things between tokens: attention, recurrences and convolutions. A listener may only write down what passes
//! ([`trace`](crate::trace)), or do the work itself in another way ([`protocol`](crate::protocol)).

use std::ops::Range;

use rung_engine::{Attention, Binary, GeneralDelta, Native, Ops, Parameter, Recurrence, Scalar, Shape, Tensor, Unary};

/// Who listens. Each method does the work, by default as [`Native`] does.
pub trait Watch<S: Scalar> {
    /// A named part of the model begins.
    fn enter(&self, name: &str) {
        let _ = name;
    }

    /// See [`Ops::attention`].
    fn attention(&self, ops: &Native<S>, inputs: &Attention<'_, Tensor<S>>) -> Tensor<S> {
        ops.attention(inputs)
    }

    /// See [`Ops::recurrence`].
    fn recurrence(&self, ops: &Native<S>, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        ops.recurrence(inputs)
    }

    /// See [`Ops::general_delta`].
    fn general_delta(&self, ops: &Native<S>, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        ops.general_delta(inputs)
    }

    /// See [`Ops::short_convolution`].
    fn short_convolution(&self, ops: &Native<S>, inputs: &Convolved<'_, S>) -> (Tensor<S>, Tensor<S>) {
        ops.short_convolution(inputs.x, inputs.filters, inputs.bias, inputs.state)
    }
}

/// The inputs of [`Ops::short_convolution`].
pub struct Convolved<'a, S: Scalar> {
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
pub struct Watched<S: Scalar, W> {
    /// What runs.
    pub native: Native<S>,
    /// Who listens.
    pub watch: W,
}

impl<S: Scalar, W: Watch<S>> Ops for Watched<S, W> {
    type Scalar = S;
    type Tensor = Tensor<S>;

    fn parameter(&self, id: Parameter) -> Tensor<S> {
        self.native.parameter(id)
    }
    fn constant(&self, shape: &[usize], values: &[S]) -> Tensor<S> {
        self.native.constant(shape, values)
    }
    fn full(&self, shape: &[usize], value: f64) -> Tensor<S> {
        self.native.full(shape, value)
    }
    fn detach(&self, x: &Tensor<S>) -> Tensor<S> {
        self.native.detach(x)
    }
    fn shape(&self, x: &Tensor<S>) -> Shape {
        self.native.shape(x)
    }
    fn values(&self, x: &Tensor<S>) -> Vec<S> {
        self.native.values(x)
    }
    fn unary(&self, kind: Unary, x: &Tensor<S>) -> Tensor<S> {
        self.native.unary(kind, x)
    }
    fn binary(&self, kind: Binary, left: &Tensor<S>, right: &Tensor<S>) -> Tensor<S> {
        self.native.binary(kind, left, right)
    }
    fn affine(&self, x: &Tensor<S>, factor: f64, offset: f64) -> Tensor<S> {
        self.native.affine(x, factor, offset)
    }
    fn product(&self, left: &Tensor<S>, flip_left: bool, right: &Tensor<S>, flip_right: bool) -> Tensor<S> {
        self.native.product(left, flip_left, right, flip_right)
    }
    fn reshape(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        self.native.reshape(x, shape)
    }
    fn permute(&self, x: &Tensor<S>, order: &[usize]) -> Tensor<S> {
        self.native.permute(x, order)
    }
    fn slice(&self, x: &Tensor<S>, axis: usize, range: Range<usize>) -> Tensor<S> {
        self.native.slice(x, axis, range)
    }
    fn concat(&self, parts: &[Tensor<S>], axis: usize) -> Tensor<S> {
        self.native.concat(parts, axis)
    }
    fn broadcast(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        self.native.broadcast(x, shape)
    }
    fn gather_rows(&self, x: &Tensor<S>, rows: &[usize]) -> Tensor<S> {
        self.native.gather_rows(x, rows)
    }
    fn sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        self.native.sum(x, axis)
    }
    fn max(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        self.native.max(x, axis)
    }
    fn cumulative_sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        self.native.cumulative_sum(x, axis)
    }
    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        self.watch.enter(name);
        self.native.scope(name, body)
    }
    fn softmax(&self, x: &Tensor<S>) -> Tensor<S> {
        self.native.softmax(x)
    }
    fn linear(&self, x: &Tensor<S>, weight: &Tensor<S>, bias: Option<&Tensor<S>>) -> Tensor<S> {
        self.native.linear(x, weight, bias)
    }
    fn attention(&self, inputs: &Attention<'_, Tensor<S>>) -> Tensor<S> {
        self.watch.attention(&self.native, inputs)
    }
    fn recurrence(&self, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        self.watch.recurrence(&self.native, inputs)
    }
    fn general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        self.watch.general_delta(&self.native, inputs)
    }
    fn rms_norm(&self, x: &Tensor<S>, weight: Option<&Tensor<S>>, epsilon: f64) -> Tensor<S> {
        self.native.rms_norm(x, weight, epsilon)
    }
    fn layer_norm(
        &self,
        x: &Tensor<S>,
        weight: Option<&Tensor<S>>,
        bias: Option<&Tensor<S>>,
        epsilon: f64,
    ) -> Tensor<S> {
        self.native.layer_norm(x, weight, bias, epsilon)
    }
    fn l2_norm(&self, x: &Tensor<S>, epsilon: f64) -> Tensor<S> {
        self.native.l2_norm(x, epsilon)
    }
    fn silu(&self, x: &Tensor<S>) -> Tensor<S> {
        self.native.silu(x)
    }
    fn gelu(&self, x: &Tensor<S>) -> Tensor<S> {
        self.native.gelu(x)
    }
    fn gelu_exact(&self, x: &Tensor<S>) -> Tensor<S> {
        self.native.gelu_exact(x)
    }
    fn elu_plus_one(&self, x: &Tensor<S>) -> Tensor<S> {
        self.native.elu_plus_one(x)
    }
    fn silu_gate(&self, gate: &Tensor<S>, x: &Tensor<S>) -> Tensor<S> {
        self.native.silu_gate(gate, x)
    }
    fn short_convolution(
        &self,
        x: &Tensor<S>,
        filters: &Tensor<S>,
        bias: Option<&Tensor<S>>,
        state: Option<&Tensor<S>>,
    ) -> (Tensor<S>, Tensor<S>) {
        self.watch.short_convolution(&self.native, &Convolved { x, filters, bias, state })
    }
    fn rotary(&self, x: &Tensor<S>, cosine: &Tensor<S>, sine: &Tensor<S>) -> Tensor<S> {
        self.native.rotary(x, cosine, sine)
    }
    fn round_to_bits(&self, x: &Tensor<S>, bits: u32, range: f64) -> Tensor<S> {
        self.native.round_to_bits(x, bits, range)
    }
    fn cross_entropy(&self, logits: &Tensor<S>, targets: &[usize]) -> Tensor<S> {
        self.native.cross_entropy(logits, targets)
    }
}
