//! External checkpoints as networks, one family per file.
//!
//! A checkpoint is a Hugging Face folder (`config.json`, safetensors files) or a GGUF file. `rung-audit` reads its config and determines the
//! mixer of every layer with all sizes; the family's file reads the tensors and assembles a [`Model`], the same type that is trained and
//! constructed in this crate. So analyses, traces and conversion work on it.
//!
//! ```text
//! config --> rung-audit --> layers of the plan --+
//! config --> Fields (transformers' names) -------+--> family::build --> LoadedModel --> Model + Parameters
//! files  --> WeightFiles --> Loader -------------+
//! ```
//!
//! # To add a family
//! 1. Write `NAME.rs` with `MODEL_TYPES` (in `config.json`), `ARCHITECTURES` (in GGUF; may be empty), `GGUF_TENSORS` (GGUF names that are
//!    not among the usual ones of `gguf.rs`) and `build`, which reads every tensor exactly once through the `Loader`, under the names that
//!    transformers saves. Take sizes from `loader.layers` (the plan of `rung-audit`, `mixer.number("heads")`) and everything else from `loader.fields`. Mixers
//!    of [`crate::mixer`] are assembled from their weights by a `pub(crate)` constructor beside their `init` (see `Softmax::from_heads`); a feature that
//!    they do not have is added there as an option that is off by default. `decoder.rs` has attention, gated MLPs, embeddings, final norm and `lm_head`; experts are
//!    [`crate::model::Experts`]; constant factors are multiplied into the weights while these are read.
//! 2. Reject config options that are not supported, by name: [`Fields::reject`], or an error of [`Fields::error`].
//! 3. Add a line to the registry below.
//! 4. Add two variants to `tests/fixtures/make_families.py` in this crate: one with the usual options, one with the unusual ones. Run it (it needs transformers), and
//!    `tests/families.rs` finds the new folders: it compares logits, computed all at once and token by token, within 1e-4.
//!
//! Note that transformers 5 names some fields differently from older files (`rope_parameters` for `rope_theta` and `rope_scaling`); read both. GGUF
//! stores some weights in another layout than transformers does; see `Loader::is_gguf`.

pub mod decode;
mod decoder;
mod delta;
mod error;
mod experts;
mod fields;
mod gguf;
mod latent;
mod loader;
pub mod replaced_mixers;
mod rotary;
mod state_space;

pub use error::FamilyError;
pub use fields::Fields;
use loader::Loader;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rung_audit::gguf::GgufHeader;
use rung_audit::json::{self, JsonValue};
use rung_audit::{AuditOptions, audit_path};
use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Layer, Plan};

use crate::error::ModelError;
use crate::memory;
use crate::mixer::Builtin;
use crate::model::{InputConfig, LoadedModel, Model, ModelConfig, NormConfig};
use crate::weight_files::{WeightError, WeightFiles};

macro_rules! registry {
    ($($module:ident)*) => {
        $(mod $module;)*

        /// Names of the families.
        pub const NAMES: &[&str] = &[$(stringify!($module)),*];

        /// The family with this `model_type` (or GGUF architecture): its name, and the GGUF names of its tensors.
        fn find_family(name: &str, gguf: bool) -> Option<(&'static str, gguf::TensorNames)> {
            $(if (if gguf { $module::ARCHITECTURES } else { $module::MODEL_TYPES }).contains(&name) {
                return Some((stringify!($module), gguf::TensorNames::new($module::GGUF_TENSORS)));
            })*
            None
        }

        /// Every supported `model_type`, or every supported GGUF architecture.
        pub fn supported_names(gguf: bool) -> Vec<&'static str> {
            let mut names: Vec<&str> = Vec::new();
            $(names.extend(if gguf { $module::ARCHITECTURES } else { $module::MODEL_TYPES });)*
            names.sort_unstable();
            names
        }

        fn build_model<S: Scalar>(family: &str, loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
            match family {
                $(stringify!($module) => $module::build(loader),)*
                _ => unreachable!("a family of the registry"),
            }
        }
    };
}

registry! {
    llama qwen gemma olmo gpt_oss
    mamba mamba2 bamba granite_hybrid nemotron_h falcon_h1 jamba recurrent_gemma zamba2
    qwen3_next olmo_hybrid lfm2 deepseek kimi_linear rwkv7 minimax
}

/// An opened checkpoint, of which [`Network::open`](crate::Network::open) makes a network.
pub struct Checkpoint<S> {
    /// The family's name.
    pub family: &'static str,
    /// The mixers of its layers.
    pub plan: Plan,
    /// Options of the model that analyses need beside its plan.
    pub config: ModelConfig,
    /// The layers, as handles into `weights`.
    pub model: Model,
    /// The weights, under the names that models of this crate use.
    pub weights: Parameters<S>,
}

/// Whether a path is an external checkpoint: a folder with `config.json`, a GGUF file, or a folder written by `rung convert`
/// ([`replaced_mixers`]).
pub fn is_checkpoint(path: &Path) -> bool {
    if path.is_dir() {
        return path.join("config.json").is_file() || replaced_mixers::is_converted(path);
    }
    let mut start = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == b"GGUF"
}

/// Opens a Hugging Face folder, a GGUF file, or the folder of a converted checkpoint.
///
/// # Errors
/// The family is not supported, or a file, a field or a tensor is missing or invalid; the error names it.
pub fn open<S: Scalar>(path: &Path) -> Result<Checkpoint<S>, FamilyError> {
    if replaced_mixers::is_converted(path) {
        return replaced_mixers::open(path);
    }
    let config_path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let config_error = |source| FamilyError::Config { path: config_path.clone(), source };
    let is_gguf = !path.is_dir();
    let (fields, architecture) = if is_gguf { read_header(path)? } else { read_config(&config_path)? };
    let Some((family, names)) = find_family(&architecture, is_gguf) else {
        let known = supported_names(is_gguf).join(", ");
        return Err(FamilyError::UnsupportedArchitecture { path: config_path, found: architecture, known });
    };
    let audit = audit_path(&config_path, &AuditOptions::default()).map_err(config_error)?;
    let Some(plan) = audit.plan.clone() else {
        return Err(FamilyError::UnknownLayers { path: config_path, reason: audit.unknown_reasons.join("; ") });
    };
    let layers: Vec<Layer> = audit.layers.iter().flat_map(|layer| layer.plan_layers.clone()).collect();
    let files = WeightFiles::open(path)?;
    let (element_count, largest_tensor) = files
        .tensors()
        .map(|(_, tensor)| tensor.element_count() as u128)
        .fold((0, 0), |(sum, largest), count| (sum + count, count.max(largest)));
    // All weights, and a second copy of the tensor that is being read.
    let bytes = (element_count + largest_tensor).saturating_mul(size_of::<S>() as u128);
    memory::check(format!("{}: {element_count} weights", path.display()), bytes, None).map_err(ModelError::Memory)?;
    let mut loader = Loader::new(path, &files, &fields, &layers, is_gguf.then_some(&names));
    let loaded_model = build_model(family, &mut loader)?;
    let weights = loader.finish(family)?;
    let config = ModelConfig {
        input: InputConfig::Vocabulary(loaded_model.classes),
        classes: loaded_model.classes,
        norm: NormConfig::Rms,
        ..ModelConfig::default()
    };
    Ok(Checkpoint { family, plan, config, model: loaded_model.into(), weights })
}

/// The fields of a `config.json`, and its `model_type`.
fn read_config(path: &Path) -> Result<(Fields, String), FamilyError> {
    let system_error = |source| WeightError::System { path: path.to_owned(), source };
    let text = crate::file::read_text(path, json::MAX_BYTES).map_err(system_error)?;
    let value = json::parse(&text).map_err(|source| FamilyError::Config { path: path.to_owned(), source })?;
    let fields = Fields::new(path, value);
    let Some(JsonValue::String(name)) = fields.get("model_type") else {
        return Err(fields.error("model_type", "nothing", "the name of an architecture"));
    };
    let name = name.clone();
    match fields.object("text_config")? {
        // A multimodal model: `text_config` describes its language model.
        Some(text_config) if !fields.has("hidden_size") => Ok((text_config.with(&fields, "tie_word_embeddings"), name)),
        _ => Ok((fields, name)),
    }
}

/// The fields of a GGUF header under transformers' names, and its architecture.
fn read_header(path: &Path) -> Result<(Fields, String), FamilyError> {
    let file = File::open(path).map_err(|source| WeightError::System { path: path.to_owned(), source })?;
    let header = GgufHeader::read(std::io::BufReader::with_capacity(1 << 16, file))
        .map_err(|source| FamilyError::Config { path: path.to_owned(), source })?;
    let Some(JsonValue::String(architecture)) = header.get("general.architecture") else {
        let fields = Fields::new(path, JsonValue::Null);
        return Err(fields.error("general.architecture", "nothing", "the name of an architecture"));
    };
    Ok((gguf::config_fields(path, &header, architecture), architecture.clone()))
}
