//! InLine attention: linear attention normalised by subtraction, which keeps it injective.
//!
//! Dividing by the sum of weights forgets the length of the query; subtracting the mean does not. A local term over the
//! last few values makes up for the sharpness that linear attention lacks.
//!
//! # Recurrence
//! With sums `S = sum k v^T`, `z = sum k` and the mean of v over the n tokens so far, and q divided by the root of its
//! width: `o = S^T q / n + (1 - q.z / n) mean(v)`, plus `sum_j r_tj . v_{t-j}` over the last `local` values. The taps
//! `r_t` are the token's own: for each head `W_2 GELU(W_1 x_t + b_1) + b_2` of the head's share of the token's
//! channels, through as many numbers as the head is wide.
//!
//! # Parallel form
//! `w_ts = (q_t.k_s - mean_s q_t.k_s + 1) / n`; rows sum to one, entries may be negative.
//!
//! # State
//! `heads * (key * value + key + value)` numbers, and `local - 1` values per channel; how many tokens there were is
//! the clock that all mixers share. The causal form is ours; the paper's is for whole images.
//!
//! # Reduces to
//! Not to linear attention: scaling a query changes an InLine row and leaves a normalised linear row as it was.
//!
//! # Held against
//! A second implementation after the authors' code for DeiT: no difference known in the network that makes the taps
//! (for each head by itself, with biases), nor in the two sums. The authors' local term is a 3 x 3 neighbourhood in an
//! image, without its class token; here it is the last `local` tokens, and in a bidirectional model those around a
//! token.
//!
//! # Source
//! Han et al. 2024 (2412.06590).

use super::{Facts, HEAD, KEY, MixerKind, Reference, STATE_HEADS, VALUE, matrix_state, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "inline",
    aliases: &["injective-linear"],
    options: &[STATE_HEADS, HEAD, KEY, VALUE, size("local", "taps of the local term", |_| 3)],
    facts: |n| {
        let (heads, key, value) = (n.size("heads"), n.size("key"), n.size("value"));
        let core = matrix_state(heads, key, value, n.width(), false);
        // The taps of a token go through as many numbers as a head is wide.
        let core = with_weights(&core, value * (n.width() + n.size("local") * heads * value));
        Facts {
            recurrent_state: heads * (key * value + key + value),
            conv_state: heads * value * (n.size("local") - 1),
            ..core
        }
    },
    reference: Reference::After("the authors' code for DeiT"),
    ..MixerKind::DEFAULT
};
