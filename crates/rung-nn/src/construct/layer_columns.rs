//! Determines from the weights which layers must run on all tokens.
//!
//! If the answer is needed at the last token only, the other tokens matter through what mixers store of them: keys and values, or a
//! recurrent state. Suppose that from some layer on, every layer computes those from columns of the residual stream that none of these
//! layers writes. Then these layers can be skipped for the other tokens: what they would write there is never read. In U1, for
//! instance, keys and values come from the embedding alone, and only w, the last token, must pass through the layers.
//!
//! The criterion is which weights are zero, not the construction's description, so it stays right if a weight is changed by hand.

use rung_engine::{Parameter, Parameters, Role, Scalar};

use crate::model::{Model, ModelConfig, NormConfig, NormPlacement, names};

/// The number of layers that must run on all tokens for the last token's row to be exact. At most all but the last.
pub fn layers_on_all_tokens<S: Scalar>(config: &ModelConfig, model: &Model, weights: &Parameters<S>) -> usize {
    let depth = model.depth();
    if config.norm != NormConfig::None || config.placement == NormPlacement::Post {
        return depth.saturating_sub(1);
    }
    let layers: Vec<LayerColumns> =
        (0..depth).map(|layer| LayerColumns::from_weights(layer, model.width(), weights)).collect();
    let is_enough = |layer_count: &usize| {
        let mut written = vec![false; model.width()];
        layers[*layer_count..].iter().all(|layer| {
            let reads_written = layer.state_inputs.iter().zip(&written).any(|(read, written)| *read && *written);
            for (written, output) in written.iter_mut().zip(&layer.outputs) {
                *written |= *output;
            }
            !reads_written
        })
    };
    (0..depth).find(is_enough).unwrap_or(depth.saturating_sub(1))
}

/// Columns of the residual stream that a layer uses, one Boolean per column.
pub(crate) struct LayerColumns {
    /// Columns that its mixers' states, keys and values depend on.
    pub(crate) state_inputs: Vec<bool>,
    /// Columns that its queries and gates read, where they have a separate projection.
    pub(crate) query_inputs: Vec<bool>,
    /// Columns that the MLP reads.
    pub(crate) mlp_inputs: Vec<bool>,
    /// Columns that its mixers add to.
    pub(crate) mixer_outputs: Vec<bool>,
    /// Columns that the layer adds to, by its mixers or its MLP.
    pub(crate) outputs: Vec<bool>,
}

impl LayerColumns {
    pub(crate) fn from_weights<S: Scalar>(layer: usize, width: usize, weights: &Parameters<S>) -> Self {
        let no_columns = || vec![false; width];
        let mut used_columns = Self {
            state_inputs: no_columns(),
            query_inputs: no_columns(),
            mlp_inputs: no_columns(),
            mixer_outputs: no_columns(),
            outputs: no_columns(),
        };
        let mlp: Vec<Parameter> = weights.within(&names::mlp(layer)).map(|(id, _)| id).collect();
        for (id, entry) in weights.within(&names::layer(layer)) {
            let is_mlp = mlp.contains(&id);
            let (values, columns) = (weights.get(id), entry.shape.width());
            let rows = entry.shape.first().copied().unwrap_or(1);
            let is_softmax_query = entry.role == Role::Query && is_softmax(&entry.name, weights);
            if entry.role == Role::Output {
                for (column, row) in values.chunks_exact(columns).enumerate().take(width) {
                    let used = row.iter().any(|value| *value != S::ZERO);
                    used_columns.outputs[column] |= used;
                    used_columns.mixer_outputs[column] |= used && !is_mlp;
                }
            } else if entry.role == Role::OutputBias {
                for (column, _) in values.iter().enumerate().filter(|(_, value)| **value != S::ZERO) {
                    used_columns.outputs[column] = true;
                    used_columns.mixer_outputs[column] = true;
                }
            } else if columns == width && entry.shape.len() == 2 {
                // The MLP and the queries of softmax attention use the current token only. The queries of a recurrence may pass
                // through a convolution, which stores them.
                let is_query = matches!(entry.role, Role::Query | Role::Gate);
                for row in values.chunks_exact(width) {
                    for (column, _) in row.iter().enumerate().filter(|(_, value)| **value != S::ZERO) {
                        used_columns.mlp_inputs[column] |= is_mlp;
                        used_columns.query_inputs[column] |= is_query;
                        used_columns.state_inputs[column] |= !is_mlp && !is_softmax_query;
                    }
                }
            } else if is_mlp || is_softmax_query {
                // Biases, which read no column.
            } else if entry.shape.len() == 3 && entry.shape[1] > 1 {
                // A projection in groups, which may read any column.
                let used = values.iter().any(|value| *value != S::ZERO);
                used_columns.state_inputs.iter_mut().for_each(|read| *read |= used);
            } else if rows == width && entry.shape.len() == 3 {
                // A convolution on the residual stream itself.
                let kernel_size = entry.shape[2];
                for (channel, filter) in values.chunks_exact(kernel_size).enumerate() {
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

/// Whether this query projection belongs to softmax attention: a mixer with queries, keys, values, an output, perhaps a convolution before
/// them, and nothing else.
fn is_softmax<S: Scalar>(query: &str, weights: &Parameters<S>) -> bool {
    // The name of a projection's weight is `<mixer>.<projection>.weight`.
    let mixer = query.rsplitn(3, '.').nth(2).unwrap_or_default();
    weights.within(mixer).all(|(_, entry)| {
        matches!(entry.role, Role::Query | Role::Key | Role::Value | Role::Output | Role::InputConvolution)
    })
}
