//! The builder of a construction: layers described by registers, turned into a network.
//!
//! A construction adds layer after layer: heads and forwarding layers move registers between tokens, neurons compute within a token.
//! [`ConstructionBuilder::build`] then makes the smallest plan that fits the layers (or checks that a given plan has layers large
//! enough), builds the ordinary [`Model`] of that plan, sets all its weights to zero, and adds the weights of the described layers.
//! Layers of a given plan that the construction does not need stay zero, and a layer of zeros adds nothing to the residual stream.

use rung_engine::{Parameters, Role, Scalar};
use rung_theory::spec::SpecValue;
use rung_theory::stack::mixer::MAX_SIZE;
use rung_theory::stack::{Defaults, Layer as PlanLayer, Mixer, Plan, StackError};
use rung_theory::task::{AnyTask, Field, seeded};

use super::forwarding::{self, ForwardedBits};
use super::weight_writer::{AttentionSizes, WeightWriter, write_layer};
use super::{ChainOfThought, ConstructError, ConstructionInfo};
pub use crate::forwarding_weights::WeightEntry;
use crate::mixer::{follows_width, width_divisor};
use crate::model::{FeedForwardConfig, InputConfig, MixerIndex, Model, ModelConfig, NormConfig};
use crate::network::{Network, Provenance};
use crate::position::Positions;
use crate::register::{ColumnRange, RegisterKind, Registers};

/// A weighted sum of columns of the residual stream: (column, weight) pairs.
pub type WeightedSum = Vec<(usize, f64)>;

/// One attention head: the rows of its projections.
#[derive(Clone, Debug, Default)]
pub struct AttentionHead {
    /// The query, one sum per channel. Scores are unscaled dot products: the model's `1/sqrt(key size)` is undone when weights are written.
    pub query: Vec<WeightedSum>,
    /// The key, one sum per channel of the query.
    pub key: Vec<WeightedSum>,
    /// The value, one sum per channel.
    pub value: Vec<WeightedSum>,
    /// The column that each channel of the value is added to.
    pub output: Vec<usize>,
}

/// One neuron of a layer's MLP: `max(input, 0)`, added to the outputs.
#[derive(Clone, Debug, Default)]
pub struct Neuron {
    /// The weights before the ReLU, by column.
    pub input: WeightedSum,
    /// The weights after the ReLU, by column.
    pub output: WeightedSum,
}

/// The mixer of a layer, described by the weights that it gets.
#[derive(Clone, Debug)]
pub enum LayerMixer {
    /// Attention heads.
    Attention(Vec<AttentionHead>),
    /// A bounded-state mixer of the given sizes that copies a register to later tokens.
    Forwarding(ForwardedBits, Mixer),
    /// A bounded-state mixer of the given sizes with these weights.
    Explicit(Mixer, Vec<WeightEntry>),
}

/// A layer of a construction.
#[derive(Clone, Debug)]
pub struct ConstructionLayer {
    /// A short description.
    pub about: String,
    /// The mixer and its weights.
    pub mixer: LayerMixer,
    /// The neurons of its MLP.
    pub neurons: Vec<Neuron>,
}

/// The embedding of a field: what each id adds to the residual stream.
type FieldEmbedding = Box<dyn Fn(u32) -> WeightedSum>;

/// Collects the registers, embeddings, layers and unembedding of a construction.
pub struct ConstructionBuilder {
    /// The construction's name, as users type it.
    pub name: &'static str,
    /// The registers added so far.
    pub registers: Registers,
    /// The register that holds the constant 1, by which weights add biases.
    pub bias: ColumnRange,
    task: Box<dyn AnyTask>,
    fields: Vec<Field>,
    /// The embeddings of each field; they are added.
    embeddings: Vec<Vec<FieldEmbedding>>,
    position_embedding: Option<Box<dyn Fn(usize) -> WeightedSum>>,
    layers: Vec<ConstructionLayer>,
    /// The column that is always 0, if there are norms.
    zero_column: Option<usize>,
    classes: usize,
    unembedding: Option<Box<dyn Fn(usize) -> WeightedSum>>,
    causal: bool,
    chunk_size: usize,
    norm: NormConfig,
    chain_of_thought: Option<ChainOfThought>,
}

impl ConstructionBuilder {
    /// A builder without layers. Every id of the first field sets the register that holds 1.
    pub fn new(name: &'static str, task: Box<dyn AnyTask>) -> Self {
        let mut registers = Registers::default();
        let bias = registers.add("one", 1, RegisterKind::Constant, "always 1, for offsets");
        // Each field writes other registers, so no field shares its embedding table with another.
        let with_own_table = |field: Field| Field::new(field.name, field.vocabulary);
        let fields: Vec<Field> = task.fields().into_iter().map(with_own_table).collect();
        let embeddings = fields.iter().map(|_| Vec::new()).collect();
        let classes = task.classes() as usize;
        let mut builder = Self {
            name,
            registers,
            bias,
            task,
            fields,
            embeddings,
            position_embedding: None,
            layers: Vec::new(),
            zero_column: None,
            classes,
            unembedding: None,
            causal: true,
            chunk_size: 64,
            norm: NormConfig::None,
            chain_of_thought: None,
        };
        builder.embed(0, move |_| vec![(bias.start, 1.0)]);
        builder
    }

    /// Sets what each id of a field adds to the residual stream, in addition to earlier calls.
    pub fn embed(&mut self, field: usize, embedding: impl Fn(u32) -> WeightedSum + 'static) {
        self.embeddings[field].push(Box::new(embedding));
    }

    /// Sets what each position adds to the residual stream, as a table of learned positions.
    pub fn embed_positions(&mut self, embedding: impl Fn(usize) -> WeightedSum + 'static) {
        self.position_embedding = Some(Box::new(embedding));
    }

    /// Writes the bits of a field's ids to a register; ids from `blank` on add nothing.
    pub fn embed_number(&mut self, field: usize, register: ColumnRange, blank: u32) {
        self.embed(field, move |id| if id < blank { register.encode(u64::from(id)) } else { Vec::new() });
    }

    /// Gives a field more ids than the task has, for tokens that the model emits.
    pub fn add_ids(&mut self, field: usize, count: u32) {
        self.fields[field].vocabulary += count;
    }

    /// The number of ids of a field.
    pub fn vocabulary(&self, field: usize) -> u32 {
        self.fields[field].vocabulary
    }

    /// Adds a layer after the existing ones.
    pub fn add_layer(&mut self, about: impl Into<String>, mixer: LayerMixer, neurons: Vec<Neuron>) {
        self.layers.push(ConstructionLayer { about: about.into(), mixer, neurons });
    }

    /// Adds neurons to the last layer.
    pub fn add_neurons(&mut self, neurons: Vec<Neuron>) {
        if let Some(layer) = self.layers.last_mut() {
            layer.neurons.extend(neurons);
        }
    }

    /// Makes the number in a register the answer: the logit of a class is the dot product of its bits with the register.
    pub fn unembed_number(&mut self, register: ColumnRange) {
        self.unembedding = Some(Box::new(move |class| register.encode(class as u64)));
    }

    /// Sets the logit of every class.
    pub fn unembed(&mut self, logit: impl Fn(usize) -> WeightedSum + 'static) {
        self.unembedding = Some(Box::new(logit));
    }

    /// Makes the model emit tokens before the answer.
    pub fn set_chain_of_thought(&mut self, chain_of_thought: ChainOfThought, classes: usize) {
        self.chain_of_thought = Some(chain_of_thought);
        self.classes = classes;
    }

    /// Lets every token attend to every other.
    pub fn set_bidirectional(&mut self) {
        self.causal = false;
    }

    /// Sets the tokens per chunk of recurrences: fewer if rounding errors within a chunk would matter.
    pub fn set_chunk_size(&mut self, tokens: usize) {
        self.chunk_size = tokens;
    }

    /// Adds norms before every mixer, every MLP and the unembedding.
    ///
    /// A norm divides by the length of a token's vector. Two large constant columns of opposite sign (the register `norm_constant`) make that
    /// length nearly the same for all tokens, and the norm's gain undoes the division. A layer norm also subtracts the mean: a column that
    /// is always 0 then holds minus the mean, and every projection that reads the residual stream uses it to add the mean back.
    pub fn add_norms(&mut self, norm: NormConfig) {
        self.norm = norm;
        if norm == NormConfig::None {
            return;
        }
        let zero =
            self.registers.add("zero", 1, RegisterKind::Constant, "always 0, which a norm turns into minus the mean");
        let about = "constant columns that keep the length of every token's vector nearly the same";
        let norm_constant = self.registers.add("norm_constant", 2, RegisterKind::Constant, about);
        let value = NORM_CONSTANT * (self.registers.width() as f64).sqrt();
        self.embed(0, move |_| vec![(norm_constant.start, value), (norm_constant.start + 1, -value)]);
        self.zero_column = Some(zero.start);
    }

    /// Builds the network: in the smallest plan, or in the layers of a given one.
    ///
    /// # Errors
    /// The given plan has no layers that fit the construction's, or the network would be too large.
    #[inline(never)]
    pub fn build<S: Scalar>(self, plan: Option<&Plan>) -> Result<Network<S>, ConstructError> {
        let (mut plan, assignment) = match plan {
            Some(plan) => (plan.clone(), self.assign_layers(plan)?),
            None => self.smallest_plan()?,
        };
        widen_residual(&mut plan, self.registers.width() as u64)
            .map_err(|reason| ConstructError::DoesNotFit { name: self.name.to_owned(), reason })?;
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
            positions: if self.position_embedding.is_some() { Positions::Learned { length } } else { Positions::None },
            causal: self.causal,
            chunk: self.chunk_size,
            ..ModelConfig::default()
        };
        let mut weights = Parameters::<S>::new();
        let model: Model = config.init(&plan, &mut weights, &mut seeded(0))?;
        weights.flat_mut().fill(S::ZERO);
        if let Some(id) = weights.find("lower_bounds") {
            // HGRN2's lower bounds on forget gates are a cumulative softmax over the layers' logits and rise with depth. A high logit
            // for the first layer, whose bound is 0, keeps the bounds of all layers near 0, so that their gates can close.
            weights.get_mut(id)[..plan.width as usize].fill(S::from_f64(FIRST_LAYER_LOGIT));
        }
        let mut writer = WeightWriter { weights: &mut weights, width: plan.width as usize };
        self.write_embeddings_and_unembedding(&mut writer);
        let mut about = vec![String::new(); plan.layers.len()];
        for (layer, index) in self.layers.iter().zip(&assignment) {
            write_layer(&mut writer, layer, *index, &plan);
            about[index.layer].clone_from(&layer.about);
        }
        if let Some(zero_column) = self.zero_column {
            undo_norms(&mut weights, plan.width as usize, self.registers.width(), zero_column, self.norm);
        }
        let info = ConstructionInfo {
            name: self.name.to_owned(),
            task: self.task.spec(),
            registers: self.registers,
            layers: about,
            chain_of_thought: self.chain_of_thought,
        };
        let (name, provenance) = (info.name.clone(), Provenance::Construction(Box::new(info)));
        Ok(Network { name, task: Some(self.task), plan, config, model, weights, provenance })
    }

    /// The smallest plan that fits every layer.
    fn smallest_plan(&self) -> Result<(Plan, Vec<MixerIndex>), ConstructError> {
        let width = self.registers.width() as u64;
        let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width), bits: 32 };
        let mut layers = Vec::new();
        for layer in &self.layers {
            let mixer = match &layer.mixer {
                LayerMixer::Attention(heads) => {
                    let largest =
                        |size: fn(&AttentionHead) -> usize| heads.iter().map(size).max().unwrap_or(0).max(1) as u64;
                    let (key_dim, value_dim) = (largest(|head| head.key.len()), largest(|head| head.value.len()));
                    let head_count = heads.len().max(1) as u64;
                    let sizes = [("heads", head_count), ("key", key_dim), ("value", value_dim), ("kv", head_count)];
                    Mixer::new("full", &sizes, &defaults)?
                }
                LayerMixer::Forwarding(_, mixer) | LayerMixer::Explicit(mixer, _) => mixer.clone(),
            };
            layers.push(PlanLayer::new(mixer));
        }
        let assignment = (0..layers.len()).map(|layer| MixerIndex { layer, mixer: 0 }).collect();
        Ok((Plan { width, layers }, assignment))
    }

    /// For every layer of the construction, in order, the first mixer of a given plan that fits it.
    fn assign_layers(&self, plan: &Plan) -> Result<Vec<MixerIndex>, ConstructError> {
        let mut next_layer = 0;
        let mut assignment = Vec::new();
        for layer in &self.layers {
            let remaining = plan.layers.iter().enumerate().skip(next_layer);
            let mut candidates = remaining.flat_map(|(index, plan_layer)| {
                (0..plan_layer.mixers.len()).map(move |mixer| MixerIndex { layer: index, mixer })
            });
            let log2_tokens = u64::from(self.task.length().max(1).ilog2()) + 1;
            let fits = |index: &MixerIndex| {
                let mixer = &plan.layers[index.layer].mixers[index.mixer];
                let is_precise = mixer.bits() >= mixer.facts().precision.bits(log2_tokens);
                is_precise
                    && match &layer.mixer {
                        LayerMixer::Attention(heads) => mixer.facts().looks_up && heads_fit(heads, mixer),
                        LayerMixer::Forwarding(forwarded, _) => forwarding::fits(forwarded, mixer),
                        LayerMixer::Explicit(required, _) => required == mixer,
                    }
            };
            let Some(index) = candidates.find(fits) else {
                let reason = format!("no layer after the first {next_layer} can do this: {}", layer.about);
                return Err(ConstructError::DoesNotFit { name: self.name.to_owned(), reason });
            };
            next_layer = index.layer + 1;
            assignment.push(index);
        }
        Ok(assignment)
    }

    fn write_embeddings_and_unembedding<S: Scalar>(&self, writer: &mut WeightWriter<'_, S>) {
        let has_single_field = self.fields.len() == 1;
        for (field, embeddings) in self.fields.iter().zip(&self.embeddings) {
            let name = if has_single_field {
                "embeddings.weight".to_owned()
            } else {
                format!("embeddings.{}.weight", field.name)
            };
            let row = |id: usize| embeddings.iter().flat_map(|embedding| embedding(id as u32)).collect();
            writer.add_to_rows(&name, row);
        }
        if let Some(embedding) = &self.position_embedding {
            writer.add_to_rows("positions.weight", embedding);
        }
        if let Some(unembedding) = &self.unembedding {
            writer.add_to_rows("lm_head.weight", unembedding);
        }
    }
}

/// Widens the residual stream of a plan to at least `min_width`, and to a width that its mixers accept: some require a multiple of their
/// number of heads, and an ungated convolution has as many channels as the residual stream.
fn widen_residual(plan: &mut Plan, min_width: u64) -> Result<(), String> {
    let mut width_multiple = 1;
    for mixer in plan.layers.iter().flat_map(|layer| layer.mixers.iter()) {
        let divisor = width_divisor(mixer);
        width_multiple = width_multiple / greatest_common_divisor(width_multiple, divisor) * divisor;
        if width_multiple > MAX_SIZE {
            return Err(format!("no width up to {MAX_SIZE} is a multiple of {divisor} and of what other layers need"));
        }
    }
    let width = plan.width.max(min_width).next_multiple_of(width_multiple);
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

/// The same mixer with another number of channels.
fn with_channels(mixer: &Mixer, channels: u64) -> Result<Mixer, StackError> {
    let mut spec = mixer.spec();
    for (_, value) in spec.options.iter_mut().filter(|(option, _)| option == "channels") {
        *value = SpecValue::Number(channels);
    }
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(channels), bits: mixer.bits() };
    Mixer::resolve(&spec, &defaults)
}

/// A logit so high that the softmax over HGRN2's lower bounds gives all weight to the first layer.
const FIRST_LAYER_LOGIT: f64 = 40.0;

/// The number in the register `norm_constant`, divided by the square root of the width: the other columns change the length of a token's vector by less than 1/1000.
const NORM_CONSTANT: f64 = 16.0;

/// Sets the gains of norms to the typical length of a token's vector, and makes every projection that reads the residual stream add the
/// mean back that a layer norm subtracts, through the column that is always 0.
fn undo_norms<S: Scalar>(
    weights: &mut Parameters<S>,
    width: usize,
    used_columns: usize,
    zero_column: usize,
    norm: NormConfig,
) {
    // The two columns of `norm_constant`, and about half of the others at ±1.
    let length = ((2.0 * NORM_CONSTANT * NORM_CONSTANT + 0.5) * used_columns as f64 / width as f64).sqrt();
    let entries: Vec<_> = weights.entries().map(|(id, entry)| (id, entry.role, entry.shape)).collect();
    for (id, role, shape) in entries {
        if role == Role::ResidualNorm {
            weights.get_mut(id).fill(S::from_f64(length));
        }
        let reads_residual = !matches!(role, Role::Output | Role::Embedding | Role::Position);
        if norm == NormConfig::Layer && shape.len() == 2 && shape.width() == width && reads_residual {
            for row in weights.get_mut(id).chunks_exact_mut(width) {
                let sum: f64 = row.iter().map(|value| value.to_f64()).sum();
                row[zero_column] = S::from_f64(row[zero_column].to_f64() - sum);
            }
        }
    }
}

/// Whether heads fit a mixer. A value with more channels than the mixer's is split over several heads with the same query and key.
fn heads_fit(heads: &[AttentionHead], mixer: &Mixer) -> bool {
    let sizes = AttentionSizes::from_mixer(mixer);
    let needed_heads: usize = heads.iter().map(|head| head.value.len().div_ceil(sizes.value_dim).max(1)).sum();
    needed_heads <= sizes.kv_heads && heads.iter().all(|head| head.key.len() <= sizes.key_dim)
}
