//! Parity: is the number of ones odd?
//!
//! It needs one bit of state, which every 1 flips. A recurrence whose transition has no eigenvalue below zero cannot keep it
//! at fixed depth and precision; attention alone needs depth that grows with the length.
//!
//! # Definition
//!
//! `length` bits, independent and fair; id 0 is the bit 0 and id 1 the bit 1. `answer` is where the sum modulo 2
//! must be predicted:
//!
//! - `last`: after the bits comes an end mark (id 2), whose target is the parity of all bits;
//! - `every`: there is no end mark, and the target at each bit is the parity of the bits up to and including it.
//!
//! One field, `symbol`; the metric group of every question is 1.
//!
//! # One sample
//!
//! `parity{length=12,answer=every}`, seed 0:
//!
//! ```text
//! input   1 1 1 0 1 1 1 0 0 1 1 1
//! target  1 0 1 1 0 1 0 0 0 1 0 1
//! ```
//!
//! # Baseline
//!
//! 1/2: the parity of fair bits is fair.
//!
//! # Source
//!
//! Folklore; in this form with an end mark in the zoology repository (`data/circuits.py`), and as a test of
//! recurrences in Grazzi et al., *Unlocking state-tracking in linear RNNs through negative eigenvalues* (arXiv
//! 2411.12537).

use std::fmt;

use super::options::Options;
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, digits,
    fill_random, render,
};

const END: u32 = 2;

/// The task `parity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    bit_count: usize,
    /// Whether every bit has a question, not only the end mark.
    answers_every_bit: bool,
}

/// The bits of one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParityInstance {
    /// 0 or 1 each.
    pub bits: Vec<u32>,
}

impl Parity {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let bit_count = options.number("length", 32, 1..=MAX_TOKENS - 1)? as usize;
        let answers_every_bit = options.word("answer", &[("last", false), ("every", true)])?;
        Ok(Self { bit_count, answers_every_bit })
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = if self.answers_every_bit { "every" } else { "last" };
        write!(out, "{}{{length={},answer={answer}}}", Self::NAME, self.bit_count)
    }
}

impl TaskBase for Parity {
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", if self.answers_every_bit { 2 } else { 3 })]
    }

    fn classes(&self) -> u32 {
        2
    }

    fn length(&self) -> usize {
        self.bit_count + usize::from(!self.answers_every_bit)
    }

    fn render(&self, prompt: &Prompt) -> String {
        let symbol = |id: u32| if id == END { "end".to_owned() } else { id.to_string() };
        render::rows(prompt, symbol, |class| class.to_string())
    }
}

impl Task for Parity {
    const NAME: &'static str = "parity";
    type Instance = ParityInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut ParityInstance) {
        instance.bits.resize(self.bit_count, 0);
        fill_random(rng, 2, &mut instance.bits);
    }

    fn encode(&self, instance: &ParityInstance, prompt: &mut Prompt) {
        prompt.start_single_field(&instance.bits);
        let mut parity = 0;
        for (position, bit) in instance.bits.iter().enumerate() {
            parity ^= bit;
            if self.answers_every_bit {
                prompt.set_target(position, parity, SINGLE_GROUP);
            }
        }
        if !self.answers_every_bit {
            prompt.push_question(&[END], parity, SINGLE_GROUP);
        }
    }

    fn instance_count(&self) -> Option<u128> {
        2_u128.checked_pow(u32::try_from(self.bit_count).ok()?)
    }

    fn nth_instance(&self, index: u128) -> Option<ParityInstance> {
        digits(index, 2, self.bit_count).map(|bits| ParityInstance { bits })
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let (bits, first_question) =
            if self.answers_every_bit { (tokens, 0) } else { (&tokens[..self.bit_count], self.bit_count) };
        if let Some(position) = bits.iter().position(|bit| *bit == END) {
            return Err(OracleError::new::<Self>(position, "the end mark", "a bit"));
        }
        let count_ones = |end: usize| tokens[..end].iter().filter(|bit| **bit == 1).count();
        let target = |position: usize| match position {
            _ if position < first_question => NO_TARGET,
            _ => (count_ones((position + 1).min(self.bit_count)) % 2) as u32,
        };
        Ok((0..tokens.len()).map(target).collect())
    }
}
