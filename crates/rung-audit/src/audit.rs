//! Builds an audit from a config: the dialects' layer specs, the mixers' sizes, the plan, and the costs and bounds computed from it.

pub(crate) mod parameters;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rung_theory::bound::sparse::BlockSparseInstance;
use rung_theory::stack::mixer::TokenSelection;
use rung_theory::stack::{Capacity, Defaults, Layer, Mixer, MixerReach, Plan};

use self::parameters::ParameterCount;
use crate::attention_sizes::{self, MixerSizes};
use crate::config::Config;
use crate::cost::{self, BF16, CacheBytes, CacheSettings, Dtype, FP32, MixerCost};
use crate::dialect::recurrence_sizes;
use crate::dialect::{self, Decision};
use crate::json::JsonValue;
use crate::layout::{AttentionKind, AttentionScope, FeedForwardKind, LayerSpec, Layout, MixerOrder, RecurrenceSpec};
use crate::{AuditError, feed_forward};

/// The default context length at which sizes are compared.
pub const DEFAULT_CONTEXT: u64 = 131_072;
/// The longest context length that is accepted.
pub const MAX_CONTEXT: u64 = 1 << 40;

/// Searches a lower bound for a plan and a number of hops.
pub type BoundSearcher<'a> = dyn Fn(&Plan, usize) -> BoundSearchResult + 'a;

/// Context length and number formats of an audit.
#[derive(Clone, Copy)]
pub struct AuditOptions<'a> {
    /// Context length in tokens.
    pub context: u64,
    /// Number format of keys and values.
    pub kv_dtype: Dtype,
    /// Number format of recurrent state; by default the config's, else 32 bits.
    pub state_dtype: Option<Dtype>,
    /// Searches lower bounds; without it none are searched.
    pub bound_searcher: Option<&'a BoundSearcher<'a>>,
}

impl Default for AuditOptions<'_> {
    fn default() -> Self {
        Self { context: DEFAULT_CONTEXT, kv_dtype: BF16, state_dtype: None, bound_searcher: None }
    }
}

impl std::fmt::Debug for AuditOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { context, kv_dtype, state_dtype, bound_searcher } = self;
        write!(
            out,
            "AuditOptions {{ {context}, {kv_dtype:?}, {state_dtype:?}, bound_searcher: {} }}",
            bound_searcher.is_some()
        )
    }
}

/// One layer of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLayer {
    /// Which tokens the layer attends to; `None` if that is unknown.
    pub attention: Option<AttentionScope>,
    /// The recurrence's mixer, by Rung's name; `unknown` if there is one and the file does not say which.
    pub recurrent: Option<&'static str>,
    /// Its feed-forward network.
    pub feed_forward: FeedForwardKind,
    /// Path of the config field that decided the layer's kind.
    pub decided_by: String,
    /// Whether it reads the cache of an earlier layer and has none of its own.
    pub shares_cache: bool,
    /// Whether it reuses the projections of an earlier layer.
    pub shares_parameters: bool,
    /// Its layers in the plan: one, or two where one mixer feeds the other.
    pub plan_layers: Vec<Layer>,
}

impl AuditLayer {
    /// Whether it has a token mixer, or may have one where its kind is unknown.
    pub fn has_mixer(&self) -> bool {
        self.attention != Some(AttentionScope::NoAttention) || self.recurrent.is_some()
    }

    /// Whether it counts as a full layer: it can read any token of the past.
    pub fn is_full(&self) -> bool {
        matches!(self.attention, Some(AttentionScope::Full | AttentionScope::Sparse))
    }

    /// One letter: F full, W window, r recurrent, P full and p window in parallel with a recurrence, S sparse with or without one,
    /// a dot for no mixer, a question mark for unknown.
    pub fn letter(&self) -> char {
        match (self.attention, self.recurrent.is_some()) {
            (None, _) => '?',
            (Some(AttentionScope::Full), false) => 'F',
            (Some(AttentionScope::Sparse), _) => 'S',
            (Some(AttentionScope::Full), true) => 'P',
            (Some(AttentionScope::Window), false) => 'W',
            (Some(AttentionScope::Window), true) => 'p',
            (Some(AttentionScope::NoAttention), true) => 'r',
            (Some(AttentionScope::NoAttention), false) => '.',
        }
    }
}

/// The same stack with full attention in every layer that has a mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllFullStack {
    /// Hops that this stack can compose.
    pub rungs: usize,
    /// Bytes of its KV cache.
    pub cache: CacheBytes,
    /// Weights and FLOPs of its mixers, where the model's width is given.
    pub mixer_cost: Option<MixerCost>,
}

/// Block-sparse layers: the bits in a block's summary, and the bits that 2-Sum requires: the task whose last token asks whether an earlier
/// value and its own add up to 0 modulo a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSparse {
    /// Number of block-sparse layers.
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

/// The lower bound on composing one hop more than the stack's rungs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextHopBound {
    /// Number of hops: the stack's rungs + 1.
    pub hops: usize,
    /// Result of the search for the number of tokens from which on that many hops are impossible.
    pub search: BoundSearchResult,
    /// Whether the audit's context is long enough for the bound to hold.
    pub applies: bool,
}

impl NextHopBound {
    /// Base-2 logarithm of the number of tokens from which on that many hops are certified impossible.
    pub fn log2_tokens(&self) -> Option<f64> {
        match self.search {
            BoundSearchResult::Certified { log2_tokens } => Some(log2_tokens),
            BoundSearchResult::NotFound | BoundSearchResult::Skipped => None,
        }
    }
}

/// Result of a search for a lower bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BoundSearchResult {
    /// A certificate was found.
    Certified {
        /// Base-2 logarithm of the smallest number of tokens at which the plan provably cannot compose that many functions.
        log2_tokens: f64,
    },
    /// The search found no certificate.
    NotFound,
    /// No search ran: none was requested, or the hops are too many.
    Skipped,
}

/// A model's layers, their cache sizes and costs, and the hops they can compose.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// The model's name.
    pub model: String,
    /// The file or page that the fields come from.
    pub source: String,
    /// The dialect that described the layers; `None` if no dialect applies.
    pub dialect: Option<&'static str>,
    /// One per layer of the config.
    pub layers: Vec<AuditLayer>,
    /// The width of the residual stream, if given.
    pub width: Option<u64>,
    /// Why something is unknown; empty when all is known.
    pub unknown_reasons: Vec<String>,
    /// Assumptions behind the numbers.
    pub assumptions: Vec<String>,
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
    /// Cache bytes, if every size is known.
    pub cache: Option<CacheBytes>,
    /// Weights and FLOPs of the mixers, if every size and the width are known.
    pub mixer_cost: Option<MixerCost>,
    /// The all-full stack of the same depth, where its sizes are known.
    pub all_full: Option<AllFullStack>,
    /// Block-sparse layers, if any.
    pub block_sparse: Option<BlockSparse>,
    /// The lower bound on composing one hop more than `capacity.rungs`.
    pub next_hop_bound: Option<NextHopBound>,
    /// The architecture's name, as the library that wrote the file calls it.
    pub architecture: Option<String>,
    /// `max_position_embeddings` or the field that another format has for it, in tokens.
    pub max_context: Option<u64>,
    /// Number format of the model (`torch_dtype`), if the config gives it.
    pub model_dtype: Option<Dtype>,
    /// Number format of recurrent state, if the config gives it.
    pub declared_state_dtype: Option<Dtype>,
    /// Multi-token-prediction layers, which are not among `layers`.
    pub mtp_layer_count: u64,
    /// Number of weights, where the config gives enough fields.
    pub parameters: Option<ParameterCount>,
    /// A full layer with this model's sizes, for `what_if`.
    pub(crate) full_template: Option<Layer>,
}

impl Audit {
    /// An audit that knows nothing yet.
    pub(crate) fn without_layers(model: &str, source: &str, options: &AuditOptions) -> Self {
        Self {
            model: model.to_owned(),
            source: source.to_owned(),
            dialect: None,
            layers: Vec::new(),
            width: None,
            unknown_reasons: Vec::new(),
            assumptions: Vec::new(),
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
            architecture: None,
            max_context: None,
            model_dtype: None,
            declared_state_dtype: None,
            mtp_layer_count: 0,
            parameters: None,
            full_template: None,
        }
    }

    /// One letter per layer; see [`AuditLayer::letter`].
    pub fn layer_letters(&self) -> String {
        self.layers.iter().map(AuditLayer::letter).collect()
    }

    /// Layers that can read any token of the past, as far as known.
    pub fn full_layer_count(&self) -> Option<usize> {
        self.capacity.as_ref().map(|capacity| capacity.full_layers)
    }

    /// Layers that mix tokens: the depth that rungs are compared at.
    pub fn mixing_layer_count(&self) -> usize {
        self.layers.iter().filter(|layer| layer.has_mixer()).count()
    }

    pub(crate) fn cache_settings(&self) -> CacheSettings {
        CacheSettings { kv: self.kv_dtype, state: self.state_dtype, context: self.context }
    }

    /// Computes plan, capacity, costs and bounds from the layers.
    pub(crate) fn compute_costs_and_bounds(&mut self, options: &AuditOptions) -> Result<(), AuditError> {
        (self.plan, self.capacity, self.cache, self.mixer_cost) = (None, None, None, None);
        (self.all_full, self.block_sparse, self.next_hop_bound) = (None, None, None);
        if self.layers.is_empty() || self.layers.iter().any(|layer| layer.attention.is_none()) {
            return Ok(());
        }
        let layers: Vec<Layer> = self.layers.iter().flat_map(|layer| layer.plan_layers.iter().cloned()).collect();
        let plan = Plan { width: self.width.unwrap_or(1), layers };
        let capacity = plan.capacity();
        if self.unknown_reasons.is_empty() {
            let settings = self.cache_settings();
            self.cache = Some(cost::cache_bytes(plan.layers.iter(), settings)?);
            self.mixer_cost = match self.width {
                Some(_) => Some(cost::mixer_cost(self.layers.iter().flat_map(plan_layers), self.context)?),
                None => None,
            };
            self.all_full = self.all_full()?;
            self.block_sparse = block_sparse(&plan, self.context);
            let hops = capacity.rungs + 1;
            let search =
                options.bound_searcher.map_or(BoundSearchResult::Skipped, |bound_searcher| bound_searcher(&plan, hops));
            let mut bound = NextHopBound { hops, search, applies: false };
            bound.applies = bound.log2_tokens().is_some_and(|log2| (self.context as f64).log2() >= log2);
            self.next_hop_bound = Some(bound);
        }
        (self.plan, self.capacity) = (Some(plan), Some(capacity));
        Ok(())
    }

    fn all_full(&self) -> Result<Option<AllFullStack>, AuditError> {
        let Some(full_layer) = &self.full_template else { return Ok(None) };
        let depth = self.mixing_layer_count();
        let layers = std::iter::repeat_n(full_layer, depth);
        let cache = cost::cache_bytes(layers.clone(), self.cache_settings())?;
        let mixer_cost = match self.width {
            Some(_) => Some(cost::mixer_cost(layers.map(|layer| (layer, false)), self.context)?),
            None => None,
        };
        Ok(Some(AllFullStack { rungs: depth.saturating_sub(1), cache, mixer_cost }))
    }
}

/// The plan layers of one layer, each with whether it reuses the projections of an earlier layer.
fn plan_layers(layer: &AuditLayer) -> impl Iterator<Item = (&Layer, bool)> {
    layer.plan_layers.iter().map(|plan_layer| (plan_layer, layer.shares_parameters))
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
    let selections: Vec<_> =
        plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter_map(selection_of).collect();
    let (first, bits) = *selections.first()?;
    let (block_tokens, selected_blocks) = (first.block as u64, (first.groups * first.selected_count) as u64);
    let summary_bits = u64::try_from(first.summary_elements * u128::from(bits)).unwrap_or(u64::MAX);
    // As many values as tokens. `summary_bits` is 0 because the bits required do not depend on the bits that a summary has.
    let other_blocks = (context / block_tokens).saturating_sub(1);
    let instance = BlockSparseInstance {
        block_tokens,
        selected_blocks,
        summary_bits: 0,
        modulus: context,
        other_blocks,
        shared_summary_map: false,
    };
    let required_bits = instance.verdict().ok().and_then(|verdict| verdict.needed_bits);
    Some(BlockSparse { layers: selections.len(), block_tokens, selected_blocks, summary_bits, required_bits })
}

/// Audits one config.
pub(crate) fn audit(config: &Config, model: &str, source: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if !(1..=MAX_CONTEXT).contains(&options.context) {
        let why = format!("a context has 1 to {MAX_CONTEXT} tokens");
        return Err(AuditError::InvalidArgument { text: options.context.to_string(), why });
    }
    let mut audit = Audit {
        width: config.width()?,
        architecture: config.model_type()?.map(str::to_owned),
        max_context: max_context(config),
        mtp_layer_count: mtp_layer_count(config)?,
        ..Audit::without_layers(model, source, options)
    };
    audit.model_dtype = read_dtype(config, &["torch_dtype", "dtype"], &mut Vec::new());
    audit.declared_state_dtype =
        read_dtype(config, &["mamba_ssm_cache_dtype", "mamba_ssm_dtype"], &mut audit.assumptions);
    audit.state_dtype = options.state_dtype.or(audit.declared_state_dtype).unwrap_or(FP32);
    match dialect::decide(config)? {
        Decision::Unknown(fields) => {
            audit.unknown_reasons.push(match crate::non_decoder::non_decoder_kind(config)? {
                Some(kind) => format!("the config describes {kind}"),
                None => undecided_reason(config, &fields)?,
            });
        }
        Decision::Known(dialect, layout) => {
            audit.dialect = Some(dialect.name);
            if !config.gguf {
                audit.unknown_reasons.extend(crate::unread_fields::unread_fields(config, layout.layers.len()));
            }
            resolve_layers(config, layout, &mut audit)?;
        }
    }
    add_assumptions(config, &mut audit)?;
    audit.compute_costs_and_bounds(options)?;
    // The parameter count is optional: where it fails, the rest of the audit still holds.
    audit.parameters = parameters::count(config, &audit).unwrap_or(None);
    Ok(audit)
}

/// Why no dialect applies.
fn undecided_reason(config: &Config, fields: &[String]) -> Result<String, AuditError> {
    let architecture = config.model_type()?.map_or_else(String::new, |name| {
        format!(" and the architecture `{}` is not in the list of those that need none", name.escape_debug())
    });
    Ok(format!("no field gives the layout{architecture}; looked for {}", fields.join(", ")))
}

/// The number format that the first of several fields gives. A field whose value is no known format is skipped, with an assumption.
fn read_dtype(config: &Config, names: &[&str], assumptions: &mut Vec<String>) -> Option<Dtype> {
    for name in names {
        let Some(JsonValue::String(text)) = config.get_anywhere(name) else { continue };
        match text.parse() {
            Ok(dtype) => return Some(dtype),
            Err(_) => {
                assumptions.push(format!("`{}` names no known number format and is ignored.", config.path_of(name)));
            }
        }
    }
    None
}

/// `max_position_embeddings` or the field that another format has for it, at most [`MAX_CONTEXT`].
fn max_context(config: &Config) -> Option<u64> {
    let names =
        ["max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "context_length", "n_ctx"];
    for name in names {
        if let Some(tokens) = config.get(name).and_then(crate::config::as_u64).filter(|tokens| *tokens > 0) {
            return Some(tokens.min(MAX_CONTEXT));
        }
    }
    None
}

/// The number of multi-token-prediction layers.
fn mtp_layer_count(config: &Config) -> Result<u64, AuditError> {
    let mut extra = 0;
    for name in ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "nextn_predict_layers"] {
        extra = extra.max(config.count(name)?.unwrap_or(0));
    }
    Ok(extra)
}

/// The mixers built for one layer spec; layers with equal specs share them.
struct ResolvedLayer {
    plan_layers: Vec<Layer>,
    recurrent: Option<&'static str>,
    /// What is missing to know the sizes, as clauses for reports.
    missing: Vec<String>,
}

fn resolve_layers(config: &Config, layout: Layout, audit: &mut Audit) -> Result<(), AuditError> {
    const MAX_REASONS: usize = 64;
    let feed_forwards = feed_forward::feed_forwards(config, layout.layers.len())?;
    let builder = MixerBuilder { config, defaults: mixer_defaults(audit.width), state_dtype: audit.state_dtype };
    audit.assumptions.extend(layout.assumptions);
    let mut resolved_specs: HashMap<LayerSpec, ResolvedLayer> = HashMap::new();
    let mut unknown_values = 0;
    for (index, mut spec) in layout.layers.into_iter().enumerate() {
        let decided_by = std::mem::take(&mut spec.decided_by);
        if let AttentionKind::Unknown { value } = &mut spec.kind {
            let value = std::mem::take(value);
            unknown_values += 1;
            if unknown_values <= MAX_REASONS {
                let value: String = value.chars().take(60).collect();
                audit.unknown_reasons.push(format!(
                    "layer {index}: `{decided_by}` is \"{}\", a value that no dialect knows",
                    value.escape_debug()
                ));
            }
        }
        let mut layer = AuditLayer {
            attention: spec.kind.scope(),
            recurrent: None,
            feed_forward: spec.feed_forward.unwrap_or(feed_forwards[index]),
            decided_by,
            shares_cache: spec.shares_cache,
            shares_parameters: spec.shares_parameters,
            plan_layers: Vec::new(),
        };
        let mixers = match resolved_specs.entry(spec) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let mixers = builder.resolve(entry.key())?;
                if audit.unknown_reasons.len() < MAX_REASONS {
                    audit.unknown_reasons.extend(
                        mixers.missing.iter().map(|reason| format!("layer {index} and those like it: {reason}")),
                    );
                }
                entry.insert(mixers)
            }
        };
        (layer.recurrent, layer.plan_layers) = (mixers.recurrent, mixers.plan_layers.clone());
        audit.layers.push(layer);
    }
    if unknown_values > MAX_REASONS {
        audit
            .unknown_reasons
            .push(format!("and {} more layers with values that no dialect knows", unknown_values - MAX_REASONS));
    }
    audit.full_template = builder.full_template(audit)?;
    Ok(())
}

fn mixer_defaults(width: Option<u64>) -> Defaults {
    // Placeholders for sizes that the config does not give; no bytes are reported where one is used.
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
        let config = &self.config.for_layer(spec.override_key.as_deref());
        if let Some(sizes) = attention_sizes::attention(config, &spec.kind, spec.overrides)? {
            attention = Some(match sizes {
                MixerSizes::Known(name, sizes) => self.build(name, &sizes, BF16.bits)?,
                MixerSizes::Missing(fields) => {
                    missing.push(format!("the sizes of attention are not given; looked for {}", fields.join(", ")));
                    let name = if spec.kind.scope() == Some(AttentionScope::Window) { "window" } else { "full" };
                    self.build(name, &[], BF16.bits)?
                }
            });
        }
        let mut recurrence = None;
        if let Some(candidates) = &spec.recurrent {
            recurrence = Some(match recurrence_sizes::find(config, candidates)? {
                MixerSizes::Known(name, sizes) => (name, self.build(name, &sizes, self.state_dtype.bits)?),
                MixerSizes::Missing(fields) => {
                    missing
                        .push(format!("the sizes of its recurrence are not given; looked for {}", fields.join(", ")));
                    let name = match candidates {
                        RecurrenceSpec::SizesFromConfig([name]) => name,
                        _ => "unknown",
                    };
                    (name, self.build("linear", &[], self.state_dtype.bits)?)
                }
            });
        }
        let recurrent = recurrence.as_ref().map(|(name, _)| *name);
        let mut plan_layers = match (attention, recurrence, spec.order) {
            (Some(attention), Some((_, recurrence)), MixerOrder::Parallel) => {
                vec![Layer::parallel(vec![attention, recurrence])]
            }
            (Some(attention), Some((_, recurrence)), MixerOrder::AttentionFirst) => {
                vec![Layer::new(attention), Layer::new(recurrence)]
            }
            (Some(attention), Some((_, recurrence)), MixerOrder::RecurrenceFirst) => {
                vec![Layer::new(recurrence), Layer::new(attention)]
            }
            (Some(mixer), None, _) | (None, Some((_, mixer)), _) => vec![Layer::new(mixer)],
            (None, None, _) => vec![Layer::new(self.build("none", &[], BF16.bits)?)],
        };
        for layer in &mut plan_layers {
            layer.shares_cache = spec.shares_cache;
        }
        Ok(ResolvedLayer { plan_layers, recurrent, missing })
    }

    fn build(&self, name: &str, sizes: &[(&'static str, u64)], bits: u64) -> Result<Mixer, AuditError> {
        attention_sizes::build_mixer(name, sizes, bits, &self.defaults)
    }

    /// A full layer with the model's sizes: a copy of its own if it has one, else one of its sparse or window layers without
    /// the restriction, else as many heads as fit the width.
    fn full_template(&self, audit: &Audit) -> Result<Option<Layer>, AuditError> {
        let mixers = || audit.layers.iter().flat_map(|layer| &layer.plan_layers).flat_map(|layer| layer.mixers.iter());
        let is_full_attention = |mixer: &&Mixer| {
            let facts = mixer.facts();
            matches!(facts.reach, MixerReach::Full(_))
                && mixer.full_attention_equivalent().is_none()
                && facts.selection().is_none()
        };
        if let Some(mixer) = mixers().find(is_full_attention) {
            return Ok(Some(Layer::new(mixer.clone())));
        }
        // A sparse layer without its selection, or a window layer without its limit.
        if let Some((name, sizes)) = mixers().find_map(Mixer::full_attention_equivalent) {
            return Ok(Some(Layer::new(self.build(name, &sizes, BF16.bits)?)));
        }
        let Some(width) = audit.width else { return Ok(None) };
        let head_dim = [128, 64, 32, 16, 8, 4, 2, 1].into_iter().find(|size| width.is_multiple_of(*size)).unwrap_or(1);
        let sizes = [("heads", width / head_dim), ("kv", width / head_dim), ("head", head_dim)];
        Ok(Some(Layer::new(self.build("full", &sizes, BF16.bits)?)))
    }
}

/// Lists the assumptions behind the numbers.
fn add_assumptions(config: &Config, audit: &mut Audit) -> Result<(), AuditError> {
    let extra = audit.mtp_layer_count;
    let mut add = |text: String| audit.assumptions.push(text);
    if extra > 0 {
        add(format!(
            "Multi-token-prediction layers ({extra}) are extra: neither their rungs nor their KV caches are counted."
        ));
    }
    if config.flag("attention_k_eq_v")? == Some(true) {
        add("Full layers use one projection for keys and values, but cache both: they are normalised differently."
            .to_owned());
    }
    if audit.width.is_none() {
        add("Weights and FLOPs are not counted: the model's width is not given.".to_owned());
    }
    let has_attention =
        audit.layers.iter().any(|layer| !matches!(layer.attention, Some(AttentionScope::NoAttention) | None));
    let has_window = audit.layers.iter().any(|layer| layer.attention == Some(AttentionScope::Window));
    let has_full = audit.layers.iter().any(AuditLayer::is_full);
    let has_recurrent = audit.layers.iter().any(|layer| layer.recurrent.is_some());
    let mut add = |text: String| audit.assumptions.push(text);
    if has_attention {
        add(format!("Keys and values in {}, batch of one.", audit.kv_dtype.name));
    }
    if has_recurrent {
        add(format!(
            "Recurrent state in {}, inputs of short convolutions in bf16, kernel size - 1 of them.",
            audit.state_dtype.name
        ));
    }
    if has_window {
        add("A window is counted with all the tokens it can hold, the current one included.".to_owned());
    }
    if !has_full && !audit.layers.is_empty() {
        let sizes =
            if has_window { "the sizes of the window layers" } else { "as many key/value heads as query heads" };
        add(format!("The model has no full layer; its all-full variant is given {sizes}."));
    }
    Ok(())
}
