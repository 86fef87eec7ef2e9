//! An audit as JSON. Names are stable; `crates/rung-audit/schemas/audit.schema.json` describes them.

use rung_theory::stack::Plan;
use serde_json::{Value, json};

use crate::lint::LintFinding;
use crate::placement::{PlacementGroup, PlacementReport};
use crate::{Audit, BoundSearchResult, CacheBytes, MixerCost};

fn cache_json(cache: Option<CacheBytes>) -> Value {
    cache.map_or(Value::Null, |cache| {
        json!({
            "bytes_per_token": cache.per_token,
            "state_bytes": cache.state,
            "window_bytes": cache.window,
            "cache_bytes": cache.total,
        })
    })
}

fn mixer_cost_json(cost: Option<MixerCost>) -> Value {
    cost.map_or(Value::Null, |cost| {
        json!({
            "parameters": cost.parameters,
            "prefill_flops_per_token": cost.prefill_flops,
            "decode_flops_per_token": cost.decode_flops,
        })
    })
}

/// One audit as a JSON object.
pub fn audit(audit: &Audit) -> Value {
    let layer = |layer: &crate::AuditLayer| {
        json!({
            "attention": layer.attention.map(crate::AttentionScope::name),
            "recurrent": layer.recurrent,
            "channel": layer.feed_forward.name(),
            "shares_cache": layer.shares_cache,
            "decided_by": layer.decided_by,
        })
    };
    let capacity = audit.capacity.as_ref();
    let blocks = capacity.map(|capacity| {
        let block = |block: &rung_theory::stack::capacity::LayerBlock| {
            // The size limits of a config keep this below 64 bits; saturate rather than fail.
            json!({"layers": block.layers.len(), "state_bits": u64::try_from(block.state_bits).unwrap_or(u64::MAX)})
        };
        capacity.blocks.iter().map(block).collect::<Vec<_>>()
    });
    let all_full = audit.all_full.map_or(
        Value::Null,
        |other| json!({"rungs": other.rungs, "cache": cache_json(Some(other.cache)), "mixers": mixer_cost_json(other.mixer_cost)}),
    );
    let sparse = audit.block_sparse.map_or(Value::Null, |sparse| {
        json!({
            "layers": sparse.layers,
            "block_tokens": sparse.block_tokens,
            "picked_blocks": sparse.selected_blocks,
            "bits_had": sparse.summary_bits,
            "bits_needed": sparse.required_bits,
        })
    });
    let certified = audit.next_hop_bound.map_or(
        Value::Null,
        |bound| json!({"hops": bound.hops, "searched": bound.search != BoundSearchResult::Skipped, "log2_tokens": bound.log2_tokens(), "reached": bound.applies}),
    );
    json!({
        "model": audit.model,
        "source": audit.source,
        "dialect": audit.dialect,
        "width": audit.width,
        "strip": audit.layer_letters(),
        "stack": audit.plan.as_ref().map(Plan::mixer_names),
        "layers": audit.layers.iter().map(layer).collect::<Vec<_>>(),
        "full_layers": capacity.map(|capacity| capacity.full_layers),
        "extra_hop": capacity.map(|capacity| capacity.extra_hop),
        "rungs": capacity.map(|capacity| capacity.rungs),
        "rungs_at_least": capacity.map(|capacity| capacity.constructed_hops),
        "blocks": blocks,
        "bytes_per_token": audit.cache.map(|cache| cache.per_token),
        "state_bytes": audit.cache.map(|cache| cache.state),
        "window_bytes": audit.cache.map(|cache| cache.window),
        "cache_bytes": audit.cache.map(|cache| cache.total),
        "context": audit.context,
        "kv_dtype": audit.kv_dtype.name,
        "state_dtype": audit.state_dtype.name,
        "mixers": mixer_cost_json(audit.mixer_cost),
        "all_full": all_full,
        "certified": certified,
        "block_sparse": sparse,
        "unknown": audit.unknown_reasons,
        "assumed": audit.assumptions,
    })
}

/// Several audits as a JSON array.
pub fn audits(audits: &[Audit]) -> Value {
    Value::Array(audits.iter().map(audit).collect())
}

/// Audits before and after an edit, and by how much the numbers change.
pub fn what_ifs(before: &[Audit], after: &[Audit]) -> Value {
    let pair = |(before, after): (&Audit, &Audit)| {
        let (first, second) = (audit(before), audit(after));
        let mut difference = serde_json::Map::new();
        for name in ["full_layers", "rungs", "bytes_per_token", "state_bytes", "window_bytes", "cache_bytes"] {
            let change = first[name].as_i64().zip(second[name].as_i64()).map(|(first, second)| second - first);
            difference.insert(name.to_owned(), json!(change));
        }
        json!({"before": first, "after": second, "difference": difference})
    };
    let mut pairs: Vec<Value> = before.iter().zip(after).map(pair).collect();
    if pairs.len() == 1 { pairs.remove(0) } else { Value::Array(pairs) }
}

/// The best placements of full layers.
pub fn placements(report: &PlacementReport) -> Value {
    let group = |group: &PlacementGroup| {
        let examples: Vec<Value> = group
            .examples
            .iter()
            .map(|example| json!({"why": example.description, "full": example.full_layers, "strip": example.letters}))
            .collect();
        json!({
            "full_layers": group.full_layer_count,
            "cache_bytes": group.cache_bytes,
            "placements": group.count.and_then(|count| u64::try_from(count).ok()),
            "log10_placements": group.log10_count,
            "examples": examples,
        })
    };
    json!({
        "model": report.model,
        "budget": report.budget,
        "context": report.context,
        "layers": report.mixing_layer_count,
        "full_layer_bytes": report.full_bytes,
        "other_layer_bytes": report.other_bytes,
        "other_layer": report.other_mixer,
        "now": {"full_layers": report.current.full_layer_count, "rungs": report.current.rungs, "cache_bytes": report.current.cache_bytes},
        "rungs": report.rungs,
        "ties": report.groups.iter().map(group).collect::<Vec<_>>(),
        "assumed": report.assumptions,
    })
}

/// Lint findings, each with the file it is about.
pub fn findings<'a>(findings: impl Iterator<Item = (&'a str, &'a LintFinding)>) -> Value {
    let object = |(file, finding): (&str, &LintFinding)| {
        json!({
            "file": file,
            "line": finding.line,
            "severity": finding.severity.name(),
            "field": finding.field,
            "reason": finding.reason,
            "fix": finding.fix,
        })
    };
    json!({"findings": findings.map(object).collect::<Vec<_>>()})
}
