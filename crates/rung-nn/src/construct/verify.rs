//! Verification: a construction against the oracle of its task.
//!
//! Every instance where they can be enumerated, or random ones. Threads take instances in chunks; a chunk's
//! samples depend on the seed and its number only, so the result does not depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rung_engine::Scalar;
use rung_theory::task::{NO_TARGET, OracleError, Prompt, seeded};
use serde::Serialize;

use super::answer::Answerer;
use crate::error::ModelError;
use crate::memory::TooLarge;
use crate::network::Network;

/// The most instances that are enumerated.
pub const MAX_EXHAUSTIVE: u128 = 10_000_000;

/// The instances to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceSet {
    /// Every instance of the task.
    All,
    /// Random instances.
    Samples {
        /// How many.
        count: u64,
        /// The seed.
        seed: u64,
    },
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Instances run.
    pub instances: u64,
    /// Those with every question answered right.
    pub correct: u64,
    /// Whether they are all there are.
    pub exhaustive: bool,
    /// Layers of the network.
    pub layers: usize,
    /// Tokens of a prompt.
    pub tokens: usize,
    /// A wrong answer, if there was one: the first of the lowest chunk.
    pub wrong: Option<WrongAnswer>,
}

/// One wrong answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrongAnswer {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// The position asked at.
    pub position: usize,
    /// What the oracle says.
    pub expected: u32,
    /// What the network says.
    pub found: u32,
}

/// Why a verification could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Too many instances to enumerate.
    #[error("{found} instances; at most {most} are gone through one by one, so ask for samples")]
    TooMany {
        /// How many there are.
        found: String,
        /// How many there may be.
        most: u128,
    },
    /// The prompts do not fit the memory.
    #[error(transparent)]
    Memory(#[from] TooLarge),
    /// The network refused the tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The oracle refused the tokens.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// Instances per chunk.
const CHUNK: u64 = 512;

/// Limit on the numbers in the largest activation of a batch.
const MAX_ACTIVATION: usize = 1 << 20;

/// Runs a construction on instances of its task. `progress` is called with the size of every finished chunk.
///
/// # Errors
/// There are too many instances to enumerate, or network and task do not fit each other.
#[inline(never)]
pub fn verify<S: Scalar>(
    network: &Network<S>,
    which: InstanceSet,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Verification, VerifyError> {
    let task = network.task()?;
    let instances = match which {
        InstanceSet::Samples { count, .. } => count,
        InstanceSet::All => match task.instances() {
            Some(count) if count <= MAX_EXHAUSTIVE => count as u64,
            count => {
                let found = count.map_or_else(|| "more than can be counted off".to_owned(), |count| count.to_string());
                return Err(VerifyError::TooMany { found, most: MAX_EXHAUSTIVE });
            }
        },
    };
    let answerer = Answerer::new(network);
    let (tokens, threads) = (task.length(), threads.max(1));
    let batch = batch_size(&answerer, tokens, CHUNK.min(instances));
    answerer.check_memory((batch * threads, tokens))?;
    drop(answerer);
    let run = Run { network, which, instances, next: AtomicU64::new(0), stop: AtomicBool::new(false), progress };
    let total = Mutex::new(Ok(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let tally = run.work();
                run.stop.fetch_or(tally.is_err(), Ordering::Relaxed);
                let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match (&mut *total, tally) {
                    (Ok(total), Ok(tally)) => total.add(tally),
                    (Ok(_), Err(error)) => *total = Err(error),
                    (Err(_), _) => {}
                }
            });
        }
    });
    let tally = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    Ok(Verification {
        instances,
        correct: tally.correct,
        exhaustive: which == InstanceSet::All,
        layers: network.model.depth(),
        tokens: task.length(),
        wrong: tally.wrong.map(|(_, wrong)| wrong),
    })
}

struct Run<'a, S: Scalar> {
    network: &'a Network<S>,
    which: InstanceSet,
    instances: u64,
    next: AtomicU64,
    stop: AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
}

#[derive(Default)]
struct Tally {
    correct: u64,
    /// With the chunk it was met in.
    wrong: Option<(u64, WrongAnswer)>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.correct += other.correct;
        if let Some((chunk, wrong)) = other.wrong {
            self.keep(chunk, wrong);
        }
    }

    fn keep(&mut self, chunk: u64, wrong: WrongAnswer) {
        if self.wrong.as_ref().is_none_or(|(first, _)| chunk < *first) {
            self.wrong = Some((chunk, wrong));
        }
    }
}

impl<S: Scalar> Run<'_, S> {
    /// One thread's share: chunk after chunk until there are none.
    fn work(&self) -> Result<Tally, VerifyError> {
        let mut answerer = Answerer::new(self.network);
        let mut tally = Tally::default();
        let mut prompt = Prompt::new();
        while !self.stop.load(Ordering::Relaxed) {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            let first = chunk * CHUNK;
            if first >= self.instances {
                break;
            }
            let count = CHUNK.min(self.instances - first);
            self.chunk(chunk, count, &mut answerer, &mut prompt, &mut tally)?;
            (self.progress)(count);
        }
        Ok(tally)
    }

    fn chunk(
        &self,
        chunk: u64,
        count: u64,
        answerer: &mut Answerer<'_, S>,
        prompt: &mut Prompt,
        tally: &mut Tally,
    ) -> Result<(), VerifyError> {
        let task = self.network.task()?;
        let mut rng = match self.which {
            InstanceSet::Samples { seed, .. } => seeded(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(chunk)),
            InstanceSet::All => seeded(0),
        };
        let batch = batch_size(answerer, task.length(), count);
        let mut done = 0;
        while done < count {
            let size = (batch as u64).min(count - done);
            let (mut tokens, mut targets) = (Vec::new(), Vec::new());
            for index in done..done + size {
                match self.which {
                    InstanceSet::Samples { .. } => task.prompt(&mut rng, prompt),
                    InstanceSet::All => {
                        task.nth_prompt(u128::from(chunk * CHUNK + index), prompt);
                    }
                }
                // What the sampler says is tested against the oracle elsewhere; once a chunk it is checked here too.
                let targets_of_this =
                    if index == 0 { task.oracle(prompt.tokens())? } else { prompt.targets().to_vec() };
                tokens.extend_from_slice(prompt.tokens());
                targets.extend(targets_of_this);
            }
            compare(chunk, &tokens, &targets, size as usize, answerer, tally)?;
            done += size;
        }
        Ok(())
    }
}

/// Prompts that are answered at once, of so many.
fn batch_size<S: Scalar>(answerer: &Answerer<'_, S>, tokens: usize, count: u64) -> usize {
    (MAX_ACTIVATION / answerer.numbers_per_prompt(tokens).max(1)).clamp(1, count.max(1) as usize)
}

/// Runs prompts and counts those with every answer right.
fn compare<S: Scalar>(
    chunk: u64,
    tokens: &[u32],
    targets: &[u32],
    batch: usize,
    answerer: &mut Answerer<'_, S>,
    tally: &mut Tally,
) -> Result<(), VerifyError> {
    let length = targets.len() / batch;
    let only_last = targets.chunks_exact(length).all(|row| row[..length - 1].iter().all(|target| *target == NO_TARGET));
    let answers = if only_last { answerer.answer_last(tokens, batch)? } else { answerer.answer_all(tokens, batch)? };
    let per_prompt = answers.len() / batch;
    for (row, (targets, answers)) in targets.chunks_exact(length).zip(answers.chunks_exact(per_prompt)).enumerate() {
        let offset = length - per_prompt;
        let asked = targets.iter().enumerate().skip(offset).filter(|(_, target)| **target != NO_TARGET);
        let wrong = asked.map(|(position, target)| (position, *target, answers[position - offset]));
        match wrong.into_iter().find(|(_, target, answer)| target != answer) {
            None => tally.correct += 1,
            Some((position, expected, found)) => {
                let width = tokens.len() / batch;
                let prompt = tokens[row * width..(row + 1) * width].to_vec();
                tally.keep(chunk, WrongAnswer { prompt, position, expected, found });
            }
        }
    }
    Ok(())
}
