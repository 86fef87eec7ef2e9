//! Theorem 4 (two hops, two full layers, blocks 0 and 1 empty; lists inside the cells of Theorem 3), with its conditions in the
//! order of `docs/proof.md`.

use num_bigint::BigUint;

use super::exact::TailBound;
use super::{Cells, Instance, Rejection, malformed};

pub(super) fn check(
    instance: &Instance<'_>,
    cells: &Cells,
    x: [&BigUint; 2],
    sigma: &BigUint,
) -> Result<(), Rejection> {
    cells.check_form(instance)?;
    let (b, m, n1, s2, [te, t0, tw]) =
        (instance.b, instance.m, &instance.n[0], &instance.s[2], instance.token_counts.to_array());
    let (Cells { cell: r, group: nu }, [x0, x1]) = (cells, x);
    if *x0 == BigUint::ZERO || *x1 == BigUint::ZERO || x0 > m || x0 % (m / r) != BigUint::ZERO {
        return malformed("x[0] must be a multiple of m / cell and at most m, x[1] at least 1");
    }
    let (tail, groups, required) = (TailBound::new(m, &(x0 * x1), sigma), m / x0, x1 * b * tw * nu);
    let formula = ["E(m, x_0 x_1, sigma_1) m / x_0", ">", "x_1 B tw nu"];
    if !instance.record_tail(formula, &tail, &groups, &required, tail.exceeds(&groups, &required)) {
        return Err(Rejection::Tail { step: 1 });
    }
    let last_border = if *s2 == BigUint::ZERO {
        BigUint::ZERO
    } else {
        let start_messages = b * t0 * x0 * x1; // messages of layer 2 into z_0
        (s2 * x0 * x1).min(s2 * x1 + &start_messages).min(s2 + start_messages + b * te * m * x1)
    };
    let frozen_messages = b * te * m * r + b * tw * n1 + b * t0 * m;
    let group_bits = n1 / nu * (b * tw * nu * x0 + last_border);
    instance.check_final(&(frozen_messages + group_bits), &(n1 * sigma))
}
