//! Full softmax attention, with any number of key/value heads.
//!
//! # Recurrence
//! Scores `a_ts = q_t.k_s / sqrt(d)` for s <= t, `o_t = sum_s softmax(a_t)_s v_s`; the cache of keys and values grows by one
//! token a step.
//!
//! # Parallel form
//! `softmax(mask(Q K' / sqrt(d))) V`. Without the mask in a bidirectional model.
//!
//! # State
//! `kv * (key + value)` numbers for each token so far, and `conv - 1` inputs per channel of a convolution in front.
//!
//! # Reduces to
//! A window as long as the text is this.
//!
//! # Source
//! Vaswani et al. 2017 (1706.03762); grouped heads: Ainslie et al. 2023 (2305.13245).

use rung_engine::{Ops, Scalar, Sight};
use rung_theory::stack::Mixer;

use super::attention::{Heads, HeadsConfig, after};
use super::{MixerConfig, State, TokenMixer, number};
use crate::error::ModelError;
use crate::parts::Convolution;
use crate::site::Site;

/// Sizes of full attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftmaxConfig {
    /// The heads.
    pub heads: HeadsConfig,
    /// Taps of a convolution before the projections; 0 for none.
    pub taps: usize,
}

/// Full attention.
pub struct Softmax {
    front: Option<Convolution>,
    heads: Heads,
    sight: Sight,
}

impl MixerConfig for SoftmaxConfig {
    type Mixer = Softmax;
    const NAME: &'static str = "full";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, taps: number(mixer, "conv") })
    }

    fn init<S: Scalar>(&self, site: &mut Site<'_, S>) -> Result<Softmax, ModelError> {
        let sight = if site.settings.causal { Sight::Past } else { Sight::All };
        if !site.settings.causal && self.taps > 0 {
            super::causal_only("full{conv}", site)?;
        }
        let front = site.convolution("conv1d", site.settings.width, self.taps);
        Ok(Softmax { front, heads: self.heads.init(Self::NAME, site, site.settings.precision.message)?, sight })
    }
}

impl TokenMixer for Softmax {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let seen = State::seen(state);
        let (x, front) = match &self.front {
            Some(front) => front.apply(ops, x, State::part(state, 2)),
            None => (x.clone(), None),
        };
        let [query, key, value] = self.heads.project(ops, &x, seen);
        let key = after(ops, State::part(state, 0), &key);
        let value = after(ops, State::part(state, 1), &value);
        let inputs = [query, key, value];
        let out = self.heads.read(ops, &inputs, self.sight);
        let [_, key, value] = inputs;
        (out, State::new(seen + ops.shape(&x)[1], [Some(key), Some(value), front]))
    }
}
