//! The softmax of a row of attention scores of which a range is visible, and its gradient.
//!
//! A row is computed in blocks of [`LANES`] scores. In the first and the last block with visible scores, hidden ones become minus infinity,
//! whose exponential is zero. So no score is computed alone, and its place in the sums depends on its index only.

use crate::scalar::Scalar;

/// Scores that are computed at once.
pub(crate) const LANES: usize = 16;

/// Hides all scores but `start..end`: makes them zero, or minus infinity in blocks that have visible scores. Returns these blocks.
#[inline(always)]
fn hide<S: Scalar>(row: &mut [S], start: usize, end: usize) -> &mut [S] {
    if start >= end {
        row.fill(S::ZERO);
        return &mut [];
    }
    let (first, last) = block_range(row.len(), start, end);
    row[..first].fill(S::ZERO);
    row[last..].fill(S::ZERO);
    row[first..start].fill(S::LOWEST);
    let blocks = &mut row[first..last];
    // Comparing every lane of the last block costs less than a loop over the hidden ones.
    match blocks.as_chunks_mut::<LANES>() {
        ([.., block], []) => {
            let visible = end + LANES - last;
            for (lane, score) in block.iter_mut().enumerate() {
                *score = if lane < visible { *score } else { S::LOWEST };
            }
        }
        _ => blocks[end - first..].fill(S::LOWEST),
    }
    blocks
}

/// The complete blocks around `start..end`.
#[inline(always)]
fn block_range(length: usize, start: usize, end: usize) -> (usize, usize) {
    (start / LANES * LANES, end.next_multiple_of(LANES).min(length))
}

/// Calls `run` with every block; the last one is filled up with minus infinity.
#[inline(always)]
fn for_each_block<S: Scalar>(row: &mut [S], mut run: impl FnMut(&mut [S; LANES])) {
    let (blocks, remainder) = row.as_chunks_mut();
    blocks.iter_mut().for_each(&mut run);
    if !remainder.is_empty() {
        let mut block = [S::LOWEST; LANES];
        block[..remainder.len()].copy_from_slice(remainder);
        run(&mut block);
        remainder.copy_from_slice(&block[..remainder.len()]);
    }
}

/// Combines lanes pair by pair.
#[inline(always)]
fn reduce<S: Copy>(mut lanes: [S; LANES], combine: impl Fn(S, S) -> S) -> S {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

vectorised! {
    /// Replaces scores `start..end` of a row by their exponentials relative to the largest, and the others by zero. Returns the largest and
    /// the sum of the exponentials.
    pub(crate) fn exponentials<S>(row: &mut [S], start: usize, end: usize) -> (S, S) {
        let row = hide(row, start, end);
        let mut maxima = [S::LOWEST; LANES];
        for_each_block(row, |block| {
            for (maximum, &score) in maxima.iter_mut().zip(&*block) {
                *maximum = score.larger(*maximum);
            }
        });
        let maximum = reduce(maxima, S::larger);
        let mut sums = [S::ZERO; LANES];
        for_each_block(row, |block| {
            for (sum, score) in sums.iter_mut().zip(block) {
                *score = (*score - maximum).exp();
                *sum += *score;
            }
        });
        (maximum, reduce(sums, |left, right| left + right))
    }

    /// `row *= factor`.
    pub(crate) fn scale_row<S>(row: &mut [S], factor: S) {
        for x in row {
            *x *= factor;
        }
    }

    /// Replaces scores `start..end` of a row by their softmax, from the logarithm of the sum of their exponentials, and the others by zero.
    /// Replaces gradients of the weights by those of the scores. `output_dot` is the dot product of the row's output and its gradient.
    pub(crate) fn softmax_row_gradients<S>(
        scores: &mut [S],
        gradients: &mut [S],
        start: usize,
        end: usize,
        log_sum: S,
        output_dot: S,
    ) {
        let (first, last) = if start < end { block_range(scores.len(), start, end) } else { (0, 0) };
        gradients[..first].fill(S::ZERO);
        gradients[last..].fill(S::ZERO);
        let (weights, weight_remainder) = hide(scores, start, end).as_chunks_mut::<LANES>();
        let (gradients, gradient_remainder) = gradients[first..last].as_chunks_mut::<LANES>();
        for (weights, gradients) in weights.iter_mut().zip(gradients) {
            for lane in 0..LANES {
                weights[lane] = (weights[lane] - log_sum).exp();
                gradients[lane] = weights[lane] * (gradients[lane] - output_dot);
            }
        }
        for (weight, gradient) in weight_remainder.iter_mut().zip(gradient_remainder) {
            *weight = (*weight - log_sum).exp();
            *gradient = *weight * (*gradient - output_dot);
        }
    }

    /// Replaces the gradient of a row's weights by that of its scores. `output_dot` is the dot product of the row's output and
    /// its gradient.
    pub(crate) fn softmax_row_backward<S>(weights: &[S], gradients: &mut [S], output_dot: S) {
        for (gradient, &weight) in gradients.iter_mut().zip(weights) {
            *gradient = weight * (*gradient - output_dot);
        }
    }
}

/// Replaces scores `start..end` of a row by their softmax and the others by zero; returns the log of the sum of exponentials.
pub(crate) fn softmax_row<S: Scalar>(row: &mut [S], start: usize, end: usize) -> S {
    let (maximum, sum) = exponentials(row, start, end);
    scale_row(&mut row[start..end], S::ONE / sum);
    maximum + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of lengths and visible ranges that have blocks cut off at both ends, one block, or none.
    fn rows() -> impl Iterator<Item = (Vec<f64>, usize, usize)> {
        [(5, 0, 5), (16, 3, 4), (33, 0, 33), (40, 17, 39), (64, 16, 48), (64, 5, 12), (70, 0, 65), (32, 7, 7)]
            .into_iter()
            .map(|(length, start, end)| {
                ((0..length).map(|index| f64::from(index * 37 % 19) / 4.0 - 2.0).collect(), start, end)
            })
    }

    #[test]
    fn softmax_row_agrees_with_its_definition_and_hides_the_other_scores() {
        for (scores, start, end) in rows().filter(|(_, start, end)| start < end) {
            let mut row = scores.clone();
            let log_sum = softmax_row(&mut row, start, end);
            let sum: f64 = scores[start..end].iter().map(|x| x.exp()).sum();
            assert!((log_sum - sum.ln()).abs() < 1e-12, "{start}..{end} of {}", scores.len());
            for (index, (weight, score)) in row.iter().zip(&scores).enumerate() {
                let expected = if (start..end).contains(&index) { score.exp() / sum } else { 0.0 };
                assert!((weight - expected).abs() < 1e-12, "weight {index} of {start}..{end} of {}", scores.len());
            }
        }
    }

    #[test]
    fn gradients_of_hidden_scores_are_zero_and_the_others_follow_the_definition() {
        for (scores, start, end) in rows() {
            let (mut weights, mut gradients) = (scores.clone(), scores.iter().map(|x| x * x).collect::<Vec<_>>());
            softmax_row_gradients(&mut weights, &mut gradients, start, end, 3.0, 0.5);
            for (index, score) in scores.iter().enumerate() {
                let weight = if (start..end).contains(&index) { (score - 3.0).exp() } else { 0.0 };
                assert!(
                    (weights[index] - weight).abs() < 1e-12,
                    "weight {index} of {start}..{end} of {}",
                    scores.len()
                );
                let gradient = weight * (score * score - 0.5);
                assert!((gradients[index] - gradient).abs() < 1e-12, "gradient {index} of {start}..{end}");
            }
        }
    }
}
