//! No layout field at all: architectures whose layers are all alike, or alternate with a period fixed in the library.
//!
//! # Families
//! Llama, Mistral, Qwen, GPT-2, Mixtral, DeepSeek-V3, Mamba and other well-known architectures.
//!
//! # Pitfalls
//! The list is explicit: an architecture that is not in it is *unknown*, never "probably full". Models with a window in
//! every layer (Mistral 7B v0.1) have no full layer. Where a library fixes a period in its code and the file may leave it
//! out (Gemma 3: every 6th), the period is listed here.

use super::Dialect;
use crate::AuditError;
use crate::attention_sizes::window_size;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "model_type",
    fields: &["model_type"],
    families: "architectures of one kind: Llama, Mistral, Qwen3, Mixtral, DeepSeek-V3, Mamba, ..",
    fallback: true,
    read,
};

/// Full attention in every layer, whatever else the file says.
const FULL: &[&str] = &[
    "llama",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen2moe",
    "qwen3moe",
    "qwen3_vl_text",
    "qwen3_vl_moe_text",
    "qwen2_vl",
    "qwen2_5_vl",
    "gemma",
    "phi",
    "gpt2",
    "gpt_neox",
    "gptneox",
    "gptj",
    "gpt_bigcode",
    "falcon",
    "bloom",
    "opt",
    "mpt",
    "stablelm",
    "olmo",
    "olmo2",
    "olmoe",
    "granite",
    "granitemoe",
    "cohere",
    "command-r",
    "dbrx",
    "deepseek",
    "deepseek2",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4moe",
    "chatglm",
    "internlm2",
    "internlm3",
    "baichuan",
    "yi",
    "minicpm",
    "smollm3",
    "nemotron",
    "exaone",
    "arcee",
    "apertus",
    "ernie4_5",
    "ernie4_5_moe",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "dots1",
    "seed_oss",
    "helium",
    "starcoder",
    "minimax_m2",
    "minimax-m2",
    "bitnet",
    "transformer",
    "xglm",
    "persimmon",
    "jais",
    "aria_text",
    "axk1",
    "biogpt",
    "codegen",
    "cosmos3_edge_text",
    "cpmant",
    "ctrl",
    "diffllama",
    "doge",
    "emu3_text_model",
    "flex_olmo",
    "glm4_moe_lite",
    "glm4v_text",
    "glm4v_moe_text",
    "glm_ocr_text",
    "glm_image_text",
    "gpt_neox_japanese",
    "granite_docling_text",
    "granitemoeshared",
    "hrm_text",
    "hy_v3",
    "hyperclovax",
    "iquestcoder",
    "jais2",
    "jetmoe",
    "minicpm3",
    "molmo2_text",
    "nanochat",
    "solar_open",
    "youtu",
    "qwen2_vl_text",
    "qwen2_5_vl_text",
    "hunyuan_vl_text",
    "qwen3_omni_moe_text",
    "qwen2_5_omni_text",
    "gpt-sw3",
    "fuyu",
    "llava",
];

/// Full attention, or a window in every layer if the file gives one.
const FULL_OR_WINDOW: &[&str] =
    &["mistral", "mixtral", "ministral3", "mistral3", "starcoder2", "phi3", "phimoe", "mistral4", "moshi"];

/// A period fixed in the library: every n-th layer is full, the others have a window.
const PERIODS: &[(&str, usize)] =
    &[("gemma2", 2), ("gemma3", 6), ("gemma3_text", 6), ("gpt_oss", 2), ("gpt-oss", 2), ("cohere2", 4), ("olmo3", 4)];

/// Two attention blocks with a cache each in every layer.
const TWO_BLOCKS: &[&str] = &["longcat_flash"];

/// A recurrence in every layer.
const RECURRENT: &[&str] = &["mamba", "mamba2", "falcon_mamba"];

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(name) = config.model_type()? else { return Ok(None) };
    let field = config.path_of("model_type");
    let has_window = window_size(config)?.is_some();
    let all_layers = |spec: LayerSpec| Some(Layout::from_fn(num_layers, |_| spec.clone().decided_by(&*field)));
    if FULL.contains(&name) {
        return Ok(all_layers(LayerSpec::full()));
    }
    if TWO_BLOCKS.contains(&name) {
        let assumption =
            format!("Every layer of `{name}` has two attention blocks: they are shown as layers of their own.");
        return Ok(Some(
            Layout::from_fn(2 * num_layers, |_| LayerSpec::full().decided_by(&*field)).with_assumption(assumption),
        ));
    }
    if FULL_OR_WINDOW.contains(&name) {
        let window_name = if config.gguf { "attention.sliding_window" } else { "sliding_window" };
        let spec = if has_window { LayerSpec::window() } else { LayerSpec::full() };
        let field = if config.has_key(window_name) { config.path_of(window_name) } else { field };
        return Ok(Some(Layout::from_fn(num_layers, |_| spec.clone().decided_by(&*field))));
    }
    if RECURRENT.contains(&name) {
        return Ok(all_layers(LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"]))));
    }
    let Some(&(_, period)) = PERIODS.iter().find(|(model_type, _)| *model_type == name).filter(|_| has_window) else {
        return Ok(None);
    };
    let layer = |index: usize| if (index + 1).is_multiple_of(period) { LayerSpec::full() } else { LayerSpec::window() };
    let nth = if period == 2 { "2nd".to_owned() } else { format!("{period}th") };
    let assumption = format!(
        "Every {nth} layer is full and the others have a window: no field says so, the library fixes it for `{name}`."
    );
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field)).with_assumption(assumption)))
}
