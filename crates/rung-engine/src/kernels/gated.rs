//! Gated recurrence over channels, token by token.
//!
//! `h <- round(h + g (v - h))`, with one gate `g` per token. The arithmetic is that of the composed body, operation by operation, so
//! that both round to the same level. The reverse pass goes backwards through the stored states and takes the rounding as the
//! identity.

use crate::ops::Rounding;
use crate::scalar::Scalar;

/// Extents of a call, and the bits of its state.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) channels: usize,
    pub(crate) rounding: Option<Rounding>,
}

impl Extents {
    /// The numbers of one token, counted through all rows.
    fn token(self, row: usize, token: usize) -> std::ops::Range<usize> {
        let start = (row * self.time + token) * self.channels;
        start..start + self.channels
    }
}

/// The states after every token. Inputs are value, gate and first state.
pub(crate) fn forward<S: Scalar>(extents: Extents, [value, gate, state]: [&[S]; 3], out: &mut [S]) {
    for row in 0..extents.batch {
        for token in 0..extents.time {
            let (gate, range) = (gate[row * extents.time + token], extents.token(row, token));
            let (past, rest) = out.split_at_mut(range.start);
            let before =
                if token == 0 { &state[row * extents.channels..] } else { &past[extents.token(row, token - 1)] };
            for ((out, &value), &before) in rest.iter_mut().zip(&value[range]).zip(before) {
                let next = before + gate * (value - before);
                *out = extents.rounding.map_or(next, |rounding| rounding.nearest(next));
            }
        }
    }
}

/// Gradients to value, gate and first state, which start at zero.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    [value, gate, state]: [&[S]; 3],
    states: &[S],
    slope: &[S],
    to_value: &mut [S],
    to_gate: &mut [S],
    to_state: &mut [S],
) {
    for row in 0..extents.batch {
        let first = row * extents.channels..(row + 1) * extents.channels;
        let flow = &mut to_state[first.clone()];
        for token in (0..extents.time).rev() {
            let (at, range) = (row * extents.time + token, extents.token(row, token));
            let before = if token == 0 { &state[first.clone()] } else { &states[extents.token(row, token - 1)] };
            for (channel, place) in range.enumerate() {
                let slope = flow[channel] + slope[place];
                to_value[place] = gate[at] * slope;
                to_gate[at] += (value[place] - before[channel]) * slope;
                flow[channel] = slope - gate[at] * slope;
            }
        }
    }
}
