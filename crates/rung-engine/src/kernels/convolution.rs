//! Short depthwise causal convolution.
//!
//! `out[t, c] = bias[c] + sum_tap filter[c, tap] in[t + tap - (taps - 1), c]`, where inputs before the first token come from the
//! carried state. Filters are turned to `[taps, channels]` once per call, so that every inner loop runs over channels, and the
//! state is put in front of the input, so that no loop asks where it is.

use crate::scalar::Scalar;

/// Extents of a call.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) channels: usize,
    pub(crate) taps: usize,
}

impl Extents {
    /// Rows of one sequence with the state in front.
    pub(crate) fn padded(self) -> usize {
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
    /// Convolution of the padded input with turned filters.
    pub(crate) fn forward<S>(extents: Extents, padded: &[S], filters: &[S], bias: &[S], out: &mut [S]) {
        let width = extents.channels;
        for sequence in 0..extents.batch {
            let input = &padded[sequence * extents.padded() * width..(sequence + 1) * extents.padded() * width];
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

    /// Gradients to the padded input (added), to the turned filters (added) and to the bias (added).
    pub(crate) fn backward<S>(
        extents: Extents,
        padded: &[S],
        filters: &[S],
        slope: &[S],
        to_padded: &mut [S],
        to_filters: &mut [S],
        to_bias: &mut [S],
    ) {
        let width = extents.channels;
        for sequence in 0..extents.batch {
            let place = sequence * extents.padded() * width;
            for time in 0..extents.time {
                let row = sequence * extents.time + time;
                let slope = &slope[row * width..(row + 1) * width];
                for (to_bias, &slope) in to_bias.iter_mut().zip(slope) {
                    *to_bias += slope;
                }
                for tap in 0..extents.taps {
                    let at = place + (time + tap) * width;
                    let (filter, input) = (&filters[tap * width..(tap + 1) * width], &padded[at..at + width]);
                    let to_filter = &mut to_filters[tap * width..(tap + 1) * width];
                    let to_input = &mut to_padded[at..at + width];
                    for index in 0..width {
                        to_input[index] = slope[index].mul_add(filter[index], to_input[index]);
                        to_filter[index] = slope[index].mul_add(input[index], to_filter[index]);
                    }
                }
            }
        }
    }
}
