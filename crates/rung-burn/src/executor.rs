//! The executor: the primitives of [`Ops`], each as one or two calls of Burn.
//!
//! Burn fixes the number of axes of a tensor at compile time, and the engine does not. So every tensor has as many axes here as
//! the engine allows, the missing ones in front and of extent one, with its true shape beside it. Broadcasting aligns trailing
//! axes in both worlds, so nothing else has to change.
//!
//! Not every device can hold a tensor without elements, and models make some: the state of a convolution with one tap. Such a
//! tensor is kept as a single zero that is never read.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;

use burn_tensor::{Device, Element, Int, Tensor as Cells, TensorData, activation};
use rung_engine::{Binary, MAX_RANK, Ops, Parameter, Parameters, Scalar, Shape, Unary};

use crate::device::DeviceError;

/// A number that both the engine and Burn compute with: `f32` or `f64`.
pub trait Number: Scalar + Element {}

impl<S: Scalar + Element> Number for S {}

/// A tensor on a device.
#[derive(Clone)]
pub struct Tensor {
    cells: Cells<MAX_RANK>,
    shape: Shape,
}

impl Tensor {
    /// Where Burn has an axis of the engine's.
    fn axis(&self, axis: usize) -> usize {
        assert!(axis < self.shape.len(), "axis {axis} of a tensor of shape {}", self.shape);
        MAX_RANK - self.shape.len() + axis
    }

    fn is_empty(&self) -> bool {
        self.shape.size() == 0
    }

    /// The elements, cut off from the gradient.
    fn bare(&self) -> Cells<MAX_RANK> {
        self.cells.clone().detach().set_require_grad(false)
    }

    /// The elements with the last two axes exchanged, if asked.
    fn turned(&self, flip: bool) -> Cells<MAX_RANK> {
        let cells = self.cells.clone();
        if flip { cells.swap_dims(MAX_RANK - 2, MAX_RANK - 1) } else { cells }
    }
}

/// A shape with ones in front.
fn padded(shape: &[usize]) -> [usize; MAX_RANK] {
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
/// let slope = weights.add("slope", &[1], vec![3.0]).id();
/// let ops = Burn::learning(&device::named("flex")?, &weights)?;
/// let x = ops.parameter(slope);
/// assert_eq!(ops.gradient(&ops.mul(&x, &x)), [6.0]);
/// # Ok::<(), rung_burn::DeviceError>(())
/// ```
pub struct Burn<S> {
    device: Device,
    weights: BTreeMap<Parameter, (Tensor, Range<usize>)>,
    number: PhantomData<S>,
}

impl<S: Number> Burn<S> {
    /// Copies weights to a device, to find their gradients.
    ///
    /// # Errors
    /// The device does not compute with such numbers.
    pub fn learning(device: &Device, weights: &Parameters<S>) -> Result<Self, DeviceError> {
        let mut ops = Self::frozen(&device.clone().autodiff(), weights)?;
        for (weight, _) in ops.weights.values_mut() {
            weight.cells = weight.cells.clone().require_grad();
        }
        Ok(ops)
    }

    /// Copies weights to a device, to use them as they are.
    ///
    /// # Errors
    /// The device does not compute with such numbers.
    pub fn frozen(device: &Device, weights: &Parameters<S>) -> Result<Self, DeviceError> {
        if !device.supports_dtype(S::dtype()) {
            let number = std::any::type_name::<S>();
            return Err(DeviceError::Number { device: format!("{device:?}"), number });
        }
        let mut ops = Self { device: device.clone(), weights: BTreeMap::new(), number: PhantomData };
        for (id, entry) in weights.entries() {
            let weight = ops.constant(&entry.shape, weights.get(id));
            ops.weights.insert(id, (weight, entry.range.clone()));
        }
        Ok(ops)
    }

    /// The gradient of a loss in all weights, in their order. Burn forgets how the loss was made: it can be asked for once.
    pub fn gradient(&self, loss: &Tensor) -> Vec<S> {
        let size = self.weights.values().map(|(_, range)| range.end).max().unwrap_or(0);
        let mut gradient = vec![S::ZERO; size];
        if loss.cells.is_tracked() {
            let gradients = loss.cells.backward();
            for (weight, range) in self.weights.values() {
                if let Some(found) = weight.cells.grad(&gradients) {
                    gradient[range.clone()].copy_from_slice(&self.read(found));
                }
            }
        }
        gradient
    }

    /// # Panics
    /// If the device fails.
    fn read(&self, cells: Cells<MAX_RANK>) -> Vec<S> {
        let data = cells.into_data();
        data.try_into_vec().unwrap_or_else(|error| panic!("numbers from {:?}: {error}", self.device))
    }

    /// A tensor of this shape; zero if it, or what it is made of, has no elements.
    fn emit(&self, shape: Shape, inputs: &[&Tensor], make: impl FnOnce() -> Cells<MAX_RANK>) -> Tensor {
        if shape.size() == 0 || inputs.iter().any(|input| input.is_empty()) {
            return self.full(&shape, 0.0);
        }
        Tensor { cells: make(), shape }
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
            let data = TensorData::new(values.to_vec(), padded(&shape));
            Cells::from_data(data, (&self.device, S::dtype()))
        })
    }

    fn full(&self, shape: &[usize], value: f64) -> Tensor {
        let shape = Shape::new(shape);
        let extents = if shape.size() == 0 { [1; MAX_RANK] } else { padded(&shape) };
        Tensor { cells: Cells::full(extents, S::from_f64(value), (&self.device, S::dtype())), shape }
    }

    fn detach(&self, x: &Tensor) -> Tensor {
        Tensor { cells: x.bare(), shape: x.shape }
    }

    fn shape(&self, x: &Tensor) -> Shape {
        x.shape
    }

    fn values(&self, x: &Tensor) -> Vec<S> {
        if x.is_empty() { Vec::new() } else { self.read(x.cells.clone()) }
    }

    fn unary(&self, kind: Unary, x: &Tensor) -> Tensor {
        self.emit(x.shape, &[x], || {
            let cells = x.cells.clone();
            match kind {
                Unary::Exp => cells.exp(),
                Unary::Log => cells.log(),
                Unary::Sigmoid => activation::sigmoid(cells),
                Unary::Tanh => cells.tanh(),
                // Burn lowers the threshold to where the exponential would overflow; its usual one is too low for `f64`.
                Unary::Softplus => activation::softplus_with_threshold(cells, 1.0, f64::MAX),
                Unary::Relu => activation::relu(cells),
                Unary::Sqrt => cells.sqrt(),
                Unary::Round => x.bare().round(),
            }
        })
    }

    fn binary(&self, kind: Binary, left: &Tensor, right: &Tensor) -> Tensor {
        self.emit(left.shape.broadcast(&right.shape), &[left, right], || {
            let (left, right) = (left.cells.clone(), right.cells.clone());
            match kind {
                Binary::Add => left.add(right),
                Binary::Sub => left.sub(right),
                Binary::Mul => left.mul(right),
                Binary::Div => left.div(right),
            }
        })
    }

    fn affine(&self, x: &Tensor, factor: f64, offset: f64) -> Tensor {
        self.emit(x.shape, &[x], || x.cells.clone().mul_scalar(S::from_f64(factor)).add_scalar(S::from_f64(offset)))
    }

    fn product(&self, left: &Tensor, flip_left: bool, right: &Tensor, flip_right: bool) -> Tensor {
        let (rank, leading) = (left.shape.len(), right.shape.len() - 2);
        let fits = leading == 0 || right.shape[..leading] == left.shape[..rank - 2];
        assert!(fits, "a product of {} with {}", left.shape, right.shape);
        let rows = left.shape[if flip_left { rank - 1 } else { rank - 2 }];
        let columns = right.shape[if flip_right { leading } else { leading + 1 }];
        let shape = left.shape.with(rank - 2, rows).with(rank - 1, columns);
        self.emit(shape, &[left, right], || left.turned(flip_left).matmul(right.turned(flip_right)))
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Tensor {
        let shape = Shape::new(shape);
        assert_eq!(shape.size(), x.shape.size(), "{} elements cannot take shape {shape}", x.shape);
        self.emit(shape, &[x], || x.cells.clone().reshape(padded(&shape)))
    }

    fn permute(&self, x: &Tensor, order: &[usize]) -> Tensor {
        assert_eq!(order.len(), x.shape.len(), "an order of the axes of {}", x.shape);
        let mut shape = x.shape;
        let mut axes: [usize; MAX_RANK] = std::array::from_fn(|axis| axis);
        for (axis, &from) in order.iter().enumerate() {
            shape[axis] = x.shape[from];
            axes[x.axis(axis)] = x.axis(from);
        }
        self.emit(shape, &[x], || x.cells.clone().permute(axes))
    }

    fn slice(&self, x: &Tensor, axis: usize, range: Range<usize>) -> Tensor {
        let sound = range.start <= range.end && range.end <= x.shape[axis];
        assert!(sound, "{range:?} of axis {axis} of {}", x.shape);
        let shape = x.shape.with(axis, range.len());
        self.emit(shape, &[x], || x.cells.clone().narrow(x.axis(axis), range.start, range.len()))
    }

    fn concat(&self, parts: &[Tensor], axis: usize) -> Tensor {
        let first = parts.first().expect("at least one tensor to put together");
        let shape = first.shape.with(axis, parts.iter().map(|part| part.shape[axis]).sum());
        self.emit(shape, &[], || {
            let filled = parts.iter().filter(|part| !part.is_empty());
            Cells::cat(filled.map(|part| part.cells.clone()).collect(), first.axis(axis))
        })
    }

    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Tensor {
        let shape = Shape::new(shape);
        assert_eq!(x.shape.broadcast(&shape), shape, "{} does not broadcast to {shape}", x.shape);
        self.emit(shape, &[x], || x.cells.clone().expand(padded(&shape)))
    }

    fn gather_rows(&self, x: &Tensor, rows: &[usize]) -> Tensor {
        let [count, width] = x.shape[..] else { panic!("gather_rows needs 2 axes, and got {}", x.shape) };
        assert!(rows.iter().all(|&row| row < count), "a row number beyond the {count} rows of {}", x.shape);
        let shape = Shape::new(&[rows.len(), width]);
        self.emit(shape, &[x], || {
            let number = |&row: &usize| i64::try_from(row).expect("rows are counted in 63 bits");
            let numbers: Vec<i64> = rows.iter().map(number).collect();
            let numbers = Cells::<1, Int>::from_data(TensorData::new(numbers, [rows.len()]), &self.device);
            x.cells.clone().select(MAX_RANK - 2, numbers)
        })
    }

    fn sum(&self, x: &Tensor, axis: usize) -> Tensor {
        self.emit(x.shape.with(axis, 1), &[x], || x.cells.clone().sum_dim(x.axis(axis)))
    }

    fn max(&self, x: &Tensor, axis: usize) -> Tensor {
        self.emit(x.shape.with(axis, 1), &[x], || x.bare().max_dim(x.axis(axis)))
    }

    fn cumulative_sum(&self, x: &Tensor, axis: usize) -> Tensor {
        self.emit(x.shape, &[x], || x.cells.clone().cumsum(x.axis(axis)))
    }

    fn scope<R>(&self, _: &str, body: impl FnOnce() -> R) -> R {
        body()
    }

    rung_engine::delegate_ops!(composed => fused);
}
