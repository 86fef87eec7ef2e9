//! Finds the tokens that an answer depends on.
//!
//! Starting at the answering token after the last layer, every read with a sufficient share is followed to the token that was read, layer
//! by layer down to the embedding. Reads that cannot matter are not followed: the weights show which columns of the residual stream each
//! layer reads and writes, and what a token writes to columns that no later layer reads is ignored. A trained network uses all columns,
//! so that only the shares of the reads determine what is followed.

use std::collections::BTreeMap;

use rung_engine::{Parameters, Role, Scalar};

use super::{MixingKind, MixingOp, Trace};
use crate::construct::LayerColumns;
use crate::model::{ModelConfig, NormConfig, NormPlacement, names};

/// One token reads another in a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRead {
    /// The layer, from 0.
    pub layer: usize,
    /// The kind of operation that reads.
    pub kind: MixingKind,
    /// The head with the largest share.
    pub head: usize,
    /// The token that is read.
    pub from: usize,
    /// The token that reads.
    pub to: usize,
    /// The fraction of what that head reads that comes from that token, from 0 to 1.
    pub share: f64,
}

/// The tokens and reads that an answer depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The answering tokens.
    pub answers: Vec<usize>,
    /// Tokens that matter, in ascending order.
    pub tokens: Vec<usize>,
    /// Reads between them, in the order of layers.
    pub reads: Vec<TokenRead>,
    /// Number of tokens with a sufficient share that were left out because of the limit on tokens.
    pub omitted_tokens: usize,
    /// For every (layer, token) whose reads were followed, the largest share, over heads, of tokens that are not in `tokens`.
    pub omitted_shares: Vec<(usize, usize, f64)>,
    /// The largest difference, over the rows that were followed, between weights times values and the output of the forward pass.
    pub mismatch: f64,
}

impl Trace {
    /// Follows the answers at some tokens back through every read of at least `min_share`, and keeps the `max_tokens` tokens with the
    /// largest shares.
    pub fn flow(&self, answers: &[usize], min_share: f64, max_tokens: usize) -> Flow {
        let mut needed: BTreeMap<usize, Vec<bool>> =
            answers.iter().map(|answer| (*answer, self.read_by_unembedding.clone())).collect();
        let (mut reads, mut readers) = (Vec::new(), Vec::new());
        for (layer, used_columns) in self.layer_columns.iter().enumerate().rev() {
            for (token, mut columns) in needed.clone() {
                if have_common_column(&columns, &used_columns.outputs) {
                    add_columns(&mut columns, &used_columns.mlp_inputs);
                }
                if have_common_column(&columns, &used_columns.mixer_outputs) {
                    add_columns(&mut columns, &used_columns.query_inputs);
                    readers.push((layer, token));
                    for read in self.reads_of(layer, token, min_share) {
                        add_columns(
                            needed.entry(read.from).or_insert_with(|| vec![false; columns.len()]),
                            &used_columns.state_inputs,
                        );
                        reads.push(read);
                    }
                }
                needed
                    .entry(token)
                    .and_modify(|needed_columns| add_columns(needed_columns, &columns))
                    .or_insert(columns);
            }
        }
        self.limit_tokens(answers, max_tokens, reads, &readers)
    }

    /// What one token reads in a layer: for each kind of operation and each token read, the head with the largest share.
    fn reads_of(&self, layer: usize, to: usize, min_share: f64) -> Vec<TokenRead> {
        let mut largest: BTreeMap<(u8, usize), TokenRead> = BTreeMap::new();
        self.for_each_head(layer, |kind, head, op| {
            // What a convolution takes from the token itself is not a read of another token.
            let is_read = |from: usize| from != to || kind != MixingKind::Convolution;
            let shares = op.shares(to, head).into_iter().enumerate();
            for (from, share) in shares.filter(|(from, share)| *share >= min_share && is_read(*from)) {
                let read = TokenRead { layer, kind, head, from, to, share };
                let previous = largest.entry((kind as u8, from)).or_insert(read);
                if share > previous.share {
                    *previous = read;
                }
            }
        });
        largest.into_values().collect()
    }

    /// Calls `visit` for every head of a layer that has an effect.
    fn for_each_head(&self, layer: usize, mut visit: impl FnMut(MixingKind, usize, &MixingOp)) {
        for (op, without_effect) in self.layers[layer].iter().zip(&self.heads_without_effect[layer]) {
            for head in (0..op.heads).filter(|head| !without_effect[*head]) {
                visit(op.kind, head, op);
            }
        }
    }

    /// Keeps the `max_tokens` tokens with the largest shares, and the reads between them. `readers` has every (layer, token) whose reads
    /// were followed.
    fn limit_tokens(
        &self,
        answers: &[usize],
        max_tokens: usize,
        mut reads: Vec<TokenRead>,
        readers: &[(usize, usize)],
    ) -> Flow {
        let mut largest_share: BTreeMap<usize, f64> = answers.iter().map(|answer| (*answer, f64::INFINITY)).collect();
        for read in reads.iter().filter(|read| !answers.contains(&read.from)) {
            let previous = largest_share.entry(read.from).or_default();
            *previous = previous.max(read.share);
        }
        let mut tokens: Vec<usize> = largest_share.keys().copied().collect();
        tokens.sort_by(|left, right| largest_share[right].total_cmp(&largest_share[left]).then(left.cmp(right)));
        let max_tokens = max_tokens.max(answers.len());
        let omitted_tokens = tokens.len().saturating_sub(max_tokens);
        tokens.truncate(max_tokens);
        tokens.sort_unstable();
        reads.retain(|read| tokens.contains(&read.from) && tokens.contains(&read.to));
        reads.sort_by_key(|read| (read.layer, read.to, read.from));
        let (mut omitted_shares, mut mismatch) = (Vec::new(), 0.0_f64);
        for &(layer, token) in readers.iter().filter(|(_, token)| tokens.contains(token)) {
            let mut largest = 0.0_f64;
            self.for_each_head(layer, |_, head, op| {
                let shares = op.shares(token, head);
                if shares.iter().any(|share| *share > 0.0) {
                    let included: f64 = tokens.iter().map(|token| shares[*token]).sum();
                    largest = largest.max(1.0 - included);
                }
            });
            omitted_shares.push((layer, token, largest.clamp(0.0, 1.0)));
            mismatch = self.layers[layer].iter().map(|op| op.mismatch(token)).fold(mismatch, f64::max);
        }
        omitted_shares.sort_by_key(|(layer, token, _)| (*layer, *token));
        Flow { answers: answers.to_vec(), tokens, reads, omitted_tokens, omitted_shares, mismatch }
    }
}

fn have_common_column(left: &[bool], right: &[bool]) -> bool {
    left.iter().zip(right).any(|(left, right)| *left && *right)
}

fn add_columns(columns: &mut [bool], added: &[bool]) {
    for (column, added) in columns.iter_mut().zip(added) {
        *column |= *added;
    }
}

/// Columns that a layer uses. With norms, every input depends on all columns.
pub(super) fn layer_columns<S: Scalar>(
    layer: usize,
    config: &ModelConfig,
    width: usize,
    weights: &Parameters<S>,
) -> LayerColumns {
    let mut used_columns = LayerColumns::from_weights(layer, width, weights);
    if mixes_columns(config) {
        for columns in [&mut used_columns.state_inputs, &mut used_columns.query_inputs, &mut used_columns.mlp_inputs] {
            columns.fill(true);
        }
    }
    used_columns
}

fn mixes_columns(config: &ModelConfig) -> bool {
    config.norm != NormConfig::None || config.placement == NormPlacement::Post
}

/// For each column of the residual stream, whether the unembedding reads it.
pub(super) fn read_by_unembedding<S: Scalar>(config: &ModelConfig, width: usize, weights: &Parameters<S>) -> Vec<bool> {
    let unembedding = weights.entries().find(|(_, entry)| entry.role == Role::Unembedding).map(|(id, _)| id);
    let Some(id) = unembedding.filter(|_| !mixes_columns(config)) else { return vec![true; width] };
    let mut is_read = vec![false; width];
    for row in weights.get(id).chunks_exact(width) {
        for (value, is_read) in row.iter().zip(&mut is_read) {
            *is_read |= *value != S::ZERO;
        }
    }
    is_read
}

/// For every operation and head of a layer, whether the head has no effect: its columns of the output projection are zero.
pub(super) fn heads_without_effect<S: Scalar>(
    layer: usize,
    ops: &[MixingOp],
    weights: &Parameters<S>,
) -> Vec<Vec<bool>> {
    let output = weights.find_role(&names::mixer(layer, 0, 1), Role::Output);
    let without_effect = |op: &MixingOp| {
        let none = vec![false; op.heads];
        let Some(id) = output.filter(|_| op.kind != MixingKind::Convolution) else { return none };
        let columns = weights.entry(id).shape.width();
        if !columns.is_multiple_of(op.heads) {
            return none;
        }
        let mut is_zero = vec![true; op.heads];
        for row in weights.get(id).chunks_exact(columns) {
            for (is_zero, head_columns) in is_zero.iter_mut().zip(row.chunks_exact(columns / op.heads)) {
                *is_zero &= head_columns.iter().all(|value| *value == S::ZERO);
            }
        }
        is_zero
    };
    ops.iter().map(without_effect).collect()
}
