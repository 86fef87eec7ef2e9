//! Which blocks of keys each query reads.
//!
//! Keys are divided into blocks of equal length; the last may be shorter. A [`BlockChoice`] has a list of blocks for every sequence,
//! group of heads and query. A query reads the keys of its blocks up to its own position, so a list has no block that starts
//! after the query.

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
        // Counted first, then the start of each list; each start moves to the end of its list while the list is filled.
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
    /// Readers of a block. `group` counts the groups of all sequences: `sequence * groups + index of the group in its sequence`.
    pub(crate) fn readers_of(&self, group: usize, block: usize) -> &[u32] {
        let list = group * self.block_count + block;
        let start = if list == 0 { 0 } else { self.ends[list - 1] };
        &self.queries[start..self.ends[list]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
