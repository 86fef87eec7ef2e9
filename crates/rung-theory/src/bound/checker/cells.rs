//! Theorem 3 (two hops, two full layers, blocks 0 and 1 empty), with its conditions in the order of the text.

use num_bigint::BigUint;

use super::exact::{FRACTION, log2};
use super::{Cells, Instance, ProofCase, Refusal, malformed};

pub(super) fn check(p: &Instance<'_>, cells: &Cells) -> Result<(), Refusal> {
    cells.well_formed(p)?;
    let (b, m, n1, s2, [te, t0, tw]) = (p.b, p.m, &p.n[0], &p.s[2], p.tokens_per.to_array());
    let Cells { cell: r, group: nu } = cells;
    let one = BigUint::from(1_u8);
    let (rows, border) = (nu * log2(&p.size[1], &one, false), s2 << FRACTION);
    let carried = (nu * b * if *s2 == BigUint::ZERO { &one } else { tw }) << FRACTION; // C
    let theta = b * te * m * r + b * tw * n1 + b * t0 * m;
    if !p.note(["nu log N_1", ">", "s_2"], rows > border, || (Some(rows.clone()), border.clone())) {
        return Err(Refusal::Cells);
    }
    let cell = r * (rows - border); // r V'
    if !p.note(["r V'", ">", "C"], cell > carried, || (Some(cell.clone()), carried.clone())) {
        return Err(Refusal::Cells);
    }
    let gap = &cell - &carried; // r V' - C
    // (m - r theta nu / (n_1 gap)) log(r V' / C) > B tw nu, times n_1 gap.
    let (all, lost) = (m * n1 * &gap, (r * theta * nu) << FRACTION);
    let left = if all > lost { (all - lost) * log2(&cell, &carried, false) } else { BigUint::ZERO };
    let (need, scale) = ((b * tw * nu) << FRACTION, n1 * gap);
    let formula = ["(m - r theta nu / (n_1 (r V' - C))) log(r V' / C)", ">", "B tw nu"];
    let holds = p.note(formula, left > &need * &scale, || (Some(&left / &scale), need.clone()));
    if holds { Ok(()) } else { Err(Refusal::Cells) }
}

impl Cells {
    /// Case 0, two hops, nothing beside layer 1; r | m and nu | n_1.
    pub(super) fn well_formed(&self, p: &Instance<'_>) -> Result<(), Refusal> {
        if p.case != ProofCase::AsManyLayers || p.hops != 2 {
            return malformed("theorems `cells` and `cell-lists` are about case 0 and two hops");
        }
        if *p.parallel_bits != BigUint::ZERO {
            return malformed("no mixer or convolution may stand beside layer 1 (theorems `cells` and `cell-lists`)");
        }
        let divides = |divisor: &BigUint, size: &BigUint| *divisor != BigUint::ZERO && size % divisor == BigUint::ZERO;
        if divides(&self.cell, p.m) && divides(&self.group, &p.n[0]) {
            Ok(())
        } else {
            malformed("cell must divide m, and group n[0]")
        }
    }
}
