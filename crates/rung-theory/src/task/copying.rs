//! Selective copying: repeat the content, leave out the filler tokens.
//!
//! Content tokens are scattered among filler tokens and must be repeated in order. A recurrent state has to select the content
//! tokens and store all of them.
//!
//! # Definition
//!
//! Ids 0 .. V-1 (V is `vocabulary`) are content, id V is the filler, id V+1 the copy mark. With c = `content` and n
//! = `length`, which is at least 2c + 1:
//!
//! - the first n - c - 1 tokens hold c content tokens, independent and uniform, at a uniformly random set of
//!   positions, and filler tokens elsewhere;
//! - then the copy mark;
//! - then c filler tokens. The target of the i-th of them is the i-th content token.
//!
//! One field, `symbol`. The target class is the content id; the metric group of every question is 1.
//!
//! # One sample
//!
//! `copying{length=18,content=4,vocabulary=10}`, seed 0:
//!
//! ```text
//! input   _ _ _ 6 7 _ _ _ _ _ _ 7 4 copy _ _ _ _
//! target  . . . . . . . . . . . . . .    6 7 7 4
//! ```
//!
//! # Baseline
//!
//! 1/V: content is uniform.
//!
//! # Source
//!
//! Gu and Dao, *Mamba* (arXiv 2312.00752), in the layout of Poli et al., *Mechanistic design and scaling of hybrid
//! architectures* (arXiv 2403.17844), whose generator never puts a filler token after the last content token; here any set
//! of positions is equally likely.

use std::fmt;

use super::options::Options;
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, fill_random,
    random_below, render,
};

/// The task `copying`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copying {
    length: usize,
    content_length: usize,
    vocabulary: u32,
}

/// The content tokens and their positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyingInstance {
    /// Content ids, in order.
    pub content: Vec<u32>,
    /// The position of each, increasing.
    pub positions: Vec<usize>,
}

impl Copying {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 256, 3..=MAX_TOKENS)? as usize;
        let content_length = options.number("content", 16, 1..=MAX_TOKENS)? as usize;
        let vocabulary = options.number_u32("vocabulary", 16, 1..=u32::MAX - 2)?;
        if length < 2 * content_length + 1 {
            let found = format!("{length} tokens for {content_length} content tokens");
            return Err(options.sizes_error(found, format!("a length of at least {}", 2 * content_length + 1)));
        }
        Ok(Self { length, content_length, vocabulary })
    }

    fn filler(&self) -> u32 {
        self.vocabulary
    }

    fn copy_mark(&self) -> u32 {
        self.vocabulary + 1
    }
}

impl fmt::Display for Copying {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, content, vocabulary) = (self.length, self.content_length, self.vocabulary);
        write!(out, "{}{{length={length},content={content},vocabulary={vocabulary}}}", Self::NAME)
    }
}

impl TaskBase for Copying {
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", self.vocabulary + 2)]
    }

    fn classes(&self) -> u32 {
        self.vocabulary
    }

    fn length(&self) -> usize {
        self.length
    }

    fn render(&self, prompt: &Prompt) -> String {
        let symbol = |id: u32| match id {
            _ if id == self.filler() => "_".to_owned(),
            _ if id == self.copy_mark() => "copy".to_owned(),
            _ => id.to_string(),
        };
        render::rows(prompt, symbol, symbol)
    }
}

impl Task for Copying {
    const NAME: &'static str = "copying";
    type Instance = CopyingInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut CopyingInstance) {
        instance.content.resize(self.content_length, 0);
        fill_random(rng, self.vocabulary, &mut instance.content);
        let available_positions = self.length - self.content_length - 1;
        instance.positions.clear();
        for position in 0..available_positions {
            // Selects this position with probability (unplaced tokens) / (remaining positions): every set is equally likely.
            let unplaced = self.content_length - instance.positions.len();
            if (random_below(rng, (available_positions - position) as u32) as usize) < unplaced {
                instance.positions.push(position);
            }
        }
    }

    fn encode(&self, instance: &CopyingInstance, prompt: &mut Prompt) {
        prompt.start(1);
        (0..self.length - self.content_length - 1).for_each(|_| prompt.push(&[self.filler()]));
        for (position, id) in instance.positions.iter().zip(&instance.content) {
            prompt.tokens_mut()[*position] = *id;
        }
        prompt.push(&[self.copy_mark()]);
        instance.content.iter().for_each(|id| prompt.push_question(&[self.filler()], *id, SINGLE_GROUP));
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let content: Vec<u32> = tokens.iter().copied().filter(|id| *id < self.vocabulary).collect();
        let mark_position = tokens.iter().position(|id| *id == self.vocabulary + 1);
        match mark_position {
            Some(mark) if mark + 1 + content.len() == tokens.len() => {
                Ok(vec![NO_TARGET; mark + 1].into_iter().chain(content).collect())
            }
            _ => {
                let found = format!("{} content tokens and the copy mark at {mark_position:?}", content.len());
                Err(OracleError::new::<Self>(tokens.len(), found, "as many tokens after the mark as content before it"))
            }
        }
    }
}
