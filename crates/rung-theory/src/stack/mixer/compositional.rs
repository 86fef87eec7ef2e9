//! Compositional attention: searches and retrievals chosen independently.
//!
//! Ordinary heads bind one way of searching to one thing retrieved. Here S searches and R retrievals are all paired, and
//! each token picks, per search, which retrieval it keeps.
//!
//! # Recurrence
//! Search i has weights `A_i = softmax(mask(Q_i K_i^T / sqrt(d)))`, retrieval j a value `V_j`, and every pair is read:
//! `R_ij = A_i V_j`. Each token then picks for each search among the retrievals, `c_ij = softmax_j(q_i.W R_ij /
//! sqrt(d))` with a query of its own and one W for all pairs; the output is that of `sum_j c_ij R_ij`, searches side
//! by side.
//!
//! # Parallel form
//! As written: `searches * retrievals` weighted sums, then a softmax over retrievals within each token.
//!
//! # State
//! None of fixed size: every search keeps its key and every retrieval its value for each token.
//!
//! # Reduces to
//! Multi-head attention when `c_ij = [i = j]`; attention with shared values when `retrievals = 1`.
//!
//! # Held against
//! A second implementation after the authors' code for contextual retrieval, where the queries of both softmaxes are
//! divided by the root of the search's width, as here. Two differences. Their code for SCAN scores a retrieval by
//! default with a linear layer on query and retrieval side by side; here the score is always the product of both. In
//! their retrieval task a token does not see itself; here it does, as in a causal language model.
//!
//! # Source
//! Mittal et al. 2022 (2110.09419).

use super::{Facts, Flops, MessageSize, MixerKind, MixerReach, Reference, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "compositional",
    options: &[
        size("searches", "searches", |n| n.defaults.heads),
        size("retrievals", "retrievals", |n| n.defaults.heads),
        size("head", "width of a search", |n| n.defaults.head_dim),
        size("value", "width of a retrieval", |n| n.integer("head")),
    ],
    facts: |n| {
        let (searches, retrievals, head, value) =
            (n.size("searches"), n.size("retrievals"), n.size("head"), n.size("value"));
        let parameters =
            n.width() * (2 * searches * head + retrievals * value + searches * (head + value)) + value * head;
        let per_attended = 2 * searches * (head + retrievals * value);
        Facts {
            // One accumulator per pair: every search carries all retrievals.
            reach: MixerReach::Full(MessageSize { heads: searches, value: retrievals * value, selection: None }),
            cache_per_token: searches * head + retrievals * value,
            parameters,
            flops: Flops { per_token: 2 * parameters, per_attended, max_attended: None },
            ..Facts::EMPTY
        }
    },
    reference: Reference::After("the authors' code for contextual retrieval"),
    ..MixerKind::DEFAULT
};
