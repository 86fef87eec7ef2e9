//! Counts a model's weights: embeddings, mixers, feed-forward networks and norms.
//!
//! The mixers' projections follow from the stack; biases, norms and gates differ by model class and are listed in
//! [`CLASSES`]. A class that is not listed is counted with two norms per layer and without biases, head norms and output gates, and
//! [`ParameterCount::exact`] is false.

use rung_theory::stack::Mixer;

use crate::config::Config;
use crate::{Audit, AuditError, AuditLayer, FeedForwardKind};

/// All weights of a model, and those that one token uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCount {
    /// All weights.
    pub total: u64,
    /// Weights that one token uses: of the experts only those that the router selects.
    pub active: u64,
    /// Whether the class is listed; otherwise biases, norms and gates are counted by a default.
    pub exact: bool,
}

/// The weights that a model class has in addition to its projections.
#[derive(Clone, Copy, Debug, Default)]
struct ModelClass {
    /// Biases of the query, key and value projections.
    qkv_bias: bool,
    /// Biases of the output projection.
    output_bias: bool,
    /// Norms over each query and key head.
    head_norms: bool,
    /// Attention has an output gate: the query projection is twice as wide.
    output_gate: bool,
    /// One learned attention sink for each head.
    sinks: bool,
    /// Norms in a layer with a mixer and a feed-forward network.
    norms_per_layer: u64,
    /// Biases of experts and of their router.
    expert_bias: bool,
    /// Feed-forward networks have two matrices, without a gate.
    ungated_ffn: bool,
    /// The class has one shared expert, as wide as a routed one; no config field says so.
    shared_expert: bool,
    /// The width of the shared expert where the config does not give it; 0 for none.
    shared_width: u64,
    /// Input and output embeddings share their weights, unless the config says otherwise.
    tied_embeddings: bool,
}

const BASE_CLASS: ModelClass = ModelClass {
    qkv_bias: false,
    output_bias: false,
    head_norms: false,
    output_gate: false,
    sinks: false,
    norms_per_layer: 2,
    expert_bias: false,
    ungated_ffn: false,
    shared_expert: false,
    shared_width: 0,
    tied_embeddings: false,
};
const WITH_HEAD_NORMS: ModelClass = ModelClass { head_norms: true, ..BASE_CLASS };

static CLASSES: &[(&str, ModelClass)] = &[
    ("llama", BASE_CLASS),
    ("mistral", BASE_CLASS),
    ("mixtral", BASE_CLASS),
    ("phi3", BASE_CLASS),
    ("deepseek_v3", BASE_CLASS),
    ("qwen2", ModelClass { qkv_bias: true, ..BASE_CLASS }),
    ("qwen2_moe", ModelClass { qkv_bias: true, ..BASE_CLASS }),
    ("qwen3", WITH_HEAD_NORMS),
    ("qwen3_moe", WITH_HEAD_NORMS),
    ("qwen3_next", ModelClass { output_gate: true, shared_width: 512, ..WITH_HEAD_NORMS }),
    ("qwen3_5", ModelClass { output_gate: true, ..WITH_HEAD_NORMS }),
    ("qwen3_5_text", ModelClass { output_gate: true, ..WITH_HEAD_NORMS }),
    ("qwen3_5_moe", ModelClass { output_gate: true, shared_width: 512, ..WITH_HEAD_NORMS }),
    ("qwen3_5_moe_text", ModelClass { output_gate: true, shared_width: 512, ..WITH_HEAD_NORMS }),
    ("gemma", ModelClass { tied_embeddings: true, ..BASE_CLASS }),
    ("gemma2", ModelClass { norms_per_layer: 4, tied_embeddings: true, ..BASE_CLASS }),
    ("gemma3_text", ModelClass { norms_per_layer: 4, tied_embeddings: true, ..WITH_HEAD_NORMS }),
    ("gpt_oss", ModelClass { qkv_bias: true, output_bias: true, sinks: true, expert_bias: true, ..BASE_CLASS }),
    ("lfm2", ModelClass { tied_embeddings: true, ..WITH_HEAD_NORMS }),
    ("mamba", ModelClass { tied_embeddings: true, ..BASE_CLASS }),
    ("mamba2", BASE_CLASS),
];

/// Classes whose embeddings and feed-forward networks are known, but not all biases, norms and gates.
static PARTLY_KNOWN: &[(&str, ModelClass)] = &[
    ("llama4_text", ModelClass { shared_expert: true, ..BASE_CLASS }),
    ("nemotron_h", ModelClass { ungated_ffn: true, ..BASE_CLASS }),
    ("recurrent_gemma", ModelClass { tied_embeddings: true, ..BASE_CLASS }),
];

/// Counts the weights, where the vocabulary and the feed-forward sizes are known.
pub(crate) fn count(config: &Config, audit: &Audit) -> Result<Option<ParameterCount>, AuditError> {
    if audit.cache.is_none() || config.gguf {
        return Ok(None);
    }
    let (Some(width), Some(vocabulary)) = (audit.width, config.size("vocab_size")?) else { return Ok(None) };
    let find_class = |classes: &[(&str, ModelClass)]| {
        let has_model_type =
            |(name, _): &&(&str, ModelClass)| config.model_type().is_ok_and(|model_type| model_type == Some(name));
        classes.iter().find(has_model_type).map(|(_, class)| *class)
    };
    let exact_class = find_class(CLASSES);
    let exact = exact_class.is_some();
    // Checkpoints of the Mamba authors' code tie the embeddings.
    let default_class = || ModelClass { tied_embeddings: config.has_key("ssm_cfg"), ..BASE_CLASS };
    let class = exact_class.or_else(|| find_class(PARTLY_KNOWN)).unwrap_or_else(default_class);
    let tied = config.flag_anywhere("tie_word_embeddings").unwrap_or(class.tied_embeddings);
    let embeddings = to_u128(width) * to_u128(vocabulary) * if tied { 1 } else { 2 };
    let mut total = embeddings + to_u128(width);
    let mut active = total;
    for layer in &audit.layers {
        let mixers = mixer_weights(layer, class);
        let Some((ffn_total, ffn_active)) = feed_forward_weights(config, layer, width, class)? else { return Ok(None) };
        let norms = to_u128(width) * to_u128(norm_count(layer, class));
        total += mixers + norms + ffn_total;
        active += mixers + norms + ffn_active;
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

fn norm_count(layer: &AuditLayer, class: ModelClass) -> u64 {
    match (layer.has_mixer(), layer.feed_forward) {
        (true, FeedForwardKind::None) | (false, _) => 1,
        (true, _) => class.norms_per_layer,
    }
}

fn mixer_weights(layer: &AuditLayer, class: ModelClass) -> u128 {
    if layer.shares_parameters {
        return 0;
    }
    let mixers = layer.plan_layers.iter().flat_map(|plan_layer| plan_layer.mixers.iter());
    mixers.map(|mixer| mixer.facts().parameters + extra_weights(mixer, class)).sum()
}

/// Biases, norms and gates that the count of a mixer's projections leaves out.
fn extra_weights(mixer: &Mixer, class: ModelClass) -> u128 {
    let Some(heads) = mixer.facts().attention else { return mixer.facts().norm_and_bias_parameters };
    let [query_heads, kv_heads, key_dim, value_dim] =
        [heads.query_heads, heads.kv_heads, heads.key_head_dim, heads.value_head_dim].map(to_u128);
    let count_if = |flag: bool, weights: u128| if flag { weights } else { 0 };
    // The width of the residual stream, computed from the projections.
    let width = mixer.facts().parameters.checked_div((query_heads + kv_heads) * (key_dim + value_dim)).unwrap_or(0);
    count_if(class.qkv_bias, query_heads * key_dim + kv_heads * (key_dim + value_dim))
        + count_if(class.output_bias, width)
        + count_if(class.head_norms, 2 * key_dim)
        + count_if(class.output_gate, width * query_heads * key_dim)
        + count_if(class.sinks, query_heads)
}

/// Weights of the feed-forward network, all and those that one token uses; nothing where no field gives its size.
fn feed_forward_weights(
    config: &Config,
    layer: &AuditLayer,
    width: u64,
    class: ModelClass,
) -> Result<Option<(u128, u128)>, AuditError> {
    let matrix_count = if class.ungated_ffn { 2 } else { 3 };
    let network_weights = |inner_width: u64| matrix_count * to_u128(width) * to_u128(inner_width);
    match layer.feed_forward {
        FeedForwardKind::None => Ok(Some((0, 0))),
        FeedForwardKind::Dense => {
            let Some(inner_width) = dense_width(config)? else { return Ok(None) };
            Ok(Some((network_weights(inner_width), network_weights(inner_width))))
        }
        FeedForwardKind::Experts => {
            let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"];
            let experts = config.first_size(&names)?;
            let per_token = config.first_size(&["num_experts_per_tok", "moe_topk", "num_experts_per_token"])?;
            let inner_width = match config.first_size(&["moe_intermediate_size", "expert_ffn_hidden_size"])? {
                Some(inner_width) => Some(inner_width),
                None => config.size("intermediate_size")?,
            };
            let (Some(experts), Some(per_token), Some(inner_width)) = (experts, per_token, inner_width) else {
                return Ok(None);
            };
            let bias = if class.expert_bias { 2 * to_u128(inner_width) + to_u128(width) } else { 0 };
            let router = to_u128(width) * to_u128(experts) + if class.expert_bias { to_u128(experts) } else { 0 };
            let shared = shared_expert_weights(config, width, inner_width, class)?;
            let weights = |count: u64| to_u128(count) * (network_weights(inner_width) + bias) + router + shared;
            Ok(Some((weights(experts), weights(per_token.min(experts)))))
        }
    }
}

/// Weights of the shared experts, which every token uses: several, each as wide as a routed expert, or one with a width of its own. The
/// latter may have a sigmoid gate on its output, one weight per channel.
fn shared_expert_weights(config: &Config, width: u64, inner_width: u64, class: ModelClass) -> Result<u128, AuditError> {
    let shared_width = config.count("shared_expert_intermediate_size")?.unwrap_or(class.shared_width);
    if shared_width > 0 {
        return Ok(3 * to_u128(width) * to_u128(shared_width) + to_u128(width));
    }
    if let Some(shared_width) = config.count("shared_intermediate_size")? {
        return Ok(3 * to_u128(width) * to_u128(shared_width));
    }
    let count = config.count("n_shared_experts")?.or(config.count("num_shared_experts")?);
    let count = count.unwrap_or(u64::from(class.shared_expert));
    Ok(if class.ungated_ffn { 2 } else { 3 } * to_u128(width) * to_u128(inner_width) * to_u128(count))
}

/// The inner width of a dense feed-forward network. LFM2 gives a width that its code scales and rounds up.
fn dense_width(config: &Config) -> Result<Option<u64>, AuditError> {
    let names = ["intermediate_size", "block_ff_dim", "ffn_hidden_size"];
    let Some(inner_width) = config.first_size(&names)? else { return Ok(None) };
    if config.flag("block_auto_adjust_ff_dim")? != Some(true) {
        return Ok(Some(inner_width));
    }
    let scaled = config.scaled_size("block_ffn_dim_multiplier", 2 * inner_width / 3, 1.0)?;
    let multiple = config.size("block_multiple_of")?.unwrap_or(256);
    Ok(Some(scaled.div_ceil(multiple) * multiple))
}
