//! Numbers that NumPy shows without a copy, and the way back.
//!
//! An [`Array`] owns its numbers and has NumPy's `__array_interface__`: `numpy.asarray` makes an array of the same memory, which
//! keeps the owner alive. What comes from Python is read from the bytes of an array.

use std::any::Any;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An array for `numpy.asarray`.
#[pyclass(frozen, module = "rung._native")]
pub struct Array {
    /// The vector of numbers: it is only kept, and freed with this object.
    _values: Box<dyn Any + Send + Sync>,
    shape: Vec<usize>,
    kind: &'static str,
    /// Where the numbers lie: only NumPy reads or writes there, and only while this object lives.
    address: usize,
}

/// A number that NumPy knows.
pub trait Number: Send + Sync + 'static {
    /// NumPy's name of the type, without the order of bytes.
    const KIND: &'static str;
}

impl Number for u16 {
    const KIND: &'static str = "u2";
}

/// Ids are small, so the signed type of other programs holds them; "no target" is all ones, which is -1.
impl Number for u32 {
    const KIND: &'static str = "i4";
}

impl Number for f32 {
    const KIND: &'static str = "f4";
}

impl Number for bool {
    const KIND: &'static str = "b1";
}

impl Array {
    /// Numbers in row-major order, as many as the shape has.
    pub fn new<N: Number>(mut values: Vec<N>, shape: Vec<usize>) -> Self {
        debug_assert_eq!(values.len(), shape.iter().product::<usize>());
        let address = values.as_mut_ptr().expose_provenance();
        Self { _values: Box::new(values), shape, kind: N::KIND, address }
    }
}

#[pymethods]
impl Array {
    /// What NumPy asks for.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let order = if self.kind == bool::KIND { '|' } else { order };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", format!("{order}{}", self.kind))?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

/// Ids from the bytes of an array of 32-bit numbers.
pub fn ids(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|number| u32::from_ne_bytes(*number)).collect()
}

/// Weights from the bytes of an array of 32-bit numbers.
pub fn weights(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_ne_bytes(*number)).collect()
}
