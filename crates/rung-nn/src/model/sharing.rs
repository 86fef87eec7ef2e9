//! Layers that read the cache of another.
//!
//! A plan says of a layer that it keeps no keys and values itself. It reads those of the nearest layer before it whose attention is
//! of the same kind and the same key/value heads (and the same window); its own queries may be more or fewer. This is how
//! models with cross-layer caches pair their full layers with full ones and their windows with windows.

use std::collections::HashMap;

use rung_engine::Scalar;
use rung_theory::stack::{Mixer, Plan};

use crate::error::ModelError;
use crate::mixer::Builtin;
use crate::site::Site;

/// For every layer, for every mixer of it: the number of the mixer whose cache it reads, if it has none.
pub(super) type Sources = Vec<Vec<Option<usize>>>;

/// What two mixers must have in common for one to read the other's cache.
fn cache_of(mixer: &Mixer) -> (&'static str, [Option<u64>; 6]) {
    (mixer.name(), ["kv", "key", "value", "size", "sinks", "tied"].map(|option| mixer.number(option)))
}

/// Who reads whose cache.
pub(super) fn sources(plan: &Plan) -> Result<Sources, ModelError> {
    let (mut owners, mut count, mut sources) = (HashMap::new(), 0, Vec::with_capacity(plan.layers.len()));
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

/// The mixers of a layer, with caches of their own or without.
pub(super) fn build_layer<S: Scalar>(
    site: &mut Site<'_, S>,
    mixers: &[Mixer],
    sources: &[Option<usize>],
) -> Result<Vec<Builtin>, ModelError> {
    let named = |index: usize| if mixers.len() == 1 { "mixer".to_owned() } else { format!("mixers.{index}") };
    let build = |(index, (mixer, source)): (usize, (&Mixer, &Option<usize>))| {
        site.within(&named(index), |site| match source {
            Some(_) => Builtin::init_reader(mixer, site),
            None => Builtin::init(mixer, site),
        })
    };
    mixers.iter().zip(sources).enumerate().map(build).collect()
}
