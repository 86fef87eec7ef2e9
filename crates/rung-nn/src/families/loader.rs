//! Reads the tensors of a checkpoint's files as weights, each exactly once.
//!
//! A family reads tensors by the names that transformers gives them. In a GGUF file the same tensor has another name, which the family's table
//! gives. A tensor must have the shape that the family expects, and a tensor that the family does not read is an error.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rung_engine::{Parameter, Parameters, Role, Scalar};
use rung_theory::stack::{Layer, Mixer};

use super::gguf::TensorNames;
use super::{FamilyError, Fields, rotary};
use crate::model::Norm;
use crate::position::Rotation;
use crate::submodules::{Convolution, Linear};
use crate::weight_files::{StoredTensor, WeightFiles};

/// Reads weights while a model is assembled.
pub struct Loader<'a, S> {
    /// The config, under transformers' names also for GGUF files.
    pub fields: &'a Fields,
    /// The layers that `rung-audit` derives from the config, with all sizes.
    pub layers: &'a [Layer],
    /// GGUF names of tensors; `None` for Hugging Face folders.
    names: Option<&'a TensorNames>,
    path: PathBuf,
    files: &'a WeightFiles,
    weights: Parameters<S>,
    /// Stored names of the tensors that were read or ignored.
    used_tensors: HashSet<String>,
    /// Prefix of the tensors that are read now, with a dot at its end.
    prefix: String,
    /// The name that the model uses for the mixer of the current layer.
    mixer_name: String,
    /// Role of the next weight.
    role: Role,
}

impl<'a, S: Scalar> Loader<'a, S> {
    /// A loader that has read nothing yet. `names` are those of a GGUF file.
    pub(super) fn new(
        path: &Path,
        files: &'a WeightFiles,
        fields: &'a Fields,
        layers: &'a [Layer],
        names: Option<&'a TensorNames>,
    ) -> Self {
        let mut weights = Parameters::new();
        weights.reserve(files.tensors().map(|(_, tensor)| tensor.element_count()).sum());
        let (path, used_tensors, prefix) = (path.to_owned(), HashSet::new(), String::new());
        let mixer_name = "mixer".to_owned();
        Self { fields, layers, names, path, files, weights, used_tensors, prefix, mixer_name, role: Role::Other }
    }

    /// Whether the weights come from a GGUF file, which stores some of them in another layout.
    pub fn is_gguf(&self) -> bool {
        self.names.is_some()
    }

    /// Reads tensors whose names start with the current prefix, `name` and a dot.
    pub fn with_prefix<R>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        let outer_len = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        let result = read(self);
        self.prefix.truncate(outer_len);
        result
    }

    /// Reads weights of a module that transformers names as a mixer and this crate's models otherwise: `mixers.1` for the second of two
    /// parallel mixers, `mlp` if it is a feed-forward network.
    pub fn with_mixer_name<R>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        let outer_name = std::mem::replace(&mut self.mixer_name, name.to_owned());
        let result = read(self);
        self.mixer_name = outer_name;
        result
    }

    /// The name of a tensor in the files.
    fn stored_name(&self, name: &str) -> String {
        let name = format!("{}{name}", self.prefix);
        match self.names {
            Some(names) => names.gguf_name(&name),
            None => name,
        }
    }

    /// Whether a tensor exists.
    pub fn has(&self, name: &str) -> bool {
        self.files.get(&self.stored_name(name)).is_some()
    }

    /// The shape of a tensor in the files, if it exists.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.files.get(&self.stored_name(name)).map(|tensor| tensor.shape.as_slice())
    }

    /// Finds a tensor with a shape. Axes of size 1 are ignored, because file formats may drop them.
    fn find(&mut self, name: &str, shape: &[usize]) -> Result<&'a StoredTensor, FamilyError> {
        let stored_name = self.stored_name(name);
        let files = self.files;
        let Some(tensor) = files.get(&stored_name) else {
            return Err(FamilyError::Missing { path: self.path.clone(), name: stored_name, expected: shape.to_vec() });
        };
        let without_ones = |shape: &[usize]| shape.iter().copied().filter(|&extent| extent != 1).collect::<Vec<_>>();
        if without_ones(&tensor.shape) != without_ones(shape) {
            let (path, found) = (files.path_of(tensor).to_owned(), tensor.shape.clone());
            return Err(FamilyError::Shape { path, name: stored_name, found, expected: shape.to_vec() });
        }
        self.used_tensors.insert(stored_name);
        Ok(tensor)
    }

    /// The elements of a tensor of this shape.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<S>, FamilyError> {
        let tensor = self.find(name, shape)?;
        let mut values = Vec::with_capacity(tensor.element_count());
        self.files.read(tensor, |x| values.push(S::from_f64(f64::from(x))));
        Ok(values)
    }

    /// Sets the role of the next weight, by which analyses find it.
    pub fn with_role(&mut self, role: Role) -> &mut Self {
        self.role = role;
        self
    }

    /// Adds a weight with values that were computed from tensors. It gets the name that models of this crate use.
    pub fn add(&mut self, name: &str, shape: &[usize], values: Vec<S>) -> Parameter {
        let name = model_name(&format!("{}{name}", self.prefix), &self.mixer_name);
        self.weights.add(name, shape, values).with_role(std::mem::take(&mut self.role)).id()
    }

    /// A weight with the values of a tensor.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Parameter, FamilyError> {
        let values = self.values(name, shape)?;
        Ok(self.add(name, shape, values))
    }

    /// A projection, `name.weight` of `[outputs, inputs]`, and `name.bias` if it has one.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub fn linear(&mut self, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear, FamilyError> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
        let bias = if bias { Some(self.tensor(&format!("{name}.bias"), &[outputs])?) } else { None };
        Ok(Linear { weight, bias })
    }

    /// A projection with a weight that was computed from tensors.
    pub fn add_linear(&mut self, name: &str, inputs: usize, weight: Vec<S>) -> Linear {
        let outputs = weight.len() / inputs.max(1);
        Linear { weight: self.add(&format!("{name}.weight"), &[outputs, inputs], weight), bias: None }
    }

    /// A short convolution with filters that were computed from tensors.
    pub fn add_convolution(&mut self, name: &str, kernel_size: usize, filters: Vec<S>) -> Convolution {
        let channels = filters.len() / kernel_size.max(1);
        let weight = self.add(&format!("{name}.weight"), &[channels, 1, kernel_size], filters);
        Convolution { weight, bias: None, channels, kernel_size, rounding: None }
    }

    /// A projection to rotary heads. GGUF files of some architectures interleave the two channels of each rotary pair; this crate's models,
    /// like transformers, pair channel i with channel i + width/2.
    ///
    /// # Errors
    /// A tensor is missing or has another shape.
    pub fn rotary_linear(
        &mut self,
        name: &str,
        inputs: usize,
        [heads, width]: [usize; 2],
        bias: bool,
        interleaved_pairs: bool,
    ) -> Result<Linear, FamilyError> {
        if !interleaved_pairs {
            return self.linear(name, inputs, heads * width, bias);
        }
        let mut deinterleave = |name: String, shape: &[usize]| -> Result<Parameter, FamilyError> {
            let (values, row_len) = (self.values(&name, shape)?, shape[1..].iter().product::<usize>());
            let stored_row = |row: usize| {
                let (head, channel) = (row / width, row % width);
                head * width + 2 * (channel % (width / 2)) + channel / (width / 2)
            };
            let rows =
                (0..heads * width).flat_map(|row| &values[stored_row(row) * row_len..(stored_row(row) + 1) * row_len]);
            let values = rows.copied().collect();
            Ok(self.add(&name, shape, values))
        };
        let weight = deinterleave(format!("{name}.weight"), &[heads * width, inputs])?;
        let bias = if bias { Some(deinterleave(format!("{name}.bias"), &[heads * width])?) } else { None };
        Ok(Linear { weight, bias })
    }

    /// An RMS norm, `name.weight`.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub fn rms_norm(&mut self, name: &str, width: usize, epsilon: f64) -> Result<Norm, FamilyError> {
        let weight = self.with_role(Role::ResidualNorm).tensor(&format!("{name}.weight"), &[width])?;
        Ok(Norm::from_weights(weight, None, epsilon))
    }

    /// One plus the stored weight of a norm, as in Gemma; GGUF files store the sum.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub fn norm_weight_plus_one(&mut self, name: &str, width: usize) -> Result<Parameter, FamilyError> {
        let name = format!("{name}.weight");
        let mut values = self.values(&name, &[width])?;
        if !self.is_gguf() {
            for x in &mut values {
                *x += S::ONE;
            }
        }
        Ok(self.add(&name, &[width], values))
    }

    /// Ignores the `num_nextn_predict_layers` layers after the last one, which are for multi-token prediction.
    ///
    /// # Errors
    /// The field is malformed.
    pub fn ignore_mtp_layers(&mut self) -> Result<(), FamilyError> {
        let layer_count = self.fields.number("num_nextn_predict_layers")?.unwrap_or(0.0) as usize;
        let layers = if self.is_gguf() { "blk" } else { "model.layers" };
        for index in self.layers.len()..self.layers.len() + layer_count.min(16) {
            self.ignore_prefix(&format!("{layers}.{index}."));
        }
        Ok(())
    }

    /// The values of a weight that was added.
    pub fn weight_values(&self, weight: Parameter) -> &[S] {
        self.weights.get(weight)
    }

    /// Multiplies each row of a weight that was added by a factor. Does nothing if the weight, such as a bias, does not exist.
    pub fn scale_rows(&mut self, name: &str, factor: impl Fn(usize) -> f64) {
        let name = model_name(&format!("{}{name}", self.prefix), &self.mixer_name);
        let Some(id) = self.weights.find(&name) else { return };
        let rows = self.weights.entry(id).shape[0];
        let values = self.weights.get_mut(id);
        let row_len = (values.len() / rows).max(1);
        for (row, values) in values.chunks_mut(row_len).enumerate() {
            let factor = S::from_f64(factor(row));
            for x in values {
                *x *= factor;
            }
        }
    }

    /// Marks a tensor as deliberately unused, whether it exists or not.
    pub fn ignore(&mut self, name: &str) {
        let stored_name = self.stored_name(name);
        self.used_tensors.insert(stored_name);
    }

    /// Marks all tensors whose names start with a prefix as deliberately unused.
    pub fn ignore_prefix(&mut self, prefix: &str) {
        let names = self.files.tensors().map(|(name, _)| name).filter(|name| name.starts_with(prefix));
        self.used_tensors.extend(names.map(str::to_owned));
    }

    /// All weights, if every tensor of the files was read or ignored.
    pub(super) fn finish(self, family: &'static str) -> Result<Parameters<S>, FamilyError> {
        match self.files.tensors().find(|(name, _)| !self.used_tensors.contains(*name)) {
            None => Ok(self.weights),
            Some((name, tensor)) => Err(FamilyError::UnusedTensor {
                path: self.files.path_of(tensor).to_owned(),
                name: name.to_owned(),
                found: tensor.shape.clone(),
                family,
            }),
        }
    }
}

/// Names that transformers gives to the mixer of a layer.
const MIXER_NAMES: [&str; 8] =
    ["self_attn.", "attn.", "linear_attn.", "mamba.", "attention.", "mixer.", "temporal_block.", "conv."];

/// The name that models of this crate use for a weight: `layers.3.mixer.q_proj.weight` for `model.layers.3.self_attn.q_proj.weight`.
fn model_name(name: &str, mixer_name: &str) -> String {
    let Some((_, inner)) = name.split_once("layers.") else {
        let outside_layers = ["model.", "backbone."].into_iter().find_map(|prefix| name.rsplit_once(prefix));
        return outside_layers.map_or(name, |(_, rest)| rest).to_owned();
    };
    let Some((number, rest)) = inner.split_once('.') else { return name.to_owned() };
    match MIXER_NAMES.iter().find_map(|mixer| rest.strip_prefix(mixer)) {
        Some(rest) => format!("layers.{number}.{mixer_name}.{rest}"),
        None => format!("layers.{number}.{rest}"),
    }
}

/// The selected rows of a matrix.
pub fn rows<S: Scalar>(matrix: &[S], width: usize, selected: impl IntoIterator<Item = usize>) -> Vec<S> {
    selected.into_iter().flat_map(|row| &matrix[row * width..(row + 1) * width]).copied().collect()
}

impl<S: Scalar> Loader<'_, S> {
    /// The rotary positions of an attention mixer, from the config and from the tensor `rope_freqs` of GGUF files, which divides the frequencies.
    ///
    /// # Errors
    /// A field or the tensor is invalid.
    pub fn rotation(&mut self, mixer: &Mixer, base: f64) -> Result<Rotation, FamilyError> {
        let layer_type = if mixer.name() == "window" { "sliding_attention" } else { "full_attention" };
        let mut rotary_dim = mixer.number("key").unwrap_or_default() as usize;
        if let Some(rotated) = self.fields.size("rope_dimension_count")?.filter(|_| self.is_gguf()) {
            // Configs of transformers give the rotated fraction of a head instead.
            rotary_dim = rotary_dim.min(rotated);
        }
        let rotation = rotary::rotation(self.fields, rotary_dim, layer_type, base)?;
        if !self.is_gguf() || !self.has("rope_freqs.weight") {
            return Ok(rotation);
        }
        let divisors = self.values("rope_freqs.weight", &[rotation.pair_count()])?;
        Ok(rotation.with_divided_frequencies(divisors.into_iter().map(Scalar::to_f64)))
    }
}
