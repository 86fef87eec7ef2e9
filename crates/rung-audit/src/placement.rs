//! Where to place full layers within a budget of cache bytes.
//!
//! All layers of one kind cost the same, so bytes depend only on *how many* layers are full. Rungs depend on that and on
//! whether one of the first two layers is not full (it then passes the start value on, which gives an extra hop). So the
//! answer is the largest number of full layers that fits, and every placement that leaves one of the first two layers
//! out of them. With D layers that have a mixer: F full ones give F rungs if 0 < F < D and that condition holds, and
//! D - 1 rungs if all are full. Where two numbers of full layers give the same rungs, the cheaper one is listed first.
//!
//! There are exponentially many such placements: they are counted, and a few typical ones are listed.

use rung_theory::stack::Layer;

use crate::audit::AuditOptions;
use crate::what_if::{self, Target};
use crate::{Audit, AuditError, AuditLayer, cost};

/// One placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Why it is listed.
    pub why: &'static str,
    /// Layers (from 0, as in the config) that are full.
    pub full: Vec<usize>,
    /// One letter per layer.
    pub letters: String,
}

/// All placements with the same number of full layers.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementGroup {
    /// How many layers are full.
    pub full: usize,
    /// Bytes of cache.
    pub bytes: u64,
    /// Base-10 logarithm of how many placements there are.
    pub log10_count: f64,
    /// Exactly how many, where that fits 128 bits.
    pub count: Option<u128>,
    /// A few of them.
    pub examples: Vec<Placement>,
}

/// Full layers, rungs and cache of the model as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentPlacement {
    /// How many layers are full.
    pub full: usize,
    /// Rungs.
    pub rungs: usize,
    /// Bytes of cache.
    pub bytes: u64,
}

/// The best placements within a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementReport {
    /// The model.
    pub model: String,
    /// Bytes allowed.
    pub budget: u64,
    /// Tokens in the cache.
    pub context: u64,
    /// Layers with a token mixer.
    pub mixing_layers: usize,
    /// Bytes of one full layer at that context.
    pub full_bytes: u64,
    /// Bytes of one layer that is not full.
    pub other_bytes: u64,
    /// What the layers that are not full are.
    pub other: &'static str,
    /// The model as it is.
    pub current: CurrentPlacement,
    /// The most rungs within the budget; nothing if not even a stack without full layers fits.
    pub rungs: Option<usize>,
    /// One group for every number of full layers that gives them, the cheapest first.
    pub groups: Vec<PlacementGroup>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
}

/// Finds the placements of full layers with the most rungs within a budget of bytes.
///
/// # Errors
/// The model's layers are not all known, or a full layer's sizes are not.
pub fn search(audit: &Audit, budget: u64, options: &AuditOptions) -> Result<PlacementReport, AuditError> {
    let refuse = |why: &str| AuditError::Request { text: audit.model.clone(), why: why.to_owned() };
    let (Some(capacity), Some(cache), true) = (&audit.capacity, audit.cache, audit.unknown.is_empty()) else {
        return Err(refuse("the model's layers are not all known, so they cannot be placed"));
    };
    let mixing: Vec<usize> = (0..audit.layers.len()).filter(|&index| audit.layers[index].mixes()).collect();
    let mut scratch = audit.clone();
    let kind = what_if::other_kind(audit);
    let full = what_if::template(&mut scratch, Target::Full, "full")?;
    let other = what_if::template(&mut scratch, kind, "other")?;
    let bytes = |layer: &AuditLayer| cost::cache(layer.plan_layers.iter(), audit.storage()).map(|cache| cache.total);
    let (full_bytes, other_bytes) = (bytes(&full)?, bytes(&other)?);
    let adds_hop = other.plan_layers.iter().map(Layer::state_bits).sum::<u128>() > 0;
    let depth = mixing.len();
    let total = |count: usize| {
        let sum = u128::from(full_bytes) * count as u128 + u128::from(other_bytes) * (depth - count) as u128;
        u64::try_from(sum).unwrap_or(u64::MAX)
    };
    let rungs = |count: usize| (count + usize::from(adds_hop && count < depth)).saturating_sub(1);
    let fitting: Vec<usize> = (0..=depth).filter(|&count| total(count) <= budget).collect();
    let best = fitting.iter().map(|&count| rungs(count)).max();
    let mut groups: Vec<PlacementGroup> = fitting
        .into_iter()
        .filter(|&count| Some(rungs(count)) == best)
        .map(|count| group(audit, &mixing, &other, count, total(count)))
        .collect();
    groups.sort_by_key(|group| group.bytes);
    Ok(PlacementReport {
        model: audit.model.clone(),
        budget,
        context: options.context,
        mixing_layers: depth,
        full_bytes,
        other_bytes,
        other: other.recurrent.unwrap_or("window"),
        current: CurrentPlacement { full: capacity.full, rungs: capacity.rungs, bytes: cache.total },
        rungs: best,
        groups,
        assumed: scratch.assumed,
    })
}

fn group(audit: &Audit, mixing: &[usize], other: &AuditLayer, full: usize, bytes: u64) -> PlacementGroup {
    let depth = mixing.len();
    // Of all placements, those with the first two layers full have no extra hop.
    let (all, without_hop) =
        (choose(depth, full), if full >= 2 && full < depth { choose(depth - 2, full - 2) } else { Some(0) });
    let count = all.zip(without_hop).map(|(all, without_hop)| all - without_hop);
    let fraction =
        if full >= 2 && full < depth { 1.0 - (full * (full - 1)) as f64 / (depth * (depth - 1)) as f64 } else { 1.0 };
    let log10_count = (log2_choose(depth, full) + fraction.log2()) * std::f64::consts::LOG10_2;
    let mut examples: Vec<Placement> = Vec::new();
    let mut add = |why: &'static str, positions: Vec<usize>| {
        let has_extra_hop = full < 2 || full == depth || !(positions.contains(&0) && positions.contains(&1));
        let mut chosen: Vec<usize> = positions.into_iter().map(|position| mixing[position]).collect();
        chosen.sort_unstable();
        if has_extra_hop && chosen.len() == full && !examples.iter().any(|example| example.full == chosen) {
            let letters = letters(audit, &chosen, other);
            examples.push(Placement { why, full: chosen, letters });
        }
    };
    let now = (0..depth).filter(|&position| audit.layers[mixing[position]].is_full()).collect();
    add("as the model has them", now);
    add("evenly spread, each the last of its group", (1..=full).map(|one| one * depth / full.max(1) - 1).collect());
    add("all at the end", (depth - full..depth).collect());
    add(
        "one first, the others at the end",
        std::iter::once(0).chain(depth + 1 - full.max(1)..depth).take(full).collect(),
    );
    add("right after one layer that is not full", (1..=full).filter(|&position| position < depth).collect());
    PlacementGroup { full, bytes, log10_count, count, examples }
}

fn letters(audit: &Audit, full: &[usize], other: &AuditLayer) -> String {
    let letter = |(index, layer): (usize, &AuditLayer)| match (layer.mixes(), full.binary_search(&index).is_ok()) {
        (false, _) => '.',
        (true, true) => 'F',
        (true, false) => other.letter(),
    };
    audit.layers.iter().enumerate().map(letter).collect()
}

fn choose(n: usize, k: usize) -> Option<u128> {
    let k = k.min(n - k);
    (0..k).try_fold(1_u128, |product, i| product.checked_mul((n - i) as u128).map(|product| product / (i as u128 + 1)))
}

fn log2_choose(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).map(|i| ((n - i) as f64 / (i + 1) as f64).log2()).sum()
}
