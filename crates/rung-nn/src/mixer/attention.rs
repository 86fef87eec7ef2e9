//! What softmax attention and its window share: projections, positions, one read.

use rung_engine::{Attention, Ops, Rounding, Scalar, Sight};
use rung_theory::stack::Mixer;

use super::{number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{Linear, join};
use crate::position::{Positions, Rotation, Spacing, alibi};
use crate::precision::rounded;
use crate::site::Site;

/// Sizes of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsConfig {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
}

/// Projections and positions.
pub struct Heads {
    config: HeadsConfig,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    rotation: Option<Rotation>,
    alibi: bool,
    rounding: Option<Rounding>,
}

impl HeadsConfig {
    pub(super) fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let (heads, kv_heads) = (number(mixer, "heads"), number(mixer, "kv"));
        shared_evenly(mixer.name(), "key/value heads", heads, kv_heads)?;
        Ok(Self { heads, kv_heads, key: number(mixer, "key"), value: number(mixer, "value") })
    }

    /// Adds the weights. `rounding` is that of the keys and values that are kept.
    pub(super) fn init<S: Scalar>(
        self,
        name: &'static str,
        site: &mut Site<'_, S>,
        rounding: Option<Rounding>,
    ) -> Result<Heads, ModelError> {
        let (width, positions) = (site.settings.width, site.settings.positions);
        let rotation = match positions {
            Positions::Rotary { .. } if !self.key.is_multiple_of(2) => {
                let expected = "an even number, for rotary positions".to_owned();
                return Err(ModelError::Shape { place: name, what: "key width", found: self.key as u64, expected });
            }
            Positions::Rotary { base } => Some(Rotation::new(self.key, Spacing::Usual { base })),
            _ => None,
        };
        let query = site.linear("q_proj", width, self.heads * self.key);
        let key = site.linear("k_proj", width, self.kv_heads * self.key);
        site.tie(&query, &key, self.heads, self.kv_heads);
        Ok(Heads {
            config: self,
            query,
            key,
            value: site.linear("v_proj", width, self.kv_heads * self.value),
            output: site.linear("o_proj", self.heads * self.value, width),
            rotation,
            alibi: positions == Positions::Alibi,
            rounding,
        })
    }
}

impl Heads {
    /// Queries, keys and values of a stretch of tokens, turned by position.
    pub(super) fn project<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> [O::Tensor; 3] {
        let turned = |x: O::Tensor| self.rotation.as_ref().map_or(x.clone(), |turn| turn.apply(ops, &x, seen));
        let query = turned(self.query.heads(ops, x, self.config.heads));
        let key = turned(self.key.heads(ops, x, self.config.kv_heads));
        let value = self.value.heads(ops, x, self.config.kv_heads);
        [query, rounded(ops, &key, self.rounding), rounded(ops, &value, self.rounding)]
    }

    /// Attention and the output projection.
    pub(super) fn read<O: Ops>(&self, ops: &O, [query, key, value]: &[O::Tensor; 3], sight: Sight) -> O::Tensor {
        let (queries, keys) = (ops.shape(query)[1], ops.shape(key)[1]);
        let bias = self.alibi.then(|| alibi(ops, self.config.heads, queries, keys, sight == Sight::All));
        let scale = (self.config.key as f64).powf(-0.5);
        let read = ops.attention(&Attention { query, key, value, bias: bias.as_ref(), sight, scale });
        self.output.apply(ops, &join(ops, &read))
    }
}

/// What was kept, then what is new, along time.
pub fn after<O: Ops>(ops: &O, kept: Option<&O::Tensor>, new: &O::Tensor) -> O::Tensor {
    kept.map_or_else(|| new.clone(), |kept| ops.concat(&[kept.clone(), new.clone()], 1))
}
