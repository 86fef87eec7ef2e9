//! Word problem of a group (a "word" is a sequence of group elements): the running product.
//!
//! The state is a group element, and every token multiplies it. For a group that is not solvable (A5, S5) this is
//! complete for NC1, so constant-depth attention and diagonal recurrences cannot solve it (unless TC0 = NC1); Z60, of the
//! same order as A5, is the easy control. S3 is the smallest group that is not commutative.
//!
//! # Definition
//!
//! `length` elements `g_1 .. g_n` of `group`, independent and uniform. With `answer=every` the target at each i is the
//! product `g_1 g_2 .. g_i`, with `answer=last` only the last token has a target. In a product of permutations the left factor
//! acts first.
//!
//! | group | order | elements, numbered from 0 |
//! |---|---|---|
//! | `s5` | 120 | all permutations of five elements, in lexicographic order of (p(0), .., p(4)) |
//! | `a5` | 60 | the even ones, in the same order |
//! | `z60` | 60 | 0 .. 59 under addition modulo 60 |
//! | `s3` | 6 | the permutations of three elements, in the same order |
//!
//! Number 0 is the identity. Ids and classes are the numbers. One field, `element`; the metric group of every question is
//! 1.
//!
//! # One sample
//!
//! `word{group=a5,length=12,answer=every}`, seed 0:
//!
//! ```text
//! input   39 42 43 27 30 41 33 3  11 52 34 32
//! target  39 56 51 40 18 13 56 41 34 31 14 43
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

use super::options::{Options, word_of};
use super::{
    Field, MAX_TOKENS, NO_TARGET, OracleError, Prompt, Rng, SINGLE_GROUP, Task, TaskBase, TaskError, fill_random,
    render,
};

/// A finite group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Permutations of five elements.
    S5,
    /// Even permutations of five elements.
    A5,
    /// Numbers modulo 60.
    Z60,
    /// Permutations of three elements, as permutations of five that fix the last two.
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

    /// Its elements as permutations, in lexicographic order: element g maps i to `g[i]`. For `Z60`, whose
    /// elements are numbers, those of S5.
    pub fn permutations(self) -> Vec<[u8; 5]> {
        permutations(self)
    }

    /// The multiplication table: row a, column b is the product ab.
    pub fn multiplication_table(self) -> Vec<u32> {
        let order = self.order();
        if self == Self::Z60 {
            return (0..order * order).map(|index| (index / order + index % order) % order).collect();
        }
        let elements = permutations(self);
        let index = |permutation: Permutation| elements.binary_search(&permutation).unwrap_or_default() as u32;
        let products = elements.iter().flat_map(|a| elements.iter().map(|b| a.map(|image| b[usize::from(image)])));
        products.map(index).collect()
    }
}

/// The permutations of a group, in lexicographic order.
fn permutations(group: Group) -> Vec<Permutation> {
    let mut all = Vec::with_capacity(120);
    let mut current: Permutation = [0, 1, 2, 3, 4];
    loop {
        let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
        let inversions = pairs.filter(|(a, b)| current[*a] > current[*b]).count();
        let in_group = match group {
            Group::A5 => inversions % 2 == 0,
            Group::S3 => current[3..] == [3, 4],
            Group::S5 | Group::Z60 => true,
        };
        if in_group {
            all.push(current);
        }
        // The next permutation in lexicographic order.
        let Some(pivot) = (0..4).rev().find(|index| current[*index] < current[index + 1]) else { return all };
        let swap = (pivot + 1..5).rev().find(|other| current[*other] > current[pivot]).unwrap_or(pivot);
        current.swap(pivot, swap);
        current[pivot + 1..].reverse();
    }
}

/// The task `word`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    group: Group,
    length: usize,
    /// Whether every token has a target, not only the last.
    answers_every_token: bool,
    /// The multiplication table of the group.
    multiplication_table: Vec<u32>,
}

/// The group elements of one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordInstance {
    /// Numbers of `g_1 .. g_n`.
    pub elements: Vec<u32>,
}

impl Word {
    pub(super) fn parse(options: &mut Options) -> Result<Self, TaskError> {
        let group = options.word("group", &GROUPS)?;
        let length = options.number("length", 16, 1..=MAX_TOKENS)? as usize;
        let answers_every_token = options.word("answer", &[("every", true), ("last", false)])?;
        Ok(Self { group, length, answers_every_token, multiplication_table: group.multiplication_table() })
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = word_of(&GROUPS, self.group);
        let answer = if self.answers_every_token { "every" } else { "last" };
        write!(out, "{}{{group={group},length={},answer={answer}}}", Self::NAME, self.length)
    }
}

impl TaskBase for Word {
    fn fields(&self) -> Vec<Field> {
        vec![Field::new("element", self.group.order())]
    }

    fn classes(&self) -> u32 {
        self.group.order()
    }

    fn length(&self) -> usize {
        self.length
    }

    fn render(&self, prompt: &Prompt) -> String {
        render::rows(prompt, |id| id.to_string(), |class| class.to_string())
    }
}

impl Task for Word {
    const NAME: &'static str = "word";
    type Instance = WordInstance;

    fn sample(&self, rng: &mut Rng, instance: &mut WordInstance) {
        instance.elements.resize(self.length, 0);
        fill_random(rng, self.group.order(), &mut instance.elements);
    }

    fn encode(&self, instance: &WordInstance, prompt: &mut Prompt) {
        prompt.start_single_field(&instance.elements);
        let mut product = 0;
        for (position, element) in instance.elements.iter().enumerate() {
            product = self.multiplication_table[(product * self.group.order() + element) as usize];
            if self.answers_every_token || position + 1 == instance.elements.len() {
                prompt.set_target(position, product, SINGLE_GROUP);
            }
        }
    }

    fn brute_force(&self, tokens: &[u32]) -> Result<Vec<u32>, OracleError> {
        let products: Vec<u32> = if self.group == Group::Z60 {
            let sum = |last: usize| tokens[..=last].iter().map(|id| u64::from(*id)).sum::<u64>();
            (0..tokens.len()).map(|last| (sum(last) % 60) as u32).collect()
        } else {
            permute_five_elements(tokens, self.group)
        };
        let has_target = |position: usize| self.answers_every_token || position + 1 == tokens.len();
        Ok((0..tokens.len())
            .map(|position| if has_target(position) { products[position] } else { NO_TARGET })
            .collect())
    }
}

/// Applies each permutation to five elements and finds, at each step, the permutation from the start to the current arrangement.
fn permute_five_elements(tokens: &[u32], group: Group) -> Vec<u32> {
    // All permutations, as five-digit numbers in base 5 with different digits, in order; those in the group are kept.
    // A permutation of five elements is even if 5 minus its number of cycles is.
    let words = (0..3125_u32).map(|word| [625, 125, 25, 5, 1].map(|power| (word / power % 5) as usize));
    let cycles = |p: &[usize; 5]| {
        let mut visited = [false; 5];
        let mut count = 0;
        for start in 0..5 {
            count += usize::from(!visited[start]);
            let mut element = start;
            while !std::mem::replace(&mut visited[element], true) {
                element = p[element];
            }
        }
        count
    };
    let elements: Vec<[usize; 5]> = words
        .filter(|p| (0..5).all(|image| p.contains(&image)))
        .filter(|p| group != Group::A5 || (5 - cycles(p)) % 2 == 0)
        .filter(|p| group != Group::S3 || (p[3], p[4]) == (3, 4))
        .collect();
    let mut arrangement = [0, 1, 2, 3, 4];
    let step = |token: &u32| {
        arrangement = arrangement.map(|element| elements[*token as usize][element]);
        elements.iter().position(|p| *p == arrangement).unwrap_or_default() as u32
    };
    tokens.iter().map(step).collect()
}
