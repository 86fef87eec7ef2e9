//! Every primitive of `Ops`.

use rung_burn::device::{self, Device};
use rung_burn::{Burn, Number};
use rung_engine::{Binary, Native, Ops, Parameter, Parameters, Scalar, Unary};
use rung_nn::mixer::cases::{perturb, uniform_sample};
use rung_theory::task::seeded;

use super::assert_close;

const SHAPES: [&[usize]; 4] = [&[2, 3, 4], &[3, 1], &[2, 4, 5], &[5, 4]];

/// Results by name, from inputs of the shapes above whose numbers lie between -0.3 and 0.3.
fn results<O: Ops>(ops: &O, inputs: &[O::Tensor]) -> Vec<(String, O::Tensor)> {
    let [x, column, stack, matrix] = inputs else { panic!("four inputs") };
    let mut all = Vec::new();
    let positive = ops.affine(column, 2.0, 1.0);
    for kind in [Unary::Exp, Unary::Sigmoid, Unary::Tanh, Unary::Softplus, Unary::Relu, Unary::Round] {
        all.push((format!("{kind:?}"), ops.unary(kind, &ops.affine(x, 10.0, 0.1))));
    }
    for kind in [Unary::Log, Unary::Sqrt] {
        all.push((format!("{kind:?}"), ops.unary(kind, &positive)));
    }
    for offset in [-500.0, 500.0] {
        for kind in [Unary::Sigmoid, Unary::Tanh, Unary::Softplus] {
            all.push((format!("{kind:?} at {offset}"), ops.unary(kind, &ops.affine(x, 1.0, offset))));
        }
    }
    for kind in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div] {
        all.push((format!("{kind:?}"), ops.binary(kind, x, &positive)));
        all.push((format!("{kind:?}, left broadcast"), ops.binary(kind, column, &ops.affine(x, 1.0, 1.0))));
    }
    let permute = |x: &O::Tensor, order: &[usize]| ops.permute(x, order);
    let empty = ops.slice(x, 1, 2..2);
    let mut add = |name: &str, tensor| all.push((name.to_owned(), tensor));
    add("full", ops.full(&[2, 3], 1.5));
    add("constant", ops.constant(&[2], &[O::Scalar::from_f64(0.1), O::Scalar::from_f64(-7.0)]));
    let halves = [-1.5, -0.5, 0.5, 1.5, 2.5].map(O::Scalar::from_f64);
    add("halves rounded", ops.unary(Unary::Round, &ops.constant(&[5], &halves)));
    add("detached weight", ops.mul(&ops.detach(x), column));
    add("detached result", ops.mul(&ops.detach(&ops.mul(x, x)), x));
    add("product", ops.product(x, false, stack, false));
    add("product, left transposed", ops.product(&permute(x, &[0, 2, 1]), true, stack, false));
    add("product, right transposed", ops.product(x, false, &permute(stack, &[0, 2, 1]), true));
    add("product, a shared matrix", ops.product(x, false, matrix, true));
    add("product of matrices, both transposed", ops.product(matrix, true, &permute(matrix, &[1, 0]), true));
    add("product over an empty axis", ops.product(&permute(&empty, &[0, 2, 1]), false, &empty, false));
    add("permutation of an empty tensor", permute(&empty, &[2, 0, 1]));
    add("sum over an empty axis", ops.sum(&empty, 1));
    add("sum of an empty tensor", ops.sum_all(&empty));
    add("cumulative sum over an empty axis", ops.cumulative_sum(&empty, 1));
    add("reshape", ops.mul(&ops.reshape(x, &[4, 6]), &ops.full(&[6], 2.0)));
    add("permute", permute(x, &[2, 0, 1]));
    add("slice", ops.slice(x, 2, 1..3));
    add("slice of an empty tensor", empty.clone());
    add("concat", ops.concat(&[x.clone(), empty, ops.slice(x, 1, 1..3)], 1));
    add("broadcast", ops.broadcast(column, &[2, 3, 4]));
    add("gather_rows", ops.gather_rows(matrix, &[4, 0, 4, 2]));
    add("gather_rows of none", ops.gather_rows(matrix, &[]));
    for axis in 0..3 {
        add(&format!("sum along {axis}"), ops.sum(x, axis));
        add(&format!("max along {axis}"), ops.max(x, axis));
        add(&format!("max along {axis} beside its input"), ops.sub(x, &ops.max(x, axis)));
        add(&format!("cumulative sum along {axis}"), ops.cumulative_sum(x, axis));
    }
    all.extend(permuted_results(ops, inputs));
    all
}

/// Sums and maxima of permuted tensors, and sums whose gradient is permuted.
fn permuted_results<O: Ops>(ops: &O, inputs: &[O::Tensor]) -> Vec<(String, O::Tensor)> {
    let [x, column, stack, _] = inputs else { panic!("four inputs") };
    let mut all = Vec::new();
    let wide = ops.mul(&ops.reshape(stack, &[2, 4, 5, 1]), &ops.reshape(column, &[3]));
    // The first order exchanges the inner axes only, so that the outer ones are as in a row-major tensor.
    for order in [[0, 1, 3, 2], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let permuted = ops.permute(&wide, &order);
        for axis in 0..4 {
            all.push((format!("sum along {axis} of axes {order:?}"), ops.sum(&permuted, axis)));
            all.push((format!("max along {axis} of axes {order:?}"), ops.max(&permuted, axis)));
        }
    }
    let terms = ops.mul(&ops.reshape(&ops.slice(stack, 2, 0..4), &[2, 4, 1, 4]), column);
    let key = ops.permute(&ops.sum(&terms, 2), &[0, 2, 1, 3]);
    let query = ops.reshape(x, &[2, 1, 3, 4]);
    all.push(("product, right a transposed sum".to_owned(), ops.product(&query, false, &key, true)));
    all
}

/// The name of a result, the result, and as loss its sum times fixed random numbers, which has a gradient in every element.
fn result_and_loss<O: Ops>(ops: &O, ids: &[Parameter], index: usize) -> Option<(String, O::Tensor, O::Tensor)> {
    let inputs: Vec<_> = ids.iter().map(|&id| ops.parameter(id)).collect();
    let (name, result) = results(ops, &inputs).into_iter().nth(index)?;
    let (shape, mut rng) = (ops.shape(&result), seeded(9));
    let factors: Vec<_> = (0..shape.size()).map(|_| O::Scalar::from_f64(uniform_sample(&mut rng))).collect();
    let loss = ops.sum_all(&ops.mul(&result, &ops.constant(&shape, &factors)));
    Some((name, result, loss))
}

/// Checks all results on a device against the native executor: values, and gradients in all inputs.
pub fn check<S: Number>(device: &Device, tolerance: f64) {
    let mut weights = Parameters::<S>::new();
    let ids = SHAPES.map(|shape| {
        let zeros = vec![S::ZERO; shape.iter().product()];
        weights.add(format!("{shape:?}"), shape, zeros).id()
    });
    perturb(&mut weights, 0.3);
    let native = Native::new();
    let burn = Burn::with_gradients(device, &weights).unwrap();
    for index in 0.. {
        native.bind(&weights);
        let Some((name, expected, loss)) = result_and_loss(&native, &ids, index) else { break };
        native.backward(&loss);
        let (_, actual, loss) = result_and_loss(&burn, &ids, index).expect("the same list");
        assert_eq!(burn.shape(&actual), native.shape(&expected), "{name}");
        assert_close(&burn.values(&actual), &native.values(&expected), tolerance, &name);
        assert_close(&burn.gradient(&loss), &native.gradient(), tolerance, &format!("gradient of {name}"));
    }
}

#[test]
fn primitives_agree_in_single_precision() {
    check::<f32>(&device::open("cpu").unwrap(), 1e-5);
}

#[test]
fn primitives_agree_in_double_precision() {
    check::<f64>(&device::open("cpu").unwrap(), 1e-12);
}

#[test]
fn frozen_weights_have_values_and_no_gradient() {
    let mut weights = Parameters::<f32>::new();
    let id = weights.add("x", &[2], vec![3.0, 4.0]).id();
    let burn = Burn::without_gradients(&device::open("cpu").unwrap(), &weights).unwrap();
    let loss = burn.sum_all(&burn.parameter(id));
    assert_eq!((burn.values(&loss), burn.gradient(&loss)), (vec![7.0], vec![0.0, 0.0]));
}
