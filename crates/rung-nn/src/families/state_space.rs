//! Mixers of state-space families, read from their tensors: Mamba and Mamba-2.
//!
//! Their names are the same in all families: `in_proj`, `conv1d`, `x_proj`, `dt_proj`, `dt_bias`, `A_log`, `D`, `norm`, `out_proj`. GGUF files store
//! `-exp(A_log)` and one norm for each group.

use rung_audit::json::JsonValue;
use rung_engine::{Parameter, Role, Scalar};
use rung_theory::stack::{Layer, Mixer};

use super::decoder::OuterParts;
use super::{FamilyError, Fields, Loader};
use crate::mixer::mamba1::{Mamba1Config, Mamba1Parts, SelectNorms};
use crate::mixer::mamba2::{GatedNorm, Mamba2, Mamba2Config, Mamba2Parts};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Branch, LayerParts, ModelParts};
use crate::parts::NormGain;

/// Norms of Mamba's step, B and C.
#[derive(Clone, Copy, Debug)]
pub enum StepNorms {
    /// None.
    None,
    /// Without weights, with this epsilon.
    Weightless(f64),
    /// `dt_layernorm`, `b_layernorm`, `c_layernorm`, with this epsilon.
    Weighted(f64),
}

/// What a family's Mamba has besides its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Mamba1Options {
    /// Biases on `in_proj` and `out_proj`.
    pub bias: bool,
    /// A bias on the convolution.
    pub convolution_bias: bool,
    /// Norms of the step, B and C.
    pub norms: StepNorms,
}

/// What a family's Mamba-2 has besides its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Options {
    /// A bias on `in_proj`.
    pub bias: bool,
    /// A bias on `out_proj`.
    pub output_bias: bool,
    /// A bias on the convolution.
    pub convolution_bias: bool,
    /// The norm beside the gate: its epsilon, and whether the gate comes after it.
    pub norm: Option<(f64, bool)>,
    /// Steps are kept within it.
    pub step_range: Option<[f64; 2]>,
}

/// The only mixer of a layer, which must have this name in a plan.
///
/// # Errors
/// It is another mixer.
pub fn mixer_of<'a, S: Scalar>(
    loader: &Loader<'_, S>,
    layer: &'a Layer,
    name: &'static str,
) -> Result<&'a Mixer, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == name => Ok(mixer),
        _ => Err(loader.fields.wrong("layer_types", "a layer of another kind", name)),
    }
}

/// A network of one kind of state-space layer and nothing else, as Mamba and Mamba-2 store it: `backbone.layers.0.norm`,
/// `backbone.layers.0.mixer` and so on.
///
/// # Errors
/// A layer has another mixer, or a tensor is missing or of another shape.
pub fn backbone<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &'static str,
    (width, epsilon): (usize, f64),
    tied_by_default: bool,
    read_mixer: impl Fn(&mut Loader<'_, S>, &Mixer) -> Result<Builtin, FamilyError>,
) -> Result<ModelParts<Builtin>, FamilyError> {
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = mixer_of(loader, layer, name)?;
        layers.push(loader.within(&format!("backbone.layers.{index}"), |loader| {
            let norm = loader.rms_norm("norm", width, epsilon)?;
            let mixer = loader.within("mixer", |loader| read_mixer(loader, mixer))?;
            Ok::<_, FamilyError>(LayerParts { mixers: (Branch::of(norm), vec![mixer]), channel: None })
        })?);
    }
    let plain = OuterParts::plain(epsilon);
    let outer = OuterParts { prefix: "backbone", embedding: "embeddings", norm: "norm_f", tied_by_default, ..plain };
    outer.assemble_model(loader, layers)
}

/// The epsilon of all norms of such a network.
///
/// # Errors
/// A field is not a positive number.
pub fn backbone_epsilon(fields: &Fields) -> Result<f64, FamilyError> {
    match fields.positive("layer_norm_epsilon")? {
        Some(epsilon) => Ok(epsilon),
        None => Ok(fields.positive("rms_norm_eps")?.unwrap_or(1e-5)),
    }
}

/// Reads a Mamba mixer.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn mamba1<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: Mamba1Options,
) -> Result<Builtin, FamilyError> {
    let config = Mamba1Config::resolve(mixer)?;
    let Mamba1Config { inner, state, taps, rank } = config;
    let input = loader.linear("in_proj", width, 2 * inner, options.bias)?;
    let convolution = convolution(loader, inner, taps, options.convolution_bias)?;
    let select = loader.linear("x_proj", inner, rank + 2 * state, false)?;
    let norms = match options.norms {
        StepNorms::None => None,
        StepNorms::Weightless(epsilon) => Some(SelectNorms { gains: [None; 3], epsilon }),
        StepNorms::Weighted(epsilon) => {
            let mut gain = |name: &str, width: usize| loader.tensor(&format!("{name}.weight"), &[width]).map(Some);
            let gains = [gain("dt_layernorm", rank)?, gain("b_layernorm", state)?, gain("c_layernorm", state)?];
            Some(SelectNorms { gains, epsilon })
        }
    };
    Ok(Builtin::Mamba1(config.assemble(Mamba1Parts {
        input,
        convolution,
        select,
        step: loader.linear("dt_proj", rank, inner, true)?,
        log_rate: log_rate(loader, &[inner, state])?,
        skip: loader.tensor("D", &[inner])?,
        output: loader.role(Role::Output).linear("out_proj", inner, width, options.bias)?,
        norms,
    })))
}

/// Reads a Mamba-2 mixer.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn mamba2<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: Mamba2Options,
) -> Result<Builtin, FamilyError> {
    mamba2_mixer(loader, mixer, width, options).map(Builtin::Mamba2)
}

/// The same as the mixer that it is.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn mamba2_mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: Mamba2Options,
) -> Result<Mamba2, FamilyError> {
    let config = Mamba2Config::resolve(mixer)?;
    let Mamba2Config { heads, groups, taps, .. } = config;
    let (inner, channels) = (config.inner(), config.channels());
    let input = loader.linear("in_proj", width, inner + channels + heads, options.bias)?;
    let convolution = convolution(loader, channels, taps, options.convolution_bias)?;
    let norm = match options.norm {
        None => None,
        Some((epsilon, before_gate)) => {
            let shape: &[usize] = if loader.is_gguf() { &[groups, inner / groups] } else { &[inner] };
            let values = loader.values("norm.weight", shape)?;
            let weight = loader.add("norm.weight", &[inner], values);
            Some(GatedNorm { gain: NormGain { weight }, epsilon, before_gate })
        }
    };
    Ok(config.assemble(Mamba2Parts {
        input,
        convolution,
        step_bias: loader.tensor("dt_bias", &[heads])?,
        log_rate: log_rate(loader, &[heads])?,
        skip: loader.tensor("D", &[heads])?,
        norm,
        output: loader.role(Role::Output).linear("out_proj", inner, width, options.output_bias)?,
        step_range: options.step_range,
    }))
}

/// Weight and bias of `conv1d`.
fn convolution<S: Scalar>(
    loader: &mut Loader<'_, S>,
    channels: usize,
    taps: usize,
    bias: bool,
) -> Result<(Parameter, Option<Parameter>), FamilyError> {
    let weight = loader.tensor("conv1d.weight", &[channels, 1, taps])?;
    let bias = if bias { Some(loader.tensor("conv1d.bias", &[channels])?) } else { None };
    Ok((weight, bias))
}

/// `A_log`; GGUF files have `-exp` of it.
fn log_rate<S: Scalar>(loader: &mut Loader<'_, S>, shape: &[usize]) -> Result<Parameter, FamilyError> {
    let mut values = loader.values("A_log", shape)?;
    if loader.is_gguf() {
        if let Some(rate) = values.iter().find(|rate| rate.to_f64() >= 0.0) {
            return Err(loader.fields.wrong("A", rate.to_f64().to_string(), "rates below 0"));
        }
        for x in &mut values {
            *x = S::from_f64((-x.to_f64()).ln());
        }
    }
    Ok(loader.add("A_log", shape, values))
}

/// The range that steps are kept in, if it is not all that a step can be: a list of two numbers, of which the second may be infinite.
/// Transformers 5 writes that one as an object.
///
/// # Errors
/// It is something else.
pub fn step_range(fields: &Fields, name: &str) -> Result<Option<[f64; 2]>, FamilyError> {
    let Some(ends) = fields.list(name)? else { return Ok(None) };
    let wrong = |found: String| fields.wrong(name, found, "two numbers, of which the second may be Infinity");
    let number = |value: &JsonValue| {
        let inner = value.get("__float__").unwrap_or(value);
        let text = match inner {
            JsonValue::Number(text) | JsonValue::Text(text) => text.as_str(),
            _ => return Err(wrong(value.describe())),
        };
        let parsed = if text == "Infinity" { Ok(f64::INFINITY) } else { text.parse() };
        parsed.ok().filter(|number: &f64| !number.is_nan()).ok_or_else(|| wrong(text.to_owned()))
    };
    let [low, high] = ends else { return Err(wrong(format!("{} values", ends.len()))) };
    let (low, high) = (number(low)?, number(high)?);
    if low > high || low == f64::INFINITY {
        return Err(wrong(format!("{low} to {high}")));
    }
    // A step is never below zero.
    Ok((low > 0.0 || high.is_finite()).then_some([low, high]))
}

/// Refuses another activation than the one that state-space mixers are built with.
///
/// # Errors
/// The field names another.
pub fn only_silu(fields: &Fields, name: &str) -> Result<(), FamilyError> {
    match fields.text(name)? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(fields.wrong(name, format!("`{other}`"), "silu")),
    }
}
