//! Output and exit codes of the commands.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{json, rung, scratch_directory};
use serde_json::Value;

/// Asserts that a command fails as in [`common::assert_fails`], within five seconds.
fn assert_fails(arguments: &[&str], expected: &str) {
    let start = Instant::now();
    common::assert_fails(arguments, expected);
    assert!(start.elapsed() < Duration::from_secs(5), "{arguments:?}");
}

/// Options of a large model.
const LARGE_MODEL: [&str; 6] = ["--heads", "16", "--head-dim", "128", "--bits", "16"];

#[test]
fn check_accepts_written_bounds_and_rejects_modified_ones() {
    let directory = scratch_directory("bound");
    for (stack, max_log2_tokens, case) in [("linear*3 full linear*3", 33.6, 1), ("full full linear*3", 56.4, 0)] {
        let path = directory.join(format!("case{case}.json"));
        let path = path.to_str().unwrap();
        let bound = json(&[&["bound", stack, "--hops", "2", "--json", "--out", path], &LARGE_MODEL[..]].concat());
        assert_eq!(bound["verdict"], "impossible");
        assert!(bound["log2_tokens"].as_f64().unwrap() <= max_log2_tokens);
        assert_eq!(bound["trivial"], false);
        assert_eq!(bound["papers_log2_tokens"], 2128.0);
        assert_eq!(bound["certificate"]["case"], case);
        assert_eq!(bound["certificate"]["stack"], stack);
        assert!(bound["tokens"].as_str().unwrap().bytes().all(|byte| byte.is_ascii_digit()));
        assert_eq!(rung(&["check", path]).status.code(), Some(0));
        let text = std::fs::read_to_string(path).unwrap();
        let certificate: Value = serde_json::from_str(&text).unwrap();
        for false_field in [r#""stack":"full*9""#, r#""message_bits":"1""#, r#""stack":"full full full full""#] {
            let (name, value) = false_field.split_once(':').unwrap();
            let mut changed = certificate.clone();
            changed[name.trim_matches('"')] = serde_json::from_str(value).unwrap();
            std::fs::write(path, changed.to_string()).unwrap();
            assert_eq!(rung(&["check", path]).status.code(), Some(1), "{false_field}");
        }
        for (field, code) in [("message_bits", 1), ("sigma", 1), ("m", 2), ("n", 2)] {
            let mut changed = certificate.clone();
            let append_digit = |value: &str| Value::from(format!("{value}7"));
            match &mut changed[field] {
                Value::String(digits) if field == "m" => digits.truncate(2),
                Value::String(digits) => digits.push('7'),
                Value::Array(items) => items[0] = append_digit(items[0].as_str().unwrap()),
                other => panic!("{other}"),
            }
            std::fs::write(path, changed.to_string()).unwrap();
            assert_eq!(rung(&["check", path]).status.code(), Some(code), "{field}");
            assert_eq!(
                serde_json::from_slice::<Value>(&rung(&["check", path, "--json"]).stdout).unwrap()["accepted"],
                false
            );
        }
    }
}

#[test]
fn bound_uses_the_sharpest_theorem_and_check_accepts_it() {
    let directory = scratch_directory("sharp");
    let path = directory.join("certificate.json");
    let path = path.to_str().unwrap();
    let bound = |stack: &str, hops: &str, extra_args: &[&str]| {
        json(&[&["bound", stack, "--hops", hops, "--json", "--out", path], &LARGE_MODEL[..], extra_args].concat())
    };
    let check_code = || rung(&["check", path]).status.code();
    let two_hops = bound("linear*3 full", "2", &[]);
    assert!(two_hops["log2_tokens"].as_f64().unwrap() <= 21.6);
    assert_eq!((&two_hops["theorem"], check_code()), (&"entropy".into(), Some(0)));
    // With far fewer full layers than hops, the certificate embeds a smaller task in the tables.
    let five_hops = bound("linear*3 full", "5", &[]);
    assert!(five_hops["log2_tokens"].as_f64().unwrap() <= 23.0);
    assert_eq!((&five_hops["certificate"]["embedding"]["hops"], check_code()), (&2.into(), Some(0)));
    // Some proofs need tables that list w as the major index, and the certificate must say so.
    let stack = "linear*3 full full";
    let any_order = bound(stack, "3", &[])["log2_tokens"].as_f64().unwrap();
    let w_major = bound(stack, "3", &["--table-order", "w-major"]);
    assert!(w_major["log2_tokens"].as_f64().unwrap() < any_order - 1.0);
    assert_eq!((&w_major["certificate"]["conventions"]["table_order"], check_code()), (&"w-major".into(), Some(0)));
    let without_order =
        std::fs::read_to_string(path).unwrap().replace(r#""table_order": "w-major""#, r#""message": "paper""#);
    std::fs::write(path, without_order.replacen(r#""message": "paper","#, "", 1)).unwrap();
    assert_eq!(check_code(), Some(2));
}

#[test]
fn check_explain_names_the_basis_of_every_sentence() {
    let directory = scratch_directory("explain");
    let path = directory.join("certificate.json");
    let path = path.to_str().unwrap();
    json(&[
        "bound",
        "linear full",
        "--hops",
        "2",
        "--heads",
        "1",
        "--head-dim",
        "4",
        "--bits",
        "4",
        "--json",
        "--out",
        path,
    ]);
    let explained = json(&["check", path, "--explain", "--json"]);
    assert_eq!((&explained["theorem"], &explained["machine_checked"]), (&"entropy".into(), &true.into()));
    let explanation = explained["explanation"].as_array().unwrap();
    let brief = String::from_utf8(rung(&["check", path]).stdout).unwrap();
    let detailed = String::from_utf8(rung(&["check", path, "--explain"]).stdout).unwrap();
    assert_eq!(brief.lines().count(), explanation.len());
    for (line, sentence) in brief.lines().zip(explanation) {
        assert!(line.ends_with(sentence["sentence"].as_str().unwrap()), "{line}");
        assert!(detailed.lines().any(|other| other == line), "{line}");
        assert!(detailed.contains(sentence["rests_on"]["section"].as_str().unwrap()), "{line}");
    }
    assert!(explanation[0]["lemmas"].as_array().unwrap().iter().any(|lemma| lemma["name"] == "theorem_one"));
    let inequalities = explained["inequalities"].as_array().unwrap();
    assert!(
        inequalities.last().unwrap()["holds"] == true && !inequalities[0]["right_bits"].is_null(),
        "{inequalities:?}"
    );
    for inequality in inequalities {
        let formula = ["left", "relation", "right"].map(|side| inequality[side].as_str().unwrap()).join(" ");
        assert!(detailed.contains(&format!("{formula}: ")), "{formula}");
    }
    let false_certificate =
        std::fs::read_to_string(path).unwrap().replace(r#""message_bits": "32""#, r#""message_bits": "99999""#);
    std::fs::write(path, false_certificate).unwrap();
    let rejection = rung(&["check", path, "--explain"]);
    assert_eq!(rejection.status.code(), Some(1));
    let message = String::from_utf8_lossy(&rejection.stderr);
    assert!(message.contains("Theorem 1: two hops, one full layer") && message.contains(", fails"), "{message}");
}

#[test]
fn bound_accepts_bits_instead_of_a_stack() {
    let bound = json(&["bound", "--hops", "2", "--message-bits", "4", "--state-bits", "1,0", "--json"]);
    assert!(bound["tokens"].as_str().unwrap().parse::<u32>().unwrap() <= 14);
    assert_fails(
        &["bound", "--hops", "2", "--message-bits", "4", "--state-bits", "1"],
        "--state-bits: found 1 blocks, expected 2",
    );
    assert_fails(&["bound", "--hops", "2"], "give a stack");
}

#[test]
fn capacity_counts_rungs() {
    for (stack, full_layers, rungs, extra_hop) in [
        ("linear full", 1, 1, true),
        ("full full", 2, 1, false),
        ("full linear full", 2, 2, true),
        ("linear full full", 2, 2, true),
        ("full full full", 3, 2, false),
        ("full full full linear*9", 3, 2, false),
        ("mamba2*48", 0, 0, true),
        ("(gdn*3 full)*12", 12, 12, true),
    ] {
        let capacity = json(&["capacity", stack, "--json"]);
        assert_eq!((&capacity["full"], &capacity["rungs"]), (&full_layers.into(), &rungs.into()), "{stack}");
        assert_eq!(capacity["extra_hop"], extra_hop);
        assert_eq!(capacity["blocks"].as_array().unwrap().len(), full_layers + 1);
        assert_eq!(capacity["state_bits"].as_array().unwrap().len(), full_layers + 1);
    }
    let text = String::from_utf8(rung(&["capacity", "full linear full"]).stdout).unwrap();
    assert!(text.contains("rungs      exactly 2 hops"), "{text}");
}

#[test]
fn decide_gives_each_verdict() {
    let solved = json(&["decide", "full linear full", "--hops", "2", "--m", "50", "--n", "7", "--json"]);
    assert_eq!((&solved["verdict"], &solved["construction"]), (&"solved".into(), &"U2'".into()));
    let small = ["--heads", "1", "--head-dim", "8", "--bits", "4", "--json"];
    let impossible =
        json(&[&["decide", "linear full", "--hops", "2", "--m", "1000", "--n", "100"], &small[..]].concat());
    assert_eq!(impossible["verdict"], "impossible");
    assert_eq!(impossible["certificate"]["m"], "1000");
    let smallest = json(&[&["decide", "linear full", "--hops", "2", "--m", "106", "--n", "1"], &small[..]].concat());
    assert_eq!((&smallest["verdict"], &smallest["tokens"]), (&"impossible".into(), &"214".into()));
    assert_eq!(smallest["certificate"]["theorem"], "entropy");
    let unknown = json(&["decide", "linear full", "--hops", "2", "--m", "8", "--n", "4", "--json"]);
    assert_eq!(unknown["verdict"], "unknown");
    assert!(unknown["reason"].as_str().unwrap().contains("not excludable by this kind of proof: shortcut S"));
}

#[test]
fn sparse_compares_the_bits_of_summaries_with_the_bits_needed() {
    let arguments =
        ["sparse", "--block", "64", "--select", "4", "--values", "65536", "--blocks", "128", "--json", "--curve"];
    let short = json(&[&arguments[..], &["--bits", "256"]].concat());
    let long = json(&[&arguments[..], &["--bits", "726"]].concat());
    assert_eq!((&short["verdict"], &long["verdict"]), (&"impossible".into(), &"unknown".into()));
    assert_eq!(short["bits_needed"], 726);
    assert_eq!(short["curve"].as_array().unwrap().len(), 7);
}

#[test]
fn errors_name_the_bad_input() {
    assert_fails(&["capacity", "lineer full"], "did you mean `linear`");
    assert_fails(&["capacity", ""], "the stack is empty");
    assert_fails(&["capacity", "full*0"], "a repeat count of at least 1");
    assert_fails(&["capacity", "full", "--heads", "0"], "heads: found 0");
    assert_fails(&["capacity", "full", "--heads", "-3"], "invalid value");
    assert_fails(&["capacity", "((full*99999)*99999)*99999"], "at most 1048576 are read");
    assert_fails(&["capacity", "full{heads=99999999999}"], "found 99999999999");
    assert_fails(&["bound", "full", "--hops", "0"], "--hops: found 0");
    assert_fails(&["bound", "full", "--hops", "60"], "--hops: found 60");
    assert_fails(&["decide", "full", "--hops", "0", "--m", "4"], "hops: found 0");
    assert_fails(&["decide", "full", "--hops", "2", "--m", "4"], "--n has 0 entries, expected 1");
    assert_fails(&["decide", "full", "--hops", "2", "--m", "0", "--n", "3"], "m is 0");
    assert_fails(&["decide", "full", "--hops", "2", "--m", "x", "--n", "3"], "--m: found `x`");
    assert_fails(
        &["sparse", "--block", "0", "--select", "1", "--bits", "1", "--values", "9", "--blocks", "4"],
        "block: found 0",
    );
    assert_fails(&["explain", "linera"], "did you mean `linear`");
    assert_fails(&["task", "show", "funcomp"], "funccomp");
    assert_fails(&["check", "no-such-file.json"], "no-such-file.json");
    assert_fails(&["map", "full", "--out", "map.gif"], "expected a file ending in .svg, .png, .csv");
    assert!(rung(&["capacity", "full*100000"]).status.success());
}

#[test]
fn every_explain_page_has_text() {
    for page in json(&["explain", "--json"]).as_array().unwrap() {
        let name = page["name"].as_str().unwrap();
        let text = json(&["explain", name, "--json"])["text"].as_str().unwrap().to_owned();
        assert!(text.len() > 200, "{name}");
    }
    assert!(String::from_utf8(rung(&["explain", "ssd"]).stdout).unwrap().starts_with("mamba2 (mixer)"));
}

#[test]
fn task_sample_writes_json_lines_with_and_without_the_json_option() {
    let sample = |extra_args: &[&str]| {
        rung(&[&["task", "sample", "parity", "--count", "3", "--seed", "4"], extra_args].concat())
    };
    let without_option = sample(&[]);
    let with_option = sample(&["--json"]);
    assert_eq!((with_option.status.code(), &with_option.stdout), (Some(0), &without_option.stdout));
    let lines = String::from_utf8(with_option.stdout).unwrap();
    assert_eq!(
        lines.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()["tokens"].is_array()).count(),
        3
    );
    assert_fails(&["task", "sample", "parity", "--json", "--format", "text"], "cannot be used with");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rung"))
        .args(["task", "sample", "parity", "--count", "100000000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn reproduce_writes_the_same_report_and_its_files_twice() {
    let directory = scratch_directory("report");
    let out = directory.to_str().unwrap();
    let first = json(&["reproduce", "--only", "proved", "--out", out, "--json"]);
    let report = std::fs::read_to_string(first["report"].as_str().unwrap()).unwrap();
    assert!(report.contains("Proved") && report.contains("<svg") && !report.contains("NaN"));
    assert!(!report.contains("src=\"http") && !report.contains("href=\"http"));
    let certificates: Vec<_> = std::fs::read_dir(directory.join("certificates")).unwrap().collect();
    assert_eq!(certificates.len(), 24);
    for certificate in certificates {
        let path = certificate.unwrap().path();
        assert_eq!(rung(&["check", path.to_str().unwrap()]).status.code(), Some(0));
    }
    assert!(directory.join("figures/map-1.png").exists());
    let again = json(&["reproduce", "--only", "proved", "--out", out, "--json"]);
    assert_eq!(std::fs::read_to_string(again["report"].as_str().unwrap()).unwrap(), report, "not deterministic");
}

#[test]
fn bench_measures_the_selected_cases() {
    const FIELDS: [&str; 9] =
        ["what", "mixer", "shape", "ms", "tokens_per_s", "peak_bytes", "share_of_limit", "peers", "ratio"];
    let names = |rows: &Value| -> Vec<String> {
        let name = |row: &Value| format!("{} {} {}", row["what"], row["mixer"], row["shape"]).replace('"', "");
        rows.as_array().unwrap().iter().map(name).collect()
    };
    let quick = ["bench", "--steps", "1", "--threads", "2", "--json"];
    let rows = json(&[&quick[..], &["--shape", "S", "--mixer", "retnet"]].concat());
    assert_eq!(names(&rows), ["forward retnet S", "forward+backward retnet S", "train retnet S"]);
    for row in rows.as_array().unwrap() {
        assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), FIELDS);
        assert!(row["ms"].as_f64().unwrap() > 0.0 && row["tokens_per_s"].as_f64().unwrap() > 0.0);
        assert!(row["share_of_limit"].as_f64().unwrap() > 0.0);
        assert!(row["peers"].as_array().unwrap().is_empty() && row["ratio"].is_null());
    }
    let rows = json(&[&quick[..], &["--only", "exponents", "--mixer", "conv"]].concat());
    assert_eq!(names(&rows), ["exponent conv n=512..8192", "step conv n=256", "step conv n=8192"]);
    assert!(rows[0]["exponent"].is_f64());
    let text = rung(&["bench", "--only", "kernels", "--shape", "S", "--mixer", "rms_norm", "--steps", "1"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("peak ") && text.lines().count() == 4, "{text}");
}

#[cfg(unix)]
#[test]
fn bench_compares_with_another_program() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = scratch_directory("peer");
    let peer = |name: &str, script: &str| {
        let path = directory.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // The script reports two repetitions of some seconds for every kernel but gla, which it does not have.
    let slow = peer(
        "slow",
        "echo ready slow 1; while read line; do case \"$line\" in *gla*) echo none;; *) echo 5000 7000 1024;; esac; done",
    );
    let bench = ["bench", "--only", "kernels", "--shape", "S", "--steps", "2", "--json"];
    let bench_against = |mixer: &str| json(&[&bench[..], &["--mixer", mixer, "--against", &slow]].concat());
    let rows = bench_against("rms_norm");
    for row in rows.as_array().unwrap() {
        let (ms, peer_ms) = (row["ms"].as_f64().unwrap(), row["peers"][0]["ms"].as_f64().unwrap());
        assert!((peer_ms - 7000.0).abs() < 1e-9 && (row["ratio"].as_f64().unwrap() - peer_ms / ms).abs() < 1e-9);
    }
    assert!(bench_against("gla")[0]["ratio"].is_null());
    let fails_against = |path: &str, expected: &str| {
        let arguments = ["bench", "--only", "kernels", "--shape", "S", "--mixer", "rms_norm", "--against", path];
        let output = rung(&arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    fails_against(&peer("bare", "echo 'cannot import torch (no module)'"), "cannot import torch (no module)");
    fails_against(&peer("silent", "exit 1"), "ended without an answer");
    fails_against(&peer("mad", "echo ready mad 1; while read line; do echo what; done"), "it answered `what`");
    fails_against("/no/such/python", "/no/such/python: No such file");
}

#[test]
fn bench_rejects_unknown_shapes_mixers_and_numbers() {
    assert_fails(&["bench", "--shape", "XL"], "--shape: found `XL`, expected one of S, M, L");
    assert_fails(&["bench", "--mixer", "gdm"], "--mixer: found `gdm`");
    assert_fails(&["bench", "--only", "train", "--mixer", "rms_norm"], "nothing to measure");
    assert_fails(&["bench", "--steps", "0"], "--steps: found 0");
    assert_fails(&["bench", "--threads", "9999"], "--threads: found 9999");
}

#[test]
fn zoo_lists_every_mixer_with_its_evidence() {
    let directory = scratch_directory("zoo");
    let files = ["zoo.svg", "zoo.png", "zoo.csv"].map(|name| directory.join(name));
    let tiny = ["zoo", "--lengths", "2,4,8", "--steps", "1"];
    let zoo = json(&[&tiny[..], &["--json", "--out", files[0].to_str().unwrap()]].concat());
    let rows = zoo["mixers"].as_array().unwrap();
    let pages = json(&["explain", "--json"]);
    let mixers = pages.as_array().unwrap().iter().filter(|page| page["subject"] == "mixer");
    assert!(mixers.map(|page| &page["name"]).eq(rows.iter().map(|row| &row["mixer"])));
    let row = |name: &str| rows.iter().find(|row| row["mixer"] == name).unwrap();
    assert_eq!(row("full")["counted"]["grows"], "64 per token");
    assert_eq!(row("full")["counted"]["evidence"], "proved");
    assert_eq!(row("gdn")["timed"]["tokens_per_s"].as_array().unwrap().len(), 3);
    assert_eq!(row("gdn")["timed"]["evidence"], "measured");
    assert!(row("chunked")["timed"].is_null(), "a mixer that is not implemented is listed but not timed");
    assert!(row("rglru")["timed"].is_object() && row("lightning")["timed"].is_object());
    assert_eq!(
        (&row("deltanet")["parity"]["tracks"], &row("full")["parity"]["tracks"]),
        (&"yes".into(), &"unknown".into())
    );
    for path in &files[1..] {
        let output = rung(&[&tiny[..], &["--out", path.to_str().unwrap()]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(rows.iter().all(|row| text.contains(row["mixer"].as_str().unwrap())), "{text}");
    }
    let [svg, png, csv] = files.map(|path| std::fs::read(path).unwrap());
    assert!(
        svg.starts_with(b"<svg")
            && png.starts_with(b"\x89PNG")
            && String::from_utf8(csv).unwrap().contains("\nmixer,crosses")
    );
    let layers = json(&["zoo", "moba", "nsa{heads=4,kv=1,block=2}", "--lengths", "4,8", "--steps", "1", "--json"]);
    let layers = layers["mixers"].as_array().unwrap();
    assert_eq!((&layers[0]["mixer"], layers.len()), (&"moba".into(), 2));
    assert!(layers[1]["layer"].as_str().unwrap().starts_with("nsa{heads=4,kv=1"), "{}", layers[1]["layer"]);
    assert_fails(&["zoo", "full full"], "`full full`: expected one layer with one mixer");
    assert_fails(&["zoo", "--lengths", "8,8"], "--lengths: found [8, 8], expected two or more in increasing order");
    assert_fails(&["zoo", "--lengths", "8"], "--lengths: found [8]");
    assert_fails(&["zoo", "--steps", "0"], "--steps: found 0");
    assert_fails(&["zoo", "--out", "zoo.jpg"], "expected a file ending in .svg");
}

#[test]
fn model_show_describes_stacks_and_files() {
    let sizes = ["--heads", "2", "--head-dim", "8", "--json", "--tensors"];
    let model = json(&[&["model", "show", "--stack", "linear*2 full+gdn"], &sizes[..]].concat());
    let layers = model["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 3);
    assert_eq!(
        (&layers[0]["cache_elements_per_token"], &layers[2]["cache_elements_per_token"]),
        (&0.into(), &32.into())
    );
    // Two heads of 8 by 8, and the normaliser's 8.
    assert_eq!(layers[0]["state_elements"], 2 * (8 * 8 + 8));
    let tensors = model["tensors"].as_array().unwrap();
    let size =
        |tensor: &Value| -> u64 { tensor["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product() };
    let total = model["parameters"].as_u64().unwrap();
    assert_eq!(tensors.iter().map(size).sum::<u64>(), total);
    assert_eq!(model["bytes"], 4 * total);
    let non_layer_components = model["non_layer_components"].as_array().unwrap().iter();
    assert_eq!(non_layer_components.chain(layers).map(|part| part["parameters"].as_u64().unwrap()).sum::<u64>(), total);

    let path = scratch_directory("model").join("model.safetensors");
    let file = path.to_str().unwrap();
    let write_safetensors = |header: &str, data: usize| {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat();
        std::fs::write(&path, bytes).unwrap();
    };
    let header = r#"{"__metadata__":{"rung.stack":"full","rung.width":"16"},
        "model.layers.0.self_attn.q_proj.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
    write_safetensors(header, 12);
    let model = json(&["model", "show", file, "--json"]);
    assert_eq!((&model["parameters"], &model["bytes"]), (&6.into(), &12.into()));
    assert_eq!(model["layers"][0]["components"][0]["name"], "self_attn");
    assert!(model["layers"][0]["mixers"][0].as_str().unwrap().starts_with("full{"));
    assert_fails(&["model", "show", file, "--stack", "full"], "the file is not of this stack");
    write_safetensors(header, 11);
    assert_fails(&["model", "show", file], "cut off in tensor `model.layers.0.self_attn.q_proj.weight`");
    write_safetensors(&header.replace("full", "ful"), 12);
    assert_fails(&["model", "show", file], "did you mean `full`");
    std::fs::write(&path, [0xff; 99]).unwrap();
    assert_fails(&["model", "show", file], "not a safetensors file");
    assert_fails(&["model", "show", "nowhere.safetensors"], "nowhere.safetensors");
    assert_fails(&["model", "show"], "give a safetensors file, or --stack");
    assert_fails(
        &["model", "show", "--stack", "full", "--heads", "1024", "--head-dim", "1024"],
        "at most 2147483648 are allocated",
    );
    assert_fails(&["model", "show", "--stack", "compressed"], "mixer `compressed` is not implemented");
}

#[test]
fn verify_accepts_constructions_and_rejects_modified_files() {
    let directory = scratch_directory("construct");
    let folder = directory.join("u2");
    let path = folder.to_str().unwrap();
    let construction =
        json(&["construct", "u2", "--hops", "2", "--m", "2", "--n", "2", "--mixer", "gdn", "--out", path, "--json"]);
    assert_eq!((&construction["name"], &construction["tokens"]), (&"U2".into(), &8.into()));
    let verification = json(&["verify", path, "--exhaustive", "--json"]);
    assert_eq!((&verification["instances"], &verification["correct"]), (&4096.into(), &4096.into()));
    assert_eq!(
        (&verification["exhaustive"], &verification["layers"], &verification["tokens"]),
        (&true.into(), &3.into(), &8.into())
    );
    let other = directory.join("u2-prime");
    let other = other.to_str().unwrap();
    json(&["construct", "U2'", "--hops", "2", "--m", "2", "--n", "2", "--mixer", "rwkv7", "--out", other, "--json"]);
    let all = json(&["verify", other, "--exhaustive", "--json"]);
    assert_eq!((&all["instances"], &all["correct"], &all["exhaustive"]), (&4096.into(), &4096.into(), &true.into()));
    let sampled = json(&["verify", path, "--samples", "100", "--find-bits", "--json"]);
    assert!((1..=24).contains(&sampled["bits"].as_u64().unwrap()), "{sampled}");
    let text = String::from_utf8(rung(&["verify", path, "--samples", "50", "--precision", "f64"]).stdout).unwrap();
    assert!(text.contains("50 of 50 right"), "{text}");
    assert!(std::fs::read_to_string(folder.join("README.md")).unwrap().contains("`is.start`"));
    // One bit is too few for the values +1, -1 and 0.
    assert_eq!(rung(&["verify", path, "--samples", "50", "--bits", "1"]).status.code(), Some(1));
    let weights = folder.join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() - 4]).unwrap();
    assert_fails(&["verify", path], "model.safetensors");
    let mut zeros = bytes.clone();
    let midpoint = bytes.len() / 2;
    zeros[midpoint..].fill(0);
    std::fs::write(&weights, &zeros).unwrap();
    // A file that was changed after it was written is rejected before the network runs.
    assert_fails(&["verify", path, "--samples", "50"], "model.safetensors");
    assert_fails(&["verify", directory.to_str().unwrap()], "construction.json");
    assert_fails(&["construct", "U9"], "there is no construction `U9`");
    assert_fails(&["construct", "U1", "--hops", "0"], "--hops: found 0");
    assert_fails(&["construct", "U1", "--hops", "2", "--n", "2,2"], "--n has 2 entries");
    assert_fails(&["construct", "U1", "--mixer", "gdn"], "no forwarding layer");
    assert_fails(&["construct", "U2", "--mixer", "nsa"], "no known forwarding weights");
    assert_fails(&["construct", "U1", "--m", "4000000000"], "tokens");
    assert_fails(&["construct", "U2", "--stack", "full full"], "does not fit the stack");
}

#[test]
fn trace_and_protocol_run_a_construction() {
    let directory = scratch_directory("trace");
    let (folder, picture, page) = (directory.join("u2"), directory.join("t.svg"), directory.join("t.html"));
    let [path, svg, html] = [&folder, &picture, &page].map(|path| path.to_str().unwrap());
    json(&["construct", "U2'", "--hops", "3", "--m", "3", "--n", "2,2", "--mixer", "gdn", "--out", path, "--json"]);
    let trace = json(&["trace", path, "--seed", "4", "--svg", svg, "--html", html, "--json"]);
    assert_eq!((&trace["answer"], trace["layers"].as_array().unwrap().len()), (&trace["expected"], 4));
    assert_eq!(trace["layers"][1]["reads"][0]["through"], "state");
    assert!(std::fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    let text = String::from_utf8(rung(&["trace", path, "--instance", "7"]).stdout).unwrap();
    assert!(text.contains("layer 3, full") && text.contains("as the oracle says"), "{text}");
    let protocol = json(&["protocol", path, "--bits", "16", "--json"]);
    assert_eq!(
        (&protocol["exact"], &protocol["message_number_bits"], &protocol["replayed"]),
        (&true.into(), &16.into(), &5.into())
    );
    let received_bits =
        protocol["epochs"].as_array().unwrap().iter().flat_map(|epoch| epoch["sent"].as_array().unwrap());
    assert_eq!(received_bits.map(|bits| bits.as_u64().unwrap()).sum::<u64>(), protocol["total"].as_u64().unwrap());
    assert_fails(&["protocol", path, "--bits", "5"], "--bits: found 5, expected 9 to 32, or 64");
    assert_fails(&["trace", path, "--instance", "x"], "--instance: found \"x\"");
    assert_fails(&["trace", path, "--instance", "1,2,3"], "expected 23 tokens");
    assert_fails(&["trace", path, "--position", "99"], "position 99");
    assert_fails(&["trace", path, "--svg", "no/such/place.svg"], "--svg");
    assert_fails(&["trace", "nowhere"], "nowhere: found neither construction.json nor run.toml");
}

#[test]
fn bound_and_capacity_accept_models_and_explain_errors() {
    let preset = json(&["bound", "lfm2-1.2b", "--hops", "7", "--json"]);
    assert_eq!(preset["verdict"], "impossible");
    // The certificate names the stack with every size, so that the checker can count its bits.
    assert!(preset["certificate"]["stack"].as_str().unwrap().contains("full{heads=32,kv=8,"), "{preset}");
    assert_eq!(json(&["bound", "qwen3-next-80b-a3b", "--hops", "12", "--json"])["verdict"], "solved");
    assert_fails(&["bound", "qwen3.5-9b", "--hops", "9"], "certificates are searched up to there");
    assert_fails(&["capacity", "qwen3.5-9b", "--heads", "2"], "its config has the sizes");
    assert_fails(&["capacity", "qwen3.5-9"], "did you mean the preset `qwen3.5-9b`?");
}
