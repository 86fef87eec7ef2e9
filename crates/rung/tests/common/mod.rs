//! What the tests of the program share.
#![allow(dead_code, reason = "each test program uses some of it")]

pub mod documents;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program, with nothing on its standard input.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn rung(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Fails with exit code 2 and a message that contains `expected`; nothing on standard output.
pub fn fails(arguments: &[&str], expected: &str) {
    let output = rung(arguments);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {out}{error}");
    assert!(error.contains(expected) && !error.contains("panicked") && out.is_empty(), "{arguments:?}: {out}{error}");
}

/// A directory of its own for each test.
pub fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path.canonicalize().unwrap()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
