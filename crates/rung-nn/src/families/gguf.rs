//! GGUF files in transformers' words: fields of the header and names of tensors.

use std::path::Path;

use rung_audit::gguf::GgufHeader;
use rung_audit::json::JsonValue;

use super::Fields;

/// Header keys (after the architecture's name) and what transformers calls them.
const FIELDS: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.layer_norm_epsilon", "layer_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("context_length", "max_position_embeddings"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("rope.freq_base", "rope_theta"),
    ("rope.dimension_count", "rope_dimension_count"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("attention.scale", "attention_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("ssm.conv_kernel", "ssm_conv_kernel"),
    ("ssm.inner_size", "ssm_inner_size"),
    ("ssm.state_size", "ssm_state_size"),
    ("ssm.time_step_rank", "ssm_time_step_rank"),
    ("ssm.group_count", "ssm_group_count"),
    ("ssm.dt_b_c_rms", "ssm_dt_b_c_rms"),
    ("expert_shared_feed_forward_length", "shared_intermediate_size"),
    ("rope.scaling.finetuned", "rope_scaling_finetuned"),
];

/// The usual names of tensors outside of the layers.
const OUTER: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("backbone.embeddings", "token_embd"),
    ("model.norm", "output_norm"),
    ("model.final_layernorm", "output_norm"),
    ("backbone.norm_f", "output_norm"),
    ("lm_head", "output"),
    ("rope_freqs", "rope_freqs"),
];

/// The usual names of tensors inside of a layer.
const INNER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("norm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("pre_ff_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("feed_forward.gate_proj", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up"),
    ("feed_forward.down_proj", "ffn_down"),
];

/// The usual names inside of a state-space mixer, which transformers calls `mamba` or `mixer`. A GGUF name with a dot at its end stands alone,
/// without `weight` or `bias` after it.
const STATE_SPACE: &[(&str, &str)] = &[
    ("in_proj", "ssm_in"),
    ("conv1d", "ssm_conv1d"),
    ("x_proj", "ssm_x"),
    ("dt_proj", "ssm_dt"),
    ("dt_bias", "ssm_dt"),
    ("dt_layernorm", "ssm_dt_norm"),
    ("b_layernorm", "ssm_b_norm"),
    ("c_layernorm", "ssm_c_norm"),
    ("A_log", "ssm_a."),
    ("D", "ssm_d."),
    ("norm", "ssm_norm"),
    ("out_proj", "ssm_out"),
];

/// The header's fields under transformers' names.
pub(super) fn fields(path: &Path, header: &GgufHeader, architecture: &str) -> Fields {
    let mut found = vec![("model_type".to_owned(), JsonValue::Text(architecture.to_owned()))];
    for (ours, theirs) in FIELDS {
        if let Some(value) = header.get(&format!("{architecture}.{ours}")) {
            found.push(((*theirs).to_owned(), value.clone()));
        }
    }
    let text = |key: &str| match header.get(&format!("{architecture}.rope.scaling.{key}")) {
        Some(JsonValue::Text(text)) => Some(text.clone()),
        _ => None,
    };
    if let Some(kind) = text("type").filter(|kind| kind != "none") {
        let mut rope = vec![("rope_type".to_owned(), JsonValue::Text(kind))];
        let names = [
            ("factor", "factor"),
            ("original_context_length", "original_max_position_embeddings"),
            ("attn_factor", "attention_factor"),
            ("yarn_beta_fast", "beta_fast"),
            ("yarn_beta_slow", "beta_slow"),
        ];
        for (theirs, ours) in names {
            if let Some(value) = header.get(&format!("{architecture}.rope.scaling.{theirs}")) {
                rope.push((ours.to_owned(), value.clone()));
            }
        }
        found.push(("rope_scaling".to_owned(), JsonValue::Object(rope)));
    }
    // The vocabulary is as long as the table of embeddings.
    let table = header.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    if let Some([_, rows]) = table.map(|table| &table.extents[..]) {
        found.push(("vocab_size".to_owned(), JsonValue::Number(rows.to_string())));
    }
    Fields::new(path, JsonValue::Object(found))
}

/// How tensors are called.
pub struct TensorNames {
    own: &'static [(&'static str, &'static str)],
}

impl TensorNames {
    /// The usual names, and a family's own, which go first.
    pub(super) fn new(own: &'static [(&'static str, &'static str)]) -> Self {
        Self { own }
    }

    /// The GGUF name of a tensor that transformers calls `name`. One that has none keeps its own.
    pub fn stored(&self, name: &str) -> String {
        // Norms of heads, sinks and rates are whole names; everything else ends in weight or bias.
        let (stem, ending) = match name.rsplit_once('.') {
            Some((stem, ending @ ("weight" | "bias"))) => (stem, ending),
            Some((_, "dt_bias")) => (name, "bias"),
            _ => (name, "weight"),
        };
        let entry = |number: &str, inner: &str, table: &[(&str, &str)]| {
            let (_, theirs) = table.iter().find(|(ours, _)| *ours == inner)?;
            Some(match theirs.strip_suffix('.') {
                Some(whole) => format!("blk.{number}.{whole}"),
                None => format!("blk.{number}.{theirs}.{ending}"),
            })
        };
        let layer = |table: &[(&str, &str)]| inner_name(stem).and_then(|(number, inner)| entry(number, inner, table));
        let state_space = || {
            let (number, inner) = inner_name(stem)?;
            let inner = ["mamba.", "mixer."].into_iter().find_map(|prefix| inner.strip_prefix(prefix))?;
            entry(number, inner, STATE_SPACE)
        };
        let outer = |table: &[(&str, &str)]| {
            let (_, theirs) = table.iter().find(|(ours, _)| *ours == stem)?;
            Some(format!("{theirs}.{ending}"))
        };
        let found = outer(self.own).or_else(|| layer(self.own)).or_else(|| outer(OUTER)).or_else(|| layer(INNER));
        let found = found.or_else(state_space);
        found.unwrap_or_else(|| name.to_owned())
    }
}

/// The layer's number in `model.layers.3.rest`, and the rest.
fn inner_name(name: &str) -> Option<(&str, &str)> {
    let (_, rest) = name.split_once("layers.")?;
    rest.split_once('.')
}
