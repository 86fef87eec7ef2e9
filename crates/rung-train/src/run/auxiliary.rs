//! The auxiliary loss: what each layer should have found by then.
//!
//! A question of h hops passes `i_1 .. i_h`. A stack whose first layers have l rungs can know `i_min(l, h)` after them, and the
//! auxiliary loss asks for it there, through the same norm and read-out as the answer (deep supervision: Lee et al. 2015, 1409.5185).
//! It is asked after every layer but the last that adds a rung or is full; stacks with too few rungs are asked in the same way.
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

/// A layer after which an intermediate answer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxiliaryTarget {
    /// The layer, from 0.
    pub layer: usize,
    /// Hops that the stack can have made by then, at least 1.
    pub hops: usize,
}

/// Where a stack is asked for intermediate answers.
pub fn levels(plan: &Plan) -> Vec<AuxiliaryTarget> {
    let rungs = |layers: usize| Plan { width: plan.width, layers: plan.layers[..layers].to_vec() }.capacity().rungs;
    let mut found = Vec::new();
    let mut before = 0;
    for layer in 0..plan.layers.len().saturating_sub(1) {
        let hops = rungs(layer + 1);
        if hops > before || (hops > 0 && plan.layers[layer].is_full()) {
            found.push(AuxiliaryTarget { layer, hops });
        }
        before = hops;
    }
    found
}

impl AuxiliaryTarget {
    /// The classes that some rows of a batch should have found by then.
    pub fn targets(self, batch: &Batch, rows: Range<usize>) -> IntermediateTargets {
        let asked = |rows: Range<usize>| {
            let targets = &batch.targets[rows.start * batch.length..rows.end * batch.length];
            targets.iter().filter(|target| **target != NO_TARGET).count()
        };
        let depth = batch.partials.len() / batch.questions.max(1);
        let first = asked(0..rows.start);
        let own = batch.partials[first * depth..(first + asked(rows)) * depth].chunks_exact(depth.max(1));
        IntermediateTargets {
            layer: self.layer,
            classes: own.map(|partials| partials[self.hops.min(depth) - 1] as usize).collect(),
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
    fn levels_follow_the_rungs_of_the_first_layers() {
        let found = |stack: &str| -> Vec<(usize, usize)> {
            let plan = Plan::parse(stack, &Defaults::default()).unwrap();
            levels(&plan).into_iter().map(|level| (level.layer, level.hops)).collect()
        };
        assert_eq!(found("gated full"), []);
        assert_eq!(found("gated full full full"), [(1, 1), (2, 2)]);
        assert_eq!(found("full gated full full"), [(1, 1), (2, 2)]);
        assert_eq!(found("full full full full"), [(1, 1), (2, 2)]);
        assert_eq!(found("full full gated full"), [(1, 1)]);
    }

    #[test]
    fn rows_of_a_batch_get_their_own_questions() {
        let text = "funccomp{hops=3,m=4,n=[2,2],queries=5,mixed=yes}";
        let model = task::parse(text).unwrap();
        let mut source =
            PromptSource::new("task", task::parse(text).unwrap(), &model.fields(), model.classes()).unwrap();
        let mut batch = Batch::default();
        source.fill(3, PromptPurpose::Training, 0, 4, &mut batch);
        let level = AuxiliaryTarget { layer: 1, hops: 2 };
        let whole = level.targets(&batch, 0..4).classes;
        assert_eq!(whole.len(), 20);
        assert_eq!([level.targets(&batch, 0..1).classes, level.targets(&batch, 1..4).classes].concat(), whole);
        // Questions of one or two hops are answered by then.
        let questions = batch.targets.iter().zip(&batch.groups).filter(|(target, _)| **target != NO_TARGET);
        for ((target, group), found) in questions.zip(&whole).filter(|((_, group), _)| **group <= 2) {
            assert_eq!(*target as usize, *found, "{group} hops");
        }
        let beyond = AuxiliaryTarget { layer: 3, hops: 7 }.targets(&batch, 0..4).classes;
        let answers: Vec<usize> =
            batch.targets.iter().filter(|target| **target != NO_TARGET).map(|target| *target as usize).collect();
        assert_eq!(beyond, answers);
    }
}
