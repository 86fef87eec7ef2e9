//! What the bound is asked: full layers, message bits and block states, for a number of hops.
//!
//! A stack with F full layers and a wish for L hops falls under one of the two cases of the theorem, or under neither:
//!
//! - F <= L-1: case 1. Missing full layers are added behind the stack, where they do nothing: what a longer stack cannot
//!   do, the shorter one cannot either.
//! - F = L and no state before the first full layer or right after it: case 0.
//! - otherwise L <= F + c - 1, and a construction solves it at every size that fits its heads.
//!
//! A cache in block 0 or 1 that keeps only the first tokens ([`crate::stack::HandsOn::NeverAfter`]) never holds the start value.
//! Once it is full, which must be within the table z_L, its content is a function of z_L and does not change any more: in case 0
//! its bits are fixed once, at the start of the argument, like those of mixers beside layer 1 ([`Question::filled_within`]).
//!
//! Mixers beside attention count in the block before their layer (case 1). In case 0, where that block must be empty, those of
//! layer t count in block t, those of layer 1 in block 2, and the bits of layer 1 once more at the start of the argument: the
//! messages of layer 1 into w are widened until they cover them ([`Question::covers_beside`]).

use num_bigint::BigUint;

use super::checker::{Point, product};
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
    /// s_0 .. s_F.
    pub state_bits: Vec<BigUint>,
    /// Tokens of an entry, of z_0 and of w.
    pub tokens_per: [u64; 3],
    /// Bits of mixers beside the first full layer, and of caches that drop the start value, that a point of case 0 must cover with
    /// wider messages.
    pub beside: BigUint,
    /// Entries that z_L must have at least, so that caches that drop the start value are full at its end.
    pub filled_within: BigUint,
}

impl Question {
    /// The question that a stack's capacity poses for so many hops; none if they are within its rungs.
    pub fn of(capacity: &Capacity, hops: usize, tokens_per: [u64; 3]) -> Option<Self> {
        let full = capacity.full;
        // A stack without full layers sends no messages. One bit keeps the arithmetic well-formed; for one hop messages do
        // not occur in the argument at all, and a roomy one keeps the point from looking trivial.
        let silent = if hops == 1 { 4096 } else { 1 };
        let message_bits = if capacity.message_bits == 0 { silent } else { capacity.message_bits };
        let mut state_bits = capacity.state_bits();
        if full < hops {
            for (block, beside) in state_bits.iter_mut().zip(&capacity.beside_bits) {
                *block += beside;
            }
            state_bits.resize(hops, 0);
            return Some(Self::new(1, hops, message_bits, &state_bits, tokens_per));
        }
        if full > hops || capacity.extra_hop {
            return None;
        }
        let first = capacity.beside_bits[0];
        for (layer, beside) in capacity.beside_bits.iter().enumerate().skip(1) {
            state_bits[layer + 1] += beside;
        }
        if let Some(block) = state_bits.get_mut(2) {
            *block += first;
        }
        let dropping = &capacity.blocks[..2.min(capacity.blocks.len())];
        let dropped: u128 = dropping.iter().map(|block| block.dropping_bits).sum();
        let filled = dropping.iter().map(|block| block.filled_after).max().unwrap_or_default();
        for (bits, block) in state_bits.iter_mut().zip(dropping) {
            *bits = block.carrying_bits();
        }
        let question = Self::new(0, hops, message_bits, &state_bits, tokens_per);
        Some(Self { beside: (first + dropped).into(), filled_within: filled.into(), ..question })
    }

    /// A question in plain numbers.
    pub fn new(case: u8, hops: usize, message_bits: u128, state_bits: &[u128], tokens_per: [u64; 3]) -> Self {
        let state_bits = state_bits.iter().map(|&bits| bits.into()).collect();
        let (beside, filled_within) = (BigUint::ZERO, BigUint::ZERO);
        Self { case, hops, message_bits: message_bits.into(), state_bits, tokens_per, beside, filled_within }
    }

    /// Whether the messages of a point are wide enough to cover the mixers beside the first full layer.
    pub fn covers_beside(&self, point: &Point) -> bool {
        let queries = product(&point.n) / product(point.kappa.iter().skip(1));
        let last_table = &point.m * product(&point.n);
        point.message_bits >= self.message_bits
            && last_table >= self.filled_within
            && (&point.message_bits - &self.message_bits) * &point.tokens_per[2] * queries >= self.beside
    }

    /// The same question with wider messages and nothing beside: first barely wider, last so wide that any point covers it.
    pub(super) fn widened(&self) -> Vec<Self> {
        let wider = |by: BigUint| Self { message_bits: &self.message_bits + by, beside: BigUint::ZERO, ..self.clone() };
        if self.beside == BigUint::ZERO {
            return vec![self.clone()];
        }
        let powers = (0..self.beside.bits()).map(|power| wider(BigUint::from(1_u8) << power));
        powers.chain([wider(self.beside.clone())]).collect()
    }

    /// The point with these sizes. Sigma is 1 throughout: a start that passes every tail.
    pub(super) fn point(&self, m: BigUint, n: Vec<BigUint>, x: Vec<BigUint>, kappa: Vec<BigUint>) -> Point {
        Point {
            case: self.case,
            hops: self.hops,
            message_bits: self.message_bits.clone(),
            state_bits: self.state_bits.clone(),
            m,
            sigma: vec![1_u8.into(); n.len()],
            n,
            x,
            kappa,
            tokens_per: self.tokens_per.map(BigUint::from),
        }
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

    #[test]
    fn stacks_pose_the_right_question() {
        let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
        let ask = |text: &str, hops| {
            let capacity = Plan::parse(text, &defaults).unwrap().capacity();
            Question::of(&capacity, hops, [1; 3]).map(|q| {
                let bits: Vec<u64> = q.state_bits.iter().map(|b| u64::try_from(b).unwrap()).collect();
                (q.case, u64::try_from(&q.message_bits).unwrap(), bits)
            })
        };
        assert_eq!(ask("linear full linear", 2), Some((1, 32, vec![80, 80])));
        assert_eq!(ask("linear full linear", 4), Some((1, 32, vec![80, 80, 0, 0])));
        assert_eq!(ask("full full linear", 2), Some((0, 32, vec![0, 0, 80])));
        assert_eq!(ask("linear full linear", 1), None);
        assert_eq!(ask("linear", 1), Some((1, 4096, vec![80])));
        assert_eq!(ask("linear", 2), Some((1, 1, vec![80, 0])));
        assert_eq!(ask("full+linear full", 2), Some((0, 32, vec![0, 0, 80])));
        assert_eq!(ask("full full+linear linear", 2), Some((0, 32, vec![0, 0, 160])));
        assert_eq!(ask("full+linear full", 3), Some((1, 32, vec![80, 0, 0])));
    }

    #[test]
    fn rounding_and_logarithms_agree() {
        for log in [0.0, 1.5, 20.25, 51.9, 60.5, 300.75] {
            assert!((log2(&round(log)) - log).abs() < 0.3 / log.exp2().max(1.0) + 1e-12 || log < 3.0);
        }
        assert!(log2(&BigUint::ZERO).is_infinite());
    }
}
