//! Plans of several layer ratios as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{format_bytes, format_si, with_commas};
use crate::layer_ratio::RatioPlan;

/// The plans as JSON.
pub fn json(plans: &[RatioPlan]) -> Value {
    let object = |ratio: &RatioPlan| {
        json!({
            "ratio": ratio.name,
            "full_layers": ratio.full_layer_count,
            "rungs": ratio.rungs,
            "prefill_flops_per_token": ratio.mixer_cost.map(|cost| cost.prefill_flops),
            "decode_flops_per_token": ratio.mixer_cost.map(|cost| cost.decode_flops),
            "plan": super::plan::json(&ratio.plan),
        })
    };
    json!({"mixes": plans.iter().map(object).collect::<Vec<_>>()})
}

/// The plans as a text table.
pub fn text(plans: &[RatioPlan]) -> String {
    let mut out = String::new();
    let Some(first) = plans.first() else { return out };
    let plan = &first.plan;
    let _ = writeln!(out, "{} under {} {}", plan.model, plan.engine, plan.version);
    let _ = writeln!(out, "  context {} tokens, {} request(s)\n", with_commas(plan.context), plan.requests);
    let heading =
        ["ratio", "full", "rungs", "KV/token", "one request", "context fits", "requests fit", "prefill", "decode"];
    let widths = [9, 5, 6, 10, 12, 14, 13, 9, 9];
    let mut row = |cells: &[String]| {
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(out, " {cell:>width$}");
        }
        out.push('\n');
    };
    row(&heading.map(str::to_owned));
    for ratio in plans {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        row(&[
            ratio.name.clone(),
            ratio.full_layer_count.to_string(),
            ratio.rungs.to_string(),
            or_dash(ratio.plan.bytes_per_token.map(format_bytes)),
            or_dash(ratio.plan.bytes_per_request.map(format_bytes)),
            or_dash(ratio.plan.context_fit.map(with_commas)),
            or_dash(ratio.plan.requests_fit.map(with_commas)),
            or_dash(ratio.mixer_cost.map(|cost| format_si(cost.prefill_flops))),
            or_dash(ratio.mixer_cost.map(|cost| format_si(cost.decode_flops))),
        ]);
    }
    let _ = writeln!(
        out,
        "\n  ratio: layers that are not full to layers that are; prefill and decode: FLOPs of the mixers per token"
    );
    let mut notes: Vec<&String> = Vec::new();
    for note in plans.iter().flat_map(|ratio| ratio.plan.unknown_reasons.iter().chain(&ratio.plan.assumptions)) {
        if !notes.contains(&note) {
            notes.push(note);
            let _ = writeln!(out, "  note         {note}");
        }
    }
    out
}
