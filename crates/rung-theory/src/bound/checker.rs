//! The lower bound on function composition, and its checker: exact integers, no search, no floats.
//!
//! This is the file to read first: whoever believes it needs to believe nothing else here.
//!
//! # Claim
//! If [`check`] accepts a [`Point`], then no causal stack with the point's full layers, message bits and block states
//! solves L-step function composition on tables of sizes m, n_1, .., n_{L-1}, whatever its weights.
//!
//! # Conditions
//! Case 1: F = L-1 full layers, bounded-state blocks anywhere. Case 0: F = L full layers and blocks 0 and 1 empty. A token
//! learns at most B = `message_bits` bits about a prefix in a full layer; s_e = `state_bits[e]` bits cross any cut inside
//! block e. Attention sums run from left to right in registers, or exactly. Entries, the start value and the query take
//! `tokens_per` tokens each. The theorem and its proof are in `docs/proof.md`, with the letters used below.
//!
//! # Vacuous when
//! B is smaller than the bits of one answer ([`Accepted::trivial`]): then one message could not even carry the result.
//!
//! # Source
//! The indistinguishable decomposition of Chen, Peng and Wu (2412.02975) and Ye et al. (2602.01763), with explicit
//! constants, last-layer economy and sparse pairs.
//!
//! Logarithms are integers scaled by 2^80, rounded down where they help the claim and up where they hurt it.

use num_bigint::BigUint;

/// A proposed proof: the instance, and the sizes with which the argument is to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// 1 for F = L-1, 0 for F = L with blocks 0 and 1 empty.
    pub case: u8,
    /// L.
    pub hops: usize,
    /// B.
    pub message_bits: BigUint,
    /// s_0 .. s_F.
    pub state_bits: Vec<BigUint>,
    /// m = N_0.
    pub m: BigUint,
    /// n_1 .. n_{L-1}.
    pub n: Vec<BigUint>,
    /// Lengths of the lists Z_0 .. Z_{L-1}.
    pub x: Vec<BigUint>,
    /// Distinct (class, value) pairs kept after each draw.
    pub sigma: Vec<BigUint>,
    /// Numbers of classes k_0 .. k_{L-2} of the sparse pairs.
    pub kappa: Vec<BigUint>,
    /// Tokens of an entry, of z_0 and of w.
    pub tokens_per: [BigUint; 3],
}

/// What an accepted point says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Tokens of the instance.
    pub tokens: BigUint,
    /// One message cannot even carry an answer: true, but nobody doubted it.
    pub trivial: bool,
}

/// Why a point proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A list has the wrong length, a size is zero, or a divisibility fails.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The draw of list Z_step may fail to have sigma_step distinct values in a large enough slice.
    #[error("refused: the draw of Z_{step} need not reach sigma_{step} pairs (tail inequality {step})")]
    Tail {
        /// Which draw, from 1.
        step: usize,
    },
    /// The indistinguishable set may be small enough to agree on all reachable arguments.
    #[error("refused: Delta is not below D_L * log N_(L-1) (final inequality)")]
    Final,
}

/// The largest L that is checked.
pub const MAX_HOPS: usize = 64;
const FRACTION: u64 = 80;
const MANTISSA: u64 = 128;

/// log2(a/b) * 2^80 for a >= b >= 1, rounded down or up throughout.
fn log2(a: &BigUint, b: &BigUint, up: bool) -> BigUint {
    let shift = |value: BigUint, by: u64| {
        let down = &value >> by;
        if up && (&down << by) != value { down + 1_u8 } else { down }
    };
    let mut whole = a.bits() - b.bits();
    if &(b << whole) > a {
        whole -= 1;
    }
    let divisor = b << whole;
    let mut rest = (a << MANTISSA) / &divisor; // in [1, 2), scaled
    if up && &rest * &divisor != a << MANTISSA {
        rest += 1_u8;
    }
    let mut digits = BigUint::from(whole);
    for _ in 0..FRACTION {
        rest = shift(&rest * &rest, MANTISSA);
        digits <<= 1;
        if rest.bits() > MANTISSA + 1 {
            digits += 1_u8;
            rest = shift(rest, 1);
        }
    }
    digits + u8::from(up)
}

fn binomial(m: u32, t: u32) -> BigUint {
    (1..=t.min(m - t)).fold(BigUint::from(1_u8), |c, i| c * (m - i + 1) / i)
}

/// Whether T uniform draws from M pairs miss sigma distinct ones with probability at most 2^-need.
pub fn tail_ok(m: &BigUint, draws: &BigUint, sigma: &BigUint, need: &BigUint) -> bool {
    let (zero, one) = (BigUint::ZERO, BigUint::from(1_u8));
    if *sigma < one || sigma > m || *draws < one {
        return false;
    }
    let t = sigma - &one;
    if t == zero {
        return true;
    }
    if t >= *draws {
        return false;
    }
    let need = need << FRACTION;
    match (u32::try_from(m), u32::try_from(&t)) {
        (Ok(small), Ok(few)) if small <= 4000 => {
            draws * log2(m, &t, false) >= need + log2(&binomial(small, few), &one, true)
        }
        _ => (draws - &t) * log2(m, &t, false) >= need + (m - &t) * log2(m, &(m - &t), true),
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Malformed(what.into()))
}

pub(super) fn product<'a>(factors: impl IntoIterator<Item = &'a BigUint>) -> BigUint {
    factors.into_iter().fold(BigUint::from(1_u8), |product, factor| product * factor)
}

/// Lists of the right lengths, sizes at least 1, and the divisibilities of the sparse pairs.
fn well_formed(p: &Point) -> Result<(), Refusal> {
    let l = p.hops;
    if !(1..=MAX_HOPS).contains(&l) || p.case > 1 {
        return malformed(format!("hops is {l} (1 to {MAX_HOPS}), case is {} (0 or 1)", p.case));
    }
    let blocks = if p.case == 1 { l } else { l + 1 };
    for (name, found, expected) in [
        ("state_bits", p.state_bits.len(), blocks),
        ("n", p.n.len(), l - 1),
        ("x", p.x.len(), l),
        ("sigma", p.sigma.len(), l - 1),
        ("kappa", p.kappa.len(), l - 1),
    ] {
        if found != expected {
            return malformed(format!("{name} has {found} entries, expected {expected}"));
        }
    }
    let sizes = [&p.message_bits, &p.m].into_iter().chain(&p.n).chain(&p.x).chain(&p.kappa).chain(&p.tokens_per);
    if sizes.into_iter().any(|size| *size == BigUint::ZERO) {
        return malformed("message_bits, m, n, x, kappa and tokens_per must be at least 1");
    }
    if p.case == 0 && p.state_bits[..2].iter().any(|bits| *bits != BigUint::ZERO) {
        return malformed("case 0 needs state_bits[0] = state_bits[1] = 0");
    }
    if p.x[0] > p.m || (l == 1 && p.x[0] != p.m) {
        return malformed(if l == 1 { "x[0] must equal m" } else { "x[0] exceeds m" });
    }
    for e in 0..l - 1 {
        if e == 0 && &p.x[0] % &p.kappa[0] != BigUint::ZERO {
            return malformed("kappa[0] does not divide x[0]");
        }
        let classes = if e + 1 < l - 1 { &p.kappa[e] * &p.kappa[e + 1] } else { p.kappa[e].clone() };
        if &p.n[e] % &classes != BigUint::ZERO {
            return malformed(format!("the classes on both sides ({classes}) do not divide n[{e}]"));
        }
    }
    Ok(())
}

/// Checks a point.
///
/// # Errors
/// What is malformed, or the first inequality that fails.
pub fn check(p: &Point) -> Result<Accepted, Refusal> {
    well_formed(p)?;
    let (l, b, s, x, k) = (p.hops, &p.message_bits, &p.state_bits, &p.x, &p.kappa);
    let [te, t0, tw] = &p.tokens_per;
    let mut size = vec![p.m.clone()]; // N_0 .. N_{L-1}
    for n in &p.n {
        size.push(size[size.len() - 1].clone() * n);
    }
    let pairs = &x[0] * product(&p.n) / product(k); // |Q|
    let queries = product(&p.n) / product(k.iter().skip(1)); // W
    let tokens_of = |i: usize| if i == 0 { t0.clone() } else { te * &size[i - 1] };
    let mut delta = if p.case == 1 { s[0].clone() } else { b * tw * queries };
    let mut reach = x[0].clone(); // D
    for e in 0..l - 1 {
        let step = &x[e + 1];
        let layer = if p.case == 1 { e + 1 } else { e + 2 };
        let first = p.case == 0 && e == 0;
        delta = step * delta + 1_u8;
        if !tail_ok(&(&k[e] * &size[e]), &(step * &reach), &p.sigma[e], &delta) {
            return Err(Refusal::Tail { step: e + 1 });
        }
        // Messages into w and, where it was not frozen before, into z_0.
        delta += b * tw * &pairs * product(&x[1..=e]);
        if first {
            delta += b * t0 * &x[0];
        }
        // Messages of this layer into players 0..=to.
        let into = |to: usize| {
            let cases = |i: usize| product(&x[i..=e]) * if first { x[1].clone() } else { BigUint::from(1_u8) };
            (0..=to.min(e)).fold(BigUint::ZERO, |sum, i| sum + b * tokens_of(i) * cases(i))
        };
        let own = b * te * &size[e] * step; // player e+1 in one layer
        let borders = |through: usize| s[..=through].iter().fold(BigUint::ZERO, |sum, bits| sum + bits);
        if e + 1 < l - 1 {
            delta += into(e) + &own * layer + borders(layer);
        } else {
            delta += &own * (layer - 1) + borders(layer - 1);
            if s[layer] != BigUint::ZERO {
                // The last block's border, frozen where that is cheapest.
                let before = |j: usize| {
                    let state = &s[layer] * product(&x[j + 1..]);
                    state + into(j) + if j == l - 1 { own.clone() } else { BigUint::ZERO }
                };
                let at_query = &s[layer] * product(x);
                delta += (0..l).map(before).fold(at_query, Ord::min);
            }
        }
        reach = &p.n[e] / &k[e] * &p.sigma[e];
    }
    let largest = &size[l - 1];
    let one = BigUint::from(1_u8);
    if (delta << FRACTION) >= reach * log2(largest, &one, false) {
        return Err(Refusal::Final);
    }
    let tokens = te * size.iter().sum::<BigUint>() + t0 + tw;
    let answer_bits = (largest - &one).bits(); // ceil(log2 N) for N >= 1
    Ok(Accepted { tokens, trivial: *b < BigUint::from(answer_bits) })
}
