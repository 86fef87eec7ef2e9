//! A draft: what a construction says about registers, before it is a network.
//!
//! Constructions are written layer by layer: heads and carriers move registers between tokens, neurons compute within one.
//! When all is said, [`Draft::finish`] counts what is needed, makes the plan (or takes a given one whose layers are large
//! enough), builds the ordinary [`Model`] of that plan, sets all its weights to zero, and writes in those that were spoken of.
//! Layers of a given plan that no part asked for stay zero, and a layer of zeros changes nothing.

use std::collections::BTreeMap;

use rung_engine::{Parameters, Role, Scalar};
use rung_theory::spec::SpecValue;
use rung_theory::stack::mixer::LARGEST;
use rung_theory::stack::{Defaults, Layer as PlanLayer, Mixer, Plan, StackError};
use rung_theory::task::{AnyTask, Field, seeded};

use super::carry::{self, Carry};
use super::register::{RegisterKind, Registers, Slice};
use super::{ChainOfThought, ConstructError, ConstructionInfo};
use crate::mixer::{follows_width, width_divisor};
use crate::model::{FeedForwardConfig, InputConfig, Model, ModelConfig, NormConfig, lends, names};
use crate::network::{Network, Provenance};
use crate::position::Positions;

/// A weighted sum of columns of the stream.
pub type Sum = Vec<(usize, f64)>;

/// One attention head: rows of its projections.
#[derive(Clone, Debug, Default)]
pub struct HeadDraft {
    /// The query, one sum per channel. Scores are their plain products: the model's scale is undone when weights are set.
    pub query: Vec<Sum>,
    /// The key.
    pub key: Vec<Sum>,
    /// The value.
    pub value: Vec<Sum>,
    /// Where each channel of the value is written.
    pub output: Vec<usize>,
}

/// One neuron of a layer's MLP: `max(input, 0)`, added to the outputs.
#[derive(Clone, Debug, Default)]
pub struct Neuron {
    /// What it sums.
    pub input: Sum,
    /// Where it writes, times how much.
    pub output: Sum,
}

/// What moves things between tokens in a layer.
#[derive(Clone, Debug)]
pub enum Mixing {
    /// Attention heads.
    Heads(Vec<HeadDraft>),
    /// A bounded-state mixer of the given sizes, which hands a register on.
    Carry(Carry, Mixer),
    /// A bounded-state mixer of the given sizes with these weights.
    Own(Mixer, Vec<Setting>),
}

/// One number of one weight: `(name within the mixer, index in the flat weight, value)`.
pub type Setting = (String, usize, f64);

/// A layer as spoken of.
#[derive(Clone, Debug)]
pub struct LayerDraft {
    /// What it does, for people.
    pub about: String,
    /// Its mixer.
    pub mixing: Mixing,
    /// Its neurons.
    pub neurons: Vec<Neuron>,
}

/// A code of a field: what each of its ids adds to the stream.
type Code = Box<dyn Fn(u32) -> Sum>;

/// A construction in the making.
pub struct Draft {
    /// Its name, as users type it.
    pub name: &'static str,
    /// The registers.
    pub registers: Registers,
    /// The register that holds 1.
    pub one: Slice,
    task: Box<dyn AnyTask>,
    fields: Vec<Field>,
    codes: Vec<Vec<Code>>,
    places: Option<Box<dyn Fn(usize) -> Sum>>,
    layers: Vec<LayerDraft>,
    zero: Option<usize>,
    classes: usize,
    answer: Option<Box<dyn Fn(usize) -> Sum>>,
    causal: bool,
    chunk: usize,
    norm: NormConfig,
    thoughts: Option<ChainOfThought>,
}

impl Draft {
    /// A draft for a task. The first field's ids all set the register that holds 1.
    pub fn new(name: &'static str, task: Box<dyn AnyTask>) -> Self {
        let mut registers = Registers::default();
        let one = registers.add("one", 1, RegisterKind::Constant, "always 1, for offsets");
        // Each field writes registers of its own, so none shares its vectors with another.
        let own = |field: Field| Field::new(field.name, field.vocabulary);
        let fields: Vec<Field> = task.fields().into_iter().map(own).collect();
        let codes = fields.iter().map(|_| Vec::new()).collect();
        let classes = task.classes() as usize;
        let mut draft = Self {
            name,
            registers,
            one,
            task,
            fields,
            codes,
            places: None,
            layers: Vec::new(),
            zero: None,
            classes,
            answer: None,
            causal: true,
            chunk: 64,
            norm: NormConfig::None,
            thoughts: None,
        };
        draft.embed(0, move |_| vec![(one.start, 1.0)]);
        draft
    }

    /// What each id of a field adds to the stream.
    pub fn embed(&mut self, field: usize, code: impl Fn(u32) -> Sum + 'static) {
        self.codes[field].push(Box::new(code));
    }

    /// What each position adds to the stream: a table as learned positions have it.
    pub fn embed_positions(&mut self, code: impl Fn(usize) -> Sum + 'static) {
        self.places = Some(Box::new(code));
    }

    /// A field's ids in bits; ids from `blank` on add nothing.
    pub fn embed_number(&mut self, field: usize, register: Slice, blank: u32) {
        self.embed(field, move |id| if id < blank { register.code(u64::from(id)) } else { Vec::new() });
    }

    /// Gives a field more ids than the task has: those of tokens that the model emits itself.
    pub fn add_ids(&mut self, field: usize, more: u32) {
        self.fields[field].vocabulary += more;
    }

    /// The ids of a field.
    pub fn vocabulary(&self, field: usize) -> u32 {
        self.fields[field].vocabulary
    }

    /// Adds a layer.
    pub fn layer(&mut self, about: impl Into<String>, mixing: Mixing, neurons: Vec<Neuron>) {
        self.layers.push(LayerDraft { about: about.into(), mixing, neurons });
    }

    /// Adds neurons to the last layer.
    pub fn add_neurons(&mut self, neurons: Vec<Neuron>) {
        if let Some(layer) = self.layers.last_mut() {
            layer.neurons.extend(neurons);
        }
    }

    /// The answer is the number in a register: each class scores by the bits it shares with it.
    pub fn answer_number(&mut self, register: Slice) {
        self.answer = Some(Box::new(move |class| register.code(class as u64)));
    }

    /// Scores of classes as sums.
    pub fn answer(&mut self, scores: impl Fn(usize) -> Sum + 'static) {
        self.answer = Some(Box::new(scores));
    }

    /// The answer comes after tokens that the model emits itself.
    pub fn set_chain_of_thought(&mut self, thoughts: ChainOfThought, classes: usize) {
        self.thoughts = Some(thoughts);
        self.classes = classes;
    }

    /// Lets every token see every other.
    pub fn set_bidirectional(&mut self) {
        self.causal = false;
    }

    /// Tokens per chunk of recurrences: fewer where rounding within a chunk would matter.
    pub fn chunk(&mut self, tokens: usize) {
        self.chunk = tokens;
    }

    /// Norms before every mixer, every MLP and the unembedding.
    ///
    /// A norm divides by the length of a token's vector. Two columns of ballast, of opposite sign, make that length nearly the same
    /// for all tokens, and the norm's gain undoes it. A layer norm also subtracts the mean: a column that is always 0 becomes
    /// minus the mean, and every reader takes as much of it as undoes that too.
    pub fn norm(&mut self, norm: NormConfig) {
        self.norm = norm;
        if norm == NormConfig::None {
            return;
        }
        let zero =
            self.registers.add("zero", 1, RegisterKind::Constant, "always 0, which a norm turns into minus the mean");
        let ballast =
            self.registers.add("ballast", 2, RegisterKind::Constant, "a weight that keeps the length of the vector");
        let weight = BALLAST * (self.registers.width() as f64).sqrt();
        self.embed(0, move |_| vec![(ballast.start, weight), (ballast.start + 1, -weight)]);
        self.zero = Some(zero.start);
    }

    /// Builds the network: in the smallest plan, or in the layers of a given one.
    ///
    /// # Errors
    /// The given plan has no layers for the parts, or the network would be too large.
    #[inline(never)]
    pub fn finish<S: Scalar>(self, plan: Option<&Plan>) -> Result<Network<S>, ConstructError> {
        let (mut plan, places) = match plan {
            Some(plan) => (plan.clone(), self.assign(plan)?),
            None => self.smallest()?,
        };
        widen(&mut plan, self.registers.width() as u64)
            .map_err(|lack| ConstructError::DoesNotFit { name: self.name.to_owned(), lack })?;
        let hidden = self.layers.iter().map(|layer| layer.neurons.len()).max().unwrap_or(0).max(1);
        let length = self.task.length();
        let config = ModelConfig {
            input: if self.fields.len() == 1 {
                InputConfig::Vocabulary(self.fields[0].vocabulary as usize)
            } else {
                InputConfig::Fields(self.fields.clone())
            },
            classes: self.classes,
            norm: self.norm,
            feed_forward: FeedForwardConfig::Relu { hidden: Some(hidden) },
            positions: if self.places.is_some() { Positions::Learned { length } } else { Positions::None },
            causal: self.causal,
            chunk: self.chunk,
            ..ModelConfig::default()
        };
        let mut weights = Parameters::<S>::new();
        let model: Model = config.init(&plan, &mut weights, &mut seeded(0))?;
        weights.flat_mut().fill(S::ZERO);
        if let Some(id) = weights.find("lower_bounds") {
            // HGRN2's floors rise with depth. Nearly all of their weight goes to the first layer, which has none, so that a forget
            // gate can close in every layer and what it writes is as large as in the first.
            weights.get_mut(id)[..plan.width as usize].fill(S::from_f64(NO_FLOOR));
        }
        let mut writer = Writer { weights: &mut weights, width: plan.width as usize };
        self.write_ends(&mut writer);
        let mut about = vec![String::new(); plan.layers.len()];
        for (layer, place) in self.layers.iter().zip(&places) {
            write_layer(&mut writer, layer, *place, &plan);
            about[place.layer].clone_from(&layer.about);
        }
        if let Some(zero) = self.zero {
            balance(&mut weights, plan.width as usize, self.registers.width(), zero, self.norm);
        }
        let info = ConstructionInfo {
            name: self.name.to_owned(),
            task: self.task.spec(),
            registers: self.registers,
            layers: about,
            thoughts: self.thoughts,
        };
        let (name, provenance) = (info.name.clone(), Provenance::Construction(Box::new(info)));
        Ok(Network { name, task: Some(self.task), plan, config, model, weights, provenance })
    }

    /// The smallest plan that holds every part.
    fn smallest(&self) -> Result<(Plan, Vec<LayerPlace>), ConstructError> {
        let width = self.registers.width() as u64;
        let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width), bits: 32 };
        let mut layers = Vec::new();
        for layer in &self.layers {
            let mixer = match &layer.mixing {
                Mixing::Heads(heads) => {
                    let most =
                        |count: fn(&HeadDraft) -> usize| heads.iter().map(count).max().unwrap_or(0).max(1) as u64;
                    let (key, value) = (most(|head| head.key.len()), most(|head| head.value.len()));
                    let numbers = [("heads", heads.len().max(1) as u64), ("key", key), ("value", value)];
                    let kv = [("kv", heads.len().max(1) as u64)];
                    Mixer::new("full", &[&numbers[..], &kv[..]].concat(), &defaults)?
                }
                Mixing::Carry(_, mixer) | Mixing::Own(mixer, _) => mixer.clone(),
            };
            layers.push(PlanLayer::new(mixer));
        }
        let places = (0..layers.len()).map(|layer| LayerPlace { layer, mixer: 0 }).collect();
        Ok((Plan { width, layers }, places))
    }

    /// A layer of a given plan for every part, in order.
    fn assign(&self, plan: &Plan) -> Result<Vec<LayerPlace>, ConstructError> {
        let mut next = 0;
        let mut places = Vec::new();
        for layer in &self.layers {
            let mixers = plan.layers.iter().enumerate().skip(next);
            let mut candidates = mixers.flat_map(|(index, plan_layer)| {
                (0..plan_layer.mixers.len()).map(move |mixer| LayerPlace { layer: index, mixer })
            });
            let log2_tokens = u64::from(self.task.length().max(1).ilog2()) + 1;
            let fits = |place: &LayerPlace| {
                let mixer = &plan.layers[place.layer].mixers[place.mixer];
                let precise = mixer.bits() >= mixer.facts().precision.bits(log2_tokens);
                precise
                    && match &layer.mixing {
                        Mixing::Heads(heads) => mixer.facts().looks_up && heads_fit(heads, mixer),
                        Mixing::Carry(carry, _) => carry::fits(carry, mixer),
                        Mixing::Own(wanted, _) => wanted == mixer,
                    }
            };
            let Some(place) = candidates.find(fits) else {
                let lack = format!("no layer after the first {next} can do this: {}", layer.about);
                return Err(ConstructError::DoesNotFit { name: self.name.to_owned(), lack });
            };
            next = place.layer + 1;
            places.push(place);
        }
        Ok(places)
    }

    fn write_ends<S: Scalar>(&self, writer: &mut Writer<'_, S>) {
        let single = self.fields.len() == 1;
        for (field, codes) in self.fields.iter().zip(&self.codes) {
            let name =
                if single { "embeddings.weight".to_owned() } else { format!("embeddings.{}.weight", field.name) };
            let row = |id: usize| codes.iter().flat_map(|code| code(id as u32)).collect();
            writer.rows(&name, row);
        }
        if let Some(places) = &self.places {
            writer.rows("positions.weight", places);
        }
        if let Some(answer) = &self.answer {
            writer.rows("lm_head.weight", answer);
        }
    }
}

/// Makes the stream of a plan at least so wide, and as wide as its mixers accept: some want a multiple of their number of heads, and
/// an ungated convolution has as many channels as the stream.
fn widen(plan: &mut Plan, least: u64) -> Result<(), String> {
    let mut step = 1;
    for mixer in plan.layers.iter().flat_map(|layer| layer.mixers.iter()) {
        let divisor = width_divisor(mixer);
        step = step / greatest_common_divisor(step, divisor) * divisor;
        if step > LARGEST {
            return Err(format!("no width up to {LARGEST} is a multiple of {divisor} and of what other layers want"));
        }
    }
    let width = plan.width.max(least).next_multiple_of(step);
    for layer in &mut plan.layers {
        let widened = layer
            .mixers
            .iter()
            .map(|mixer| if follows_width(mixer) { with_channels(mixer, width) } else { Ok(mixer.clone()) });
        layer.mixers = widened.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    }
    plan.width = width;
    Ok(())
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The same mixer with so many channels.
fn with_channels(mixer: &Mixer, channels: u64) -> Result<Mixer, StackError> {
    let mut spec = mixer.spec();
    let given = spec.options.iter_mut().filter(|(option, _)| option == "channels");
    given.for_each(|(_, value)| *value = SpecValue::Number(channels));
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(channels), bits: mixer.bits() };
    Mixer::resolve(&spec, &defaults)
}

/// A logit that leaves the other layers' floors nothing.
const NO_FLOOR: f64 = 40.0;

/// Ballast per root of the width: the rest of a token's vector changes its length by less than one part in a thousand.
const BALLAST: f64 = 16.0;

/// Sets the gains of norms to the usual length, and takes the mean that a layer norm subtracts out of every reader.
fn balance<S: Scalar>(weights: &mut Parameters<S>, width: usize, used: usize, zero: usize, norm: NormConfig) {
    // Two columns of ballast, and about half of the others at one.
    let length = ((2.0 * BALLAST * BALLAST + 0.5) * used as f64 / width as f64).sqrt();
    let entries: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.role, entry.shape)).collect();
    for (id, role, shape) in entries {
        if role == Role::StreamNorm {
            weights.get_mut(id).fill(S::from_f64(length));
        }
        let reads = !matches!(role, Role::Output | Role::Embedding | Role::Position);
        if norm == NormConfig::Layer && shape.len() == 2 && shape.width() == width && reads {
            for row in weights.get_mut(id).chunks_exact_mut(width) {
                let sum: f64 = row.iter().map(|value| value.to_f64()).sum();
                row[zero] = S::from_f64(row[zero].to_f64() - sum);
            }
        }
    }
}

/// Where in a plan a part stands.
#[derive(Clone, Copy, Debug)]
struct LayerPlace {
    layer: usize,
    mixer: usize,
}

/// Sizes of a plan's attention mixer.
struct Sizes {
    heads: usize,
    kv: usize,
    key: usize,
    value: usize,
}

impl Sizes {
    fn of(mixer: &Mixer) -> Self {
        let number = |name: &str| mixer.number(name).unwrap_or_default() as usize;
        Self { heads: number("heads"), kv: number("kv"), key: number("key"), value: number("value") }
    }
}

/// Whether heads fit a mixer, wide values being spread over several heads that ask the same.
fn heads_fit(heads: &[HeadDraft], mixer: &Mixer) -> bool {
    let sizes = Sizes::of(mixer);
    let spread: usize = heads.iter().map(|head| head.value.len().div_ceil(sizes.value).max(1)).sum();
    spread <= sizes.kv && heads.iter().all(|head| head.key.len() <= sizes.key)
}

fn write_layer<S: Scalar>(writer: &mut Writer<'_, S>, layer: &LayerDraft, place: LayerPlace, plan: &Plan) {
    let mixers = &plan.layers[place.layer].mixers;
    let inner = names::mixer(place.layer, place.mixer, mixers.len());
    let mlp = names::mlp(place.layer);
    let mixer = &mixers[place.mixer];
    match &layer.mixing {
        Mixing::Heads(heads) => writer.heads(&inner, heads, mixer),
        Mixing::Carry(carry, _) => {
            let shared = lends(plan, place.layer, place.mixer);
            writer.settings(&inner, &carry::settings(carry, mixer, plan.width as usize, shared));
        }
        Mixing::Own(_, settings) => writer.settings(&inner, settings),
    }
    for (index, neuron) in layer.neurons.iter().enumerate() {
        writer.row(&format!("{mlp}.up_proj.weight"), index, &neuron.input);
        writer.column(&format!("{mlp}.down_proj.weight"), index, &neuron.output);
    }
}

/// Writes sums into weights by name.
struct Writer<'a, S> {
    weights: &'a mut Parameters<S>,
    width: usize,
}

impl<S: Scalar> Writer<'_, S> {
    /// A weight's values and the length of its rows.
    fn find(&mut self, name: &str) -> (&mut [S], usize) {
        let id = self.weights.find(name).unwrap_or_else(|| unreachable!("a built model has the weight {name}"));
        let shape = self.weights.entry(id).shape;
        (self.weights.get_mut(id), shape.width())
    }

    fn rows(&mut self, name: &str, row: impl Fn(usize) -> Sum) {
        let (values, width) = self.find(name);
        for (index, values) in values.chunks_exact_mut(width).enumerate() {
            for (column, value) in row(index) {
                values[column] += S::from_f64(value);
            }
        }
    }

    fn row(&mut self, name: &str, row: usize, sum: &[(usize, f64)]) {
        let (values, width) = self.find(name);
        for (column, value) in sum {
            values[row * width + column] += S::from_f64(*value);
        }
    }

    fn column(&mut self, name: &str, column: usize, sum: &[(usize, f64)]) {
        let (values, width) = self.find(name);
        for (row, value) in sum {
            values[row * width + column] += S::from_f64(*value);
        }
    }

    fn settings(&mut self, prefix: &str, settings: &[Setting]) {
        let mut by_name: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
        for (name, index, value) in settings {
            by_name.entry(name).or_default().push((*index, *value));
        }
        for (name, entries) in by_name {
            let (values, _) = self.find(&format!("{prefix}.{name}"));
            for (index, value) in entries {
                values[index] += S::from_f64(value);
            }
        }
    }

    fn heads(&mut self, prefix: &str, heads: &[HeadDraft], mixer: &Mixer) {
        let sizes = Sizes::of(mixer);
        let undo = (sizes.key as f64).sqrt();
        let name = |part: &str| format!("{prefix}.{part}_proj.weight");
        let mut slot = 0;
        for head in heads {
            for first in (0..head.value.len().max(1)).step_by(sizes.value) {
                let query_head = slot * (sizes.heads / sizes.kv);
                for (index, sum) in head.query.iter().enumerate() {
                    let scaled: Sum = sum.iter().map(|(column, value)| (*column, value * undo)).collect();
                    self.row(&name("q"), query_head * sizes.key + index, &scaled);
                }
                for (index, sum) in head.key.iter().enumerate() {
                    self.row(&name("k"), slot * sizes.key + index, sum);
                }
                let channels = head.value.iter().zip(&head.output).skip(first).take(sizes.value);
                for (index, (sum, output)) in channels.enumerate() {
                    self.row(&name("v"), slot * sizes.value + index, sum);
                    self.row(&name("o"), *output, &[(query_head * sizes.value + index, 1.0)]);
                }
                slot += 1;
            }
        }
        if mixer.number("conv").is_some_and(|taps| taps > 0) {
            // A convolution before the projections passes the current token through.
            let taps = mixer.number("conv").unwrap_or_default() as usize;
            let width = self.width;
            let (values, _) = self.find(&format!("{prefix}.conv1d.weight"));
            for channel in 0..width {
                values[channel * taps + taps - 1] = S::ONE;
            }
        }
    }
}
