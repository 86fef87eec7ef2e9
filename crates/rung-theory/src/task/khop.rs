//! k-hop induction: what followed this character last time, and what followed that one, k times over.
//!
//! Every character of a random string points back to the successor of its own last occurrence. Following k such
//! pointers in a row takes about log k layers of attention, because pointers can be doubled; nothing has to wait
//! for a question.
//!
//! # Definition
//!
//! The first token says k; then come `length` characters `x_1 .. x_n` from an alphabet of A letters (`alphabet`),
//! the first uniform and each next one uniform among the letters that differ from its neighbour. With
//!
//! > `find(i)` = the largest `j <= i` with `x_(j-1) = x_i`, where `j-1 >= 1`,
//!
//! the target at character i is the letter at `find(find(.. i ..))`, k times, or the class "none" if one of them
//! does not exist. k is `hops`; with `mixed=yes` it is uniform on 1 .. `hops`.
//!
//! Ids: 0 .. A-1 are letters, A + k - 1 is the token that says k. One field, `symbol`. Classes: the letters, and A
//! for none. The group of a question is k.
//!
//! # One sample
//!
//! `khop{length=20,alphabet=4,hops=2,mixed=no}`, seed 0:
//!
//! ```text
//! input  k=2 b d c d c a d c d b c d b d b a c d a c
//! asked  .   - - - - c - d - a - c d d c b c b d d b
//! ```
//!
//! # Baseline
//!
//! Read backwards from i, the string meets the letter it is waiting for with chance 1/(A-1) at every step, except
//! that the first step never does. So k hops exist at character i with chance `P(Binomial(i-2, 1/(A-1)) >= k)`, and
//! then the letter is uniform by symmetry. The best guess at i is "none" or any letter, whichever is likelier; the
//! baseline is the mean over i, and over k if mixed.
//!
//! # Source
//!
//! Sanford, Hsu and Telgarsky, *Transformers, parallel computation, and logarithmic depth* (arXiv 2402.09268). The
//! published data also has k = 0, which asks for the character itself; here k starts at 1.

use std::fmt;

use super::options::{Options, yes_no};
use super::{Field, NO_TARGET, OracleError, Prompt, Rng, Task, TaskError, below, draw, fill};

/// The most hops.
const MAX_HOPS: u32 = 64;

/// The baseline is a sum over positions and hops, so the length is bounded more tightly than elsewhere.
const MAX_LENGTH: u64 = 1 << 20;

/// The task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KHop {
    length: usize,
    alphabet: u32,
    hops: u32,
    mixed: bool,
}

/// A string and how many hops are asked.
#[derive(Clone, Debug, Default)]
pub struct KHopInstance {
    letters: Vec<u32>,
    hops: u32,
    /// find of each character, counting from 0; [`NO_TARGET`] where there is none.
    find: Vec<u32>,
    /// Where each letter occurred last, while pointers are made.
    last: Vec<u32>,
}

impl KHopInstance {
    /// `x_1 .. x_n`.
    pub fn letters(&self) -> &[u32] {
        &self.letters
    }

    /// k.
    pub fn hops(&self) -> u32 {
        self.hops
    }
}

impl KHop {
    /// Letters of the alphabet.
    pub fn alphabet(&self) -> u32 {
        self.alphabet
    }

    /// Hops asked for, the most of them if mixed.
    pub fn hops(&self) -> u32 {
        self.hops
    }

    pub(super) fn read(options: &mut Options) -> Result<Self, TaskError> {
        let length = options.number("length", 98, 1..=MAX_LENGTH)? as usize;
        let alphabet = options.small("alphabet", 4, 2..=1 << 20)?;
        let hops = options.small("hops", 4, 1..=MAX_HOPS)?;
        let mixed = options.flag("mixed")?;
        Ok(Self { length, alphabet, hops, mixed })
    }

    /// The class of "there is no such character".
    fn none(&self) -> u32 {
        self.alphabet
    }
}

impl fmt::Display for KHop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, length, alphabet, hops) = (Self::NAME, self.length, self.alphabet, self.hops);
        write!(out, "{name}{{length={length},alphabet={alphabet},hops={hops},mixed={}}}", yes_no(self.mixed))
    }
}

impl Task for KHop {
    const NAME: &'static str = "khop";
    type Instance = KHopInstance;

    fn fields(&self) -> Vec<Field> {
        vec![Field::new("symbol", self.alphabet + self.hops)]
    }

    fn classes(&self) -> u32 {
        self.alphabet + 1
    }

    fn length(&self) -> usize {
        self.length + 1
    }

    fn baseline(&self) -> f64 {
        let chance = 1.0 / f64::from(self.alphabet - 1);
        let most = self.hops as usize;
        // The chance of exactly c meetings so far, for c below the number of hops.
        let mut meetings = vec![0.0; most];
        meetings[0] = 1.0;
        let mut total = 0.0;
        for character in 1..=self.length {
            if character > 2 {
                for count in (0..most).rev() {
                    let gained = if count > 0 { meetings[count - 1] * chance } else { 0.0 };
                    meetings[count] = meetings[count] * (1.0 - chance) + gained;
                }
            }
            let mut none = 0.0;
            for (count, share) in meetings.iter().enumerate() {
                none += share;
                if self.mixed || count + 1 == most {
                    total += f64::max(none, (1.0 - none) / f64::from(self.alphabet));
                }
            }
        }
        total / self.length as f64 / if self.mixed { f64::from(self.hops) } else { 1.0 }
    }

    fn sample(&self, rng: &mut Rng, instance: &mut KHopInstance) {
        let KHopInstance { letters, hops, find, last } = instance;
        *hops = if self.mixed { 1 + below(rng, self.hops) } else { self.hops };
        letters.resize(self.length, 0);
        fill(rng, self.alphabet - 1, letters);
        letters[0] = below(rng, self.alphabet);
        for position in 1..letters.len() {
            // A step of 1 .. A-1 around the alphabet never stays.
            letters[position] = (letters[position - 1] + 1 + letters[position]) % self.alphabet;
        }
        last.clear();
        last.resize(self.alphabet as usize, NO_TARGET);
        find.clear();
        for (position, letter) in letters.iter().enumerate() {
            let before = std::mem::replace(&mut last[*letter as usize], position as u32);
            find.push(if before == NO_TARGET { NO_TARGET } else { before + 1 });
        }
    }

    fn encode(&self, instance: &KHopInstance, prompt: &mut Prompt) {
        prompt.start(1);
        prompt.push(&[self.alphabet + instance.hops - 1]);
        for (position, letter) in instance.letters.iter().enumerate() {
            let mut at = position as u32;
            for _ in 0..instance.hops {
                at = if at == NO_TARGET { at } else { instance.find[at as usize] };
            }
            let target = if at == NO_TARGET { self.none() } else { instance.letters[at as usize] };
            prompt.push_question(&[*letter], target, instance.hops as u16);
        }
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        OracleError::check(self, tokens)?;
        let Some(hops) = tokens[0].checked_sub(self.alphabet).map(|above| above + 1) else {
            return Err(OracleError::new::<Self>(0, "a letter", "the number of hops"));
        };
        if let Some(position) = (1..tokens.len()).find(|position| tokens[*position] >= self.alphabet) {
            return Err(OracleError::new::<Self>(position, "a number of hops", "a letter"));
        }
        // With the count in front, character i of the definition is `tokens[i]`.
        let find = |i: usize| (2..=i).rev().find(|j| tokens[j - 1] == tokens[i]);
        let target = |position: usize| match (0..hops).try_fold(position, |at, _| find(at)) {
            _ if position == 0 => NO_TARGET,
            Some(at) => tokens[at],
            None => self.none(),
        };
        Ok((0..tokens.len()).map(target).collect())
    }

    fn draw(&self, prompt: &Prompt) -> String {
        let letter =
            |id: u32| if self.alphabet <= 26 { char::from(b'a' + id as u8).to_string() } else { id.to_string() };
        let symbol = |id: u32| if id < self.alphabet { letter(id) } else { format!("k={}", id - self.alphabet + 1) };
        draw::rows(prompt, symbol, |class| if class == self.none() { "-".to_owned() } else { letter(class) })
    }
}
