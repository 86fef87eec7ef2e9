//! Checkpoints: one file with everything that is needed to resume a run.
//!
//! A safetensors file holds the weights under their names, Adam's moments as `optimizer.means` and `optimizer.squares`, and two
//! entries of metadata: the config of the run, and its progress as JSON. It is written to a temporary file and renamed, so a run that
//! is killed at any moment leaves the last complete checkpoint behind. Prompts are functions of the step, so there is no state of a
//! random generator to save.
//!
//! A run is resumed only from its own checkpoint: config, version of the numerics and checksum must agree. Other files are rejected
//! with a message that says what to do. Checkpoints of versions that wrote no checksum are rejected too: nothing in them says which
//! config they belong to, and only the user can decide to delete hours of work.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rung_engine::Parameters;
use rung_nn::checkpoint::{read_metadata, save_with_metadata};
use rung_nn::files::PROGRESS_KEY;
use rung_nn::tensor_file::{self, Checksum};
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::config::Run;
use super::error::RunError;
use super::provenance;
use super::record::NUMERICS_VERSION;
use super::trainer::{Progress, Trainer};
use rung_nn::file::write_atomically;
use rung_nn::network::files::RUN_KEY;

const MEANS: &str = "optimizer.means";
const SQUARES: &str = "optimizer.squares";

/// Advice in every message about an invalid checkpoint.
const DELETE_ADVICE: &str = "delete it to start the run again from its first step";

/// The JSON under the metadata key [`PROGRESS_KEY`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredProgress {
    #[serde(rename = "edition")]
    numerics_version: u32,
    progress: Progress,
    optimizer_steps: i32,
    seconds: f64,
}

/// Writes a checkpoint. `seconds` is the training time so far, over all processes of the run.
///
/// # Errors
/// It cannot be written. An earlier checkpoint is then still there.
pub fn save(path: &Path, trainer: &Trainer<'_>, seconds: f64) -> Result<(), RunError> {
    let (optimizer_steps, means, squares) = trainer.optimizer.state();
    let stored = StoredProgress {
        numerics_version: NUMERICS_VERSION,
        progress: trainer.progress.clone(),
        optimizer_steps,
        seconds,
    };
    let progress_json = serde_json::to_string(&stored).map_err(|error| RunError::file(path, error))?;
    let weights = &trainer.weights;
    let mut tensors: Vec<(&str, TensorView<'_>)> = weights
        .entries()
        .map(|(id, entry)| (entry.name.as_str(), TensorView { shape: entry.shape.to_vec(), values: weights.get(id) }))
        .collect();
    tensors.push((MEANS, TensorView { shape: vec![means.len()], values: means }));
    tensors.push((SQUARES, TensorView { shape: vec![squares.len()], values: squares }));
    let metadata = [(RUN_KEY, trainer.run.config.to_toml()), (PROGRESS_KEY, progress_json)];
    let bytes = tensor_file::encode(tensors, &metadata.each_ref().map(|(key, text)| (*key, text.as_str())))
        .map_err(|error| RunError::file(path, error))?;
    write_atomically(path, &bytes).map_err(RunError::write)
}

/// Restores a trainer from a checkpoint and returns the seconds of training before it; `None` if there is no checkpoint, because the
/// run has not started or because another process has just finished it and deleted the file.
///
/// # Errors
/// The file cannot be read, is damaged, or belongs to another run. The trainer is then unchanged.
pub fn load(path: &Path, trainer: &mut Trainer<'_>) -> Result<Option<f64>, RunError> {
    let invalid =
        |reason: String| RunError::file(path, format!("no checkpoint of this run: {reason}; {DELETE_ADVICE}"));
    let max_bytes = 1_000_000 + trainer.weights.len() as u64 * 1000 + trainer.weights.size() as u64 * 12 + (1 << 26);
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        result => result.map_err(|error| RunError::file(path, error))?,
    };
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| RunError::file(path, error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(invalid(format!("more than the {max_bytes} bytes that one can have")));
    }
    check_checksum(path, &bytes)?;
    let metadata = read_metadata(&bytes);
    let entry = |key: &str| metadata.get(key).map_or("", String::as_str);
    provenance::check_owner(path, entry(RUN_KEY), trainer.run)?;
    let stored: StoredProgress =
        serde_json::from_str(entry(PROGRESS_KEY)).map_err(|error| invalid(error.to_string()))?;
    if stored.numerics_version != NUMERICS_VERSION {
        return Err(invalid(format!(
            "version {} of the numerics, expected {NUMERICS_VERSION}",
            stored.numerics_version
        )));
    }
    check_progress(&stored.progress, trainer.run).map_err(invalid)?;
    if !(stored.seconds >= 0.0 && stored.seconds < 1e12) || stored.optimizer_steps < 0 {
        let StoredProgress { seconds, optimizer_steps, .. } = stored;
        return Err(invalid(format!("{seconds} seconds and {optimizer_steps} optimizer steps, expected 0 or more")));
    }
    let file = SafeTensors::deserialize(&bytes).map_err(|error| invalid(error.to_string()))?;
    let read_tensor = |name: &str, expected: &[usize]| -> Result<Vec<f32>, RunError> {
        let tensor = file.tensor(name).map_err(|_| invalid(format!("tensor `{name}` is missing")))?;
        if tensor.shape() != expected || tensor.dtype() != Dtype::F32 {
            let (shape, dtype) = (tensor.shape(), tensor.dtype());
            return Err(invalid(format!("tensor `{name}` is {dtype:?} {shape:?}, expected F32 {expected:?}")));
        }
        Ok(tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    let moment_size = if stored.optimizer_steps == 0 { 0 } else { trainer.weights.size() };
    let (means, squares) = (read_tensor(MEANS, &[moment_size])?, read_tensor(SQUARES, &[moment_size])?);
    let mut weights = Vec::with_capacity(trainer.weights.size());
    for (_, entry) in trainer.weights.entries() {
        weights.extend(read_tensor(&entry.name, &entry.shape)?);
    }
    trainer.weights.flat_mut().copy_from_slice(&weights);
    trainer.optimizer.restore(stored.optimizer_steps, means, squares);
    trainer.resume(stored.progress);
    Ok(Some(stored.seconds))
}

/// Returns what is wrong with a progress that this run cannot have. Its numbers are added and subtracted later.
fn check_progress(progress: &Progress, run: &Run) -> Result<(), String> {
    let (steps, stages) = (run.config.train.steps, run.config.curriculum.len());
    let Progress { step, stage, stage_began, evaluations, .. } = progress;
    if *step > steps {
        return Err(format!("`step`: found {step}, expected at most {steps}"));
    }
    if *stage > stages {
        return Err(format!("`stage`: found {stage}, expected at most {stages}"));
    }
    if stage_began > step {
        return Err(format!("`stage_began`: found {stage_began}, expected at most the step, {step}"));
    }
    let out_of_order = evaluations.windows(2).any(|pair| pair[0].step >= pair[1].step);
    match evaluations.iter().find(|evaluation| evaluation.step > *step || evaluation.stage > *stage) {
        Some(evaluation) => Err(format!("`looks`: found step {}, expected at most {step}", evaluation.step)),
        None if out_of_order => Err("`looks`: found steps that do not increase, expected increasing ones".to_owned()),
        None => Ok(()),
    }
}

/// Rejects bytes whose checksum is wrong or missing.
fn check_checksum(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let reason = match Checksum::verify(bytes) {
        Checksum::Valid => return Ok(()),
        Checksum::Mismatch { stored, computed } => format!(
            "damaged since it was written: its checksum is {stored}, and that of its bytes {computed}; {DELETE_ADVICE}"
        ),
        Checksum::Missing => format!(
            "found no checksum: it is damaged, or an earlier version of rung wrote it; {DELETE_ADVICE}, or finish the run with the \
             version that began it"
        ),
    };
    Err(RunError::file(path, reason))
}

/// Writes the weights of a finished run with its config, for [`Network::open`](rung_nn::Network::open) and for PyTorch.
///
/// # Errors
/// The file cannot be written.
pub fn save_weights(path: &Path, run: &Run, weights: &Parameters<f32>) -> Result<(), RunError> {
    let metadata = [(RUN_KEY, &*run.config.to_toml())];
    save_with_metadata(path, weights, &metadata).map_err(|error| RunError::file(path, error))
}

/// A tensor to write.
struct TensorView<'a> {
    shape: Vec<usize>,
    values: &'a [f32],
}

impl View for TensorView<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn data_len(&self) -> usize {
        size_of_val(self.values)
    }
}
