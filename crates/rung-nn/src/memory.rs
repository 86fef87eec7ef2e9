//! How much memory a network takes, estimated before any of it is taken.
//!
//! A few words in a file can ask for terabytes: `fastmax{key=1000}` keeps half a million products of two keys for each number of a
//! value. So whoever builds a network from a file or runs it compares an estimate with a limit first, and refuses by name. The
//! estimate is generous where it can be wrong: it counts states and expanded keys, which grow without the weights.

use rung_theory::stack::Plan;

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

/// Bytes that running one prompt of so many tokens takes beside the weights: states, and what layers compute for every token.
pub fn running_bytes(plan: &Plan, tokens: usize) -> u128 {
    let streams = u128::from(plan.width).saturating_mul(plan.layers.len() as u128 + 16);
    state_bytes(plan, tokens).saturating_add(streams.saturating_mul(4).saturating_mul(tokens as u128))
}

/// Bytes that a process may have on this machine: its memory, or less where a container says so; none where neither is known.
pub fn machine_bytes() -> Option<u64> {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    let container = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let container = container.iter().find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    match (total, container) {
        (Some(total), Some(container)) => Some(total.min(container)),
        (total, container) => total.or(container),
    }
}

/// Refuses what takes more than was allowed, or more than the machine has.
///
/// # Errors
/// It does not fit.
pub fn check(what: impl Into<String>, bytes: u128, allowed: Option<u64>) -> Result<(), TooLarge> {
    let (most, limit) = match (allowed, machine_bytes()) {
        (Some(allowed), _) => (allowed, "what was allowed"),
        (None, Some(machine)) => (machine, "the memory of this machine"),
        (None, None) => return Ok(()),
    };
    if bytes <= u128::from(most) {
        return Ok(());
    }
    Err(TooLarge { what: what.into(), found: bytes >> 20, most: u128::from(most) >> 20, limit })
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
        assert!(running_bytes(&plan("full"), 16) > state_bytes(&plan("full"), 16));
    }

    #[test]
    fn a_limit_is_kept_and_named() {
        assert_eq!(check("it", 100, Some(100)), Ok(()));
        let error = check("the state of `x`", 300 << 20, Some(64 << 20)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the state of `x` would take about 300 MiB, expected at most 64 MiB (what was allowed)"
        );
        assert!(check("all", u128::MAX, None).is_err() || machine_bytes().is_none());
    }
}
