//! The answers: each only calls the other crates, so that the page and the program give the same answers.

use rung_audit::engine::{self, ENGINES, EngineSettings, device};
use rung_audit::lint::lint;
use rung_audit::report::{json as audit_json, plan as plan_json};
use rung_audit::{
    Audit, AuditOptions, DEFAULT_CERTIFIED_HOPS, WeightSize, certify, parse_bytes, placement, preset_config, presets,
};
use rung_theory::bound::certificate;
use rung_theory::bound::hop_map;
use rung_theory::bound::search::MAX_SEARCH_HOPS;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::report::{self, BoundRequest, check_certificate, heads_dim_bits};
use rung_theory::stack::{MessageSizeConvention, Plan, mixer};
use serde_json::{Value, json};

use crate::model::{WebResult, options};
use crate::request::{
    AuditRequest, CacheSettings, HopsRequest, LintRequest, MapRowRequest, PlaceRequest, PlanRequest, Request,
    StackRequest,
};
use crate::{design, error_text};

/// Answers every request except forward passes.
pub(crate) fn answer(request: &Request, file: &[u8]) -> WebResult<Value> {
    match request {
        Request::Names => Ok(names()),
        Request::Gallery(settings) => gallery(settings),
        Request::Audit(request) => answer_with_bounds(request, |options| {
            Ok(audit_json::audit(&request.model.audit_edited(file, &request.edits, options)?))
        }),
        Request::WhatIf(request) => answer_with_bounds(request, |options| {
            let before = request.model.audit(file, options)?;
            let after = request.model.audit_edited(file, &request.edits, options)?;
            Ok(audit_json::what_ifs(&[before], &[after]))
        }),
        Request::Design(request) => answer_with_bounds(request, |options| design::design(request, file, options)),
        Request::Plan(request) => plan(request, file),
        Request::Place(request) => place_full_layers(request, file),
        Request::Lint(request) => lint_config(request),
        Request::Capacity(request) => capacity(request),
        Request::Bound(request) => bound(request),
        Request::Map(request) => map(request),
        Request::MapRow(request) => map_row(request, file),
        Request::Check(request) => {
            let check = check_certificate(&request.text);
            Ok(if request.explain { check.explained_json() } else { check.json() })
        }
        Request::Pass(_) => Err("forward passes are answered by another module".to_owned()),
    }
}

/// Answers with audit options that search lower bounds if the request asks for them.
fn answer_with_bounds(request: &AuditRequest, answer: impl Fn(&AuditOptions) -> WebResult<Value>) -> WebResult<Value> {
    let max_hops = request.certify.unwrap_or(DEFAULT_CERTIFIED_HOPS);
    let search_bound = |plan: &Plan, hops: usize| certify(plan, hops, max_hops);
    let options = options(request.context, request.kv_dtype.as_deref(), request.state_dtype.as_deref())?;
    answer(&AuditOptions { bound_searcher: (max_hops > 0).then_some(&search_bound), ..options })
}

fn names() -> Value {
    let engine = |engine: &&engine::Engine| json!({"name": engine.name, "version": engine.version});
    let device = |(name, gib): &(&str, u64)| json!({"name": name, "gib": gib});
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "presets": presets().collect::<Vec<_>>(),
        "engines": ENGINES.iter().map(engine).collect::<Vec<_>>(),
        "devices": device::DEVICES.iter().map(device).collect::<Vec<_>>(),
        "mixers": mixer::all_names().collect::<Vec<_>>(),
        "most_search_hops": MAX_SEARCH_HOPS,
    })
}

fn gallery(settings: &CacheSettings) -> WebResult<Value> {
    let options = options(settings.context, settings.kv_dtype.as_deref(), settings.state_dtype.as_deref())?;
    let card = |name| Ok(design::preset_card(name, &rung_audit::audit_preset(name, &options).map_err(error_text)?));
    presets().map(card).collect::<WebResult<Vec<Value>>>().map(Value::Array)
}

fn plan(request: &PlanRequest, file: &[u8]) -> WebResult<Value> {
    let audit = request.model.audit_edited(file, &request.edits, &AuditOptions::default())?;
    let engine = engine::engine(&request.engine).map_err(error_text)?;
    let settings = settings(request, &audit)?;
    engine::plan(&audit, engine, &settings).map(|plan| plan_json::json(&plan)).map_err(error_text)
}

fn settings(request: &PlanRequest, audit: &Audit) -> WebResult<EngineSettings> {
    let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let devices = non_empty(&request.on).map(|name| device::parse_devices(&name)).transpose().map_err(error_text)?;
    let weights = non_empty(&request.weights).map(|text| text.parse::<WeightSize>()).transpose().map_err(error_text)?;
    Ok(EngineSettings {
        tp: request.tp.or(devices.map(|(_, count)| count)).unwrap_or(1),
        kv_format: non_empty(&request.kv_dtype).map(|text| text.parse()).transpose().map_err(error_text)?,
        state_dtype: crate::model::dtype(request.state_dtype.as_deref())?,
        memory: devices.map(|(bytes, _)| bytes),
        weights: weights.map(|weights| weights.resolve(audit)).transpose().map_err(error_text)?,
        context: request.context,
        requests: request.requests.unwrap_or(1),
        skip_unsupported_layers: request.partial,
        ..EngineSettings::default()
    })
}

fn place_full_layers(request: &PlaceRequest, file: &[u8]) -> WebResult<Value> {
    let options = options(request.context, request.kv_dtype.as_deref(), request.state_dtype.as_deref())?;
    let audit = request.model.audit(file, &options)?;
    let budget = parse_bytes(&request.budget).map_err(error_text)?;
    placement::find_best_placements(&audit, budget, &options)
        .map(|report| audit_json::placements(&report))
        .map_err(error_text)
}

fn lint_config(request: &LintRequest) -> WebResult<Value> {
    let text = match &request.text {
        Some(text) => text.clone(),
        None => preset_config(&request.file).ok_or_else(|| format!("there is no preset `{}`", request.file))?,
    };
    let findings = lint(&text).map_err(error_text)?;
    Ok(audit_json::findings(findings.iter().map(|finding| (request.file.as_str(), finding))))
}

fn convention(name: Option<&str>) -> WebResult<MessageSizeConvention> {
    name.map_or(Ok(MessageSizeConvention::Paper), str::parse)
}

fn capacity(request: &StackRequest) -> WebResult<Value> {
    let (plan, convention) = (request.stack.plan()?, convention(request.message.as_deref())?);
    Ok(report::capacity(&request.stack.text, &plan, &request.stack.defaults(), convention))
}

/// Returns the number of hops if the lower-bound search supports it.
fn check_hops(hops: usize) -> WebResult<usize> {
    if (1..=MAX_SEARCH_HOPS).contains(&hops) {
        return Ok(hops);
    }
    Err(format!("hops: found {hops}, expected 1 to {MAX_SEARCH_HOPS}"))
}

fn bound(request: &HopsRequest) -> WebResult<Value> {
    let hops = check_hops(request.hops)?;
    let (plan, convention) = (request.stack.plan()?, convention(request.message.as_deref())?);
    let bound_request = BoundRequest {
        input: StackBounds::new(&plan, convention).input(hops),
        plan: Some(&plan),
        heads_dim_bits: heads_dim_bits(&plan),
        hops,
        stack: &request.stack.text,
        conventions: certificate::conventions(&request.stack.defaults(), convention),
    };
    Ok(bound_request.json(&bound_request.answer()))
}

fn map(request: &HopsRequest) -> WebResult<Value> {
    let max_hops = check_hops(request.hops)?;
    let plan = request.stack.plan()?;
    let bounds = StackBounds::new(&plan, convention(request.message.as_deref())?);
    Ok((1..=max_hops).map(|hops| report::hop_map_row(&hop_map::hop_map_row(&bounds, hops))).collect())
}

fn map_row(request: &MapRowRequest, file: &[u8]) -> WebResult<Value> {
    let audit = request.model.audit_edited(file, &request.edits, &AuditOptions::default())?;
    let plan = audit.plan.ok_or("the model's layers are not all known")?;
    // For hops within the stack's rungs no search runs, so any number is accepted.
    let hops =
        if (1..=plan.capacity().rungs).contains(&request.hops) { request.hops } else { check_hops(request.hops)? };
    Ok(report::hop_map_row(&hop_map::hop_map_row(&StackBounds::new(&plan, MessageSizeConvention::Paper), hops)))
}
