//! SGLang: a pool of tokens for keys and values, and a pool of slots for recurrent state.
//!
//! # Rules
//! - The token pool has `tokens + page` rows of every attention layer's keys and values. Layers with a window have a pool
//!   of their own, a fixed share of the full layers' tokens (`--swa-full-tokens-ratio`).
//! - The state pool has `slots + 1` rows: convolution inputs in bf16, recurrent state in 32-bit floats unless the config or
//!   a flag says otherwise. A running request takes three slots with the radix cache and one without.
//! - Memory for both is split by `--mamba-full-memory-ratio` r: the state pool gets `r / (1 + r)` of the available memory.
//!
//! # Source
//! `mem_cache/kv_cache_configurator.py`, `mem_cache/memory_pool.py`, `model_executor/pool_configurator.py`, `server_args.py`
//! of sgl-project/sglang at `cce0a1244b5a` (after 0.5.18).

use super::layer_cache::RecurrentState;
use super::{BF16_CACHE, CacheBreakdown, CacheFormat, Engine, MemoryPlan, PlanInput, element_bytes, round_up};
use crate::{AuditError, BF16, Dtype, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The rules of SGLang.
pub(super) static ENGINE: Engine = Engine {
    name: "sglang",
    aliases: &["SGLang"],
    version: "0.5.18",
    options: &[
        ("mem_fraction_static", "share of the device's memory for weights and pools"),
        ("overhead", "bytes of the static share that neither weights nor pools use"),
        ("max_mamba_cache_size", "slots of the state pool, instead of computing them"),
        ("max_total_tokens", "tokens of the token pool, instead of computing them"),
        ("mamba_full_memory_ratio", "memory of the state pool over that of the token pool"),
        ("swa_full_tokens_ratio", "tokens of the window pool over those of the full pool"),
        ("page_size", "tokens in a page"),
        ("disable_radix_cache", "no prefix caching: one slot per request"),
        ("chunked_prefill_size", "tokens of one prefill step"),
    ],
    plan,
};

const GIB: f64 = 1_073_741_824.0;

/// One of the two pools of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenPool {
    /// That of layers that cache every token.
    Full,
    /// That of layers with a window.
    Window,
}

/// SGLang's settings for one plan.
struct SglangRules<'a> {
    input: &'a PlanInput<'a>,
    format: CacheFormat,
    state_dtype: Dtype,
    /// Tokens in a page.
    page_tokens: u64,
    /// Slots of the state pool that one running request takes.
    slots_per_request: u64,
    /// Tokens of the window pool over those of the full pool.
    window_token_ratio: f64,
}

impl SglangRules<'_> {
    /// Bytes on one device of one token's key or value vectors of `width` numbers.
    fn kv_vector_bytes(&self, kv: &KeyValueLayout, width: u64) -> u64 {
        kv.local_heads(self.input.tp).saturating_mul(self.format.bytes_without_vector_scales(width))
    }

    /// The sum of `bytes` over the layers of a pool.
    fn sum(&self, pool: TokenPool, bytes: impl Fn(&KeyValueLayout) -> u64) -> u64 {
        let pool_of =
            |kv: &KeyValueLayout| if kv.reach == CacheReach::All { TokenPool::Full } else { TokenPool::Window };
        let layers = self.input.caches.kv().filter(|kv| pool_of(kv) == pool);
        layers.map(|kv| bytes(&kv)).fold(0, u64::saturating_add)
    }

    /// Bytes of one token in all layers of a pool.
    fn token_bytes(&self, pool: TokenPool) -> u64 {
        // Index keys are 8-bit with one 32-bit scale for 128 of them.
        let index = |kv: &KeyValueLayout| kv.index_key_dim + 4 * kv.index_key_dim.div_ceil(128);
        self.sum(pool, |kv| {
            self.kv_vector_bytes(kv, kv.key_head_dim) + self.kv_vector_bytes(kv, kv.value_head_dim) + index(kv)
        })
    }

    /// Bytes of all layers' convolution inputs, of which `inputs` gives the number.
    fn conv_bytes(&self, inputs: impl Fn(&RecurrentState) -> u64) -> u64 {
        let bytes = |state: RecurrentState| element_bytes(state.conv_elements(self.input.tp, inputs(&state)), BF16);
        self.input.caches.states().map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of all layers' recurrent state.
    fn state_bytes(&self) -> u64 {
        let bytes = |state: RecurrentState| element_bytes(state.recurrent_elements(self.input.tp), self.state_dtype);
        self.input.caches.states().map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of one slot of the state pool.
    fn slot_bytes(&self) -> u64 {
        self.conv_bytes(|state| state.layout.kernel_size.saturating_sub(1)).saturating_add(self.state_bytes())
    }

    /// Bytes of scratch state for the drafted tokens of `requests` running requests.
    fn draft_bytes(&self, requests: u64) -> u64 {
        let draft_tokens = self.input.settings.speculative;
        if draft_tokens == 0 || self.slot_bytes() == 0 {
            return 0;
        }
        let conv = self.conv_bytes(|state| draft_tokens + state.layout.kernel_size.saturating_sub(2));
        self.state_bytes().saturating_mul(draft_tokens).saturating_add(conv).saturating_mul(requests + 1)
    }

    fn cache_bytes(&self, tokens: u64, slots: u64, requests: u64) -> CacheBreakdown {
        let rows = tokens.saturating_add(self.page_tokens);
        let window_tokens =
            (tokens as f64 * self.window_token_ratio) as u64 / self.page_tokens * self.page_tokens + self.page_tokens;
        let state = if self.slot_bytes() == 0 { 0 } else { self.slot_bytes().saturating_mul(slots + 1) };
        CacheBreakdown {
            kv: self.token_bytes(TokenPool::Full).saturating_mul(rows),
            window: self.token_bytes(TokenPool::Window).saturating_mul(window_tokens),
            state: state.saturating_add(self.draft_bytes(requests)),
        }
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    add_unsupported(input, plan);
    if !plan.unknown_reasons.is_empty() && !input.settings.skip_unsupported_layers {
        return Ok(());
    }
    let rules = read_rules(input, plan)?;
    plan.state_dtype = rules.state_dtype.name;
    let tokens = match input.option_number("max_total_tokens")? {
        Some(tokens) => tokens,
        None => round_up(input.context, rules.page_tokens).saturating_mul(input.requests),
    };
    let slots = match input.option_number("max_mamba_cache_size")? {
        Some(slots) => slots,
        None => input.requests.saturating_mul(rules.slots_per_request),
    };
    plan.block_tokens = Some(rules.page_tokens);
    plan.page_bytes = Some(rules.token_bytes(TokenPool::Full).saturating_mul(rules.page_tokens));
    plan.set_bytes(rules.cache_bytes(tokens, slots, input.requests));
    plan.bytes_per_token = Some(rules.token_bytes(TokenPool::Full));
    plan.bytes_per_request =
        Some(rules.cache_bytes(round_up(input.context, rules.page_tokens), rules.slots_per_request, 1).total());
    add_metrics(plan, &rules, tokens, slots);
    add_fit(input, plan, &rules)?;
    add_flags(input, plan, &rules);
    Ok(())
}

fn add_unsupported(input: &PlanInput, plan: &mut MemoryPlan) {
    if let Some(state) = input.caches.states().find(|state| !state.is_covered_by(&ENGINE)) {
        plan.unknown_reasons.push(format!("SGLang's rules here do not cover state of `{}`", state.mixer));
    }
    if input.caches.kv().any(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
        plan.unknown_reasons.push("SGLang's compressed caches are not covered".to_owned());
    }
}

fn read_rules<'a>(input: &'a PlanInput, plan: &mut MemoryPlan) -> Result<SglangRules<'a>, AuditError> {
    let page = input.option_number("page_size")?.unwrap_or(1);
    if !(1..=1 << 20).contains(&page) {
        return Err(AuditError::invalid_argument(&page.to_string(), "`page_size` is 1 to 1048576 tokens"));
    }
    let has_radix_cache = !input.option_flag("disable_radix_cache", false)?;
    if has_radix_cache && input.caches.states().next().is_some() {
        plan.add_assumption("With the radix cache a running request takes three slots of the state pool.");
    }
    Ok(SglangRules {
        input,
        format: input.settings.kv_format.unwrap_or(BF16_CACHE),
        state_dtype: input.settings.state_dtype.or(input.audit.declared_state_dtype).unwrap_or(FP32),
        page_tokens: page,
        slots_per_request: if has_radix_cache { 3 } else { 1 },
        window_token_ratio: input.option_fraction("swa_full_tokens_ratio")?.unwrap_or(0.8),
    })
}

fn add_metrics(plan: &mut MemoryPlan, rules: &SglangRules, tokens: u64, slots: u64) {
    let rows = tokens.saturating_add(rules.page_tokens);
    let mut add = |name, bytes: u64, rule| plan.add_metric(name, bytes as f64 / GIB, "GiB", rule);
    let key_bytes = rules.sum(TokenPool::Full, |kv| rules.kv_vector_bytes(kv, kv.key_head_dim));
    let kv_bytes = rules.sum(TokenPool::Full, |kv| {
        rules.kv_vector_bytes(kv, kv.key_head_dim) + rules.kv_vector_bytes(kv, kv.value_head_dim)
    });
    add("K size", key_bytes.saturating_mul(rows), "(tokens + page) * layers * heads / tp * head width * bytes");
    add("KV size", kv_bytes.saturating_mul(rows), "(tokens + page) * layers * bytes of keys and values");
    if rules.slot_bytes() > 0 {
        let conv_bytes = rules.conv_bytes(|state| state.layout.kernel_size.saturating_sub(1));
        add(
            "conv_state size",
            conv_bytes.saturating_mul(slots + 1),
            "(slots + 1) * layers * convolution inputs * 2 bytes",
        );
        add("ssm_state size", rules.state_bytes().saturating_mul(slots + 1), "(slots + 1) * layers * state * bytes");
    }
    plan.add_metric("tokens of the pool", tokens as f64, "tokens", "requests * context, or --max-total-tokens");
    if rules.slot_bytes() > 0 {
        plan.add_metric(
            "slots of the state pool",
            slots as f64,
            "slots",
            "requests * slots per request, or --max-mamba-cache-size",
        );
    }
}

/// Adds the tokens, requests and context that fit into the memory.
fn add_fit(input: &PlanInput, plan: &mut MemoryPlan, rules: &SglangRules) -> Result<(), AuditError> {
    let Some(memory) = input.settings.memory else { return Ok(()) };
    let Some(weights) = input.weight_bytes() else {
        plan.unknown_reasons.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(());
    };
    let static_fraction = match input.option_fraction("mem_fraction_static")? {
        Some(static_fraction) => static_fraction,
        None => default_static_fraction(input, memory)?,
    };
    plan.add_assumption(format!("Weights and pools take {static_fraction} of the memory (--mem-fraction-static)."));
    if input.option("overhead").is_none() {
        plan.add_assumption("Nothing else is in the static share; give `--set overhead=BYTES` from SGLang's log.");
    }
    let overhead = input.option_number("overhead")?.unwrap_or(0);
    let available = ((memory as f64 * static_fraction) as u64).saturating_sub(weights).saturating_sub(overhead);
    plan.available_bytes = Some(available);
    if available == 0 {
        plan.unknown_reasons.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    let ratio = match input.option("mamba_full_memory_ratio") {
        Some(text) => text
            .parse()
            .ok()
            .filter(|ratio: &f64| *ratio > 0.0 && *ratio <= 1e6)
            .ok_or_else(|| AuditError::invalid_argument(text, "`mamba_full_memory_ratio` is a number above 0"))?,
        None => 0.9,
    };
    let slot_bytes = rules.slot_bytes();
    let state_budget = if slot_bytes == 0 { 0 } else { (available as f64 * ratio / (1.0 + ratio)) as u64 };
    let slots = slots_that_fit(rules, state_budget);
    let window_bytes = rules.token_bytes(TokenPool::Window) as f64 * rules.window_token_ratio;
    let token_bytes = rules.token_bytes(TokenPool::Full) as f64 + window_bytes;
    let tokens = if token_bytes == 0.0 {
        0
    } else {
        ((available - state_budget) as f64 / token_bytes) as u64 / rules.page_tokens * rules.page_tokens
    };
    plan.tokens_fit = Some(tokens);
    let requests_by_tokens = if token_bytes == 0.0 { super::MAX_COUNT } else { tokens / input.context.max(1) };
    let requests_by_slots = if slot_bytes == 0 { u64::MAX } else { slots / rules.slots_per_request };
    plan.requests_fit = Some(requests_by_tokens.min(requests_by_slots));
    let has_enough_slots = slot_bytes == 0 || slots >= input.requests.saturating_mul(rules.slots_per_request);
    plan.context_fit = Some(if has_enough_slots { tokens / input.requests } else { 0 });
    if slot_bytes > 0 {
        plan.add_metric("slots that fit", slots as f64, "slots", "(budget - slot) / slot, budget = rest * r / (1 + r)");
    }
    Ok(())
}

fn slots_that_fit(rules: &SglangRules, budget: u64) -> u64 {
    let (slot_bytes, draft_tokens) = (rules.slot_bytes(), rules.input.settings.speculative);
    if slot_bytes == 0 {
        return 0;
    }
    let reserved = slot_bytes.saturating_mul(1 + draft_tokens);
    let bytes_per_slot = slot_bytes as f64 * (1.0 + draft_tokens as f64 / rules.slots_per_request as f64);
    (budget.saturating_sub(reserved) as f64 / bytes_per_slot) as u64
}

/// SGLang's default of `--mem-fraction-static`: all memory except a reserve for prefill and CUDA graphs.
fn default_static_fraction(input: &PlanInput, memory: u64) -> Result<f64, AuditError> {
    let mib = memory as f64 / 1_048_576.0;
    let gib = mib / 1024.0;
    let default_tokens = if gib < 35.0 {
        2048
    } else if gib < 60.0 {
        4096
    } else if gib < 160.0 {
        8192
    } else {
        16384
    };
    let prefill_tokens = input.option_number("chunked_prefill_size")?.unwrap_or(default_tokens).max(2048);
    let reserve = 512.0 + 1.5 * prefill_tokens as f64 + 128.0 * input.tp as f64;
    let reserve = if gib > 60.0 { reserve.max(10_240.0) } else { reserve };
    Ok((1000.0 * (1.0 - reserve / mib)).round().max(1.0) / 1000.0)
}

fn add_flags(input: &PlanInput, plan: &mut MemoryPlan, rules: &SglangRules) {
    let mut add = |flag: String| plan.flags.push(flag);
    add(format!("--context-length {}", input.context));
    if let Some(requests) = input.request_limit() {
        add(format!("--max-running-requests {requests}"));
    }
    if input.tp > 1 {
        add(format!("--tp {}", input.tp));
    }
    let (slot_bytes, token_bytes) = (rules.slot_bytes(), rules.token_bytes(TokenPool::Full));
    if slot_bytes > 0 && token_bytes > 0 {
        // Both pools run out at the same number of requests of the context.
        let ratio = (rules.slots_per_request.saturating_mul(slot_bytes)) as f64
            / (token_bytes.saturating_mul(input.context)) as f64;
        add(format!("--mamba-full-memory-ratio {ratio:.4}"));
        plan.add_assumption(
            "The ratio lets both pools run out at the same number of requests, each as long as the context.",
        );
    }
}
