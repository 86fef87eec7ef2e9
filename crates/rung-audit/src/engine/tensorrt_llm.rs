//! TensorRT-LLM: a pool of KV blocks.
//!
//! # Rules
//! - The pool holds `blocks * tokens_per_block` tokens of every attention layer's keys and values, divided over devices.
//! - Recurrent state has one row for each request: convolution inputs and state, divided over devices.
//!
//! # Source
//! `_torch/pyexecutor/mamba_cache_manager.py` of NVIDIA/TensorRT-LLM at `00bce92cbb90`, and the manager's log lines.

use super::{BF16_CACHE, CacheParts, Engine, MemoryPlan, PlanInput, bytes_of, pad};
use crate::{AuditError, BF16, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The engine.
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
    let covered = |kv: &KeyValueLayout| kv.reach == CacheReach::All && kv.index == 0;
    if !input.demands.kv().all(|kv| covered(&kv)) {
        plan.unknown.push("TensorRT-LLM's windows and index caches are not covered".to_owned());
    }
    if !plan.unknown.is_empty() && !input.settings.partial {
        return Ok(());
    }
    let format = input.settings.kv_format.unwrap_or(BF16_CACHE);
    let block = input.option_number("tokens_per_block")?.filter(|block| (1..=1 << 20).contains(block)).unwrap_or(32);
    let one = |kv: KeyValueLayout| {
        kv.local_heads(input.tp).saturating_mul(format.row(kv.key).saturating_add(format.row(kv.value)))
    };
    let token = input.demands.kv().filter(covered).map(one).fold(0, u64::saturating_add);
    let tokens = match (input.option_number("max_tokens")?, input.option_number("blocks")?) {
        (Some(tokens), _) => tokens,
        (None, Some(blocks)) => blocks.saturating_mul(block),
        (None, None) => pad(input.context, block).saturating_mul(input.requests),
    };
    let state_dtype = input.settings.state_dtype.or(input.audit.declared_state_dtype).unwrap_or(FP32);
    plan.state_dtype = state_dtype.name;
    let state = input.demands.states().map(|state| {
        let columns = bytes_of(state.convolution(input.tp, state.layout.kernel_size.saturating_sub(1)), BF16);
        columns.saturating_add(bytes_of(state.recurrence(input.tp), state_dtype))
    });
    let state = state.fold(0, u64::saturating_add);
    let bytes = |tokens: u64, requests: u64| CacheParts {
        kv: token.saturating_mul(tokens),
        window: 0,
        state: state.saturating_mul(requests),
    };
    plan.block_tokens = Some(block);
    plan.page_bytes = Some(token.saturating_mul(block));
    plan.bytes_per_token = Some(token);
    plan.set_bytes(bytes(tokens, input.requests));
    plan.bytes_per_request = Some(bytes(pad(input.context, block), 1).total());
    plan.add("KV pool", token.saturating_mul(tokens) as f64 / GIB, "GiB", "tokens * layers * bytes of keys and values");
    plan.add("max tokens", tokens as f64, "tokens", "blocks * tokens per block");
    fit(input, plan, token, state, block)?;
    plan.flags.push(format!("--max_seq_len {}", input.context));
    plan.flags.extend(input.limited_requests().map(|requests| format!("--max_batch_size {requests}")));
    Ok(())
}

fn fit(input: &PlanInput, plan: &mut MemoryPlan, token: u64, state: u64, block: u64) -> Result<(), AuditError> {
    let (Some(memory), Some(weights)) = (input.settings.memory, input.weights()) else { return Ok(()) };
    let share = input.option_fraction("free_gpu_memory_fraction")?.unwrap_or(0.9);
    plan.assume(format!("The pool takes {share} of what the weights leave free; activations take nothing."));
    let left = (memory.saturating_sub(weights) as f64 * share) as u64;
    let for_tokens = left.saturating_sub(state.saturating_mul(input.requests));
    plan.available_bytes = Some(left);
    let tokens = for_tokens.checked_div(token).unwrap_or(0) / block * block;
    plan.tokens_fit = Some(tokens);
    plan.context_fit = Some(tokens / input.requests / block * block);
    let each = token.saturating_mul(pad(input.context, block)).saturating_add(state);
    plan.requests_fit = Some(left.checked_div(each).unwrap_or(0));
    Ok(())
}
