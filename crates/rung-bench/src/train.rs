//! Training steps: forward, backward and AdamW on a whole batch, on all threads.
//!
//! Mixers with a PyTorch peer run in the `BenchDecoder`, the same model as the peer's, twice: with only the positions that have a loss in
//! the last MLP, and with all. All others run in the models of `rung-nn`, as a user trains them, and have no ratio.

use rung_engine::{AdamW, AdamWConfig, DataParallel, Native, OperationProfile, Ops as _, Parameters};
use rung_nn::{InputConfig, Model, ModelConfig, NormConfig, Positions};
use rung_theory::stack::mixer::Benchmark;
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{NO_TARGET, seeded};

use super::decoder::{BenchDecoder, DecoderMixer};
use super::measure::time;
use super::{BenchError, Size, VOCABULARY, stack_text};

/// Mixers that have a peer. The last two are the same work here and differ in the peer: see the top of the module.
const WITH_PEER: [(&str, DecoderMixer); 4] = [
    ("full", DecoderMixer::Softmax),
    ("linear", DecoderMixer::Linear),
    ("gdn", DecoderMixer::GatedDelta),
    ("gdn_solver", DecoderMixer::GatedDelta),
];

/// Mixers whose steps are profiled.
pub(super) const PROFILED: [&str; 3] = ["full", "linear", "gdn"];

/// Names of all mixers that can be trained here: those with a peer first.
pub fn names() -> impl Iterator<Item = &'static str> {
    names_with_peer().chain(super::network_names().filter(|name| WITH_PEER.iter().all(|(known, _)| known != name)))
}

/// Names of those with a peer.
pub fn names_with_peer() -> impl Iterator<Item = &'static str> {
    WITH_PEER.iter().map(|(name, _)| *name)
}

enum Network {
    WithPeer(BenchDecoder),
    Own(Box<Model>, Plan),
}

/// A model in training on random tokens.
pub struct Training {
    network: Network,
    size: Size,
    weights: Parameters<f32>,
    trainer: DataParallel<f32>,
    optimizer: AdamW<f32>,
    tokens: Vec<usize>,
    targets: Vec<usize>,
}

impl Training {
    /// Builds the model; one with a peer with `all_positions` through the last MLP, or only those with a loss.
    ///
    /// # Errors
    /// The mixer has no network at this size.
    pub fn new(mixer: &str, size: Size, all_positions: bool, threads: usize) -> Result<Self, BenchError> {
        let (network, weights) = match WITH_PEER.iter().find(|(name, _)| *name == mixer) {
            Some((_, mixer)) => {
                let (decoder, weights) = BenchDecoder::new(size, *mixer, all_positions);
                (Network::WithPeer(decoder), weights)
            }
            None => build_rung_model(mixer, size)?,
        };
        let trainer = DataParallel::new(threads, DataParallel::<f32>::micro_batch_for(size.length, size.width));
        let tokens = (0..size.batch * size.length).map(|index| index * index % 61 % VOCABULARY).collect();
        let targets = (0..size.batch).map(|index| index * 7 % VOCABULARY).collect();
        Ok(Self { network, size, weights, trainer, optimizer: AdamWConfig::default().init(), tokens, targets })
    }

    /// Milliseconds of one step.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn step(&mut self) -> Result<f64, BenchError> {
        let (passes, update) = self.timed_step()?;
        Ok(passes + update)
    }

    /// Milliseconds of the passes of one step, and of its update.
    pub(super) fn timed_step(&mut self) -> Result<(f64, f64), BenchError> {
        let Self { network, size, weights, trainer, optimizer, tokens, targets } = self;
        let mut outcome = Ok(());
        let passes = time(|| {
            let step = trainer.step(weights, size.batch, |ops: &Native<f32>, items| {
                let rows = &tokens[items.start * size.length..items.end * size.length];
                network.loss(ops, rows, &targets[items], *size)
            });
            outcome = step.map(drop);
        });
        outcome?;
        Ok((passes, time(|| optimizer.update(weights, trainer.gradient(), 1.0))))
    }

    /// Times every operation from now on.
    pub(super) fn start_profile(&self) {
        self.trainer.start_profile();
    }

    /// The rows of each thread since then.
    pub(super) fn take_profile(&self) -> Vec<Vec<OperationProfile>> {
        self.trainer.take_profile()
    }

    /// How many weights the model has.
    pub(super) fn weight_count(&self) -> usize {
        self.weights.size()
    }

    /// Floating-point operations of a step, counting products only: forward once, backward twice as much.
    pub fn operations(&self) -> f64 {
        match &self.network {
            Network::WithPeer(decoder) => decoder.operations(),
            Network::Own(_, plan) => {
                let mlp = 2.0 * 8.0 * (self.size.width as f64).powi(2);
                let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
                let mixing: f64 = mixers
                    .map(|mixer| {
                        let flops = mixer.facts().flops;
                        let seen =
                            flops.max_attended.map_or(self.size.length, |limit| (limit as usize).min(self.size.length));
                        // A token whose prefix is shorter than what it may attend to attends to all of it.
                        let mean = seen as f64 * (1.0 - seen as f64 / (2.0 * self.size.length as f64));
                        flops.per_token as f64 + flops.per_attended as f64 * mean
                    })
                    .sum();
                // In the last layer one token of each row goes through the MLP.
                let mlps = (self.size.layers - 1) as f64 + 1.0 / self.size.length as f64;
                3.0 * self.size.tokens() * (mixing + mlp * mlps)
            }
        }
    }
}

impl Network {
    fn loss(&self, ops: &Native<f32>, tokens: &[usize], targets: &[usize], size: Size) -> rung_engine::Tensor<f32> {
        match self {
            Self::WithPeer(decoder) => decoder.loss(ops, tokens, targets),
            Self::Own(model, _) => {
                let tokens: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
                let mut asked = vec![NO_TARGET; tokens.len()];
                for (row, &target) in targets.iter().enumerate() {
                    asked[(row + 1) * size.length - 1] = target as u32;
                }
                let loss = model.loss(ops, &tokens, targets.len(), &asked);
                let (loss, _) = loss.expect("tokens and targets made for this model");
                ops.scale(&loss, 1.0 / size.batch as f64)
            }
        }
    }
}

fn build_rung_model(mixer: &str, size: Size) -> Result<(Network, Parameters<f32>), BenchError> {
    let defaults =
        Defaults { heads: size.heads as u64, head_dim: (size.width / size.heads) as u64, ..Defaults::default() };
    let text = format!("{}*{}", stack_text(mixer, Benchmark::Length(size.length as u64)), size.layers);
    let plan = Plan::parse(&text, &defaults)?;
    let config = ModelConfig {
        input: InputConfig::Vocabulary(VOCABULARY),
        classes: VOCABULARY,
        norm: NormConfig::Layer,
        positions: Positions::Learned { length: size.length },
        ..ModelConfig::default()
    };
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(0))?;
    Ok((Network::Own(Box::new(model), plan), weights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mixer_trains() {
        let size = Size { name: "tiny", batch: 4, length: 64, width: 16, heads: 2, layers: 1 };
        for name in names() {
            let mut training = Training::new(name, size, false, 2).unwrap();
            let before = training.weights.flat().to_vec();
            training.step().unwrap();
            assert_ne!(training.weights.flat(), before, "{name}");
            assert!(training.operations() > 0.0, "{name}");
        }
        for name in rung_nn::mixer::NAMES {
            assert!(
                *name == "none" || names().any(|known| known == super::super::canonical(name)),
                "{name} is not trained"
            );
        }
    }
    #[test]
    fn a_whole_step_is_the_same_step_with_more_arithmetic() {
        let size = Size { name: "tiny", batch: 4, length: 64, width: 16, heads: 2, layers: 2 };
        for name in names_with_peer() {
            let [part, whole] = [false, true].map(|all_positions| {
                let mut training = Training::new(name, size, all_positions, 2).unwrap();
                training.step().unwrap();
                (training.trainer.gradient().to_vec(), training.operations())
            });
            let apart = part.0.iter().zip(&whole.0).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-6, "{name}: {apart}");
            assert!(part.1 < whole.1, "{name}");
        }
    }
}
