//! From real numbers to whole ones.

use num_bigint::BigUint;

use crate::bound::convex::ConvexProgram;
use crate::bound::input::exp2_to_integer;

/// Fixes the integers of a relaxed optimum one by one, smallest first, each to the better of its two neighbours.
pub(super) fn fix_one_by_one(program: &ConvexProgram, integers: &[usize], mut point: Vec<f64>) -> Option<Vec<f64>> {
    const LARGE: f64 = 24.0;
    let mut fixed = vec![false; point.len()];
    loop {
        let open = integers.iter().copied().filter(|&v| !fixed[v] && point[v] < LARGE);
        let Some(next) = open.min_by(|&a, &b| point[a].total_cmp(&point[b])) else { return Some(point) };
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
}

/// The largest number that passes, near a guess given as a logarithm.
///
/// The guess is good to many digits: a little above it fails, a little below it passes. The steps down double, so that a bad
/// guess costs a few tries more and not many; then the gap is halved until nothing is lost.
pub(super) fn largest_passing(guess: f64, passes: impl Fn(&BigUint) -> bool) -> Option<BigUint> {
    if !guess.is_finite() {
        return None;
    }
    let mut fails = exp2_to_integer(guess);
    fails += (&fails >> 36) + 2_u8;
    let close = &fails >> 36;
    let mut step = &close + 1_u8;
    let mut good = fails.clone();
    while !passes(&good) {
        if good <= step {
            return None;
        }
        fails.clone_from(&good);
        good -= &step;
        step *= 2_u8;
    }
    while &fails - &good > &close + 1_u8 {
        let middle = (&fails + &good) >> 1;
        if passes(&middle) { good = middle } else { fails = middle }
    }
    Some(good)
}
