//! Which blocks of keys each query reads.
//!
//! Keys fall into blocks of equal length, the last perhaps shorter. For every sequence, group of heads and query a [`BlockChoice`] holds a
//! list of blocks. A query reads the keys of its blocks up to its own place; blocks that begin after it are no use to it, and
//! lists do not have them.

use crate::scalar::Scalar;

/// Lists of blocks, in the order `[sequence, group, query]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChoice {
    block: usize,
    groups: usize,
    ends: Vec<usize>,
    blocks: Vec<u32>,
}

impl BlockChoice {
    /// No lists yet, for blocks of this many keys and heads in this many groups.
    pub fn new(block: usize, groups: usize) -> Self {
        Self { block, groups, ends: Vec::new(), blocks: Vec::new() }
    }

    /// Adds the list of the next query.
    ///
    /// # Panics
    /// If blocks are not in rising order.
    pub fn push(&mut self, blocks: impl IntoIterator<Item = usize>) {
        let start = self.blocks.len();
        self.blocks.extend(blocks.into_iter().map(|block| block as u32));
        assert!(self.blocks[start..].is_sorted_by(|a, b| a < b), "blocks {:?}", &self.blocks[start..]);
        self.ends.push(self.blocks.len());
    }

    /// Keys in a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Groups of heads that choose separately.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The list of a query, by its number among all.
    pub fn of(&self, row: usize) -> &[u32] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.blocks[start..self.ends[row]]
    }

    /// Refuses lists that do not fit: each query is there and sees a key, and no query reads a later block.
    pub(crate) fn check(&self, batch: usize, queries: usize, keys: usize) {
        let rows = batch * self.groups * queries;
        assert_eq!(self.ends.len(), rows, "one list for each of {batch} x {} x {queries} queries", self.groups);
        for row in 0..rows {
            let own = (row % queries + keys - queries) / self.block;
            let last = self.of(row).last().unwrap_or_else(|| panic!("query {row} has no block to read"));
            assert!(*last as usize <= own, "query {row} of block {own} reads block {last}");
        }
    }

    /// The lists the other way round.
    pub(crate) fn readers(&self, queries: usize, keys: usize) -> BlockReaders {
        let blocks = keys.div_ceil(self.block);
        let tables = self.ends.len() / queries.max(1);
        let mut ends = vec![0; tables * blocks];
        let cells =
            || (0..self.ends.len()).flat_map(|row| self.of(row).iter().map(move |block| (row, *block as usize)));
        for (row, block) in cells() {
            ends[row / queries * blocks + block] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            (*end, sum) = (sum, sum + *end);
        }
        let mut readers = vec![0; self.blocks.len()];
        for (row, block) in cells() {
            let end = &mut ends[row / queries * blocks + block];
            readers[*end] = (row % queries) as u32;
            *end += 1;
        }
        BlockReaders { blocks, ends, queries: readers }
    }
}

/// For every sequence, group and block, the queries that read it, in rising order.
pub(crate) struct BlockReaders {
    blocks: usize,
    ends: Vec<usize>,
    queries: Vec<u32>,
}

impl BlockReaders {
    /// Readers of a block, of a sequence and group by their joint number.
    pub(crate) fn of(&self, table: usize, block: usize) -> &[u32] {
        let cell = table * self.blocks + block;
        let start = if cell == 0 { 0 } else { self.ends[cell - 1] };
        &self.queries[start..self.ends[cell]]
    }
}

/// So many of the highest are found by keeping the best so far.
const FEW: usize = 16;

/// The places of the `count` highest scores, in rising order; of equal ones the earlier. A NaN is the lowest.
pub fn highest<S: Scalar>(scores: &[S], count: usize) -> Vec<usize> {
    let mut places = if count <= FEW { by_keeping(scores, count) } else { by_selecting(scores, count) };
    places.sort_unstable();
    places
}

fn rank<S: Scalar>(score: S) -> f64 {
    let score = score.to_f64();
    if score.is_nan() { f64::NEG_INFINITY } else { score }
}

/// Holds the best so far, best first: most scores are below the last of them and cost one comparison.
fn by_keeping<S: Scalar>(scores: &[S], count: usize) -> Vec<usize> {
    let mut best: Vec<(f64, usize)> = Vec::with_capacity(count);
    for (place, score) in scores.iter().enumerate() {
        let score = rank(*score);
        if best.len() == count {
            if best.last().is_none_or(|last| score <= last.0) {
                continue;
            }
            best.pop();
        }
        best.insert(best.partition_point(|held| held.0 >= score), (score, place));
    }
    best.into_iter().map(|held| held.1).collect()
}

/// Parts all places at the last that counts.
fn by_selecting<S: Scalar>(scores: &[S], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..scores.len()).collect();
    let falling = |a: &usize, b: &usize| rank(scores[*b]).partial_cmp(&rank(scores[*a])).expect("no rank is NaN");
    if count < places.len() {
        places.select_nth_unstable_by(count, |a, b| falling(a, b).then(a.cmp(b)));
        places.truncate(count);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_are_found_and_ties_go_to_the_earlier() {
        assert_eq!(highest(&[1.0, 5.0, 3.0, 5.0, 2.0], 3), [1, 2, 3]);
        assert_eq!(highest(&[0.0; 6], 2), [0, 1]);
        assert_eq!(highest(&[f64::NAN, -1.0, f64::NAN], 1), [1]);
        assert_eq!(highest(&[1.0, 2.0], 9), [0, 1]);
        assert!(highest(&[1.0, 2.0], 0).is_empty());
    }

    #[test]
    fn both_ways_of_finding_the_highest_agree() {
        let mut state = 7_u64;
        for count in 0..12 {
            let scores: Vec<f64> = (0..9)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    [f64::NAN, -0.0, 0.0, 1.0, -1.0, 2.0, f64::NEG_INFINITY][(state >> 33) as usize % 7]
                })
                .collect();
            let (mut kept, mut selected) = (by_keeping(&scores, count), by_selecting(&scores, count));
            kept.sort_unstable();
            selected.sort_unstable();
            assert_eq!(kept, selected, "{count} of {scores:?}");
        }
    }

    #[test]
    fn readers_are_the_lists_turned_round() {
        let mut choice = BlockChoice::new(2, 1);
        for list in [vec![0], vec![0], vec![1], vec![0, 1], vec![0, 2]] {
            choice.push(list);
        }
        choice.check(1, 5, 5);
        let readers = choice.readers(5, 5);
        let found: Vec<&[u32]> = (0..3).map(|block| readers.of(0, block)).collect();
        assert_eq!(found, [&[0, 1, 3, 4][..], &[2, 3], &[4]]);
    }
}
