//! Linear attention: softmax's exponential replaced by a feature map, so that the past is one sum.
//!
//! The prefix is seen only through a matrix per head (and, with the normaliser, a vector): a state of fixed size,
//! whatever the length of the text.
//!
//! # Recurrence
//! `S_t = S_{t-1} + phi(k_t) v_t^T`, `z_t = z_{t-1} + phi(k_t)`, `o_t = S_t^T phi(q_t) / (phi(q_t).z_t + 1e-6)`; phi
//! is elu+1, relu or the identity. Without the normaliser z and the division go, q is divided by the root of its
//! width, and a norm per head stands after the read.
//!
//! # Parallel form
//! `O = tril(phi(Q) phi(K)^T) V`, rows divided by their sums if normalised; in chunks, the state between and this
//! inside.
//!
//! # State
//! `heads * key * value` numbers, and `heads * key` more with the normaliser.
//!
//! # Reduces to
//! RetNet with decay 1 and no rotation, GLA with open gates, Fastmax of order 1 with the map `[1, x]`.
//!
//! # Held against
//! A second implementation from the definition. `idiap/fast-transformers` adds the same epsilon of 1e-6 to the
//! normaliser, where `fla` adds 1e-10. Without a normaliser it is `fla`'s layer: queries scaled, a norm per head.
//!
//! # Source
//! Katharopoulos et al. 2020 (2006.16236).

use super::{
    CarrySizes, Facts, HEAD, KEY, MixerKind, Reference, STATE_HEADS, VALUE, choice, choices, flag, matrix_state,
};

choices! {
    /// The feature map of queries and keys.
    pub enum FeatureMap {
        /// `x + 1` above zero, `exp(x)` below.
        EluPlusOne = "elu",
        /// `max(x, 0)`.
        Relu = "relu",
        /// x itself.
        Identity = "identity",
    }
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "linear",
    aliases: &["linear-attention", "lin"],
    options: &[
        STATE_HEADS,
        HEAD,
        KEY,
        VALUE,
        flag("normaliser", "divide by the sum of weights", |_| true),
        choice("map", "the feature map", FeatureMap::NAMES),
    ],
    facts: |n| {
        let (heads, key) = (n.size("heads"), n.size("key"));
        let core = matrix_state(heads, key, n.size("value"), n.width(), false);
        let normaliser = if n.flag("normaliser") { heads * key } else { 0 };
        Facts {
            recurrent_state: core.recurrent_state + normaliser,
            carried_bits: heads * n.size("value"),
            table_slots: key,
            additive_state: true,
            scale_invariant: n.flag("normaliser"),
            ..core
        }
    },
    carry: Some(CarrySizes {
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", bits)],
        slots: Some("key"),
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
