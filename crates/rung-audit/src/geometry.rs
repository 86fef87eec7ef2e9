//! The sizes of attention: heads, key/value heads, head widths, windows, latents, indexers.
//!
//! Most fields have one meaning under several names, so each size is looked up under all of them. Two geometries can
//! live in one model: window layers have their own heads in `MiMo` (`swa_*`) and Baichuan-M1 (`num_swa_*`), full layers
//! have their own in Gemma 4 (`global_head_dim`, `num_global_key_value_heads`).
//!
//! A size that is not given makes the layer's *sizes* unknown, not its kind: rungs are still counted, bytes are not.

use rung_theory::stack::{Defaults, Mixer};

use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerOverrides};

/// A mixer's name and its numbers, or the fields of which none was found.
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
    // DBRX also has a `num_key_value_heads` of its class's default.
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

/// Heads, key/value heads, key width, value width.
#[derive(Clone, Copy, Debug)]
struct Heads {
    queries: u64,
    kv: u64,
    key: u64,
    value: u64,
}

/// A per-layer list such as GGUF's `head_count_kv` is read by its dialect; here it counts as absent.
fn scalar(config: &Config, names: &[&str]) -> Result<Option<u64>, AuditError> {
    for name in names {
        let list = matches!(config.get(name), Some(crate::json::JsonValue::List(_)));
        // Falcon-H1 and others write 0 where nothing applies.
        if !list && let Some(found) = config.count(name)?.filter(|&found| found > 0) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn base_heads(config: &Config, overrides: LayerOverrides) -> Result<Result<Heads, Vec<String>>, AuditError> {
    let missing = |what: &str| Ok(Err(vec![what.to_owned()]));
    let Some(heads) = overrides.heads.or(scalar(config, HEADS)?) else { return missing("num_attention_heads") };
    let given = config.first_size(&[
        "head_dim",
        "attention_head_dim",
        "attention.key_length",
        "kv_channels",
        "dim_head",
        "attn_cfg.head_dim",
    ])?;
    // Zamba2 attends over the residual stream and the embedding together.
    let width = config.size("attention_hidden_size")?.or(config.width()?);
    let key = match (given, width) {
        (Some(found), _) => found,
        (None, Some(width)) if width % heads == 0 => width / heads,
        (None, Some(_)) => return missing("head_dim (the width is not a multiple of the heads)"),
        (None, None) => return missing("head_dim, or hidden_size and num_attention_heads"),
    };
    let value = config.first_size(&["v_head_dim", "attention.value_length"])?.unwrap_or(key);
    let is_multi_query =
        config.flag("multi_query")? == Some(true) && config.flag("new_decoder_architecture")? != Some(true);
    let given_kv = if is_multi_query { Some(1) } else { scalar(config, KV_HEADS)? };
    Ok(Ok(Heads { queries: heads, kv: overrides.kv.or(given_kv).unwrap_or(heads), key, value }))
}

/// The heads of full layers.
fn full_heads(config: &Config, overrides: LayerOverrides) -> Result<Result<Heads, Vec<String>>, AuditError> {
    let Ok(mut heads) = base_heads(config, overrides)? else { return base_heads(config, overrides) };
    if let Some(head) = config.size("global_head_dim")? {
        (heads.key, heads.value) = (head, head);
    }
    if overrides.kv.is_none()
        && let Some(kv) = config.size("num_global_key_value_heads")?
    {
        heads.kv = kv;
    }
    Ok(Ok(heads))
}

/// The heads of layers with a window.
fn window_heads(config: &Config, overrides: LayerOverrides) -> Result<Result<Heads, Vec<String>>, AuditError> {
    let Ok(mut heads) = base_heads(config, overrides)? else { return base_heads(config, overrides) };
    if overrides.heads.is_none()
        && let Some(count) = config.first_size(&["swa_num_attention_heads", "num_swa_attention_heads"])?
    {
        // Baichuan-M1 has no head width of its own: the width is shared out.
        if !config.has("head_dim")
            && !config.has("swa_head_dim")
            && let Some(width) = config.width()?
        {
            if width % count != 0 {
                return Ok(Err(vec!["swa_head_dim".to_owned()]));
            }
            (heads.key, heads.value) = (width / count, width / count);
        }
        heads.queries = count;
    }
    if overrides.kv.is_none()
        && let Some(kv) = config.first_size(&["swa_num_key_value_heads", "num_swa_key_value_heads"])?
    {
        heads.kv = kv;
    } else if overrides.kv.is_none() && config.model_type()? == Some("mimo_v2_flash") {
        // The library doubles the key/value heads of window layers where the file gives none for them.
        heads.kv *= 2;
    }
    if let Some(key) = config.first_size(&["swa_head_dim", "attention.key_length_swa"])? {
        (heads.key, heads.value) = (key, key);
    }
    if let Some(value) = config.first_size(&["swa_v_head_dim", "attention.value_length_swa"])? {
        heads.value = value;
    }
    Ok(Ok(heads))
}

/// The window's size, and what to look for if there is none.
pub(crate) fn window_size(config: &Config) -> Result<Option<u64>, AuditError> {
    config.first_size(WINDOWS)
}

impl Heads {
    fn numbers(self) -> Vec<(&'static str, u64)> {
        // `head` is only the default of the two widths.
        vec![("heads", self.queries), ("kv", self.kv), ("head", self.key), ("key", self.key), ("value", self.value)]
    }
}

/// Numbers of latent attention, if the config has them.
fn latent(config: &Config, overrides: LayerOverrides) -> Result<Option<MixerSizes>, AuditError> {
    let Some(latent) = config.first_size(&["kv_lora_rank", "attention.kv_lora_rank"])? else { return Ok(None) };
    let Some(heads) = scalar(config, HEADS)? else {
        return Ok(Some(MixerSizes::Missing(vec!["num_attention_heads".to_owned()])));
    };
    let rope = match config.count("qk_rope_head_dim")? {
        _ if overrides.no_rope => 0,
        Some(rope) => rope,
        None => config.count("rope.dimension_count")?.unwrap_or(0),
    };
    // GGUF stores the width of the whole key, rotary part included.
    let key_length = config.size("attention.key_length_mla")?;
    let head = match (config.size("qk_nope_head_dim")?, key_length) {
        (Some(head), _) => head,
        (None, Some(key)) if key > rope => key - rope,
        _ => return Ok(Some(MixerSizes::Missing(vec!["qk_nope_head_dim".to_owned()]))),
    };
    let value = config.first_size(&["v_head_dim", "attention.value_length_mla"])?.unwrap_or(head);
    let rank = config.first_size(&["q_lora_rank", "attention.q_lora_rank"])?.unwrap_or(0);
    let numbers = vec![
        ("heads", heads),
        ("head", head),
        ("latent", latent),
        ("rope", rope),
        ("value", value),
        ("query-rank", rank),
    ];
    Ok(Some(MixerSizes::Known("mla", numbers)))
}

fn from_heads(found: Result<Heads, Vec<String>>, name: &'static str, more: &[(&'static str, u64)]) -> MixerSizes {
    match found {
        Ok(heads) => MixerSizes::Known(name, [heads.numbers().as_slice(), more].concat()),
        Err(missing) => MixerSizes::Missing(missing),
    }
}

/// The mixer of one attention layer; nothing for a layer that does not attend.
pub(crate) fn attention(
    config: &Config,
    kind: &AttentionKind,
    overrides: LayerOverrides,
) -> Result<Option<MixerSizes>, AuditError> {
    Ok(Some(match kind {
        AttentionKind::None | AttentionKind::Unknown { .. } => return Ok(None),
        AttentionKind::Full => match latent(config, overrides)? {
            Some(sized) => sized,
            None => from_heads(full_heads(config, overrides)?, "full", &[]),
        },
        AttentionKind::Window(size) => match size.map_or_else(|| window_size(config), |size| Ok(Some(size)))? {
            Some(size) => {
                // Where caches are compressed, one vector per token serves as key and value, in the window too.
                let tied = config.has("compress_ratios") || config.has("compress_rates");
                match latent(config, overrides)? {
                    Some(MixerSizes::Known(_, numbers)) => latent_window(&numbers, size),
                    Some(missing @ MixerSizes::Missing(_)) => missing,
                    None => from_heads(
                        window_heads(config, overrides)?,
                        "window",
                        &[("size", size), ("tied", u64::from(tied))],
                    ),
                }
            }
            None => MixerSizes::Missing(vec![WINDOWS[..4].join(" or ")]),
        },
        AttentionKind::Chunked => match config.first_size(&["attention_chunk_size", "attention.chunk_size"])? {
            Some(size) => from_heads(window_heads(config, overrides)?, "chunked", &[("size", size)]),
            None => MixerSizes::Missing(vec!["attention_chunk_size".to_owned()]),
        },
        AttentionKind::TokenSparse { own_index } => token_sparse(config, overrides, *own_index)?,
        AttentionKind::QuerySparse => query_sparse(config, overrides)?,
        AttentionKind::BlockSparse => block_sparse(config, overrides)?,
        AttentionKind::Compressed { ratio, has_indexer } => compressed(config, *ratio, *has_indexer)?,
    }))
}

/// A window over latents: one vector of latent and rotary key per token.
fn latent_window(numbers: &[(&'static str, u64)], size: u64) -> MixerSizes {
    let take = |name: &str| numbers.iter().find(|(known, _)| *known == name).map_or(0, |(_, number)| *number);
    let key = take("latent") + take("rope");
    let heads = [("heads", take("heads")), ("kv", 1), ("head", key), ("key", key), ("value", take("value").max(1))];
    MixerSizes::Known("window", [heads.as_slice(), &[("size", size), ("tied", 1)]].concat())
}

/// Blocks of tokens selected by an indexer that keeps keys of every token beside ordinary keys and values (Qwen 4).
fn query_sparse(config: &Config, overrides: LayerOverrides) -> Result<MixerSizes, AuditError> {
    let (Some(head), Some(block), Some(budget)) =
        (config.size("indexer_head_dim")?, config.size("indexer_compress_ratio")?, config.size("indexer_budget")?)
    else {
        return Ok(MixerSizes::Missing(vec!["indexer_head_dim, indexer_compress_ratio and indexer_budget".to_owned()]));
    };
    let groups = config.first_size(&["indexer_kv_heads"])?.unwrap_or(1);
    let top = (budget / block).max(1) + 1;
    let more = [("block", block), ("top", top), ("groups", groups), ("index", groups.saturating_mul(head))];
    Ok(from_heads(full_heads(config, overrides)?, "moba", &more))
}

/// Elements of an index key that one token adds. Where keys are pooled, the unpooled keys, their gates and a flag are kept.
fn index_width(config: &Config, head: u64) -> Result<u64, AuditError> {
    Ok(if config.size("index_kpool")?.is_some() { 2 * head + 1 } else { head })
}

fn token_sparse(config: &Config, overrides: LayerOverrides, own_index: bool) -> Result<MixerSizes, AuditError> {
    let Some(MixerSizes::Known(_, mut numbers)) = latent(config, overrides)? else {
        return Ok(MixerSizes::Missing(vec!["kv_lora_rank, qk_nope_head_dim and qk_rope_head_dim".to_owned()]));
    };
    let Some(top) = config.first_size(&["index_topk", "attention.indexer.top_k"])? else {
        return Ok(MixerSizes::Missing(vec!["index_topk".to_owned()]));
    };
    numbers.push(("top", top));
    let (heads, head) = if own_index {
        let heads = config.first_size(&["index_n_heads", "attention.indexer.head_count"])?;
        let head = config.first_size(&["index_head_dim", "attention.indexer.key_length"])?;
        let (Some(heads), Some(head)) = (heads, head) else {
            return Ok(MixerSizes::Missing(vec!["index_n_heads and index_head_dim".to_owned()]));
        };
        (heads, index_width(config, head)?)
    } else {
        (0, 0)
    };
    numbers.extend([("index-heads", heads), ("index-head", head)]);
    Ok(MixerSizes::Known("dsa", numbers))
}

fn block_sparse(config: &Config, overrides: LayerOverrides) -> Result<MixerSizes, AuditError> {
    let size = |name: &str| config.size(&format!("sparse_attention_config.{name}"));
    let (Some(block), Some(top)) = (size("sparse_block_size")?, size("sparse_topk_blocks")?) else {
        let wanted = "sparse_attention_config.sparse_block_size and .sparse_topk_blocks";
        return Ok(MixerSizes::Missing(vec![wanted.to_owned()]));
    };
    let local = config.count("sparse_attention_config.sparse_local_block")?.unwrap_or(1);
    let heads = full_heads(config, overrides)?;
    let groups = match (size("sparse_num_index_heads")?, &heads) {
        (Some(groups), _) => groups,
        (None, Ok(heads)) => heads.kv,
        (None, Err(_)) => 1,
    };
    let index = config.count("sparse_attention_config.sparse_index_dim")?.unwrap_or(0);
    Ok(from_heads(heads, "moba", &[("block", block), ("top", top + local), ("groups", groups), ("index", index)]))
}

fn compressed(config: &Config, ratio: u64, has_indexer: bool) -> Result<MixerSizes, AuditError> {
    let (Some(heads), Some(head)) = (scalar(config, HEADS)?, config.first_size(&["head_dim", "attention.key_length"])?)
    else {
        return Ok(MixerSizes::Missing(vec!["num_attention_heads and head_dim".to_owned()]));
    };
    let Some(window) = window_size(config)? else { return Ok(MixerSizes::Missing(vec!["sliding_window".to_owned()])) };
    let rank = config.first_size(&["q_lora_rank", "attention.q_lora_rank"])?.unwrap_or(0);
    let mut numbers =
        vec![("heads", heads), ("head", head), ("ratio", ratio), ("window", window), ("query-rank", rank)];
    if has_indexer {
        let top = config.first_size(&["index_topk", "attention.indexer.top_k"])?;
        let count = config.first_size(&["index_n_heads", "attention.indexer.head_count"])?;
        let width = config.first_size(&["index_head_dim", "attention.indexer.key_length"])?;
        let (Some(top), Some(count), Some(width)) = (top, count, width) else {
            return Ok(MixerSizes::Missing(vec!["index_topk, index_n_heads and index_head_dim".to_owned()]));
        };
        numbers.extend([("top", top), ("index-heads", count), ("index-head", width)]);
    }
    Ok(MixerSizes::Known("compressed", numbers))
}

/// Builds a mixer; a number that the theory refuses is an error of the config.
pub(crate) fn build(
    name: &str,
    numbers: &[(&'static str, u64)],
    bits: u64,
    defaults: &Defaults,
) -> Result<Mixer, AuditError> {
    let all = [numbers, &[("bits", bits)]].concat();
    Mixer::new(name, &all, defaults)
        .map_err(|error| AuditError::field(format!("(sizes of {name})"), error.to_string(), "sizes within limits"))
}
