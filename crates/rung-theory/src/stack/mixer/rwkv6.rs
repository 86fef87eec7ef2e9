//! RWKV-6: a gated recurrence read before it is written, with token shift.
//!
//! Every projection reads an input-dependent mixture of the token and its predecessor; a bonus term adds the current token, which
//! is not yet in the state.
//!
//! # Recurrence
//! With `d_t = x_{t-1} - x_t` and `m = tanh((x + d . mu_x) W_1) W_2` in five parts, the inputs of decay, key, value,
//! receptance and gate are `x + d . (mu_c + m_c)`. Then `o_t = (S_{t-1} + Diag(u) k_t v_t^T)^T r_t` and `S_t =
//! Diag(w_t) S_{t-1} + k_t v_t^T` with `w = exp(-exp(lambda + tanh(x_w A) B))` per channel; a norm with mean per head,
//! times SiLU of the gate.
//!
//! # Parallel form
//! Weight of s < t: `sum_c r_tc k_sc exp(G_{t-1,c} - G_{s,c})`; of s = t: `sum_c r_tc u_c k_tc`.
//!
//! # State
//! `heads * head * head` elements, and one vector of `width` for the token shift; with `channel=yes` one more, for the
//! shift of RWKV's own channel mixing.
//!
//! # Reduces to
//! GLA that reads the state of the step before, if u = 0; linear attention if u = 1 and w = 1.
//!
//! # Reference implementation
//! A second implementation after RWKV-LM's v6 model: no difference known in the mixer. Initial weights have
//! the same ranges, but a different order of channels.
//!
//! # Source
//! Peng et al. 2024 (2404.05892).

use super::{
    CHANNEL_SHIFT, ForwardingSizes, HEAD_DIM, MixerKind, Reference, STATE_HEADS, family, matrix_state, size,
    with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "rwkv6",
    aliases: &["finch"],
    options: &[
        STATE_HEADS,
        HEAD_DIM,
        size("mix-rank", "rank of the token shift's mixtures", |_| 32),
        size("decay-rank", "rank of the decay", |_| 64),
        CHANNEL_SHIFT,
    ],
    facts: |options| {
        let (heads, head, width) = (options.size("heads"), options.size("head"), options.width());
        let low_rank = 10 * width * options.size("mix-rank") + options.size("decay-rank") * (width + heads * head);
        let core = with_weights(&matrix_state(heads, head, head, width), width * heads * head + low_rank);
        family::rwkv(&core, options)
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("head", 2 * bits), ("mix-rank", 1), ("decay-rank", 1)],
        table_rows_option: Some("head"),
    }),
    reference: Reference::Reimplementation("the v6 model of RWKV-LM"),
    engines: &["llama.cpp"],
    ..MixerKind::DEFAULT
};
