//! Softmax attention key by key, in accumulators of few bits.
//!
//! For every query a loop over its visible keys, as in the definition of
//! [`Ops::left_to_right_attention`](crate::Ops::left_to_right_attention). Between two keys only the running mean and log-sum are
//! kept, as lower bounds that count the bits of these accumulators assume. The ordinary kernel sums in whatever order is fast.

use super::attention::{Extents, Inputs};
use super::product::dot;
use crate::ops::AccumulatorRounding;
use crate::scalar::Scalar;

vectorised! {
    /// Moves the running mean toward a value that has this share of the weights so far.
    fn update_running_mean<S>(mean: &mut [S], value: &[S], share: S, rounding: Option<AccumulatorRounding>) {
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

/// Computes `out`, `[batch, queries, heads, value width]`, which must be zero at the start.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    rounding: Option<AccumulatorRounding>,
    out: &mut [S],
) {
    let Extents { query_len, key_len, heads, kv_heads, width, value_width, .. } = extents;
    for (row, mean) in out.chunks_exact_mut(value_width).enumerate() {
        let (sequence, query_index, head) = (row / heads / query_len, row / heads % query_len, row % heads);
        let query = &inputs.query[row * width..][..width];
        let bias = inputs.bias.as_ref().map(|bias| {
            let start = extents.bias_offset(bias, sequence, head) + query_index * key_len;
            &bias.values[start..start + key_len]
        });
        let mut log_sum = None;
        for key in extents.visible_keys(query_index) {
            let key_row = (sequence * key_len + key) * kv_heads + head * kv_heads / heads;
            let mut score = dot(query, &inputs.key[key_row * width..][..width]) * S::from_f64(extents.scale);
            if let Some(bias) = bias {
                score += bias[key];
            }
            let (share, new_log_sum) =
                log_sum.map_or((S::ONE, score), |old: S| ((score - old).sigmoid(), old + (score - old).softplus()));
            update_running_mean(mean, &inputs.value[key_row * value_width..][..value_width], share, rounding);
            log_sum = Some(rounding.map_or(new_log_sum, |rounding| rounding.log_sum.nearest(new_log_sum)));
        }
    }
}
