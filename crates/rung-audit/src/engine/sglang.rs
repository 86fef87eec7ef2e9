//! SGLang: a pool of tokens for keys and values, and a pool of slots for recurrent state.
//!
//! # Rules
//! - The token pool has `tokens + page` rows of every attention layer's keys and values. Layers with a window have a pool
//!   of their own, a fixed share of the full layers' tokens (`--swa-full-tokens-ratio`).
//! - The state pool has `slots + 1` rows: convolution inputs in bf16, recurrent state in 32-bit floats unless the config or
//!   a flag says otherwise. A running request takes three slots with the radix cache and one without.
//! - Memory for both is split by `--mamba-full-memory-ratio` r: the state pool gets `r / (1 + r)` of what is left.
//!
//! # Source
//! `mem_cache/kv_cache_configurator.py`, `mem_cache/memory_pool.py`, `model_executor/pool_configurator.py`, `server_args.py`
//! of sgl-project/sglang at `cce0a1244b5a` (after 0.5.18).

use super::demand::RecurrentState;
use super::{BF16_CACHE, CacheFormat, CacheParts, Engine, MemoryPlan, PlanInput, bytes_of, pad, request};
use crate::{AuditError, BF16, Dtype, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The engine.
pub(super) static ENGINE: Engine = Engine {
    name: "sglang",
    aliases: &["SGLang"],
    version: "0.5.18",
    options: &[
        ("mem_fraction_static", "share of the device's memory for weights and pools"),
        ("overhead", "bytes of the static share that neither weights nor pools use"),
        ("max_mamba_cache_size", "slots of the state pool, instead of working them out"),
        ("max_total_tokens", "tokens of the token pool, instead of working them out"),
        ("mamba_full_memory_ratio", "memory of the state pool over that of the token pool"),
        ("swa_full_tokens_ratio", "tokens of the window pool over those of the full pool"),
        ("page_size", "tokens in a page"),
        ("disable_radix_cache", "no prefix caching: one slot a request"),
        ("chunked_prefill_size", "tokens of one prefill step"),
    ],
    plan,
};

const GIB: f64 = 1_073_741_824.0;

struct Rules<'a> {
    input: &'a PlanInput<'a>,
    format: CacheFormat,
    state_dtype: Dtype,
    page: u64,
    /// Slots that one running request takes.
    slots: u64,
    window_share: f64,
}

impl Rules<'_> {
    fn local(&self, kv: &KeyValueLayout, width: u64) -> u64 {
        kv.local_heads(self.input.tp).saturating_mul(self.format.row(width))
    }

    fn sum(&self, of: impl Fn(&KeyValueLayout) -> u64, full: bool) -> u64 {
        let chosen = self.input.demands.kv().filter(|kv| (kv.reach == CacheReach::All) == full);
        chosen.map(|kv| of(&kv)).fold(0, u64::saturating_add)
    }

    /// Bytes of one token in all layers that see everything, or in all that have a window.
    fn cell(&self, full: bool) -> u64 {
        // Index keys are 8-bit with one 32-bit scale for 128 of them.
        let index = |kv: &KeyValueLayout| kv.index + 4 * kv.index.div_ceil(128);
        self.sum(|kv| self.local(kv, kv.key) + self.local(kv, kv.value) + index(kv), full)
    }

    fn convolution(&self, columns: impl Fn(&RecurrentState) -> u64) -> u64 {
        let one = |state: RecurrentState| bytes_of(state.convolution(self.input.tp, columns(&state)), BF16);
        self.input.demands.states().map(one).fold(0, u64::saturating_add)
    }

    fn recurrent(&self) -> u64 {
        let one = |state: RecurrentState| bytes_of(state.recurrence(self.input.tp), self.state_dtype);
        self.input.demands.states().map(one).fold(0, u64::saturating_add)
    }

    /// RecurrentState bytes of one slot.
    fn slot(&self) -> u64 {
        self.convolution(|state| state.layout.kernel_size.saturating_sub(1)).saturating_add(self.recurrent())
    }

    /// Scratch for drafted tokens of so many running requests.
    fn drafts(&self, requests: u64) -> u64 {
        let drafts = self.input.settings.speculative;
        if drafts == 0 || self.slot() == 0 {
            return 0;
        }
        let columns = self.convolution(|state| drafts + state.layout.kernel_size.saturating_sub(2));
        self.recurrent().saturating_mul(drafts).saturating_add(columns).saturating_mul(requests + 1)
    }

    fn bytes(&self, tokens: u64, slots: u64, requests: u64) -> CacheParts {
        let rows = tokens.saturating_add(self.page);
        let window = (tokens as f64 * self.window_share) as u64 / self.page * self.page + self.page;
        let state = if self.slot() == 0 { 0 } else { self.slot().saturating_mul(slots + 1) };
        CacheParts {
            kv: self.cell(true).saturating_mul(rows),
            window: self.cell(false).saturating_mul(window),
            state: state.saturating_add(self.drafts(requests)),
        }
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    unsupported(input, plan);
    if !plan.unknown.is_empty() && !input.settings.partial {
        return Ok(());
    }
    let rules = rules(input, plan)?;
    plan.state_dtype = rules.state_dtype.name;
    let tokens = match input.option_number("max_total_tokens")? {
        Some(tokens) => tokens,
        None => pad(input.context, rules.page).saturating_mul(input.requests),
    };
    let slots = match input.option_number("max_mamba_cache_size")? {
        Some(slots) => slots,
        None => input.requests.saturating_mul(rules.slots),
    };
    plan.block_tokens = Some(rules.page);
    plan.page_bytes = Some(rules.cell(true).saturating_mul(rules.page));
    plan.set_bytes(rules.bytes(tokens, slots, input.requests));
    plan.bytes_per_token = Some(rules.cell(true));
    plan.bytes_per_request = Some(rules.bytes(pad(input.context, rules.page), rules.slots, 1).total());
    figures(plan, &rules, tokens, slots);
    fit(input, plan, &rules)?;
    flags(input, plan, &rules);
    Ok(())
}

fn unsupported(input: &PlanInput, plan: &mut MemoryPlan) {
    if let Some(state) = input.demands.states().find(|state| !state.is_covered_by(&ENGINE)) {
        plan.unknown.push(format!("SGLang's rules here do not cover state of `{}`", state.kind));
    }
    if input.demands.kv().any(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
        plan.unknown.push("SGLang's compressed caches are not covered".to_owned());
    }
}

fn rules<'a>(input: &'a PlanInput, plan: &mut MemoryPlan) -> Result<Rules<'a>, AuditError> {
    let page = input.option_number("page_size")?.unwrap_or(1);
    if !(1..=1 << 20).contains(&page) {
        return Err(request(&page.to_string(), "`page_size` is 1 to 1048576 tokens"));
    }
    let radix = !input.option_flag("disable_radix_cache", false)?;
    if radix && input.demands.states().next().is_some() {
        plan.assume("With the radix cache a running request takes three slots of the state pool.");
    }
    Ok(Rules {
        input,
        format: input.settings.kv_format.unwrap_or(BF16_CACHE),
        state_dtype: input.settings.state_dtype.or(input.audit.declared_state_dtype).unwrap_or(FP32),
        page,
        slots: if radix { 3 } else { 1 },
        window_share: input.option_fraction("swa_full_tokens_ratio")?.unwrap_or(0.8),
    })
}

fn figures(plan: &mut MemoryPlan, rules: &Rules, tokens: u64, slots: u64) {
    let rows = tokens.saturating_add(rules.page);
    let mut add = |name, bytes: u64, rule| plan.add(name, bytes as f64 / GIB, "GiB", rule);
    let key = rules.sum(|kv| rules.local(kv, kv.key), true);
    let both = rules.sum(|kv| rules.local(kv, kv.key) + rules.local(kv, kv.value), true);
    add("K size", key.saturating_mul(rows), "(tokens + page) * layers * heads / tp * head width * bytes");
    add("KV size", both.saturating_mul(rows), "(tokens + page) * layers * bytes of keys and values");
    if rules.slot() > 0 {
        let convolution = rules.convolution(|state| state.layout.kernel_size.saturating_sub(1));
        add(
            "conv_state size",
            convolution.saturating_mul(slots + 1),
            "(slots + 1) * layers * convolution inputs * 2 bytes",
        );
        add("ssm_state size", rules.recurrent().saturating_mul(slots + 1), "(slots + 1) * layers * state * bytes");
    }
    plan.add("tokens of the pool", tokens as f64, "tokens", "requests * context, or --max-total-tokens");
    if rules.slot() > 0 {
        plan.add(
            "slots of the state pool",
            slots as f64,
            "slots",
            "requests * slots a request, or --max-mamba-cache-size",
        );
    }
}

fn fit(input: &PlanInput, plan: &mut MemoryPlan, rules: &Rules) -> Result<(), AuditError> {
    let Some(memory) = input.settings.memory else { return Ok(()) };
    let Some(weights) = input.weights() else {
        plan.unknown.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(());
    };
    let share = match input.option_fraction("mem_fraction_static")? {
        Some(share) => share,
        None => static_share(input, memory)?,
    };
    plan.assume(format!("Weights and pools take {share} of the memory (--mem-fraction-static)."));
    if input.option("overhead").is_none() {
        plan.assume("Nothing else is in the static share; give `--set overhead=BYTES` from SGLang's log.");
    }
    let overhead = input.option_number("overhead")?.unwrap_or(0);
    let rest = ((memory as f64 * share) as u64).saturating_sub(weights).saturating_sub(overhead);
    plan.available_bytes = Some(rest);
    if rest == 0 {
        plan.unknown.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    let ratio = match input.option("mamba_full_memory_ratio") {
        Some(text) => text
            .parse()
            .ok()
            .filter(|ratio: &f64| *ratio > 0.0 && *ratio <= 1e6)
            .ok_or_else(|| request(text, "`mamba_full_memory_ratio` is a number above 0"))?,
        None => 0.9,
    };
    let slot = rules.slot();
    let budget = if slot == 0 { 0 } else { (rest as f64 * ratio / (1.0 + ratio)) as u64 };
    let slots = slots_that_fit(rules, budget);
    let windows = rules.cell(false) as f64 * rules.window_share;
    let cell = rules.cell(true) as f64 + windows;
    let tokens = if cell == 0.0 { 0 } else { ((rest - budget) as f64 / cell) as u64 / rules.page * rules.page };
    plan.tokens_fit = Some(tokens);
    let by_tokens = if cell == 0.0 { super::MAX_COUNT } else { tokens / input.context.max(1) };
    let by_slots = if slot == 0 { u64::MAX } else { slots / rules.slots };
    plan.requests_fit = Some(by_tokens.min(by_slots));
    let enough = slot == 0 || slots >= input.requests.saturating_mul(rules.slots);
    plan.context_fit = Some(if enough { tokens / input.requests } else { 0 });
    if slot > 0 {
        plan.add("slots that fit", slots as f64, "slots", "(budget - slot) / slot, budget = rest * r / (1 + r)");
    }
    Ok(())
}

fn slots_that_fit(rules: &Rules, budget: u64) -> u64 {
    let (slot, drafts) = (rules.slot(), rules.input.settings.speculative);
    if slot == 0 {
        return 0;
    }
    let first = slot.saturating_mul(1 + drafts);
    let each = slot as f64 * (1.0 + drafts as f64 / rules.slots as f64);
    (budget.saturating_sub(first) as f64 / each) as u64
}

/// The default of `--mem-fraction-static`: what prefill and graphs are said to need is left out.
fn static_share(input: &PlanInput, memory: u64) -> Result<f64, AuditError> {
    let capacity = memory as f64 / 1_048_576.0;
    let gib = capacity / 1024.0;
    let default = if gib < 35.0 {
        2048
    } else if gib < 60.0 {
        4096
    } else if gib < 160.0 {
        8192
    } else {
        16384
    };
    let chunk = input.option_number("chunked_prefill_size")?.unwrap_or(default).max(2048);
    let reserve = 512.0 + 1.5 * chunk as f64 + 128.0 * input.tp as f64;
    let reserve = if gib > 60.0 { reserve.max(10_240.0) } else { reserve };
    Ok((1000.0 * (1.0 - reserve / capacity)).round().max(1.0) / 1000.0)
}

fn flags(input: &PlanInput, plan: &mut MemoryPlan, rules: &Rules) {
    let mut add = |flag: String| plan.flags.push(flag);
    add(format!("--context-length {}", input.context));
    if let Some(requests) = input.limited_requests() {
        add(format!("--max-running-requests {requests}"));
    }
    if input.tp > 1 {
        add(format!("--tp {}", input.tp));
    }
    let (slot, cell) = (rules.slot(), rules.cell(true));
    if slot > 0 && cell > 0 {
        // Both pools run out at the same number of requests of the context.
        let ratio = (rules.slots.saturating_mul(slot)) as f64 / (cell.saturating_mul(input.context)) as f64;
        add(format!("--mamba-full-memory-ratio {ratio:.4}"));
        plan.assume("The ratio lets both pools run out at the same number of requests, each as long as the context.");
    }
}
