//! `rung falsify` finds witnesses; `rung witness` shows and checks them, and rejects modified ones.

mod common;

use common::{assert_fails, path_str, rung, scratch_directory};
use serde_json::Value;

/// The JSON output of a command, and its exit code.
fn json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = rung(&[arguments, &["--json"][..]].concat());
    let value = serde_json::from_slice(&output.stdout);
    (
        value.unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
        output.status.code(),
    )
}

/// Arguments of `rung falsify` for an untrained model. Its initial weights are large, so that its numbers do not all round to zero.
fn falsify_untrained(stack: &str, task: &str, extra_args: &[&str]) -> Vec<String> {
    let fixed = ["falsify", "--stack", stack, "--task", task, "--budget", "60"];
    let settings =
        ["model.heads=1", "model.head=8", "model.embedding_scale=1.0", "model.scale=2.0", "model.channel=none"];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    fixed.into_iter().chain(settings).chain(extra_args.iter().copied()).map(str::to_owned).collect()
}

/// Stack, task, further options, and the method that finds a witness.
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

/// Stack and task with about thirty effective bits of state: a collision takes tens of thousands of states.
const BIRTHDAY: (&str, &str) = ("linear{heads=1,key=2,value=5,normaliser=no}", "funccomp{hops=1,m=12}");
/// Stack and task with 512 bits of state, for which an integer relation of tens of tokens on each side exists.
const RELATION: (&str, &str) = ("linear{heads=1,key=8,value=8,normaliser=no}", "twosum{length=100,modulus=512}");

#[test]
fn witness_check_accepts_witnesses_and_rejects_changed_tokens() {
    let directory = scratch_directory("witnesses");
    for (number, (stack, task, extra_args, method)) in CASES.into_iter().enumerate() {
        let path = directory.join(format!("{number}.json"));
        let mut arguments = falsify_untrained(stack, task, extra_args);
        arguments.extend(["--out".to_owned(), path_str(&path).to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (search, code) = json(&arguments);
        assert_eq!((code, search["method"].as_str()), (Some(0), Some(method)), "{stack}: {search}");
        let witness = &search["witness"];
        assert_ne!(witness["answers"][0], witness["answers"][1], "{stack}");
        assert_eq!(witness["outputs"][0], witness["outputs"][1], "{stack}");
        // The same seed finds the same witness.
        assert_eq!(json(&arguments).0["witness"], *witness, "{stack}");
        let (check, code) = json(&["witness", "check", path_str(&path)]);
        assert_eq!((code, &check["holds"]), (Some(0), &Value::Bool(true)), "{stack}: {check}");
        let length = witness["inputs"][0].as_array().unwrap().len();
        for position in [0, length / 2, length - 1] {
            let mut changed = witness.clone();
            let id = &mut changed["inputs"][1][position];
            *id = if *id == 0 { 1.into() } else { 0.into() };
            let other = directory.join("changed.json");
            std::fs::write(&other, changed.to_string()).unwrap();
            let (check, code) = json(&["witness", "check", path_str(&other)]);
            assert_eq!((code, &check["holds"]), (Some(1), &Value::Bool(false)), "{stack}, token {position}: {check}");
        }
        let printed = rung(&["witness", "show", path_str(&path)]);
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.contains("<- asked") && printed.contains("the same from here on"), "{printed}");
    }
}

#[test]
fn border_search_finds_the_sets_of_the_proof_in_a_hybrid() {
    let directory = scratch_directory("sets");
    let path = directory.join("w.json");
    let extra_args = ["--bits", "3", "--method", "border-search", "--out", path_str(&path)];
    let arguments = falsify_untrained(
        "linear{heads=1,key=2,value=2} full{heads=1,head=4}",
        "funccomp{hops=2,m=2,n=[2]}",
        &extra_args,
    );
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (search, code) = json(&arguments);
    assert_eq!(code, Some(0), "{search}");
    let sets = &search["witness"]["decomposition"];
    assert!(sets["alike"].as_array().unwrap().len() >= 2 && sets["of"] == 256, "{sets}");
    assert_eq!(json(&["witness", "check", path_str(&path)]).1, Some(0));
    // The checker computes membership in the set itself.
    let mut changed = search["witness"].clone();
    let member = &mut changed["decomposition"]["alike"][1][0];
    *member = if *member == 3 { 9.into() } else { 3.into() };
    std::fs::write(&path, changed.to_string()).unwrap();
    assert_eq!(json(&["witness", "check", path_str(&path)]).1, Some(1));
}

#[test]
fn constructions_have_no_witness_among_all_instances() {
    let directory = scratch_directory("constructed");
    for (name, sizes, count) in
        [("U1", &["--hops", "2", "--m", "2", "--n", "2"][..], 4096), ("U2", &["--hops", "1", "--m", "4"][..], 1024)]
    {
        let folder = directory.join(name);
        assert!(rung(&[&["construct", name][..], sizes, &["--out", path_str(&folder)][..]].concat()).status.success());
        let (search, code) = json(&["falsify", path_str(&folder), "--budget", "300"]);
        let last = search["tried"].as_array().unwrap().last().unwrap();
        assert_eq!((code, &search["found"]), (Some(1), &Value::Bool(false)), "{search}");
        assert_eq!(
            (&last["candidates"], &last["total"], &last["complete"]),
            (&Value::from(count), &Value::from(count), &Value::Bool(true))
        );
    }
}

#[test]
fn falsify_finds_and_shrinks_a_wrong_answer_of_a_trained_network() {
    let directory = scratch_directory("trained");
    let run = directory.join("run");
    let train =
        ["train", "--stack", "gdn{heads=1,key=2,value=8,conv=2} full", "--task", "funccomp{hops=1,m=3,queries=8}"];
    let small = ["--steps", "40", "--batch", "8", "--threads", "1", "--set", "model.head=16", "--set", "model.heads=1"];
    let large = ["--set", "model.largest=funccomp{hops=1,m=12}", "--out", path_str(&run)];
    assert!(rung(&[&train[..], &small[..], &large[..]].concat()).status.success());
    let path = directory.join("w.json");
    let (search, code) = json(&[
        "falsify",
        path_str(&run),
        "--task",
        "funccomp{hops=1,m=12,queries=4}",
        "--budget",
        "20",
        "--out",
        path_str(&path),
    ]);
    assert_eq!(code, Some(0), "{search}");
    let witness = &search["witness"];
    assert_eq!(witness["inputs"].as_array().unwrap().len(), 1);
    assert_ne!(witness["answers"][0], witness["outputs"][0]);
    // The witness is shrunk from four questions about twelve entries to one question about smaller tables.
    assert!(witness["task"].as_str().unwrap().contains("queries=1"), "{witness}");
    assert_eq!(json(&["witness", "check", path_str(&path)]).1, Some(0));
    // The path of a moved model can be given with --model.
    let moved = directory.join("elsewhere");
    std::fs::rename(&run, &moved).unwrap();
    assert_fails(&["witness", "check", path_str(&path)], "expected a folder of");
    assert_eq!(json(&["witness", "check", path_str(&path), "--model", path_str(&moved)]).1, Some(0));
}

#[test]
fn errors_name_the_bad_input() {
    let directory = scratch_directory("bad");
    let path = directory.join("w.json");
    let arguments = falsify_untrained(
        "linear{heads=1,key=2,value=2}",
        "funccomp{hops=1,m=6}",
        &["--bits", "4", "--out", path_str(&path)],
    );
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(rung(&arguments).status.code(), Some(0));
    let witness = std::fs::read_to_string(&path).unwrap();
    for length in [0, 1, witness.len() / 2, witness.len() - 3] {
        std::fs::write(&path, &witness[..length]).unwrap();
        assert_fails(&["witness", "check", path_str(&path)], "not a complete witness");
    }
    std::fs::write(&path, witness.replace("\"format\":2", "\"format\":7")).unwrap();
    let (check, code) = json(&["witness", "check", path_str(&path)]);
    assert_eq!((code, check["field"].as_str()), (Some(1), Some("format")));
    std::fs::write(&path, witness.replace("\"seed\":0", "\"seed\":1")).unwrap();
    assert_eq!(json(&["witness", "check", path_str(&path)]).0["field"], "model.fingerprint");
    assert_fails(&["witness", "check", path_str(&directory.join("none.json"))], "none.json");
    assert_fails(&["falsify", path_str(&directory)], "found neither");
    assert_fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--budget", "0"], "more than 0 seconds");
    assert_fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--memory", "0"], "expected at least 1K");
    assert_fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--bits", "99"], "99");
    assert_fails(&["falsify", "--stack", "linear", "--task", "funccomp", "--bits", "4", "--range", "nan"], "range");
    assert_fails(&["falsify", "--stack", "linnear", "--task", "funccomp"], "did you mean `linear`");
    assert_fails(&["falsify", "--stack", "linear", "--task", "funcomp"], "did you mean `funccomp`");
    assert_fails(
        &["falsify", "--stack", "full", "--task", "funccomp", "--method", "state-collision"],
        "does not apply",
    );
    let small = ["--set", "model.heads=1", "--set", "model.head=8"];
    let long = ["falsify", "--stack", "linear", "--task", "twosum{length=70000}"];
    assert_fails(&[&long[..], &small[..]].concat(), "at most 65536");
    let folder = directory.join("U3");
    assert!(rung(&["construct", "U3", "--out", path_str(&folder)]).status.success());
    assert_fails(&["falsify", path_str(&folder)], "emits a chain of thought");
    let folder = directory.join("U1");
    assert!(rung(&["construct", "U1", "--out", path_str(&folder)]).status.success());
    assert_fails(&["falsify", path_str(&folder), "--task", "parity"], "does not fit the model");
}
