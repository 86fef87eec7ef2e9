//! S2 to S5: fewer layers where tables are small. `rung explain S2` and so on give the arguments; the names w, z_l and i_l are those
//! of [`u1`](super::u1).
//!
//! In all of them an MLP selects the result that would otherwise need a further lookup. S4 and S5 select by a number that the same layer has
//! looked up and that is not rounded yet; their lookups have a higher inverse temperature, so that it is close enough to bits to be used unrounded.

use super::blocks::{
    Gate, KeyMatch, gated_rounding_neurons, if_equal, if_set, indicator_neuron, lookup_head, rounding_neurons,
};
use super::builder::{ConstructionBuilder, LayerMixer, Neuron};
use super::composition::CompositionBuilder;
use super::forwarding::{self, ForwardedBits};
use super::register::{ColumnRange, RegisterKind, bits_for};
use super::u1::add_lookup_layer;
use super::u2::add_forwarding_layer;
use super::{ConstructError, ConstructionRequest};

/// Added to the inverse temperature where a lookup's unrounded result selects: its errors are then below `exp(-16)`.
const EXTRA_INVERSE_TEMPERATURE: f64 = 8.0;

/// S2: the state of a bounded-state layer holds the table z_1.
pub fn table_in_state(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S2", &request.funccomp()?, 0);
    let size = composition.value_bits(1);
    let from = composition.value.low_bits(size);
    let (_, raw) = add_table_layers(&mut composition, request, from)?;
    let index = composition.builder.registers.add("i.1", size, RegisterKind::Number, "i_1");
    round_table_read(&mut composition, raw, index);
    add_remaining_lookups(&mut composition, 2, index);
    Ok(composition.builder)
}

/// S3: entries of z_e look up z_(e+1) in advance, in the layer in which w does its first lookup.
pub fn prefetch(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S3", &request.funccomp()?, 0);
    let (hops, bias) = (composition.hops(), composition.bias);
    let min_hop = if request.mixer.is_some() { 2 } else { 1 };
    let e = request.at.or_else(|| (min_hop..hops).min_by_key(|e| (request.n[e - 1], *e))).unwrap_or(0);
    if !(min_hop..hops).contains(&e) {
        let expected = format!("{min_hop} to {} (from L = {} on)", hops.saturating_sub(1), min_hop + 1);
        return Err(ConstructError::Option {
            name: "S3",
            option: "the hop that is prefetched",
            found: e.to_string(),
            expected,
        });
    }
    let (branches, size) = (request.n[e - 1], composition.value_bits(e + 1));
    let mut heads = Vec::new();
    let (mut neurons, mut ahead) = (Vec::new(), Vec::new());
    let (entry_value, outer) = (
        composition.value.low_bits(composition.value_bits(e)),
        composition.outer.low_bits(bits_for(u64::from(branches))),
    );
    let mut index = match request.mixer {
        Some(_) => {
            let from = composition.value.low_bits(composition.value_bits(0));
            add_forwarding_layer(&mut composition, request, from, 0)?
        }
        None => composition.bias,
    };
    let first = usize::from(request.mixer.is_some());
    let (raw, first_index) = composition.add_index_registers(first);
    heads.push(if first == 0 { composition.start_head(raw) } else { composition.table_head(1, index, raw) });
    neurons.extend(rounding_neurons(raw, first_index, bias));
    index = first_index;
    for branch in 0..branches {
        let registers = &mut composition.builder.registers;
        let raw = registers.add(format!("read.ahead.{branch}"), size, RegisterKind::Raw, "what was looked up ahead");
        let prefetched = registers.add(
            format!("ahead.{branch}"),
            size,
            RegisterKind::Number,
            format!("z_{}({branch}, value), at entries of z_{e}", e + 1),
        );
        let key_match = KeyMatch::new()
            .key_flag(composition.entry_flags[e], bias)
            .equal_constant(u64::from(branch), outer, bias)
            .equal_bits(entry_value, composition.inner);
        heads.push(lookup_head(
            &key_match,
            composition.inverse_temperature,
            &[(composition.value.low_bits(size), raw)],
        ));
        neurons.extend(rounding_neurons(raw, prefetched, bias));
        ahead.push(prefetched);
    }
    let about = format!(
        "w {}; entries of z_{e} look ahead into z_{}",
        if first == 0 { "reads z_0" } else { "looks up z_1" },
        e + 1
    );
    composition.builder.add_layer(about, LayerMixer::Attention(heads), neurons);
    let mut l = first + 1;
    while l <= hops {
        if l != e {
            index = add_lookup_layer(&mut composition, l, index);
            l += 1;
            continue;
        }
        let registers = &mut composition.builder.registers;
        let reads: Vec<ColumnRange> = (0..branches)
            .map(|branch| {
                registers.add(
                    format!("read.row.{branch}"),
                    size,
                    RegisterKind::Raw,
                    "a row that the entry had looked up ahead",
                )
            })
            .collect();
        let next_index = registers.add(format!("i.{}", e + 1), size, RegisterKind::Number, format!("i_{}", e + 1));
        let copies: Vec<(ColumnRange, ColumnRange)> = ahead.iter().copied().zip(reads.iter().copied()).collect();
        let outer = (e > 1).then(|| composition.query_parts[e - 2]);
        let head = lookup_head(&composition.entry_match(e, outer, index), composition.inverse_temperature, &copies);
        let is_selected = |branch: usize| if_equal(composition.query_parts[e - 1], branch as u64);
        let neurons = reads
            .iter()
            .enumerate()
            .flat_map(|(branch, raw)| gated_rounding_neurons(*raw, next_index, bias, &is_selected(branch)))
            .collect();
        composition.builder.add_layer(
            format!("w looks up z_{e} and, in the same entry, z_{}", e + 1),
            LayerMixer::Attention(vec![head]),
            neurons,
        );
        index = next_index;
        l += 2;
    }
    composition.builder.unembed_number(index);
    Ok(composition.builder)
}

/// S4: the first layer reads z_0 and every entry of z_1, and selects.
pub fn speculation(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S4", &request.funccomp()?, 0);
    composition.inverse_temperature += EXTRA_INVERSE_TEMPERATURE;
    let (start_bits, size, bias) = (composition.value_bits(0), composition.value_bits(1), composition.bias);
    let start = composition.builder.registers.add("read.0", start_bits, RegisterKind::Raw, "z_0 as it was read");
    let index = composition.builder.registers.add("i.1", size, RegisterKind::Number, "i_1");
    let mut heads = vec![composition.start_head(start)];
    let mut neurons = Vec::new();
    for entry in 0..request.m {
        let raw = composition.builder.registers.add(
            format!("read.z1.{entry}"),
            size,
            RegisterKind::Raw,
            format!("z_1({entry})"),
        );
        let key_match = KeyMatch::new().key_flag(composition.entry_flags[0], bias).equal_constant(
            u64::from(entry),
            composition.inner.low_bits(start_bits),
            bias,
        );
        heads.push(lookup_head(
            &key_match,
            composition.inverse_temperature,
            &[(composition.value.low_bits(size), raw)],
        ));
        neurons.extend(gated_rounding_neurons(raw, index, bias, &if_equal(start, u64::from(entry))));
    }
    composition.inverse_temperature -= EXTRA_INVERSE_TEMPERATURE;
    composition.builder.add_layer("w reads z_0 and all of z_1, and chooses", LayerMixer::Attention(heads), neurons);
    add_remaining_lookups(&mut composition, 2, index);
    Ok(composition.builder)
}

/// S5: the state holds the high bits of z_1; the first full-attention layer looks up z_2 for every value of the low bits.
pub fn candidates(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S5", &request.funccomp()?, 0);
    let (hops, size, bias) = (composition.hops(), composition.value_bits(1), composition.bias);
    let low_size = request.candidates.max(1).ilog2() as usize;
    if hops < 2 || low_size == 0 || low_size >= size || !request.candidates.is_power_of_two() {
        let (found, expected) = (
            request.candidates.to_string(),
            format!("a power of two above 1 and below {}, and two hops", 1_u64 << size),
        );
        return Err(ConstructError::Option { name: "S5", option: "candidates", found, expected });
    }
    let from = ColumnRange { start: composition.value.start + low_size, size: size - low_size };
    let (start, raw) = add_table_layers(&mut composition, request, from)?;
    let high_bits =
        composition.builder.registers.add("class", size - low_size, RegisterKind::Number, "high bits of i_1");
    round_table_read(&mut composition, raw, high_bits);
    composition.inverse_temperature += EXTRA_INVERSE_TEMPERATURE;
    let low_bits =
        composition.builder.registers.add("read.1", low_size, RegisterKind::Raw, "low bits of i_1 as they were read");
    let low_bits_head = lookup_head(
        &composition.entry_match(1, None, start),
        composition.inverse_temperature,
        &[(composition.value.low_bits(low_size), low_bits)],
    );
    let next_size = composition.value_bits(2);
    let index = composition.builder.registers.add("i.2", next_size, RegisterKind::Number, "i_2");
    let (mut heads, mut neurons) = (vec![low_bits_head], Vec::<Neuron>::new());
    for candidate in 0..request.candidates {
        let raw = composition.builder.registers.add(
            format!("read.2.{candidate}"),
            next_size,
            RegisterKind::Raw,
            "i_2 of a candidate",
        );
        let key_high_bits = ColumnRange { start: composition.inner.start + low_size, size: size - low_size };
        let key_match = KeyMatch::new()
            .key_flag(composition.entry_flags[1], bias)
            .equal_constant(u64::from(candidate), composition.inner.low_bits(low_size), bias)
            .equal_bits(high_bits, key_high_bits)
            .equal_bits(composition.query_parts[0], composition.outer);
        heads.push(lookup_head(
            &key_match,
            composition.inverse_temperature,
            &[(composition.value.low_bits(next_size), raw)],
        ));
        neurons.extend(gated_rounding_neurons(raw, index, bias, &if_equal(low_bits, u64::from(candidate))));
    }
    composition.inverse_temperature -= EXTRA_INVERSE_TEMPERATURE;
    composition.builder.add_layer(
        "w looks up z_1, and z_2 for every candidate, and chooses",
        LayerMixer::Attention(heads),
        neurons,
    );
    add_remaining_lookups(&mut composition, 3, index);
    Ok(composition.builder)
}

/// Adds the layers that look up the tables from z_`first` on, and the answer.
fn add_remaining_lookups(composition: &mut CompositionBuilder, first: usize, mut index: ColumnRange) {
    for l in first..=composition.hops() {
        index = add_lookup_layer(composition, l, index);
    }
    composition.builder.unembed_number(index);
}

/// Adds two layers. The first copies z_0 to w, and its MLP computes slots; the state of the second holds a table of some bits of z_1.
/// Returns the register of z_0 and the register of what w read from the table.
fn add_table_layers(
    composition: &mut CompositionBuilder,
    request: &ConstructionRequest,
    from: ColumnRange,
) -> Result<(ColumnRange, ColumnRange), ConstructError> {
    let (bias, m, start_bits) = (composition.bias, request.m as usize, composition.value_bits(0));
    let registers = &mut composition.builder.registers;
    let raw_start = registers.add("read.0", start_bits, RegisterKind::Raw, "z_0 as it was handed on");
    let start = registers.add("i.0", start_bits, RegisterKind::Number, "z_0");
    let written_slot = registers.add("slot", m, RegisterKind::OneHot, "at entries of z_1: where they write");
    let read_slot = registers.add("asks", m, RegisterKind::OneHot, "at w: the slot of z_0");
    let raw = registers.add("read.table", from.size, RegisterKind::Raw, "what the table said");
    let width = registers.width() as u64;
    let forwarded = ForwardedBits {
        from: composition.value.low_bits(start_bits),
        to: raw_start,
        flag: composition.start_flag.start,
        bias: bias.start,
        slots: None,
    };
    let mut neurons = rounding_neurons(raw_start, start, bias);
    let slot_neuron = |register: ColumnRange, flag: ColumnRange, number: usize, to: ColumnRange| {
        let gates: Vec<Gate> = if_equal(register, number as u64).into_iter().chain([if_set(flag)]).collect();
        indicator_neuron(bias, &gates, vec![(to.column(number), 1.0)])
    };
    for number in 0..m {
        neurons.push(slot_neuron(
            composition.inner.low_bits(start_bits),
            composition.entry_flags[0],
            number,
            written_slot,
        ));
        neurons.push(slot_neuron(raw_start, composition.query_flag, number, read_slot));
    }
    let start_mixer = forwarding::resolve_mixer(request.mixer(), start_bits, 0, width)?;
    composition.builder.add_layer(
        "the state hands z_0 to w; entries of z_1 find their slots",
        LayerMixer::Forwarding(forwarded, start_mixer),
        neurons,
    );
    let table_mixer = forwarding::resolve_mixer(request.mixer(), from.size, m, width)?;
    let forwarded = ForwardedBits {
        from,
        to: raw,
        flag: composition.start_flag.start,
        bias: bias.start,
        slots: Some([written_slot, read_slot]),
    };
    composition.builder.add_layer(
        "w asks the table of z_1 in the state",
        LayerMixer::Forwarding(forwarded, table_mixer),
        Vec::new(),
    );
    Ok((start, raw))
}

/// Rounds what was read from the table, in the MLP of the layer that read it.
fn round_table_read(composition: &mut CompositionBuilder, raw: ColumnRange, to: ColumnRange) {
    let neurons = rounding_neurons(raw, to, composition.bias);
    composition.builder.add_neurons(neurons);
}
