//! How much memory a network takes, estimated before any of it is taken.
//!
//! A few words in a file can ask for terabytes: `fastmax{key=1000}` keeps half a million products of two keys for each number of a
//! value. So whoever builds a network from a file or runs it compares an estimate with a limit first, and refuses by name. The
//! estimate is generous where it can be wrong: it counts states and expanded keys, which grow without the weights.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rung_theory::stack::Plan;

use crate::model::ModelConfig;

/// A network, or its work, that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} would take about {found} MiB, expected at most {most} MiB ({limit})")]
pub struct TooLarge {
    /// What takes the memory.
    pub what: String,
    /// Mebibytes, estimated.
    pub found: u128,
    /// Mebibytes allowed.
    pub most: u128,
    /// Where the limit comes from.
    pub limit: &'static str,
}

/// Bytes of the states of one prompt, which are copied while they are advanced, and of its keys as the states have them: what a few
/// words in a stack can make large without any weight.
pub fn state_bytes(plan: &Plan, tokens: usize) -> u128 {
    let (mut states, mut widest) = (0_u128, 0_u128);
    for layer in &plan.layers {
        let mut keys = 0_u128;
        for mixer in layer.mixers.iter() {
            let facts = mixer.facts();
            states = states.saturating_add(facts.crossing()).saturating_add(facts.input_conv_state);
            // As many keys as there are numbers of state for each number of a value.
            let value = mixer.number("value").or_else(|| mixer.number("head")).unwrap_or(1).max(1);
            keys = keys.saturating_add(facts.recurrent_state / u128::from(value));
        }
        // One layer works at a time.
        widest = widest.max(keys);
    }
    let numbers = states.saturating_mul(3).saturating_add(widest.saturating_mul(2).saturating_mul(tokens as u128));
    numbers.saturating_mul(4)
}

/// The sizes of a network that its work depends on.
#[derive(Clone, Copy, Debug)]
pub struct Footprint<'a> {
    plan: &'a Plan,
    hidden: u128,
    classes: u128,
}

impl<'a> Footprint<'a> {
    /// Those of a plan's network.
    pub fn new(plan: &'a Plan, config: &ModelConfig) -> Self {
        let hidden = config.feed_forward.hidden(plan.width as usize).unwrap_or(0) as u128;
        Self { plan, hidden, classes: config.classes as u128 }
    }

    /// Bytes of one prompt of so many tokens in single precision, beside the weights: states, and what layers compute for every token.
    pub fn running_bytes(&self, tokens: usize) -> u128 {
        let streams = u128::from(self.plan.width).saturating_mul(self.plan.layers.len() as u128 + 16);
        self.bytes(streams.saturating_add(3 * self.hidden), tokens)
    }

    /// The same until its backward pass: about thirty tensors as wide as a token and six of the hidden width in each layer.
    pub fn training_bytes(&self, tokens: usize) -> u128 {
        let layer = u128::from(self.plan.width).saturating_mul(30).saturating_add(6 * self.hidden);
        self.bytes(layer.saturating_mul(self.plan.layers.len() as u128 + 1), tokens)
    }

    fn bytes(&self, numbers_per_token: u128, tokens: usize) -> u128 {
        let numbers = numbers_per_token.saturating_add(3 * self.classes).saturating_mul(tokens as u128);
        state_bytes(self.plan, tokens).saturating_add(numbers.saturating_mul(4))
    }
}

/// Bytes of a weight, in double precision, for each pair of tokens of one prompt in each head: what is kept to look at.
pub fn pair_bytes(plan: &Plan, tokens: usize) -> u128 {
    let heads = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let heads: u128 = heads.map(|mixer| u128::from(mixer.number("heads").unwrap_or(1))).sum();
    heads.saturating_mul(8).saturating_mul((tokens as u128).saturating_mul(tokens as u128))
}

/// The limit that [`set_limit`] was given; 0 for none.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Sets the bytes that this process may take, instead of what the machine has. It is of the process, as the memory is.
pub fn set_limit(bytes: Option<u64>) {
    LIMIT.store(bytes.unwrap_or(0), Ordering::Relaxed);
}

/// Bytes that this process may have on this machine: what is available, or less where the limit of a container, of a job or of the
/// shell says so; none where nothing is known.
pub fn machine_bytes() -> Option<u64> {
    let line = |path: &str, start: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix(start).map(str::to_owned))
    };
    let first_number = |text: String| text.split_whitespace().next()?.parse::<u64>().ok();
    let available = line("/proc/meminfo", "MemAvailable:").and_then(first_number).map(|kibibytes| kibibytes << 10);
    let address_space = line("/proc/self/limits", "Max address space").and_then(first_number);
    let group = line("/proc/self/cgroup", "0::").unwrap_or_default();
    // A group is held by its own limit and by those around it.
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    let groups = groups.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.max"));
    let groups = groups.chain(["/sys/fs/cgroup/memory/memory.limit_in_bytes".into()]);
    let groups = groups.filter_map(|path| std::fs::read_to_string(path).ok().and_then(first_number));
    groups.chain(available).chain(address_space).min()
}

/// Refuses what takes more than was allowed here, or by [`set_limit`], or than the machine has.
///
/// # Errors
/// It does not fit.
pub fn check(what: impl Into<String>, bytes: u128, allowed: Option<u64>) -> Result<(), TooLarge> {
    let set = LIMIT.load(Ordering::Relaxed);
    let (most, limit) = match (allowed.or((set > 0).then_some(set)), machine_bytes()) {
        (Some(allowed), _) => (allowed, "what --memory allows"),
        (None, Some(machine)) => (machine, "what this machine has; --memory overrides it"),
        (None, None) => return Ok(()),
    };
    let what = what.into();
    log::info!("{what}: about {} MiB, at most {} MiB ({limit})", bytes.div_ceil(1 << 20), most >> 20);
    if bytes <= u128::from(most) {
        return Ok(());
    }
    Err(TooLarge { what, found: bytes.div_ceil(1 << 20), most: u128::from(most) >> 20, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::stack::Defaults;

    fn plan(stack: &str) -> Plan {
        Plan::parse(stack, &Defaults { heads: 2, head_dim: 16, ..Defaults::default() }).unwrap()
    }

    #[test]
    fn wide_states_are_counted() {
        let [narrow, wide] = ["linear", "fastmax{key=1000}"].map(|stack| state_bytes(&plan(stack), 16));
        assert!(narrow < 1 << 20 && wide > 64 << 20, "{narrow} {wide}");
        let (full, config) = (plan("full"), ModelConfig::default());
        let footprint = Footprint::new(&full, &config);
        assert!(footprint.running_bytes(16) > state_bytes(&full, 16));
        assert!(footprint.training_bytes(16) > footprint.running_bytes(16));
    }

    #[test]
    fn a_limit_is_kept_and_named() {
        assert_eq!(check("it", 100, Some(100)), Ok(()));
        let error = check("the state of `x`", 300 << 20, Some(64 << 20)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the state of `x` would take about 300 MiB, expected at most 64 MiB (what --memory allows)"
        );
        assert!(check("all", u128::MAX, None).is_err() || machine_bytes().is_none());
    }
}
