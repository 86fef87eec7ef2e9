//! Theorem 2 (product part and joint part, any L >= 2, both cases), with its conditions in the order of `docs/proof.md`.

use num_bigint::BigUint;

use super::exact::TailBound;
use super::{FrozenBorders, Instance, ProofCase, Rejection, TableLists, malformed, product, sum};

pub(super) fn check(instance: &Instance<'_>, lists: &TableLists, borders: &FrozenBorders) -> Result<(), Rejection> {
    check_form(instance, lists, borders)?;
    let (TableLists { x, sigma, kappa: k }, FrozenBorders { varying: u, live, freeze }) = (lists, borders);
    let (b, s, [te, t0, tw]) = (instance.b, instance.s, instance.token_counts.to_array());
    let pairs = &x[0] * product(live) / product(k); // |Q|
    let queries = product(live) / product(k.iter().skip(1)); // W
    // X(a,b): choices from lists a to b; 1 if there is none.
    let choices =
        |first: usize, last: usize| if first > last { BigUint::from(1_u8) } else { product(&x[first..=last]) };
    // Tk(i,y): pairs of a token of player i and one of its states.
    let token_states = |i: usize, y: usize| {
        if i == 0 {
            return t0 * choices(0, y);
        }
        let varying_entries = if i == 1 { u.clone() } else { &live[i - 2] * &instance.size[i - 2] };
        te * (&varying_entries * choices(i, y) + (&instance.size[i - 1] - &varying_entries) * choices(i + 1, y))
    };
    let mut independent =
        instance.fixed_bits + if instance.case == ProofCase::OneLayerFewer { s[0].clone() } else { b * tw * queries }; // P
    let mut joint = BigUint::ZERO; // J
    let mut reachable = x[0].clone(); // D
    let mut frozen_players = usize::from(instance.case == ProofCase::OneLayerFewer); // f + 1
    for e in 0..instance.hops - 1 {
        let layer = if instance.case == ProofCase::OneLayerFewer { e } else { e + 1 }; // lay
        let (list_length, next_frozen) = (&x[e + 1], freeze[e]); // X, j_e + 1
        let tail = TailBound::new(&(&k[e] * &instance.size[e]), &(list_length * &reachable), &sigma[e]);
        let tail_holds = if e == 0 {
            let (groups, required) = (u / &x[0], list_length * &independent);
            let formula = ["E(k_0 N_0, x_1 D_1, sigma_1) u / x_0", ">", "x_1 P"];
            instance.record_tail(formula, &tail, &groups, &required, tail.exceeds(&groups, &required))
        } else {
            let required = list_length * (&independent + &joint) + 1_u8;
            let formula = format!("E(k_{e} N_{e}, x_{0} D_{0}, sigma_{0})", e + 1);
            let required_formula = format!("x_{} (P + J) + 1", e + 1);
            instance.record_tail(
                [&formula, ">=", &required_formula],
                &tail,
                &BigUint::from(1_u8),
                &required,
                tail.reaches(&required),
            )
        };
        if !tail_holds {
            return Err(Rejection::Tail { step: e + 1 });
        }
        // F1 to F4: messages into players frozen later, into w, into player e + 1; states of the layers below.
        let f2 = b * tw * &pairs * choices(1, e);
        let unfrozen = (0..=e).filter(|&i| i >= frozen_players).map(|i| token_states(i, e));
        let f1 = if layer == 0 { BigUint::ZERO } else { b * sum(unfrozen) };
        let f3 = b * token_states(e + 1, e + 1) * layer;
        let f4 = s[1..=layer].iter().sum::<BigUint>();
        let border = &s[layer + 1] * choices(next_frozen, e + 1);
        let last_list = |i: usize| if i < frozen_players { e } else { e + 1 };
        let border_messages = b * sum((0..next_frozen).map(|i| token_states(i, last_list(i)))); // mess
        if e > 0 {
            joint = list_length * joint + 1_u8 + f1 + f2 + f3 + f4 + border + border_messages;
        } else if instance.case == ProofCase::OneLayerFewer {
            independent += f2 + border_messages;
            joint = border;
        } else {
            independent += f1 + f3;
            joint = f2 + border_messages + border + f4;
        }
        frozen_players = next_frozen;
        reachable = &live[e] / &k[e] * &sigma[e];
    }
    instance.check_final(&(independent + joint), &reachable)
}

/// x_0 <= u <= m, n'_e <= n_e, n'_{L-1} = n_{L-1}, j_e <= e+1, and the divisibilities with n' for n.
fn check_form(instance: &Instance<'_>, lists: &TableLists, borders: &FrozenBorders) -> Result<(), Rejection> {
    if instance.hops < 2 {
        return malformed("theorem `product` is about two hops or more");
    }
    if borders.live.len() != instance.n.len() || borders.freeze.len() != instance.n.len() {
        return malformed(format!("live and freeze must have {} entries", instance.n.len()));
    }
    if borders.live.iter().zip(instance.n).any(|(live, n)| *live == BigUint::ZERO || live > n)
        || borders.live.last() != instance.n.last()
    {
        return malformed("live must have sizes from 1 to n, and end with the last n");
    }
    if borders.freeze.iter().enumerate().any(|(e, &frozen)| frozen > e + 2) {
        return malformed("freeze[e] must be at most e + 2");
    }
    if borders.varying > *instance.m {
        return malformed("varying exceeds m");
    }
    lists.check_form(instance, &borders.live, &borders.varying)
}
