//! Gated recurrence: a few channels of few bits, of which each token replaces a share.
//!
//! The smallest layer that hands a value to the next token. With `bits=2` its 8 channels are a state of 16 bits: too few for a table,
//! enough for the name of one argument.
//!
//! # Recurrence
//! `g_t = sigmoid(w_g x_t + b_g)`, `h_t = round((1 - g_t) h_{t-1} + g_t tanh(W_v x_t))`, `o_t = sigmoid(w_r x_t + b_r)
//! W_o h_{t-1}`: a token reads what the tokens before it left, then writes. Each channel has `2^bits` evenly spaced
//! levels from -1 to 1. Weights start so that most of a token is written (`b_g = 1`).
//!
//! # Parallel form
//! None: rounding after every token leaves a loop over tokens, whose gradient takes the rounding as the identity.
//!
//! # State
//! `channels` numbers of `bits` bits each. Up to 8 bits they are rounded; above, they are the machine's own numbers,
//! unless the model keeps all states in fewer.
//!
//! # Reduces to
//! A token shift of `channels` channels when every gate is 1.
//!
//! # Held against
//! A loop over tokens of our own: this form is not published.
//!
//! # Source
//! The recurrence of minGRU (Feng et al. 2024, 2410.01201), with one gate per token, a bounded candidate, a read
//! before the write and a rounded state.

use super::{CarrySizes, Facts, Flops, MixerKind, Reference, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "gated",
    options: &[size("channels", "channels of state", |_| 8)],
    facts: |n| {
        let (channels, width) = (n.size("channels"), n.width());
        // Into the state and out of it, and two gates.
        let parameters = 2 * width * channels + 2 * width;
        Facts {
            recurrent_state: channels,
            carried_bits: channels,
            parameters,
            flops: Flops { per_token: 2 * parameters + 3 * channels, ..Flops::default() },
            ..Facts::EMPTY
        }
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("channels", bits)], slots: None }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
