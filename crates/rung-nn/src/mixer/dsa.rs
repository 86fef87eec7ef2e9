//! Token-sparse attention: an indexer scores every token of the past, and latent attention reads the best.
//!
//! Definition, state and sources: `rung explain dsa`.
//!
//! # Computed as
//! Latent attention with a mask of `top` tokens per row. No gradient passes through the choice: the indexer learns
//! from a loss of its own, the Kullback-Leibler distance from the heads' mean weights over the chosen tokens to the
//! softmax of its scores over them. That loss touches nothing but the indexer.

use rung_engine::{Ops, Parameter, Rounding, Scalar, highest};
use rung_theory::stack::Mixer;

use super::attention::MASKED;
use super::mla::{Latent, LatentConfig};
use super::{MixerConfig, State, TokenMixer, grown, number};
use crate::error::ModelError;
use crate::parts::{Linear, join, split};
use crate::position::{Positions, Rotation, Spacing};
use crate::precision::rounded;
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of token-sparse attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSparseConfig {
    /// The attention.
    pub latent: LatentConfig,
    /// Tokens that a query reads.
    pub top: usize,
    /// Queries of the indexer.
    pub index_heads: usize,
    /// Width of an index key.
    pub index_head: usize,
}

/// Token-sparse attention.
pub struct TokenSparse {
    config: TokenSparseConfig,
    latent: Latent,
    query: Linear,
    key: Linear,
    norm: [Parameter; 2],
    importance: Linear,
    /// Of the first channels.
    rotation: Option<Rotation>,
    chunk: usize,
    rounding: Option<Rounding>,
}

impl TokenSparseConfig {
    /// Channels of an index key that position turns: as many as of the attention's.
    fn turned(&self) -> usize {
        self.latent.rope.min(self.index_head) / 2 * 2
    }
}

impl MixerConfig for TokenSparseConfig {
    type Mixer = TokenSparse;
    const NAME: &'static str = "dsa";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [top, index_heads, index_head] = ["top", "index-heads", "index-head"].map(|option| number(mixer, option));
        if index_heads == 0 || index_head == 0 {
            let what = "the choice of an earlier layer".to_owned();
            let expected = "index-heads and index-head of at least 1".to_owned();
            return Err(ModelError::Unsupported { mixer: Self::NAME, what, expected });
        }
        Ok(Self { latent: LatentConfig::of(mixer), top, index_heads, index_head })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<TokenSparse, ModelError> {
        let latent = self.latent.init_as(Self::NAME, params)?;
        let width = params.settings.width;
        let asking = if self.latent.rank == 0 { width } else { self.latent.rank };
        let rotation = match params.settings.positions {
            Positions::Rotary { base } if self.turned() > 0 => {
                Some(Rotation::new(self.turned(), Spacing::Usual { base }))
            }
            _ => None,
        };
        let (chunk, rounding) = (params.settings.chunk, params.settings.precision.message);
        params.within("indexer", |params| {
            let query = params.linear("wq_b", asking, self.index_heads * self.index_head);
            let key = params.linear("wk", width, self.index_head);
            let norm = [("k_norm.weight", 1.0), ("k_norm.bias", 0.0)]
                .map(|(name, value)| params.weight_without_decay(name, &[self.index_head], Init::Constant(value)));
            let importance = params.linear("weights_proj", width, self.index_heads);
            Ok(TokenSparse { config: *self, latent, query, key, norm, importance, rotation, chunk, rounding })
        })
    }
}

impl TokenSparse {
    /// Queries and importance of new tokens, and the index keys of all.
    fn index<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        asking: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> [O::Tensor; 3] {
        let seen = State::seen(state);
        let [gain, offset] = self.norm.map(|weight| ops.parameter(weight));
        let key = ops.layer_norm(&self.key.apply(ops, x), Some(&gain), Some(&offset), 1e-6);
        let key = join(ops, &self.turned(ops, &split(ops, &key, 1), seen));
        let keys = grown(ops, state, 2, &rounded(ops, &key, self.rounding));
        let query = self.turned(ops, &self.query.heads(ops, asking, self.config.index_heads), seen);
        [query, self.importance.apply(ops, x), keys]
    }

    /// Index scores `[batch, time, tokens]`.
    fn score<O: Ops>(&self, ops: &O, [query, importance, keys]: [&O::Tensor; 3]) -> O::Tensor {
        let TokenSparseConfig { index_heads: heads, index_head: width, .. } = self.config;
        let (batch, time, tokens) = (ops.shape(query)[0], ops.shape(query)[1], ops.shape(keys)[1]);
        let query = ops.reshape(query, &[batch, time * heads, width]);
        let met = ops.relu(&ops.product(&query, false, keys, true));
        let scale = ((heads * width) as f64).powf(-0.5);
        let importance = ops.reshape(&ops.scale(importance, scale), &[batch, time, heads, 1]);
        let scores = ops.sum(&ops.mul(&ops.reshape(&met, &[batch, time, heads, tokens]), &importance), 2);
        ops.reshape(&scores, &[batch, time, tokens])
    }

    fn turned<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> O::Tensor {
        let Some(rotation) = &self.rotation else { return x.clone() };
        let (turned, width) = (self.config.turned(), self.config.index_head);
        let first = rotation.apply(ops, &ops.slice(x, 3, 0..turned), seen);
        ops.concat(&[first, ops.slice(x, 3, turned..width)], 3)
    }

    /// Zero where a token reads another, and very low elsewhere: `[batch, 1, time, tokens]`.
    fn mask<O: Ops>(&self, ops: &O, scores: &O::Tensor) -> O::Tensor {
        let [batch, time, tokens] = ops.shape(scores)[..] else { unreachable!("scores have three axes") };
        let values = ops.values(scores);
        let mut mask = vec![O::Scalar::from_f64(MASKED); values.len()];
        for (row, cells) in mask.chunks_exact_mut(tokens).enumerate() {
            let visible = row % time + tokens - time + 1;
            for place in highest(&values[row * tokens..][..visible], self.config.top) {
                cells[place] = O::Scalar::ZERO;
            }
        }
        ops.constant(&[batch, 1, time, tokens], &mask)
    }
}

impl TokenMixer for TokenSparse {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (kept, mut next) = self.latent.append_to_cache(ops, x, state);
        let asking = self.latent.query_input(ops, x);
        let index = self.index(ops, x, &asking, state);
        next.tensors[2] = Some(index[2].clone());
        let [query, importance, keys] = index.map(|x| ops.detach(&x));
        let seen = State::seen(state);
        let ready = self.latent.expand(ops, self.latent.project_query(ops, &asking, seen), &kept);
        // Scores and masks are as long as the text, for each token: a few tokens at a time.
        let parts: Vec<O::Tensor> = (0..ops.shape(x)[1])
            .step_by(self.chunk)
            .map(|start| {
                let end = ops.shape(x)[1].min(start + self.chunk);
                let [query, importance, asked] =
                    [&query, &importance, &ready.query].map(|x| ops.slice(x, 1, start..end));
                let [keys, key, value] = [&keys, &ready.key, &ready.value].map(|x| ops.slice(x, 1, 0..seen + end));
                let mask = self.mask(ops, &self.score(ops, [&query, &importance, &keys]));
                self.latent.attend(ops, [&asked, &key, &value], Some(&mask))
            })
            .collect();
        (self.latent.project_output(ops, &ops.concat(&parts, 1), ready.absorbed), next)
    }

    fn own_loss<O: Ops>(&self, ops: &O, x: impl FnOnce() -> O::Tensor) -> Option<O::Tensor> {
        let x = ops.detach(&x());
        let asking = ops.detach(&self.latent.query_input(ops, &x));
        let index = self.index(ops, &x, &asking, None);
        let scores = self.score(ops, index.each_ref());
        let mask = self.mask(ops, &scores);
        let [batch, time, tokens] = ops.shape(&scores)[..] else { unreachable!("scores have three axes") };
        let weights = ops.detach(&self.latent.weights(ops, &x, &mask));
        let target = ops.reshape(&ops.mean(&weights, 1), &[batch, time, tokens]);
        // The logarithm of the softmax of the scores over the chosen tokens; of others the target is zero.
        let scores = ops.add(&scores, &ops.reshape(&mask, &[batch, time, tokens]));
        let scores = ops.sub(&scores, &ops.max(&scores, 2));
        let found = ops.sub(&scores, &ops.log(&ops.sum(&ops.exp(&scores), 2)));
        let wanted = ops.log(&ops.affine(&target, 1.0, 1e-30));
        let apart = ops.sum_all(&ops.mul(&target, &ops.sub(&wanted, &found)));
        Some(ops.scale(&apart, 1.0 / (batch * time) as f64))
    }
}
