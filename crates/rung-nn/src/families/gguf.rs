//! Maps the header keys and tensor names of GGUF files to those of transformers.

use std::path::Path;

use rung_audit::gguf::GgufHeader;
use rung_audit::json::JsonValue;

use super::Fields;

/// Header keys (after the architecture's name) and transformers' names of the same fields, which differ between model classes.
const FIELDS: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.layer_norm_rms_epsilon", "norm_eps"),
    ("attention.layer_norm_epsilon", "layer_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("context_length", "max_position_embeddings"),
    ("expert_count", "num_experts"),
    ("expert_count", "num_local_experts"),
    ("expert_count", "n_routed_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_used_count", "num_experts_per_token"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_shared_count", "num_shared_experts"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("expert_gating_func", "expert_gating_func"),
    ("expert_group_count", "n_group"),
    ("expert_group_count", "num_expert_group"),
    ("expert_group_used_count", "topk_group"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("leading_dense_block_count", "num_dense_layers"),
    ("nextn_predict_layers", "num_nextn_predict_layers"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
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
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
    ("moe_latent_size", "moe_latent_size"),
    ("rope.scaling.finetuned", "rope_scaling_finetuned"),
];

/// Transformers' and GGUF's usual names of tensors outside the layers.
const OUTSIDE_LAYERS: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("backbone.embeddings", "token_embd"),
    ("model.norm", "output_norm"),
    ("model.final_layernorm", "output_norm"),
    ("model.embedding_norm", "token_embd_norm"),
    ("backbone.norm_f", "output_norm"),
    ("lm_head", "output"),
    ("rope_freqs", "rope_freqs"),
];

/// Transformers' and GGUF's usual names of tensors inside a layer.
const INSIDE_LAYER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("norm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.sinks", "attn_sinks"),
    ("self_attn.q_a_proj", "attn_q_a"),
    ("self_attn.q_a_layernorm", "attn_q_a_norm"),
    ("self_attn.q_b_proj", "attn_q_b"),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
    ("self_attn.kv_b_proj", "attn_kv_b"),
    ("self_attn.k_b_proj", "attn_k_b"),
    ("self_attn.v_b_proj", "attn_v_b"),
    ("post_attention_layernorm", "ffn_norm"),
    ("pre_ff_layernorm", "ffn_norm"),
    ("ffn_norm", "ffn_norm"),
];

/// The usual names inside a feed-forward network, which transformers calls `mlp`, `feed_forward`, `block_sparse_moe` or `mixer`.
const FEED_FORWARD: &[(&str, &str)] = &[
    ("gate_proj", "ffn_gate"),
    ("up_proj", "ffn_up"),
    ("down_proj", "ffn_down"),
    ("w1", "ffn_gate"),
    ("w3", "ffn_up"),
    ("w2", "ffn_down"),
    ("gate", "ffn_gate_inp"),
    ("router", "ffn_gate_inp"),
    ("gate.e_score_correction_bias", "exp_probs_b.bias."),
    ("expert_bias", "exp_probs_b.bias."),
    ("experts.gate_proj", "ffn_gate_exps"),
    ("experts.up_proj", "ffn_up_exps"),
    ("experts.down_proj", "ffn_down_exps"),
    ("experts.gate_up_proj", "ffn_gate_up_exps"),
    ("shared_expert.gate_proj", "ffn_gate_shexp"),
    ("shared_expert.up_proj", "ffn_up_shexp"),
    ("shared_expert.down_proj", "ffn_down_shexp"),
    ("shared_experts.gate_proj", "ffn_gate_shexp"),
    ("shared_experts.up_proj", "ffn_up_shexp"),
    ("shared_experts.down_proj", "ffn_down_shexp"),
    ("shared_expert_gate", "ffn_gate_inp_shexp"),
    ("fc1_latent_proj", "ffn_latent_down"),
    ("fc2_latent_proj", "ffn_latent_up"),
];

/// The usual names inside a state-space mixer, which transformers calls `mamba` or `mixer`. A GGUF name with a dot at its end is complete,
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
pub(super) fn config_fields(path: &Path, header: &GgufHeader, architecture: &str) -> Fields {
    let mut fields = vec![("model_type".to_owned(), JsonValue::String(architecture.to_owned()))];
    for (key, name) in FIELDS {
        if let Some(value) = header.get(&format!("{architecture}.{key}")) {
            fields.push(((*name).to_owned(), value.clone()));
        }
    }
    let rope_text = |key: &str| match header.get(&format!("{architecture}.rope.scaling.{key}")) {
        Some(JsonValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    if let Some(kind) = rope_text("type").filter(|kind| kind != "none") {
        let mut rope = vec![("rope_type".to_owned(), JsonValue::String(kind))];
        let names = [
            ("factor", "factor"),
            ("original_context_length", "original_max_position_embeddings"),
            ("attn_factor", "attention_factor"),
            ("yarn_beta_fast", "beta_fast"),
            ("yarn_beta_slow", "beta_slow"),
        ];
        for (key, name) in names {
            if let Some(value) = header.get(&format!("{architecture}.rope.scaling.{key}")) {
                rope.push((name.to_owned(), value.clone()));
            }
        }
        // This is a tenth of `mscale_all_dim` in DeepSeek's configs; llama.cpp uses the same number for `mscale`.
        let multiplier = header.get(&format!("{architecture}.rope.scaling.yarn_log_multiplier"));
        if let Some(tenth) = multiplier.and_then(number) {
            let scale = JsonValue::Number((10.0 * tenth).to_string());
            rope.extend(["mscale", "mscale_all_dim"].map(|name| (name.to_owned(), scale.clone())));
        }
        if architecture == "gpt-oss" {
            // The value in its config; the header has no such field.
            rope.push(("truncate".to_owned(), JsonValue::Bool(false)));
        }
        fields.push(("rope_scaling".to_owned(), JsonValue::Object(rope)));
    }
    // The vocabulary size is the number of rows of the embedding table.
    let table = header.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    if let Some([_, rows]) = table.map(|table| &table.dimensions[..]) {
        fields.push(("vocab_size".to_owned(), JsonValue::Number(rows.to_string())));
    }
    Fields::new(path, JsonValue::Object(fields))
}

fn number(value: &JsonValue) -> Option<f64> {
    match value {
        JsonValue::Number(text) => text.parse().ok(),
        _ => None,
    }
}

/// The GGUF names of a family's tensors.
pub struct TensorNames {
    /// Names that differ from the usual ones: transformers' name and GGUF name.
    family: &'static [(&'static str, &'static str)],
}

impl TensorNames {
    /// The usual names, and those of a family, which take precedence.
    pub(super) fn new(family: &'static [(&'static str, &'static str)]) -> Self {
        Self { family }
    }

    /// The GGUF name of a tensor that transformers calls `name`; `name` itself if no table has it.
    pub fn gguf_name(&self, name: &str) -> String {
        // Sinks, rates and such have no suffix in transformers; all other names end in weight or bias.
        let (stem, suffix) = match name.rsplit_once('.') {
            Some((stem, suffix @ ("weight" | "bias"))) => (stem, suffix),
            Some((_, "dt_bias")) => (name, "bias"),
            _ => (name, "weight"),
        };
        let name_in_layer = |layer: &str, inner: &str, table: &[(&str, &str)]| {
            let (_, gguf_name) = table.iter().find(|(name, _)| *name == inner)?;
            Some(match gguf_name.strip_suffix('.') {
                Some(complete) => format!("blk.{layer}.{complete}"),
                None => format!("blk.{layer}.{gguf_name}.{suffix}"),
            })
        };
        let find_in_layer =
            |table: &[(&str, &str)]| split_layer(stem).and_then(|(layer, inner)| name_in_layer(layer, inner, table));
        let find_in_module = |modules: &[&str], table: &[(&str, &str)]| {
            let (layer, inner) = split_layer(stem)?;
            name_in_layer(layer, modules.iter().find_map(|module| inner.strip_prefix(module))?, table)
        };
        let state_space = || find_in_module(&["mamba.", "mixer."], STATE_SPACE);
        let feed_forward = || find_in_module(&["mlp.", "feed_forward.", "block_sparse_moe.", "mixer."], FEED_FORWARD);
        let find_outside = |table: &[(&str, &str)]| {
            let (_, gguf_name) = table.iter().find(|(name, _)| *name == stem)?;
            Some(format!("{gguf_name}.{suffix}"))
        };
        let by_family = find_outside(self.family).or_else(|| find_in_layer(self.family));
        let usual = || {
            find_outside(OUTSIDE_LAYERS)
                .or_else(|| find_in_layer(INSIDE_LAYER))
                .or_else(state_space)
                .or_else(feed_forward)
        };
        by_family.or_else(usual).unwrap_or_else(|| name.to_owned())
    }
}

/// The layer number and the remaining name in `model.layers.3.mlp.up_proj`: `3` and `mlp.up_proj`.
fn split_layer(name: &str) -> Option<(&str, &str)> {
    let (_, inner) = name.split_once("layers.")?;
    inner.split_once('.')
}
