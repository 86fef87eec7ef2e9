//! A sweep that is killed again and again, asked to stop, denied the disk, and whose clock jumps, ends with the records of one that was
//! not disturbed.
//!
//! A few seconds of it run with the other tests. An hour: `RUNG_SOAK_SECONDS=3600 cargo test -p rung --test soak -- --nocapture`.
//!
//! A jump of the clock is what a program can see of one without being root: every file of the sweep was last written at another time, years
//! before or after now.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::fs::FileTimes;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::{rung, scratch, text};

const SWEEP: &str = "seeds = [1, 2, 3, 4, 5, 6]
[base]
task = 'funccomp{hops=1,m=6,queries=4}'
stack = 'full'
[base.model]
heads = 2
head = 8
[base.train]
steps = 120
batch = 4
[base.evaluate]
every = 20
prompts = 8
last = 16
stop_at = 2.0
[grid]
stack = ['full', 'gdn full']
";

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Every record of a sweep by name.
fn records(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| {
        let record = std::fs::read_to_string(entry.path().join("record.json")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), record))
    });
    records.collect()
}

/// Starts the sweep; no file may grow beyond so many blocks of 512 bytes, as on a disk that is full.
fn start(sweep: &Path, out: &Path, most_blocks: Option<u64>) -> Child {
    let limit = most_blocks.map_or_else(String::new, |blocks| format!("trap '' XFSZ; ulimit -f {blocks}; "));
    let script = format!("{limit}exec \"$0\" sweep \"$1\" --out \"$2\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rung"), text(sweep), text(out)]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    // It may have ended by itself.
    let _ = sent;
}

/// Sets the times of every file of a sweep to one between 1971 and 2106.
fn jump(directory: &Path, numbers: &mut Numbers) {
    let runs = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = runs.flat_map(|run| std::fs::read_dir(run).into_iter().flatten().flatten());
    for file in files {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(31_536_000 + numbers.below(u32::MAX.into()));
        // The file may be gone by now.
        let opened = std::fs::OpenOptions::new().append(true).open(file.path());
        let _ = opened.and_then(|file| file.set_times(FileTimes::new().set_accessed(time).set_modified(time)));
    }
}

#[test]
fn a_disturbed_sweep_ends_with_the_records_of_an_undisturbed_one() {
    let seconds = std::env::var("RUNG_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let (folder, end) = (scratch("soak"), Instant::now() + Duration::from_secs(seconds));
    let sweep = folder.join("sweep.toml");
    std::fs::write(&sweep, SWEEP).unwrap();
    let calm = folder.join("calm");
    let undisturbed = rung(&["sweep", text(&sweep), "--out", text(&calm)]);
    assert!(undisturbed.status.success(), "{}", String::from_utf8_lossy(&undisturbed.stderr));
    let expected = records(&calm);
    assert_eq!(expected.len(), 12);
    let (mut numbers, mut counts, mut finished) = (Numbers(seconds), BTreeMap::<&str, u32>::new(), 0);
    while Instant::now() < end || finished == 0 {
        let out = folder.join(format!("rough-{finished}"));
        // Disturb it until it has all records, or until it has been disturbed often enough.
        for _ in 0..40 {
            if records(&out).len() == expected.len() {
                break;
            }
            let kind = ["KILL", "TERM", "INT", "full disk", "clock"][numbers.below(5) as usize];
            let mut child = start(&sweep, &out, (kind == "full disk").then(|| numbers.below(40)));
            std::thread::sleep(Duration::from_millis(30 + numbers.below(400)));
            if kind == "full disk" {
                std::thread::sleep(Duration::from_millis(300));
                signal(&child, "KILL");
            } else if kind == "clock" {
                // While it runs, and before it is resumed.
                jump(&out, &mut numbers);
                std::thread::sleep(Duration::from_millis(100));
                signal(&child, "KILL");
                child.wait().unwrap();
                jump(&out, &mut numbers);
            } else {
                signal(&child, kind);
            }
            child.wait().unwrap();
            *counts.entry(kind).or_default() += 1;
            for (name, record) in records(&out) {
                assert_eq!(expected.get(&name), Some(&record), "{name} after {kind}");
            }
        }
        let last = rung(&["sweep", text(&sweep), "--out", text(&out)]);
        assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
        assert_eq!(records(&out), expected);
        let runs = std::fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        let files = runs.flat_map(|run| std::fs::read_dir(run).unwrap().flatten().map(|file| file.path()));
        let parts: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|ending| ending == "part")).collect();
        assert!(parts.is_empty(), "{parts:?}");
        std::fs::remove_dir_all(&out).unwrap();
        finished += 1;
    }
    println!("{finished} sweeps, disturbed by {counts:?}");
}
