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

/// Asserts that numbers agree up to `tolerance` times the largest magnitude. A NaN agrees with nothing.
fn assert_close<S: Scalar>(found: &[S], expected: &[S], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-3_f64, |largest, value| largest.max(value.to_f64().abs()));
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a.to_f64() - b.to_f64()).abs() <= tolerance * largest, "{what}: number {index} is {a}, expected {b}");
    }
}
