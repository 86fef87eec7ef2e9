//! Checkpoints some of whose full layers were replaced by `rung convert`: the new mixers, and a word on where the rest is.
//!
//! ```text
//! conversion.json      {"base": "/models/SmolLM2.gguf", "layers": [{"layer": 22, "mixer": "gdn{heads=9,..}"}]}
//! mixers.safetensors   layers.22.mixer.q_proj.weight, ..
//! ```
//!
//! As an adapter's directory does, it names the checkpoint that it belongs to, which must still be there.

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
use crate::mixer::Builtin;
use crate::model::{Model, ModelConfig};
use crate::param_builder::{LayerDepth, ParamBuilder};
use crate::weight_files::WeightError;

/// What was replaced.
const DESCRIPTION: &str = "conversion.json";
/// The new mixers.
const WEIGHTS: &str = "mixers.safetensors";

/// A mixer that stands in a full layer's place.
pub struct ReplacedMixer {
    /// The layer, from 0.
    pub layer: usize,
    /// The mixer, with every number.
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
pub fn recognise(folder: &Path) -> bool {
    folder.join(DESCRIPTION).is_file()
}

/// Adds a mixer that takes a layer's place, with fresh weights under `name.mixer`.
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
    params.within(name, |params| params.within("mixer", |params| Builtin::init(mixer, params)))
}

/// Writes the folder of a converted checkpoint, making it if it does not exist.
///
/// # Errors
/// The checkpoint that it belongs to is not there, or a file cannot be written.
pub fn save(folder: &Path, base: &Path, replaced: &[ReplacedMixer]) -> Result<(), FamilyError> {
    let system = |path: &Path, source| WeightError::System { path: path.to_owned(), source };
    let base = base.canonicalize().map_err(|source| system(base, source))?;
    fs::create_dir_all(folder).map_err(|source| system(folder, source))?;
    let mut weights = Parameters::new();
    for one in replaced {
        for (id, entry) in one.weights.entries() {
            weights.add(entry.name.clone(), &entry.shape, one.weights.get(id).to_vec());
        }
    }
    save_weights(&folder.join(WEIGHTS), &weights)?;
    let layers = replaced.iter().map(|one| ReplacedLayer { layer: one.layer, mixer: one.mixer.to_string() });
    let text = serde_json::to_string_pretty(&Description { base, layers: layers.collect() }).unwrap_or_default();
    write_atomically(&folder.join(DESCRIPTION), format!("{text}\n").as_bytes())
        .map_err(|error| system(&error.path, error.source))?;
    Ok(())
}

/// The checkpoint that a path's config and vocabulary are in: of a converted one that which it was made of, of any other itself.
///
/// # Errors
/// The description cannot be read.
pub fn base(path: &Path) -> Result<PathBuf, FamilyError> {
    if !recognise(path) {
        return Ok(path.to_owned());
    }
    Ok(read(path)?.base)
}

fn unfit(folder: &Path, field: &str, found: impl Into<String>, expected: impl Into<String>) -> FamilyError {
    let (path, field) = (folder.join(DESCRIPTION), field.to_owned());
    FamilyError::Field { path, field, found: found.into(), expected: expected.into() }
}

fn read(folder: &Path) -> Result<Description, FamilyError> {
    let path = folder.join(DESCRIPTION);
    let system = |source| WeightError::System { path: path.clone(), source };
    let length = fs::metadata(&path).map_err(system)?.len();
    if length > json::MAX_BYTES {
        let expected = format!("at most {}", json::MAX_BYTES);
        return Err(WeightError::malformed(&path, format!("{length} bytes"), expected).into());
    }
    let text = fs::read_to_string(&path).map_err(system)?;
    let description: Description = serde_json::from_str(&text)
        .map_err(|error| unfit(folder, "base, layers", error.to_string(), "what `rung convert --out` writes"))?;
    let base = folder.join(&description.base);
    if recognise(&base) || !super::recognise(&base) {
        return Err(unfit(folder, "base", base.display().to_string(), "a Hugging Face folder or a GGUF file"));
    }
    Ok(Description { base, ..description })
}

/// Opens a converted checkpoint: the one it was made of, with the new mixers in place. The weights of the old ones stay beside them.
pub(super) fn open<S: Scalar>(folder: &Path) -> Result<Checkpoint<S>, FamilyError> {
    let Description { base, layers } = read(folder)?;
    let mut checkpoint = super::open::<S>(&base)?;
    let mut mixers: Vec<(usize, Mixer)> = Vec::new();
    for ReplacedLayer { layer, mixer } in &layers {
        let free = checkpoint.plan.layers.get(*layer).is_some_and(|one| one.mixers.len() == 1 && !one.shares_cache);
        if !free || mixers.iter().any(|(other, _)| other == layer) {
            let expected = "different layers of the checkpoint, each of one mixer that shares nothing";
            return Err(unfit(folder, "layers.layer", layer.to_string(), expected));
        }
        mixers.push((*layer, parse(folder, mixer, &checkpoint.plan)?));
    }
    let mut own = Parameters::<S>::new();
    for (layer, mixer) in &mixers {
        let frame = (&checkpoint.config, &checkpoint.model);
        add_mixer(frame, &mut own, (*layer, mixer), 0, &format!("layers.{layer}"))?;
    }
    load(&folder.join(WEIGHTS), &mut own)?;
    let start = checkpoint.weights.size();
    for (layer, mixer) in mixers {
        let frame = (&checkpoint.config, &checkpoint.model);
        let built = add_mixer(frame, &mut checkpoint.weights, (layer, &mixer), 0, &format!("distilled.{layer}"))?;
        checkpoint.model.replace_mixer(layer, built);
        checkpoint.plan.layers[layer] = Layer::new(mixer);
    }
    checkpoint.weights.flat_mut()[start..].copy_from_slice(own.flat());
    checkpoint.audit.plan = Some(checkpoint.plan.clone());
    Ok(checkpoint)
}

fn parse(folder: &Path, text: &str, plan: &Plan) -> Result<Mixer, FamilyError> {
    let defaults = Defaults { heads: 1, head_dim: plan.width, kv_heads: None, model_width: Some(plan.width), bits: 32 };
    let wrong = |found: String| unfit(folder, "layers.mixer", found, "one mixer whose layers share nothing");
    let read = Plan::parse(text, &defaults).map_err(|error| wrong(error.to_string()))?;
    match &read.layers[..] {
        [layer] if layer.mixers.len() == 1 && !layer.mixers[0].kind().shares_between_layers => {
            Ok(layer.mixers[0].clone())
        }
        _ => Err(wrong(format!("`{}`", text.escape_debug()))),
    }
}
