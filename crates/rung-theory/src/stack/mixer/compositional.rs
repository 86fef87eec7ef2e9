//! Compositional attention: searches and retrievals chosen independently.
//!
//! Ordinary heads bind one way of searching to one thing retrieved. Here S searches and R retrievals are all paired, and
//! each token picks, per search, which retrieval it keeps.
//!
//! # Recurrence
//! `A_i = softmax(Q_i K_i^T / sqrt(d))` for search i, `Ret_ij = A_i (X W_Vj)` for all pairs,
//! `c_ij(t) = softmax_j(q_i(t) . W Ret_ij(t) / sqrt(d))`, output `W_o concat_i sum_j c_ij Ret_ij`. Causal by masking the A_i.
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
//! A second implementation after the authors' code for contextual retrieval, where the queries of both softmaxes are divided
//! by the root of the search's width, as here. Two differences. Their code for SCAN scores a retrieval by default with a
//! linear layer on query and retrieval side by side; here the score is always the product of both. In their retrieval task a
//! token does not see itself; here it does, as in a causal language model.
//!
//! # Source
//! Mittal et al. 2022 (2110.09419).

use super::{Facts, Message, MixerKind, Reach, Work, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "compositional",
    aliases: &[],
    fields: &[
        size("searches", "searches", |n| n.defaults.heads),
        size("retrievals", "retrievals", |n| n.defaults.heads),
        size("head", "width of a search", |n| n.defaults.head_dim),
        size("value", "width of a retrieval", |n| n.get("head")),
    ],
    facts: |n| {
        let (searches, retrievals, head, value) =
            (n.wide("searches"), n.wide("retrievals"), n.wide("head"), n.wide("value"));
        let parameters =
            n.width() * (2 * searches * head + retrievals * value + searches * (head + value)) + value * head;
        let seen = 2 * searches * (head + retrievals * value);
        Facts {
            // One accumulator per pair: every search carries all retrievals.
            reach: Reach::Full(Message { heads: searches, value: retrievals * value, selection: None }),
            growing: searches * head + retrievals * value,
            parameters,
            work: Work { token: 2 * parameters, seen, limit: None },
            ..Facts::NOTHING
        }
    },
};
