//! A sweep that is killed repeatedly, interrupted, run on a full disk and with jumps of the clock writes the same records as an
//! undisturbed one.
//!
//! With the other tests it runs for a few seconds. An hour: `RUNG_SOAK_SECONDS=3600 cargo test -p rung --test soak -- --nocapture`.
//!
//! Jumps of the clock are simulated without root: the modification times of all files of the sweep are set to times years before or
//! after now.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::fs::FileTimes;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::{Lcg, SmallSweep, path_str, records, rung, scratch_directory};

const SWEEP: SmallSweep = SmallSweep { seeds: 6, steps: 120, evaluations: 6, stacks: &["full", "gdn full"] };

/// Starts the sweep. `max_blocks` limits the size of files, in blocks of 512 bytes, to simulate a full disk.
fn start(sweep: &Path, out: &Path, max_blocks: Option<usize>) -> Child {
    let limit = max_blocks.map_or_else(String::new, |blocks| format!("trap '' XFSZ; ulimit -f {blocks}; "));
    let script = format!("{limit}exec \"$0\" sweep \"$1\" --out \"$2\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rung"), path_str(sweep), path_str(out)]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send_signal(child: &Child, name: &str) {
    // The command fails if the process has already ended.
    let _ = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
}

/// Sets the times of every file of a sweep to random times between 1971 and 2107.
fn randomize_file_times(directory: &Path, rng: &mut Lcg) {
    let runs = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = runs.flat_map(|run| std::fs::read_dir(run).into_iter().flatten().flatten());
    for file in files {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(31_536_000 + rng.random_below(1 << 31) as u64 * 2);
        // The file may have been deleted since.
        let opened = std::fs::OpenOptions::new().append(true).open(file.path());
        let _ = opened.and_then(|file| file.set_times(FileTimes::new().set_accessed(time).set_modified(time)));
    }
}

#[test]
fn a_disturbed_sweep_ends_with_the_records_of_an_undisturbed_one() {
    let seconds = std::env::var("RUNG_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let (folder, end) = (scratch_directory("soak"), Instant::now() + Duration::from_secs(seconds));
    let sweep = SWEEP.write(&folder);
    let undisturbed = folder.join("undisturbed");
    let output = rung(&["sweep", path_str(&sweep), "--out", path_str(&undisturbed)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = records(&undisturbed);
    assert_eq!(expected.len(), 12);
    let (mut rng, mut counts, mut completed_sweeps) = (Lcg(seconds), BTreeMap::<&str, u32>::new(), 0);
    while Instant::now() < end || completed_sweeps == 0 {
        let out = folder.join(format!("disturbed-{completed_sweeps}"));
        // Disturb the sweep until it has all records, at most 40 times.
        for _ in 0..40 {
            if records(&out).len() == expected.len() {
                break;
            }
            let disturbance = ["KILL", "TERM", "INT", "full disk", "clock"][rng.random_below(5)];
            let mut child = start(&sweep, &out, (disturbance == "full disk").then(|| rng.random_below(40)));
            std::thread::sleep(Duration::from_millis(30 + rng.random_below(400) as u64));
            if disturbance == "full disk" {
                std::thread::sleep(Duration::from_millis(300));
                send_signal(&child, "KILL");
            } else if disturbance == "clock" {
                // Once while the sweep runs, and once before it is resumed.
                randomize_file_times(&out, &mut rng);
                std::thread::sleep(Duration::from_millis(100));
                send_signal(&child, "KILL");
                child.wait().unwrap();
                randomize_file_times(&out, &mut rng);
            } else {
                send_signal(&child, disturbance);
            }
            child.wait().unwrap();
            *counts.entry(disturbance).or_default() += 1;
            for (name, record) in records(&out) {
                assert_eq!(expected.get(&name), Some(&record), "{name} after {disturbance}");
            }
        }
        let output = rung(&["sweep", path_str(&sweep), "--out", path_str(&out)]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(records(&out), expected);
        let runs = std::fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        let files = runs.flat_map(|run| std::fs::read_dir(run).unwrap().flatten().map(|file| file.path()));
        let partial_files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|extension| extension == "part")).collect();
        assert!(partial_files.is_empty(), "{partial_files:?}");
        std::fs::remove_dir_all(&out).unwrap();
        completed_sweeps += 1;
    }
    println!("{completed_sweeps} sweeps, disturbed by {counts:?}");
}
