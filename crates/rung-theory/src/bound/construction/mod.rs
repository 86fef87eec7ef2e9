//! Explicit weights, by name: which stacks and sizes each of them fits.
//!
//! For a plan and an instance, a construction either fits or says what is missing. [`super::verdict`] says *solved* exactly if
//! one of them fits. The weights themselves are built by `rung construct`; a test there builds and runs them on a grid of stacks
//! and compares the result with the answers of this module. The residual stream and the MLPs may be as wide as the construction
//! needs: no bound counts them.
//!
//! A construction requires a list of layers, in order: heads of given widths, a state that forwards bits, a state that holds
//! a table. A stack may have more layers; the weights of those are zero.
//!
//! Constructions for other settings (chain of thought, bidirectional, other tasks) have their pages here too; they fit no plan, because
//! the verdict is about function composition in one causal pass.
//!
//! To add one: write a file with its page on top and a `CONSTRUCTION`, and add it to `registry!`.

use num_bigint::BigUint;

use super::tables::{TableSizes, ceil_log2};
use crate::page::{ExplainPage, Subject};
use crate::stack::mixer::MAX_SIZE;
use crate::stack::{Capacity, Mixer, Plan};

/// A construction as the registry knows it.
#[derive(Debug)]
pub struct Construction {
    /// The name users see.
    pub name: &'static str,
    /// Whether it fits a plan and an instance; the error says what is missing.
    pub fits: FitCheck,
    /// Whether its requirements depend only on the bits of addresses and values, not on the number of entries.
    pub needs_bits_only: bool,
}

type FitCheck = fn(&Plan, &Capacity, &TableSizes) -> Result<(), String>;

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every construction, the simplest first.
        pub static CONSTRUCTIONS: &[&Construction] = &[$(&$module::CONSTRUCTION),*];
        const SOURCES: &[&str] = &[$(include_str!(concat!(stringify!($module), ".rs"))),*];
    };
}

registry! { u1, u2, u2_prime, s2, s3, s4, s5, u3, u4, u5, u6, parity_recurrence, parity_hybrid }

/// The pages of all constructions.
pub fn pages() -> Vec<ExplainPage> {
    let page = |(construction, &source): (&&Construction, &&'static str)| ExplainPage {
        name: construction.name,
        subject: Subject::Construction,
        source,
    };
    CONSTRUCTIONS.iter().zip(SOURCES).map(page).collect()
}

/// The first construction that fits.
///
/// # Errors
/// For each construction, what is missing.
pub fn find(plan: &Plan, capacity: &Capacity, tables: &TableSizes) -> Result<&'static Construction, Vec<String>> {
    if let Some(mixer) = unimplemented_mixer(plan) {
        return Err(vec![format!("`{mixer}` is not implemented, so no weights are known")]);
    }
    let mut missing = Vec::new();
    for construction in CONSTRUCTIONS {
        match (construction.fits)(plan, capacity, tables) {
            Ok(()) => return Ok(construction),
            Err(reason) if !std::ptr::fn_addr_eq(construction.fits, fits_no_plan as FitCheck) => {
                missing.push(format!("{}: {reason}", construction.name));
            }
            Err(_) => {}
        }
    }
    Err(missing)
}

/// A construction that fits every shape of tables of at most 2^`log2_tokens` tokens.
///
/// The requirements of a construction never grow when a table shrinks, so it is enough to test one instance that is at least as
/// large as all of those shapes in every size:
/// - U1, U2 and U2' require bits only. In 2^k tokens a value has at most k bits, and an address (of n_e times N_(e-1) values, whose product
///   is at most 2^k) at most k + 1. The tables m = 2^k, n = (1, .., 1, 3) have values of k bits and addresses of k + 1 or more.
/// - the others also require heads or rows, at most 2^k of them: m and every n_e are 2^k.
pub fn solves_all(plan: &Plan, capacity: &Capacity, hops: usize, log2_tokens: u64) -> Option<&'static Construction> {
    let power = BigUint::from(1_u8) << log2_tokens;
    let fits = |construction: &&&Construction, n: Vec<BigUint>| {
        let tables = TableSizes::new(hops, power.clone(), n);
        tables.is_ok_and(|tables| (construction.fits)(plan, capacity, &tables).is_ok())
    };
    if unimplemented_mixer(plan).is_some() {
        return None;
    }
    let narrow_tables = || (1..hops).map(|e| BigUint::from(if e + 1 == hops { 3_u8 } else { 1 })).collect();
    let large_tables = || vec![power.clone(); hops - 1];
    let by_bits =
        CONSTRUCTIONS.iter().find(|construction| construction.needs_bits_only && fits(construction, narrow_tables()));
    let by_size = || CONSTRUCTIONS.iter().find(|construction| fits(construction, large_tables()));
    by_bits.or_else(|| (MAX_SIZE >> log2_tokens.min(63) > 0).then(by_size).flatten()).copied()
}

/// A mixer of the plan that is not implemented.
fn unimplemented_mixer(plan: &Plan) -> Option<&Mixer> {
    plan.layers.iter().flat_map(|layer| layer.mixers.iter()).find(|mixer| !mixer.facts().is_implemented)
}

/// Attention heads of one layer that look up the same table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeadGroup {
    /// Heads with different queries.
    count: u64,
    /// Channels of a key.
    key_width: u64,
    /// Bits of the value that each head reads.
    value_bits: u64,
}

impl HeadGroup {
    /// The one head that reads the start value z_0: its key is only the flag of z_0.
    fn start(tables: &TableSizes) -> Self {
        Self { count: 1, key_width: 1, value_bits: value_bits(tables, 0) }
    }

    /// `count` heads that each look up one entry of z_l.
    fn table(tables: &TableSizes, l: usize, count: u64) -> Self {
        Self { count, key_width: key_width(tables, l), value_bits: value_bits(tables, l) }
    }
}

/// One layer that a construction needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LayerRequirement {
    /// Attention heads.
    Heads(Vec<HeadGroup>),
    /// A state that forwards this many bits from one token to the next.
    Forward(u64),
    /// A state that holds a table.
    Table {
        /// Entries that the state can hold.
        rows: u64,
        /// Bits of each entry.
        bits: u64,
    },
}

impl LayerRequirement {
    /// Whether known weights of this mixer meet the requirement at the mixer's precision, for prompts of fewer than 2^`log2_tokens` tokens.
    fn is_met_by(&self, mixer: &Mixer, log2_tokens: u64) -> bool {
        let (facts, number) = (mixer.facts(), |option: &str| mixer.number(option).unwrap_or_default());
        if mixer.bits() < facts.precision.bits(log2_tokens) {
            return false;
        }
        match self {
            Self::Heads(heads) => {
                // A value that is wider than one head is read by several heads with the same query.
                let head_count =
                    |group: &HeadGroup| group.count.saturating_mul(group.value_bits.div_ceil(number("value").max(1)));
                let total = heads.iter().map(head_count).fold(0, u64::saturating_add);
                facts.looks_up && total <= number("kv") && heads.iter().all(|group| group.key_width <= number("key"))
            }
            Self::Forward(bits) => facts.forwarded_bits >= u128::from(*bits),
            Self::Table { rows, bits } => {
                facts.forwarded_bits >= u128::from(*bits) && facts.table_rows >= u128::from(*rows)
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Heads(heads) => {
                let count: u64 = heads.iter().map(|group| group.count).sum();
                let key = heads.iter().map(|group| group.key_width).max();
                let bits = heads.iter().map(|group| group.value_bits).max().unwrap_or_default();
                let heads = if count == 1 { "head".to_owned() } else { format!("{count} heads") };
                format!("a full layer with {heads} of keys {} wide and values of {bits} bits", key.unwrap_or_default())
            }
            Self::Forward(bits) => format!("a layer that forwards {bits} bits by known weights"),
            Self::Table { rows, bits } => {
                format!("a layer whose state holds {rows} rows of {bits} bits by known weights")
            }
        }
    }
}

/// Whether the plan has a layer for every requirement, in order; the error names the first requirement without a layer.
fn check_requirements(plan: &Plan, tables: &TableSizes, requirements: &[LayerRequirement]) -> Result<(), String> {
    let mut layers = plan.layers.iter();
    let log2_tokens = tables.tokens().bits();
    for (index, requirement) in requirements.iter().enumerate() {
        if !layers.any(|layer| layer.mixers.iter().any(|mixer| requirement.is_met_by(mixer, log2_tokens))) {
            return Err(format!(
                "{index} of {} layers are found; missing is {}",
                requirements.len(),
                requirement.describe()
            ));
        }
    }
    Ok(())
}

/// Bits of i_l, and of z_0 for l = 0; at least 1.
fn value_bits(tables: &TableSizes, l: usize) -> u64 {
    tables.value_bits(l).max(1)
}

/// Channels of a key that holds the address of an entry of z_l and a flag.
fn key_width(tables: &TableSizes, l: usize) -> u64 {
    let query_bits = if l > 1 { ceil_log2(&tables.n[l - 2]).max(1) } else { 0 };
    1 + query_bits + value_bits(tables, l - 1)
}

/// The layer in which w looks up z_l.
fn look_up(tables: &TableSizes, l: usize) -> LayerRequirement {
    LayerRequirement::Heads(vec![HeadGroup::table(tables, l, 1)])
}

/// The layers in which w looks up the tables from z_l on.
fn look_ups_from(tables: &TableSizes, l: usize) -> impl Iterator<Item = LayerRequirement> {
    (l..=tables.hops()).map(move |l| look_up(tables, l))
}

/// The entries of a table as a number of heads or rows.
///
/// # Errors
/// More than any mixer can have.
fn entry_count(number: &BigUint) -> Result<u64, String> {
    u64::try_from(number)
        .ok()
        .filter(|number| *number <= MAX_SIZE)
        .ok_or_else(|| format!("a table of {number} entries is too large for it"))
}

/// The `fits` of constructions for other settings.
fn fits_no_plan(_: &Plan, _: &Capacity, _: &TableSizes) -> Result<(), String> {
    Err("not function composition in one causal pass".to_owned())
}
