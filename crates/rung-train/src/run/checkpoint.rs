//! Checkpoints: one file with everything a run needs to go on.
//!
//! A safetensors file holds the weights under their names, the optimiser's means and squares as `optimizer.means` and
//! `optimizer.squares`, and two notes: the config of the run, and how far it is, as JSON. It is written beside its place and renamed
//! there, so a run that is killed at any moment leaves the last whole checkpoint behind. Prompts are functions of the step, so there
//! is no generator to save.
//!
//! A run goes on only from a checkpoint of its own: the config must be the same, the edition of the trainer too, and the checksum of
//! the file must be that of its bytes. Anything else is refused, with what to do. Checkpoints of versions that wrote no checksum are
//! refused as well: nothing in them says which config they belong to, and to delete hours of work is for the user to decide.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rung_engine::Parameters;
use rung_nn::checkpoint::{read_notes, save_with};
use rung_nn::tensor_file::{self, Checksum};
use safetensors::tensor::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use super::config::Run;
use super::error::RunError;
use super::provenance::{self, Remedy};
use super::record::EDITION;
use super::trainer::{Progress, Trainer};
use rung_nn::file::write_atomically;
use rung_nn::network::files::RUN_KEY;

const MEANS: &str = "optimizer.means";
const SQUARES: &str = "optimizer.squares";

/// The note that says how far a run is.
const PROGRESS: &str = "rung.progress";
/// What to do about a checkpoint that cannot be used.
const DELETE: &str = "delete it to start the run again from its first step";

/// How far a run is.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    edition: u32,
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
    let header = Header { edition: EDITION, progress: trainer.progress.clone(), optimizer_steps, seconds };
    let text = serde_json::to_string(&header).map_err(|error| RunError::file(path, error))?;
    let weights = &trainer.weights;
    let mut tensors: Vec<(&str, Stored<'_>)> = weights
        .entries()
        .map(|(id, entry)| (entry.name.as_str(), Stored { shape: entry.shape.to_vec(), values: weights.get(id) }))
        .collect();
    tensors.push((MEANS, Stored { shape: vec![means.len()], values: means }));
    tensors.push((SQUARES, Stored { shape: vec![squares.len()], values: squares }));
    let notes = [(RUN_KEY, trainer.run.config.text()), (PROGRESS, text)];
    let bytes = tensor_file::encode(tensors, &notes.each_ref().map(|(name, text)| (*name, text.as_str())))
        .map_err(|error| RunError::file(path, error))?;
    write_atomically(path, &bytes).map_err(RunError::write)
}

/// Puts a trainer where a checkpoint was, and says how many seconds of work that had taken; nothing if there is no checkpoint, or
/// if another process, done with the run, takes it away at this moment.
///
/// # Errors
/// The file cannot be read, is damaged, or belongs to another run. The trainer is then as it was.
pub fn load(path: &Path, trainer: &mut Trainer<'_>) -> Result<Option<f64>, RunError> {
    let broken = |reason: String| RunError::file(path, format!("no checkpoint of this run: {reason}; {DELETE}"));
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
    check_bytes(path, &bytes)?;
    let notes = read_notes(&bytes);
    let note = |name: &str| notes.get(name).map_or("", String::as_str);
    provenance::check(path, note(RUN_KEY), trainer.run, Remedy::RestoreOrDelete)?;
    let header: Header = serde_json::from_str(note(PROGRESS)).map_err(|error| broken(error.to_string()))?;
    if header.edition != EDITION {
        return Err(broken(format!("edition {} of the trainer, expected {EDITION}", header.edition)));
    }
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
    trainer.resume(header.progress);
    Ok(Some(header.seconds))
}

/// Refuses bytes that are not those of a checkpoint as it was written.
fn check_bytes(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let reason = match Checksum::of(bytes) {
        Checksum::Right => return Ok(()),
        Checksum::Wrong { stored, computed } => format!(
            "damaged since it was written: its checksum is {stored}, and that of its bytes {computed}; {DELETE}"
        ),
        Checksum::Missing => format!(
            "found no checksum: it is damaged, or an earlier version of rung wrote it; {DELETE}, or finish the run with the \
             version that began it"
        ),
    };
    Err(RunError::file(path, reason))
}

/// Writes the weights of a run alone, with its config, for [`Network::open`](rung_nn::Network::open) and for PyTorch.
///
/// # Errors
/// It cannot be written.
pub fn save_weights(path: &Path, run: &Run, weights: &Parameters<f32>) -> Result<(), RunError> {
    let notes = [(RUN_KEY, &*run.config.text())];
    save_with(path, weights, &notes).map_err(|error| RunError::file(path, error))
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
