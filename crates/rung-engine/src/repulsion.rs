//! Particles that repel each other: a gradient that keeps the heads of a layer different.
//!
//! The heads of a layer are treated as samples (particles) of one distribution, whose density falls with the loss. Stein's method
//! moves the samples so that together they follow the distribution: each one moves along a weighted mean of all gradients, with
//! larger weights for closer particles, and away from the other particles. With K the Gaussian kernel of bandwidth h, and h^2 the
//! median of the squared distances over `2 ln(M + 1)`, the gradient of particle i of M becomes
//!
//! ```text
//! ( sum_j K_ij g_j - strength sum_j K_ij (x_i - x_j) / h^2 ) / M + temperature g_i
//! ```
//!
//! The last term is the drift of Langevin dynamics; the caller adds its noise, of standard deviation `sqrt(2 rate temperature)` per
//! step. The forward pass does not change.
//!
//! Source: Stein variational gradient descent (SVGD), Liu and Wang 2016 (1608.04471); stochastic particle-optimization sampling
//! (SPOS), Zhang et al. 2018 (1809.01293); on heads, An et al. 2020 (2009.09364).

use crate::scalar::Scalar;

/// How strongly particles repel each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repulsion {
    /// Weight of the repulsion; 1 is Stein's method.
    pub strength: f64,
    /// Temperature of the Langevin dynamics of each particle: 0 for SVGD, positive for SPOS.
    pub temperature: f64,
}

impl Repulsion {
    /// Replaces the gradient of `count` particles that are stored one after another.
    ///
    /// # Panics
    /// If the lengths do not fit `count` particles of equal length and their gradients.
    pub fn apply<S: Scalar>(&self, particles: &[S], gradient: &mut [S], count: usize) {
        assert!(count > 0 && particles.len().is_multiple_of(count), "{} numbers of {count} particles", particles.len());
        assert_eq!(particles.len(), gradient.len(), "a gradient of every particle");
        let length = particles.len() / count;
        let particle = |index: usize| &particles[index * length..][..length];
        let squared_distance = |a: usize, b: usize| -> f64 {
            particle(a).iter().zip(particle(b)).map(|(x, y)| (x.to_f64() - y.to_f64()).powi(2)).sum()
        };
        let squared_distances: Vec<f64> =
            (0..count * count).map(|pair| squared_distance(pair / count, pair % count)).collect();
        let bandwidth = squared_bandwidth(&squared_distances, count);
        let loss_gradient = gradient.to_vec();
        for (index, out) in gradient.chunks_exact_mut(length.max(1)).enumerate() {
            for (element, out) in out.iter_mut().enumerate() {
                let x = particle(index)[element].to_f64();
                let terms = (0..count).map(|other| {
                    let kernel = (-squared_distances[index * count + other] / (2.0 * bandwidth)).exp();
                    let repulsion = self.strength * (x - particle(other)[element].to_f64()) / bandwidth;
                    kernel * (loss_gradient[other * length + element].to_f64() - repulsion)
                });
                let mean = terms.sum::<f64>() / count as f64;
                *out = S::from_f64(mean + self.temperature * loss_gradient[index * length + element].to_f64());
            }
        }
    }

    /// Standard deviation of the Langevin noise of a step with this learning rate.
    pub fn noise_deviation(&self, rate: f64) -> f64 {
        (2.0 * rate * self.temperature).sqrt()
    }
}

/// The kernel's squared bandwidth: the median of all squared distances, those of particles to themselves included, over
/// `2 ln(M + 1)`; 1 if the median is 0.
fn squared_bandwidth(squared_distances: &[f64], count: usize) -> f64 {
    let mut sorted = squared_distances.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    if median > 0.0 { median / (2.0 * (count as f64 + 1.0).ln()) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEIN: Repulsion = Repulsion { strength: 1.0, temperature: 0.0 };

    fn particles() -> Vec<f64> {
        (0..12).map(|element: i32| f64::from(element * element * 7 % 11) / 11.0).collect()
    }

    #[test]
    fn a_single_particle_keeps_its_gradient() {
        let mut gradient = vec![0.3, -0.2];
        STEIN.apply(&[1.0, 2.0], &mut gradient, 1);
        assert_eq!(gradient, [0.3, -0.2]);
        Repulsion { temperature: 0.5, ..STEIN }.apply(&[1.0, 2.0], &mut gradient, 1);
        assert!((gradient[0] - 0.45).abs() < 1e-15);
    }

    /// The repulsion of particle i is the derivative of the sum of kernels with the bandwidth held fixed.
    #[test]
    fn repulsion_is_the_derivative_of_the_kernels() {
        let (count, length) = (4, 3);
        let particles = particles();
        let mut repulsion = vec![0.0; 12];
        STEIN.apply(&particles, &mut repulsion, count);
        let squared_distance = |particles: &[f64], a: usize, b: usize| -> f64 {
            (0..length).map(|element| (particles[a * length + element] - particles[b * length + element]).powi(2)).sum()
        };
        let squared_distances: Vec<f64> =
            (0..16).map(|pair| squared_distance(&particles, pair / 4, pair % 4)).collect();
        let bandwidth = squared_bandwidth(&squared_distances, count);
        for element in 0..12 {
            let kernels = |offset: f64| -> f64 {
                let mut moved = particles.clone();
                moved[element] += offset;
                let exponents =
                    (0..count).map(|other| -squared_distance(&moved, element / length, other) / (2.0 * bandwidth));
                exponents.map(f64::exp).sum()
            };
            let derivative = (kernels(1e-5) - kernels(-1e-5)) / 2e-5;
            let difference = repulsion[element] - derivative / count as f64;
            assert!(difference.abs() < 1e-8, "{element}: {} and {derivative}", repulsion[element]);
        }
        for element in 0..length {
            let sum: f64 = (0..count).map(|index| repulsion[index * length + element]).sum();
            assert!(sum.abs() < 1e-12, "repulsions add up to {sum}");
        }
    }

    #[test]
    fn different_particles_repel_and_equal_ones_do_not() {
        let mut gradient = vec![0.0; 2];
        STEIN.apply(&[0.4, 0.6], &mut gradient, 2);
        assert!(gradient[0] > 0.0 && gradient[1] < 0.0, "a step against the gradient separates them: {gradient:?}");
        let mut gradient_of_equals = vec![0.0; 2];
        STEIN.apply(&[0.5, 0.5], &mut gradient_of_equals, 2);
        assert_eq!(gradient_of_equals, [0.0; 2]);
    }

    /// Particles at the median distance get `1 / (M + 1)` of each other's gradients; distant ones almost nothing.
    #[test]
    fn closer_particles_share_more_of_their_gradients() {
        let without_repulsion = Repulsion { strength: 0.0, temperature: 0.0 };
        let mut gradient = vec![1.0, 0.0, 0.0];
        without_repulsion.apply(&[0.0, 1.0, 3.0], &mut gradient, 3);
        for (found, expected) in gradient.iter().zip([1.0 / 3.0, 1.0 / 12.0, 0.25_f64.powi(9) / 3.0]) {
            assert!((found - expected).abs() < 1e-12, "{gradient:?}");
        }
    }
}
