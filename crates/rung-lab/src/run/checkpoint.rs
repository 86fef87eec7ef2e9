//! Checkpoints: one file with everything a run needs to go on.
//!
//! A safetensors file holds the weights under their names, the optimiser's means and squares as `optimizer.means` and
//! `optimizer.squares`, and how far the run is as JSON in the header. It is written beside its place and renamed there, so a run
//! that is killed at any moment leaves the last whole checkpoint behind. Prompts are functions of the step, so there is no
//! generator to save.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rung_engine::Parameters;
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::error::RunError;
use super::trainer::{Progress, Trainer};
use crate::report::write_atomically;

const MEANS: &str = "optimizer.means";
const SQUARES: &str = "optimizer.squares";

/// What the header says.
#[derive(Serialize, Deserialize)]
struct Header {
    progress: Progress,
    optimizer_steps: i32,
    seconds: f64,
}

/// Writes a checkpoint. `seconds` is the work done so far, in all processes.
///
/// # Errors
/// It cannot be written; what was there is still there.
pub fn save(path: &Path, trainer: &Trainer<'_>, seconds: f64) -> Result<(), RunError> {
    let (optimizer_steps, means, squares) = trainer.optimizer.memory();
    let header = Header { progress: trainer.progress.clone(), optimizer_steps, seconds };
    let text = serde_json::to_string(&header).map_err(|error| RunError::file(path, error))?;
    let weights = &trainer.weights;
    let mut tensors: Vec<(&str, Stored<'_>)> = weights
        .entries()
        .map(|(id, entry)| (entry.name.as_str(), Stored { shape: entry.shape.to_vec(), values: weights.get(id) }))
        .collect();
    tensors.push((MEANS, Stored { shape: vec![means.len()], values: means }));
    tensors.push((SQUARES, Stored { shape: vec![squares.len()], values: squares }));
    let bytes = safetensors::serialize(tensors, Some(HashMap::from([("run".to_owned(), text)])))
        .map_err(|error| RunError::file(path, error))?;
    write_atomically(path, &bytes).map_err(RunError::unwritten)
}

/// Puts a trainer where a checkpoint was, and says how many seconds of work that had taken; nothing if there is no checkpoint, or
/// if another process, done with the run, takes it away at this moment.
///
/// # Errors
/// The file cannot be read or belongs to another run. The trainer is then as it was.
pub fn load(path: &Path, trainer: &mut Trainer<'_>) -> Result<Option<f64>, RunError> {
    let broken = |reason: String| RunError::file(path, format!("no checkpoint of this run: {reason}"));
    let most = 1_000_000 + trainer.weights.len() as u64 * 1000 + trainer.weights.size() as u64 * 12 + (1 << 26);
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| RunError::file(path, error))?,
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| RunError::file(path, error))?;
    if bytes.len() as u64 > most {
        return Err(broken(format!("more than the {most} bytes that one can have")));
    }
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| broken(error.to_string()))?;
    let text = header.metadata().as_ref().and_then(|notes| notes.get("run")).cloned().unwrap_or_default();
    let header: Header = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| broken(error.to_string()))?;
    let numbers = |name: &str, expected: &[usize]| -> Result<Vec<f32>, RunError> {
        let tensor = file.tensor(name).map_err(|_| broken(format!("tensor `{name}` is missing")))?;
        if tensor.shape() != expected || tensor.dtype() != Dtype::F32 {
            let (shape, kind) = (tensor.shape(), tensor.dtype());
            return Err(broken(format!("tensor `{name}` is {kind:?} {shape:?}, expected F32 {expected:?}")));
        }
        Ok(tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    let size = if header.optimizer_steps == 0 { 0 } else { trainer.weights.size() };
    let (means, squares) = (numbers(MEANS, &[size])?, numbers(SQUARES, &[size])?);
    let mut flat = Vec::with_capacity(trainer.weights.size());
    for (_, entry) in trainer.weights.entries() {
        flat.extend(numbers(&entry.name, &entry.shape)?);
    }
    trainer.weights.flat_mut().copy_from_slice(&flat);
    trainer.optimizer.restore(header.optimizer_steps, means, squares);
    trainer.go_on(header.progress);
    Ok(Some(header.seconds))
}

/// Writes the weights alone, for [`rung_nn::load`] and for PyTorch.
///
/// # Errors
/// It cannot be written.
pub fn save_weights(path: &Path, weights: &Parameters<f32>) -> Result<(), RunError> {
    rung_nn::save(path, weights).map_err(|error| RunError::file(path, error))
}

struct Stored<'a> {
    shape: Vec<usize>,
    values: &'a [f32],
}

impl View for Stored<'_> {
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
