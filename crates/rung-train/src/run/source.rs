//! Prompts, each a function of the seed, the step and its row in the batch.
//!
//! A prompt depends only on the seed, the step, its row in the batch and its purpose: training, validation during
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
pub fn prompt_seed(seed: u64, purpose: PromptPurpose, step: u64, row: u64) -> u64 {
    let purpose_number = match purpose {
        PromptPurpose::Training => 1,
        PromptPurpose::Validation => 2,
        PromptPurpose::Testing => 3,
    };
    // Numbers are hashed one after the other: the hash of their sum would be the same for (1, 2) and (2, 1).
    let numbers = [purpose_number, step, row];
    numbers.into_iter().fold(splitmix64(seed), |state, number| splitmix64(state ^ splitmix64(number)))
}

/// A batch of prompts, one per row.
#[derive(Debug, Default)]
pub struct Batch {
    /// The ids of all tokens, one id per field of each token.
    pub tokens: Vec<u32>,
    /// The answer expected at each token, or [`NO_TARGET`](rung_theory::task::NO_TARGET).
    pub targets: Vec<u32>,
    /// The metric group of the question at each token: for function composition, its number of hops.
    pub groups: Vec<u16>,
    /// Intermediate answers of every question, the same number for each; see [`Prompt::intermediate_answers`](rung_theory::task::Prompt::intermediate_answers).
    pub intermediate_answers: Vec<u32>,
    /// Ids per row: tokens per row times fields per token.
    pub ids_per_row: usize,
    /// Tokens per row.
    pub tokens_per_row: usize,
    /// Number of questions in all rows.
    pub question_count: usize,
}

/// Maps the ids of a task to those of a model that was made for a larger task.
#[derive(Clone)]
pub struct IdMapping {
    /// For each field, the task's blank and the model's, if they differ.
    blanks: Vec<Option<(u32, u32)>>,
}

/// A task with the mapping of its ids to a model's.
#[derive(Clone)]
pub struct TaskForModel {
    task: Arc<dyn AnyTask>,
    mapping: IdMapping,
}

impl TaskForModel {
    /// A task with the mapping of its ids to those of a model with these fields and classes. `config_key` is that of the task, for the
    /// error message.
    ///
    /// # Errors
    /// The task has other fields, or more ids or classes than the model.
    pub fn new(
        config_key: &str,
        task: impl Into<Arc<dyn AnyTask>>,
        model_fields: &[Field],
        classes: u32,
    ) -> Result<Self, RunError> {
        let task = task.into();
        let mapping = IdMapping::new(config_key, &*task, model_fields, classes)?;
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
    task: TaskForModel,
    prompt: Prompt,
}

impl IdMapping {
    /// The mapping from the ids of `task` to those of a model with these fields and classes. `config_key` is that of the task, for the
    /// error message.
    ///
    /// # Errors
    /// The task has other fields, or more ids or classes than the model.
    pub fn new(config_key: &str, task: &dyn AnyTask, model_fields: &[Field], classes: u32) -> Result<Self, RunError> {
        let fields = task.fields();
        let mismatch = |found: String, expected: String| {
            Err(RunError::TaskMismatch { config_key: config_key.to_owned(), task: task.spec(), found, expected })
        };
        let names = |fields: &[Field]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>().join(", ");
        if names(&fields) != names(model_fields) {
            return mismatch(format!("fields {}", names(&fields)), names(model_fields));
        }
        for (field, model_field) in fields.iter().zip(model_fields) {
            let (found, max) = (field.vocabulary, model_field.vocabulary);
            // In a field without a blank the last ids may have special meanings, so the vocabularies must be of the same size.
            if found > max || (!field.blank && found != max) {
                let expected = if field.blank { format!("at most {max}") } else { max.to_string() };
                return mismatch(format!("{found} ids in field `{}`", field.name), expected);
            }
        }
        if task.classes() > classes {
            return mismatch(format!("{} classes", task.classes()), format!("at most {classes}"));
        }
        let blanks = |(field, model_field): (&Field, &Field)| {
            (field.blank && field.vocabulary != model_field.vocabulary)
                .then(|| (field.vocabulary - 1, model_field.vocabulary - 1))
        };
        Ok(Self { blanks: fields.iter().zip(model_fields).map(blanks).collect() })
    }

    /// Replaces the task's ids by the model's.
    pub fn translate(&self, tokens: &mut [u32]) {
        let field_count = self.blanks.len();
        for (column, blank) in self.blanks.iter().enumerate() {
            let Some((from, to)) = *blank else { continue };
            for id in tokens.iter_mut().skip(column).step_by(field_count).filter(|id| **id == from) {
                *id = to;
            }
        }
    }
}

impl PromptSource {
    /// The prompts of a task, in the ids of a model with these fields and classes. `config_key` is that of the task, for the error
    /// message.
    ///
    /// # Errors
    /// The task has other fields, or more ids or classes than the model.
    pub fn new(
        config_key: &str,
        task: Box<dyn AnyTask>,
        model_fields: &[Field],
        classes: u32,
    ) -> Result<Self, RunError> {
        Ok(TaskForModel::new(config_key, task, model_fields, classes)?.source())
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
        batch.intermediate_answers.clear();
        batch.question_count = 0;
        for row in 0..rows as u64 {
            let mut rng = seeded(prompt_seed(seed, purpose, step, row));
            self.task.task.sample_prompt(&mut rng, &mut self.prompt);
            batch.tokens.extend_from_slice(self.prompt.tokens());
            batch.targets.extend_from_slice(self.prompt.targets());
            batch.groups.extend_from_slice(self.prompt.groups());
            batch.intermediate_answers.extend_from_slice(self.prompt.intermediate_answers());
            batch.question_count += self.prompt.questions().count();
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
        assert_eq!(first.question_count, 12);
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
        let assert_rejected = |text: &str, model: &str, expected: &str| {
            let message = source(text, model).err().expect("a mismatch").to_string();
            assert!(message.contains(expected), "{message}");
        };
        assert_rejected("funccomp{hops=1,m=9}", "funccomp{hops=1,m=8}", "10 ids in field `inner`, expected at most 9");
        assert_rejected("funccomp{hops=2,m=3,n=[2]}", "funccomp{hops=1,m=8}", "fields kind, outer, inner, value, w1");
        assert_rejected("funccomp{hops=2,m=3,n=[2]}", "funccomp{hops=2,m=3,n=[2],mixed=yes}", "in field `kind`");
        assert_rejected("parity", "funccomp", "expected kind, outer");
    }
}
