//! Forwarding layers: a bounded-state mixer copies bits from one token to later tokens through its state.
//!
//! One token, the source, is marked by a flag. It writes its bits to the state, and every later token reads them from there. Only
//! the source has a nonzero key, so that no other token writes. Each mixer needs other weights for this, because of its gates, feature
//! map and norms: see `weights`.
//!
//! A mixer's config declares the function that writes its weights: [`MixerConfig::FORWARDING`](crate::MixerConfig::FORWARDING).

use rung_theory::spec::{Spec, SpecValue};
use rung_theory::stack::mixer::{ForwardingSizes, KINDS};
use rung_theory::stack::{Defaults, Mixer, StackError};

use super::builder::WeightEntry;
pub use crate::forwarding_weights::ForwardedBits;
use crate::forwarding_weights::{ForwardingWeightWriter, WriteForwarding};
use crate::mixer;

/// The function that writes a mixer's weights, if such weights are known.
fn forwarding_weights(name: &str) -> Option<WriteForwarding> {
    mixer::declarations(name)?.forwarding
}

/// Names of the mixers with known forwarding weights.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name).filter(|name| forwarding_weights(name).is_some())
}

/// Bits that a mixer of these sizes can copy with known weights.
pub fn max_bits(mixer: &Mixer) -> usize {
    if forwarding_weights(mixer.name()).is_some() { mixer.facts().forwarded_bits as usize } else { 0 }
}

/// Whether a mixer is large enough to forward these bits.
pub fn fits(forwarded: &ForwardedBits, mixer: &Mixer) -> bool {
    let needed_rows = forwarded.table_rows.map_or(0, |[written, _]| written.size);
    max_bits(mixer) >= forwarded.from.size && max_table_rows(mixer) >= needed_rows
}

/// Slots of a table that the state of a mixer of these sizes can hold with known weights.
pub fn max_table_rows(mixer: &Mixer) -> usize {
    if forwarding_weights(mixer.name()).is_some() { mixer.facts().table_rows as usize } else { 0 }
}

/// The mixer that a text such as `linear` or `linear{map=relu}` names. Sizes that the text leaves out are the smallest with which the
/// mixer copies `bits` bits, and holds a table of `table_rows` rows if that is not 0.
///
/// # Errors
/// The text names no mixer, one without known forwarding weights, or sizes that are too small.
pub fn resolve_mixer(text: &str, bits: usize, table_rows: usize, width: u64) -> Result<Mixer, ForwardingError> {
    let mut spec: Spec = rung_theory::spec::parse_spec(text).map_err(|error| ForwardingError::Stack(error.into()))?;
    let defaults = Defaults { heads: 1, head_dim: bits as u64, kv_heads: None, model_width: Some(width), bits: 32 };
    let default_sizes = Mixer::resolve(&Spec { name: spec.name.clone(), options: Vec::new(), offset: 0 }, &defaults)?;
    let has_table = |sizes: &ForwardingSizes| table_rows == 0 || sizes.table_rows_option.is_some();
    let Some(sizes) = default_sizes.kind().forwarding_sizes.filter(has_table) else {
        let known =
            KINDS.iter().filter(|kind| kind.forwarding_sizes.as_ref().is_some_and(has_table)).map(|kind| kind.name);
        return Err(ForwardingError::NoKnownWeights { found: spec.name, known: known.collect::<Vec<_>>().join(", ") });
    };
    for (option, mut size) in (sizes.options_for_bits)(bits as u64) {
        if sizes.table_rows_option == Some(option) {
            size = size.max(table_rows as u64);
        }
        if !spec.options.iter().any(|(given, _)| given == option) {
            spec.options.push((option.to_owned(), SpecValue::Number(size)));
        }
    }
    let mixer = Mixer::resolve(&spec, &defaults)?;
    let found = max_bits(&mixer);
    if max_table_rows(&mixer) < table_rows {
        return Err(ForwardingError::TooSmall {
            mixer: mixer.to_string(),
            found: max_table_rows(&mixer),
            needed: table_rows,
        });
    }
    if found < bits {
        return Err(ForwardingError::TooSmall { mixer: mixer.to_string(), found, needed: bits });
    }
    Ok(mixer)
}

/// Why a mixer cannot be used in a forwarding layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardingError {
    /// The text is not a valid mixer.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// No weights are known with which this mixer copies bits.
    #[error("mixer `{found}` has no known forwarding weights; these have: {known}")]
    NoKnownWeights {
        /// The name in the request.
        found: String,
        /// Names of the mixers with known weights.
        known: String,
    },
    /// Its sizes are too small.
    #[error("mixer `{mixer}` has room for {found} bits or rows; {needed} are needed")]
    TooSmall {
        /// The mixer with its sizes.
        mixer: String,
        /// Bits that it can copy, or rows that it has.
        found: usize,
        /// How many the construction needs.
        needed: usize,
    },
}

/// The weights with which a mixer forwards these bits. `has_shared_input` says that an earlier layer of the same kind shares a tensor with it.
pub(super) fn weight_entries(
    forwarded: &ForwardedBits,
    mixer: &Mixer,
    width: usize,
    has_shared_input: bool,
) -> Vec<WeightEntry> {
    let mut writer = ForwardingWeightWriter::new(forwarded, mixer, width, has_shared_input);
    if let Some(write) = forwarding_weights(mixer.name()) {
        write(&mut writer);
    }
    writer.into_entries()
}
