//! What can be asked: one struct per question, JSON with the field `ask`.
//!
//! ```json
//! {"ask": "audit", "model": {"preset": "qwen3.5-9b"}, "context": 131072}
//! ```
//!
//! A field that is not known is an error, so that a typo is not taken for a default.

use serde::Deserialize;

/// A question.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Names that the other questions take: presets, engines, GPUs, formats, mixers, constructions.
    Names,
    /// All presets in brief, for the gallery.
    Gallery(Storage),
    /// One audit, as `rung audit --json`.
    Audit(AuditRequest),
    /// Before and after edits, as `rung audit --what-if --json`.
    WhatIf(AuditRequest),
    /// Everything that the designer shows at once.
    Design(AuditRequest),
    /// What an engine allocates, as `rung plan --json`.
    Plan(PlanRequest),
    /// Where full layers fit a budget, as `rung place --json`.
    Place(PlaceRequest),
    /// Contradictions in a config, as `rung lint --json`.
    Lint(LintRequest),
    /// Rungs of a stack, as `rung capacity --json`.
    Capacity(StackRequest),
    /// The smallest certificate, as `rung bound --json`.
    Bound(HopsRequest),
    /// The hop map, as `rung map --json`.
    Map(HopsRequest),
    /// One row of the hop map, of a model or a design.
    Rung(RungRequest),
    /// A certificate, checked, as `rung check --json`.
    Check(CheckRequest),
    /// One forward pass of a construction.
    Pass(PassRequest),
}

/// Which model.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelInput {
    /// A preset by name.
    Preset(String),
    /// The text of a `config.json`.
    Config {
        /// The text.
        text: String,
        /// What the model is called.
        name: String,
    },
    /// A stack in the stack grammar.
    Stack(StackInput),
    /// The file that was sent beside the request: a GGUF header or a config.
    File {
        /// What the model is called where the file does not say.
        name: String,
    },
}

/// A stack and the sizes of mixers that do not give their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackInput {
    /// Such as `(gdn*3 full)*12`.
    pub text: String,
    /// Heads.
    pub heads: Option<u64>,
    /// Width of a head.
    pub head_dim: Option<u64>,
    /// Key/value heads, if fewer.
    pub kv_heads: Option<u64>,
    /// Width of the residual stream.
    pub width: Option<u64>,
    /// Bits per number.
    pub bits: Option<u64>,
}

/// Context and number formats.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Tokens.
    pub context: Option<u64>,
    /// How keys and values are stored.
    pub kv_dtype: Option<String>,
    /// How recurrent state is stored.
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
    /// Tokens.
    pub context: Option<u64>,
    /// How keys and values are stored.
    pub kv_dtype: Option<String>,
    /// How recurrent state is stored.
    pub state_dtype: Option<String>,
    /// Search the lower bounds for one hop more than the rungs: up to so many hops, 0 for not at all.
    pub certify: Option<usize>,
}

/// What an engine allocates.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The model.
    pub model: ModelInput,
    /// Edits first.
    #[serde(default)]
    pub edits: String,
    /// vllm, sglang, llama.cpp, transformers or tensorrt-llm.
    pub engine: String,
    /// GPUs by name, such as `h100x2`.
    pub on: Option<String>,
    /// Devices that share each layer.
    pub tp: Option<u64>,
    /// How keys and values are stored.
    pub kv_dtype: Option<String>,
    /// How recurrent state is stored.
    pub state_dtype: Option<String>,
    /// Size of the weights: bytes or bits per weight.
    pub weights: Option<String>,
    /// Tokens.
    pub context: Option<u64>,
    /// Requests at once.
    pub requests: Option<u64>,
    /// Plan the layers that the engine covers and leave out the others.
    #[serde(default)]
    pub partial: bool,
}

/// Where full layers fit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceRequest {
    /// The model.
    pub model: ModelInput,
    /// Bytes, such as `4GiB`.
    pub budget: String,
    /// Tokens.
    pub context: Option<u64>,
    /// How keys and values are stored.
    pub kv_dtype: Option<String>,
    /// How recurrent state is stored.
    pub state_dtype: Option<String>,
}

/// A config to lint.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LintRequest {
    /// The text of the config, or nothing for a preset.
    pub text: Option<String>,
    /// What the file is called, or the preset.
    pub file: String,
}

/// A stack.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackRequest {
    /// The stack.
    pub stack: StackInput,
    /// How message bits are counted.
    pub message: Option<String>,
}

/// A stack and a number of hops.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopsRequest {
    /// The stack.
    pub stack: StackInput,
    /// Hops: those asked about, or the most that a map shows.
    pub hops: usize,
    /// How message bits are counted.
    pub message: Option<String>,
}

/// One row of the hop map.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RungRequest {
    /// The model.
    pub model: ModelInput,
    /// Edits first.
    #[serde(default)]
    pub edits: String,
    /// Hops.
    pub hops: usize,
}

/// A certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// Its text.
    pub text: String,
    /// With what each sentence rests on and the numbers of every inequality, as `rung check --explain --json`.
    #[serde(default)]
    pub explain: bool,
}

/// A construction and a prompt.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRequest {
    /// The construction, such as `U2`.
    pub construction: String,
    /// Hops.
    pub hops: usize,
    /// Entries of the first table.
    pub m: u32,
    /// Growth of each further table.
    pub n: Vec<u32>,
    /// The mixer that carries, where one is needed.
    pub mixer: Option<String>,
    /// Which prompt is drawn.
    #[serde(default)]
    pub seed: u64,
    /// All ids of a prompt instead.
    pub tokens: Option<Vec<u32>>,
}
