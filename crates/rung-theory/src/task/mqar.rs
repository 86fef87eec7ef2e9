//! Multi-query associative recall: many key/value pairs, each queried once.
//!
//! A list of key/value pairs, then a span in which every key occurs again and its value must be predicted. It needs a
//! state large enough for all pairs; on this task recurrent layers of fixed state size are clearly worse than
//! attention.
//!
//! # Definition
//!
//! Ids: 0 is the filler; keys are 1 .. V/2-1; values are V/2 .. V-1 (V is `vocabulary`, V/2 rounded down). One
//! field, `symbol`.
//!
//! - `pairs` different keys and as many different values, both uniform without replacement, come as key, value,
//!   key, value, .. in the first 2 * `pairs` tokens.
//! - The rest, up to `length` tokens, is split into places of two tokens. Each key is queried once, at the first token
//!   of a separate place; places are drawn without replacement, in the order of the pairs. `spread=near`: place g
//!   (from 0) with weight floor(2^32/(g+1)), so that most queries come early; `spread=uniform`: all places equally likely.
//! - The other tokens are the filler, or with `filler=noise` independent uniform values. They are never keys, so every
//!   repeated key is a query.
//!
//! The target, at the repeated key, is the id of its value. The metric group of every question is 1. `length` is even
//! and at least 4 * `pairs`.
//!
//! # One sample
//!
//! `mqar{length=20,pairs=3,vocabulary=32,spread=uniform,filler=blank}`, seed 0:
//!
//! ```text
//! input   k10 v23 k11 v24 k12 v27 _ _ k11 _ k12 _ k10 _ _ _ _ _ _ _
//! target  .   .   .   .   .   .   . . v24 . v27 . v23 . . . . . . .
//! ```
//!
//! # Baseline
//!
//! One in the number of values, V - V/2: each value is uniform among them.
//!
//! # Source
//!
//! Arora et al., *Zoology: measuring and improving recall in efficient language models* (arXiv 2312.04927). Two
//! deviations: the published weights are (g+1)^-0.99, ours have the exponent -1 and are rounded to integers; and
//! the published noise is drawn from the whole vocabulary, where it may hit a key.

use std::collections::HashMap;
use std::fmt;

use super::options::Options;
use super::{
    DistinctSampler, Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError,
    fill_random, random_below_u64, render,
};

const FILLER: u32 = 0;

/// The sampler has a list of all keys, so the vocabulary is bounded too.
const MAX_VOCABULARY: u32 = 1 << 24;

/// The task `mqar`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mqar {
    length: usize,
    pair_count: usize,
    vocabulary: u32,
    /// Whether queries are more likely in early places.
    prefers_early_places: bool,
    /// Whether the filler is random values.
    has_noise_filler: bool,
}

/// Pairs and the places of their queries.
#[derive(Clone, Debug, Default)]
pub struct MqarInstance {
    /// Ids of the keys.
    pub keys: Vec<u32>,
    /// Ids of their values.
    pub values: Vec<u32>,
    /// The place in which each key is queried.
    pub query_places: Vec<u32>,
    /// The tokens of the query span, before the keys are inserted.
    pub filler: Vec<u32>,
    key_sampler: DistinctSampler,
    value_sampler: DistinctSampler,
    place_sampler: DistinctSampler,
    weighted_places: WeightedPlaces,
}

impl Mqar {
    /// Number of pairs of key and value.
    pub fn pair_count(&self) -> usize {
        self.pair_count
    }

    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 64, 4..=MAX_TOKENS)? as usize;
        let pair_count = options.number("pairs", 4, 1..=MAX_TOKENS)? as usize;
        let vocabulary = options.number_u32("vocabulary", 8192, 4..=MAX_VOCABULARY)?;
        let prefers_early_places = options.word("spread", &[("near", true), ("uniform", false)])?;
        let has_noise_filler = options.word("filler", &[("blank", false), ("noise", true)])?;
        if length % 2 == 1 || length < 4 * pair_count {
            let expected = format!("an even length of at least {}", 4 * pair_count);
            return Err(options.sizes_error(format!("{length} tokens for {pair_count} pairs"), expected));
        }
        if pair_count > vocabulary as usize / 2 - 1 {
            let found = format!("{pair_count} pairs with a vocabulary of {vocabulary}");
            return Err(options.sizes_error(found, format!("a vocabulary of at least {}", 2 * pair_count + 2)));
        }
        Ok(Self { length, pair_count, vocabulary, prefers_early_places, has_noise_filler })
    }

    /// The id of the first value.
    fn first_value(&self) -> u32 {
        self.vocabulary / 2
    }

    /// The number of two-token places after the pairs.
    fn place_count(&self) -> usize {
        self.length / 2 - self.pair_count
    }
}

/// Draws places without replacement, place g with weight 2^32/(g+1).
///
/// A binary indexed tree of weight sums, so that a draw takes logarithmic time.
#[derive(Clone, Debug, Default)]
struct WeightedPlaces {
    sums: Vec<u64>,
    total: u64,
}

impl WeightedPlaces {
    fn weight(place: usize) -> u64 {
        (1 << 32) / (place as u64 + 1)
    }

    /// Makes all places available again.
    fn reset(&mut self, place_count: usize) {
        self.sums.clear();
        self.sums.push(0);
        self.sums.extend((0..place_count).map(Self::weight));
        self.total = self.sums.iter().sum();
        for node in 1..=place_count {
            let parent = node + (node & node.wrapping_neg());
            if parent <= place_count {
                self.sums[parent] += self.sums[node];
            }
        }
    }

    fn sample(&mut self, rng: &mut Rng) -> u32 {
        let mut target = random_below_u64(rng, self.total);
        let mut node = 0;
        let mut step = (self.sums.len() / 2).next_power_of_two();
        while step > 0 {
            if node + step < self.sums.len() && self.sums[node + step] <= target {
                node += step;
                target -= self.sums[node];
            }
            step /= 2;
        }
        let (place, weight) = (node, Self::weight(node));
        self.total -= weight;
        let mut node = place + 1;
        while node < self.sums.len() {
            self.sums[node] -= weight;
            node += node & node.wrapping_neg();
        }
        place as u32
    }
}

impl fmt::Display for Mqar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = if self.prefers_early_places { "near" } else { "uniform" };
        let filler = if self.has_noise_filler { "noise" } else { "blank" };
        let (name, length, pairs, vocabulary) = (Self::NAME, self.length, self.pair_count, self.vocabulary);
        write!(out, "{name}{{length={length},pairs={pairs},vocabulary={vocabulary},spread={spread},filler={filler}}}")
    }
}

impl TaskBase for Mqar {
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
        1.0 / f64::from(self.vocabulary - self.first_value())
    }

    fn render(&self, prompt: &Prompt) -> String {
        let symbol = |id: u32| match id {
            FILLER => "_".to_owned(),
            _ if id < self.first_value() => format!("k{id}"),
            _ => format!("v{id}"),
        };
        render::rows(prompt, symbol, symbol)
    }
}

impl Task for Mqar {
    const NAME: &'static str = "mqar";
    type Instance = MqarInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut MqarInstance) {
        let MqarInstance {
            keys,
            values,
            query_places,
            filler,
            key_sampler,
            value_sampler,
            place_sampler,
            weighted_places,
        } = instance;
        keys.clear();
        key_sampler.sample(rng, self.first_value() - 1, self.pair_count, keys);
        for key in keys.iter_mut() {
            *key += 1;
        }
        values.clear();
        value_sampler.sample(rng, self.vocabulary - self.first_value(), self.pair_count, values);
        for value in values.iter_mut() {
            *value += self.first_value();
        }
        query_places.clear();
        if self.prefers_early_places {
            weighted_places.reset(self.place_count());
            query_places.extend((0..self.pair_count).map(|_| weighted_places.sample(rng)));
        } else {
            place_sampler.sample(rng, self.place_count() as u32, self.pair_count, query_places);
        }
        filler.clear();
        filler.resize(2 * self.place_count(), FILLER);
        if self.has_noise_filler {
            fill_random(rng, self.vocabulary - self.first_value(), filler);
            for token in filler.iter_mut() {
                *token += self.first_value();
            }
        }
    }

    fn encode(&self, instance: &MqarInstance, prompt: &mut Prompt) {
        prompt.start(1);
        for (key, value) in instance.keys.iter().zip(&instance.values) {
            prompt.push(&[*key]);
            prompt.push(&[*value]);
        }
        let first = prompt.len();
        instance.filler.iter().for_each(|token| prompt.push(&[*token]));
        for ((key, value), place) in instance.keys.iter().zip(&instance.values).zip(&instance.query_places) {
            let position = first + 2 * *place as usize;
            prompt.tokens_mut()[position] = *key;
            prompt.set_target(position, *value, SINGLE_GROUP);
        }
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let is_key = |token: u32| token != FILLER && token < self.vocabulary / 2;
        // The first occurrence of a key is followed by its value; later occurrences are queries.
        let mut values = HashMap::new();
        let mut targets = vec![NO_TARGET; tokens.len()];
        for (position, token) in tokens.iter().enumerate().filter(|(_, token)| is_key(**token)) {
            if let Some(value) = values.get(token) {
                targets[position] = *value;
                continue;
            }
            match tokens.get(position + 1) {
                Some(value) if *value >= self.vocabulary / 2 => values.insert(*token, *value),
                _ => return Err(OracleError::new::<Self>(position, "a new key without a value", "a value after it")),
            };
        }
        Ok(targets)
    }
}
