//! What the designer and the gallery show of an audit.

use rung_audit::report::json as audit_json;
use rung_audit::{Audit, AuditOptions};
use rung_theory::stack::Mixer;
use serde_json::{Value, json};

use crate::model::Answer;
use crate::request::AuditRequest;

/// Contexts of the curve: powers of two from 1k tokens to 4M.
const CURVE: std::ops::RangeInclusive<u32> = 10..=22;

/// The model before and after edits, with everything that the designer draws.
pub(crate) fn design(asked: &AuditRequest, file: &[u8], options: &AuditOptions) -> Answer<Value> {
    let before = asked.model.audit(file, options)?;
    let after =
        if asked.edits.is_empty() { before.clone() } else { asked.model.edited(file, &asked.edits, options)? };
    let capacity = after.capacity.as_ref();
    let pair = audit_json::what_ifs(std::slice::from_ref(&before), std::slice::from_ref(&after));
    let curve: Vec<Value> = CURVE
        .map(|power| 1_u64 << power)
        .map(|context| {
            let all_full = after.all_full.map(|all| all.cache.per_token.saturating_mul(context));
            json!({
                "context": context,
                "after": after.cache_at(context),
                "before": before.cache_at(context),
                "all_full": all_full,
            })
        })
        .collect();
    Ok(json!({
        "before": pair["before"],
        "after": pair["after"],
        "difference": pair["difference"],
        "claim": capacity.map(rung_theory::stack::Capacity::claim),
        "reason": capacity.map(rung_theory::stack::Capacity::reason),
        "reason_before": before.capacity.as_ref().map(rung_theory::stack::Capacity::reason),
        "sizes": sizes(&after),
        "explicit_stack": after.plan.as_ref().map(|plan| plan.to_stack().to_string()),
        "parameters": after.parameters.map(|parameters| parameters.total),
        "trained_context": after.trained_context,
        "curve": curve,
    }))
}

/// Heads of the first attention layer, for the sliders.
fn sizes(audit: &Audit) -> Value {
    let mut mixers = audit.layers.iter().flat_map(|layer| &layer.plan_layers).flat_map(|part| part.mixers.iter());
    mixers.find(|mixer| mixer.number("kv").is_some()).map_or(Value::Null, |mixer| {
        json!({
            "heads": mixer.number("heads"),
            "kv_heads": mixer.number("kv"),
            "head_dim": mixer.number("head"),
        })
    })
}

/// A preset as a card.
pub(crate) fn brief(name: &str, audit: &Audit) -> Value {
    let mut mixers: Vec<&str> = audit
        .layers
        .iter()
        .flat_map(|layer| &layer.plan_layers)
        .flat_map(|part| part.mixers.iter())
        .map(Mixer::name)
        .collect();
    mixers.sort_unstable();
    mixers.dedup();
    let capacity = audit.capacity.as_ref();
    json!({
        "name": name,
        "source": audit.source,
        "strip": audit.layer_letters(),
        "stack": audit.plan.as_ref().map(rung_theory::stack::Plan::outline),
        "layers": audit.layers.len(),
        "mixers": mixers,
        "full_layers": capacity.map(|capacity| capacity.full),
        "rungs": capacity.map(|capacity| capacity.rungs),
        "rungs_at_least": capacity.map(|capacity| capacity.at_least),
        "bytes_per_token": audit.cache.map(|cache| cache.per_token),
        "state_bytes": audit.cache.map(|cache| cache.state),
        "cache_bytes": audit.cache.map(|cache| cache.total),
        "all_full_bytes": audit.all_full.map(|all| all.cache.total),
        "parameters": audit.parameters.map(|parameters| parameters.total),
        "trained_context": audit.trained_context,
    })
}
