//! InLine attention: linear attention normalised by subtraction, which keeps it injective.
//!
//! Dividing by the sum of weights forgets the length of the query; subtracting the mean does not. A local term over the
//! last few values makes up for the sharpness that linear attention lacks.
//!
//! # Recurrence
//! With prefix sums of `phi(k) v^T`, `phi(k)`, v and a count c: `o = phi(q)^T S / c + (1 - phi(q).z / c) mean(v)`, plus a short
//! convolution of the values.
//!
//! # Parallel form
//! `w_ts = phi(q_t).phi(k_s)/c - mean_s phi(q_t).phi(k_s)/c + 1/c`; rows sum to one, entries may be negative.
//!
//! # State
//! `heads * (key * value + key + value) + 1` numbers, and `local - 1` values per channel. The causal form is ours; the paper's
//! is for whole images.
//!
//! # Reduces to
//! Not to linear attention: scaling a query changes an InLine row and leaves a normalised linear row as it was.
//!
//! # Source
//! Han et al. 2024 (2412.06590).

use super::{Facts, HEAD, KEY, MixerKind, STATE_HEADS, VALUE, matrix_state, size, with_convolution};

pub(super) static KIND: MixerKind = MixerKind {
    name: "inline",
    aliases: &["injective-linear"],
    fields: &[STATE_HEADS, HEAD, KEY, VALUE, size("local", "taps of the local term", |_| 3)],
    facts: |n| {
        let (heads, key, value) = (n.wide("heads"), n.wide("key"), n.wide("value"));
        let core = matrix_state(heads, key, value, n.width(), false);
        let core = Facts { state: heads * (key * value + key + value) + 1, carries: 0, ..core };
        with_convolution(&core, heads * value, n.wide("local"))
    },
};
