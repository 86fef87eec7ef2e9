//! Prompts as functions of the seed, the step and the index in the batch.
//!
//! Row `item` of the batch of step `step` is a function of the seed, these two numbers and its purpose: training, validation during
//! training, or the final test. So the three purposes never share a random generator, threads may draw prompts in any order, and a
//! checkpoint needs no generator state.
//!
//! A [`PromptSource`] also adapts a task to a model that was made for a larger task. Fields (the columns of a token, each with its
//! vocabulary) must agree in name and order. Ids mean the same in both, except that the blank, a field's last id, is mapped to the
//! model's blank.

use std::sync::Arc;

use rung_theory::task::{AnyTask, Field, Prompt, seeded, splitmix64};

use super::error::RunError;

/// The purpose that prompts are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPurpose {
    /// Batches that the model is trained on.
    Training,
    /// Evaluations during training, which end curriculum stages and stop the run early.
    Validation,
    /// The final accuracy in the record.
    Testing,
}

/// The seed of the random generator of one prompt.
pub fn prompt_seed(seed: u64, purpose: PromptPurpose, step: u64, item: u64) -> u64 {
    let purpose_number = match purpose {
        PromptPurpose::Training => 1,
        PromptPurpose::Validation => 2,
        PromptPurpose::Testing => 3,
    };
    // Numbers are hashed one after the other: the hash of their sum would be the same for (1, 2) and (2, 1).
    let numbers = [purpose_number, step, item];
    numbers.into_iter().fold(splitmix64(seed), |state, number| splitmix64(state ^ splitmix64(number)))
}

/// A batch of prompts, one per row.
#[derive(Debug, Default)]
pub struct Batch {
    /// The ids of all tokens, one id per field of each token.
    pub tokens: Vec<u32>,
    /// The answer expected at each token, or [`NO_TARGET`](rung_theory::task::NO_TARGET).
    pub targets: Vec<u32>,
    /// The group of the question at each token: for function composition, its number of hops.
    pub groups: Vec<u16>,
    /// Intermediate answers of every question, the same number for each; see [`Prompt::partial_answers`](rung_theory::task::Prompt::partial_answers).
    pub partials: Vec<u32>,
    /// Ids per row: tokens per row times fields per token.
    pub ids_per_row: usize,
    /// Tokens per row.
    pub tokens_per_row: usize,
    /// Number of questions in all rows.
    pub questions: usize,
}

/// Maps the ids of a task to those of a model that was made for a larger task.
#[derive(Clone)]
pub struct IdMapping {
    /// For each field, the task's blank and the model's, if they differ.
    blanks: Vec<Option<(u32, u32)>>,
}

/// A task with the mapping of its ids to a model's.
#[derive(Clone)]
pub struct FittedTask {
    task: Arc<dyn AnyTask>,
    mapping: IdMapping,
}

impl FittedTask {
    /// Adapts a task to a model with these fields and classes. `field`, the config key of the task, is for the error message.
    ///
    /// # Errors
    /// The task has other fields, or more ids or classes than the model.
    pub fn new(
        field: &str,
        task: impl Into<Arc<dyn AnyTask>>,
        model: &[Field],
        classes: u32,
    ) -> Result<Self, RunError> {
        let task = task.into();
        let mapping = IdMapping::new(field, &*task, model, classes)?;
        Ok(Self { task, mapping })
    }

    /// The task.
    pub fn task(&self) -> &dyn AnyTask {
        &*self.task
    }

    /// A source of the task's prompts.
    pub fn source(&self) -> PromptSource {
        PromptSource { task: self.clone(), prompt: Prompt::new() }
    }
}

/// Draws prompts of a task, in the ids of a model.
pub struct PromptSource {
    task: FittedTask,
    prompt: Prompt,
}

impl IdMapping {
    /// Adapts a task to a model with these fields and classes. `field`, the config key of the task, is for the error message.
    ///
    /// # Errors
    /// The task has other fields, or more ids or classes than the model.
    pub fn new(field: &str, task: &dyn AnyTask, model: &[Field], classes: u32) -> Result<Self, RunError> {
        let fields = task.fields();
        let mismatch = |found: String, expected: String| {
            Err(RunError::TaskMismatch { field: field.to_owned(), task: task.spec(), found, expected })
        };
        let names = |fields: &[Field]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>().join(", ");
        if names(&fields) != names(model) {
            return mismatch(format!("fields {}", names(&fields)), names(model));
        }
        for (field, model) in fields.iter().zip(model) {
            let (found, max) = (field.vocabulary, model.vocabulary);
            // In a field without a blank the last ids may have special meanings, so the vocabularies must be of the same size.
            if found > max || (!field.blank && found != max) {
                let expected = if field.blank { format!("at most {max}") } else { max.to_string() };
                return mismatch(format!("{found} ids in field `{}`", field.name), expected);
            }
        }
        if task.classes() > classes {
            return mismatch(format!("{} classes", task.classes()), format!("at most {classes}"));
        }
        let blanks = |(field, model): (&Field, &Field)| {
            (field.blank && field.vocabulary != model.vocabulary).then(|| (field.vocabulary - 1, model.vocabulary - 1))
        };
        Ok(Self { blanks: fields.iter().zip(model).map(blanks).collect() })
    }

    /// Replaces the task's ids by the model's.
    pub fn translate(&self, tokens: &mut [u32]) {
        let fields = self.blanks.len();
        for (column, blank) in self.blanks.iter().enumerate() {
            let Some((from, to)) = *blank else { continue };
            for id in tokens.iter_mut().skip(column).step_by(fields).filter(|id| **id == from) {
                *id = to;
            }
        }
    }
}

impl PromptSource {
    /// Adapts a task to a model with these fields and classes. `field`, the config key of the task, is for the error message.
    ///
    /// # Errors
    /// The task has other fields, or more ids or classes than the model.
    pub fn new(field: &str, task: Box<dyn AnyTask>, model: &[Field], classes: u32) -> Result<Self, RunError> {
        Ok(FittedTask::new(field, task, model, classes)?.source())
    }

    /// The task.
    pub fn task(&self) -> &dyn AnyTask {
        self.task.task()
    }

    /// Fills a batch with the `rows` prompts of a step.
    pub fn fill(&mut self, seed: u64, purpose: PromptPurpose, step: u64, rows: usize, batch: &mut Batch) {
        batch.tokens.clear();
        batch.targets.clear();
        batch.groups.clear();
        batch.partials.clear();
        batch.questions = 0;
        for item in 0..rows as u64 {
            let mut rng = seeded(prompt_seed(seed, purpose, step, item));
            self.task.task.prompt(&mut rng, &mut self.prompt);
            batch.tokens.extend_from_slice(self.prompt.tokens());
            batch.targets.extend_from_slice(self.prompt.targets());
            batch.groups.extend_from_slice(self.prompt.groups());
            batch.partials.extend_from_slice(self.prompt.partial_answers());
            batch.questions += self.prompt.questions().count();
        }
        batch.tokens_per_row = self.prompt.len();
        batch.ids_per_row = self.prompt.tokens().len();
        self.task.mapping.translate(&mut batch.tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::task;

    fn source(text: &str, model: &str) -> Result<PromptSource, RunError> {
        let model = task::parse(model).unwrap();
        PromptSource::new("task", task::parse(text).unwrap(), &model.fields(), model.classes())
    }

    #[test]
    fn prompts_are_functions_of_seed_purpose_step_and_row() {
        let text = "funccomp{hops=2,m=4,n=[2],queries=3,mixed=yes}";
        let (mut first_source, mut second_source) = (source(text, text).unwrap(), source(text, text).unwrap());
        let (mut first, mut second) = (Batch::default(), Batch::default());
        first_source.fill(7, PromptPurpose::Training, 5, 4, &mut first);
        second_source.fill(7, PromptPurpose::Training, 4, 4, &mut second);
        assert_ne!(first.tokens, second.tokens);
        second_source.fill(7, PromptPurpose::Training, 5, 3, &mut second);
        assert_eq!(
            first.tokens[..second.tokens.len()],
            second.tokens[..],
            "a longer batch begins with the shorter one"
        );
        for (seed, purpose) in
            [(8, PromptPurpose::Training), (7, PromptPurpose::Validation), (7, PromptPurpose::Testing)]
        {
            second_source.fill(seed, purpose, 5, 3, &mut second);
            assert_ne!(first.tokens[..second.tokens.len()], second.tokens[..]);
        }
        assert_eq!(first.questions, 12);
    }

    #[test]
    fn only_blanks_of_a_smaller_task_are_mapped() {
        let (small, large) = ("funccomp{hops=2,m=3,n=[2],queries=2}", "funccomp{hops=2,m=8,n=[4],queries=2}");
        let (mut unmapped_source, mut mapped_source) = (source(small, small).unwrap(), source(small, large).unwrap());
        let (mut unmapped, mut mapped) = (Batch::default(), Batch::default());
        unmapped_source.fill(1, PromptPurpose::Training, 0, 2, &mut unmapped);
        mapped_source.fill(1, PromptPurpose::Training, 0, 2, &mut mapped);
        let (from, to) = (task::parse(small).unwrap().fields(), task::parse(large).unwrap().fields());
        for (index, (id, mapped_id)) in unmapped.tokens.iter().zip(&mapped.tokens).enumerate() {
            let (from, to) = (&from[index % from.len()], &to[index % to.len()]);
            let blank = from.blank && *id == from.vocabulary - 1;
            assert_eq!(*mapped_id, if blank { to.vocabulary - 1 } else { *id });
        }
    }

    #[test]
    fn a_task_that_does_not_fit_the_model_is_rejected_with_the_reason() {
        let fails = |text: &str, model: &str, expected: &str| {
            let message = source(text, model).err().expect("a mismatch").to_string();
            assert!(message.contains(expected), "{message}");
        };
        fails("funccomp{hops=1,m=9}", "funccomp{hops=1,m=8}", "10 ids in field `inner`, expected at most 9");
        fails("funccomp{hops=2,m=3,n=[2]}", "funccomp{hops=1,m=8}", "fields kind, outer, inner, value, w1");
        fails("funccomp{hops=2,m=3,n=[2]}", "funccomp{hops=2,m=3,n=[2],mixed=yes}", "in field `kind`");
        fails("parity", "funccomp", "expected kind, outer");
    }
}
