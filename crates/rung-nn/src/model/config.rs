//! What a model is built from besides its plan, and how it is built: check the numbers, count the weights, then fill them.

use rung_engine::{Parameters, Role, Scalar};
use rung_theory::stack::Plan;
use rung_theory::task::{Rng, seeded};

use super::sharing::{self, build_layer};
use super::{
    Branch, Embedding, FeedForward, FeedForwardConfig, Gelu, InputConfig, Layer, Model, Norm, NormConfig, Unembedding,
    names,
};
use crate::error::ModelError;
use crate::memory;
use crate::mixer::TokenMixer;
use crate::param_builder::{BuildSettings, Init, LayerDepth, ParamBuilder, ParamShape};
use crate::position::Positions;
use crate::precision::Precision;

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

impl ModelConfig {
    /// Builds a plan's network from this crate's mixers.
    ///
    /// # Errors
    /// A layer has no network, sizes do not fit each other, or there would be too many weights. Nothing is allocated then.
    #[inline(never)]
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
        let mut counted = ParamBuilder::counting(settings, &mut unused);
        self.assemble(&mut counted, layers, &build)?;
        let (total, each) = (counted.total(), size_of::<S>() as u128);
        memory::check(format!("{total} weights"), total.saturating_mul(each), None).map_err(ModelError::Memory)?;
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
