//! LFM2: gated short convolutions between layers of attention.
//!
//! # Classes
//! `Lfm2ForCausalLM`, `Lfm2MoeForCausalLM` (experts after the first layers).
//!
//! # Unusual options
//! `conv_bias`, `block_auto_adjust_ff_dim` with its two numbers; `use_expert_bias`, `norm_topk_prob`, `routed_scaling_factor` (experts).
//!
//! # GGUF
//! `lfm2`, `lfm2moe`.

use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::decoder::{self, AttentionOptions, DecoderOptions, QueryKeyNorm};
use super::{FamilyError, Loader, experts};
use crate::mixer::conv::{ShortConvolution, ShortConvolutionConfig};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Activation, Experts, FeedForward, Gating, LoadedLayer, LoadedModel, Mlp, ResidualBranch, Routing};
use crate::submodules::Convolution;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["lfm2", "lfm2_moe"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["lfm2", "lfm2moe"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("operator_norm", "attn_norm"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("self_attn.out_proj", "attn_output"),
    ("conv.conv", "shortconv.conv"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.out_proj", "shortconv.out_proj"),
];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("norm_eps")?.unwrap_or(1e-5);
    let has_experts = matches!(fields.text("model_type")?, Some("lfm2_moe" | "lfm2moe"));
    let hidden = hidden_width(loader, has_experts)?;
    let dense_layer_count =
        if has_experts { fields.number("num_dense_layers")?.unwrap_or(2.0) as usize } else { usize::MAX };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let branch = ResidualBranch::with_norm(loader.rms_norm("operator_norm", width, epsilon)?);
            let mixer = read_mixer(loader, layer, width, epsilon)?;
            let feed_forward_branch = ResidualBranch::with_norm(loader.rms_norm("ffn_norm", width, epsilon)?);
            let feed_forward = loader.with_prefix("feed_forward", |loader| {
                if index < dense_layer_count {
                    read_mlp(loader, width, hidden)
                } else {
                    read_mixture_of_experts(loader, width)
                }
            })?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, feed_forward)),
            })
        })?);
    }
    let tied_by_default = fields.flag("tie_embedding", true)?;
    DecoderOptions { norm: "embedding_norm", tied_by_default, ..DecoderOptions::new(epsilon) }
        .assemble_model(loader, layers)
}

fn read_mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    layer: &Layer,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == ShortConvolutionConfig::NAME => {
            let sizes = ShortConvolutionConfig::resolve(mixer)?;
            loader.with_prefix("conv", |loader| read_convolution(loader, sizes, width))
        }
        _ => {
            let mixer = decoder::attention_mixer(loader, layer)?;
            let attention_options = AttentionOptions {
                norm: QueryKeyNorm::EachHead,
                epsilon,
                names: ["q_layernorm", "k_layernorm", "out_proj"],
                ..AttentionOptions::new(loader.rotation(mixer, 1e6)?)
            };
            loader.with_prefix("self_attn", |loader| decoder::read_attention(loader, mixer, width, attention_options))
        }
    }
}

fn read_convolution<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: ShortConvolutionConfig,
    width: usize,
) -> Result<Builtin, FamilyError> {
    let ShortConvolutionConfig { kernel_size, channels, .. } = sizes;
    let bias = loader.fields.flag("conv_bias", false)?;
    let convolution = Convolution {
        weight: loader.tensor("conv.weight", &[channels, 1, kernel_size])?,
        bias: if bias { Some(loader.tensor("conv.bias", &[channels])?) } else { None },
        channels,
        kernel_size,
        rounding: None,
    };
    let input = loader.linear("in_proj", width, 3 * channels, bias)?;
    let output = loader.with_role(Role::Output).linear("out_proj", channels, width, bias)?;
    Ok(Builtin::ShortConvolution(ShortConvolution::assemble(convolution, [input, output])))
}

/// The hidden width of dense MLPs: that of the config, or two thirds of it, times a factor, rounded up.
fn hidden_width<S: Scalar>(loader: &Loader<'_, S>, has_experts: bool) -> Result<usize, FamilyError> {
    let fields = loader.fields;
    let hidden = match fields.size("block_ff_dim")? {
        Some(hidden) => hidden,
        None => fields.required_size("intermediate_size")?,
    };
    if has_experts || loader.is_gguf() || !fields.flag("block_auto_adjust_ff_dim", true)? {
        return Ok(hidden);
    }
    let hidden = 2 * hidden / 3;
    let step = fields.size("block_multiple_of")?.unwrap_or(256);
    Ok(fields.scaled_size("block_ffn_dim_multiplier", hidden)?.map_or(hidden, |hidden| hidden.next_multiple_of(step)))
}

fn read_mlp<S: Scalar>(loader: &mut Loader<'_, S>, width: usize, hidden: usize) -> Result<FeedForward, FamilyError> {
    let [gate, up, down] = experts::MIXTRAL_NAMES;
    Ok(FeedForward::Mlp(Mlp {
        gate: Some(loader.linear(gate, width, hidden, false)?),
        up: loader.linear(up, width, hidden, false)?,
        down: loader.with_role(Role::Output).linear(down, hidden, width, false)?,
        activation: Activation::Silu,
    }))
}

fn read_mixture_of_experts<S: Scalar>(loader: &mut Loader<'_, S>, width: usize) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let expert_count = fields.required_size("num_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let bias = if loader.is_gguf() { loader.has("expert_bias") } else { fields.flag("use_expert_bias", true)? };
    let routing = Routing {
        top_k: experts::top_k(loader, "num_experts_per_tok", expert_count)?,
        gating: Gating::Sigmoid,
        normalized: fields.flag("norm_topk_prob", true)?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(1.0),
        bias: if bias { Some(loader.tensor("expert_bias", &[expert_count])?) } else { None },
        group_limit: None,
    };
    let router = loader.linear("gate", width, expert_count, false)?;
    let experts =
        experts::read_experts(loader, expert_count, [width, hidden], experts::MIXTRAL_NAMES, Activation::Silu)?;
    Ok(FeedForward::Experts(Box::new(Experts::new(router, routing, experts))))
}
