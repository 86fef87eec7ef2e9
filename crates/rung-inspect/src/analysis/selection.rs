//! Which search takes which retrieval: what compositional attention selects.
//!
//! Compositional attention has searches (where to look) and retrievals (what to read there), and every token chooses, for each
//! search, among the retrievals. If each search always takes the same one, that is ordinary attention with heads; if the choice
//! changes from token to token, the layer uses what it has more than heads for.
//!
//! # What it shows
//!
//! For each compositional layer: the mean share of every retrieval in every search; the bits of a choice at one token; the bits by
//! which the choice depends on the search, and by which it depends on the token.
//!
//! # How
//!
//! The shares are those of the forward pass itself. With p(r | s, t) the share of retrieval r in search s at token t, and means over
//! tokens and searches written by leaving them out: a choice has `H(p(r | s, t))` bits, it depends on the search by
//! `H(p(r)) - mean H(p(r | s))` bits, and on the token by `mean H(p(r | s)) - mean H(p(r | s, t))` bits.
//!
//! # Known answer
//!
//! With one retrieval there is nothing to choose: all shares are 1 and all bits 0.
//!
//! # Source
//!
//! Mittal et al., *Compositional Attention: disentangling search and retrieval* (arXiv 2110.09419).

use std::cell::RefCell;
use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar, Tensor};
use rung_nn::model::names;
use rung_nn::observer::{ObservedOps, OpObserver};
use serde::Serialize;

use super::questions::Questions;
use super::{AnalysisError, Finding, InstrumentOptions, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{Chart, HeatCell, HeatMap};
use rung_nn::Network;

/// Prompts that are read.
const PROMPTS: usize = 8;

/// Selections of every compositional layer.
#[derive(Clone, Debug, Serialize)]
pub struct Selections {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Compositional layers.
    pub layers: Vec<Selection>,
}

/// What one layer selects.
#[derive(Clone, Debug, Serialize)]
pub struct Selection {
    /// The layer.
    pub layer: String,
    /// Mean share of every retrieval, search by search.
    pub shares: Vec<Vec<f64>>,
    /// Bits of a choice at one token, mean over tokens and searches.
    pub choice_bits: f64,
    /// Bits by which the choice depends on the search.
    pub search_bits: f64,
    /// Bits by which the choice of a search depends on the token.
    pub token_bits: f64,
}

/// Keeps what is chosen among retrievals.
struct SelectionObserver {
    at: RefCell<Option<usize>>,
    sizes: Vec<Option<[usize; 2]>>,
    /// For every layer, shares as `[token, search, retrieval]`.
    found: RefCell<Vec<Vec<f64>>>,
}

impl<S: Scalar> OpObserver<S> for SelectionObserver {
    fn enter(&self, name: &str) {
        *self.at.borrow_mut() = names::layer_index(name);
    }

    fn softmax(&self, ops: &Native<S>, x: &Tensor<S>) -> Tensor<S> {
        let shares = ops.softmax(x);
        let Some(layer) = *self.at.borrow() else { return shares };
        let wanted = self.sizes.get(layer).copied().flatten();
        if let ([_, _, searches, retrievals], Some(sizes)) = (&ops.shape(x)[..], wanted)
            && [*searches, *retrievals] == sizes
        {
            self.found.borrow_mut()[layer].extend(ops.values(&shares).into_iter().map(Scalar::to_f64));
        }
        shares
    }
}

/// Watches choices.
///
/// # Errors
/// There is no compositional layer, or the task does not fit.
pub fn selections<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Selections, AnalysisError> {
    let size = |layer: &rung_theory::stack::Layer| {
        let number = |mixer: &rung_theory::stack::Mixer, option| mixer.number(option).map(|number| number as usize);
        layer.mixers.iter().find_map(|mixer| Some([number(mixer, "searches")?, number(mixer, "retrievals")?]))
    };
    let sizes: Vec<Option<[usize; 2]>> = network.plan.layers.iter().map(size).collect();
    if sizes.iter().all(Option::is_none) {
        let (found, expected) = (network.name.clone(), "a network with a compositional layer".to_owned());
        return Err(AnalysisError::Unfit { instrument: "selection", found, expected });
    }
    let options = InstrumentOptions { prompts: Some(options.prompts.unwrap_or(PROMPTS)), ..options.clone() };
    let questions = Questions::draw(network, &options, (usize::MAX, usize::MAX))?;
    let found = RefCell::new(vec![Vec::new(); sizes.len()]);
    let chooser = SelectionObserver { at: RefCell::new(None), sizes: sizes.clone(), found };
    let ops = ObservedOps { native: Native::new(), watch: &chooser };
    ops.native.bind_frozen(&network.weights);
    for asked in &questions.batches {
        network.model.forward(&ops, &asked.batch.tokens, asked.rows(), None)?;
    }
    drop(ops);
    let found = chooser.found.into_inner();
    let layers = layer_names(&network.plan).into_iter().zip(sizes).zip(found);
    let layers = layers.filter_map(|((layer, size), shares)| Some(read(layer, size?, &shares)));
    Ok(Selections { name: network.name.clone(), task: questions.task.clone(), layers: layers.collect() })
}

/// Statistics of shares, `[token, search, retrieval]`.
fn read(layer: String, [searches, retrievals]: [usize; 2], shares: &[f64]) -> Selection {
    let rows = shares.chunks_exact(retrievals);
    let tokens = (rows.len() / searches).max(1) as f64;
    let mut mean = vec![vec![0.0; retrievals]; searches];
    let mut choice = 0.0;
    for (at, row) in rows.enumerate() {
        mean[at % searches].iter_mut().zip(row).for_each(|(sum, share)| *sum += share / tokens);
        choice += bits(row) / tokens / searches as f64;
    }
    let of_search = mean.iter().map(|row| bits(row)).sum::<f64>() / searches as f64;
    let all: Vec<f64> =
        (0..retrievals).map(|at| mean.iter().map(|row| row[at]).sum::<f64>() / searches as f64).collect();
    Selection {
        layer,
        choice_bits: choice,
        search_bits: (bits(&all) - of_search).max(0.0),
        token_bits: (of_search - choice).max(0.0),
        shares: mean,
    }
}

fn bits(shares: &[f64]) -> f64 {
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
            let _ =
                write!(text, "    a choice has {choice_bits:.2} bits; it depends on the search by {search_bits:.2}, ");
            let _ = writeln!(text, "on the token by {token_bits:.2}");
        }
        text
    }

    /// Shares, layer by layer.
    pub fn charts(&self) -> Vec<HeatMap> {
        let chart = |layer: &Selection| {
            let rows: Vec<usize> = (0..layer.shares.len()).collect();
            let columns: Vec<usize> = (0..layer.shares[0].len()).collect();
            let cells =
                layer.shares.iter().map(|row| row.iter().map(|share| HeatCell::new(*share)).collect()).collect();
            let title = format!("Retrievals that searches select: {}, layer {}", self.name, layer.layer);
            HeatMap::new(title, ("search", &rows), ("retrieval", &columns), cells).known(Evidence::Measured).noted(
                format!(
                    "Mean shares. A choice has {:.2} bits; it depends on the search by {:.2} and on the token by {:.2} bits.",
                    layer.choice_bits, layer.search_bits, layer.token_bits
                ),
            )
        };
        self.layers.iter().map(chart).collect()
    }
}

/// Runs it.
///
/// # Errors
/// There is no compositional layer, or the task does not fit.
pub fn find(network: &Network<f32>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = selections(network, options)?;
    let charts = found.charts().into_iter().map(|chart| Box::new(chart) as Box<dyn Chart>).collect();
    Ok(Finding::of(&found, found.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample;

    #[test]
    fn shares_add_up_and_one_retrieval_is_no_choice() {
        let found = selections(
            &sample::<f32>("compositional{searches=3,retrievals=4} full mla"),
            &InstrumentOptions::default(),
        )
        .unwrap();
        let layer = &found.layers[0];
        assert_eq!((found.layers.len(), layer.shares.len(), layer.shares[0].len()), (1, 3, 4));
        assert!(layer.shares.iter().all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-5));
        assert!(layer.choice_bits > 0.1 && layer.choice_bits + layer.search_bits + layer.token_bits <= 2.0 + 1e-9);
        let single =
            selections(&sample::<f32>("compositional{searches=2,retrievals=1}"), &InstrumentOptions::default())
                .unwrap();
        assert!(single.layers[0].shares.iter().flatten().all(|share| (share - 1.0).abs() < 1e-9));
        assert!(single.layers[0].choice_bits.abs() < 1e-9);
        assert!(selections(&sample::<f32>("full"), &InstrumentOptions::default()).is_err());
    }

    #[test]
    fn bits_tell_searches_from_tokens() {
        // Two searches, each with a retrieval of its own, at every token.
        let own = read(String::new(), [2, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!((own.choice_bits, own.search_bits, own.token_bits), (0.0, 1.0, 0.0));
        // Both change together from token to token.
        let turning = read(String::new(), [2, 2], &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
        assert_eq!((turning.choice_bits, turning.search_bits, turning.token_bits), (0.0, 0.0, 1.0));
    }
}
