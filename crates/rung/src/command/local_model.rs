//! A checkpoint that answers `rung ask` here, without a server.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use rung_ask::{AnsweringModel, AskError, Reply, ServerDescription, TokenProbability};
use rung_nn::families::Checkpoint;
use rung_nn::families::decode::{CheckpointDecoder, log_softmax};
use rung_tokenizer::Tokenizer;

use super::checkpoint::tokenizer;

/// As many of the likeliest tokens as llama.cpp is asked for.
const LIKELIEST: usize = 64;

/// A checkpoint and its tokenizer. Every thread that asks takes a decoder, or makes one, and puts it back.
pub struct LocalModel<'a> {
    name: String,
    checkpoint: &'a Checkpoint<f32>,
    tokenizer: Tokenizer,
    decoders: Mutex<Vec<CheckpointDecoder<'a>>>,
}

impl<'a> LocalModel<'a> {
    /// A checkpoint that was read from a path.
    ///
    /// # Errors
    /// It has no tokenizer, or one that is malformed.
    pub fn new(path: &Path, checkpoint: &'a Checkpoint<f32>) -> anyhow::Result<Self> {
        let tokenizer = tokenizer(path)?
            .with_context(|| format!("{}: found no tokenizer, expected one to write prompts with", path.display()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, checkpoint, tokenizer, decoders: Mutex::default() })
    }

    fn with_decoder<T>(
        &self,
        work: impl FnOnce(&mut CheckpointDecoder<'a>) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        let kept = self.decoders.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut decoder =
            kept.unwrap_or_else(|| CheckpointDecoder::new(&self.checkpoint.model, &self.checkpoint.weights, 1));
        decoder.clear();
        let result = work(&mut decoder);
        self.decoders.lock().unwrap_or_else(PoisonError::into_inner).push(decoder);
        result
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, AskError> {
        self.tokenizer.encode(text).map_err(failed)
    }

    fn logits(decoder: &mut CheckpointDecoder<'_>, tokens: &[u32]) -> Result<Vec<f32>, AskError> {
        decoder.next_logits(tokens).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> AskError {
    AskError::Unsupported(error.to_string())
}

impl AnsweringModel for LocalModel<'_> {
    fn describe(&self) -> ServerDescription {
        ServerDescription { protocol: "rung".to_owned(), model: self.name.clone() }
    }

    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError> {
        self.encode(text).map(Some)
    }

    fn next_token(&self, prompt: &str) -> Result<Reply, AskError> {
        let tokens = self.encode(prompt)?;
        let logits = self.with_decoder(|decoder| Self::logits(decoder, &tokens))?;
        let mut likeliest: Vec<(usize, f64)> = log_softmax(&logits).into_iter().enumerate().collect();
        likeliest.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
        likeliest.truncate(LIKELIEST);
        let token = |(id, logarithm): &(usize, f64)| {
            let text = self.tokenizer.decode(&[*id as u32]).map_err(failed)?;
            Ok(TokenProbability { text, probability: logarithm.exp() })
        };
        let first_token = likeliest.iter().map(token).collect::<Result<Vec<_>, AskError>>()?;
        let text = first_token.first().map(|token| token.text.clone()).unwrap_or_default();
        Ok(Reply { text, first_token, reasoned: false })
    }

    fn write(&self, prompt: &str, tokens: usize) -> Result<Reply, AskError> {
        let (mut input, mut written) = (self.encode(prompt)?, Vec::new());
        self.with_decoder(|decoder| {
            while written.len() < tokens {
                let logits = Self::logits(decoder, &input)?;
                let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a)));
                let Some(next) = best.map(|next| next as u32).filter(|next| !self.tokenizer.ends_text(*next)) else {
                    break;
                };
                written.push(next);
                input = vec![next];
            }
            Ok(())
        })?;
        Ok(Reply { text: self.tokenizer.decode(&written).map_err(failed)?, ..Reply::default() })
    }
}
