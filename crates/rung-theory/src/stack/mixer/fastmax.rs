//! Fastmax: attention whose exponential is replaced by its Taylor polynomial of order one or two.
//!
//! A polynomial kernel is a dot product of features, so this is linear attention with the feature maps below.
//!
//! # Recurrence
//! With features `phi(x) = [1, x]` or `[1, x, vec(x x^T) / sqrt 2]` of unit queries and keys: `S_t = S_{t-1} +
//! phi(k_t) [v_t, 1]^T`; the output is `S_t^T phi(q_t)` without its last component, divided by that component.
//!
//! # Parallel form
//! `A_ts = f(q_t.k_s) / sum f`. Queries and keys are normalised per token: a mean or maximum over all tokens would leak the
//! future.
//!
//! # State
//! `heads * (1 + key + .. + key^order) * (value + 1)` elements.
//!
//! # Reduces to
//! Normalised linear attention with features `[1, x]` (order 1) or `[1, x, vec(xx^T)/sqrt 2]` (order 2).
//!
//! # Reference implementation
//! A second implementation from the definition. The published code has four normalisations of queries and keys; all
//! but one divide by the largest norm of all tokens, and two also subtract a mean, over the features of a token or
//! over all tokens. Statistics over all tokens leak the future into a causal model. Here every query and key is divided
//! by its norm, and no mean is subtracted.
//!
//! # Source
//! Gerami et al. 2024 (2402.07901).

use super::{
    Facts, Flops, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, MixerKind, MixerOption, OptionKind, Reference, STATE_HEADS,
    VALUE_HEAD_DIM, WeightPrecision, matrix_state,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "fastmax",
    aliases: &["fast", "based"],
    options: &[
        MixerOption {
            name: "order",
            help: "terms kept after the constant, 1 or 2",
            kind: OptionKind::Integer { min: 1, max: 2, default: |_| 2 },
        },
        STATE_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
    ],
    facts: |options| {
        let (heads, key_head_dim, value_head_dim) = (options.size("heads"), options.size("key"), options.size("value"));
        let features = if options.integer("order") == 1 {
            1 + key_head_dim
        } else {
            1 + key_head_dim + key_head_dim * key_head_dim
        };
        let core = matrix_state(heads, key_head_dim, value_head_dim, options.width());
        let recurrent_state = heads * features * (value_head_dim + 1);
        Facts {
            recurrent_state,
            flops: Flops { per_token: 2 * core.parameters + 4 * recurrent_state, ..core.flops },
            // The quadratic term is never negative, so no key can get weight 0.
            forwarded_bits: if options.integer("order") == 1 { heads * value_head_dim } else { 0 },
            // The normaliser counts the tokens, which needs one bit per doubling of the prompt.
            precision: WeightPrecision { base_bits: 2, bits_per_doubling: 1 },
            ..core
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("order", 1), ("heads", 1), ("key", 1), ("value", bits)],
        table_rows_option: None,
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
