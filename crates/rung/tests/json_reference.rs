//! Runs commands and compares the keys of their JSON with the lists in docs/json.md.
//!
//! This test generates the keys and types; people write the meanings. `RUNG_UPDATE=1 cargo test -p rung --test json_reference` updates the
//! page and keeps the meanings of keys that still exist.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use common::documents::root;
use common::scratch_directory;
use serde_json::Value;

/// The calls whose JSON is described, run in this order in one directory.
const CALLS: &[&[&str]] = &[
    &["audit", "lfm2-1.2b"],
    &["lint", "lfm2-1.2b"],
    &["place", "lfm2-1.2b", "--budget", "512MB"],
    &["plan", "lfm2-1.2b", "--engine", "vllm", "--memory", "24GiB"],
    &["capacity", "gdn full"],
    &["bound", "linear full", "--hops", "2", "--out", "certificate.json"],
    &["decide", "linear full", "--hops", "1", "--m", "8"],
    &["check", "certificate.json"],
    &["map", "full", "--hops", "1"],
    &["sparse", "--block", "64", "--select", "4", "--bits", "256", "--values", "65536", "--blocks", "128"],
    &["construct", "list"],
    &["construct", "U2", "--m", "3", "--out", "u2"],
    &["model", "show", "u2"],
    &["verify", "u2", "--samples", "10"],
    &["task", "list"],
    &["task", "show", "parity"],
    &["task", "sample", "parity"],
    &["task", "prompt", "chain"],
    &["train", "--stack", "gdn full", "--task", "parity", "--dry-run"],
    &["train", "--stack", "gdn full", "--task", "parity", "--set", "train.steps=2", "--out", "runs/first"],
    &["eval", "runs/first"],
    &["runs", "runs"],
    &["trace", "u2"],
    &["protocol", "u2"],
    &["analyze", "probe", "u2", "--prompts", "8"],
    &[
        "falsify",
        "--stack",
        "linear{heads=1,key=3,value=3,normaliser=no}",
        "--set",
        "model.heads=1",
        "--set",
        "model.head=8",
        "--task",
        "funccomp{hops=1,m=8}",
        "--bits",
        "4",
        "--out",
        "witness.json",
    ],
    &["witness", "check", "witness.json"],
    &["explain", "gdn"],
];

/// The start of the page.
const PAGE_HEADER: &str = "\
# JSON reference

Every command takes `--json`, also with `--dry-run` and `--list`. Names are stable. Layers are numbered from 0. Errors are JSON too:
`{\"error\": ..}` on standard error.

`[]` marks the objects of a list, and `N` a key that is a number, such as a number of hops. Types are those of the call that is shown; `null` stands where there is no value. The lists
below are made by running the commands (`crates/rung/tests/json_reference.rs`). The audit also has a JSON Schema,
`crates/rung-audit/schemas/audit.schema.json`.

Exit codes: 0 the question was answered; 1 refused (`check`, `witness check`), no witness found (`falsify`), wrong (`verify`), not the same bits
(`protocol`) or some runs failed (`sweep`, `reproduce`); 2 bad input; 3 some of the model is unknown (`audit`, `plan`); 130 interrupted with the work saved
(`train`, `sweep`, `reproduce`, `ask`).
";

/// Commands that take minutes, a server or a cluster: their keys are listed by hand.
const PAGE_FOOTER: &str = "
## Long commands

These take minutes, a server or a cluster, so no test lists their keys.

| command | keys |
|---|---|
| `rung analyze` | `name`, `task`, and what the analysis found: `ablate` has `variants`, `logit_lens` `levels` and `scores`, `precision` `steps`, `collapse` `variants`, `paths`, `products`, `bound`, `lens` `levels` and `map`, `state` `tokens` and `layers`, `injective` `heads`, `selection` and `diversity` `layers` |
| `rung ask` | `model`, `grid`, `threshold`, `rates` (one per variant, table size and number of hops), `hops` (list of `variant`, `entries`, `measured_hops`) |
| `rung bench` | a list of `what` (`forward`, `forward+backward`, `train`, `exponent`, `step`), `mixer`, `shape`, `ms` (median), `tokens_per_s`, `peak_bytes`, `share_of_limit`, `peers` (`software`, `ms`, `fastest_ms`, `peak_bytes` of each), `ratio` (of the fastest peer); `exponent` in rows of that name |
| `rung bench --profile` | a list of `mixer`, `shape`, `ms` (mean), `bound_ms` (products at peak, then the update at memory bandwidth), `peak_flops_per_s`, `bytes_per_s`, `rows` (`operation`, `pass`, `calls`, `ms`, `flops`, `bytes`, of one step each) |
| `rung convert` | `name`, `task`, `to`, `teacher`, `threshold`, `layers` (`layer`, `before`, `after`), `path` (`layer`, `score`), `best`, `most_linear`, `orders` (`name`, `layers`, `scores`), `written` |
| `rung reproduce` | `report`, `chapters`, `interrupted`, `seconds` |
| `rung sweep --dry-run` | a list of `run` (from 1), `id`, `stack`, `task`, `seed`, `rate` |
| `rung sweep` | `runs`, `recorded`, `recorded_before`, `interrupted`, `failed`, `records`, and `seconds_per_run`, `runs_per_hour` if any was finished here; with `--on slurm` also `job` (null, or `job`, `tasks`); with `--no-wait` `status` (`submitted`, `found`), `runs`, `recorded`, `job` |
| `rung zoo` | `lengths`, `steps`, `mixers`: a list of `mixer`, `layer`, `counted` (`crosses`, `grows`, `cost`, `credit`, `evidence`), `timed` (`tokens_per_s`, `exponent`, `evidence`), `parity` and `s3` (`tracks`, `evidence`, `shown_by`) |
";

/// Keys and the types of their values, in the order of the output.
type Keys = Vec<(String, BTreeSet<&'static str>)>;

/// Collects the keys of a value, down to three levels.
fn collect_keys(prefix: &str, value: &Value, keys: &mut Keys) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if name.chars().all(|c| c.is_ascii_digit()) { "N" } else { name };
                let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
                let kind = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "true or false",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    Value::Array(_) => "list",
                    Value::Object(_) => "object",
                };
                match keys.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, kinds)) => _ = kinds.insert(kind),
                    None => keys.push((key.clone(), BTreeSet::from([kind]))),
                }
                if key.matches('.').count() < 2 {
                    collect_keys(&key, value, keys);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(&format!("{prefix}[]"), item, keys)),
        _ => {}
    }
}

/// The JSON values that a call prints.
fn outputs(call: &[&str], directory: &Path) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    let output = command.args(call).arg("--json").current_dir(directory).output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{call:?}: {out}{error}");
    let values = serde_json::Deserializer::from_str(&out).into_iter();
    values.map(|value| value.unwrap_or_else(|error| panic!("{call:?}: {error}: {out}"))).collect()
}

/// A call as a shell command line.
fn command_line(call: &[&str]) -> String {
    let needs_no_quotes = |c: char| c.is_ascii_alphanumeric() || "-._/=".contains(c);
    let words = call
        .iter()
        .map(|word| if word.chars().all(needs_no_quotes) { (*word).to_owned() } else { format!("'{word}'") });
    words.collect::<Vec<_>>().join(" ")
}

/// The meanings on the page, by section and key.
fn meanings(page: &str) -> HashMap<(String, String), String> {
    let mut section = String::new();
    let mut meanings = HashMap::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut section);
        } else if let [key, _, meaning] = line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>()[..] {
            meanings.insert((section.clone(), key.trim_matches('`').to_owned()), meaning.to_owned());
        }
    }
    meanings
}

#[test]
fn json_reference_lists_the_keys_of_every_command() {
    let path = root().join("docs/json.md");
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let meanings = meanings(&stored);
    let directory = scratch_directory("json");
    let mut page = PAGE_HEADER.to_owned();
    let mut keys_without_meaning = Vec::new();
    for call in CALLS {
        let mut keys = Keys::new();
        for value in &outputs(call, &directory) {
            collect_keys("", value, &mut keys);
        }
        let is_dry_run = call.contains(&"--dry-run");
        let has_subcommand = ["model", "task", "witness"].contains(&call[0]) || call[1] == "list";
        let title = format!(
            "rung {}{}",
            call[..if has_subcommand { 2 } else { 1 }].join(" "),
            if is_dry_run { " --dry-run" } else { "" }
        );
        let _ = write!(
            page,
            "\n## {title}\n\n`rung {} --json`\n\n| key | type | meaning |\n|---|---|---|\n",
            command_line(call)
        );
        for (key, kinds) in keys {
            let kinds: Vec<&str> = kinds.into_iter().collect();
            let meaning = meanings.get(&(title.clone(), key.clone())).cloned().unwrap_or_default();
            if meaning.is_empty() {
                keys_without_meaning.push(format!("{title}: {key}"));
            }
            let _ = writeln!(page, "| `{key}` | {} | {meaning} |", kinds.join(" or "));
        }
    }
    page.push_str(PAGE_FOOTER);
    if std::env::var_os("RUNG_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let first_difference = stored.lines().zip(page.lines()).find(|(stored, written)| stored != written);
    assert!(stored == page, "docs/json.md differs: RUNG_UPDATE=1 writes it again; first at {first_difference:?}");
    assert!(keys_without_meaning.is_empty(), "docs/json.md: write what these keys mean: {keys_without_meaning:#?}");
}
