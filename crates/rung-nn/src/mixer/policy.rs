//! Eviction policies of a KV cache of fixed size.
//!
//! A cache has a fixed number of slots. A [`CachePolicy`] assigns a new token a slot, whose token is evicted, or drops the new token.
//! All but one policy use only the position of the token; the heavy-hitter policy uses the attention that each cached token received.

use rung_theory::stack::mixer::EvictionPolicy;
use rung_theory::task::splitmix64;

/// How tokens are evicted from a full cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// A policy that uses only positions.
    ByPosition(PositionPolicy),
    /// The cached token that received the least attention is evicted; among equals the one in the first slot.
    HeavyHitters,
}

/// A policy that uses only the position of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionPolicy {
    /// The cache has the first few tokens (attention sinks) and the most recent of the others.
    Recent {
        /// Attention sinks: first tokens that are never evicted.
        sinks: usize,
    },
    /// The cache has the first tokens only.
    Prefix,
    /// The cache has every n-th token. Whenever it is full, n doubles, and every other token is evicted.
    Stride,
    /// The cache has a uniform random sample of all tokens so far: token t enters with probability `size / (t + 1)`. The sample is the
    /// same in every run.
    Reservoir,
}

impl CachePolicy {
    /// The policy that a plan's mixer names, for a cache of `size` tokens.
    pub fn new(policy: EvictionPolicy, size: usize) -> Self {
        Self::ByPosition(match policy {
            EvictionPolicy::Last => PositionPolicy::Recent { sinks: 0 },
            EvictionPolicy::Sinks => PositionPolicy::Recent { sinks: 4.min(size / 2) },
            EvictionPolicy::Prefix => PositionPolicy::Prefix,
            EvictionPolicy::Stride => PositionPolicy::Stride,
            EvictionPolicy::Reservoir => PositionPolicy::Reservoir,
            EvictionPolicy::HeavyHitters => return Self::HeavyHitters,
        })
    }
}

impl PositionPolicy {
    /// The slot, out of `size`, of a new token; `None` if it is dropped. The first tokens take the slots in order.
    pub fn slot(self, token: usize, size: usize) -> Option<usize> {
        if token < size {
            return Some(token);
        }
        match self {
            Self::Recent { sinks } => Some(sinks + (token - sinks) % (size - sinks)),
            Self::Prefix => None,
            Self::Stride => {
                // The smallest power of two of which at most `size` multiples came so far.
                let stride = (token / size + 1).next_power_of_two();
                if !token.is_multiple_of(stride) {
                    return None;
                }
                // The cache still has odd multiples of half the stride; the new token replaces the first of them.
                let odd_multiple = 2 * (token / stride - size.div_ceil(2)) + 1;
                self.slot(odd_multiple * stride / 2, size)
            }
            Self::Reservoir => {
                let slot = (hash(token as u64) % (token as u64 + 1)) as usize;
                (slot < size).then_some(slot)
            }
        }
    }
}

/// A hash of a token's position.
fn hash(position: u64) -> u64 {
    splitmix64(position.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sorted tokens in the cache after each of `time` tokens.
    fn caches(policy: PositionPolicy, size: usize, time: usize) -> Vec<Vec<usize>> {
        let mut slots = Vec::new();
        let contents = (0..time).map(|token| {
            match policy.slot(token, size) {
                Some(slot) if slot == slots.len() => slots.push(token),
                Some(slot) => slots[slot] = token,
                None => {}
            }
            let mut sorted = slots.clone();
            sorted.sort_unstable();
            sorted
        });
        contents.collect()
    }

    #[test]
    fn position_policies_cache_the_documented_tokens() {
        let last = |policy, size, time| caches(policy, size, time).pop().unwrap();
        assert_eq!(last(PositionPolicy::Recent { sinks: 0 }, 3, 8), [5, 6, 7]);
        assert_eq!(last(PositionPolicy::Recent { sinks: 2 }, 5, 12), [0, 1, 9, 10, 11]);
        assert_eq!(last(PositionPolicy::Prefix, 3, 8), [0, 1, 2]);
        assert_eq!(last(PositionPolicy::Stride, 4, 4), [0, 1, 2, 3]);
        assert_eq!(last(PositionPolicy::Stride, 4, 8), [0, 2, 4, 6]);
        assert_eq!(last(PositionPolicy::Stride, 4, 16), [0, 4, 8, 12]);
        assert_eq!(last(PositionPolicy::Stride, 5, 20), [0, 4, 8, 12, 16]);
        assert_eq!(last(PositionPolicy::Stride, 1, 20), [0]);
    }

    /// Until the next doubling, every cached token is a multiple of half the stride.
    #[test]
    fn stride_policy_caches_all_multiples_of_the_stride() {
        for size in [2, 3, 4, 7, 8] {
            for (token, cached) in caches(PositionPolicy::Stride, size, 200).iter().enumerate().skip(size) {
                let stride = (token / size + 1).next_power_of_two();
                assert!(cached.iter().all(|position| position % (stride / 2) == 0), "{size}, {token}: {cached:?}");
                let mut multiples = (0..=token).step_by(stride);
                assert!(multiples.all(|position| cached.contains(&position)), "{size}, {token}: {cached:?}");
            }
        }
    }

    /// Every token has the same probability to be in the sample, whatever its position.
    #[test]
    fn reservoir_policy_samples_positions_uniformly() {
        let (size, time) = (64, 4096);
        let cached = caches(PositionPolicy::Reservoir, size, time).pop().unwrap();
        assert_eq!(cached.len(), size);
        for quarter in 0..4 {
            let count = cached.iter().filter(|token| **token / (time / 4) == quarter).count();
            // 16 are expected, with a standard deviation of 3.5.
            assert!((6..=26).contains(&count), "{count} in quarter {quarter}");
        }
        assert_eq!(cached, caches(PositionPolicy::Reservoir, size, time).pop().unwrap());
    }
}
