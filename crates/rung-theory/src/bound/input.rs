//! The input of the search for a lower bound: full layers, message bits and block states, for a number of hops.
//!
//! A stack with F full layers and a task of L hops falls under one of the two cases of the theorems, or under neither:
//!
//! - F <= L-1: case 1. If F < L-1, full layers that do nothing are added at the end: a task that is impossible for the longer
//!   stack is impossible for the shorter one. For a stack without full layers the bound follows from its state bits alone.
//! - F = L and no state before the first full layer or right after it: case 0.
//! - otherwise L <= F + c - 1 (c is 1 if a bounded-state layer adds the extra hop, see [`Capacity`]), and a construction
//!   solves it at every size that fits its heads.
//!
//! A cache in block 0 or 1 that keeps only the first tokens ([`crate::stack::Forwarding::FirstTokens`]) never holds the start value.
//! Once it is full, which must happen within the table z_L, its content depends on z_L only and does not change any more: in case 0
//! its bits are fixed once, at the start of the proof, like those of mixers in parallel with the first full layer
//! ([`BoundInput::fixed_bits`]).
//!
//! If F < L-1 (or F < L in case 0), a task of fewer hops is impossible already. It is one of
//! [`BoundInput::inputs_with_fewer_hops`], since the tables of L hops contain it.
//!
//! Mixers in parallel with the t-th full layer, t >= 2, count in the block before that layer (case 1) or after it (case 0, where
//! the block between the first and the second full layer must be empty). The letters are those of `docs/proof.md`, where t also counts
//! full layers from 1.

use num_bigint::BigUint;

use super::checker::{Certificate, ProofCase, Theorem, TokenCounts, product};
use crate::stack::Capacity;

/// A stack's sizes in the terms of the theorems, and the number of hops to be proved impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundInput {
    /// How many full layers there are, relative to the hops.
    pub case: ProofCase,
    /// L: number of hops, at least 1.
    pub hops: usize,
    /// B: bits that one token receives about a prefix in one full layer.
    pub message_bits: BigUint,
    /// s_0 .. s_F: state bits of the blocks; s_0 alone for a stack without full layers.
    pub state_bits: Vec<BigUint>,
    /// Tokens of an entry, of z_0 and of w.
    pub token_counts: TokenCounts,
    /// S_1: bits that are fixed once, at the start of the proof: those of mixers in parallel with the first full layer and, in case 0,
    /// of caches that keep only the first tokens.
    pub fixed_bits: BigUint,
    /// Entries that z_L, the first table in the prompt, must have so that caches that keep only the first tokens are full when it
    /// ends; 0 if there is no such cache.
    pub min_first_listed_table_entries: BigUint,
    /// Whether tables list w as the major index, so that constant rows can come before varying ones.
    pub w_major: bool,
    /// The same stack with fewer hops, if those are impossible too.
    pub inputs_with_fewer_hops: Vec<Self>,
}

impl BoundInput {
    /// The input for a stack of this capacity and this number of hops; none if they are within its rungs.
    pub fn for_stack(capacity: &Capacity, hops: usize, token_counts: &TokenCounts) -> Option<Self> {
        let full = capacity.full_layers;
        if full > hops || (full == hops && capacity.extra_hop) {
            return None;
        }
        let input = |case, hops| Self::for_case(capacity, case, hops, token_counts);
        if full == hops {
            return Some(input(ProofCase::AsManyLayers, hops));
        }
        let mut one_fewer = input(ProofCase::OneLayerFewer, hops);
        if full >= 1 && full + 1 < hops {
            one_fewer.inputs_with_fewer_hops.push(input(ProofCase::OneLayerFewer, full + 1));
        }
        if full >= 1 && !capacity.extra_hop {
            one_fewer.inputs_with_fewer_hops.push(input(ProofCase::AsManyLayers, full));
        }
        Some(one_fewer)
    }

    fn for_case(capacity: &Capacity, case: ProofCase, hops: usize, token_counts: &TokenCounts) -> Self {
        // A stack without full layers sends no messages; one bit keeps the arithmetic well-formed.
        let message_bits = capacity.message_bits.max(1);
        let mut state_bits = capacity.state_bits();
        let block_offset = usize::from(case == ProofCase::AsManyLayers);
        for (full_index, bits) in capacity.parallel_bits.iter().enumerate().skip(1) {
            state_bits[full_index + block_offset] += bits;
        }
        if case == ProofCase::OneLayerFewer && capacity.full_layers > 0 {
            state_bits.resize(hops, 0);
        }
        let mut fixed_bits = capacity.parallel_bits.first().copied().unwrap_or_default();
        let mut min_first_listed_table_entries = 0;
        if case == ProofCase::AsManyLayers {
            for (bits, block) in state_bits.iter_mut().zip(capacity.blocks.iter().take(2)) {
                *bits -= block.first_tokens_cache_bits;
                fixed_bits += block.first_tokens_cache_bits;
                min_first_listed_table_entries = min_first_listed_table_entries.max(block.first_tokens_cache_length);
            }
        }
        let input = Self::new(case, hops, message_bits, &state_bits, token_counts.clone());
        Self {
            fixed_bits: fixed_bits.into(),
            min_first_listed_table_entries: min_first_listed_table_entries.into(),
            ..input
        }
    }

    /// An input from explicit bit counts, without mixers in parallel with the first full layer.
    pub fn new(
        case: ProofCase,
        hops: usize,
        message_bits: u128,
        state_bits: &[u128],
        token_counts: TokenCounts,
    ) -> Self {
        Self {
            case,
            hops,
            message_bits: message_bits.into(),
            state_bits: state_bits.iter().map(|&bits| bits.into()).collect(),
            token_counts,
            fixed_bits: BigUint::ZERO,
            min_first_listed_table_entries: BigUint::ZERO,
            w_major: false,
            inputs_with_fewer_hops: Vec::new(),
        }
    }

    /// The same input for tables that list w as the major index.
    #[must_use]
    pub fn with_w_major_tables(mut self) -> Self {
        self.w_major = true;
        self.inputs_with_fewer_hops = self.inputs_with_fewer_hops.into_iter().map(Self::with_w_major_tables).collect();
        self
    }

    /// log2 of the tokens of an entry, of z_0 and of w.
    pub(super) fn log2_token_counts(&self) -> [f64; 3] {
        self.token_counts.to_array().map(log2)
    }

    /// Whether a certificate holds for stacks with at least this one's bits, for these hops or fewer.
    pub fn is_covered_by(&self, certificate: &Certificate) -> bool {
        let hops = certificate.inner_instance.map_or(certificate.hops, |inner_instance| inner_instance.hops);
        self.is_directly_covered(certificate, hops)
            || self.inputs_with_fewer_hops.iter().any(|with_fewer_hops| with_fewer_hops.is_covered_by(certificate))
    }

    /// As [`is_covered_by`](Self::is_covered_by), for exactly these hops.
    fn is_directly_covered(&self, certificate: &Certificate, hops: usize) -> bool {
        let (own, certified) = (&self.state_bits, &certificate.state_bits);
        let layers_match = match (&certificate.theorem, self.case) {
            (Theorem::State, _) => own.len() == 1,
            (_, ProofCase::OneLayerFewer) => own.len() <= certified.len(),
            (_, ProofCase::AsManyLayers) => own.len() == certified.len(),
        };
        layers_match
            && self.fixed_bits <= certificate.fixed_bits
            && &certificate.m * product(&certificate.n) >= self.min_first_listed_table_entries
            && (self.case, self.hops) == (certificate.case, hops)
            && self.message_bits <= certificate.message_bits
            && own.iter().zip(certified).all(|(own, certified)| own <= certified)
    }
}

/// log2 of an integer, minus infinity for 0. A float: used by the search, never by the checker.
pub fn log2(number: &BigUint) -> f64 {
    let bits = number.bits();
    let shift = bits.saturating_sub(64);
    let leading = u64::try_from(number >> shift).unwrap_or(u64::MAX);
    (leading as f64).log2() + shift as f64
}

/// The integer nearest to 2^log, at least 1.
pub(super) fn exp2_to_integer(log: f64) -> BigUint {
    if log < 52.0 {
        return BigUint::from(log.exp2().round().max(1.0) as u64);
    }
    let exponent = log.floor();
    let mantissa = ((log - exponent).exp2() * 2_f64.powi(52)).round();
    BigUint::from(mantissa as u64) << (exponent as u64 - 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Defaults, Plan};

    fn to_u64(bits: &BigUint) -> u64 {
        u64::try_from(bits).unwrap()
    }

    #[test]
    fn for_stack_chooses_the_proof_case_and_counts_the_bits() {
        let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
        let input = |text: &str, hops| {
            let capacity = Plan::parse(text, &defaults).unwrap().capacity();
            BoundInput::for_stack(&capacity, hops, &TokenCounts::default())
        };
        let summary = |text: &str, hops| {
            let input = input(text, hops)?;
            let bits: Vec<u64> = input.state_bits.iter().map(to_u64).collect();
            Some((input.case.number(), to_u64(&input.message_bits), bits, to_u64(&input.fixed_bits)))
        };
        assert_eq!(summary("linear full linear", 2), Some((1, 32, vec![80, 80], 0)));
        assert_eq!(summary("linear full linear", 4), Some((1, 32, vec![80, 80, 0, 0], 0)));
        assert_eq!(summary("full full linear", 2), Some((0, 32, vec![0, 0, 80], 0)));
        assert_eq!(summary("linear full linear", 1), None);
        assert_eq!(summary("linear", 1), Some((1, 1, vec![80], 0)));
        assert_eq!(summary("linear", 2), Some((1, 1, vec![80], 0)));
        assert_eq!(summary("full+linear full", 2), Some((0, 32, vec![0, 0, 0], 80)));
        assert_eq!(summary("full full+linear linear", 2), Some((0, 32, vec![0, 0, 160], 0)));
        assert_eq!(summary("full+linear full", 3), Some((1, 32, vec![0, 0, 0], 80)));
        assert_eq!(summary("full full+linear", 3), Some((1, 32, vec![0, 80, 0], 0)));
        let fewer_hops = |text: &str, hops| {
            let input = input(text, hops).unwrap();
            input.inputs_with_fewer_hops.iter().map(|inner| (inner.case.number(), inner.hops)).collect::<Vec<_>>()
        };
        assert_eq!(fewer_hops("linear full linear", 2), []);
        assert_eq!(fewer_hops("linear full linear", 4), [(1, 2)]);
        assert_eq!(fewer_hops("full full", 3), [(0, 2)]);
        assert_eq!(fewer_hops("full full", 5), [(1, 3), (0, 2)]);
    }

    #[test]
    fn log2_inverts_exp2_to_integer() {
        for log in [0.0, 1.5, 20.25, 51.9, 60.5, 300.75] {
            assert!((log2(&exp2_to_integer(log)) - log).abs() < 0.3 / log.exp2().max(1.0) + 1e-12 || log < 3.0);
        }
        assert!(log2(&BigUint::ZERO).is_infinite());
    }
}
