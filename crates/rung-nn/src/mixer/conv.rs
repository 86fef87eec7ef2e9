//! Gated short convolution: a few taps over the last tokens, no other memory.
//!
//! Definition, state and sources: `rung explain conv`.
//!
//! # Computed as
//! A depthwise causal convolution.

use rung_engine::{Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, flag, number};
use crate::error::ModelError;
use crate::parts::{Convolution, Linear};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of a short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConvolutionConfig {
    /// Taps.
    pub taps: usize,
    /// Channels.
    pub channels: usize,
    /// Whether it gates and projects.
    pub gated: bool,
}

/// A short convolution as a mixer.
pub struct ShortConvolution {
    convolution: Convolution,
    /// Into B, C and x, and out again.
    projections: Option<[Linear; 2]>,
}

impl MixerConfig for ShortConvolutionConfig {
    type Mixer = ShortConvolution;
    const NAME: &'static str = "conv";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [taps, channels] = ["taps", "channels"].map(|option| number(mixer, option));
        Ok(Self { taps, channels, gated: flag(mixer, "gated") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<ShortConvolution, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { taps, channels, gated } = *self;
        let width = params.settings.width;
        if !gated && channels != width {
            let expected = format!("{width}, the width of the model, without gate and projections");
            return Err(ModelError::Shape { place: Self::NAME, what: "channels", found: channels as u64, expected });
        }
        let reach = (taps as f64).powf(-0.5);
        let weight = params.weight("conv.weight", &[channels, 1, taps], Init::Uniform(-reach, reach));
        Ok(ShortConvolution {
            convolution: Convolution { weight, bias: None, channels, taps, rounding: params.settings.precision.state },
            projections: gated
                .then(|| [params.linear("in_proj", width, 3 * channels), params.role(Role::Output).linear("out_proj", channels, width)]),
        })
    }
}

impl ShortConvolution {
    /// A gated convolution whose weights were read from a checkpoint: into B, C and x, and out again.
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
        let (seen, before) = (State::seen(state) + ops.shape(x)[1], State::part(state, 0));
        let Some([input, output]) = &self.projections else {
            let (out, tail) = self.convolution.apply(ops, x, before);
            return (out, State::new(seen, [tail]));
        };
        let (all, channels) = (input.apply(ops, x), self.convolution.channels);
        let part = |index: usize| ops.slice(&all, 2, index * channels..(index + 1) * channels);
        let (out, tail) = self.convolution.apply(ops, &ops.mul(&part(0), &part(2)), before);
        (output.apply(ops, &ops.mul(&part(1), &out)), State::new(seen, [tail]))
    }
}
