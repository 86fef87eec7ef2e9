//! A recorded forward pass: which token reads which in every layer, and the residual stream between layers.
//!
//! The pass is the ordinary one, run by the ordinary executor with an [`observer`](crate::observer). Only the queries, keys and values
//! that the mixers used and the residual streams are recorded. Rows of attention weights are computed later, for the tokens that are
//! needed ([`MixingOp`]). [`Trace::flow`] starts at an answer and finds the tokens that it came from.
//!
//! ```
//! use rung_nn::construct::{self, ConstructionRequest};
//! use rung_nn::trace::{Trace, full_sequence};
//! use rung_theory::task::{Prompt, seeded};
//!
//! let network = construct::build::<f32>("U1", &ConstructionRequest::default())?;
//! let mut prompt = Prompt::new();
//! network.task()?.sample_prompt(&mut seeded(0), &mut prompt);
//! let trace = Trace::record(&network, &full_sequence(&network, prompt.tokens())?)?;
//! let flow = trace.flow(&[trace.token_count() - 1], 0.05, 12);
//! assert_eq!(flow.reads.len(), 3); // w reads z_0, then an entry of each table
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod flow;
mod mixing_op;
#[cfg(test)]
mod tests;

pub use flow::{Flow, TokenRead};
pub use mixing_op::{MixingKind, MixingOp};

use std::cell::RefCell;

use rung_engine::{
    AttentionInputs, AttentionMask, BlockAttention, GatedScan, GeneralDelta, Native, Ops, Recurrence, Scalar, Tensor,
    composed,
};

use crate::construct::{LayerColumns, decode_chains};
use crate::error::ModelError;
use crate::model::names;
use crate::network::Network;
use crate::observer::{ConvolutionInputs, ObservedOps, OpInterceptor};

/// The most tokens that a trace can have.
pub const MAX_TOKENS: usize = 1 << 14;

/// A recorded forward pass.
pub struct Trace {
    /// For every layer, the operations that mixed tokens, in the order they ran.
    pub layers: Vec<Vec<MixingOp>>,
    /// The residual stream after the embedding and after every layer, `[tokens, width]` each.
    residuals: Vec<Vec<f64>>,
    /// Logits at every token, `[tokens, classes]`.
    logits: Vec<f64>,
    width: usize,
    classes: usize,
    layer_columns: Vec<LayerColumns>,
    /// For each column of the residual stream, whether the unembedding reads it.
    read_by_unembedding: Vec<bool>,
    /// For every layer, operation and head, whether the output projection ignores the head.
    heads_without_effect: Vec<Vec<Vec<bool>>>,
}

/// The input tokens of a pass: a prompt, and the chain of thought that a construction emits after it, without its last token, which is
/// not an input.
///
/// # Errors
/// A token id is not in the model's vocabulary.
pub fn full_sequence<S: Scalar>(network: &Network<S>, prompt: &[u32]) -> Result<Vec<u32>, ModelError> {
    let mut tokens = prompt.to_vec();
    if let Some(chain_of_thought) = network.chain_of_thought() {
        let ops = network.executor();
        for emitted in decode_chains(&network.model, &ops, chain_of_thought, (prompt, 1), network.model.depth())? {
            let without_last = emitted.tokens.len().saturating_sub(chain_of_thought.field_starts.len());
            tokens.extend_from_slice(&emitted.tokens[..without_last]);
        }
    }
    Ok(tokens)
}

impl Trace {
    /// Runs a model on one sequence of tokens and records the pass.
    ///
    /// # Errors
    /// A token id is not in the model's vocabulary, or there are more than [`MAX_TOKENS`] tokens.
    #[inline(never)]
    pub fn record<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Self, ModelError> {
        let Network { config, model, weights, .. } = network;
        let token_count = tokens.len() / config.input.field_count();
        if token_count > MAX_TOKENS {
            let expected = format!("at most {MAX_TOKENS}");
            return Err(ModelError::InvalidSize {
                component: "trace",
                what: "number of tokens",
                found: token_count as u64,
                expected,
            });
        }
        let native = network.executor();
        let depth = model.depth();
        let recorder =
            Recorder { layers: RefCell::new(vec![Vec::new(); depth]), current_layer: RefCell::new(None), token_count };
        let ops = ObservedOps { native, interceptor: &recorder };
        let residuals = model.residuals(&ops, tokens, 1)?;
        let last_residual = residuals.last().unwrap_or_else(|| unreachable!("the embedding is a level"));
        let to_f64 = |x: &Tensor<S>| ops.values(x).into_iter().map(Scalar::to_f64).collect::<Vec<f64>>();
        let logits = to_f64(&model.logits_from_residual(&ops, last_residual));
        let residuals = residuals.iter().map(to_f64).collect();
        let layers = recorder.layers.into_inner();
        let layer_columns =
            (0..depth).map(|layer| flow::layer_columns(layer, config, model.width(), weights)).collect();
        let read_by_unembedding = flow::read_by_unembedding(config, model.width(), weights);
        let heads_without_effect =
            (0..depth).map(|layer| flow::heads_without_effect(layer, &layers[layer], weights)).collect();
        Ok(Self {
            layers,
            residuals,
            logits,
            width: model.width(),
            classes: model.classes(),
            layer_columns,
            read_by_unembedding,
            heads_without_effect,
        })
    }

    /// The number of tokens.
    pub fn token_count(&self) -> usize {
        self.residuals[0].len() / self.width
    }

    /// The residual stream at a token: after the embedding for level 0, after layer `level - 1` from 1 on.
    pub fn residual(&self, level: usize, token: usize) -> &[f64] {
        &self.residuals[level][token * self.width..(token + 1) * self.width]
    }

    /// Logits of all classes at a token.
    pub fn logits(&self, token: usize) -> &[f64] {
        &self.logits[token * self.classes..(token + 1) * self.classes]
    }
}

/// The observer that records mixing operations.
struct Recorder {
    layers: RefCell<Vec<Vec<MixingOp>>>,
    /// The layer that runs, if any.
    current_layer: RefCell<Option<usize>>,
    token_count: usize,
}

impl Recorder {
    fn record(&self, op: MixingOp) {
        if let Some(layer) = *self.current_layer.borrow() {
            self.layers.borrow_mut()[layer].push(op);
        }
    }
}

impl<S: Scalar> OpInterceptor<S> for Recorder {
    fn enter(&self, name: &str) {
        *self.current_layer.borrow_mut() = names::layer_index(name);
    }

    fn attention(&self, ops: &Native<S>, inputs: &AttentionInputs<'_, Tensor<S>>) -> Tensor<S> {
        let output = ops.attention(inputs);
        self.record(MixingOp::attention(ops, inputs, &output));
        output
    }

    fn block_attention(&self, ops: &Native<S>, inputs: &BlockAttention<'_, Tensor<S>>) -> Tensor<S> {
        let output = ops.block_attention(inputs);
        let BlockAttention { query, key, value, scale, .. } = *inputs;
        let bias = composed::block_bias(ops, inputs);
        let masked = AttentionInputs { query, key, value, bias: Some(&bias), mask: AttentionMask::Causal, scale };
        self.record(MixingOp::attention(ops, &masked, &output));
        output
    }

    fn recurrence(&self, ops: &Native<S>, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (output, state) = ops.recurrence(inputs);
        self.record(MixingOp::recurrence(ops, inputs, &output, self.token_count));
        (output, state)
    }

    fn general_delta(&self, ops: &Native<S>, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (output, state) = ops.general_delta(inputs);
        self.record(MixingOp::general_delta(ops, inputs, &output));
        (output, state)
    }

    fn gated_scan(&self, ops: &Native<S>, inputs: &GatedScan<'_, Tensor<S>>) -> Tensor<S> {
        let states = ops.gated_scan(inputs);
        self.record(MixingOp::gated_scan(ops, inputs, &states));
        states
    }

    fn short_convolution(&self, ops: &Native<S>, inputs: &ConvolutionInputs<'_, S>) -> (Tensor<S>, Tensor<S>) {
        let (output, state) = ops.short_convolution(inputs.x, inputs.filters, inputs.bias, inputs.state);
        self.record(MixingOp::convolution(ops, inputs, &output));
        (output, state)
    }
}
