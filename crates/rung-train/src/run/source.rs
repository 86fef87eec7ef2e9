//! Prompts by number.
//!
//! The prompt at place `item` of step `step` of a run is a function of the seed and these two numbers, and of what it is for:
//! training, validation during training, or the last evaluation. So the streams never meet by sharing a generator, threads may draw in any
//! order, and going on from a checkpoint needs no generator's state.
//!
//! A [`PromptSource`] also fits a task into a model made for a larger one: fields must agree in name and order, and ids that both have
//! mean the same; only the blank, which is a field's last id, moves.

use std::sync::Arc;

use rung_theory::task::{AnyTask, Field, Prompt, seeded, splitmix64};

use super::error::RunError;

/// What prompts are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPurpose {
    /// To learn from.
    Training,
    /// To decide about stages and stopping.
    Validation,
    /// For the accuracy that is recorded.
    Testing,
}

/// A generator's seed from the numbers that name a prompt.
pub fn seed_of(seed: u64, purpose: PromptPurpose, step: u64, item: u64) -> u64 {
    let stream = match purpose {
        PromptPurpose::Training => 1,
        PromptPurpose::Validation => 2,
        PromptPurpose::Testing => 3,
    };
    // Each number is hashed in before the next, so that no two sums of small numbers meet.
    [stream, step, item].into_iter().fold(splitmix64(seed), |state, number| splitmix64(state ^ splitmix64(number)))
}

/// Some prompts, one row each.
#[derive(Debug, Default)]
pub struct Batch {
    /// Ids.
    pub tokens: Vec<u32>,
    /// One per token.
    pub targets: Vec<u32>,
    /// One per token.
    pub groups: Vec<u16>,
    /// Intermediate answers of every question, as many for each; see [`Prompt::partials`].
    pub partials: Vec<u32>,
    /// Ids per row.
    pub ids: usize,
    /// Tokens per row.
    pub length: usize,
    /// Questions in all rows.
    pub questions: usize,
}

/// How the ids of a task become those of a model made for a larger one.
#[derive(Clone)]
pub struct IdMapping {
    /// For each field, its blank and the model's.
    blanks: Vec<Option<(u32, u32)>>,
}

/// A task that fits a model.
#[derive(Clone)]
pub struct FittedTask {
    task: Arc<dyn AnyTask>,
    fit: IdMapping,
}

impl FittedTask {
    /// Fits a task into a model with these fields and classes.
    ///
    /// # Errors
    /// It does not fit; `field` is the config's key that named it.
    pub fn new(
        field: &str,
        task: impl Into<Arc<dyn AnyTask>>,
        model: &[Field],
        classes: u32,
    ) -> Result<Self, RunError> {
        let task = task.into();
        let fit = IdMapping::new(field, &*task, model, classes)?;
        Ok(Self { task, fit })
    }

    /// The task.
    pub fn task(&self) -> &dyn AnyTask {
        &*self.task
    }

    /// A source of its prompts.
    pub fn source(&self) -> PromptSource {
        PromptSource { task: self.clone(), prompt: Prompt::new() }
    }
}

/// Prompts of a task, in the ids of a model.
pub struct PromptSource {
    task: FittedTask,
    prompt: Prompt,
}

impl IdMapping {
    /// Fits a task into a model with these fields and classes.
    ///
    /// # Errors
    /// It does not fit; `field` is the config's key that named it.
    pub fn new(field: &str, task: &dyn AnyTask, model: &[Field], classes: u32) -> Result<Self, RunError> {
        let fields = task.fields();
        let misfit = |found: String, expected: String| {
            Err(RunError::Misfit { field: field.to_owned(), task: task.spec(), found, expected })
        };
        let names = |fields: &[Field]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>().join(", ");
        if names(&fields) != names(model) {
            return misfit(format!("fields {}", names(&fields)), names(model));
        }
        for (field, model) in fields.iter().zip(model) {
            let (found, most) = (field.vocabulary, model.vocabulary);
            // Without a blank the last ids may be special too, so only the same number of ids means the same.
            if found > most || (!field.blank && found != most) {
                let expected = if field.blank { format!("at most {most}") } else { most.to_string() };
                return misfit(format!("{found} ids in field `{}`", field.name), expected);
            }
        }
        if task.classes() > classes {
            return misfit(format!("{} classes", task.classes()), format!("at most {classes}"));
        }
        let blank = |(field, model): (&Field, &Field)| {
            (field.blank && field.vocabulary != model.vocabulary).then(|| (field.vocabulary - 1, model.vocabulary - 1))
        };
        Ok(Self { blanks: fields.iter().zip(model).map(blank).collect() })
    }

    /// Writes the task's own ids as the model's.
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
    /// Fits a task into a model with these fields and classes.
    ///
    /// # Errors
    /// It does not fit; `field` is the config's key that named it.
    pub fn new(field: &str, task: Box<dyn AnyTask>, model: &[Field], classes: u32) -> Result<Self, RunError> {
        Ok(FittedTask::new(field, task, model, classes)?.source())
    }

    /// The task.
    pub fn task(&self) -> &dyn AnyTask {
        self.task.task()
    }

    /// Fills a batch with `rows` prompts.
    pub fn fill(&mut self, seed: u64, purpose: PromptPurpose, step: u64, rows: usize, batch: &mut Batch) {
        batch.tokens.clear();
        batch.targets.clear();
        batch.groups.clear();
        batch.partials.clear();
        batch.questions = 0;
        for item in 0..rows as u64 {
            let mut rng = seeded(seed_of(seed, purpose, step, item));
            self.task.task.prompt(&mut rng, &mut self.prompt);
            batch.tokens.extend_from_slice(self.prompt.tokens());
            batch.targets.extend_from_slice(self.prompt.targets());
            batch.groups.extend_from_slice(self.prompt.groups());
            batch.partials.extend_from_slice(self.prompt.partials());
            batch.questions += self.prompt.questions().count();
        }
        batch.length = self.prompt.len();
        batch.ids = self.prompt.tokens().len();
        self.task.fit.translate(&mut batch.tokens);
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
    fn a_prompt_depends_on_its_numbers_only() {
        let text = "funccomp{hops=2,m=4,n=[2],queries=3,mixed=yes}";
        let (mut first, mut second) = (source(text, text).unwrap(), source(text, text).unwrap());
        let (mut one, mut two) = (Batch::default(), Batch::default());
        first.fill(7, PromptPurpose::Training, 5, 4, &mut one);
        second.fill(7, PromptPurpose::Training, 4, 4, &mut two);
        assert_ne!(one.tokens, two.tokens);
        second.fill(7, PromptPurpose::Training, 5, 3, &mut two);
        assert_eq!(one.tokens[..two.tokens.len()], two.tokens[..], "a longer batch begins with the shorter one");
        for (seed, purpose) in
            [(8, PromptPurpose::Training), (7, PromptPurpose::Validation), (7, PromptPurpose::Testing)]
        {
            second.fill(seed, purpose, 5, 3, &mut two);
            assert_ne!(one.tokens[..two.tokens.len()], two.tokens[..]);
        }
        assert_eq!(one.questions, 12);
    }

    #[test]
    fn a_smaller_table_moves_only_its_blanks() {
        let (small, large) = ("funccomp{hops=2,m=3,n=[2],queries=2}", "funccomp{hops=2,m=8,n=[4],queries=2}");
        let (mut own, mut fitted) = (source(small, small).unwrap(), source(small, large).unwrap());
        let (mut one, mut two) = (Batch::default(), Batch::default());
        own.fill(1, PromptPurpose::Training, 0, 2, &mut one);
        fitted.fill(1, PromptPurpose::Training, 0, 2, &mut two);
        let (from, to) = (task::parse(small).unwrap().fields(), task::parse(large).unwrap().fields());
        for (index, (a, b)) in one.tokens.iter().zip(&two.tokens).enumerate() {
            let (from, to) = (&from[index % from.len()], &to[index % to.len()]);
            let blank = from.blank && *a == from.vocabulary - 1;
            assert_eq!(*b, if blank { to.vocabulary - 1 } else { *a });
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let fails = |text: &str, model: &str, expected: &str| {
            let message = source(text, model).err().expect("a misfit").to_string();
            assert!(message.contains(expected), "{message}");
        };
        fails("funccomp{hops=1,m=9}", "funccomp{hops=1,m=8}", "10 ids in field `inner`, expected at most 9");
        fails("funccomp{hops=2,m=3,n=[2]}", "funccomp{hops=1,m=8}", "fields kind, outer, inner, value, w1");
        fails("funccomp{hops=2,m=3,n=[2]}", "funccomp{hops=2,m=3,n=[2],mixed=yes}", "in field `kind`");
        fails("parity", "funccomp", "expected kind, outer");
    }
}
