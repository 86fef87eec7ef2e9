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
    let (unrounded, mut hop_value) = composition.add_hop_value_registers(0);
    let head = composition.start_head(unrounded);
    composition.builder.add_layer(
        "w reads z_0",
        LayerMixer::Attention(vec![head]),
        rounding_neurons(unrounded, hop_value, composition.bias),
    );
    for hop in 1..=composition.hops() {
        hop_value = add_lookup_layer(&mut composition, hop, hop_value);
    }
    composition.builder.unembed_number(hop_value);
    Ok(composition.builder)
}

/// Adds a layer in which w looks up table z_l with `hop_value` (i_(l-1)) as argument; returns the register of the value found, i_l.
pub(super) fn add_lookup_layer(
    composition: &mut CompositionBuilder,
    hop: usize,
    hop_value: super::ColumnRange,
) -> super::ColumnRange {
    let (unrounded, next_value) = composition.add_hop_value_registers(hop);
    let head = composition.table_head(hop, hop_value, unrounded);
    let about = format!(
        "w looks up z_{hop} at {}",
        if hop > 1 { format!("(w_{}, i_{})", hop - 1, hop - 1) } else { "z_0".to_owned() }
    );
    composition.builder.add_layer(
        about,
        LayerMixer::Attention(vec![head]),
        rounding_neurons(unrounded, next_value, composition.bias),
    );
    next_value
}
