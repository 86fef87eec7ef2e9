//! What both test files measure with.

use rung_engine::{Parameters, Scalar};
use rung_theory::task::{Rng, below};

/// A number from -1 to 1.
pub fn draw(rng: &mut Rng) -> f64 {
    f64::from(below(rng, 2_000_001)) / 1e6 - 1.0
}

/// Adds random numbers to all weights, so that gains of one and biases of zero are not special.
pub fn shake<S: Scalar>(weights: &mut Parameters<S>, rng: &mut Rng) {
    weights.flat_mut().iter_mut().for_each(|value| *value += S::of(0.3 * draw(rng)));
}

/// Two lists of numbers agree, relative to the largest. A NaN agrees with nothing.
pub fn assert_close<S: Scalar>(found: &[S], expected: &[S], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1e-3_f64, |size, value| size.max(value.wide().abs()));
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a.wide() - b.wide()).abs() <= tolerance * size, "{what}: number {index} is {a}, expected {b}");
    }
}
