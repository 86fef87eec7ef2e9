//! llama.cpp: one cache of cells for all sequences, and one recurrent state per sequence.
//!
//! # Rules
//! - `--context` is passed as `-c`, `--requests` as `-np`. The cache is unified unless `kv_unified=false`: its cells, padded to 256,
//!   are shared by all sequences. Otherwise each sequence has `round_up(c / np, 256)` cells of its own.
//! - Layers with a window have `round_up(min(cells, window * sequences + ubatch), 256)` cells (one sequence each if not unified).
//! - Recurrent state and convolution inputs are 32-bit floats, one row for each sequence and drafted token.
//! - Latent attention stores the latent and the rotary key, no values. Index keys have a cache of their own.
//!
//! # Source
//! `src/llama-context.cpp`, `src/llama-kv-cache.cpp`, `src/llama-kv-cache-iswa.cpp`, `src/llama-memory-recurrent.cpp`,
//! `src/llama-hparams.cpp` of ggml-org/llama.cpp at `b21e4de74567` (b10586).

use super::{
    CacheBreakdown, CacheFormat, Engine, F16_CACHE, MemoryPlan, PlanInput, element_bytes, largest_fitting, round_up,
};
use crate::{AuditError, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The rules of llama.cpp.
pub(super) static ENGINE: Engine = Engine {
    name: "llama.cpp",
    aliases: &["llamacpp", "llama_cpp", "llama-cpp"],
    version: "b10586",
    options: &[
        ("n_ubatch", "tokens in one physical batch (-ub)"),
        ("kv_unified", "one cache for all sequences"),
        ("swa_full", "cache the full context for layers with a window"),
        ("overhead", "bytes of compute buffers on one device"),
    ],
    plan,
};

/// The number of cells is rounded up to a multiple of this.
const CELL_MULTIPLE: u64 = 256;
const MIB: f64 = 1_048_576.0;

/// Models whose window llama.cpp ignores.
const IGNORED_WINDOWS: &[&str] = &["mistral", "mixtral", "phi3", "phimoe", "starcoder2", "qwen2", "qwen3"];
/// Models whose recurrent state has a row for each drafted token.
const WITH_DRAFT_ROWS: &[&str] =
    &["qwen3_5", "qwen3_6", "qwen35", "nemotron_h", "lfm2", "bailing", "deepseek_v4", "deepseek4"];

/// Cells and bytes of the caches at one `-c` and `-np`.
#[derive(Default)]
struct Allocation {
    cells: u64,
    /// The different numbers of cells of window layers.
    window_cells: Vec<u64>,
    key_bytes: u64,
    value_bytes: u64,
    index_bytes: u64,
    window_key_bytes: u64,
    window_value_bytes: u64,
    compressed_bytes: u64,
    /// Inputs of convolutions: "R" in llama.cpp's log.
    conv_bytes: u64,
    /// Recurrent state: "S" in llama.cpp's log.
    state_bytes: u64,
    draft_bytes: u64,
}

impl Allocation {
    fn cache_bytes(&self) -> CacheBreakdown {
        let growing_bytes = [self.value_bytes, self.index_bytes, self.compressed_bytes, self.draft_bytes];
        CacheBreakdown {
            kv: growing_bytes.into_iter().fold(self.key_bytes, u64::saturating_add),
            window: self.window_key_bytes.saturating_add(self.window_value_bytes),
            state: self.conv_bytes.saturating_add(self.state_bytes),
        }
    }
}

/// Settings that do not depend on `-c` and `-np`.
struct LlamaCppRules<'a> {
    input: &'a PlanInput<'a>,
    format: CacheFormat,
    ubatch_tokens: u64,
    is_unified: bool,
    window_layers_cache_full_context: bool,
    ignores_windows: bool,
    draft_rows: u64,
}

impl LlamaCppRules<'_> {
    fn key_bytes(&self, kv: &KeyValueLayout) -> u64 {
        self.format.bytes_without_vector_scales(kv.kv_heads.saturating_mul(kv.key_head_dim))
    }

    fn value_bytes(&self, kv: &KeyValueLayout) -> u64 {
        self.format.bytes_without_vector_scales(kv.kv_heads.saturating_mul(kv.value_head_dim))
    }

    /// Cells of one cache, and the number of caches.
    fn cells(&self, context: u64, sequences: u64) -> (u64, u64) {
        let total = round_up(context, CELL_MULTIPLE);
        if self.is_unified {
            (total, 1)
        } else {
            (round_up(total / sequences, CELL_MULTIPLE).max(CELL_MULTIPLE), sequences)
        }
    }

    fn window_cells(&self, window: u64, cells: u64, sequences: u64) -> u64 {
        if self.window_layers_cache_full_context {
            return cells;
        }
        let windows = window.saturating_mul(if self.is_unified { sequences } else { 1 });
        round_up(cells.min(windows.saturating_add(self.ubatch_tokens)), CELL_MULTIPLE)
    }

    fn allocate(&self, context: u64, sequences: u64) -> Allocation {
        let (cells, cache_count) = self.cells(context, sequences);
        let total_cells = cells.saturating_mul(cache_count);
        let mut allocation = Allocation { cells, ..Allocation::default() };
        let add = |total: &mut u64, bytes: u64, rows: u64| *total = total.saturating_add(bytes.saturating_mul(rows));
        for kv in self.input.caches.kv() {
            let (key_bytes, value_bytes) = (self.key_bytes(&kv), self.value_bytes(&kv));
            let window = match kv.reach {
                CacheReach::Window(size) | CacheReach::Chunk(size) if !self.ignores_windows => Some(size),
                CacheReach::Compressed { window, .. } => Some(window),
                _ => None,
            };
            let Some(window) = window else {
                add(&mut allocation.key_bytes, key_bytes, total_cells);
                add(&mut allocation.value_bytes, value_bytes, total_cells);
                add(&mut allocation.index_bytes, F16_CACHE.bytes_without_vector_scales(kv.index_key_dim), total_cells);
                continue;
            };
            let window_cells = self.window_cells(window, cells, sequences);
            if !allocation.window_cells.contains(&window_cells) {
                allocation.window_cells.push(window_cells);
            }
            add(&mut allocation.window_key_bytes, key_bytes, window_cells.saturating_mul(cache_count));
            add(&mut allocation.window_value_bytes, value_bytes, window_cells.saturating_mul(cache_count));
            if let CacheReach::Compressed { ratio, .. } = kv.reach {
                let entries = round_up(cells.div_ceil(ratio.max(1)), CELL_MULTIPLE).saturating_mul(cache_count);
                add(
                    &mut allocation.compressed_bytes,
                    key_bytes.saturating_add(F16_CACHE.bytes_without_vector_scales(kv.index_key_dim)),
                    entries,
                );
            }
        }
        if let Some(kv) =
            self.input.caches.kv().find(|kv| kv.reach == CacheReach::All).filter(|_| self.draft_layers() > 0)
        {
            let cell_bytes = self.key_bytes(&kv).saturating_add(self.value_bytes(&kv));
            add(&mut allocation.draft_bytes, cell_bytes.saturating_mul(self.draft_layers()), total_cells);
        }
        let rows = sequences.saturating_mul(1 + self.draft_rows);
        for state in self.input.caches.states() {
            let conv_elements =
                state.conv_elements(1, state.layout.kernel_size.saturating_sub(1)).saturating_add(state.layout.shift);
            add(&mut allocation.conv_bytes, element_bytes(conv_elements, FP32), rows);
            add(&mut allocation.state_bytes, element_bytes(state.layout.recurrent, FP32), rows);
        }
        allocation
    }

    fn draft_layers(&self) -> u64 {
        if self.input.settings.speculative > 0 { self.input.audit.mtp_layer_count } else { 0 }
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    if input.tp > 1 {
        return Err(AuditError::invalid_argument(
            "--tp",
            "llama.cpp's split over devices is not covered; plan for one device",
        ));
    }
    add_unsupported(input, plan);
    if !plan.unknown_reasons.is_empty() && !input.settings.skip_unsupported_layers {
        return Ok(());
    }
    let rules = read_rules(input, plan)?;
    plan.kv_dtype = rules.format.name;
    let allocation = rules.allocate(input.context, input.requests);
    plan.set_bytes(allocation.cache_bytes());
    plan.bytes_per_request = Some(rules.allocate(input.context, 1).cache_bytes().total());
    let is_growing = |kv: &KeyValueLayout| kv.reach == CacheReach::All || rules.ignores_windows;
    let per_token = |kv: KeyValueLayout| {
        rules.key_bytes(&kv) + rules.value_bytes(&kv) + F16_CACHE.bytes_without_vector_scales(kv.index_key_dim)
    };
    plan.bytes_per_token = Some(input.caches.kv().filter(is_growing).map(per_token).sum());
    plan.add_assumption(
        "All layers and their caches are on one device; flash attention is on, so values are not widened.",
    );
    add_metrics(plan, &allocation);
    add_fit(input, plan, &rules)?;
    add_flags(input, plan, &rules);
    Ok(())
}

fn add_unsupported(input: &PlanInput, plan: &mut MemoryPlan) {
    if let Some(state) = input.caches.states().find(|state| !state.is_covered_by(&ENGINE)) {
        plan.unknown_reasons.push(format!("llama.cpp's rules here do not cover state of `{}`", state.mixer));
    }
    if input
        .caches
        .layers
        .iter()
        .any(|layer| layer.kv.is_some() && layer.state.is_some_and(|state| state.is_convolution()))
    {
        plan.unknown_reasons.push("llama.cpp's rules here do not cover a convolution before attention".to_owned());
    }
    if input.caches.kv().any(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
        plan.unknown_reasons
            .push("llama.cpp's buffers of tokens that wait to be compressed are not covered".to_owned());
    }
}

fn read_rules<'a>(input: &'a PlanInput, plan: &mut MemoryPlan) -> Result<LlamaCppRules<'a>, AuditError> {
    let name = input.audit.architecture.as_deref().unwrap_or_default();
    let ignores_windows = IGNORED_WINDOWS.contains(&name);
    if ignores_windows && input.caches.kv().any(|kv| matches!(kv.reach, CacheReach::Window(_))) {
        plan.add_assumption(format!(
            "llama.cpp does not use the window of `{name}`: its caches hold the whole context."
        ));
    }
    let has_draft_rows = WITH_DRAFT_ROWS.iter().any(|prefix| name.starts_with(prefix));
    Ok(LlamaCppRules {
        input,
        format: input.settings.kv_format.unwrap_or(F16_CACHE),
        ubatch_tokens: input.option_number("n_ubatch")?.unwrap_or(512),
        is_unified: input.option_flag("kv_unified", true)?,
        window_layers_cache_full_context: input.option_flag("swa_full", false)?,
        ignores_windows,
        draft_rows: if has_draft_rows { input.settings.speculative } else { 0 },
    })
}

fn add_metrics(plan: &mut MemoryPlan, allocation: &Allocation) {
    let kv = "layers * cells * bytes of keys and values in one cell";
    let mut add = |name, bytes: u64, rule| plan.add_metric(name, bytes as f64 / MIB, "MiB", rule);
    add("KV cache size", allocation.key_bytes.saturating_add(allocation.value_bytes), kv);
    add("K part", allocation.key_bytes, "the keys of it");
    if !allocation.window_cells.is_empty() {
        add("SWA KV size", allocation.window_key_bytes.saturating_add(allocation.window_value_bytes), kv);
        add("SWA K part", allocation.window_key_bytes, "the keys of it");
    }
    if allocation.index_bytes > 0 {
        add("indexer cache size", allocation.index_bytes, "layers with an indexer * cells * index key, f16");
    }
    if allocation.compressed_bytes > 0 {
        add("compressed cache size", allocation.compressed_bytes, "layers * pad(ceil(cells / ratio), 256) * entry");
    }
    if allocation.draft_bytes > 0 {
        add("draft KV cache size", allocation.draft_bytes, "multi-token-prediction layers have a cache of their own");
    }
    if allocation.conv_bytes > 0 || allocation.state_bytes > 0 {
        add(
            "recurrent state size",
            allocation.conv_bytes.saturating_add(allocation.state_bytes),
            "layers * (convolution inputs + state) * 4 bytes * rows",
        );
        add("R part", allocation.conv_bytes, "the convolution inputs of it");
        add("S part", allocation.state_bytes, "the state of it");
    }
    plan.add_metric(
        "cells",
        allocation.cells as f64,
        "cells",
        "-c padded to 256; without a unified cache -c / -np padded to 256",
    );
    for &cells in &allocation.window_cells {
        plan.add_metric("SWA cells", cells as f64, "cells", "pad(min(cells, window * sequences + ubatch), 256)");
    }
}

/// Adds the tokens, requests and context that fit into the memory.
fn add_fit(input: &PlanInput, plan: &mut MemoryPlan, rules: &LlamaCppRules) -> Result<(), AuditError> {
    let Some(memory) = input.settings.memory else { return Ok(()) };
    let Some(weights) = input.weight_bytes() else {
        plan.unknown_reasons.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(());
    };
    let overhead = input.option_number("overhead")?.unwrap_or(0);
    if input.option("overhead").is_none() {
        plan.add_assumption("Compute buffers take nothing: llama.cpp prints their size; give `--set overhead=BYTES`.");
    }
    let available = memory.saturating_sub(weights).saturating_sub(overhead);
    if available == 0 {
        plan.unknown_reasons.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    plan.available_bytes = Some(available);
    let fits = |context: u64, sequences: u64| rules.allocate(context, sequences).cache_bytes().total() <= available;
    let context = largest_fitting(crate::MAX_CONTEXT, |context| context == 0 || fits(context, input.requests));
    // A context below one multiple of cells is not offered.
    let context = if context < CELL_MULTIPLE { 0 } else { context };
    plan.tokens_fit = Some(context);
    plan.context_fit = Some(context);
    let fits_requests = |requests: u64| fits(input.context.saturating_mul(requests), requests);
    plan.requests_fit = Some(largest_fitting(super::MAX_COUNT, |requests| requests == 0 || fits_requests(requests)));
    plan.add_assumption("Requests that fit have the whole context each: `-np N -c N*context`.");
    Ok(())
}

fn add_flags(input: &PlanInput, plan: &mut MemoryPlan, rules: &LlamaCppRules) {
    plan.flags.push(format!("-c {}", input.context));
    plan.flags.push(format!("-np {}", input.requests));
    if rules.is_unified {
        plan.flags.push("--kv-unified".to_owned());
    }
    if rules.format != F16_CACHE {
        plan.flags.push(format!("-ctk {0} -ctv {0}", rules.format.name));
    }
    if let Some(tokens) = input.option("n_ubatch") {
        plan.flags.push(format!("-ub {tokens}"));
    }
}
