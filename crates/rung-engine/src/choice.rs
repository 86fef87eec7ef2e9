//! Which blocks of keys each query reads.
//!
//! Keys are divided into blocks of equal length; the last may be shorter. A [`BlockChoice`] has a list of blocks for every sequence,
//! group of heads and query. A query reads the keys of its blocks up to its own position, so a list has no block that starts
//! after the query.

use crate::kernels::top_k::{count_above, count_from, indices_from, range_of};
use crate::scalar::Scalar;

/// Lists of blocks, in the order `[sequence, group, query]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChoice {
    block_size: usize,
    groups: usize,
    /// Where each list ends in `blocks`.
    ends: Vec<usize>,
    /// All lists, one after another.
    blocks: Vec<u32>,
}

impl BlockChoice {
    /// A choice without lists, for blocks of `block_size` keys and this many groups of heads.
    pub fn new(block_size: usize, groups: usize) -> Self {
        Self { block_size, groups, ends: Vec::new(), blocks: Vec::new() }
    }

    /// Adds the list of the next query.
    ///
    /// # Panics
    /// If the blocks are not in ascending order.
    pub fn push(&mut self, blocks: impl IntoIterator<Item = usize>) {
        let start = self.blocks.len();
        self.blocks.extend(blocks.into_iter().map(|block| block as u32));
        assert!(self.blocks[start..].is_sorted_by(|a, b| a < b), "blocks {:?}", &self.blocks[start..]);
        self.ends.push(self.blocks.len());
    }

    /// Keys per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Groups of heads, each with lists of its own.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The list of row `(sequence * groups + group) * queries + query`.
    pub fn blocks_of(&self, row: usize) -> &[u32] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.blocks[start..self.ends[row]]
    }

    /// The length of the longest list.
    pub(crate) fn longest_list(&self) -> usize {
        (0..self.ends.len()).map(|row| self.blocks_of(row).len()).max().unwrap_or_default()
    }

    /// Panics unless every query has a list with at least one block and no block after the query.
    pub(crate) fn check(&self, batch: usize, query_len: usize, key_len: usize) {
        let rows = batch * self.groups * query_len;
        assert_eq!(self.ends.len(), rows, "one list for each of {batch} x {} x {query_len} queries", self.groups);
        for row in 0..rows {
            let last_visible = (row % query_len + key_len - query_len) / self.block_size;
            let last = self.blocks_of(row).last().unwrap_or_else(|| panic!("query {row} has no block to read"));
            assert!(*last as usize <= last_visible, "query {row} of block {last_visible} reads block {last}");
        }
    }

    /// The queries that read each block.
    pub(crate) fn readers(&self, query_len: usize, key_len: usize) -> BlockReaders {
        let block_count = key_len.div_ceil(self.block_size);
        let group_count = self.ends.len() / query_len.max(1);
        let mut ends = vec![0; group_count * block_count];
        let pairs =
            || (0..self.ends.len()).flat_map(|row| self.blocks_of(row).iter().map(move |block| (row, *block as usize)));
        for (row, block) in pairs() {
            ends[row / query_len * block_count + block] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            (*end, sum) = (sum, sum + *end);
        }
        let mut readers = vec![0; self.blocks.len()];
        for (row, block) in pairs() {
            let end = &mut ends[row / query_len * block_count + block];
            readers[*end] = (row % query_len) as u32;
            *end += 1;
        }
        BlockReaders { block_count, ends, queries: readers }
    }
}

/// For every sequence, group and block, the queries that read the block, in ascending order.
pub(crate) struct BlockReaders {
    block_count: usize,
    /// Where each list ends in `queries`.
    ends: Vec<usize>,
    queries: Vec<u32>,
}

impl BlockReaders {
    /// Readers of a block; `group` is `sequence * groups + group`.
    pub(crate) fn readers_of(&self, group: usize, block: usize) -> &[u32] {
        let list = group * self.block_count + block;
        let start = if list == 0 { 0 } else { self.ends[list - 1] };
        &self.queries[start..self.ends[list]]
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

    #[test]
    fn readers_list_the_queries_of_each_block() {
        let mut choice = BlockChoice::new(2, 1);
        for list in [vec![0], vec![0], vec![1], vec![0, 1], vec![0, 2]] {
            choice.push(list);
        }
        choice.check(1, 5, 5);
        let readers = choice.readers(5, 5);
        let actual: Vec<&[u32]> = (0..3).map(|block| readers.readers_of(0, block)).collect();
        assert_eq!(actual, [&[0, 1, 3, 4][..], &[2, 3], &[4]]);
    }
}
