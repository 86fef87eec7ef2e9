//! `rung ask` as users run it: against servers on loopback, killed in the middle, and resumed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rung_ask::ladder::Grid;
use rung_ask::prompt::{PromptWriter, Question, Variant};
use rung_ask::record::read;
use rung_ask::symbols::{Symbols, letters};
use rung_ask::test_server::{ServerFault, TestProtocol, TestServer};

/// The questions that `--hops 0..2 --entries 4 --shots 0 --seed 3` asks.
fn questions(count: u64) -> Vec<Question> {
    let symbols = Symbols { symbols: letters(4), checked: false };
    let (writer, variants) = (PromptWriter::default(), vec![Variant::default()]);
    let grid = Grid { writer, hops: vec![0, 1, 2], entries: vec![4], variants, count, seed: 3, symbols };
    grid.questions().unwrap().into_iter().map(|(_, question)| question).collect()
}

fn ask(server: &TestServer, count: u64, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(["ask", &server.url(), "--hops", "0..2", "--entries", "4", "--shots", "0", "--seed", "3", "--json"]);
    command.args(["--count", &count.to_string(), "--out"]).arg(out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ask-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until the record has so many lines.
fn wait_for(path: &Path, lines: usize, child: &mut Child) {
    for _ in 0..2000 {
        let found = std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        if found >= lines || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_run_resumes_to_the_same_record() {
    let (folder, count) = (scratch("kill"), 60);
    let server = || TestServer::start(TestProtocol::LlamaCpp, &questions(count), 1, &[ServerFault::Slow]).unwrap();
    let (undisturbed, killed) = (folder.join("undisturbed.jsonl"), folder.join("killed.jsonl"));
    let server_a = server();
    assert!(ask(&server_a, count, &undisturbed).status().unwrap().success());

    let server_b = server();
    for lines in [20, 60, 120] {
        let mut child = ask(&server_b, count, &killed).spawn().unwrap();
        wait_for(&killed, lines, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = ask(&server_b, count, &killed).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The address differs, so the header does; all answers are the same.
    assert_eq!(read(&killed).unwrap().1, read(&undisturbed).unwrap().1);
    assert_eq!(read(&killed).unwrap().1.len(), 180);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["hops"][0]["measured_hops"], 1);
}

#[test]
fn a_key_is_sent_and_written_nowhere() {
    let (folder, key) = (scratch("key"), "secret-key-of-this-test");
    let server = TestServer::start(TestProtocol::Completions, &questions(2), 2, &[]).unwrap();
    let out = folder.join("a.jsonl");
    let output = ask(&server, 2, &out).env("RUNG_API_KEY", key).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.last_authorization().as_deref(), Some(format!("Bearer {key}").as_str()));
    let written = [output.stdout, output.stderr, std::fs::read(&out).unwrap()].concat();
    assert!(!String::from_utf8_lossy(&written).contains(key));
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let folder = scratch("none");
    let server = TestServer::start(TestProtocol::LlamaCpp, &questions(1), 2, &[]).unwrap();
    let mut command = ask(&server, 1, &folder.join("a.jsonl"));
    drop(server);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("127.0.0.1"));
}
