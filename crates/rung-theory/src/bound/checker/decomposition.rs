//! Theorem 0 (the indistinguishable decomposition, any L, both cases), with its conditions in the order of `docs/proof.md`.

use num_bigint::BigUint;

use super::exact::TailBound;
use super::{Instance, ProofCase, Rejection, TableLists, product, sum};

pub(super) fn check(instance: &Instance<'_>, lists: &TableLists) -> Result<(), Rejection> {
    let TableLists { x, sigma, kappa: k } = lists;
    lists.check_form(instance, instance.n, instance.m)?;
    let (l, b, s, [te, t0, tw]) = (instance.hops, instance.b, instance.s, instance.token_counts.to_array());
    let pairs = &x[0] * product(instance.n) / product(k); // |Q|
    let queries = product(instance.n) / product(k.iter().skip(1)); // W
    let tokens_of = |i: usize| if i == 0 { t0.clone() } else { te * &instance.size[i - 1] };
    let mut delta =
        if instance.case == ProofCase::OneLayerFewer { s[0].clone() } else { b * tw * queries + instance.fixed_bits };
    let mut reachable = x[0].clone(); // D
    for e in 0..l - 1 {
        let list_length = &x[e + 1];
        let layer = if instance.case == ProofCase::OneLayerFewer { e + 1 } else { e + 2 };
        let first_in_case_0 = instance.case == ProofCase::AsManyLayers && e == 0;
        delta = list_length * delta + 1_u8;
        let tail = TailBound::new(&(&k[e] * &instance.size[e]), &(list_length * &reachable), &sigma[e]);
        let formula = format!("E(k_{e} N_{e}, x_{0} D_{0}, sigma_{0})", e + 1);
        let required = format!("x_{} Delta + 1", e + 1);
        if !instance.record_tail([&formula, ">=", &required], &tail, &BigUint::from(1_u8), &delta, tail.reaches(&delta))
        {
            return Err(Rejection::Tail { step: e + 1 });
        }
        // S_1; messages into w and, where it was not frozen before, into z_0.
        delta += instance.fixed_bits + b * tw * &pairs * product(&x[1..=e]);
        if first_in_case_0 {
            delta += b * t0 * &x[0];
        }
        // Messages of this layer into players 0..=to.
        let messages_into = |to: usize| {
            let choices =
                |i: usize| product(&x[i..=e]) * if first_in_case_0 { x[1].clone() } else { BigUint::from(1_u8) };
            sum((0..=to.min(e)).map(|i| b * tokens_of(i) * choices(i)))
        };
        let own_messages = b * te * &instance.size[e] * list_length; // player e+1 in one layer
        let block_states = |through: usize| s[..=through].iter().sum::<BigUint>();
        if e + 1 < l - 1 {
            delta += messages_into(e) + &own_messages * layer + block_states(layer);
        } else {
            delta += &own_messages * (layer - 1) + block_states(layer - 1);
            if s[layer] != BigUint::ZERO {
                // The last block's border, frozen where that is cheapest.
                let frozen_before = |j: usize| {
                    let state = &s[layer] * product(&x[j + 1..]);
                    state + messages_into(j) + if j == l - 1 { own_messages.clone() } else { BigUint::ZERO }
                };
                let at_query = &s[layer] * product(x);
                delta += (0..l).map(frozen_before).fold(at_query, Ord::min);
            }
        }
        reachable = &instance.n[e] / &k[e] * &sigma[e];
    }
    instance.check_final(&delta, &reachable)
}
