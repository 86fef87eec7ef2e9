//! Short depthwise causal convolution.
//!
//! `out[t, c] = bias[c] + sum_tap filter[c, tap] in[t + tap - (taps - 1), c]`, where inputs before the first token come from the
//! state. Filters are transposed to `[taps, channels]` once per call, so that every inner loop runs over channels, and the state is
//! concatenated with the input, so that no loop needs a special case for it.

use crate::scalar::Scalar;

/// The sizes of the inputs; a filter has `taps` weights per channel.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) channels: usize,
    pub(crate) taps: usize,
}

impl Extents {
    /// Rows of one sequence together with its state.
    pub(crate) fn padded_len(self) -> usize {
        self.time + self.taps - 1
    }
}

/// `[channels, taps]` as `[taps, channels]`, or back.
pub(crate) fn transpose_filters<S: Scalar>(rows: usize, columns: usize, x: &[S], out: &mut [S]) {
    for row in 0..rows {
        for column in 0..columns {
            out[column * rows + row] = x[row * columns + column];
        }
    }
}

vectorised! {
    /// Convolves the padded input with transposed filters.
    pub(crate) fn forward<S>(extents: Extents, padded: &[S], filters: &[S], bias: &[S], out: &mut [S]) {
        let width = extents.channels;
        for sequence in 0..extents.batch {
            let padded_len = extents.padded_len();
            let input = &padded[sequence * padded_len * width..(sequence + 1) * padded_len * width];
            for time in 0..extents.time {
                let row = sequence * extents.time + time;
                let out = &mut out[row * width..(row + 1) * width];
                if bias.is_empty() { out.fill(S::ZERO) } else { out.copy_from_slice(bias) }
                for tap in 0..extents.taps {
                    let filter = &filters[tap * width..(tap + 1) * width];
                    let input = &input[(time + tap) * width..(time + tap + 1) * width];
                    for ((out, &x), &filter) in out.iter_mut().zip(input).zip(filter) {
                        *out = x.mul_add(filter, *out);
                    }
                }
            }
        }
    }

    /// Adds to the gradients of the padded input, of the transposed filters and of the bias.
    pub(crate) fn backward<S>(
        extents: Extents,
        padded: &[S],
        filters: &[S],
        grad_out: &[S],
        grad_padded: &mut [S],
        grad_filters: &mut [S],
        grad_bias: &mut [S],
    ) {
        let width = extents.channels;
        for sequence in 0..extents.batch {
            let start = sequence * extents.padded_len() * width;
            for time in 0..extents.time {
                let row = sequence * extents.time + time;
                let grad_out = &grad_out[row * width..(row + 1) * width];
                for (grad_bias, &grad_out) in grad_bias.iter_mut().zip(grad_out) {
                    *grad_bias += grad_out;
                }
                for tap in 0..extents.taps {
                    let input_start = start + (time + tap) * width;
                    let input_range = input_start..input_start + width;
                    let (filter, input) = (&filters[tap * width..(tap + 1) * width], &padded[input_range.clone()]);
                    let grad_filter = &mut grad_filters[tap * width..(tap + 1) * width];
                    let grad_input = &mut grad_padded[input_range];
                    for index in 0..width {
                        grad_input[index] = grad_out[index].mul_add(filter[index], grad_input[index]);
                        grad_filter[index] = grad_out[index].mul_add(input[index], grad_filter[index]);
                    }
                }
            }
        }
    }
}
