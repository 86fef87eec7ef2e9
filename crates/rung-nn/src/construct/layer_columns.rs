//! Which layers must run on all tokens, read off the weights.
//!
//! An answer is wanted at the last token only. Another token matters there through what a mixer keeps of it: keys and values,
//! or a recurrent state. If a layer computes those from columns of the stream that no layer after the front has written, then
//! the other tokens need not be taken through those layers at all, and nothing changes: what they would have written is never
//! read. In U1, for instance, keys and values come from the embedding alone, and w is the only token that must pass all layers.
//!
//! This looks at which numbers of the weights are zero, not at what a construction says of itself; a weight that is changed
//! by hand changes the result as it should.

use rung_engine::{Parameter, Parameters, Role, Scalar};

use crate::model::{Model, ModelConfig, NormConfig, NormPlacement, names};

/// The number of layers that must run on all tokens for the last token's row to be exact. At most all but the last.
pub fn layers_on_all_tokens<S: Scalar>(config: &ModelConfig, model: &Model, weights: &Parameters<S>) -> usize {
    let depth = model.depth();
    if config.norm != NormConfig::None || config.placement == NormPlacement::Post {
        return depth.saturating_sub(1);
    }
    let layers: Vec<LayerColumns> = (0..depth).map(|layer| LayerColumns::of(layer, model.width(), weights)).collect();
    let exact = |count: &usize| {
        let mut written = vec![false; model.width()];
        layers[*count..].iter().all(|layer| {
            let clean = !layer.state_inputs.iter().zip(&written).any(|(kept, written)| *kept && *written);
            for (all, new) in written.iter_mut().zip(&layer.outputs) {
                *all |= *new;
            }
            clean
        })
    };
    (0..depth).find(exact).unwrap_or(depth.saturating_sub(1))
}

/// Columns of the stream that a layer uses.
pub(crate) struct LayerColumns {
    /// Those that its mixers' states depend on.
    pub(crate) state_inputs: Vec<bool>,
    /// Those that its queries and gates look at, where they have a projection of their own.
    pub(crate) query_inputs: Vec<bool>,
    /// Those that the MLP looks at.
    pub(crate) mlp_inputs: Vec<bool>,
    /// Those that its mixers add to.
    pub(crate) mixer_outputs: Vec<bool>,
    /// Those that it adds to.
    pub(crate) outputs: Vec<bool>,
}

impl LayerColumns {
    pub(crate) fn of<S: Scalar>(layer: usize, width: usize, weights: &Parameters<S>) -> Self {
        let none = || vec![false; width];
        let mut used_columns = Self {
            state_inputs: none(),
            query_inputs: none(),
            mlp_inputs: none(),
            mixer_outputs: none(),
            outputs: none(),
        };
        let mlp: Vec<Parameter> = weights.within(&names::mlp(layer)).map(|(id, _)| id).collect();
        for (id, entry) in weights.within(&names::layer(layer)) {
            let own = mlp.contains(&id);
            let (values, columns) = (weights.get(id), entry.shape.width());
            let rows = entry.shape.first().copied().unwrap_or(1);
            let asks = entry.role == Role::Query && is_softmax(&entry.name, weights);
            if entry.role == Role::Output {
                for (column, row) in values.chunks_exact(columns).enumerate().take(width) {
                    let used = row.iter().any(|value| *value != S::ZERO);
                    used_columns.outputs[column] |= used;
                    used_columns.mixer_outputs[column] |= used && !own;
                }
            } else if entry.role == Role::OutputBias {
                for (column, _) in values.iter().enumerate().filter(|(_, value)| **value != S::ZERO) {
                    used_columns.outputs[column] = true;
                    used_columns.mixer_outputs[column] = true;
                }
            } else if columns == width && entry.shape.len() == 2 {
                // The MLP and the queries of attention look at the token itself only. Those of a recurrence may pass through a
                // convolution, which keeps them.
                let queries = matches!(entry.role, Role::Query | Role::Gate);
                for row in values.chunks_exact(width) {
                    for (column, _) in row.iter().enumerate().filter(|(_, value)| **value != S::ZERO) {
                        used_columns.mlp_inputs[column] |= own;
                        used_columns.query_inputs[column] |= queries;
                        used_columns.state_inputs[column] |= !own && !asks;
                    }
                }
            } else if own || asks {
                // Offsets.
            } else if entry.shape.len() == 3 && entry.shape[1] > 1 {
                // A projection in groups, which may read any part of the stream.
                let used = values.iter().any(|value| *value != S::ZERO);
                used_columns.state_inputs.iter_mut().for_each(|kept| *kept |= used);
            } else if rows == width && entry.shape.len() == 3 {
                // A convolution on the stream itself.
                let taps = entry.shape[2];
                for (channel, filter) in values.chunks_exact(taps).enumerate() {
                    let used = filter.iter().any(|value| *value != S::ZERO);
                    used_columns.state_inputs[channel] |= used;
                    used_columns.outputs[channel] |= used;
                    used_columns.mixer_outputs[channel] |= used;
                }
            }
        }
        used_columns
    }
}

/// Whether the mixer that this query projection belongs to is softmax attention: it has queries, keys, values, an output, perhaps a
/// convolution before them, and nothing else.
fn is_softmax<S: Scalar>(query: &str, weights: &Parameters<S>) -> bool {
    // A projection's name ends in its own name and `weight`.
    let scope = query.rsplitn(3, '.').nth(2).unwrap_or_default();
    weights.within(scope).all(|(_, entry)| {
        matches!(entry.role, Role::Query | Role::Key | Role::Value | Role::Output | Role::InputConvolution)
    })
}
