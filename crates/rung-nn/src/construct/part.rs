//! The parts that constructions are made of.
//!
//! - A **look-up head** compares numbers of the asking token with numbers of all others, and copies a register of the one that
//!   agrees. At inverse temperature beta a mismatch of one bit costs a factor `exp(-2 beta)`, so among n tokens at most
//!   `2 n exp(-2 beta)` of any other value mixes in.
//! - A **snap** makes exact bits of what was read: `clip(gain x)` by two neurons a bit.
//! - A **gated** snap or move does so only where a flag says so.
//! - A **register move** copies bits, and is a snap of gain 1.

use super::draft::{HeadDraft, Neuron, Sum};
use super::register::Slice;

/// How far a read bit may be from ±1 before it is snapped: 1/16 after look-ups among n tokens.
pub fn sharpness(tokens: usize) -> f64 {
    (32.0 * tokens.max(2) as f64).ln() / 2.0
}

/// The slope of a snap: reads beyond 1/4 become whole bits.
const SLOPE: f64 = 4.0;

/// What a look-up compares: channel by channel, a sum on the asking side and a sum on the asked side.
#[derive(Clone, Debug, Default)]
pub struct KeyMatch {
    pairs: Vec<(Sum, Sum)>,
}

impl KeyMatch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Two registers must agree bit by bit. Where they differ in size, the low bits are compared.
    #[must_use]
    pub fn numbers(mut self, asking: Slice, asked: Slice) -> Self {
        for (left, right) in asking.columns().zip(asked.columns()) {
            self.pairs.push((vec![(left, 1.0)], vec![(right, 1.0)]));
        }
        self
    }

    /// The asked register must hold this number; `one` is the register of 1.
    #[must_use]
    pub fn constant(mut self, number: u64, asked: Slice, one: Slice) -> Self {
        for (bit, column) in asked.columns().enumerate() {
            self.pairs.push((vec![(one.start, super::register::sign(number, bit))], vec![(column, 1.0)]));
        }
        self
    }

    /// The asked token must have a flag, whoever asks.
    #[must_use]
    pub fn flag(self, flag: Slice, one: Slice) -> Self {
        self.sums(vec![(one.start, 1.0)], vec![(flag.start, 1.0)])
    }

    /// Any two sums.
    #[must_use]
    pub fn sums(mut self, asking: Sum, asked: Sum) -> Self {
        self.pairs.push((asking, asked));
        self
    }
}

/// A head that copies registers of the token that agrees.
pub fn look_up(wanted: &KeyMatch, sharpness: f64, copies: &[(Slice, Slice)]) -> HeadDraft {
    let sharp = |sum: &Sum| sum.iter().map(|(column, value)| (*column, value * sharpness)).collect();
    let pairs = copies.iter().flat_map(|(from, to)| from.columns().zip(to.columns()));
    let (value, output) = pairs.map(|(from, to)| (vec![(from, 1.0)], to)).unzip();
    HeadDraft {
        query: wanted.pairs.iter().map(|(asking, _)| sharp(asking)).collect(),
        key: wanted.pairs.iter().map(|(_, asked)| asked.clone()).collect(),
        value,
        output,
    }
}

/// Bits of what was read: `clip(4 x)` from -1 to 1.
pub fn snap(from: Slice, to: Slice, one: Slice) -> Vec<Neuron> {
    clipped(from, to, one, SLOPE, &[])
}

/// A condition: a sum that is +1 where it holds and -1 elsewhere.
pub type Gate = Sum;

/// The gate of a flag that must be set.
pub fn set(flag: Slice) -> Gate {
    vec![(flag.start, 1.0)]
}

/// The gate of a flag that must not be set.
pub fn unset(flag: Slice) -> Gate {
    vec![(flag.start, -1.0)]
}

/// The gate of flags of which one must be set and no two are.
pub fn any(flags: &[Slice], one: Slice) -> Gate {
    flags.iter().map(|flag| (flag.start, 1.0)).chain([(one.start, flags.len() as f64 - 1.0)]).collect()
}

/// The gate that holds where another does not.
pub fn not(gate: &Gate) -> Gate {
    gate.iter().map(|(column, value)| (*column, -value)).collect()
}

/// A snap where all gates hold; elsewhere nothing is written.
pub fn gated_snap(from: Slice, to: Slice, one: Slice, gates: &[Gate]) -> Vec<Neuron> {
    clipped(from, to, one, SLOPE, gates)
}

/// Copies bits where all gates hold; elsewhere nothing is written.
pub fn gated_copy(from: Slice, to: Slice, one: Slice, gates: &[Gate]) -> Vec<Neuron> {
    clipped(from, to, one, 1.0, gates)
}

/// `clip(slope x)`, as `relu(slope x + 1) - relu(slope x - 1) - 1`. A gate that does not hold takes the neurons below zero, and
/// that of the last term with them.
fn clipped(from: Slice, to: Slice, one: Slice, slope: f64, gates: &[Gate]) -> Vec<Neuron> {
    // Twice what a read can reach: carriers may overshoot.
    let depth = 2.0 * slope + 1.0;
    let mut neurons = Vec::new();
    for (read, written) in from.columns().zip(to.columns()) {
        for (offset, factor) in [(1.0, 1.0), (-1.0, -1.0)] {
            let mut input = vec![(read, slope), (one.start, offset)];
            close(&mut input, depth, one, gates);
            neurons.push(Neuron { input, output: vec![(written, factor)] });
        }
    }
    let output = to.columns().zip(from.columns()).map(|(column, _)| (column, -1.0)).collect();
    neurons.push(constant(one, gates, output));
    // The bits that a shorter register does not have are those of a smaller number.
    if to.size > from.size {
        neurons.push(constant(one, gates, to.columns().skip(from.size).map(|column| (column, -1.0)).collect()));
    }
    neurons
}

/// A neuron that is 1 where all gates hold and 0 elsewhere.
pub fn constant(one: Slice, gates: &[Gate], output: Sum) -> Neuron {
    let mut input = vec![(one.start, 1.0)];
    close(&mut input, 1.0, one, gates);
    Neuron { input, output }
}

/// Takes `depth` off for every gate that does not hold.
fn close(input: &mut Sum, depth: f64, one: Slice, gates: &[Gate]) {
    for gate in gates {
        input.extend(gate.iter().map(|(column, value)| (*column, value * depth / 2.0)));
        input.push((one.start, -depth / 2.0));
    }
}

/// The gates that hold where a register holds this number.
pub fn equals(register: Slice, number: u64) -> Vec<Gate> {
    let gate = |(bit, column)| vec![(column, super::register::sign(number, bit))];
    register.columns().enumerate().map(gate).collect()
}

/// `[low, high]` of one column as -1 and +1: a snap around the middle.
pub fn threshold(from: usize, to: Slice, middle: f64, one: Slice) -> Vec<Neuron> {
    let sharp = 2.0 * SLOPE;
    let neuron = |offset: f64, factor: f64| Neuron {
        input: vec![(from, sharp), (one.start, offset - sharp * middle)],
        output: vec![(to.start, factor)],
    };
    vec![neuron(1.0, 1.0), neuron(-1.0, -1.0), constant(one, &[], vec![(to.start, -1.0)])]
}
