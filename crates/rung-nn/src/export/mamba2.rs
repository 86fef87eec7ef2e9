//! Mamba-2 layers without feed-forward networks.
//!
//! transformers computes the gated norm over all groups together, llama.cpp over each group separately; with one group they agree.

use serde_json::{Map, json};

use super::gguf::HeaderValue;
use super::granite_hybrid::{EXPANSION, common_mamba2, mamba2_epsilon, mamba2_tensors, width};
use super::llama::{LayerNames, embeddings_and_lm_head};
use super::network::{ExportMixer, ExportNetwork};
use super::{ExportError, ExportFormat, Family, FamilyCheckpoint};
use crate::mixer::{MixerConfig as _, mamba2::Mamba2Config};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "mamba2",
    class: Some("Mamba2ForCausalLM"),
    architecture: Some("mamba2"),
    mixers: &[Mamba2Config::NAME],
    feed_forward: false,
    width,
    write,
};

fn write(network: &ExportNetwork, format: ExportFormat) -> Result<FamilyCheckpoint, ExportError> {
    let mamba2 =
        common_mamba2(network)?.ok_or_else(|| ExportError::unsupported("stack", "no layer", "layers of mamba2"))?;
    let epsilon = mamba2_epsilon(network, Some(mamba2))?;
    if format == ExportFormat::HuggingFace && mamba2.groups > 1 {
        let found = format!("{} groups, each with a norm of its own", mamba2.groups);
        return Err(ExportError::unsupported(Mamba2Config::NAME, found, "one group"));
    }
    let mut tensors = embeddings_and_lm_head(network, format);
    for (index, layer) in network.layers.iter().enumerate() {
        let ExportMixer::Mamba2(mamba2) = &layer.mixer else {
            unreachable!("a family is only chosen for layers that it supports")
        };
        let names = LayerNames { format, index };
        tensors.push(names.vector("norm", "attn_norm", layer.mixer_norm.clone()));
        tensors.extend(mamba2_tensors(&mamba2.widened(network.width), names, "mixer"));
    }
    let heads = EXPANSION * network.width / mamba2.head_dim;
    let (mut config, mut keys) = (Map::new(), Vec::new());
    match format {
        ExportFormat::HuggingFace => {
            for tensor in &mut tensors {
                let name = tensor.name.replacen("model.", "backbone.", 1);
                tensor.name = name.replace("embed_tokens", "embeddings").replace("backbone.norm.", "backbone.norm_f.");
            }
            let fields = json!({
                "hidden_size": network.width,
                "num_hidden_layers": network.layers.len(),
                "num_heads": heads,
                "head_dim": mamba2.head_dim,
                "state_size": mamba2.state,
                "n_groups": mamba2.groups,
                "conv_kernel": mamba2.kernel_size,
                "expand": EXPANSION,
                "chunk_size": 64,
                "hidden_act": "silu",
                "layer_norm_epsilon": epsilon,
                "rms_norm": true,
                "use_bias": false,
                "use_conv_bias": true,
                "residual_in_fp32": true,
            });
            if let serde_json::Value::Object(fields) = fields {
                config = fields;
            }
        }
        ExportFormat::Gguf => {
            let number = |value: usize| HeaderValue::U32(value as u32);
            let family_keys = [
                ("embedding_length", number(network.width)),
                ("block_count", number(network.layers.len())),
                ("feed_forward_length", number(0)),
                ("attention.head_count", number(0)),
                ("attention.layer_norm_rms_epsilon", HeaderValue::F32(epsilon as f32)),
                ("ssm.conv_kernel", number(mamba2.kernel_size)),
                ("ssm.inner_size", number(EXPANSION * network.width)),
                ("ssm.state_size", number(mamba2.state)),
                ("ssm.time_step_rank", number(heads)),
                ("ssm.group_count", number(mamba2.groups)),
            ];
            keys.extend(family_keys.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
    }
    Ok(FamilyCheckpoint { config, keys, tensors, width: network.width })
}
