//! Properties of every mixer of [`CASES`].

use rung_engine::{Native, Ops, ParameterEntry, Parameters, Scalar, Tensor};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::seeded;

mod equivalences;
mod levels;
mod linearized;
mod observed;
mod precision;
mod recurrence;
mod roles;
mod variants;

use super::cases::{
    BATCH, CASES, MixerWithWeights, ROTARY, WIDTH, build, build_with_precision, input, perturb, resolve, results,
    settings, uniform_sample,
};
use super::{Builtin, NAMES, State, TokenMixer};
use crate::no_fused_kernels::NoFusedKernels;
use crate::param_builder::{BuildSettings, ParamBuilder};
use crate::position::Positions;

/// A weighted sum of all outputs and states; see [`cases::weighted_sum`](super::cases::weighted_sum).
fn weighted_sum_of_results<O: Ops>(ops: &O, mixer: &Builtin, x: &O::Tensor) -> O::Tensor {
    super::cases::weighted_sum(ops, &results(ops, mixer, x))
}

/// Runs a mixer on consecutive spans of these lengths: its output, and the last state.
fn run<O: Ops, M: TokenMixer>(ops: &O, mixer: &M, x: &O::Tensor, spans: &[usize]) -> (Vec<f64>, State<O::Tensor>) {
    let (mut start, mut state, mut outs) = (0, None, Vec::new());
    for &length in spans {
        let (out, next) = mixer.forward(ops, &ops.slice(x, 1, start..start + length), state.as_ref());
        outs.push(out);
        state = Some(next);
        start += length;
    }
    let out = ops.values(&ops.concat(&outs, 1)).into_iter().map(Scalar::to_f64).collect();
    (out, state.expect("at least one span"))
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1e-3_f64, |size, value| size.max(value.abs()));
    for (index, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance * size, "{what}: number {index} is {a}, expected {b}");
    }
}

#[test]
fn table_of_cases_has_every_mixer() {
    for name in NAMES {
        assert!(CASES.iter().any(|(text, _)| resolve(text).name() == *name), "{name} is not in the table");
    }
}

#[test]
fn outputs_do_not_depend_on_chunks_and_spans() {
    for &(text, positions) in CASES {
        for time in [1, 2, 7, 13] {
            let values = input::<f64>(time, 1.0);
            let ops = Native::new();
            let mut expected: Option<Vec<f64>> = None;
            for chunk in [1, 2, 3, 5, 64] {
                let MixerWithWeights { mixer, weights } = build::<f64>(text, positions, chunk);
                ops.bind_frozen(&weights);
                let x = ops.constant(&[BATCH, time, WIDTH], &values);
                let (actual, state) = run(&ops, &mixer, &x, &[time]);
                assert_eq!(state.past_len, time, "{text}");
                let expected = expected.get_or_insert_with(|| actual.clone());
                assert_close(&actual, expected, 1e-10, &format!("{text}, {time} tokens in chunks of {chunk}"));
                let span_lists =
                    [vec![1; time], vec![time / 2, time - time / 2], vec![time / 3, 1, time - time / 3 - 1]];
                for spans in span_lists.iter().filter(|spans| spans.iter().all(|&length| length > 0)) {
                    let (actual, _) = run(&ops, &mixer, &x, spans);
                    assert_close(&actual, expected, 1e-10, &format!("{text} in spans {spans:?}, chunk {chunk}"));
                }
            }
        }
    }
}

#[test]
fn state_size_equals_that_of_the_plan() {
    let time = 9;
    for &(text, positions) in CASES {
        let MixerWithWeights { mixer, weights } = build::<f32>(text, positions, 4);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
        let facts = *resolve(text).facts();
        let expected = facts.memory_size(time as u128);
        for spans in [vec![time], vec![1; time]] {
            let (_, state) = run(&ops, &mixer, &x, &spans);
            assert_eq!(state.element_count(&ops) as u128, expected, "{text}");
        }
    }
}

/// A plan counts matrices and convolutions, including Mamba-1's matrix of decay rates, but no biases, gains and other rates.
#[test]
fn parameter_count_equals_that_of_the_plan() {
    let mut differences = Vec::new();
    for &(text, positions) in CASES {
        let (mut weights, mut rng) = (Parameters::<f32>::new(), seeded(11));
        let mut params = ParamBuilder::new(settings(positions, 4), &mut weights, &mut rng);
        // The plan counts an RWKV-7 layer after the first.
        let is_rwkv7 = resolve(text).name() == "rwkv7";
        let init = if is_rwkv7 { Builtin::init_with_shared_tensor } else { Builtin::init };
        init(&resolve(text), &mut params).unwrap();
        let counts = |entry: &ParameterEntry| entry.decay || entry.name == "A_log" && entry.shape.len() == 2;
        let matrices = weights.entries().filter(|(_, entry)| counts(entry)).map(|(_, entry)| entry.range.len());
        let (actual, expected) = (matrices.sum::<usize>() as u128, resolve(text).facts().parameters);
        if actual != expected {
            differences.push(format!("{text}: {actual}, the plan says {expected}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn outputs_do_not_depend_on_later_tokens() {
    let time = 11;
    for &(text, positions) in CASES {
        let MixerWithWeights { mixer, weights } = build::<f32>(text, positions, 4);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let mut values = input::<f32>(time, 1.0);
        let output = |values: &[f32]| {
            let x = ops.constant(&[BATCH, time, WIDTH], values);
            ops.values(&mixer.forward(&ops, &x, None).0)
        };
        let before = output(&values);
        for token in [0, 3, 4, 10] {
            let original = values.clone();
            for row in 0..BATCH {
                values[(row * time + token) * WIDTH..][..WIDTH].iter_mut().for_each(|value| *value += 1.0);
            }
            let after = output(&values);
            for row in 0..BATCH {
                let earlier = row * time * WIDTH..(row * time + token) * WIDTH;
                assert_eq!(before[earlier.clone()], after[earlier], "{text}, token {token}");
                let changed = (row * time + token) * WIDTH..(row * time + token + 1) * WIDTH;
                assert!(text == "none" || before[changed.clone()] != after[changed], "{text} ignores token {token}");
            }
            values = original;
        }
    }
}

/// In a bidirectional mixer the first output depends on the last token.
#[test]
fn mixers_are_bidirectional_or_return_an_error() {
    let (time, mut bidirectional) = (6, Vec::new());
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let (mut weights, mut rng) = (Parameters::<f64>::new(), seeded(11));
        let settings = BuildSettings { causal: false, ..settings(positions, 4) };
        let mixer = match Builtin::init(&resolve(text), &mut ParamBuilder::new(settings, &mut weights, &mut rng)) {
            Ok(mixer) => mixer,
            Err(error) => {
                assert!(error.to_string().contains("a bidirectional form is not implemented"), "{text}: {error}");
                continue;
            }
        };
        bidirectional.push(resolve(text).name());
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let first = |values: &[f64]| {
            let x = ops.constant(&[BATCH, time, WIDTH], values);
            ops.values(&mixer.forward(&ops, &x, None).0)[..WIDTH].to_vec()
        };
        let mut values = input::<f64>(time, 1.0);
        let before = first(&values);
        values[(time - 1) * WIDTH..time * WIDTH].iter_mut().for_each(|value| *value += 1.0);
        assert_ne!(first(&values), before, "{text}");
    }
    bidirectional.dedup();
    assert_eq!(bidirectional, ["full", "linear", "inline"]);
}

#[test]
fn extreme_gates_give_finite_outputs_and_gradients() {
    let time = 19;
    for &(text, positions) in CASES {
        for (input_size, weight_change) in [(0.0, 0.0), (200.0, 0.0), (100.0, 3.0), (1e-6, 0.0)] {
            let MixerWithWeights { mixer, mut weights } = build::<f32>(text, positions, 8);
            perturb(&mut weights, weight_change);
            let x_id = weights.add("x", &[BATCH, time, WIDTH], input(time, input_size)).id();
            let ops = Native::new();
            ops.bind(&weights);
            let (out, state) = mixer.forward(&ops, &ops.parameter(x_id), None);
            assert!(ops.values(&out).iter().all(|value| value.is_finite()), "{text} at {input_size}, {weight_change}");
            for tensor in state.tensors.iter().flatten() {
                assert!(
                    ops.values(tensor).iter().all(|value| value.is_finite()),
                    "state of {text} at {input_size}, {weight_change}"
                );
            }
            if text != "none" {
                ops.backward(&ops.mean_all(&out));
                assert!(
                    ops.gradient().iter().all(|value| value.is_finite()),
                    "gradient of {text} at {input_size}, {weight_change}"
                );
            }
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let time = 7;
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let MixerWithWeights { mixer, mut weights } = build::<f64>(text, positions, 3);
        let x_id = weights.add("x", &[BATCH, time, WIDTH], input(time, 1.0)).id();
        let ops = Native::new();
        ops.bind(&weights);
        ops.backward(&weighted_sum_of_results(&ops, &mixer, &ops.parameter(x_id)));
        let gradient = ops.gradient();
        let scalar_of = |weights: &Parameters<f64>| {
            ops.bind_frozen(weights);
            let value = ops.values(&weighted_sum_of_results(&ops, &mixer, &ops.parameter(x_id)))[0];
            ops.release();
            value
        };
        let size = gradient.iter().fold(1.0_f64, |size, value| size.max(value.abs()));
        let samples: Vec<(String, usize)> = weights
            .entries()
            .flat_map(|(_, entry)| {
                let (start, length) = (entry.range.start, entry.range.len());
                [0, length / 3, length / 2, length - 1].map(|offset| (entry.name.clone(), start + offset))
            })
            .collect();
        for (name, index) in samples {
            let step = 1e-5;
            let value = weights.flat()[index];
            weights.flat_mut()[index] = value + step;
            let high = scalar_of(&weights);
            weights.flat_mut()[index] = value - step;
            let low = scalar_of(&weights);
            weights.flat_mut()[index] = value;
            let (actual, expected) = (gradient[index], (high - low) / (2.0 * step));
            assert!(
                (actual - expected).abs() < 1e-6 * size,
                "{text}, {name} at {index}: {actual}, expected {expected}"
            );
        }
    }
}

#[test]
fn fused_kernels_agree_with_composed_operations() {
    let time = 10;
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let MixerWithWeights { mixer, mut weights } = build::<f64>(text, positions, 4);
        let x_id = weights.add("x", &[BATCH, time, WIDTH], input(time, 1.0)).id();
        let native = Native::new();
        native.bind(&weights);
        let loss = weighted_sum_of_results(&native, &mixer, &native.parameter(x_id));
        let actual = native.values(&loss);
        native.backward(&loss);
        let composed = NoFusedKernels(Native::new());
        composed.0.bind(&weights);
        let loss: Tensor<f64> = weighted_sum_of_results(&composed, &mixer, &composed.parameter(x_id));
        assert_close(&actual, &composed.values(&loss), 1e-10, text);
        composed.0.backward(&loss);
        assert_close(&native.gradient(), &composed.0.gradient(), 1e-9, &format!("gradient of {text}"));
    }
}

/// The sizes are large enough for complete tiles of the kernels and partial tiles at their edges.
#[test]
fn outputs_do_not_depend_on_chunks_and_spans_at_realistic_sizes() {
    let (width, time) = (64, 150);
    let defaults = Defaults { heads: 2, head_dim: 32, ..Defaults::default() };
    let mut rng = seeded(3);
    let values: Vec<f32> = (0..time * width).map(|_| uniform_sample(&mut rng) as f32).collect();
    for name in NAMES {
        let plan = Plan::parse(name, &defaults).unwrap();
        let build = |chunk| {
            let settings = BuildSettings { width, chunk, positions: ROTARY, init_std: 0.1, ..BuildSettings::default() };
            let (mut weights, mut rng) = (Parameters::<f32>::new(), seeded(11));
            let mut params = ParamBuilder::new(settings, &mut weights, &mut rng);
            (Builtin::init(&plan.layers[0].mixers[0], &mut params).unwrap(), weights)
        };
        let (mixer, weights) = build(64);
        let composed = NoFusedKernels(Native::new());
        composed.0.bind_frozen(&weights);
        let x = composed.constant(&[1, time, width], &values);
        let (expected, _) = run(&composed, &mixer, &x, &[time]);
        for (chunk, spans) in [(64, vec![time]), (16, vec![time]), (32, vec![77, 1, 72]), (64, vec![1; time])] {
            let (mixer, weights) = build(chunk);
            let ops = Native::new();
            ops.bind_frozen(&weights);
            let (actual, _) = run(&ops, &mixer, &ops.constant(&[1, time, width], &values), &spans);
            assert_close(&actual, &expected, 1e-3, &format!("{name}, chunks of {chunk}, {} spans", spans.len()));
        }
    }
}

#[test]
fn invalid_sizes_are_rejected() {
    let error = |text: &str, settings: BuildSettings| {
        let (mut weights, mut rng) = (Parameters::<f32>::new(), seeded(0));
        let result = Builtin::init(&resolve(text), &mut ParamBuilder::new(settings, &mut weights, &mut rng));
        result.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let causal = settings(ROTARY, 4);
    assert!(error("full{heads=4,kv=3}", causal).contains("key/value heads is 3; expected a divisor of 4"));
    assert!(error("full{heads=4,kv=2,head=3}", causal).contains("key width is 3; expected an even number"));
    assert!(error("gdn{heads=4,value-heads=6}", causal).contains("expected a divisor of 6"));
    assert!(error("mamba2{heads=4,groups=3}", causal).contains("groups is 3"));
    assert!(error("conv{channels=5,gated=no}", causal).contains("channels is 5; expected 12"));
    assert!(error("window{key=4,value=2,tied=yes}", causal).contains("value width is 2; expected 4"));
    assert!(error("hgrn2{expand=5}", causal).contains("expand is 5; expected a divisor of 12"));
    assert!(error("inline{heads=5}", causal).contains("heads is 5; expected a divisor of 12"));
    assert!(error("rglru{inner=10,heads=4}", causal).contains("heads is 4; expected a divisor of 10"));
    for mixer in ["rwkv6{channel=yes}", "rwkv7{channel=yes}"] {
        assert!(error(mixer, causal).contains("channel mixing with a shift of its own is not implemented"));
    }
    assert!(error("moba{heads=4,kv=4,groups=3}", causal).contains("groups is 3; expected a divisor of 4"));
    assert!(error("moba{index=8}", causal).contains("a separate index key is not implemented; expected index=0"));
    assert!(error("nsa", settings(Positions::Alibi, 4)).contains("a penalty on distance is not implemented"));
    assert!(error("dsa{index-heads=0}", causal).contains("the choice of an earlier layer is not implemented"));
    assert!(error("mla{rope=3}", causal).contains("width of the rotary key is 3; expected an even number"));
    assert!(error("compressed", causal).contains("mixer `compressed` is not implemented"));
    let bidirectional = BuildSettings { causal: false, ..causal };
    assert!(error("gdn", bidirectional).contains("bidirectional"));
    assert!(error("full{heads=4,kv=2,head=4}", bidirectional).is_empty());
}

#[test]
fn initial_weights_have_the_ranges_of_the_reference_implementations() {
    let init = |text: &str| {
        let (mut weights, mut rng) = (Parameters::<f64>::new(), seeded(2));
        let settings = BuildSettings { width: WIDTH, ..BuildSettings::default() };
        Builtin::init(&resolve(text), &mut ParamBuilder::new(settings, &mut weights, &mut rng)).unwrap();
        weights
    };
    let assert_range = |weights: &Parameters<f64>, name: &str, low: f64, high: f64, map: fn(f64) -> f64| {
        let values = weights.get(weights.find(name).unwrap()).iter().map(|value| map(*value));
        assert!(values.clone().all(|value| low <= value && value <= high), "{name}: {:?}", values.collect::<Vec<_>>());
    };
    let softplus = |value: f64| value.exp().ln_1p();
    for (text, min_rate) in
        [("mamba2{heads=64,head=2,state=3}", 1.0), ("gdn{heads=64,head=2}", 0.0), ("kda{heads=64,head=2}", 1.0)]
    {
        let weights = init(text);
        assert_range(&weights, "dt_bias", 0.999e-3, 1.001e-1, softplus);
        assert_range(&weights, "A_log", min_rate, 16.0, f64::exp);
    }
    let mamba = init("mamba1{inner=64,state=3,rank=4}");
    assert_range(&mamba, "dt_proj.bias", 0.999e-3, 1.001e-1, softplus);
    assert_range(&mamba, "dt_proj.weight", -0.5, 0.5, |value| value);
    let rates: Vec<f64> = mamba.get(mamba.find("A_log").unwrap()).iter().map(|rate| rate.exp().round()).collect();
    assert_eq!(rates, [1.0, 2.0, 3.0].repeat(64));
    let rwkv = init("rwkv7{heads=16,head=4,rank=2}");
    // Half-lives from about one token to a few hundred.
    assert_range(&rwkv, "w_proj.1.bias", 0.545, 0.998, |value| (-(-0.5_f64).exp() / (1.0 + (-value).exp())).exp());
    assert_range(&rwkv, "x_k", 0.0, 1.0, |value| value);
    let rwkv = init("rwkv6{heads=8,head=4,mix-rank=2,decay-rank=2}");
    assert_range(&rwkv, "time_decay", -6.0, -1.0, |value| value);
    assert_range(&rwkv, "time_maa_k", 0.0, 1.0, |value| value);
    assert_range(&rwkv, "time_maa_w1", 0.0, 0.0, |value| value);
    let rglru = init("rglru{inner=64,heads=4}");
    // The decay is the exponential of minus the softplus.
    assert_range(&rglru, "rg_lru.recurrent_param", 0.9, 0.999, |value| 1.0 / (1.0 + value.exp()));
    let retnet = init("retnet{heads=2,key=4,value=6}");
    let xavier_bound = |gain: f64, fan_sum: usize| gain * (6.0 / fan_sum as f64).sqrt();
    let input_bound = xavier_bound(2_f64.powf(-2.5), WIDTH + 8);
    assert_range(&retnet, "q_proj.weight", -input_bound, input_bound, |value| value);
    let output_bound = xavier_bound(0.5, WIDTH + 12);
    assert_range(&retnet, "o_proj.weight", -output_bound, output_bound, |value| value);
    // The standard deviation of 12 * 512 normal numbers is known within a few percent.
    let full = init("full{heads=64,kv=64,head=8}");
    let values = full.get(full.find("q_proj.weight").unwrap());
    let std = (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt();
    assert!((std / 0.02 - 1.0).abs() < 0.05, "{std}");
}

#[test]
fn weight_decay_applies_to_matrices_except_rates() {
    for &(text, positions) in CASES {
        for (_, entry) in build::<f32>(text, positions, 1).weights.entries() {
            let rates = ["A_log", "L", "time_faaaa", "lower_bounds"];
            let is_rate = rates.contains(&entry.name.as_str()) || entry.name.ends_with("_bias");
            assert_eq!(entry.decay, entry.shape.len() > 1 && !is_rate, "{text}: {}", entry.name);
        }
    }
}
