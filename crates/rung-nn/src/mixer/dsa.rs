//! Token-sparse attention: an indexer scores every earlier token, and latent attention attends to those with the highest scores.
//!
//! Definition, state and sources: `rung explain dsa`.
//!
//! # Computed as
//! The indexer's scores of a few queries at a time, from which their `top` tokens are chosen, then latent attention to those
//! tokens alone. No gradient passes through the choice: the indexer learns from an auxiliary loss, the Kullback-Leibler divergence from the heads' mean weights over the chosen tokens to the
//! softmax of its scores over them. That loss trains the indexer only.

use rung_engine::{BlockChoice, Indexer, Ops, Parameter, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::attention::MASKED;
use super::mla::{AttentionOperands, Latent, LatentConfig};
use super::{MixerConfig, State, TokenMixer, append_to_state_tensor, number};
use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::position::{Frequencies, Positions, Rotation, apply_rope};
use crate::precision::apply_rounding;
use crate::submodules::{Linear, merge_heads, split_heads};

/// Sizes of token-sparse attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSparseConfig {
    /// Sizes of the latent attention.
    pub latent: LatentConfig,
    /// Tokens that a query attends to.
    pub top: usize,
    /// Query heads of the indexer.
    pub index_heads: usize,
    /// Width of an index key.
    pub index_dim: usize,
}

/// Token-sparse attention.
pub struct TokenSparse {
    config: TokenSparseConfig,
    latent: Latent,
    query: Linear,
    key: Linear,
    norm: [Parameter; 2],
    /// Weight of each index head in a query's scores.
    head_weights: Linear,
    /// Rotation of the first channels of index queries and keys.
    rotation: Option<Rotation>,
    rounding: Option<Rounding>,
}

impl TokenSparseConfig {
    /// Number of rotated channels of an index key: as many as in the attention's rotary key.
    fn rotary_width(&self) -> usize {
        self.latent.rope_dim.min(self.index_dim) / 2 * 2
    }
}

impl MixerConfig for TokenSparseConfig {
    type Mixer = TokenSparse;
    const NAME: &'static str = "dsa";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [top, index_heads, index_dim] = ["top", "index-heads", "index-head"].map(|option| number(mixer, option));
        if index_heads == 0 || index_dim == 0 {
            let what = "the choice of an earlier layer".to_owned();
            let expected = "index-heads and index-head of at least 1".to_owned();
            return Err(ModelError::UnsupportedOption { mixer: Self::NAME, what, expected });
        }
        Ok(Self { latent: LatentConfig::from_options(mixer), top, index_heads, index_dim })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<TokenSparse, ModelError> {
        let latent = self.latent.init_as(Self::NAME, params)?;
        let width = params.settings.width;
        let query_input_width = if self.latent.query_rank == 0 { width } else { self.latent.query_rank };
        let rotation = match params.settings.positions {
            Positions::Rotary { base } if self.rotary_width() > 0 => {
                Some(Rotation::new(self.rotary_width(), Frequencies::Geometric { base }))
            }
            _ => None,
        };
        let rounding = params.settings.precision.message;
        params.with_prefix("indexer", |params| {
            let query = params.linear("wq_b", query_input_width, self.index_heads * self.index_dim);
            let key = params.linear("wk", width, self.index_dim);
            let norm = [("k_norm.weight", 1.0), ("k_norm.bias", 0.0)].map(|(name, value)| {
                params.parameter_without_weight_decay(name, &[self.index_dim], Init::Constant(value))
            });
            let head_weights = params.linear("weights_proj", width, self.index_heads);
            Ok(TokenSparse { config: *self, latent, query, key, norm, head_weights, rotation, rounding })
        })
    }
}

impl TokenSparse {
    /// Index queries and head weights of new tokens, and the index keys of all tokens.
    fn project_index<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        query_input: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> [O::Tensor; 3] {
        let past_len = State::past_len(state);
        let [gain, offset] = self.norm.map(|weight| ops.parameter(weight));
        let key = ops.layer_norm(&self.key.apply(ops, x), Some(&gain), Some(&offset), 1e-6);
        let key = merge_heads(ops, &self.apply_rope(ops, &split_heads(ops, &key, 1), past_len));
        let keys = append_to_state_tensor(ops, state, 2, &apply_rounding(ops, &key, self.rounding));
        let query = self.apply_rope(
            ops,
            &self.query.apply_and_split_heads(ops, query_input, self.config.index_heads),
            past_len,
        );
        [query, self.head_weights.apply(ops, x), keys]
    }

    /// Index scores `[batch, time, tokens]`.
    fn score<O: Ops>(&self, ops: &O, [query, head_weights, keys]: [&O::Tensor; 3]) -> O::Tensor {
        let TokenSparseConfig { index_heads: heads, index_dim, .. } = self.config;
        let (batch, time, tokens) = (ops.shape(query)[0], ops.shape(query)[1], ops.shape(keys)[1]);
        let query = ops.reshape(query, &[batch, time * heads, index_dim]);
        let similarity = ops.relu(&ops.product(&query, false, keys, true));
        let scale = ((heads * index_dim) as f64).powf(-0.5);
        let head_weights = ops.reshape(&ops.scale(head_weights, scale), &[batch, time, heads, 1]);
        let scores = ops.sum(&ops.mul(&ops.reshape(&similarity, &[batch, time, heads, tokens]), &head_weights), 2);
        ops.reshape(&scores, &[batch, time, tokens])
    }

    fn apply_rope<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> O::Tensor {
        apply_rope(ops, self.rotation.as_ref(), x, past_len)
    }

    /// The tokens that each new token attends to.
    fn choose<O: Ops>(&self, ops: &O, index: &[O::Tensor; 3]) -> BlockChoice {
        let [query, head_weights, key] = index;
        ops.choose_tokens(&Indexer { query, head_weights, key, top: self.config.top })
    }

    /// Zero where a token attends to another, [`MASKED`] elsewhere: `[batch, 1, time, time]`.
    fn mask<O: Ops>(ops: &O, [batch, time]: [usize; 2], choice: &BlockChoice) -> O::Tensor {
        let mut mask = vec![O::Scalar::from_f64(MASKED); batch * time * time];
        for (row, mask_row) in mask.chunks_exact_mut(time).enumerate() {
            for &token in choice.blocks_of(row) {
                mask_row[token as usize] = O::Scalar::ZERO;
            }
        }
        ops.constant(&[batch, 1, time, time], &mask)
    }
}

impl TokenMixer for TokenSparse {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (cache, mut next) = self.latent.append_to_cache(ops, x, state);
        let query_input = self.latent.query_input(ops, x);
        let index = self.project_index(ops, x, &query_input, state);
        next.tensors[2] = Some(index[2].clone());
        let choice = self.choose(ops, &index);
        let query = self.latent.project_query(ops, &query_input, State::past_len(state));
        let AttentionOperands { query, key, value, absorbed } = self.latent.attention_operands(ops, query, &cache);
        let head_outputs = self.latent.attend_to_tokens(ops, [&query, &key, &value], &choice);
        (self.latent.project_output(ops, &head_outputs, absorbed), next)
    }

    fn auxiliary_loss<O: Ops>(&self, ops: &O, x: impl FnOnce() -> O::Tensor) -> Option<O::Tensor> {
        let x = ops.detach(&x());
        let query_input = ops.detach(&self.latent.query_input(ops, &x));
        let index = self.project_index(ops, &x, &query_input, None);
        let scores = self.score(ops, index.each_ref());
        let [batch, time, tokens] = ops.shape(&scores)[..] else { unreachable!("scores have three axes") };
        let mask = Self::mask(ops, [batch, time], &self.choose(ops, &index));
        let weights = ops.detach(&self.latent.attention_weights(ops, &x, &mask));
        let target = ops.reshape(&ops.mean(&weights, 1), &[batch, time, tokens]);
        // Log-softmax of the scores over the chosen tokens; the target of other tokens is zero.
        let scores = ops.add(&scores, &ops.reshape(&mask, &[batch, time, tokens]));
        let scores = ops.sub(&scores, &ops.max(&scores, 2));
        let log_predicted = ops.sub(&scores, &ops.log(&ops.sum(&ops.exp(&scores), 2)));
        let log_target = ops.log(&ops.affine(&target, 1.0, 1e-30));
        let divergence = ops.sum_all(&ops.mul(&target, &ops.sub(&log_target, &log_predicted)));
        Some(ops.scale(&divergence, 1.0 / (batch * time) as f64))
    }
}
