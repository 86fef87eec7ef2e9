//! The sizes of attention: heads, key/value heads, head widths, windows, latents, indexers.
//!
//! Most fields have one meaning under several names, so each size is looked up under all of them. Layers of one
//! model may differ: window layers have their own heads in `MiMo` (`swa_*`) and Baichuan-M1 (`num_swa_*`), full layers
//! have their own in Gemma 4 (`global_head_dim`, `num_global_key_value_heads`).
//!
//! A size that is not given makes the layer's *sizes* unknown, not its kind: rungs are still counted, bytes are not.

use rung_theory::stack::{Defaults, Mixer};

use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerOverrides};

/// A mixer's name with its sizes, or the fields that would have to be present to know them.
pub(crate) enum MixerSizes {
    Known(&'static str, Vec<(&'static str, u64)>),
    Missing(Vec<String>),
}

const HEADS: &[&str] = &[
    "num_attention_heads",
    "n_head",
    "n_heads",
    "attention_heads",
    "attention.head_count",
    "attn_cfg.num_heads",
    "num_heads",
];
const KV_HEADS: &[&str] = &[
    // First: DBRX also writes a `num_key_value_heads`, which is only its class's default.
    "attn_config.kv_n_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "n_query_groups",
    "n_head_kv",
    "attention.head_count_kv",
    "attn_cfg.num_heads_kv",
];
const WINDOWS: &[&str] = &[
    "sliding_window",
    "sliding_window_size",
    "attention_window_size",
    "window_size",
    "local_window",
    "attention.sliding_window",
];

/// Head counts and head widths of one attention layer.
#[derive(Clone, Copy, Debug)]
struct HeadSizes {
    query_heads: u64,
    kv_heads: u64,
    key_dim: u64,
    value_dim: u64,
}

/// The first positive number under these names. A per-layer list such as GGUF's `head_count_kv` is read by its dialect and
/// counts as absent.
fn first_positive(config: &Config, names: &[&str]) -> Result<Option<u64>, AuditError> {
    for name in names {
        let is_list = matches!(config.get(name), Some(crate::json::JsonValue::List(_)));
        // Falcon-H1 and others write 0 where a field does not apply.
        if !is_list && let Some(number) = config.count(name)?.filter(|&number| number > 0) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

fn base_heads(config: &Config, overrides: LayerOverrides) -> Result<Result<HeadSizes, Vec<String>>, AuditError> {
    let missing = |field: &str| Ok(Err(vec![field.to_owned()]));
    let Some(heads) = overrides.heads.or(first_positive(config, HEADS)?) else { return missing("num_attention_heads") };
    let given_head_dim = config.first_size(&[
        "head_dim",
        "attention_head_dim",
        "attention.key_length",
        "kv_channels",
        "dim_head",
        "attn_cfg.head_dim",
    ])?;
    // Zamba2 attends over the residual stream and the embedding together.
    let width = config.size("attention_hidden_size")?.or(config.width()?);
    let key_dim = match (given_head_dim, width) {
        (Some(head_dim), _) => head_dim,
        (None, Some(width)) if width % heads == 0 => width / heads,
        (None, Some(_)) => return missing("head_dim (the width is not a multiple of the heads)"),
        (None, None) => return missing("head_dim, or hidden_size and num_attention_heads"),
    };
    let value_dim = config.first_size(&["v_head_dim", "attention.value_length"])?.unwrap_or(key_dim);
    let is_multi_query =
        config.flag("multi_query")? == Some(true) && config.flag("new_decoder_architecture")? != Some(true);
    let given_kv_heads = if is_multi_query { Some(1) } else { first_positive(config, KV_HEADS)? };
    Ok(Ok(HeadSizes {
        query_heads: heads,
        kv_heads: overrides.kv_heads.or(given_kv_heads).unwrap_or(heads),
        key_dim,
        value_dim,
    }))
}

/// The heads of full layers.
fn full_heads(config: &Config, overrides: LayerOverrides) -> Result<Result<HeadSizes, Vec<String>>, AuditError> {
    let Ok(mut heads) = base_heads(config, overrides)? else { return base_heads(config, overrides) };
    if let Some(head_dim) = config.size("global_head_dim")? {
        (heads.key_dim, heads.value_dim) = (head_dim, head_dim);
    }
    if overrides.kv_heads.is_none()
        && let Some(kv_heads) = config.size("num_global_key_value_heads")?
    {
        heads.kv_heads = kv_heads;
    }
    Ok(Ok(heads))
}

/// The heads of layers with a window.
fn window_heads(config: &Config, overrides: LayerOverrides) -> Result<Result<HeadSizes, Vec<String>>, AuditError> {
    let Ok(mut heads) = base_heads(config, overrides)? else { return base_heads(config, overrides) };
    if overrides.heads.is_none()
        && let Some(count) = config.first_size(&["swa_num_attention_heads", "num_swa_attention_heads"])?
    {
        // Baichuan-M1 gives no head width: it is the model's width divided by the heads.
        if !config.has("head_dim")
            && !config.has("swa_head_dim")
            && let Some(width) = config.width()?
        {
            if width % count != 0 {
                return Ok(Err(vec!["swa_head_dim".to_owned()]));
            }
            (heads.key_dim, heads.value_dim) = (width / count, width / count);
        }
        heads.query_heads = count;
    }
    if overrides.kv_heads.is_none()
        && let Some(kv_heads) = config.first_size(&["swa_num_key_value_heads", "num_swa_key_value_heads"])?
    {
        heads.kv_heads = kv_heads;
    } else if overrides.kv_heads.is_none() && config.model_type()? == Some("mimo_v2_flash") {
        // The library doubles the key/value heads of window layers where the file gives none for them.
        heads.kv_heads *= 2;
    }
    if let Some(head_dim) = config.first_size(&["swa_head_dim", "attention.key_length_swa"])? {
        (heads.key_dim, heads.value_dim) = (head_dim, head_dim);
    }
    if let Some(value_dim) = config.first_size(&["swa_v_head_dim", "attention.value_length_swa"])? {
        heads.value_dim = value_dim;
    }
    Ok(Ok(heads))
}

/// The window's size in tokens, if the config gives one.
pub(crate) fn window_size(config: &Config) -> Result<Option<u64>, AuditError> {
    config.first_size(WINDOWS)
}

impl HeadSizes {
    fn named_sizes(self) -> Vec<(&'static str, u64)> {
        // `head` is only the default of `key` and `value`.
        vec![
            ("heads", self.query_heads),
            ("kv", self.kv_heads),
            ("head", self.key_dim),
            ("key", self.key_dim),
            ("value", self.value_dim),
        ]
    }
}

/// Sizes of multi-head latent attention, if the config has them.
fn latent_attention(config: &Config, overrides: LayerOverrides) -> Result<Option<MixerSizes>, AuditError> {
    let Some(latent_dim) = config.first_size(&["kv_lora_rank", "attention.kv_lora_rank"])? else { return Ok(None) };
    let Some(heads) = first_positive(config, HEADS)? else {
        return Ok(Some(MixerSizes::Missing(vec!["num_attention_heads".to_owned()])));
    };
    let rope_dim = match config.count("qk_rope_head_dim")? {
        _ if overrides.no_rope => 0,
        Some(rope_dim) => rope_dim,
        None => config.count("rope.dimension_count")?.unwrap_or(0),
    };
    // GGUF stores the width of the key including its rotary part.
    let key_length = config.size("attention.key_length_mla")?;
    let nope_dim = match (config.size("qk_nope_head_dim")?, key_length) {
        (Some(nope_dim), _) => nope_dim,
        (None, Some(key)) if key > rope_dim => key - rope_dim,
        _ => return Ok(Some(MixerSizes::Missing(vec!["qk_nope_head_dim".to_owned()]))),
    };
    let value_dim = config.first_size(&["v_head_dim", "attention.value_length_mla"])?.unwrap_or(nope_dim);
    let query_rank = config.first_size(&["q_lora_rank", "attention.q_lora_rank"])?.unwrap_or(0);
    let sizes = vec![
        ("heads", heads),
        ("head", nope_dim),
        ("latent", latent_dim),
        ("rope", rope_dim),
        ("value", value_dim),
        ("query-rank", query_rank),
    ];
    Ok(Some(MixerSizes::Known("mla", sizes)))
}

/// The sizes of a mixer with these heads and some further sizes.
fn with_heads(
    heads: Result<HeadSizes, Vec<String>>,
    name: &'static str,
    other_sizes: &[(&'static str, u64)],
) -> MixerSizes {
    match heads {
        Ok(heads) => MixerSizes::Known(name, [heads.named_sizes().as_slice(), other_sizes].concat()),
        Err(missing) => MixerSizes::Missing(missing),
    }
}

/// The mixer of one attention layer; nothing for a layer without attention.
pub(crate) fn attention(
    config: &Config,
    kind: &AttentionKind,
    overrides: LayerOverrides,
) -> Result<Option<MixerSizes>, AuditError> {
    Ok(Some(match kind {
        AttentionKind::None | AttentionKind::Unknown { .. } => return Ok(None),
        AttentionKind::Full => match latent_attention(config, overrides)? {
            Some(sizes) => sizes,
            None => with_heads(full_heads(config, overrides)?, "full", &[]),
        },
        AttentionKind::Window(size) => match size.map_or_else(|| window_size(config), |size| Ok(Some(size)))? {
            Some(size) => {
                // Where caches are compressed, one vector per token is both key and value, in the window too.
                let shares_key_and_value = config.has("compress_ratios") || config.has("compress_rates");
                match latent_attention(config, overrides)? {
                    Some(MixerSizes::Known(_, sizes)) => latent_window(&sizes, size),
                    Some(missing @ MixerSizes::Missing(_)) => missing,
                    None => with_heads(
                        window_heads(config, overrides)?,
                        "window",
                        &[("size", size), ("tied", u64::from(shares_key_and_value))],
                    ),
                }
            }
            None => MixerSizes::Missing(vec![WINDOWS[..4].join(" or ")]),
        },
        AttentionKind::Chunked => match config.first_size(&["attention_chunk_size", "attention.chunk_size"])? {
            Some(size) => with_heads(window_heads(config, overrides)?, "chunked", &[("size", size)]),
            None => MixerSizes::Missing(vec!["attention_chunk_size".to_owned()]),
        },
        AttentionKind::TokenSparse { has_own_indexer } => token_sparse_attention(config, overrides, *has_own_indexer)?,
        AttentionKind::IndexedBlockSparse => indexed_block_sparse_attention(config, overrides)?,
        AttentionKind::BlockSparse => block_sparse_attention(config, overrides)?,
        AttentionKind::Compressed { ratio, has_indexer } => compressed_attention(config, *ratio, *has_indexer)?,
    }))
}

/// A window over latents: the cache holds one vector of latent and rotary key per token.
fn latent_window(sizes: &[(&'static str, u64)], window: u64) -> MixerSizes {
    let size_of = |name: &str| sizes.iter().find(|(key, _)| *key == name).map_or(0, |(_, number)| *number);
    let key_dim = size_of("latent") + size_of("rope");
    let heads = [
        ("heads", size_of("heads")),
        ("kv", 1),
        ("head", key_dim),
        ("key", key_dim),
        ("value", size_of("value").max(1)),
    ];
    MixerSizes::Known("window", [heads.as_slice(), &[("size", window), ("tied", 1)]].concat())
}

/// Attention to blocks of tokens that an indexer selects; its index keys of every token are cached in addition to the ordinary
/// keys and values (Qwen 4).
fn indexed_block_sparse_attention(config: &Config, overrides: LayerOverrides) -> Result<MixerSizes, AuditError> {
    let (Some(index_dim), Some(block), Some(budget)) =
        (config.size("indexer_head_dim")?, config.size("indexer_compress_ratio")?, config.size("indexer_budget")?)
    else {
        return Ok(MixerSizes::Missing(vec!["indexer_head_dim, indexer_compress_ratio and indexer_budget".to_owned()]));
    };
    let groups = config.first_size(&["indexer_kv_heads"])?.unwrap_or(1);
    let selected_blocks = (budget / block).max(1) + 1;
    let sizes =
        [("block", block), ("top", selected_blocks), ("groups", groups), ("index", groups.saturating_mul(index_dim))];
    Ok(with_heads(full_heads(config, overrides)?, "moba", &sizes))
}

/// Elements of one token's index key. Where keys are pooled, the unpooled keys, their gates and a flag are cached.
fn index_width(config: &Config, index_dim: u64) -> Result<u64, AuditError> {
    Ok(if config.size("index_kpool")?.is_some() { 2 * index_dim + 1 } else { index_dim })
}

fn token_sparse_attention(
    config: &Config,
    overrides: LayerOverrides,
    has_own_indexer: bool,
) -> Result<MixerSizes, AuditError> {
    let Some(MixerSizes::Known(_, mut sizes)) = latent_attention(config, overrides)? else {
        return Ok(MixerSizes::Missing(vec!["kv_lora_rank, qk_nope_head_dim and qk_rope_head_dim".to_owned()]));
    };
    let Some(selected_tokens) = config.first_size(&["index_topk", "attention.indexer.top_k"])? else {
        return Ok(MixerSizes::Missing(vec!["index_topk".to_owned()]));
    };
    sizes.push(("top", selected_tokens));
    let (index_heads, index_dim) = if has_own_indexer {
        let index_heads = config.first_size(&["index_n_heads", "attention.indexer.head_count"])?;
        let index_dim = config.first_size(&["index_head_dim", "attention.indexer.key_length"])?;
        let (Some(index_heads), Some(index_dim)) = (index_heads, index_dim) else {
            return Ok(MixerSizes::Missing(vec!["index_n_heads and index_head_dim".to_owned()]));
        };
        (index_heads, index_width(config, index_dim)?)
    } else {
        (0, 0)
    };
    sizes.extend([("index-heads", index_heads), ("index-head", index_dim)]);
    Ok(MixerSizes::Known("dsa", sizes))
}

fn block_sparse_attention(config: &Config, overrides: LayerOverrides) -> Result<MixerSizes, AuditError> {
    let size = |name: &str| config.size(&format!("sparse_attention_config.{name}"));
    let (Some(block), Some(selected_blocks)) = (size("sparse_block_size")?, size("sparse_topk_blocks")?) else {
        let fields = "sparse_attention_config.sparse_block_size and .sparse_topk_blocks";
        return Ok(MixerSizes::Missing(vec![fields.to_owned()]));
    };
    let local_blocks = config.count("sparse_attention_config.sparse_local_block")?.unwrap_or(1);
    let heads = full_heads(config, overrides)?;
    let groups = match (size("sparse_num_index_heads")?, &heads) {
        (Some(groups), _) => groups,
        (None, Ok(heads)) => heads.kv_heads,
        (None, Err(_)) => 1,
    };
    let index_dim = config.count("sparse_attention_config.sparse_index_dim")?.unwrap_or(0);
    Ok(with_heads(
        heads,
        "moba",
        &[("block", block), ("top", selected_blocks + local_blocks), ("groups", groups), ("index", index_dim)],
    ))
}

fn compressed_attention(config: &Config, ratio: u64, has_indexer: bool) -> Result<MixerSizes, AuditError> {
    let (Some(heads), Some(head_dim)) =
        (first_positive(config, HEADS)?, config.first_size(&["head_dim", "attention.key_length"])?)
    else {
        return Ok(MixerSizes::Missing(vec!["num_attention_heads and head_dim".to_owned()]));
    };
    let Some(window) = window_size(config)? else { return Ok(MixerSizes::Missing(vec!["sliding_window".to_owned()])) };
    let query_rank = config.first_size(&["q_lora_rank", "attention.q_lora_rank"])?.unwrap_or(0);
    let mut sizes =
        vec![("heads", heads), ("head", head_dim), ("ratio", ratio), ("window", window), ("query-rank", query_rank)];
    if has_indexer {
        let selected = config.first_size(&["index_topk", "attention.indexer.top_k"])?;
        let index_heads = config.first_size(&["index_n_heads", "attention.indexer.head_count"])?;
        let index_dim = config.first_size(&["index_head_dim", "attention.indexer.key_length"])?;
        let (Some(selected), Some(index_heads), Some(index_dim)) = (selected, index_heads, index_dim) else {
            return Ok(MixerSizes::Missing(vec!["index_topk, index_n_heads and index_head_dim".to_owned()]));
        };
        sizes.extend([("top", selected), ("index-heads", index_heads), ("index-head", index_dim)]);
    }
    Ok(MixerSizes::Known("compressed", sizes))
}

/// Builds a mixer; a size that `rung-theory` rejects is an error of the config.
pub(crate) fn build_mixer(
    name: &str,
    sizes: &[(&'static str, u64)],
    bits: u64,
    defaults: &Defaults,
) -> Result<Mixer, AuditError> {
    let options = [sizes, &[("bits", bits)]].concat();
    Mixer::new(name, &options, defaults)
        .map_err(|error| AuditError::field(format!("(sizes of {name})"), error.to_string(), "sizes within limits"))
}
