//! Particles that repel each other: the heads of a layer, kept from becoming alike.
//!
//! The heads of a layer are taken for samples of one distribution, whose density falls with the loss. Stein's method moves samples
//! so that together they look like the distribution: each follows a blend of all gradients, the nearer the others the more of
//! theirs, and is pushed away from where the others are. With K the Gaussian kernel of width h, and h^2 the median of the squared
//! distances over `2 ln(M + 1)`, the gradient of particle i of M becomes
//!
//! ```text
//! ( sum_j K_ij g_j - strength sum_j K_ij (x_i - x_j) / h^2 ) / M + temperature g_i
//! ```
//!
//! The last term is the drift of a Langevin walk; its noise, of deviation `sqrt(2 rate temperature)` a step, is the caller's to
//! add. The forward pass does not change.
//!
//! Source: SVGD, Liu and Wang 2016 (1608.04471); SPOS, Zhang et al. 2018 (1809.01293); on heads, An et al. 2020 (2009.09364).

use crate::scalar::Scalar;

/// How particles repel each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repulsion {
    /// Weight of the push; 1 is Stein's.
    pub strength: f64,
    /// Temperature of the walk that each particle does on its own: 0 for SVGD, above for SPOS.
    pub temperature: f64,
}

impl Repulsion {
    /// Replaces the gradient of `count` particles that lie one after another.
    ///
    /// # Panics
    /// If they are not `count` of equal length, each with its gradient.
    pub fn steer<S: Scalar>(&self, particles: &[S], gradient: &mut [S], count: usize) {
        assert!(count > 0 && particles.len().is_multiple_of(count), "{} numbers of {count} particles", particles.len());
        assert_eq!(particles.len(), gradient.len(), "a gradient of every particle");
        let length = particles.len() / count;
        let particle = |index: usize| &particles[index * length..][..length];
        let gap = |a: usize, b: usize| -> f64 {
            particle(a).iter().zip(particle(b)).map(|(x, y)| (x.to_f64() - y.to_f64()).powi(2)).sum()
        };
        let gaps: Vec<f64> = (0..count * count).map(|cell| gap(cell / count, cell % count)).collect();
        let width = squared_width(&gaps, count);
        let given = gradient.to_vec();
        for (index, out) in gradient.chunks_exact_mut(length.max(1)).enumerate() {
            for (cell, out) in out.iter_mut().enumerate() {
                let own = particle(index)[cell].to_f64();
                let terms = (0..count).map(|other| {
                    let near = (-gaps[index * count + other] / (2.0 * width)).exp();
                    let push = self.strength * (own - particle(other)[cell].to_f64()) / width;
                    near * (given[other * length + cell].to_f64() - push)
                });
                let blend = terms.sum::<f64>() / count as f64;
                *out = S::from_f64(blend + self.temperature * given[index * length + cell].to_f64());
            }
        }
    }

    /// Deviation of the noise that belongs to a step of this learning rate.
    pub fn noise(&self, rate: f64) -> f64 {
        (2.0 * rate * self.temperature).sqrt()
    }
}

/// The kernel's squared width: the median of all squared distances, zeros of particles to themselves included, over `2 ln(M + 1)`; one
/// where all are in one place.
fn squared_width(gaps: &[f64], count: usize) -> f64 {
    let mut sorted = gaps.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    if median > 0.0 { median / (2.0 * (count as f64 + 1.0).ln()) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEIN: Repulsion = Repulsion { strength: 1.0, temperature: 0.0 };

    fn particles() -> Vec<f64> {
        (0..12).map(|cell: i32| f64::from(cell * cell * 7 % 11) / 11.0).collect()
    }

    #[test]
    fn one_particle_follows_its_gradient() {
        let mut gradient = vec![0.3, -0.2];
        STEIN.steer(&[1.0, 2.0], &mut gradient, 1);
        assert_eq!(gradient, [0.3, -0.2]);
        Repulsion { temperature: 0.5, ..STEIN }.steer(&[1.0, 2.0], &mut gradient, 1);
        assert!((gradient[0] - 0.45).abs() < 1e-15);
    }

    /// The push on particle i is the slope of the sum of kernels, the width held fixed.
    #[test]
    fn the_push_is_the_slope_of_the_kernels() {
        let (count, length) = (4, 3);
        let places = particles();
        let mut push = vec![0.0; 12];
        STEIN.steer(&places, &mut push, count);
        let gap = |places: &[f64], a: usize, b: usize| -> f64 {
            (0..length).map(|cell| (places[a * length + cell] - places[b * length + cell]).powi(2)).sum()
        };
        let gaps: Vec<f64> = (0..16).map(|cell| gap(&places, cell / 4, cell % 4)).collect();
        let width = squared_width(&gaps, count);
        for cell in 0..12 {
            let kernels = |by: f64| -> f64 {
                let mut moved = places.clone();
                moved[cell] += by;
                (0..count).map(|other| (-gap(&moved, cell / length, other) / (2.0 * width)).exp()).sum()
            };
            let slope = (kernels(1e-5) - kernels(-1e-5)) / 2e-5;
            assert!((push[cell] - slope / count as f64).abs() < 1e-8, "{cell}: {} and {slope}", push[cell]);
        }
        for cell in 0..length {
            let sum: f64 = (0..count).map(|index| push[index * length + cell]).sum();
            assert!(sum.abs() < 1e-12, "pushes add up to {sum}");
        }
    }

    #[test]
    fn two_particles_part_and_twins_do_not() {
        let mut push = vec![0.0; 2];
        STEIN.steer(&[0.4, 0.6], &mut push, 2);
        assert!(push[0] > 0.0 && push[1] < 0.0, "against the gradient they go apart: {push:?}");
        let mut still = vec![0.0; 2];
        STEIN.steer(&[0.5, 0.5], &mut still, 2);
        assert_eq!(still, [0.0; 2]);
    }

    /// Particles at the median distance get a share of `1 / (M + 1)` of each other's gradients; far ones none.
    #[test]
    fn gradients_are_shared_by_nearness() {
        let quiet = Repulsion { strength: 0.0, temperature: 0.0 };
        let mut gradient = vec![1.0, 0.0, 0.0];
        quiet.steer(&[0.0, 1.0, 3.0], &mut gradient, 3);
        for (found, expected) in gradient.iter().zip([1.0 / 3.0, 1.0 / 12.0, 0.25_f64.powi(9) / 3.0]) {
            assert!((found - expected).abs() < 1e-12, "{gradient:?}");
        }
    }
}
