//! Theorem 1 has no free number: the smallest m for each n_1, and the best n_1.
//!
//! A float copy of the conditions finds n_1 and nearly m; the checker settles m.

use num_bigint::BigUint;

use super::{CheckedCertificate, SearchSetting};
use crate::bound::checker::Theorem;
use crate::bound::input::{exp2_to_integer, log2};

/// The smallest instance: n_1 = 1 where nothing follows the full layer, else large enough for the values to outgrow the border.
pub(super) fn smallest(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let conditions = Conditions::new(setting);
    let mut tried: Vec<(f64, f64)> = (1..=16).map(|n| f64::from(n).log2()).map(|n| (conditions.tokens(n), n)).collect();
    // Tokens have one minimum in n_1 but for rounding: a coarse grid, then finer around its best.
    let (mut centre, mut width) = (24.0, 24.0);
    while width > 1e-3 {
        let grid = (0..=16).map(|i| centre + width * (f64::from(i) / 8.0 - 1.0)).filter(|&log| log >= 0.0);
        let whole = grid.map(|log| if log < 40.0 { log.exp2().round().log2() } else { log });
        let tokens: Vec<(f64, f64)> = whole.map(|n| (conditions.tokens(n), n)).collect();
        centre = tokens.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.1;
        tried.extend(tokens);
        width /= 4.0;
    }
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    tried.dedup();
    let close = tried.into_iter().filter(|(tokens, _)| tokens.is_finite()).take(3);
    let found = close.filter_map(|(_, n)| smallest_m(setting, conditions.least_m(n), &exp2_to_integer(n)));
    found.min_by(|a, b| a.accepted.tokens.cmp(&b.accepted.tokens))
}

/// The smallest m for one n_1, given nearly that m.
///
/// Conditions (ii) and (iii) round down, so that a slightly smaller m may hold where a larger one fails.
fn smallest_m(setting: &SearchSetting<'_>, near: f64, n: &BigUint) -> Option<CheckedCertificate> {
    const NEIGHBOURS: u8 = 32;
    let attempt = |m: &BigUint| {
        CheckedCertificate::new(setting.certificate(m.clone(), std::slice::from_ref(n), Theorem::Entropy))
    };
    let mut margin = exp2_to_integer(near) >> 40;
    let mut best = (0..64).find_map(|_| {
        margin = &margin * 2_u8 + 1_u8;
        attempt(&(exp2_to_integer(near) + &margin))
    })?;
    let mut low: BigUint = exp2_to_integer(near) - (exp2_to_integer(near) >> 30_u8);
    while low < best.certificate.m {
        let middle = (&low + &best.certificate.m) >> 1;
        match attempt(&middle) {
            Some(found) => best = found,
            None => low = middle + 1_u8,
        }
    }
    let below = (1..=NEIGHBOURS)
        .map_while(|less| (best.certificate.m > BigUint::from(less)).then(|| &best.certificate.m - less));
    below.filter_map(|m| attempt(&m)).last().or(Some(best))
}

/// The theorem's conditions in floats.
struct Conditions {
    message: f64,
    states: [f64; 2],
    parallel_bits: f64,
    tokens: [f64; 3],
    tables: [f64; 2],
}

impl Conditions {
    fn new(setting: &SearchSetting<'_>) -> Self {
        let input = setting.input;
        let bits = |bits: &BigUint| log2(bits).exp2();
        Self {
            message: bits(&input.message_bits),
            states: [bits(&input.state_bits[0]), bits(&input.state_bits[1])],
            parallel_bits: bits(&input.parallel_bits),
            tokens: input.log2_tokens_per().map(f64::exp2),
            tables: [1.0 + setting.middle as f64, 1.0 + setting.front as f64],
        }
    }

    /// log2 of the tokens for log2 of n_1, at the smallest m.
    fn tokens(&self, n: f64) -> f64 {
        let m = self.least_m(n);
        let tables = (m.exp2() * self.tables[0]) + (m + n).exp2() * self.tables[1];
        (self.tokens[0] * tables + self.tokens[1] + self.tokens[2]).log2()
    }

    /// log2 of the smallest m for log2 of n_1, infinite where there is none.
    fn least_m(&self, n: f64) -> f64 {
        let (mut low, mut high) = (1.0, 96.0);
        if !self.holds(high, n) {
            return f64::INFINITY;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.holds(middle, n) { high = middle } else { low = middle }
        }
        if high < 40.0 { high.exp2().ceil().log2() } else { high }
    }

    fn holds(&self, log_m: f64, log_n: f64) -> bool {
        let (m, n, [s0, s1]) = (log_m.exp2(), log_n.exp2(), self.states);
        let carried = n * self.message * if s1 > 0.0 { self.tokens[2] } else { 1.0 };
        let (value, state) = (n * (log_m + log_n) - s1, s0 + self.parallel_bits);
        if value <= 0.0 {
            return false;
        }
        let exceeds = |a: f64, b: f64| a > b && m * (a / b).log2() > s0;
        let r = (carried / value).floor();
        let gap = (r + 1.0) * value - carried;
        let k = ((carried + state) / value).floor();
        exceeds(m * value - state, carried)
            || (r >= 1.0 && exceeds(m * gap - state, r * gap))
            || (k < 1.0 || exceeds(m, k))
    }
}
