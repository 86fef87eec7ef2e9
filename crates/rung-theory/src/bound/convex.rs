//! A small interior-point solver for programs in logarithms.
//!
//! The conditions of the lower bound are sums of monomials in the unknown sizes. In the logarithms of the sizes such a
//! condition is convex, so the only local optimum is the global one, and Newton's method with a log barrier finds
//! it in milliseconds. Nothing here is trusted: the search rounds the solution to integers and runs the checker.
//!
//! An [`Expression`] is `log2(sum of 2^term) - log2(a linear form)`; a [`Term`] is linear, plus possibly the logarithm of
//! the binary entropy of `2^v`, which occurs in the tail bound of a random draw.

use std::f64::consts::{LN_2, LOG2_E};

/// A sparse vector: pairs of index and value.
type SparseVector = Vec<(usize, f64)>;

/// A linear form: a constant and coefficients by variable.
#[derive(Clone, Debug, Default)]
pub(super) struct Linear {
    pub(super) constant: f64,
    pub(super) coefficients: SparseVector,
}

impl Linear {
    pub(super) fn constant(constant: f64) -> Self {
        Self { constant, coefficients: Vec::new() }
    }

    pub(super) fn variable(index: usize) -> Self {
        Self { constant: 0.0, coefficients: vec![(index, 1.0)] }
    }

    /// The sum, that is, the logarithm of the product.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.constant += other.constant;
        self.coefficients.extend(&other.coefficients);
        self
    }

    /// The difference, that is, the logarithm of the quotient.
    pub(super) fn minus(mut self, other: &Self) -> Self {
        self.constant -= other.constant;
        self.coefficients.extend(other.coefficients.iter().map(|&(index, factor)| (index, -factor)));
        self
    }

    pub(super) fn value(&self, point: &[f64]) -> f64 {
        self.constant + self.coefficients.iter().map(|&(index, factor)| factor * point[index]).sum::<f64>()
    }
}

/// A monomial, possibly times the entropy of `2^v` for one variable v < 0.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) linear: Linear,
    pub(super) entropy: Option<usize>,
}

impl From<Linear> for Term {
    fn from(linear: Linear) -> Self {
        Self { linear, entropy: None }
    }
}

/// `log2(sum of 2^term) - log2(divisor)`.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) terms: Vec<Term>,
    pub(super) divisor: Option<Linear>,
}

impl From<Linear> for Expression {
    fn from(linear: Linear) -> Self {
        Self { terms: vec![linear.into()], divisor: None }
    }
}

/// Minimise `objective` with every constraint at most 0. Every linear form of `domain` is negative at all iterates: outside of
/// it the expressions are not defined.
#[derive(Clone, Debug)]
pub(super) struct ConvexProgram {
    pub(super) variable_count: usize,
    pub(super) objective: Expression,
    pub(super) constraints: Vec<Expression>,
    pub(super) domain: Vec<Linear>,
}

/// log2(1 - rho), exact to the last digits both for tiny rho and for rho near one.
fn log2_complement(rho: f64, complement: f64) -> f64 {
    if rho < 0.5 { (-rho).ln_1p() / LN_2 } else { complement.log2() }
}

/// log2 of the entropy of 2^r in bits, with its first two derivatives in r.
pub(super) fn log_entropy(r: f64) -> (f64, f64, f64) {
    if r < -60.0 {
        // h(rho) = rho (log 1/rho + log e) to sixteen digits, while 2^r may underflow.
        let factor = LOG2_E - r;
        return (r + factor.log2(), 1.0 - 1.0 / (factor * LN_2), -1.0 / (factor * factor * LN_2));
    }
    let rho = r.exp2();
    let complement = -(r * LN_2).exp_m1(); // 1 - rho without cancellation
    let log_complement = log2_complement(rho, complement);
    let h = -rho * r - complement * log_complement;
    let slope = log_complement - r;
    let curvature = -1.0 / (rho * complement * LN_2);
    let ratio = rho * slope / h;
    (h.log2(), ratio, LN_2 * (rho * (slope + rho * curvature) / h - ratio * ratio))
}

/// Gradient and Hessian of a barrier function, summed over its terms.
struct Derivatives {
    gradient: Vec<f64>,
    hessian: Vec<f64>,
}

impl Derivatives {
    fn new(variable_count: usize) -> Self {
        Self { gradient: vec![0.0; variable_count], hessian: vec![0.0; variable_count * variable_count] }
    }

    /// Adds `factor * vector * vector^T` to the Hessian.
    fn add_rank_one(&mut self, vector: &[(usize, f64)], factor: f64) {
        let n = self.gradient.len();
        for &(i, a) in vector {
            for &(j, b) in vector {
                self.hessian[i * n + j] += factor * a * b;
            }
        }
    }
}

impl Expression {
    /// The logarithm of each term, the largest of these, and the sum of all terms divided by the largest.
    fn term_logs(&self, point: &[f64]) -> (Vec<f64>, f64, f64) {
        let logs: Vec<f64> = self.terms.iter().map(|term| term.value(point)).collect();
        let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum = logs.iter().map(|log| (log - max).exp2()).sum();
        (logs, max, sum)
    }

    pub(super) fn value(&self, point: &[f64]) -> f64 {
        let (_, max, sum) = self.term_logs(point);
        max + sum.log2() - self.divisor.as_ref().map_or(0.0, |divisor| divisor.value(point).log2())
    }

    /// Adds the derivatives of `f(value)`, given the first and second derivative of f at the value.
    fn add_derivatives(&self, point: &[f64], derivatives: &mut Derivatives, first: f64, second: f64) {
        let (logs, max, sum) = self.term_logs(point);
        let n = point.len();
        let mut gradient = vec![0.0; n];
        for (term, log) in self.terms.iter().zip(&logs) {
            let weight = (log - max).exp2() / sum;
            if weight < 1e-18 {
                continue;
            }
            let (slope, curvature) = term.gradient(point);
            for &(index, factor) in &slope {
                gradient[index] += weight * factor;
            }
            derivatives.add_rank_one(&slope, first * LN_2 * weight);
            if let Some((index, curvature)) = curvature {
                derivatives.hessian[index * n + index] += first * weight * curvature;
            }
        }
        let terms_gradient = nonzero(&gradient);
        derivatives.add_rank_one(&terms_gradient, -first * LN_2);
        if let Some(divisor) = &self.divisor {
            let value = divisor.value(point);
            for &(index, factor) in &divisor.coefficients {
                gradient[index] -= factor / (value * LN_2);
            }
            derivatives.add_rank_one(&merge(&divisor.coefficients), first / (value * value * LN_2));
        }
        let full_gradient = nonzero(&gradient);
        derivatives.add_rank_one(&full_gradient, second);
        for (index, factor) in full_gradient {
            derivatives.gradient[index] += first * factor;
        }
    }
}

impl Term {
    fn value(&self, point: &[f64]) -> f64 {
        self.linear.value(point) + self.entropy.map_or(0.0, |index| log_entropy(point[index]).0)
    }

    /// The gradient by variable, and the second derivative that the entropy adds.
    fn gradient(&self, point: &[f64]) -> (SparseVector, Option<(usize, f64)>) {
        let mut slope = self.linear.coefficients.clone();
        let curvature = self.entropy.map(|index| {
            let (_, first, second) = log_entropy(point[index]);
            slope.push((index, first));
            (index, second)
        });
        (merge(&slope), curvature)
    }
}

/// Adds up the coefficients of each variable.
fn merge(coefficients: &[(usize, f64)]) -> SparseVector {
    let mut merged: SparseVector = Vec::with_capacity(coefficients.len());
    for &(index, factor) in coefficients {
        match merged.iter_mut().find(|(known, _)| *known == index) {
            Some((_, sum)) => *sum += factor,
            None => merged.push((index, factor)),
        }
    }
    merged
}

fn nonzero(dense: &[f64]) -> SparseVector {
    dense.iter().copied().enumerate().filter(|(_, value)| *value != 0.0).collect()
}

/// Solves `hessian * step = -gradient`, adding to the diagonal until the matrix is positive definite.
///
/// Active constraints make some diagonal entries larger than others by many orders of magnitude, so the matrix is scaled to a unit
/// diagonal first; then the same ridge is small for every variable.
fn newton_step(derivatives: &Derivatives, fixed: &[bool]) -> Option<Vec<f64>> {
    let n = derivatives.gradient.len();
    let free: Vec<usize> = (0..n).filter(|&i| !fixed[i]).collect();
    let scale: Vec<f64> =
        free.iter().map(|&i| derivatives.hessian[i * n + i].abs().max(1e-12).sqrt().recip()).collect();
    let size = free.len();
    let mut scaled = vec![0.0; size * size];
    for (a, &i) in free.iter().enumerate() {
        for (b, &j) in free.iter().enumerate() {
            scaled[a * size + b] = derivatives.hessian[i * n + j] * scale[a] * scale[b];
        }
    }
    let mut ridge = 1e-14;
    while ridge < 1e6 {
        let mut regularized = scaled.clone();
        for a in 0..size {
            regularized[a * size + a] += ridge;
        }
        if let Some(factor) = cholesky(regularized, size) {
            let right_side = free.iter().zip(&scale).map(|(&i, scale)| -derivatives.gradient[i] * scale).collect();
            let mut step = vec![0.0; n];
            for ((value, &i), scale) in solve_cholesky(&factor, right_side, size).into_iter().zip(&free).zip(&scale) {
                step[i] = value * scale;
            }
            return Some(step);
        }
        ridge *= 10.0;
    }
    None
}

/// The lower triangular factor of a matrix; none if it is not positive definite.
fn cholesky(mut a: Vec<f64>, n: usize) -> Option<Vec<f64>> {
    for j in 0..n {
        for k in 0..j {
            let factor = a[j * n + k];
            for i in j..n {
                a[i * n + j] -= a[i * n + k] * factor;
            }
        }
        let pivot = a[j * n + j];
        if !(pivot.is_finite() && pivot > 0.0) {
            return None;
        }
        let root = pivot.sqrt();
        for i in j..n {
            a[i * n + j] /= root;
        }
    }
    Some(a)
}

/// Solves `lower * lower^T * x = right` by forward and backward substitution.
fn solve_cholesky(lower: &[f64], mut right: Vec<f64>, n: usize) -> Vec<f64> {
    for i in 0..n {
        for k in 0..i {
            right[i] -= lower[i * n + k] * right[k];
        }
        right[i] /= lower[i * n + i];
    }
    for i in (0..n).rev() {
        for k in i + 1..n {
            right[i] -= lower[k * n + i] * right[k];
        }
        right[i] /= lower[i * n + i];
    }
    right
}

impl ConvexProgram {
    /// The largest value of a constraint; negative if all hold strictly.
    pub(super) fn violation(&self, point: &[f64]) -> f64 {
        self.constraints.iter().map(|constraint| constraint.value(point)).fold(f64::NEG_INFINITY, f64::max)
    }

    fn in_domain(&self, point: &[f64]) -> bool {
        self.domain.iter().all(|linear| linear.value(point) < 0.0)
    }

    /// The minimum, from a start in the domain and with some variables fixed; none if no point satisfies all constraints.
    pub(super) fn solve(&self, start: &[f64], fixed: &[bool]) -> Option<Vec<f64>> {
        let start = if self.violation(start) < -1e-9 { start.to_vec() } else { self.feasible_point(start, fixed)? };
        self.minimise(start, fixed, None)
    }

    /// The objective, in log2.
    pub(super) fn objective_at(&self, point: &[f64]) -> f64 {
        self.objective.value(point)
    }

    /// A strictly feasible point: minimises an additional variable that bounds all constraints from above.
    fn feasible_point(&self, start: &[f64], fixed: &[bool]) -> Option<Vec<f64>> {
        let slack = self.variable_count;
        let mut relaxed = self.clone();
        relaxed.variable_count += 1;
        relaxed.objective = Linear::variable(slack).into();
        for constraint in &mut relaxed.constraints {
            for term in &mut constraint.terms {
                term.linear.coefficients.push((slack, -1.0));
            }
        }
        let mut point = start.to_vec();
        point.push(self.violation(start).max(0.0) + 1.0);
        let fixed: Vec<bool> = fixed.iter().copied().chain([false]).collect();
        let mut point = relaxed.minimise(point, &fixed, Some(slack))?;
        point.pop();
        (self.in_domain(&point) && self.violation(&point) < 0.0).then_some(point)
    }

    /// Barrier method. With `stop_variable` it stops as soon as that variable is clearly negative.
    fn minimise(&self, mut point: Vec<f64>, fixed: &[bool], stop_variable: Option<usize>) -> Option<Vec<f64>> {
        const DUALITY_GAP: f64 = 1e-7;
        const MAX_STEP: f64 = 20.0;
        const MAX_NEWTON_STEPS: usize = 400;
        let count = (self.constraints.len() + self.domain.len()) as f64;
        // For a feasible point the objective gets a large weight from the start: the centre of the domain is of no interest.
        let mut weight = if stop_variable.is_some() { 64.0 } else { 1.0 };
        while count / weight > DUALITY_GAP {
            for _ in 0..MAX_NEWTON_STEPS {
                if stop_variable.is_some_and(|index| point[index] < -1e-6) {
                    return Some(point);
                }
                let derivatives = self.derivatives(&point, weight);
                let Some(step) = newton_step(&derivatives, fixed) else { break };
                let slope: f64 = step.iter().zip(&derivatives.gradient).map(|(a, b)| a * b).sum();
                if -slope < 1e-10 {
                    break;
                }
                let current = self.barrier(&point, weight)?;
                // Where the barrier is nearly flat, Newton's step is far too long.
                let longest = step.iter().fold(0.0_f64, |max, change| max.max(change.abs()));
                let mut length = (MAX_STEP / longest).min(1.0);
                let accepted = loop {
                    let next: Vec<f64> = point.iter().zip(&step).map(|(v, s)| v + length * s).collect();
                    match self.barrier(&next, weight) {
                        Some(value) if value <= current + 0.1 * length * slope => break Some((next, value)),
                        _ => length *= 0.5,
                    }
                    if length < 1e-12 {
                        break None;
                    }
                };
                let Some((next, value)) = accepted else { break };
                point = next;
                // Stop if the progress is below the rounding error of the barrier.
                if current - value < 1e-13 * current.abs() {
                    break;
                }
            }
            weight *= 16.0;
        }
        Some(point)
    }

    /// The barrier function; none outside of the feasible set.
    fn barrier(&self, point: &[f64], weight: f64) -> Option<f64> {
        if !self.in_domain(point) {
            return None;
        }
        let mut value = weight * self.objective.value(point);
        for linear in &self.domain {
            value -= (-linear.value(point)).ln();
        }
        for constraint in &self.constraints {
            let slack = -constraint.value(point);
            if slack <= 0.0 {
                return None;
            }
            value -= slack.ln();
        }
        value.is_finite().then_some(value)
    }

    fn derivatives(&self, point: &[f64], weight: f64) -> Derivatives {
        let mut derivatives = Derivatives::new(self.variable_count);
        self.objective.add_derivatives(point, &mut derivatives, weight, 0.0);
        for linear in &self.domain {
            let slack = -linear.value(point);
            let coefficients = merge(&linear.coefficients);
            for &(index, factor) in &coefficients {
                derivatives.gradient[index] += factor / slack;
            }
            derivatives.add_rank_one(&coefficients, 1.0 / (slack * slack));
        }
        for constraint in &self.constraints {
            let slack = -constraint.value(point);
            constraint.add_derivatives(point, &mut derivatives, 1.0 / slack, 1.0 / (slack * slack));
        }
        derivatives
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solve_finds_the_known_minimum_of_a_small_program() {
        // Minimise x + y with 2^-x + 2^-y <= 1: by symmetry x = y = 1.
        let negative = |index: usize| Term::from(Linear::constant(0.0).minus(&Linear::variable(index)));
        let program = ConvexProgram {
            variable_count: 2,
            objective: Linear::variable(0).plus(&Linear::variable(1)).into(),
            constraints: vec![Expression { terms: vec![negative(0), negative(1)], divisor: None }],
            domain: vec![],
        };
        let best = program.solve(&[-3.0, 0.5], &[false, false]).unwrap();
        assert!((best[0] - 1.0).abs() < 1e-4 && (best[1] - 1.0).abs() < 1e-4, "{best:?}");
        // With x fixed at 2, y = log2(4/3).
        let constrained = program.solve(&[2.0, 5.0], &[true, false]).unwrap();
        assert!((constrained[1] - (4.0_f64 / 3.0).log2()).abs() < 1e-6, "{constrained:?}");
        assert!(program.solve(&[-1.0, 0.0], &[true, false]).is_none());
    }

    #[test]
    fn entropy_derivatives_agree_with_finite_differences() {
        for r in [-900.0, -60.1, -59.9, -20.0, -5.0, -1.0, -0.3, -0.01_f64] {
            let step = 1e-4 * r.abs();
            let [low, mid, high] = [r - step, r, r + step].map(log_entropy);
            assert!((mid.1 - (high.0 - low.0) / (2.0 * step)).abs() < 1e-5 * mid.1.abs().max(1.0), "{r}");
            assert!((mid.2 - (high.1 - low.1) / (2.0 * step)).abs() < 1e-4 * mid.2.abs().max(1.0), "{r}");
        }
    }
}
