//! Training steps: the same bits every time, the same results on any number of threads, and errors that name the operation.

mod common;

use common::Model;
use rung_engine::{AdamWConfig, DataParallel, Native, Ops, Parameters};

const BATCH: usize = 12;

/// Weights and loss after some steps.
fn train(threads: usize, micro_batch: usize, steps: usize) -> (Vec<f32>, f64) {
    let mut model = Model::new();
    let mut workers = DataParallel::new(threads, micro_batch);
    let mut optimizer = AdamWConfig { rate: 3e-3, clip: 1.0, ..AdamWConfig::default() }.init();
    let mut loss = f64::NAN;
    for _ in 0..steps {
        loss = workers
            .compute_gradient(&model.weights, BATCH, |ops: &Native<f32>, items| model.loss(ops, items, BATCH))
            .expect("finite numbers")
            .loss;
        optimizer.update(&mut model.weights, workers.gradient(), 1.0);
    }
    (model.weights.flat().to_vec(), loss)
}

#[test]
fn equal_runs_give_the_same_bits() {
    let bits = |weights: Vec<f32>| weights.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(train(2, 3, 100).0), bits(train(2, 3, 100).0));
}

#[test]
fn threads_and_micro_batches_change_only_the_rounding() {
    let (expected, _) = train(1, 8, 3);
    for (threads, micro_batch) in [(1, 1), (2, 3), (3, 8), (5, 2), (16, 1)] {
        let (weights, _) = train(threads, micro_batch, 3);
        let difference = expected.iter().zip(&weights).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-3, "{threads} threads, micro-batches of {micro_batch}: weights differ by {difference}");
    }
}

#[test]
fn training_reduces_the_loss() {
    let ((_, first), (_, last)) = (train(2, 4, 1), train(2, 4, 150));
    assert!(last < 0.2 * first, "from a loss of {first} to {last}");
}

#[test]
fn a_step_with_an_infinite_weight_names_the_operation_and_layer() {
    let mut model = Model::new();
    let poisoned = model.weights.find("1.v").expect("a weight of the second layer");
    model.weights.get_mut(poisoned)[3] = f32::INFINITY;
    let mut workers = DataParallel::new(2, 3);
    let error = workers
        .compute_gradient(&model.weights, BATCH, |ops: &Native<f32>, items| model.loss(ops, items, BATCH))
        .expect_err("an infinite weight");
    let message = error.to_string();
    assert!(message.contains("product in layer 1: gdn") && message.contains("forward"), "{message}");
    model.weights.get_mut(poisoned)[3] = 0.0;
    let repaired =
        workers.compute_gradient(&model.weights, BATCH, |ops: &Native<f32>, items| model.loss(ops, items, BATCH));
    assert!(repaired.is_ok(), "the next step succeeds after an error");
}

#[test]
fn a_step_with_an_infinite_gradient_names_the_backward_pass() {
    let mut weights = Parameters::<f32>::new();
    let id = weights.add("x", &[1], vec![0.0]).id();
    let error = DataParallel::new(1, 1)
        .compute_gradient(&weights, 1, |ops: &Native<f32>, _| ops.scope("root", || ops.sqrt(&ops.parameter(id))))
        .expect_err("the derivative of a square root at zero");
    assert_eq!(error.to_string(), "sqrt in root gave a number that is not finite, in the backward pass");
}
