//! Multi-head latent attention: full attention over a compressed cache.
//!
//! Keys and values of all heads are computed from one latent vector per token, plus a small rotary key shared by the
//! heads. The cache is smaller than that of full attention; the messages are not.
//!
//! # Recurrence
//! `c_s = norm(W_c x_s)`; for each head `k_s = [W_k c_s; r_s]` and `v_s = W_v c_s`, with a key `r_s` that all heads
//! share, the only part with rotary embedding; then as full attention.
//!
//! # Parallel form
//! As full attention. In decoding `W_k` and `W_v` are absorbed into the query and the output, so that every head reads
//! the latents themselves.
//!
//! # State
//! None of fixed size: `latent + rope` elements per token.
//!
//! # Reduces to
//! Full attention with `heads` key/value heads whose joint projection has rank `latent`.
//!
//! # Reference implementation
//! `DeepseekV3Attention` of transformers, whose norms have an epsilon of 1e-6: no difference. DeepSeek's weights rotate
//! adjacent channels of the rotary key; here channel i rotates with channel i + rope/2, which is a permutation of
//! those weights.
//!
//! # Source
//! DeepSeek-V2 (2405.04434).

use super::{
    CacheLayout, CacheReach, Facts, Flops, HEAD_DIM, KeyValueLayout, MessageSize, MixerKind, MixerReach, QUERY_HEADS,
    Reference, VALUE_HEAD_DIM, count, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "mla",
    aliases: &["latent"],
    options: &[
        QUERY_HEADS,
        HEAD_DIM,
        size("latent", "width of the latent kept per token", |options| 4 * options.integer("head")),
        count("rope", "width of the shared rotary key", |options| options.integer("head") / 2),
        VALUE_HEAD_DIM,
        count("query-rank", "rank of the query projection, 0 for full rank", |_| 0),
    ],
    facts: |options| {
        let (heads, head_dim, rope, value_head_dim) =
            (options.size("heads"), options.size("head"), options.size("rope"), options.size("value"));
        let (latent, rank, width) = (options.size("latent"), options.size("query-rank"), options.width());
        let queries =
            if rank == 0 { width * heads * (head_dim + rope) } else { rank * (width + heads * (head_dim + rope)) };
        let parameters = queries
            + width * (latent + rope)
            + latent * heads * (head_dim + value_head_dim)
            + heads * value_head_dim * width;
        let key_head_dim = options.integer("latent") + options.integer("rope");
        let layout = KeyValueLayout {
            reach: CacheReach::All,
            kv_heads: 1,
            key_head_dim,
            value_head_dim: 0,
            latent: true,
            index_key_dim: 0,
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value_head_dim, selection: None }),
            cache_per_token: latent + rope,
            layout: Some(CacheLayout::KeyValues(layout)),
            parameters,
            // The norms of both latents.
            norm_and_bias_parameters: rank + latent,
            flops: Flops {
                per_token: 2 * parameters,
                per_attended: 2 * heads * (head_dim + rope + value_head_dim),
                max_attended: None,
            },
            ..Facts::EMPTY
        }
    },
    reference: Reference::Public { library: "transformers", class: "DeepseekV3Attention" },
    reads_every_token: true,
    ..MixerKind::DEFAULT
};
