//! Parity by a recurrence, and parity-conditioned retrieval by a hybrid. See the pages of these names.

use rung_theory::stack::{Defaults, Mixer};
use rung_theory::task;

use super::draft::{Draft, Mixing, Setting};
use super::part::{KeyMatch, gated_snap, look_up, set, sharpness, threshold, unset};
use super::register::{RegisterKind, Slice, bits};
use super::{ConstructError, ConstructionRequest};

/// One layer of `DeltaNet` with negative eigenvalues.
pub fn parity(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut draft = Draft::new("parity", task::parse(&format!("parity{{length={}}}", request.length))?);
    let flips = draft.registers.add("flips", 1, RegisterKind::Flag, "the token is a bit that is 1");
    draft.embed(0, move |symbol| vec![(flips.start, if symbol == 1 { 1.0 } else { -1.0 })]);
    let odd = count(&mut draft, flips)?;
    draft.answer(move |class| odd.code(class as u64));
    Ok(draft)
}

/// The same, then one full layer.
pub fn retrieval(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let ConstructionRequest { length, entries, modulus, .. } = *request;
    let spec = format!(
        "parity-retrieval{{bits={length},entries={entries},keys={},values={modulus}}}",
        entries.saturating_mul(2)
    );
    let task = task::parse(&spec)?;
    let (fields, tokens) = (task.fields(), task.length());
    let mut draft = Draft::new("parity-retrieval", task);
    let one = draft.one;
    let blank = |field: usize| fields[field].vocabulary - 1;
    let size = |field: usize| bits(u64::from(blank(field)));
    let registers = &mut draft.registers;
    let flips = registers.add("flips", 1, RegisterKind::Flag, "the token is a bit that is 1");
    let entry = registers.add("is.entry", 1, RegisterKind::Flag, "the token is an entry");
    let key = registers.add("key", size(2), RegisterKind::Number, "key of an entry or of the query");
    let [even, odd] = [("even", 3), ("odd", 4)]
        .map(|(name, field)| registers.add(name, size(field), RegisterKind::Number, "a value of an entry"));
    let [read_even, read_odd] = ["even", "odd"]
        .map(|name| registers.add(format!("read.{name}"), even.size, RegisterKind::Raw, "a value as it was read"));
    let answer = registers.add("answer", even.size, RegisterKind::Number, "the value that the parity chooses");
    draft.embed(0, move |kind| vec![(entry.start, if kind == 1 { 1.0 } else { -1.0 })]);
    draft.embed(1, move |bit| vec![(flips.start, if bit == 1 { 1.0 } else { -1.0 })]);
    for (field, register) in [(2, key), (3, even), (4, odd)] {
        draft.embed_number(field, register, blank(field));
    }
    let parity = count(&mut draft, flips)?;
    let wanted = KeyMatch::new().flag(entry, one).numbers(key, key);
    let head = look_up(&wanted, sharpness(tokens), &[(even, read_even), (odd, read_odd)]);
    let mut neurons = gated_snap(read_even, answer, one, &[unset(parity)]);
    neurons.extend(gated_snap(read_odd, answer, one, &[set(parity)]));
    draft.layer("the query looks up both values; the parity chooses", Mixing::Heads(vec![head]), neurons);
    draft.answer_number(answer);
    Ok(draft)
}

/// A layer whose state is 1 after an odd number of flips and 0 after an even one; returns the flag that says so.
///
/// Where a token flips, beta is 2 and the state becomes `2 v - S = 1 - S` with v = 1/2; elsewhere beta is 0.
fn count(draft: &mut Draft, flips: Slice) -> Result<Slice, ConstructError> {
    let one = draft.one;
    let raw = draft.registers.add("read.parity", 1, RegisterKind::Raw, "the state as it was read: 0 or 1");
    let odd = draft.registers.add("odd-ones", 1, RegisterKind::Flag, "the number of ones so far is odd");
    let width = draft.registers.width();
    let defaults = Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width as u64), bits: 32 };
    let mixer = Mixer::new("deltanet", &[("heads", 1), ("conv", 0), ("negative", 1)], &defaults)?;
    let setting = |name: &str, index: usize, value: f64| -> Setting { (format!("{name}.weight"), index, value) };
    let settings = vec![
        setting("q_proj", one.start, 8.0),
        setting("k_proj", one.start, 8.0),
        setting("v_proj", one.start, half_through_silu()),
        setting("b_proj", flips.start, 30.0),
        setting("o_norm", 0, 1.0),
        setting("o_proj", raw.start, 1.0),
    ];
    // Reflections grow within the triangular solve of a long chunk.
    draft.chunk(4);
    draft.layer("each one flips the state", Mixing::Own(mixer, settings), threshold(raw.start, odd, 0.5, one));
    Ok(odd)
}

/// The x whose SiLU is 1/2, by bisection.
fn half_through_silu() -> f64 {
    let (mut low, mut high) = (0.0_f64, 2.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if middle / (1.0 + (-middle).exp()) < 0.5 { low = middle } else { high = middle }
    }
    low
}
