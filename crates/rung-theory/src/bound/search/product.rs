//! Theorem 2: a convex program, integers one by one, and the checker.
//!
//! 1. *Relax.* For real-valued sizes the conditions are a convex program, so its optimum is the global one for each choice of
//!    the places where borders are frozen. Those places are improved one at a time.
//! 2. *Round.* The sizes that must be integers are fixed one by one, smallest first, each to the better of its two
//!    neighbours, with the rest solved anew. Sizes beyond 2^24 are rounded at once: nothing is lost there.
//! 3. *Polish.* Small points are improved by moving single integers, judged by a float copy of the checker.
//! 4. *Prove.* Sigma and m are settled with the checker itself.

use std::collections::HashMap;

use num_bigint::BigUint;

use super::integers::{fix_one_by_one, largest_passing};
use super::{CheckedCertificate, SearchSetting};
use crate::bound::checker::{Certificate, FrozenBorders, Refusal, TableLists, Theorem, check};
use crate::bound::convex::ConvexProgram;
use crate::bound::float_check::{FloatCheck, Sizes};
use crate::bound::input::{exp2_to_integer, log2};
use crate::bound::relaxation::{FixedTables, Relaxation, VariableIndices};

/// A relaxed optimum.
#[derive(Clone)]
struct Optimum {
    value: f64,
    freeze: Vec<usize>,
    point: Vec<f64>,
}

/// The smallest instance found, unless even real-valued sizes are not below the given tokens.
pub(super) fn smallest(setting: &SearchSetting<'_>, below: f64) -> Option<CheckedCertificate> {
    let relaxation = Relaxation::new(setting, None);
    let mut optima = optima(setting, &relaxation);
    optima.sort_by(|a, b| a.value.total_cmp(&b.value));
    let best = optima.first().map(|optimum| optimum.value).filter(|&best| best < below)?;
    // A place that is nearly as good before rounding may be better after it; large sizes lose nothing by rounding.
    let tries = if best < 40.0 { 2 } else { 1 };
    let close = optima.into_iter().filter(|optimum| optimum.value < best + 0.1).take(tries);
    let float_check = FloatCheck::new(setting);
    let rounded = close.filter_map(|optimum| {
        let sizes = fix_integers(setting, &relaxation, &relaxation.program(&optimum.freeze), &optimum)?;
        settle(setting, &float_check.polish(sizes))
    });
    rounded.min_by(|a, b| a.accepted.tokens.cmp(&b.accepted.tokens))
}

/// Parameters with which given tables may be certified.
pub(super) fn for_tables<'a>(
    setting: &'a SearchSetting<'a>,
    m: &'a BigUint,
    n: &'a [BigUint],
) -> impl Iterator<Item = Theorem> + 'a {
    let given = FixedTables { m: log2(m), n: n.iter().map(log2).collect() };
    let relaxation = Relaxation::new(setting, Some(given));
    let mut optima = optima(setting, &relaxation);
    optima.sort_by(|a, b| a.value.total_cmp(&b.value));
    let float_check = FloatCheck::new(setting);
    // The relaxation gives away less than a bit to small tables; beyond that nothing can be certified.
    let close = optima.into_iter().filter(|optimum| optimum.value < 1.0).take(4);
    close.flat_map(move |optimum| {
        let (x, k, groups) = relaxation.layout.read(&optimum.point);
        let sizes = float_check.around(m, n, (&x, &k, groups), &optimum.freeze);
        sizes
            .into_iter()
            .filter_map(|sizes| with_sigma(setting, &sizes).map(|certificate| certificate.theorem))
            .collect::<Vec<_>>()
    })
}

/// Relaxed optima for the places of borders that were tried.
fn optima(setting: &SearchSetting<'_>, relaxation: &Relaxation<'_>) -> Vec<Optimum> {
    let steps = setting.input.hops - 1;
    let free = vec![false; relaxation.layout.variables()];
    let mut known: HashMap<Vec<usize>, Option<Optimum>> = HashMap::new();
    let mut solve = |freeze: &[usize], near: Option<&Optimum>| {
        let solved = known.entry(freeze.to_vec()).or_insert_with(|| {
            let program = relaxation.program(freeze);
            let start = relaxation.start(freeze, near.map(|near| &near.point[..]));
            let point = program.solve(&start, &free)?;
            Some(Optimum { value: program.objective_at(&point), freeze: freeze.to_vec(), point })
        });
        solved.clone()
    };
    // With no state in the last block nothing is frozen there.
    let empty = setting.input.state_bits.last().is_some_and(|bits| *bits == BigUint::ZERO);
    let last = |e: usize| if empty && e + 1 == steps { 0 } else { e + 2 };
    let late: Vec<usize> = vec![0; steps];
    let early: Vec<usize> = (0..steps).map(last).collect();
    for start in [late, early] {
        let Some(mut best) = solve(&start, None) else { continue };
        loop {
            let before = best.value;
            for e in 0..steps {
                for place in 0..=last(e) {
                    let mut freeze = best.freeze.clone();
                    freeze[e] = place;
                    if let Some(found) = solve(&freeze, Some(&best))
                        && found.value < best.value - 1e-6
                    {
                        best = found;
                    }
                }
            }
            if best.value >= before - 1e-6 {
                break;
            }
        }
    }
    known.into_values().flatten().collect()
}

/// Fixes the integers of a relaxed optimum one by one.
fn fix_integers(
    setting: &SearchSetting<'_>,
    relaxation: &Relaxation<'_>,
    program: &ConvexProgram,
    optimum: &Optimum,
) -> Option<Sizes> {
    let (layout, hops) = (&relaxation.layout, setting.input.hops);
    let point = fix_one_by_one(program, &layout.integers().collect::<Vec<_>>(), optimum.point.clone())?;
    let integer = |v: usize| exp2_to_integer(point[v].max(0.0));
    let one = BigUint::from(1_u8);
    let k: Vec<BigUint> = (0..hops - 1).map(|e| integer(layout.classes(e))).collect();
    let live: Vec<BigUint> =
        (1..hops).map(|e| integer(VariableIndices::ratio(e)) * &k[e - 1] * k.get(e).unwrap_or(&one)).collect();
    let mut n = live.clone();
    if setting.input.w_major {
        for (e, n) in n.iter_mut().enumerate().take(hops - 2) {
            *n = exp2_to_integer(log2(n) + point[layout.excess(e + 1)]).max(n.clone());
        }
    }
    let first = integer(VariableIndices::ratio(0)) * &k[0];
    let groups = integer(layout.groups());
    let least = &first * &groups;
    let lists = (1..hops).map(|e| integer(layout.list(e)));
    Some(Sizes {
        m: exp2_to_integer(point[0]).max(least),
        n,
        live,
        x: std::iter::once(first).chain(lists).collect(),
        k,
        groups,
        freeze: optimum.freeze.clone(),
    })
}

/// Settles sigma, then the smallest m, with the checker.
fn settle(setting: &SearchSetting<'_>, sizes: &Sizes) -> Option<CheckedCertificate> {
    let attempt = |m: &BigUint| CheckedCertificate::new(with_sigma(setting, &Sizes { m: m.clone(), ..sizes.clone() })?);
    // The float estimate is right to about 2^-40: widen until the checker agrees.
    let mut good = None;
    let mut margin = &sizes.m >> 40;
    for _ in 0..60 {
        if let Some(found) = attempt(&(&sizes.m + &margin)) {
            good = Some(found);
            break;
        }
        margin = margin * 2_u8 + 1_u8;
    }
    let mut good = good?;
    // Then down again, to within a part in 2^30 or exactly.
    let mut low = &sizes.x[0] * &sizes.groups;
    while low < good.certificate.m && (&good.certificate.m - &low) > (&good.certificate.m >> 30) {
        let middle = (&low + &good.certificate.m) >> 1;
        match attempt(&middle) {
            Some(found) => good = found,
            None => low = middle + 1_u8,
        }
    }
    Some(good)
}

/// The certificate with the largest sigma that passes each tail, found with the checker as judge.
fn with_sigma(setting: &SearchSetting<'_>, sizes: &Sizes) -> Option<Certificate> {
    let guesses = FloatCheck::new(setting).sigma(sizes);
    let theorem = |sigma: Vec<BigUint>| {
        let lists = TableLists { x: sizes.x.clone(), sigma, kappa: sizes.k.clone() };
        let varying = &sizes.groups * &sizes.x[0];
        Theorem::Product(lists, FrozenBorders { varying, live: sizes.live.clone(), freeze: sizes.freeze.clone() })
    };
    let mut sigmas = vec![BigUint::from(1_u8); guesses.len()];
    for (e, &guess) in guesses.iter().enumerate() {
        let passes = |sigma: &BigUint| {
            let mut tried = sigmas.clone();
            tried[e].clone_from(sigma);
            match check(&setting.certificate(sizes.m.clone(), &sizes.n, theorem(tried))) {
                Ok(_) | Err(Refusal::Final) => true,
                Err(Refusal::Tail { step }) => step > e + 1,
                Err(_) => false,
            }
        };
        let largest = largest_passing(guess, passes)?;
        sigmas[e] = largest;
    }
    Some(setting.certificate(sizes.m.clone(), &sizes.n, theorem(sigmas)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bound::checker::{ProofCase, TokensPer};
    use crate::bound::input::BoundInput;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The relaxed optimum is the best that this proof can give for real-valued sizes: integers come close to it.
        #[test]
        fn rounding_costs_little(
            fewer in proptest::bool::ANY, message in 2_u32..10, states in proptest::collection::vec(0_u32..14, 5), hops in 2_usize..5,
        ) {
            let case = if fewer { ProofCase::OneLayerFewer } else { ProofCase::AsManyLayers };
            let blocks = if fewer { hops } else { hops + 1 };
            let state = |e: usize| if !fewer && e < 2 { 0 } else { (1_u128 << states[e]) - 1 };
            let state_bits: Vec<u128> = (0..blocks).map(state).collect();
            let input = BoundInput::new(case, hops, (1 << message) + 1, &state_bits, TokensPer::default());
            let setting = SearchSetting { input: &input, middle: 0, front: 0 };
            let relaxation = Relaxation::new(&setting, None);
            let best = optima(&setting, &relaxation).iter().map(|optimum| optimum.value).fold(f64::INFINITY, f64::min);
            let found = smallest(&setting, f64::INFINITY).unwrap().log2_tokens();
            prop_assert!(found < best + 0.25, "{found} against {best}");
        }
    }
}
