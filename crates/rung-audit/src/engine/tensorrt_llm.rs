//! TensorRT-LLM: a pool of KV blocks.
//!
//! # Rules
//! - The pool holds `blocks * tokens_per_block` tokens of every attention layer's keys and values, divided over devices.
//! - Recurrent state has one row for each request: convolution inputs and state, divided over devices.
//!
//! # Source
//! `_torch/pyexecutor/mamba_cache_manager.py` of NVIDIA/TensorRT-LLM at `00bce92cbb90`, and the manager's log lines.

use super::{BF16_CACHE, CacheBreakdown, Engine, MemoryPlan, PlanInput, element_bytes, round_up};
use crate::{AuditError, BF16, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The rules of TensorRT-LLM.
pub(super) static ENGINE: Engine = Engine {
    name: "tensorrt-llm",
    aliases: &["tensorrt_llm", "trtllm"],
    version: "1.0",
    options: &[
        ("tokens_per_block", "tokens in a block"),
        ("max_tokens", "tokens of the pool, instead of requests * context"),
        ("blocks", "blocks of the pool, instead of requests * context"),
        ("free_gpu_memory_fraction", "share of the memory that is free after loading that the pool takes"),
    ],
    plan,
};

const GIB: f64 = 1_073_741_824.0;

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    let is_covered = |kv: &KeyValueLayout| kv.reach == CacheReach::All && kv.index_key_dim == 0;
    if !input.caches.kv().all(|kv| is_covered(&kv)) {
        plan.unknown_reasons.push("TensorRT-LLM's windows and index caches are not covered".to_owned());
    }
    if !plan.unknown_reasons.is_empty() && !input.settings.skip_unsupported_layers {
        return Ok(());
    }
    let format = input.settings.kv_format.unwrap_or(BF16_CACHE);
    let block_tokens =
        input.option_number("tokens_per_block")?.filter(|block| (1..=1 << 20).contains(block)).unwrap_or(32);
    let layer_bytes = |kv: KeyValueLayout| {
        kv.local_heads(input.tp).saturating_mul(
            format
                .bytes_without_vector_scales(kv.key_head_dim)
                .saturating_add(format.bytes_without_vector_scales(kv.value_head_dim)),
        )
    };
    let token_bytes = input.caches.kv().filter(is_covered).map(layer_bytes).fold(0, u64::saturating_add);
    let tokens = match (input.option_number("max_tokens")?, input.option_number("blocks")?) {
        (Some(tokens), _) => tokens,
        (None, Some(blocks)) => blocks.saturating_mul(block_tokens),
        (None, None) => round_up(input.context, block_tokens).saturating_mul(input.requests),
    };
    let state_dtype = input.settings.state_dtype.or(input.audit.declared_state_dtype).unwrap_or(FP32);
    plan.state_dtype = state_dtype.name;
    let layer_states = input.caches.states().map(|state| {
        let conv_bytes = element_bytes(state.conv_elements(input.tp, state.layout.kernel_size.saturating_sub(1)), BF16);
        conv_bytes.saturating_add(element_bytes(state.recurrent_elements(input.tp), state_dtype))
    });
    let state_bytes = layer_states.fold(0, u64::saturating_add);
    let bytes = |tokens: u64, requests: u64| CacheBreakdown {
        kv: token_bytes.saturating_mul(tokens),
        window: 0,
        state: state_bytes.saturating_mul(requests),
    };
    plan.block_tokens = Some(block_tokens);
    plan.page_bytes = Some(token_bytes.saturating_mul(block_tokens));
    plan.bytes_per_token = Some(token_bytes);
    plan.set_bytes(bytes(tokens, input.requests));
    plan.bytes_per_request = Some(bytes(round_up(input.context, block_tokens), 1).total());
    plan.add_metric(
        "KV pool",
        token_bytes.saturating_mul(tokens) as f64 / GIB,
        "GiB",
        "tokens * layers * bytes of keys and values",
    );
    plan.add_metric("max tokens", tokens as f64, "tokens", "blocks * tokens per block");
    add_fit(input, plan, token_bytes, state_bytes, block_tokens)?;
    plan.flags.push(format!("--max_seq_len {}", input.context));
    plan.flags.extend(input.request_limit().map(|requests| format!("--max_batch_size {requests}")));
    Ok(())
}

/// Adds the tokens, requests and context that fit into the memory.
fn add_fit(
    input: &PlanInput,
    plan: &mut MemoryPlan,
    token_bytes: u64,
    state_bytes: u64,
    block_tokens: u64,
) -> Result<(), AuditError> {
    let (Some(memory), Some(weights)) = (input.settings.memory, input.weight_bytes()) else { return Ok(()) };
    let free_fraction = input.option_fraction("free_gpu_memory_fraction")?.unwrap_or(0.9);
    plan.add_assumption(format!(
        "The pool takes {free_fraction} of what the weights leave free; activations take nothing."
    ));
    let available = (memory.saturating_sub(weights) as f64 * free_fraction) as u64;
    let kv_budget = available.saturating_sub(state_bytes.saturating_mul(input.requests));
    plan.available_bytes = Some(available);
    let tokens = kv_budget.checked_div(token_bytes).unwrap_or(0) / block_tokens * block_tokens;
    plan.tokens_fit = Some(tokens);
    plan.context_fit = Some(tokens / input.requests / block_tokens * block_tokens);
    let request_bytes = token_bytes.saturating_mul(round_up(input.context, block_tokens)).saturating_add(state_bytes);
    plan.requests_fit = Some(available.checked_div(request_bytes).unwrap_or(0));
    Ok(())
}
