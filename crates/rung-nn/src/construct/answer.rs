//! Running a construction: the class it gives at every question of a prompt.
//!
//! Three ways, all through the weights: [`FastLookup`] where it applies; the last row alone ([`Model::last`](crate::Model::last))
//! where a prompt has one question at its end; the whole forward pass otherwise. A construction that emits a chain of thought is decoded
//! token by token, each emitted token being fed back through the step form with the state so far.

use rung_engine::{Native, Ops, Scalar};

use super::ChainOfThought;
use super::fast_lookup::FastLookup;
use crate::error::ModelError;
use crate::memory::{self, TooLarge};
use crate::model::Model;
use crate::network::Network;

/// A construction ready to answer, on one thread.
pub struct Answerer<'a, S: Scalar> {
    built: &'a Network<S>,
    ops: Native<S>,
    front: usize,
    fast_lookup: Option<FastLookup<S>>,
}

impl<'a, S: Scalar> Answerer<'a, S> {
    /// Binds the weights and looks at which of them matter where.
    pub fn new(built: &'a Network<S>) -> Self {
        let ops = built.executor();
        let fast_lookup = FastLookup::new(built, &ops);
        Self {
            built,
            front: super::layers_on_all_tokens(&built.config, &built.model, &built.weights),
            fast_lookup,
            ops,
        }
    }

    /// Without shortcuts: the whole forward pass of every token. The slow twin.
    pub fn without_shortcuts(built: &'a Network<S>) -> Self {
        Self { built, front: built.model.depth(), fast_lookup: None, ops: built.executor() }
    }

    /// The layers that run on all tokens.
    pub fn layers_on_all_tokens(&self) -> usize {
        self.front
    }

    /// Numbers of the largest activation that a prompt of this many tokens needs.
    pub fn numbers_per_prompt(&self, tokens: usize) -> usize {
        let width = if self.fast_lookup.is_some() { 4 } else { self.built.model.width() };
        tokens.saturating_mul(width)
    }

    /// Refuses prompts that do not fit the memory: so many at once, on all threads together, of so many tokens each.
    ///
    /// # Errors
    /// They do not fit.
    pub fn check_memory(&self, (prompts, tokens): (usize, usize)) -> Result<(), TooLarge> {
        if self.fast_lookup.is_none() {
            return self.built.check_memory("answers", (prompts, tokens), false);
        }
        let numbers = 4 * self.numbers_per_prompt(tokens) as u128 * prompts as u128;
        let what = format!("answers: {prompts} prompts of {tokens} tokens at once by `{}`", self.built.name);
        memory::check(what, numbers.saturating_mul(size_of::<S>() as u128), None)
    }

    /// The answers of `batch` prompts of equal length, one after another: at their last tokens.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn answer_last(&mut self, tokens: &[u32], batch: usize) -> Result<Vec<u32>, ModelError> {
        if let Some(thoughts) = self.built.chain_of_thought() {
            return Ok(self.emit_chain(thoughts, tokens, batch)?.into_iter().map(|thought| thought.answer).collect());
        }
        let classes = self.built.model.classes();
        if let Some(scores) =
            self.fast_lookup.as_mut().and_then(|fast_lookup| fast_lookup.scores(&self.ops, tokens, batch))
        {
            return Ok(best(&self.ops.values(&scores), classes));
        }
        let (hidden, _) = self.built.model.last(&self.ops, tokens, batch, self.front)?;
        Ok(best(&self.ops.values(&self.built.model.logits(&self.ops, &hidden)), classes))
    }

    /// The answers at all tokens of `batch` prompts.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn answer_all(&mut self, tokens: &[u32], batch: usize) -> Result<Vec<u32>, ModelError> {
        let (hidden, _) = self.built.model.forward(&self.ops, tokens, batch, None)?;
        Ok(best(&self.ops.values(&self.built.model.logits(&self.ops, &hidden)), self.built.model.classes()))
    }

    fn emit_chain(
        &self,
        thoughts: &ChainOfThought,
        tokens: &[u32],
        batch: usize,
    ) -> Result<Vec<EmittedChain>, ModelError> {
        decode(&self.built.model, &self.ops, thoughts, (tokens, batch), self.front)
    }

    /// The tokens that a construction emits after a prompt, the last of which holds the answer; none if it answers at once.
    ///
    /// # Errors
    /// The tokens are none of the model's.
    pub fn chain_of_thought(&self, tokens: &[u32]) -> Result<Option<EmittedChain>, ModelError> {
        let Some(thoughts) = self.built.chain_of_thought() else { return Ok(None) };
        Ok(self.emit_chain(thoughts, tokens, 1)?.pop())
    }
}

/// Decodes: reads `batch` prompts, emits a token for each, feeds it back, and so on.
pub(crate) fn decode<O: Ops>(
    model: &Model,
    ops: &O,
    thoughts: &ChainOfThought,
    (tokens, batch): (&[u32], usize),
    front: usize,
) -> Result<Vec<EmittedChain>, ModelError> {
    let classes = model.classes();
    let mut emitted = vec![EmittedChain::default(); batch];
    let (mut hidden, mut state) = model.last(ops, tokens, batch, front)?;
    for step in 0..thoughts.count {
        let scores = ops.values(&model.logits(ops, &hidden));
        let mut next = Vec::with_capacity(batch * thoughts.fields.len());
        for (scores, thought) in scores.chunks_exact(classes).zip(&mut emitted) {
            let token = thoughts.token(scores);
            thought.answer = token[thoughts.answer];
            thought.tokens.extend_from_slice(&token);
            next.extend(token);
        }
        if step + 1 < thoughts.count {
            (hidden, state) = model.forward(ops, &next, batch, Some(&state))?;
        }
    }
    Ok(emitted)
}

/// What a construction said before it answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmittedChain {
    /// Tokens emitted, one id per field.
    pub tokens: Vec<u32>,
    /// The answer in the last of them.
    pub answer: u32,
}

impl ChainOfThought {
    /// The token that scores ask for: in each field the id with the highest.
    pub fn token<S: Scalar>(&self, scores: &[S]) -> Vec<u32> {
        let ends = self.fields.iter().skip(1).copied().chain([scores.len()]);
        self.fields.iter().zip(ends).map(|(first, end)| highest(&scores[*first..end])).collect()
    }
}

fn best<S: Scalar>(scores: &[S], classes: usize) -> Vec<u32> {
    scores.chunks_exact(classes).map(highest).collect()
}

/// The place of the highest score, the first of equals.
fn highest<S: Scalar>(scores: &[S]) -> u32 {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
    }
    best as u32
}
