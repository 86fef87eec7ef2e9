//! Passes over scores, of which the highest are wanted.

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
