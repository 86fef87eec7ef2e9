//! Models as wholes: shapes, names, hand-over, refusals, checkpoints, training.

use rung_engine::{AdamWConfig, DataParallel, Native, Parameters, Scalar, Tensor};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{Field, NO_TARGET, below, seeded};

use super::*;
use crate::checkpoint::{CheckpointError, load, save};
use crate::no_fused_kernels::NoFusedKernels;
use crate::position::Positions;
use crate::precision::Precision;

fn plan(text: &str) -> Plan {
    Plan::parse(text, &Defaults { heads: 2, head_dim: 8, ..Defaults::default() }).unwrap()
}

fn small() -> ModelConfig {
    ModelConfig { input: InputConfig::Vocabulary(7), classes: 7, deviation: 0.3, ..ModelConfig::default() }
}

fn build<S: Scalar>(config: &ModelConfig, text: &str) -> (Model, Parameters<S>) {
    let mut weights = Parameters::new();
    let model = config.init(&plan(text), &mut weights, &mut seeded(1)).unwrap();
    (model, weights)
}

const ALL: &str = "full window{size=3} linear retnet lightning gla mamba2{state=8} rglru rwkv7{rank=2} deltanet gdn conv none full+gdn rwkv7{rank=2}";

#[test]
fn every_kind_of_model_runs_whole_and_from_a_state() {
    let fields = InputConfig::Fields(vec![Field::new("kind", 3), Field::new("value", 5)]);
    let configs = [
        small(),
        ModelConfig { input: fields, ..small() },
        ModelConfig { norm: NormConfig::Layer, placement: NormPlacement::Post, ..small() },
        ModelConfig { feed_forward: FeedForwardConfig::Glu { hidden: None }, tied_unembedding: true, ..small() },
        ModelConfig { feed_forward: FeedForwardConfig::None, tied_query_key: true, ..small() },
        ModelConfig { gelu: Gelu::Exact, ..small() },
        ModelConfig { positions: Positions::Rotary { base: 10_000.0 }, ..small() },
        ModelConfig { positions: Positions::Alibi, ..small() },
        ModelConfig { positions: Positions::Learned { length: 9 }, ..small() },
    ];
    for config in &configs {
        let (model, weights) = build::<f64>(config, ALL);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let ids = if let InputConfig::Fields(_) = config.input { 2 } else { 1 };
        let mut rng = seeded(4);
        let tokens: Vec<u32> = (0..9 * ids).map(|_| below(&mut rng, 3)).collect();
        let (whole, state) = model.forward(&ops, &tokens, 1, None).unwrap();
        assert_eq!(ops.shape(&whole)[..], [1, 9, 16]);
        assert_eq!(state.seen, 9);
        let (first, state) = model.forward(&ops, &tokens[..4 * ids], 1, None).unwrap();
        let (second, _) = model.forward(&ops, &tokens[4 * ids..], 1, Some(&state)).unwrap();
        let parts = ops.values(&ops.concat(&[first, second], 1));
        for (a, b) in parts.iter().zip(ops.values(&whole)) {
            assert!((a - b).abs() < 1e-9, "{config:?}: {a} and {b}");
        }
        assert_eq!(config.count(&plan(ALL)).unwrap(), weights.size() as u128);
    }
}

#[test]
fn the_state_of_a_model_has_the_size_that_its_plan_says() {
    let (model, weights) = build::<f32>(&small(), ALL);
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let (_, state) = model.forward(&ops, &[1; 10], 2, None).unwrap();
    let layers = plan(ALL).layers;
    let facts = layers.iter().flat_map(|layer| layer.mixers.iter()).map(|mixer| *mixer.facts());
    let expected: u128 = facts.map(|facts| facts.kept(5)).sum();
    assert_eq!(state.numbers(&ops) as u128, expected);
}

/// A plan in which the layers of these numbers keep nothing themselves.
fn sharing(text: &str, layers: &[usize]) -> Plan {
    let mut plan = plan(text);
    for &index in layers {
        plan.layers[index].shares_cache = true;
    }
    plan
}

#[test]
fn layers_that_share_a_cache_keep_nothing_and_run_from_a_state() {
    let text = "full window{size=3,sinks=1,tied=yes} gdn window{size=3,sinks=1,tied=yes} full{heads=4,kv=2,head=8} full+window{size=2} \
                full+window{size=2}";
    let plan = sharing(text, &[3, 4, 6]);
    for positions in [Positions::None, Positions::Rotary { base: 100.0 }, Positions::Alibi] {
        let config = ModelConfig { positions, ..small() };
        let mut weights = Parameters::<f64>::new();
        let model = config.init(&plan, &mut weights, &mut seeded(1)).unwrap();
        assert_eq!(config.count(&plan).unwrap(), weights.size() as u128);
        for name in ["layers.3.mixer.k_proj.weight", "layers.4.mixer.v_proj.weight", "layers.6.mixers.0.k_proj.weight"]
        {
            assert!(weights.find(name).is_none(), "{name}");
        }
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let tokens = [1, 2, 3, 4, 5, 6, 0, 1, 2];
        let (whole, state) = model.forward(&ops, &tokens, 1, None).unwrap();
        let own = plan.layers.iter().filter(|layer| !layer.shares_cache);
        let facts = own.flat_map(|layer| layer.mixers.iter()).map(|mixer| *mixer.facts());
        let expected: u128 = facts.map(|facts| facts.kept(9)).sum();
        assert_eq!(state.numbers(&ops) as u128, expected);
        assert!(state.states.iter().all(|state| state.shared.is_none()));
        let (mut outs, mut state) = (Vec::new(), None);
        for span in [&tokens[..4], &tokens[4..5], &tokens[5..]] {
            let (out, next) = model.forward(&ops, span, 1, state.as_ref()).unwrap();
            outs.push(out);
            state = Some(next);
        }
        for (a, b) in ops.values(&ops.concat(&outs, 1)).iter().zip(ops.values(&whole)) {
            assert!((a - b).abs() < 1e-9, "{positions:?}: {a} and {b}");
        }
    }
}

/// With the weights of the first layer copied into a second that has its own, and nothing between them that changes the
/// stream, both layers make the same keys and values, so the sharing twin must agree.
#[test]
fn a_shared_cache_is_the_cache_of_the_other_layer() {
    let config = ModelConfig { feed_forward: FeedForwardConfig::None, ..small() };
    let (alone, mut weights) = build::<f64>(&config, "full full");
    let mut shared = Parameters::<f64>::new();
    let model = config.init(&sharing("full full", &[1]), &mut shared, &mut seeded(1)).unwrap();
    let set = |weights: &mut Parameters<f64>, name: &str, values: &[f64]| {
        let id = weights.find(name).unwrap();
        weights.get_mut(id).copy_from_slice(values);
    };
    // The first layer adds nothing to the stream.
    set(&mut weights, "layers.0.mixer.o_proj.weight", &[0.0; 256]);
    for part in ["k_proj", "v_proj"] {
        let first = weights.get(weights.find(&format!("layers.0.mixer.{part}.weight")).unwrap()).to_vec();
        set(&mut weights, &format!("layers.1.mixer.{part}.weight"), &first);
    }
    for (id, entry) in weights.entries() {
        if let Some(target) = shared.find(&entry.name) {
            shared.get_mut(target).copy_from_slice(weights.get(id));
        }
    }
    let hidden = |model: &Model, weights: &Parameters<f64>| {
        let ops = Native::new();
        ops.bind_frozen(weights);
        ops.values(&model.forward(&ops, &[1, 2, 3, 4, 5], 1, None).unwrap().0)
    };
    for (a, b) in hidden(&alone, &weights).iter().zip(hidden(&model, &shared)) {
        assert!((a - b).abs() < 1e-12, "{a} and {b}");
    }
}

/// All of the first layer's values and none of its own, or the other way round.
#[test]
fn later_rwkv_layers_mix_in_the_values_of_the_first_of_their_heads() {
    let text = "rwkv7{rank=2} full rwkv7{heads=4,head=4,rank=2} rwkv7{rank=2}";
    let (model, mut weights) = build::<f64>(&small(), text);
    let mixes: Vec<usize> =
        (0..4).filter(|layer| weights.find(&format!("layers.{layer}.mixer.v_mix.0.weight")).is_some()).collect();
    assert_eq!(mixes, [3]);
    let id = |weights: &Parameters<f64>, name: &str| weights.find(&format!("layers.{name}")).unwrap();
    // The first layer's values reach the last in no other way.
    for name in ["0.mixer.o_proj.weight", "3.mixer.v_mix.0.weight"] {
        let id = id(&weights, name);
        weights.get_mut(id).fill(0.0);
    }
    let hidden = |weights: &Parameters<f64>| {
        let ops = Native::new();
        ops.bind_frozen(weights);
        ops.values(&model.forward(&ops, &[1, 2, 3, 4, 5], 1, None).unwrap().0)
    };
    for (share, felt, other) in [
        (40.0, "0.mixer.v_proj.weight", "3.mixer.v_proj.weight"),
        (-40.0, "3.mixer.v_proj.weight", "0.mixer.v_proj.weight"),
    ] {
        let bias = id(&weights, "3.mixer.v_mix.1.bias");
        weights.get_mut(bias).fill(share);
        let before = hidden(&weights);
        let moved = |name: &str| {
            let mut changed = weights.clone();
            let id = id(&changed, name);
            changed.get_mut(id).iter_mut().for_each(|value| *value += 0.5);
            hidden(&changed).iter().zip(&before).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        assert!(moved(felt) > 1e-3 && moved(other) < 1e-12, "share {share}");
    }
}

#[test]
fn shared_caches_of_missing_layers_are_refused() {
    let refused = |text: &str, layer: usize| {
        let mut weights = Parameters::<f32>::new();
        let error = small().init(&sharing(text, &[layer]), &mut weights, &mut seeded(0)).err().unwrap();
        assert!(weights.is_empty() && small().count(&sharing(text, &[layer])).err() == Some(error.clone()));
        error.to_string()
    };
    assert!(refused("full", 0).contains("layer 0, which reads the cache of another"));
    assert!(refused("full full{kv=1}", 1).contains("an earlier layer with the same mixer"));
    assert!(refused("window{size=3} window{size=4}", 1).contains("layer 1"));
    assert!(refused("gdn gdn", 1).contains("expected full or window attention there"));
    assert!(refused("full full{conv=3}", 1).contains("conv=0"));
    assert!(refused("rwkv7 rwkv7", 1).contains("layer 1, which reads the cache of another"));
}

#[test]
fn a_bidirectional_model_sees_what_comes_after() {
    let config = ModelConfig { causal: false, ..small() };
    for text in ["full", "linear", "linear{normaliser=no}"] {
        let (model, weights) = build::<f64>(&config, text);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let first = |tokens: &[u32]| {
            let (hidden, _) = model.forward(&ops, tokens, 1, None).unwrap();
            ops.values(&ops.slice(&hidden, 1, 0..1))
        };
        assert_ne!(first(&[1, 2, 3]), first(&[1, 2, 4]), "{text}");
        // Without positions, order does not matter to it.
        for (a, b) in first(&[1, 2, 3]).iter().zip(first(&[1, 3, 2])) {
            assert!((a - b).abs() < 1e-12, "{text}");
        }
        let (_, state) = model.forward(&ops, &[1], 1, None).unwrap();
        assert_eq!(model.forward(&ops, &[1], 1, Some(&state)).err(), Some(ModelError::NoState));
    }
}

#[test]
fn the_two_gelus_are_near_and_not_the_same() {
    let loss = |gelu| {
        let (model, weights) = build::<f64>(&ModelConfig { gelu, ..small() }, "full gdn");
        let ops = Native::new();
        ops.bind(&weights);
        let (loss, _) = model.loss(&ops, &[1, 2, 3, 4], 1, &[2, 3, 4, 5]).unwrap();
        let value = ops.values(&loss)[0];
        ops.backward(&loss);
        assert!(ops.gradient().iter().all(|slope| slope.is_finite()));
        value
    };
    let distance = (loss(Gelu::Tanh) - loss(Gelu::Exact)).abs();
    assert!(distance > 0.0 && distance < 1e-2, "{distance}");
}

#[test]
fn names_are_those_of_pytorch_and_ties_hold() {
    let config = ModelConfig { tied_query_key: true, norm: NormConfig::Layer, ..small() };
    let (_, weights) = build::<f32>(&config, "full{kv=1} gdn+conv");
    for (name, shape) in [
        ("embeddings.weight", &[7, 16][..]),
        ("layers.0.mixer_norm.bias", &[16]),
        ("layers.0.mixer.k_proj.weight", &[8, 16]),
        ("layers.1.mixers.0.q_conv1d.weight", &[16, 1, 4]),
        ("layers.1.mixers.1.in_proj.weight", &[48, 16]),
        ("layers.1.mlp.up_proj.weight", &[64, 16]),
        ("lm_head.weight", &[7, 16]),
    ] {
        let id = weights.find(name).unwrap_or_else(|| panic!("no weight {name}"));
        assert_eq!(weights.entry(id).shape[..], *shape, "{name}");
    }
    let get = |name: &str| weights.get(weights.find(name).unwrap());
    assert_eq!(get("layers.0.mixer.k_proj.weight"), &get("layers.0.mixer.q_proj.weight")[..8 * 16]);
    assert_eq!(get("layers.1.mixers.0.k_proj.weight"), get("layers.1.mixers.0.q_proj.weight"));
}

/// A value is embedded as the negative of the argument it becomes, so what attention looks for starts as the negative of what it
/// asks with; a state that is written and read by the same vector keeps the plain tie, and so does a window.
#[test]
fn keys_of_attention_oppose_queries_where_fields_share_a_table() {
    let task = rung_theory::task::parse("funccomp{hops=1,m=4}").unwrap();
    let config = ModelConfig { tied_query_key: true, input: InputConfig::Fields(task.fields()), ..small() };
    let (_, weights) = build::<f32>(&config, "full deltanet{conv=0} window{size=4} compositional");
    let get = |layer: usize, name: &str| {
        weights.get(weights.find(&format!("layers.{layer}.mixer.{name}_proj.weight")).unwrap()).to_vec()
    };
    let turned = |layer| get(layer, "q").iter().map(|weight| -weight).collect::<Vec<_>>();
    for layer in [0, 3] {
        assert_eq!(get(layer, "k"), turned(layer), "layer {layer}");
    }
    for layer in [1, 2] {
        assert_eq!(get(layer, "k"), get(layer, "q"), "layer {layer}");
    }
    let plain = ModelConfig { tied_query_key: true, ..small() };
    let (_, weights) = build::<f32>(&plain, "full");
    let get = |name: &str| weights.get(weights.find(name).unwrap());
    assert_eq!(get("layers.0.mixer.k_proj.weight"), get("layers.0.mixer.q_proj.weight"));
}

/// HGRN2's floors are one table, with a row for every layer of whatever kind; the first layer has no floor and does not ask.
#[test]
fn weights_that_layers_have_in_common_are_there_once() {
    let (_, weights) = build::<f32>(&small(), "hgrn2 full hgrn2 hgrn2");
    let tables: Vec<_> = weights.entries().filter(|(_, entry)| entry.name.contains("lower_bounds")).collect();
    assert_eq!(tables.len(), 1);
    assert_eq!((tables[0].1.name.as_str(), tables[0].1.shape[0]), ("lower_bounds", 4));
    let text = plan("hgrn2 full hgrn2 hgrn2");
    assert_eq!(small().count(&text).unwrap(), weights.size() as u128);
    let listed = small().list(&text).unwrap();
    assert!(listed.iter().map(|listed| &listed.name).eq(weights.entries().map(|(_, entry)| &entry.name)));
    let (_, alone) = build::<f32>(&small(), "hgrn2 full");
    assert!(alone.find("lower_bounds").is_none());
}

#[test]
fn absurd_and_misshapen_plans_are_refused_before_anything_is_allocated() {
    let error = |config: &ModelConfig, plan: &Plan| {
        let mut weights = Parameters::<f32>::new();
        let error = config.init(plan, &mut weights, &mut seeded(0)).err().expect("an error");
        assert!(weights.is_empty(), "weights were allocated");
        error
    };
    let wide = Defaults { heads: 1 << 10, head_dim: 1 << 10, ..Defaults::default() };
    let large = Plan::parse("gdn", &wide).unwrap();
    assert!(matches!(error(&small(), &large), ModelError::TooLarge { found, .. } if found > 1_000_000_000_000));
    assert!(matches!(error(&small(), &plan("full*1000000")), ModelError::TooLarge { .. }));
    let vocabulary = ModelConfig { input: InputConfig::Vocabulary(usize::MAX), ..small() };
    assert!(matches!(error(&vocabulary, &plan("full")), ModelError::TooLarge { .. }));
    let hidden = ModelConfig { feed_forward: FeedForwardConfig::Mlp { hidden: Some(usize::MAX) }, ..small() };
    assert!(matches!(error(&hidden, &plan("full")), ModelError::TooLarge { .. }));
    let learned = ModelConfig { positions: Positions::Learned { length: usize::MAX }, ..small() };
    assert!(matches!(error(&learned, &plan("full")), ModelError::TooLarge { .. }));
    // The mistake is in the last layer, and still nothing was allocated for the first.
    assert!(matches!(error(&small(), &plan("full gdn compressed")), ModelError::NoNetwork { .. }));
    assert!(matches!(error(&small(), &plan("full full{heads=4,kv=3}")), ModelError::Shape { .. }));
    assert!(matches!(error(&ModelConfig { classes: 0, ..small() }, &plan("full")), ModelError::Shape { .. }));
    assert!(matches!(error(&ModelConfig { chunk: 0, ..small() }, &plan("full")), ModelError::Shape { .. }));
    let fields = ModelConfig { input: InputConfig::Fields(Vec::new()), ..small() };
    assert!(matches!(error(&fields, &plan("full")), ModelError::Shape { what: "vocabulary", .. }));
    let twice = vec![Field::new("key", 3), Field::new("key", 4)];
    let fields = ModelConfig { input: InputConfig::Fields(twice), ..small() };
    assert!(matches!(error(&fields, &plan("full")), ModelError::SameField { .. }));
    let rotary = ModelConfig { positions: Positions::Rotary { base: f64::NAN }, ..small() };
    assert!(matches!(error(&rotary, &plan("full")), ModelError::Number { .. }));
    assert!(matches!(error(&ModelConfig { deviation: -1.0, ..small() }, &plan("full")), ModelError::Number { .. }));
    let unknown = ModelConfig { read_out: Some("value".to_owned()), ..small() };
    assert!(matches!(error(&unknown, &plan("full")), ModelError::Shape { what: "symbols of the read-out field", .. }));
    let tied = ModelConfig { tied_unembedding: true, classes: 8, ..small() };
    assert!(matches!(error(&tied, &plan("full")), ModelError::Shape { what: "classes", .. }));
}

#[test]
fn tokens_and_states_that_do_not_fit_are_named() {
    let config = ModelConfig { positions: Positions::Learned { length: 4 }, ..small() };
    let (model, weights) = build::<f32>(&config, "full");
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let error = |tokens: &[u32], batch| model.forward(&ops, tokens, batch, None).err().unwrap().to_string();
    assert!(error(&[0, 7], 1).contains("token 1, field `token`: id 7 is beyond the vocabulary of 7"));
    assert!(error(&[0, 1, 2], 2).contains("3 ids do not make 2 equally long rows"));
    assert!(error(&[], 1).contains("0 ids"));
    assert!(error(&[0], 0).contains("0 equally long rows"));
    assert!(error(&[0; 5], 1).contains("5 tokens, but the model has learned positions for 4"));
    let (_, state) = model.forward(&ops, &[1], 1, None).unwrap();
    let wrong = model.forward(&ops, &[1, 1], 2, Some(&state)).err().unwrap();
    assert!(matches!(wrong, ModelError::WrongState { .. }));
    assert!(matches!(model.loss(&ops, &[1], 1, &[9]), Err(ModelError::Target { found: 9, .. })));
    assert!(matches!(model.loss(&ops, &[1], 1, &[1, 1]), Err(ModelError::Shape { .. })));
    assert_eq!(model.loss(&ops, &[1], 1, &[NO_TARGET]).unwrap().1, 0);
}

/// A folder of its own for a test.
fn folder(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("rung-nn-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn checkpoints_come_back_bit_for_bit() {
    let folder = folder("round-trip");
    let path = folder.join("model.safetensors");
    let (_, weights) = build::<f32>(&small(), ALL);
    save(&path, &weights).unwrap();
    let mut other = Parameters::<f32>::new();
    small().init(&plan(ALL), &mut other, &mut seeded(99)).unwrap();
    assert_ne!(other.flat(), weights.flat());
    load(&path, &mut other).unwrap();
    assert_eq!(other.flat(), weights.flat());
    // Double precision reads single and writes double.
    let mut wide = Parameters::<f64>::new();
    small().init(&plan(ALL), &mut wide, &mut seeded(99)).unwrap();
    load(&path, &mut wide).unwrap();
    assert!(wide.flat().iter().zip(weights.flat()).all(|(a, b)| a.to_bits() == f64::from(*b).to_bits()));
    save(&path, &wide).unwrap();
    load(&path, &mut other).unwrap();
    assert_eq!(other.flat(), weights.flat());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "something was left beside the file");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn broken_and_foreign_checkpoints_are_refused_and_change_nothing() {
    let folder = folder("broken");
    let path = folder.join("model.safetensors");
    let (_, mut weights) = build::<f32>(&small(), "full gdn");
    let before = weights.flat().to_vec();
    save(&path, &weights).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let damaged = [[&bytes[..], &[0]].concat(), bytes[..100].to_vec(), bytes[..3].to_vec(), Vec::new()];
    for damage in damaged.iter().chain([&vec![0xff; 64], &b"not a checkpoint at all, but some text".to_vec()]) {
        std::fs::write(&path, damage).unwrap();
        let error = load(&path, &mut weights).unwrap_err();
        assert!(matches!(error, CheckpointError::Broken { .. }), "{error}");
        assert!(error.to_string().contains("model.safetensors"));
    }
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = load(&path, &mut weights).unwrap_err();
    assert!(matches!(&error, CheckpointError::CutOff { expected, .. } if *expected == bytes.len() as u64), "{error}");
    assert!(error.to_string().contains("cut off in tensor `"), "{error}");
    let mut flipped = bytes.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    std::fs::write(&path, &flipped).unwrap();
    let error = load(&path, &mut weights).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    let mut refused = |text: &str, config: &ModelConfig| {
        save(&path, &build::<f32>(config, text).1).unwrap();
        load(&path, &mut weights).unwrap_err().to_string()
    };
    let shape = refused("full{kv=1} gdn", &small());
    assert!(shape.contains("`layers.0.mixer.k_proj.weight`: found shape [8, 16], expected [16, 16]"), "{shape}");
    let missing = refused("full", &small());
    assert!(missing.contains("`layers.1.mixer_norm.weight` is missing; expected shape [16]"), "{missing}");
    let unknown = refused("full gdn conv", &small());
    assert!(unknown.contains("`layers.2.mixer.conv.weight` of shape [16, 1, 3] belongs to no weight"), "{unknown}");
    assert_eq!(weights.flat(), before);
    assert!(matches!(load(&folder.join("nowhere"), &mut weights), Err(CheckpointError::System { .. })));
    assert!(matches!(save(&folder.join("no/where"), &weights), Err(CheckpointError::Write { .. })));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_agree_with_composed_bodies_in_a_whole_model() {
    let configs = [
        ModelConfig { positions: Positions::Alibi, ..small() },
        ModelConfig { feed_forward: FeedForwardConfig::Glu { hidden: None }, norm: NormConfig::Layer, ..small() },
    ];
    let (tokens, targets) = ([1, 2, 3, 4, 5, 6, 0, 1, 2, 3], [2, 3, 4, NO_TARGET, 6, 0, 1, 2, 3, 4]);
    for config in configs {
        let (model, weights) = build::<f64>(&config, ALL);
        let (native, composed) = (Native::new(), NoFusedKernels(Native::new()));
        native.bind(&weights);
        composed.0.bind(&weights);
        let (found, _) = model.loss(&native, &tokens, 2, &targets).unwrap();
        let (expected, _) = model.loss(&composed, &tokens, 2, &targets).unwrap();
        assert!((native.values(&found)[0] - composed.values(&expected)[0]).abs() < 1e-9);
        native.backward(&found);
        composed.0.backward(&expected);
        for (a, b) in native.gradient().iter().zip(composed.0.gradient()) {
            assert!((a - b).abs() < 1e-8, "{a} and {b}");
        }
    }
}

/// Rows of eight letters in some order, twice: in the second pass, what follows each letter is asked.
fn induction(rows: usize, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let (mut rng, mut tokens, mut targets) = (seeded(seed), Vec::new(), Vec::new());
    for _ in 0..rows {
        let mut letters: Vec<u32> = (0..8).collect();
        rung_theory::task::shuffle(&mut rng, &mut letters);
        tokens.extend(letters.iter().chain(&letters));
        targets.extend([NO_TARGET; 8].iter().chain(&letters[1..]).chain(&[NO_TARGET]));
    }
    (tokens, targets)
}

/// Losses of a short training.
fn train(text: &str, steps: usize) -> (Vec<f64>, Vec<f32>) {
    train_with(Precision::default(), text, steps)
}

fn train_with(precision: Precision, text: &str, steps: usize) -> (Vec<f64>, Vec<f32>) {
    let config =
        ModelConfig { input: InputConfig::Vocabulary(8), classes: 8, deviation: 0.15, ..ModelConfig::default() };
    let config = ModelConfig { positions: Positions::Rotary { base: 10_000.0 }, precision, ..config };
    let (model, mut weights) = build::<f32>(&config, text);
    let (mut team, rows) = (DataParallel::new(2, 8), 32);
    let mut optimizer = AdamWConfig { rate: 3e-3, ..AdamWConfig::default() }.init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let (tokens, targets) = induction(rows, step as u64);
        let outcome = team.step(&weights, rows, |ops: &Native<f32>, items| {
            let range = items.start * 16..items.end * 16;
            let (loss, _) = model.loss(ops, &tokens[range.clone()], items.len(), &targets[range]).unwrap();
            ops.scale(&loss, 1.0 / (7 * rows) as f64)
        });
        losses.push(outcome.unwrap().loss);
        optimizer.update(&mut weights, team.gradient(), 1.0);
    }
    (losses, weights.flat().to_vec())
}

#[test]
fn tiny_models_learn() {
    for text in ["full*2", "conv gdn", "conv linear", "gla+window{size=4} full"] {
        let (losses, _) = train(text, 250);
        let (first, last) = (losses[0], losses[240..].iter().sum::<f64>() / 10.0);
        assert!(last < 0.6 * first, "{text}: from {first} to {last}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    assert_eq!(train(ALL, 100), train(ALL, 100));
}

#[test]
fn a_model_in_few_bits_runs_from_a_state_and_learns() {
    let config = ModelConfig { precision: Precision::bits(8, 8.0), ..small() };
    let (model, weights) = build::<f64>(&config, ALL);
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let tokens = [1, 2, 3, 4, 5, 6, 0, 1, 2];
    let (_, whole) = model.forward(&ops, &tokens, 1, None).unwrap();
    let (_, state) = model.forward(&ops, &tokens[..4], 1, None).unwrap();
    let (_, state) = model.forward(&ops, &tokens[4..], 1, Some(&state)).unwrap();
    for (a, b) in whole.states.iter().zip(&state.states) {
        for (a, b) in a.tensors.iter().flatten().zip(b.tensors.iter().flatten()) {
            assert_eq!(ops.values(a), ops.values(b));
        }
    }
    let (losses, _) = train_with(Precision::bits(8, 8.0), "conv full", 150);
    let (first, last) = (losses[0], losses[140..].iter().sum::<f64>() / 10.0);
    assert!(last < 0.8 * first, "from {first} to {last}");
    for (precision, what) in [(Precision::bits(0, 1.0), "bits"), (Precision::bits(25, 1.0), "bits")]
        .into_iter()
        .chain([0.0, -1.0, f64::NAN, f64::INFINITY].map(|range| (Precision::bits(8, range), "range")))
    {
        let config = ModelConfig { precision, ..small() };
        let error = config.init(&plan("gdn"), &mut Parameters::<f32>::new(), &mut seeded(0)).err().unwrap();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_mixer_outside_of_the_registry_makes_a_model() {
    struct Mean;
    impl TokenMixer for Mean {
        fn forward<O: Ops>(
            &self,
            ops: &O,
            x: &O::Tensor,
            state: Option<&State<O::Tensor>>,
        ) -> (O::Tensor, State<O::Tensor>) {
            let (time, seen) = (ops.shape(x)[1], State::seen(state));
            let sums = ops.cumulative_sum(x, 1);
            let sums = State::part(state, 0).map_or(sums.clone(), |before| ops.add(&sums, before));
            let counts: Vec<O::Scalar> =
                (seen..seen + time).map(|t| O::Scalar::from_f64(1.0 / (t + 1) as f64)).collect();
            let out = ops.mul(&sums, &ops.constant(&[time, 1], &counts));
            (out, State::new(seen + time, [Some(ops.slice(&sums, 1, time - 1..time))]))
        }
    }
    let mut weights = Parameters::<f32>::new();
    let model = small().init_with(16, 2, &mut weights, &mut seeded(0), |_, _| Ok(vec![Mean])).unwrap();
    let ops = Native::new();
    ops.bind(&weights);
    let (loss, asked) = model.loss(&ops, &[1, 2, 3, 4], 2, &[2, 3, 4, NO_TARGET]).unwrap();
    assert_eq!(asked, 3);
    ops.backward(&loss);
    assert!(ops.gradient().iter().any(|value| *value != 0.0));
}

#[test]
fn fields_of_one_alphabet_share_a_table_and_a_blank() {
    let fields = vec![
        Field::new("kind", 3),
        Field::new("argument", 4).with_blank().of("number"),
        Field::new("value", 6).with_blank().of("number"),
    ];
    let mut weights = Parameters::<f64>::new();
    let config = ModelConfig { input: InputConfig::Fields(fields), ..small() };
    let model = config.init(&plan("none"), &mut weights, &mut seeded(1)).unwrap();
    let table = weights.find("embeddings.number.weight").unwrap();
    assert_eq!(weights.entry(table).shape[..], [6, 16], "five numbers and the blank");
    let hidden = |weights: &Parameters<f64>, tokens: &[u32]| {
        let ops = Native::new();
        ops.bind_frozen(weights);
        ops.values(&model.forward(&ops, tokens, 1, None).unwrap().0)
    };
    assert_ne!(
        hidden(&weights, &[1, 0, 2]),
        hidden(&weights, &[1, 2, 0]),
        "argument 0 of value 2 is not argument 2 of value 0"
    );
    // With a gain of one the two would be the same.
    let gain = weights.find("embeddings.value.gain").unwrap();
    assert_eq!(weights.get(gain), [-1.0; 16]);
    weights.get_mut(gain).fill(1.0);
    let apart = hidden(&weights, &[1, 2, 5])
        .iter()
        .zip(hidden(&weights, &[1, 3, 2]))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(apart < 1e-12, "number 2 beside a blank, whichever field says it, up to the order of the sum: {apart}");
    assert_ne!(hidden(&weights, &[1, 3, 3]), hidden(&weights, &[1, 3, 5]), "3 is a value and the blank of arguments");
    let ops = Native::new();
    ops.bind_frozen(&weights);
    assert!(matches!(model.forward(&ops, &[1, 4, 5], 1, None), Err(ModelError::Token { .. })));
}

/// Scores at some tokens, and what they teach, are those of a pass in which every token goes through everything.
#[test]
fn scores_at_some_tokens_are_those_of_a_whole_pass() {
    let (tokens, positions) = ([1, 2, 3, 4, 5, 6, 6, 5], [7, 2, 2, 4]);
    for placement in [NormPlacement::Pre, NormPlacement::Post] {
        for channel in [FeedForwardConfig::default(), FeedForwardConfig::None] {
            let config = ModelConfig { placement, feed_forward: channel, ..small() };
            let (model, weights) = build::<f64>(&config, "gdn full+gdn");
            let learned = |scores: &dyn Fn(&Native<f64>) -> Tensor<f64>| {
                let ops = Native::new();
                ops.bind(&weights);
                let scores = scores(&ops);
                ops.backward(&ops.sum_all(&ops.cross_entropy(&scores, &[1, 2, 3, 4])));
                (ops.values(&scores), ops.gradient())
            };
            let (found, slopes) = learned(&|ops| model.scores_at(ops, &tokens, 2, &positions).unwrap());
            let (expected, expected_slopes) = learned(&|ops| {
                let (hidden, _) = model.forward(ops, &tokens, 2, None).unwrap();
                let rows = ops.gather_rows(&ops.reshape(&hidden, &[tokens.len(), 16]), &positions);
                model.logits(ops, &rows)
            });
            let near = |found: &[f64], expected: &[f64]| {
                found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
            };
            assert!(near(&found, &expected), "{placement:?}, {channel:?}: {found:?} {expected:?}");
            assert!(near(&slopes, &expected_slopes), "{placement:?}, {channel:?}");
            let ops = Native::new();
            ops.bind_frozen(&weights);
            for (positions, what, number) in [(vec![8], "position", 8), (vec![], "positions", 0)] {
                let Err(ModelError::Shape { what: named, found, .. }) = model.scores_at(&ops, &tokens, 2, &positions)
                else {
                    panic!("{positions:?} was taken");
                };
                assert_eq!((named, found), (what, number));
            }
        }
    }
}

/// Two layers with a loss of their own, in a model whose loss stays what it was.
#[test]
fn training_adds_the_losses_of_mixers() {
    const SPARSE: &str = "dsa{top=2,index-heads=2,index-head=4}";
    let (tokens, targets) = ([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, NO_TARGET]);
    for placement in [NormPlacement::Pre, NormPlacement::Post] {
        let config = ModelConfig { placement, ..small() };
        let (model, weights) = build::<f64>(&config, &format!("{SPARSE} full {SPARSE}"));
        let ops = Native::new();
        ops.bind(&weights);
        let TrainingLoss { sum, count, own, .. } = model.training_loss(&ops, &tokens, 1, &targets, &[]).unwrap();
        let (expected, asked) = model.loss(&ops, &tokens, 1, &targets).unwrap();
        assert_eq!((ops.values(&sum), count), (ops.values(&expected), asked));
        let own = own.expect("two layers ask for more");
        assert!(ops.values(&own)[0] > 0.0);
        ops.backward(&own);
        let gradient = ops.gradient();
        for (_, entry) in weights.entries() {
            let felt = gradient[entry.range.clone()].iter().any(|slope| *slope != 0.0);
            assert_eq!(felt, entry.name.contains(".indexer."), "{}", entry.name);
        }
    }
    let (model, weights) = build::<f64>(&small(), "full gdn");
    let ops = Native::new();
    ops.bind_frozen(&weights);
    assert!(model.training_loss(&ops, &tokens, 1, &targets, &[]).unwrap().own.is_none());
}

/// A model of structured tokens whose classes are scored by the vectors of their values, and a prompt with its targets.
fn composing() -> (ModelConfig, Vec<u32>, Vec<u32>, Vec<u32>) {
    let task = rung_theory::task::parse("funccomp{hops=2,m=3,n=[2],queries=3,mixed=yes,names=levels}").unwrap();
    let mut prompt = rung_theory::task::Prompt::new();
    task.prompt(&mut seeded(1), &mut prompt);
    let (input, classes) = (InputConfig::Fields(task.fields()), task.classes() as usize);
    let config = ModelConfig {
        input,
        classes,
        read_out: Some("value".to_owned()),
        tied_query_key: true,
        deviation: 0.3,
        ..small()
    };
    (config, prompt.tokens().to_vec(), prompt.targets().to_vec(), prompt.partials().to_vec())
}

#[test]
fn the_vectors_of_a_field_score_the_classes() {
    let (config, tokens, ..) = composing();
    let (model, weights) = build::<f64>(&config, "gated full");
    assert!(weights.find("lm_head.weight").is_none());
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let (hidden, _) = model.forward(&ops, &tokens, 1, None).unwrap();
    let (found, hidden) = (ops.values(&model.logits(&ops, &hidden)), ops.values(&hidden));
    let get = |name: &str| weights.get(weights.find(name).unwrap());
    let (table, gain) = (get("embeddings.number.weight"), get("embeddings.value.gain"));
    for (token, hidden) in hidden.chunks(16).enumerate() {
        for class in 0..config.classes {
            let row = &table[class * 16..(class + 1) * 16];
            let expected: f64 = hidden.iter().zip(row).zip(gain).map(|((x, e), g)| x * e * g).sum();
            assert!((found[token * config.classes + class] - expected).abs() < 1e-10);
        }
    }
}

/// The loss of intermediate answers against one worked out from the streams, and its gradient against finite differences.
#[test]
fn intermediate_answers_are_read_out_of_the_stream() {
    let (config, tokens, targets, partials) = composing();
    let (model, mut weights) = build::<f64>(&config, "gated full full");
    let wanted =
        [IntermediateTargets { layer: 1, classes: partials.chunks(2).map(|parts| parts[0] as usize).collect() }];
    let ops = Native::new();
    let value = |weights: &Parameters<f64>| {
        ops.bind_frozen(weights);
        let found = model.training_loss(&ops, &tokens, 1, &targets, &wanted).unwrap().intermediate.expect("one layer");
        ops.values(&found)[0]
    };
    let found = value(&weights);
    let streams = model.streams(&ops, &tokens, 1).unwrap();
    let scores = ops.values(&model.read_out(&ops, &streams[2]));
    let asked = (0..targets.len()).filter(|at| targets[*at] != NO_TARGET);
    let slow: f64 = asked
        .zip(&wanted[0].classes)
        .map(|(at, class)| {
            let scores = &scores[at * config.classes..(at + 1) * config.classes];
            scores.iter().map(|score| score.exp()).sum::<f64>().ln() - scores[*class]
        })
        .sum();
    assert!((found - slow).abs() < 1e-9, "{found}, expected {slow}");
    ops.bind(&weights);
    let TrainingLoss { sum, intermediate, .. } = model.training_loss(&ops, &tokens, 1, &targets, &wanted).unwrap();
    let (plain, _) = model.loss(&ops, &tokens, 1, &targets).unwrap();
    assert_eq!(ops.values(&sum), ops.values(&plain), "the loss itself stays what it was");
    ops.backward(&intermediate.expect("one layer"));
    let gradient = ops.gradient();
    let places: Vec<_> =
        weights.entries().map(|(_, entry)| (entry.name.clone(), entry.range.start + entry.range.len() / 2)).collect();
    for (name, place) in places {
        let (at, step) = (weights.flat()[place], 1e-5);
        let mut moved = |by: f64| {
            weights.flat_mut()[place] = at + by;
            value(&weights)
        };
        let expected = (moved(step) - moved(-step)) / (2.0 * step);
        moved(0.0);
        assert!((gradient[place] - expected).abs() < 1e-6, "{name}: {}, expected {expected}", gradient[place]);
        if name.starts_with("layers.2.") {
            assert!(gradient[place].abs() < 1e-12, "{name} comes after the answer that is asked for");
        }
    }
}
