//! The search: the smallest instance that the checker certifies.
//!
//! 1. *Relax.* For real-valued sizes the conditions are a convex program, so its optimum is the global one.
//! 2. *Round.* The sizes that must be integers are fixed one by one, smallest first, each to the better of its two
//!    neighbours, with the rest solved anew. Sizes beyond 2^24 are rounded at once: nothing is lost there.
//! 3. *Polish.* Small points are improved by moving single integers, judged by a float copy of the checker.
//! 4. *Prove.* Sigma and m are settled with the checker itself. What it refuses is never returned.

use num_bigint::BigUint;

use super::checker::{Accepted, Point, Refusal, check};
use super::estimate::{Estimate, Sizes};
use super::question::{Question, log2, round};
use super::relax::{Given, Layout, Relaxation};

/// The largest number of hops searched: beyond it the tables have thousands of digits.
pub const MAX_SEARCH_HOPS: usize = 8;

/// A point that the checker accepted.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The proof.
    pub point: Point,
    /// What the checker said of it.
    pub accepted: Accepted,
}

impl Certified {
    fn new(point: Point) -> Option<Self> {
        let accepted = check(&point).ok()?;
        Some(Self { point, accepted })
    }

    /// log2 of the tokens of the instance.
    pub fn log2_tokens(&self) -> f64 {
        log2(&self.accepted.tokens)
    }
}

/// The smallest certified instance found for a question.
pub fn smallest(question: &Question) -> Option<Certified> {
    let fits = |found: &Certified| question.covers_beside(&found.point);
    question.widened().iter().find_map(|wider| smallest_as_is(wider).filter(fits))
}

fn smallest_as_is(question: &Question) -> Option<Certified> {
    if question.hops == 1 {
        return one_hop(question);
    }
    if question.hops > MAX_SEARCH_HOPS {
        return None;
    }
    let relaxation = Relaxation::new(question, None);
    let start = relaxation.start();
    let free = vec![false; relaxation.layout.variables()];
    let mut optima: Vec<_> = relaxation
        .borders()
        .into_iter()
        .filter_map(|border| {
            let program = relaxation.program(border);
            let point = program.solve(&start, &free)?;
            Some((program.objective_at(&point), border, point))
        })
        .collect();
    optima.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = optima.first()?.0;
    // A border that is nearly as good before rounding may be better after it; large sizes lose nothing by rounding.
    let tries = if best < 40.0 { 2 } else { 1 };
    let close = optima.into_iter().filter(|(value, ..)| *value < best + 0.1).take(tries);
    let estimate = Estimate::new(question);
    let rounded = close.filter_map(|(_, border, point)| {
        let sizes = dive(&relaxation, &relaxation.program(border), point)?;
        let sizes = estimate.polish(sizes);
        settle(question, &sizes)
    });
    let found = rounded.min_by(|a, b| a.accepted.tokens.cmp(&b.accepted.tokens));
    tiny(question, found)
}

/// A certificate for tables of given sizes, if one is found.
pub fn for_tables(question: &Question, m: &BigUint, n: &[BigUint]) -> Option<Certified> {
    let fits = |found: &Certified| question.covers_beside(&found.point);
    question.widened().iter().find_map(|wider| for_tables_as_is(wider, m, n).filter(fits))
}

fn for_tables_as_is(question: &Question, m: &BigUint, n: &[BigUint]) -> Option<Certified> {
    if question.hops == 1 {
        return Certified::new(question.point(m.clone(), vec![], vec![m.clone()], vec![]));
    }
    if question.hops > MAX_SEARCH_HOPS {
        return None;
    }
    let given = Given { m: log2(m), n: n.iter().map(log2).collect() };
    let relaxation = Relaxation::new(question, Some(given));
    let start = relaxation.start();
    let estimate = Estimate::new(question);
    let free = vec![false; relaxation.layout.variables()];
    relaxation.borders().into_iter().find_map(|border| {
        let program = relaxation.program(border);
        let point = program.solve(&start, &free)?;
        // The relaxation gives away less than a bit to small tables; beyond that nothing can be certified.
        if program.objective_at(&point) > 1.0 {
            return None;
        }
        let (_, _, x, k) = relaxation.layout.read(&point);
        estimate.around(m, n, &x, &k).into_iter().find_map(|sizes| {
            let Sizes { x, k, .. } = sizes;
            Certified::new(with_sigma(question, m.clone(), n.to_vec(), x, k)?)
        })
    })
}

/// One hop needs no search: the smallest m with m log m above the bits that reach w.
fn one_hop(question: &Question) -> Option<Certified> {
    let point = |m: &BigUint| Certified::new(question.point(m.clone(), vec![], vec![m.clone()], vec![]));
    least(BigUint::from(2_u8), |m| point(m).is_some()).and_then(|m| point(&m))
}

/// The least number from `from` on for which `holds`, which must stay true once true.
fn least(from: BigUint, holds: impl Fn(&BigUint) -> bool) -> Option<BigUint> {
    let mut low = from.clone();
    let mut high = from;
    while !holds(&high) {
        if high.bits() > 16_384 {
            return None;
        }
        low = &high + 1_u8;
        high *= 2_u8;
    }
    while low < high {
        let middle = (&low + &high) >> 1;
        if holds(&middle) { high = middle } else { low = middle + 1_u8 }
    }
    Some(high)
}

/// Fixes the integers of a relaxed optimum one by one.
fn dive(relaxation: &Relaxation<'_>, program: &super::convex::Program, mut point: Vec<f64>) -> Option<Sizes> {
    const LARGE: f64 = 24.0;
    let layout = &relaxation.layout;
    let mut fixed = vec![false; layout.variables()];
    loop {
        let open = layout.integers().filter(|&v| !fixed[v] && point[v] < LARGE);
        let Some(next) = open.min_by(|&a, &b| point[a].total_cmp(&point[b])) else { break };
        fixed[next] = true;
        let down = point[next].max(0.0).exp2().floor();
        let tries = [down, down + 1.0].map(|integer| {
            let mut start = point.clone();
            start[next] = integer.log2();
            let solved = program.solve(&start, &fixed)?;
            Some((program.objective_at(&solved), solved))
        });
        let better = tries.into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        point = better?.1;
    }
    let integer = |v: usize| round(point[v].max(0.0));
    let hops = layout.integers().end.div_ceil(3);
    let k: Vec<BigUint> = (0..hops - 1).map(|e| integer(layout.classes(e))).collect();
    let n = (1..hops).map(|e| {
        let right = k.get(e).cloned().unwrap_or_else(|| 1_u8.into());
        integer(Layout::ratio(e)) * &k[e - 1] * right
    });
    let lists = (1..hops).map(|e| integer(layout.list(e)));
    let first = integer(Layout::ratio(0)) * &k[0];
    Some(Sizes {
        m: round(point[0]).max(first.clone()),
        n: n.collect(),
        x: std::iter::once(first).chain(lists).collect(),
        k,
    })
}

/// Settles sigma, then the smallest m, with the checker.
fn settle(question: &Question, sizes: &Sizes) -> Option<Certified> {
    let Sizes { m, n, x, k } = sizes;
    let attempt = |m: &BigUint| Certified::new(with_sigma(question, m.clone(), n.clone(), x.clone(), k.clone())?);
    // The float estimate is right to about 2^-40: widen until the checker agrees.
    let mut good = None;
    let mut margin = m >> 40;
    for _ in 0..60 {
        if let Some(found) = attempt(&(m + &margin)) {
            good = Some(found);
            break;
        }
        margin = margin * 2_u8 + 1_u8;
    }
    let mut good = good?;
    // Then down again, to within a part in 2^30 or exactly.
    let mut low = x[0].clone();
    while low < good.point.m && (&good.point.m - &low) > (&good.point.m >> 30) {
        let middle = (&low + &good.point.m) >> 1;
        match attempt(&middle) {
            Some(found) => good = found,
            None => low = middle + 1_u8,
        }
    }
    Some(good)
}

/// The point with the largest sigma that passes each tail, found with the checker as judge.
fn with_sigma(question: &Question, m: BigUint, n: Vec<BigUint>, x: Vec<BigUint>, k: Vec<BigUint>) -> Option<Point> {
    let sizes = Sizes { m, n, x, k };
    let guess = Estimate::new(question).sigma(&sizes);
    let Sizes { m, n, x, k } = sizes;
    let mut point = question.point(m, n, x, k);
    for (e, &guess) in guess.iter().enumerate() {
        let passes = |point: &mut Point, sigma: &BigUint| {
            point.sigma[e].clone_from(sigma);
            match check(point) {
                Ok(_) | Err(Refusal::Final) => true,
                Err(Refusal::Tail { step }) => step > e + 1,
                Err(Refusal::Malformed(_)) => false,
            }
        };
        if !guess.is_finite() {
            return None;
        }
        // The estimate is good to many digits: a little above it fails, a little below it passes. The steps down double, so
        // that a bad estimate costs a few tries more and not many; then the gap is halved until nothing is lost.
        let mut fails = round(guess);
        fails += (&fails >> 36) + 2_u8;
        let close = &fails >> 36;
        let mut step = &close + 1_u8;
        let mut sigma = fails.clone();
        while !passes(&mut point, &sigma) {
            if sigma <= step {
                return None;
            }
            fails.clone_from(&sigma);
            sigma -= &step;
            step *= 2_u8;
        }
        while &fails - &sigma > &close + 1_u8 {
            let middle = (&fails + &sigma) >> 1;
            if passes(&mut point, &middle) { sigma = middle } else { fails = middle }
        }
        point.sigma[e] = sigma;
    }
    Some(point)
}

/// For two hops and a few hundred tokens every instance smaller than the one found is tried.
fn tiny(question: &Question, found: Option<Certified>) -> Option<Certified> {
    const FEW: u64 = 200;
    let most = found.as_ref().map_or(FEW, |found| u64::try_from(&found.accepted.tokens).unwrap_or(u64::MAX));
    if question.hops != 2 || most > FEW || question.tokens_per != [1, 1, 1] {
        return found;
    }
    let estimate = Estimate::new(question);
    let mut tables: Vec<(u64, u64)> =
        (2..most).flat_map(|m| (1..most).map(move |n| (m, n))).filter(|(m, n)| m * (n + 1) + 2 < most).collect();
    tables.sort_by_key(|(m, n)| m * (n + 1));
    let smaller = tables.into_iter().find_map(|(m, n)| {
        estimate.all_small(m, n).into_iter().find_map(|sizes| {
            let Sizes { m, n, x, k } = sizes;
            Certified::new(with_sigma(question, m, n, x, k)?)
        })
    });
    smaller.or(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The relaxed optimum is the best that this proof can give for real-valued sizes: integers come close to it.
        #[test]
        fn rounding_costs_little(
            case in 0_u8..2, message in 2_u32..10, states in proptest::collection::vec(0_u32..14, 5), hops in 2_usize..5,
        ) {
            let blocks = if case == 1 { hops } else { hops + 1 };
            let state = |e: usize| if case == 0 && e < 2 { 0 } else { (1_u128 << states[e]) - 1 };
            let state_bits: Vec<u128> = (0..blocks).map(state).collect();
            let question = Question::new(case, hops, (1 << message) + 1, &state_bits, [1; 3]);
            let relaxation = Relaxation::new(&question, None);
            let free = vec![false; relaxation.layout.variables()];
            let best = relaxation.borders().into_iter().filter_map(|border| {
                let program = relaxation.program(border);
                program.solve(&relaxation.start(), &free).map(|point| program.objective_at(&point))
            });
            let best = best.fold(f64::INFINITY, f64::min);
            let found = smallest(&question).unwrap().log2_tokens();
            prop_assert!(found < best + 0.2, "{found} against {best}");
        }
    }
}
