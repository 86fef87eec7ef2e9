//! Models: embeddings, layers, unembedding.
//!
//! A layer is one or more parallel token mixers, whose outputs are summed, then a feed-forward network, each with a norm and a residual
//! connection:
//!
//! ```text
//! pre:   x + mixers(norm(x))        then  x + feed_forward(norm(x))    and a final norm before the unembedding
//! post:  norm(x + mixers(x))        then  norm(x + feed_forward(x))
//! ```
//!
//! Names of weights: `embeddings.weight` (or `embeddings.<alphabet>.weight` and `embeddings.<field>.gain` for structured tokens),
//! `positions.weight`, `layers.0.mixer_norm.weight`, `layers.0.mixer.q_proj.weight` (`layers.0.mixers.1.q_proj.weight` in a layer with
//! several mixers), `layers.0.mlp_norm.weight`, `layers.0.mlp.up_proj.weight`, `norm.weight`, `lm_head.weight`.

mod config;
mod embedding;
mod experts;
mod feed_forward;
mod hooks;
mod loss;
pub mod names;
mod sharing;
#[cfg(test)]
mod tests;

pub use crate::norm::{Norm, NormConfig};
pub use crate::submodules::Activation;
pub use config::{MAX_LISTED_LAYERS, MAX_WEIGHTS, ModelConfig, NormPlacement};
pub use embedding::{Embedding, InputConfig};
pub use experts::{Experts, Gating, GroupLimit, Routing};
pub use feed_forward::{FeedForward, FeedForwardConfig, Gelu, Mlp};
pub use hooks::{Hooks, MixerIndex, NoHooks};
pub use loss::{IntermediateTargets, TrainingLoss};
pub(crate) use sharing::uses_shared_tensor;

use hooks::ResidualHook;

use rung_engine::{Ops, Parameter, Rounding};

use crate::error::ModelError;
use crate::mixer::{Builtin, MAX_STATE_TENSORS, State, TokenMixer};
use crate::precision::apply_rounding;

/// Index in the last mixer's state of the last token, for a feed-forward network with token shift. RWKV's mixers do not use this index.
const FEED_FORWARD_TENSOR: usize = MAX_STATE_TENSORS - 1;

/// A network: the handles of its weights and its forward pass.
pub struct Model<M = Builtin> {
    width: usize,
    classes: usize,
    causal: bool,
    placement: NormPlacement,
    /// Rounding of the residual stream after the embedding and after every layer.
    residual_rounding: Option<Rounding>,
    embedding: Embedding,
    layers: Vec<Layer<M>>,
    norm: Option<Norm>,
    unembedding: Unembedding,
    /// Logits become `cap tanh(logit / cap)`.
    logit_cap: Option<f64>,
}

/// The weights that map hidden states to logits.
enum Unembedding {
    /// A matrix, `[classes, width]` or more rows.
    Matrix(Parameter),
    /// The embedding table of a field, and its gain.
    Field(Parameter, Option<Parameter>),
}

struct Layer<M> {
    name: String,
    index: usize,
    mixers: Vec<M>,
    /// For every mixer, the index in the model of the earlier mixer whose shared tensor it uses, if any.
    shared_tensor_sources: Vec<Option<usize>>,
    mixer_branch: ResidualBranch,
    feed_forward: Option<(ResidualBranch, FeedForward)>,
}

/// The residual branch around a layer's mixers, or around its feed-forward network: norms and scales.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResidualBranch {
    /// The pre-norm or post-norm, see [`NormPlacement`].
    pub(crate) norm: Norm,
    /// Norm of the branch's output, before it is added to the residual stream.
    pub(crate) output_norm: Option<Norm>,
    /// Factor on the branch's output, if not one.
    pub(crate) output_scale: Option<f64>,
    /// If set, the output is added to the normed residual stream times this factor, not to the residual stream itself.
    pub(crate) normed_residual_scale: Option<f64>,
}

impl ResidualBranch {
    /// A branch with a norm only.
    pub(crate) fn with_norm(norm: Norm) -> Self {
        Self { norm, output_norm: None, output_scale: None, normed_residual_scale: None }
    }
}

/// A layer whose weights were read from a checkpoint.
pub(crate) struct LoadedLayer<M> {
    /// The residual branch around the mixers.
    pub(crate) mixer_branch: ResidualBranch,
    /// The token mixers, whose outputs are summed.
    pub(crate) mixers: Vec<M>,
    /// The feed-forward network and the residual branch around it.
    pub(crate) feed_forward: Option<(ResidualBranch, FeedForward)>,
}

/// A model whose weights were read from a checkpoint.
pub(crate) struct LoadedModel<M> {
    pub(crate) width: usize,
    pub(crate) classes: usize,
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<LoadedLayer<M>>,
    /// For every layer and mixer, the index of the earlier mixer whose shared tensor it uses; empty if there is none.
    pub(crate) shared_tensor_sources: Vec<Vec<Option<usize>>>,
    pub(crate) norm: Norm,
    /// `[classes, width]`.
    pub(crate) unembedding: Parameter,
    pub(crate) logit_cap: Option<f64>,
}

impl<M> From<LoadedModel<M>> for Model<M> {
    fn from(loaded: LoadedModel<M>) -> Self {
        let sources = loaded.shared_tensor_sources;
        let build_layer = |(index, layer): (usize, LoadedLayer<M>)| Layer {
            name: names::layer(index),
            index,
            shared_tensor_sources: sources.get(index).cloned().unwrap_or_default(),
            mixers: layer.mixers,
            mixer_branch: layer.mixer_branch,
            feed_forward: layer.feed_forward,
        };
        Self {
            width: loaded.width,
            classes: loaded.classes,
            causal: true,
            placement: NormPlacement::Pre,
            residual_rounding: None,
            embedding: loaded.embedding,
            layers: loaded.layers.into_iter().enumerate().map(build_layer).collect(),
            norm: Some(loaded.norm),
            unembedding: Unembedding::Matrix(loaded.unembedding),
            logit_cap: loaded.logit_cap,
        }
    }
}

/// The cache of a model: the states of its mixers after the tokens so far.
#[derive(Clone, Debug)]
pub struct ModelState<T> {
    /// Number of tokens processed so far, which is the position of the next token.
    pub past_len: usize,
    /// Number of rows of the batch.
    pub batch: usize,
    /// The states of all mixers, layer by layer.
    pub states: Vec<State<T>>,
}

impl<T> ModelState<T> {
    /// Number of elements of all states, for one row of the batch.
    pub fn element_count<O: Ops<Tensor = T>>(&self, ops: &O) -> usize {
        self.states.iter().map(|state| state.element_count(ops)).sum()
    }
}

impl<M: TokenMixer> Model<M> {
    /// Width of the residual stream.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Replaces all mixers of a layer by one.
    pub(crate) fn replace_mixer(&mut self, layer: usize, mixer: M) {
        self.layers[layer].shared_tensor_sources = vec![None];
        self.layers[layer].mixers = vec![mixer];
    }

    /// Number of classes that the model predicts.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Runs tokens, continuing from a state if there is one. Tokens are `batch` rows one after another, each token an id per field.
    ///
    /// # Shapes
    /// The result is `[batch, time, width]`, after the final norm, for [`logits`](Self::logits).
    ///
    /// # Errors
    /// Tokens do not fit the model, or the state belongs to another model or batch.
    #[inline(never)]
    pub fn forward<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        state: Option<&ModelState<O::Tensor>>,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        self.run_layers(ops, tokens, batch, state, &mut NoHooks).map(|(x, state)| (self.final_norm(ops, &x), state))
    }

    /// The last token's row of [`forward`](Self::forward), `[batch, 1, width]`, and the state after it, with less work: the first
    /// `layers_on_all_tokens` layers run on all tokens. Later layers run on the last token only; their states take the other tokens from the
    /// output of layer `layers_on_all_tokens`. The result is the same if no later layer's state depends on the output of another later layer, which
    /// [`construct::layers_on_all_tokens`](crate::construct::layers_on_all_tokens) finds from the weights.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    #[inline(never)]
    pub fn forward_last<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        layers_on_all_tokens: usize,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        let x = ops.scope("embeddings", || self.embedding.apply(ops, tokens, batch, 0))?;
        let mut x = apply_rounding(ops, &x, self.residual_rounding);
        let time = ops.shape(&x)[1];
        let mut states = Vec::with_capacity(self.mixer_count());
        // Post-norms, shared tensors, and feed-forward networks with token shift need all tokens in every layer.
        let shares_tensors = self.layers.iter().any(|layer| layer.shared_tensor_sources.iter().any(Option::is_some));
        let has_token_shift = self.layers.iter().any(Layer::has_token_shift);
        let needs_all_tokens = shares_tensors || has_token_shift || self.placement == NormPlacement::Post;
        let layers_on_all_tokens =
            if needs_all_tokens { self.layers.len() } else { layers_on_all_tokens.min(self.layers.len()) };
        for layer in &self.layers[..layers_on_all_tokens] {
            let out =
                ops.scope(&layer.name, || layer.forward(ops, &x, None, &mut states, self.placement, &mut NoHooks));
            x = apply_rounding(ops, &out, self.residual_rounding);
        }
        let mut last_token = ops.slice(&x, 1, time - 1..time);
        let earlier_tokens = (time > 1).then(|| ops.slice(&x, 1, 0..time - 1));
        for layer in &self.layers[layers_on_all_tokens..] {
            let past_states: Option<Vec<_>> = earlier_tokens.as_ref().map(|earlier_tokens| {
                let normed = layer.mixer_branch.norm.apply(ops, earlier_tokens);
                layer.mixers.iter().map(|mixer| mixer.advance_state(ops, &normed, None)).collect()
            });
            let out = ops.scope(&layer.name, || {
                layer.forward(ops, &last_token, past_states.as_deref(), &mut states, self.placement, &mut NoHooks)
            });
            last_token = apply_rounding(ops, &out, self.residual_rounding);
        }
        for state in &mut states {
            state.shared = None;
        }
        Ok((self.final_norm(ops, &last_token), ModelState { past_len: time, batch, states }))
    }

    /// The residual stream of every token, `[batch, time, width]`, after the embedding and after each layer.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    pub fn residuals<O: Ops>(&self, ops: &O, tokens: &[u32], batch: usize) -> Result<Vec<O::Tensor>, ModelError> {
        self.residuals_from_state(ops, tokens, batch, None)
    }

    /// As [`residuals`](Self::residuals), starting from a state.
    ///
    /// # Errors
    /// As [`Model::forward`].
    #[inline(never)]
    pub fn residuals_from_state<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        state: Option<&ModelState<O::Tensor>>,
    ) -> Result<Vec<O::Tensor>, ModelError> {
        let mut residuals = Vec::with_capacity(self.depth() + 1);
        self.run_layers(ops, tokens, batch, state, &mut ResidualHook(|x: &O::Tensor| residuals.push(x.clone())))?;
        Ok(residuals)
    }

    /// The last of [`residuals`](Self::residuals), in a forward pass with hooks that may change it.
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

    /// Embeds tokens and runs all layers: the residual stream after the last layer, and the states.
    fn run_layers<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        state: Option<&ModelState<O::Tensor>>,
        hooks: &mut impl Hooks<O>,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        self.check_state(batch, state)?;
        let past_len = state.map_or(0, |state| state.past_len);
        let x = ops.scope("embeddings", || self.embedding.apply(ops, tokens, batch, past_len))?;
        let mut x = apply_rounding(ops, &x, self.residual_rounding);
        let time = ops.shape(&x)[1];
        let mut states = Vec::with_capacity(self.mixer_count());
        x = hooks.residual(ops, 0, x);
        for (index, layer) in self.layers.iter().enumerate() {
            let first = states.len();
            let past_states = state.map(|state| &state.states[first..first + layer.mixers.len()]);
            x = ops.scope(&layer.name, || {
                let x = layer.forward(ops, &x, past_states, &mut states, self.placement, hooks);
                apply_rounding(ops, &x, self.residual_rounding)
            });
            x = hooks.residual(ops, index + 1, x);
        }
        for state in &mut states {
            state.shared = None;
        }
        Ok((x, ModelState { past_len: past_len + time, batch, states }))
    }

    fn final_norm<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        self.norm.as_ref().map_or_else(|| x.clone(), |norm| norm.apply(ops, x))
    }

    /// Logits of a residual stream after the last layer: final norm and unembedding.
    pub fn logits_from_residual<O: Ops>(&self, ops: &O, residual: &O::Tensor) -> O::Tensor {
        self.logits(ops, &self.final_norm(ops, residual))
    }

    /// Number of layers.
    pub fn depth(&self) -> usize {
        self.layers.len()
    }

    /// Logits of rows of the result of [`forward`](Self::forward), with any leading axes.
    #[inline(never)]
    pub fn logits<O: Ops>(&self, ops: &O, hidden: &O::Tensor) -> O::Tensor {
        ops.scope("lm_head", || {
            let logits = ops.linear(hidden, &self.unembedding_matrix(ops), None);
            self.logit_cap.map_or(logits.clone(), |cap| ops.scale(&ops.tanh(&ops.scale(&logits, 1.0 / cap)), cap))
        })
    }

    /// The input of the first layer, `[1, time, width]`, for tokens from position 0 on.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    pub fn embed<O: Ops>(&self, ops: &O, tokens: &[u32]) -> Result<O::Tensor, ModelError> {
        self.embedding.apply(ops, tokens, 1, 0)
    }

    /// The unembedding, `[classes, width]`.
    pub(crate) fn unembedding_matrix<O: Ops>(&self, ops: &O) -> O::Tensor {
        match self.unembedding {
            Unembedding::Matrix(table) => ops.parameter(table),
            Unembedding::Field(table, gain) => {
                let rows = ops.slice(&ops.parameter(table), 0, 0..self.classes);
                gain.map_or(rows.clone(), |gain| ops.mul(&rows, &ops.parameter(gain)))
            }
        }
    }

    fn mixer_count(&self) -> usize {
        self.layers.iter().map(|layer| layer.mixers.len()).sum()
    }

    fn check_state<T>(&self, batch: usize, state: Option<&ModelState<T>>) -> Result<(), ModelError> {
        let Some(state) = state else { return Ok(()) };
        if !self.causal {
            return Err(ModelError::StateOfBidirectional);
        }
        if state.batch == batch && state.states.len() == self.mixer_count() {
            return Ok(());
        }
        Err(ModelError::WrongState {
            found: format!("{} rows and {} mixers", state.batch, state.states.len()),
            expected: format!("{batch} rows and {} mixers", self.mixer_count()),
        })
    }
}

impl<M> Layer<M> {
    /// Whether its feed-forward network has a token shift.
    fn has_token_shift(&self) -> bool {
        self.feed_forward.as_ref().is_some_and(|(_, network)| network.has_token_shift())
    }
}

impl<M: TokenMixer> Layer<M> {
    /// The sum of the auxiliary losses of its mixers, given the residual stream before the layer.
    fn auxiliary_loss<O: Ops>(&self, ops: &O, x: &O::Tensor, placement: NormPlacement) -> Option<O::Tensor> {
        let input = || match placement {
            NormPlacement::Pre => self.mixer_branch.norm.apply(ops, x),
            NormPlacement::Post => x.clone(),
        };
        let losses = self.mixers.iter().filter_map(|mixer| mixer.auxiliary_loss(ops, input));
        losses.reduce(|sum, loss| ops.add(&sum, &loss))
    }

    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        past_states: Option<&[State<O::Tensor>]>,
        states: &mut Vec<State<O::Tensor>>,
        placement: NormPlacement,
        hooks: &mut impl Hooks<O>,
    ) -> O::Tensor {
        let adds_residual = hooks.adds_residual();
        let mut x = apply_branch(ops, x, &self.mixer_branch, placement, adds_residual, |x| {
            let mut sum: Option<O::Tensor> = None;
            for (index, mixer) in self.mixers.iter().enumerate() {
                let past_state = past_states.map(|states| &states[index]);
                let state_with_shared = self.shared_tensor_sources.get(index).copied().flatten().map(|source| State {
                    past_len: states[source].past_len - ops.shape(x)[1],
                    tensors: past_state.map_or_else(Default::default, |state| state.tensors.clone()),
                    shared: states[source].shared.clone(),
                });
                let (out, next) = mixer.forward(ops, x, state_with_shared.as_ref().or(past_state));
                states.push(next);
                let out = hooks.mixer_output(ops, MixerIndex { layer: self.index, mixer: index }, x, out);
                sum = Some(sum.map_or(out.clone(), |sum| ops.add(&sum, &out)));
            }
            sum.unwrap_or_else(|| ops.zeros(&ops.shape(x)))
        });
        x = hooks.after_mixers(ops, self.index, x);
        if let Some((branch, feed_forward)) = self.feed_forward.as_ref().filter(|_| hooks.runs_feed_forward()) {
            // The token before the first of `x` is in the state of the layer's last mixer.
            let previous_token = past_states
                .and_then(|states| states.last())
                .and_then(|state| state.tensors[FEED_FORWARD_TENSOR].as_ref());
            let mut last_token = None;
            x = apply_branch(ops, &x, branch, placement, true, |x| {
                let (out, last) = feed_forward.apply(ops, x, previous_token);
                last_token = last;
                out
            });
            if last_token.is_some()
                && let Some(state) = states.last_mut()
            {
                state.tensors[FEED_FORWARD_TENSOR] = last_token;
            }
        }
        x
    }
}

/// Norm, `body`, output norm and scale, and the sum with the residual stream if `adds_residual`.
fn apply_branch<O: Ops>(
    ops: &O,
    x: &O::Tensor,
    branch: &ResidualBranch,
    placement: NormPlacement,
    adds_residual: bool,
    body: impl FnOnce(&O::Tensor) -> O::Tensor,
) -> O::Tensor {
    let ResidualBranch { norm, output_norm, output_scale, normed_residual_scale } = branch;
    let add_to_residual = |residual: &O::Tensor, out: O::Tensor| {
        let out = output_norm.as_ref().map_or(out.clone(), |norm| norm.apply(ops, &out));
        let out = output_scale.map_or(out.clone(), |scale| ops.scale(&out, scale));
        if adds_residual { ops.add(residual, &out) } else { out }
    };
    match placement {
        NormPlacement::Pre => {
            let normed = norm.apply(ops, x);
            let out = body(&normed);
            match normed_residual_scale {
                Some(factor) => add_to_residual(&ops.scale(&normed, *factor), out),
                None => add_to_residual(x, out),
            }
        }
        NormPlacement::Post => norm.apply(ops, &add_to_residual(x, body(x))),
    }
}
