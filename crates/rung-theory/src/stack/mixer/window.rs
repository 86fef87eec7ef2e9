//! Sliding-window attention: softmax over the last few tokens only.
//!
//! A window of fixed size is a bounded state, however it is computed: what left the window is gone. Attention sinks (the
//! first few tokens kept for ever) add their tokens to the state.
//!
//! # Recurrence
//! As full attention with s in `[t - size + 1, t]`: the current token counts as one of the window.
//!
//! # Parallel form
//! Banded softmax, `n * size` scores.
//!
//! # State
//! `size - 1 + sinks` tokens of `kv * (key + value)` numbers cross from one token to the next. Programs keep `size` of
//! them in a ring buffer, and that is what a cache is charged.
//!
//! # Reduces to
//! Full attention when `size` reaches the length of the text.
//!
//! # Held against
//! A second implementation from the definition, with the current token counted as part of the window. Implementations that
//! count it apart see one token more.
//!
//! # Source
//! Beltagy et al. 2020 (2004.05150); sinks: Xiao et al. 2023 (2309.17453).

use super::{
    Facts, HEAD, KEY, KV_HEADS, MixerKind, NO_YES, QUERY_HEADS, VALUE, Work, attention, choice, count, size,
    without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "window",
    aliases: &["swa", "sliding", "local"],
    fields: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("size", "tokens in the window, the current one included", |_| 1024),
        count("sinks", "first tokens that are always seen", |_| 0),
        choice("tied", "one vector serves as key and value", NO_YES),
    ],
    facts: |n| {
        let (attention, values) = (attention(n), n.wide("kv") * n.wide("value"));
        let (attention, apart) = match n.get("tied") {
            0 => (attention, values),
            _ => (without_weights(&attention, n.width() * values), 0),
        };
        Facts {
            window: n.wide("kv") * n.wide("key") + apart,
            window_tokens: n.wide("size") + n.wide("sinks"),
            // A window of one token hands nothing on.
            // Nor do weights exist for values that are keys.
            carries: if n.get("size") > 1 { apart } else { 0 },
            network: attention.network && (n.get("tied") == 0 || n.get("key") == n.get("value")),
            work: Work { limit: Some(n.wide("size") + n.wide("sinks")), ..attention.work },
            ..attention
        }
    },
};
