//! Runs commands of the program for Python.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use rung::{CallContext, CallInput};

use crate::error::{input_error, panic_error, without_gil};

/// Bytes of stack for the thread that runs a command: as many as main threads usually have.
const STACK_BYTES: usize = 8 << 20;
/// Time between two checks of signals and progress.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs a command and returns its output.
#[pyfunction]
#[pyo3(signature = (arguments, input=None, program=None, progress=None))]
pub fn call(
    py: Python<'_>,
    arguments: Vec<OsString>,
    input: Option<(String, Vec<u8>)>,
    program: Option<PathBuf>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let (name, bytes) = input.unwrap_or_default();
    let context = CallContext::new(CallInput { name, bytes }, program);
    run_with_signals(py, &context.clone(), progress.as_ref(), move || rung::call(arguments, &context))
}

/// Runs `work` on another thread, so that this one can handle signals. At Ctrl-C a command that can save its work is asked to stop, and this
/// waits for it; at a second Ctrl-C, or at the first for any other command, this returns while the thread runs on.
fn run_with_signals(
    py: Python<'_>,
    context: &CallContext,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> PyResult<String> {
    let (sender, mut answers) = channel();
    let work = move || {
        // Sending fails if the caller has already returned; the answer is then not needed.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    };
    thread::Builder::new().name("rung".to_owned()).stack_size(STACK_BYTES).spawn(work).map_err(input_error)?;
    let mut interrupt: Option<PyErr> = None;
    loop {
        let answer;
        (answer, answers) = py.detach(move || (answers.recv_timeout(POLL_INTERVAL), answers));
        match (answer, interrupt.take()) {
            (Err(RecvTimeoutError::Timeout), earlier) => interrupt = earlier,
            (_, Some(error)) => return Err(error),
            (Ok(Ok(result)), None) => return result.map_err(input_error),
            (Ok(Err(panic)), None) => return Err(panic_error(&*panic)),
            (Err(RecvTimeoutError::Disconnected), None) => {
                return Err(panic_error(&"its thread ended without a result"));
            }
        }
        let progress_result = match (progress, context.progress()) {
            (Some(progress), Some(state)) if interrupt.is_none() => progress.call1((state,)).map(|_| ()),
            _ => Ok(()),
        };
        if let Err(error) = progress_result.and_then(|()| py.check_signals()) {
            context.stop();
            if !context.saves_on_stop() || interrupt.is_some() {
                return Err(error);
            }
            interrupt = Some(error);
        }
    }
}

/// Panics in a command or in a library call, for the test that a panic becomes a `RungError`.
#[pyfunction]
pub fn panic_for_test(py: Python<'_>, message: String, in_command: bool) -> PyResult<String> {
    let work = move || -> Result<String, String> { panic!("{message}") };
    if in_command { run_with_signals(py, &CallContext::default(), None, work) } else { without_gil(py, work) }
}

/// Runs the whole program and returns its exit code. The first argument is the program's own path.
#[pyfunction]
pub fn program(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let code =
        py.detach(|| catch_unwind(AssertUnwindSafe(|| rung::run(arguments)))).map_err(|panic| panic_error(&*panic))?;
    Ok((0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(u8::MAX))
}
