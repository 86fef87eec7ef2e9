//! OLMo Hybrid: pre-norm layers of Gated `DeltaNet` between post-norm layers of attention.
//!
//! # Classes
//! `OlmoHybridForCausalLM`.
//!
//! # Unusual options
//! `linear_allow_neg_eigval`, `attention_bias`; rotary positions, which published models do not have (`rope_theta` null).
//!
//! # Names
//! Published files have one convolution each for queries, keys and values. When transformers saves a model again, it concatenates the three
//! and splits them into equal thirds. Both are supported: the tensors are concatenated and split by the widths of queries, keys and values.
//!
//! # GGUF
//! Not supported.

use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionOptions, DecoderOptions, QueryKeyNorm};
use super::{FamilyError, Loader, delta};
use crate::mixer::Builtin;
use crate::mixer::gdn::{GatedDeltanetConfig, GatedDeltanetWeights};
use crate::model::{FeedForward, LoadedLayer, LoadedModel, Norm, ResidualBranch};
use crate::submodules::NormGain;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["olmo_hybrid"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    // A `rope_theta` of null means no rotary positions; older files have the field outside `rope_parameters`.
    let is_rotary = fields.object("rope_parameters")?.is_none_or(|rope| rope.has("rope_theta"));
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm = |loader: &mut Loader<'_, S>, names: [&str; 2]| {
                let name = if loader.has(&format!("{}.weight", names[0])) { names[0] } else { names[1] };
                loader.rms_norm(name, width, epsilon)
            };
            let (branch, mixer, feed_forward_branch) = if let Some(sizes) = delta::sizes_of(layer)? {
                let branch = ResidualBranch::with_norm(norm(loader, ["attention_layer_norm", "input_layernorm"])?);
                let feed_forward_branch =
                    ResidualBranch::with_norm(norm(loader, ["feedforward_layer_norm", "post_attention_layernorm"])?);
                let mixer = loader.with_prefix("linear_attn", |loader| read_gated_deltanet(loader, sizes, width))?;
                (branch, mixer, feed_forward_branch)
            } else {
                let mixer = decoder::attention_mixer(loader, layer)?;
                let rotation = if is_rotary { Some(loader.rotation(mixer, 10_000.0)?) } else { None };
                let (defaults, norms) = (AttentionOptions::new(rotation), QueryKeyNorm::AllHeads);
                let attention_options = AttentionOptions { bias, output_bias: bias, norm: norms, epsilon, ..defaults };
                let norm_after = |norm| ResidualBranch {
                    norm: Norm::identity(),
                    output_norm: Some(norm),
                    output_scale: None,
                    normed_residual_scale: None,
                };
                let branch = norm_after(norm(loader, ["post_attention_layernorm", "feedforward_layer_norm"])?);
                let feed_forward_branch = norm_after(loader.rms_norm("post_feedforward_layernorm", width, epsilon)?);
                let mixer = loader.with_prefix("self_attn", |loader| {
                    decoder::read_attention(loader, mixer, width, attention_options)
                })?;
                (branch, mixer, feed_forward_branch)
            };
            let sizes = [width, hidden];
            let mlp = loader.with_prefix("mlp", |loader| decoder::read_gated_mlp(loader, sizes, false, activation))?;
            let feed_forward = Some((feed_forward_branch, FeedForward::Mlp(mlp)));
            Ok::<_, FamilyError>(LoadedLayer { mixer_branch: branch, mixers: vec![mixer], feed_forward })
        })?);
    }
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}

fn read_gated_deltanet<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
) -> Result<Builtin, FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, key_dim, value_dim, kernel_size, .. } = sizes;
    let (key_rows, value_rows) = (heads * key_dim, value_heads * value_dim);
    let projections = [
        loader.with_role(Role::Query).linear("q_proj", width, key_rows, false)?,
        loader.with_role(Role::Key).linear("k_proj", width, key_rows, false)?,
        loader.with_role(Role::Value).linear("v_proj", width, value_rows, false)?,
    ];
    let names = ["q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"];
    let (total, separate_channels) = (2 * key_rows + value_rows, [key_rows, key_rows, value_rows]);
    let third = total.div_ceil(3);
    let thirds = [third, third, total - 2 * third];
    let channels = if loader.shape(names[0]).is_some_and(|shape| shape.first() == Some(&third)) {
        thirds
    } else {
        separate_channels
    };
    let mut filters = Vec::with_capacity(total * kernel_size);
    if loader.has("conv1d.weight") {
        // The name inside transformers' modules, which loads files with it too; `rung export` writes it.
        filters.extend(loader.values("conv1d.weight", &[total, 1, kernel_size])?);
    } else {
        for (name, channels) in names.into_iter().zip(channels) {
            filters.extend(loader.values(name, &[channels, 1, kernel_size])?);
        }
    }
    Ok(Builtin::GatedDeltanet(sizes.assemble(&GatedDeltanetWeights {
        projections,
        convolutions: delta::convolutions(loader, &filters, kernel_size, [key_rows, value_rows]),
        beta: loader.linear("b_proj", width, value_heads, false)?,
        dt_proj: loader.linear("a_proj", width, value_heads, false)?,
        dt_bias: loader.tensor("dt_bias", &[value_heads])?,
        a_log: loader.tensor("A_log", &[value_heads])?,
        gate: loader.with_role(Role::Gate).linear("g_proj", width, value_rows, false)?,
        norm: loader.tensor("o_norm.weight", &[value_dim])?,
        epsilon: NormGain::EPSILON,
        output: loader.with_role(Role::Output).linear("o_proj", value_rows, width, false)?,
    })))
}
