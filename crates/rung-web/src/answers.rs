//! The answers: each a call into the other crates and nothing else, so that the page says what the program says.

use rung_audit::engine::{self, ENGINES, EngineSettings, device};
use rung_audit::lint::lint;
use rung_audit::report::{json as audit_json, plan as plan_json};
use rung_audit::{
    Audit, AuditOptions, QUICK_CERTIFIED_HOPS, Weights, certify, parse_bytes, placement, preset_config, presets,
};
use rung_theory::bound::certificate;
use rung_theory::bound::hop_map;
use rung_theory::bound::search::MAX_SEARCH_HOPS;
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::report::{self, BoundRequest, check_certificate, heads_dim_bits};
use rung_theory::stack::{Convention, Plan, mixer};
use serde_json::{Value, json};

use crate::model::{Answer, options};
use crate::request::{
    AuditRequest, HopsRequest, LintRequest, PlaceRequest, PlanRequest, Request, RungRequest, StackRequest, Storage,
};
use crate::{design, sentence};

/// Answers everything but forward passes.
pub(crate) fn answer(request: &Request, file: &[u8]) -> Answer<Value> {
    match request {
        Request::Names => Ok(names()),
        Request::Gallery(storage) => gallery(storage),
        Request::Audit(asked) => {
            with_bounds(asked, |options| Ok(audit_json::audit(&asked.model.edited(file, &asked.edits, options)?)))
        }
        Request::WhatIf(asked) => with_bounds(asked, |options| {
            let before = asked.model.audit(file, options)?;
            let after = asked.model.edited(file, &asked.edits, options)?;
            Ok(audit_json::what_ifs(&[before], &[after]))
        }),
        Request::Design(asked) => with_bounds(asked, |options| design::design(asked, file, options)),
        Request::Plan(asked) => plan(asked, file),
        Request::Place(asked) => place_full_layers(asked, file),
        Request::Lint(asked) => lint_config(asked),
        Request::Capacity(asked) => capacity(asked),
        Request::Bound(asked) => bound(asked),
        Request::Map(asked) => map(asked),
        Request::Rung(asked) => rung(asked, file),
        Request::Check(asked) => {
            let said = check_certificate(&asked.text);
            Ok(if asked.explain { said.explained_json() } else { said.json() })
        }
        Request::Pass(_) => Err("forward passes are answered by another module".to_owned()),
    }
}

fn with_bounds(asked: &AuditRequest, answer: impl Fn(&AuditOptions) -> Answer<Value>) -> Answer<Value> {
    let most = asked.certify.unwrap_or(QUICK_CERTIFIED_HOPS);
    let ask = |plan: &Plan, hops: usize| certify(plan, hops, most);
    let plain = options(asked.context, asked.kv_dtype.as_deref(), asked.state_dtype.as_deref())?;
    answer(&AuditOptions { bound_oracle: (most > 0).then_some(&ask), ..plain })
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

fn gallery(storage: &Storage) -> Answer<Value> {
    let options = options(storage.context, storage.kv_dtype.as_deref(), storage.state_dtype.as_deref())?;
    let one = |name| Ok(design::brief(name, &rung_audit::audit_preset(name, &options).map_err(sentence)?));
    presets().map(one).collect::<Answer<Vec<Value>>>().map(Value::Array)
}

fn plan(asked: &PlanRequest, file: &[u8]) -> Answer<Value> {
    let audit = asked.model.edited(file, &asked.edits, &AuditOptions::default())?;
    let engine = engine::engine(&asked.engine).map_err(sentence)?;
    let settings = settings(asked, &audit)?;
    engine::plan(&audit, engine, &settings).map(|plan| plan_json::json(&plan)).map_err(sentence)
}

fn settings(asked: &PlanRequest, audit: &Audit) -> Answer<EngineSettings> {
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let on = text(&asked.on).map(|on| device::parse_devices(&on)).transpose().map_err(sentence)?;
    let weights = text(&asked.weights).map(|text| text.parse::<Weights>()).transpose().map_err(sentence)?;
    Ok(EngineSettings {
        tp: asked.tp.or(on.map(|(_, count)| count)).unwrap_or(1),
        kv_format: text(&asked.kv_dtype).map(|text| text.parse()).transpose().map_err(sentence)?,
        state_dtype: crate::model::dtype(asked.state_dtype.as_deref())?,
        memory: on.map(|(bytes, _)| bytes),
        weights: weights.map(|weights| weights.resolve(audit)).transpose().map_err(sentence)?,
        context: asked.context,
        requests: asked.requests.unwrap_or(1),
        partial: asked.partial,
        ..EngineSettings::default()
    })
}

fn place_full_layers(asked: &PlaceRequest, file: &[u8]) -> Answer<Value> {
    let options = options(asked.context, asked.kv_dtype.as_deref(), asked.state_dtype.as_deref())?;
    let audit = asked.model.audit(file, &options)?;
    let budget = parse_bytes(&asked.budget).map_err(sentence)?;
    placement::search(&audit, budget, &options).map(|report| audit_json::placements(&report)).map_err(sentence)
}

fn lint_config(asked: &LintRequest) -> Answer<Value> {
    let text = match &asked.text {
        Some(text) => text.clone(),
        None => preset_config(&asked.file).ok_or_else(|| format!("there is no preset `{}`", asked.file))?,
    };
    let findings = lint(&text).map_err(sentence)?;
    Ok(audit_json::findings(findings.iter().map(|finding| (asked.file.as_str(), finding))))
}

fn convention(name: Option<&str>) -> Answer<Convention> {
    name.map_or(Ok(Convention::Paper), str::parse)
}

fn capacity(asked: &StackRequest) -> Answer<Value> {
    let (plan, convention) = (asked.stack.plan()?, convention(asked.message.as_deref())?);
    Ok(report::capacity(&asked.stack.text, &plan, &asked.stack.defaults(), convention))
}

fn searchable(hops: usize) -> Answer<usize> {
    if (1..=MAX_SEARCH_HOPS).contains(&hops) {
        return Ok(hops);
    }
    Err(format!("hops: found {hops}, expected 1 to {MAX_SEARCH_HOPS}"))
}

fn bound(asked: &HopsRequest) -> Answer<Value> {
    let hops = searchable(asked.hops)?;
    let (plan, convention) = (asked.stack.plan()?, convention(asked.message.as_deref())?);
    let request = BoundRequest {
        input: StackBounds::new(&plan, convention).input(hops),
        plan: Some(&plan),
        heads_dim_bits: heads_dim_bits(&plan),
        hops,
        stack: &asked.stack.text,
        conventions: certificate::conventions(&asked.stack.defaults(), convention),
    };
    Ok(request.json(&request.answer()))
}

fn map(asked: &HopsRequest) -> Answer<Value> {
    let most = searchable(asked.hops)?;
    let plan = asked.stack.plan()?;
    let bounds = StackBounds::new(&plan, convention(asked.message.as_deref())?);
    Ok((1..=most).map(|hops| report::rung(&hop_map::rung(&bounds, hops))).collect())
}

fn rung(asked: &RungRequest, file: &[u8]) -> Answer<Value> {
    let audit = asked.model.edited(file, &asked.edits, &AuditOptions::default())?;
    let plan = audit.plan.ok_or("the model's layers are not all known")?;
    // Within the rungs nothing is searched, however many they are.
    let hops = if (1..=plan.capacity().rungs).contains(&asked.hops) { asked.hops } else { searchable(asked.hops)? };
    Ok(report::rung(&hop_map::rung(&StackBounds::new(&plan, Convention::Paper), hops)))
}
