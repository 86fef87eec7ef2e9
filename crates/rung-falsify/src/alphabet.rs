//! The tokens that occur at each position of a prompt.
//!
//! Searches change prompts token by token without knowing the task. The alphabet of a position is the set of tokens at that position in up
//! to some thousand sampled prompts. Not every combination of them is a prompt; the task's oracle rejects those that are not.

use std::collections::BTreeSet;
use std::ops::Range;

use rung_theory::task::{AnyTask, Prompt, seeded};

use rung_theory::task::splitmix64;

/// The largest alphabet of a position.
const MAX_TOKENS: usize = 256;

/// The sorted alphabet of each position.
pub struct Alphabet {
    /// For each position, its tokens; a token is a list of ids.
    tokens_by_position: Vec<Vec<Vec<u32>>>,
    /// Number of ids per token.
    pub ids_per_token: usize,
}

impl Alphabet {
    /// Collects the tokens of sampled prompts.
    pub fn sample(task: &dyn AnyTask, seed: u64) -> Self {
        let (ids_per_token, length) = (task.fields().len(), task.length());
        let sample_count = ((1 << 20) / (length * ids_per_token)).clamp(64, 4096) as u64;
        let mut alphabets = vec![BTreeSet::new(); length];
        for sample in 0..sample_count {
            let prompt = sample_prompt(task, seed, sample);
            for (tokens, token) in alphabets.iter_mut().zip(prompt.chunks_exact(ids_per_token)) {
                if tokens.len() < MAX_TOKENS {
                    tokens.insert(token.to_vec());
                }
            }
        }
        let tokens_by_position = alphabets.into_iter().map(|tokens| tokens.into_iter().collect()).collect();
        Self { tokens_by_position, ids_per_token }
    }

    /// The tokens of a position.
    pub fn tokens_at(&self, position: usize) -> &[Vec<u32>] {
        &self.tokens_by_position[position]
    }

    /// The number of ways to fill some positions with tokens, if at most `max`.
    pub fn filling_count(&self, positions: Range<usize>, max: u64) -> Option<u64> {
        let sizes = positions.map(|position| self.tokens_by_position[position].len() as u64);
        sizes.into_iter().try_fold(1_u64, u64::checked_mul).filter(|count| *count <= max)
    }

    /// Writes filling `number` of [`Alphabet::filling_count`] into some positions of a prompt. The last position varies fastest.
    pub fn write_filling(&self, mut number: u64, positions: Range<usize>, prompt: &mut [u32]) {
        for position in positions.rev() {
            let tokens = &self.tokens_by_position[position];
            let token = &tokens[(number % tokens.len() as u64) as usize];
            number /= tokens.len() as u64;
            prompt[position * self.ids_per_token..][..self.ids_per_token].copy_from_slice(token);
        }
    }

    /// Writes pseudo-random tokens, drawn by `seed`, into some positions of a prompt.
    pub fn write_random_filling(&self, seed: u64, positions: Range<usize>, prompt: &mut [u32]) {
        for position in positions {
            let tokens = &self.tokens_by_position[position];
            let index = splitmix64(seed ^ splitmix64(position as u64)) % tokens.len() as u64;
            prompt[position * self.ids_per_token..][..self.ids_per_token].copy_from_slice(&tokens[index as usize]);
        }
    }
}

/// The ids of sampled prompt `number` of a seed.
pub fn sample_prompt(task: &dyn AnyTask, seed: u64, number: u64) -> Vec<u32> {
    let mut prompt = Prompt::new();
    task.sample_prompt(&mut seeded(splitmix64(seed ^ splitmix64(number))), &mut prompt);
    prompt.tokens().to_vec()
}
