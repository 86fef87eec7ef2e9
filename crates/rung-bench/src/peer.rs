//! The other side: a Python process with PyTorch that does the same work on request.
//!
//! The script is `torch_step.py`, which is part of the binary, so that an installed one can compare itself too. It is
//! spoken to over pipes, one line each way, and asked in turns with our own measurements, so that both see the same machine in
//! the same state.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::BenchError;

const SCRIPT: &str = include_str!("torch_step.py");

/// A running peer.
pub struct TorchPeer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Its name and version.
    pub about: String,
}

/// Its times in milliseconds, and its peak memory in bytes if it knows.
pub type PeerTimes = (Vec<f64>, Option<u64>);

impl TorchPeer {
    /// Starts the first Python that has PyTorch: `$RUNG_PYTHON`, `python3` or `python` for `torch`, else the one given.
    ///
    /// # Errors
    /// None has.
    pub fn find(against: &str, threads: usize) -> Result<Self, BenchError> {
        let named = std::env::var("RUNG_PYTHON").ok().filter(|path| !path.is_empty());
        let candidates = match against {
            "torch" => named.into_iter().chain(["python3".to_owned(), "python".to_owned()]).collect(),
            path => vec![path.to_owned()],
        };
        let mut tried = Vec::new();
        for python in candidates {
            match Self::start(&python, threads) {
                Ok(peer) => return Ok(peer),
                Err(reason) => tried.push(format!("{python}: {reason}")),
            }
        }
        Err(BenchError::NoPython { tried: tried.join("; ") })
    }

    fn start(python: &str, threads: usize) -> Result<Self, String> {
        let mut process = Command::new(python)
            .args(["-c", SCRIPT, &threads.to_string()])
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
        let failed = |reason: String| BenchError::TorchPeer { work: work.to_owned(), reason };
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

impl Drop for TorchPeer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
