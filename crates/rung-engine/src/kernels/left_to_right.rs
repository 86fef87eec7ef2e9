//! Softmax attention key by key, in accumulators of few bits.
//!
//! For every query a loop over the keys it sees, as in the definition of
//! [`Ops::left_to_right_attention`](crate::Ops::left_to_right_attention): nothing else about the keys so far is kept, which is what a
//! bound on the bits of a message assumes. An ordinary kernel adds in whatever order is fast.

use super::attention::{Extents, Inputs};
use super::product::dot;
use crate::ops::AccumulatorRounding;
use crate::scalar::Scalar;

vectorised! {
    /// The running mean after a value of this share.
    fn move_mean<S>(mean: &mut [S], value: &[S], share: S, rounding: Option<AccumulatorRounding>) {
        match rounding {
            Some(rounding) => {
                for (mean, &value) in mean.iter_mut().zip(value) {
                    *mean = rounding.mean.nearest(*mean + share * (value - *mean));
                }
            }
            None => {
                for (mean, &value) in mean.iter_mut().zip(value) {
                    *mean += share * (value - *mean);
                }
            }
        }
    }
}

/// Outputs `[batch, queries, heads, value width]`, which start at zero.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    rounding: Option<AccumulatorRounding>,
    out: &mut [S],
) {
    let Extents { queries, keys, heads, key_heads, width, value_width, .. } = extents;
    for (row, mean) in out.chunks_exact_mut(value_width).enumerate() {
        let (sequence, at, head) = (row / heads / queries, row / heads % queries, row % heads);
        let query = &inputs.query[row * width..][..width];
        let bias =
            inputs.bias.as_ref().map(|bias| &bias.values[extents.bias_at(bias, sequence, head) + at * keys..][..keys]);
        let mut log_sum = None;
        for key in extents.seen(at) {
            let place = (sequence * keys + key) * key_heads + head * key_heads / heads;
            let mut score = dot(query, &inputs.key[place * width..][..width]) * S::from_f64(extents.scale);
            if let Some(bias) = bias {
                score += bias[key];
            }
            let (share, sum) =
                log_sum.map_or((S::ONE, score), |sum: S| ((score - sum).sigmoid(), sum + (score - sum).softplus()));
            move_mean(mean, &inputs.value[place * value_width..][..value_width], share, rounding);
            log_sum = Some(rounding.map_or(sum, |rounding| rounding.log_sum.nearest(sum)));
        }
    }
}
