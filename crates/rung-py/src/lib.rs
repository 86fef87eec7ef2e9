//! The Python module `rung._native`: a thin layer under the package in `python/rung`, which is what people import.
//!
//! - `call`: a command of the program, in this process, answered as text (`--json` by the package). So the module says what the
//!   program says, and cannot drift from it.
//! - `program`: the whole program, for the command `rung` of the wheel.
//! - `task`, `network`: what JSON would be too slow for, with arrays (`array`) that NumPy shows without a copy.
//!
//! Long work runs without the interpreter's lock. Panics become `RungError`.
// Arguments are made from Python's objects for the call; the libraries' errors become Python's at once.
#![allow(clippy::needless_pass_by_value, clippy::result_large_err)]

mod array;
mod call;
mod error;
mod network;
mod task;

/// The native half of `rung`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::call::{call, program};
    #[pymodule_export]
    use super::network::Network;
    #[pymodule_export]
    use super::task::Task;
    use pyo3::prelude::{Bound, PyModule, PyModuleMethods as _, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
