//! U2 and U2': a bounded-state layer saves the full layer that would have read z_0. See the pages of these names.

use super::carry::{self, Carry};
use super::chain::ChainRegisters;
use super::draft::{Draft, Mixing};
use super::part::snap;
use super::u1::climb;
use super::{ConstructError, ConstructionRequest};

/// A carrier of z_0, then L full layers.
pub fn before(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("U2", &request.funccomp()?, 0);
    let from = chain.value.low_bits(chain.value_bits(0));
    let mut reached = hand_on(&mut chain, request, from, 0)?;
    for l in 1..=chain.hops() {
        reached = climb(&mut chain, l, reached);
    }
    chain.draft.answer_number(reached);
    Ok(chain.draft)
}

/// A full layer in which z_0 looks up z_1, a carrier of i_1, then L-1 full layers.
pub fn after(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("U2'", &request.funccomp()?, 0);
    let size = chain.value_bits(1);
    let registers = &mut chain.draft.registers;
    let raw = registers.add("read.first", size, super::RegisterKind::Raw, "i_1 as z_0 read it");
    let first = registers.add("first", size, super::RegisterKind::Number, "i_1 at the token z_0");
    let head = chain.hop(1, chain.value.low_bits(chain.value_bits(0)), raw);
    let snapped = snap(raw, first, chain.one);
    chain.draft.layer("z_0 looks up z_1 at its own value", Mixing::Heads(vec![head]), snapped);
    let mut reached = hand_on(&mut chain, request, first, 1)?;
    for l in 2..=chain.hops() {
        reached = climb(&mut chain, l, reached);
    }
    chain.draft.answer_number(reached);
    Ok(chain.draft)
}

/// A carry layer from z_0 to w: of the bits of i_l, which it returns.
pub(super) fn hand_on(
    chain: &mut ChainRegisters,
    request: &ConstructionRequest,
    from: super::Slice,
    l: usize,
) -> Result<super::Slice, ConstructError> {
    let (raw, reached) = chain.reading(l);
    let carry = Carry { from, to: raw, flag: chain.start.start, one: chain.one.start, slots: None };
    // The width of the stream is not known yet and no carrier's size depends on it.
    let mixer = carry::mixer(request.mixer(), from.size, 0, chain.draft.registers.width() as u64)?;
    let about =
        format!("the state hands {} from z_0 to w", if l == 0 { "its value".to_owned() } else { format!("i_{l}") });
    chain.draft.layer(about, Mixing::Carry(carry, mixer), snap(raw, reached, chain.one));
    Ok(reached)
}
