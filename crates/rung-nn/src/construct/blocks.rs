//! The building blocks of constructions: attention heads and MLP neurons.
//!
//! A **register** is a range of columns of the residual stream, which stores the bits of a number as +1 and -1; a **flag** is a register of
//! one bit.
//!
//! - A **lookup head** compares registers of the querying token with registers of all tokens, and copies a register of the token
//!   that matches. At inverse temperature beta a mismatch of one bit costs a factor `exp(-2 beta)`, so among n tokens the others
//!   change the result by at most `2 n exp(-2 beta)`.
//! - **Rounding neurons** turn the output of a head into exact bits: `clip(slope x)` to -1 .. 1, by two neurons per bit.
//! - **Copy neurons** do the same with slope 1.
//! - **Gated** neurons do so only at tokens where all gates hold, and write nothing elsewhere.

use super::builder::{AttentionHead, Neuron, WeightedSum};
pub use crate::forwarding_weights::inverse_temperature;
use crate::register::ColumnRange;

/// The slope of rounding: values beyond ±1/4 become ±1.
const ROUNDING_SLOPE: f64 = 4.0;

/// What a lookup head compares: for each channel, a weighted sum for the query and one for the key.
#[derive(Clone, Debug, Default)]
pub struct KeyMatch {
    /// (query, key) of each channel.
    channels: Vec<(WeightedSum, WeightedSum)>,
}

impl KeyMatch {
    /// A match without channels, which accepts every token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that two registers are equal bit by bit. If they differ in size, the low bits are compared.
    #[must_use]
    pub fn equal_bits(mut self, query: ColumnRange, key: ColumnRange) -> Self {
        for (query, key) in query.columns().zip(key.columns()) {
            self.channels.push((vec![(query, 1.0)], vec![(key, 1.0)]));
        }
        self
    }

    /// Requires that the key's register holds this number; `bias` is the register of 1.
    #[must_use]
    pub fn equal_constant(mut self, number: u64, key: ColumnRange, bias: ColumnRange) -> Self {
        for (bit, column) in key.columns().enumerate() {
            self.channels.push((vec![(bias.start, crate::register::bit_sign(number, bit))], vec![(column, 1.0)]));
        }
        self
    }

    /// Requires that the key's token has a flag set, whatever the query.
    #[must_use]
    pub fn key_flag(self, flag: ColumnRange, bias: ColumnRange) -> Self {
        self.add_product(vec![(bias.start, 1.0)], vec![(flag.start, 1.0)])
    }

    /// Adds a channel, whose score is the product of two weighted sums.
    #[must_use]
    pub fn add_product(mut self, query: WeightedSum, key: WeightedSum) -> Self {
        self.channels.push((query, key));
        self
    }
}

/// A head that copies registers, as (source, target), of the token that matches.
pub fn lookup_head(
    key_match: &KeyMatch,
    inverse_temperature: f64,
    copies: &[(ColumnRange, ColumnRange)],
) -> AttentionHead {
    let scale = |sum: &WeightedSum| sum.iter().map(|(column, value)| (*column, value * inverse_temperature)).collect();
    let pairs = copies.iter().flat_map(|(from, to)| from.columns().zip(to.columns()));
    let (value, output) = pairs.map(|(from, to)| (vec![(from, 1.0)], to)).unzip();
    AttentionHead {
        query: key_match.channels.iter().map(|(query, _)| scale(query)).collect(),
        key: key_match.channels.iter().map(|(_, key)| key.clone()).collect(),
        value,
        output,
    }
}

/// Neurons that round each column of `from` to a bit in `to`: `clip(4 x)` to -1 .. 1.
pub fn rounding_neurons(from: ColumnRange, to: ColumnRange, bias: ColumnRange) -> Vec<Neuron> {
    clip_neurons(from, to, bias, ROUNDING_SLOPE, &[])
}

/// A condition on a token: a weighted sum that is +1 where it holds and -1 elsewhere.
pub type Gate = WeightedSum;

/// Holds where a flag is set.
pub fn if_set(flag: ColumnRange) -> Gate {
    vec![(flag.start, 1.0)]
}

/// Holds where a flag is not set.
pub fn if_unset(flag: ColumnRange) -> Gate {
    vec![(flag.start, -1.0)]
}

/// Holds where one of several flags is set. No token may have two of them set.
pub fn if_any(flags: &[ColumnRange], bias: ColumnRange) -> Gate {
    flags.iter().map(|flag| (flag.start, 1.0)).chain([(bias.start, flags.len() as f64 - 1.0)]).collect()
}

/// Holds where another gate does not.
pub fn negate(gate: &Gate) -> Gate {
    gate.iter().map(|(column, value)| (*column, -value)).collect()
}

/// [`rounding_neurons`] where all gates hold; elsewhere nothing is written.
pub fn gated_rounding_neurons(from: ColumnRange, to: ColumnRange, bias: ColumnRange, gates: &[Gate]) -> Vec<Neuron> {
    clip_neurons(from, to, bias, ROUNDING_SLOPE, gates)
}

/// Neurons that copy bits where all gates hold; elsewhere nothing is written.
pub fn gated_copy_neurons(from: ColumnRange, to: ColumnRange, bias: ColumnRange, gates: &[Gate]) -> Vec<Neuron> {
    clip_neurons(from, to, bias, 1.0, gates)
}

/// `clip(slope x)` as `relu(slope x + 1) - relu(slope x - 1) - 1`. A gate that does not hold makes the input of every neuron
/// negative, including that of the constant term, so nothing is written.
fn clip_neurons(from: ColumnRange, to: ColumnRange, bias: ColumnRange, slope: f64, gates: &[Gate]) -> Vec<Neuron> {
    // Enough for |x| up to 2: bits that a recurrent mixer has copied to a later token (`forwarding`) may exceed 1 before they are rounded.
    let penalty = 2.0 * slope + 1.0;
    let mut neurons = Vec::new();
    for (source, target) in from.columns().zip(to.columns()) {
        for (offset, factor) in [(1.0, 1.0), (-1.0, -1.0)] {
            let mut input = vec![(source, slope), (bias.start, offset)];
            add_gate_penalties(&mut input, penalty, bias, gates);
            neurons.push(Neuron { input, output: vec![(target, factor)] });
        }
    }
    let output = to.columns().zip(from.columns()).map(|(column, _)| (column, -1.0)).collect();
    neurons.push(indicator_neuron(bias, gates, output));
    // The high bits that a shorter source does not have are zero bits of the number, which are stored as -1.
    if to.size > from.size {
        neurons.push(indicator_neuron(
            bias,
            gates,
            to.columns().skip(from.size).map(|column| (column, -1.0)).collect(),
        ));
    }
    neurons
}

/// A neuron that is 1 where all gates hold and 0 elsewhere.
pub fn indicator_neuron(bias: ColumnRange, gates: &[Gate], output: WeightedSum) -> Neuron {
    let mut input = vec![(bias.start, 1.0)];
    add_gate_penalties(&mut input, 1.0, bias, gates);
    Neuron { input, output }
}

/// Subtracts `penalty` from a neuron's input for every gate that does not hold.
fn add_gate_penalties(input: &mut WeightedSum, penalty: f64, bias: ColumnRange, gates: &[Gate]) {
    for gate in gates {
        input.extend(gate.iter().map(|(column, value)| (*column, value * penalty / 2.0)));
        input.push((bias.start, -penalty / 2.0));
    }
}

/// The gates that all hold where a register holds this number.
pub fn if_equal(register: ColumnRange, number: u64) -> Vec<Gate> {
    let bit_gate = |(bit, column)| vec![(column, crate::register::bit_sign(number, bit))];
    register.columns().enumerate().map(bit_gate).collect()
}

/// Neurons that write to a flag whether one column is above `threshold`: +1 above, -1 below.
pub fn threshold_neurons(from: usize, to: ColumnRange, threshold: f64, bias: ColumnRange) -> Vec<Neuron> {
    let slope = 2.0 * ROUNDING_SLOPE;
    let neuron = |offset: f64, factor: f64| Neuron {
        input: vec![(from, slope), (bias.start, offset - slope * threshold)],
        output: vec![(to.start, factor)],
    };
    vec![neuron(1.0, 1.0), neuron(-1.0, -1.0), indicator_neuron(bias, &[], vec![(to.start, -1.0)])]
}
