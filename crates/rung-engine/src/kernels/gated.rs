//! Gated recurrence over channels, token by token.
//!
//! `h <- round(h + g (v - h))`, with one gate `g` per token. The arithmetic is that of the composed function, operation by operation,
//! so that both round to the same level. The backward pass reads the stored states and treats the rounding as the identity.

use crate::ops::Rounding;
use crate::scalar::Scalar;

/// The sizes of the inputs, and the rounding of the state.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) channels: usize,
    pub(crate) rounding: Option<Rounding>,
}

impl Extents {
    /// Where the channels of a token lie in `[batch, time, channels]`.
    fn token_range(self, row: usize, token: usize) -> std::ops::Range<usize> {
        let start = (row * self.time + token) * self.channels;
        start..start + self.channels
    }
}

/// Computes the states after every token from the values, the gates and the initial state.
pub(crate) fn forward<S: Scalar>(extents: Extents, [value, gate, state]: [&[S]; 3], out: &mut [S]) {
    for row in 0..extents.batch {
        for token in 0..extents.time {
            let (gate, range) = (gate[row * extents.time + token], extents.token_range(row, token));
            let (past, remaining) = out.split_at_mut(range.start);
            let previous =
                if token == 0 { &state[row * extents.channels..] } else { &past[extents.token_range(row, token - 1)] };
            for ((out, &value), &previous) in remaining.iter_mut().zip(&value[range]).zip(previous) {
                let next = previous + gate * (value - previous);
                *out = extents.rounding.map_or(next, |rounding| rounding.nearest(next));
            }
        }
    }
}

/// Computes the gradients of values, gates and initial state, which must be zero at the start.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    [value, gate, state]: [&[S]; 3],
    states: &[S],
    grad_out: &[S],
    grad_value: &mut [S],
    grad_gate: &mut [S],
    grad_state: &mut [S],
) {
    for row in 0..extents.batch {
        let state_range = row * extents.channels..(row + 1) * extents.channels;
        let grad_state = &mut grad_state[state_range.clone()];
        for token in (0..extents.time).rev() {
            let (gate_index, range) = (row * extents.time + token, extents.token_range(row, token));
            let previous =
                if token == 0 { &state[state_range.clone()] } else { &states[extents.token_range(row, token - 1)] };
            for (channel, index) in range.enumerate() {
                let gradient = grad_state[channel] + grad_out[index];
                grad_value[index] = gate[gate_index] * gradient;
                grad_gate[gate_index] += (value[index] - previous[channel]) * gradient;
                grad_state[channel] = gradient - gate[gate_index] * gradient;
            }
        }
    }
}
