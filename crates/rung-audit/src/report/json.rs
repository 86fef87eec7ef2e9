//! An audit as JSON. Names are stable; `schemas/audit.schema.json` describes them.

use rung_theory::stack::Plan;
use serde_json::{Value, json};

use crate::lint::Finding;
use crate::place::Advice;
use crate::{Audit, Cache, Work};

fn cache(cache: Option<Cache>) -> Value {
    cache.map_or(Value::Null, |cache| {
        json!({
            "bytes_per_token": cache.per_token,
            "state_bytes": cache.state,
            "window_bytes": cache.window,
            "cache_bytes": cache.total,
        })
    })
}

fn work(work: Option<Work>) -> Value {
    work.map_or(Value::Null, |work| {
        json!({
            "parameters": work.parameters,
            "prefill_flops_per_token": work.prefill,
            "decode_flops_per_token": work.decode,
        })
    })
}

/// One audit.
pub fn audit(audit: &Audit) -> Value {
    let layer = |layer: &crate::AuditLayer| {
        json!({
            "attention": layer.attention.map(crate::Attention::word),
            "recurrent": layer.recurrent,
            "channel": layer.channel.word(),
            "shares_cache": layer.shares_cache,
            "decided_by": layer.decided_by,
        })
    };
    let capacity = audit.capacity.as_ref();
    let blocks = capacity.map(|capacity| {
        let block = |block: &rung_theory::stack::capacity::Block| {
            // Bits beyond 64 bits do not occur below the size limits of a config; saturate rather than fail.
            json!({"layers": block.layers.len(), "state_bits": u64::try_from(block.state_bits).unwrap_or(u64::MAX)})
        };
        capacity.blocks.iter().map(block).collect::<Vec<_>>()
    });
    let all_full = audit.all_full.map_or(
        Value::Null,
        |other| json!({"rungs": other.rungs, "cache": cache(Some(other.cache)), "mixers": work(other.work)}),
    );
    let sparse = audit.block_sparse.map_or(Value::Null, |sparse| {
        json!({
            "layers": sparse.layers,
            "block_tokens": sparse.block,
            "picked_blocks": sparse.picked,
            "bits_had": sparse.had,
            "bits_needed": sparse.needed,
        })
    });
    let certified = audit.certified.map_or(
        Value::Null,
        |certified| json!({"hops": certified.hops, "log2_tokens": certified.log2_tokens, "reached": certified.reached}),
    );
    json!({
        "model": audit.model,
        "source": audit.source,
        "dialect": audit.dialect,
        "width": audit.width,
        "strip": audit.strip(),
        "stack": audit.plan.as_ref().map(Plan::outline),
        "layers": audit.layers.iter().map(layer).collect::<Vec<_>>(),
        "full_layers": capacity.map(|capacity| capacity.full),
        "extra_hop": capacity.map(|capacity| capacity.extra_hop),
        "rungs": capacity.map(|capacity| capacity.rungs),
        "rungs_at_least": capacity.map(|capacity| capacity.at_least),
        "blocks": blocks,
        "bytes_per_token": audit.cache.map(|cache| cache.per_token),
        "state_bytes": audit.cache.map(|cache| cache.state),
        "window_bytes": audit.cache.map(|cache| cache.window),
        "cache_bytes": audit.cache.map(|cache| cache.total),
        "context": audit.context,
        "kv_dtype": audit.kv_dtype.name,
        "state_dtype": audit.state_dtype.name,
        "mixers": work(audit.work),
        "all_full": all_full,
        "certified": certified,
        "block_sparse": sparse,
        "unknown": audit.unknown,
        "assumed": audit.assumed,
    })
}

/// Several audits.
pub fn audits(audits: &[Audit]) -> Value {
    Value::Array(audits.iter().map(audit).collect())
}

/// Audits before and after an edit, and by how much the figures change.
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

/// What placing full layers gives.
pub fn advice(advice: &Advice) -> Value {
    let tie = |tie: &crate::place::Tie| {
        let examples: Vec<Value> =
            tie.examples.iter().map(|one| json!({"why": one.why, "full": one.full, "strip": one.strip})).collect();
        json!({
            "full_layers": tie.full,
            "cache_bytes": tie.bytes,
            "placements": tie.count.and_then(|count| u64::try_from(count).ok()),
            "log10_placements": tie.log10_count,
            "examples": examples,
        })
    };
    json!({
        "model": advice.model,
        "budget": advice.budget,
        "context": advice.context,
        "layers": advice.depth,
        "full_layer_bytes": advice.full_bytes,
        "other_layer_bytes": advice.other_bytes,
        "other_layer": advice.other,
        "now": {"full_layers": advice.now.0, "rungs": advice.now.1, "cache_bytes": advice.now.2},
        "rungs": advice.rungs,
        "ties": advice.ties.iter().map(tie).collect::<Vec<_>>(),
        "assumed": advice.assumed,
    })
}

/// What lint found, each with the file it was found in.
pub fn findings<'a>(found: impl Iterator<Item = (&'a str, &'a Finding)>) -> Value {
    let object = |(file, finding): (&str, &Finding)| {
        json!({
            "file": file,
            "line": finding.line,
            "severity": finding.severity.word(),
            "field": finding.field,
            "reason": finding.reason,
            "fix": finding.fix,
        })
    };
    json!({"findings": found.map(object).collect::<Vec<_>>()})
}
