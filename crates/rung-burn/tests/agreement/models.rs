//! Complete models: the same loss, the same gradient and the same weights after training.

use rung_burn::device::{self, Device};
use rung_burn::{Burn, Number};
use rung_engine::{AdamWConfig, Native, Ops, Parameters, Scalar};
use rung_nn::mixer::cases::perturb;
use rung_nn::{FeedForwardConfig, InputConfig, Model, ModelConfig, Positions};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{Rng, random_below, seeded};

use super::assert_close;

const CLASSES: usize = 7;
const BATCH: usize = 2;
const SPANS: [usize; 2] = [5, 6];

fn config() -> ModelConfig {
    ModelConfig {
        input: InputConfig::Vocabulary(CLASSES),
        classes: CLASSES,
        chunk: 4,
        init_std: 0.3,
        ..ModelConfig::default()
    }
}

fn build<S: Scalar>(stack: &str, config: &ModelConfig) -> (Model, Parameters<S>) {
    let mut weights = Parameters::new();
    let plan = Plan::parse(stack, &Defaults { heads: 2, head_dim: 4, ..Defaults::default() }).unwrap();
    let model = config.init(&plan, &mut weights, &mut seeded(11)).unwrap_or_else(|error| panic!("{stack}: {error}"));
    perturb(&mut weights, 0.3);
    (model, weights)
}

fn tokens(rng: &mut Rng, count: usize) -> Vec<u32> {
    (0..count).map(|_| random_below(rng, CLASSES as u32)).collect()
}

/// The sum of the cross-entropies of two consecutive spans of tokens.
fn loss<O: Ops>(ops: &O, model: &Model) -> O::Tensor {
    let (mut rng, mut state, mut losses) = (seeded(3), None, Vec::new());
    for length in SPANS {
        let ids = tokens(&mut rng, BATCH * length);
        let (hidden, next) = model.forward(ops, &ids, BATCH, state.as_ref()).unwrap();
        let rows = ops.reshape(&hidden, &[BATCH * length, model.width()]);
        let targets: Vec<usize> = tokens(&mut rng, BATCH * length).into_iter().map(|id| id as usize).collect();
        losses.push(ops.cross_entropy(&model.logits(ops, &rows), &targets));
        state = Some(next);
    }
    ops.sum_all(&ops.concat(&losses, 0))
}

/// Checks the loss and gradient of a model with several mixers on a device against the native executor.
pub fn check<S: Number>(device: &Device, tolerance: f64) {
    let config = ModelConfig {
        positions: Positions::Rotary { base: 100.0 },
        feed_forward: FeedForwardConfig::Glu { hidden: Some(10) },
        tied_unembedding: true,
        ..config()
    };
    let (model, weights) = build::<S>("gdn full+linear{map=relu} window{size=3,sinks=1} mamba2{conv=1}", &config);
    let native = Native::new();
    native.bind(&weights);
    let expected = loss(&native, &model);
    native.backward(&expected);
    let burn = Burn::with_gradients(device, &weights).unwrap();
    let actual = loss(&burn, &model);
    assert_close(&burn.values(&actual), &native.values(&expected), tolerance, "loss");
    let gradient = native.gradient();
    assert!(gradient.iter().any(|value| *value != S::ZERO), "no gradient to compare");
    assert_close(&burn.gradient(&actual), &gradient, tolerance, "gradient");
}

#[test]
fn burn_gives_the_native_loss_and_gradient() {
    check::<f64>(&device::open("cpu").unwrap(), 1e-9);
    check::<f32>(&device::open("cpu").unwrap(), 1e-4);
}

/// Trains with the native optimiser and the gradients of either executor.
#[test]
fn training_gives_the_same_weights() {
    let (model, start) = build::<f64>("gdn full", &config());
    let run = |gradient: &dyn Fn(&Parameters<f64>) -> Vec<f64>| {
        let mut weights = start.clone();
        let mut optimizer = AdamWConfig { rate: 0.01, ..AdamWConfig::default() }.init();
        for _ in 0..5 {
            let gradient = gradient(&weights);
            optimizer.update(&mut weights, &gradient, 1.0);
        }
        weights
    };
    let native = run(&|weights| {
        let ops = Native::new();
        ops.bind(weights);
        ops.backward(&loss(&ops, &model));
        ops.gradient()
    });
    let burn = run(&|weights| {
        let ops = Burn::with_gradients(&device::open("cpu").unwrap(), weights).unwrap();
        ops.gradient(&loss(&ops, &model))
    });
    assert_close(burn.flat(), native.flat(), 1e-6, "weights after five steps");
    assert!(native.flat() != start.flat(), "nothing was learned");
}
