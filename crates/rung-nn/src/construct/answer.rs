//! Running a construction: the class that it predicts at every question of a prompt.
//!
//! Three methods, all of which use the weights alone: [`FastLookup`] where it applies; the last token only
//! ([`Model::forward_last`](crate::Model::forward_last)) if a prompt has one question at its end; the full forward pass otherwise. A construction that
//! emits a chain of thought is decoded token by token: each emitted token is the next input, with the state so far.

use rung_engine::{Native, Ops, Scalar};

use super::ChainOfThought;
use super::fast_lookup::FastLookup;
use crate::error::ModelError;
use crate::memory::{self, BatchShape, TooLarge};
use crate::model::Model;
use crate::network::Network;

/// Elements that [`FastLookup`] holds per token of a prompt, instead of a row of the residual stream: the token's attention score before and
/// after the concatenation, its attention weight, and a copy of that weight.
const FAST_LOOKUP_ELEMENTS_PER_TOKEN: usize = 4;

/// How many tensors of the size of the largest activation are assumed to be in memory at once. A rough upper bound.
const LIVE_ACTIVATIONS: u128 = 4;

/// A construction ready to answer, on one thread.
pub struct Answerer<'a, S: Scalar> {
    network: &'a Network<S>,
    ops: Native<S>,
    /// How many of the first layers must run on all tokens; the others need only the last token.
    layers_on_all_tokens: usize,
    fast_lookup: Option<FastLookup<S>>,
}

impl<'a, S: Scalar> Answerer<'a, S> {
    /// Binds the weights and finds out which layers can be restricted to the last token.
    pub fn new(network: &'a Network<S>) -> Self {
        let ops = network.executor();
        let fast_lookup = FastLookup::new(network, &ops);
        Self {
            network,
            layers_on_all_tokens: super::layers_on_all_tokens(&network.config, &network.model, &network.weights),
            fast_lookup,
            ops,
        }
    }

    /// Runs the full forward pass on every token: the slow reference for [`Answerer::new`].
    pub fn with_full_forward_pass(network: &'a Network<S>) -> Self {
        Self { network, layers_on_all_tokens: network.model.depth(), fast_lookup: None, ops: network.executor() }
    }

    /// How many of the first layers run on all tokens.
    pub fn layers_on_all_tokens(&self) -> usize {
        self.layers_on_all_tokens
    }

    /// Elements of the largest activation that a prompt of this many tokens needs.
    pub fn elements_per_prompt(&self, tokens: usize) -> usize {
        let elements_per_token =
            if self.fast_lookup.is_some() { FAST_LOOKUP_ELEMENTS_PER_TOKEN } else { self.network.model.width() };
        tokens.saturating_mul(elements_per_token)
    }

    /// Checks that the prompts of a batch, which are those of all threads together, fit in memory.
    ///
    /// # Errors
    /// They do not fit in memory.
    pub fn check_memory(&self, batch: BatchShape) -> Result<(), TooLarge> {
        if self.fast_lookup.is_none() {
            return self.network.check_inference_memory("answers", batch);
        }
        let BatchShape { prompts, tokens } = batch;
        let elements = LIVE_ACTIVATIONS * self.elements_per_prompt(tokens) as u128 * prompts as u128;
        let what = format!("answers: {prompts} prompts of {tokens} tokens at once by `{}`", self.network.name);
        memory::check(what, elements.saturating_mul(size_of::<S>() as u128), None)
    }

    /// The answers at the last tokens of `batch` prompts of equal length.
    ///
    /// # Errors
    /// A token id is not in the model's vocabulary.
    pub fn answer_last(&mut self, tokens: &[u32], batch: usize) -> Result<Vec<u32>, ModelError> {
        if let Some(chain_of_thought) = self.network.chain_of_thought() {
            return Ok(self
                .emit_chain(chain_of_thought, tokens, batch)?
                .into_iter()
                .map(|chain| chain.answer)
                .collect());
        }
        let classes = self.network.model.classes();
        if let Some(logits) =
            self.fast_lookup.as_mut().and_then(|fast_lookup| fast_lookup.last_logits(&self.ops, tokens, batch))
        {
            return Ok(argmax_rows(&self.ops.values(&logits), classes));
        }
        let (hidden, _) = self.network.model.forward_last(&self.ops, tokens, batch, self.layers_on_all_tokens)?;
        Ok(argmax_rows(&self.ops.values(&self.network.model.logits(&self.ops, &hidden)), classes))
    }

    /// The answers at all tokens of `batch` prompts.
    ///
    /// # Errors
    /// A token id is not in the model's vocabulary.
    pub fn answer_all(&mut self, tokens: &[u32], batch: usize) -> Result<Vec<u32>, ModelError> {
        let (hidden, _) = self.network.model.forward(&self.ops, tokens, batch, None)?;
        Ok(argmax_rows(&self.ops.values(&self.network.model.logits(&self.ops, &hidden)), self.network.model.classes()))
    }

    fn emit_chain(
        &self,
        chain_of_thought: &ChainOfThought,
        tokens: &[u32],
        batch: usize,
    ) -> Result<Vec<EmittedChain>, ModelError> {
        decode_chains(&self.network.model, &self.ops, chain_of_thought, (tokens, batch), self.layers_on_all_tokens)
    }

    /// The tokens that a construction emits after a prompt, the last of which holds the answer; `None` if it emits no chain of thought.
    ///
    /// # Errors
    /// A token id is not in the model's vocabulary.
    pub fn chain_of_thought(&self, tokens: &[u32]) -> Result<Option<EmittedChain>, ModelError> {
        let Some(chain_of_thought) = self.network.chain_of_thought() else { return Ok(None) };
        Ok(self.emit_chain(chain_of_thought, tokens, 1)?.pop())
    }
}

/// Greedy decoding of the chains of thought of `batch` prompts.
pub(crate) fn decode_chains<O: Ops>(
    model: &Model,
    ops: &O,
    chain_of_thought: &ChainOfThought,
    (tokens, batch): (&[u32], usize),
    layers_on_all_tokens: usize,
) -> Result<Vec<EmittedChain>, ModelError> {
    let classes = model.classes();
    let mut emitted = vec![EmittedChain::default(); batch];
    let (mut hidden, mut state) = model.forward_last(ops, tokens, batch, layers_on_all_tokens)?;
    for step in 0..chain_of_thought.emitted_tokens {
        let logits = ops.values(&model.logits(ops, &hidden));
        let mut next_tokens = Vec::with_capacity(batch * chain_of_thought.field_starts.len());
        for (logits, chain) in logits.chunks_exact(classes).zip(&mut emitted) {
            let token = chain_of_thought.argmax_token(logits);
            chain.answer = token[chain_of_thought.answer_field];
            chain.tokens.extend_from_slice(&token);
            next_tokens.extend(token);
        }
        if step + 1 < chain_of_thought.emitted_tokens {
            (hidden, state) = model.forward(ops, &next_tokens, batch, Some(&state))?;
        }
    }
    Ok(emitted)
}

/// The chain of thought that a construction emitted for one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmittedChain {
    /// The emitted tokens, one after another. A token is a tuple of ids, one per input field.
    pub tokens: Vec<u32>,
    /// The id in the answer field of the last emitted token.
    pub answer: u32,
}

impl ChainOfThought {
    /// The token with the highest logits: in each field the id with the highest logit.
    pub fn argmax_token<S: Scalar>(&self, logits: &[S]) -> Vec<u32> {
        let field_ends = self.field_starts.iter().skip(1).copied().chain([logits.len()]);
        self.field_starts.iter().zip(field_ends).map(|(start, end)| argmax(&logits[*start..end])).collect()
    }
}

fn argmax_rows<S: Scalar>(logits: &[S], classes: usize) -> Vec<u32> {
    logits.chunks_exact(classes).map(argmax).collect()
}

/// The index of the highest logit; the first of equals.
fn argmax<S: Scalar>(logits: &[S]) -> u32 {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = class;
        }
    }
    best as u32
}
