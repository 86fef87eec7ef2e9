//! U1: w reads z_0, then looks up one table per layer. See the page of that name in the theory.

use super::chain::ChainRegisters;
use super::draft::{Draft, Mixing};
use super::part::snap;
use super::{ConstructError, ConstructionRequest};

/// L+1 full layers.
pub fn draft(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("U1", &request.funccomp()?, 0);
    let (raw, mut reached) = chain.reading(0);
    let head = chain.read_start(raw);
    chain.draft.layer("w reads z_0", Mixing::Heads(vec![head]), snap(raw, reached, chain.one));
    for l in 1..=chain.hops() {
        reached = climb(&mut chain, l, reached);
    }
    chain.draft.answer_number(reached);
    Ok(chain.draft)
}

/// A layer in which w looks up z_l; returns the register of i_l.
pub(super) fn climb(chain: &mut ChainRegisters, l: usize, reached: super::Slice) -> super::Slice {
    let (raw, next) = chain.reading(l);
    let head = chain.hop(l, reached, raw);
    let about =
        format!("w looks up z_{l} at {}", if l > 1 { format!("(w_{}, i_{})", l - 1, l - 1) } else { "z_0".to_owned() });
    chain.draft.layer(about, Mixing::Heads(vec![head]), snap(raw, next, chain.one));
    next
}
