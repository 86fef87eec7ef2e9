//! Unbiased random integers, one at a time or in bulk.
//!
//! All random numbers of a task come from one seeded `ChaCha8` generator, whose bits are the same on every machine, and
//! only through the functions here, so a seed determines a sample bit for bit.
//!
//! A single number uses Lemire's method: multiply a random word by the bound, keep the high half, and reject the
//! few low halves that would favour some results. [`fill_random`] uses a faster method. The low half
//! of the product is itself a random word, which gives another number; so one 64-bit word gives several numbers in a
//! row, and one comparison at the end accepts or rejects all of them (Brackett-Rozinsky and Lemire, *Batched Ranged
//! Random Integer Generation*, 2024). A table of 900 values below 900 costs 184 words instead of 900, and eight
//! words are split in parallel, with vector instructions if the processor has them; the numbers are the same without
//! them.

use rand_chacha::rand_core::Rng as _;

/// The random generator of all samples. Create one with `Rng::seed_from_u64` from `rand_chacha::rand_core::SeedableRng`, or
/// with [`seeded`].
pub type Rng = rand_chacha::ChaCha8Rng;

/// A generator that starts from this seed.
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

/// A uniform number below `bound` (0 if `bound` is 0).
pub fn random_below(rng: &mut Rng, bound: u32) -> u32 {
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

/// A uniform number below a 64-bit `bound` (0 if `bound` is 0).
pub fn random_below_u64(rng: &mut Rng, bound: u64) -> u64 {
    let mut product = u128::from(rng.next_u64()) * u128::from(bound);
    if (product as u64) < bound {
        let threshold = bound.wrapping_neg() % bound;
        while (product as u64) < threshold {
            product = u128::from(rng.next_u64()) * u128::from(bound);
        }
    }
    (product >> 64) as u64
}

/// True or false with equal probability.
pub fn random_bool(rng: &mut Rng) -> bool {
    rng.next_u32() >> 31 == 1
}

/// Puts `items` into a uniformly random order.
pub fn shuffle<T>(rng: &mut Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, random_below(rng, last as u32 + 1) as usize);
    }
}

/// Fills `out` with independent uniform numbers below `bound` (zeros if `bound` is 0).
pub fn fill_random(rng: &mut Rng, bound: u32, out: &mut [u32]) {
    if bound <= 1 {
        return out.fill(0);
    }
    // As many numbers per word as keep bound^numbers within 2^56: then fewer than one word in 256 needs the exact check.
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

/// Words requested from the generator at once: four refills of its buffer of 256 bytes.
const WORDS: usize = 128;

/// Words that are split in parallel, so that the compiler uses vector instructions.
const LANES: usize = 8;

/// The numbers from `LANES` words: first the first number of every word, then the second, and so on.
type Block<const GROUP: usize> = [[u32; LANES]; GROUP];

/// [`fill_random`] with `GROUP` numbers from each word.
fn fill_groups<const GROUP: usize>(rng: &mut Rng, bound: u32, out: &mut [u32]) {
    let (blocks, tail) = out.split_at_mut(out.len() / (GROUP * LANES) * (GROUP * LANES));
    if !blocks.is_empty() {
        fill_blocks::<GROUP>(rng, bound, blocks);
    }
    if tail.len() <= 2 * LANES {
        // For so few numbers single draws are faster than a block.
        tail.fill_with(|| random_below(rng, bound));
    } else {
        let (mut bytes, mut block) = ([0; 8 * LANES], [[[0; LANES]; GROUP]]);
        rng.fill_bytes(&mut bytes);
        split(rng, bound, bytes.as_chunks().0.as_chunks().0, &mut block);
        tail.copy_from_slice(&block.as_flattened().as_flattened()[..tail.len()]);
    }
}

/// [`fill_groups`] for complete blocks. A separate function, so that small fills need not clear a large buffer.
#[inline(never)]
fn fill_blocks<const GROUP: usize>(rng: &mut Rng, bound: u32, out: &mut [u32]) {
    let mut buffer = [0; 8 * WORDS];
    for chunk in out.chunks_mut(GROUP * WORDS) {
        let bytes = &mut buffer[..8 * chunk.len() / GROUP];
        rng.fill_bytes(bytes);
        let blocks = chunk.as_chunks_mut().0.as_chunks_mut().0;
        split::<GROUP>(rng, bound, bytes.as_chunks().0.as_chunks().0, blocks);
    }
}

/// Splits words into numbers, and replaces rejected words by new ones.
fn split<const GROUP: usize>(rng: &mut Rng, bound: u32, words: &[[[u8; 8]; LANES]], blocks: &mut [Block<GROUP>]) {
    let product = u64::from(bound).pow(GROUP as u32);
    // The exact threshold, 2^64 mod product, needs a division and is below the product, so compare with the product first.
    let suspect_blocks = split_without_rejection(bound, product, words, blocks);
    if suspect_blocks == 0 {
        return;
    }
    let threshold = product.wrapping_neg() % product;
    for (index, block) in blocks.iter_mut().enumerate().filter(|(index, _)| suspect_blocks >> index & 1 == 1) {
        for lane in 0..LANES {
            let mut word = u64::from_le_bytes(words[index][lane]);
            loop {
                let mut remainder = word;
                for numbers in &mut *block {
                    let product = u128::from(remainder) * u128::from(bound);
                    numbers[lane] = (product >> 64) as u32;
                    remainder = product as u64;
                }
                if remainder >= threshold {
                    break;
                }
                word = rng.next_u64();
            }
        }
    }
}

/// Splits all words; bit b of the result is set if block b has a word whose remainder is below the threshold.
fn split_without_rejection<const GROUP: usize>(
    bound: u32,
    threshold: u64,
    words: &[[[u8; 8]; LANES]],
    blocks: &mut [Block<GROUP>],
) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        /// [`split_without_rejection_portable`] compiled for AVX2: the same numbers, about twice as fast.
        #[target_feature(enable = "avx2")]
        fn split_avx2<const GROUP: usize>(
            bound: u32,
            threshold: u64,
            words: &[[[u8; 8]; LANES]],
            blocks: &mut [Block<GROUP>],
        ) -> u32 {
            split_without_rejection_portable(bound, threshold, words, blocks)
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the function only requires AVX2, which was just detected.
            #[expect(unsafe_code, reason = "a function for a processor feature can be called in no other way")]
            return unsafe { split_avx2(bound, threshold, words, blocks) };
        }
    }
    split_without_rejection_portable(bound, threshold, words, blocks)
}

/// [`split_without_rejection`], always inlined, so that it is compiled with the caller's target features.
#[inline(always)]
fn split_without_rejection_portable<const GROUP: usize>(
    bound: u32,
    threshold: u64,
    words: &[[[u8; 8]; LANES]],
    blocks: &mut [Block<GROUP>],
) -> u32 {
    const LOW: u64 = 0xFFFF_FFFF;
    let bound = u64::from(bound);
    let mut suspect_blocks = 0;
    for (index, (block, words)) in blocks.iter_mut().zip(words).enumerate() {
        // Each word in two halves, because vectors multiply 32 by 32 bits.
        let (mut high, mut low) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let word = u64::from_le_bytes(words[lane]);
            (high[lane], low[lane]) = (word >> 32, word & LOW);
        }
        for numbers in block {
            for lane in 0..LANES {
                let low_product = low[lane] * bound;
                let high_product = high[lane] * bound + (low_product >> 32);
                numbers[lane] = (high_product >> 32) as u32;
                (high[lane], low[lane]) = (high_product & LOW, low_product & LOW);
            }
        }
        let mut is_below_threshold = 0;
        for lane in 0..LANES {
            is_below_threshold |= u32::from((high[lane] << 32 | low[lane]) < threshold);
        }
        suspect_blocks |= is_below_threshold << index;
    }
    suspect_blocks
}

/// Draws several different numbers below a bound, in random order, in time proportional to their number.
///
/// It stores all numbers of the range in order; a draw swaps the drawn numbers to the front, copies them out and swaps back, so that each draw starts
/// from the same list.
#[derive(Clone, Debug, Default)]
pub struct DistinctSampler {
    range: Vec<u32>,
    swaps: Vec<usize>,
}

impl DistinctSampler {
    /// Appends `count` different numbers below `bound` to `out` (all of them if there are fewer).
    pub fn sample(&mut self, rng: &mut Rng, bound: u32, count: usize, out: &mut Vec<u32>) {
        if self.range.len() != bound as usize {
            self.range.clear();
            self.range.extend(0..bound);
        }
        let count = count.min(self.range.len());
        self.swaps.clear();
        for front in 0..count {
            let chosen = front + random_below(rng, bound - front as u32) as usize;
            self.range.swap(front, chosen);
            self.swaps.push(chosen);
        }
        out.extend_from_slice(&self.range[..count]);
        for (front, chosen) in self.swaps.iter().enumerate().rev() {
            self.range.swap(front, *chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's chi-squared statistic against the uniform distribution, in standard deviations from its mean.
    fn uniformity_score(counts: &[u64]) -> f64 {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let statistic: f64 = counts.iter().map(|count| (*count as f64 - mean).powi(2) / mean).sum();
        let degrees_of_freedom = (counts.len() - 1) as f64;
        (statistic - degrees_of_freedom) / (2.0 * degrees_of_freedom).sqrt()
    }

    #[test]
    fn fill_is_uniform_for_every_group_size() {
        for bound in [2_u32, 3, 10, 100, 181, 182, 900, 1025, 5000] {
            let mut rng = seeded(u64::from(bound));
            let mut counts = vec![0; bound as usize];
            let mut out = vec![0; 777];
            for _ in 0..(bound * 20).div_ceil(777) + 20 {
                fill_random(&mut rng, bound, &mut out);
                for value in &out {
                    counts[*value as usize] += 1;
                }
            }
            assert!(uniformity_score(&counts).abs() < 5.0, "bound {bound}: {}", uniformity_score(&counts));
        }
    }

    #[test]
    fn numbers_below_large_bounds_cover_the_range() {
        let mut rng = seeded(1);
        let mut out = vec![0; 4096];
        for bound in [1 << 20, (1 << 30) + 1, u32::MAX] {
            fill_random(&mut rng, bound, &mut out);
            assert!(out.iter().all(|value| *value < bound));
            assert!(out.iter().any(|value| *value < bound / 100) && out.iter().any(|value| *value > bound / 100 * 99));
            assert!(
                random_below(&mut rng, bound) < bound
                    && random_below_u64(&mut rng, u64::from(bound) << 20) >> 20 < u64::from(bound)
            );
        }
        for bound in [0, 1] {
            fill_random(&mut rng, bound, &mut out);
            assert!(out.iter().all(|value| *value == 0));
            assert_eq!((random_below(&mut rng, bound), random_below_u64(&mut rng, u64::from(bound))), (0, 0));
        }
    }

    #[test]
    fn rejection_makes_numbers_unbiased() {
        // Two thirds of 2^32: without rejection, even results would come up twice as often as odd ones.
        let bound = 0xAAAA_AAAA;
        let mut rng = seeded(2);
        let even = (0..60_000).filter(|_| random_below(&mut rng, bound).is_multiple_of(2)).count();
        assert!((even as f64 - 30_000.0).abs() < 5.0 * 15_000.0_f64.sqrt(), "{even}");
        let mut out = vec![0; 60_000];
        fill_random(&mut rng, bound, &mut out);
        let even = out.iter().filter(|value| value.is_multiple_of(2)).count();
        assert!((even as f64 - 30_000.0).abs() < 5.0 * 15_000.0_f64.sqrt(), "{even}");
    }

    #[test]
    fn split_without_rejection_portable_equals_repeated_multiplication_by_the_bound() {
        for bound in [2_u32, 10, 900, 1024, 4095] {
            let mut bytes = [[[0; 8]; LANES]; 16];
            seeded(4).fill_bytes(bytes.as_flattened_mut().as_flattened_mut());
            let (mut lanes, mut dispatched) = ([[[0; LANES]; 4]; 16], [[[0; LANES]; 4]; 16]);
            let threshold = u64::MAX / 64;
            let suspect_blocks = split_without_rejection_portable(bound, threshold, &bytes, &mut lanes);
            assert_eq!(suspect_blocks, split_without_rejection(bound, threshold, &bytes, &mut dispatched));
            assert_eq!(lanes, dispatched);
            for (index, block) in lanes.iter().enumerate() {
                let mut smallest_remainder = u64::MAX;
                for lane in 0..LANES {
                    let mut remainder = u64::from_le_bytes(bytes[index][lane]);
                    for numbers in block {
                        let product = u128::from(remainder) * u128::from(bound);
                        assert_eq!(u128::from(numbers[lane]), product >> 64);
                        remainder = product as u64;
                    }
                    smallest_remainder = smallest_remainder.min(remainder);
                }
                assert_eq!(suspect_blocks >> index & 1 == 1, smallest_remainder < threshold);
            }
        }
    }

    #[test]
    fn distinct_sampler_draws_different_numbers_independent_of_earlier_draws() {
        let mut reused_sampler = DistinctSampler::default();
        let mut out = Vec::new();
        reused_sampler.sample(&mut seeded(3), 10, 4, &mut out);
        for seed in 0..50 {
            let (mut drawn, mut expected) = (Vec::new(), Vec::new());
            reused_sampler.sample(&mut seeded(seed), 10, 6, &mut drawn);
            DistinctSampler::default().sample(&mut seeded(seed), 10, 6, &mut expected);
            assert_eq!(drawn, expected);
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), 6);
        }
    }
}
