//! Theorem 1 (two hops, one full layer, any blocks; no free parameter), with its conditions in the order of `docs/proof.md`.

use num_bigint::BigUint;

use super::exact::{FRACTION_BITS, log2_rounded_down, power_exceeds};
use super::{Instance, ProofCase, Rejection, malformed};

/// Binary digits after the point of V = log N_1.
const VALUE_FRACTION_BITS: u64 = 64;

pub(super) fn check(instance: &Instance<'_>) -> Result<(), Rejection> {
    if instance.case != ProofCase::OneLayerFewer || instance.hops != 2 {
        return malformed("theorem `entropy` is about case 1 and two hops");
    }
    let ([s0, s1], m, n1) = ([&instance.s[0], &instance.s[1]], instance.m, &instance.n[0]);
    let beta = if *s1 == BigUint::ZERO { instance.b.clone() } else { instance.b * &instance.token_counts.query };
    let v = log2_rounded_down(&instance.size[1], &BigUint::from(1_u8)) >> (FRACTION_BITS - VALUE_FRACTION_BITS);
    let state = (s0 + instance.fixed_bits) << VALUE_FRACTION_BITS; // S
    let message_capacity = (n1 * beta) << VALUE_FRACTION_BITS; // C
    // Bits of the entries of z_2 for one i and every w.
    let (row_bits, state_bits) = (n1 * v, s1 << VALUE_FRACTION_BITS);
    let rescaled = |side: &BigUint| side << (FRACTION_BITS - VALUE_FRACTION_BITS);
    if !instance.record(["n_1 log N_1", ">", "s_1"], row_bits > state_bits, || {
        (Some(rescaled(&row_bits)), rescaled(&state_bits))
    }) {
        return Err(Rejection::Entropy);
    }
    let value = row_bits - state_bits; // V'
    let minus_state = |bits: BigUint| if bits > state { bits - &state } else { BigUint::ZERO };
    // (i)
    let first = minus_state(m * &value);
    let formula = ["(i) m log((m V' - S) / C)", ">", "s_0"];
    if instance.record_power(formula, [&first, &message_capacity], s0, power_exceeds(&first, &message_capacity, m, s0))
    {
        return Ok(());
    }
    // (ii)
    let r = &message_capacity / &value;
    let gap = (&r + 1_u8) * &value - &message_capacity; // G
    if r != BigUint::ZERO {
        let (second, divisor) = (minus_state(m * &gap), &r * &gap);
        let formula = ["(ii) m log((m G - S) / (r G))", ">", "s_0"];
        if instance.record_power(formula, [&second, &divisor], s0, power_exceeds(&second, &divisor, m, s0)) {
            return Ok(());
        }
    }
    // (iii)
    let k = (&message_capacity + &state) / &value;
    let formula = ["(iii) m log(m / k)", ">", "s_0"];
    if k == BigUint::ZERO {
        instance.record(formula, true, || (None, s0 << FRACTION_BITS));
        return Ok(());
    }
    if instance.record_power(formula, [m, &k], s0, power_exceeds(m, &k, m, s0)) {
        return Ok(());
    }
    Err(Rejection::Entropy)
}
