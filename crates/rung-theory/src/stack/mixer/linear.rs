//! Linear attention: a feature map replaces the exponential of softmax, so that the prefix is summarised by one sum.
//!
//! That sum is a matrix per head (and, with the normaliser, a vector): a state of fixed size for every sequence length.
//!
//! # Recurrence
//! `S_t = S_{t-1} + phi(k_t) v_t^T`, `z_t = z_{t-1} + phi(k_t)`, `o_t = S_t^T phi(q_t) / (phi(q_t).z_t + 1e-6)`; phi
//! is elu+1, relu or the identity. Without the normaliser there is no z and no division; q is divided by the root of its
//! width, and a norm per head follows.
//!
//! # Parallel form
//! `O = tril(phi(Q) phi(K)^T) V`, rows divided by their sums if normalised; in chunks, the state between chunks and this form
//! inside.
//!
//! # State
//! `heads * key * value` elements, and `heads * key` more with the normaliser.
//!
//! # Reduces to
//! RetNet with decay 1 and no rotation, GLA with open gates, Fastmax of order 1 with the map `[1, x]`.
//!
//! # Reference implementation
//! A second implementation from the definition. `idiap/fast-transformers` adds the same epsilon of 1e-6 to the
//! normaliser, where `fla` adds 1e-10. Without a normaliser it is `fla`'s layer: queries scaled, a norm per head.
//!
//! # Source
//! Katharopoulos et al. 2020 (2006.16236).

use super::{
    Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, MixerKind, Reference, STATE_HEADS, VALUE_HEAD_DIM, choice, choices,
    flag, matrix_state,
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
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        flag("normaliser", "divide by the sum of weights", |_| true),
        choice("map", "the feature map", FeatureMap::NAMES),
    ],
    facts: |options| {
        let (heads, key_head_dim) = (options.size("heads"), options.size("key"));
        let core = matrix_state(heads, key_head_dim, options.size("value"), options.width());
        let normaliser = if options.flag("normaliser") { heads * key_head_dim } else { 0 };
        Facts {
            recurrent_state: core.recurrent_state + normaliser,
            forwarded_bits: heads * options.size("value"),
            table_rows: key_head_dim,
            additive_state: true,
            scale_invariant: options.flag("normaliser"),
            ..core
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("key", 1), ("value", bits)],
        table_rows_option: Some("key"),
    }),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
