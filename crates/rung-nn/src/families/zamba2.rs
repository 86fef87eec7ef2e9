//! Zamba 2: Mamba-2, and attention blocks that share their weights, differ in low-rank adapters, and read the residual stream concatenated with the
//! embeddings.
//!
//! # Classes
//! `Zamba2ForCausalLM`. A block passes its output to the recurrence after it and adds nothing to the residual stream. dt is clamped to
//! `time_step_min` in the parallel forward pass only; this crate does so for every token.
//!
//! # Unusual options
//! `num_mem_blocks`, `use_shared_attention_adapter` (the adapters are added to copies of the shared weights), `use_mem_rope`, `add_bias_linear`, block weights that are
//! stored separately for every layer.
//!
//! # GGUF
//! Not supported: llama.cpp does not have this architecture.

use rung_audit::json::JsonValue;
use rung_engine::{Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::decoder::{self, DecoderOptions};
use super::state_space::{self, GatedNormOptions, Mamba2Options};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::mixer::attention::{HeadsConfig, Visibility};
use crate::mixer::head_options::HeadOptions;
use crate::mixer::softmax::Softmax;
use crate::mixer::zamba::{AdaptedMlp, Mamba2AfterBlock, SharedBlock, Zamba};
use crate::model::{LoadedLayer, LoadedModel, Norm, ResidualBranch};
use crate::submodules::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["zamba2"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Epsilon of the gated norm, which is not in the config.
const GATED_NORM_EPSILON: f64 = 1e-5;

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.reject("use_long_context", "rotations that are not rescaled")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let bias = fields.flag("add_bias_linear", false)?;
    let min_dt = fields.number("time_step_min")?.unwrap_or(1e-3);
    let options = Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: true,
        norm: Some(GatedNormOptions { epsilon: GATED_NORM_EPSILON, before_gate: false }),
        dt_limit: Some([min_dt, f64::INFINITY]),
    };
    let layer_types = fields.list("layers_block_type").and_then(|types| fields.require("layers_block_type", types))?;
    let is_hybrid = |layer_type: &JsonValue| matches!(layer_type, JsonValue::String(name) if name == "hybrid");
    if layer_types.first().is_some_and(is_hybrid) {
        return Err(fields.error("layers_block_type[0]", "`hybrid`", "a layer without attention first"));
    }
    let mut blocks = SharedBlocks { width, epsilon, bias, shared: Vec::new(), block_count: 0 };
    let (mut mixers, mut shared_tensor_sources) = (Vec::new(), Vec::new());
    let mut plan_layers = loader.layers.iter();
    let count_error =
        || fields.error("layers_block_type", format!("{} layers", layer_types.len()), "those of the plan");
    for (index, layer_type) in layer_types.iter().enumerate() {
        let mut prefix = format!("model.layers.{index}");
        if is_hybrid(layer_type) {
            let mixer = decoder::attention_mixer(loader, plan_layers.next().ok_or_else(count_error)?)?;
            let block = blocks.read_next(loader, mixer, index)?;
            mixers.push(Zamba::Block(Box::new(block)));
            shared_tensor_sources.push(vec![Some(0)]);
            prefix.push_str(".mamba_decoder");
        }
        let mixer = state_space::only_mixer(loader, plan_layers.next().ok_or_else(count_error)?, "mamba2")?;
        let recurrence = loader.with_prefix(&prefix, |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer =
                loader.with_prefix("mamba", |loader| state_space::read_mamba2_mixer(loader, mixer, width, options))?;
            Ok::<_, FamilyError>(Mamba2AfterBlock { norm, mixer })
        })?;
        // The output of a block goes to the recurrence after it.
        shared_tensor_sources.push(vec![is_hybrid(layer_type).then(|| mixers.len() - 1)]);
        mixers.push(Zamba::Recurrence(Box::new(recurrence)));
    }
    let without_norm = || ResidualBranch::with_norm(Norm::identity());
    let layer =
        |mixer| LoadedLayer { mixer_branch: without_norm(), mixers: vec![Builtin::Zamba(mixer)], feed_forward: None };
    let decoder_options =
        DecoderOptions { norm: "final_layernorm", tied_by_default: true, ..DecoderOptions::new(epsilon) };
    let loaded_model = decoder_options.assemble_model(loader, mixers.into_iter().map(layer).collect())?;
    Ok(LoadedModel { shared_tensor_sources, ..loaded_model })
}

/// The shared blocks that were read so far.
struct SharedBlocks {
    width: usize,
    epsilon: f64,
    bias: bool,
    /// The distinct shared weights, each with the first layer that has them.
    shared: Vec<(usize, SharedWeights)>,
    /// Layers with a block so far.
    block_count: usize,
}

/// The weights of a block without its adapters.
#[derive(Clone, Copy)]
struct SharedWeights {
    norm: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    attention_output: Linear,
    mlp_norm: Norm,
    gate_up: Linear,
    down: Linear,
}

impl SharedBlocks {
    /// Reads the block of a layer: with the layer's weights if they are stored, else those of an earlier layer, and with the layer's adapters.
    fn read_next<S: Scalar>(
        &mut self,
        loader: &mut Loader<'_, S>,
        mixer: &Mixer,
        index: usize,
    ) -> Result<SharedBlock, FamilyError> {
        let fields = loader.fields;
        let (width, rank) = (self.width, fields.size("adapter_rank")?.unwrap_or(128));
        let distinct_count = fields.size("num_mem_blocks")?.unwrap_or(1);
        let hidden = fields.size("intermediate_size")?.unwrap_or(4 * width);
        let config = HeadsConfig::resolve(mixer)?;
        let block_index = self.block_count;
        self.block_count += 1;
        let block_name = |layer: usize| format!("model.layers.{layer}.shared_transformer");
        let has_weights =
            block_index < distinct_count || loader.has(&format!("{}.self_attn.q_proj.weight", block_name(index)));
        let (source_layer, shared) = if has_weights {
            (index, loader.with_prefix(&block_name(index), |loader| self.read_weights(loader, config, hidden))?)
        } else {
            self.shared[block_index % distinct_count]
        };
        if block_index < distinct_count {
            self.shared.push((index, shared));
        }
        let mut projections = [shared.query, shared.key, shared.value];
        // Adapters are stored with the shared weights, one for each layer that uses them, and again with copies.
        let adapter = loader.with_prefix(&block_name(source_layer), |loader| {
            if fields.flag("use_shared_attention_adapter", false)? {
                for (letter, projection) in ["q", "k", "v"].into_iter().zip(&mut projections) {
                    let name = format!("self_attn.linear_{letter}_adapter_list.{block_index}");
                    projection.weight = add_adapter(loader, &name, projection.weight, 2 * width, rank)?;
                }
            }
            if has_weights {
                ignore_adapters_of_others(loader, block_index, distinct_count);
            }
            let name = format!("feed_forward.gate_up_proj_adapter_list.{block_index}");
            let down = loader.linear(&format!("{name}.0"), width, rank, false)?;
            Ok::<_, FamilyError>((down, loader.linear(&format!("{name}.1"), rank, 2 * hidden, false)?))
        })?;
        let is_rotary = fields.flag("use_mem_rope", false)?;
        let rotation = if is_rotary { Some(loader.rotation(mixer, 10_000.0)?) } else { None };
        let scale = Some((config.key_dim as f64 / 2.0).powf(-0.5));
        let options = HeadOptions { scale, ..HeadOptions::default() };
        let [query, key, value] = projections;
        let linears = [query, key, shared.attention_output];
        let heads = config.assemble(Visibility::Past, linears, Some(value), rotation, options);
        let activation = decoder::activation(loader, "gelu")?;
        Ok(SharedBlock {
            norm: shared.norm,
            attention: Softmax::from_heads(heads),
            mlp_norm: shared.mlp_norm,
            mlp: AdaptedMlp { gate_up: shared.gate_up, adapter, down: shared.down, activation },
            output: loader.linear(&format!("model.layers.{index}.linear"), width, width, false)?,
        })
    }

    fn read_weights<S: Scalar>(
        &self,
        loader: &mut Loader<'_, S>,
        config: HeadsConfig,
        hidden: usize,
    ) -> Result<SharedWeights, FamilyError> {
        let HeadsConfig { heads, kv_heads, key_dim, value_dim, .. } = config;
        let Self { width, epsilon, bias, .. } = *self;
        let norm = loader.rms_norm("input_layernorm", 2 * width, epsilon)?;
        let mlp_norm = loader.rms_norm("pre_ff_layernorm", width, epsilon)?;
        let [query, keys, values, attention_output] = loader.with_prefix("self_attn", |loader| {
            Ok::<_, FamilyError>([
                loader.with_role(Role::Query).linear("q_proj", 2 * width, heads * key_dim, false)?,
                loader.with_role(Role::Key).linear("k_proj", 2 * width, kv_heads * key_dim, false)?,
                loader.with_role(Role::Value).linear("v_proj", 2 * width, kv_heads * value_dim, false)?,
                loader.with_role(Role::Output).linear("o_proj", heads * value_dim, width, false)?,
            ])
        })?;
        let [gate_up, down] = loader.with_prefix("feed_forward", |loader| {
            Ok::<_, FamilyError>([
                loader.linear("gate_up_proj", width, 2 * hidden, bias)?,
                loader.linear("down_proj", hidden, width, bias)?,
            ])
        })?;
        Ok(SharedWeights { norm, query, key: keys, value: values, attention_output, mlp_norm, gate_up, down })
    }
}

/// A copy of a shared weight plus the product of an adapter's two matrices.
fn add_adapter<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    weight: Parameter,
    width: usize,
    rank: usize,
) -> Result<Parameter, FamilyError> {
    let down = loader.values(&format!("{name}.0.weight"), &[rank, width])?;
    let mut sum = loader.weight_values(weight).to_vec();
    let rows = sum.len() / width;
    let up = loader.values(&format!("{name}.1.weight"), &[rows, rank])?;
    for (row, up_row) in sum.chunks_mut(width).zip(up.chunks(rank)) {
        for (down_row, factor) in down.chunks(width).zip(up_row) {
            for (x, down) in row.iter_mut().zip(down_row) {
                *x += *factor * *down;
            }
        }
    }
    Ok(loader.add(&format!("{name}.weight"), &[rows, width], sum))
}

/// Ignores adapters of other layers that are stored with a copy of the shared weights.
fn ignore_adapters_of_others<S: Scalar>(loader: &mut Loader<'_, S>, block_index: usize, distinct_count: usize) {
    let lists = ["feed_forward.gate_up_proj", "self_attn.linear_q", "self_attn.linear_k", "self_attn.linear_v"];
    let is_other = |other: &usize| *other != block_index && other % distinct_count == block_index % distinct_count;
    for other in (0..loader.layers.len()).filter(is_other) {
        for (list, part) in lists.into_iter().flat_map(|list| [(list, 0), (list, 1)]) {
            loader.ignore(&format!("{list}_adapter_list.{other}.{part}.weight"));
        }
    }
}
