//! Arrays shared with NumPy without a copy, and numbers read from the bytes of NumPy arrays.
//!
//! An [`Array`] owns its numbers and has NumPy's `__array_interface__`: `numpy.asarray` makes an array of the same memory, which
//! keeps the owner alive. Arrays from Python arrive as bytes.

use std::any::Any;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An array that `numpy.asarray` accepts.
#[pyclass(frozen, module = "rung._native")]
pub struct Array {
    /// The vector of numbers, which is freed with this object.
    _values: Box<dyn Any + Send + Sync>,
    shape: Vec<usize>,
    /// NumPy's type code, without the byte order.
    type_code: &'static str,
    /// Address of the first number: only NumPy reads or writes there, and only while this object lives.
    address: usize,
}

/// A number type that NumPy has.
pub trait Number: Send + Sync + 'static {
    /// NumPy's type code, without the byte order.
    const TYPE_CODE: &'static str;
}

impl Number for u16 {
    const TYPE_CODE: &'static str = "u2";
}

/// Shown as signed, as PyTorch expects: ids are small, and "no target" (all bits set) reads as -1.
impl Number for u32 {
    const TYPE_CODE: &'static str = "i4";
}

impl Number for f32 {
    const TYPE_CODE: &'static str = "f4";
}

impl Number for bool {
    const TYPE_CODE: &'static str = "b1";
}

impl Array {
    /// Numbers in row-major order, as many as the shape has.
    pub fn new<N: Number>(mut values: Vec<N>, shape: Vec<usize>) -> Self {
        debug_assert_eq!(values.len(), shape.iter().product::<usize>());
        let address = values.as_mut_ptr().expose_provenance();
        Self { _values: Box::new(values), shape, type_code: N::TYPE_CODE, address }
    }
}

#[pymethods]
impl Array {
    /// NumPy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let order = if self.type_code == bool::TYPE_CODE { '|' } else { order };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", format!("{order}{}", self.type_code))?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

/// Token ids from the bytes of an array of 32-bit integers.
pub fn ids_from_bytes(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|number| u32::from_ne_bytes(*number)).collect()
}

/// Weights from the bytes of an array of 32-bit floats.
pub fn weights_from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_ne_bytes(*number)).collect()
}
