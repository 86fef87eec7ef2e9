//! External checkpoints: tiny models created by transformers, whose logits are compared with ours.

use std::path::{Path, PathBuf};

use rung_engine::{Native, Ops, Parameters};
use rung_nn::Model;
use rung_nn::families::decode::{CheckpointDecoder, predicted_cache_bytes};
use rung_nn::families::{Checkpoint, open};

struct Expected {
    class: String,
    tokens: Vec<u32>,
    logits: Vec<Vec<f64>>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families")
}

fn read_expected(folder: &Path) -> Expected {
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = |row: &serde_json::Value| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    Expected {
        class: value["class"].as_str().unwrap().to_owned(),
        tokens: value["tokens"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect(),
        logits: value["logits"].as_array().unwrap().iter().map(row).collect(),
    }
}

/// Logits of one forward pass over all tokens.
fn parallel_logits(model: &Model, weights: &Parameters<f32>, tokens: &[u32]) -> Vec<f32> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let (hidden, _) = model.forward(&ops, tokens, 1, None).unwrap();
    ops.values(&model.logits(&ops, &hidden))
}

/// Logits of one forward pass per token, each from the state before it.
fn stepwise_logits(model: &Model, weights: &Parameters<f32>, tokens: &[u32]) -> Vec<f32> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let (mut state, mut logits) = (None, Vec::new());
    for token in tokens {
        let (hidden, next) = model.forward(&ops, &[*token], 1, state.as_ref()).unwrap();
        logits.extend(ops.values(&model.logits(&ops, &hidden)));
        state = Some(next);
    }
    logits
}

/// The largest difference, relative to the largest logit.
fn relative_difference(actual: &[f32], expected: &[Vec<f64>]) -> f64 {
    let expected: Vec<f64> = expected.iter().flatten().copied().collect();
    assert_eq!(actual.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let differences = actual.iter().zip(&expected).map(|(actual, expected)| (f64::from(*actual) - expected).abs());
    differences.fold(0.0, f64::max) / largest
}

fn cases() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

#[test]
fn parallel_and_stepwise_logits_equal_those_of_transformers() {
    let mut failures = Vec::new();
    for path in cases() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = read_expected(&path);
        let Checkpoint { model, weights, .. } = match open::<f32>(&path) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let parallel = relative_difference(&parallel_logits(&model, &weights, &expected.tokens), &expected.logits);
        let stepwise = relative_difference(&stepwise_logits(&model, &weights, &expected.tokens), &expected.logits);
        println!("| {name} | {} | {parallel:.1e} | {stepwise:.1e} |", expected.class);
        if !(parallel < 1e-4 && stepwise < 1e-4) {
            failures.push(format!("{name}: all at once {parallel:.2e}, token by token {stepwise:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn logits_differ_if_one_tensor_is_reversed() {
    for path in cases() {
        let expected = read_expected(&path);
        let Checkpoint { model, mut weights, .. } = open::<f32>(&path).unwrap();
        let matrix = weights.entries().filter(|(_, entry)| entry.shape.len() == 2).nth(1).unwrap().0;
        weights.get_mut(matrix).reverse();
        let difference = relative_difference(&parallel_logits(&model, &weights, &expected.tokens), &expected.logits);
        assert!(difference > 1e-3, "{}: {difference:.1e}", path.display());
    }
}

type Config = serde_json::Map<String, serde_json::Value>;

/// A copy of a fixture's folder with a changed config; its weights are the same file.
fn with_config(name: &str, copy: &str, change: impl FnOnce(&mut Config)) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rung-families-{copy}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = fixtures().join(name);
    std::fs::copy(source.join("model.safetensors"), folder.join("model.safetensors")).unwrap();
    let mut config: Config =
        serde_json::from_str(&std::fs::read_to_string(source.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(folder.join("config.json"), serde_json::to_string(&config).unwrap()).unwrap();
    folder
}

/// Asserts that a folder gives the logits of a fixture.
fn assert_logits_of(name: &str, folder: &Path) {
    let expected = read_expected(&fixtures().join(name));
    let Checkpoint { model, weights, .. } = open::<f32>(folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let difference = relative_difference(&parallel_logits(&model, &weights, &expected.tokens), &expected.logits);
    assert!(difference < 1e-4, "{name}: {difference:.1e}");
}

/// `rope_theta` beside `rope_scaling`, as configs had them before transformers 5.
fn spell_rope_as_before(config: &mut Config) {
    let Some(serde_json::Value::Object(mut rope)) = config.remove("rope_parameters") else {
        panic!("no rope_parameters")
    };
    let theta = rope.remove("rope_theta").unwrap();
    config.insert("rope_theta".to_owned(), theta);
    if rope["rope_type"] != "default" {
        // Older files have `type`.
        let kind = rope.remove("rope_type").unwrap();
        rope.insert("type".to_owned(), kind);
        config.insert("rope_scaling".to_owned(), rope.into());
    }
}

#[test]
fn older_spellings_of_configs_give_the_same_logits() {
    for name in
        ["llama", "llama-llama3", "llama-linear", "llama-yarn", "mistral-tied", "qwen3", "deepseek_v3-yarn", "lfm2"]
    {
        let folder = with_config(name, &format!("rope-{name}"), spell_rope_as_before);
        assert_logits_of(name, &folder);
        // The rotary positions are read: another base gives other logits.
        let changed = with_config(name, &format!("base-{name}"), |config| {
            spell_rope_as_before(config);
            config.insert("rope_theta".to_owned(), 77.0.into());
        });
        let expected = read_expected(&fixtures().join(name));
        let Checkpoint { model, weights, .. } = open::<f32>(&changed).unwrap();
        let found = parallel_logits(&model, &weights, &expected.tokens);
        assert!(relative_difference(&found, &expected.logits) > 1e-3, "{name}");
        for folder in [folder, changed] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
    let gemma = with_config("gemma3-linear", "gemma", |config| {
        let rope = config.remove("rope_parameters").unwrap();
        let [full, window] = ["full_attention", "sliding_attention"].map(|kind| rope[kind].clone());
        config.insert("rope_theta".to_owned(), full["rope_theta"].clone());
        config.insert("rope_local_base_freq".to_owned(), window["rope_theta"].clone());
        config
            .insert("rope_scaling".to_owned(), serde_json::json!({ "rope_type": "linear", "factor": full["factor"] }));
        config.remove("layer_types");
        config.remove("_sliding_window_pattern");
    });
    assert_logits_of("gemma3-linear", &gemma);
    let nemotron = with_config("nemotron_h", "nemotron", |config| {
        config.remove("layers_block_type");
        config.insert("hybrid_override_pattern".to_owned(), "M-*E".into());
        config.insert("num_hidden_layers".to_owned(), 4.into());
    });
    assert_logits_of("nemotron_h", &nemotron);
    let kimi = with_config("kimi_linear", "kimi", |config| {
        config.remove("layer_types");
        let linear = serde_json::json!({
            "kda_layers": [1, 2], "full_attn_layers": [3], "num_heads": config["linear_num_heads"],
            "head_dim": config["linear_head_dim"], "short_conv_kernel_size": config["linear_conv_kernel_dim"],
        });
        for name in ["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"] {
            config.remove(name);
        }
        config.insert("linear_attn_config".to_owned(), linear);
        config.remove("mlp_layer_types");
        config.insert("first_k_dense_replace".to_owned(), 1.into());
        config.insert("moe_layer_freq".to_owned(), 1.into());
    });
    assert_logits_of("kimi_linear", &kimi);
    for folder in [gemma, nemotron, kimi] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_checkpoint_in_several_files_gives_the_same_logits() {
    let folder = with_config("qwen3", "shards", |_| {});
    let whole = folder.join("model.safetensors");
    let bytes = std::fs::read(&whole).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = tensors.tensors();
    tensors.sort_by(|(first, _), (second, _)| first.cmp(second));
    let (first, second) = tensors.split_at(tensors.len() / 2);
    let mut map = serde_json::Map::new();
    for (number, shard) in [first, second].into_iter().enumerate() {
        let name = format!("model-0000{}-of-00002.safetensors", number + 1);
        let views = shard.iter().map(|(name, view)| (name.as_str(), view));
        std::fs::write(folder.join(&name), safetensors::serialize(views, None).unwrap()).unwrap();
        map.extend(shard.iter().map(|(tensor, _)| (tensor.clone(), name.clone().into())));
    }
    std::fs::remove_file(&whole).unwrap();
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    assert_logits_of("qwen3", &folder);
    std::fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    let error = open::<f32>(&folder).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("model-00002-of-00002.safetensors"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn caches_take_the_planned_bytes() {
    let mut failures = Vec::new();
    for path in cases() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = read_expected(&path);
        let Checkpoint { model, weights, .. } = open::<f32>(&path).unwrap();
        let audit = rung_audit::audit_path(&path.join("config.json"), &rung_audit::AuditOptions::default()).unwrap();
        let mut decoder = CheckpointDecoder::new(&model, &weights, 1);
        decoder.logits(&expected.tokens).unwrap();
        let parallel = decoder.cache_bytes() as u64;
        decoder.clear();
        for token in &expected.tokens {
            decoder.next_logits(&[*token]).unwrap();
        }
        let found = [parallel, decoder.cache_bytes() as u64];
        match predicted_cache_bytes(&audit, expected.tokens.len()) {
            Some(planned) if found == [planned; 2] => {}
            // Its config has a field with an entry for each layer that the auditor does not read.
            None if name == "rwkv7-plain" => {}
            planned => failures.push(format!("{name}: found {found:?}, planned {planned:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
