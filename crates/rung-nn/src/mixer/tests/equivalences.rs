//! Mixers that become other mixers, and what each promises of its memory.

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
use super::{BATCH, Built, ROTARY, WIDTH, assert_close, build, input, resolve, settings};
use crate::param_builder::ParamBuilder;
use crate::position::Positions;

/// Builds a mixer of known type into a store of its own.
pub(super) fn build_typed<C: MixerConfig>(text: &str) -> (C::Mixer, Parameters<f64>) {
    let mut weights = Parameters::new();
    let config = C::resolve(&resolve(text)).unwrap();
    let mixer =
        config.init(&mut ParamBuilder::new(settings(Positions::None, 4), &mut weights, &mut seeded(11))).unwrap();
    (mixer, weights)
}

/// Copies the weights that both have.
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

/// The values of a read of the same tokens.
pub(super) fn read_values(
    weights: &Parameters<f64>,
    read: impl Fn(&Native<f64>, &Tensor<f64>) -> Tensor<f64>,
) -> Vec<f64> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    ops.values(&read(&ops, &ops.constant(&[BATCH, 11, WIDTH], &input(11, 1.0))))
}

const PLAIN_LINEAR: &str = "linear{heads=2,key=4,value=6,map=identity,normaliser=no}";

#[test]
fn retnet_that_neither_forgets_nor_turns_is_linear_attention() {
    let (linear, linear_weights) = build_typed::<LinearAttentionConfig>(PLAIN_LINEAR);
    let (mut retnet, mut weights) = build_typed::<RetnetConfig>("retnet{heads=2,key=4,value=6}");
    copy_common(&linear_weights, &mut weights);
    (retnet.rotation, retnet.decays) = (None, false);
    let expected = read_values(&linear_weights, |ops, x| linear.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| retnet.read(ops, x, None).0), &expected, 1e-12, "retnet");
}

#[test]
fn gla_with_open_gates_is_linear_attention() {
    let (linear, linear_weights) = build_typed::<LinearAttentionConfig>(PLAIN_LINEAR);
    let (gla, mut weights) = build_typed::<GlaConfig>("gla{heads=2,key=4,value=6}");
    copy_common(&linear_weights, &mut weights);
    set(&mut weights, "gk_proj.1.bias", 1e4);
    let expected = read_values(&linear_weights, |ops, x| linear.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| gla.read(ops, x, None).0), &expected, 1e-12, "gla");
}

#[test]
fn gla_whose_channels_agree_is_retnet_without_turns() {
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
    let expected = read_values(&retnet_weights, |ops, x| retnet.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| gla.read(ops, x, None).0), &expected, 1e-12, "gla");
}

#[test]
fn gated_deltanet_that_never_decays_is_deltanet() {
    let (delta, delta_weights) = build_typed::<DeltanetConfig>("deltanet{heads=2,key=4,value=6}");
    let (gated, mut weights) = build_typed::<GatedDeltanetConfig>("gdn{heads=2,key=4,value=6}");
    copy_common(&delta_weights, &mut weights);
    set(&mut weights, "A_log", -1e4);
    let expected = read_values(&delta_weights, |ops, x| delta.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| gated.read(ops, x, None).0), &expected, 1e-12, "gdn");
}

#[test]
fn one_step_of_a_delta_product_is_a_delta_rule() {
    for negative in ["no", "yes"] {
        let sizes = format!("heads=2,key=4,value=6,negative={negative}");
        let (gated, gated_weights) = build_typed::<GatedDeltanetConfig>(&format!("gdn{{{sizes}}}"));
        let (product, mut weights) = build_typed::<DeltaProductConfig>(&format!("deltaproduct{{{sizes},steps=1}}"));
        copy_common(&gated_weights, &mut weights);
        let expected = read_values(&gated_weights, |ops, x| gated.read(ops, x, None).0);
        assert_close(&read_values(&weights, |ops, x| product.read(ops, x, None).0), &expected, 1e-12, "gated");
        let (delta, delta_weights) = build_typed::<DeltanetConfig>(&format!("deltanet{{{sizes}}}"));
        let (product, mut weights) =
            build_typed::<DeltaProductConfig>(&format!("deltaproduct{{{sizes},steps=1,gate=no}}"));
        copy_common(&delta_weights, &mut weights);
        let expected = read_values(&delta_weights, |ops, x| delta.read(ops, x, None).0);
        assert_close(&read_values(&weights, |ops, x| product.read(ops, x, None).0), &expected, 1e-12, "ungated");
    }
}

/// With all values alike a convex combination is that value, and without queries every key weighs the same.
#[test]
fn fastmax_takes_means() {
    for order in [1, 2] {
        let (fastmax, weights) =
            build_typed::<FastmaxConfig>(&format!("fastmax{{order={order},heads=2,key=4,value=6}}"));
        let mut constant = weights.clone();
        set(&mut constant, "v_proj.weight", 0.25);
        let ops = Native::new();
        ops.bind_frozen(&constant);
        for value in ops.values(&fastmax.read(&ops, &ops.full(&[1, 9, WIDTH], 1.0), None).0) {
            assert!((value - 3.0).abs() < 1e-4, "{value}");
        }
        let mut blind = weights.clone();
        set(&mut blind, "q_proj.weight", 0.0);
        let value = blind.find("v_proj.weight").unwrap();
        let expected = read_values(&blind, |ops, x| {
            let sums = ops.cumulative_sum(&ops.linear(x, &ops.parameter(value), None), 1);
            let counts: Vec<f64> = (1..=11).map(f64::from).collect();
            ops.div(&sums, &ops.constant(&[11, 1], &counts))
        });
        assert_close(&read_values(&blind, |ops, x| fastmax.read(ops, x, None).0), &expected, 1e-5, "means");
    }
}

#[test]
fn kimi_delta_that_never_decays_is_deltanet() {
    let (delta, delta_weights) = build_typed::<DeltanetConfig>("deltanet{heads=2,key=4,value=6}");
    let (kimi, mut weights) = build_typed::<KimiDeltaConfig>("kda{heads=2,key=4,value=6}");
    copy_common(&delta_weights, &mut weights);
    set(&mut weights, "A_log", -1e4);
    let expected = read_values(&delta_weights, |ops, x| delta.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| kimi.read(ops, x, None).0), &expected, 1e-12, "kda");
}

/// Every channel takes the sum of the gate's low rank, and so does the one decay of a Gated DeltaNet's head.
#[test]
fn kimi_delta_whose_channels_agree_is_gated_deltanet() {
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
    let low = weights.get(weights.find("f_proj.0.weight").unwrap()).to_vec();
    let step = gated_weights.find("a_proj.weight").unwrap();
    for (cell, value) in gated_weights.get_mut(step).iter_mut().enumerate() {
        *value = low.chunks_exact(WIDTH).map(|row| row[cell % WIDTH]).sum();
    }
    let expected = read_values(&gated_weights, |ops, x| gated.read(ops, x, None).0);
    assert_close(&read_values(&weights, |ops, x| kimi.read(ops, x, None).0), &expected, 1e-12, "kda");
}

/// Mamba-2 with a steady step is RetNet's core on other names: q = C, k = B, v = dt x, gamma = exp(dt a), and no turns.
#[test]
fn mamba2_with_a_steady_step_is_linear_attention_with_a_scalar_decay() {
    // Two heads of 6 that share B and C of 4 each; the convolution has one tap, of one.
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
    // In the order of the projection: gate, x, B, C, step.
    let (time, widths) = (11, [12, 12, 4, 4]);
    let pieces: Vec<Tensor<f64>> = widths
        .iter()
        .enumerate()
        .map(|(index, &width)| {
            let mut rng = seeded(20 + index as u64);
            let values: Vec<f64> = (0..BATCH * time * width).map(|_| super::draw(&mut rng)).collect();
            ops.constant(&[BATCH, time, width], &values)
        })
        .collect();
    let all = ops.concat(&[&pieces[..], &[ops.zeros(&[BATCH, time, 2])]].concat(), 2);
    let found = ops.values(&mamba.read(&ops, &all, None).0);
    // The definition, as a double sum over readers and sources.
    let [x, entry, exit] = [1, 2, 3].map(|index| ops.values(&ops.silu(&pieces[index])));
    let mut expected = vec![0.0; BATCH * time * 12];
    for (cell, out) in expected.iter_mut().enumerate() {
        let (row, channel) = (cell / 12, cell % 12);
        let (sequence, reader) = (row / time, row % time);
        for source in 0..=reader {
            let other = sequence * time + source;
            let score: f64 = (0..4).map(|state| exit[row * 4 + state] * entry[other * 4 + state]).sum();
            *out += gammas[channel / 6].powf((reader - source) as f64) * score * step * x[other * 12 + channel];
        }
    }
    assert_close(&found, &expected, 1e-12, "mamba2");
}

/// Scaling the mapped query changes nothing that a normaliser does not undo: linear attention cannot tell how sure it is.
#[test]
fn normalised_linear_attention_does_not_see_the_size_of_a_query() {
    let (linear, weights) = build_typed::<LinearAttentionConfig>("linear{heads=2,key=4,value=6,map=relu}");
    let mut larger = weights.clone();
    let query = larger.find("q_proj.weight").unwrap();
    larger.get_mut(query).iter_mut().for_each(|value| *value *= 1e3);
    // Tokens with no key in common with their query divide a zero by the epsilon, before and after.
    let expected = read_values(&weights, |ops, x| linear.read(ops, x, None).0);
    assert_close(&read_values(&larger, |ops, x| linear.read(ops, x, None).0), &expected, 1e-3, "linear");
}

#[test]
fn a_window_as_long_as_the_text_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let expected = read_values(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    for options in ["size=11", "size=100", "size=1,sinks=11", "size=6,sinks=5", "size=100,sinks=7"] {
        let window = build::<f64>(&format!("window{{heads=4,kv=2,head=4,{options}}}"), ROTARY, 1);
        let found = read_values(&window.weights, |ops, x| window.mixer.forward(ops, x, None).0);
        assert_close(&found, &expected, 1e-12, options);
    }
}

/// Few blocks, blocks of one token, or one block for all of the text.
#[test]
fn block_attention_that_reads_every_block_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let expected = read_values(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    for options in ["block=3,top=4", "block=3,top=9", "block=1,top=11", "block=11,top=1", "block=2,top=6,groups=1"] {
        let blocks = build::<f64>(&format!("moba{{heads=4,kv=2,head=4,{options}}}"), ROTARY, 1);
        let found = read_values(&blocks.weights, |ops, x| blocks.mixer.forward(ops, x, None).0);
        assert_close(&found, &expected, 1e-12, options);
    }
}

/// With one block each, every block is a text of its own.
#[test]
fn block_attention_to_the_own_block_alone_is_block_diagonal() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", Positions::None, 1);
    let apart = |ops: &Native<f64>, x: &Tensor<f64>| {
        let parts = [0..4, 4..8, 8..11].map(|range| full.mixer.forward(ops, &ops.slice(x, 1, range), None).0);
        ops.concat(&parts, 1)
    };
    let expected = read_values(&full.weights, apart);
    let blocks = build::<f64>("moba{heads=4,kv=2,head=4,block=4,top=1}", Positions::None, 1);
    let found = read_values(&blocks.weights, |ops, x| blocks.mixer.forward(ops, x, None).0);
    assert_close(&found, &expected, 1e-12, "moba");
}

/// Keys that point along the text, on average or at most, make the latest blocks win: then the blocks are a window, as coarse as they are.
#[test]
fn block_attention_whose_latest_blocks_win_is_a_coarse_window() {
    for summary in ["mean", "minmax"] {
        latest_blocks_win(&format!("moba{{heads=1,kv=1,head=4,block=2,top=2,summary={summary}}}"));
    }
}

fn latest_blocks_win(stack: &str) {
    let Built { mixer, mut weights } = build::<f64>(stack, Positions::None, 1);
    // Channel 0 of a token is its place, channel 1 is one: queries are one and keys the place, in the first channel of the head.
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
    // Token 10 reads tokens 8 to 10, and nothing else.
    for token in 0..10 {
        let mut changed = values.clone();
        changed[token * WIDTH + 2] += 1.0;
        let after = ops.values(&mixer.forward(&ops, &ops.constant(&[1, 11, WIDTH], &changed), None).0);
        assert_eq!(before[10 * WIDTH..] != after[10 * WIDTH..], token >= 8, "{stack}: token {token}");
    }
}

/// Gates that are open for the second branch alone leave full attention, if it reads all blocks.
#[test]
fn native_sparse_attention_to_every_block_is_full_attention_in_its_second_branch() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let mut sparse = build::<f64>("nsa{heads=4,kv=2,head=4,block=2,top=6,length=2,stride=2,window=3}", ROTARY, 1);
    copy_common(&full.weights, &mut sparse.weights);
    // One channel of every token is one, and it alone decides on the gates.
    let gates = sparse.weights.find("g_proj.weight").unwrap();
    for (row, weights) in sparse.weights.get_mut(gates).chunks_exact_mut(WIDTH).enumerate() {
        weights.fill(0.0);
        weights[0] = if row / 4 == 1 { 1e3 } else { -1e3 };
    }
    let marked = |ops: &Native<f64>, x: &Tensor<f64>| {
        ops.concat(&[ops.full(&[BATCH, 11, 1], 1.0), ops.slice(x, 2, 1..WIDTH)], 2)
    };
    let found = read_values(&sparse.weights, |ops, x| sparse.mixer.forward(ops, &marked(ops, x), None).0);
    let expected = read_values(&full.weights, |ops, x| full.mixer.forward(ops, &marked(ops, x), None).0);
    assert_close(&found, &expected, 1e-12, "nsa");
}

/// A window of one token without positions is the value projection: the softmax of one score is one.
#[test]
fn a_window_of_one_token_reads_itself() {
    let Built { mixer, weights } = build::<f64>("window{heads=2,kv=2,head=3,size=1}", Positions::None, 1);
    let project = |ops: &Native<f64>, name: &str, x: &Tensor<f64>| {
        ops.linear(x, &ops.parameter(weights.find(&format!("{name}.weight")).unwrap()), None)
    };
    let expected = read_values(&weights, |ops, x| project(ops, "o_proj", &project(ops, "v_proj", x)));
    assert_close(&read_values(&weights, |ops, x| mixer.forward(ops, x, None).0), &expected, 1e-12, "window");
}

/// A key that is tied is a value projection that equals the key projection.
#[test]
fn tied_keys_are_values_with_the_same_weights() {
    let tied = build::<f64>("window{heads=4,kv=2,head=4,size=5,tied=yes}", ROTARY, 1);
    let mut free = build::<f64>("window{heads=4,kv=2,head=4,size=5}", ROTARY, 1);
    copy_common(&tied.weights, &mut free.weights);
    let key = tied.weights.get(tied.weights.find("k_proj.weight").unwrap()).to_vec();
    let value = free.weights.find("v_proj.weight").unwrap();
    free.weights.get_mut(value).copy_from_slice(&key);
    let expected = read_values(&free.weights, |ops, x| free.mixer.forward(ops, x, None).0);
    assert_close(&read_values(&tied.weights, |ops, x| tied.mixer.forward(ops, x, None).0), &expected, 1e-12, "tied");
}

/// What all scores of a query share does not move its weights: a bias that does not depend on the key changes nothing.
#[test]
fn a_constant_on_all_scores_of_a_query_changes_nothing() {
    let ops = Native::<f64>::new();
    let time = 7;
    let x = ops.constant(&[BATCH, time, 1, WIDTH], &input(time, 1.0));
    let shifts: Vec<f64> = (0..time * time).map(|cell| 40.0 * (cell / time) as f64 - 100.0).collect();
    let bias = ops.constant(&[1, 1, time, time], &shifts);
    let attend = |bias| {
        let mask = AttentionMask::Causal;
        ops.values(&ops.attention(&AttentionInputs { query: &x, key: &x, value: &x, bias, mask, scale: 0.3 }))
    };
    assert_close(&attend(Some(&bias)), &attend(None), 1e-12, "attention");
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
    let expected = read_values(&all.weights, |ops, x| all.mixer.forward(ops, x, None).0);
    assert_close(
        &read_values(&grouped.weights, |ops, x| grouped.mixer.forward(ops, x, None).0),
        &expected,
        1e-12,
        "full",
    );
}

#[test]
fn normalised_linear_attention_takes_means() {
    // With all values alike, a convex combination of them is that value.
    let (linear, weights) = build_typed::<LinearAttentionConfig>("linear{heads=2,key=4,value=6}");
    let mut constant = weights.clone();
    set(&mut constant, "v_proj.weight", 0.25);
    let ops = Native::new();
    ops.bind_frozen(&constant);
    let x = ops.full(&[1, 9, WIDTH], 1.0);
    for value in ops.values(&linear.read(&ops, &x, None).0) {
        assert!((value - 3.0).abs() < 1e-5, "{value}");
    }
}
