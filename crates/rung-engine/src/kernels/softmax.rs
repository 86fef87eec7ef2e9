//! The softmax of attention scores of which some are hidden, and its gradient.
//!
//! For many queries, scores are a matrix with a row for each key and a column, or *lane*, for each query. Every lane is a softmax of its
//! own, so rows are combined element by element. Keys come in blocks: [`LaneSums`] has a reference score and the sum so far.
//!
//! For a few queries, scores are a row for each query. A row is computed in chunks of [`CHUNK`] scores. In the first and the last chunk
//! with visible scores, hidden ones become minus infinity, whose exponential is zero. So no score is computed alone, and its place in the
//! sums depends on its index only.

use crate::scalar::Scalar;
use std::ops::Range;

/// The most queries of a tile: two vectors of AVX-512 in single precision.
pub(crate) const MAX_LANES: usize = 32;

/// The range of keys that each lane sees; lanes without a query see none.
#[derive(Clone)]
pub(crate) struct LaneRanges<'a> {
    starts: [u32; MAX_LANES],
    ends: [u32; MAX_LANES],
    /// For every key the lanes that see it, one bit each; empty if ranges alone decide.
    lanes_of_keys: &'a [u32],
}

impl<'a> LaneRanges<'a> {
    /// The ranges of the first lanes.
    pub(crate) fn new(ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut lanes = Self { starts: [0; MAX_LANES], ends: [0; MAX_LANES], lanes_of_keys: &[] };
        for (lane, range) in ranges.enumerate() {
            (lanes.starts[lane], lanes.ends[lane]) = (range.start as u32, range.end as u32);
        }
        lanes
    }

    /// The same ranges without the keys that are hidden from a lane: for every key, the lanes that see it, one bit each.
    pub(crate) fn with_lanes_of_keys(self, lanes_of_keys: &'a [u32]) -> Self {
        Self { lanes_of_keys, ..self }
    }

    /// The same ranges, relative to the first of a block of keys.
    pub(crate) fn relative_to(&self, keys: &Range<usize>) -> Self {
        let relative = |key: u32| key.saturating_sub(keys.start as u32);
        let lanes_of_keys = self.lanes_of_keys.get(keys.clone()).unwrap_or_default();
        Self { starts: self.starts.map(relative), ends: self.ends.map(relative), lanes_of_keys }
    }

    /// Replaces hidden scores in rows of `WIDTH` lanes by minus infinity.
    #[inline(always)]
    fn hide<S: Scalar, const WIDTH: usize>(&self, rows: &mut [[S; WIDTH]]) {
        let (starts, ends): (&[u32; WIDTH], &[u32; WIDTH]) =
            (self.starts.first_chunk().expect("lanes"), self.ends.first_chunk().expect("lanes"));
        let last_start = starts.iter().fold(0, |last, &start| last.max(start)) as usize;
        let first_end = ends.iter().fold(u32::MAX, |first, &end| first.min(end)) as usize;
        for (key, row) in rows.iter_mut().enumerate() {
            if key >= last_start && key < first_end {
                continue;
            }
            for lane in 0..WIDTH {
                let hidden = (key as u32) < starts[lane] || (key as u32) >= ends[lane];
                row[lane] = if hidden { S::LOWEST } else { row[lane] };
            }
        }
        for (row, &lanes) in rows.iter_mut().zip(self.lanes_of_keys) {
            for (lane, score) in row.iter_mut().enumerate() {
                *score = if lanes & (1 << lane) == 0 { S::LOWEST } else { *score };
            }
        }
    }
}

/// How much larger than its reference a score may be before the reference follows: exponentials stay below `e^8`, and most blocks of keys
/// change no reference.
const REFERENCE_SLACK: f64 = 8.0;

/// The softmax of every lane so far.
pub(crate) struct LaneSums<S> {
    /// The score that is subtracted from all scores of a lane; minus infinity before the first visible one.
    pub(crate) references: [S; MAX_LANES],
    /// The sum of the exponentials relative to the reference.
    pub(crate) sums: [S; MAX_LANES],
    /// The factor from exponentials relative to the reference before the last block of keys to those relative to the present one.
    pub(crate) corrections: [S; MAX_LANES],
}

impl<S: Scalar> LaneSums<S> {
    /// Before the first key.
    pub(crate) fn new() -> Self {
        Self { references: [S::LOWEST; MAX_LANES], sums: [S::ZERO; MAX_LANES], corrections: [S::ONE; MAX_LANES] }
    }

    /// Whether the last block of keys changed a reference.
    pub(crate) fn has_corrections(&self) -> bool {
        self.corrections.iter().any(|&correction| correction != S::ONE)
    }
}

/// Calls a function for as many lanes as a panel of a matrix product has.
macro_rules! for_lanes {
    ($lanes:expr, $function:ident($($argument:expr),*)) => {
        match $lanes {
            32 => $function::<_, 32>($($argument),*),
            16 => $function::<_, 16>($($argument),*),
            8 => $function::<_, 8>($($argument),*),
            _ => $function::<_, 4>($($argument),*),
        }
    };
}

/// Replaces the scores `[key, lane]` of a block of keys by their exponentials relative to the references, and hidden ones by zero.
pub(crate) fn accumulate_exponentials<S: Scalar>(
    scores: &mut [S],
    lanes: usize,
    visible: &LaneRanges<'_>,
    sums: &mut LaneSums<S>,
) {
    for_lanes!(lanes, accumulate_lane_exponentials(scores, visible, sums));
}

/// Replaces the scores `[key, lane]` of a block of keys by their softmax, from the logarithm of the sum of exponentials, and gradients of
/// the weights by those of the scores. `output_dots` are the dot products of each query's output and its gradient.
pub(crate) fn softmax_gradients<S: Scalar>(
    scores: &mut [S],
    gradients: &mut [S],
    lanes: usize,
    visible: &LaneRanges<'_>,
    log_sums: &[S; MAX_LANES],
    output_dots: &[S; MAX_LANES],
) {
    for_lanes!(lanes, lane_gradients(scores, gradients, visible, log_sums, output_dots));
}

/// Multiplies every row `[.., lane]` by a factor for each lane.
pub(crate) fn scale_rows<S: Scalar>(rows: &mut [S], factors: &[S]) {
    for_lanes!(factors.len(), scale_lanes(rows, factors));
}

/// Scores of a row that are computed at once.
pub(crate) const CHUNK: usize = 16;

/// Hides all scores but `start..end`: makes them zero, or minus infinity in chunks that have visible scores. Returns these chunks.
#[inline(always)]
fn hide<S: Scalar>(row: &mut [S], start: usize, end: usize) -> &mut [S] {
    if start >= end {
        row.fill(S::ZERO);
        return &mut [];
    }
    let (first, last) = chunk_range(row.len(), start, end);
    row[..first].fill(S::ZERO);
    row[last..].fill(S::ZERO);
    row[first..start].fill(S::LOWEST);
    let chunks = &mut row[first..last];
    // Comparing every score of the last chunk costs less than a loop over the hidden ones.
    match chunks.as_chunks_mut::<CHUNK>() {
        ([.., chunk], []) => {
            let visible = end + CHUNK - last;
            for (index, score) in chunk.iter_mut().enumerate() {
                *score = if index < visible { *score } else { S::LOWEST };
            }
        }
        _ => chunks[end - first..].fill(S::LOWEST),
    }
    chunks
}

/// The complete chunks around `start..end`.
#[inline(always)]
fn chunk_range(length: usize, start: usize, end: usize) -> (usize, usize) {
    (start / CHUNK * CHUNK, end.next_multiple_of(CHUNK).min(length))
}

/// Calls `run` with every chunk; the last one is filled up with minus infinity.
#[inline(always)]
fn for_each_chunk<S: Scalar>(row: &mut [S], mut run: impl FnMut(&mut [S; CHUNK])) {
    let (chunks, remainder) = row.as_chunks_mut();
    chunks.iter_mut().for_each(&mut run);
    if !remainder.is_empty() {
        let mut chunk = [S::LOWEST; CHUNK];
        chunk[..remainder.len()].copy_from_slice(remainder);
        run(&mut chunk);
        remainder.copy_from_slice(&chunk[..remainder.len()]);
    }
}

/// Combines the numbers of a chunk pair by pair.
#[inline(always)]
fn reduce<S: Copy>(mut numbers: [S; CHUNK], combine: impl Fn(S, S) -> S) -> S {
    let mut half = CHUNK / 2;
    while half > 0 {
        for index in 0..half {
            numbers[index] = combine(numbers[index], numbers[index + half]);
        }
        half /= 2;
    }
    numbers[0]
}

vectorised! {
    /// Replaces scores `start..end` of a row by their exponentials relative to the largest, and the others by zero. Returns the largest and
    /// the sum of the exponentials.
    pub(crate) fn exponentials<S>(row: &mut [S], start: usize, end: usize) -> (S, S) {
        let row = hide(row, start, end);
        let mut maxima = [S::LOWEST; CHUNK];
        for_each_chunk(row, |chunk| {
            for (maximum, &score) in maxima.iter_mut().zip(&*chunk) {
                *maximum = score.larger(*maximum);
            }
        });
        let maximum = reduce(maxima, S::larger);
        let mut sums = [S::ZERO; CHUNK];
        for_each_chunk(row, |chunk| {
            for (sum, score) in sums.iter_mut().zip(chunk) {
                *score = (*score - maximum).exp();
                *sum += *score;
            }
        });
        (maximum, reduce(sums, |left, right| left + right))
    }

    fn accumulate_lane_exponentials<S, const WIDTH: usize>(scores: &mut [S], visible: &LaneRanges<'_>, sums: &mut LaneSums<S>) {
        let rows = scores.as_chunks_mut::<WIDTH>().0;
        visible.hide(rows);
        let references: &mut [S; WIDTH] = sums.references.first_chunk_mut().expect("lanes");
        let corrections: &mut [S; WIDTH] = sums.corrections.first_chunk_mut().expect("lanes");
        let sums: &mut [S; WIDTH] = sums.sums.first_chunk_mut().expect("lanes");
        let mut largest = [S::LOWEST; WIDTH];
        let (groups, remainder) = rows.as_chunks::<4>();
        for [a, b, c, d] in groups {
            for lane in 0..WIDTH {
                largest[lane] = a[lane].larger(b[lane]).larger(c[lane].larger(d[lane])).larger(largest[lane]);
            }
        }
        for row in remainder {
            for lane in 0..WIDTH {
                largest[lane] = row[lane].larger(largest[lane]);
            }
        }
        let slack = S::from_f64(REFERENCE_SLACK);
        let (mut shift, earlier) = ([S::ZERO; WIDTH], *references);
        for lane in 0..WIDTH {
            let exceeds = largest[lane] > references[lane] + slack;
            references[lane] = if exceeds { largest[lane] } else { references[lane] };
            // A lane that has seen no key yet subtracts zero: minus infinity less itself is not a number.
            shift[lane] = if references[lane] > S::LOWEST { references[lane] } else { S::ZERO };
        }
        let mut totals = *sums;
        for lane in 0..WIDTH {
            corrections[lane] = (earlier[lane] - shift[lane]).exp();
            totals[lane] *= corrections[lane];
        }
        for row in rows {
            for lane in 0..WIDTH {
                row[lane] = (row[lane] - shift[lane]).exp();
                totals[lane] += row[lane];
            }
        }
        *sums = totals;
    }

    fn lane_gradients<S, const WIDTH: usize>(
        scores: &mut [S],
        gradients: &mut [S],
        visible: &LaneRanges<'_>,
        log_sums: &[S; MAX_LANES],
        output_dots: &[S; MAX_LANES],
    ) {
        let (rows, gradients) = (scores.as_chunks_mut::<WIDTH>().0, gradients.as_chunks_mut::<WIDTH>().0);
        visible.hide(rows);
        let log_sums: &[S; WIDTH] = log_sums.first_chunk().expect("lanes");
        let output_dots: &[S; WIDTH] = output_dots.first_chunk().expect("lanes");
        for (row, gradients) in rows.iter_mut().zip(gradients) {
            for lane in 0..WIDTH {
                row[lane] = (row[lane] - log_sums[lane]).exp();
                gradients[lane] = row[lane] * (gradients[lane] - output_dots[lane]);
            }
        }
    }

    fn scale_lanes<S, const WIDTH: usize>(rows: &mut [S], factors: &[S]) {
        let factors: &[S; WIDTH] = factors.first_chunk().expect("lanes");
        for row in rows.as_chunks_mut::<WIDTH>().0 {
            for lane in 0..WIDTH {
                row[lane] *= factors[lane];
            }
        }
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
        let (first, last) = if start < end { chunk_range(scores.len(), start, end) } else { (0, 0) };
        gradients[..first].fill(S::ZERO);
        gradients[last..].fill(S::ZERO);
        let (weights, weight_remainder) = hide(scores, start, end).as_chunks_mut::<CHUNK>();
        let (gradients, gradient_remainder) = gradients[first..last].as_chunks_mut::<CHUNK>();
        for (weights, gradients) in weights.iter_mut().zip(gradients) {
            for index in 0..CHUNK {
                weights[index] = (weights[index] - log_sum).exp();
                gradients[index] = weights[index] * (gradients[index] - output_dot);
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

    /// Scores `[key, lane]` that grow by more than the slack between blocks of keys, and the keys that each lane sees.
    fn lane_scores(lanes: usize) -> (Vec<f64>, Vec<Range<usize>>) {
        let scores = (0..60 * lanes).map(|index| (index * 37 % 19) as f64 / 4.0 + (index / lanes / 20 * 12) as f64);
        let ranges = (0..lanes).map(|lane| if lane % 2 == 0 { 0..lane + 1 } else { 3 * lane..60 });
        (scores.collect(), ranges.collect())
    }

    #[test]
    fn exponentials_of_blocks_of_keys_add_up_to_the_softmax_of_every_lane() {
        for lanes in [4, 8, 16] {
            let (scores, ranges) = lane_scores(lanes);
            let (visible, mut sums, mut weights) =
                (LaneRanges::new(ranges.iter().cloned()), LaneSums::new(), Vec::<f64>::new());
            for (index, block) in scores.chunks(20 * lanes).enumerate() {
                let mut block = block.to_vec();
                let keys = 20 * index..20 * (index + 1);
                accumulate_exponentials(&mut block, lanes, &visible.relative_to(&keys), &mut sums);
                scale_rows(&mut weights, &sums.corrections[..lanes]);
                assert_eq!(sums.has_corrections(), sums.corrections.iter().any(|&factor| factor < 1.0));
                weights.extend(block);
            }
            for (lane, range) in ranges.iter().enumerate() {
                let total: f64 = range.clone().map(|key| scores[key * lanes + lane].exp()).sum();
                let log_sum = sums.references[lane] + sums.sums[lane].ln();
                assert!((log_sum - total.ln()).abs() < 1e-12, "log-sum of lane {lane} of {lanes}");
                for key in 0..60 {
                    let expected = if range.contains(&key) { scores[key * lanes + lane].exp() / total } else { 0.0 };
                    let weight = weights[key * lanes + lane] / sums.sums[lane];
                    assert!((weight - expected).abs() < 1e-12, "weight of key {key} for lane {lane} of {lanes}");
                }
            }
        }
    }

    #[test]
    fn gradients_of_lanes_are_those_of_rows() {
        for lanes in [4, 8, 16] {
            let (scores, ranges) = lane_scores(lanes);
            let (mut weights, mut gradients) = (scores.clone(), scores.iter().map(|x| x * x).collect::<Vec<_>>());
            let visible = LaneRanges::new(ranges.iter().cloned());
            softmax_gradients(&mut weights, &mut gradients, lanes, &visible, &[30.0; MAX_LANES], &[0.5; MAX_LANES]);
            for (lane, range) in ranges.iter().enumerate() {
                let mut row: Vec<f64> = (0..60).map(|key| scores[key * lanes + lane]).collect();
                let mut row_gradients: Vec<f64> = row.iter().map(|x| x * x).collect();
                softmax_row_gradients(&mut row, &mut row_gradients, range.start, range.end, 30.0, 0.5);
                for key in 0..60 {
                    let index = key * lanes + lane;
                    assert!((weights[index] - row[key]).abs() < 1e-12, "weight of key {key}, lane {lane} of {lanes}");
                    assert!(
                        (gradients[index] - row_gradients[key]).abs() < 1e-12,
                        "gradient of key {key}, lane {lane}"
                    );
                }
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
