//! No mixer: the layer moves nothing between tokens.
//!
//! Pruned models drop the attention of some layers; only the channel mixer is left there.
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
//! # Held against
//! Nothing: it has no weights.
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
