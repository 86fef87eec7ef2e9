//! Fastmax: softmax with its exponential cut after one or two terms.
//!
//! A polynomial kernel factorises exactly, so attention with it is a sum over the past, like linear attention with more
//! features.
//!
//! # Recurrence
//! With features `phi(x) = [1, x]` or `[1, x, vec(x x^T) / sqrt 2]` of unit queries and keys: `S_t = S_{t-1} +
//! phi(k_t) [v_t, 1]^T`; the output is `S_t^T phi(q_t)` without its last number, divided by that number.
//!
//! # Parallel form
//! `A_ts = f(q_t.k_s) / sum f`. Normalise q and k per token: a mean or maximum over all tokens leaks the future.
//!
//! # State
//! `heads * (1 + key + .. + key^order) * (value + 1)` numbers.
//!
//! # Reduces to
//! Normalised linear attention with features `[1, x]` (order 1) or `[1, x, vec(xx^T)/sqrt 2]` (order 2).
//!
//! # Held against
//! A second implementation from the definition. The published code has four ways to normalise queries and keys; all
//! but one divide by the largest norm of all tokens, and two also subtract a mean, over the features of a token or
//! over all tokens. What looks at all tokens leaks the future into a causal model. Here every query and key is divided
//! by its own norm, and no mean is subtracted, not even the causal one over the features of a token.
//!
//! # Source
//! Gerami et al. 2024 (2402.07901).

use super::{
    CarrySizes, Facts, Flops, HEAD, KEY, MixerKind, MixerOption, OptionKind, Reference, STATE_HEADS, VALUE,
    WeightPrecision, matrix_state,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "fastmax",
    aliases: &["fast", "based"],
    options: &[
        MixerOption {
            name: "order",
            help: "terms kept after the constant, 1 or 2",
            kind: OptionKind::Integer { least: 1, most: 2, default: |_| 2 },
        },
        STATE_HEADS,
        HEAD,
        KEY,
        VALUE,
    ],
    facts: |n| {
        let (heads, key, value) = (n.size("heads"), n.size("key"), n.size("value"));
        let features = if n.integer("order") == 1 { 1 + key } else { 1 + key + key * key };
        let core = matrix_state(heads, key, value, n.width(), false);
        let recurrent_state = heads * features * (value + 1);
        Facts {
            recurrent_state,
            flops: Flops { per_token: 2 * core.parameters + 4 * recurrent_state, ..core.flops },
            // A second term is never negative, so that every key keeps some weight.
            carried_bits: if n.integer("order") == 1 { heads * value } else { 0 },
            // Its normaliser counts the tokens.
            precision: WeightPrecision { least: 2, per_doubling: 1 },
            ..core
        }
    },
    carry: Some(CarrySizes {
        smallest: |bits| vec![("order", 1), ("heads", 1), ("key", 1), ("value", bits)],
        slots: None,
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
