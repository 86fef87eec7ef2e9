//! Explicit weights, by name: which stacks and sizes each of them fits.
//!
//! A construction answers for a plan and an instance either that it fits or what is lacking. [`super::verdict`] says
//! *solved* exactly where one of them fits. The weights themselves are built elsewhere, by `rung construct`; a test there builds
//! and runs them on a grid of stacks and finds that they fit exactly where this says so. The residual stream and the MLPs may
//! be as wide as the registers need: no bound counts them.
//!
//! What a construction needs is a list of layers, in order: heads of some widths, a state that hands bits on, a state that holds
//! a table. A stack may have more layers, and they do nothing.
//!
//! Pages of constructions for other settings (chain of thought, bidirectional, other tasks) are here too; they fit no plan, because the
//! verdict is about function composition in one causal pass.
//!
//! Adding one: a file with its page on top and a `KIND`, and a line below.

use num_bigint::BigUint;

use super::tables::{TableSizes, ceil_log2};
use crate::page::{ExplainPage, Subject};
use crate::stack::mixer::LARGEST;
use crate::stack::{Capacity, Mixer, Plan};

/// A construction as the registry knows it.
#[derive(Debug)]
pub struct Construction {
    /// The name users see.
    pub name: &'static str,
    /// What is lacking, or nothing.
    pub fits: Fits,
    /// Whether what it needs depends on the bits of addresses and values only, not on the number of entries.
    pub needs_bits_only: bool,
}

type Fits = fn(&Plan, &Capacity, &TableSizes) -> Result<(), String>;

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every construction, the simplest first.
        pub static CONSTRUCTIONS: &[&Construction] = &[$(&$module::KIND),*];
        const SOURCES: &[&str] = &[$(include_str!(concat!(stringify!($module), ".rs"))),*];
    };
}

registry! { u1, u2, u2_prime, s2, s3, s4, s5, u3, u4, u5, u6, parity_recurrence, parity_hybrid }

/// The pages of all constructions.
pub fn pages() -> Vec<ExplainPage> {
    let page = |(kind, &source): (&&Construction, &&'static str)| ExplainPage {
        name: kind.name,
        subject: Subject::Construction,
        source,
    };
    CONSTRUCTIONS.iter().zip(SOURCES).map(page).collect()
}

/// The construction that fits.
///
/// # Errors
/// What each of them lacks.
pub fn find(plan: &Plan, capacity: &Capacity, tables: &TableSizes) -> Result<&'static Construction, Vec<String>> {
    if let Some(mixer) = plan_without_network(plan) {
        return Err(vec![format!("there is no network of `{mixer}`, so no weights either")]);
    }
    let mut lacks = Vec::new();
    for construction in CONSTRUCTIONS {
        match (construction.fits)(plan, capacity, tables) {
            Ok(()) => return Ok(construction),
            Err(lack) if !std::ptr::fn_addr_eq(construction.fits, fits_no_plan as Fits) => {
                lacks.push(format!("{}: {lack}", construction.name));
            }
            Err(_) => {}
        }
    }
    Err(lacks)
}

/// A construction that fits every shape of tables of at most 2^`log2_tokens` tokens.
///
/// What a construction needs of its layers never grows when a table shrinks, so one instance that is at least as large as all of
/// those shapes, number by number, stands for them:
/// - U1, U2 and U2' ask for bits only. In 2^k tokens a value has at most k bits, and an address (n_e beside N_(e-1), whose product
///   is at most 2^k) at most k + 1. The tables m = 2^k, n = (1, .., 1, 3) have values of k bits and addresses of k + 1 or more.
/// - the others also ask for heads or slots, at most 2^k of them: m and every n_e are 2^k.
pub fn solves_all(plan: &Plan, capacity: &Capacity, hops: usize, log2_tokens: u64) -> Option<&'static Construction> {
    let power = BigUint::from(1_u8) << log2_tokens;
    let fits = |construction: &&&Construction, n: Vec<BigUint>| {
        let tables = TableSizes::new(hops, power.clone(), n);
        tables.is_ok_and(|tables| (construction.fits)(plan, capacity, &tables).is_ok())
    };
    if plan_without_network(plan).is_some() {
        return None;
    }
    let narrow = || (1..hops).map(|e| BigUint::from(if e + 1 == hops { 3_u8 } else { 1 })).collect();
    let wide = || vec![power.clone(); hops - 1];
    let by_bits = CONSTRUCTIONS.iter().find(|kind| kind.needs_bits_only && fits(kind, narrow()));
    let small = || CONSTRUCTIONS.iter().find(|kind| fits(kind, wide()));
    by_bits.or_else(|| (LARGEST >> log2_tokens.min(63) > 0).then(small).flatten()).copied()
}

/// A mixer of the plan that has no network.
fn plan_without_network(plan: &Plan) -> Option<&Mixer> {
    plan.layers.iter().flat_map(|layer| layer.mixers.iter()).find(|mixer| !mixer.facts().has_network)
}

/// One layer that a construction needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LayerRequirement {
    /// Attention heads that ask different things: how many, channels of a key, bits of the value.
    Heads(Vec<(u64, u64, u64)>),
    /// A state that hands so many bits from one token to the next.
    Carry(u64),
    /// A state that holds a table of so many slots of so many bits.
    Table(u64, u64),
}

impl LayerRequirement {
    /// Whether known weights of a mixer do this, at its own bits per number, for prompts of fewer than 2^`log2_tokens` tokens.
    fn met_by(&self, mixer: &Mixer, log2_tokens: u64) -> bool {
        let (facts, number) = (mixer.facts(), |option: &str| mixer.number(option).unwrap_or_default());
        if mixer.bits() < facts.precision.bits(log2_tokens) {
            return false;
        }
        match self {
            Self::Heads(heads) => {
                // Values that are wider than a head are spread over several that ask the same.
                let spread =
                    |(count, _, bits): &(u64, u64, u64)| count.saturating_mul(bits.div_ceil(number("value").max(1)));
                let slots = heads.iter().map(spread).fold(0, u64::saturating_add);
                facts.looks_up && slots <= number("kv") && heads.iter().all(|(_, key, _)| *key <= number("key"))
            }
            Self::Carry(bits) => facts.carried_bits >= u128::from(*bits),
            Self::Table(slots, bits) => {
                facts.carried_bits >= u128::from(*bits) && facts.table_slots >= u128::from(*slots)
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Heads(heads) => {
                let (count, key) =
                    (heads.iter().map(|head| head.0).sum::<u64>(), heads.iter().map(|head| head.1).max());
                let bits = heads.iter().map(|head| head.2).max().unwrap_or_default();
                let heads = if count == 1 { "head".to_owned() } else { format!("{count} heads") };
                format!("a full layer with {heads} of keys {} wide and values of {bits} bits", key.unwrap_or_default())
            }
            Self::Carry(bits) => format!("a layer that hands on {bits} bits by weights that are known"),
            Self::Table(slots, bits) => {
                format!("a layer whose state holds {slots} slots of {bits} bits by weights that are known")
            }
        }
    }
}

/// Finds a layer for every need, in order, as early as possible.
fn assign(plan: &Plan, tables: &TableSizes, needs: &[LayerRequirement]) -> Result<(), String> {
    let mut layers = plan.layers.iter();
    let log2_tokens = tables.tokens().bits();
    for (index, need) in needs.iter().enumerate() {
        if !layers.any(|layer| layer.mixers.iter().any(|mixer| need.met_by(mixer, log2_tokens))) {
            return Err(format!(
                "after {index} of {} layers there is no further one for {}",
                needs.len(),
                need.describe()
            ));
        }
    }
    Ok(())
}

/// Bits of i_l, and of z_0 for l = 0. A register has at least one.
fn value_bits(tables: &TableSizes, l: usize) -> u64 {
    tables.value_bits(l).max(1)
}

/// Channels of a key that holds the address of an entry of z_l and a flag.
fn address(tables: &TableSizes, l: usize) -> u64 {
    let outer = if l > 1 { ceil_log2(&tables.n[l - 2]).max(1) } else { 0 };
    1 + outer + value_bits(tables, l - 1)
}

/// The layer in which w looks up z_l.
fn look_up(tables: &TableSizes, l: usize) -> LayerRequirement {
    LayerRequirement::Heads(vec![(1, address(tables, l), value_bits(tables, l))])
}

/// The layers in which w looks up the tables from z_l on.
fn look_ups_from(tables: &TableSizes, l: usize) -> impl Iterator<Item = LayerRequirement> {
    (l..=tables.hops()).map(move |l| look_up(tables, l))
}

/// A table's size where it could be one of heads or slots.
fn small(number: &BigUint) -> Result<u64, String> {
    u64::try_from(number)
        .ok()
        .filter(|number| *number <= LARGEST)
        .ok_or_else(|| format!("a table of {number} entries is too large for it"))
}

/// For constructions of other settings.
fn fits_no_plan(_: &Plan, _: &Capacity, _: &TableSizes) -> Result<(), String> {
    Err("not function composition in one causal pass".to_owned())
}
