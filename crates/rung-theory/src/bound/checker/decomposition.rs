//! Theorem 0 (the indistinguishable decomposition, any L, both cases), with its conditions in the order of the text.

use num_bigint::BigUint;

use super::exact::TailBound;
use super::{Instance, ProofCase, Refusal, TableLists, product, sum};

pub(super) fn check(p: &Instance<'_>, lists: &TableLists) -> Result<(), Refusal> {
    let TableLists { x, sigma, kappa: k } = lists;
    lists.well_formed(p, p.n, p.m)?;
    let (l, b, s, [te, t0, tw]) = (p.hops, p.b, p.s, p.tokens_per.to_array());
    let pairs = &x[0] * product(p.n) / product(k); // |Q|
    let queries = product(p.n) / product(k.iter().skip(1)); // W
    let tokens_of = |i: usize| if i == 0 { t0.clone() } else { te * &p.size[i - 1] };
    let mut delta = if p.case == ProofCase::OneLayerFewer { s[0].clone() } else { b * tw * queries + p.parallel_bits };
    let mut reach = x[0].clone(); // D
    for e in 0..l - 1 {
        let step = &x[e + 1];
        let layer = if p.case == ProofCase::OneLayerFewer { e + 1 } else { e + 2 };
        let first = p.case == ProofCase::AsManyLayers && e == 0;
        delta = step * delta + 1_u8;
        let tail = TailBound::new(&(&k[e] * &p.size[e]), &(step * &reach), &sigma[e]);
        let formula = format!("E(k_{e} N_{e}, x_{0} D_{0}, sigma_{0})", e + 1);
        let need = format!("x_{} Delta + 1", e + 1);
        if !p.note_draw([&formula, ">=", &need], &tail, &BigUint::from(1_u8), &delta, tail.reaches(&delta)) {
            return Err(Refusal::Tail { step: e + 1 });
        }
        // Mixers in parallel with layer 1; messages into w and, where it was not frozen before, into z_0.
        delta += p.parallel_bits + b * tw * &pairs * product(&x[1..=e]);
        if first {
            delta += b * t0 * &x[0];
        }
        // Messages of this layer into players 0..=to.
        let into = |to: usize| {
            let cases = |i: usize| product(&x[i..=e]) * if first { x[1].clone() } else { BigUint::from(1_u8) };
            sum((0..=to.min(e)).map(|i| b * tokens_of(i) * cases(i)))
        };
        let own = b * te * &p.size[e] * step; // player e+1 in one layer
        let borders = |through: usize| s[..=through].iter().sum::<BigUint>();
        if e + 1 < l - 1 {
            delta += into(e) + &own * layer + borders(layer);
        } else {
            delta += &own * (layer - 1) + borders(layer - 1);
            if s[layer] != BigUint::ZERO {
                // The last block's border, frozen where that is cheapest.
                let before = |j: usize| {
                    let state = &s[layer] * product(&x[j + 1..]);
                    state + into(j) + if j == l - 1 { own.clone() } else { BigUint::ZERO }
                };
                let at_query = &s[layer] * product(x);
                delta += (0..l).map(before).fold(at_query, Ord::min);
            }
        }
        reach = &p.n[e] / &k[e] * &sigma[e];
    }
    p.compare_with_answers(&delta, &reach)
}
