//! Forged witnesses: genuine ones are changed in many ways, their digest is recomputed, and the checker must reject them.

// The size of an error matters in loops, not in tests.
#![allow(clippy::result_large_err)]

use std::path::PathBuf;
use std::time::Duration;

use rung_falsify::{Origin, RequestedPrecision, SearchBudget, TargetModel, Witness, check, falsify};
use rung_train::run::RunConfig;
use serde_json::{Value, json};

/// A small untrained model whose writes are large enough not to be rounded to zero.
fn target(stack: &str, task: &str, precision: RequestedPrecision) -> TargetModel {
    let mut config = RunConfig::new(stack, task);
    (config.model.heads, config.model.head, config.model.embedding_scale, config.model.scale) = (1, 8, 1.0, 2.0);
    let config = config.with("model.channel=none").unwrap();
    TargetModel::open(Origin::Untrained(Box::new(config)), None, precision).unwrap()
}

/// A witness that a search finds, as JSON.
fn genuine_witness(stack: &str, task: &str, precision: RequestedPrecision) -> Value {
    let budget = SearchBudget { time: Duration::from_mins(2), ..SearchBudget::default() };
    let result = falsify(&target(stack, task, precision), &budget, &|_, _| true).unwrap();
    serde_json::from_str(&result.witness.expect(stack).to_json()).unwrap()
}

fn equal_states() -> Value {
    let stack = "linear{heads=1,key=2,value=2,normaliser=no}";
    let witness = genuine_witness(stack, "funccomp{hops=1,m=6}", RequestedPrecision::Bits(4, None));
    assert!(witness["state"].is_array());
    witness
}

fn equal_residuals() -> Value {
    let witness = genuine_witness(
        "moba{heads=1,kv=1,head=4,block=4,top=2}",
        "twosum{length=33,modulus=16}",
        RequestedPrecision::AsTrained,
    );
    assert!(witness["state"].is_null() && witness["inputs"].as_array().unwrap().len() == 2);
    witness
}

fn wrong_answer() -> Value {
    let witness = genuine_witness("full", "funccomp{hops=1,m=2}", RequestedPrecision::AsTrained);
    assert_eq!(witness["inputs"].as_array().unwrap().len(), 1);
    witness
}

fn decomposition() -> Value {
    let stack = "linear{heads=1,key=2,value=2} full{heads=1,head=4}";
    let target = target(stack, "funccomp{hops=2,m=2,n=[2]}", RequestedPrecision::Bits(3, None));
    let only_method = Some(rung_falsify::Method::BorderSearch);
    let budget = SearchBudget { time: Duration::from_mins(2), only_method, ..SearchBudget::default() };
    let result = falsify(&target, &budget, &|_, _| true).unwrap();
    let witness: Value = serde_json::from_str(&result.witness.unwrap().to_json()).unwrap();
    assert!(witness["decomposition"]["alike"].as_array().unwrap().len() > 2, "{witness}");
    witness
}

/// A new path for every call.
fn new_path() -> PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("rung-witness-{}-{count}.json", std::process::id()))
}

/// The verdict of `rung witness check` on a JSON text: `holds`, `malformed: ..`, the rejection, or the error.
fn check_text(text: &str, fix_digest: bool) -> String {
    let path = new_path();
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let witness = Witness::read(&path);
        std::fs::remove_file(&path).unwrap();
        witness
    };
    let witness = match read(text) {
        Ok(witness) if fix_digest => read(&witness.with_digest().to_json()),
        other => other,
    };
    let witness = match witness {
        Ok(witness) => witness,
        Err(error) => return format!("malformed: {error}"),
    };
    let verdict = check::open(&witness, None).and_then(|target| check::check(&witness, &target));
    match verdict {
        Err(error) => format!("error: {error}"),
        Ok(Err(rejection)) => rejection.to_string(),
        Ok(Ok(_)) => "holds".to_owned(),
    }
}

/// A change of a witness: its description, the expected beginnings of the verdict, and the function.
type Forgery = (&'static str, &'static [&'static str], fn(&mut Value));

const ANY: &[&str] = &[""];
const MALFORMED: &[&str] = &["malformed: "];

fn add(value: &mut Value, amount: i64) {
    *value = (value.as_i64().unwrap() + amount).into();
}

/// Flips the last bit of a number.
fn flip_last_bit(value: &mut Value) {
    let number = value.as_f64().unwrap() as f32;
    *value = json!(f32::from_bits(number.to_bits() ^ 1));
}

fn push(value: &mut Value, item: Value) {
    value.as_array_mut().unwrap().push(item);
}

fn repeat_last(value: &mut Value) {
    let last = value.as_array().unwrap().last().unwrap().clone();
    push(value, last);
}

/// Forgeries of every witness.
const COMMON: &[Forgery] = &[
    ("another format", &["format: ", "malformed: "], |w| w["format"] = 7.into()),
    ("another name", &["model.name: found \"gpt\", computed "], |w| w["model"]["name"] = "gpt".into()),
    ("no name", &["model.name: "], |w| w["model"]["name"] = "".into()),
    ("another fingerprint", &["model.fingerprint: "], |w| w["model"]["fingerprint"] = "0".repeat(32).into()),
    ("another seed of the weights", &["model.fingerprint: "], |w| add(&mut w["model"]["origin"]["fresh"]["seed"], 1)),
    ("another norm", &["model.fingerprint: "], |w| {
        w["model"]["origin"]["fresh"]["model"]["placement"] = "post".into();
    }),
    ("another chunk", &["model.fingerprint: "], |w| w["model"]["origin"]["fresh"]["model"]["chunk"] = 3.into()),
    ("another stack", ANY, |w| w["model"]["origin"]["fresh"]["stack"] = "full full".into()),
    ("a folder that is not there", &["error: "], |w| w["model"]["origin"] = json!({"folder": "/nowhere/at/all"})),
    ("two origins", MALFORMED, |w| w["model"]["origin"]["folder"] = "/nowhere".into()),
    ("no origin", MALFORMED, |w| w["model"]["origin"] = json!({})),
    ("a method", MALFORMED, |w| w["method"] = "guided errors".into()),
    ("another task", ANY, |w| w["task"] = "parity".into()),
    ("a task that is none", ANY, |w| w["task"] = "funcomp".into()),
    ("defaults of the task left out", &["task: found "], |w| {
        let text = w["task"].as_str().unwrap().replace("funccomp{", "funccomp{ ").replace("twosum{", "twosum{ ");
        w["task"] = text.into();
    }),
    ("an earlier question", ANY, |w| add(&mut w["question"], -1)),
    ("a later question", ANY, |w| add(&mut w["question"], 1)),
    ("a question far beyond", &["question: "], |w| w["question"] = u64::MAX.into()),
    ("another answer", &["answers"], |w| add(&mut w["answers"][0], 1)),
    ("one more answer", ANY, |w| push(&mut w["answers"], 0.into())),
    ("no answers", ANY, |w| w["answers"] = json!([])),
    ("another output", &["outputs", "scores"], |w| add(&mut w["outputs"][0], 1)),
    ("no outputs", ANY, |w| w["outputs"] = json!([])),
    ("one bit of a score", &["scores"], |w| flip_last_bit(&mut w["scores"][0][0])),
    ("one more score", &["scores"], |w| push(&mut w["scores"][0], 0.5.into())),
    ("no scores", &["scores"], |w| w["scores"] = json!([])),
    ("scores of a third prompt", &["scores"], |w| repeat_last(&mut w["scores"])),
    ("one more token that sees nothing", &["blind"], |w| push(&mut w["blind"], 0.into())),
    ("a border far beyond", &["border"], |w| w["border"] = 1_000_000.into()),
    ("a state", &["state"], |w| w["state"] = json!([1.0, 2.0])),
    ("an empty state", &["state"], |w| w["state"] = json!([])),
    ("no inputs", &["inputs"], |w| w["inputs"] = json!([])),
    ("empty inputs", &["inputs"], |w| w["inputs"][0] = json!([])),
    ("three inputs", &["inputs"], |w| {
        let first = w["inputs"][0].clone();
        w["inputs"] = json!([first, first, first]);
    }),
    ("a token that is none", &["inputs"], |w| w["inputs"][0][0] = u32::MAX.into()),
    ("a longer input", &["inputs"], |w| push(&mut w["inputs"][0], 0.into())),
    ("sets of nothing", &["decomposition"], |w| {
        w["decomposition"] = json!({"starts": [], "queries": [], "first": [], "alike": [[0], [1]], "of": 4});
    }),
    ("an unknown key", MALFORMED, |w| w["extra"] = 1.into()),
    ("an unknown key of the model", MALFORMED, |w| w["model"]["extra"] = 1.into()),
    ("an unknown key of the config", MALFORMED, |w| w["model"]["origin"]["fresh"]["extra"] = 1.into()),
    ("an unknown key in the config", MALFORMED, |w| w["model"]["origin"]["fresh"]["model"]["extra"] = 1.into()),
    ("a question in quotes", MALFORMED, |w| w["question"] = w["question"].to_string().into()),
    ("a question with a point", MALFORMED, |w| w["question"] = w["question"].as_f64().unwrap().into()),
    ("a negative question", MALFORMED, |w| w["question"] = (-1).into()),
    ("a list of a question", MALFORMED, |w| w["question"] = json!([w["question"]])),
    ("answers in quotes", MALFORMED, |w| w["answers"][0] = "1".into()),
    ("an answer alone", MALFORMED, |w| w["answers"] = w["answers"][0].clone()),
    ("a score that is none", MALFORMED, |w| w["scores"][0][0] = Value::Null),
    ("a border that is true", MALFORMED, |w| w["border"] = true.into()),
    ("a format in quotes", MALFORMED, |w| w["format"] = "2".into()),
    ("a name that is none", MALFORMED, |w| w["model"]["name"] = Value::Null),
    ("a digest that is a number", MALFORMED, |w| w["digest"] = 3.into()),
    ("a model as a list", MALFORMED, |w| {
        let keys = ["name", "origin", "kept", "fingerprint"];
        w["model"] = keys.map(|key| w["model"][key].clone()).to_vec().into();
    }),
    ("sets as a list", MALFORMED, |w| w["decomposition"] = json!([[0], [0], [[0, 0]], [[0], [1]], 4])),
    ("a flag as a number", MALFORMED, |w| w["model"]["origin"]["fresh"]["model"]["tied_query_key"] = 1.into()),
    ("a part of the config as a list", MALFORMED, |w| w["model"]["origin"]["fresh"]["evaluate"] = json!([9, 9])),
    ("a config as text", MALFORMED, |w| w["model"]["origin"]["fresh"] = "full".into()),
];

/// Forgeries of witnesses with two prompts.
const PAIRS: &[Forgery] = &[
    ("the same prompt twice", &["inputs"], |w| w["inputs"][1] = w["inputs"][0].clone()),
    ("the prompts exchanged", ANY, |w| w["inputs"].as_array_mut().unwrap().swap(0, 1)),
    ("one prompt alone", ANY, |w| w["inputs"].as_array_mut().unwrap().truncate(1)),
    ("answers exchanged", &["answers"], |w| w["answers"].as_array_mut().unwrap().swap(0, 1)),
    ("equal answers", &["answers"], |w| w["answers"][1] = w["answers"][0].clone()),
    ("a later border", &["border"], |w| add(&mut w["border"], 1)),
    ("an earlier border", &["border"], |w| add(&mut w["border"], -1)),
    ("no border", &["border"], |w| w["border"] = Value::Null),
    ("no blind tokens", &["blind"], |w| w["blind"] = json!([])),
    ("the question alone blind, twice", &["blind"], |w| w["blind"] = json!([w["question"], w["question"]])),
    ("blind tokens twice", &["blind"], |w| repeat_last(&mut w["blind"])),
];

/// Forgeries of witnesses with rounded models.
const ROUNDED: &[Forgery] = &[
    ("one bit more", ANY, |w| add(&mut w["model"]["kept"]["bits"], 1)),
    ("no bits", ANY, |w| w["model"]["kept"]["bits"] = 0.into()),
    ("too many bits", ANY, |w| w["model"]["kept"]["bits"] = 99.into()),
    ("another range", ANY, |w| w["model"]["kept"]["state"] = 1e-3.into()),
    ("a negative range", &["error: "], |w| w["model"]["kept"]["state"] = (-1.0).into()),
    ("the model's own precision", ANY, |w| w["model"]["kept"] = Value::Null),
    ("an unknown key of the bits", MALFORMED, |w| w["model"]["kept"]["extra"] = 1.into()),
    ("bits as a list", MALFORMED, |w| w["model"]["kept"] = json!([4, 2.0, null])),
];

/// Forgeries of witnesses with equal states.
const STATES: &[Forgery] = &[
    ("messages in few bits as well", &["model.kept.message"], |w| w["model"]["kept"]["message"] = 1e6.into()),
    ("another state", &["state[0]"], |w| flip_last_bit(&mut w["state"][0])),
    ("one more number of state", &["state"], |w| push(&mut w["state"], 0.0.into())),
    ("no state", &["state"], |w| w["state"] = Value::Null),
];

/// Forgeries of witnesses with the sets of the proof.
const SETS: &[Forgery] = &[
    ("no starts", &["decomposition"], |w| w["decomposition"]["starts"] = json!([])),
    ("no first tables", &["decomposition"], |w| w["decomposition"]["first"] = json!([])),
    ("no queries", &["decomposition"], |w| w["decomposition"]["queries"] = json!([])),
    ("no second tables", &["decomposition"], |w| w["decomposition"]["alike"] = json!([])),
    ("one second table", &["decomposition"], |w| w["decomposition"]["alike"].as_array_mut().unwrap().truncate(1)),
    ("one second table a thousand times", &["decomposition"], |w| {
        w["decomposition"]["alike"] = vec![w["decomposition"]["alike"][0].clone(); 1000].into();
    }),
    ("a second table twice", &["decomposition"], |w| repeat_last(&mut w["decomposition"]["alike"])),
    ("one second table fewer", &["decomposition"], |w| {
        w["decomposition"]["alike"].as_array_mut().unwrap().pop();
    }),
    ("second tables in another order", &["decomposition"], |w| {
        w["decomposition"]["alike"].as_array_mut().unwrap().reverse();
    }),
    ("all second tables", &["decomposition"], |w| {
        let table = |number: u32| json!([number & 3, (number >> 2) & 3, (number >> 4) & 3, number >> 6]);
        w["decomposition"]["alike"] = (0..256).map(table).collect();
    }),
    ("a first table twice", &["decomposition"], |w| repeat_last(&mut w["decomposition"]["first"])),
    ("a start twice", &["decomposition"], |w| repeat_last(&mut w["decomposition"]["starts"])),
    ("one start fewer", &["decomposition"], |w| {
        w["decomposition"]["starts"].as_array_mut().unwrap().pop();
    }),
    ("a start that is none", &["decomposition"], |w| push(&mut w["decomposition"]["starts"], 2.into())),
    ("a query twice", &["decomposition"], |w| repeat_last(&mut w["decomposition"]["queries"])),
    ("one query fewer", &["decomposition"], |w| {
        w["decomposition"]["queries"].as_array_mut().unwrap().pop();
    }),
    ("a query that is none", &["decomposition"], |w| push(&mut w["decomposition"]["queries"], 9.into())),
    ("more tables than there are", &["decomposition"], |w| w["decomposition"]["of"] = 1_000_000.into()),
    ("no tables at all", &["decomposition"], |w| w["decomposition"]["of"] = 0.into()),
    ("a table that is too short", &["decomposition"], |w| w["decomposition"]["alike"][0] = json!([0])),
    ("an empty table", &["decomposition"], |w| w["decomposition"]["first"][0] = json!([])),
    ("a value that is none", &["decomposition"], |w| w["decomposition"]["alike"][0][0] = 4.into()),
    ("a first value that is none", &["decomposition"], |w| w["decomposition"]["first"][0][0] = 2.into()),
    ("another member", &["decomposition"], |w| {
        let member = &mut w["decomposition"]["alike"][1][0];
        *member = if *member == 3 { 0.into() } else { 3.into() };
    }),
    ("an unknown key of the sets", MALFORMED, |w| w["decomposition"]["extra"] = 1.into()),
    ("sets with a number in quotes", MALFORMED, |w| w["decomposition"]["of"] = "256".into()),
];

/// Checks that the witness holds and that every forgery is rejected as expected.
fn assert_forgeries_rejected(witness: &Value, tables: &[&[Forgery]]) {
    assert_eq!(check_text(&witness.to_string(), false), "holds");
    let mut accepted = Vec::new();
    for (name, expected, forge) in tables.iter().copied().flatten() {
        let mut forged = witness.clone();
        forge(&mut forged);
        assert_ne!(forged, *witness, "{name} changes nothing");
        let verdict = check_text(&forged.to_string(), true);
        if verdict == "holds" || !expected.iter().any(|start| verdict.starts_with(start)) {
            accepted.push(format!("{name}: {verdict}"));
        }
    }
    assert!(accepted.is_empty(), "{} of them:\n{}", accepted.len(), accepted.join("\n"));
}

#[test]
fn forged_witnesses_of_equal_states_are_rejected() {
    assert_forgeries_rejected(&equal_states(), &[COMMON, PAIRS, ROUNDED, STATES]);
}

#[test]
fn forged_witnesses_of_equal_residuals_are_rejected() {
    assert_forgeries_rejected(&equal_residuals(), &[COMMON, PAIRS]);
}

#[test]
fn forged_witnesses_of_wrong_answers_are_rejected() {
    assert_forgeries_rejected(&wrong_answer(), &[COMMON]);
}

#[test]
fn forged_sets_of_the_proof_are_rejected() {
    assert_forgeries_rejected(&decomposition(), &[COMMON, PAIRS, ROUNDED, SETS]);
}

#[test]
fn a_prompt_pair_from_outside_of_the_sets_is_rejected() {
    let genuine = decomposition();
    let mut forged = genuine.clone();
    // Sets with only one first table are valid sets, but the prompts belong to at most one of them.
    let tables = genuine["decomposition"]["first"].as_array().unwrap();
    let mut accepted = 0;
    for table in tables {
        forged["decomposition"]["first"] = json!([table]);
        let verdict = check_text(&forged.to_string(), true);
        assert!(verdict == "holds" || verdict.starts_with("decomposition"), "{verdict}");
        accepted += usize::from(verdict == "holds");
    }
    assert!(tables.len() > 1 && accepted <= 1, "{accepted} of {}", tables.len());
}

#[test]
fn missing_repeated_or_trailing_json_is_malformed() {
    let witness = wrong_answer();
    let text = witness.to_string();
    let keys: Vec<&String> = witness.as_object().unwrap().keys().collect();
    for key in &keys {
        let mut without = witness.clone();
        without.as_object_mut().unwrap().remove(*key);
        let verdict = check_text(&without.to_string(), false);
        assert!(verdict.starts_with("malformed: "), "without {key}: {verdict}");
        // The same key twice, once with each value.
        let twice = format!("{{\"{key}\":{},{}", witness[key.as_str()], &text[1..]);
        let verdict = check_text(&twice, false);
        assert!(verdict.contains("duplicate field"), "{key} twice: {verdict}");
    }
    for (from, to) in [
        ("\"model\":{", "\"model\":{\"name\":\"gpt\","),
        ("\"fresh\":{", "\"fresh\":{\"seed\":0,"),
        ("\"origin\":{", "\"origin\":{\"folder\":\"/nowhere\","),
    ] {
        assert!(text.contains(from));
        let verdict = check_text(&text.replacen(from, to, 1), false);
        assert!(verdict.starts_with("malformed: "), "{to}: {verdict}");
    }
    for text in [format!("{text}x"), format!("{text}{text}"), format!("[{text}]"), String::new(), "null".to_owned()] {
        assert!(check_text(&text, false).starts_with("malformed: "));
    }
    let mut digest = witness.clone();
    digest["digest"] = "0".repeat(32).into();
    assert!(check_text(&digest.to_string(), false).starts_with("digest: found "));
    // White space and the order of keys do not matter.
    assert_eq!(check_text(&serde_json::to_string_pretty(&witness).unwrap(), false), "holds");
}
