//! `AdamW`: Adam with decoupled weight decay, and clipping by the global norm of the gradient.
//!
//! Decay is applied to all weights but those added [`without_decay`](crate::NewParameter::without_decay). Clipping scales the
//! gradient when its norm over *all* weights exceeds a limit. The scaling is part of the update, so that the gradient itself is
//! not changed.
//!
//! Source: Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, arXiv 1711.05101.

use crate::kernels::update::{AdamWStep, adamw, sum_of_squares};
use crate::parameters::Parameters;
use crate::scalar::Scalar;

/// The hyperparameters of an [`AdamW`] optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Peak learning rate.
    pub rate: f64,
    /// Decay rates of the running means of the gradient and of its square.
    pub betas: [f64; 2],
    /// Added to the square root of the mean square.
    pub epsilon: f64,
    /// Weight decay: a step multiplies the weight by `1 - rate * decay`.
    pub decay: f64,
    /// Largest norm of the gradient over all weights; infinite for no clipping.
    pub clip: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { rate: 1e-3, betas: [0.9, 0.999], epsilon: 1e-8, decay: 0.01, clip: f64::INFINITY }
    }
}

impl AdamWConfig {
    /// An optimiser with these hyperparameters, before its first step.
    pub fn init<S: Scalar>(self) -> AdamW<S> {
        AdamW { config: self, steps: 0, means: Vec::new(), squares: Vec::new() }
    }
}

/// The optimiser: its hyperparameters, and the running means of the gradient and of its square.
#[derive(Clone, Debug)]
pub struct AdamW<S> {
    config: AdamWConfig,
    steps: i32,
    means: Vec<S>,
    squares: Vec<S>,
}

impl<S: Scalar> AdamW<S> {
    /// Steps taken, and the running means of the gradient and of its square, for a checkpoint. Both are empty before the first step.
    pub fn state(&self) -> (i32, &[S], &[S]) {
        (self.steps, &self.means, &self.squares)
    }

    /// Restores what [`state`](Self::state) returned.
    pub fn restore(&mut self, steps: i32, means: Vec<S>, squares: Vec<S>) {
        (self.steps, self.means, self.squares) = (steps, means, squares);
    }

    /// Takes one step, with the learning rate times `factor` (see [`Schedule`](crate::Schedule)).
    ///
    /// # Panics
    /// If the gradient is not as long as the weights.
    pub fn update(&mut self, weights: &mut Parameters<S>, gradient: &[S], factor: f64) {
        assert_eq!(gradient.len(), weights.size(), "a gradient of all weights");
        self.means.resize(weights.size(), S::ZERO);
        self.squares.resize(weights.size(), S::ZERO);
        self.steps += 1;
        let AdamWConfig { rate, betas: [beta1, beta2], epsilon, decay, clip } = self.config;
        let norm = if clip.is_finite() { sum_of_squares(gradient).sqrt() } else { 0.0 };
        let step = |decays: bool| AdamWStep {
            rate: S::from_f64(rate * factor),
            decay_factor: S::from_f64(if decays { 1.0 - rate * factor * decay } else { 1.0 }),
            beta1: S::from_f64(beta1),
            beta2: S::from_f64(beta2),
            bias_correction1: S::from_f64(1.0 / (1.0 - beta1.powi(self.steps))),
            bias_correction2: S::from_f64(1.0 / (1.0 - beta2.powi(self.steps))),
            epsilon: S::from_f64(epsilon),
            clip_factor: S::from_f64(if norm > clip { clip / norm } else { 1.0 }),
        };
        for index in 0..weights.len() {
            let (range, decays) = weights.range_and_decay(index);
            let (means, squares) = (&mut self.means[range.clone()], &mut self.squares[range.clone()]);
            adamw(step(decays), &mut weights.flat_mut()[range.clone()], &gradient[range], means, squares);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The updates of one weight, by the formulas of the paper.
    fn reference_update(config: AdamWConfig, mut weight: f64, gradients: &[f64], decays: bool) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        for (step, gradient) in (1..).zip(gradients) {
            mean = config.betas[0] * mean + (1.0 - config.betas[0]) * gradient;
            square = config.betas[1] * square + (1.0 - config.betas[1]) * gradient * gradient;
            let (mean, square) =
                (mean / (1.0 - config.betas[0].powi(step)), square / (1.0 - config.betas[1].powi(step)));
            if decays {
                weight -= config.rate * config.decay * weight;
            }
            weight -= config.rate * mean / (square.sqrt() + config.epsilon);
        }
        weight
    }

    #[test]
    fn updates_follow_the_formulas_and_decay_only_marked_weights() {
        let config = AdamWConfig { rate: 0.1, decay: 0.5, ..AdamWConfig::default() };
        let mut weights = Parameters::<f64>::new();
        weights.add("decays", &[1], vec![1.0]);
        let _ = weights.add("stays", &[1], vec![1.0]).without_decay();
        let mut optimizer = config.init();
        let gradients = [0.3, -0.1, 0.7];
        for gradient in gradients {
            optimizer.update(&mut weights, &[gradient; 2], 1.0);
        }
        for (value, decays) in weights.flat().iter().zip([true, false]) {
            assert!((value - reference_update(config, 1.0, &gradients, decays)).abs() < 1e-12);
        }
    }

    #[test]
    fn a_restored_optimiser_continues_with_the_same_bits() {
        let run = |interrupted: bool| {
            let mut weights = Parameters::<f32>::new();
            weights.add("w", &[2], vec![1.0, -1.0]);
            let mut optimizer = AdamWConfig::default().init();
            for step in 0..6_u8 {
                if interrupted && step == 3 {
                    let (steps, means, squares) = optimizer.state();
                    let (means, squares) = (means.to_vec(), squares.to_vec());
                    optimizer = AdamWConfig::default().init();
                    optimizer.restore(steps, means, squares);
                }
                optimizer.update(&mut weights, &[f32::from(step) - 2.0, 0.3], 1.0);
            }
            weights.flat().to_vec()
        };
        assert_eq!(run(true), run(false));
    }

    #[test]
    fn clipping_scales_the_gradient_to_the_largest_norm() {
        let config = AdamWConfig { clip: 2.5, epsilon: 1.0, decay: 0.0, ..AdamWConfig::default() };
        let run = |config: AdamWConfig, gradient: [f64; 2]| {
            let mut weights = Parameters::<f64>::new();
            weights.add("w", &[2], vec![0.0; 2]);
            config.init().update(&mut weights, &gradient, 1.0);
            weights.flat().to_vec()
        };
        assert_eq!(run(config, [3.0, 4.0]), run(AdamWConfig { clip: f64::INFINITY, ..config }, [1.5, 2.0]));
        assert_eq!(run(config, [0.3, 0.4]), run(AdamWConfig { clip: f64::INFINITY, ..config }, [0.3, 0.4]));
    }
}
