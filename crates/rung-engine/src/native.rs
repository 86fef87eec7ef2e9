//! The native executor: the operations of [`Ops`] on this machine's cores.
//!
//! A [`Native`] runs on one thread: it owns a pool of buffers and a tape, and is the unit a [`DataParallel`] runs one of per thread.
//! Used alone it is enough for evaluation and for tests:
//!
//! ```
//! use rung_engine::{Native, Ops, Parameters};
//!
//! let mut weights = Parameters::<f64>::new();
//! let slope = weights.add("slope", &[1], vec![3.0]).id();
//! let ops = Native::new();
//! ops.bind(&weights);
//! let x = ops.parameter(slope);
//! ops.backward(&ops.mul(&x, &x));
//! assert_eq!(ops.gradient(), [6.0]);
//! ```
//!
//! A method here computes the result with a kernel and hands it to `emit`, which makes the tensor and, if a gradient will come
//! back this way, puts the record on the tape.

mod backward;
mod data_parallel;
mod delta;
mod pool;
mod profile;
mod tape;
mod threaded_attention;
mod threaded_product;
mod worker_pool;

pub use data_parallel::{DataParallel, StepError, StepOutcome};
pub use profile::OperationProfile;
pub use tape::{NonFinite, Tensor};

use crate::composed;
use crate::kernels::pointwise::{self, ElementMap, Pairing};
use crate::kernels::product::{Accumulate, Matrix, MatrixMut, product};
use crate::kernels::{attention, blocks, convolution, gated, layout, left_to_right, loss, norm, recurrence, rotary};
use crate::ops::{
    AccumulatorRounding, AttentionInputs, Binary, BlockAttention, Decay, GatedScan, GeneralDelta, Ops, Recurrence,
    Unary,
};
use crate::parameters::{Parameter, Parameters};
use crate::scalar::Scalar;
use crate::shape::{MAX_RANK, Shape};
use backward::{Batch, attention_inputs};
use pool::{Buffer, Pool};
use profile::Profile;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tape::{GradientTarget, Record, Recurrent, Tape, Watch};
use worker_pool::WorkerPool;

/// An executor on one thread, unless it was given more for its products.
pub struct Native<S: Scalar> {
    pool: Arc<Pool<S>>,
    tape: Mutex<Tape<S>>,
    /// More threads for large products; see [`Native::with_threads`].
    workers: Option<Mutex<WorkerPool>>,
}

impl<S: Scalar> Default for Native<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Scalar> Tensor<S> {
    /// The tensor without its numbers, for a record that needs only to know where the gradient goes.
    fn without_data(&self) -> Self {
        Self { data: Buffer::Pooled { block: None, length: 0 }, shape: self.shape, var: self.var }
    }
}

impl<S: Scalar> Native<S> {
    /// An executor with an empty pool and no weights.
    pub fn new() -> Self {
        Self { pool: Pool::new(), tape: Mutex::new(Tape::new()), workers: None }
    }

    /// An executor that runs large products on so many threads: for one prompt at a time, where a [`DataParallel`] has nothing to share out.
    /// Every element is computed as on one thread, so the bits are the same.
    ///
    /// # Panics
    /// If the system refuses the threads.
    pub fn with_threads(threads: usize) -> Self {
        Self { workers: (threads > 1).then(|| Mutex::new(WorkerPool::new(threads))), ..Self::new() }
    }

    /// A product, on all threads if there are more and it is large.
    fn multiply(&self, out: &mut [S], columns: usize, left: Matrix<'_, S>, right: Matrix<'_, S>) {
        let [rows, inner] = left.extents();
        let workers = self.workers.as_ref().filter(|_| threaded_product::is_divisible(rows, columns, inner));
        let Some(workers) = workers else {
            return product(&mut MatrixMut::new(out, rows, columns, columns), Accumulate::Fresh, 1.0, left, right);
        };
        let mut space = self.pool.take(threaded_product::packed_size::<S>(rows, columns, inner));
        let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
        threaded_product::product_on(&mut workers, out, columns, left, right, space.write());
    }

    /// Uses these weights, with gradients, from now on. What was recorded is forgotten and the gradient is zero.
    pub fn bind(&self, weights: &Parameters<S>) {
        self.set_weights(weights, true);
    }

    /// Uses these weights without gradients: nothing is recorded, and buffers go back as soon as they are dropped.
    pub fn bind_frozen(&self, weights: &Parameters<S>) {
        self.set_weights(weights, false);
    }

    fn set_weights(&self, weights: &Parameters<S>, training: bool) {
        let mut tape = self.lock();
        tape.clear();
        tape.training = training;
        tape.weights = Some(weights.shared());
        tape.layout.clear();
        tape.layout.extend(weights.entries().map(|(_, entry)| (entry.shape, entry.range.start)));
        tape.gradient.clear();
        tape.gradient.resize(if training { weights.size() } else { 0 }, S::ZERO);
    }

    /// Lets go of the weights, so that they can be changed in place.
    pub fn release(&self) {
        let mut tape = self.lock();
        tape.clear();
        tape.weights = None;
    }

    /// Adds the gradient of a loss to the gradient of the weights, and forgets what was recorded.
    #[inline(never)]
    pub fn backward(&self, loss: &Tensor<S>) {
        let mut tape = self.lock();
        tape.backward(&self.pool, loss);
        tape.clear();
    }

    /// A copy of the gradient of all weights since [`bind`](Self::bind), in their order.
    pub fn gradient(&self) -> Vec<S> {
        self.lock().gradient.clone()
    }

    /// Looks at every result from now on; see [`fault`](Self::fault).
    pub fn watch(&self) {
        self.lock().watch = Some(Watch::default());
    }

    /// Stops watching, and says where the first number that is not finite was seen.
    pub fn fault(&self) -> Option<NonFinite> {
        self.lock().watch.take().and_then(|watch| watch.fault)
    }

    /// Reads the clock after every operation from now on; see [`take_profile`](Self::take_profile).
    pub fn start_profile(&self) {
        self.lock().profile = Some(Profile::new());
    }

    /// Stops the profile, and gives its rows in the order in which operations first ran. Empty if none was started.
    pub fn take_profile(&self) -> Vec<OperationProfile> {
        self.lock().profile.take().map(Profile::into_rows).unwrap_or_default()
    }

    /// The time up to here belongs to no operation.
    fn skip_profile(&self) {
        if let Some(profile) = &mut self.lock().profile {
            profile.skip();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tape<S>> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a tensor of a result and, if one of the inputs takes a gradient, records how it was made.
    fn emit(
        &self,
        operation: &'static str,
        shape: Shape,
        data: Buffer<S>,
        inputs: &[GradientTarget],
        record: impl FnOnce(GradientTarget, &Buffer<S>, &mut Tape<S>) -> Record<S>,
    ) -> Tensor<S> {
        let mut tape = self.lock();
        tape.end(operation, &data);
        let mut var = GradientTarget::None;
        if inputs.iter().any(|input| input.wanted()) {
            var = tape.node();
            let record = record(var, &data, &mut tape);
            tape.push(operation, record);
        }
        Tensor { data, shape, var }
    }

    /// A new buffer, filled by a kernel.
    fn made(&self, length: usize, fill: impl FnOnce(&mut [S])) -> Buffer<S> {
        let mut buffer = self.pool.take(length);
        fill(buffer.write());
        buffer
    }

    #[inline(never)]
    fn map(&self, kind: ElementMap, x: &Tensor<S>) -> Tensor<S> {
        let data = self.made(x.data.len(), |out| pointwise::map(kind, &x.data, out));
        self.emit(kind.name(), x.shape, data, &[x.var], |out, data, _| {
            let kept = if kind.keeps_result() { data.clone() } else { x.data.clone() };
            Record::Map { kind, x: x.var, kept, out }
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
        let mut kept = self.pool.take(2 * x.shape.rows());
        let gain = weight.map_or(&[][..], |weight| &weight.data);
        let offset = bias.map_or(&[][..], |bias| &bias.data);
        let data = self.made(x.data.len(), |out| norm::forward(norm, width, &x.data, gain, offset, kept.write(), out));
        let bias = bias.map_or(GradientTarget::None, |bias| bias.var);
        let inputs = [x.var, weight.map_or(GradientTarget::None, |weight| weight.var), bias];
        self.emit(name, x.shape, data, &inputs, |out, _, _| Record::Norm {
            norm,
            x: x.clone(),
            weight: weight.cloned(),
            bias,
            kept,
            out,
        })
    }
}

/// The extents of attention, checked against each other.
fn attention_extents<S: Scalar>(inputs: &AttentionInputs<'_, Tensor<S>>) -> attention::Extents {
    let AttentionInputs { query, key, value, bias, mask, scale } = *inputs;
    let [batch, queries, heads, width] = extents_of("attention", query);
    let [_, keys, key_heads, value_width] = extents_of("attention", value);
    assert_eq!(key.shape, Shape::new(&[batch, keys, key_heads, width]), "keys of attention from {}", query.shape);
    assert!(heads.is_multiple_of(key_heads) && value.shape[0] == batch, "{heads} heads on {key_heads}");
    assert!(queries <= keys, "{queries} queries cannot be the last of {keys} keys");
    if let Some(bias) = bias {
        assert_eq!(bias.shape[2..], [queries, keys], "a bias of attention");
    }
    attention::Extents { batch, queries, keys, heads, key_heads, width, value_width, mask, scale }
}

/// The extents of a tensor of known rank.
fn extents_of<const RANK: usize, S: Scalar>(name: &str, x: &Tensor<S>) -> [usize; RANK] {
    x.shape[..].try_into().unwrap_or_else(|_| panic!("{name} needs {RANK} axes, and got {}", x.shape))
}

impl<S: Scalar> Ops for Native<S> {
    type Scalar = S;
    type Tensor = Tensor<S>;

    fn parameter(&self, id: Parameter) -> Tensor<S> {
        let tape = self.lock();
        let (shape, start) = tape.layout[id.0 as usize];
        let values = Arc::clone(tape.weights.as_ref().expect("`bind` the weights before using them"));
        let length = shape.size();
        let var = if tape.training { GradientTarget::Weight { start, length } } else { GradientTarget::None };
        Tensor { data: Buffer::Shared { values, start, length }, shape, var }
    }

    fn constant(&self, shape: &[usize], values: &[S]) -> Tensor<S> {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), values.len(), "values of a constant of shape {shape}");
        Tensor { data: self.pool.copied(values), shape, var: GradientTarget::None }
    }

    fn full(&self, shape: &[usize], value: f64) -> Tensor<S> {
        let shape = Shape::new(shape);
        Tensor { data: self.pool.filled(shape.size(), S::from_f64(value)), shape, var: GradientTarget::None }
    }

    fn detach(&self, x: &Tensor<S>) -> Tensor<S> {
        Tensor { var: GradientTarget::None, ..x.clone() }
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
        let pairing = Pairing::new(&left.shape, &right.shape, &shape);
        let data = self.made(shape.size(), |out| pointwise::binary(kind, &pairing, &left.data, &right.data, out));
        let (name, linear) = match kind {
            Binary::Add => ("add", true),
            Binary::Sub => ("sub", true),
            Binary::Mul => ("mul", false),
            Binary::Div => ("div", false),
        };
        self.emit(name, shape, data, &[left.var, right.var], |out, _, _| {
            let [left, right] = [left, right].map(|x| if linear { x.without_data() } else { x.clone() });
            Record::Binary { kind, left, right, shape, out }
        })
    }

    #[inline(never)]
    fn affine(&self, x: &Tensor<S>, factor: f64, offset: f64) -> Tensor<S> {
        let factor = S::from_f64(factor);
        let data = self.made(x.data.len(), |out| pointwise::affine(&x.data, factor, S::from_f64(offset), out));
        self.emit("affine", x.shape, data, &[x.var], |out, _, _| Record::Affine { x: x.var, factor, out })
    }

    #[inline(never)]
    fn product(&self, left: &Tensor<S>, flip_left: bool, right: &Tensor<S>, flip_right: bool) -> Tensor<S> {
        let batch = Batch::new(&left.shape, flip_left, &right.shape);
        let rank = left.shape.len();
        let rows = if flip_left { left.shape[rank - 1] } else { left.shape[rank - 2] };
        let columns = if flip_right { batch.right[0] } else { batch.right[1] };
        let shape = left.shape.with(rank - 2, rows).with(rank - 1, columns);
        let block = shape.size() / batch.count.max(1);
        let data = self.made(shape.size(), |out| {
            for index in 0..batch.count {
                let operands = batch.operands(index, (&left.data, flip_left), (&right.data, flip_right));
                let out = &mut out[index * block..(index + 1) * block];
                self.multiply(out, columns, operands.0, operands.1);
            }
        });
        self.emit("product", shape, data, &[left.var, right.var], |out, _, _| Record::Product {
            left: left.clone(),
            flip_left,
            right: right.clone(),
            flip_right,
            out,
        })
    }

    fn reshape(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), x.shape.size(), "{} elements cannot take shape {shape}", x.shape);
        // The gradient has the same elements too, so the variable is the same.
        Tensor { shape, ..x.clone() }
    }

    #[inline(never)]
    fn permute(&self, x: &Tensor<S>, order: &[usize]) -> Tensor<S> {
        let mut shape = x.shape;
        assert_eq!(order.len(), shape.len(), "an order of the axes of {shape}");
        for (axis, &from) in order.iter().enumerate() {
            shape[axis] = x.shape[from];
        }
        let data = self.made(x.data.len(), |out| layout::permute(&x.shape, order, &x.data, out));
        self.emit("permute", shape, data, &[x.var], |out, _, _| {
            let mut kept = [0; MAX_RANK];
            kept[..order.len()].copy_from_slice(order);
            Record::Permute { x: x.var, shape: x.shape, order: kept, out }
        })
    }

    #[inline(never)]
    fn slice(&self, x: &Tensor<S>, axis: usize, range: Range<usize>) -> Tensor<S> {
        let (outer, extent, inner) = x.shape.around(axis);
        assert!(range.start <= range.end && range.end <= extent, "{range:?} of axis {axis} of {}", x.shape);
        let data = self.made(outer * range.len() * inner, |out| {
            layout::move_rows((outer, inner), range.len(), (&x.data, extent, range.start), (out, range.len(), 0));
        });
        self.emit("slice", x.shape.with(axis, range.len()), data, &[x.var], |out, _, _| Record::Slice {
            x: x.var,
            shape: x.shape,
            axis,
            range,
            out,
        })
    }

    #[inline(never)]
    fn concat(&self, parts: &[Tensor<S>], axis: usize) -> Tensor<S> {
        let first = parts.first().expect("at least one tensor to put together");
        let shape = first.shape.with(axis, parts.iter().map(|part| part.shape[axis]).sum());
        let (outer, extent, inner) = shape.around(axis);
        let mut start = 0;
        let data = self.made(shape.size(), |out| {
            for part in parts {
                let count = part.shape[axis];
                assert_eq!(part.shape.with(axis, extent), shape, "parts along axis {axis} differ in another");
                layout::move_rows((outer, inner), count, (&part.data, count, 0), (out, extent, start));
                start += count;
            }
        });
        let wanted = parts.iter().map(|part| part.var).find(|var| var.wanted()).unwrap_or(GradientTarget::None);
        self.emit("concat", shape, data, &[wanted], |out, _, tape| {
            let start = tape.parts.len();
            tape.parts.extend(parts.iter().map(|part| (part.var, part.shape[axis])));
            Record::Concat { parts: start..tape.parts.len(), shape, axis, out }
        })
    }

    #[inline(never)]
    fn broadcast(&self, x: &Tensor<S>, shape: &[usize]) -> Tensor<S> {
        let shape = Shape::new(shape);
        assert_eq!(x.shape.broadcast(&shape), shape, "{} does not broadcast to {shape}", x.shape);
        let data = self.made(shape.size(), |out| pointwise::spread(&x.shape, &x.data, &shape, out));
        self.emit("broadcast", shape, data, &[x.var], |out, _, _| Record::Broadcast {
            x: x.var,
            from: x.shape,
            to: shape,
            out,
        })
    }

    #[inline(never)]
    fn gather_rows(&self, x: &Tensor<S>, rows: &[usize]) -> Tensor<S> {
        let [count, width] = extents_of("gather_rows", x);
        assert!(rows.iter().all(|&row| row < count), "a row number beyond the {count} rows of {}", x.shape);
        let mut tape = self.lock();
        let range = tape.store_rows(rows);
        let data =
            self.made(rows.len() * width, |out| layout::gather(width, &tape.indices[range.clone()], &x.data, out));
        drop(tape);
        self.emit("gather_rows", Shape::new(&[rows.len(), width]), data, &[x.var], |out, _, _| Record::Gather {
            x: x.var,
            shape: x.shape,
            rows: range,
            out,
        })
    }

    #[inline(never)]
    fn sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        let around = x.shape.around(axis);
        let data = self.made(around.0 * around.2, |out| layout::sum(around, &x.data, out));
        let to = x.shape.with(axis, 1);
        self.emit("sum", to, data, &[x.var], |out, _, _| Record::Sum { x: x.var, from: x.shape, to, out })
    }

    #[inline(never)]
    fn max(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        let around = x.shape.around(axis);
        let data = self.made(around.0 * around.2, |out| layout::max(around, &x.data, out));
        Tensor { data, shape: x.shape.with(axis, 1), var: GradientTarget::None }
    }

    #[inline(never)]
    fn cumulative_sum(&self, x: &Tensor<S>, axis: usize) -> Tensor<S> {
        let around = x.shape.around(axis);
        let data = self.made(x.data.len(), |out| layout::running_sum(around, false, &x.data, out));
        let record = |out, _: &Buffer<S>, _: &mut Tape<S>| Record::RunningSum { x: x.var, around, out };
        self.emit("cumulative_sum", x.shape, data, &[x.var], record)
    }

    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        if let Some(watch) = &mut self.lock().watch {
            watch.scopes.push(name.to_owned());
        }
        let result = body();
        if let Some(watch) = &mut self.lock().watch {
            watch.scopes.pop();
        }
        result
    }

    crate::delegate_ops!(composed => softmax, gelu_exact, round_to_bits);

    #[inline(never)]
    fn linear(&self, x: &Tensor<S>, weight: &Tensor<S>, bias: Option<&Tensor<S>>) -> Tensor<S> {
        let y = self.product(x, false, weight, true);
        let Some(bias) = bias else { return y };
        assert_eq!(bias.shape.size(), y.shape.width(), "a bias of {} for rows of {}", bias.shape, y.shape);
        let Tensor { mut data, shape, var } = y;
        if !data.is_sole() {
            data = self.pool.copied(&data);
        }
        data.write().chunks_exact_mut(shape.width()).for_each(|row| pointwise::accumulate(&bias.data, row));
        self.with_bias(Tensor { data, shape, var }, bias)
    }

    #[inline(never)]
    fn attention(&self, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        let AttentionInputs { query, key, value, bias, .. } = *inputs;
        let extents = attention_extents(inputs);
        let (batch, heads, queries, value_width) = (extents.batch, extents.heads, extents.queries, extents.value_width);
        let shape = query.shape.with(3, value_width);
        let view = attention_inputs(query, key, value, bias);
        let vars = [query.var, key.var, value.var, bias.map_or(GradientTarget::None, |bias| bias.var)];
        let divisible = threaded_attention::is_divisible(&extents, &view) && !vars.iter().any(|var| var.wanted());
        if let Some(workers) = self.workers.as_ref().filter(|_| divisible) {
            let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
            let fill = |out: &mut [S]| threaded_attention::forward_on(&mut workers, &self.pool, extents, &view, out);
            let data = self.made(shape.size(), fill);
            self.lock().end("attention", &data);
            return Tensor { data, shape, var: GradientTarget::None };
        }
        let mut scratch = self.pool.take(extents.scratch::<S>());
        let mut kept = self.pool.take(batch * heads * queries);
        let data =
            self.made(shape.size(), |out| attention::forward(extents, &view, scratch.write(), kept.write(), out));
        self.emit("attention", shape, data, &vars, |out, data, _| Record::Attention {
            extents,
            inputs: [query.clone(), key.clone(), value.clone()],
            bias: bias.cloned(),
            result: data.clone(),
            kept,
            out,
        })
    }

    #[inline(never)]
    fn left_to_right_attention(
        &self,
        inputs: &AttentionInputs<'_, Tensor<S>>,
        rounding: Option<AccumulatorRounding>,
    ) -> Tensor<S> {
        let AttentionInputs { query, key, value, bias, .. } = *inputs;
        let (extents, view) = (attention_extents(inputs), attention_inputs(query, key, value, bias));
        let shape = query.shape.with(3, extents.value_width);
        let data = self.made(shape.size(), |out| {
            out.fill(S::ZERO);
            left_to_right::forward(extents, &view, rounding, out);
        });
        Tensor { data, shape, var: GradientTarget::None }
    }

    #[inline(never)]
    fn block_attention(&self, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        let BlockAttention { query, key, value, choice, scale } = *inputs;
        let [batch, queries, heads, width] = extents_of("block_attention", query);
        let [_, keys, key_heads, value_width] = extents_of("block_attention", value);
        assert_eq!(key.shape, Shape::new(&[batch, keys, key_heads, width]), "keys of attention from {}", query.shape);
        let (groups, block) = (choice.groups(), choice.block());
        assert!(heads.is_multiple_of(key_heads) && heads.is_multiple_of(groups), "{heads} heads, {groups} groups");
        choice.check(batch, queries, keys);
        let extents =
            blocks::Extents { batch, queries, keys, heads, key_heads, groups, width, value_width, block, scale };
        let readers = choice.readers(queries, keys);
        let mut scratch = self.pool.take(extents.scratch());
        let mut kept = self.pool.take(batch * heads * queries);
        let shape = query.shape.with(3, value_width);
        let data = self.made(shape.size(), |out| {
            let inputs = [query, key, value].map(|x| &x.data[..]);
            blocks::forward(extents, &readers, inputs, scratch.write(), (kept.write(), out));
        });
        self.emit("block_attention", shape, data, &[query.var, key.var, value.var], |out, data, _| Record::Blocks {
            extents,
            readers,
            inputs: [query.clone(), key.clone(), value.clone()],
            result: data.clone(),
            kept,
            out,
        })
    }

    #[inline(never)]
    fn recurrence(&self, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        if inputs.rounding.is_some() {
            return composed::recurrence(self, inputs);
        }
        let Recurrence { query, key, value, ref decay, beta, state, chunk, .. } = *inputs;
        let [batch, time, heads, value_width] = extents_of("recurrence", value);
        let [_, _, key_heads, key_width] = extents_of("recurrence", key);
        assert_eq!(query.shape, key.shape, "queries and keys of a recurrence");
        assert!(heads.is_multiple_of(key_heads), "{heads} heads on {key_heads}");
        let (decay, fading) = match *decay {
            Decay::None => (None, 0),
            Decay::Scalar(decay) => (Some(decay), 1),
            Decay::Vector(decay) => (Some(decay), key_width),
        };
        if let Some(decay) = decay {
            assert_eq!(decay.shape.size(), batch * time * heads * fading, "decays of shape {}", decay.shape);
        }
        let chunk = chunk.clamp(1, time.max(1));
        let extents = recurrence::Extents {
            batch,
            time,
            heads,
            key_heads,
            key_width,
            value_width,
            chunk,
            fading,
            delta: beta.is_some(),
        };
        let mut kept = self.pool.take(batch * heads * extents.cells() * extents.state());
        let mut errors = self.pool.take(if beta.is_some() { value.data.len() } else { 0 });
        let mut last = self.pool.take(batch * heads * extents.state());
        let mut scratch = self.pool.take(extents.scratch());
        let mut data = self.pool.take(value.data.len());
        let mut record = Recurrent {
            extents,
            inputs: [query.clone(), key.clone(), value.clone()],
            decay: decay.cloned(),
            beta: beta.cloned(),
            state: state.cloned(),
            kept: self.pool.take(0),
            errors: self.pool.take(0),
            out: GradientTarget::None,
            last: GradientTarget::None,
        };
        let results = (data.write(), last.write(), kept.write(), errors.write());
        recurrence::forward(extents, &record.view(), scratch.write(), results);
        (record.kept, record.errors) = (kept, errors);
        let mut tape = self.lock();
        tape.end("recurrence", &data);
        let optional = [decay, beta, state].map(|x| x.map_or(GradientTarget::None, |x| x.var));
        if [query.var, key.var, value.var].iter().chain(&optional).any(|var| var.wanted()) {
            (record.out, record.last) = (tape.node(), tape.node());
        }
        let (out_var, last_var) = (record.out, record.last);
        if out_var.wanted() {
            tape.push("recurrence", Record::Recurrence(record));
        }
        let last_shape = Shape::new(&[batch, heads, key_width, value_width]);
        (Tensor { data, shape: value.shape, var: out_var }, Tensor { data: last, shape: last_shape, var: last_var })
    }

    #[inline(never)]
    fn general_delta(&self, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        if inputs.rounding.is_some() {
            return composed::general_delta(self, inputs);
        }
        self.replace(inputs)
    }

    fn rms_norm(&self, x: &Tensor<S>, weight: Option<&Tensor<S>>, epsilon: f64) -> Tensor<S> {
        self.normalise("rms_norm", norm::Norm { centred: false, averaged: true, epsilon }, x, weight, None)
    }

    fn layer_norm(
        &self,
        x: &Tensor<S>,
        weight: Option<&Tensor<S>>,
        bias: Option<&Tensor<S>>,
        epsilon: f64,
    ) -> Tensor<S> {
        self.normalise("layer_norm", norm::Norm { centred: true, averaged: true, epsilon }, x, weight, bias)
    }

    fn l2_norm(&self, x: &Tensor<S>, epsilon: f64) -> Tensor<S> {
        self.normalise("l2_norm", norm::Norm { centred: false, averaged: false, epsilon }, x, None, None)
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
        let data = self.made(x.data.len(), |out| pointwise::silu_gate(&gate.data, &x.data, out));
        self.emit("silu_gate", x.shape, data, &[gate.var, x.var], |out, _, _| Record::Gate {
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
        let before = state.cloned().unwrap_or_else(|| self.zeros(&[batch, taps - 1, channels]));
        let padded = self.concat(&[before, x.clone()], 1);
        let extents = convolution::Extents { batch, time, channels, taps };
        let mut turned = self.pool.take(channels * taps);
        convolution::transpose_filters(channels, taps, &filters.data, turned.write());
        let offset = bias.map_or(&[][..], |bias| &bias.data);
        let data = self.made(x.data.len(), |out| convolution::forward(extents, &padded.data, &turned, offset, out));
        let bias = bias.map_or(GradientTarget::None, |bias| bias.var);
        let out = self.emit("short_convolution", x.shape, data, &[padded.var, filters.var, bias], |out, _, _| {
            Record::Convolution { extents, padded: padded.clone(), filters: filters.clone(), bias, out }
        });
        (out, self.slice(&padded, 1, time..time + taps - 1))
    }

    #[inline(never)]
    fn gated_scan(&self, inputs: &GatedScan<'_, Tensor<S>>) -> Tensor<S> {
        let GatedScan { value, gate, state, rounding } = *inputs;
        let [batch, time, channels] = extents_of("gated_scan", value);
        assert_eq!(gate.shape, value.shape.with(2, 1), "one gate per token of {}", value.shape);
        assert_eq!(state.shape, value.shape.with(1, 1), "one state per row of {}", value.shape);
        let extents = gated::Extents { batch, time, channels, rounding };
        let data =
            self.made(value.data.len(), |out| gated::forward(extents, [&value.data, &gate.data, &state.data], out));
        self.emit("gated_scan", value.shape, data, &[value.var, gate.var, state.var], |out, data, _| {
            Record::GatedScan { extents, inputs: [value, gate, state].map(Clone::clone), states: data.clone(), out }
        })
    }

    #[inline(never)]
    fn rotary(&self, x: &Tensor<S>, cosine: &Tensor<S>, sine: &Tensor<S>) -> Tensor<S> {
        let [_, time, heads, width] = extents_of("rotary", x);
        for angles in [cosine, sine] {
            assert_eq!(angles.shape, Shape::new(&[time, width / 2]), "angles of rotary positions on {}", x.shape);
        }
        if cosine.var.wanted() || sine.var.wanted() {
            return composed::rotary(self, x, cosine, sine);
        }
        let data = self.made(x.data.len(), |out| {
            rotary::rotate(time, heads, width / 2, &x.data, &cosine.data, &sine.data, false, out);
        });
        self.emit("rotary", x.shape, data, &[x.var], |out, _, _| Record::Rotary {
            x: x.var,
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
        let mut kept = self.pool.take(rows);
        let data = self.made(rows, |out| {
            loss::forward(classes, &logits.data, &tape.indices[range.clone()], kept.write(), out);
        });
        drop(tape);
        self.emit("cross_entropy", Shape::new(&[rows]), data, &[logits.var], |out, _, _| Record::Loss {
            logits: logits.clone(),
            targets: range,
            kept,
            out,
        })
    }
}

impl<S: Scalar> Native<S> {
    /// Records that a bias was added to every row of a tensor that nothing else refers to.
    fn with_bias(&self, y: Tensor<S>, bias: &Tensor<S>) -> Tensor<S> {
        let mut tape = self.lock();
        tape.end("bias", &y.data);
        if bias.var.wanted() {
            let out = match y.var {
                GradientTarget::Node(_) => y.var,
                _ => tape.node(),
            };
            tape.push("bias", Record::Bias { bias: bias.var, width: y.shape.width(), out });
            return Tensor { var: out, ..y };
        }
        y
    }
}
