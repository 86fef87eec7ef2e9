//! `layer_group_size`: the last layer of each group is full, and so is the tail past the last whole group.
//!
//! # Families
//! Ling and Ring with linear attention (Bailing).
//!
//! # Pitfalls
//! The tail. And the linear part has changed between generations without a field to say so: lightning attention up to
//! 2.6, a gated delta rule with short convolutions from 3 on. The architecture's class decides; any other class leaves
//! the state's size unknown.

use super::{Dialect, period};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, LayerSpec, Recurrent};
use crate::recurrent;

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_group_size",
    fields: &["layer_group_size"],
    families: "Ling and Ring linear (Bailing)",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Where the layers are listed, the list decides: libraries differ about the tail.
    if config.has("layer_types") {
        return Ok(None);
    }
    let Some(group) = period(config, "layer_group_size")? else { return Ok(None) };
    let (recurrent, assumed) = linear_part(config)?;
    let grouped = num_layers / group * group;
    let field = config.path_of("layer_group_size");
    let full = |index: usize| (index + 1).is_multiple_of(group) || index >= grouped;
    let layer = |index: usize| if full(index) { LayerSpec::full() } else { LayerSpec::recurrent(recurrent.clone()) };
    let layout = Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field));
    Ok(Some(match assumed {
        Some(what) => layout.with_assumption(what),
        None => layout,
    }))
}

fn linear_part(config: &Config) -> Result<(Recurrent, Option<String>), AuditError> {
    let class = config.architecture().unwrap_or_default();
    Ok(match class {
        "BailingMoeV3ForCausalLM" => {
            let (heads, head) = (config.size("num_attention_heads")?, config.size("head_dim")?);
            let (Some(heads), Some(head)) = (heads, head) else { return Ok((Recurrent::OneOf(&["kda"]), None)) };
            let conv = config.count("short_conv_kernel_size")?.unwrap_or(4);
            let numbers = vec![("heads", heads), ("key", head), ("value", head), ("conv", conv)];
            let what = "The linear layers are a gated delta rule (KDA) with the heads of the full layers and short \
                        convolutions of width 4: the class BailingMoeV3ForCausalLM says so, no field does.";
            (Recurrent::Known("kda", numbers), Some(what.to_owned()))
        }
        "BailingMoeV2_5ForCausalLM" | "BailingMoeLinearV2ForCausalLM" | "BailingMoeLinearForCausalLM" => {
            let sized = recurrent::lightning(config)?;
            let what = format!("The linear layers are lightning attention: the class {class} says so, no field does.");
            (recurrent::known_or_one_of(sized, &["lightning"]), Some(what))
        }
        _ => (Recurrent::BySizes, None),
    })
}
