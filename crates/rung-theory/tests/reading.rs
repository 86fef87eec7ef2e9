//! Invalid input: the stack grammar and the certificate parser handle every text quickly and never panic.
//!
//! Run longer with `PROPTEST_CASES=1000000 cargo test --release -p rung-theory --test reading`.

use proptest::prelude::*;
use rung_theory::bound::certificate::{self, CertificateError};
use rung_theory::bound::checker::TokenCounts;
use rung_theory::bound::checker::check;
use rung_theory::stack::{Defaults, Plan, Stack};

const CERTIFICATE: &str = r#"{"case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "164", "n": ["17"],
 "x": ["153", "35"], "sigma": ["1352"], "kappa": ["17"], "tokens_per": [1, 1, 1], "stack": "linear full linear"}"#;

fn parse_error(text: &str) -> CertificateError {
    certificate::read(text).unwrap_err()
}

#[test]
fn the_example_certificate_is_accepted() {
    assert!(check(&certificate::read(CERTIFICATE).unwrap()).is_ok());
}

#[test]
fn parse_errors_name_the_malformed_field() {
    let change = |from: &str, to: &str| {
        assert!(CERTIFICATE.contains(from));
        parse_error(&CERTIFICATE.replacen(from, to, 1)).to_string()
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
    assert!(change("\"m\": \"164\"", "\"m\": \"164\", \"m\": \"165\"").contains("field `m` occurs twice"));
    assert!(change("[\"17\"],\n", "\"17\",\n").contains("field `n`"));
}

#[test]
fn huge_and_deeply_nested_certificates_are_rejected_early() {
    let million = CERTIFICATE.replacen("164", &"9".repeat(1_000_000), 1);
    assert!(parse_error(&million).to_string().contains("field `m`: found \"999"));
    assert!(parse_error(&million.repeat(2)).to_string().contains("bytes, expected at most"));
    let long = "9".repeat(5000);
    assert!(parse_error(&CERTIFICATE.replacen("164", &long, 1)).to_string().contains("2000 digits"));
    assert!(matches!(parse_error(&"[".repeat(500_000)), CertificateError::Json(_)));
    assert!(matches!(parse_error(""), CertificateError::Json(_)));
    assert_eq!(parse_error("[]"), CertificateError::NotAnObject("a list"));
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

/// Random text from pieces of stack syntax, or any string.
fn stack_like_text() -> impl Strategy<Value = String> {
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

/// The text of a random valid stack.
fn valid_stack_text() -> impl Strategy<Value = String> {
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
    fn stack_parser_does_not_panic(text in stack_like_text()) {
        if let Ok(stack) = Stack::parse(&text) {
            let printed = stack.to_string();
            prop_assert_eq!(Stack::parse(&printed).unwrap().to_string(), printed);
            let _ = Plan::resolve(&stack, &Defaults::default()).map(|plan| plan.capacity());
        }
    }

    #[test]
    fn valid_stacks_round_trip_through_text(text in valid_stack_text()) {
        let stack = Stack::parse(&text).unwrap();
        prop_assert_eq!(&stack.to_string(), &text);
        let plan = Plan::resolve(&stack, &Defaults::default()).unwrap();
        let again = Plan::parse(&plan.to_stack().to_string(), &Defaults::default()).unwrap();
        prop_assert_eq!(again, plan);
    }

    #[test]
    fn certificate_parser_does_not_panic(text in any::<String>()) {
        let _ = certificate::read(&text).map(|certificate| check(&certificate));
    }

    #[test]
    fn certificate_parser_does_not_panic_on_damaged_text(start in 0..CERTIFICATE.len(), length in 0..40_usize, replacement in "[\\PC]{0,6}") {
        let mut text = CERTIFICATE.to_owned();
        let end = (start + length).min(text.len());
        if text.is_char_boundary(start) && text.is_char_boundary(end) {
            text.replace_range(start..end, &replacement);
            let _ = certificate::read(&text).map(|certificate| check(&certificate));
        }
    }
}

/// A certificate that names its stack and the conventions for counting its bits.
const WITH_STACK: &str = r#"{"case": 1, "hops": 2, "message_bits": "32", "state_bits": ["80", "80"], "m": "164", "n": ["17"],
 "x": ["153", "35"], "sigma": ["1352"], "kappa": ["17"], "tokens_per": [1, 1, 1], "stack": "linear full linear",
 "conventions": {"message": "paper", "message_formula": "2*H*d*p", "heads": 1, "head_dim": 4, "kv_heads": null,
  "width": null, "bits_per_number": 4, "attention": "sums run from left to right"}}"#;

#[test]
fn conventions_of_the_wrong_type_are_rejected() {
    let parsed = certificate::read(WITH_STACK).unwrap();
    assert_eq!(certificate::matches_named_stack(WITH_STACK, &parsed), Ok(true));
    let change = |from: &str, to: &str| {
        assert!(WITH_STACK.contains(from), "{from}");
        parse_error(&WITH_STACK.replacen(from, to, 1)).to_string()
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
    let conventions_start = WITH_STACK.find("{\"message\"").unwrap();
    for wrong in ["null", "[]", "\"paper\"", "1"] {
        let message = parse_error(&format!("{}{wrong}}}", &WITH_STACK[..conventions_start])).to_string();
        assert!(message.contains("field `conventions`: found"), "{message}");
    }
}

#[test]
fn unknown_and_duplicate_keys_are_rejected_at_every_depth() {
    let change = |from: &str, to: &str| parse_error(&WITH_STACK.replacen(from, to, 1)).to_string();
    let unknown = change("\"heads\": 1", "\"heads\": 1, \"layers\": 3");
    assert!(unknown.contains("field `conventions.layers` is not part of a certificate"), "{unknown}");
    let duplicate = change("\"heads\": 1", "\"heads\": 1, \"heads\": 2");
    assert!(duplicate.contains("field `heads` occurs twice"), "{duplicate}");
    assert!(change("\"stack\"", "\"stack\": \"full\", \"stack\"").contains("field `stack` occurs twice"));
    assert!(change("\"164\"", "{\"a\": 1, \"a\": 2}").contains("field `a` occurs twice"));
}

#[test]
fn matches_named_stack_rejects_prompts_longer_than_the_stacks_context_limit() {
    // Sixteen levels are enough for prompts shorter than 2^15 tokens.
    let stack = "loglinear-gdn{levels=16,conv=0} full";
    let defaults = Defaults { heads: 1, head_dim: 4, bits: 4, ..Defaults::default() };
    let plan = Plan::parse(stack, &defaults).unwrap();
    let limit = plan.log2_context().unwrap();
    let capacity = plan.capacity();
    let input = rung_theory::bound::input::BoundInput::for_stack(&capacity, 2, &TokenCounts::default()).unwrap();
    let conventions = certificate::conventions(&defaults, rung_theory::stack::MessageSizeConvention::Paper);
    let certify = |m: u32, n: u32| {
        let checked = rung_theory::bound::search::certificate_for_tables(&input, &m.into(), &[n.into()]).unwrap();
        let text = certificate::write(&checked.certificate, stack, &conventions).to_string();
        let parsed = certificate::read(&text).unwrap();
        (checked.accepted.tokens.bits(), certificate::matches_named_stack(&text, &parsed))
    };
    let (bits, inside) = certify(2000, 14);
    assert!(bits <= limit && inside == Ok(true), "{bits} {limit} {inside:?}");
    let (bits, beyond) = certify(40_000, 100);
    assert!(bits > limit && beyond.as_ref().is_err_and(|reason| reason.contains("tokens")), "{bits} {beyond:?}");
}
