//! What the bound is asked: full layers, message bits and block states, for a number of hops.
//!
//! A stack with F full layers and a wish for L hops falls under one of the two cases of the theorems, or under neither:
//!
//! - F <= L-1: case 1. Missing full layers are added behind the stack, where they do nothing: what a longer stack cannot
//!   do, the shorter one cannot either. A stack without full layers only has its state.
//! - F = L and no state before the first full layer or right after it: case 0.
//! - otherwise L <= F + c - 1, and a construction solves it at every size that fits its heads.
//!
//! A cache in block 0 or 1 that keeps only the first tokens ([`crate::stack::Forwarding::FirstTokens`]) never holds the start value.
//! Once it is full, which must be within the table z_L, its content is a function of z_L and does not change any more: in case 0
//! its bits are fixed once, at the start of the argument, like those of mixers beside layer 1.
//!
//! Where F < L-1 (or F < L in case 0) a task of fewer hops is out of reach already. It is part of the question as one of
//! [`Question::smaller`], since the tables of L hops can hold it.
//!
//! Mixers beside attention in layer t >= 2 count in the block before their layer (case 1) or after it (case 0, where the block
//! before layer 2 must be empty). Those of layer 1 are `beside`.

use num_bigint::BigUint;

use super::checker::{Point, Theorem, product};
use crate::stack::Capacity;

/// A question to the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// 1 or 0, as in [`Point`].
    pub case: u8,
    /// L, at least 1.
    pub hops: usize,
    /// B.
    pub message_bits: BigUint,
    /// s_0 .. s_F, or s_0 alone for a stack without full layers.
    pub state_bits: Vec<BigUint>,
    /// Tokens of an entry, of z_0 and of w.
    pub tokens_per: [u64; 3],
    /// Bits of mixers beside the first full layer and, in case 0, of caches that drop the start value.
    pub beside: BigUint,
    /// Entries that z_L must have at least, so that caches that drop the start value are full at its end.
    pub filled_within: BigUint,
    /// Whether tables list w as the major index, which allows constant rows in front of live ones.
    pub w_major: bool,
    /// The same stack with fewer hops, where those are out of reach too.
    pub smaller: Vec<Self>,
}

impl Question {
    /// The question that a stack's capacity poses for so many hops; none if they are within its rungs.
    pub fn of(capacity: &Capacity, hops: usize, tokens_per: [u64; 3]) -> Option<Self> {
        let full = capacity.full;
        if full > hops || (full == hops && capacity.extra_hop) {
            return None;
        }
        let pose = |case, hops| Self::pose(capacity, case, hops, tokens_per);
        if full == hops {
            return Some(pose(0, hops));
        }
        let mut question = pose(1, hops);
        if full >= 1 && full + 1 < hops {
            question.smaller.push(pose(1, full + 1));
        }
        if full >= 1 && !capacity.extra_hop {
            question.smaller.push(pose(0, full));
        }
        Some(question)
    }

    fn pose(capacity: &Capacity, case: u8, hops: usize, tokens_per: [u64; 3]) -> Self {
        // A stack without full layers sends no messages; one bit keeps the arithmetic well-formed.
        let message_bits = capacity.message_bits.max(1);
        let mut state_bits = capacity.state_bits();
        let after = usize::from(case == 0);
        for (layer, beside) in capacity.beside_bits.iter().enumerate().skip(1) {
            state_bits[layer + after] += beside;
        }
        if case == 1 && capacity.full > 0 {
            state_bits.resize(hops, 0);
        }
        let mut beside = capacity.beside_bits.first().copied().unwrap_or_default();
        let mut filled = 0;
        if case == 0 {
            for (bits, block) in state_bits.iter_mut().zip(capacity.blocks.iter().take(2)) {
                *bits -= block.dropping_bits;
                beside += block.dropping_bits;
                filled = filled.max(block.filled_after);
            }
        }
        let question = Self::new(case, hops, message_bits, &state_bits, tokens_per);
        Self { beside: beside.into(), filled_within: filled.into(), ..question }
    }

    /// A question in plain numbers.
    pub fn new(case: u8, hops: usize, message_bits: u128, state_bits: &[u128], tokens_per: [u64; 3]) -> Self {
        Self {
            case,
            hops,
            message_bits: message_bits.into(),
            state_bits: state_bits.iter().map(|&bits| bits.into()).collect(),
            tokens_per,
            beside: BigUint::ZERO,
            filled_within: BigUint::ZERO,
            w_major: false,
            smaller: Vec::new(),
        }
    }

    /// The same question about tables that list w as the major index.
    #[must_use]
    pub fn with_w_major_tables(mut self) -> Self {
        self.w_major = true;
        self.smaller = self.smaller.into_iter().map(Self::with_w_major_tables).collect();
        self
    }

    /// Whether a point speaks of stacks at least as wide as the question's, this one or a smaller.
    pub fn is_covered_by(&self, point: &Point) -> bool {
        let hops = point.embedding.map_or(point.hops, |inner| inner.hops);
        self.is_directly_covered(point, hops) || self.smaller.iter().any(|inner| inner.is_covered_by(point))
    }

    fn is_directly_covered(&self, point: &Point, hops: usize) -> bool {
        let needed = &self.state_bits;
        let full = |states: &[BigUint]| states.len() - 1;
        let layers = match point.theorem {
            Theorem::State => full(needed) == 0,
            _ => needed.len() <= point.state_bits.len() && (self.case == 1 || needed.len() == point.state_bits.len()),
        };
        layers
            && self.beside <= point.beside_bits
            && &point.m * product(&point.n) >= self.filled_within
            && (self.case, self.hops) == (point.case, hops)
            && self.message_bits <= point.message_bits
            && needed.iter().zip(&point.state_bits).all(|(needed, had)| needed <= had)
    }
}

/// log2 of a whole number, and minus infinity of 0: for searching, never for checking.
pub fn log2(number: &BigUint) -> f64 {
    let bits = number.bits();
    let shift = bits.saturating_sub(64);
    let top = u64::try_from(number >> shift).unwrap_or(u64::MAX);
    (top as f64).log2() + shift as f64
}

/// The whole number nearest to 2^log, at least 1.
pub(super) fn round(log: f64) -> BigUint {
    if log < 52.0 {
        return BigUint::from(log.exp2().round().max(1.0) as u64);
    }
    let whole = log.floor();
    let mantissa = ((log - whole).exp2() * 2_f64.powi(52)).round();
    BigUint::from(mantissa as u64) << (whole as u64 - 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Defaults, Plan};

    fn number(bits: &BigUint) -> u64 {
        u64::try_from(bits).unwrap()
    }

    #[test]
    fn stacks_pose_the_right_question() {
        let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
        let ask = |text: &str, hops| {
            let capacity = Plan::parse(text, &defaults).unwrap().capacity();
            Question::of(&capacity, hops, [1; 3])
        };
        let parts = |text: &str, hops| {
            let question = ask(text, hops)?;
            let bits: Vec<u64> = question.state_bits.iter().map(number).collect();
            Some((question.case, number(&question.message_bits), bits, number(&question.beside)))
        };
        assert_eq!(parts("linear full linear", 2), Some((1, 32, vec![80, 80], 0)));
        assert_eq!(parts("linear full linear", 4), Some((1, 32, vec![80, 80, 0, 0], 0)));
        assert_eq!(parts("full full linear", 2), Some((0, 32, vec![0, 0, 80], 0)));
        assert_eq!(parts("linear full linear", 1), None);
        assert_eq!(parts("linear", 1), Some((1, 1, vec![80], 0)));
        assert_eq!(parts("linear", 2), Some((1, 1, vec![80], 0)));
        assert_eq!(parts("full+linear full", 2), Some((0, 32, vec![0, 0, 0], 80)));
        assert_eq!(parts("full full+linear linear", 2), Some((0, 32, vec![0, 0, 160], 0)));
        assert_eq!(parts("full+linear full", 3), Some((1, 32, vec![0, 0, 0], 80)));
        assert_eq!(parts("full full+linear", 3), Some((1, 32, vec![0, 80, 0], 0)));
        let smaller = |text: &str, hops| {
            let question = ask(text, hops).unwrap();
            question.smaller.iter().map(|inner| (inner.case, inner.hops)).collect::<Vec<_>>()
        };
        assert_eq!(smaller("linear full linear", 2), []);
        assert_eq!(smaller("linear full linear", 4), [(1, 2)]);
        assert_eq!(smaller("full full", 3), [(0, 2)]);
        assert_eq!(smaller("full full", 5), [(1, 3), (0, 2)]);
    }

    #[test]
    fn rounding_and_logarithms_agree() {
        for log in [0.0, 1.5, 20.25, 51.9, 60.5, 300.75] {
            assert!((log2(&round(log)) - log).abs() < 0.3 / log.exp2().max(1.0) + 1e-12 || log < 3.0);
        }
        assert!(log2(&BigUint::ZERO).is_infinite());
    }
}
