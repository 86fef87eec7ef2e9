//! Sizes that families of mixers share: attention, matrix-valued recurrences, short convolutions, state spaces.

use super::facts::{AttentionHeads, Facts, Flops};
use super::option::OptionValues;
use super::{CacheLayout, OptionSizes, StateLayout};

/// The sizes of a recurrence `S = A S + k v^T` with `heads` states of `key` by `value`.
///
/// Its projections (query, key, value, output) and its state update are shared by the whole family; `erase` adds
/// the second product of a delta rule.
pub(super) fn matrix_state(heads: u128, key: u128, value: u128, width: u128, erase: bool) -> Facts {
    let state = heads * key * value;
    let parameters = width * heads * (2 * key + 2 * value);
    let touched = if erase { 7 } else { 5 };
    Facts {
        recurrent_state: state,
        parameters,
        flops: Flops { per_token: 2 * parameters + touched * state, ..Flops::default() },
        ..Facts::EMPTY
    }
}

/// Adds a short depthwise convolution over `channels` to what a layer has.
pub(super) fn with_convolution(facts: &Facts, channels: u128, taps: u128) -> Facts {
    let weights = channels * taps;
    Facts {
        conv_state: facts.conv_state + channels * taps.saturating_sub(1),
        parameters: facts.parameters + weights,
        flops: Flops { per_token: facts.flops.per_token + 2 * weights, ..facts.flops },
        ..*facts
    }
}

/// Adds projections or gates with that many weights.
pub(super) fn with_weights(facts: &Facts, weights: u128) -> Facts {
    Facts {
        parameters: facts.parameters + weights,
        flops: Flops { per_token: facts.flops.per_token + 2 * weights, ..facts.flops },
        ..*facts
    }
}

/// Takes projections or gates with that many weights away again.
pub(super) fn without_weights(facts: &Facts, weights: u128) -> Facts {
    Facts {
        parameters: facts.parameters - weights,
        flops: Flops { per_token: facts.flops.per_token - 2 * weights, ..facts.flops },
        ..*facts
    }
}

/// The sizes of softmax attention over key/value heads, before it is said how far it sees.
pub(super) fn attention(n: &OptionValues) -> Facts {
    let (heads, kv, key, value) = (n.size("heads"), n.size("kv"), n.size("key"), n.size("value"));
    let parameters = n.width() * (heads * (key + value) + kv * (key + value));
    let flops = Flops { per_token: 2 * parameters, per_attended: 2 * heads * (key + value), max_attended: None };
    let [query, kv_heads, key, value] = ["heads", "kv", "key", "value"].map(|option| n.integer(option));
    let attention = Some(AttentionHeads { query, kv: kv_heads, key, value });
    Facts { parameters, flops, attention, has_network: heads.is_multiple_of(kv), ..Facts::EMPTY }
}

/// The sizes of Mamba-2, which its log-linear form shares.
pub(super) fn mamba2_sizes(n: &OptionValues) -> Facts {
    let (heads, head, state, groups) = (n.size("heads"), n.size("head"), n.size("state"), n.size("groups"));
    let (inner, shared) = (heads * head, 2 * groups * state);
    let parameters = n.width() * (2 * inner + shared + heads) + inner * n.width();
    let core = Facts {
        recurrent_state: inner * state,
        parameters,
        flops: Flops { per_token: 2 * parameters + 5 * inner * state, ..Flops::default() },
        // Through SiLU a bit goes as a pair of channels.
        carried_bits: heads * (head / 2),
        table_slots: state,
        has_network: heads.is_multiple_of(groups),
        ..Facts::EMPTY
    };
    with_convolution(&core, inner + shared, n.size("conv"))
}

/// The sizes of Gated DeltaNet and its kin, with `steps` delta steps per token.
pub(super) fn gated_delta(n: &OptionValues, steps: u128) -> Facts {
    let (heads, value_heads) = (n.size("heads"), n.size("value-heads"));
    let (key, value, width) = (n.size("key"), n.size("value"), n.width());
    let (keys, values) = (heads * key, value_heads * value);
    let state = value_heads * key * value;
    // Query, per-step key and value, output and its gate, then the decay and per-step rate of each value head.
    let parameters = width * (keys + steps * (keys + values) + 2 * values + (1 + steps) * value_heads);
    let core = Facts {
        recurrent_state: state,
        parameters,
        flops: Flops { per_token: 2 * parameters + (3 + 4 * steps) * state, ..Flops::default() },
        carried_bits: value_heads * (value / 2),
        table_slots: key,
        has_network: value_heads.is_multiple_of(heads),
        ..Facts::EMPTY
    };
    with_convolution(&core, keys + steps * (keys + values), n.size("conv"))
}

/// A state for every level of the hierarchy, and for each of its `heads` a weight per level.
pub(super) fn log_linear(core: &Facts, heads: &str, n: &OptionValues) -> Facts {
    let levels = n.size("levels");
    let core = with_weights(core, n.width() * n.size(heads) * levels);
    let flops = Flops { per_token: core.flops.per_token + 2 * levels * core.recurrent_state, ..core.flops };
    Facts { recurrent_state: levels * core.recurrent_state, flops, log2_context: Some(n.integer("levels") - 1), ..core }
}

/// The heads of softmax attention as options of `full`.
pub(super) fn heads(n: &OptionValues) -> OptionSizes {
    ["heads", "kv", "head", "key", "value"].map(|option| (option, n.integer(option))).to_vec()
}

/// The smallest sizes of Mamba-2 that carry so many bits.
pub(super) fn mamba2_carry(bits: u64) -> OptionSizes {
    vec![("heads", 1), ("head", 2 * bits), ("state", 1), ("groups", 1)]
}

/// The smallest sizes of Gated DeltaNet and its kin that carry so many bits.
pub(super) fn gated_delta_carry(bits: u64) -> OptionSizes {
    vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)]
}

/// The state of Gated DeltaNet and its kin, as engines allocate it.
pub(super) fn gated_delta_layout(n: &OptionValues) -> StateLayout {
    let (heads, values) = (n.integer("heads"), n.integer("value-heads"));
    let (key, value) = (n.integer("key"), n.integer("value"));
    StateLayout {
        channels: 2 * heads * key + values * value,
        kernel_size: n.integer("conv"),
        recurrent: values.saturating_mul(key * value),
        heads,
        ..StateLayout::default()
    }
}

/// A recurrence with RWKV's token shift, and with the shift of its channel mixing if the stack has it.
pub(super) fn rwkv(core: &Facts, n: &OptionValues) -> Facts {
    let (heads, head) = (n.integer("heads"), n.integer("head"));
    let conv_state = n.width() * (1 + u128::from(n.flag("channel")));
    let layout = StateLayout {
        recurrent: heads.saturating_mul(head * head),
        heads,
        shift: u64::try_from(conv_state).unwrap_or(u64::MAX),
        ..StateLayout::default()
    };
    // There is no network with RWKV's channel mixing.
    let has_network = !n.flag("channel");
    let carried_bits = if has_network { u128::from(heads * (head / 2)) } else { 0 };
    let layout = Some(CacheLayout::State(layout));
    Facts { conv_state, layout, carried_bits, table_slots: head.into(), has_network, ..*core }
}
