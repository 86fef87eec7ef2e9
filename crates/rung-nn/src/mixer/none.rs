//! No mixer: the layer moves nothing between tokens.
//!
//! Definition, state and sources: `rung explain none`.

use rung_engine::{Ops, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer};
use crate::error::ModelError;
use crate::param_builder::ParamBuilder;

/// The configuration of [`NoMixer`], which has no sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMixerConfig;

/// A mixer whose output is zero.
pub struct NoMixer;

impl MixerConfig for NoMixerConfig {
    type Mixer = NoMixer;
    const NAME: &'static str = "none";

    fn resolve(_: &Mixer) -> Result<Self, ModelError> {
        Ok(Self)
    }

    fn init<S: Scalar>(&self, _: &mut ParamBuilder<'_, S>) -> Result<NoMixer, ModelError> {
        Ok(NoMixer)
    }
}

impl TokenMixer for NoMixer {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let shape = ops.shape(x);
        (ops.zeros(&shape), State::new(State::past_len(state) + shape[1], []))
    }
}
