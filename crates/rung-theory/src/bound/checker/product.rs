//! Theorem 2 (product part and joint part, any L >= 2, both cases), with its conditions in the order of the text.

use num_bigint::BigUint;

use super::exact::TailBound;
use super::{FrozenBorders, Instance, ProofCase, Refusal, TableLists, malformed, product, sum};

pub(super) fn check(p: &Instance<'_>, lists: &TableLists, lazy: &FrozenBorders) -> Result<(), Refusal> {
    well_formed(p, lists, lazy)?;
    let (TableLists { x, sigma, kappa: k }, FrozenBorders { varying: u, live, freeze }) = (lists, lazy);
    let (b, s, [te, t0, tw]) = (p.b, p.s, p.tokens_per.to_array());
    let pairs = &x[0] * product(live) / product(k); // |Q|
    let queries = product(live) / product(k.iter().skip(1)); // W
    // X(a,b), 1 if empty.
    let cases = |a: usize, b: usize| if a > b { BigUint::from(1_u8) } else { product(&x[a..=b]) };
    // Tk(i,y): pairs of a token of player i and a state of it.
    let states = |i: usize, y: usize| {
        if i == 0 {
            return t0 * cases(0, y);
        }
        let alive = if i == 1 { u.clone() } else { &live[i - 2] * &p.size[i - 2] };
        te * (&alive * cases(i, y) + (&p.size[i - 1] - &alive) * cases(i + 1, y))
    };
    let mut independent =
        p.parallel_bits + if p.case == ProofCase::OneLayerFewer { s[0].clone() } else { b * tw * queries }; // P
    let mut joint = BigUint::ZERO; // J
    let mut reach = x[0].clone(); // D
    let mut frozen = usize::from(p.case == ProofCase::OneLayerFewer); // f + 1
    for e in 0..p.hops - 1 {
        let layer = if p.case == ProofCase::OneLayerFewer { e } else { e + 1 }; // lay
        let (step, next) = (&x[e + 1], freeze[e]); // X, j_e + 1
        let tail = TailBound::new(&(&k[e] * &p.size[e]), &(step * &reach), &sigma[e]);
        let drawn = if e == 0 {
            let (groups, need) = (u / &x[0], step * &independent);
            let formula = ["E(k_0 N_0, x_1 D_1, sigma_1) u / x_0", ">", "x_1 P"];
            p.note_draw(formula, &tail, &groups, &need, tail.exceeds(&groups, &need))
        } else {
            let need = step * (&independent + &joint) + 1_u8;
            let formula = format!("E(k_{e} N_{e}, x_{0} D_{0}, sigma_{0})", e + 1);
            let needed = format!("x_{} (P + J) + 1", e + 1);
            p.note_draw([&formula, ">=", &needed], &tail, &BigUint::from(1_u8), &need, tail.reaches(&need))
        };
        if !drawn {
            return Err(Refusal::Tail { step: e + 1 });
        }
        let f2 = b * tw * &pairs * cases(1, e);
        let late = (0..=e).filter(|&i| i >= frozen).map(|i| states(i, e));
        let f1 = if layer == 0 { BigUint::ZERO } else { b * sum(late) };
        let f3 = b * states(e + 1, e + 1) * layer;
        let f4 = s[1..=layer].iter().sum::<BigUint>();
        let border = &s[layer + 1] * cases(next, e + 1);
        let until = |i: usize| if i < frozen { e } else { e + 1 };
        let mess = b * sum((0..next).map(|i| states(i, until(i))));
        if e > 0 {
            joint = step * joint + 1_u8 + f1 + f2 + f3 + f4 + border + mess;
        } else if p.case == ProofCase::OneLayerFewer {
            independent += f2 + mess;
            joint = border;
        } else {
            independent += f1 + f3;
            joint = f2 + mess + border + f4;
        }
        frozen = next;
        reach = &live[e] / &k[e] * &sigma[e];
    }
    p.compare_with_answers(&(independent + joint), &reach)
}

/// x_0 <= u <= m, n'_e <= n_e, n'_{L-1} = n_{L-1}, j_e <= e+1, and the divisibilities with n' for n.
fn well_formed(p: &Instance<'_>, lists: &TableLists, lazy: &FrozenBorders) -> Result<(), Refusal> {
    if p.hops < 2 {
        return malformed("theorem `product` is about two hops or more");
    }
    if lazy.live.len() != p.n.len() || lazy.freeze.len() != p.n.len() {
        return malformed(format!("live and freeze must have {} entries", p.n.len()));
    }
    if lazy.live.iter().zip(p.n).any(|(live, n)| *live == BigUint::ZERO || live > n) || lazy.live.last() != p.n.last() {
        return malformed("live must have sizes from 1 to n, and end with the last n");
    }
    if lazy.freeze.iter().enumerate().any(|(e, &next)| next > e + 2) {
        return malformed("freeze[e] must be at most e + 2");
    }
    if lazy.varying > *p.m {
        return malformed("varying exceeds m");
    }
    lists.well_formed(p, &lazy.live, &lazy.varying)
}
