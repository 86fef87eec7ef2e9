//! The proof of Theorem 1 executed literally on small protocols, and its certificates against brute force and protocols.
//!
//! A protocol of the abstract model with one full layer: a state that passes the cut before z_1 (a function of z_2), a state that
//! passes the cut before z_0 (a function of the first and of z_1), a message from z_2 to w for each (w, z_0, second state), and a
//! border of the last block before w. The protocols here are right on every input, so every inequality of the proof must hold.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use num_bigint::BigUint;
use rung_theory::bound::checker::{Certificate, ProofCase, Theorem, TokensPer, check};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::for_tables;
use support::Generator;

type Table = Vec<usize>;

/// Every function from [size] to [size].
fn functions(size: usize) -> Vec<Table> {
    let count = size.pow(size as u32);
    let digits = |mut number: usize| {
        (0..size)
            .map(|_| {
                let digit = number % size;
                number /= size;
                digit
            })
            .collect()
    };
    (0..count).map(digits).collect()
}

type SecondState = dyn Fn(usize, &Table) -> usize;
type Message = dyn Fn(usize, usize, usize, &Table) -> usize;
type Border = dyn Fn(usize, &Table, &Table) -> usize;

/// What passes from token to token, as symbols; how many bits each may have is stated beside.
struct Protocol {
    m: usize,
    n: usize,
    state_bits: f64,
    border_bits: f64,
    message_bits: f64,
    /// tau_2 from z_2.
    first: Box<dyn Fn(&Table) -> usize>,
    /// tau_1 from tau_2 and z_1.
    second: Box<SecondState>,
    /// The message from z_2 to w: from w, z_0, tau_1 and z_2.
    message: Box<Message>,
    /// The border of block 1 before w: from z_0, z_1 and z_2.
    border: Box<Border>,
}

/// The number that a list of digits stands for.
fn number(digits: impl IntoIterator<Item = usize>, base: usize) -> usize {
    digits.into_iter().fold(0, |number, digit| number * base + digit)
}

/// A protocol with buckets: tau_1 says for each argument in which bucket of q values z_1 lies, through a random relabelling.
fn buckets(m: usize, n: usize, q: usize, generator: &mut Generator) -> Protocol {
    let size = m * n;
    let mut label: Vec<usize> = (0..m).collect();
    for at in (1..m).rev() {
        label.swap(at, generator.below(at + 1));
    }
    let bucket = move |value: usize| label[value] / q;
    let count = m.div_ceil(q);
    let inverse = bucket.clone();
    let values = (size as f64).log2();
    Protocol {
        m,
        n,
        state_bits: m as f64 * (count as f64).log2(),
        border_bits: 0.0,
        message_bits: q as f64 * values,
        first: Box::new(|_| 0),
        second: Box::new(move |_, z1| number(z1.iter().map(|&value| bucket(value)), count)),
        message: Box::new(move |w, z0, state, z2| {
            let wanted = state / count.pow((m - 1 - z0) as u32) % count;
            number((0..m).filter(|&i| inverse(i) == wanted).map(|i| z2[w * m + i]), size)
        }),
        border: Box::new(|_, _, _| 0),
    }
}

/// The state is used twice: rows of z_2 for the first h values, and buckets for the others.
fn reused_state(m: usize, q: usize, h: usize) -> Protocol {
    let count = 1 + (m - h).div_ceil(q);
    let bucket = move |value: usize| if value < h { 0 } else { 1 + (value - h) / q };
    let values = (m as f64).log2();
    let rows = h as f64 * values;
    Protocol {
        m,
        n: 1,
        state_bits: rows.max(m as f64 * (count as f64).log2()).ceil(),
        border_bits: 0.0,
        message_bits: q as f64 * values,
        first: Box::new(move |z2| number(z2[..h].iter().copied(), m)),
        second: Box::new(move |_, z1| number(z1.iter().map(|&value| bucket(value)), count)),
        message: Box::new(move |_, z0, state, z2| {
            let wanted = state / count.pow((m - 1 - z0) as u32) % count;
            number((0..m).filter(|&i| wanted > 0 && bucket(i) == wanted).map(|i| z2[i]), m)
        }),
        border: Box::new(|_, _, _| 0),
    }
}

/// The border carries the answer of w = 0; the others have it in their messages.
fn shared_border(m: usize, n: usize) -> Protocol {
    let size = m * n;
    let values = (size as f64).log2();
    Protocol {
        m,
        n,
        state_bits: 0.0,
        border_bits: values.ceil(),
        message_bits: m as f64 * values,
        first: Box::new(|_| 0),
        second: Box::new(|_, _| 0),
        message: Box::new(move |w, _, _, z2| if w == 0 { 0 } else { number((0..m).map(|i| z2[w * m + i]), size) }),
        border: Box::new(move |z0, z1, z2| z2[z1[z0]]),
    }
}

/// Entropy in bits of a symbol that occurs so often.
fn entropy(counts: impl Iterator<Item = usize> + Clone) -> f64 {
    let total: usize = counts.clone().sum();
    counts.map(|count| count as f64 / total as f64).map(|p| -p * p.log2()).sum()
}

/// h of every argument of z_2, uniform on T: the entropy of its value given those of the arguments before it.
fn conditional_entropies(tables: &[&Table]) -> Vec<f64> {
    let joint = |until: usize| {
        let mut counts: BTreeMap<&[usize], usize> = BTreeMap::new();
        for table in tables {
            *counts.entry(&table[..until]).or_default() += 1;
        }
        entropy(counts.into_values().collect::<Vec<_>>().into_iter())
    };
    let arguments = tables[0].len();
    (0..arguments).map(|a| joint(a + 1) - joint(a)).collect()
}

/// Everything that the proof says of a protocol that is right on every input.
fn execute_proof(protocol: &Protocol) {
    const SLACK: f64 = 1e-9;
    let Protocol { m, n, .. } = *protocol;
    let (tables, second) = (functions(m), functions(m * n));
    let v = ((m * n) as f64).log2();
    // 1. The most frequent tau_2 leaves T.
    let mut by_state: BTreeMap<usize, Vec<&Table>> = BTreeMap::new();
    for z2 in &second {
        by_state.entry((protocol.first)(z2)).or_default().push(z2);
    }
    assert!((by_state.len() as f64).log2() <= protocol.state_bits + SLACK, "more states than stated");
    let t = by_state.into_values().max_by_key(Vec::len).unwrap();
    let tau2 = (protocol.first)(t[0]);
    assert!((t.len() as f64).log2() >= (m * n) as f64 * v - protocol.state_bits - SLACK);
    // 2. Fibres of A_1.
    let mut fibres: BTreeMap<usize, Vec<&Table>> = BTreeMap::new();
    for z1 in &tables {
        fibres.entry((protocol.second)(tau2, z1)).or_default().push(z1);
    }
    assert!((fibres.len() as f64).log2() <= protocol.state_bits + SLACK, "more fibres than stated");
    // 4. Entropies and their deficit.
    let h = conditional_entropies(&t);
    assert!(h.iter().map(|h| v - h).sum::<f64>() <= protocol.state_bits + SLACK);
    let a: Vec<f64> = (0..m).map(|i| (0..n).map(|w| h[w * m + i]).sum::<f64>() - protocol.border_bits).collect();
    let value = n as f64 * v - protocol.border_bits;
    let carried = n as f64 * protocol.message_bits;
    assert!(a.iter().all(|&a| a <= value + SLACK));
    for (&state, fibre) in &fibres {
        for z0 in 0..m {
            // 3. Message and border determine z_2 on every reachable argument: the protocol is right.
            let reachable: BTreeSet<usize> = fibre.iter().map(|z1| z1[z0]).collect();
            for w in 0..n {
                let messages: BTreeSet<usize> = t.iter().map(|z2| (protocol.message)(w, z0, state, z2)).collect();
                assert!((messages.len() as f64).log2() <= protocol.message_bits + SLACK, "wider messages than stated");
                for z1 in fibre {
                    let mut answers = BTreeMap::new();
                    for z2 in &t {
                        let seen = ((protocol.message)(w, z0, state, z2), (protocol.border)(z0, z1, z2));
                        let answer = z2[w * m + z1[z0]];
                        assert_eq!(*answers.entry(seen).or_insert(answer), answer, "not a right protocol");
                    }
                }
            }
            // 5. So the entropies of any reachable values fit in the messages.
            let positive: f64 = reachable.iter().map(|&i| a[i].max(0.0)).sum();
            assert!(positive <= carried + SLACK, "{positive} {carried}");
        }
    }
    // 6. Random tables with weights g: no fibre is likelier than (max g(K) / g([m]))^m, and all together are certain.
    let r = (carried / value).floor();
    let gap = (r + 1.0) * value - carried;
    let weights: [Box<dyn Fn(usize) -> f64>; 3] =
        [Box::new(|i| a[i].max(0.0)), Box::new(|i| (1.0 - (value - a[i]) / gap).max(0.0)), Box::new(|_| 1.0)];
    for (index, g) in weights.iter().enumerate() {
        if index == 1 && r < 1.0 {
            continue;
        }
        let total: f64 = (0..m).map(g).sum();
        let mut all = 0.0;
        for fibre in fibres.values() {
            let chance: f64 = fibre.iter().map(|z1| z1.iter().map(|&i| g(i) / total).product::<f64>()).sum();
            let reach = |z0: usize| fibre.iter().map(|z1| z1[z0]).collect::<BTreeSet<_>>();
            let most = (0..m).map(|z0| reach(z0).iter().map(|&i| g(i)).sum::<f64>() / total).product::<f64>();
            assert!(chance <= most + SLACK, "weights {index}");
            let heaviest = (0..m).map(|z0| reach(z0).iter().map(|&i| g(i)).sum::<f64>()).fold(0.0, f64::max);
            let bound = [carried, r, ((carried + protocol.state_bits) / value).floor()][index];
            assert!(heaviest <= bound + SLACK, "weights {index}: {heaviest} {bound}");
            all += chance;
        }
        assert!(total <= SLACK || (all - 1.0).abs() < 1e-6);
    }
}

fn entropy_point(m: u64, n: u64, message: u64, states: [u64; 2]) -> Certificate {
    Certificate {
        case: ProofCase::OneLayerFewer,
        hops: 2,
        message_bits: message.into(),
        state_bits: states.map(BigUint::from).to_vec(),
        parallel_bits: BigUint::ZERO,
        m: m.into(),
        n: vec![n.into()],
        tokens_per: TokensPer::default(),
        theorem: Theorem::Entropy,
        embedding: None,
    }
}

#[test]
fn every_step_of_the_proof_holds_on_right_protocols() {
    let mut generator = Generator(1);
    let mut protocols = vec![shared_border(2, 2), reused_state(2, 1, 1), reused_state(3, 1, 2), reused_state(4, 2, 2)];
    for (m, n, q) in [(2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (3, 1, 1), (3, 1, 2), (3, 1, 3), (4, 1, 1), (4, 1, 2)]
    {
        for _ in 0..3 {
            protocols.push(buckets(m, n, q, &mut generator));
        }
    }
    for protocol in &protocols {
        execute_proof(protocol);
        let states = [protocol.state_bits, protocol.border_bits].map(|bits| bits.ceil() as u64);
        let point = entropy_point(protocol.m as u64, protocol.n as u64, protocol.message_bits.ceil() as u64, states);
        assert!(check(&point).is_err(), "a solved instance was certified: {point:?}");
    }
}

/// Whether some protocol with s bits of state and B bits of messages solves m = 2, n_1 = 1, by trying all.
fn solvable_by_brute_force(s: u32, message: u32) -> bool {
    let tables = functions(2);
    let parts = 1_usize << s;
    let assignments = parts.pow(tables.len() as u32);
    let part = |assignment: usize, index: usize| assignment / parts.pow(index as u32) % parts;
    // One class T of tau_2 is served if some division of the z_1 lets every message fit.
    let served = |class: &[&Table]| {
        (0..assignments).any(|division| {
            (0..parts).all(|c| {
                (0..2).all(|z0| {
                    let members = tables.iter().enumerate().filter(|(index, _)| part(division, *index) == c);
                    let reachable: BTreeSet<usize> = members.map(|(_, z1)| z1[z0]).collect();
                    let seen: BTreeSet<Vec<usize>> =
                        class.iter().map(|z2| reachable.iter().map(|&i| z2[i]).collect()).collect();
                    seen.len() <= 1 << message
                })
            })
        })
    };
    (0..assignments).any(|division| {
        (0..parts).all(|class| {
            let members = tables.iter().enumerate().filter(|(index, _)| part(division, *index) == class);
            served(&members.map(|(_, z2)| z2).collect::<Vec<_>>())
        })
    })
}

#[test]
fn brute_force_agrees_on_the_tiniest_instances() {
    let mut impossible = 0;
    for s in 0..=2 {
        for message in 1..=2 {
            let certified = check(&entropy_point(2, 1, message.into(), [s.into(), 0])).is_ok();
            let solvable = solvable_by_brute_force(s, message);
            assert!(!(certified && solvable), "s = {s}, B = {message}");
            impossible += u32::from(!solvable);
            // Without a state the bound is exact.
            assert!(s > 0 || certified != solvable, "B = {message}");
        }
    }
    assert!(impossible > 0);
    // Without a state the message must carry a row of z_2, m log N_1 bits, and that suffices.
    for (m, n) in [(2_u64, 1_u64), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2), (8, 8)] {
        let row = m * u64::from((m * n).trailing_zeros());
        assert!(check(&entropy_point(m, n, row - 1, [0, 0])).is_ok(), "m = {m}, n = {n}");
        assert!(check(&entropy_point(m, n, row, [0, 0])).is_err(), "m = {m}, n = {n}");
    }
}

fn bits(values: u64) -> u64 {
    u64::from(64 - (values.max(1) - 1).leading_zeros())
}

/// The protocols for two hops and one full layer, by their conditions; the first that fits.
fn shortcut(m: u64, n: u64, b: u64, [s0, s1]: [u64; 2]) -> Option<&'static str> {
    let (v1, v2) = (bits(m), bits(m * n));
    let table = (m + 1) * v1;
    let whole = table + m * n * v2;
    let candidates = |q: u64, a: u64| s0 >= a * bits(m.div_ceil(q)) + v1 && b >= q * v2 + v1;
    let most = (b.saturating_sub(v1) / v2).min(m);
    let fits = [
        ("S2", s0 >= table && b >= v2),
        ("S2", s0 >= whole || s1 >= whole || (s0 >= v1 && b >= v1 && s1 >= v1 + m * n * v2)),
        ("S4", b >= v1 + m * v2),
        ("S5", most >= 1 && candidates(most, m)),
        ("S6", n * v2 <= b && most >= 1 && (0..=m).any(|a| candidates(most, a) && s1 >= (m - a) * n * v2 + 2 * v2)),
        (
            "S7",
            (0..m).any(|h| {
                let q = (b / v2).min(m);
                q >= 1 && s0 >= h * n * v2 && s0 >= m * bits(1 + (m - h).div_ceil(q))
            }),
        ),
        ("S7", n == 1 && s0 + b >= m * v2),
    ];
    fits.into_iter().find(|(_, fits)| *fits).map(|(name, _)| name)
}

#[test]
fn nothing_is_certified_that_a_protocol_solves() {
    let mut generator = Generator(5);
    let (mut certified, mut solved) = (0, 0);
    for round in 0..5000 {
        let most = [generator.below(9), generator.below(6)];
        let m = 2 + generator.below(2 << most[0]) as u64;
        let n = 1 + generator.below(1 << most[1]) as u64;
        let (v1, v2) = (bits(m), bits(m * n));
        // Near the conditions of a protocol, or anywhere.
        let q = 1 + generator.below(1 + m as usize / 3) as u64;
        let b = match generator.below(3) {
            0 => q * v2 + v1,
            1 => q * v2,
            _ => 1 + generator.below((m * v2) as usize) as u64,
        };
        let s0 = match generator.below(4) {
            0 => m * bits(m.div_ceil(q)) + v1,
            1 => (m + 1) * v1,
            2 => q * n * v2,
            _ => generator.below((m * v2) as usize) as u64,
        };
        let s0 = s0 * (1 + generator.below(8) as u64) / 8;
        let less = generator.below(3) as u64 * generator.below(1 + m as usize / 4) as u64;
        let border = generator.below((n * v2) as usize) as u64;
        let s1 = if generator.below(3) == 0 { border } else { 0 };
        let states = [s0.saturating_sub(less), s1];
        let point = entropy_point(m, n, b, states);
        let mut impossible = check(&point).is_ok();
        if round % 20 == 0 {
            let question =
                BoundInput::new(ProofCase::OneLayerFewer, 2, b.into(), &states.map(u128::from), TokensPer::default());
            impossible |= for_tables(&question, &m.into(), &[n.into()]).is_some();
        }
        let protocol = shortcut(m, n, b, states);
        assert!(!impossible || protocol.is_none(), "{protocol:?} solves {point:?}");
        certified += u32::from(impossible);
        solved += u32::from(protocol.is_some());
    }
    assert!(certified > 500 && solved > 500, "{certified} {solved}");
}

#[test]
fn the_knife_edge_of_candidates_is_exact() {
    // n_1 so large that the state says nothing about a row: q candidates need m log(m/q) bits and not one less.
    for (log_m, log_q) in [(2, 0), (3, 1), (4, 2), (5, 2), (6, 3), (8, 5)] {
        let (m, q, n) = (1_u64 << log_m, 1_u64 << log_q, 1_u64 << 20);
        let need = m * (log_m - log_q);
        let v2 = bits(m * n);
        for b in [q * v2, (q + 1) * v2 - 1] {
            assert!(check(&entropy_point(m, n, b, [need - 1, 0])).is_ok(), "{m} {q} {b}");
            assert!(check(&entropy_point(m, n, b, [need, 0])).is_err(), "{m} {q} {b}");
        }
        // The protocol itself, which also hands on z_0 and i_1, is never certified to be impossible.
        let (message, state) = (q * v2 + bits(m), need + bits(m));
        assert!(shortcut(m, n, message, [state, 0]).is_some());
        assert!(check(&entropy_point(m, n, message, [state, 0])).is_err());
    }
}
