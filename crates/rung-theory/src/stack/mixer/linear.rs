//! Linear attention: softmax's exponential replaced by a feature map, so that the past is one sum.
//!
//! The prefix is seen only through a matrix per head (and, with the normaliser, a vector): a state of fixed size,
//! whatever the length of the text.
//!
//! # Recurrence
//! `S_t = S_{t-1} + phi(k_t) v_t^T`, `z_t = z_{t-1} + phi(k_t)`, `o_t = S_t^T phi(q_t) / (phi(q_t).z_t)`; phi is elu+1,
//! relu or the identity. Without the normaliser z and the division go.
//!
//! # Parallel form
//! `O = tril(phi(Q) phi(K)^T) V`, rows divided by their sums if normalised; in chunks, the state between and this inside.
//!
//! # State
//! `heads * key * value` numbers, and `heads * key` more with the normaliser.
//!
//! # Reduces to
//! RetNet with decay 1 and no rotation, GLA with open gates, Fastmax of order 1 with the map `[1, x]`.
//!
//! # Held against
//! A second implementation from the definition. `idiap/fast-transformers` adds the same epsilon of 1e-6 to the normaliser,
//! where `fla` adds 1e-10. Without a normaliser it is `fla`'s layer: queries scaled, a norm per head.
//!
//! # Source
//! Katharopoulos et al. 2020 (2006.16236).

use super::{Facts, HEAD, KEY, MixerKind, STATE_HEADS, VALUE, YES_NO, choice, matrix_state};

pub(super) static KIND: MixerKind = MixerKind {
    name: "linear",
    aliases: &["linear-attention", "lin"],
    fields: &[
        STATE_HEADS,
        HEAD,
        KEY,
        VALUE,
        choice("normaliser", "divide by the sum of weights", YES_NO),
        choice("map", "the feature map", &["elu", "relu", "identity"]),
    ],
    facts: |n| {
        let (heads, key) = (n.wide("heads"), n.wide("key"));
        let core = matrix_state(heads, key, n.wide("value"), n.width(), false);
        let normaliser = if n.get("normaliser") == 0 { heads * key } else { 0 };
        Facts { state: core.state + normaliser, carries: heads * n.wide("value"), slots: key, ..core }
    },
};
