//! Fake-full attention: softmax, but only over what a bounded cache kept.
//!
//! The control for a question the hierarchy raises: is it the recurrence or the size of the state that costs a hop? It
//! reads like softmax and remembers like a recurrence. A token that was dropped can never be seen again; that is what
//! sets it apart from sparse attention, which picks from the whole past.
//!
//! # Recurrence
//! A cache policy gives index sets `C_t`, a subset of `C_{t-1}` and t, of at most `size` members, chosen from what is
//! cached. Output: softmax attention over `C_t`, with t itself only if it is kept.
//!
//! # Parallel form
//! Masked softmax, with the mask of the policy.
//!
//! # State
//! `size` tokens of `kv * (key + value)` numbers, and for `heavy` the attention mass of each. Policies: `last` keeps
//! the last tokens; `sinks` the first few (four, or half of them if that is less) and the last; `prefix` the first; `stride` every
//! so many-th, twice as many whenever the cache is full of them; `reservoir` a fair sample of all; `heavy` those that were read the
//! most, of which the one that was read the least makes room.
//!
//! # Reduces to
//! `window` for the policy `last`; full attention when `size` reaches the length of the text.
//!
//! # Held against
//! A second implementation from the definition: there is no public one.
//!
//! # Source
//! Ours; the policies are those of the cache-eviction literature.

use super::{Arrival, Facts, HEAD, KEY, KV_HEADS, MixerKind, QUERY_HEADS, VALUE, Work, attention, choice, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "fake",
    aliases: &["fake-full"],
    fields: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("size", "tokens kept", |n| (n.get("head") / 2).max(1)),
        choice("policy", "which tokens are kept", &["last", "sinks", "prefix", "stride", "reservoir", "heavy"]),
    ],
    facts: |n| {
        let tokens = n.wide("size");
        let mass = u128::from(n.get("policy") == 5);
        let sinks = if n.get("policy") == 1 { 4.min(tokens / 2) } else { 0 };
        // The last tokens are kept, the current one among them: the one before it is there if there is room for two.
        let recent = n.get("policy") < 2 && tokens - sinks > 1;
        Facts {
            carries: if recent { n.wide("kv") * n.wide("value") } else { 0 },
            arrival: match n.get("policy") {
                0 | 1 => Arrival::FirstTokens(sinks),
                2 => Arrival::FirstTokens(tokens),
                3 | 4 => Arrival::SomePositions,
                _ => Arrival::Unknown,
            },
            state: tokens * (n.wide("kv") * (n.wide("key") + n.wide("value")) + mass),
            work: Work { limit: Some(tokens), ..attention(n).work },
            ..attention(n)
        }
    },
};
