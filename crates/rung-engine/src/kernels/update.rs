//! The inner loop of `AdamW`, and checks of a gradient: its sum of squares, and whether it is finite.

/// The numbers of one `AdamW` step that are the same for every weight.
#[derive(Clone, Copy)]
pub(crate) struct AdamWStep<S> {
    pub(crate) rate: S,
    /// Weights are multiplied by this before the update: the weight decay.
    pub(crate) decay_factor: S,
    pub(crate) beta1: S,
    pub(crate) beta2: S,
    pub(crate) bias_correction1: S,
    pub(crate) bias_correction2: S,
    pub(crate) epsilon: S,
    /// The gradient is multiplied by this before anything else.
    pub(crate) clip_factor: S,
}

vectorised! {
    /// One `AdamW` step of a range of weights.
    pub(crate) fn adamw<S>(step: AdamWStep<S>, weights: &mut [S], gradient: &[S], means: &mut [S], squares: &mut [S]) {
        let moments = means.iter_mut().zip(squares);
        for ((weight, &gradient), (mean, square)) in weights.iter_mut().zip(gradient).zip(moments) {
            let gradient = gradient * step.clip_factor;
            *mean = *mean * step.beta1 + gradient * (S::ONE - step.beta1);
            *square = *square * step.beta2 + gradient * gradient * (S::ONE - step.beta2);
            let scale = (*square * step.bias_correction2).sqrt() + step.epsilon;
            *weight = *weight * step.decay_factor - step.rate * (*mean * step.bias_correction1) / scale;
        }
    }

    /// Sum of squares, in double precision and in a fixed order.
    pub(crate) fn sum_of_squares<S>(x: &[S]) -> f64 {
        let mut lanes = [0.0; 8];
        let mut chunks = x.chunks_exact(8);
        for chunk in chunks.by_ref() {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += x.to_f64() * x.to_f64();
            }
        }
        chunks.remainder().iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>() + lanes.into_iter().sum::<f64>()
    }

    /// Whether every number is finite: zero times an infinity or a NaN is NaN.
    pub(crate) fn all_finite<S>(x: &[S]) -> bool {
        let mut lanes = [S::ZERO; 16];
        let mut chunks = x.chunks_exact(16);
        for chunk in chunks.by_ref() {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += x * S::ZERO;
            }
        }
        lanes.iter().chain(chunks.remainder()).all(|x| x.is_finite())
    }
}
