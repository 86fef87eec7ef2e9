//! What a dialect says about the layers, before any size is looked up.
//!
//! A layer has an attention kind *and* a recurrence, because parallel hybrids have both, and a feed-forward part. A
//! [`LayerSpec`] also names the field that decided it.

use crate::AuditError;

/// How a layer attends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AttentionKind {
    /// Every earlier token.
    Full,
    /// The most recent tokens; the window size if the layer has its own.
    Window(Option<u64>),
    /// Fixed chunks.
    Chunked,
    /// Single tokens selected from the whole past by an indexer, which may be that of an earlier layer.
    TokenSparse { has_own_indexer: bool },
    /// Blocks of tokens selected by their scores.
    BlockSparse,
    /// Blocks selected by an indexer with a cache of its own, in addition to ordinary keys and values.
    IndexedBlockSparse,
    /// The whole past, one entry for every `ratio` tokens; an indexer may select some of the entries.
    Compressed { ratio: u64, has_indexer: bool },
    /// No attention.
    None,
    /// A value that no dialect knows.
    Unknown { value: String },
}

impl AttentionKind {
    /// The scope that two dialects must agree on and that reports show; nothing if unknown.
    pub(crate) fn scope(&self) -> Option<AttentionScope> {
        Some(match self {
            Self::Full => AttentionScope::Full,
            Self::Window(_) | Self::Chunked => AttentionScope::Window,
            Self::TokenSparse { .. } | Self::BlockSparse | Self::IndexedBlockSparse | Self::Compressed { .. } => {
                AttentionScope::Sparse
            }
            Self::None => AttentionScope::NoAttention,
            Self::Unknown { .. } => return None,
        })
    }
}

/// How a layer attends, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttentionScope {
    /// Every earlier token.
    Full,
    /// Only the most recent tokens, or those of the same chunk.
    Window,
    /// Tokens, blocks or compressed entries selected from the whole past.
    Sparse,
    /// The layer has no attention.
    NoAttention,
}

impl AttentionScope {
    /// The name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Window => "window",
            Self::Sparse => "sparse",
            Self::NoAttention => "none",
        }
    }
}

/// How recurrence and attention of one layer are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MixerOrder {
    /// Side by side on the same input.
    Parallel,
    /// Attention, then the recurrence on its result.
    AttentionFirst,
    /// The recurrence (a convolution), then attention on its result.
    RecurrenceFirst,
}

/// Which recurrence a layer has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RecurrenceSpec {
    /// The mixer that the size fields of the config belong to.
    InferFromSizeFields,
    /// One of these mixers, by Rung's names, with the sizes that the config's size fields give; if there are several, those fields tell which.
    SizesFromConfig(&'static [&'static str]),
    /// This mixer with these sizes, which the dialect itself has read.
    WithSizes(&'static str, Vec<(&'static str, u64)>),
}

/// The feed-forward part of a layer (its channel mixer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedForwardKind {
    /// One feed-forward network.
    Dense,
    /// Experts, of which a router selects some.
    Experts,
    /// No feed-forward network.
    None,
}

impl FeedForwardKind {
    /// The name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Experts => "moe",
            Self::None => "none",
        }
    }
}

/// Attention sizes of one layer that differ from those of the whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LayerOverrides {
    pub(crate) heads: Option<u64>,
    pub(crate) kv_heads: Option<u64>,
    /// Whether the rotary part of the key is left out of the cache.
    pub(crate) no_rope: bool,
}

/// One layer as a dialect describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayerSpec {
    pub(crate) kind: AttentionKind,
    pub(crate) recurrent: Option<RecurrenceSpec>,
    pub(crate) order: MixerOrder,
    /// Set where the dialect itself names it; otherwise derived from the fields about experts.
    pub(crate) feed_forward: Option<FeedForwardKind>,
    pub(crate) overrides: LayerOverrides,
    /// Reads the cache of an earlier layer.
    pub(crate) shares_cache: bool,
    /// Uses the weights of an earlier layer (its cache is its own).
    pub(crate) shares_parameters: bool,
    /// The key of `per_layer_config` with this layer's own fields.
    pub(crate) override_key: Option<String>,
    pub(crate) decided_by: String,
}

impl LayerSpec {
    pub(crate) fn new(kind: AttentionKind) -> Self {
        Self {
            kind,
            recurrent: None,
            order: MixerOrder::Parallel,
            feed_forward: None,
            overrides: LayerOverrides::default(),
            shares_cache: false,
            shares_parameters: false,
            override_key: None,
            decided_by: String::new(),
        }
    }

    pub(crate) fn full() -> Self {
        Self::new(AttentionKind::Full)
    }

    pub(crate) fn window() -> Self {
        Self::new(AttentionKind::Window(None))
    }

    /// No attention, some recurrence.
    pub(crate) fn recurrent(recurrent: RecurrenceSpec) -> Self {
        Self::new(AttentionKind::None).with_recurrence(recurrent, MixerOrder::Parallel)
    }

    /// A layer with only a feed-forward network, or with nothing.
    pub(crate) fn without_mixer(feed_forward: FeedForwardKind) -> Self {
        Self { feed_forward: Some(feed_forward), ..Self::new(AttentionKind::None) }
    }

    pub(crate) fn with_recurrence(self, recurrent: RecurrenceSpec, order: MixerOrder) -> Self {
        Self { recurrent: Some(recurrent), order, ..self }
    }

    /// The layer without its feed-forward network, which is a layer of its own.
    pub(crate) fn without_feed_forward(self) -> Self {
        Self { feed_forward: Some(FeedForwardKind::None), ..self }
    }

    pub(crate) fn decided_by(self, field: impl Into<String>) -> Self {
        Self { decided_by: field.into(), ..self }
    }
}

/// All layers as one dialect describes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) layers: Vec<LayerSpec>,
    /// Assumptions that the dialect makes, as sentences for reports.
    pub(crate) assumptions: Vec<String>,
}

impl Layout {
    pub(crate) fn new(layers: Vec<LayerSpec>) -> Self {
        Self { layers, assumptions: Vec::new() }
    }

    /// A layout whose layer `index` is `layer(index)`.
    pub(crate) fn from_fn(num_layers: usize, layer: impl Fn(usize) -> LayerSpec) -> Self {
        Self::new((0..num_layers).map(layer).collect())
    }

    pub(crate) fn with_assumption(mut self, assumption: impl Into<String>) -> Self {
        self.assumptions.push(assumption.into());
        self
    }

    /// Fails where two dialects describe the same layer differently.
    pub(crate) fn check_agreement(&self, other: &Self) -> Result<(), AuditError> {
        for (index, (ours, theirs)) in self.layers.iter().zip(&other.layers).enumerate() {
            let is_different = match (ours.kind.scope(), theirs.kind.scope()) {
                (Some(first), Some(second)) => {
                    first != second
                        || (ours.recurrent.is_some() != theirs.recurrent.is_some()
                            && first == AttentionScope::NoAttention)
                }
                _ => false,
            };
            if is_different {
                let scope_name = |spec: &LayerSpec| match (spec.kind.scope(), &spec.recurrent) {
                    (Some(AttentionScope::NoAttention), Some(_)) => "recurrent",
                    (kind, _) => kind.map_or("unknown", AttentionScope::name),
                };
                let why =
                    format!("for layer {index} the first says {}, the second {}", scope_name(ours), scope_name(theirs));
                let (first, second) = (ours.decided_by.clone(), theirs.decided_by.clone());
                return Err(AuditError::Contradiction { first, second, why });
            }
        }
        Ok(())
    }
}
