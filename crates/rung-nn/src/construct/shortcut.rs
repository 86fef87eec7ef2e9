//! S2 to S5: fewer layers where tables are small. See the pages of these names.
//!
//! All choose in an MLP what a look-up would otherwise have to find. What they choose by was read in the same layer, so these
//! layers look up more sharply than others: what is read is then so near to bits that it can be used as such.

use super::carry::{self, Carry};
use super::chain::ChainRegisters;
use super::draft::{Draft, Mixing, Neuron};
use super::part::{Gate, KeyMatch, constant, equals, gated_snap, look_up, set, snap};
use super::register::{RegisterKind, Slice, bits};
use super::u1::climb;
use super::u2::hand_on;
use super::{ConstructError, ConstructionRequest};

/// Added to the sharpness where a read chooses: errors are then below `exp(-16)`.
const SHARPER: f64 = 8.0;

/// S2: the state holds z_1.
pub fn table_in_state(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("S2", &request.funccomp()?, 0);
    let size = chain.value_bits(1);
    let from = chain.value.low_bits(size);
    let (_, raw) = table(&mut chain, request, from)?;
    let reached = chain.draft.registers.add("i.1", size, RegisterKind::Number, "i_1");
    finish_table(&mut chain, raw, reached);
    look_up_from(&mut chain, 2, reached);
    Ok(chain.draft)
}

/// S3: entries of z_e look ahead into z_(e+1) while w is busy.
pub fn prefetch(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("S3", &request.funccomp()?, 0);
    let (hops, one) = (chain.hops(), chain.one);
    let least = if request.mixer.is_some() { 2 } else { 1 };
    let e = request.at.or_else(|| (least..hops).min_by_key(|e| (request.n[e - 1], *e))).unwrap_or(0);
    if !(least..hops).contains(&e) {
        let expected = format!("{least} to {} (from L = {} on)", hops.saturating_sub(1), least + 1);
        return Err(ConstructError::Option {
            name: "S3",
            option: "the hop that is prefetched",
            found: e.to_string(),
            expected,
        });
    }
    let (branches, size) = (request.n[e - 1], chain.value_bits(e + 1));
    let mut heads = Vec::new();
    let (mut neurons, mut rows) = (Vec::new(), Vec::new());
    let (own, outer) = (chain.value.low_bits(chain.value_bits(e)), chain.outer.low_bits(bits(u64::from(branches))));
    let mut reached = match request.mixer {
        Some(_) => {
            let from = chain.value.low_bits(chain.value_bits(0));
            hand_on(&mut chain, request, from, 0)?
        }
        None => chain.one,
    };
    let first = usize::from(request.mixer.is_some());
    let (raw, next) = chain.reading(first);
    heads.push(if first == 0 { chain.read_start(raw) } else { chain.hop(1, reached, raw) });
    neurons.extend(snap(raw, next, one));
    reached = next;
    for branch in 0..branches {
        let registers = &mut chain.draft.registers;
        let raw = registers.add(format!("read.ahead.{branch}"), size, RegisterKind::Raw, "what was looked up ahead");
        let row = registers.add(
            format!("ahead.{branch}"),
            size,
            RegisterKind::Number,
            format!("z_{}({branch}, value), at entries of z_{e}", e + 1),
        );
        let wanted =
            KeyMatch::new().flag(chain.entry[e], one).constant(u64::from(branch), outer, one).numbers(own, chain.inner);
        heads.push(look_up(&wanted, chain.sharpness, &[(chain.value.low_bits(size), raw)]));
        neurons.extend(snap(raw, row, one));
        rows.push(row);
    }
    let about = format!(
        "w {}; entries of z_{e} look ahead into z_{}",
        if first == 0 { "reads z_0" } else { "looks up z_1" },
        e + 1
    );
    chain.draft.layer(about, Mixing::Heads(heads), neurons);
    let mut l = first + 1;
    while l <= hops {
        if l != e {
            reached = climb(&mut chain, l, reached);
            l += 1;
            continue;
        }
        let registers = &mut chain.draft.registers;
        let reads: Vec<Slice> = (0..branches)
            .map(|branch| {
                registers.add(
                    format!("read.row.{branch}"),
                    size,
                    RegisterKind::Raw,
                    "a row that the entry had looked up ahead",
                )
            })
            .collect();
        let next = registers.add(format!("i.{}", e + 1), size, RegisterKind::Number, format!("i_{}", e + 1));
        let copies: Vec<(Slice, Slice)> = rows.iter().copied().zip(reads.iter().copied()).collect();
        let outer = (e > 1).then(|| chain.parts[e - 2]);
        let head = look_up(&chain.address(e, outer, reached), chain.sharpness, &copies);
        let choice = |branch: usize| equals(chain.parts[e - 1], branch as u64);
        let neurons =
            reads.iter().enumerate().flat_map(|(branch, raw)| gated_snap(*raw, next, one, &choice(branch))).collect();
        chain.draft.layer(
            format!("w looks up z_{e} and, in the same entry, z_{}", e + 1),
            Mixing::Heads(vec![head]),
            neurons,
        );
        reached = next;
        l += 2;
    }
    chain.draft.answer_number(reached);
    Ok(chain.draft)
}

/// S4: the first layer reads z_0 and all of z_1.
pub fn speculation(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("S4", &request.funccomp()?, 0);
    chain.sharpness += SHARPER;
    let (start_bits, size, one) = (chain.value_bits(0), chain.value_bits(1), chain.one);
    let start = chain.draft.registers.add("read.0", start_bits, RegisterKind::Raw, "z_0 as it was read");
    let reached = chain.draft.registers.add("i.1", size, RegisterKind::Number, "i_1");
    let mut heads = vec![chain.read_start(start)];
    let mut neurons = Vec::new();
    for entry in 0..request.m {
        let raw =
            chain.draft.registers.add(format!("read.z1.{entry}"), size, RegisterKind::Raw, format!("z_1({entry})"));
        let wanted =
            KeyMatch::new().flag(chain.entry[0], one).constant(u64::from(entry), chain.inner.low_bits(start_bits), one);
        heads.push(look_up(&wanted, chain.sharpness, &[(chain.value.low_bits(size), raw)]));
        neurons.extend(gated_snap(raw, reached, one, &equals(start, u64::from(entry))));
    }
    chain.sharpness -= SHARPER;
    chain.draft.layer("w reads z_0 and all of z_1, and chooses", Mixing::Heads(heads), neurons);
    look_up_from(&mut chain, 2, reached);
    Ok(chain.draft)
}

/// S5: the state holds the high bits of z_1; the first full layer looks up z_2 for every value of the low ones.
pub fn candidates(request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut chain = ChainRegisters::new("S5", &request.funccomp()?, 0);
    let (hops, size, one) = (chain.hops(), chain.value_bits(1), chain.one);
    let low = request.candidates.max(1).ilog2() as usize;
    if hops < 2 || low == 0 || low >= size || !request.candidates.is_power_of_two() {
        let (found, expected) = (
            request.candidates.to_string(),
            format!("a power of two above 1 and below {}, and two hops", 1_u64 << size),
        );
        return Err(ConstructError::Option { name: "S5", option: "candidates", found, expected });
    }
    let from = Slice { start: chain.value.start + low, size: size - low };
    let (start, raw) = table(&mut chain, request, from)?;
    let class = chain.draft.registers.add("class", size - low, RegisterKind::Number, "high bits of i_1");
    finish_table(&mut chain, raw, class);
    chain.sharpness += SHARPER;
    let rest = chain.draft.registers.add("read.1", low, RegisterKind::Raw, "low bits of i_1 as they were read");
    let exact = look_up(&chain.address(1, None, start), chain.sharpness, &[(chain.value.low_bits(low), rest)]);
    let next_size = chain.value_bits(2);
    let reached = chain.draft.registers.add("i.2", next_size, RegisterKind::Number, "i_2");
    let (mut heads, mut neurons) = (vec![exact], Vec::<Neuron>::new());
    for candidate in 0..request.candidates {
        let raw = chain.draft.registers.add(
            format!("read.2.{candidate}"),
            next_size,
            RegisterKind::Raw,
            "i_2 of a candidate",
        );
        let high = Slice { start: chain.inner.start + low, size: size - low };
        let wanted = KeyMatch::new()
            .flag(chain.entry[1], one)
            .constant(u64::from(candidate), chain.inner.low_bits(low), one)
            .numbers(class, high)
            .numbers(chain.parts[0], chain.outer);
        heads.push(look_up(&wanted, chain.sharpness, &[(chain.value.low_bits(next_size), raw)]));
        neurons.extend(gated_snap(raw, reached, one, &equals(rest, u64::from(candidate))));
    }
    chain.sharpness -= SHARPER;
    chain.draft.layer("w looks up z_1, and z_2 for every candidate, and chooses", Mixing::Heads(heads), neurons);
    look_up_from(&mut chain, 3, reached);
    Ok(chain.draft)
}

/// The layers that look up z_l and what comes after, and the answer.
fn look_up_from(chain: &mut ChainRegisters, l: usize, mut reached: Slice) {
    for l in l..=chain.hops() {
        reached = climb(chain, l, reached);
    }
    chain.draft.answer_number(reached);
}

/// Two layers: a carrier of z_0, whose MLP finds slots, and a table of some bits of z_1 in the state of another. Returns the
/// register of z_0 and that of what w read.
fn table(
    chain: &mut ChainRegisters,
    request: &ConstructionRequest,
    from: Slice,
) -> Result<(Slice, Slice), ConstructError> {
    let (one, m, start_bits) = (chain.one, request.m as usize, chain.value_bits(0));
    let registers = &mut chain.draft.registers;
    let read = registers.add("read.0", start_bits, RegisterKind::Raw, "z_0 as it was handed on");
    let start = registers.add("i.0", start_bits, RegisterKind::Number, "z_0");
    let written = registers.add("slot", m, RegisterKind::OneHot, "at entries of z_1: where they write");
    let asked = registers.add("asks", m, RegisterKind::OneHot, "at w: the slot of z_0");
    let raw = registers.add("read.table", from.size, RegisterKind::Raw, "what the table said");
    let width = registers.width() as u64;
    let carry = Carry {
        from: chain.value.low_bits(start_bits),
        to: read,
        flag: chain.start.start,
        one: one.start,
        slots: None,
    };
    let mut neurons = snap(read, start, one);
    let slot = |register: Slice, flag: Slice, number: usize, to: Slice| {
        let gates: Vec<Gate> = equals(register, number as u64).into_iter().chain([set(flag)]).collect();
        constant(one, &gates, vec![(to.column(number), 1.0)])
    };
    for number in 0..m {
        neurons.push(slot(chain.inner.low_bits(start_bits), chain.entry[0], number, written));
        neurons.push(slot(read, chain.query, number, asked));
    }
    let carrier = carry::mixer(request.mixer(), start_bits, 0, width)?;
    chain.draft.layer(
        "the state hands z_0 to w; entries of z_1 find their slots",
        Mixing::Carry(carry, carrier),
        neurons,
    );
    let holder = carry::mixer(request.mixer(), from.size, m, width)?;
    let carry = Carry { from, to: raw, flag: chain.start.start, one: one.start, slots: Some([written, asked]) };
    chain.draft.layer("w asks the table of z_1 in the state", Mixing::Carry(carry, holder), Vec::new());
    Ok((start, raw))
}

/// Snaps what the table said, in the layer that read it.
fn finish_table(chain: &mut ChainRegisters, raw: Slice, to: Slice) {
    let neurons = snap(raw, to, chain.one);
    chain.draft.add_neurons(neurons);
}
