//! Carry layers: a bounded-state mixer that hands bits from one token to the next.
//!
//! One token, marked by a flag, gives; whoever comes after it finds its bits in the state. Only the giver has a key, so that
//! no other token writes; every mixer does this through its own gates, feature map and norms, as [`weights`] says of each.
//!
//! To add a mixer: a line in [`KINDS`] and a function that sets its weights.

mod weights;

use rung_theory::spec::{Call, Value};
use rung_theory::stack::{Defaults, Mixer, StackError};

use super::draft::Setting;
use super::register::Slice;
use weights::Plate;

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

/// A mixer that can carry.
struct Kind {
    name: &'static str,
    /// Its smallest sizes for some bits.
    smallest: fn(u64) -> Vec<(&'static str, u64)>,
    /// The option that says how many slots a table in its state can have.
    slots: Option<&'static str>,
    /// Its weights.
    set: fn(&mut Plate<'_>),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "linear",
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", bits)],
        slots: Some("key"),
        set: weights::linear,
    },
    Kind {
        name: "retnet",
        smallest: |bits| vec![("heads", 1), ("key", 2), ("value", bits)],
        // Keys turn with their position, so that slots do not stay apart.
        slots: None,
        set: weights::retnet,
    },
    Kind {
        name: "lightning",
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits)],
        slots: None,
        set: weights::lightning,
    },
    Kind {
        name: "gla",
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", bits), ("rank", 1)],
        slots: Some("key"),
        set: weights::gla,
    },
    Kind {
        name: "mamba2",
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("state", 1), ("groups", 1)],
        slots: Some("state"),
        set: weights::mamba2,
    },
    Kind {
        name: "deltanet",
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: weights::deltanet,
    },
    Kind {
        name: "gdn",
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: weights::gdn,
    },
    Kind {
        name: "kda",
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: weights::kda,
    },
    Kind {
        name: "mamba1",
        smallest: |bits| vec![("inner", 2 * bits + 2), ("state", 1), ("rank", 1)],
        slots: None,
        set: weights::mamba1,
    },
    Kind { name: "rglru", smallest: |bits| vec![("inner", bits + 1), ("heads", 1)], slots: None, set: weights::rglru },
    Kind { name: "gated", smallest: |bits| vec![("channels", bits)], slots: None, set: weights::gated },
    Kind { name: "hgrn2", smallest: |_| vec![("expand", 1)], slots: None, set: weights::hgrn2 },
    Kind {
        name: "rwkv6",
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("mix-rank", 1), ("decay-rank", 1)],
        slots: Some("head"),
        set: weights::rwkv6,
    },
    Kind {
        name: "rwkv7",
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("rank", 1)],
        slots: Some("head"),
        set: weights::rwkv7,
    },
    Kind {
        name: "fastmax",
        smallest: |bits| vec![("order", 1), ("heads", 1), ("key", 1), ("value", bits)],
        slots: None,
        set: weights::fastmax,
    },
    Kind {
        name: "deltaproduct",
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: weights::deltaproduct,
    },
    Kind {
        name: "loglinear-mamba2",
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("state", 1), ("groups", 1)],
        slots: Some("state"),
        set: weights::mamba2,
    },
    Kind {
        name: "loglinear-gdn",
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: weights::gdn,
    },
    Kind {
        name: "window",
        smallest: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        slots: None,
        set: weights::window,
    },
    Kind {
        name: "fake",
        smallest: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        slots: None,
        set: weights::window,
    },
    Kind { name: "conv", smallest: |bits| vec![("channels", bits)], slots: None, set: weights::conv },
];

/// Names of the mixers that can carry.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// Bits that a mixer of these sizes hands on by known weights.
pub fn channels(mixer: &Mixer) -> usize {
    if names().any(|name| name == mixer.name()) { mixer.facts().carries as usize } else { 0 }
}

/// Whether a mixer can do it.
pub fn fits(carry: &Carry, mixer: &Mixer) -> bool {
    let wanted = carry.slots.map_or(0, |[written, _]| written.size);
    channels(mixer) >= carry.from.size && slots(mixer) >= wanted
}

/// Slots of a table that a mixer of these sizes can hold by known weights.
pub fn slots(mixer: &Mixer) -> usize {
    if names().any(|name| name == mixer.name()) { mixer.facts().slots as usize } else { 0 }
}

/// The mixer that a text such as `linear` or `linear{map=relu}` names, as small as `bits` bits (and a table of so many slots,
/// if not 0) allow where it does not say.
///
/// # Errors
/// The text names no mixer, one that does not carry, or sizes that do not hold the bits.
pub fn mixer(text: &str, bits: usize, table: usize, width: u64) -> Result<Mixer, CarryError> {
    let mut call: Call = rung_theory::spec::parse_call(text).map_err(|error| CarryError::Stack(error.into()))?;
    let defaults = Defaults { heads: 1, head_dim: bits as u64, kv_heads: None, model_width: Some(width), bits: 32 };
    let known = Mixer::resolve(&Call { name: call.name.clone(), options: Vec::new(), at: 0 }, &defaults)?;
    let Some(kind) = KINDS.iter().find(|kind| kind.name == known.name()) else {
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(CarryError::NoCarrier { found: call.name, known });
    };
    let no_carrier = |known| CarryError::NoCarrier { found: call.name.clone(), known };
    if table > 0 && kind.slots.is_none() {
        let able = KINDS.iter().filter(|kind| kind.slots.is_some()).map(|kind| kind.name);
        return Err(no_carrier(able.collect::<Vec<_>>().join(", ")));
    }
    for (option, mut size) in (kind.smallest)(bits as u64) {
        if kind.slots == Some(option) {
            size = size.max(table as u64);
        }
        if !call.options.iter().any(|(given, _)| given == option) {
            call.options.push((option.to_owned(), Value::Number(size)));
        }
    }
    let mixer = Mixer::resolve(&call, &defaults)?;
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
    let mut plate = Plate::new(carry, mixer, width, later);
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == mixer.name()) {
        (kind.set)(&mut plate);
    }
    plate.done()
}
