//! Is the number of ones odd? The smallest state that must be kept exactly.
//!
//! One bit of state, flipped by every 1. A recurrence whose transition has no eigenvalue below zero cannot keep it
//! at fixed depth and precision; attention alone needs depth that grows with the length.
//!
//! # Definition
//!
//! `length` bits, independent and fair; id 0 is the bit 0 and id 1 the bit 1. `answer` says where the sum modulo 2
//! is asked:
//!
//! - `last`: after the bits stands one more token, the end mark (id 2), and there the parity of all bits is asked;
//! - `every`: there is no end mark, and at each bit the parity of the bits up to and including it is asked.
//!
//! One field, `symbol`; the group of every question is 1.
//!
//! # One sample
//!
//! `parity{length=12,answer=every}`, seed 0:
//!
//! ```text
//! input  1 1 1 0 1 1 1 0 0 1 1 1
//! asked  1 0 1 1 0 1 0 0 0 1 0 1
//! ```
//!
//! # Baseline
//!
//! 1/2: the sum of fair bits is fair.
//!
//! # Source
//!
//! Folklore; in this form with an end mark in the zoology repository (`data/circuits.py`), and as a test of
//! recurrences in Grazzi et al., *Unlocking state-tracking in linear RNNs through negative eigenvalues* (arXiv
//! 2411.12537).

use std::fmt;

use super::options::Options;
use super::{Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, Task, TaskError, digits, draw, fill};

const END: u32 = 2;

/// The task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    bits: usize,
    every: bool,
}

/// The bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParityInstance {
    /// 0 or 1 each.
    pub bits: Vec<u32>,
}

impl Parity {
    pub(super) fn read(options: &mut Options) -> Result<Self, TaskError> {
        let bits = options.number("length", 32, 1..=MAX_TOKENS - 1)? as usize;
        let every = options.word("answer", &[("last", false), ("every", true)])?;
        Ok(Self { bits, every })
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = if self.every { "every" } else { "last" };
        write!(out, "{}{{length={},answer={answer}}}", Self::NAME, self.bits)
    }
}

impl Task for Parity {
    const NAME: &'static str = "parity";
    type Instance = ParityInstance;

    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", if self.every { 2 } else { 3 })]
    }

    fn classes(&self) -> u32 {
        2
    }

    fn length(&self) -> usize {
        self.bits + usize::from(!self.every)
    }

    fn sample(&self, rng: &mut Rng, instance: &mut ParityInstance) {
        instance.bits.resize(self.bits, 0);
        fill(rng, 2, &mut instance.bits);
    }

    fn encode(&self, instance: &ParityInstance, prompt: &mut Prompt) {
        prompt.start_plain(&instance.bits);
        let mut parity = 0;
        for (position, bit) in instance.bits.iter().enumerate() {
            parity ^= bit;
            if self.every {
                prompt.ask(position, parity, 1);
            }
        }
        if !self.every {
            prompt.push_question(&[END], parity, 1);
        }
    }

    fn instances(&self) -> Option<u128> {
        2_u128.checked_pow(u32::try_from(self.bits).ok()?)
    }

    fn nth(&self, index: u128) -> Option<ParityInstance> {
        digits(index, 2, self.bits).map(|bits| ParityInstance { bits })
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        OracleError::check(self, tokens)?;
        let (bits, asked) = if self.every { (tokens, 0) } else { (&tokens[..self.bits], self.bits) };
        if let Some(position) = bits.iter().position(|bit| *bit == END) {
            return Err(OracleError::new::<Self>(position, "the end mark", "a bit"));
        }
        let ones = |until: usize| tokens[..until].iter().filter(|bit| **bit == 1).count();
        let target = |position: usize| match position {
            _ if position < asked => NO_TARGET,
            _ => (ones((position + 1).min(self.bits)) % 2) as u32,
        };
        Ok((0..tokens.len()).map(target).collect())
    }

    fn draw(&self, prompt: &Prompt) -> String {
        let symbol = |id: u32| if id == END { "end".to_owned() } else { id.to_string() };
        draw::rows(prompt, symbol, |class| class.to_string())
    }
}
