//! The command line: one file per command, each thin.
//!
//! Exit codes: 0 the question was answered (for `check`: accepted), 1 refused, 2 the input was bad, 3 (for `audit`) some of
//! the model is unknown, 130 interrupted with the work saved.

mod command;
mod output;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use command::Command;

/// What `--help` says of devices.
const CARDS: &str = "Models run on the processor. Builds with the feature cuda, rocm, metal, vulkan, webgpu or wgpu also have \
    `rung eval --device` of that name; no graphics card was at hand to try it.";

/// How many steps of reasoning an attention stack can climb in one forward pass — proved, constructed or measured — and
/// what that costs.
#[derive(Debug, Parser)]
#[command(name = "rung", version, max_term_width = 110, after_help = CARDS)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // Asked before parsing, so that errors of the command line itself follow it too.
    output::set_json_errors(std::env::args().any(|argument| argument == "--json"));
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && output::json_errors() => {
            output::print_error(error.to_string().trim().trim_start_matches("error: "));
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    match arguments.command.run() {
        Ok(code) => code,
        Err(error) => {
            output::print_error(&told(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes in one line; a cause that the error before it already tells is not told again.
fn told(error: &anyhow::Error) -> String {
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

    /// Commands without subcommands that lack `--json`.
    fn without_json(command: &clap::Command, place: &str) -> Vec<String> {
        let place = format!("{place} {}", command.get_name());
        if command.has_subcommands() {
            return command.get_subcommands().flat_map(|inner| without_json(inner, &place)).collect();
        }
        let has = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
        if has { Vec::new() } else { vec![place] }
    }

    #[test]
    fn every_command_takes_json() {
        assert_eq!(without_json(&<Arguments as clap::CommandFactory>::command(), ""), Vec::<String>::new());
    }

    #[test]
    fn no_cause_is_told_twice() {
        let error = Err::<(), _>(anyhow!("no such file")).context("a.json: no such file").context("--model");
        assert_eq!(told(&error.unwrap_err()), "--model: a.json: no such file");
    }
}
