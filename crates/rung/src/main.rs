//! The command line: one file per command, each thin.
//!
//! Exit codes: 0 the question was answered (for `check`: accepted), 1 refused, 2 the input was bad, 3 (for `audit`) some of
//! the model is unknown, 130 interrupted with the work saved.

mod command;
mod help;
mod output;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use command::Command;

/// Count the dependent look-ups that an attention stack can do in one forward pass, and what they cost.
#[derive(Debug, Parser)]
#[command(name = "rung", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

impl Arguments {
    fn read() -> Result<Self, clap::Error> {
        let command = Self::command();
        let text = help::grouped(&command);
        Self::from_arg_matches(&command.override_help(text).try_get_matches()?)
    }
}

fn main() -> ExitCode {
    // Read before parsing, so that errors of the command line itself follow it too.
    output::set_json_errors(std::env::args().any(|argument| argument == "--json"));
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && output::json_errors() => {
            output::print_error(error.to_string().trim().trim_start_matches("error: "));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let result = match &arguments.command {
        Some(command) => command.run(),
        None => output::print(&help::grouped(&Arguments::command())).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        output::print_error(&error_line(&error));
        ExitCode::from(2)
    })
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
    fn no_cause_is_repeated() {
        let error = Err::<(), _>(anyhow!("no such file")).context("a.json: no such file").context("--model");
        assert_eq!(error_line(&error.unwrap_err()), "--model: a.json: no such file");
    }
}
