//! Theorem 4 (two hops, two full layers, blocks 0 and 1 empty; lists inside cells), with its conditions in the order of the text.

use num_bigint::BigUint;

use super::exact::TailBound;
use super::{Cells, Instance, Refusal, malformed};

pub(super) fn check(p: &Instance<'_>, cells: &Cells, x: [&BigUint; 2], sigma: &BigUint) -> Result<(), Refusal> {
    cells.well_formed(p)?;
    let (b, m, n1, s2, [te, t0, tw]) = (p.b, p.m, &p.n[0], &p.s[2], p.tokens_per.to_array());
    let (Cells { cell: r, group: nu }, [x0, x1]) = (cells, x);
    if *x0 == BigUint::ZERO || *x1 == BigUint::ZERO || x0 > m || x0 % (m / r) != BigUint::ZERO {
        return malformed("x[0] must be a multiple of m / cell and at most m, x[1] at least 1");
    }
    let (tail, groups, need) = (TailBound::new(m, &(x0 * x1), sigma), m / x0, x1 * b * tw * nu);
    let formula = ["E(m, x_0 x_1, sigma_1) m / x_0", ">", "x_1 B tw nu"];
    if !p.note_draw(formula, &tail, &groups, &need, tail.exceeds(&groups, &need)) {
        return Err(Refusal::Tail { step: 1 });
    }
    let last = if *s2 == BigUint::ZERO {
        BigUint::ZERO
    } else {
        let start = b * t0 * x0 * x1; // messages of layer 2 into z_0
        (s2 * x0 * x1).min(s2 * x1 + &start).min(s2 + start + b * te * m * x1)
    };
    let frozen = b * te * m * r + b * tw * n1 + b * t0 * m;
    let groups = n1 / nu * (b * tw * nu * x0 + last);
    p.compare_with_answers(&(frozen + groups), &(n1 * sigma))
}
