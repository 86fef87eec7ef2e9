//! Theorem 1 has no free parameter: the search finds the smallest m for each n_1, and the best n_1.
//!
//! The conditions in floats give n_1 and an estimate of m; the checker then gives the exact m.

use num_bigint::BigUint;

use super::{CheckedCertificate, SearchSetting};
use crate::bound::checker::Theorem;
use crate::bound::input::{exp2_to_integer, log2};

/// The smallest instance: n_1 = 1 if no state follows the full layer, else n_1 so large that the values exceed that state.
pub(super) fn smallest_certificate(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let conditions = EntropyConditions::new(setting);
    let mut candidates: Vec<(f64, f64)> =
        (1..=16).map(|n| f64::from(n).log2()).map(|n| (conditions.log2_tokens(n), n)).collect();
    // Apart from rounding, tokens have one minimum in n_1: a coarse grid, then finer grids around its best point.
    let (mut centre, mut width) = (24.0, 24.0);
    while width > 1e-3 {
        let grid = (0..=16).map(|i| centre + width * (f64::from(i) / 8.0 - 1.0)).filter(|&log| log >= 0.0);
        let rounded = grid.map(|log| if log < 40.0 { log.exp2().round().log2() } else { log });
        let tokens: Vec<(f64, f64)> = rounded.map(|n| (conditions.log2_tokens(n), n)).collect();
        centre = tokens.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.1;
        candidates.extend(tokens);
        width /= 4.0;
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
    candidates.dedup();
    let best = candidates.into_iter().filter(|(tokens, _)| tokens.is_finite()).take(3);
    let certified = best.filter_map(|(_, n)| smallest_m(setting, conditions.smallest_log2_m(n), &exp2_to_integer(n)));
    certified.min_by(|a, b| a.accepted.tokens.cmp(&b.accepted.tokens))
}

/// The smallest m for one n_1, given an estimate of log2 m.
///
/// Conditions (ii) and (iii) round down, so a slightly smaller m may pass although a larger one fails.
fn smallest_m(setting: &SearchSetting<'_>, log2_m: f64, n: &BigUint) -> Option<CheckedCertificate> {
    const SMALLER_TRIES: u8 = 32;
    let estimate = exp2_to_integer(log2_m);
    let certify = |m: &BigUint| {
        CheckedCertificate::new(setting.certificate(m.clone(), std::slice::from_ref(n), Theorem::Entropy))
    };
    let mut margin = &estimate >> 40;
    let mut best = (0..64).find_map(|_| {
        margin = &margin * 2_u8 + 1_u8;
        certify(&(&estimate + &margin))
    })?;
    let mut low: BigUint = &estimate - (&estimate >> 30_u8);
    while low < best.certificate.m {
        let midpoint = (&low + &best.certificate.m) >> 1;
        match certify(&midpoint) {
            Some(smaller) => best = smaller,
            None => low = midpoint + 1_u8,
        }
    }
    let smaller_candidates = (1..=SMALLER_TRIES).map_while(|difference| {
        (best.certificate.m > BigUint::from(difference)).then(|| &best.certificate.m - difference)
    });
    smaller_candidates.filter_map(|m| certify(&m)).last().or(Some(best))
}

/// The theorem's conditions in floats.
struct EntropyConditions {
    message_bits: f64,
    state_bits: [f64; 2],
    fixed_bits: f64,
    /// Tokens of an entry, of the start value and of the query.
    token_counts: [f64; 3],
    /// How many tables have the sizes m and N_1, constant ones included.
    table_counts: [f64; 2],
}

impl EntropyConditions {
    fn new(setting: &SearchSetting<'_>) -> Self {
        let input = setting.input;
        let bits = |bits: &BigUint| log2(bits).exp2();
        Self {
            message_bits: bits(&input.message_bits),
            state_bits: [bits(&input.state_bits[0]), bits(&input.state_bits[1])],
            fixed_bits: bits(&input.fixed_bits),
            token_counts: input.log2_token_counts().map(f64::exp2),
            table_counts: [1.0 + setting.middle as f64, 1.0 + setting.front as f64],
        }
    }

    /// log2 of the tokens at the smallest m, given log2 of n_1.
    fn log2_tokens(&self, n: f64) -> f64 {
        let m = self.smallest_log2_m(n);
        let entries = (m.exp2() * self.table_counts[0]) + (m + n).exp2() * self.table_counts[1];
        let [te, t0, tw] = self.token_counts;
        (te * entries + t0 + tw).log2()
    }

    /// log2 of the smallest m, given log2 of n_1; infinite if there is none.
    fn smallest_log2_m(&self, n: f64) -> f64 {
        let (mut low, mut high) = (1.0, 96.0);
        if !self.holds(high, n) {
            return f64::INFINITY;
        }
        for _ in 0..60 {
            let midpoint = f64::midpoint(low, high);
            if self.holds(midpoint, n) { high = midpoint } else { low = midpoint }
        }
        if high < 40.0 { high.exp2().ceil().log2() } else { high }
    }

    /// The conditions (i) to (iii) of Theorem 1, with the letters of `docs/proof.md`.
    fn holds(&self, log_m: f64, log_n: f64) -> bool {
        let (m, n, [s0, s1]) = (log_m.exp2(), log_n.exp2(), self.state_bits);
        let message_capacity = n * self.message_bits * if s1 > 0.0 { self.token_counts[2] } else { 1.0 };
        let (value, state) = (n * (log_m + log_n) - s1, s0 + self.fixed_bits);
        if value <= 0.0 {
            return false;
        }
        let exceeds = |a: f64, b: f64| a > b && m * (a / b).log2() > s0;
        let r = (message_capacity / value).floor();
        let gap = (r + 1.0) * value - message_capacity;
        let k = ((message_capacity + state) / value).floor();
        exceeds(m * value - state, message_capacity)
            || (r >= 1.0 && exceeds(m * gap - state, r * gap))
            || (k < 1.0 || exceeds(m, k))
    }
}
