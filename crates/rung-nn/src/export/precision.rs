//! In which precisions of weights and cache an exported construction still answers right.
//!
//! The written files are opened again as an external checkpoint, which needs none of the construction's own code, and sampled
//! instances are read token by token. Matrices are rounded to a format once; keys, values and states are rounded to a format after every
//! token, also states that other programs keep in single precision. Arithmetic is in single precision. An instance is right if its answer has
//! the highest logit of the whole vocabulary; the smallest margin says by how much in the worst instance.

use std::path::Path;

use rung_engine::{Native, Ops as _, Tensor};
use rung_theory::task::{Prompt, seeded};
use serde::Serialize;

use super::{ExportFormat, ExportedCheckpoint, NumberFormat, Vocabulary};
use crate::families::{self, Checkpoint, FamilyError};
use crate::model::{Model, ModelState};
use crate::network::Network;

/// The answers of an exported construction in one precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrecisionCheck {
    /// Format of the matrices.
    pub weights: &'static str,
    /// Format of keys, values and states.
    pub cache: &'static str,
    /// Instances whose answer has the highest logit.
    pub right: usize,
    /// Instances that were run.
    #[serde(rename = "of")]
    pub instances: usize,
    /// By how much the answer's logit is above the highest other one, in the worst instance; negative if that is wrong.
    pub smallest_margin: f32,
    /// The same in the best instance.
    pub largest_margin: f32,
}

/// Sampled instances as token ids, with their answers.
struct Instances {
    /// All rows, one after another.
    ids: Vec<u32>,
    answers: Vec<u32>,
}

impl ExportedCheckpoint {
    /// Runs `count` sampled instances of a construction's task from the written files, in every precision of weights and cache. `None` for
    /// networks that are not constructions, and for architectures that this crate does not read.
    ///
    /// # Errors
    /// The files cannot be opened.
    pub fn check_precisions(
        &self,
        network: &Network<f32>,
        folder: &Path,
        count: usize,
    ) -> Result<Option<Vec<PrecisionCheck>>, FamilyError> {
        let is_gguf = self.format == ExportFormat::Gguf;
        let name = if is_gguf { self.family.architecture.unwrap_or_default() } else { self.family.name };
        if network.construction().is_none() || !families::supported_names(is_gguf).contains(&name) {
            return Ok(None);
        }
        let Some(instances) = self.sample(network, count)? else { return Ok(None) };
        let path = if is_gguf { folder.join("model.gguf") } else { folder.to_owned() };
        let Checkpoint { model, weights: stored, .. } = families::open::<f32>(&path)?;
        let mut checks = Vec::new();
        for (weights_name, weights_format) in NumberFormat::ALL {
            let mut weights = stored.clone();
            let matrices: Vec<_> =
                weights.entries().filter(|(_, entry)| entry.shape.len() > 1).map(|(id, _)| id).collect();
            for id in matrices {
                weights_format.round(weights.get_mut(id));
            }
            let ops = Native::new();
            ops.bind_frozen(&weights);
            for (cache_name, cache_format) in NumberFormat::ALL {
                let margins = instances.margins(&model, &ops, cache_format)?;
                checks.push(PrecisionCheck {
                    weights: weights_name,
                    cache: cache_name,
                    right: margins.iter().filter(|margin| **margin > 0.0).count(),
                    instances: margins.len(),
                    smallest_margin: margins.iter().copied().fold(f32::INFINITY, f32::min),
                    largest_margin: margins.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                });
            }
        }
        Ok(Some(checks))
    }

    /// Instances of the task; `None` unless each has one question, at its last token, and all have the same length.
    fn sample(&self, network: &Network<f32>, count: usize) -> Result<Option<Instances>, FamilyError> {
        let task = network.task()?;
        let mut instances = Instances { ids: Vec::new(), answers: Vec::new() };
        let (mut prompt, mut rng, mut length) = (Prompt::new(), seeded(1), None);
        for _ in 0..count {
            task.sample_prompt(&mut rng, &mut prompt);
            let Some(ids) = self.vocabulary.ids(prompt.tokens(), prompt.ids_per_token()) else { return Ok(None) };
            let mut is_last =
                |position: usize| position + 1 == ids.len() && *length.get_or_insert(ids.len()) == ids.len();
            let mut questions = prompt.questions();
            match (questions.next(), questions.next()) {
                (Some((position, target, _)), None) if is_last(position) => {
                    instances.answers.push(Vocabulary::answer_id(target));
                }
                _ => return Ok(None),
            }
            instances.ids.extend(ids);
        }
        Ok(Some(instances))
    }
}

impl Instances {
    /// The margin of every answer: its logit less the highest other one. NaN if a number is beyond the range of a format.
    fn margins(&self, model: &Model, ops: &Native<f32>, cache: NumberFormat) -> Result<Vec<f32>, FamilyError> {
        let rows = self.answers.len();
        let length = self.ids.len() / rows.max(1);
        let (mut state, mut logits) = (None::<ModelState<Tensor<f32>>>, Vec::new());
        for position in 0..length {
            let ids: Vec<u32> = (0..rows).map(|row| self.ids[row * length + position]).collect();
            let (hidden, mut next) = model.forward(ops, &ids, rows, state.as_ref())?;
            if position + 1 == length {
                logits = ops.values(&model.logits(ops, &hidden));
            }
            for tensor in next.states.iter_mut().flat_map(|state| &mut state.tensors).flatten() {
                let mut values = ops.values(tensor);
                cache.round(&mut values);
                *tensor = ops.constant(&ops.shape(tensor), &values);
            }
            state = Some(next);
        }
        let margin = |(logits, answer): (&[f32], &u32)| {
            let others = logits.iter().enumerate().filter(|(id, _)| *id != *answer as usize);
            logits[*answer as usize] - others.map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max)
        };
        Ok(logits.chunks_exact(model.classes()).zip(&self.answers).map(margin).collect())
    }
}
