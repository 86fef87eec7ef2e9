//! U3 and U6: one full-attention layer and a chain of thought. `rung explain U3` gives the argument; the names w, z_l and i_l are
//! those of [`u1`](super::u1).
//!
//! The model emits tokens and reads them again: thoughts, then the answer. Emitted token s says "s hops are done and led to i_s": its
//! kind counts the hops, `entry_row_group` and `entry_argument` hold the key (w_s, i_s) to look up next, `value` holds i_s, and the row
//! groups of w are copied from the token before. So one lookup head serves every decoding step: it compares keys, and it compares the kind
//! of the querying token with the table of the entry.

use rung_theory::task::TaskBase as _;

use super::blocks::{
    KeyMatch, gated_copy_neurons, gated_rounding_neurons, if_set, if_unset, lookup_head, rounding_neurons,
};
use super::builder::{ConstructionBuilder, LayerMixer};
use super::composition::{CompositionBuilder, VALUE_FIELD};
use super::forwarding::{self, ForwardedBits};
use super::{ChainOfThought, ConstructError, ConstructionRequest};
use crate::register::{ColumnRange, RegisterKind};

/// U3: one full-attention layer, which emits L thoughts and the answer.
pub fn full_layer_only(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let task = request.funccomp()?;
    let mut composition = CompositionBuilder::new("U3", &task, task.hops() + 1);
    let request_flags = add_request_flags(&mut composition, 0);
    let argument_match =
        composition.entry_argument.columns().map(|column| (vec![(column, 1.0)], column)).collect::<Vec<_>>();
    add_lookup_and_emit(&mut composition, &request_flags, 0, &argument_match);
    Ok(composition.builder)
}

/// U6: a forwarding layer that copies z_0 to w, one full-attention layer, which emits L-1 thoughts and the answer.
pub fn forwarding_and_full_layer(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let task = request.funccomp()?;
    let mut composition = CompositionBuilder::new("U6", &task, task.hops());
    let request_flags = add_request_flags(&mut composition, 1);
    let size = composition.value_bits(0);
    let registers = &mut composition.builder.registers;
    let unrounded = registers.add("read.0", size, RegisterKind::Unrounded, "z_0 as it was forwarded");
    let start = registers.add("i.0", composition.entry_argument.size, RegisterKind::Number, "z_0, at w only");
    let forwarded = ForwardedBits {
        from: composition.value.low_bits(size),
        to: unrounded,
        flag: composition.start_flag.start,
        bias: composition.bias.start,
        table_rows: None,
    };
    let mixer =
        forwarding::resolve_mixer(request.forwarding_mixer(), size, 0, composition.builder.registers.width() as u64)?;
    let neurons = gated_rounding_neurons(unrounded, start, composition.bias, &[if_set(composition.query_flag)]);
    composition.builder.add_layer("the state forwards z_0 to w", LayerMixer::Forwarding(forwarded, mixer), neurons);
    let columns = composition.entry_argument.columns().zip(start.columns());
    let argument_match =
        columns.map(|(argument, start)| (vec![(argument, 1.0), (start, 1.0)], argument)).collect::<Vec<_>>();
    add_lookup_and_emit(&mut composition, &request_flags, 1, &argument_match);
    Ok(composition.builder)
}

/// Adds one flag per table that a token may look up: w requests `first` (0 stands for z_0), and each emitted token the next table.
fn add_request_flags(composition: &mut CompositionBuilder, first: usize) -> Vec<ColumnRange> {
    let hops = composition.hops();
    let add_flag = |table: usize| {
        let about =
            if table == 0 { "the token asks for z_0".to_owned() } else { format!("the token asks for z_{table}") };
        composition.builder.registers.add(format!("wants.{table}"), 1, RegisterKind::Flag, about)
    };
    let request_flags: Vec<ColumnRange> = (first..=hops).map(add_flag).collect();
    let (query_kind, kind_count) = (hops as u32 + 1, composition.builder.vocabulary(0));
    composition.builder.add_ids(0, request_flags.len() as u32);
    let flags = request_flags.clone();
    composition.builder.embed(0, move |kind| {
        let requested =
            if kind == query_kind { Some(0) } else { kind.checked_sub(kind_count).map(|emitted| emitted as usize + 1) };
        let sign = |index: usize| if requested == Some(index) { 1.0 } else { -1.0 };
        flags.iter().enumerate().map(|(index, flag)| (flag.start, sign(index))).collect()
    });
    request_flags
}

/// Adds the layer that looks up what a token requests and computes the token to emit. `argument_match` has one entry per bit of the
/// argument: the weighted sum on the query side and the column on the key side.
fn add_lookup_and_emit(
    composition: &mut CompositionBuilder,
    request_flags: &[ColumnRange],
    first: usize,
    argument_match: &[(Vec<(usize, f64)>, usize)],
) {
    let (hops, bias) = (composition.hops(), composition.bias);
    let registers = &mut composition.builder.registers;
    let unrounded = registers.add("read", composition.value.size, RegisterKind::Unrounded, "what was looked up");
    let next_value =
        registers.add("reached", composition.value.size, RegisterKind::Number, "the next emitted token's value");
    let next_row_group = registers.add(
        "next.outer",
        composition.entry_row_group.size,
        RegisterKind::Number,
        "the next emitted token's row group",
    );
    let next_argument = registers.add(
        "next.inner",
        composition.entry_argument.size,
        RegisterKind::Number,
        "the next emitted token's argument",
    );
    let mut key_match = KeyMatch::new().equal_bits(composition.entry_row_group, composition.entry_row_group);
    for (query, key) in argument_match {
        key_match = key_match.add_product(query.clone(), vec![(*key, 1.0)]);
    }
    for (table, flag) in (first..).zip(request_flags) {
        let source_flag = if table == 0 { composition.start_flag } else { composition.entry_flags[table - 1] };
        key_match = key_match.equal_bits(*flag, source_flag);
    }
    let head = lookup_head(&key_match, composition.inverse_temperature, &[(composition.value, unrounded)]);
    let last_request = request_flags[request_flags.len() - 1];
    let mut neurons = rounding_neurons(unrounded, next_value, bias);
    neurons.extend(gated_rounding_neurons(
        unrounded.low_bits(next_argument.size),
        next_argument,
        bias,
        &[if_unset(last_request)],
    ));
    for hop in first.max(1)..hops {
        neurons.extend(gated_copy_neurons(
            composition.query_row_groups[hop - 1],
            next_row_group,
            bias,
            &[if_set(request_flags[hop - first])],
        ));
    }
    let about = "w and each emitted token look up what their kind asks for";
    composition.builder.add_layer(about, LayerMixer::Attention(vec![head]), neurons);
    set_emitted_logits(composition, request_flags, [next_row_group, next_argument, next_value]);
}

/// Sets the unembedding: logits of the ids of every field of the next emitted token.
fn set_emitted_logits(
    composition: &mut CompositionBuilder,
    request_flags: &[ColumnRange],
    [row_group, argument, value]: [ColumnRange; 3],
) {
    let fields = composition.task.fields();
    let vocabularies: Vec<usize> =
        (0..fields.len()).map(|field| composition.builder.vocabulary(field) as usize).collect();
    let field_starts: Vec<usize> =
        vocabularies.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size))).collect();
    let classes = vocabularies.iter().sum();
    let chain_of_thought = ChainOfThought {
        emitted_tokens: request_flags.len(),
        field_starts: field_starts.clone(),
        answer_field: VALUE_FIELD,
    };
    let (bias, kind_count, flags) = (composition.bias, fields[0].vocabulary as usize, request_flags.to_vec());
    let field_registers: Vec<ColumnRange> =
        [row_group, argument, value].into_iter().chain(composition.query_row_groups.iter().copied()).collect();
    composition.builder.unembed(move |class| {
        let field = field_starts.iter().rposition(|first| *first <= class).unwrap_or_default();
        let id = class - field_starts[field];
        if field == 0 {
            return id.checked_sub(kind_count).map(|emitted| vec![(flags[emitted].start, 1.0)]).unwrap_or_default();
        }
        // The blank id has the logit 1/2: more than any other id where the register is empty, less than the right id where it holds a number.
        if id + 1 == vocabularies[field] {
            vec![(bias.start, 0.5)]
        } else {
            field_registers[field - 1].encode(id as u64)
        }
    });
    composition.builder.set_chain_of_thought(chain_of_thought, classes);
}
