//! llama.cpp: one cache of cells for all sequences, and one recurrent state per sequence.
//!
//! # Rules
//! - `--context` is `-c`, `--requests` is `-np`. The cache is unified unless `kv_unified=false`: its cells, padded to 256,
//!   are shared by all sequences. Otherwise each sequence has `pad(c / np, 256)` cells of its own.
//! - Layers with a window have `pad(min(cells, window * sequences + ubatch), 256)` cells (one sequence each if not unified).
//! - Recurrent state and convolution inputs are 32-bit floats, one row for each sequence and drafted token.
//! - Latent attention stores the latent and the rotary key, no values. Index keys have a cache of their own.
//!
//! # Source
//! `src/llama-context.cpp`, `src/llama-kv-cache.cpp`, `src/llama-kv-cache-iswa.cpp`, `src/llama-memory-recurrent.cpp`,
//! `src/llama-hparams.cpp` of ggml-org/llama.cpp at `b21e4de74567` (b10586).

use super::{CacheFormat, CacheParts, Engine, F16_CACHE, MemoryPlan, PlanInput, bytes_of, largest, pad, request};
use crate::{AuditError, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The engine.
pub(super) static ENGINE: Engine = Engine {
    name: "llama.cpp",
    aliases: &["llamacpp", "llama_cpp", "llama-cpp"],
    version: "b10586",
    options: &[
        ("n_ubatch", "tokens in one physical batch (-ub)"),
        ("kv_unified", "one cache for all sequences"),
        ("swa_full", "keep whole caches for layers with a window"),
        ("overhead", "bytes of compute buffers on one device"),
    ],
    plan,
};

/// Cells are padded to this.
const CELLS: u64 = 256;
const MIB: f64 = 1_048_576.0;

/// Models whose window llama.cpp does not use.
const WITHOUT_WINDOW: &[&str] = &["mistral", "mixtral", "phi3", "phimoe", "starcoder2", "qwen2", "qwen3"];
/// Models whose recurrent state keeps a row for each drafted token.
const DRAFT_ROWS: &[&str] =
    &["qwen3_5", "qwen3_6", "qwen35", "nemotron_h", "lfm2", "bailing", "deepseek_v4", "deepseek4"];

/// Sizes of the caches at one `-c` and `-np`.
struct Allocation {
    cells: u64,
    window_cells: Vec<u64>,
    k: u64,
    v: u64,
    index: u64,
    window_k: u64,
    window_v: u64,
    compressed: u64,
    r: u64,
    s: u64,
    draft: u64,
}

impl Allocation {
    fn bytes(&self) -> CacheParts {
        let kv = [self.v, self.index, self.compressed, self.draft].into_iter().fold(self.k, u64::saturating_add);
        CacheParts { kv, window: self.window_k.saturating_add(self.window_v), state: self.r.saturating_add(self.s) }
    }
}

/// What does not change with `-c` and `-np`.
struct Rules<'a> {
    input: &'a PlanInput<'a>,
    format: CacheFormat,
    ubatch: u64,
    unified: bool,
    whole_windows: bool,
    ignores_windows: bool,
    draft_rows: u64,
}

impl Rules<'_> {
    fn key_bytes(&self, kv: &KeyValueLayout) -> u64 {
        self.format.row(kv.heads.saturating_mul(kv.key))
    }

    fn value_bytes(&self, kv: &KeyValueLayout) -> u64 {
        self.format.row(kv.heads.saturating_mul(kv.value))
    }

    /// Cells of one sequence's view, and how many such caches there are.
    fn context(&self, context: u64, sequences: u64) -> (u64, u64) {
        let whole = pad(context, CELLS);
        if self.unified { (whole, 1) } else { (pad(whole / sequences, CELLS).max(CELLS), sequences) }
    }

    fn window_cells(&self, window: u64, cells: u64, sequences: u64) -> u64 {
        if self.whole_windows {
            return cells;
        }
        let windows = window.saturating_mul(if self.unified { sequences } else { 1 });
        pad(cells.min(windows.saturating_add(self.ubatch)), CELLS)
    }

    fn allocate(&self, context: u64, sequences: u64) -> Allocation {
        let (cells, streams) = self.context(context, sequences);
        let rows = cells.saturating_mul(streams);
        let mut sum = Allocation {
            cells,
            window_cells: Vec::new(),
            k: 0,
            v: 0,
            index: 0,
            window_k: 0,
            window_v: 0,
            compressed: 0,
            r: 0,
            s: 0,
            draft: 0,
        };
        let grow = |part: &mut u64, bytes: u64, rows: u64| *part = part.saturating_add(bytes.saturating_mul(rows));
        for kv in self.input.demands.kv() {
            let (key, value) = (self.key_bytes(&kv), self.value_bytes(&kv));
            let window = match kv.reach {
                CacheReach::Window(size) | CacheReach::Chunk(size) if !self.ignores_windows => Some(size),
                CacheReach::Compressed { window, .. } => Some(window),
                _ => None,
            };
            let Some(window) = window else {
                grow(&mut sum.k, key, rows);
                grow(&mut sum.v, value, rows);
                grow(&mut sum.index, F16_CACHE.row(kv.index), rows);
                continue;
            };
            let window_cells = self.window_cells(window, cells, sequences);
            if !sum.window_cells.contains(&window_cells) {
                sum.window_cells.push(window_cells);
            }
            grow(&mut sum.window_k, key, window_cells.saturating_mul(streams));
            grow(&mut sum.window_v, value, window_cells.saturating_mul(streams));
            if let CacheReach::Compressed { ratio, .. } = kv.reach {
                let entries = pad(cells.div_ceil(ratio.max(1)), CELLS).saturating_mul(streams);
                grow(&mut sum.compressed, key.saturating_add(F16_CACHE.row(kv.index)), entries);
            }
        }
        if let Some(kv) =
            self.input.demands.kv().find(|kv| kv.reach == CacheReach::All).filter(|_| self.draft_layers() > 0)
        {
            let one = self.key_bytes(&kv).saturating_add(self.value_bytes(&kv));
            grow(&mut sum.draft, one.saturating_mul(self.draft_layers()), rows);
        }
        let rows = sequences.saturating_mul(1 + self.draft_rows);
        for state in self.input.demands.states() {
            let convolution =
                state.convolution(1, state.layout.kernel_size.saturating_sub(1)).saturating_add(state.layout.shift);
            grow(&mut sum.r, bytes_of(convolution, FP32), rows);
            grow(&mut sum.s, bytes_of(state.layout.recurrent, FP32), rows);
        }
        sum
    }

    fn draft_layers(&self) -> u64 {
        if self.input.settings.speculative > 0 { self.input.audit.extra_layers } else { 0 }
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    if input.tp > 1 {
        return Err(request("--tp", "llama.cpp's split over devices is not covered; plan for one device"));
    }
    unsupported(input, plan);
    if !plan.unknown.is_empty() && !input.settings.partial {
        return Ok(());
    }
    let rules = rules(input, plan)?;
    plan.kv_dtype = rules.format.name;
    let now = rules.allocate(input.context, input.requests);
    plan.set_bytes(now.bytes());
    plan.bytes_per_request = Some(rules.allocate(input.context, 1).bytes().total());
    let growing = |kv: &KeyValueLayout| kv.reach == CacheReach::All || rules.ignores_windows;
    let per_token = |kv: KeyValueLayout| rules.key_bytes(&kv) + rules.value_bytes(&kv) + F16_CACHE.row(kv.index);
    plan.bytes_per_token = Some(input.demands.kv().filter(growing).map(per_token).sum());
    plan.assume("All layers and their caches are on one device; flash attention is on, so values are not widened.");
    figures(plan, &now);
    fit(input, plan, &rules)?;
    flags(input, plan, &rules);
    Ok(())
}

fn unsupported(input: &PlanInput, plan: &mut MemoryPlan) {
    if let Some(state) = input.demands.states().find(|state| !state.is_covered_by(&ENGINE)) {
        plan.unknown.push(format!("llama.cpp's rules here do not cover state of `{}`", state.kind));
    }
    if input
        .demands
        .layers
        .iter()
        .any(|layer| layer.kv.is_some() && layer.state.is_some_and(|state| state.kind == "conv"))
    {
        plan.unknown.push("llama.cpp's rules here do not cover a convolution before attention".to_owned());
    }
    if input.demands.kv().any(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
        plan.unknown.push("llama.cpp's buffers of tokens that wait to be compressed are not covered".to_owned());
    }
}

fn rules<'a>(input: &'a PlanInput, plan: &mut MemoryPlan) -> Result<Rules<'a>, AuditError> {
    let name = input.audit.architecture.as_deref().unwrap_or_default();
    let ignores_windows = WITHOUT_WINDOW.contains(&name);
    if ignores_windows && input.demands.kv().any(|kv| matches!(kv.reach, CacheReach::Window(_))) {
        plan.assume(format!("llama.cpp does not use the window of `{name}`: its caches hold the whole context."));
    }
    let keeps_rows = DRAFT_ROWS.iter().any(|known| name.starts_with(known));
    Ok(Rules {
        input,
        format: input.settings.kv_format.unwrap_or(F16_CACHE),
        ubatch: input.option_number("n_ubatch")?.unwrap_or(512),
        unified: input.option_flag("kv_unified", true)?,
        whole_windows: input.option_flag("swa_full", false)?,
        ignores_windows,
        draft_rows: if keeps_rows { input.settings.speculative } else { 0 },
    })
}

fn figures(plan: &mut MemoryPlan, now: &Allocation) {
    let kv = "layers * cells * bytes of keys and values in one cell";
    let mut add = |name, bytes: u64, rule| plan.add(name, bytes as f64 / MIB, "MiB", rule);
    add("KV cache size", now.k.saturating_add(now.v), kv);
    add("K part", now.k, "the keys of it");
    if !now.window_cells.is_empty() {
        add("SWA KV size", now.window_k.saturating_add(now.window_v), kv);
        add("SWA K part", now.window_k, "the keys of it");
    }
    if now.index > 0 {
        add("indexer cache size", now.index, "layers with an indexer * cells * index key, f16");
    }
    if now.compressed > 0 {
        add("compressed cache size", now.compressed, "layers * pad(ceil(cells / ratio), 256) * entry");
    }
    if now.draft > 0 {
        add("draft KV cache size", now.draft, "multi-token-prediction layers have a cache of their own");
    }
    if now.r > 0 || now.s > 0 {
        add(
            "recurrent state size",
            now.r.saturating_add(now.s),
            "layers * (convolution inputs + state) * 4 bytes * rows",
        );
        add("R part", now.r, "the convolution inputs of it");
        add("S part", now.s, "the state of it");
    }
    plan.add("cells", now.cells as f64, "cells", "-c padded to 256; without a unified cache -c / -np padded to 256");
    for &cells in &now.window_cells {
        plan.add("SWA cells", cells as f64, "cells", "pad(min(cells, window * sequences + ubatch), 256)");
    }
}

fn fit(input: &PlanInput, plan: &mut MemoryPlan, rules: &Rules) -> Result<(), AuditError> {
    let Some(memory) = input.settings.memory else { return Ok(()) };
    let Some(weights) = input.weights() else {
        plan.unknown.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(());
    };
    let overhead = input.option_number("overhead")?.unwrap_or(0);
    if input.option("overhead").is_none() {
        plan.assume("Compute buffers take nothing: llama.cpp prints their size; give `--set overhead=BYTES`.");
    }
    let left = memory.saturating_sub(weights).saturating_sub(overhead);
    if left == 0 {
        plan.unknown.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    plan.available_bytes = Some(left);
    let fits = |context: u64, sequences: u64| rules.allocate(context, sequences).bytes().total() <= left;
    let context = largest(crate::MAX_CONTEXT, |context| context == 0 || fits(context, input.requests));
    // Cells come in units: the last that fits, not the first that would be padded to it.
    let context = if context < CELLS { 0 } else { context };
    plan.tokens_fit = Some(context);
    plan.context_fit = Some(context);
    let each = |requests: u64| fits(input.context.saturating_mul(requests), requests);
    plan.requests_fit = Some(largest(super::MAX_COUNT, |requests| requests == 0 || each(requests)));
    plan.assume("Requests that fit have the whole context each: `-np N -c N*context`.");
    Ok(())
}

fn flags(input: &PlanInput, plan: &mut MemoryPlan, rules: &Rules) {
    plan.flags.push(format!("-c {}", input.context));
    plan.flags.push(format!("-np {}", input.requests));
    if rules.unified {
        plan.flags.push("--kv-unified".to_owned());
    }
    if rules.format != F16_CACHE {
        plan.flags.push(format!("-ctk {0} -ctv {0}", rules.format.name));
    }
    if let Some(n) = input.option("n_ubatch") {
        plan.flags.push(format!("-ub {n}"));
    }
}
