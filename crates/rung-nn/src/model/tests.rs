//! Tests of complete models: shapes, names, states, errors, checkpoints, training.

use rung_engine::{AdamWConfig, DataParallel, Native, Parameters, Scalar, Tensor};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{Field, NO_TARGET, random_below, seeded};

use super::*;
use crate::checkpoint::{CheckpointError, load, save};
use crate::no_fused_kernels::NoFusedKernels;
use crate::position::Positions;
use crate::precision::SimulatedPrecision;

fn plan(text: &str) -> Plan {
    Plan::parse(text, &Defaults { heads: 2, head_dim: 8, ..Defaults::default() }).unwrap()
}

fn small_config() -> ModelConfig {
    ModelConfig { input: InputConfig::Vocabulary(7), classes: 7, init_std: 0.3, ..ModelConfig::default() }
}

fn build<S: Scalar>(config: &ModelConfig, text: &str) -> (Model, Parameters<S>) {
    let mut weights = Parameters::new();
    let model = config.init(&plan(text), &mut weights, &mut seeded(1)).unwrap();
    (model, weights)
}

/// Every kind of mixer.
const ALL_MIXERS: &str = "full window{size=3} linear retnet lightning gla mamba2{state=8} rglru rwkv7{rank=2} deltanet gdn conv none full+gdn rwkv7{rank=2}";

#[test]
fn every_model_config_gives_equal_outputs_in_one_call_and_in_two() {
    let fields = InputConfig::Fields(vec![Field::new("kind", 3), Field::new("value", 5)]);
    let configs = [
        small_config(),
        ModelConfig { input: fields, ..small_config() },
        ModelConfig { norm: NormConfig::Layer, placement: NormPlacement::Post, ..small_config() },
        ModelConfig { feed_forward: FeedForwardConfig::Glu { hidden: None }, tied_unembedding: true, ..small_config() },
        ModelConfig { feed_forward: FeedForwardConfig::None, init_key_from_query: true, ..small_config() },
        ModelConfig { gelu: Gelu::Exact, ..small_config() },
        ModelConfig { positions: Positions::Rotary { base: 10_000.0 }, ..small_config() },
        ModelConfig { positions: Positions::Alibi, ..small_config() },
        ModelConfig { positions: Positions::Learned { length: 9 }, ..small_config() },
    ];
    for config in &configs {
        let (model, weights) = build::<f64>(config, ALL_MIXERS);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let field_count = if let InputConfig::Fields(_) = config.input { 2 } else { 1 };
        let mut rng = seeded(4);
        let tokens: Vec<u32> = (0..9 * field_count).map(|_| random_below(&mut rng, 3)).collect();
        let (expected, state) = model.forward(&ops, &tokens, 1, None).unwrap();
        assert_eq!(ops.shape(&expected)[..], [1, 9, 16]);
        assert_eq!(state.past_len, 9);
        let (first, state) = model.forward(&ops, &tokens[..4 * field_count], 1, None).unwrap();
        let (second, _) = model.forward(&ops, &tokens[4 * field_count..], 1, Some(&state)).unwrap();
        let actual = ops.values(&ops.concat(&[first, second], 1));
        for (a, b) in actual.iter().zip(ops.values(&expected)) {
            assert!((a - b).abs() < 1e-9, "{config:?}: {a} and {b}");
        }
        assert_eq!(config.weight_count(&plan(ALL_MIXERS)).unwrap(), weights.size() as u128);
    }
}

#[test]
fn model_state_has_the_size_of_the_plan() {
    let (model, weights) = build::<f32>(&small_config(), ALL_MIXERS);
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let (_, state) = model.forward(&ops, &[1; 10], 2, None).unwrap();
    let layers = plan(ALL_MIXERS).layers;
    let facts = layers.iter().flat_map(|layer| layer.mixers.iter()).map(|mixer| *mixer.facts());
    let expected: u128 = facts.map(|facts| facts.memory_size(5)).sum();
    assert_eq!(state.element_count(&ops) as u128, expected);
}

/// A plan in which these layers use the KV cache of an earlier layer.
fn plan_with_shared_caches(text: &str, layers: &[usize]) -> Plan {
    let mut plan = plan(text);
    for &index in layers {
        plan.layers[index].shares_cache = true;
    }
    plan
}

#[test]
fn layers_with_a_shared_cache_have_no_state_and_run_in_spans() {
    let text = "full window{size=3,sinks=1,tied=yes} gdn window{size=3,sinks=1,tied=yes} full{heads=4,kv=2,head=8} full+window{size=2} \
                full+window{size=2}";
    let plan = plan_with_shared_caches(text, &[3, 4, 6]);
    for positions in [Positions::None, Positions::Rotary { base: 100.0 }, Positions::Alibi] {
        let config = ModelConfig { positions, ..small_config() };
        let mut weights = Parameters::<f64>::new();
        let model = config.init(&plan, &mut weights, &mut seeded(1)).unwrap();
        assert_eq!(config.weight_count(&plan).unwrap(), weights.size() as u128);
        for name in ["layers.3.mixer.k_proj.weight", "layers.4.mixer.v_proj.weight", "layers.6.mixers.0.k_proj.weight"]
        {
            assert!(weights.find(name).is_none(), "{name}");
        }
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let tokens = [1, 2, 3, 4, 5, 6, 0, 1, 2];
        let (expected, state) = model.forward(&ops, &tokens, 1, None).unwrap();
        let layers_with_state = plan.layers.iter().filter(|layer| !layer.shares_cache);
        let facts = layers_with_state.flat_map(|layer| layer.mixers.iter()).map(|mixer| *mixer.facts());
        let state_size: u128 = facts.map(|facts| facts.memory_size(9)).sum();
        assert_eq!(state.element_count(&ops) as u128, state_size);
        assert!(state.states.iter().all(|state| state.shared.is_none()));
        let (mut outs, mut state) = (Vec::new(), None);
        for span in [&tokens[..4], &tokens[4..5], &tokens[5..]] {
            let (out, next) = model.forward(&ops, span, 1, state.as_ref()).unwrap();
            outs.push(out);
            state = Some(next);
        }
        for (a, b) in ops.values(&ops.concat(&outs, 1)).iter().zip(ops.values(&expected)) {
            assert!((a - b).abs() < 1e-9, "{positions:?}: {a} and {b}");
        }
    }
}

/// If the second layer has the key and value weights of the first, and the first adds nothing to the residual stream, both layers have
/// the same keys and values, so that a shared cache gives the same output.
#[test]
fn shared_cache_equals_a_cache_from_the_same_weights() {
    let config = ModelConfig { feed_forward: FeedForwardConfig::None, ..small_config() };
    let (separate, mut weights) = build::<f64>(&config, "full full");
    let mut shared_weights = Parameters::<f64>::new();
    let shared = config.init(&plan_with_shared_caches("full full", &[1]), &mut shared_weights, &mut seeded(1)).unwrap();
    let set = |weights: &mut Parameters<f64>, name: &str, values: &[f64]| {
        let id = weights.find(name).unwrap();
        weights.get_mut(id).copy_from_slice(values);
    };
    // The first layer adds nothing to the residual stream.
    set(&mut weights, "layers.0.mixer.o_proj.weight", &[0.0; 256]);
    for name in ["k_proj", "v_proj"] {
        let first = weights.get(weights.find(&format!("layers.0.mixer.{name}.weight")).unwrap()).to_vec();
        set(&mut weights, &format!("layers.1.mixer.{name}.weight"), &first);
    }
    for (id, entry) in weights.entries() {
        if let Some(target) = shared_weights.find(&entry.name) {
            shared_weights.get_mut(target).copy_from_slice(weights.get(id));
        }
    }
    let hidden = |model: &Model, weights: &Parameters<f64>| {
        let ops = Native::new();
        ops.bind_frozen(weights);
        ops.values(&model.forward(&ops, &[1, 2, 3, 4, 5], 1, None).unwrap().0)
    };
    for (a, b) in hidden(&separate, &weights).iter().zip(hidden(&shared, &shared_weights)) {
        assert!((a - b).abs() < 1e-12, "{a} and {b}");
    }
}

/// With an interpolation weight of one the output depends only on the first layer's values, with zero only on the last layer's.
#[test]
fn later_rwkv7_layers_interpolate_with_the_values_of_the_first() {
    let text = "rwkv7{rank=2} full rwkv7{heads=4,head=4,rank=2} rwkv7{rank=2}";
    let (model, mut weights) = build::<f64>(&small_config(), text);
    let interpolating_layers: Vec<usize> =
        (0..4).filter(|layer| weights.find(&format!("layers.{layer}.mixer.v_mix.0.weight")).is_some()).collect();
    assert_eq!(interpolating_layers, [3]);
    let id = |weights: &Parameters<f64>, name: &str| weights.find(&format!("layers.{name}")).unwrap();
    // The last layer depends on the first layer's values in no other way.
    for name in ["0.mixer.o_proj.weight", "3.mixer.v_mix.0.weight"] {
        let id = id(&weights, name);
        weights.get_mut(id).fill(0.0);
    }
    let hidden = |weights: &Parameters<f64>| {
        let ops = Native::new();
        ops.bind_frozen(weights);
        ops.values(&model.forward(&ops, &[1, 2, 3, 4, 5], 1, None).unwrap().0)
    };
    for (logit, used, unused) in [
        (40.0, "0.mixer.v_proj.weight", "3.mixer.v_proj.weight"),
        (-40.0, "3.mixer.v_proj.weight", "0.mixer.v_proj.weight"),
    ] {
        let bias = id(&weights, "3.mixer.v_mix.1.bias");
        weights.get_mut(bias).fill(logit);
        let before = hidden(&weights);
        let effect = |name: &str| {
            let mut changed = weights.clone();
            let id = id(&changed, name);
            changed.get_mut(id).iter_mut().for_each(|value| *value += 0.5);
            hidden(&changed).iter().zip(&before).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        assert!(effect(used) > 1e-3 && effect(unused) < 1e-12, "logit {logit}");
    }
}

#[test]
fn shared_cache_without_a_matching_layer_is_an_error() {
    let error = |text: &str, layer: usize| {
        let mut weights = Parameters::<f32>::new();
        let error =
            small_config().init(&plan_with_shared_caches(text, &[layer]), &mut weights, &mut seeded(0)).err().unwrap();
        assert!(
            weights.is_empty()
                && small_config().weight_count(&plan_with_shared_caches(text, &[layer])).err() == Some(error.clone())
        );
        error.to_string()
    };
    assert!(error("full", 0).contains("layer 0, which shares the cache of an earlier layer"));
    assert!(error("full full{kv=1}", 1).contains("an earlier layer with the same mixer"));
    assert!(error("window{size=3} window{size=4}", 1).contains("layer 1"));
    assert!(error("gdn gdn", 1).contains("expected full or window attention there"));
    assert!(error("full full{conv=3}", 1).contains("conv=0"));
    assert!(error("rwkv7 rwkv7", 1).contains("layer 1, which shares the cache of an earlier layer"));
}

#[test]
fn bidirectional_model_attends_to_later_tokens() {
    let config = ModelConfig { causal: false, ..small_config() };
    for text in ["full", "linear", "linear{normaliser=no}"] {
        let (model, weights) = build::<f64>(&config, text);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let first = |tokens: &[u32]| {
            let (hidden, _) = model.forward(&ops, tokens, 1, None).unwrap();
            ops.values(&ops.slice(&hidden, 1, 0..1))
        };
        assert_ne!(first(&[1, 2, 3]), first(&[1, 2, 4]), "{text}");
        // Without positions, the output does not depend on the order of tokens.
        for (a, b) in first(&[1, 2, 3]).iter().zip(first(&[1, 3, 2])) {
            assert!((a - b).abs() < 1e-12, "{text}");
        }
        let (_, state) = model.forward(&ops, &[1], 1, None).unwrap();
        assert_eq!(model.forward(&ops, &[1], 1, Some(&state)).err(), Some(ModelError::StateOfBidirectional));
    }
}

#[test]
fn exact_and_tanh_gelu_differ_slightly() {
    let loss = |gelu| {
        let (model, weights) = build::<f64>(&ModelConfig { gelu, ..small_config() }, "full gdn");
        let ops = Native::new();
        ops.bind(&weights);
        let (loss, _) = model.loss(&ops, &[1, 2, 3, 4], 1, &[2, 3, 4, 5]).unwrap();
        let value = ops.values(&loss)[0];
        ops.backward(&loss);
        assert!(ops.gradient().iter().all(|slope| slope.is_finite()));
        value
    };
    let difference = (loss(Gelu::Tanh) - loss(Gelu::Exact)).abs();
    assert!(difference > 0.0 && difference < 1e-2, "{difference}");
}

#[test]
fn weights_have_pytorch_names_and_keys_copy_queries() {
    let config = ModelConfig { init_key_from_query: true, norm: NormConfig::Layer, ..small_config() };
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

/// A value is embedded as the negative of the same argument, so the initial key projections of full and compositional attention are
/// the negatives of the query projections; those of recurrences and windowed attention are copies.
#[test]
fn attention_keys_are_negated_queries_where_fields_share_a_table() {
    let task = rung_theory::task::parse("funccomp{hops=1,m=4}").unwrap();
    let config = ModelConfig { init_key_from_query: true, input: InputConfig::Fields(task.fields()), ..small_config() };
    let (_, weights) = build::<f32>(&config, "full deltanet{conv=0} window{size=4} compositional");
    let get = |layer: usize, name: &str| {
        weights.get(weights.find(&format!("layers.{layer}.mixer.{name}_proj.weight")).unwrap()).to_vec()
    };
    let negated_query = |layer| get(layer, "q").iter().map(|weight| -weight).collect::<Vec<_>>();
    for layer in [0, 3] {
        assert_eq!(get(layer, "k"), negated_query(layer), "layer {layer}");
    }
    for layer in [1, 2] {
        assert_eq!(get(layer, "k"), get(layer, "q"), "layer {layer}");
    }
    let without_fields = ModelConfig { init_key_from_query: true, ..small_config() };
    let (_, weights) = build::<f32>(&without_fields, "full");
    let get = |name: &str| weights.get(weights.find(name).unwrap());
    assert_eq!(get("layers.0.mixer.k_proj.weight"), get("layers.0.mixer.q_proj.weight"));
}

/// HGRN2's lower bounds are one table with a row for every layer of the model; the first layer does not use it.
#[test]
fn weights_shared_by_layers_are_added_once() {
    let (_, weights) = build::<f32>(&small_config(), "hgrn2 full hgrn2 hgrn2");
    let tables: Vec<_> = weights.entries().filter(|(_, entry)| entry.name.contains("lower_bounds")).collect();
    assert_eq!(tables.len(), 1);
    assert_eq!((tables[0].1.name.as_str(), tables[0].1.shape[0]), ("lower_bounds", 4));
    let plan = plan("hgrn2 full hgrn2 hgrn2");
    assert_eq!(small_config().weight_count(&plan).unwrap(), weights.size() as u128);
    let shapes = small_config().param_shapes(&plan).unwrap();
    assert!(shapes.iter().map(|param| &param.name).eq(weights.entries().map(|(_, entry)| &entry.name)));
    let (_, first_layer_only) = build::<f32>(&small_config(), "hgrn2 full");
    assert!(first_layer_only.find("lower_bounds").is_none());
}

#[test]
fn invalid_plans_are_rejected_before_anything_is_allocated() {
    let error = |config: &ModelConfig, plan: &Plan| {
        let mut weights = Parameters::<f32>::new();
        let error = config.init(plan, &mut weights, &mut seeded(0)).err().expect("an error");
        assert!(weights.is_empty(), "weights were allocated");
        error
    };
    let wide = Defaults { heads: 1 << 10, head_dim: 1 << 10, ..Defaults::default() };
    let large = Plan::parse("gdn", &wide).unwrap();
    assert!(matches!(error(&small_config(), &large), ModelError::TooLarge { found, .. } if found > 1_000_000_000_000));
    assert!(matches!(error(&small_config(), &plan("full*1000000")), ModelError::TooLarge { .. }));
    let vocabulary = ModelConfig { input: InputConfig::Vocabulary(usize::MAX), ..small_config() };
    assert!(matches!(error(&vocabulary, &plan("full")), ModelError::TooLarge { .. }));
    let hidden = ModelConfig { feed_forward: FeedForwardConfig::Mlp { hidden: Some(usize::MAX) }, ..small_config() };
    assert!(matches!(error(&hidden, &plan("full")), ModelError::TooLarge { .. }));
    let learned = ModelConfig { positions: Positions::Learned { length: usize::MAX }, ..small_config() };
    assert!(matches!(error(&learned, &plan("full")), ModelError::TooLarge { .. }));
    // The invalid layer is the last, and nothing was allocated for the first.
    assert!(matches!(error(&small_config(), &plan("full gdn compressed")), ModelError::MixerNotImplemented { .. }));
    assert!(matches!(error(&small_config(), &plan("full full{heads=4,kv=3}")), ModelError::InvalidSize { .. }));
    assert!(matches!(
        error(&ModelConfig { classes: 0, ..small_config() }, &plan("full")),
        ModelError::InvalidSize { .. }
    ));
    assert!(matches!(
        error(&ModelConfig { chunk: 0, ..small_config() }, &plan("full")),
        ModelError::InvalidSize { .. }
    ));
    let fields = ModelConfig { input: InputConfig::Fields(Vec::new()), ..small_config() };
    assert!(matches!(error(&fields, &plan("full")), ModelError::InvalidSize { what: "vocabulary", .. }));
    let repeated = vec![Field::new("key", 3), Field::new("key", 4)];
    let fields = ModelConfig { input: InputConfig::Fields(repeated), ..small_config() };
    assert!(matches!(error(&fields, &plan("full")), ModelError::DuplicateField { .. }));
    let rotary = ModelConfig { positions: Positions::Rotary { base: f64::NAN }, ..small_config() };
    assert!(matches!(error(&rotary, &plan("full")), ModelError::InvalidNumber { .. }));
    assert!(matches!(
        error(&ModelConfig { init_std: -1.0, ..small_config() }, &plan("full")),
        ModelError::InvalidNumber { .. }
    ));
    let unknown = ModelConfig { unembedding_field: Some("value".to_owned()), ..small_config() };
    assert!(matches!(
        error(&unknown, &plan("full")),
        ModelError::InvalidSize { what: "symbols of the unembedding field", .. }
    ));
    let tied = ModelConfig { tied_unembedding: true, classes: 8, ..small_config() };
    assert!(matches!(error(&tied, &plan("full")), ModelError::InvalidSize { what: "classes", .. }));
}

#[test]
fn errors_name_invalid_tokens_targets_and_states() {
    let config = ModelConfig { positions: Positions::Learned { length: 4 }, ..small_config() };
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
    let batch_error = model.forward(&ops, &[1, 1], 2, Some(&state)).err().unwrap();
    assert!(matches!(batch_error, ModelError::WrongState { .. }));
    assert!(matches!(model.loss(&ops, &[1], 1, &[9]), Err(ModelError::TargetOutOfRange { found: 9, .. })));
    assert!(matches!(model.loss(&ops, &[1], 1, &[1, 1]), Err(ModelError::InvalidSize { .. })));
    assert_eq!(model.loss(&ops, &[1], 1, &[NO_TARGET]).unwrap().1, 0);
}

/// Creates a temporary directory for a test.
fn temporary_directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("rung-nn-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn saved_weights_are_loaded_bit_for_bit() {
    let directory = temporary_directory("round-trip");
    let path = directory.join("model.safetensors");
    let (_, weights) = build::<f32>(&small_config(), ALL_MIXERS);
    save(&path, &weights).unwrap();
    let mut other = Parameters::<f32>::new();
    small_config().init(&plan(ALL_MIXERS), &mut other, &mut seeded(99)).unwrap();
    assert_ne!(other.flat(), weights.flat());
    load(&path, &mut other).unwrap();
    assert_eq!(other.flat(), weights.flat());
    // Weights in double precision load a single-precision file and save a double-precision one.
    let mut double = Parameters::<f64>::new();
    small_config().init(&plan(ALL_MIXERS), &mut double, &mut seeded(99)).unwrap();
    load(&path, &mut double).unwrap();
    assert!(double.flat().iter().zip(weights.flat()).all(|(a, b)| a.to_bits() == f64::from(*b).to_bits()));
    save(&path, &double).unwrap();
    load(&path, &mut other).unwrap();
    assert_eq!(other.flat(), weights.flat());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "a temporary file was left");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn invalid_checkpoints_are_rejected_and_change_no_weight() {
    let directory = temporary_directory("broken");
    let path = directory.join("model.safetensors");
    let (_, mut weights) = build::<f32>(&small_config(), "full gdn");
    let before = weights.flat().to_vec();
    save(&path, &weights).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let invalid_files = [[&bytes[..], &[0]].concat(), bytes[..100].to_vec(), bytes[..3].to_vec(), Vec::new()];
    for invalid in invalid_files.iter().chain([&vec![0xff; 64], &b"not a checkpoint at all, but some text".to_vec()]) {
        std::fs::write(&path, invalid).unwrap();
        let error = load(&path, &mut weights).unwrap_err();
        assert!(matches!(error, CheckpointError::InvalidFile { .. }), "{error}");
        assert!(error.to_string().contains("model.safetensors"));
    }
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = load(&path, &mut weights).unwrap_err();
    assert!(
        matches!(&error, CheckpointError::Truncated { expected, .. } if *expected == bytes.len() as u64),
        "{error}"
    );
    assert!(error.to_string().contains("cut off in tensor `"), "{error}");
    let mut flipped = bytes.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    std::fs::write(&path, &flipped).unwrap();
    let error = load(&path, &mut weights).unwrap_err();
    assert!(matches!(error, CheckpointError::ChecksumMismatch { .. }), "{error}");
    let mut load_error = |text: &str, config: &ModelConfig| {
        save(&path, &build::<f32>(config, text).1).unwrap();
        load(&path, &mut weights).unwrap_err().to_string()
    };
    let shape = load_error("full{kv=1} gdn", &small_config());
    assert!(shape.contains("`layers.0.mixer.k_proj.weight`: found shape [8, 16], expected [16, 16]"), "{shape}");
    let missing = load_error("full", &small_config());
    assert!(missing.contains("`layers.1.mixer_norm.weight` is missing; expected shape [16]"), "{missing}");
    let unknown = load_error("full gdn conv", &small_config());
    assert!(unknown.contains("`layers.2.mixer.conv.weight` of shape [16, 1, 3] is not a weight"), "{unknown}");
    assert_eq!(weights.flat(), before);
    assert!(matches!(load(&directory.join("nowhere"), &mut weights), Err(CheckpointError::System { .. })));
    assert!(matches!(save(&directory.join("no/where"), &weights), Err(CheckpointError::Write { .. })));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn fused_kernels_agree_with_composed_operations_in_a_model() {
    let configs = [
        ModelConfig { positions: Positions::Alibi, ..small_config() },
        ModelConfig {
            feed_forward: FeedForwardConfig::Glu { hidden: None },
            norm: NormConfig::Layer,
            ..small_config()
        },
    ];
    let (tokens, targets) = ([1, 2, 3, 4, 5, 6, 0, 1, 2, 3], [2, 3, 4, NO_TARGET, 6, 0, 1, 2, 3, 4]);
    for config in configs {
        let (model, weights) = build::<f64>(&config, ALL_MIXERS);
        let (native, composed) = (Native::new(), NoFusedKernels(Native::new()));
        native.bind(&weights);
        composed.0.bind(&weights);
        let (actual, _) = model.loss(&native, &tokens, 2, &targets).unwrap();
        let (expected, _) = model.loss(&composed, &tokens, 2, &targets).unwrap();
        assert!((native.values(&actual)[0] - composed.values(&expected)[0]).abs() < 1e-9);
        native.backward(&actual);
        composed.0.backward(&expected);
        for (a, b) in native.gradient().iter().zip(composed.0.gradient()) {
            assert!((a - b).abs() < 1e-8, "{a} and {b}");
        }
    }
}

/// Rows of eight letters in random order, twice. In the second half the target is the next letter.
fn induction_batch(rows: usize, seed: u64) -> (Vec<u32>, Vec<u32>) {
    let (mut rng, mut tokens, mut targets) = (seeded(seed), Vec::new(), Vec::new());
    for _ in 0..rows {
        let mut letters: Vec<u32> = (0..8).collect();
        rung_theory::task::shuffle(&mut rng, &mut letters);
        tokens.extend(letters.iter().chain(&letters));
        targets.extend([NO_TARGET; 8].iter().chain(&letters[1..]).chain(&[NO_TARGET]));
    }
    (tokens, targets)
}

/// Losses and final weights of a short training run.
fn train(text: &str, steps: usize) -> (Vec<f64>, Vec<f32>) {
    train_with(SimulatedPrecision::default(), text, steps)
}

fn train_with(precision: SimulatedPrecision, text: &str, steps: usize) -> (Vec<f64>, Vec<f32>) {
    let config =
        ModelConfig { input: InputConfig::Vocabulary(8), classes: 8, init_std: 0.15, ..ModelConfig::default() };
    let config = ModelConfig { positions: Positions::Rotary { base: 10_000.0 }, precision, ..config };
    let (model, mut weights) = build::<f32>(&config, text);
    let (mut trainer, rows) = (DataParallel::new(2, 8), 32);
    let mut optimizer = AdamWConfig { rate: 3e-3, ..AdamWConfig::default() }.init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let (tokens, targets) = induction_batch(rows, step as u64);
        let outcome = trainer.compute_gradient(&weights, rows, |ops: &Native<f32>, items| {
            let range = items.start * 16..items.end * 16;
            let (loss, _) = model.loss(ops, &tokens[range.clone()], items.len(), &targets[range]).unwrap();
            ops.scale(&loss, 1.0 / (7 * rows) as f64)
        });
        losses.push(outcome.unwrap().loss);
        optimizer.update(&mut weights, trainer.gradient(), 1.0);
    }
    (losses, weights.flat().to_vec())
}

#[test]
fn tiny_models_learn_induction() {
    for text in ["full*2", "conv gdn", "conv linear", "gla+window{size=4} full"] {
        let (losses, _) = train(text, 250);
        let (first, last) = (losses[0], losses[240..].iter().sum::<f64>() / 10.0);
        assert!(last < 0.6 * first, "{text}: from {first} to {last}");
    }
}

#[test]
fn training_with_the_same_seed_is_deterministic() {
    assert_eq!(train(ALL_MIXERS, 100), train(ALL_MIXERS, 100));
}

#[test]
fn low_precision_model_runs_in_spans_and_learns() {
    let config = ModelConfig { precision: SimulatedPrecision::bits(8, 8.0), ..small_config() };
    let (model, weights) = build::<f64>(&config, ALL_MIXERS);
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let tokens = [1, 2, 3, 4, 5, 6, 0, 1, 2];
    let (_, expected) = model.forward(&ops, &tokens, 1, None).unwrap();
    let (_, state) = model.forward(&ops, &tokens[..4], 1, None).unwrap();
    let (_, state) = model.forward(&ops, &tokens[4..], 1, Some(&state)).unwrap();
    for (a, b) in expected.states.iter().zip(&state.states) {
        for (a, b) in a.tensors.iter().flatten().zip(b.tensors.iter().flatten()) {
            assert_eq!(ops.values(a), ops.values(b));
        }
    }
    let (losses, _) = train_with(SimulatedPrecision::bits(8, 8.0), "conv full", 150);
    let (first, last) = (losses[0], losses[140..].iter().sum::<f64>() / 10.0);
    assert!(last < 0.8 * first, "from {first} to {last}");
    for (precision, what) in [(SimulatedPrecision::bits(0, 1.0), "bits"), (SimulatedPrecision::bits(25, 1.0), "bits")]
        .into_iter()
        .chain([0.0, -1.0, f64::NAN, f64::INFINITY].map(|range| (SimulatedPrecision::bits(8, range), "range")))
    {
        let config = ModelConfig { precision, ..small_config() };
        let error = config.init(&plan("gdn"), &mut Parameters::<f32>::new(), &mut seeded(0)).err().unwrap();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn model_with_a_custom_mixer_is_built_and_trained() {
    struct RunningMean;
    impl TokenMixer for RunningMean {
        fn forward<O: Ops>(
            &self,
            ops: &O,
            x: &O::Tensor,
            state: Option<&State<O::Tensor>>,
        ) -> (O::Tensor, State<O::Tensor>) {
            let (time, past_len) = (ops.shape(x)[1], State::past_len(state));
            let sums = ops.cumulative_sum(x, 1);
            let sums = State::tensor(state, 0).map_or(sums.clone(), |past_sum| ops.add(&sums, past_sum));
            let reciprocals: Vec<O::Scalar> =
                (past_len..past_len + time).map(|t| O::Scalar::from_f64(1.0 / (t + 1) as f64)).collect();
            let out = ops.mul(&sums, &ops.constant(&[time, 1], &reciprocals));
            (out, State::new(past_len + time, [Some(ops.slice(&sums, 1, time - 1..time))]))
        }
    }
    let mut weights = Parameters::<f32>::new();
    let model = small_config().init_with(16, 2, &mut weights, &mut seeded(0), |_, _| Ok(vec![RunningMean])).unwrap();
    let ops = Native::new();
    ops.bind(&weights);
    let (loss, target_count) = model.loss(&ops, &[1, 2, 3, 4], 2, &[2, 3, 4, NO_TARGET]).unwrap();
    assert_eq!(target_count, 3);
    ops.backward(&loss);
    assert!(ops.gradient().iter().any(|value| *value != 0.0));
}

#[test]
fn fields_of_one_alphabet_share_a_table_and_a_blank() {
    let fields = vec![
        Field::new("kind", 3),
        Field::new("argument", 4).with_blank().with_alphabet("number"),
        Field::new("value", 6).with_blank().with_alphabet("number"),
    ];
    let mut weights = Parameters::<f64>::new();
    let config = ModelConfig { input: InputConfig::Fields(fields), ..small_config() };
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
    // With a gain of one, the embedding does not depend on which field has a number.
    let gain = weights.find("embeddings.value.gain").unwrap();
    assert_eq!(weights.get(gain), [-1.0; 16]);
    weights.get_mut(gain).fill(1.0);
    let difference = hidden(&weights, &[1, 2, 5])
        .iter()
        .zip(hidden(&weights, &[1, 3, 2]))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(difference < 1e-12, "argument 2 with a blank value is value 2 with a blank argument: {difference}");
    assert_ne!(hidden(&weights, &[1, 3, 3]), hidden(&weights, &[1, 3, 5]), "3 is a value and the blank of arguments");
    let ops = Native::new();
    ops.bind_frozen(&weights);
    assert!(matches!(model.forward(&ops, &[1, 4, 5], 1, None), Err(ModelError::TokenOutOfRange { .. })));
}

/// Logits and gradients.
#[test]
fn logits_at_some_tokens_equal_those_of_a_full_forward_pass() {
    let (tokens, positions) = ([1, 2, 3, 4, 5, 6, 6, 5], [7, 2, 2, 4]);
    for placement in [NormPlacement::Pre, NormPlacement::Post] {
        for feed_forward in [FeedForwardConfig::default(), FeedForwardConfig::None] {
            let config = ModelConfig { placement, feed_forward, ..small_config() };
            let (model, weights) = build::<f64>(&config, "gdn full+gdn");
            let logits_and_gradient = |logits: &dyn Fn(&Native<f64>) -> Tensor<f64>| {
                let ops = Native::new();
                ops.bind(&weights);
                let logits = logits(&ops);
                ops.backward(&ops.sum_all(&ops.cross_entropy(&logits, &[1, 2, 3, 4])));
                (ops.values(&logits), ops.gradient())
            };
            let (actual, gradient) = logits_and_gradient(&|ops| model.logits_at(ops, &tokens, 2, &positions).unwrap());
            let (expected, expected_gradient) = logits_and_gradient(&|ops| {
                let (hidden, _) = model.forward(ops, &tokens, 2, None).unwrap();
                let rows = ops.gather_rows(&ops.reshape(&hidden, &[tokens.len(), 16]), &positions);
                model.logits(ops, &rows)
            });
            let close = |actual: &[f64], expected: &[f64]| {
                actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
            };
            assert!(close(&actual, &expected), "{placement:?}, {feed_forward:?}: {actual:?} {expected:?}");
            assert!(close(&gradient, &expected_gradient), "{placement:?}, {feed_forward:?}");
            let ops = Native::new();
            ops.bind_frozen(&weights);
            for (positions, what, number) in [(vec![8], "position", 8), (vec![], "positions", 0)] {
                let Err(ModelError::InvalidSize { what: reported, found, .. }) =
                    model.logits_at(&ops, &tokens, 2, &positions)
                else {
                    panic!("{positions:?} was accepted");
                };
                assert_eq!((reported, found), (what, number));
            }
        }
    }
}

/// Two layers have an auxiliary loss; the model's loss does not change.
#[test]
fn training_loss_includes_the_auxiliary_losses_of_mixers() {
    const SPARSE: &str = "dsa{top=2,index-heads=2,index-head=4}";
    let (tokens, targets) = ([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, NO_TARGET]);
    for placement in [NormPlacement::Pre, NormPlacement::Post] {
        let config = ModelConfig { placement, ..small_config() };
        let (model, weights) = build::<f64>(&config, &format!("{SPARSE} full {SPARSE}"));
        let ops = Native::new();
        ops.bind(&weights);
        let TrainingLoss { sum, count, auxiliary, .. } = model.training_loss(&ops, &tokens, 1, &targets, &[]).unwrap();
        let (expected, expected_count) = model.loss(&ops, &tokens, 1, &targets).unwrap();
        assert_eq!((ops.values(&sum), count), (ops.values(&expected), expected_count));
        let auxiliary = auxiliary.expect("two layers have an auxiliary loss");
        assert!(ops.values(&auxiliary)[0] > 0.0);
        ops.backward(&auxiliary);
        let gradient = ops.gradient();
        for (_, entry) in weights.entries() {
            let has_gradient = gradient[entry.range.clone()].iter().any(|slope| *slope != 0.0);
            assert_eq!(has_gradient, entry.name.contains(".indexer."), "{}", entry.name);
        }
    }
    let (model, weights) = build::<f64>(&small_config(), "full gdn");
    let ops = Native::new();
    ops.bind_frozen(&weights);
    assert!(model.training_loss(&ops, &tokens, 1, &targets, &[]).unwrap().auxiliary.is_none());
}

/// A model of structured tokens whose unembedding is the embedding of the field `value`, and a prompt with its tokens, targets and
/// intermediate targets.
fn function_composition() -> (ModelConfig, Vec<u32>, Vec<u32>, Vec<u32>) {
    let task = rung_theory::task::parse("funccomp{hops=2,m=3,n=[2],queries=3,mixed=yes,names=levels}").unwrap();
    let mut prompt = rung_theory::task::Prompt::new();
    task.sample_prompt(&mut seeded(1), &mut prompt);
    let (input, classes) = (InputConfig::Fields(task.fields()), task.classes() as usize);
    let config = ModelConfig {
        input,
        classes,
        unembedding_field: Some("value".to_owned()),
        init_key_from_query: true,
        init_std: 0.3,
        ..small_config()
    };
    (config, prompt.tokens().to_vec(), prompt.targets().to_vec(), prompt.intermediate_answers().to_vec())
}

#[test]
fn embedding_of_a_field_serves_as_unembedding() {
    let (config, tokens, ..) = function_composition();
    let (model, weights) = build::<f64>(&config, "gated full");
    assert!(weights.find("lm_head.weight").is_none());
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let (hidden, _) = model.forward(&ops, &tokens, 1, None).unwrap();
    let (actual, hidden) = (ops.values(&model.logits(&ops, &hidden)), ops.values(&hidden));
    let get = |name: &str| weights.get(weights.find(name).unwrap());
    let (table, gain) = (get("embeddings.number.weight"), get("embeddings.value.gain"));
    for (token, hidden) in hidden.chunks(16).enumerate() {
        for class in 0..config.classes {
            let row = &table[class * 16..(class + 1) * 16];
            let expected: f64 = hidden.iter().zip(row).zip(gain).map(|((x, e), g)| x * e * g).sum();
            assert!((actual[token * config.classes + class] - expected).abs() < 1e-10);
        }
    }
}

/// Compares the intermediate loss with one computed from the residual streams, and its gradient with finite differences.
#[test]
fn intermediate_loss_is_that_of_logits_after_its_layer() {
    let (config, tokens, targets, answers) = function_composition();
    let (model, mut weights) = build::<f64>(&config, "gated full full");
    let intermediate_targets =
        [IntermediateTargets { layer: 1, classes: answers.chunks(2).map(|pair| pair[0] as usize).collect() }];
    let ops = Native::new();
    let intermediate_loss = |weights: &Parameters<f64>| {
        ops.bind_frozen(weights);
        let actual = model
            .training_loss(&ops, &tokens, 1, &targets, &intermediate_targets)
            .unwrap()
            .intermediate
            .expect("one layer");
        ops.values(&actual)[0]
    };
    let actual = intermediate_loss(&weights);
    let residuals = model.residuals(&ops, &tokens, 1).unwrap();
    let logits = ops.values(&model.logits_from_residual(&ops, &residuals[2]));
    let positions = (0..targets.len()).filter(|position| targets[*position] != NO_TARGET);
    let expected: f64 = positions
        .zip(&intermediate_targets[0].classes)
        .map(|(position, class)| {
            let logits = &logits[position * config.classes..(position + 1) * config.classes];
            logits.iter().map(|logit| logit.exp()).sum::<f64>().ln() - logits[*class]
        })
        .sum();
    assert!((actual - expected).abs() < 1e-9, "{actual}, expected {expected}");
    ops.bind(&weights);
    let TrainingLoss { sum, intermediate, .. } =
        model.training_loss(&ops, &tokens, 1, &targets, &intermediate_targets).unwrap();
    let (loss, _) = model.loss(&ops, &tokens, 1, &targets).unwrap();
    assert_eq!(ops.values(&sum), ops.values(&loss), "the loss itself does not change");
    ops.backward(&intermediate.expect("one layer"));
    let gradient = ops.gradient();
    let middle_weights: Vec<_> =
        weights.entries().map(|(_, entry)| (entry.name.clone(), entry.range.start + entry.range.len() / 2)).collect();
    for (name, index) in middle_weights {
        let (value, step) = (weights.flat()[index], 1e-5);
        let mut loss_at = |change: f64| {
            weights.flat_mut()[index] = value + change;
            intermediate_loss(&weights)
        };
        let expected = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        loss_at(0.0);
        assert!((gradient[index] - expected).abs() < 1e-6, "{name}: {}, expected {expected}", gradient[index]);
        if name.starts_with("layers.2.") {
            assert!(gradient[index].abs() < 1e-12, "{name} is after the intermediate layer");
        }
    }
}
