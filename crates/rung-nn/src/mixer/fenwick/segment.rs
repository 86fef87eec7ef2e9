//! A segment of `2^k` chunks that starts at a multiple of its length, for all levels at once.
//!
//! Inside a chunk every level is one masked product: with the chunk's matrix `A` of outputs by values, in which decay and erasure are
//! included, the output is `(A . Lambda) V`, where `Lambda` has the weight of the level of each pair of tokens.
//!
//! A chunk also acts on a state that it is given: it turns the state `S` into `F S + R V`, and adds `Y S` to its outputs. Two neighbours
//! are one chunk of twice the length: its queries are `Y` of the left one and `Y F_left` of the right one, its map is `F_right F_left`,
//! and its state `F_right S_left + S_right`. What the right one reads from the left one, `Y S_left`, is one level. So a tree of merges
//! computes all levels beyond the chunk, each with a few products over the whole segment.
//!
//! `A` and `R` are the outputs and the last state of the ordinary recurrence over each chunk, from an empty state and with unit vectors as
//! values. For the delta rule `Y = Q - A K` and `F = e^b - R K`, where `Q` and `K` are decayed from the chunk's start and `b` is the decay of
//! the chunk; without it `Y = Q`, and `F` is the number `e^b`. Then queries stay as they are, and only a factor of each is changed.

use rung_engine::composed::heads_first;
use rung_engine::{Decay, Ops, Recurrence, Scalar};

use super::{FenwickMemory, RecurrenceInputs, bit_length, reads_level};

/// The most tokens per chunk. Longer chunks cost more than the levels that they save.
const MAX_CHUNK: usize = 32;

/// What a block of tokens does with a state: `[batch * heads, blocks, ..]`. At first a block is a chunk.
struct Blocks<T> {
    /// `Y`: the queries with which the tokens read from a state before the block, `[.., tokens, key]`, without their factor.
    query: T,
    /// The factor of each query where `F` is a number, `[.., tokens, 1]`.
    factor: Option<T>,
    /// `F`: the map from the state before the block to the state after it, `[.., key, key]`, or `[.., 1, 1]` if it is a number.
    map: T,
    /// The state after the block, if it was empty before: `[.., key, value]`.
    state: T,
}

impl FenwickMemory {
    /// Tokens per chunk of a segment: a power of two.
    fn segment_chunk(&self) -> usize {
        1 << (bit_length(self.recurrence.chunk.clamp(1, MAX_CHUNK)) - 1)
    }

    /// How many of the next tokens to run at once from a position, and whether they are a segment.
    pub(super) fn next_span(&self, position: usize, remaining: usize) -> (usize, bool) {
        if self.recurrence.rounding.is_some() {
            // States are merged and rounded at every token.
            return (1, false);
        }
        let shortest = 2 * self.segment_chunk();
        let aligned = if position == 0 { usize::MAX } else { 1 << position.trailing_zeros() };
        let segment = aligned.min(1 << (bit_length(remaining) - 1));
        if segment >= shortest { (segment, true) } else { (remaining.min(shortest - position % shortest), false) }
    }

    /// Runs a segment, as [`forward_span`](Self::forward_span) does for any span.
    pub(super) fn forward_segment<O: Ops>(
        &self,
        ops: &O,
        start: usize,
        weights: &O::Tensor,
        inputs: &RecurrenceInputs<'_, O::Tensor>,
        level_states: &[O::Tensor],
    ) -> (O::Tensor, Vec<O::Tensor>) {
        let [batch, time, heads, width] = ops.shape(inputs.value)[..] else { panic!("{}", ops.shape(inputs.value)) };
        let (chunk, key_width) = (self.segment_chunk(), ops.shape(inputs.key)[3]);
        let (last, rows) = (start + time - 1, batch * heads);
        let state_shape = [batch, heads, key_width, width];
        // The states of levels inside a chunk are those of the last chunk alone.
        let mut next = self.last_chunk_states(ops, weights, inputs, chunk);
        let (mut out, mut blocks) = self.forward_chunks(ops, weights, inputs, chunk);
        let level_weights = heads_first(ops, weights, heads);
        let weight_of = |level: usize| {
            let index = level.min(self.levels - 1);
            ops.slice(&level_weights, 3, index..index + 1)
        };
        let mut length = chunk;
        while length < time {
            let pairs = time / (2 * length);
            let side = |x: &O::Tensor, side: usize| {
                let shape = ops.shape(x);
                let (height, width) = (shape[2], shape[3]);
                let x = ops.reshape(x, &[rows, pairs, 2, height, width]);
                ops.reshape(&ops.slice(&x, 2, side..side + 1), &[rows, pairs, height, width])
            };
            let right_query = side(&blocks.query, 1);
            let [left_map, right_map] = [0, 1].map(|index| side(&blocks.map, index));
            let [left_state, right_state] = [0, 1].map(|index| side(&blocks.state, index));
            let [left_out, right_out] =
                [0, 1].map(|index| side(&ops.reshape(&out, &[rows, 2 * pairs, length, width]), index));
            let level = next.len();
            let weight = side(&ops.reshape(&weight_of(level), &[rows, 2 * pairs, length, 1]), 1);
            let right_factor = blocks.factor.as_ref().map(|factor| side(factor, 1));
            let read = read_state(ops, [&weight, &right_query, &left_state], right_factor.as_ref());
            out = ops.concat(&[left_out, ops.add(&right_out, &read)], 2);
            let moved_state = apply_map(ops, &right_map, &left_state);
            let last_state = ops.slice(&moved_state, 1, pairs - 1..pairs);
            next.push(ops.reshape(&last_state, &state_shape));
            let join = |left: &O::Tensor, right: O::Tensor| ops.concat(&[left.clone(), right], 2);
            let (query, factor) = match (&blocks.factor, right_factor) {
                (Some(factor), Some(right)) => {
                    let query = ops.reshape(&blocks.query, &[rows, pairs, 2 * length, key_width]);
                    (query, Some(join(&side(factor, 0), ops.mul(&right, &left_map))))
                }
                _ => (join(&side(&blocks.query, 0), ops.matmul(&right_query, &left_map)), None),
            };
            blocks = Blocks {
                query,
                factor,
                map: apply_map(ops, &right_map, &left_map),
                state: ops.add(&moved_state, &right_state),
            };
            length *= 2;
        }
        let mut out = ops.reshape(&out, &[rows, 1, time, width]);
        for level in next.len()..=bit_length(last) {
            let before = self.initial_state(ops, start, level, level_states).filter(|_| reads_level(start, level));
            let Some(before) = before else {
                next.push(ops.zeros(&state_shape));
                continue;
            };
            let before = ops.reshape(&before, &[rows, 1, key_width, width]);
            let weight = ops.reshape(&weight_of(level), &[rows, 1, time, 1]);
            let read = read_state(ops, [&weight, &blocks.query, &before], blocks.factor.as_ref());
            out = ops.add(&out, &read);
            next.push(ops.reshape(&apply_map(ops, &blocks.map, &before), &state_shape));
        }
        (ops.permute(&ops.reshape(&out, &[batch, heads, time, width]), &[0, 2, 1, 3]), next)
    }

    /// The states of the levels inside a chunk after the last chunk, which starts from none.
    fn last_chunk_states<O: Ops>(
        &self,
        ops: &O,
        weights: &O::Tensor,
        inputs: &RecurrenceInputs<'_, O::Tensor>,
        chunk: usize,
    ) -> Vec<O::Tensor> {
        let time = ops.shape(inputs.value)[1];
        let last = |x: &O::Tensor| ops.slice(x, 1, time - chunk..time);
        let [query, key, value, decay] = [inputs.query, inputs.key, inputs.value, inputs.decay].map(last);
        let beta = inputs.beta.map(last);
        let inputs = RecurrenceInputs { query: &query, key: &key, value: &value, decay: &decay, beta: beta.as_ref() };
        // A position that is a multiple of the chunk has the levels of position 0.
        self.forward_span(ops, 0, &last(weights), &inputs, &[]).1
    }

    /// The outputs of the levels inside each chunk, `[batch * heads, chunks, tokens, value]`, and the chunks as blocks.
    fn forward_chunks<O: Ops>(
        &self,
        ops: &O,
        weights: &O::Tensor,
        inputs: &RecurrenceInputs<'_, O::Tensor>,
        chunk: usize,
    ) -> (O::Tensor, Blocks<O::Tensor>) {
        let [batch, time, heads, _] = ops.shape(inputs.value)[..] else { panic!("{}", ops.shape(inputs.value)) };
        let (rows, chunks) = (batch * heads, time / chunk);
        let as_sequences = |x: &O::Tensor| ops.reshape(x, &[&[batch * chunks, chunk], &ops.shape(x)[2..]].concat());
        let by_head = |x: &O::Tensor| {
            let x = heads_first(ops, x, heads);
            ops.reshape(&x, &[rows, chunks, chunk, ops.shape(&x)[3]])
        };
        let identity = square_from(ops, chunk, |row, column| row == column);
        let unit_vectors =
            ops.broadcast(&ops.reshape(&identity, &[chunk, 1, chunk]), &[batch * chunks, chunk, heads, chunk]);
        let (matrix, write) = ops.recurrence(&Recurrence {
            query: &as_sequences(inputs.query),
            key: &as_sequences(inputs.key),
            value: &unit_vectors,
            decay: Decay::Scalar(&as_sequences(inputs.decay)),
            beta: inputs.beta.map(as_sequences).as_ref(),
            state: None,
            chunk,
            rounding: None,
        });
        let key_width = ops.shape(&write)[2];
        let matrix = by_head(&ops.reshape(&matrix, &[batch, time, heads, chunk]));
        let write = ops.reshape(&write, &[batch, chunks, heads, key_width * chunk]);
        let write = ops.reshape(&ops.permute(&write, &[0, 2, 1, 3]), &[rows, chunks, key_width, chunk]);

        let value = by_head(inputs.value);
        let pair_weights = self.pair_weights(ops, weights, chunk);
        let out = ops.matmul(&ops.mul(&pair_weights, &matrix), &value);
        let decay = by_head(&ops.reshape(inputs.decay, &[batch, time, heads, 1]));
        let factors = ops.exp(&ops.cumulative_sum(&decay, 2));
        let last_factor = ops.slice(&factors, 2, chunk - 1..chunk);
        let (query, state) = (by_head(inputs.query), ops.matmul(&write, &value));
        if inputs.beta.is_none() {
            return (out, Blocks { query, factor: Some(factors), map: last_factor, state });
        }
        let key = ops.mul(&factors, &by_head(inputs.key));
        let query = ops.sub(&ops.mul(&factors, &query), &ops.matmul(&matrix, &key));
        let identity = square_from(ops, key_width, |row, column| row == column);
        let map = ops.sub(&ops.mul(&last_factor, &identity), &ops.matmul(&write, &key));
        (out, Blocks { query, factor: None, map, state })
    }

    /// The weight of the level of every pair of tokens of a chunk, `[batch * heads, chunks, tokens, tokens]`.
    fn pair_weights<O: Ops>(&self, ops: &O, weights: &O::Tensor, chunk: usize) -> O::Tensor {
        let [batch, time, heads, _] = ops.shape(weights)[..] else { panic!("{}", ops.shape(weights)) };
        let (chunks, levels) = (time / chunk, self.levels.min(bit_length(chunk - 1) + 1));
        let weights = ops.reshape(&ops.slice(weights, 3, 0..levels), &[batch, chunks, chunk, heads, levels]);
        let weights = ops.reshape(&ops.permute(&weights, &[2, 0, 3, 1, 4]), &[chunk, batch * heads * chunks, levels]);
        // For each token of a chunk, which other tokens are at which of its levels.
        let tokens = (0..chunk).flat_map(|token| (0..levels).map(move |level| (token, level)));
        let members: Vec<O::Scalar> = tokens
            .flat_map(|(token, level)| (0..chunk).map(move |other| bit_length(token ^ other).min(levels - 1) == level))
            .map(indicator)
            .collect();
        let weights = ops.matmul(&weights, &ops.constant(&[chunk, levels, chunk], &members));
        let weights = ops.permute(&ops.reshape(&weights, &[chunk, batch * heads, chunks, chunk]), &[1, 2, 0, 3]);
        ops.reshape(&weights, &[batch * heads, chunks, chunk, chunk])
    }
}

/// One if the condition holds, otherwise zero.
fn indicator<S: Scalar>(condition: bool) -> S {
    if condition { S::ONE } else { S::ZERO }
}

/// A constant square matrix of zeros and ones.
fn square_from<O: Ops>(ops: &O, size: usize, is_one: impl Fn(usize, usize) -> bool) -> O::Tensor {
    let values: Vec<O::Scalar> = (0..size * size).map(|index| indicator(is_one(index / size, index % size))).collect();
    ops.constant(&[size, size], &values)
}

/// What queries, which may have a factor, read from a state, times the weight of its level.
fn read_state<O: Ops>(ops: &O, [weight, query, state]: [&O::Tensor; 3], factor: Option<&O::Tensor>) -> O::Tensor {
    let weight = factor.map_or_else(|| weight.clone(), |factor| ops.mul(weight, factor));
    ops.mul(&weight, &ops.matmul(query, state))
}

/// The map of a block, a matrix or a number, applied to a matrix.
fn apply_map<O: Ops>(ops: &O, map: &O::Tensor, x: &O::Tensor) -> O::Tensor {
    if ops.shape(map)[2..] == [1, 1] { ops.mul(map, x) } else { ops.matmul(map, x) }
}

#[cfg(test)]
mod tests {
    use rung_engine::{Native, Parameters};
    use rung_theory::task::seeded;

    use super::*;
    use crate::mixer::cases::{settings, uniform_sample, weighted_sum};
    use crate::param_builder::ParamBuilder;
    use crate::position::Positions;

    const BATCH: usize = 2;
    const HEADS: usize = 4;

    /// The results, and the gradient of a weighted sum of them, of a segment after a span before it.
    fn run(start: usize, time: usize, with_beta: bool, is_segment: bool) -> (Vec<f64>, Vec<f64>) {
        let (mut weights, mut rng) = (Parameters::<f64>::new(), seeded(3));
        let memory =
            FenwickMemory::init(&mut ParamBuilder::new(settings(Positions::None, 4), &mut weights, &mut rng), HEADS, 5);
        let length = start + time;
        let shapes = [vec![2, 3], vec![2, 3], vec![HEADS, 5], vec![HEADS], vec![HEADS], vec![HEADS, 5]];
        let ids = shapes.map(|shape| {
            let shape = [vec![BATCH, length], shape].concat();
            let values = (0..shape.iter().product()).map(|_| uniform_sample(&mut rng)).collect();
            weights.add(format!("input of {shape:?}, {}", weights.size()), &shape, values).id()
        });
        let ops = Native::new();
        ops.bind(&weights);
        let [query, key, value, decay, beta, level_weights] = ids.map(|id| ops.parameter(id));
        let (key, decay) = (ops.l2_norm(&key, 1e-6), ops.neg(&ops.softplus(&decay)));
        let beta = ops.scale(&ops.sigmoid(&beta), 2.0);
        let forward = |range: std::ops::Range<usize>, level_states: &[_], is_segment: bool| {
            let span = |x: &_| ops.slice(x, 1, range.clone());
            let [query, key, value, decay, beta] = [&query, &key, &value, &decay, &beta].map(span);
            let inputs = RecurrenceInputs {
                query: &query,
                key: &key,
                value: &value,
                decay: &decay,
                beta: with_beta.then_some(&beta),
            };
            let forward = if is_segment { FenwickMemory::forward_segment } else { FenwickMemory::forward_span };
            forward(&memory, &ops, range.start, &span(&level_weights), &inputs, level_states)
        };
        let before = if start == 0 { Vec::new() } else { forward(0..start, &[], false).1 };
        let (out, states) = forward(start..length, &before, is_segment);
        let results: Vec<_> = std::iter::once(out).chain(states).collect();
        let values = results.iter().flat_map(|x| ops.values(x)).collect();
        ops.backward(&weighted_sum(&ops, &results));
        (values, ops.gradient())
    }

    #[test]
    fn a_segment_agrees_with_the_levels_one_after_another() {
        for (start, time) in [(0, 8), (0, 64), (8, 8), (16, 16), (24, 8), (48, 16)] {
            for with_beta in [false, true] {
                let (actual, expected) = (run(start, time, with_beta, true), run(start, time, with_beta, false));
                for (actual, expected) in [(actual.0, expected.0), (actual.1, expected.1)] {
                    assert_eq!(actual.len(), expected.len());
                    let size = expected.iter().fold(1e-3_f64, |size, x| size.max(x.abs()));
                    for (index, (a, b)) in actual.iter().zip(&expected).enumerate() {
                        assert!((a - b).abs() <= 1e-10 * size, "{start}, {time}, {with_beta}: {index} is {a}, not {b}");
                    }
                }
            }
        }
    }
}
