//! U3 and U6: one full layer, and thoughts between. See the pages of these names.
//!
//! A thought is a token that the model emits and reads again. Thought s says "s hops are done and led to i_s": its kind counts
//! the hops, `outer` and `inner` hold the address (w_s, i_s) to look up next, `value` holds i_s, and the parts of w are copied
//! along. So the one look-up head serves every step: it compares addresses, and the kind of the asking token with the table.

use rung_theory::task::Task;

use super::carry::{self, Carry};
use super::chain::ChainRegisters;
use super::draft::{Draft, Mixing};
use super::part::{KeyMatch, gated_copy, gated_snap, look_up, set, snap, unset};
use super::register::{RegisterKind, Slice};
use super::{ChainOfThought, ConstructError, ConstructionRequest};

/// One full layer and L+1 thoughts.
pub fn alone(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let task = request.funccomp()?;
    let mut chain = ChainRegisters::new("U3", &task, task.hops() + 1);
    let wants = wants(&mut chain, 0);
    let wanted = chain.inner.columns().map(|column| (vec![(column, 1.0)], column)).collect::<Vec<_>>();
    think(&mut chain, &wants, 0, &wanted);
    Ok(chain.draft)
}

/// A carrier of z_0, one full layer and L thoughts.
pub fn with_carrier(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let task = request.funccomp()?;
    let mut chain = ChainRegisters::new("U6", &task, task.hops());
    let wants = wants(&mut chain, 1);
    let size = chain.value_bits(0);
    let registers = &mut chain.draft.registers;
    let raw = registers.add("read.0", size, RegisterKind::Raw, "z_0 as it was handed on");
    let first = registers.add("i.0", chain.inner.size, RegisterKind::Number, "z_0, at w only");
    let carry =
        Carry { from: chain.value.low_bits(size), to: raw, flag: chain.start.start, one: chain.one.start, slots: None };
    let mixer = carry::mixer(request.mixer(), size, 0, chain.draft.registers.width() as u64)?;
    let neurons = gated_snap(raw, first, chain.one, &[set(chain.query)]);
    chain.draft.layer("the state hands z_0 to w", Mixing::Carry(carry, mixer), neurons);
    let both = chain.inner.columns().zip(first.columns());
    let wanted = both.map(|(inner, first)| (vec![(inner, 1.0), (first, 1.0)], inner)).collect::<Vec<_>>();
    think(&mut chain, &wants, 1, &wanted);
    Ok(chain.draft)
}

/// Flags for what a token asks: w asks for `first` (0 is z_0), and each thought for the table after that.
fn wants(chain: &mut ChainRegisters, first: usize) -> Vec<Slice> {
    let hops = chain.hops();
    let add = |l: usize| {
        let about = if l == 0 { "the token asks for z_0".to_owned() } else { format!("the token asks for z_{l}") };
        chain.draft.registers.add(format!("wants.{l}"), 1, RegisterKind::Flag, about)
    };
    let wants: Vec<Slice> = (first..=hops).map(add).collect();
    let (query_kind, kinds) = (hops as u32 + 1, chain.draft.vocabulary(0));
    chain.draft.add_ids(0, wants.len() as u32);
    let flags = wants.clone();
    chain.draft.embed(0, move |kind| {
        let step =
            if kind == query_kind { Some(0) } else { kind.checked_sub(kinds).map(|thought| thought as usize + 1) };
        flags.iter().enumerate().map(|(at, flag)| (flag.start, if step == Some(at) { 1.0 } else { -1.0 })).collect()
    });
    wants
}

/// The layer that looks up and decides what to emit. `inner` gives the asking side of each bit of the inner address.
fn think(chain: &mut ChainRegisters, wants: &[Slice], first: usize, inner: &[(Vec<(usize, f64)>, usize)]) {
    let (hops, one) = (chain.hops(), chain.one);
    let registers = &mut chain.draft.registers;
    let raw = registers.add("read", chain.value.size, RegisterKind::Raw, "what was looked up");
    let reached = registers.add("reached", chain.value.size, RegisterKind::Number, "the next thought's value");
    let next_outer =
        registers.add("next.outer", chain.outer.size, RegisterKind::Number, "the next thought's outer address");
    let next_inner =
        registers.add("next.inner", chain.inner.size, RegisterKind::Number, "the next thought's inner address");
    let mut wanted = KeyMatch::new().numbers(chain.outer, chain.outer);
    for (asking, asked) in inner {
        wanted = wanted.sums(asking.clone(), vec![(*asked, 1.0)]);
    }
    for (at, flag) in wants.iter().enumerate() {
        let asked = if first + at == 0 { chain.start } else { chain.entry[first + at - 1] };
        wanted = wanted.numbers(*flag, asked);
    }
    let head = look_up(&wanted, chain.sharpness, &[(chain.value, raw)]);
    let last = wants[wants.len() - 1];
    let mut neurons = snap(raw, reached, one);
    neurons.extend(gated_snap(raw.low_bits(next_inner.size), next_inner, one, &[unset(last)]));
    for l in first.max(1)..hops {
        neurons.extend(gated_copy(chain.parts[l - 1], next_outer, one, &[set(wants[l - first])]));
    }
    let about = "w and each thought look up what their kind asks for";
    chain.draft.layer(about, Mixing::Heads(vec![head]), neurons);
    emit(chain, wants, [next_outer, next_inner, reached]);
}

/// Scores of the ids of every field of the next thought.
fn emit(chain: &mut ChainRegisters, wants: &[Slice], [outer, inner, reached]: [Slice; 3]) {
    let fields = Task::fields(&chain.task);
    let vocabularies: Vec<usize> = (0..fields.len()).map(|field| chain.draft.vocabulary(field) as usize).collect();
    let firsts: Vec<usize> =
        vocabularies.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size))).collect();
    let classes = vocabularies.iter().sum();
    let thoughts = ChainOfThought { count: wants.len(), fields: firsts.clone(), answer: 3 };
    let (one, kinds, wants) = (chain.one, fields[0].vocabulary as usize, wants.to_vec());
    let sources: Vec<Slice> = [outer, inner, reached].into_iter().chain(chain.parts.iter().copied()).collect();
    chain.draft.answer(move |class| {
        let field = firsts.iter().rposition(|first| *first <= class).unwrap_or_default();
        let id = class - firsts[field];
        if field == 0 {
            return id.checked_sub(kinds).map(|at| vec![(wants[at].start, 1.0)]).unwrap_or_default();
        }
        // A blank scores half: more than any id where there is no number, less than the right one where there is.
        if id + 1 == vocabularies[field] { vec![(one.start, 0.5)] } else { sources[field - 1].code(id as u64) }
    });
    chain.draft.set_chain_of_thought(thoughts, classes);
}
