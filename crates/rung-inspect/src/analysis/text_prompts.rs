//! Prompts of a checkpoint of another program: token ids that somebody else's tokenizer made of text.
//!
//! A checkpoint has no task of ours. It is asked about sequences of its own tokens: lines of a file, where every token is to be predicted from those
//! before it; or a built-in task as text, where the last token is to be followed by one of a few symbols. Instruments see both as questions
//! ([`Questions`]).

use rung_theory::task::NO_TARGET;
use rung_train::run::source::Batch;

use super::questions::{Question, QuestionBatch, Questions, RegisterInfo};

/// Tokens that are read at once.
const BATCH_TOKENS: usize = 1 << 10;

/// Prompts as token ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPrompts {
    /// Where they come from: a file, or tasks.
    pub name: String,
    /// The prompts.
    pub prompts: Vec<TextPrompt>,
    /// The tokens that may answer; empty if any token may.
    pub symbols: Vec<u32>,
}

/// One prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPrompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// What each token says.
    pub words: Vec<String>,
    /// The token that should come after the last one; if there is none, every token is to be predicted.
    pub answer: Option<u32>,
    /// Look-ups that the answer needs; 0 where they are not counted.
    pub hops: u16,
}

impl TextPrompt {
    /// What should come after each token.
    pub(crate) fn targets(&self) -> Vec<u32> {
        let count = self.tokens.len();
        match self.answer {
            Some(answer) => (1..count).map(|_| NO_TARGET).chain([answer]).collect(),
            None => self.tokens[1..].iter().copied().chain([NO_TARGET]).collect(),
        }
    }
}

impl TextPrompts {
    /// As questions: at most `most` prompts, or until there are `enough` questions or too many `tokens` to read. Prompts of the same length are read together.
    pub(crate) fn questions(&self, most: Option<usize>, (enough, tokens): (usize, usize)) -> Questions {
        let (mut batches, mut questions, mut read): (Vec<QuestionBatch>, usize, usize) = (Vec::new(), 0, 0);
        for prompt in self.prompts.iter().take(most.unwrap_or(usize::MAX)) {
            if most.is_none() && (questions >= enough || read >= tokens) {
                break;
            }
            let length = prompt.tokens.len();
            let fits =
                |one: &QuestionBatch| one.batch.length == length && one.batch.tokens.len() + length <= BATCH_TOKENS;
            if !batches.last().is_some_and(fits) {
                let batch = Batch { ids: length, length, ..Batch::default() };
                batches.push(QuestionBatch { batch, questions: Vec::new() });
            }
            let Some(QuestionBatch { batch, questions: asked }) = batches.last_mut() else { break };
            let row = batch.targets.len() / length;
            let targets = prompt.targets();
            for (position, target) in targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET) {
                let place = self.symbols.iter().position(|symbol| symbol == target).map(|place| place as u32);
                asked.push(Question { row, position, registers: place.into_iter().collect() });
                questions += 1;
            }
            read += length;
            batch.tokens.extend_from_slice(&prompt.tokens);
            batch.groups.extend(targets.iter().map(|_| prompt.hops));
            batch.targets.extend(targets);
            batch.questions = asked.len();
        }
        let registers = match self.symbols.len() {
            0 => Vec::new(),
            values => vec![RegisterInfo { name: "answer".to_owned(), values }],
        };
        let symbols = self.symbols.iter().map(|symbol| *symbol as usize).collect();
        let words = self.prompts.first().map(|prompt| prompt.words.clone());
        Questions { task: self.name.clone(), registers, batches, symbols, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_ask_for_every_token_and_tasks_for_the_last() {
        let line = |tokens: &[u32]| TextPrompt { tokens: tokens.to_vec(), ..TextPrompt::default() };
        let lines =
            TextPrompts { prompts: vec![line(&[5, 6, 7]), line(&[8, 9, 5]), line(&[1, 2])], ..TextPrompts::default() };
        let found = lines.questions(None, (usize::MAX, usize::MAX));
        assert_eq!(found.batches.iter().map(QuestionBatch::rows).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(found.batches[0].batch.targets, [6, 7, NO_TARGET, 9, 5, NO_TARGET]);
        assert_eq!(found.batches[0].questions.len(), 4);
        assert!(found.registers.is_empty());
        assert_eq!(lines.questions(Some(1), (1, 1)).prompts(), 1);
        assert_eq!(lines.questions(None, (1, usize::MAX)).prompts(), 1);

        let asked = TextPrompt { answer: Some(9), hops: 2, ..line(&[5, 6, 7]) };
        let task = TextPrompts { prompts: vec![asked], symbols: vec![8, 9], ..TextPrompts::default() };
        let found = task.questions(None, (usize::MAX, usize::MAX));
        assert_eq!(found.batches[0].questions, [Question { row: 0, position: 2, registers: vec![1] }]);
        assert_eq!((found.batches[0].batch.targets[2], found.batches[0].batch.groups[2]), (9, 2));
    }
}
