//! Running a checkpoint on one sequence: logits, and one token after another from the cache.

use rung_engine::{Native, Ops as _, Parameters, Tensor};
use rung_theory::task::Rng;

use crate::error::ModelError;
use crate::model::{Model, ModelState};
use crate::param_builder::uniform;

/// A sequence so far, and what is needed to go on.
pub struct CheckpointDecoder<'a> {
    model: &'a Model,
    ops: Native<f32>,
    state: Option<ModelState<Tensor<f32>>>,
}

impl<'a> CheckpointDecoder<'a> {
    /// An empty sequence. Products run on so many threads.
    pub fn new(model: &'a Model, weights: &Parameters<f32>, threads: usize) -> Self {
        let ops = Native::with_threads(threads);
        ops.bind_frozen(weights);
        Self { model, ops, state: None }
    }

    /// Forgets the sequence, and keeps the weights for another.
    pub fn clear(&mut self) {
        self.state = None;
    }

    /// Takes in tokens and gives the logits after each of them, one row after another.
    ///
    /// # Errors
    /// A token is beyond the vocabulary.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let (hidden, state) = self.model.forward(&self.ops, tokens, 1, self.state.as_ref())?;
        self.state = Some(state);
        Ok(self.ops.values(&self.model.logits(&self.ops, &hidden)))
    }

    /// Takes in tokens and gives the logits after the last of them.
    ///
    /// # Errors
    /// A token is beyond the vocabulary, or there is none.
    pub fn next_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let (hidden, state) = self.model.forward(&self.ops, tokens, 1, self.state.as_ref())?;
        self.state = Some(state);
        let last = self.ops.slice(&hidden, 1, tokens.len() - 1..tokens.len());
        Ok(self.ops.values(&self.model.logits(&self.ops, &last)))
    }

    /// What runs the operations, for a profile of them.
    pub fn executor(&self) -> &Native<f32> {
        &self.ops
    }

    /// Tokens so far.
    pub fn seen(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.seen)
    }

    /// Bytes of keys, values and states that are kept for the next token.
    pub fn cache_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.numbers(&self.ops) * size_of::<f32>())
    }
}

/// The next token: the likeliest (the first of equals) at temperature 0, else drawn from the softmax of `logits / temperature`.
///
/// # Panics
/// If there are no logits.
pub fn sample(logits: &[f32], temperature: f64, rng: &mut Rng) -> u32 {
    let best = (0..logits.len()).reduce(|best, at| if logits[at] > logits[best] { at } else { best });
    let best = best.expect("a vocabulary");
    if temperature <= 0.0 {
        return best as u32;
    }
    let weight = |logit: &f32| (f64::from(*logit - logits[best]) / temperature).exp();
    let mut left = uniform(rng) * logits.iter().map(weight).sum::<f64>();
    for (token, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return token as u32;
        }
    }
    best as u32
}

/// Log-probabilities of a row of logits.
pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    logits.iter().map(|logit| f64::from(logit - largest) - sum.ln()).collect()
}
