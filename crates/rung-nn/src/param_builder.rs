//! The builder that adds the weights of mixers and models to a parameter store.
//!
//! A [`ParamBuilder`] has the name prefix (`layers.3.mixer`), the settings that all layers share, and the random number generator. It
//! adds weights to [`Parameters`] under names that a PyTorch user recognises. The same code runs twice: first on a builder that only
//! counts, so that a plan of a trillion weights is rejected before anything is allocated, then on one that allocates.

use rand_chacha::rand_core::Rng as _;
use rung_engine::{Parameter, Parameters, Role, Scalar};
use rung_theory::task::Rng;

use crate::position::Positions;
use crate::precision::SimulatedPrecision;

/// Settings that all layers of a model share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildSettings {
    /// Width of the residual stream.
    pub width: usize,
    /// Tokens per chunk of a recurrence. It changes cost and rounding errors only.
    pub chunk: usize,
    /// Standard deviation of the initial values of projections.
    pub init_std: f64,
    /// Position encoding of attention.
    pub positions: Positions,
    /// Whether a token attends only to itself and earlier tokens.
    pub causal: bool,
    /// Whether key projections start as copies of query projections.
    pub init_key_from_query: bool,
    /// Whether those copies are negated in attention layers. Where fields share an embedding table, the embedding of a number as the value of
    /// a table entry starts as the negative of its embedding as an argument; with the negated copy a query for the value matches the key of the
    /// equal argument.
    pub negate_initial_key: bool,
    /// Rounding of recurrent states, and of the messages that the theory counts: the residual stream between layers and the KV cache.
    pub precision: SimulatedPrecision,
}

impl Default for BuildSettings {
    fn default() -> Self {
        Self {
            width: 64,
            chunk: 64,
            init_std: 0.02,
            positions: Positions::None,
            causal: true,
            init_key_from_query: false,
            negate_initial_key: false,
            precision: SimulatedPrecision::default(),
        }
    }
}

/// The initial values of a weight.
#[derive(Clone, Copy)]
pub enum Init<'a> {
    /// All the same.
    Constant(f64),
    /// Normal with mean zero and this standard deviation.
    Normal(f64),
    /// Uniform from the first to the second.
    Uniform(f64, f64),
    /// A function of a uniform number in `[0, 1)`.
    FromUniform(&'a dyn Fn(f64) -> f64),
}

/// Name and shape of a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamShape {
    /// The name a checkpoint uses.
    pub name: String,
    /// Sizes of the axes.
    pub shape: Vec<usize>,
}

/// What the builder does with weights.
pub(crate) enum Store<'a, S> {
    /// Counts them, and records their names and shapes if `shapes` is `Some`. All handles are the placeholder.
    Count { total: u128, placeholder: Parameter, shapes: Option<Vec<ParamShape>> },
    /// Adds them to a parameter store.
    Allocate(&'a mut Parameters<S>),
}

/// The number of a layer and of all layers. Some mixers depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerDepth {
    /// The layer's number, from 0.
    pub layer: usize,
    /// Number of layers.
    pub layers: usize,
}

impl LayerDepth {
    /// The layer of a model with one layer.
    pub const ONLY_LAYER: Self = Self { layer: 0, layers: 1 };
}

/// Adds the weights of one component after another.
pub struct ParamBuilder<'a, S> {
    /// Settings that all layers share.
    pub settings: BuildSettings,
    /// The current layer.
    pub depth: LayerDepth,
    pub(crate) store: Store<'a, S>,
    rng: &'a mut Rng,
    prefix: String,
    /// Role of the next weight.
    pub(crate) role: Role,
    /// Weights that several layers share, by name.
    shared: Vec<(&'static str, Parameter)>,
}

impl<'a, S: Scalar> ParamBuilder<'a, S> {
    /// A builder that adds weights to a store.
    pub fn new(settings: BuildSettings, weights: &'a mut Parameters<S>, rng: &'a mut Rng) -> Self {
        Self::with_store(settings, Store::Allocate(weights), rng)
    }

    /// A builder that counts weights without allocating them. The model it builds cannot run.
    pub fn counting(settings: BuildSettings, rng: &'a mut Rng) -> Self {
        let placeholder = Parameters::<S>::new().add("placeholder", &[0], Vec::new()).id();
        Self::with_store(settings, Store::Count { total: 0, placeholder, shapes: None }, rng)
    }

    fn with_store(settings: BuildSettings, store: Store<'a, S>, rng: &'a mut Rng) -> Self {
        Self {
            settings,
            depth: LayerDepth::ONLY_LAYER,
            store,
            rng,
            prefix: String::new(),
            role: Role::Other,
            shared: Vec::new(),
        }
    }

    /// A builder that records names and shapes of weights without allocating them; see [`into_shapes`](Self::into_shapes).
    pub fn recording_shapes(settings: BuildSettings, rng: &'a mut Rng) -> Self {
        let mut params = Self::counting(settings, rng);
        if let Store::Count { shapes, .. } = &mut params.store {
            *shapes = Some(Vec::new());
        }
        params
    }

    /// The recorded names and shapes; empty unless the builder records them.
    pub fn into_shapes(self) -> Vec<ParamShape> {
        match self.store {
            Store::Count { shapes, .. } => shapes.unwrap_or_default(),
            Store::Allocate(_) => Vec::new(),
        }
    }

    /// Number of weight elements so far.
    pub fn element_count(&self) -> u128 {
        match &self.store {
            Store::Count { total, .. } => *total,
            Store::Allocate(weights) => weights.size() as u128,
        }
    }

    /// Runs `build` with `name` appended to the name prefix.
    pub fn with_prefix<R>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> R) -> R {
        let outer_len = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        let result = build(self);
        self.prefix.truncate(outer_len);
        result
    }

    /// Sets the role of the next weight: `params.role(Role::Query).linear(..)`.
    pub fn role(&mut self, role: Role) -> &mut Self {
        self.role = role;
        self
    }

    /// A weight with weight decay: a matrix or a table.
    pub fn weight(&mut self, name: &str, shape: &[usize], init: Init<'_>) -> Parameter {
        self.add(name, shape, init, true)
    }

    /// A weight without weight decay: a bias, the gain of a norm.
    pub fn parameter_without_weight_decay(&mut self, name: &str, shape: &[usize], init: Init<'_>) -> Parameter {
        self.add(name, shape, init, false)
    }

    /// A weight without decay that all layers share, named without prefix: the first call adds it, later calls return the same handle.
    pub fn shared_weight(&mut self, name: &'static str, shape: &[usize], init: Init<'_>) -> Parameter {
        if let Some((_, existing)) = self.shared.iter().find(|(existing, _)| *existing == name) {
            return *existing;
        }
        let prefix = std::mem::take(&mut self.prefix);
        let added = self.parameter_without_weight_decay(name, shape, init);
        self.prefix = prefix;
        self.shared.push((name, added));
        added
    }

    fn add(&mut self, name: &str, shape: &[usize], init: Init<'_>, decays: bool) -> Parameter {
        let role = std::mem::take(&mut self.role);
        match &mut self.store {
            Store::Count { total, placeholder, shapes } => {
                let size = shape.iter().fold(1_u128, |size, &extent| size.saturating_mul(extent as u128));
                *total = total.saturating_add(size);
                if let Some(shapes) = shapes {
                    shapes.push(ParamShape { name: format!("{}{name}", self.prefix), shape: shape.to_vec() });
                }
                *placeholder
            }
            Store::Allocate(weights) => {
                let values = init.values(shape.iter().product(), self.rng);
                let added = weights.add(format!("{}{name}", self.prefix), shape, values).with_role(role);
                if decays { added.id() } else { added.without_decay().id() }
            }
        }
    }
}

impl Init<'_> {
    fn values<S: Scalar>(self, count: usize, rng: &mut Rng) -> Vec<S> {
        match self {
            Init::Constant(value) => vec![S::from_f64(value); count],
            Init::Normal(std) => (0..count).map(|_| S::from_f64(std * normal(rng))).collect(),
            Init::Uniform(low, high) => (0..count).map(|_| S::from_f64(low + (high - low) * uniform(rng))).collect(),
            Init::FromUniform(function) => (0..count).map(|_| S::from_f64(function(uniform(rng)))).collect(),
        }
    }
}

/// A number in `[0, 1)`.
pub(crate) fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A standard normal number, by the Box-Muller transform. The second number of each pair is not used, so that every number takes the same
/// number of random draws.
pub fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}
