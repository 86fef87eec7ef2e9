//! Repulsion between the attention heads of a layer, an option of training that keeps heads from becoming alike.
//!
//! ```toml
//! [train.repulsion]
//! strength = 1.0           # weight of the repulsion between the heads of a layer
//! temperature = 0.0        # 0 for Stein variational gradient descent (SVGD); above 0 for stochastic particle-optimization sampling
//!                          # (SPOS), which adds noise to the heads
//! layers = [0, 2]          # default: all layers with attention heads
//! ```
//!
//! The query, key and value projections of a layer are three sets of particles. A particle is the rows of one head. [`Repulsion`]
//! replaces the gradient of each set; clipping and Adam come after. The noise is a function of the seed and the step, so that a
//! resumed run gives the same bits.

use std::ops::Range;

use rung_engine::{Parameters, Repulsion, Role};
use rung_nn::model::names;
use rung_nn::param_builder::normal;
use rung_theory::stack::Plan;
use rung_theory::task::seeded;
use serde::{Deserialize, Serialize};

use super::config::Run;
use super::error::RunError;
use rung_theory::task::splitmix64;

/// The table `[train.repulsion]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepulsionConfig {
    /// Weight of the repulsion, at least 0.
    pub strength: f64,
    /// Temperature of the noise, at least 0.
    pub temperature: f64,
    /// Layers whose heads repel each other; empty for all that have attention heads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<usize>,
}

impl Default for RepulsionConfig {
    fn default() -> Self {
        Self { strength: 1.0, temperature: 0.0, layers: Vec::new() }
    }
}

impl RepulsionConfig {
    /// Rejects numbers out of range, and layers without attention heads.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), RunError> {
        for (field, found) in [("strength", self.strength), ("temperature", self.temperature)] {
            if !(0.0..=1e6).contains(&found) {
                return Err(RunError::invalid_value(
                    &format!("train.repulsion.{field}"),
                    found,
                    "a number from 0 to 1000000",
                ));
            }
        }
        let layers_with_heads: Vec<usize> =
            (0..plan.layers.len()).filter(|layer| !head_projections(plan, *layer).is_empty()).collect();
        let expected = || match &layers_with_heads[..] {
            [] => "a stack that has layers with attention heads".to_owned(),
            layers => format!("layers with attention heads, which are {layers:?}"),
        };
        match self.layers.iter().find(|layer| !layers_with_heads.contains(layer)) {
            Some(layer) => Err(RunError::invalid_value("train.repulsion.layers", layer, expected())),
            None if layers_with_heads.is_empty() => {
                Err(RunError::invalid_value("train.repulsion.layers", "none", expected()))
            }
            None => Ok(()),
        }
    }
}

/// The query, key and value projections of a layer's attention mixers: name prefix of the mixer's weights, role, number of heads.
fn head_projections(plan: &Plan, layer: usize) -> Vec<(String, Role, usize)> {
    let mixers = &plan.layers[layer].mixers;
    let projections = mixers.iter().enumerate().flat_map(|(index, mixer)| {
        let roles = mixer.facts().attention.map(|heads| {
            [(Role::Query, heads.query_heads), (Role::Key, heads.kv_heads), (Role::Value, heads.kv_heads)]
        });
        let prefix = names::mixer(layer, index, mixers.len());
        roles.into_iter().flatten().map(move |(role, heads)| (prefix.clone(), role, heads as usize))
    });
    projections.collect()
}

/// The attention heads of a run that repel each other.
pub(super) struct RepellingHeads {
    repulsion: Repulsion,
    seed: u64,
    /// For each projection, its range in the flat weights and its number of heads.
    projections: Vec<(Range<usize>, usize)>,
    gradient: Vec<f32>,
}

impl RepellingHeads {
    /// The heads that the run's config selects; `None` without `[train.repulsion]`.
    pub(super) fn new(run: &Run, weights: &Parameters<f32>) -> Option<Self> {
        let config = run.config.train.repulsion.as_ref()?;
        let is_selected = |layer: &usize| config.layers.is_empty() || config.layers.contains(layer);
        let projections =
            (0..run.plan.layers.len()).filter(is_selected).flat_map(|layer| head_projections(&run.plan, layer));
        let ranges = projections.filter_map(|(prefix, role, heads)| {
            Some((weights.entry(weights.find_role(&prefix, role)?).range.clone(), heads))
        });
        let repulsion = Repulsion { strength: config.strength, temperature: config.temperature };
        Some(Self { repulsion, seed: run.config.seed, projections: ranges.collect(), gradient: Vec::new() })
    }

    /// A copy of the gradient of all weights, in which the heads' part is replaced by that of [`Repulsion`].
    pub(super) fn repelled_gradient(&mut self, weights: &Parameters<f32>, gradient: &[f32]) -> &[f32] {
        self.gradient.clear();
        self.gradient.extend_from_slice(gradient);
        for (range, heads) in &self.projections {
            self.repulsion.apply(&weights.flat()[range.clone()], &mut self.gradient[range.clone()], *heads);
        }
        &self.gradient
    }

    /// Adds SPOS's noise to the heads after a step of this learning rate.
    pub(super) fn add_noise(&self, weights: &mut Parameters<f32>, rate: f64, step: usize) {
        let noise_std = self.repulsion.noise_deviation(rate);
        if noise_std == 0.0 {
            return;
        }
        let mut rng = seeded(splitmix64(splitmix64(self.seed ^ 0x7761_6c6b) ^ step as u64));
        for (range, _) in &self.projections {
            for weight in &mut weights.flat_mut()[range.clone()] {
                *weight += (noise_std * normal(&mut rng)) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RunConfig, Trainer};
    use super::*;

    const TEXT: &str = "stack = 'conv full'\ntask = 'funccomp{hops=1,m=4,queries=4}'\n\
        [model]\nheads = 4\nhead = 4\ntied_query_key = false\n[train]\nsteps = 6\nbatch = 2\n";

    /// All weights after some steps of training with the config `toml`.
    fn train(toml: &str, steps: usize) -> Parameters<f32> {
        let run = RunConfig::read(toml).unwrap().resolve().unwrap();
        let mut trainer = Trainer::new(&run).unwrap();
        for _ in 0..steps {
            trainer.step().unwrap();
        }
        trainer.weights().clone()
    }

    /// Sum of the squared distances between the heads of the query projection.
    fn head_distance(weights: &Parameters<f32>) -> f32 {
        let values = weights.get(weights.find("layers.1.mixer.q_proj.weight").unwrap());
        let heads: Vec<&[f32]> = values.chunks_exact(values.len() / 4).collect();
        let squared_distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f32>();
        heads.iter().flat_map(|a| heads.iter().map(|b| squared_distance(a, b))).sum()
    }

    #[test]
    fn repulsion_moves_heads_apart_and_noise_is_deterministic() {
        let train = |repulsion: &str| train(&format!("{TEXT}{repulsion}"), 6);
        let [without, with] = ["", "[train.repulsion]\nstrength = 100.0"].map(|text| head_distance(&train(text)));
        assert!(with > without, "{with} and {without}");
        let noise = "[train.repulsion]\ntemperature = 0.01";
        assert_eq!(train(noise).flat(), train(noise).flat());
        assert_ne!(train(noise).flat(), train("[train.repulsion]").flat());
    }

    /// There is no other head to repel it.
    #[test]
    fn repulsion_does_not_change_a_single_head() {
        let single = TEXT.replace("heads = 4", "heads = 1");
        let weights = |repulsion: &str| train(&format!("{single}{repulsion}"), 1).flat().to_vec();
        assert_eq!(weights("[train.repulsion]"), weights(""));
    }

    #[test]
    fn layers_without_heads_and_negative_strengths_are_rejected() {
        let assert_rejected = |toml: &str, expected: &str| {
            let config = RunConfig::read(toml).unwrap();
            let message = config.resolve().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(expected), "{message}");
        };
        assert_rejected(
            &format!("{TEXT}[train.repulsion]\nlayers = [0]"),
            "train.repulsion.layers: found 0, expected layers with attention heads, which are [1]",
        );
        assert_rejected(
            &TEXT.replace("conv full", "conv gdn").replace("batch = 2", "batch = 2\n[train.repulsion]"),
            "expected a stack that has layers with attention heads",
        );
        assert_rejected(&format!("{TEXT}[train.repulsion]\nstrength = -1.0"), "train.repulsion.strength: found -1");
    }
}
