//! MiniMax-Text-01: lightning attention between layers of softmax attention, and experts.
//!
//! The residual connection carries the normed stream, not the stream itself, and both of its parts have factors.
//!
//! # Classes
//! `MiniMaxForCausalLM`. Files in other types than F32 hold rounded copies of the decays, which transformers then uses; here decays are
//! computed.
//!
//! # Unusual options
//! The six factors (`full_attn_alpha_factor` and so on).
//!
//! # GGUF
//! Not read.

use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::decoder::{self, AttentionParts, OuterParts};
use super::{FamilyError, Loader, delta, experts};
use crate::mixer::lightning::LightningConfig;
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Activation, Branch, FeedForward, Experts, Gating, LayerParts, ModelParts, Routing};
use crate::param_builder::LayerDepth;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["minimax"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// What files hold of the decays.
const DECAYS: [&str; 4] = ["slope_rate", "query_decay", "key_decay", "diagonal_decay"];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.refuse("sliding_window", "no window")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let branch = |loader: &mut Loader<'_, S>, norm: &str, part: &str| {
                let factor = |name: &str| Ok::<_, FamilyError>(fields.number(&format!("{part}_{name}_factor"))?.unwrap_or(1.0));
                Ok::<_, FamilyError>(Branch {
                    scale: Some(factor("beta")?),
                    carried: Some(factor("alpha")?),
                    ..Branch::of(loader.rms_norm(norm, width, epsilon)?)
                })
            };
            let depth = LayerDepth { layer: index, layers: loader.layers.len() };
            let (part, mixer) = mixer(loader, layer, width, depth)?;
            let branches = (
                branch(loader, "input_layernorm", part)?,
                branch(loader, "post_attention_layernorm", "mlp")?,
            );
            let channel = loader.within("block_sparse_moe", |loader| mixture(loader, width, activation))?;
            Ok::<_, FamilyError>(LayerParts { mixers: (branches.0, vec![mixer]), channel: Some((branches.1, channel)) })
        })?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}

/// A mixer, and how the names of its factors begin.
fn mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    layer: &Layer,
    width: usize,
    depth: LayerDepth,
) -> Result<(&'static str, Builtin), FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == LightningConfig::NAME => {
            let sizes = LightningConfig::resolve(mixer)?;
            let inner = sizes.heads * sizes.head;
            let mixer = loader.within("self_attn", |loader| {
                for name in DECAYS {
                    loader.ignore(name);
                }
                let linears = [
                    loader.linear("qkv_proj", width, 3 * inner, false)?,
                    loader.role(Role::Gate).linear("output_gate", width, inner, false)?,
                    loader.role(Role::Output).linear("out_proj", inner, width, false)?,
                ];
                Ok::<_, FamilyError>(sizes.assemble(linears, loader.tensor("norm.weight", &[inner])?, depth))
            })?;
            Ok(("linear_attn", Builtin::Lightning(mixer)))
        }
        _ => {
            let mixer = decoder::attention_of(loader, layer)?;
            let parts = AttentionParts::plain(loader.rotation(mixer, 1e6)?);
            let mixer = loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?;
            Ok(("full_attn", mixer))
        }
    }
}

fn mixture<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let count = fields.required_size("num_local_experts")?;
    let hidden = fields.required_size("intermediate_size")?;
    let routing = Routing {
        chosen: experts::chosen(loader, "num_experts_per_tok", count)?,
        gating: Gating::SoftmaxOfChosen,
        normed: false,
        scale: 1.0,
        bias: None,
        limit: None,
    };
    Ok(FeedForward::Experts(Box::new(Experts {
        router: loader.linear("gate", width, count, false)?,
        routing,
        experts: experts::experts(loader, count, [width, hidden], experts::MIXTRAL_NAMES, activation)?,
        latent: None,
        shared: None,
        shared_gate: None,
    })))
}
