//! Which retrieval each search of compositional attention selects.
//!
//! Compositional attention has searches (query-key pairs: where to attend) and retrievals (value projections: what to read). For each
//! search, every token selects among the retrievals by a softmax. If each search always selects the same retrieval, the layer is ordinary
//! multi-head attention; if the selection changes from token to token, the layer uses its additional freedom.
//!
//! # What it shows
//!
//! For each compositional layer: the mean share of every retrieval in every search; the entropy of the selection at one token, in bits;
//! and how many bits of the selection depend on the search, and how many on the token.
//!
//! # How
//!
//! The shares are those of the forward pass. Let p(r | s, t) be the share of retrieval r in search s at token t, p(r | s) its mean over
//! tokens, p(r) its mean over tokens and searches, and H the entropy. A selection has `H(p(r | s, t))` bits. It depends on the search by
//! `H(p(r)) - mean H(p(r | s))` bits, and on the token by `mean H(p(r | s)) - mean H(p(r | s, t))` bits.
//!
//! # Validation
//!
//! With one retrieval there is nothing to select: all shares are 1 and all bits 0.
//!
//! # Source
//!
//! Mittal et al., *Compositional Attention: disentangling search and retrieval* (arXiv 2110.09419).

use std::cell::RefCell;
use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar, Tensor};
use rung_nn::model::names;
use rung_nn::observer::{ObservedOps, OpInterceptor};
use serde::Serialize;

use super::questions::{QuestionLimits, Questions};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{Chart, HeatCell, HeatMap};
use rung_nn::Network;

/// Default number of prompts.
const PROMPTS: usize = 8;

/// The selections of every compositional layer.
#[derive(Clone, Debug, Serialize)]
pub struct Selections {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// One selection for each compositional layer.
    pub layers: Vec<Selection>,
}

/// The selections of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct Selection {
    /// Name of the layer.
    pub layer: String,
    /// Mean share of every retrieval, search by search.
    pub shares: Vec<Vec<f64>>,
    /// Entropy of the selection at one token, in bits, mean over tokens and searches.
    pub choice_bits: f64,
    /// Bits of the selection that depend on the search.
    pub search_bits: f64,
    /// Bits of the selection that depend on the token.
    pub token_bits: f64,
}

/// Stores the softmax over retrievals of every compositional layer.
struct SelectionObserver {
    /// The layer that is being computed.
    layer: RefCell<Option<usize>>,
    /// Number of searches and of retrievals of every layer; `None` if it is not compositional.
    sizes: Vec<Option<[usize; 2]>>,
    /// For every layer, shares as `[token, search, retrieval]`.
    shares: RefCell<Vec<Vec<f64>>>,
}

impl<S: Scalar> OpInterceptor<S> for SelectionObserver {
    fn enter(&self, name: &str) {
        *self.layer.borrow_mut() = names::layer_index(name);
    }

    fn softmax(&self, ops: &Native<S>, x: &Tensor<S>) -> Tensor<S> {
        let shares = ops.softmax(x);
        let Some(layer) = *self.layer.borrow() else { return shares };
        let layer_sizes = self.sizes.get(layer).copied().flatten();
        if let ([_, _, searches, retrievals], Some(sizes)) = (&ops.shape(x)[..], layer_sizes)
            && [*searches, *retrievals] == sizes
        {
            self.shares.borrow_mut()[layer].extend(ops.values(&shares).into_iter().map(Scalar::to_f64));
        }
        shares
    }
}

/// Measures the selections of every compositional layer.
///
/// # Errors
/// There is no compositional layer, or the task does not fit.
pub fn selections<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Selections, AnalysisError> {
    let searches_and_retrievals = |layer: &rung_theory::stack::Layer| {
        let number = |mixer: &rung_theory::stack::Mixer, option| mixer.number(option).map(|number| number as usize);
        layer.mixers.iter().find_map(|mixer| Some([number(mixer, "searches")?, number(mixer, "retrievals")?]))
    };
    let sizes: Vec<Option<[usize; 2]>> = network.plan.layers.iter().map(searches_and_retrievals).collect();
    if sizes.iter().all(Option::is_none) {
        let (found, expected) = (network.name.clone(), "a network with a compositional layer".to_owned());
        return Err(AnalysisError::NotApplicable { analysis: "selection", found, expected });
    }
    let options = AnalysisOptions { prompts: Some(options.prompts.unwrap_or(PROMPTS)), ..options.clone() };
    let questions = Questions::sample(network, &options, QuestionLimits::NONE)?;
    let shares = RefCell::new(vec![Vec::new(); sizes.len()]);
    let observer = SelectionObserver { layer: RefCell::new(None), sizes: sizes.clone(), shares };
    let ops = ObservedOps { native: Native::new(), interceptor: &observer };
    ops.native.bind_frozen(&network.weights);
    for question_batch in &questions.batches {
        network.model.forward(&ops, &question_batch.batch.tokens, question_batch.rows(), None)?;
    }
    drop(ops);
    let shares = observer.shares.into_inner();
    let layers = layer_names(&network.plan).into_iter().zip(sizes).zip(shares);
    let layers = layers.filter_map(|((layer, size), shares)| Some(summarize(layer, size?, &shares)));
    Ok(Selections { name: network.name.clone(), task: questions.task.clone(), layers: layers.collect() })
}

/// Means and entropies of shares, `[token, search, retrieval]`.
fn summarize(layer: String, [searches, retrievals]: [usize; 2], shares: &[f64]) -> Selection {
    let rows = shares.chunks_exact(retrievals);
    let tokens = (rows.len() / searches).max(1) as f64;
    let mut mean = vec![vec![0.0; retrievals]; searches];
    let mut choice_bits = 0.0;
    for (index, row) in rows.enumerate() {
        mean[index % searches].iter_mut().zip(row).for_each(|(sum, share)| *sum += share / tokens);
        choice_bits += entropy(row) / tokens / searches as f64;
    }
    let bits_per_search = mean.iter().map(|row| entropy(row)).sum::<f64>() / searches as f64;
    let mean_over_searches: Vec<f64> =
        (0..retrievals).map(|column| mean.iter().map(|row| row[column]).sum::<f64>() / searches as f64).collect();
    Selection {
        layer,
        choice_bits,
        search_bits: (entropy(&mean_over_searches) - bits_per_search).max(0.0),
        token_bits: (bits_per_search - choice_bits).max(0.0),
        shares: mean,
    }
}

/// Entropy in bits.
fn entropy(shares: &[f64]) -> f64 {
    shares.iter().filter(|share| **share > 0.0).map(|share| -share * share.log2()).sum::<f64>().max(0.0)
}

impl Selections {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: retrievals that searches select (measured)\n", self.name, self.task);
        for layer in &self.layers {
            let _ = writeln!(text, "\n  {}", layer.layer);
            for (search, shares) in layer.shares.iter().enumerate() {
                let shares = shares.iter().map(|share| format!("{:5.1}%", 100.0 * share)).collect::<Vec<_>>().join(" ");
                let _ = writeln!(text, "    search {search}: {shares}");
            }
            let Selection { choice_bits, search_bits, token_bits, .. } = layer;
            let _ = write!(
                text,
                "    a selection has {choice_bits:.2} bits; it depends on the search by {search_bits:.2}, "
            );
            let _ = writeln!(text, "on the token by {token_bits:.2}");
        }
        text
    }

    /// A heat map of the mean shares for each layer.
    pub fn charts(&self) -> Vec<HeatMap> {
        let chart = |layer: &Selection| {
            let rows: Vec<usize> = (0..layer.shares.len()).collect();
            let columns: Vec<usize> = (0..layer.shares[0].len()).collect();
            let cells =
                layer.shares.iter().map(|row| row.iter().map(|share| HeatCell::new(*share)).collect()).collect();
            let title = format!("Retrievals that searches select: {}, layer {}", self.name, layer.layer);
            HeatMap::new(title, ("search", &rows), ("retrieval", &columns), cells).with_evidence(Evidence::Measured).with_note(
                format!(
                    "Mean shares. A selection has {:.2} bits; it depends on the search by {:.2} and on the token by {:.2} bits.",
                    layer.choice_bits, layer.search_bits, layer.token_bits
                ),
            )
        };
        self.layers.iter().map(chart).collect()
    }
}

/// Runs the analysis.
///
/// # Errors
/// There is no compositional layer, or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let selections = selections(network, options)?;
    let charts = selections.charts().into_iter().map(|chart| Box::new(chart) as Box<dyn Chart>).collect();
    Ok(AnalysisOutput::new(&selections, selections.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::random_network;

    #[test]
    fn shares_sum_to_1_and_a_single_retrieval_has_no_entropy() {
        let measured = selections(
            &random_network::<f32>("compositional{searches=3,retrievals=4} full mla"),
            &AnalysisOptions::default(),
        )
        .unwrap();
        let layer = &measured.layers[0];
        assert_eq!((measured.layers.len(), layer.shares.len(), layer.shares[0].len()), (1, 3, 4));
        assert!(layer.shares.iter().all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-5));
        assert!(layer.choice_bits > 0.1 && layer.choice_bits + layer.search_bits + layer.token_bits <= 2.0 + 1e-9);
        let single =
            selections(&random_network::<f32>("compositional{searches=2,retrievals=1}"), &AnalysisOptions::default())
                .unwrap();
        assert!(single.layers[0].shares.iter().flatten().all(|share| (share - 1.0).abs() < 1e-9));
        assert!(single.layers[0].choice_bits.abs() < 1e-9);
        assert!(selections(&random_network::<f32>("full"), &AnalysisOptions::default()).is_err());
    }

    #[test]
    fn summarize_separates_dependence_on_search_and_on_token() {
        // Each search selects its own retrieval at every token.
        let by_search = summarize(String::new(), [2, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!((by_search.choice_bits, by_search.search_bits, by_search.token_bits), (0.0, 1.0, 0.0));
        // Both searches select the same retrieval, another one at every token.
        let by_token = summarize(String::new(), [2, 2], &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
        assert_eq!((by_token.choice_bits, by_token.search_bits, by_token.token_bits), (0.0, 0.0, 1.0));
    }
}
