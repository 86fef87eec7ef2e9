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
use super::u1::add_lookup_layer;
use super::u2::add_forwarding_layer;
use super::{ConstructError, ConstructionRequest};
use crate::error::ModelError;
use crate::memory;
use crate::register::{ColumnRange, RegisterKind, bits_for};

/// Added to the inverse temperature where a lookup's unrounded result selects: its errors are then below `exp(-16)`.
const EXTRA_INVERSE_TEMPERATURE: f64 = 8.0;

/// S2: the state of a bounded-state layer holds the table z_1.
pub fn table_in_state(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S2", &request.funccomp()?, 0);
    let size = composition.value_bits(1);
    let from = composition.value.low_bits(size);
    let (_, unrounded) = add_table_layers(&mut composition, request, from)?;
    let hop_value = composition.builder.registers.add("i.1", size, RegisterKind::Number, "i_1");
    round_table_read(&mut composition, unrounded, hop_value);
    add_remaining_lookups(&mut composition, 2, hop_value);
    Ok(composition.builder)
}

/// Rejects a construction with too many table entries before it is described: an entry takes a head or several neurons, with a weight for
/// each of the `bits` of a number.
fn check_entries(name: &str, count: u32, bits: usize) -> Result<(), ConstructError> {
    const BYTES_PER_BIT: u128 = 1024;
    let bytes = u128::from(count) * (bits as u128 + 1) * BYTES_PER_BIT;
    memory::check(format!("the construction {name} of {count} entries"), bytes, None).map_err(ModelError::Memory)?;
    Ok(())
}

/// S3: entries of z_e look up z_(e+1) in advance, in the layer in which w does its first lookup.
pub fn prefetch(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S3", &request.funccomp()?, 0);
    let (hops, bias) = (composition.hops(), composition.bias);
    let prefetched_hop = choose_prefetched_hop(request, hops)?;
    let (row_group_count, size) =
        (request.growth_factors[prefetched_hop - 1], composition.value_bits(prefetched_hop + 1));
    let mut heads = Vec::new();
    let (mut neurons, mut prefetched_values) = (Vec::new(), Vec::new());
    let (entry_value, entry_row_group) = (
        composition.value.low_bits(composition.value_bits(prefetched_hop)),
        composition.entry_row_group.low_bits(bits_for(u64::from(row_group_count))),
    );
    let mut hop_value = match request.mixer {
        Some(_) => {
            let from = composition.value.low_bits(composition.value_bits(0));
            add_forwarding_layer(&mut composition, request, from, 0)?
        }
        None => composition.bias,
    };
    let first_hop = usize::from(request.mixer.is_some());
    let (unrounded, first_value) = composition.add_hop_value_registers(first_hop);
    heads.push(if first_hop == 0 {
        composition.start_head(unrounded)
    } else {
        composition.table_head(1, hop_value, unrounded)
    });
    neurons.extend(rounding_neurons(unrounded, first_value, bias));
    hop_value = first_value;
    check_entries("S3", row_group_count, size)?;
    for row_group in 0..row_group_count {
        let registers = &mut composition.builder.registers;
        let unrounded = registers.add(
            format!("read.ahead.{row_group}"),
            size,
            RegisterKind::Unrounded,
            "what was prefetched, as it was read",
        );
        let prefetched = registers.add(
            format!("ahead.{row_group}"),
            size,
            RegisterKind::Number,
            format!("z_{}({row_group}, value), at entries of z_{prefetched_hop}", prefetched_hop + 1),
        );
        let key_match = KeyMatch::new()
            .key_flag(composition.entry_flags[prefetched_hop], bias)
            .equal_constant(u64::from(row_group), entry_row_group, bias)
            .equal_bits(entry_value, composition.entry_argument);
        heads.push(lookup_head(
            &key_match,
            composition.inverse_temperature,
            &[(composition.value.low_bits(size), unrounded)],
        ));
        neurons.extend(rounding_neurons(unrounded, prefetched, bias));
        prefetched_values.push(prefetched);
    }
    let about = format!(
        "w {}; entries of z_{prefetched_hop} prefetch from z_{}",
        if first_hop == 0 { "reads z_0" } else { "looks up z_1" },
        prefetched_hop + 1
    );
    composition.builder.add_layer(about, LayerMixer::Attention(heads), neurons);
    let mut hop = first_hop + 1;
    while hop <= hops {
        if hop != prefetched_hop {
            hop_value = add_lookup_layer(&mut composition, hop, hop_value);
            hop += 1;
            continue;
        }
        hop_value = add_double_lookup_layer(&mut composition, prefetched_hop, hop_value, &prefetched_values);
        hop += 2;
    }
    composition.builder.unembed_number(hop_value);
    Ok(composition.builder)
}

/// The hop whose entries prefetch from the next table: the requested one, or the one whose next table has the fewest row groups.
fn choose_prefetched_hop(request: &ConstructionRequest, hops: usize) -> Result<usize, ConstructError> {
    let min_hop = if request.mixer.is_some() { 2 } else { 1 };
    let prefetched_hop = request
        .prefetch_hop
        .or_else(|| (min_hop..hops).min_by_key(|hop| (request.growth_factors[hop - 1], *hop)))
        .unwrap_or(0);
    if (min_hop..hops).contains(&prefetched_hop) {
        return Ok(prefetched_hop);
    }
    let expected = format!("{min_hop} to {} (from L = {} on)", hops.saturating_sub(1), min_hop + 1);
    let (option, found) = ("the hop that is prefetched", prefetched_hop.to_string());
    Err(ConstructError::InvalidOption { name: "S3", option, found, expected })
}

/// The layer in which w looks up an entry of z_e and, in the same entry, the value of z_(e+1) in the row group
/// that w selects. Returns the register of that value.
fn add_double_lookup_layer(
    composition: &mut CompositionBuilder,
    prefetched_hop: usize,
    hop_value: ColumnRange,
    prefetched_values: &[ColumnRange],
) -> ColumnRange {
    let (size, bias) = (composition.value_bits(prefetched_hop + 1), composition.bias);
    let registers = &mut composition.builder.registers;
    let reads: Vec<ColumnRange> = (0..prefetched_values.len())
        .map(|row_group| {
            let about = "a value that the entry prefetched";
            registers.add(format!("read.row.{row_group}"), size, RegisterKind::Unrounded, about)
        })
        .collect();
    let next_value = registers.add(
        format!("i.{}", prefetched_hop + 1),
        size,
        RegisterKind::Number,
        format!("i_{}", prefetched_hop + 1),
    );
    let copies: Vec<(ColumnRange, ColumnRange)> =
        prefetched_values.iter().copied().zip(reads.iter().copied()).collect();
    let row_group = (prefetched_hop > 1).then(|| composition.query_row_groups[prefetched_hop - 2]);
    let head = lookup_head(
        &composition.entry_match(prefetched_hop, row_group, hop_value),
        composition.inverse_temperature,
        &copies,
    );
    let is_selected = |row_group: usize| if_equal(composition.query_row_groups[prefetched_hop - 1], row_group as u64);
    let neurons = reads
        .iter()
        .enumerate()
        .flat_map(|(row_group, unrounded)| {
            gated_rounding_neurons(*unrounded, next_value, bias, &is_selected(row_group))
        })
        .collect();
    composition.builder.add_layer(
        format!("w looks up z_{prefetched_hop} and, in the same entry, z_{}", prefetched_hop + 1),
        LayerMixer::Attention(vec![head]),
        neurons,
    );
    next_value
}

/// S4: the first layer reads z_0 and every entry of z_1, and selects.
pub fn speculation(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("S4", &request.funccomp()?, 0);
    composition.inverse_temperature += EXTRA_INVERSE_TEMPERATURE;
    let (start_bits, size, bias) = (composition.value_bits(0), composition.value_bits(1), composition.bias);
    let start = composition.builder.registers.add("read.0", start_bits, RegisterKind::Unrounded, "z_0 as it was read");
    let hop_value = composition.builder.registers.add("i.1", size, RegisterKind::Number, "i_1");
    let mut heads = vec![composition.start_head(start)];
    let mut neurons = Vec::new();
    check_entries("S4", request.first_table_entries, size)?;
    for entry in 0..request.first_table_entries {
        let unrounded = composition.builder.registers.add(
            format!("read.z1.{entry}"),
            size,
            RegisterKind::Unrounded,
            format!("z_1({entry})"),
        );
        let key_match = KeyMatch::new().key_flag(composition.entry_flags[0], bias).equal_constant(
            u64::from(entry),
            composition.entry_argument.low_bits(start_bits),
            bias,
        );
        heads.push(lookup_head(
            &key_match,
            composition.inverse_temperature,
            &[(composition.value.low_bits(size), unrounded)],
        ));
        neurons.extend(gated_rounding_neurons(unrounded, hop_value, bias, &if_equal(start, u64::from(entry))));
    }
    composition.inverse_temperature -= EXTRA_INVERSE_TEMPERATURE;
    composition.builder.add_layer("w reads z_0 and all of z_1, and chooses", LayerMixer::Attention(heads), neurons);
    add_remaining_lookups(&mut composition, 2, hop_value);
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
        return Err(ConstructError::InvalidOption { name: "S5", option: "candidates", found, expected });
    }
    let from = ColumnRange { start: composition.value.start + low_size, size: size - low_size };
    let (start, unrounded) = add_table_layers(&mut composition, request, from)?;
    let high_bits =
        composition.builder.registers.add("class", size - low_size, RegisterKind::Number, "high bits of i_1");
    round_table_read(&mut composition, unrounded, high_bits);
    composition.inverse_temperature += EXTRA_INVERSE_TEMPERATURE;
    let low_bits = composition.builder.registers.add(
        "read.1",
        low_size,
        RegisterKind::Unrounded,
        "low bits of i_1 as they were read",
    );
    let low_bits_head = lookup_head(
        &composition.entry_match(1, None, start),
        composition.inverse_temperature,
        &[(composition.value.low_bits(low_size), low_bits)],
    );
    let next_size = composition.value_bits(2);
    let hop_value = composition.builder.registers.add("i.2", next_size, RegisterKind::Number, "i_2");
    let (mut heads, mut neurons) = (vec![low_bits_head], Vec::<Neuron>::new());
    check_entries("S5", request.candidates, next_size)?;
    for candidate in 0..request.candidates {
        let unrounded = composition.builder.registers.add(
            format!("read.2.{candidate}"),
            next_size,
            RegisterKind::Unrounded,
            "i_2 of a candidate",
        );
        let key_high_bits = ColumnRange { start: composition.entry_argument.start + low_size, size: size - low_size };
        let key_match = KeyMatch::new()
            .key_flag(composition.entry_flags[1], bias)
            .equal_constant(u64::from(candidate), composition.entry_argument.low_bits(low_size), bias)
            .equal_bits(high_bits, key_high_bits)
            .equal_bits(composition.query_row_groups[0], composition.entry_row_group);
        heads.push(lookup_head(
            &key_match,
            composition.inverse_temperature,
            &[(composition.value.low_bits(next_size), unrounded)],
        ));
        neurons.extend(gated_rounding_neurons(unrounded, hop_value, bias, &if_equal(low_bits, u64::from(candidate))));
    }
    composition.inverse_temperature -= EXTRA_INVERSE_TEMPERATURE;
    composition.builder.add_layer(
        "w looks up z_1, and z_2 for every candidate, and chooses",
        LayerMixer::Attention(heads),
        neurons,
    );
    add_remaining_lookups(&mut composition, 3, hop_value);
    Ok(composition.builder)
}

/// Adds the layers that look up the tables from z_`first_hop` on, and the answer.
fn add_remaining_lookups(composition: &mut CompositionBuilder, first_hop: usize, mut hop_value: ColumnRange) {
    for hop in first_hop..=composition.hops() {
        hop_value = add_lookup_layer(composition, hop, hop_value);
    }
    composition.builder.unembed_number(hop_value);
}

/// Adds two layers. The first copies z_0 to w, and its MLP computes row indices; the state of the second holds a table of some bits of z_1.
/// Returns the register of z_0 and the register of what w read from the table.
fn add_table_layers(
    composition: &mut CompositionBuilder,
    request: &ConstructionRequest,
    from: ColumnRange,
) -> Result<(ColumnRange, ColumnRange), ConstructError> {
    let (bias, m, start_bits) = (composition.bias, request.first_table_entries as usize, composition.value_bits(0));
    let registers = &mut composition.builder.registers;
    let unrounded_start = registers.add("read.0", start_bits, RegisterKind::Unrounded, "z_0 as it was forwarded");
    let start = registers.add("i.0", start_bits, RegisterKind::Number, "z_0");
    let written_row = registers.add("slot", m, RegisterKind::OneHot, "at entries of z_1: where they write");
    let read_row = registers.add("asks", m, RegisterKind::OneHot, "at w: the row of the state for z_0");
    let unrounded = registers.add("read.table", from.size, RegisterKind::Unrounded, "what w read from the table");
    let width = registers.width() as u64;
    let forwarded = ForwardedBits {
        from: composition.value.low_bits(start_bits),
        to: unrounded_start,
        flag: composition.start_flag.start,
        bias: bias.start,
        table_rows: None,
    };
    let mut neurons = rounding_neurons(unrounded_start, start, bias);
    let row_neuron = |register: ColumnRange, flag: ColumnRange, number: usize, to: ColumnRange| {
        let gates: Vec<Gate> = if_equal(register, number as u64).into_iter().chain([if_set(flag)]).collect();
        indicator_neuron(bias, &gates, vec![(to.column(number), 1.0)])
    };
    check_entries("S2", m as u32, start_bits)?;
    for number in 0..m {
        neurons.push(row_neuron(
            composition.entry_argument.low_bits(start_bits),
            composition.entry_flags[0],
            number,
            written_row,
        ));
        neurons.push(row_neuron(unrounded_start, composition.query_flag, number, read_row));
    }
    let start_mixer = forwarding::resolve_mixer(request.forwarding_mixer(), start_bits, 0, width)?;
    composition.builder.add_layer(
        "the state forwards z_0 to w; entries of z_1 compute their rows of the next state",
        LayerMixer::Forwarding(forwarded, start_mixer),
        neurons,
    );
    let table_mixer = forwarding::resolve_mixer(request.forwarding_mixer(), from.size, m, width)?;
    let forwarded = ForwardedBits {
        from,
        to: unrounded,
        flag: composition.start_flag.start,
        bias: bias.start,
        table_rows: Some([written_row, read_row]),
    };
    composition.builder.add_layer(
        "w asks the table of z_1 in the state",
        LayerMixer::Forwarding(forwarded, table_mixer),
        Vec::new(),
    );
    Ok((start, unrounded))
}

/// Rounds what was read from the table, in the MLP of the layer that read it.
fn round_table_read(composition: &mut CompositionBuilder, unrounded: ColumnRange, to: ColumnRange) {
    let neurons = rounding_neurons(unrounded, to, composition.bias);
    composition.builder.add_neurons(neurons);
}
