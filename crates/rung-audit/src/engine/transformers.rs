//! transformers: the cache object that `generate` fills, one tensor per layer.
//!
//! # Rules
//! - `--context` is the tokens in the cache, `--requests` the batch. Nothing is paged or reserved: the default cache grows
//!   with the sequence.
//! - A layer with a window keeps `window - 1` tokens once it is full: the current one is not stored again.
//! - A short convolution keeps as many columns as its kernel is wide, one more than serving engines keep.
//! - Keys, values and convolution inputs have the activations' format (the config's `dtype`, else bf16); recurrent state has the format its kernel returns,
//!   32-bit floats unless the config says otherwise.
//! - Latent attention stores the latent and the rotary key; index keys are stored beside them.
//!
//! # Source
//! `src/transformers/cache_utils.py` of huggingface/transformers, 5.23; checked by counting caches (`docs/engines/transformers.md`).

use super::demand::RecurrentState;
use super::{BF16_CACHE, CacheFormat, CacheParts, Engine, MemoryPlan, PlanInput, bytes_of, largest, request};
use crate::{AuditError, BF16, Dtype, FP32};
use rung_theory::stack::mixer::{CacheReach, KeyValueLayout};

/// The engine.
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

/// Classes that keep whole caches for layers with a window.
const WHOLE_WINDOWS: &[&str] = &["gpt_neo"];
/// Classes whose convolution inputs are kept in 32 bits.
const WIDE_CONVOLUTIONS: &[&str] = &["inkling_text", "inkling2_text", "inkling_mm_model", "inkling2"];
/// Classes whose index keys are kept in 32 bits.
const WIDE_INDEX: &[&str] = &["dots3_note", "dots3_note_text"];
/// Classes whose convolutions keep one column fewer than their kernel size.
const SHORT_CONVOLUTIONS: &[&str] = &["zaya", "recurrent_gemma"];

struct Rules<'a> {
    input: &'a PlanInput<'a>,
    format: CacheFormat,
    convolution: Dtype,
    state: Dtype,
}

impl Rules<'_> {
    fn is_one_of(&self, names: &[&str]) -> bool {
        self.input.audit.architecture.as_deref().is_some_and(|name| names.contains(&name))
    }

    fn index(&self, kv: &KeyValueLayout) -> u64 {
        if self.is_one_of(WIDE_INDEX) { bytes_of(kv.index, FP32) } else { self.format.vector(kv.index) }
    }

    /// Bytes of one token in one layer.
    fn token(&self, kv: &KeyValueLayout) -> u64 {
        let vector = self.format.vector(kv.key).saturating_add(self.format.vector(kv.value));
        kv.local_heads(self.input.tp).saturating_mul(vector)
    }

    fn layer(&self, kv: &KeyValueLayout, context: u64) -> (u64, u64) {
        let token = self.token(kv);
        let index = self.index(kv);
        match kv.reach {
            CacheReach::Window(_) if self.is_one_of(WHOLE_WINDOWS) => (token.saturating_mul(context), 0),
            CacheReach::All => ((token.saturating_add(index)).saturating_mul(context), 0),
            CacheReach::Window(size) | CacheReach::Chunk(size) => {
                (0, token.saturating_mul(context.min(size.saturating_sub(1))))
            }
            CacheReach::Compressed { ratio, window } => {
                let entries = context / ratio.max(1);
                let kept = token.saturating_mul(context.min(window.saturating_sub(1)));
                // Where entries overlap (those with an index do), the last inputs and their gates are kept for the next.
                let overlap = if index == 0 { 0 } else { token.saturating_add(index).saturating_mul(2 * ratio) };
                (token.saturating_add(index).saturating_mul(entries), kept.saturating_add(overlap))
            }
        }
    }

    fn state(&self, state: &RecurrentState) -> u64 {
        let convolution = if self.is_one_of(WIDE_CONVOLUTIONS) { FP32 } else { self.convolution };
        let kept = if self.is_one_of(SHORT_CONVOLUTIONS) {
            state.layout.kernel_size.saturating_sub(1)
        } else {
            state.layout.kernel_size
        };
        let columns = bytes_of(state.convolution(self.input.tp, kept), convolution);
        let shift = bytes_of(state.layout.shift, convolution);
        // Lightning attention's state has the activations' format.
        let dtype = if state.kind == "lightning" { self.convolution } else { self.state };
        columns.saturating_add(shift).saturating_add(bytes_of(state.recurrence(self.input.tp), dtype))
    }

    fn bytes(&self, context: u64, requests: u64) -> CacheParts {
        let mut sum = CacheParts::default();
        for layer in &self.input.demands.layers {
            let (kv, window) = layer.kv.map_or((0, 0), |kv| self.layer(&kv, context));
            let state = layer.state.map_or(0, |state| self.state(&state));
            sum.kv = sum.kv.saturating_add(kv);
            sum.window = sum.window.saturating_add(window);
            sum.state = sum.state.saturating_add(state);
        }
        let times = |bytes: u64| bytes.saturating_mul(requests);
        CacheParts { kv: times(sum.kv), window: times(sum.window), state: times(sum.state) }
    }
}

fn plan(input: &PlanInput, plan: &mut MemoryPlan) -> Result<(), AuditError> {
    let format = match (input.settings.kv_format, input.audit.activation_dtype) {
        (Some(format), _) => format,
        (None, Some(dtype)) => dtype.name.parse()?,
        (None, None) => BF16_CACHE,
    };
    plan.kv_dtype = format.name;
    let convolution = match input.option("conv_dtype") {
        Some(text) => text.parse()?,
        // Quantised caches keep convolution inputs as they are.
        None => format.name.parse().unwrap_or(BF16),
    };
    let state = input.settings.state_dtype.or(input.audit.declared_state_dtype).unwrap_or(FP32);
    plan.state_dtype = state.name;
    if input.settings.speculative > 0 {
        return Err(request(
            "--speculative",
            "a draft model in transformers has a cache of its own; plan it by itself",
        ));
    }
    let rules = Rules { input, format, convolution, state };
    plan.set_bytes(rules.bytes(input.context, input.requests));
    plan.bytes_per_request = Some(rules.bytes(input.context, 1).total());
    let growing = |kv: &KeyValueLayout| kv.reach == CacheReach::All;
    let per_token = |kv: KeyValueLayout| rules.token(&kv).saturating_add(rules.index(&kv));
    plan.bytes_per_token = Some(input.demands.kv().filter(growing).map(per_token).fold(0, u64::saturating_add));
    if input.demands.kv().any(|kv| matches!(kv.reach, CacheReach::Compressed { .. })) {
        plan.assume("Tokens that wait to be compressed are not counted.");
    }
    fit(input, plan, &rules)
}

fn fit(input: &PlanInput, plan: &mut MemoryPlan, rules: &Rules) -> Result<(), AuditError> {
    let Some(memory) = input.settings.memory else { return Ok(()) };
    let Some(weights) = input.weights() else {
        plan.unknown.push("what fits: the weights' size is not known; give --weights".to_owned());
        return Ok(());
    };
    let left = memory.saturating_sub(weights).saturating_sub(input.option_number("overhead")?.unwrap_or(0));
    if input.option("overhead").is_none() {
        plan.assume(
            "Activations take nothing, and the cache is never copied while it grows; give `--set overhead=BYTES`.",
        );
    }
    if left == 0 {
        plan.unknown.push("nothing is left for the cache: the weights do not fit".to_owned());
    }
    plan.available_bytes = Some(left);
    let fits = |context: u64, requests: u64| rules.bytes(context, requests).total() <= left;
    let context = largest(crate::MAX_CONTEXT, |context| context == 0 || fits(context, input.requests));
    (plan.tokens_fit, plan.context_fit) = (Some(context.saturating_mul(input.requests)), Some(context));
    plan.requests_fit = Some(largest(super::MAX_COUNT, |requests| requests == 0 || fits(input.context, requests)));
    Ok(())
}
