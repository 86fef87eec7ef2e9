//! Token mixers: the part of a layer that moves information between tokens.
//!
//! Every mixer is one file: a config read off a plan's mixer, the struct with the handles of its weights, one `forward`,
//! tests. It has one form only, which takes a span of tokens and the state before them:
//!
//! ```text
//! forward(x[0..n], none)                   the parallel (or chunked) form
//! forward(x[t..t+1], state)                the step form
//! forward(x[0..a], none), (x[a..n], state) hand-over in the middle of a text
//! ```
//!
//! That the three agree is tested for all mixers by one table of cases, together with causality, gradients, kernels against
//! composed bodies, and the size of the state against the number in the plan.
//!
//! To add a mixer: write its file, add a line to the registry below, and a line to the table in `tests.rs`. A mixer outside
//! of this crate implements [`TokenMixer`] and goes into a [`Model`](crate::Model) through
//! [`ModelConfig::init_with`](crate::ModelConfig::init_with).

pub mod attention;
pub mod cases;
mod fenwick;
pub mod head_options;
pub mod policy;
pub(crate) mod shift;
#[cfg(test)]
mod tests;
pub mod zamba;

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use attention::{KvCache, QueryHeads};
use zamba::Zamba;

use crate::error::ModelError;
use crate::param_builder::ParamBuilder;
use crate::position::Positions;

/// The most tensors that a state has.
pub const SLOTS: usize = 6;

/// What a mixer hands on from one span of tokens to the next.
#[derive(Clone, Debug)]
pub struct State<T> {
    /// Tokens so far: the clock that all mixers share.
    pub seen: usize,
    /// Its tensors, each with the batch as first axis.
    pub tensors: [Option<T>; SLOTS],
    /// What later layers may use at the same tokens. It is not handed on.
    pub shared: Option<SharedTensor<T>>,
}

/// What a mixer lends to mixers of later layers.
#[derive(Clone, Debug)]
pub enum SharedTensor<T> {
    /// What attention has just read, for layers that read the same and keep nothing themselves.
    Cache(KvCache<T>),
    /// Values, `[batch, time, heads, width]`, for layers that mix them into theirs.
    Values(T),
    /// A stream, `[batch, time, width]`, that a later mixer reads beside or in addition to its own.
    Stream(T),
}

impl<T> State<T> {
    /// A state after `seen` tokens with these tensors.
    ///
    /// # Panics
    /// If there are more than [`SLOTS`].
    pub fn new<const COUNT: usize>(seen: usize, tensors: [Option<T>; COUNT]) -> Self {
        assert!(COUNT <= SLOTS, "a state has at most {SLOTS} tensors, not {COUNT}");
        let mut given = tensors.into_iter();
        Self { seen, tensors: std::array::from_fn(|_| given.next().flatten()), shared: None }
    }

    /// Tokens before a span that starts from `state`.
    pub fn seen(state: Option<&Self>) -> usize {
        state.map_or(0, |state| state.seen)
    }

    /// One of the tensors that a span starts from.
    pub fn part(state: Option<&Self>, slot: usize) -> Option<&T> {
        state.and_then(|state| state.tensors[slot].as_ref())
    }

    /// Numbers in it, for one row of the batch.
    pub fn numbers<O: Ops<Tensor = T>>(&self, ops: &O) -> usize {
        let shapes = self.tensors.iter().flatten().map(|tensor| ops.shape(tensor));
        shapes.map(|shape| shape[1..].iter().product::<usize>()).sum()
    }
}

/// A token mixer with its weights in place.
pub trait TokenMixer: Send + Sync {
    /// Mixes a span of tokens, going on from a state.
    ///
    /// # Shapes
    /// `x` and the result are `[batch, time, width]`.
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>);

    /// A loss of the mixer's own, for weights that the model's loss does not reach: a mean over tokens, given the mixer's input for
    /// whole texts. Few mixers have one, and the others do not ask for the input. Training adds it.
    fn own_loss<O: Ops>(&self, ops: &O, x: impl FnOnce() -> O::Tensor) -> Option<O::Tensor> {
        let _ = (ops, x);
        None
    }

    /// The state after a span of tokens whose outputs are not needed. Mixers that can be cheaper without them say how.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        self.forward(ops, x, state).1
    }
}

/// The sizes of a mixer, before it has weights.
pub trait MixerConfig: Sized {
    /// What it becomes.
    type Mixer: TokenMixer;

    /// Its name in a plan.
    const NAME: &'static str;

    /// Reads the sizes off a plan's mixer of that name.
    ///
    /// # Errors
    /// Its numbers do not fit each other, or ask for what has no network.
    fn resolve(mixer: &Mixer) -> Result<Self, ModelError>;

    /// Adds the weights.
    ///
    /// # Errors
    /// The sizes do not fit the width.
    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Self::Mixer, ModelError>;
}

macro_rules! registry {
    ($($module:ident: $name:ident, $config:ident;)*) => {
        $(pub mod $module;)*

        /// The mixers of this crate, one of which a plan's mixer becomes.
        pub enum Builtin {
            $(#[doc = concat!("See [`", stringify!($module), "`].")]
            $name(<$module::$config as MixerConfig>::Mixer),)*
            /// Attention over the cache of an earlier layer.
            SharedCache(QueryHeads),
            /// See [`zamba`].
            Zamba(Zamba),
        }

        /// Names of the mixers that have a network.
        pub const NAMES: &[&str] = &[$(<$module::$config as MixerConfig>::NAME),*];

        impl Builtin {
            /// Builds a plan's mixer.
            ///
            /// # Errors
            /// It has no network, or does not fit the width.
            #[inline(never)]
            pub fn init<S: Scalar>(mixer: &Mixer, params: &mut ParamBuilder<'_, S>) -> Result<Self, ModelError> {
                match mixer.name() {
                    $(<$module::$config as MixerConfig>::NAME =>
                        Ok(Self::$name($module::$config::resolve(mixer)?.init(params)?)),)*
                    name => Err(ModelError::NoNetwork { mixer: name.to_owned(), known: NAMES.join(", ") }),
                }
            }
        }

        impl TokenMixer for Builtin {
            #[inline(never)]
            fn forward<O: Ops>(
                &self,
                ops: &O,
                x: &O::Tensor,
                state: Option<&State<O::Tensor>>,
            ) -> (O::Tensor, State<O::Tensor>) {
                match self {
                    $(Self::$name(mixer) => mixer.forward(ops, x, state),)*
                    Self::SharedCache(mixer) => mixer.forward(ops, x, state),
                    Self::Zamba(mixer) => mixer.forward(ops, x, state),
                }
            }

            fn own_loss<O: Ops>(&self, ops: &O, x: impl FnOnce() -> O::Tensor) -> Option<O::Tensor> {
                match self {
                    $(Self::$name(mixer) => mixer.own_loss(ops, x),)*
                    Self::SharedCache(mixer) => mixer.own_loss(ops, x),
                    Self::Zamba(mixer) => mixer.own_loss(ops, x),
                }
            }

            #[inline(never)]
            fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
                match self {
                    $(Self::$name(mixer) => mixer.advance_state(ops, x, state),)*
                    Self::SharedCache(mixer) => mixer.advance_state(ops, x, state),
                    Self::Zamba(mixer) => mixer.advance_state(ops, x, state),
                }
            }
        }
    };
}

registry! {
    softmax: Softmax, SoftmaxConfig;
    mla: Latent, LatentConfig;
    compositional: Compositional, CompositionalConfig;
    window: Window, WindowConfig;
    evicting: EvictingAttention, EvictingAttentionConfig;
    linear: LinearAttention, LinearAttentionConfig;
    fastmax: Fastmax, FastmaxConfig;
    inline: Inline, InlineConfig;
    moba: Moba, MobaConfig;
    nsa: NativeSparse, NativeSparseConfig;
    dsa: TokenSparse, TokenSparseConfig;
    retnet: Retnet, RetnetConfig;
    lightning: Lightning, LightningConfig;
    gla: Gla, GlaConfig;
    hgrn2: Hgrn2, Hgrn2Config;
    rwkv6: Rwkv6, Rwkv6Config;
    mamba1: Mamba1, Mamba1Config;
    mamba2: Mamba2, Mamba2Config;
    rglru: RgLru, RgLruConfig;
    rwkv7: Rwkv7, Rwkv7Config;
    deltanet: Deltanet, DeltanetConfig;
    gdn: GatedDeltanet, GatedDeltanetConfig;
    kda: KimiDelta, KimiDeltaConfig;
    deltaproduct: DeltaProduct, DeltaProductConfig;
    loglinear_mamba2: LogLinearMamba2, LogLinearMamba2Config;
    loglinear_gdn: LogLinearDeltanet, LogLinearDeltanetConfig;
    conv: ShortConvolution, ShortConvolutionConfig;
    gated: GatedRecurrence, GatedRecurrenceConfig;
    none: NoMixer, NoMixerConfig;
}

impl Builtin {
    /// Builds a plan's mixer that uses what one of an earlier layer lends: attention that reads its keys and values, or RWKV-7
    /// that mixes its values in.
    ///
    /// # Errors
    /// It is neither, is attention with a convolution of its own in front, or does not fit the width.
    pub fn init_reader<S: Scalar>(mixer: &Mixer, params: &mut ParamBuilder<'_, S>) -> Result<Self, ModelError> {
        let reader = match mixer.name() {
            rwkv7::Rwkv7Config::NAME => {
                return Ok(Self::Rwkv7(rwkv7::Rwkv7Config::resolve(mixer)?.init_later(params)?));
            }
            softmax::SoftmaxConfig::NAME => {
                let config = softmax::SoftmaxConfig::resolve(mixer)?;
                if config.taps > 0 {
                    let what = "a shared cache behind a convolution".to_owned();
                    let expected = "conv=0 in a layer that reads the cache of another".to_owned();
                    return Err(ModelError::Unsupported { mixer: mixer.name(), what, expected });
                }
                config.init_reader(params)?
            }
            window::WindowConfig::NAME => window::WindowConfig::resolve(mixer)?.init_reader(params)?,
            name => {
                let what = "a layer that reads the cache of another".to_owned();
                let expected = "full or window attention there".to_owned();
                return Err(ModelError::Unsupported { mixer: name, what, expected });
            }
        };
        Ok(Self::SharedCache(reader))
    }
}

/// What a slot of the state holds, and new tokens after it.
fn grown<O: Ops>(ops: &O, state: Option<&State<O::Tensor>>, slot: usize, new: &O::Tensor) -> O::Tensor {
    State::part(state, slot).map_or_else(|| new.clone(), |kept| ops.concat(&[kept.clone(), new.clone()], 1))
}

/// A number of a plan's mixer.
///
/// # Panics
/// If the mixer has no such option: a mistake in the file that asks, met by the table of cases.
fn number(mixer: &Mixer, option: &str) -> usize {
    mixer.number(option).unwrap_or_else(|| panic!("mixer {mixer} has no option {option}")) as usize
}

/// Whether an option of a plan's mixer is `yes`.
fn flag(mixer: &Mixer, option: &str) -> bool {
    mixer.options().flag(option)
}

/// What the width of the stream must be a multiple of: mixers that share its channels out among heads have such a number, others
/// have 1.
pub(crate) fn width_divisor(mixer: &Mixer) -> u64 {
    let option = match mixer.name() {
        hgrn2::Hgrn2Config::NAME => "expand",
        inline::InlineConfig::NAME => "heads",
        _ => return 1,
    };
    mixer.number(option).unwrap_or(1)
}

/// Whether a mixer has as many channels as the stream, whatever the plan says.
pub(crate) fn follows_width(mixer: &Mixer) -> bool {
    mixer.name() == conv::ShortConvolutionConfig::NAME && mixer.flag("gated") == Some(false)
}

/// Refuses heads that cannot be shared out evenly.
fn shared_evenly(mixer: &'static str, what: &'static str, heads: usize, groups: usize) -> Result<(), ModelError> {
    if groups > 0 && heads.is_multiple_of(groups) {
        return Ok(());
    }
    Err(ModelError::Shape { place: mixer, what, found: groups as u64, expected: format!("a divisor of {heads}") })
}

/// Refuses penalties on distance, which ask for a number for every pair of tokens.
fn without_alibi<S: Scalar>(mixer: &'static str, params: &ParamBuilder<'_, S>) -> Result<(), ModelError> {
    if params.settings.positions != Positions::Alibi {
        return Ok(());
    }
    let (what, expected) = ("a penalty on distance".to_owned(), "other positions than ALiBi's".to_owned());
    Err(ModelError::Unsupported { mixer, what, expected })
}

/// Refuses a bidirectional model.
fn causal_only<S: Scalar>(mixer: &'static str, params: &ParamBuilder<'_, S>) -> Result<(), ModelError> {
    if params.settings.causal {
        return Ok(());
    }
    Err(ModelError::Unsupported {
        mixer,
        what: "a bidirectional form".to_owned(),
        expected: "a causal model, or bidirectional mixers (full, linear, inline, none)".to_owned(),
    })
}
