//! Layers that use a tensor of an earlier layer: its KV cache, or its values.
//!
//! A plan can mark a layer as one without its own KV cache. It attends to the cache of the last layer before it with the same mixer, the
//! same key/value heads and the same window; the number of query heads may differ. So full layers share with full layers and windowed
//! layers with windowed layers.
//!
//! RWKV-7 layers after the first interpolate their values with those of the first RWKV-7 layer that has the same heads.

use std::collections::HashMap;

use rung_engine::Scalar;
use rung_theory::stack::{Mixer, Plan};

use super::names;
use crate::error::ModelError;
use crate::mixer::{Builtin, value_identity};
use crate::param_builder::ParamBuilder;

/// For every layer and mixer, the index in the model of the earlier mixer whose shared tensor it uses, if any.
pub(super) type Sources = Vec<Vec<Option<usize>>>;

/// Mixers for which this is equal can share a KV cache.
fn cache_identity(mixer: &Mixer) -> (&'static str, [Option<u64>; 6]) {
    (mixer.name(), ["kv", "key", "value", "size", "sinks", "tied"].map(|option| mixer.number(option)))
}

/// Whether a mixer of a plan uses a shared tensor.
pub(crate) fn uses_shared_tensor(plan: &Plan, layer: usize, mixer: usize) -> bool {
    sources(plan).is_ok_and(|sources| sources[layer][mixer].is_some())
}

/// The source of every mixer's shared tensor.
pub(super) fn sources(plan: &Plan) -> Result<Sources, ModelError> {
    let (mut cache_owners, mut mixer_index, mut sources) = (HashMap::new(), 0, Vec::with_capacity(plan.layers.len()));
    let mut value_owners = HashMap::new();
    for (index, layer) in plan.layers.iter().enumerate() {
        let mut layer_sources = Vec::with_capacity(layer.mixers.len());
        for mixer in layer.mixers.iter() {
            let cache = cache_identity(mixer);
            if layer.shares_cache {
                let source = cache_owners.get(&cache).copied().ok_or_else(|| ModelError::UnsupportedOption {
                    mixer: mixer.name(),
                    what: format!("layer {index}, which shares the cache of an earlier layer,"),
                    expected: "an earlier layer with the same mixer, key/value heads and window".to_owned(),
                })?;
                layer_sources.push(Some(source));
            } else if let Some(values) = value_identity(mixer) {
                let first = *value_owners.entry(values).or_insert(mixer_index);
                layer_sources.push((first != mixer_index).then_some(first));
            } else {
                cache_owners.insert(cache, mixer_index);
                layer_sources.push(None);
            }
            mixer_index += 1;
        }
        sources.push(layer_sources);
    }
    Ok(sources)
}

/// Builds the mixers of a layer, with or without shared tensors.
pub(super) fn build_mixers<S: Scalar>(
    params: &mut ParamBuilder<'_, S>,
    mixers: &[Mixer],
    sources: &[Option<usize>],
) -> Result<Vec<Builtin>, ModelError> {
    let build = |(index, (mixer, source)): (usize, (&Mixer, &Option<usize>))| {
        params.with_prefix(&names::mixer_in_layer(index, mixers.len()), |params| match source {
            Some(_) => Builtin::init_with_shared_tensor(mixer, params),
            None => Builtin::init(mixer, params),
        })
    };
    mixers.iter().zip(sources).enumerate().map(build).collect()
}
