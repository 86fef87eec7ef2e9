//! Commands of the program, called from Python.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use rung::{CallerLink, Input};

use crate::error::{input_error, panic_error, without_lock};

/// The stack that main threads usually have.
const STACK: usize = 8 << 20;
/// Between two looks at signals and progress.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs a command and returns what it would print.
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
    let link = CallerLink::new(Input { name, bytes }, program);
    attend(py, &link.clone(), progress.as_ref(), move || rung::call(arguments, &link))
}

/// Does work on a thread of its own, so that this one can answer signals. At Ctrl-C a command that saves its work is asked to, and
/// waited for; a second Ctrl-C, or the first for any other command, leaves it to itself.
fn attend(
    py: Python<'_>,
    link: &CallerLink,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> PyResult<String> {
    let (sender, mut answers) = channel();
    let work = move || {
        // The receiver is gone if the caller has left; then nobody waits for the answer.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    };
    thread::Builder::new().name("rung".to_owned()).stack_size(STACK).spawn(work).map_err(input_error)?;
    let mut stopped: Option<PyErr> = None;
    loop {
        let answer;
        (answer, answers) = py.detach(move || (answers.recv_timeout(PAUSE), answers));
        match (answer, stopped.take()) {
            (Err(RecvTimeoutError::Timeout), earlier) => stopped = earlier,
            (_, Some(error)) => return Err(error),
            (Ok(Ok(result)), None) => return result.map_err(input_error),
            (Ok(Err(panic)), None) => return Err(panic_error(&*panic)),
            (Err(RecvTimeoutError::Disconnected), None) => return Err(panic_error(&"its thread is gone")),
        }
        let shown = match (progress, link.progress()) {
            (Some(progress), Some(state)) if stopped.is_none() => progress.call1((state,)).map(|_| ()),
            _ => Ok(()),
        };
        if let Err(error) = shown.and_then(|()| py.check_signals()) {
            link.stop();
            if !link.saves() || stopped.is_some() {
                return Err(error);
            }
            stopped = Some(error);
        }
    }
}

/// Panics, where commands run or where the libraries do: for the test that a panic arrives as `RungError`.
#[pyfunction]
pub fn panic(py: Python<'_>, message: String, in_command: bool) -> PyResult<String> {
    let work = move || -> Result<String, String> { panic!("{message}") };
    if in_command { attend(py, &CallerLink::default(), None, work) } else { without_lock(py, work) }
}

/// Runs the whole program and returns its exit code. The first argument is the program's own path.
#[pyfunction]
pub fn program(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let code =
        py.detach(|| catch_unwind(AssertUnwindSafe(|| rung::run(arguments)))).map_err(|panic| panic_error(&*panic))?;
    Ok((0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(u8::MAX))
}
