//! Gated `DeltaNet` of checkpoints.

use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::loader::rows;
use super::{FamilyError, Loader};
use crate::mixer::MixerConfig as _;
use crate::mixer::gdn::GatedDeltanetConfig;
use crate::model::Activation;
use crate::submodules::{Convolution, Linear};

/// The sizes of a layer of the plan, if it is Gated `DeltaNet`.
///
/// # Errors
/// The sizes are inconsistent.
pub fn sizes_of(layer: &Layer) -> Result<Option<GatedDeltanetConfig>, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == GatedDeltanetConfig::NAME => Ok(Some(GatedDeltanetConfig::resolve(mixer)?)),
        _ => Ok(None),
    }
}

/// Rejects activations other than SiLU, because transformers uses the activation after the convolutions too.
///
/// # Errors
/// It is another activation.
pub fn require_silu<S: Scalar>(loader: &Loader<'_, S>, activation: Activation) -> Result<(), FamilyError> {
    if activation == Activation::Silu {
        return Ok(());
    }
    let found = loader.fields.text("hidden_act")?.unwrap_or_default().to_owned();
    Err(loader.fields.error(
        "hidden_act",
        format!("`{found}`"),
        "silu, the only activation supported after the convolutions of linear-attention layers",
    ))
}

/// Projections of queries, keys and values, each from selected rows of a larger matrix.
pub fn projections<S: Scalar>(
    loader: &mut Loader<'_, S>,
    matrix: &[S],
    width: usize,
    selected_rows: [Vec<usize>; 3],
) -> [Linear; 3] {
    let names = [("q_proj", Role::Query), ("k_proj", Role::Key), ("v_proj", Role::Value)];
    let mut selected_rows = selected_rows.into_iter();
    names.map(|(name, role)| {
        let rows = rows(matrix, width, selected_rows.next().unwrap_or_default());
        loader.with_role(role).add_linear(name, width, rows)
    })
}

/// Convolutions of queries, keys and values from one array of filters, in this order.
pub fn convolutions<S: Scalar>(
    loader: &mut Loader<'_, S>,
    filters: &[S],
    kernel_size: usize,
    [key_rows, value_rows]: [usize; 2],
) -> [Convolution; 3] {
    [
        ("q_conv1d", 0..key_rows),
        ("k_conv1d", key_rows..2 * key_rows),
        ("v_conv1d", 2 * key_rows..2 * key_rows + value_rows),
    ]
    .map(|(name, channels)| loader.add_convolution(name, kernel_size, rows(filters, kernel_size, channels)))
}
