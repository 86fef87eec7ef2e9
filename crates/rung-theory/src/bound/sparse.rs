//! Block-sparse attention cannot solve 2-Sum when its summaries are too short.
//!
//! # Claim
//! A layer that summarises each block of B tokens in `bits` bits, picks k blocks per query by looking at the summaries, and
//! then reads those blocks and its own, cannot solve 2-Sum on values modulo M if for some u <= M a block has more than 2^bits
//! possible contents (sets of at most B of u values), `sum_{i<=B} C(u,i) - [u = M] > 2^bits`, and `J (M - u + 1) > k M`, J being the number of other blocks.
//!
//! Why: among the contents drawn from any u values two share a summary, so a block is *blind* to at least M - u + 1 values v:
//! two contents, one with v and one without, have the same summary. Then some v has more than k blind blocks. Fill those with the
//! contents without v; the query -v picks k blocks; replace the content of a blind block it did not pick by the one with v. The
//! query reads the same inputs as before, but the answer is different.
//!
//! # Conditions
//! A summary is any deterministic map of a block (and its position) to `bits` bits, all heads, keys and values together; k
//! counts the blocks picked by all heads or groups that pick separately. If all blocks use one map, J >= k+1 suffices. If
//! summaries overlap two blocks, use every second block, and count the bits of all summaries that overlap it.
//!
//! # Vacuous when
//! B = 1: a token is its own summary. One full layer with a head of O(log M) solves 2-Sum, so the bound separates the two.
//!
//! # Source
//! The claim H d p = Omega(B log n) is from Ye et al. (2602.01763); the finite form with constants is ours.

use num_bigint::BigUint;

/// A block-sparse layer and a 2-Sum instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSparseInstance {
    /// Tokens in a block.
    pub block_tokens: u64,
    /// k: blocks picked by a query, in addition to its own.
    pub selected_blocks: u64,
    /// Bits of a block's summary.
    pub summary_bits: u64,
    /// M: values are integers modulo this.
    pub modulus: u64,
    /// J: blocks other than the query's own.
    pub other_blocks: u64,
    /// Whether all blocks use the same summary map, independent of their position.
    pub shared_summary_map: bool,
}

/// What the bound says about an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseVerdict {
    /// Whether the instance is proved impossible; if not, the bound says nothing.
    pub impossible: bool,
    /// The smallest u of the claim for which a block has too many contents, if one exists within M.
    pub universe: Option<u64>,
    /// The summary bits below which the instance is impossible; none if the bound applies at no size.
    pub needed_bits: Option<u64>,
}

/// A size that is zero or beyond what is computed exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: found {found}, expected {min} to {max}")]
pub struct SparseError {
    /// The name of the size.
    pub name: &'static str,
    /// The given value.
    pub found: u64,
    /// The smallest allowed.
    pub min: u64,
    /// The largest allowed.
    pub max: u64,
}

/// The number of block contents from u values: sum of C(u, i) for i up to `block_tokens`, minus one if u = M. May stop early once it exceeds 2^`stop_above_bits`.
fn content_count(u: u64, block_tokens: u64, modulus: u64, stop_above_bits: Option<u64>) -> BigUint {
    let mut term = BigUint::from(1_u8);
    let mut sum = BigUint::from(1_u8);
    for i in 1..=block_tokens.min(u) {
        term = term * (u - i + 1) / i;
        sum += &term;
        if stop_above_bits.is_some_and(|bits| sum.bits() > bits + 2) {
            break;
        }
    }
    if u == modulus { sum - 1_u8 } else { sum }
}

/// log2 of the sum of C(u, i) for i up to `block_tokens`, to about six digits after the point.
fn approximate_log2_contents(u: u64, block_tokens: u64) -> f64 {
    let (mut term, mut sum) = (0.0_f64, 0.0_f64);
    for i in 1..=block_tokens.min(u) {
        term += ((u - i + 1) as f64 / i as f64).log2();
        let (high, low) = if term > sum { (term, sum) } else { (sum, term) };
        sum = high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2;
    }
    sum
}

impl BlockSparseInstance {
    /// Checks that every size is in its range.
    ///
    /// # Errors
    /// A size is zero or too large.
    pub fn validate(&self) -> Result<(), SparseError> {
        for (name, found, min, max) in [
            ("block", self.block_tokens, 1, 1 << 14),
            ("select", self.selected_blocks, 0, 1 << 40),
            ("bits", self.summary_bits, 0, 1 << 20),
            ("values", self.modulus, 2, 1 << 40),
            ("blocks", self.other_blocks, 1, 1 << 40),
        ] {
            if !(min..=max).contains(&found) {
                return Err(SparseError { name, found, min, max });
            }
        }
        Ok(())
    }

    /// The largest u with `J (M - u + 1) > k M`; none if there is none.
    fn largest_universe(&self) -> Option<u64> {
        if self.shared_summary_map {
            return (self.other_blocks > self.selected_blocks).then_some(self.modulus);
        }
        // J (M - u + 1) > k M, so M - u + 1 >= floor(k M / J) + 1.
        let (other_blocks, selected_blocks, modulus) =
            (u128::from(self.other_blocks), u128::from(self.selected_blocks), u128::from(self.modulus));
        let excluded_values = u64::try_from(selected_blocks * modulus / other_blocks).ok()?;
        self.modulus.checked_sub(excluded_values).filter(|&u| u > 0)
    }

    /// Whether u values have more than 2^bits contents. Floats decide only if the difference is clear; close cases are exact.
    fn has_too_many_contents(&self, u: u64) -> bool {
        let difference = approximate_log2_contents(u, self.block_tokens) - self.summary_bits as f64;
        if difference.abs() > 0.01 && u < self.modulus {
            difference > 0.0
        } else {
            self.has_too_many_contents_exactly(u)
        }
    }

    fn has_too_many_contents_exactly(&self, u: u64) -> bool {
        content_count(u, self.block_tokens, self.modulus, Some(self.summary_bits))
            > BigUint::from(1_u8) << self.summary_bits
    }

    /// Applies the bound, exactly.
    ///
    /// # Errors
    /// A size is zero or too large.
    pub fn verdict(&self) -> Result<SparseVerdict, SparseError> {
        self.validate()?;
        let largest = self.largest_universe();
        let needed_bits = largest.map(|u| {
            // Impossible while 2^bits < contents: the smallest power of two that is at least that.
            let contents = content_count(u, self.block_tokens, self.modulus, None);
            if contents == BigUint::ZERO { 0 } else { (contents - 1_u8).bits() }
        });
        // The smallest u that has too many contents. Contents increase with u, except for the last step to M.
        let universe = if self.has_too_many_contents(self.modulus) {
            let (mut low, mut high) = (1, self.modulus);
            while low < high {
                let midpoint = low + (high - low) / 2;
                if self.has_too_many_contents(midpoint) { high = midpoint } else { low = midpoint + 1 }
            }
            Some(high)
        } else if self.has_too_many_contents(self.modulus - 1) {
            Some(self.modulus - 1)
        } else {
            None
        };
        let impossible = match (universe, largest) {
            (Some(u), Some(largest)) => u <= largest && self.has_too_many_contents_exactly(u),
            _ => false,
        };
        Ok(SparseVerdict { impossible, universe, needed_bits: needed_bits.filter(|&bits| bits > 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The claim, evaluated for every u.
    fn brute_force(s: &BlockSparseInstance) -> bool {
        let contents = |u: u64| -> u128 {
            let choose = |i: u64| (1..=u128::from(i)).fold(1_u128, |c, j| c * (u128::from(u) - j + 1) / j);
            (0..=s.block_tokens.min(u)).map(choose).sum::<u128>() - u128::from(u == s.modulus)
        };
        (1..=s.modulus).any(|u| {
            contents(u) > 1_u128 << s.summary_bits
                && if s.shared_summary_map {
                    s.other_blocks > s.selected_blocks
                } else {
                    u128::from(s.other_blocks) * u128::from(s.modulus - u + 1)
                        > u128::from(s.selected_blocks) * u128::from(s.modulus)
                }
        })
    }

    #[test]
    fn verdict_agrees_with_brute_force_over_every_u() {
        for block in 1..5 {
            for select in 0..4 {
                for bits in 0..9 {
                    for values in 2..12 {
                        for blocks in 1..8 {
                            for same_map in [false, true] {
                                let sparse = BlockSparseInstance {
                                    block_tokens: block,
                                    selected_blocks: select,
                                    summary_bits: bits,
                                    modulus: values,
                                    other_blocks: blocks,
                                    shared_summary_map: same_map,
                                };
                                let verdict = sparse.verdict().unwrap();
                                assert_eq!(verdict.impossible, brute_force(&sparse), "{sparse:?} {verdict:?}");
                                assert_eq!(verdict.impossible, verdict.needed_bits.is_some_and(|needed| bits < needed));
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn verdict_handles_large_sizes_and_rejects_absurd_ones() {
        let large = BlockSparseInstance {
            block_tokens: 4096,
            selected_blocks: 16,
            summary_bits: 1 << 16,
            modulus: 1 << 20,
            other_blocks: 1 << 10,
            shared_summary_map: false,
        };
        assert!(!large.verdict().unwrap().impossible);
        assert!(BlockSparseInstance { summary_bits: 1 << 14, ..large }.verdict().unwrap().impossible);
        assert!(BlockSparseInstance { block_tokens: 0, ..large }.verdict().is_err());
        assert!(BlockSparseInstance { summary_bits: u64::MAX, ..large }.verdict().is_err());
    }
}
