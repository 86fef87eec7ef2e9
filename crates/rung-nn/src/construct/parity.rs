//! Parity by one recurrent layer, and parity-conditioned retrieval by a hybrid. `rung explain parity-recurrence` and `parity-hybrid`
//! give the arguments.

use rung_theory::stack::{Defaults, Mixer};
use rung_theory::task;

use super::blocks::{
    KeyMatch, gated_rounding_neurons, if_set, if_unset, inverse_temperature, lookup_head, threshold_neurons,
};
use super::builder::{ConstructionBuilder, LayerMixer, WeightEntry};
use super::{ConstructError, ConstructionRequest};
use crate::register::{ColumnRange, RegisterKind, bits_for};

/// Fields of a token of `parity-retrieval`.
mod field {
    pub(super) const KIND: usize = 0;
    pub(super) const BIT: usize = 1;
    pub(super) const KEY: usize = 2;
    pub(super) const EVEN: usize = 3;
    pub(super) const ODD: usize = 4;
}

/// Parity of a bit string, by one `DeltaNet` layer with negative eigenvalues.
pub fn parity(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut builder = ConstructionBuilder::new("parity", task::parse(&format!("parity{{length={}}}", request.length))?);
    let one_flag = builder.registers.add("flips", 1, RegisterKind::Flag, "the token is a bit that is 1");
    builder.embed(0, move |symbol| vec![(one_flag.start, if symbol == 1 { 1.0 } else { -1.0 })]);
    let odd_flag = add_parity_layer(&mut builder, one_flag)?;
    builder.unembed(move |class| odd_flag.encode(class as u64));
    Ok(builder)
}

/// A [`parity`] layer, then one full-attention layer that looks up a value of the entry; the parity selects which.
pub fn retrieval(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let ConstructionRequest { length, entries, value_count, .. } = *request;
    let spec = format!(
        "parity-retrieval{{bits={length},entries={entries},keys={},values={value_count}}}",
        entries.saturating_mul(2)
    );
    let task = task::parse(&spec)?;
    let (fields, tokens) = (task.fields(), task.length());
    let mut builder = ConstructionBuilder::new("parity-retrieval", task);
    let bias = builder.bias;
    let blank = |field: usize| fields[field].vocabulary - 1;
    let size = |field: usize| bits_for(u64::from(blank(field)));
    let registers = &mut builder.registers;
    let one_flag = registers.add("flips", 1, RegisterKind::Flag, "the token is a bit that is 1");
    let entry_flag = registers.add("is.entry", 1, RegisterKind::Flag, "the token is an entry");
    let key = registers.add("key", size(field::KEY), RegisterKind::Number, "key of an entry or of the query");
    let [even, odd] = [("even", field::EVEN), ("odd", field::ODD)]
        .map(|(name, field)| registers.add(name, size(field), RegisterKind::Number, "a value of an entry"));
    let [even_readout, odd_readout] = ["even", "odd"].map(|name| {
        registers.add(format!("read.{name}"), even.size, RegisterKind::Unrounded, "a value as it was read")
    });
    let answer = registers.add("answer", even.size, RegisterKind::Number, "the value that the parity chooses");
    builder.embed(field::KIND, move |kind| vec![(entry_flag.start, if kind == 1 { 1.0 } else { -1.0 })]);
    builder.embed(field::BIT, move |bit| vec![(one_flag.start, if bit == 1 { 1.0 } else { -1.0 })]);
    for (field, register) in [(field::KEY, key), (field::EVEN, even), (field::ODD, odd)] {
        builder.embed_number(field, register, blank(field));
    }
    let odd_flag = add_parity_layer(&mut builder, one_flag)?;
    let key_match = KeyMatch::new().key_flag(entry_flag, bias).equal_bits(key, key);
    let head = lookup_head(&key_match, inverse_temperature(tokens), &[(even, even_readout), (odd, odd_readout)]);
    let mut neurons = gated_rounding_neurons(even_readout, answer, bias, &[if_unset(odd_flag)]);
    neurons.extend(gated_rounding_neurons(odd_readout, answer, bias, &[if_set(odd_flag)]));
    builder.add_layer("the query looks up both values; the parity chooses", LayerMixer::Attention(vec![head]), neurons);
    builder.unembed_number(answer);
    Ok(builder)
}

/// Adds a layer whose state is 1 after an odd number of ones and 0 after an even number; returns the flag that is set if odd.
///
/// At a token whose bit is 1, beta is 2 and the state becomes `2 v - S = 1 - S` with v = 1/2; elsewhere beta is 0.
fn add_parity_layer(builder: &mut ConstructionBuilder, one_flag: ColumnRange) -> Result<ColumnRange, ConstructError> {
    let bias = builder.bias;
    let readout = builder.registers.add("read.parity", 1, RegisterKind::Unrounded, "the state as it was read: 0 or 1");
    let odd_flag = builder.registers.add("odd-ones", 1, RegisterKind::Flag, "the number of ones so far is odd");
    let width = builder.registers.width();
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width as u64), bits: 32 };
    let mixer = Mixer::new("deltanet", &[("heads", 1), ("conv", 0), ("negative", 1)], &defaults)?;
    let entry = |name: &str, index: usize, value: f64| -> WeightEntry { (format!("{name}.weight"), index, value) };
    let entries = vec![
        entry("q_proj", bias.start, 8.0),
        entry("k_proj", bias.start, 8.0),
        entry("v_proj", bias.start, inverse_silu_of_half()),
        entry("b_proj", one_flag.start, 30.0),
        entry("o_norm", 0, 1.0),
        entry("o_proj", readout.start, 1.0),
    ];
    // With eigenvalues of -1, rounding errors grow within the triangular solve of a long chunk.
    builder.set_chunk_size(4);
    builder.add_layer(
        "each one flips the state",
        LayerMixer::Explicit(mixer, entries),
        threshold_neurons(readout.start, odd_flag, 0.5, bias),
    );
    Ok(odd_flag)
}

/// The x whose SiLU is 1/2, by bisection.
fn inverse_silu_of_half() -> f64 {
    let (mut low, mut high) = (0.0_f64, 2.0_f64);
    for _ in 0..60 {
        let midpoint = f64::midpoint(low, high);
        if midpoint / (1.0 + (-midpoint).exp()) < 0.5 { low = midpoint } else { high = midpoint }
    }
    low
}
