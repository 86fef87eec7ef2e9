//! Token mixers: the part of a layer that moves information between tokens.
//!
//! Every mixer is one file: a config resolved from a plan's mixer, the struct with the handles of its weights, one `forward`,
//! tests. The one `forward` takes a span (consecutive tokens) and the state before it, and serves all uses:
//!
//! ```text
//! forward(x[0..n], none)                   prefill, in parallel or in chunks
//! forward(x[t..t+1], state)                decoding of one token
//! forward(x[0..a], none), (x[a..n], state) prefill in two spans
//! ```
//!
//! That the three agree is tested for every mixer of [`cases::CASES`], together with causality, gradients, kernels against
//! compositions of primitives, and the size of the state against the number in the plan.
//!
//! To add a mixer: write its file, add a line to the registry below, and a line to [`cases::CASES`]. A mixer outside
//! of this crate implements [`TokenMixer`] and goes into a [`Model`](crate::Model) through
//! [`ModelConfig::init_with`](crate::ModelConfig::init_with).

pub mod attention;
pub mod cases;
mod delta_rule;
mod fenwick;
pub mod head_options;
mod head_output;
pub mod policy;
pub(crate) mod shift;
#[cfg(test)]
mod tests;
pub mod zamba;

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use attention::QueryHeads;
use zamba::Zamba;

use crate::error::ModelError;
use crate::forwarding_weights::WriteForwarding;
use crate::param_builder::ParamBuilder;
use crate::position::Positions;
pub use crate::state::{MAX_STATE_TENSORS, SharedTensor, State};

/// A token mixer whose weights exist.
pub trait TokenMixer: Send + Sync {
    /// Mixes a span of tokens, starting from a state.
    ///
    /// # Shapes
    /// `x` and the result are `[batch, time, width]`.
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>);

    /// A loss for weights that get no gradient from the model's loss: a mean over tokens, given the mixer's input for complete
    /// sequences. Few mixers have one; the others do not call `x`. Training adds it to the model's loss.
    fn auxiliary_loss<O: Ops>(&self, ops: &O, x: impl FnOnce() -> O::Tensor) -> Option<O::Tensor> {
        let _ = (ops, x);
        None
    }

    /// The state after a span of tokens whose outputs are not needed. Some mixers override it with a cheaper computation.
    fn advance_state<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&State<O::Tensor>>) -> State<O::Tensor> {
        self.forward(ops, x, state).1
    }
}

/// The sizes of a mixer, before it has weights.
pub trait MixerConfig: Sized {
    /// The mixer that it configures.
    type Mixer: TokenMixer;

    /// The mixer's name in a plan.
    const NAME: &'static str;

    /// How a protocol sees its attention.
    const ATTENTION: AttentionCalls = AttentionCalls::None;

    /// Writes the weights with which it copies bits from one token to all later ones, if such weights are known.
    const FORWARDING: Option<WriteForwarding> = None;

    /// The width of the residual stream must be a multiple of this: the number of heads in mixers that divide the stream's channels
    /// among them, else 1.
    fn width_divisor(mixer: &Mixer) -> u64 {
        let _ = mixer;
        1
    }

    /// Whether it always has as many channels as the residual stream, whatever the plan says.
    fn follows_width(mixer: &Mixer) -> bool {
        let _ = mixer;
        false
    }

    /// Layers for which this is equal use the values of the first of them; `None` if layers share no values.
    fn value_identity(mixer: &Mixer) -> Option<[Option<u64>; 2]> {
        let _ = mixer;
        None
    }

    /// Takes the sizes from a plan's mixer of that name.
    ///
    /// # Errors
    /// The sizes do not fit each other, or an option is not implemented.
    fn resolve(mixer: &Mixer) -> Result<Self, ModelError>;

    /// Adds the weights.
    ///
    /// # Errors
    /// The sizes do not fit the width.
    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Self::Mixer, ModelError>;
}

/// The calls of attention in a forward pass of a mixer, as a protocol counts their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionCalls {
    /// None that a protocol counts: what it sends is its state, or it is not supported.
    None,
    /// One call over all earlier tokens.
    All,
    /// One call over a window, whose tokens are its state.
    Window,
    /// Calls over a cache that it shortens, which is its state; no other mixer of its layer may call attention.
    Evicting,
}

/// What the config of a mixer declares, for code that has only its name.
pub(crate) struct Declarations {
    name: &'static str,
    pub(crate) attention: AttentionCalls,
    pub(crate) forwarding: Option<WriteForwarding>,
    width_divisor: fn(&Mixer) -> u64,
    follows_width: fn(&Mixer) -> bool,
    value_identity: fn(&Mixer) -> Option<[Option<u64>; 2]>,
}

impl Declarations {
    const fn of<C: MixerConfig>() -> Self {
        Self {
            name: C::NAME,
            attention: C::ATTENTION,
            forwarding: C::FORWARDING,
            width_divisor: C::width_divisor,
            follows_width: C::follows_width,
            value_identity: C::value_identity,
        }
    }
}

macro_rules! registry {
    ($($module:ident: $name:ident, $config:ident;)*) => {
        $(pub mod $module;)*

        /// Any mixer of this crate.
        pub enum Builtin {
            $(#[doc = concat!("See [`", stringify!($module), "`].")]
            $name(<$module::$config as MixerConfig>::Mixer),)*
            /// Attention over the cache of an earlier layer.
            SharedCache(QueryHeads),
            /// See [`zamba`].
            Zamba(Zamba),
        }

        /// Names of the mixers that are implemented.
        pub const NAMES: &[&str] = &[$(<$module::$config as MixerConfig>::NAME),*];

        const DECLARATIONS: &[Declarations] = &[$(Declarations::of::<$module::$config>()),*];

        impl Builtin {
            /// Builds a plan's mixer.
            ///
            /// # Errors
            /// It is not implemented, or does not fit the width.
            #[inline(never)]
            pub fn init<S: Scalar>(mixer: &Mixer, params: &mut ParamBuilder<'_, S>) -> Result<Self, ModelError> {
                match mixer.name() {
                    $(<$module::$config as MixerConfig>::NAME =>
                        Ok(Self::$name($module::$config::resolve(mixer)?.init(params)?)),)*
                    name => Err(ModelError::MixerNotImplemented { mixer: name.to_owned(), known: NAMES.join(", ") }),
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

            fn auxiliary_loss<O: Ops>(&self, ops: &O, x: impl FnOnce() -> O::Tensor) -> Option<O::Tensor> {
                match self {
                    $(Self::$name(mixer) => mixer.auxiliary_loss(ops, x),)*
                    Self::SharedCache(mixer) => mixer.auxiliary_loss(ops, x),
                    Self::Zamba(mixer) => mixer.auxiliary_loss(ops, x),
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
    /// Builds a plan's mixer that uses the [`SharedTensor`] of an earlier layer: attention over its KV cache, or RWKV-7 that
    /// interpolates with its values.
    ///
    /// # Errors
    /// It is another mixer, is attention with a convolution before it, or does not fit the width.
    pub fn init_with_shared_tensor<S: Scalar>(
        mixer: &Mixer,
        params: &mut ParamBuilder<'_, S>,
    ) -> Result<Self, ModelError> {
        let query_heads = match mixer.name() {
            rwkv7::Rwkv7Config::NAME => {
                return Ok(Self::Rwkv7(rwkv7::Rwkv7Config::resolve(mixer)?.init_with_shared_values(params)?));
            }
            softmax::SoftmaxConfig::NAME => {
                let config = softmax::SoftmaxConfig::resolve(mixer)?;
                if config.kernel_size > 0 {
                    let what = "a shared cache behind a convolution".to_owned();
                    let expected = "conv=0 in a layer that shares the cache of an earlier one".to_owned();
                    return Err(ModelError::UnsupportedOption { mixer: mixer.name(), what, expected });
                }
                config.init_with_shared_cache(params)?
            }
            window::WindowConfig::NAME => window::WindowConfig::resolve(mixer)?.init_with_shared_cache(params)?,
            name => {
                let what = "a layer that shares the cache of an earlier one".to_owned();
                let expected = "full or window attention there".to_owned();
                return Err(ModelError::UnsupportedOption { mixer: name, what, expected });
            }
        };
        Ok(Self::SharedCache(query_heads))
    }
}

/// The tensor with this index in the state, with new tokens appended on axis 1.
fn append_to_state_tensor<O: Ops>(
    ops: &O,
    state: Option<&State<O::Tensor>>,
    index: usize,
    new: &O::Tensor,
) -> O::Tensor {
    State::tensor(state, index).map_or_else(|| new.clone(), |old| ops.concat(&[old.clone(), new.clone()], 1))
}

/// The value of a numeric option of a plan's mixer.
///
/// # Panics
/// If the mixer has no such option: a mistake in the calling file, which the tests find.
fn number(mixer: &Mixer, option: &str) -> usize {
    mixer.number(option).unwrap_or_else(|| panic!("mixer {mixer} has no option {option}")) as usize
}

/// Whether an option of a plan's mixer is `yes`.
fn flag(mixer: &Mixer, option: &str) -> bool {
    mixer.options().flag(option)
}

/// What the config of the mixer with this name declares.
pub(crate) fn declarations(name: &str) -> Option<&'static Declarations> {
    DECLARATIONS.iter().find(|declarations| declarations.name == name)
}

/// See [`AttentionCalls`]; none for a mixer without a network.
pub(crate) fn attention_calls(mixer: &Mixer) -> AttentionCalls {
    declarations(mixer.name()).map_or(AttentionCalls::None, |declarations| declarations.attention)
}

/// See [`MixerConfig::width_divisor`].
pub(crate) fn width_divisor(mixer: &Mixer) -> u64 {
    declarations(mixer.name()).map_or(1, |declarations| (declarations.width_divisor)(mixer))
}

/// See [`MixerConfig::follows_width`].
pub(crate) fn follows_width(mixer: &Mixer) -> bool {
    declarations(mixer.name()).is_some_and(|declarations| (declarations.follows_width)(mixer))
}

/// See [`MixerConfig::value_identity`].
pub(crate) fn value_identity(mixer: &Mixer) -> Option<[Option<u64>; 2]> {
    declarations(mixer.name()).and_then(|declarations| (declarations.value_identity)(mixer))
}

/// Returns an error unless `groups` divides `heads`; `what` names the groups.
fn require_divisor(mixer: &'static str, what: &'static str, heads: usize, groups: usize) -> Result<(), ModelError> {
    if groups > 0 && heads.is_multiple_of(groups) {
        return Ok(());
    }
    Err(ModelError::InvalidSize {
        component: mixer,
        what,
        found: groups as u64,
        expected: format!("a divisor of {heads}"),
    })
}

/// Returns an error for ALiBi, whose bias for every pair of tokens the mixer does not support.
fn reject_alibi<S: Scalar>(mixer: &'static str, params: &ParamBuilder<'_, S>) -> Result<(), ModelError> {
    if params.settings.positions != Positions::Alibi {
        return Ok(());
    }
    let (what, expected) = ("a penalty on distance".to_owned(), "other positions than ALiBi's".to_owned());
    Err(ModelError::UnsupportedOption { mixer, what, expected })
}

/// Returns an error for a bidirectional model.
fn require_causal<S: Scalar>(mixer: &'static str, params: &ParamBuilder<'_, S>) -> Result<(), ModelError> {
    if params.settings.causal {
        return Ok(());
    }
    Err(ModelError::UnsupportedOption {
        mixer,
        what: "a bidirectional form".to_owned(),
        expected: "a causal model, or bidirectional mixers (full, linear, inline, none)".to_owned(),
    })
}
