//! The operations of the native executor: [`Ops`] for [`Native`].

use super::backward::BatchedProduct;
use super::pool::Buffer;
use super::record::Record;
use super::tape::{GradientTarget, Tape, Tensor};
use super::{Native, extents_of};
use crate::choice::BlockChoice;
use crate::composed;
use crate::kernels::pointwise::{self, BroadcastLayout, ElementMap};
use crate::kernels::softmax::softmax_row;
use crate::kernels::{convolution, gated, layout, loss, norm, rotary};
use crate::ops::{
    AccumulatorRounding, AttentionInputs, Binary, BlockAttention, GatedScan, GeneralDelta, Indexer, Ops, Recurrence,
    Unary,
};
use crate::parameters::Parameter;
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};
use std::ops::Range;
use std::sync::Arc;

impl<S: Scalar> Ops for Native<S> {
    type Scalar = S;
    type Tensor = Tensor<S>;

    fn parameter(&self, id: Parameter) -> Tensor<S> {
        let tape = self.lock();
        let (shape, start) = tape.layout[id.0 as usize];
        let values = Arc::clone(tape.weights.as_ref().expect("`bind` the weights before using them"));
        let length = shape.size();
        let grad_target = if tape.training { GradientTarget::Weight { start, length } } else { GradientTarget::None };
        Tensor { data: Buffer::Shared { values, start, length }, shape, grad_target }
    }

    fn constant(&self, shape: &[usize], values: &[S]) -> Tensor<S> {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), values.len(), "values of a constant of shape {shape}");
        Tensor { data: self.pool.take_copy(values), shape, grad_target: GradientTarget::None }
    }

    fn full(&self, shape: &[usize], value: f64) -> Tensor<S> {
        let shape = Shape::new(shape);
        Tensor {
            data: self.pool.take_filled(shape.size(), S::from_f64(value)),
            shape,
            grad_target: GradientTarget::None,
        }
    }

    fn detach(&self, x: &Tensor<S>) -> Tensor<S> {
        Tensor { grad_target: GradientTarget::None, ..x.clone() }
    }

    fn shape(&self, x: &Tensor<S>) -> Shape {
        x.shape
    }

    fn values(&self, x: &Tensor<S>) -> Vec<S> {
        x.data.to_vec()
    }

    fn unary(&self, kind: Unary, x: &Tensor<S>) -> Tensor<S> {
        self.map(ElementMap::Primitive(kind), x)
    }

    #[inline(never)]
    fn binary(&self, kind: Binary, left: &Tensor<S>, right: &Tensor<S>) -> Tensor<S> {
        let shape = left.shape.broadcast(&right.shape);
        let layout = BroadcastLayout::new(&left.shape, &right.shape, &shape);
        let data =
            self.compute_buffer(shape.size(), |out| pointwise::binary(kind, &layout, &left.data, &right.data, out));
        let (name, is_linear) = match kind {
            Binary::Add => ("add", true),
            Binary::Sub => ("sub", true),
            Binary::Mul => ("mul", false),
            Binary::Div => ("div", false),
        };
        self.emit(name, shape, data, &[left.grad_target, right.grad_target], |out, _, _| {
            let [left, right] = [left, right].map(|x| if is_linear { x.without_data() } else { x.clone() });
            Record::Binary { kind, left, right, shape, out }
        })
    }

    #[inline(never)]
    fn affine(&self, x: &Tensor<S>, factor: f64, offset: f64) -> Tensor<S> {
        let factor = S::from_f64(factor);
        let data =
            self.compute_buffer(x.data.len(), |out| pointwise::affine(&x.data, factor, S::from_f64(offset), out));
        self.emit("affine", x.shape, data, &[x.grad_target], |out, _, _| Record::Affine {
            x: x.grad_target,
            factor,
            out,
        })
    }

    #[inline(never)]
    fn product(&self, left: &Tensor<S>, transpose_left: bool, right: &Tensor<S>, transpose_right: bool) -> Tensor<S> {
        let batch = BatchedProduct::new(&left.shape, transpose_left, &right.shape);
        let rank = left.shape.len();
        let rows = if transpose_left { left.shape[rank - 1] } else { left.shape[rank - 2] };
        let columns = if transpose_right { batch.right[0] } else { batch.right[1] };
        let shape = left.shape.with(rank - 2, rows).with(rank - 1, columns);
        let size = shape.size() / batch.count.max(1);
        let data = self.compute_buffer(shape.size(), |out| {
            for index in 0..batch.count {
                let (left, right) = batch.operands(index, (&left.data, transpose_left), (&right.data, transpose_right));
                self.multiply(&mut out[index * size..(index + 1) * size], columns, left, right);
            }
        });
        self.emit("product", shape, data, &[left.grad_target, right.grad_target], |out, _, _| Record::Product {
            left: left.clone(),
            transpose_left,
            right: right.clone(),
            transpose_right,
            out,
        })
    }

    fn reshape(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), x.shape.size(), "{} elements cannot take shape {shape}", x.shape);
        // The gradient has the same elements, so it goes to the same target.
        Tensor { shape, ..x.clone() }
    }

    #[inline(never)]
    fn permute(&self, x: &Tensor<S>, order: &[usize]) -> Tensor<S> {
        let mut shape = x.shape;
        assert_eq!(order.len(), shape.len(), "an order of the axes of {shape}");
        for (axis, &source) in order.iter().enumerate() {
            shape[axis] = x.shape[source];
        }
        let data = self.compute_buffer(x.data.len(), |out| layout::permute(&x.shape, order, &x.data, out));
        self.emit("permute", shape, data, &[x.grad_target], |out, _, _| {
            let mut padded_order = [0; MAX_RANK];
            padded_order[..order.len()].copy_from_slice(order);
            Record::Permute { x: x.grad_target, shape: x.shape, order: padded_order, out }
        })
    }

    #[inline(never)]
    fn slice(&self, x: &Tensor<S>, axis: usize, range: Range<usize>) -> Tensor<S> {
        let (outer, extent, inner) = x.shape.split_at_axis(axis);
        assert!(range.start <= range.end && range.end <= extent, "{range:?} of axis {axis} of {}", x.shape);
        let data = self.compute_buffer(outer * range.len() * inner, |out| {
            layout::copy_axis_range((outer, inner), range.len(), (&x.data, extent, range.start), (out, range.len(), 0));
        });
        self.emit("slice", x.shape.with(axis, range.len()), data, &[x.grad_target], |out, _, _| Record::Slice {
            x: x.grad_target,
            shape: x.shape,
            axis,
            range,
            out,
        })
    }

    #[inline(never)]
    fn concat(&self, parts: &[Tensor<S>], axis: usize) -> Tensor<S> {
        let first = parts.first().expect("at least one tensor to concatenate");
        let shape = first.shape.with(axis, parts.iter().map(|part| part.shape[axis]).sum());
        let (outer, extent, inner) = shape.split_at_axis(axis);
        let mut start = 0;
        let data = self.compute_buffer(shape.size(), |out| {
            for part in parts {
                let count = part.shape[axis];
                assert_eq!(part.shape.with(axis, extent), shape, "parts along axis {axis} differ in another");
                layout::copy_axis_range((outer, inner), count, (&part.data, count, 0), (out, extent, start));
                start += count;
            }
        });
        let targets = parts.iter().map(|part| part.grad_target);
        let target = targets.into_iter().find(|target| target.is_some()).unwrap_or(GradientTarget::None);
        self.emit("concat", shape, data, &[target], |out, _, tape| {
            let start = tape.concat_inputs.len();
            tape.concat_inputs.extend(parts.iter().map(|part| (part.grad_target, part.shape[axis])));
            Record::Concat { inputs: start..tape.concat_inputs.len(), shape, axis, out }
        })
    }

    #[inline(never)]
    fn broadcast(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        let shape = Shape::new(shape);
        assert_eq!(x.shape.broadcast(&shape), shape, "{} does not broadcast to {shape}", x.shape);
        let data = self.compute_buffer(shape.size(), |out| pointwise::broadcast(&x.shape, &x.data, &shape, out));
        self.emit("broadcast", shape, data, &[x.grad_target], |out, _, _| Record::Broadcast {
            x: x.grad_target,
            from: x.shape,
            to: shape,
            out,
        })
    }

    #[inline(never)]
    fn gather_rows(&self, x: &Tensor<S>, rows: &[usize]) -> Tensor<S> {
        let [count, width] = extents_of("gather_rows", x);
        assert!(rows.iter().all(|&row| row < count), "a row index beyond the {count} rows of {}", x.shape);
        let mut tape = self.lock();
        let range = tape.store_rows(rows);
        let data = self.compute_buffer(rows.len() * width, |out| {
            layout::gather_rows(width, &tape.indices[range.clone()], &x.data, out);
        });
        drop(tape);
        self.emit("gather_rows", Shape::new(&[rows.len(), width]), data, &[x.grad_target], |out, _, _| Record::Gather {
            x: x.grad_target,
            shape: x.shape,
            rows: range,
            out,
        })
    }

    #[inline(never)]
    fn sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        let extents = x.shape.split_at_axis(axis);
        let data = self.compute_buffer(extents.0 * extents.2, |out| layout::sum(extents, &x.data, out));
        let to = x.shape.with(axis, 1);
        self.emit("sum", to, data, &[x.grad_target], |out, _, _| Record::Sum {
            x: x.grad_target,
            from: x.shape,
            to,
            out,
        })
    }

    #[inline(never)]
    fn max(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        let extents = x.shape.split_at_axis(axis);
        let data = self.compute_buffer(extents.0 * extents.2, |out| layout::max(extents, &x.data, out));
        Tensor { data, shape: x.shape.with(axis, 1), grad_target: GradientTarget::None }
    }

    #[inline(never)]
    fn cumulative_sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        let extents = x.shape.split_at_axis(axis);
        let data = self.compute_buffer(x.data.len(), |out| layout::cumulative_sum(extents, false, &x.data, out));
        let record = |out, _: &Buffer<S>, _: &mut Tape<S>| Record::CumulativeSum { x: x.grad_target, extents, out };
        self.emit("cumulative_sum", x.shape, data, &[x.grad_target], record)
    }

    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        if let Some(check) = &mut self.lock().finite_check {
            check.scopes.push(name.to_owned());
        }
        let result = body();
        if let Some(check) = &mut self.lock().finite_check {
            check.scopes.pop();
        }
        result
    }

    crate::delegate_ops!(composed => gelu_exact, round_to_bits);

    #[inline(never)]
    fn softmax(&self, x: &Tensor<S>) -> Tensor<S> {
        let width = x.shape.width();
        let mut data = self.pool.take_copy(&x.data);
        data.write().chunks_exact_mut(width).for_each(|row| {
            softmax_row(row, 0, width);
        });
        self.emit("softmax", x.shape, data, &[x.grad_target], |out, data, _| Record::Softmax {
            x: x.grad_target,
            shape: x.shape,
            result: data.clone(),
            out,
        })
    }

    #[inline(never)]
    fn linear(&self, x: &Tensor<S>, weight: &Tensor<S>, bias: Option<&Tensor<S>>) -> Tensor<S> {
        let y = self.product(x, false, weight, true);
        let Some(bias) = bias else { return y };
        assert_eq!(bias.shape.size(), y.shape.width(), "a bias of {} for rows of {}", bias.shape, y.shape);
        let Tensor { mut data, shape, grad_target } = y;
        if !data.has_one_owner() {
            data = self.pool.take_copy(&data);
        }
        data.write().chunks_exact_mut(shape.width()).for_each(|row| pointwise::accumulate(&bias.data, row));
        self.record_bias(Tensor { data, shape, grad_target }, bias)
    }

    fn attention(&self, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        self.run_attention(inputs)
    }

    fn left_to_right_attention(
        &self,
        inputs: &AttentionInputs<'_, Tensor<S>>,
        rounding: Option<AccumulatorRounding>,
    ) -> Tensor<S> {
        self.run_left_to_right_attention(inputs, rounding)
    }

    fn block_attention(&self, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        self.run_block_attention(inputs)
    }

    fn choose_tokens(&self, inputs: &Indexer<'_, Tensor<S>>) -> BlockChoice {
        self.run_choose_tokens(inputs)
    }

    #[inline(never)]
    fn recurrence(&self, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        if inputs.rounding.is_some() { composed::recurrence(self, inputs) } else { self.run_recurrence(inputs) }
    }

    #[inline(never)]
    fn general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        if inputs.rounding.is_some() { composed::general_delta(self, inputs) } else { self.run_general_delta(inputs) }
    }

    fn rms_norm(&self, x: &Tensor<S>, weight: Option<&Tensor<S>>, epsilon: f64) -> Tensor<S> {
        self.normalise(
            "rms_norm",
            norm::Norm { subtracts_mean: false, divides_by_width: true, epsilon },
            x,
            weight,
            None,
        )
    }

    fn layer_norm(
        &self,
        x: &Tensor<S>,
        weight: Option<&Tensor<S>>,
        bias: Option<&Tensor<S>>,
        epsilon: f64,
    ) -> Tensor<S> {
        self.normalise(
            "layer_norm",
            norm::Norm { subtracts_mean: true, divides_by_width: true, epsilon },
            x,
            weight,
            bias,
        )
    }

    fn l2_norm(&self, x: &Tensor<S>, epsilon: f64) -> Tensor<S> {
        self.normalise("l2_norm", norm::Norm { subtracts_mean: false, divides_by_width: false, epsilon }, x, None, None)
    }

    fn silu(&self, x: &Tensor<S>) -> Tensor<S> {
        self.map(ElementMap::Silu, x)
    }

    fn gelu(&self, x: &Tensor<S>) -> Tensor<S> {
        self.map(ElementMap::Gelu, x)
    }

    fn elu_plus_one(&self, x: &Tensor<S>) -> Tensor<S> {
        self.map(ElementMap::EluPlusOne, x)
    }

    #[inline(never)]
    fn silu_gate(&self, gate: &Tensor<S>, x: &Tensor<S>) -> Tensor<S> {
        if gate.shape != x.shape {
            return composed::silu_gate(self, gate, x);
        }
        let data = self.compute_buffer(x.data.len(), |out| pointwise::silu_gate(&gate.data, &x.data, out));
        self.emit("silu_gate", x.shape, data, &[gate.grad_target, x.grad_target], |out, _, _| Record::SiluGate {
            gate: gate.clone(),
            x: x.clone(),
            out,
        })
    }

    #[inline(never)]
    fn short_convolution(
        &self,
        x: &Tensor<S>,
        filters: &Tensor<S>,
        bias: Option<&Tensor<S>>,
        state: Option<&Tensor<S>>,
    ) -> (Tensor<S>, Tensor<S>) {
        let [batch, time, channels] = extents_of("short_convolution", x);
        let [_, taps] = extents_of("short_convolution", filters);
        assert_eq!(filters.shape[0], channels, "one filter per channel");
        let initial = state.cloned().unwrap_or_else(|| self.zeros(&[batch, taps - 1, channels]));
        let padded = self.concat(&[initial, x.clone()], 1);
        let extents = convolution::Extents { batch, time, channels, taps };
        let mut transposed = self.pool.take(channels * taps);
        convolution::transpose_filters(channels, taps, &filters.data, transposed.write());
        let offset = Tensor::data_or_empty(bias);
        let data = self
            .compute_buffer(x.data.len(), |out| convolution::forward(extents, &padded.data, &transposed, offset, out));
        let bias = Tensor::grad_target_or_none(bias);
        let out = self.emit(
            "short_convolution",
            x.shape,
            data,
            &[padded.grad_target, filters.grad_target, bias],
            |out, _, _| Record::Convolution { extents, padded: padded.clone(), filters: filters.clone(), bias, out },
        );
        (out, self.slice(&padded, 1, time..time + taps - 1))
    }

    #[inline(never)]
    fn gated_scan(&self, inputs: &GatedScan<'_, Tensor<S>>) -> Tensor<S> {
        let GatedScan { value, gate, state, rounding } = *inputs;
        let [batch, time, channels] = extents_of("gated_scan", value);
        assert_eq!(gate.shape, value.shape.with(2, 1), "one gate per token of {}", value.shape);
        assert_eq!(state.shape, value.shape.with(1, 1), "one state per row of {}", value.shape);
        let extents = gated::Extents { batch, time, channels, rounding };
        let data = self.compute_buffer(value.data.len(), |out| {
            gated::forward(extents, [&value.data, &gate.data, &state.data], out);
        });
        self.emit(
            "gated_scan",
            value.shape,
            data,
            &[value.grad_target, gate.grad_target, state.grad_target],
            |out, data, _| Record::GatedScan {
                extents,
                inputs: [value, gate, state].map(Clone::clone),
                states: data.clone(),
                out,
            },
        )
    }

    #[inline(never)]
    fn rotary(&self, x: &Tensor<S>, cosine: &Tensor<S>, sine: &Tensor<S>) -> Tensor<S> {
        let [_, time, heads, width] = extents_of("rotary", x);
        for angles in [cosine, sine] {
            assert_eq!(angles.shape, Shape::new(&[time, width / 2]), "angles of rotary positions on {}", x.shape);
        }
        if cosine.grad_target.is_some() || sine.grad_target.is_some() {
            return composed::rotary(self, x, cosine, sine);
        }
        let data = self.compute_buffer(x.data.len(), |out| {
            rotary::rotate(time, heads, width / 2, &x.data, &cosine.data, &sine.data, false, out);
        });
        self.emit("rotary", x.shape, data, &[x.grad_target], |out, _, _| Record::Rotary {
            x: x.grad_target,
            shape: x.shape,
            angles: [cosine.data.clone(), sine.data.clone()],
            out,
        })
    }

    #[inline(never)]
    fn cross_entropy(&self, logits: &Tensor<S>, targets: &[usize]) -> Tensor<S> {
        let [rows, classes] = extents_of("cross_entropy", logits);
        assert_eq!(rows, targets.len(), "one target per row of logits");
        assert!(targets.iter().all(|&target| target < classes), "a target beyond the {classes} classes");
        let mut tape = self.lock();
        let range = tape.store_rows(targets);
        let mut log_sums = self.pool.take(rows);
        let data = self.compute_buffer(rows, |out| {
            loss::forward(classes, &logits.data, &tape.indices[range.clone()], log_sums.write(), out);
        });
        drop(tape);
        self.emit("cross_entropy", Shape::new(&[rows]), data, &[logits.grad_target], |out, _, _| Record::CrossEntropy {
            logits: logits.clone(),
            targets: range,
            log_sums,
            out,
        })
    }
}

impl<S: Scalar> Native<S> {
    #[inline(never)]
    fn map(&self, kind: ElementMap, x: &Tensor<S>) -> Tensor<S> {
        let data = self.compute_buffer(x.data.len(), |out| pointwise::map(kind, &x.data, out));
        self.emit(kind.name(), x.shape, data, &[x.grad_target], |out, data, _| {
            let saved = if kind.derivative_uses_result() { data.clone() } else { x.data.clone() };
            Record::Map { kind, x: x.grad_target, saved, out }
        })
    }

    #[inline(never)]
    fn normalise(
        &self,
        name: &'static str,
        norm: norm::Norm,
        x: &Tensor<S>,
        weight: Option<&Tensor<S>>,
        bias: Option<&Tensor<S>>,
    ) -> Tensor<S> {
        let width = x.shape.width();
        for parameter in weight.iter().chain(&bias) {
            assert_eq!(parameter.shape.size(), width, "{name} of rows of {width} with a weight of {}", parameter.shape);
        }
        let mut statistics = self.pool.take(2 * x.shape.rows());
        let (gain, offset) = (Tensor::data_or_empty(weight), Tensor::data_or_empty(bias));
        let data = self.compute_buffer(x.data.len(), |out| {
            norm::forward(norm, width, &x.data, gain, offset, statistics.write(), out);
        });
        let bias = Tensor::grad_target_or_none(bias);
        let inputs = [x.grad_target, Tensor::grad_target_or_none(weight), bias];
        self.emit(name, x.shape, data, &inputs, |out, _, _| Record::Norm {
            norm,
            x: x.clone(),
            weight: weight.cloned(),
            bias,
            statistics,
            out,
        })
    }

    /// Records that a bias was added to every row of a tensor that nothing else refers to.
    fn record_bias(&self, y: Tensor<S>, bias: &Tensor<S>) -> Tensor<S> {
        let mut tape = self.lock();
        tape.end_operation("bias", &y.data);
        if bias.grad_target.is_some() {
            let out = match y.grad_target {
                GradientTarget::Node(_) => y.grad_target,
                _ => tape.new_node(),
            };
            tape.push("bias", Record::Bias { bias: bias.grad_target, width: y.shape.width(), out });
            return Tensor { grad_target: out, ..y };
        }
        y
    }
}
