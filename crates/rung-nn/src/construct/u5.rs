//! U5: 2-Sum by one attention lookup of the value that sums to 0 modulo M. `rung explain U5` gives the argument.

use rung_theory::task::{self, Task as _};

use super::blocks::{KeyMatch, inverse_temperature, lookup_head};
use super::builder::{ConstructionBuilder, LayerMixer, Neuron};
use super::{ConstructError, ConstructionRequest};
use crate::register::{RegisterKind, bits_for};

/// U5: 2-Sum answered at the last token.
pub fn at_last_token(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let spec = format!("{}{{length={},modulus={}}}", task::twosum::TwoSum::NAME, request.length, request.modulus);
    build_layers("U5", request, &spec, AnsweredTokens::Last)
}

/// U5-all: 2-Sum answered at every token.
pub fn at_every_token(request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let spec = format!("{}{{length={},modulus={}}}", task::match2::Match2::NAME, request.length, request.modulus);
    build_layers("U5-all", request, &spec, AnsweredTokens::All)
}

/// The tokens at which the construction answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnsweredTokens {
    Last,
    All,
}

fn build_layers(
    name: &'static str,
    request: &ConstructionRequest,
    spec: &str,
    answered: AnsweredTokens,
) -> Result<ConstructionBuilder, ConstructError> {
    let mut builder = ConstructionBuilder::new(name, task::parse(spec)?);
    let (bias, modulus, length) = (builder.bias, request.modulus, request.length);
    let size = bits_for(u64::from(modulus));
    let registers = &mut builder.registers;
    let value = registers.add("value", size, RegisterKind::Number, "x");
    let partner = registers.add("partner", size, RegisterKind::Number, "-x mod M");
    let nearest =
        registers.add("read", size, RegisterKind::Unrounded, "the value nearest to the partner, as it was read");
    let distance =
        registers.add("distance", 1, RegisterKind::Unrounded, "how far that is from the partner: 0, or 2 and more");
    builder.embed_number(0, value, modulus);
    builder.embed(0, move |id| partner.encode(u64::from((modulus - id) % modulus)));
    let mut key_match = KeyMatch::new().equal_bits(partner, value);
    if answered == AnsweredTokens::Last {
        // The last token must not match itself: its position lowers its score below every other token's.
        let is_last = builder.registers.add("is.last", 1, RegisterKind::Flag, "the token is the last");
        builder.embed_positions(move |position| vec![(is_last.start, if position + 1 == length { 1.0 } else { -1.0 })]);
        key_match = key_match.add_product(vec![(bias.start, 1.0)], vec![(is_last.start, -(size as f64) - 1.0)]);
    }
    let head = lookup_head(&key_match, inverse_temperature(length * size), &[(value, nearest)]);
    // |nearest - partner| as the sum of two ReLUs per bit.
    let differences = nearest.columns().zip(partner.columns()).flat_map(|(nearest, partner)| {
        [1.0, -1.0]
            .map(|sign| Neuron { input: vec![(nearest, sign), (partner, -sign)], output: vec![(distance.start, 1.0)] })
    });
    builder.add_layer("every token looks for its partner", LayerMixer::Attention(vec![head]), differences.collect());
    builder.unembed(move |class| vec![(if class == 1 { bias.start } else { distance.start }, 1.0)]);
    Ok(builder)
}
