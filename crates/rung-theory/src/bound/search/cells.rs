//! Theorem 3 has three free parameters in addition to n_1: the cell size r, the group size nu, and the number of cells
//! m/r. They are found by a pattern search over their logarithms.

use num_bigint::BigUint;

use super::{CheckedCertificate, SearchSetting, smallest_passing};
use crate::bound::checker::{Cells, Theorem};
use crate::bound::float_check::divisors;
use crate::bound::input::{exp2_to_integer, log2};

/// The smallest instance found.
pub(super) fn smallest_certificate(setting: &SearchSetting<'_>) -> Option<CheckedCertificate> {
    let message_bits = log2(&setting.input.message_bits);
    let last_state = setting.input.state_bits[2].clone();
    let group = if last_state == BigUint::ZERO { 0.0 } else { log2(&last_state) };
    let conditions = CellConditions::new(setting);
    let group_factors = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25];
    let starts = group_factors.into_iter().flat_map(|factor| {
        [[3.0, group * factor, message_bits], [message_bits, group * factor + 1.0, message_bits + 2.0]]
    });
    let optimum = |start| pattern_search(start, |sizes| conditions.log2_tokens(sizes));
    let best = starts.map(optimum).min_by(|a, b| a.1.total_cmp(&b.1))?.0;
    // Rounding: every combination of nearby integers, each with its smallest n_1.
    let mut smallest: Option<CheckedCertificate> = None;
    for choice in 0..64_u32 {
        let rounded =
            [0, 1, 2].map(|i| exp2_to_integer(best[i]) + (choice >> (2 * i) & 3) - 1_u8.min(u8::from(best[i] > 1.0)));
        let [cell, group, cell_count] = rounded.map(|size| size.max(1_u8.into()));
        let candidate = smallest_n(setting, &cell, &group, &(&cell * cell_count));
        if let Some(candidate) = candidate
            && smallest.as_ref().is_none_or(|smallest| candidate.accepted.tokens < smallest.accepted.tokens)
        {
            smallest = Some(candidate);
        }
    }
    smallest
}

/// The smallest n_1, a multiple of the group, for one cell, group and m.
fn smallest_n(setting: &SearchSetting<'_>, cell: &BigUint, group: &BigUint, m: &BigUint) -> Option<CheckedCertificate> {
    let certify = |groups: &BigUint| {
        let theorem = Theorem::Cells(Cells { cell: cell.clone(), group: group.clone() });
        CheckedCertificate::new(setting.certificate(m.clone(), &[groups * group], theorem))
    };
    smallest_passing(BigUint::from(1_u8), 400, |groups| certify(groups).is_some()).and_then(|groups| certify(&groups))
}

/// Cells and groups that divide the sizes of the given tables.
pub(super) fn parameters(m: &BigUint, n: &BigUint) -> impl Iterator<Item = Theorem> {
    const MAX_DIVISORS: usize = 64;
    let some_divisors = |number: &BigUint| {
        let mut divisors = divisors(number);
        divisors.sort();
        // If there are very many divisors, an evenly spaced selection is enough.
        let step = divisors.len().div_ceil(MAX_DIVISORS);
        divisors.into_iter().step_by(step).collect::<Vec<_>>()
    };
    let groups = some_divisors(n);
    some_divisors(m).into_iter().flat_map(move |cell| {
        groups.clone().into_iter().map(move |group| Theorem::Cells(Cells { cell: cell.clone(), group }))
    })
}

/// The theorem's inequality in floats.
struct CellConditions {
    message_bits: f64,
    /// s_2.
    last_state_bits: f64,
    /// Tokens of an entry, of the start value and of the query.
    token_counts: [f64; 3],
    /// Identity tables between the varying ones and z_0.
    middle: f64,
    /// Constant tables before the varying ones.
    front: f64,
}

impl CellConditions {
    fn new(setting: &SearchSetting<'_>) -> Self {
        let input = setting.input;
        Self {
            message_bits: log2(&input.message_bits).exp2(),
            last_state_bits: log2(&input.state_bits[2]).exp2(),
            token_counts: input.log2_token_counts().map(f64::exp2),
            middle: setting.middle as f64,
            front: setting.front as f64,
        }
    }

    /// log2 of the tokens at the smallest n_1, given log2 of r, nu and m/r; infinite if there is none.
    fn log2_tokens(&self, [cell, group, cell_count]: [f64; 3]) -> f64 {
        if cell < 0.0 || group < 0.0 || cell_count < 0.0 {
            return f64::INFINITY;
        }
        let m = (cell + cell_count).exp2();
        let (mut low, mut high) = (group, 400.0_f64);
        if !self.holds(cell.exp2(), group.exp2(), m, high.exp2()) {
            return f64::INFINITY;
        }
        for _ in 0..60 {
            let midpoint = f64::midpoint(low, high);
            if self.holds(cell.exp2(), group.exp2(), m, midpoint.exp2()) { high = midpoint } else { low = midpoint }
        }
        let tables = m * (1.0 + self.middle) + m * high.exp2() * (1.0 + self.front);
        let [te, t0, tw] = self.token_counts;
        (te * tables + t0 + tw).log2()
    }

    /// The inequality of Theorem 3, with the letters of `docs/proof.md`.
    fn holds(&self, r: f64, nu: f64, m: f64, n: f64) -> bool {
        let [te, t0, tw] = self.token_counts;
        let t0 = t0 + te * self.middle * m;
        let b = self.message_bits;
        let value = nu * (m * n).log2() - self.last_state_bits;
        let message_capacity = nu * b * if self.last_state_bits > 0.0 { tw } else { 1.0 };
        let theta = b * te * m * r + b * tw * n + b * t0 * m;
        let gap = r * value - message_capacity;
        gap > 0.0 && (m - r * theta * nu / (n * gap)) * (r * value / message_capacity).log2() > b * tw * nu
    }
}

/// Minimises by pattern search: steps in all 26 axis and diagonal directions, halved if none improves.
fn pattern_search(start: [f64; 3], objective: impl Fn([f64; 3]) -> f64) -> ([f64; 3], f64) {
    let (mut best, mut point) = (objective(start), start);
    let mut step = 4.0;
    while step > 1e-4 {
        let mut improved = false;
        for direction in 0..27_i32 {
            let axis = |i: usize| f64::from(direction / 3_i32.pow(i as u32) % 3 - 1);
            let next = [point[0] + step * axis(0), point[1] + step * axis(1), point[2] + step * axis(2)];
            let next = next.map(|log| log.max(0.0));
            let value = objective(next);
            if value < best {
                (best, point, improved) = (value, next, true);
            }
        }
        if !improved {
            step *= 0.5;
        }
    }
    (point, best)
}
