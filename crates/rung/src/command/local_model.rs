//! A checkpoint that answers `rung ask` in this process, without a server.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use rung_ask::{AnsweringModel, AskError, ModelDescription, Reply, TokenProbability};
use rung_nn::Network;
use rung_nn::families::decode::{CheckpointDecoder, log_softmax};
use rung_nn::memory;
use rung_tokenizer::Tokenizer;

use super::checkpoint::tokenizer;

/// Number of most likely first tokens that a reply has, the same as requested from llama.cpp.
const TOP_TOKENS: usize = 64;

/// A checkpoint and its tokenizer. Every calling thread takes a decoder from a pool, or creates one, and puts it back.
pub struct LocalModel<'a> {
    name: String,
    checkpoint: &'a Network<f32>,
    tokenizer: Tokenizer,
    /// Decoders that are not in use.
    decoders: Mutex<Vec<CheckpointDecoder<'a>>>,
}

impl<'a> LocalModel<'a> {
    /// A checkpoint and its path, where the tokenizer is read.
    ///
    /// # Errors
    /// It has no tokenizer, or one that is malformed.
    pub fn new(path: &Path, checkpoint: &'a Network<f32>) -> anyhow::Result<Self> {
        let tokenizer = tokenizer(path)?
            .with_context(|| format!("{}: found no tokenizer, expected one to write prompts with", path.display()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, checkpoint, tokenizer, decoders: Mutex::default() })
    }

    fn with_decoder<T>(
        &self,
        work: impl FnOnce(&mut CheckpointDecoder<'a>) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        let idle_decoder = self.decoders.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut decoder =
            idle_decoder.unwrap_or_else(|| CheckpointDecoder::new(&self.checkpoint.model, &self.checkpoint.weights, 1));
        decoder.clear();
        let result = work(&mut decoder);
        self.decoders.lock().unwrap_or_else(PoisonError::into_inner).push(decoder);
        result
    }

    /// The tokens of a prompt that fits the memory.
    fn encode(&self, text: &str) -> Result<Vec<u32>, AskError> {
        let tokens = self.tokenizer.encode(text).map_err(to_ask_error)?;
        let bytes = self.checkpoint.config.memory_estimate(&self.checkpoint.plan).inference_bytes(tokens.len());
        memory::check(format!("a prompt of {} tokens", tokens.len()), bytes, None).map_err(to_ask_error)?;
        Ok(tokens)
    }

    fn logits(decoder: &mut CheckpointDecoder<'_>, tokens: &[u32]) -> Result<Vec<f32>, AskError> {
        decoder.next_logits(tokens).map_err(to_ask_error)
    }
}

fn to_ask_error(error: impl std::fmt::Display) -> AskError {
    AskError::Unsupported(error.to_string())
}

impl AnsweringModel for LocalModel<'_> {
    fn describe(&self) -> ModelDescription {
        ModelDescription { protocol: "rung".to_owned(), model: self.name.clone() }
    }

    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
        self.encode(text).map(Some)
    }

    fn next_token(&self, prompt: &str) -> Result<Reply, AskError> {
        let tokens = self.encode(prompt)?;
        let logits = self.with_decoder(|decoder| Self::logits(decoder, &tokens))?;
        let mut top_tokens: Vec<(usize, f64)> = log_softmax(&logits).into_iter().enumerate().collect();
        top_tokens.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
        top_tokens.truncate(TOP_TOKENS);
        let token = |(id, logprob): &(usize, f64)| {
            let text = self.tokenizer.decode(&[*id as u32]).map_err(to_ask_error)?;
            Ok(TokenProbability { text, probability: logprob.exp() })
        };
        let first_token_candidates = top_tokens.iter().map(token).collect::<Result<Vec<_>, AskError>>()?;
        let text = first_token_candidates.first().map(|token| token.text.clone()).unwrap_or_default();
        Ok(Reply { text, first_token_candidates, has_reasoning: false })
    }

    fn generate(&self, prompt: &str, max_tokens: usize) -> Result<Reply, AskError> {
        let (mut input, mut generated) = (self.encode(prompt)?, Vec::new());
        self.with_decoder(|decoder| {
            while generated.len() < max_tokens {
                let logits = Self::logits(decoder, &input)?;
                let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a)));
                let Some(next) = best.map(|next| next as u32).filter(|next| !self.tokenizer.is_eos(*next)) else {
                    break;
                };
                generated.push(next);
                input = vec![next];
            }
            Ok(())
        })?;
        Ok(Reply { text: self.tokenizer.decode(&generated).map_err(to_ask_error)?, ..Reply::default() })
    }
}
