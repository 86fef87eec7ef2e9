//! Every element type is compared with another reader, and malformed files are rejected.

use std::path::{Path, PathBuf};

use rung_nn::families::open;
use rung_nn::weight_files::WeightFiles;
use safetensors::tensor::SafeTensors;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A temporary folder that is removed when dropped.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rung-weights-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with(self, name: &str, bytes: &[u8]) -> Self {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self
    }

    /// The error on opening the folder, or a file in it.
    fn open_error(&self, file: &str) -> String {
        match WeightFiles::open(&self.0.join(file)) {
            Ok(_) => panic!("{} was opened", self.0.display()),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn every_format_decodes_as_in_the_gguf_package() {
    let files = WeightFiles::open(&fixtures().join("formats/formats.gguf")).unwrap();
    let bytes = std::fs::read(fixtures().join("formats/formats.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(files.tensors().count(), expected.len());
    for (name, tensor) in files.tensors() {
        assert_eq!((tensor.format.name(), &tensor.shape[..]), (name, &[2, 512][..]));
        let mut decoded = Vec::new();
        files.read(tensor, |x| decoded.push(x));
        let values = expected.tensor(name).unwrap();
        let values: Vec<f32> = values.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(decoded.len(), values.len());
        let largest = values.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let difference = decoded.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference <= 1e-6 * largest, "{name}: differs by {difference}");
    }
}

/// A safetensors file with this header and `data_bytes` zero bytes of data.
fn safetensors(header: &str, data_bytes: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data_bytes]].concat()
}

#[test]
fn malformed_safetensors_files_are_rejected() {
    let tensor = |dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty", Vec::new(), "model.safetensors"),
        ("header", [&(1_u64 << 60).to_le_bytes()[..], b"{}"].concat(), "whole safetensors file"),
        ("truncated", safetensors(&format!(r#"{{"x":{}}}"#, tensor("F32", "[4]", 0, 16)), 8), "whole safetensors file"),
        (
            "overlap",
            safetensors(&format!(r#"{{"x":{},"y":{}}}"#, tensor("F32", "[2]", 0, 8), tensor("F32", "[2]", 4, 12)), 12),
            "safetensors",
        ),
        (
            "huge",
            safetensors(&format!(r#"{{"x":{}}}"#, tensor("F32", "[1073741824,1073741824]", 0, 16)), 16),
            "safetensors",
        ),
        ("fp8", safetensors(&format!(r#"{{"x":{}}}"#, tensor("F8_E4M3", "[4]", 0, 4)), 4), "F8_E4M3"),
        ("int64", safetensors(&format!(r#"{{"x":{}}}"#, tensor("I64", "[1]", 0, 8)), 8), "I64"),
    ];
    for (name, bytes, expected) in cases {
        let error = TempFolder::new(name).with("model.safetensors", &bytes).open_error("");
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn indexes_that_name_other_files_or_tensors_are_rejected() {
    let index = "model.safetensors.index.json";
    for (name, text, expected) in [
        ("outside", r#"{"weight_map":{"x":"../secret.safetensors"}}"#, "in this folder"),
        ("absolute", r#"{"weight_map":{"x":"/etc/passwd.safetensors"}}"#, "in this folder"),
        ("pickle", r#"{"weight_map":{"x":"pytorch_model.bin"}}"#, "safetensors file in this folder"),
        ("missing", r#"{"weight_map":{"x":"model-00001.safetensors"}}"#, "which is not there"),
        ("map", r#"{"weight_map":[]}"#, "weight_map"),
        ("json", r#"{"weight_map":"#, "JSON"),
    ] {
        let error = TempFolder::new(name).with(index, text.as_bytes()).open_error("");
        assert!(error.contains(expected), "{name}: {error}");
    }
    let other = safetensors(r#"{"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 4);
    let folder =
        TempFolder::new("absent").with(index, br#"{"weight_map":{"x":"a.safetensors"}}"#).with("a.safetensors", &other);
    let error = folder.open_error("");
    assert!(error.contains("`x`") && error.contains("no such tensor"), "{error}");
}

#[test]
fn pickles_and_other_files_are_rejected() {
    let error = TempFolder::new("bin").with("pytorch_model.bin", b"PK\x03\x04").open_error("");
    assert!(error.contains("pickle"), "{error}");
    let error = TempFolder::new("archive").with("model.pt", b"PK\x03\x04rest").open_error("model.pt");
    assert!(error.contains("pickle"), "{error}");
    let error = TempFolder::new("text").with("model.txt", b"hello").open_error("model.txt");
    assert!(error.contains("GGUF"), "{error}");
}

#[test]
fn malformed_gguf_files_are_rejected() {
    let valid = std::fs::read(fixtures().join("formats/formats.gguf")).unwrap();
    let name_start = valid.windows(4).position(|window| window == b"Q8_0").unwrap();
    // A tensor's name is followed by the number of axes, the extents, the format and the offset.
    let change = |offset: usize, bytes: &[u8]| {
        let mut changed = valid.clone();
        let start = name_start + offset;
        changed[start..start + bytes.len()].copy_from_slice(bytes);
        changed
    };
    for (name, bytes, expected) in [
        ("truncated", valid[..valid.len() - 100].to_vec(), "end after the file"),
        ("extents", change(8, &(1_u64 << 60).to_le_bytes()), "Q8_0"),
        ("offset", change(28, &(1_u64 << 63).to_le_bytes()), "inside of its file"),
        ("overlap", change(28, &32_u64.to_le_bytes()), "overlap"),
        ("format", change(24, &20_u32.to_le_bytes()), "of the IQ family"),
        ("rows", change(8, &500_u64.to_le_bytes()), "blocks"),
    ] {
        let error = TempFolder::new(name).with("model.gguf", &bytes).open_error("model.gguf");
        assert!(error.contains(expected), "{name}: {error}");
    }
    for length in [4, 8, 20, 40, 200] {
        TempFolder::new(&format!("header{length}")).with("model.gguf", &valid[..length]).open_error("model.gguf");
    }
}

#[test]
fn errors_name_the_unknown_family_tensor_or_option() {
    let llama = fixtures().join("families/llama");
    let config = std::fs::read_to_string(llama.join("config.json")).unwrap();
    let weights = std::fs::read(llama.join("model.safetensors")).unwrap();
    let open_error = |name: &str, config: &str, weights: &[u8]| {
        let folder = TempFolder::new(name).with("config.json", config.as_bytes()).with("model.safetensors", weights);
        open::<f32>(&folder.0).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let error =
        open_error("unknown", &config.replace(r#""model_type": "llama""#, r#""model_type": "cohere""#), &weights);
    assert!(error.contains("`cohere`") && error.contains("llama"), "{error}");
    let error =
        open_error("shape", &config.replace(r#""intermediate_size": 48"#, r#""intermediate_size": 40"#), &weights);
    assert!(error.contains("mlp.gate_proj.weight") && error.contains("[40, 32]"), "{error}");
    let error = open_error("more", &config.replace(r#""num_hidden_layers": 2"#, r#""num_hidden_layers": 3"#), &weights);
    assert!(error.contains("model.layers.2.input_layernorm.weight") && error.contains("missing"), "{error}");
    let error =
        open_error("fewer", &config.replace(r#""num_hidden_layers": 2"#, r#""num_hidden_layers": 1"#), &weights);
    assert!(error.contains("model.layers.1.") && error.contains("is not used by"), "{error}");
    let error = open_error("rope", &config.replace(r#""rope_type": "default""#, r#""rope_type": "dynamic""#), &weights);
    assert!(error.contains("rope_type") && error.contains("dynamic"), "{error}");
}
