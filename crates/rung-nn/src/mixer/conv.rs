//! Gated short convolution over the last few tokens, without other state.
//!
//! Definition, state and sources: `rung explain conv`.
//!
//! # Computed as
//! A depthwise causal convolution.

use rung_engine::{Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, flag, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Convolution, Linear};

/// Sizes of a short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConvolutionConfig {
    /// Kernel size in tokens.
    pub kernel_size: usize,
    /// Number of channels.
    pub channels: usize,
    /// Whether the convolution is between gates and projections.
    pub gated: bool,
}

/// A short convolution as a mixer.
pub struct ShortConvolution {
    convolution: Convolution,
    /// Input projection to B, C and x, and output projection.
    projections: Option<[Linear; 2]>,
}

impl MixerConfig for ShortConvolutionConfig {
    type Mixer = ShortConvolution;
    const NAME: &'static str = "conv";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::conv);

    fn follows_width(mixer: &Mixer) -> bool {
        mixer.flag("gated") == Some(false)
    }

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [kernel_size, channels] = ["taps", "channels"].map(|option| number(mixer, option));
        Ok(Self { kernel_size, channels, gated: flag(mixer, "gated") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<ShortConvolution, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { kernel_size, channels, gated } = *self;
        let width = params.settings.width;
        if !gated && channels != width {
            let expected = format!("{width}, the width of the model, without gate and projections");
            return Err(ModelError::InvalidSize {
                component: Self::NAME,
                what: "channels",
                found: channels as u64,
                expected,
            });
        }
        let bound = (kernel_size as f64).powf(-0.5);
        let weight = params.weight("conv.weight", &[channels, 1, kernel_size], Init::Uniform(-bound, bound));
        Ok(ShortConvolution {
            convolution: Convolution {
                weight,
                bias: None,
                channels,
                kernel_size,
                rounding: params.settings.precision.state,
            },
            projections: gated.then(|| {
                [
                    params.linear("in_proj", width, 3 * channels),
                    params.role(Role::Output).linear("out_proj", channels, width),
                ]
            }),
        })
    }
}

impl ShortConvolution {
    /// A gated convolution whose weights were read from a checkpoint; the projections are to B, C and x, and to the output.
    pub(crate) fn assemble(convolution: Convolution, projections: [Linear; 2]) -> Self {
        Self { convolution, projections: Some(projections) }
    }
}

impl TokenMixer for ShortConvolution {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (past_len, last_inputs) = (State::past_len(state) + ops.shape(x)[1], State::tensor(state, 0));
        let Some([input, output]) = &self.projections else {
            let (out, conv_state) = self.convolution.apply(ops, x, last_inputs);
            return (out, State::new(past_len, [conv_state]));
        };
        let (projected, channels) = (input.apply(ops, x), self.convolution.channels);
        let [b, c, x] = [0, 1, 2].map(|index| ops.slice(&projected, 2, index * channels..(index + 1) * channels));
        let (out, conv_state) = self.convolution.apply(ops, &ops.mul(&b, &x), last_inputs);
        (output.apply(ops, &ops.mul(&c, &out)), State::new(past_len, [conv_state]))
    }
}
