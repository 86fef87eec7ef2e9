//! Models: embeddings, layers, unembedding.
//!
//! A layer is one or more token mixers side by side, whose outputs are added up, then a channel mixer; each is wrapped in a norm
//! and a residual connection:
//!
//! ```text
//! pre:   x + mixers(norm(x))        then  x + channel(norm(x))         and a last norm before the unembedding
//! post:  norm(x + mixers(x))        then  norm(x + channel(x))
//! ```
//!
//! Names of weights: `embeddings.weight` (or `embeddings.<alphabet>.weight` and `embeddings.<field>.gain` for structured tokens),
//! `positions.weight`,
//! `layers.0.mixer_norm.weight`, `layers.0.mixer.q_proj.weight` (`layers.0.mixers.1.q_proj.weight` where several stand side by
//! side), `layers.0.mlp_norm.weight`, `layers.0.mlp.up_proj.weight`, `norm.weight`, `lm_head.weight`.

mod config;
mod embedding;
mod experts;
mod feed_forward;
mod hooks;
mod loss;
pub mod names;
mod norm;
mod sharing;
#[cfg(test)]
mod tests;

pub use config::{MOST_LISTED, MOST_WEIGHTS, ModelConfig, NormPlacement};
pub use embedding::{Embedding, InputConfig};
pub use experts::{Experts, Gating, GroupLimit, Routing};
pub use feed_forward::{Activation, Dense, FeedForward, FeedForwardConfig, Gelu};
pub use hooks::{Hooks, MixerIndex, NoHooks};
pub use loss::{IntermediateTargets, TrainingLoss};
pub use norm::{Norm, NormConfig};
pub(crate) use sharing::lends;

use hooks::StreamHook;

use rung_engine::{Ops, Parameter, Rounding};

use crate::error::ModelError;
use crate::mixer::{Builtin, SLOTS, State, TokenMixer};
use crate::precision::rounded;

/// Where a mixer's state keeps the token that a shifted channel mixer of the same layer takes in. RWKV's mixers leave the slot free.
const CHANNEL_SLOT: usize = SLOTS - 1;

/// A network: handles of its weights, and how they are applied.
pub struct Model<M = Builtin> {
    width: usize,
    classes: usize,
    causal: bool,
    placement: NormPlacement,
    message: Option<Rounding>,
    embedding: Embedding,
    layers: Vec<Layer<M>>,
    norm: Option<Norm>,
    unembedding: Unembedding,
    /// Scores become `cap tanh(score / cap)`.
    score_cap: Option<f64>,
}

/// What scores classes.
enum Unembedding {
    /// A matrix, `[classes, width]` or more rows.
    Matrix(Parameter),
    /// The vectors of a field, and its gain.
    Field(Parameter, Option<Parameter>),
}

struct Layer<M> {
    name: String,
    number: usize,
    mixers: Vec<M>,
    /// For every mixer, the one before it in the model that lends it something, if one does.
    sources: Vec<Option<usize>>,
    mixer_branch: Branch,
    channel: Option<(Branch, FeedForward)>,
}

/// What stands around mixers, or around a channel mixer, inside of the residual connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    /// Where [`NormPlacement`] says.
    pub(crate) norm: Norm,
    /// On what comes out, before it is added to the stream.
    pub(crate) after: Option<Norm>,
    /// Factor on what comes out, if not one.
    pub(crate) scale: Option<f64>,
    /// Where there is one, the residual connection carries the normed stream times this, not the stream itself.
    pub(crate) carried: Option<f64>,
}

impl Branch {
    /// A norm and nothing else.
    pub(crate) fn of(norm: Norm) -> Self {
        Self { norm, after: None, scale: None, carried: None }
    }
}

/// A layer whose weights were read from a checkpoint.
pub(crate) struct LayerParts<M> {
    /// Token mixers side by side, and what stands around them.
    pub(crate) mixers: (Branch, Vec<M>),
    /// The channel mixer, and what stands around it.
    pub(crate) channel: Option<(Branch, FeedForward)>,
}

/// A model whose weights were read from a checkpoint.
pub(crate) struct ModelParts<M> {
    pub(crate) width: usize,
    pub(crate) classes: usize,
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<LayerParts<M>>,
    /// For every layer, for every mixer of it, the mixer before it that shares something with it; empty where none does.
    pub(crate) sources: Vec<Vec<Option<usize>>>,
    pub(crate) norm: Norm,
    /// `[classes, width]`.
    pub(crate) unembedding: Parameter,
    pub(crate) score_cap: Option<f64>,
}

impl<M> From<ModelParts<M>> for Model<M> {
    fn from(parts: ModelParts<M>) -> Self {
        let sources = parts.sources;
        let layer = |(number, parts): (usize, LayerParts<M>)| Layer {
            name: format!("layers.{number}"),
            number,
            sources: sources.get(number).cloned().unwrap_or_default(),
            mixers: parts.mixers.1,
            mixer_branch: parts.mixers.0,
            channel: parts.channel,
        };
        Self {
            width: parts.width,
            classes: parts.classes,
            causal: true,
            placement: NormPlacement::Pre,
            message: None,
            embedding: parts.embedding,
            layers: parts.layers.into_iter().enumerate().map(layer).collect(),
            norm: Some(parts.norm),
            unembedding: Unembedding::Matrix(parts.unembedding),
            score_cap: parts.score_cap,
        }
    }
}

/// What a model hands on from one span of tokens to the next.
#[derive(Clone, Debug)]
pub struct ModelState<T> {
    /// Tokens so far.
    pub seen: usize,
    /// Rows of the batch it is for.
    pub batch: usize,
    /// For every layer, a state for each of its mixers, in order.
    pub states: Vec<State<T>>,
}

impl<T> ModelState<T> {
    /// Numbers in it, for one row of the batch.
    pub fn numbers<O: Ops<Tensor = T>>(&self, ops: &O) -> usize {
        self.states.iter().map(|state| state.numbers(ops)).sum()
    }
}

impl<M: TokenMixer> Model<M> {
    /// Width of the residual stream.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Puts a mixer in the place of all that a layer has.
    pub(crate) fn replace_mixer(&mut self, layer: usize, mixer: M) {
        self.layers[layer].sources = vec![None];
        self.layers[layer].mixers = vec![mixer];
    }

    /// What can be predicted.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Runs a span of tokens, going on from a state. Tokens are `batch` rows one after another, each token an id per field.
    ///
    /// # Shapes
    /// The result is `[batch, time, width]`, normed and ready for [`logits`](Self::logits).
    ///
    /// # Errors
    /// Tokens do not fit the model, or the state belongs elsewhere.
    #[inline(never)]
    pub fn forward<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        state: Option<&ModelState<O::Tensor>>,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        self.run_layers(ops, tokens, batch, state, &mut NoHooks).map(|(x, state)| (self.normed(ops, &x), state))
    }

    /// The last token's row of [`forward`](Self::forward), `[batch, 1, width]`, and the state after it, with less work: layers
    /// before `on_all_tokens` run on all tokens; later ones run on the last token alone, and take in the others as those left
    /// them. That is the same as long as no later layer's state depends on what another later layer writes, which
    /// [`construct::layers_on_all_tokens`](crate::construct::layers_on_all_tokens) finds out from the weights.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    #[inline(never)]
    pub fn last<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        on_all_tokens: usize,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        let x = ops.scope("embeddings", || self.embedding.apply(ops, tokens, batch, 0))?;
        let mut x = rounded(ops, &x, self.message);
        let time = ops.shape(&x)[1];
        let mut states = Vec::with_capacity(self.mixers());
        // Norms after the sum, shared tensors, and channel mixers with a shift need all tokens in every layer.
        let shared = self.layers.iter().any(|layer| layer.sources.iter().any(Option::is_some));
        let shifted = self.layers.iter().any(Layer::is_channel_shifted);
        let whole = shared || shifted || self.placement == NormPlacement::Post;
        let on_all_tokens = if whole { self.layers.len() } else { on_all_tokens.min(self.layers.len()) };
        for layer in &self.layers[..on_all_tokens] {
            let out =
                ops.scope(&layer.name, || layer.forward(ops, &x, None, &mut states, self.placement, &mut NoHooks));
            x = rounded(ops, &out, self.message);
        }
        let mut last = ops.slice(&x, 1, time - 1..time);
        let others = (time > 1).then(|| ops.slice(&x, 1, 0..time - 1));
        for layer in &self.layers[on_all_tokens..] {
            let before: Option<Vec<_>> = others.as_ref().map(|others| {
                let normed = layer.mixer_branch.norm.apply(ops, others);
                layer.mixers.iter().map(|mixer| mixer.advance_state(ops, &normed, None)).collect()
            });
            let out = ops.scope(&layer.name, || {
                layer.forward(ops, &last, before.as_deref(), &mut states, self.placement, &mut NoHooks)
            });
            last = rounded(ops, &out, self.message);
        }
        for state in &mut states {
            state.shared = None;
        }
        Ok((self.normed(ops, &last), ModelState { seen: time, batch, states }))
    }

    /// The residual stream of every token, `[batch, time, width]`: as embedded, then after each layer.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    pub fn streams<O: Ops>(&self, ops: &O, tokens: &[u32], batch: usize) -> Result<Vec<O::Tensor>, ModelError> {
        self.streams_after(ops, tokens, batch, None)
    }

    /// As [`streams`](Self::streams), going on from a state.
    ///
    /// # Errors
    /// As [`Model::forward`].
    #[inline(never)]
    pub fn streams_after<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        state: Option<&ModelState<O::Tensor>>,
    ) -> Result<Vec<O::Tensor>, ModelError> {
        let mut streams = Vec::with_capacity(self.depth() + 1);
        self.run_layers(ops, tokens, batch, state, &mut StreamHook(|x: &O::Tensor| streams.push(x.clone())))?;
        Ok(streams)
    }

    /// The last of [`streams`](Self::streams), with somebody beside the pass who may change it.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    pub fn forward_with_hooks<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        hooks: &mut impl Hooks<O>,
    ) -> Result<O::Tensor, ModelError> {
        self.run_layers(ops, tokens, batch, None, hooks).map(|(x, _)| x)
    }

    /// Takes tokens through all layers.
    fn run_layers<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        state: Option<&ModelState<O::Tensor>>,
        hooks: &mut impl Hooks<O>,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        self.check_state(batch, state)?;
        let seen = state.map_or(0, |state| state.seen);
        let x = ops.scope("embeddings", || self.embedding.apply(ops, tokens, batch, seen))?;
        let mut x = rounded(ops, &x, self.message);
        let time = ops.shape(&x)[1];
        let mut states = Vec::with_capacity(self.mixers());
        x = hooks.stream(ops, 0, x);
        for (index, layer) in self.layers.iter().enumerate() {
            let first = states.len();
            let before = state.map(|state| &state.states[first..first + layer.mixers.len()]);
            x = ops.scope(&layer.name, || {
                let x = layer.forward(ops, &x, before, &mut states, self.placement, hooks);
                rounded(ops, &x, self.message)
            });
            x = hooks.stream(ops, index + 1, x);
        }
        for state in &mut states {
            state.shared = None;
        }
        Ok((x, ModelState { seen: seen + time, batch, states }))
    }

    fn normed<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        self.norm.as_ref().map_or_else(|| x.clone(), |norm| norm.apply(ops, x))
    }

    /// Scores of all classes for the last of [`streams`](Self::streams).
    pub fn read_out<O: Ops>(&self, ops: &O, stream: &O::Tensor) -> O::Tensor {
        self.logits(ops, &self.normed(ops, stream))
    }

    /// Layers.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// Scores of all classes for rows of `forward`'s result, whatever their leading axes.
    #[inline(never)]
    pub fn logits<O: Ops>(&self, ops: &O, hidden: &O::Tensor) -> O::Tensor {
        ops.scope("lm_head", || {
            let scores = ops.linear(hidden, &self.class_vectors(ops), None);
            self.score_cap.map_or(scores.clone(), |cap| ops.scale(&ops.tanh(&ops.scale(&scores, 1.0 / cap)), cap))
        })
    }

    /// The vectors of tokens as they enter the first layer, `[1, time, width]`, the first token at position 0.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    pub fn embed<O: Ops>(&self, ops: &O, tokens: &[u32]) -> Result<O::Tensor, ModelError> {
        self.embedding.apply(ops, tokens, 1, 0)
    }

    /// A vector for each class.
    pub(crate) fn class_vectors<O: Ops>(&self, ops: &O) -> O::Tensor {
        match self.unembedding {
            Unembedding::Matrix(table) => ops.parameter(table),
            Unembedding::Field(table, gain) => {
                let rows = ops.slice(&ops.parameter(table), 0, 0..self.classes);
                gain.map_or(rows.clone(), |gain| ops.mul(&rows, &ops.parameter(gain)))
            }
        }
    }

    fn mixers(&self) -> usize {
        self.layers.iter().map(|layer| layer.mixers.len()).sum()
    }

    fn check_state<T>(&self, batch: usize, state: Option<&ModelState<T>>) -> Result<(), ModelError> {
        let Some(state) = state else { return Ok(()) };
        if !self.causal {
            return Err(ModelError::NoState);
        }
        if state.batch == batch && state.states.len() == self.mixers() {
            return Ok(());
        }
        Err(ModelError::WrongState {
            found: format!("{} rows and {} mixers", state.batch, state.states.len()),
            expected: format!("{batch} rows and {} mixers", self.mixers()),
        })
    }
}

impl<M> Layer<M> {
    /// Whether its channel mixer takes in the token before.
    fn is_channel_shifted(&self) -> bool {
        self.channel.as_ref().is_some_and(|(_, channel)| channel.is_shifted())
    }
}

impl<M: TokenMixer> Layer<M> {
    /// What its mixers ask for beside the model's loss, from the stream before the layer.
    fn own_loss<O: Ops>(&self, ops: &O, x: &O::Tensor, placement: NormPlacement) -> Option<O::Tensor> {
        let input = || match placement {
            NormPlacement::Pre => self.mixer_branch.norm.apply(ops, x),
            NormPlacement::Post => x.clone(),
        };
        let losses = self.mixers.iter().filter_map(|mixer| mixer.own_loss(ops, input));
        losses.reduce(|sum, more| ops.add(&sum, &more))
    }

    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        before: Option<&[State<O::Tensor>]>,
        states: &mut Vec<State<O::Tensor>>,
        placement: NormPlacement,
        hooks: &mut impl Hooks<O>,
    ) -> O::Tensor {
        let skips = hooks.skips();
        let mut x = residual(ops, x, &self.mixer_branch, placement, skips, |x| {
            let mut sum: Option<O::Tensor> = None;
            for (index, mixer) in self.mixers.iter().enumerate() {
                let own = before.map(|before| &before[index]);
                let borrowed = self.sources.get(index).copied().flatten().map(|source| State {
                    seen: states[source].seen - ops.shape(x)[1],
                    tensors: own.map_or_else(Default::default, |own| own.tensors.clone()),
                    shared: states[source].shared.clone(),
                });
                let (out, next) = mixer.forward(ops, x, borrowed.as_ref().or(own));
                states.push(next);
                let out = hooks.mixed(ops, MixerIndex { layer: self.number, mixer: index }, x, out);
                sum = Some(sum.map_or(out.clone(), |sum| ops.add(&sum, &out)));
            }
            sum.unwrap_or_else(|| ops.zeros(&ops.shape(x)))
        });
        x = hooks.between(ops, self.number, x);
        if let Some((branch, channel)) = self.channel.as_ref().filter(|_| hooks.channels()) {
            // The token before is kept in the state of the layer's last mixer.
            let last = before.and_then(|before| before.last()).and_then(|state| state.tensors[CHANNEL_SLOT].as_ref());
            let mut next = None;
            x = residual(ops, &x, branch, placement, true, |x| {
                let (out, last) = channel.apply(ops, x, last);
                next = last;
                out
            });
            if next.is_some()
                && let Some(state) = states.last_mut()
            {
                state.tensors[CHANNEL_SLOT] = next;
            }
        }
        x
    }
}

fn residual<O: Ops>(
    ops: &O,
    x: &O::Tensor,
    branch: &Branch,
    placement: NormPlacement,
    skips: bool,
    body: impl FnOnce(&O::Tensor) -> O::Tensor,
) -> O::Tensor {
    let Branch { norm, after, scale, carried } = branch;
    let past = |x: &O::Tensor, out: O::Tensor| {
        let out = after.as_ref().map_or(out.clone(), |after| after.apply(ops, &out));
        let out = scale.map_or(out.clone(), |scale| ops.scale(&out, scale));
        if skips { ops.add(x, &out) } else { out }
    };
    match placement {
        NormPlacement::Pre => {
            let normed = norm.apply(ops, x);
            let out = body(&normed);
            match carried {
                Some(factor) => past(&ops.scale(&normed, *factor), out),
                None => past(x, out),
            }
        }
        NormPlacement::Post => norm.apply(ops, &past(x, body(x))),
    }
}
