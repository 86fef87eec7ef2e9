//! InLine attention: linear attention normalised by subtraction, which keeps it injective.
//!
//! Dividing by the sum of weights makes the output independent of the length of the query; subtracting the mean does not. A local
//! term over the last few values adds the sharp local attention that linear attention cannot express.
//!
//! # Recurrence
//! With sums `S = sum k v^T`, `z = sum k` and the mean of v over the n tokens so far, and q divided by the root of its
//! width: `o = S^T q / n + (1 - q.z / n) mean(v)`, plus `sum_j r_tj . v_{t-j}` over the last `local` values. The taps
//! `r_t` depend on the token: for each head `W_2 GELU(W_1 x_t + b_1) + b_2` of the head's channels of the token, with a hidden
//! layer as wide as the head.
//!
//! # Parallel form
//! `w_ts = (q_t.k_s - mean_s q_t.k_s + 1) / n`; rows sum to one, entries may be negative.
//!
//! # State
//! `heads * (key * value + key + value)` elements, and `local - 1` values per channel; the number of tokens
//! so far is the position, which all mixers have. The causal form is ours; the paper's is for images.
//!
//! # Reduces to
//! Not to linear attention: scaling a query changes an InLine row but not a row of normalised linear attention.
//!
//! # Reference implementation
//! A second implementation after the authors' code for DeiT: no difference known in the network that makes the taps
//! (for each head by itself, with biases), nor in the two sums. The authors' local term is a 3 x 3 neighbourhood in an
//! image, without its class token; here it is the last `local` tokens, and in a bidirectional model those around a
//! token.
//!
//! # Source
//! Han et al. 2024 (2412.06590).

use super::{
    Facts, HEAD_DIM, KEY_HEAD_DIM, MixerKind, Reference, STATE_HEADS, VALUE_HEAD_DIM, matrix_state, size, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "inline",
    aliases: &["injective-linear"],
    options: &[STATE_HEADS, HEAD_DIM, KEY_HEAD_DIM, VALUE_HEAD_DIM, size("local", "taps of the local term", |_| 3)],
    facts: |options| {
        let (heads, key_head_dim, value_head_dim) = (options.size("heads"), options.size("key"), options.size("value"));
        let core = matrix_state(heads, key_head_dim, value_head_dim, options.width());
        // The hidden layer that computes the taps is as wide as a head.
        let core =
            with_weights(&core, value_head_dim * (options.width() + options.size("local") * heads * value_head_dim));
        Facts {
            recurrent_state: heads * (key_head_dim * value_head_dim + key_head_dim + value_head_dim),
            conv_state: heads * value_head_dim * (options.size("local") - 1),
            ..core
        }
    },
    reference: Reference::Reimplementation("the authors' code for DeiT"),
    ..MixerKind::DEFAULT
};
