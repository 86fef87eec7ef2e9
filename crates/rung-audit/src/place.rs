//! Where to put full layers when the cache has a budget.
//!
//! All layers of one kind cost the same, so bytes depend only on *how many* layers are full; rungs depend on that and on
//! one bit more: whether a layer that is not full stands among the first two (then it hands a value on and earns a
//! hop). So the answer is the largest number of full layers that fits, and every placement that keeps one of the first
//! two layers out of them. With D layers that mix: F full ones give F rungs if 0 < F < D and that condition holds, and
//! D - 1 rungs if all are full; the last two are a tie, and the cheaper one is listed first.
//!
//! There are exponentially many such placements; they are counted, and a few with a reason to like them are drawn.

use rung_theory::stack::Layer;

use crate::audit::Options;
use crate::what_if::{self, Target};
use crate::{Audit, AuditError, AuditLayer, cost};

/// One placement worth looking at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Why it is listed.
    pub why: &'static str,
    /// Layers (from 0, as in the config) that are full.
    pub full: Vec<usize>,
    /// The strip.
    pub strip: String,
}

/// All placements with the same number of full layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Tie {
    /// How many layers are full.
    pub full: usize,
    /// Bytes of cache.
    pub bytes: u64,
    /// Base-10 logarithm of how many placements there are.
    pub log10_count: f64,
    /// Exactly how many, where that fits 128 bits.
    pub count: Option<u128>,
    /// Some of them.
    pub examples: Vec<Placement>,
}

/// The best placements within a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The model.
    pub model: String,
    /// Bytes allowed.
    pub budget: u64,
    /// Tokens in the cache.
    pub context: u64,
    /// Layers that mix tokens.
    pub depth: usize,
    /// Bytes of one full layer at that context.
    pub full_bytes: u64,
    /// Bytes of one layer that is not full.
    pub other_bytes: u64,
    /// What the layers that are not full are.
    pub other: &'static str,
    /// Full layers, rungs and bytes as the model is.
    pub now: (usize, usize, u64),
    /// The most rungs within the budget; nothing if not even a stack without full layers fits.
    pub rungs: Option<usize>,
    /// Every number of full layers that gives them, the cheapest first.
    pub ties: Vec<Tie>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
}

/// Finds the placements of full layers with the most rungs within a budget of bytes.
///
/// # Errors
/// The model's layers are not all known, or a full layer's sizes are not.
pub fn place(audit: &Audit, budget: u64, options: &Options) -> Result<Advice, AuditError> {
    let refuse = |why: &str| AuditError::Request { text: audit.model.clone(), why: why.to_owned() };
    let (Some(capacity), Some(cache), true) = (&audit.capacity, audit.cache, audit.unknown.is_empty()) else {
        return Err(refuse("the model's layers are not all known, so they cannot be placed"));
    };
    let slots: Vec<usize> = (0..audit.layers.len()).filter(|&index| audit.layers[index].mixes()).collect();
    let mut scratch = audit.clone();
    let kind = what_if::other_kind(audit);
    let full = what_if::sample(&mut scratch, Target::Full, "full")?;
    let other = what_if::sample(&mut scratch, kind, "other")?;
    let bytes = |layer: &AuditLayer| cost::cache(layer.parts.iter(), audit.storage()).map(|cache| cache.total);
    let (full_bytes, other_bytes) = (bytes(&full)?, bytes(&other)?);
    let earns = other.parts.iter().map(Layer::state_bits).sum::<u128>() > 0;
    let depth = slots.len();
    let total = |count: usize| {
        let sum = u128::from(full_bytes) * count as u128 + u128::from(other_bytes) * (depth - count) as u128;
        u64::try_from(sum).unwrap_or(u64::MAX)
    };
    let rungs = |count: usize| (count + usize::from(earns && count < depth)).saturating_sub(1);
    let fitting: Vec<usize> = (0..=depth).filter(|&count| total(count) <= budget).collect();
    let best = fitting.iter().map(|&count| rungs(count)).max();
    let mut ties: Vec<Tie> = fitting
        .into_iter()
        .filter(|&count| Some(rungs(count)) == best)
        .map(|count| tie(audit, &slots, &other, count, total(count)))
        .collect();
    ties.sort_by_key(|tie| tie.bytes);
    Ok(Advice {
        model: audit.model.clone(),
        budget,
        context: options.context,
        depth,
        full_bytes,
        other_bytes,
        other: other.recurrent.unwrap_or("window"),
        now: (capacity.full, capacity.rungs, cache.total),
        rungs: best,
        ties,
        assumed: scratch.assumed,
    })
}

fn tie(audit: &Audit, slots: &[usize], other: &AuditLayer, full: usize, bytes: u64) -> Tie {
    let depth = slots.len();
    // Of all choices, those that make the first two layers full earn no hop.
    let (all, wasted) =
        (choose(depth, full), if full >= 2 && full < depth { choose(depth - 2, full - 2) } else { Some(0) });
    let count = all.zip(wasted).map(|(all, wasted)| all - wasted);
    let share =
        if full >= 2 && full < depth { 1.0 - (full * (full - 1)) as f64 / (depth * (depth - 1)) as f64 } else { 1.0 };
    let log10_count = (log2_choose(depth, full) + share.log2()) * std::f64::consts::LOG10_2;
    let mut examples: Vec<Placement> = Vec::new();
    let mut add = |why: &'static str, places: Vec<usize>| {
        let earns = full < 2 || full == depth || !(places.contains(&0) && places.contains(&1));
        let mut chosen: Vec<usize> = places.into_iter().map(|place| slots[place]).collect();
        chosen.sort_unstable();
        if earns && chosen.len() == full && !examples.iter().any(|known| known.full == chosen) {
            let strip = strip(audit, &chosen, other);
            examples.push(Placement { why, full: chosen, strip });
        }
    };
    let now = (0..depth).filter(|&place| audit.layers[slots[place]].is_full()).collect();
    add("as the model has them", now);
    add("evenly spread, each the last of its group", (1..=full).map(|one| one * depth / full.max(1) - 1).collect());
    add("all at the end", (depth - full..depth).collect());
    add(
        "one first, the others at the end",
        std::iter::once(0).chain(depth + 1 - full.max(1)..depth).take(full).collect(),
    );
    add("right after one layer that is not full", (1..=full).filter(|&place| place < depth).collect());
    Tie { full, bytes, log10_count, count, examples }
}

fn strip(audit: &Audit, full: &[usize], other: &AuditLayer) -> String {
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
