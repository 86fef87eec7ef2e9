//! What the search for a lower bound is given: full layers, message bits and block states, for a number of hops.
//!
//! A stack with F full layers and a task of L hops falls under one of the two cases of the theorems, or under neither:
//!
//! - F <= L-1: case 1. Missing full layers are added behind the stack, where they do nothing: what a longer stack cannot
//!   do, the shorter one cannot either. A stack without full layers only has its state.
//! - F = L and no state before the first full layer or right after it: case 0.
//! - otherwise L <= F + c - 1 (c is 1 where a bounded-state layer earns the extra hop, see [`Capacity`]), and a construction
//!   solves it at every size that fits its heads.
//!
//! A cache in block 0 or 1 that keeps only the first tokens ([`crate::stack::Forwarding::FirstTokens`]) never holds the start value.
//! Once it is full, which must be within the table z_L, its content is a function of z_L and does not change any more: in case 0
//! its bits are fixed once, at the start of the argument, like those of mixers in parallel with layer 1.
//!
//! Where F < L-1 (or F < L in case 0) a task of fewer hops is out of reach already. It is one of
//! [`BoundInput::with_fewer_hops`], since the tables of L hops can hold it.
//!
//! Mixers in parallel with attention in layer t >= 2 count in the block before their layer (case 1) or after it (case 0, where
//! the block before layer 2 must be empty). Those of layer 1 are [`BoundInput::parallel_bits`]. The letters are those of
//! `docs/proof.md`.

use num_bigint::BigUint;

use super::checker::{Certificate, ProofCase, Theorem, TokensPer, product};
use crate::stack::Capacity;

/// A stack's sizes in the terms of the theorems, and the hops that it may be unable to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundInput {
    /// Full layers beside hops.
    pub case: ProofCase,
    /// L, at least 1.
    pub hops: usize,
    /// B.
    pub message_bits: BigUint,
    /// s_0 .. s_F, or s_0 alone for a stack without full layers.
    pub state_bits: Vec<BigUint>,
    /// Tokens of an entry, of z_0 and of w.
    pub tokens_per: TokensPer,
    /// Bits of mixers in parallel with the first full layer and, in case 0, of caches that drop the start value.
    pub parallel_bits: BigUint,
    /// Entries that z_L must have at least, so that caches that drop the start value are full at its end.
    pub least_last_table: BigUint,
    /// Whether tables list w as the major index, which allows constant rows in front of live ones.
    pub w_major: bool,
    /// The same stack with fewer hops, where those are out of reach too.
    pub with_fewer_hops: Vec<Self>,
}

impl BoundInput {
    /// The input for a stack of this capacity and so many hops; none if they are within its rungs.
    pub fn for_stack(capacity: &Capacity, hops: usize, tokens_per: &TokensPer) -> Option<Self> {
        let full = capacity.full;
        if full > hops || (full == hops && capacity.extra_hop) {
            return None;
        }
        let input = |case, hops| Self::for_case(capacity, case, hops, tokens_per);
        if full == hops {
            return Some(input(ProofCase::AsManyLayers, hops));
        }
        let mut all = input(ProofCase::OneLayerFewer, hops);
        if full >= 1 && full + 1 < hops {
            all.with_fewer_hops.push(input(ProofCase::OneLayerFewer, full + 1));
        }
        if full >= 1 && !capacity.extra_hop {
            all.with_fewer_hops.push(input(ProofCase::AsManyLayers, full));
        }
        Some(all)
    }

    fn for_case(capacity: &Capacity, case: ProofCase, hops: usize, tokens_per: &TokensPer) -> Self {
        // A stack without full layers sends no messages; one bit keeps the arithmetic well-formed.
        let message_bits = capacity.message_bits.max(1);
        let mut state_bits = capacity.state_bits();
        let after = usize::from(case == ProofCase::AsManyLayers);
        for (layer, bits) in capacity.parallel_bits.iter().enumerate().skip(1) {
            state_bits[layer + after] += bits;
        }
        if case == ProofCase::OneLayerFewer && capacity.full > 0 {
            state_bits.resize(hops, 0);
        }
        let mut parallel_bits = capacity.parallel_bits.first().copied().unwrap_or_default();
        let mut least_last_table = 0;
        if case == ProofCase::AsManyLayers {
            for (bits, block) in state_bits.iter_mut().zip(capacity.blocks.iter().take(2)) {
                *bits -= block.dropping_bits;
                parallel_bits += block.dropping_bits;
                least_last_table = least_last_table.max(block.filled_after);
            }
        }
        let input = Self::new(case, hops, message_bits, &state_bits, tokens_per.clone());
        Self { parallel_bits: parallel_bits.into(), least_last_table: least_last_table.into(), ..input }
    }

    /// An input in plain numbers.
    pub fn new(case: ProofCase, hops: usize, message_bits: u128, state_bits: &[u128], tokens_per: TokensPer) -> Self {
        Self {
            case,
            hops,
            message_bits: message_bits.into(),
            state_bits: state_bits.iter().map(|&bits| bits.into()).collect(),
            tokens_per,
            parallel_bits: BigUint::ZERO,
            least_last_table: BigUint::ZERO,
            w_major: false,
            with_fewer_hops: Vec::new(),
        }
    }

    /// The same for tables that list w as the major index.
    #[must_use]
    pub fn with_w_major_tables(mut self) -> Self {
        self.w_major = true;
        self.with_fewer_hops = self.with_fewer_hops.into_iter().map(Self::with_w_major_tables).collect();
        self
    }

    /// log2 of the tokens of an entry, of z_0 and of w.
    pub(super) fn log2_tokens_per(&self) -> [f64; 3] {
        self.tokens_per.to_array().map(log2)
    }

    /// Whether a certificate speaks of stacks at least as wide as this one, for these hops or fewer.
    pub fn is_covered_by(&self, certificate: &Certificate) -> bool {
        let hops = certificate.embedding.map_or(certificate.hops, |inner| inner.hops);
        self.is_directly_covered(certificate, hops)
            || self.with_fewer_hops.iter().any(|inner| inner.is_covered_by(certificate))
    }

    fn is_directly_covered(&self, certificate: &Certificate, hops: usize) -> bool {
        let (needed, found) = (&self.state_bits, &certificate.state_bits);
        let layers = match (&certificate.theorem, self.case) {
            (Theorem::State, _) => needed.len() == 1,
            (_, ProofCase::OneLayerFewer) => needed.len() <= found.len(),
            (_, ProofCase::AsManyLayers) => needed.len() == found.len(),
        };
        layers
            && self.parallel_bits <= certificate.parallel_bits
            && &certificate.m * product(&certificate.n) >= self.least_last_table
            && (self.case, self.hops) == (certificate.case, hops)
            && self.message_bits <= certificate.message_bits
            && needed.iter().zip(found).all(|(needed, had)| needed <= had)
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
pub(super) fn exp2_to_integer(log: f64) -> BigUint {
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
    fn stacks_fall_under_the_right_case() {
        let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
        let input = |text: &str, hops| {
            let capacity = Plan::parse(text, &defaults).unwrap().capacity();
            BoundInput::for_stack(&capacity, hops, &TokensPer::default())
        };
        let parts = |text: &str, hops| {
            let input = input(text, hops)?;
            let bits: Vec<u64> = input.state_bits.iter().map(number).collect();
            Some((input.case.number(), number(&input.message_bits), bits, number(&input.parallel_bits)))
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
            let input = input(text, hops).unwrap();
            input.with_fewer_hops.iter().map(|inner| (inner.case.number(), inner.hops)).collect::<Vec<_>>()
        };
        assert_eq!(smaller("linear full linear", 2), []);
        assert_eq!(smaller("linear full linear", 4), [(1, 2)]);
        assert_eq!(smaller("full full", 3), [(0, 2)]);
        assert_eq!(smaller("full full", 5), [(1, 3), (0, 2)]);
    }

    #[test]
    fn rounding_and_logarithms_agree() {
        for log in [0.0, 1.5, 20.25, 51.9, 60.5, 300.75] {
            assert!((log2(&exp2_to_integer(log)) - log).abs() < 0.3 / log.exp2().max(1.0) + 1e-12 || log < 3.0);
        }
        assert!(log2(&BigUint::ZERO).is_infinite());
    }
}
