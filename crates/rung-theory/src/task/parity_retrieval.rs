//! Parity-conditioned retrieval: look up a key, in the column that a parity chooses.
//!
//! It combines state tracking, which is hard for attention, and recall from a table, which is hard for a fixed-size state. A
//! hybrid can do both.
//!
//! # Definition
//!
//! **This definition is ours.** The paper that names the task was not available to us; when it is, its definition
//! should replace this one.
//!
//! - `bits` fair bits, one token each;
//! - then a table of `entries` tokens, each a key and two values; the keys are different, drawn uniformly without
//!   replacement from `keys`; the two values of an entry are a uniform pair of different values below `values`, so
//!   that the parity always matters;
//! - then one query token with the key of a uniformly chosen entry. Its target is the entry's first value if the
//!   number of ones among the bits is even, its second if it is odd.
//!
//! One token per entry, so that the task measures retrieval and not the assembly of entries. Five fields; a value v
//! has id v, and except in `kind` the last id is the blank:
//!
//! | field | ids | used by |
//! |---|---|---|
//! | `kind` | 0 bit, 1 entry, 2 query | all |
//! | `bit` | 0, 1 | bits |
//! | `key` | the key | entries, query |
//! | `even` | the value for even parity | entries |
//! | `odd` | the value for odd parity | entries |
//!
//! The target class is the value; the group of the question is 1. Two ablations are settings: with `bits=1` the
//! parity is trivial, with `entries=1` the look-up is.
//!
//! # One sample
//!
//! `parity-retrieval{bits=8,entries=4,keys=8,values=10}`, seed 0:
//!
//! ```text
//! bits   1 1 1 0 1 1 1 0
//! table  k1=(4,5) k7=(8,7) k5=(8,9) k2=(9,1)
//! query  k7 -> 8
//! ```
//!
//! # Baseline
//!
//! One in `values`. (Reading the right entry without the parity gives 1/2.)
//!
//! # Source
//!
//! The name and the claim about hybrids: Steifer (arXiv 2605.16640). The definition: ours, as said above.

use std::fmt;

use super::options::Options;
use super::{
    DistinctSampler, Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError,
    fill_random, random_below, render,
};

const BIT: u32 = 0;
const ENTRY: u32 = 1;
const QUERY: u32 = 2;

/// The sampler has a list of all keys, so their number is bounded.
const MAX_KEYS: u32 = 1 << 24;

/// The largest number of bits, and of entries: a token has five ids, and the total number of ids is bounded.
const MAX_BITS_OR_ENTRIES: u64 = MAX_TOKENS / 4;

/// The task `parity-retrieval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityRetrieval {
    bit_count: usize,
    entry_count: usize,
    key_count: u32,
    value_count: u32,
}

/// Bits, table and query.
#[derive(Clone, Debug, Default)]
pub struct ParityRetrievalInstance {
    /// 0 or 1 each.
    pub bits: Vec<u32>,
    /// The key of each entry.
    pub keys: Vec<u32>,
    /// The value of each entry for even parity.
    pub even_values: Vec<u32>,
    /// The value of each entry for odd parity.
    pub odd_values: Vec<u32>,
    /// The index of the queried entry.
    pub queried_entry: usize,
    key_sampler: DistinctSampler,
}

impl ParityRetrieval {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let bit_count = options.number("bits", 16, 1..=MAX_BITS_OR_ENTRIES)? as usize;
        let entry_count = options.number("entries", 8, 1..=MAX_BITS_OR_ENTRIES)? as usize;
        let key_count = options.number_u32("keys", 16, 1..=MAX_KEYS)?;
        let value_count = options.number_u32("values", 16, 2..=u32::MAX - 1)?;
        if entry_count > key_count as usize {
            return Err(options.sizes_error(
                format!("{entry_count} entries and {key_count} keys"),
                "at least as many keys as entries",
            ));
        }
        Ok(Self { bit_count, entry_count, key_count, value_count })
    }
}

impl fmt::Display for ParityRetrieval {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bits, entries, keys, values) =
            (Self::NAME, self.bit_count, self.entry_count, self.key_count, self.value_count);
        write!(out, "{name}{{bits={bits},entries={entries},keys={keys},values={values}}}")
    }
}

impl TaskBase for ParityRetrieval {
    fn fields(&self) -> Vec<Field> {
        let fields = [
            ("kind", 3),
            ("bit", 3),
            ("key", self.key_count + 1),
            ("even", self.value_count + 1),
            ("odd", self.value_count + 1),
        ];
        fields.into_iter().map(|(name, vocabulary)| Field::new(name, vocabulary)).collect()
    }

    fn classes(&self) -> u32 {
        self.value_count
    }

    fn length(&self) -> usize {
        self.bit_count + self.entry_count + 1
    }

    fn render(&self, prompt: &Prompt) -> String {
        let rows: Vec<&[u32]> = prompt.tokens().chunks_exact(prompt.ids_per_token().max(1)).collect();
        let of_kind = |kind| rows.iter().filter(move |row| row[0] == kind).collect::<Vec<_>>();
        let (bits, entries, queries) = (of_kind(BIT), of_kind(ENTRY), of_kind(QUERY));
        let mut text = String::new();
        render::list(&mut text, "bits", bits.len(), |index| bits[index][1].to_string());
        let entry = |index: usize| format!("k{}=({},{})", entries[index][2], entries[index][3], entries[index][4]);
        render::list(&mut text, "table", entries.len(), entry);
        let answers: Vec<u32> = prompt.questions().map(|(_, target, _)| target).collect();
        render::list(&mut text, "query", queries.len(), |index| {
            format!("k{} -> {}", queries[index][2], answers[index])
        });
        text
    }
}

impl Task for ParityRetrieval {
    const NAME: &'static str = "parity-retrieval";
    type Instance = ParityRetrievalInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut ParityRetrievalInstance) {
        let ParityRetrievalInstance { bits, keys, even_values, odd_values, queried_entry, key_sampler } = instance;
        bits.resize(self.bit_count, 0);
        fill_random(rng, 2, bits);
        keys.clear();
        key_sampler.sample(rng, self.key_count, self.entry_count, keys);
        even_values.resize(self.entry_count, 0);
        fill_random(rng, self.value_count, even_values);
        odd_values.resize(self.entry_count, 0);
        fill_random(rng, self.value_count - 1, odd_values);
        // Skips the even value, so that the two values differ.
        odd_values.iter_mut().zip(even_values.iter()).for_each(|(odd, even)| *odd += u32::from(*odd >= *even));
        *queried_entry = random_below(rng, self.entry_count as u32) as usize;
    }

    fn encode(&self, instance: &ParityRetrievalInstance, prompt: &mut Prompt) {
        let (no_bit, no_key, no_value) = (2, self.key_count, self.value_count);
        prompt.start(5);
        for bit in &instance.bits {
            prompt.push(&[BIT, *bit, no_key, no_value, no_value]);
        }
        for ((key, even), odd) in instance.keys.iter().zip(&instance.even_values).zip(&instance.odd_values) {
            prompt.push(&[ENTRY, no_bit, *key, *even, *odd]);
        }
        let values =
            if instance.bits.iter().sum::<u32>() % 2 == 0 { &instance.even_values } else { &instance.odd_values };
        let query = [QUERY, no_bit, instance.keys[instance.queried_entry], no_value, no_value];
        prompt.push_question(&query, values[instance.queried_entry], SINGLE_GROUP);
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let rows: Vec<&[u32]> = tokens.chunks_exact(5).collect();
        let last = rows.len() - 1;
        if rows[last][0] != QUERY {
            return Err(OracleError::new::<Self>(last, "another token", "the query"));
        }
        let parity_is_odd = rows.iter().filter(|row| row[0] == BIT && row[1] == 1).count() % 2 == 1;
        let matching: Vec<_> = rows.iter().filter(|row| row[0] == ENTRY && row[2] == rows[last][2]).collect();
        let [entry] = matching[..] else {
            let found = format!("a query for a key with {} entries", matching.len());
            return Err(OracleError::new::<Self>(last, found, "one entry"));
        };
        let mut targets = vec![NO_TARGET; rows.len()];
        targets[last] = entry[if parity_is_odd { 4 } else { 3 }];
        Ok(targets)
    }
}
