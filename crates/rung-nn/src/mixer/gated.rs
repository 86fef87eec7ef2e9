//! Gated recurrence: a few channels of few bits, of which each token replaces a share.
//!
//! Definition, state and sources: `rung explain gated`.
//!
//! # Computed as
//! None: rounding after every token leaves a loop over tokens, whose gradient takes the rounding as the identity.
//!
//! The state is kept on the grid of [`Rounding`], whose `2^bits` levels start at -1 and stop short of 1. Candidates
//! are moved onto it and reads back from it by one affine map, so that levels lie evenly from -1 to 1. A read gives
//! back, enlarged by [`READ_SCALE`], what was written.

use rung_engine::{GatedScan, Ops, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::Linear;
use crate::param_builder::{Init, ParamBuilder};

/// How much larger a fresh output projection is than the transpose of the value projection.
pub const READ_SCALE: f64 = 8.0;

/// Above so many bits a channel is not rounded by itself.
pub const MOST_BITS: u64 = 8;

/// Sizes of a gated recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedRecurrenceConfig {
    /// Channels of state.
    pub channels: usize,
    /// Bits of each; none for the machine's own.
    pub bits: Option<u32>,
}

/// A gated recurrence.
pub struct GatedRecurrence {
    channels: usize,
    rounding: Option<Rounding>,
    value: Linear,
    write: Linear,
    read: Linear,
    output: Linear,
}

impl MixerConfig for GatedRecurrenceConfig {
    type Mixer = GatedRecurrence;
    const NAME: &'static str = "gated";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let bits = (mixer.bits() <= MOST_BITS).then(|| mixer.bits() as u32);
        Ok(Self { channels: number(mixer, "channels"), bits })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<GatedRecurrence, ModelError> {
        causal_only(Self::NAME, params)?;
        let (width, channels) = (params.settings.width, self.channels);
        let value = params.linear_from("in_proj", width, channels, Init::Normal((width as f64).powf(-0.5)));
        let mut gate = |name: &str, bias: f64| {
            let offset = params.weight_without_decay(&format!("{name}.bias"), &[1], Init::Constant(bias));
            Linear { bias: Some(offset), ..params.linear_from(name, width, 1, Init::Constant(0.0)) }
        };
        let (write, read) = (gate("write_gate", 1.0), gate("read_gate", 0.0));
        let output = params.role(Role::Output).linear_from("out_proj", channels, width, Init::Constant(0.0));
        params.transpose(&value, &output, READ_SCALE);
        let bits = self.bits.into_iter().chain(params.settings.precision.state.map(|rounding| rounding.bits)).min();
        let rounding = bits.map(|bits| Rounding { bits, range: 1.0 });
        Ok(GatedRecurrence { channels, rounding, value, write, read, output })
    }
}

impl GatedRecurrence {
    /// Where levels from -1 to 1 lie on the grid, as factor and offset: `-1` stays, `1` becomes the highest level.
    fn grid(&self) -> (f64, f64) {
        let factor = self.rounding.map_or(1.0, |rounding| 1.0 - 0.5_f64.powf(rounding.bits.into()));
        (factor, factor - 1.0)
    }
}

impl TokenMixer for GatedRecurrence {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [batch, time] = [0, 1].map(|axis| ops.shape(x)[axis]);
        let (factor, offset) = self.grid();
        let value = ops.affine(&ops.tanh(&self.value.apply(ops, x)), factor, offset);
        let gate = ops.sigmoid(&self.write.apply(ops, x));
        let first = State::part(state, 0).cloned().unwrap_or_else(|| ops.full(&[batch, 1, self.channels], -1.0));
        let states = ops.gated_scan(&GatedScan { value: &value, gate: &gate, state: &first, rounding: self.rounding });
        let before = if time > 1 {
            ops.concat(&[first, ops.slice(&states, 1, 0..time - 1)], 1)
        } else {
            first
        };
        let read = self.output.apply(ops, &ops.affine(&before, 1.0 / factor, -offset / factor));
        let out = ops.mul(&read, &ops.sigmoid(&self.read.apply(ops, x)));
        let last = ops.slice(&states, 1, time - 1..time);
        (out, State::new(State::seen(state) + time, [Some(last)]))
    }
}
