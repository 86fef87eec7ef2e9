//! Sweeps on disks that cannot be written: the sweep ends with an error that names the path and the cause, its records are complete, and
//! the same command resumes it.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{SmallSweep, command, output_text, path_str, records, rung, scratch_directory};

const SWEEP: SmallSweep = SmallSweep { seeds: 4, steps: 60, evaluations: 6, stacks: &["full"] };

/// Writes the sweep into a new folder. Returns the folder, the config file, and the records of an undisturbed run.
fn prepare(name: &str) -> (PathBuf, PathBuf, BTreeMap<String, String>) {
    let folder = scratch_directory(name);
    let sweep = SWEEP.write(&folder);
    let undisturbed = folder.join("undisturbed");
    let output = rung(&["sweep", path_str(&sweep), "--out", path_str(&undisturbed)]);
    assert!(output.status.success(), "{}", output_text(&output));
    let expected = records(&undisturbed);
    assert_eq!(expected.len(), 4);
    (folder, sweep, expected)
}

/// Asserts exit code 1 and an error that names a file below the directory, the cause, and how to resume.
fn assert_write_error(output: &Output, directory: &Path, cause: &str) {
    let printed = output_text(output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let line = printed.lines().find(|line| line.contains("failed: ")).unwrap_or_else(|| panic!("{printed}"));
    assert!(line.contains(path_str(directory)) && line.contains(cause), "{printed}");
    assert!(printed.contains("the same command resumes") && !printed.contains("panicked"), "{printed}");
}

/// Asserts that every record so far is complete, and that the same command writes the others.
fn assert_resumes(sweep: &Path, out: &Path, expected: &BTreeMap<String, String>) {
    for (name, record) in records(out) {
        assert_eq!(expected.get(&name), Some(&record), "{name}");
    }
    let output = rung(&["sweep", path_str(sweep), "--out", path_str(out)]);
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(records(out), *expected);
}

#[test]
fn a_limit_on_the_size_of_files_ends_the_sweep() {
    let (folder, sweep, expected) = prepare("disk-limit");
    // Limits in blocks of 512 bytes: too small for a config, or for a checkpoint.
    for blocks in [0, 8] {
        let out = folder.join(format!("limited-{blocks}"));
        let script =
            format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" sweep \"$1\" --out \"$2\" --threads 2 2>&1 | cat");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_rung"), path_str(&sweep), path_str(&out)]);
        let output = output_text(&shell.output().unwrap());
        assert!(output.contains("File too large") && output.contains(path_str(&out)), "{blocks}: {output}");
        assert!(output.contains("the same command resumes") && !output.contains("panicked"), "{blocks}: {output}");
        assert_resumes(&sweep, &out, &expected);
    }
}

#[test]
fn losing_the_output_directory_ends_the_sweep() {
    let (folder, _, expected) = prepare("disk-lost");
    let (out, moved, file) = (folder.join("out"), folder.join("moved"), folder.join("file"));
    std::fs::create_dir(&moved).unwrap();
    std::os::unix::fs::symlink(&moved, &out).unwrap();
    std::fs::write(&file, "no directory").unwrap();
    let long_sweep = SmallSweep { seeds: 9, ..SWEEP }.write(&scratch_directory("disk-lost-long"));
    let mut sweep_command = command(&["sweep", path_str(&long_sweep), "--out", path_str(&out), "--threads", "1"]);
    let child =
        sweep_command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_mins(1);
    while records(&out).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A file in place of the directory makes every write below it fail, also for root. It replaces the link in one step: in between the
    // sweep would find no directory and create one.
    std::fs::rename(&file, &out).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_write_error(&output, &out, "Not a directory");
    let first_records = records(&moved);
    assert!(!first_records.is_empty() && first_records.len() < 9, "{}", first_records.len());
    std::fs::remove_file(&out).unwrap();
    std::fs::rename(&moved, &out).unwrap();
    let output = rung(&["sweep", path_str(&long_sweep), "--out", path_str(&out)]);
    assert!(output.status.success(), "{}", output_text(&output));
    let all_records = records(&out);
    assert_eq!(all_records.len(), 9);
    assert!(expected.iter().chain(&first_records).all(|(name, record)| all_records.get(name) == Some(record)));
}

#[test]
fn an_output_path_that_is_a_file_is_an_error() {
    let folder = scratch_directory("disk-file");
    let (sweep, out) = (SWEEP.write(&folder), folder.join("out"));
    std::fs::write(&out, "no directory").unwrap();
    common::assert_fails(
        &["sweep", path_str(&sweep), "--out", path_str(&out)],
        &format!("creating the directory {}", out.display()),
    );
}

/// Mounts a small and then read-only file system, where the system allows it to an ordinary process; otherwise the test is skipped.
#[cfg(target_os = "linux")]
#[test]
fn a_full_or_read_only_file_system_ends_the_sweep() {
    let (folder, sweep, expected) = prepare("disk-mount");
    let (mounted, copy) = (folder.join("mounted"), folder.join("copy"));
    std::fs::create_dir(&mounted).unwrap();
    // The files of one run take about 60 KB: the disk is full in the second run, then read-only, then large.
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
    shell.args([
        "-r",
        "-m",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_rung"),
        path_str(&sweep),
        path_str(&mounted),
        path_str(&copy),
    ]);
    let Some(output) = shell.output().ok().filter(|output| output.status.success()) else {
        println!("skipped: no mounts for this process");
        return;
    };
    let read = |name: &str| {
        std::fs::read_to_string(copy.join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}: {}", output_text(&output)))
    };
    for (name, cause) in [("full.txt", "No space left on device"), ("readonly.txt", "Read-only file system")] {
        let printed = read(name);
        assert!(
            printed.contains(cause) && printed.contains(path_str(&mounted)) && !printed.contains("panicked"),
            "{printed}"
        );
        assert!(printed.contains("the same command resumes") && printed.ends_with("1\n"), "{printed}");
    }
    let before = records(&copy.join("before"));
    assert!(before.iter().all(|(name, record)| expected.get(name) == Some(record)) && before.len() < 4);
    assert!(read("last.txt").ends_with("0\n"), "{}", read("last.txt"));
    assert_eq!(records(&copy.join("after")), expected);
}
