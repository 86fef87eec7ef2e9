//! Training as a user meets it: killed, stopped, shared out, misconfigured, out of disk.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{command, fails, rung, scratch, text};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let output = rung(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A sweep of four runs of a second or so in all, with a curriculum and a checkpoint every few steps.
fn tiny_sweep(directory: &Path) -> PathBuf {
    let path = directory.join("sweep.toml");
    let sweep = r#"
        seeds = [0, 1]
        [base]
        task = "funccomp{hops=2,m=4,n=[2],queries=4,mixed=yes}"
        [base.model]
        heads = 1
        head = 16
        [base.train]
        steps = 90
        batch = 4
        [base.evaluate]
        every = 5
        prompts = 4
        last = 16
        [[base.curriculum]]
        task = "funccomp{hops=2,m=2,n=[2],queries=4,mixed=yes}"
        steps = 30
        [grid]
        stack = ["gdn{heads=1,key=2,value=8,conv=2} full", "mamba2{heads=1,head=8,state=4} full full"]
    "#;
    std::fs::write(&path, sweep).unwrap();
    path
}

/// Every record below a directory, byte for byte.
fn records(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let runs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let named = runs.filter(|run| run.join("record.json").exists());
    named
        .map(|run| (text(&run).rsplit('/').next().unwrap().to_owned(), std::fs::read(run.join("record.json")).unwrap()))
        .collect()
}

/// The records of the tiny sweep, undisturbed.
fn undisturbed(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let (sweep, out) = (tiny_sweep(directory), directory.join("whole"));
    let found = json(&["sweep", text(&sweep), "--out", text(&out), "--json"]);
    assert_eq!((&found["runs"], &found["recorded"]), (&4.into(), &4.into()));
    assert!(found["seconds_per_run"].as_f64().unwrap() > 0.0 && found["runs_per_hour"].as_f64().unwrap() > 0.0);
    let records = records(&out);
    assert_eq!(records.len(), 4);
    records
}

/// Trained networks are inspected like constructed ones; those in few bits speak in as few.
#[test]
fn a_trained_network_is_shown_and_held_as_a_conversation() {
    let directory = scratch("looked-at");
    let config = directory.join("run.toml");
    for (name, bits) in [("whole", 32), ("few", 10)] {
        let few = if bits == 32 { String::new() } else { format!("bits = {bits}\nrange = 8.0\n") };
        let run = format!(
            "stack = 'rwkv7{{rank=2}} full'\ntask = 'funccomp{{hops=2,m=3,n=[2],queries=2}}'\n\
             [model]\nheads = 2\nhead = 8\n{few}[train]\nsteps = 5\nbatch = 2\n[evaluate]\nlast = 2\nprompts = 2\n"
        );
        std::fs::write(&config, run).unwrap();
        let out = directory.join(name);
        assert!(rung(&["train", "--config", text(&config), "--out", text(&out)]).status.success());
        let shown = json(&["trace", text(&out), "--seed", "3", "--json"]);
        assert_eq!((&shown["constructed"], shown["layers"].as_array().unwrap().len()), (&false.into(), 2));
        // A state that is rounded at every token is no longer a sum of values.
        assert!(bits < 32 || shown["mismatch"].as_f64().unwrap() < 1e-4, "{shown}");
        let held = json(&["protocol", text(&out), "--json"]);
        assert_eq!((&held["exact"], &held["bits"], &held["state_bits"]), (&true.into(), &bits.into(), &bits.into()));
        for epoch in held["epochs"].as_array().unwrap() {
            let state = epoch["papers"].is_null();
            let theory = epoch["theory"].as_u64().unwrap();
            let crossed = epoch["crossed"].as_array().unwrap().iter().map(|bits| bits.as_u64().unwrap());
            assert!(!state || crossed.max().unwrap() <= theory, "{epoch}");
        }
    }
    std::fs::remove_file(directory.join("few/weights.safetensors")).unwrap();
    fails(&["trace", text(&directory.join("few"))], "expected a finished run");
    fails(&["protocol", text(&directory)], "no weights.safetensors");
}

#[test]
fn a_sweep_killed_ten_times_ends_with_the_same_records() {
    let directory = scratch("killed");
    let whole = undisturbed(&directory);
    let out = directory.join("killed");
    let sweep = directory.join("sweep.toml");
    let arguments = ["sweep", text(&sweep), "--out", text(&out), "--threads", "2"];
    for moment in [30, 170, 90, 260, 55, 210, 140, 320, 75, 240] {
        let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(moment));
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever is there is whole.
        for bytes in if out.exists() { records(&out) } else { BTreeMap::new() }.into_values() {
            serde_json::from_slice::<Value>(&bytes).expect("a whole record");
        }
    }
    assert!(rung(&arguments).status.success());
    assert_eq!(records(&out), whole);
    let again = json(&["sweep", text(&sweep), "--out", text(&out), "--json"]);
    assert_eq!((&again["recorded_before"], &again["runs_per_hour"]), (&4.into(), &Value::Null));
}

#[test]
fn shards_and_threads_give_the_same_records() {
    let directory = scratch("shards");
    let whole = undisturbed(&directory);
    let (sweep, one, shared) = (directory.join("sweep.toml"), directory.join("one"), directory.join("shared"));
    assert!(rung(&["sweep", text(&sweep), "--out", text(&one), "--threads", "1"]).status.success());
    assert_eq!(records(&one), whole);
    for (shard, sofar) in [("3/3", 1), ("1/3", 3), ("2/3", 4)] {
        assert!(rung(&["sweep", text(&sweep), "--out", text(&shared), "--shard", shard]).status.success());
        assert_eq!(records(&shared).len(), sofar);
    }
    assert_eq!(records(&shared), whole);
}

#[test]
fn a_run_is_trained_evaluated_listed_and_compared() {
    let directory = scratch("train");
    let out = directory.join("a");
    let base =
        ["train", "--stack", "gdn{heads=1,key=2,value=8,conv=2} full", "--task", "funccomp{hops=1,m=4,queries=8}"];
    let small =
        ["--steps", "60", "--batch", "8", "--threads", "1", "--set", "model.head=16", "--set", "evaluate.every=20"];
    let large = ["--set", "model.largest=funccomp{hops=1,m=6}", "--out", text(&out), "--json"];
    let trained = json(&[&base[..], &small[..], &large[..]].concat());
    assert_eq!((&trained["status"], &trained["rungs"]), (&"recorded".into(), &1.into()));
    // Training learns something: a guess has a quarter.
    assert!(trained["accuracy"]["1"]["mean"].as_f64().unwrap() > 0.3, "{trained}");
    assert_eq!(json(&[&base[..], &small[..], &large[..]].concat())["recorded_before"], true);

    let shown = json(&["model", "show", text(&out), "--json"]);
    assert!(shown["layers"][0]["mixers"][0].as_str().unwrap().contains("head=16"), "{shown}");

    let own = json(&["eval", text(&out), "--prompts", "16", "--json"]);
    for field in ["mean", "low", "high"] {
        assert!((0.0..=1.0).contains(&own["accuracy"]["1"][field].as_f64().unwrap()));
    }
    assert_eq!(own["accuracy"]["1"]["count"], 128);
    // Longer prompts and larger tables than it was trained on; not larger than it was made for.
    let beyond = json(&["eval", text(&out), "--task", "funccomp{hops=1,m=6,queries=20}", "--prompts", "4", "--json"]);
    assert_eq!((&beyond["accuracy"]["1"]["count"], &beyond["tokens"]), (&80.into(), &46.into()));
    fails(&["eval", text(&out), "--task", "funccomp{hops=1,m=7}"], "in field `inner`, expected at most 7");
    fails(&["eval", text(&out), "--task", "parity"], "does not fit the model");
    fails(&["eval", text(&directory)], "run.toml");
    fails(&["eval", text(&out), "--device", "abacus"], "--device: found device \"abacus\", expected cpu");
    if cfg!(feature = "gpu") {
        let there = json(&["eval", text(&out), "--prompts", "16", "--device", "flex", "--json"]);
        assert_eq!((&there["device"], &there["accuracy"]), (&"flex".into(), &own["accuracy"]));
    } else {
        let refusal = "--device: device flex is not in this build; expected cpu, or a build with `--features gpu`";
        fails(&["eval", text(&out), "--device", "flex"], refusal);
    }

    let second = directory.join("b");
    let other = ["--seed", "9", "--out", text(&second)];
    assert!(rung(&[&base[..], &small[..], &other[..]].concat()).status.success());
    let listed = json(&["runs", text(&directory), "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let filtered = json(&["runs", text(&directory), "--where", "seed=9", "--where", "facts.rungs=1", "--json"]);
    assert_eq!(filtered.as_array().unwrap().len(), 1);
    fails(&["runs", text(&directory), "--where", "sede=9"], "found key `sede`");
    fails(&["runs", "no-such-directory"], "no-such-directory");
    let [first, second] = [0, 1].map(|index| listed[index]["id"].as_str().unwrap());
    let differ = json(&["runs", text(&directory), "--diff", first, second, "--json"]);
    let keys: Vec<&str> = differ.as_array().unwrap().iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"config.seed") && !keys.contains(&"config.stack"), "{keys:?}");
    let csv = String::from_utf8(rung(&["runs", text(&directory), "--csv"]).stdout).unwrap();
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.starts_with("id,stack,task,seed,"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_is_saved_and_resumed_to_the_bit() {
    let directory = scratch("interrupt");
    let [whole, stopped] = ["whole", "stopped"].map(|name| directory.join(name));
    let run = |out: &Path| {
        let mut command =
            command(&["train", "--stack", "conv{taps=2,channels=8} full", "--task", "funccomp{hops=1,m=4,queries=4}"]);
        command.args([
            "--steps",
            "150",
            "--batch",
            "8",
            "--threads",
            "2",
            "--set",
            "model.head=16",
            "--set",
            "evaluate.every=25",
        ]);
        command.args(["--set", "evaluate.stop_at=2", "--out", text(out)]).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    assert!(run(&whole).status().unwrap().success());
    let mut child = run(&stopped).spawn().unwrap();
    // After a heading the first line comes with the first look.
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("step") && {
        line.clear();
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap() > 0
    } {}
    assert!(line.starts_with("step 25/150  loss"), "{line}");
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    std::io::Read::read_to_end(&mut lines, &mut Vec::new()).unwrap();
    let code = child.wait().unwrap().code();
    // A machine so quick that the run was over first has nothing to resume.
    if code == Some(130) {
        assert!(stopped.join("resume.safetensors").exists() && !stopped.join("record.json").exists());
        fails(&["train", "--stack", "full", "--task", "parity", "--out", text(&stopped)], "found a checkpoint");
        // An edited config is another run.
        let config = stopped.join("run.toml");
        let own = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, own.replace("seed = 0", "seed = 7")).unwrap();
        fails(&["train", "--resume", text(&stopped)], "`seed` was 0 and is 7 in run.toml; set it back to go on");
        std::fs::write(&config, own).unwrap();
        assert!(rung(&["train", "--resume", text(&stopped)]).status.success());
    }
    let read = |name: &str| [&whole, &stopped].map(|run| std::fs::read(run.join(name)).unwrap());
    let [a, b] = read("record.json");
    assert_eq!(a, b);
    let [a, b] = read("weights.safetensors");
    assert_eq!(a, b, "the same weights to the bit");
    assert!(!stopped.join("resume.safetensors").exists());
}

#[test]
fn bad_input_is_named_and_leaves_nothing() {
    let directory = scratch("bad");
    let out = directory.join("never");
    let train = |more: &[&str], expected: &str| {
        let usual = ["train", "--stack", "gdn full", "--task", "funccomp{hops=1,m=4}", "--out", text(&out)];
        fails(&[&usual[..], more].concat(), expected);
        assert!(!out.exists(), "{more:?} left something");
    };
    train(&["--set", "train.stepps=3"], "unknown field `stepps`");
    train(&["--set", "train.steps"], "expected key=value");
    train(&["--steps", "0"], "train.steps: found 0");
    train(&["--rate", "nan"], "train.rate: found NaN");
    train(&["--set", "model.heads=100000", "--set", "model.head=100000"], "found 10000000000");
    train(&["--set", "model.width=9", "--set", "model.head=3", "--set", "model.positions=rotary"], "even");
    train(&["--set", "model.largest=parity"], "does not fit the model");
    fails(&["train", "--stack", "gdn full"], "--task");
    fails(&["train", "--resume", text(&directory)], "expected the directory of a run");
    fails(&["train", "--config", "no-such.toml"], "no-such.toml");
    let file = directory.join("run.toml");
    for (content, expected) in
        [("stack = 3", "expected a string"), ("stack = 'full'", "missing field `task`"), ("{", "TOML"), ("\0", "TOML")]
    {
        std::fs::write(&file, content).unwrap();
        fails(&["train", "--config", text(&file), "--out", text(&out)], expected);
        fails(&["sweep", text(&file), "--out", text(&out)], "run.toml");
    }
    fails(&["sweep", text(&tiny_sweep(&directory)), "--shard", "3/2"], "expected i/k");
    // A place that cannot be written, whoever asks: below a file.
    let blocked = file.join("run");
    fails(&["train", "--stack", "full", "--task", "parity", "--steps", "1", "--out", text(&blocked)], "run.toml/run");
    assert!(!out.exists());
}

/// A limit on the size of files stands in for a full disk: writing fails half-way.
#[cfg(unix)]
#[test]
fn a_full_disk_ends_the_run_and_leaves_nothing_half_written() {
    let directory = scratch("full");
    let out = directory.join("run");
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_rung")])
        .args(["train", "--stack", "gdn full", "--task", "funccomp{hops=1,m=4}", "--steps", "4", "--out", text(&out)])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("resume.safetensors: cannot write"), "{error}");
    let mut left: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, [".lock", "log.txt", "run.toml"]);
    // With room again the run goes through.
    assert!(rung(&["train", "--resume", text(&out)]).status.success());
}

#[test]
fn reproduce_trains_resumes_and_reports() {
    let directory = scratch("reproduce");
    let out = directory.join("out");
    let first = json(&["reproduce", "--preset", "smoke", "--only", "measured", "--out", text(&out), "--json"]);
    let report = std::fs::read_to_string(first["report"].as_str().unwrap()).unwrap();
    for word in
        ["In two minutes", "Measured", "measured", "smoke preset", "<svg", "rung sweep sweeps/staircase-smoke.toml"]
    {
        assert!(report.contains(word), "{word}");
    }
    assert!(!report.contains("NaN"));
    let made = records(&out.join("runs"));
    json(&["reproduce", "--preset", "smoke", "--only", "measured", "--out", text(&out), "--threads", "1", "--json"]);
    assert_eq!(records(&out.join("runs")), made);
    assert_eq!(std::fs::read_to_string(out.join("report.html")).unwrap(), report, "not deterministic");
    let lines = std::fs::read_to_string(out.join("records/staircase.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 2);
    // Without its record a run is missing visibly.
    let place = std::fs::read_dir(out.join("runs")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(place.join("record.json")).unwrap();
    let render = ["reproduce", "--preset", "smoke", "--only", "measured", "--render-only", "--out", text(&out)];
    assert_eq!(rung(&render).status.code(), Some(0));
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("not run, or not finished"));
}

#[test]
fn reports_are_rendered_again_from_records_alone() {
    let directory = scratch("render");
    let out = directory.join("out");
    let parts = ["reproduce", "--preset", "smoke", "--only", "proved,constructed,audited", "--out", text(&out)];
    assert!(rung(&parts).status.success());
    let report = || std::fs::read_to_string(out.join("report.html")).unwrap();
    let first = report();
    let render = [&parts[..], &["--render-only"]].concat();
    for folder in ["figures", "certificates"] {
        std::fs::remove_dir_all(out.join(folder)).unwrap();
    }
    for _ in 0..2 {
        std::fs::remove_file(out.join("report.html")).unwrap();
        assert_eq!(rung(&render).status.code(), Some(0));
        assert_eq!(report(), first);
    }
    assert!(out.join("figures/gap.svg").exists() && out.join("certificates/ladder-u1-hops2.json").exists());
    let record = |name: &str| out.join("evidence/smoke").join(name);
    std::fs::remove_file(record("constructed/u1-hops2.json")).unwrap();
    std::fs::write(record("proved/sparse.json"), r#"{"schema":0,"version":"0.0.1","data":1}"#).unwrap();
    std::fs::write(record("audited/models.json"), "half a rec").unwrap();
    assert_eq!(rung(&render).status.code(), Some(0));
    let shown = report();
    for line in [
        "constructed/u1-hops2: not run",
        "proved/sparse: recorded by version 0.0.1",
        "audited/models: the record cannot be read",
    ] {
        assert!(shown.contains(line) && !first.contains(line), "{line}");
    }
}

#[test]
fn instruments_look_into_constructions_and_runs() {
    let directory = scratch("analyze");
    let (u1, run, svg) = (directory.join("u1"), directory.join("run"), directory.join("picture.svg"));
    json(&["construct", "U1", "--out", text(&u1), "--json"]);
    let found = json(&["analyze", "probe", text(&u1), "--prompts", "400", "--svg", text(&svg), "--json"]);
    let resolved: Vec<&Value> = found["registers"].as_array().unwrap().iter().map(|one| &one["resolved"]).collect();
    assert_eq!(resolved, [2, 3], "hop l after layer l + 1");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("i_2"));
    let train =
        ["train", "--stack", "gdn full", "--task", "funccomp{hops=2,m=4,n=[2],queries=4,mixed=yes}", "--steps", "2"];
    assert!(rung(&[&train[..], &["--set", "model.head=8", "--out", text(&run)]].concat()).status.success());
    for name in ["probe", "ablate", "precision", "collapse", "lens", "state", "injective", "diversity"] {
        let found = json(&["analyze", name, text(&run), "--prompts", "2", "--svg", text(&svg), "--json"]);
        assert_eq!(found["name"], "gdn full", "{name}");
        assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"), "{name}");
        assert!(rung(&["explain", name]).status.success(), "{name} has no page");
    }
    fails(&["analyze", "prob", text(&run)], "did you mean `probe`?");
    fails(&["analyze", "probe", text(&directory)], "expected a folder of `rung construct --out` or of `rung train`");
    fails(&["analyze", "selection", text(&run)], "expected a network with a compositional layer");
    fails(&["analyze", "state", text(&u1)], "expected a causal network with a recurrent mixer");
    fails(&["analyze", "probe", text(&run), "--task", "parity"], "--task: `parity");
    fails(&["analyze", "probe", text(&run), "--svg", "no-such-place/x.svg"], "--svg");
}

#[test]
fn conversion_writes_runs_that_can_be_opened() {
    let directory = scratch("convert");
    let (run, out) = (directory.join("run"), directory.join("out"));
    let train = ["train", "--stack", "full full", "--task", "funccomp{hops=1,m=4,queries=4}", "--steps", "2"];
    assert!(rung(&[&train[..], &["--set", "model.head=8", "--out", text(&run)]].concat()).status.success());
    let convert = ["convert", text(&run), "--to", "linear", "--steps", "3", "--batch", "2", "--json"];
    let found = json(&[&convert[..], &["--threshold", "-inf", "--out", text(&out)]].concat());
    assert_eq!(found["most_linear"].as_array().unwrap().len(), 2);
    let evaluated = json(&["eval", text(&out.join("most-linear")), "--prompts", "8", "--json"]);
    assert!(evaluated["stack"].as_str().unwrap().starts_with("linear"), "{evaluated}");
    assert!(
        json(&["analyze", "state", text(&out.join("most-linear")), "--json"])["layers"].as_array().unwrap().len() == 2
    );
    let kept = json(&[&convert[..], &["--threshold", "inf"]].concat());
    assert!(kept["path"].as_array().unwrap().is_empty());
    fails(&["convert", text(&run), "--to", "full"], "expected a mixer of bounded state");
    fails(&["convert", text(&run), "--to", "gdn", "--threshold", "nan"], "--threshold");
}
