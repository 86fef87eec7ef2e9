//! Finds where to place full layers within a budget of cache bytes.
//!
//! All layers of one kind cost the same, so bytes depend only on *how many* layers are full. Rungs depend on that and on
//! whether one of the first two layers is not full: such a layer can pass the start value on, which gives an extra hop. So
//! the best placements have the largest number of full layers that fits, and one of the first two layers is not full. With D layers that have a mixer: F full ones give F rungs if 0 < F < D and that condition holds, and
//! D - 1 rungs if all are full. Where two numbers of full layers give the same rungs, the cheaper one is listed first.
//!
//! There are exponentially many such placements: they are counted, and a few examples are listed.

use rung_theory::stack::Layer;

use crate::audit::AuditOptions;
use crate::what_if::{self, LayerKind};
use crate::{Audit, AuditError, AuditLayer, cost};

/// One choice of the layers that are full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How the full layers are placed, such as `all at the end`.
    pub description: &'static str,
    /// Layers (from 0, as in the config) that are full.
    pub full_layers: Vec<usize>,
    /// One letter per layer.
    pub letters: String,
}

/// All placements with the same number of full layers.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementGroup {
    /// Number of full layers.
    pub full_layer_count: usize,
    /// Bytes of cache.
    pub cache_bytes: u64,
    /// Base-10 logarithm of the number of placements.
    pub log10_count: f64,
    /// The number of placements, where it fits 128 bits.
    pub count: Option<u128>,
    /// A few example placements.
    pub examples: Vec<Placement>,
}

/// Full layers, rungs and cache of the model as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentPlacement {
    /// Number of full layers.
    pub full_layer_count: usize,
    /// Hops that the stack can compose.
    pub rungs: usize,
    /// Bytes of cache.
    pub cache_bytes: u64,
}

/// The best placements within a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementReport {
    /// The model's name.
    pub model: String,
    /// Bytes that the cache may take.
    pub budget: u64,
    /// Tokens in the cache.
    pub context: u64,
    /// Layers with a token mixer.
    pub mixing_layer_count: usize,
    /// Bytes of one full layer at that context.
    pub full_bytes: u64,
    /// Bytes of one layer that is not full.
    pub other_bytes: u64,
    /// Mixer of the layers that are not full.
    pub other_mixer: &'static str,
    /// The model as it is.
    pub current: CurrentPlacement,
    /// The most rungs within the budget; nothing if not even a stack without full layers fits.
    pub rungs: Option<usize>,
    /// One group for every number of full layers with that many rungs, the cheapest first.
    pub groups: Vec<PlacementGroup>,
    /// Assumptions behind the numbers.
    pub assumptions: Vec<String>,
}

/// Finds the placements of full layers with the most rungs within a budget of bytes.
///
/// # Errors
/// The model's layers are not all known, or a full layer's sizes are not.
pub fn find_best_placements(audit: &Audit, budget: u64, options: &AuditOptions) -> Result<PlacementReport, AuditError> {
    let (Some(capacity), Some(cache), true) = (&audit.capacity, audit.cache, audit.unknown_reasons.is_empty()) else {
        return Err(AuditError::invalid_argument(
            &audit.model,
            "the model's layers are not all known, so no placement can be searched",
        ));
    };
    let mixing_indices: Vec<usize> = (0..audit.layers.len()).filter(|&index| audit.layers[index].has_mixer()).collect();
    let mut edited = audit.clone();
    let other_kind = what_if::other_layer_kind(audit);
    let full = what_if::layer_template(&mut edited, LayerKind::Full, "full")?;
    let other = what_if::layer_template(&mut edited, other_kind, "other")?;
    let bytes = |layer: &AuditLayer| {
        cost::cache_bytes(layer.plan_layers.iter(), audit.cache_settings()).map(|cache| cache.total)
    };
    let (full_bytes, other_bytes) = (bytes(&full)?, bytes(&other)?);
    let adds_hop = other.plan_layers.iter().map(Layer::state_bits).sum::<u128>() > 0;
    let depth = mixing_indices.len();
    let cache_bytes = |count: usize| {
        let sum = u128::from(full_bytes) * count as u128 + u128::from(other_bytes) * (depth - count) as u128;
        u64::try_from(sum).unwrap_or(u64::MAX)
    };
    let rungs = |count: usize| (count + usize::from(adds_hop && count < depth)).saturating_sub(1);
    let fitting_counts: Vec<usize> = (0..=depth).filter(|&count| cache_bytes(count) <= budget).collect();
    let best_rungs = fitting_counts.iter().map(|&count| rungs(count)).max();
    let mut groups: Vec<PlacementGroup> = fitting_counts
        .into_iter()
        .filter(|&count| Some(rungs(count)) == best_rungs)
        .map(|count| placement_group(audit, &mixing_indices, &other, count, cache_bytes(count)))
        .collect();
    groups.sort_by_key(|group| group.cache_bytes);
    Ok(PlacementReport {
        model: audit.model.clone(),
        budget,
        context: options.context,
        mixing_layer_count: depth,
        full_bytes,
        other_bytes,
        other_mixer: other.recurrent.unwrap_or("window"),
        current: CurrentPlacement {
            full_layer_count: capacity.full_layers,
            rungs: capacity.rungs,
            cache_bytes: cache.total,
        },
        rungs: best_rungs,
        groups,
        assumptions: edited.assumptions,
    })
}

/// The placements with `full_count` full layers: how many there are, and examples.
fn placement_group(
    audit: &Audit,
    mixing_indices: &[usize],
    other: &AuditLayer,
    full_count: usize,
    cache_bytes: u64,
) -> PlacementGroup {
    let depth = mixing_indices.len();
    // Placements with both of the first two layers full have no extra hop and are not counted.
    let (total, without_hop) = (
        choose(depth, full_count),
        if full_count >= 2 && full_count < depth { choose(depth - 2, full_count - 2) } else { Some(0) },
    );
    let count = total.zip(without_hop).map(|(total, without_hop)| total - without_hop);
    let fraction = if full_count >= 2 && full_count < depth {
        1.0 - (full_count * (full_count - 1)) as f64 / (depth * (depth - 1)) as f64
    } else {
        1.0
    };
    let log10_count = (log2_choose(depth, full_count) + fraction.log2()) * std::f64::consts::LOG10_2;
    let mut examples: Vec<Placement> = Vec::new();
    let mut add = |description: &'static str, positions: Vec<usize>| {
        let has_extra_hop =
            full_count < 2 || full_count == depth || !(positions.contains(&0) && positions.contains(&1));
        let mut full_layers: Vec<usize> = positions.into_iter().map(|position| mixing_indices[position]).collect();
        full_layers.sort_unstable();
        if has_extra_hop
            && full_layers.len() == full_count
            && !examples.iter().any(|example| example.full_layers == full_layers)
        {
            let letters = layer_letters(audit, &full_layers, other);
            examples.push(Placement { description, full_layers, letters });
        }
    };
    let current = (0..depth).filter(|&position| audit.layers[mixing_indices[position]].is_full()).collect();
    add("as the model has them", current);
    add(
        "evenly spread, each the last of its group",
        (1..=full_count).map(|count| count * depth / full_count.max(1) - 1).collect(),
    );
    add("all at the end", (depth - full_count..depth).collect());
    add(
        "one first, the others at the end",
        std::iter::once(0).chain(depth + 1 - full_count.max(1)..depth).take(full_count).collect(),
    );
    add("right after one layer that is not full", (1..=full_count).filter(|&position| position < depth).collect());
    PlacementGroup { full_layer_count: full_count, cache_bytes, log10_count, count, examples }
}

fn layer_letters(audit: &Audit, full: &[usize], other: &AuditLayer) -> String {
    let letter = |(index, layer): (usize, &AuditLayer)| match (layer.has_mixer(), full.binary_search(&index).is_ok()) {
        (false, _) => '.',
        (true, true) => 'F',
        (true, false) => other.letter(),
    };
    audit.layers.iter().enumerate().map(letter).collect()
}

/// The binomial coefficient, or nothing if it does not fit 128 bits.
fn choose(n: usize, k: usize) -> Option<u128> {
    let k = k.min(n - k);
    (0..k).try_fold(1_u128, |product, i| product.checked_mul((n - i) as u128).map(|product| product / (i as u128 + 1)))
}

fn log2_choose(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).map(|i| ((n - i) as f64 / (i + 1) as f64).log2()).sum()
}
