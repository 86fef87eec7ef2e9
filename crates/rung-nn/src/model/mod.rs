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

mod embedding;
mod experts;
mod feed_forward;
mod hooks;
pub mod names;
mod norm;
mod sharing;
#[cfg(test)]
mod tests;

pub use embedding::{Embedding, InputConfig};
pub use experts::{Experts, Gating, GroupLimit, Routing};
pub use feed_forward::{Activation, Dense, FeedForward, FeedForwardConfig, Gelu};
pub use hooks::{Hooks, MixerIndex, NoHooks};
pub use norm::{Norm, NormConfig};
pub(crate) use sharing::lends;

use hooks::{StreamHook, TargetStreamHook, rows_of};
use sharing::build_layer;

use rung_engine::{Ops, Parameter, Parameters, Role, Rounding, Scalar};
use rung_theory::stack::Plan;
use rung_theory::task::{NO_TARGET, Rng, seeded};

use crate::error::ModelError;
use crate::mixer::{Builtin, State, TokenMixer};
use crate::param_builder::{BuildSettings, Init, LayerDepth, ParamBuilder, ParamShape};
use crate::position::Positions;
use crate::precision::{Precision, rounded};

/// More weights than this are refused: eight gigabytes in single precision, before gradients.
pub const MOST_WEIGHTS: u128 = 1 << 31;

/// The weights of longer stacks are counted, not listed by name.
pub const MOST_LISTED: usize = 1 << 14;

/// Where a norm stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormPlacement {
    /// Before what it feeds, inside the residual branch.
    #[default]
    Pre,
    /// After the sum with the residual.
    Post,
}

/// Everything about a model that its plan does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// What tokens are.
    pub input: InputConfig,
    /// What can be predicted.
    pub classes: usize,
    /// Kind of norm.
    pub norm: NormConfig,
    /// Place of norms.
    pub placement: NormPlacement,
    /// The channel mixer of every layer.
    pub feed_forward: FeedForwardConfig,
    /// The activation of an MLP.
    pub gelu: Gelu,
    /// Positions.
    pub positions: Positions,
    /// Whether a token sees only those before it.
    pub causal: bool,
    /// Whether key projections start as copies of query projections.
    pub tied_query_key: bool,
    /// Whether the unembedding is the embedding: for plain vocabularies as large as the classes.
    pub tied_unembedding: bool,
    /// The field of structured tokens whose vectors, gain included, score the classes: the first id is the first class. A matrix of
    /// its own does if none is named.
    pub read_out: Option<String>,
    /// Standard deviation of fresh projections and embeddings.
    pub deviation: f64,
    /// Tokens per chunk of recurrences.
    pub chunk: usize,
    /// Bits that states and messages are kept in.
    pub precision: Precision,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            input: InputConfig::Vocabulary(256),
            classes: 256,
            norm: NormConfig::Rms,
            placement: NormPlacement::Pre,
            feed_forward: FeedForwardConfig::default(),
            gelu: Gelu::default(),
            positions: Positions::None,
            causal: true,
            tied_query_key: false,
            tied_unembedding: false,
            read_out: None,
            deviation: 0.02,
            chunk: 64,
            precision: Precision::default(),
        }
    }
}

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

/// What training makes small.
#[derive(Clone, Debug)]
pub struct TrainingLoss<T> {
    /// The sum of cross-entropies at all tokens that have a target.
    pub sum: T,
    /// How many there are.
    pub count: usize,
    /// The mean over all tokens of what mixers ask for, if any does.
    pub own: Option<T>,
    /// The sum of cross-entropies of intermediate answers, if any were given.
    pub intermediate: Option<T>,
}

/// Classes that the read-out should find in the stream after a layer, before the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntermediateTargets {
    /// The layer, from 0.
    pub layer: usize,
    /// One for each token that has a target, in order.
    pub classes: Vec<usize>,
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

impl ModelConfig {
    /// Builds a plan's network from this crate's mixers.
    ///
    /// # Errors
    /// A layer has no network, sizes do not fit each other, or there would be too many weights. Nothing is allocated then.
    pub fn init<S: Scalar>(
        &self,
        plan: &Plan,
        weights: &mut Parameters<S>,
        rng: &mut Rng,
    ) -> Result<Model, ModelError> {
        self.check(plan.width as usize)?;
        let sources = sharing::sources(plan)?;
        let build = |params: &mut ParamBuilder<'_, S>, index: usize| {
            build_layer(params, &plan.layers[index].mixers, &sources[index])
        };
        let mut model = self.init_checked(plan.width as usize, plan.layers.len(), weights, rng, build)?;
        for (layer, sources) in model.layers.iter_mut().zip(sources) {
            layer.sources = sources;
        }
        Ok(model)
    }

    /// Builds a network whose mixers come from a function of the layer's number: the way in for mixers outside of this crate.
    /// It is called twice, first to count weights and then to fill them, and names each mixer itself with [`ParamBuilder::within`].
    ///
    /// # Errors
    /// As [`ModelConfig::init`], or what the function returns.
    pub fn init_with<S: Scalar, M: TokenMixer>(
        &self,
        width: usize,
        layers: usize,
        weights: &mut Parameters<S>,
        rng: &mut Rng,
        build: impl Fn(&mut ParamBuilder<'_, S>, usize) -> Result<Vec<M>, ModelError>,
    ) -> Result<Model<M>, ModelError> {
        self.check(width)?;
        self.init_checked(width, layers, weights, rng, build)
    }

    fn init_checked<S: Scalar, M: TokenMixer>(
        &self,
        width: usize,
        layers: usize,
        weights: &mut Parameters<S>,
        rng: &mut Rng,
        build: impl Fn(&mut ParamBuilder<'_, S>, usize) -> Result<Vec<M>, ModelError>,
    ) -> Result<Model<M>, ModelError> {
        let settings = self.settings(width);
        let mut unused = seeded(0);
        self.assemble(&mut ParamBuilder::counting(settings, &mut unused), layers, &build)?;
        self.assemble(&mut ParamBuilder::new(settings, weights, rng), layers, &build)
    }

    /// The number of weights of a plan's network, without building it.
    ///
    /// # Errors
    /// As [`ModelConfig::init`].
    pub fn count(&self, plan: &Plan) -> Result<u128, ModelError> {
        let mut unused = seeded(0);
        let mut params = ParamBuilder::<f32>::counting(self.settings(plan.width as usize), &mut unused);
        self.visit(plan, &mut params)?;
        Ok(params.total())
    }

    /// Names and shapes of the weights of a plan's network, in their order, without building it.
    ///
    /// # Errors
    /// As [`ModelConfig::init`], or there are more than [`MOST_LISTED`] layers.
    pub fn list(&self, plan: &Plan) -> Result<Vec<ParamShape>, ModelError> {
        let (what, expected) = ("number of layers", format!("at most {MOST_LISTED}, to list their weights"));
        if plan.layers.len() > MOST_LISTED {
            return Err(ModelError::Shape { place: "model", what, found: plan.layers.len() as u64, expected });
        }
        let mut unused = seeded(0);
        let mut params = ParamBuilder::<f32>::listing(self.settings(plan.width as usize), &mut unused);
        self.visit(plan, &mut params)?;
        Ok(params.listed())
    }

    /// Takes every weight of a plan's network past a builder that keeps none.
    fn visit(&self, plan: &Plan, params: &mut ParamBuilder<'_, f32>) -> Result<(), ModelError> {
        self.check(plan.width as usize)?;
        let sources = sharing::sources(plan)?;
        let build = |params: &mut ParamBuilder<'_, f32>, index: usize| {
            build_layer(params, &plan.layers[index].mixers, &sources[index])
        };
        self.assemble(params, plan.layers.len(), &build)?;
        Ok(())
    }

    /// What all layers of such a model share.
    pub fn settings(&self, width: usize) -> BuildSettings {
        BuildSettings {
            width,
            chunk: self.chunk,
            deviation: self.deviation,
            positions: self.positions,
            causal: self.causal,
            tied_query_key: self.tied_query_key,
            opposed_keys: self.tied_query_key && self.input.shares_a_table(),
            precision: self.precision,
        }
    }

    /// Refuses numbers that no network can have.
    fn check(&self, width: usize) -> Result<(), ModelError> {
        let mut sizes = vec![("width", width), ("classes", self.classes), ("chunk", self.chunk)];
        sizes.push(("vocabulary", self.input.smallest()));
        if let FeedForwardConfig::Mlp { hidden: Some(hidden) }
        | FeedForwardConfig::Relu { hidden: Some(hidden) }
        | FeedForwardConfig::Glu { hidden: Some(hidden) } = self.feed_forward
        {
            sizes.push(("hidden width", hidden));
        }
        if let Some((what, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            let expected = "at least 1".to_owned();
            return Err(ModelError::Shape { place: "model", what, found: 0, expected });
        }
        let positive = |what, found: f64| {
            let bad = !(found.is_finite() && found > 0.0);
            let error = ModelError::Number { what, found: found.to_string(), expected: "a positive, finite number" };
            if bad { Err(error) } else { Ok(()) }
        };
        positive("deviation", self.deviation)?;
        if let Positions::Rotary { base } = self.positions {
            positive("base of rotary positions", base)?;
        }
        self.precision.check()?;
        if let Some(name) = self.input.repeated() {
            return Err(ModelError::SameField { name });
        }
        if let Some(name) = &self.read_out {
            let found = self.input.symbols(name);
            if found < self.classes {
                let (what, expected) = ("symbols of the read-out field", format!("at least {} classes", self.classes));
                return Err(ModelError::Shape { place: "model", what, found: found as u64, expected });
            }
        }
        if self.tied_unembedding && self.input != InputConfig::Vocabulary(self.classes) {
            let expected = "the size of a plain vocabulary, for a tied unembedding".to_owned();
            return Err(ModelError::Shape { place: "model", what: "classes", found: self.classes as u64, expected });
        }
        Ok(())
    }

    fn assemble<S: Scalar, M: TokenMixer>(
        &self,
        params: &mut ParamBuilder<'_, S>,
        layers: usize,
        build: &impl Fn(&mut ParamBuilder<'_, S>, usize) -> Result<Vec<M>, ModelError>,
    ) -> Result<Model<M>, ModelError> {
        let width = params.settings.width;
        let embedding = Embedding::init(params, &self.input);
        within_limit(params)?;
        let mut done = Vec::new();
        for index in 0..layers {
            params.depth = LayerDepth { layer: index, layers };
            let name = names::layer(index);
            done.push(params.within(&name, |params| self.layer(params, &name, |params| build(params, index)))?);
            within_limit(params)?;
        }
        let norm = (self.placement == NormPlacement::Pre).then(|| Norm::init(params, "norm", self.norm));
        let unembedding = match (embedding.single(), self.read_out.as_deref().and_then(|name| embedding.field(name))) {
            (_, Some((table, gain))) => Unembedding::Field(table, gain),
            (Some(table), _) if self.tied_unembedding => Unembedding::Matrix(table),
            _ => {
                let (shape, init) = ([self.classes, width], Init::Normal(self.deviation));
                Unembedding::Matrix(params.role(Role::Unembedding).weight("lm_head.weight", &shape, init))
            }
        };
        within_limit(params)?;
        Ok(Model {
            width,
            classes: self.classes,
            causal: self.causal,
            placement: self.placement,
            message: self.precision.message,
            embedding,
            layers: done,
            norm,
            unembedding,
            score_cap: None,
        })
    }

    fn layer<S: Scalar, M>(
        &self,
        params: &mut ParamBuilder<'_, S>,
        name: &str,
        build: impl FnOnce(&mut ParamBuilder<'_, S>) -> Result<Vec<M>, ModelError>,
    ) -> Result<Layer<M>, ModelError> {
        let number = params.depth.layer;
        let mixer_branch = Branch::of(Norm::init(params, "mixer_norm", self.norm));
        let mixers = build(params)?;
        let channel = FeedForward::init(params, self.feed_forward, self.gelu);
        let channel = channel.map(|channel| (Branch::of(Norm::init(params, "mlp_norm", self.norm)), channel));
        Ok(Layer { name: name.to_owned(), number, mixers, sources: Vec::new(), mixer_branch, channel })
    }
}

fn within_limit<S: Scalar>(params: &ParamBuilder<'_, S>) -> Result<(), ModelError> {
    if params.total() <= MOST_WEIGHTS {
        return Ok(());
    }
    Err(ModelError::TooLarge { found: params.total(), most: MOST_WEIGHTS })
}

impl<M: TokenMixer> Model<M> {
    /// Width of the residual stream.
    pub fn width(&self) -> usize {
        self.width
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
    /// before `front` run on all tokens; later ones run on the last token alone, and take in the others as the front left
    /// them. That is the same as long as no later layer's state depends on what another later layer writes, which
    /// [`construct::layers_on_all_tokens`](crate::construct::layers_on_all_tokens) finds out from the weights.
    ///
    /// # Errors
    /// Tokens do not fit the model.
    pub fn last<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        front: usize,
    ) -> Result<(O::Tensor, ModelState<O::Tensor>), ModelError> {
        let x = ops.scope("embeddings", || self.embedding.apply(ops, tokens, batch, 0))?;
        let mut x = rounded(ops, &x, self.message);
        let time = ops.shape(&x)[1];
        let mut states = Vec::with_capacity(self.mixers());
        // Norms after the sum, and shared tensors, need all tokens in every layer.
        let shared = self.layers.iter().any(|layer| layer.sources.iter().any(Option::is_some));
        let whole = shared || self.placement == NormPlacement::Post;
        let front = if whole { self.layers.len() } else { front.min(self.layers.len()) };
        for layer in &self.layers[..front] {
            let out =
                ops.scope(&layer.name, || layer.forward(ops, &x, None, &mut states, self.placement, &mut NoHooks));
            x = rounded(ops, &out, self.message);
        }
        let mut last = ops.slice(&x, 1, time - 1..time);
        let others = (time > 1).then(|| ops.slice(&x, 1, 0..time - 1));
        for layer in &self.layers[front..] {
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

    /// Scores of all classes at some tokens, counted through all rows of the batch: `[positions, classes]`. It is what
    /// [`forward`](Self::forward) and [`logits`](Self::logits) give there, with less work: beyond the last layer's mixers no
    /// token looks at another, so only these are taken through its channel mixer.
    ///
    /// # Errors
    /// As [`Model::forward`], or there is no such token, or none is named.
    pub fn scores_at<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        positions: &[usize],
    ) -> Result<O::Tensor, ModelError> {
        self.scores_beside(ops, tokens, batch, positions, |_| {})
    }

    /// The scores; `each` sees the stream as embedded and after every layer.
    fn scores_beside<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        positions: &[usize],
        each: impl FnMut(&O::Tensor),
    ) -> Result<O::Tensor, ModelError> {
        let count = tokens.len() / self.embedding.fields();
        if let Some(position) = positions.iter().find(|position| **position >= count) {
            let expected = format!("less than {count}, the number of tokens");
            return Err(ModelError::Shape { place: "scores", what: "position", found: *position as u64, expected });
        }
        if positions.is_empty() {
            let expected = "at least 1".to_owned();
            return Err(ModelError::Shape { place: "scores", what: "positions", found: 0, expected });
        }
        let Some(last) = self.depth().checked_sub(1) else {
            let (stream, _) = self.run_layers(ops, tokens, batch, None, &mut StreamHook(each))?;
            return Ok(self.read_out(ops, &rows_of(ops, &stream, positions)));
        };
        let mut asked = TargetStreamHook { each: StreamHook(each), last, positions };
        let (stream, _) = self.run_layers(ops, tokens, batch, None, &mut asked)?;
        Ok(self.read_out(ops, &stream))
    }

    /// As [`loss`](Self::loss), with what mixers ask for beside it (see [`TokenMixer::own_loss`]), and with the cross-entropy of
    /// intermediate answers, read out of the stream after the layers that are named.
    ///
    /// # Errors
    /// As [`Model::loss`].
    ///
    /// # Panics
    /// Intermediate answers are not as many as targets, or no classes.
    pub fn training_loss<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
        intermediate: &[IntermediateTargets],
    ) -> Result<TrainingLoss<O::Tensor>, ModelError> {
        let asked: Vec<usize> =
            (0..).zip(targets).filter(|(_, target)| **target != NO_TARGET).map(|(at, _)| at).collect();
        let (mut depth, mut own, mut partial) = (0, None, None);
        let more = |sum: &mut Option<O::Tensor>, term: Option<O::Tensor>| {
            *sum = sum.take().into_iter().chain(term).reduce(|sum, more| ops.add(&sum, &more));
        };
        let (sum, count) = self.loss_beside(ops, tokens, batch, targets, |x| {
            more(&mut own, self.layers.get(depth).and_then(|layer| layer.own_loss(ops, x, self.placement)));
            for part in intermediate.iter().filter(|part| part.layer + 1 == depth) {
                let scores = self.read_out(ops, &rows_of(ops, x, &asked));
                more(&mut partial, Some(ops.sum_all(&ops.cross_entropy(&scores, &part.classes))));
            }
            depth += 1;
        })?;
        Ok(TrainingLoss { sum, count, own, intermediate: partial })
    }

    /// The sum of cross-entropies at all tokens that have a target ([`NO_TARGET`] marks those that have none), and how many
    /// there are.
    ///
    /// # Errors
    /// As [`Model::forward`], or a target is no class.
    pub fn loss<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
    ) -> Result<(O::Tensor, usize), ModelError> {
        self.loss_beside(ops, tokens, batch, targets, |_| {})
    }

    /// The loss; `each` sees the stream as embedded and after every layer.
    fn loss_beside<O: Ops>(
        &self,
        ops: &O,
        tokens: &[u32],
        batch: usize,
        targets: &[u32],
        each: impl FnMut(&O::Tensor),
    ) -> Result<(O::Tensor, usize), ModelError> {
        let rows = tokens.len() / self.embedding.fields();
        if targets.len() != rows {
            let expected = format!("{rows}, one for each token");
            return Err(ModelError::Shape { place: "loss", what: "targets", found: targets.len() as u64, expected });
        }
        let asked = || targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET);
        if let Some((position, &found)) = asked().find(|(_, target)| **target as usize >= self.classes) {
            return Err(ModelError::Target { position, found, classes: self.classes });
        }
        let (positions, classes): (Vec<usize>, Vec<usize>) =
            asked().map(|(position, &target)| (position, target as usize)).unzip();
        if positions.is_empty() {
            self.run_layers(ops, tokens, batch, None, &mut StreamHook(each))?;
            return Ok((ops.zeros(&[1]), 0));
        }
        let scores = self.scores_beside(ops, tokens, batch, &positions, each)?;
        Ok((ops.sum_all(&ops.cross_entropy(&scores, &classes)), positions.len()))
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
            x = residual(ops, &x, branch, placement, true, |x| channel.apply(ops, x));
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
