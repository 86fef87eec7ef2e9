//! The safetensors files of a Hugging Face folder: `model.safetensors`, or the files that `model.safetensors.index.json` names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use rung_audit::json::{JsonValue, MAX_BYTES, parse};
use safetensors::tensor::{Dtype, SafeTensors};

use super::{HeaderTensor, TensorFormat, WeightError, WeightFiles, map_file};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
/// The most files that an index may name: the largest models have a few hundred.
const MAX_FILES: usize = 1 << 12;

impl WeightFiles {
    /// Maps the safetensors files of a folder.
    pub(super) fn open_folder(folder: &Path) -> Result<Self, WeightError> {
        let mut files = Self::empty();
        let index = folder.join(INDEX_FILE);
        if index.exists() {
            let shard_of_tensor = read_index(&index)?;
            for shard in shard_of_tensor.values().collect::<BTreeSet<_>>() {
                let path = folder.join(shard);
                if !path.is_file() {
                    let found = format!("`{}`, which is not there", shard.escape_debug());
                    return Err(WeightError::malformed(&index, found, "files of its own folder"));
                }
                files.add_safetensors(&path)?;
            }
            for (name, shard) in &shard_of_tensor {
                let found = match files.get(name).map(|tensor| files.path_of(tensor) == folder.join(shard)) {
                    Some(true) => continue,
                    Some(false) => "it in another file",
                    None => "no such tensor",
                };
                let expected = format!("it in `{}`, as {INDEX_FILE} says", shard.escape_debug());
                return Err(WeightError::tensor(&index, name, found, expected));
            }
            return Ok(files);
        }
        let single = folder.join(SINGLE_FILE);
        if single.exists() {
            files.add_safetensors(&single)?;
            return Ok(files);
        }
        let pickle_files = ["pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth"];
        let found = match pickle_files.into_iter().find(|name| folder.join(name).exists()) {
            Some(name) => format!("`{name}`, a pickle file, whose reading would run code from it"),
            None => "no weights".to_owned(),
        };
        Err(WeightError::malformed(folder, found, format!("{SINGLE_FILE}, or {INDEX_FILE} with its files")))
    }

    fn add_safetensors(&mut self, path: &Path) -> Result<(), WeightError> {
        let map = map_file(path)?;
        let (header_len, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|error| WeightError::malformed(path, format!("{error}"), "a whole safetensors file"))?;
        let data_start = header_len + 8;
        let mut tensors = Vec::new();
        for (name, info) in metadata.tensors() {
            let format = match info.dtype {
                Dtype::F64 => TensorFormat::F64,
                Dtype::F32 => TensorFormat::F32,
                Dtype::F16 => TensorFormat::F16,
                Dtype::BF16 => TensorFormat::BF16,
                other => {
                    let found = format!("numbers of type {other:?}");
                    return Err(WeightError::tensor(path, &name, found, "F32, F16 or BF16"));
                }
            };
            let start = data_start.checked_add(info.data_offsets.0);
            tensors.push(HeaderTensor { name, format, shape: info.shape.clone(), start });
        }
        self.add(path, map, tensors)
    }
}

/// The file name of every tensor, from the index.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>, WeightError> {
    let system_error = |source: std::io::Error| WeightError::System { path: path.to_owned(), source };
    let text = crate::file::read_text(path, MAX_BYTES).map_err(system_error)?;
    let root = parse(&text).map_err(|error| WeightError::malformed(path, error.to_string(), "an index in JSON"))?;
    let Some(JsonValue::Object(entries)) = root.get("weight_map") else {
        return Err(WeightError::malformed(path, "no weight_map", "an object that names the file of every tensor"));
    };
    let mut shard_of_tensor = BTreeMap::new();
    let mut shards = BTreeSet::new();
    for (name, shard) in entries {
        let JsonValue::String(shard) = shard else {
            return Err(WeightError::tensor(path, name, shard.describe(), "the name of a file"));
        };
        let mut components = Path::new(shard).components();
        let is_file_name = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
        if !is_file_name || !shard.ends_with(".safetensors") {
            let found = format!("`{}`", shard.escape_debug());
            return Err(WeightError::tensor(path, name, found, "the name of a safetensors file in this folder"));
        }
        shards.insert(shard);
        shard_of_tensor.insert(name.clone(), shard.clone());
    }
    if shards.len() > MAX_FILES {
        return Err(WeightError::malformed(path, format!("{} files", shards.len()), format!("at most {MAX_FILES}")));
    }
    Ok(shard_of_tensor)
}
