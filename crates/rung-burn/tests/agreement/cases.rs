//! Every mixer of [`CASES`], with which the native executor is tested too.

use rung_burn::device::{self, Device};
use rung_burn::{Burn, Number};
use rung_engine::{Native, Ops};
use rung_nn::mixer::cases::{
    BATCH, CASES, MixerWithWeights, WIDTH, build_with_precision, input, results, weighted_sum,
};
use rung_nn::{SimulatedPrecision, TokenMixer as _};

use super::difference;

const TIME: usize = 9;

/// Outputs and states of a case, and last the mixer's auxiliary loss, if it has one.
fn run<O: Ops>(ops: &O, case: &MixerWithWeights<O::Scalar>, x: &O::Tensor) -> Vec<O::Tensor> {
    let mut all = results(ops, &case.mixer, x);
    all.extend(case.mixer.auxiliary_loss(ops, || x.clone()));
    all
}

/// Checks all cases on a device against the native executor: outputs, states, and gradients in all weights and the input.
pub fn check<S: Number>(device: &Device, precision: SimulatedPrecision, tolerance: f64) {
    let differences: Vec<String> = CASES
        .iter()
        .filter_map(|&(text, positions)| {
            let case = build_with_precision(text, positions, 4, precision);
            Some(format!("{text}: {}", find_difference::<S>(device, case, text, tolerance)?))
        })
        .collect();
    assert!(
        differences.is_empty(),
        "{} of {} cases differ:\n{}",
        differences.len(),
        CASES.len(),
        differences.join("\n")
    );
}

/// The first difference between the executors in a case.
fn find_difference<S: Number>(
    device: &Device,
    mut case: MixerWithWeights<S>,
    text: &str,
    tolerance: f64,
) -> Option<String> {
    let x = case.weights.add("x", &[BATCH, TIME, WIDTH], input(TIME, 1.0)).id();
    let native = Native::new();
    native.bind(&case.weights);
    let expected = run(&native, &case, &native.parameter(x));
    let burn = Burn::with_gradients(device, &case.weights).unwrap();
    let actual = run(&burn, &case, &burn.parameter(x));
    assert_eq!(actual.len(), expected.len(), "{text}");
    for (index, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
        assert_eq!(burn.shape(actual), native.shape(expected), "{text}");
        if let Some((_, message)) = difference(&burn.values(actual), &native.values(expected), tolerance) {
            return Some(format!("result {index}: {message}"));
        }
    }
    if text == "none" {
        return None;
    }
    native.backward(&weighted_sum(&native, &expected));
    let gradient = native.gradient();
    assert!(gradient.iter().any(|value| *value != S::ZERO), "{text} has no gradient to compare");
    let (index, message) = difference(&burn.gradient(&weighted_sum(&burn, &actual)), &gradient, tolerance)?;
    let weight = case.weights.entries().find(|(_, entry)| entry.range.contains(&index));
    Some(format!("gradient in {}: {message}", weight.map_or("no weight", |(_, entry)| &entry.name)))
}

#[test]
fn mixer_cases_agree_in_double_precision() {
    check::<f64>(&device::open("cpu").unwrap(), SimulatedPrecision::default(), 1e-9);
}

#[test]
fn mixer_cases_agree_in_single_precision() {
    check::<f32>(&device::open("cpu").unwrap(), SimulatedPrecision::default(), 1e-3);
}

#[test]
fn mixer_cases_agree_with_states_and_messages_of_few_bits() {
    check::<f64>(&device::open("cpu").unwrap(), SimulatedPrecision::bits(6, 8.0), 1e-9);
}
