//! Burn and the native executor agree in values and gradients of every primitive, every case of every mixer, and a model.
//!
//! All tests run on Burn's CPU device, `cpu`. With the feature `wgpu` they also run on the device that Burn finds through wgpu: a
//! GPU, or a driver that emulates one on the CPU.

use rung_engine::Scalar;

mod cases;
#[cfg(feature = "wgpu")]
mod gpu;
mod models;
mod primitives;

/// Asserts that numbers agree; see [`difference`].
fn assert_close<S: Scalar>(found: &[S], expected: &[S], tolerance: f64, what: &str) {
    if let Some((_, message)) = difference(found, expected, tolerance) {
        panic!("{what}: {message}");
    }
}

/// The index of the first number that differs by more than `tolerance` times the largest magnitude, and a message about it. A NaN
/// differs from everything.
fn difference<S: Scalar>(found: &[S], expected: &[S], tolerance: f64) -> Option<(usize, String)> {
    assert_eq!(found.len(), expected.len(), "the number of numbers");
    let largest = expected.iter().fold(1e-3_f64, |largest, value| largest.max(value.to_f64().abs()));
    let agree = |a: &S, b: &S| (a.to_f64() - b.to_f64()).abs() <= tolerance * largest;
    let index = found.iter().zip(expected).position(|(a, b)| !agree(a, b))?;
    Some((index, format!("number {index} is {}, expected {}", found[index], expected[index])))
}
