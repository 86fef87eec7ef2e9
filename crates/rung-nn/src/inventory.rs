//! What is in a model, before any of it is loaded: tensors by layer and part.
//!
//! An [`Inventory`] comes from a plan, as the network would be built, or from a safetensors file, of which only the header is
//! read: a file of any size takes the time and memory of its header, and a header beyond [`LONGEST_READ`] is refused. Layers and
//! parts are read off the names, ours and those that PyTorch models usually have:
//!
//! ```text
//! layers.3.mixer.q_proj.weight                   layer 3, part `mixer`
//! layers.3.mixers.1.q_proj.weight                layer 3, part `mixers.1`
//! model.layers.3.self_attn.q_proj.weight         layer 3, part `self_attn`
//! lm_head.weight                                 outside of layers, part `lm_head`
//! ```
//!
//! Which mixer a layer has, and how large its state is, names do not say. A file that
//! [`save_plan`](crate::checkpoint::save_plan) wrote carries its stack in a note; for others [`Inventory::compare`] tells
//! whether the file holds exactly the tensors of a plan.
//!
//! ```
//! use rung_nn::{Inventory, ModelConfig};
//! use rung_theory::stack::{Defaults, Plan};
//!
//! let plan = Plan::parse("linear full", &Defaults { heads: 2, head_dim: 8, ..Defaults::default() })?;
//! let inventory = Inventory::of_plan(&ModelConfig::default(), &plan)?;
//! assert_eq!(inventory.layers().len(), 2);
//! assert_eq!(inventory.numbers(), ModelConfig::default().count(&plan)?);
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
use crate::model::ModelConfig;
use crate::network::files::{STACK_KEY, WIDTH_KEY};

/// The longest header that is read; those of the largest published models are shorter.
pub const LONGEST_READ: u64 = 1 << 24;

/// One tensor, without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorFacts {
    /// Its name.
    pub name: String,
    /// Extents.
    pub shape: Vec<usize>,
    /// Type of its numbers, as the format spells it.
    pub kind: String,
    /// Bytes it takes.
    pub bytes: u64,
}

impl TensorFacts {
    /// Numbers in it.
    pub fn numbers(&self) -> u128 {
        self.shape.iter().map(|&extent| extent as u128).product()
    }

    /// The layer it belongs to, if any, and the part of that layer or of the model.
    pub fn place(&self) -> (Option<usize>, &str) {
        let name = &self.name[..];
        let starts = || std::iter::once(0).chain(name.match_indices('.').map(|(at, _)| at + 1));
        let word = |start: usize| name[start..].split('.').next().unwrap_or_default();
        for start in starts() {
            let (Ok(layer), true) = (word(start).parse(), word(start).bytes().all(|byte| byte.is_ascii_digit())) else {
                continue;
            };
            let rest = name.get(start + word(start).len() + 1..).unwrap_or_default();
            let mut words = rest.split('.');
            let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let counted = !second.is_empty() && second.bytes().all(|byte| byte.is_ascii_digit());
            return (Some(layer), if counted { &rest[..=first.len() + second.len()] } else { first });
        }
        (None, name.rsplit_once('.').map_or(name, |(part, _)| part))
    }
}

/// Numbers and bytes of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSize {
    /// Its name.
    pub name: String,
    /// Tensors.
    pub tensors: usize,
    /// Numbers in them.
    pub numbers: u128,
}

/// The tensors of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// In the order of the plan or of the file.
    pub tensors: Vec<TensorFacts>,
    /// What a file says about itself.
    pub notes: BTreeMap<String, String>,
}

impl Inventory {
    /// What the network of a plan would be made of, in single precision.
    ///
    /// # Errors
    /// The plan has no network, or too many weights or layers.
    pub fn of_plan(config: &ModelConfig, plan: &Plan) -> Result<Self, ModelError> {
        let facts = |listed: crate::param_builder::ParamShape| {
            let bytes = 4 * listed.shape.iter().product::<usize>() as u64;
            TensorFacts { name: listed.name, shape: listed.shape, kind: "F32".to_owned(), bytes }
        };
        Ok(Self { tensors: config.list(plan)?.into_iter().map(facts).collect(), notes: BTreeMap::new() })
    }

    /// What a network is made of that has its weights, in the precision it runs in.
    pub fn of_weights<S: Scalar>(weights: &Parameters<S>) -> Self {
        let facts = |(_, entry): (_, &ParameterEntry)| {
            let bytes = (size_of::<S>() * entry.range.len()) as u64;
            let kind = format!("F{}", 8 * size_of::<S>());
            TensorFacts { name: entry.name.clone(), shape: entry.shape.to_vec(), kind, bytes }
        };
        Self { tensors: weights.entries().map(facts).collect(), notes: BTreeMap::new() }
    }

    /// Numbers in all tensors.
    pub fn numbers(&self) -> u128 {
        self.tensors.iter().map(TensorFacts::numbers).sum()
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// The parts of every layer, by its number.
    pub fn layers(&self) -> BTreeMap<usize, Vec<PartSize>> {
        let mut layers = self.parts();
        layers.remove(&None);
        layers.into_iter().filter_map(|(layer, parts)| Some((layer?, parts))).collect()
    }

    /// The parts that belong to no layer.
    pub fn outside(&self) -> Vec<PartSize> {
        self.parts().remove(&None).unwrap_or_default()
    }

    fn parts(&self) -> BTreeMap<Option<usize>, Vec<PartSize>> {
        let mut layers: BTreeMap<Option<usize>, Vec<PartSize>> = BTreeMap::new();
        let mut known: HashMap<(Option<usize>, &str), usize> = HashMap::new();
        for tensor in &self.tensors {
            let (layer, name) = tensor.place();
            let parts = layers.entry(layer).or_default();
            let index = *known.entry((layer, name)).or_insert_with(|| {
                parts.push(PartSize { name: name.to_owned(), tensors: 0, numbers: 0 });
                parts.len() - 1
            });
            parts[index].tensors += 1;
            parts[index].numbers += tensor.numbers();
        }
        layers
    }

    /// The plan that the file says it belongs to; none if it does not say.
    ///
    /// # Errors
    /// What it says is no stack.
    pub fn plan(&self) -> Option<Result<Plan, StackError>> {
        let stack = self.notes.get(STACK_KEY)?;
        let model_width = self.notes.get(WIDTH_KEY)?.parse().ok()?;
        Some(Plan::parse(stack, &Defaults { model_width: Some(model_width), ..Defaults::default() }))
    }

    /// Whether these are the tensors of another inventory, in whatever order and precision.
    ///
    /// # Errors
    /// The first tensor that is missing, of another shape, or of no use, for the file at `path`.
    pub fn compare(&self, path: &Path, expected: &Self) -> Result<(), CheckpointError> {
        let mut unclaimed: BTreeMap<&str, &TensorFacts> =
            self.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        for TensorFacts { name, shape, .. } in &expected.tensors {
            let (path, name, expected) = (path.to_owned(), name.clone(), shape.clone());
            match unclaimed.remove(name.as_str()) {
                None => return Err(CheckpointError::Missing { path, name, expected }),
                Some(found) if found.shape != expected => {
                    return Err(CheckpointError::Shape { path, name, found: found.shape.clone(), expected });
                }
                Some(_) => {}
            }
        }
        match unclaimed.into_iter().next() {
            None => Ok(()),
            Some((name, found)) => Err(CheckpointError::Unknown {
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
/// The file cannot be read, its header is no such header or too long, or the file is shorter or longer than it says.
pub fn inspect(path: &Path) -> Result<Inventory, CheckpointError> {
    let system = |source| CheckpointError::System { path: path.to_owned(), source };
    let wrong = |found: String, expected| CheckpointError::Header { path: path.to_owned(), found, expected };
    let about = std::fs::metadata(path).map_err(system)?;
    if !about.is_file() {
        return Err(system(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let mut file = File::open(path).map_err(system)?;
    let mut length = [0; 8];
    if about.len() < 8 {
        return Err(wrong(format!("{} bytes", about.len()), "at least the 8 that hold the length of the header"));
    }
    file.read_exact(&mut length).map_err(system)?;
    let length = u64::from_le_bytes(length);
    if length > about.len() - 8 {
        let found = format!("a header of {length} bytes in a file of {}", about.len());
        return Err(wrong(found, "a header that fits in its file"));
    }
    if length > LONGEST_READ {
        return Err(wrong(format!("a header of {length} bytes"), "one of at most 16,777,216"));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(system)?;
    let header: Metadata = serde_json::from_slice(&header)
        .map_err(|error| wrong(format!("a header with {error}"), "a table of tensors"))?;
    let mut tensors: Vec<_> = header.tensors().into_iter().collect();
    tensors.sort_by(|(name, info), (other, than)| (info.data_offsets, name).cmp(&(than.data_offsets, other)));
    let (promised, found) = ((8 + length).saturating_add(header.data_len() as u64), about.len());
    if found < promised {
        let whole = found - 8 - length;
        let cut = tensors.into_iter().find(|(_, info)| info.data_offsets.1 as u64 > whole);
        let (name, shape) = cut.map_or_else(Default::default, |(name, info)| (name, info.shape.clone()));
        return Err(CheckpointError::CutOff { path: path.to_owned(), name, shape, found, expected: promised });
    }
    if found > promised {
        let extra = format!("{} bytes after the last tensor", found - promised);
        return Err(wrong(extra, "nothing"));
    }
    let facts = |(name, info): (String, &safetensors::tensor::TensorInfo)| TensorFacts {
        name,
        shape: info.shape.clone(),
        kind: format!("{:?}", info.dtype),
        bytes: (info.data_offsets.1 - info.data_offsets.0) as u64,
    };
    let notes = header.metadata().iter().flatten().map(|(name, text)| (name.clone(), text.clone())).collect();
    Ok(Inventory { tensors: tensors.into_iter().map(facts).collect(), notes })
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

    /// A file of its own for a test.
    fn place(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("rung-inventory-{name}-{}.safetensors", std::process::id()))
    }

    #[test]
    fn a_plan_its_network_and_its_file_have_the_same_tensors() {
        let (config, plan, path) = (ModelConfig::default(), plan(STACK_OF_FOUR), place("same"));
        let mut weights = Parameters::<f32>::new();
        config.init(&plan, &mut weights, &mut seeded(0)).unwrap();
        let listed = Inventory::of_plan(&config, &plan).unwrap();
        let built: Vec<_> = weights.entries().map(|(_, entry)| (entry.name.as_str(), entry.shape.to_vec())).collect();
        assert_eq!(listed.tensors.iter().map(|t| (t.name.as_str(), t.shape.clone())).collect::<Vec<_>>(), built);
        save_plan(&path, &weights, &plan).unwrap();
        let found = inspect(&path).unwrap();
        found.compare(&path, &listed).unwrap();
        assert_eq!((found.numbers(), found.bytes()), (weights.size() as u128, 4 * weights.size() as u64));
        assert_eq!(found.plan().unwrap().unwrap().to_stack(), plan.to_stack());
        assert_eq!(found.layers().keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        let parts = found.layers().values().chain([&found.outside()]).flatten().map(|part| part.numbers).sum::<u128>();
        assert_eq!(parts, found.numbers());
        save(&path, &weights).unwrap();
        assert!(inspect(&path).unwrap().plan().is_none());
        let other = Inventory::of_plan(&config, &super::tests::plan("linear full")).unwrap();
        assert!(matches!(
            found.compare(&path, &other),
            Err(CheckpointError::Shape { .. } | CheckpointError::Missing { .. })
        ));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn names_tell_layer_and_part() {
        for (name, layer, part) in [
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
            let tensor = TensorFacts { name: name.to_owned(), shape: vec![1], kind: String::new(), bytes: 4 };
            assert_eq!(tensor.place(), (layer, part), "{name}");
        }
    }

    #[test]
    fn hostile_files_are_refused() {
        let path = place("hostile");
        let file = |header: &str, data: usize| {
            [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat()
        };
        let tensor = |shape: &str, end: &str| {
            format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[0,{end}]}}}}")
        };
        for (bytes, expected) in [
            (Vec::new(), "found 0 bytes"),
            (vec![0xff; 64], "a header of 18446744073709551615 bytes in a file of 64"),
            (file("not json", 0), "a header with"),
            (file("[1, 2]", 0), "a header with"),
            (file(&"[".repeat(100_000), 0), "a header with"),
            (file(&tensor("[4]", "12"), 12), "a header with"),
            (file(&tensor("[18446744073709551615,9]", "12"), 12), "a header with"),
            (file(&tensor("[4]", "16"), 7), "cut off in tensor `a` of shape [4]"),
            (file(&tensor("[1000000000000]", "4000000000000"), 7), "cut off in tensor `a`"),
            (file(&tensor("[4]", "16"), 17), "1 bytes after the last tensor"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = inspect(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("rung-inventory-hostile"), "{error}");
        }
        // A hole of a gigabyte that says it is a header.
        let long = File::create(&path).unwrap();
        long.set_len(1 << 30).unwrap();
        drop(long);
        std::io::Write::write_all(&mut File::options().write(true).open(&path).unwrap(), &(1_u64 << 29).to_le_bytes())
            .unwrap();
        assert!(inspect(&path).unwrap_err().to_string().contains("at most 16,777,216"));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(inspect(&path), Err(CheckpointError::System { .. })));
        assert!(matches!(inspect(&std::env::temp_dir()), Err(CheckpointError::System { .. })));
    }

    #[test]
    fn long_stacks_are_not_listed() {
        let error = Inventory::of_plan(&ModelConfig::default(), &plan("none*100000")).unwrap_err();
        assert!(error.to_string().contains("at most 16384"), "{error}");
    }
}
