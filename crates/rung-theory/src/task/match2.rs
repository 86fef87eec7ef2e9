//! 2-Sum at every token: which values have a partner with sum 0?
//!
//! # Definition
//!
//! Values `x_1 .. x_n` in 0 .. M-1 (n is `length`, M is `modulus`). At token i: is there a j with `x_i + x_j = 0
//! mod M`? Class 1 is yes, class 0 is no. `scope` is the set of allowed j:
//!
//! - `before`: j < i, which a causal stack can read. The first token has no question, since its answer is always
//!   no;
//! - `all`: every j, also j > i and j = i, as in the source. Only a bidirectional stack can answer.
//!
//! Whether j = i counts never matters in a sample: 0 and, for even M, M/2 are their own negatives, and no sample
//! has them. Write V for the other values; sampling is symmetric in them.
//!
//! Samples, `before`: `x_1` is uniform over V. Then at each token a fair coin decides the label. Yes: `x_i = -x_j`
//! for a uniform j < i. No: `x_i` is uniform over the values of V whose negative has not occurred. This needs n
//! values in V.
//!
//! Samples, `all`: the pairs {v, -v} are split at random into two halves, yes-pairs and no-pairs, and each no-pair
//! keeps only one of its two values, by a fair coin. The positions are grouped in random couples (so n is even), and a
//! fair coin decides the label of each couple. Yes: a uniform yes-pair, in random order. No: two independent uniform
//! no-values. This needs two pairs, so M >= 5.
//!
//! Values may repeat. One field, `value`; the metric group of every question is 1.
//!
//! # One sample
//!
//! `match2{length=12,modulus=16,scope=before}`, seed 0:
//!
//! ```text
//! input   5 11  5   11  7  11  9   5   11  4  11  4
//! target  . yes yes yes no yes yes yes yes no yes no
//! ```
//!
//! # Baseline
//!
//! 1/2. Each label is a fair coin flip, and sampling has a symmetry that maps any value of V to any other, so `x_i` alone gives no
//! information.
//!
//! # Source
//!
//! Sanford, Hsu and Telgarsky, *Representational strengths and limitations of transformers* (arXiv 2306.02896). The
//! causal scope and the distributions are ours.

use std::fmt;

use super::options::{Options, word_of, yes_no};
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, random_below,
    random_bool, render, shuffle,
};

/// The sampler has one flag per value, so the modulus is bounded too.
const MAX_MODULUS: u32 = 1 << 20;

/// Which positions count as partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Earlier positions.
    Before,
    /// All positions.
    All,
}

const SCOPES: [(&str, Scope); 2] = [("before", Scope::Before), ("all", Scope::All)];

/// The task `match2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match2 {
    length: usize,
    modulus: u32,
    scope: Scope,
}

/// Values and labels.
#[derive(Clone, Debug, Default)]
pub struct Match2Instance {
    /// `x_1 .. x_n`.
    pub values: Vec<u32>,
    /// Whether each value has a partner, also for the first.
    pub has_partner: Vec<bool>,
    /// Whether a value has occurred; all false between samples.
    has_occurred: Vec<bool>,
    /// Positions in random order, for the couples.
    order: Vec<usize>,
    /// Pairs {v, -v}, each represented by one of its values.
    pairs: Vec<u32>,
}

impl Match2 {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 32, 2..=MAX_TOKENS)? as usize;
        let modulus = options.number_u32("modulus", 64, 5..=MAX_MODULUS)?;
        let scope = options.word("scope", &SCOPES)?;
        let task = Self { length, modulus, scope };
        if scope == Scope::Before && 2 * u64::from(task.pair_count()) < length as u64 {
            let found =
                format!("{length} tokens with {} values that are not their own negative", 2 * task.pair_count());
            return Err(options.sizes_error(found, "a modulus that has as many such values as tokens"));
        }
        if scope == Scope::All && length % 2 == 1 {
            return Err(options.sizes_error(format!("scope=all with {length} tokens"), "an even number of tokens"));
        }
        Ok(task)
    }

    /// The modulus of the sums.
    pub fn modulus(&self) -> u32 {
        self.modulus
    }

    /// The number of pairs {v, -v} with two different values. The lower ones are 1 ..= this number.
    fn pair_count(&self) -> u32 {
        (self.modulus - 1) / 2
    }

    /// A uniform value that is not its own negative.
    fn random_value(&self, rng: &mut Rng) -> u32 {
        let lower = 1 + random_below(rng, self.pair_count());
        if random_bool(rng) { lower } else { self.modulus - lower }
    }

    fn sample_before(&self, rng: &mut Rng, instance: &mut Match2Instance) {
        instance.has_occurred.resize(self.modulus as usize, false);
        for position in 0..self.length {
            let has_partner = position > 0 && random_bool(rng);
            let value = if has_partner {
                self.modulus - instance.values[random_below(rng, position as u32) as usize]
            } else {
                // Over a prompt this takes at most about n log n draws (coupon collector).
                loop {
                    let value = self.random_value(rng);
                    if !instance.has_occurred[(self.modulus - value) as usize] {
                        break value;
                    }
                }
            };
            instance.has_occurred[value as usize] = true;
            instance.values.push(value);
            instance.has_partner.push(has_partner);
        }
        for value in &instance.values {
            instance.has_occurred[*value as usize] = false;
        }
    }

    fn sample_all(&self, rng: &mut Rng, instance: &mut Match2Instance) {
        instance.values.resize(self.length, 0);
        instance.has_partner.resize(self.length, false);
        instance.pairs.clear();
        instance.pairs.extend(1..=self.pair_count());
        shuffle(rng, &mut instance.pairs);
        instance.order.clear();
        instance.order.extend(0..self.length);
        shuffle(rng, &mut instance.order);
        let (yes_pairs, no_values) = instance.pairs.split_at_mut(self.pair_count() as usize / 2);
        for value in no_values.iter_mut() {
            *value = if random_bool(rng) { *value } else { self.modulus - *value };
        }
        for couple in instance.order.as_chunks::<2>().0 {
            let has_partner = random_bool(rng);
            let values = if has_partner {
                let value = yes_pairs[random_below(rng, yes_pairs.len() as u32) as usize];
                if random_bool(rng) { [value, self.modulus - value] } else { [self.modulus - value, value] }
            } else {
                [(); 2].map(|()| no_values[random_below(rng, no_values.len() as u32) as usize])
            };
            for (position, value) in couple.iter().zip(values) {
                instance.values[*position] = value;
                instance.has_partner[*position] = has_partner;
            }
        }
    }
}

impl fmt::Display for Match2 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = word_of(&SCOPES, self.scope);
        write!(out, "{}{{length={},modulus={},scope={scope}}}", Self::NAME, self.length, self.modulus)
    }
}

impl TaskBase for Match2 {
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

impl Task for Match2 {
    const NAME: &'static str = "match2";
    type Instance = Match2Instance;

    fn sample(&self, rng: &mut Rng, instance: &mut Match2Instance) {
        instance.values.clear();
        instance.has_partner.clear();
        match self.scope {
            Scope::Before => self.sample_before(rng, instance),
            Scope::All => self.sample_all(rng, instance),
        }
    }

    fn encode(&self, instance: &Match2Instance, prompt: &mut Prompt) {
        prompt.start_single_field(&instance.values);
        let first_question = usize::from(self.scope == Scope::Before);
        for (position, has_partner) in instance.has_partner.iter().enumerate().skip(first_question) {
            prompt.set_target(position, u32::from(*has_partner), SINGLE_GROUP);
        }
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let target = |position: usize| {
            let candidates = match self.scope {
                Scope::Before if position == 0 => return NO_TARGET,
                Scope::Before => &tokens[..position],
                Scope::All => tokens,
            };
            u32::from(candidates.iter().any(|value| (value + tokens[position]).is_multiple_of(self.modulus)))
        };
        Ok((0..tokens.len()).map(target).collect())
    }
}
