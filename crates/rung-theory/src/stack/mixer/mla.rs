//! Multi-head latent attention: full attention over a compressed cache.
//!
//! Keys and values of all heads are rebuilt from one latent vector per token, beside a small rotary key shared by the
//! heads. The cache shrinks; what a token can learn from the prefix in one layer does not.
//!
//! # Recurrence
//! As full attention, with `k_s = W_k c_s` (and the shared rotary part appended), `v_s = W_v c_s`, `c_s` the latent.
//!
//! # Parallel form
//! As full attention. In decoding `W_k` and `W_v` are absorbed into the query and the output, so that every head reads
//! the latents themselves.
//!
//! # State
//! None of fixed size: `latent + rope` numbers per token.
//!
//! # Reduces to
//! Full attention with `heads` key/value heads whose joint projection has rank `latent`.
//!
//! # Held against
//! `DeepseekV3Attention` of transformers, whose norms have an epsilon of 1e-6: no difference. DeepSeek's weights turn
//! neighbouring channels of the rotary key; here channel i turns with channel i + rope/2, which is a permutation of those
//! weights.
//!
//! # Source
//! DeepSeek-V2 (2405.04434).

use super::{Facts, HEAD, Message, MixerKind, QUERY_HEADS, Reach, VALUE, Work, count, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "mla",
    aliases: &["latent"],
    fields: &[
        QUERY_HEADS,
        HEAD,
        size("latent", "width of the latent kept per token", |n| 4 * n.get("head")),
        count("rope", "width of the shared rotary key", |n| n.get("head") / 2),
        VALUE,
        count("query-rank", "rank of the query projection, 0 for full rank", |_| 0),
    ],
    facts: |n| {
        let (heads, head, rope, value) = (n.wide("heads"), n.wide("head"), n.wide("rope"), n.wide("value"));
        let (latent, rank, width) = (n.wide("latent"), n.wide("query-rank"), n.width());
        let queries = if rank == 0 { width * heads * (head + rope) } else { rank * (width + heads * (head + rope)) };
        let parameters = queries + width * (latent + rope) + latent * heads * (head + value) + heads * value * width;
        Facts {
            reach: Reach::Full(Message { heads, value, selection: None }),
            growing: latent + rope,
            parameters,
            work: Work { token: 2 * parameters, seen: 2 * heads * (head + rope + value), limit: None },
            ..Facts::NOTHING
        }
    },
};
