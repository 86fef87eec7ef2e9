//! Falcon-H1: attention and Mamba-2 side by side in every layer, then a gated network, with factors nearly everywhere.
//!
//! # Classes
//! `FalconH1ForCausalLM`. All factors are folded into weights and biases.
//!
//! # Unusual options
//! `mamba_rms_norm` with `mamba_norm_before_gate`, `mamba_d_ssm`, `head_dim`, `projectors_bias`, other biases, `time_step_limit`, tied embeddings.
//!
//! # GGUF
//! `falcon-h1`: factors are folded into the weights already, and a norm comes after the gate.

use rung_audit::json::JsonValue;
use rung_engine::Scalar;
use rung_theory::stack::{Layer, Mixer};

use super::decoder::{self, AttentionParts, OuterParts};
use super::state_space::Mamba2Options;
use super::{FamilyError, Fields, Loader, bamba, state_space};
use crate::mixer::Builtin;
use crate::mixer::mamba2::Mamba2Config;
use crate::mixer::MixerConfig as _;
use crate::model::{Branch, FeedForward, LayerParts, ModelParts, names};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["falcon_h1"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["falcon-h1"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[("pre_ff_layernorm", "ffn_norm.")];

/// The base of rotations in the class.
const BASE: f64 = 10_000.0;

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    state_space::only_silu(fields, "hidden_act")?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let (bias, mlp_bias) = (fields.flag("attention_bias", false)?, fields.flag("mlp_bias", false)?);
    let activation = decoder::activation(loader, "silu")?;
    let (normed, norm_before_gate) = if loader.is_gguf() {
        (loader.has("model.layers.0.mamba.norm.weight"), false)
    } else {
        (fields.flag("mamba_rms_norm", false)?, fields.flag("mamba_norm_before_gate", true)?)
    };
    let options = Mamba2Options {
        output_bias: fields.flag("projectors_bias", false)?,
        norm: normed.then_some((epsilon, norm_before_gate)),
        ..bamba::mamba2_options(loader, epsilon)?
    };
    let factors = Factors::read(fields)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let (attention, recurrence) = parallel_mixers(fields, layer)?;
        let plain = AttentionParts::plain(loader.rotation(attention, BASE)?);
        let parts = AttentionParts { bias, output_bias: bias, ..plain };
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let attention = loader.own_part(&names::mixer_in_layer(0, 2), |loader| {
                loader.within("self_attn", |loader| {
                    let heads = decoder::attention(loader, attention, width, parts)?;
                    factors.fold_attention(loader);
                    Ok::<_, FamilyError>(heads)
                })
            })?;
            let recurrence = loader.own_part(&names::mixer_in_layer(1, 2), |loader| {
                loader.within("mamba", |loader| {
                    let mixer = state_space::mamba2(loader, recurrence, width, options)?;
                    factors.fold_recurrence(loader, &Mamba2Config::resolve(recurrence)?);
                    Ok::<_, FamilyError>(mixer)
                })
            })?;
            let channel_norm = loader.rms_norm("pre_ff_layernorm", width, epsilon)?;
            let network = loader.within("feed_forward", |loader| {
                let network = decoder::gated_network(loader, [width, hidden], mlp_bias, activation)?;
                factors.fold_network(loader);
                Ok::<_, FamilyError>(network)
            })?;
            Ok::<_, FamilyError>(LayerParts {
                mixers: (Branch::of(norm), vec![attention, recurrence]),
                channel: Some((Branch::of(channel_norm), FeedForward::Dense(network))),
            })
        })?);
    }
    let frame = OuterParts {
        norm: "final_layernorm",
        embedding_scale: fields.number("embedding_multiplier")?,
        logit_scale: fields.number("lm_head_multiplier")?.unwrap_or(1.0),
        ..OuterParts::plain(epsilon)
    };
    frame.assemble_model(loader, layers)
}

/// The two mixers of a layer.
fn parallel_mixers<'a>(fields: &Fields, layer: &'a Layer) -> Result<(&'a Mixer, &'a Mixer), FamilyError> {
    match &layer.mixers[..] {
        [attention, recurrence] if attention.name() == "full" && recurrence.name() == "mamba2" => {
            Ok((attention, recurrence))
        }
        _ => Err(fields.wrong("model_type", "a layer of another kind", "full attention beside Mamba-2")),
    }
}

/// Factors of the config on activations.
struct Factors {
    attention_in: f64,
    attention_out: f64,
    key: f64,
    recurrence_in: f64,
    recurrence_out: f64,
    /// Of the gate, x, B, C and the step.
    projected: [f64; 5],
    /// Of the gate, and of what comes out.
    network: [f64; 2],
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
            projected: numbers(fields, "ssm_multipliers")?,
            network: numbers(fields, "mlp_multipliers")?,
        })
    }

    fn fold_attention<S: Scalar>(&self, loader: &mut Loader<'_, S>) {
        for name in ["q_proj", "k_proj", "v_proj"] {
            let own = if name == "k_proj" { self.key } else { 1.0 };
            loader.fold(&format!("{name}.weight"), |_| self.attention_in * own);
            loader.fold(&format!("{name}.bias"), |_| own);
        }
        for name in ["o_proj.weight", "o_proj.bias"] {
            loader.fold(name, |_| self.attention_out);
        }
    }

    fn fold_recurrence<S: Scalar>(&self, loader: &mut Loader<'_, S>, config: &Mamba2Config) {
        let (inner, shared) = (config.inner(), config.groups * config.state);
        let ends = [inner, 2 * inner, 2 * inner + shared, 2 * inner + 2 * shared, usize::MAX];
        let projected = |row: usize| self.projected[ends.iter().position(|end| row < *end).unwrap_or(4)];
        loader.fold("in_proj.weight", |row| self.recurrence_in * projected(row));
        loader.fold("in_proj.bias", projected);
        for name in ["out_proj.weight", "out_proj.bias"] {
            loader.fold(name, |_| self.recurrence_out);
        }
    }

    fn fold_network<S: Scalar>(&self, loader: &mut Loader<'_, S>) {
        for (name, factor) in [("gate_proj", self.network[0]), ("down_proj", self.network[1])] {
            loader.fold(&format!("{name}.weight"), |_| factor);
            loader.fold(&format!("{name}.bias"), |_| factor);
        }
    }
}

/// A list of so many numbers; ones if there is none.
fn numbers<const COUNT: usize>(fields: &Fields, name: &str) -> Result<[f64; COUNT], FamilyError> {
    let Some(values) = fields.list(name)? else { return Ok([1.0; COUNT]) };
    let number = |value: &JsonValue| match value {
        JsonValue::Number(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    };
    let found: Option<Vec<f64>> = values.iter().map(number).collect();
    let expected = || fields.wrong(name, format!("a list of {} values", values.len()), format!("{COUNT} finite numbers"));
    found.and_then(|found| found.try_into().ok()).ok_or_else(expected)
}
