//! The tensors of a model by layer and component, without loading them.
//!
//! An [`Inventory`] comes from a plan, or from a safetensors file, of which only the header is read. A header longer than
//! [`MAX_HEADER_BYTES`] is rejected. Layers and components are parsed from the tensor names, those of this crate and those that PyTorch
//! models usually have:
//!
//! ```text
//! layers.3.mixer.q_proj.weight                   layer 3, component `mixer`
//! layers.3.mixers.1.q_proj.weight                layer 3, component `mixers.1`
//! model.layers.3.self_attn.q_proj.weight         layer 3, component `self_attn`
//! lm_head.weight                                 outside of layers, component `lm_head`
//! ```
//!
//! Names do not determine the mixer of a layer or the size of its state. A file written by
//! [`save_plan`](crate::checkpoint::save_plan) has its stack in its metadata; for others [`Inventory::check_equal`] checks
//! whether the file has exactly the tensors of a plan.
//!
//! ```
//! use rung_nn::{Inventory, ModelConfig};
//! use rung_theory::stack::{Defaults, Plan};
//!
//! let plan = Plan::parse("linear full", &Defaults { heads: 2, head_dim: 8, ..Defaults::default() })?;
//! let inventory = Inventory::from_plan(&ModelConfig::default(), &plan)?;
//! assert_eq!(inventory.layers().len(), 2);
//! assert_eq!(inventory.element_count(), ModelConfig::default().weight_count(&plan)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rung_engine::{ParameterEntry, Parameters, Scalar};
use rung_theory::stack::{Defaults, Plan, StackError};
use safetensors::tensor::Metadata;

use crate::checkpoint::CheckpointError;
use crate::error::ModelError;
use crate::files::{STACK_KEY, WIDTH_KEY};
use crate::model::ModelConfig;

/// The longest header that is read, in bytes; those of the largest published models are shorter.
pub const MAX_HEADER_BYTES: u64 = 1 << 24;

/// Name, shape, type and size of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The tensor's name in a checkpoint.
    pub name: String,
    /// Sizes of the axes.
    pub shape: Vec<usize>,
    /// Type of the elements, in safetensors' spelling.
    pub dtype: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl TensorEntry {
    /// Number of elements.
    pub fn element_count(&self) -> u128 {
        self.shape.iter().map(|&extent| extent as u128).product()
    }

    /// The layer that the tensor belongs to, if any, and the component of that layer or of the model.
    pub fn layer_and_component(&self) -> (Option<usize>, &str) {
        let name = &self.name[..];
        let segment_starts = || std::iter::once(0).chain(name.match_indices('.').map(|(dot, _)| dot + 1));
        let segment = |start: usize| name[start..].split('.').next().unwrap_or_default();
        for start in segment_starts() {
            let (Ok(layer), true) = (segment(start).parse(), segment(start).bytes().all(|byte| byte.is_ascii_digit()))
            else {
                continue;
            };
            let rest = name.get(start + segment(start).len() + 1..).unwrap_or_default();
            let mut segments = rest.split('.');
            let (first, second) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
            let is_numbered = !second.is_empty() && second.bytes().all(|byte| byte.is_ascii_digit());
            return (Some(layer), if is_numbered { &rest[..=first.len() + second.len()] } else { first });
        }
        (None, name.rsplit_once('.').map_or(name, |(component, _)| component))
    }
}

/// The size of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentSize {
    /// The component's name.
    pub name: String,
    /// Tensors of the component.
    pub tensor_count: usize,
    /// Number of elements of all its tensors.
    pub element_count: u128,
}

/// The tensors of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// All tensors, in the order of the plan or of the file.
    pub tensors: Vec<TensorEntry>,
    /// The metadata of a file; empty for plans and weights in memory.
    pub metadata: BTreeMap<String, String>,
}

impl Inventory {
    /// The tensors of a plan's network, in single precision.
    ///
    /// # Errors
    /// A mixer of the plan is not implemented, or there are too many weights or layers.
    pub fn from_plan(config: &ModelConfig, plan: &Plan) -> Result<Self, ModelError> {
        let tensor_entry = |param: crate::param_builder::ParamShape| {
            let bytes = 4 * param.shape.iter().product::<usize>() as u64;
            TensorEntry { name: param.name, shape: param.shape, dtype: "F32".to_owned(), bytes }
        };
        Ok(Self {
            tensors: config.param_shapes(plan)?.into_iter().map(tensor_entry).collect(),
            metadata: BTreeMap::new(),
        })
    }

    /// The tensors of weights in memory.
    pub fn from_weights<S: Scalar>(weights: &Parameters<S>) -> Self {
        let tensor_entry = |(_, entry): (_, &ParameterEntry)| {
            let bytes = (size_of::<S>() * entry.range.len()) as u64;
            let dtype = format!("F{}", 8 * size_of::<S>());
            TensorEntry { name: entry.name.clone(), shape: entry.shape.to_vec(), dtype, bytes }
        };
        Self { tensors: weights.entries().map(tensor_entry).collect(), metadata: BTreeMap::new() }
    }

    /// Number of elements of all tensors.
    pub fn element_count(&self) -> u128 {
        self.tensors.iter().map(TensorEntry::element_count).sum()
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// The components of every layer, by the layer's number.
    pub fn layers(&self) -> BTreeMap<usize, Vec<ComponentSize>> {
        let mut layers = self.components();
        layers.remove(&None);
        layers.into_iter().filter_map(|(layer, components)| Some((layer?, components))).collect()
    }

    /// The components that belong to no layer.
    pub fn non_layer_components(&self) -> Vec<ComponentSize> {
        self.components().remove(&None).unwrap_or_default()
    }

    fn components(&self) -> BTreeMap<Option<usize>, Vec<ComponentSize>> {
        let mut layers: BTreeMap<Option<usize>, Vec<ComponentSize>> = BTreeMap::new();
        let mut indices: HashMap<(Option<usize>, &str), usize> = HashMap::new();
        for tensor in &self.tensors {
            let (layer, name) = tensor.layer_and_component();
            let components = layers.entry(layer).or_default();
            let index = *indices.entry((layer, name)).or_insert_with(|| {
                components.push(ComponentSize { name: name.to_owned(), tensor_count: 0, element_count: 0 });
                components.len() - 1
            });
            components[index].tensor_count += 1;
            components[index].element_count += tensor.element_count();
        }
        layers
    }

    /// The plan in the file's metadata, if there is one.
    ///
    /// # Errors
    /// The stack in the metadata cannot be parsed.
    pub fn plan(&self) -> Option<Result<Plan, StackError>> {
        let stack = self.metadata.get(STACK_KEY)?;
        let model_width = self.metadata.get(WIDTH_KEY)?.parse().ok()?;
        Some(Plan::parse(stack, &Defaults { model_width: Some(model_width), ..Defaults::default() }))
    }

    /// Checks that these are the tensors of another inventory, in any order and precision.
    ///
    /// # Errors
    /// The error names the first tensor that is missing, of another shape, or unknown; `path` is the file in its message.
    pub fn check_equal(&self, path: &Path, expected: &Self) -> Result<(), CheckpointError> {
        let mut unmatched: BTreeMap<&str, &TensorEntry> =
            self.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        for TensorEntry { name, shape, .. } in &expected.tensors {
            let (path, name, expected) = (path.to_owned(), name.clone(), shape.clone());
            match unmatched.remove(name.as_str()) {
                None => return Err(CheckpointError::Missing { path, name, expected }),
                Some(found) if found.shape != expected => {
                    return Err(CheckpointError::Shape { path, name, found: found.shape.clone(), expected });
                }
                Some(_) => {}
            }
        }
        match unmatched.into_iter().next() {
            None => Ok(()),
            Some((name, found)) => Err(CheckpointError::UnknownTensor {
                path: path.to_owned(),
                name: name.to_owned(),
                found: found.shape.clone(),
            }),
        }
    }
}

/// Reads the header of a safetensors file.
///
/// # Errors
/// The file cannot be read, its header is invalid or too long, or the file's length does not match the header.
pub fn inspect(path: &Path) -> Result<Inventory, CheckpointError> {
    let system_error = |source| CheckpointError::System { path: path.to_owned(), source };
    let header_error = |found: String, expected| CheckpointError::Header { path: path.to_owned(), found, expected };
    let file_info = std::fs::metadata(path).map_err(system_error)?;
    if !file_info.is_file() {
        return Err(system_error(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let mut file = File::open(path).map_err(system_error)?;
    let mut length_bytes = [0; 8];
    if file_info.len() < 8 {
        return Err(header_error(
            format!("{} bytes", file_info.len()),
            "at least the 8 that hold the length of the header",
        ));
    }
    file.read_exact(&mut length_bytes).map_err(system_error)?;
    let header_len = u64::from_le_bytes(length_bytes);
    if header_len > file_info.len() - 8 {
        let found = format!("a header of {header_len} bytes in a file of {}", file_info.len());
        return Err(header_error(found, "a header that fits in its file"));
    }
    if header_len > MAX_HEADER_BYTES {
        return Err(header_error(format!("a header of {header_len} bytes"), "one of at most 16,777,216"));
    }
    let mut header = vec![0; header_len as usize];
    file.read_exact(&mut header).map_err(system_error)?;
    let header: Metadata = serde_json::from_slice(&header).map_err(|error| {
        header_error(format!("a header that cannot be parsed ({error})"), "a JSON object with an entry for each tensor")
    })?;
    let mut tensors: Vec<_> = header.tensors().into_iter().collect();
    tensors.sort_by(|(name, info), (other_name, other_info)| {
        (info.data_offsets, name).cmp(&(other_info.data_offsets, other_name))
    });
    let (expected, found) = ((8 + header_len).saturating_add(header.data_len() as u64), file_info.len());
    if found < expected {
        let data_len = found - 8 - header_len;
        let truncated = tensors.into_iter().find(|(_, info)| info.data_offsets.1 as u64 > data_len);
        let (name, shape) = truncated.map_or_else(Default::default, |(name, info)| (name, info.shape.clone()));
        return Err(CheckpointError::Truncated { path: path.to_owned(), name, shape, found, expected });
    }
    if found > expected {
        let extra_bytes = format!("{} bytes after the last tensor", found - expected);
        return Err(header_error(extra_bytes, "nothing"));
    }
    let tensor_entry = |(name, info): (String, &safetensors::tensor::TensorInfo)| TensorEntry {
        name,
        shape: info.shape.clone(),
        dtype: format!("{:?}", info.dtype),
        bytes: (info.data_offsets.1 - info.data_offsets.0) as u64,
    };
    let metadata = header.metadata().iter().flatten().map(|(name, text)| (name.clone(), text.clone())).collect();
    Ok(Inventory { tensors: tensors.into_iter().map(tensor_entry).collect(), metadata })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{save, save_plan};
    use rung_engine::Parameters;
    use rung_theory::task::seeded;

    const STACK_OF_FOUR: &str = "linear full{kv=1}+gdn mamba2 window{size=4}";

    fn plan(text: &str) -> Plan {
        Plan::parse(text, &Defaults { heads: 2, head_dim: 8, ..Defaults::default() }).unwrap()
    }

    /// The path of a test's temporary file.
    fn temporary_path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("rung-inventory-{name}-{}.safetensors", std::process::id()))
    }

    #[test]
    fn inventories_of_a_plan_its_weights_and_its_file_are_equal() {
        let (config, plan, path) = (ModelConfig::default(), plan(STACK_OF_FOUR), temporary_path("same"));
        let mut weights = Parameters::<f32>::new();
        config.init(&plan, &mut weights, &mut seeded(0)).unwrap();
        let from_plan = Inventory::from_plan(&config, &plan).unwrap();
        let from_weights: Vec<_> =
            weights.entries().map(|(_, entry)| (entry.name.as_str(), entry.shape.to_vec())).collect();
        assert_eq!(
            from_plan.tensors.iter().map(|t| (t.name.as_str(), t.shape.clone())).collect::<Vec<_>>(),
            from_weights
        );
        save_plan(&path, &weights, &plan).unwrap();
        let actual = inspect(&path).unwrap();
        actual.check_equal(&path, &from_plan).unwrap();
        assert_eq!((actual.element_count(), actual.bytes()), (weights.size() as u128, 4 * weights.size() as u64));
        assert_eq!(actual.plan().unwrap().unwrap().to_stack(), plan.to_stack());
        assert_eq!(actual.layers().keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        let layers = actual.layers();
        let components = layers
            .values()
            .flatten()
            .chain(&actual.non_layer_components())
            .map(|size| size.element_count)
            .sum::<u128>();
        assert_eq!(components, actual.element_count());
        save(&path, &weights).unwrap();
        assert!(inspect(&path).unwrap().plan().is_none());
        let other = Inventory::from_plan(&config, &super::tests::plan("linear full")).unwrap();
        assert!(matches!(
            actual.check_equal(&path, &other),
            Err(CheckpointError::Shape { .. } | CheckpointError::Missing { .. })
        ));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn layer_and_component_are_parsed_from_names() {
        for (name, layer, component) in [
            ("layers.3.mixer.q_proj.weight", Some(3), "mixer"),
            ("layers.12.mixers.1.q_conv1d.weight", Some(12), "mixers.1"),
            ("layers.0.mixer_norm.weight", Some(0), "mixer_norm"),
            ("model.layers.7.self_attn.q_proj.weight", Some(7), "self_attn"),
            ("transformer.h.5.attn.c_attn.bias", Some(5), "attn"),
            ("lm_head.weight", None, "lm_head"),
            ("embeddings.key.weight", None, "embeddings.key"),
            ("weight", None, "weight"),
            ("layers.9", Some(9), ""),
            ("", None, ""),
            ("layers.99999999999999999999999.a", None, "layers.99999999999999999999999"),
        ] {
            let tensor = TensorEntry { name: name.to_owned(), shape: vec![1], dtype: String::new(), bytes: 4 };
            assert_eq!(tensor.layer_and_component(), (layer, component), "{name}");
        }
    }

    #[test]
    fn inspect_rejects_invalid_files() {
        let path = temporary_path("invalid");
        let file = |header: &str, data: usize| {
            [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
        };
        let tensor = |shape: &str, end: &str| {
            format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[0,{end}]}}}}")
        };
        for (bytes, expected) in [
            (Vec::new(), "found 0 bytes"),
            (vec![0xff; 64], "a header of 18446744073709551615 bytes in a file of 64"),
            (file("not json", 0), "a header that cannot be parsed"),
            (file("[1, 2]", 0), "a header that cannot be parsed"),
            (file(&"[".repeat(100_000), 0), "a header that cannot be parsed"),
            (file(&tensor("[4]", "12"), 12), "a header that cannot be parsed"),
            (file(&tensor("[18446744073709551615,9]", "12"), 12), "a header that cannot be parsed"),
            (file(&tensor("[4]", "16"), 7), "cut off in tensor `a` of shape [4]"),
            (file(&tensor("[1000000000000]", "4000000000000"), 7), "cut off in tensor `a`"),
            (file(&tensor("[4]", "16"), 17), "1 bytes after the last tensor"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = inspect(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("rung-inventory-invalid"), "{error}");
        }
        // A sparse file of a gigabyte with a header of half a gigabyte.
        let sparse = File::create(&path).unwrap();
        sparse.set_len(1 << 30).unwrap();
        drop(sparse);
        std::io::Write::write_all(&mut File::options().write(true).open(&path).unwrap(), &(1_u64 << 29).to_le_bytes())
            .unwrap();
        assert!(inspect(&path).unwrap_err().to_string().contains("at most 16,777,216"));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(inspect(&path), Err(CheckpointError::System { .. })));
        assert!(matches!(inspect(&std::env::temp_dir()), Err(CheckpointError::System { .. })));
    }

    #[test]
    fn inventory_of_too_many_layers_is_an_error() {
        let error = Inventory::from_plan(&ModelConfig::default(), &plan("none*100000")).unwrap_err();
        assert!(error.to_string().contains("at most 16384"), "{error}");
    }
}
