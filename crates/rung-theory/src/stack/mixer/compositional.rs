//! Compositional attention: attention patterns (searches) and values (retrievals) are combined freely.
//!
//! An ordinary head has one attention pattern and one value projection. Here each of S searches is paired with each of R
//! retrievals, and each token selects, per search, which retrieval to use.
//!
//! # Recurrence
//! Search i has weights `A_i = softmax(mask(Q_i K_i^T / sqrt(d)))`, retrieval j a value `V_j`, and every pair is
//! computed: `R_ij = A_i V_j`. Each token then weights the retrievals for each search, `c_ij = softmax_j(q_i.W R_ij /
//! sqrt(d))` with a second query and one W for all pairs; the output projection reads `sum_j c_ij R_ij`, concatenated over the
//! searches.
//!
//! # Parallel form
//! As written: `searches * retrievals` weighted sums, then a softmax over retrievals within each token.
//!
//! # State
//! None of fixed size: the cache holds a key per search and a value per retrieval for each token.
//!
//! # Reduces to
//! Multi-head attention when `c_ij = [i = j]`; attention with shared values when `retrievals = 1`.
//!
//! # Reference implementation
//! A second implementation after the authors' code for contextual retrieval, where the queries of both softmaxes are
//! divided by the root of the search's width, as here. Two differences. Their code for SCAN scores a retrieval by
//! default with a linear layer on the concatenated query and retrieval; here the score is always their dot product. In
//! their retrieval task a token does not see itself; here it does, as in a causal language model.
//!
//! # Source
//! Mittal et al. 2022 (2110.09419).

use super::{Facts, Flops, MessageSize, MixerKind, MixerReach, Reference, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "compositional",
    options: &[
        size("searches", "searches", |options| options.defaults.heads),
        size("retrievals", "retrievals", |options| options.defaults.heads),
        size("head", "width of a search", |options| options.defaults.head_dim),
        size("value", "width of a retrieval", |options| options.integer("head")),
    ],
    facts: |options| {
        let (searches, retrievals, head_dim, value_head_dim) =
            (options.size("searches"), options.size("retrievals"), options.size("head"), options.size("value"));
        let parameters = options.width()
            * (2 * searches * head_dim + retrievals * value_head_dim + searches * (head_dim + value_head_dim))
            + value_head_dim * head_dim;
        let per_attended = 2 * searches * (head_dim + retrievals * value_head_dim);
        Facts {
            // One accumulator per pair: every search sums all retrievals.
            reach: MixerReach::Full(MessageSize {
                heads: searches,
                value_head_dim: retrievals * value_head_dim,
                selection: None,
            }),
            cache_per_token: searches * head_dim + retrievals * value_head_dim,
            parameters,
            flops: Flops { per_token: 2 * parameters, per_attended, max_attended: None },
            ..Facts::EMPTY
        }
    },
    reference: Reference::Reimplementation("the authors' code for contextual retrieval"),
    ..MixerKind::DEFAULT
};
