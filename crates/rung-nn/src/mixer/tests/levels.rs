//! Properties of mixers whose state depends on the layer, on the previous token, or on the sequence length.

use crate::mixer::head_output::RecurrentHeads as _;
use rung_engine::{Native, Ops, Parameters};
use rung_theory::task::seeded;

use super::super::gdn::GatedDeltanetConfig;
use super::super::hgrn2::Hgrn2Config;
use super::super::inline::InlineConfig;
use super::super::lightning::LightningConfig;
use super::super::linear::LinearAttentionConfig;
use super::super::loglinear_gdn::LogLinearDeltanetConfig;
use super::super::rglru::RgLruConfig;
use super::super::rwkv6::Rwkv6Config;
use super::super::{MixerConfig, TokenMixer};
use super::equivalences::{build_typed, copy_common, evaluate, set};
use super::{BATCH, WIDTH, assert_close, build, input, resolve, settings};
use crate::param_builder::{LayerDepth, ParamBuilder};
use crate::position::Positions;

const TIME: usize = 11;

/// If every sigmoid is zero, the forget gate f equals its lower bound: zero in the first layer, initially `layer / layers` in later
/// ones. The mixer is then the elementwise recurrence `h <- f h + (1 - f) i`.
#[test]
fn hgrn2_lower_bound_is_linear_in_the_layer() {
    for layer in 0..4 {
        let mut weights = Parameters::<f64>::new();
        let mut rng = seeded(11);
        let mut params = ParamBuilder::new(settings(Positions::None, 4), &mut weights, &mut rng);
        params.depth = LayerDepth { layer, layers: 4 };
        let mixer = Hgrn2Config::resolve(&resolve("hgrn2{expand=1}")).unwrap().init(&mut params).unwrap();
        set(&mut weights, "f_proj.weight", -1e3);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let values: Vec<f64> = input::<f64>(TIME, 1.0).into_iter().map(f64::abs).collect();
        let x = ops.constant(&[BATCH, TIME, WIDTH], &values);
        let project = |name: &str| ops.linear(&x, &ops.parameter(weights.find(name).unwrap()), None);
        let query = ops.values(&ops.silu(&project("q_proj.weight")));
        let value = ops.values(&project("i_proj.weight"));
        let bound = layer as f64 / 4.0;
        let mut expected = vec![0.0; value.len()];
        for row in 0..BATCH {
            let mut state = [0.0; WIDTH];
            for token in 0..TIME {
                for (channel, state) in state.iter_mut().enumerate() {
                    let index = (row * TIME + token) * WIDTH + channel;
                    *state = bound * *state + (1.0 - bound) * value[index];
                    expected[index] = query[index] * *state;
                }
            }
        }
        let actual = ops.values(&mixer.head_outputs(&ops, &x, None).0);
        assert_close(&actual, &expected, 1e-12, &format!("layer {layer}"));
    }
}

/// With a bonus of 1, a token's own contribution counts as in linear attention; with a bonus of 0, it is missing.
#[test]
fn rwkv6_without_shift_and_decay_is_linear_attention() {
    let (rwkv, mut weights) = build_typed::<Rwkv6Config>("rwkv6{heads=2,head=4}");
    let (linear, mut linear_weights) =
        build_typed::<LinearAttentionConfig>("linear{heads=2,key=4,value=4,map=identity,normaliser=no}");
    for name in ["time_maa_x", "time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g", "time_maa_w2"] {
        set(&mut weights, name, 0.0);
    }
    set(&mut weights, "time_decay", -1e4);
    for (from, to) in [("r_proj", "q_proj"), ("k_proj", "k_proj"), ("v_proj", "v_proj")] {
        let values = weights.get(weights.find(&format!("{from}.weight")).unwrap()).to_vec();
        let target = linear_weights.find(&format!("{to}.weight")).unwrap();
        linear_weights.get_mut(target).copy_from_slice(&values);
    }
    // Linear attention divides queries by the root of their width.
    let expected = evaluate(&linear_weights, |ops, x| ops.scale(&linear.head_outputs(ops, x, None).0, 2.0));
    set(&mut weights, "time_faaaa", 1.0);
    let actual = evaluate(&weights, |ops, x| rwkv.head_outputs(ops, x, None).0[0].clone());
    assert_close(&actual, &expected, 1e-12, "rwkv6");
    set(&mut weights, "time_faaaa", 0.0);
    let without_bonus = evaluate(&weights, |ops, x| rwkv.head_outputs(ops, x, None).0[0].clone());
    let inner = without_bonus.len() / (BATCH * TIME);
    assert!(without_bonus[..inner].iter().all(|value| *value == 0.0), "the first token has no past");
    assert!(without_bonus[inner..2 * inner].iter().any(|value| *value != 0.0));
}

#[test]
fn loglinear_gdn_with_equal_level_weights_is_gated_deltanet() {
    let sizes = "heads=2,value-heads=4,key=3,value=5";
    let (gated, gated_weights) = build_typed::<GatedDeltanetConfig>(&format!("gdn{{{sizes}}}"));
    let (levels, mut weights) = build_typed::<LogLinearDeltanetConfig>(&format!("loglinear-gdn{{{sizes}}}"));
    copy_common(&gated_weights, &mut weights);
    // All level weights are the softplus of zero, and queries are not divided by the root of the key width.
    set(&mut weights, "L", 0.0);
    let expected =
        evaluate(&gated_weights, |ops, x| ops.scale(&gated.head_outputs(ops, x, None).0, 2_f64.ln() * 3_f64.sqrt()));
    assert_close(&evaluate(&weights, |ops, x| levels.head_outputs(ops, x, None).0), &expected, 1e-12, "gdn");
}

/// The sequence has more levels than the smaller mixer has weights.
#[test]
fn loglinear_levels_beyond_the_last_use_its_weight() {
    let sizes = "heads=1,key=3,value=5";
    let (few, few_weights) = build_typed::<LogLinearDeltanetConfig>(&format!("loglinear-gdn{{{sizes},levels=3}}"));
    // The same random weights, and two more rows.
    let (many, mut weights) = build_typed::<LogLinearDeltanetConfig>(&format!("loglinear-gdn{{{sizes},levels=5}}"));
    let rows = weights.find("l_proj.weight").unwrap();
    for level in [3, 4] {
        weights.get_mut(rows).copy_within(2 * WIDTH..3 * WIDTH, level * WIDTH);
    }
    let expected = evaluate(&few_weights, |ops, x| few.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| many.head_outputs(ops, x, None).0), &expected, 1e-12, "levels");
}

/// The size of the state after every token is the plan's, in one span or token by token.
#[test]
fn loglinear_state_grows_with_the_logarithm_of_the_sequence_length() {
    for text in ["loglinear-gdn{heads=1,key=2,value=3}", "loglinear-mamba2{heads=1,head=3,state=2}"] {
        let built = build::<f64>(text, Positions::None, 4);
        let facts = *resolve(text).facts();
        let ops = Native::new();
        ops.bind_frozen(&built.weights);
        let x = ops.constant(&[BATCH, 40, WIDTH], &input(40, 1.0));
        let mut step_state = None;
        for time in 1..=40 {
            let (_, span_state) = built.mixer.forward(&ops, &ops.slice(&x, 1, 0..time), None);
            let (_, next) = built.mixer.forward(&ops, &ops.slice(&x, 1, time - 1..time), step_state.as_ref());
            for state in [&span_state, &next] {
                assert_eq!(state.element_count(&ops) as u128, facts.memory_size(time as u128), "{text}, {time} tokens");
            }
            for (a, b) in span_state.tensors.iter().flatten().zip(next.tensors.iter().flatten()) {
                assert_close(&ops.values(a), &ops.values(b), 1e-12, text);
            }
            step_state = Some(next);
        }
    }
}

/// With gates of one half, RG-LRU is an exponential moving average of the tokens.
#[test]
fn rglru_with_constant_gates_is_an_exponential_moving_average() {
    let (rglru, mut weights) = build_typed::<RgLruConfig>("rglru{inner=6,heads=2,conv=1}");
    for name in ["input_gate_weight", "input_gate_bias", "recurrent_gate_weight", "recurrent_gate_bias"] {
        set(&mut weights, &format!("rg_lru.{name}"), 0.0);
    }
    set(&mut weights, "conv_1d.weight", 1.0);
    set(&mut weights, "conv_1d.bias", 0.0);
    let rate = 0.3_f64;
    set(&mut weights, "rg_lru.recurrent_param", rate);
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let values = &input::<f64>(TIME, 1.0)[..TIME * 6];
    let x = ops.constant(&[1, TIME, 6], values);
    let actual = ops.values(&rglru.channel_states(&ops, &x, None).0);
    let decay = (-8.0 * 0.5 * rate.exp().ln_1p()).exp();
    let mut state = [0.0; 6];
    for (token, (row, actual)) in values.chunks_exact(6).zip(actual.chunks_exact(6)).enumerate() {
        let input_scale = if token == 0 { 1.0 } else { (1.0 - decay * decay).sqrt() };
        state = std::array::from_fn(|channel| decay * state[channel] + input_scale * 0.5 * row[channel]);
        assert_close(actual, &state, 1e-12, &format!("token {token}"));
    }
}

/// At a token of zeros, the state is multiplied by `exp(-s)`. The slope s of a head falls with the layer, to almost zero in the last.
#[test]
fn lightning_decay_depends_on_head_and_layer() {
    let (heads, layers) = (4, 5);
    for layer in 0..layers {
        let (mut weights, mut rng) = (Parameters::<f64>::new(), seeded(11));
        let mut params = ParamBuilder::new(settings(Positions::None, 4), &mut weights, &mut rng);
        params.depth = LayerDepth { layer, layers };
        let config = LightningConfig::resolve(&resolve("lightning{heads=4,head=2}")).unwrap();
        let mixer = config.init(&mut params).unwrap();
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let first = ops.constant(&[1, 1, WIDTH], &input::<f64>(1, 1.0)[..WIDTH]);
        let (_, state) = mixer.head_outputs(&ops, &first, None);
        let (_, next) = mixer.head_outputs(&ops, &ops.zeros(&[1, 1, WIDTH]), Some(&state));
        let [before, after] = [&state, &next].map(|state| ops.values(state.tensors[0].as_ref().unwrap()));
        for head in 0..heads {
            let slope = 0.25_f64.powf(head as f64 + 1.0) * (1.0 - layer as f64 / (layers - 1) as f64);
            let expected: Vec<f64> = before[head * 4..][..4].iter().map(|value| (-slope).exp() * value).collect();
            assert_close(&after[head * 4..][..4], &expected, 2e-5, &format!("layer {layer}, head {head}"));
        }
    }
}

/// The attention weights of a query sum to one, so that the output of equal values is that value; unlike in normalised linear
/// attention, the weights depend on the scale of the query.
#[test]
fn inline_weights_sum_to_one_and_depend_on_the_scale_of_queries() {
    let (inline, weights) = build_typed::<InlineConfig>("inline{heads=2,key=4,value=6}");
    let mut without_local_term = weights.clone();
    set(&mut without_local_term, "residual.2.weight", 0.0);
    set(&mut without_local_term, "residual.2.bias", 0.0);
    let mut equal_values = without_local_term.clone();
    set(&mut equal_values, "v_proj.weight", 0.25);
    let ops = Native::new();
    ops.bind_frozen(&equal_values);
    // Different tokens with the same sum of channels, so that all values are equal.
    let mut values = input::<f64>(TIME, 1.0);
    for token in values.chunks_exact_mut(WIDTH) {
        let mean = token.iter().sum::<f64>() / WIDTH as f64;
        for value in token {
            *value += 1.0 - mean;
        }
    }
    let out = ops.values(&inline.head_outputs(&ops, &ops.constant(&[BATCH, TIME, WIDTH], &values), None).0);
    assert_close(&out, &vec![3.0; out.len()], 1e-12, "equal values");
    let before = evaluate(&without_local_term, |ops, x| inline.head_outputs(ops, x, None).0);
    let query = without_local_term.find("q_proj.weight").unwrap();
    without_local_term.get_mut(query).iter_mut().for_each(|value| *value *= 2.0);
    let after = evaluate(&without_local_term, |ops, x| inline.head_outputs(ops, x, None).0);
    assert!(before.iter().zip(&after).any(|(a, b)| (a - b).abs() > 0.1));
}
