//! Sliding-window attention: softmax over the last few tokens.
//!
//! # Recurrence
//! As full attention with s in `[t - size + 1, t]`: the current token is one of the window.
//!
//! # Parallel form
//! Banded softmax.
//!
//! # State
//! The last `size - 1` tokens of `kv * (key + value)` numbers.
//!
//! # Reduces to
//! Full attention when `size` reaches the length of the text.
//!
//! # Source
//! Beltagy et al. 2020 (2004.05150).

use rung_engine::{Ops, Scalar, Sight};
use rung_theory::stack::Mixer;

use super::attention::{Heads, HeadsConfig, after};
use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::site::Site;

/// Sizes of windowed attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// The heads.
    pub heads: HeadsConfig,
    /// Tokens in the window, the current one included.
    pub size: usize,
}

/// Windowed attention.
pub struct Window {
    heads: Heads,
    size: usize,
}

impl MixerConfig for WindowConfig {
    type Mixer = Window;
    const NAME: &'static str = "window";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        for (option, what, expected) in [("sinks", "attention sinks", "sinks=0"), ("tied", "tied keys", "tied=no")] {
            if number(mixer, option) > 0 {
                let (what, expected) = (what.to_owned(), expected.to_owned());
                return Err(ModelError::Unsupported { mixer: Self::NAME, what, expected });
            }
        }
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, size: number(mixer, "size") })
    }

    fn init<S: Scalar>(&self, site: &mut Site<'_, S>) -> Result<Window, ModelError> {
        causal_only(Self::NAME, site)?;
        Ok(Window { heads: self.heads.init(Self::NAME, site, site.settings.precision.state)?, size: self.size })
    }
}

impl TokenMixer for Window {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let seen = State::seen(state);
        let [query, key, value] = self.heads.project(ops, x, seen);
        let key = after(ops, State::part(state, 0), &key);
        let value = after(ops, State::part(state, 1), &value);
        let inputs = [query, key, value];
        let out = self.heads.read(ops, &inputs, Sight::Window(self.size));
        let keys = ops.shape(&inputs[1])[1];
        let kept = (self.size - 1).min(keys);
        let last = |x: &O::Tensor| (kept > 0).then(|| ops.slice(x, 1, keys - kept..keys));
        (out, State::new(seen + ops.shape(x)[1], [last(&inputs[1]), last(&inputs[2])]))
    }
}
