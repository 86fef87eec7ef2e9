//! vLLM: one pool of equal blocks for all groups of layers.
//!
//! # Rules
//! - A page is what one layer stores in one block. In hybrids the attention block is raised until its page is at least
//!   as large as a recurrent layer's state, and the state's page is padded up to it.
//! - Layers of one kind form a bucket; buckets are cut into groups of equal size (the last group of a bucket is padded).
//!   A block of the pool holds one page for each layer of a group.
//! - A request holds `ceil(L / block)` blocks of each full group, and of each recurrent group one block, two with prefix
//!   caching, and one more for every drafted token.
//! - Until 0.20.1 "GPU KV cache size" was blocks per group times tokens per block; since then it is the maximum
//!   concurrency times the longest context, so for hybrids it depends on the context.
//!
//! # Source
//! `v1/kv_cache_interface.py`, `v1/core/kv_cache_utils.py`, `platforms/interface.py`, `layers/mamba/mamba_utils.py`,
//! `v1/worker/gpu_worker.py` of vllm-project/vllm at `a014e35f38c8` (after 0.26.1).

use std::collections::BTreeMap;

use super::demand::RecurrentState;
use super::{BF16_CACHE, CacheFormat, CacheParts, Engine, MemoryPlan, PlanInput, bytes_of, largest, request};
use crate::{AuditError, BF16, Dtype, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The engine.
pub(super) static ENGINE: Engine = Engine {
    name: "vllm",
    aliases: &["vLLM"],
    version: "0.26.1",
    options: &[
        ("gpu_memory_utilization", "share of the device's memory that vLLM may use"),
        ("overhead", "bytes of activations, CUDA graphs and libraries on one device"),
        ("kv_cache_memory_bytes", "bytes for the cache, instead of working them out"),
        ("num_gpu_blocks_override", "blocks of the cache, instead of working them out"),
        ("mamba_cache_mode", "none, align (prefix caching) or all"),
        ("block_size", "tokens in a block, if larger than what the rule gives"),
        ("kernel_block", "tokens that the attention kernel's block has at least: 16, 64 on XPU, 128 on CPU"),
        ("max_num_batched_tokens", "tokens in one step"),
        ("async_scheduling", "whether two steps are in flight"),
        ("draft_full_layers", "full layers that the draft adds"),
        ("draft_window_layers", "window layers that the draft adds"),
        ("draft_window", "tokens in the draft's window"),
        ("group_size", "layers in a group, instead of the rule's"),
    ],
    plan,
};

/// How the state of recurrent layers is kept for prefix caching.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    None,
    Align,
    All,
}

/// Layers with the same specification.
struct Bucket {
    reach: Option<CacheReach>,
    layers: u64,
    /// Tokens in one of its blocks; nothing for recurrent layers.
    block: u64,
}

/// The pool that all groups share.
struct Pool {
    buckets: Vec<Bucket>,
    group_size: u64,
    page: u64,
    mode: Mode,
    speculative: u64,
    /// Tokens that steps in flight may add to a window.
    in_flight: u64,
}

impl Pool {
    fn groups(&self, bucket: &Bucket) -> u64 {
        bucket.layers.div_ceil(self.group_size)
    }

    fn all_groups(&self) -> u64 {
        self.buckets.iter().map(|bucket| self.groups(bucket)).sum()
    }

    fn bytes_per_block(&self) -> u64 {
        self.group_size.saturating_mul(self.page)
    }

    /// Blocks of one group of a bucket that a request of `context` tokens holds.
    fn blocks(&self, bucket: &Bucket, context: u64) -> u64 {
        match (bucket.reach, self.mode) {
            (Some(CacheReach::Window(window)), _) => {
                (window - 1).saturating_add(self.in_flight).min(context).div_ceil(bucket.block) + 1
            }
            (Some(CacheReach::Chunk(chunk)), _) => {
                chunk.saturating_add(self.in_flight).min(context).div_ceil(bucket.block)
            }
            (Some(_), _) => context.div_ceil(bucket.block),
            (None, Mode::None) => 1 + self.speculative,
            (None, Mode::Align) => 2 + self.speculative,
            (None, Mode::All) => context.div_ceil(bucket.block) + self.speculative,
        }
    }

    fn blocks_of_request(&self, context: u64) -> u64 {
        let one = |bucket: &Bucket| self.groups(bucket).saturating_mul(self.blocks(bucket, context));
        self.buckets.iter().map(one).fold(0, u64::saturating_add)
    }

    fn bytes(&self, context: u64, requests: u64) -> CacheParts {
        let mut sum = CacheParts::default();
        for bucket in &self.buckets {
            let blocks = self.groups(bucket).saturating_mul(self.blocks(bucket, context)).saturating_mul(requests);
            let part = match bucket.reach {
                None => &mut sum.state,
                Some(CacheReach::Window(_) | CacheReach::Chunk(_)) => &mut sum.window,
                Some(_) => &mut sum.kv,
            };
            *part = part.saturating_add(blocks.saturating_mul(self.bytes_per_block()));
        }
        sum
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    let format = input.settings.kv_format.unwrap_or(BF16_CACHE);
    let unsupported = unsupported(input);
    plan.unknown.extend(unsupported);
    if !plan.unknown.is_empty() && !input.settings.partial {
        return Ok(());
    }
    let states: Vec<RecurrentState> = input.demands.states().filter(|state| state.is_covered_by(&ENGINE)).collect();
    let state_dtype = states.first().map_or(FP32, |first| state_dtype(input, first));
    plan.state_dtype = state_dtype.name;
    let mode = mode(input, plan)?;
    let attention = attention_bytes(input, format)?;
    let state_page = states.iter().map(|state| state_bytes(input, state, state_dtype)).max().unwrap_or(0);
    let Some(pool) = pool(input, plan, &attention, &states, state_page, mode)? else { return Ok(()) };
    plan.block_tokens = pool.buckets.iter().find(|bucket| bucket.reach.is_some()).map(|bucket| bucket.block);
    plan.page_bytes = Some(pool.page);
    plan.set_bytes(pool.bytes(input.context, input.requests));
    plan.bytes_per_request = Some(pool.bytes(input.context, 1).total());
    plan.bytes_per_token = Some(bytes_per_token(&pool));
    figures(input, plan, &pool, state_page, &attention);
    fit(input, plan, &pool)?;
    flags(input, plan, format, !states.is_empty());
    Ok(())
}

/// Bytes that one more token takes on average: a full group's block over its tokens.
fn bytes_per_token(pool: &Pool) -> u64 {
    let one = |bucket: &&Bucket| matches!(bucket.reach, Some(CacheReach::All));
    let growing = pool.buckets.iter().filter(one);
    growing.map(|bucket| (pool.groups(bucket) * pool.bytes_per_block()).div_ceil(bucket.block)).sum()
}

/// Kinds of layers that these rules do not cover.
fn unsupported(input: &PlanInput) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |what: String| {
        if !found.contains(&what) {
            found.push(what);
        }
    };
    for layer in &input.demands.layers {
        if let Some(state) = layer.state.filter(|state| !state.is_covered_by(&ENGINE)) {
            add(format!("vLLM's rules here do not cover state of `{}`", state.kind));
        }
        if layer.state.is_some_and(|state| state.kind == "conv") && layer.kv.is_some() {
            add("vLLM's rules here do not cover a convolution before attention".to_owned());
        }
        if layer.kv.is_some_and(|kv| kv.index > 0) {
            add("vLLM packs index keys in a layout that these rules do not cover".to_owned());
        }
        if layer.kv.is_some_and(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
            add("vLLM packs compressed caches in a layout that these rules do not cover".to_owned());
        }
    }
    found
}

/// The format of recurrent state: a flag, else what the model's class asks for.
fn state_dtype(input: &PlanInput, state: &RecurrentState) -> Dtype {
    if let Some(dtype) = input.settings.state_dtype {
        return dtype;
    }
    let name = input.audit.architecture.as_deref().unwrap_or_default();
    let declared = input.audit.declared_state_dtype;
    match state.kind {
        "kda" => FP32,
        _ if name.starts_with("qwen3_5") || name.starts_with("nemotron_h") => declared.unwrap_or(FP32),
        _ => input.audit.activation_dtype.unwrap_or(BF16),
    }
}

fn mode(input: &PlanInput, plan: &mut MemoryPlan) -> Result<Mode, AuditError> {
    match input.option("mamba_cache_mode") {
        Some("none") => Ok(Mode::None),
        Some("align") => Ok(Mode::Align),
        Some("all") => Ok(Mode::All),
        Some(text) => Err(request(text, "`mamba_cache_mode` is none, align or all")),
        None if input.older_than([0, 20, 0])? => Ok(Mode::None),
        None => {
            if input.demands.states().next().is_some() {
                plan.assume("Prefix caching is on, so each recurrent group keeps two blocks a request (mode align).");
            }
            Ok(Mode::Align)
        }
    }
}

/// Attention layers by reach and bytes per token, with how many there are.
type AttentionBytes = BTreeMap<(CacheReach, u64), u64>;

fn attention_bytes(input: &PlanInput, format: CacheFormat) -> Result<AttentionBytes, AuditError> {
    let per_token = |kv: &KeyValueLayout| {
        kv.local_heads(input.tp).saturating_mul(format.vector(kv.key).saturating_add(format.vector(kv.value)))
    };
    let mut found = AttentionBytes::new();
    for kv in input.demands.kv().filter(|kv| !matches!(kv.reach, CacheReach::Compressed { .. })) {
        *found.entry((kv.reach, per_token(&kv))).or_default() += 1;
    }
    let extra = if input.settings.speculative > 0 { input.audit.extra_layers } else { 0 };
    let draft = input.option_number("draft_full_layers")?.unwrap_or(extra);
    let window_layers = input.option_number("draft_window_layers")?.unwrap_or(0);
    // A draft's layers have the sizes of the model's own full layers.
    let Some((_, bytes)) = found.keys().find(|(reach, _)| *reach == CacheReach::All).copied() else { return Ok(found) };
    if draft > 0 {
        *found.entry((CacheReach::All, bytes)).or_default() += draft;
    }
    if window_layers > 0 {
        let window = input.option_number("draft_window")?.filter(|&window| window > 0);
        let window = window.ok_or_else(|| request("draft_window_layers", "needs `draft_window` too"))?;
        *found.entry((CacheReach::Window(window), bytes)).or_default() += window_layers;
    }
    Ok(found)
}

/// Bytes of one layer's state: convolution inputs in the activations' format, drafted tokens' columns included.
fn state_bytes(input: &PlanInput, state: &RecurrentState, dtype: Dtype) -> u64 {
    let drafts = if state.kind == "mamba1" { 0 } else { input.settings.speculative };
    let columns = state.layout.kernel_size.saturating_sub(1) + if state.layout.kernel_size == 0 { 0 } else { drafts };
    let convolution = bytes_of(state.convolution(input.tp, columns), input.audit.activation_dtype.unwrap_or(BF16));
    let recurrent = bytes_of(state.recurrence(input.tp), dtype);
    convolution.saturating_add(recurrent)
}

fn pool(
    input: &PlanInput,
    plan: &mut MemoryPlan,
    attention: &AttentionBytes,
    states: &[RecurrentState],
    state_page: u64,
    mode: Mode,
) -> Result<Option<Pool>, AuditError> {
    let largest_bytes = attention.keys().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    if largest_bytes == 0 && state_page == 0 {
        plan.unknown.push("no layer keeps anything, so there is no pool to plan".to_owned());
        return Ok(None);
    }
    let latent = input.demands.kv().any(|kv| kv.latent);
    let least = input.option_number("kernel_block")?.unwrap_or(if latent { 128 } else { 16 });
    let user = input.option_number("block_size")?.unwrap_or(0);
    if !(1..=1 << 20).contains(&least) || user > 1 << 30 {
        return Err(request("kernel_block", "blocks have 1 to 1048576 tokens"));
    }
    // The alignment uses the full layers' bytes; without a recurrence the kernel's block stays.
    let full = attention.keys().find(|(reach, _)| *reach == CacheReach::All).map_or(largest_bytes, |(_, bytes)| *bytes);
    let start = least.max(user);
    let aligned = if full == 0 { start } else { start * state_page.div_ceil((start * full).max(1)).max(1) };
    let block = if states.is_empty() || full == 0 { start } else { aligned };
    let page = (block.saturating_mul(largest_bytes)).max(state_page);
    // A layer with fewer bytes per token gets a larger block where that fits exactly, else padding.
    let own_block = |bytes: u64| {
        let factor = if bytes > 0 && largest_bytes.is_multiple_of(bytes) { largest_bytes / bytes } else { 1 };
        block.saturating_mul(factor)
    };
    let mut buckets: Vec<Bucket> = Vec::new();
    for ((reach, bytes), layers) in attention {
        buckets.push(Bucket { reach: Some(*reach), layers: *layers, block: own_block(*bytes) });
    }
    if !states.is_empty() {
        buckets.push(Bucket {
            reach: None,
            layers: states.len() as u64,
            block: if full == 0 { input.context } else { block },
        });
    }
    let (least_layers, most_layers) = (
        buckets.iter().map(|bucket| bucket.layers).min().unwrap_or(1),
        buckets.iter().map(|bucket| bucket.layers).max().unwrap_or(1),
    );
    let rule = if 2 * most_layers < 3 * least_layers { most_layers } else { least_layers };
    let group_size = input.option_number("group_size")?.filter(|&size| size > 0).unwrap_or(rule);
    let steps = if input.option_flag("async_scheduling", true)? { 2 } else { 1 };
    let batched = input.option_number("max_num_batched_tokens")?;
    if batched.is_none() && attention.keys().any(|(reach, _)| *reach != CacheReach::All) {
        plan.assume("Windows hold what steps in flight add: two steps of 2,048 tokens (`max_num_batched_tokens`).");
    }
    let in_flight = batched.unwrap_or(2048).saturating_mul(steps);
    Ok(Some(Pool { buckets, group_size, page, mode, speculative: input.settings.speculative, in_flight }))
}

fn figures(input: &PlanInput, plan: &mut MemoryPlan, pool: &Pool, state_page: u64, attention: &AttentionBytes) {
    if state_page > 0 {
        plan.add("ssm+conv page", state_page as f64, "bytes", "convolution inputs and recurrent state of one layer");
        if !attention.is_empty() {
            let block = plan.block_tokens.unwrap_or_default() as f64;
            plan.add(
                "attention block size",
                block,
                "tokens",
                "k * ceil(state page / (k * bytes per token)), k the kernel's block",
            );
            let padding = 100.0 * (pool.page - state_page) as f64 / state_page as f64;
            plan.add("mamba page padding", padding, "%", "100 * (attention page - state page) / state page");
        }
    }
    plan.add(
        "layers in a group",
        pool.group_size as f64,
        "layers",
        "the smallest bucket; the largest if it is under 1.5 times as large",
    );
    plan.add("groups", pool.all_groups() as f64, "groups", "each bucket's layers over the group size, rounded up");
    plan.add("bytes per block", pool.bytes_per_block() as f64, "bytes", "layers in a group * page");
    let needed = pool.bytes(input.context, 1).total();
    plan.add("KV needed for one request", needed as f64, "bytes", "blocks of one request * bytes per block");
    let padded: u64 = pool.buckets.iter().map(|bucket| pool.groups(bucket) * pool.group_size - bucket.layers).sum();
    plan.add(
        "pages of padding layers in a set of blocks",
        padded as f64,
        "pages",
        "the last group of a bucket is filled up",
    );
}

/// What fits into the memory that is left.
fn fit(input: &PlanInput, plan: &mut MemoryPlan, pool: &Pool) -> Result<(), AuditError> {
    let blocks = match input.option_number("num_gpu_blocks_override")? {
        Some(blocks) => Some(blocks),
        None => available(input, plan)?.map(|bytes| bytes / pool.bytes_per_block().max(1)),
    };
    let Some(blocks) = blocks else { return Ok(()) };
    plan.available_bytes = plan.available_bytes.or(Some(blocks.saturating_mul(pool.bytes_per_block())));
    let held = pool.blocks_of_request(input.context);
    let concurrency = if held == 0 { 0.0 } else { blocks as f64 / held as f64 };
    let tokens = if input.older_than([0, 20, 1])? {
        let block = |bucket: &Bucket| match (bucket.reach, pool.mode) {
            (None, Mode::None) => input.context,
            _ => bucket.block,
        };
        (blocks / pool.all_groups().max(1)).saturating_mul(pool.buckets.iter().map(block).min().unwrap_or(0))
    } else {
        (concurrency * input.context as f64) as u64
    };
    plan.add("num_gpu_blocks", blocks as f64, "blocks", "memory for the cache / bytes per block, rounded down");
    plan.add(
        "GPU KV cache size",
        tokens as f64,
        "tokens",
        "maximum concurrency * context (until 0.20.1: blocks per group * tokens per block)",
    );
    plan.add("maximum concurrency", concurrency, "x", "blocks / blocks of one request");
    let room = |requests: u64| {
        largest(crate::MAX_CONTEXT, |context| {
            context == 0 || pool.blocks_of_request(context).saturating_mul(requests) <= blocks
        })
    };
    plan.add("estimated max model len", room(1) as f64, "tokens", "the longest context of which one request fits");
    (plan.tokens_fit, plan.requests_fit) = (Some(tokens), Some(concurrency as u64));
    plan.context_fit = Some(room(input.requests));
    Ok(())
}

fn available(input: &PlanInput, plan: &mut MemoryPlan) -> Result<Option<u64>, AuditError> {
    if let Some(bytes) = input.option_number("kv_cache_memory_bytes")? {
        plan.available_bytes = Some(bytes);
        return Ok(Some(bytes));
    }
    let Some(memory) = input.settings.memory else { return Ok(None) };
    let Some(weights) = input.weights() else {
        plan.unknown.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(None);
    };
    let share = match input.option_fraction("gpu_memory_utilization")? {
        Some(share) => share,
        None if input.older_than([0, 20, 0])? => 0.90,
        None => 0.92,
    };
    let overhead = input.option_number("overhead")?.unwrap_or(0);
    if input.option("overhead").is_none() {
        plan.assume("Activations, CUDA graphs and libraries take nothing: vLLM measures them; give `--set overhead=BYTES` from its log.");
    }
    plan.assume(format!("vLLM may use {share} of the memory (--gpu-memory-utilization)."));
    let requested = (memory as f64 * share).ceil() as u64;
    let left = requested.saturating_sub(weights).saturating_sub(overhead);
    if left == 0 {
        plan.unknown.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    plan.available_bytes = Some(left);
    Ok(Some(left))
}

fn flags(input: &PlanInput, plan: &mut MemoryPlan, format: CacheFormat, recurrent: bool) {
    let mut add = |flag: String| plan.flags.push(flag);
    add(format!("--max-model-len {}", input.context));
    if let Some(requests) = input.limited_requests() {
        add(format!("--max-num-seqs {requests}"));
    }
    if input.tp > 1 {
        add(format!("--tensor-parallel-size {}", input.tp));
    }
    if format != BF16_CACHE {
        add(format!("--kv-cache-dtype {}", format.name));
    }
    if let (Some(dtype), true) = (input.settings.state_dtype, recurrent) {
        let name = match dtype.name {
            "fp32" => "float32",
            "bf16" => "bfloat16",
            "fp16" => "float16",
            other => other,
        };
        add(format!("--mamba-ssm-cache-dtype {name}"));
    }
    if let Some(block) = plan.block_tokens.filter(|_| recurrent) {
        plan.flags.push(format!("--block-size {block}"));
    }
    if let Some(share) = input.option("gpu_memory_utilization") {
        plan.flags.push(format!("--gpu-memory-utilization {share}"));
    }
}
