//! Checkpoints in which `rung convert` replaced full-attention layers: a folder with the new mixers and the path of the original.
//!
//! ```text
//! conversion.json      {"base": "/models/SmolLM2.gguf", "layers": [{"layer": 22, "mixer": "gdn{heads=9,..}"}]}
//! mixers.safetensors   layers.22.mixer.q_proj.weight, ..
//! ```
//!
//! Like an adapter's folder, it names the original checkpoint, which must still exist.

use std::fs;
use std::path::{Path, PathBuf};

use rung_audit::json;
use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Defaults, Layer, Mixer, Plan};
use rung_theory::task::seeded;
use serde::{Deserialize, Serialize};

use super::{Checkpoint, FamilyError};
use crate::checkpoint::{load, save as save_weights};
use crate::error::ModelError;
use crate::file::write_atomically;
use crate::files;
use crate::mixer::Builtin;
use crate::model::{Model, ModelConfig};
use crate::param_builder::{LayerDepth, ParamBuilder};
use crate::weight_files::WeightError;

/// A mixer that replaces a full-attention layer.
pub struct ReplacementMixer {
    /// The layer, from 0.
    pub layer: usize,
    /// The mixer, with all sizes.
    pub mixer: Mixer,
    /// Its weights, `layers.N.mixer.*`.
    pub weights: Parameters<f32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    base: PathBuf,
    layers: Vec<ReplacedLayer>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplacedLayer {
    layer: usize,
    mixer: String,
}

/// Whether a folder holds a converted checkpoint.
pub fn is_converted(folder: &Path) -> bool {
    folder.join(files::CONVERSION).is_file()
}

/// Adds a mixer for a layer, with new weights under `name.mixer`.
///
/// # Errors
/// It does not fit the model.
pub fn add_mixer<S: Scalar>(
    (config, model): (&ModelConfig, &Model),
    weights: &mut Parameters<S>,
    (layer, mixer): (usize, &Mixer),
    seed: u64,
    name: &str,
) -> Result<Builtin, ModelError> {
    let mut rng = seeded(seed ^ (layer as u64) << 32);
    let mut params = ParamBuilder::new(config.settings(model.width()), weights, &mut rng);
    params.depth = LayerDepth { layer, layers: model.depth() };
    params.with_prefix(name, |params| params.with_prefix("mixer", |params| Builtin::init(mixer, params)))
}

/// Writes the folder of a converted checkpoint, creating it if it does not exist.
///
/// # Errors
/// The original checkpoint does not exist, or a file cannot be written.
pub fn save(folder: &Path, base: &Path, replacements: &[ReplacementMixer]) -> Result<(), FamilyError> {
    let system_error = |path: &Path, source| WeightError::System { path: path.to_owned(), source };
    let base = base.canonicalize().map_err(|source| system_error(base, source))?;
    fs::create_dir_all(folder).map_err(|source| system_error(folder, source))?;
    let mut weights = Parameters::new();
    for replacement in replacements {
        for (id, entry) in replacement.weights.entries() {
            weights.add(entry.name.clone(), &entry.shape, replacement.weights.get(id).to_vec());
        }
    }
    save_weights(&folder.join(files::CONVERSION_WEIGHTS), &weights)?;
    let layers = replacements
        .iter()
        .map(|replacement| ReplacedLayer { layer: replacement.layer, mixer: replacement.mixer.to_string() });
    let text = serde_json::to_string_pretty(&Description { base, layers: layers.collect() }).unwrap_or_default();
    write_atomically(&folder.join(files::CONVERSION), format!("{text}\n").as_bytes())
        .map_err(|error| system_error(&error.path, error.source))?;
    Ok(())
}

/// The path with the config and the vocabulary of a checkpoint: that of the original of a converted checkpoint, else the path itself.
///
/// # Errors
/// The description cannot be read.
pub fn base_path(path: &Path) -> Result<PathBuf, FamilyError> {
    if !is_converted(path) {
        return Ok(path.to_owned());
    }
    Ok(read_description(path)?.base)
}

fn field_error(folder: &Path, field: &str, found: impl Into<String>, expected: impl Into<String>) -> FamilyError {
    let (path, field) = (folder.join(files::CONVERSION), field.to_owned());
    FamilyError::Field { path, field, found: found.into(), expected: expected.into() }
}

fn read_description(folder: &Path) -> Result<Description, FamilyError> {
    let path = folder.join(files::CONVERSION);
    let system_error = |source| WeightError::System { path: path.clone(), source };
    let length = fs::metadata(&path).map_err(system_error)?.len();
    if length > json::MAX_BYTES {
        let expected = format!("at most {}", json::MAX_BYTES);
        return Err(WeightError::malformed(&path, format!("{length} bytes"), expected).into());
    }
    let text = fs::read_to_string(&path).map_err(system_error)?;
    let description: Description = serde_json::from_str(&text)
        .map_err(|error| field_error(folder, "base, layers", error.to_string(), "what `rung convert --out` writes"))?;
    let base = folder.join(&description.base);
    if is_converted(&base) || !super::is_checkpoint(&base) {
        return Err(field_error(folder, "base", base.display().to_string(), "a Hugging Face folder or a GGUF file"));
    }
    Ok(Description { base, ..description })
}

/// Opens a converted checkpoint: the original with the new mixers. The weights of the replaced mixers stay in memory.
pub(super) fn open<S: Scalar>(folder: &Path) -> Result<Checkpoint<S>, FamilyError> {
    let Description { base, layers } = read_description(folder)?;
    let mut checkpoint = super::open::<S>(&base)?;
    let mut mixers: Vec<(usize, Mixer)> = Vec::new();
    for ReplacedLayer { layer, mixer } in &layers {
        let is_replaceable = checkpoint
            .plan
            .layers
            .get(*layer)
            .is_some_and(|planned| planned.mixers.len() == 1 && !planned.shares_cache);
        if !is_replaceable || mixers.iter().any(|(other, _)| other == layer) {
            let expected = "different layers of the checkpoint, each of one mixer that shares nothing";
            return Err(field_error(folder, "layers.layer", layer.to_string(), expected));
        }
        mixers.push((*layer, parse_mixer(folder, mixer, &checkpoint.plan)?));
    }
    let mut new_weights = Parameters::<S>::new();
    for (layer, mixer) in &mixers {
        let model = (&checkpoint.config, &checkpoint.model);
        add_mixer(model, &mut new_weights, (*layer, mixer), 0, &format!("layers.{layer}"))?;
    }
    load(&folder.join(files::CONVERSION_WEIGHTS), &mut new_weights)?;
    let old_size = checkpoint.weights.size();
    for (layer, mixer) in mixers {
        let model = (&checkpoint.config, &checkpoint.model);
        let built = add_mixer(model, &mut checkpoint.weights, (layer, &mixer), 0, &format!("distilled.{layer}"))?;
        checkpoint.model.replace_mixer(layer, built);
        checkpoint.plan.layers[layer] = Layer::new(mixer);
    }
    checkpoint.weights.flat_mut()[old_size..].copy_from_slice(new_weights.flat());
    Ok(checkpoint)
}

fn parse_mixer(folder: &Path, text: &str, plan: &Plan) -> Result<Mixer, FamilyError> {
    let defaults = Defaults { heads: 1, head_dim: plan.width, kv_heads: None, model_width: Some(plan.width), bits: 32 };
    let mixer_error =
        |found: String| field_error(folder, "layers.mixer", found, "one mixer whose layers share nothing");
    let plan = Plan::parse(text, &defaults).map_err(|error| mixer_error(error.to_string()))?;
    match &plan.layers[..] {
        [layer] if layer.mixers.len() == 1 && !layer.mixers[0].kind().shares_between_layers => {
            Ok(layer.mixers[0].clone())
        }
        _ => Err(mixer_error(format!("`{}`", text.escape_debug()))),
    }
}
