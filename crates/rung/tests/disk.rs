//! Disks that cannot be written: a sweep ends with the path and the cause, what it recorded is whole, and the same command resumes.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{command, rung, scratch, text};

const SWEEP: &str = "seeds = [1, 2, 3, 4]
[base]
task = 'funccomp{hops=1,m=6,queries=4}'
stack = 'full'
[base.model]
heads = 2
head = 8
[base.train]
steps = 60
batch = 4
[base.evaluate]
every = 10
prompts = 8
last = 16
stop_at = 2.0
";

/// A folder with the sweep, and the records of an undisturbed run of it.
fn prepare(name: &str) -> (PathBuf, PathBuf, BTreeMap<String, String>) {
    let folder = scratch(name);
    let sweep = folder.join("sweep.toml");
    std::fs::write(&sweep, SWEEP).unwrap();
    let calm = folder.join("calm");
    let output = rung(&["sweep", text(&sweep), "--out", text(&calm)]);
    assert!(output.status.success(), "{}", said(&output));
    let expected = records(&calm);
    assert_eq!(expected.len(), 4);
    (folder, sweep, expected)
}

fn records(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let record = |entry: std::fs::DirEntry| {
        let record = std::fs::read_to_string(entry.path().join("record.json")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), record))
    };
    entries.filter_map(record).collect()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// It ended with exit code 1, names a file below the directory and the cause, and says how to go on.
fn ended_clearly(output: &Output, directory: &Path, cause: &str) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let line = said.lines().find(|line| line.contains("failed: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(text(directory)) && line.contains(cause), "{said}");
    assert!(said.contains("the same command resumes") && !said.contains("panicked"), "{said}");
}

/// Every record so far is whole, and the same command brings the others.
fn resumes(sweep: &Path, out: &Path, expected: &BTreeMap<String, String>) {
    for (name, record) in records(out) {
        assert_eq!(expected.get(&name), Some(&record), "{name}");
    }
    let output = rung(&["sweep", text(sweep), "--out", text(out)]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(records(out), *expected);
}

#[test]
fn files_that_may_not_grow_end_the_sweep() {
    let (folder, sweep, expected) = prepare("disk-limit");
    // Blocks of 512 bytes: too few for a config, or for a checkpoint.
    for blocks in [0, 8] {
        let out = folder.join(format!("limited-{blocks}"));
        let script =
            format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" sweep \"$1\" --out \"$2\" --threads 2 2>&1 | cat");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_rung"), text(&sweep), text(&out)]);
        let output = said(&shell.output().unwrap());
        assert!(output.contains("File too large") && output.contains(text(&out)), "{blocks}: {output}");
        assert!(output.contains("the same command resumes") && !output.contains("panicked"), "{blocks}: {output}");
        resumes(&sweep, &out, &expected);
    }
}

#[test]
fn a_directory_that_is_lost_midway_ends_the_sweep() {
    let (folder, sweep, expected) = prepare("disk-lost");
    let (out, away) = (folder.join("out"), folder.join("away"));
    let slow =
        std::fs::read_to_string(&sweep).unwrap().replace("seeds = [1, 2, 3, 4]", "seeds = [1, 2, 3, 4, 5, 6, 7, 8, 9]");
    let long = folder.join("long.toml");
    std::fs::write(&long, slow).unwrap();
    let mut sweeping = command(&["sweep", text(&long), "--out", text(&out), "--threads", "1"]);
    let child = sweeping.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_mins(1);
    while records(&out).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    // From here on nothing can be written below it, whoever asks.
    std::fs::rename(&out, &away).unwrap();
    std::fs::write(&out, "no directory").unwrap();
    let output = child.wait_with_output().unwrap();
    ended_clearly(&output, &out, "Not a directory");
    let kept = records(&away);
    assert!(!kept.is_empty() && kept.len() < 9, "{}", kept.len());
    std::fs::remove_file(&out).unwrap();
    std::fs::rename(&away, &out).unwrap();
    let output = rung(&["sweep", text(&long), "--out", text(&out)]);
    assert!(output.status.success(), "{}", said(&output));
    let all = records(&out);
    assert_eq!(all.len(), 9);
    assert!(expected.iter().chain(&kept).all(|(name, record)| all.get(name) == Some(record)));
}

#[test]
fn a_place_that_is_no_directory_is_named() {
    let folder = scratch("disk-file");
    let (sweep, out) = (folder.join("sweep.toml"), folder.join("out"));
    std::fs::write(&sweep, SWEEP).unwrap();
    std::fs::write(&out, "no directory").unwrap();
    common::fails(&["sweep", text(&sweep), "--out", text(&out)], &format!("making the directory {}", out.display()));
}

/// A file system of its own, small or read-only, where the system lets an ordinary process have one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_or_read_only_file_system_ends_the_sweep() {
    let (folder, sweep, expected) = prepare("disk-mount");
    let (place, copy) = (folder.join("mounted"), folder.join("copy"));
    std::fs::create_dir(&place).unwrap();
    // One run's files take about 60 KB here: the disk is full in the second, then read-only, then large.
    let script = "set -e
        mount -t tmpfs -o size=96k none \"$2\"
        set +e
        \"$0\" sweep \"$1\" --out \"$2/out\" --threads 1 > \"$3/full.txt\" 2>&1; echo $? >> \"$3/full.txt\"
        mount -o remount,ro,size=96k none \"$2\"
        \"$0\" sweep \"$1\" --out \"$2/out\" --threads 1 > \"$3/readonly.txt\" 2>&1; echo $? >> \"$3/readonly.txt\"
        mount -o remount,rw,size=64m none \"$2\"
        cp -r \"$2/out\" \"$3/before\"
        \"$0\" sweep \"$1\" --out \"$2/out\" > \"$3/last.txt\" 2>&1; echo $? >> \"$3/last.txt\"
        cp -r \"$2/out\" \"$3/after\"";
    std::fs::create_dir(&copy).unwrap();
    let mut shell = Command::new("unshare");
    shell.args(["-r", "-m", "sh", "-c", script, env!("CARGO_BIN_EXE_rung"), text(&sweep), text(&place), text(&copy)]);
    let Some(output) = shell.output().ok().filter(|output| output.status.success()) else {
        println!("skipped: no mounts for this process");
        return;
    };
    let read = |name: &str| {
        std::fs::read_to_string(copy.join(name)).unwrap_or_else(|error| panic!("{name}: {error}: {}", said(&output)))
    };
    for (name, cause) in [("full.txt", "No space left on device"), ("readonly.txt", "Read-only file system")] {
        let said = read(name);
        assert!(said.contains(cause) && said.contains(text(&place)) && !said.contains("panicked"), "{said}");
        assert!(said.contains("the same command resumes") && said.ends_with("1\n"), "{said}");
    }
    let before = records(&copy.join("before"));
    assert!(before.iter().all(|(name, record)| expected.get(name) == Some(record)) && before.len() < 4);
    assert!(read("last.txt").ends_with("0\n"), "{}", read("last.txt"));
    assert_eq!(records(&copy.join("after")), expected);
}
