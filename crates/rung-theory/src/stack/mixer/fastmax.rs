//! Fastmax: softmax with its exponential cut after one or two terms.
//!
//! A polynomial kernel factorises exactly, so attention with it is a sum over the past, like linear attention with more
//! features.
//!
//! # Recurrence
//! Kernel `f(x) = sum_{l<=p} x^l / l!`; prefix sums of v, of k and k v^T, and for order 2 of `vec(kk^T)` and `vec(kk^T) v^T`; the
//! output is the ratio of the same form with v and with 1.
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
//! A second implementation from the definition. The published code has four ways to normalise queries and keys; all but one
//! divide by the largest norm of all tokens, and two also subtract a mean, over the features of a token or over all tokens.
//! What looks at all tokens leaks the future into a causal model. Here every query and key is divided by its own norm, and no
//! mean is subtracted, not even the causal one over the features of a token.
//!
//! # Source
//! Gerami et al. 2024 (2402.07901).

use super::{Facts, Field, HEAD, KEY, MixerKind, Precision, STATE_HEADS, VALUE, Work, matrix_state};

pub(super) static KIND: MixerKind = MixerKind {
    name: "fastmax",
    aliases: &["fast", "based"],
    fields: &[
        Field {
            name: "order",
            help: "terms kept after the constant, 1 or 2",
            choices: &[],
            least: 1,
            most: 2,
            default: |_| 2,
        },
        STATE_HEADS,
        HEAD,
        KEY,
        VALUE,
    ],
    facts: |n| {
        let (heads, key, value) = (n.wide("heads"), n.wide("key"), n.wide("value"));
        let features = if n.get("order") == 1 { 1 + key } else { 1 + key + key * key };
        let core = matrix_state(heads, key, value, n.width(), false);
        let state = heads * features * (value + 1);
        // A second term is never negative, so that every key keeps some weight.
        let carries = if n.get("order") == 1 { heads * value } else { 0 };
        // Its normaliser counts the tokens.
        let precision = Precision { least: 2, per_doubling: 1 };
        Facts { state, work: Work { token: 2 * core.parameters + 4 * state, ..core.work }, carries, precision, ..core }
    },
};
