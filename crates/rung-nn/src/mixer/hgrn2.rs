//! HGRN2: a gate in the place of the key, and a floor under it that rises with depth.
//!
//! Definition, state and sources: `rung explain hgrn2`.
//!
//! # Computed as
//! As GLA, with keys `1 - f`.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{NormGain, Linear, LinearRecurrence, join, scaled, split};
use crate::param_builder::{LayerDepth, Init, ParamBuilder};

/// Sizes of HGRN2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hgrn2Config {
    /// Width of a head's key, and of its value.
    pub expand: usize,
}

/// HGRN2's mixer.
pub struct Hgrn2 {
    heads: usize,
    query: Linear,
    forget: Linear,
    input: Linear,
    floor: Option<ForgetGateFloor>,
    norm: NormGain,
    output: Linear,
    recurrence: LinearRecurrence,
}

impl MixerConfig for Hgrn2Config {
    type Mixer = Hgrn2;
    const NAME: &'static str = "hgrn2";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { expand: number(mixer, "expand") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Hgrn2, ModelError> {
        causal_only(Self::NAME, params)?;
        let width = params.settings.width;
        shared_evenly(Self::NAME, "expand", width, self.expand)?;
        let depth = params.depth;
        Ok(Hgrn2 {
            heads: width / self.expand,
            query: params.role(Role::Query).linear("q_proj", width, width),
            forget: params.linear("f_proj", width, width),
            input: params.linear("i_proj", width, width),
            floor: (depth.layer > 0).then(|| ForgetGateFloor::init(params)),
            norm: params.gain("g_norm", width),
            output: params.role(Role::Output).linear("o_proj", width, width),
            recurrence: params.recurrence(),
        })
    }
}

/// What a forget gate never falls below.
struct ForgetGateFloor {
    /// `[layers, width]`, one for the whole model.
    table: Parameter,
    depth: LayerDepth,
}

impl ForgetGateFloor {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>) -> Self {
        let shape = [params.depth.layers, params.settings.width];
        Self { table: params.common_offset("lower_bounds", &shape, Init::Constant(0.0)), depth: params.depth }
    }

    /// `log lb` and `log (1 - lb)` per channel. Neither is taken of a difference, so both are finite.
    fn logs<O: Ops>(&self, ops: &O) -> [O::Tensor; 2] {
        let LayerDepth { layer, layers } = self.depth;
        let table = ops.parameter(self.table);
        // The logarithm of a sum of exponentials over rows.
        let total = |x: &O::Tensor| {
            let largest = ops.max(x, 0);
            ops.add(&largest, &ops.log(&ops.sum(&ops.exp(&ops.sub(x, &largest)), 0)))
        };
        let (below, above): (Vec<usize>, Vec<usize>) = (0..layers).partition(|row| (1..=layer).contains(row));
        [below, above].map(|rows| {
            let share = ops.sub(&total(&ops.gather_rows(&table, &rows)), &total(&table));
            ops.reshape(&share, &[ops.shape(&table)[1]])
        })
    }
}

impl Hgrn2 {
    /// `log f` and `1 - f`, `[batch, time, width]` each.
    fn gate<O: Ops>(&self, ops: &O, x: &O::Tensor) -> (O::Tensor, O::Tensor) {
        let closed = ops.neg(&self.forget.apply(ops, x));
        // The logarithm of a sigmoid, without overflow.
        let open = ops.neg(&ops.softplus(&closed));
        let Some(floor) = &self.floor else { return (open, ops.sigmoid(&closed)) };
        let [below, above] = floor.logs(ops);
        // The logarithm of a sum of two exponentials.
        let open = ops.add(&open, &above);
        let log_keep = ops.add(&open, &ops.softplus(&ops.sub(&below, &open)));
        (log_keep, ops.mul(&ops.sigmoid(&closed), &ops.exp(&above)))
    }

    /// The read of every head before the norm, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (decay, key) = self.gate(ops, x);
        let [decay, key] = [decay, key].map(|x| split(ops, &x, self.heads));
        let query = scaled(ops, &ops.silu(&self.query.heads(ops, x, self.heads)));
        let value = self.input.heads(ops, x, self.heads);
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::Vector(&decay), None, state);
        (out, State::new(State::seen(state) + ops.shape(x)[1], [Some(matrix)]))
    }
}

impl TokenMixer for Hgrn2 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        (self.output.apply(ops, &self.norm.norm(ops, &join(ops, &out))), state)
    }
}
