//! What most families share: attention, the gated MLP, embeddings, final norm and `lm_head`.

use rung_engine::{Role, Scalar};
use rung_theory::stack::{Layer, Mixer};

use super::loader::rows;
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::mixer::attention::{HeadsConfig, Visibility};
use crate::mixer::head_options::{HeadNorm, HeadOptions};
use crate::mixer::softmax::Softmax;
use crate::mixer::window::Window;
use crate::model::{Activation, Embedding, FeedForward, LoadedLayer, LoadedModel, Mlp, Norm, ResidualBranch};
use crate::position::Rotation;
use crate::submodules::Linear;

/// Norms on queries and keys, `q_norm` and `k_norm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKeyNorm {
    /// No norms.
    None,
    /// One norm over each head.
    EachHead,
    /// One norm over each head, whose gain is one plus the stored weight.
    EachHeadPlusOne,
    /// One norm over all heads together.
    AllHeads,
}

/// The options of a family's attention.
#[derive(Clone)]
pub struct AttentionOptions {
    /// Biases on queries, keys and values.
    pub bias: bool,
    /// A bias on the output.
    pub output_bias: bool,
    /// Norms on queries and keys.
    pub norm: QueryKeyNorm,
    /// Epsilon of the norms on queries and keys.
    pub epsilon: f64,
    /// Rotary positions.
    pub rotation: Option<Rotation>,
    /// Whether GGUF files of the family interleave the two channels of each rotary pair.
    pub interleaved_pairs: bool,
    /// Factor on attention scores; by default one over the square root of the key width.
    pub scale: Option<f64>,
    /// Soft cap on attention scores.
    pub score_cap: Option<f64>,
    /// Whether each head has an attention sink, a learned attention score without a value (`sinks`).
    pub sinks: bool,
    /// Whether `q_proj` has for every head its query and then the gate of its output.
    pub gated: bool,
    /// Names of the tensors: query norm, key norm, output projection.
    pub names: [&'static str; 3],
}

impl AttentionOptions {
    /// Attention with or without rotary positions and no other option.
    pub fn new(rotation: impl Into<Option<Rotation>>) -> Self {
        Self {
            bias: false,
            output_bias: false,
            norm: QueryKeyNorm::None,
            epsilon: 0.0,
            rotation: rotation.into(),
            interleaved_pairs: false,
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
/// The layer has another mixer, or shares its cache.
pub fn attention_mixer<'a, S: Scalar>(loader: &Loader<'_, S>, layer: &'a Layer) -> Result<&'a Mixer, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if ["full", "window"].contains(&mixer.name()) && !layer.shares_cache => Ok(mixer),
        _ => Err(loader.fields.error("layer_types", "another mixer", "full and sliding attention")),
    }
}

/// Reads `q_proj`, `k_proj`, `v_proj`, `o_proj` and the tensors of the options.
///
/// # Errors
/// A tensor is missing or has another shape, or sizes do not fit each other.
pub fn read_attention<S: Scalar>(
    loader: &mut Loader<'_, S>,
    mixer: &Mixer,
    width: usize,
    options: AttentionOptions,
) -> Result<Builtin, FamilyError> {
    let config = HeadsConfig::resolve(mixer)?;
    let HeadsConfig { heads, kv_heads, key_dim, value_dim, .. } = config;
    let AttentionOptions { bias, norm, epsilon, names: [query_norm, key_norm, output_name], .. } = options;
    let interleaved = options.interleaved_pairs && loader.is_gguf();
    let (query, gate) = if options.gated {
        let (query, gate) = gated_queries(loader, width, [heads, key_dim], bias)?;
        (query, Some(gate))
    } else {
        (loader.with_role(Role::Query).rotary_linear("q_proj", width, [heads, key_dim], bias, interleaved)?, None)
    };
    let keys = loader.with_role(Role::Key).rotary_linear("k_proj", width, [kv_heads, key_dim], bias, interleaved)?;
    let values = loader.with_role(Role::Value).linear("v_proj", width, kv_heads * value_dim, bias)?;
    let output = loader.with_role(Role::Output).linear(output_name, heads * value_dim, width, options.output_bias)?;
    let mut head_norm = |name: &str, heads: usize| -> Result<Option<HeadNorm>, FamilyError> {
        let over_all_heads = norm == QueryKeyNorm::AllHeads;
        let weight = match norm {
            QueryKeyNorm::None => return Ok(None),
            QueryKeyNorm::EachHead => loader.tensor(&format!("{name}.weight"), &[key_dim])?,
            QueryKeyNorm::EachHeadPlusOne => loader.norm_weight_plus_one(name, key_dim)?,
            QueryKeyNorm::AllHeads => loader.tensor(&format!("{name}.weight"), &[heads * key_dim])?,
        };
        Ok(Some(HeadNorm { weight, epsilon, over_all_heads }))
    };
    let head_options = HeadOptions {
        scale: options.scale,
        query_norm: head_norm(query_norm, heads)?,
        key_norm: head_norm(key_norm, kv_heads)?,
        score_cap: options.score_cap,
        sinks: if options.sinks { Some(loader.tensor("sinks", &[heads])?) } else { None },
        gate,
    };
    let linears = [query, keys, output];
    Ok(match mixer.number("size") {
        Some(size) => {
            let visibility = Visibility::Window { size: size as usize, sinks: 0 };
            let rotation = options.rotation;
            Builtin::Window(Window::from_heads(config.assemble(
                visibility,
                linears,
                Some(values),
                rotation,
                head_options,
            )))
        }
        None => Builtin::Softmax(Softmax::from_heads(config.assemble(
            Visibility::Past,
            linears,
            Some(values),
            options.rotation,
            head_options,
        ))),
    })
}

/// Splits a projection in which the gate of each head follows its query.
fn gated_queries<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    [heads, key_dim]: [usize; 2],
    bias: bool,
) -> Result<(Linear, Linear), FamilyError> {
    let total = 2 * heads * key_dim;
    let weight = loader.values("q_proj.weight", &[total, width])?;
    let bias = if bias { Some(loader.values("q_proj.bias", &[total])?) } else { None };
    let mut add_half = |name: &str, role: Role, half: usize| {
        let selected_rows =
            || (0..heads * key_dim).map(|row| row / key_dim * 2 * key_dim + half * key_dim + row % key_dim);
        let linear = loader.with_role(role).add_linear(name, width, rows(&weight, width, selected_rows()));
        let bias = bias
            .as_ref()
            .map(|bias| loader.add(&format!("{name}.bias"), &[heads * key_dim], rows(bias, 1, selected_rows())));
        Linear { bias, ..linear }
    };
    Ok((add_half("q_proj", Role::Query, 0), add_half("g_proj", Role::Gate, 1)))
}

/// Reads a gated MLP: `gate_proj`, `up_proj` and `down_proj`.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn read_gated_mlp<S: Scalar>(
    loader: &mut Loader<'_, S>,
    [width, hidden]: [usize; 2],
    bias: bool,
    activation: Activation,
) -> Result<Mlp, FamilyError> {
    Ok(Mlp {
        gate: Some(loader.linear("gate_proj", width, hidden, bias)?),
        up: loader.linear("up_proj", width, hidden, bias)?,
        down: loader.with_role(Role::Output).linear("down_proj", hidden, width, bias)?,
        activation,
    })
}

/// Adds a gated MLP without biases from its gate, up and down matrices, which were parts of larger tensors.
pub fn add_gated_mlp<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    [width, hidden]: [usize; 2],
    [gate, up, down]: [&[S]; 3],
    activation: Activation,
) -> Mlp {
    let mut linear = |role: Role, projection: &str, shape: [usize; 2], values: &[S]| Linear {
        weight: loader.with_role(role).add(&format!("{name}{projection}.weight"), &shape, values.to_vec()),
        bias: None,
    };
    Mlp {
        gate: Some(linear(Role::Other, "gate_proj", [hidden, width], gate)),
        up: linear(Role::Other, "up_proj", [hidden, width], up),
        down: linear(Role::Output, "down_proj", [width, hidden], down),
        activation,
    }
}

/// The layers as in Llama: `input_layernorm`, `self_attn`, `post_attention_layernorm`, and a feed-forward network under `mlp`.
/// `attention_options` adds to the defaults of each layer, which have its rotation; `rope_theta` is its base where the config has none.
///
/// # Errors
/// A layer is not attention alone, or a tensor is missing or has another shape.
pub fn read_pre_norm_layers<S: Scalar>(
    loader: &mut Loader<'_, S>,
    (width, epsilon): (usize, f64),
    rope_theta: f64,
    attention_options: impl Fn(AttentionOptions) -> AttentionOptions,
    read_feed_forward: impl Fn(&mut Loader<'_, S>) -> Result<FeedForward, FamilyError>,
) -> Result<Vec<LoadedLayer<Builtin>>, FamilyError> {
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = attention_mixer(loader, layer)?;
        let options = attention_options(AttentionOptions::new(loader.rotation(mixer, rope_theta)?));
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer = loader.with_prefix("self_attn", |loader| read_attention(loader, mixer, width, options))?;
            let feed_forward_norm = loader.rms_norm("post_attention_layernorm", width, epsilon)?;
            let feed_forward = loader.with_prefix("mlp", &read_feed_forward)?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: ResidualBranch::with_norm(norm),
                mixers: vec![mixer],
                feed_forward: Some((ResidualBranch::with_norm(feed_forward_norm), feed_forward)),
            })
        })?);
    }
    Ok(layers)
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
            return Err(fields.error("hidden_act", format!("`{other}`"), known));
        }
    })
}

/// Options of a decoder outside of its layers: embeddings, final norm and `lm_head`.
pub struct DecoderOptions {
    /// Module of the embeddings and the final norm, usually `model`; `lm_head` is outside it.
    pub prefix: &'static str,
    /// Name of the embeddings within the prefix.
    pub embedding: &'static str,
    /// Name of the final norm within the prefix.
    pub norm: &'static str,
    /// Factor on embeddings.
    pub embedding_scale: Option<f64>,
    /// Whether the gain of the final norm is one plus the stored weight.
    pub norm_plus_one: bool,
    /// Epsilon of the final norm.
    pub epsilon: f64,
    /// Factor on the logits, which is multiplied into the final norm's weight.
    pub logit_scale: f64,
    /// Soft cap on the logits.
    pub logit_cap: Option<f64>,
    /// Default of `tie_word_embeddings`.
    pub tied_by_default: bool,
}

impl DecoderOptions {
    /// Embeddings, an RMS norm and a separate `lm_head` under the usual names.
    pub fn new(epsilon: f64) -> Self {
        Self {
            prefix: "model",
            embedding: "embed_tokens",
            norm: "norm",
            embedding_scale: None,
            norm_plus_one: false,
            epsilon,
            logit_scale: 1.0,
            logit_cap: None,
            tied_by_default: false,
        }
    }

    /// Reads the embeddings, the final norm and `lm_head` (unless `tie_word_embeddings`), and assembles the model with the given layers.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub fn assemble_model<S: Scalar>(
        &self,
        loader: &mut Loader<'_, S>,
        layers: Vec<LoadedLayer<Builtin>>,
    ) -> Result<LoadedModel<Builtin>, FamilyError> {
        let fields = loader.fields;
        let (width, vocabulary) = (fields.required_size("hidden_size")?, fields.required_size("vocab_size")?);
        let table = loader.with_prefix(self.prefix, |loader| {
            let values = loader.values(&format!("{}.weight", self.embedding), &[vocabulary, width])?;
            Ok::<_, FamilyError>(loader.with_role(Role::Embedding).add(
                "embed_tokens.weight",
                &[vocabulary, width],
                values,
            ))
        })?;
        let gain = loader.with_prefix(self.prefix, |loader| {
            let mut values = loader.values(&format!("{}.weight", self.norm), &[width])?;
            let offset = if self.norm_plus_one && !loader.is_gguf() { S::ONE } else { S::ZERO };
            for x in &mut values {
                *x = (*x + offset) * S::from_f64(self.logit_scale);
            }
            Ok::<_, FamilyError>(loader.with_role(Role::ResidualNorm).add("norm.weight", &[width], values))
        })?;
        let is_tied = if loader.is_gguf() {
            !loader.has("lm_head.weight")
        } else {
            fields.flag("tie_word_embeddings", self.tied_by_default)?
        };
        let unembedding = if is_tied {
            loader.ignore("lm_head.weight");
            table
        } else {
            loader.tensor("lm_head.weight", &[vocabulary, width])?
        };
        Ok(LoadedModel {
            width,
            classes: vocabulary,
            embedding: Embedding::from_table(table, vocabulary, self.embedding_scale),
            layers,
            shared_tensor_sources: Vec::new(),
            norm: Norm::from_weights(gain, None, self.epsilon),
            unembedding,
            logit_cap: self.logit_cap,
        })
    }
}
