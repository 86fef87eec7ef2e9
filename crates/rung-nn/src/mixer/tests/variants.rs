//! Limits in which variants of attention equal other mixers, and properties of their caches and losses.

use rung_engine::{AdamWConfig, Native, Ops, Tensor};

use super::equivalences::{copy_common, evaluate};
use super::{BATCH, MixerWithWeights, ROTARY, WIDTH, assert_close, build, input, run};
use crate::mixer::TokenMixer;
use crate::position::Positions;

const SPARSE: &str = "dsa{heads=2,head=4,latent=5,rope=2,value=3,top=4,index-heads=2,index-head=4}";

#[test]
fn token_sparse_attention_to_every_token_is_latent_attention() {
    for positions in [ROTARY, Positions::Alibi] {
        let dense = build::<f64>("mla{heads=2,head=4,latent=5,rope=2,value=3,query-rank=3}", positions, 1);
        let expected = evaluate(&dense.weights, |ops, x| dense.mixer.forward(ops, x, None).0);
        let text = SPARSE.replace("top=4", "top=11").replace("value=3", "value=3,query-rank=3");
        let mut sparse = build::<f64>(&text, positions, 1);
        copy_common(&dense.weights, &mut sparse.weights);
        let actual = evaluate(&sparse.weights, |ops, x| sparse.mixer.forward(ops, x, None).0);
        assert_close(&actual, &expected, 1e-12, "dsa");
    }
}

/// With head weights of zero all index scores are equal, so that the earliest tokens are chosen.
#[test]
fn token_sparse_attention_chooses_the_earlier_of_tokens_with_equal_scores() {
    let mut sparse = build::<f64>(SPARSE, ROTARY, 1);
    let head_weights = sparse.weights.find("indexer.weights_proj.weight").unwrap();
    sparse.weights.get_mut(head_weights).fill(0.0);
    let ops = Native::new();
    ops.bind_frozen(&sparse.weights);
    let (time, last) = (9, 8 * WIDTH..9 * WIDTH);
    let output = |values: &[f64]| {
        let x = ops.constant(&[BATCH, time, WIDTH], values);
        ops.values(&sparse.mixer.forward(&ops, &x, None).0)[last.clone()].to_vec()
    };
    let values = input::<f64>(time, 1.0);
    let before = output(&values);
    for token in 0..time - 1 {
        let mut changed = values.clone();
        changed[token * WIDTH] += 1.0;
        assert_eq!(output(&changed) != before, token < 4, "token {token} of the top 4");
    }
}

/// The indexer's loss on one batch, and its gradient.
fn auxiliary_loss(built: &MixerWithWeights<f64>) -> (f64, Vec<f64>) {
    let ops = Native::new();
    ops.bind(&built.weights);
    let loss = built.mixer.auxiliary_loss(&ops, || ops.constant(&[BATCH, 9, WIDTH], &input(9, 1.0))).unwrap();
    let value = ops.values(&loss)[0];
    ops.backward(&loss);
    (value, ops.gradient())
}

#[test]
fn auxiliary_loss_trains_the_indexer_and_no_other_weights() {
    let mut sparse = build::<f64>(SPARSE, ROTARY, 1);
    let (first, gradient) = auxiliary_loss(&sparse);
    assert!(first > 0.0, "a divergence is positive: {first}");
    for (_, entry) in sparse.weights.entries() {
        let has_gradient = gradient[entry.range.clone()].iter().any(|slope| *slope != 0.0);
        assert_eq!(has_gradient, entry.name.starts_with("indexer."), "{}", entry.name);
    }
    for index in (0..gradient.len()).filter(|index| gradient[*index] != 0.0).step_by(7) {
        let mut loss_at = |step: f64| {
            sparse.weights.flat_mut()[index] += step;
            let value = auxiliary_loss(&sparse).0;
            sparse.weights.flat_mut()[index] -= step;
            value
        };
        let slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
        assert!((slope - gradient[index]).abs() < 1e-6, "weight {index}: {} and {slope}", gradient[index]);
    }
    let mut optimizer = AdamWConfig { rate: 0.03, decay: 0.0, ..AdamWConfig::default() }.init();
    for _ in 0..60 {
        let (_, gradient) = auxiliary_loss(&sparse);
        optimizer.update(&mut sparse.weights, &gradient, 1.0);
    }
    let last = auxiliary_loss(&sparse).0;
    assert!(last < 0.5 * first, "from {first} to {last}");
}

/// The sequence is longer than one chunk of queries.
#[test]
fn native_sparse_attention_of_a_long_sequence_equals_that_of_two_spans() {
    let MixerWithWeights { mixer, weights } =
        build::<f64>("nsa{heads=2,kv=1,head=4,block=8,top=4,length=9,stride=4,window=3}", ROTARY, 1);
    let (ops, length, cut) = (Native::new(), 600, 137);
    ops.bind_frozen(&weights);
    let x = ops.constant(&[BATCH, length, WIDTH], &input(length, 1.0));
    let expected = mixer.forward(&ops, &x, None).0;
    let (first, state) = mixer.forward(&ops, &ops.slice(&x, 1, 0..cut), None);
    let (second, _) = mixer.forward(&ops, &ops.slice(&x, 1, cut..length), Some(&state));
    let actual = ops.concat(&[first, second], 1);
    assert_close(&ops.values(&actual), &ops.values(&expected), 1e-12, "nsa in two spans");
}

/// Queries of zero give uniform attention weights, and index queries of zero give equal scores.
#[test]
fn auxiliary_loss_is_zero_when_indexer_and_heads_are_uniform() {
    let mut sparse = build::<f64>(SPARSE, ROTARY, 1);
    for name in ["q_proj.weight", "indexer.wq_b.weight"] {
        let id = sparse.weights.find(name).unwrap();
        sparse.weights.get_mut(id).fill(0.0);
    }
    assert!(auxiliary_loss(&sparse).0.abs() < 1e-12);
}

/// With one retrieval, compositional attention is full attention whose heads share their values.
#[test]
fn compositional_attention_with_one_retrieval_is_full_attention_with_shared_values() {
    let compositional = build::<f64>("compositional{searches=3,retrievals=1,head=4,value=3}", ROTARY, 1);
    let mut full = build::<f64>("full{heads=3,kv=3,key=4,value=3}", ROTARY, 1);
    for name in ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"] {
        let source = compositional.weights.get(compositional.weights.find(name).unwrap());
        let target = full.weights.find(name).unwrap();
        let target = full.weights.get_mut(target);
        target.chunks_exact_mut(source.len()).for_each(|rows| rows.copy_from_slice(source));
    }
    let expected = evaluate(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    assert_close(
        &evaluate(&compositional.weights, |ops, x| compositional.mixer.forward(ops, x, None).0),
        &expected,
        1e-12,
        "compositional",
    );
}

#[test]
fn compositional_attention_does_not_depend_on_the_order_of_retrievals() {
    let MixerWithWeights { mixer, mut weights } =
        build::<f64>("compositional{searches=2,retrievals=3,head=4,value=2}", Positions::Alibi, 1);
    let before = evaluate(&weights, |ops, x| mixer.forward(ops, x, None).0);
    let value = weights.find("v_proj.weight").unwrap();
    weights.get_mut(value).rotate_left(2 * WIDTH);
    assert_close(&evaluate(&weights, |ops, x| mixer.forward(ops, x, None).0), &before, 1e-12, "rotated");
}

const POLICIES: [&str; 6] = ["last", "sinks", "prefix", "stride", "reservoir", "heavy"];

#[test]
fn evicting_attention_with_a_cache_for_the_full_sequence_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let expected = evaluate(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    for policy in POLICIES {
        let evicting = build::<f64>(&format!("evicting{{heads=4,kv=2,head=4,size=11,policy={policy}}}"), ROTARY, 1);
        let actual = evaluate(&evicting.weights, |ops, x| evicting.mixer.forward(ops, x, None).0);
        assert_close(&actual, &expected, 1e-12, policy);
    }
}

#[test]
fn evicting_attention_to_recent_tokens_is_windowed_attention() {
    for (policy, window) in [("last,size=5", "size=5"), ("sinks,size=5", "size=3,sinks=2")] {
        let evicting = build::<f64>(&format!("evicting{{heads=4,kv=2,head=4,policy={policy}}}"), ROTARY, 1);
        let window = build::<f64>(&format!("window{{heads=4,kv=2,head=4,{window}}}"), ROTARY, 1);
        let expected = evaluate(&window.weights, |ops, x| window.mixer.forward(ops, x, None).0);
        assert_close(
            &evaluate(&evicting.weights, |ops, x| evicting.mixer.forward(ops, x, None).0),
            &expected,
            1e-12,
            policy,
        );
    }
}

/// Prefixes that leave the same cache have the same continuations, bit for bit. Bounds on a state of fixed size assume this.
#[test]
fn evicted_tokens_do_not_affect_later_outputs() {
    let (size, prefix_len) = (4, 10);
    for policy in POLICIES {
        let text = format!("evicting{{heads=2,kv=1,head=4,size={size},policy={policy}}}");
        let MixerWithWeights { mixer, weights } = build::<f64>(&text, ROTARY, 1);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let values = input::<f64>(prefix_len, 1.0);
        let continuation = ops.constant(&[BATCH, 3, WIDTH], &input(3, 0.7));
        let run_from = |values: &[f64]| {
            let x: Tensor<f64> = ops.constant(&[BATCH, prefix_len, WIDTH], values);
            let (_, state) = run(&ops, &mixer, &x, &[prefix_len]);
            let cache: Vec<f64> = state.tensors.iter().flatten().flat_map(|tensor| ops.values(tensor)).collect();
            (cache, ops.values(&mixer.forward(&ops, &continuation, Some(&state)).0))
        };
        let before = run_from(&values);
        let mut without_effect = 0;
        for token in 0..prefix_len {
            let mut changed = values.clone();
            for row in 0..BATCH {
                changed[(row * prefix_len + token) * WIDTH] += 0.5;
            }
            let after = run_from(&changed);
            if before.0 == after.0 {
                assert_eq!(before.1, after.1, "{policy}, token {token}");
                without_effect += 1;
            }
        }
        // The attention sums of the heavy-hitter policy depend on evicted tokens too.
        assert_eq!(without_effect, if policy == "heavy" { 0 } else { prefix_len - size }, "{policy}");
    }
}

/// Token 1 receives all attention and stays in the cache; other tokens receive almost none and are evicted.
#[test]
fn heavy_hitter_policy_keeps_the_token_with_the_most_attention() {
    let text = "evicting{heads=1,kv=1,head=2,size=3,policy=heavy}";
    let MixerWithWeights { mixer, mut weights } = build::<f64>(text, Positions::None, 1);
    // Keys are the first channel, which only token 1 has; queries are constant; values are the second channel.
    let mut set = |name: &str, index: usize, factor: f64| {
        let id = weights.find(name).unwrap();
        weights.get_mut(id).fill(0.0);
        weights.get_mut(id)[index] = factor;
    };
    set("q_proj.weight", 2, 9.0);
    set("k_proj.weight", 0, 9.0);
    set("v_proj.weight", 1, 1.0);
    let mut values = vec![0.0; 8 * WIDTH];
    for (token, row) in values.chunks_exact_mut(WIDTH).enumerate() {
        (row[0], row[1], row[2]) = (f64::from(u8::from(token == 1)), token as f64, 1.0);
    }
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let (_, state) = mixer.forward(&ops, &ops.constant(&[1, 8, WIDTH], &values), None);
    let cached: Vec<f64> = ops.values(state.tensors[1].as_ref().unwrap()).chunks(2).map(|value| value[0]).collect();
    assert!(cached.contains(&1.0) && cached.contains(&7.0), "{cached:?}");
}

#[test]
fn full_attention_has_no_auxiliary_loss() {
    let full = build::<f64>("full{heads=2,kv=2,head=4}", ROTARY, 1);
    let ops = Native::<f64>::new();
    let loss = full.mixer.auxiliary_loss(&ops, || unreachable!("the input is not needed"));
    assert!(loss.is_none());
}
