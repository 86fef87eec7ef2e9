//! Who may stay in a cache of fixed size.
//!
//! A cache has so many slots. A new token takes one, and whoever had it is gone for ever; or the token takes none, and is never seen
//! again. A [`Policy`] says which. All but one look only at the number of the token, so that its slot is known without
//! knowing what the cache holds; the heavy-hitter policy looks at how much each cached token was read.

use rung_theory::stack::mixer::EvictionPolicy;
use rung_theory::task::splitmix64;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By number.
    Numbered(Numbered),
    /// The token that was read the least makes room for the new one; of equal ones the first slot.
    Heavy,
}

/// A policy that looks only at the number of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// The first few stay, the last of the others.
    Recent {
        /// How many stay.
        first: usize,
    },
    /// The first stay, and nothing else does.
    Prefix,
    /// Every so many-th token stays. Whenever the cache is full of them, that number doubles, and every other one makes room.
    Stride,
    /// A fair sample of all tokens so far: token t is in it with chance `size / (t + 1)`. The draw is the same in every run.
    Reservoir,
}

impl Policy {
    /// The policy that a plan's mixer names, for a cache of `size` tokens.
    pub fn new(policy: EvictionPolicy, size: usize) -> Self {
        Self::Numbered(match policy {
            EvictionPolicy::Last => Numbered::Recent { first: 0 },
            EvictionPolicy::Sinks => Numbered::Recent { first: 4.min(size / 2) },
            EvictionPolicy::Prefix => Numbered::Prefix,
            EvictionPolicy::Stride => Numbered::Stride,
            EvictionPolicy::Reservoir => Numbered::Reservoir,
            EvictionPolicy::HeavyHitters => return Self::Heavy,
        })
    }
}

impl Numbered {
    /// The slot that a token takes out of `size`, if it is kept. The first tokens take the slots in order.
    pub fn slot(self, token: usize, size: usize) -> Option<usize> {
        if token < size {
            return Some(token);
        }
        match self {
            Self::Recent { first } => Some(first + (token - first) % (size - first)),
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

/// A hash of a token's number.
fn hash(number: u64) -> u64 {
    splitmix64(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens in the cache after each of `time`, sorted.
    fn caches(policy: Numbered, size: usize, time: usize) -> Vec<Vec<usize>> {
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
    fn numbers_alone_decide_who_stays() {
        let last = |policy, size, time| caches(policy, size, time).pop().unwrap();
        assert_eq!(last(Numbered::Recent { first: 0 }, 3, 8), [5, 6, 7]);
        assert_eq!(last(Numbered::Recent { first: 2 }, 5, 12), [0, 1, 9, 10, 11]);
        assert_eq!(last(Numbered::Prefix, 3, 8), [0, 1, 2]);
        assert_eq!(last(Numbered::Stride, 4, 4), [0, 1, 2, 3]);
        assert_eq!(last(Numbered::Stride, 4, 8), [0, 2, 4, 6]);
        assert_eq!(last(Numbered::Stride, 4, 16), [0, 4, 8, 12]);
        assert_eq!(last(Numbered::Stride, 5, 20), [0, 4, 8, 12, 16]);
        assert_eq!(last(Numbered::Stride, 1, 20), [0]);
    }

    /// Within the next doubling, all that is not yet replaced is a multiple of half the stride.
    #[test]
    fn a_stride_stays_regular() {
        for size in [2, 3, 4, 7, 8] {
            for (token, held) in caches(Numbered::Stride, size, 200).iter().enumerate().skip(size) {
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
        let held = caches(Numbered::Reservoir, size, time).pop().unwrap();
        assert_eq!(held.len(), size);
        for quarter in 0..4 {
            let count = held.iter().filter(|token| **token / (time / 4) == quarter).count();
            // 16 are expected, with a deviation of 3.5.
            assert!((6..=26).contains(&count), "{count} in quarter {quarter}");
        }
        assert_eq!(held, caches(Numbered::Reservoir, size, time).pop().unwrap());
    }
}
