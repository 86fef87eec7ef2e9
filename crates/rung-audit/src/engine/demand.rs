//! What each layer keeps, in elements: read off the audit, before any engine's rule.

use rung_theory::stack::Mixer;

use crate::{Audit, AuditError};

/// How far back a layer's keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reach {
    All,
    /// The last so many tokens, the current one included.
    Window(u64),
    /// The tokens of the same chunk.
    Chunk(u64),
    /// One entry for every so many tokens, and a window of single tokens.
    Compressed {
        ratio: u64,
        window: u64,
    },
}

/// Keys and values of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyValues {
    pub(crate) reach: Reach,
    pub(crate) heads: u64,
    pub(crate) key: u64,
    /// 0 where one vector serves as key and value.
    pub(crate) value: u64,
    /// One latent vector for all heads, which tensor parallelism does not divide.
    pub(crate) latent: bool,
    /// Elements of an index key per token (or per entry).
    pub(crate) index: u64,
}

impl KeyValues {
    /// Heads on one of `tp` devices.
    pub(crate) fn local_heads(&self, tp: u64) -> u64 {
        if self.latent { 1 } else { (self.heads / tp).max(1) }
    }
}

/// Fixed-size state of one layer and one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RecurrentState {
    /// The mixer's name.
    pub(crate) kind: &'static str,
    /// Channels of the short convolution that tensor parallelism divides.
    pub(crate) channels: u64,
    /// Groups of the input and output projections (Mamba-2), and channels of one group in both together.
    pub(crate) groups: u64,
    pub(crate) group_channels: u64,
    /// Kernel size of the short convolution; 0 for none.
    pub(crate) kernel_size: u64,
    /// Elements of the recurrent state.
    pub(crate) recurrent: u64,
    /// Heads that the state is divided into.
    pub(crate) heads: u64,
    /// Elements of earlier inputs that are kept without a convolution (token shift).
    pub(crate) shift: u64,
}

impl RecurrentState {
    /// Channels of the convolution on one of `tp` devices. Groups that do not divide are copied.
    pub(crate) fn local_channels(&self, tp: u64) -> u64 {
        let groups = if self.groups.is_multiple_of(tp) { self.groups } else { tp };
        (self.channels + groups * self.group_channels) / tp
    }

    /// Elements that the convolution keeps with `columns` earlier inputs.
    pub(crate) fn convolution(&self, tp: u64, columns: u64) -> u64 {
        if self.kernel_size == 0 { 0 } else { self.local_channels(tp).saturating_mul(columns) }
    }

    pub(crate) fn recurrence(&self, tp: u64) -> u64 {
        self.recurrent / tp
    }
}

/// What one layer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) kv: Option<KeyValues>,
    pub(crate) state: Option<RecurrentState>,
}

/// The demands of all layers that keep anything, and what could not be expressed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demands {
    pub(crate) layers: Vec<Demand>,
    pub(crate) unsupported: Vec<String>,
}

impl Demands {
    pub(crate) fn kv(&self) -> impl Iterator<Item = KeyValues> + '_ {
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
            if !state.heads.is_multiple_of(tp) || !state.channels.is_multiple_of(tp) {
                return Err(refuse(format!(
                    "{} heads of {} cannot be divided over {tp} devices",
                    state.heads, state.kind
                )));
            }
        }
        Ok(())
    }
}

/// Reads the demands off an audit.
pub(crate) fn demands(audit: &Audit) -> Demands {
    let mut found = Demands::default();
    for (index, layer) in audit.layers.iter().enumerate() {
        let mut demand = Demand::default();
        for mixer in layer.plan_layers.iter().flat_map(|part| part.mixers.iter()) {
            match read(mixer) {
                Some(Part::Attention(kv)) if !layer.shares_cache => demand.kv = Some(kv),
                Some(Part::State(state)) => demand.state = Some(merge(demand.state, state)),
                Some(Part::Nothing | Part::Attention(_)) => {}
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
    let Some(first) = first else { return second };
    RecurrentState {
        kind: second.kind,
        channels: first.channels + second.channels,
        kernel_size: first.kernel_size.max(second.kernel_size),
        recurrent: first.recurrent + second.recurrent,
        shift: first.shift + second.shift,
        ..second
    }
}

enum Part {
    Attention(KeyValues),
    State(RecurrentState),
    Nothing,
}

fn read(mixer: &Mixer) -> Option<Part> {
    let number = |name: &str| mixer.number(name).unwrap_or(0);
    let attention = |reach: Reach, value: u64, index: u64| {
        Part::Attention(KeyValues { reach, heads: number("kv"), key: number("key"), value, latent: false, index })
    };
    let latent = |index: u64| {
        let key = number("latent") + number("rope");
        Part::Attention(KeyValues { reach: Reach::All, heads: 1, key, value: 0, latent: true, index })
    };
    let state = |channels: u64, kernel_size: u64, recurrent: u64, heads: u64| {
        let kind = mixer.name();
        Part::State(RecurrentState {
            kind,
            channels,
            groups: 0,
            group_channels: 0,
            kernel_size,
            recurrent,
            heads,
            shift: 0,
        })
    };
    Some(match mixer.name() {
        "full" => attention(Reach::All, number("value"), 0),
        "moba" => attention(Reach::All, number("value"), number("index")),
        "window" => {
            let value = if number("tied") == 1 { 0 } else { number("value") };
            attention(Reach::Window(number("size") + number("sinks")), value, 0)
        }
        "chunked" => attention(Reach::Chunk(number("size")), number("value"), 0),
        "mla" => latent(0),
        "dsa" => latent(number("index-head")),
        "compressed" => {
            let reach = Reach::Compressed { ratio: number("ratio"), window: number("window") };
            let (key, index) = (number("head"), number("index-head"));
            Part::Attention(KeyValues { reach, heads: 1, key, value: 0, latent: true, index })
        }
        "gdn" | "kda" => {
            let (keys, values) = (number("heads"), number("value-heads"));
            let channels = 2 * keys * number("key") + values * number("value");
            state(channels, number("conv"), values * number("key") * number("value"), keys)
        }
        "mamba2" => {
            let inner = number("heads") * number("head");
            let Part::State(one) = state(inner, number("conv"), inner * number("state"), number("heads")) else {
                return None;
            };
            Part::State(RecurrentState { groups: number("groups"), group_channels: 2 * number("state"), ..one })
        }
        "mamba1" => state(number("inner"), number("conv"), number("inner") * number("state"), number("inner")),
        "conv" => state(number("channels"), number("taps"), 0, number("channels")),
        "rglru" => state(number("inner"), number("conv"), number("inner"), number("inner")),
        "lightning" => state(0, 0, number("heads") * number("head") * number("head"), number("heads")),
        "rwkv6" | "rwkv7" => {
            let heads = number("heads");
            let Part::State(one) = state(0, 0, heads * number("head") * number("head"), heads) else { return None };
            Part::State(RecurrentState { shift: u64::try_from(mixer.facts().tail).ok()?, ..one })
        }
        "none" => Part::Nothing,
        _ => return None,
    })
}
