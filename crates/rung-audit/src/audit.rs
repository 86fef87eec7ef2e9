//! From a config to an audit: the dialects' layer specs, the mixers' sizes, the plan, and what follows from it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rung_theory::bound::sparse::Sparse;
use rung_theory::stack::mixer::TokenSelection;
use rung_theory::stack::{Capacity, Defaults, Layer, Mixer, MixerReach, Plan};

use crate::config::Config;
use crate::cost::{self, BF16, CacheBytes, Dtype, FP32, MixerCost, Storage};
use crate::dialect::{self, Decision};
use crate::geometry::{self, MixerSizes};
use crate::json::JsonValue;
use crate::layout::{AttentionKind, AttentionScope, FeedForwardKind, Join, LayerSpec, Layout, Recurrent};
use crate::parameters::{self, ParameterCount};
use crate::{AuditError, feed_forward, recurrent};

/// The default context length at which sizes are compared.
pub const DEFAULT_CONTEXT: u64 = 131_072;
/// The longest context length that is accepted.
pub const MAX_CONTEXT: u64 = 1 << 40;

/// A source of lower bounds, for a plan and a number of hops.
pub type BoundOracle<'a> = dyn Fn(&Plan, usize) -> BoundSearch + 'a;

/// Context length and number formats of an audit.
#[derive(Clone, Copy)]
pub struct AuditOptions<'a> {
    /// Context length in tokens.
    pub context: u64,
    /// Number format of keys and values.
    pub kv_dtype: Dtype,
    /// Number format of recurrent state; by default the config's, else 32 bits.
    pub state_dtype: Option<Dtype>,
    /// Where lower bounds come from, if they are wanted.
    pub bound_oracle: Option<&'a BoundOracle<'a>>,
}

impl Default for AuditOptions<'_> {
    fn default() -> Self {
        Self { context: DEFAULT_CONTEXT, kv_dtype: BF16, state_dtype: None, bound_oracle: None }
    }
}

impl std::fmt::Debug for AuditOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { context, kv_dtype, state_dtype, bound_oracle } = self;
        write!(out, "Options {{ {context}, {kv_dtype:?}, {state_dtype:?}, bound_oracle: {} }}", bound_oracle.is_some())
    }
}

/// One layer of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLayer {
    /// How it attends; `None` if that is unknown.
    pub attention: Option<AttentionScope>,
    /// The recurrence's mixer, by Rung's name; `unknown` if there is one and the file does not say which.
    pub recurrent: Option<&'static str>,
    /// Its feed-forward part.
    pub feed_forward: FeedForwardKind,
    /// The field that decided.
    pub decided_by: String,
    /// Reads the cache of an earlier layer and keeps none.
    pub shares_cache: bool,
    /// Uses the attention weights of an earlier layer.
    pub shares_weights: bool,
    /// Its layers in the plan: one, or two where one mixer feeds the other.
    pub plan_layers: Vec<Layer>,
}

impl AuditLayer {
    /// Whether anything in it mixes tokens, as far as known.
    pub fn mixes(&self) -> bool {
        self.attention != Some(AttentionScope::None) || self.recurrent.is_some()
    }

    /// Whether it counts as a full layer: it can read any token of the past.
    pub fn is_full(&self) -> bool {
        matches!(self.attention, Some(AttentionScope::Full | AttentionScope::Sparse))
    }

    /// One letter: F full, S sparse, W window, r recurrent, P and p full and window in parallel with a recurrence,
    /// a dot for no mixer, a question mark for unknown.
    pub fn letter(&self) -> char {
        match (self.attention, self.recurrent.is_some()) {
            (None, _) => '?',
            (Some(AttentionScope::Full), false) => 'F',
            (Some(AttentionScope::Sparse), _) => 'S',
            (Some(AttentionScope::Full), true) => 'P',
            (Some(AttentionScope::Window), false) => 'W',
            (Some(AttentionScope::Window), true) => 'p',
            (Some(AttentionScope::None), true) => 'r',
            (Some(AttentionScope::None), false) => '.',
        }
    }
}

/// The same stack with full attention in every layer that has a mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllFull {
    /// Its rungs.
    pub rungs: usize,
    /// Its cache.
    pub cache: CacheBytes,
    /// Weights and FLOPs of its mixers, where the model's width is given.
    pub mixer_cost: Option<MixerCost>,
}

/// Block-sparse layers: the bits in a block's summary, and the bits that 2-Sum requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSparse {
    /// How many such layers.
    pub layers: usize,
    /// Tokens in a block.
    pub block_tokens: u64,
    /// Blocks that one token selects, over all groups of heads.
    pub selected_blocks: u64,
    /// Bits in one block's summary.
    pub summary_bits: u64,
    /// Bits below which the layer provably cannot solve 2-Sum at this context, with as many values as tokens; `None`
    /// where the bound does not apply.
    pub required_bits: Option<u64>,
}

/// What the lower bounds say about one hop more than the stack's rungs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextHopBound {
    /// The number of hops.
    pub hops: usize,
    /// From how many tokens on that many hops are certified impossible.
    pub search: BoundSearch,
    /// Whether the audit's context is that long.
    pub reached: bool,
}

impl NextHopBound {
    /// Base-2 logarithm of the number of tokens from which on that many hops are certified impossible.
    pub fn log2_tokens(&self) -> Option<f64> {
        match self.search {
            BoundSearch::From { log2_tokens } => Some(log2_tokens),
            BoundSearch::NotFound | BoundSearch::Skipped => None,
        }
    }
}

/// What a search for a lower bound ends with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BoundSearch {
    /// A certificate.
    From {
        /// Base-2 logarithm of the smallest number of tokens at which the plan provably cannot compose that many functions.
        log2_tokens: f64,
    },
    /// There was a search, without result.
    NotFound,
    /// There was none: it was not wanted, or the hops are too many.
    Skipped,
}

/// What a model's layers are, and what follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// The model's name.
    pub model: String,
    /// The file or page that the fields come from.
    pub source: String,
    /// The dialect that decided; `None` if none did.
    pub dialect: Option<&'static str>,
    /// One per layer of the config.
    pub layers: Vec<AuditLayer>,
    /// The width of the residual stream, if given.
    pub width: Option<u64>,
    /// Why something is unknown; empty when all is known.
    pub unknown: Vec<String>,
    /// Assumptions that the figures rest on.
    pub assumed: Vec<String>,
    /// Context length in tokens.
    pub context: u64,
    /// Number format of keys and values.
    pub kv_dtype: Dtype,
    /// Number format of recurrent state.
    pub state_dtype: Dtype,
    /// The resolved stack, if every layer is known.
    pub plan: Option<Plan>,
    /// Full layers, blocks, the extra hop and rungs, if every layer is known.
    pub capacity: Option<Capacity>,
    /// Bytes, if every size is known.
    pub cache: Option<CacheBytes>,
    /// Weights and FLOPs of the mixers, if every size and the width are known.
    pub mixer_cost: Option<MixerCost>,
    /// The all-full stack of the same depth, where its sizes are known.
    pub all_full: Option<AllFull>,
    /// Block-sparse layers, if any.
    pub block_sparse: Option<BlockSparse>,
    /// What the lower bounds say about one hop more than `capacity.rungs`.
    pub next_hop_bound: Option<NextHopBound>,
    /// The architecture's name, as the library that wrote the file calls it.
    pub architecture: Option<String>,
    /// The longest context that the config names.
    pub trained_context: Option<u64>,
    /// The format of activations, if the config names it.
    pub activation_dtype: Option<Dtype>,
    /// The format of recurrent state, if the config names it.
    pub declared_state_dtype: Option<Dtype>,
    /// Multi-token-prediction layers, which are not among `layers`.
    pub extra_layers: u64,
    /// Number of weights, where the config gives enough fields.
    pub parameters: Option<ParameterCount>,
    /// A full layer with this model's sizes, for `what_if`.
    pub(crate) full_template: Option<Layer>,
}

impl Audit {
    /// One letter per layer; see [`AuditLayer::letter`].
    pub fn layer_letters(&self) -> String {
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

    /// Computes everything that follows from the layers.
    pub(crate) fn derive(&mut self, options: &AuditOptions) -> Result<(), AuditError> {
        (self.plan, self.capacity, self.cache, self.mixer_cost) = (None, None, None, None);
        (self.all_full, self.block_sparse, self.next_hop_bound) = (None, None, None);
        if self.layers.is_empty() || self.layers.iter().any(|layer| layer.attention.is_none()) {
            return Ok(());
        }
        let layers: Vec<Layer> = self.layers.iter().flat_map(|layer| layer.plan_layers.iter().cloned()).collect();
        let plan = Plan { width: self.width.unwrap_or(1), layers };
        let capacity = plan.capacity();
        if self.unknown.is_empty() {
            let storage = self.storage();
            self.cache = Some(cost::cache(plan.layers.iter(), storage)?);
            self.mixer_cost = match self.width {
                Some(_) => Some(cost::mixer_cost(self.layers.iter().flat_map(plan_layers), self.context)?),
                None => None,
            };
            self.all_full = self.all_full()?;
            self.block_sparse = block_sparse(&plan, self.context);
            let hops = capacity.rungs + 1;
            let search = options.bound_oracle.map_or(BoundSearch::Skipped, |bound_oracle| bound_oracle(&plan, hops));
            let mut bound = NextHopBound { hops, search, reached: false };
            bound.reached = bound.log2_tokens().is_some_and(|log2| (self.context as f64).log2() >= log2);
            self.next_hop_bound = Some(bound);
        }
        (self.plan, self.capacity) = (Some(plan), Some(capacity));
        Ok(())
    }

    fn all_full(&self) -> Result<Option<AllFull>, AuditError> {
        let Some(full) = &self.full_template else { return Ok(None) };
        let depth = self.mixing_layers();
        let layers = std::iter::repeat_n(full, depth);
        let cache = cost::cache(layers.clone(), self.storage())?;
        let mixer_cost = match self.width {
            Some(_) => Some(cost::mixer_cost(layers.map(|layer| (layer, false)), self.context)?),
            None => None,
        };
        Ok(Some(AllFull { rungs: depth.saturating_sub(1), cache, mixer_cost }))
    }
}

/// The layers of the plan, each with whether its attention weights are those of an earlier one.
fn plan_layers(layer: &AuditLayer) -> impl Iterator<Item = (&Layer, bool)> {
    layer.plan_layers.iter().map(|part| (part, layer.shares_weights))
}

fn block_sparse(plan: &Plan, context: u64) -> Option<BlockSparse> {
    let selection_of = |mixer: &Mixer| -> Option<(TokenSelection, u64)> {
        match mixer.facts().reach {
            MixerReach::Full(message) => {
                message.selection.filter(|selection| selection.block > 1).map(|selection| (selection, mixer.bits()))
            }
            MixerReach::Bounded => None,
        }
    };
    let all: Vec<_> = plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter_map(selection_of).collect();
    let (first, bits) = *all.first()?;
    let (block_tokens, selected_blocks) = (first.block as u64, (first.groups * first.picked) as u64);
    let summary_bits = u64::try_from(first.summary * u128::from(bits)).unwrap_or(u64::MAX);
    // Every token may hold a different value; the bits required do not depend on the bits present.
    let others = (context / block_tokens).saturating_sub(1);
    let question = Sparse {
        block: block_tokens,
        select: selected_blocks,
        bits: 0,
        values: context,
        blocks: others,
        same_map: false,
    };
    let required_bits = question.verdict().ok().and_then(|verdict| verdict.needed);
    Some(BlockSparse { layers: all.len(), block_tokens, selected_blocks, summary_bits, required_bits })
}

/// Reads the layers of a config.
pub(crate) fn audit(config: &Config, model: &str, source: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if !(1..=MAX_CONTEXT).contains(&options.context) {
        let why = format!("a context has 1 to {MAX_CONTEXT} tokens");
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
        mixer_cost: None,
        all_full: None,
        block_sparse: None,
        next_hop_bound: None,
        architecture: config.model_type()?.map(str::to_owned),
        trained_context: trained_context(config),
        activation_dtype: None,
        declared_state_dtype: None,
        extra_layers: extra_layers(config)?,
        parameters: None,
        full_template: None,
    };
    audit.activation_dtype = named_dtype(config, &["torch_dtype", "dtype"], &mut Vec::new());
    audit.declared_state_dtype = named_dtype(config, &["mamba_ssm_cache_dtype", "mamba_ssm_dtype"], &mut audit.assumed);
    audit.state_dtype = options.state_dtype.or(audit.declared_state_dtype).unwrap_or(FP32);
    match dialect::decide(config)? {
        Decision::Unknown(fields) => {
            audit.unknown.push(match crate::non_decoder::other_than_decoder(config)? {
                Some(what) => format!("the config describes {what}"),
                None => undecided(config, &fields)?,
            });
        }
        Decision::Read(dialect, layout) => {
            audit.dialect = Some(dialect.name);
            if !config.gguf {
                audit.unknown.extend(crate::unread_fields::unread_fields(config, layout.layers.len()));
            }
            resolve(config, layout, &mut audit)?;
        }
    }
    note_assumptions(config, &mut audit)?;
    audit.derive(options)?;
    // The count is an extra: fields that it cannot read do not make the layers unreadable.
    audit.parameters = parameters::count(config, &audit).unwrap_or(None);
    Ok(audit)
}

/// Why no dialect decided.
fn undecided(config: &Config, fields: &[String]) -> Result<String, AuditError> {
    let architecture = config.model_type()?.map_or_else(String::new, |name| {
        format!(" and the architecture `{}` is not in the list of those that need none", name.escape_debug())
    });
    Ok(format!("no field gives the layout{architecture}; looked for {}", fields.join(", ")))
}

/// The number format that the first of several fields names; one that names none is noted.
fn named_dtype(config: &Config, names: &[&str], assumed: &mut Vec<String>) -> Option<Dtype> {
    for name in names {
        let Some(JsonValue::Text(word)) = config.get_anywhere(name) else { continue };
        match word.parse() {
            Ok(dtype) => return Some(dtype),
            Err(_) => {
                assumed.push(format!("State is counted in fp32: `{}` names no known format.", config.path_of(name)));
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
        if let Some(found) = config.get(name).and_then(crate::config::as_u64).filter(|found| *found > 0) {
            return Some(found.min(MAX_CONTEXT));
        }
    }
    None
}

/// Multi-token-prediction layers.
fn extra_layers(config: &Config) -> Result<u64, AuditError> {
    let mut extra = 0;
    for name in ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "nextn_predict_layers"] {
        extra = extra.max(config.count(name)?.unwrap_or(0));
    }
    Ok(extra)
}

/// The mixers of one layer spec; layers with equal specs share it.
struct ResolvedLayer {
    plan_layers: Vec<Layer>,
    recurrent: Option<&'static str>,
    missing: Vec<String>,
}

fn resolve(config: &Config, layout: Layout, audit: &mut Audit) -> Result<(), AuditError> {
    const MAX_REASONS: usize = 64;
    let feed_forwards = feed_forward::feed_forwards(config, layout.layers.len())?;
    let builder = MixerBuilder { config, defaults: defaults(audit.width), state_dtype: audit.state_dtype };
    audit.assumed.extend(layout.assumed);
    let mut resolved: HashMap<LayerSpec, ResolvedLayer> = HashMap::new();
    let mut unknown_words = 0;
    for (index, mut spec) in layout.layers.into_iter().enumerate() {
        let decided_by = std::mem::take(&mut spec.decided_by);
        if let AttentionKind::Unknown { word } = &mut spec.kind {
            let word = std::mem::take(word);
            unknown_words += 1;
            if unknown_words <= MAX_REASONS {
                let word: String = word.chars().take(60).collect();
                audit.unknown.push(format!(
                    "layer {index}: `{decided_by}` is \"{}\", a word that no dialect knows",
                    word.escape_debug()
                ));
            }
        }
        let mut layer = AuditLayer {
            attention: spec.kind.attention(),
            recurrent: None,
            feed_forward: spec.feed_forward.unwrap_or(feed_forwards[index]),
            decided_by,
            shares_cache: spec.shares_cache,
            shares_weights: spec.shares_weights,
            plan_layers: Vec::new(),
        };
        let one = match resolved.entry(spec) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let one = builder.resolve(entry.key())?;
                if audit.unknown.len() < MAX_REASONS {
                    audit
                        .unknown
                        .extend(one.missing.iter().map(|what| format!("layer {index} and those like it: {what}")));
                }
                entry.insert(one)
            }
        };
        (layer.recurrent, layer.plan_layers) = (one.recurrent, one.plan_layers.clone());
        audit.layers.push(layer);
    }
    if unknown_words > MAX_REASONS {
        audit.unknown.push(format!("and {} more layers with words that no dialect knows", unknown_words - MAX_REASONS));
    }
    audit.full_template = builder.full_template(audit)?;
    Ok(())
}

fn defaults(width: Option<u64>) -> Defaults {
    // Every number that matters is given; these are used where a size is missing, and then no bytes are shown.
    Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width.unwrap_or(1)), bits: BF16.bits }
}

/// Builds mixers in the sizes that the config gives.
struct MixerBuilder<'a> {
    config: &'a Config<'a>,
    defaults: Defaults,
    state_dtype: Dtype,
}

impl MixerBuilder<'_> {
    /// The mixers of one layer; missing sizes are listed and replaced by defaults.
    fn resolve(&self, spec: &LayerSpec) -> Result<ResolvedLayer, AuditError> {
        let mut missing = Vec::new();
        let mut attention = None;
        let config = &self.config.of_layer(spec.override_key.as_deref());
        if let Some(sizes) = geometry::attention(config, &spec.kind, spec.overrides)? {
            attention = Some(match sizes {
                MixerSizes::Known(name, numbers) => self.build(name, &numbers, BF16.bits)?,
                MixerSizes::Missing(fields) => {
                    missing.push(format!("the sizes of attention are not given; looked for {}", fields.join(", ")));
                    let name = if spec.kind.attention() == Some(AttentionScope::Window) { "window" } else { "full" };
                    self.build(name, &[], BF16.bits)?
                }
            });
        }
        let mut recurrence = None;
        if let Some(wanted) = &spec.recurrent {
            recurrence = Some(match recurrent::find(config, wanted)? {
                MixerSizes::Known(name, numbers) => (name, self.build(name, &numbers, self.state_dtype.bits)?),
                MixerSizes::Missing(fields) => {
                    missing
                        .push(format!("the sizes of its recurrence are not given; looked for {}", fields.join(", ")));
                    let name = match wanted {
                        Recurrent::OneOf([name]) => name,
                        _ => "unknown",
                    };
                    (name, self.build("linear", &[], self.state_dtype.bits)?)
                }
            });
        }
        let recurrent = recurrence.as_ref().map(|(name, _)| *name);
        let mut plan_layers = match (attention, recurrence, spec.join) {
            (Some(attention), Some((_, recurrence)), Join::Parallel) => {
                vec![Layer::parallel(vec![attention, recurrence])]
            }
            (Some(attention), Some((_, recurrence)), Join::AttentionFirst) => {
                vec![Layer::new(attention), Layer::new(recurrence)]
            }
            (Some(attention), Some((_, recurrence)), Join::RecurrenceFirst) => {
                vec![Layer::new(recurrence), Layer::new(attention)]
            }
            (Some(one), None, _) | (None, Some((_, one)), _) => vec![Layer::new(one)],
            (None, None, _) => vec![Layer::new(self.build("none", &[], BF16.bits)?)],
        };
        for layer in &mut plan_layers {
            layer.shares_cache = spec.shares_cache;
        }
        Ok(ResolvedLayer { plan_layers, recurrent, missing })
    }

    fn build(&self, name: &str, numbers: &[(&'static str, u64)], bits: u64) -> Result<Mixer, AuditError> {
        geometry::build(name, numbers, bits, &self.defaults)
    }

    /// A full layer with the model's sizes: one of its own if it has one, else what its other attention would be if it were
    /// full, else as many heads as fit the width.
    fn full_template(&self, audit: &Audit) -> Result<Option<Layer>, AuditError> {
        let mixers = || audit.layers.iter().flat_map(|layer| &layer.plan_layers).flat_map(|layer| layer.mixers.iter());
        let whole = |mixer: &&Mixer| {
            let facts = mixer.facts();
            matches!(facts.reach, MixerReach::Full(_)) && mixer.unrestricted().is_none() && facts.selection().is_none()
        };
        if let Some(mixer) = mixers().find(whole) {
            return Ok(Some(Layer::new(mixer.clone())));
        }
        // Sparse layers without selection; windows without a limit.
        if let Some((name, sizes)) = mixers().find_map(Mixer::unrestricted) {
            return Ok(Some(Layer::new(self.build(name, &sizes, BF16.bits)?)));
        }
        let Some(width) = audit.width else { return Ok(None) };
        let head = [128, 64, 32, 16, 8, 4, 2, 1].into_iter().find(|head| width.is_multiple_of(*head)).unwrap_or(1);
        let numbers = [("heads", width / head), ("kv", width / head), ("head", head)];
        Ok(Some(Layer::new(self.build("full", &numbers, BF16.bits)?)))
    }
}

/// Lists the assumptions that the figures rest on.
fn note_assumptions(config: &Config, audit: &mut Audit) -> Result<(), AuditError> {
    let extra = audit.extra_layers;
    let mut note = |what: String| audit.assumed.push(what);
    if extra > 0 {
        note(format!(
            "Multi-token-prediction layers ({extra}) are extra: neither their rungs nor their KV caches are counted."
        ));
    }
    if config.flag("attention_k_eq_v")? == Some(true) {
        note(
            "Full layers use one projection for keys and values, but keep both: they are normalised differently."
                .to_owned(),
        );
    }
    if audit.width.is_none() {
        note("Weights and FLOPs are not counted: the model's width is not given.".to_owned());
    }
    let attention = audit.layers.iter().any(|layer| !matches!(layer.attention, Some(AttentionScope::None) | None));
    let window = audit.layers.iter().any(|layer| layer.attention == Some(AttentionScope::Window));
    let full = audit.layers.iter().any(AuditLayer::is_full);
    let recurrent = audit.layers.iter().any(|layer| layer.recurrent.is_some());
    let mut note = |what: String| audit.assumed.push(what);
    if attention {
        note(format!("Keys and values in {}, batch of one.", audit.kv_dtype.name));
    }
    if recurrent {
        note(format!(
            "Recurrent state in {}, inputs of short convolutions in bf16, kernel size - 1 of them.",
            audit.state_dtype.name
        ));
    }
    if window {
        note("A window is counted with all the tokens it can hold, the current one included.".to_owned());
    }
    if !full && !audit.layers.is_empty() {
        let how = if window { "the sizes of the window layers" } else { "as many key/value heads as query heads" };
        note(format!("The model has no full layer; its all-full variant is given {how}."));
    }
    Ok(())
}
