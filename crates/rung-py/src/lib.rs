//! The Python module `rung._native`: a thin layer under the package in `python/rung`, which users import.
//!
//! - `call`: runs a command of the program in this process and returns its output (the package adds `--json`). So the package and
//!   the program give the same answers.
//! - `program`: runs the whole program, for the command `rung` of the wheel.
//! - `panic_for_test`: panics, so that a test can check that Python gets a `RungError`.
//! - `task`, `network`: functions for which JSON would be too slow, with arrays (`array`) that NumPy uses without a copy.
//!
//! ```python
//! import rung
//! audit = rung.audit("qwen3.5-9b")
//! assert audit.rungs == 8 and audit.what_if("every=8").rungs == 4
//! assert rung.bound("linear full", hops=2, heads=1, head_dim=8, bits=4).tokens == 214
//! batch = rung.task("mqar").sample(1000, seed=7)   # NumPy arrays
//! ```
//!
//! Long work runs without the interpreter's lock. Panics become `RungError`.
// PyO3 passes arguments by value, and the libraries' large errors are converted to Python's immediately.
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
    use super::call::{call, panic_for_test, program};
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
