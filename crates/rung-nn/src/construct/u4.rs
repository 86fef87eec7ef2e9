//! U4: all tokens read w, then pointer doubling. `rung explain U4` gives the argument; the names w, z_l and i_l are those of
//! [`u1`](super::u1).
//!
//! A node is a token with a pointer: an entry of table l (z_l), or the answering token (table 0, whose pointer is z_0).
//! After t rounds the pointer of a node of table l is i_(l + 2^t - 1), but at most i_L. In round t a node looks up the entry of table
//! l + 2^(t-1) that its pointer names, and copies that entry's pointer.

use rung_theory::task::funccomp::Order;

use super::blocks::{KeyMatch, gated_copy_neurons, gated_rounding_neurons, if_any, if_set, lookup_head, negate};
use super::builder::{ConstructionBuilder, LayerMixer, Neuron};
use super::composition::CompositionBuilder;
use super::{ConstructError, ConstructionRequest};
use crate::register::{ColumnRange, RegisterKind};

/// U4: bidirectional attention, with the prompt in its usual order.
pub fn bidirectional(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    build_layers("U4", request, Order::LastTableFirst)
}

/// U4-causal: causal attention, with w as the first token.
pub fn query_first(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    build_layers("U4-causal", request, Order::QueryFirst)
}

fn build_layers(
    name: &'static str,
    request: &ConstructionRequest,
    order: Order,
) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new(name, &request.funccomp_in_order(order)?, 0);
    if order == Order::LastTableFirst {
        composition.builder.set_bidirectional();
    }
    let (bias, hops, size) = (composition.bias, composition.hops(), composition.value.size);
    let rounds = hops.ilog2() as usize + 1;
    let mut table_flags = vec![composition.slot_flag.unwrap_or(composition.query_flag)];
    table_flags.extend(composition.entry_flags.iter().copied());
    let registers = &mut composition.builder.registers;
    let mut add_number =
        |name: String, size: usize, about: &str| registers.add(name, size, RegisterKind::Number, about);
    let read_start = add_number("read.start".to_owned(), size, "z_0 as it was read");
    let read_row_groups: Vec<ColumnRange> = composition
        .query_row_groups
        .iter()
        .enumerate()
        .map(|(e, row_group)| add_number(format!("read.w.{}", e + 1), row_group.size, "row group in w as it was read"))
        .collect();
    let mut pointer = add_number("pointer.0".to_owned(), size, "the pointer before the first round");
    let round_row_groups: Vec<ColumnRange> = (1..=rounds)
        .map(|round| {
            add_number(
                format!("outer.{round}"),
                composition.entry_row_group.size,
                "the row group in w that the round needs",
            )
        })
        .collect();

    let copies: Vec<(ColumnRange, ColumnRange)> =
        composition.query_row_groups.iter().copied().zip(read_row_groups.iter().copied()).collect();
    let mut heads = vec![lookup_head(
        &KeyMatch::new().key_flag(composition.start_flag, bias),
        composition.inverse_temperature,
        &[(composition.value, read_start)],
    )];
    if !copies.is_empty() {
        heads.push(lookup_head(
            &KeyMatch::new().key_flag(composition.query_flag, bias),
            composition.inverse_temperature,
            &copies,
        ));
    }
    let mut neurons = gated_rounding_neurons(read_start, pointer, bias, &[if_set(table_flags[0])]);
    neurons.extend(gated_copy_neurons(composition.value, pointer, bias, &[if_any(&composition.entry_flags, bias)]));
    for (round, row_group) in round_row_groups.iter().enumerate() {
        neurons.extend(row_group_neurons(&table_flags, &read_row_groups, 1 << round, *row_group, bias));
    }
    composition.builder.add_layer(
        "every token reads w, the answering token also z_0",
        LayerMixer::Attention(heads),
        neurons,
    );

    for (round, row_group) in round_row_groups.iter().enumerate() {
        let pointer_hops = 1 << round;
        let registers = &mut composition.builder.registers;
        let unrounded = registers.add(
            format!("read.{}", round + 1),
            size,
            RegisterKind::Unrounded,
            "the pointer that the node looked up",
        );
        let next_pointer =
            registers.add(format!("pointer.{}", round + 1), size, RegisterKind::Number, "the pointer after this round");
        let mut key_match = KeyMatch::new()
            .equal_bits(pointer.low_bits(composition.entry_argument.size), composition.entry_argument)
            .equal_bits(*row_group, composition.entry_row_group);
        for (table, flag) in table_flags.iter().enumerate().take_while(|(table, _)| table + pointer_hops <= hops) {
            key_match = key_match.equal_bits(*flag, table_flags[table + pointer_hops]);
        }
        let head = lookup_head(&key_match, composition.inverse_temperature, &[(pointer, unrounded)]);
        let has_lookup = if_any(&table_flags[..=hops - pointer_hops], bias);
        let mut neurons = gated_rounding_neurons(unrounded, next_pointer, bias, std::slice::from_ref(&has_lookup));
        neurons.extend(gated_copy_neurons(
            pointer,
            next_pointer,
            bias,
            &[negate(&has_lookup), if_any(&table_flags, bias)],
        ));
        composition.builder.add_layer(
            format!("pointers of {pointer_hops} hops become pointers of {}", 2 * pointer_hops),
            LayerMixer::Attention(vec![head]),
            neurons,
        );
        pointer = next_pointer;
    }
    composition.builder.unembed_number(pointer);
    Ok(composition.builder)
}

/// Neurons that write to `target`, at a node of each table, the row group of w in the keys of the entries `pointer_hops` tables further.
fn row_group_neurons(
    table_flags: &[ColumnRange],
    query_row_groups: &[ColumnRange],
    pointer_hops: usize,
    target: ColumnRange,
    bias: ColumnRange,
) -> Vec<Neuron> {
    let tables =
        table_flags.iter().enumerate().filter(|(table, _)| (2..table_flags.len()).contains(&(table + pointer_hops)));
    tables
        .flat_map(|(table, flag)| {
            gated_rounding_neurons(query_row_groups[table + pointer_hops - 2], target, bias, &[if_set(*flag)])
        })
        .collect()
}
