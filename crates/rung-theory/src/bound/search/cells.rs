//! Theorem 3 has three free numbers beside n_1: the cell r, the group nu, and m/r. A pattern search in their logarithms.

use num_bigint::BigUint;

use super::{CheckedCertificate, SearchSetting, least};
use crate::bound::checker::{Cells, Theorem};
use crate::bound::float_check::divisors;
use crate::bound::input::{exp2_to_integer, log2};

/// The smallest instance found.
pub(super) fn smallest(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let bits = log2(&setting.input.message_bits);
    let last = setting.input.state_bits[2].clone();
    let group = if last == BigUint::ZERO { 0.0 } else { log2(&last) };
    let conditions = Conditions::new(setting);
    let far = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25];
    let starts = far.into_iter().flat_map(|c| [[3.0, group * c, bits], [bits, group * c + 1.0, bits + 2.0]]);
    let optimum = |start| descend(start, |at| conditions.tokens(at));
    let best = starts.map(optimum).min_by(|a, b| a.1.total_cmp(&b.1))?.0;
    // Real numbers to integers: every combination of neighbours, each with its smallest n_1.
    let mut found: Option<CheckedCertificate> = None;
    for choice in 0..64_u32 {
        let whole =
            [0, 1, 2].map(|i| exp2_to_integer(best[i]) + (choice >> (2 * i) & 3) - 1_u8.min(u8::from(best[i] > 1.0)));
        let [cell, group, cells] = whole.map(|size| size.max(1_u8.into()));
        let candidate = smallest_n(setting, &cell, &group, &(&cell * cells));
        if let Some(candidate) = candidate
            && found.as_ref().is_none_or(|found| candidate.accepted.tokens < found.accepted.tokens)
        {
            found = Some(candidate);
        }
    }
    found
}

/// The smallest n_1, a multiple of the group, for one cell, group and m.
fn smallest_n(setting: &SearchSetting<'_>, cell: &BigUint, group: &BigUint, m: &BigUint) -> Option<CheckedCertificate> {
    let attempt = |groups: &BigUint| {
        let theorem = Theorem::Cells(Cells { cell: cell.clone(), group: group.clone() });
        CheckedCertificate::new(setting.certificate(m.clone(), &[groups * group], theorem))
    };
    least(BigUint::from(1_u8), 400, |groups| attempt(groups).is_some()).and_then(|groups| attempt(&groups))
}

/// Every cell and group that divide given tables.
pub(super) fn parameters(m: &BigUint, n: &BigUint) -> impl Iterator<Item = Theorem> {
    const MOST: usize = 64;
    let few = |number: &BigUint| {
        let mut divisors = divisors(number);
        divisors.sort();
        // Of very many divisors those spread evenly are as good as all.
        let step = divisors.len().div_ceil(MOST);
        divisors.into_iter().step_by(step).collect::<Vec<_>>()
    };
    let groups = few(n);
    few(m).into_iter().flat_map(move |cell| {
        groups.clone().into_iter().map(move |group| Theorem::Cells(Cells { cell: cell.clone(), group }))
    })
}

/// The theorem's inequality in floats.
struct Conditions {
    message: f64,
    last: f64,
    tokens: [f64; 3],
    middle: f64,
    front: f64,
}

impl Conditions {
    fn new(setting: &SearchSetting<'_>) -> Self {
        let input = setting.input;
        Self {
            message: log2(&input.message_bits).exp2(),
            last: log2(&input.state_bits[2]).exp2(),
            tokens: input.log2_tokens_per().map(f64::exp2),
            middle: setting.middle as f64,
            front: setting.front as f64,
        }
    }

    /// log2 of the tokens at the smallest n_1 for log2 of r, nu and m/r; infinite where there is none.
    fn tokens(&self, [cell, group, cells]: [f64; 3]) -> f64 {
        if cell < 0.0 || group < 0.0 || cells < 0.0 {
            return f64::INFINITY;
        }
        let m = (cell + cells).exp2();
        let (mut low, mut high) = (group, 400.0_f64);
        if !self.holds(cell.exp2(), group.exp2(), m, high.exp2()) {
            return f64::INFINITY;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.holds(cell.exp2(), group.exp2(), m, middle.exp2()) { high = middle } else { low = middle }
        }
        let tables = m * (1.0 + self.middle) + m * high.exp2() * (1.0 + self.front);
        (self.tokens[0] * tables + self.tokens[1] + self.tokens[2]).log2()
    }

    fn holds(&self, r: f64, nu: f64, m: f64, n: f64) -> bool {
        let [te, t0, tw] = self.tokens;
        let t0 = t0 + te * self.middle * m;
        let b = self.message;
        let value = nu * (m * n).log2() - self.last;
        let carried = nu * b * if self.last > 0.0 { tw } else { 1.0 };
        let theta = b * te * m * r + b * tw * n + b * t0 * m;
        let gap = r * value - carried;
        gap > 0.0 && (m - r * theta * nu / (n * gap)) * (r * value / carried).log2() > b * tw * nu
    }
}

/// Pattern search: steps along each axis and each pair of axes, halved where none helps.
fn descend(start: [f64; 3], value: impl Fn([f64; 3]) -> f64) -> ([f64; 3], f64) {
    let (mut best, mut at) = (value(start), start);
    let mut step = 4.0;
    while step > 1e-4 {
        let mut moved = false;
        for direction in 0..27_i32 {
            let axis = |i: usize| f64::from(direction / 3_i32.pow(i as u32) % 3 - 1);
            let next = [at[0] + step * axis(0), at[1] + step * axis(1), at[2] + step * axis(2)];
            let found = value(next.map(|log| log.max(0.0)));
            if found < best {
                (best, at, moved) = (found, next.map(|log| log.max(0.0)), true);
            }
        }
        if !moved {
            step *= 0.5;
        }
    }
    (at, best)
}
