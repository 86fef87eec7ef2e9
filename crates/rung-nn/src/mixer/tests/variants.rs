//! What the variants of attention become at their ends, and what they promise.

use rung_engine::{AdamWConfig, Native, Ops, Tensor};

use super::equivalences::{copy_common, read_values};
use super::{BATCH, Built, ROTARY, WIDTH, assert_close, build, input, run};
use crate::mixer::TokenMixer;
use crate::position::Positions;

const SPARSE: &str = "dsa{heads=2,head=4,latent=5,rope=2,value=3,top=4,index-heads=2,index-head=4}";

#[test]
fn token_sparse_attention_to_every_token_is_latent_attention() {
    for positions in [ROTARY, Positions::Alibi] {
        let dense = build::<f64>("mla{heads=2,head=4,latent=5,rope=2,value=3,query-rank=3}", positions, 1);
        let expected = read_values(&dense.weights, |ops, x| dense.mixer.forward(ops, x, None).0);
        let text = SPARSE.replace("top=4", "top=11").replace("value=3", "value=3,query-rank=3");
        let mut sparse = build::<f64>(&text, positions, 1);
        copy_common(&dense.weights, &mut sparse.weights);
        let found = read_values(&sparse.weights, |ops, x| sparse.mixer.forward(ops, x, None).0);
        assert_close(&found, &expected, 1e-12, "dsa");
    }
}

/// A token that no index head likes scores exactly zero, as others may: of those the earlier are read.
#[test]
fn of_equal_index_scores_the_earlier_tokens_are_read() {
    let mut sparse = build::<f64>(SPARSE, ROTARY, 1);
    let importance = sparse.weights.find("indexer.weights_proj.weight").unwrap();
    sparse.weights.get_mut(importance).fill(0.0);
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

/// The indexer's loss of a text, and its gradient.
fn own_loss(mixed: &Built<f64>) -> (f64, Vec<f64>) {
    let ops = Native::new();
    ops.bind(&mixed.weights);
    let loss = mixed.mixer.own_loss(&ops, || ops.constant(&[BATCH, 9, WIDTH], &input(9, 1.0))).unwrap();
    let value = ops.values(&loss)[0];
    ops.backward(&loss);
    (value, ops.gradient())
}

#[test]
fn the_indexer_learns_from_its_own_loss_and_nothing_else_does() {
    let mut sparse = build::<f64>(SPARSE, ROTARY, 1);
    let (first, gradient) = own_loss(&sparse);
    assert!(first > 0.0, "a distance is positive: {first}");
    for (_, entry) in sparse.weights.entries() {
        let felt = gradient[entry.range.clone()].iter().any(|slope| *slope != 0.0);
        assert_eq!(felt, entry.name.starts_with("indexer."), "{}", entry.name);
    }
    for place in (0..gradient.len()).filter(|place| gradient[*place] != 0.0).step_by(7) {
        let mut at = |by: f64| {
            sparse.weights.flat_mut()[place] += by;
            let value = own_loss(&sparse).0;
            sparse.weights.flat_mut()[place] -= by;
            value
        };
        let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
        assert!((slope - gradient[place]).abs() < 1e-6, "number {place}: {} and {slope}", gradient[place]);
    }
    let mut optimizer = AdamWConfig { rate: 0.03, decay: 0.0, ..AdamWConfig::default() }.init();
    for _ in 0..60 {
        let (_, gradient) = own_loss(&sparse);
        optimizer.update(&mut sparse.weights, &gradient, 1.0);
    }
    let last = own_loss(&sparse).0;
    assert!(last < 0.5 * first, "from {first} to {last}");
}

/// A long text is held against its summaries a part at a time; the parts must not show.
#[test]
fn native_sparse_attention_reads_long_texts_as_it_reads_their_parts() {
    let Built { mixer, weights } =
        build::<f64>("nsa{heads=2,kv=1,head=4,block=8,top=4,length=9,stride=4,window=3}", ROTARY, 1);
    let (ops, length, cut) = (Native::new(), 600, 137);
    ops.bind_frozen(&weights);
    let text = ops.constant(&[BATCH, length, WIDTH], &input(length, 1.0));
    let whole = mixer.forward(&ops, &text, None).0;
    let (first, state) = mixer.forward(&ops, &ops.slice(&text, 1, 0..cut), None);
    let (second, _) = mixer.forward(&ops, &ops.slice(&text, 1, cut..length), Some(&state));
    let parts = ops.concat(&[first, second], 1);
    assert_close(&ops.values(&parts), &ops.values(&whole), 1e-12, "nsa in parts");
}

/// Where every head's weights are alike, so is their mean: an indexer that says nothing is right about queries that ask nothing.
#[test]
fn an_indexer_that_agrees_has_no_loss() {
    let mut sparse = build::<f64>(SPARSE, ROTARY, 1);
    for name in ["q_proj.weight", "indexer.wq_b.weight"] {
        let id = sparse.weights.find(name).unwrap();
        sparse.weights.get_mut(id).fill(0.0);
    }
    assert!(own_loss(&sparse).0.abs() < 1e-12);
}

/// With one retrieval there is nothing to choose: heads that share their values.
#[test]
fn compositional_attention_with_one_retrieval_shares_its_values() {
    let one = build::<f64>("compositional{searches=3,retrievals=1,head=4,value=3}", ROTARY, 1);
    let mut full = build::<f64>("full{heads=3,kv=3,key=4,value=3}", ROTARY, 1);
    for name in ["q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"] {
        let source = one.weights.get(one.weights.find(name).unwrap());
        let target = full.weights.find(name).unwrap();
        let target = full.weights.get_mut(target);
        target.chunks_exact_mut(source.len()).for_each(|rows| rows.copy_from_slice(source));
    }
    let expected = read_values(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    assert_close(
        &read_values(&one.weights, |ops, x| one.mixer.forward(ops, x, None).0),
        &expected,
        1e-12,
        "compositional",
    );
}

#[test]
fn retrievals_may_change_places() {
    let Built { mixer, mut weights } =
        build::<f64>("compositional{searches=2,retrievals=3,head=4,value=2}", Positions::Alibi, 1);
    let before = read_values(&weights, |ops, x| mixer.forward(ops, x, None).0);
    let value = weights.find("v_proj.weight").unwrap();
    weights.get_mut(value).rotate_left(2 * WIDTH);
    assert_close(&read_values(&weights, |ops, x| mixer.forward(ops, x, None).0), &before, 1e-12, "rotated");
}

const POLICIES: [&str; 6] = ["last", "sinks", "prefix", "stride", "reservoir", "heavy"];

#[test]
fn a_cache_as_long_as_the_text_is_full_attention() {
    let full = build::<f64>("full{heads=4,kv=2,head=4}", ROTARY, 1);
    let expected = read_values(&full.weights, |ops, x| full.mixer.forward(ops, x, None).0);
    for policy in POLICIES {
        let evicting = build::<f64>(&format!("evicting{{heads=4,kv=2,head=4,size=11,policy={policy}}}"), ROTARY, 1);
        let found = read_values(&evicting.weights, |ops, x| evicting.mixer.forward(ops, x, None).0);
        assert_close(&found, &expected, 1e-12, policy);
    }
}

#[test]
fn a_cache_of_the_last_tokens_is_a_window() {
    for (policy, window) in [("last,size=5", "size=5"), ("sinks,size=5", "size=3,sinks=2")] {
        let evicting = build::<f64>(&format!("evicting{{heads=4,kv=2,head=4,policy={policy}}}"), ROTARY, 1);
        let window = build::<f64>(&format!("window{{heads=4,kv=2,head=4,{window}}}"), ROTARY, 1);
        let expected = read_values(&window.weights, |ops, x| window.mixer.forward(ops, x, None).0);
        assert_close(
            &read_values(&evicting.weights, |ops, x| evicting.mixer.forward(ops, x, None).0),
            &expected,
            1e-12,
            policy,
        );
    }
}

/// What was dropped is gone: beginnings that leave the same cache have the same continuations, to the bit. That is what bounds on
/// a state of fixed size stand on.
#[test]
fn what_a_cache_dropped_cannot_matter() {
    let (size, start) = (4, 10);
    for policy in POLICIES {
        let text = format!("evicting{{heads=2,kv=1,head=4,size={size},policy={policy}}}");
        let Built { mixer, weights } = build::<f64>(&text, ROTARY, 1);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let values = input::<f64>(start, 1.0);
        let continuation = ops.constant(&[BATCH, 3, WIDTH], &input(3, 0.7));
        let outcome = |values: &[f64]| {
            let x: Tensor<f64> = ops.constant(&[BATCH, start, WIDTH], values);
            let (_, state) = run(&ops, &mixer, &x, &[start]);
            let kept: Vec<f64> = state.tensors.iter().flatten().flat_map(|part| ops.values(part)).collect();
            (kept, ops.values(&mixer.forward(&ops, &continuation, Some(&state)).0))
        };
        let before = outcome(&values);
        let mut forgotten = 0;
        for token in 0..start {
            let mut changed = values.clone();
            for row in 0..BATCH {
                changed[(row * start + token) * WIDTH] += 0.5;
            }
            let after = outcome(&changed);
            if before.0 == after.0 {
                assert_eq!(before.1, after.1, "{policy}, token {token}");
                forgotten += 1;
            }
        }
        // A heavy cache remembers of a dropped token how much it drew from the others.
        assert_eq!(forgotten, if policy == "heavy" { 0 } else { start - size }, "{policy}");
    }
}

/// Of a token that is read by all and one that is read by none, the first stays.
#[test]
fn a_heavy_cache_keeps_what_is_read() {
    let text = "evicting{heads=1,kv=1,head=2,size=3,policy=heavy}";
    let Built { mixer, mut weights } = build::<f64>(text, Positions::None, 1);
    // Every query asks for the first channel of the token, which token 1 alone has; values are the second channel.
    let mut set = |name: &str, place: usize, factor: f64| {
        let id = weights.find(name).unwrap();
        weights.get_mut(id).fill(0.0);
        weights.get_mut(id)[place] = factor;
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
    let kept: Vec<f64> = ops.values(state.tensors[1].as_ref().unwrap()).chunks(2).map(|value| value[0]).collect();
    assert!(kept.contains(&1.0) && kept.contains(&7.0), "{kept:?}");
}

#[test]
fn few_mixers_have_a_loss_of_their_own() {
    let plain = build::<f64>("full{heads=2,kv=2,head=4}", ROTARY, 1);
    let ops = Native::<f64>::new();
    let asked = plain.mixer.own_loss(&ops, || unreachable!("the input is not needed"));
    assert!(asked.is_none());
}
