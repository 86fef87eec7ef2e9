//! Settings in which a mixer equals another mixer, and invariances of mixers.

use crate::mixer::head_output::RecurrentHeads as _;
use rung_engine::{AttentionInputs, AttentionMask, Native, Ops, Parameters, Tensor};
use rung_theory::task::seeded;

use super::super::deltanet::DeltanetConfig;
use super::super::deltaproduct::DeltaProductConfig;
use super::super::fastmax::FastmaxConfig;
use super::super::gdn::GatedDeltanetConfig;
use super::super::gla::GlaConfig;
use super::super::kda::KimiDeltaConfig;
use super::super::linear::LinearAttentionConfig;
use super::super::mamba2::Mamba2Config;
use super::super::retnet::RetnetConfig;
use super::super::{MixerConfig, TokenMixer};
use super::{BATCH, MixerWithWeights, ROTARY, WIDTH, assert_close, build, input, resolve, settings};
use crate::param_builder::ParamBuilder;
use crate::position::Positions;

/// Builds a mixer of a known type with its own weights.
pub(super) fn build_typed<C: MixerConfig>(text: &str) -> (C::Mixer, Parameters<f64>) {
    let mut weights = Parameters::new();
    let config = C::resolve(&resolve(text)).unwrap();
    let mixer =
        config.init(&mut ParamBuilder::new(settings(Positions::None, 4), &mut weights, &mut seeded(11))).unwrap();
    (mixer, weights)
}

/// Copies the weights whose names are in both stores.
pub(super) fn copy_common(from: &Parameters<f64>, to: &mut Parameters<f64>) {
    for (id, entry) in from.entries() {
        if let Some(target) = to.find(&entry.name) {
            to.get_mut(target).copy_from_slice(from.get(id));
        }
    }
}

pub(super) fn set(weights: &mut Parameters<f64>, name: &str, value: f64) {
    let id = weights.find(name).unwrap();
    weights.get_mut(id).fill(value);
}

/// The values of a function of the standard test input, with these weights.
pub(super) fn evaluate(
    weights: &Parameters<f64>,
    function: impl Fn(&Native<f64>, &Tensor<f64>) -> Tensor<f64>,
) -> Vec<f64> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    ops.values(&function(&ops, &ops.constant(&[BATCH, 11, WIDTH], &input(11, 1.0))))
}

const UNNORMALISED_LINEAR: &str = "linear{heads=2,key=4,value=6,map=identity,normaliser=no}";

#[test]
fn retnet_without_decay_and_rotation_is_linear_attention() {
    let (linear, linear_weights) = build_typed::<LinearAttentionConfig>(UNNORMALISED_LINEAR);
    let (mut retnet, mut weights) = build_typed::<RetnetConfig>("retnet{heads=2,key=4,value=6}");
    copy_common(&linear_weights, &mut weights);
    (retnet.rotation, retnet.decays) = (None, false);
    let expected = evaluate(&linear_weights, |ops, x| linear.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| retnet.head_outputs(ops, x, None).0), &expected, 1e-12, "retnet");
}

#[test]
fn gla_with_forget_gates_of_one_is_linear_attention() {
    let (linear, linear_weights) = build_typed::<LinearAttentionConfig>(UNNORMALISED_LINEAR);
    let (gla, mut weights) = build_typed::<GlaConfig>("gla{heads=2,key=4,value=6}");
    copy_common(&linear_weights, &mut weights);
    set(&mut weights, "gk_proj.1.bias", 1e4);
    let expected = evaluate(&linear_weights, |ops, x| linear.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| gla.head_outputs(ops, x, None).0), &expected, 1e-12, "gla");
}

#[test]
fn gla_with_equal_gates_in_a_head_is_retnet_without_rotation() {
    let (mut retnet, mut retnet_weights) = build_typed::<RetnetConfig>("retnet{heads=2,key=4,value=6}");
    let (gla, mut weights) = build_typed::<GlaConfig>("gla{heads=2,key=4,value=6}");
    copy_common(&weights, &mut retnet_weights);
    retnet.rotation = None;
    set(&mut weights, "gk_proj.1.weight", 0.0);
    let bias = weights.find("gk_proj.1.bias").unwrap();
    for (channel, value) in weights.get_mut(bias).iter_mut().enumerate() {
        // The logit of gamma^16.
        let gate = (1.0 - 2_f64.powf(-5.0 - (channel / 4) as f64)).powi(16);
        *value = (gate / (1.0 - gate)).ln();
    }
    let expected = evaluate(&retnet_weights, |ops, x| retnet.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| gla.head_outputs(ops, x, None).0), &expected, 1e-12, "gla");
}

#[test]
fn gated_deltanet_without_decay_is_deltanet() {
    let (delta, delta_weights) = build_typed::<DeltanetConfig>("deltanet{heads=2,key=4,value=6}");
    let (gated, mut weights) = build_typed::<GatedDeltanetConfig>("gdn{heads=2,key=4,value=6}");
    copy_common(&delta_weights, &mut weights);
    set(&mut weights, "A_log", -1e4);
    let expected = evaluate(&delta_weights, |ops, x| delta.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| gated.head_outputs(ops, x, None).0), &expected, 1e-12, "gdn");
}

#[test]
fn delta_product_with_one_step_is_the_delta_rule() {
    for negative in ["no", "yes"] {
        let sizes = format!("heads=2,key=4,value=6,negative={negative}");
        let (gated, gated_weights) = build_typed::<GatedDeltanetConfig>(&format!("gdn{{{sizes}}}"));
        let (product, mut weights) = build_typed::<DeltaProductConfig>(&format!("deltaproduct{{{sizes},steps=1}}"));
        copy_common(&gated_weights, &mut weights);
        let expected = evaluate(&gated_weights, |ops, x| gated.head_outputs(ops, x, None).0);
        assert_close(&evaluate(&weights, |ops, x| product.head_outputs(ops, x, None).0), &expected, 1e-12, "gated");
        let (delta, delta_weights) = build_typed::<DeltanetConfig>(&format!("deltanet{{{sizes}}}"));
        let (product, mut weights) =
            build_typed::<DeltaProductConfig>(&format!("deltaproduct{{{sizes},steps=1,gate=no}}"));
        copy_common(&delta_weights, &mut weights);
        let expected = evaluate(&delta_weights, |ops, x| delta.head_outputs(ops, x, None).0);
        assert_close(&evaluate(&weights, |ops, x| product.head_outputs(ops, x, None).0), &expected, 1e-12, "ungated");
    }
}

/// If all values are equal, the output is that value; if queries are zero, it is the mean of values.
#[test]
fn fastmax_output_is_a_convex_combination_of_values() {
    for order in [1, 2] {
        let (fastmax, weights) =
            build_typed::<FastmaxConfig>(&format!("fastmax{{order={order},heads=2,key=4,value=6}}"));
        let mut constant = weights.clone();
        set(&mut constant, "v_proj.weight", 0.25);
        let ops = Native::new();
        ops.bind_frozen(&constant);
        for value in ops.values(&fastmax.head_outputs(&ops, &ops.full(&[1, 9, WIDTH], 1.0), None).0) {
            assert!((value - 3.0).abs() < 1e-4, "{value}");
        }
        let mut zero_queries = weights.clone();
        set(&mut zero_queries, "q_proj.weight", 0.0);
        let value = zero_queries.find("v_proj.weight").unwrap();
        let expected = evaluate(&zero_queries, |ops, x| {
            let sums = ops.cumulative_sum(&ops.linear(x, &ops.parameter(value), None), 1);
            let counts: Vec<f64> = (1..=11).map(f64::from).collect();
            ops.div(&sums, &ops.constant(&[11, 1], &counts))
        });
        assert_close(&evaluate(&zero_queries, |ops, x| fastmax.head_outputs(ops, x, None).0), &expected, 1e-5, "means");
    }
}

#[test]
fn kimi_delta_without_decay_is_deltanet() {
    let (delta, delta_weights) = build_typed::<DeltanetConfig>("deltanet{heads=2,key=4,value=6}");
    let (kimi, mut weights) = build_typed::<KimiDeltaConfig>("kda{heads=2,key=4,value=6}");
    copy_common(&delta_weights, &mut weights);
    set(&mut weights, "A_log", -1e4);
    let expected = evaluate(&delta_weights, |ops, x| delta.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| kimi.head_outputs(ops, x, None).0), &expected, 1e-12, "kda");
}

/// The dt of every channel is the sum of the low-rank vector, and so is that of the Gated DeltaNet's heads.
#[test]
fn kimi_delta_with_equal_decays_in_a_head_is_gated_deltanet() {
    let (gated, mut gated_weights) = build_typed::<GatedDeltanetConfig>("gdn{heads=2,key=4,value=6}");
    let (kimi, mut weights) = build_typed::<KimiDeltaConfig>("kda{heads=2,key=4,value=6}");
    set(&mut gated_weights, "dt_bias", 0.1);
    for name in ["q_proj", "k_proj", "v_proj", "b_proj", "q_conv1d", "k_conv1d", "v_conv1d"] {
        let name = format!("{name}.weight");
        let values = gated_weights.get(gated_weights.find(&name).unwrap()).to_vec();
        let target = weights.find(&name).unwrap();
        weights.get_mut(target).copy_from_slice(&values);
    }
    let rates = gated_weights.get(gated_weights.find("A_log").unwrap()).to_vec();
    let target = weights.find("A_log").unwrap();
    weights.get_mut(target).copy_from_slice(&rates);
    set(&mut weights, "dt_bias", 0.1);
    set(&mut weights, "f_proj.1.weight", 1.0);
    let down = weights.get(weights.find("f_proj.0.weight").unwrap()).to_vec();
    let step = gated_weights.find("a_proj.weight").unwrap();
    for (index, value) in gated_weights.get_mut(step).iter_mut().enumerate() {
        *value = down.chunks_exact(WIDTH).map(|row| row[index % WIDTH]).sum();
    }
    let expected = evaluate(&gated_weights, |ops, x| gated.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&weights, |ops, x| kimi.head_outputs(ops, x, None).0), &expected, 1e-12, "kda");
}

/// Mamba-2 with a constant dt is RetNet without rotation: q = C, k = B, v = dt x, gamma = exp(dt a).
#[test]
fn mamba2_with_a_constant_step_is_linear_attention_with_a_scalar_decay() {
    // Two heads of width 6 share B and C of width 4; the convolution has one tap, which is 1.
    let (mamba, mut weights) = build_typed::<Mamba2Config>("mamba2{heads=2,head=6,state=4,groups=1,conv=1}");
    set(&mut weights, "conv1d.weight", 1.0);
    set(&mut weights, "conv1d.bias", 0.0);
    set(&mut weights, "D", 0.0);
    let step: f64 = 0.3;
    set(&mut weights, "dt_bias", step.exp_m1().ln());
    let rate = weights.find("A_log").unwrap();
    let gammas = [0, 1].map(|head| 1.0 - 2_f64.powi(-5 - head));
    for (value, gamma) in weights.get_mut(rate).iter_mut().zip(gammas) {
        *value = (-gamma.ln() / step).ln();
    }
    let ops = Native::new();
    ops.bind_frozen(&weights);
    // The projected input, in the order of the projection: gate, x, B, C, dt.
    let (time, widths) = (11, [12, 12, 4, 4]);
    let sections: Vec<Tensor<f64>> = widths
        .iter()
        .enumerate()
        .map(|(index, &width)| {
            let mut rng = seeded(20 + index as u64);
            let values: Vec<f64> = (0..BATCH * time * width).map(|_| super::uniform_sample(&mut rng)).collect();
            ops.constant(&[BATCH, time, width], &values)
        })
        .collect();
    let projected = ops.concat(&[&sections[..], &[ops.zeros(&[BATCH, time, 2])]].concat(), 2);
    let actual = ops.values(&mamba.head_outputs(&ops, &projected, None).0);
    // The definition: a sum over sources for every reader.
    let [x, b, c] = [1, 2, 3].map(|index| ops.values(&ops.silu(&sections[index])));
    let mut expected = vec![0.0; BATCH * time * 12];
    for (index, out) in expected.iter_mut().enumerate() {
        let (row, channel) = (index / 12, index % 12);
        let (sequence, reader) = (row / time, row % time);
        for source in 0..=reader {
            let source_row = sequence * time + source;
            let score: f64 = (0..4).map(|state| c[row * 4 + state] * b[source_row * 4 + state]).sum();
            *out += gammas[channel / 6].powf((reader - source) as f64) * score * step * x[source_row * 12 + channel];
        }
    }
    assert_close(&actual, &expected, 1e-12, "mamba2");
}

/// The normaliser undoes a factor on the query's features.
#[test]
fn normalised_linear_attention_does_not_depend_on_the_scale_of_queries() {
    let (linear, weights) = build_typed::<LinearAttentionConfig>("linear{heads=2,key=4,value=6,map=relu}");
    let mut larger = weights.clone();
    let query = larger.find("q_proj.weight").unwrap();
    larger.get_mut(query).iter_mut().for_each(|value| *value *= 1e3);
    // Where no key matches the query, zero is divided by the epsilon, with either scale.
    let expected = evaluate(&weights, |ops, x| linear.head_outputs(ops, x, None).0);
    assert_close(&evaluate(&larger, |ops, x| linear.head_outputs(ops, x, None).0), &expected, 1e-3, "linear");
}

#[test]
fn windowed_attention_with_a_window_for_the_full_sequence_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let expected = evaluate(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    for options in ["size=11", "size=100", "size=1,sinks=11", "size=6,sinks=5", "size=100,sinks=7"] {
        let window = build::<f64>(&format!("window{{heads=4,kv=2,head=4,{options}}}"), ROTARY, 1);
        let actual = evaluate(&window.weights, |ops, x| window.mixer.forward(ops, x, None).0);
        assert_close(&actual, &expected, 1e-12, options);
    }
}

/// With several blocks, blocks of one token, and one block for the full sequence.
#[test]
fn block_attention_to_every_block_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let expected = evaluate(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    for options in ["block=3,top=4", "block=3,top=9", "block=1,top=11", "block=11,top=1", "block=2,top=6,groups=1"] {
        let blocks = build::<f64>(&format!("moba{{heads=4,kv=2,head=4,{options}}}"), ROTARY, 1);
        let actual = evaluate(&blocks.weights, |ops, x| blocks.mixer.forward(ops, x, None).0);
        assert_close(&actual, &expected, 1e-12, options);
    }
}

/// Every block is a separate sequence.
#[test]
fn block_attention_to_the_current_block_only_is_block_diagonal() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", Positions::None, 1);
    let separately = |ops: &Native<f64>, x: &Tensor<f64>| {
        let block_outputs = [0..4, 4..8, 8..11].map(|range| full.mixer.forward(ops, &ops.slice(x, 1, range), None).0);
        ops.concat(&block_outputs, 1)
    };
    let expected = evaluate(&full.weights, separately);
    let blocks = build::<f64>("moba{heads=4,kv=2,head=4,block=4,top=1}", Positions::None, 1);
    let actual = evaluate(&blocks.weights, |ops, x| blocks.mixer.forward(ops, x, None).0);
    assert_close(&actual, &expected, 1e-12, "moba");
}

/// If keys grow with the position, the latest blocks have the highest scores, so that the chosen blocks are a window.
#[test]
fn block_attention_with_growing_keys_is_windowed_attention() {
    for summary in ["mean", "minmax"] {
        assert_latest_blocks_are_chosen(&format!("moba{{heads=1,kv=1,head=4,block=2,top=2,summary={summary}}}"));
    }
}

fn assert_latest_blocks_are_chosen(stack: &str) {
    let MixerWithWeights { mixer, mut weights } = build::<f64>(stack, Positions::None, 1);
    // Channel 0 of a token is its position, channel 1 is 1: in the first channel of the head, queries are 1 and keys the position.
    for (name, channel) in [("q_proj.weight", 1), ("k_proj.weight", 0)] {
        set(&mut weights, name, 0.0);
        let id = weights.find(name).unwrap();
        weights.get_mut(id)[channel] = 1.0;
    }
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let mut values = input::<f64>(11, 1.0)[..11 * WIDTH].to_vec();
    for (token, row) in values.chunks_exact_mut(WIDTH).enumerate() {
        (row[0], row[1]) = (token as f64, 1.0);
    }
    let before = ops.values(&mixer.forward(&ops, &ops.constant(&[1, 11, WIDTH], &values), None).0);
    // Token 10 attends to tokens 8 to 10 only.
    for token in 0..10 {
        let mut changed = values.clone();
        changed[token * WIDTH + 2] += 1.0;
        let after = ops.values(&mixer.forward(&ops, &ops.constant(&[1, 11, WIDTH], &changed), None).0);
        assert_eq!(before[10 * WIDTH..] != after[10 * WIDTH..], token >= 8, "{stack}: token {token}");
    }
}

/// The gates of the other two branches are zero.
#[test]
fn block_branch_of_native_sparse_attention_to_every_block_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let mut sparse = build::<f64>("nsa{heads=4,kv=2,head=4,block=2,top=6,length=2,stride=2,window=3}", ROTARY, 1);
    copy_common(&full.weights, &mut sparse.weights);
    // The gates depend only on channel 0, which is 1 in every token.
    let gates = sparse.weights.find("g_proj.weight").unwrap();
    for (row, weights) in sparse.weights.get_mut(gates).chunks_exact_mut(WIDTH).enumerate() {
        weights.fill(0.0);
        weights[0] = if row / 4 == 1 { 1e3 } else { -1e3 };
    }
    let with_constant = |ops: &Native<f64>, x: &Tensor<f64>| {
        ops.concat(&[ops.full(&[BATCH, 11, 1], 1.0), ops.slice(x, 2, 1..WIDTH)], 2)
    };
    let actual = evaluate(&sparse.weights, |ops, x| sparse.mixer.forward(ops, &with_constant(ops, x), None).0);
    let expected = evaluate(&full.weights, |ops, x| full.mixer.forward(ops, &with_constant(ops, x), None).0);
    assert_close(&actual, &expected, 1e-12, "nsa");
}

/// A window of one token without positions is the value projection: the softmax of one score is one.
#[test]
fn windowed_attention_to_one_token_is_the_value_projection() {
    let MixerWithWeights { mixer, weights } = build::<f64>("window{heads=2,kv=2,head=3,size=1}", Positions::None, 1);
    let project = |ops: &Native<f64>, name: &str, x: &Tensor<f64>| {
        ops.linear(x, &ops.parameter(weights.find(&format!("{name}.weight")).unwrap()), None)
    };
    let expected = evaluate(&weights, |ops, x| project(ops, "o_proj", &project(ops, "v_proj", x)));
    assert_close(&evaluate(&weights, |ops, x| mixer.forward(ops, x, None).0), &expected, 1e-12, "window");
}

/// A tied key is the same as a value projection that equals the key projection.
#[test]
fn attention_with_tied_keys_equals_untied_with_equal_projections() {
    let tied = build::<f64>("window{heads=4,kv=2,head=4,size=5,tied=yes}", ROTARY, 1);
    let mut untied = build::<f64>("window{heads=4,kv=2,head=4,size=5}", ROTARY, 1);
    copy_common(&tied.weights, &mut untied.weights);
    let key = tied.weights.get(tied.weights.find("k_proj.weight").unwrap()).to_vec();
    let value = untied.weights.find("v_proj.weight").unwrap();
    untied.weights.get_mut(value).copy_from_slice(&key);
    let expected = evaluate(&untied.weights, |ops, x| untied.mixer.forward(ops, x, None).0);
    assert_close(&evaluate(&tied.weights, |ops, x| tied.mixer.forward(ops, x, None).0), &expected, 1e-12, "tied");
}

/// A bias that does not depend on the key does not change attention weights.
#[test]
fn attention_does_not_depend_on_a_bias_that_is_constant_over_keys() {
    let ops = Native::<f64>::new();
    let time = 7;
    let x = ops.constant(&[BATCH, time, 1, WIDTH], &input(time, 1.0));
    let row_constants: Vec<f64> = (0..time * time).map(|index| 40.0 * (index / time) as f64 - 100.0).collect();
    let bias = ops.constant(&[1, 1, time, time], &row_constants);
    let attend = |bias| {
        let mask = AttentionMask::Causal;
        ops.values(&ops.attention(&AttentionInputs { query: &x, key: &x, value: &x, bias, mask, scale: 0.3 }))
    };
    assert_close(&attend(Some(&bias)), &attend(None), 1e-12, "attention");
}

#[test]
fn attention_without_positions_does_not_depend_on_the_order_of_past_tokens() {
    for text in ["full{heads=2,kv=1,head=4}", "linear{heads=2,head=4}", "linear{heads=2,head=4,normaliser=no}"] {
        let MixerWithWeights { mixer, weights } = build::<f64>(text, Positions::None, 3);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.constant(&[BATCH, 9, WIDTH], &input(9, 1.0));
        let span = |range| ops.slice(&x, 1, range);
        let reordered = ops.concat(&[span(4..8), span(0..4), span(8..9)], 1);
        let last = |x: &Tensor<f64>| ops.values(&ops.slice(&mixer.forward(&ops, x, None).0, 1, 8..9));
        assert_close(&last(&reordered), &last(&x), 1e-12, text);
    }
}

#[test]
fn attention_with_grouped_heads_equals_repeated_key_value_heads() {
    let grouped = build::<f64>("full{heads=4,kv=2,head=3}", Positions::Alibi, 1);
    let mut repeated = build::<f64>("full{heads=4,kv=4,head=3}", Positions::Alibi, 1);
    for name in ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"] {
        let source = grouped.weights.get(grouped.weights.find(name).unwrap());
        let target = repeated.weights.find(name).unwrap();
        let target = repeated.weights.get_mut(target);
        if source.len() == target.len() {
            target.copy_from_slice(source);
            continue;
        }
        for (head, rows) in target.chunks_exact_mut(3 * WIDTH).enumerate() {
            rows.copy_from_slice(&source[head / 2 * 3 * WIDTH..][..3 * WIDTH]);
        }
    }
    let expected = evaluate(&repeated.weights, |ops, x| repeated.mixer.forward(ops, x, None).0);
    assert_close(&evaluate(&grouped.weights, |ops, x| grouped.mixer.forward(ops, x, None).0), &expected, 1e-12, "full");
}

#[test]
fn normalised_linear_attention_of_equal_values_is_that_value() {
    let (linear, weights) = build_typed::<LinearAttentionConfig>("linear{heads=2,key=4,value=6}");
    let mut constant = weights.clone();
    set(&mut constant, "v_proj.weight", 0.25);
    let ops = Native::new();
    ops.bind_frozen(&constant);
    let x = ops.full(&[1, 9, WIDTH], 1.0);
    for value in ops.values(&linear.head_outputs(&ops, &x, None).0) {
        assert!((value - 3.0).abs() < 1e-5, "{value}");
    }
}
