//! Gated recurrence: a few low-precision channels; a gate per token interpolates between the old state and a new candidate.
//!
//! Definition, state and sources: `rung explain gated`.
//!
//! # Computed as
//! A loop over tokens, because the state is rounded after each. The rounding has the gradient of the identity.
//!
//! The state is on the grid of [`Rounding`], whose `2^bits` levels start at -1 and stop short of 1. An affine map moves
//! candidates onto it and outputs back, so that levels are evenly spaced from -1 to 1. At initialisation the output is
//! [`OUTPUT_SCALE`] times what was written.

use rung_engine::{GatedScan, Ops, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::Linear;

/// The initial output projection is this times the transpose of the value projection.
pub const OUTPUT_SCALE: f64 = 8.0;

/// A channel of more bits than this is in floating point.
pub const MAX_ROUNDED_BITS: u64 = 8;

/// Sizes of a gated recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedRecurrenceConfig {
    /// Number of channels of the state.
    pub channels: usize,
    /// Bits of each channel; `None` for floating point.
    pub bits: Option<u32>,
}

/// A gated recurrence.
pub struct GatedRecurrence {
    channels: usize,
    rounding: Option<Rounding>,
    value: Linear,
    write_gate: Linear,
    read_gate: Linear,
    output: Linear,
}

impl MixerConfig for GatedRecurrenceConfig {
    type Mixer = GatedRecurrence;
    const NAME: &'static str = "gated";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::gated);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let bits = (mixer.bits() <= MAX_ROUNDED_BITS).then(|| mixer.bits() as u32);
        Ok(Self { channels: number(mixer, "channels"), bits })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<GatedRecurrence, ModelError> {
        require_causal(Self::NAME, params)?;
        let (width, channels) = (params.settings.width, self.channels);
        let value = params.linear_with_init("in_proj", width, channels, Init::Normal((width as f64).powf(-0.5)));
        let mut gate = |name: &str, initial_bias: f64| {
            let bias =
                params.parameter_without_weight_decay(&format!("{name}.bias"), &[1], Init::Constant(initial_bias));
            Linear { bias: Some(bias), ..params.linear_with_init(name, width, 1, Init::Constant(0.0)) }
        };
        let (write_gate, read_gate) = (gate("write_gate", 1.0), gate("read_gate", 0.0));
        let output = params.role(Role::Output).linear_with_init("out_proj", channels, width, Init::Constant(0.0));
        params.copy_transpose(&value, &output, OUTPUT_SCALE);
        let bits = self.bits.into_iter().chain(params.settings.precision.state.map(|rounding| rounding.bits)).min();
        let rounding = bits.map(|bits| Rounding { bits, range: 1.0 });
        Ok(GatedRecurrence { channels, rounding, value, write_gate, read_gate, output })
    }
}

impl GatedRecurrence {
    /// Factor and offset of the map from [-1, 1] to the grid: -1 stays, 1 becomes the highest level.
    fn grid_map(&self) -> (f64, f64) {
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
        let (factor, offset) = self.grid_map();
        let value = ops.affine(&ops.tanh(&self.value.apply(ops, x)), factor, offset);
        let gate = ops.sigmoid(&self.write_gate.apply(ops, x));
        let initial_state =
            State::tensor(state, 0).cloned().unwrap_or_else(|| ops.full(&[batch, 1, self.channels], -1.0));
        let states =
            ops.gated_scan(&GatedScan { value: &value, gate: &gate, state: &initial_state, rounding: self.rounding });
        // Each token reads the state before it.
        let previous_states =
            if time > 1 { ops.concat(&[initial_state, ops.slice(&states, 1, 0..time - 1)], 1) } else { initial_state };
        let out = self.output.apply(ops, &ops.affine(&previous_states, 1.0 / factor, -offset / factor));
        let out = ops.mul(&out, &ops.sigmoid(&self.read_gate.apply(ops, x)));
        let last_state = ops.slice(&states, 1, time - 1..time);
        (out, State::new(State::past_len(state) + time, [Some(last_state)]))
    }
}
