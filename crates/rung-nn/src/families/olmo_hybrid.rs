//! OLMo Hybrid: Gated `DeltaNet` with norms before, between layers of attention with norms after.
//!
//! # Classes
//! `OlmoHybridForCausalLM`.
//!
//! # Unusual options
//! `linear_allow_neg_eigval`, `attention_bias`; rotary positions, which published models have not (`rope_theta` null).
//!
//! # Names
//! Published files have a convolution each for queries, keys and values. When transformers saves a model again it cuts the three
//! together into equal parts. Both are read: the parts are put together and cut by the widths of the heads.
//!
//! # GGUF
//! Not read.

use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionParts, OuterParts, QueryKeyNorm};
use super::{FamilyError, Loader, delta};
use crate::mixer::Builtin;
use crate::mixer::gdn::{GatedDeltanetConfig, GatedDeltanetParts};
use crate::model::{Branch, FeedForward, LayerParts, ModelParts, Norm};
use crate::parts::NormGain;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["olmo_hybrid"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    // A base of null means no rotation at all; older files have the field outside.
    let turns = fields.object("rope_parameters")?.is_none_or(|rope| rope.has("rope_theta"));
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let norm = |loader: &mut Loader<'_, S>, names: [&str; 2]| {
                let name = if loader.has(&format!("{}.weight", names[0])) { names[0] } else { names[1] };
                loader.rms_norm(name, width, epsilon)
            };
            let (branch, mixer, channel_branch) = if let Some(sizes) = delta::sizes_of(layer)? {
                let branch = Branch::of(norm(loader, ["attention_layer_norm", "input_layernorm"])?);
                let channel = Branch::of(norm(loader, ["feedforward_layer_norm", "post_attention_layernorm"])?);
                let mixer = loader.within("linear_attn", |loader| gated_deltanet(loader, sizes, width))?;
                (branch, mixer, channel)
            } else {
                let mixer = decoder::attention_of(loader, layer)?;
                let rotation = if turns { Some(loader.rotation(mixer, 10_000.0)?) } else { None };
                let (plain, norms) = (AttentionParts::plain(rotation), QueryKeyNorm::AllHeads);
                let parts = AttentionParts { bias, output_bias: bias, norm: norms, epsilon, ..plain };
                let after = |norm| Branch { norm: Norm::of(None, None, 0.0), after: Some(norm), scale: None, carried: None };
                let branch = after(norm(loader, ["post_attention_layernorm", "feedforward_layer_norm"])?);
                let channel = after(loader.rms_norm("post_feedforward_layernorm", width, epsilon)?);
                let mixer = loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?;
                (branch, mixer, channel)
            };
            let sizes = [width, hidden];
            let network = loader.within("mlp", |loader| decoder::gated_network(loader, sizes, false, activation))?;
            let channel = Some((channel_branch, FeedForward::Dense(network)));
            Ok::<_, FamilyError>(LayerParts { mixers: (branch, vec![mixer]), channel })
        })?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}

fn gated_deltanet<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
) -> Result<Builtin, FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, key, value, taps, .. } = sizes;
    let (key_rows, value_rows) = (heads * key, value_heads * value);
    let projections = [
        loader.role(Role::Query).linear("q_proj", width, key_rows, false)?,
        loader.role(Role::Key).linear("k_proj", width, key_rows, false)?,
        loader.role(Role::Value).linear("v_proj", width, value_rows, false)?,
    ];
    let names = ["q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"];
    let (total, own) = (2 * key_rows + value_rows, [key_rows, key_rows, value_rows]);
    let third = total.div_ceil(3);
    let equal = [third, third, total - 2 * third];
    let channels = if loader.shape(names[0]).is_some_and(|shape| shape.first() == Some(&third)) { equal } else { own };
    let mut filters = Vec::with_capacity(total * taps);
    for (name, channels) in names.into_iter().zip(channels) {
        filters.extend(loader.values(name, &[channels, 1, taps])?);
    }
    Ok(Builtin::GatedDeltanet(sizes.assemble(&GatedDeltanetParts {
        projections,
        convolutions: delta::convolutions(loader, &filters, taps, [key_rows, value_rows]),
        beta: loader.linear("b_proj", width, value_heads, false)?,
        step: loader.linear("a_proj", width, value_heads, false)?,
        step_bias: loader.tensor("dt_bias", &[value_heads])?,
        log_rate: loader.tensor("A_log", &[value_heads])?,
        gate: loader.role(Role::Gate).linear("g_proj", width, value_rows, false)?,
        norm: loader.tensor("o_norm.weight", &[value])?,
        epsilon: NormGain::EPSILON,
        output: loader.role(Role::Output).linear("o_proj", value_rows, width, false)?,
    })))
}
