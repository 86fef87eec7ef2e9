//! Functions that the tests of the program share.
#![allow(dead_code, reason = "each test program uses only some of them")]

pub mod documents;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A command of the program, with empty standard input.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command of the program to its end.
pub fn rung(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Asserts that a command fails with exit code 2, an error message that contains `expected`, and empty standard output.
pub fn assert_fails(arguments: &[&str], expected: &str) {
    let output = rung(arguments);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {out}{error}");
    assert!(error.contains(expected) && !error.contains("panicked") && out.is_empty(), "{arguments:?}: {out}{error}");
}

/// An empty directory with this name, for one test.
pub fn scratch_directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path.canonicalize().unwrap()
}

/// A path as a command-line argument.
pub fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The JSON output of a command that succeeds.
pub fn json(arguments: &[&str]) -> serde_json::Value {
    let output = rung(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Standard output and standard error of a command.
pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The text of every record of a sweep, by the name of its run; empty if the directory does not exist.
pub fn records(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let record = |entry: std::fs::DirEntry| {
        let record = std::fs::read_to_string(entry.path().join("record.json")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), record))
    };
    entries.filter_map(record).collect()
}

/// A sweep of small runs, one for each stack and each seed from 1 to `seeds`, with `evaluations` checkpoints per run.
pub struct SmallSweep {
    pub seeds: u64,
    pub steps: usize,
    pub evaluations: usize,
    pub stacks: &'static [&'static str],
}

impl SmallSweep {
    /// Writes the sweep's config file into a directory.
    pub fn write(&self, directory: &Path) -> PathBuf {
        let Self { seeds, steps, evaluations, stacks } = self;
        let seeds: Vec<u64> = (1..=*seeds).collect();
        let config = format!(
            "seeds = {seeds:?}\n[base]\ntask = 'funccomp{{hops=1,m=6,queries=4}}'\n\
             [base.model]\nheads = 2\nhead = 8\n[base.train]\nsteps = {steps}\nbatch = 4\n\
             [base.evaluate]\nevery = {}\nprompts = 8\nlast = 16\nstop_at = 2.0\n[grid]\nstack = {stacks:?}\n",
            steps / evaluations
        );
        let path = directory.join("sweep.toml");
        std::fs::write(&path, config).unwrap();
        path
    }
}

/// A linear congruential generator: the same numbers in every run.
pub struct Lcg(pub u64);

impl Lcg {
    /// A number below `end`.
    pub fn random_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}
