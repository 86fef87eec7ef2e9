//! Evicting attention: softmax, but only over what a bounded cache kept.
//!
//! The control for a question the hierarchy raises: is it the recurrence or the size of the state that costs a hop? It
//! reads like softmax and remembers like a recurrence. A token that was dropped can never be seen again; that is what
//! sets it apart from sparse attention, which picks from the whole past.
//!
//! # Recurrence
//! A cache policy gives index sets `C_t`, a subset of `C_{t-1}` and t, of at most `size` members, chosen from what is
//! cached. Output: softmax attention over `C_t`, with t itself only if it is kept. For `heavy` every cached token has
//! the sum of all weights it got from any head so far, and the one with the least makes room.
//!
//! # Parallel form
//! Masked softmax, with the mask of the policy.
//!
//! # State
//! `size` tokens of `kv * (key + value)` numbers, and for `heavy` the attention mass of each. Policies: `last` keeps
//! the last tokens; `sinks` the first few (four, or half of them if that is less) and the last; `prefix` the first;
//! `stride` every so many-th, twice as many whenever the cache is full of them; `reservoir` a fair sample of all;
//! `heavy` those that were read the most, of which the one that was read the least makes room.
//!
//! # Reduces to
//! `window` for the policy `last`; full attention when `size` reaches the context length.
//!
//! # Held against
//! A second implementation from the definition: there is no public one.
//!
//! # Source
//! Ours; a sample of a stream: Vitter 1985; heavy hitters: Zhang et al. 2023 (2306.14048).

use super::{
    CarrySizes, Facts, Flops, Forwarding, HEAD, KEY, KV_HEADS, MixerKind, QUERY_HEADS, Reference, VALUE, attention,
    choice, choices, size,
};

choices! {
    /// Which tokens stay in a cache of fixed size.
    pub enum EvictionPolicy {
        /// The last.
        Last = "last",
        /// The first four, and the last.
        Sinks = "sinks",
        /// The first, and nothing else.
        Prefix = "prefix",
        /// Every so many-th; the distance doubles when the cache is full.
        Stride = "stride",
        /// A fair sample of all tokens so far.
        Reservoir = "reservoir",
        /// Those that attention read most.
        HeavyHitters = "heavy",
    }
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "evicting",
    aliases: &["fake", "fake-full"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("size", "tokens kept", |n| (n.integer("head") / 2).max(1)),
        choice("policy", "which tokens are kept", EvictionPolicy::NAMES),
    ],
    facts: |n| {
        let (tokens, policy) = (n.size("size"), n.choice("policy"));
        // How much each token was read is kept beside it.
        let mass = u128::from(policy == EvictionPolicy::HeavyHitters);
        let sinks = if policy == EvictionPolicy::Sinks { 4.min(tokens / 2) } else { 0 };
        // The last tokens are kept, the current one among them: the one before it is there if there is room for two.
        let recent = matches!(policy, EvictionPolicy::Last | EvictionPolicy::Sinks) && tokens - sinks > 1;
        Facts {
            carried_bits: if recent { n.size("kv") * n.size("value") } else { 0 },
            partial_forwarding: match policy {
                EvictionPolicy::Last | EvictionPolicy::Sinks => Forwarding::FirstTokens(sinks),
                EvictionPolicy::Prefix => Forwarding::FirstTokens(tokens),
                EvictionPolicy::Stride | EvictionPolicy::Reservoir => Forwarding::SomePositions,
                EvictionPolicy::HeavyHitters => Forwarding::Unknown,
            },
            recurrent_state: tokens * (n.size("kv") * (n.size("key") + n.size("value")) + mass),
            flops: Flops { max_attended: Some(tokens), ..attention(n).flops },
            ..attention(n)
        }
    },
    carry: Some(CarrySizes {
        smallest: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        slots: None,
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
