//! The forward pass of recurrences whose values have one channel, token by token.
//!
//! With one value channel a state is a vector, and scores between the tokens of a chunk cost as much as the state itself, so chunks
//! save nothing. Each token decays, writes and reads the states of all heads in one loop: an exponential and two products for
//! each number of the state, which stays in the L1 cache while the decays are streamed from memory.

use super::heads::Extents;
use super::recurrence::Inputs;
use crate::scalar::Scalar;

/// Numbers per step of the inner loop, for vector code.
const LANES: usize = 16;

vectorised! {
    /// One token of all heads that share a key and a query: `state = state e^decay + key value`, `out = query . state`.
    fn scan_token<S>(query: &[S], key: &[S], value: &[S], decay: &[S], state: &mut [S], out: &mut [S]) {
        let width = key.len();
        let heads = decay.chunks_exact(width).zip(state.chunks_exact_mut(width));
        for ((decay, state), (&value, out)) in heads.zip(value.iter().zip(out)) {
            let mut sums = [S::ZERO; LANES];
            let (decay_chunks, decay_remainder) = decay.as_chunks::<LANES>();
            let (state_chunks, state_remainder) = state.as_chunks_mut::<LANES>();
            let (key_chunks, key_remainder) = key.as_chunks::<LANES>();
            let (query_chunks, query_remainder) = query.as_chunks::<LANES>();
            let chunks = decay_chunks.iter().zip(state_chunks).zip(key_chunks.iter().zip(query_chunks));
            for ((decay, state), (key, query)) in chunks {
                for lane in 0..LANES {
                    state[lane] = state[lane].mul_add(decay[lane].exp(), key[lane] * value);
                    sums[lane] = state[lane].mul_add(query[lane], sums[lane]);
                }
            }
            let remainder = decay_remainder.iter().zip(state_remainder).zip(key_remainder.iter().zip(query_remainder));
            for (((&decay, state), (&key, &query)), sum) in remainder.zip(&mut sums) {
                *state = state.mul_add(decay.exp(), key * value);
                *sum = state.mul_add(query, *sum);
            }
            *out = sums.iter().fold(S::ZERO, |sum, &lane| sum + lane);
        }
    }
}

/// Computes the outputs of all tokens, the states after the last token, and the states before each cell: before every `chunk`
/// tokens, as [`recurrence`](super::recurrence) stores them. `last_states` holds the initial states at the start.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    (out, last_states, cell_states): (&mut [S], &mut [S], &mut [S]),
) {
    let Extents { time, heads, key_heads, key_width, chunk, .. } = extents;
    let (heads_per_key, cell_count) = (heads / key_heads, extents.cell_count());
    let row_range = |row: usize, width: usize| row * width..(row + 1) * width;
    for (sequence, states) in last_states.chunks_exact_mut(heads * key_width).enumerate() {
        for time_index in 0..time {
            if time_index % chunk == 0 {
                for (head, state) in states.chunks_exact(key_width).enumerate() {
                    let cell = (sequence * heads + head) * cell_count + time_index / chunk;
                    cell_states[row_range(cell, key_width)].copy_from_slice(state);
                }
            }
            let token = sequence * time + time_index;
            for (group, states) in states.chunks_exact_mut(heads_per_key * key_width).enumerate() {
                let key_head = token * key_heads + group;
                let head_range = row_range(key_head, heads_per_key);
                scan_token(
                    &inputs.query[row_range(key_head, key_width)],
                    &inputs.key[row_range(key_head, key_width)],
                    &inputs.value[head_range.clone()],
                    &inputs.decay[head_range.start * key_width..head_range.end * key_width],
                    states,
                    &mut out[head_range],
                );
            }
        }
    }
}
