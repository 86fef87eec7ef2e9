//! The executor: the primitives of [`Ops`], each as one or two calls of Burn.
//!
//! Burn fixes the number of axes of a tensor at compile time, and the engine does not. So every Burn tensor has [`MAX_RANK`] axes:
//! leading axes of extent 1 are added, and the engine's shape is stored with the tensor. Broadcasting aligns trailing axes in both
//! libraries, so nothing else changes.
//!
//! Not every device supports tensors without elements, but models have some, such as the state of a convolution with one tap. Such
//! a tensor is stored as a single zero that is never read.
//!
//! Fused operations are composed of primitives, in chunks or in parallel over all tokens. Only states that are rounded to few bits
//! after every token, and [`Ops::left_to_right_attention`], go token by token: there each token depends on the rounding before it.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;

use burn_tensor::{Device, Element, Int, Tensor as BurnTensor, TensorData, activation};
use rung_engine::{
    Binary, GatedScan, GeneralDelta, MAX_RANK, Ops, Parameter, Parameters, Scalar, Shape, Unary, composed,
};

use crate::device::DeviceError;

/// A number that both the engine and Burn compute with: `f32` or `f64`.
pub trait Number: Scalar + Element {}

impl<S: Scalar + Element> Number for S {}

/// A tensor on a device.
#[derive(Clone)]
pub struct Tensor {
    data: BurnTensor<MAX_RANK>,
    shape: Shape,
}

impl Tensor {
    /// Burn's index of an axis of the engine's shape.
    fn burn_axis(&self, axis: usize) -> usize {
        assert!(axis < self.shape.len(), "axis {axis} of a tensor of shape {}", self.shape);
        MAX_RANK - self.shape.len() + axis
    }

    fn is_empty(&self) -> bool {
        self.shape.size() == 0
    }

    /// The elements, without gradient.
    fn detached(&self) -> BurnTensor<MAX_RANK> {
        self.data.clone().detach().set_require_grad(false)
    }

    /// The elements, with the last two axes exchanged if `transpose`.
    fn transposed_if(&self, transpose: bool) -> BurnTensor<MAX_RANK> {
        let data = self.data.clone();
        if transpose { contiguous(data).swap_dims(MAX_RANK - 2, MAX_RANK - 1) } else { data }
    }
}

/// The same elements in row-major order, and likewise their gradient: copied if axes were permuted, and else a view.
///
/// The reductions of Burn 0.22 (cubek-reduce 0.3.1), which all devices but `cpu` share, give wrong sums and maxima of some tensors with
/// permuted axes, also in backward passes: their vector size counts axes that agree in order outside of axes that do not.
fn contiguous(data: BurnTensor<MAX_RANK>) -> BurnTensor<MAX_RANK> {
    let extents = data.dims();
    data.reshape([extents.iter().product::<usize>()]).reshape(extents)
}

/// A shape with leading axes of extent 1, `MAX_RANK` in all.
fn pad_shape(shape: &[usize]) -> [usize; MAX_RANK] {
    let mut extents = [1; MAX_RANK];
    extents[MAX_RANK - shape.len()..].copy_from_slice(shape);
    extents
}

/// An executor on a device of Burn, with the weights of a model.
///
/// ```
/// use rung_burn::{Burn, device};
/// use rung_engine::{Ops, Parameters};
///
/// let mut weights = Parameters::<f32>::new();
/// let weight = weights.add("weight", &[1], vec![3.0]).id();
/// let ops = Burn::with_gradients(&device::open("cpu")?, &weights)?;
/// let x = ops.parameter(weight);
/// assert_eq!(ops.gradient(&ops.mul(&x, &x)), [6.0]);
/// # Ok::<(), rung_burn::DeviceError>(())
/// ```
pub struct Burn<S> {
    device: Device,
    weights: BTreeMap<Parameter, (Tensor, Range<usize>)>,
    scalar: PhantomData<S>,
}

impl<S: Number> Burn<S> {
    /// Copies weights to a device, to compute gradients.
    ///
    /// # Errors
    /// The device does not support the number type.
    pub fn with_gradients(device: &Device, weights: &Parameters<S>) -> Result<Self, DeviceError> {
        let mut ops = Self::without_gradients(&device.clone().autodiff(), weights)?;
        for (weight, _) in ops.weights.values_mut() {
            weight.data = weight.data.clone().require_grad();
        }
        Ok(ops)
    }

    /// Copies weights to a device, without gradients.
    ///
    /// # Errors
    /// The device does not support the number type.
    pub fn without_gradients(device: &Device, weights: &Parameters<S>) -> Result<Self, DeviceError> {
        if !device.supports_dtype(S::dtype()) {
            let number = std::any::type_name::<S>();
            return Err(DeviceError::Number { device: format!("{device:?}"), number });
        }
        let mut ops = Self { device: device.clone(), weights: BTreeMap::new(), scalar: PhantomData };
        for (id, entry) in weights.entries() {
            let weight = ops.constant(&entry.shape, weights.get(id));
            ops.weights.insert(id, (weight, entry.range.clone()));
        }
        Ok(ops)
    }

    /// The gradient of a loss in all weights, in the order of [`Parameters`]. Burn then drops the graph of the loss, so this can be
    /// called once per loss.
    pub fn gradient(&self, loss: &Tensor) -> Vec<S> {
        let size = self.weights.values().map(|(_, range)| range.end).max().unwrap_or(0);
        let mut gradient = vec![S::ZERO; size];
        if !loss.data.is_tracked() {
            return gradient;
        }
        let gradients = loss.data.backward();
        let mut parts = Vec::new();
        for (weight, range) in self.weights.values().filter(|(_, range)| !range.is_empty()) {
            if let Some(part) = weight.data.grad(&gradients) {
                parts.push((part.reshape([range.len()]), range));
            }
        }
        if parts.is_empty() {
            return gradient;
        }
        // Joined on the device, because every copy to the host waits for all kernels before it.
        let joined = BurnTensor::<1>::cat(parts.iter().map(|(part, _)| part.clone()).collect(), 0);
        let values = self.copy_values(joined);
        let mut copied = 0;
        for (_, range) in parts {
            gradient[range.clone()].copy_from_slice(&values[copied..copied + range.len()]);
            copied += range.len();
        }
        gradient
    }

    /// Copies the elements from the device.
    ///
    /// # Panics
    /// If the device fails.
    fn copy_values<const RANK: usize>(&self, data: BurnTensor<RANK>) -> Vec<S> {
        let data = data.into_data();
        data.try_into_vec().unwrap_or_else(|error| panic!("numbers from {:?}: {error}", self.device))
    }

    /// Makes a tensor of this shape; zeros if the tensor or one of its inputs has no elements.
    fn emit(&self, shape: Shape, inputs: &[&Tensor], make: impl FnOnce() -> BurnTensor<MAX_RANK>) -> Tensor {
        if shape.size() == 0 || inputs.iter().any(|input| input.is_empty()) {
            return self.full(&shape, 0.0);
        }
        Tensor { data: make(), shape }
    }
}

impl<S: Number> Ops for Burn<S> {
    type Scalar = S;
    type Tensor = Tensor;

    fn parameter(&self, id: Parameter) -> Tensor {
        self.weights[&id].0.clone()
    }

    fn constant(&self, shape: &[usize], values: &[S]) -> Tensor {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), values.len(), "values of a constant of shape {shape}");
        self.emit(shape, &[], || {
            let data = TensorData::new(values.to_vec(), pad_shape(&shape));
            BurnTensor::from_data(data, (&self.device, S::dtype()))
        })
    }

    fn full(&self, shape: &[usize], value: f64) -> Tensor {
        let shape = Shape::new(shape);
        let extents = if shape.size() == 0 { [1; MAX_RANK] } else { pad_shape(&shape) };
        Tensor { data: BurnTensor::full(extents, S::from_f64(value), (&self.device, S::dtype())), shape }
    }

    fn detach(&self, x: &Tensor) -> Tensor {
        Tensor { data: x.detached(), shape: x.shape }
    }

    fn shape(&self, x: &Tensor) -> Shape {
        x.shape
    }

    fn values(&self, x: &Tensor) -> Vec<S> {
        if x.is_empty() { Vec::new() } else { self.copy_values(x.data.clone()) }
    }

    fn unary(&self, kind: Unary, x: &Tensor) -> Tensor {
        self.emit(x.shape, &[x], || {
            let data = x.data.clone();
            match kind {
                Unary::Exp => data.exp(),
                Unary::Log => data.log(),
                Unary::Sigmoid => activation::sigmoid(data),
                Unary::Tanh => data.tanh(),
                // Burn clamps the threshold to where the exponential would overflow; its default is too low for `f64`.
                Unary::Softplus => activation::softplus_with_threshold(data, 1.0, f64::MAX),
                Unary::Relu => activation::relu(data),
                Unary::Sqrt => data.sqrt(),
                Unary::Round => x.detached().round(),
            }
        })
    }

    fn binary(&self, kind: Binary, left: &Tensor, right: &Tensor) -> Tensor {
        self.emit(left.shape.broadcast(&right.shape), &[left, right], || {
            let (left, right) = (left.data.clone(), right.data.clone());
            match kind {
                Binary::Add => left.add(right),
                Binary::Sub => left.sub(right),
                Binary::Mul => left.mul(right),
                Binary::Div => left.div(right),
            }
        })
    }

    fn affine(&self, x: &Tensor, factor: f64, offset: f64) -> Tensor {
        self.emit(x.shape, &[x], || x.data.clone().mul_scalar(S::from_f64(factor)).add_scalar(S::from_f64(offset)))
    }

    fn product(&self, left: &Tensor, transpose_left: bool, right: &Tensor, transpose_right: bool) -> Tensor {
        let (rank, leading) = (left.shape.len(), right.shape.len() - 2);
        let fits = leading == 0 || right.shape[..leading] == left.shape[..rank - 2];
        assert!(fits, "a product of {} with {}", left.shape, right.shape);
        let rows = left.shape[if transpose_left { rank - 1 } else { rank - 2 }];
        let columns = right.shape[if transpose_right { leading } else { leading + 1 }];
        let shape = left.shape.with(rank - 2, rows).with(rank - 1, columns);
        self.emit(shape, &[left, right], || {
            left.transposed_if(transpose_left).matmul(right.transposed_if(transpose_right))
        })
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Tensor {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), x.shape.size(), "{} elements cannot take shape {shape}", x.shape);
        self.emit(shape, &[x], || x.data.clone().reshape(pad_shape(&shape)))
    }

    fn permute(&self, x: &Tensor, order: &[usize]) -> Tensor {
        assert_eq!(order.len(), x.shape.len(), "an order of the axes of {}", x.shape);
        let mut shape = x.shape;
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        for (axis, &source) in order.iter().enumerate() {
            shape[axis] = x.shape[source];
            axes[x.burn_axis(axis)] = x.burn_axis(source);
        }
        self.emit(shape, &[x], || contiguous(contiguous(x.data.clone()).permute(axes)))
    }

    fn slice(&self, x: &Tensor, axis: usize, range: Range<usize>) -> Tensor {
        let in_bounds = range.start <= range.end && range.end <= x.shape[axis];
        assert!(in_bounds, "{range:?} of axis {axis} of {}", x.shape);
        let shape = x.shape.with(axis, range.len());
        self.emit(shape, &[x], || x.data.clone().narrow(x.burn_axis(axis), range.start, range.len()))
    }

    fn concat(&self, parts: &[Tensor], axis: usize) -> Tensor {
        let first = parts.first().expect("at least one tensor to concatenate");
        let shape = first.shape.with(axis, parts.iter().map(|part| part.shape[axis]).sum());
        self.emit(shape, &[], || {
            let not_empty = parts.iter().filter(|part| !part.is_empty());
            BurnTensor::cat(not_empty.map(|part| part.data.clone()).collect(), first.burn_axis(axis))
        })
    }

    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Tensor {
        let shape = Shape::new(shape);
        assert_eq!(x.shape.broadcast(&shape), shape, "{} does not broadcast to {shape}", x.shape);
        self.emit(shape, &[x], || x.data.clone().expand(pad_shape(&shape)))
    }

    fn gather_rows(&self, x: &Tensor, rows: &[usize]) -> Tensor {
        let [count, width] = x.shape[..] else { panic!("gather_rows needs 2 axes, and got {}", x.shape) };
        assert!(rows.iter().all(|&row| row < count), "a row index beyond the {count} rows of {}", x.shape);
        let shape = Shape::new(&[rows.len(), width]);
        self.emit(shape, &[x], || {
            let index = |&row: &usize| i64::try_from(row).expect("a row index has at most 63 bits");
            let indices: Vec<i64> = rows.iter().map(index).collect();
            let indices = BurnTensor::<1, Int>::from_data(TensorData::new(indices, [rows.len()]), &self.device);
            x.data.clone().select(MAX_RANK - 2, indices)
        })
    }

    fn sum(&self, x: &Tensor, axis: usize) -> Tensor {
        self.emit(x.shape.with(axis, 1), &[x], || x.data.clone().sum_dim(x.burn_axis(axis)))
    }

    fn max(&self, x: &Tensor, axis: usize) -> Tensor {
        self.emit(x.shape.with(axis, 1), &[x], || x.detached().max_dim(x.burn_axis(axis)))
    }

    fn cumulative_sum(&self, x: &Tensor, axis: usize) -> Tensor {
        self.emit(x.shape, &[x], || x.data.clone().cumsum(x.burn_axis(axis)))
    }

    fn scope<R>(&self, _: &str, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn general_delta(&self, inputs: &GeneralDelta<'_, Tensor>) -> (Tensor, Tensor) {
        composed::chunked_general_delta(self, inputs)
    }

    fn gated_scan(&self, inputs: &GatedScan<'_, Tensor>) -> Tensor {
        composed::parallel_gated_scan(self, inputs)
    }

    rung_engine::delegate_ops!(composed => softmax, linear, attention, left_to_right_attention, block_attention, choose_tokens, recurrence);
    rung_engine::delegate_ops!(composed => rms_norm, layer_norm, l2_norm, silu, gelu, gelu_exact, elu_plus_one, silu_gate);
    rung_engine::delegate_ops!(composed => short_convolution, rotary, cross_entropy, round_to_bits);
}
