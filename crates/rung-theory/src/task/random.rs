//! Random whole numbers, unbiased, one at a time or in bulk.
//!
//! Everything a task draws comes from one seeded `ChaCha8` stream, whose bits are the same on every machine, and
//! only through the functions here: so a seed fixes a sample bit for bit.
//!
//! A single number uses Lemire's method: multiply a random word by the bound, keep the high half, and reject the
//! few low halves that would favour some results. [`fill`] goes one step further. What the multiplication leaves in
//! the low half is itself a random word, good for another number; so one 64-bit word serves several numbers in a
//! row, and one comparison at the end rejects them all together (Brackett-Rozinsky and Lemire, *Batched Ranged
//! Random Integer Generation*, 2024). A table of 900 values below 900 costs 184 words instead of 900, and eight
//! words are split side by side, in vector instructions where the processor has them. With or without them the
//! numbers are the same.

use rand_chacha::rand_core::Rng as _;

/// The generator behind every sample. Make one with `Rng::seed_from_u64` from `rand_chacha::rand_core::SeedableRng`, or
/// with [`seeded`].
pub type Rng = rand_chacha::ChaCha8Rng;

/// A generator for a seed.
pub fn seeded(seed: u64) -> Rng {
    rand_chacha::rand_core::SeedableRng::seed_from_u64(seed)
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a permutation that changes half the bits for any change of one.
pub fn splitmix64(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below `bound` (0 if `bound` is 0).
pub fn below(rng: &mut Rng, bound: u32) -> u32 {
    let mut product = u64::from(rng.next_u32()) * u64::from(bound);
    if (product as u32) < bound {
        // 2^32 mod bound, computed only in the rare case that it matters.
        let threshold = bound.wrapping_neg() % bound;
        while (product as u32) < threshold {
            product = u64::from(rng.next_u32()) * u64::from(bound);
        }
    }
    (product >> 32) as u32
}

/// A number below a 64-bit `bound` (0 if `bound` is 0).
pub fn below_wide(rng: &mut Rng, bound: u64) -> u64 {
    let mut product = u128::from(rng.next_u64()) * u128::from(bound);
    if (product as u64) < bound {
        let threshold = bound.wrapping_neg() % bound;
        while (product as u64) < threshold {
            product = u128::from(rng.next_u64()) * u128::from(bound);
        }
    }
    (product >> 64) as u64
}

/// A fair coin.
pub fn coin(rng: &mut Rng) -> bool {
    rng.next_u32() >> 31 == 1
}

/// Puts `items` into a uniformly random order.
pub fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last as u32 + 1) as usize);
    }
}

/// Fills `out` with independent numbers below `bound` (zeros if `bound` is 0).
pub fn fill(rng: &mut Rng, bound: u32, out: &mut [u32]) {
    if bound <= 1 {
        return out.fill(0);
    }
    // As many numbers per word as keep bound^numbers within 2^56: then fewer than one word in 256 is examined twice.
    match 56 / (u32::BITS - (bound - 1).leading_zeros()) {
        0 | 1 => fill_groups::<1>(rng, bound, out),
        2 => fill_groups::<2>(rng, bound, out),
        3 => fill_groups::<3>(rng, bound, out),
        4 => fill_groups::<4>(rng, bound, out),
        5 => fill_groups::<5>(rng, bound, out),
        6 => fill_groups::<6>(rng, bound, out),
        7 => fill_groups::<7>(rng, bound, out),
        _ => fill_groups::<8>(rng, bound, out),
    }
}

/// Words asked of the generator at once: four of its blocks.
const WORDS: usize = 128;

/// Words that are split side by side, so that the splitting becomes vector instructions.
const LANES: usize = 8;

/// The numbers from `LANES` words: first the first number of every word, then the second, and so on.
type Block<const GROUP: usize> = [[u32; LANES]; GROUP];

/// [`fill`] with `GROUP` numbers from each word.
fn fill_groups<const GROUP: usize>(rng: &mut Rng, bound: u32, out: &mut [u32]) {
    let (whole, tail) = out.split_at_mut(out.len() / (GROUP * LANES) * (GROUP * LANES));
    if !whole.is_empty() {
        fill_blocks::<GROUP>(rng, bound, whole);
    }
    if tail.len() <= 2 * LANES {
        // A block would take longer than this.
        tail.fill_with(|| below(rng, bound));
    } else {
        let (mut bytes, mut block) = ([0; 8 * LANES], [[[0; LANES]; GROUP]]);
        rng.fill_bytes(&mut bytes);
        split(rng, bound, bytes.as_chunks().0.as_chunks().0, &mut block);
        tail.copy_from_slice(&block.as_flattened().as_flattened()[..tail.len()]);
    }
}

/// [`fill_groups`] for whole blocks. On its own, so that small fills need not clear a large buffer.
#[inline(never)]
fn fill_blocks<const GROUP: usize>(rng: &mut Rng, bound: u32, whole: &mut [u32]) {
    let mut buffer = [0; 8 * WORDS];
    for part in whole.chunks_mut(GROUP * WORDS) {
        let bytes = &mut buffer[..8 * part.len() / GROUP];
        rng.fill_bytes(bytes);
        let blocks = part.as_chunks_mut().0.as_chunks_mut().0;
        split::<GROUP>(rng, bound, bytes.as_chunks().0.as_chunks().0, blocks);
    }
}

/// Splits words into numbers, with fresh words for those that must be rejected.
fn split<const GROUP: usize>(rng: &mut Rng, bound: u32, words: &[[[u8; 8]; LANES]], blocks: &mut [Block<GROUP>]) {
    let product = u64::from(bound).pow(GROUP as u32);
    // The exact threshold, 2^64 mod product, takes a division and lies below the product; so the product comes first.
    let suspect = split_all(bound, product, words, blocks);
    if suspect == 0 {
        return;
    }
    let threshold = product.wrapping_neg() % product;
    for (at, block) in blocks.iter_mut().enumerate().filter(|(at, _)| suspect >> at & 1 == 1) {
        for lane in 0..LANES {
            let mut word = u64::from_le_bytes(words[at][lane]);
            loop {
                let mut rest = word;
                for numbers in &mut *block {
                    let product = u128::from(rest) * u128::from(bound);
                    numbers[lane] = (product >> 64) as u32;
                    rest = product as u64;
                }
                if rest >= threshold {
                    break;
                }
                word = rng.next_u64();
            }
        }
    }
}

/// Splits all words, good or not; bit b of the result tells that block b has one that leaves less than the threshold.
fn split_all<const GROUP: usize>(
    bound: u32,
    threshold: u64,
    words: &[[[u8; 8]; LANES]],
    blocks: &mut [Block<GROUP>],
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        /// [`split_lanes`] compiled for processors with 256-bit integers: the same numbers, about twice as fast.
        #[target_feature(enable = "avx2")]
        fn split_wide<const GROUP: usize>(
            bound: u32,
            threshold: u64,
            words: &[[[u8; 8]; LANES]],
            blocks: &mut [Block<GROUP>],
        ) -> u32 {
            split_lanes(bound, threshold, words, blocks)
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the function is safe but for needing AVX2, which this processor was just found to have.
            #[expect(unsafe_code, reason = "a function for a processor feature can be called in no other way")]
            return unsafe { split_wide(bound, threshold, words, blocks) };
        }
    }
    split_lanes(bound, threshold, words, blocks)
}

/// [`split_all`], always made part of its caller, so that it is compiled for the caller's processor.
#[inline(always)]
fn split_lanes<const GROUP: usize>(
    bound: u32,
    threshold: u64,
    words: &[[[u8; 8]; LANES]],
    blocks: &mut [Block<GROUP>],
) -> u32 {
    const LOW: u64 = 0xFFFF_FFFF;
    let bound = u64::from(bound);
    let mut rejected = 0;
    for (at, (block, words)) in blocks.iter_mut().zip(words).enumerate() {
        // Each word in two halves, because vectors multiply 32 by 32 bits.
        let (mut high, mut low) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let word = u64::from_le_bytes(words[lane]);
            (high[lane], low[lane]) = (word >> 32, word & LOW);
        }
        for numbers in block {
            for lane in 0..LANES {
                let below = low[lane] * bound;
                let above = high[lane] * bound + (below >> 32);
                numbers[lane] = (above >> 32) as u32;
                (high[lane], low[lane]) = (above & LOW, below & LOW);
            }
        }
        let mut bad = 0;
        for lane in 0..LANES {
            bad |= u32::from((high[lane] << 32 | low[lane]) < threshold);
        }
        rejected |= bad << at;
    }
    rejected
}

/// Draws several different numbers below a bound, in random order, without touching the rest of the range.
///
/// Holds the range as a list; a draw swaps the chosen ones to the front, copies them out and swaps back. So the
/// list is written once, a draw costs what it returns, and nothing carries over from one draw to the next.
#[derive(Clone, Debug, Default)]
pub struct Distinct {
    pool: Vec<u32>,
    swaps: Vec<usize>,
}

impl Distinct {
    /// Appends `count` different numbers below `bound` to `out` (all of them if there are fewer).
    pub fn draw(&mut self, rng: &mut Rng, bound: u32, count: usize, out: &mut Vec<u32>) {
        if self.pool.len() != bound as usize {
            self.pool.clear();
            self.pool.extend(0..bound);
        }
        let count = count.min(self.pool.len());
        self.swaps.clear();
        for front in 0..count {
            let chosen = front + below(rng, bound - front as u32) as usize;
            self.pool.swap(front, chosen);
            self.swaps.push(chosen);
        }
        out.extend_from_slice(&self.pool[..count]);
        for (front, chosen) in self.swaps.iter().enumerate().rev() {
            self.pool.swap(front, *chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of counts against a uniform law, in standard deviations from its mean.
    fn deviation(counts: &[u64]) -> f64 {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let statistic: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2) / mean).sum();
        let freedom = (counts.len() - 1) as f64;
        (statistic - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn bulk_numbers_are_uniform_for_every_group_size() {
        for bound in [2_u32, 3, 10, 100, 181, 182, 900, 1025, 5000] {
            let mut rng = seeded(u64::from(bound));
            let mut counts = vec![0; bound as usize];
            let mut out = vec![0; 777];
            for _ in 0..(bound * 20).div_ceil(777) + 20 {
                fill(&mut rng, bound, &mut out);
                for value in &out {
                    counts[*value as usize] += 1;
                }
            }
            assert!(deviation(&counts).abs() < 5.0, "bound {bound}: {}", deviation(&counts));
        }
    }

    #[test]
    fn wide_bounds_stay_in_range_and_reach_both_ends() {
        let mut rng = seeded(1);
        let mut out = vec![0; 4096];
        for bound in [1 << 20, (1 << 30) + 1, u32::MAX] {
            fill(&mut rng, bound, &mut out);
            assert!(out.iter().all(|value| *value < bound));
            assert!(out.iter().any(|value| *value < bound / 100) && out.iter().any(|value| *value > bound / 100 * 99));
            assert!(
                below(&mut rng, bound) < bound && below_wide(&mut rng, u64::from(bound) << 20) >> 20 < u64::from(bound)
            );
        }
        for bound in [0, 1] {
            fill(&mut rng, bound, &mut out);
            assert!(out.iter().all(|value| *value == 0));
            assert_eq!((below(&mut rng, bound), below_wide(&mut rng, u64::from(bound))), (0, 0));
        }
    }

    #[test]
    fn rejection_removes_the_bias() {
        // Two thirds of 2^32: without rejection, even results would come up twice as often as odd ones.
        let bound = 0xAAAA_AAAA;
        let mut rng = seeded(2);
        let even = (0..60_000).filter(|_| below(&mut rng, bound).is_multiple_of(2)).count();
        assert!((even as f64 - 30_000.0).abs() < 5.0 * 15_000.0_f64.sqrt(), "{even}");
        let mut out = vec![0; 60_000];
        fill(&mut rng, bound, &mut out);
        let even = out.iter().filter(|value| value.is_multiple_of(2)).count();
        assert!((even as f64 - 30_000.0).abs() < 5.0 * 15_000.0_f64.sqrt(), "{even}");
    }

    #[test]
    fn splitting_in_lanes_is_multiplying_by_the_bound_again_and_again() {
        for bound in [2_u32, 10, 900, 1024, 4095] {
            let mut bytes = [[[0; 8]; LANES]; 16];
            seeded(4).fill_bytes(bytes.as_flattened_mut().as_flattened_mut());
            let (mut lanes, mut chosen) = ([[[0; LANES]; 4]; 16], [[[0; LANES]; 4]; 16]);
            let threshold = u64::MAX / 64;
            let suspect = split_lanes(bound, threshold, &bytes, &mut lanes);
            assert_eq!(suspect, split_all(bound, threshold, &bytes, &mut chosen));
            assert_eq!(lanes, chosen);
            for (at, block) in lanes.iter().enumerate() {
                let mut least = u64::MAX;
                for lane in 0..LANES {
                    let mut rest = u64::from_le_bytes(bytes[at][lane]);
                    for numbers in block {
                        let product = u128::from(rest) * u128::from(bound);
                        assert_eq!(u128::from(numbers[lane]), product >> 64);
                        rest = product as u64;
                    }
                    least = least.min(rest);
                }
                assert_eq!(suspect >> at & 1 == 1, least < threshold);
            }
        }
    }

    #[test]
    fn distinct_numbers_are_distinct_and_leave_no_trace() {
        let mut used = Distinct::default();
        let mut out = Vec::new();
        used.draw(&mut seeded(3), 10, 4, &mut out);
        for seed in 0..50 {
            let (mut again, mut fresh) = (Vec::new(), Vec::new());
            used.draw(&mut seeded(seed), 10, 6, &mut again);
            Distinct::default().draw(&mut seeded(seed), 10, 6, &mut fresh);
            assert_eq!(again, fresh);
            again.sort_unstable();
            again.dedup();
            assert_eq!(again.len(), 6);
        }
    }
}
