//! MiniMax-Text-01: lightning attention between layers of softmax attention, and experts.
//!
//! The residual connection adds to the normalized input, not to the input itself, and both summands have factors.
//!
//! # Classes
//! `MiniMaxForCausalLM`. Files in other formats than F32 have rounded copies of the decays, which transformers uses; this crate computes
//! the decays.
//!
//! # Unusual options
//! The six factors (`full_attn_alpha_factor` and so on).
//!
//! # GGUF
//! Not supported.

use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::{FamilyError, Loader, delta, experts};
use crate::mixer::lightning::LightningConfig;
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Activation, Experts, FeedForward, Gating, LoadedLayer, LoadedModel, ResidualBranch, Routing};
use crate::param_builder::LayerDepth;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["minimax"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Tensors of precomputed decays, which are ignored.
const IGNORED_DECAYS: [&str; 4] = ["slope_rate", "query_decay", "key_decay", "diagonal_decay"];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.reject("sliding_window", "no window")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let branch = |loader: &mut Loader<'_, S>, norm: &str, prefix: &str| {
                let factor = |name: &str| {
                    Ok::<_, FamilyError>(fields.number(&format!("{prefix}_{name}_factor"))?.unwrap_or(1.0))
                };
                Ok::<_, FamilyError>(ResidualBranch {
                    output_scale: Some(factor("beta")?),
                    normed_residual_scale: Some(factor("alpha")?),
                    ..ResidualBranch::with_norm(loader.rms_norm(norm, width, epsilon)?)
                })
            };
            let depth = LayerDepth { layer: index, layers: loader.layers.len() };
            let (prefix, mixer) = read_mixer(loader, layer, width, depth)?;
            let mixer_branch = branch(loader, "input_layernorm", prefix)?;
            let feed_forward_branch = branch(loader, "post_attention_layernorm", "mlp")?;
            let feed_forward =
                loader.with_prefix("block_sparse_moe", |loader| read_mixture_of_experts(loader, width, activation))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, feed_forward)),
            })
        })?);
    }
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}

/// The mixer of a layer, with the prefix of the config's names of its factors.
fn read_mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    layer: &Layer,
    width: usize,
    depth: LayerDepth,
) -> Result<(&'static str, Builtin), FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == LightningConfig::NAME => {
            let sizes = LightningConfig::resolve(mixer)?;
            let inner = sizes.heads * sizes.head_dim;
            let mixer = loader.with_prefix("self_attn", |loader| {
                for name in IGNORED_DECAYS {
                    loader.ignore(name);
                }
                let linears = [
                    loader.linear("qkv_proj", width, 3 * inner, false)?,
                    loader.with_role(Role::Gate).linear("output_gate", width, inner, false)?,
                    loader.with_role(Role::Output).linear("out_proj", inner, width, false)?,
                ];
                Ok::<_, FamilyError>(sizes.assemble(linears, loader.tensor("norm.weight", &[inner])?, depth))
            })?;
            Ok(("linear_attn", Builtin::Lightning(mixer)))
        }
        _ => {
            let mixer = decoder::attention_mixer(loader, layer)?;
            let attention_options = AttentionOptions::new(loader.rotation(mixer, 1e6)?);
            let mixer = loader
                .with_prefix("self_attn", |loader| decoder::read_attention(loader, mixer, width, attention_options))?;
            Ok(("full_attn", mixer))
        }
    }
}

fn read_mixture_of_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let expert_count = fields.required_size("num_local_experts")?;
    let hidden = fields.required_size("intermediate_size")?;
    let routing = Routing::new(experts::top_k(loader, "num_experts_per_tok", expert_count)?, Gating::SoftmaxOfTopK);
    let router = loader.linear("gate", width, expert_count, false)?;
    let experts = experts::read_experts(loader, expert_count, [width, hidden], experts::MIXTRAL_NAMES, activation)?;
    Ok(FeedForward::Experts(Box::new(Experts::new(router, routing, experts))))
}
