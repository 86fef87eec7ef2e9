//! From an answer back to the tokens it came from.
//!
//! Starting at the answering token after the last layer, every read that carries some weight is followed to the token that was
//! read, layer by layer down to the embedding. Reads that cannot matter are not followed: which columns of the stream each layer
//! writes and looks at is read off the weights, and what a token writes in columns that no later layer reads is left aside. In a trained
//! network all columns are used and only the weights of the reads decide.

use std::collections::BTreeMap;

use rung_engine::{Parameters, Role, Scalar};

use super::{MixingOp, ReaderKind, Trace};
use crate::construct::LayerColumns;
use crate::model::{ModelConfig, NormConfig, NormPlacement, names};

/// One token reads another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRead {
    /// The layer, from 0.
    pub layer: usize,
    /// What reads.
    pub reads: ReaderKind,
    /// The head with the largest share.
    pub head: usize,
    /// The token that is read.
    pub from: usize,
    /// The token that reads.
    pub to: usize,
    /// How much of what that head reads comes from there, from 0 to 1.
    pub share: f64,
}

/// What an answer came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The answering tokens.
    pub answers: Vec<usize>,
    /// Tokens that matter, in order.
    pub tokens: Vec<usize>,
    /// Reads between them, in the order of layers.
    pub reads: Vec<TokenRead>,
    /// Tokens that carry enough weight and were left out because there are too many.
    pub crowded_out: usize,
    /// For every layer and token whose reads were followed, the largest share that went to tokens not shown.
    pub elsewhere: Vec<(usize, usize, f64)>,
    /// The largest difference, over the rows that were followed, between weights times values and the forward pass's own.
    pub mismatch: f64,
}

impl Trace {
    /// Follows the answers at some tokens back through every read of at least `share`, and keeps the `most` tokens with the
    /// largest.
    pub fn flow(&self, answers: &[usize], share: f64, most: usize) -> Flow {
        let mut needed: BTreeMap<usize, Vec<bool>> =
            answers.iter().map(|answer| (*answer, self.answered.clone())).collect();
        let (mut reads, mut followed) = (Vec::new(), Vec::new());
        for (layer, used_columns) in self.layer_columns.iter().enumerate().rev() {
            for (token, mut columns) in needed.clone() {
                if share_a_column(&columns, &used_columns.outputs) {
                    add_columns(&mut columns, &used_columns.mlp_inputs);
                }
                if share_a_column(&columns, &used_columns.mixer_outputs) {
                    add_columns(&mut columns, &used_columns.query_inputs);
                    followed.push((layer, token));
                    for read in self.reads_of(layer, token, share) {
                        add_columns(
                            needed.entry(read.from).or_insert_with(|| vec![false; columns.len()]),
                            &used_columns.state_inputs,
                        );
                        reads.push(read);
                    }
                }
                needed.entry(token).and_modify(|all| add_columns(all, &columns)).or_insert(columns);
            }
        }
        self.kept(answers, most, reads, &followed)
    }

    /// The largest share of every token in what one token reads in a layer.
    fn reads_of(&self, layer: usize, to: usize, least: f64) -> Vec<TokenRead> {
        let mut best: BTreeMap<(u8, usize), TokenRead> = BTreeMap::new();
        self.each_head(layer, |reads, head, reading| {
            // What a convolution lets through of the token itself was not moved between tokens.
            let moved = |from: usize| from != to || reads != ReaderKind::Convolution;
            let shares = reading.shares(to, head).into_iter().enumerate();
            for (from, share) in shares.filter(|(from, share)| *share >= least && moved(*from)) {
                let read = TokenRead { layer, reads, head, from, to, share };
                let known = best.entry((reads as u8, from)).or_insert(read);
                if share > known.share {
                    *known = read;
                }
            }
        });
        best.into_values().collect()
    }

    fn each_head(&self, layer: usize, mut see: impl FnMut(ReaderKind, usize, &MixingOp)) {
        for (reading, idle) in self.layers[layer].iter().zip(&self.idle[layer]) {
            for head in (0..reading.heads).filter(|head| !idle[*head]) {
                see(reading.reads, head, reading);
            }
        }
    }

    fn kept(&self, answers: &[usize], most: usize, mut reads: Vec<TokenRead>, followed: &[(usize, usize)]) -> Flow {
        let mut weight: BTreeMap<usize, f64> = answers.iter().map(|answer| (*answer, f64::INFINITY)).collect();
        for read in reads.iter().filter(|read| !answers.contains(&read.from)) {
            let known = weight.entry(read.from).or_default();
            *known = known.max(read.share);
        }
        let mut tokens: Vec<usize> = weight.keys().copied().collect();
        tokens.sort_by(|left, right| weight[right].total_cmp(&weight[left]).then(left.cmp(right)));
        let most = most.max(answers.len());
        let crowded_out = tokens.len().saturating_sub(most);
        tokens.truncate(most);
        tokens.sort_unstable();
        reads.retain(|read| tokens.contains(&read.from) && tokens.contains(&read.to));
        reads.sort_by_key(|read| (read.layer, read.to, read.from));
        let (mut elsewhere, mut mismatch) = (Vec::new(), 0.0_f64);
        for &(layer, token) in followed.iter().filter(|(_, token)| tokens.contains(token)) {
            let mut worst = 0.0_f64;
            self.each_head(layer, |_, head, reading| {
                let shares = reading.shares(token, head);
                if shares.iter().any(|share| *share > 0.0) {
                    let shown: f64 = tokens.iter().map(|shown| shares[*shown]).sum();
                    worst = worst.max(1.0 - shown);
                }
            });
            elsewhere.push((layer, token, worst.clamp(0.0, 1.0)));
            mismatch = self.layers[layer].iter().map(|reading| reading.mismatch(token)).fold(mismatch, f64::max);
        }
        elsewhere.sort_by_key(|(layer, token, _)| (*layer, *token));
        Flow { answers: answers.to_vec(), tokens, reads, crowded_out, elsewhere, mismatch }
    }
}

fn share_a_column(left: &[bool], right: &[bool]) -> bool {
    left.iter().zip(right).any(|(left, right)| *left && *right)
}

fn add_columns(all: &mut [bool], more: &[bool]) {
    for (all, more) in all.iter_mut().zip(more) {
        *all |= *more;
    }
}

/// Columns that a layer uses; behind a norm every column depends on every other.
pub(super) fn layer_columns<S: Scalar>(
    layer: usize,
    config: &ModelConfig,
    width: usize,
    weights: &Parameters<S>,
) -> LayerColumns {
    let mut used_columns = LayerColumns::of(layer, width, weights);
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

/// Columns that the unembedding looks at.
pub(super) fn answered<S: Scalar>(config: &ModelConfig, width: usize, weights: &Parameters<S>) -> Vec<bool> {
    let unembedding = weights.entries().find(|(_, entry)| entry.role == Role::Unembedding).map(|(id, _)| id);
    let Some(id) = unembedding.filter(|_| !mixes_columns(config)) else { return vec![true; width] };
    let mut answered = vec![false; width];
    for row in weights.get(id).chunks_exact(width) {
        for (value, answered) in row.iter().zip(&mut answered) {
            *answered |= *value != S::ZERO;
        }
    }
    answered
}

/// For every reading of a layer, the heads whose output is unused: their columns of the output projection are zero.
pub(super) fn idle<S: Scalar>(layer: usize, readings: &[MixingOp], weights: &Parameters<S>) -> Vec<Vec<bool>> {
    let output = weights.find_role(&names::mixer(layer, 0, 1), Role::Output);
    let idle = |reading: &MixingOp| {
        let none = vec![false; reading.heads];
        let Some(id) = output.filter(|_| reading.reads != ReaderKind::Convolution) else { return none };
        let columns = weights.entry(id).shape.width();
        if !columns.is_multiple_of(reading.heads) {
            return none;
        }
        let mut idle = vec![true; reading.heads];
        for row in weights.get(id).chunks_exact(columns) {
            for (idle, part) in idle.iter_mut().zip(row.chunks_exact(columns / reading.heads)) {
                *idle &= part.iter().all(|value| *value == S::ZERO);
            }
        }
        idle
    };
    readings.iter().map(idle).collect()
}
