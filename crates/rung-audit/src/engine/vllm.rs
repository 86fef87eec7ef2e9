//! vLLM: one pool of equally large blocks for all groups of layers.
//!
//! # Rules
//! - A page is what one layer stores in one block. In hybrids the attention block is enlarged until its page is at least
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

use super::layer_cache::RecurrentState;
use super::{BF16_CACHE, CacheBreakdown, CacheFormat, Engine, MemoryPlan, PlanInput, element_bytes, largest_fitting};
use crate::{AuditError, BF16, Dtype, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The rules of vLLM.
pub(super) static ENGINE: Engine = Engine {
    name: "vllm",
    aliases: &["vLLM"],
    version: "0.26.1",
    options: &[
        ("gpu_memory_utilization", "share of the device's memory that vLLM may use"),
        ("overhead", "bytes of activations, CUDA graphs and libraries on one device"),
        ("kv_cache_memory_bytes", "bytes for the cache, instead of computing them"),
        ("num_gpu_blocks_override", "blocks of the cache, instead of computing them"),
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

/// vLLM's `mamba_cache_mode`: which recurrent states are cached for prefix caching.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MambaCacheMode {
    None,
    Align,
    All,
}

/// Layers with the same kind of cache.
struct Bucket {
    /// None for recurrent layers.
    reach: Option<CacheReach>,
    /// Number of layers.
    layer_count: u64,
    /// Tokens in one of its blocks.
    block_tokens: u64,
}

/// The pool that all groups share.
struct Pool {
    buckets: Vec<Bucket>,
    /// Layers in a group.
    group_size: u64,
    /// Bytes of one layer in one block.
    page_bytes: u64,
    mode: MambaCacheMode,
    speculative: u64,
    /// Tokens that concurrently scheduled steps may add to a window.
    in_flight_tokens: u64,
}

impl Pool {
    fn group_count(&self, bucket: &Bucket) -> u64 {
        bucket.layer_count.div_ceil(self.group_size)
    }

    fn total_group_count(&self) -> u64 {
        self.buckets.iter().map(|bucket| self.group_count(bucket)).sum()
    }

    fn bytes_per_block(&self) -> u64 {
        self.group_size.saturating_mul(self.page_bytes)
    }

    /// Blocks that a request of `context` tokens takes in one group of a bucket.
    fn blocks_per_group(&self, bucket: &Bucket, context: u64) -> u64 {
        match (bucket.reach, self.mode) {
            (Some(CacheReach::Window(window)), _) => {
                (window - 1).saturating_add(self.in_flight_tokens).min(context).div_ceil(bucket.block_tokens) + 1
            }
            (Some(CacheReach::Chunk(chunk)), _) => {
                chunk.saturating_add(self.in_flight_tokens).min(context).div_ceil(bucket.block_tokens)
            }
            (Some(_), _) => context.div_ceil(bucket.block_tokens),
            (None, MambaCacheMode::None) => 1 + self.speculative,
            (None, MambaCacheMode::Align) => 2 + self.speculative,
            (None, MambaCacheMode::All) => context.div_ceil(bucket.block_tokens) + self.speculative,
        }
    }

    fn blocks_per_request(&self, context: u64) -> u64 {
        let blocks = |bucket: &Bucket| self.group_count(bucket).saturating_mul(self.blocks_per_group(bucket, context));
        self.buckets.iter().map(blocks).fold(0, u64::saturating_add)
    }

    fn bytes(&self, context: u64, requests: u64) -> CacheBreakdown {
        let mut sum = CacheBreakdown::default();
        for bucket in &self.buckets {
            let blocks = self
                .group_count(bucket)
                .saturating_mul(self.blocks_per_group(bucket, context))
                .saturating_mul(requests);
            let bytes = match bucket.reach {
                None => &mut sum.state,
                Some(CacheReach::Window(_) | CacheReach::Chunk(_)) => &mut sum.window,
                Some(_) => &mut sum.kv,
            };
            *bytes = bytes.saturating_add(blocks.saturating_mul(self.bytes_per_block()));
        }
        sum
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    let format = input.settings.kv_format.unwrap_or(BF16_CACHE);
    plan.unknown_reasons.extend(unsupported_layers(input));
    if !plan.unknown_reasons.is_empty() && !input.settings.skip_unsupported_layers {
        return Ok(());
    }
    let states: Vec<RecurrentState> = input.caches.states().filter(|state| state.is_covered_by(&ENGINE)).collect();
    let state_dtype = states.first().map_or(FP32, |first| state_dtype(input, first));
    plan.state_dtype = state_dtype.name;
    let mode = mamba_cache_mode(input, plan)?;
    let attention = attention_layers(input, format)?;
    let state_page_bytes = states.iter().map(|state| state_bytes(input, state, state_dtype)).max().unwrap_or(0);
    let Some(pool) = build_pool(input, plan, &attention, &states, state_page_bytes, mode)? else { return Ok(()) };
    plan.block_tokens = pool.buckets.iter().find(|bucket| bucket.reach.is_some()).map(|bucket| bucket.block_tokens);
    plan.page_bytes = Some(pool.page_bytes);
    plan.set_bytes(pool.bytes(input.context, input.requests));
    plan.bytes_per_request = Some(pool.bytes(input.context, 1).total());
    plan.bytes_per_token = Some(bytes_per_token(&pool));
    add_metrics(input, plan, &pool, state_page_bytes, &attention);
    add_fit(input, plan, &pool)?;
    add_flags(input, plan, format, !states.is_empty());
    Ok(())
}

/// Bytes that one more token takes on average: the bytes of a full group's block over the block's tokens.
fn bytes_per_token(pool: &Pool) -> u64 {
    let is_full = |bucket: &&Bucket| matches!(bucket.reach, Some(CacheReach::All));
    let full_buckets = pool.buckets.iter().filter(is_full);
    full_buckets.map(|bucket| (pool.group_count(bucket) * pool.bytes_per_block()).div_ceil(bucket.block_tokens)).sum()
}

/// Reasons why these rules do not cover the model's layers.
fn unsupported_layers(input: &PlanInput) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut add = |reason: String| {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    };
    for layer in &input.caches.layers {
        if let Some(state) = layer.state.filter(|state| !state.is_covered_by(&ENGINE)) {
            add(format!("vLLM's rules here do not cover state of `{}`", state.mixer));
        }
        if layer.state.is_some_and(|state| state.is_convolution()) && layer.kv.is_some() {
            add("vLLM's rules here do not cover a convolution before attention".to_owned());
        }
        if layer.kv.is_some_and(|kv| kv.index_key_dim > 0) {
            add("vLLM packs index keys in a layout that these rules do not cover".to_owned());
        }
        if layer.kv.is_some_and(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
            add("vLLM packs compressed caches in a layout that these rules do not cover".to_owned());
        }
    }
    reasons
}

/// The format of recurrent state: the user's setting, else the default of the model's class.
fn state_dtype(input: &PlanInput, state: &RecurrentState) -> Dtype {
    if let Some(dtype) = input.settings.state_dtype {
        return dtype;
    }
    let name = input.audit.architecture.as_deref().unwrap_or_default();
    let declared = input.audit.declared_state_dtype;
    match state.mixer {
        "kda" => FP32,
        _ if name.starts_with("qwen3_5") || name.starts_with("nemotron_h") => declared.unwrap_or(FP32),
        _ => input.audit.model_dtype.unwrap_or(BF16),
    }
}

fn mamba_cache_mode(input: &PlanInput, plan: &mut MemoryPlan) -> Result<MambaCacheMode, AuditError> {
    match input.option("mamba_cache_mode") {
        Some("none") => Ok(MambaCacheMode::None),
        Some("align") => Ok(MambaCacheMode::Align),
        Some("all") => Ok(MambaCacheMode::All),
        Some(text) => Err(AuditError::invalid_argument(text, "`mamba_cache_mode` is none, align or all")),
        None if input.is_older_than([0, 20, 0])? => Ok(MambaCacheMode::None),
        None => {
            if input.caches.states().next().is_some() {
                plan.add_assumption(
                    "Prefix caching is on, so each recurrent group holds two blocks per request (mode align).",
                );
            }
            Ok(MambaCacheMode::Align)
        }
    }
}

/// The number of attention layers for each reach and bytes per token.
type AttentionLayers = BTreeMap<(CacheReach, u64), u64>;

fn attention_layers(input: &PlanInput, format: CacheFormat) -> Result<AttentionLayers, AuditError> {
    let per_token = |kv: &KeyValueLayout| {
        kv.local_heads(input.tp)
            .saturating_mul(format.vector_bytes(kv.key_head_dim).saturating_add(format.vector_bytes(kv.value_head_dim)))
    };
    let mut layers = AttentionLayers::new();
    for kv in input.caches.kv().filter(|kv| !matches!(kv.reach, CacheReach::Compressed { .. })) {
        *layers.entry((kv.reach, per_token(&kv))).or_default() += 1;
    }
    let mtp_layers = if input.settings.speculative > 0 { input.audit.mtp_layer_count } else { 0 };
    let draft_layers = input.option_number("draft_full_layers")?.unwrap_or(mtp_layers);
    let window_layers = input.option_number("draft_window_layers")?.unwrap_or(0);
    // The draft's layers have the sizes of the model's full layers.
    let Some((_, bytes)) = layers.keys().find(|(reach, _)| *reach == CacheReach::All).copied() else {
        return Ok(layers);
    };
    if draft_layers > 0 {
        *layers.entry((CacheReach::All, bytes)).or_default() += draft_layers;
    }
    if window_layers > 0 {
        let window = input.option_number("draft_window")?.filter(|&window| window > 0);
        let window =
            window.ok_or_else(|| AuditError::invalid_argument("draft_window_layers", "needs `draft_window` too"))?;
        *layers.entry((CacheReach::Window(window), bytes)).or_default() += window_layers;
    }
    Ok(layers)
}

/// Bytes of one layer's state: convolution inputs in the activations' format, those of drafted tokens included.
fn state_bytes(input: &PlanInput, state: &RecurrentState, dtype: Dtype) -> u64 {
    let draft_tokens = if state.mixer == "mamba1" { 0 } else { input.settings.speculative };
    let inputs =
        state.layout.kernel_size.saturating_sub(1) + if state.layout.kernel_size == 0 { 0 } else { draft_tokens };
    let conv_bytes = element_bytes(state.conv_elements(input.tp, inputs), input.audit.model_dtype.unwrap_or(BF16));
    let recurrent_bytes = element_bytes(state.recurrent_elements(input.tp), dtype);
    conv_bytes.saturating_add(recurrent_bytes)
}

/// Groups the layers and sizes the blocks; nothing if no layer caches anything.
fn build_pool(
    input: &PlanInput,
    plan: &mut MemoryPlan,
    attention: &AttentionLayers,
    states: &[RecurrentState],
    state_page_bytes: u64,
    mode: MambaCacheMode,
) -> Result<Option<Pool>, AuditError> {
    let max_token_bytes = attention.keys().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    if max_token_bytes == 0 && state_page_bytes == 0 {
        plan.unknown_reasons.push("no layer caches anything, so there is no pool to plan".to_owned());
        return Ok(None);
    }
    let is_latent = input.caches.kv().any(|kv| kv.latent);
    let kernel_block_tokens = input.option_number("kernel_block")?.unwrap_or(if is_latent { 128 } else { 16 });
    let user_block_tokens = input.option_number("block_size")?.unwrap_or(0);
    if !(1..=1 << 20).contains(&kernel_block_tokens) || user_block_tokens > 1 << 30 {
        return Err(AuditError::invalid_argument("kernel_block", "blocks have 1 to 1048576 tokens"));
    }
    // The block is aligned to the state's page with the full layers' bytes per token; without a recurrence it is the kernel's.
    let full_token_bytes =
        attention.keys().find(|(reach, _)| *reach == CacheReach::All).map_or(max_token_bytes, |(_, bytes)| *bytes);
    let min_block_tokens = kernel_block_tokens.max(user_block_tokens);
    let aligned_block_tokens = if full_token_bytes == 0 {
        min_block_tokens
    } else {
        min_block_tokens * state_page_bytes.div_ceil((min_block_tokens * full_token_bytes).max(1)).max(1)
    };
    let block_tokens = if states.is_empty() || full_token_bytes == 0 { min_block_tokens } else { aligned_block_tokens };
    let page_bytes = (block_tokens.saturating_mul(max_token_bytes)).max(state_page_bytes);
    // A layer with fewer bytes per token gets a larger block where that fits exactly, else padding.
    let layer_block_tokens = |bytes: u64| {
        let block_ratio = if bytes > 0 && max_token_bytes.is_multiple_of(bytes) { max_token_bytes / bytes } else { 1 };
        block_tokens.saturating_mul(block_ratio)
    };
    let mut buckets: Vec<Bucket> = Vec::new();
    for ((reach, bytes), layers) in attention {
        buckets.push(Bucket { reach: Some(*reach), layer_count: *layers, block_tokens: layer_block_tokens(*bytes) });
    }
    if !states.is_empty() {
        buckets.push(Bucket {
            reach: None,
            layer_count: states.len() as u64,
            block_tokens: if full_token_bytes == 0 { input.context } else { block_tokens },
        });
    }
    let (min_layers, max_layers) = (
        buckets.iter().map(|bucket| bucket.layer_count).min().unwrap_or(1),
        buckets.iter().map(|bucket| bucket.layer_count).max().unwrap_or(1),
    );
    let default_size = if 2 * max_layers < 3 * min_layers { max_layers } else { min_layers };
    let group_size = input.option_number("group_size")?.filter(|&size| size > 0).unwrap_or(default_size);
    let steps = if input.option_flag("async_scheduling", true)? { 2 } else { 1 };
    let batch_tokens = input.option_number("max_num_batched_tokens")?;
    if batch_tokens.is_none() && attention.keys().any(|(reach, _)| *reach != CacheReach::All) {
        plan.add_assumption(
            "Windows hold what steps in flight add: two steps of 2,048 tokens (`max_num_batched_tokens`).",
        );
    }
    let in_flight_tokens = batch_tokens.unwrap_or(2048).saturating_mul(steps);
    Ok(Some(Pool { buckets, group_size, page_bytes, mode, speculative: input.settings.speculative, in_flight_tokens }))
}

fn add_metrics(
    input: &PlanInput,
    plan: &mut MemoryPlan,
    pool: &Pool,
    state_page_bytes: u64,
    attention: &AttentionLayers,
) {
    if state_page_bytes > 0 {
        plan.add_metric(
            "ssm+conv page",
            state_page_bytes as f64,
            "bytes",
            "convolution inputs and recurrent state of one layer",
        );
        if !attention.is_empty() {
            let block_tokens = plan.block_tokens.unwrap_or_default() as f64;
            plan.add_metric(
                "attention block size",
                block_tokens,
                "tokens",
                "k * ceil(state page / (k * bytes per token)), k the kernel's block",
            );
            let padding = 100.0 * (pool.page_bytes - state_page_bytes) as f64 / state_page_bytes as f64;
            plan.add_metric("mamba page padding", padding, "%", "100 * (attention page - state page) / state page");
        }
    }
    plan.add_metric(
        "layers in a group",
        pool.group_size as f64,
        "layers",
        "the smallest bucket; the largest if it is under 1.5 times as large",
    );
    plan.add_metric(
        "groups",
        pool.total_group_count() as f64,
        "groups",
        "each bucket's layers over the group size, rounded up",
    );
    plan.add_metric("bytes per block", pool.bytes_per_block() as f64, "bytes", "layers in a group * page");
    let request_bytes = pool.bytes(input.context, 1).total();
    plan.add_metric(
        "KV needed for one request",
        request_bytes as f64,
        "bytes",
        "blocks of one request * bytes per block",
    );
    let padding_layers: u64 =
        pool.buckets.iter().map(|bucket| pool.group_count(bucket) * pool.group_size - bucket.layer_count).sum();
    plan.add_metric(
        "pages of padding layers in a set of blocks",
        padding_layers as f64,
        "pages",
        "the last group of a bucket is filled up",
    );
}

/// Adds the tokens, requests and context that fit into the memory.
fn add_fit(input: &PlanInput, plan: &mut MemoryPlan, pool: &Pool) -> Result<(), AuditError> {
    let blocks = match input.option_number("num_gpu_blocks_override")? {
        Some(blocks) => Some(blocks),
        None => available_bytes(input, plan)?.map(|bytes| bytes / pool.bytes_per_block().max(1)),
    };
    let Some(blocks) = blocks else { return Ok(()) };
    plan.available_bytes = plan.available_bytes.or(Some(blocks.saturating_mul(pool.bytes_per_block())));
    let request_blocks = pool.blocks_per_request(input.context);
    let concurrency = if request_blocks == 0 { 0.0 } else { blocks as f64 / request_blocks as f64 };
    let tokens = if input.is_older_than([0, 20, 1])? {
        let block_tokens = |bucket: &Bucket| match (bucket.reach, pool.mode) {
            (None, MambaCacheMode::None) => input.context,
            _ => bucket.block_tokens,
        };
        (blocks / pool.total_group_count().max(1))
            .saturating_mul(pool.buckets.iter().map(block_tokens).min().unwrap_or(0))
    } else {
        (concurrency * input.context as f64) as u64
    };
    plan.add_metric("num_gpu_blocks", blocks as f64, "blocks", "memory for the cache / bytes per block, rounded down");
    plan.add_metric(
        "GPU KV cache size",
        tokens as f64,
        "tokens",
        "maximum concurrency * context (until 0.20.1: blocks per group * tokens per block)",
    );
    plan.add_metric("maximum concurrency", concurrency, "x", "blocks / blocks of one request");
    let longest_context = |requests: u64| {
        largest_fitting(crate::MAX_CONTEXT, |context| {
            context == 0 || pool.blocks_per_request(context).saturating_mul(requests) <= blocks
        })
    };
    plan.add_metric(
        "estimated max model len",
        longest_context(1) as f64,
        "tokens",
        "the longest context of which one request fits",
    );
    (plan.tokens_fit, plan.requests_fit) = (Some(tokens), Some(concurrency as u64));
    plan.context_fit = Some(longest_context(input.requests));
    Ok(())
}

/// Bytes for the cache on one device; nothing if the memory or the weights are not known.
fn available_bytes(input: &PlanInput, plan: &mut MemoryPlan) -> Result<Option<u64>, AuditError> {
    if let Some(bytes) = input.option_number("kv_cache_memory_bytes")? {
        plan.available_bytes = Some(bytes);
        return Ok(Some(bytes));
    }
    let Some(memory) = input.settings.memory else { return Ok(None) };
    let Some(weights) = input.weight_bytes() else {
        plan.unknown_reasons.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(None);
    };
    let memory_fraction = match input.option_fraction("gpu_memory_utilization")? {
        Some(memory_fraction) => memory_fraction,
        None if input.is_older_than([0, 20, 0])? => 0.90,
        None => 0.92,
    };
    let overhead = input.option_number("overhead")?.unwrap_or(0);
    if input.option("overhead").is_none() {
        plan.add_assumption("Activations, CUDA graphs and libraries take nothing: vLLM measures them; give `--set overhead=BYTES` from its log.");
    }
    plan.add_assumption(format!("vLLM may use {memory_fraction} of the memory (--gpu-memory-utilization)."));
    let requested = (memory as f64 * memory_fraction).ceil() as u64;
    let available = requested.saturating_sub(weights).saturating_sub(overhead);
    if available == 0 {
        plan.unknown_reasons.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    plan.available_bytes = Some(available);
    Ok(Some(available))
}

fn add_flags(input: &PlanInput, plan: &mut MemoryPlan, format: CacheFormat, has_recurrent: bool) {
    let mut add = |flag: String| plan.flags.push(flag);
    add(format!("--max-model-len {}", input.context));
    if let Some(requests) = input.request_limit() {
        add(format!("--max-num-seqs {requests}"));
    }
    if input.tp > 1 {
        add(format!("--tensor-parallel-size {}", input.tp));
    }
    if format != BF16_CACHE {
        add(format!("--kv-cache-dtype {}", format.name));
    }
    if let (Some(dtype), true) = (input.settings.state_dtype, has_recurrent) {
        let name = match dtype.name {
            "fp32" => "float32",
            "bf16" => "bfloat16",
            "fp16" => "float16",
            other => other,
        };
        add(format!("--mamba-ssm-cache-dtype {name}"));
    }
    if let Some(block) = plan.block_tokens.filter(|_| has_recurrent) {
        plan.flags.push(format!("--block-size {block}"));
    }
    if let Some(memory_fraction) = input.option("gpu_memory_utilization") {
        plan.flags.push(format!("--gpu-memory-utilization {memory_fraction}"));
    }
}
