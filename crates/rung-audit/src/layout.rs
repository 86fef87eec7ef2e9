//! What a dialect says about the layers, before any size is looked up.
//!
//! Two axes per layer, because parallel hybrids need both: how it attends, and which recurrence it runs; and the
//! channel mixer (the feed-forward part) beside them. A [`Reading`] also names the field that decided it.

use crate::AuditError;

/// How a layer attends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Every earlier token.
    Full,
    /// The last so many tokens; the number if the layer has its own.
    Window(Option<u64>),
    /// Fixed chunks.
    Chunked,
    /// Single tokens, or blocks, picked from the whole past.
    TokenSparse {
        own_index: bool,
    },
    BlockSparse,
    /// Blocks picked by queries with an index cache of their own, beside ordinary keys and values.
    QuerySparse,
    /// The whole past, one entry for every `ratio` tokens, of which some are picked.
    Compressed {
        ratio: u64,
        picks: bool,
    },
    /// Not at all.
    None,
    /// A word that no dialect knows.
    Unknown {
        word: String,
    },
}

impl Kind {
    /// What two dialects must agree on, and what reports show.
    pub(crate) fn attention(&self) -> Option<Attention> {
        Some(match self {
            Self::Full => Attention::Full,
            Self::Window(_) | Self::Chunked => Attention::Window,
            Self::TokenSparse { .. } | Self::BlockSparse | Self::QuerySparse | Self::Compressed { .. } => {
                Attention::Sparse
            }
            Self::None => Attention::None,
            Self::Unknown { .. } => return None,
        })
    }
}

/// How a layer attends, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attention {
    /// Every earlier token.
    Full,
    /// Only the last so many tokens, or those of the same chunk.
    Window,
    /// Tokens, blocks or compressed entries picked from the whole past.
    Sparse,
    /// Not at all.
    None,
}

impl Attention {
    /// The word in reports and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Window => "window",
            Self::Sparse => "sparse",
            Self::None => "none",
        }
    }
}

/// How recurrence and attention of one layer are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Join {
    /// Side by side on the same input.
    Beside,
    /// Attention first, then the recurrence on its result.
    After,
    /// The recurrence (a convolution) first.
    Before,
}

/// Which recurrence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Recurrent {
    /// Whichever family the size fields belong to.
    BySizes,
    /// One of these mixers, by our names; the size fields must agree.
    OneOf(&'static [&'static str]),
    /// This mixer with these numbers, which the dialect itself has read.
    Known(&'static str, Vec<(&'static str, u64)>),
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// One feed-forward network.
    Dense,
    /// Experts, of which a router picks some.
    Experts,
    /// None in this slot.
    None,
}

impl Channel {
    /// The word in reports and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Experts => "moe",
            Self::None => "none",
        }
    }
}

/// Attention sizes of one layer that differ from those of the whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Own {
    pub(crate) heads: Option<u64>,
    pub(crate) kv: Option<u64>,
    /// No rotary part of the key is kept.
    pub(crate) no_rope: bool,
}

/// One layer as a dialect reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    pub(crate) kind: Kind,
    pub(crate) recurrent: Option<Recurrent>,
    pub(crate) join: Join,
    /// Set where the layout itself tells (slots of their own); else found from the fields about experts.
    pub(crate) channel: Option<Channel>,
    pub(crate) own: Own,
    /// Reads the cache of an earlier layer.
    pub(crate) shares_cache: bool,
    /// Uses the weights of an earlier layer (its cache is its own).
    pub(crate) shares_weights: bool,
    /// The key of `per_layer_config` with this layer's own fields.
    pub(crate) own_fields: Option<String>,
    pub(crate) decided_by: String,
}

impl Reading {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            recurrent: None,
            join: Join::Beside,
            channel: None,
            own: Own::default(),
            shares_cache: false,
            shares_weights: false,
            own_fields: None,
            decided_by: String::new(),
        }
    }

    pub(crate) fn full() -> Self {
        Self::new(Kind::Full)
    }

    pub(crate) fn window() -> Self {
        Self::new(Kind::Window(None))
    }

    /// No attention, some recurrence.
    pub(crate) fn recurrent(recurrent: Recurrent) -> Self {
        Self::new(Kind::None).with(recurrent, Join::Beside)
    }

    /// A slot that holds only a feed-forward part, or nothing.
    pub(crate) fn slot(channel: Channel) -> Self {
        Self { channel: Some(channel), ..Self::new(Kind::None) }
    }

    pub(crate) fn with(self, recurrent: Recurrent, join: Join) -> Self {
        Self { recurrent: Some(recurrent), join, ..self }
    }

    /// A layer whose mixer takes the whole slot: its feed-forward part stands elsewhere.
    pub(crate) fn alone(self) -> Self {
        Self { channel: Some(Channel::None), ..self }
    }

    pub(crate) fn by(self, field: impl Into<String>) -> Self {
        Self { decided_by: field.into(), ..self }
    }
}

/// All layers as one dialect reads them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) layers: Vec<Reading>,
    /// What the dialect takes for granted.
    pub(crate) assumed: Vec<String>,
}

impl Layout {
    pub(crate) fn new(layers: Vec<Reading>) -> Self {
        Self { layers, assumed: Vec::new() }
    }

    pub(crate) fn assuming(mut self, what: impl Into<String>) -> Self {
        self.assumed.push(what.into());
        self
    }

    /// Fails where two dialects read the same layer differently.
    pub(crate) fn agree(&self, other: &Self) -> Result<(), AuditError> {
        for (index, (a, b)) in self.layers.iter().zip(&other.layers).enumerate() {
            let differ = match (a.kind.attention(), b.kind.attention()) {
                (Some(first), Some(second)) => {
                    first != second || (a.recurrent.is_some() != b.recurrent.is_some() && first == Attention::None)
                }
                _ => false,
            };
            if differ {
                let says = |reading: &Reading| match (reading.kind.attention(), &reading.recurrent) {
                    (Some(Attention::None), Some(_)) => "recurrent",
                    (kind, _) => kind.map_or("unknown", Attention::word),
                };
                let why = format!("for layer {index} the first says {}, the second {}", says(a), says(b));
                let (first, second) = (a.decided_by.clone(), b.decided_by.clone());
                return Err(AuditError::Contradiction { first, second, why });
            }
        }
        Ok(())
    }
}
