//! Theorem 3 (two hops, two full layers, blocks 0 and 1 empty), with its conditions in the order of `docs/proof.md`.
//!
//! The proof divides the m values of z_1 into m/r *cells* of r values and lets each entry of z_1 range over one cell. It counts
//! the n_1 values of w in n_1/nu *groups* of nu values.

use num_bigint::BigUint;

use super::exact::{FRACTION_BITS, log2_rounded_down};
use super::{Cells, Instance, ProofCase, Rejection, malformed};

pub(super) fn check(instance: &Instance<'_>, cells: &Cells) -> Result<(), Rejection> {
    cells.check_form(instance)?;
    let (b, m, n1, s2, [te, t0, tw]) =
        (instance.b, instance.m, &instance.n[0], &instance.s[2], instance.token_counts.to_array());
    let Cells { cell: r, group: nu } = cells;
    let one = BigUint::from(1_u8);
    // Bits of the entries of z_2 for one i and the w of one group.
    let (row_bits, state_bits) = (nu * log2_rounded_down(&instance.size[1], &one), s2 << FRACTION_BITS);
    let message_capacity = (nu * b * if *s2 == BigUint::ZERO { &one } else { tw }) << FRACTION_BITS; // C
    let theta = b * te * m * r + b * tw * n1 + b * t0 * m;
    if !instance
        .record(["nu log N_1", ">", "s_2"], row_bits > state_bits, || (Some(row_bits.clone()), state_bits.clone()))
    {
        return Err(Rejection::Cells);
    }
    let cell_bits = r * (row_bits - state_bits); // r V'
    if !instance.record(["r V'", ">", "C"], cell_bits > message_capacity, || {
        (Some(cell_bits.clone()), message_capacity.clone())
    }) {
        return Err(Rejection::Cells);
    }
    let gap = &cell_bits - &message_capacity; // r V' - C
    // (m - r theta nu / (n_1 gap)) log(r V' / C) > B tw nu, times n_1 gap.
    let (total, loss) = (m * n1 * &gap, (r * theta * nu) << FRACTION_BITS);
    let left =
        if total > loss { (total - loss) * log2_rounded_down(&cell_bits, &message_capacity) } else { BigUint::ZERO };
    let (required, scale) = ((b * tw * nu) << FRACTION_BITS, n1 * gap);
    let formula = ["(m - r theta nu / (n_1 (r V' - C))) log(r V' / C)", ">", "B tw nu"];
    let holds = instance.record(formula, left > &required * &scale, || (Some(&left / &scale), required.clone()));
    if holds { Ok(()) } else { Err(Rejection::Cells) }
}

impl Cells {
    /// Case 0, two hops, no mixer in parallel with the first full layer; r divides m and nu divides n_1.
    pub(super) fn check_form(&self, instance: &Instance<'_>) -> Result<(), Rejection> {
        if instance.case != ProofCase::AsManyLayers || instance.hops != 2 {
            return malformed("theorems `cells` and `cell-lists` are about case 0 and two hops");
        }
        if *instance.fixed_bits != BigUint::ZERO {
            return malformed(
                "no mixer or convolution may be in parallel with the first full layer (theorems `cells` and `cell-lists`)",
            );
        }
        let divides = |divisor: &BigUint, size: &BigUint| *divisor != BigUint::ZERO && size % divisor == BigUint::ZERO;
        if divides(&self.cell, instance.m) && divides(&self.group, &instance.n[0]) {
            Ok(())
        } else {
            malformed("cell must divide m, and group n[0]")
        }
    }
}
