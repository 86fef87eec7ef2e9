//! The other side: a Python process that does the same work on request.
//!
//! The scripts are `torch_step.py` and `checkpoint_peer.py`. They are part of the binary, so that an installed one can compare itself too. A
//! script is spoken to over pipes, one line each way, and its measurements are interleaved with ours, so that both see the same
//! machine in the same state.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::BenchError;

const TORCH_SCRIPT: &str = include_str!("torch_step.py");
const CHECKPOINT_SCRIPT: &str = include_str!("checkpoint_peer.py");

/// A running peer.
pub struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Its name and version.
    pub about: String,
}

/// Its times in milliseconds, and its peak memory in bytes if it knows.
pub type PeerTimes = (Vec<f64>, Option<u64>);

impl Peer {
    /// Starts the first Python that has PyTorch: `$RUNG_PYTHON`, `python3` or `python` for `torch`, else the one given.
    ///
    /// # Errors
    /// None has.
    pub fn find(against: &str, threads: usize) -> Result<Self, BenchError> {
        let candidates = if against == "torch" { pythons() } else { vec![against.to_owned()] };
        Self::first(&candidates, &["-c", TORCH_SCRIPT, &threads.to_string()])
            .map_err(|tried| BenchError::NoPython { tried })
    }

    /// Starts the first Python that has some software for checkpoints, on a checkpoint.
    ///
    /// # Errors
    /// None has, or the software cannot read the checkpoint.
    pub fn of_software(software: &str, checkpoint: &Path, threads: usize) -> Result<Self, BenchError> {
        let (threads, checkpoint) = (threads.to_string(), checkpoint.to_string_lossy());
        Self::first(&pythons(), &["-c", CHECKPOINT_SCRIPT, software, &threads, &checkpoint])
            .map_err(|tried| BenchError::NoSoftware { software: software.to_owned(), tried })
    }

    /// The first that starts, or what was tried.
    fn first(pythons: &[String], arguments: &[&str]) -> Result<Self, String> {
        let mut tried = Vec::new();
        for python in pythons {
            match Self::start(python, arguments) {
                Ok(peer) => return Ok(peer),
                Err(reason) => tried.push(format!("{python}: {reason}")),
            }
        }
        Err(tried.join("; "))
    }

    fn start(python: &str, arguments: &[&str]) -> Result<Self, String> {
        let mut process = Command::new(python)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (requests, answers) = pipes.ok_or("no pipes")?;
        let mut peer = Self { process, requests, answers: BufReader::new(answers), about: String::new() };
        let about = peer.line().map_err(|error| error.to_string())?;
        match about.strip_prefix("ready ") {
            Some(about) => about.clone_into(&mut peer.about),
            None if about.is_empty() => return Err("ended without an answer".to_owned()),
            None => return Err(about),
        }
        Ok(peer)
    }

    /// Asks for some work; none if the peer has no form of it.
    ///
    /// # Errors
    /// It has ended, or answers what cannot be understood.
    pub fn ask(&mut self, work: &str, times: usize) -> Result<Option<PeerTimes>, BenchError> {
        let failed = |reason: String| BenchError::Peer { work: work.to_owned(), reason };
        writeln!(self.requests, "{work} {times}").map_err(|error| failed(error.to_string()))?;
        let line = self.line().map_err(|error| failed(error.to_string()))?;
        if line == "none" {
            return Ok(None);
        }
        let mut words: Vec<&str> = line.split(' ').collect();
        let peak = words.pop().and_then(|word| word.parse().ok());
        let times: Result<Vec<f64>, _> = words.iter().map(|word| word.parse()).collect();
        match times {
            Ok(times) if !times.is_empty() => Ok(Some((times, peak))),
            _ => Err(failed(format!("it answered `{line}`"))),
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// Where a Python is looked for.
fn pythons() -> Vec<String> {
    let named = std::env::var("RUNG_PYTHON").ok().filter(|path| !path.is_empty());
    named.into_iter().chain(["python3".to_owned(), "python".to_owned()]).collect()
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
