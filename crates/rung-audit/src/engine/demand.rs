//! What each layer keeps, in elements: read off the audit, before any engine's rule.

use rung_theory::stack::mixer::{self, CacheLayout, KeyValueLayout, StateLayout};

use super::Engine;
use crate::{Audit, AuditError};

/// Fixed-size state of one layer and one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecurrentState {
    /// The mixer's name.
    pub(crate) kind: &'static str,
    pub(crate) layout: StateLayout,
}

impl RecurrentState {
    /// Whether an engine's rules cover it, as the mixer declares.
    pub(crate) fn is_covered_by(&self, engine: &Engine) -> bool {
        mixer::find(self.kind).is_some_and(|kind| kind.engines.contains(&engine.name))
    }

    /// Channels of the convolution on one of `tp` devices. Groups that do not divide are copied.
    pub(crate) fn local_channels(&self, tp: u64) -> u64 {
        let StateLayout { channels, groups, group_channels, .. } = self.layout;
        let groups = if groups.is_multiple_of(tp) { groups } else { tp };
        (channels + groups * group_channels) / tp
    }

    /// Elements that the convolution keeps with `columns` earlier inputs.
    pub(crate) fn convolution(&self, tp: u64, columns: u64) -> u64 {
        if self.layout.kernel_size == 0 { 0 } else { self.local_channels(tp).saturating_mul(columns) }
    }

    pub(crate) fn recurrence(&self, tp: u64) -> u64 {
        self.layout.recurrent / tp
    }
}

/// What one layer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerCache {
    pub(crate) kv: Option<KeyValueLayout>,
    pub(crate) state: Option<RecurrentState>,
}

/// The demands of all layers that keep anything, and what could not be expressed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheLayers {
    pub(crate) layers: Vec<LayerCache>,
    pub(crate) unsupported: Vec<String>,
}

impl CacheLayers {
    pub(crate) fn kv(&self) -> impl Iterator<Item = KeyValueLayout> + '_ {
        self.layers.iter().filter_map(|layer| layer.kv)
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = RecurrentState> + '_ {
        self.layers.iter().filter_map(|layer| layer.state)
    }

    /// Fails where heads cannot be divided over `tp` devices.
    pub(crate) fn check_parallel(&self, tp: u64) -> Result<(), AuditError> {
        let refuse = |what: String| AuditError::Request { text: format!("--tp {tp}"), why: what };
        for kv in self.kv().filter(|kv| !kv.latent) {
            if !kv.heads.is_multiple_of(tp) && !tp.is_multiple_of(kv.heads) {
                return Err(refuse(format!("{} key/value heads cannot be divided over {tp} devices", kv.heads)));
            }
        }
        for state in self.states() {
            if !state.layout.heads.is_multiple_of(tp) || !state.layout.channels.is_multiple_of(tp) {
                return Err(refuse(format!(
                    "{} heads of {} cannot be divided over {tp} devices",
                    state.layout.heads, state.kind
                )));
            }
        }
        Ok(())
    }
}

/// Reads the demands off an audit.
pub(crate) fn demands(audit: &Audit) -> CacheLayers {
    let mut found = CacheLayers::default();
    for (index, layer) in audit.layers.iter().enumerate() {
        let mut demand = LayerCache::default();
        for mixer in layer.plan_layers.iter().flat_map(|part| part.mixers.iter()) {
            match mixer.facts().layout {
                Some(CacheLayout::KeyValues(kv)) if !layer.shares_cache => demand.kv = Some(kv),
                Some(CacheLayout::State(layout)) => {
                    demand.state = Some(merge(demand.state, RecurrentState { kind: mixer.name(), layout }));
                }
                Some(CacheLayout::Nothing | CacheLayout::KeyValues(_)) => {}
                None => found.unsupported.push(format!("layer {index}: no engine's rule covers `{}`", mixer.name())),
            }
        }
        found.layers.push(demand);
    }
    found.unsupported.truncate(8);
    found
}

/// Two states in one layer: a convolution before attention keeps its own inputs.
fn merge(first: Option<RecurrentState>, second: RecurrentState) -> RecurrentState {
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
