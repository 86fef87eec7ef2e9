//! Eviction: which tokens a cache of fixed size keeps.
//!
//! A cache has so many slots. A new token takes one, and the token that had it is evicted; or the token takes none, and is never
//! cached. A [`CachePolicy`] decides. All but one use only the position of the token, so that its slot does not depend on
//! what the cache holds; the heavy-hitter policy uses the attention that each cached token received.

use rung_theory::stack::mixer::EvictionPolicy;
use rung_theory::task::splitmix64;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// By position.
    ByPosition(PositionPolicy),
    /// The cached token that received the least attention is evicted; of equal ones the one in the first slot.
    HeavyHitters,
}

/// A policy that uses only the position of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionPolicy {
    /// The first few (attention sinks) and the most recent of the others.
    Recent {
        /// Attention sinks: first tokens that are never evicted.
        sinks: usize,
    },
    /// The first tokens only.
    Prefix,
    /// Every n-th token. Whenever the cache is full of them, n doubles, and every other one is evicted.
    Stride,
    /// A fair sample of all tokens so far: token t is in it with chance `size / (t + 1)`. The draw is the same in every run.
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
    /// The slot that a token takes out of `size`, if it is kept. The first tokens take the slots in order.
    pub fn slot(self, token: usize, size: usize) -> Option<usize> {
        if token < size {
            return Some(token);
        }
        match self {
            Self::Recent { sinks } => Some(sinks + (token - sinks) % (size - sinks)),
            Self::Prefix => None,
            Self::Stride => {
                // The least power of two of which no more than `size` multiples came so far.
                let stride = (token / size + 1).next_power_of_two();
                if !token.is_multiple_of(stride) {
                    return None;
                }
                // At half the stride the cache held the odd multiples too; those go, in order.
                let odd = 2 * (token / stride - size.div_ceil(2)) + 1;
                self.slot(odd * stride / 2, size)
            }
            Self::Reservoir => {
                let drawn = (hash(token as u64) % (token as u64 + 1)) as usize;
                (drawn < size).then_some(drawn)
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

    /// The tokens in the cache after each of `time`, sorted.
    fn caches(policy: PositionPolicy, size: usize, time: usize) -> Vec<Vec<usize>> {
        let mut slots = Vec::new();
        let each = (0..time).map(|token| {
            match policy.slot(token, size) {
                Some(slot) if slot == slots.len() => slots.push(token),
                Some(slot) => slots[slot] = token,
                None => {}
            }
            let mut held = slots.clone();
            held.sort_unstable();
            held
        });
        each.collect()
    }

    #[test]
    fn positions_alone_decide_what_is_kept() {
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

    /// Within the next doubling, all that is not yet replaced is a multiple of half the stride.
    #[test]
    fn a_stride_stays_regular() {
        for size in [2, 3, 4, 7, 8] {
            for (token, held) in caches(PositionPolicy::Stride, size, 200).iter().enumerate().skip(size) {
                let stride = (token / size + 1).next_power_of_two();
                assert!(held.iter().all(|kept| kept % (stride / 2) == 0), "{size}, {token}: {held:?}");
                let wanted: Vec<usize> = (0..=token).step_by(stride).collect();
                assert!(wanted.iter().all(|kept| held.contains(kept)), "{size}, {token}: {held:?}");
            }
        }
    }

    /// Every token has the same chance to be in the sample, wherever it stands.
    #[test]
    fn a_reservoir_is_fair() {
        let (size, time) = (64, 4096);
        let held = caches(PositionPolicy::Reservoir, size, time).pop().unwrap();
        assert_eq!(held.len(), size);
        for quarter in 0..4 {
            let count = held.iter().filter(|token| **token / (time / 4) == quarter).count();
            // 16 are expected, with a deviation of 3.5.
            assert!((6..=26).contains(&count), "{count} in quarter {quarter}");
        }
        assert_eq!(held, caches(PositionPolicy::Reservoir, size, time).pop().unwrap());
    }
}
