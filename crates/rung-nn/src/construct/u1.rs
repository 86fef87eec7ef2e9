//! U1: function composition with one full-attention layer per table. `rung explain U1` gives the argument.
//!
//! The task is [`funccomp`](rung_theory::task::funccomp): the query token w starts at `z_0` and looks up the tables `z_1 .. z_L`
//! one after another; `i_l` is the value found in table `z_l`.

use super::blocks::rounding_neurons;
use super::builder::{ConstructionBuilder, LayerMixer};
use super::composition::CompositionBuilder;
use super::{ConstructError, ConstructionRequest};

/// L+1 full-attention layers: the first reads z_0, each further one looks up one table.
pub fn build_layers(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("U1", &request.funccomp()?, 0);
    let (raw, mut index) = composition.add_index_registers(0);
    let head = composition.start_head(raw);
    composition.builder.add_layer(
        "w reads z_0",
        LayerMixer::Attention(vec![head]),
        rounding_neurons(raw, index, composition.bias),
    );
    for l in 1..=composition.hops() {
        index = add_lookup_layer(&mut composition, l, index);
    }
    composition.builder.unembed_number(index);
    Ok(composition.builder)
}

/// Adds a layer in which w looks up table z_l at the address in `index` (i_(l-1)); returns the register of the value found, i_l.
pub(super) fn add_lookup_layer(
    composition: &mut CompositionBuilder,
    l: usize,
    index: super::ColumnRange,
) -> super::ColumnRange {
    let (raw, next_index) = composition.add_index_registers(l);
    let head = composition.table_head(l, index, raw);
    let about =
        format!("w looks up z_{l} at {}", if l > 1 { format!("(w_{}, i_{})", l - 1, l - 1) } else { "z_0".to_owned() });
    composition.builder.add_layer(
        about,
        LayerMixer::Attention(vec![head]),
        rounding_neurons(raw, next_index, composition.bias),
    );
    next_index
}
