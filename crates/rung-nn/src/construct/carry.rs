//! Carry layers: a bounded-state mixer that hands bits from one token to the next.
//!
//! One token, marked by a flag, gives; whoever comes after it finds its bits in the state. Only the giver has a key, so that
//! no other token writes; every mixer does this through its own gates, feature map and norms, as `weights` says of each.
//!
//! To add a mixer: a line in `WRITERS` and a function that writes its weights.

mod weights;

use rung_theory::spec::{Spec, SpecValue};
use rung_theory::stack::mixer::{CarrySizes, KINDS};
use rung_theory::stack::{Defaults, Mixer, StackError};

use super::draft::Setting;
use super::register::Slice;
use crate::mixer::{self, MixerConfig as _};
use weights::CarryWeightWriter;

/// What is handed on.
#[derive(Clone, Copy, Debug)]
pub struct Carry {
    /// The giver's bits.
    pub from: Slice,
    /// Where they arrive, before they are snapped.
    pub to: Slice,
    /// Column of the flag that is +1 at the giver and -1 elsewhere.
    pub flag: usize,
    /// Column of 1.
    pub one: usize,
    /// For a table in the state: the slot that a token writes to and the slot that a token asks for, each one 1 among zeros.
    /// Without it there is one giver, marked by the flag, and everyone asks.
    pub slots: Option<[Slice; 2]>,
}

/// Writes the weights with which a mixer carries.
type Writer = fn(&mut CarryWeightWriter<'_>);

/// Every mixer that carries, with what writes its weights; how large it must be is in the mixer's own facts.
const WRITERS: &[(&str, Writer)] = &[
    (mixer::linear::LinearAttentionConfig::NAME, weights::linear),
    (mixer::retnet::RetnetConfig::NAME, weights::retnet),
    (mixer::lightning::LightningConfig::NAME, weights::lightning),
    (mixer::gla::GlaConfig::NAME, weights::gla),
    (mixer::mamba2::Mamba2Config::NAME, weights::mamba2),
    (mixer::deltanet::DeltanetConfig::NAME, weights::deltanet),
    (mixer::gdn::GatedDeltanetConfig::NAME, weights::gdn),
    (mixer::kda::KimiDeltaConfig::NAME, weights::kda),
    (mixer::mamba1::Mamba1Config::NAME, weights::mamba1),
    (mixer::rglru::RgLruConfig::NAME, weights::rglru),
    (mixer::gated::GatedRecurrenceConfig::NAME, weights::gated),
    (mixer::hgrn2::Hgrn2Config::NAME, weights::hgrn2),
    (mixer::rwkv6::Rwkv6Config::NAME, weights::rwkv6),
    (mixer::rwkv7::Rwkv7Config::NAME, weights::rwkv7),
    (mixer::fastmax::FastmaxConfig::NAME, weights::fastmax),
    (mixer::deltaproduct::DeltaProductConfig::NAME, weights::deltaproduct),
    (mixer::loglinear_mamba2::LogLinearMamba2Config::NAME, weights::mamba2),
    (mixer::loglinear_gdn::LogLinearDeltanetConfig::NAME, weights::gdn),
    (mixer::window::WindowConfig::NAME, weights::window),
    (mixer::evicting::EvictingAttentionConfig::NAME, weights::window),
    (mixer::conv::ShortConvolutionConfig::NAME, weights::conv),
];

/// Names of the mixers that can carry.
pub fn names() -> impl Iterator<Item = &'static str> {
    WRITERS.iter().map(|(name, _)| *name)
}

/// Bits that a mixer of these sizes hands on by known weights.
pub fn channels(mixer: &Mixer) -> usize {
    if names().any(|name| name == mixer.name()) { mixer.facts().carried_bits as usize } else { 0 }
}

/// Whether a mixer can do it.
pub fn fits(carry: &Carry, mixer: &Mixer) -> bool {
    let wanted = carry.slots.map_or(0, |[written, _]| written.size);
    channels(mixer) >= carry.from.size && slots(mixer) >= wanted
}

/// Slots of a table that a mixer of these sizes can hold by known weights.
pub fn slots(mixer: &Mixer) -> usize {
    if names().any(|name| name == mixer.name()) { mixer.facts().table_slots as usize } else { 0 }
}

/// The mixer that a text such as `linear` or `linear{map=relu}` names, as small as `bits` bits (and a table of so many slots,
/// if not 0) allow where it does not say.
///
/// # Errors
/// The text names no mixer, one that does not carry, or sizes that do not hold the bits.
pub fn mixer(text: &str, bits: usize, table: usize, width: u64) -> Result<Mixer, CarryError> {
    let mut spec: Spec = rung_theory::spec::parse_spec(text).map_err(|error| CarryError::Stack(error.into()))?;
    let defaults = Defaults { heads: 1, head_dim: bits as u64, kv_heads: None, model_width: Some(width), bits: 32 };
    let known = Mixer::resolve(&Spec { name: spec.name.clone(), options: Vec::new(), at: 0 }, &defaults)?;
    // What could have been named instead: those that carry, and where a table is asked for those with room for one.
    let able = |sizes: &CarrySizes| table == 0 || sizes.slots.is_some();
    let Some(sizes) = known.kind().carry.filter(able) else {
        let found = KINDS.iter().filter(|kind| kind.carry.as_ref().is_some_and(able)).map(|kind| kind.name);
        return Err(CarryError::NoCarrier { found: spec.name, known: found.collect::<Vec<_>>().join(", ") });
    };
    for (option, mut size) in (sizes.smallest)(bits as u64) {
        if sizes.slots == Some(option) {
            size = size.max(table as u64);
        }
        if !spec.options.iter().any(|(given, _)| given == option) {
            spec.options.push((option.to_owned(), SpecValue::Number(size)));
        }
    }
    let mixer = Mixer::resolve(&spec, &defaults)?;
    let found = channels(&mixer);
    if slots(&mixer) < table {
        return Err(CarryError::TooSmall { mixer: mixer.to_string(), found: slots(&mixer), needed: table });
    }
    if found < bits {
        return Err(CarryError::TooSmall { mixer: mixer.to_string(), found, needed: bits });
    }
    Ok(mixer)
}

/// Why a mixer cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarryError {
    /// The text is no mixer.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// Its weights are not known.
    #[error("mixer `{found}` has no known weights that hand bits on; these have: {known}")]
    NoCarrier {
        /// What was asked for.
        found: String,
        /// What could have been.
        known: String,
    },
    /// Its sizes are too small.
    #[error("mixer `{mixer}` has room for {found} bits or slots; {needed} are needed")]
    TooSmall {
        /// The mixer with its sizes.
        mixer: String,
        /// Bits it can hand on, or slots.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
}

fn number(mixer: &Mixer, option: &str) -> usize {
    mixer.number(option).unwrap_or_default() as usize
}

/// The weights of a mixer that does it; `later` if an earlier layer lends it something.
pub(super) fn settings(carry: &Carry, mixer: &Mixer, width: usize, later: bool) -> Vec<Setting> {
    let mut writer = CarryWeightWriter::new(carry, mixer, width, later);
    if let Some((_, write)) = WRITERS.iter().find(|(name, _)| *name == mixer.name()) {
        write(&mut writer);
    }
    writer.into_settings()
}
