//! The indices of the highest scores, and the passes over scores that find them.

use crate::scalar::Scalar;

/// Scores per step of the loops: enough that several vectors are under way at once.
const LANES: usize = 64;
/// Scores that are searched for wanted ones at a time.
const BLOCK: usize = 16;
/// Scores that are counted in the number type itself, which becomes vector code and is exact up to this many.
const MAX_COUNT: usize = 1 << 12;

vectorised! {
    /// The lowest and the highest of at least one score; the lowest is NaN if a score is not finite.
    pub(crate) fn range_of<S>(scores: &[S]) -> [S; 2] {
        // Zero times a number that is not finite is NaN.
        let (mut lows, mut highs, mut zeros) = ([scores[0]; LANES], [scores[0]; LANES], [S::ZERO; LANES]);
        let (chunks, remainder) = scores.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                lows[lane] = if chunk[lane] < lows[lane] { chunk[lane] } else { lows[lane] };
                highs[lane] = chunk[lane].larger(highs[lane]);
                zeros[lane] += chunk[lane] * S::ZERO;
            }
        }
        for (lane, &score) in remainder.iter().enumerate() {
            lows[lane] = if score < lows[lane] { score } else { lows[lane] };
            highs[lane] = score.larger(highs[lane]);
            zeros[lane] += score * S::ZERO;
        }
        for half in [32, 16, 8, 4, 2, 1] {
            for lane in 0..half {
                lows[lane] = if lows[lane + half] < lows[lane] { lows[lane + half] } else { lows[lane] };
                highs[lane] = highs[lane + half].larger(highs[lane]);
                zeros[lane] += zeros[lane + half];
            }
        }
        [lows[0] + zeros[0], highs[0]]
    }

    /// How many scores are at least a threshold.
    pub(crate) fn count_from<S>(scores: &[S], threshold: S) -> usize {
        let mut total = 0;
        for &score in scores {
            total += usize::from(score >= threshold);
        }
        total
    }

    /// How many scores are higher than a threshold.
    pub(crate) fn count_above<S>(scores: &[S], threshold: S) -> usize {
        let mut total = 0;
        for scores in scores.chunks(MAX_COUNT) {
            let mut counts = [S::ZERO; LANES];
            let (chunks, remainder) = scores.as_chunks::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    counts[lane] += if chunk[lane] > threshold { S::ONE } else { S::ZERO };
                }
            }
            for (count, &score) in counts.iter_mut().zip(remainder) {
                *count += if score > threshold { S::ONE } else { S::ZERO };
            }
            for half in [32, 16, 8, 4, 2, 1] {
                for lane in 0..half {
                    counts[lane] += counts[lane + half];
                }
            }
            total += counts[0].to_f64() as usize;
        }
        total
    }

    /// Appends the indices of all scores above a finite threshold, and of the first `ties` that are equal to it, in ascending order.
    pub(crate) fn indices_from<S>(scores: &[S], threshold: S, ties: usize, out: &mut Vec<usize>) {
        let mut ties = ties;
        let (blocks, remainder) = scores.as_chunks::<BLOCK>();
        let mut last = [S::LOWEST; BLOCK];
        last[..remainder.len()].copy_from_slice(remainder);
        for (block, scores) in blocks.iter().chain(std::iter::once(&last)).enumerate() {
            // One bit for each wanted score; the bits are added in halves, which becomes vector code.
            let mut bits = [0_u32; BLOCK];
            for lane in 0..BLOCK {
                bits[lane] = if scores[lane] >= threshold { 1 << lane } else { 0 };
            }
            for half in [8, 4, 2, 1] {
                for lane in 0..half {
                    bits[lane] |= bits[lane + half];
                }
            }
            let mut wanted = bits[0];
            while wanted != 0 {
                let index = wanted.trailing_zeros() as usize;
                wanted &= wanted - 1;
                let is_tie = scores[index] == threshold;
                if !is_tie || ties > 0 {
                    out.push(block * BLOCK + index);
                    ties -= usize::from(is_tie);
                }
            }
        }
    }
}

/// Up to this many, the highest scores are found by insertion into a sorted list.
const MAX_INSERTION_COUNT: usize = 16;

/// The indices of the `count` highest scores, in ascending order; among equal scores the earlier. A NaN is the lowest.
pub fn top_k<S: Scalar>(scores: &[S], count: usize) -> Vec<usize> {
    let mut indices = if count <= MAX_INSERTION_COUNT {
        top_k_by_insertion(scores, count)
    } else if count >= scores.len() {
        return (0..scores.len()).collect();
    } else if let Some(indices) = top_k_by_bisection(scores, count) {
        return indices;
    } else {
        top_k_by_selection(scores, count)
    };
    indices.sort_unstable();
    indices
}

/// Bisects for a threshold with `count` scores above it. As soon as few scores are left above the lower end, only those are bisected
/// further. Returns nothing if a score is not finite.
fn top_k_by_bisection<S: Scalar>(scores: &[S], count: usize) -> Option<Vec<usize>> {
    let [mut low, mut high] = range_of(scores);
    if low.to_f64().is_nan() {
        return None;
    }
    let mut indices = Vec::with_capacity(2 * count);
    let (mut above_low, mut above_high) = (count_above(scores, low), 0);
    if above_low < count {
        indices_from(scores, low, count - above_low, &mut indices);
        return Some(indices);
    }
    // From here on, at least `count` scores are above `low`, and fewer are above `high`.
    loop {
        // Many scores of an indexer are zero. Halving the distance to zero would take as many steps as exponents have values.
        let many_may_equal = high == S::ZERO || above_high == 0;
        if many_may_equal && count_from(scores, high) >= count {
            indices_from(scores, high, count - above_high, &mut indices);
            return Some(indices);
        }
        if above_low <= 2 * count && 2 * above_low <= scores.len() {
            indices_from(scores, low, 0, &mut indices);
            let highest: Vec<S> = indices.iter().map(|index| scores[*index]).collect();
            return top_k_by_bisection(&highest, count)
                .map(|chosen| chosen.iter().map(|index| indices[*index]).collect());
        }
        let has_both_signs = low < S::ZERO && high > S::ZERO;
        let middle = if has_both_signs { S::ZERO } else { low * S::from_f64(0.5) + high * S::from_f64(0.5) };
        if middle <= low || middle >= high {
            indices_from(scores, high, count - above_high, &mut indices);
            return Some(indices);
        }
        let above = count_above(scores, middle);
        if above == count {
            indices_from(scores, middle, 0, &mut indices);
            return Some(indices);
        }
        if above > count {
            (low, above_low) = (middle, above);
        } else {
            (high, above_high) = (middle, above);
        }
    }
}

fn nan_as_lowest<S: Scalar>(score: S) -> f64 {
    let score = score.to_f64();
    if score.is_nan() { f64::NEG_INFINITY } else { score }
}

/// Keeps a list of the best so far, best first: most scores are below the last of them and cost one comparison.
fn top_k_by_insertion<S: Scalar>(scores: &[S], count: usize) -> Vec<usize> {
    let mut best: Vec<(f64, usize)> = Vec::with_capacity(count);
    for (index, score) in scores.iter().enumerate() {
        let score = nan_as_lowest(*score);
        if best.len() == count {
            if best.last().is_none_or(|last| score <= last.0) {
                continue;
            }
            best.pop();
        }
        best.insert(best.partition_point(|entry| entry.0 >= score), (score, index));
    }
    best.into_iter().map(|entry| entry.1).collect()
}

/// Partitions all indices at the last one that belongs to the result.
fn top_k_by_selection<S: Scalar>(scores: &[S], count: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..scores.len()).collect();
    let descending = |a: &usize, b: &usize| {
        nan_as_lowest(scores[*b]).partial_cmp(&nan_as_lowest(scores[*a])).expect("NaNs were replaced")
    };
    if count < indices.len() {
        indices.select_nth_unstable_by(count, |a, b| descending(a, b).then(a.cmp(b)));
        indices.truncate(count);
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_k_prefers_the_earlier_of_equal_scores() {
        assert_eq!(top_k(&[1.0, 5.0, 3.0, 5.0, 2.0], 3), [1, 2, 3]);
        assert_eq!(top_k(&[0.0; 6], 2), [0, 1]);
        assert_eq!(top_k(&[f64::NAN, -1.0, f64::NAN], 1), [1]);
        assert_eq!(top_k(&[1.0, 2.0], 9), [0, 1]);
        assert!(top_k(&[1.0, 2.0], 0).is_empty());
    }

    #[test]
    fn top_k_by_insertion_and_by_selection_agree() {
        let mut state = 7_u64;
        for count in 0..12 {
            let scores: Vec<f64> = (0..9)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    [f64::NAN, -0.0, 0.0, 1.0, -1.0, 2.0, f64::NEG_INFINITY][(state >> 33) as usize % 7]
                })
                .collect();
            let (mut inserted, mut selected) = (top_k_by_insertion(&scores, count), top_k_by_selection(&scores, count));
            inserted.sort_unstable();
            selected.sort_unstable();
            assert_eq!(inserted, selected, "{count} of {scores:?}");
        }
    }

    #[test]
    fn top_k_by_bisection_and_by_selection_agree() {
        let mut state = 7_u64;
        for length in [1, 15, 16, 17, 70, 5000] {
            // The number of distinct scores: few of them are many ties.
            for distinct in [1, 2, 5, 1 << 20] {
                let scores: Vec<f32> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        ((state >> 33) % distinct) as f32 - 2.0
                    })
                    .collect();
                for count in [1, length / 3, length - 1].into_iter().filter(|count| *count > 0) {
                    let mut expected = top_k_by_selection(&scores, count);
                    expected.sort_unstable();
                    let actual = top_k_by_bisection(&scores, count);
                    assert_eq!(actual.as_ref(), Some(&expected), "{count} of {length} with {distinct} distinct scores");
                }
            }
        }
        assert_eq!(top_k_by_bisection(&[1.0, f64::INFINITY, 2.0], 2), None);
        assert_eq!(top_k_by_bisection(&[1.0, f64::NAN, 2.0], 2), None);
        assert_eq!(top_k_by_bisection(&[1e-30, 1e30, 3e-30, 2e-30, -1e30_f64], 2), Some(vec![1, 2]));
        assert_eq!(top_k_by_bisection(&[-1.0, 0.0, -2.0, -0.0, 0.0, -3.0_f64], 2), Some(vec![1, 3]));
    }
}
