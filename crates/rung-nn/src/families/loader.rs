//! Takes tensors out of a checkpoint's files and makes weights of them, each exactly once.
//!
//! A family asks for tensors under the names that transformers saves them with. In a GGUF file the same tensor has another name,
//! which the family's table says. What is asked for must be there in the shape that is asked for; tensors that are not used are named at the end.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rung_engine::{Parameter, Parameters, Role, Scalar};
use rung_theory::stack::{Layer, Mixer};

use super::gguf::TensorNames;
use super::{FamilyError, Fields, rotary};
use crate::model::Norm;
use crate::parts::{Convolution, Linear};
use crate::position::Rotation;
use crate::weight_files::{StoredTensor, WeightFiles};

/// Where weights come from while a network is assembled.
pub struct Loader<'a, S> {
    /// The config, under transformers' names whatever file it came from.
    pub fields: &'a Fields,
    /// The auditor's layers, one for each of the config, with every number explicit.
    pub layers: &'a [Layer],
    names: Option<&'a TensorNames>,
    path: PathBuf,
    files: &'a WeightFiles,
    weights: Parameters<S>,
    used: HashSet<String>,
    prefix: String,
    /// What a mixer of the current layer is called here.
    mixer_name: String,
    role: Role,
}

impl<'a, S: Scalar> Loader<'a, S> {
    /// Nothing is read yet. `names` are those of a GGUF file.
    pub(super) fn new(
        path: &Path,
        files: &'a WeightFiles,
        fields: &'a Fields,
        layers: &'a [Layer],
        names: Option<&'a TensorNames>,
    ) -> Self {
        let mut weights = Parameters::new();
        weights.reserve(files.tensors().map(|(_, tensor)| tensor.numbers()).sum());
        let (path, used, prefix) = (path.to_owned(), HashSet::new(), String::new());
        let mixer_name = "mixer".to_owned();
        Self { fields, layers, names, path, files, weights, used, prefix, mixer_name, role: Role::Other }
    }

    /// Whether the weights come from a GGUF file, where some are stored otherwise.
    pub fn is_gguf(&self) -> bool {
        self.names.is_some()
    }

    /// Reads tensors under a longer name.
    pub fn within<R>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        let result = read(self);
        self.prefix.truncate(length);
        result
    }

    /// Reads weights of a part that transformers calls a mixer and a model of this crate otherwise: `mixers.1` where two stand side by
    /// side, `mlp` where it is none.
    pub fn own_part<R>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.mixer_name, name.to_owned());
        let result = read(self);
        self.mixer_name = outer;
        result
    }

    /// The name of a tensor in the files.
    fn stored_name(&self, name: &str) -> String {
        let name = format!("{}{name}", self.prefix);
        match self.names {
            Some(names) => names.stored(&name),
            None => name,
        }
    }

    /// Whether there is such a tensor.
    pub fn has(&self, name: &str) -> bool {
        self.files.get(&self.stored_name(name)).is_some()
    }

    /// The extents that a tensor is stored with, if there is one.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.files.get(&self.stored_name(name)).map(|tensor| tensor.shape.as_slice())
    }

    /// Finds a tensor of a shape. Axes of extent one do not count, since the formats keep them or not as they please.
    fn find(&mut self, name: &str, shape: &[usize]) -> Result<&'a StoredTensor, FamilyError> {
        let stored = self.stored_name(name);
        let files = self.files;
        let Some(tensor) = files.get(&stored) else {
            return Err(FamilyError::Missing { path: self.path.clone(), name: stored, expected: shape.to_vec() });
        };
        let long = |shape: &[usize]| shape.iter().copied().filter(|&extent| extent != 1).collect::<Vec<_>>();
        if long(&tensor.shape) != long(shape) {
            let (path, found) = (files.path_of(tensor).to_owned(), tensor.shape.clone());
            return Err(FamilyError::Shape { path, name: stored, found, expected: shape.to_vec() });
        }
        self.used.insert(stored);
        Ok(tensor)
    }

    /// The numbers of a tensor of this shape.
    ///
    /// # Errors
    /// It is missing or of another shape.
    pub fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<S>, FamilyError> {
        let tensor = self.find(name, shape)?;
        let mut values = Vec::with_capacity(tensor.numbers());
        self.files.read(tensor, |x| values.push(S::from_f64(f64::from(x))));
        Ok(values)
    }

    /// Says what the next weight is for, so that instruments find it.
    pub fn role(&mut self, role: Role) -> &mut Self {
        self.role = role;
        self
    }

    /// Adds a weight with values that were made of a tensor's. It gets the name that a model of this crate has for it.
    pub fn add(&mut self, name: &str, shape: &[usize], values: Vec<S>) -> Parameter {
        let name = own_name(&format!("{}{name}", self.prefix), &self.mixer_name);
        self.weights.add(name, shape, values).with_role(std::mem::take(&mut self.role)).id()
    }

    /// A weight as it is stored.
    ///
    /// # Errors
    /// It is missing or of another shape.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Parameter, FamilyError> {
        let values = self.values(name, shape)?;
        Ok(self.add(name, shape, values))
    }

    /// A projection, `name.weight` of `[outputs, inputs]`, and `name.bias` if it has one.
    ///
    /// # Errors
    /// A tensor is missing or of another shape.
    pub fn linear(&mut self, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear, FamilyError> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = if bias { Some(self.tensor(&format!("{name}.bias"), &[outputs])?) } else { None };
        Ok(Linear { weight, bias })
    }

    /// A projection with a weight that was made of a tensor's values.
    pub fn add_linear(&mut self, name: &str, inputs: usize, weight: Vec<S>) -> Linear {
        let outputs = weight.len() / inputs.max(1);
        Linear { weight: self.add(&format!("{name}.weight"), &[outputs, inputs], weight), bias: None }
    }

    /// A short convolution with filters that were made of a tensor's values.
    pub fn add_convolution(&mut self, name: &str, taps: usize, filters: Vec<S>) -> Convolution {
        let channels = filters.len() / taps.max(1);
        let weight = self.add(&format!("{name}.weight"), &[channels, 1, taps], filters);
        Convolution { weight, bias: None, channels, taps, rounding: None }
    }

    /// A projection whose rows are those of rotary heads. GGUF files of some architectures store the two channels of a pair side by
    /// side; here, as in transformers, the first half of a head turns with the second.
    ///
    /// # Errors
    /// A tensor is missing or of another shape.
    pub fn rotary_linear(
        &mut self,
        name: &str,
        inputs: usize,
        [heads, width]: [usize; 2],
        bias: bool,
        pairs_side_by_side: bool,
    ) -> Result<Linear, FamilyError> {
        if !pairs_side_by_side {
            return self.linear(name, inputs, heads * width, bias);
        }
        let mut halves_apart = |name: String, shape: &[usize]| -> Result<Parameter, FamilyError> {
            let (values, row) = (self.values(&name, shape)?, shape[1..].iter().product::<usize>());
            let source = |at: usize| {
                let (head, channel) = (at / width, at % width);
                head * width + 2 * (channel % (width / 2)) + channel / (width / 2)
            };
            let rows = (0..heads * width).flat_map(|at| &values[source(at) * row..(source(at) + 1) * row]);
            let values = rows.copied().collect();
            Ok(self.add(&name, shape, values))
        };
        let weight = halves_apart(format!("{name}.weight"), &[heads * width, inputs])?;
        let bias = if bias { Some(halves_apart(format!("{name}.bias"), &[heads * width])?) } else { None };
        Ok(Linear { weight, bias })
    }

    /// An RMS norm, `name.weight`.
    ///
    /// # Errors
    /// It is missing or of another shape.
    pub fn rms_norm(&mut self, name: &str, width: usize, epsilon: f64) -> Result<Norm, FamilyError> {
        Ok(Norm::of(Some(self.role(Role::StreamNorm).tensor(&format!("{name}.weight"), &[width])?), None, epsilon))
    }

    /// The weight of a norm that is stored as its distance from one; GGUF files store the sum.
    ///
    /// # Errors
    /// It is missing or of another shape.
    pub fn gain_beyond_one(&mut self, name: &str, width: usize) -> Result<Parameter, FamilyError> {
        let name = format!("{name}.weight");
        let mut values = self.values(&name, &[width])?;
        if !self.is_gguf() {
            for x in &mut values {
                *x += S::ONE;
            }
        }
        Ok(self.add(&name, &[width], values))
    }

    /// The values of a weight that was read.
    pub fn weight_values(&self, weight: Parameter) -> &[S] {
        self.weights.get(weight)
    }

    /// Multiplies the rows of a weight that was read by factors of the config. One that is not there, such as a bias, has none.
    pub fn fold(&mut self, name: &str, factor: impl Fn(usize) -> f64) {
        let name = own_name(&format!("{}{name}", self.prefix), &self.mixer_name);
        let Some(id) = self.weights.find(&name) else { return };
        let rows = self.weights.entry(id).shape[0];
        let values = self.weights.get_mut(id);
        let length = (values.len() / rows).max(1);
        for (row, values) in values.chunks_mut(length).enumerate() {
            let factor = S::from_f64(factor(row));
            for x in values {
                *x *= factor;
            }
        }
    }

    /// Takes note of a tensor that is not used on purpose, if it is there.
    pub fn ignore(&mut self, name: &str) {
        let stored = self.stored_name(name);
        self.used.insert(stored);
    }

    /// The same for all tensors whose names start so.
    pub fn ignore_under(&mut self, prefix: &str) {
        let names = self.files.tensors().map(|(name, _)| name).filter(|name| name.starts_with(prefix));
        self.used.extend(names.map(str::to_owned));
    }

    /// All weights, after a look at what is left over.
    pub(super) fn finish(self, family: &'static str) -> Result<Parameters<S>, FamilyError> {
        match self.files.tensors().find(|(name, _)| !self.used.contains(*name)) {
            None => Ok(self.weights),
            Some((name, tensor)) => Err(FamilyError::LeftOver {
                path: self.files.path_of(tensor).to_owned(),
                name: name.to_owned(),
                found: tensor.shape.clone(),
                family,
            }),
        }
    }
}

/// Parts of a layer that are its mixer.
const MIXERS: [&str; 8] =
    ["self_attn.", "attn.", "linear_attn.", "mamba.", "attention.", "mixer.", "temporal_block.", "conv."];

/// What a model of this crate calls a weight: `layers.3.mixer.q_proj.weight` for `model.layers.3.self_attn.q_proj.weight`.
fn own_name(name: &str, mixer_name: &str) -> String {
    let Some((_, inner)) = name.split_once("layers.") else {
        let outside = ["model.", "backbone."].into_iter().find_map(|prefix| name.rsplit_once(prefix));
        return outside.map_or(name, |(_, rest)| rest).to_owned();
    };
    let Some((number, rest)) = inner.split_once('.') else { return name.to_owned() };
    match MIXERS.iter().find_map(|mixer| rest.strip_prefix(mixer)) {
        Some(rest) => format!("layers.{number}.{mixer_name}.{rest}"),
        None => format!("layers.{number}.{rest}"),
    }
}

/// Some rows of a matrix.
pub fn rows<S: Scalar>(matrix: &[S], width: usize, wanted: impl IntoIterator<Item = usize>) -> Vec<S> {
    wanted.into_iter().flat_map(|row| &matrix[row * width..(row + 1) * width]).copied().collect()
}

impl<S: Scalar> Loader<'_, S> {
    /// The rotation of a plan's attention that the config describes, with the divisors of frequencies that GGUF files keep as a tensor.
    ///
    /// # Errors
    /// A field or the tensor is not what it should be.
    pub fn rotation(&mut self, mixer: &Mixer, base: f64) -> Result<Rotation, FamilyError> {
        let kind = if mixer.name() == "window" { "sliding_attention" } else { "full_attention" };
        let head = mixer.number("key").unwrap_or_default() as usize;
        let rotation = rotary::rotation(self.fields, head, kind, base)?;
        if !self.is_gguf() || !self.has("rope_freqs.weight") {
            return Ok(rotation);
        }
        let divisors = self.values("rope_freqs.weight", &[rotation.pairs()])?;
        Ok(rotation.divided_by(divisors.into_iter().map(Scalar::to_f64)))
    }
}
