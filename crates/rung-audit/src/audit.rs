//! From a config to an audit: the dialects' readings, the mixers' sizes, the plan, and what follows from it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rung_theory::bound::sparse::Sparse;
use rung_theory::stack::mixer::Selection;
use rung_theory::stack::{Capacity, Defaults, Layer, Mixer, Plan, Reach};

use crate::config::Config;
use crate::cost::{self, BF16, Cache, Dtype, FP32, Storage, Work};
use crate::dialect::{self, Decision};
use crate::geometry::{self, Sized};
use crate::json::Value;
use crate::layout::{Attention, Channel, Join, Kind, Layout, Reading, Recurrent};
use crate::parameters::{self, Parameters};
use crate::{AuditError, channel, recurrent};

/// The context at which sizes are compared unless another is asked for.
pub const DEFAULT_CONTEXT: u64 = 131_072;
/// The longest context that can be asked for.
pub const LONGEST_CONTEXT: u64 = 1 << 40;

/// How the lower bounds are asked: a plan and a number of hops in, and out comes the base-2 logarithm of the smallest
/// number of tokens at which it is certified that the plan cannot compose that many functions; nothing if none is.
pub type Certify<'a> = dyn Fn(&Plan, usize) -> Option<f64> + 'a;

/// What an audit assumes about use.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Tokens in the cache.
    pub context: u64,
    /// How keys and values are stored.
    pub kv_dtype: Dtype,
    /// How recurrent state is stored; by default as the config says, else in 32 bits.
    pub state_dtype: Option<Dtype>,
    /// The lower bounds to ask, if any.
    pub certify: Option<&'a Certify<'a>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { context: DEFAULT_CONTEXT, kv_dtype: BF16, state_dtype: None, certify: None }
    }
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { context, kv_dtype, state_dtype, certify } = self;
        write!(out, "Options {{ {context}, {kv_dtype:?}, {state_dtype:?}, certify: {} }}", certify.is_some())
    }
}

/// One layer of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLayer {
    /// How it attends; nothing if that is unknown.
    pub attention: Option<Attention>,
    /// The recurrence's mixer, by Rung's name; `unknown` if there is one and its family is not told.
    pub recurrent: Option<&'static str>,
    /// Its feed-forward part.
    pub channel: Channel,
    /// The field that decided.
    pub decided_by: String,
    /// Reads the cache of an earlier layer and keeps none.
    pub shares_cache: bool,
    /// Uses the attention weights of an earlier layer.
    pub shares_weights: bool,
    /// What it becomes in the plan: one layer, or two where one mixer feeds the other.
    pub parts: Vec<Layer>,
}

impl AuditLayer {
    /// Whether anything in it mixes tokens, as far as known.
    pub fn mixes(&self) -> bool {
        self.attention != Some(Attention::None) || self.recurrent.is_some()
    }

    /// Whether it counts as a full layer: it can read any token of the past.
    pub fn is_full(&self) -> bool {
        matches!(self.attention, Some(Attention::Full | Attention::Sparse))
    }

    /// Its letter in the strip: F full, S sparse, W window, r recurrent, P and p full and window beside a recurrence,
    /// a dot for no mixer, a question mark for unknown.
    pub fn letter(&self) -> char {
        match (self.attention, self.recurrent.is_some()) {
            (None, _) => '?',
            (Some(Attention::Full), false) => 'F',
            (Some(Attention::Sparse), _) => 'S',
            (Some(Attention::Full), true) => 'P',
            (Some(Attention::Window), false) => 'W',
            (Some(Attention::Window), true) => 'p',
            (Some(Attention::None), true) => 'r',
            (Some(Attention::None), false) => '.',
        }
    }
}

/// The same stack with full attention in every layer that has a mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllFull {
    /// Its rungs.
    pub rungs: usize,
    /// Its cache.
    pub cache: Cache,
    /// Its weights and arithmetic, where the model's width is told.
    pub work: Option<Work>,
}

/// Block-sparse layers: what a block's summary holds against what 2-Sum needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSparse {
    /// How many such layers.
    pub layers: usize,
    /// Tokens in a block.
    pub block: u64,
    /// Blocks picked in all by one token.
    pub picked: u64,
    /// Bits in one block's summary.
    pub had: u64,
    /// Bits below which the layer provably cannot solve 2-Sum at this context, with as many values as tokens; nothing
    /// where the bound does not apply.
    pub needed: Option<u64>,
}

/// What the lower bounds say about one hop more than the stack's rungs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certified {
    /// The number of hops.
    pub hops: usize,
    /// Base-2 logarithm of the tokens from which it is certified out of reach.
    pub log2_tokens: Option<f64>,
    /// Whether the context asked for is that long.
    pub reached: bool,
}

/// The truth about a model's layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// What it was called.
    pub model: String,
    /// Where its facts come from.
    pub source: String,
    /// The dialect that decided; nothing if none did.
    pub dialect: Option<&'static str>,
    /// One per layer of the config.
    pub layers: Vec<AuditLayer>,
    /// The width of the residual stream, if told.
    pub width: Option<u64>,
    /// Why something is unknown; empty when all is known.
    pub unknown: Vec<String>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
    /// Tokens in the cache.
    pub context: u64,
    /// How keys and values are stored.
    pub kv_dtype: Dtype,
    /// How recurrent state is stored.
    pub state_dtype: Dtype,
    /// The resolved stack, if every layer is known.
    pub plan: Option<Plan>,
    /// Full layers, blocks, the extra hop and rungs, if every layer is known.
    pub capacity: Option<Capacity>,
    /// Bytes, if every size is known.
    pub cache: Option<Cache>,
    /// Weights and arithmetic, if every size and the width are known.
    pub work: Option<Work>,
    /// The all-full stack of the same depth, where its sizes are known.
    pub all_full: Option<AllFull>,
    /// Block-sparse layers, if any.
    pub block_sparse: Option<BlockSparse>,
    /// What the lower bounds say.
    pub certified: Option<Certified>,
    /// The architecture's name, as the library that wrote the file calls it.
    pub architecture: Option<String>,
    /// The longest context that the config names.
    pub trained_context: Option<u64>,
    /// The format of activations, if the config names it.
    pub activation_dtype: Option<Dtype>,
    /// The format of recurrent state, if the config names it.
    pub declared_state_dtype: Option<Dtype>,
    /// Layers that predict further tokens, which are not among `layers`.
    pub extra_layers: u64,
    /// All weights, where the config tells enough.
    pub parameters: Option<Parameters>,
    /// A full layer in this model's own sizes, for edits.
    pub(crate) full_part: Option<Layer>,
}

impl Audit {
    /// One letter per layer; see [`AuditLayer::letter`].
    pub fn strip(&self) -> String {
        self.layers.iter().map(AuditLayer::letter).collect()
    }

    /// Layers that can read any token of the past, as far as known.
    pub fn full_layers(&self) -> Option<usize> {
        self.capacity.as_ref().map(|capacity| capacity.full)
    }

    /// Layers that mix tokens: the depth that rungs are compared at.
    pub fn mixing_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.mixes()).count()
    }

    pub(crate) fn storage(&self) -> Storage {
        Storage { kv: self.kv_dtype, state: self.state_dtype, context: self.context }
    }

    /// Works out everything that follows from the layers.
    pub(crate) fn conclude(&mut self, options: &Options) -> Result<(), AuditError> {
        (self.plan, self.capacity, self.cache, self.work) = (None, None, None, None);
        (self.all_full, self.block_sparse, self.certified) = (None, None, None);
        if self.layers.is_empty() || self.layers.iter().any(|layer| layer.attention.is_none()) {
            return Ok(());
        }
        let layers: Vec<Layer> = self.layers.iter().flat_map(|layer| layer.parts.iter().cloned()).collect();
        let plan = Plan { width: self.width.unwrap_or(1), layers };
        let capacity = plan.capacity();
        if self.unknown.is_empty() {
            let storage = self.storage();
            self.cache = Some(cost::cache(plan.layers.iter(), storage)?);
            self.work = match self.width {
                Some(_) => Some(cost::work(self.layers.iter().flat_map(weights), self.context)?),
                None => None,
            };
            self.all_full = self.all_full()?;
            self.block_sparse = block_sparse(&plan, self.context);
            let hops = capacity.rungs + 1;
            let log2_tokens = options.certify.and_then(|certify| certify(&plan, hops));
            let reached = log2_tokens.is_some_and(|log2| (self.context as f64).log2() >= log2);
            self.certified = Some(Certified { hops, log2_tokens, reached });
        }
        (self.plan, self.capacity) = (Some(plan), Some(capacity));
        Ok(())
    }

    fn all_full(&self) -> Result<Option<AllFull>, AuditError> {
        let Some(part) = &self.full_part else { return Ok(None) };
        let depth = self.mixing_layers();
        let layers = std::iter::repeat_n(part, depth);
        let cache = cost::cache(layers.clone(), self.storage())?;
        let work = match self.width {
            Some(_) => Some(cost::work(layers.map(|layer| (layer, false)), self.context)?),
            None => None,
        };
        Ok(Some(AllFull { rungs: depth.saturating_sub(1), cache, work }))
    }
}

fn weights(layer: &AuditLayer) -> impl Iterator<Item = (&Layer, bool)> {
    layer.parts.iter().map(|part| (part, layer.shares_weights))
}

fn block_sparse(plan: &Plan, context: u64) -> Option<BlockSparse> {
    let of = |mixer: &Mixer| -> Option<(Selection, u64)> {
        match mixer.facts().reach {
            Reach::Full(message) => message.selection.filter(|pick| pick.block > 1).map(|pick| (pick, mixer.bits())),
            Reach::Bounded => None,
        }
    };
    let all: Vec<_> = plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter_map(of).collect();
    let (pick, bits) = *all.first()?;
    let (block, picked) = (pick.block as u64, (pick.groups * pick.picked) as u64);
    let had = u64::try_from(pick.summary * u128::from(bits)).unwrap_or(u64::MAX);
    // Every token may hold a different value; what is needed does not depend on what is had.
    let others = (context / block).saturating_sub(1);
    let question = Sparse { block, select: picked, bits: 0, values: context, blocks: others, same_map: false };
    let needed = question.verdict().ok().and_then(|verdict| verdict.needed);
    Some(BlockSparse { layers: all.len(), block, picked, had, needed })
}

/// Reads the layers of a config.
pub(crate) fn audit(config: &Config, model: &str, source: &str, options: &Options) -> Result<Audit, AuditError> {
    if !(1..=LONGEST_CONTEXT).contains(&options.context) {
        let why = format!("a context has 1 to {LONGEST_CONTEXT} tokens");
        return Err(AuditError::Request { text: options.context.to_string(), why });
    }
    let mut audit = Audit {
        model: model.to_owned(),
        source: source.to_owned(),
        dialect: None,
        layers: Vec::new(),
        width: config.width()?,
        unknown: Vec::new(),
        assumed: Vec::new(),
        context: options.context,
        kv_dtype: options.kv_dtype,
        state_dtype: FP32,
        plan: None,
        capacity: None,
        cache: None,
        work: None,
        all_full: None,
        block_sparse: None,
        certified: None,
        architecture: config.model_type()?.map(str::to_owned),
        trained_context: trained_context(config),
        activation_dtype: None,
        declared_state_dtype: None,
        extra_layers: extra_layers(config)?,
        parameters: None,
        full_part: None,
    };
    audit.activation_dtype = named_dtype(config, &["torch_dtype", "dtype"], &mut Vec::new());
    audit.declared_state_dtype = named_dtype(config, &["mamba_ssm_cache_dtype", "mamba_ssm_dtype"], &mut audit.assumed);
    audit.state_dtype = options.state_dtype.or(audit.declared_state_dtype).unwrap_or(FP32);
    match dialect::decide(config)? {
        Decision::Unknown(fields) => {
            audit.unknown.push(match crate::family::other_than_decoder(config)? {
                Some(what) => format!("the config describes {what}"),
                None => undecided(config, &fields)?,
            });
        }
        Decision::Read(dialect, layout) => {
            audit.dialect = Some(dialect.name);
            if !config.gguf {
                audit.unknown.extend(crate::unread::unread_fields(config, layout.layers.len()));
            }
            resolve(config, layout, &mut audit)?;
        }
    }
    take_for_granted(config, &mut audit)?;
    audit.conclude(options)?;
    // The count is an extra: fields that it cannot read do not make the layers unreadable.
    audit.parameters = parameters::count(config, &audit).unwrap_or(None);
    Ok(audit)
}

/// Why no dialect decided.
fn undecided(config: &Config, fields: &[String]) -> Result<String, AuditError> {
    let architecture = config.model_type()?.map_or_else(String::new, |name| {
        format!(" and the architecture `{}` is not in the list of those that need none", name.escape_debug())
    });
    Ok(format!("no field tells the layers{architecture}; looked for {}", fields.join(", ")))
}

/// The number format that the first of several fields names; one that names none is noted.
fn named_dtype(config: &Config, names: &[&str], assumed: &mut Vec<String>) -> Option<Dtype> {
    for name in names {
        let Some(Value::Text(word)) = config.get_anywhere(name) else { continue };
        match word.parse() {
            Ok(dtype) => return Some(dtype),
            Err(_) => {
                assumed.push(format!("State is charged in fp32: `{}` names no known format.", config.path_of(name)));
            }
        }
    }
    None
}

/// The longest context the config names, if it is one we plan for.
fn trained_context(config: &Config) -> Option<u64> {
    let names =
        ["max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "context_length", "n_ctx"];
    for name in names {
        if let Some(found) = config.get(name).and_then(crate::config::whole).filter(|found| *found > 0) {
            return Some(found.min(LONGEST_CONTEXT));
        }
    }
    None
}

/// Layers that predict further tokens.
fn extra_layers(config: &Config) -> Result<u64, AuditError> {
    let mut extra = 0;
    for name in ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "nextn_predict_layers"] {
        extra = extra.max(config.count(name)?.unwrap_or(0));
    }
    Ok(extra)
}

/// One resolved reading, kept because neighbours are alike.
struct Resolved {
    parts: Vec<Layer>,
    recurrent: Option<&'static str>,
    missing: Vec<String>,
}

fn resolve(config: &Config, layout: Layout, audit: &mut Audit) -> Result<(), AuditError> {
    const MOST_REASONS: usize = 64;
    let channels = channel::channels(config, layout.layers.len())?;
    let sizes = Sizes { config, defaults: defaults(audit.width), state: audit.state_dtype };
    audit.assumed.extend(layout.assumed);
    let mut known: HashMap<Reading, Resolved> = HashMap::new();
    let mut words = 0;
    for (index, mut reading) in layout.layers.into_iter().enumerate() {
        let decided_by = std::mem::take(&mut reading.decided_by);
        if let Kind::Unknown { word } = &mut reading.kind {
            let word = std::mem::take(word);
            words += 1;
            if words <= MOST_REASONS {
                let word: String = word.chars().take(60).collect();
                audit.unknown.push(format!(
                    "layer {index}: `{decided_by}` is \"{}\", a word that no dialect knows",
                    word.escape_debug()
                ));
            }
        }
        let mut layer = AuditLayer {
            attention: reading.kind.attention(),
            recurrent: None,
            channel: reading.channel.unwrap_or(channels[index]),
            decided_by,
            shares_cache: reading.shares_cache,
            shares_weights: reading.shares_weights,
            parts: Vec::new(),
        };
        let one = match known.entry(reading) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let one = sizes.resolve(place.key())?;
                if audit.unknown.len() < MOST_REASONS {
                    audit
                        .unknown
                        .extend(one.missing.iter().map(|what| format!("layer {index} and those like it: {what}")));
                }
                place.insert(one)
            }
        };
        (layer.recurrent, layer.parts) = (one.recurrent, one.parts.clone());
        audit.layers.push(layer);
    }
    if words > MOST_REASONS {
        audit.unknown.push(format!("and {} more layers with words that no dialect knows", words - MOST_REASONS));
    }
    audit.full_part = sizes.full_part(audit)?;
    Ok(())
}

fn defaults(width: Option<u64>) -> Defaults {
    // Every number that matters is given; these stand in where a size is not told, and then no bytes are shown.
    Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width.unwrap_or(1)), bits: BF16.bits }
}

struct Sizes<'a> {
    config: &'a Config<'a>,
    defaults: Defaults,
    state: Dtype,
}

impl Sizes<'_> {
    /// The mixers of one reading; what is not told is listed and stood in for.
    fn resolve(&self, reading: &Reading) -> Result<Resolved, AuditError> {
        let mut missing = Vec::new();
        let mut attends = None;
        let config = &self.config.of_layer(reading.own_fields.as_deref());
        if let Some(sized) = geometry::attention(config, &reading.kind, reading.own)? {
            attends = Some(match sized {
                Sized::Known(name, numbers) => self.build(name, &numbers, BF16.bits)?,
                Sized::Missing(fields) => {
                    missing.push(format!("the sizes of attention are not told; looked for {}", fields.join(", ")));
                    let name = if reading.kind.attention() == Some(Attention::Window) { "window" } else { "full" };
                    self.build(name, &[], BF16.bits)?
                }
            });
        }
        let mut recurs = None;
        if let Some(wanted) = &reading.recurrent {
            recurs = Some(match recurrent::find(config, wanted)? {
                Sized::Known(name, numbers) => (name, self.build(name, &numbers, self.state.bits)?),
                Sized::Missing(fields) => {
                    missing.push(format!("the sizes of its recurrence are not told; looked for {}", fields.join(", ")));
                    let name = match wanted {
                        Recurrent::OneOf([name]) => name,
                        _ => "unknown",
                    };
                    (name, self.build("linear", &[], self.state.bits)?)
                }
            });
        }
        let recurrent = recurs.as_ref().map(|(name, _)| *name);
        let mut parts = match (attends, recurs, reading.join) {
            (Some(attends), Some((_, recurs)), Join::Beside) => vec![Layer::beside(vec![attends, recurs])],
            (Some(attends), Some((_, recurs)), Join::After) => vec![Layer::new(attends), Layer::new(recurs)],
            (Some(attends), Some((_, recurs)), Join::Before) => vec![Layer::new(recurs), Layer::new(attends)],
            (Some(one), None, _) | (None, Some((_, one)), _) => vec![Layer::new(one)],
            (None, None, _) => vec![Layer::new(self.build("none", &[], BF16.bits)?)],
        };
        for part in &mut parts {
            part.shares_cache = reading.shares_cache;
        }
        Ok(Resolved { parts, recurrent, missing })
    }

    fn build(&self, name: &str, numbers: &[(&'static str, u64)], bits: u64) -> Result<Mixer, AuditError> {
        geometry::build(name, numbers, bits, &self.defaults)
    }

    /// A full layer in the model's own sizes: its own if it has one, else what its other attention would be if it were
    /// full, else as many heads as fit the width.
    fn full_part(&self, audit: &Audit) -> Result<Option<Layer>, AuditError> {
        let mixers = || audit.layers.iter().flat_map(|layer| &layer.parts).flat_map(|part| part.mixers.iter());
        if let Some(mixer) = mixers().find(|mixer| matches!(mixer.name(), "full" | "mla")) {
            return Ok(Some(Layer::new(mixer.clone())));
        }
        // Sparse layers, reading and keeping everything; windows, seen whole.
        let like = |mixer: &Mixer, name: &str, fields: &[&'static str]| {
            let numbers: Vec<_> = fields.iter().map(|&field| (field, mixer.number(field).unwrap_or(1))).collect();
            self.build(name, &numbers, BF16.bits).map(|mixer| Some(Layer::new(mixer)))
        };
        for mixer in mixers() {
            match mixer.name() {
                "dsa" => return like(mixer, "mla", &["heads", "head", "latent", "rope", "value", "query-rank"]),
                "moba" | "window" | "chunked" => return like(mixer, "full", &["heads", "kv", "head", "key", "value"]),
                "compressed" => {
                    let take = |field: &'static str| (field, mixer.number(field).unwrap_or(1));
                    let numbers = [take("heads"), take("head"), take("query-rank"), ("ratio", 1), ("window", 0)];
                    return Ok(Some(Layer::new(self.build("compressed", &numbers, BF16.bits)?)));
                }
                _ => {}
            }
        }
        let Some(width) = audit.width else { return Ok(None) };
        let head = [128, 64, 32, 16, 8, 4, 2, 1].into_iter().find(|head| width.is_multiple_of(*head)).unwrap_or(1);
        let numbers = [("heads", width / head), ("kv", width / head), ("head", head)];
        Ok(Some(Layer::new(self.build("full", &numbers, BF16.bits)?)))
    }
}

/// Notes about what the figures rest on.
fn take_for_granted(config: &Config, audit: &mut Audit) -> Result<(), AuditError> {
    let extra = audit.extra_layers;
    let mut note = |what: String| audit.assumed.push(what);
    if extra > 0 {
        note(format!(
            "Layers that predict further tokens ({extra}) are extra: neither their rungs nor their caches are counted."
        ));
    }
    if config.flag("attention_k_eq_v")? == Some(true) {
        note(
            "Full layers use one projection for keys and values, but keep both: they are normalised differently."
                .to_owned(),
        );
    }
    if audit.width.is_none() {
        note("Weights and arithmetic are not counted: the model's width is not told.".to_owned());
    }
    let attends = audit.layers.iter().any(|layer| !matches!(layer.attention, Some(Attention::None) | None));
    let window = audit.layers.iter().any(|layer| layer.attention == Some(Attention::Window));
    let full = audit.layers.iter().any(AuditLayer::is_full);
    let recurs = audit.layers.iter().any(|layer| layer.recurrent.is_some());
    let mut note = |what: String| audit.assumed.push(what);
    if attends {
        note(format!("Keys and values in {}, batch of one.", audit.kv_dtype.name));
    }
    if recurs {
        note(format!(
            "Recurrent state in {}, inputs of short convolutions in bf16, one fewer than their taps.",
            audit.state_dtype.name
        ));
    }
    if window {
        note("A window is charged all the tokens it can hold, the current one included.".to_owned());
    }
    if !full && !audit.layers.is_empty() {
        let how = if window { "the sizes of the window layers" } else { "as many key/value heads as query heads" };
        note(format!("The model has no layer that sees the whole past; its all-full variant is given {how}."));
    }
    Ok(())
}
