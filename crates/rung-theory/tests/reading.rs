//! Hostile text: the grammar and the certificate reader answer every input, quickly, and never panic.
//!
//! Run longer with `PROPTEST_CASES=1000000 cargo test --release -p rung-theory --test reading`.

use proptest::prelude::*;
use rung_theory::bound::certificate::{self, CertificateError};
use rung_theory::bound::checker::TokensPer;
use rung_theory::bound::checker::check;
use rung_theory::stack::{Defaults, Plan, Stack};

const CERTIFICATE: &str = r#"{"case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "164", "n": ["17"],
 "x": ["153", "35"], "sigma": ["1352"], "kappa": ["17"], "tokens_per": [1, 1, 1], "stack": "linear full linear"}"#;

fn refused(text: &str) -> CertificateError {
    certificate::read(text).unwrap_err()
}

#[test]
fn the_certificate_of_this_test_is_accepted() {
    assert!(check(&certificate::read(CERTIFICATE).unwrap()).is_ok());
}

#[test]
fn malformed_certificates_are_named() {
    let change = |from: &str, to: &str| {
        assert!(CERTIFICATE.contains(from));
        refused(&CERTIFICATE.replacen(from, to, 1)).to_string()
    };
    assert!(change("\"164\"", "164").contains("field `m`: found 164, expected a decimal string"));
    assert!(change("\"164\"", "\"0164\"").contains("field `m`"));
    assert!(change("\"164\"", "\"1.5\"").contains("field `m`"));
    assert!(change("\"164\"", "\"-3\"").contains("field `m`"));
    assert!(change("\"164\"", "\"1e9\"").contains("field `m`"));
    assert!(change("\"153\"", "\"\"").contains("field `x[0]`"));
    assert!(change("\"m\": \"164\",", "").contains("field `m` is missing"));
    assert!(change("\"case\"", "\"kase\"").contains("field `kase` is not part"));
    assert!(change("\"hops\": 2", "\"hops\": 2.0").contains("field `hops`"));
    assert!(change("\"hops\": 2", "\"hops\": 1000").contains("field `hops`"));
    assert!(change("[1, 1, 1]", "[1, 1]").contains("field `tokens_per`"));
    assert!(change("\"m\": \"164\"", "\"m\": \"164\", \"m\": \"165\"").contains("field `m` stands twice"));
    assert!(change("[\"17\"],\n", "\"17\",\n").contains("field `n`"));
}

#[test]
fn huge_and_deep_certificates_cost_nothing() {
    let million = CERTIFICATE.replacen("164", &"9".repeat(1_000_000), 1);
    assert!(refused(&million).to_string().contains("field `m`: found \"999"));
    assert!(refused(&million.repeat(2)).to_string().contains("bytes, expected at most"));
    let long = "9".repeat(5000);
    assert!(refused(&CERTIFICATE.replacen("164", &long, 1)).to_string().contains("2000 digits"));
    assert!(matches!(refused(&"[".repeat(500_000)), CertificateError::Json(_)));
    assert!(matches!(refused(""), CertificateError::Json(_)));
    assert_eq!(refused("[]"), CertificateError::NotAnObject("a list"));
}

#[test]
fn the_longest_readable_numbers_are_checked_quickly() {
    let long = "7".repeat(2000);
    let list = |count: usize| format!("[{}]", vec![format!("\"{long}\""); count].join(","));
    let ones = |count: usize| format!("[{}]", vec!["\"1\""; count].join(","));
    let text = format!(
        r#"{{"case": 1, "hops": 12, "message_bits": "{long}", "state_bits": {}, "m": "{long}", "n": {}, "x": {},
            "sigma": {}, "kappa": {}, "tokens_per": [1, 1, 1]}}"#,
        list(12),
        list(11),
        list(12),
        list(11),
        ones(11)
    );
    assert!(check(&certificate::read(&text).unwrap()).is_err());
}

/// Text that looks like a stack, or almost.
fn nearly_a_stack() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("full"),
        Just("linear"),
        Just("gdn"),
        Just("mamba2{heads=8}"),
        Just("("),
        Just(")"),
        Just(" "),
        Just("*"),
        Just("*3"),
        Just("+"),
        Just("{"),
        Just("}"),
        Just("="),
        Just(","),
        Just("99999999"),
        Just("window{size=3}"),
        Just("é"),
        Just("[1,2]"),
        Just("bits"),
        Just("full*2 "),
    ];
    prop_oneof![proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat()), any::<String>()]
}

/// A stack as a tree, printed.
fn a_stack() -> impl Strategy<Value = String> {
    let layer = prop_oneof![Just("full"), Just("linear{map=relu}"), Just("full+mamba2"), Just("gdn{heads=2,key=4}")];
    let leaf = (layer, 1_u32..4)
        .prop_map(|(layer, times)| if times == 1 { layer.to_owned() } else { format!("{layer}*{times}") });
    leaf.prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 1..4), 1_u32..4).prop_map(|(items, times)| match times {
            1 => format!("({})", items.join(" ")),
            _ => format!("({})*{times}", items.join(" ")),
        })
    })
}

proptest! {
    #[test]
    fn the_grammar_answers_anything(text in nearly_a_stack()) {
        if let Ok(stack) = Stack::parse(&text) {
            let printed = stack.to_string();
            prop_assert_eq!(Stack::parse(&printed).unwrap().to_string(), printed);
            let _ = Plan::resolve(&stack, &Defaults::default()).map(|plan| plan.capacity());
        }
    }

    #[test]
    fn stacks_round_trip(text in a_stack()) {
        let stack = Stack::parse(&text).unwrap();
        prop_assert_eq!(&stack.to_string(), &text);
        let plan = Plan::resolve(&stack, &Defaults::default()).unwrap();
        let again = Plan::parse(&plan.to_stack().to_string(), &Defaults::default()).unwrap();
        prop_assert_eq!(again, plan);
    }

    #[test]
    fn the_certificate_reader_answers_anything(text in any::<String>()) {
        let _ = certificate::read(&text).map(|point| check(&point));
    }

    #[test]
    fn a_damaged_certificate_is_read_or_refused(at in 0..CERTIFICATE.len(), cut in 0..40_usize, with in "[\\PC]{0,6}") {
        let mut text = CERTIFICATE.to_owned();
        let end = (at + cut).min(text.len());
        if text.is_char_boundary(at) && text.is_char_boundary(end) {
            text.replace_range(at..end, &with);
            let _ = certificate::read(&text).map(|point| check(&point));
        }
    }
}

/// A certificate that names its stack and how its bits were counted.
const NAMED: &str = r#"{"case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "164", "n": ["17"],
 "x": ["153", "35"], "sigma": ["1352"], "kappa": ["17"], "tokens_per": [1, 1, 1], "stack": "linear full linear",
 "conventions": {"message": "paper", "message_formula": "2*H*d*p", "heads": 1, "head_dim": 4, "kv_heads": null,
  "width": null, "bits_per_number": 4, "attention": "sums run from left to right"}}"#;

#[test]
fn wrongly_typed_conventions_are_malformed() {
    let point = certificate::read(NAMED).unwrap();
    assert_eq!(certificate::names_its_stack(NAMED, &point), Ok(true));
    let change = |from: &str, to: &str| {
        assert!(NAMED.contains(from), "{from}");
        refused(&NAMED.replacen(from, to, 1)).to_string()
    };
    for wrong in ["\"8192\"", "8192.0", "-8192", "[8192]", "true", "{}", "0"] {
        let message = change("\"width\": null", &format!("\"width\": {wrong}"));
        assert!(message.contains("field `conventions.width`"), "{message}");
    }
    for (from, to, field) in [
        ("\"heads\": 1", "\"heads\": \"1\"", "conventions.heads"),
        ("\"heads\": 1", "\"heads\": null", "conventions.heads"),
        ("\"head_dim\": 4", "\"head_dim\": 4.5", "conventions.head_dim"),
        ("\"kv_heads\": null", "\"kv_heads\": \"2\"", "conventions.kv_heads"),
        ("\"bits_per_number\": 4", "\"bits_per_number\": [4]", "conventions.bits_per_number"),
        ("\"paper\"", "7", "conventions.message"),
        ("\"paper\"", "\"papers\"", "conventions.message"),
        ("\"2*H*d*p\"", "\"H*d*p\"", "conventions.message_formula"),
        ("\"sums run from left to right\"", "[]", "conventions.attention"),
        ("\"linear full linear\"", "[\"linear\"]", "stack"),
        ("\"stack\"", "\"accept\": \"yes\", \"stack\"", "accept"),
        ("\"stack\"", "\"why\": 3, \"stack\"", "why"),
    ] {
        let message = change(from, to);
        assert!(message.contains(&format!("field `{field}`: found")), "{message}");
    }
    let whole = NAMED.find("{\"message\"").unwrap();
    for wrong in ["null", "[]", "\"paper\"", "1"] {
        let message = refused(&format!("{}{wrong}}}", &NAMED[..whole])).to_string();
        assert!(message.contains("field `conventions`: found"), "{message}");
    }
}

#[test]
fn unknown_and_duplicate_keys_are_malformed_at_every_depth() {
    let change = |from: &str, to: &str| refused(&NAMED.replacen(from, to, 1)).to_string();
    let unknown = change("\"heads\": 1", "\"heads\": 1, \"layers\": 3");
    assert!(unknown.contains("field `conventions.layers` is not part of a certificate"), "{unknown}");
    let twice = change("\"heads\": 1", "\"heads\": 1, \"heads\": 2");
    assert!(twice.contains("field `heads` stands twice"), "{twice}");
    assert!(change("\"stack\"", "\"stack\": \"full\", \"stack\"").contains("field `stack` stands twice"));
    assert!(change("\"164\"", "{\"a\": 1, \"a\": 2}").contains("field `a` stands twice"));
}

#[test]
fn a_stack_is_not_vouched_for_beyond_the_length_for_which_its_bits_were_counted() {
    // Sixteen levels hold the state of prompts shorter than 2^15 tokens.
    let stack = "loglinear-gdn{levels=16,conv=0} full";
    let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
    let plan = Plan::parse(stack, &defaults).unwrap();
    let limit = plan.log2_context().unwrap();
    let capacity = plan.capacity();
    let question = rung_theory::bound::input::BoundInput::for_stack(&capacity, 2, &TokensPer::default()).unwrap();
    let conventions = certificate::conventions(&defaults, rung_theory::stack::Convention::Paper);
    let judge = |m: u32, n: u32| {
        let found = rung_theory::bound::search::for_tables(&question, &m.into(), &[n.into()]).unwrap();
        let text = certificate::write(&found.certificate, stack, &conventions).to_string();
        let point = certificate::read(&text).unwrap();
        (found.accepted.tokens.bits(), certificate::names_its_stack(&text, &point))
    };
    let (bits, inside) = judge(2000, 14);
    assert!(bits <= limit && inside == Ok(true), "{bits} {limit} {inside:?}");
    let (bits, beyond) = judge(40_000, 100);
    assert!(bits > limit && beyond.as_ref().is_err_and(|reason| reason.contains("tokens")), "{bits} {beyond:?}");
}
