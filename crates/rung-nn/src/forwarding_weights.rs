//! The weights with which each mixer copies bits from the source token to later tokens. What differs between mixers:
//!
//! - lightning attention has one norm over all heads, which decay at different rates: all bits use the head that decays most slowly,
//!   each as a pair of channels;
//! - RG-LRU's gates open at the source token alone, which overwrites the state;
//! - linear attention divides by the sum of the attention weights, and only the source token has any;
//! - `RetNet` and GLA normalize each head, which leaves bits of ±1 unchanged, and their output gate is set to a constant;
//! - Mamba-2, `DeltaNet` and Gated `DeltaNet` pass values through SiLU: each bit b uses a pair of channels (b, -b), since
//!   `silu(x) - silu(-x) = x`, and the norm of a pair is the same for either bit;
//! - HGRN2's key is one minus its forget gate: only the source token's gate is closed, whatever the layer's lower bound, and all others
//!   stay open; its norm is over the full width;
//! - RWKV-6 and 7 are set to ignore the previous token; they subtract the mean of each head, so that bits use pairs of channels too,
//!   without SiLU;
//! - first-order Fastmax gives a key opposite to the query zero weight: all tokens but the source have that key;
//! - `DeltaProduct` writes with its first step; its other steps have a zero key;
//! - the log-linear mixers give all levels the same weight, which a norm undoes;
//! - the gated recurrence opens its gate at the source token alone;
//! - a window, and a cache of the last tokens, look up the source among few tokens; a convolution multiplies by its gate.
//!
//! Decays are set so slow that they do not matter, except `RetNet`'s, which is fixed and undone by the norm.

use rung_theory::stack::Mixer;
use rung_theory::stack::mixer::FeatureMap;

use crate::register::ColumnRange;

/// What a forwarding layer copies.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedBits {
    /// The bits at the source token.
    pub from: ColumnRange,
    /// The columns that receive them at later tokens, before they are rounded.
    pub to: ColumnRange,
    /// Column of the flag that is +1 at the source token and -1 elsewhere.
    pub flag: usize,
    /// Column of the constant 1, by which weights add biases.
    pub bias: usize,
    /// For a table in the state: the row of the state that a token writes to and the row that a token reads, both one-hot.
    /// Without it there is one source, marked by the flag, and all later tokens read it.
    pub table_rows: Option<[ColumnRange; 2]>,
}

/// One element of a weight: `(name of the weight within the mixer, row-major index of the element, value)`.
pub type WeightEntry = (String, usize, f64);

/// Writes the weights with which a mixer copies bits.
pub type WriteForwarding = fn(&mut ForwardingWeightWriter<'_>);

/// The inverse temperature at which a lookup among this many tokens returns every bit within 1/16 of ±1.
pub fn inverse_temperature(tokens: usize) -> f64 {
    (32.0 * tokens.max(2) as f64).ln() / 2.0
}

/// Input of an open gate, or size of a query: so large that SiLU is nearly linear. Neither is part of the state, so this costs no state bits.
const LARGE_INPUT: f64 = 8.0;
/// SiLU of this is 1. What a layer stores (states, inputs of convolutions) stays below 2, so that two bits a number are enough.
const SILU_ONE: f64 = 1.278_464_542_761_074;
/// A sigmoid of this is 1, and of its negative 0, for the precision needed. As the negative logarithm of a decay rate it means no decay.
const SATURATED: f64 = 20.0;
/// In single precision, a sigmoid or `tanh` of this is exactly 1, and a sigmoid of its negative leaves nothing of what it multiplies.
const EXACTLY_SATURATED: f64 = 40.0;
/// `softplus` of this is 1.
const SOFTPLUS_ONE: f64 = 0.541_324_854_612_918;

/// How a bit b is sent through two channels: one gets `amplitude * b` and the other the opposite.
struct BitPair {
    amplitude: f64,
    /// The mean of the two squares after the activation.
    mean_square: f64,
    /// The difference of the two channels after the activation, for b = 1.
    difference: f64,
}

impl BitPair {
    /// Without an activation.
    const IDENTITY: Self = Self { amplitude: 1.0, mean_square: 1.0, difference: 2.0 };

    /// With SiLU as the activation.
    fn through_silu() -> Self {
        let mean_square = f64::midpoint(silu(SILU_ONE).powi(2), silu(-SILU_ONE).powi(2));
        Self { amplitude: SILU_ONE, mean_square, difference: SILU_ONE }
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Collects the weights of one mixer.
pub struct ForwardingWeightWriter<'a> {
    forwarded: &'a ForwardedBits,
    mixer: &'a Mixer,
    width: usize,
    /// Whether an earlier layer of the same kind shares a tensor with this one.
    has_shared_input: bool,
    entries: Vec<WeightEntry>,
}

impl<'a> ForwardingWeightWriter<'a> {
    pub(crate) fn new(forwarded: &'a ForwardedBits, mixer: &'a Mixer, width: usize, has_shared_input: bool) -> Self {
        Self { forwarded, mixer, width, has_shared_input, entries: Vec::new() }
    }

    /// The weights collected.
    pub(crate) fn into_entries(self) -> Vec<WeightEntry> {
        self.entries
    }

    fn flag(&self, option: &str) -> bool {
        self.mixer.options().flag(option)
    }

    fn number(&self, option: &str) -> usize {
        self.mixer.number(option).unwrap_or_default() as usize
    }

    fn add(&mut self, name: &str, index: usize, value: f64) {
        self.entries.push((name.to_owned(), index, value));
    }

    /// Adds a weight of a projection that reads the residual stream.
    fn add_input(&mut self, name: &str, row: usize, column: usize, value: f64) {
        self.add(&format!("{name}.weight"), row * self.width + column, value);
    }

    /// Makes rows of a projection equal `value` at every token.
    fn set_constant_rows(&mut self, name: &str, rows: std::ops::Range<usize>, value: f64) {
        let bias = self.forwarded.bias;
        rows.for_each(|row| self.add_input(name, row, bias, value));
    }

    /// Sets the keys of `heads` heads: `high` at the source token, in the first channel of each head, and `low` elsewhere; with a table in
    /// the state, `high` in the token's row. Only one channel is used: a norm over several would make each too small for states of few
    /// bits.
    fn set_keys(&mut self, name: &str, first: usize, heads: usize, key_dim: usize, high: f64, low: f64) {
        let Some([written, _]) = self.forwarded.table_rows else {
            for row in (first..first + heads * key_dim).step_by(key_dim) {
                self.set_flag_rows(name, row..row + 1, high, low);
                self.set_constant_rows(name, row + 1..row + key_dim, low);
            }
            return;
        };
        self.set_one_hot_rows(name, first, heads, key_dim, written, high, low);
    }

    /// Sets the queries of `heads` heads: `high` in the first channel at every token; with a table in the state, `high` in the row to read.
    fn set_queries(&mut self, name: &str, first: usize, heads: usize, key_dim: usize, high: f64, low: f64) {
        let Some([_, read]) = self.forwarded.table_rows else {
            for row in (first..first + heads * key_dim).step_by(key_dim) {
                self.set_constant_rows(name, row..row + 1, high);
                self.set_constant_rows(name, row + 1..row + key_dim, low);
            }
            return;
        };
        self.set_one_hot_rows(name, first, heads, key_dim, read, high, low);
    }

    #[allow(clippy::too_many_arguments)] // A projection, its rows, and their two values.
    fn set_one_hot_rows(
        &mut self,
        name: &str,
        first: usize,
        heads: usize,
        key_dim: usize,
        table_rows: ColumnRange,
        high: f64,
        low: f64,
    ) {
        let bias = self.forwarded.bias;
        for (row, channel) in (0..heads * key_dim).map(|row| (first + row, row % key_dim)) {
            self.add_input(name, row, bias, low);
            if channel < table_rows.size {
                self.add_input(name, row, table_rows.column(channel), high - low);
            }
        }
    }

    /// Makes rows of a projection `high` at the source token and `low` elsewhere.
    fn set_flag_rows(&mut self, name: &str, rows: std::ops::Range<usize>, high: f64, low: f64) {
        let (bias, flag) = (self.forwarded.bias, self.forwarded.flag);
        for row in rows {
            self.add_input(name, row, bias, f64::midpoint(high, low));
            self.add_input(name, row, flag, (high - low) / 2.0);
        }
    }

    /// Makes each row from `first` on equal one bit of the source.
    fn set_bit_rows(&mut self, name: &str, first: usize) {
        for (index, column) in self.forwarded.from.columns().enumerate() {
            self.add_input(name, first + index, column, 1.0);
        }
    }

    /// Adds a weight of an output projection, from channel `channel` of `channels` to the target column of bit `bit`.
    fn add_output(&mut self, name: &str, channels: usize, bit: usize, channel: usize, value: f64) {
        let row = self.forwarded.to.column(bit);
        self.add(&format!("{name}.weight"), row * channels + channel, value);
    }

    fn fill(&mut self, name: &str, count: usize, value: f64) {
        (0..count).for_each(|index| self.add(name, index, value));
    }

    /// A convolution that passes the current token through.
    fn set_identity_convolution(&mut self, name: &str, channels: usize, kernel_size: usize) {
        (0..if kernel_size > 0 { channels } else { 0 })
            .for_each(|channel| self.add(&format!("{name}.weight"), channel * kernel_size + kernel_size - 1, 1.0));
    }

    /// Bits in a group of channels, if the bits fill groups of `capacity` bits one after another.
    fn bits_in_group(&self, group: usize, capacity: usize) -> usize {
        self.forwarded.from.size.saturating_sub(group * capacity).min(capacity)
    }

    /// One channel per bit and a norm per head. The norm scales up heads that are not full, which the output projection undoes.
    fn set_normed_bits(&mut self, heads: usize, value_dim: usize, gate: f64) {
        self.set_bit_rows("v_proj", 0);
        for bit in 0..self.forwarded.from.size {
            let filled = self.bits_in_group(bit / value_dim, value_dim) as f64;
            self.add_output("o_proj", heads * value_dim, bit, bit, (filled / value_dim as f64).sqrt() / gate);
        }
    }

    /// A pair of channels per bit and a norm over groups of `group_size` channels, each of which holds half as many bits.
    fn set_normed_pairs(
        &mut self,
        pair: &BitPair,
        (input, first): (&str, usize),
        (output, channels): (&str, usize),
        group_size: usize,
        gate: f64,
    ) {
        let capacity = group_size / 2;
        for (bit, column) in self.forwarded.from.columns().enumerate() {
            let (group, pair_index) = (bit / capacity, bit % capacity);
            let channel = group * group_size + 2 * pair_index;
            let filled = 2.0 * self.bits_in_group(group, capacity) as f64;
            let scale = (filled / group_size as f64 * pair.mean_square).sqrt() / pair.difference / gate;
            for (offset, sign) in [(0, 1.0), (1, -1.0)] {
                self.add_input(input, first + channel + offset, column, sign * pair.amplitude);
                self.add_output(output, channels, bit, channel + offset, sign * scale);
            }
        }
    }
}

pub(crate) fn linear(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, key_dim, value_dim] = ["heads", "key", "value"].map(|option| writer.number(option));
    // The source's feature is 1 and all others are 0. elu+1 is never zero, so the others' inputs are far below; the identity needs 0.
    let (high, low) = match writer.mixer.options().choice("map") {
        FeatureMap::EluPlusOne => (0.0, -40.0),
        FeatureMap::Relu => (1.0, -1.0),
        FeatureMap::Identity => (1.0, 0.0),
    };
    writer.set_keys("k_proj", 0, heads, key_dim, high, low);
    writer.set_queries("q_proj", 0, heads, key_dim, high, low);
    if writer.flag("normaliser") {
        writer.set_bit_rows("v_proj", 0);
        (0..writer.forwarded.from.size).for_each(|bit| writer.add_output("o_proj", heads * value_dim, bit, bit, 1.0));
    } else {
        writer.fill("norm.weight", value_dim, 1.0);
        writer.set_normed_bits(heads, value_dim, 1.0);
    }
}

pub(crate) fn fastmax(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, key_dim, value_dim] = ["heads", "key", "value"].map(|option| writer.number(option));
    // A normalized key of one channel is ±1, so that sums over tokens are integers and rounding changes nothing.
    for row in (0..heads * key_dim).step_by(key_dim) {
        writer.set_flag_rows("k_proj", row..row + 1, LARGE_INPUT, -LARGE_INPUT);
        writer.set_constant_rows("q_proj", row..row + 1, LARGE_INPUT);
    }
    writer.set_bit_rows("v_proj", 0);
    (0..writer.forwarded.from.size).for_each(|bit| writer.add_output("o_proj", heads * value_dim, bit, bit, 1.0));
}

pub(crate) fn retnet(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, key_dim, value_dim] = ["heads", "key", "value"].map(|option| writer.number(option));
    writer.set_flag_rows("k_proj", 0..heads * key_dim, 1.0, 0.0);
    writer.set_constant_rows("q_proj", 0..heads * key_dim, LARGE_INPUT);
    writer.set_constant_rows("g_proj", 0..heads * value_dim, LARGE_INPUT);
    writer.set_normed_bits(heads, value_dim, silu(LARGE_INPUT));
}

/// The last head decays most slowly. Each bit uses a pair of its channels; the other heads stay zero.
pub(crate) fn lightning(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, head_dim] = ["heads", "head"].map(|option| writer.number(option));
    let (inner, pair, bits) = (heads * head_dim, BitPair::through_silu(), writer.forwarded.from.size);
    let first = (heads - 1) * 3 * head_dim;
    writer.set_constant_rows("qkv_proj", first..first + head_dim, LARGE_INPUT);
    writer.set_flag_rows("qkv_proj", first + head_dim..first + head_dim + 1, SILU_ONE, 0.0);
    writer.set_constant_rows("output_gate", 0..inner, SATURATED);
    writer.fill("norm.weight", inner, 1.0);
    let scale = (2.0 * bits as f64 / inner as f64 * pair.mean_square).sqrt() / pair.difference;
    for (bit, column) in writer.forwarded.from.columns().enumerate() {
        for (channel, sign) in [(2 * bit, 1.0), (2 * bit + 1, -1.0)] {
            writer.add_input("qkv_proj", first + 2 * head_dim + channel, column, sign * pair.amplitude);
            writer.add_output("out_proj", inner, bit, (heads - 1) * head_dim + channel, sign * scale);
        }
    }
}

/// The first channel of a head marks the source token, whose gates are open; at all other tokens the state stays as it is.
pub(crate) fn rglru(writer: &mut ForwardingWeightWriter<'_>) {
    let [inner, heads, kernel_size] = ["inner", "heads", "conv"].map(|option| writer.number(option));
    let head_dim = inner / heads;
    writer.set_identity_convolution("conv_1d", inner, kernel_size);
    writer.fill("linear_y.bias", inner, LARGE_INPUT);
    writer.fill("rg_lru.recurrent_param", inner, SATURATED);
    for from in (0..inner).step_by(head_dim) {
        writer.set_flag_rows("linear_x", from..from + 1, 1.0, -1.0);
        for gate in ["input_gate", "recurrent_gate"] {
            let name = format!("rg_lru.{gate}_weight");
            (1..head_dim).for_each(|to| writer.add(&name, from * head_dim + to, EXACTLY_SATURATED));
        }
    }
    for (bit, column) in writer.forwarded.from.columns().enumerate() {
        let channel = bit / (head_dim - 1) * head_dim + 1 + bit % (head_dim - 1);
        writer.add_input("linear_x", channel, column, 1.0);
        // GELU of an input this high is the input itself.
        writer.add_output("linear_out", inner, bit, channel, 1.0 / LARGE_INPUT);
    }
}

pub(crate) fn gla(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, key_dim, value_dim] = ["heads", "key", "value"].map(|option| writer.number(option));
    writer.set_keys("k_proj", 0, heads, key_dim, 1.0, 0.0);
    writer.set_queries("q_proj", 0, heads, key_dim, LARGE_INPUT, 0.0);
    writer.set_constant_rows("g_proj", 0..heads * value_dim, LARGE_INPUT);
    writer.fill("gk_proj.1.bias", heads * key_dim, SATURATED);
    writer.fill("g_norm.weight", value_dim, 1.0);
    writer.set_normed_bits(heads, value_dim, silu(LARGE_INPUT));
}

pub(crate) fn mamba2(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, head_dim, state, groups] = ["heads", "head", "state", "groups"].map(|option| writer.number(option));
    let (inner, group_channels, kernel_size) = (heads * head_dim, groups * state, writer.number("conv"));
    let channels = inner + 2 * group_channels;
    writer.set_constant_rows("in_proj", 0..inner, LARGE_INPUT);
    writer.set_keys("in_proj", 2 * inner, groups, state, SILU_ONE, 0.0);
    writer.set_queries("in_proj", 2 * inner + group_channels, groups, state, SILU_ONE, 0.0);
    writer.set_identity_convolution("conv1d", channels, kernel_size);
    writer.fill("dt_bias", heads, SOFTPLUS_ONE);
    writer.fill("A_log", heads, -SATURATED);
    writer.fill("norm.weight", inner, 1.0);
    // The norm is over the channels of a group. If their number is odd, the last one stays zero.
    writer.set_normed_pairs(&BitPair::through_silu(), ("in_proj", inner), ("out_proj", inner), inner / groups, 1.0);
}

pub(crate) fn deltanet(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, value_dim] = ["heads", "value"].map(|option| writer.number(option));
    delta(writer, heads, heads, value_dim, 1.0);
    if !writer.flag("negative") {
        writer.set_constant_rows("b_proj", 0..heads, SATURATED);
    }
}

pub(crate) fn gdn(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, value_heads, value_dim] = ["heads", "value-heads", "value"].map(|option| writer.number(option));
    delta(writer, heads, value_heads, value_dim, silu(LARGE_INPUT));
    if !writer.flag("negative") {
        writer.set_constant_rows("b_proj", 0..value_heads, SATURATED);
    }
    writer.fill("dt_bias", value_heads, SOFTPLUS_ONE);
    writer.fill("A_log", value_heads, -SATURATED);
    writer.set_constant_rows("g_proj", 0..value_heads * value_dim, LARGE_INPUT);
}

pub(crate) fn deltaproduct(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, value_heads, value_dim] = ["heads", "value-heads", "value"].map(|option| writer.number(option));
    delta(writer, heads, value_heads, value_dim, silu(LARGE_INPUT));
    if !writer.flag("negative") {
        writer.set_constant_rows("b_proj", 0..value_heads, SATURATED);
    }
    if writer.flag("gate") {
        writer.fill("dt_bias", value_heads, SOFTPLUS_ONE);
        writer.fill("A_log", value_heads, -SATURATED);
    }
    writer.set_constant_rows("g_proj", 0..value_heads * value_dim, LARGE_INPUT);
}

pub(crate) fn kda(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, value_heads, key_dim, value_dim] =
        ["heads", "value-heads", "key", "value"].map(|option| writer.number(option));
    delta(writer, heads, value_heads, value_dim, 1.0);
    writer.set_constant_rows("b_proj", 0..value_heads, SATURATED);
    writer.fill("dt_bias", value_heads * key_dim, SOFTPLUS_ONE);
    writer.fill("A_log", value_heads, -SATURATED);
    // KDA's output gate is a sigmoid.
    writer.fill("g_proj.1.bias", value_heads * value_dim, SATURATED);
}

/// A pair of channels per bit through SiLU, whose difference is exact: there is no norm to undo.
pub(crate) fn mamba1(writer: &mut ForwardingWeightWriter<'_>) {
    let [inner, state, kernel_size, rank] = ["inner", "state", "conv", "rank"].map(|option| writer.number(option));
    // Channels that B and C are computed from: nonzero at the source only, and at every token.
    let (source, constant) = (inner - 2, inner - 1);
    writer.set_flag_rows("in_proj", source..constant, SILU_ONE, 0.0);
    writer.set_constant_rows("in_proj", constant..inner, SILU_ONE);
    writer.set_constant_rows("in_proj", inner..2 * inner, LARGE_INPUT);
    writer.set_identity_convolution("conv1d", inner, kernel_size);
    writer.add("x_proj.weight", rank * inner + source, 1.0);
    writer.add("x_proj.weight", (rank + state) * inner + constant, 1.0);
    writer.fill("dt_proj.bias", inner, SOFTPLUS_ONE);
    writer.fill("A_log", inner * state, -SATURATED);
    for (bit, column) in writer.forwarded.from.columns().enumerate() {
        for (channel, sign) in [(2 * bit, 1.0), (2 * bit + 1, -1.0)] {
            writer.add_input("in_proj", channel, column, sign * SILU_ONE);
            writer.add_output("out_proj", inner, bit, channel, sign / (SILU_ONE * silu(LARGE_INPUT)));
        }
    }
}

/// The weights that all delta-rule mixers share. Callers set beta to 1: without negative eigenvalues beta is a sigmoid and needs a high
/// input; with them it is twice a sigmoid, which is 1 at an input of 0.
fn delta(writer: &mut ForwardingWeightWriter<'_>, heads: usize, value_heads: usize, value_dim: usize, gate: f64) {
    let (key_dim, kernel_size) = (writer.number("key"), writer.number("conv"));
    writer.set_keys("k_proj", 0, heads, key_dim, SILU_ONE, 0.0);
    writer.set_queries("q_proj", 0, heads, key_dim, SILU_ONE, 0.0);
    writer.set_identity_convolution("q_conv1d", heads * key_dim, kernel_size);
    writer.set_identity_convolution("k_conv1d", heads * key_dim, kernel_size);
    writer.set_identity_convolution("v_conv1d", value_heads * value_dim, kernel_size);
    writer.fill("o_norm.weight", value_dim, 1.0);
    // If a head has an odd number of channels, the last one stays zero.
    writer.set_normed_pairs(
        &BitPair::through_silu(),
        ("v_proj", 0),
        ("o_proj", value_heads * value_dim),
        value_dim,
        gate,
    );
}

/// The write gate is open at the source token alone; the bits are scaled until `tanh` of them is ±1.
pub(crate) fn gated(writer: &mut ForwardingWeightWriter<'_>) {
    let channels = writer.number("channels");
    writer.set_flag_rows("write_gate", 0..1, EXACTLY_SATURATED, -EXACTLY_SATURATED);
    writer.set_constant_rows("read_gate", 0..1, EXACTLY_SATURATED);
    for (bit, column) in writer.forwarded.from.columns().enumerate() {
        writer.add_input("in_proj", bit, column, EXACTLY_SATURATED);
        writer.add_output("out_proj", channels, bit, bit, 1.0);
    }
}

pub(crate) fn hgrn2(writer: &mut ForwardingWeightWriter<'_>) {
    let width = writer.width;
    writer.set_flag_rows("f_proj", 0..width, -EXACTLY_SATURATED, EXACTLY_SATURATED);
    writer.set_constant_rows("q_proj", 0..width, LARGE_INPUT);
    writer.fill("g_norm.weight", width, 1.0);
    writer.set_bit_rows("i_proj", 0);
    let scale = (writer.forwarded.from.size as f64 / width as f64).sqrt();
    (0..writer.forwarded.from.size).for_each(|bit| writer.add_output("o_proj", width, bit, bit, scale));
}

pub(crate) fn rwkv6(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, head_dim] = ["heads", "head"].map(|option| writer.number(option));
    let inner = heads * head_dim;
    writer.set_keys("k_proj", 0, heads, head_dim, 1.0, 0.0);
    writer.set_queries("r_proj", 0, heads, head_dim, LARGE_INPUT, 0.0);
    writer.fill("time_decay", inner, -SATURATED);
    writer.fill("ln_x.weight", inner, 1.0);
    writer.set_constant_rows("g_proj", 0..inner, LARGE_INPUT);
    writer.set_normed_pairs(&BitPair::IDENTITY, ("v_proj", 0), ("o_proj", inner), head_dim, silu(LARGE_INPUT));
}

/// No token shift and no decay; a row is erased before it is written; the bonus for the current token is zero.
pub(crate) fn rwkv7(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, head_dim, rank] = ["heads", "head", "rank"].map(|option| writer.number(option));
    let inner = heads * head_dim;
    writer.set_keys("k_proj", 0, heads, head_dim, 1.0, 0.0);
    writer.set_queries("r_proj", 0, heads, head_dim, LARGE_INPUT, 0.0);
    writer.fill("k_k", inner, 1.0);
    writer.fill("w_proj.1.bias", inner, -SATURATED);
    writer.fill("a_proj.1.bias", inner, SATURATED);
    writer.fill("g_norm.weight", inner, 1.0);
    if writer.has_shared_input {
        // Use this layer's values, and none of the first layer's.
        writer.fill("v_mix.1.bias", inner, -SATURATED);
    }
    // The gate is a weighted sum of sigmoids: the first is 1 with weight 1, the others have weight 0.
    writer.set_constant_rows("g_proj.0", 0..1, SATURATED);
    (0..inner).for_each(|channel| writer.add("g_proj.1.weight", channel * 2 * rank, 1.0));
    writer.set_normed_pairs(&BitPair::IDENTITY, ("v_proj", 0), ("o_proj", inner), head_dim, 1.0);
}

pub(crate) fn window(writer: &mut ForwardingWeightWriter<'_>) {
    let [heads, kv_heads, key_dim, value_dim, size] =
        ["heads", "kv", "key", "value", "size"].map(|option| writer.number(option));
    let (bias, flag) = (writer.forwarded.bias, writer.forwarded.flag);
    let query = inverse_temperature(size) * (key_dim as f64).sqrt();
    let used_heads = writer.forwarded.from.size.div_ceil(value_dim);
    for kv_head in 0..used_heads {
        writer.add_input("q_proj", kv_head * (heads / kv_heads) * key_dim, bias, query);
        writer.add_input("k_proj", kv_head * key_dim, flag, 1.0);
    }
    writer.set_bit_rows("v_proj", 0);
    for bit in 0..writer.forwarded.from.size {
        let channel = bit / value_dim * (heads / kv_heads) * value_dim + bit % value_dim;
        writer.add_output("o_proj", heads * value_dim, bit, channel, 1.0);
    }
}

pub(crate) fn conv(writer: &mut ForwardingWeightWriter<'_>) {
    let [kernel_size, channels] = ["taps", "channels"].map(|option| writer.number(option));
    let size = writer.forwarded.from.size;
    writer.set_flag_rows("in_proj", 0..size, 1.0, 0.0);
    writer.set_constant_rows("in_proj", channels..channels + size, 1.0);
    writer.set_bit_rows("in_proj", 2 * channels);
    for bit in 0..size {
        writer.add("conv.weight", bit * kernel_size + kernel_size - 2, 1.0);
        writer.add_output("out_proj", channels, bit, bit, 1.0);
    }
}
