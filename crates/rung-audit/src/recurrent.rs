//! The sizes of recurrences: one way of writing them down per row of [`FORMATS`].
//!
//! A layout often says only "linear" or "mamba"; which recurrence that is, and how large its state, follows from *size
//! fields* whose names belong to one format each. If exactly one format's fields are there, it is that one. The pitfall
//! of each format is written beside it.

use crate::AuditError;
use crate::config::Config;
use crate::geometry::MixerSizes;
use crate::layout::Recurrent;

type ReadSizes = fn(&Config) -> Result<Option<MixerSizes>, AuditError>;

/// One way of writing down the sizes of a recurrence.
struct SizeFormat {
    /// The mixers it can describe, by Rung's names.
    mixers: &'static [&'static str],
    /// The fields that mark it, for messages.
    fields: &'static str,
    read: ReadSizes,
}

/// Every format; the fields that mark them exclude each other.
static FORMATS: &[SizeFormat] = &[
    SizeFormat { mixers: &["gdn"], fields: "linear_num_value_heads, linear_value_head_dim", read: gated_delta },
    SizeFormat { mixers: &["kda"], fields: "linear_attn_config.num_heads, .head_dim", read: kimi_delta },
    SizeFormat { mixers: &["kda"], fields: "linear_num_heads, linear_head_dim", read: plain_kimi_delta },
    SizeFormat { mixers: &["mamba2"], fields: "mamba_num_heads, mamba_head_dim, ssm_state_size", read: nemotron },
    SizeFormat { mixers: &["mamba2"], fields: "mamba_n_heads, mamba_d_head, mamba_d_state", read: bamba },
    SizeFormat { mixers: &["mamba2"], fields: "n_mamba_heads, mamba_d_state", read: zamba },
    SizeFormat { mixers: &["mamba1"], fields: "mamba_d_state, mamba_expand", read: jamba },
    SizeFormat { mixers: &["mamba1", "mamba2"], fields: "state_size, conv_kernel", read: hugging_face_mamba },
    SizeFormat { mixers: &["rglru"], fields: "lru_width", read: griffin },
    SizeFormat { mixers: &["conv"], fields: "conv_L_cache", read: short_convolution },
    SizeFormat { mixers: &["lightning"], fields: "linear_attn_alpha_factor", read: lightning_by_factor },
];

/// Which recurrence it is and how large, or what was looked for.
pub(crate) fn find(config: &Config, recurrent: &Recurrent) -> Result<MixerSizes, AuditError> {
    let wanted: &[&str] = match recurrent {
        Recurrent::Known(name, numbers) => return Ok(MixerSizes::Known(name, numbers.clone())),
        Recurrent::OneOf(names) => names,
        Recurrent::BySizes => &[],
    };
    let fits = |format: &&SizeFormat| wanted.is_empty() || format.mixers.iter().any(|name| wanted.contains(name));
    let mut found: Vec<MixerSizes> = Vec::new();
    for format in FORMATS.iter().filter(fits) {
        found.extend((format.read)(config)?);
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let fields: Vec<&str> = FORMATS.iter().filter(fits).map(|format| format.fields).collect();
            Ok(MixerSizes::Missing(vec![fields.join("; or ")]))
        }
        _ => {
            let names: Vec<&str> =
                found.iter().map(|sized| if let MixerSizes::Known(name, _) = sized { name } else { "?" }).collect();
            Ok(MixerSizes::Missing(vec![format!(
                "fields of one recurrence only (there are those of {})",
                names.join(" and ")
            )]))
        }
    }
}

/// Qwen3-Next, Qwen3.5, `OLMo` hybrid, which alone allows negative eigenvalues and does so by default.
fn gated_delta(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(values) = config.size("linear_num_value_heads")? else { return Ok(None) };
    let (keys, key, value) = (
        config.size("linear_num_key_heads")?.unwrap_or(values),
        config.size("linear_key_head_dim")?,
        config.size("linear_value_head_dim")?,
    );
    let (Some(key), Some(value)) = (key, value) else {
        return Ok(Some(MixerSizes::Missing(vec!["linear_key_head_dim and linear_value_head_dim".to_owned()])));
    };
    let conv = config.count("linear_conv_kernel_dim")?.unwrap_or(4);
    let negative = match config.flag("linear_allow_neg_eigval")? {
        Some(negative) => negative,
        None => config.model_type()? == Some("olmo_hybrid"),
    };
    let mut numbers = vec![("heads", keys), ("value-heads", values), ("key", key), ("value", value), ("conv", conv)];
    if negative {
        numbers.push(("negative", 1));
    }
    Ok(Some(MixerSizes::Known("gdn", numbers)))
}

/// Kimi Linear, Kimi K3.
fn kimi_delta(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let (heads, head) = (config.size("linear_attn_config.num_heads")?, config.size("linear_attn_config.head_dim")?);
    let (Some(heads), Some(head)) = (heads, head) else { return Ok(None) };
    let conv = config.count("linear_attn_config.short_conv_kernel_size")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known("kda", vec![("heads", heads), ("key", head), ("value", head), ("conv", conv)])))
}

/// Kimi Linear, GLM and Bailing as transformers writes them.
fn plain_kimi_delta(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    if config.has("linear_attn_config.num_heads") {
        return Ok(None);
    }
    let (Some(heads), Some(head)) = (config.size("linear_num_heads")?, config.size("linear_head_dim")?) else {
        return Ok(None);
    };
    let conv = config.count("linear_conv_kernel_dim")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known("kda", vec![("heads", heads), ("key", head), ("value", head), ("conv", conv)])))
}

/// Nemotron-H and Nemotron 3.
fn nemotron(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(heads) = config.size("mamba_num_heads")? else { return Ok(None) };
    let (Some(head), Some(state)) = (config.size("mamba_head_dim")?, config.size("ssm_state_size")?) else {
        return Ok(Some(MixerSizes::Missing(vec!["mamba_head_dim and ssm_state_size".to_owned()])));
    };
    let groups = config.first_size(&["n_groups", "mamba_n_groups"])?.unwrap_or(1);
    let conv = config.size("conv_kernel")?.unwrap_or(4);
    Ok(Some(mamba2(heads, head, state, groups, conv)))
}

fn mamba2(heads: u64, head: u64, state: u64, groups: u64, conv: u64) -> MixerSizes {
    MixerSizes::Known(
        "mamba2",
        vec![("heads", heads), ("head", head), ("state", state), ("groups", groups), ("conv", conv)],
    )
}

/// Bamba, Granite 4, Falcon-H1. `mamba_expand` times the width can differ from heads times head: the heads are real.
fn bamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(heads) = config.size("mamba_n_heads")? else { return Ok(None) };
    let inner = match (config.size("mamba_d_ssm")?, config.width()?) {
        (Some(inner), _) => Some(inner),
        (None, Some(width)) => Some(config.scaled("mamba_expand", width, 2.0)?),
        (None, None) => None,
    };
    let head =
        config.size_or_auto("mamba_d_head")?.or(inner.filter(|inner| inner % heads == 0).map(|inner| inner / heads));
    let (Some(head), Some(state)) = (head, config.size("mamba_d_state")?) else {
        return Ok(Some(MixerSizes::Missing(vec!["mamba_d_head and mamba_d_state".to_owned()])));
    };
    if let Some(inner) = config.size("mamba_d_ssm")?.filter(|&inner| inner != heads.saturating_mul(head)) {
        let why = format!("{inner} channels are not {heads} heads of {head}");
        let (first, second) = (config.path_of("mamba_d_ssm"), config.path_of("mamba_n_heads"));
        return Err(AuditError::Contradiction { first, second, why });
    }
    let groups = config.size("mamba_n_groups")?.unwrap_or(1);
    Ok(Some(mamba2(heads, head, state, groups, config.size("mamba_d_conv")?.unwrap_or(4))))
}

/// Whether this is the first Zamba, whose heads are Mamba-1 channels in rows.
fn is_first_zamba(config: &Config) -> bool {
    config.has("n_mamba_heads") && !config.has("mamba_ngroups") && !config.has("mamba_headdim")
}

/// Zamba 2.
fn zamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(heads) = config.size("n_mamba_heads")?.filter(|_| !is_first_zamba(config)) else { return Ok(None) };
    let (Some(state), Some(width)) = (config.size("mamba_d_state")?, config.width()?) else {
        return Ok(Some(MixerSizes::Missing(vec!["mamba_d_state and hidden_size".to_owned()])));
    };
    let inner = config.scaled("mamba_expand", width, 2.0)?;
    let head = config.size("mamba_headdim")?.unwrap_or((inner / heads).max(1));
    let groups = config.size("mamba_ngroups")?.unwrap_or(1);
    Ok(Some(mamba2(heads, head, state, groups, config.size("mamba_d_conv")?.unwrap_or(4))))
}

/// Jamba, Hymba, Samba: Mamba-1, distinguished from Bamba by the absence of heads.
fn jamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let heads = config.has("mamba_n_heads") || config.has("mamba_num_heads");
    let heads = heads || (config.has("n_mamba_heads") && !is_first_zamba(config));
    let (Some(state), false) = (config.size("mamba_d_state")?, heads) else { return Ok(None) };
    let Some(width) = config.width()? else { return Ok(Some(MixerSizes::Missing(vec!["hidden_size".to_owned()]))) };
    let inner = config.scaled("mamba_expand", width, 2.0)?;
    let rank = config.size_or_auto("mamba_dt_rank")?.unwrap_or(width.div_ceil(16));
    let conv = config.size("mamba_d_conv")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known("mamba1", vec![("inner", inner), ("state", state), ("conv", conv), ("rank", rank)])))
}

/// Mamba, Mamba-2 and Falcon-Mamba in transformers. `expand` may be stale: `intermediate_size` is what is built.
fn hugging_face_mamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let (Some(state), Some(conv)) = (config.size("state_size")?, config.size("conv_kernel")?) else { return Ok(None) };
    if let (Some(heads), Some(head)) = (config.size("num_heads")?, config.size("head_dim")?) {
        return Ok(Some(mamba2(heads, head, state, config.size("n_groups")?.unwrap_or(1), conv)));
    }
    let Some(width) = config.width()? else { return Ok(Some(MixerSizes::Missing(vec!["hidden_size".to_owned()]))) };
    let inner = match config.first_size(&["intermediate_size", "d_inner"])? {
        Some(inner) => inner,
        None => config.scaled("expand", width, 2.0)?,
    };
    let rank = config.size_or_auto("time_step_rank")?.unwrap_or(width.div_ceil(16));
    Ok(Some(MixerSizes::Known("mamba1", vec![("inner", inner), ("state", state), ("conv", conv), ("rank", rank)])))
}

/// Griffin, `RecurrentGemma`.
fn griffin(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(inner) = config.size("lru_width")? else { return Ok(None) };
    let heads = config.size("num_attention_heads")?.unwrap_or(1);
    let conv = config.size("conv1d_width")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known("rglru", vec![("inner", inner), ("heads", heads), ("conv", conv)])))
}

/// LFM2: a convolution of that width, so one input fewer is kept.
fn short_convolution(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(kernel_size) = config.size("conv_L_cache")? else { return Ok(None) };
    let Some(channels) = config.size("conv_dim")?.or(config.width()?) else {
        return Ok(Some(MixerSizes::Missing(vec!["conv_dim or hidden_size".to_owned()])));
    };
    Ok(Some(MixerSizes::Known("conv", vec![("taps", kernel_size), ("channels", channels)])))
}

/// Lightning attention: as many heads as softmax layers have, a square state each.
pub(crate) fn lightning(config: &Config) -> Result<MixerSizes, AuditError> {
    let heads = config.first_size(&["num_attention_heads"])?;
    let head = match (config.size("head_dim")?, config.width()?, heads) {
        (Some(head), _, _) => Some(head),
        (None, Some(width), Some(heads)) if width % heads == 0 => Some(width / heads),
        _ => None,
    };
    let (Some(heads), Some(head)) = (heads, head) else {
        return Ok(MixerSizes::Missing(vec!["num_attention_heads and head_dim".to_owned()]));
    };
    Ok(MixerSizes::Known("lightning", vec![("heads", heads), ("head", head)]))
}

/// The `MiniMax` models 01 and M1: fields that only they have.
fn lightning_by_factor(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let fields = ["linear_attn_alpha_factor", "layernorm_linear_attention_alpha", "attn_type_list"];
    if fields.iter().any(|name| config.has(name)) { lightning(config).map(Some) } else { Ok(None) }
}

/// A recurrence with its sizes, or one of these mixers where the sizes are missing.
pub(crate) fn known_or_one_of(sized: MixerSizes, kind: &'static [&'static str]) -> Recurrent {
    match sized {
        MixerSizes::Known(name, numbers) => Recurrent::Known(name, numbers),
        MixerSizes::Missing(_) => Recurrent::OneOf(kind),
    }
}
