//! Mixture-of-experts feed-forward networks: a router chooses a few of many small networks for every token.
//!
//! Routing rules differ between model families: how router logits become scores, whether a bias is added for the choice only, whether
//! only some groups of experts are eligible, and whether the chosen weights are divided by their sum. The weights have a gradient, the
//! choice has none.

use rung_engine::{Ops, Parameter, Scalar};

use super::feed_forward::Mlp;
use crate::submodules::Linear;

/// How router logits become the scores by which experts are chosen, and the weights of the chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts, before the choice.
    Softmax,
    /// Softmax over the chosen experts, after the choice.
    SoftmaxOfTopK,
    /// Sigmoid of each logit.
    Sigmoid,
}

/// Restricts the choice to experts of the best groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Number of groups of consecutive experts.
    pub groups: usize,
    /// Number of eligible groups.
    pub top_groups: usize,
    /// The score of a group is the sum of this many of its best experts.
    pub group_score_experts: usize,
}

/// How experts are chosen and weighted.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    /// Number of experts per token.
    pub top_k: usize,
    /// How router logits become expert weights.
    pub gating: Gating,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalized: bool,
    /// Factor on the weights.
    pub scale: f64,
    /// Added to the scores for the choice only.
    pub bias: Option<Parameter>,
    /// Limits the eligible groups.
    pub group_limit: Option<GroupLimit>,
}

impl Routing {
    /// Weights as the gating gives them: not normalized, scaled or biased, and without a limit on groups.
    pub fn new(top_k: usize, gating: Gating) -> Self {
        Self { top_k, gating, normalized: false, scale: 1.0, bias: None, group_limit: None }
    }
}

/// A mixture of experts.
pub struct Experts {
    /// Projection to one logit per expert.
    pub router: Linear,
    /// How experts are chosen and weighted.
    pub routing: Routing,
    /// The networks of the experts.
    pub experts: Vec<Mlp>,
    /// Down- and up-projection around all experts, if they work on a narrower input.
    pub latent: Option<(Linear, Linear)>,
    /// A shared expert, which all tokens use and whose output is added.
    pub shared: Option<Mlp>,
    /// The shared expert's output is multiplied by the sigmoid of this.
    pub shared_gate: Option<Linear>,
}

impl Experts {
    /// Experts that read the full width, without a shared expert.
    pub fn new(router: Linear, routing: Routing, experts: Vec<Mlp>) -> Self {
        Self { router, routing, experts, latent: None, shared: None, shared_gate: None }
    }

    /// Applies it to the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let shape = ops.shape(x);
        let (rows, width) = (shape.rows(), shape.width());
        let flat = ops.reshape(x, &[rows, width]);
        let (expert_count, top_k) = (self.experts.len(), self.routing.top_k);
        let router_logits = self.router.apply(ops, &flat);
        let scores = match self.routing.gating {
            Gating::Softmax => ops.softmax(&router_logits),
            Gating::SoftmaxOfTopK => router_logits.clone(),
            Gating::Sigmoid => ops.sigmoid(&router_logits),
        };
        let choice = self.choose(ops, &scores, rows);
        let weight_indices: Vec<usize> =
            choice.iter().enumerate().map(|(assignment, expert)| assignment / top_k * expert_count + expert).collect();
        let weights = ops.gather_rows(&ops.reshape(&scores, &[rows * expert_count, 1]), &weight_indices);
        let mut weights = ops.reshape(&weights, &[rows, top_k]);
        if self.routing.gating == Gating::SoftmaxOfTopK {
            weights = ops.softmax(&weights);
        }
        if self.routing.normalized {
            weights = ops.div(&weights, &ops.affine(&ops.sum(&weights, 1), 1.0, 1e-20));
        }
        let weights = ops.reshape(&ops.scale(&weights, self.routing.scale), &[rows, top_k, 1]);
        let inputs = self.latent.as_ref().map_or(flat.clone(), |(down, _)| down.apply(ops, &flat));
        // Every expert runs on all its tokens at once; then each token gathers its results.
        let (mut outputs, mut output_rows, mut next_row) = (Vec::new(), vec![0; rows * top_k], 0);
        for (index, expert) in self.experts.iter().enumerate() {
            let assignments: Vec<usize> = (0..choice.len()).filter(|assignment| choice[*assignment] == index).collect();
            if assignments.is_empty() {
                continue;
            }
            let tokens: Vec<usize> = assignments.iter().map(|assignment| assignment / top_k).collect();
            outputs.push(expert.apply(ops, &ops.gather_rows(&inputs, &tokens)));
            for assignment in assignments {
                output_rows[assignment] = next_row;
                next_row += 1;
            }
        }
        let gathered = ops.gather_rows(&ops.concat(&outputs, 0), &output_rows);
        let expert_width = ops.shape(&inputs).width();
        let weighted = ops.mul(&ops.reshape(&gathered, &[rows, top_k, expert_width]), &weights);
        let mut sum = ops.reshape(&ops.sum(&weighted, 1), &[rows, expert_width]);
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

    /// The chosen experts of every row, the best first.
    fn choose<O: Ops>(&self, ops: &O, scores: &O::Tensor, rows: usize) -> Vec<usize> {
        let count = self.experts.len();
        let mut scores: Vec<f64> = ops.values(scores).into_iter().map(Scalar::to_f64).collect();
        if let Some(bias) = self.routing.bias {
            let bias: Vec<f64> = ops.values(&ops.parameter(bias)).into_iter().map(Scalar::to_f64).collect();
            scores.iter_mut().enumerate().for_each(|(index, score)| *score += bias[index % count]);
        }
        let mut choice = Vec::with_capacity(rows * self.routing.top_k);
        for row in scores.chunks_mut(count.max(1)) {
            if let Some(limit) = self.routing.group_limit {
                keep_best_groups(row, limit);
            }
            choice.extend(argsort_descending(row).into_iter().take(self.routing.top_k));
        }
        choice
    }
}

/// Indices of a row in descending order of values; of equal values the first comes first.
fn argsort_descending(row: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order
}

/// Sets the scores of all experts outside of the best groups to minus infinity.
fn keep_best_groups(row: &mut [f64], limit: GroupLimit) {
    let group_size = row.len() / limit.groups;
    let group_score = |group: &[f64]| {
        argsort_descending(group).iter().take(limit.group_score_experts).map(|index| group[*index]).sum::<f64>()
    };
    let group_scores: Vec<f64> = row.chunks(group_size).map(group_score).collect();
    for group in argsort_descending(&group_scores).into_iter().skip(limit.top_groups) {
        row[group * group_size..(group + 1) * group_size].fill(f64::NEG_INFINITY);
    }
}
