//! Writes the layers of a construction into the weights of a model.

use std::collections::BTreeMap;

use rung_engine::{Parameters, Scalar};
use rung_theory::stack::{Mixer, Plan};

use super::builder::{AttentionHead, ConstructionLayer, LayerMixer, WeightEntry, WeightedSum};
use super::forwarding;
use crate::model::{MixerIndex, names, uses_shared_tensor};

/// Sizes of a plan's attention mixer.
#[derive(Clone, Copy)]
pub(super) struct AttentionSizes {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    /// Channels of a head's query and key.
    pub(super) key_dim: usize,
    /// Channels of a head's value.
    pub(super) value_dim: usize,
}

impl AttentionSizes {
    pub(super) fn from_mixer(mixer: &Mixer) -> Self {
        let number = |name: &str| mixer.number(name).unwrap_or_default() as usize;
        Self { heads: number("heads"), kv_heads: number("kv"), key_dim: number("key"), value_dim: number("value") }
    }
}

/// Adds the weights of a layer to those of a mixer and MLP of the plan.
pub(super) fn write_layer<S: Scalar>(
    writer: &mut WeightWriter<'_, S>,
    layer: &ConstructionLayer,
    index: MixerIndex,
    plan: &Plan,
) {
    let mixers = &plan.layers[index.layer].mixers;
    let mixer_name = names::mixer(index.layer, index.mixer, mixers.len());
    let mlp = names::mlp(index.layer);
    let mixer = &mixers[index.mixer];
    match &layer.mixer {
        LayerMixer::Attention(heads) => writer.add_heads(&mixer_name, heads, mixer),
        LayerMixer::Forwarding(forwarded, _) => {
            let has_shared_input = uses_shared_tensor(plan, index.layer, index.mixer);
            writer.add_entries(
                &mixer_name,
                &forwarding::weight_entries(forwarded, mixer, plan.width as usize, has_shared_input),
            );
        }
        LayerMixer::Explicit(_, entries) => writer.add_entries(&mixer_name, entries),
    }
    for (row, neuron) in layer.neurons.iter().enumerate() {
        writer.add_to_row(&format!("{mlp}.up_proj.weight"), row, &neuron.input);
        writer.add_to_column(&format!("{mlp}.down_proj.weight"), row, &neuron.output);
    }
}

/// Adds to the weights of a model, which it finds by name.
pub(super) struct WeightWriter<'a, S> {
    pub(super) weights: &'a mut Parameters<S>,
    /// Width of the residual stream.
    pub(super) width: usize,
}

impl<S: Scalar> WeightWriter<'_, S> {
    /// The values of a weight and the length of its rows.
    fn find(&mut self, name: &str) -> (&mut [S], usize) {
        let id = self.weights.find(name).unwrap_or_else(|| unreachable!("a built model has the weight {name}"));
        let shape = self.weights.entry(id).shape;
        (self.weights.get_mut(id), shape.width())
    }

    /// Adds to every row of a weight the sum that `row` gives for its index.
    pub(super) fn add_to_rows(&mut self, name: &str, row: impl Fn(usize) -> WeightedSum) {
        let (values, width) = self.find(name);
        for (index, values) in values.chunks_exact_mut(width).enumerate() {
            for (column, value) in row(index) {
                values[column] += S::from_f64(value);
            }
        }
    }

    fn add_to_row(&mut self, name: &str, row: usize, sum: &[(usize, f64)]) {
        let (values, width) = self.find(name);
        for (column, value) in sum {
            values[row * width + column] += S::from_f64(*value);
        }
    }

    fn add_to_column(&mut self, name: &str, column: usize, sum: &[(usize, f64)]) {
        let (values, width) = self.find(name);
        for (row, value) in sum {
            values[row * width + column] += S::from_f64(*value);
        }
    }

    fn add_entries(&mut self, prefix: &str, entries: &[WeightEntry]) {
        let mut by_name: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
        for (name, index, value) in entries {
            by_name.entry(name).or_default().push((*index, *value));
        }
        for (name, additions) in by_name {
            let (values, _) = self.find(&format!("{prefix}.{name}"));
            for (index, value) in additions {
                values[index] += S::from_f64(value);
            }
        }
    }

    fn add_heads(&mut self, prefix: &str, heads: &[AttentionHead], mixer: &Mixer) {
        let sizes = AttentionSizes::from_mixer(mixer);
        let inverse_scale = (sizes.key_dim as f64).sqrt();
        let name = |projection: &str| format!("{prefix}.{projection}_proj.weight");
        let mut kv_head = 0;
        for head in heads {
            for first in (0..head.value.len().max(1)).step_by(sizes.value_dim) {
                let query_head = kv_head * (sizes.heads / sizes.kv_heads);
                for (index, sum) in head.query.iter().enumerate() {
                    let scaled: WeightedSum =
                        sum.iter().map(|(column, value)| (*column, value * inverse_scale)).collect();
                    self.add_to_row(&name("q"), query_head * sizes.key_dim + index, &scaled);
                }
                for (index, sum) in head.key.iter().enumerate() {
                    self.add_to_row(&name("k"), kv_head * sizes.key_dim + index, sum);
                }
                let channels = head.value.iter().zip(&head.output).skip(first).take(sizes.value_dim);
                for (index, (sum, output)) in channels.enumerate() {
                    self.add_to_row(&name("v"), kv_head * sizes.value_dim + index, sum);
                    self.add_to_row(&name("o"), *output, &[(query_head * sizes.value_dim + index, 1.0)]);
                }
                kv_head += 1;
            }
        }
        if mixer.number("conv").is_some_and(|kernel_size| kernel_size > 0) {
            // A convolution before the projections passes the current token through.
            let kernel_size = mixer.number("conv").unwrap_or_default() as usize;
            let width = self.width;
            let (values, _) = self.find(&format!("{prefix}.conv1d.weight"));
            for channel in 0..width {
                values[channel * kernel_size + kernel_size - 1] = S::ONE;
            }
        }
    }
}
