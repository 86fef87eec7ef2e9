//! What gates, shifts and levels promise: mixers whose memory depends on depth, on the token before, or on the length of the text.

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
use super::equivalences::{build_typed, copy_common, read_values, set};
use super::{BATCH, WIDTH, assert_close, build, input, resolve, settings};
use crate::param_builder::{LayerDepth, ParamBuilder};
use crate::position::Positions;

const TIME: usize = 11;

/// With every gate shut the floor alone is left: none in the first layer, `layer / layers` of a fresh table in later ones. What
/// is read is then the elementwise recurrence `h <- f h + (1 - f) i`.
#[test]
fn floors_rise_evenly_from_none() {
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
        let floor = layer as f64 / 4.0;
        let mut expected = vec![0.0; value.len()];
        for row in 0..BATCH {
            let mut kept = [0.0; WIDTH];
            for token in 0..TIME {
                for (channel, kept) in kept.iter_mut().enumerate() {
                    let cell = (row * TIME + token) * WIDTH + channel;
                    *kept = floor * *kept + (1.0 - floor) * value[cell];
                    expected[cell] = query[cell] * *kept;
                }
            }
        }
        let found = ops.values(&mixer.read(&ops, &x, None).0);
        assert_close(&found, &expected, 1e-12, &format!("layer {layer}"));
    }
}

/// Nothing decays, nothing is shifted, and a token counts itself fully: linear attention. Without the bonus a token does not see
/// what it writes itself.
#[test]
fn rwkv_that_neither_shifts_nor_forgets_is_linear_attention() {
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
    let expected = read_values(&linear_weights, |ops, x| ops.scale(&linear.read(ops, x, None).0, 2.0));
    set(&mut weights, "time_faaaa", 1.0);
    let found = read_values(&weights, |ops, x| rwkv.read(ops, x, None).0[0].clone());
    assert_close(&found, &expected, 1e-12, "rwkv6");
    set(&mut weights, "time_faaaa", 0.0);
    let late = read_values(&weights, |ops, x| rwkv.read(ops, x, None).0[0].clone());
    let inner = late.len() / (BATCH * TIME);
    assert!(late[..inner].iter().all(|value| *value == 0.0), "the first token has nothing to read");
    assert!(late[inner..2 * inner].iter().any(|value| *value != 0.0));
}

/// Levels that all weigh the same are one state.
#[test]
fn equal_levels_are_one_state() {
    let sizes = "heads=2,value-heads=4,key=3,value=5";
    let (gated, gated_weights) = build_typed::<GatedDeltanetConfig>(&format!("gdn{{{sizes}}}"));
    let (levels, mut weights) = build_typed::<LogLinearDeltanetConfig>(&format!("loglinear-gdn{{{sizes}}}"));
    copy_common(&gated_weights, &mut weights);
    // The softplus of zero; and a read that is not divided by the root of the key width.
    set(&mut weights, "L", 0.0);
    let expected =
        read_values(&gated_weights, |ops, x| ops.scale(&gated.read(ops, x, None).0, 2_f64.ln() * 3_f64.sqrt()));
    assert_close(&read_values(&weights, |ops, x| levels.read(ops, x, None).0), &expected, 1e-12, "gdn");
}

/// A text longer than the levels that have a weight of their own goes on with the last one's.
#[test]
fn levels_past_the_last_weigh_as_the_last() {
    let sizes = "heads=1,key=3,value=5";
    let (few, few_weights) = build_typed::<LogLinearDeltanetConfig>(&format!("loglinear-gdn{{{sizes},levels=3}}"));
    // The same draws, and two rows more.
    let (many, mut weights) = build_typed::<LogLinearDeltanetConfig>(&format!("loglinear-gdn{{{sizes},levels=5}}"));
    let rows = weights.find("l_proj.weight").unwrap();
    for level in [3, 4] {
        weights.get_mut(rows).copy_within(2 * WIDTH..3 * WIDTH, level * WIDTH);
    }
    let expected = read_values(&few_weights, |ops, x| few.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| many.read(ops, x, None).0), &expected, 1e-12, "levels");
}

/// The number of states after every token is the plan's, however the text came.
#[test]
fn levels_grow_with_the_logarithm_of_the_text() {
    for text in ["loglinear-gdn{heads=1,key=2,value=3}", "loglinear-mamba2{heads=1,head=3,state=2}"] {
        let built = build::<f64>(text, Positions::None, 4);
        let facts = *resolve(text).facts();
        let ops = Native::new();
        ops.bind_frozen(&built.weights);
        let x = ops.constant(&[BATCH, 40, WIDTH], &input(40, 1.0));
        let mut stepped = None;
        for time in 1..=40 {
            let (_, whole) = built.mixer.forward(&ops, &ops.slice(&x, 1, 0..time), None);
            let (_, next) = built.mixer.forward(&ops, &ops.slice(&x, 1, time - 1..time), stepped.as_ref());
            for state in [&whole, &next] {
                assert_eq!(state.numbers(&ops) as u128, facts.kept(time as u128), "{text}, {time} tokens");
            }
            for (a, b) in whole.tensors.iter().flatten().zip(next.tensors.iter().flatten()) {
                assert_close(&ops.values(a), &ops.values(b), 1e-12, text);
            }
            stepped = Some(next);
        }
    }
}

/// With a gate that is always half open, RG-LRU is an exponential moving average of the tokens after the first.
#[test]
fn constant_gates_are_a_moving_average() {
    let (unit, mut weights) = build_typed::<RgLruConfig>("rglru{inner=6,heads=2,conv=1}");
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
    let found = ops.values(&unit.read(&ops, &x, None).0);
    let kept = (-8.0 * 0.5 * rate.exp().ln_1p()).exp();
    let mut state = [0.0; 6];
    for (token, (row, found)) in values.chunks_exact(6).zip(found.chunks_exact(6)).enumerate() {
        let share = if token == 0 { 1.0 } else { (1.0 - kept * kept).sqrt() };
        state = std::array::from_fn(|channel| kept * state[channel] + share * 0.5 * row[channel]);
        assert_close(found, &state, 1e-12, &format!("token {token}"));
    }
}

/// A layer of lightning attention keeps `exp(-s)` of its state at a token that writes nothing: in the first layer by its head's slope,
/// in the last all of it.
#[test]
fn lightning_forgets_by_head_and_layer() {
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
        let (_, state) = mixer.read(&ops, &first, None);
        let (_, next) = mixer.read(&ops, &ops.zeros(&[1, 1, WIDTH]), Some(&state));
        let [before, after] = [&state, &next].map(|state| ops.values(state.tensors[0].as_ref().unwrap()));
        for head in 0..heads {
            let slope = 0.25_f64.powf(head as f64 + 1.0) * (1.0 - layer as f64 / (layers - 1) as f64);
            let expected: Vec<f64> = before[head * 4..][..4].iter().map(|value| (-slope).exp() * value).collect();
            assert_close(&after[head * 4..][..4], &expected, 2e-5, &format!("layer {layer}, head {head}"));
        }
    }
}

/// Rows sum to one, so that values that are all alike come out as they are; and unlike those of normalised linear attention, they
/// notice the size of a query.
#[test]
fn inline_rows_sum_to_one_and_see_the_size_of_a_query() {
    let (inline, weights) = build_typed::<InlineConfig>("inline{heads=2,key=4,value=6}");
    let mut far = weights.clone();
    set(&mut far, "residual.2.weight", 0.0);
    set(&mut far, "residual.2.bias", 0.0);
    let mut alike = far.clone();
    set(&mut alike, "v_proj.weight", 0.25);
    let ops = Native::new();
    ops.bind_frozen(&alike);
    // Tokens that differ, with the same sum.
    let mut values = input::<f64>(TIME, 1.0);
    for token in values.chunks_exact_mut(WIDTH) {
        let mean = token.iter().sum::<f64>() / WIDTH as f64;
        for value in token {
            *value += 1.0 - mean;
        }
    }
    let out = ops.values(&inline.read(&ops, &ops.constant(&[BATCH, TIME, WIDTH], &values), None).0);
    assert_close(&out, &vec![3.0; out.len()], 1e-12, "alike");
    let before = read_values(&far, |ops, x| inline.read(ops, x, None).0);
    let query = far.find("q_proj.weight").unwrap();
    far.get_mut(query).iter_mut().for_each(|value| *value *= 2.0);
    let after = read_values(&far, |ops, x| inline.read(ops, x, None).0);
    assert!(before.iter().zip(&after).any(|(a, b)| (a - b).abs() > 0.1));
}
