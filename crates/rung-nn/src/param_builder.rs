//! Where a mixer is built: the place that takes its weights.
//!
//! A [`ParamBuilder`] knows the name so far (`layers.3.mixer`), the settings that all layers share, and the random numbers. Weights
//! go through it into [`Parameters`] under names that a PyTorch user recognises. The same code runs twice: first on a builder
//! that only counts, so that a plan of a trillion weights is refused before anything is allocated, then on one that fills.

use rand_chacha::rand_core::Rng as _;
use rung_engine::{Parameter, Parameters, Role, Scalar};
use rung_theory::task::Rng;

use crate::parts::{Convolution, Linear, LinearRecurrence, NormGain};
use crate::position::Positions;
use crate::precision::Precision;

/// What all layers of a model share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildSettings {
    /// Width of the residual stream.
    pub width: usize,
    /// Tokens per chunk of a recurrence. It changes the cost and the rounding, never the meaning.
    pub chunk: usize,
    /// Standard deviation of fresh projections.
    pub deviation: f64,
    /// How attention knows where tokens stand.
    pub positions: Positions,
    /// Whether a token sees only those before it.
    pub causal: bool,
    /// Whether key projections start as copies of query projections.
    pub tied_query_key: bool,
    /// Whether those of attention start as their negatives, because a value is embedded as the negative of the argument it becomes.
    pub opposed_keys: bool,
    /// Bits that states and messages are kept in.
    pub precision: Precision,
}

impl Default for BuildSettings {
    fn default() -> Self {
        Self {
            width: 64,
            chunk: 64,
            deviation: 0.02,
            positions: Positions::None,
            causal: true,
            tied_query_key: false,
            opposed_keys: false,
            precision: Precision::default(),
        }
    }
}

/// The first values of a weight.
#[derive(Clone, Copy)]
pub enum Init<'a> {
    /// All the same.
    Constant(f64),
    /// Normal with mean zero and this deviation.
    Normal(f64),
    /// Uniform from the first to the second.
    Uniform(f64, f64),
    /// A function of a uniform number in `[0, 1)`.
    FromUniform(&'a dyn Fn(f64) -> f64),
}

/// A weight before it has values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamShape {
    /// The name a checkpoint uses.
    pub name: String,
    /// Extents.
    pub shape: Vec<usize>,
}

/// What becomes of the weights.
enum Store<'a, S> {
    Count { total: u128, stand_in: Parameter, list: Option<Vec<ParamShape>> },
    Keep(&'a mut Parameters<S>),
}

/// Which layer of how many: some mixers start, or stay, different with depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerDepth {
    /// The layer's number, from 0.
    pub layer: usize,
    /// Layers in all.
    pub layers: usize,
}

impl LayerDepth {
    /// The only layer.
    pub const ALONE: Self = Self { layer: 0, layers: 1 };
}

/// The place in a model where weights are being added.
pub struct ParamBuilder<'a, S> {
    /// What all layers share.
    pub settings: BuildSettings,
    /// The layer that is being built.
    pub depth: LayerDepth,
    store: Store<'a, S>,
    rng: &'a mut Rng,
    prefix: String,
    /// Of the next weight.
    role: Role,
    /// Weights of the whole model that layers have asked for.
    common: Vec<(&'static str, Parameter)>,
}

impl<'a, S: Scalar> ParamBuilder<'a, S> {
    /// A builder that adds weights to a store.
    pub fn new(settings: BuildSettings, weights: &'a mut Parameters<S>, rng: &'a mut Rng) -> Self {
        Self::empty(settings, Store::Keep(weights), rng)
    }

    /// A builder that counts weights and keeps none. What is built on it cannot run.
    pub fn counting(settings: BuildSettings, rng: &'a mut Rng) -> Self {
        let stand_in = Parameters::<S>::new().add("stand-in", &[0], Vec::new()).id();
        Self::empty(settings, Store::Count { total: 0, stand_in, list: None }, rng)
    }

    fn empty(settings: BuildSettings, store: Store<'a, S>, rng: &'a mut Rng) -> Self {
        Self {
            settings,
            depth: LayerDepth::ALONE,
            store,
            rng,
            prefix: String::new(),
            role: Role::Other,
            common: Vec::new(),
        }
    }

    /// A builder that counts weights and keeps their names and shapes alone; see [`listed`](Self::listed).
    pub fn listing(settings: BuildSettings, rng: &'a mut Rng) -> Self {
        let mut params = Self::counting(settings, rng);
        if let Store::Count { list, .. } = &mut params.store {
            *list = Some(Vec::new());
        }
        params
    }

    /// Names and shapes so far, of a listing builder; nothing of others.
    pub fn listed(self) -> Vec<ParamShape> {
        match self.store {
            Store::Count { list, .. } => list.unwrap_or_default(),
            Store::Keep(_) => Vec::new(),
        }
    }

    /// Weights so far.
    pub fn total(&self) -> u128 {
        match &self.store {
            Store::Count { total, .. } => *total,
            Store::Keep(weights) => weights.size() as u128,
        }
    }

    /// Builds something under a longer name.
    pub fn within<R>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        let result = build(self);
        self.prefix.truncate(length);
        result
    }

    /// Says what the next weight is for: `params.role(Role::Query).linear(..)`.
    pub fn role(&mut self, role: Role) -> &mut Self {
        self.role = role;
        self
    }

    /// A weight that decays: a matrix or a table.
    pub fn weight(&mut self, name: &str, shape: &[usize], init: Init<'_>) -> Parameter {
        self.add(name, shape, init, true)
    }

    /// A weight that does not decay: a bias, the gain of a norm, an offset of a gate.
    pub fn weight_without_decay(&mut self, name: &str, shape: &[usize], init: Init<'_>) -> Parameter {
        self.add(name, shape, init, false)
    }

    /// An offset of the whole model, under its own name alone: the first layer that asks adds it, later ones get the same.
    pub fn common_offset(&mut self, name: &'static str, shape: &[usize], init: Init<'_>) -> Parameter {
        if let Some((_, known)) = self.common.iter().find(|(known, _)| *known == name) {
            return *known;
        }
        let prefix = std::mem::take(&mut self.prefix);
        let added = self.weight_without_decay(name, shape, init);
        self.prefix = prefix;
        self.common.push((name, added));
        added
    }

    /// A projection without bias, of the model's deviation.
    pub fn linear(&mut self, name: &str, inputs: usize, outputs: usize) -> Linear {
        let init = Init::Normal(self.settings.deviation);
        self.linear_from(name, inputs, outputs, init)
    }

    /// A projection without bias, filled as said.
    pub fn linear_from(&mut self, name: &str, inputs: usize, outputs: usize, init: Init<'_>) -> Linear {
        let weight = self.weight(&format!("{name}.weight"), &[outputs, inputs], init);
        Linear { weight, bias: None }
    }

    /// A projection with a bias that starts at zero.
    pub fn linear_with_bias(&mut self, name: &str, inputs: usize, outputs: usize) -> Linear {
        let role = std::mem::take(&mut self.role);
        let bias_role = if role == Role::Output { Role::OutputBias } else { Role::Other };
        let bias = self.role(bias_role).weight_without_decay(&format!("{name}.bias"), &[outputs], Init::Constant(0.0));
        Linear { bias: Some(bias), ..self.role(role).linear(name, inputs, outputs) }
    }

    /// The gain of an RMS norm, all ones.
    pub fn gain(&mut self, name: &str, width: usize) -> NormGain {
        NormGain { weight: self.weight_without_decay(&format!("{name}.weight"), &[width], Init::Constant(1.0)) }
    }

    /// The matrix state of a recurrence, which has no weights.
    pub fn recurrence(&self) -> LinearRecurrence {
        LinearRecurrence { chunk: self.settings.chunk, rounding: self.settings.precision.state }
    }

    /// A depthwise convolution over time without bias, shaped as PyTorch's `Conv1d`; none for no taps.
    pub fn convolution(&mut self, name: &str, channels: usize, taps: usize) -> Option<Convolution> {
        let (init, role) = (Init::Normal(self.settings.deviation), std::mem::take(&mut self.role));
        (taps > 0).then(|| Convolution {
            weight: self.role(role).weight(&format!("{name}.weight"), &[channels, 1, taps], init),
            bias: None,
            channels,
            taps,
            rounding: self.settings.precision.state,
        })
    }

    /// Starts `key` as a copy of `query` if the model asks for it. With fewer key heads, each copies the first query head
    /// that reads it.
    pub fn tie(&mut self, query: &Linear, key: &Linear, heads: usize, key_heads: usize) {
        let Store::Keep(weights) = &mut self.store else { return };
        if !self.settings.tied_query_key {
            return;
        }
        let source = weights.get(query.weight).to_vec();
        let target = weights.get_mut(key.weight);
        let block = source.len() / heads;
        if target.len() == block * key_heads {
            for (head, rows) in target.chunks_exact_mut(block).enumerate() {
                let from = head * (heads / key_heads) * block;
                rows.copy_from_slice(&source[from..from + block]);
            }
        }
    }

    /// Starts `output` as so many times the transpose of `value`, so that what is read resembles what was there.
    pub fn transpose(&mut self, value: &Linear, output: &Linear, times: f64) {
        let Store::Keep(weights) = &mut self.store else { return };
        let [rows, columns] = weights.entry(value.weight).shape[..] else { return };
        let source = weights.get(value.weight).to_vec();
        for (at, weight) in weights.get_mut(output.weight).iter_mut().enumerate() {
            *weight = source[at % rows * columns + at / rows] * S::from_f64(times);
        }
    }

    /// Turns the keys of attention around, if what it will look for is embedded as the negative of what it finds.
    pub fn oppose(&mut self, key: &Linear) {
        let Store::Keep(weights) = &mut self.store else { return };
        if self.settings.opposed_keys {
            weights.get_mut(key.weight).iter_mut().for_each(|weight| *weight = -*weight);
        }
    }

    fn add(&mut self, name: &str, shape: &[usize], init: Init<'_>, decays: bool) -> Parameter {
        let role = std::mem::take(&mut self.role);
        match &mut self.store {
            Store::Count { total, stand_in, list } => {
                let size = shape.iter().fold(1_u128, |size, &extent| size.saturating_mul(extent as u128));
                *total = total.saturating_add(size);
                if let Some(list) = list {
                    list.push(ParamShape { name: format!("{}{name}", self.prefix), shape: shape.to_vec() });
                }
                *stand_in
            }
            Store::Keep(weights) => {
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
            Init::Normal(deviation) => (0..count).map(|_| S::from_f64(deviation * normal(rng))).collect(),
            Init::Uniform(low, high) => (0..count).map(|_| S::from_f64(low + (high - low) * uniform(rng))).collect(),
            Init::FromUniform(function) => (0..count).map(|_| S::from_f64(function(uniform(rng)))).collect(),
        }
    }
}

/// A number in `[0, 1)`.
pub(crate) fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A standard normal number, by Box and Muller; the second of the pair is not used, so that each number has its own draws.
pub fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}
