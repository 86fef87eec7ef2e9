//! Evicting attention: softmax over a cache of bounded size.
//!
//! A control experiment: does a recurrent layer cost a hop because it is a recurrence, or because its state is bounded? This layer
//! reads like softmax attention, but its memory is bounded. An evicted token can never be read again; sparse attention, in
//! contrast, selects from all earlier tokens.
//!
//! # Recurrence
//! A cache policy gives index sets `C_t`, subsets of `C_{t-1}` and t with at most `size` members. Output: softmax attention over
//! `C_t`, with t itself only if it is cached. For `heavy` every cached token has the sum of all attention weights it received from
//! any head so far, and the one with the smallest sum is evicted.
//!
//! # Parallel form
//! Masked softmax, with the mask of the policy.
//!
//! # State
//! `size` tokens of `kv * (key + value)` elements, and for `heavy` the attention mass of each. Policies: `last` keeps
//! the last tokens; `sinks` the first few (four, or half of `size` if that is less) and the last; `prefix` the first;
//! `stride` tokens at a fixed distance, which doubles whenever the cache is full; `reservoir` a uniform sample of all;
//! `heavy` those with the largest attention mass.
//!
//! # Reduces to
//! `window` for the policy `last`; full attention if `size` is at least the context length.
//!
//! # Reference implementation
//! A second implementation from the definition: there is no public one.
//!
//! # Source
//! Ours; reservoir sampling: Vitter 1985; heavy hitters: Zhang et al. 2023 (2306.14048).

use super::{
    Facts, Flops, Forwarding, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, KV_HEADS, MixerKind, QUERY_HEADS, Reference,
    VALUE_HEAD_DIM, attention, choice, choices, size,
};

choices! {
    /// Which tokens stay in a cache of bounded size.
    pub enum EvictionPolicy {
        /// The last tokens.
        Last = "last",
        /// The first four tokens, and the last.
        Sinks = "sinks",
        /// The first tokens only.
        Prefix = "prefix",
        /// Tokens at a fixed distance, which doubles when the cache is full.
        Stride = "stride",
        /// A uniform sample of all tokens so far.
        Reservoir = "reservoir",
        /// The tokens with the largest attention mass.
        HeavyHitters = "heavy",
    }
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "evicting",
    aliases: &["fake", "fake-full"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        size("size", "tokens kept", |options| (options.integer("head") / 2).max(1)),
        choice("policy", "which tokens are kept", EvictionPolicy::NAMES),
    ],
    facts: |options| {
        let (tokens, policy) = (options.size("size"), options.choice("policy"));
        // The attention mass of each token is stored with it.
        let mass = u128::from(policy == EvictionPolicy::HeavyHitters);
        let sinks = if policy == EvictionPolicy::Sinks { 4.min(tokens / 2) } else { 0 };
        // The last tokens include the current one: the previous one is cached if there is space for two.
        let keeps_previous = matches!(policy, EvictionPolicy::Last | EvictionPolicy::Sinks) && tokens - sinks > 1;
        Facts {
            forwarded_bits: if keeps_previous { options.size("kv") * options.size("value") } else { 0 },
            partial_forwarding: match policy {
                EvictionPolicy::Last | EvictionPolicy::Sinks => Forwarding::FirstTokens(sinks),
                EvictionPolicy::Prefix => Forwarding::FirstTokens(tokens),
                EvictionPolicy::Stride | EvictionPolicy::Reservoir => Forwarding::SomePositions,
                EvictionPolicy::HeavyHitters => Forwarding::Unknown,
            },
            recurrent_state: tokens * (options.size("kv") * (options.size("key") + options.size("value")) + mass),
            flops: Flops { max_attended: Some(tokens), ..attention(options).flops },
            ..attention(options)
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        table_rows_option: None,
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
