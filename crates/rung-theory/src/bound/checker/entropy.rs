//! Theorem 1 (two hops, one full layer, any blocks; no free parameter), with its conditions in the order of the text.

use num_bigint::BigUint;

use super::exact::{FRACTION, log2, power_exceeds};
use super::{Instance, ProofCase, Refusal, malformed};

/// Binary digits of V after the point.
const DIGITS: u64 = 64;

pub(super) fn check(p: &Instance<'_>) -> Result<(), Refusal> {
    if p.case != ProofCase::OneLayerFewer || p.hops != 2 {
        return malformed("theorem `entropy` is about case 1 and two hops");
    }
    let ([s0, s1], m, n1) = ([&p.s[0], &p.s[1]], p.m, &p.n[0]);
    let beta = if *s1 == BigUint::ZERO { p.b.clone() } else { p.b * &p.tokens_per.query };
    let v = log2(&p.size[1], &BigUint::from(1_u8), false) >> (FRACTION - DIGITS);
    let state = (s0 + p.parallel_bits) << DIGITS; // S
    let carried = (n1 * beta) << DIGITS; // C
    let (rows, border) = (n1 * v, s1 << DIGITS);
    let scaled = |side: &BigUint| side << (FRACTION - DIGITS);
    if !p.note(["n_1 log N_1", ">", "s_1"], rows > border, || (Some(scaled(&rows)), scaled(&border))) {
        return Err(Refusal::Entropy);
    }
    let value = rows - border; // V'
    let less = |a: BigUint| if a > state { a - &state } else { BigUint::ZERO };
    // (i)
    let first = less(m * &value);
    let formula = ["(i) m log((m V' - S) / C)", ">", "s_0"];
    if p.note_power(formula, [&first, &carried], s0, power_exceeds(&first, &carried, m, s0)) {
        return Ok(());
    }
    // (ii)
    let r = &carried / &value;
    let gap = (&r + 1_u8) * &value - &carried; // G
    if r != BigUint::ZERO {
        let (second, divisor) = (less(m * &gap), &r * &gap);
        let formula = ["(ii) m log((m G - S) / (r G))", ">", "s_0"];
        if p.note_power(formula, [&second, &divisor], s0, power_exceeds(&second, &divisor, m, s0)) {
            return Ok(());
        }
    }
    // (iii)
    let k = (&carried + &state) / &value;
    let formula = ["(iii) m log(m / k)", ">", "s_0"];
    if k == BigUint::ZERO {
        p.note(formula, true, || (None, s0 << FRACTION));
        return Ok(());
    }
    if p.note_power(formula, [m, &k], s0, power_exceeds(m, &k, m, s0)) {
        return Ok(());
    }
    Err(Refusal::Entropy)
}
