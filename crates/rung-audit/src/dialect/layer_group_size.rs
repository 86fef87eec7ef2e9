//! `layer_group_size`: the last layer of each group is full, and so is the tail past the last whole group.
//!
//! # Families
//! Ling and Ring with linear attention (Bailing).
//!
//! # Trap
//! The tail. And the linear part has changed between generations without a field to say so: lightning attention up to
//! 2.6, a gated delta rule with short convolutions from 3 on. The architecture's class tells; any other class leaves
//! the state's size unknown.

use super::{Dialect, each, period};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, Reading, Recurrent};
use crate::recurrent;

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_group_size",
    fields: &["layer_group_size"],
    families: "Ling and Ring linear (Bailing)",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    // Where the layers are listed, the list decides: libraries differ about the tail.
    if config.has("layer_types") {
        return Ok(None);
    }
    let Some(group) = period(config, "layer_group_size")? else { return Ok(None) };
    let (recurrent, assumed) = linear_part(config)?;
    let whole = depth / group * group;
    let by = config.path_of("layer_group_size");
    let full = |index: usize| (index + 1).is_multiple_of(group) || index >= whole;
    let layer = |index: usize| if full(index) { Reading::full() } else { Reading::recurrent(recurrent.clone()) };
    let layout = each(depth, |index| layer(index).by(&*by));
    Ok(Some(match assumed {
        Some(what) => layout.assuming(what),
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
                        convolutions of 4 taps: the class BailingMoeV3ForCausalLM says so, no field does.";
            (Recurrent::Known("kda", numbers), Some(what.to_owned()))
        }
        "BailingMoeV2_5ForCausalLM" | "BailingMoeLinearV2ForCausalLM" | "BailingMoeLinearForCausalLM" => {
            let sized = recurrent::lightning(config)?;
            let what = format!("The linear layers are lightning attention: the class {class} says so, no field does.");
            (recurrent::known_or(sized, &["lightning"]), Some(what))
        }
        _ => (Recurrent::BySizes, None),
    })
}
