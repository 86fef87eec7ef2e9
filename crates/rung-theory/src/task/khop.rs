//! k-hop induction: which character followed the last occurrence of this one, repeated k times.
//!
//! Every character of a random string points back to the successor of its own last occurrence. Following k such
//! pointers in a row takes about log k layers of attention, because pointers can be doubled, without
//! waiting for a query.
//!
//! # Definition
//!
//! The first token encodes k; then come `length` characters `x_1 .. x_n` from an alphabet of A letters (`alphabet`),
//! the first uniform and each next one uniform among the letters that differ from its neighbour. With
//!
//! > `find(i)` = the largest `j <= i` with `x_(j-1) = x_i`, where `j-1 >= 1`,
//!
//! the target at character i is the letter at `find(find(.. i ..))`, k times, or the class "none" if one of them
//! does not exist. k is `hops`; with `mixed=yes` it is uniform on 1 .. `hops`.
//!
//! Ids: 0 .. A-1 are letters, A + k - 1 is the token for k. One field, `symbol`. Classes: the letters, and A
//! for none. The metric group of a question is k.
//!
//! # One sample
//!
//! `khop{length=20,alphabet=4,hops=2,mixed=no}`, seed 0:
//!
//! ```text
//! input   k=2 b d c d c a d c d b c d b d b a c d a c
//! target  .   - - - - c - d - a - c d d c b c b d d b
//! ```
//!
//! # Baseline
//!
//! Read backwards from i, each step matches the wanted letter with probability 1/(A-1), except
//! that the first step never does. So k hops exist at character i with probability `P(Binomial(i-2, 1/(A-1)) >= k)`, and
//! then the letter is uniform by symmetry. The best guess at i is "none" or a letter, whichever is more likely; the
//! baseline is the mean over i, and over k if mixed.
//!
//! # Source
//!
//! Sanford, Hsu and Telgarsky, *Transformers, parallel computation, and logarithmic depth* (arXiv 2402.09268). The
//! published data also has k = 0, which asks for the character itself; here k starts at 1.

use std::fmt;

use super::options::{Options, yes_no};
use super::{Field, NO_TARGET, OracleError, Prompt, Rng, Task, TaskBase, TaskError, fill_random, random_below, render};

/// The largest number of hops.
const MAX_HOPS: u32 = 64;

/// The baseline is a sum over positions and hops, so the length is bounded more tightly than elsewhere.
const MAX_LENGTH: u64 = 1 << 20;

/// The task `khop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KHop {
    length: usize,
    alphabet_size: u32,
    hops: u32,
    mixed_hops: bool,
}

/// A string and the number of hops.
#[derive(Clone, Debug, Default)]
pub struct KHopInstance {
    letters: Vec<u32>,
    hops: u32,
    /// find(i) of each character, counting from 0; [`NO_TARGET`] if there is none.
    find: Vec<u32>,
    /// The last position of each letter, while `find` is computed.
    last_positions: Vec<u32>,
}

impl KHopInstance {
    /// `x_1 .. x_n`.
    pub fn letters(&self) -> &[u32] {
        &self.letters
    }

    /// k: the number of hops.
    pub fn hops(&self) -> u32 {
        self.hops
    }
}

impl KHop {
    /// Number of letters of the alphabet.
    pub fn alphabet_size(&self) -> u32 {
        self.alphabet_size
    }

    /// The number of hops; the largest if mixed.
    pub fn hops(&self) -> u32 {
        self.hops
    }

    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 98, 1..=MAX_LENGTH)? as usize;
        let alphabet_size = options.number_u32("alphabet", 4, 2..=1 << 20)?;
        let hops = options.number_u32("hops", 4, 1..=MAX_HOPS)?;
        let mixed_hops = options.flag("mixed")?;
        Ok(Self { length, alphabet_size, hops, mixed_hops })
    }

    /// The class for "there is no such character".
    fn none_class(&self) -> u32 {
        self.alphabet_size
    }
}

impl fmt::Display for KHop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, length, alphabet, hops) = (Self::NAME, self.length, self.alphabet_size, self.hops);
        write!(out, "{name}{{length={length},alphabet={alphabet},hops={hops},mixed={}}}", yes_no(self.mixed_hops))
    }
}

impl TaskBase for KHop {
    fn groups_by_hops(&self) -> bool {
        true
    }

    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", self.alphabet_size + self.hops)]
    }

    fn classes(&self) -> u32 {
        self.alphabet_size + 1
    }

    fn length(&self) -> usize {
        self.length + 1
    }

    fn baseline(&self) -> f64 {
        let match_probability = 1.0 / f64::from(self.alphabet_size - 1);
        let max_hops = self.hops as usize;
        // The probability of exactly c matches so far, for c below the number of hops.
        let mut count_probabilities = vec![0.0; max_hops];
        count_probabilities[0] = 1.0;
        let mut total = 0.0;
        for character in 1..=self.length {
            if character > 2 {
                for count in (0..max_hops).rev() {
                    let gained = if count > 0 { count_probabilities[count - 1] * match_probability } else { 0.0 };
                    count_probabilities[count] = count_probabilities[count] * (1.0 - match_probability) + gained;
                }
            }
            let mut none_probability = 0.0;
            for (count, probability) in count_probabilities.iter().enumerate() {
                none_probability += probability;
                if self.mixed_hops || count + 1 == max_hops {
                    total += f64::max(none_probability, (1.0 - none_probability) / f64::from(self.alphabet_size));
                }
            }
        }
        total / self.length as f64 / if self.mixed_hops { f64::from(self.hops) } else { 1.0 }
    }

    fn render(&self, prompt: &Prompt) -> String {
        let letter =
            |id: u32| if self.alphabet_size <= 26 { char::from(b'a' + id as u8).to_string() } else { id.to_string() };
        let symbol =
            |id: u32| if id < self.alphabet_size { letter(id) } else { format!("k={}", id - self.alphabet_size + 1) };
        render::rows(prompt, symbol, |class| if class == self.none_class() { "-".to_owned() } else { letter(class) })
    }
}

impl Task for KHop {
    const NAME: &'static str = "khop";
    type Instance = KHopInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut KHopInstance) {
        let KHopInstance { letters, hops, find, last_positions } = instance;
        *hops = if self.mixed_hops { 1 + random_below(rng, self.hops) } else { self.hops };
        letters.resize(self.length, 0);
        fill_random(rng, self.alphabet_size - 1, letters);
        letters[0] = random_below(rng, self.alphabet_size);
        for position in 1..letters.len() {
            // A step of 1 .. A-1 around the alphabet never gives the same letter.
            letters[position] = (letters[position - 1] + 1 + letters[position]) % self.alphabet_size;
        }
        last_positions.clear();
        last_positions.resize(self.alphabet_size as usize, NO_TARGET);
        find.clear();
        for (position, letter) in letters.iter().enumerate() {
            let previous = std::mem::replace(&mut last_positions[*letter as usize], position as u32);
            find.push(if previous == NO_TARGET { NO_TARGET } else { previous + 1 });
        }
    }

    fn encode(&self, instance: &KHopInstance, prompt: &mut Prompt) {
        prompt.start(1);
        prompt.push(&[self.alphabet_size + instance.hops - 1]);
        for (position, letter) in instance.letters.iter().enumerate() {
            let mut pointer = position as u32;
            for _ in 0..instance.hops {
                pointer = if pointer == NO_TARGET { pointer } else { instance.find[pointer as usize] };
            }
            let target = if pointer == NO_TARGET { self.none_class() } else { instance.letters[pointer as usize] };
            prompt.push_question(&[*letter], target, instance.hops as u16);
        }
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let Some(hops) = tokens[0].checked_sub(self.alphabet_size).map(|id| id + 1) else {
            return Err(OracleError::new::<Self>(0, "a letter", "the number of hops"));
        };
        if let Some(position) = (1..tokens.len()).find(|position| tokens[*position] >= self.alphabet_size) {
            return Err(OracleError::new::<Self>(position, "a number of hops", "a letter"));
        }
        // With the token for k in front, character i of the definition is `tokens[i]`.
        let find = |i: usize| (2..=i).rev().find(|j| tokens[j - 1] == tokens[i]);
        let target = |position: usize| match (0..hops).try_fold(position, |i, _| find(i)) {
            _ if position == 0 => NO_TARGET,
            Some(found) => tokens[found],
            None => self.none_class(),
        };
        Ok((0..tokens.len()).map(target).collect())
    }
}
