//! Training steps: forward, backward and AdamW on one batch, on all threads.
//!
//! Mixers that PyTorch is compared with run in the `BenchDecoder`, the same model as PyTorch's, twice: once only the positions
//! that have a loss go through the last MLP, and once all positions do. All other mixers run in the models of `rung-nn`, as a
//! user trains them, and have no ratio.

use rung_engine::{AdamW, AdamWConfig, DataParallel, Native, OperationProfile, Ops as _, Parameters};
use rung_nn::mixer::{
    MixerConfig as _, gdn::GatedDeltanetConfig, linear::LinearAttentionConfig, softmax::SoftmaxConfig,
};
use rung_nn::{InputConfig, Model, ModelConfig, NormConfig, Positions};
use rung_theory::stack::mixer::Benchmark;
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{NO_TARGET, seeded};

use super::decoder::{BenchDecoder, DecoderMixer};
use super::measure::time;
use super::{BenchError, Size, VOCABULARY, stack_text};

/// Mixers that the PyTorch script implements too. The last two are the same work here and differ in PyTorch: see the crate's
/// documentation.
const COMPARED_MIXERS: [(&str, DecoderMixer); 4] = [
    (SoftmaxConfig::NAME, DecoderMixer::Softmax),
    (LinearAttentionConfig::NAME, DecoderMixer::Linear),
    (GatedDeltanetConfig::NAME, DecoderMixer::GatedDelta),
    ("gdn_solver", DecoderMixer::GatedDelta),
];

/// Mixers whose steps are profiled.
pub(super) const PROFILED_MIXERS: [&str; 3] =
    [SoftmaxConfig::NAME, LinearAttentionConfig::NAME, GatedDeltanetConfig::NAME];

/// Names of all mixers that can be trained here, those that PyTorch is compared with first.
pub fn mixer_names() -> impl Iterator<Item = &'static str> {
    compared_mixer_names()
        .chain(super::implemented_mixers().filter(|name| COMPARED_MIXERS.iter().all(|(known, _)| known != name)))
}

/// Names of the mixers that PyTorch is compared with.
pub fn compared_mixer_names() -> impl Iterator<Item = &'static str> {
    COMPARED_MIXERS.iter().map(|(name, _)| *name)
}

enum BenchModel {
    /// The model that PyTorch trains too.
    Decoder(BenchDecoder),
    /// A model of `rung-nn`, with the plan it was built from.
    Model(Box<Model>, Plan),
}

/// A model in training on random tokens.
pub struct Training {
    model: BenchModel,
    size: Size,
    weights: Parameters<f32>,
    trainer: DataParallel<f32>,
    optimizer: AdamW<f32>,
    tokens: Vec<usize>,
    targets: Vec<usize>,
}

impl Training {
    /// Builds the model. A `BenchDecoder` puts all positions through its last MLP if `all_positions`, else only those with a loss.
    ///
    /// # Errors
    /// No model with the mixer can be built at this size.
    pub fn new(mixer: &str, size: Size, all_positions: bool, threads: usize) -> Result<Self, BenchError> {
        let (model, weights) = match COMPARED_MIXERS.iter().find(|(name, _)| *name == mixer) {
            Some((_, mixer)) => {
                let (decoder, weights) = BenchDecoder::new(size, *mixer, all_positions);
                (BenchModel::Decoder(decoder), weights)
            }
            None => build_model(mixer, size)?,
        };
        let trainer = DataParallel::new(threads, DataParallel::<f32>::micro_batch_for(size.length, size.width));
        let tokens = (0..size.batch * size.length).map(|position| position * position % 61 % VOCABULARY).collect();
        let targets = (0..size.batch).map(|sequence| sequence * 7 % VOCABULARY).collect();
        Ok(Self { model, size, weights, trainer, optimizer: AdamWConfig::default().init(), tokens, targets })
    }

    /// Runs one training step; returns its milliseconds.
    ///
    /// # Errors
    /// The loss or a gradient is not finite.
    pub fn step(&mut self) -> Result<f64, BenchError> {
        let (passes_ms, update_ms) = self.timed_step()?;
        Ok(passes_ms + update_ms)
    }

    /// Runs one training step; returns the milliseconds of its forward and backward passes, and those of the weight update.
    pub(super) fn timed_step(&mut self) -> Result<(f64, f64), BenchError> {
        let Self { model, size, weights, trainer, optimizer, tokens, targets } = self;
        let mut outcome = Ok(());
        let passes_ms = time(|| {
            let step = trainer.compute_gradient(weights, size.batch, |ops: &Native<f32>, sequences| {
                let rows = &tokens[sequences.start * size.length..sequences.end * size.length];
                model.loss(ops, rows, &targets[sequences], *size)
            });
            outcome = step.map(drop);
        });
        outcome?;
        Ok((passes_ms, time(|| optimizer.update(weights, trainer.gradient(), 1.0))))
    }

    /// Times every operation from now on.
    pub(super) fn start_profile(&self) {
        self.trainer.start_profile();
    }

    /// The profile of each thread since [`start_profile`](Self::start_profile).
    pub(super) fn take_profile(&self) -> Vec<Vec<OperationProfile>> {
        self.trainer.take_profile()
    }

    /// How many numbers the model's weights have.
    pub(super) fn weight_count(&self) -> usize {
        self.weights.size()
    }

    /// Floating-point operations of a step: those of matrix products only, with a backward pass counted as two forward passes.
    pub fn flops_per_step(&self) -> f64 {
        match &self.model {
            BenchModel::Decoder(decoder) => decoder.flops_per_step(),
            BenchModel::Model(_, plan) => {
                let mlp = 2.0 * 8.0 * (self.size.width as f64).powi(2);
                let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
                let mixing: f64 = mixers
                    .map(|mixer| {
                        let flops = mixer.facts().flops;
                        let length = self.size.length;
                        let most_attended =
                            flops.max_attended.map_or(length, |limit| (limit as usize).min(length)) as f64;
                        // A token whose prefix is shorter than that attends to its full prefix.
                        let mean_attended = most_attended * (1.0 - most_attended / (2.0 * length as f64));
                        flops.per_token as f64 + flops.per_attended as f64 * mean_attended
                    })
                    .sum();
                // In the last layer one token of each sequence goes through the MLP.
                let mlps_per_token = (self.size.layers - 1) as f64 + 1.0 / self.size.length as f64;
                3.0 * self.size.tokens() * (mixing + mlp * mlps_per_token)
            }
        }
    }
}

impl BenchModel {
    fn loss(&self, ops: &Native<f32>, tokens: &[usize], targets: &[usize], size: Size) -> rung_engine::Tensor<f32> {
        match self {
            Self::Decoder(decoder) => decoder.loss(ops, tokens, targets),
            Self::Model(model, _) => {
                let tokens: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
                let mut token_targets = vec![NO_TARGET; tokens.len()];
                for (row, &target) in targets.iter().enumerate() {
                    token_targets[(row + 1) * size.length - 1] = target as u32;
                }
                let loss = model.loss(ops, &tokens, targets.len(), &token_targets);
                let (loss, _) = loss.expect("tokens and targets that fit this model");
                ops.scale(&loss, 1.0 / size.batch as f64)
            }
        }
    }
}

fn build_model(mixer: &str, size: Size) -> Result<(BenchModel, Parameters<f32>), BenchError> {
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
    Ok((BenchModel::Model(Box::new(model), plan), weights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_step_changes_the_weights_of_every_mixer() {
        let size = Size { name: "tiny", batch: 4, length: 64, width: 16, heads: 2, layers: 1 };
        for name in mixer_names() {
            let mut training = Training::new(name, size, false, 2).unwrap();
            let before = training.weights.flat().to_vec();
            training.step().unwrap();
            assert_ne!(training.weights.flat(), before, "{name}");
            assert!(training.flops_per_step() > 0.0, "{name}");
        }
        for name in rung_nn::mixer::NAMES {
            assert!(
                *name == "none" || mixer_names().any(|known| known == super::super::canonical(name)),
                "{name} is not trained"
            );
        }
    }

    #[test]
    fn gradients_with_all_positions_agree_and_take_more_operations() {
        let size = Size { name: "tiny", batch: 4, length: 64, width: 16, heads: 2, layers: 2 };
        for name in compared_mixer_names() {
            let [loss_positions, all_positions] = [false, true].map(|all_positions| {
                let mut training = Training::new(name, size, all_positions, 2).unwrap();
                training.step().unwrap();
                (training.trainer.gradient().to_vec(), training.flops_per_step())
            });
            let pairs = loss_positions.0.iter().zip(&all_positions.0);
            let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-6, "{name}: {difference}");
            assert!(loss_positions.1 < all_positions.1, "{name}");
        }
    }
}
