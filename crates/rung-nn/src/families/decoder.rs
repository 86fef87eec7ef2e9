//! The parts that most families share: attention, the gated network, and the frame of a decoder.

use rung_engine::{Role, Scalar};
use rung_theory::stack::{Layer, Mixer};

use super::loader::rows;
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::mixer::attention::{HeadsConfig, Visibility};
use crate::mixer::head_options::{HeadNorm, HeadOptions};
use crate::mixer::softmax::Softmax;
use crate::mixer::window::Window;
use crate::model::{Activation, Branch, Dense, Embedding, FeedForward, LayerParts, ModelParts, Norm};
use crate::parts::Linear;
use crate::position::Rotation;

/// Norms on queries and keys, `q_norm` and `k_norm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKeyNorm {
    /// None.
    None,
    /// Each head by itself.
    EachHead,
    /// Each head by itself, with weights that are stored as their distance from one.
    EachHeadBeyondOne,
    /// All heads together.
    AllHeads,
}

/// What a family's attention has besides its heads.
#[derive(Clone)]
pub struct AttentionParts {
    /// Biases on queries, keys and values.
    pub bias: bool,
    /// A bias on the output.
    pub output_bias: bool,
    /// Norms on queries and keys.
    pub norm: QueryKeyNorm,
    /// Added to the norms' means of squares.
    pub epsilon: f64,
    /// How queries and keys turn.
    pub rotation: Option<Rotation>,
    /// Whether a GGUF file of the family has the two channels of a pair side by side.
    pub pairs_side_by_side: bool,
    /// Factor on scores, if not the root of the key width.
    pub scale: Option<f64>,
    /// Cap on scores.
    pub score_cap: Option<f64>,
    /// `sinks`: a score that reads nothing, for each head.
    pub sinks: bool,
    /// `q_proj` has for every head first its query, then the gate of what it reads.
    pub gated: bool,
    /// Names of the norms on queries and keys, and of the output projection.
    pub names: [&'static str; 3],
}

impl AttentionParts {
    /// Heads that turn, or do not, and nothing else.
    pub fn plain(rotation: impl Into<Option<Rotation>>) -> Self {
        Self {
            bias: false,
            output_bias: false,
            norm: QueryKeyNorm::None,
            epsilon: 0.0,
            rotation: rotation.into(),
            pairs_side_by_side: false,
            scale: None,
            score_cap: None,
            sinks: false,
            gated: false,
            names: ["q_norm", "k_norm", "o_proj"],
        }
    }
}

/// The attention mixer of a layer of the plan.
///
/// # Errors
/// It is another mixer, or a part of a layer.
pub fn attention_of<'a, S: Scalar>(loader: &Loader<'_, S>, layer: &'a Layer) -> Result<&'a Mixer, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if ["full", "window"].contains(&mixer.name()) && !layer.shares_cache => Ok(mixer),
        _ => Err(loader.fields.wrong("layer_types", "a layer of another kind", "full and sliding attention")),
    }
}

/// Reads `q_proj`, `k_proj`, `v_proj` and `o_proj` and what goes with them.
///
/// # Errors
/// A tensor is missing or of another shape, or sizes do not fit each other.
pub fn attention<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    parts: AttentionParts,
) -> Result<Builtin, FamilyError> {
    let config = HeadsConfig::resolve(mixer)?;
    let HeadsConfig { heads, kv_heads, key, value, .. } = config;
    let AttentionParts { bias, norm, epsilon, names: [query_norm, key_norm, output_name], .. } = parts;
    let side_by_side = parts.pairs_side_by_side && loader.is_gguf();
    let (query, gate) = if parts.gated {
        let (query, gate) = gated_queries(loader, width, [heads, key], bias)?;
        (query, Some(gate))
    } else {
        (loader.role(Role::Query).rotary_linear("q_proj", width, [heads, key], bias, side_by_side)?, None)
    };
    let keys = loader.role(Role::Key).rotary_linear("k_proj", width, [kv_heads, key], bias, side_by_side)?;
    let values = loader.role(Role::Value).linear("v_proj", width, kv_heads * value, bias)?;
    let output = loader.role(Role::Output).linear(output_name, heads * value, width, parts.output_bias)?;
    let mut head_norm = |name: &str, heads: usize| -> Result<Option<HeadNorm>, FamilyError> {
        let over_all_heads = norm == QueryKeyNorm::AllHeads;
        let weight = match norm {
            QueryKeyNorm::None => return Ok(None),
            QueryKeyNorm::EachHead => loader.tensor(&format!("{name}.weight"), &[key])?,
            QueryKeyNorm::EachHeadBeyondOne => loader.gain_beyond_one(name, key)?,
            QueryKeyNorm::AllHeads => loader.tensor(&format!("{name}.weight"), &[heads * key])?,
        };
        Ok(Some(HeadNorm { weight, epsilon, over_all_heads }))
    };
    let options = HeadOptions {
        scale: parts.scale,
        query_norm: head_norm(query_norm, heads)?,
        key_norm: head_norm(key_norm, kv_heads)?,
        score_cap: parts.score_cap,
        sinks: if parts.sinks { Some(loader.tensor("sinks", &[heads])?) } else { None },
        gate,
    };
    let linears = [query, keys, output];
    Ok(match mixer.number("size") {
        Some(size) => {
            let reach = Visibility::Window { size: size as usize, sinks: 0 };
            Builtin::Window(Window::of_heads(config.assemble(reach, linears, Some(values), parts.rotation, options)))
        }
        None => Builtin::Softmax(Softmax::of_heads(config.assemble(
            Visibility::Past,
            linears,
            Some(values),
            parts.rotation,
            options,
        ))),
    })
}

/// Queries and gates out of one projection, in which the gate of a head follows its query.
fn gated_queries<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    [heads, key]: [usize; 2],
    bias: bool,
) -> Result<(Linear, Linear), FamilyError> {
    let total = 2 * heads * key;
    let weight = loader.values("q_proj.weight", &[total, width])?;
    let bias = if bias { Some(loader.values("q_proj.bias", &[total])?) } else { None };
    let mut half = |name: &str, role: Role, half: usize| {
        let wanted = || (0..heads * key).map(|at| at / key * 2 * key + half * key + at % key);
        let linear = loader.role(role).add_linear(name, width, rows(&weight, width, wanted()));
        let bias =
            bias.as_ref().map(|bias| loader.add(&format!("{name}.bias"), &[heads * key], rows(bias, 1, wanted())));
        Linear { bias, ..linear }
    };
    Ok((half("q_proj", Role::Query, 0), half("g_proj", Role::Gate, 1)))
}

/// Reads `gate_proj`, `up_proj` and `down_proj`: all of a dense channel mixer.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn gated_network<S: Scalar>(
    loader: &mut Loader<'_, S>,
    [width, hidden]: [usize; 2],
    bias: bool,
    activation: Activation,
) -> Result<Dense, FamilyError> {
    Ok(Dense {
        gate: Some(loader.linear("gate_proj", width, hidden, bias)?),
        up: loader.linear("up_proj", width, hidden, bias)?,
        down: loader.role(Role::Output).linear("down_proj", hidden, width, bias)?,
        activation,
    })
}

/// A gated network without biases whose gate, other half and way back were taken out of larger tensors.
pub fn gated_network_of<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    [width, hidden]: [usize; 2],
    [gate, up, down]: [&[S]; 3],
    activation: Activation,
) -> Dense {
    let mut linear = |role: Role, part: &str, shape: [usize; 2], values: &[S]| Linear {
        weight: loader.role(role).add(&format!("{name}{part}.weight"), &shape, values.to_vec()),
        bias: None,
    };
    Dense {
        gate: Some(linear(Role::Other, "gate_proj", [hidden, width], gate)),
        up: linear(Role::Other, "up_proj", [hidden, width], up),
        down: linear(Role::Output, "down_proj", [width, hidden], down),
        activation,
    }
}

/// A layer of Llama's shape: `input_layernorm`, `self_attn`, `post_attention_layernorm`, and a channel mixer that is read under `mlp`.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn pre_norm_layer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    index: usize,
    mixer: &Mixer,
    (width, epsilon): (usize, f64),
    parts: AttentionParts,
    channel: impl FnOnce(&mut Loader<'_, S>) -> Result<FeedForward, FamilyError>,
) -> Result<LayerParts<Builtin>, FamilyError> {
    loader.within(&format!("model.layers.{index}"), |loader| {
        let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
        let mixer = loader.within("self_attn", |loader| attention(loader, mixer, width, parts))?;
        let channel_norm = loader.rms_norm("post_attention_layernorm", width, epsilon)?;
        let channel = loader.within("mlp", channel)?;
        Ok(LayerParts { mixers: (Branch::of(norm), vec![mixer]), channel: Some((Branch::of(channel_norm), channel)) })
    })
}

/// The activation that a config names under `hidden_act` or `hidden_activation`.
///
/// # Errors
/// It is not known.
pub fn activation<S>(loader: &Loader<'_, S>, default: &str) -> Result<Activation, FamilyError> {
    let fields = loader.fields;
    let name = match fields.text("hidden_activation")? {
        Some(name) => name,
        None => fields.text("hidden_act")?.unwrap_or(default),
    };
    Ok(match name {
        "silu" | "swish" => Activation::Silu,
        "gelu_pytorch_tanh" | "gelu_new" => Activation::GeluTanh,
        "gelu" => Activation::GeluExact,
        "relu" => Activation::Relu,
        "relu2" => Activation::ReluSquared,
        other => {
            let known = "silu, gelu_pytorch_tanh, gelu, relu or relu2";
            return Err(fields.wrong("hidden_act", format!("`{other}`"), known));
        }
    })
}

/// Everything around the layers.
pub struct OuterParts {
    /// Prefix of the embeddings and the last norm, `model.` mostly; the head stands outside.
    pub prefix: &'static str,
    /// The embeddings' name after the prefix.
    pub embedding: &'static str,
    /// The last norm's name after the prefix.
    pub norm: &'static str,
    /// Factor on embeddings.
    pub embedding_scale: Option<f64>,
    /// The last norm's weight is stored as its distance from one.
    pub norm_beyond_one: bool,
    /// Added to the last norm's mean of squares.
    pub epsilon: f64,
    /// Factor on the logits, folded into the last norm.
    pub logit_scale: f64,
    /// Cap on the logits.
    pub logit_cap: Option<f64>,
    /// Whether the embeddings are the head where the config does not say.
    pub tied_by_default: bool,
}

impl OuterParts {
    /// Embeddings, an RMS norm and a head.
    pub fn plain(epsilon: f64) -> Self {
        Self {
            prefix: "model",
            embedding: "embed_tokens",
            norm: "norm",
            embedding_scale: None,
            norm_beyond_one: false,
            epsilon,
            logit_scale: 1.0,
            logit_cap: None,
            tied_by_default: false,
        }
    }

    /// Reads the embeddings, the last norm and `lm_head` (or none of its own, if `tie_word_embeddings`) and puts the layers between them.
    ///
    /// # Errors
    /// A tensor is missing or of another shape.
    pub fn assemble_model<S: Scalar>(
        &self,
        loader: &mut Loader<'_, S>,
        layers: Vec<LayerParts<Builtin>>,
    ) -> Result<ModelParts<Builtin>, FamilyError> {
        let fields = loader.fields;
        let (width, vocabulary) = (fields.required_size("hidden_size")?, fields.required_size("vocab_size")?);
        let table = loader.within(self.prefix, |loader| {
            let values = loader.values(&format!("{}.weight", self.embedding), &[vocabulary, width])?;
            Ok::<_, FamilyError>(loader.role(Role::Embedding).add("embed_tokens.weight", &[vocabulary, width], values))
        })?;
        let gain = loader.within(self.prefix, |loader| {
            let mut values = loader.values(&format!("{}.weight", self.norm), &[width])?;
            let beyond = if self.norm_beyond_one && !loader.is_gguf() { S::ONE } else { S::ZERO };
            for x in &mut values {
                *x = (*x + beyond) * S::from_f64(self.logit_scale);
            }
            Ok::<_, FamilyError>(loader.role(Role::StreamNorm).add("norm.weight", &[width], values))
        })?;
        let tied = if loader.is_gguf() {
            !loader.has("lm_head.weight")
        } else {
            fields.flag("tie_word_embeddings", self.tied_by_default)?
        };
        let unembedding = if tied {
            loader.ignore("lm_head.weight");
            table
        } else {
            loader.tensor("lm_head.weight", &[vocabulary, width])?
        };
        Ok(ModelParts {
            width,
            classes: vocabulary,
            embedding: Embedding::of_table(table, vocabulary, self.embedding_scale),
            layers,
            sources: Vec::new(),
            norm: Norm::of(Some(gain), None, self.epsilon),
            unembedding,
            score_cap: self.logit_cap,
        })
    }
}
