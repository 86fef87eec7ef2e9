//! The numbers of an audit that the designer and the gallery show.

use rung_audit::report::json as audit_json;
use rung_audit::report::text::rungs_terms;
use rung_audit::{Audit, AuditOptions};
use rung_theory::stack::Mixer;
use serde_json::{Value, json};

use crate::model::WebResult;
use crate::request::AuditRequest;

/// Base-2 logarithms of the contexts of the cache curve: 1k to 4M tokens.
const CURVE_LOG2_CONTEXTS: std::ops::RangeInclusive<u32> = 10..=22;

/// The model before and after edits, with everything that the designer draws.
pub(crate) fn design(request: &AuditRequest, file: &[u8], options: &AuditOptions) -> WebResult<Value> {
    let before = request.model.audit(file, options)?;
    let after = if request.edits.is_empty() {
        before.clone()
    } else {
        request.model.audit_edited(file, &request.edits, options)?
    };
    let capacity = after.capacity.as_ref();
    let comparison = audit_json::what_ifs(std::slice::from_ref(&before), std::slice::from_ref(&after));
    let curve: Vec<Value> = CURVE_LOG2_CONTEXTS
        .map(|log2_context| 1_u64 << log2_context)
        .map(|context| {
            let all_full = after.all_full.map(|all_full| all_full.cache.per_token.saturating_mul(context));
            json!({
                "context": context,
                "after": after.cache_at(context),
                "before": before.cache_at(context),
                "all_full": all_full,
            })
        })
        .collect();
    Ok(json!({
        "before": comparison["before"],
        "after": comparison["after"],
        "difference": comparison["difference"],
        "claim": capacity.map(rung_theory::stack::Capacity::claim),
        "rungs_terms": capacity.map(rungs_terms),
        "reason": capacity.map(rung_theory::stack::Capacity::reason),
        "reason_before": before.capacity.as_ref().map(rung_theory::stack::Capacity::reason),
        "sizes": head_sizes(&after),
        "explicit_stack": after.plan.as_ref().map(|plan| plan.to_stack().to_string()),
        "parameters": after.parameters.map(|parameters| parameters.total),
        "max_context": after.max_context,
        "curve": curve,
    }))
}

/// Heads of the first attention layer, for the sliders.
fn head_sizes(audit: &Audit) -> Value {
    let mut mixers =
        audit.layers.iter().flat_map(|layer| &layer.plan_layers).flat_map(|plan_layer| plan_layer.mixers.iter());
    mixers.find(|mixer| mixer.number("kv").is_some()).map_or(Value::Null, |mixer| {
        json!({
            "heads": mixer.number("heads"),
            "kv_heads": mixer.number("kv"),
            "head_dim": mixer.number("head"),
        })
    })
}

/// The numbers of a preset that its card in the gallery shows.
pub(crate) fn preset_card(name: &str, audit: &Audit) -> Value {
    let mut mixers: Vec<&str> = audit
        .layers
        .iter()
        .flat_map(|layer| &layer.plan_layers)
        .flat_map(|plan_layer| plan_layer.mixers.iter())
        .map(Mixer::name)
        .collect();
    mixers.sort_unstable();
    mixers.dedup();
    let capacity = audit.capacity.as_ref();
    json!({
        "name": name,
        "source": audit.source,
        "strip": audit.layer_letters(),
        "stack": audit.plan.as_ref().map(rung_theory::stack::Plan::mixer_names),
        "layers": audit.layers.len(),
        "mixers": mixers,
        "full_layers": capacity.map(|capacity| capacity.full_layers),
        "rungs": capacity.map(|capacity| capacity.rungs),
        "rungs_at_least": capacity.map(|capacity| capacity.constructed_hops),
        "bytes_per_token": audit.cache.map(|cache| cache.per_token),
        "state_bytes": audit.cache.map(|cache| cache.state),
        "cache_bytes": audit.cache.map(|cache| cache.total),
        "all_full_bytes": audit.all_full.map(|all_full| all_full.cache.total),
        "parameters": audit.parameters.map(|parameters| parameters.total),
        "max_context": audit.max_context,
    })
}
