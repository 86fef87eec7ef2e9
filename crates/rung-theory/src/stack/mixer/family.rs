//! Facts that families of mixers share: attention, matrix-valued recurrences, short convolutions, state spaces.

use super::facts::{AttentionHeads, Facts, Flops};
use super::option::OptionValues;
use super::{CacheLayout, OptionSizes, StateLayout};

/// The facts of a recurrence `S = A S + k v^T` with `heads` states of `key_head_dim` by `value_head_dim`.
///
/// They include the projections (query, key, value, output) and the state update.
pub(super) fn matrix_state(heads: u128, key_head_dim: u128, value_head_dim: u128, width: u128) -> Facts {
    let state = heads * key_head_dim * value_head_dim;
    let parameters = width * heads * (2 * key_head_dim + 2 * value_head_dim);
    Facts {
        recurrent_state: state,
        parameters,
        flops: Flops { per_token: 2 * parameters + 5 * state, ..Flops::default() },
        ..Facts::EMPTY
    }
}

/// The facts of [`matrix_state`] with the delta rule: one more product with the state reads the old value of a key.
pub(super) fn delta_rule_state(heads: u128, key_head_dim: u128, value_head_dim: u128, width: u128) -> Facts {
    let core = matrix_state(heads, key_head_dim, value_head_dim, width);
    let per_token = core.flops.per_token + 2 * core.recurrent_state;
    Facts { flops: Flops { per_token, ..core.flops }, ..core }
}

/// Adds a short depthwise convolution over `channels`.
pub(super) fn with_convolution(facts: &Facts, channels: u128, kernel_size: u128) -> Facts {
    let weights = channels * kernel_size;
    Facts {
        conv_state: facts.conv_state + channels * kernel_size.saturating_sub(1),
        parameters: facts.parameters + weights,
        flops: Flops { per_token: facts.flops.per_token + 2 * weights, ..facts.flops },
        ..*facts
    }
}

/// Adds projections or gates with this many weights.
pub(super) fn with_weights(facts: &Facts, weights: u128) -> Facts {
    Facts {
        parameters: facts.parameters + weights,
        flops: Flops { per_token: facts.flops.per_token + 2 * weights, ..facts.flops },
        ..*facts
    }
}

/// Removes projections or gates with this many weights.
pub(super) fn without_weights(facts: &Facts, weights: u128) -> Facts {
    Facts {
        parameters: facts.parameters - weights,
        flops: Flops { per_token: facts.flops.per_token - 2 * weights, ..facts.flops },
        ..*facts
    }
}

/// The facts of softmax attention over key/value heads, without its reach and cache.
pub(super) fn attention(options: &OptionValues) -> Facts {
    let [query_heads, kv_heads, key_head_dim, value_head_dim] =
        ["heads", "kv", "key", "value"].map(|option| options.integer(option));
    let attention = AttentionHeads { query_heads, kv_heads, key_head_dim, value_head_dim };
    let [heads, kv, head_dims] = [query_heads, kv_heads, key_head_dim + value_head_dim].map(u128::from);
    let parameters = options.width() * (heads + kv) * head_dims;
    let flops = Flops { per_token: 2 * parameters, per_attended: 2 * heads * head_dims, max_attended: None };
    let is_implemented = query_heads.is_multiple_of(kv_heads);
    Facts { parameters, flops, attention: Some(attention), is_implemented, ..Facts::EMPTY }
}

/// The facts of Mamba-2, which its log-linear form shares.
pub(super) fn mamba2_facts(options: &OptionValues) -> Facts {
    let (heads, head, state, groups) =
        (options.size("heads"), options.size("head"), options.size("state"), options.size("groups"));
    let (inner, group_channels) = (heads * head, 2 * groups * state);
    let parameters = options.width() * (2 * inner + group_channels + heads) + inner * options.width();
    let core = Facts {
        recurrent_state: inner * state,
        parameters,
        flops: Flops { per_token: 2 * parameters + 5 * inner * state, ..Flops::default() },
        // After SiLU, one bit needs a pair of channels.
        forwarded_bits: heads * (head / 2),
        table_rows: state,
        is_implemented: heads.is_multiple_of(groups),
        ..Facts::EMPTY
    };
    with_convolution(&core, inner + group_channels, options.size("conv"))
}

/// The facts of Gated DeltaNet and its variants, with `steps` delta steps per token.
pub(super) fn gated_delta(options: &OptionValues, steps: u128) -> Facts {
    let (heads, value_heads) = (options.size("heads"), options.size("value-heads"));
    let (key_head_dim, value_head_dim, width) = (options.size("key"), options.size("value"), options.width());
    let (keys, values) = (heads * key_head_dim, value_heads * value_head_dim);
    let state = value_heads * key_head_dim * value_head_dim;
    // Query, per-step key and value, output and its gate, then the decay and per-step beta of each value head.
    let parameters = width * (keys + steps * (keys + values) + 2 * values + (1 + steps) * value_heads);
    let core = Facts {
        recurrent_state: state,
        parameters,
        flops: Flops { per_token: 2 * parameters + (3 + 4 * steps) * state, ..Flops::default() },
        forwarded_bits: value_heads * (value_head_dim / 2),
        table_rows: key_head_dim,
        is_implemented: value_heads.is_multiple_of(heads),
        ..Facts::EMPTY
    };
    with_convolution(&core, keys + steps * (keys + values), options.size("conv"))
}

/// The log-linear form of a mixer: a state for every level, and a weight per level for each head of the option `heads_option`.
pub(super) fn log_linear(core: &Facts, heads_option: &str, options: &OptionValues) -> Facts {
    let levels = options.size("levels");
    let core = with_weights(core, options.width() * options.size(heads_option) * levels);
    let flops = Flops { per_token: core.flops.per_token + 2 * levels * core.recurrent_state, ..core.flops };
    Facts {
        recurrent_state: levels * core.recurrent_state,
        flops,
        log2_context: Some(options.integer("levels") - 1),
        ..core
    }
}

/// The options of `full` with the same attention heads: numbers of query and key/value heads, and their widths.
pub(super) fn full_attention_options(options: &OptionValues) -> OptionSizes {
    ["heads", "kv", "head", "key", "value"].map(|option| (option, options.integer(option))).to_vec()
}

/// The smallest sizes of Mamba-2 that forward this many bits.
pub(super) fn mamba2_forwarding(bits: u64) -> OptionSizes {
    vec![("heads", 1), ("head", 2 * bits), ("state", 1), ("groups", 1)]
}

/// The smallest sizes of Gated DeltaNet and its variants that forward this many bits.
pub(super) fn gated_delta_forwarding(bits: u64) -> OptionSizes {
    vec![("heads", 1), ("value-heads", 1), ("key", 1), ("value", 2 * bits)]
}

/// The state of Gated DeltaNet and its variants, as engines allocate it.
pub(super) fn gated_delta_layout(options: &OptionValues) -> StateLayout {
    let (heads, values) = (options.integer("heads"), options.integer("value-heads"));
    let (key_head_dim, value_head_dim) = (options.integer("key"), options.integer("value"));
    StateLayout {
        channels: 2 * heads * key_head_dim + values * value_head_dim,
        kernel_size: options.integer("conv"),
        recurrent: values.saturating_mul(key_head_dim * value_head_dim),
        heads,
        ..StateLayout::default()
    }
}

/// Adds RWKV's token shift, and the shift of its channel mixing if the option `channel` is set.
pub(super) fn rwkv(core: &Facts, options: &OptionValues) -> Facts {
    let (heads, head) = (options.integer("heads"), options.integer("head"));
    let conv_state = options.width() * (1 + u128::from(options.flag("channel")));
    let layout = StateLayout {
        recurrent: heads.saturating_mul(head * head),
        heads,
        shift: u64::try_from(conv_state).unwrap_or(u64::MAX),
        ..StateLayout::default()
    };
    // There is no network with RWKV's channel mixing.
    let is_implemented = !options.flag("channel");
    let forwarded_bits = if is_implemented { u128::from(heads * (head / 2)) } else { 0 };
    let layout = Some(CacheLayout::State(layout));
    Facts { conv_state, layout, forwarded_bits, table_rows: head.into(), is_implemented, ..*core }
}
