//! Burn and the native executor agree: values and gradients, of every primitive, every case of every mixer, and a whole model.
//!
//! All of it runs on Burn's processor device, `flex`. With the feature `wgpu` it also runs on the device that Burn finds through
//! it, be it a graphics card or a driver that computes on the processor.

use rung_engine::Scalar;

mod cases;
#[cfg(feature = "wgpu")]
mod graphics;
mod models;
mod primitives;

/// Two lists of numbers agree, relative to the largest. A NaN agrees with nothing.
fn assert_close<S: Scalar>(found: &[S], expected: &[S], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1e-3_f64, |size, value| size.max(value.to_f64().abs()));
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a.to_f64() - b.to_f64()).abs() <= tolerance * size, "{what}: number {index} is {a}, expected {b}");
    }
}
