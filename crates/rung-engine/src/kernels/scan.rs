//! The forward pass of recurrences whose values are single numbers, a token at a time.
//!
//! With a value of one number a state is a vector, and scores between the tokens of a chunk cost as much as the state itself; there is
//! nothing to gain from chunks. So each token fades, writes and reads the states of all heads in one sweep: an exponential and
//! two products for each number of the state, which stays in the nearest cache while the decays stream by.

use super::recurrence::{Extents, Inputs};
use crate::scalar::Scalar;

/// Numbers that are worked on side by side.
const LANES: usize = 16;

vectorised! {
    /// One token of heads that share a key and a query: `state = state e^decay + key value`, `out = query . state`.
    fn sweep<S>(query: &[S], key: &[S], value: &[S], decay: &[S], state: &mut [S], out: &mut [S]) {
        let width = key.len();
        let heads = decay.chunks_exact(width).zip(state.chunks_exact_mut(width));
        for ((decay, state), (&value, out)) in heads.zip(value.iter().zip(out)) {
            let mut sums = [S::ZERO; LANES];
            let (decays, decay_rest) = decay.as_chunks::<LANES>();
            let (states, state_rest) = state.as_chunks_mut::<LANES>();
            let (keys, key_rest) = key.as_chunks::<LANES>();
            let (queries, query_rest) = query.as_chunks::<LANES>();
            for ((decay, state), (key, query)) in decays.iter().zip(states).zip(keys.iter().zip(queries)) {
                for lane in 0..LANES {
                    state[lane] = state[lane].mul_add(decay[lane].exp(), key[lane] * value);
                    sums[lane] = state[lane].mul_add(query[lane], sums[lane]);
                }
            }
            let rest = decay_rest.iter().zip(state_rest).zip(key_rest.iter().zip(query_rest));
            for (((&decay, state), (&key, &query)), sum) in rest.zip(&mut sums) {
                *state = state.mul_add(decay.exp(), key * value);
                *sum = state.mul_add(query, *sum);
            }
            *out = sums.iter().fold(S::ZERO, |sum, &lane| sum + lane);
        }
    }
}

/// Outputs of all tokens, the last states, and the states at the start of each grid cell.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    (out, last, kept): (&mut [S], &mut [S], &mut [S]),
) {
    let Extents { time, heads, key_heads, key_width, chunk, .. } = extents;
    let (shared, cells) = (heads / key_heads, extents.cells());
    let rows = |token: usize, count: usize| token * count..(token + 1) * count;
    for (sequence, states) in last.chunks_exact_mut(heads * key_width).enumerate() {
        for now in 0..time {
            if now % chunk == 0 {
                for (head, state) in states.chunks_exact(key_width).enumerate() {
                    kept[rows((sequence * heads + head) * cells + now / chunk, key_width)].copy_from_slice(state);
                }
            }
            let token = sequence * time + now;
            for (group, states) in states.chunks_exact_mut(shared * key_width).enumerate() {
                let (head, key_head) = (rows(token * key_heads + group, shared), token * key_heads + group);
                sweep(
                    &inputs.query[rows(key_head, key_width)],
                    &inputs.key[rows(key_head, key_width)],
                    &inputs.value[head.clone()],
                    &inputs.decay[head.start * key_width..head.end * key_width],
                    states,
                    &mut out[head],
                );
            }
        }
    }
}
