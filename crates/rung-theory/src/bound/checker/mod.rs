//! The lower bounds on function composition, and their checker: exact integers, no search, no floats.
//!
//! Read this folder first: it is all that has to be trusted. It has 724 lines of code in
//! eight files and shares nothing with the search; one file is one theorem, with its conditions in the order of `docs/proof.md`.
//!
//! # Claim
//! If [`check`] accepts a [`Certificate`], then no causal stack with the certificate's full layers, message bits and block states
//! solves L-step function composition on tables of sizes m, n_1, .., n_{L-1}, for any weights.
//!
//! # Conditions
//! Case 1: F = L-1 full layers, bounded-state blocks anywhere. Case 0: F = L full layers and blocks 0 and 1 empty. A token
//! receives at most B = `message_bits` bits about a prefix in one full layer; s_e = `state_bits[e]` bits are passed across any cut inside
//! block e; mixers and convolutions in parallel with the first full layer pass on S_1 = `fixed_bits`. Attention sums run from left to right in
//! registers, or exactly. Entries, the start value and the query take `token_counts` tokens.
//!
//! | theorem | case and hops | extra fields |
//! |---|---|---|
//! | `state` (S) | no full layer, any L | none |
//! | `entropy` (1) | case 1, L = 2 | none |
//! | `product` (2) | both cases, L >= 2 | `x`, `sigma`, `kappa`, `varying` (u), `live` (n'), `freeze` (j + 1) |
//! | `cells` (3) | case 0, L = 2, no mixer in parallel with layer 1 | `cell` (r), `group` (nu) |
//! | `cell-lists` (4) | the same | `cell` (r), `group` (nu), `x` (two), `sigma` (one) |
//! | `decomposition` (0) | both cases, any L | `x`, `sigma`, `kappa` |
//!
//! A certificate that names no theorem is one of Theorem 0. With an [`InnerInstance`] the theorem is applied to a task with fewer hops
//! inside the tables: the other tables are constant. Live sets smaller than n (`live`) need tables that list w as the major
//! index ([`Certificate::needs_w_major`]); everything else holds for every order of a table's entries.
//!
//! # Vacuous when
//! B is smaller than the bits of one answer ([`AcceptedClaim::trivial`]): then one message cannot hold the result.
//!
//! # Source
//! The indistinguishable decomposition of Chen, Peng and Wu (2412.02975) and Ye et al. (2602.01763), with explicit
//! constants; Theorems 1 to 4 and their proofs are ours.
//!
//! Logarithms are integers scaled by 2^80, rounded so that an error can only reject a true certificate, never accept a false one.

mod cell_lists;
mod cells;
mod decomposition;
mod entropy;
mod exact;
mod inequality;
mod product;

use std::cell::RefCell;

use exact::{FRACTION_BITS, log2_rounded_down};
pub use inequality::Inequality;
use num_bigint::BigUint;

/// The two cases of the theorems: how the number F of full layers compares with the number L of hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofCase {
    /// Case 0: F = L full layers, blocks 0 and 1 empty.
    AsManyLayers,
    /// Case 1: F = L-1 full layers, blocks anywhere.
    OneLayerFewer,
}

impl ProofCase {
    /// The case with this number, as in the field `case` of a certificate.
    pub fn new(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::AsManyLayers),
            1 => Some(Self::OneLayerFewer),
            _ => None,
        }
    }

    /// 0 or 1, as in the field `case` of a certificate.
    pub fn number(self) -> u8 {
        u8::from(self == Self::OneLayerFewer)
    }
}

/// How many tokens a table entry, the start value z_0 and the query w take in the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenCounts {
    /// te: tokens of a table entry.
    pub entry: BigUint,
    /// t0: tokens of the start value.
    pub start: BigUint,
    /// tw: tokens of the query.
    pub query: BigUint,
}

impl TokenCounts {
    /// From the counts of an entry, the start value and the query.
    pub fn new([entry, start, query]: [u64; 3]) -> Self {
        Self { entry: entry.into(), start: start.into(), query: query.into() }
    }

    /// The counts of an entry, the start value and the query.
    pub fn to_array(&self) -> [&BigUint; 3] {
        [&self.entry, &self.start, &self.query]
    }
}

/// One token for each of the three.
impl Default for TokenCounts {
    fn default() -> Self {
        Self::new([1; 3])
    }
}

/// A proposed proof: the instance, and the theorem with the parameters for which its inequalities should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// How many full layers there are, relative to the hops.
    pub case: ProofCase,
    /// L: look-ups in a row.
    pub hops: usize,
    /// B: bits that one token receives about a prefix in one full layer.
    pub message_bits: BigUint,
    /// s_0 .. s_F: state bits of the blocks before, between and after the full layers.
    pub state_bits: Vec<BigUint>,
    /// S_1: bits that the proof fixes once, at its start, and that `state_bits` does not include: those of mixers and convolutions in
    /// parallel with the first full layer and, in case 0, of caches that keep only the first tokens. The field `beside_bits` of a certificate file.
    pub fixed_bits: BigUint,
    /// m = N_0: entries of the first table.
    pub m: BigUint,
    /// n_1 .. n_{L-1}: values of each component of the query w.
    pub n: Vec<BigUint>,
    /// How many tokens an entry, z_0 and w take in the prompt; the field `tokens_per` of a certificate file.
    pub token_counts: TokenCounts,
    /// The theorem, with its parameters.
    pub theorem: Theorem,
    /// The tables that the theorem is applied to, if those are not all; the field `embedding` of a certificate file.
    pub inner_instance: Option<InnerInstance>,
}

/// A theorem of `docs/proof.md` and its free parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Theorem {
    /// Theorem S: the state is smaller than a table.
    State,
    /// Theorem 1: counts the entropy of the last table; it has no free parameter.
    Entropy,
    /// Theorem 2: lists of indistinguishable tables, with a product part and a joint part.
    Product(TableLists, FrozenBorders),
    /// Theorem 3: values of z_1 restricted to cells.
    Cells(Cells),
    /// Theorem 4: lists of tables inside the cells.
    CellLists {
        /// Sizes of the cells and groups, r and nu.
        cells: Cells,
        /// Lengths of the lists Z_0 and Z_1.
        x: [BigUint; 2],
        /// Distinct (cell, value) pairs that remain after the draw.
        sigma: BigUint,
    },
    /// Theorem 0: the indistinguishable decomposition.
    Decomposition(TableLists),
}

/// The lists of indistinguishable tables of Theorems 0 and 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLists {
    /// Lengths of the lists Z_0 .. Z_{L-1}.
    pub x: Vec<BigUint>,
    /// Distinct (class, value) pairs that remain after each draw.
    pub sigma: Vec<BigUint>,
    /// Numbers of classes k_0 .. k_{L-2} of the sparse pairs.
    pub kappa: Vec<BigUint>,
}

/// How Theorems 3 and 4 divide z_1 and w.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// r: values that an entry of z_1 ranges over.
    pub cell: BigUint,
    /// nu: values of w that are counted as one group.
    pub group: BigUint,
}

/// The entries that Theorem 2 keeps constant, and the positions at which it fixes (freezes) block states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenBorders {
    /// u: how many entries of z_1 vary; they are the last ones.
    pub varying: BigUint,
    /// n'_1 .. n'_{L-1}: for how many values of w_e, the last ones, entries of z_{e+1} vary.
    pub live: Vec<BigUint>,
    /// j_0 + 1 .. j_{L-2} + 1: how many of the players 0, 1, .. come after the border that step e freezes; 0 is a border right before w.
    pub freeze: Vec<usize>,
}

/// A task of fewer hops inside the tables. The first `middle` tables z_1, z_2, .. are the identity (their n are 1) and count as
/// tokens of z_0; the next `hops` tables are the task; the remaining tables return their i unchanged and come first in the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerInstance {
    /// L' < L: hops of the inner task.
    pub hops: usize,
    /// d: identity tables between z_0 and the inner task.
    pub middle: usize,
}

/// What an accepted certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedClaim {
    /// Tokens of a prompt of this instance.
    pub tokens: BigUint,
    /// One message has fewer bits than an answer, so the claim is true but trivial.
    pub trivial: bool,
}

/// Why a certificate is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A list has the wrong length, a size is zero, or a divisibility fails.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The draw of list Z_j, j being `step`, may fail to have sigma_j distinct values in a large enough slice.
    #[error("refused: the draw of Z_{step} need not reach sigma_{step} pairs (tail inequality {step})")]
    Tail {
        /// The index of the draw, from 1.
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

/// Certificates with more hops than this are rejected.
pub const MAX_HOPS: usize = 64;

fn malformed<T>(reason: impl Into<String>) -> Result<T, Rejection> {
    Err(Rejection::Malformed(reason.into()))
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

/// The instance that a theorem is applied to, with the letters of `docs/proof.md`.
struct Instance<'a> {
    case: ProofCase,
    hops: usize,
    /// B: message bits.
    b: &'a BigUint,
    /// s_0 .. s_F: state bits of the blocks.
    s: &'a [BigUint],
    /// S_1.
    fixed_bits: &'a BigUint,
    m: &'a BigUint,
    n: &'a [BigUint],
    /// N_0 .. N_{L-1}.
    size: Vec<BigUint>,
    token_counts: TokenCounts,
    /// Where compared inequalities are recorded, if the caller asked for them.
    inequalities: Option<&'a RefCell<Vec<Inequality>>>,
}

impl<'a> Instance<'a> {
    /// The certificate's instance or, with an embedding, the smaller one inside it.
    fn new(
        certificate: &'a Certificate,
        inequalities: Option<&'a RefCell<Vec<Inequality>>>,
    ) -> Result<Self, Rejection> {
        let (hops, middle) = match certificate.inner_instance {
            Some(InnerInstance { hops, middle })
                if hops >= 1 && hops < certificate.hops && middle <= certificate.hops - hops =>
            {
                (hops, middle)
            }
            Some(_) => return malformed("embedding must have fewer hops than the task, and room for its tables"),
            None => (certificate.hops, 0),
        };
        let one = BigUint::from(1_u8);
        if certificate.n[..middle].iter().any(|n| *n != one) {
            return malformed("embedding: the identity tables in the middle need n = 1");
        }
        let n = &certificate.n[middle..middle + hops - 1];
        let [te, t0, tw] = certificate.token_counts.to_array();
        Ok(Self {
            case: certificate.case,
            hops,
            b: &certificate.message_bits,
            s: &certificate.state_bits,
            fixed_bits: &certificate.fixed_bits,
            m: &certificate.m,
            n,
            size: sizes(&certificate.m, n),
            token_counts: TokenCounts {
                entry: te.clone(),
                start: t0 + te * middle * &certificate.m,
                query: tw.clone(),
            },
            inequalities,
        })
    }

    /// The final inequality of Theorems 0, 2 and 4: Delta < D_L log N_{L-1}.
    fn check_final(&self, delta: &BigUint, reachable: &BigUint) -> Result<(), Rejection> {
        let answer = log2_rounded_down(&self.size[self.hops - 1], &BigUint::from(1_u8));
        let (delta, answers) = (delta << FRACTION_BITS, reachable * answer);
        let holds =
            self.record(["Delta", "<", "D_L log N_(L-1)"], delta < answers, || (Some(delta.clone()), answers.clone()));
        if holds { Ok(()) } else { Err(Rejection::Final) }
    }
}

impl TableLists {
    /// Lists of the right lengths, sizes at least 1, x_0 <= u, and the divisibilities of the sparse pairs.
    fn check_form(&self, instance: &Instance<'_>, n: &[BigUint], u: &BigUint) -> Result<(), Rejection> {
        let (l, x, k) = (instance.hops, &self.x, &self.kappa);
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
fn check_form(certificate: &Certificate) -> Result<(), Rejection> {
    if !(1..=MAX_HOPS).contains(&certificate.hops) {
        return malformed(format!("hops is {}, expected 1 to {MAX_HOPS}", certificate.hops));
    }
    let hops = certificate.inner_instance.map_or(certificate.hops, |inner| inner.hops);
    let blocks = match (&certificate.theorem, certificate.case) {
        (Theorem::State, _) => 1,
        (_, ProofCase::OneLayerFewer) => hops,
        (_, ProofCase::AsManyLayers) => hops + 1,
    };
    for (name, found, expected) in
        [("state_bits", certificate.state_bits.len(), blocks), ("n", certificate.n.len(), certificate.hops - 1)]
    {
        if found != expected {
            return malformed(format!("{name} has {found} entries, expected {expected}"));
        }
    }
    let sizes = [&certificate.message_bits, &certificate.m]
        .into_iter()
        .chain(&certificate.n)
        .chain(certificate.token_counts.to_array());
    if sizes.into_iter().any(|size| *size == BigUint::ZERO) {
        return malformed("message_bits, m, n and tokens_per must be at least 1");
    }
    if certificate.case == ProofCase::AsManyLayers
        && certificate.state_bits.iter().take(2).any(|bits| *bits != BigUint::ZERO)
    {
        return malformed("case 0 needs state_bits[0] = state_bits[1] = 0");
    }
    Ok(())
}

/// Theorem S (no full layer, any L): the state must hold z_L.
fn check_state(instance: &Instance<'_>) -> Result<(), Rejection> {
    if instance.case != ProofCase::OneLayerFewer || *instance.fixed_bits != BigUint::ZERO {
        return malformed("theorem `state` is about case 1, without parallel mixers");
    }
    let largest = &instance.size[instance.hops - 1];
    let table = largest * log2_rounded_down(largest, &BigUint::from(1_u8));
    let state = &instance.s[0] << FRACTION_BITS;
    let holds =
        instance.record(["s_0", "<", "N_(L-1) log N_(L-1)"], state < table, || (Some(state.clone()), table.clone()));
    if holds { Ok(()) } else { Err(Rejection::State) }
}

/// Checks a certificate.
///
/// # Errors
/// What is malformed, or the first inequality that fails.
pub fn check(certificate: &Certificate) -> Result<AcceptedClaim, Rejection> {
    check_and_record(certificate, None)
}

/// The inequalities that [`check`] compares, with their numbers, up to the first that decides; empty for a malformed certificate.
pub fn inequalities(certificate: &Certificate) -> Vec<Inequality> {
    let recorded = RefCell::default();
    let _: Result<AcceptedClaim, Rejection> = check_and_record(certificate, Some(&recorded));
    recorded.into_inner()
}

fn check_and_record(
    certificate: &Certificate,
    recorded: Option<&RefCell<Vec<Inequality>>>,
) -> Result<AcceptedClaim, Rejection> {
    check_form(certificate)?;
    let instance = Instance::new(certificate, recorded)?;
    match &certificate.theorem {
        Theorem::State => check_state(&instance)?,
        Theorem::Entropy => entropy::check(&instance)?,
        Theorem::Product(lists, borders) => product::check(&instance, lists, borders)?,
        Theorem::Cells(cells) => cells::check(&instance, cells)?,
        Theorem::CellLists { cells, x: [x0, x1], sigma } => cell_lists::check(&instance, cells, [x0, x1], sigma)?,
        Theorem::Decomposition(lists) => decomposition::check(&instance, lists)?,
    }
    let [te, t0, tw] = certificate.token_counts.to_array();
    let tokens = te * sizes(&certificate.m, &certificate.n).iter().sum::<BigUint>() + t0 + tw;
    let answer_bits = (&instance.size[instance.hops - 1] - 1_u8).bits(); // ceil(log2 N) for N >= 1
    let trivial = certificate.theorem != Theorem::State && certificate.message_bits < BigUint::from(answer_bits);
    Ok(AcceptedClaim { tokens, trivial })
}

impl Certificate {
    /// Whether the proof needs tables that list w as the major index.
    pub fn needs_w_major(&self) -> bool {
        let range =
            self.inner_instance.map_or(0..self.n.len(), |inner| inner.middle..inner.middle + inner.hops.max(1) - 1);
        matches!(&self.theorem, Theorem::Product(_, borders) if self.n.get(range) != Some(&borders.live[..]))
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
