//! U4: everyone reads w, then pointers double. See the page of that name.
//!
//! A node is a token that knows where the walk goes from it: an entry of z_l (level l), and the token that answers (level 0,
//! whose pointer is z_0). After t rounds a node of level l knows i_(l + 2^t - 1), or i_L if that is nearer. In round t it asks
//! the entry of level l + 2^(t-1) that its pointer names, and takes over that one's pointer.

use rung_theory::task::funccomp::Order;

use super::chain::ChainRegisters;
use super::draft::{Draft, Mixing, Neuron};
use super::part::{KeyMatch, any, gated_copy, gated_snap, look_up, not, set};
use super::register::{RegisterKind, Slice};
use super::{ConstructError, ConstructionRequest};

/// Every token sees every other; the usual order.
pub fn bidirectional(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    draft("U4", request, Order::Hard)
}

/// Causal, with w in front.
pub fn query_first(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    draft("U4-causal", request, Order::QueryFirst)
}

fn draft(name: &'static str, request: &ConstructionRequest, order: Order) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new(name, &request.funccomp_in(order)?, 0);
    if order == Order::Hard {
        chain.draft.set_bidirectional();
    }
    let (one, hops, size) = (chain.one, chain.hops(), chain.value.size);
    let rounds = hops.ilog2() as usize + 1;
    let mut levels = vec![chain.slot.unwrap_or(chain.query)];
    levels.extend(chain.entry.iter().copied());
    let registers = &mut chain.draft.registers;
    let mut number = |name: String, size: usize, about: &str| registers.add(name, size, RegisterKind::Number, about);
    let start = number("read.start".to_owned(), size, "z_0 as it was read");
    let parts: Vec<Slice> = chain
        .parts
        .iter()
        .enumerate()
        .map(|(e, part)| number(format!("read.w.{}", e + 1), part.size, "part of w as it was read"))
        .collect();
    let mut pointer = number("pointer.0".to_owned(), size, "where the walk is, as far as the token knows at first");
    let outers: Vec<Slice> = (1..=rounds)
        .map(|round| number(format!("outer.{round}"), chain.outer.size, "the part of w that the round needs"))
        .collect();

    let copies: Vec<(Slice, Slice)> = chain.parts.iter().copied().zip(parts.iter().copied()).collect();
    let mut heads = vec![look_up(&KeyMatch::new().flag(chain.start, one), chain.sharpness, &[(chain.value, start)])];
    if !copies.is_empty() {
        heads.push(look_up(&KeyMatch::new().flag(chain.query, one), chain.sharpness, &copies));
    }
    let mut neurons = gated_snap(start, pointer, one, &[set(levels[0])]);
    neurons.extend(gated_copy(chain.value, pointer, one, &[any(&chain.entry, one)]));
    for (round, outer) in outers.iter().enumerate() {
        neurons.extend(outer_parts(&levels, &parts, 1 << round, *outer, one));
    }
    chain.draft.layer("everyone reads w, the answering token also z_0", Mixing::Heads(heads), neurons);

    for (round, outer) in outers.iter().enumerate() {
        let step = 1 << round;
        let registers = &mut chain.draft.registers;
        let raw =
            registers.add(format!("read.{}", round + 1), size, RegisterKind::Raw, "the pointer that was asked for");
        let next = registers.add(
            format!("pointer.{}", round + 1),
            size,
            RegisterKind::Number,
            "where the walk is after this round",
        );
        let mut wanted =
            KeyMatch::new().numbers(pointer.low_bits(chain.inner.size), chain.inner).numbers(*outer, chain.outer);
        for (level, flag) in levels.iter().enumerate().take_while(|(level, _)| level + step <= hops) {
            wanted = wanted.numbers(*flag, levels[level + step]);
        }
        let head = look_up(&wanted, chain.sharpness, &[(pointer, raw)]);
        let asks = any(&levels[..=hops - step], one);
        let mut neurons = gated_snap(raw, next, one, std::slice::from_ref(&asks));
        neurons.extend(gated_copy(pointer, next, one, &[not(&asks), any(&levels, one)]));
        chain.draft.layer(
            format!("pointers of {step} hops become pointers of {}", 2 * step),
            Mixing::Heads(vec![head]),
            neurons,
        );
        pointer = next;
    }
    chain.draft.answer_number(pointer);
    Ok(chain.draft)
}

/// For each level, the part of w that belongs to the entries `step` levels on.
fn outer_parts(levels: &[Slice], parts: &[Slice], step: usize, outer: Slice, one: Slice) -> Vec<Neuron> {
    let needs = levels.iter().enumerate().filter(|(level, _)| (2..levels.len()).contains(&(level + step)));
    needs.flat_map(|(level, flag)| gated_snap(parts[level + step - 2], outer, one, &[set(*flag)])).collect()
}
