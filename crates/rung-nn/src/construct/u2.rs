//! U2 and U2': a bounded-state layer replaces the full-attention layer that would have read z_0. `rung explain U2` gives the
//! argument; the names w, z_l and i_l are those of [`u1`](super::u1).

use super::blocks::rounding_neurons;
use super::builder::{ConstructionBuilder, LayerMixer};
use super::composition::CompositionBuilder;
use super::forwarding::{self, ForwardedBits};
use super::u1::add_lookup_layer;
use super::{ConstructError, ConstructionRequest};

/// A forwarding layer that copies z_0 to w, then L full-attention layers.
pub fn forward_then_lookups(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("U2", &request.funccomp()?, 0);
    let from = composition.value.low_bits(composition.value_bits(0));
    let mut hop_value = add_forwarding_layer(&mut composition, request, from, 0)?;
    for hop in 1..=composition.hops() {
        hop_value = add_lookup_layer(&mut composition, hop, hop_value);
    }
    composition.builder.unembed_number(hop_value);
    Ok(composition.builder)
}

/// A full-attention layer in which the token z_0 looks up z_1, a forwarding layer that copies i_1 to w, then L-1 full-attention layers.
pub fn lookup_then_forward(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut composition = CompositionBuilder::new("U2'", &request.funccomp()?, 0);
    let size = composition.value_bits(1);
    let registers = &mut composition.builder.registers;
    let unrounded = registers.add("read.first", size, super::RegisterKind::Unrounded, "i_1 as z_0 read it");
    let first_value = registers.add("first", size, super::RegisterKind::Number, "i_1 at the token z_0");
    let head = composition.table_head(1, composition.value.low_bits(composition.value_bits(0)), unrounded);
    let neurons = rounding_neurons(unrounded, first_value, composition.bias);
    composition.builder.add_layer("z_0 looks up z_1 at its own value", LayerMixer::Attention(vec![head]), neurons);
    let mut hop_value = add_forwarding_layer(&mut composition, request, first_value, 1)?;
    for hop in 2..=composition.hops() {
        hop_value = add_lookup_layer(&mut composition, hop, hop_value);
    }
    composition.builder.unembed_number(hop_value);
    Ok(composition.builder)
}

/// Adds a layer that copies i_l (z_0 itself for l = 0) from the token z_0 to w; returns the register at w that receives it.
pub(super) fn add_forwarding_layer(
    composition: &mut CompositionBuilder,
    request: &ConstructionRequest,
    from: super::ColumnRange,
    hop: usize,
) -> Result<super::ColumnRange, ConstructError> {
    let (unrounded, hop_value) = composition.add_hop_value_registers(hop);
    let forwarded = ForwardedBits {
        from,
        to: unrounded,
        flag: composition.start_flag.start,
        bias: composition.bias.start,
        table_rows: None,
    };
    // The final width of the residual stream is not known yet; a mixer whose state follows it (hgrn2) then forwards more than is needed.
    let mixer = forwarding::resolve_mixer(
        request.forwarding_mixer(),
        from.size,
        0,
        composition.builder.registers.width() as u64,
    )?;
    let about = format!(
        "the state forwards {} from z_0 to w",
        if hop == 0 { "its value".to_owned() } else { format!("i_{hop}") }
    );
    composition.builder.add_layer(
        about,
        LayerMixer::Forwarding(forwarded, mixer),
        rounding_neurons(unrounded, hop_value, composition.bias),
    );
    Ok(hop_value)
}
