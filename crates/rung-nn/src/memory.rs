//! Estimates of the memory that a network needs, before it is allocated.
//!
//! A short stack can need terabytes: the state of `fastmax{key=1000}` has half a million products of key channels for each value channel. So
//! code that builds or runs a network from a file first compares an estimate with a limit, and returns an error. The estimate is an upper
//! one: it counts states and expanded keys, whose sizes do not depend on the number of weights.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rung_theory::stack::{Layer, Plan};

pub use crate::error::TooLarge;

/// The prompts that are in memory at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Number of prompts.
    pub prompts: usize,
    /// Tokens of each prompt.
    pub tokens: usize,
}

/// Bytes of the states of one prompt, which are copied while they are updated, and of its expanded keys. These can be large in a network
/// with few weights.
pub fn state_bytes(plan: &Plan, tokens: usize) -> u128 {
    // Elements of all states, and key channels per token of the layer that has most.
    let (mut state_elements, mut max_keys) = (0_u128, 0_u128);
    for layer in &plan.layers {
        let mut keys = 0_u128;
        for mixer in layer.mixers.iter() {
            let facts = mixer.facts();
            state_elements = state_elements.saturating_add(facts.state_size()).saturating_add(facts.input_conv_state);
            // The key width is the size of the state divided by the value width.
            let value_dim = mixer.number("value").or_else(|| mixer.number("head")).unwrap_or(1).max(1);
            keys = keys.saturating_add(facts.recurrent_state / u128::from(value_dim));
        }
        // One layer runs at a time.
        max_keys = max_keys.max(keys);
    }
    let elements =
        state_elements.saturating_mul(3).saturating_add(max_keys.saturating_mul(2).saturating_mul(tokens as u128));
    elements.saturating_mul(size_of::<f32>() as u128)
}

/// The sizes of a network that determine the memory of its computation, from
/// [`ModelConfig::memory_estimate`](crate::ModelConfig::memory_estimate).
#[derive(Clone, Copy, Debug)]
pub struct MemoryEstimate<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) hidden_width: u128,
    pub(crate) classes: u128,
    /// Tokens per chunk of recurrences.
    pub(crate) chunk: u128,
    /// Whether attention adds a bias to every score.
    pub(crate) alibi: bool,
}

/// Elements of the activations of one layer's mixers, or of all layers.
#[derive(Clone, Copy, Debug, Default)]
struct MixerElements {
    /// Width of all projections together: a mixer can be much wider than the residual stream.
    projections: u128,
    /// What a mixer computes from its projections, such as every search on every retrieval, or the scores of all pairs of tokens.
    scores: u128,
    /// The cache of one token.
    cache: u128,
}

impl MemoryEstimate<'_> {
    /// Bytes of a forward pass over one prompt of this many tokens in single precision, without the weights: states, caches and
    /// activations. One layer runs at a time.
    pub fn inference_bytes(&self, tokens: usize) -> u128 {
        self.evaluation_bytes(tokens, tokens)
    }

    /// As [`inference_bytes`](Self::inference_bytes), where logits of at most `logit_rows` tokens are in memory at once.
    pub fn evaluation_bytes(&self, tokens: usize, logit_rows: usize) -> u128 {
        let residuals = u128::from(self.plan.width).saturating_mul(self.plan.layers.len() as u128 + 16);
        let (mut widest, mut cache) = (0_u128, 0_u128);
        for layer in &self.plan.layers {
            let elements = self.mixer_elements(layer, tokens, Pass::Inference);
            widest = widest.max(elements.projections.saturating_mul(2).saturating_add(elements.scores));
            cache = cache.saturating_add(elements.cache);
        }
        let per_token = residuals.saturating_add(widest).saturating_add(cache).saturating_add(3 * self.hidden_width);
        self.bytes(per_token, tokens, tokens.min(logit_rows))
    }

    /// Bytes of a forward and backward pass: each layer stores about fourteen activations of the model's width, six of the hidden width and
    /// four of each of its projections.
    pub fn training_bytes(&self, tokens: usize) -> u128 {
        let layer = u128::from(self.plan.width).saturating_mul(30).saturating_add(6 * self.hidden_width);
        let stored = self.plan.layers.iter().fold(layer, |sum, layer| {
            let elements = self.mixer_elements(layer, tokens, Pass::Training);
            let mixers = u128::from(self.plan.width)
                .saturating_mul(14)
                .saturating_add(elements.projections.saturating_mul(4))
                .max(u128::from(self.plan.width).saturating_mul(30));
            sum.saturating_add(mixers).saturating_add(6 * self.hidden_width).saturating_add(elements.scores)
        });
        self.bytes(stored, tokens, tokens)
    }

    /// Elements per token of a layer's mixers on a prompt of this many tokens.
    fn mixer_elements(&self, layer: &Layer, tokens: usize, pass: Pass) -> MixerElements {
        let (width, tokens) = (u128::from(self.plan.width.max(1)), tokens as u128);
        let mut sum = MixerElements::default();
        for mixer in layer.mixers.iter() {
            let facts = mixer.facts();
            let number = |name: &str| u128::from(mixer.number(name).unwrap_or(0));
            // Values that a backward pass needs are kept: a product, its mask, its exponentials, their quotient and the gradients of these.
            let copies = if pass == Pass::Training { 6 } else { 4 };
            let heads = number("heads").max(number("value-heads")).max(1);
            let is_recurrent = facts.recurrent_state > 0 && mixer.name() != "evicting";
            let pairs = match mixer.name() {
                // The loss of the indexer in training; choosing tokens at inference does not store the scores of all pairs.
                "dsa" if pass == Pass::Training => (heads + number("index-heads") + 2).saturating_mul(tokens),
                "evicting" => {
                    let span = self.chunk.max(number("size")).min(tokens);
                    heads.saturating_mul(number("size").min(tokens) + span)
                }
                "compositional" => {
                    let searches = number("searches").saturating_mul(number("retrievals"));
                    searches.saturating_mul(number("head") + number("value"))
                }
                _ if is_recurrent => heads.saturating_mul(self.chunk.min(tokens)),
                _ => 0,
            };
            let bias = if self.alibi && !is_recurrent { heads.saturating_mul(tokens) } else { 0 };
            sum.projections = sum.projections.saturating_add(facts.parameters.div_ceil(width));
            sum.scores = sum.scores.saturating_add(pairs.saturating_mul(copies)).saturating_add(2 * bias);
            sum.cache = sum.cache.saturating_add(facts.cache_per_token);
        }
        sum
    }

    fn bytes(&self, elements_per_token: u128, tokens: usize, logit_rows: usize) -> u128 {
        let logits = self.classes.saturating_mul(3).saturating_mul(logit_rows as u128);
        let elements = elements_per_token.saturating_mul(tokens as u128).saturating_add(logits);
        state_bytes(self.plan, tokens).saturating_add(elements.saturating_mul(size_of::<f32>() as u128))
    }
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// A forward pass.
    Inference,
    /// A forward and a backward pass.
    Training,
}

/// Bytes of the attention weights of one prompt in double precision: one for each pair of tokens in each head.
pub fn attention_weight_bytes(plan: &Plan, tokens: usize) -> u128 {
    let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let heads: u128 = mixers.map(|mixer| u128::from(mixer.number("heads").unwrap_or(1))).sum();
    heads.saturating_mul(8).saturating_mul((tokens as u128).saturating_mul(tokens as u128))
}

/// The limit of [`set_limit`] in bytes; 0 for none.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Sets the memory limit of this process in bytes, which replaces that of the machine.
pub fn set_limit(bytes: Option<u64>) {
    LIMIT.store(bytes.unwrap_or(0), Ordering::Relaxed);
}

/// Bytes that this process can use on this machine: the available memory, or the limit of its container, job or shell if that is lower;
/// `None` if unknown.
pub fn machine_bytes() -> Option<u64> {
    let text_after = |path: &str, start: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix(start).map(str::to_owned))
    };
    let first_number = |text: String| text.split_whitespace().next()?.parse::<u64>().ok();
    let available =
        text_after("/proc/meminfo", "MemAvailable:").and_then(first_number).map(|kibibytes| kibibytes << 10);
    let address_space = text_after("/proc/self/limits", "Max address space").and_then(first_number);
    let group = text_after("/proc/self/cgroup", "0::").unwrap_or_default();
    // The limit of a control group is the lowest of its own and those of its ancestors.
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    let limit_files = groups.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.max"));
    let limit_files = limit_files.chain(["/sys/fs/cgroup/memory/memory.limit_in_bytes".into()]);
    let group_limits = limit_files.filter_map(|path| std::fs::read_to_string(path).ok().and_then(first_number));
    group_limits.chain(available).chain(address_space).min()
}

/// Returns an error if `bytes` exceeds `allowed`, else the limit of [`set_limit`], else the memory of the machine.
///
/// # Errors
/// The estimate exceeds the limit.
pub fn check(what: impl Into<String>, bytes: u128, allowed: Option<u64>) -> Result<(), TooLarge> {
    let process_limit = LIMIT.load(Ordering::Relaxed);
    let (limit, limit_origin) = match (allowed.or((process_limit > 0).then_some(process_limit)), machine_bytes()) {
        (Some(allowed), _) => (allowed, "what --memory allows"),
        (None, Some(machine)) => (machine, "what this machine has; --memory overrides it"),
        (None, None) => return Ok(()),
    };
    let what = what.into();
    log::info!("{what}: about {} MiB, at most {} MiB ({limit_origin})", bytes.div_ceil(1 << 20), limit >> 20);
    if bytes <= u128::from(limit) {
        return Ok(());
    }
    Err(TooLarge { what, found_mib: bytes.div_ceil(1 << 20), limit_mib: u128::from(limit) >> 20, limit_origin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;
    use rung_theory::stack::Defaults;

    fn plan(stack: &str) -> Plan {
        Plan::parse(stack, &Defaults { heads: 2, head_dim: 16, ..Defaults::default() }).unwrap()
    }

    #[test]
    fn estimates_count_states_and_activations() {
        let [narrow, wide] = ["linear", "fastmax{key=1000}"].map(|stack| state_bytes(&plan(stack), 16));
        assert!(narrow < 1 << 20 && wide > 64 << 20, "{narrow} {wide}");
        let (full, config) = (plan("full"), ModelConfig::default());
        let estimate = config.memory_estimate(&full);
        assert!(estimate.inference_bytes(16) > state_bytes(&full, 16));
        assert!(estimate.training_bytes(16) > estimate.inference_bytes(16));
        let logits_of_three = 3 * 3 * config.classes as u128 * 4;
        assert_eq!(estimate.evaluation_bytes(16, 3), estimate.evaluation_bytes(16, 0) + logits_of_three);
        assert_eq!(estimate.evaluation_bytes(16, 99), estimate.inference_bytes(16));
    }

    #[test]
    fn estimates_count_mixers_wider_than_the_stream_and_all_pairs() {
        let narrow = Defaults { heads: 1, head_dim: 4, ..Defaults::default() };
        let config = ModelConfig::default();
        let inference = |stack: &str, tokens: usize| {
            let plan = Plan::parse(stack, &narrow).unwrap();
            config.memory_estimate(&plan).inference_bytes(tokens)
        };
        // Queries, keys, values and outputs of 4096 heads of width 64, at 4000 tokens.
        assert!(inference("full{heads=4096,kv=4096,head=64}", 4000) > 4000 * 4 * 4096 * 64 * 4);
        assert!(inference("compositional{searches=64,retrievals=64}", 1000) > 1000 * 64 * 64 * 4 * 4);
        assert!(inference("evicting{policy=heavy,heads=4,size=4000}", 4000) > 4 * 4000 * 4000 * 4);
        let plan = Plan::parse("dsa{heads=2,index-heads=2}", &narrow).unwrap();
        assert!(config.memory_estimate(&plan).training_bytes(4000) > 4 * 4000 * 4000 * 4);
    }

    #[test]
    fn check_reports_the_limit_and_its_origin() {
        assert_eq!(check("it", 100, Some(100)), Ok(()));
        let error = check("the state of `x`", 300 << 20, Some(64 << 20)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the state of `x` would take about 300 MiB, expected at most 64 MiB (what --memory allows)"
        );
        assert!(check("all", u128::MAX, None).is_err() || machine_bytes().is_none());
    }
}
