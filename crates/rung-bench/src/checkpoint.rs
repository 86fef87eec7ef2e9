//! Prefill and decoding of an external checkpoint, here and in transformers and llama.cpp.
//!
//! All run the same token ids on the same number of threads. Their repetitions are interleaved, a few at a time, so that all see the
//! machine in the same state. All compute only the logits after the last token.
//!
//! | work | what is timed |
//! |---|---|
//! | prefill | a prompt of 512 tokens, all at once, into an empty cache |
//! | decode | one more token after that prompt, mean of eight consecutive tokens |

use std::path::Path;

use rung_nn::Network;
use rung_nn::families::decode::CheckpointDecoder;

use super::measure::{Times, time};
use super::peer::Peer;
use super::{BenchError, INTERLEAVE, WARM_UP};

/// Length of the prompt in tokens.
pub const PROMPT_TOKENS: usize = 512;
/// Tokens that are decoded per repetition.
const DECODE_TOKENS: usize = 8;

/// Other software that runs the same checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Hugging Face transformers in f32.
    Transformers,
    /// llama.cpp on the weights converted to F32.
    LlamaCppF32,
    /// llama.cpp on the GGUF file with the precision it has.
    LlamaCppAsStored,
}

impl Software {
    /// The name in `checkpoint_peer.py`.
    fn name(self) -> &'static str {
        match self {
            Self::Transformers => "transformers",
            Self::LlamaCppF32 => "llama.cpp-f32",
            Self::LlamaCppAsStored => "llama.cpp",
        }
    }

    /// Parses a list such as `transformers,llama.cpp`.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, BenchError> {
        let parse_name = |name: &str| match name.trim() {
            "transformers" => Ok(vec![Self::Transformers]),
            "llama.cpp" => Ok(vec![Self::LlamaCppF32, Self::LlamaCppAsStored]),
            other => Err(BenchError::Unknown {
                option: "--against",
                found: other.to_owned(),
                known: "transformers, llama.cpp".to_owned(),
            }),
        };
        Ok(text.split(',').map(parse_name).collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// The work that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A prompt in one forward pass.
    Prefill,
    /// One more token after a prompt.
    Decode,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 2] = [Self::Prefill, Self::Decode];

    /// The name in requests and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// How many tokens a time refers to.
    pub fn tokens(self) -> usize {
        match self {
            Self::Prefill => PROMPT_TOKENS,
            Self::Decode => 1,
        }
    }
}

impl Workload {
    /// Runs the work once; returns milliseconds, per token when decoding.
    pub(super) fn run(self, decoder: &mut CheckpointDecoder<'_>) -> Result<f64, BenchError> {
        // The same ids as in `checkpoint_peer.py`.
        let prompt: Vec<u32> = (0..PROMPT_TOKENS as u32).map(|index| 7 + index * 37 % 1000).collect();
        let mut outcome = Ok(());
        if self == Self::Prefill {
            decoder.clear();
            let elapsed = time(|| outcome = decoder.next_logits(&prompt).map(drop));
            return outcome.map(|()| elapsed).map_err(BenchError::from);
        }
        if !(PROMPT_TOKENS..2 * PROMPT_TOKENS).contains(&decoder.token_count()) {
            decoder.clear();
            decoder.next_logits(&prompt)?;
        }
        let elapsed = time(|| {
            outcome = (0..DECODE_TOKENS as u32).try_for_each(|token| decoder.next_logits(&[9 + token]).map(drop));
        });
        outcome.map(|()| elapsed / DECODE_TOKENS as f64).map_err(BenchError::from)
    }

    /// Forward passes per run.
    pub(super) fn passes(self) -> usize {
        match self {
            Self::Prefill => 1,
            Self::Decode => DECODE_TOKENS,
        }
    }
}

/// The times of one software.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftwareTimes {
    /// Name and version.
    pub name_and_version: String,
    /// Milliseconds; per token when decoding.
    pub times: Times,
    /// The median time over ours; `None` for rung itself.
    pub ratio: Option<f64>,
    /// The fastest time over ours, which other work on the machine affects least.
    pub ratio_of_fastest: Option<f64>,
}

/// A benchmark of a checkpoint, and the other software that runs it.
pub struct CheckpointBench {
    checkpoint: Network<f32>,
    threads: usize,
    repetitions: usize,
    peers: Vec<Peer>,
}

impl CheckpointBench {
    /// Opens a checkpoint here and in other software.
    ///
    /// # Errors
    /// The checkpoint cannot be read, or no Python has the software.
    pub fn new(path: &Path, threads: usize, repetitions: usize, against: &[Software]) -> Result<Self, BenchError> {
        let checkpoint = Network::open(path).map_err(Box::new)?;
        let start = |software: &Software| Peer::start_checkpoint_software(software.name(), path, threads);
        let peers = against.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { checkpoint, threads, repetitions, peers })
    }

    /// Measures a workload: our times first, then those of the other software in order.
    ///
    /// # Errors
    /// A peer fails, or the vocabulary has fewer than a thousand tokens.
    pub fn measure(&mut self, workload: Workload) -> Result<Vec<SoftwareTimes>, BenchError> {
        let mut decoder = CheckpointDecoder::new(&self.checkpoint.model, &self.checkpoint.weights, self.threads);
        let mut run = || workload.run(&mut decoder);
        let request = format!("{} {PROMPT_TOKENS}", workload.name());
        for _ in 0..WARM_UP {
            run()?;
        }
        for peer in &mut self.peers {
            peer.measure(&request, WARM_UP)?;
        }
        let (mut ours, mut theirs) = (Times::default(), vec![Times::default(); self.peers.len()]);
        while ours.count() < self.repetitions {
            let count = INTERLEAVE.min(self.repetitions - ours.count());
            for _ in 0..count {
                ours.extend([run()?]);
            }
            for (peer, times) in self.peers.iter_mut().zip(&mut theirs) {
                if let Some((peer_times, _)) = peer.measure(&request, count)? {
                    times.extend(peer_times);
                }
            }
        }
        let compare = |(peer, times): (&Peer, Times)| SoftwareTimes {
            name_and_version: peer.name_and_version.clone(),
            ratio: Some(times.median() / ours.median()),
            ratio_of_fastest: Some(times.fastest() / ours.fastest()),
            times,
        };
        let others: Vec<SoftwareTimes> = self.peers.iter().zip(theirs).map(compare).collect();
        let name_and_version = format!("rung {}, f32", env!("CARGO_PKG_VERSION"));
        let our_times = SoftwareTimes { name_and_version, times: ours, ratio: None, ratio_of_fastest: None };
        Ok(std::iter::once(our_times).chain(others).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_list_accepts_known_software_only() {
        let expected = [Software::Transformers, Software::LlamaCppF32, Software::LlamaCppAsStored];
        assert_eq!(Software::parse_list("transformers,llama.cpp").unwrap(), expected);
        let error = Software::parse_list("torch").unwrap_err().to_string();
        assert!(error.contains("--against: found `torch`, expected one of transformers, llama.cpp"), "{error}");
    }
}
