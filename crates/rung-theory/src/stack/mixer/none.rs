//! No mixer: the layer passes no information between tokens.
//!
//! Pruned models remove the attention of some layers; those layers have only an MLP.
//!
//! # Recurrence
//! `o_t = 0`.
//!
//! # Parallel form
//! The same.
//!
//! # State
//! None.
//!
//! # Reduces to
//! Nothing smaller.
//!
//! # Reference implementation
//! None: it has no weights.
//!
//! # Source
//! Layers of this kind: Puzzle, Bercovich et al. 2024 (2411.19146).

use super::{CacheLayout, Facts, MixerKind};

pub(super) static KIND: MixerKind = MixerKind {
    name: "none",
    aliases: &["noop", "identity"],
    facts: |_| Facts { layout: Some(CacheLayout::Nothing), ..Facts::EMPTY },
    ..MixerKind::DEFAULT
};
