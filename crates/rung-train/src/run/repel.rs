//! Heads that are kept from becoming alike, as an option of training.
//!
//! ```toml
//! [train.repulsion]
//! strength = 1.0           # of the push between the heads of a layer
//! temperature = 0.0        # 0 for SVGD; above, SPOS, whose heads also walk at random
//! layers = [0, 2]          # all that have attention heads, if left out
//! ```
//!
//! The query, key and value projections of a layer are three sets of particles, one particle for each head: its rows. Before the
//! optimiser sees the gradient of such a set it is replaced as [`Repulsion`] says; clipping and Adam come after. The noise of a
//! walk is drawn from the seed and the step, so that a run which was interrupted goes on to the bit.

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

/// Repulsion as typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepulsionConfig {
    /// Weight of the push.
    pub strength: f64,
    /// Temperature of the walk.
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
    /// Refuses numbers that cannot be, and layers without heads.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), RunError> {
        for (field, found) in [("strength", self.strength), ("temperature", self.temperature)] {
            if !(0.0..=1e6).contains(&found) {
                return Err(RunError::value(&format!("train.repulsion.{field}"), found, "a number from 0 to 1000000"));
            }
        }
        let with_heads: Vec<usize> = (0..plan.layers.len()).filter(|layer| !sets_of(plan, *layer).is_empty()).collect();
        let expected = || match &with_heads[..] {
            [] => "a stack that has layers with attention heads".to_owned(),
            some => format!("layers with attention heads, which are {some:?}"),
        };
        match self.layers.iter().find(|layer| !with_heads.contains(layer)) {
            Some(layer) => Err(RunError::value("train.repulsion.layers", layer, expected())),
            None if with_heads.is_empty() => Err(RunError::value("train.repulsion.layers", "none", expected())),
            None => Ok(()),
        }
    }
}

/// The projections of a layer whose rows are those of heads: their mixer, their role, and how many heads.
fn sets_of(plan: &Plan, layer: usize) -> Vec<(String, Role, usize)> {
    let mixers = &plan.layers[layer].mixers;
    let sets = mixers.iter().enumerate().flat_map(|(index, mixer)| {
        let sets = mixer
            .facts()
            .attention
            .map(|heads| [(Role::Query, heads.query), (Role::Key, heads.kv), (Role::Value, heads.kv)]);
        let scope = names::mixer(layer, index, mixers.len());
        sets.into_iter().flatten().map(move |(role, heads)| (scope.clone(), role, heads as usize))
    });
    sets.collect()
}

/// The sets of particles of a run.
pub(super) struct Particles {
    rule: Repulsion,
    seed: u64,
    sets: Vec<(Range<usize>, usize)>,
    steered: Vec<f32>,
}

impl Particles {
    /// Those that a run asks for, if it does.
    pub(super) fn of(run: &Run, weights: &Parameters<f32>) -> Option<Self> {
        let part = run.config.train.repulsion.as_ref()?;
        let asked = |layer: &usize| part.layers.is_empty() || part.layers.contains(layer);
        let sets = (0..run.plan.layers.len()).filter(asked).flat_map(|layer| sets_of(&run.plan, layer));
        let found = sets.filter_map(|(scope, role, heads)| {
            Some((weights.entry(weights.find_role(&scope, role)?).range.clone(), heads))
        });
        let rule = Repulsion { strength: part.strength, temperature: part.temperature };
        Some(Self { rule, seed: run.config.seed, sets: found.collect(), steered: Vec::new() })
    }

    /// The gradient, with that of heads replaced.
    pub(super) fn steer(&mut self, weights: &Parameters<f32>, gradient: &[f32]) -> &[f32] {
        self.steered.clear();
        self.steered.extend_from_slice(gradient);
        for (range, heads) in &self.sets {
            self.rule.steer(&weights.flat()[range.clone()], &mut self.steered[range.clone()], *heads);
        }
        &self.steered
    }

    /// The walk's noise after a step of this learning rate.
    pub(super) fn walk(&self, weights: &mut Parameters<f32>, rate: f64, step: usize) {
        let deviation = self.rule.noise(rate);
        if deviation == 0.0 {
            return;
        }
        let mut rng = seeded(splitmix64(splitmix64(self.seed ^ 0x7761_6c6b) ^ step as u64));
        for (range, _) in &self.sets {
            for weight in &mut weights.flat_mut()[range.clone()] {
                *weight += (deviation * normal(&mut rng)) as f32;
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

    fn run(more: &str) -> Run {
        RunConfig::read(&format!("{TEXT}{more}")).unwrap().resolve().unwrap()
    }

    /// All weights after six steps.
    fn trained(more: &str) -> (Parameters<f32>, Run) {
        let run = run(more);
        let weights = {
            let mut trainer = Trainer::new(&run).unwrap();
            for _ in 0..6 {
                trainer.step().unwrap();
            }
            trainer.weights().clone()
        };
        (weights, run)
    }

    /// Mean squared distance between the heads of the query projection.
    fn spread(weights: &Parameters<f32>) -> f32 {
        let values = weights.get(weights.find("layers.1.mixer.q_proj.weight").unwrap());
        let heads: Vec<&[f32]> = values.chunks_exact(values.len() / 4).collect();
        let gap = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f32>();
        heads.iter().flat_map(|a| heads.iter().map(|b| gap(a, b))).sum()
    }

    #[test]
    fn heads_part_and_a_walk_is_the_same_every_time() {
        let plain = trained("").0;
        let pushed = trained("[train.repulsion]\nstrength = 100.0").0;
        assert!(spread(&pushed) > spread(&plain), "{} and {}", spread(&pushed), spread(&plain));
        let walk = "[train.repulsion]\ntemperature = 0.01";
        let walked = trained(walk).0;
        assert_eq!(walked.flat(), trained(walk).0.flat());
        assert_ne!(walked.flat(), trained("[train.repulsion]").0.flat());
    }

    /// A particle alone neither shares nor is pushed.
    #[test]
    fn one_head_is_trained_as_ever() {
        let single = TEXT.replace("heads = 4", "heads = 1");
        let weights = |more: &str| {
            let run = RunConfig::read(&format!("{single}{more}")).unwrap().resolve().unwrap();
            let mut trainer = Trainer::new(&run).unwrap();
            trainer.step().unwrap();
            trainer.weights().flat().to_vec()
        };
        assert_eq!(weights("[train.repulsion]"), weights(""));
    }

    #[test]
    fn layers_without_heads_are_refused() {
        let refused = |text: &str| {
            let config = RunConfig::read(text).unwrap();
            config.resolve().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let layer = refused(&format!("{TEXT}[train.repulsion]\nlayers = [0]"));
        assert!(
            layer.contains("train.repulsion.layers: found 0, expected layers with attention heads, which are [1]"),
            "{layer}"
        );
        let none = refused(&TEXT.replace("conv full", "conv gdn").replace("batch = 2", "batch = 2\n[train.repulsion]"));
        assert!(none.contains("expected a stack that has layers with attention heads"), "{none}");
        let bad = refused(&format!("{TEXT}[train.repulsion]\nstrength = -1.0"));
        assert!(bad.contains("train.repulsion.strength: found -1"), "{bad}");
    }
}
