//! Induction head: which token followed the trigger at its first occurrence?
//!
//! The smallest task in which a token must be found by the token before it. Two attention layers solve it, one that
//! shifts and one that looks up; so does one look-up after a short convolution.
//!
//! # Definition
//!
//! `length` tokens. Ids 0 .. V-1 (V is `vocabulary`) are ordinary, id V is the trigger. The trigger is at the
//! last position and at exactly one earlier position, uniform among those with at least one token between; all
//! other tokens are ordinary, independent and uniform. The target at the last position is the token after the first
//! trigger.
//!
//! One field, `symbol`. The target class is the id of that token; the group of the question is 1.
//!
//! # One sample
//!
//! `induction{length=16,vocabulary=10}`, seed 0:
//!
//! ```text
//! input   6 7 7 4 5 6 ! 0 1 8 5 5 4 8 8 !
//! target  . . . . . . . . . . . . . . . 0
//! ```
//!
//! # Baseline
//!
//! 1/V: the token after the trigger is uniform.
//!
//! # Source
//!
//! Fu et al., *Hungry hungry hippos* (arXiv 2212.14052), with code in the safari repository. There the trigger may
//! also occur several times; here it occurs once before the last position, so that the answer is unique.

use std::fmt;

use super::options::Options;
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, fill_random,
    random_below, render,
};

/// The task `induction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Induction {
    length: usize,
    vocabulary: u32,
}

/// Tokens and the position of the first trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InductionInstance {
    /// All tokens, triggers included.
    pub tokens: Vec<u32>,
    /// The position of the first trigger.
    pub trigger: usize,
}

impl Induction {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 32, 3..=MAX_TOKENS)? as usize;
        let vocabulary = options.number_u32("vocabulary", 16, 1..=u32::MAX - 1)?;
        Ok(Self { length, vocabulary })
    }
}

impl fmt::Display for Induction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{{length={},vocabulary={}}}", Self::NAME, self.length, self.vocabulary)
    }
}

impl TaskBase for Induction {
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", self.vocabulary + 1)]
    }

    fn classes(&self) -> u32 {
        self.vocabulary
    }

    fn length(&self) -> usize {
        self.length
    }

    fn render(&self, prompt: &Prompt) -> String {
        let symbol = |id: u32| if id == self.vocabulary { "!".to_owned() } else { id.to_string() };
        render::rows(prompt, symbol, |class| class.to_string())
    }
}

impl Task for Induction {
    const NAME: &'static str = "induction";
    type Instance = InductionInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut InductionInstance) {
        instance.tokens.resize(self.length, 0);
        fill_random(rng, self.vocabulary, &mut instance.tokens);
        instance.trigger = random_below(rng, self.length as u32 - 2) as usize;
        instance.tokens[instance.trigger] = self.vocabulary;
        instance.tokens[self.length - 1] = self.vocabulary;
    }

    fn encode(&self, instance: &InductionInstance, prompt: &mut Prompt) {
        prompt.start_single_field(&instance.tokens);
        prompt.set_target(instance.tokens.len() - 1, instance.tokens[instance.trigger + 1], SINGLE_GROUP);
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let last = tokens.len() - 1;
        let triggers: Vec<usize> = (0..=last).filter(|position| tokens[*position] == self.vocabulary).collect();
        if triggers.len() != 2 || triggers[1] != last || triggers[0] + 1 == last {
            let expected = "one trigger at the last position and one at least two positions earlier";
            return Err(OracleError::new::<Self>(last, format!("triggers at {triggers:?}"), expected));
        }
        let mut targets = vec![NO_TARGET; tokens.len()];
        targets[last] = tokens[triggers[0] + 1];
        Ok(targets)
    }
}
