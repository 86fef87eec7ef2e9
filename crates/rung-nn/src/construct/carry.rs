//! Carry layers: a bounded-state mixer that hands bits from one token to the next.
//!
//! One token, marked by a flag, gives; whoever comes after it finds its bits in the state. Only the giver has a key, so that
//! no other token writes; every mixer does this through its own gates, feature map and norms:
//!
//! - linear attention divides by the sum of weights, and only the giver has weight;
//! - `RetNet` and GLA norm each head, which keeps bits of ±1 as they are, and gate with a constant;
//! - Mamba-2, `DeltaNet` and Gated `DeltaNet` pass values through SiLU: each bit goes as a pair (b, -b), since
//!   `silu(x) - silu(-x) = x`, and a pair has the same square whatever its bit;
//! - the mixers of [`recurrent`] say there how;
//! - a window is a look-up among few tokens, and a convolution multiplies by its gate.
//!
//! Decays are set so slow that they do not matter, except `RetNet`'s, which is fixed and undone by the norm.
//!
//! To add a mixer: a line in [`KINDS`] and a function that sets its weights.

mod recurrent;

use rung_theory::spec::{Call, Value};
use rung_theory::stack::{Defaults, Mixer, StackError};

use super::draft::Setting;
use super::part::sharpness;
use super::register::Slice;

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
    /// Bits that it can hand on.
    channels: fn(&Mixer) -> usize,
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
        channels: |mixer| number(mixer, "heads") * number(mixer, "value"),
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", bits)],
        slots: Some("key"),
        set: linear,
    },
    Kind {
        name: "retnet",
        channels: |mixer| {
            let even = number(mixer, "key").is_multiple_of(2);
            if even { number(mixer, "heads") * number(mixer, "value") } else { 0 }
        },
        smallest: |bits| vec![("heads", 1), ("key", 2), ("value", bits)],
        // Keys turn with their position, so that slots do not stay apart.
        slots: None,
        set: retnet,
    },
    Kind {
        name: "gla",
        channels: |mixer| number(mixer, "heads") * number(mixer, "value"),
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", bits), ("rank", 1)],
        slots: Some("key"),
        set: gla,
    },
    Kind {
        name: "mamba2",
        channels: |mixer| number(mixer, "heads") * (number(mixer, "head") / 2),
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("state", 1), ("groups", 1)],
        slots: Some("state"),
        set: mamba2,
    },
    Kind {
        name: "deltanet",
        channels: |mixer| number(mixer, "heads") * (number(mixer, "value") / 2),
        smallest: |bits| vec![("heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: deltanet,
    },
    Kind {
        name: "gdn",
        channels: |mixer| number(mixer, "value-heads") * (number(mixer, "value") / 2),
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: gdn,
    },
    Kind {
        name: "kda",
        channels: |mixer| number(mixer, "value-heads") * (number(mixer, "value") / 2),
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: kda,
    },
    Kind {
        name: "mamba1",
        // One channel marks the giver and one is always on, for what the state takes in and gives out.
        channels: |mixer| number(mixer, "inner").saturating_sub(2) / 2,
        smallest: |bits| vec![("inner", 2 * bits + 2), ("state", 1), ("rank", 1)],
        slots: None,
        set: mamba1,
    },
    Kind {
        name: "hgrn2",
        channels: |mixer| mixer.facts().carries as usize,
        smallest: |_| vec![("expand", 1)],
        slots: None,
        set: recurrent::hgrn2,
    },
    Kind {
        name: "rwkv6",
        channels: |mixer| {
            if number(mixer, "channel") == 0 { number(mixer, "heads") * (number(mixer, "head") / 2) } else { 0 }
        },
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("mix-rank", 1), ("decay-rank", 1)],
        slots: Some("head"),
        set: recurrent::rwkv6,
    },
    Kind {
        name: "fastmax",
        // The second term of an exponential is never negative, so that everybody keeps some weight.
        channels: |mixer| if number(mixer, "order") == 1 { number(mixer, "heads") * number(mixer, "value") } else { 0 },
        smallest: |bits| vec![("order", 1), ("heads", 1), ("key", 1), ("value", bits)],
        slots: None,
        set: recurrent::fastmax,
    },
    Kind {
        name: "deltaproduct",
        channels: |mixer| number(mixer, "value-heads") * (number(mixer, "value") / 2),
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: recurrent::deltaproduct,
    },
    Kind {
        name: "loglinear-mamba2",
        channels: |mixer| number(mixer, "heads") * (number(mixer, "head") / 2),
        smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("state", 1), ("groups", 1)],
        slots: Some("state"),
        set: mamba2,
    },
    Kind {
        name: "loglinear-gdn",
        channels: |mixer| number(mixer, "value-heads") * (number(mixer, "value") / 2),
        smallest: |bits| vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)],
        slots: Some("key"),
        set: gdn,
    },
    Kind {
        name: "window",
        channels: |mixer| if number(mixer, "size") > 1 { number(mixer, "kv") * number(mixer, "value") } else { 0 },
        smallest: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        slots: None,
        set: window,
    },
    Kind {
        name: "conv",
        channels: |mixer| {
            let gated = number(mixer, "gated") == 0;
            if gated && number(mixer, "taps") > 1 { number(mixer, "channels") } else { 0 }
        },
        smallest: |bits| vec![("channels", bits)],
        slots: None,
        set: conv,
    },
];

/// Names of the mixers that can carry.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// Bits that a mixer of these sizes hands on by known weights.
pub fn channels(mixer: &Mixer) -> usize {
    KINDS.iter().find(|kind| kind.name == mixer.name()).map_or(0, |kind| (kind.channels)(mixer))
}

/// Whether a mixer can do it.
pub fn fits(carry: &Carry, mixer: &Mixer) -> bool {
    let wanted = carry.slots.map_or(0, |[written, _]| written.size);
    channels(mixer) >= carry.from.size && slots(mixer) >= wanted
}

/// Slots of a table that a mixer of these sizes can hold by known weights.
pub fn slots(mixer: &Mixer) -> usize {
    let kind = KINDS.iter().find(|kind| kind.name == mixer.name());
    kind.and_then(|kind| kind.slots).map_or(0, |option| number(mixer, option))
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
    let found = (kind.channels)(&mixer);
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

/// The weights of a mixer that does it.
pub(super) fn settings(carry: &Carry, mixer: &Mixer, width: usize) -> Vec<Setting> {
    let mut plate = Plate { carry, mixer, width, settings: Vec::new() };
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == mixer.name()) {
        (kind.set)(&mut plate);
    }
    plate.settings
}

/// Height of a gate or key that is open: far from where SiLU bends, small enough for short numbers.
const OPEN: f64 = 8.0;
/// A logarithm of a rate so low that nothing decays.
const FROZEN: f64 = -20.0;
/// `softplus` of this is 1.
const UNIT_STEP: f64 = 0.541_324_854_612_918;
/// How large bits go through a SiLU.
const SWING: f64 = 4.0;

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// A mixer's weights while they are being set.
struct Plate<'a> {
    carry: &'a Carry,
    mixer: &'a Mixer,
    width: usize,
    settings: Vec<Setting>,
}

impl Plate<'_> {
    fn number(&self, option: &str) -> usize {
        number(self.mixer, option)
    }

    fn put(&mut self, name: &str, index: usize, value: f64) {
        self.settings.push((name.to_owned(), index, value));
    }

    /// A number of a projection that reads the stream.
    fn read(&mut self, name: &str, row: usize, column: usize, value: f64) {
        self.put(&format!("{name}.weight"), row * self.width + column, value);
    }

    /// Rows that are `value` at every token.
    fn constant(&mut self, name: &str, rows: std::ops::Range<usize>, value: f64) {
        let one = self.carry.one;
        rows.for_each(|row| self.read(name, row, one, value));
    }

    /// Keys of `heads` heads: `high` at the giver and `low` elsewhere; with slots, `high` in the token's slot.
    fn keys(&mut self, name: &str, first: usize, heads: usize, key: usize, high: f64, low: f64) {
        match self.carry.slots {
            None => self.mark(name, first..first + heads * key, high, low),
            Some([written, _]) => self.slot(name, first, heads, key, written, high, low),
        }
    }

    /// Queries of `heads` heads: `high` at every token; with slots, `high` in the slot asked for.
    fn queries(&mut self, name: &str, first: usize, heads: usize, key: usize, high: f64, low: f64) {
        match self.carry.slots {
            None => self.constant(name, first..first + heads * key, high),
            Some([_, asked]) => self.slot(name, first, heads, key, asked, high, low),
        }
    }

    #[allow(clippy::too_many_arguments)] // A projection, its rows, and what goes into them.
    fn slot(&mut self, name: &str, first: usize, heads: usize, key: usize, slots: Slice, high: f64, low: f64) {
        let one = self.carry.one;
        for (row, channel) in (0..heads * key).map(|row| (first + row, row % key)) {
            self.read(name, row, one, low);
            if channel < slots.size {
                self.read(name, row, slots.column(channel), high - low);
            }
        }
    }

    /// Rows that are `high` at the giver and `low` elsewhere.
    fn mark(&mut self, name: &str, rows: std::ops::Range<usize>, high: f64, low: f64) {
        let (one, flag) = (self.carry.one, self.carry.flag);
        for row in rows {
            self.read(name, row, one, f64::midpoint(high, low));
            self.read(name, row, flag, (high - low) / 2.0);
        }
    }

    /// One row per bit, from row `first` on; returns pairs of row and target column.
    fn bits(&mut self, name: &str, first: usize) {
        for (index, column) in self.carry.from.columns().enumerate() {
            self.read(name, first + index, column, 1.0);
        }
    }

    /// Writes channel `channel` of `channels` to bit `bit`'s target.
    fn write(&mut self, name: &str, channels: usize, bit: usize, channel: usize, value: f64) {
        let row = self.carry.to.column(bit);
        self.put(&format!("{name}.weight"), row * channels + channel, value);
    }

    fn all(&mut self, name: &str, count: usize, value: f64) {
        (0..count).for_each(|index| self.put(name, index, value));
    }

    /// A convolution that passes the current token through.
    fn pass(&mut self, name: &str, channels: usize, taps: usize) {
        (0..if taps > 0 { channels } else { 0 })
            .for_each(|channel| self.put(&format!("{name}.weight"), channel * taps + taps - 1, 1.0));
    }

    /// Bits in each head when they fill heads of `room` bits one after another.
    fn filled(&self, head: usize, room: usize) -> usize {
        self.carry.from.size.saturating_sub(head * room).min(room)
    }

    /// Values in bits and a norm per head: bit i goes through channel i, and heads that are not full are scaled down.
    fn normed_bits(&mut self, heads: usize, value: usize, gate: f64) {
        self.bits("v_proj", 0);
        for bit in 0..self.carry.from.size {
            let filled = self.filled(bit / value, value) as f64;
            self.write("o_proj", heads * value, bit, bit, (filled / value as f64).sqrt() / gate);
        }
    }

    /// Values in pairs through SiLU and a norm over `normed` channels at a time, `room` bits in each.
    fn normed_pairs(&mut self, (into, first): (&str, usize), out: &str, channels: usize, normed: usize, gate: f64) {
        let room = normed / 2;
        let square = f64::midpoint(silu(SWING).powi(2), silu(-SWING).powi(2));
        for (bit, column) in self.carry.from.columns().enumerate() {
            let (head, place) = (bit / room, bit % room);
            let channel = head * normed + 2 * place;
            let filled = 2.0 * self.filled(head, room) as f64;
            let scale = (filled / normed as f64 * square).sqrt() / SWING / gate;
            for (offset, sign) in [(0, 1.0), (1, -1.0)] {
                self.read(into, first + channel + offset, column, sign * SWING);
                self.write(out, channels, bit, channel + offset, sign * scale);
            }
        }
    }
}

fn linear(plate: &mut Plate<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| plate.number(option));
    // elu+1 is never zero: others are pushed far below. The identity must have them at zero.
    let low = if plate.number("map") == 2 { 0.0 } else { -40.0 };
    plate.keys("k_proj", 0, heads, key, OPEN, low);
    plate.queries("q_proj", 0, heads, key, OPEN, low);
    if plate.number("normaliser") == 0 {
        plate.bits("v_proj", 0);
        (0..plate.carry.from.size).for_each(|bit| plate.write("o_proj", heads * value, bit, bit, 1.0));
    } else {
        plate.all("norm.weight", value, 1.0);
        plate.normed_bits(heads, value, 1.0);
    }
}

fn retnet(plate: &mut Plate<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| plate.number(option));
    plate.mark("k_proj", 0..heads * key, OPEN, 0.0);
    plate.constant("q_proj", 0..heads * key, OPEN);
    plate.constant("g_proj", 0..heads * value, OPEN);
    plate.normed_bits(heads, value, silu(OPEN));
}

fn gla(plate: &mut Plate<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| plate.number(option));
    plate.keys("k_proj", 0, heads, key, OPEN, 0.0);
    plate.queries("q_proj", 0, heads, key, OPEN, 0.0);
    plate.constant("g_proj", 0..heads * value, OPEN);
    plate.all("gk_proj.1.bias", heads * key, -FROZEN);
    plate.all("g_norm.weight", value, 1.0);
    plate.normed_bits(heads, value, silu(OPEN));
}

fn mamba2(plate: &mut Plate<'_>) {
    let [heads, head, state, groups] = ["heads", "head", "state", "groups"].map(|option| plate.number(option));
    let (inner, shared, taps) = (heads * head, groups * state, plate.number("conv"));
    let channels = inner + 2 * shared;
    plate.constant("in_proj", 0..inner, OPEN);
    plate.keys("in_proj", 2 * inner, groups, state, OPEN, 0.0);
    plate.queries("in_proj", 2 * inner + shared, groups, state, OPEN, 0.0);
    plate.pass("conv1d", channels, taps);
    plate.all("dt_bias", heads, UNIT_STEP);
    plate.all("A_log", heads, FROZEN);
    plate.all("norm.weight", inner, 1.0);
    // The norm is over all channels, so heads are one.
    plate.normed_pairs(("in_proj", inner), "out_proj", inner, inner - inner % 2, 1.0);
}

fn deltanet(plate: &mut Plate<'_>) {
    let [heads, value] = ["heads", "value"].map(|option| plate.number(option));
    delta(plate, heads, heads, value, 1.0);
    if plate.number("negative") == 0 {
        plate.constant("b_proj", 0..heads, -FROZEN);
    }
}

fn gdn(plate: &mut Plate<'_>) {
    let [heads, value_heads, value] = ["heads", "value-heads", "value"].map(|option| plate.number(option));
    delta(plate, heads, value_heads, value, silu(OPEN));
    if plate.number("negative") == 0 {
        plate.constant("b_proj", 0..value_heads, -FROZEN);
    }
    plate.all("dt_bias", value_heads, UNIT_STEP);
    plate.all("A_log", value_heads, FROZEN);
    plate.constant("g_proj", 0..value_heads * value, OPEN);
}

fn kda(plate: &mut Plate<'_>) {
    let [heads, value_heads, key, value] = ["heads", "value-heads", "key", "value"].map(|option| plate.number(option));
    delta(plate, heads, value_heads, value, 1.0);
    plate.constant("b_proj", 0..value_heads, -FROZEN);
    plate.all("dt_bias", heads * key, UNIT_STEP);
    plate.all("A_log", heads, FROZEN);
    // Its output gate is a sigmoid.
    plate.all("g_proj.1.bias", value_heads * value, -FROZEN);
}

/// Bits in pairs through SiLU, whose difference is exact: there is no norm to undo.
fn mamba1(plate: &mut Plate<'_>) {
    let [inner, state, taps, rank] = ["inner", "state", "conv", "rank"].map(|option| plate.number(option));
    let (mark, always) = (inner - 2, inner - 1);
    plate.mark("in_proj", mark..always, OPEN, 0.0);
    plate.constant("in_proj", always..2 * inner, OPEN);
    plate.pass("conv1d", inner, taps);
    plate.put("x_proj.weight", rank * inner + mark, 1.0 / silu(OPEN));
    plate.put("x_proj.weight", (rank + state) * inner + always, 1.0 / silu(OPEN));
    plate.all("dt_proj.bias", inner, UNIT_STEP);
    plate.all("A_log", inner * state, FROZEN);
    for (bit, column) in plate.carry.from.columns().enumerate() {
        for (channel, sign) in [(2 * bit, 1.0), (2 * bit + 1, -1.0)] {
            plate.read("in_proj", channel, column, sign * SWING);
            plate.write("out_proj", inner, bit, channel, sign / (SWING * silu(OPEN)));
        }
    }
}

/// What the delta family shares. Without negative eigenvalues beta is a sigmoid and wants a high input; with them twice a
/// sigmoid of zero is one.
fn delta(plate: &mut Plate<'_>, heads: usize, value_heads: usize, value: usize, gate: f64) {
    let (key, taps) = (plate.number("key"), plate.number("conv"));
    plate.keys("k_proj", 0, heads, key, OPEN, 0.0);
    plate.queries("q_proj", 0, heads, key, OPEN, 0.0);
    plate.pass("q_conv1d", heads * key, taps);
    plate.pass("k_conv1d", heads * key, taps);
    plate.pass("v_conv1d", value_heads * value, taps);
    plate.all("o_norm.weight", value, 1.0);
    // An odd channel of a head stays empty.
    plate.normed_pairs(("v_proj", 0), "o_proj", value_heads * value, value, gate);
}

fn window(plate: &mut Plate<'_>) {
    let [heads, kv, key, value, size] = ["heads", "kv", "key", "value", "size"].map(|option| plate.number(option));
    let (one, flag) = (plate.carry.one, plate.carry.flag);
    let sharp = sharpness(size) * (key as f64).sqrt();
    let used = plate.carry.from.size.div_ceil(value);
    for slot in 0..used {
        plate.read("q_proj", slot * (heads / kv) * key, one, sharp);
        plate.read("k_proj", slot * key, flag, 1.0);
    }
    plate.bits("v_proj", 0);
    for bit in 0..plate.carry.from.size {
        let channel = bit / value * (heads / kv) * value + bit % value;
        plate.write("o_proj", heads * value, bit, channel, 1.0);
    }
}

fn conv(plate: &mut Plate<'_>) {
    let [taps, channels] = ["taps", "channels"].map(|option| plate.number(option));
    let size = plate.carry.from.size;
    plate.mark("in_proj", 0..size, 1.0, 0.0);
    plate.constant("in_proj", channels..channels + size, 1.0);
    plate.bits("in_proj", 2 * channels);
    for bit in 0..size {
        plate.put("conv.weight", bit * taps + taps - 2, 1.0);
        plate.write("out_proj", channels, bit, bit, 1.0);
    }
}
