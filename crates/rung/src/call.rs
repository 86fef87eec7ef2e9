//! Runs a command for another program instead of a shell: its output is returned as text, and its progress can be read while it runs.
//!
//! ```
//! let context = rung::CallContext::default();
//! let answer = rung::call(["capacity", "full linear full", "--json"], &context)?;
//! assert!(answer.contains("\"rungs\": 2"));
//! assert!(rung::call(["capacity", "full full*"], &context).is_err());
//! # Ok::<(), String>(())
//! ```
//!
//! A call is stored in a thread-local variable: [`crate::output`] and [`crate::watch`] look here whether the command runs in a call. Threads
//! that the command starts are not in the call; they share only the context.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::{Arguments, provenance};

/// State that a caller shares with a command while it runs: requests to stop, progress, and the input.
#[derive(Clone, Debug, Default)]
pub struct CallContext(Arc<CallState>);

#[derive(Debug, Default)]
struct CallState {
    stop_requested: AtomicBool,
    /// Whether the command saves its work when it is stopped.
    saves_on_stop: AtomicBool,
    /// The latest line of progress that was not read yet.
    progress: Mutex<Option<String>>,
    input: CallInput,
    /// Path of the program `rung`, for jobs that start it.
    executable: Option<PathBuf>,
}

/// Input of a command in place of standard input.
#[derive(Clone, Debug, Default)]
pub struct CallInput {
    /// Name of the input in errors and reports.
    pub name: String,
    /// Contents of the input.
    pub bytes: Vec<u8>,
}

impl CallContext {
    /// A context with an input in place of standard input, and the path of the program `rung` for jobs that start it.
    pub fn new(input: CallInput, executable: Option<PathBuf>) -> Self {
        Self(Arc::new(CallState { input, executable, ..CallState::default() }))
    }

    /// Asks the command to save its work and end; [`CallContext::saves_on_stop`] says whether it can.
    pub fn stop(&self) {
        self.0.stop_requested.store(true, Ordering::Relaxed);
    }

    /// Whether the command saves its work when it is asked to stop.
    pub fn saves_on_stop(&self) -> bool {
        self.0.saves_on_stop.load(Ordering::Relaxed)
    }

    /// Takes the latest line of progress; none if it was taken before.
    pub fn progress(&self) -> Option<String> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sets the line of progress for the caller to read.
    pub(crate) fn show_progress(&self, line: String) {
        *self.0.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    pub(crate) fn stop_requested(&self) -> bool {
        self.0.stop_requested.load(Ordering::Relaxed)
    }

    pub(crate) fn set_saves_on_stop(&self) {
        self.0.saves_on_stop.store(true, Ordering::Relaxed);
    }

    /// Path of the program `rung`, for jobs that start it.
    pub(crate) fn executable(&self) -> Option<PathBuf> {
        self.0.executable.clone()
    }
}

/// A running call: its context, output and errors.
struct Call {
    context: CallContext,
    output: Vec<u8>,
    errors: Vec<String>,
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// Applies a function to the call that this thread is in, if it is in one.
fn with_call<T>(apply: impl FnOnce(&mut Call) -> T) -> Option<T> {
    CALL.with_borrow_mut(|call| call.as_mut().map(apply))
}

/// The context of the call that this thread is in, if it is in one.
pub(crate) fn context() -> Option<CallContext> {
    with_call(|call| call.context.clone())
}

/// Adds an error to the call; false if this thread is in no call.
pub(crate) fn add_error(message: &str) -> bool {
    with_call(|call| call.errors.push(message.to_owned())).is_some()
}

/// Standard output, or in a call the text that is returned.
pub(crate) fn output() -> Box<dyn Write> {
    if context().is_some() { Box::new(CallerOutput) } else { Box::new(std::io::stdout().lock()) }
}

/// Standard input, or in a call the input of its context.
pub(crate) fn input() -> Box<dyn Read> {
    match context() {
        Some(context) => Box::new(Cursor::new(context.0.input.bytes.clone())),
        None => Box::new(std::io::stdin().lock()),
    }
}

/// Name of the input in errors and reports.
pub(crate) fn input_name() -> String {
    context().map_or_else(|| "stdin".to_owned(), |context| context.0.input.name.clone())
}

/// Appends to the output of this thread's call.
struct CallerOutput;

impl Write for CallerOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        with_call(|call| call.output.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a command on this thread and returns its output. The arguments are those after the program's name.
///
/// # Errors
/// The command failed; the error is its error messages. A negative answer, such as a rejected certificate, is not an error.
pub fn call<A: Into<OsString>>(
    arguments: impl IntoIterator<Item = A>,
    context: &CallContext,
) -> Result<String, String> {
    let arguments = std::iter::once(OsString::from("rung")).chain(arguments.into_iter().map(Into::into));
    let arguments: Vec<OsString> = arguments.collect();
    let parsed = Arguments::command().try_get_matches_from(&arguments).and_then(|matches| {
        provenance::store_command_line(&arguments, &matches);
        Arguments::from_arg_matches(&matches)
    });
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return Err(crate::usage_error(&error)),
        Err(error) => return Ok(error.to_string()),
    };
    CALL.set(Some(Call { context: context.clone(), output: Vec::new(), errors: Vec::new() }));
    // The guard ends the call also when the command panics and the caller catches the panic.
    let _guard = CallGuard;
    if let Err(error) = arguments.run() {
        add_error(&crate::error_line(&error));
    }
    let call = CALL.take().unwrap_or_else(|| unreachable!("it was set above"));
    if call.errors.is_empty() {
        Ok(String::from_utf8_lossy(&call.output).into_owned())
    } else {
        Err(call.errors.join("\n"))
    }
}

/// Ends this thread's call when it is dropped.
struct CallGuard;

impl Drop for CallGuard {
    fn drop(&mut self) {
        CALL.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_returns_answers_errors_and_help() {
        let context = CallContext::default();
        assert!(call(["check", "-", "--json"], &context).unwrap().contains("malformed"));
        let error = call(["audit", "no-such-model"], &context).unwrap_err();
        assert!(error.contains("no-such-model"), "{error}");
        let error = call(["capacity"], &context).unwrap_err();
        assert!(error.starts_with("the following required arguments"), "{error}");
        assert!(call(["--version"], &context).unwrap().starts_with("rung "));
        assert!(call(["task", "sample", "parity", "--count", "3"], &context).unwrap().lines().count() == 3);
        assert!(super::context().is_none());
    }

    #[test]
    fn input_of_the_link_replaces_standard_input() {
        let config = r#"{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "model_type": "llama"}"#;
        let context = CallContext::new(CallInput { name: "mine".to_owned(), bytes: config.into() }, None);
        let answer: serde_json::Value =
            serde_json::from_str(&call(["audit", "-", "--json"], &context).unwrap()).unwrap();
        assert_eq!((answer["strip"].as_str(), answer["model"].as_str()), (Some("FF"), Some("mine")));
        assert!(call(["lint", "-", "--json"], &context).unwrap().contains("findings"));
        assert!(call(["plan", "-", "--engine", "vllm", "--json"], &context).unwrap().contains("vllm"));
    }
}
