//! Verification: a construction's answers compared with the oracle of its task.
//!
//! It runs on every instance of the task if these can be enumerated, or on random ones. Threads take instances in chunks; a chunk's
//! samples depend on the seed and its number only, so the result does not depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rung_engine::Scalar;
use rung_theory::task::{NO_TARGET, OracleError, Prompt, seeded};
use serde::Serialize;

use super::answer::Answerer;
use crate::error::ModelError;
use crate::memory::{BatchShape, TooLarge};
use crate::network::Network;

/// The most instances that are enumerated; beyond it, a sample is needed.
pub const MAX_EXHAUSTIVE: u128 = 10_000_000;

/// The instances to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceSet {
    /// Every instance of the task.
    All,
    /// Random instances.
    Samples {
        /// Number of instances.
        count: u64,
        /// Seed of the random generator.
        seed: u64,
    },
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Instances run.
    pub instances: u64,
    /// Instances with every question answered right.
    pub correct: u64,
    /// Whether all instances of the task were run.
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
    /// The token ids of the prompt.
    pub prompt: Vec<u32>,
    /// The position of the question.
    pub position: usize,
    /// The oracle's answer.
    pub expected: u32,
    /// The network's answer.
    pub found: u32,
}

/// Why a verification could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Too many instances to enumerate.
    #[error("{found} instances; at most {max} are enumerated, so use samples")]
    TooManyInstances {
        /// Number of instances of the task.
        found: String,
        /// The most that are enumerated.
        max: u128,
    },
    /// The prompts do not fit the memory.
    #[error(transparent)]
    Memory(#[from] TooLarge),
    /// The network rejected the tokens.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The oracle rejected the tokens.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// Instances per chunk.
const CHUNK_SIZE: u64 = 512;

/// Limit on the elements of the largest activation of a batch.
const MAX_ACTIVATION_ELEMENTS: usize = 1 << 20;

/// Runs a construction on instances of its task. `progress` is called with the size of every finished chunk.
///
/// # Errors
/// There are too many instances to enumerate, or network and task do not fit each other.
#[inline(never)]
pub fn verify<S: Scalar>(
    network: &Network<S>,
    instance_set: InstanceSet,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Verification, VerifyError> {
    let task = network.task()?;
    let instances = match instance_set {
        InstanceSet::Samples { count, .. } => count,
        InstanceSet::All => match task.instance_count() {
            Some(count) if count <= MAX_EXHAUSTIVE => count as u64,
            count => {
                let found = count.map_or_else(|| "more than 2^128".to_owned(), |count| count.to_string());
                return Err(VerifyError::TooManyInstances { found, max: MAX_EXHAUSTIVE });
            }
        },
    };
    let answerer = Answerer::new(network);
    let (tokens, threads) = (task.length(), threads.max(1));
    let batch = batch_size(&answerer, tokens, CHUNK_SIZE.min(instances));
    answerer.check_memory(BatchShape { prompts: batch * threads, tokens })?;
    drop(answerer);
    let run = VerificationRun {
        network,
        instance_set,
        instances,
        next_chunk: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        progress,
    };
    let total = Mutex::new(Ok(Counts::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let counts = run.verify_chunks();
                run.stop.fetch_or(counts.is_err(), Ordering::Relaxed);
                let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                match (&mut *total, counts) {
                    (Ok(total), Ok(counts)) => total.add(counts),
                    (Ok(_), Err(error)) => *total = Err(error),
                    (Err(_), _) => {}
                }
            });
        }
    });
    let counts = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    Ok(Verification {
        instances,
        correct: counts.correct,
        exhaustive: instance_set == InstanceSet::All,
        layers: network.model.depth(),
        tokens: task.length(),
        wrong: counts.wrong.map(|(_, wrong)| wrong),
    })
}

/// What the threads of one verification share.
struct VerificationRun<'a, S: Scalar> {
    network: &'a Network<S>,
    instance_set: InstanceSet,
    instances: u64,
    next_chunk: AtomicU64,
    stop: AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
}

#[derive(Default)]
struct Counts {
    correct: u64,
    /// The wrong answer from the lowest chunk, with the number of that chunk.
    wrong: Option<(u64, WrongAnswer)>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.correct += other.correct;
        if let Some((chunk, wrong)) = other.wrong {
            self.record_wrong(chunk, wrong);
        }
    }

    fn record_wrong(&mut self, chunk: u64, wrong: WrongAnswer) {
        if self.wrong.as_ref().is_none_or(|(first, _)| chunk < *first) {
            self.wrong = Some((chunk, wrong));
        }
    }
}

impl<S: Scalar> VerificationRun<'_, S> {
    /// The loop of one thread: takes chunk after chunk until none is left.
    fn verify_chunks(&self) -> Result<Counts, VerifyError> {
        let mut answerer = Answerer::new(self.network);
        let mut counts = Counts::default();
        let mut prompt = Prompt::new();
        while !self.stop.load(Ordering::Relaxed) {
            let chunk = self.next_chunk.fetch_add(1, Ordering::Relaxed);
            let first = chunk * CHUNK_SIZE;
            if first >= self.instances {
                break;
            }
            let count = CHUNK_SIZE.min(self.instances - first);
            self.verify_chunk(chunk, count, &mut answerer, &mut prompt, &mut counts)?;
            (self.progress)(count);
        }
        Ok(counts)
    }

    fn verify_chunk(
        &self,
        chunk: u64,
        count: u64,
        answerer: &mut Answerer<'_, S>,
        prompt: &mut Prompt,
        counts: &mut Counts,
    ) -> Result<(), VerifyError> {
        let task = self.network.task()?;
        let mut rng = match self.instance_set {
            InstanceSet::Samples { seed, .. } => seeded(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(chunk)),
            InstanceSet::All => seeded(0),
        };
        let batch = batch_size(answerer, task.length(), count);
        let mut done_count = 0;
        while done_count < count {
            let size = (batch as u64).min(count - done_count);
            let (mut tokens, mut targets) = (Vec::new(), Vec::new());
            for index in done_count..done_count + size {
                match self.instance_set {
                    InstanceSet::Samples { .. } => task.sample_prompt(&mut rng, prompt),
                    InstanceSet::All => {
                        task.nth_prompt(u128::from(chunk * CHUNK_SIZE + index), prompt);
                    }
                }
                // The sampler's targets are tested against the oracle elsewhere; once a chunk the oracle's are used.
                let prompt_targets = if index == 0 { task.oracle(prompt.tokens())? } else { prompt.targets().to_vec() };
                tokens.extend_from_slice(prompt.tokens());
                targets.extend(prompt_targets);
            }
            check_batch(chunk, &tokens, &targets, size as usize, answerer, counts)?;
            done_count += size;
        }
        Ok(())
    }
}

/// Prompts per forward pass, at most `count`.
fn batch_size<S: Scalar>(answerer: &Answerer<'_, S>, tokens: usize, count: u64) -> usize {
    (MAX_ACTIVATION_ELEMENTS / answerer.elements_per_prompt(tokens).max(1)).clamp(1, count.max(1) as usize)
}

/// Runs a batch of prompts and counts those with every answer right.
fn check_batch<S: Scalar>(
    chunk: u64,
    tokens: &[u32],
    targets: &[u32],
    batch: usize,
    answerer: &mut Answerer<'_, S>,
    counts: &mut Counts,
) -> Result<(), VerifyError> {
    let length = targets.len() / batch;
    let only_last = targets.chunks_exact(length).all(|row| row[..length - 1].iter().all(|target| *target == NO_TARGET));
    let answers = if only_last { answerer.answer_last(tokens, batch)? } else { answerer.answer_all(tokens, batch)? };
    let answers_per_prompt = answers.len() / batch;
    for (row, (targets, answers)) in
        targets.chunks_exact(length).zip(answers.chunks_exact(answers_per_prompt)).enumerate()
    {
        let offset = length - answers_per_prompt;
        let questions = targets.iter().enumerate().skip(offset).filter(|(_, target)| **target != NO_TARGET);
        let results = questions.map(|(position, target)| (position, *target, answers[position - offset]));
        match results.into_iter().find(|(_, target, answer)| target != answer) {
            None => counts.correct += 1,
            Some((position, expected, found)) => {
                let width = tokens.len() / batch;
                let prompt = tokens[row * width..(row + 1) * width].to_vec();
                counts.record_wrong(chunk, WrongAnswer { prompt, position, expected, found });
            }
        }
    }
    Ok(())
}
