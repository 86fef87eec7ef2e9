//! Falcon-H1: parallel attention and Mamba-2 in every layer, then a gated MLP, with factors on most activations.
//!
//! # Classes
//! `FalconH1ForCausalLM`. All factors are multiplied into weights and biases.
//!
//! # Unusual options
//! `mamba_rms_norm` with `mamba_norm_before_gate`, `mamba_d_ssm`, `head_dim`, `projectors_bias`, other biases, `time_step_limit`, tied embeddings.
//!
//! # GGUF
//! `falcon-h1`: factors are already multiplied into the weights, and the norm comes after the gate.

use rung_audit::json::JsonValue;
use rung_engine::Scalar;
use rung_theory::stack::{Layer, Mixer};

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::state_space::{GatedNormOptions, Mamba2Options};
use super::{FamilyError, Fields, Loader, bamba, state_space};
use crate::mixer::Builtin;
use crate::mixer::MixerConfig as _;
use crate::mixer::mamba2::Mamba2Config;
use crate::model::{FeedForward, LoadedLayer, LoadedModel, ResidualBranch, names};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["falcon_h1"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["falcon-h1"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[("pre_ff_layernorm", "ffn_norm.")];

/// Default of `rope_theta`.
const ROPE_THETA: f64 = 10_000.0;

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    state_space::require_silu(fields, "hidden_act")?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let (bias, mlp_bias) = (fields.flag("attention_bias", false)?, fields.flag("mlp_bias", false)?);
    let activation = decoder::activation(loader, "silu")?;
    let (has_norm, before_gate) = if loader.is_gguf() {
        (loader.has("model.layers.0.mamba.norm.weight"), false)
    } else {
        (fields.flag("mamba_rms_norm", false)?, fields.flag("mamba_norm_before_gate", true)?)
    };
    let options = Mamba2Options {
        output_bias: fields.flag("projectors_bias", false)?,
        norm: has_norm.then_some(GatedNormOptions { epsilon, before_gate }),
        ..bamba::mamba2_options(loader, epsilon)?
    };
    let factors = Factors::read(fields)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let (attention, recurrence) = parallel_mixers(fields, layer)?;
        let defaults = AttentionOptions::new(loader.rotation(attention, ROPE_THETA)?);
        let attention_options = AttentionOptions { bias, output_bias: bias, ..defaults };
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let attention = loader.with_mixer_name(&names::mixer_in_layer(0, 2), |loader| {
                loader.with_prefix("self_attn", |loader| {
                    let mixer = decoder::read_attention(loader, attention, width, attention_options)?;
                    factors.scale_attention(loader);
                    Ok::<_, FamilyError>(mixer)
                })
            })?;
            let recurrence = loader.with_mixer_name(&names::mixer_in_layer(1, 2), |loader| {
                loader.with_prefix("mamba", |loader| {
                    let mixer = state_space::read_mamba2(loader, recurrence, width, options)?;
                    factors.scale_recurrence(loader, &Mamba2Config::resolve(recurrence)?);
                    Ok::<_, FamilyError>(mixer)
                })
            })?;
            let feed_forward_norm = loader.rms_norm("pre_ff_layernorm", width, epsilon)?;
            let mlp = loader.with_prefix("feed_forward", |loader| {
                let mlp = decoder::read_gated_mlp(loader, [width, hidden], mlp_bias, activation)?;
                factors.scale_mlp(loader);
                Ok::<_, FamilyError>(mlp)
            })?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: ResidualBranch::with_norm(norm),
                mixers: vec![attention, recurrence],
                feed_forward: Some((ResidualBranch::with_norm(feed_forward_norm), FeedForward::Mlp(mlp))),
            })
        })?);
    }
    let decoder_options = DecoderOptions {
        norm: "final_layernorm",
        embedding_scale: fields.number("embedding_multiplier")?,
        logit_scale: fields.number("lm_head_multiplier")?.unwrap_or(1.0),
        ..DecoderOptions::new(epsilon)
    };
    decoder_options.assemble_model(loader, layers)
}

/// The two mixers of a layer: attention and Mamba-2.
fn parallel_mixers<'a>(fields: &Fields, layer: &'a Layer) -> Result<(&'a Mixer, &'a Mixer), FamilyError> {
    match &layer.mixers[..] {
        [attention, recurrence] if attention.name() == "full" && recurrence.name() == "mamba2" => {
            Ok((attention, recurrence))
        }
        _ => Err(fields.error("model_type", "another mixer", "full attention in parallel with Mamba-2")),
    }
}

/// The factors on activations that the config has.
struct Factors {
    attention_in: f64,
    attention_out: f64,
    key: f64,
    recurrence_in: f64,
    recurrence_out: f64,
    /// Factors of the parts of Mamba-2's input projection: gate, x, B, C and dt.
    input_projection_parts: [f64; 5],
    /// Factors of the MLP's gate and output.
    mlp: [f64; 2],
}

impl Factors {
    fn read(fields: &Fields) -> Result<Self, FamilyError> {
        let factor = |name: &str| Ok::<_, FamilyError>(fields.number(name)?.unwrap_or(1.0));
        Ok(Self {
            attention_in: factor("attention_in_multiplier")?,
            attention_out: factor("attention_out_multiplier")?,
            key: factor("key_multiplier")?,
            recurrence_in: factor("ssm_in_multiplier")?,
            recurrence_out: factor("ssm_out_multiplier")?,
            input_projection_parts: numbers(fields, "ssm_multipliers")?,
            mlp: numbers(fields, "mlp_multipliers")?,
        })
    }

    fn scale_attention<S: Scalar>(&self, loader: &mut Loader<'_, S>) {
        for name in ["q_proj", "k_proj", "v_proj"] {
            let factor = if name == "k_proj" { self.key } else { 1.0 };
            loader.scale_rows(&format!("{name}.weight"), |_| self.attention_in * factor);
            loader.scale_rows(&format!("{name}.bias"), |_| factor);
        }
        for name in ["o_proj.weight", "o_proj.bias"] {
            loader.scale_rows(name, |_| self.attention_out);
        }
    }

    fn scale_recurrence<S: Scalar>(&self, loader: &mut Loader<'_, S>, config: &Mamba2Config) {
        let (inner, group_rows) = (config.inner_dim(), config.groups * config.state);
        let ends = [inner, 2 * inner, 2 * inner + group_rows, 2 * inner + 2 * group_rows, usize::MAX];
        let part_factor = |row: usize| self.input_projection_parts[ends.iter().position(|end| row < *end).unwrap_or(4)];
        loader.scale_rows("in_proj.weight", |row| self.recurrence_in * part_factor(row));
        loader.scale_rows("in_proj.bias", part_factor);
        for name in ["out_proj.weight", "out_proj.bias"] {
            loader.scale_rows(name, |_| self.recurrence_out);
        }
    }

    fn scale_mlp<S: Scalar>(&self, loader: &mut Loader<'_, S>) {
        for (name, factor) in [("gate_proj", self.mlp[0]), ("down_proj", self.mlp[1])] {
            loader.scale_rows(&format!("{name}.weight"), |_| factor);
            loader.scale_rows(&format!("{name}.bias"), |_| factor);
        }
    }
}

/// A list of `COUNT` numbers; all 1 if the field is absent.
fn numbers<const COUNT: usize>(fields: &Fields, name: &str) -> Result<[f64; COUNT], FamilyError> {
    let Some(values) = fields.list(name)? else { return Ok([1.0; COUNT]) };
    let number = |value: &JsonValue| match value {
        JsonValue::Number(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    };
    let found: Option<Vec<f64>> = values.iter().map(number).collect();
    let list_error =
        || fields.error(name, format!("a list of {} values", values.len()), format!("{COUNT} finite numbers"));
    found.and_then(|found| found.try_into().ok()).ok_or_else(list_error)
}
