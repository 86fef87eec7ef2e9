//! Runs every step of the proof of Theorem 1 on small protocols, and compares its certificates with brute force and protocols.
//!
//! A protocol of the abstract model with one full layer has a state at the cut before z_1 (a function of z_2), a state at the cut
//! before z_0 (a function of the first state and of z_1), a message from z_2 to w for each (w, z_0, second state), and the state
//! of the last block before w (the border). The protocols here are correct on every input, so every inequality of the proof must hold.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use num_bigint::BigUint;
use rung_theory::bound::checker::{Certificate, ProofCase, Theorem, TokenCounts, check};
use rung_theory::bound::input::BoundInput;
use rung_theory::bound::search::certificate_for_tables;
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

/// The values that pass from token to token, as symbols, with the bits that each may have.
struct Protocol {
    m: usize,
    n: usize,
    state_bits: f64,
    border_bits: f64,
    message_bits: f64,
    /// The state tau_2 before z_1: a function of z_2.
    first_state: Box<dyn Fn(&Table) -> usize>,
    /// The state tau_1 before z_0: a function of tau_2 and z_1.
    second_state: Box<SecondState>,
    /// The message from z_2 to w: a function of w, z_0, tau_1 and z_2.
    message: Box<Message>,
    /// The state of block 1 before w: a function of z_0, z_1 and z_2.
    border: Box<Border>,
}

/// The number with these digits, the highest first.
fn from_digits(digits: impl IntoIterator<Item = usize>, base: usize) -> usize {
    digits.into_iter().fold(0, |number, digit| number * base + digit)
}

/// A protocol with buckets: tau_1 has, for each argument, the bucket of q values that contains its value in z_1; buckets are random.
fn bucket_protocol(m: usize, n: usize, q: usize, generator: &mut Generator) -> Protocol {
    let size = m * n;
    let mut label: Vec<usize> = (0..m).collect();
    for last in (1..m).rev() {
        label.swap(last, generator.random_below(last + 1));
    }
    let bucket = move |value: usize| label[value] / q;
    let count = m.div_ceil(q);
    let bucket_of = bucket.clone();
    let value_bits = (size as f64).log2();
    Protocol {
        m,
        n,
        state_bits: m as f64 * (count as f64).log2(),
        border_bits: 0.0,
        message_bits: q as f64 * value_bits,
        first_state: Box::new(|_| 0),
        second_state: Box::new(move |_, z1| from_digits(z1.iter().map(|&value| bucket(value)), count)),
        message: Box::new(move |w, z0, state, z2| {
            let wanted = state / count.pow((m - 1 - z0) as u32) % count;
            from_digits((0..m).filter(|&i| bucket_of(i) == wanted).map(|i| z2[w * m + i]), size)
        }),
        border: Box::new(|_, _, _| 0),
    }
}

/// The state is used twice: before z_1 for h rows of z_2, after z_1 for the buckets of the other values.
fn reused_state_protocol(m: usize, q: usize, h: usize) -> Protocol {
    let count = 1 + (m - h).div_ceil(q);
    let bucket = move |value: usize| if value < h { 0 } else { 1 + (value - h) / q };
    let value_bits = (m as f64).log2();
    let row_bits = h as f64 * value_bits;
    Protocol {
        m,
        n: 1,
        state_bits: row_bits.max(m as f64 * (count as f64).log2()).ceil(),
        border_bits: 0.0,
        message_bits: q as f64 * value_bits,
        first_state: Box::new(move |z2| from_digits(z2[..h].iter().copied(), m)),
        second_state: Box::new(move |_, z1| from_digits(z1.iter().map(|&value| bucket(value)), count)),
        message: Box::new(move |_, z0, state, z2| {
            let wanted = state / count.pow((m - 1 - z0) as u32) % count;
            from_digits((0..m).filter(|&i| wanted > 0 && bucket(i) == wanted).map(|i| z2[i]), m)
        }),
        border: Box::new(|_, _, _| 0),
    }
}

/// The border has the answer for w = 0; for other w the message has it.
fn shared_border_protocol(m: usize, n: usize) -> Protocol {
    let size = m * n;
    let value_bits = (size as f64).log2();
    Protocol {
        m,
        n,
        state_bits: 0.0,
        border_bits: value_bits.ceil(),
        message_bits: m as f64 * value_bits,
        first_state: Box::new(|_| 0),
        second_state: Box::new(|_, _| 0),
        message: Box::new(move |w, _, _, z2| if w == 0 { 0 } else { from_digits((0..m).map(|i| z2[w * m + i]), size) }),
        border: Box::new(move |z0, z1, z2| z2[z1[z0]]),
    }
}

/// Entropy in bits of a random symbol with these counts.
fn entropy(counts: impl Iterator<Item = usize> + Clone) -> f64 {
    let total: usize = counts.clone().sum();
    counts.map(|count| count as f64 / total as f64).map(|p| -p * p.log2()).sum()
}

/// For z_2 uniform on `tables`: the entropy of the value at each argument, given the values at the arguments before it.
fn conditional_entropies(tables: &[&Table]) -> Vec<f64> {
    let joint = |arguments: usize| {
        let mut counts: BTreeMap<&[usize], usize> = BTreeMap::new();
        for table in tables {
            *counts.entry(&table[..arguments]).or_default() += 1;
        }
        entropy(counts.into_values().collect::<Vec<_>>().into_iter())
    };
    let arguments = tables[0].len();
    (0..arguments).map(|a| joint(a + 1) - joint(a)).collect()
}

/// Checks every step of the proof on a protocol that is correct on every input.
fn check_proof_steps(protocol: &Protocol) {
    const TOLERANCE: f64 = 1e-9;
    let Protocol { m, n, .. } = *protocol;
    let (first_tables, second_tables) = (functions(m), functions(m * n));
    let v = ((m * n) as f64).log2();
    // 1. T: the tables z_2 with the most frequent tau_2.
    let mut by_state: BTreeMap<usize, Vec<&Table>> = BTreeMap::new();
    for z2 in &second_tables {
        by_state.entry((protocol.first_state)(z2)).or_default().push(z2);
    }
    assert!((by_state.len() as f64).log2() <= protocol.state_bits + TOLERANCE, "more states than stated");
    let t = by_state.into_values().max_by_key(Vec::len).unwrap();
    let tau2 = (protocol.first_state)(t[0]);
    assert!((t.len() as f64).log2() >= (m * n) as f64 * v - protocol.state_bits - TOLERANCE);
    // 2. Fibres of A_1.
    let mut fibres: BTreeMap<usize, Vec<&Table>> = BTreeMap::new();
    for z1 in &first_tables {
        fibres.entry((protocol.second_state)(tau2, z1)).or_default().push(z1);
    }
    assert!((fibres.len() as f64).log2() <= protocol.state_bits + TOLERANCE, "more fibres than stated");
    // 4. Entropies and their deficit.
    let h = conditional_entropies(&t);
    assert!(h.iter().map(|h| v - h).sum::<f64>() <= protocol.state_bits + TOLERANCE);
    let a: Vec<f64> = (0..m).map(|i| (0..n).map(|w| h[w * m + i]).sum::<f64>() - protocol.border_bits).collect();
    let value = n as f64 * v - protocol.border_bits;
    let message_capacity = n as f64 * protocol.message_bits;
    assert!(a.iter().all(|&a| a <= value + TOLERANCE));
    for (&state, fibre) in &fibres {
        for z0 in 0..m {
            // 3. Message and border determine z_2 on every reachable argument, since the protocol is correct.
            let reachable: BTreeSet<usize> = fibre.iter().map(|z1| z1[z0]).collect();
            for w in 0..n {
                let messages: BTreeSet<usize> = t.iter().map(|z2| (protocol.message)(w, z0, state, z2)).collect();
                assert!(
                    (messages.len() as f64).log2() <= protocol.message_bits + TOLERANCE,
                    "wider messages than stated"
                );
                for z1 in fibre {
                    let mut answers = BTreeMap::new();
                    for z2 in &t {
                        let received = ((protocol.message)(w, z0, state, z2), (protocol.border)(z0, z1, z2));
                        let answer = z2[w * m + z1[z0]];
                        assert_eq!(*answers.entry(received).or_insert(answer), answer, "the protocol is not correct");
                    }
                }
            }
            // 5. So the entropies of any reachable values fit in the messages.
            let positive: f64 = reachable.iter().map(|&i| a[i].max(0.0)).sum();
            assert!(positive <= message_capacity + TOLERANCE, "{positive} {message_capacity}");
        }
    }
    // 6. Random tables with weights g: no fibre has probability above (max g(K) / g([m]))^m, and all fibres have probability 1.
    let r = (message_capacity / value).floor();
    let gap = (r + 1.0) * value - message_capacity;
    let weights: [Box<dyn Fn(usize) -> f64>; 3] =
        [Box::new(|i| a[i].max(0.0)), Box::new(|i| (1.0 - (value - a[i]) / gap).max(0.0)), Box::new(|_| 1.0)];
    for (index, g) in weights.iter().enumerate() {
        if index == 1 && r < 1.0 {
            continue;
        }
        let total: f64 = (0..m).map(g).sum();
        let mut total_probability = 0.0;
        for fibre in fibres.values() {
            let probability: f64 = fibre.iter().map(|z1| z1.iter().map(|&i| g(i) / total).product::<f64>()).sum();
            let reachable = |z0: usize| fibre.iter().map(|z1| z1[z0]).collect::<BTreeSet<_>>();
            let limit = (0..m).map(|z0| reachable(z0).iter().map(|&i| g(i)).sum::<f64>() / total).product::<f64>();
            assert!(probability <= limit + TOLERANCE, "weights {index}");
            let heaviest = (0..m).map(|z0| reachable(z0).iter().map(|&i| g(i)).sum::<f64>()).fold(0.0, f64::max);
            let bound = [message_capacity, r, ((message_capacity + protocol.state_bits) / value).floor()][index];
            assert!(heaviest <= bound + TOLERANCE, "weights {index}: {heaviest} {bound}");
            total_probability += probability;
        }
        assert!(total <= TOLERANCE || (total_probability - 1.0).abs() < 1e-6);
    }
}

fn entropy_certificate(m: u64, n: u64, message: u64, states: [u64; 2]) -> Certificate {
    Certificate {
        case: ProofCase::OneLayerFewer,
        hops: 2,
        message_bits: message.into(),
        state_bits: states.map(BigUint::from).to_vec(),
        fixed_bits: BigUint::ZERO,
        m: m.into(),
        n: vec![n.into()],
        token_counts: TokenCounts::default(),
        theorem: Theorem::Entropy,
        inner_instance: None,
    }
}

#[test]
fn proof_steps_hold_for_correct_protocols() {
    let mut generator = Generator(1);
    let mut protocols = vec![
        shared_border_protocol(2, 2),
        reused_state_protocol(2, 1, 1),
        reused_state_protocol(3, 1, 2),
        reused_state_protocol(4, 2, 2),
    ];
    for (m, n, q) in [(2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (3, 1, 1), (3, 1, 2), (3, 1, 3), (4, 1, 1), (4, 1, 2)]
    {
        for _ in 0..3 {
            protocols.push(bucket_protocol(m, n, q, &mut generator));
        }
    }
    for protocol in &protocols {
        check_proof_steps(protocol);
        let states = [protocol.state_bits, protocol.border_bits].map(|bits| bits.ceil() as u64);
        let certificate =
            entropy_certificate(protocol.m as u64, protocol.n as u64, protocol.message_bits.ceil() as u64, states);
        assert!(check(&certificate).is_err(), "a solved instance was certified: {certificate:?}");
    }
}

/// Whether some protocol with s bits of state and `message` bits per message solves m = 2, n_1 = 1, by brute force.
fn solvable_by_brute_force(s: u32, message: u32) -> bool {
    let tables = functions(2);
    let states = 1_usize << s;
    let assignments = states.pow(tables.len() as u32);
    let state_of = |assignment: usize, index: usize| assignment / states.pow(index as u32) % states;
    // The tables z_2 with one tau_2 are solvable if, for some assignment of states to the z_1, every message fits.
    let solvable = |class: &[&Table]| {
        (0..assignments).any(|assignment| {
            (0..states).all(|state| {
                (0..2).all(|z0| {
                    let members = tables.iter().enumerate().filter(|(index, _)| state_of(assignment, *index) == state);
                    let reachable: BTreeSet<usize> = members.map(|(_, z1)| z1[z0]).collect();
                    let messages: BTreeSet<Vec<usize>> =
                        class.iter().map(|z2| reachable.iter().map(|&i| z2[i]).collect()).collect();
                    messages.len() <= 1 << message
                })
            })
        })
    };
    (0..assignments).any(|assignment| {
        (0..states).all(|state| {
            let members = tables.iter().enumerate().filter(|(index, _)| state_of(assignment, *index) == state);
            solvable(&members.map(|(_, z2)| z2).collect::<Vec<_>>())
        })
    })
}

#[test]
fn check_agrees_with_brute_force_on_the_smallest_instances() {
    let mut impossible = 0;
    for s in 0..=2 {
        for message in 1..=2 {
            let certified = check(&entropy_certificate(2, 1, message.into(), [s.into(), 0])).is_ok();
            let solvable = solvable_by_brute_force(s, message);
            assert!(!(certified && solvable), "s = {s}, B = {message}");
            impossible += u32::from(!solvable);
            // Without a state the bound is exact.
            assert!(s > 0 || certified != solvable, "B = {message}");
        }
    }
    assert!(impossible > 0);
    // Without a state the message must contain a row of z_2, m log N_1 bits, and that suffices.
    for (m, n) in [(2_u64, 1_u64), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2), (8, 8)] {
        let row = m * u64::from((m * n).trailing_zeros());
        assert!(check(&entropy_certificate(m, n, row - 1, [0, 0])).is_ok(), "m = {m}, n = {n}");
        assert!(check(&entropy_certificate(m, n, row, [0, 0])).is_err(), "m = {m}, n = {n}");
    }
}

/// ceil(log2 values).
fn bits(values: u64) -> u64 {
    u64::from(64 - (values.max(1) - 1).leading_zeros())
}

/// The first shortcut for two hops and one full layer whose conditions hold.
fn shortcut(m: u64, n: u64, b: u64, [s0, s1]: [u64; 2]) -> Option<&'static str> {
    let (v1, v2) = (bits(m), bits(m * n));
    let table = (m + 1) * v1;
    let both_tables = table + m * n * v2;
    let candidates = |q: u64, a: u64| s0 >= a * bits(m.div_ceil(q)) + v1 && b >= q * v2 + v1;
    let max_candidates = (b.saturating_sub(v1) / v2).min(m);
    let conditions = [
        ("S2", s0 >= table && b >= v2),
        ("S2", s0 >= both_tables || s1 >= both_tables || (s0 >= v1 && b >= v1 && s1 >= v1 + m * n * v2)),
        ("S4", b >= v1 + m * v2),
        ("S5", max_candidates >= 1 && candidates(max_candidates, m)),
        (
            "S6",
            n * v2 <= b
                && max_candidates >= 1
                && (0..=m).any(|a| candidates(max_candidates, a) && s1 >= (m - a) * n * v2 + 2 * v2),
        ),
        (
            "S7",
            (0..m).any(|h| {
                let q = (b / v2).min(m);
                q >= 1 && s0 >= h * n * v2 && s0 >= m * bits(1 + (m - h).div_ceil(q))
            }),
        ),
        ("S7", n == 1 && s0 + b >= m * v2),
    ];
    conditions.into_iter().find(|(_, holds)| *holds).map(|(name, _)| name)
}

#[test]
fn instances_solved_by_a_shortcut_are_never_certified() {
    let mut generator = Generator(5);
    let (mut certified, mut solved) = (0, 0);
    for round in 0..5000 {
        let log2_sizes = [generator.random_below(9), generator.random_below(6)];
        let m = 2 + generator.random_below(2 << log2_sizes[0]) as u64;
        let n = 1 + generator.random_below(1 << log2_sizes[1]) as u64;
        let (v1, v2) = (bits(m), bits(m * n));
        // Sizes near the conditions of a shortcut, or arbitrary ones.
        let q = 1 + generator.random_below(1 + m as usize / 3) as u64;
        let b = match generator.random_below(3) {
            0 => q * v2 + v1,
            1 => q * v2,
            _ => 1 + generator.random_below((m * v2) as usize) as u64,
        };
        let s0 = match generator.random_below(4) {
            0 => m * bits(m.div_ceil(q)) + v1,
            1 => (m + 1) * v1,
            2 => q * n * v2,
            _ => generator.random_below((m * v2) as usize) as u64,
        };
        let s0 = s0 * (1 + generator.random_below(8) as u64) / 8;
        let reduction = generator.random_below(3) as u64 * generator.random_below(1 + m as usize / 4) as u64;
        let border = generator.random_below((n * v2) as usize) as u64;
        let s1 = if generator.random_below(3) == 0 { border } else { 0 };
        let states = [s0.saturating_sub(reduction), s1];
        let certificate = entropy_certificate(m, n, b, states);
        let mut impossible = check(&certificate).is_ok();
        if round % 20 == 0 {
            let input =
                BoundInput::new(ProofCase::OneLayerFewer, 2, b.into(), &states.map(u128::from), TokenCounts::default());
            impossible |= certificate_for_tables(&input, &m.into(), &[n.into()]).is_some();
        }
        let solution = shortcut(m, n, b, states);
        assert!(!impossible || solution.is_none(), "{solution:?} solves {certificate:?}");
        certified += u32::from(impossible);
        solved += u32::from(solution.is_some());
    }
    assert!(certified > 500 && solved > 500, "{certified} {solved}");
}

#[test]
fn the_bound_is_exact_for_candidates_with_long_rows() {
    // n_1 is so large that the state has no information about a row: q candidates need exactly m log(m/q) bits.
    for (log_m, log_q) in [(2, 0), (3, 1), (4, 2), (5, 2), (6, 3), (8, 5)] {
        let (m, q, n) = (1_u64 << log_m, 1_u64 << log_q, 1_u64 << 20);
        let needed_bits = m * (log_m - log_q);
        let v2 = bits(m * n);
        for b in [q * v2, (q + 1) * v2 - 1] {
            assert!(check(&entropy_certificate(m, n, b, [needed_bits - 1, 0])).is_ok(), "{m} {q} {b}");
            assert!(check(&entropy_certificate(m, n, b, [needed_bits, 0])).is_err(), "{m} {q} {b}");
        }
        // The shortcut itself, which also passes on z_0 and i_1, is never certified to be impossible.
        let (message, state) = (q * v2 + bits(m), needed_bits + bits(m));
        assert!(shortcut(m, n, message, [state, 0]).is_some());
        assert!(check(&entropy_certificate(m, n, message, [state, 0])).is_err());
    }
}
