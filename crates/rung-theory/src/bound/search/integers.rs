//! Rounding a real-valued optimum to integers.

use num_bigint::BigUint;

use crate::bound::convex::ConvexProgram;
use crate::bound::input::exp2_to_integer;

/// Fixes those variables of a relaxed optimum that must be integers one by one, smallest first, each to the better of the two nearest
/// integers. `point` has log2 of every variable; `integer_variables` are indices of it.
pub(super) fn fix_one_by_one(
    program: &ConvexProgram,
    integer_variables: &[usize],
    mut point: Vec<f64>,
) -> Option<Vec<f64>> {
    // Above 2^24 rounding costs nothing.
    const MAX_LOG2: f64 = 24.0;
    let mut fixed = vec![false; point.len()];
    loop {
        let unfixed = integer_variables.iter().copied().filter(|&v| !fixed[v] && point[v] < MAX_LOG2);
        let Some(next) = unfixed.min_by(|&a, &b| point[a].total_cmp(&point[b])) else { return Some(point) };
        fixed[next] = true;
        let rounded_down = point[next].max(0.0).exp2().floor();
        let candidates = [rounded_down, rounded_down + 1.0].map(|integer| {
            let mut start = point.clone();
            start[next] = integer.log2();
            let solved = program.solve(&start, &fixed)?;
            Some((program.objective_at(&solved), solved))
        });
        let better = candidates.into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        point = better?.1;
    }
}

/// The largest number that passes, near an estimate of its logarithm, to a relative error of about 2^-36.
///
/// The estimate is good to many digits: numbers slightly above it fail, numbers slightly below it pass. The steps down double, so
/// that a bad estimate costs only a few more tries; then the gap is bisected.
pub(super) fn largest_passing(log2_estimate: f64, passes: impl Fn(&BigUint) -> bool) -> Option<BigUint> {
    if !log2_estimate.is_finite() {
        return None;
    }
    let mut failing = exp2_to_integer(log2_estimate);
    failing += (&failing >> 36) + 2_u8;
    let tolerance = &failing >> 36;
    let mut step = &tolerance + 1_u8;
    let mut passing = failing.clone();
    while !passes(&passing) {
        if passing <= step {
            return None;
        }
        failing.clone_from(&passing);
        passing -= &step;
        step *= 2_u8;
    }
    while &failing - &passing > &tolerance + 1_u8 {
        let midpoint = (&failing + &passing) >> 1;
        if passes(&midpoint) { passing = midpoint } else { failing = midpoint }
    }
    Some(passing)
}
