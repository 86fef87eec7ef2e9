//! U5: one look-up for the value that cancels. See the page of that name.

use rung_theory::task::{self, Task as _};

use super::draft::{Draft, Mixing, Neuron};
use super::part::{KeyMatch, look_up, sharpness};
use super::register::{RegisterKind, bits};
use super::{ConstructError, ConstructionRequest};

/// 2-Sum at the last token.
pub fn last(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let spec = format!("{}{{length={},modulus={}}}", task::twosum::TwoSum::NAME, request.length, request.modulus);
    draft("U5", request, &spec, true)
}

/// 2-Sum at every token.
pub fn everywhere(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let spec = format!("{}{{length={},modulus={}}}", task::match2::Match2::NAME, request.length, request.modulus);
    draft("U5-all", request, &spec, false)
}

fn draft(
    name: &'static str,
    request: &ConstructionRequest,
    spec: &str,
    only_last: bool,
) -> Result<Draft, ConstructError> {
    let mut draft = Draft::new(name, task::parse(spec)?);
    let (one, modulus, length) = (draft.one, request.modulus, request.length);
    let size = bits(u64::from(modulus));
    let registers = &mut draft.registers;
    let value = registers.add("value", size, RegisterKind::Number, "x");
    let partner = registers.add("partner", size, RegisterKind::Number, "-x mod M");
    let read = registers.add("read", size, RegisterKind::Raw, "the value nearest to the partner, as it was read");
    let distance =
        registers.add("distance", 1, RegisterKind::Raw, "how far that is from the partner: 0, or 2 and more");
    draft.embed_number(0, value, modulus);
    draft.embed(0, move |id| partner.code(u64::from((modulus - id) % modulus)));
    let mut wanted = KeyMatch::new().numbers(partner, value);
    if only_last {
        // The asking token does not count: its place takes it below every other.
        let last = draft.registers.add("is.last", 1, RegisterKind::Flag, "the token is the last");
        draft.embed_positions(move |place| vec![(last.start, if place + 1 == length { 1.0 } else { -1.0 })]);
        wanted = wanted.sums(vec![(one.start, 1.0)], vec![(last.start, -(size as f64) - 1.0)]);
    }
    let head = look_up(&wanted, sharpness(length * size), &[(value, read)]);
    let differences = read.columns().zip(partner.columns()).flat_map(|(read, partner)| {
        [1.0, -1.0]
            .map(|sign| Neuron { input: vec![(read, sign), (partner, -sign)], output: vec![(distance.start, 1.0)] })
    });
    let neurons = differences.collect();
    draft.layer("every token looks for its partner", Mixing::Heads(vec![head]), neurons);
    draft.answer(move |class| vec![(if class == 1 { one.start } else { distance.start }, 1.0)]);
    Ok(draft)
}
