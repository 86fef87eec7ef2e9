//! What may stand where in a prompt.
//!
//! Searches change prompts token by token without knowing the task. The alphabet of a position is every token that was seen there in
//! some thousands of samples. Not every combination of them is a prompt; the oracle refuses those that are not.

use std::collections::BTreeSet;
use std::ops::Range;

use rung_theory::task::{AnyTask, Prompt, seeded};

use rung_theory::task::splitmix64;

/// The most tokens kept for a position.
const MOST: usize = 256;

/// The tokens of each position, sorted.
pub struct Alphabet {
    positions: Vec<Vec<Vec<u32>>>,
    /// Ids of a token.
    pub fields: usize,
}

impl Alphabet {
    /// From samples.
    pub fn of(task: &dyn AnyTask, seed: u64) -> Self {
        let (fields, length) = (task.fields().len(), task.length());
        let samples = ((1 << 20) / (length * fields)).clamp(64, 4096) as u64;
        let mut met = vec![BTreeSet::new(); length];
        for sample in 0..samples {
            let prompt = sample_prompt(task, seed, sample);
            for (tokens, token) in met.iter_mut().zip(prompt.chunks_exact(fields)) {
                if tokens.len() < MOST {
                    tokens.insert(token.to_vec());
                }
            }
        }
        Self { positions: met.into_iter().map(|tokens| tokens.into_iter().collect()).collect(), fields }
    }

    /// The tokens of a position.
    pub fn at(&self, position: usize) -> &[Vec<u32>] {
        &self.positions[position]
    }

    /// How many ways there are to fill some positions, if at most `most`.
    pub fn ways(&self, positions: Range<usize>, most: u64) -> Option<u64> {
        let ways = positions.map(|position| self.positions[position].len() as u64);
        ways.into_iter().try_fold(1_u64, u64::checked_mul).filter(|ways| *ways <= most)
    }

    /// Writes the way of this number into some positions of a prompt, the last position changing fastest.
    pub fn write(&self, mut way: u64, positions: Range<usize>, prompt: &mut [u32]) {
        for position in positions.rev() {
            let tokens = &self.positions[position];
            let token = &tokens[(way % tokens.len() as u64) as usize];
            way /= tokens.len() as u64;
            prompt[position * self.fields..][..self.fields].copy_from_slice(token);
        }
    }

    /// A way to fill some positions, drawn from a number.
    pub fn scatter(&self, number: u64, positions: Range<usize>, prompt: &mut [u32]) {
        for position in positions {
            let tokens = &self.positions[position];
            let drawn = splitmix64(number ^ splitmix64(position as u64)) % tokens.len() as u64;
            prompt[position * self.fields..][..self.fields].copy_from_slice(&tokens[drawn as usize]);
        }
    }
}

/// The ids of a prompt drawn from two numbers.
pub fn sample_prompt(task: &dyn AnyTask, seed: u64, number: u64) -> Vec<u32> {
    let mut prompt = Prompt::new();
    task.prompt(&mut seeded(splitmix64(seed ^ splitmix64(number))), &mut prompt);
    prompt.tokens().to_vec()
}
