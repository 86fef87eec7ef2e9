//! A command called from another program, instead of from a shell: what it would print is returned, and what a terminal would
//! show of its progress can be read while it runs.
//!
//! ```
//! let link = rung::CallerLink::default();
//! let answer = rung::call(["capacity", "full linear full", "--json"], &link)?;
//! assert!(answer.contains("\"rungs\": 2"));
//! assert!(rung::call(["capacity", "full full*"], &link).is_err());
//! # Ok::<(), String>(())
//! ```
//!
//! A call belongs to its thread: [`crate::output`] and [`crate::watch`] ask here whether there is one. Threads that the command
//! starts share what they were given.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{Cursor, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::{Arguments, provenance};

/// What a caller shares with a command while it runs.
#[derive(Clone, Debug, Default)]
pub struct CallerLink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    saves: AtomicBool,
    progress: Mutex<Option<String>>,
    input: Input,
    program: Option<PathBuf>,
}

/// What a command reads instead of standard input.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// What errors and reports call it.
    pub name: String,
    /// What is read.
    pub bytes: Vec<u8>,
}

impl CallerLink {
    /// `input` is what the command reads as standard input, `program` the path of the program `rung` for jobs that start it.
    pub fn new(input: Input, program: Option<PathBuf>) -> Self {
        Self(Arc::new(Shared { input, program, ..Shared::default() }))
    }

    /// Asks the command to save its work and end; [`CallerLink::saves`] says whether it can.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the command saves its work when it is asked to stop.
    pub fn saves(&self) -> bool {
        self.0.saves.load(Ordering::Relaxed)
    }

    /// The latest line of progress, if there is one that was not read before.
    pub fn progress(&self) -> Option<String> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leaves a line of progress to be read.
    pub(crate) fn show_progress(&self, line: String) {
        *self.0.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    pub(crate) fn stop_requested(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn set_saves(&self) {
        self.0.saves.store(true, Ordering::Relaxed);
    }

    /// The program that jobs start.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        self.0.program.clone()
    }
}

/// The call that a thread is in.
struct Call {
    link: CallerLink,
    output: Vec<u8>,
    errors: Vec<String>,
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

fn with_call<T>(act: impl FnOnce(&mut Call) -> T) -> Option<T> {
    CALL.with_borrow_mut(|call| call.as_mut().map(act))
}

/// The link of the call that this thread is in, if it is in one.
pub(crate) fn link() -> Option<CallerLink> {
    with_call(|call| call.link.clone())
}

/// Keeps an error for the caller; false if there is none.
pub(crate) fn keep_error(message: &str) -> bool {
    with_call(|call| call.errors.push(message.to_owned())).is_some()
}

/// Standard output, or the caller's.
pub(crate) fn output() -> Box<dyn Write> {
    if link().is_some() { Box::new(CallerOutput) } else { Box::new(std::io::stdout().lock()) }
}

/// Standard input, or what the caller gave instead.
pub(crate) fn input() -> Box<dyn Read> {
    match link() {
        Some(link) => Box::new(Cursor::new(link.0.input.bytes.clone())),
        None => Box::new(std::io::stdin().lock()),
    }
}

/// What standard input is called.
pub(crate) fn input_name() -> String {
    link().map_or_else(|| "stdin".to_owned(), |link| link.0.input.name.clone())
}

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

/// Runs a command on this thread and returns what it would print. The arguments are those after the program's name.
///
/// # Errors
/// What the program would write as errors. An answer of "no" (a certificate that is refused, say) is none.
pub fn call<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>, link: &CallerLink) -> Result<String, String> {
    let arguments = std::iter::once(OsString::from("rung")).chain(arguments.into_iter().map(Into::into));
    let arguments: Vec<OsString> = arguments.collect();
    let parsed = Arguments::command().try_get_matches_from(&arguments).and_then(|found| {
        provenance::remember(&arguments, &found);
        Arguments::from_arg_matches(&found)
    });
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return Err(crate::usage_error(&error)),
        Err(error) => return Ok(error.to_string()),
    };
    CALL.set(Some(Call { link: link.clone(), output: Vec::new(), errors: Vec::new() }));
    // Put back also when the command panics and the caller catches it.
    let _end = CallGuard;
    if let Err(error) = arguments.run() {
        keep_error(&crate::error_line(&error));
    }
    let call = CALL.take().unwrap_or_else(|| unreachable!("it was set above"));
    if call.errors.is_empty() {
        Ok(String::from_utf8_lossy(&call.output).into_owned())
    } else {
        Err(call.errors.join("\n"))
    }
}

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
    fn answers_errors_and_help_are_returned() {
        let link = CallerLink::default();
        assert!(call(["check", "-", "--json"], &link).unwrap().contains("malformed"));
        let error = call(["audit", "no-such-model"], &link).unwrap_err();
        assert!(error.contains("no-such-model"), "{error}");
        let error = call(["capacity"], &link).unwrap_err();
        assert!(error.starts_with("the following required arguments"), "{error}");
        assert!(call(["--version"], &link).unwrap().starts_with("rung "));
        assert!(call(["task", "sample", "parity", "--count", "3"], &link).unwrap().lines().count() == 3);
        assert!(super::link().is_none());
    }

    #[test]
    fn input_stands_for_standard_input() {
        let config = r#"{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "model_type": "llama"}"#;
        let link = CallerLink::new(Input { name: "mine".to_owned(), bytes: config.into() }, None);
        let answer: serde_json::Value = serde_json::from_str(&call(["audit", "-", "--json"], &link).unwrap()).unwrap();
        assert_eq!((answer["strip"].as_str(), answer["model"].as_str()), (Some("FF"), Some("mine")));
        assert!(call(["lint", "-", "--json"], &link).unwrap().contains("findings"));
        assert!(call(["plan", "-", "--engine", "vllm", "--json"], &link).unwrap().contains("vllm"));
    }
}
