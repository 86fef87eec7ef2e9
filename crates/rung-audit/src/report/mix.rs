//! Mixes of layers as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{bytes, commas, si_prefix};
use crate::mix::LayerMix;

/// The mixes as JSON.
pub fn json(mixes: &[LayerMix]) -> Value {
    let one = |mix: &LayerMix| {
        json!({
            "ratio": mix.name,
            "full_layers": mix.full,
            "rungs": mix.rungs,
            "prefill_flops_per_token": mix.mixer_cost.map(|cost| cost.prefill_flops),
            "decode_flops_per_token": mix.mixer_cost.map(|cost| cost.decode_flops),
            "plan": super::plan::json(&mix.plan),
        })
    };
    json!({"mixes": mixes.iter().map(one).collect::<Vec<_>>()})
}

/// The mixes as a table.
pub fn text(mixes: &[LayerMix]) -> String {
    let mut out = String::new();
    let Some(first) = mixes.first() else { return out };
    let plan = &first.plan;
    let _ = writeln!(out, "{} under {} {}", plan.model, plan.engine, plan.version);
    let _ = writeln!(out, "  context {} tokens, {} request(s)\n", commas(plan.context), plan.requests);
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
    for mix in mixes {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        row(&[
            mix.name.clone(),
            mix.full.to_string(),
            mix.rungs.to_string(),
            or_dash(mix.plan.bytes_per_token.map(bytes)),
            or_dash(mix.plan.bytes_per_request.map(bytes)),
            or_dash(mix.plan.context_fit.map(commas)),
            or_dash(mix.plan.requests_fit.map(commas)),
            or_dash(mix.mixer_cost.map(|cost| si_prefix(cost.prefill_flops))),
            or_dash(mix.mixer_cost.map(|cost| si_prefix(cost.decode_flops))),
        ]);
    }
    let _ = writeln!(
        out,
        "\n  ratio: layers that are not full to layers that are; prefill and decode: FLOPs of the mixers per token"
    );
    let mut notes: Vec<&String> = Vec::new();
    for note in mixes.iter().flat_map(|mix| mix.plan.unknown.iter().chain(&mix.plan.assumed)) {
        if !notes.contains(&note) {
            notes.push(note);
            let _ = writeln!(out, "  note         {note}");
        }
    }
    out
}
