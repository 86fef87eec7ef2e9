//! A peer: a Python process that runs the same work in other software and reports its times.
//!
//! The scripts, `torch_step.py`, `jax_step.py` and `checkpoint_peer.py`, each with `peer_protocol.py` prepended, are part of the binary, so that an
//! installed program can run them too.
//! Requests and answers are single lines over pipes. The measurements are interleaved with ours, so that both sides see the
//! machine in the same state.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::BenchError;

const TORCH_SCRIPT: &str = concat!(include_str!("peer_protocol.py"), include_str!("torch_step.py"));
const JAX_SCRIPT: &str = concat!(include_str!("peer_protocol.py"), include_str!("jax_step.py"));
const CHECKPOINT_SCRIPT: &str = concat!(include_str!("peer_protocol.py"), include_str!("checkpoint_peer.py"));

/// A running Python process that measures the same work in other software.
pub struct Peer {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The software that the peer measures, with its version.
    pub name_and_version: String,
}

/// Times of all repetitions in milliseconds, and the peak memory in bytes where the system reports it.
pub type PeerTimes = (Vec<f64>, Option<u64>);

impl Peer {
    /// Starts the peers that a list such as `torch,jax` names. `torch` is two peers, eager and compiled; a path is that of a Python with
    /// PyTorch. Otherwise `$RUNG_PYTHON`, `python3` and `python` are tried.
    ///
    /// # Errors
    /// No Python has the module.
    pub fn start_trainers(list: &str, threads: usize) -> Result<Vec<Self>, BenchError> {
        let threads = threads.to_string();
        let start = |module: &'static str, pythons: &[String], arguments: &[&str]| {
            Self::start_first(pythons, arguments).map_err(|tried| BenchError::NoPython { module, tried })
        };
        let mut peers = Vec::new();
        for name in list.split(',').map(str::trim) {
            if name == "jax" {
                peers.push(start("jax", &default_pythons(), &["-c", JAX_SCRIPT, &threads])?);
                continue;
            }
            let pythons = if name == "torch" { default_pythons() } else { vec![name.to_owned()] };
            for mode in ["eager", "compile"] {
                peers.push(start("torch", &pythons, &["-c", TORCH_SCRIPT, &threads, mode])?);
            }
        }
        Ok(peers)
    }

    /// Starts the first Python that has `software` (transformers or llama.cpp), which loads the checkpoint.
    ///
    /// # Errors
    /// No Python has the software, or it cannot read the checkpoint.
    pub fn start_checkpoint_software(software: &str, checkpoint: &Path, threads: usize) -> Result<Self, BenchError> {
        let (threads, checkpoint) = (threads.to_string(), checkpoint.to_string_lossy());
        Self::start_first(&default_pythons(), &["-c", CHECKPOINT_SCRIPT, software, &threads, &checkpoint])
            .map_err(|tried| BenchError::NoSoftware { software: software.to_owned(), tried })
    }

    /// The first peer that starts, or the reason why each Python failed.
    fn start_first(pythons: &[String], arguments: &[&str]) -> Result<Self, String> {
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
        let answers = BufReader::new(answers);
        let mut peer = Self { process, requests, answers, name_and_version: String::new() };
        let first_line = peer.read_line().map_err(|error| error.to_string())?;
        match first_line.strip_prefix("ready ") {
            Some(name_and_version) => name_and_version.clone_into(&mut peer.name_and_version),
            None if first_line.is_empty() => return Err("ended without an answer".to_owned()),
            None => return Err(first_line),
        }
        Ok(peer)
    }

    /// Requests times of some work from the peer; `None` if the peer does not implement it.
    ///
    /// # Errors
    /// The process has ended, or its answer cannot be parsed.
    pub fn measure(&mut self, work: &str, repetitions: usize) -> Result<Option<PeerTimes>, BenchError> {
        let peer_error = |reason: String| BenchError::Peer { work: work.to_owned(), reason };
        writeln!(self.requests, "{work} {repetitions}").map_err(|error| peer_error(error.to_string()))?;
        let line = self.read_line().map_err(|error| peer_error(error.to_string()))?;
        if line == "none" {
            return Ok(None);
        }
        let mut words: Vec<&str> = line.split(' ').collect();
        let peak = words.pop().and_then(|word| word.parse().ok());
        let times: Result<Vec<f64>, _> = words.iter().map(|word| word.parse()).collect();
        match times {
            Ok(times) if !times.is_empty() => Ok(Some((times, peak))),
            _ => Err(peer_error(format!("it answered `{line}`"))),
        }
    }

    fn read_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// The Pythons that are tried, in order.
fn default_pythons() -> Vec<String> {
    let from_environment = std::env::var("RUNG_PYTHON").ok().filter(|path| !path.is_empty());
    from_environment.into_iter().chain(["python3".to_owned(), "python".to_owned()]).collect()
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail if the process has already ended, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
