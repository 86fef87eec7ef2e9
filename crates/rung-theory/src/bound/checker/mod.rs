//! The lower bounds on function composition, and their checker: exact integers, no search, no floats.
//!
//! This is the folder to read first: whoever believes it needs to believe nothing else here. It has 663 lines of code in
//! eight files and shares nothing with the search; one file is one theorem, with its conditions in the order of `docs/proof.md`.
//!
//! # Claim
//! If [`check`] accepts a [`Certificate`], then no causal stack with the point's full layers, message bits and block states
//! solves L-step function composition on tables of sizes m, n_1, .., n_{L-1}, whatever its weights.
//!
//! # Conditions
//! Case 1: F = L-1 full layers, bounded-state blocks anywhere. Case 0: F = L full layers and blocks 0 and 1 empty. A token
//! learns at most B = `message_bits` bits about a prefix in a full layer; s_e = `state_bits[e]` bits cross any cut inside
//! block e; mixers and convolutions beside the first full layer carry `parallel_bits`. Attention sums run from left to right in
//! registers, or exactly. Entries, the start value and the query take `tokens_per` tokens each.
//!
//! | theorem | about | its own fields |
//! |---|---|---|
//! | `state` (S) | no full layer, any L | none |
//! | `entropy` (1) | case 1, L = 2 | none |
//! | `product` (2) | both cases, L >= 2 | `x`, `sigma`, `kappa`, `varying` (u), `live` (n'), `freeze` (j + 1) |
//! | `cells` (3) | case 0, L = 2, nothing beside layer 1 | `cell` (r), `group` (nu) |
//! | `cell-lists` (4) | the same | `cell` (r), `group` (nu), `x` (two), `sigma` (one) |
//! | `decomposition` (0) | both cases, any L | `x`, `sigma`, `kappa` |
//!
//! A certificate that names no theorem is one of Theorem 0. With an [`InnerInstance`] the theorem speaks of a task with fewer hops
//! inside the tables: the other tables are constants. Live sets smaller than n (`live`) need tables that list w as the major
//! index ([`Certificate::needs_w_major`]); everything else holds for every order of a table's entries.
//!
//! # Vacuous when
//! B is smaller than the bits of one answer ([`AcceptedPoint::trivial`]): then one message could not even carry the result.
//!
//! # Source
//! The indistinguishable decomposition of Chen, Peng and Wu (2412.02975) and Ye et al. (2602.01763), with explicit
//! constants; Theorems 1 to 4 and their proofs are ours.
//!
//! Logarithms are integers scaled by 2^80, rounded down where they help the claim and up where they hurt it.

mod cell_lists;
mod cells;
mod decomposition;
mod entropy;
mod exact;
mod inequality;
mod product;

use std::cell::RefCell;

use exact::{FRACTION, log2};
pub use inequality::Inequality;
use num_bigint::BigUint;

/// How many full layers a stack has beside the number of hops L: the two cases of the theorems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofCase {
    /// Case 0: F = L full layers, blocks 0 and 1 empty.
    AsManyLayers,
    /// Case 1: F = L-1 full layers, blocks anywhere.
    OneLayerFewer,
}

impl ProofCase {
    /// The case of that number, as certificates write it.
    pub fn new(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::AsManyLayers),
            1 => Some(Self::OneLayerFewer),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        u8::from(self == Self::OneLayerFewer)
    }
}

/// Tokens of a table entry, of the start value z_0 and of the query w.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokensPer {
    /// te.
    pub entry: BigUint,
    /// t0.
    pub start: BigUint,
    /// tw.
    pub query: BigUint,
}

impl TokensPer {
    /// From the three counts, in this order.
    pub fn new([entry, start, query]: [u64; 3]) -> Self {
        Self { entry: entry.into(), start: start.into(), query: query.into() }
    }

    /// The three counts, in this order.
    pub fn to_array(&self) -> [&BigUint; 3] {
        [&self.entry, &self.start, &self.query]
    }
}

/// One token each.
impl Default for TokensPer {
    fn default() -> Self {
        Self::new([1; 3])
    }
}

/// A proposed proof: the instance, and the theorem with the sizes with which its argument is to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Full layers beside hops.
    pub case: ProofCase,
    /// L.
    pub hops: usize,
    /// B.
    pub message_bits: BigUint,
    /// s_0 .. s_F.
    pub state_bits: Vec<BigUint>,
    /// Bits of mixers and convolutions beside the first full layer, where they are not counted in the states.
    pub parallel_bits: BigUint,
    /// m = N_0.
    pub m: BigUint,
    /// n_1 .. n_{L-1}.
    pub n: Vec<BigUint>,
    /// Tokens of an entry, of z_0 and of w.
    pub tokens_per: TokensPer,
    /// Which theorem, with its parameters.
    pub theorem: Theorem,
    /// The part of the tables that the theorem speaks of, where that is not all of them.
    pub embedding: Option<InnerInstance>,
}

/// A theorem of `docs/proof.md` and the numbers that it leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Theorem {
    /// Theorem S: a state smaller than a table.
    State,
    /// Theorem 1.
    Entropy,
    /// Theorem 2.
    Product(TableLists, FrozenBorders),
    /// Theorem 3.
    Cells(Cells),
    /// Theorem 4.
    CellLists {
        /// r and nu.
        cells: Cells,
        /// Lengths of the lists Z_0 and Z_1.
        x: [BigUint; 2],
        /// Distinct (cell, value) pairs kept after the draw.
        sigma: BigUint,
    },
    /// Theorem 0.
    Decomposition(TableLists),
}

/// The lists of indistinguishable tables of Theorems 0 and 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLists {
    /// Lengths of the lists Z_0 .. Z_{L-1}.
    pub x: Vec<BigUint>,
    /// Distinct (class, value) pairs kept after each draw.
    pub sigma: Vec<BigUint>,
    /// Numbers of classes k_0 .. k_{L-2} of the sparse pairs.
    pub kappa: Vec<BigUint>,
}

/// How Theorems 3 and 4 divide z_1 and w.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// r: values that an entry of z_1 ranges over.
    pub cell: BigUint,
    /// nu: values of w whose fibres are taken together.
    pub group: BigUint,
}

/// What Theorem 2 leaves constant, and where it freezes borders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenBorders {
    /// u: the last entries of z_1, which vary.
    pub varying: BigUint,
    /// n'_1 .. n'_{L-1}: the last values of w_e for which entries of z_{e+1} vary.
    pub live: Vec<BigUint>,
    /// j_0 + 1 .. j_{L-2} + 1: how many of the players 0, 1, .. stand behind the border of step e; 0 is just before w.
    pub freeze: Vec<usize>,
}

/// A task of fewer hops inside the tables. The first `middle` tables z_1, z_2, .. are the identity (their n are 1) and count as
/// tokens of z_0; the next `hops` tables are the task; the rest hand their i on and stand in front as constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerInstance {
    /// L' < L.
    pub hops: usize,
    /// d.
    pub middle: usize,
}

/// What an accepted point says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedPoint {
    /// Tokens of the instance.
    pub tokens: BigUint,
    /// One message cannot even carry an answer: the claim is true, and trivial.
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
    /// Conditions (i), (ii) and (iii) of Theorem 1 all fail.
    #[error("refused: none of the conditions (i), (ii), (iii) of theorem `entropy` holds")]
    Entropy,
    /// The inequality of Theorem 3 fails.
    #[error("refused: (m - r theta nu / (n_1 (r V' - C))) log(r V' / C) is not above B tw nu (theorem `cells`)")]
    Cells,
    /// The state can hold the last table.
    #[error("refused: s_0 is not below N_(L-1) * log N_(L-1) (theorem `state`)")]
    State,
}

/// The largest L that is checked.
pub const MAX_HOPS: usize = 64;

fn malformed<T>(what: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Malformed(what.into()))
}

pub(super) fn product<'a>(factors: impl IntoIterator<Item = &'a BigUint>) -> BigUint {
    factors.into_iter().fold(BigUint::from(1_u8), |product, factor| product * factor)
}

fn sum(terms: impl Iterator<Item = BigUint>) -> BigUint {
    terms.fold(BigUint::ZERO, |sum, term| sum + term)
}

/// N_0 .. N_{L-1}.
fn sizes(m: &BigUint, n: &[BigUint]) -> Vec<BigUint> {
    let mut size = vec![m.clone()];
    for n in n {
        size.push(size[size.len() - 1].clone() * n);
    }
    size
}

/// The instance that a theorem speaks of.
struct Instance<'a> {
    case: ProofCase,
    hops: usize,
    b: &'a BigUint,
    s: &'a [BigUint],
    parallel_bits: &'a BigUint,
    m: &'a BigUint,
    n: &'a [BigUint],
    /// N_0 .. N_{L-1}.
    size: Vec<BigUint>,
    tokens_per: TokensPer,
    /// Where comparisons are noted, if anybody wants to see them.
    notes: Option<&'a RefCell<Vec<Inequality>>>,
}

impl<'a> Instance<'a> {
    /// The point's instance or, with an embedding, the smaller one inside it.
    fn of(p: &'a Certificate, notes: Option<&'a RefCell<Vec<Inequality>>>) -> Result<Self, Refusal> {
        let (hops, middle) = match p.embedding {
            Some(InnerInstance { hops, middle }) if hops >= 1 && hops < p.hops && middle <= p.hops - hops => {
                (hops, middle)
            }
            Some(_) => return malformed("embedding must have fewer hops than the task, and room for its tables"),
            None => (p.hops, 0),
        };
        let one = BigUint::from(1_u8);
        if p.n[..middle].iter().any(|n| *n != one) {
            return malformed("embedding: the identity tables in the middle need n = 1");
        }
        let n = &p.n[middle..middle + hops - 1];
        let [te, t0, tw] = p.tokens_per.to_array();
        Ok(Self {
            case: p.case,
            hops,
            b: &p.message_bits,
            s: &p.state_bits,
            parallel_bits: &p.parallel_bits,
            m: &p.m,
            n,
            size: sizes(&p.m, n),
            tokens_per: TokensPer { entry: te.clone(), start: t0 + te * middle * &p.m, query: tw.clone() },
            notes,
        })
    }

    /// The last inequality of Theorems 0 and 2: lost bits < D_L log N_{L-1}.
    fn compare_with_answers(&self, lost: &BigUint, reach: &BigUint) -> Result<(), Refusal> {
        let answer = log2(&self.size[self.hops - 1], &BigUint::from(1_u8), false);
        let (lost, reach) = (lost << FRACTION, reach * answer);
        let holds = self.note(["Delta", "<", "D_L log N_(L-1)"], lost < reach, || (Some(lost.clone()), reach.clone()));
        if holds { Ok(()) } else { Err(Refusal::Final) }
    }
}

impl TableLists {
    /// Lists of the right lengths, sizes at least 1, x_0 <= u, and the divisibilities of the sparse pairs.
    fn well_formed(&self, p: &Instance<'_>, n: &[BigUint], u: &BigUint) -> Result<(), Refusal> {
        let (l, x, k) = (p.hops, &self.x, &self.kappa);
        for (name, found, expected) in
            [("x", x.len(), l), ("sigma", self.sigma.len(), l - 1), ("kappa", k.len(), l - 1)]
        {
            if found != expected {
                return malformed(format!("{name} has {found} entries, expected {expected}"));
            }
        }
        if x.iter().chain(k).any(|size| *size == BigUint::ZERO) {
            return malformed("x and kappa must be at least 1");
        }
        if x[0] > *u || (l == 1 && x[0] != *u) {
            return malformed(if l == 1 { "x[0] must equal m" } else { "x[0] exceeds m or varying" });
        }
        for e in 0..l - 1 {
            if e == 0 && &x[0] % &k[0] != BigUint::ZERO {
                return malformed("kappa[0] does not divide x[0]");
            }
            let classes = if e + 1 < l - 1 { &k[e] * &k[e + 1] } else { k[e].clone() };
            if &n[e] % &classes != BigUint::ZERO {
                return malformed(format!("the classes on both sides ({classes}) do not divide n[{e}] or live[{e}]"));
            }
        }
        Ok(())
    }
}

/// Lists of the right lengths, sizes at least 1, and empty blocks in case 0.
fn well_formed(p: &Certificate) -> Result<(), Refusal> {
    if !(1..=MAX_HOPS).contains(&p.hops) {
        return malformed(format!("hops is {}, expected 1 to {MAX_HOPS}", p.hops));
    }
    let hops = p.embedding.map_or(p.hops, |inner| inner.hops);
    let blocks = match (&p.theorem, p.case) {
        (Theorem::State, _) => 1,
        (_, ProofCase::OneLayerFewer) => hops,
        (_, ProofCase::AsManyLayers) => hops + 1,
    };
    for (name, found, expected) in [("state_bits", p.state_bits.len(), blocks), ("n", p.n.len(), p.hops - 1)] {
        if found != expected {
            return malformed(format!("{name} has {found} entries, expected {expected}"));
        }
    }
    let sizes = [&p.message_bits, &p.m].into_iter().chain(&p.n).chain(p.tokens_per.to_array());
    if sizes.into_iter().any(|size| *size == BigUint::ZERO) {
        return malformed("message_bits, m, n and tokens_per must be at least 1");
    }
    if p.case == ProofCase::AsManyLayers && p.state_bits.iter().take(2).any(|bits| *bits != BigUint::ZERO) {
        return malformed("case 0 needs state_bits[0] = state_bits[1] = 0");
    }
    Ok(())
}

/// Theorem S (no full layer, any L): the state must hold z_L.
fn check_state(p: &Instance<'_>) -> Result<(), Refusal> {
    if p.case != ProofCase::OneLayerFewer || *p.parallel_bits != BigUint::ZERO {
        return malformed("theorem `state` is about case 1, without anything beside");
    }
    let largest = &p.size[p.hops - 1];
    let table = largest * log2(largest, &BigUint::from(1_u8), false);
    let state = &p.s[0] << FRACTION;
    let holds = p.note(["s_0", "<", "N_(L-1) log N_(L-1)"], state < table, || (Some(state.clone()), table.clone()));
    if holds { Ok(()) } else { Err(Refusal::State) }
}

/// Checks a point.
///
/// # Errors
/// What is malformed, or the first inequality that fails.
pub fn check(p: &Certificate) -> Result<AcceptedPoint, Refusal> {
    compare(p, None)
}

/// The inequalities that [`check`] compares, with their numbers, up to the first that decides; none of a malformed point.
pub fn inequalities(p: &Certificate) -> Vec<Inequality> {
    let notes = RefCell::default();
    let _: Result<AcceptedPoint, Refusal> = compare(p, Some(&notes));
    notes.into_inner()
}

fn compare(p: &Certificate, notes: Option<&RefCell<Vec<Inequality>>>) -> Result<AcceptedPoint, Refusal> {
    well_formed(p)?;
    let instance = Instance::of(p, notes)?;
    match &p.theorem {
        Theorem::State => check_state(&instance)?,
        Theorem::Entropy => entropy::check(&instance)?,
        Theorem::Product(lists, lazy) => product::check(&instance, lists, lazy)?,
        Theorem::Cells(cells) => cells::check(&instance, cells)?,
        Theorem::CellLists { cells, x: [x0, x1], sigma } => cell_lists::check(&instance, cells, [x0, x1], sigma)?,
        Theorem::Decomposition(lists) => decomposition::check(&instance, lists)?,
    }
    let [te, t0, tw] = p.tokens_per.to_array();
    let tokens = te * sizes(&p.m, &p.n).iter().sum::<BigUint>() + t0 + tw;
    let answer_bits = (&instance.size[instance.hops - 1] - 1_u8).bits(); // ceil(log2 N) for N >= 1
    let trivial = p.theorem != Theorem::State && p.message_bits < BigUint::from(answer_bits);
    Ok(AcceptedPoint { tokens, trivial })
}

impl Certificate {
    /// Whether the proof needs tables that list w as the major index.
    pub fn needs_w_major(&self) -> bool {
        let range = self.embedding.map_or(0..self.n.len(), |inner| inner.middle..inner.middle + inner.hops.max(1) - 1);
        matches!(&self.theorem, Theorem::Product(_, lazy) if self.n.get(range) != Some(&lazy.live[..]))
    }
}

impl Theorem {
    /// The name that certificates use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Entropy => "entropy",
            Self::Product(..) => "product",
            Self::Cells(_) => "cells",
            Self::CellLists { .. } => "cell-lists",
            Self::Decomposition(_) => "decomposition",
        }
    }
}
