//! A forward pass, written down: who reads whom in every layer, and what the stream holds between layers.
//!
//! The pass is the ordinary one, run by the ordinary executor with a listener beside it ([`observer`](crate::observer)). What is kept
//! is small: queries, keys and values as the mixers used them, and the streams. Rows of weights are worked out later, for the
//! tokens somebody asks about ([`MixingOp`]). [`flow`](Trace::flow) goes back from an answer and finds those tokens.
//!
//! ```
//! use rung_nn::construct::{self, ConstructionRequest};
//! use rung_nn::trace::{Trace, sequence};
//! use rung_theory::task::{Prompt, seeded};
//!
//! let built = construct::build::<f32>("U1", &ConstructionRequest::default())?;
//! let mut prompt = Prompt::new();
//! built.task()?.prompt(&mut seeded(0), &mut prompt);
//! let trace = Trace::record(&built, &sequence(&built, prompt.tokens())?)?;
//! let flow = trace.flow(&[trace.tokens() - 1], 0.05, 12);
//! assert_eq!(flow.reads.len(), 3); // w reads z_0, then an entry of each table
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod flow;
mod reading;
#[cfg(test)]
mod tests;

pub use flow::{Flow, TokenRead};
pub use reading::{MixingOp, ReaderKind};

use std::cell::RefCell;

use rung_engine::{
    AttentionInputs, AttentionMask, BlockAttention, GeneralDelta, Native, Ops, Recurrence, Scalar, Tensor, composed,
};

use crate::construct::{LayerColumns, decode};
use crate::error::ModelError;
use crate::model::names;
use crate::network::Network;
use crate::observer::{ConvolutionInputs, ObservedOps, OpObserver};

/// The most tokens of a trace.
pub const MOST_TOKENS: usize = 1 << 14;

/// A forward pass, written down.
pub struct Trace {
    /// For every layer, its readings in the order they happened.
    pub layers: Vec<Vec<MixingOp>>,
    /// The stream as embedded and after every layer, `[tokens, width]` each.
    streams: Vec<Vec<f64>>,
    /// Scores at every token.
    scores: Vec<f64>,
    width: usize,
    classes: usize,
    layer_columns: Vec<LayerColumns>,
    /// Columns that the unembedding looks at.
    answered: Vec<bool>,
    /// For every layer, the heads of its readings that nothing comes of.
    idle: Vec<Vec<Vec<bool>>>,
}

/// The tokens of a whole pass: a prompt, and the chain of thought that a construction emits after it, without the last token, which
/// is not read.
///
/// # Errors
/// The tokens are none of the model's.
pub fn sequence<S: Scalar>(network: &Network<S>, prompt: &[u32]) -> Result<Vec<u32>, ModelError> {
    let mut tokens = prompt.to_vec();
    if let Some(thoughts) = network.chain_of_thought() {
        let ops = network.executor();
        for said in decode(&network.model, &ops, thoughts, (prompt, 1), network.model.depth())? {
            let read = said.tokens.len().saturating_sub(thoughts.fields.len());
            tokens.extend_from_slice(&said.tokens[..read]);
        }
    }
    Ok(tokens)
}

impl Trace {
    /// Runs a model on one text.
    ///
    /// # Errors
    /// The tokens are none of the model's, or too many.
    #[inline(never)]
    pub fn record<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Self, ModelError> {
        let Network { config, model, weights, .. } = network;
        let length = tokens.len() / config.input.fields();
        if length > MOST_TOKENS {
            let expected = format!("at most {MOST_TOKENS}, to be drawn");
            return Err(ModelError::Shape { place: "trace", what: "number of tokens", found: length as u64, expected });
        }
        let native = network.executor();
        let depth = model.depth();
        let recorder =
            Recorder { layers: RefCell::new(vec![Vec::new(); depth]), at: RefCell::new(None), tokens: length };
        let ops = ObservedOps { native, watch: &recorder };
        let streams = model.streams(&ops, tokens, 1)?;
        let last = streams.last().unwrap_or_else(|| unreachable!("the embedding is a stream"));
        let wide = |x: &Tensor<S>| ops.values(x).into_iter().map(Scalar::to_f64).collect::<Vec<f64>>();
        let scores = wide(&model.read_out(&ops, last));
        let streams = streams.iter().map(wide).collect();
        let layers = recorder.layers.into_inner();
        let layer_columns =
            (0..depth).map(|layer| flow::layer_columns(layer, config, model.width(), weights)).collect();
        let answered = flow::answered(config, model.width(), weights);
        let idle = (0..depth).map(|layer| flow::idle(layer, &layers[layer], weights)).collect();
        Ok(Self {
            layers,
            streams,
            scores,
            width: model.width(),
            classes: model.classes(),
            layer_columns,
            answered,
            idle,
        })
    }

    /// Tokens of the text.
    pub fn tokens(&self) -> usize {
        self.streams[0].len() / self.width
    }

    /// What the stream holds at a token: as embedded for level 0, after that layer from 1 on.
    pub fn stream(&self, level: usize, token: usize) -> &[f64] {
        &self.streams[level][token * self.width..(token + 1) * self.width]
    }

    /// Scores of all classes at a token.
    pub fn scores(&self, token: usize) -> &[f64] {
        &self.scores[token * self.classes..(token + 1) * self.classes]
    }
}

/// Writes down what passes.
struct Recorder {
    layers: RefCell<Vec<Vec<MixingOp>>>,
    at: RefCell<Option<usize>>,
    /// Tokens of the text.
    tokens: usize,
}

impl Recorder {
    fn keep(&self, reading: MixingOp) {
        if let Some(layer) = *self.at.borrow() {
            self.layers.borrow_mut()[layer].push(reading);
        }
    }
}

impl<S: Scalar> OpObserver<S> for Recorder {
    fn enter(&self, name: &str) {
        *self.at.borrow_mut() = names::layer_index(name);
    }

    fn attention(&self, ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        let output = ops.attention(inputs);
        self.keep(MixingOp::attention(ops, inputs, &output));
        output
    }

    fn block_attention(&self, ops: &Native<S>, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        let output = ops.block_attention(inputs);
        let BlockAttention { query, key, value, scale, .. } = *inputs;
        let bias = composed::block_bias(ops, inputs);
        let masked = AttentionInputs { query, key, value, bias: Some(&bias), mask: AttentionMask::Causal, scale };
        self.keep(MixingOp::attention(ops, &masked, &output));
        output
    }

    fn recurrence(&self, ops: &Native<S>, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (output, state) = ops.recurrence(inputs);
        self.keep(MixingOp::recurrence(ops, inputs, &output, self.tokens));
        (output, state)
    }

    fn general_delta(&self, ops: &Native<S>, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (output, state) = ops.general_delta(inputs);
        self.keep(MixingOp::general_delta(ops, inputs, &output));
        (output, state)
    }

    fn short_convolution(&self, ops: &Native<S>, inputs: &ConvolutionInputs<'_, S>) -> (Tensor<S>, Tensor<S>) {
        let (output, state) = ops.short_convolution(inputs.x, inputs.filters, inputs.bias, inputs.state);
        self.keep(MixingOp::convolution(ops, inputs, &output));
        (output, state)
    }
}
