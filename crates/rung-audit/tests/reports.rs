//! Reports: JSON against its schema, text, HTML pages, the plot, what-if edits and placements.

mod schema;

use rung_audit::report::plot::CachePlot;
use rung_audit::report::{html, json, table, text};
use rung_audit::{
    AttentionScope, Audit, AuditOptions, BoundSearchResult, audit_preset, audit_text, parse_bytes, placement, presets,
    what_if,
};
use rung_figure::figure::Chart as _;
use schema::validate;
use serde_json::{Value, json};

fn preset(name: &str) -> Audit {
    audit_preset(name, &AuditOptions::default()).unwrap()
}

fn all_presets() -> Vec<Audit> {
    presets().map(preset).collect()
}

fn check_schema(value: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(include_str!("../schemas/audit.schema.json")).unwrap();
    validate(&schema, &schema, value, "$")
}

#[test]
fn json_follows_the_published_schema() {
    check_schema(&json::audits(&all_presets())).unwrap();
    let audit = preset("nemotron-3-nano-30b-a3b");
    check_schema(&json::audit(&audit)).unwrap();
    let unknown =
        audit_text(r#"{"num_hidden_layers": 1, "layer_types": ["odd"]}"#, "test", &AuditOptions::default()).unwrap();
    check_schema(&json::audit(&unknown)).unwrap();
    check_schema(&json::audit(&audit_text("{}", "test", &AuditOptions::default()).unwrap())).unwrap();
    let edited = what_if::apply(&audit, "every=2", &AuditOptions::default()).unwrap();
    check_schema(&json::what_ifs(std::slice::from_ref(&audit), &[edited])).unwrap();
    // The validator rejects wrong documents.
    let mut wrong = json::audit(&audit);
    wrong["layers"][3]["attention"] = json!("some");
    assert!(check_schema(&wrong).is_err());
    wrong = json::audit(&audit);
    wrong["new"] = json!(1);
    assert!(check_schema(&wrong).is_err());
}

#[test]
fn json_keys_are_stable() {
    let value = json::audit(&preset("qwen3.5-9b"));
    assert_eq!(value["model"], "qwen3.5-9b");
    assert_eq!(
        value["layers"][3],
        json!({"attention": "full", "recurrent": null, "channel": "dense", "shares_cache": false, "decided_by": "text_config.layer_types[3]"})
    );
    assert_eq!(value["layers"][0]["recurrent"], "gdn");
    for (name, expected) in [
        ("full_layers", json!(8)),
        ("extra_hop", json!(true)),
        ("rungs", json!(8)),
        ("bytes_per_token", json!(32_768)),
        ("state_bytes", json!(51_511_296)),
        ("window_bytes", json!(0)),
        ("context", json!(131_072)),
        ("unknown", json!([])),
    ] {
        assert_eq!(value[name], expected, "{name}");
    }
}

#[test]
fn text_report_states_the_lower_bound() {
    let report_with_bound = |log2: f64| {
        let oracle = move |_: &rung_theory::stack::Plan, hops: usize| match hops {
            5 => BoundSearchResult::Certified { log2_tokens: log2 },
            _ => BoundSearchResult::Skipped,
        };
        let options = AuditOptions { bound_searcher: Some(&oracle), ..AuditOptions::default() };
        text::audit(&audit_preset("jamba-v0.1", &options).unwrap(), false)
    };
    assert!(report_with_bound(10.0).contains("5 hops are proved impossible from 2^10.0 tokens on"));
    assert!(
        report_with_bound(300.0)
            .contains("none that applies at 131,072 tokens (5 hops are proved impossible from 2^300.0 tokens on)")
    );
    let report_without_search = |name| text::audit(&preset(name), false);
    assert!(
        report_without_search("jamba-v0.1")
            .contains("not searched for 5 hops; `rung audit --certify` searches up to 8")
    );
    assert!(report_without_search("qwen3.5-9b").contains("unknown for 9 hops: proofs are searched up to 8 hops"));
    assert!(
        report_without_search("llama-3.1-8b")
            .contains("exactly 31: 32 full layers, less the one that must first find the start")
    );
}

#[test]
fn text_report_has_colours_only_if_requested() {
    let audit = preset("gpt-oss-20b");
    assert!(!text::audit(&audit, false).contains('\x1b'));
    assert!(text::audit(&audit, true).contains("\x1b[30;43mW\x1b[0m\x1b[1;97;44mF"));
}

#[test]
fn html_pages_load_nothing_and_escape_names() {
    let mut audit = preset("gemma-3-4b");
    audit.model = "<script>alert(1)</script>".to_owned();
    let page = html::page(&[audit], "a & b").unwrap();
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    assert!(page.contains("<title>a &amp; b</title>"));
    assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("<link"));
    assert_eq!(page.matches("\">W</span>").count(), 29);
    assert_eq!(html::page(&all_presets(), "all").unwrap().matches("<h2 ").count(), presets().len() + 1);
}

#[test]
fn plot_shows_every_model_without_overlapping_labels() {
    let audits = all_presets();
    let plot = CachePlot::new(&audits);
    let svg = plot.svg();
    for audit in &audits {
        assert!(svg.contains(&audit.model), "{}", audit.model);
    }
    assert_eq!(plot.overlap_count(), 0);
    assert!(svg.starts_with("<svg") && svg.contains("sans-serif"));
    // An empty plot is still valid.
    assert!(CachePlot::new(&[]).svg().ends_with("</svg>\n"));
}

#[test]
fn table_sorts_by_each_column() {
    let mut audits = all_presets();
    for by in table::SORT_COLUMNS {
        table::sort(&mut audits, by).unwrap();
    }
    table::sort(&mut audits, "rungs").unwrap();
    assert!(audits.is_sorted_by_key(|audit| audit.capacity.as_ref().unwrap().rungs));
    assert_eq!(audits.last().unwrap().model, "glm-5.2");
    assert!(table::sort(&mut audits, "size").unwrap_err().to_string().contains("expected one of name, rungs"));
    assert_eq!(table::text(&audits).lines().count(), presets().len() + 3);
}

#[test]
fn what_if_edits_change_the_named_layers() {
    let edit = |name: &str, edit: &str| what_if::apply(&preset(name), edit, &AuditOptions::default()).unwrap();
    assert_eq!(edit("lfm2-1.2b", "7=full").layer_letters(), "rrFrrFrFFrFrFrFr");
    assert_eq!(edit("lfm2-1.2b", "first=full").layer_letters(), "FrFrrFrrFrFrFrFr");
    assert_eq!(edit("lfm2-1.2b", "every=4").layer_letters(), "rrrFrrrFrrrFrrrF");
    assert_eq!(edit("lfm2-1.2b", "ratio=5:1").layer_letters(), "rrrrrFrrrrrFrrrr");
    assert_eq!(edit("lfm2-1.2b", "0-3=window, last=none").layer_letters(), "WWWWrFrrFrFrFrF.");
    assert_eq!(edit("lfm2-1.2b", "all=full").layer_letters(), "F".repeat(16));
    // Layers without a mixer are neither changed nor counted.
    assert!(edit("nemotron-nano-9b-v2", "every=2").layer_letters().starts_with("r.F.r.Fr."));
    // A full layer more is a rung more, and costs its cache.
    let (before, after) = (preset("qwen3.5-9b"), edit("qwen3.5-9b", "0=full"));
    assert_eq!(after.capacity.unwrap().rungs, before.capacity.unwrap().rungs + 1);
    assert_eq!(after.cache.unwrap().per_token - before.cache.unwrap().per_token, 4096);
    assert_eq!(after.layers[0].decided_by, "what-if 0=full");
    // A model without recurrent layers gets Gated DeltaNet layers, and the assumption is listed.
    let edited = edit("llama-3.1-8b", "every=4");
    assert_eq!(
        (edited.layers[0].attention, edited.layers[0].recurrent),
        (Some(AttentionScope::NoAttention), Some("gdn"))
    );
    assert!(edited.assumptions.iter().any(|note| note.contains("Gated DeltaNet")));
    for wrong in ["", "7", "99=full", "7=odd", "every=0", "every=99", "ratio=5", "ratio=5:0", "5-3=full", "=", "x=full"]
    {
        assert!(what_if::apply(&preset("lfm2-1.2b"), wrong, &AuditOptions::default()).is_err(), "{wrong}");
    }
}

#[test]
fn placements_fit_the_budget_with_the_most_rungs() {
    let audit = preset("lfm2-1.2b");
    let report = placement::find_best_placements(&audit, 1 << 30, &AuditOptions::default()).unwrap();
    // A full layer takes 256 MiB, another 8 KiB: three full layers fit into a GiB.
    assert_eq!((report.full_bytes, report.other_bytes, report.rungs), (268_435_456, 8192, Some(3)));
    let group = &report.groups[0];
    assert_eq!((group.full_layer_count, group.count), (3, Some(560 - 14)));
    for example in &group.examples {
        let edits: Vec<String> = (0..16)
            .map(|index| format!("{index}={}", if example.full_layers.contains(&index) { "full" } else { "recurrent" }))
            .collect();
        let edited = what_if::apply(&audit, &edits.join(","), &AuditOptions::default()).unwrap();
        assert_eq!(
            (edited.capacity.unwrap().rungs, edited.cache.unwrap().total),
            (3, group.cache_bytes),
            "{}",
            example.description
        );
        assert_eq!(edited.layers.iter().map(rung_audit::AuditLayer::letter).collect::<String>(), example.letters);
    }
    // With one layer that is not full the stack has as many rungs as with all full, and is cheaper.
    let large_budget = placement::find_best_placements(&audit, 1 << 40, &AuditOptions::default()).unwrap();
    assert_eq!(large_budget.rungs, Some(15));
    assert_eq!(
        large_budget.groups.iter().map(|group| (group.full_layer_count, group.count)).collect::<Vec<_>>(),
        [(15, Some(2)), (16, Some(1))]
    );
    assert_eq!(placement::find_best_placements(&audit, 1, &AuditOptions::default()).unwrap().rungs, None);
}

#[test]
fn placements_equal_a_brute_force_search() {
    let config = |layers: usize| {
        format!(
            r#"{{"num_hidden_layers": {layers}, "hidden_size": 8, "num_attention_heads": 2, "full_attn_idxs": [0], "conv_L_cache": 3}}"#
        )
    };
    for depth in 1..=7 {
        let audit =
            audit_text(&config(depth), "small", &AuditOptions { context: 16, ..AuditOptions::default() }).unwrap();
        for budget in [0_u64, 64, 600, 1100, 1700, 3000, 5000] {
            let options = AuditOptions { context: 16, ..AuditOptions::default() };
            let report = placement::find_best_placements(&audit, budget, &options).unwrap();
            let mut best: Option<usize> = None;
            let mut counts = std::collections::BTreeMap::new();
            for bits in 0_u32..1 << depth {
                let edits: Vec<String> = (0..depth)
                    .map(|index| format!("{index}={}", if bits >> index & 1 == 1 { "full" } else { "recurrent" }))
                    .collect();
                let edited = what_if::apply(&audit, &edits.join(","), &options).unwrap();
                if edited.cache.unwrap().total <= budget {
                    let rungs = edited.capacity.unwrap().rungs;
                    best = best.max(Some(rungs));
                    *counts.entry((rungs, bits.count_ones() as usize)).or_insert(0_u128) += 1;
                }
            }
            assert_eq!(report.rungs, best, "{depth} layers, {budget} bytes");
            for group in &report.groups {
                assert_eq!(
                    group.count,
                    counts.get(&(best.unwrap(), group.full_layer_count)).copied(),
                    "{depth} layers, {budget} bytes, {} full",
                    group.full_layer_count
                );
            }
        }
    }
}

#[test]
fn parse_bytes_accepts_units() {
    for (text, bytes) in [
        ("4GiB", 4 << 30),
        ("500MB", 500_000_000),
        ("1.5 kb", 1500),
        ("2e9", 2_000_000_000),
        ("1_000", 1000),
        ("1TiB", 1 << 40),
    ] {
        assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
    }
    for text in ["", "GB", "-1GB", "4 apples", "1e99", "NaN"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
}
