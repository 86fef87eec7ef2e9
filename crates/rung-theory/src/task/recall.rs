//! In-context recall: a sequence of key/value pairs, where a repeated key is a query for its value.
//!
//! Unlike MQAR there is no separate span of queries: any pair may be new or a repetition.
//!
//! # Definition
//!
//! Ids 0 .. V/2-1 are keys and V/2 .. V-1 are values (V is `vocabulary`, V/2 rounded down). `length` tokens, an
//! even number of at least 4: key, value, key, value, .. . Each key is independent and uniform, except that the
//! last one repeats the key of a uniformly chosen earlier pair. A key's value is uniform, independent of other
//! keys' values, and the same throughout the prompt.
//!
//! At every key that has occurred before, the target is the id of its value. One field,
//! `symbol`; the metric group of every question is 1.
//!
//! # One sample
//!
//! `recall{length=20,vocabulary=16}`, seed 0:
//!
//! ```text
//! input   k5 v12 k5  v12 k5  v12 k3 v14 k4 v15 k5  v12 k4  v15 k0 v15 k1 v9 k5  v12
//! target  .  .   v12 .   v12 .   .  .   .  .   v12 .   v15 .   .  .   .  .  v12 .
//! ```
//!
//! # Baseline
//!
//! One in the number of values, V - V/2: a key's value is uniform and independent of the keys.
//!
//! # Source
//!
//! Poli et al., *Mechanistic design and scaling of hybrid architectures* (arXiv 2403.17844), in-context recall
//! without noise, with the targets of its test set.

use std::collections::HashMap;
use std::fmt;

use super::options::Options;
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, fill_random,
    random_below, render,
};

/// The sampler stores one value per key, so the vocabulary is bounded too.
const MAX_VOCABULARY: u32 = 1 << 24;

/// The task `recall`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    length: usize,
    vocabulary: u32,
}

/// The pairs, in prompt order.
#[derive(Clone, Debug, Default)]
pub struct RecallInstance {
    keys: Vec<u32>,
    values: Vec<u32>,
    /// Whether each key has occurred before.
    is_repeated: Vec<bool>,
    /// The value of each key that has occurred; [`NO_TARGET`] between samples.
    value_of: Vec<u32>,
}

impl RecallInstance {
    /// Key and value of each pair, and whether the key has occurred before.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32, bool)> + '_ {
        let pairs = self.keys.iter().zip(&self.values).zip(&self.is_repeated);
        pairs.map(|((key, value), is_repeated)| (*key, *value, *is_repeated))
    }
}

impl Recall {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 128, 4..=MAX_TOKENS)? as usize;
        let vocabulary = options.number_u32("vocabulary", 16, 2..=MAX_VOCABULARY)?;
        if length % 2 == 1 {
            return Err(options.sizes_error(format!("{length} tokens"), "an even number of tokens"));
        }
        Ok(Self { length, vocabulary })
    }

    /// The number of keys, and the id of the first value.
    fn key_count(&self) -> u32 {
        self.vocabulary / 2
    }
}

impl fmt::Display for Recall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{{length={},vocabulary={}}}", Self::NAME, self.length, self.vocabulary)
    }
}

impl TaskBase for Recall {
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", self.vocabulary)]
    }

    fn classes(&self) -> u32 {
        self.vocabulary
    }

    fn length(&self) -> usize {
        self.length
    }

    fn baseline(&self) -> f64 {
        1.0 / f64::from(self.vocabulary - self.key_count())
    }

    fn render(&self, prompt: &Prompt) -> String {
        let symbol = |id: u32| if id < self.key_count() { format!("k{id}") } else { format!("v{id}") };
        render::rows(prompt, symbol, symbol)
    }
}

impl Task for Recall {
    const NAME: &'static str = "recall";
    type Instance = RecallInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut RecallInstance) {
        let RecallInstance { keys, values, is_repeated, value_of } = instance;
        let pair_count = self.length / 2;
        keys.resize(pair_count, 0);
        fill_random(rng, self.key_count(), keys);
        keys[pair_count - 1] = keys[random_below(rng, pair_count as u32 - 1) as usize];
        // One random value per pair; those of repeated keys are overwritten.
        values.resize(pair_count, 0);
        fill_random(rng, self.vocabulary - self.key_count(), values);
        is_repeated.clear();
        value_of.resize(self.key_count() as usize, NO_TARGET);
        for (key, value) in keys.iter().zip(values.iter_mut()) {
            let stored_value = &mut value_of[*key as usize];
            is_repeated.push(*stored_value != NO_TARGET);
            if *stored_value == NO_TARGET {
                *stored_value = *value + self.key_count();
            }
            *value = *stored_value;
        }
        for key in keys.iter() {
            value_of[*key as usize] = NO_TARGET;
        }
    }

    fn encode(&self, instance: &RecallInstance, prompt: &mut Prompt) {
        prompt.start(1);
        for (key, value, is_repeated) in instance.pairs() {
            if is_repeated {
                prompt.push_question(&[key], value, SINGLE_GROUP);
            } else {
                prompt.push(&[key]);
            }
            prompt.push(&[value]);
        }
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let mut values: HashMap<u32, u32> = HashMap::new();
        let mut targets = vec![NO_TARGET; tokens.len()];
        for position in (0..tokens.len()).step_by(2) {
            let (key, value) = (tokens[position], tokens[position + 1]);
            if key >= self.vocabulary / 2 || value < self.vocabulary / 2 {
                return Err(OracleError::new::<Self>(position, format!("{key}, {value}"), "a key and a value"));
            }
            match values.insert(key, value) {
                Some(earlier_value) if earlier_value != value => {
                    let found = format!("key {key} with value {value}");
                    return Err(OracleError::new::<Self>(position, found, format!("value {earlier_value}, as before")));
                }
                Some(earlier_value) => targets[position] = earlier_value,
                None => {}
            }
        }
        Ok(targets)
    }
}
