//! A checkpoint of another program, here and in transformers and llama.cpp: a prompt at once, and one token after another.
//!
//! All sides are given the same token ids and the same number of threads. They take turns, a few repetitions each, so that all see the machine in the
//! same state. Only the logits after the last token are computed, on every side.
//!
//! | work | what is timed |
//! |---|---|
//! | prefill | a prompt of 512 tokens, all at once, into an empty cache |
//! | decode | one more token after that prompt, mean of eight in a row |

use std::path::Path;

use rung_nn::families::decode::CheckpointDecoder;
use rung_nn::families::{self, Checkpoint};

use super::measure::{Times, time};
use super::peer::Peer;
use super::{BenchError, INTERLEAVE, WARM_UP};

/// Tokens of the prompt.
pub const PROMPT: usize = 512;
/// Tokens that are decoded in a repetition.
const DECODED: usize = 8;

/// Other software that runs the same checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Hugging Face transformers in f32.
    Transformers,
    /// llama.cpp on the weights written as F32.
    LlamaCppSingle,
    /// llama.cpp on the GGUF file as it is.
    LlamaCppStored,
}

impl Software {
    /// What the peer's script calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Transformers => "transformers",
            Self::LlamaCppSingle => "llama.cpp-f32",
            Self::LlamaCppStored => "llama.cpp",
        }
    }

    /// The software that a list such as `transformers,llama.cpp` names.
    ///
    /// # Errors
    /// There is no such software.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, BenchError> {
        let one = |name: &str| match name.trim() {
            "transformers" => Ok(vec![Self::Transformers]),
            "llama.cpp" => Ok(vec![Self::LlamaCppSingle, Self::LlamaCppStored]),
            other => Err(BenchError::Unknown {
                option: "--against",
                found: other.to_owned(),
                known: "transformers, llama.cpp".to_owned(),
            }),
        };
        Ok(text.split(',').map(one).collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A prompt at once.
    Prefill,
    /// One more token.
    Decode,
}

impl Workload {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Prefill, Self::Decode];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// Tokens of a time.
    pub fn tokens(self) -> usize {
        match self {
            Self::Prefill => PROMPT,
            Self::Decode => 1,
        }
    }
}

impl Workload {
    /// Does it once: milliseconds, of one token when decoding.
    pub(super) fn run(self, decoder: &mut CheckpointDecoder<'_>) -> Result<f64, BenchError> {
        // The same ids as in the peer's script.
        let prompt: Vec<u32> = (0..PROMPT as u32).map(|index| 7 + index * 37 % 1000).collect();
        let mut outcome = Ok(());
        if self == Self::Prefill {
            decoder.clear();
            let taken = time(|| outcome = decoder.next_logits(&prompt).map(drop));
            return outcome.map(|()| taken).map_err(BenchError::from);
        }
        if !(PROMPT..2 * PROMPT).contains(&decoder.seen()) {
            decoder.clear();
            decoder.next_logits(&prompt)?;
        }
        let taken = time(|| {
            outcome = (0..DECODED as u32).try_for_each(|token| decoder.next_logits(&[9 + token]).map(drop));
        });
        outcome.map(|()| taken / DECODED as f64).map_err(BenchError::from)
    }

    /// Passes of a run.
    pub(super) fn passes(self) -> usize {
        match self {
            Self::Prefill => 1,
            Self::Decode => DECODED,
        }
    }
}

/// The times of one side.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftwareTimes {
    /// Software and version.
    pub about: String,
    /// Milliseconds; of one token, when decoding.
    pub times: Times,
    /// Their median time over ours; none for our own side.
    pub ratio: Option<f64>,
    /// The same of the fastest times, which other work on the machine disturbs least.
    pub ratio_of_fastest: Option<f64>,
}

/// A checkpoint and the software that it is measured beside.
pub struct CheckpointBench {
    checkpoint: Checkpoint<f32>,
    threads: usize,
    repetitions: usize,
    peers: Vec<Peer>,
}

impl CheckpointBench {
    /// Opens a checkpoint here and in other software.
    ///
    /// # Errors
    /// It cannot be read, or no Python has the software.
    pub fn new(path: &Path, threads: usize, repetitions: usize, against: &[Software]) -> Result<Self, BenchError> {
        let checkpoint = families::open(path).map_err(Box::new)?;
        let start = |software: &Software| Peer::of_software(software.name(), path, threads);
        let peers = against.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { checkpoint, threads, repetitions, peers })
    }

    /// Measures one kind of work: our side first, then the others as they were named.
    ///
    /// # Errors
    /// A peer fails, or the model has fewer than a thousand tokens.
    pub fn measure(&mut self, work: Workload) -> Result<Vec<SoftwareTimes>, BenchError> {
        let mut decoder = CheckpointDecoder::new(&self.checkpoint.model, &self.checkpoint.weights, self.threads);
        let mut run = || work.run(&mut decoder);
        let request = format!("{} {PROMPT}", work.name());
        for _ in 0..WARM_UP {
            run()?;
        }
        for peer in &mut self.peers {
            peer.ask(&request, WARM_UP)?;
        }
        let (mut ours, mut theirs) = (Times::default(), vec![Times::default(); self.peers.len()]);
        while ours.count() < self.repetitions {
            let turn = INTERLEAVE.min(self.repetitions - ours.count());
            for _ in 0..turn {
                ours.extend([run()?]);
            }
            for (peer, times) in self.peers.iter_mut().zip(&mut theirs) {
                if let Some((more, _)) = peer.ask(&request, turn)? {
                    times.extend(more);
                }
            }
        }
        let side = |(peer, times): (&Peer, Times)| SoftwareTimes {
            about: peer.about.clone(),
            ratio: Some(times.median() / ours.median()),
            ratio_of_fastest: Some(times.fastest() / ours.fastest()),
            times,
        };
        let others: Vec<SoftwareTimes> = self.peers.iter().zip(theirs).map(side).collect();
        let about = format!("rung {}, f32", env!("CARGO_PKG_VERSION"));
        let own = SoftwareTimes { about, times: ours, ratio: None, ratio_of_fastest: None };
        Ok(std::iter::once(own).chain(others).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_software_are_read() {
        let both = [Software::Transformers, Software::LlamaCppSingle, Software::LlamaCppStored];
        assert_eq!(Software::parse_list("transformers,llama.cpp").unwrap(), both);
        let error = Software::parse_list("torch").unwrap_err().to_string();
        assert!(error.contains("--against: found `torch`, expected one of transformers, llama.cpp"), "{error}");
    }
}
