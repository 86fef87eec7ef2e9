//! The command-line program, with one file per command.
//!
//! [`run`] runs the program; [`call()`] runs one command for another program, such as the Python module.
//! Its [`CallContext`] carries the input, and lets the caller read progress and stop the command:
//!
//! ```
//! let context = rung::CallContext::default();
//! let audit = rung::call(["audit", "qwen3.5-9b", "--json"], &context)?;
//! assert!(audit.contains("\"rungs\": 8"));
//! let small = ["--heads", "1", "--head-dim", "8", "--bits", "4"];
//! let bound = rung::call([&["bound", "linear full", "--hops", "2"][..], &small].concat(), &context)?;
//! assert!(bound.contains("214 tokens"));
//! # Ok::<(), String>(())
//! ```
//!
//! Exit codes: 0 success (for `check`: the certificate is accepted), 1 a negative answer (for `check`: rejected), 2 bad input, 3 (for `audit`)
//! some layers are unknown, 130 interrupted with the work saved.

mod call;
mod command;
mod help;
mod logger;
mod output;
mod provenance;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

pub use call::{CallContext, CallInput, call};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use command::Command;

/// Count the dependent look-ups that an attention stack can do in one forward pass, and what they cost.
#[derive(Debug, Parser)]
#[command(name = "rung", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Log the steps of the command to standard error; -vv also logs every file.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Arguments {
    fn run(&self) -> anyhow::Result<ExitCode> {
        // An earlier command in the same process may have set a limit.
        rung_nn::memory::set_limit(None);
        logger::install(self.verbose)?;
        match &self.command {
            Some(command) => command.run(),
            None => output::print(&help::program_help(&Self::command())).map(|()| ExitCode::SUCCESS),
        }
    }

    fn parse_arguments(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let command = Self::command();
        let text = help::program_help(&command);
        let matches = command.override_help(text).try_get_matches_from(arguments)?;
        provenance::store_command_line(arguments, &matches);
        Self::from_arg_matches(&matches)
    }
}

/// Runs the program; the first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // `--json` is looked up before parsing, because errors of parsing follow it too.
    output::set_json_errors(arguments.iter().any(|argument| argument == "--json"));
    let arguments = match Arguments::parse_arguments(&arguments) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && output::json_errors() => {
            output::print_error(&usage_error(&error));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    arguments.run().unwrap_or_else(|error| {
        output::print_error(&error_line(&error));
        ExitCode::from(2)
    })
}

/// The message of an error of parsing the command line.
fn usage_error(error: &clap::Error) -> String {
    error.to_string().trim().trim_start_matches("error: ").to_owned()
}

/// An error and its causes in one line; a cause that the error before it already contains is not repeated.
fn error_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| {
        if line.contains(&cause) {
            line
        } else if line.is_empty() {
            cause
        } else {
            format!("{line}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context as _, anyhow};

    #[test]
    fn error_line_does_not_repeat_causes() {
        let error = Err::<(), _>(anyhow!("no such file")).context("a.json: no such file").context("--model");
        assert_eq!(error_line(&error.unwrap_err()), "--model: a.json: no such file");
    }
}
