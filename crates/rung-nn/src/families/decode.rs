//! Decoding with a checkpoint: logits of one sequence, with its KV cache or state.

use rung_audit::engine::{EngineSettings, engine, plan};
use rung_audit::{Audit, FP32};
use rung_engine::{Native, Ops as _, Parameters, Tensor};
use rung_theory::stack::mixer::CacheLayout;
use rung_theory::task::Rng;

use crate::error::ModelError;
use crate::model::{Model, ModelState};
use crate::param_builder::uniform;

/// A model with the cache of one sequence.
pub struct CheckpointDecoder<'a> {
    model: &'a Model,
    ops: Native<f32>,
    state: Option<ModelState<Tensor<f32>>>,
}

impl<'a> CheckpointDecoder<'a> {
    /// Starts with an empty sequence. Matrix products use this number of threads.
    pub fn new(model: &'a Model, weights: &Parameters<f32>, threads: usize) -> Self {
        let ops = Native::with_threads(threads);
        ops.bind_frozen(weights);
        Self { model, ops, state: None }
    }

    /// Empties the cache, to start another sequence.
    pub fn clear(&mut self) {
        self.state = None;
    }

    /// Appends tokens and returns the logits after each of them, one row after another.
    ///
    /// # Errors
    /// A token id is not in the vocabulary.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let (hidden, state) = self.model.forward(&self.ops, tokens, 1, self.state.as_ref())?;
        self.state = Some(state);
        Ok(self.ops.values(&self.model.logits(&self.ops, &hidden)))
    }

    /// Appends tokens and returns the logits after the last of them.
    ///
    /// # Errors
    /// A token id is not in the vocabulary, or there are no tokens.
    pub fn next_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let (hidden, state) = self.model.forward(&self.ops, tokens, 1, self.state.as_ref())?;
        self.state = Some(state);
        let last = self.ops.slice(&hidden, 1, tokens.len() - 1..tokens.len());
        Ok(self.ops.values(&self.model.logits(&self.ops, &last)))
    }

    /// The executor, for profiling.
    pub fn executor(&self) -> &Native<f32> {
        &self.ops
    }

    /// The number of tokens of the sequence so far.
    pub fn token_count(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.past_len)
    }

    /// Bytes of cached keys, values and states.
    pub fn cache_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.element_count(&self.ops) * size_of::<f32>())
    }
}

/// Bytes of keys, values and states after a number of tokens in single precision, as `rung-audit` computes them; `None` if they are unknown.
///
/// They are those of transformers, which like this crate caches one token less than a window has, except for short convolutions: most
/// classes of transformers cache as many inputs as the kernel has, and this crate one fewer.
pub fn predicted_cache_bytes(audit: &Audit, tokens: usize) -> Option<u64> {
    /// The class that caches one input fewer in transformers too.
    const ONE_INPUT_FEWER: &str = "recurrent_gemma";
    let settings = EngineSettings {
        context: Some(tokens.max(1) as u64),
        kv_format: FP32.name.parse().ok(),
        state_dtype: Some(FP32),
        ..EngineSettings::default()
    };
    let planned = plan(audit, engine("transformers").ok()?, &settings).ok()?.cache_bytes?;
    if audit.architecture.as_deref() == Some(ONE_INPUT_FEWER) {
        return Some(planned);
    }
    let mixers = audit.layers.iter().flat_map(|layer| &layer.plan_layers).flat_map(|layer| layer.mixers.iter());
    let input = mixers.map(|mixer| match mixer.facts().layout {
        Some(CacheLayout::State(state)) if state.kernel_size > 0 => {
            state.channels + state.groups * state.group_channels
        }
        _ => 0,
    });
    Some(planned.saturating_sub(input.sum::<u64>() * size_of::<f32>() as u64))
}

/// Samples the next token: the most likely one (the first of equals) at temperature 0, else one from the softmax of `logits / temperature`.
///
/// # Panics
/// If there are no logits.
pub fn sample(logits: &[f32], temperature: f64, rng: &mut Rng) -> u32 {
    let best = (0..logits.len()).reduce(|best, token| if logits[token] > logits[best] { token } else { best });
    let best = best.expect("a vocabulary");
    if temperature <= 0.0 {
        return best as u32;
    }
    let weight = |logit: &f32| (f64::from(*logit - logits[best]) / temperature).exp();
    let mut remaining = uniform(rng) * logits.iter().map(weight).sum::<f64>();
    for (token, logit) in logits.iter().enumerate() {
        remaining -= weight(logit);
        if remaining < 0.0 {
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
