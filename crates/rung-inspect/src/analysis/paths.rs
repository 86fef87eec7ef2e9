//! Paths through a stack, grouped by the number of mixers they go through.
//!
//! In every layer the residual stream goes through a mixer or through the skip around it. With frozen gates and attention weights the last
//! residual stream is a sum over all such paths. With every mixer's output scaled by a factor, it is a polynomial in that factor, whose
//! coefficients are the sums of paths of one length. A few replays and polynomial interpolation give the coefficients, for any mixer.

use rung_engine::Scalar;
use rung_nn::Network;
use rung_nn::trace::{MixingKind, Trace};
use rung_nn::{MixerIndex, ModelError};
use rung_theory::stack::Mixer;
use rung_theory::task::{random_below, seeded};
use serde::Serialize;

use super::matrix::{Matrix, dot};
use super::pass::LinearizedPass;

/// Number of random paths of heads.
const RANDOM_PATHS: usize = 12;

/// For longer prompts the products of attention matrices are not computed.
const MAX_TOKENS: usize = 256;

/// The paths of one length.
#[derive(Clone, Debug, Serialize)]
pub struct PathLength {
    /// Number of mixers that the paths go through.
    pub mixers: usize,
    /// Their number as a share of all paths.
    #[serde(rename = "counted")]
    pub share_of_paths: f64,
    /// Norm of their sum, relative to the norm of the last residual stream.
    #[serde(rename = "size")]
    pub relative_norm: f64,
}

/// Paths by length: how many there are, and how large their sum is.
///
/// # Errors
/// The tokens are not in the model's vocabulary.
pub fn paths_by_length<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Vec<PathLength>, ModelError> {
    let sums = path_sums(network, tokens)?;
    let (_, recorded) = LinearizedPass::record(network, tokens)?;
    let residual_norm = recorded
        .residuals
        .last()
        .map_or(0.0, |residual| residual.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt());
    let mut counts = vec![1.0];
    for layer in &network.plan.layers {
        let heads: f64 = layer.mixers.iter().map(|mixer| head_count(mixer) as f64).sum();
        let through_layer: Vec<f64> = counts.iter().map(|count| count * heads).collect();
        counts.push(0.0);
        counts.iter_mut().skip(1).zip(through_layer).for_each(|(count, more)| *count += more);
    }
    let total: f64 = counts.iter().sum();
    let length = |(mixers, sum): (usize, Vec<f64>)| PathLength {
        mixers,
        share_of_paths: counts[mixers] / total,
        relative_norm: dot(&sum, &sum).sqrt() / residual_norm.max(f64::MIN_POSITIVE),
    };
    Ok(sums.into_iter().enumerate().map(length).collect())
}

/// The sum of all paths through n mixers, for every n. The scaled passes are interpolated at Chebyshev nodes.
fn path_sums<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Vec<Vec<f64>>, ModelError> {
    let (pass, recorded) = LinearizedPass::record(network, tokens)?;
    let count = network.model.depth() + 1;
    let node = |index: usize| (std::f64::consts::PI * (index as f64 + 0.5) / count as f64).cos();
    let nodes: Vec<f64> = (0..count).map(node).collect();
    let mut sums = vec![vec![0.0; recorded.residuals[0].len()]; count];
    for (index, factor) in nodes.iter().enumerate() {
        let scale = |_: MixerIndex| *factor;
        let (last_residual, _) = pass.replay(None, Some(&scale))?;
        for (sum, weight) in sums.iter_mut().zip(lagrange_basis(&nodes, index)) {
            sum.iter_mut().zip(&last_residual).for_each(|(sum, value)| *sum += weight * value.to_f64());
        }
    }
    Ok(sums)
}

/// Coefficients, lowest power first, of the Lagrange polynomial that is one at node `index` and zero at the others.
fn lagrange_basis(nodes: &[f64], index: usize) -> Vec<f64> {
    let mut coefficients = vec![1.0];
    for (_, node) in nodes.iter().enumerate().filter(|(other, _)| *other != index) {
        let scale = 1.0 / (nodes[index] - node);
        let mut next = vec![0.0; coefficients.len() + 1];
        for (power, value) in coefficients.iter().enumerate() {
            next[power] -= value * node * scale;
            next[power + 1] += value * scale;
        }
        coefficients = next;
    }
    coefficients
}

/// Number of heads of a mixer (searches, for compositional attention); at least one.
pub fn head_count(mixer: &Mixer) -> u64 {
    mixer.number("heads").or_else(|| mixer.number("searches")).unwrap_or(1).max(1)
}

/// Distance from rank one of products of attention matrices along random paths of heads, after every layer, mean over paths.
///
/// # Errors
/// The tokens are not in the model's vocabulary.
pub fn attention_product_distances<S: Scalar>(
    network: &Network<S>,
    tokens: &[u32],
    seed: u64,
) -> Result<Vec<f64>, ModelError> {
    let length = tokens.len() / network.config.input.field_count();
    if length > MAX_TOKENS {
        return Ok(Vec::new());
    }
    let trace = Trace::record(network, tokens)?;
    let mut layers = Vec::new();
    for ops in &trace.layers {
        let token_mixing = ops.iter().filter(|op| op.kind != MixingKind::Convolution && op.token_count() == length);
        let matrices: Vec<Matrix> = token_mixing
            .flat_map(|op| (0..op.heads.min(8)).map(move |head| (op, head)))
            .map(|(op, head)| {
                Matrix::new(length, length, (0..length).flat_map(|time| op.weights(time, head)).collect())
            })
            .collect();
        if matrices.is_empty() {
            return Ok(Vec::new());
        }
        layers.push(matrices);
    }
    let (mut rng, mut means) = (seeded(seed), vec![0.0; layers.len()]);
    for _ in 0..RANDOM_PATHS {
        let mut product = Matrix::identity(length);
        for (layer, matrices) in layers.iter().enumerate() {
            product = matrices[random_below(&mut rng, matrices.len() as u32) as usize].matmul(&product);
            let norm = product.composite_norm();
            if norm > 0.0 {
                product.entries.iter_mut().for_each(|value| *value /= norm);
            }
            means[layer] += subtract_rank_one(&product).composite_norm() / RANDOM_PATHS as f64;
        }
    }
    Ok(means)
}

/// A matrix minus its best approximation of rank one, which power iteration finds.
fn subtract_rank_one(matrix: &Matrix) -> Matrix {
    let transpose = matrix.transposed();
    let mut right: Vec<f64> = (0..matrix.columns).map(|column| 1.0 + (column % 7) as f64 / 7.0).collect();
    let mut left = vec![0.0; matrix.rows];
    for _ in 0..60 {
        left = (0..matrix.rows).map(|row| dot(matrix.row(row), &right)).collect();
        let norm = dot(&left, &left).sqrt();
        if norm == 0.0 {
            return matrix.clone();
        }
        for value in &mut left {
            *value /= norm;
        }
        right = (0..matrix.columns).map(|row| dot(transpose.row(row), &left)).collect();
    }
    let residual_entry =
        |(index, value): (usize, &f64)| value - left[index / matrix.columns] * right[index % matrix.columns];
    Matrix::new(matrix.rows, matrix.columns, matrix.entries.iter().enumerate().map(residual_entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::questions::{QuestionLimits, Questions};
    use crate::analysis::{AnalysisOptions, random_network};

    #[test]
    fn path_sums_agree_with_passes_through_every_subset_of_layers() {
        for stack in ["gdn full linear", "mamba2 rwkv7 full+window"] {
            let network = random_network::<f64>(stack);
            let questions = Questions::sample(
                &network,
                &AnalysisOptions { prompts: Some(1), ..AnalysisOptions::default() },
                QuestionLimits::NONE,
            )
            .unwrap();
            let tokens = &questions.batches[0].batch.tokens;
            let sums = path_sums(&network, tokens).unwrap();
            let (pass, recorded) = LinearizedPass::record(&network, tokens).unwrap();
            // The last residual stream with only the mixers of some layers, for every set of layers as a bit mask.
            let pass_through = |layers: usize| {
                let factor = |mixer: MixerIndex| f64::from(u8::from(layers >> mixer.layer & 1 == 1));
                pass.replay(None, Some(&factor)).unwrap().0
            };
            let residuals: Vec<Vec<f64>> = (0..8).map(pass_through).collect();
            // Inclusion and exclusion gives the paths through exactly the layers of a set.
            let mut expected = vec![vec![0.0; sums[0].len()]; 4];
            for set in 0..8_usize {
                for subset in (0..8).filter(|subset| subset & !set == 0) {
                    let sign = if (set ^ subset).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                    let target = &mut expected[set.count_ones() as usize];
                    target.iter_mut().zip(&residuals[subset]).for_each(|(sum, value)| *sum += sign * value);
                }
            }
            let largest = recorded.residuals[3].iter().map(|value| value.abs()).fold(0.0, f64::max);
            for (sum, expected) in sums.iter().zip(&expected) {
                assert!(sum.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9 * largest), "{stack}");
            }
            let totals = (0..sums[0].len()).map(|index| sums.iter().map(|sum| sum[index]).sum::<f64>());
            assert!(totals.zip(&recorded.residuals[3]).all(|(a, b)| (a - b).abs() < 1e-9 * largest), "{stack}");
        }
    }
}
