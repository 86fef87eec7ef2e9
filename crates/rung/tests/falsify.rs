//! Witnesses as a user meets them: found, shown, checked, and refused once anything is changed.

mod common;

use common::{fails, rung, scratch, text};
use serde_json::Value;

/// What a command says as JSON, and its exit code.
fn json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = rung(&[arguments, &["--json"][..]].concat());
    let said = serde_json::from_slice(&output.stdout);
    (
        said.unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
        output.status.code(),
    )
}

/// An untrained model that writes with vigour, so that few bits are not simply zero.
fn untrained(stack: &str, task: &str, more: &[&str]) -> Vec<String> {
    let fixed = ["falsify", "--stack", stack, "--task", task, "--budget", "60"];
    let set = ["model.heads=1", "model.head=8", "model.embedding_scale=1.0", "model.scale=2.0", "model.channel=none"];
    let set = set.iter().flat_map(|setting| ["--set", setting]);
    fixed.into_iter().chain(set).chain(more.iter().copied()).map(str::to_owned).collect()
}

const CASES: [(&str, &str, &[&str], &str); 10] = [
    ("linear{heads=1,key=3,value=3,normaliser=no}", "funccomp{hops=1,m=8}", &["--bits", "4"], "state collision"),
    ("hgrn2{expand=1}", "funccomp{hops=1,m=8}", &["--bits", "4"], "state collision"),
    ("mamba2{heads=1,head=4,state=2,conv=2}", "funccomp{hops=1,m=8}", &["--bits", "3"], "state collision"),
    ("deltanet{heads=1,key=3,value=3}", "funccomp{hops=1,m=8}", &["--bits", "4"], "state collision"),
    ("gdn{heads=1,key=4,value=4}", "twosum{length=80,modulus=16}", &["--bits", "6"], "drowning"),
    ("moba{heads=1,kv=1,head=4,block=4,top=2}", "twosum{length=33,modulus=16}", &[], "summary collision"),
    (
        "moba{heads=1,kv=1,head=4,block=4,top=2,summary=minmax}",
        "twosum{length=33,modulus=16}",
        &[],
        "summary collision",
    ),
    (
        "nsa{heads=1,kv=1,head=2,block=4,top=3,length=4,stride=4,window=4}",
        "twosum{length=33,modulus=16}",
        &["--bits", "4"],
        "summary collision",
    ),
    (BIRTHDAY.0, BIRTHDAY.1, &["--bits", "6", "--memory", "64M"], "state collision"),
    (RELATION.0, RELATION.1, &["--bits", "8", "--method", "integer-relation"], "integer relation"),
];

/// Some thirty bits that are used: tens of thousands of states until two meet.
const BIRTHDAY: (&str, &str) = ("linear{heads=1,key=2,value=5,normaliser=no}", "funccomp{hops=1,m=12}");
/// A relation of tens of tokens on each side, in 512 bits of state.
const RELATION: (&str, &str) = ("linear{heads=1,key=8,value=8,normaliser=no}", "twosum{length=100,modulus=512}");

#[test]
fn witnesses_are_found_and_checked_and_refused_once_a_token_is_changed() {
    let directory = scratch("witnesses");
    for (number, (stack, task, more, method)) in CASES.into_iter().enumerate() {
        let path = directory.join(format!("{number}.json"));
        let mut arguments = untrained(stack, task, more);
        arguments.extend(["--out".to_owned(), text(&path).to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (found, code) = json(&arguments);
        assert_eq!((code, found["method"].as_str()), (Some(0), Some(method)), "{stack}: {found}");
        let witness = &found["witness"];
        assert_ne!(witness["answers"][0], witness["answers"][1], "{stack}");
        assert_eq!(witness["outputs"][0], witness["outputs"][1], "{stack}");
        // The same seed finds the same witness.
        assert_eq!(json(&arguments).0["witness"], *witness, "{stack}");
        let (held, code) = json(&["witness", "check", text(&path)]);
        assert_eq!((code, &held["holds"]), (Some(0), &Value::Bool(true)), "{stack}: {held}");
        let length = witness["inputs"][0].as_array().unwrap().len();
        for place in [0, length / 2, length - 1] {
            let mut changed = witness.clone();
            let id = &mut changed["inputs"][1][place];
            *id = if *id == 0 { 1.into() } else { 0.into() };
            let other = directory.join("changed.json");
            std::fs::write(&other, changed.to_string()).unwrap();
            let (held, code) = json(&["witness", "check", text(&other)]);
            assert_eq!((code, &held["holds"]), (Some(1), &Value::Bool(false)), "{stack}, token {place}: {held}");
        }
        let shown = rung(&["witness", "show", text(&path)]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("<- asked") && shown.contains("the same from here on"), "{shown}");
    }
}

#[test]
fn a_hybrid_with_one_full_layer_yields_the_sets_of_the_proof() {
    let directory = scratch("sets");
    let path = directory.join("w.json");
    let more = ["--bits", "3", "--method", "border-search", "--out", text(&path)];
    let arguments =
        untrained("linear{heads=1,key=2,value=2} full{heads=1,head=4}", "funccomp{hops=2,m=2,n=[2]}", &more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (found, code) = json(&arguments);
    assert_eq!(code, Some(0), "{found}");
    let sets = &found["witness"]["decomposition"];
    assert!(sets["alike"].as_array().unwrap().len() >= 2 && sets["of"] == 256, "{sets}");
    assert_eq!(json(&["witness", "check", text(&path)]).1, Some(0));
    // Nothing belongs to the set by being listed.
    let mut changed = found["witness"].clone();
    let member = &mut changed["decomposition"]["alike"][1][0];
    *member = if *member == 3 { 9.into() } else { 3.into() };
    std::fs::write(&path, changed.to_string()).unwrap();
    assert_eq!(json(&["witness", "check", text(&path)]).1, Some(1));
}

#[test]
fn constructions_yield_no_witness_on_all_their_instances() {
    let directory = scratch("constructed");
    for (name, sizes, count) in
        [("U1", &["--hops", "2", "--m", "2", "--n", "2"][..], 4096), ("U2", &["--hops", "1", "--m", "4"][..], 1024)]
    {
        let folder = directory.join(name);
        assert!(rung(&[&["construct", name][..], sizes, &["--out", text(&folder)][..]].concat()).status.success());
        let (found, code) = json(&["falsify", text(&folder), "--budget", "300"]);
        let last = found["tried"].as_array().unwrap().last().unwrap();
        assert_eq!((code, &found["found"]), (Some(1), &Value::Bool(false)), "{found}");
        assert_eq!(
            (&last["candidates"], &last["total"], &last["complete"]),
            (&Value::from(count), &Value::from(count), &Value::Bool(true))
        );
    }
}

#[test]
fn a_trained_network_is_wrong_somewhere_and_the_error_is_made_small() {
    let directory = scratch("trained");
    let run = directory.join("run");
    let train =
        ["train", "--stack", "gdn{heads=1,key=2,value=8,conv=2} full", "--task", "funccomp{hops=1,m=3,queries=8}"];
    let small = ["--steps", "40", "--batch", "8", "--threads", "1", "--set", "model.head=16", "--set", "model.heads=1"];
    let large = ["--set", "model.largest=funccomp{hops=1,m=12}", "--out", text(&run)];
    assert!(rung(&[&train[..], &small[..], &large[..]].concat()).status.success());
    let path = directory.join("w.json");
    let (found, code) = json(&[
        "falsify",
        text(&run),
        "--task",
        "funccomp{hops=1,m=12,queries=4}",
        "--budget",
        "20",
        "--out",
        text(&path),
    ]);
    assert_eq!(code, Some(0), "{found}");
    let witness = &found["witness"];
    assert_eq!(witness["inputs"].as_array().unwrap().len(), 1);
    assert_ne!(witness["answers"][0], witness["outputs"][0]);
    // One question about smaller tables is left of four about twelve entries.
    assert!(witness["task"].as_str().unwrap().contains("queries=1"), "{witness}");
    assert_eq!(json(&["witness", "check", text(&path)]).1, Some(0));
    // The model may have moved; another model is another matter.
    let elsewhere = directory.join("elsewhere");
    std::fs::rename(&run, &elsewhere).unwrap();
    fails(&["witness", "check", text(&path)], "expected a folder of");
    assert_eq!(json(&["witness", "check", text(&path), "--model", text(&elsewhere)]).1, Some(0));
}

#[test]
fn bad_input_is_named() {
    let directory = scratch("bad");
    let path = directory.join("w.json");
    let arguments =
        untrained("linear{heads=1,key=2,value=2}", "funccomp{hops=1,m=6}", &["--bits", "4", "--out", text(&path)]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(rung(&arguments).status.code(), Some(0));
    let whole = std::fs::read_to_string(&path).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 3] {
        std::fs::write(&path, &whole[..length]).unwrap();
        fails(&["witness", "check", text(&path)], "no whole witness");
    }
    std::fs::write(&path, whole.replace("\"format\":2", "\"format\":7")).unwrap();
    let (held, code) = json(&["witness", "check", text(&path)]);
    assert_eq!((code, held["field"].as_str()), (Some(1), Some("format")));
    std::fs::write(&path, whole.replace("\"seed\":0", "\"seed\":1")).unwrap();
    assert_eq!(json(&["witness", "check", text(&path)]).0["field"], "model.fingerprint");
    fails(&["witness", "check", text(&directory.join("none.json"))], "none.json");
    fails(&["falsify", text(&directory)], "found neither");
    fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--budget", "0"], "more than 0 seconds");
    fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--memory", "0"], "expected at least 1K");
    fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--bits", "99"], "99");
    fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--bits", "4", "--range", "nan"], "range");
    fails(&["falsify", "--stack", "linnear", "--task", "funccomp"], "did you mean `linear`");
    fails(&["falsify", "--stack", "linear", "--task", "funcomp"], "did you mean `funccomp`");
    fails(&["falsify", "--stack", "full", "--task", "funccomp", "--method", "state-collision"], "does not apply");
    let small = ["--set", "model.heads=1", "--set", "model.head=8"];
    let long = ["falsify", "--stack", "linear", "--task", "twosum{length=70000}"];
    fails(&[&long[..], &small[..]].concat(), "at most 65536");
    let folder = directory.join("U3");
    assert!(rung(&["construct", "U3", "--out", text(&folder)]).status.success());
    fails(&["falsify", text(&folder)], "emits a chain of thought");
    let folder = directory.join("U1");
    assert!(rung(&["construct", "U1", "--out", text(&folder)]).status.success());
    fails(&["falsify", text(&folder), "--task", "parity"], "does not fit the model");
}
