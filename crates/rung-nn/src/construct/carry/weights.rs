//! The weights with which each mixer carries, through its own gates, feature map and norms:
//!
//! - lightning attention norms all heads at once, which forget at different rates: bits go through the slowest alone, in pairs;
//! - RG-LRU's gates open for the giver alone, who overwrites the state;
//! - linear attention divides by the sum of weights, and only the giver has weight;
//! - `RetNet` and GLA norm each head, which keeps bits of ±1 as they are, and gate with a constant;
//! - Mamba-2, `DeltaNet` and Gated `DeltaNet` pass values through SiLU: each bit goes as a pair (b, -b), since
//!   `silu(x) - silu(-x) = x`, and a pair has the same square whatever its bit;
//! - HGRN2's key is what its gate lets go: only the giver's gate is shut, whatever the layer's floor, and all others stay open; its
//!   norm is over the whole width;
//! - RWKV-6 and 7 mix nothing of the token before, and take the mean off each head, so that bits go in the same pairs without
//!   SiLU;
//! - Fastmax of the first order gives a key opposite to the query no weight at all: everybody but the giver has that key;
//! - `DeltaProduct` writes with its first step, the other steps have no key;
//! - the log-linear mixers weigh all levels alike, and a norm undoes the weight;
//! - the gated recurrence opens its gate for the giver alone;
//! - a window, and a cache of the last tokens, is a look-up among few tokens, and a convolution multiplies by its gate.
//!
//! Decays are set so slow that they do not matter, except `RetNet`'s, which is fixed and undone by the norm.

use rung_theory::stack::Mixer;
use rung_theory::stack::mixer::FeatureMap;

use super::{Carry, Setting, Slice, number};
use crate::construct::part::sharpness;

/// Input of a gate that is open: far from where SiLU bends. Gates are not kept, so it costs no bits.
const OPEN: f64 = 8.0;
/// SiLU of this is 1. What a layer keeps (states, inputs of convolutions) stays below 2, so that two bits a number are enough.
const UNIT: f64 = 1.278_464_542_761_074;
/// A logarithm of a rate so low that nothing decays.
const FROZEN: f64 = -20.0;
/// An input of a sigmoid that leaves nothing, in single precision, of what it shuts out.
const SHUT: f64 = 40.0;
/// `softplus` of this is 1.
const UNIT_STEP: f64 = 0.541_324_854_612_918;

/// How a bit b goes in two channels, of which one gets `size * b` and the other the opposite.
struct Pair {
    size: f64,
    /// The mean of their squares where they arrive.
    square: f64,
    /// Their difference there, for b = 1.
    apart: f64,
}

impl Pair {
    /// As it is.
    const PLAIN: Self = Self { size: 1.0, square: 1.0, apart: 2.0 };

    /// Through SiLU.
    fn through_silu() -> Self {
        let square = f64::midpoint(silu(UNIT).powi(2), silu(-UNIT).powi(2));
        Self { size: UNIT, square, apart: UNIT }
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// A mixer's weights while they are being set.
pub(super) struct CarryWeightWriter<'a> {
    carry: &'a Carry,
    mixer: &'a Mixer,
    width: usize,
    /// Whether an earlier layer lends it something.
    later: bool,
    settings: Vec<Setting>,
}

impl<'a> CarryWeightWriter<'a> {
    pub(super) fn new(carry: &'a Carry, mixer: &'a Mixer, width: usize, later: bool) -> Self {
        Self { carry, mixer, width, later, settings: Vec::new() }
    }

    /// The weights.
    pub(super) fn into_settings(self) -> Vec<Setting> {
        self.settings
    }

    fn flag(&self, option: &str) -> bool {
        self.mixer.options().flag(option)
    }

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

    /// Keys of `heads` heads: `high` at the giver, in one channel of each, and `low` elsewhere; with slots, `high` in the token's
    /// slot. One channel, because a norm over several would leave less of each than few bits can hold.
    fn keys(&mut self, name: &str, first: usize, heads: usize, key: usize, high: f64, low: f64) {
        let Some([written, _]) = self.carry.slots else {
            for row in (first..first + heads * key).step_by(key) {
                self.set_flag_rows(name, row..row + 1, high, low);
                self.constant(name, row + 1..row + key, low);
            }
            return;
        };
        self.slot(name, first, heads, key, written, high, low);
    }

    /// Queries of `heads` heads: `high` in that channel at every token; with slots, `high` in the slot asked for.
    fn queries(&mut self, name: &str, first: usize, heads: usize, key: usize, high: f64, low: f64) {
        let Some([_, asked]) = self.carry.slots else {
            for row in (first..first + heads * key).step_by(key) {
                self.constant(name, row..row + 1, high);
                self.constant(name, row + 1..row + key, low);
            }
            return;
        };
        self.slot(name, first, heads, key, asked, high, low);
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
    fn set_flag_rows(&mut self, name: &str, rows: std::ops::Range<usize>, high: f64, low: f64) {
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

    fn fill(&mut self, name: &str, count: usize, value: f64) {
        (0..count).for_each(|index| self.put(name, index, value));
    }

    /// A convolution that passes the current token through.
    fn set_identity_convolution(&mut self, name: &str, channels: usize, taps: usize) {
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

    /// Values in pairs and a norm over `normed` channels at a time, each with room for half as many bits.
    fn normed_pairs(
        &mut self,
        pair: &Pair,
        (into, first): (&str, usize),
        (out, channels): (&str, usize),
        normed: usize,
        gate: f64,
    ) {
        let room = normed / 2;
        for (bit, column) in self.carry.from.columns().enumerate() {
            let (head, place) = (bit / room, bit % room);
            let channel = head * normed + 2 * place;
            let filled = 2.0 * self.filled(head, room) as f64;
            let scale = (filled / normed as f64 * pair.square).sqrt() / pair.apart / gate;
            for (offset, sign) in [(0, 1.0), (1, -1.0)] {
                self.read(into, first + channel + offset, column, sign * pair.size);
                self.write(out, channels, bit, channel + offset, sign * scale);
            }
        }
    }
}

pub(super) fn linear(writer: &mut CarryWeightWriter<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| writer.number(option));
    // The feature of the giver is 1. elu+1 is never zero: others are pushed far below. The identity must have them at zero.
    let (high, low) = match writer.mixer.options().choice("map") {
        FeatureMap::EluPlusOne => (0.0, -40.0),
        FeatureMap::Relu => (1.0, -1.0),
        FeatureMap::Identity => (1.0, 0.0),
    };
    writer.keys("k_proj", 0, heads, key, high, low);
    writer.queries("q_proj", 0, heads, key, high, low);
    if writer.flag("normaliser") {
        writer.bits("v_proj", 0);
        (0..writer.carry.from.size).for_each(|bit| writer.write("o_proj", heads * value, bit, bit, 1.0));
    } else {
        writer.fill("norm.weight", value, 1.0);
        writer.normed_bits(heads, value, 1.0);
    }
}

pub(super) fn fastmax(writer: &mut CarryWeightWriter<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| writer.number(option));
    // A unit key of one channel is a whole number: rounding loses nothing of the count of tokens.
    for row in (0..heads * key).step_by(key) {
        writer.set_flag_rows("k_proj", row..row + 1, OPEN, -OPEN);
        writer.constant("q_proj", row..row + 1, OPEN);
    }
    writer.bits("v_proj", 0);
    (0..writer.carry.from.size).for_each(|bit| writer.write("o_proj", heads * value, bit, bit, 1.0));
}

pub(super) fn retnet(writer: &mut CarryWeightWriter<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| writer.number(option));
    writer.set_flag_rows("k_proj", 0..heads * key, 1.0, 0.0);
    writer.constant("q_proj", 0..heads * key, OPEN);
    writer.constant("g_proj", 0..heads * value, OPEN);
    writer.normed_bits(heads, value, silu(OPEN));
}

/// The last head forgets most slowly. Bits go through it in pairs; the other heads stay empty.
pub(super) fn lightning(writer: &mut CarryWeightWriter<'_>) {
    let [heads, head] = ["heads", "head"].map(|option| writer.number(option));
    let (inner, pair, bits) = (heads * head, Pair::through_silu(), writer.carry.from.size);
    let first = (heads - 1) * 3 * head;
    writer.constant("qkv_proj", first..first + head, OPEN);
    writer.set_flag_rows("qkv_proj", first + head..first + head + 1, UNIT, 0.0);
    writer.constant("output_gate", 0..inner, -FROZEN);
    writer.fill("norm.weight", inner, 1.0);
    let scale = (2.0 * bits as f64 / inner as f64 * pair.square).sqrt() / pair.apart;
    for (bit, column) in writer.carry.from.columns().enumerate() {
        for (channel, sign) in [(2 * bit, 1.0), (2 * bit + 1, -1.0)] {
            writer.read("qkv_proj", first + 2 * head + channel, column, sign * pair.size);
            writer.write("out_proj", inner, bit, (heads - 1) * head + channel, sign * scale);
        }
    }
}

/// The first channel of a head marks the giver, whose gates are open; all others keep what there is and take nothing in.
pub(super) fn rglru(writer: &mut CarryWeightWriter<'_>) {
    let [inner, heads, taps] = ["inner", "heads", "conv"].map(|option| writer.number(option));
    let head = inner / heads;
    writer.set_identity_convolution("conv_1d", inner, taps);
    writer.fill("linear_y.bias", inner, OPEN);
    writer.fill("rg_lru.recurrent_param", inner, -FROZEN);
    for from in (0..inner).step_by(head) {
        writer.set_flag_rows("linear_x", from..from + 1, 1.0, -1.0);
        for gate in ["input_gate", "recurrent_gate"] {
            let name = format!("rg_lru.{gate}_weight");
            (1..head).for_each(|to| writer.put(&name, from * head + to, SHUT));
        }
    }
    for (bit, column) in writer.carry.from.columns().enumerate() {
        let channel = bit / (head - 1) * head + 1 + bit % (head - 1);
        writer.read("linear_x", channel, column, 1.0);
        // GELU of a number this high is the number.
        writer.write("linear_out", inner, bit, channel, 1.0 / OPEN);
    }
}

pub(super) fn gla(writer: &mut CarryWeightWriter<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| writer.number(option));
    writer.keys("k_proj", 0, heads, key, 1.0, 0.0);
    writer.queries("q_proj", 0, heads, key, OPEN, 0.0);
    writer.constant("g_proj", 0..heads * value, OPEN);
    writer.fill("gk_proj.1.bias", heads * key, -FROZEN);
    writer.fill("g_norm.weight", value, 1.0);
    writer.normed_bits(heads, value, silu(OPEN));
}

pub(super) fn mamba2(writer: &mut CarryWeightWriter<'_>) {
    let [heads, head, state, groups] = ["heads", "head", "state", "groups"].map(|option| writer.number(option));
    let (inner, shared, taps) = (heads * head, groups * state, writer.number("conv"));
    let channels = inner + 2 * shared;
    writer.constant("in_proj", 0..inner, OPEN);
    writer.keys("in_proj", 2 * inner, groups, state, UNIT, 0.0);
    writer.queries("in_proj", 2 * inner + shared, groups, state, UNIT, 0.0);
    writer.set_identity_convolution("conv1d", channels, taps);
    writer.fill("dt_bias", heads, UNIT_STEP);
    writer.fill("A_log", heads, FROZEN);
    writer.fill("norm.weight", inner, 1.0);
    // The norm is over the channels of a group, whose heads are one. An odd channel of a group stays empty.
    writer.normed_pairs(&Pair::through_silu(), ("in_proj", inner), ("out_proj", inner), inner / groups, 1.0);
}

pub(super) fn deltanet(writer: &mut CarryWeightWriter<'_>) {
    let [heads, value] = ["heads", "value"].map(|option| writer.number(option));
    delta(writer, heads, heads, value, 1.0);
    if !writer.flag("negative") {
        writer.constant("b_proj", 0..heads, -FROZEN);
    }
}

pub(super) fn gdn(writer: &mut CarryWeightWriter<'_>) {
    let [heads, value_heads, value] = ["heads", "value-heads", "value"].map(|option| writer.number(option));
    delta(writer, heads, value_heads, value, silu(OPEN));
    if !writer.flag("negative") {
        writer.constant("b_proj", 0..value_heads, -FROZEN);
    }
    writer.fill("dt_bias", value_heads, UNIT_STEP);
    writer.fill("A_log", value_heads, FROZEN);
    writer.constant("g_proj", 0..value_heads * value, OPEN);
}

pub(super) fn deltaproduct(writer: &mut CarryWeightWriter<'_>) {
    let [heads, value_heads, value] = ["heads", "value-heads", "value"].map(|option| writer.number(option));
    delta(writer, heads, value_heads, value, silu(OPEN));
    if !writer.flag("negative") {
        writer.constant("b_proj", 0..value_heads, -FROZEN);
    }
    if writer.flag("gate") {
        writer.fill("dt_bias", value_heads, UNIT_STEP);
        writer.fill("A_log", value_heads, FROZEN);
    }
    writer.constant("g_proj", 0..value_heads * value, OPEN);
}

pub(super) fn kda(writer: &mut CarryWeightWriter<'_>) {
    let [heads, value_heads, key, value] = ["heads", "value-heads", "key", "value"].map(|option| writer.number(option));
    delta(writer, heads, value_heads, value, 1.0);
    writer.constant("b_proj", 0..value_heads, -FROZEN);
    writer.fill("dt_bias", value_heads * key, UNIT_STEP);
    writer.fill("A_log", value_heads, FROZEN);
    // Its output gate is a sigmoid.
    writer.fill("g_proj.1.bias", value_heads * value, -FROZEN);
}

/// Bits in pairs through SiLU, whose difference is exact: there is no norm to undo.
pub(super) fn mamba1(writer: &mut CarryWeightWriter<'_>) {
    let [inner, state, taps, rank] = ["inner", "state", "conv", "rank"].map(|option| writer.number(option));
    let (mark, always) = (inner - 2, inner - 1);
    writer.set_flag_rows("in_proj", mark..always, UNIT, 0.0);
    writer.constant("in_proj", always..inner, UNIT);
    writer.constant("in_proj", inner..2 * inner, OPEN);
    writer.set_identity_convolution("conv1d", inner, taps);
    writer.put("x_proj.weight", rank * inner + mark, 1.0);
    writer.put("x_proj.weight", (rank + state) * inner + always, 1.0);
    writer.fill("dt_proj.bias", inner, UNIT_STEP);
    writer.fill("A_log", inner * state, FROZEN);
    for (bit, column) in writer.carry.from.columns().enumerate() {
        for (channel, sign) in [(2 * bit, 1.0), (2 * bit + 1, -1.0)] {
            writer.read("in_proj", channel, column, sign * UNIT);
            writer.write("out_proj", inner, bit, channel, sign / (UNIT * silu(OPEN)));
        }
    }
}

/// What the delta family shares. Without negative eigenvalues beta is a sigmoid and wants a high input; with them twice a
/// sigmoid of zero is one.
fn delta(writer: &mut CarryWeightWriter<'_>, heads: usize, value_heads: usize, value: usize, gate: f64) {
    let (key, taps) = (writer.number("key"), writer.number("conv"));
    writer.keys("k_proj", 0, heads, key, UNIT, 0.0);
    writer.queries("q_proj", 0, heads, key, UNIT, 0.0);
    writer.set_identity_convolution("q_conv1d", heads * key, taps);
    writer.set_identity_convolution("k_conv1d", heads * key, taps);
    writer.set_identity_convolution("v_conv1d", value_heads * value, taps);
    writer.fill("o_norm.weight", value, 1.0);
    // An odd channel of a head stays empty.
    writer.normed_pairs(&Pair::through_silu(), ("v_proj", 0), ("o_proj", value_heads * value), value, gate);
}

/// The giver's gate is open and all others' shut; `tanh` of its bits is them.
pub(super) fn gated(writer: &mut CarryWeightWriter<'_>) {
    let channels = writer.number("channels");
    writer.set_flag_rows("write_gate", 0..1, SHUT, -SHUT);
    writer.constant("read_gate", 0..1, SHUT);
    for (bit, column) in writer.carry.from.columns().enumerate() {
        writer.read("in_proj", bit, column, SHUT);
        writer.write("out_proj", channels, bit, bit, 1.0);
    }
}

pub(super) fn hgrn2(writer: &mut CarryWeightWriter<'_>) {
    let width = writer.width;
    writer.set_flag_rows("f_proj", 0..width, -SHUT, SHUT);
    writer.constant("q_proj", 0..width, OPEN);
    writer.fill("g_norm.weight", width, 1.0);
    writer.bits("i_proj", 0);
    let scale = (writer.carry.from.size as f64 / width as f64).sqrt();
    (0..writer.carry.from.size).for_each(|bit| writer.write("o_proj", width, bit, bit, scale));
}

pub(super) fn rwkv6(writer: &mut CarryWeightWriter<'_>) {
    let [heads, head] = ["heads", "head"].map(|option| writer.number(option));
    let inner = heads * head;
    writer.keys("k_proj", 0, heads, head, 1.0, 0.0);
    writer.queries("r_proj", 0, heads, head, OPEN, 0.0);
    writer.fill("time_decay", inner, FROZEN);
    writer.fill("ln_x.weight", inner, 1.0);
    writer.constant("g_proj", 0..inner, OPEN);
    writer.normed_pairs(&Pair::PLAIN, ("v_proj", 0), ("o_proj", inner), head, silu(OPEN));
}

/// Nothing is shifted and nothing decays; a slot is erased before it is written; the token itself has no share.
pub(super) fn rwkv7(writer: &mut CarryWeightWriter<'_>) {
    let [heads, head, rank] = ["heads", "head", "rank"].map(|option| writer.number(option));
    let inner = heads * head;
    writer.keys("k_proj", 0, heads, head, 1.0, 0.0);
    writer.queries("r_proj", 0, heads, head, OPEN, 0.0);
    writer.fill("k_k", inner, 1.0);
    writer.fill("w_proj.1.bias", inner, FROZEN);
    writer.fill("a_proj.1.bias", inner, -FROZEN);
    writer.fill("g_norm.weight", inner, 1.0);
    if writer.later {
        // Its own values, and nothing of the first layer's.
        writer.fill("v_mix.1.bias", inner, FROZEN);
    }
    // The gate is a sum of sigmoids, of which one is open and counts.
    writer.constant("g_proj.0", 0..1, -FROZEN);
    (0..inner).for_each(|channel| writer.put("g_proj.1.weight", channel * 2 * rank, 1.0));
    writer.normed_pairs(&Pair::PLAIN, ("v_proj", 0), ("o_proj", inner), head, 1.0);
}

pub(super) fn window(writer: &mut CarryWeightWriter<'_>) {
    let [heads, kv, key, value, size] = ["heads", "kv", "key", "value", "size"].map(|option| writer.number(option));
    let (one, flag) = (writer.carry.one, writer.carry.flag);
    let sharp = sharpness(size) * (key as f64).sqrt();
    let used = writer.carry.from.size.div_ceil(value);
    for slot in 0..used {
        writer.read("q_proj", slot * (heads / kv) * key, one, sharp);
        writer.read("k_proj", slot * key, flag, 1.0);
    }
    writer.bits("v_proj", 0);
    for bit in 0..writer.carry.from.size {
        let channel = bit / value * (heads / kv) * value + bit % value;
        writer.write("o_proj", heads * value, bit, channel, 1.0);
    }
}

pub(super) fn conv(writer: &mut CarryWeightWriter<'_>) {
    let [taps, channels] = ["taps", "channels"].map(|option| writer.number(option));
    let size = writer.carry.from.size;
    writer.set_flag_rows("in_proj", 0..size, 1.0, 0.0);
    writer.constant("in_proj", channels..channels + size, 1.0);
    writer.bits("in_proj", 2 * channels);
    for bit in 0..size {
        writer.put("conv.weight", bit * taps + taps - 2, 1.0);
        writer.write("out_proj", channels, bit, bit, 1.0);
    }
}
