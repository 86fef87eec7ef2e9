//! The sizes of recurrences: one set of field names per row of [`FORMATS`].
//!
//! A layout often says only "linear" or "mamba"; which recurrence that is, and how large its state, follows from *size
//! fields* whose names belong to one format each. If the fields of exactly one format are present, that format decides. The
//! pitfall of each format is in the doc of its function.

use crate::AuditError;
use crate::attention_sizes::MixerSizes;
use crate::config::Config;
use crate::layout::RecurrenceSpec;

type ReadSizes = fn(&Config) -> Result<Option<MixerSizes>, AuditError>;

/// A set of field names for the sizes of a recurrence.
struct SizeFormat {
    /// The mixers it can describe, by Rung's names.
    mixers: &'static [&'static str],
    /// The fields that identify it, as shown in messages.
    fields: &'static str,
    read: ReadSizes,
}

/// Every format; no config has the identifying fields of two of them.
static FORMATS: &[SizeFormat] = &[
    SizeFormat { mixers: &["gdn"], fields: "linear_num_value_heads, linear_value_head_dim", read: gated_delta },
    SizeFormat { mixers: &["kda"], fields: "linear_attn_config.num_heads, .head_dim", read: kimi_delta },
    SizeFormat { mixers: &["kda"], fields: "linear_num_heads, linear_head_dim", read: flat_kimi_delta },
    SizeFormat { mixers: &["mamba2"], fields: "mamba_num_heads, mamba_head_dim, ssm_state_size", read: nemotron },
    SizeFormat { mixers: &["mamba2"], fields: "mamba_n_heads, mamba_d_head, mamba_d_state", read: bamba },
    SizeFormat { mixers: &["mamba2"], fields: "n_mamba_heads, mamba_d_state", read: zamba },
    SizeFormat { mixers: &["mamba1"], fields: "mamba_d_state, mamba_expand", read: jamba },
    SizeFormat { mixers: &["mamba1", "mamba2"], fields: "state_size, conv_kernel", read: hugging_face_mamba },
    SizeFormat { mixers: &["rglru"], fields: "lru_width", read: griffin },
    SizeFormat { mixers: &["conv"], fields: "conv_L_cache", read: short_convolution },
    SizeFormat { mixers: &["lightning"], fields: "linear_attn_alpha_factor", read: minimax_lightning },
];

/// The recurrence with its sizes, or the fields that would have to be present to know them.
pub(crate) fn find(config: &Config, recurrent: &RecurrenceSpec) -> Result<MixerSizes, AuditError> {
    let candidates: &[&str] = match recurrent {
        RecurrenceSpec::WithSizes(name, sizes) => return Ok(MixerSizes::Known(name, sizes.clone())),
        RecurrenceSpec::SizesFromConfig(names) => names,
        RecurrenceSpec::InferFromSizeFields => &[],
    };
    let is_candidate =
        |format: &&SizeFormat| candidates.is_empty() || format.mixers.iter().any(|name| candidates.contains(name));
    let mut matches: Vec<MixerSizes> = Vec::new();
    for format in FORMATS.iter().filter(is_candidate) {
        matches.extend((format.read)(config)?);
    }
    match matches.len() {
        1 => Ok(matches.remove(0)),
        0 => {
            let fields: Vec<&str> = FORMATS.iter().filter(is_candidate).map(|format| format.fields).collect();
            Ok(MixerSizes::Missing(vec![fields.join("; or ")]))
        }
        _ => {
            let names: Vec<&str> =
                matches.iter().map(|sizes| if let MixerSizes::Known(name, _) = sizes { name } else { "?" }).collect();
            Ok(MixerSizes::Missing(vec![format!(
                "fields of one recurrence only (there are those of {})",
                names.join(" and ")
            )]))
        }
    }
}

/// Qwen3-Next, Qwen3.5 and `OLMo` hybrid; only the last allows negative eigenvalues by default.
fn gated_delta(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(value_heads) = config.size("linear_num_value_heads")? else { return Ok(None) };
    let (key_heads, key_dim, value_dim) = (
        config.size("linear_num_key_heads")?.unwrap_or(value_heads),
        config.size("linear_key_head_dim")?,
        config.size("linear_value_head_dim")?,
    );
    let (Some(key_dim), Some(value_dim)) = (key_dim, value_dim) else {
        return Ok(Some(MixerSizes::Missing(vec!["linear_key_head_dim and linear_value_head_dim".to_owned()])));
    };
    let conv_kernel = config.count("linear_conv_kernel_dim")?.unwrap_or(4);
    let allows_negative = match config.flag("linear_allow_neg_eigval")? {
        Some(allowed) => allowed,
        None => config.model_type()? == Some("olmo_hybrid"),
    };
    let mut sizes = vec![
        ("heads", key_heads),
        ("value-heads", value_heads),
        ("key", key_dim),
        ("value", value_dim),
        ("conv", conv_kernel),
    ];
    if allows_negative {
        sizes.push(("negative", 1));
    }
    Ok(Some(MixerSizes::Known("gdn", sizes)))
}

/// Kimi Linear, Kimi K3.
fn kimi_delta(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let (heads, head_dim) = (config.size("linear_attn_config.num_heads")?, config.size("linear_attn_config.head_dim")?);
    let (Some(heads), Some(head_dim)) = (heads, head_dim) else { return Ok(None) };
    let conv_kernel = config.count("linear_attn_config.short_conv_kernel_size")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known(
        "kda",
        vec![("heads", heads), ("key", head_dim), ("value", head_dim), ("conv", conv_kernel)],
    )))
}

/// Kimi Linear, GLM and Bailing as transformers writes them.
fn flat_kimi_delta(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    if config.has("linear_attn_config.num_heads") {
        return Ok(None);
    }
    let (Some(heads), Some(head_dim)) = (config.size("linear_num_heads")?, config.size("linear_head_dim")?) else {
        return Ok(None);
    };
    let conv_kernel = config.count("linear_conv_kernel_dim")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known(
        "kda",
        vec![("heads", heads), ("key", head_dim), ("value", head_dim), ("conv", conv_kernel)],
    )))
}

/// Nemotron-H and Nemotron 3.
fn nemotron(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(heads) = config.size("mamba_num_heads")? else { return Ok(None) };
    let (Some(head_dim), Some(state_size)) = (config.size("mamba_head_dim")?, config.size("ssm_state_size")?) else {
        return Ok(Some(MixerSizes::Missing(vec!["mamba_head_dim and ssm_state_size".to_owned()])));
    };
    let groups = config.first_size(&["n_groups", "mamba_n_groups"])?.unwrap_or(1);
    let conv_kernel = config.size("conv_kernel")?.unwrap_or(4);
    Ok(Some(mamba2(heads, head_dim, state_size, groups, conv_kernel)))
}

fn mamba2(heads: u64, head_dim: u64, state_size: u64, groups: u64, conv_kernel: u64) -> MixerSizes {
    MixerSizes::Known(
        "mamba2",
        vec![("heads", heads), ("head", head_dim), ("state", state_size), ("groups", groups), ("conv", conv_kernel)],
    )
}

/// Bamba, Granite 4, Falcon-H1. `mamba_expand` times the width can differ from heads times head width; the heads are right.
fn bamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(heads) = config.size("mamba_n_heads")? else { return Ok(None) };
    let inner_dim = match (config.size("mamba_d_ssm")?, config.width()?) {
        (Some(inner_dim), _) => Some(inner_dim),
        (None, Some(width)) => Some(config.scaled_size("mamba_expand", width, 2.0)?),
        (None, None) => None,
    };
    let head_dim = config
        .size_or_auto("mamba_d_head")?
        .or(inner_dim.filter(|inner_dim| inner_dim % heads == 0).map(|inner_dim| inner_dim / heads));
    let (Some(head_dim), Some(state_size)) = (head_dim, config.size("mamba_d_state")?) else {
        return Ok(Some(MixerSizes::Missing(vec!["mamba_d_head and mamba_d_state".to_owned()])));
    };
    if let Some(inner_dim) =
        config.size("mamba_d_ssm")?.filter(|&inner_dim| inner_dim != heads.saturating_mul(head_dim))
    {
        let why = format!("{inner_dim} channels are not {heads} heads of {head_dim}");
        let (first, second) = (config.path_of("mamba_d_ssm"), config.path_of("mamba_n_heads"));
        return Err(AuditError::Contradiction { first, second, why });
    }
    let groups = config.size("mamba_n_groups")?.unwrap_or(1);
    Ok(Some(mamba2(heads, head_dim, state_size, groups, config.size("mamba_d_conv")?.unwrap_or(4))))
}

/// Whether this is the first Zamba, whose `n_mamba_heads` splits Mamba-1 channels instead of counting Mamba-2 heads.
fn is_first_zamba(config: &Config) -> bool {
    config.has("n_mamba_heads") && !config.has("mamba_ngroups") && !config.has("mamba_headdim")
}

/// Zamba 2.
fn zamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(heads) = config.size("n_mamba_heads")?.filter(|_| !is_first_zamba(config)) else { return Ok(None) };
    let (Some(state_size), Some(width)) = (config.size("mamba_d_state")?, config.width()?) else {
        return Ok(Some(MixerSizes::Missing(vec!["mamba_d_state and hidden_size".to_owned()])));
    };
    let inner_dim = config.scaled_size("mamba_expand", width, 2.0)?;
    let head_dim = config.size("mamba_headdim")?.unwrap_or((inner_dim / heads).max(1));
    let groups = config.size("mamba_ngroups")?.unwrap_or(1);
    Ok(Some(mamba2(heads, head_dim, state_size, groups, config.size("mamba_d_conv")?.unwrap_or(4))))
}

/// Jamba, Hymba, Samba: Mamba-1, distinguished from Bamba by the absence of heads.
fn jamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let has_heads = config.has("mamba_n_heads") || config.has("mamba_num_heads");
    let has_heads = has_heads || (config.has("n_mamba_heads") && !is_first_zamba(config));
    let (Some(state_size), false) = (config.size("mamba_d_state")?, has_heads) else { return Ok(None) };
    let Some(width) = config.width()? else { return Ok(Some(MixerSizes::Missing(vec!["hidden_size".to_owned()]))) };
    let inner_dim = config.scaled_size("mamba_expand", width, 2.0)?;
    let dt_rank = config.size_or_auto("mamba_dt_rank")?.unwrap_or(width.div_ceil(16));
    let conv_kernel = config.size("mamba_d_conv")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known(
        "mamba1",
        vec![("inner", inner_dim), ("state", state_size), ("conv", conv_kernel), ("rank", dt_rank)],
    )))
}

/// Mamba, Mamba-2 and Falcon-Mamba in transformers. `expand` may be wrong; transformers builds `intermediate_size` channels.
fn hugging_face_mamba(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let (Some(state_size), Some(conv_kernel)) = (config.size("state_size")?, config.size("conv_kernel")?) else {
        return Ok(None);
    };
    if let (Some(heads), Some(head_dim)) = (config.size("num_heads")?, config.size("head_dim")?) {
        return Ok(Some(mamba2(heads, head_dim, state_size, config.size("n_groups")?.unwrap_or(1), conv_kernel)));
    }
    let Some(width) = config.width()? else { return Ok(Some(MixerSizes::Missing(vec!["hidden_size".to_owned()]))) };
    let inner_dim = match config.first_size(&["intermediate_size", "d_inner"])? {
        Some(inner_dim) => inner_dim,
        None => config.scaled_size("expand", width, 2.0)?,
    };
    let dt_rank = config.size_or_auto("time_step_rank")?.unwrap_or(width.div_ceil(16));
    Ok(Some(MixerSizes::Known(
        "mamba1",
        vec![("inner", inner_dim), ("state", state_size), ("conv", conv_kernel), ("rank", dt_rank)],
    )))
}

/// Griffin, `RecurrentGemma`.
fn griffin(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(inner_dim) = config.size("lru_width")? else { return Ok(None) };
    let heads = config.size("num_attention_heads")?.unwrap_or(1);
    let conv_kernel = config.size("conv1d_width")?.unwrap_or(4);
    Ok(Some(MixerSizes::Known("rglru", vec![("inner", inner_dim), ("heads", heads), ("conv", conv_kernel)])))
}

/// LFM2: `conv_L_cache` is the kernel size, so one input fewer is cached.
fn short_convolution(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let Some(kernel_size) = config.size("conv_L_cache")? else { return Ok(None) };
    let Some(channels) = config.size("conv_dim")?.or(config.width()?) else {
        return Ok(Some(MixerSizes::Missing(vec!["conv_dim or hidden_size".to_owned()])));
    };
    Ok(Some(MixerSizes::Known("conv", vec![("taps", kernel_size), ("channels", channels)])))
}

/// Lightning attention: as many heads as the softmax layers, each with a head width x head width state.
pub(crate) fn lightning(config: &Config) -> Result<MixerSizes, AuditError> {
    let heads = config.first_size(&["num_attention_heads"])?;
    let head_dim = match (config.size("head_dim")?, config.width()?, heads) {
        (Some(head_dim), _, _) => Some(head_dim),
        (None, Some(width), Some(heads)) if width % heads == 0 => Some(width / heads),
        _ => None,
    };
    let (Some(heads), Some(head_dim)) = (heads, head_dim) else {
        return Ok(MixerSizes::Missing(vec!["num_attention_heads and head_dim".to_owned()]));
    };
    Ok(MixerSizes::Known("lightning", vec![("heads", heads), ("head", head_dim)]))
}

/// `MiniMax`-Text-01 and M1, recognised by fields that only they have.
fn minimax_lightning(config: &Config) -> Result<Option<MixerSizes>, AuditError> {
    let fields = ["linear_attn_alpha_factor", "layernorm_linear_attention_alpha", "attn_type_list"];
    if fields.iter().any(|name| config.has(name)) { lightning(config).map(Some) } else { Ok(None) }
}

/// A recurrence with its sizes, or one of these mixers where the sizes are missing.
pub(crate) fn known_or_candidates(sizes: MixerSizes, mixers: &'static [&'static str]) -> RecurrenceSpec {
    match sizes {
        MixerSizes::Known(name, sizes) => RecurrenceSpec::WithSizes(name, sizes),
        MixerSizes::Missing(_) => RecurrenceSpec::SizesFromConfig(mixers),
    }
}
