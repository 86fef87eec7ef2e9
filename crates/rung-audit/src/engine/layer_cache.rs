//! What each layer of an audit caches, in elements; an engine's rules turn this into bytes.

use rung_theory::stack::mixer::{self, CacheLayout, KeyValueLayout, StateLayout};

use super::Engine;
use crate::{Audit, AuditError};

/// Fixed-size state of one layer and one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecurrentState {
    /// The mixer's name.
    pub(crate) mixer: &'static str,
    pub(crate) layout: StateLayout,
}

impl RecurrentState {
    /// Whether an engine's rules cover it, as the mixer declares.
    pub(crate) fn is_covered_by(&self, engine: &Engine) -> bool {
        mixer::find(self.mixer).is_some_and(|mixer| mixer.engines.contains(&engine.name))
    }

    /// Whether it has the last inputs of a convolution and nothing else.
    pub(crate) fn is_convolution(&self) -> bool {
        mixer::find(self.mixer).is_some_and(|mixer| mixer.is_convolution)
    }

    /// Channels of the convolution on one of `tp` devices. Groups that `tp` does not divide are replicated.
    pub(crate) fn local_channels(&self, tp: u64) -> u64 {
        let StateLayout { channels, groups, group_channels, .. } = self.layout;
        let groups = if groups.is_multiple_of(tp) { groups } else { tp };
        (channels + groups * group_channels) / tp
    }

    /// Elements of `inputs` earlier inputs of the convolution, on one of `tp` devices.
    pub(crate) fn conv_elements(&self, tp: u64, inputs: u64) -> u64 {
        if self.layout.kernel_size == 0 { 0 } else { self.local_channels(tp).saturating_mul(inputs) }
    }

    /// Elements of the recurrent state, on one of `tp` devices.
    pub(crate) fn recurrent_elements(&self, tp: u64) -> u64 {
        self.layout.recurrent / tp
    }
}

/// What one layer caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerCache {
    /// Keys and values, unless the layer reads another layer's cache.
    pub(crate) kv: Option<KeyValueLayout>,
    /// Recurrent state and inputs of convolutions.
    pub(crate) state: Option<RecurrentState>,
}

/// The caches of all layers of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelCaches {
    pub(crate) layers: Vec<LayerCache>,
    /// Layers whose cache no engine's rules cover, as sentences for reports.
    pub(crate) unsupported_reasons: Vec<String>,
}

impl ModelCaches {
    pub(crate) fn kv(&self) -> impl Iterator<Item = KeyValueLayout> + '_ {
        self.layers.iter().filter_map(|layer| layer.kv)
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = RecurrentState> + '_ {
        self.layers.iter().filter_map(|layer| layer.state)
    }

    /// Fails where heads cannot be divided over `tp` devices.
    pub(crate) fn check_tensor_parallel(&self, tp: u64) -> Result<(), AuditError> {
        let tp_error = |why: String| AuditError::invalid_argument(&format!("--tp {tp}"), why);
        for kv in self.kv().filter(|kv| !kv.latent) {
            if !kv.kv_heads.is_multiple_of(tp) && !tp.is_multiple_of(kv.kv_heads) {
                return Err(tp_error(format!("{} key/value heads cannot be divided over {tp} devices", kv.kv_heads)));
            }
        }
        for state in self.states() {
            if !state.layout.heads.is_multiple_of(tp) || !state.layout.channels.is_multiple_of(tp) {
                return Err(tp_error(format!(
                    "{} heads of {} cannot be divided over {tp} devices",
                    state.layout.heads, state.mixer
                )));
            }
        }
        Ok(())
    }
}

/// The caches of an audit's layers.
pub(crate) fn model_caches(audit: &Audit) -> ModelCaches {
    let mut caches = ModelCaches::default();
    for (index, layer) in audit.layers.iter().enumerate() {
        let mut cache = LayerCache::default();
        for mixer in layer.plan_layers.iter().flat_map(|plan_layer| plan_layer.mixers.iter()) {
            match mixer.facts().layout {
                Some(CacheLayout::KeyValues(kv)) if !layer.shares_cache => cache.kv = Some(kv),
                Some(CacheLayout::State(layout)) => {
                    cache.state = Some(merge_states(cache.state, RecurrentState { mixer: mixer.name(), layout }));
                }
                Some(CacheLayout::Nothing | CacheLayout::KeyValues(_)) => {}
                None => caches
                    .unsupported_reasons
                    .push(format!("layer {index}: no engine's rule covers `{}`", mixer.name())),
            }
        }
        caches.layers.push(cache);
    }
    caches.unsupported_reasons.truncate(8);
    caches
}

/// Adds up two states of one layer: a convolution before attention has state of its own.
fn merge_states(first: Option<RecurrentState>, second: RecurrentState) -> RecurrentState {
    let Some(first) = first.map(|state| state.layout) else { return second };
    let layout = StateLayout {
        channels: first.channels + second.layout.channels,
        kernel_size: first.kernel_size.max(second.layout.kernel_size),
        recurrent: first.recurrent + second.layout.recurrent,
        shift: first.shift + second.layout.shift,
        ..second.layout
    };
    RecurrentState { layout, ..second }
}
