//! The reverse of each operation.
//!
//! A record takes the gradient of its output from the [`Flow`], calls a kernel, and gives the inputs theirs. Where an input is a
//! constant, the work for it is left out.

use crate::choice::BlockReaders;
use crate::kernels::product::{Accumulate, Matrix, MatrixMut, product};
use crate::kernels::{attention, blocks, convolution, gated, layout, loss, norm, pointwise, recurrence, rotary};
use crate::native::pool::Buffer;
use crate::native::tape::{Flow, GradientTarget, Record, Recurrent, Tensor};
use crate::ops::Binary;
use crate::scalar::Scalar;
use crate::shape::Shape;

/// The data of an optional tensor, empty if absent.
fn data<S: Scalar>(x: Option<&Tensor<S>>) -> &[S] {
    x.map_or(&[], |x| &x.data)
}

/// The variable of an optional tensor.
fn var<S: Scalar>(x: Option<&Tensor<S>>) -> GradientTarget {
    x.map_or(GradientTarget::None, |x| x.var)
}

impl<S: Scalar> Record<S> {
    /// Passes the gradient of the outputs on to the inputs.
    pub(crate) fn backward(self, flow: &mut Flow<'_, S>) {
        let record = match self {
            Self::Recurrence(record) => return record.backward(flow),
            Self::Delta(record) => return record.backward(flow),
            record => record,
        };
        let Some(slope) = flow.take(record.out()) else { return };
        match record {
            Self::Map { kind, x, kept, .. } => {
                let mut out = flow.pool.take(slope.len());
                pointwise::map_back(kind, &kept, &slope, out.write());
                flow.give(x, out);
            }
            Self::Affine { x, factor, .. } => {
                let mut out = flow.pool.take(slope.len());
                pointwise::affine(&slope, factor, S::ZERO, out.write());
                flow.give(x, out);
            }
            Self::Binary { kind, left, right, shape, .. } => binary(flow, kind, &left, &right, &shape, &slope),
            Self::Sum { x, from, to, .. } => {
                let mut out = flow.pool.take(from.size());
                pointwise::spread(&to, &slope, &from, out.write());
                flow.give(x, out);
            }
            Self::Product { left, flip_left, right, flip_right, .. } => {
                matrix_product(flow, (&left, flip_left), (&right, flip_right), &slope);
            }
            Self::Bias { bias, width, out } => {
                add_rows(flow, bias, width, &slope);
                // The rows themselves go on to the product that the bias was added to.
                flow.give(out, slope);
            }
            Self::Permute { x, shape, order, .. } => permute(flow, x, &shape, &order[..shape.len()], &slope),
            Self::Slice { x, shape, axis, range, .. } => {
                let (outer, extent, inner) = shape.around(axis);
                let mut out = flow.pool.filled(shape.size(), S::ZERO);
                let target = (out.write(), extent, range.start);
                layout::move_rows((outer, inner), range.len(), (&slope, range.len(), 0), target);
                flow.give(x, out);
            }
            Self::Concat { parts, shape, axis, .. } => {
                let (outer, extent, inner) = shape.around(axis);
                let mut start = 0;
                for index in parts {
                    let (part, count) = flow.parts[index];
                    let mut out = flow.pool.take(outer * count * inner);
                    layout::move_rows((outer, inner), count, (&slope, extent, start), (out.write(), count, 0));
                    flow.give(part, out);
                    start += count;
                }
            }
            Self::Broadcast { x, from, to, .. } => {
                let mut out = flow.pool.filled(from.size(), S::ZERO);
                pointwise::sum_to(&to, &slope, &from, out.write());
                flow.give(x, out);
            }
            Self::Gather { x, shape, rows, .. } => {
                let rows = &flow.indices[rows];
                flow.add_to(x, shape.size(), |out, fresh| {
                    if fresh {
                        out.fill(S::ZERO);
                    }
                    layout::scatter(shape.width(), rows, &slope, out);
                });
            }
            Self::RunningSum { x, around, .. } => {
                let mut out = flow.pool.take(slope.len());
                layout::running_sum(around, true, &slope, out.write());
                flow.give(x, out);
            }
            Self::Attention { extents, inputs, bias, result, kept, .. } => {
                attend(flow, extents, &inputs, bias.as_ref(), (&result, &kept, &slope));
            }
            Self::Blocks { extents, readers, inputs, result, kept, .. } => {
                attend_to_blocks(flow, extents, &readers, &inputs, (&result, &kept, &slope));
            }
            Self::Norm { norm, x, weight, bias, kept, .. } => {
                normalise(flow, norm, &x, weight.as_ref(), bias, (&kept, &slope));
            }
            Self::Gate { gate, x, .. } => {
                let (mut to_gate, mut to_x) = (flow.pool.take(slope.len()), flow.pool.take(slope.len()));
                pointwise::silu_gate_back(&gate.data, &x.data, &slope, to_gate.write(), to_x.write());
                flow.give(gate.var, to_gate);
                flow.give(x.var, to_x);
            }
            Self::Convolution { extents, padded, filters, bias, .. } => {
                convolve(flow, extents, &padded, &filters, bias, &slope);
            }
            Self::GatedScan { extents, inputs, states, .. } => gated_scan(flow, extents, &inputs, &states, &slope),
            Self::Rotary { x, shape, angles, .. } => rotate_back(flow, x, &shape, &angles, &slope),
            Self::Loss { logits, targets, kept, .. } => {
                let mut out = flow.pool.take(logits.shape.size());
                let targets = &flow.indices[targets];
                loss::backward(logits.shape.width(), &logits.data, targets, &kept, &slope, out.write());
                flow.give(logits.var, out);
            }
            Self::Recurrence(_) | Self::Delta(_) => {}
        }
    }

    /// The variable that came out.
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
            | Self::RunningSum { out, .. }
            | Self::Attention { out, .. }
            | Self::Blocks { out, .. }
            | Self::Norm { out, .. }
            | Self::Gate { out, .. }
            | Self::Convolution { out, .. }
            | Self::GatedScan { out, .. }
            | Self::Rotary { out, .. }
            | Self::Loss { out, .. } => *out,
            Self::Recurrence(record) => record.out,
            Self::Delta(record) => record.out,
        }
    }
}

fn rotate_back<S: Scalar>(
    flow: &mut Flow<'_, S>,
    x: GradientTarget,
    shape: &Shape,
    angles: &[Buffer<S>; 2],
    slope: &Buffer<S>,
) {
    let [cosine, sine] = angles;
    let mut out = flow.pool.take(slope.len());
    let (time, heads, half) = (shape[1], shape[2], shape[3] / 2);
    rotary::rotate(time, heads, half, slope, cosine, sine, true, out.write());
    flow.give(x, out);
}

fn gated_scan<S: Scalar>(
    flow: &mut Flow<'_, S>,
    extents: gated::Extents,
    inputs: &[Tensor<S>; 3],
    states: &[S],
    slope: &[S],
) {
    let mut to = inputs.each_ref().map(|x| flow.pool.filled(x.shape.size(), S::ZERO));
    let [value, gate, state] = to.each_mut().map(Buffer::write);
    gated::backward(extents, inputs.each_ref().map(|x| &x.data[..]), states, slope, value, gate, state);
    for (x, gradient) in inputs.iter().zip(to) {
        flow.give(x.var, gradient);
    }
}

/// Gives an element-wise gradient to an operand, summed over what was broadcast.
fn add_reduced_gradient<S: Scalar>(flow: &mut Flow<'_, S>, x: &Tensor<S>, shape: &Shape, gradient: Buffer<S>) {
    if x.shape.size() == shape.size() {
        return flow.give(x.var, gradient);
    }
    let mut out = flow.pool.filled(x.shape.size(), S::ZERO);
    pointwise::sum_to(shape, &gradient, &x.shape, out.write());
    flow.give(x.var, out);
}

fn binary<S: Scalar>(
    flow: &mut Flow<'_, S>,
    kind: Binary,
    left: &Tensor<S>,
    right: &Tensor<S>,
    shape: &Shape,
    slope: &Buffer<S>,
) {
    let with = |flow: &Flow<'_, S>, kind: Binary, x: &[S], y: &Tensor<S>| {
        let mut out = flow.pool.take(shape.size());
        let pairing = pointwise::Pairing::new(shape, &y.shape, shape);
        pointwise::binary(kind, &pairing, x, &y.data, out.write());
        out
    };
    if left.var.wanted() {
        let gradient = match kind {
            Binary::Add | Binary::Sub => slope.clone(),
            Binary::Mul => with(flow, Binary::Mul, slope, right),
            Binary::Div => with(flow, Binary::Div, slope, right),
        };
        add_reduced_gradient(flow, left, shape, gradient);
    }
    if right.var.wanted() {
        let gradient = match kind {
            Binary::Add => slope.clone(),
            Binary::Sub => scaled(flow, slope, -S::ONE),
            Binary::Mul => with(flow, Binary::Mul, slope, left),
            Binary::Div => {
                let over = with(flow, Binary::Div, slope, right);
                let over = with(flow, Binary::Div, &over, right);
                let over = with(flow, Binary::Mul, &over, left);
                scaled(flow, &over, -S::ONE)
            }
        };
        add_reduced_gradient(flow, right, shape, gradient);
    }
}

fn scaled<S: Scalar>(flow: &Flow<'_, S>, x: &[S], factor: S) -> Buffer<S> {
    let mut out = flow.pool.take(x.len());
    pointwise::affine(x, factor, S::ZERO, out.write());
    out
}

/// Adds up rows into a weight, as for a bias.
fn add_rows<S: Scalar>(flow: &mut Flow<'_, S>, var: GradientTarget, width: usize, rows: &[S]) {
    flow.add_to(var, width, |out, fresh| {
        if fresh {
            out.fill(S::ZERO);
        }
        rows.chunks_exact(width).for_each(|row| pointwise::accumulate(row, out));
    });
}

fn permute<S: Scalar>(flow: &mut Flow<'_, S>, x: GradientTarget, shape: &Shape, order: &[usize], slope: &[S]) {
    let mut moved = *shape;
    let mut inverse = [0; crate::shape::MAX_RANK];
    for (axis, &from) in order.iter().enumerate() {
        moved[axis] = shape[from];
        inverse[from] = axis;
    }
    let mut out = flow.pool.take(slope.len());
    layout::permute(&moved, &inverse[..order.len()], slope, out.write());
    flow.give(x, out);
}

/// How a (possibly batched) product falls into plain ones: their number, and rows, columns and elements per matrix.
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) left: [usize; 2],
    pub(crate) right: [usize; 2],
    /// Elements from one right matrix to the next: none if it is shared.
    pub(crate) right_step: usize,
}

impl Batch {
    /// # Panics
    /// If the leading axes differ.
    pub(crate) fn new(left: &Shape, flip_left: bool, right: &Shape) -> Self {
        let (left_rank, right_rank) = (left.len(), right.len());
        assert!(left_rank >= 2 && right_rank >= 2, "a product of {left} and {right}");
        let right_matrix = [right[right_rank - 2], right[right_rank - 1]];
        if right_rank == 2 && !flip_left {
            return Self { count: 1, left: [left.rows(), left.width()], right: right_matrix, right_step: 0 };
        }
        assert!(right_rank == 2 || left[..left_rank - 2] == right[..right_rank - 2], "a product of {left} and {right}");
        Self {
            count: left[..left_rank - 2].iter().product(),
            left: [left[left_rank - 2], left[left_rank - 1]],
            right: right_matrix,
            right_step: if right_rank == 2 { 0 } else { right_matrix[0] * right_matrix[1] },
        }
    }

    /// Left and right matrices number `index`, flipped as asked.
    pub(crate) fn operands<'a, S>(
        &self,
        index: usize,
        (left, flip_left): (&'a [S], bool),
        (right, flip_right): (&'a [S], bool),
    ) -> (Matrix<'a, S>, Matrix<'a, S>) {
        let size = self.left[0] * self.left[1];
        let left = Matrix::new(&left[index * size..], self.left[0], self.left[1], self.left[1]);
        let right = Matrix::new(&right[index * self.right_step..], self.right[0], self.right[1], self.right[1]);
        (left.flipped(flip_left), right.flipped(flip_right))
    }
}

fn matrix_product<S: Scalar>(
    flow: &mut Flow<'_, S>,
    (left, flip_left): (&Tensor<S>, bool),
    (right, flip_right): (&Tensor<S>, bool),
    slope: &[S],
) {
    let batch = Batch::new(&left.shape, flip_left, &right.shape);
    let rows = if flip_left { batch.left[1] } else { batch.left[0] };
    let columns = if flip_right { batch.right[0] } else { batch.right[1] };
    let slope_of = |index: usize| Matrix::new(&slope[index * rows * columns..], rows, columns, columns);
    flow.add_to(left.var, left.shape.size(), |out, fresh| {
        let into = if fresh { Accumulate::Fresh } else { Accumulate::Sum };
        let size = batch.left[0] * batch.left[1];
        for (index, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
            let (_, right) = batch.operands(index, (&left.data, flip_left), (&right.data, flip_right));
            let mut out = MatrixMut::new(out, batch.left[0], batch.left[1], batch.left[1]);
            if flip_left {
                product(&mut out, into, 1.0, right, slope_of(index).t());
            } else {
                product(&mut out, into, 1.0, slope_of(index), right.t());
            }
        }
    });
    flow.add_to(right.var, right.shape.size(), |out, fresh| {
        for index in 0..batch.count {
            let into = if fresh && (index == 0 || batch.right_step > 0) { Accumulate::Fresh } else { Accumulate::Sum };
            let (left, _) = batch.operands(index, (&left.data, flip_left), (&right.data, flip_right));
            let out = &mut out[index * batch.right_step..];
            let mut out = MatrixMut::new(out, batch.right[0], batch.right[1], batch.right[1]);
            if flip_right {
                product(&mut out, into, 1.0, slope_of(index).t(), left);
            } else {
                product(&mut out, into, 1.0, left.t(), slope_of(index));
            }
        }
    });
}

fn attend<S: Scalar>(
    flow: &mut Flow<'_, S>,
    extents: attention::Extents,
    [query, key, value]: &[Tensor<S>; 3],
    bias: Option<&Tensor<S>>,
    kept: (&[S], &[S], &[S]),
) {
    let mut to_query = flow.pool.take(query.shape.size());
    let mut to_key = flow.pool.filled(key.shape.size(), S::ZERO);
    let mut to_value = flow.pool.filled(value.shape.size(), S::ZERO);
    let mut to_bias = bias.filter(|bias| bias.var.wanted()).map(|bias| flow.pool.filled(bias.shape.size(), S::ZERO));
    let mut scratch = flow.pool.take(extents.scratch_back::<S>());
    let inputs = attention_inputs(query, key, value, bias);
    let mut gradients = attention::Gradients {
        query: to_query.write(),
        key: to_key.write(),
        value: to_value.write(),
        bias: to_bias.as_mut().map(Buffer::write),
    };
    attention::backward(extents, &inputs, kept, scratch.write(), &mut gradients);
    flow.give(query.var, to_query);
    flow.give(key.var, to_key);
    flow.give(value.var, to_value);
    if let Some(to_bias) = to_bias {
        flow.give(var(bias), to_bias);
    }
}

fn attend_to_blocks<S: Scalar>(
    flow: &mut Flow<'_, S>,
    extents: blocks::Extents,
    readers: &BlockReaders,
    inputs: &[Tensor<S>; 3],
    kept: (&[S], &[S], &[S]),
) {
    let mut gradients = inputs.each_ref().map(|x| flow.pool.filled(x.shape.size(), S::ZERO));
    let mut scratch = flow.pool.take(extents.scratch_back());
    let data = inputs.each_ref().map(|x| &x.data[..]);
    blocks::backward(extents, readers, data, kept, scratch.write(), gradients.each_mut().map(Buffer::write));
    for (x, gradient) in inputs.iter().zip(gradients) {
        flow.give(x.var, gradient);
    }
}

/// The kernel's view of attention's tensors.
pub(crate) fn attention_inputs<'a, S: Scalar>(
    query: &'a Tensor<S>,
    key: &'a Tensor<S>,
    value: &'a Tensor<S>,
    bias: Option<&'a Tensor<S>>,
) -> attention::Inputs<'a, S> {
    let bias = bias.map(|bias| attention::Bias {
        values: &bias.data,
        per_sequence: bias.shape[0] > 1,
        per_head: bias.shape[1] > 1,
    });
    attention::Inputs { query: &query.data, key: &key.data, value: &value.data, bias }
}

fn normalise<S: Scalar>(
    flow: &mut Flow<'_, S>,
    norm: norm::Norm,
    x: &Tensor<S>,
    weight: Option<&Tensor<S>>,
    bias: GradientTarget,
    (kept, slope): (&[S], &[S]),
) {
    let width = x.shape.width();
    let mut to_x = flow.pool.take(slope.len());
    let mut to_weight = flow.pool.filled(width, S::ZERO);
    let mut to_bias = flow.pool.filled(width, S::ZERO);
    let (to_weights, to_biases) = (to_weight.write(), to_bias.write());
    norm::backward(norm, width, &x.data, data(weight), kept, slope, to_x.write(), to_weights, to_biases);
    flow.give(x.var, to_x);
    if weight.is_some() {
        flow.give(var(weight), to_weight);
        flow.give(bias, to_bias);
    } else {
        add_rows(flow, bias, width, slope);
    }
}

fn convolve<S: Scalar>(
    flow: &mut Flow<'_, S>,
    extents: convolution::Extents,
    padded: &Tensor<S>,
    filters: &Tensor<S>,
    bias: GradientTarget,
    slope: &[S],
) {
    let (channels, taps) = (extents.channels, extents.taps);
    let mut turned = flow.pool.take(channels * taps);
    convolution::transpose_filters(channels, taps, &filters.data, turned.write());
    let mut to_padded = flow.pool.filled(padded.shape.size(), S::ZERO);
    let mut to_turned = flow.pool.filled(channels * taps, S::ZERO);
    let mut to_bias = flow.pool.filled(channels, S::ZERO);
    let (to_input, to_filters, to_biases) = (to_padded.write(), to_turned.write(), to_bias.write());
    convolution::backward(extents, &padded.data, &turned, slope, to_input, to_filters, to_biases);
    let mut to_filters = flow.pool.take(channels * taps);
    convolution::transpose_filters(taps, channels, &to_turned, to_filters.write());
    flow.give(padded.var, to_padded);
    flow.give(filters.var, to_filters);
    flow.give(bias, to_bias);
}

impl<S: Scalar> Recurrent<S> {
    fn backward(self, flow: &mut Flow<'_, S>) {
        let [query, key, value] = &self.inputs;
        let (slope, last) = match (flow.take(self.out), flow.take(self.last)) {
            (None, None) => return,
            (Some(slope), last) => (slope, last),
            (None, last) => (flow.pool.filled(value.shape.size(), S::ZERO), last),
        };
        let zeros = |x: Option<&Tensor<S>>| flow.pool.filled(x.map_or(0, |x| x.shape.size()), S::ZERO);
        let mut to =
            [Some(query), Some(key), Some(value), self.decay.as_ref(), self.beta.as_ref(), self.state.as_ref()]
                .map(zeros);
        let mut scratch = flow.pool.take(self.extents.scratch());
        {
            let [query, key, value, decay, beta, state] = &mut to;
            let mut gradients = recurrence::Gradients {
                query: query.write(),
                key: key.write(),
                value: value.write(),
                decay: decay.write(),
                beta: beta.write(),
                state: state.write(),
            };
            let slopes = (&*slope, last.as_deref().unwrap_or(&[]));
            let kept = (&*self.kept, &*self.errors);
            recurrence::backward(self.extents, &self.view(), kept, slopes, scratch.write(), &mut gradients);
        }
        let vars = [
            query.var,
            key.var,
            value.var,
            var(self.decay.as_ref()),
            var(self.beta.as_ref()),
            var(self.state.as_ref()),
        ];
        for (var, gradient) in vars.into_iter().zip(to) {
            flow.give(var, gradient);
        }
    }

    /// The kernel's view of the inputs.
    pub(crate) fn view(&self) -> recurrence::Inputs<'_, S> {
        let [query, key, value] = &self.inputs;
        recurrence::Inputs {
            query: &query.data,
            key: &key.data,
            value: &value.data,
            decay: data(self.decay.as_ref()),
            beta: data(self.beta.as_ref()),
            state: data(self.state.as_ref()),
        }
    }
}
