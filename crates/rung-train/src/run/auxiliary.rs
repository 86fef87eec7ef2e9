//! The auxiliary loss: cross-entropy of the intermediate answers that each layer should have computed.
//!
//! The answer to a question of h hops is the last of the intermediate answers `i_1 .. i_h`. Let l be the rungs of the layers up to some
//! depth, read as a stack of their own. After them the residual stream can hold `i_min(l, h)`, and the auxiliary loss trains it to,
//! through the same final norm and output projection as the answer (deep supervision: Lee et al. 2015, arXiv:1409.5185). Every layer
//! except the final one gets this loss if the layers up to it have at least one rung and the layer either raises their rungs or is full
//! attention, also in stacks with too few rungs for the task.
//!
//! ```text
//! gated full full        gated: 0 rungs, nothing   full: 1, i_1            full: the answer
//! full gated full full   full: 0, nothing          gated: 1, i_1           full: 2, i_min(2,h)     full: the answer
//! ```

use std::ops::Range;

use rung_nn::model::IntermediateTargets;
use rung_theory::stack::Plan;
use rung_theory::task::NO_TARGET;

use super::source::Batch;

/// A layer whose output is trained to hold an intermediate answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupervisedLayer {
    /// The layer, from 0.
    pub layer: usize,
    /// Hops that the layers up to this one can compute, at least 1.
    pub hops: usize,
}

/// The layers of a stack whose outputs are trained to hold intermediate answers.
pub fn supervised_layers(plan: &Plan) -> Vec<SupervisedLayer> {
    let rungs_of_first =
        |layers: usize| Plan { width: plan.width, layers: plan.layers[..layers].to_vec() }.capacity().rungs;
    let mut supervised = Vec::new();
    let mut previous_hops = 0;
    for layer in 0..plan.layers.len().saturating_sub(1) {
        let hops = rungs_of_first(layer + 1);
        if hops > previous_hops || (hops > 0 && plan.layers[layer].is_full()) {
            supervised.push(SupervisedLayer { layer, hops });
        }
        previous_hops = hops;
    }
    supervised
}

impl SupervisedLayer {
    /// The classes that this layer is trained to give: the intermediate answers to the questions of some rows of a batch.
    pub fn intermediate_targets(self, batch: &Batch, rows: Range<usize>) -> IntermediateTargets {
        let question_count = |rows: Range<usize>| {
            let targets = &batch.targets[rows.start * batch.tokens_per_row..rows.end * batch.tokens_per_row];
            targets.iter().filter(|target| **target != NO_TARGET).count()
        };
        let answers_per_question = batch.intermediate_answers.len() / batch.question_count.max(1);
        let first_question = question_count(0..rows.start);
        let answers = &batch.intermediate_answers
            [first_question * answers_per_question..(first_question + question_count(rows)) * answers_per_question];
        IntermediateTargets {
            layer: self.layer,
            classes: answers
                .chunks_exact(answers_per_question.max(1))
                .map(|answers| answers[self.hops.min(answers_per_question) - 1] as usize)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::source::{PromptPurpose, PromptSource};
    use rung_theory::stack::Defaults;
    use rung_theory::task;

    #[test]
    fn supervised_layers_follow_the_rungs_of_the_first_layers() {
        let supervised = |stack: &str| -> Vec<(usize, usize)> {
            let plan = Plan::parse(stack, &Defaults::default()).unwrap();
            supervised_layers(&plan).into_iter().map(|layer| (layer.layer, layer.hops)).collect()
        };
        assert_eq!(supervised("gated full"), []);
        assert_eq!(supervised("gated full full full"), [(1, 1), (2, 2)]);
        assert_eq!(supervised("full gated full full"), [(1, 1), (2, 2)]);
        assert_eq!(supervised("full full full full"), [(1, 1), (2, 2)]);
        assert_eq!(supervised("full full gated full"), [(1, 1)]);
    }

    #[test]
    fn targets_of_rows_are_those_of_the_questions_in_the_rows() {
        let text = "funccomp{hops=3,m=4,n=[2,2],queries=5,mixed=yes}";
        let model = task::parse(text).unwrap();
        let mut source =
            PromptSource::new("task", task::parse(text).unwrap(), &model.fields(), model.classes()).unwrap();
        let mut batch = Batch::default();
        source.fill(3, PromptPurpose::Training, 0, 4, &mut batch);
        let second_hop = SupervisedLayer { layer: 1, hops: 2 };
        let classes = second_hop.intermediate_targets(&batch, 0..4).classes;
        assert_eq!(classes.len(), 20);
        let [first_row, other_rows] = [0..1, 1..4].map(|rows| second_hop.intermediate_targets(&batch, rows).classes);
        assert_eq!([first_row, other_rows].concat(), classes);
        // The second intermediate answer of a question of one or two hops is its answer.
        let questions = batch.targets.iter().zip(&batch.groups).filter(|(target, _)| **target != NO_TARGET);
        for ((target, group), class) in questions.zip(&classes).filter(|((_, group), _)| **group <= 2) {
            assert_eq!(*target as usize, *class, "{group} hops");
        }
        let more_hops_than_the_question =
            SupervisedLayer { layer: 3, hops: 7 }.intermediate_targets(&batch, 0..4).classes;
        let answers: Vec<usize> =
            batch.targets.iter().filter(|target| **target != NO_TARGET).map(|target| *target as usize).collect();
        assert_eq!(more_hops_than_the_question, answers);
    }
}
