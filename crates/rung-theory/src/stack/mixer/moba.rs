//! MoBA: each query head attends to the few blocks whose mean key it likes best.
//!
//! Every token is kept, so the cache grows as for full attention; only the reading is sparse. In the bounds it is a full
//! layer with a different message, and in the block-sparse bound the mean key is the summary that must not collide.
//!
//! # Recurrence
//! Score of a block `q_t . mean(k in block)`, or with `summary=minmax` the most that `q_t . k` could be for keys between the
//! block's smallest and largest number in every channel; take the best `top` blocks, the current one always among them; softmax attention
//! over their tokens.
//!
//! # Parallel form
//! Full attention with a mask per head.
//!
//! # State
//! None of fixed size: `kv * (key + value)` numbers per token; the block means are derived from them. Where an indexer
//! scores a block by its best token, `index` more numbers are kept per token, and the block's summary is all of them.
//!
//! # Reduces to
//! Full attention when `top` reaches the number of blocks; block-diagonal attention when `top = 1`.
//!
//! # Held against
//! A second implementation after the authors' naive form: no difference known with `summary=mean`. Of equally good blocks the
//! earlier is taken.
//!
//! # Source
//! Lu et al. 2025 (2502.13189); smallest and largest keys: Tang et al. 2024 (2406.10774).

use super::{
    Facts, HEAD, KEY, KV_HEADS, Message, MixerKind, QUERY_HEADS, Reach, Selection, VALUE, Work, attention, choice,
    count, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "moba",
    aliases: &["block-sparse"],
    fields: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("block", "tokens in a block", |_| 256),
        size("top", "blocks attended to, the current one included", |_| 4),
        size("groups", "groups of heads that choose together", |n| n.get("heads")),
        count("index", "width of a separate index key, 0 to score by mean keys", |_| 0),
        choice("summary", "what is kept in mind of a block's keys", &["mean", "minmax"]),
    ],
    facts: |n| {
        let (heads, kv, key, value) = (n.wide("heads"), n.wide("kv"), n.wide("key"), n.wide("value"));
        let (block, top, index) = (n.wide("block"), n.wide("top"), n.wide("index"));
        let selection = Selection {
            groups: n.wide("groups"),
            picked: top - 1,
            block,
            cached: key + value,
            compressed: false,
            summary: if index == 0 { (1 + n.wide("summary")) * kv * key } else { block * index },
        };
        Facts {
            reach: Reach::Full(Message { heads, value, selection: Some(selection) }),
            network: attention(n).network && heads.is_multiple_of(n.wide("groups")) && index == 0,
            growing: kv * (key + value) + index,
            work: Work { limit: Some(top * block), ..attention(n).work },
            ..attention(n)
        }
    },
};
