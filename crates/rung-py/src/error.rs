//! Errors as Python sees them, and the border that no panic crosses.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

mod python {
    pyo3::import_exception!(rung._errors, InputError);
    pyo3::import_exception!(rung._errors, RungError);
}

/// `rung.InputError`: what was given makes no sense, or cannot be read or written.
pub fn input_error(error: impl Display) -> PyErr {
    python::InputError::new_err(error.to_string())
}

/// `rung.RungError` for a panic: a mistake of Rung's own.
pub fn panic_error(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    python::RungError::new_err(format!("a mistake in Rung, please report it: {}", text.unwrap_or("it stopped at once")))
}

/// Does work without the interpreter's lock.
///
/// # Errors
/// The work's own error as `InputError`, its panic as `RungError`.
pub fn without_lock<T: Send, E: Display + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| panic_error(&*panic))?.map_err(input_error)
}
