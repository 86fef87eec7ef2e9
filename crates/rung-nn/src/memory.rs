//! Estimates of the memory that a network needs, before it is allocated.
//!
//! A short stack can need terabytes: the state of `fastmax{key=1000}` has half a million products of key channels for each value channel. So
//! code that builds or runs a network from a file first compares an estimate with a limit, and returns an error. The estimate is an upper
//! one: it counts states and expanded keys, whose sizes do not depend on the number of weights.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rung_theory::stack::Plan;

pub use crate::error::TooLarge;

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

/// The sizes of a network that determine the memory of its computation.
#[derive(Clone, Copy, Debug)]
pub struct MemoryEstimate<'a> {
    plan: &'a Plan,
    hidden_width: u128,
    classes: u128,
}

impl<'a> MemoryEstimate<'a> {
    /// The sizes of a plan's network.
    /// Called by [`ModelConfig::memory_estimate`](crate::ModelConfig::memory_estimate), which knows the other two sizes.
    pub fn new(plan: &'a Plan, hidden_width: usize, classes: usize) -> Self {
        Self { plan, hidden_width: hidden_width as u128, classes: classes as u128 }
    }

    /// Bytes of a forward pass over one prompt of this many tokens in single precision, without the weights: states and activations.
    pub fn inference_bytes(&self, tokens: usize) -> u128 {
        self.evaluation_bytes(tokens, tokens)
    }

    /// As [`inference_bytes`](Self::inference_bytes), where logits of at most `logit_rows` tokens are in memory at once.
    pub fn evaluation_bytes(&self, tokens: usize, logit_rows: usize) -> u128 {
        let residuals = u128::from(self.plan.width).saturating_mul(self.plan.layers.len() as u128 + 16);
        self.bytes(residuals.saturating_add(3 * self.hidden_width), tokens, tokens.min(logit_rows))
    }

    /// Bytes of a forward and backward pass: each layer stores about thirty activations of the model's width and six of the hidden width.
    pub fn training_bytes(&self, tokens: usize) -> u128 {
        let layer = u128::from(self.plan.width).saturating_mul(30).saturating_add(6 * self.hidden_width);
        self.bytes(layer.saturating_mul(self.plan.layers.len() as u128 + 1), tokens, tokens)
    }

    fn bytes(&self, elements_per_token: u128, tokens: usize, logit_rows: usize) -> u128 {
        let logits = self.classes.saturating_mul(3).saturating_mul(logit_rows as u128);
        let elements = elements_per_token.saturating_mul(tokens as u128).saturating_add(logits);
        state_bytes(self.plan, tokens).saturating_add(elements.saturating_mul(size_of::<f32>() as u128))
    }
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
