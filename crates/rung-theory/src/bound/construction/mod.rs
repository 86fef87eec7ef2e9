//! Explicit weights, by name: which stacks and sizes each of them fits.
//!
//! A construction answers for a plan and an instance either that it fits or what is lacking. [`super::verdict`] says
//! *solved* exactly where one of them fits. Adding one: a file with its page on top and a `KIND`, and a line below.

use super::tables::Tables;
use crate::page::{Page, Subject};
use crate::stack::{Capacity, Plan};

/// A construction as the registry knows it.
#[derive(Debug)]
pub struct Construction {
    /// The name users see.
    pub name: &'static str,
    /// What is lacking, or nothing.
    pub fits: fn(&Plan, &Capacity, &Tables) -> Result<(), String>,
}

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every construction, the simplest first.
        pub static CONSTRUCTIONS: &[&Construction] = &[$(&$module::KIND),*];
        const SOURCES: &[&str] = &[$(include_str!(concat!(stringify!($module), ".rs"))),*];
    };
}

registry! { u1, u2, u2_prime }

/// The pages of all constructions.
pub fn pages() -> Vec<Page> {
    let page = |(kind, &source): (&&Construction, &&'static str)| Page {
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
pub fn find(plan: &Plan, capacity: &Capacity, tables: &Tables) -> Result<&'static Construction, Vec<String>> {
    let mut lacks = Vec::new();
    for construction in CONSTRUCTIONS {
        match (construction.fits)(plan, capacity, tables) {
            Ok(()) => return Ok(construction),
            Err(lack) => lacks.push(format!("{}: {lack}", construction.name)),
        }
    }
    Err(lacks)
}

/// Look-ups need a head as wide as an address and one flag more.
fn heads_fit(plan: &Plan, tables: &Tables) -> Result<(), String> {
    let needed = (0..tables.hops()).map(|e| tables.address_bits(e)).max().unwrap_or_default() + 1;
    let found = plan.narrowest_head().unwrap_or_default();
    if found >= needed { Ok(()) } else { Err(format!("heads are {found} wide, an address and a flag need {needed}")) }
}

/// A layer that can hand `bits` bits from one token to the next by known weights.
fn carrier(plan: &Plan, layers: &[usize], bits: u64) -> Result<(), String> {
    let able = layers
        .iter()
        .flat_map(|&layer| plan.layers[layer].mixers.iter())
        .any(|mixer| mixer.facts().carries >= u128::from(bits) && mixer.state_bits() >= u128::from(bits));
    let lack = || format!("no layer of the block hands on {bits} bits by weights that are known");
    if able { Ok(()) } else { Err(lack()) }
}
