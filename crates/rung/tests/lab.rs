//! Training runs and sweeps that are killed, stopped, sharded, misconfigured or out of disk; and the commands on their results.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{assert_fails, command, json, path_str, records, rung, scratch_directory};
use serde_json::Value;

/// Writes a sweep of four runs that take about a second in all, with a curriculum and a checkpoint every few steps.
fn write_tiny_sweep(directory: &Path) -> PathBuf {
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

/// Runs the tiny sweep without disturbance and returns its records.
fn undisturbed_records(directory: &Path) -> BTreeMap<String, String> {
    let (sweep, out) = (write_tiny_sweep(directory), directory.join("undisturbed"));
    let summary = json(&["sweep", path_str(&sweep), "--out", path_str(&out), "--json"]);
    assert_eq!((&summary["runs"], &summary["recorded"]), (&4.into(), &4.into()));
    assert!(summary["seconds_per_run"].as_f64().unwrap() > 0.0 && summary["runs_per_hour"].as_f64().unwrap() > 0.0);
    let records = records(&out);
    assert_eq!(records.len(), 4);
    records
}

/// A network that simulates few bits sends as few bits in the protocol.
#[test]
fn trace_and_protocol_run_trained_networks() {
    let directory = scratch_directory("trained-trace");
    let config = directory.join("run.toml");
    for (name, bits) in [("full-precision", 32), ("few", 10)] {
        let bits_setting = if bits == 32 { String::new() } else { format!("bits = {bits}\nrange = 8.0\n") };
        let run = format!(
            "stack = 'rwkv7{{rank=2}} full'\ntask = 'funccomp{{hops=2,m=3,n=[2],queries=2}}'\n\
             [model]\nheads = 2\nhead = 8\n{bits_setting}[train]\nsteps = 5\nbatch = 2\n[evaluate]\nlast = 2\nprompts = 2\n"
        );
        std::fs::write(&config, run).unwrap();
        let out = directory.join(name);
        assert!(rung(&["train", "--config", path_str(&config), "--out", path_str(&out)]).status.success());
        let trace = json(&["trace", path_str(&out), "--seed", "3", "--json"]);
        assert_eq!((&trace["constructed"], trace["layers"].as_array().unwrap().len()), (&false.into(), 2));
        // A state that is rounded at every token is not an exact sum of values.
        assert!(bits < 32 || trace["mismatch"].as_f64().unwrap() < 1e-4, "{trace}");
        let protocol = json(&["protocol", path_str(&out), "--json"]);
        assert_eq!(
            (&protocol["exact"], &protocol["message_number_bits"], &protocol["state_number_bits"]),
            (&true.into(), &bits.into(), &bits.into())
        );
        for epoch in protocol["epochs"].as_array().unwrap() {
            let is_state_epoch = epoch["published"].is_null();
            let theory = epoch["theory"].as_u64().unwrap();
            let received_bits = epoch["sent"].as_array().unwrap().iter().map(|bits| bits.as_u64().unwrap());
            assert!(!is_state_epoch || received_bits.max().unwrap() <= theory, "{epoch}");
        }
    }
    std::fs::remove_file(directory.join("few/weights.safetensors")).unwrap();
    assert_fails(&["trace", path_str(&directory.join("few"))], "expected a finished run");
    assert_fails(&["protocol", path_str(&directory)], "no weights.safetensors");
}

#[test]
fn a_sweep_killed_ten_times_ends_with_the_same_records() {
    let directory = scratch_directory("killed");
    let expected = undisturbed_records(&directory);
    let out = directory.join("killed");
    let sweep = directory.join("sweep.toml");
    let arguments = ["sweep", path_str(&sweep), "--out", path_str(&out), "--threads", "2"];
    for milliseconds in [30, 170, 90, 260, 55, 210, 140, 320, 75, 240] {
        let mut child = command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        // Every record that exists is complete.
        for record in records(&out).into_values() {
            serde_json::from_str::<Value>(&record).expect("a complete record");
        }
    }
    assert!(rung(&arguments).status.success());
    assert_eq!(records(&out), expected);
    let again = json(&["sweep", path_str(&sweep), "--out", path_str(&out), "--json"]);
    assert_eq!((&again["recorded_before"], &again["runs_per_hour"]), (&4.into(), &Value::Null));
}

#[test]
fn records_do_not_depend_on_shards_and_threads() {
    let directory = scratch_directory("shards");
    let expected = undisturbed_records(&directory);
    let (sweep, one_thread, sharded) = (directory.join("sweep.toml"), directory.join("one"), directory.join("sharded"));
    assert!(rung(&["sweep", path_str(&sweep), "--out", path_str(&one_thread), "--threads", "1"]).status.success());
    assert_eq!(records(&one_thread), expected);
    for (shard, record_count) in [("3/3", 1), ("1/3", 3), ("2/3", 4)] {
        assert!(rung(&["sweep", path_str(&sweep), "--out", path_str(&sharded), "--shard", shard]).status.success());
        assert_eq!(records(&sharded).len(), record_count);
    }
    assert_eq!(records(&sharded), expected);
}

/// The error for Burn's CPU device in a build without Burn.
const CPU_NOT_BUILT: &str =
    "--device: device cpu is not in this build; expected native, or a build with `--features gpu`";

#[test]
fn train_and_sweep_run_on_a_device_of_burn_or_name_its_feature() {
    let directory = scratch_directory("device");
    let out = directory.join("run");
    let train =
        ["train", "--stack", "gdn{heads=1,key=2,value=8,conv=2} full", "--task", "funccomp{hops=1,m=4,queries=8}"];
    let small = ["--steps", "12", "--batch", "4", "--threads", "1", "--set", "model.head=16", "--out", path_str(&out)];
    let train = [&train[..], &small[..], &["--device"]].concat();
    let file = directory.join("sweep.toml");
    let sweep = "seeds = [0, 1]\n[base]\nstack = 'full'\ntask = 'funccomp{hops=1,m=4}'\n[base.train]\nsteps = 3\nbatch = 2\n\
                 [base.evaluate]\nprompts = 4\nlast = 4\n";
    std::fs::write(&file, sweep).unwrap();
    let runs = directory.join("runs");
    let sweep = ["sweep", path_str(&file), "--out", path_str(&runs), "--device"];
    assert_fails(&[&train[..], &["abacus"]].concat(), "--device: found device \"abacus\", expected native");
    assert_fails(&[&sweep[..], &["abacus"]].concat(), "--device: found device \"abacus\", expected native");
    if !cfg!(feature = "gpu") {
        assert_fails(&[&train[..], &["cpu"]].concat(), CPU_NOT_BUILT);
        assert_fails(&[&sweep[..], &["cpu"]].concat(), CPU_NOT_BUILT);
        assert!(!out.exists() && !runs.exists(), "nothing is written before the device is known");
        return;
    }
    assert_eq!(json(&[&train[..], &["cpu", "--json"]].concat())["device"], "cpu");
    let record = std::fs::read_to_string(out.join("record.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!((&record["device"], &record["device_steps"]["cpu"]), (&"cpu".into(), &12.into()));
    let log = std::fs::read_to_string(out.join("log.txt")).unwrap();
    assert!(log.contains(", device cpu"), "{log}");
    // It is finished, on whatever device.
    let again = json(&[&train[..], &["native", "--json"]].concat());
    assert_eq!((&again["recorded_before"], &again["device"]), (&true.into(), &"cpu".into()));
    assert_eq!(json(&[&sweep[..], &["cpu", "--json"]].concat())["recorded"], 2);
}

#[test]
fn train_eval_and_runs_work_on_the_same_run() {
    let directory = scratch_directory("train");
    let out = directory.join("a");
    let base =
        ["train", "--stack", "gdn{heads=1,key=2,value=8,conv=2} full", "--task", "funccomp{hops=1,m=4,queries=8}"];
    let small =
        ["--steps", "60", "--batch", "8", "--threads", "1", "--set", "model.head=16", "--set", "evaluate.every=20"];
    let large = ["--set", "model.largest=funccomp{hops=1,m=6}", "--out", path_str(&out), "--json"];
    let trained = json(&[&base[..], &small[..], &large[..]].concat());
    assert_eq!((&trained["status"], &trained["rungs"]), (&"recorded".into(), &1.into()));
    // Training learns something: the accuracy of guessing is 1/4.
    assert!(trained["accuracy"]["1"]["mean"].as_f64().unwrap() > 0.3, "{trained}");
    assert_eq!(json(&[&base[..], &small[..], &large[..]].concat())["recorded_before"], true);

    let model = json(&["model", "show", path_str(&out), "--json"]);
    assert!(model["layers"][0]["mixers"][0].as_str().unwrap().contains("head=16"), "{model}");

    let evaluation = json(&["eval", path_str(&out), "--prompts", "16", "--json"]);
    for field in ["mean", "low", "high"] {
        assert!((0.0..=1.0).contains(&evaluation["accuracy"]["1"][field].as_f64().unwrap()));
    }
    assert_eq!(evaluation["accuracy"]["1"]["count"], 128);
    // Longer prompts and larger tables than in training work, up to `model.largest`.
    let larger =
        json(&["eval", path_str(&out), "--task", "funccomp{hops=1,m=6,queries=20}", "--prompts", "4", "--json"]);
    assert_eq!((&larger["accuracy"]["1"]["count"], &larger["tokens"]), (&80.into(), &46.into()));
    assert_fails(&["eval", path_str(&out), "--task", "funccomp{hops=1,m=7}"], "in field `inner`, expected at most 7");
    assert_fails(&["eval", path_str(&out), "--task", "parity"], "does not fit the model");
    assert_fails(&["eval", path_str(&directory)], "run.toml");
    assert_fails(&["eval", path_str(&out), "--device", "abacus"], "--device: found device \"abacus\", expected native");
    if cfg!(feature = "gpu") {
        let on_device = json(&["eval", path_str(&out), "--prompts", "16", "--device", "cpu", "--json"]);
        assert_eq!((&on_device["device"], &on_device["accuracy"]), (&"cpu".into(), &evaluation["accuracy"]));
    } else {
        assert_fails(&["eval", path_str(&out), "--device", "cpu"], CPU_NOT_BUILT);
    }

    let second = directory.join("b");
    let other = ["--seed", "9", "--out", path_str(&second)];
    assert!(rung(&[&base[..], &small[..], &other[..]].concat()).status.success());
    let runs = json(&["runs", path_str(&directory), "--json"]);
    assert_eq!(runs.as_array().unwrap().len(), 2);
    let filtered = json(&["runs", path_str(&directory), "--where", "seed=9", "--where", "facts.rungs=1", "--json"]);
    assert_eq!(filtered.as_array().unwrap().len(), 1);
    assert_fails(&["runs", path_str(&directory), "--where", "sede=9"], "found key `sede`");
    assert_fails(&["runs", "no-such-directory"], "no-such-directory");
    let [first, second] = [0, 1].map(|index| runs[index]["id"].as_str().unwrap());
    let differences = json(&["runs", path_str(&directory), "--diff", first, second, "--json"]);
    let keys: Vec<&str> = differences.as_array().unwrap().iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"config.seed") && !keys.contains(&"config.stack"), "{keys:?}");
    let csv = String::from_utf8(rung(&["runs", path_str(&directory), "--csv"]).stdout).unwrap();
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.starts_with("id,stack,task,seed,"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_resumes_to_the_same_weights_bit_for_bit() {
    let directory = scratch_directory("interrupt");
    let [uninterrupted, stopped] = ["uninterrupted", "stopped"].map(|name| directory.join(name));
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
        command
            .args(["--set", "evaluate.stop_at=2", "--out", path_str(out)])
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    };
    assert!(run(&uninterrupted).status().unwrap().success());
    let mut child = run(&stopped).spawn().unwrap();
    // After a header, one line is printed at every evaluation.
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
    // On a fast machine the run may have finished before the signal.
    if code == Some(130) {
        assert!(stopped.join("resume.safetensors").exists() && !stopped.join("record.json").exists());
        assert_fails(
            &["train", "--stack", "full", "--task", "parity", "--out", path_str(&stopped)],
            "found a checkpoint",
        );
        // Resuming with a changed config is an error.
        let config = stopped.join("run.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("seed = 0", "seed = 7")).unwrap();
        assert_fails(
            &["train", "--resume", path_str(&stopped)],
            "`seed` was 0 and is 7 in run.toml; set it back to go on",
        );
        std::fs::write(&config, text).unwrap();
        assert!(rung(&["train", "--resume", path_str(&stopped)]).status.success());
    }
    let read = |name: &str| [&uninterrupted, &stopped].map(|run| std::fs::read(run.join(name)).unwrap());
    let [a, b] = read("record.json");
    assert_eq!(a, b);
    let [a, b] = read("weights.safetensors");
    assert_eq!(a, b, "the same weights to the bit");
    assert!(!stopped.join("resume.safetensors").exists());
}

#[test]
fn errors_name_the_bad_input_and_leave_no_files() {
    let directory = scratch_directory("bad");
    let out = directory.join("never");
    let train_fails = |extra_args: &[&str], expected: &str| {
        let base = ["train", "--stack", "gdn full", "--task", "funccomp{hops=1,m=4}", "--out", path_str(&out)];
        assert_fails(&[&base[..], extra_args].concat(), expected);
        assert!(!out.exists(), "{extra_args:?} left files");
    };
    train_fails(&["--set", "train.stepps=3"], "unknown field `stepps`");
    train_fails(&["--set", "train.steps"], "expected key=value");
    train_fails(&["--steps", "0"], "train.steps: found 0");
    train_fails(&["--rate", "nan"], "train.rate: found NaN");
    train_fails(&["--set", "model.heads=100000", "--set", "model.head=100000"], "found 10000000000");
    train_fails(&["--set", "model.width=9", "--set", "model.head=3", "--set", "model.positions=rotary"], "even");
    train_fails(&["--set", "model.largest=parity"], "does not fit the model");
    assert_fails(&["train", "--stack", "gdn full"], "--task");
    assert_fails(&["train", "--resume", path_str(&directory)], "expected the directory of a run");
    assert_fails(&["train", "--config", "no-such.toml"], "no-such.toml");
    let file = directory.join("run.toml");
    for (content, expected) in
        [("stack = 3", "expected a string"), ("stack = 'full'", "missing field `task`"), ("{", "TOML"), ("\0", "TOML")]
    {
        std::fs::write(&file, content).unwrap();
        assert_fails(&["train", "--config", path_str(&file), "--out", path_str(&out)], expected);
        assert_fails(&["sweep", path_str(&file), "--out", path_str(&out)], "run.toml");
    }
    assert_fails(&["sweep", path_str(&write_tiny_sweep(&directory)), "--shard", "3/2"], "expected i/k");
    // A path below a file cannot be written, not even by root.
    let below_file = file.join("run");
    assert_fails(
        &["train", "--stack", "full", "--task", "parity", "--steps", "1", "--out", path_str(&below_file)],
        "run.toml/run",
    );
    assert!(!out.exists());
}

/// A limit on the size of files simulates a full disk: writing fails halfway.
#[cfg(unix)]
#[test]
fn a_full_disk_ends_the_run_and_leaves_nothing_half_written() {
    let directory = scratch_directory("full");
    let out = directory.join("run");
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_rung")])
        .args([
            "train",
            "--stack",
            "gdn full",
            "--task",
            "funccomp{hops=1,m=4}",
            "--steps",
            "4",
            "--out",
            path_str(&out),
        ])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("resume.safetensors: cannot write"), "{error}");
    let mut files: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, [".lock", "log.txt", "run.toml"]);
    // Without the limit the run finishes.
    assert!(rung(&["train", "--resume", path_str(&out)]).status.success());
}

#[test]
fn reproduce_trains_and_writes_the_same_report_again() {
    let directory = scratch_directory("reproduce");
    let out = directory.join("out");
    let first = json(&["reproduce", "--preset", "smoke", "--only", "measured", "--out", path_str(&out), "--json"]);
    let report = std::fs::read_to_string(first["report"].as_str().unwrap()).unwrap();
    for word in
        ["In two minutes", "Measured", "measured", "smoke preset", "<svg", "rung sweep sweeps/staircase-smoke.toml"]
    {
        assert!(report.contains(word), "{word}");
    }
    assert!(!report.contains("NaN"));
    let first_records = records(&out.join("runs"));
    json(&[
        "reproduce",
        "--preset",
        "smoke",
        "--only",
        "measured",
        "--out",
        path_str(&out),
        "--threads",
        "1",
        "--json",
    ]);
    assert_eq!(records(&out.join("runs")), first_records);
    assert_eq!(std::fs::read_to_string(out.join("report.html")).unwrap(), report, "not deterministic");
    let lines = std::fs::read_to_string(out.join("records/staircase.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 2);
    // The report says which run has no record.
    let run = std::fs::read_dir(out.join("runs")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(run.join("record.json")).unwrap();
    let render = ["reproduce", "--preset", "smoke", "--only", "measured", "--render-only", "--out", path_str(&out)];
    assert_eq!(rung(&render).status.code(), Some(0));
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("not run, or not finished"));
}

#[test]
fn render_only_writes_the_same_report_from_records() {
    let directory = scratch_directory("render");
    let out = directory.join("out");
    let parts = "proved,constructed,refuted,measured,inspected,audited";
    let compute = ["reproduce", "--preset", "smoke", "--only", parts, "--out", path_str(&out)];
    assert!(rung(&compute).status.success());
    let report = || std::fs::read_to_string(out.join("report.html")).unwrap();
    let first = report();
    let render = [&compute[..], &["--render-only"]].concat();
    for folder in ["figures", "certificates", "witnesses"] {
        std::fs::remove_dir_all(out.join(folder)).unwrap();
    }
    for _ in 0..2 {
        std::fs::remove_file(out.join("report.html")).unwrap();
        assert_eq!(rung(&render).status.code(), Some(0));
        assert_eq!(report(), first);
    }
    assert!(out.join("figures/gap.svg").exists() && out.join("certificates/constructed-u1-hops2.json").exists());
    assert!(first.contains("rung check certificates/measured-1-hops-18-tokens.json"), "the record has the proof");

    let evidence = out.join("evidence/smoke");
    std::fs::remove_file(evidence.join("constructed/u1-hops2.json")).unwrap();
    std::fs::remove_file(evidence.join("measured/staircase-verdicts.json")).unwrap();
    std::fs::remove_file(evidence.join("refuted/linear.json")).unwrap();
    std::fs::write(evidence.join("proved/sparse.json"), r#"{"schema":0,"version":"0.0.1","data":1}"#).unwrap();
    for broken in ["audited/models", "measured/staircase-failures", "measured/certified-verdicts", "inspected/u1-probe"]
    {
        std::fs::write(evidence.join(broken).with_extension("json"), "half a rec").unwrap();
    }
    // Two runs that other versions of the program recorded, one before versions were stored.
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(out.join("runs")).unwrap().map(|entry| entry.unwrap().path().join("record.json")).collect();
    runs.sort();
    let change = |path: &Path, change: &dyn Fn(&mut Value)| {
        let mut record: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        change(&mut record);
        std::fs::write(path, record.to_string()).unwrap();
    };
    change(&runs[0], &|record| record["program"]["version"] = "0.0.2".into());
    change(&runs[1], &|record| {
        let fields = record.as_object_mut().unwrap();
        fields.remove("schema");
        fields.remove("program");
    });
    assert_eq!(rung(&render).status.code(), Some(0));
    let with_notes = report();
    for note in [
        "constructed/u1-hops2: not run",
        "measured/staircase-verdicts: not run",
        "refuted/linear: not run",
        "proved/sparse: recorded by version 0.0.1",
        "audited/models: the record cannot be read",
        "measured/staircase-failures: the record cannot be read",
        "measured/certified-verdicts: the record cannot be read",
        "inspected/u1-probe: the record cannot be read",
        "recorded by version 0.0.2 with schema",
        "recorded by version unknown with schema 0",
    ] {
        assert!(with_notes.contains(note) && !first.contains(note), "{note}");
    }
}

#[test]
fn analyze_runs_every_analysis_on_constructions_and_runs() {
    let directory = scratch_directory("analyze");
    let (u1, run, svg) = (directory.join("u1"), directory.join("run"), directory.join("picture.svg"));
    json(&["construct", "U1", "--out", path_str(&u1), "--json"]);
    let analysis = json(&["analyze", "probe", path_str(&u1), "--prompts", "400", "--svg", path_str(&svg), "--json"]);
    let answers = analysis["intermediate_answers"].as_array().unwrap();
    let levels: Vec<&Value> = answers.iter().map(|answer| &answer["first_decodable_level"]).collect();
    assert_eq!(levels, [2, 3], "hop l after layer l + 1");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("i_2"));
    let train =
        ["train", "--stack", "gdn full", "--task", "funccomp{hops=2,m=4,n=[2],queries=4,mixed=yes}", "--steps", "2"];
    assert!(rung(&[&train[..], &["--set", "model.head=8", "--out", path_str(&run)]].concat()).status.success());
    for name in ["probe", "ablate", "precision", "collapse", "lens", "state", "injective", "diversity"] {
        let analysis = json(&["analyze", name, path_str(&run), "--prompts", "2", "--svg", path_str(&svg), "--json"]);
        assert_eq!(analysis["name"], "gdn full", "{name}");
        assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"), "{name}");
        assert!(rung(&["explain", name]).status.success(), "{name} has no page");
    }
    assert_fails(&["analyze", "prob", path_str(&run)], "did you mean `probe`?");
    assert_fails(
        &["analyze", "probe", path_str(&directory)],
        "expected a folder of `rung construct --out` or of `rung train`",
    );
    assert_fails(&["analyze", "selection", path_str(&run)], "expected a network with a compositional layer");
    assert_fails(&["analyze", "state", path_str(&u1)], "expected a causal network with a recurrent mixer");
    assert_fails(&["analyze", "probe", path_str(&run), "--task", "parity"], "--task: `parity");
    assert_fails(&["analyze", "probe", path_str(&run), "--svg", "no-such-place/x.svg"], "--svg");
}

#[test]
fn convert_writes_runs_that_eval_and_analyze_open() {
    let directory = scratch_directory("convert");
    let (run, out) = (directory.join("run"), directory.join("out"));
    let train = ["train", "--stack", "full full", "--task", "funccomp{hops=1,m=4,queries=4}", "--steps", "2"];
    assert!(rung(&[&train[..], &["--set", "model.head=8", "--out", path_str(&run)]].concat()).status.success());
    let convert = ["convert", path_str(&run), "--to", "linear", "--steps", "3", "--batch", "2", "--json"];
    let conversion = json(&[&convert[..], &["--threshold", "-inf", "--out", path_str(&out)]].concat());
    assert_eq!(conversion["most_linear"].as_array().unwrap().len(), 2);
    let evaluated = json(&["eval", path_str(&out.join("most-linear")), "--prompts", "8", "--json"]);
    assert!(evaluated["stack"].as_str().unwrap().starts_with("linear"), "{evaluated}");
    assert!(
        json(&["analyze", "state", path_str(&out.join("most-linear")), "--json"])["layers"].as_array().unwrap().len()
            == 2
    );
    let unchanged = json(&[&convert[..], &["--threshold", "inf"]].concat());
    assert!(unchanged["path"].as_array().unwrap().is_empty());
    assert_fails(&["convert", path_str(&run), "--to", "full"], "expected a mixer of bounded state");
    assert_fails(&["convert", path_str(&run), "--to", "gdn", "--threshold", "nan"], "--threshold");
}
