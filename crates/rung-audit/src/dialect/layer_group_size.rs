//! `layer_group_size`: the last layer of each group is full, and so are the layers past the last whole group.
//!
//! # Families
//! Ling and Ring with linear attention (Bailing).
//!
//! # Pitfalls
//! The linear layers differ between versions and no field says which they are. The class in `architectures` decides: Ling and Ring
//! 2.x (`BailingMoeLinear*`, `BailingMoeV2_5*`) use lightning attention, 3.x (`BailingMoeV3*`) KDA with short convolutions. For any
//! other class the mixer is inferred from the size fields.

use super::{Dialect, period, recurrence_sizes};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_group_size",
    fields: &["layer_group_size"],
    families: "Ling and Ring linear (Bailing)",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Where the layers are listed, the list decides: libraries differ about the layers past the last whole group.
    if config.has("layer_types") {
        return Ok(None);
    }
    let Some(group_size) = period(config, "layer_group_size")? else { return Ok(None) };
    let (recurrent, assumption) = linear_recurrence(config)?;
    let layers_in_groups = num_layers / group_size * group_size;
    let field = config.path_of("layer_group_size");
    let is_full = |index: usize| (index + 1).is_multiple_of(group_size) || index >= layers_in_groups;
    let layer = |index: usize| if is_full(index) { LayerSpec::full() } else { LayerSpec::recurrent(recurrent.clone()) };
    let layout = Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field));
    Ok(Some(match assumption {
        Some(assumption) => layout.with_assumption(assumption),
        None => layout,
    }))
}

/// The recurrence of the linear layers, and the assumption behind it.
fn linear_recurrence(config: &Config) -> Result<(RecurrenceSpec, Option<String>), AuditError> {
    let class = config.architecture().unwrap_or_default();
    Ok(match class {
        "BailingMoeV3ForCausalLM" => {
            let (heads, head_dim) = (config.size("num_attention_heads")?, config.size("head_dim")?);
            let (Some(heads), Some(head_dim)) = (heads, head_dim) else {
                return Ok((RecurrenceSpec::SizesFromConfig(&["kda"]), None));
            };
            // The class has short convolutions; only their kernel size may be a field.
            let conv_kernel = config.count("short_conv_kernel_size")?.unwrap_or(4);
            let sizes = vec![("heads", heads), ("key", head_dim), ("value", head_dim), ("conv", conv_kernel)];
            let assumption = format!(
                "The linear layers are a gated delta rule (KDA) with the heads of the full layers and short convolutions of \
                 kernel size {conv_kernel}: the class {class} says so, no field does."
            );
            (RecurrenceSpec::WithSizes("kda", sizes), Some(assumption))
        }
        "BailingMoeV2_5ForCausalLM" | "BailingMoeLinearV2ForCausalLM" | "BailingMoeLinearForCausalLM" => {
            let sizes = recurrence_sizes::lightning(config)?;
            let assumption =
                format!("The linear layers are lightning attention: the class {class} says so, no field does.");
            (recurrence_sizes::known_or_candidates(sizes, &["lightning"]), Some(assumption))
        }
        _ => (RecurrenceSpec::InferFromSizeFields, None),
    })
}
