//! transformers: the cache object that `generate` fills, one tensor per layer.
//!
//! # Rules
//! - `--context` is the tokens in the cache, `--requests` the batch. Nothing is paged or reserved: the default cache grows
//!   with the sequence.
//! - A layer with a window caches `window - 1` tokens once it is full: the current token is not stored.
//! - A short convolution caches as many inputs as its kernel size, one more than serving engines do.
//! - Keys, values and convolution inputs have the activations' format (the config's `dtype`, else bf16); recurrent state has the format its kernel returns,
//!   32-bit floats unless the config says otherwise.
//! - Latent attention stores the latent and the rotary key; index keys are stored beside them.
//!
//! # Source
//! `src/transformers/cache_utils.py` of huggingface/transformers, 5.23; checked by counting caches (`docs/engines/transformers.md`).

use super::layer_cache::RecurrentState;
use super::{BF16_CACHE, CacheBreakdown, CacheFormat, Engine, MemoryPlan, PlanInput, element_bytes, largest_fitting};
use crate::{AuditError, BF16, Dtype, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The rules of transformers.
pub(super) static ENGINE: Engine = Engine {
    name: "transformers",
    aliases: &["hf", "huggingface"],
    version: "5.23.0",
    options: &[
        ("conv_dtype", "the format of convolution inputs; by default that of keys and values"),
        ("overhead", "bytes of activations and libraries on one device"),
    ],
    plan,
};

/// Model types that cache the full context for layers with a window.
const FULL_SIZE_WINDOWS: &[&str] = &["gpt_neo"];
/// Model types whose convolution inputs are cached in 32 bits.
const FP32_CONVOLUTIONS: &[&str] = &["inkling_text", "inkling2_text", "inkling_mm_model", "inkling2"];
/// Model types whose index keys are cached in 32 bits.
const FP32_INDEX_KEYS: &[&str] = &["dots3_note", "dots3_note_text"];
/// Model types whose convolutions cache one input fewer than their kernel size.
const ONE_INPUT_FEWER: &[&str] = &["zaya", "recurrent_gemma"];

/// Formats of one plan's caches.
struct TransformersRules<'a> {
    input: &'a PlanInput<'a>,
    format: CacheFormat,
    conv_dtype: Dtype,
    state_dtype: Dtype,
}

impl TransformersRules<'_> {
    /// Whether the model's type is one of these.
    fn has_model_type_in(&self, names: &[&str]) -> bool {
        self.input.audit.architecture.as_deref().is_some_and(|name| names.contains(&name))
    }

    /// Bytes of one token's index key in one layer.
    fn index_bytes(&self, kv: &KeyValueLayout) -> u64 {
        if self.has_model_type_in(FP32_INDEX_KEYS) {
            element_bytes(kv.index_key_dim, FP32)
        } else {
            self.format.vector_bytes(kv.index_key_dim)
        }
    }

    /// Bytes of one token's keys and values in one layer.
    fn token_bytes(&self, kv: &KeyValueLayout) -> u64 {
        let vector =
            self.format.vector_bytes(kv.key_head_dim).saturating_add(self.format.vector_bytes(kv.value_head_dim));
        kv.local_heads(self.input.tp).saturating_mul(vector)
    }

    /// Bytes of one layer that grow with the context, and bytes of its window.
    fn layer_bytes(&self, kv: &KeyValueLayout, context: u64) -> (u64, u64) {
        let token_bytes = self.token_bytes(kv);
        let index_bytes = self.index_bytes(kv);
        match kv.reach {
            CacheReach::Window(_) if self.has_model_type_in(FULL_SIZE_WINDOWS) => {
                (token_bytes.saturating_mul(context), 0)
            }
            CacheReach::All => ((token_bytes.saturating_add(index_bytes)).saturating_mul(context), 0),
            CacheReach::Window(size) | CacheReach::Chunk(size) => {
                (0, token_bytes.saturating_mul(context.min(size.saturating_sub(1))))
            }
            CacheReach::Compressed { ratio, window } => {
                let entries = context / ratio.max(1);
                let window_bytes = token_bytes.saturating_mul(context.min(window.saturating_sub(1)));
                // Entries with an index key overlap: the last inputs and their gates are cached for the next entry.
                let overlap = if index_bytes == 0 {
                    0
                } else {
                    token_bytes.saturating_add(index_bytes).saturating_mul(2 * ratio)
                };
                (token_bytes.saturating_add(index_bytes).saturating_mul(entries), window_bytes.saturating_add(overlap))
            }
        }
    }

    /// Bytes of one layer's recurrent state and convolution inputs.
    fn state_bytes(&self, state: &RecurrentState) -> u64 {
        let conv_dtype = if self.has_model_type_in(FP32_CONVOLUTIONS) { FP32 } else { self.conv_dtype };
        let inputs = if self.has_model_type_in(ONE_INPUT_FEWER) {
            state.layout.kernel_size.saturating_sub(1)
        } else {
            state.layout.kernel_size
        };
        let conv_bytes = element_bytes(state.conv_elements(self.input.tp, inputs), conv_dtype);
        let shift_bytes = element_bytes(state.layout.shift, conv_dtype);
        // Lightning attention's state has the activations' format.
        let dtype = if state.mixer == "lightning" { self.conv_dtype } else { self.state_dtype };
        conv_bytes
            .saturating_add(shift_bytes)
            .saturating_add(element_bytes(state.recurrent_elements(self.input.tp), dtype))
    }

    fn bytes(&self, context: u64, requests: u64) -> CacheBreakdown {
        let mut sum = CacheBreakdown::default();
        for layer in &self.input.caches.layers {
            let (kv, window) = layer.kv.map_or((0, 0), |kv| self.layer_bytes(&kv, context));
            let state = layer.state.map_or(0, |state| self.state_bytes(&state));
            sum.kv = sum.kv.saturating_add(kv);
            sum.window = sum.window.saturating_add(window);
            sum.state = sum.state.saturating_add(state);
        }
        let times = |bytes: u64| bytes.saturating_mul(requests);
        CacheBreakdown { kv: times(sum.kv), window: times(sum.window), state: times(sum.state) }
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    let format = match (input.settings.kv_format, input.audit.model_dtype) {
        (Some(format), _) => format,
        (None, Some(dtype)) => dtype.name.parse()?,
        (None, None) => BF16_CACHE,
    };
    plan.kv_dtype = format.name;
    let conv_dtype = match input.option("conv_dtype") {
        Some(text) => text.parse()?,
        // Convolution inputs are not quantised.
        None => format.name.parse().unwrap_or(BF16),
    };
    let state_dtype = input.settings.state_dtype.or(input.audit.declared_state_dtype).unwrap_or(FP32);
    plan.state_dtype = state_dtype.name;
    if input.settings.speculative > 0 {
        return Err(AuditError::invalid_argument(
            "--speculative",
            "a draft model in transformers has a cache of its own; plan it by itself",
        ));
    }
    let rules = TransformersRules { input, format, conv_dtype, state_dtype };
    plan.set_bytes(rules.bytes(input.context, input.requests));
    plan.bytes_per_request = Some(rules.bytes(input.context, 1).total());
    let is_growing = |kv: &KeyValueLayout| kv.reach == CacheReach::All;
    let per_token = |kv: KeyValueLayout| rules.token_bytes(&kv).saturating_add(rules.index_bytes(&kv));
    plan.bytes_per_token = Some(input.caches.kv().filter(is_growing).map(per_token).fold(0, u64::saturating_add));
    if input.caches.kv().any(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
        plan.add_assumption("Tokens that wait to be compressed are not counted.");
    }
    add_fit(input, plan, &rules)
}

/// Adds the tokens, requests and context that fit into the memory.
fn add_fit(input: &PlanInput, plan: &mut MemoryPlan, rules: &TransformersRules) -> Result<(), AuditError> {
    let Some(memory) = input.settings.memory else { return Ok(()) };
    let Some(weights) = input.weight_bytes() else {
        plan.unknown_reasons.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(());
    };
    let available = memory.saturating_sub(weights).saturating_sub(input.option_number("overhead")?.unwrap_or(0));
    if input.option("overhead").is_none() {
        plan.add_assumption(
            "Activations take nothing, and the cache is never copied while it grows; give `--set overhead=BYTES`.",
        );
    }
    if available == 0 {
        plan.unknown_reasons.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    plan.available_bytes = Some(available);
    let fits = |context: u64, requests: u64| rules.bytes(context, requests).total() <= available;
    let context = largest_fitting(crate::MAX_CONTEXT, |context| context == 0 || fits(context, input.requests));
    (plan.tokens_fit, plan.context_fit) = (Some(context.saturating_mul(input.requests)), Some(context));
    plan.requests_fit =
        Some(largest_fitting(super::MAX_COUNT, |requests| requests == 0 || fits(input.context, requests)));
    Ok(())
}
