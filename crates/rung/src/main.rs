//! The program `rung`: see the library of this package.

use std::process::ExitCode;

fn main() -> ExitCode {
    rung::run(std::env::args_os())
}
