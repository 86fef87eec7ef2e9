//! Paths through a stack: sorted by how many mixers they pass, and followed through heads.
//!
//! Through every layer a token's content goes past the mixers or through them. With gates held still the last stream is a sum over all
//! such paths. A factor on what every mixer adds makes it a polynomial in that factor, whose coefficients are the sums of paths of
//! one length; a few replays and interpolation find them, for any mixer.

use rung_engine::Scalar;
use rung_nn::Network;
use rung_nn::trace::{ReaderKind, Trace};
use rung_nn::{MixerIndex, ModelError};
use rung_theory::stack::Mixer;
use rung_theory::task::{below, seeded};
use serde::Serialize;

use super::matrix::{Matrix, dot};
use super::pass::LinearizedPass;

/// Random paths of heads.
const PATHS: usize = 12;

/// The most tokens for which products of weights are formed.
const MOST_TOKENS: usize = 256;

/// The paths of one length.
#[derive(Clone, Debug, Serialize)]
pub struct PathLength {
    /// Mixers on the way.
    pub mixers: usize,
    /// The share of all paths, by count.
    pub counted: f64,
    /// The size of their sum over the size of the last stream.
    pub size: f64,
}

/// Paths by length: how many there are, and how large their sum is.
///
/// # Errors
/// The tokens are none of the model's.
pub fn by_length<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Vec<PathLength>, ModelError> {
    let sums = path_sums(network, tokens)?;
    let (_, recorded) = LinearizedPass::record(network, tokens)?;
    let last =
        recorded.streams.last().map_or(0.0, |stream| stream.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt());
    let mut counts = vec![1.0];
    for layer in &network.plan.layers {
        let heads: f64 = layer.mixers.iter().map(|mixer| heads(mixer) as f64).sum();
        let more: Vec<f64> = counts.iter().map(|count| count * heads).collect();
        counts.push(0.0);
        counts.iter_mut().skip(1).zip(more).for_each(|(count, more)| *count += more);
    }
    let all: f64 = counts.iter().sum();
    let length = |(mixers, sum): (usize, Vec<f64>)| PathLength {
        mixers,
        counted: counts[mixers] / all,
        size: dot(&sum, &sum).sqrt() / last.max(f64::MIN_POSITIVE),
    };
    Ok(sums.into_iter().enumerate().map(length).collect())
}

/// For every number of mixers, the sum of all paths through so many of them.
fn path_sums<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Vec<Vec<f64>>, ModelError> {
    let (pass, recorded) = LinearizedPass::record(network, tokens)?;
    let count = network.model.depth() + 1;
    let node = |at: usize| (std::f64::consts::PI * (at as f64 + 0.5) / count as f64).cos();
    let nodes: Vec<f64> = (0..count).map(node).collect();
    let mut sums = vec![vec![0.0; recorded.streams[0].len()]; count];
    for (at, factor) in nodes.iter().enumerate() {
        let scale = |_: MixerIndex| *factor;
        let (last, _) = pass.replay(None, Some(&scale))?;
        for (sum, weight) in sums.iter_mut().zip(basis(&nodes, at)) {
            sum.iter_mut().zip(&last).for_each(|(sum, value)| *sum += weight * value.to_f64());
        }
    }
    Ok(sums)
}

/// Coefficients, lowest power first, of the polynomial that is one at a node and zero at the others.
fn basis(nodes: &[f64], at: usize) -> Vec<f64> {
    let mut powers = vec![1.0];
    for (_, node) in nodes.iter().enumerate().filter(|(other, _)| *other != at) {
        let scale = 1.0 / (nodes[at] - node);
        let mut next = vec![0.0; powers.len() + 1];
        for (power, value) in powers.iter().enumerate() {
            next[power] -= value * node * scale;
            next[power + 1] += value * scale;
        }
        powers = next;
    }
    powers
}

/// Heads of a mixer, or the searches it has instead; at least one.
pub fn heads(mixer: &Mixer) -> u64 {
    mixer.number("heads").or_else(|| mixer.number("searches")).unwrap_or(1).max(1)
}

/// How far products of weights along random paths of heads are from rank one, mean over paths, after every layer.
///
/// # Errors
/// The tokens are none of the model's.
pub fn products<S: Scalar>(network: &Network<S>, tokens: &[u32], seed: u64) -> Result<Vec<f64>, ModelError> {
    let length = tokens.len() / network.config.input.fields();
    if length > MOST_TOKENS {
        return Ok(Vec::new());
    }
    let trace = Trace::record(network, tokens)?;
    let mut layers = Vec::new();
    for readings in &trace.layers {
        let fitting = readings.iter().filter(|one| one.reads != ReaderKind::Convolution && one.tokens() == length);
        let matrices: Vec<Matrix> = fitting
            .flat_map(|one| (0..one.heads.min(8)).map(move |head| (one, head)))
            .map(|(one, head)| {
                Matrix::new(length, length, (0..length).flat_map(|time| one.weights(time, head)).collect())
            })
            .collect();
        if matrices.is_empty() {
            return Ok(Vec::new());
        }
        layers.push(matrices);
    }
    let (mut rng, mut means) = (seeded(seed), vec![0.0; layers.len()]);
    for _ in 0..PATHS {
        let mut product = Matrix::identity(length);
        for (layer, matrices) in layers.iter().enumerate() {
            product = matrices[below(&mut rng, matrices.len() as u32) as usize].times(&product);
            let size = product.composite_norm();
            if size > 0.0 {
                product.numbers.iter_mut().for_each(|value| *value /= size);
            }
            means[layer] += beyond_rank_one(&product).composite_norm() / PATHS as f64;
        }
    }
    Ok(means)
}

/// A matrix without the best of rank one, found by power iteration.
fn beyond_rank_one(matrix: &Matrix) -> Matrix {
    let flipped = matrix.flipped();
    let mut right: Vec<f64> = (0..matrix.columns).map(|at| 1.0 + (at % 7) as f64 / 7.0).collect();
    let mut left = vec![0.0; matrix.rows];
    for _ in 0..60 {
        left = (0..matrix.rows).map(|row| dot(matrix.row(row), &right)).collect();
        let size = dot(&left, &left).sqrt();
        if size == 0.0 {
            return matrix.clone();
        }
        for value in &mut left {
            *value /= size;
        }
        right = (0..matrix.columns).map(|row| dot(flipped.row(row), &left)).collect();
    }
    let cell = |(at, value): (usize, &f64)| value - left[at / matrix.columns] * right[at % matrix.columns];
    Matrix::new(matrix.rows, matrix.columns, matrix.numbers.iter().enumerate().map(cell).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::questions::Questions;
    use crate::analysis::{InstrumentOptions, sample};

    #[test]
    fn sums_of_paths_by_length_are_those_of_all_subsets() {
        for stack in ["gdn full linear", "mamba2 rwkv7 full+window"] {
            let network = sample::<f64>(stack);
            let questions = Questions::draw(
                &network,
                &InstrumentOptions { prompts: Some(1), ..InstrumentOptions::default() },
                (1, 1),
            )
            .unwrap();
            let tokens = &questions.batches[0].batch.tokens;
            let sums = path_sums(&network, tokens).unwrap();
            let (pass, recorded) = LinearizedPass::record(&network, tokens).unwrap();
            // The pass with only some layers' mixers, for every set of layers.
            let with = |layers: usize| {
                let factor = |place: MixerIndex| f64::from(u8::from(layers >> place.layer & 1 == 1));
                pass.replay(None, Some(&factor)).unwrap().0
            };
            let kept: Vec<Vec<f64>> = (0..8).map(with).collect();
            let mut expected = vec![vec![0.0; sums[0].len()]; 4];
            for set in 0..8_usize {
                for within in (0..8).filter(|within| within & !set == 0) {
                    let sign = if (set ^ within).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                    let target = &mut expected[set.count_ones() as usize];
                    target.iter_mut().zip(&kept[within]).for_each(|(sum, value)| *sum += sign * value);
                }
            }
            let size = recorded.streams[3].iter().map(|value| value.abs()).fold(0.0, f64::max);
            for (found, expected) in sums.iter().zip(&expected) {
                assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9 * size), "{stack}");
            }
            let all = (0..sums[0].len()).map(|at| sums.iter().map(|sum| sum[at]).sum::<f64>());
            assert!(all.zip(&recorded.streams[3]).all(|(a, b)| (a - b).abs() < 1e-9 * size), "{stack}");
        }
    }
}
