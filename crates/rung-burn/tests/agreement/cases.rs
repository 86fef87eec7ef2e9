//! Every case of every mixer.
//!
//! The cases are those that the native executor is held to, so a new mixer is here as soon as it has a line in that table.

use rung_burn::device::{self, Device};
use rung_burn::{Burn, Number};
use rung_engine::{Native, Ops};
use rung_nn::mixer::cases::{BATCH, Built, CASES, WIDTH, build_within, input, results, scalar};
use rung_nn::{Precision, TokenMixer as _};

use super::assert_close;

const TIME: usize = 9;

/// Outputs and states of a case, and at the end the mixer's own loss, if it has one.
fn numbers<O: Ops>(ops: &O, case: &Built<O::Scalar>, x: &O::Tensor) -> Vec<O::Tensor> {
    let mut all = results(ops, &case.mixer, x);
    all.extend(case.mixer.own_loss(ops, || x.clone()));
    all
}

/// All cases on a device and native: the same outputs and states, and the same gradients in all weights and the input.
pub fn check<S: Number>(device: &Device, precision: Precision, tolerance: f64) {
    for &(text, positions) in CASES {
        check_case::<S>(device, build_within(text, positions, 4, precision), text, tolerance);
    }
}

fn check_case<S: Number>(device: &Device, mut case: Built<S>, text: &str, tolerance: f64) {
    let x = case.weights.add("x", &[BATCH, TIME, WIDTH], input(TIME, 1.0)).id();
    let native = Native::new();
    native.bind(&case.weights);
    let expected = numbers(&native, &case, &native.parameter(x));
    let burn = Burn::learning(device, &case.weights).unwrap();
    let found = numbers(&burn, &case, &burn.parameter(x));
    assert_eq!(found.len(), expected.len(), "{text}");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(burn.shape(found), native.shape(expected), "{text}");
        assert_close(&burn.values(found), &native.values(expected), tolerance, text);
    }
    if text != "none" {
        native.backward(&scalar(&native, &expected));
        let gradient = native.gradient();
        assert!(gradient.iter().any(|value| *value != S::ZERO), "{text} has no gradient to compare");
        let found = burn.gradient(&scalar(&burn, &found));
        assert_close(&found, &gradient, tolerance, &format!("gradient of {text}"));
    }
}

#[test]
fn cases_agree_in_double_precision() {
    check::<f64>(&device::named("flex").unwrap(), Precision::default(), 1e-9);
}

#[test]
fn cases_agree_in_single_precision() {
    check::<f32>(&device::named("flex").unwrap(), Precision::default(), 1e-3);
}

#[test]
fn cases_agree_with_states_and_messages_in_few_bits() {
    check::<f64>(&device::named("flex").unwrap(), Precision::bits(6, 8.0), 1e-9);
}
