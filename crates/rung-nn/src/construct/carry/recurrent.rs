//! Carriers whose gates, shifts or features want more than a key at the giver.
//!
//! - HGRN2's key is what its gate lets go: only the giver's gate is shut, whatever the layer's floor, and all others stay open; its
//!   norm is over the whole width;
//! - RWKV-6 mixes nothing of the token before, and takes the mean off each head, so that bits go in pairs (b, -b);
//! - Fastmax of the first order gives a key opposite to the query no weight at all: everybody but the giver has that key;
//! - `DeltaProduct` writes with its first step, the other steps have no key;
//! - the log-linear mixers weigh all levels alike, and a norm undoes the weight.

use super::{FROZEN, OPEN, Plate, UNIT_STEP, delta, silu};

/// An input of a sigmoid that leaves nothing, in single precision, of what it shuts out.
const SHUT: f64 = 40.0;

pub(super) fn hgrn2(plate: &mut Plate<'_>) {
    let width = plate.width;
    plate.mark("f_proj", 0..width, -SHUT, SHUT);
    plate.constant("q_proj", 0..width, OPEN);
    plate.all("g_norm.weight", width, 1.0);
    plate.bits("i_proj", 0);
    let scale = (plate.carry.from.size as f64 / width as f64).sqrt();
    (0..plate.carry.from.size).for_each(|bit| plate.write("o_proj", width, bit, bit, scale));
}

pub(super) fn rwkv6(plate: &mut Plate<'_>) {
    let [heads, head] = ["heads", "head"].map(|option| plate.number(option));
    let (inner, room) = (heads * head, head / 2);
    plate.keys("k_proj", 0, heads, head, OPEN, 0.0);
    plate.queries("r_proj", 0, heads, head, OPEN, 0.0);
    plate.all("time_decay", inner, FROZEN);
    plate.all("time_faaaa", inner, 1.0);
    plate.all("ln_x.weight", inner, 1.0);
    plate.constant("g_proj", 0..inner, OPEN);
    let columns: Vec<usize> = plate.carry.from.columns().collect();
    for (bit, column) in columns.into_iter().enumerate() {
        let (group, pair) = (bit / room, bit % room);
        let filled = 2.0 * plate.filled(group, room) as f64;
        let scale = (filled / head as f64).sqrt() / 2.0 / silu(OPEN);
        for (offset, sign) in [(0, 1.0), (1, -1.0)] {
            let channel = group * head + 2 * pair + offset;
            plate.read("v_proj", channel, column, sign);
            plate.write("o_proj", inner, bit, channel, sign * scale);
        }
    }
}

pub(super) fn fastmax(plate: &mut Plate<'_>) {
    let [heads, key, value] = ["heads", "key", "value"].map(|option| plate.number(option));
    plate.mark("k_proj", 0..heads * key, OPEN, -OPEN);
    plate.constant("q_proj", 0..heads * key, OPEN);
    plate.bits("v_proj", 0);
    (0..plate.carry.from.size).for_each(|bit| plate.write("o_proj", heads * value, bit, bit, 1.0));
}

pub(super) fn deltaproduct(plate: &mut Plate<'_>) {
    let [heads, value_heads, value] = ["heads", "value-heads", "value"].map(|option| plate.number(option));
    delta(plate, heads, value_heads, value, silu(OPEN));
    // Of the words of these options, "yes" is the first.
    if plate.number("negative") == 1 {
        plate.constant("b_proj", 0..value_heads, -FROZEN);
    }
    if plate.number("gate") == 0 {
        plate.all("dt_bias", value_heads, UNIT_STEP);
        plate.all("A_log", value_heads, FROZEN);
    }
    plate.constant("g_proj", 0..value_heads * value, OPEN);
}
