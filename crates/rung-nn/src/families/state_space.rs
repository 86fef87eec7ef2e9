//! Mamba and Mamba-2 mixers of checkpoints.
//!
//! Tensor names are the same in all families: `in_proj`, `conv1d`, `x_proj`, `dt_proj`, `dt_bias`, `A_log`, `D`, `norm`, `out_proj`. GGUF files store
//! `-exp(A_log)` and one norm for each group.

use rung_audit::json::JsonValue;
use rung_engine::{Parameter, Role, Scalar};
use rung_theory::stack::{Layer, Mixer};

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::{FamilyError, Fields, Loader};
use crate::mixer::mamba1::{Mamba1Config, Mamba1Weights, XProjNorms};
use crate::mixer::mamba2::{GatedNorm, Mamba2, Mamba2Config, Mamba2Weights};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{LoadedLayer, LoadedModel, ResidualBranch};
use crate::submodules::NormGain;

/// RMS norms of the outputs of Mamba's `x_proj`: the low-rank dt, B and C.
#[derive(Clone, Copy, Debug)]
pub enum XProjNormOptions {
    /// No norms.
    None,
    /// Without weights, with this epsilon.
    Weightless(f64),
    /// `dt_layernorm`, `b_layernorm`, `c_layernorm`, with this epsilon.
    Weighted(f64),
}

/// The options of a family's Mamba.
#[derive(Clone, Copy, Debug)]
pub struct Mamba1Options {
    /// Biases on `in_proj` and `out_proj`.
    pub bias: bool,
    /// A bias on the convolution.
    pub convolution_bias: bool,
    /// Norms of the low-rank dt, B and C.
    pub norms: XProjNormOptions,
}

/// The options of Mamba-2's gated norm.
#[derive(Clone, Copy, Debug)]
pub struct GatedNormOptions {
    /// Added to the mean square.
    pub epsilon: f64,
    /// Whether the norm is applied before the gate.
    pub before_gate: bool,
}

/// The options of a family's Mamba-2.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Options {
    /// A bias on `in_proj`.
    pub bias: bool,
    /// A bias on `out_proj`.
    pub output_bias: bool,
    /// A bias on the convolution.
    pub convolution_bias: bool,
    /// The gated norm before `out_proj`; `None` for a gate alone.
    pub norm: Option<GatedNormOptions>,
    /// Range that dt is clamped to after the softplus: `time_step_limit`, `dt_limit` in mamba_ssm; `None` for no limit.
    pub dt_limit: Option<[f64; 2]>,
}

/// The only mixer of a layer, which must have this name in a plan.
///
/// # Errors
/// The layer has another mixer.
pub fn only_mixer<'a, S: Scalar>(
    loader: &Loader<'_, S>,
    layer: &'a Layer,
    name: &'static str,
) -> Result<&'a Mixer, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == name => Ok(mixer),
        _ => Err(loader.fields.error("layer_types", "another mixer", name)),
    }
}

/// A model of state-space layers alone, as Mamba and Mamba-2 store it: `backbone.layers.0.norm`,
/// `backbone.layers.0.mixer` and so on.
///
/// # Errors
/// A layer has another mixer, or a tensor is missing or has another shape.
pub fn read_backbone_model<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &'static str,
    (width, epsilon): (usize, f64),
    tied_by_default: bool,
    read_mixer: impl Fn(&mut Loader<'_, S>, &Mixer) -> Result<Builtin, FamilyError>,
) -> Result<LoadedModel<Builtin>, FamilyError> {
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = only_mixer(loader, layer, name)?;
        layers.push(loader.with_prefix(&format!("backbone.layers.{index}"), |loader| {
            let norm = loader.rms_norm("norm", width, epsilon)?;
            let mixer = loader.with_prefix("mixer", |loader| read_mixer(loader, mixer))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: ResidualBranch::with_norm(norm),
                mixers: vec![mixer],
                feed_forward: None,
            })
        })?);
    }
    let defaults = DecoderOptions::new(epsilon);
    let decoder_options =
        DecoderOptions { prefix: "backbone", embedding: "embeddings", norm: "norm_f", tied_by_default, ..defaults };
    decoder_options.assemble_model(loader, layers)
}

/// The epsilon of all norms of a model of [`read_backbone_model`].
///
/// # Errors
/// A field is not a positive number.
pub fn backbone_epsilon(fields: &Fields) -> Result<f64, FamilyError> {
    match fields.positive("layer_norm_epsilon")? {
        Some(epsilon) => Ok(epsilon),
        None => Ok(fields.positive("rms_norm_eps")?.unwrap_or(1e-5)),
    }
}

/// Reads the mixer of a layer that has either Mamba-2, under `mamba`, or attention, under `self_attn`.
///
/// # Errors
/// The layer has another mixer, or a tensor is missing or has another shape.
pub fn read_mamba2_or_attention<S: Scalar>(
    loader: &mut Loader<'_, S>,
    layer: &Layer,
    width: usize,
    mamba2_options: Mamba2Options,
    attention_options: impl FnOnce(&mut Loader<'_, S>, &Mixer) -> Result<AttentionOptions, FamilyError>,
) -> Result<Builtin, FamilyError> {
    if layer.mixers.iter().any(|mixer| mixer.name() == Mamba2Config::NAME) {
        let mixer = only_mixer(loader, layer, Mamba2Config::NAME)?;
        return loader.with_prefix("mamba", |loader| read_mamba2(loader, mixer, width, mamba2_options));
    }
    let mixer = decoder::attention_mixer(loader, layer)?;
    let attention_options = attention_options(loader, mixer)?;
    loader.with_prefix("self_attn", |loader| decoder::read_attention(loader, mixer, width, attention_options))
}

/// Reads a Mamba mixer.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_mamba1<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: Mamba1Options,
) -> Result<Builtin, FamilyError> {
    let config = Mamba1Config::resolve(mixer)?;
    let Mamba1Config { inner_dim, state, kernel_size, rank } = config;
    let input = loader.linear("in_proj", width, 2 * inner_dim, options.bias)?;
    let convolution = read_convolution(loader, inner_dim, kernel_size, options.convolution_bias)?;
    let x_proj = loader.linear("x_proj", inner_dim, rank + 2 * state, false)?;
    let norms = match options.norms {
        XProjNormOptions::None => None,
        XProjNormOptions::Weightless(epsilon) => Some(XProjNorms { gains: [None; 3], epsilon }),
        XProjNormOptions::Weighted(epsilon) => {
            let mut gain = |name: &str, width: usize| loader.tensor(&format!("{name}.weight"), &[width]).map(Some);
            let gains = [gain("dt_layernorm", rank)?, gain("b_layernorm", state)?, gain("c_layernorm", state)?];
            Some(XProjNorms { gains, epsilon })
        }
    };
    Ok(Builtin::Mamba1(config.assemble(Mamba1Weights {
        input,
        convolution,
        x_proj,
        dt_proj: loader.linear("dt_proj", rank, inner_dim, true)?,
        a_log: read_a_log(loader, &[inner_dim, state])?,
        skip: loader.tensor("D", &[inner_dim])?,
        output: loader.with_role(Role::Output).linear("out_proj", inner_dim, width, options.bias)?,
        norms,
    })))
}

/// Reads a Mamba-2 mixer.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_mamba2<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: Mamba2Options,
) -> Result<Builtin, FamilyError> {
    read_mamba2_mixer(loader, mixer, width, options).map(Builtin::Mamba2)
}

/// As [`read_mamba2`], as a `Mamba2` and not a [`Builtin`].
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_mamba2_mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: Mamba2Options,
) -> Result<Mamba2, FamilyError> {
    let config = Mamba2Config::resolve(mixer)?;
    let Mamba2Config { heads, groups, kernel_size, .. } = config;
    let (inner_dim, channels) = (config.inner_dim(), config.channels());
    let input = loader.linear("in_proj", width, inner_dim + channels + heads, options.bias)?;
    let convolution = read_convolution(loader, channels, kernel_size, options.convolution_bias)?;
    let norm = match options.norm {
        None => None,
        Some(GatedNormOptions { epsilon, before_gate }) => {
            let shape: &[usize] = if loader.is_gguf() { &[groups, inner_dim / groups] } else { &[inner_dim] };
            let values = loader.values("norm.weight", shape)?;
            let weight = loader.add("norm.weight", &[inner_dim], values);
            Some(GatedNorm { gain: NormGain { weight }, epsilon, before_gate })
        }
    };
    Ok(config.assemble(Mamba2Weights {
        input,
        convolution,
        dt_bias: loader.tensor("dt_bias", &[heads])?,
        a_log: read_a_log(loader, &[heads])?,
        skip: loader.tensor("D", &[heads])?,
        norm,
        output: loader.with_role(Role::Output).linear("out_proj", inner_dim, width, options.output_bias)?,
        dt_limit: options.dt_limit,
    }))
}

/// Weight and bias of `conv1d`.
fn read_convolution<S: Scalar>(
    loader: &mut Loader<'_, S>,
    channels: usize,
    kernel_size: usize,
    bias: bool,
) -> Result<(Parameter, Option<Parameter>), FamilyError> {
    let weight = loader.tensor("conv1d.weight", &[channels, 1, kernel_size])?;
    let bias = if bias { Some(loader.tensor("conv1d.bias", &[channels])?) } else { None };
    Ok((weight, bias))
}

/// `A_log` as a weight.
///
/// # Errors
/// As [`read_a_log_values`].
pub fn read_a_log<S: Scalar>(loader: &mut Loader<'_, S>, shape: &[usize]) -> Result<Parameter, FamilyError> {
    let values = read_a_log_values(loader, shape)?;
    Ok(loader.add("A_log", shape, values))
}

/// `A_log`; GGUF files have `-exp` of it.
///
/// # Errors
/// It is missing or has another shape, or an entry of A is not below zero.
pub fn read_a_log_values<S: Scalar>(loader: &mut Loader<'_, S>, shape: &[usize]) -> Result<Vec<S>, FamilyError> {
    let mut values = loader.values("A_log", shape)?;
    if loader.is_gguf() {
        if let Some(a) = values.iter().find(|a| a.to_f64() >= 0.0) {
            return Err(loader.fields.error("A", a.to_f64().to_string(), "numbers below 0"));
        }
        for x in &mut values {
            *x = S::from_f64((-x.to_f64()).ln());
        }
    }
    Ok(values)
}

/// The range that dt is clamped to, or `None` if it is unbounded: a list of two numbers, of which the second may be infinite. Transformers
/// 5 writes infinity as an object.
///
/// # Errors
/// The field is another value.
pub fn dt_limit(fields: &Fields, name: &str) -> Result<Option<[f64; 2]>, FamilyError> {
    let Some(ends) = fields.list(name)? else { return Ok(None) };
    let range_error = |found: String| fields.error(name, found, "two numbers, of which the second may be Infinity");
    let number = |value: &JsonValue| {
        let inner = value.get("__float__").unwrap_or(value);
        let text = match inner {
            JsonValue::Number(text) | JsonValue::String(text) => text.as_str(),
            _ => return Err(range_error(value.describe())),
        };
        let parsed = if text == "Infinity" { Ok(f64::INFINITY) } else { text.parse() };
        parsed.ok().filter(|number: &f64| !number.is_nan()).ok_or_else(|| range_error(text.to_owned()))
    };
    let [low, high] = ends else { return Err(range_error(format!("{} values", ends.len()))) };
    let (low, high) = (number(low)?, number(high)?);
    if low > high || low == f64::INFINITY {
        return Err(range_error(format!("{low} to {high}")));
    }
    // dt is never below zero after its softplus.
    Ok((low > 0.0 || high.is_finite()).then_some([low, high]))
}

/// Rejects activations other than SiLU, the only one that state-space mixers support.
///
/// # Errors
/// The field names another activation.
pub fn require_silu(fields: &Fields, name: &str) -> Result<(), FamilyError> {
    match fields.text(name)? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(fields.error(name, format!("`{other}`"), "silu")),
    }
}
