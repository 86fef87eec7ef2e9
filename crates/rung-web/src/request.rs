//! The requests of the page: one struct per request, JSON with the field `ask`.
//!
//! ```json
//! {"ask": "audit", "model": {"preset": "qwen3.5-9b"}, "context": 131072}
//! ```
//!
//! An unknown field is an error, so that a misspelt field does not silently become a default.

use serde::Deserialize;

/// A request of the page.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Names that the other requests accept: presets, engines, GPUs, formats, mixers, constructions.
    Names,
    /// The main numbers of all presets, for the gallery.
    Gallery(CacheSettings),
    /// One audit, as `rung audit --json`.
    Audit(AuditRequest),
    /// Audits before and after edits, as `rung audit --what-if --json`.
    WhatIf(AuditRequest),
    /// All numbers that the designer shows.
    Design(AuditRequest),
    /// The memory that an engine allocates, as `rung plan --json`.
    Plan(PlanRequest),
    /// Placements of full layers within a budget, as `rung place --json`.
    Place(PlaceRequest),
    /// Mistakes in a config, as `rung lint --json`.
    Lint(LintRequest),
    /// Rungs of a stack, as `rung capacity --json`.
    Capacity(StackRequest),
    /// The smallest certificate, as `rung bound --json`.
    Bound(HopsRequest),
    /// The hop map, as `rung map --json`: from which prompt length on each number of hops is solved, unknown or impossible.
    Map(HopsRequest),
    /// One row of the hop map, for a model with edits.
    #[serde(rename = "rung")]
    MapRow(MapRowRequest),
    /// The check of a certificate, as `rung check --json`.
    Check(CheckRequest),
    /// One forward pass of a construction.
    Pass(PassRequest),
}

/// The model of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelInput {
    /// A preset by name.
    Preset(String),
    /// The text of a `config.json`.
    Config {
        /// The text.
        text: String,
        /// The model's name.
        name: String,
    },
    /// A stack in the stack grammar.
    Stack(StackInput),
    /// The file that was sent with the request: a GGUF header or a config.
    File {
        /// The model's name, if the file has none.
        name: String,
    },
}

/// A stack, and default sizes for mixers that do not give their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackInput {
    /// The stack in the stack grammar, such as `(gdn*3 full)*12`.
    pub text: String,
    /// Query heads.
    pub heads: Option<u64>,
    /// Width of a head.
    pub head_dim: Option<u64>,
    /// Key/value heads; by default as many as query heads.
    pub kv_heads: Option<u64>,
    /// Width of the residual stream.
    pub width: Option<u64>,
    /// Bits per number.
    pub bits: Option<u64>,
}

/// Context and number formats.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSettings {
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Number format of keys and values.
    pub kv_dtype: Option<String>,
    /// Number format of recurrent state.
    pub state_dtype: Option<String>,
}

/// An audit, with or without edits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRequest {
    /// The model.
    pub model: ModelInput,
    /// Edits in the grammar of `--what-if`; none if empty.
    #[serde(default)]
    pub edits: String,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Number format of keys and values.
    pub kv_dtype: Option<String>,
    /// Number format of recurrent state.
    pub state_dtype: Option<String>,
    /// Search a lower bound for one hop more than the rungs if that is at most this many hops; 0 for no search.
    pub certify: Option<usize>,
}

/// A memory plan under an engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The model.
    pub model: ModelInput,
    /// Edits in the grammar of `--what-if`, applied first; none if empty.
    #[serde(default)]
    pub edits: String,
    /// The engine: vllm, sglang, llama.cpp, transformers or tensorrt-llm.
    pub engine: String,
    /// GPUs by name, such as `h100x2`.
    pub on: Option<String>,
    /// Devices that share each layer.
    pub tp: Option<u64>,
    /// Number format of keys and values.
    pub kv_dtype: Option<String>,
    /// Number format of recurrent state.
    pub state_dtype: Option<String>,
    /// Size of the weights: bytes or bits per weight.
    pub weights: Option<String>,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Concurrent requests.
    pub requests: Option<u64>,
    /// Plan the layers that the engine covers and leave out the others.
    #[serde(default)]
    pub partial: bool,
}

/// Placements of full layers within a budget.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceRequest {
    /// The model.
    pub model: ModelInput,
    /// Cache budget in bytes, such as `4GiB`.
    pub budget: String,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Number format of keys and values.
    pub kv_dtype: Option<String>,
    /// Number format of recurrent state.
    pub state_dtype: Option<String>,
}

/// A config to lint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LintRequest {
    /// The text of the config, or nothing for a preset.
    pub text: Option<String>,
    /// Name of the file or of the preset.
    pub file: String,
}

/// The rungs of a stack.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackRequest {
    /// The stack.
    pub stack: StackInput,
    /// MessageSizeConvention by which message bits are counted.
    pub message: Option<String>,
}

/// A stack and a number of hops.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopsRequest {
    /// The stack.
    pub stack: StackInput,
    /// Number of hops: that of the bound, or the largest of the map.
    pub hops: usize,
    /// MessageSizeConvention by which message bits are counted.
    pub message: Option<String>,
}

/// One row of the hop map.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapRowRequest {
    /// The model.
    pub model: ModelInput,
    /// Edits in the grammar of `--what-if`, applied first; none if empty.
    #[serde(default)]
    pub edits: String,
    /// Number of hops.
    pub hops: usize,
}

/// A certificate to check.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// The certificate's text.
    pub text: String,
    /// Also explain every inequality with its numbers and assumptions, as `rung check --explain --json`.
    #[serde(default)]
    pub explain: bool,
}

/// A construction and a prompt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRequest {
    /// The construction, such as `U2`.
    pub construction: String,
    /// Number of hops.
    pub hops: usize,
    /// Entries of the first table.
    #[serde(rename = "m")]
    pub first_table_entries: u32,
    /// How many times larger each further table is.
    #[serde(rename = "n")]
    pub growth_factors: Vec<u32>,
    /// The mixer that passes the start value on, for constructions that need one.
    pub mixer: Option<String>,
    /// Seed of the random prompt.
    #[serde(default)]
    pub seed: u64,
    /// Token ids of the prompt, instead of a random one.
    pub tokens: Option<Vec<u32>>,
}
