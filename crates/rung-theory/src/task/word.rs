//! Group word problem: multiply group elements as they come.
//!
//! The state is a group element and every token moves it. For a group that is not solvable (A5, S5) this is
//! complete for NC1, out of reach of constant-depth attention and of diagonal recurrences; Z60, of the same order
//! as A5, is the easy control. S3 is the smallest group in which the order of factors matters.
//!
//! # Definition
//!
//! `length` elements `g_1 .. g_n` of `group`, independent and uniform. With `answer=every` the product `g_1` `g_2
//! .. g_i` is asked at each i, with `answer=last` only at the last. In a product of permutations the left factor
//! acts first.
//!
//! | group | order | elements, numbered from 0 |
//! |---|---|---|
//! | `s5` | 120 | all permutations of five things, in lexicographic order of (p(0), .., p(4)) |
//! | `a5` | 60 | the even ones, in the same order |
//! | `z60` | 60 | 0 .. 59 under addition modulo 60 |
//! | `s3` | 6 | the permutations of three things, in the same order |
//!
//! Number 0 is the identity. Ids and classes are the numbers. One field, `element`; the group of every question is
//! 1.
//!
//! # One sample
//!
//! `word{group=a5,length=12,answer=every}`, seed 0:
//!
//! ```text
//! input  39 42 43 27 30 41 33 3  11 52 34 32
//! asked  39 56 51 40 18 13 56 41 34 31 14 43
//! ```
//!
//! # Baseline
//!
//! One in the order of the group: a product with a uniform factor is uniform.
//!
//! # Source
//!
//! Merrill, Petty and Sabharwal, *The illusion of state in state-space models* (arXiv 2404.08819). There words are
//! drawn without repetition; here independently.

use std::fmt;

use super::options::Options;
use super::{Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, Task, TaskError, draw, fill};

/// Which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Permutations of five things.
    S5,
    /// Even permutations of five things.
    A5,
    /// Numbers modulo 60.
    Z60,
    /// Permutations of three things: those of five that leave the last two in place.
    S3,
}

const GROUPS: [(&str, Group); 4] = [("s5", Group::S5), ("a5", Group::A5), ("z60", Group::Z60), ("s3", Group::S3)];

type Permutation = [u8; 5];

impl Group {
    /// The number of elements.
    pub fn order(self) -> u32 {
        match self {
            Self::S5 => 120,
            Self::A5 | Self::Z60 => 60,
            Self::S3 => 6,
        }
    }

    /// Its elements as permutations, in lexicographic order: element g moves what is at place i to place `g[i]`. For `Z60`, whose
    /// elements are numbers, those of S5.
    pub fn permutations(self) -> Vec<[u8; 5]> {
        permutations(self)
    }

    /// The product of every two elements: row a, column b holds ab.
    pub fn table(self) -> Vec<u32> {
        let order = self.order();
        if self == Self::Z60 {
            return (0..order * order).map(|at| (at / order + at % order) % order).collect();
        }
        let elements = permutations(self);
        let number = |wanted: Permutation| elements.binary_search(&wanted).unwrap_or_default() as u32;
        let products = elements.iter().flat_map(|a| elements.iter().map(|b| a.map(|image| b[usize::from(image)])));
        products.map(number).collect()
    }
}

/// The permutations of a group, in lexicographic order.
fn permutations(group: Group) -> Vec<Permutation> {
    let mut all = Vec::with_capacity(120);
    let mut current: Permutation = [0, 1, 2, 3, 4];
    loop {
        let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
        let inversions = pairs.filter(|(a, b)| current[*a] > current[*b]).count();
        let belongs = match group {
            Group::A5 => inversions % 2 == 0,
            Group::S3 => current[3..] == [3, 4],
            Group::S5 | Group::Z60 => true,
        };
        if belongs {
            all.push(current);
        }
        // The next one: raise the last place that can be raised, and put what follows it in order.
        let Some(place) = (0..4).rev().find(|place| current[*place] < current[place + 1]) else { return all };
        let swap = (place + 1..5).rev().find(|other| current[*other] > current[place]).unwrap_or(place);
        current.swap(place, swap);
        current[place + 1..].reverse();
    }
}

/// The task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    group: Group,
    length: usize,
    every: bool,
    table: Vec<u32>,
}

/// The elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordInstance {
    /// Numbers of `g_1 .. g_n`.
    pub elements: Vec<u32>,
}

impl Word {
    pub(super) fn read(options: &mut Options) -> Result<Self, TaskError> {
        let group = options.word("group", &GROUPS)?;
        let length = options.number("length", 16, 1..=MAX_TOKENS)? as usize;
        let every = options.word("answer", &[("every", true), ("last", false)])?;
        Ok(Self { group, length, every, table: group.table() })
    }

    /// Which group.
    pub fn group(&self) -> Group {
        self.group
    }
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = GROUPS.iter().find(|(_, group)| *group == self.group).map_or("", |(word, _)| word);
        let answer = if self.every { "every" } else { "last" };
        write!(out, "{}{{group={group},length={},answer={answer}}}", Self::NAME, self.length)
    }
}

impl Task for Word {
    const NAME: &'static str = "word";
    type Instance = WordInstance;

    fn fields(&self) -> Vec<Field> {
        vec![Field::new("element", self.group.order())]
    }

    fn classes(&self) -> u32 {
        self.group.order()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn sample(&self, rng: &mut Rng, instance: &mut WordInstance) {
        instance.elements.resize(self.length, 0);
        fill(rng, self.group.order(), &mut instance.elements);
    }

    fn encode(&self, instance: &WordInstance, prompt: &mut Prompt) {
        prompt.start_plain(&instance.elements);
        let mut product = 0;
        for (position, element) in instance.elements.iter().enumerate() {
            product = self.table[(product * self.group.order() + element) as usize];
            if self.every || position + 1 == instance.elements.len() {
                prompt.ask(position, product, 1);
            }
        }
    }

    fn oracle(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        OracleError::check(self, tokens)?;
        let products: Vec<u32> = if self.group == Group::Z60 {
            let sum = |until: usize| tokens[..=until].iter().map(|id| u64::from(*id)).sum::<u64>();
            (0..tokens.len()).map(|until| (sum(until) % 60) as u32).collect()
        } else {
            follow_five_things(tokens, self.group)
        };
        let asked = |position: usize| self.every || position + 1 == tokens.len();
        Ok((0..tokens.len()).map(|at| if asked(at) { products[at] } else { NO_TARGET }).collect())
    }

    fn draw(&self, prompt: &Prompt) -> String {
        draw::rows(prompt, |id| id.to_string(), |class| class.to_string())
    }
}

/// Moves five things by each permutation and looks up, at each step, the permutation that takes each to where it is now.
fn follow_five_things(tokens: &[u32], group: Group) -> Vec<u32> {
    // All words of five letters in order; those with five different letters and, if asked, the right parity or the last
    // two in place. A permutation of five things is even if 5 minus its number of cycles is.
    let words = (0..3125_u32).map(|word| [625, 125, 25, 5, 1].map(|place| (word / place % 5) as usize));
    let cycles = |p: &[usize; 5]| {
        let mut seen = [false; 5];
        let mut count = 0;
        for start in 0..5 {
            count += usize::from(!seen[start]);
            let mut at = start;
            while !std::mem::replace(&mut seen[at], true) {
                at = p[at];
            }
        }
        count
    };
    let elements: Vec<[usize; 5]> = words
        .filter(|p| (0..5).all(|image| p.contains(&image)))
        .filter(|p| group != Group::A5 || (5 - cycles(p)) % 2 == 0)
        .filter(|p| group != Group::S3 || (p[3], p[4]) == (3, 4))
        .collect();
    let mut places = [0, 1, 2, 3, 4];
    let step = |token: &u32| {
        places = places.map(|place| elements[*token as usize][place]);
        elements.iter().position(|p| *p == places).unwrap_or_default() as u32
    };
    tokens.iter().map(step).collect()
}
