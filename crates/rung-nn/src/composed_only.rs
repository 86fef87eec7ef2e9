//! An executor without kernels, for tests: the primitives of [`Native`], and every fused operation from its composed body.

use std::ops::Range;

use rung_engine::{Binary, Native, Ops, Parameter, Scalar, Shape, Tensor, Unary};

/// Forwards primitives only.
pub struct ComposedOnly<S: Scalar>(pub Native<S>);

impl<S: Scalar> Ops for ComposedOnly<S> {
    type Scalar = S;
    type Tensor = Tensor<S>;

    fn parameter(&self, id: Parameter) -> Tensor<S> {
        self.0.parameter(id)
    }
    fn constant(&self, shape: &[usize], values: &[S]) -> Tensor<S> {
        self.0.constant(shape, values)
    }
    fn full(&self, shape: &[usize], value: f64) -> Tensor<S> {
        self.0.full(shape, value)
    }
    fn detach(&self, x: &Tensor<S>) -> Tensor<S> {
        self.0.detach(x)
    }
    fn shape(&self, x: &Tensor<S>) -> Shape {
        self.0.shape(x)
    }
    fn values(&self, x: &Tensor<S>) -> Vec<S> {
        self.0.values(x)
    }
    fn unary(&self, kind: Unary, x: &Tensor<S>) -> Tensor<S> {
        self.0.unary(kind, x)
    }
    fn binary(&self, kind: Binary, left: &Tensor<S>, right: &Tensor<S>) -> Tensor<S> {
        self.0.binary(kind, left, right)
    }
    fn affine(&self, x: &Tensor<S>, factor: f64, offset: f64) -> Tensor<S> {
        self.0.affine(x, factor, offset)
    }
    fn product(&self, left: &Tensor<S>, flip_left: bool, right: &Tensor<S>, flip_right: bool) -> Tensor<S> {
        self.0.product(left, flip_left, right, flip_right)
    }
    fn reshape(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        self.0.reshape(x, shape)
    }
    fn permute(&self, x: &Tensor<S>, order: &[usize]) -> Tensor<S> {
        self.0.permute(x, order)
    }
    fn slice(&self, x: &Tensor<S>, axis: usize, range: Range<usize>) -> Tensor<S> {
        self.0.slice(x, axis, range)
    }
    fn concat(&self, parts: &[Tensor<S>], axis: usize) -> Tensor<S> {
        self.0.concat(parts, axis)
    }
    fn broadcast(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        self.0.broadcast(x, shape)
    }
    fn gather_rows(&self, x: &Tensor<S>, rows: &[usize]) -> Tensor<S> {
        self.0.gather_rows(x, rows)
    }
    fn sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        self.0.sum(x, axis)
    }
    fn max(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        self.0.max(x, axis)
    }
    fn cumulative_sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        self.0.cumulative_sum(x, axis)
    }
}
