//! The backward pass of each operation.
//!
//! A record takes the gradient of its output from the [`BackwardPass`], calls a kernel, and adds to the gradients of its inputs.
//! Gradients of constants are not computed where that saves work.

use std::ops::Range;

use super::attention;
use super::pool::Buffer;
use super::record::Record;
use super::tape::{BackwardPass, GradientTarget, Tensor};
use crate::kernels::product::{Matrix, MatrixMut, WriteMode, dot, product};
use crate::kernels::softmax::softmax_row_backward;
use crate::kernels::{convolution, gated, layout, loss, norm, pointwise, rotary};
use crate::ops::Binary;
use crate::scalar::Scalar;
use crate::shape::Shape;

impl<S: Scalar> Record<S> {
    /// Adds to the gradients of the inputs, from the gradient of the output.
    pub(crate) fn backward(self, pass: &mut BackwardPass<'_, S>) {
        let record = match self {
            Self::Recurrence(record) => return record.backward(pass),
            Self::Delta(record) => return record.backward(pass),
            record => record,
        };
        let Some(grad_out) = pass.take_gradient(record.out()) else { return };
        match record {
            Self::Map { kind, x, saved, .. } => {
                let mut out = pass.pool.take(grad_out.len());
                pointwise::map_backward(kind, &saved, &grad_out, out.write());
                pass.add_gradient(x, out);
            }
            Self::Affine { x, factor, .. } => {
                let mut out = pass.pool.take(grad_out.len());
                pointwise::affine(&grad_out, factor, S::ZERO, out.write());
                pass.add_gradient(x, out);
            }
            Self::Binary { kind, left, right, shape, .. } => {
                binary_backward(pass, kind, &left, &right, &shape, &grad_out);
            }
            Self::Sum { x, from, to, .. } => {
                let mut out = pass.pool.take(from.size());
                pointwise::broadcast(&to, &grad_out, &from, out.write());
                pass.add_gradient(x, out);
            }
            Self::Product { left, transpose_left, right, transpose_right, .. } => {
                product_backward(pass, (&left, transpose_left), (&right, transpose_right), &grad_out);
            }
            Self::Bias { bias, width, out } => {
                add_bias_gradient(pass, bias, width, &grad_out);
                // The product that the bias was added to takes the same gradient.
                pass.add_gradient(out, grad_out);
            }
            Self::Permute { x, shape, order, .. } => {
                permute_backward(pass, x, &shape, &order[..shape.len()], &grad_out);
            }
            Self::Slice { x, shape, axis, range, .. } => {
                let (outer, extent, inner) = shape.split_at_axis(axis);
                let mut out = pass.pool.take_filled(shape.size(), S::ZERO);
                let target = (out.write(), extent, range.start);
                layout::copy_axis_range((outer, inner), range.len(), (&grad_out, range.len(), 0), target);
                pass.add_gradient(x, out);
            }
            Self::Concat { inputs, shape, axis, .. } => {
                concat_backward(pass, inputs, shape.split_at_axis(axis), &grad_out);
            }
            Self::Broadcast { x, from, to, .. } => {
                let mut out = pass.pool.take_filled(from.size(), S::ZERO);
                pointwise::sum_to_shape(&to, &grad_out, &from, out.write());
                pass.add_gradient(x, out);
            }
            Self::Gather { x, shape, rows, .. } => {
                let rows = &pass.indices[rows];
                pass.update_gradient(x, shape.size(), |out, is_new| {
                    if is_new {
                        out.fill(S::ZERO);
                    }
                    layout::scatter_add_rows(shape.width(), rows, &grad_out, out);
                });
            }
            Self::CumulativeSum { x, extents, .. } => {
                let mut out = pass.pool.take(grad_out.len());
                layout::cumulative_sum(extents, true, &grad_out, out.write());
                pass.add_gradient(x, out);
            }
            Self::Softmax { x, shape, result, .. } => softmax_backward(pass, x, &shape, (&result, &grad_out)),
            Self::Attention { extents, inputs, bias, result, log_sums, .. } => {
                attention::backward(pass, extents, &inputs, bias.as_ref(), (&result, &log_sums, &grad_out));
            }
            Self::BlockAttention { extents, readers, inputs, result, log_sums, .. } => {
                attention::backward_blocks(pass, extents, &readers, &inputs, (&result, &log_sums, &grad_out));
            }
            Self::TokenAttention { extents, choice, inputs, result, log_sums, .. } => {
                attention::backward_tokens(pass, extents, &choice, &inputs, (&result, &log_sums, &grad_out));
            }
            Self::Norm { norm, x, weight, bias, statistics, .. } => {
                norm_backward(pass, norm, &x, weight.as_ref(), bias, (&statistics, &grad_out));
            }
            Self::SiluGate { gate, x, .. } => {
                let (mut grad_gate, mut grad_x) = (pass.pool.take(grad_out.len()), pass.pool.take(grad_out.len()));
                pointwise::silu_gate_backward(&gate.data, &x.data, &grad_out, grad_gate.write(), grad_x.write());
                pass.add_gradient(gate.grad_target, grad_gate);
                pass.add_gradient(x.grad_target, grad_x);
            }
            Self::Convolution { extents, padded, filters, bias, .. } => {
                convolution_backward(pass, extents, &padded, &filters, bias, &grad_out);
            }
            Self::GatedScan { extents, inputs, states, .. } => {
                gated_scan_backward(pass, extents, &inputs, &states, &grad_out);
            }
            Self::Rotary { x, shape, angles, .. } => rotary_backward(pass, x, &shape, &angles, &grad_out),
            Self::CrossEntropy { logits, targets, log_sums, .. } => {
                let mut out = pass.pool.take(logits.shape.size());
                let targets = &pass.indices[targets];
                loss::backward(logits.shape.width(), &logits.data, targets, &log_sums, &grad_out, out.write());
                pass.add_gradient(logits.grad_target, out);
            }
            Self::Recurrence(_) | Self::Delta(_) => {}
        }
    }

    /// Where the gradient of the output comes from.
    fn out(&self) -> GradientTarget {
        match self {
            Self::Map { out, .. }
            | Self::Affine { out, .. }
            | Self::Binary { out, .. }
            | Self::Sum { out, .. }
            | Self::Product { out, .. }
            | Self::Bias { out, .. }
            | Self::Permute { out, .. }
            | Self::Slice { out, .. }
            | Self::Concat { out, .. }
            | Self::Broadcast { out, .. }
            | Self::Gather { out, .. }
            | Self::CumulativeSum { out, .. }
            | Self::Softmax { out, .. }
            | Self::Attention { out, .. }
            | Self::BlockAttention { out, .. }
            | Self::TokenAttention { out, .. }
            | Self::Norm { out, .. }
            | Self::SiluGate { out, .. }
            | Self::Convolution { out, .. }
            | Self::GatedScan { out, .. }
            | Self::Rotary { out, .. }
            | Self::CrossEntropy { out, .. } => *out,
            Self::Recurrence(record) => record.out,
            Self::Delta(record) => record.out,
        }
    }
}

/// Gradient of a softmax, from its result and the gradient of its result.
fn softmax_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    x: GradientTarget,
    shape: &Shape,
    (result, grad_out): (&[S], &[S]),
) {
    let mut out = pass.pool.take_copy(grad_out);
    let rows = result.chunks_exact(shape.width()).zip(out.write().chunks_exact_mut(shape.width()));
    for (weights, gradients) in rows {
        let output_dot = dot(weights, gradients);
        softmax_row_backward(weights, gradients, output_dot);
    }
    pass.add_gradient(x, out);
}

fn rotary_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    x: GradientTarget,
    shape: &Shape,
    angles: &[Buffer<S>; 2],
    grad_out: &Buffer<S>,
) {
    let [cosine, sine] = angles;
    let mut out = pass.pool.take(grad_out.len());
    let (time, heads, half) = (shape[1], shape[2], shape[3] / 2);
    rotary::rotate(time, heads, half, grad_out, cosine, sine, true, out.write());
    pass.add_gradient(x, out);
}

fn gated_scan_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    extents: gated::Extents,
    inputs: &[Tensor<S>; 3],
    states: &[S],
    grad_out: &[S],
) {
    let mut gradients = inputs.each_ref().map(|x| pass.pool.take_filled(x.shape.size(), S::ZERO));
    let [value, gate, state] = gradients.each_mut().map(Buffer::write);
    gated::backward(extents, inputs.each_ref().map(|x| &x.data[..]), states, grad_out, value, gate, state);
    for (x, gradient) in inputs.iter().zip(gradients) {
        pass.add_gradient(x.grad_target, gradient);
    }
}

/// Adds an element-wise gradient to that of an operand, summed over the axes along which the operand was broadcast.
fn add_reduced_gradient<S: Scalar>(pass: &mut BackwardPass<'_, S>, x: &Tensor<S>, shape: &Shape, gradient: Buffer<S>) {
    if x.shape.size() == shape.size() {
        return pass.add_gradient(x.grad_target, gradient);
    }
    let mut out = pass.pool.take_filled(x.shape.size(), S::ZERO);
    pointwise::sum_to_shape(shape, &gradient, &x.shape, out.write());
    pass.add_gradient(x.grad_target, out);
}

fn binary_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    kind: Binary,
    left: &Tensor<S>,
    right: &Tensor<S>,
    shape: &Shape,
    grad_out: &Buffer<S>,
) {
    let combine = |pass: &BackwardPass<'_, S>, kind: Binary, x: &[S], y: &Tensor<S>| {
        let mut out = pass.pool.take(shape.size());
        let layout = pointwise::BroadcastLayout::new(shape, &y.shape, shape);
        pointwise::binary(kind, &layout, x, &y.data, out.write());
        out
    };
    if left.grad_target.is_some() {
        let gradient = match kind {
            Binary::Add | Binary::Sub => grad_out.clone(),
            Binary::Mul => combine(pass, Binary::Mul, grad_out, right),
            Binary::Div => combine(pass, Binary::Div, grad_out, right),
        };
        add_reduced_gradient(pass, left, shape, gradient);
    }
    if right.grad_target.is_some() {
        let gradient = match kind {
            Binary::Add => grad_out.clone(),
            Binary::Sub => scale(pass, grad_out, -S::ONE),
            Binary::Mul => combine(pass, Binary::Mul, grad_out, left),
            Binary::Div => {
                let quotient = combine(pass, Binary::Div, grad_out, right);
                let quotient = combine(pass, Binary::Div, &quotient, right);
                let product = combine(pass, Binary::Mul, &quotient, left);
                scale(pass, &product, -S::ONE)
            }
        };
        add_reduced_gradient(pass, right, shape, gradient);
    }
}

fn scale<S: Scalar>(pass: &BackwardPass<'_, S>, x: &[S], factor: S) -> Buffer<S> {
    let mut out = pass.pool.take(x.len());
    pointwise::affine(x, factor, S::ZERO, out.write());
    out
}

/// Adds the sum of all rows to the gradient of a bias.
fn add_bias_gradient<S: Scalar>(pass: &mut BackwardPass<'_, S>, bias: GradientTarget, width: usize, rows: &[S]) {
    pass.update_gradient(bias, width, |out, is_new| {
        if is_new {
            out.fill(S::ZERO);
        }
        rows.chunks_exact(width).for_each(|row| pointwise::accumulate(row, out));
    });
}

fn concat_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    inputs: Range<usize>,
    (outer, extent, inner): (usize, usize, usize),
    grad_out: &[S],
) {
    let mut start = 0;
    for index in inputs {
        let (input, count) = pass.concat_inputs[index];
        let mut out = pass.pool.take(outer * count * inner);
        layout::copy_axis_range((outer, inner), count, (grad_out, extent, start), (out.write(), count, 0));
        pass.add_gradient(input, out);
        start += count;
    }
}

fn permute_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    x: GradientTarget,
    shape: &Shape,
    order: &[usize],
    grad_out: &[S],
) {
    let mut permuted_shape = *shape;
    let mut inverse = [0; crate::shape::MAX_RANK];
    for (axis, &source) in order.iter().enumerate() {
        permuted_shape[axis] = shape[source];
        inverse[source] = axis;
    }
    let mut out = pass.pool.take(grad_out.len());
    layout::permute(&permuted_shape, &inverse[..order.len()], grad_out, out.write());
    pass.add_gradient(x, out);
}

/// A (possibly batched) product as products of matrices.
pub(crate) struct BatchedProduct {
    /// How many products of two matrices.
    pub(crate) count: usize,
    /// Rows and columns of each left matrix.
    pub(crate) left: [usize; 2],
    /// Rows and columns of each right matrix.
    pub(crate) right: [usize; 2],
    /// Elements from one right matrix to the next: 0 if all products share one.
    pub(crate) right_stride: usize,
}

impl BatchedProduct {
    /// The matrices of a product of tensors of these shapes.
    ///
    /// # Panics
    /// If the leading axes differ.
    pub(crate) fn new(left: &Shape, transpose_left: bool, right: &Shape) -> Self {
        let (left_rank, right_rank) = (left.len(), right.len());
        assert!(left_rank >= 2 && right_rank >= 2, "a product of {left} and {right}");
        let right_matrix = [right[right_rank - 2], right[right_rank - 1]];
        if right_rank == 2 && !transpose_left {
            return Self { count: 1, left: [left.rows(), left.width()], right: right_matrix, right_stride: 0 };
        }
        assert!(right_rank == 2 || left[..left_rank - 2] == right[..right_rank - 2], "a product of {left} and {right}");
        Self {
            count: left[..left_rank - 2].iter().product(),
            left: [left[left_rank - 2], left[left_rank - 1]],
            right: right_matrix,
            right_stride: if right_rank == 2 { 0 } else { right_matrix[0] * right_matrix[1] },
        }
    }

    /// The left and right matrix of product `index`, each transposed if its flag is set.
    pub(crate) fn operands<'a, S>(
        &self,
        index: usize,
        (left, transpose_left): (&'a [S], bool),
        (right, transpose_right): (&'a [S], bool),
    ) -> (Matrix<'a, S>, Matrix<'a, S>) {
        let size = self.left[0] * self.left[1];
        let left = Matrix::new(&left[index * size..], self.left[0], self.left[1], self.left[1]);
        let right = Matrix::new(&right[index * self.right_stride..], self.right[0], self.right[1], self.right[1]);
        (left.transposed_if(transpose_left), right.transposed_if(transpose_right))
    }
}

/// Gradients of a matrix product.
fn product_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    (left, transpose_left): (&Tensor<S>, bool),
    (right, transpose_right): (&Tensor<S>, bool),
    grad_out: &[S],
) {
    let batch = BatchedProduct::new(&left.shape, transpose_left, &right.shape);
    let rows = if transpose_left { batch.left[1] } else { batch.left[0] };
    let columns = if transpose_right { batch.right[0] } else { batch.right[1] };
    let grad_out_matrix = |index: usize| Matrix::new(&grad_out[index * rows * columns..], rows, columns, columns);
    pass.update_gradient(left.grad_target, left.shape.size(), |out, is_new| {
        let mode = if is_new { WriteMode::Overwrite } else { WriteMode::Add };
        let size = batch.left[0] * batch.left[1];
        for (index, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
            let (_, right) = batch.operands(index, (&left.data, transpose_left), (&right.data, transpose_right));
            let mut out = MatrixMut::new(out, batch.left[0], batch.left[1], batch.left[1]);
            if transpose_left {
                product(&mut out, mode, 1.0, right, grad_out_matrix(index).t());
            } else {
                product(&mut out, mode, 1.0, grad_out_matrix(index), right.t());
            }
        }
    });
    pass.update_gradient(right.grad_target, right.shape.size(), |out, is_new| {
        for index in 0..batch.count {
            let mode =
                if is_new && (index == 0 || batch.right_stride > 0) { WriteMode::Overwrite } else { WriteMode::Add };
            let (left, _) = batch.operands(index, (&left.data, transpose_left), (&right.data, transpose_right));
            let out = &mut out[index * batch.right_stride..];
            let mut out = MatrixMut::new(out, batch.right[0], batch.right[1], batch.right[1]);
            if transpose_right {
                product(&mut out, mode, 1.0, grad_out_matrix(index).t(), left);
            } else {
                product(&mut out, mode, 1.0, left.t(), grad_out_matrix(index));
            }
        }
    });
}

fn norm_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    norm: norm::Norm,
    x: &Tensor<S>,
    weight: Option<&Tensor<S>>,
    bias: GradientTarget,
    (statistics, grad_out): (&[S], &[S]),
) {
    let width = x.shape.width();
    let mut grad_x = pass.pool.take(grad_out.len());
    let mut grad_weight = pass.pool.take_filled(width, S::ZERO);
    let mut grad_bias = pass.pool.take_filled(width, S::ZERO);
    let (grad_weight_data, grad_bias_data) = (grad_weight.write(), grad_bias.write());
    norm::backward(
        norm,
        width,
        &x.data,
        Tensor::data_or_empty(weight),
        statistics,
        grad_out,
        grad_x.write(),
        grad_weight_data,
        grad_bias_data,
    );
    pass.add_gradient(x.grad_target, grad_x);
    if weight.is_some() {
        pass.add_gradient(Tensor::grad_target_or_none(weight), grad_weight);
        pass.add_gradient(bias, grad_bias);
    } else {
        add_bias_gradient(pass, bias, width, grad_out);
    }
}

fn convolution_backward<S: Scalar>(
    pass: &mut BackwardPass<'_, S>,
    extents: convolution::Extents,
    padded: &Tensor<S>,
    filters: &Tensor<S>,
    bias: GradientTarget,
    grad_out: &[S],
) {
    let (channels, taps) = (extents.channels, extents.taps);
    let mut transposed = pass.pool.take(channels * taps);
    convolution::transpose_filters(channels, taps, &filters.data, transposed.write());
    let mut grad_padded = pass.pool.take_filled(padded.shape.size(), S::ZERO);
    let mut grad_transposed = pass.pool.take_filled(channels * taps, S::ZERO);
    let mut grad_bias = pass.pool.take_filled(channels, S::ZERO);
    let (grad_input, grad_filters, grad_bias_data) = (grad_padded.write(), grad_transposed.write(), grad_bias.write());
    convolution::backward(extents, &padded.data, &transposed, grad_out, grad_input, grad_filters, grad_bias_data);
    let mut grad_filters = pass.pool.take(channels * taps);
    convolution::transpose_filters(taps, channels, &grad_transposed, grad_filters.write());
    pass.add_gradient(padded.grad_target, grad_padded);
    pass.add_gradient(filters.grad_target, grad_filters);
    pass.add_gradient(bias, grad_bias);
}
