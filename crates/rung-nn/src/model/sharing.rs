//! Layers that use what an earlier one lends: its cache, or its values.
//!
//! A plan says of a layer that it keeps no keys and values itself. It reads those of the nearest layer before it whose attention is
//! of the same kind and the same key/value heads (and the same window); its own queries may be more or fewer. This is how
//! models with cross-layer caches pair their full layers with full ones and their windows with windows.
//!
//! RWKV-7 mixes the values of the first such layer into those of all later ones. In a plan that is the first of the same heads.

use std::collections::HashMap;

use rung_engine::Scalar;
use rung_theory::stack::{Mixer, Plan};

use super::names;
use crate::error::ModelError;
use crate::mixer::rwkv7::Rwkv7Config;
use crate::mixer::{Builtin, MixerConfig as _};
use crate::param_builder::ParamBuilder;

/// For every layer, for every mixer of it: the number of the mixer that lends it something, if one does.
pub(super) type Sources = Vec<Vec<Option<usize>>>;

/// What two mixers must have in common for one to read the other's cache.
fn cache_of(mixer: &Mixer) -> (&'static str, [Option<u64>; 6]) {
    (mixer.name(), ["kv", "key", "value", "size", "sinks", "tied"].map(|option| mixer.number(option)))
}

/// What two mixers must have in common for the later one to mix in the first one's values, if it does such a thing.
fn values_of(mixer: &Mixer) -> Option<[Option<u64>; 2]> {
    (mixer.name() == Rwkv7Config::NAME).then(|| ["heads", "head"].map(|option| mixer.number(option)))
}

/// Whether a mixer of a plan that can be built reads a shared tensor.
pub(crate) fn lends(plan: &Plan, layer: usize, mixer: usize) -> bool {
    sources(plan).is_ok_and(|sources| sources[layer][mixer].is_some())
}

/// Who uses what of whom.
pub(super) fn sources(plan: &Plan) -> Result<Sources, ModelError> {
    let (mut owners, mut count, mut sources) = (HashMap::new(), 0, Vec::with_capacity(plan.layers.len()));
    let mut firsts = HashMap::new();
    for (index, layer) in plan.layers.iter().enumerate() {
        let mut of_layer = Vec::with_capacity(layer.mixers.len());
        for mixer in layer.mixers.iter() {
            let cache = cache_of(mixer);
            if layer.shares_cache {
                let source = owners.get(&cache).copied().ok_or_else(|| ModelError::Unsupported {
                    mixer: mixer.name(),
                    what: format!("layer {index}, which reads the cache of another,"),
                    expected: "an earlier layer with the same mixer, key/value heads and window".to_owned(),
                })?;
                of_layer.push(Some(source));
            } else if let Some(values) = values_of(mixer) {
                let first = *firsts.entry(values).or_insert(count);
                of_layer.push((first != count).then_some(first));
            } else {
                owners.insert(cache, count);
                of_layer.push(None);
            }
            count += 1;
        }
        sources.push(of_layer);
    }
    Ok(sources)
}

/// The mixers of a layer, with or without a shared tensor.
pub(super) fn build_layer<S: Scalar>(
    params: &mut ParamBuilder<'_, S>,
    mixers: &[Mixer],
    sources: &[Option<usize>],
) -> Result<Vec<Builtin>, ModelError> {
    let build = |(index, (mixer, source)): (usize, (&Mixer, &Option<usize>))| {
        params.within(&names::mixer_in_layer(index, mixers.len()), |params| match source {
            Some(_) => Builtin::init_reader(mixer, params),
            None => Builtin::init(mixer, params),
        })
    };
    mixers.iter().zip(sources).enumerate().map(build).collect()
}
