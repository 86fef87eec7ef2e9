//! Text prompts for an external checkpoint, as token ids of that checkpoint's tokenizer.
//!
//! Such a checkpoint has no built-in task. Its prompts are either lines of a file, where every token is predicted from the tokens before it,
//! or a built-in task written as text, where one of a few symbols has to follow the last token. Analyses see both as [`Questions`].

use std::collections::HashMap;

use rung_theory::task::NO_TARGET;
use rung_train::run::source::Batch;

use super::ProgressReporter;
use super::questions::{IntermediateAnswer, Question, QuestionBatch, QuestionLimits, Questions};

/// The largest number of tokens of a batch.
const BATCH_TOKENS: usize = 1 << 10;

/// Prompts as token ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPrompts {
    /// The file or the task that the prompts are from.
    pub name: String,
    /// The prompts.
    pub prompts: Vec<TextPrompt>,
    /// The tokens that count as answers; empty if every token does.
    pub symbols: Vec<u32>,
}

/// One prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPrompt {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Each token as text.
    pub token_texts: Vec<String>,
    /// The token that should follow the last one; `None` if every token is to be predicted.
    pub answer: Option<u32>,
    /// Number of look-ups that the answer needs; 0 if unknown.
    pub hops: u16,
}

impl TextPrompt {
    /// The token that should follow each token, or `NO_TARGET`.
    pub(crate) fn targets(&self) -> Vec<u32> {
        let count = self.tokens.len();
        match self.answer {
            Some(answer) => (1..count).map(|_| NO_TARGET).chain([answer]).collect(),
            None => self.tokens[1..].iter().copied().chain([NO_TARGET]).collect(),
        }
    }
}

impl TextPrompts {
    /// The prompts as questions: the first `max_prompts`, or without a number until a limit is
    /// reached. Prompts of the same length are in one batch while it has room; batches are in the order of their first prompts, so that the
    /// first row of the first batch is the first prompt.
    pub(crate) fn questions(&self, max_prompts: Option<usize>, limits: QuestionLimits) -> Questions {
        let (mut batches, mut question_count, mut token_count): (Vec<QuestionBatch>, usize, usize) = (Vec::new(), 0, 0);
        // The last batch of each length.
        let mut open_batches = HashMap::<usize, usize>::new();
        for prompt in self.prompts.iter().take(max_prompts.unwrap_or(usize::MAX)) {
            if max_prompts.is_none() && (question_count >= limits.questions || token_count >= limits.tokens) {
                break;
            }
            let length = prompt.tokens.len();
            let has_room = |index: &usize| batches[*index].batch.tokens.len() + length <= BATCH_TOKENS;
            let index = open_batches.get(&length).copied().filter(has_room).unwrap_or_else(|| {
                let batch = Batch { ids_per_row: length, tokens_per_row: length, ..Batch::default() };
                batches.push(QuestionBatch { batch, questions: Vec::new() });
                batches.len() - 1
            });
            open_batches.insert(length, index);
            let QuestionBatch { batch, questions } = &mut batches[index];
            let row = batch.targets.len() / length;
            let targets = prompt.targets();
            for (position, target) in targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET) {
                let answer_index = self.symbols.iter().position(|symbol| symbol == target).map(|index| index as u32);
                questions.push(Question { row, position, intermediate_answers: answer_index.into_iter().collect() });
                question_count += 1;
            }
            token_count += length;
            batch.tokens.extend_from_slice(&prompt.tokens);
            batch.groups.extend(targets.iter().map(|_| prompt.hops));
            batch.targets.extend(targets);
            batch.question_count = questions.len();
        }
        let intermediate_answers = match self.symbols.len() {
            0 => Vec::new(),
            value_count => vec![IntermediateAnswer { name: "answer".to_owned(), value_count }],
        };
        let symbols = self.symbols.iter().map(|symbol| *symbol as usize).collect();
        let token_texts = self.prompts.first().map(|prompt| prompt.token_texts.clone());
        let (task, progress) = (self.name.clone(), ProgressReporter::default());
        Questions { task, intermediate_answers, batches, symbols, token_texts, progress }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_question_at_every_token_and_tasks_at_the_last() {
        let line = |tokens: &[u32]| TextPrompt { tokens: tokens.to_vec(), ..TextPrompt::default() };
        let lines =
            TextPrompts { prompts: vec![line(&[5, 6, 7]), line(&[8, 9, 5]), line(&[1, 2])], ..TextPrompts::default() };
        let questions = lines.questions(None, QuestionLimits::NONE);
        assert_eq!(questions.batches.iter().map(QuestionBatch::rows).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(questions.batches[0].batch.targets, [6, 7, NO_TARGET, 9, 5, NO_TARGET]);
        assert_eq!(questions.batches[0].questions.len(), 4);
        assert!(questions.intermediate_answers.is_empty());
        assert_eq!(lines.questions(Some(1), QuestionLimits { questions: 1, tokens: 1 }).prompt_count(), 1);
        assert_eq!(lines.questions(None, QuestionLimits { questions: 1, ..QuestionLimits::NONE }).prompt_count(), 1);

        let mixed =
            [line(&[1, 2]), line(&[5, 6, 7]), line(&[3, 4]), line(&[8, 9, 5]), line(&[6; 400]), line(&[7; 400])];
        let third = [line(&[8; 400]), line(&[9, 9])];
        let mixed = TextPrompts { prompts: [&mixed[..], &third].concat(), ..TextPrompts::default() };
        let questions = mixed.questions(None, QuestionLimits::NONE);
        let first_tokens: Vec<Vec<u32>> = questions
            .batches
            .iter()
            .map(|batch| batch.batch.tokens.chunks(batch.batch.tokens_per_row).map(|row| row[0]).collect())
            .collect();
        assert_eq!(first_tokens, [vec![1, 3, 9], vec![5, 8], vec![6, 7], vec![8]], "a third prompt of 400 has no room");

        let prompt = TextPrompt { answer: Some(9), hops: 2, ..line(&[5, 6, 7]) };
        let task = TextPrompts { prompts: vec![prompt], symbols: vec![8, 9], ..TextPrompts::default() };
        let questions = task.questions(None, QuestionLimits::NONE);
        assert_eq!(questions.batches[0].questions, [Question { row: 0, position: 2, intermediate_answers: vec![1] }]);
        assert_eq!((questions.batches[0].batch.targets[2], questions.batches[0].batch.groups[2]), (9, 2));
    }
}
