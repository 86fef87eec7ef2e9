//! The settings of a model besides its plan, and how it is built: the settings are checked, the weights counted, then allocated.

use rung_engine::{Parameters, Role, Scalar};
use rung_theory::stack::Plan;
use rung_theory::task::{Rng, seeded};

use super::sharing::{self, build_mixers};
use super::{
    Embedding, FeedForward, FeedForwardConfig, Gelu, InputConfig, Layer, Model, Norm, NormConfig, ResidualBranch,
    Unembedding, names,
};
use crate::error::ModelError;
use crate::memory::{self, MemoryEstimate};
use crate::mixer::TokenMixer;
use crate::param_builder::{BuildSettings, Init, LayerDepth, ParamBuilder, ParamShape};
use crate::position::Positions;
use crate::precision::SimulatedPrecision;

/// The largest number of weights: eight gigabytes in single precision, without gradients.
pub const MAX_WEIGHTS: u128 = 1 << 31;

/// The largest number of layers whose weights are listed by name.
pub const MAX_LISTED_LAYERS: usize = 1 << 14;

/// Whether norms are before or after the residual sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormPlacement {
    /// At the input of each residual branch.
    #[default]
    Pre,
    /// After the sum with the residual.
    Post,
}

/// Everything about a model that its plan does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Vocabulary or fields of tokens.
    pub input: InputConfig,
    /// Number of classes that the model predicts.
    pub classes: usize,
    /// Kind of norm.
    pub norm: NormConfig,
    /// Pre-norm or post-norm.
    pub placement: NormPlacement,
    /// The feed-forward network of every layer.
    pub feed_forward: FeedForwardConfig,
    /// The activation of an MLP.
    pub gelu: Gelu,
    /// Position encoding.
    pub positions: Positions,
    /// Whether a token attends only to itself and earlier tokens.
    pub causal: bool,
    /// Whether key projections start as copies of query projections.
    pub init_key_from_query: bool,
    /// Whether the unembedding is the embedding; only for a vocabulary of as many tokens as classes.
    pub tied_unembedding: bool,
    /// The field of structured tokens whose embeddings, with their gain, serve as the unembedding: its first id is the first class. By
    /// default the unembedding is a separate matrix.
    pub unembedding_field: Option<String>,
    /// Standard deviation of the initial values of projections and embeddings.
    pub init_std: f64,
    /// Tokens per chunk of recurrences.
    pub chunk: usize,
    /// Rounding of recurrent states, and of the messages that the theory counts: the residual stream between layers and the KV cache.
    pub precision: SimulatedPrecision,
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
            init_key_from_query: false,
            tied_unembedding: false,
            unembedding_field: None,
            init_std: 0.02,
            chunk: 64,
            precision: SimulatedPrecision::default(),
        }
    }
}

impl ModelConfig {
    /// An estimate of the memory that the network of a plan needs.
    pub fn memory_estimate<'a>(&self, plan: &'a Plan) -> MemoryEstimate<'a> {
        MemoryEstimate {
            plan,
            hidden_width: self.feed_forward.hidden(plan.width as usize).unwrap_or(0) as u128,
            classes: self.classes as u128,
            chunk: self.chunk as u128,
            alibi: self.positions == Positions::Alibi,
        }
    }

    /// Builds a plan's network from this crate's mixers.
    ///
    /// # Errors
    /// A mixer is not implemented, sizes do not fit each other, or there are too many weights. Nothing is allocated then.
    #[inline(never)]
    pub fn init<S: Scalar>(
        &self,
        plan: &Plan,
        weights: &mut Parameters<S>,
        rng: &mut Rng,
    ) -> Result<Model, ModelError> {
        let sources = sharing::sources(plan)?;
        let build = |params: &mut ParamBuilder<'_, S>, index: usize| {
            build_mixers(params, &plan.layers[index].mixers, &sources[index])
        };
        let mut model = self.init_with(plan.width as usize, plan.layers.len(), weights, rng, build)?;
        for (layer, sources) in model.layers.iter_mut().zip(sources) {
            layer.shared_tensor_sources = sources;
        }
        Ok(model)
    }

    /// Builds a network whose mixers come from a function of the layer's index. Use it for mixers outside of this crate.
    /// The function is called twice, first to count weights and then to allocate them, and names each mixer with [`ParamBuilder::with_prefix`].
    ///
    /// # Errors
    /// As [`ModelConfig::init`], or the error of the function.
    pub fn init_with<S: Scalar, M: TokenMixer>(
        &self,
        width: usize,
        layers: usize,
        weights: &mut Parameters<S>,
        rng: &mut Rng,
        build: impl Fn(&mut ParamBuilder<'_, S>, usize) -> Result<Vec<M>, ModelError>,
    ) -> Result<Model<M>, ModelError> {
        self.check(width)?;
        let settings = self.settings(width);
        let mut unused_rng = seeded(0);
        let mut counting = ParamBuilder::counting(settings, &mut unused_rng);
        self.assemble(&mut counting, layers, &build)?;
        let (total, weight_bytes) = (counting.element_count(), size_of::<S>() as u128);
        memory::check(format!("{total} weights"), total.saturating_mul(weight_bytes), None)
            .map_err(ModelError::Memory)?;
        self.assemble(&mut ParamBuilder::new(settings, weights, rng), layers, &build)
    }

    /// The number of weights of a plan's network, without building it.
    ///
    /// # Errors
    /// As [`ModelConfig::init`].
    pub fn weight_count(&self, plan: &Plan) -> Result<u128, ModelError> {
        let mut unused_rng = seeded(0);
        let mut params = ParamBuilder::<f32>::counting(self.settings(plan.width as usize), &mut unused_rng);
        self.visit_plan(plan, &mut params)?;
        Ok(params.element_count())
    }

    /// Names and shapes of the weights of a plan's network, in their order, without building it.
    ///
    /// # Errors
    /// As [`ModelConfig::init`], or there are more than [`MAX_LISTED_LAYERS`] layers.
    pub fn param_shapes(&self, plan: &Plan) -> Result<Vec<ParamShape>, ModelError> {
        let (what, expected) = ("number of layers", format!("at most {MAX_LISTED_LAYERS}, to list their weights"));
        if plan.layers.len() > MAX_LISTED_LAYERS {
            return Err(ModelError::InvalidSize {
                component: "model",
                what,
                found: plan.layers.len() as u64,
                expected,
            });
        }
        let mut unused_rng = seeded(0);
        let mut params = ParamBuilder::<f32>::recording_shapes(self.settings(plan.width as usize), &mut unused_rng);
        self.visit_plan(plan, &mut params)?;
        Ok(params.into_shapes())
    }

    /// Builds a plan's network with a builder that does not allocate weights.
    fn visit_plan(&self, plan: &Plan, params: &mut ParamBuilder<'_, f32>) -> Result<(), ModelError> {
        let sources = sharing::sources(plan)?;
        self.check(plan.width as usize)?;
        let build = |params: &mut ParamBuilder<'_, f32>, index: usize| {
            build_mixers(params, &plan.layers[index].mixers, &sources[index])
        };
        self.assemble(params, plan.layers.len(), &build)?;
        Ok(())
    }

    /// The settings that all layers share.
    pub fn settings(&self, width: usize) -> BuildSettings {
        BuildSettings {
            width,
            chunk: self.chunk,
            init_std: self.init_std,
            positions: self.positions,
            causal: self.causal,
            init_key_from_query: self.init_key_from_query,
            negate_initial_key: self.init_key_from_query && self.input.has_shared_table(),
            precision: self.precision,
        }
    }

    /// Returns an error for settings outside of their allowed ranges.
    fn check(&self, width: usize) -> Result<(), ModelError> {
        let mut sizes = vec![("width", width), ("classes", self.classes), ("chunk", self.chunk)];
        sizes.push(("vocabulary", self.input.min_vocabulary()));
        if let FeedForwardConfig::Mlp { hidden: Some(hidden) }
        | FeedForwardConfig::Relu { hidden: Some(hidden) }
        | FeedForwardConfig::Glu { hidden: Some(hidden) } = self.feed_forward
        {
            sizes.push(("hidden width", hidden));
        }
        if let Some((what, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            let expected = "at least 1".to_owned();
            return Err(ModelError::InvalidSize { component: "model", what, found: 0, expected });
        }
        let require_positive = |what, found: f64| {
            let valid = found.is_finite() && found > 0.0;
            let error =
                ModelError::InvalidNumber { what, found: found.to_string(), expected: "a positive, finite number" };
            if valid { Ok(()) } else { Err(error) }
        };
        require_positive("init_std", self.init_std)?;
        if let Positions::Rotary { base } = self.positions {
            require_positive("base of rotary positions", base)?;
        }
        self.precision.check()?;
        if let Some(name) = self.input.duplicate_name() {
            return Err(ModelError::DuplicateField { name });
        }
        if let Some(name) = &self.unembedding_field {
            let found = self.input.symbol_count(name);
            if found < self.classes {
                let (what, expected) =
                    ("symbols of the unembedding field", format!("at least {} classes", self.classes));
                return Err(ModelError::InvalidSize { component: "model", what, found: found as u64, expected });
            }
        }
        if self.tied_unembedding && self.input != InputConfig::Vocabulary(self.classes) {
            let expected = "the size of a plain vocabulary, for a tied unembedding".to_owned();
            return Err(ModelError::InvalidSize {
                component: "model",
                what: "classes",
                found: self.classes as u64,
                expected,
            });
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
        check_weight_count(params)?;
        let mut built_layers = Vec::new();
        for index in 0..layers {
            params.depth = LayerDepth { layer: index, layers };
            let name = names::layer(index);
            built_layers.push(
                params.with_prefix(&name, |params| self.build_layer(params, &name, |params| build(params, index)))?,
            );
            check_weight_count(params)?;
        }
        let norm =
            (self.placement == NormPlacement::Pre).then(|| Norm::init(params, super::names::FINAL_NORM, self.norm));
        let unembedding = match (
            embedding.vocabulary_table(),
            self.unembedding_field.as_deref().and_then(|name| embedding.field_table(name)),
        ) {
            (_, Some((table, gain))) => Unembedding::Field(table, gain),
            (Some(table), _) if self.tied_unembedding => Unembedding::Matrix(table),
            _ => {
                let (shape, init) = ([self.classes, width], Init::Normal(self.init_std));
                Unembedding::Matrix(params.role(Role::Unembedding).weight("lm_head.weight", &shape, init))
            }
        };
        check_weight_count(params)?;
        Ok(Model {
            width,
            classes: self.classes,
            causal: self.causal,
            placement: self.placement,
            residual_rounding: self.precision.message,
            embedding,
            layers: built_layers,
            norm,
            unembedding,
            logit_cap: None,
        })
    }

    fn build_layer<S: Scalar, M>(
        &self,
        params: &mut ParamBuilder<'_, S>,
        name: &str,
        build: impl FnOnce(&mut ParamBuilder<'_, S>) -> Result<Vec<M>, ModelError>,
    ) -> Result<Layer<M>, ModelError> {
        let index = params.depth.layer;
        let mixer_branch = ResidualBranch::with_norm(Norm::init(params, "mixer_norm", self.norm));
        let mixers = build(params)?;
        let feed_forward = FeedForward::init(params, self.feed_forward, self.gelu);
        let feed_forward =
            feed_forward.map(|network| (ResidualBranch::with_norm(Norm::init(params, "mlp_norm", self.norm)), network));
        Ok(Layer {
            name: name.to_owned(),
            index,
            mixers,
            shared_tensor_sources: Vec::new(),
            mixer_branch,
            feed_forward,
        })
    }
}

/// Returns an error if the builder has more than [`MAX_WEIGHTS`] weights.
fn check_weight_count<S: Scalar>(params: &ParamBuilder<'_, S>) -> Result<(), ModelError> {
    if params.element_count() <= MAX_WEIGHTS {
        return Ok(());
    }
    Err(ModelError::TooLarge { found: params.element_count(), max: MAX_WEIGHTS })
}
