//! How many weights a model has: embeddings, mixers, feed-forward parts and norms.
//!
//! The mixers' projections are read off the stack; biases, norms and gates differ by class and stand in [`CLASSES`]. For
//! a class that is not listed they are left out, and [`ParameterCount::exact`] says so.

use rung_theory::stack::Mixer;

use crate::config::Config;
use crate::{Audit, AuditError, AuditLayer, FeedForwardKind};

/// All weights of a model, and those that one token uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCount {
    /// All weights.
    pub total: u64,
    /// Weights that one token uses: of the experts only those that are chosen.
    pub active: u64,
    /// Whether biases, norms and gates of the class are known; else they are left out.
    pub exact: bool,
}

/// What a class adds to its projections.
#[derive(Clone, Copy, Debug, Default)]
struct ModelClass {
    /// Biases of queries, keys and values; of the output.
    qkv_bias: bool,
    output_bias: bool,
    /// Norms over each query and key head.
    head_norms: bool,
    /// Queries are projected twice as wide: the other half gates the output.
    gated: bool,
    /// One learned sink for each head.
    sinks: bool,
    /// Norms in a layer with a mixer and a feed-forward part.
    norms: u64,
    /// Biases of experts and of their router.
    expert_bias: bool,
    /// Feed-forward parts have two matrices, without a gate.
    ungated: bool,
    /// One shared expert of the routed experts' size, which no field names.
    shared_expert: bool,
    /// The width of the shared expert where the file leaves it to the class; 0 for none.
    shared_width: u64,
    /// Input and output embeddings are one, unless the file says otherwise.
    tied: bool,
}

const PLAIN: ModelClass = ModelClass {
    qkv_bias: false,
    output_bias: false,
    head_norms: false,
    gated: false,
    sinks: false,
    norms: 2,
    expert_bias: false,
    ungated: false,
    shared_expert: false,
    shared_width: 0,
    tied: false,
};
const WITH_HEAD_NORMS: ModelClass = ModelClass { head_norms: true, ..PLAIN };

static CLASSES: &[(&str, ModelClass)] = &[
    ("llama", PLAIN),
    ("mistral", PLAIN),
    ("mixtral", PLAIN),
    ("phi3", PLAIN),
    ("deepseek_v3", PLAIN),
    ("qwen2", ModelClass { qkv_bias: true, ..PLAIN }),
    ("qwen2_moe", ModelClass { qkv_bias: true, ..PLAIN }),
    ("qwen3", WITH_HEAD_NORMS),
    ("qwen3_moe", WITH_HEAD_NORMS),
    ("qwen3_next", ModelClass { gated: true, shared_width: 512, ..WITH_HEAD_NORMS }),
    ("qwen3_5", ModelClass { gated: true, ..WITH_HEAD_NORMS }),
    ("qwen3_5_text", ModelClass { gated: true, ..WITH_HEAD_NORMS }),
    ("qwen3_5_moe", ModelClass { gated: true, shared_width: 512, ..WITH_HEAD_NORMS }),
    ("qwen3_5_moe_text", ModelClass { gated: true, shared_width: 512, ..WITH_HEAD_NORMS }),
    ("gemma", ModelClass { tied: true, ..PLAIN }),
    ("gemma2", ModelClass { norms: 4, tied: true, ..PLAIN }),
    ("gemma3_text", ModelClass { norms: 4, tied: true, ..WITH_HEAD_NORMS }),
    ("gpt_oss", ModelClass { qkv_bias: true, output_bias: true, sinks: true, expert_bias: true, ..PLAIN }),
    ("lfm2", ModelClass { tied: true, ..WITH_HEAD_NORMS }),
    ("mamba", ModelClass { tied: true, ..PLAIN }),
    ("mamba2", PLAIN),
];

/// Classes whose embeddings and feed-forward parts are known, but not all biases, norms and gates.
static PARTLY_KNOWN: &[(&str, ModelClass)] = &[
    ("llama4_text", ModelClass { shared_expert: true, ..PLAIN }),
    ("nemotron_h", ModelClass { ungated: true, ..PLAIN }),
    ("recurrent_gemma", ModelClass { tied: true, ..PLAIN }),
];

/// Counts the weights, where the vocabulary and the feed-forward sizes are known.
pub(crate) fn count(config: &Config, audit: &Audit) -> Result<Option<ParameterCount>, AuditError> {
    if audit.cache.is_none() || config.gguf {
        return Ok(None);
    }
    let (Some(width), Some(vocabulary)) = (audit.width, config.size("vocab_size")?) else { return Ok(None) };
    let find = |classes: &[(&str, ModelClass)]| {
        let ours = |(name, _): &&(&str, ModelClass)| config.model_type().is_ok_and(|found| found == Some(name));
        classes.iter().find(ours).map(|(_, class)| *class)
    };
    let known = find(CLASSES);
    let exact = known.is_some();
    // The authors' own Mamba code ties them.
    let other = || ModelClass { tied: config.has_key("ssm_cfg"), ..PLAIN };
    let class = known.or_else(|| find(PARTLY_KNOWN)).unwrap_or_else(other);
    let tied = config.flag_anywhere("tie_word_embeddings").unwrap_or(class.tied);
    let embeddings = to_u128(width) * to_u128(vocabulary) * if tied { 1 } else { 2 };
    let mut total = embeddings + to_u128(width);
    let mut active = total;
    for layer in &audit.layers {
        let mixers = mixer_weights(layer, class);
        let Some((all, used)) = feed_forward_weights(config, layer, width, class)? else { return Ok(None) };
        let norms = to_u128(width) * to_u128(norms(layer, class));
        total += mixers + norms + all;
        active += mixers + norms + used;
    }
    Ok(u64::try_from(total).ok().zip(u64::try_from(active).ok()).map(|(total, active)| ParameterCount {
        total,
        active,
        exact,
    }))
}

fn to_u128(number: u64) -> u128 {
    u128::from(number)
}

fn norms(layer: &AuditLayer, class: ModelClass) -> u64 {
    match (layer.mixes(), layer.feed_forward) {
        (true, FeedForwardKind::None) | (false, _) => 1,
        (true, _) => class.norms,
    }
}

fn mixer_weights(layer: &AuditLayer, class: ModelClass) -> u128 {
    if layer.shares_weights {
        return 0;
    }
    let mixers = layer.plan_layers.iter().flat_map(|part| part.mixers.iter());
    mixers.map(|mixer| mixer.facts().parameters + extra_weights(mixer, class)).sum()
}

/// Biases, norms and gates that the count of a mixer's projections leaves out.
fn extra_weights(mixer: &Mixer, class: ModelClass) -> u128 {
    let Some(heads) = mixer.facts().attention else { return mixer.facts().small_parameters };
    let [query, kv, key, value] = [heads.query, heads.kv, heads.key, heads.value].map(to_u128);
    let if_set = |flag: bool, weights: u128| if flag { weights } else { 0 };
    // The width of the stream, from the projections.
    let width = mixer.facts().parameters.checked_div((query + kv) * (key + value)).unwrap_or(0);
    if_set(class.qkv_bias, query * key + kv * (key + value))
        + if_set(class.output_bias, width)
        + if_set(class.head_norms, 2 * key)
        + if_set(class.gated, width * query * key)
        + if_set(class.sinks, query)
}

/// Weights of the feed-forward part: all, and those that one token uses; nothing where no field gives its size.
fn feed_forward_weights(
    config: &Config,
    layer: &AuditLayer,
    width: u64,
    class: ModelClass,
) -> Result<Option<(u128, u128)>, AuditError> {
    let matrices = if class.ungated { 2 } else { 3 };
    let network = |inner: u64| matrices * to_u128(width) * to_u128(inner);
    match layer.feed_forward {
        FeedForwardKind::None => Ok(Some((0, 0))),
        FeedForwardKind::Dense => {
            let Some(inner) = dense_width(config)? else { return Ok(None) };
            Ok(Some((network(inner), network(inner))))
        }
        FeedForwardKind::Experts => {
            let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
            let experts = config.first_size(&names)?;
            let chosen = config.first_size(&["num_experts_per_tok", "moe_topk", "num_experts_per_token"])?;
            let inner = match config.first_size(&["moe_intermediate_size", "expert_ffn_hidden_size"])? {
                Some(inner) => Some(inner),
                None => config.size("intermediate_size")?,
            };
            let (Some(experts), Some(chosen), Some(inner)) = (experts, chosen, inner) else { return Ok(None) };
            let bias = if class.expert_bias { 2 * to_u128(inner) + to_u128(width) } else { 0 };
            let router = to_u128(width) * to_u128(experts) + if class.expert_bias { to_u128(experts) } else { 0 };
            let shared = shared_weights(config, width, inner, class)?;
            let weights = |count: u64| to_u128(count) * (network(inner) + bias) + router + shared;
            Ok(Some((weights(experts), weights(chosen.min(experts)))))
        }
    }
}

/// Experts that every token uses: so many of the routed experts' size, or one of its own size, with or without a gate.
fn shared_weights(config: &Config, width: u64, inner: u64, class: ModelClass) -> Result<u128, AuditError> {
    let own = config.count("shared_expert_intermediate_size")?.unwrap_or(class.shared_width);
    if own > 0 {
        return Ok(3 * to_u128(width) * to_u128(own) + to_u128(width));
    }
    if let Some(own) = config.count("shared_intermediate_size")? {
        return Ok(3 * to_u128(width) * to_u128(own));
    }
    let count = config.count("n_shared_experts")?.or(config.count("num_shared_experts")?);
    let count = count.unwrap_or(u64::from(class.shared_expert));
    Ok(if class.ungated { 2 } else { 3 } * to_u128(width) * to_u128(inner) * to_u128(count))
}

/// The inner width of a dense feed-forward part. LFM2 gives it before a rounding.
fn dense_width(config: &Config) -> Result<Option<u64>, AuditError> {
    let names = ["intermediate_size", "block_ff_dim", "ffn_hidden_size"];
    let Some(inner) = config.first_size(&names)? else { return Ok(None) };
    if config.flag("block_auto_adjust_ff_dim")? != Some(true) {
        return Ok(Some(inner));
    }
    let scaled = config.scaled("block_ffn_dim_multiplier", 2 * inner / 3, 1.0)?;
    let multiple = config.size("block_multiple_of")?.unwrap_or(256);
    Ok(Some(scaled.div_ceil(multiple) * multiple))
}
