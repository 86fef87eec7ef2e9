//! Gated recurrence: a few channels of low precision, updated by a gate.
//!
//! The smallest layer that forwards a value to the next token. With `bits=2` its 8 channels are a state of 16 bits: too few for a
//! table, enough for one value.
//!
//! # Recurrence
//! `g_t = sigmoid(w_g x_t + b_g)`, `h_t = round((1 - g_t) h_{t-1} + g_t tanh(W_v x_t))`, `o_t = sigmoid(w_r x_t + b_r)
//! W_o h_{t-1}`: a token reads the state of the tokens before it, then writes. Each channel has `2^bits` evenly spaced
//! levels from -1 to 1. The gate is initialised so that most of a token is written (`b_g = 1`).
//!
//! # Parallel form
//! None: rounding after every token requires a loop over tokens; its gradient is straight-through.
//!
//! # State
//! `channels` elements of `bits` bits each. Up to 8 bits they are rounded; above, they are ordinary floats,
//! unless the model rounds all states.
//!
//! # Reduces to
//! A token shift of `channels` channels when every gate is 1.
//!
//! # Reference implementation
//! A second implementation as a loop over tokens: this form is not published.
//!
//! # Source
//! The recurrence of minGRU (Feng et al. 2024, 2410.01201), with one gate per token, a bounded candidate, a read
//! before the write and a rounded state.

use super::{Facts, Flops, ForwardingSizes, MixerKind, Reference, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "gated",
    options: &[size("channels", "channels of state", |_| 8)],
    facts: |options| {
        let (channels, width) = (options.size("channels"), options.width());
        // Input and output projections, and two gates.
        let parameters = 2 * width * channels + 2 * width;
        Facts {
            recurrent_state: channels,
            forwarded_bits: channels,
            parameters,
            flops: Flops { per_token: 2 * parameters + 3 * channels, ..Flops::default() },
            ..Facts::EMPTY
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("channels", bits)],
        table_rows_option: None,
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
