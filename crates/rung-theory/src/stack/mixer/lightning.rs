//! Lightning attention: linear attention with a fixed decay per head, as in large released models.
//!
//! RetNet's recurrence without the rotation, with square heads and an activation on q, k and v; the form MiniMax and the
//! Ling/Ring models use between full layers.
//!
//! # Recurrence
//! `S_t = exp(-s_h) S_{t-1} + k_t v_t^T`, `o_t = S_t^T q_t`, with SiLU on q, k and v; then a norm over all heads,
//! times the sigmoid of a gate. Head h of H, counted from 1, has `s_h = 2^(-8h/H) (1 - l/(L-1))` in layer l of L,
//! counted from 0: later layers forget more slowly, and the last hardly at all.
//!
//! # Parallel form
//! As RetNet: a decay mask inside a chunk, the state between chunks.
//!
//! # State
//! `heads * head * head` elements.
//!
//! # Reduces to
//! RetNet with `value = key`, without rotation and with other decays.
//!
//! # Reference implementation
//! `MiniMaxLightningAttention` of transformers, in the first and in a later layer: no difference. Ling and Ring, which
//! the audit reads as this mixer, add a rotation, norms of queries and keys, and a norm per group of heads; their
//! sizes are the same.
//!
//! # Source
//! Qin et al. 2024 (2401.04658); MiniMax-01 (2501.08313).

use super::{
    CacheLayout, Facts, ForwardingSizes, HEAD_DIM, MixerKind, Reference, STATE_HEADS, StateLayout, matrix_state,
    with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "lightning",
    aliases: &["lightning-attention"],
    options: &[STATE_HEADS, HEAD_DIM],
    facts: |options| {
        let (heads, head) = (options.size("heads"), options.size("head"));
        let core = with_weights(&matrix_state(heads, head, head, options.width()), options.width() * heads * head);
        let (state_heads, head_dim) = (options.integer("heads"), options.integer("head"));
        let layout = StateLayout {
            recurrent: state_heads.saturating_mul(head_dim * head_dim),
            heads: state_heads,
            ..StateLayout::default()
        };
        // One norm covers heads with different decays, so known weights use only the slowest head, with two channels per bit.
        Facts { forwarded_bits: head / 2, layout: Some(CacheLayout::State(layout)), ..core }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("head", 2 * bits)],
        table_rows_option: None,
    }),
    reference: Reference::Public { library: "transformers", class: "MiniMaxLightningAttention" },
    engines: &["sglang", "vllm"],
    ..MixerKind::DEFAULT
};
