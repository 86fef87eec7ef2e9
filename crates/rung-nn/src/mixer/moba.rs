//! `MoBA`: softmax attention to the few blocks of tokens whose mean keys score highest with the query.
//!
//! Definition, state and sources: `rung explain moba`.
//!
//! # Computed as
//! Block by block, attention of the queries that chose it. No gradient passes through the choice.

use rung_engine::{BlockAttention, BlockChoice, Ops, Scalar, top_k};
use rung_theory::stack::Mixer;
use rung_theory::stack::mixer::BlockSummary;

use super::attention::{HeadsConfig, MultiHeadAttention, Visibility};
use super::{MixerConfig, State, TokenMixer, number, reject_alibi, require_causal, require_divisor};
use crate::error::ModelError;
use crate::param_builder::ParamBuilder;

/// Sizes of attention to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobaConfig {
    /// Sizes of the heads.
    pub heads: HeadsConfig,
    /// Tokens in a block.
    pub block: usize,
    /// Blocks that a query attends to, including its own.
    pub top: usize,
    /// Number of groups of heads that choose their blocks together.
    pub groups: usize,
    /// Whether a block's score is from its smallest and largest keys per channel, not from its mean key.
    pub min_max: bool,
}

/// Attention to blocks.
pub struct Moba {
    config: MobaConfig,
    heads: MultiHeadAttention,
}

impl MixerConfig for MobaConfig {
    type Mixer = Moba;
    const NAME: &'static str = "moba";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let heads = HeadsConfig::resolve(mixer)?;
        let [block, top, groups] = ["block", "top", "groups"].map(|option| number(mixer, option));
        require_divisor(Self::NAME, "groups", heads.heads, groups)?;
        if number(mixer, "index") > 0 {
            let (what, expected) = ("a separate index key".to_owned(), "index=0".to_owned());
            return Err(ModelError::UnsupportedOption { mixer: Self::NAME, what, expected });
        }
        Ok(Self {
            heads,
            block,
            top,
            groups,
            min_max: mixer.options().choice::<BlockSummary>("summary") == BlockSummary::MinMax,
        })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Moba, ModelError> {
        require_causal(Self::NAME, params)?;
        reject_alibi(Self::NAME, params)?;
        let rounding = params.settings.precision.message;
        Ok(Moba { config: *self, heads: self.heads.init(Self::NAME, params, Visibility::Past, rounding)? })
    }
}

impl Moba {
    /// The blocks that each of the last queries attends to.
    fn choose_blocks<O: Ops>(&self, ops: &O, query: &O::Tensor, key: &O::Tensor) -> BlockChoice {
        let MobaConfig { heads: HeadsConfig { heads, kv_heads, key_dim, .. }, block, top, groups, min_max, .. } =
            self.config;
        let (batch, time, keys) = (ops.shape(query)[0], ops.shape(query)[1], ops.shape(key)[1]);
        let (mut choice, full_blocks) = (BlockChoice::new(block, groups), keys / block);
        // Scores are needed only where there are more blocks than a query attends to.
        let scores = (full_blocks >= top && top > 1).then(|| {
            let past_keys = ops.slice(&ops.detach(key), 1, 0..full_blocks * block);
            let past_keys = ops.reshape(&past_keys, &[batch, full_blocks, block, kv_heads * key_dim]);
            let transpose =
                |x: O::Tensor| ops.permute(&ops.reshape(&x, &[batch, full_blocks, kv_heads, key_dim]), &[0, 2, 3, 1]);
            let queries = ops.permute(&ops.detach(query), &[0, 2, 1, 3]);
            let queries = ops.reshape(&queries, &[batch, kv_heads, heads / kv_heads * time, key_dim]);
            let scores = if min_max {
                // An upper bound on q.k: the largest key where the query is positive, else the smallest, which is `-max(-key)`.
                let positive = ops.matmul(&ops.relu(&queries), &transpose(ops.max(&past_keys, 2)));
                let negative = ops.matmul(&ops.relu(&ops.neg(&queries)), &transpose(ops.max(&ops.neg(&past_keys), 2)));
                ops.add(&positive, &negative)
            } else {
                ops.matmul(&queries, &transpose(ops.mean(&past_keys, 2)))
            };
            ops.values(&ops.sum(&ops.reshape(&scores, &[batch, groups, heads / groups, time, full_blocks]), 2))
        });
        for row in 0..batch * groups * time {
            let own_block = (row % time + keys - time) / block;
            match &scores {
                Some(scores) => choice
                    .push(top_k(&scores[row * full_blocks..][..own_block], top - 1).into_iter().chain([own_block])),
                None => choice.push(own_block.saturating_sub(top - 1)..=own_block),
            }
        }
        choice
    }
}

impl TokenMixer for Moba {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (cache, next_state) = self.heads.append_to_cache(ops, x, state);
        let query = self.heads.query_heads().project_query(ops, x, State::past_len(state));
        let choice = self.choose_blocks(ops, &query, &cache.key);
        let (key, value, scale) = (&cache.key, &cache.value, self.config.heads.scale());
        let head_outputs = ops.block_attention(&BlockAttention { query: &query, key, value, choice: &choice, scale });
        (self.heads.query_heads().project_output(ops, x, &head_outputs), next_state)
    }

    /// Appends to the KV cache without computing attention.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        self.heads.append_to_cache(ops, x, state).1
    }
}
