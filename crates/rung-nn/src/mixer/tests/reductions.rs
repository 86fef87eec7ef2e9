//! Mixers that become other mixers, and what each promises of its memory.

use rung_engine::{Native, Ops, Parameters, Tensor};
use rung_theory::task::seeded;

use super::super::deltanet::DeltanetConfig;
use super::super::gdn::GatedDeltanetConfig;
use super::super::gla::GlaConfig;
use super::super::linear::LinearAttentionConfig;
use super::super::retnet::RetnetConfig;
use super::super::{MixerConfig, TokenMixer};
use super::{BATCH, Built, ROTARY, WIDTH, assert_close, build, input, resolve, settings};
use crate::position::Positions;
use crate::site::Site;

/// Builds a mixer of known type into a store of its own.
fn concrete<C: MixerConfig>(text: &str) -> (C::Mixer, Parameters<f64>) {
    let mut weights = Parameters::new();
    let config = C::resolve(&resolve(text)).unwrap();
    let mixer = config.init(&mut Site::new(settings(Positions::None, 4), &mut weights, &mut seeded(11))).unwrap();
    (mixer, weights)
}

/// Copies the weights that both have.
fn copy_common(from: &Parameters<f64>, to: &mut Parameters<f64>) {
    for (id, entry) in from.entries() {
        if let Some(target) = to.find(&entry.name) {
            to.get_mut(target).copy_from_slice(from.get(id));
        }
    }
}

fn set(weights: &mut Parameters<f64>, name: &str, value: f64) {
    let id = weights.find(name).unwrap();
    weights.get_mut(id).fill(value);
}

/// The values of a read of the same tokens.
fn read(weights: &Parameters<f64>, read: impl Fn(&Native<f64>, &Tensor<f64>) -> Tensor<f64>) -> Vec<f64> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    ops.values(&read(&ops, &ops.constant(&[BATCH, 11, WIDTH], &input(11, 1.0))))
}

const PLAIN_LINEAR: &str = "linear{heads=2,key=4,value=6,map=identity,normaliser=no}";

#[test]
fn retnet_that_neither_forgets_nor_turns_is_linear_attention() {
    let (linear, linear_weights) = concrete::<LinearAttentionConfig>(PLAIN_LINEAR);
    let (mut retnet, mut weights) = concrete::<RetnetConfig>("retnet{heads=2,key=4,value=6}");
    copy_common(&linear_weights, &mut weights);
    (retnet.rotation, retnet.forgets) = (None, false);
    let expected = read(&linear_weights, |ops, x| linear.read(ops, x, None).0);
    assert_close(&read(&weights, |ops, x| retnet.read(ops, x, None).0), &expected, 1e-12, "retnet");
}

#[test]
fn gla_with_open_gates_is_linear_attention() {
    let (linear, linear_weights) = concrete::<LinearAttentionConfig>(PLAIN_LINEAR);
    let (gla, mut weights) = concrete::<GlaConfig>("gla{heads=2,key=4,value=6}");
    copy_common(&linear_weights, &mut weights);
    set(&mut weights, "gk_proj.1.bias", 1e4);
    let expected = read(&linear_weights, |ops, x| linear.read(ops, x, None).0);
    assert_close(&read(&weights, |ops, x| gla.read(ops, x, None).0), &expected, 1e-12, "gla");
}

#[test]
fn gla_whose_channels_agree_is_retnet_without_turns() {
    let (mut retnet, mut retnet_weights) = concrete::<RetnetConfig>("retnet{heads=2,key=4,value=6}");
    let (gla, mut weights) = concrete::<GlaConfig>("gla{heads=2,key=4,value=6}");
    copy_common(&weights, &mut retnet_weights);
    retnet.rotation = None;
    set(&mut weights, "gk_proj.1.weight", 0.0);
    let bias = weights.find("gk_proj.1.bias").unwrap();
    for (channel, value) in weights.get_mut(bias).iter_mut().enumerate() {
        // The logit of gamma^16.
        let gate = (1.0 - 2_f64.powf(-5.0 - (channel / 4) as f64)).powi(16);
        *value = (gate / (1.0 - gate)).ln();
    }
    let expected = read(&retnet_weights, |ops, x| retnet.read(ops, x, None).0);
    assert_close(&read(&weights, |ops, x| gla.read(ops, x, None).0), &expected, 1e-12, "gla");
}

#[test]
fn gated_deltanet_that_never_decays_is_deltanet() {
    let (delta, delta_weights) = concrete::<DeltanetConfig>("deltanet{heads=2,key=4,value=6}");
    let (gated, mut weights) = concrete::<GatedDeltanetConfig>("gdn{heads=2,key=4,value=6}");
    copy_common(&delta_weights, &mut weights);
    set(&mut weights, "A_log", -1e4);
    let expected = read(&delta_weights, |ops, x| delta.read(ops, x, None).0);
    assert_close(&read(&weights, |ops, x| gated.read(ops, x, None).0), &expected, 1e-12, "gdn");
}

#[test]
fn a_window_as_long_as_the_text_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let window = build::<f64>("window{heads=4,kv=2,head=4,size=11}", ROTARY, 1);
    let expected = read(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    assert_close(&read(&window.weights, |ops, x| window.mixer.forward(ops, x, None).0), &expected, 1e-12, "window");
}

#[test]
fn past_pairs_may_change_places_where_nothing_tells_their_order() {
    for text in ["full{heads=2,kv=1,head=4}", "linear{heads=2,head=4}", "linear{heads=2,head=4,normaliser=no}"] {
        let Built { mixer, weights } = build::<f64>(text, Positions::None, 3);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.constant(&[BATCH, 9, WIDTH], &input(9, 1.0));
        let part = |range| ops.slice(&x, 1, range);
        let moved = ops.concat(&[part(4..8), part(0..4), part(8..9)], 1);
        let last = |x: &Tensor<f64>| ops.values(&ops.slice(&mixer.forward(&ops, x, None).0, 1, 8..9));
        assert_close(&last(&moved), &last(&x), 1e-12, text);
    }
}

#[test]
fn grouped_heads_are_repeated_heads() {
    let grouped = build::<f64>("full{heads=4,kv=2,head=3}", Positions::Alibi, 1);
    let mut all = build::<f64>("full{heads=4,kv=4,head=3}", Positions::Alibi, 1);
    for name in ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"] {
        let source = grouped.weights.get(grouped.weights.find(name).unwrap());
        let target = all.weights.find(name).unwrap();
        let target = all.weights.get_mut(target);
        if source.len() == target.len() {
            target.copy_from_slice(source);
            continue;
        }
        for (head, rows) in target.chunks_exact_mut(3 * WIDTH).enumerate() {
            rows.copy_from_slice(&source[head / 2 * 3 * WIDTH..][..3 * WIDTH]);
        }
    }
    let expected = read(&all.weights, |ops, x| all.mixer.forward(ops, x, None).0);
    assert_close(&read(&grouped.weights, |ops, x| grouped.mixer.forward(ops, x, None).0), &expected, 1e-12, "full");
}

#[test]
fn normalised_linear_attention_takes_means() {
    // With all values alike, a convex combination of them is that value.
    let (linear, weights) = concrete::<LinearAttentionConfig>("linear{heads=2,key=4,value=6}");
    let mut constant = weights.clone();
    set(&mut constant, "v_proj.weight", 0.25);
    let ops = Native::new();
    ops.bind_frozen(&constant);
    let x = ops.full(&[1, 9, WIDTH], 1.0);
    for value in ops.values(&linear.read(&ops, &x, None).0) {
        assert!((value - 3.0).abs() < 1e-5, "{value}");
    }
}
