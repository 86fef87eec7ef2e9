//! The optimiser's inner loop, and the sum of squares of a gradient.

/// The numbers of one `AdamW` step that are the same for every weight.
#[derive(Clone, Copy)]
pub(crate) struct Step<S> {
    pub(crate) rate: S,
    pub(crate) shrink: S,
    pub(crate) first: S,
    pub(crate) second: S,
    pub(crate) first_correction: S,
    pub(crate) second_correction: S,
    pub(crate) epsilon: S,
    pub(crate) clip: S,
}

vectorised! {
    /// One `AdamW` step.
    pub(crate) fn adamw<S>(step: Step<S>, weights: &mut [S], gradient: &[S], means: &mut [S], squares: &mut [S]) {
        let moments = means.iter_mut().zip(squares);
        for ((weight, &gradient), (mean, square)) in weights.iter_mut().zip(gradient).zip(moments) {
            let gradient = gradient * step.clip;
            *mean = *mean * step.first + gradient * (S::ONE - step.first);
            *square = *square * step.second + gradient * gradient * (S::ONE - step.second);
            let scale = (*square * step.second_correction).sqrt() + step.epsilon;
            *weight = *weight * step.shrink - step.rate * (*mean * step.first_correction) / scale;
        }
    }

    /// Sum of squares, in double precision and in a fixed order.
    pub(crate) fn sum_of_squares<S>(x: &[S]) -> f64 {
        let mut lanes = [0.0; 8];
        let mut blocks = x.chunks_exact(8);
        for block in blocks.by_ref() {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += x.to_f64() * x.to_f64();
            }
        }
        blocks.remainder().iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>() + lanes.into_iter().sum::<f64>()
    }

    /// Whether every number is finite: a product with zero is zero unless it is not.
    pub(crate) fn all_finite<S>(x: &[S]) -> bool {
        let mut lanes = [S::ZERO; 16];
        let mut blocks = x.chunks_exact(16);
        for block in blocks.by_ref() {
            for (lane, &x) in lanes.iter_mut().zip(block) {
                *lane += x * S::ZERO;
            }
        }
        lanes.iter().chain(blocks.remainder()).all(|x| x.is_finite())
    }
}
