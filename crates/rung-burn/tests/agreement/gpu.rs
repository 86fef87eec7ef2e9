//! The same checks on a GPU, or on a driver that emulates one. Without either, these tests print that they are skipped.

use rung_burn::device::{self, Device};
use rung_burn::{Burn, DeviceError};
use rung_engine::{Ops, Parameters};
use rung_nn::SimulatedPrecision;

use super::{cases, models, primitives};

fn open_device() -> Option<Device> {
    match device::open("wgpu") {
        Ok(device) => Some(device),
        Err(error @ DeviceError::Absent { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Small integers, whose products are exact on every device.
#[test]
fn a_product_and_its_gradient_are_exact() {
    let Some(device) = open_device() else { return };
    let mut weights = Parameters::<f32>::new();
    let left = weights.add("left", &[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).id();
    let right = weights.add("right", &[3, 2], vec![1.0, 0.0, -1.0, 2.0, 0.0, 1.0]).id();
    let ops = Burn::with_gradients(&device, &weights).unwrap();
    let product = ops.matmul(&ops.parameter(left), &ops.parameter(right));
    assert_eq!(ops.values(&product), [-1.0, 7.0, -1.0, 16.0]);
    let gradient = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 7.0, 7.0, 9.0, 9.0];
    assert_eq!(ops.gradient(&ops.sum_all(&product)), gradient);
}

#[test]
fn primitives_agree_on_a_gpu() {
    if let Some(device) = open_device() {
        primitives::check::<f32>(&device, 1e-4);
    }
}

#[test]
fn a_model_agrees_on_a_gpu() {
    if let Some(device) = open_device() {
        models::check::<f32>(&device, 1e-3);
    }
}

#[test]
fn mixer_cases_agree_on_a_gpu() {
    if let Some(device) = open_device() {
        cases::check::<f32>(&device, SimulatedPrecision::default(), 1e-3);
    }
}
