//! The same on a graphics card, or on a driver that stands in for one. Where there is neither, these tests say so and do nothing.

use rung_burn::device::{self, Device};
use rung_burn::{Burn, DeviceError};
use rung_engine::{Ops, Parameters};
use rung_nn::Precision;

use super::{cases, models, primitives};

fn found() -> Option<Device> {
    match device::named("wgpu") {
        Ok(device) => Some(device),
        Err(error @ DeviceError::Absent { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Small whole numbers, so that every device has the same.
#[test]
fn a_product_and_its_gradient() {
    let Some(device) = found() else { return };
    let mut weights = Parameters::<f32>::new();
    let left = weights.add("left", &[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).id();
    let right = weights.add("right", &[3, 2], vec![1.0, 0.0, -1.0, 2.0, 0.0, 1.0]).id();
    let ops = Burn::learning(&device, &weights).unwrap();
    let product = ops.matmul(&ops.parameter(left), &ops.parameter(right));
    assert_eq!(ops.values(&product), [-1.0, 7.0, -1.0, 16.0]);
    let gradient = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 7.0, 7.0, 9.0, 9.0];
    assert_eq!(ops.gradient(&ops.sum_all(&product)), gradient);
}

#[test]
fn primitives_agree() {
    if let Some(device) = found() {
        primitives::check::<f32>(&device, 1e-4);
    }
}

#[test]
fn a_whole_model_agrees() {
    if let Some(device) = found() {
        models::check::<f32>(&device, 1e-3);
    }
}

#[test]
#[ignore = "takes minutes, and on llvmpipe the gradient of one case of nsa is another one, for a reason not yet found"]
fn cases_agree() {
    if let Some(device) = found() {
        cases::check::<f32>(&device, Precision::default(), 1e-2);
    }
}
