//! 2-Sum at the last token: does some earlier value have sum 0 with it?
//!
//! The last value is compared with all earlier ones. One full attention layer solves this; a layer that selects a few
//! earlier blocks may miss the partner.
//!
//! # Definition
//!
//! Values `x_1 .. x_n` in 0 .. M-1 (n is `length`, M is `modulus`). At the last token, and only there: is there a j
//! < n with `x_j + x_n = 0 mod M`? Class 1 is yes, class 0 is no. The last token itself does not count, so 0 needs
//! another 0.
//!
//! Samples: the label is a fair coin and `x_n` is uniform, independently. Let `p = -x_n mod M` be the partner.
//!
//! - no: the other values are independent and uniform over everything but p;
//! - yes: a uniformly chosen one of them is p, and the rest are independent and uniform over all values, p
//!   included.
//!
//! Values may repeat. One field, `value`; the group of the question is 1.
//!
//! # One sample
//!
//! `twosum{length=12,modulus=16}`, seed 0:
//!
//! ```text
//! input   11 7 8 11 8 0 3 14 9 6 6 10
//! target  .  . . .  . . . .  . . . yes
//! ```
//!
//! # Baseline
//!
//! 1/2, even for a guess that reads `x_n`: the label is drawn without looking at it.
//!
//! # Source
//!
//! Sanford, Hsu and Telgarsky, *Representational strengths and limitations of transformers* (arXiv 2306.02896),
//! Match2, restricted to the last position. The distribution is ours.

use std::fmt;

use super::options::{Options, yes_no};
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, digits,
    fill_random, random_below, random_bool, render,
};

/// The task `twosum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoSum {
    length: usize,
    modulus: u32,
}

/// Values and whether the last has a partner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TwoSumInstance {
    /// `x_1 .. x_n`.
    pub values: Vec<u32>,
    /// The label: whether the last value has a partner.
    pub has_partner: bool,
}

impl TwoSum {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 32, 2..=MAX_TOKENS)? as usize;
        let modulus = options.number_u32("modulus", 64, 2..=u32::MAX)?;
        Ok(Self { length, modulus })
    }
}

impl fmt::Display for TwoSum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{{length={},modulus={}}}", Self::NAME, self.length, self.modulus)
    }
}

impl TaskBase for TwoSum {
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("value", self.modulus)]
    }

    fn classes(&self) -> u32 {
        2
    }

    fn length(&self) -> usize {
        self.length
    }

    fn render(&self, prompt: &Prompt) -> String {
        render::rows(prompt, |id| id.to_string(), |class| yes_no(class == 1).to_owned())
    }
}

impl Task for TwoSum {
    const NAME: &'static str = "twosum";
    type Instance = TwoSumInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut TwoSumInstance) {
        instance.values.resize(self.length, 0);
        let (others, last) = instance.values.split_at_mut(self.length - 1);
        last[0] = random_below(rng, self.modulus);
        let partner = if last[0] == 0 { 0 } else { self.modulus - last[0] };
        instance.has_partner = random_bool(rng);
        if instance.has_partner {
            fill_random(rng, self.modulus, others);
            others[random_below(rng, self.length as u32 - 1) as usize] = partner;
        } else {
            fill_random(rng, self.modulus - 1, others);
            // Skips the partner: values from it on move up by one.
            for value in others {
                *value += u32::from(*value >= partner);
            }
        }
    }

    fn encode(&self, instance: &TwoSumInstance, prompt: &mut Prompt) {
        prompt.start_single_field(&instance.values);
        prompt.set_target(instance.values.len() - 1, u32::from(instance.has_partner), SINGLE_GROUP);
    }

    fn instance_count(&self) -> Option<u128> {
        u128::from(self.modulus).checked_pow(u32::try_from(self.length).ok()?)
    }

    fn nth_instance(&self, index: u128) -> Option<TwoSumInstance> {
        let values = digits(index, self.modulus, self.length)?;
        let (last, others) = values.split_last()?;
        let has_partner =
            others.iter().any(|value| (u64::from(*value) + u64::from(*last)) % u64::from(self.modulus) == 0);
        Some(TwoSumInstance { values, has_partner })
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let mut targets = vec![NO_TARGET; tokens.len()];
        let last = tokens.len() - 1;
        let cancels = |value: &u32| (u64::from(*value) + u64::from(tokens[last])) % u64::from(self.modulus) == 0;
        targets[last] = u32::from(tokens[..last].iter().any(cancels));
        Ok(targets)
    }
}
