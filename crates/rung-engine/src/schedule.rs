//! Learning-rate schedules.
//!
//! A schedule gives a factor between 0 and 1 for each step; the learning rate is the peak rate times the factor. Every schedule
//! begins with a linear warm-up, which may have no steps.
//!
//! ```
//! use rung_engine::{LearningRateDecay, Schedule};
//!
//! let schedule = Schedule { warmup: 10, steps: 110, decay: LearningRateDecay::Cosine { floor: 0.0 } };
//! assert_eq!(schedule.factor(4), 0.5);
//! assert!((schedule.factor(60) - 0.5).abs() < 1e-12);
//! ```

/// How the learning rate decays after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearningRateDecay {
    /// The rate stays at its peak.
    Constant,
    /// Half a cosine, down to `floor` times the peak at the last step.
    Cosine {
        /// Factor at the end.
        floor: f64,
    },
    /// A straight line, down to `floor` times the peak at the last step.
    Linear {
        /// Factor at the end.
        floor: f64,
    },
    /// Warm-up, stable, decay: the peak rate, then a straight line down to `floor` times the peak over the last steps.
    Stable {
        /// Factor at the end.
        floor: f64,
        /// Fraction of all steps over which the rate decays.
        cooldown: f64,
    },
}

/// A learning-rate schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Steps of warm-up.
    pub warmup: usize,
    /// Steps of the run, warm-up included.
    pub steps: usize,
    /// How the learning rate decays after the warm-up.
    pub decay: LearningRateDecay,
}

impl Schedule {
    /// The factor of a step; the first step is 0.
    pub fn factor(&self, step: usize) -> f64 {
        if step < self.warmup {
            return (step + 1) as f64 / self.warmup as f64;
        }
        let decay_steps = self.steps.saturating_sub(self.warmup).max(1) as f64;
        let progress = ((step - self.warmup) as f64 / decay_steps).min(1.0);
        match self.decay {
            LearningRateDecay::Constant => 1.0,
            LearningRateDecay::Cosine { floor } => {
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
            }
            LearningRateDecay::Linear { floor } => floor + (1.0 - floor) * (1.0 - progress),
            LearningRateDecay::Stable { floor, cooldown } => {
                let cooldown_steps = (cooldown * self.steps as f64).max(1.0);
                let remaining_steps = self.steps.saturating_sub(step) as f64;
                floor + (1.0 - floor) * (remaining_steps / cooldown_steps).min(1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_warm_up_to_the_peak_and_end_at_their_floor() {
        for decay in [LearningRateDecay::Cosine { floor: 0.1 }, LearningRateDecay::Linear { floor: 0.1 }] {
            let schedule = Schedule { warmup: 5, steps: 50, decay };
            let factors: Vec<_> = (0..60).map(|step| schedule.factor(step)).collect();
            assert!(factors[..5].windows(2).all(|pair| pair[0] < pair[1]));
            assert!(factors[5..51].windows(2).all(|pair| pair[0] > pair[1]));
            assert!(
                (factors[4] - 1.0).abs() < 1e-12
                    && (factors[50] - 0.1).abs() < 1e-12
                    && (factors[59] - 0.1).abs() < 1e-12
            );
        }
        let stable = Schedule { warmup: 5, steps: 50, decay: LearningRateDecay::Stable { floor: 0.1, cooldown: 0.2 } };
        let factors: Vec<_> = (0..60).map(|step| stable.factor(step)).collect();
        assert!(factors[4..41].iter().all(|factor| (factor - 1.0).abs() < 1e-12));
        assert!(
            (factors[45] - 0.55).abs() < 1e-12
                && (factors[50] - 0.1).abs() < 1e-12
                && (factors[59] - 0.1).abs() < 1e-12
        );
        let constant = Schedule { warmup: 0, steps: 3, decay: LearningRateDecay::Constant };
        assert!((0..9).all(|step| (constant.factor(step) - 1.0).abs() < 1e-12));
    }
}
