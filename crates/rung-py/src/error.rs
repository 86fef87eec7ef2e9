//! Python exceptions for Rust errors and panics.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

mod python {
    pyo3::import_exception!(rung._errors, InputError);
    pyo3::import_exception!(rung._errors, RungError);
}

/// `rung.InputError`: an argument is invalid, or a file cannot be read or written.
pub fn input_error(error: impl Display) -> PyErr {
    python::InputError::new_err(error.to_string())
}

/// `rung.RungError` for a panic, which is a bug in Rung.
pub fn panic_error(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    python::RungError::new_err(format!("a bug in Rung, please report it: {}", text.unwrap_or("there is no message")))
}

/// Runs `work` without the interpreter's lock (GIL).
///
/// # Errors
/// An error of `work` becomes an `InputError`, a panic a `RungError`.
pub fn without_gil<T: Send, E: Display + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| panic_error(&*panic))?.map_err(input_error)
}
