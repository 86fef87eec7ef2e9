//! Mixture-of-experts channel mixers: a router picks a few of many small networks for every token.
//!
//! Routing rules differ from family to family in four things: how scores become probabilities, whether a bias takes part in the
//! choice alone, whether only some groups of experts are eligible, and whether the chosen weights are divided by their sum. The choice is
//! made from the scores' values and takes no gradient; the weights do.

use rung_engine::{Ops, Parameter, Scalar};

use super::feed_forward::Dense;
use crate::parts::Linear;

/// How scores become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts, then the choice.
    Softmax,
    /// The choice, then softmax over the chosen.
    SoftmaxOfChosen,
    /// The logistic function of each.
    Sigmoid,
}

/// Only experts of the best groups can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Groups of consecutive experts.
    pub groups: usize,
    /// How many of them are eligible.
    pub chosen: usize,
    /// A group is as good as the sum of so many of its best experts.
    pub best: usize,
}

/// The rule by which experts are picked.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// Experts per token.
    pub chosen: usize,
    /// How scores become weights.
    pub gating: Gating,
    /// Whether the weights of the chosen are divided by their sum.
    pub normed: bool,
    /// Factor on the weights.
    pub scale: f64,
    /// Added to the probabilities for the choice alone.
    pub bias: Option<Parameter>,
    /// Which groups are eligible.
    pub limit: Option<GroupLimit>,
}

/// A mixture of experts.
pub struct Experts {
    /// One score for each expert.
    pub router: Linear,
    /// How they are picked.
    pub routing: Routing,
    /// The experts.
    pub experts: Vec<Dense>,
    /// Projections into the experts' own, narrower input and back from it, where they do not read the stream itself.
    pub latent: Option<(Linear, Linear)>,
    /// A network that every token goes through besides.
    pub shared: Option<Dense>,
    /// The shared network's output is multiplied by the sigmoid of this.
    pub shared_gate: Option<Linear>,
}

impl Experts {
    /// Applies it to the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let shape = ops.shape(x);
        let (rows, width) = (shape.rows(), shape.width());
        let flat = ops.reshape(x, &[rows, width]);
        let (count, chosen) = (self.experts.len(), self.routing.chosen);
        let scores = self.router.apply(ops, &flat);
        let probabilities = match self.routing.gating {
            Gating::Softmax => ops.softmax(&scores),
            Gating::SoftmaxOfChosen => scores.clone(),
            Gating::Sigmoid => ops.sigmoid(&scores),
        };
        let choice = self.choose(ops, &probabilities, rows);
        let cells: Vec<usize> = choice.iter().enumerate().map(|(at, expert)| at / chosen * count + expert).collect();
        let weights = ops.gather_rows(&ops.reshape(&probabilities, &[rows * count, 1]), &cells);
        let mut weights = ops.reshape(&weights, &[rows, chosen]);
        if self.routing.gating == Gating::SoftmaxOfChosen {
            weights = ops.softmax(&weights);
        }
        if self.routing.normed {
            weights = ops.div(&weights, &ops.affine(&ops.sum(&weights, 1), 1.0, 1e-20));
        }
        let weights = ops.reshape(&ops.scale(&weights, self.routing.scale), &[rows, chosen, 1]);
        let inputs = self.latent.as_ref().map_or(flat.clone(), |(down, _)| down.apply(ops, &flat));
        // Every expert sees its tokens together; then each token gathers its results.
        let (mut outputs, mut places, mut next) = (Vec::new(), vec![0; rows * chosen], 0);
        for (number, expert) in self.experts.iter().enumerate() {
            let slots: Vec<usize> = (0..choice.len()).filter(|at| choice[*at] == number).collect();
            if slots.is_empty() {
                continue;
            }
            let tokens: Vec<usize> = slots.iter().map(|at| at / chosen).collect();
            outputs.push(expert.apply(ops, &ops.gather_rows(&inputs, &tokens)));
            for at in slots {
                places[at] = next;
                next += 1;
            }
        }
        let gathered = ops.gather_rows(&ops.concat(&outputs, 0), &places);
        let inner = ops.shape(&inputs).width();
        let weighted = ops.mul(&ops.reshape(&gathered, &[rows, chosen, inner]), &weights);
        let mut sum = ops.reshape(&ops.sum(&weighted, 1), &[rows, inner]);
        if let Some((_, up)) = &self.latent {
            sum = up.apply(ops, &sum);
        }
        if let Some(shared) = &self.shared {
            let mut out = shared.apply(ops, &flat);
            if let Some(gate) = &self.shared_gate {
                out = ops.mul(&ops.sigmoid(&gate.apply(ops, &flat)), &out);
            }
            sum = ops.add(&sum, &out);
        }
        ops.reshape(&sum, &shape)
    }

    /// The experts of every row, the best first.
    fn choose<O: Ops>(&self, ops: &O, probabilities: &O::Tensor, rows: usize) -> Vec<usize> {
        let count = self.experts.len();
        let mut values: Vec<f64> = ops.values(probabilities).into_iter().map(Scalar::to_f64).collect();
        if let Some(bias) = self.routing.bias {
            let bias: Vec<f64> = ops.values(&ops.parameter(bias)).into_iter().map(Scalar::to_f64).collect();
            values.iter_mut().enumerate().for_each(|(at, value)| *value += bias[at % count]);
        }
        let mut choice = Vec::with_capacity(rows * self.routing.chosen);
        for row in values.chunks_mut(count.max(1)) {
            if let Some(limit) = self.routing.limit {
                keep_best_groups(row, limit);
            }
            choice.extend(highest(row).into_iter().take(self.routing.chosen));
        }
        choice
    }
}

/// Places of a row by falling value; the first of equals comes first.
fn highest(row: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order
}

/// Makes all experts outside of the best groups worse than any other.
fn keep_best_groups(row: &mut [f64], limit: GroupLimit) {
    let size = row.len() / limit.groups;
    let worth = |group: &[f64]| highest(group).iter().take(limit.best).map(|at| group[*at]).sum::<f64>();
    let worths: Vec<f64> = row.chunks(size).map(worth).collect();
    for group in highest(&worths).into_iter().skip(limit.chosen) {
        row[group * size..(group + 1) * size].fill(f64::NEG_INFINITY);
    }
}
