//! Exported networks, opened again as checkpoints, give the same answers and the same logits.

use std::path::{Path, PathBuf};

use rung_engine::{Native, Ops as _, Parameters};
use rung_nn::construct::{self, ConstructionRequest};
use rung_nn::export::{ExportFormat, ExportOptions, ExportedCheckpoint, NumberFormat, Vocabulary, export};
use rung_nn::families::{self, Checkpoint};
use rung_nn::{FeedForwardConfig, InputConfig, ModelConfig, Network, NormConfig, Positions};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task::{self, Prompt, seeded};

/// A temporary folder that is removed when dropped.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rung-export-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Whether this crate can open the exported checkpoint; `examples/check_export.py` checks the others.
fn can_be_opened(exported: &ExportedCheckpoint) -> bool {
    let (is_gguf, family) = (exported.format == ExportFormat::Gguf, exported.family);
    families::supported_names(is_gguf).contains(&if is_gguf {
        family.architecture.unwrap_or_default()
    } else {
        family.name
    })
}

fn reopen(exported: &ExportedCheckpoint, folder: &Path) -> Checkpoint<f32> {
    exported.write(folder).unwrap();
    let path = if exported.format == ExportFormat::Gguf { folder.join("model.gguf") } else { folder.to_owned() };
    families::open(&path).unwrap()
}

fn options(format: ExportFormat) -> ExportOptions {
    ExportOptions { format, ..ExportOptions::default() }
}

/// How many instances of its task a reopened construction answers right (by the highest logit over the vocabulary), out of how many.
/// Only every `step`-th instance is run.
fn count_right(network: &Network<f32>, exported: &ExportedCheckpoint, name: &str, step: u128) -> (u128, u128) {
    let scratch = TempFolder::new(name);
    let opened = reopen(exported, &scratch.0);
    let task = network.task().unwrap();
    let ops = Native::with_threads(1);
    ops.bind_frozen(&opened.weights);
    let (mut prompt, mut right, mut total) = (Prompt::new(), 0, 0);
    let mut index = 0;
    while task.nth_prompt(index, &mut prompt) {
        let ids = exported.vocabulary.ids(prompt.tokens(), prompt.ids_per_token()).unwrap();
        let (hidden, _) = opened.model.forward(&ops, &ids, 1, None).unwrap();
        let last = ops.slice(&hidden, 1, ids.len() - 1..ids.len());
        let logits = ops.values(&opened.model.logits(&ops, &last));
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
        let (_, target, _) = prompt.questions().next().unwrap();
        right += u128::from(best as u32 == Vocabulary::answer_id(target));
        total += 1;
        index += step;
    }
    (right, total)
}

#[test]
fn constructions_answer_every_instance_after_a_round_trip() {
    let with_mixer = |mixer: &str| ConstructionRequest {
        hops: 2,
        first_table_entries: 2,
        growth_factors: vec![2],
        mixer: Some(mixer.to_owned()),
        ..ConstructionRequest::default()
    };
    let cases: [(&str, &str, ConstructionRequest, u128); 5] = [
        (
            "u1-2",
            "U1",
            ConstructionRequest {
                hops: 2,
                first_table_entries: 2,
                growth_factors: vec![2],
                ..ConstructionRequest::default()
            },
            1,
        ),
        (
            "u1-3",
            "U1",
            ConstructionRequest {
                hops: 3,
                first_table_entries: 2,
                growth_factors: vec![1, 2],
                ..ConstructionRequest::default()
            },
            13,
        ),
        ("u2-mamba2", "U2", with_mixer("mamba2"), 3),
        ("u2-wide", "U2", with_mixer("mamba2{heads=4,head=8,state=4,groups=2}"), 7),
        ("u2-gdn", "U2", with_mixer("gdn"), 5),
    ];
    for (name, construction, request, step) in cases {
        let network = construct::build::<f32>(construction, &request).unwrap();
        for format in [ExportFormat::HuggingFace, ExportFormat::Gguf] {
            for numbers in [NumberFormat::F32, NumberFormat::Bf16] {
                let exported = export(&network, &ExportOptions { numbers, ..options(format) }).unwrap();
                assert!(can_be_opened(&exported), "{name} {format:?}");
                let (right, total) = count_right(&network, &exported, name, step);
                assert_eq!(right, total, "{name} {format:?} {numbers:?}");
                assert!(total > 500, "{name}");
            }
        }
    }
}

/// Shows that the test above can fail.
#[test]
fn a_construction_with_one_negated_weight_answers_wrong() {
    let mut network = construct::build::<f32>(
        "U1",
        &ConstructionRequest {
            hops: 2,
            first_table_entries: 2,
            growth_factors: vec![2],
            ..ConstructionRequest::default()
        },
    )
    .unwrap();
    network.change_weights(|name, values| {
        if name == "layers.1.mixer.k_proj.weight" {
            for value in values.iter_mut() {
                *value = -*value;
            }
        }
    });
    let exported = export(&network, &ExportOptions::default()).unwrap();
    let (right, total) = count_right(&network, &exported, "negated", 1);
    assert!(right < total * 3 / 4, "{right} of {total}");
}

/// A network with random weights, with the config of a trained run.
fn random_network(stack: &str, width: u64, config: ModelConfig, spec: &str) -> Network<f32> {
    let task = task::parse(spec).unwrap();
    let defaults = Defaults { heads: 2, head_dim: 8, kv_heads: None, model_width: Some(width), bits: 32 };
    let plan = Plan::parse(stack, &defaults).unwrap();
    let fields = task.fields();
    let input = if fields.len() == 1 {
        InputConfig::Vocabulary(fields[0].vocabulary as usize)
    } else {
        InputConfig::Fields(fields)
    };
    let config = ModelConfig { input, classes: task.classes() as usize, init_std: 0.2, ..config };
    let mut weights = Parameters::new();
    let model = config.init(&plan, &mut weights, &mut seeded(7)).unwrap();
    Network::new("random".to_owned(), task, plan, config, model, weights)
}

#[test]
fn logits_of_networks_with_norms_are_the_same_after_a_round_trip() {
    let glu = FeedForwardConfig::Glu { hidden: Some(24) };
    let rotary = Positions::Rotary { base: 10_000.0 };
    let task = "funccomp{hops=2,m=3,n=[2],queries=2,mixed=yes}";
    let level_names = "funccomp{hops=2,m=3,n=[2],names=levels}";
    let with_glu = ModelConfig { feed_forward: glu, ..ModelConfig::default() };
    let with_rotary = ModelConfig { positions: rotary, ..with_glu.clone() };
    let with_tied_unembedding = ModelConfig { unembedding_field: Some("value".to_owned()), ..with_glu.clone() };
    let without_feed_forward = ModelConfig { feed_forward: FeedForwardConfig::None, ..with_glu.clone() };
    let cases = [
        ("qwen35", "gdn{heads=2,key=8,value=8} gdn{heads=2,key=8,value=8}", 16, with_glu.clone(), task),
        ("llama", "full full", 16, with_glu.clone(), task),
        ("llama", "full full", 20, with_rotary, task),
        ("llama", "full{heads=4,kv=2} full{heads=2,key=8,value=4}", 16, with_tied_unembedding, level_names),
        ("llama", "full", 16, without_feed_forward.clone(), "parity{length=6}"),
        ("granitemoehybrid", "mamba2{heads=4,head=8,state=8} full", 16, with_glu, task),
        (
            "mamba2",
            "mamba2{heads=4,head=8,state=8} mamba2{heads=4,head=8,state=8}",
            16,
            without_feed_forward.clone(),
            task,
        ),
        ("rwkv7", "rwkv7{heads=2,head=64} rwkv7{heads=2,head=64}", 16, without_feed_forward.clone(), task),
        ("rwkv7", "rwkv7{heads=3,head=8} rwkv7{heads=3,head=8}", 16, without_feed_forward, task),
    ];
    for (family, stack, width, config, spec) in cases {
        let network = random_network(stack, width, config, spec);
        for format in [ExportFormat::HuggingFace, ExportFormat::Gguf] {
            // llama.cpp's kernel of RWKV-7 does not support heads this narrow; OLMo Hybrid has no stack without full attention.
            let has_no_target = match format {
                ExportFormat::Gguf => stack.contains("rwkv7{heads=3"),
                ExportFormat::HuggingFace => stack.starts_with("gdn"),
            };
            if has_no_target {
                assert!(export(&network, &options(format)).is_err(), "{stack}");
                continue;
            }
            let exported = export(&network, &options(format)).unwrap();
            assert_eq!(exported.family.name, family);
            assert_same_logits(&network, &exported, stack);
        }
    }
}

/// Compares the logits of a network before and after export, at every token of a prompt.
fn assert_same_logits(network: &Network<f32>, exported: &ExportedCheckpoint, stack: &str) {
    if !can_be_opened(exported) {
        return;
    }
    let scratch = TempFolder::new("logits");
    let opened = reopen(exported, &scratch.0);
    let (mut prompt, ops, opened_ops) = (Prompt::new(), network.executor(), Native::with_threads(1));
    opened_ops.bind_frozen(&opened.weights);
    network.task().unwrap().sample_prompt(&mut seeded(3), &mut prompt);
    let (hidden, _) = network.model.forward(&ops, prompt.tokens(), 1, None).unwrap();
    let expected = ops.values(&network.model.logits(&ops, &hidden));
    let ids = exported.vocabulary.ids(prompt.tokens(), prompt.ids_per_token()).unwrap();
    let (hidden, _) = opened.model.forward(&opened_ops, &ids, 1, None).unwrap();
    let actual = opened_ops.values(&opened.model.logits(&opened_ops, &hidden));
    let (classes, tokens) = (network.model.classes(), opened.model.classes());
    let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    for (expected, actual) in expected.chunks(classes).zip(actual.chunks(tokens)) {
        let first_answer = Vocabulary::answer_id(0) as usize;
        for (expected, actual) in expected.iter().zip(&actual[first_answer..first_answer + classes]) {
            let difference = (expected - actual).abs();
            assert!(difference < 1e-4 * largest, "{stack} {:?}: {expected} {actual}", exported.format);
        }
    }
}

#[test]
fn a_construction_is_checked_in_every_precision() {
    let request = ConstructionRequest {
        hops: 2,
        first_table_entries: 2,
        growth_factors: vec![2],
        ..ConstructionRequest::default()
    };
    let mut network = construct::build::<f32>("U1", &request).unwrap();
    let scratch = TempFolder::new("precisions");
    let check = |network: &Network<f32>| {
        let exported = export(network, &ExportOptions::default()).unwrap();
        exported.write(&scratch.0).unwrap();
        exported.check_precisions(network, &scratch.0, 24).unwrap()
    };
    let checks = check(&network).unwrap();
    let formats: Vec<_> = checks.iter().map(|check| (check.weights, check.cache)).collect();
    assert_eq!(formats.len(), 9);
    assert_eq!((formats[0], formats[8]), (("f32", "f32"), ("f16", "f16")));
    for check in &checks {
        assert!(check.right == 24 && check.instances == 24 && check.smallest_margin > 0.0, "{check:?}");
        assert!(check.largest_margin >= check.smallest_margin, "{check:?}");
    }
    let margins = |index: usize| checks[index].smallest_margin.to_bits();
    assert!(margins(0) != margins(4), "rounding to bfloat16 changes the logits");
    // A construction that is wrong is reported as wrong.
    network.change_weights(|name, values| {
        if name == "layers.0.mixer.v_proj.weight" {
            for value in values.iter_mut() {
                *value = -*value;
            }
        }
    });
    let changed = check(&network).unwrap();
    assert!(changed[0].right < 24 && changed[0].smallest_margin < 0.0, "{:?}", changed[0]);
}

#[test]
fn errors_name_the_component_that_no_family_has() {
    let task = "funccomp{hops=2,m=3,n=[2]}";
    let glu = FeedForwardConfig::Glu { hidden: Some(8) };
    let with_glu = ModelConfig { feed_forward: glu, ..ModelConfig::default() };
    let cases = [
        (
            "full",
            ModelConfig { feed_forward: FeedForwardConfig::Mlp { hidden: None }, ..with_glu.clone() },
            "feed-forward",
        ),
        ("full", ModelConfig { norm: NormConfig::Layer, ..with_glu.clone() }, "layer norms"),
        ("full", ModelConfig { positions: Positions::Alibi, ..with_glu.clone() }, "ALiBi"),
        (
            "full",
            ModelConfig { positions: Positions::Learned { length: 99 }, ..with_glu.clone() },
            "table of positions",
        ),
        ("retnet", with_glu.clone(), "retnet"),
        ("full+mamba2", with_glu.clone(), "parallel mixers"),
        ("full{conv=4}", with_glu.clone(), "convolution"),
        ("gdn full", with_glu.clone(), "OLMo Hybrid"),
        ("mamba2{heads=3,head=4,state=4} full", with_glu.clone(), "twice as many"),
        ("rwkv7{heads=2,head=8}", with_glu.clone(), "feed-forward network"),
    ];
    for (stack, config, component) in cases {
        let network = random_network(stack, 16, config, task);
        let error =
            export(&network, &ExportOptions::default()).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(component), "{stack}: {error}");
    }
    let without_feed_forward = ModelConfig { feed_forward: FeedForwardConfig::None, ..with_glu.clone() };
    for (stack, config, component) in [
        ("gdn full", with_glu.clone(), "Qwen3.5"),
        ("gdn{heads=2,key=8,value=16}", with_glu.clone(), "values of 16"),
        ("rwkv7{heads=2,head=8}", without_feed_forward, "heads of 8"),
    ] {
        let network = random_network(stack, 16, config, task);
        let error =
            export(&network, &options(ExportFormat::Gguf)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(component), "{stack}: {error}");
    }
    let narrow = random_network("gdn{heads=2,key=8,value=8}", 12, with_glu, task);
    let error = export(&narrow, &options(ExportFormat::Gguf)).err().unwrap().to_string();
    assert!(error.contains("multiple of eight"), "{error}");
    let network = construct::build::<f32>("U3", &ConstructionRequest::default()).unwrap();
    let error = export(&network, &ExportOptions::default()).err().unwrap().to_string();
    assert!(error.contains("chain of thought") || error.contains("positions"), "{error}");
    let unknown = ExportOptions { family: Some("gpt".to_owned()), ..ExportOptions::default() };
    let network = construct::build::<f32>("U1", &ConstructionRequest::default()).unwrap();
    assert!(export(&network, &unknown).err().unwrap().to_string().contains("llama"));
}

#[test]
fn extra_tables_are_in_the_vocabulary_and_do_not_change_the_answer() {
    let network = construct::build::<f32>(
        "U1",
        &ConstructionRequest {
            hops: 2,
            first_table_entries: 3,
            growth_factors: vec![1],
            ..ConstructionRequest::default()
        },
    )
    .unwrap();
    let exported = export(&network, &ExportOptions { extra_tables: 1, ..ExportOptions::default() }).unwrap();
    let scratch = TempFolder::new("extra-tables");
    let opened = reopen(&exported, &scratch.0);
    let id = |name: &str| exported.vocabulary.tokens.iter().position(|token| token.name == name).unwrap() as u32;
    // z1 adds one and z2 two (mod 3): from 1 to 2 to 1. z3 would lead to another number.
    let prompt = "z3(0,0)=2 z3(0,1)=0 z3(0,2)=1 z2(0,0)=2 z2(0,1)=0 z2(0,2)=1 z1(0)=1 z1(1)=2 z1(2)=0 z0=1 w=(0,0)";
    let ids: Vec<u32> = prompt.split(' ').map(id).collect();
    let ops = Native::with_threads(1);
    ops.bind_frozen(&opened.weights);
    let (hidden, _) = opened.model.forward(&ops, &ids, 1, None).unwrap();
    let last = ops.slice(&hidden, 1, ids.len() - 1..ids.len());
    let logits = ops.values(&opened.model.logits(&ops, &last));
    let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
    assert_eq!(exported.vocabulary.tokens[best].name, "1");
}
